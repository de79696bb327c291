//! Which jobs are there, and what did they say?

use super::super::groups::{place, unknown_word};
use super::super::read::time_of;
use super::row::{job, job_columns, job_of, number_of, state_of};
use ensue_core::jobs::{
    JOB_SCAN_MAX, Job, JobCount, JobId, JobLine, JobNumber, JobPage, JobQuery, JobState, Outline, Server,
};
use ensue_core::positions::Level;
use ensue_core::room::Room;
use ensue_core::{GroupName, ObjectKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

pub(super) fn jobs(connection: &Connection, query: &JobQuery, limit: usize) -> rusqlite::Result<JobPage> {
    let mut page = JobPage { jobs: Vec::new(), next: query.after };
    let mut room = Room::of_a_page();
    let mut statement = connection.prepare_cached(match query.holding {
        false => concat!("SELECT ", job_columns!(), " FROM ensue_jobs WHERE number > ?1 ORDER BY number LIMIT ?2"),
        // Few of many: found among those that died.
        true => concat!(
            "SELECT ",
            job_columns!(),
            " FROM ensue_jobs WHERE number IN (SELECT number FROM ensue_jobs INDEXED BY ensue_jobs_dead
              WHERE state = 'dead' AND turn IS NOT NULL AND number > ?1) ORDER BY number LIMIT ?2"
        ),
    })?;
    let mut rows = statement.query(params![place(query.after.unwrap_or(0)), (JOB_SCAN_MAX + 1) as i64])?;
    let mut looked_at = 0;
    while let Some(row) = rows.next()? {
        if looked_at == JOB_SCAN_MAX || page.jobs.len() == limit {
            return Ok(page);
        }
        let handler = GroupName::stored(row.get_ref(2)?.as_str()?);
        let object = row.get_ref(3)?.as_str_or_null()?.map(ObjectKey::stored);
        let state = state_of(row, 8)?;
        let outline = Outline {
            state,
            handler: &handler,
            object: object.as_ref(),
            cause: number_of(row, 23)?,
            holds_lane: state == JobState::Dead && number_of(row, 9)?.is_some(),
        };
        if query.matches(&outline) {
            let job = job_of(row)?;
            if !room.take(job.payload.as_str().len()) {
                return Ok(page);
            }
            page.jobs.push(job);
        }
        looked_at += 1;
        page.next = Some(row.get::<_, i64>(0)? as JobNumber);
    }
    page.next = None;
    Ok(page)
}

pub(super) fn predecessor(connection: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    let Some(job) = job(connection, id)? else { return Ok(None) };
    let is_behind = job.ordered && job.state != JobState::Running;
    let (Some(object), Some(turn), true) = (&job.object, job.turn, is_behind) else { return Ok(None) };
    connection
        .prepare_cached(concat!(
            "SELECT ",
            job_columns!(),
            " FROM ensue_jobs WHERE object = ?1 AND handler = ?2 AND turn IS NOT NULL AND ordered AND number <> ?3
              AND (state = 'running' OR turn < ?4) ORDER BY state <> 'running', turn LIMIT 1"
        ))?
        .query_row(params![object.as_str(), job.handler.as_str(), place(id.number()), place(turn)], job_of)
        .optional()
}

pub(super) fn lines(connection: &Connection, id: JobId, after: u64, limit: usize) -> rusqlite::Result<Vec<JobLine>> {
    if job(connection, id)?.is_none() {
        return Ok(Vec::new());
    }
    connection
        .prepare_cached(
            "SELECT line, attempt, at, level, message FROM ensue_job_lines WHERE number = ?1 AND line > ?2
             ORDER BY line LIMIT ?3",
        )?
        .query_map(params![place(id.number()), place(after), limit as i64], line_of)?
        .collect()
}

fn line_of(row: &Row<'_>) -> rusqlite::Result<JobLine> {
    let level = row.get_ref(3)?.as_str()?;
    Ok(JobLine {
        line: row.get::<_, i64>(0)? as u64,
        attempt: row.get(1)?,
        at: time_of(row.get(2)?),
        level: Level::stored(level).ok_or_else(|| unknown_word(3, level))?,
        message: row.get(4)?,
    })
}

