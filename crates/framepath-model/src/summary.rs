// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of the lab's summaries. It is stable: keys are added, never
//! renamed. An unknown figure is `null`, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::stats::{PairedRatio, Spread, Verdict, percentile};

/// Result of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The experiment's name, such as `decode`.
    pub experiment: String,
    /// Machine on which the experiment ran.
    pub machine: Machine,
    /// Start of the experiment, in seconds since 1970-01-01 UTC.
    #[serde(default)]
    pub started_unix_s: Option<u64>,
    /// One row per case and contender.
    #[serde(default)]
    pub rows: Vec<SummaryRow>,
    /// Comparisons of two contenders over paired runs.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
    /// Contenders that did not run, and why.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Other facts that a reader must know, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Description of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that the process may run on.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// True if hardware counters (cycles, instructions) can be read.
    pub pmu: bool,
    /// The distribution, such as `Debian GNU/Linux 13 (trixie)`.
    #[serde(default)]
    pub os: Option<String>,
    /// The machine's memory in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Hypervisor or container in which the machine runs, if known.
    #[serde(default)]
    pub virtualisation: Option<String>,
    /// The processor's frequency governor.
    #[serde(default)]
    pub governor: Option<String>,
    /// Graphics cards, by the names the kernel has for them.
    #[serde(default)]
    pub gpu: Option<String>,
    /// The graphics card's kernel driver.
    #[serde(default)]
    pub gpu_driver: Option<String>,
    /// Names of the displays that windows were shown on, separated by commas.
    #[serde(default)]
    pub display: Option<String>,
    /// Versions of the programs and libraries that took part.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

/// One contender over one case: medians over its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    /// Input of the runs, such as a clip's or a buffer size's name.
    pub case: String,
    /// Name of the contender.
    pub contender: String,
    /// Number of runs.
    pub runs: u32,
    /// Frames, or pushes, in one run.
    pub frames: u64,
    /// Wall time of a run in milliseconds.
    #[serde(default)]
    pub wall_ms: Option<Spread>,
    /// CPU time of a run, of everything the contender started, in milliseconds.
    #[serde(default)]
    pub cpu_ms: Option<Spread>,
    /// CPU time over wall time: 1 is one core, busy throughout.
    #[serde(default)]
    pub load: Option<f64>,
    /// A frame's latency in microseconds.
    #[serde(default)]
    pub latency_us: Option<LatencyUs>,
    /// Pixel and packet bytes the CPU moved, per frame.
    #[serde(default)]
    pub copied_bytes_per_frame: Option<f64>,
    /// Context switches per frame.
    #[serde(default)]
    pub switches_per_frame: Option<f64>,
    /// System calls per frame.
    #[serde(default)]
    pub syscalls_per_frame: Option<f64>,
    /// Causes of the median frame's latency.
    #[serde(default)]
    pub causes_us: Option<CausesUs>,
    /// The greatest resident memory in KiB.
    #[serde(default)]
    pub peak_memory_kib: Option<u64>,
    /// Figures of this experiment alone, such as `cpu_us_per_push`.
    /// Written as keys of the row. The reader drops other keys whose values are not numbers.
    #[serde(flatten, deserialize_with = "numbers_only")]
    pub extra: BTreeMap<String, f64>,
}

/// Percentiles of latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Latency that half of the frames do not exceed.
    pub p50: f64,
    /// Latency that 95 % of the frames do not exceed.
    pub p95: f64,
    /// Latency that 99 % of the frames do not exceed.
    pub p99: f64,
    /// Maximum latency of all frames.
    pub max: f64,
}

impl LatencyUs {
    /// Computes percentiles of latencies in nanoseconds, sorted in rising order; `None` if there
    /// are none.
    pub fn of_sorted_ns(sorted: &[u64]) -> Option<LatencyUs> {
        let at = |percent| Some(percentile(sorted, percent)? as f64 / 1000.0);
        Some(LatencyUs { p50: at(50.0)?, p95: at(95.0)?, p99: at(99.0)?, max: at(100.0)? })
    }
}

/// A frame's latency divided among its causes, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CausesUs {
    /// CPU time in a stage, copies left out.
    pub compute: Option<f64>,
    /// Time in which the CPU copied pixel or packet bytes.
    pub copy: Option<f64>,
    /// Waiting for a consumer that was busy.
    pub queue: Option<f64>,
    /// Time kept by a decoder for presentation order or for the depth of its frame threads.
    pub held: Option<f64>,
    /// Time from hand-off until an idle consumer ran.
    pub wakeup: Option<f64>,
    /// Time in which a stage could run, but another thread had the CPU.
    pub preempted: Option<f64>,
    /// Time of known waits, such as for a free buffer or for I/O.
    pub blocked: Option<f64>,
    /// Time inside a V4L2 device.
    pub device: Option<f64>,
    /// Time on the network.
    pub network: Option<f64>,
    /// Time inside a decoder whose threads share the frames.
    pub pool: Option<f64>,
    /// Time that no other cause accounts for.
    pub unexplained: Option<f64>,
}

