// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of noisy runs: spreads, percentiles, and ratios of paired runs.
//!
//! Runs of two contenders are made in pairs, next to each other in time, so that disturbances of
//! the machine affect both. The compared figure is the ratio within a pair. A verdict is given
//! only if the interval of the median ratio excludes 1. `docs/decisions/0005-statistics.md` has
//! the reasons and the simulation of the interval.

use serde::{Deserialize, Serialize};

/// Number of bootstrap resamples from which an interval is computed.
pub const RESAMPLES: usize = 10_000;

/// Minimum number of pairs for which order statistics alone give a 95 % interval. With n pairs,
/// the range from the least to the greatest value contains the median with probability 1 −
/// 2·0.5ⁿ: 0.938 for five and 0.969 for six.
pub const ENOUGH_PAIRS: usize = 6;

/// Median, minimum and maximum of some figures, in the figures' own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Middle value, or the mean of the two middle values.
    pub median: f64,
    /// Smallest of the figures.
    pub min: f64,
    /// Largest of the figures.
    pub max: f64,
    /// Ends of an interval that contains the true median with a probability of at least 95 %, with
    /// fewer than [`ENOUGH_PAIRS`] figures only if the noise is roughly normal. `None` for one
    /// figure, and if the summary that was read lacks the interval.
    #[serde(default)]
    pub ci95: Option<[f64; 2]>,
}

impl Spread {
    /// Computes the spread of `values` in any order. Returns `None` if there are no values or one
    /// is not finite.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let sorted = sorted(values)?;
        let ci95 = (sorted.len() > 1).then(|| sure_interval(&sorted));
        Some(Spread { median: middle(&sorted)?, min: *sorted.first()?, max: *sorted.last()?, ci95 })
    }
}

/// Computes the median of `values` in any order: the middle value, or the mean of the two middle
/// values. Returns `None` if there are no values or one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    middle(&sorted(values)?)
}

/// Returns the `percent`-th percentile (0 to 100) of `sorted`, values in rising order, by nearest
/// rank: the least value that at least `percent` % of the values do not exceed. The result is one
/// of the values, never between two. Returns `None` if there are no values.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil();
    let place = (rank.max(1.0) as usize).min(sorted.len());
    sorted.get(place.wrapping_sub(1)).copied()
}

/// Returns `values` in rising order; `None` if a value is not finite.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0)
}

/// Conclusion that the interval of a ratio a/b allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval includes 1, or there is no interval.
    NoDifference,
    /// The whole interval is below 1: a takes less than b.
    ALess,
    /// The whole interval is above 1: a takes more than b.
    AMore,
}

impl Verdict {
    /// Returns the verdict that `ci95`, the interval of a ratio a/b, allows: `NoDifference` if it is
    /// `None`.
    pub fn of(ci95: Option<[f64; 2]>) -> Verdict {
        match ci95 {
            Some([_, high]) if high < 1.0 => Verdict::ALess,
            Some([low, _]) if low > 1.0 => Verdict::AMore,
            _ => Verdict::NoDifference,
        }
    }
}

/// Difference a − b of paired runs, in the unit of the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifference {
    /// Median of the differences within the pairs.
    pub median: f64,
    /// Ends of an interval that contains the true median difference with a probability of at least
    /// 95 %, with fewer than [`ENOUGH_PAIRS`] pairs only if the noise is roughly normal; `None` for
    /// one pair.
    pub ci95: Option<[f64; 2]>,
    /// Number of pairs.
    pub pairs: usize,
}

/// Computes the median difference a − b over pairs, with an interval like that of
/// [`paired_ratio`]. Meant for figures where the absolute difference matters more than the ratio.
///
/// # Errors
///
/// No pairs, runs without a partner, or a figure that is not finite.
pub fn paired_difference(a: &[f64], b: &[f64], seed: u64) -> Result<PairedDifference, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::Unpaired { a: a.len(), b: b.len() });
    }
    let odd = a.iter().zip(b).position(|(a, b)| !(a - b).is_finite());
    if let Some(pair) = odd {
        return Err(StatsError::NoRatio { pair, a: a[pair], b: b[pair] });
    }
    let mut differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    differences.sort_by(f64::total_cmp);
    let median = middle(&differences).ok_or(StatsError::NoPairs)?;
    let ci95 = interval_of_median(&differences, seed, RESAMPLES);
    Ok(PairedDifference { median, ci95, pairs: differences.len() })
}

