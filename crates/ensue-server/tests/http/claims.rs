//! Claims and leases over HTTP: they cannot be forged, and a settlement can be repeated. The same on both engines.

use crate::support::{Server, claims};
use serde_json::json;

macro_rules! on_both_engines {
    ($($name:ident;)+) => {
        mod sqlite {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    claims::$name(&Server::start().await).await;
                }
            )+
        }

        mod postgres {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema("claims");
                    let bus = ensue::Ensue::open(&url).await.unwrap();
                    claims::$name(&Server::serve(bus.clone(), ensue_server::HttpOptions::default()).await).await;
                    bus.close().await;
                }
            )+
        }
    };
}

on_both_engines! {
    claims_cannot_be_forged;
    repeated_settlement_answers_like_the_first;
    different_outcome_after_settlement_is_refused;
    settlement_after_rescue_is_refused;
    leases_cannot_be_forged;
    many_jobs_complete_with_one_outcome_each;
    job_sends_jobs_with_its_completion;
    claim_answers_the_same_for_one_job_and_for_many;
}

/// Rows that no current program writes, such as times without end, stop neither a server nor its loops.
#[tokio::test]
async fn odd_rows_do_not_stop_the_server() {
    let (url, schema) = ensue_conformance::postgres::fresh_schema("claims");
    let bus = ensue::Ensue::open(&url).await.unwrap();
    let server = Server::serve(bus.clone(), ensue_server::HttpOptions::default()).await;
    let schedule = json!({"every": "1h", "topic": "t"});
    server.api_ok("PUT", "schedules/s", schedule, 201).await;
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    server.publish_event(json!({"topic": "t"})).await;
    server.group_ok("POST", "g/read", json!({}), 200).await;
    server.api_ok("PUT", "rules/pause/handler:z", json!(null), 201).await;
    let running = server.bus.start().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&ensue_conformance::postgres::shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut tasks = 0;
    for time in ["infinity", "-infinity", "294276-01-01", "0001-01-01 BC"] {
        for (state, columns) in [
            ("scheduled", "not_before, enqueued_at"),
            ("retrying", "not_before, error_times"),
            ("running", "locked_at, started_at, lease_until"),
            ("dead", "finished_at, locked_at, started_at"),
        ] {
            server.send_job(json!({"handler": "odd"})).await;
            tasks += 1;
            server.send_job(json!({"handler": format!("task.s.c{tasks}")})).await;
            let set: String = columns.split(", ").map(|column| match column {
                "error_times" => format!(
                    ", error_times = ARRAY['{time}'::timestamptz, NULL], error_attempts = ARRAY[1], error_texts = ARRAY['e']"
                ),
                column => format!(", {column} = '{time}'"),
            }).collect();
            let odd = format!("UPDATE LOG.jobs SET state = '{state}'{set} WHERE state = 'available'");
            client.batch_execute(&odd.replace("LOG", &schema)).await.unwrap();
        }
        let others = "UPDATE LOG.schedules SET watermark = 'TIME', due = 'TIME', created_at = 'TIME', updated_at = 'TIME'; \
             UPDATE LOG.rules SET created_at = 'TIME', expires_at = nullif('TIME'::timestamptz, '-infinity'); \
             UPDATE LOG.members SET lease_until = 'TIME' WHERE kind = 'pull'; \
             INSERT INTO LOG.job_servers VALUES ('odd', 'TIME') ON CONFLICT (handler) DO UPDATE SET until = 'TIME'; \
             UPDATE LOG.rules_state SET version = version + 1";
        client.batch_execute(&others.replace("TIME", time).replace("LOG", &schema)).await.unwrap();
        for path in [
            "jobs",
            "jobs?state=scheduled",
            "jobs?handler=odd",
            "schedules",
            "schedules/s",
            "rules",
            "groups",
            "groups/g",
            "handlers",
            "nodes",
            "explain?schedule=s",
            "explain?object=o",
        ] {
            let answer = server.get(&format!("/v1/{path}")).await;
            assert!([200, 404].contains(&answer.status), "{time}: {path}: {}", answer.text());
        }
        for job in server.api_ok("GET", "jobs?limit=100", json!(null), 200).await["jobs"].as_array().unwrap() {
            let id = job["id"].as_str().unwrap();
            for path in [format!("jobs/{id}"), format!("explain?job={id}"), format!("jobs/{id}/logs")] {
                let answer = server.get(&format!("/v1/{path}")).await;
                assert_eq!(answer.status, 200, "{time}: {path}: {}", answer.text());
            }
        }
        assert_eq!(
            server.get("/tasks?source=s&start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z").await.status,
            200,
            "{time}"
        );
        assert_eq!(server.get("/ready").await.status, 200, "{time}");
        // Work goes on beside them.
        let id = server.send_job(json!({"handler": "well"})).await;
        let claimed = server.claim_one("well").await;
        server.under_ok(&claimed, "complete", json!({})).await;
        assert_eq!(server.job(&id).await["state"], "succeeded");
    }
    running.shutdown(crate::support::PATIENCE).await.unwrap();
    bus.close().await;
}
