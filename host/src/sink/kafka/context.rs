//! What librdkafka calls back: reports, log lines, errors and token requests.
//!
//! Made by a producer generation or a probe; called on the thread that polls its client. It only
//! notes and forwards; it never blocks and never sends.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use super::producer::{Retired, Shared, Ticket};
use super::token;

/// The callbacks of one client.
pub(super) struct Context {
    label: Arc<str>,
    unsecured_tokens: bool,
    role: Role,
}

enum Role {
    /// A producer generation.
    Producer(Arc<Shared>),
    /// A client that only asks; it remembers why it got no answer.
    Probe(Mutex<Option<String>>),
}

impl Context {
    /// For a producer generation.
    pub(super) fn producing(shared: Arc<Shared>, label: Arc<str>, client: &ClientConfig) -> Self {
        Self { label, unsecured_tokens: token::is_unsecured(client), role: Role::Producer(shared) }
    }

    /// For a client that only asks whether the cluster answers.
    pub(super) fn probing(label: Arc<str>, client: &ClientConfig) -> Self {
        let role = Role::Probe(Mutex::new(None));
        Self { label, unsecured_tokens: token::is_unsecured(client), role }
    }

    /// The last trouble a probing client had.
    pub(super) fn trouble(&self) -> Option<String> {
        match &self.role {
            Role::Producer(_) => None,
            Role::Probe(last) => last.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl ClientContext for Context {
    // librdkafka's own unsecured tokens are renewed by a callback that the event interface, which
    // rdkafka uses, takes away from it; so we make them. OIDC renews its tokens on a thread of its
    // own and never asks here.
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let lane = &*self.label;
        if facility == "FATAL" && matches!(self.role, Role::Producer(_)) {
            // Fatal to one producer, which is replaced; the records tell whose fault it was.
            tracing::info!(target: "haulier::kafka", lane, facility, "{text}");
            return;
        }
        if facility == "CONFWARN" && text.contains("enable.gapless.guarantee") {
            // Called experimental; what it does is what the refusal tests of this sink rest on.
            tracing::debug!(target: "haulier::kafka", lane, facility, "{text}");
            return;
        }
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => {
                tracing::error!(target: "haulier::kafka", lane, facility, "{text}");
            }
            RDKafkaLogLevel::Warning => {
                tracing::warn!(target: "haulier::kafka", lane, facility, "{text}");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "haulier::kafka", lane, facility, "{text}");
            }
            RDKafkaLogLevel::Debug => {
                tracing::debug!(target: "haulier::kafka", lane, facility, "{text}");
            }
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        let lane = &*self.label;
        let json = String::from_utf8_lossy(statistics);
        tracing::debug!(target: "haulier::kafka", lane, %json, "statistics");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let lane = &*self.label;
        let code = error.rdkafka_error_code();
        match &self.role {
            Role::Producer(shared) if code == Some(Code::Fatal) => shared.retire(Retired::Spoiled),
            Role::Producer(shared) => {
                tracing::debug!(target: "haulier::kafka", lane, reason, "broker trouble");
                shared.troubled(reason.to_owned());
            }
            Role::Probe(last) => {
                // The first of several texts tells the cause; "all brokers are down" follows it.
                if code != Some(Code::AllBrokersDown) {
                    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = Some(reason.to_owned());
                }
            }
        }
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        if self.unsecured_tokens {
            token::unsecured(config.unwrap_or_default())
        } else {
            Err("no way to get a token: set sasl.oauthbearer.method = \"oidc\" and its options"
                .into())
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let Role::Producer(shared) = &self.role else {
            return;
        };
        let outcome = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        shared.decided(*ticket, outcome);
    }
}
