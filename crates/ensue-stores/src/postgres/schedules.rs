//! Which schedules are there, and what became of their occurrences?
//!
//! What was decided about many of them is one round trip and one commit (`sql/fn_schedules_fire.sql`). A call whose answer was
//! lost is sent again: the rows have its mark, and it is told what it has done.

use super::PostgresStore;
use super::jobs::columns::NewJobs;
use super::jobs::{Call, id_of};
use super::read::place;
use super::schema::Schema;
use super::settle_columns::Events;
use super::settle_events::Publishing;
use super::types::Micros;
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::NewJob;
use ensue_core::schedules::port::{DECLARED_MAX, SCHEDULES_MAX, check, too_many};
use ensue_core::schedules::{
    Declared, Declarer, Fired, Firing, Kept, Makes, PutSchedule, Run, RunOutcome, Schedules, What,
};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::text::plain;
use ensue_core::{Entry, GroupName, Invalid, Json, StoreError, Timestamp};
use jiff::SignedDuration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// The statements, for one schema.
#[derive(Debug)]
pub(super) struct SchedulesSql {
    put: String,
    one: String,
    page: String,
    delete: String,
    due: String,
    next: String,
    fire: String,
    runs: String,
    declare: String,
    declarers: String,
    undeclare: String,
}

/// A schedule, as it is kept.
const COLUMNS: &str = "name, version, definition, managed_by, watermark, due, held, created_at, updated_at";

impl SchedulesSql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        let select = |rest: &str| sql(&format!("SELECT {COLUMNS} FROM {{schema}}.schedules {rest}"));
        let numbered: Vec<String> = (1..=42).map(|n| format!("${n}")).collect();
        Self {
            put: sql("SELECT * FROM {schema}.schedule_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
            one: select("WHERE name = $1"),
            page: select("WHERE name > $1 ORDER BY name LIMIT $2"),
            delete: sql("DELETE FROM {schema}.schedules WHERE name = $1 RETURNING 1"),
            due: sql(
                "SELECT o_name, o_version, o_definition, o_managed_by, o_watermark, o_due, o_held, o_created_at, \
                 o_updated_at, o_state FROM {schema}.schedules_due($1, $2, $3, $4, $5, $6)",
            ),
            next: sql("SELECT {schema}.schedules_next($1, $2, $3)"),
            fire: sql(&format!(
                "SELECT *, {{logged}} AS logged FROM {{schema}}.schedules_fire({})",
                numbered.join(", ")
            )),
            runs: sql("SELECT number, occurrence, at, manual, event_seq, job_number, job_stamp, overlapped, skipped \
                 FROM {schema}.schedule_runs WHERE name = $1 AND number < $2 ORDER BY number DESC LIMIT $3"),
            declare: sql("SELECT * FROM {schema}.schedules_declare($1, $2, $3, $4)"),
            // Who declares nothing is none.
            declarers: sql("SELECT p.process, p.until FROM {schema}.schedule_declarers p WHERE EXISTS ( \
                 SELECT 1 FROM {schema}.schedule_declarations d WHERE d.process = p.process AND ($1::text IS NULL OR d.name = $1)) \
                 ORDER BY p.process"),
            undeclare: sql("WITH gone AS (DELETE FROM {schema}.schedule_declarers WHERE process = $1) \
                 DELETE FROM {schema}.schedule_declarations WHERE process = $1"),
        }
    }
}

fn kept_of(row: &Row) -> Kept {
    Kept {
        name: GroupName::stored(row.get(0)),
        version: row.get::<_, i64>(1) as u64,
        definition: Json::stored(row.get::<_, String>(2)),
        managed_by: row.get(3),
        watermark: row.get::<_, Micros>(4).0,
        due: row.get::<_, Option<Micros>>(5).map(|due| due.0),
        held: row.get(6),
        created_at: row.get::<_, Micros>(7).0,
        updated_at: row.get::<_, Micros>(8).0,
    }
}

fn outcome_of(seq: Option<i64>, job: Option<(i64, i64)>, overlapped: bool, skipped: Option<String>) -> RunOutcome {
    match (seq, job) {
        (Some(seq), _) => RunOutcome::Event(seq as u64),
        (None, Some((number, stamp))) if overlapped => RunOutcome::Overlapped(id_of(stamp, number)),
        (None, Some((number, stamp))) => RunOutcome::Job(id_of(stamp, number)),
        (None, None) => RunOutcome::Skipped(skipped.unwrap_or_default()),
    }
}

fn run_of(row: &Row) -> Run {
    let job = row.get::<_, Option<i64>>(5).zip(row.get::<_, Option<i64>>(6));
    Run {
        number: row.get::<_, i64>(0) as u64,
        occurrence: row.get::<_, Micros>(1).0,
        at: row.get::<_, Micros>(2).0,
        manual: row.get(3),
        outcome: outcome_of(row.get(4), job, row.get(7), row.get(8)),
    }
}

