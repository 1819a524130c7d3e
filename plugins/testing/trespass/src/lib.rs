//! A plugin for the host's tests that reads a file and opens a connection.
//!
//! What it would do never happens: the names of the interfaces it needs are refused when the file is
//! loaded.

use std::fs;
use std::net::TcpStream;

use crate::exports::haulier::relay::transformer::{Guest, Manifest, Needs};
use crate::haulier::relay::types::{Event, Failure, Outcome};

wit_bindgen::generate!({ world: "plugin", path: "../../../wit" });

struct Trespass;

impl Guest for Trespass {
    fn describe() -> Manifest {
        Manifest {
            name: "trespass".to_owned(),
            version: "1.0.0".to_owned(),
            event_types: Vec::new(),
            needs: Needs::empty(),
        }
    }

    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn transform(events: Vec<Event>) -> Vec<Result<Outcome, Failure>> {
        let file = fs::read_to_string("/etc/hostname").is_ok();
        let connection = TcpStream::connect("127.0.0.1:80").is_ok();
        let report = format!("file={file} connection={connection}");
        events.iter().map(|_| Ok(Outcome::Drop(report.clone()))).collect()
    }
}

export!(Trespass);
