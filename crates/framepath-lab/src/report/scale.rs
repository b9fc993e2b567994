// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of figures to pixels, and positions of ticks.

use super::svg::text_width;

/// Least distance between two labels of an axis, in CSS pixels.
const LABEL_GAP: f64 = 8.0;

/// Smallest and largest figures of a scale. Ticks of figures without a bound would have no end, or not be apart.
const LEAST: f64 = 1e-12;
const MOST: f64 = 1e18;

/// A linear or a logarithmic scale. Maps the figures `from` to `to` onto the pixels `start` to `end`;
/// `end` may be the smaller pixel.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    /// Creates a linear scale from 0 to `most`, drawn from pixel `start` to pixel `end`. A `most`
    /// that is not above 0 or not finite becomes 1, and another one is limited to 1e-12 to 1e18.
    pub fn linear(most: f64, start: f64, end: f64) -> Scale {
        let most = if most > 0.0 && most.is_finite() { most.clamp(LEAST, MOST) } else { 1.0 };
        Scale { from: 0.0, to: most, start, end, logarithmic: false }
    }

    /// Creates a logarithmic scale from `least` to `most`, drawn from pixel `start` to pixel `end`.
    /// A `least` that is not above 0 or not finite becomes 1; a `most` that is not above `least` or not
    /// finite becomes ten times `least`. Both are limited to 1e-12 to 1e18.
    pub fn logarithmic(least: f64, most: f64, start: f64, end: f64) -> Scale {
        let least = if least > 0.0 && least.is_finite() { least.clamp(LEAST, MOST / 10.0) } else { 1.0 };
        let most = if most > least && most.is_finite() { most.min(MOST) } else { least * 10.0 };
        Scale { from: least, to: most, start, end, logarithmic: true }
    }

    /// Creates a logarithmic scale of whole decades, at least one, that contains `least` to
    /// `most`.
    pub fn decades(least: f64, most: f64, start: f64, end: f64) -> Scale {
        let plain = Scale::logarithmic(least, most, start, end);
        let from = 10_f64.powf(plain.from.log10().floor());
        let to = 10_f64.powf((plain.to.log10() - 1e-9).ceil()).max(from * 10.0);
        Scale { from, to, ..plain }
    }

    /// Returns the pixel of a figure; a figure beyond an end of the scale gets that end's pixel.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Returns the figures that get a tick: on a linear scale the multiples of a step, which is 1,
    /// 2 or 5 times a power of ten and gives about `wanted` ticks; on a logarithmic scale every
    /// power of ten.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.logarithmic {
            let first = (self.from.log10() - 1e-9).ceil() as i32;
            let last = (self.to.log10() + 1e-9).floor() as i32;
            return (first..=last).map(|power| 10_f64.powi(power)).collect();
        }
        let rough = (self.to - self.from) / wanted.max(1) as f64;
        let decade = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(decade * 10.0);
        let count = ((self.to - self.from) / step + 1e-9).floor() as usize;
        (0..=count).map(|i| self.from + i as f64 * step).collect()
    }

    /// Returns the pixel and the text of each tick's label, for labels that are centred below their ticks.
    /// Leaves out a label that would touch the one before it.
    pub fn labels(&self, wanted: usize, text: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        let mut labels: Vec<(f64, String)> = Vec::new();
        let mut taken = f64::NEG_INFINITY;
        for value in self.ticks(wanted) {
            let (place, text) = (self.at(value), text(value));
            let half = text_width(&text, 12.0) / 2.0;
            if place - half >= taken {
                taken = place + half + LABEL_GAP;
                labels.push((place, text));
            }
        }
        labels
    }

    /// Returns the figures of the ticks between the decades of a logarithmic scale: 2 to 9 times
    /// each power of ten.
    pub fn minor_ticks(&self) -> Vec<f64> {
        let decades = self.ticks(0);
        decades
            .iter()
            .flat_map(|decade| (2..=9).map(move |i| decade * f64::from(i)))
            .filter(|value| *value < self.to)
            .collect()
    }
}

/// Moves label positions, in pixels, apart until neighbours are at least `gap` from each other, in at most
/// 200 steps. Each label stays near its original position, and between `least` and `most` if there is room.
/// The result has the order of `places`.
pub fn spread_out(places: &[f64], gap: f64, least: f64, most: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    let mut moved: Vec<f64> = order.iter().map(|i| places[*i]).collect();
    // Each step moves two close neighbours apart by half the missing gap, until none moves.
    for _ in 0..200 {
        let mut still = true;
        for i in 1..moved.len() {
            let lacking = gap - (moved[i] - moved[i - 1]);
            if lacking > 0.01 {
                moved[i - 1] -= lacking / 2.0;
                moved[i] += lacking / 2.0;
                still = false;
            }
        }
        if let Some(first) = moved.first_mut() {
            *first = first.max(least);
        }
        if let Some(last) = moved.last_mut() {
            *last = last.min(most);
        }
        if still {
            break;
        }
    }
    let mut answer = vec![0.0; places.len()];
    for (place, i) in moved.into_iter().zip(order) {
        answer[i] = place;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_their_ends_to_the_edges() {
        let linear = Scale::linear(50.0, 100.0, 200.0);
        assert_eq!((linear.at(0.0), linear.at(25.0), linear.at(99.0)), (100.0, 150.0, 200.0));
        assert_eq!(linear.ticks(5), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let log = Scale::decades(0.03, 42.0, 400.0, 0.0);
        assert_eq!(log.ticks(0), [0.01, 0.1, 1.0, 10.0, 100.0]);
        assert!((log.at(1.0) - 200.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 400.0);
    }

    #[test]
    fn empty_and_invalid_ranges_have_a_scale() {
        for (least, most) in
            [(0.0, 0.0), (f64::NAN, f64::NAN), (5.0, 5.0), (-1.0, f64::INFINITY), (5e-324, f64::MAX)]
        {
            for most in [least, most] {
                assert!(Scale::linear(most, 0.0, 9.0).ticks(5).len() < 20);
            }
            let decades = Scale::decades(least, most, 0.0, 9.0);
            assert!(decades.at(1.0).is_finite() && decades.ticks(0).len() < 40);
        }
    }

    #[test]
    fn labels_are_kept_apart() {
        let moved = spread_out(&[10.0, 90.0, 11.0, 12.0], 14.0, 0.0, 100.0);
        let mut sorted = moved.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] > 13.9), "{sorted:?}");
        assert!(moved[0] < moved[2] && moved[2] < moved[3] && moved[3] < moved[1]);
    }
}
