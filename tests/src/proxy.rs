//! A TCP proxy that delays what clients send, by a random time per chunk.

use std::time::Duration;

use rand::Rng as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A running proxy; it ends when it is dropped.
pub struct Proxy(JoinHandle<()>);

impl Proxy {
    /// Listens on `address` and forwards to `target`, each chunk from a client after up to `delay`.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub async fn delaying(address: &str, target: String, delay: Duration) -> Self {
        let listener = TcpListener::bind(address).await.expect("the proxy's port is free");
        Self(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(target).await else {
                        return;
                    };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::join!(
                        forward(from_client, to_server, delay),
                        forward(from_server, to_client, Duration::ZERO)
                    );
                });
            }
        }))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay: Duration,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !delay.is_zero() {
            let pause = delay.mul_f64(rand::rng().random_range(0.0..=1.0));
            tokio::time::sleep(pause).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
