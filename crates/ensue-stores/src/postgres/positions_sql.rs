//! Which SQL keeps groups and all that is known of them?

use super::beside::VERSION;
use super::schema::Schema;

/// What is told of a lane.
const LANE: &str = "SELECT g.name, l.slot, l.key, l.position, l.state, l.attempts, l.not_before, l.error, l.redriven, \
                    l.since, l.ask, l.parked_to FROM {schema}.lanes l JOIN {schema}.groups g ON g.id = l.group_id";

/// The statements of the verbs of `Positions`, for one schema.
#[derive(Debug)]
pub(super) struct PositionsSql {
    pub group_make: String,
    pub group: String,
    pub groups: String,
    pub groups_after: String,
    pub group_delete: String,
    pub group_sweep: String,
    pub group_seek: String,
    pub group_replay: String,
    pub subscribe: String,
    pub unsubscribe: String,
    pub touch: String,
    pub subscriptions: String,
    pub subscriptions_by_id: String,
    pub subscription_changes: String,
    pub expire_subscriptions: String,
    pub acquire: String,
    pub acquire_soon: String,
    pub renew: String,
    pub serve: String,
    pub members: String,
    pub pulse: String,
    pub release: String,
    pub leave: String,
    pub settle: String,
    pub lanes_of_slots: String,
    pub lanes_stuck: String,
    pub lanes_stuck_after: String,
    pub lanes_stuck_of_group: String,
    pub lanes_of_object: String,
    pub lane: String,
    pub lanes_asked: String,
    pub ask_lane: String,
    pub lanes_needing: String,
    pub park: String,
    pub parked_of_lane: String,
    pub parked_by_seq: String,
    pub parked_by_id: String,
    pub parked_size: String,
    pub deliveries: String,
    pub lines: String,
    pub purge_deliveries: String,
}

