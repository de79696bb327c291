//! Do the suite and the comparison with the model find an engine that is wrong?
//!
//! Each mutant is a model with one fault of a kind that real engines have; both must find it.

mod log;
mod positions;

use async_trait::async_trait;
use ensue_conformance::model::ModelFactory;
use ensue_conformance::suite::{behaviours, block_on};
use ensue_conformance::{Clock, Factory, Place, random, random_positions};
use ensue_core::store::SharedStore;
use std::sync::Arc;

/// What is wrong with a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    ForgetsPrev,
    ReadsTopicsByText,
    ReleasesInOrderOfIds,
    CancelsTwice,
    TrimsOneTooMany,
    LosesTheEndOfAPage,
    FindsNothingDelayed,
    TimeBeforeIncludesTheTime,
    IgnoresFences,
    ReadersAreNeverLate,
    LosesWhatWasLost,
    PublishesWithoutTheSlot,
    WritesHalfOfWhatIsRefused,
    NeedsNothingForLanes,
    SortsWithoutCase,
    SeeksOutsideOfTheLog,
    MergesParams,
    TouchesNothing,
    NeverExpires,
    GoesOnUnderAnyFence,
    TakesFromTheLiving,
    ForgetsWhoVanished,
    TellsMembersNothing,
    LeavesSlotsBehind,
    ForgetsWhatWasAsked,
    CollapsesEqualLines,
    PurgesByCountAlone,
}

struct Mutant {
    inner: SharedStore,
    fault: Fault,
}

struct MutantFactory(Fault);
struct MutantPlace(Box<dyn Place>, Fault);

#[async_trait]
impl Factory for MutantFactory {
    async fn make(&self) -> Box<dyn Place> {
        Box::new(MutantPlace(ModelFactory.make().await, self.0))
    }
}

#[async_trait]
impl Place for MutantPlace {
    async fn open(&self, clock: Clock) -> SharedStore {
        Arc::new(Mutant { inner: self.0.open(clock).await, fault: self.1 })
    }
}

#[test]
fn the_model_agrees_with_itself() {
    random::compare(&MutantFactory(Fault::None), 300);
    random_positions::compare(&MutantFactory(Fault::None), 300);
}

const LOG_FAULTS: [Fault; 8] = [
    Fault::ForgetsPrev,
    Fault::ReadsTopicsByText,
    Fault::ReleasesInOrderOfIds,
    Fault::CancelsTwice,
    Fault::TrimsOneTooMany,
    Fault::LosesTheEndOfAPage,
    Fault::FindsNothingDelayed,
    Fault::TimeBeforeIncludesTheTime,
];

const POSITIONS_FAULTS: [Fault; 19] = [
    Fault::IgnoresFences,
    Fault::ReadersAreNeverLate,
    Fault::LosesWhatWasLost,
    Fault::PublishesWithoutTheSlot,
    Fault::WritesHalfOfWhatIsRefused,
    Fault::NeedsNothingForLanes,
    Fault::SortsWithoutCase,
    Fault::SeeksOutsideOfTheLog,
    Fault::MergesParams,
    Fault::TouchesNothing,
    Fault::NeverExpires,
    Fault::GoesOnUnderAnyFence,
    Fault::TakesFromTheLiving,
    Fault::ForgetsWhoVanished,
    Fault::TellsMembersNothing,
    Fault::LeavesSlotsBehind,
    Fault::ForgetsWhatWasAsked,
    Fault::CollapsesEqualLines,
    Fault::PurgesByCountAlone,
];

#[test]
fn the_comparison_finds_every_mutant() {
    for fault in LOG_FAULTS {
        let found = std::panic::catch_unwind(|| random::compare(&MutantFactory(fault), 2_000)).is_err();
        assert!(found, "the comparison does not see {fault:?}");
    }
}

#[test]
fn the_comparison_about_groups_finds_every_mutant() {
    for fault in POSITIONS_FAULTS {
        let found = std::panic::catch_unwind(|| random_positions::compare(&MutantFactory(fault), 2_000)).is_err();
        assert!(found, "the comparison does not see {fault:?}");
    }
}

/// Does any behaviour of the suite, of those about groups or of the others, see what is wrong?
fn is_seen_by_the_suite(fault: Fault, about_groups: bool) -> bool {
    let meant = behaviours().into_iter().filter(|one| one.name.starts_with("positions_") == about_groups);
    meant.into_iter().any(|one| std::panic::catch_unwind(|| block_on((one.run)(&MutantFactory(fault)))).is_err())
}

#[test]
fn the_suite_finds_every_mutant() {
    for fault in LOG_FAULTS {
        assert!(is_seen_by_the_suite(fault, false), "no behaviour of the suite sees {fault:?}");
    }
}

#[test]
fn the_suite_about_groups_finds_every_mutant() {
    assert!(!is_seen_by_the_suite(Fault::None, true), "a right one passes");
    for fault in POSITIONS_FAULTS {
        assert!(is_seen_by_the_suite(fault, true), "no behaviour of the suite sees {fault:?}");
    }
}
