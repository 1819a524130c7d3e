//! The admin port: liveness, readiness and metrics over HTTP.
//!
//! The assembly binds the listener and calls [`serve`]. The only place that knows axum. It answers
//! from what it is handed and asks neither the database nor the broker, so it is quick, and it
//! never shows settings. The operators' side, in `api`, asks the database; it is off by default.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 `ok`, or 503 and a line for each loop that is not alive |
//! | `/readyz` | 200 or 503, `{"ready":bool,"reasons":[…]}` |
//! | `/metrics` | OpenMetrics text |
//! | `POST /reload` | with the token: 200, or 409 if something was refused, `{"changes":[…],"refused":[…],"troubles":[…]}` |
//! | `/api/…` | with the token, if it is on: see `api` |

mod api;
mod connections;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;

use crate::operations::Operations;
use crate::settings::Secret;
use crate::telemetry::Metrics;

/// What the process knows about itself. Both answers must come at once, from memory.
pub trait Health: Send + Sync {
    /// Why the process should be started anew, one line each; empty while its loops are alive.
    fn alive(&self) -> Vec<String>;

    /// Why the process is not doing its work, one line each; empty while it is.
    fn ready(&self) -> Vec<String>;
}

/// What a look at rules and plugins came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// What has changed, one line each.
    pub changes: Vec<String>,
    /// What was refused, one line each.
    pub refused: Vec<String>,
    /// Everything that is wrong now, one line each.
    pub troubles: Vec<String>,
}

/// What a caller with the token may ask for.
#[async_trait]
pub trait Reload: Send + Sync {
    /// Has rules and plugins looked at now; `None` while the process is shutting down.
    async fn reload(&self) -> Option<Answer>;
}

/// What the admin port answers from.
#[derive(Clone)]
pub struct AdminState {
    /// Liveness and readiness.
    pub health: Arc<dyn Health>,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What `/reload` asks.
    pub reload: Arc<dyn Reload>,
    /// What a caller must know who changes something; without one nobody may.
    pub token: Option<Secret>,
    /// The operators' side; `None` while it is off.
    pub operations: Option<Operations>,
}

/// Answers on `listener` until `shutdown` resolves and what is in flight then is answered, or its
/// time is up.
pub async fn serve(listener: TcpListener, state: AdminState, shutdown: impl Future<Output = ()>) {
    if let Ok(address) = listener.local_addr() {
        if address.ip().is_loopback() {
            tracing::info!(%address, "admin port is open");
        } else {
            tracing::warn!(
                %address,
                "admin port is open to other machines: anyone may look at health and metrics"
            );
        }
    }
    connections::serve(listener, router(state), shutdown).await;
}

fn router(state: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/reload", post(reload))
        .merge(api::router(&state))
        .with_state(state)
}

