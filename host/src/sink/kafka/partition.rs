//! Which partition a key belongs to: murmur2, exactly as the Java client computes it.
//!
//! Called by a publish call for records that name no partition. Pure; it knows nothing of topics,
//! and it never spreads the records of one key.

/// The seed the Java client uses.
const SEED: u32 = 0x9747_b28c;
const MIX: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition of `key` in a topic of `partitions` partitions.
pub(super) fn for_key(key: &[u8], partitions: i32) -> i32 {
    fold(murmur2(key), partitions)
}

/// The partition for a record without a key: one for all records of the same `affinity`, so that
/// the order within it stays visible, and spread evenly over different ones.
pub(super) fn for_affinity(affinity: u32, partitions: i32) -> i32 {
    // Hashed once more: an affinity may be a small number, or share a factor with `partitions`.
    fold(murmur2(&affinity.to_le_bytes()), partitions)
}

/// `hash` as Java's `toPositive(hash) % partitions`.
fn fold(hash: u32, partitions: i32) -> i32 {
    debug_assert!(partitions > 0, "a topic has at least one partition");
    // The mask keeps the value within i32, so neither conversion loses anything.
    i32::try_from(hash & 0x7fff_ffff).unwrap_or_default() % partitions.max(1)
}

/// 32-bit murmur2 over little-endian words.
fn murmur2(data: &[u8]) -> u32 {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(MIX);
        k ^= k >> SHIFT;
        k = k.wrapping_mul(MIX);
        hash = hash.wrapping_mul(MIX) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the Java client's own unit test for murmur2.
    #[test]
    fn murmur2_gives_what_the_java_client_gives() {
        for (text, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()), expected.cast_unsigned(), "{text}");
        }
    }

    #[test]
    fn a_partition_is_always_within_the_topic() {
        for n in [1, 2, 3, 7, 12, 100] {
            for i in 0..200_u32 {
                assert!((0..n).contains(&for_key(&i.to_be_bytes(), n)));
                assert!((0..n).contains(&for_affinity(i, n)));
            }
        }
    }

    #[test]
    fn keyless_records_of_different_affinity_are_spread() {
        let mut used = std::collections::HashSet::new();
        for i in 0..64 {
            used.insert(for_affinity(i * 12, 12));
        }
        assert!(used.len() >= 10, "{used:?}");
    }
}
