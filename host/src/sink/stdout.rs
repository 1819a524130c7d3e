//! A sink for trying things out: one line of JSON per record on standard output.
//!
//! Chosen in the config in place of Kafka. Records are written in the order given, so every slot
//! is in order. Writing blocks, so it is done on a blocking thread. It never drops a record
//! silently: a line that was not written and flushed is reported as unknown.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::event::{Header, Record};
use crate::failure::{Cause, Failure};

use super::{Fence, Outgoing, Receipt, Sink};

/// Writes each record as a line.
pub struct StdoutSink {
    /// One writer at a time, or lines of two batches would mix.
    writer: Arc<Mutex<dyn Write + Send>>,
}

impl StdoutSink {
    /// A sink that writes to the process's standard output.
    pub fn new() -> Self {
        Self::to(io::stdout())
    }

    fn to(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Arc::new(Mutex::new(writer)) }
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Sink for StdoutSink {
    async fn publish(&self, records: Vec<Outgoing>, fence: &Fence) -> Vec<Receipt> {
        let count = records.len();
        if !fence.allows(Duration::ZERO) {
            return vec![Receipt::Unsent; count];
        }
        let writer = Arc::clone(&self.writer);
        let written = tokio::task::spawn_blocking(move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            write_all(&mut *writer, &records)
        });
        let problem = match written.await {
            Ok(Ok(())) => return vec![Receipt::Acknowledged; count],
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        vec![Receipt::Unknown(unwritable(&problem)); count]
    }

    async fn ready(&self) -> Result<(), Failure> {
        let writer = Arc::clone(&self.writer);
        let flushed = tokio::task::spawn_blocking(move || {
            writer.lock().unwrap_or_else(PoisonError::into_inner).flush()
        });
        match flushed.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unwritable(&error.to_string())),
            Err(panic) => Err(unwritable(&panic.to_string())),
        }
    }

    /// Does nothing: a write that has begun cannot be taken back.
    fn abandon(&self) {}
}

fn unwritable(problem: &str) -> Failure {
    Failure::new(Cause::BrokerUnavailable, format!("standard output: {problem}"))
}

fn write_all(writer: &mut dyn Write, records: &[Outgoing]) -> io::Result<()> {
    for outgoing in records {
        let mut line = serde_json::to_vec(&line(&outgoing.record))?;
        line.push(b'\n');
        writer.write_all(&line)?;
    }
    writer.flush()
}

fn line(record: &Record) -> Value {
    let header = |header: &Header| json!([header.name, bytes(header.value.as_ref())]);
    let mut line = json!({ "topic": record.topic });
    if let Some(partition) = record.partition {
        line["partition"] = json!(partition);
    }
    line["key"] = bytes(record.key.as_ref());
    line["payload"] = bytes(record.payload.as_ref());
    line["headers"] = record.headers.iter().map(header).collect();
    if let Some(timestamp) = record.timestamp_ms {
        line["timestamp_ms"] = json!(timestamp);
    }
    line
}

/// Text as a string, other bytes as base64, NULL as null. A payload that is JSON stays a string,
/// so that every byte of it can be seen.
fn bytes(bytes: Option<&Bytes>) -> Value {
    let Some(bytes) = bytes else {
        return Value::Null;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;

    fn record(key: Option<&'static [u8]>, payload: Option<&'static [u8]>) -> Outgoing {
        let record = Record {
            topic: "t".into(),
            key: key.map(Bytes::from_static),
            payload: payload.map(Bytes::from_static),
            headers: vec![Header::text("a", "1"), Header { name: "a".into(), value: None }],
            partition: None,
            timestamp_ms: None,
        };
        Outgoing { slot: 0, event: 0, affinity: 0, record }
    }

    fn open() -> Fence {
        Fence::until(Moment::now().plus(Duration::from_secs(60)))
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[tokio::test]
    async fn lines_show_text_binary_and_null() {
        let out = Shared::default();
        let records = vec![
            record(Some(b""), Some(b"{\"a\":1.0}")),
            record(None, Some(b"\xff\x00")),
            record(Some(b"k\0"), None),
        ];
        let receipts = StdoutSink::to(out.clone()).publish(records, &open()).await;
        assert_eq!(receipts, vec![Receipt::Acknowledged; 3]);
        let written = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let headers = r#""headers":[["a","1"],["a",null]]"#;
        assert_eq!(
            written,
            format!(
                "{{\"topic\":\"t\",\"key\":\"\",\"payload\":\"{{\\\"a\\\":1.0}}\",{headers}}}\n\
                 {{\"topic\":\"t\",\"key\":null,\"payload\":{{\"base64\":\"/wA=\"}},{headers}}}\n\
                 {{\"topic\":\"t\",\"key\":\"k\\u0000\",\"payload\":null,{headers}}}\n"
            )
        );
    }

    #[tokio::test]
    async fn a_closed_pipe_is_nobodys_fault() {
        let sink = StdoutSink::to(Closed);
        let receipts = sink.publish(vec![record(None, None)], &open()).await;
        assert!(
            matches!(&receipts[..], [Receipt::Unknown(failure)]
                if failure.cause == Cause::BrokerUnavailable),
            "{receipts:?}"
        );
        assert!(sink.ready().await.is_err());
    }

    #[tokio::test]
    async fn a_closed_fence_lets_nothing_out() {
        let fence = open();
        fence.close();
        let out = Shared::default();
        let receipts = StdoutSink::to(out.clone()).publish(vec![record(None, None)], &fence).await;
        assert_eq!(receipts, [Receipt::Unsent]);
        assert!(out.0.lock().unwrap().is_empty());
    }
}
