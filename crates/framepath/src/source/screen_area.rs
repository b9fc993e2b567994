// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rectangles of a screen.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::str::FromStr;

use crate::error::StageError;

/// Rectangle in the pixels of a screen or window, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScreenArea {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl ScreenArea {
    /// Returns true if a screen or window of `size` pixels contains the rectangle.
    pub(super) fn is_inside(&self, (width, height): (u32, u32)) -> bool {
        let fits =
            |from: u32, length: u32, whole: u32| from.checked_add(length).is_some_and(|end| end <= whole);
        fits(self.x, self.width, width) && fits(self.y, self.height, height)
    }

    /// Returns the rows of this rectangle, from its own first row on, with pixels of another: its place and size, which may be in part
    /// outside of the screen. Empty if there are none.
    pub(super) fn rows_of(&self, [x, y, width, height]: [i64; 4]) -> Range<u32> {
        let common = |from: u32, length: u32, other: i64, other_length: i64| {
            let start = other.saturating_sub(from.into());
            let inside = |at: i64| at.clamp(0, i64::from(length)) as u32;
            inside(start)..inside(start.saturating_add(other_length))
        };
        if common(self.x, self.width, x, width).is_empty() {
            return 0..0;
        }
        common(self.y, self.height, y, height)
    }
}

impl Display for ScreenArea {
    /// As the option that sets the rectangle.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "region={}x{}+{}+{}", self.width, self.height, self.x, self.y)
    }
}

impl FromStr for ScreenArea {
    type Err = StageError;

    fn from_str(text: &str) -> Result<ScreenArea, StageError> {
        let read = || {
            let (size, place) = text.split_once('+')?;
            let (width, height) = size.split_once('x')?;
            let (x, y) = place.split_once('+')?;
            let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
            let area =
                ScreenArea { x: number(x)?, y: number(y)?, width: number(width)?, height: number(height)? };
            (area.width > 0 && area.height > 0).then_some(area)
        };
        let wrong = || {
            let advice = "expected WIDTHxHEIGHT+X+Y in pixels, such as 640x480+0+0";
            StageError::Option(format!("region={text}: not a rectangle; {advice}"))
        };
        read().ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: ScreenArea = ScreenArea { x: 10, y: 20, width: 30, height: 40 };

    #[test]
    fn rectangles_are_read() {
        assert_eq!("30x40+10+20".parse::<ScreenArea>().unwrap(), AREA);
        for text in ["", "30x40", "30x40+1", "0x4+0+0", "4x0+0+0", "4x4-1+0", "4x4++1+0", "4x4+0+9999999999"]
        {
            let error = text.parse::<ScreenArea>().unwrap_err().to_string();
            assert!(error.contains("WIDTHxHEIGHT+X+Y"), "{error}");
        }
    }

    #[test]
    fn a_rectangle_outside_a_screen_is_found() {
        assert!(AREA.is_inside((40, 60)) && !AREA.is_inside((39, 60)) && !AREA.is_inside((40, 59)));
        assert!(!ScreenArea { x: u32::MAX, ..AREA }.is_inside((100, 100)));
    }

    #[test]
    fn the_rows_of_common_pixels_are_found() {
        let rows = |x, y, width, height| AREA.rows_of([x, y, width, height]);
        assert_eq!(rows(39, 59, 1, 1), 39..40);
        assert_eq!(rows(0, 0, 11, 21), 0..1);
        assert_eq!(rows(-5, -5, 100, 100), 0..40);
        assert_eq!(rows(12, 25, 3, 10), 5..15);
        for (x, y, width, height) in [(40, 30, 5, 5), (0, 0, 10, 100), (10, 60, 5, 5), (-20, 30, 30, 5)] {
            assert!(rows(x, y, width, height).is_empty(), "{x} {y} {width} {height}");
        }
    }
}
