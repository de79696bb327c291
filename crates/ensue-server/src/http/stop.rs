//! How does a task hear that the server stops?

use tokio::sync::watch;

/// Comes back when the server stops. Nobody left who could say so means that it does not.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
