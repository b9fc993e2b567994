// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orientation of pictures: quarter turns and mirroring.

use std::fmt;

/// Movement that makes a decoded picture upright. The numbers are those of EXIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// No movement: the picture is upright.
    #[default]
    Upright = 1,
    /// Left and right change places.
    Mirrored = 2,
    /// Turn by 180 degrees.
    Rotated180 = 3,
    /// Top and bottom change places.
    UpsideDown = 4,
    /// Rows become columns: the top left corner stays.
    Transposed = 5,
    /// Clockwise turn by 90 degrees.
    Rotated90 = 6,
    /// Rows become columns: the top right corner stays.
    Transversed = 7,
    /// Clockwise turn by 270 degrees.
    Rotated270 = 8,
}

impl Orientation {
    /// All orientations, in the order of their numbers.
    pub const ALL: [Orientation; 8] = [
        Orientation::Upright,
        Orientation::Mirrored,
        Orientation::Rotated180,
        Orientation::UpsideDown,
        Orientation::Transposed,
        Orientation::Rotated90,
        Orientation::Transversed,
        Orientation::Rotated270,
    ];

    /// Returns the movement nearest to a transformation of points: `x' = a * x + c * y` and
    /// `y' = b * x + d * y`, with x to the right and y down, as in display matrices of MP4. The scale does
    /// not matter.
    ///
    /// ```
    /// use framepath_model::orientation::Orientation;
    ///
    /// // Right becomes down, and down becomes left.
    /// assert_eq!(Orientation::from_matrix(0, 65536, -65536, 0), Orientation::Rotated90);
    /// ```
    pub fn from_matrix(a: i32, b: i32, c: i32, d: i32) -> Orientation {
        let size = |x: i32, y: i32| i64::from(x).abs() + i64::from(y).abs();
        if size(b, c) > size(a, d) {
            match (b < 0, c < 0) {
                (false, false) => Orientation::Transposed,
                (false, true) => Orientation::Rotated90,
                (true, true) => Orientation::Transversed,
                (true, false) => Orientation::Rotated270,
            }
        } else {
            match (a < 0, d < 0) {
                (false, false) => Orientation::Upright,
                (true, false) => Orientation::Mirrored,
                (true, true) => Orientation::Rotated180,
                (false, true) => Orientation::UpsideDown,
            }
        }
    }

    /// Returns the numbers a, b, c and d of [`Orientation::from_matrix`].
    fn matrix(self) -> [i32; 4] {
        match self {
            Orientation::Upright => [1, 0, 0, 1],
            Orientation::Mirrored => [-1, 0, 0, 1],
            Orientation::Rotated180 => [-1, 0, 0, -1],
            Orientation::UpsideDown => [1, 0, 0, -1],
            Orientation::Transposed => [0, 1, 1, 0],
            Orientation::Rotated90 => [0, 1, -1, 0],
            Orientation::Transversed => [0, -1, -1, 0],
            Orientation::Rotated270 => [0, -1, 1, 0],
        }
    }

    /// Returns the movement that has the effect of this one, followed by `next`.
    ///
    /// ```
    /// use framepath_model::orientation::Orientation;
    ///
    /// assert_eq!(Orientation::Rotated90.then(Orientation::Rotated180), Orientation::Rotated270);
    /// assert_eq!(Orientation::Mirrored.then(Orientation::Rotated90), Orientation::Transversed);
    /// ```
    #[must_use]
    pub fn then(self, next: Orientation) -> Orientation {
        let ([a, b, c, d], [e, f, g, h]) = (self.matrix(), next.matrix());
        Orientation::from_matrix(e * a + g * b, f * a + h * b, e * c + g * d, f * c + h * d)
    }

    /// Returns the movement that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Orientation {
        match self {
            Orientation::Rotated90 => Orientation::Rotated270,
            Orientation::Rotated270 => Orientation::Rotated90,
            own_inverse => own_inverse,
        }
    }

    /// Returns true if rows become columns.
    pub fn swaps_sides(self) -> bool {
        self as u8 >= 5
    }
}

/// Writes the movement, such as `a clockwise turn by 90 degrees`.
impl fmt::Display for Orientation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Orientation::Upright => "no turn",
            Orientation::Mirrored => "left and right changed",
            Orientation::Rotated180 => "a turn by 180 degrees",
            Orientation::UpsideDown => "top and bottom changed",
            Orientation::Transposed => "a clockwise turn by 90 degrees, and left and right changed",
            Orientation::Rotated90 => "a clockwise turn by 90 degrees",
            Orientation::Transversed => "a clockwise turn by 270 degrees, and left and right changed",
            Orientation::Rotated270 => "a clockwise turn by 270 degrees",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movements_are_a_group() {
        for one in Orientation::ALL {
            let [a, b, c, d] = one.matrix();
            assert_eq!(Orientation::from_matrix(a << 16, b << 16, c << 16, d << 16), one);
            assert_eq!(one.then(one.inverse()), Orientation::Upright);
            assert_eq!((Orientation::Upright.then(one), one.then(Orientation::Upright)), (one, one));
            for two in Orientation::ALL {
                assert_eq!(one.then(two).inverse(), two.inverse().then(one.inverse()));
                assert_eq!(one.then(two).swaps_sides(), one.swaps_sides() != two.swaps_sides());
            }
        }
    }

    #[test]
    fn turns_by_other_angles_become_the_nearest_quarter() {
        // 30 and 60 degrees clockwise, and numbers that no transformation has.
        assert_eq!(Orientation::from_matrix(87, 50, -50, 87), Orientation::Upright);
        assert_eq!(Orientation::from_matrix(50, 87, -87, 50), Orientation::Rotated90);
        assert_eq!(Orientation::from_matrix(0, 0, 0, 0), Orientation::Upright);
        assert_eq!(Orientation::from_matrix(i32::MIN, 1, 1, i32::MIN), Orientation::Rotated180);
    }
}
