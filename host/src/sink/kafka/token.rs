//! Unsecured OAUTHBEARER tokens, for development brokers: a JWT without a signature.
//!
//! Made from `sasl.oauthbearer.config` as librdkafka documents it. Pure but for the time of day,
//! which the token's dates need.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use serde_json::{Map, Value, json};

const DEFAULT_LIFE: u64 = 3600;

/// Whether the options ask for unsecured tokens.
pub(super) fn is_unsecured(client: &ClientConfig) -> bool {
    client.get("enable.sasl.oauthbearer.unsecure.jwt") == Some("true")
}

/// A token for `config`, a list of `name=value` separated by spaces.
///
/// # Errors
/// If the list names no principal, or something unknown.
pub(super) fn unsecured(config: &str) -> Result<OAuthToken, Box<dyn Error>> {
    let (mut principal, mut principal_claim) = (None, "sub");
    let (mut scope, mut scope_claim) = (None, "scope");
    let mut life = DEFAULT_LIFE;
    for pair in config.split_whitespace() {
        let Some((name, value)) = pair.split_once('=') else {
            return Err("sasl.oauthbearer.config is not a list of name=value".into());
        };
        match name {
            "principal" => principal = Some(value),
            "principalClaimName" => principal_claim = value,
            "scope" => scope = Some(value),
            "scopeClaimName" => scope_claim = value,
            "lifeSeconds" => life = value.parse()?,
            _ => return Err(format!("sasl.oauthbearer.config does not know {name:?}").into()),
        }
    }
    let Some(principal) = principal else {
        return Err("sasl.oauthbearer.config has no principal=…".into());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let end = now.saturating_add(Duration::from_secs(life));
    let mut claims = Map::new();
    claims.insert(principal_claim.to_owned(), json!(principal));
    claims.insert("iat".to_owned(), json!(now.as_secs()));
    claims.insert("exp".to_owned(), json!(end.as_secs()));
    if let Some(scope) = scope {
        claims.insert(scope_claim.to_owned(), json!(scope.split(',').collect::<Vec<_>>()));
    }
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    Ok(OAuthToken {
        token: format!("{}.{}.", part(&json!({ "alg": "none" })), part(&Value::Object(claims))),
        principal_name: principal.to_owned(),
        lifetime_ms: i64::try_from(end.as_millis())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_principal_and_has_no_signature() {
        let made = unsecured("principal=relay scope=a,b lifeSeconds=60").unwrap();
        assert_eq!(made.principal_name, "relay");
        let parts: Vec<_> = made.token.split('.').collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2], "");
        let claims: Value =
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        assert_eq!(claims["sub"], "relay");
        assert_eq!(claims["scope"], json!(["a", "b"]));
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
    }

    #[test]
    fn a_config_without_a_principal_is_refused() {
        assert!(unsecured("").is_err());
        assert!(unsecured("principal").is_err());
        assert!(unsecured("principal=a color=red").is_err());
    }
}
