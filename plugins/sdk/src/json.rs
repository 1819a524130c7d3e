//! Writing payloads. Plugins call it for a payload of their own making.

use serde::Serialize;

use crate::{Failure, reject};

/// `value` as JSON without blanks, its fields in the order in which the type has them.
///
/// # Errors
/// A rejection, if JSON cannot say it (a map whose keys are neither text nor numbers).
pub fn json(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value)
        .map_err(|error| reject(format!("the new payload cannot be written: {error}")))
}
