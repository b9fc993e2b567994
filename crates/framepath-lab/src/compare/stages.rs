// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences of two traced sides by stage and cause.

use framepath_model::ledger::Causes;
use framepath_model::shown::shown;
use framepath_model::shown_time::shown_time;
use framepath_model::stats::{median, paired_difference};
use serde::Serialize;

use super::traced_side::{StageTimes, known_causes};
use super::{SEED, aligned};

/// Difference of two sides in one stage: in one cause, or in all together. Times are microseconds per frame: in each
/// run the mean over its frames, of the runs the median.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageDifference {
    /// Name of the stage in side a, such as `decode h264`; `None` if that side has no such stage.
    pub stage_a: Option<String>,
    /// Name of the stage in side b; `None` if that side has no such stage.
    pub stage_b: Option<String>,
    /// Name of the cause; `None` for all causes together.
    pub cause: Option<&'static str>,
    /// Time in side a; `None` without the stage.
    pub a_us: Option<f64>,
    /// Time in side b; `None` without the stage.
    pub b_us: Option<f64>,
    /// Median of the differences a - b within the pairs; `None` if a side lacks the stage.
    pub difference_us: Option<f64>,
    /// Ends of the 95 % interval of the difference; `None` for a single pair, and without a difference.
    pub ci95: Option<[f64; 2]>,
    /// Number of pairs.
    pub pairs: usize,
}

impl StageDifference {
    fn stage(&self) -> String {
        match (&self.stage_a, &self.stage_b) {
            (Some(a), Some(b)) if a != b => format!("{} / {}", shown(a), shown(b)),
            (Some(name), _) | (None, Some(name)) => shown(name).into_owned(),
            (None, None) => String::new(),
        }
    }

    /// Returns true if the interval excludes 0.
    fn is_certain(&self) -> bool {
        self.ci95.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }
}

/// Computes the differences of the runs `a` and `b`, which are paired: for each stage all causes together, and then each
/// known cause. Stages of the two sides belong together if the first words of their names are equal: `encode libx264` and
/// `encode mpeg4`.
pub(super) fn differences(a: &[StageTimes], b: &[StageTimes]) -> Vec<StageDifference> {
    let mut differences = Vec::new();
    for key in keys(a, b) {
        let [of_a, of_b] = [a, b].map(|runs| times(runs, &key));
        let known = of_a.iter().chain(&of_b).filter_map(|time| time.as_ref().map(|(_, causes)| causes));
        let causes = known_causes(known).into_iter().map(Some);
        for cause in std::iter::once(None).chain(causes) {
            let figure = |causes: &Causes| match cause {
                None => causes.total() / 1e3,
                Some(cause) => causes[cause].unwrap_or(0.0) / 1e3,
            };
            let figures = |runs: &[Option<(String, Causes)>]| -> Vec<f64> {
                runs.iter().map(|time| time.as_ref().map_or(0.0, |(_, causes)| figure(causes))).collect()
            };
            let name = |runs: &[Option<(String, Causes)>]| {
                runs.iter().flatten().next().map(|(name, _)| name.clone())
            };
            let (stage_a, stage_b) = (name(&of_a), name(&of_b));
            let (in_a, in_b) = (figures(&of_a), figures(&of_b));
            let has_both = stage_a.is_some() && stage_b.is_some();
            let paired = paired_difference(&in_a, &in_b, SEED).ok().filter(|_| has_both);
            differences.push(StageDifference {
                a_us: median(&in_a).filter(|_| stage_a.is_some()),
                b_us: median(&in_b).filter(|_| stage_b.is_some()),
                stage_a,
                stage_b,
                cause: cause.map(|cause| cause.name()),
                difference_us: paired.map(|paired| paired.median),
                ci95: paired.and_then(|paired| paired.ci95),
                pairs: in_a.len().min(in_b.len()),
            });
        }
    }
    differences
}

/// Returns the first words of the stages' names, in the order of side a; the stages that only side b has are behind the
/// stage in front of them.
fn keys(a: &[StageTimes], b: &[StageTimes]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for run in a.iter().chain(b) {
        let mut at = 0;
        for (name, _) in run {
            match keys.iter().position(|key| key == word(name)) {
                Some(known) => at = known + 1,
                None => {
                    keys.insert(at, word(name).to_owned());
                    at += 1;
                }
            }
        }
    }
    keys
}

fn times(runs: &[StageTimes], key: &str) -> Vec<Option<(String, Causes)>> {
    runs.iter().map(|run| run.iter().find(|(name, _)| word(name) == key).cloned()).collect()
}

