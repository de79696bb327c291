//! How do tests make handlers of a config file?

#![allow(dead_code, reason = "each test binary uses a part of this")]

use ensue::Ensue;
use ensue_server::config::file::ConfigFile;
use ensue_server::config::handlers_check::{HandlerConfig, check};
use ensue_server::executors::{Executors, Guard};
use std::path::Path;
use std::time::Duration;

/// Longer than anything here takes, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The handlers of a config file, ready to be bound.
pub struct Handlers {
    pub executors: Executors,
    pub handlers: Vec<HandlerConfig>,
}

impl Handlers {
    pub fn bind(&self, bus: &Ensue) -> anyhow::Result<()> {
        self.executors.bind(bus, &self.handlers)
    }
}

/// The handlers of this config file, in a process that waits so long for them when it stops.
pub fn config(text: &str, drain_seconds: u64) -> Handlers {
    guarded(text, drain_seconds, &[], false)
}

/// The same, with webhooks to these addresses.
pub fn guarded(text: &str, drain_seconds: u64, allowed: &[&str], dev: bool) -> Handlers {
    // As the binary does, once for all.
    rustls::crypto::ring::default_provider().install_default().ok();
    let section = ConfigFile::parse("test.yaml", text).unwrap().handlers.unwrap();
    let guard = Guard::new(allowed.iter().map(|address| address.parse().unwrap()), dev);
    let handlers = check(section, Path::new("test.yaml"), &guard).unwrap();
    Handlers { executors: Executors::new(guard, Duration::from_secs(drain_seconds)), handlers }
}

/// Asks again and again until there is an answer.
pub async fn until<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("what was waited for did not happen")
}
