//! The operators' side over HTTP: events, held keys, replay, the audit record.
//!
//! Part of the admin port's router, and off unless the settings turn it on. Every request needs the token.
//! Requests and answers are JSON; a query may stand in for a request that only looks.
//!
//! | path | what |
//! |---|---|
//! | `GET /api/events?state=…&key=…&after=…&limit=…` | events that fit |
//! | `GET /api/events/ID` | one event; with `?payload=true` its payload too |
//! | `POST /api/events/retry`, `/api/events/discard` | as the commands do |
//! | `GET /api/keys?lane=…&key=…&reason=…` | held keys |
//! | `POST /api/keys/release` | as the command does |
//! | `POST /api/replay` | begins a replay: 202 with the number of its audit record |
//! | `GET /api/audit?limit=…` | who has changed what |
//!
//! A request that changes something is the filter with `source`, `all`, `dry_run`, `note`, `by` and, for a
//! replay, `rate` beside it.

use std::collections::HashMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{AdminState, unauthorised};
use crate::event::EventId;
use crate::operations::{
    self, Action, DEFAULT_RATE, Filter, Misuse, Mode, OperationError, Operations, Operator, Order,
    Scope,
};
use crate::store::StoreError;
use crate::words::chain;

/// Entries of a list, if nobody asks for another number.
const LISTED: usize = 50;

/// Calls that are worked on at once; more of them wait.
static CALLS: Semaphore = Semaphore::const_new(2);

/// What is asked for in a query: names and texts.
type Asked = HashMap<String, String>;
type Pairs = Vec<(String, String)>;

/// A query, in which nothing may be said twice.
fn once(pairs: Pairs) -> Result<Asked, Misuse> {
    let mut asked = Asked::new();
    for (name, text) in pairs {
        if asked.insert(name.clone(), text).is_some() {
            return Err(Misuse(format!("'{name}' is given twice; lists are written 1,2,3")));
        }
    }
    Ok(asked)
}

/// Refuses what is left of a query.
fn no_more(asked: &Asked) -> Result<(), Misuse> {
    match asked.keys().next() {
        None => Ok(()),
        Some(name) => Err(Misuse(format!("there is no parameter '{name}'"))),
    }
}

/// What changes something, beside the filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Terms {
    source: Option<String>,
    all: bool,
    dry_run: bool,
    note: Option<String>,
    by: Option<String>,
    rate: Option<u32>,
}

/// The names in [`Terms`].
const TERMS: [&str; 6] = ["source", "all", "dry_run", "note", "by", "rate"];

pub(super) fn router(state: &AdminState) -> Router<AdminState> {
    Router::new()
        .route("/api/events", get(events))
        .route("/api/events/{id}", get(event))
        .route("/api/events/retry", post(retry))
        .route("/api/events/discard", post(discard))
        .route("/api/keys", get(keys))
        .route("/api/keys/release", post(release))
        .route("/api/replay", post(replay))
        .route("/api/audit", get(audit))
        .route_layer(middleware::from_fn_with_state(state.clone(), guard))
}

/// Lets nobody in who has not the token.
async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    if state.operations.is_none() {
        let text = "the operators' side is off: set [admin] operations = true and token\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if let Some(refusal) = unauthorised(&state, request.headers()) {
        return refusal;
    }
    // Operators share the relay's connections, and must not take them from it.
    let Ok(_turn) = CALLS.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    next.run(request).await
}

/// Why a request is not answered as it was meant.
enum Refused {
    Misuse(Misuse),
    Missing(String),
    Operation(OperationError),
}

impl From<Misuse> for Refused {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

impl From<OperationError> for Refused {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Misuse(misuse) => Self::Misuse(misuse),
            OperationError::Store(_) => Self::Operation(error),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Misuse(Misuse(text)) => (StatusCode::BAD_REQUEST, text),
            Self::Missing(text) => (StatusCode::NOT_FOUND, text),
            Self::Operation(error) => {
                let passing =
                    matches!(error, OperationError::Store(StoreError::Unavailable { .. }));
                let status = if passing {
                    StatusCode::SERVICE_UNAVAILABLE
                } else {
                    StatusCode::INTERNAL_SERVER_ERROR
                };
                (status, chain(&error))
            }
        };
        answer(status, &json!({ "error": text }))
    }
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let media_type = [(axum::http::header::CONTENT_TYPE, "application/json")];
    (status, media_type, body.to_string()).into_response()
}

type Answer = Result<Response, Refused>;

fn ok(body: &Value) -> Answer {
    Ok(answer(StatusCode::OK, body))
}

fn operator(state: &AdminState, source: Option<&str>) -> Result<Operator, Refused> {
    let none = Operations::new(Vec::new());
    Ok(state.operations.as_ref().unwrap_or(&none).source(source)?)
}

/// Takes a number out of a query.
fn number<T: std::str::FromStr>(asked: &mut Asked, name: &str, usual: T) -> Result<T, Misuse> {
    match asked.remove(name) {
        None => Ok(usual),
        Some(text) => {
            text.parse().map_err(|_| Misuse(format!("{name}: '{text}' is no such number")))
        }
    }
}