fn word(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Smallest share of a frame's time with which a cause has a line.
const LISTED: f64 = 0.01;

/// Formats the differences as a table, and the largest one in a line; empty without stages.
pub(super) fn text(differences: &[StageDifference]) -> String {
    if differences.is_empty() {
        return String::new();
    }
    let all = |of: fn(&StageDifference) -> Option<f64>| -> f64 {
        differences.iter().filter(|row| row.cause.is_none()).filter_map(of).sum()
    };
    let least_us = LISTED * all(|row| row.a_us).max(all(|row| row.b_us));
    let is_listed = |row: &&StageDifference| {
        row.cause.is_none() || [row.a_us, row.b_us].into_iter().flatten().any(|us| us.abs() >= least_us)
    };
    let ms = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / 1e3));
    let mut lines = vec![["ms per frame", "a", "b", "a - b", "95 % interval"].map(str::to_owned)];
    for row in differences.iter().filter(is_listed) {
        let name = row.cause.map_or_else(|| row.stage(), |cause| format!("  {cause}"));
        let difference = row.difference_us.map_or_else(String::new, |us| format!("{:+.2}", us / 1e3));
        let interval = row
            .ci95
            .map_or_else(String::new, |[low, high]| format!("{:+.2} to {:+.2}", low / 1e3, high / 1e3));
        lines.push([name, ms(row.a_us), ms(row.b_us), difference, interval]);
    }
    format!("\n{}\n{}\n", aligned(&lines), largest(differences))
}

/// Names the largest difference in a cause: of those whose interval excludes 0, if there is one.
fn largest(differences: &[StageDifference]) -> String {
    let size = |row: &&StageDifference| row.difference_us.unwrap_or(0.0).abs();
    let causes = || differences.iter().filter(|row| row.cause.is_some() && row.difference_us.is_some());
    let largest = |of: &mut dyn Iterator<Item = &StageDifference>| -> Option<StageDifference> {
        of.max_by(|x, y| size(x).total_cmp(&size(y))).cloned()
    };
    let certain = largest(&mut causes().filter(|row| row.is_certain()));
    let Some(row) = certain.clone().or_else(|| largest(&mut causes())) else {
        return "largest difference: the sides have no stage in common".to_owned();
    };
    let signed = |us: f64| format!("{}{}", if us < 0.0 { "" } else { "+" }, shown_time(us * 1e3));
    let what = format!(
        "{}: {} {} per frame",
        row.stage(),
        row.cause.unwrap_or_default(),
        signed(row.difference_us.unwrap_or(0.0))
    );
    match row.ci95 {
        None => format!("largest difference a - b: {what} (1 pair: no interval)"),
        Some([low, high]) => {
            let interval = format!("95 % interval {} to {}", signed(low), signed(high));
            if certain.is_some() {
                format!("largest difference a - b: {what} ({interval})")
            } else {
                format!("no stage differs; the largest a - b is within the noise: {what} ({interval})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::ledger::Cause;

    use super::*;

    fn stage(name: &str, compute_ms: f64, held_ms: f64) -> (String, Causes) {
        let mut causes = Causes::default();
        causes[Cause::Compute] = Some(compute_ms * 1e6);
        causes[Cause::Held] = (held_ms > 0.0).then_some(held_ms * 1e6);
        (name.to_owned(), causes)
    }

    fn runs(noise: [f64; 6], held: f64, encoder: &str) -> Vec<StageTimes> {
        let run =
            |noise| vec![stage("decode h264", 4.0 + noise, held + noise), stage(encoder, 1.0 + noise, 0.0)];
        noise.into_iter().map(run).collect()
    }

    #[test]
    fn the_largest_certain_difference_is_named() {
        let a = runs([0.0, 0.1, 0.0, 0.1, 0.2, 0.0], 8.0, "encode libx264");
        let b = runs([0.1, 0.0, 0.1, 0.0, 0.2, 0.1], 5.0, "encode mpeg4");
        let found = differences(&a, &b);
        let held = found.iter().find(|row| row.cause == Some("held")).unwrap();
        assert_eq!(held.stage(), "decode h264");
        assert!((held.difference_us.unwrap() - 3000.0).abs() < 101.0, "{held:?}");
        assert!(found.iter().any(|row| row.stage() == "encode libx264 / encode mpeg4" && !row.is_certain()));
        let text = text(&found);
        assert!(text.contains("largest difference a - b: decode h264: held +2.9"), "{text}");
        let same = differences(&b, &b);
        assert!(super::text(&same).contains("no stage differs"), "{}", super::text(&same));
    }

    #[test]
    fn a_stage_of_one_side_has_no_difference() {
        let a = vec![vec![
            stage("demux mov", 1.0, 0.0),
            stage("filter scale", 2.0, 0.0),
            stage("mux avi", 1.0, 0.0),
        ]];
        let b = vec![vec![
            stage("demux mov", 1.0, 0.0),
            stage("decode h264", 2.0, 0.0),
            stage("mux avi", 1.5, 0.0),
        ]];
        let found = differences(&a, &b);
        let stages: Vec<(String, Option<f64>)> = found
            .iter()
            .filter(|row| row.cause.is_none())
            .map(|row| (row.stage(), row.difference_us))
            .collect();
        let wanted = [
            ("demux mov", Some(0.0)),
            ("decode h264", None),
            ("filter scale", None),
            ("mux avi", Some(-500.0)),
        ];
        assert_eq!(stages, wanted.map(|(name, us)| (name.to_owned(), us)));
        assert!(text(&found).contains("mux avi: compute -500.0 µs per frame (1 pair: no interval)"));
        assert_eq!(text(&[]), "");
        let nothing = differences(&a, &[vec![]]);
        assert!(text(&nothing).contains("no stage in common"));
    }
}
