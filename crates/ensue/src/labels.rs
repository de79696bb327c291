//! Metric labels with names that users choose.
//!
//! A series stays for the life of the process. Each label therefore takes at most [`LABELS_MAX`] names; later names share
//! the label `other`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most names that one label takes.
pub const LABELS_MAX: usize = 1_000;
/// The label of all names past [`LABELS_MAX`].
pub const OTHER: &str = "other";

/// The names that a label has taken.
pub(crate) struct Labels(Mutex<BTreeSet<String>>);

/// Keys of handlers, for all metrics of handlers and jobs.
pub(crate) static HANDLERS: Labels = Labels::new();
/// Names of groups.
pub(crate) static GROUPS: Labels = Labels::new();

impl Labels {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    /// The label for a name: the name itself, or `other`.
    pub fn label(&self, name: &str) -> String {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.contains(name) {
            if taken.len() >= LABELS_MAX {
                return OTHER.into();
            }
            taken.insert(name.to_owned());
        }
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_past_the_limit_share_one_label() {
        let labels = Labels::new();
        for n in 0..LABELS_MAX {
            assert_eq!(labels.label(&format!("g{n}")), format!("g{n}"));
        }
        assert_eq!(labels.label("late"), "other");
        assert_eq!(labels.label("g7"), "g7");
        assert_eq!(labels.0.lock().unwrap().len(), LABELS_MAX);
    }
}
