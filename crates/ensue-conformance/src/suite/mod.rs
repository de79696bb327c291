//! What must every engine do?
//!
//! One file for each group of verbs, one function for each behaviour; its name is the promise. [`behaviours`] lists
//! them; [`conformance_tests!`](crate::conformance_tests) makes each a test of its own in an engine's test file.

pub mod append;
pub mod chain_and_find;
pub mod concurrency;
pub mod definitions;
pub mod delayed;
pub mod jobs;
pub mod jobs_claim;
pub mod jobs_concurrency;
pub mod jobs_lanes;
pub mod jobs_notices;
pub mod jobs_purge;
pub mod jobs_read;
pub mod jobs_rules;
pub mod jobs_send;
pub mod jobs_settle;
pub mod jobs_steer;
pub mod jobs_tasks;
pub mod jobs_time;
pub mod keys;
pub mod poison;
pub mod positions;
pub mod positions_concurrency;
pub mod positions_deliveries;
pub mod positions_groups;
pub mod positions_lanes;
pub mod positions_parked;
pub mod positions_serving;
pub mod positions_settle;
pub mod positions_slots;
pub mod positions_subscriptions;
pub mod read;
pub mod retention;
pub mod schedules;

use crate::factory::{Factory, Place};
use crate::meaning::EventMeaning;
use ensue_core::chain::Audit;
use ensue_core::clock::ManualClock;
use ensue_core::retention::Bounds;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Appended, Entry, Event, Filter, NewEvent, ObjectKey, Seq, StoreError, Topic};
use std::pin::Pin;

/// The future of one behaviour.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One behaviour: panics where an engine does not keep it.
pub struct Behaviour {
    /// `group::name`.
    pub name: &'static str,
    /// Tries it.
    pub run: for<'a> fn(&'a dyn Factory) -> Running<'a>,
}

