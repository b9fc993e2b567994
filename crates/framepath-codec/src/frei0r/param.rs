// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters that a plug-in declares, and values as text.

use std::fmt;

use framepath_model::path::plain_name;

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Yes or no.
    Bool,
    /// Number from 0 to 1; only the plug-in knows its meaning.
    Double,
    /// Red, green and blue.
    Color,
    /// Position in the picture.
    Position,
    /// Text.
    String,
}

/// Parameter declared by a plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter in the plug-in.
    pub title: String,
    /// Name in a path: [`plain_name`] of the title.
    pub name: String,
    /// Type of the parameter.
    pub kind: ParamKind,
    /// Purpose of the parameter; empty if the plug-in has no description.
    pub explanation: String,
}

/// Value of a parameter. The ranges hold for parsed values; a plug-in may report others.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Yes or no.
    Bool(bool),
    /// Number from 0 to 1.
    Double(f64),
    /// Red, green, blue, each from 0 to 1.
    Color([f32; 3]),
    /// x and y, each from 0 to 1.
    Position([f64; 2]),
    /// Text without a zero byte.
    String(String),
}

impl ParamKind {
    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            ParamKind::Bool => "bool",
            ParamKind::Double => "double",
            ParamKind::Color => "color",
            ParamKind::Position => "position",
            ParamKind::String => "string",
        }
    }

    /// Returns a description of the accepted values.
    pub fn wants(self) -> &'static str {
        match self {
            ParamKind::Bool => "`yes` or `1`, `no` or `0`",
            ParamKind::Double => "a number from 0 to 1",
            ParamKind::Color => "a colour, `#rrggbb`, or R,G,B with each part from 0 to 1",
            ParamKind::Position => "a position X,Y, each part from 0 to 1",
            ParamKind::String => "text without a zero byte",
        }
    }

    /// Parses a value of this type; `None` if the text is not one.
    pub fn read(self, text: &str) -> Option<ParamValue> {
        match self {
            ParamKind::Bool => match text {
                "yes" | "1" => Some(ParamValue::Bool(true)),
                "no" | "0" => Some(ParamValue::Bool(false)),
                _ => None,
            },
            ParamKind::Double => part(text).map(ParamValue::Double),
            ParamKind::Color => match text.strip_prefix('#') {
                Some(hex) => parse_hex(hex).map(ParamValue::Color),
                None => parts(text).map(|rgb| ParamValue::Color(rgb.map(|part| part as f32))),
            },
            ParamKind::Position => parts(text).map(ParamValue::Position),
            ParamKind::String => (!text.contains('\0')).then(|| ParamValue::String(text.to_owned())),
        }
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Param {
    pub(super) fn new(title: String, kind: ParamKind, explanation: String) -> Param {
        Param { name: plain_name(&title), title, kind, explanation }
    }
}

/// Writes a text that [`ParamKind::read`] parses to the same value, except for a number from the
/// plug-in outside of the range from 0 to 1, which `read` rejects.
impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Bool(true) => f.write_str("yes"),
            ParamValue::Bool(false) => f.write_str("no"),
            ParamValue::Double(value) => write!(f, "{value}"),
            ParamValue::Color([r, g, b]) => write!(f, "{r},{g},{b}"),
            ParamValue::Position([x, y]) => write!(f, "{x},{y}"),
            ParamValue::String(text) => f.write_str(text),
        }
    }
}

fn part(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    text.parse().ok().filter(|part| plain && (0.0..=1.0).contains(part))
}

fn parts<const N: usize>(text: &str) -> Option<[f64; N]> {
    let parts: Option<Vec<f64>> = text.split(',').map(part).collect();
    parts?.try_into().ok()
}

fn parse_hex(hex: &str) -> Option<[f32; 3]> {
    if hex.len() != 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let all = u32::from_str_radix(hex, 16).ok()?;
    Some([all >> 16, all >> 8 & 0xff, all & 0xff].map(|part| part as f32 / 255.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_type() {
        assert_eq!(ParamKind::Bool.read("yes"), Some(ParamValue::Bool(true)));
        assert_eq!(ParamKind::Double.read("0.25"), Some(ParamValue::Double(0.25)));
        assert_eq!(ParamKind::Color.read("#ff0033"), Some(ParamValue::Color([1.0, 0.0, 0.2])));
        assert_eq!(ParamKind::Color.read("1,0,0.5"), Some(ParamValue::Color([1.0, 0.0, 0.5])));
        assert_eq!(ParamKind::Position.read("0.5,1"), Some(ParamValue::Position([0.5, 1.0])));
        assert_eq!(ParamKind::String.read(""), Some(ParamValue::String(String::new())));
    }

    #[test]
    fn values_out_of_range_or_of_another_type_are_refused() {
        for (kind, text) in [
            (ParamKind::Bool, "true"),
            (ParamKind::Double, "1.01"),
            (ParamKind::Double, "-0.1"),
            (ParamKind::Double, "NaN"),
            (ParamKind::Double, "inf"),
            (ParamKind::Double, ""),
            (ParamKind::Color, "red"),
            (ParamKind::Color, "#+12345"),
            (ParamKind::Color, "#ffff"),
            (ParamKind::Color, "0,0"),
            (ParamKind::Color, "0,0,0,0"),
            (ParamKind::Position, "0.5"),
            (ParamKind::Position, "0.5,2"),
            (ParamKind::String, "a\0"),
        ] {
            assert_eq!(kind.read(text), None, "{kind} {text:?}");
        }
    }

    #[test]
    fn printed_values_parse_again() {
        for (kind, value) in [
            (ParamKind::Bool, ParamValue::Bool(false)),
            (ParamKind::Double, ParamValue::Double(0.1)),
            (ParamKind::Color, ParamValue::Color([0.1, 0.2, 1.0])),
            (ParamKind::Position, ParamValue::Position([0.0, 0.3])),
            (ParamKind::String, ParamValue::String("a b".to_owned())),
        ] {
            assert_eq!(kind.read(&value.to_string()), Some(value));
        }
    }
}
