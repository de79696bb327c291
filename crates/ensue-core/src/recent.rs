//! What was seen lately, in bounded memory?
//!
//! Two generations: new entries go into the young one; when that is full it becomes the old one and the old one is
//! forgotten. An entry that is asked for moves to the young one, so what is in use stays.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A map that forgets what was not used lately: it holds between `capacity` and twice as many entries.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    capacity: usize,
}

impl<K: Hash + Eq, V: Copy> Recent<K, V> {
    /// An empty map that remembers at least the `capacity` entries used last.
    pub fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    /// The value of a key, if it is still remembered.
    pub fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(value) = self.young.get(key) {
            return Some(*value);
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value);
        Some(value)
    }

    /// Remembers a value.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut recent = Recent::new(2);
        recent.insert("used", 0);
        for n in 1..100 {
            recent.insert(if n % 2 == 0 { "x" } else { "y" }, n);
            recent.insert("z", n);
            assert_eq!(recent.get("used"), Some(0));
        }
        let mut recent = Recent::new(2);
        (0..5).for_each(|n| recent.insert(n, n));
        assert_eq!(recent.get(&0), None);
        assert_eq!(recent.get(&4), Some(4));
    }

    #[test]
    fn the_newest_value_of_a_key_wins() {
        let mut recent = Recent::new(1);
        recent.insert("a", 1);
        recent.insert("b", 2);
        recent.insert("a", 3);
        assert_eq!(recent.get("a"), Some(3));
    }
}
