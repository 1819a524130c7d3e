//! TLS and every way to log in that the relay supports.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use haulier::failure::Cause;
use haulier::sink::Sink as _;
use haulier::sink::kafka::{Config, KafkaSink};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::broker::{acknowledged, bootstrap, open, outgoing, read, setting, topic};

pub(crate) fn secured(options: &[(&str, &str)]) -> Config {
    let common = [
        ("security.protocol", "sasl_ssl".to_owned()),
        ("ssl.ca.location", setting("HAULIER_TEST_KAFKA_CA")),
    ];
    let own = options.iter().map(|(name, value)| (*name, (*value).to_owned()));
    Config {
        bootstrap_servers: setting("HAULIER_TEST_KAFKA_SASL"),
        options: common
            .into_iter()
            .chain(own)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..Config::default()
    }
}

async fn publishes(options: &[(&str, &str)]) {
    let topic = topic("login", 1, &[]).await;
    let sink = KafkaSink::new(secured(options), "test").unwrap();
    sink.ready().await.unwrap();
    assert_eq!(acknowledged(&sink.publish(vec![outgoing(0, 0, &topic)], &open()).await), 1);
    assert_eq!(read(&bootstrap(), &topic).len(), 1);
}

async fn with_password(mechanism: &str) {
    publishes(&[
        ("sasl.mechanism", mechanism),
        ("sasl.username", &setting("HAULIER_TEST_KAFKA_USER")),
        ("sasl.password", &setting("HAULIER_TEST_KAFKA_PASSWORD")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain() {
    with_password("PLAIN").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_sha_256() {
    with_password("SCRAM-SHA-256").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_sha_512() {
    with_password("SCRAM-SHA-512").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsecured_tokens() {
    publishes(&[
        ("sasl.mechanism", "OAUTHBEARER"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("sasl.oauthbearer.config", "principal=haulier lifeSeconds=600"),
    ])
    .await;
}

/// OIDC's part of the way: the client fetches its token from an identity provider by HTTP. The
/// provider here gives anyone an unsigned token, which the test broker takes.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_from_an_identity_provider() {
    let provider = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = provider.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut client, _) = provider.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = client.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"POST /token"));
            let body = format!("{{\"access_token\":\"{}\",\"token_type\":\"Bearer\"}}", unsigned());
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
            client.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    publishes(&[
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.id", "relay"),
        ("sasl.oauthbearer.client.secret", "a-secret"),
        ("sasl.oauthbearer.token.endpoint.url", &format!("http://{address}/token")),
    ])
    .await;
    serving.abort();
}

/// A token for `haulier` that is good for an hour.
fn unsigned() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = format!("{{\"sub\":\"haulier\",\"iat\":{now},\"exp\":{}}}", now + 3600);
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.", part("{\"alg\":\"none\"}"), part(&claims))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_named_and_not_shown() {
    let sink = KafkaSink::new(
        secured(&[
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", &setting("HAULIER_TEST_KAFKA_USER")),
            ("sasl.password", "a-wrong-secret"),
        ]),
        "test",
    )
    .unwrap();
    let failure = sink.ready().await.unwrap_err();
    assert_eq!(failure.cause, Cause::BrokerUnavailable);
    assert!(failure.message.to_lowercase().contains("authentication"), "{failure}");
    assert!(!failure.message.contains("a-wrong-secret"), "{failure}");
}
