//! What does `--where` want?

use super::args::json_text;
use clap::Args;
use ensue::{Direct, Filter, Json, ObjectKey, Topic, Wanted, Where};

/// Which events a command is about.
#[derive(Debug, Args)]
pub struct WantedArgs {
    /// Only this topic and those below it: order is also order.paid, never orders
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only events of this object
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Only events for which this SQL expression over e, the event, and s.params holds
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// JSON that the condition reads as s.params; also @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "condition")]
    params: Option<String>,
    /// Also direct messages, events that are sent to one subscription
    #[arg(long)]
    include_direct: bool,
}

impl WantedArgs {
    /// Checks what was asked for, before anything is sent or opened.
    pub fn check(&self) -> anyhow::Result<Wanted> {
        let filter = Filter {
            topic: self.topic.as_deref().map(Topic::parse_filter).transpose()?,
            object: self.object.as_deref().map(ObjectKey::parse_filter).transpose()?,
        };
        let direct = if self.include_direct { Direct::Include } else { Direct::Exclude };
        let Some(condition) = &self.condition else { return Ok(Wanted { filter, condition: None, direct }) };
        let params = match &self.params {
            Some(argument) => Json::parse("params", json_text("params", argument)?)?,
            None => Json::empty_object(),
        };
        Ok(Wanted { filter, condition: Some(Where::parse(condition, params)?), direct })
    }
}
