//! Costly evaluations of conditions, on a bounded number of threads.
//!
//! An evaluation first runs where it is needed, with a budget of less than 0.1 ms
//! ([`QUICK_STEPS_MAX`](ensue_core::condition::QUICK_STEPS_MAX)). If that is not enough, it is repeated here with the whole budget. The
//! number of threads bounds the processor time and the memory that all conditions of a process take together: a thread holds one
//! parsed event and one evaluation at a time. Callers of a class take turns, first come first served, one evaluation each.
//!
//! Handlers have a thread of their own, so that hostile readers do not delay deliveries. Requests and streams share the other
//! threads. At most one request and one stream for each thread wait for it, so requests get every second turn, however many
//! streams there are.

use ensue_core::condition::ParsedEvent;
use ensue_core::{Event, StoreError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The most threads that evaluate conditions of readers.
const READER_THREADS_MAX: usize = 3;
/// How many requests may wait for a thread.
const REQUESTS_WAITING_MAX: usize = 1_024;
/// How long a request waits for a thread.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(5);
/// Events with less JSON than this are parsed anew by each evaluation.
const SHARED_BYTES_MIN: usize = 16 << 10;
/// How many bytes of parsed events are kept for the next evaluation (but always one event), and how many events.
const SHARED_BYTES_MAX: usize = 24 << 20;
const SHARED_EVENTS_MAX: usize = 8;

/// On whose behalf an evaluation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvaluationClass {
    /// A request: it fails if no thread is free for a while.
    Request,
    /// A stream or a group that waits as long as it takes.
    Stream,
    /// The handlers of this process.
    Delivery,
}

/// The threads, and the parsed events that they share.
struct Evaluations {
    readers: Arc<Semaphore>,
    requests: Semaphore,
    streams: Semaphore,
    delivery: Arc<Semaphore>,
    requests_waiting: AtomicUsize,
    shared: Mutex<VecDeque<(Arc<Event>, Arc<ParsedEvent>)>>,
}

/// There is one set of threads for a process, however many buses it opens.
fn evaluations() -> &'static Evaluations {
    static EVALUATIONS: OnceLock<Evaluations> = OnceLock::new();
    EVALUATIONS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let readers = (cores - 1).clamp(1, READER_THREADS_MAX);
        Evaluations {
            readers: Arc::new(Semaphore::new(readers)),
            requests: Semaphore::new(readers),
            streams: Semaphore::new(readers),
            delivery: Arc::new(Semaphore::new(1)),
            requests_waiting: AtomicUsize::new(0),
            shared: Mutex::default(),
        }
    })
}

/// Runs a costly evaluation on the bounded threads.
pub(crate) async fn run<T: Send + 'static>(
    class: EvaluationClass,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let permit = turn(class).await?;
    let work = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => StoreError::Closed,
    })
}

async fn turn(class: EvaluationClass) -> Result<OwnedSemaphorePermit, StoreError> {
    let evaluations = evaluations();
    let permit = match class {
        EvaluationClass::Delivery => evaluations.delivery.clone().acquire_owned().await,
        EvaluationClass::Stream => in_line(&evaluations.streams, &evaluations.readers).await,
        EvaluationClass::Request => {
            let _waiting = Waiting::new(&evaluations.requests_waiting).ok_or_else(busy)?;
            let permit = in_line(&evaluations.requests, &evaluations.readers);
            tokio::time::timeout(REQUEST_WAIT_MAX, permit).await.map_err(|_| busy())?
        }
    };
    // Nobody closes it.
    permit.map_err(|_| StoreError::Closed)
}

/// Waits for a place in line, then for a thread.
async fn in_line(line: &Semaphore, threads: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, AcquireError> {
    let _place = line.acquire().await?;
    threads.clone().acquire_owned().await
}

fn busy() -> StoreError {
    StoreError::Overloaded("too many costly conditions are being evaluated; try again, or write a cheaper one".into())
}

/// A request that waits, as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Option<Self> {
        let waiting = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < REQUESTS_WAITING_MAX).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The parsed form of an event, which everybody who evaluates conditions on a large event shares.
pub(crate) fn parsed(event: &Arc<Event>) -> Arc<ParsedEvent> {
    if event.bytes() < SHARED_BYTES_MIN {
        return Arc::default();
    }
    let mut shared = evaluations().shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, parsed)) = shared.iter().find(|(known, _)| is_same(known, event)) {
        return parsed.clone();
    }
    // Their sizes are known once somebody has parsed them.
    let bytes = |(event, parsed): &(Arc<Event>, Arc<ParsedEvent>)| event.bytes() + parsed.bytes();
    while shared.len() >= SHARED_EVENTS_MAX || shared.iter().map(bytes).sum::<usize>() > SHARED_BYTES_MAX {
        shared.pop_front();
    }
    let parsed = Arc::<ParsedEvent>::default();
    shared.push_back((event.clone(), parsed.clone()));
    parsed
}

/// The same text at the same positions: copies of one event may have been written by different engines.
fn is_same(a: &Arc<Event>, b: &Arc<Event>) -> bool {
    let is_equal = || a.id == b.id && a.payload == b.payload && a.metadata == b.metadata;
    Arc::ptr_eq(a, b) || is_equal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn costly_evaluations_take_turns_on_few_threads() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let evaluate = |_| {
            tokio::spawn(run(EvaluationClass::Stream, || {
                let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::sleep(Duration::from_millis(2));
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                running
            }))
        };
        for evaluation in (0..40).map(evaluate).collect::<Vec<_>>() {
            assert!(evaluation.await.unwrap().unwrap() <= READER_THREADS_MAX);
        }
    }

    /// The paused clock measures turns: each takes a millisecond.
    #[tokio::test(start_paused = true)]
    async fn many_streams_leave_every_second_turn_to_requests() {
        let (threads, requests, streams) = (Arc::new(Semaphore::new(1)), Semaphore::new(1), Semaphore::new(1));
        let evaluate = async |line: &Semaphore| {
            let _thread = in_line(line, &threads).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let began = tokio::time::Instant::now();
        let all_streams = futures_util::future::join_all((0..1_000).map(|_| evaluate(&streams)));
        let request = async {
            tokio::task::yield_now().await;
            evaluate(&requests).await;
            began.elapsed()
        };
        let (_, request_took) = tokio::join!(all_streams, request);
        assert_eq!(began.elapsed().as_millis(), 1_001);
        assert!(request_took.as_millis() <= 3, "the request took {request_took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_a_free_thread_is_refused_after_its_wait() {
        let readers = evaluations().readers.clone();
        let threads = u32::try_from(READER_THREADS_MAX.min(readers.available_permits().max(1))).unwrap();
        let _busy = readers.acquire_many_owned(threads).await.unwrap();
        let began = tokio::time::Instant::now();
        let refused = run(EvaluationClass::Request, || ()).await;
        assert!(matches!(refused, Err(StoreError::Overloaded(_))), "{refused:?}");
        assert_eq!(began.elapsed(), REQUEST_WAIT_MAX);
    }

    #[tokio::test]
    async fn request_behind_too_many_waiting_requests_is_refused() {
        let count = AtomicUsize::new(REQUESTS_WAITING_MAX - 1);
        let last = Waiting::new(&count);
        assert!(last.is_some() && Waiting::new(&count).is_none());
        drop(last);
        assert!(Waiting::new(&count).is_some());
    }
}
