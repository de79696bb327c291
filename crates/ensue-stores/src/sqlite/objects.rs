//! Which events does an object have?
//!
//! The index on (object, seq) is written late. Written with every commit, each event of another object would put
//! another page of it into that commit: with 10,000 objects a batch of 100 wrote 50 pages of index beside 7 of log, and
//! took two and a half times as long. But the log itself says which events an object has, so the index may lag behind
//! it: what is not indexed yet is kept in memory, sorted in by objects every 65,536 events, a chunk at a time
//! between appends, and read again from the log when the store is opened. `indexed_to` in the store says how far it is.
//!
//! A reader takes what is in memory first and looks at its snapshot of the file after that: what moved into the index
//! meanwhile is in both, which does no harm, and nothing is in neither.

use ensue_core::{ObjectKey, Seq};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

/// How many events the index lags behind at most, plus what comes in while it is caught up. Reading them again takes
/// some 50 ms at the start.
pub(super) const WINDOW_EVENTS: u64 = 65_536;
/// Into how many transactions the indexing of a window is divided: each short enough to stay out of the way of appends.
const CHUNKS: u64 = 128;

/// Events of objects, in `seq` order for each.
pub(super) type ByObject = HashMap<ObjectKey, Vec<Seq>>;

/// What is in the log and not yet in the index. Only the writer changes it.
pub(super) struct Unindexed {
    state: Mutex<State>,
    window_events: u64,
    chunk_entries: usize,
}

struct State {
    /// Every event up to here is in the index or in one of the two below.
    known_to: Seq,
    /// Everything that was committed since the last turn.
    young: ByObject,
    /// What is on its way into the index.
    old: BTreeMap<ObjectKey, Vec<Seq>>,
    /// Where the young ones begin: the index will be complete up to here once the old ones are in.
    young_after: Seq,
    /// The index is complete up to here.
    indexed_to: Seq,
}

/// What is not indexed of one object.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// In order.
    pub seqs: Vec<Seq>,
    /// Of later events nothing is known.
    pub known_to: Seq,
}

/// A part of what goes into the index next.
pub(super) struct Chunk {
    entries: Vec<(ObjectKey, Vec<Seq>)>,
    /// Set with the last part: then the index is complete up to here.
    completes: Option<Seq>,
}

