// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small builder of SVG elements. Colours and fonts are classes; see `style`.

use std::fmt::Write;

use framepath_model::shown::acts_on_terminals;

/// Part of a text that is placed at the coordinates given for the text: its start, middle or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under construction. Coordinates are CSS pixels from the top left.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    pub fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let (x1, y1, x2, y2) = (Px(x1), Px(y1), Px(x2), Px(y2));
        let _ =
            write!(self.body, "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>");
    }

    /// Adds a rectangle with the tooltip `tip`; without a tooltip if `tip` is empty. A negative
    /// width counts as 0.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, tip: &str) {
        let (x, y, width, height) = (Px(x), Px(y), Px(width.max(0.0)), Px(height));
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">"
        );
        self.tip(tip);
        self.body.push_str("</rect>");
    }

    /// Adds a circle with the tooltip `tip`; without a tooltip if `tip` is empty.
    pub fn circle(&mut self, class: &str, x: f64, y: f64, radius: f64, tip: &str) {
        let (x, y, radius) = (Px(x), Px(y), Px(radius));
        let _ = write!(self.body, "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\">");
        self.tip(tip);
        self.body.push_str("</circle>");
    }

    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.body, "<polyline class=\"{class}\" points=\"");
        for (i, (x, y)) in points.iter().enumerate() {
            let gap = if i > 0 { " " } else { "" };
            let _ = write!(self.body, "{gap}{},{}", Px(*x), Px(*y));
        }
        self.body.push_str("\"/>");
    }

    pub fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{}\" y=\"{}\">{}</text>",
            Px(x),
            Px(y),
            escape(text)
        );
    }

    fn tip(&mut self, tip: &str) {
        if !tip.is_empty() {
            let _ = write!(self.body, "<title>{}</title>", escape(tip));
        }
    }

    /// Returns the whole `svg` element with the HTML id `id`; `title` and `desc` are for screen
    /// readers.
    pub fn finish(self, id: &str, title: &str, desc: &str) -> String {
        let (width, height) = (Px(self.width), Px(self.height));
        format!(
            "<svg id=\"{id}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{id}-title\">{}</title>\
             <desc id=\"{id}-desc\">{}</desc>{}</svg>",
            escape(title),
            escape(desc),
            self.body
        )
    }
}

/// A coordinate in CSS pixels, printed with a precision of 0.1; a number that is not finite is
/// printed as 0.
struct Px(f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = if self.0.is_finite() { (self.0 * 10.0).round() / 10.0 } else { 0.0 };
        write!(f, "{tenths}")
    }
}

/// Estimates the width of a text in CSS pixels from its number of characters, precisely enough to
/// check that the text fits.
pub fn text_width(text: &str, font_px: f64) -> f64 {
    text.chars().count() as f64 * font_px * 0.56
}

/// Splits a text at blanks into lines that fit a width in CSS pixels. A word that is wider than a line is
/// cut.
pub fn wrapped(text: &str, font_px: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line, font_px) + text_width(word, font_px) + font_px < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, font_px, width)),
        }
    }
    lines
}

/// Cuts a text to fit a width in CSS pixels; a cut text ends with `…`.
pub fn fitted(text: &str, font_px: f64, width: f64) -> String {
    if text_width(text, font_px) <= width {
        return text.to_owned();
    }
    let room = (width / (font_px * 0.56)) as usize;
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Escapes a text for HTML and SVG, in elements and in quoted attributes. Replaces characters
/// that control a terminal, except newline and tab, by U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if acts_on_terminals(c) && c != '\n' && c != '\t' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("<a b=\"c\">&'\u{1}"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\u{fffd}");
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("t", Anchor::End, 1.0, 2.04, "<script>");
        svg.rect("r", 0.0, 0.0, -1.0, f64::NAN, "a<b");
        let svg = svg.finish("id", "t<", "d>");
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"));
        assert!(svg.contains("y=\"2\"") && svg.contains("width=\"0\" height=\"0\""));
        assert!(svg.contains("<title id=\"id-title\">t&lt;</title>"));
    }
}