impl CausesUs {
    /// Returns the causes in their order, with their names.
    pub fn named(&self) -> [(&'static str, Option<f64>); 11] {
        [
            ("compute", self.compute),
            ("copy", self.copy),
            ("queue", self.queue),
            ("held", self.held),
            ("wakeup", self.wakeup),
            ("preempted", self.preempted),
            ("blocked", self.blocked),
            ("device", self.device),
            ("network", self.network),
            ("pool", self.pool),
            ("unexplained", self.unexplained),
        ]
    }

    /// Returns the sum of the known causes, unexplained included; `None` if none is known.
    pub fn total(&self) -> Option<f64> {
        let known: Vec<f64> = self.named().iter().filter_map(|(_, us)| *us).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Returns the unexplained time as a share of the total: 0 to 1 if the ledger closes.
    pub fn unexplained_share(&self) -> Option<f64> {
        let total = self.total().filter(|total| *total > 0.0)?;
        Some(self.unexplained?.abs() / total)
    }
}

impl SummaryRow {
    /// Returns the injected cost and the ledger's error, in microseconds; `None` if the row is
    /// not of an injection.
    pub fn injection(&self) -> Option<Injection> {
        let of = |key: &str| self.extra.get(key).copied();
        let injected_us = of("injected_us")?;
        let attributed_us = of("attributed_us")?;
        let error_us = of("error_us").unwrap_or(attributed_us - injected_us);
        Some(Injection { injected_us, attributed_us, error_us })
    }

    /// Returns a figure by its metric name in ratios and budgets: a key of the
    /// row (a spread gives its median), `latency_p50_us` and the like,
    /// `cause_compute_us` and the like, `unexplained_share`,
    /// `outside_tolerance` (1 for an injection that is not near, else 0), or a
    /// key of [`SummaryRow::extra`]. `None` if it is not known.
    pub fn figure(&self, metric: &str) -> Option<f64> {
        if let Some(figure) = self.extra.get(metric) {
            return Some(*figure);
        }
        let latency = |of: fn(&LatencyUs) -> f64| self.latency_us.as_ref().map(of);
        match metric {
            "runs" => Some(f64::from(self.runs)),
            "frames" => Some(self.frames as f64),
            "wall_ms" => self.wall_ms.map(|spread| spread.median),
            "cpu_ms" => self.cpu_ms.map(|spread| spread.median),
            "load" => self.load,
            "latency_p50_us" => latency(|us| us.p50),
            "latency_p95_us" => latency(|us| us.p95),
            "latency_p99_us" => latency(|us| us.p99),
            "latency_max_us" => latency(|us| us.max),
            "copied_bytes_per_frame" => self.copied_bytes_per_frame,
            "switches_per_frame" => self.switches_per_frame,
            "syscalls_per_frame" => self.syscalls_per_frame,
            "peak_memory_kib" => self.peak_memory_kib.map(|kib| kib as f64),
            "unexplained_share" => self.causes_us.and_then(|causes| causes.unexplained_share()),
            "outside_tolerance" => {
                self.injection().map(|injection| f64::from(u8::from(!injection.is_near())))
            }
            _ => {
                let cause = metric.strip_prefix("cause_")?.strip_suffix("_us")?;
                let causes = self.causes_us?.named();
                causes.iter().find(|(name, _)| *name == cause).and_then(|(_, us)| *us)
            }
        }
    }
}

/// A known cost that was injected into a path, and the ledger's figure for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Injection {
    /// Injected cost, by a clock other than the ledger's.
    pub injected_us: f64,
    /// Cost in the cause's own row.
    pub attributed_us: f64,
    /// The error; if frames were compared one by one, the median.
    pub error_us: f64,
}

impl Injection {
    /// Returns true if the error is within 10 % or 20 µs, whichever is more.
    pub fn is_near(&self) -> bool {
        self.error_us.abs() <= (self.injected_us * 0.10).max(20.0)
    }
}

/// Reads the unknown keys of a row, so that summaries of later versions can be read: keeps
/// numbers, drops the rest.
fn numbers_only<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Figure {
        Number(f64),
        Other(serde::de::IgnoredAny),
    }
    let all = BTreeMap::<String, Figure>::deserialize(from)?;
    Ok(all
        .into_iter()
        .filter_map(|(key, figure)| match figure {
            Figure::Number(number) => Some((key, number)),
            Figure::Other(_) => None,
        })
        .collect())
}

/// The ratio a/b of two contenders over paired runs of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Input of the runs.
    pub case: String,
    /// The figure compared, such as `cpu_ms`.
    pub metric: String,
    /// Contender in the numerator.
    pub a: String,
    /// Contender in the denominator.
    pub b: String,
    /// The median of the ratios within the pairs.
    pub median: f64,
    /// 95 % interval of the median; `null` if only one pair was run.
    pub ci95: Option<[f64; 2]>,
    /// Number of pairs.
    pub pairs: usize,
    /// Conclusion that the interval allows; computed from the interval if the summary lacks it.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

impl Ratio {
    /// Creates a ratio with its names.
    pub fn new(case: &str, metric: &str, a: &str, b: &str, ratio: &PairedRatio) -> Ratio {
        Ratio {
            case: case.to_owned(),
            metric: metric.to_owned(),
            a: a.to_owned(),
            b: b.to_owned(),
            median: ratio.median,
            ci95: ratio.ci95,
            pairs: ratio.pairs,
            verdict: Some(ratio.verdict),
        }
    }

    /// Returns the conclusion that the interval allows.
    pub fn verdict(&self) -> Verdict {
        self.verdict.unwrap_or_else(|| Verdict::of(self.ci95))
    }
}

/// Contender that did not run. It does not count as passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Contender that did not run.
    pub contender: String,
    /// Case that did not run; `None` for every case.
    #[serde(default)]
    pub case: Option<String>,
    /// The reason, and how to make it run.
    pub reason: String,
}

impl Summary {
    /// Finds the row of a case and a contender.
    pub fn row(&self, case: &str, contender: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.case == case && row.contender == contender)
    }

    /// Returns the cases in order of first appearance.
    pub fn cases(&self) -> Vec<&str> {
        in_order(self.rows.iter().map(|row| row.case.as_str()))
    }

    /// Returns the contenders in order of first appearance.
    pub fn contenders(&self) -> Vec<&str> {
        in_order(self.rows.iter().map(|row| row.contender.as_str()))
    }
}

fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
