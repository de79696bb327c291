//! Can the handlers of the config file be on this store?
//!
//! What only the store knows is looked at before anything is made: so whoever wrote the file is told file, line and field.

use super::handlers_check::HandlerConfig;
use ensue::Ensue;
use ensue::positions::GroupKind;

/// Looks at what the store has under the keys of these handlers; the error names the first that cannot be.
pub async fn check(bus: &Ensue, handlers: &[HandlerConfig]) -> anyhow::Result<()> {
    if handlers.is_empty() {
        return Ok(());
    }
    let store = bus.store();
    let (bounds, (_, defined)) = (store.bounds().await?, store.definitions().await?);
    for handler in handlers {
        let key = &handler.key;
        if defined.iter().any(|definition| definition.key == *key) {
            let reason = format!(
                "makes the key `{key}`, which a handler in the store has: choose another name, or delete that (`ensue handler delete {key}`)"
            );
            return Err(handler.refusal("name", &reason));
        }
        match store.group(key).await?.map(|group| group.kind) {
            Some(GroupKind::Handler) => {}
            Some(GroupKind::Pull) => {
                let reason = format!(
                    "makes the key `{key}`, which a group that is read has: choose another name, or delete that (`ensue group delete {key}`)"
                );
                return Err(handler.refusal("name", &reason));
            }
            // Where it begins is asked of one that is new alone.
            None => {
                let start = handler.options.start.cursor(bounds);
                start.map_err(|invalid| handler.refusal(&invalid.field, &invalid.reason))?;
            }
        }
    }
    Ok(())
}
