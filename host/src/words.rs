//! Texts for people: numbers, what others wrote, errors with their causes, what was probably meant.
//!
//! Used wherever something is said to a person. Pure; knows nothing of what is said.

/// A number with its thousands set apart.
pub fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and what is counted, in the right number.
pub fn counted(count: u64, what: &str) -> String {
    match (count, what) {
        (1, _) => format!("1 {what}"),
        (_, "batch") => format!("{} batches", number(count)),
        _ => format!("{} {what}s", number(count)),
    }
}

/// What somebody else wrote, on one line and without control characters: it must not speak to the
/// terminal, and must not end a comment.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// An error with its causes, on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The candidate that `word` was probably meant to be.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One slip in three letters still reads as the same word; more is a guess.
    let tolerated = word.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&fold(word), &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= tolerated)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `name` as it is compared: case apart, and with `-`, `_` and `.` alike.
pub fn fold(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_made_readable() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(count), text);
        }
    }

    #[test]
    fn foreign_texts_do_not_speak_to_the_terminal() {
        assert_eq!(plain("a\x1b[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
    }

    #[test]
    fn the_closest_word_is_close() {
        let words = ["bootstrap_servers", "publish_timeout", "type"];
        assert_eq!(closest("bootstrap-server", words), Some("bootstrap_servers"));
        assert_eq!(closest("tpye", words), Some("type"));
        assert_eq!(closest("Type", words), Some("type"));
        assert_eq!(closest("payload", words), None);
        assert_eq!(closest("", words), None);
    }
}
