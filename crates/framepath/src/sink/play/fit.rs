// SPDX-License-Identifier: MIT OR Apache-2.0
//! Place of a picture in a window: as large as possible, with the picture's shape.

use framepath_codec::PaintArea;
use framepath_model::stream::Rational;

/// Returns the width and height of a picture on square pixels: the width is multiplied by `sample_aspect`,
/// which counts as 1 if it is unknown, and is limited to the range from 0.05 to 20.
pub(super) fn square(width: u32, height: u32, sample_aspect: Rational) -> (u32, u32) {
    let aspect = sample_aspect.value().unwrap_or(1.0).clamp(0.05, 20.0);
    ((f64::from(width) * aspect).round().max(1.0) as u32, height)
}

/// Returns the size of a window for the picture: the picture's size, or the largest size of the same shape
/// that fits the screen.
pub(super) fn window(picture: (u32, u32), screen: (u32, u32)) -> (u32, u32) {
    if picture.0 <= screen.0 && picture.1 <= screen.1 {
        return picture;
    }
    let area = area(picture, screen);
    (area.width.max(1) as u32, area.height.max(1) as u32)
}

/// Returns the place of the picture in a window: as large as possible, and in the middle.
pub(super) fn area(picture: (u32, u32), window: (u32, u32)) -> PaintArea {
    let (width, height) = (u64::from(window.0), u64::from(window.1));
    let (wide, high) = (u64::from(picture.0.max(1)), u64::from(picture.1.max(1)));
    // Rounded, so that a window of the picture's own shape has no bars.
    let (width_of, height_of) = ((height * wide + high / 2) / high, (width * high + wide / 2) / wide);
    let (w, h) = if width_of <= width { (width_of, height) } else { (width, height_of.min(height)) };
    PaintArea {
        x: ((width - w) / 2) as usize,
        y: ((height - h) / 2) as usize,
        width: w as usize,
        height: h as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_kept() {
        let area = |p, w| {
            let PaintArea { x, y, width, height } = area(p, w);
            (x, y, width, height)
        };
        assert_eq!(area((1920, 1080), (1920, 1080)), (0, 0, 1920, 1080));
        assert_eq!(area((1920, 1080), (960, 540)), (0, 0, 960, 540));
        assert_eq!(area((320, 180), (1000, 180)), (340, 0, 320, 180));
        assert_eq!(area((320, 180), (320, 500)), (0, 160, 320, 180));
        assert_eq!(area((99, 57), (198, 114)), (0, 0, 198, 114));
        assert_eq!(area((16, 16), (0, 0)), (0, 0, 0, 0));
    }

    #[test]
    fn windows_fit_the_screen() {
        assert_eq!(window((1920, 1080), (1920, 1080)), (1920, 1080));
        assert_eq!(window((3840, 2160), (1280, 1024)), (1280, 720));
        assert_eq!(square(720, 576, Rational::new(16, 11)), (1047, 576));
        assert_eq!(square(720, 576, Rational::new(0, 1)), (720, 576));
    }
}