async fn healthz(State(state): State<AdminState>) -> Response {
    let reasons = state.health.alive();
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    let lines = reasons.join("\n") + "\n";
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn readyz(State(state): State<AdminState>) -> Response {
    let reasons = state.health.ready();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({ "ready": reasons.is_empty(), "reasons": reasons });
    let media_type = [(CONTENT_TYPE, "application/json")];
    (status, media_type, body.to_string()).into_response()
}

async fn metrics(State(state): State<AdminState>) -> Response {
    let media_type = [(CONTENT_TYPE, Metrics::MEDIA_TYPE)];
    (media_type, state.metrics.encode()).into_response()
}

async fn reload(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    if let Some(refusal) = unauthorised(&state, &headers) {
        return refusal;
    }
    let Some(Answer { changes, refused, troubles }) = state.reload.reload().await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    };
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let body = json!({ "changes": changes, "refused": refused, "troubles": troubles });
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// What a caller is told that has not brought the token.
fn unauthorised(state: &AdminState, headers: &HeaderMap) -> Option<Response> {
    let Some(token) = &state.token else {
        let text = "changing anything over HTTP is off: set [admin] token; a reload is also asked for by SIGHUP\n";
        return Some((StatusCode::FORBIDDEN, text).into_response());
    };
    let brought = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let brought = brought.and_then(|value| value.strip_prefix(b"Bearer "));
    if !brought.is_some_and(|brought| same(brought, token.expose().trim().as_bytes())) {
        let text = "the token is missing or wrong: send Authorization: Bearer …\n";
        return Some((StatusCode::UNAUTHORIZED, text).into_response());
    }
    None
}

/// Compares in a time that does not tell how much was right.
fn same(brought: &[u8], token: &[u8]) -> bool {
    let differing = brought.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    brought.len() == token.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    #[derive(Default)]
    struct Told {
        alive: Mutex<Vec<String>>,
        ready: Mutex<Vec<String>>,
        refused: Mutex<Vec<String>>,
    }

    impl Health for Told {
        fn alive(&self) -> Vec<String> {
            self.alive.lock().unwrap().clone()
        }

        fn ready(&self) -> Vec<String> {
            self.ready.lock().unwrap().clone()
        }
    }

    struct Admin {
        address: SocketAddr,
        told: Arc<Told>,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    #[async_trait]
    impl Reload for Told {
        async fn reload(&self) -> Option<Answer> {
            Some(Answer { refused: self.refused.lock().unwrap().clone(), ..Answer::default() })
        }
    }

    async fn admin() -> Admin {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::new(Told::default());
        let state = AdminState {
            health: told.clone(),
            metrics: Metrics::new(),
            reload: told.clone(),
            token: Some(Secret::new("0123456789abcdef\n")),
            operations: None,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, state, async {
            let _ = stopped.await;
        }));
        Admin { address, told, stop, task }
    }

    async fn request(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn every_path_answers_what_it_is_for() {
        let admin = admin().await;
        let ask = |head: &'static str| request(admin.address, head);
        let answer = ask("GET /healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("ok\n"), "{answer}");
        let answer = ask("GET /readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with(r#"{"ready":true,"reasons":[]}"#), "{answer}");
        let answer = ask("GET /metrics").await;
        assert!(answer.contains("content-type: application/openmetrics-text"), "{answer}");
        assert!(answer.contains("haulier_plugin_troubles 0"), "{answer}");
        assert!(ask("GET /").await.starts_with("HTTP/1.1 404"));
        assert!(ask("GET /api/events").await.starts_with("HTTP/1.1 403"), "off by default");
        assert!(ask("GET /metrics/x").await.starts_with("HTTP/1.1 404"));
        assert!(ask("POST /healthz").await.starts_with("HTTP/1.1 405"));
    }

    #[tokio::test]
    async fn only_who_knows_the_token_may_reload() {
        let admin = admin().await;
        let ask = async |line: &str| {
            let head = format!("POST /reload HTTP/1.1\r\n{line}");
            let mut stream = TcpStream::connect(admin.address).await.unwrap();
            let request =
                format!("{head}Host: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        for line in ["", "Authorization: Bearer \r\n", "Authorization: Bearer 0123456789abcdee\r\n"]
        {
            assert!(ask(line).await.starts_with("HTTP/1.1 401"), "{line}");
        }
        let right = "Authorization: Bearer 0123456789abcdef\r\n";
        let answer = ask(right).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with(r#"{"changes":[],"refused":[],"troubles":[]}"#), "{answer}");
        *admin.told.refused.lock().unwrap() = vec!["a file".into()];
        assert!(ask(right).await.starts_with("HTTP/1.1 409"));
        assert!(request(admin.address, "GET /reload").await.starts_with("HTTP/1.1 405"));
    }

    #[tokio::test]
    async fn reasons_are_given_with_503() {
        let admin = admin().await;
        *admin.told.alive.lock().unwrap() = vec!["orders/default: the loop has ended".into()];
        *admin.told.ready.lock().unwrap() = vec!["plugin 'a' is \"bad\"".into()];
        let answer = request(admin.address, "GET /healthz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("orders/default: the loop has ended"), "{answer}");
        let answer = request(admin.address, "GET /readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        let body = r#"{"ready":false,"reasons":["plugin 'a' is \"bad\""]}"#;
        assert!(answer.ends_with(body), "{answer}");
    }

    #[tokio::test]
    async fn shutdown_ends_it_although_a_client_keeps_its_connection() {
        let admin = admin().await;
        let mut idle = TcpStream::connect(admin.address).await.unwrap();
        idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        idle.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        admin.stop.send(()).unwrap();
        timeout(Duration::from_secs(5), admin.task).await.unwrap().unwrap();
        assert!(TcpStream::connect(admin.address).await.is_err());
    }

    #[tokio::test]
    async fn nonsense_and_oversize_are_refused() {
        let admin = admin().await;
        let answer = request(admin.address, "\u{1}nonsense").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        let long = format!("GET /healthz?{}", "x".repeat(100_000));
        let mut stream = TcpStream::connect(admin.address).await.unwrap();
        // The server may hang up before all is written.
        let _ = stream.write_all(long.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        let answer = request(admin.address, "GET /healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