/// Ratio a/b of paired runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    /// Median of the ratios within the pairs. For an even number of pairs, it is the geometric mean
    /// of the two middle ratios, so that the ratio b/a is exactly the reciprocal of a/b.
    pub median: f64,
    /// Ends of an interval that contains the true median ratio with a probability of at least 95 %,
    /// with fewer than [`ENOUGH_PAIRS`] pairs only if the noise is roughly lognormal; `None` for
    /// one pair.
    pub ci95: Option<[f64; 2]>,
    /// Number of pairs.
    pub pairs: usize,
    /// Conclusion that the interval allows.
    pub verdict: Verdict,
}

/// Reason why the ratio or difference of pairs cannot be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// Neither contender has a run, so there is no pair to compare.
    #[error("cannot compare two contenders without a pair of runs; run each of them at least once")]
    NoPairs,
    /// The two contenders have different numbers of runs.
    #[error(
        "cannot pair {a} runs of contender a with {b} runs of contender b; give as many runs of one as of the other"
    )]
    Unpaired {
        /// Number of runs of contender a.
        a: usize,
        /// Number of runs of contender b.
        b: usize,
    },
    /// The figures of a pair cannot be compared: a ratio needs two positive finite figures, a
    /// difference two finite ones.
    #[error(
        "pair {pair}: cannot compare the figures {a} and {b}; a ratio needs two positive finite figures, a difference two \
         finite ones"
    )]
    NoRatio {
        /// Index of the pair, from 0.
        pair: usize,
        /// Figure of contender a in that pair.
        a: f64,
        /// Figure of contender b in that pair.
        b: f64,
    },
}

/// Computes the median ratio a/b over pairs of runs (`a[i]` ran next to `b[i]`), with a 95 %
/// interval and a verdict.
///
/// The interval is the wider of two: the percentile bootstrap of the median
/// ([`RESAMPLES`] resamples of the pairs, drawn from `seed`, so that the same
/// pairs give the same interval), and one that is correct for few pairs, where
/// the bootstrap is too narrow:
/// - from [`ENOUGH_PAIRS`] on, the order statistics between which the median
///   lies with 95 % whatever the noise is (the sign test's interval);
/// - below, where no such pair of order statistics exists, the range of all
///   ratios joined with Student's interval of their logarithms. This interval is wide, assumes
///   noise that is roughly lognormal, and should be read as a hint:
///   run six pairs or more for a verdict worth quoting;
/// - one pair has no interval and no verdict.
///
/// # Errors
///
/// No pairs, runs without a partner, or a figure that is not positive and finite.
pub fn paired_ratio(a: &[f64], b: &[f64], seed: u64) -> Result<PairedRatio, StatsError> {
    ratio_by(a, b, seed, RESAMPLES)
}

/// Computes the 95 % interval of the median of `sorted`, values in rising order, as
/// [`paired_ratio`] describes; `None` for fewer than two values. `seed` and `draws` are those of
/// the bootstrap.
fn interval_of_median(sorted: &[f64], seed: u64, draws: usize) -> Option<[f64; 2]> {
    (sorted.len() > 1).then(|| {
        let drawn = bootstrap_interval(sorted, seed, draws);
        let sure = sure_interval(sorted);
        [drawn[0].min(sure[0]), drawn[1].max(sure[1])]
    })
}

/// Computes the part of [`interval_of_median`] that is correct for few values: Student's interval below
/// [`ENOUGH_PAIRS`] values, order statistics from there on. Needs at least two values.
fn sure_interval(sorted: &[f64]) -> [f64; 2] {
    if sorted.len() < ENOUGH_PAIRS { student_interval(sorted) } else { order_interval(sorted) }
}

fn ratio_by(a: &[f64], b: &[f64], seed: u64, draws: usize) -> Result<PairedRatio, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::Unpaired { a: a.len(), b: b.len() });
    }
    // Logarithms make a/b and b/a mirror images.
    let mut logs = Vec::with_capacity(a.len());
    for (pair, (&a, &b)) in a.iter().zip(b).enumerate() {
        let log = a.ln() - b.ln();
        if !log.is_finite() {
            return Err(StatsError::NoRatio { pair, a, b });
        }
        logs.push(log);
    }
    logs.sort_by(f64::total_cmp);
    let median = middle(&logs).ok_or(StatsError::NoPairs)?;
    let ci95 = interval_of_median(&logs, seed, draws).map(|[low, high]| [low.exp(), high.exp()]);
    Ok(PairedRatio { median: median.exp(), ci95, pairs: logs.len(), verdict: Verdict::of(ci95) })
}

