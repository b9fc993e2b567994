// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calendar times, in UTC.

use jiff::Timestamp;

/// Formats `unix_seconds`, seconds since 1970-01-01 UTC, as a time in UTC by `format` (strftime's
/// conversions). A time beyond the year 9999 becomes the end of that year. Panics if `format` has an
/// invalid conversion.
///
/// ```
/// use framepath_lab::date::utc;
///
/// assert_eq!(utc(951_782_400, "%Y-%m-%d %H:%M"), "2000-02-29 00:00");
/// ```
pub fn utc(unix_seconds: u64, format: &str) -> String {
    let seconds = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn seconds_become_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00-00-00Z"),
            (951_782_400, "2000-02-29T00-00-00Z"),
            (1_735_689_599, "2024-12-31T23-59-59Z"),
            (1_772_366_400, "2026-03-01T12-00-00Z"),
            (4_107_542_400, "2100-03-01T00-00-00Z"),
        ] {
            assert_eq!(utc(seconds, "%Y-%m-%dT%H-%M-%SZ"), text);
        }
        assert!(utc(u64::MAX, "%Y").starts_with("9999"));
    }
}