impl PositionsSql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        // The filled-in name of the schema could look like the placeholder, so that is replaced first.
        let groups = |which: &str| sql(&include_str!("sql/groups.sql").replace("{which_groups}", which));
        let lanes = |rest: &str| sql(&format!("{LANE} {rest}"));
        let asked = "SELECT g.name, l.slot, l.key, l.position, l.state, l.attempts, l.not_before, l.error, l.redriven, \
                     l.since, l.ask, l.parked_to FROM {schema}.lane_ask($1, $2, $3) l JOIN {schema}.groups g ON g.id = l.group_id";
        Self {
            group_make: sql(&function("group_make", 8)),
            group: groups("WHERE g.name = $2"),
            groups: groups(""),
            groups_after: groups("WHERE g.name > $2 AND ($3::text IS NULL OR g.kind = $3) ORDER BY g.name LIMIT $4"),
            group_delete: sql(&function("group_delete", 1)),
            group_sweep: sql(&function("group_sweep", 1)),
            group_seek: sql(&function("group_seek", 4)),
            group_replay: sql(&function("group_replay", 5)),
            subscribe: sql("SELECT id, topic, condition, params, expires_in, created_at, touched_at, created_after \
                 FROM {schema}.subscription_make($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            unsubscribe: sql(&function("subscription_delete", 3)),
            touch: sql(include_str!("sql/subscription_touch.sql")),
            subscriptions: sql(include_str!("sql/subscriptions.sql")),
            subscriptions_by_id: sql(include_str!("sql/subscriptions_by_id.sql")),
            subscription_changes: sql(include_str!("sql/subscription_changes.sql")),
            expire_subscriptions: sql(&function("subscriptions_expire", 2)),
            acquire: sql(&function("slots_acquire", 8)),
            acquire_soon: sql(&function("slots_acquire_soon", 8)),
            renew: sql(&function("member_renew", 3)),
            serve: sql(&function("member_serve", 6)),
            members: sql(include_str!("sql/members.sql")),
            // By name: a later version of the schema may tell more.
            pulse: sql(&format!(
                "SELECT o_now, o_last, o_next_due, o_id_part, o_recorded_at, o_version, o_id, o_name, o_kind, \
                 o_rules_version, o_jobs_sent, o_jobs_due, o_xmin, o_next_xid, o_definitions_version, o_schedules_due, \
                 o_waiting, o_listeners, o_asleep, {VERSION} FROM {{schema}}.pulse($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            )),
            release: sql(&function("slots_release", 4)),
            leave: sql(&function("member_leave", 2)),
            settle: sql(&function("slots_settle", 63).replacen('*', "*, {logged} AS logged", 1)),
            lanes_of_slots: lanes(
                "WHERE g.name = $1 AND l.slot = ANY ($2) AND l.key > coalesce($3::text, '') ORDER BY l.key LIMIT $4",
            ),
            lanes_stuck: lanes("WHERE l.state IN ('held', 'dead') ORDER BY l.since, l.key, g.name LIMIT $1"),
            lanes_stuck_after: lanes(
                "WHERE l.state IN ('held', 'dead') AND (l.since, l.key, g.name) > ($1, $2, $3) AND l.since >= $1 \
                 ORDER BY l.since, l.key, g.name LIMIT $4",
            ),
            lanes_stuck_of_group: lanes(
                "WHERE l.state IN ('held', 'dead') AND g.name = $1 ORDER BY l.since, l.key LIMIT $2",
            ),
            lanes_of_object: lanes("WHERE l.key = $1 ORDER BY g.name LIMIT $2"),
            lane: lanes("WHERE g.name = $1 AND l.key = $2 LIMIT $3"),
            lanes_asked: lanes(
                "JOIN {schema}.slots s ON s.group_id = l.group_id AND s.slot = l.slot \
                 WHERE s.owner = $1 AND l.ask IS NOT NULL ORDER BY g.name, l.key LIMIT $2",
            ),
            ask_lane: sql(asked),
            lanes_needing: lanes(
                "WHERE l.state IN ('waiting', 'held') AND greatest(l.position, l.parked_to) < $1 \
                 AND (g.name, l.key) > ($2, $3) ORDER BY g.name, l.key LIMIT $4",
            ),
            park: sql(&function("lanes_park", 6)),
            parked_of_lane: sql(include_str!("sql/parked_of_lane.sql")),
            parked_by_seq: sql(&parked("p.seq = $1")),
            parked_by_id: sql(&parked("p.id = $1")),
            parked_size: sql(
                "SELECT count(*), coalesce(sum(octet_length(e.topic) + coalesce(octet_length(e.object), 0) + \
                 {bytes_of_e}), 0)::bigint \
                 FROM {schema}.groups g JOIN {schema}.parked e ON e.group_id = g.id WHERE g.name = $1 AND e.key = $2",
            ),
            deliveries: sql(
                "SELECT g.name, d.seq, d.object, d.state, d.attempts, d.error, d.started_at, d.finished_at \
                 FROM {schema}.deliveries d JOIN {schema}.groups g ON g.id = d.group_id \
                 WHERE d.seq = $1 ORDER BY g.name",
            ),
            lines: sql("SELECT l.seq, l.attempt, l.at, l.level, l.message \
                 FROM {schema}.groups g JOIN {schema}.delivery_lines l ON l.group_id = g.id \
                 WHERE g.name = $1 AND l.seq = $2 ORDER BY l.nth OFFSET $3 LIMIT $4"),
            purge_deliveries: sql(&function("deliveries_purge", 3)),
        }
    }
}

/// One parked event, if somebody needs it: what belonged to a group that is gone may still be there.
fn parked(which: &str) -> String {
    format!(
        "SELECT p.seq, p.prev, p.id_part, p.topic, p.object, p.payload, p.metadata, \
         coalesce(p.occurred_at, p.recorded_at), p.recorded_at, p.to_subscription \
         FROM {{schema}}.parked p JOIN {{schema}}.groups g ON g.id = p.group_id WHERE {which} LIMIT $2"
    )
}

/// A call of a function with so many parameters.
fn function(name: &str, params: usize) -> String {
    let params: Vec<String> = (1..=params).map(|n| format!("${n}")).collect();
    format!("SELECT * FROM {{schema}}.{name}({})", params.join(", "))
}