/// Computes the percentile bootstrap of the median of `sorted`, 2.5 % to 97.5 %, from `draws`
/// resamples drawn from `seed`.
fn bootstrap_interval(sorted: &[f64], seed: u64, draws: usize) -> [f64; 2] {
    let mut random = SplitMix64(seed);
    let mut places = vec![0_usize; sorted.len()];
    let mut medians = Vec::with_capacity(draws);
    for _ in 0..draws {
        for place in &mut places {
            *place = random.below(sorted.len());
        }
        places.sort_unstable();
        let upper = sorted[places[places.len() / 2]];
        let lower = sorted[places[(places.len() - 1) / 2]];
        medians.push((lower + upper) / 2.0);
    }
    medians.sort_by(f64::total_cmp);
    [medians[draws / 40], medians[draws - 1 - draws / 40]]
}

/// Returns the innermost pair of `sorted` values, equally far from both ends, between which the
/// median lies with at least 95 % probability. Below [`ENOUGH_PAIRS`] values, no pair is so sure,
/// and the two ends are returned. The k-th value from either end misses it with
/// probability 2·P(Binomial(n, ½) < k).
fn order_interval(sorted: &[f64]) -> [f64; 2] {
    let n = sorted.len();
    let mut outside = 0.0_f64;
    // P(Binomial(n, ½) = i), by logarithms: for a large n, 0.5ⁿ is zero as an `f64`.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut from_end = 0;
    for i in 0..n / 2 {
        outside += 2.0 * log_term.exp();
        if outside > 0.05 {
            break;
        }
        from_end = i;
        log_term += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    [sorted[from_end], sorted[n - 1 - from_end]]
}

/// Computes Student's 95 % interval of the mean of two to five values, widened to contain all of
/// them.
fn student_interval(sorted: &[f64]) -> [f64; 2] {
    // The 97.5 % point of Student's t for 1 to 4 degrees of freedom.
    const T: [f64; ENOUGH_PAIRS - 2] = [12.706, 4.303, 3.182, 2.776];
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T[sorted.len() - 2] * (variance / n).sqrt();
    [(mean - half).min(sorted[0]), (mean + half).max(sorted[sorted.len() - 1])]
}

/// SplitMix64 random number generator and its state: small, and good enough for resampling.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `n`, uniform except for one part in 2⁶⁴.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_of_values_in_any_order() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        let [low, high] = spread.ci95.unwrap();
        assert!(low < 1.0 && high > 3.0, "three figures have Student's wide interval: {low} to {high}");
        assert_eq!(Spread::of(&[7.0]).unwrap().ci95, None);
        let six = Spread::of(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).unwrap();
        assert_eq!(six.ci95, Some([1.0, 6.0]));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50.0), Some(50));
        assert_eq!(percentile(&values, 99.0), Some(99));
        assert_eq!(percentile(&values, 99.1), Some(100));
        assert_eq!(percentile(&values, 100.0), Some(100));
        assert_eq!(percentile(&values, 0.0), Some(1));
        assert_eq!(percentile(&[7], 95.0), Some(7));
        assert_eq!(percentile::<u64>(&[], 50.0), None);
    }

    #[test]
    fn the_order_interval_is_the_sign_tests() {
        // n and the k-th from either end, from tables of the sign test.
        for (n, k) in [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (30, 10)] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let expected = [f64::from(k), f64::from(n + 1 - k)];
            assert_eq!(order_interval(&sorted), expected, "{n}");
        }
        // 0.5ⁿ is below the smallest number; the interval must still exist.
        let sorted: Vec<f64> = (0..5000).map(f64::from).collect();
        let [low, high] = order_interval(&sorted);
        assert!(low > 2400.0 && high < 2600.0 && low < 2500.0);
    }

    #[test]
    fn a_ratio_mirrors_when_the_sides_swap() {
        let a = [1.0, 1.2, 0.9, 1.1, 1.05, 0.95, 1.0, 1.3];
        let b = [2.0, 2.1, 2.2, 1.9, 2.0, 2.05, 1.95, 2.3];
        let ab = paired_ratio(&a, &b, 1).unwrap();
        let ba = paired_ratio(&b, &a, 1).unwrap();
        assert!((ab.median * ba.median - 1.0).abs() < 1e-12);
        assert_eq!((ab.verdict, ba.verdict), (Verdict::ALess, Verdict::AMore));
        assert_eq!(ab.pairs, 8);
        assert_eq!(paired_ratio(&a, &b, 1).unwrap(), ab, "the same seed, the same interval");
    }

    #[test]
    fn one_pair_has_no_interval_and_five_have_a_wide_one() {
        let one = paired_ratio(&[1.0], &[2.0], 1).unwrap();
        assert_eq!((one.ci95, one.verdict), (None, Verdict::NoDifference));
        let a = [0.98, 0.99, 0.97, 0.96, 0.95];
        let five = paired_ratio(&a, &[1.0; 5], 1).unwrap();
        let [low, high] = five.ci95.unwrap();
        assert!(low <= 0.95 && high >= 0.99);
    }

    #[test]
    fn values_without_a_ratio_are_refused() {
        assert_eq!(paired_ratio(&[], &[], 1), Err(StatsError::NoPairs));
        assert_eq!(paired_ratio(&[1.0], &[], 1), Err(StatsError::Unpaired { a: 1, b: 0 }));
        for (a, b) in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::INFINITY, 1.0)] {
            let error = paired_ratio(&[1.0, a], &[1.0, b], 1).unwrap_err();
            assert_eq!(error, StatsError::NoRatio { pair: 1, a, b });
        }
    }

    /// Draws a standard normal number by Box and Muller's method.
    fn normal(random: &mut SplitMix64) -> f64 {
        let unit = |n: u64| ((n >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let (u, v) = (unit(random.next()), unit(random.next()));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Counts wrong verdicts among `trials` comparisons of a contender with itself, by
    /// [`paired_ratio`] and by the bootstrap alone. `tail` is the disturbance of some runs, as a
    /// logarithm.
    fn wrong_verdicts(pairs: usize, trials: usize, draws: usize, tail: f64) -> (usize, usize) {
        let mut random = SplitMix64(42 + pairs as u64);
        // Lognormal noise of 5 %; some runs are disturbed.
        let mut run = || {
            let disturbed = if normal(&mut random) > 1.6 { tail } else { 0.0 };
            (0.05 * normal(&mut random) + disturbed).exp()
        };
        let (mut ours, mut bare) = (0, 0);
        for trial in 0..trials {
            let a: Vec<f64> = (0..pairs).map(|_| run()).collect();
            let b: Vec<f64> = (0..pairs).map(|_| run()).collect();
            let ratio = ratio_by(&a, &b, trial as u64, draws).unwrap();
            ours += usize::from(ratio.verdict != Verdict::NoDifference);
            let logs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a / b).ln()).collect();
            let [low, high] = bootstrap_interval(&sorted(&logs).unwrap(), trial as u64, draws);
            bare += usize::from(low > 0.0 || high < 0.0);
        }
        (ours, bare)
    }

    #[test]
    fn a_contender_against_itself_is_no_difference() {
        // Fewer than RESAMPLES: a simulation makes thousands of comparisons.
        const DRAWS: usize = 100;
        const TRIALS: usize = 400;
        for pairs in [2, 3, 5, 6, 10, 20] {
            for tail in [0.0, 0.5] {
                let (ours, _) = wrong_verdicts(pairs, TRIALS, DRAWS, tail);
                assert!(ours <= TRIALS / 20, "{pairs} pairs: {ours} of {TRIALS} wrong");
            }
        }
    }

    /// Prints the figures in the decision: `cargo test --release -p framepath-model
    /// wrong_verdict_table -- --ignored --nocapture`.
    #[test]
    #[ignore = "prints a table; takes a minute"]
    fn wrong_verdict_table() {
        const DRAWS: usize = 400;
        const TRIALS: usize = 20_000;
        for pairs in [2, 3, 4, 5, 6, 7, 8, 10, 15, 20] {
            for tail in [0.0, 0.5] {
                let (ours, bare) = wrong_verdicts(pairs, TRIALS, DRAWS, tail);
                let percent = |n: usize| 100.0 * n as f64 / TRIALS as f64;
                println!(
                    "{pairs} pairs, disturbance {tail}: {:.2} % wrong, bootstrap alone {:.2} %",
                    percent(ours),
                    percent(bare)
                );
            }
        }
    }
}