/// What is left of a query, as a filter.
fn filter(asked: Asked) -> Result<Filter, Misuse> {
    let fields: Map<String, Value> =
        asked.into_iter().map(|(name, text)| (name, Value::String(text))).collect();
    read(Value::Object(fields))
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misuse> {
    serde_json::from_value(value).map_err(|error| Misuse(error.to_string()))
}

async fn events(State(state): State<AdminState>, Query(pairs): Query<Pairs>) -> Answer {
    let mut asked = once(pairs)?;
    let at = operator(&state, asked.remove("source").as_deref())?;
    let after = number(&mut asked, "after", i64::MIN)?;
    let limit = number(&mut asked, "limit", LISTED)?.max(1);
    let seen = at.events(&filter(asked)?, EventId(after), limit).await?;
    let next = seen.last().filter(|_| seen.len() >= limit).map(|event| event.id.0);
    let events: Vec<Value> = seen.iter().map(operations::event).collect();
    ok(&json!({ "source": &*at.source, "events": events, "next": next }))
}

async fn event(
    State(state): State<AdminState>,
    Path(id): Path<String>,
    Query(pairs): Query<Pairs>,
) -> Answer {
    let mut asked = once(pairs)?;
    let at = operator(&state, asked.remove("source").as_deref())?;
    let id: i64 = id.parse().map_err(|_| Misuse(format!("'{id}' is no id")))?;
    let payload = asked.remove("payload").is_some_and(|wanted| wanted == "true" || wanted == "1");
    no_more(&asked)?;
    let Some(event) = at.event(EventId(id)).await? else {
        return Err(Refused::Missing(format!("there is no event {id} in source '{}'", at.source)));
    };
    let mut whole = operations::whole(&event);
    // What events carry is the business's own: only who asks for it gets it.
    if !payload && let Value::Object(fields) = &mut whole {
        fields.remove("payload");
    }
    ok(&whole)
}

async fn keys(State(state): State<AdminState>, Query(pairs): Query<Pairs>) -> Answer {
    let mut asked = once(pairs)?;
    let at = operator(&state, asked.remove("source").as_deref())?;
    let limit = number(&mut asked, "limit", LISTED)?.max(1);
    let (lane, key) = (asked.remove("after_lane"), asked.remove("after_key"));
    if lane.is_some() != key.is_some() {
        return Err(Misuse("after_lane and after_key go together".into()).into());
    }
    let after = lane.zip(key);
    let after = after.as_ref().map(|(lane, key)| (lane.as_str(), key.as_str()));
    let held = at.held_keys(&filter(asked)?, after, limit).await?;
    let keys: Vec<Value> = held.iter().map(operations::held_key).collect();
    ok(&json!({ "source": &*at.source, "keys": keys }))
}

async fn audit(State(state): State<AdminState>, Query(pairs): Query<Pairs>) -> Answer {
    let mut asked = once(pairs)?;
    let at = operator(&state, asked.remove("source").as_deref())?;
    let limit = number(&mut asked, "limit", LISTED)?.max(1);
    no_more(&asked)?;
    let records: Vec<Value> = at.audits(limit).await?.iter().map(operations::audited).collect();
    ok(&json!({ "source": &*at.source, "audit": records }))
}

async fn retry(State(state): State<AdminState>, body: Bytes) -> Answer {
    carry(&state, &body, Action::Retry).await
}

async fn discard(State(state): State<AdminState>, body: Bytes) -> Answer {
    carry(&state, &body, Action::Discard).await
}

async fn release(State(state): State<AdminState>, body: Bytes) -> Answer {
    carry(&state, &body, Action::Release).await
}

async fn carry(state: &AdminState, body: &[u8], action: Action) -> Answer {
    let (at, order) = order(state, body, action)?;
    // In a task of its own: who hangs up does not break it off.
    let carried = tokio::spawn(async move { at.carry_out(&order).await }).await;
    match carried {
        Ok(done) => ok(&done?.json()),
        Err(error) => Ok(answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({ "error": format!("it was broken off: {error}") }),
        )),
    }
}

/// A replay takes its time, so it goes on beside the answer; what has become of it is in the audit record.
async fn replay(State(state): State<AdminState>, body: Bytes) -> Answer {
    let (at, order) = order(&state, &body, Action::Replay(DEFAULT_RATE))?;
    if order.mode == Mode::DryRun {
        return ok(&at.carry_out(&order).await?.json());
    }
    let work = at.begin(&order).await?;
    let audit = work.audit().map(|audit| audit.0);
    tokio::spawn(async move {
        if let Err(error) = work.run().await {
            tracing::error!(audit, error = %chain(&error), "a replay was broken off");
        }
    });
    Ok(answer(StatusCode::ACCEPTED, &json!({ "audit": audit })))
}

fn order(state: &AdminState, body: &[u8], action: Action) -> Result<(Operator, Order), Refused> {
    let mut fields: Map<String, Value> = match body {
        [] => Map::new(),
        body => serde_json::from_slice(body)
            .map_err(|error| Misuse(format!("the body is no JSON object: {error}")))?,
    };
    let terms = TERMS.iter().filter_map(|name| Some(((*name).to_owned(), fields.remove(*name)?)));
    let terms: Terms = read(Value::Object(terms.collect()))?;
    let filter: Filter = read(Value::Object(fields))?;
    let action = match (action, terms.rate) {
        (Action::Replay(_), Some(rate)) => Action::Replay(rate),
        (other, None) => other,
        (_, Some(_)) => return Err(Misuse("only a replay has a rate".into()).into()),
    };
    let order = Order {
        action,
        filter,
        scope: if terms.all { Scope::All } else { Scope::Filtered },
        mode: if terms.dry_run { Mode::DryRun } else { Mode::Carry },
        actor: terms.by.unwrap_or_else(|| "unknown".to_owned()),
        via: "api",
        note: terms.note,
    };
    Ok((operator(state, terms.source.as_deref())?, order))
}
