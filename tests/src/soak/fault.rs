//! The faults of a soak: each hits, lasts for a while, and is healed.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

use super::bed::Bed;
use crate::database::unique;
use crate::kafka;
use crate::proxy::Way;
use crate::services;

/// A sort of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// kill -9 of a relay, and another one started.
    KillRelay,
    /// A relay stands still, often beyond its lease, and goes on.
    PauseRelay,
    /// SIGTERM to a relay, and another one started.
    ReplaceRelay,
    /// One relay more for a while, which leaves again.
    JoinRelay,
    /// The broker is killed and started again.
    KillBroker,
    /// The broker is stopped in good order and started again.
    RestartBroker,
    /// Nothing comes through to the broker.
    HoleBroker,
    /// All connections to the broker end.
    CutBroker,
    /// The way to the broker is slow.
    SlowBroker,
    /// The database is killed and started again.
    KillDatabase,
    /// The database is stopped in good order and started again.
    RestartDatabase,
    /// Nothing comes through to the database.
    HoleDatabase,
    /// All of the relays' connections to the database end.
    CutDatabase,
    /// The database ends the relays' sessions.
    EndSessions,
    /// Events for a topic that is only there later.
    MissingTopic,
    /// Events that can never be published, at the head of keys of their own.
    Poison,
    /// An event that kills the process it is worked on in.
    Deadly,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::KillRelay,
        Self::PauseRelay,
        Self::ReplaceRelay,
        Self::JoinRelay,
        Self::KillBroker,
        Self::RestartBroker,
        Self::HoleBroker,
        Self::CutBroker,
        Self::SlowBroker,
        Self::KillDatabase,
        Self::RestartDatabase,
        Self::HoleDatabase,
        Self::CutDatabase,
        Self::EndSessions,
        Self::MissingTopic,
        Self::Poison,
        Self::Deadly,
    ];

    /// Those that are over quickly.
    pub const QUICK: [Self; 9] = [
        Self::KillRelay,
        Self::PauseRelay,
        Self::ReplaceRelay,
        Self::KillBroker,
        Self::HoleBroker,
        Self::CutDatabase,
        Self::EndSessions,
        Self::MissingTopic,
        Self::Poison,
    ];
}

/// How long a fault lasts that lasts.
fn lasting(random: &mut StdRng) -> Duration {
    Duration::from_millis(random.random_range(500..8000))
}

impl Bed {
    /// Makes a fault and heals it again; the relays that die are started again meanwhile.
    pub(super) async fn inject(&mut self, kind: Kind, random: &mut StdRng) {
        *self.counts.entry(kind).or_default() += 1;
        let victim = random.random_range(0..self.relays.len());
        match kind {
            Kind::KillRelay => {
                self.relays[victim].kill();
                self.replace(victim);
            }
            Kind::PauseRelay => {
                // It may be dying of a deadly event just now, and then never stands still. The
                // supervisor waits, so that it is the same process that goes on.
                self.relays[victim].signal("STOP");
                tokio::time::sleep(lasting(random)).await;
                self.relays[victim].signal("CONT");
            }
            Kind::ReplaceRelay => {
                self.leave(victim).await;
                self.replace(victim);
            }
            Kind::JoinRelay => {
                self.join();
                self.rest(lasting(random)).await;
                let last = self.relays.len() - 1;
                self.leave(last).await;
                let left = self.relays.remove(last);
                self.gone.push(left);
            }
            Kind::KillBroker => self.without("kill", "kafka", random).await,
            Kind::RestartBroker => self.without("stop", "kafka", random).await,
            Kind::KillDatabase => self.without("kill", "postgres", random).await,
            Kind::RestartDatabase => self.without("stop", "postgres", random).await,
            Kind::HoleBroker => {
                self.broker.set(Way::Hole);
                self.last(random).await;
                self.broker.set(Way::Open);
            }
            Kind::SlowBroker => {
                let delay = Duration::from_millis(random.random_range(20..900));
                let ways = [Way::Delay(delay), Way::Limit(random.random_range(20_000..200_000))];
                self.broker.set(ways[random.random_range(0..ways.len())]);
                self.last(random).await;
                self.broker.set(Way::Open);
            }
            Kind::HoleDatabase => {
                self.database_way.set(Way::Hole);
                self.last(random).await;
                self.database_way.set(Way::Open);
            }
            Kind::CutBroker => self.broker.cut(),
            Kind::CutDatabase => self.database_way.cut(),
            Kind::EndSessions => self.end_sessions(random.random_range(1..20)).await,
            Kind::MissingTopic => self.missing_topic(random).await,
            Kind::Poison => self.poison(random.random_range(1..20)).await,
            Kind::Deadly => self.deadly().await,
        }
    }

    /// Lets a fault last for a while; in the midst of every third a relay is killed as well.
    async fn last(&mut self, random: &mut StdRng) {
        let time = lasting(random);
        self.rest(time / 2).await;
        if random.random_range(0..3) == 0 {
            let victim = random.random_range(0..self.relays.len());
            *self.counts.entry(Kind::KillRelay).or_default() += 1;
            self.relays[victim].kill();
            self.replace(victim);
        }
        self.rest(time / 2).await;
    }

    /// A service is away for a while.
    async fn without(&mut self, how: &str, service: &str, random: &mut StdRng) {
        tokio::task::block_in_place(|| services::control(&[how, service]));
        self.last(random).await;
        tokio::task::block_in_place(|| services::control(&["start", service]));
    }

    async fn end_sessions(&mut self, times: u32) {
        for _ in 0..times {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'haulier'";
            let _: Result<i64, _> = sqlx::query_scalar(end).fetch_one(self.pool()).await;
            self.rest(Duration::from_millis(100)).await;
        }
    }

    async fn missing_topic(&mut self, random: &mut StdRng) {
        let topic = unique("missing");
        self.insert(
            "SELECT 't', 'waits-' || $2 || '-' || n % 10, $1, '{}'::json FROM generate_series(1, 100) n",
            &topic,
        )
        .await;
        self.last(random).await;
        kafka::create(&topic, 3, &[]).await;
        self.topics.push(topic);
    }

    /// Illegal topics and records that are too large, with healthy events behind them.
    async fn poison(&mut self, keys: usize) {
        self.insert(
            &format!(
                "SELECT 't', 'bad-' || $2 || '-' || n / 3, \
                   CASE n % 3 WHEN 0 THEN 'no such/topic' ELSE $1 END, \
                   CASE WHEN n % 9 = 1 THEN to_json((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 2000))) \
                     ELSE '{{}}'::json END \
                 FROM generate_series(0, {keys} * 3 - 1) n"
            ),
            &self.topics[0].clone(),
        )
        .await;
    }

    async fn deadly(&mut self) {
        self.insert(
            "SELECT CASE n WHEN 2 THEN 'deadly' ELSE 't' END, 'deadly-' || $2, $1, '{}'::json \
             FROM generate_series(1, 4) n",
            &self.topics[0].clone(),
        )
        .await;
    }
}
