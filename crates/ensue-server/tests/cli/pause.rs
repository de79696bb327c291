//! H17: who has set a rule and was answered sees no program start after that.

use crate::support::{PATIENCE, Server};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const ROUNDS: usize = 8;
const OBJECTS: usize = 14;

const CONFIG: &str = "\
handlers:
  t:
  - { name: h, command: [sh, -c, 'while [ ! -e go ]; do sleep 0.02; done'], concurrency: 64 }
";

/// The processes that this one has started and that have not ended.
fn children(of: u32) -> HashSet<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Its name is in parentheses, and may have some itself.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    pids.filter(|pid| parent(pid) == Some(of)).collect()
}

/// Sends a request, at once and by hand, and comes back with its answer.
fn send(server: &Server, method: &str, path: &str, body: &str) {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    let head =
        format!("host: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close");
    stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
}

#[test]
#[cfg(target_os = "linux")]
fn no_program_starts_after_the_answer_to_a_pause() {
    let folder = tempfile::tempdir().unwrap();
    let (path, go) = (folder.path(), folder.path().join("go"));
    std::fs::write(path.join("ensue.yaml"), CONFIG).unwrap();
    let server = Server::start(path);
    for _ in 0..ROUNDS {
        let events: Vec<_> =
            (0..OBJECTS).map(|n| serde_json::json!({"topic": "t", "object": format!("o:{n}")})).collect();
        send(&server, "POST", "/v1/events", &serde_json::to_string(&events).unwrap());
        send(&server, "PUT", "/v1/rules/pause/handler:t.h", "{}");
        let there = children(server.pid());
        // Time for what must not happen.
        std::thread::sleep(Duration::from_millis(100));
        let later = children(server.pid());
        assert!(later.is_subset(&there), "{} programs have started after the answer", later.difference(&there).count());
        std::fs::write(&go, "").unwrap();
        send(&server, "DELETE", "/v1/rules/pause/handler:t.h", "");
        let begun = Instant::now();
        while server.run(path, &["group", "show", "t.h", "--json"]).json()["lag"] != 0
            || !children(server.pid()).is_empty()
        {
            assert!(begun.elapsed() < PATIENCE, "they have not all run");
        }
        std::fs::remove_file(&go).unwrap();
    }
}
