// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign names, such as a plug-in's parameters, in a form that a path can contain.

/// Converts `name` to lower case, replaces all other characters between two letters or digits by
/// one `-`, and drops them at both ends: `Center position (X)` becomes `center-position-x`. Names
/// that differ only in case and in such characters are the same name in a path.
pub fn plain_name(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for c in name.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            plain.push(c);
        } else if !plain.is_empty() && !plain.ends_with('-') {
            plain.push('-');
        }
    }
    plain.truncate(plain.trim_end_matches('-').len());
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_letters_and_digits_tell_names_apart() {
        for (name, plain) in [
            ("Keep RED", "keep-red"),
            ("keep_red", "keep-red"),
            ("1_speed", "1-speed"),
            ("Delta R / A / Hue", "delta-r-a-hue"),
            ("Center position (X)", "center-position-x"),
            ("B\u{e9}zier spline", "b\u{e9}zier-spline"),
            (" -_", ""),
            // Its lower case is a letter and a combining mark.
            ("\u{130}a", "i-a"),
        ] {
            assert_eq!(plain_name(name), plain);
            assert_eq!(plain_name(plain), plain);
        }
    }
}
