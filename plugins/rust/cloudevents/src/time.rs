//! Milliseconds since 1970 as a text. `lib.rs` calls it; it asks no clock.

const MS_PER_DAY: i64 = 86_400_000;

/// As RFC 3339 has it, in UTC with milliseconds; none outside the years 1 to 9999, for which it has
/// no text.
pub(crate) fn rfc3339(ms: i64) -> Option<String> {
    let days = ms.div_euclid(MS_PER_DAY) + days_before(1970);
    // 400 years have 146,097 days; what is left to do is a day too many around the turn of a year.
    let mut year = days.checked_mul(400)?.div_euclid(146_097) + 1;
    while days < days_before(year) {
        year -= 1;
    }
    while days >= days_before(year + 1) {
        year += 1;
    }
    if !(1..=9999).contains(&year) {
        return None;
    }
    let (month, day) = month_and_day(year, days - days_before(year));
    let ms = ms.rem_euclid(MS_PER_DAY);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let ms = ms % 1000;
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"))
}

/// How many days there were from 1 January of the year 1 to that of this year.
const fn days_before(year: i64) -> i64 {
    let years = year - 1;
    years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400)
}

/// The date of a day of the year, which counts from 0; month and day count from 1.
fn month_and_day(year: i64, mut day: i64) -> (usize, i64) {
    let february = days_before(year + 1) - days_before(year) - 337;
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms).as_deref(), Some(text));
        }
        for ms in [253_402_300_800_000, -62_135_596_800_001, i64::MAX, i64::MIN] {
            assert_eq!(rfc3339(ms), None, "{ms}");
        }
    }
}
