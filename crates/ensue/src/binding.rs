//! How does what a stream can want become what a handler is bound to?

use crate::handlers::Binding;
use crate::subscription::{Start, Subscription};
use ensue_core::{Invalid, Json, Topic};
use std::sync::Arc;

impl Subscription {
    pub(crate) fn into_binding(self) -> Binding {
        match self.check() {
            Ok((wanted, start)) => {
                let topic = bindable(wanted.filter.object.is_some(), start).map(|()| wanted.filter.topic);
                match wanted.condition {
                    Some(condition) => {
                        let params = Arc::unwrap_or_clone(condition.params);
                        Binding { topic, condition: Some(condition.condition), params }
                    }
                    None => unconditional(topic),
                }
            }
            Err(invalid) => unconditional(Err(invalid)),
        }
    }
}

fn unconditional(topic: Result<Option<Topic>, Invalid>) -> Binding {
    Binding { topic, condition: None, params: Json::empty_object() }
}

fn bindable(has_object: bool, start: Start) -> Result<(), Invalid> {
    if has_object {
        let reason = "cannot be what a handler is bound to; write a condition instead: `e.object = '…'`";
        return Err(Invalid::new("object", reason));
    }
    match start {
        Start::Now => Ok(()),
        Start::After(_) | Start::Time(_) => {
            let reason = "of a subscription is for streams; say where a handler begins with `start(…)` on the handler";
            Err(Invalid::new("after", reason))
        }
    }
}
