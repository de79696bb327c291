//! Which calls are tried, and how often?

use super::{Draw, EndDraft, EventDraft, HANDLERS, JobDraft, LEASES_SECS, OBJECTS, PRIORITIES, SCOPES, Step};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::Steer;
use ensue_core::rules::RuleKind;
use proptest::prelude::*;

fn job() -> impl Strategy<Value = JobDraft> {
    let fates = vec![OnExhausted::Hold, OnExhausted::Skip, OnExhausted::DeadLetterObject];
    let fields = (
        0..HANDLERS.len(),
        prop::option::weighted(0.7, 0..OBJECTS.len()),
        prop::bool::weighted(0.8),
        prop_oneof![3 => Just(0), 2 => 0..PRIORITIES.len()],
        prop::option::weighted(0.25, prop::sample::select(vec![-5, 0, 5, 10, 60])),
        prop::option::weighted(0.25, 0..2u8),
        prop::sample::select(fates),
        prop::bool::weighted(0.02),
    );
    fields.prop_map(|(handler, object, ordered, priority, delay_secs, key, on_exhausted, is_bad)| JobDraft {
        handler,
        object,
        ordered,
        priority,
        delay_secs,
        key,
        on_exhausted,
        is_bad,
    })
}

fn event() -> impl Strategy<Value = EventDraft> {
    let fields = (0..2u8, prop::option::of(0..OBJECTS.len()), prop::option::weighted(0.4, 0..3u8));
    fields.prop_map(|(topic, object, key)| EventDraft { topic, object, key })
}

/// Mostly one of the newest claims.
fn claim_before() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..4usize, 1 => 0..20usize]
}

fn draw() -> impl Strategy<Value = Draw> {
    let secs = || prop::sample::select(vec![-5, 0, 5, 60]);
    let end = prop_oneof![
        3 => Just(EndDraft::Succeeded),
        3 => secs().prop_map(|secs| EndDraft::Retry { secs }),
        3 => Just(EndDraft::Dead),
        2 => secs().prop_map(|secs| EndDraft::Snoozed { secs }),
        1 => Just(EndDraft::CalledOff),
        2 => Just(EndDraft::GivenBack),
        1 => any::<bool>().prop_map(|again| EndDraft::Lapsed { again }),
    ];
    let fields = (
        claim_before(),
        prop::bool::weighted(0.1),
        end,
        0..3u8,
        prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(event(), 1..3)],
        prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(job(), 1..3)],
    );
    fields.prop_map(|(claim_before, is_forged, end, lines, events, jobs)| Draw {
        claim_before,
        is_forged,
        end,
        lines,
        events,
        jobs,
    })
}

fn jobs_and_workers() -> impl Strategy<Value = Step> {
    let lease = || 0..LEASES_SECS.len();
    let steers = vec![Steer::Cancel, Steer::Retry, Steer::Skip];
    let asked = prop_oneof![
        2 => Just(vec![(0, 9), (1, 9), (2, 9), (3, 9)]),
        1 => prop::sample::subsequence(vec![0, 1, 2, 3], 1..4)
            .prop_flat_map(|some| some.into_iter().map(|one| (Just(one), 0..4usize)).collect::<Vec<_>>()),
    ];
    prop_oneof![
        12 => prop::collection::vec(job(), 1..5).prop_map(Step::Send),
        12 => (asked, prop_oneof![3 => Just(9), 1 => 0..4usize], lease())
            .prop_map(|(handlers, limit, lease)| Step::Claim { handlers, limit, lease }),
        2 => (prop::collection::vec(claim_before(), 1..4), lease())
            .prop_map(|(claims_before, lease)| Step::Renew { claims_before, lease }),
        14 => prop::collection::vec(draw(), 1..4).prop_map(Step::Settle),
        1 => (claim_before(), 1..4u8).prop_map(|(claim_before, lines)| Step::Say { claim_before, lines }),
        1 => (claim_before(), 0..9u64).prop_map(|(claim_before, done)| Step::Progress { claim_before, done }),
        7 => (prop_oneof![3 => Just(100), 1 => 1..3usize], any::<bool>())
            .prop_map(|(limit, settles)| Step::Wake { limit, settles }),
        9 => (prop::collection::vec(0..24usize, 1..4), prop::sample::select(steers))
            .prop_map(|(nths, steer)| Step::Steer { nths, steer }),
        2 => (prop_oneof![Just(-1_000), 0..700i64], prop_oneof![0..6u64, Just(1_000)], 1..5usize)
            .prop_map(|(before_secs, keep, limit)| Step::Purge { before_secs, keep, limit }),
    ]
}

fn rules_and_time() -> impl Strategy<Value = Step> {
    let lease = || 0..LEASES_SECS.len();
    let kind = || prop::sample::select(vec![RuleKind::Pause, RuleKind::Block]);
    let expiry = prop::option::weighted(0.3, prop::sample::select(vec![0, 10, 60]));
    prop_oneof![
        4 => (kind(), 0..SCOPES.len(), expiry)
            .prop_map(|(kind, scope, expires_secs)| Step::SetRule { kind, scope, expires_secs }),
        4 => (kind(), 0..SCOPES.len()).prop_map(|(kind, scope)| Step::LiftRule { kind, scope }),
        1 => lease().prop_map(|lease| Step::Join { lease }),
        1 => (0..3usize, 0..3usize).prop_map(|(nth, before)| Step::Report { nth, before }),
        1 => (prop::collection::vec(0..HANDLERS.len(), 1..3), lease())
            .prop_map(|(handlers, lease)| Step::Serve { handlers, lease }),
        8 => prop_oneof![Just(-5), 1..12i64, Just(31), Just(61), Just(301)]
            .prop_map(|seconds| Step::Advance { seconds }),
        1 => Just(Step::Reopen),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => jobs_and_workers(), 1 => rules_and_time()]
}
