//! The SQL functions accept and refuse the same characters in identifiers as `ensue_core::text`.

use crate::support::Log;
use crate::support::session::Session;
use ensue_core::Topic;
use ensue_core::text::is_unprintable;
use std::collections::BTreeSet;

async fn started() -> (Log, Session) {
    let log = Log::new().await;
    log.open().await.close().await;
    let session = Session::of(&log).await;
    (log, session)
}

/// Code points for which this SQL expression over the character `c` holds.
async fn chars(session: &Session, expression: &str) -> BTreeSet<char> {
    let sql = format!(
        "SELECT code FROM generate_series(1, 1114111) code
         CROSS JOIN LATERAL (SELECT CASE WHEN code NOT BETWEEN 55296 AND 57343 THEN chr(code) END AS c) ch
         WHERE c IS NOT NULL AND {expression}"
    );
    let rows = session.rows(&sql).await.unwrap();
    rows.iter().map(|row| char::from_u32(row.get::<_, i32>(0) as u32).unwrap()).collect()
}

fn all() -> impl Iterator<Item = char> {
    '\u{1}'..=char::MAX
}

#[tokio::test]
async fn sql_and_rust_refuse_the_same_characters() {
    let (_log, session) = started().await;
    let refused = chars(&session, "LOG.plain_fault('a' || c || 'b', 100) IS NOT NULL").await;
    assert_eq!(refused, all().filter(|c| is_unprintable(*c)).collect());
    let refused = chars(&session, "LOG.dotted_fault('a' || c || 'b', 'x') IS NOT NULL").await;
    assert_eq!(all().find(|c| is_unprintable(*c) && !refused.contains(c)), None);
    assert_eq!(all().find(|c| is_unprintable(*c) && Topic::parse(&format!("a{c}b")).is_ok()), None);
    // Without ICU every other character beyond ASCII is taken for a letter.
    let ascii: BTreeSet<char> = refused.into_iter().filter(char::is_ascii).collect();
    let rust: BTreeSet<char> = all().filter(|c| c.is_ascii() && Topic::parse(&format!("a{c}b")).is_err()).collect();
    assert_eq!(ascii, rust);
}

#[tokio::test]
async fn no_sql_function_takes_an_unprintable_identifier() {
    let (_log, session) = started().await;
    session.run("SELECT LOG.enqueue('mail.send')").await.unwrap();
    for (code, shown) in [(0x1b, "1b"), (0x9b, "9b"), (0x202e, "202e"), (0x200d, "200d"), (0xe0041, "e0041")] {
        for call in [
            "LOG.publish('order.' || C, '{}')",
            "LOG.publish('order', '{}', object => C)",
            "LOG.publish('order', '{}', key => C)",
            "LOG.publish_many(jsonb_build_array(jsonb_build_object('topic', 'order', 'object', C)))",
            "LOG.publish_many(jsonb_build_array(jsonb_build_object('topic', 'order' || C)))",
            "LOG.subscribe('group' || C)",
            "LOG.enqueue('mail' || C)",
            "LOG.enqueue('mail', object => C)",
            "LOG.enqueue('mail', unique_key => C)",
            "LOG.claim_jobs(ARRAY['mail.send'], worker => C)",
            "LOG.claim_jobs(ARRAY['mail.' || C])",
            "LOG.pause('object:' || C)",
            "LOG.pause('handler:' || C)",
            "LOG.pause('object:order', C)",
            "LOG.block('schedule:' || C)",
        ] {
            let sql = format!("SELECT {}", call.replace('C', &format!("('a' || chr({code}) || 'b')")));
            let (_, message) = session.refusal(&sql).await;
            assert!(message.contains(&format!("\\u{{{shown}}}")), "{sql}: {message}");
            assert!(!message.contains(is_unprintable), "{sql}: {message:?}");
        }
    }
}

/// The primary key of a row may be any text, and a write to the table does not fail for it.
#[tokio::test]
async fn unprintable_primary_keys_are_objects_by_their_digest() {
    let (_log, session) = started().await;
    session.run("CREATE SCHEMA LOG_app; CREATE TABLE LOG_app.named (name text PRIMARY KEY)").await.unwrap();
    session.run("SELECT LOG.push_table_mutations('LOG_app.named')").await.unwrap();
    session.run("INSERT INTO LOG_app.named SELECT 'a' || chr(8238) || 'b'").await.unwrap();
    session.run("SELECT LOG.poll_for_events(10)").await.unwrap();
    let object = session.text("SELECT object FROM LOG.events").await;
    assert!(object.contains(":sha256="), "{object}");
}
