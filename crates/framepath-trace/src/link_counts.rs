// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the calls of one frame were linked with each other.

use serde::Serialize;

/// Numbers of links between the calls of frames, by the rule that made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// The same bytes, a copy that the library has seen made, or the time that a codec keeps.
    pub descent: u64,
    /// The presentation time alone.
    pub time: u64,
    /// The order: there was only one frame that it could be.
    pub order: u64,
}

impl std::ops::Add for LinkCounts {
    type Output = LinkCounts;

    fn add(self, other: LinkCounts) -> LinkCounts {
        LinkCounts {
            descent: self.descent + other.descent,
            time: self.time + other.time,
            order: self.order + other.order,
        }
    }
}

impl LinkCounts {
    /// Returns the sentence of the report; `None` if all links are by descent.
    pub(crate) fn note(self) -> Option<String> {
        let LinkCounts { descent, time, order } = self;
        let percent = |links: u64| 100.0 * links as f64 / (descent + time + order) as f64;
        (time + order > 0).then(|| {
            format!(
                "links of frames: {:.1} % by descent, {:.1} % by time, {:.1} % by order",
                percent(descent),
                percent(time),
                percent(order)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_are_not_by_descent_are_said() {
        assert_eq!(LinkCounts { descent: 9, ..LinkCounts::default() }.note(), None);
        let note = LinkCounts { descent: 900, time: 95, order: 5 }.note().unwrap();
        assert_eq!(note, "links of frames: 90.0 % by descent, 9.5 % by time, 0.5 % by order");
    }
}
