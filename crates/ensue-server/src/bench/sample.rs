//! Which events are measured with?
//!
//! A payload of 200 bytes of JSON, and half of the events on 10,000 objects unless the case says otherwise. What the
//! raw side inserts is the same row, made of the same parts.

use ensue::NewEvent;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many objects the events are about.
pub const OBJECTS: u64 = 10_000;
/// The topic of all of them.
pub const TOPIC: &str = "order.paid";
/// The length of a payload, in bytes.
const PAYLOAD_BYTES: usize = 200;

/// Which of the events are about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objects {
    /// None.
    None,
    /// Every second.
    Half,
    /// Every one.
    All,
}

/// An endless supply of different events, for many callers at once.
#[derive(Debug)]
pub struct Sample {
    objects: Objects,
    made: AtomicU64,
}

impl Sample {
    /// Events about these objects.
    pub fn new(objects: Objects) -> Self {
        Self { objects, made: AtomicU64::new(0) }
    }

    /// The next object and payload.
    pub fn row(&self) -> (Option<String>, String) {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let chosen = match self.objects {
            Objects::None => false,
            Objects::Half => number.is_multiple_of(2),
            Objects::All => true,
        };
        // Spreads consecutive numbers over the objects, so that neighbours in the log are strangers.
        let object = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (chosen.then(|| format!("order:{}", object % OBJECTS)), payload(number))
    }

    /// The next event.
    pub fn event(&self) -> NewEvent {
        let (object, payload) = self.row();
        let event = NewEvent::new(TOPIC).payload_json(payload);
        match object {
            Some(object) => event.object(object),
            None => event,
        }
    }

    /// The next events.
    pub fn events(&self, count: usize) -> Vec<NewEvent> {
        (0..count).map(|_| self.event()).collect()
    }
}

/// JSON of exactly 200 bytes.
fn payload(number: u64) -> String {
    let mut text = format!("{{\"number\":{number},\"currency\":\"EUR\",\"note\":\"");
    let fill = PAYLOAD_BYTES - text.len() - 2;
    text.extend(std::iter::repeat_n('x', fill));
    text.push_str("\"}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_200_bytes_of_json() {
        for number in [0, 7, u64::MAX] {
            assert_eq!(payload(number).len(), 200);
            NewEvent::new(TOPIC).payload_json(payload(number)).check().unwrap();
        }
    }

    #[test]
    fn half_of_the_events_are_spread_over_the_objects() {
        let sample = Sample::new(Objects::Half);
        let objects: Vec<String> = (0..40_000).filter_map(|_| sample.row().0).collect();
        assert_eq!(objects.len(), 20_000);
        let different: std::collections::HashSet<_> = objects.iter().collect();
        assert!(different.len() > 8_000, "{}", different.len());
    }
}
