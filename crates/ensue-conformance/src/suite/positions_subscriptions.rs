//! What does a subscription promise: when are two the same, and when does one go?

use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, name, process, reader, wants, wants_just};
use super::{Subject, checked};
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::positions::subscription::CHANGES_KEPT;
use ensue_core::positions::{GroupKind, NewSubscription, SlotChange, SubscriptionChanges, SubscriptionState};
use ensue_core::{Json, NewEvent, Topic};
use jiff::SignedDuration;
use std::collections::HashSet;
use uuid::Uuid;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const HOUR_MILLIS: i64 = 3_600_000;

fn expiring(group: &str) -> NewSubscription {
    NewSubscription { expires_in: Some(HOUR), ..wants(group) }
}

impl Subject {
    async fn touch(&self, group: &str, id: Uuid) -> Option<SubscriptionState> {
        self.store.touch(&name(group), id).await.expect("an answer")
    }

    async fn unsubscribe(&self, group: &str, id: Uuid) -> bool {
        self.store.unsubscribe(&name(group), id).await.expect("an answer")
    }

    async fn expire(&self, limit: usize) -> usize {
        self.store.expire_subscriptions(limit).await.expect("an answer")
    }
}

fn ids(subscriptions: &[SubscriptionState]) -> Vec<Uuid> {
    subscriptions.iter().map(|one| one.id).collect()
}

/// Everything that was said comes back, and where the log ended then.
pub async fn a_subscription_comes_back_as_it_was_made(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", None, 7).await;
    let condition = "e.payload->>'recid' = s.params->>'recid' -- 'ü' \"\\";
    let params = r#"{"recid":"1'; --","n":[1.50,null,{"ü":"\u00e9\\"}]}"#;
    let new = NewSubscription { expires_in: Some(HOUR), ..wants_just("g", "record.published", condition, params) };
    let made = subject.subscribe_new(new.clone()).await;
    assert_eq!((&made.group, &made.topic, &made.condition), (&new.group, &new.topic, &new.condition));
    assert_eq!(Meaning::of(&made.params), Meaning::of(&new.params));
    assert_eq!((made.expires_in, made.created_after), (Some(HOUR), 7));
    assert_eq!((made.created_at, made.touched_at), (subject.clock.now(), subject.clock.now()));
    assert_eq!(subject.subscriptions("g").await, std::slice::from_ref(&made));
    subject.reopen().await;
    assert_eq!(subject.subscriptions("g").await, [made]);
}

/// Whatever groups they are in; unknown ones and expired ones are left out.
pub async fn subscriptions_are_found_by_their_ids_until_they_expire(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let one = subject.subscribe_new(wants("g")).await;
    let other = subject.subscribe_new(expiring("h")).await;
    let find = async |ids: &[Uuid]| {
        let mut found = subject.store.find_subscriptions(ids).await.expect("an answer");
        found.sort_by_key(|one| one.group.to_string());
        found
    };
    assert_eq!(find(&[other.id, Uuid::from_u128(7), one.id]).await, [one.clone(), other.clone()]);
    assert_eq!(find(&[other.id]).await, std::slice::from_ref(&other));
    assert_eq!(find(&[]).await, []);
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    assert_eq!(find(&[one.id, other.id]).await, [one]);
}

