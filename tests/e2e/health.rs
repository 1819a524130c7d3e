//! `haulier health`: what the health check of a container and a script get to see.

use haulier_tests::process::Setup;

use crate::scenario::{Scenario, turn};

const LIVE: [&str; 2] = ["health", "--live"];

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_does_its_work_is_ready_and_alive() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup("");
    setup.migrate();
    let mut instance = setup.start();
    instance.ready().await;
    assert_eq!(instance.command(&["health"]), (Some(0), "ready\n".into()));
    assert_eq!(instance.command(&LIVE), (Some(0), "alive\n".into()));
    instance.terminate().await;
    for words in [&["health"][..], &LIVE] {
        let (code, text) = instance.command(words);
        assert_eq!(code, Some(69), "{text}");
        assert!(text.contains("nothing answers at 127.0.0.1:"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_broker_a_relay_is_alive_but_not_ready() {
    let _turn = turn().await;
    let scenario = Scenario::new().await;
    let setup = scenario.setup_at("127.0.0.1:9", "");
    setup.migrate();
    let instance = setup.start();
    // That the broker is away shows when there is something to publish.
    let event = "INSERT INTO outbox (event_type, topic) VALUES ('t', 'x')";
    scenario.database.run(event).await;
    instance.unready(&["127.0.0.1:9"]).await;
    let (code, text) = instance.command(&["health"]);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.starts_with("not ready: lane orders/default: "), "{text}");
    assert!(text.contains("127.0.0.1:9"), "{text}");
    assert_eq!(instance.command(&LIVE), (Some(0), "alive\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_everywhere_is_asked_on_loopback() {
    let mut setup = Setup::new(
        "[sources.orders]\nurl = \"postgres://x@127.0.0.1:9/x\"\n[sinks.out]\ntype = \"stdout\"\n",
    );
    setup.listen = "0.0.0.0";
    let instance = setup.start();
    instance.unready(&["orders/default"]).await;
    assert_eq!(instance.command(&LIVE), (Some(0), "alive\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_asked_is_not_well() {
    let settings =
        "[sources.orders]\nurl = \"postgres://x@127.0.0.1:9/x\"\n[sinks.out]\ntype = \"stdout\"\n";
    let mut setup = Setup::new(settings);
    setup.env = vec![("HAULIER__ADMIN__LISTEN".into(), "off".into())];
    let (code, text) = setup.command(&LIVE);
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("admin port is off"), "{text}");
    let (code, text) = Setup::new("[sinks.out]\ntype = \"pigeon\"\n").command(&LIVE);
    assert_eq!(code, Some(78), "{text}");
}
