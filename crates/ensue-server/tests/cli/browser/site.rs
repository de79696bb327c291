//! The attacker's web server, and the browser that visits it.

use crate::support::PATIENCE;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// A web server on a free port of this machine that serves one page and takes its report.
pub struct Site {
    pub port: u16,
    shared: Arc<Shared>,
    reports: Receiver<String>,
}

struct Shared {
    page: Mutex<String>,
    /// Serves the page as in a sandboxed frame: its origin is `null`.
    is_sandboxed: AtomicBool,
    /// All paths other than the site's own are passed on to this port.
    rebound_to: Option<u16>,
    report: Sender<String>,
}

impl Site {
    pub fn start(rebound_to: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (report, reports) = channel();
        let (page, is_sandboxed) = (Mutex::new(String::new()), AtomicBool::new(false));
        let shared = Arc::new(Shared { page, is_sandboxed, rebound_to, report });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let shared = serving.clone();
                // A browser that closes its connection early is not the test's concern.
                std::thread::spawn(move || shared.serve(connection).ok());
            }
        });
        Self { port, shared, reports }
    }

    pub fn sandbox(&self, is_sandboxed: bool) {
        self.shared.is_sandboxed.store(is_sandboxed, Ordering::Relaxed);
    }
}

impl Shared {
    /// Serves one request.
    fn serve(&self, mut connection: TcpStream) -> std::io::Result<()> {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            connection.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&request).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default();
        match (path, self.rebound_to) {
            ("/page", _) => {
                let sandbox = match self.is_sandboxed.load(Ordering::Relaxed) {
                    true => "content-security-policy: sandbox allow-scripts allow-forms\r\n",
                    false => "",
                };
                let page = self.page.lock().unwrap().clone();
                let length = page.len();
                write!(
                    connection,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n{sandbox}connection: close\r\n\
                     content-length: {length}\r\n\r\n{page}"
                )
            }
            ("/report", _) => {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
                });
                let mut body = vec![0; length.unwrap_or(0)];
                connection.read_exact(&mut body)?;
                self.report.send(String::from_utf8_lossy(&body).into_owned()).ok();
                connection.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            }
            (_, Some(port)) => pass_on(connection, &request, port),
            (_, None) => connection.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"),
        }
    }
}

/// Passes a connection on, from the request that was read to its end. One request for each connection, so that the next
/// one is looked at.
fn pass_on(mut from: TcpStream, request: &[u8], port: u16) -> std::io::Result<()> {
    let mut to = TcpStream::connect(("127.0.0.1", port))?;
    let request = String::from_utf8_lossy(request).replace("Connection: keep-alive", "Connection: close");
    to.write_all(request.as_bytes())?;
    let (mut body_from, mut body_to) = (from.try_clone()?, to.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut body_from, &mut body_to));
    std::io::copy(&mut to, &mut from)?;
    from.shutdown(std::net::Shutdown::Both)
}

/// A browser. Killed when dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Opens a page of the site in a new browser, and returns what the page reports.
pub fn visit(site: &Site, url: &str, page: &str) -> Vec<String> {
    *site.shared.page.lock().unwrap() = page.to_owned();
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--no-proxy-server", "--remote-debugging-port=0"])
        .arg("--host-resolver-rules=MAP evil.test 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _browser = Browser(started.expect("chromium is needed: run scripts/prepare.sh"));
    let report = site.reports.recv_timeout(PATIENCE).expect("the page sends a report");
    serde_json::from_str(&report).unwrap()
}