/// Runs as parallel arrays.
#[derive(Default)]
struct Runs<'a> {
    firings: Vec<i32>,
    occurrences: Vec<Micros>,
    manual: Vec<bool>,
    /// The place of the event among all that are sent, from 1.
    events: Vec<Option<i32>>,
    jobs: Vec<Option<i32>>,
    skipped: Vec<Option<std::borrow::Cow<'a, str>>>,
    job_firings: Vec<i32>,
    sent: Vec<&'a NewJob>,
    events_of: Vec<Vec<Entry>>,
}

impl<'a> Runs<'a> {
    fn of(firings: &'a [Firing]) -> Self {
        let (mut runs, mut events) = (Self::default(), 0);
        for (firing, number) in firings.iter().zip(1..) {
            let mut entries = Vec::new();
            for run in &firing.runs {
                let (mut event, mut job, mut skipped) = (None, None, None);
                match &run.what {
                    What::Fires(Makes::Event(entry)) => {
                        events += 1;
                        event = Some(events);
                        entries.push(entry.clone());
                    }
                    What::Fires(Makes::Job(new)) => {
                        runs.sent.push(new);
                        runs.job_firings.push(number);
                        job = Some(runs.sent.len() as i32);
                    }
                    What::Skipped(reason) => skipped = Some(plain(reason)),
                }
                runs.firings.push(number);
                runs.occurrences.push(Micros(run.occurrence));
                runs.manual.push(run.manual);
                runs.events.push(event);
                runs.jobs.push(job);
                runs.skipped.push(skipped);
            }
            runs.events_of.push(entries);
        }
        runs
    }
}

impl PostgresStore {
    async fn fire_all(&self, firings: &[Firing]) -> Result<Vec<Fired>, StoreError> {
        let mut runs = Runs::of(firings);
        let publishing = Publishing::of(self, runs.events_of.iter_mut()).await?;
        let (events, jobs) = (Events::of(&publishing), NewJobs::of(runs.sent.iter().copied()));
        let names: Vec<&str> = firings.iter().map(|firing| firing.name.as_str()).collect();
        let versions: Vec<i64> = firings.iter().map(|firing| place(firing.version)).collect();
        let moves = || firings.iter().map(|firing| firing.moves);
        let from: Vec<Option<Micros>> = moves().map(|moves| moves.map(|moves| Micros(moves.from))).collect();
        let to: Vec<Option<Micros>> = moves().map(|moves| moves.map(|moves| Micros(moves.to))).collect();
        let due: Vec<Option<Micros>> = moves().map(|moves| moves.and_then(|moves| moves.due).map(Micros)).collect();
        let job_firings = (!runs.job_firings.is_empty()).then_some(&runs.job_firings);
        let mut call = Call::new("schedules were fired");
        let (now, hint, id, lock) = (self.clock_time(), self.hint(), call.id, call.lock);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &hint, &id, &lock, &names, &versions, &from, &to, &due];
        params.extend::<[&(dyn ToSql + Sync); 6]>([
            &runs.firings,
            &runs.occurrences,
            &runs.manual,
            &runs.events,
            &runs.jobs,
            &runs.skipped,
        ]);
        params.extend(events.params());
        params.push(&job_firings);
        params.extend(jobs.params());
        let rows = call.until_answered(&self.moving, &self.sql.schedules.fire, &params, None).await?;
        let row = self.server.one(rows)?;
        self.moving.log_grew(&row, row.get(2));
        Ok(answers(firings, &row))
    }
}

/// What became of each firing.
fn answers(firings: &[Firing], row: &Row) -> Vec<Fired> {
    let states: Vec<&str> = row.get(0);
    let at = row.get::<_, Micros>(1).0;
    let numbers = row.get::<_, Option<Vec<Option<i64>>>>(3).unwrap_or_default();
    let seqs = row.get::<_, Option<Vec<Option<i64>>>>(4).unwrap_or_default();
    let jobs = row.get::<_, Option<Vec<Option<i64>>>>(5).unwrap_or_default();
    let stamps = row.get::<_, Option<Vec<Option<i64>>>>(6).unwrap_or_default();
    let overlapped = row.get::<_, Option<Vec<Option<bool>>>>(7).unwrap_or_default();
    let mut begin = 0;
    let answer = |(firing, state): (&Firing, &str)| {
        let first = begin;
        begin += firing.runs.len();
        match state {
            "lost" => return Fired::Lost,
            "held" => return Fired::Held,
            _ => {}
        }
        let run = |(new, index): (&ensue_core::schedules::NewRun, usize)| {
            let skipped = match &new.what {
                What::Skipped(reason) => Some(plain(reason).into_owned()),
                What::Fires(_) => None,
            };
            let job = jobs[index].zip(stamps[index]);
            Run {
                number: numbers[index].unwrap_or(0) as u64,
                occurrence: whole_microseconds(new.occurrence),
                at,
                manual: new.manual,
                outcome: outcome_of(seqs[index], job, overlapped[index].unwrap_or(false), skipped),
            }
        };
        Fired::Done(firing.runs.iter().zip(first..).map(run).collect())
    };
    firings.iter().zip(states).map(answer).collect()
}

