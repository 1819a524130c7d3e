//! Durations and sizes as people write them. Pure; called by the section reader.

use std::time::Duration;

/// What a duration may look like, for messages.
pub(super) const DURATION_FORM: &str =
    "a duration such as \"500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"";

/// What a size may look like, for messages.
pub(super) const SIZE_FORM: &str =
    "a size such as \"8MiB\", \"512KiB\", \"1MB\" or a number of bytes";

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZE_UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

/// A whole number and a unit; a bare number has none and is refused, zero included.
pub(super) fn duration(text: &str) -> Option<Duration> {
    measure(text, &DURATION_UNITS).map(Duration::from_millis)
}

/// A whole number and a unit, in bytes; a bare number is bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    measure(text, &SIZE_UNITS)
}

fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.replace('_', "").parse().ok()?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// `duration` in the largest unit that keeps it whole.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (unit, factor) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, factor)| millis.is_multiple_of(u128::from(*factor)) && millis > 0)
        .unwrap_or(&("ms", 1));
    format!("{}{unit}", millis / u128::from(*factor))
}

/// `bytes` in the largest binary unit that keeps them whole.
pub(super) fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let table = [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("7d", Some(604_800_000)),
            (" 1 s ", Some(1_000)),
            ("1_000ms", Some(1_000)),
            ("0s", Some(0)),
            ("10", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("1m30s", None),
            ("10 parsecs", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
            ("é", None),
        ];
        for (text, millis) in table {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn sizes_are_a_number_and_perhaps_a_unit() {
        let table = [
            ("8MiB", Some(8 << 20)),
            ("512KiB", Some(512 << 10)),
            ("2GiB", Some(2 << 30)),
            ("1MB", Some(1_000_000)),
            ("1 kB", Some(1_000)),
            ("1000000", Some(1_000_000)),
            ("17B", Some(17)),
            ("8 MB", Some(8_000_000)),
            ("8M", None),
            ("MiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("18446744073709551615GiB", None),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn measures_are_shown_as_they_are_written() {
        let table = [
            (0, "0ms"),
            (1, "1ms"),
            (1_500, "1500ms"),
            (2_000, "2s"),
            (180_000, "3m"),
            (172_800_000, "2d"),
        ];
        for (millis, text) in table {
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(show_size(8 << 20), "8MiB");
        assert_eq!(show_size(1_000_000), "1000000 bytes");
    }
}
