//! What does a handler promise that the store itself keeps?

use super::Subject;
use super::positions::{name, process, wants, wants_just};
use crate::factory::Factory;
use ensue_core::definitions::{Definition, NewDefinition};
use ensue_core::positions::{GroupKind, Settled, SlotChange, Start};
use ensue_core::{Json, StoreError, Topic};
use tokio::task::JoinSet;

fn handler(key: &str, settings: &str) -> NewDefinition {
    NewDefinition {
        key: name(key),
        start: Start::Now,
        slots: 2,
        topic: Some(Topic::stored("order.paid")),
        condition: Some("e.payload ? 'total'".into()),
        params: Json::empty_object(),
        settings: Json::parse("settings", settings).expect("JSON"),
        by: None,
    }
}

impl Subject {
    async fn define(&self, new: &NewDefinition) -> (Definition, bool) {
        self.store.define(new.clone()).await.expect("it is defined")
    }

    async fn defined(&self) -> (u64, Vec<Definition>) {
        let all = self.store.definitions().await.expect("a look at what is defined");
        assert_eq!(self.store.definitions_version().await.expect("their version"), all.0);
        assert_eq!(self.store.pulse(None).await.expect("a pulse").definitions_version, all.0);
        all
    }
}

/// Group, subscription and definition are there together, also after a restart.
pub async fn a_handler_is_defined_with_its_group_and_what_it_wants(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", None, 3).await;
    assert_eq!(subject.defined().await, (0, Vec::new()));
    let (made, is_new) = subject.define(&handler("b", r#"{"n":1}"#)).await;
    assert!(is_new);
    assert_eq!((made.key.as_str(), made.settings.as_str(), made.revision), ("b", r#"{"n":1}"#, 1));
    let group = subject.group("b").await;
    assert_eq!((group.kind, group.cursor(), group.slots.len()), (GroupKind::Handler, 3, 2));
    let wanted = subject.store.subscriptions(&name("b"), None, 10).await.expect("subscriptions");
    assert_eq!(wanted.len(), 1);
    assert_eq!((wanted[0].id, wanted[0].topic.as_ref().map(Topic::as_str)), (made.subscription, Some("order.paid")));
    assert_eq!(wanted[0].condition.as_deref(), Some("e.payload ? 'total'"));
    let (first, _) = subject.define(&handler("B", "{}")).await;
    assert_eq!(subject.defined().await, (2, vec![first.clone(), made.clone()]), "by key");
    subject.reopen().await;
    assert_eq!(subject.defined().await, (2, vec![first, made]));
}

/// New settings take effect without losing the place, and whoever runs it keeps its slots; the same again changes nothing. If it
/// wants something else, whoever has slots of it loses them: who has not heard of it would pass over what it wants now.
pub async fn a_handler_that_is_defined_anew_keeps_its_place(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 3).await;
    let begins = NewDefinition { start: Start::After(1), ..handler("h", "{}") };
    let (made, _) = subject.define(&begins).await;
    let me = process(1);
    let slots = subject.take("h", &me).await;
    let done = SlotChange { cursor: Some(2), ..SlotChange::new(name("h"), 0, me.id, slots[0].fence) };
    assert_eq!(subject.store.settle(vec![done]).await.expect("settled"), [Settled::Done(Vec::new())]);

    assert_eq!(subject.define(&begins).await, (made.clone(), false), "the same again");
    assert_eq!(subject.defined().await.0, 1);
    let elsewhere = NewDefinition { start: Start::Beginning, slots: 7, ..handler("h", r#"{"n":2}"#) };
    let (changed, is_new) = subject.define(&elsewhere).await;
    assert!(!is_new);
    assert_eq!((changed.revision, changed.subscription), (2, made.subscription), "it wants the same");
    assert_eq!(subject.want("h", &me, &[]).await.slots[0].fence, slots[0].fence, "nobody lost a slot");
    let by_me = NewDefinition { condition: None, by: Some(me.id), ..elsewhere.clone() };
    assert_ne!(subject.define(&by_me).await.0.subscription, made.subscription);
    assert_eq!(subject.want("h", &me, &[]).await.slots[0].fence, slots[0].fence, "who defines it knows");
    let topic = NewDefinition { topic: None, ..elsewhere };
    let (other, _) = subject.define(&topic).await;
    assert_eq!(other.revision, 4);
    assert_ne!(other.subscription, made.subscription);
    let wanted = subject.store.subscriptions(&name("h"), None, 10).await.expect("subscriptions");
    assert_eq!(wanted.iter().map(|one| (one.id, one.topic.clone())).collect::<Vec<_>>(), [(other.subscription, None)]);
    let group = subject.group("h").await;
    assert_eq!((group.slots.len(), group.slots[0].cursor, group.slots[1].cursor), (2, 2, 1));
    assert_eq!(group.subscriptions, 1);
    assert!(group.slots.iter().all(|slot| slot.owner.is_none()), "{group:?}");
    let late = SlotChange { cursor: Some(3), ..SlotChange::new(name("h"), 0, me.id, slots[0].fence) };
    assert_eq!(subject.store.settle(vec![late]).await.expect("answered"), [Settled::FenceLost]);
    assert!(subject.take("h", &me).await[0].fence > slots[0].fence);
}

/// A key that a program has bound, or that somebody reads, is not taken over.
pub async fn a_name_that_is_taken_is_not_defined(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.make_handler("bound", 1).await;
    subject.store.subscribe(wants_just("bound", "a", "true", "{}")).await.expect("subscribed");
    subject.store.subscribe(wants("read")).await.expect("subscribed");
    for taken in ["bound", "read"] {
        let before = subject.group(taken).await;
        let answer = subject.store.define(handler(taken, "{}")).await;
        assert!(matches!(answer, Err(StoreError::Conflict(_))), "{answer:?}");
        assert_eq!(subject.group(taken).await, before);
        assert!(!subject.store.undefine(&name(taken)).await.expect("an answer"), "nor undefined");
        assert_eq!(subject.group(taken).await, before);
    }
    assert_eq!(subject.defined().await, (0, Vec::new()));
}

/// A start outside of the log makes nothing, neither a definition nor a group.
pub async fn a_handler_that_cannot_begin_is_not_defined(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let beyond = NewDefinition { start: Start::After(5), ..handler("h", "{}") };
    let answer = subject.store.define(beyond).await;
    assert!(matches!(&answer, Err(StoreError::Invalid(invalid)) if invalid.field == "start"), "{answer:?}");
    assert_eq!((subject.defined().await, subject.find_group("h").await), ((0, Vec::new()), None));
}

/// Whoever has slots of it has them no longer, and what it still wants to write is not taken, also when the same is defined
/// again. Whoever deletes the group forgets the definition, too.
pub async fn a_definition_and_its_group_go_together(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 3).await;
    let me = process(1);
    for by_group in [false, true] {
        let (made, _) = subject.define(&handler("h", "{}")).await;
        let slots = subject.take("h", &me).await;
        let late = SlotChange { cursor: Some(3), ..SlotChange::new(name("h"), 0, me.id, slots[0].fence) };
        let gone = match by_group {
            true => subject.store.delete_group(&name("h")).await,
            false => subject.store.undefine(&name("h")).await,
        };
        assert_eq!(gone, Ok(true));
        assert_eq!(subject.defined().await, (made.revision + 1, Vec::new()));
        assert_eq!(subject.find_group("h").await, None);
        assert_eq!(subject.store.undefine(&name("h")).await, Ok(false));
        let begins = NewDefinition { start: Start::Beginning, ..handler("h", "{}") };
        let (again, is_new) = subject.define(&begins).await;
        assert!(is_new && again.revision > made.revision);
        assert_eq!(subject.store.settle(vec![late]).await.expect("answered"), [Settled::FenceLost]);
        assert_eq!(subject.group("h").await.cursor(), 0);
        assert_eq!(subject.store.undefine(&name("h")).await, Ok(true));
    }
}

/// Two who define the same at once make one; whoever is second finds it.
pub async fn a_handler_that_many_define_is_one(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (store, new) = (subject.store.clone(), handler("h", &format!(r#"{{"n":{n}}}"#)));
        tasks.spawn(async move { store.define(new).await.expect("it is defined") });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|(_, is_new)| *is_new).count(), 1);
    let (version, all) = subject.defined().await;
    assert_eq!((version, all.len()), (8, 1));
    let last = answers.iter().map(|(one, _)| one).max_by_key(|one| one.revision);
    assert_eq!(last, all.first());
}
