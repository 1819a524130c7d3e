//! The shapes of the payloads that this plugin reads and writes.
//!
//! `decide.rs` uses them. Only the fields that matter here are named; serde skips the rest, which
//! costs less than half of what parsing into a free-form JSON value does.

use serde::{Deserialize, Serialize};

/// An id that the application writes as text or as a number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Id {
    /// `"c-17"`
    Text(String),
    /// `17`
    Number(i64),
}

impl Id {
    /// The bytes of a record key: the text as it is, a number in decimal digits.
    pub(crate) fn into_key(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Number(number) => number.to_string().into_bytes(),
        }
    }
}

/// `order.created`: all we need is whose order it is.
#[derive(Debug, Deserialize)]
pub(crate) struct Created {
    pub(crate) customer_id: Id,
}

/// `order.paid`.
#[derive(Debug, Deserialize)]
pub(crate) struct Paid {
    pub(crate) id: Id,
    pub(crate) customer_id: Id,
    pub(crate) total_cents: i64,
    pub(crate) currency: String,
}

/// `order.cancelled`, as the application writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Cancelled {
    pub(crate) id: Id,
    pub(crate) customer_id: Id,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// What the topic `billing` gets of a paid order.
#[derive(Debug, Serialize)]
pub(crate) struct Invoice<'a> {
    pub(crate) order_id: &'a Id,
    pub(crate) customer_id: &'a Id,
    pub(crate) amount_cents: i64,
    pub(crate) currency: &'a str,
}

/// What the topic `orders` gets of a cancelled one: no customer data, whatever the row holds.
#[derive(Debug, Serialize)]
pub(crate) struct Cancellation<'a> {
    pub(crate) order_id: &'a Id,
    pub(crate) reason: Option<&'a str>,
}
