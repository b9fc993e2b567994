// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers formatted for people.

/// Formats a number with three significant digits and all digits of its whole part, which has
/// commas between the thousands from five digits on. Omits zeros at the end of the decimals. A
/// number that is not finite is `not a number`.
pub fn figure(value: f64) -> String {
    digits(value, 3)
}

/// Formats a number as [`figure`] does, with `significant` significant digits in place of three.
fn digits(value: f64, significant: u8) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    let wanted = f64::from(significant) - 1.0;
    if magnitude >= wanted {
        return grouped(value.round());
    }
    // 0.0996 with two digits and 9.996 with three round up to 0.100 and 10.00: one decimal too many.
    let mut decimals = (wanted - magnitude).clamp(0.0, 12.0) as usize;
    let scale = 10_f64.powi(decimals as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.abs() >= 10_f64.powf(magnitude + 1.0) {
        decimals = decimals.saturating_sub(1);
    }
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a whole number; numbers of five or more digits have commas between the thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let sign = if value < 0.0 { "-" } else { "" };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

/// Formats a ratio: `0.05×`.
pub fn times(ratio: f64) -> String {
    format!("{}×", bare_ratio(ratio))
}

/// Formats a ratio without `×`: with two decimals from 0.1 to below 10, with two significant digits above 0
/// and below 0.1, otherwise as [`figure`].
pub fn bare_ratio(ratio: f64) -> String {
    if (0.1..10.0).contains(&ratio) {
        format!("{ratio:.2}")
    } else if ratio > 0.0 && ratio < 0.1 {
        digits(ratio, 2)
    } else {
        figure(ratio)
    }
}

/// Formats a time given in microseconds with three significant digits, in µs, ms or s.
pub fn time_us(us: f64) -> String {
    let (unit, us_of_unit) = time_unit(us);
    format!("{} {unit}", figure(us / us_of_unit))
}

/// Returns the unit for a time given in microseconds (µs below 1 ms, ms below 1 s, else s), and the
/// unit's length in microseconds. Charts use this function with the time at the end of an axis, because
/// all ticks of the axis share that unit.
pub fn time_unit(us: f64) -> (&'static str, f64) {
    match us.abs() {
        x if x < 1000.0 => ("µs", 1.0),
        x if x < 1_000_000.0 => ("ms", 1000.0),
        _ => ("s", 1_000_000.0),
    }
}

/// Formats a share as percent: 0.0213 is `2.1 %`, 0.213 is `21 %` without decimals, and a share
/// above 0 but below 0.0005 is `under 0.1 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 10.0 || percent == 0.0 {
        format!("{percent:.0} %")
    } else if percent.abs() >= 0.05 {
        format!("{percent:.1} %")
    } else {
        "under 0.1 %".to_owned()
    }
}

/// Parses the number of bytes in a case name such as `64B`, `1KiB` or `16MiB`; `None` for other
/// names.
pub fn case_bytes(case: &str) -> Option<u64> {
    let split = case.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = case.split_at(split);
    let unit = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Formats a number of bytes in the largest of the units B, KiB and MiB that divides it: 1024 is
/// `1 KiB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.110_4, "0.11"),
            (0.001_234_5, "0.00123"),
            (2.0, "2"),
            (2.345, "2.35"),
            (9.996, "10"),
            (99.96, "100"),
            (123.4, "123"),
            (1234.4, "1234"),
            (1_036_800.0, "1,036,800"),
            (-12_345.0, "-12,345"),
            (f64::NAN, "not a number"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(times(0.047), "0.047×");
        assert_eq!(times(1.0), "1.00×");
        assert_eq!(times(0.0458), "0.046×");
        assert_eq!(time_us(0.11), "0.11 µs");
        assert_eq!(time_us(0.0), "0 µs");
        assert_eq!(time_us(16_700.0), "16.7 ms");
        assert_eq!(percent(0.021), "2.1 %");
    }

    #[test]
    fn case_names_convert_to_bytes() {
        assert_eq!(case_bytes("64B"), Some(64));
        assert_eq!(case_bytes("16MiB"), Some(16 << 20));
        assert_eq!(case_bytes("paced-60"), None);
        assert_eq!(bytes(1024), "1 KiB");
        assert_eq!(bytes(8), "8 B");
    }
}
