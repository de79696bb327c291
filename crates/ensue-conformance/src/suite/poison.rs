//! Does one odd event harm the others that are stored with it?

use super::{Subject, checked};
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::{Entry, Json, NewEvent, StoreError, Topic};
use tokio::task::JoinSet;

/// Every odd but valid JSON that we could think of.
fn odd_json() -> Vec<String> {
    let mut odd: Vec<String> = [
        r#""\" \\ \/ \b \f \n \r \t""#,
        r#""\u0001\u001f\u007f\u0080\uffff\ufffe""#,
        r#""\u00e9\u4e2d\ud83d\ude00 é中😀 \\u0000""#,
        "\"\u{2028}\u{2029}\u{feff}\u{202e}e\u{301}\u{10ffff}\"",
        r#""'; DROP TABLE events; -- $$ $1 %s ${x} {0}""#,
        r#""{\"a\",NULL,b}""#,
        r#""\\N""#,
        r#""\\x00\\.""#,
        r#""NULL""#,
        r#""""#,
        r#"{"":{"":[]}}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"b":1,"a":{"d":[],"c":{}},"B":null,"aa":[[],{},""]}"#,
        r#"{"a\"b\\":1,"\n":2,"é":3,"\u00e9x":4,"$":5,"a.b":6}"#,
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "[null,null]",
        "0",
        "-0",
        "-0.0e0",
        "1.50",
        "1E+2",
        "1e-2",
        "123456789.123456789e-5",
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "0.1",
        "4.9406564584124654e-324",
        "1.7976931348623157e308",
        "1e399",
        "-1e-400",
    ]
    .map(String::from)
    .into();
    odd.push("7".repeat(400));
    odd.push(format!("-{}", "9".repeat(400)));
    odd.push(format!("0.{}1", "0".repeat(399)));
    odd.push(format!("{}.{}", "1".repeat(400), "2".repeat(399)));
    odd.push(format!("{}1{}", "[".repeat(64), "]".repeat(64)));
    odd.push(format!("{}1{}", r#"{"a":"#.repeat(64), "}".repeat(64)));
    odd.push(format!("[{}]", ["1e399"; 10].join(",")));
    odd.push(format!("\"{}\"", "\\ud83d\\ude00".repeat(1_000)));
    odd
}

/// H37: sent by as many callers at once as there are payloads, so that they are gathered into common commits, between
/// ordinary ones; both as payload and inside the metadata. All come back meaning what they meant.
pub async fn odd_json_comes_back_with_the_same_meaning(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.clock.now() + jiff::SignedDuration::from_secs(1);
    let mut callers = JoinSet::new();
    for text in odd_json() {
        // Nested one level deeper it must still be within the depth allowed.
        let deep = text.starts_with("[[[[") || text.starts_with(r#"{"a":{"a":"#);
        let metadata = if deep { "{}".to_string() } else { format!("{{\"x\":{text}}}") };
        let event = NewEvent::new("odd").object("o").payload_json(&text).metadata_json(&metadata);
        let batch = checked(vec![event.clone(), NewEvent::new("plain").payload_json("[1]"), event.not_before(due)]);
        let store = subject.store.clone();
        callers.spawn(async move { (text, metadata, store.append(batch).await) });
    }
    let told = callers.join_all().await;
    subject.clock.advance_millis(1_000);
    subject.store.release_due(1_000).await.expect("released");
    let log = subject.log().await;
    assert_eq!(log.len(), told.len() * 3);
    for (text, metadata, answers) in told {
        let answers = answers.unwrap_or_else(|error| panic!("{text} was refused: {error}"));
        for id in [answers[0].id, answers[2].id] {
            let event = log.iter().find(|event| event.id == id).expect("it is in the log");
            assert_eq!(Meaning::of(&event.payload), Meaning::of(&Json::stored(text.as_str())), "{text}");
            assert_eq!(Meaning::of(&event.metadata), Meaning::of(&Json::stored(metadata.as_str())), "{metadata}");
        }
        let plain = log.iter().find(|event| event.id == answers[1].id).expect("it is in the log");
        assert_eq!(plain.payload.as_str().replace(' ', ""), "[1]");
    }
    subject.audit().await;
}

/// Topics, objects and keys that look like quoting, wildcards, arrays and nothing, and those as long as may be.
pub async fn odd_names_come_back_as_they_were(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let long_object = "é".repeat(256);
    let objects = [
        "'",
        "\"",
        "''",
        "\\",
        "\\'",
        "a,b",
        "{a,b}",
        "NULL",
        "null",
        " ",
        "%",
        "_",
        "$1",
        "$$",
        ";--",
        "{}",
        "[]",
        "\\N",
        "😀",
        "e\u{301}",
        "é",
        "\u{fffd}",
        "\u{10ffff}",
        "-1",
        "0",
        &long_object,
    ];
    let topics =
        ["a", "A", "é", "1", "$", "-", "_", "a:b/c@d+e~f=g$h", "x.y.z", &"t".repeat(255), &"é.".repeat(84)[..251]];
    let mut callers = JoinSet::new();
    for (n, object) in objects.iter().enumerate() {
        let event = NewEvent::new(topics[n % topics.len()]).object(*object).key(*object);
        let (store, batch) = (subject.store.clone(), checked(vec![event.clone(), event]));
        callers.spawn(async move { (n, store.append(batch).await.expect("taken")[0]) });
    }
    let told = callers.join_all().await;
    for _ in 0..2 {
        let log = subject.log().await;
        assert_eq!(log.len(), objects.len());
        for (n, answer) in &told {
            assert!(!answer.repeated && answer.prev.is_none());
            let event = log.iter().find(|event| event.id == answer.id).expect("it is in the log");
            assert_eq!(event.object.as_ref().map(|object| object.as_str()), Some(objects[*n]));
            assert_eq!(event.topic.as_str(), topics[n % topics.len()]);
        }
        subject.reopen().await;
    }
}

/// H37: what the door would have refused comes through a gap in it. An engine may keep it or refuse it, but the others
/// in the same commit never notice, and nothing of what was refused stays.
pub async fn a_payload_that_an_engine_refuses_fails_its_own_caller_alone(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let entry = |payload: &str| Entry {
        topic: Topic::stored("t"),
        object: None,
        payload: Json::stored(payload),
        metadata: Json::empty_object(),
        occurred_at: None,
        not_before: None,
        key: None,
        to: None,
    };
    let poison = [r#""\u0000""#, r#""\ud800""#, r#""\udc00x""#, "1e400000"];
    let mut callers = JoinSet::new();
    for n in 0..256_usize {
        let payload = if n % 32 == 7 { poison[n / 32 % poison.len()].to_string() } else { n.to_string() };
        let (store, batch) = (subject.store.clone(), vec![entry("\"beside\""), entry(&payload)]);
        callers.spawn(async move { (n, store.append(batch).await) });
    }
    let mut kept = 0;
    for (n, answer) in callers.join_all().await {
        match answer {
            Ok(answers) => {
                kept += 1;
                assert_eq!(answers[0].seq.map(|seq| seq + 1), answers[1].seq);
            }
            Err(StoreError::Invalid(_) | StoreError::Engine(_)) => assert_eq!(n % 32, 7, "caller {n} was sound"),
            Err(other) => panic!("caller {n} was told to do the wrong thing: {other}"),
        }
    }
    assert!(kept >= 248, "{kept} of 248 sound callers were heard");
    assert_eq!(subject.bounds().await.last, 2 * kept);
    assert_eq!(subject.one(NewEvent::new("t")).await.seq, Some(2 * kept + 1), "and it goes on");
}

/// One caller's key is taken; the others in the same commit are stored.
pub async fn a_conflict_fails_its_own_caller_alone(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").payload(&"first").key("used")).await;
    let mut callers = JoinSet::new();
    for n in 0..128_usize {
        let event = NewEvent::new("t").object("o").payload(&n);
        let event = if n % 16 == 3 { event.key("used") } else { event };
        let (store, batch) = (subject.store.clone(), checked(vec![NewEvent::new("t").object("o"), event]));
        callers.spawn(async move { (n, store.append(batch).await) });
    }
    for (n, answer) in callers.join_all().await {
        match answer {
            Ok(_) => assert_ne!(n % 16, 3, "caller {n} used a key of another event"),
            Err(error) => {
                assert_eq!(error, StoreError::KeyConflict { key: "used".into() });
                assert_eq!(n % 16, 3, "caller {n} was sound");
            }
        }
    }
    assert_eq!(subject.bounds().await.last, 1 + 2 * 120);
    subject.audit().await;
}
