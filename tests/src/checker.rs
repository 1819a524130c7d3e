//! Compares what arrived with what was committed: lost, repeated, out of order, never committed.

use std::collections::BTreeMap;

use crate::kafka::Received;

/// What the checker found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sequence numbers that never came, over all keys.
    pub lost: usize,
    /// Records beyond the first of their sequence number.
    pub repeated: usize,
    /// First arrivals that came after a higher one of their key.
    pub out_of_order: usize,
    /// Records nobody committed.
    pub phantom: usize,
}

/// Checks records with payloads `{"seq":n}` against `each` sequence numbers from `first` on `keys` keys.
pub fn check(received: &[Received], keys: usize, first: usize, each: usize) -> Verdict {
    let mut verdict = Verdict::default();
    let mut by_key: BTreeMap<Vec<u8>, Vec<(i32, i64, usize)>> = BTreeMap::new();
    for one in received {
        let known = one.key.as_deref().and_then(|key| {
            std::str::from_utf8(key).ok()?.strip_prefix("key-")?.parse::<usize>().ok()
        });
        match (known, sequence(one)) {
            (Some(key), Some(seq)) if key < keys && (first..first + each).contains(&seq) => {
                by_key.entry(one.key.clone().unwrap_or_default()).or_default().push((
                    one.partition,
                    one.offset,
                    seq,
                ));
            }
            _ => verdict.phantom += 1,
        }
    }
    verdict.lost = keys * each;
    for records in by_key.values_mut() {
        records.sort_unstable();
        let mut seen = std::collections::HashSet::new();
        let mut highest = None;
        for (_, _, seq) in records.iter() {
            if !seen.insert(*seq) {
                verdict.repeated += 1;
                continue;
            }
            if highest.is_some_and(|highest| *seq < highest) {
                verdict.out_of_order += 1;
            }
            highest = highest.max(Some(*seq));
        }
        verdict.lost -= seen.len();
    }
    verdict
}

fn sequence(one: &Received) -> Option<usize> {
    let value: serde_json::Value = serde_json::from_slice(one.payload.as_deref()?).ok()?;
    usize::try_from(value.get("seq")?.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, offset: i64, seq: usize) -> Received {
        Received {
            partition: 0,
            offset,
            key: Some(key.as_bytes().to_vec()),
            payload: Some(format!("{{\"seq\":{seq}}}").into_bytes()),
            headers: vec![],
        }
    }

    #[test]
    fn every_fault_is_seen() {
        let good = [
            record("key-0", 0, 0),
            record("key-1", 1, 0),
            record("key-0", 2, 1),
            record("key-1", 3, 1),
        ];
        assert_eq!(check(&good, 2, 0, 2), Verdict::default());
        let bad = [
            record("key-0", 0, 1),
            record("key-0", 1, 0),
            record("key-0", 2, 1),
            record("key-1", 3, 1),
            record("key-9", 4, 1),
            record("key-0", 5, 7),
        ];
        assert_eq!(
            check(&bad, 2, 0, 2),
            Verdict { lost: 1, repeated: 1, out_of_order: 1, phantom: 2 }
        );
    }
}
