// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expressions of the filter `setpts` that move times or stretch them: `PTS-STARTPTS`, `0.5*PTS`, `PTS+2/TB`.
//!
//! Source of the names: FFmpeg's documentation of filters, "setpts, asetpts".

/// New time of a picture: `scale * PTS + shift`, with the time since the first picture in place of `PTS` if the times begin anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PtsExpression {
    scale: f64,
    begins_anew: bool,
    shift_ns: f64,
}

impl PtsExpression {
    /// Parses an expression; `None` for one of another kind.
    pub(crate) fn parse(text: &str) -> Option<PtsExpression> {
        // The shift: a number of seconds at the end.
        let (product, seconds) = match text.strip_suffix("/TB") {
            Some(rest) => {
                let sign = rest.rfind(['+', '-'])?;
                (&rest[..sign], rest[sign..].parse::<f64>().ok()?)
            }
            None => (text, 0.0),
        };
        let from_start = product.split_once("(PTS-STARTPTS)");
        let (begins_anew, factors) = match (product, from_start) {
            ("PTS-STARTPTS", _) => (true, ("", "")),
            (_, Some(factors)) => (true, factors),
            _ => (false, product.split_once("PTS")?),
        };
        let number = |text: &str| text.parse::<f64>().ok();
        let scale = match factors {
            ("", "") => 1.0,
            (factor, "") => number(factor.strip_suffix('*')?)?,
            ("", factor) => match factor.strip_prefix('/') {
                Some(divisor) => 1.0 / number(divisor)?,
                None => number(factor.strip_prefix('*')?)?,
            },
            _ => return None,
        };
        let is_usable = scale.is_normal() && scale > 0.0 && seconds.is_finite();
        is_usable.then_some(PtsExpression { scale, begins_anew, shift_ns: seconds * 1e9 })
    }

    /// True if times are not only moved.
    pub(crate) fn is_stretching(self) -> bool {
        self.scale != 1.0
    }

    /// Returns the time in front of the filter of a picture that has the time `ns` behind it, nanoseconds. `start_ns` is the
    /// time of the first picture.
    pub(crate) fn before(self, ns: i64, start_ns: i64) -> i64 {
        let since = (ns as f64 - self.shift_ns) / self.scale;
        (since as i64).saturating_add(if self.begins_anew { start_ns } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_moved_or_stretched_are_found_again() {
        let before = |text: &str, ns, start_ns| PtsExpression::parse(text).map(|it| it.before(ns, start_ns));
        assert_eq!(before("PTS", 70, 5), Some(70));
        assert_eq!(before("PTS-STARTPTS", 70, 5), Some(75));
        assert_eq!(before("0.5*PTS", 70, 5), Some(140));
        assert_eq!(before("PTS*2", 70, 5), Some(35));
        assert_eq!(before("PTS/2", 70, 5), Some(140));
        assert_eq!(before("2*(PTS-STARTPTS)", 70, 5), Some(40));
        assert_eq!(before("PTS+2/TB", 2_000_000_070, 5), Some(70));
        assert_eq!(before("PTS-STARTPTS-1.5/TB", 70, 5), Some(1_500_000_075));
        assert_eq!(before("(PTS-STARTPTS)/2+1/TB", 1_000_000_070, 5), Some(145));
        assert_eq!(before("PTS", i64::MAX, i64::MAX), Some(i64::MAX));
    }

    #[test]
    fn another_expression_is_refused() {
        let others = [
            "N/FRAME_RATE/TB",
            "2*PTS-STARTPTS",
            "PTS-STARTPTS*2",
            "PTS+PTS",
            "-1*PTS",
            "0*PTS",
            "PTS/0",
            "PTS*nan",
            "RTCTIME",
            "PTS+x/TB",
            "PTS/TB",
            "/TB",
            "",
            "if(eq(N,0),0,PTS)",
        ];
        for text in others {
            assert_eq!(PtsExpression::parse(text), None, "{text}");
        }
    }
}
