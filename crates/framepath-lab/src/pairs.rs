// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs contenders interleaved, never in blocks, and compares them pair by pair. The odd rounds run
//! A B C, the even rounds C B A, so that a slow drift of the machine affects all contenders equally.

use std::collections::BTreeMap;

use framepath_model::stats::{Spread, median, paired_ratio};
use framepath_model::summary::{LatencyUs, Ratio, Skipped, Summary, SummaryRow};
use framepath_os::process::signal;

use crate::error::LabError;
use crate::measure::{Contender, Measured};
use crate::progress::ProgressView;

/// One comparison of two contenders by the ratio a/b: metric, contender `a`, contender `b`.
pub type Comparison<'a> = (&'a str, &'a str, &'a str);

/// Seed of the bootstrap of every ratio, constant for reproducible summaries.
const SEED: u64 = 0x6672_616d_6570_6174;

/// Runs every contender of `case` once per round. Adds rows, the ratios of `comparisons` that can be
/// computed, and skipped contenders to `summary`. Returns the figures of each contender's runs, in the
/// order of `contenders`. A contender that fails with [`LabError::Missing`] in one round does not run
/// again and gets no row; only its earlier runs are returned.
///
/// # Errors
/// The first failure of a contender, except [`LabError::Missing`], which only skips the
/// contender; [`LabError::Interrupted`] after SIGINT or SIGTERM. After an error, `summary` is unchanged.
pub fn run(
    case: &str,
    mut contenders: Vec<Contender<'_>>,
    comparisons: &[Comparison<'_>],
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<Vec<Vec<Measured>>, LabError> {
    let mut runs: Vec<Vec<Measured>> = contenders.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let mut missing: Vec<Option<String>> = vec![None; contenders.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
            let contender = &mut contenders[at];
            watch.step(&format!("{case} {}", contender.name));
            if missing[at].is_some() {
                continue;
            }
            match (contender.run)() {
                Ok(measured) => runs[at].push(measured),
                Err(LabError::Missing(reason)) => missing[at] = Some(reason),
                Err(error) => return Err(error),
            }
        }
    }
    for ((contender, runs), missing) in contenders.iter().zip(&runs).zip(missing) {
        match missing {
            Some(reason) => summary.skipped.push(Skipped {
                contender: contender.name.clone(),
                case: Some(case.to_owned()),
                reason,
            }),
            None => summary.rows.push(row(case, &contender.name, runs)),
        }
    }
    for (metric, a, b) in comparisons {
        let of = |name: &str| contenders.iter().position(|c| c.name == name).map(|at| &runs[at]);
        if let (Some(a_runs), Some(b_runs)) = (of(a), of(b)) {
            summary.ratios.extend(ratio(case, metric, (a, a_runs), (b, b_runs)));
        }
    }
    Ok(runs)
}

/// Computes the paired ratio a/b of `metric`; `a` and `b` are names with the figures of the runs.
/// Returns `None` if a run lacks the metric, a figure is not above 0, or the sides have different
/// numbers of runs or none.
pub fn ratio(case: &str, metric: &str, a: (&str, &[Measured]), b: (&str, &[Measured])) -> Option<Ratio> {
    let figures = |runs: &[Measured]| runs.iter().map(|m| m.metric(metric)).collect::<Option<Vec<_>>>();
    let (a_figures, b_figures) = (figures(a.1)?, figures(b.1)?);
    let paired = paired_ratio(&a_figures, &b_figures, SEED).ok()?;
    Some(Ratio::new(case, metric, a.0, b.0, &paired))
}

/// Creates the summary row of `runs`. Wall time and CPU time have median, minimum and maximum over
/// the runs. The other figures are medians of the known ones, except the number of frames (of the
/// last run), the peak memory (the largest), the causes, the hops and `other_cpu_us` (of the run whose
/// causes have the median total), and `cpu_us_per_frame` (the median CPU time divided by the frames).
pub fn row(case: &str, contender: &str, runs: &[Measured]) -> SummaryRow {
    let spread = |f: fn(&Measured) -> f64| Spread::of(&runs.iter().map(f).collect::<Vec<_>>());
    let middle = |f: &dyn Fn(&Measured) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(f).collect();
        median(&known)
    };
    let latency = |f: fn(&LatencyUs) -> f64| middle(&|m| m.latency.as_ref().map(f));
    let latency_us = latency(|l| l.p50).and_then(|p50| {
        Some(LatencyUs { p50, p95: latency(|l| l.p95)?, p99: latency(|l| l.p99)?, max: latency(|l| l.max)? })
    });
    let keys = runs.iter().flat_map(|m| m.extra.keys().cloned());
    let extra = keys.filter_map(|key| Some((key.clone(), middle(&|m| m.extra.get(&key).copied())?)));
    let extra: BTreeMap<String, f64> = extra.collect();
    let typical = typical(runs);
    let cpu_ms = spread(|m| m.cpu_ns as f64 / 1e6);
    let frames = runs.last().map_or(0, |m| m.frames);
    // The pushes of lab `queue` are no frames; its rows have `cpu_us_per_push` instead.
    let has_frames = !extra.contains_key("cpu_us_per_push");
    SummaryRow {
        case: case.to_owned(),
        contender: contender.to_owned(),
        runs: runs.len() as u32,
        frames,
        wall_ms: spread(|m| m.wall_ns as f64 / 1e6),
        cpu_ms,
        cpu_us_per_frame: SummaryRow::per_frame(cpu_ms, frames).filter(|_| has_frames),
        load: middle(&|m| (m.wall_ns > 0).then(|| m.cpu_ns as f64 / m.wall_ns as f64)),
        latency_us,
        copied_bytes_per_frame: middle(&|m| m.copied_bytes_per_frame),
        switches_per_frame: middle(&|m| m.switches_per_frame),
        syscalls_per_frame: None,
        causes_us: typical.and_then(|m| m.causes),
        hops: typical.map(|m| m.hops.clone()).unwrap_or_default(),
        advice: Vec::new(),
        other_cpu_us: typical.and_then(|m| m.other_cpu_us),
        peak_memory_kib: runs.iter().filter_map(|m| m.peak_memory_kib).max(),
        extra,
    }
}

/// Returns the run whose causes have the median total, of two middle runs the one with the smaller
/// total; `None` if no run has causes. The causes of one run add up; medians of each cause would
/// not.
fn typical(runs: &[Measured]) -> Option<&Measured> {
    let total = |m: &Measured| m.causes.and_then(|causes| causes.total()).unwrap_or(0.0);
    let mut known: Vec<&Measured> = runs.iter().filter(|m| m.causes.is_some()).collect();
    known.sort_by(|a, b| total(a).total_cmp(&total(b)));
    known.get(known.len().saturating_sub(1) / 2).copied()
}