impl Unindexed {
    /// Nothing is known yet of events after `indexed_to`.
    pub fn after(indexed_to: Seq, window_events: u64) -> Self {
        let state = State {
            known_to: indexed_to,
            young: HashMap::new(),
            old: BTreeMap::new(),
            young_after: indexed_to,
            indexed_to,
        };
        let chunk_entries = (window_events / CHUNKS).max(1) as usize;
        Self { state: Mutex::new(state), window_events, chunk_entries }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// How far the log is known here.
    pub fn known_to(&self) -> Seq {
        self.state().known_to
    }

    /// What is not indexed of an object.
    pub fn of(&self, object: &ObjectKey) -> Recent {
        let state = self.state();
        let seqs = [state.old.get(object), state.young.get(object)].into_iter().flatten().flatten().copied().collect();
        Recent { seqs, known_to: state.known_to }
    }

    /// The newest event of an object before a place among those that are not indexed.
    pub fn newest(&self, object: &ObjectKey, before: Seq) -> Option<Seq> {
        let state = self.state();
        let newest = |seqs: &Vec<Seq>| seqs.iter().rev().find(|seq| **seq < before).copied();
        state.young.get(object).and_then(newest).or_else(|| state.old.get(object).and_then(newest))
    }

    /// Takes in what was committed: the events up to `tail` that have an object.
    pub fn add(&self, committed: ByObject, tail: Seq) {
        let mut state = self.state();
        for (object, mut seqs) in committed {
            state.young.entry(object).or_default().append(&mut seqs);
        }
        state.known_to = tail;
    }

    /// What to index next, if it is time for it.
    pub fn next_chunk(&self) -> Option<Chunk> {
        let mut state = self.state();
        if state.young_after == state.indexed_to {
            if state.known_to - state.young_after < self.window_events {
                return None;
            }
            let young = std::mem::take(&mut state.young);
            state.old = young.into_iter().collect();
            state.young_after = state.known_to;
        }
        let mut count = 0;
        let part = state.old.iter().take_while(|(_, seqs)| {
            let fits = count < self.chunk_entries;
            count += seqs.len();
            fits
        });
        let entries: Vec<_> = part.map(|(object, seqs)| (object.clone(), seqs.clone())).collect();
        let completes = (entries.len() == state.old.len()).then_some(state.young_after);
        Some(Chunk { entries, completes })
    }

    /// The chunk is in the index, committed.
    pub fn indexed(&self, chunk: &Chunk) {
        let mut state = self.state();
        for (object, _) in &chunk.entries {
            state.old.remove(object);
        }
        if let Some(indexed_to) = chunk.completes {
            state.indexed_to = indexed_to;
        }
    }
}

impl Chunk {
    /// Writes it, inside an open transaction. After a crash a part of it may be there already.
    pub fn write(&self, connection: &Connection, first: Seq) -> rusqlite::Result<()> {
        let mut insert =
            connection.prepare_cached("INSERT OR IGNORE INTO ensue_objects (object, seq) VALUES (?1, ?2)")?;
        for (object, seqs) in &self.entries {
            // What was forgotten meanwhile is not indexed any more.
            for seq in seqs.iter().filter(|seq| **seq >= first) {
                insert.execute(params![object.as_str(), *seq as i64])?;
            }
        }
        if let Some(indexed_to) = self.completes {
            connection.prepare_cached("UPDATE ensue_log_state SET indexed_to = ?1")?.execute([indexed_to as i64])?;
        }
        Ok(())
    }
}

/// How far the index is complete.
pub(super) fn indexed_to(connection: &Connection) -> rusqlite::Result<Seq> {
    let mut statement = connection.prepare_cached("SELECT indexed_to FROM ensue_log_state")?;
    statement.query_row([], |row| row.get::<_, i64>(0)).map(|seq| seq as Seq)
}

/// The events after a place that have an object, from the log itself.
pub(super) fn scan(connection: &Connection, after: Seq) -> rusqlite::Result<ByObject> {
    let mut statement = connection
        .prepare_cached("SELECT seq, object FROM ensue_events WHERE seq > ?1 AND object IS NOT NULL ORDER BY seq")?;
    let mut rows = statement.query([after as i64])?;
    let mut found = ByObject::new();
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(0)? as Seq;
        found.entry(ObjectKey::stored(row.get_ref(1)?.as_str()?)).or_default().push(seq);
    }
    Ok(found)
}

/// What is not indexed of one object, from the log itself: for a process that only looks.
pub(super) fn scan_for(connection: &Connection, object: &ObjectKey) -> rusqlite::Result<Recent> {
    let mut statement =
        connection.prepare_cached("SELECT seq FROM ensue_events WHERE seq > ?1 AND object = ?2 ORDER BY seq")?;
    let after = indexed_to(connection)? as i64;
    let seqs = statement.query_map(params![after, object.as_str()], |row| row.get::<_, i64>(0))?;
    let seqs = seqs.map(|seq| seq.map(|seq| seq as Seq)).collect::<rusqlite::Result<_>>()?;
    Ok(Recent { seqs, known_to: Seq::MAX })
}

/// The newest event of an object in the index that is not a direct message.
pub(super) fn newest_indexed(connection: &Connection, object: &ObjectKey) -> rusqlite::Result<Option<Seq>> {
    connection
        .prepare_cached(
            "SELECT o.seq FROM ensue_objects o CROSS JOIN ensue_events e ON e.seq = o.seq
             WHERE o.object = ?1 AND e.to_subscription IS NULL ORDER BY o.seq DESC LIMIT 1",
        )?
        .query_row([object.as_str()], |row| row.get::<_, i64>(0))
        .optional()
        .map(|seq| seq.map(|seq| seq as Seq))
}

/// Is the event at this place a direct message?
pub(super) fn is_direct(connection: &Connection, seq: Seq) -> rusqlite::Result<bool> {
    let direct = connection
        .prepare_cached("SELECT to_subscription IS NOT NULL FROM ensue_events WHERE seq = ?1")?
        .query_row([seq as i64], |row| row.get(0))
        .optional()?;
    Ok(direct.unwrap_or(false))
}

/// The first `limit` events of an object after a place.
pub(super) fn after(
    connection: &Connection,
    object: &ObjectKey,
    recent: &Recent,
    after: Seq,
    limit: usize,
) -> rusqlite::Result<Vec<Seq>> {
    let mut statement = connection
        .prepare_cached("SELECT seq FROM ensue_objects WHERE object = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3")?;
    let rows = statement.query_map(params![object.as_str(), after as i64, limit as i64], |row| row.get::<_, i64>(0))?;
    let mut seqs = rows.map(|seq| seq.map(|seq| seq as Seq)).collect::<rusqlite::Result<Vec<_>>>()?;
    seqs.extend(recent.seqs.iter().filter(|seq| **seq > after));
    seqs.sort_unstable();
    seqs.dedup();
    seqs.truncate(limit);
    Ok(seqs)
}

