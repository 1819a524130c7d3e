//! TLS and every way to log in that the relay supports.

use haulier::failure::Cause;
use haulier::sink::Sink as _;
use haulier::sink::kafka::{Config, KafkaSink};

use crate::broker::{acknowledged, bootstrap, open, outgoing, read, setting, topic};

fn secured(options: &[(&str, &str)]) -> Config {
    let common = [
        ("security.protocol", "sasl_ssl".to_owned()),
        ("ssl.ca.location", setting("HAULIER_TEST_KAFKA_CA")),
    ];
    let own = options
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
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
    assert_eq!(
        acknowledged(&sink.publish(vec![outgoing(0, 0, &topic)], &open()).await),
        1
    );
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
        (
            "sasl.oauthbearer.config",
            "principal=haulier lifeSeconds=600",
        ),
    ])
    .await;
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
    assert!(
        failure.message.to_lowercase().contains("authentication"),
        "{failure}"
    );
    assert!(!failure.message.contains("a-wrong-secret"), "{failure}");
}
