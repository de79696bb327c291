//! Which of the published events has the key that was refused?
//!
//! The store names the key and refuses the whole batch. Its sender wants to know which of a thousand events to correct.

use super::body::{Place, Published};
use super::problem::{Kind, Problem};
use ensue::key::PART_MARK;

/// The refusal of a key, with the place of the event that has it.
///
/// A batch may itself have two events under one key, whatever the store knows of it: then the later one is named.
pub(super) fn of_key(published: Published, key: &str) -> Problem {
    let (in_batch, events): (fn(usize) -> Place, _) = match published {
        Published::One(event) => (|_| Place::Alone, vec![event]),
        Published::Batch(events) => (Place::InBatch, events),
    };
    let mut under_key = events.into_iter().enumerate().filter_map(|(index, event)| {
        let entry = event.check().ok()?;
        let has_it = entry.key.as_ref().is_some_and(|own| own.as_str() == key);
        has_it.then(|| (index, entry.fingerprint()))
    });
    let first = under_key.next();
    let another = first.and_then(|(_, fingerprint)| under_key.find(|(_, other)| *other != fingerprint));
    let (place, used) = match (first, another) {
        (Some((first, _)), Some((index, _))) => (in_batch(index), format!("`events[{first}]`, another event, has too")),
        (Some((index, _)), None) => (in_batch(index), "was already used for another event".to_string()),
        (None, _) => (Place::Alone, "was already used for another event".to_string()),
    };
    // The key of a CloudEvent is made of its source and its id.
    let (is, what) = if key.contains(PART_MARK) { ("and its source make the key", "id") } else { ("is", "key") };
    let shown = key.replace(PART_MARK, " ");
    let reason = format!(
        "{is} `{}`, which {used}; send the same event again, or choose another {what}. Nothing was stored",
        shown.trim_start()
    );
    Problem::field(Kind::KeyConflict, place.name("key"), reason)
}
