// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times as text for people.

/// Returns a time in nanoseconds as text in ns, µs, ms or s. Chooses the unit for one to three digits
/// before the point; times from 1000 s on have more.
///
/// # Example
///
/// ```
/// use framepath_model::shown_time::shown_time;
///
/// assert_eq!(shown_time(1_500.0), "1.5 µs");
/// assert_eq!(shown_time(-2_500_000.0), "-2.50 ms");
/// ```
pub fn shown_time(ns: f64) -> String {
    match ns.abs() {
        n if n < 1e3 => format!("{ns:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", ns / 1e3),
        n if n < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
