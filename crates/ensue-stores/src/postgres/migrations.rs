//! Which SQL makes the schema?
//!
//! Tables by numbered migrations, which are never edited: a change of a table is a new one. Functions as they are now:
//! all of them are made anew by every upgrade, so that each stands in one file, whatever version it comes from.

/// The tables that lead from one version to the next, in order; the first leads from nothing to version 1.
pub(super) const TABLES: &[&str] = &[
    include_str!("sql/tables.sql"),
    include_str!("sql/positions_tables.sql"),
    include_str!("sql/parked_tables.sql"),
    include_str!("sql/serving_tables.sql"),
    include_str!("sql/jobs_tables.sql"),
    include_str!("sql/definitions_tables.sql"),
    include_str!("sql/tasks_tables.sql"),
    include_str!("sql/schedules_tables.sql"),
    include_str!("sql/outbox_tables.sql"),
    include_str!("sql/own_tables.sql"),
    include_str!("sql/consume_tables.sql"),
    include_str!("sql/declarers_tables.sql"),
    include_str!("sql/operate_tables.sql"),
    include_str!("sql/dead_jobs_tables.sql"),
    include_str!("sql/outbox_batches_tables.sql"),
    include_str!("sql/events_tables.sql"),
    include_str!("sql/jobs_room_tables.sql"),
    include_str!("sql/job_runs_tables.sql"),
    include_str!("sql/unsaid_tables.sql"),
    include_str!("sql/security_tables.sql"),
    include_str!("sql/v21_tables.sql"),
];

