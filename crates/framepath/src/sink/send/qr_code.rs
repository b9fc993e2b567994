// SPDX-License-Identifier: MIT OR Apache-2.0
//! QR codes for terminals.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Draws `text` as a QR code for terminals of any colours: two rows of modules in a line, light on dark, with a margin. Empty if
/// the text is too long for a QR code.
pub(super) fn text(text: &str) -> String {
    // Screens do not get dirty: the lowest level of correction gives the largest modules.
    let code = QrCode::with_error_correction_level(text, EcLevel::L);
    code.map_or_else(
        |_| String::new(),
        // The terminal's characters are light: the light modules are drawn.
        |code| {
            code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build() + "\n"
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_square_and_has_a_margin() {
        let drawn = text("FP1-ABC");
        let lines: Vec<&str> = drawn.lines().collect();
        // Version 1 has 21 modules, and the margin 4 on each side; a line has two.
        assert_eq!(lines.len(), (21_usize + 8).div_ceil(2), "{drawn}");
        assert!(lines.iter().all(|line| line.chars().count() == 21 + 8), "{drawn}");
        assert!(lines[0].chars().all(|module| module == '\u{2588}'), "{drawn}");
        assert_eq!(text(&"a".repeat(5000)), "");
    }
}