/// Whoever starts again subscribes again: it is the same subscription, touched.
pub async fn asking_for_the_same_again_shares_one(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for new in [wants("g"), wants_just("g", "a.b", "true", r#"{"a":1}"#)] {
        let made = subject.subscribe_new(new.clone()).await;
        subject.clock.advance_millis(1_000);
        subject.fill("t", None, 1).await;
        let (again, is_new) = subject.subscribe(new).await;
        assert!(!is_new);
        assert_eq!(again, SubscriptionState { touched_at: subject.clock.now(), ..made });
    }
    assert_eq!(subject.subscriptions("g").await.len(), 2);
    // In another group it is another.
    let other = subject.subscribe_new(wants("g.other")).await;
    assert!(subject.subscriptions("g").await.iter().all(|one| one.id != other.id));
}

/// The order of fields, spaces, escapes and the spelling of a number say nothing.
pub async fn params_are_the_same_by_their_meaning(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let with = |params: &str| wants_just("g", "t", "true", params);
    let made = subject.subscribe_new(with(r#"{"a":1,"b":[1,2.50],"ü":"x"}"#)).await;
    for same in [
        r#"{"b":[1,2.50],"ü":"x","a":1}"#,
        r#"{"a":1.0,"b":[1.00,25e-1],"ü":"x"}"#,
        "{ \"a\" : 1 , \"b\":[1,2.5], \"\\u00fc\":\"\\u0078\" }",
        r#"{"a":7,"a":1,"b":[1,2.5],"ü":"x"}"#,
    ] {
        let (again, is_new) = subject.subscribe(with(same)).await;
        assert_eq!((again.id, is_new), (made.id, false), "{same}");
    }
    for other in [r#"{"a":1,"b":[2.50,1],"ü":"x"}"#, r#"{"a":"1","b":[1,2.50],"ü":"x"}"#, r#"{"a":1,"b":[1,2.50]}"#] {
        subject.subscribe_new(with(other)).await;
    }
}

/// H28, S8: what only looks alike is not the same: a digest, a prefix or a number as a double would say so.
pub async fn subscriptions_that_differ_in_a_late_byte_are_two(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let long = "x".repeat(60_000);
    let texts = |end: &str| format!(r#"{{"text":"{long}{end}"}}"#);
    let condition = |end: &str| format!("e.topic <> '{long}{end}'");
    let alike = [
        wants("g"),
        NewSubscription { params: Json::empty_object(), ..wants("g") },
        NewSubscription { topic: Some(Topic::stored("a")), ..wants("g") },
        NewSubscription { condition: Some("a".into()), ..wants("g") },
        NewSubscription { condition: Some(String::new()), ..wants("g") },
        NewSubscription { condition: Some("NULL".into()), ..wants("g") },
        wants_just("g", "a", "a", "null"),
        wants_just("g", "a", "a ", "null"),
        wants_just("g", "a", "A", "null"),
        wants_just("g", "A", "a", "null"),
        wants_just("g", "a", "a", r#""null""#),
        wants_just("g", "a", "a", &texts("1")),
        wants_just("g", "a", "a", &texts("2")),
        wants_just("g", "a", &condition("1"), "null"),
        wants_just("g", "a", &condition("2"), "null"),
        wants_just("g", &format!("{}1", "t".repeat(254)), "a", "null"),
        wants_just("g", &format!("{}2", "t".repeat(254)), "a", "null"),
        wants_just("g", "a", "a", "9007199254740992"),
        wants_just("g", "a", "a", "9007199254740993"),
        wants_just("g", "a", "a", "0.1"),
        wants_just("g", "a", "a", "0.1000000000000000055511151231257827"),
    ];
    let mut made = Vec::new();
    for new in &alike {
        made.push(subject.subscribe_new(new.clone()).await);
    }
    assert_eq!(ids(&made).into_iter().collect::<HashSet<_>>().len(), alike.len());
    for (new, made) in alike.into_iter().zip(made) {
        let (again, is_new) = subject.subscribe(new).await;
        assert_eq!((again.id, is_new), (made.id, false));
    }
}

/// Two who share a subscription want it to stay for different times.
pub async fn the_longer_expiry_wins(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let for_hours =
        |hours: Option<i64>| NewSubscription { expires_in: hours.map(SignedDuration::from_hours), ..wants("g") };
    let mut id = None;
    for (asked, wins) in [(Some(2), Some(2)), (Some(1), Some(2)), (Some(3), Some(3)), (None, None), (Some(9), None)] {
        let (shared, is_new) = subject.subscribe(for_hours(asked)).await;
        assert_eq!(is_new, id.is_none());
        assert_eq!(shared.id, *id.get_or_insert(shared.id));
        assert_eq!(shared.expires_in, wins.map(SignedDuration::from_hours), "after {asked:?}");
        assert_eq!(subject.subscriptions("g").await, [shared]);
    }
    subject.clock.advance_millis(1_000_000 * HOUR_MILLIS / 10);
    assert_eq!(subject.expire(10).await, 0, "it stays");
}

/// Nobody has to make a group before they subscribe; one that is there is not changed by it.
pub async fn subscribing_makes_a_pull_group_that_begins_now(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 5).await;
    subject.subscribe_new(wants("g")).await;
    let group = subject.group("g").await;
    assert_eq!((group.kind, group.slots.len(), group.cursor()), (GroupKind::Pull, 1, 5));
    subject.make_handler("h", 3).await;
    subject.subscribe_new(wants("h")).await;
    let group = subject.group("h").await;
    assert_eq!((group.kind, group.slots.len(), group.cursor()), (GroupKind::Handler, 3, 0));
    assert_eq!(group.subscriptions, 1);
}

/// Nobody reads the group and nobody asks for it: it goes when its time has passed, and not at it.
pub async fn a_subscription_goes_when_its_time_has_passed(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let stays = subject.subscribe_new(wants("g")).await;
    let goes = subject.subscribe_new(NewSubscription { condition: Some("true".into()), ..expiring("g") }).await;
    subject.clock.advance_millis(HOUR_MILLIS);
    assert_eq!(subject.subscriptions("g").await.len(), 2);
    assert_eq!((subject.expire(10).await, subject.group("g").await.subscriptions), (0, 2));
    subject.clock.advance_micros(1);
    assert_eq!(subject.subscriptions("g").await, std::slice::from_ref(&stays));
    assert_eq!(subject.expire(10).await, 1);
    assert_eq!(subject.expire(10).await, 0);
    assert_eq!(subject.subscriptions("g").await, [stays]);
    assert_eq!(subject.touch("g", goes.id).await, None);
    assert_eq!(subject.group("g").await.subscriptions, 1);
}

/// A touch, and asking for it again, begin its time anew.
pub async fn a_touch_keeps_a_subscription(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let made = subject.subscribe_new(expiring("g")).await;
    for _ in 0..3 {
        subject.clock.advance_millis(HOUR_MILLIS - 1);
        let touched = subject.touch("g", made.id).await.expect("it is there");
        assert_eq!(touched, SubscriptionState { touched_at: subject.clock.now(), ..made.clone() });
        assert_eq!(subject.subscriptions("g").await, [touched]);
        subject.clock.advance_millis(HOUR_MILLIS - 1);
        assert!(!subject.subscribe(expiring("g")).await.1);
        assert_eq!(subject.expire(10).await, 0);
    }
    assert_eq!(subject.touch("g", Uuid::from_u128(7)).await, None);
    assert_eq!(subject.touch("other", made.id).await, None, "a group touches its own");
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    assert_eq!(subject.expire(10).await, 1);
}

/// Whoever reads the group wants what it subscribed to: from the first look to the end of the last lease.
pub async fn reading_its_group_keeps_a_subscription(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let made = subject.subscribe_new(expiring("g")).await;
    let is_there = async || ids(&subject.subscriptions("g").await) == [made.id] && subject.expire(10).await == 0;
    subject.clock.advance_millis(HOUR_MILLIS - 1);
    let me = reader(1);
    subject.take("g", &me).await;
    subject.clock.advance_millis(HOUR_MILLIS - 1);
    assert!(is_there().await, "it was read an hour ago");
    // One reader stays for hours, and only ever renews its lease.
    for _ in 0..3 {
        subject.store.renew(me.id, SignedDuration::from_mins(70)).await.expect("renewed").expect("it is known");
        subject.clock.advance_millis(HOUR_MILLIS);
        assert!(is_there().await, "somebody has the group");
    }
    subject.store.release(me.id, &name("g"), &[0]).await.expect("released");
    subject.clock.advance_millis(HOUR_MILLIS - 1);
    assert!(is_there().await, "it was released an hour ago");
    subject.take("g", &me).await;
    subject.store.leave(me.id).await.expect("left");
    subject.clock.advance_millis(HOUR_MILLIS - 1);
    assert!(is_there().await, "its reader left an hour ago");
    // Another takes it and is gone without a word: an hour after the end of its lease is the end.
    subject.take("g", &reader(2)).await;
    subject.clock.advance_millis(HOUR_MILLIS + LEASE.as_millis() as i64);
    assert!(is_there().await);
    subject.clock.advance_millis(1);
    assert_eq!(subject.subscriptions("g").await, []);
    assert_eq!(subject.expire(10).await, 1);
}

/// Its time has passed, and nobody has swept it away yet: no verb finds it, and asking for it again makes a new one.
pub async fn an_expired_subscription_counts_as_gone(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let old = subject.subscribe_new(expiring("g")).await;
    let version = subject.group("g").await.version;
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    assert_eq!(subject.touch("g", old.id).await, None);
    assert!(!subject.unsubscribe("g", old.id).await);
    assert_eq!(subject.subscriptions("g").await, []);
    assert_eq!(subject.group("g").await.subscriptions, 0);
    subject.fill("t", None, 3).await;
    let new = subject.subscribe_new(expiring("g")).await;
    assert_ne!(new.id, old.id);
    assert_eq!((new.created_at, new.created_after), (subject.clock.now(), 3));
    assert_eq!(subject.subscriptions("g").await, std::slice::from_ref(&new));
    assert!(subject.group("g").await.version > version);
    assert_eq!(subject.touch("g", old.id).await, None, "the old one stays gone");
    assert_eq!(subject.expire(10).await, 0, "and the new one is not swept away for it");
}

/// How a group becomes one that is read, after the lease on it had passed.
#[derive(Debug, Clone, Copy)]
enum BecomesRead {
    ByAnother,
    ByWhoHadIt,
    ByARenewal,
    WithAnotherGroup,
    ByARelease,
    ByLeaving,
    ByACursor,
    ByAChange,
    ByASeek,
}

impl BecomesRead {
    const ALL: [Self; 9] = [
        Self::ByAnother,
        Self::ByWhoHadIt,
        Self::ByARenewal,
        Self::WithAnotherGroup,
        Self::ByARelease,
        Self::ByLeaving,
        Self::ByACursor,
        Self::ByAChange,
        Self::ByASeek,
    ];
}

/// A reader that has read a group's subscriptions trusts in its version: what it was not shown must not come back
/// behind that. Whatever makes the group one that is read counts the version before, and the expired one is gone.
pub async fn who_has_expired_stays_gone_also_when_the_group_is_read_before_it_was_swept(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (late, next) = (process(1), process(2));
    subject.fill("t", None, 3).await;
    for read in BecomesRead::ALL {
        subject.make_handler("h", 1).await;
        subject.make_handler("other", 1).await;
        let change = subject.take_one("h", &late).await;
        let stays = subject.subscribe_new(wants("h")).await;
        let goes = subject.subscribe_new(NewSubscription { condition: Some("true".into()), ..expiring("h") }).await;
        subject.clock.advance_millis(HOUR_MILLIS + PAST_THE_LEASE_MILLIS);
        let shown = (subject.subscriptions("h").await, subject.group("h").await.version);
        assert_eq!(shown.0, std::slice::from_ref(&stays), "{read:?}: it has expired");
        let cursor = Some(1);
        match read {
            BecomesRead::ByAnother => drop(subject.take("h", &next).await),
            BecomesRead::ByWhoHadIt => drop(subject.take("h", &late).await),
            BecomesRead::ByARenewal => drop(subject.renewed_version(&late).await),
            BecomesRead::WithAnotherGroup => drop(subject.take("other", &late).await),
            BecomesRead::ByARelease => subject.store.release(late.id, &name("h"), &[0]).await.expect("released"),
            BecomesRead::ByLeaving => subject.store.leave(late.id).await.expect("left"),
            BecomesRead::ByACursor => subject.settle_done(SlotChange { cursor, ..change }).await,
            BecomesRead::ByAChange => {
                let events = checked(vec![NewEvent::new("t")]);
                subject.settle_done(SlotChange { cursor, events, ..change }).await;
            }
            BecomesRead::ByASeek => drop(subject.store.seek(&name("h"), 2).await.expect("moved")),
        }
        let group = subject.group("h").await;
        assert!(group.served_at >= subject.clock.now(), "{read:?}: it is read");
        assert!(group.version > shown.1, "{read:?}: whoever was shown the others looks again");
        assert_eq!(group.subscriptions, 1, "{read:?}");
        assert_eq!(subject.subscriptions("h").await, [stays], "{read:?}");
        assert_eq!(subject.touch("h", goes.id).await, None, "{read:?}");
        assert_eq!(subject.expire(10).await, 0, "{read:?}: nothing is left to sweep away");
        let told = subject.want("h", &next, &[]).await.version;
        assert_eq!(told, group.version, "{read:?}: a reader is told, and it counts once");
        for group in ["h", "other"] {
            assert!(subject.store.delete_group(&name(group)).await.expect("deleted"));
        }
        subject.store.leave(late.id).await.expect("left");
        subject.store.leave(next.id).await.expect("left");
    }
}

/// Reading a group again and again changes nothing of it: a lease that lasts is as good as a look at this moment.
pub async fn a_group_under_a_live_lease_has_nothing_that_expired(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let made = subject.subscribe_new(NewSubscription { expires_in: Some(SignedDuration::ZERO), ..wants("g") }).await;
    let me = reader(1);
    let version = subject.want("g", &me, &[]).await.version;
    for _ in 0..3 {
        subject.clock.advance_millis(LEASE.as_millis() as i64);
        assert_eq!(ids(&subject.subscriptions("g").await), [made.id]);
        assert_eq!(subject.want("g", &me, &[]).await.version, version);
    }
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(subject.subscriptions("g").await, []);
    assert!(subject.want("g", &me, &[]).await.version > version);
    assert_eq!(subject.subscriptions("g").await, []);
}

/// A thousand go at once: a few with each call, and whoever reads the group hears that it changed.
pub async fn expiring_is_bounded_and_counts_the_version(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for n in 0..7 {
        subject.subscribe_new(NewSubscription { condition: Some(format!("{n}")), ..expiring("g") }).await;
    }
    subject.subscribe_new(wants("other")).await;
    let other = subject.group("other").await;
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    let mut left = 7;
    while left > 0 {
        let version = subject.group("g").await.version;
        let gone = subject.expire(3).await;
        assert_eq!(gone, left.min(3));
        left -= gone;
        assert!(subject.group("g").await.version > version);
        assert_eq!(subject.subscriptions("g").await, []);
    }
    assert_eq!(subject.expire(3).await, 0);
    assert_eq!(subject.group("other").await, other);
}

/// The version tells a reader of the group that what it matches with is old: every change counts, a touch is none.
pub async fn the_version_counts_changes_and_no_touches(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_pull("g").await;
    let version = async || subject.group("g").await.version;
    let mut last = version().await;
    let one = subject.subscribe_new(expiring("g")).await;
    for changed in [true, false] {
        assert_eq!(version().await > last, changed);
        last = version().await;
    }
    subject.touch("g", one.id).await.expect("it is there");
    assert!(!subject.subscribe(expiring("g")).await.1);
    subject.make_pull("other").await;
    subject.subscribe_new(expiring("other")).await;
    assert_eq!(version().await, last);
    assert_eq!(subject.want("g", &reader(1), &[]).await.version, last, "a reader is told");
    subject.subscribe_new(NewSubscription { condition: Some("true".into()), ..expiring("g") }).await;
    assert!(version().await > last);
    last = version().await;
    assert!(subject.unsubscribe("g", one.id).await);
    assert!(version().await > last);
    last = version().await;
    assert!(!subject.unsubscribe("g", one.id).await);
    assert_eq!((version().await, subject.want("g", &reader(1), &[]).await.version), (last, last));
}

/// One goes, the others stay; nobody takes one out of a group that is not its own.
pub async fn unsubscribing_takes_one_out_of_its_group(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let one = subject.subscribe_new(wants("g")).await;
    let two = subject.subscribe_new(expiring("g.other")).await;
    assert!(!subject.unsubscribe("g", two.id).await);
    assert!(!subject.unsubscribe("none", one.id).await);
    assert!(!subject.unsubscribe("g", Uuid::from_u128(7)).await);
    assert!(subject.unsubscribe("g", one.id).await);
    assert_eq!((subject.subscriptions("g").await, subject.subscriptions("g.other").await), (vec![], vec![two]));
    assert_ne!(subject.subscribe_new(wants("g")).await.id, one.id, "asked for again, it is another");
}

/// By id, without a gap or a repeat, and those that expire in between are not missed by the page after them.
pub async fn subscriptions_come_by_id_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for n in 0..25 {
        subject.subscribe_new(NewSubscription { condition: Some(format!("{n}")), ..wants("g") }).await;
        subject.subscribe_new(NewSubscription { condition: Some(format!("{n}")), ..wants("a") }).await;
        subject.subscribe_new(NewSubscription { condition: Some(format!("x{n}")), ..expiring("g") }).await;
    }
    let all = ids(&subject.subscriptions("g").await);
    assert_eq!(all.len(), 50);
    assert!(all.is_sorted());
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    let left = ids(&subject.subscriptions("g").await);
    assert_eq!(left.len(), 25);
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = subject.store.subscriptions(&name("g"), after, 4).await.expect("a page");
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        pages.extend(ids(&page));
    }
    assert_eq!(pages, left);
}

/// H28: many that differ only in a number, in one group.
pub async fn two_thousand_subscriptions_stay_distinct(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let numbered = |n: usize| wants_just("g", "t", "e.payload->'n' = s.params->'n'", &format!(r#"{{"n":{n}}}"#));
    let mut made = HashSet::new();
    for n in 0..2_000 {
        made.insert(subject.subscribe_new(numbered(n)).await.id);
    }
    assert_eq!(made.len(), 2_000);
    let all = subject.subscriptions("g").await;
    assert_eq!(subject.group("g").await.subscriptions, 2_000);
    let params: HashSet<String> = all.iter().map(|one| one.params.as_str().replace(' ', "")).collect();
    assert_eq!((ids(&all).into_iter().collect::<HashSet<_>>(), params.len()), (made, 2_000));
    for n in (0..2_000).step_by(97) {
        assert!(!subject.subscribe(numbered(n)).await.1);
    }
}

/// Processes keep the subscriptions of their handlers' groups as readers keep theirs.
pub async fn a_handler_keeps_its_subscriptions_while_its_process_lives(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("h", 2).await;
    subject.subscribe_new(expiring("h")).await;
    let me = process(1);
    subject.take("h", &me).await;
    for _ in 0..4 {
        subject.clock.advance_millis(HOUR_MILLIS / 2);
        subject.renewed_version(&me).await;
    }
    assert_eq!((subject.subscriptions("h").await.len(), subject.expire(10).await), (1, 0));
    subject.clock.advance_millis(HOUR_MILLIS + PAST_THE_LEASE_MILLIS);
    assert_eq!((subject.subscriptions("h").await.len(), subject.expire(10).await), (0, 1));
}

impl Subject {
    async fn changes(&self, group: &str, after: u64, limit: usize) -> Option<SubscriptionChanges> {
        self.store.subscription_changes(&name(group), after, limit).await.expect("an answer")
    }
}

/// Whoever knows a group's subscriptions need not read them all again: those that were made, went or got another expiry are
/// told, as they are now.
pub async fn what_changed_after_a_version_is_told(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let numbered = |n: usize| NewSubscription { condition: Some(format!("{n}")), ..expiring("g") };
    let goes = subject.subscribe_new(numbered(0)).await;
    subject.subscribe_new(numbered(1)).await;
    subject.subscribe_new(numbered(2)).await;
    let before = subject.group("g").await.version;
    let none = SubscriptionChanges { version: before, ..SubscriptionChanges::default() };
    assert_eq!(subject.changes("g", before, 10).await, Some(none));
    subject.clock.advance_millis(1_000);
    // A touch is no change, and another group's is none of this one's.
    subject.subscribe(numbered(2)).await;
    subject.subscribe_new(wants("g.other")).await;
    let longer = subject.subscribe(NewSubscription { expires_in: None, ..numbered(1) }).await.0;
    let brief = subject.subscribe_new(numbered(3)).await;
    let made = subject.subscribe_new(numbered(4)).await;
    assert!(subject.unsubscribe("g", goes.id).await && subject.unsubscribe("g", brief.id).await);
    let (mut there, mut gone) = (vec![longer, made.clone()], vec![goes.id, brief.id]);
    there.sort_by_key(|one| one.id);
    gone.sort_unstable();
    let version = subject.group("g").await.version;
    let expected = SubscriptionChanges { version, there, gone };
    assert_eq!(subject.changes("g", before, 10).await.as_ref(), Some(&expected));
    assert_eq!(subject.changes("g", before, 5).await, Some(expected.clone()), "five changes are no more than five");
    assert_eq!(subject.changes("g", before, 4).await, None, "more than were asked for");
    assert_eq!(subject.changes("g", version + 1, 10).await, None, "a version that never was");
    assert_eq!(subject.changes("none", 0, 10).await, None);
    subject.reopen().await;
    assert_eq!(subject.changes("g", before, 10).await, Some(expected));
    // What has expired is gone, whether it was swept or not.
    let version = subject.group("g").await.version;
    let last = subject.subscribe_new(numbered(5)).await;
    subject.clock.advance_millis(HOUR_MILLIS + 1);
    assert_eq!(subject.changes("g", version, 10).await.expect("it is known").gone, [last.id]);
    assert_eq!(subject.expire(10).await, 3);
    let swept = subject.changes("g", version, 10).await.expect("it is known");
    assert!(swept.there.is_empty() && swept.gone.len() == 3 && swept.gone.contains(&made.id), "{swept:?}");
}

/// As many as are promised; a group that is made again under the same name has nothing to do with the one before.
pub async fn changes_are_known_for_a_while_and_end_with_their_group(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let numbered = |n: u64| NewSubscription { condition: Some(format!("{n}")), ..wants("g") };
    subject.subscribe_new(numbered(0)).await;
    let before = subject.group("g").await.version;
    for n in 1..=CHANGES_KEPT {
        subject.subscribe_new(numbered(n)).await;
    }
    let changes = subject.changes("g", before, 10_000).await.expect("they are known");
    assert_eq!((changes.there.len() as u64, changes.gone.len()), (CHANGES_KEPT, 0));
    let last = subject.group("g").await.version;
    assert!(subject.store.delete_group(&name("g")).await.expect("an answer"));
    for n in 0..20 {
        subject.subscribe_new(numbered(n)).await;
    }
    assert_eq!(subject.changes("g", last, 10_000).await, None);
    assert_eq!(subject.changes("g", before, 10_000).await, None);
}
