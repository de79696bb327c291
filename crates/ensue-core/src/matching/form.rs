//! Forms of keys on the event's side, numbered while an entry has them.
//!
//! Entries with the same form share the keys of an event. A form is known by a hash, because the text of a long condition's form
//! is long. The hash is keyed and has 128 bits, so that nobody can find two forms with the same one.

use super::Want;
use crate::condition::terms::Key;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A form by its hash.
pub(super) type FormHash = [u64; 2];

/// The forms of the entries that there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Forms {
    by_hash: HashMap<FormHash, Form>,
    /// Numbers of forgotten forms, for the next ones.
    free: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Form {
    number: usize,
    entries: usize,
}

/// Hashes what is written to it.
struct HashWriter<H>([H; 2]);

impl<H: Hasher> Write for HashWriter<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.iter_mut().for_each(|hasher| hasher.write(text.as_bytes()));
        Ok(())
    }
}

/// What tells the forms of keys apart; none where the subscription's params decide.
pub(super) fn form_of(want: &Want, keys: &RandomState) -> Option<FormHash> {
    let mut hashers = [0, 1].map(|half| {
        let mut hasher = keys.build_hasher();
        hasher.write_u8(half);
        hasher
    });
    for key in &want.condition.terms().keys {
        let mut writer = HashWriter(hashers);
        match key {
            Key::Equal { event, subscription: _ } => write!(writer, "= {event:?};").ok()?,
            Key::Member { event, whole: _, name: _ } => write!(writer, "@> {event:?};").ok()?,
            Key::Listed { event, list } => write!(writer, "{:?} {event:?};", list.kind).ok()?,
            Key::Leaves { .. } => return None,
        }
        hashers = writer.0;
    }
    Some(hashers.map(|hasher| hasher.finish()))
}

impl Forms {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// The number of a form, for an entry more.
    pub(super) fn acquire(&mut self, hash: FormHash) -> usize {
        let next = self.by_hash.len();
        let form = self.by_hash.entry(hash).or_insert_with(|| {
            // With no number free, those below the count of forms are taken.
            let number = self.free.pop().unwrap_or(next);
            Form { number, entries: 0 }
        });
        form.entries += 1;
        form.number
    }

    /// Forgets a form with its last entry.
    pub(super) fn release(&mut self, hash: FormHash) {
        let Some(form) = self.by_hash.get_mut(&hash) else { return };
        form.entries -= 1;
        if form.entries == 0
            && let Some(form) = self.by_hash.remove(&hash)
        {
            self.free.push(form.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_forgotten_forms_are_used_again() {
        let mut forms = Forms::default();
        assert_eq!([1, 2, 3, 2].map(|n| forms.acquire([n, 0])), [0, 1, 2, 1]);
        forms.release([2, 0]);
        forms.release([1, 0]);
        assert_eq!(([4, 5, 2].map(|n| forms.acquire([n, 0])), forms.len()), ([0, 3, 1], 4));
    }
}