/// The list of all behaviours, given to another macro of this crate. Kept in step with the files by a test.
#[doc(hidden)]
#[macro_export]
macro_rules! each_behaviour {
    ($then:ident, $factory:expr) => {
        $crate::$then! { $factory;
            append {
                numbers_begin_at_one_and_a_batch_takes_consecutive_ones
                an_empty_batch_is_refused
                answers_come_in_the_order_of_the_entries
                prev_is_the_preceding_event_of_the_object_within_and_across_batches
                an_event_comes_back_as_it_was_sent
                a_refused_batch_changes_nothing
                recorded_at_never_decreases_when_the_clock_steps_back
                times_are_whole_microseconds
                the_largest_batch_and_the_largest_event_are_taken
                what_was_acknowledged_survives_a_reopen
                a_closed_store_refuses_and_a_reopened_one_goes_on
            }
            keys {
                a_repeated_key_answers_as_it_did_first_and_stores_nothing
                another_event_under_a_used_key_changes_nothing
                repeats_within_one_batch_are_stored_once
                two_events_under_one_key_in_one_batch_are_refused
                a_key_is_free_again_after_a_day
                a_repeated_delayed_event_answers_without_a_number_even_when_it_is_logged
                keys_survive_a_reopen_and_a_trim
                purge_forgets_only_keys_whose_window_has_passed
                keys_are_compared_in_full
            }
            delayed {
                delayed_events_enter_by_due_time_then_acceptance
                a_delayed_event_enters_at_its_time_and_not_before
                an_event_whose_time_has_come_is_not_delayed
                a_release_is_bounded_and_tells_when_the_next_is_due
                a_release_is_bounded_in_bytes
                delayed_events_survive_a_reopen
                a_cancelled_event_never_enters_the_log
                a_cancelled_event_frees_its_key
                what_is_logged_cannot_be_cancelled
                a_delayed_event_is_found_pending_and_then_logged_under_the_same_id
                a_delayed_event_takes_its_place_in_the_chain_when_it_enters
                released_events_are_recorded_when_they_enter_even_if_the_clock_steps_back
            }
            read {
                a_page_holds_what_follows_up_to_the_limit
                a_topic_wants_those_below_it_by_whole_segments
                an_object_is_compared_in_full
                a_topic_and_an_object_together_want_both
                chunked_reads_return_everything_once_in_order
                a_scan_for_a_topic_is_bounded_and_goes_on
                a_scan_of_an_object_is_bounded_and_goes_on
                a_page_is_bounded_in_bytes
                chains_and_lists_are_bounded_in_bytes
                a_page_tells_where_the_log_begins
                reading_beyond_the_end_waits_there
                reading_what_is_forgotten_begins_at_the_first
            }
            chain_and_find {
                a_chain_comes_newest_first_and_goes_on_before_a_place
                no_prev_points_to_a_direct_message
                an_event_is_found_at_its_place_and_nowhere_else
                every_id_is_found_among_many_of_one_millisecond
                ids_that_nobody_was_given_are_not_found
                ids_are_found_across_steps_of_the_clock
                delayed_events_are_found_long_after_they_were_accepted
                reading_from_a_time_begins_with_the_first_event_at_it
            }
            retention {
                an_empty_log_has_bounds_too
                a_trim_is_bounded_and_goes_on
                numbers_and_times_go_on_after_everything_was_forgotten
                what_is_forgotten_is_invisible_to_every_verb
                prev_never_points_to_what_is_forgotten
                a_trim_never_goes_back_or_beyond_the_end
                a_trim_leaves_delayed_events_alone
                bytes_are_about_right
            }
            concurrency {
                many_appenders_leave_a_clean_history
                one_key_from_many_callers_is_stored_once
                a_delayed_event_is_released_or_cancelled_never_both
                trimming_beside_appends_and_reads_tears_nothing
                a_close_beside_appends_loses_nothing_acknowledged
            }
            poison {
                odd_json_comes_back_with_the_same_meaning
                odd_names_come_back_as_they_were
                a_payload_that_an_engine_refuses_fails_its_own_caller_alone
                a_conflict_fails_its_own_caller_alone
            }
            positions_groups {
                a_group_that_is_there_stays_as_it_is
                a_group_of_another_kind_is_a_conflict
                a_group_begins_where_it_says
                a_start_outside_of_the_log_makes_nothing
                a_number_of_slots_that_cannot_be_makes_nothing
                groups_are_listed_by_name
                a_group_may_have_many_slots
                a_deleted_group_is_forgotten_with_all_that_belongs_to_it
                an_owner_of_a_deleted_group_has_nothing_of_one_made_again
                a_seek_moves_every_cursor_and_forgets_the_lanes
                a_seek_outside_of_the_log_changes_nothing
                a_seek_takes_the_slots_from_their_owner
                a_group_tells_when_it_was_served
                a_group_tells_what_it_lost_last
                groups_survive_a_reopen
                the_next_process_goes_on_where_the_last_one_was
                a_closed_store_refuses_what_is_asked_about_groups
                groups_come_page_by_page
                a_replay_goes_back_and_knows_where_it_was
                a_replay_that_cannot_be_changes_nothing
            }
            positions_subscriptions {
                a_subscription_comes_back_as_it_was_made
                subscriptions_are_found_by_their_ids_until_they_expire
                asking_for_the_same_again_shares_one
                params_are_the_same_by_their_meaning
                subscriptions_that_differ_in_a_late_byte_are_two
                the_longer_expiry_wins
                subscribing_makes_a_pull_group_that_begins_now
                a_subscription_goes_when_its_time_has_passed
                a_touch_keeps_a_subscription
                reading_its_group_keeps_a_subscription
                an_expired_subscription_counts_as_gone
                who_has_expired_stays_gone_also_when_the_group_is_read_before_it_was_swept
                a_group_under_a_live_lease_has_nothing_that_expired
                expiring_is_bounded_and_counts_the_version
                the_version_counts_changes_and_no_touches
                unsubscribing_takes_one_out_of_its_group
                subscriptions_come_by_id_page_by_page
                two_thousand_subscriptions_stay_distinct
                a_handler_keeps_its_subscriptions_while_its_process_lives
                what_changed_after_a_version_is_told
                changes_are_known_for_a_while_and_end_with_their_group
            }
            positions_slots {
                free_slots_are_taken_and_own_ones_stay_under_their_fence
                a_slot_of_a_live_owner_is_not_taken
                only_slots_that_are_wanted_are_taken
                a_slot_whose_lease_has_passed_is_anybodys
                vanished_owners_are_counted_until_the_cursor_moves
                a_reader_goes_on_only_under_its_fence_and_a_live_lease
                a_renewal_extends_the_lease_of_every_slot
                a_late_renewal_keeps_what_nobody_took
                who_is_not_known_cannot_renew
                the_members_are_the_processes_that_live
                a_member_hears_when_a_slot_is_taken_or_a_lane_is_asked
                a_release_is_clean
                a_release_gives_back_no_more_than_was_named
                who_leaves_gives_everything_back
                slots_of_a_group_that_is_not_there_are_none
                leases_follow_the_stores_clock_when_it_steps
            }
            positions_serving {
                a_process_is_known_with_what_it_serves
                who_takes_slots_has_not_said_what_it_serves
                those_who_serve_a_group_hear_who_else_does
                saying_what_one_serves_renews_the_lease
                a_pulse_tells_what_has_happened
            }
            positions_settle {
                a_change_that_relies_on_an_event_that_the_log_lacks_changes_nothing
                a_stale_fence_changes_nothing_while_others_are_written
                a_cursor_never_goes_back
                a_reader_has_lost_its_slot_when_its_lease_has_passed
                a_process_keeps_its_slot_until_somebody_takes_it
                events_are_published_with_the_change
                a_key_conflict_refuses_its_own_change_alone
                a_repeated_key_in_a_change_is_stored_once
                changes_are_carried_out_in_their_order
                what_was_settled_survives_a_reopen
                jobs_are_sent_with_the_change_or_not_at_all
            }
            positions_lanes {
                a_lane_comes_back_as_it_was_put
                putting_a_lane_again_keeps_since_and_answers_what_was_asked
                a_lane_that_was_removed_begins_anew
                lanes_of_slots_come_by_key_page_by_page
                stuck_lanes_come_with_the_oldest_first
                lanes_of_an_object_come_by_group
                what_is_asked_is_found_by_who_has_the_slot
                asking_of_a_lane_that_is_not_there_is_none
                a_group_needs_the_events_of_its_lanes
                a_lane_outlives_its_owner
                a_reader_puts_lanes_in_its_one_slot
                stuck_lanes_come_page_by_page
            }
            positions_parked {
                what_is_parked_outlives_the_log
                what_is_parked_is_found
                a_page_of_what_is_parked_is_bounded
                what_a_lane_has_passed_is_no_longer_parked
                a_parking_that_comes_late_does_no_harm
                groups_park_for_themselves
                lanes_that_need_the_log_are_found
            }
            positions_deliveries {
                a_delivery_comes_back_as_it_was_written_last
                deliveries_of_an_event_come_by_group
                lines_that_are_the_same_are_two_and_stay_in_order
                purging_by_age_forgets_what_ended_before
                purging_by_count_keeps_the_youngest
                lines_of_what_is_not_recorded_go_by_their_age
            }
            positions_concurrency {
                slots_that_many_want_have_one_owner_each
                the_same_subscription_from_many_is_made_once
                settlements_beside_appends_leave_no_gap
                nothing_is_settled_after_a_takeover
                every_fence_is_given_out_once
            }
            definitions {
                a_handler_is_defined_with_its_group_and_what_it_wants
                a_handler_that_is_defined_anew_keeps_its_place
                a_name_that_is_taken_is_not_defined
                a_handler_that_cannot_begin_is_not_defined
                a_definition_and_its_group_go_together
                a_handler_that_many_define_is_one
            }
            jobs_send {
                a_job_comes_back_as_it_was_sent
                a_call_sends_all_in_their_order_or_none
                the_largest_payload_is_taken
                numbers_are_never_given_twice
                an_id_is_compared_in_full
                a_unique_key_is_one_live_job_of_its_handler
                a_unique_key_within_one_call_is_one_job
                a_unique_key_is_free_when_its_job_is_over
                unique_keys_are_compared_in_full
                a_job_whose_time_has_come_waits_for_nothing
                a_job_waits_for_a_handler_that_nobody_runs
            }
            jobs_claim {
                the_highest_priority_goes_first_and_first_come_inside_it
                a_claim_takes_no_more_than_it_wants
                a_claim_counts_the_attempt_and_raises_the_fence
                only_what_is_available_is_taken
                a_claim_is_renewed_under_its_fence_only
                a_late_worker_keeps_what_nobody_took
                a_claim_that_cannot_be_meant_takes_nothing
                what_is_sent_can_be_claimed_with_it
            }
            jobs_settle {
                a_job_that_is_done_is_over
                a_job_tells_how_its_last_claim_was_settled
                a_store_keeps_its_key
                a_failed_job_waits_for_its_time
                a_dead_job_keeps_its_newest_errors
                a_snooze_and_a_give_back_use_no_attempt
                a_job_that_is_called_off_tells_why
                a_stale_fence_changes_nothing_while_others_are_written
                what_is_over_stays_over
                events_and_jobs_are_written_with_the_end
                what_is_refused_leaves_nothing
                a_job_may_send_its_own_successor
                lines_are_kept_in_order_also_when_they_are_the_same
                a_job_that_says_too_much_keeps_its_first_lines
            }
            jobs_lanes {
                jobs_of_an_object_run_one_after_another
                a_lane_goes_on_when_its_job_is_over
                a_lane_waits_while_its_first_is_retried
                a_snoozed_job_keeps_its_place
                a_priority_does_not_change_the_order_of_a_lane
                a_dead_job_holds_its_lane
                a_dead_job_that_is_to_be_skipped_holds_nothing
                a_death_may_be_that_of_all_that_wait_in_its_lane
                a_job_that_is_brought_back_runs_next_in_its_lane
                a_job_that_is_brought_back_waits_for_who_is_at_work
                jobs_that_are_brought_back_run_in_their_old_order
                jobs_of_an_object_without_an_order_are_independent
                a_delayed_job_joins_its_lane_when_it_is_due
                the_predecessor_is_who_goes_before
                a_long_lane_lets_one_go_at_a_time
            }
            jobs_time {
                due_jobs_go_on_by_their_time_then_as_they_were_sent
                a_job_goes_on_at_its_time_and_not_before
                a_look_tells_when_to_look_again
                a_job_is_taken_over_when_its_lease_has_passed
                a_job_that_ends_its_workers_dies
                a_lease_that_was_renewed_meanwhile_is_not_taken
                leases_that_passed_are_found_with_the_earliest_first
                times_follow_the_stores_clock_when_it_steps
            }
            jobs_notices {
                a_death_is_told_with_its_reason
                an_object_of_a_handler_of_events_is_told_to_be_held
                who_dies_with_the_one_before_is_told_of
                a_cancelled_job_is_not_told_to_have_died
                the_death_of_who_vanished_with_its_worker_is_told
                what_follows_from_a_notice_is_not_told_of
                who_does_not_die_is_not_told_of
            }
            jobs_steer {
                what_a_state_does_not_allow_changes_nothing
                a_job_that_waits_is_cancelled_at_once
                a_running_job_is_told_to_stop_and_is_cancelled_when_it_ends
                a_cancellation_and_an_end_do_not_overwrite_each_other
                a_job_that_was_told_to_stop_takes_no_other_with_it
                a_job_that_waits_for_its_time_runs_now_when_it_is_retried
                a_dead_job_is_not_brought_back_beside_a_live_one_with_its_key
                a_skipped_job_leaves_its_lane
                a_call_sees_what_it_has_done_before
            }
            jobs_rules {
                a_rule_comes_back_as_it_was_set
                a_rule_on_a_prefix_holds_all_below_it
                a_rule_on_an_object_parks_its_jobs_of_all_handlers
                what_is_retried_under_a_rule_waits_for_it
                both_kinds_hold_and_lift_separately
                lifting_lets_everything_go_that_waited
                a_rule_lifts_itself_when_it_expires
                a_rule_that_cannot_be_meant_changes_nothing
                what_is_done_about_rules_is_in_the_log_with_its_chain
                every_change_of_a_rule_raises_the_version
                processes_that_have_not_seen_a_version_are_awaited
                a_rule_holds_nothing_but_its_scope
            }
            jobs_read {
                jobs_come_by_number_page_by_page
                the_last_page_says_so
                a_page_is_bounded_in_bytes
                a_scan_is_bounded_and_goes_on
                jobs_are_found_by_the_event_they_follow_from
                jobs_that_hold_their_lane_are_found
                counts_are_of_what_is_not_over
                who_runs_jobs_is_known_by_handler
                a_closed_store_refuses_what_is_asked_about_jobs
            }
            jobs_purge {
                purging_by_age_forgets_what_ended_before
                purging_by_count_keeps_the_youngest
                those_that_died_are_counted_by_themselves
                purging_never_takes_what_is_live_or_holds_a_lane
                tasks_are_forgotten_apart_from_other_jobs
            }
            jobs_tasks {
                tasks_come_by_time_of_their_source
                tasks_are_found_by_their_states
                a_page_of_tasks_is_bounded_in_bytes
                progress_is_kept_under_the_fence
            }
            jobs_concurrency {
                each_job_is_taken_once
                one_unique_key_from_many_is_one_job
                a_lane_never_has_two_at_work
                nothing_is_taken_after_a_rule_was_set
                an_end_and_a_cancellation_agree
                a_renewal_and_an_expiry_agree
            }
            schedules {
                a_schedule_comes_back_as_it_was_put
                a_schedule_is_changed_over_what_is_there
                schedules_come_page_by_page
                what_is_due_is_found_in_its_order
                what_is_due_has_room_for_so_many_bytes
                what_is_put_or_let_go_is_due_however_long_ago
                an_event_is_published_with_the_watermark
                an_occurrence_fires_once
                an_occurrence_that_overlaps_is_left_out
                occurrences_wait_for_each_other_in_a_lane
                many_schedules_fire_in_one_call
                a_schedule_is_fired_by_hand
                a_rule_holds_a_schedule
                runs_are_kept_up_to_a_number
                a_schedule_that_nobody_declares_goes
                a_firing_that_is_refused_changes_nothing
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! list_of_behaviours {
    ($factory:expr; $($group:ident { $($name:ident)* })*) => {
        vec![$($($crate::suite::Behaviour {
            name: concat!(stringify!($group), "::", stringify!($name)),
            run: |factory| Box::pin($crate::suite::$group::$name(factory)),
        }),*),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! tests_of_behaviours {
    ($factory:expr; $($group:ident { $($name:ident)* })*) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the factory may be named by its full path")]
            use super::*;
            $(#[test]
            fn $name() {
                $crate::suite::block_on($crate::suite::$group::$name(&$factory));
            })*
        })*
    };
}

/// Makes every behaviour of the suite a test of its own: `conformance_tests!(MyFactory);`.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::each_behaviour!(tests_of_behaviours, $factory);
    };
}

/// All behaviours, for those who want to run them in their own way.
pub fn behaviours() -> Vec<Behaviour> {
    each_behaviour!(list_of_behaviours, ())
}

/// Runs a future to its end on several threads.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for a test")
        .block_on(future)
}

/// A store under trial, its clock, and the place it lives in.
pub struct Subject {
    place: Box<dyn Place>,
    /// The clock it reads.
    pub clock: ManualClock,
    /// The store.
    pub store: SharedStore,
}

impl Subject {
    /// A new empty store.
    pub async fn new(factory: &dyn Factory) -> Self {
        let place = factory.make().await;
        let clock = ManualClock::at_noon();
        let store = place.open(clock.clock()).await;
        Self { place, clock, store }
    }

    /// Closes the store and opens it again.
    pub async fn reopen(&mut self) {
        self.store.close().await;
        self.store = self.place.open(self.clock.clock()).await;
    }

    /// Appends a batch that must be taken.
    pub async fn append(&self, batch: Vec<NewEvent>) -> Vec<Appended> {
        self.try_append(batch).await.expect("a batch that must be taken")
    }

    /// Appends a batch.
    pub async fn try_append(&self, batch: Vec<NewEvent>) -> Result<Vec<Appended>, StoreError> {
        self.store.append(checked(batch)).await
    }

    /// Appends one event that must be taken.
    pub async fn one(&self, event: NewEvent) -> Appended {
        self.append(vec![event]).await[0]
    }

    /// Appends `count` events on a topic, in batches as large as they may be.
    pub async fn fill(&self, topic: &str, object: Option<&str>, count: usize) {
        let event = NewEvent::new(topic);
        let event = object.map_or(event.clone(), |object| event.object(object));
        let mut left = count;
        while left > 0 {
            let batch = left.min(ensue_core::event::BATCH_MAX);
            self.append(vec![event.clone(); batch]).await;
            left -= batch;
        }
    }

    /// Everything that `filter` wants, page by page; checks what every page promises.
    pub async fn read_all(&self, filter: Filter, after: Seq, limit: usize) -> Vec<Event> {
        read_all(&self.store, filter, after, limit).await
    }

    /// The whole log.
    pub async fn log(&self) -> Vec<Event> {
        self.read_all(Filter::default(), 0, 1_000).await
    }

    /// The bounds of the log.
    pub async fn bounds(&self) -> Bounds {
        self.store.bounds().await.expect("bounds")
    }

    /// Audits the whole log against the rules of the chain.
    pub async fn audit(&self) {
        let bounds = self.bounds().await;
        let (mut audit, mut faults) = (Audit::from(bounds.first), Vec::new());
        self.log().await.iter().for_each(|event| audit.see(event, &mut faults));
        audit.end(bounds.last, &mut faults);
        assert_eq!(faults, []);
    }
}

/// Everything that `filter` wants, page by page; checks what every page promises.
pub async fn read_all(store: &SharedStore, filter: Filter, after: Seq, limit: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut after = after;
    loop {
        let page = store.read(Read { after, limit, filter: filter.clone() }).await.expect("a page");
        let last = store.bounds().await.expect("bounds").last;
        assert!(page.events.len() <= limit, "{} events on a page of {limit}", page.events.len());
        assert!(page.next >= after, "next {} goes back from {after}", page.next);
        for event in &page.events {
            assert!(event.seq > after && event.seq <= page.next, "seq {} between {after} and {}", event.seq, page.next);
            assert!(events.last().is_none_or(|before| before.seq < event.seq), "seq {} is out of order", event.seq);
            assert!(filter.matches(event), "seq {} is not wanted", event.seq);
            events.push(event.clone());
        }
        if page.next >= last {
            return events;
        }
        assert!(page.next > after, "a read after {after} of a log that ends at {last} stands still");
        after = page.next;
    }
}

/// A batch that is fit for the log.
pub fn checked(batch: Vec<NewEvent>) -> Vec<Entry> {
    NewEvent::check_all(batch).expect("a batch that is fit for the log")
}

/// A filter for a topic and those below it.
pub fn topic(topic: &str) -> Filter {
    Filter { topic: Some(Topic::stored(topic)), object: None }
}

/// A filter for an object.
pub fn object(object: &str) -> Filter {
    Filter { topic: None, object: Some(ObjectKey::stored(object)) }
}

/// The places of events.
pub fn seqs(events: &[Event]) -> Vec<Seq> {
    events.iter().map(|event| event.seq).collect()
}

/// The events by meaning.
pub fn meanings(events: &[Event]) -> Vec<EventMeaning> {
    events.iter().map(EventMeaning::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A behaviour that is written but not listed would never be tried.
    #[test]
    fn every_behaviour_in_the_files_is_listed() {
        let files = [
            ("append", include_str!("append.rs")),
            ("keys", include_str!("keys.rs")),
            ("delayed", include_str!("delayed.rs")),
            ("read", include_str!("read.rs")),
            ("chain_and_find", include_str!("chain_and_find.rs")),
            ("retention", include_str!("retention.rs")),
            ("concurrency", include_str!("concurrency.rs")),
            ("poison", include_str!("poison.rs")),
            ("positions_groups", include_str!("positions_groups.rs")),
            ("positions_subscriptions", include_str!("positions_subscriptions.rs")),
            ("positions_slots", include_str!("positions_slots.rs")),
            ("positions_serving", include_str!("positions_serving.rs")),
            ("positions_settle", include_str!("positions_settle.rs")),
            ("positions_lanes", include_str!("positions_lanes.rs")),
            ("positions_parked", include_str!("positions_parked.rs")),
            ("positions_deliveries", include_str!("positions_deliveries.rs")),
            ("positions_concurrency", include_str!("positions_concurrency.rs")),
            ("definitions", include_str!("definitions.rs")),
            ("jobs_send", include_str!("jobs_send.rs")),
            ("jobs_claim", include_str!("jobs_claim.rs")),
            ("jobs_settle", include_str!("jobs_settle.rs")),
            ("jobs_lanes", include_str!("jobs_lanes.rs")),
            ("jobs_time", include_str!("jobs_time.rs")),
            ("jobs_notices", include_str!("jobs_notices.rs")),
            ("jobs_steer", include_str!("jobs_steer.rs")),
            ("jobs_rules", include_str!("jobs_rules.rs")),
            ("jobs_read", include_str!("jobs_read.rs")),
            ("jobs_purge", include_str!("jobs_purge.rs")),
            ("jobs_tasks", include_str!("jobs_tasks.rs")),
            ("jobs_concurrency", include_str!("jobs_concurrency.rs")),
            ("schedules", include_str!("schedules.rs")),
        ];
        let names = |(group, text): &(&str, &str)| -> Vec<String> {
            let functions = text.split("\npub async fn ").skip(1);
            functions.map(|rest| format!("{group}::{}", &rest[..rest.find('(').expect("a function")])).collect()
        };
        let written: Vec<String> = files.iter().flat_map(names).collect();
        let listed: Vec<&str> = behaviours().iter().map(|behaviour| behaviour.name).collect();
        assert_eq!(written, listed);
    }
}
