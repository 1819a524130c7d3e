//! Bytes as text. `lib.rs` calls it for payloads that are not JSON.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64 with padding (RFC 4648, section 4).
pub(crate) fn push(out: &mut String, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            // A group of n bytes has n + 1 digits.
            out.push(if digit > group.len() { '=' } else { char::from(ALPHABET[value as usize]) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_padded() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = String::new();
            push(&mut out, bytes.as_bytes());
            assert_eq!(out, text);
        }
    }
}