#[async_trait]
impl Schedules for PostgresStore {
    async fn put_schedule(&self, new: PutSchedule) -> Result<Option<Kept>, StoreError> {
        self.check_writable()?;
        let new = new.in_microseconds();
        let mut call = Call::new("a schedule was put");
        let (now, id, name, definition) = (self.clock_time(), call.id, new.name.as_str(), new.definition.as_str());
        let version = new.over.map(|(version, _)| place(version));
        let (over, watermark) = (new.over.map(|(_, watermark)| Micros(watermark)), Micros(new.watermark));
        let (due, most) = (new.due.map(Micros), SCHEDULES_MAX as i64);
        let params: [&(dyn ToSql + Sync); 10] =
            [&now, &id, &name, &definition, &new.managed_by, &version, &over, &watermark, &due, &most];
        let rows = call.until_answered(&self.moving, &self.sql.schedules.put, &params, None).await?;
        let row = self.server.one(rows)?;
        match row.get::<_, &str>(0) {
            "other" => Ok(None),
            "full" => Err(too_many()),
            _ => Ok(Some(Kept {
                version: row.get::<_, i64>(1) as u64,
                held: row.get(2),
                created_at: row.get::<_, Micros>(3).0,
                updated_at: row.get::<_, Micros>(4).0,
                name: new.name,
                definition: new.definition,
                managed_by: new.managed_by,
                watermark: new.watermark,
                due: new.due,
            })),
        }
    }

    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError> {
        let rows = self.server.query(&self.sql.schedules.one, &[&name.as_str()]).await?;
        Ok(rows.first().map(kept_of))
    }

    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        // Before every name.
        let after = after.map_or("", GroupName::as_str);
        let rows = self.server.query(&self.sql.schedules.page, &[&after, &(limit as i64)]).await?;
        Ok(rows.iter().map(kept_of).collect())
    }

    /// If the answer is lost and the call made again, the second time there is none: whoever forgets one twice is told so too.
    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.check_writable()?;
        let rows = self.server.query(&self.sql.schedules.delete, &[&name.as_str()]).await?;
        Ok(!rows.is_empty())
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let now = whole_microseconds(now);
        let (asked, from, name) = self.schedules_from.params();
        let (limit, bytes) = (limit as i64, PAGE_BYTES_MAX as i64);
        let params: [&(dyn ToSql + Sync); 6] = [&Micros(now), &limit, &bytes, &asked, &from, &name];
        let rows = self.server.query(&self.sql.schedules.due, &params).await?;
        // Without any there is a row that tells the state.
        let is_one = |row: &&Row| row.get::<_, Option<&str>>(0).is_some();
        let due: Vec<Kept> = rows.iter().filter(is_one).map(kept_of).collect();
        if let Some(row) = rows.first() {
            self.schedules_from.found(asked, row.get(9), now, &due);
        }
        Ok(due)
    }

    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError> {
        let (state, from, name) = self.schedules_from.params();
        let row = self.server.query_one(&self.sql.schedules.next, &[&state, &from, &name]).await?;
        Ok(row.get::<_, Option<Micros>>(0).map(|due| due.0))
    }

    async fn fire(&self, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
        self.check_writable()?;
        check(&firings)?;
        let fired = self.fire_all(&firings).await;
        self.schedules_from.fired(&firings);
        fired
    }

    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError> {
        let before = before.map_or(i64::MAX, place);
        let rows = self.server.query(&self.sql.schedules.runs, &[&name.as_str(), &before, &(limit as i64)]).await?;
        Ok(rows.iter().map(run_of).collect())
    }

    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError> {
        self.check_writable()?;
        if names.len() > DECLARED_MAX {
            return Err(Invalid::new("names", format!("are {}; declare up to {DECLARED_MAX}", names.len())).into());
        }
        let names: Vec<&str> = names.iter().map(GroupName::as_str).collect();
        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 4] = [&self.clock_time(), &process, &names, &lease];
        let row = self.server.query_one(&self.sql.schedules.declare, &params).await?;
        let named = |column: usize| -> Vec<GroupName> {
            let names = row.get::<_, Option<Vec<&str>>>(column).unwrap_or_default();
            names.into_iter().map(GroupName::stored).collect()
        };
        Ok(Declared { missing: named(0), removed: named(1) })
    }

    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError> {
        let rows = self.server.query(&self.sql.schedules.declarers, &[&name.map(GroupName::as_str)]).await?;
        Ok(rows.iter().map(|row| Declarer { process: row.get(0), until: row.get::<_, Micros>(1).0 }).collect())
    }

    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError> {
        self.check_writable()?;
        self.server.query(&self.sql.schedules.undeclare, &[&process]).await.map(drop)
    }
}
