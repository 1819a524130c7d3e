//! A TCP proxy that makes the way to a server bad, and good again, while both sides use it.
//!
//! Stands before the broker (on the port that its proxied listener tells clients) or before the
//! database. It loses no byte of a connection that lives: a real network does not either.

use std::time::Duration;

use rand::Rng as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How the way is at present.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// All passes at once.
    Open,
    /// Each chunk from a client waits for a random time up to this.
    Delay(Duration),
    /// So many bytes a second, in each direction of each connection; at least 1.
    Limit(u32),
    /// Connections are accepted and nothing is forwarded, in both directions. What was sent
    /// meanwhile goes on when the way is another.
    Hole,
    /// Connections end, and new ones are closed as soon as they are there.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct State {
    way: Way,
    /// How often all connections were cut.
    cuts: u64,
}

/// A running proxy; it and its connections end when it is dropped.
pub struct Proxy {
    listener: JoinHandle<()>,
    state: watch::Sender<State>,
    address: String,
}

impl Proxy {
    /// Listens on `address` and forwards to `target`.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub async fn start(address: &str, target: String) -> Self {
        let listener = TcpListener::bind(address).await.expect("the proxy's port is free");
        let address = listener.local_addr().expect("an address").to_string();
        let (state, seen) = watch::channel(State { way: Way::Open, cuts: 0 });
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, target.clone(), seen.clone()));
            }
        });
        Self { listener, state, address }
    }

    /// Listens on `address` and forwards to `target`, each chunk from a client after up to `delay`.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub async fn delaying(address: &str, target: String, delay: Duration) -> Self {
        let proxy = Self::start(address, target).await;
        proxy.set(Way::Delay(delay));
        proxy
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes the way another, for connections that are there and for new ones.
    pub fn set(&self, way: Way) {
        self.state.send_modify(|state| state.way = way);
    }

    /// Ends all connections that are there; new ones go the way that is set.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.set(Way::Closed);
    }
}

/// Serves one connection to its end.
async fn serve(client: TcpStream, target: String, mut state: watch::Receiver<State>) {
    let born = state.borrow().cuts;
    if !passable(&mut state, born).await {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        forward(from_client, to_server, Side::Client, state.clone(), born),
        forward(from_server, to_client, Side::Server, state, born),
    );
}

/// Waits while the way is a hole; false when the connection has to end.
async fn passable(state: &mut watch::Receiver<State>, born: u64) -> bool {
    let ends = |state: &State| state.cuts != born || state.way == Way::Closed;
    match state.wait_for(|state| ends(state) || state.way != Way::Hole).await {
        Ok(state) => !ends(&state),
        Err(_) => false,
    }
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    side: Side,
    mut state: watch::Receiver<State>,
    born: u64,
) {
    let mut buffer = vec![0; 16 * 1024];
    while passable(&mut state, born).await {
        let read = tokio::select! {
            biased;
            // 1. The way has changed: look at it again before more is taken.
            changed = state.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            // 2. Something to forward.
            read = from.read(&mut buffer) => read,
        };
        let Ok(read @ 1..) = read else { break };
        let way = state.borrow().way;
        tokio::time::sleep(pause(way, side, read)).await;
        // What came while the way became a hole waits with the rest.
        if !passable(&mut state, born).await || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// How long a chunk takes on its way.
fn pause(way: Way, side: Side, bytes: usize) -> Duration {
    match way {
        Way::Delay(delay) if side == Side::Client => {
            delay.mul_f64(rand::rng().random_range(0.0..=1.0))
        }
        Way::Limit(rate) => Duration::from_secs_f64(bytes as f64 / f64::from(rate.max(1))),
        Way::Open | Way::Delay(_) | Way::Hole | Way::Closed => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_hole_keeps_what_was_sent_and_a_cut_ends_it() {
        let proxy = Proxy::start("127.0.0.1:0", echo().await).await;
        let mut stream = TcpStream::connect(proxy.address()).await.expect("connects");
        let mut answer = [0; 3];
        stream.write_all(b"one").await.expect("sends");
        stream.read_exact(&mut answer).await.expect("comes back");
        proxy.set(Way::Hole);
        stream.write_all(b"two").await.expect("sends");
        let short = Duration::from_millis(200);
        assert!(tokio::time::timeout(short, stream.read_exact(&mut answer)).await.is_err());
        proxy.set(Way::Limit(1_000_000));
        stream.read_exact(&mut answer).await.expect("comes back");
        assert_eq!(&answer, b"two");
        proxy.cut();
        assert_eq!(stream.read(&mut answer).await.unwrap_or_default(), 0, "it has ended");
        let mut other = TcpStream::connect(proxy.address()).await.expect("connects");
        other.write_all(b"new").await.expect("sends");
        other.read_exact(&mut answer).await.expect("comes back");
        proxy.set(Way::Closed);
        assert_eq!(other.read(&mut answer).await.unwrap_or_default(), 0, "it has ended");
    }
}