/// The last `limit` events of an object before a place, newest first.
pub(super) fn before(
    connection: &Connection,
    object: &ObjectKey,
    recent: &Recent,
    before: Seq,
    limit: usize,
) -> rusqlite::Result<Vec<Seq>> {
    let place = i64::try_from(before).unwrap_or(i64::MAX);
    let mut statement = connection
        .prepare_cached("SELECT seq FROM ensue_objects WHERE object = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3")?;
    let rows = statement.query_map(params![object.as_str(), place, limit as i64], |row| row.get::<_, i64>(0))?;
    let mut seqs = rows.map(|seq| seq.map(|seq| seq as Seq)).collect::<rusqlite::Result<Vec<_>>>()?;
    seqs.extend(recent.seqs.iter().filter(|seq| **seq < before));
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    seqs.truncate(limit);
    Ok(seqs)
}

/// Forgets the entries of events that are about to be forgotten.
pub(super) fn forget_before(connection: &Connection, first: Seq) -> rusqlite::Result<()> {
    let mut forgotten = connection
        .prepare_cached("SELECT seq, object FROM ensue_events WHERE seq < ?1 AND object IS NOT NULL ORDER BY object")?;
    let mut delete = connection.prepare_cached("DELETE FROM ensue_objects WHERE object = ?1 AND seq = ?2")?;
    let mut rows = forgotten.query([first as i64])?;
    while let Some(row) = rows.next()? {
        delete.execute(params![row.get_ref(1)?.as_str()?, row.get::<_, i64>(0)?])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: u64) -> ObjectKey {
        ObjectKey::stored(&format!("o{n:05}"))
    }

    fn add(unindexed: &Unindexed, seqs: std::ops::RangeInclusive<Seq>) {
        let tail = *seqs.end();
        let mut committed = ByObject::new();
        seqs.for_each(|seq| committed.entry(object(seq % 1_000)).or_default().push(seq));
        unindexed.add(committed, tail);
    }

    #[test]
    fn nothing_is_indexed_before_the_window_is_full_and_then_everything_in_chunks() {
        let unindexed = Unindexed::after(0, WINDOW_EVENTS);
        add(&unindexed, 1..=WINDOW_EVENTS - 1);
        assert!(unindexed.next_chunk().is_none());
        add(&unindexed, WINDOW_EVENTS..=WINDOW_EVENTS + 10);
        let (mut entries, mut chunks, mut completed) = (0, 0, None);
        while let Some(chunk) = unindexed.next_chunk() {
            // While it goes on, new events come in and old ones are still found.
            if chunks == 3 {
                add(&unindexed, WINDOW_EVENTS + 11..=WINDOW_EVENTS + 20);
                assert_eq!(unindexed.newest(&object(999), Seq::MAX), Some(64_999));
                assert_eq!(unindexed.newest(&object(550), Seq::MAX), Some(65_550), "the young come after the old");
            }
            chunks += 1;
            entries += chunk.entries.iter().map(|(_, seqs)| seqs.len()).sum::<usize>() as u64;
            completed = chunk.completes;
            unindexed.indexed(&chunk);
        }
        assert_eq!((entries, completed), (WINDOW_EVENTS + 10, Some(WINDOW_EVENTS + 10)));
        assert!(chunks > 100, "{chunks} chunks");
        let left: usize = (0..1_000).map(|n| unindexed.of(&object(n)).seqs.len()).sum();
        assert_eq!((left, unindexed.known_to()), (10, WINDOW_EVENTS + 20));
    }

    #[test]
    fn a_window_without_objects_moves_the_index_on_too() {
        let unindexed = Unindexed::after(0, WINDOW_EVENTS);
        unindexed.add(ByObject::new(), WINDOW_EVENTS);
        let chunk = unindexed.next_chunk().unwrap();
        assert_eq!((chunk.entries.len(), chunk.completes), (0, Some(WINDOW_EVENTS)));
        unindexed.indexed(&chunk);
        assert!(unindexed.next_chunk().is_none());
    }
}
