//! `haulier health`: asks the relay that runs on this machine how it is, over its admin port.
//!
//! For health checks of containers and for scripts: the image has no other HTTP client. The address
//! comes from the same settings as the relay's. It speaks one request to one address, waits a short
//! while at most, and asks neither the database nor the broker.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Exit, HealthArgs};
use crate::config::Config;

/// The admin port answers from memory. Who takes longer than this does not answer, and health
/// checks kill what they have not heard from after some seconds of their own.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// More than all reasons of a large installation; whoever sends more is not a relay.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Whether the loops are alive.
    Live,
    /// Whether the work is being done.
    Ready,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    /// With its reasons.
    No(Vec<String>),
}

/// The body of `/readyz`.
#[derive(Deserialize)]
struct Readiness {
    ready: bool,
    reasons: Vec<String>,
}

/// Asks, and prints the answer: a line on standard output when all is well, else the reasons on
/// standard error.
///
/// # Errors
/// Only when standard output or standard error is closed.
pub async fn health(config: &Config, args: &HealthArgs) -> anyhow::Result<Exit> {
    let question = if args.live { Question::Live } else { Question::Ready };
    let answer = match config.admin.listen {
        Some(listen) => ask(within_reach(listen), question, TIME_LIMIT).await,
        None => Err("the admin port is off, so there is nobody to ask; set [admin] listen".into()),
    };
    let (yes, no) = question.words();
    match answer {
        Ok(Answer::Yes) => {
            writeln!(io::stdout(), "{yes}")?;
            return Ok(Exit::Success);
        }
        Ok(Answer::No(reasons)) => {
            for reason in reasons {
                writeln!(io::stderr(), "{no}: {reason}")?;
            }
        }
        Err(trouble) => writeln!(io::stderr(), "haulier: {trouble}")?,
    }
    Ok(Exit::Unavailable)
}

/// Where to ask a relay that listens there: one that listens everywhere also listens on loopback.
fn within_reach(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(address: SocketAddr, question: Question, limit: Duration) -> Result<Answer, String> {
    if address.port() == 0 {
        return Err("the system chooses the admin port; give [admin] listen a port".into());
    }
    let answer = timeout(limit, exchange(address, question)).await;
    let answer = answer.map_err(|_| format!("{address} has not answered within {limit:?}"))?;
    let answer = answer.map_err(|error| {
        format!("nothing answers at {address}: {error}; does haulier run, with these settings?")
    })?;
    question
        .read(&answer)
        .ok_or_else(|| format!("what answers at {address} is not a relay; see [admin] listen"))
}

async fn exchange(address: SocketAddr, question: Question) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // With HTTP/1.0 the answer comes unchunked and ends with the connection.
    let request = format!("GET {} HTTP/1.0\r\nHost: {address}\r\n\r\n", question.path());
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

impl Question {
    fn path(self) -> &'static str {
        match self {
            Self::Live => "/healthz",
            Self::Ready => "/readyz",
        }
    }

    /// What is said of a relay that is, and of one that is not.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Live => ("alive", "not alive"),
            Self::Ready => ("ready", "not ready"),
        }
    }

    /// Reads a whole HTTP answer; `None` if no relay has written it.
    fn read(self, answer: &str) -> Option<Answer> {
        let status: u16 = answer.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        match (self, status) {
            (Self::Live, 200) => (body == "ok\n").then_some(Answer::Yes),
            (Self::Live, 503) => Some(Answer::No(body.lines().map(str::to_owned).collect())),
            (Self::Ready, 200 | 503) => {
                let body: Readiness = serde_json::from_str(body).ok()?;
                Some(if body.ready { Answer::Yes } else { Answer::No(body.reasons) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_wildcard_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9464", "127.0.0.1:9464"),
            ("[::]:80", "[::1]:80"),
            ("127.0.0.1:9464", "127.0.0.1:9464"),
            ("10.1.2.3:9464", "10.1.2.3:9464"),
        ] {
            assert_eq!(within_reach(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn answers_are_read() {
        let live = "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok\n";
        assert_eq!(Question::Live.read(live), Some(Answer::Yes));
        let dead = "HTTP/1.0 503 Service Unavailable\r\n\r\na: ended\nb: ended\n";
        let reasons = vec!["a: ended".to_owned(), "b: ended".to_owned()];
        assert_eq!(Question::Live.read(dead), Some(Answer::No(reasons)));
        let ready = "HTTP/1.1 200 OK\r\n\r\n{\"ready\":true,\"reasons\":[]}";
        assert_eq!(Question::Ready.read(ready), Some(Answer::Yes));
        let unready = "HTTP/1.1 503 X\r\n\r\n{\"ready\":false,\"reasons\":[\"no broker\"]}";
        assert_eq!(Question::Ready.read(unready), Some(Answer::No(vec!["no broker".into()])));
    }

    #[test]
    fn answers_of_others_are_not_taken_for_a_relays() {
        for other in
            ["", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\n\r\n<html>", "HTTP/1.1 404 X\r\n\r\n"]
        {
            assert_eq!(Question::Live.read(other), None, "{other}");
            assert_eq!(Question::Ready.read(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn who_never_answers_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limit = Duration::from_millis(50);
        let trouble = ask(address, Question::Ready, limit).await.unwrap_err();
        assert!(trouble.contains("within 50ms"), "{trouble}");
    }
}