pub(super) fn counts(connection: &Connection) -> rusqlite::Result<Vec<JobCount>> {
    connection
        .prepare_cached(
            "SELECT handler, state, count(*) FROM ensue_jobs WHERE state IN
             ('scheduled', 'available', 'running', 'parked', 'retrying') GROUP BY handler, state ORDER BY handler, state",
        )?
        .query_map([], |row| {
            let handler = GroupName::stored(row.get_ref(0)?.as_str()?);
            let state: JobState = state_of(row, 1)?;
            Ok(JobCount { handler, state, count: row.get::<_, i64>(2)? as u64 })
        })?
        .collect()
}

pub(super) fn serve(connection: &Connection, handlers: &[GroupName], until: Timestamp) -> rusqlite::Result<()> {
    let mut serve = connection.prepare_cached(
        "INSERT INTO ensue_job_servers (handler, until) VALUES (?1, ?2)
         ON CONFLICT (handler) DO UPDATE SET until = max(until, ?2)",
    )?;
    handlers.iter().try_for_each(|key| serve.execute(params![key.as_str(), until.as_microsecond()]).map(drop))
}

pub(super) fn servers(connection: &Connection) -> rusqlite::Result<Vec<Server>> {
    connection
        .prepare_cached("SELECT handler, until FROM ensue_job_servers ORDER BY handler")?
        .query_map([], |row| {
            Ok(Server { handler: GroupName::stored(row.get_ref(0)?.as_str()?), until: time_of(row.get(1)?) })
        })?
        .collect()
}

/// Whose history is meant.
#[derive(Clone, Copy)]
pub(super) enum Past {
    Jobs,
    Tasks,
}

impl Past {
    /// The parts that are counted for themselves.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Jobs => &[
                "FROM ensue_jobs INDEXED BY ensue_jobs_dead
                 WHERE state = 'dead' AND turn IS NULL AND substr(handler, 1, 5) <> 'task.'",
                "FROM ensue_jobs INDEXED BY ensue_jobs_age WHERE finished_at IS NOT NULL AND turn IS NULL
                     AND state <> 'dead' AND substr(handler, 1, 5) <> 'task.'",
            ],
            Self::Tasks => &["FROM ensue_jobs INDEXED BY ensue_jobs_tasks_age
                 WHERE finished_at IS NOT NULL AND turn IS NULL AND substr(handler, 1, 5) = 'task.'"],
        }
    }
}

/// Jobs that may be forgotten: those that ended before `before`, and of each part the oldest beyond `keep`.
pub(super) fn old(
    connection: &Connection,
    past: Past,
    before: Timestamp,
    keep: u64,
    limit: usize,
) -> rusqlite::Result<Vec<JobNumber>> {
    let mut old = Vec::new();
    for those in past.parts() {
        let there: i64 =
            connection.prepare_cached(&format!("SELECT count(*) {those}"))?.query_row([], |row| row.get(0))?;
        let too_many = usize::try_from((there as u64).saturating_sub(keep)).unwrap_or(usize::MAX);
        let oldest = format!("SELECT finished_at, number {those} ORDER BY finished_at, number LIMIT ?1");
        let mut statement = connection.prepare_cached(&oldest)?;
        let mut rows = statement.query([limit as i64])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let (finished_at, number) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)? as JobNumber);
            if count >= too_many && time_of(finished_at) >= before {
                break;
            }
            count += 1;
            old.push((finished_at, number));
        }
    }
    old.sort_unstable();
    Ok(old.into_iter().take(limit).map(|(_, number)| number).collect())
}

pub(super) fn forget(connection: &Connection, numbers: &[JobNumber]) -> rusqlite::Result<()> {
    let mut lines = connection.prepare_cached("DELETE FROM ensue_job_lines WHERE number = ?1")?;
    let mut progress = connection.prepare_cached("DELETE FROM ensue_job_progress WHERE number = ?1")?;
    let mut job = connection.prepare_cached("DELETE FROM ensue_jobs WHERE number = ?1")?;
    for number in numbers {
        lines.execute([place(*number)])?;
        progress.execute([place(*number)])?;
        job.execute([place(*number)])?;
    }
    Ok(())
}
