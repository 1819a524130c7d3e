//! Asking a cluster without writing to it: whether it answers, and which topics it has.
//!
//! Used by the lane's readiness and by `haulier init`. Asks for all topics at once, never for one by
//! its name, since that could create it.

use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::producer::{BaseProducer, Producer as _};

use super::context::Context;
use super::{Config, options, validate};
use crate::failure::{Cause, Failure};

/// How long the cluster has to answer when it is asked whether it is ready.
const READY: Duration = Duration::from_secs(5);
/// How often the question is looked at meanwhile.
const READY_STEP: Duration = Duration::from_millis(50);
/// How long the list of all topics may take, from a cluster that has answered.
const LIST: Duration = Duration::from_secs(15);

/// A client of a cluster that has answered. Blocks until it has.
///
/// # Errors
/// The cluster's last trouble, which may hold secrets.
pub(super) fn answering(
    client: &ClientConfig,
    context: Context,
) -> Result<BaseProducer<Context>, String> {
    let probe: BaseProducer<Context> = BaseProducer::from_config_and_context(client, context)
        .map_err(|error| options::describe(&error))?;
    let end = Instant::now() + READY;
    while Instant::now() < end {
        if probe.client().fetch_cluster_id(READY_STEP).is_some() {
            return Ok(probe);
        }
        probe.poll(Duration::ZERO);
    }
    let silence = || format!("no answer within {READY:?}");
    Err(probe.context().trouble().unwrap_or_else(silence))
}

/// The topics that the cluster behind `servers` shows us, each with its number of partitions, in
/// order; without those that Kafka keeps for itself. Creates none.
///
/// # Errors
/// An infrastructure failure if the cluster does not answer.
pub async fn known_topics(servers: &str) -> Result<Vec<(String, usize)>, Failure> {
    let failure = |text: String| {
        Failure::new(Cause::BrokerUnavailable, format!("Kafka at {servers}: {text}"))
    };
    let config = Config { bootstrap_servers: servers.to_owned(), ..Config::default() };
    if let Some((name, problem)) = validate(&config).into_iter().next() {
        return Err(failure(format!("{name} {problem}")));
    }
    let client = options::probe(&config);
    let context = Context::probing("init".into(), &client);
    let answer = tokio::task::spawn_blocking(move || {
        let probe = answering(&client, context)?;
        let metadata =
            probe.client().fetch_metadata(None, LIST).map_err(|error| options::describe(&error))?;
        let topics = metadata.topics().iter();
        let mut topics: Vec<_> = topics
            .filter(|topic| !topic.name().starts_with("__") && !topic.partitions().is_empty())
            .map(|topic| (topic.name().to_owned(), topic.partitions().len()))
            .collect();
        topics.sort();
        Ok::<_, String>(topics)
    });
    match answer.await {
        Ok(answer) => answer.map_err(failure),
        Err(panic) => Err(failure(panic.to_string())),
    }
}