/// All functions. One that is used in the body of an SQL function comes before it.
pub(super) const FUNCTIONS: &[&str] = &[
    include_str!("sql/fn_lock_log.sql"),
    include_str!("sql/fn_log_tail.sql"),
    include_str!("sql/fn_recording_time.sql"),
    include_str!("sql/fn_event_id.sql"),
    include_str!("sql/fn_id_time.sql"),
    include_str!("sql/fn_log_has.sql"),
    include_str!("sql/fn_outbox_move.sql"),
    include_str!("sql/fn_append.sql"),
    include_str!("sql/fn_stored.sql"),
    include_str!("sql/fn_release_due.sql"),
    include_str!("sql/fn_seq_before.sql"),
    include_str!("sql/fn_find_seq.sql"),
    include_str!("sql/fn_cancel.sql"),
    include_str!("sql/fn_trim.sql"),
    include_str!("sql/fn_ensure_partitions.sql"),
    include_str!("sql/fn_detach_trimmed.sql"),
    include_str!("sql/fn_drop_detached.sql"),
    include_str!("sql/fn_log_bytes.sql"),
    include_str!("sql/fn_purge_keys.sql"),
    include_str!("sql/fn_elapsed.sql"),
    include_str!("sql/fn_served_at.sql"),
    include_str!("sql/fn_tell_members.sql"),
    include_str!("sql/fn_group_make.sql"),
    include_str!("sql/fn_group_delete.sql"),
    include_str!("sql/fn_group_sweep.sql"),
    include_str!("sql/fn_group_seek.sql"),
    include_str!("sql/fn_group_replay.sql"),
    include_str!("sql/fn_condition_noted.sql"),
    include_str!("sql/fn_subscriptions_changed.sql"),
    include_str!("sql/fn_subscription_make.sql"),
    include_str!("sql/fn_subscription_delete.sql"),
    include_str!("sql/fn_subscriptions_expire.sql"),
    include_str!("sql/fn_expired_forget.sql"),
    include_str!("sql/fn_member_expired_forget.sql"),
    include_str!("sql/fn_members_forget.sql"),
    include_str!("sql/fn_slots_acquire.sql"),
    include_str!("sql/fn_member_renew.sql"),
    include_str!("sql/fn_slots_release.sql"),
    include_str!("sql/fn_member_leave.sql"),
    include_str!("sql/fn_settle_append.sql"),
    include_str!("sql/fn_settle_events.sql"),
    include_str!("sql/fn_settle_lanes.sql"),
    include_str!("sql/fn_settle_deliveries.sql"),
    include_str!("sql/fn_settle_lines.sql"),
    include_str!("sql/fn_slots_settle.sql"),
    include_str!("sql/fn_lane_ask.sql"),
    include_str!("sql/fn_deliveries_purge.sql"),
    include_str!("sql/fn_lanes_park.sql"),
    include_str!("sql/fn_member_serve.sql"),
    include_str!("sql/fn_pulse.sql"),
    include_str!("sql/fn_job_small.sql"),
    include_str!("sql/fn_jobs_turn.sql"),
    include_str!("sql/fn_jobs_insert.sql"),
    include_str!("sql/fn_jobs_sent_before.sql"),
    include_str!("sql/fn_jobs_enqueue.sql"),
    include_str!("sql/fn_jobs_send_alike.sql"),
    include_str!("sql/fn_jobs_fetch.sql"),
    include_str!("sql/fn_jobs_take.sql"),
    include_str!("sql/fn_jobs_renew.sql"),
    include_str!("sql/fn_jobs_say.sql"),
    include_str!("sql/fn_jobs_succeed.sql"),
    include_str!("sql/fn_jobs_end.sql"),
    include_str!("sql/fn_jobs_settle.sql"),
    include_str!("sql/fn_jobs_wake.sql"),
    include_str!("sql/fn_jobs_steer.sql"),
    include_str!("sql/fn_jobs_purge.sql"),
    include_str!("sql/fn_rule_set.sql"),
    include_str!("sql/fn_define.sql"),
    include_str!("sql/fn_schedule_put.sql"),
    include_str!("sql/fn_schedules_fire.sql"),
    include_str!("sql/fn_schedules_due.sql"),
    include_str!("sql/fn_store_code.sql"),
    include_str!("sql/fn_sql_checks.sql"),
    include_str!("sql/fn_publish.sql"),
    include_str!("sql/fn_outbox_put.sql"),
    include_str!("sql/fn_own_settle.sql"),
    include_str!("sql/fn_condition_sql.sql"),
    include_str!("sql/fn_condition_keys.sql"),
    include_str!("sql/fn_condition_evaluate.sql"),
    include_str!("sql/fn_subscribe.sql"),
    include_str!("sql/fn_lease.sql"),
    include_str!("sql/fn_pull_keyed.sql"),
    include_str!("sql/fn_pull_scan.sql"),
    include_str!("sql/fn_read_next_events.sql"),
    include_str!("sql/fn_set_group_cursor.sql"),
    include_str!("sql/fn_log_view.sql"),
    include_str!("sql/fn_sql_enqueue.sql"),
    include_str!("sql/fn_sql_rules.sql"),
    include_str!("sql/fn_sql_claim.sql"),
    include_str!("sql/fn_sql_settle.sql"),
    include_str!("sql/fn_sql_mutations.sql"),
    include_str!("sql/fn_partitions_wanted.sql"),
    include_str!("sql/fn_delete_trimmed.sql"),
    include_str!("sql/fn_sql_maintain.sql"),
    include_str!("sql/fn_pgmb.sql"),
    include_str!("sql/fn_grants.sql"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What users may replace stands with the tables, which an upgrade makes once.
    #[test]
    fn no_upgrade_makes_anew_what_users_may_replace() {
        let made = |templates: &[&str]| {
            templates
                .iter()
                .map(|template| template.matches("FUNCTION {schema}.mutation_payload(").count())
                .sum::<usize>()
        };
        assert_eq!((made(TABLES), made(FUNCTIONS)), (1, 0));
    }

    /// What a backslash means between quotes is a setting of the session; between dollars it is itself.
    #[test]
    fn no_text_depends_on_how_a_session_reads_backslashes() {
        let lines = FUNCTIONS.iter().chain(TABLES).flat_map(|template| template.lines());
        for line in lines.filter(|line| !line.trim_start().starts_with("--")) {
            let between_quotes: String = line.split("$re$").step_by(2).collect();
            assert!(!between_quotes.contains('\\'), "write it between $re$ and $re$, or without: {line}");
        }
    }
}
