//! Accepts the admin port's connections within limits: how many, how long, how large.
//!
//! axum's own server waits for a request's head for ever, and a port that a few silent clients
//! can block is of no use to an orchestrator. It knows nothing of what is answered.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

/// An orchestrator, a few scrapers and somebody who looks.
const MAX_CONNECTIONS: usize = 64;
/// Longest wait for a request's head, also between two requests of a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest life of a connection; a client simply opens another.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// Largest head of a request; hyper takes no less.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// How long shutdown waits for answers that are being written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after an accept that failed, most likely because the process has no file left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `shutdown` resolves.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            // 1. Nothing new once the process is going down.
            () = &mut shutdown => break,
            // 2. Ended connections make room.
            Some(ended) = connections.join_next() => report(ended),
            // 3. A new one, when there is room.
            (stream, slot) = accept(&listener, &slots) => {
                connections.spawn(connection(stream, slot, router.clone(), closed.clone()));
            }
        }
    }
    drop(listener);
    let _ = closing.send(true);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::debug!("admin connections were cut at shutdown");
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed, so there always is a permit.
    let slot = slots.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                tracing::warn!(%error, "admin connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    slot: Option<OwnedSemaphorePermit>,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let _slot = slot;
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let whole = async {
        tokio::select! {
            outcome = served.as_mut() => outcome,
            // The sender is not dropped before it has sent.
            _ = closed.changed() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        }
    };
    match timeout(CONNECTION_TIMEOUT, whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin connection ended early"),
        Err(_) => tracing::debug!("admin connection was closed for its age"),
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "admin connection panicked");
    }
}
