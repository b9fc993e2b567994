// SPDX-License-Identifier: MIT OR Apache-2.0
//! Format of the lab's summaries. The format is stable: keys are added, never renamed. An unknown
//! figure is `null`, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::stats::{PairedRatio, Spread, Verdict, percentile};

/// Summary of one experiment of the lab, or of one run of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the experiment, such as `decode`; `run` for a run of a path.
    pub experiment: String,
    /// Machine on which the experiment ran.
    pub machine: Machine,
    /// Start of the experiment, in seconds since 1970-01-01 UTC; `None` if not recorded.
    #[serde(default)]
    pub started_unix_s: Option<u64>,
    /// One row per case and contender.
    #[serde(default)]
    pub rows: Vec<SummaryRow>,
    /// Comparisons of two contenders over paired runs.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
    /// Contenders that gave no figures, in one case or in all, with the reason.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Other facts that a reader must know, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Description of the machine of an experiment; `None` where a fact is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Number of processors that the experiment may run on.
    pub cores: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// True if hardware counters (cycles, instructions) can be read.
    pub pmu: bool,
    /// Name of the distribution, such as `Debian GNU/Linux 13 (trixie)`; `None` if not known.
    #[serde(default)]
    pub os: Option<String>,
    /// Size of the memory, MiB; `None` if not known.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Vendor of the virtual machine that the experiment ran in, or `virtual machine` if the vendor
    /// is not known; `None` if the processor's flags name no hypervisor, as outside of a virtual
    /// machine and on processors other than x86.
    #[serde(default)]
    pub virtualisation: Option<String>,
    /// Name of the first processor's frequency governor; `None` if there is none or it is not
    /// known.
    #[serde(default)]
    pub governor: Option<String>,
    /// Names of the graphics cards, separated by commas: PCI numbers, else names in the device
    /// tree, else module aliases; `None` if there are none.
    #[serde(default)]
    pub gpu: Option<String>,
    /// Names of the graphics cards' kernel drivers, separated by commas; `None` if there are none.
    #[serde(default)]
    pub gpu_driver: Option<String>,
    /// Names of the displays on which windows were shown, separated by commas; `None` if not known.
    #[serde(default)]
    pub display: Option<String>,
    /// Versions of the programs and libraries that took part, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

/// Figures of one contender in one case, over all its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    /// Name of the case, such as a clip or a buffer size.
    pub case: String,
    /// Name of the contender; for a run of a path, `path`, or `path to SINK` if the path has
    /// several sinks.
    pub contender: String,
    /// Number of runs.
    pub runs: u32,
    /// Number of frames in one run, the last of several; in lab `queue`, of pushes; 0 if not known.
    pub frames: u64,
    /// Wall time of a run, milliseconds; `None` if not known.
    #[serde(default)]
    pub wall_ms: Option<Spread>,
    /// CPU time of a run, of everything that the contender started, milliseconds; `None` if not known.
    #[serde(default)]
    pub cpu_ms: Option<Spread>,
    /// Median CPU time of a run divided by `frames`, microseconds; `None` if the CPU time is not
    /// known, if there are no frames, and in lab `queue`, which counts pushes.
    #[serde(default)]
    pub cpu_us_per_frame: Option<f64>,
    /// CPU time divided by wall time, the median over the runs: 1 means one core busy throughout;
    /// `None` if not known.
    #[serde(default)]
    pub load: Option<f64>,
    /// Percentiles of the frames' latency, microseconds, each the median over the runs; `None` if
    /// not known.
    #[serde(default)]
    pub latency_us: Option<LatencyUs>,
    /// Number of pixel and packet bytes that the CPU copied, per frame, the median over the runs;
    /// `None` if not known.
    #[serde(default)]
    pub copied_bytes_per_frame: Option<f64>,
    /// Number of context switches per frame, voluntary and involuntary, the median over the runs;
    /// `None` if not known.
    #[serde(default)]
    pub switches_per_frame: Option<f64>,
    /// Number of system calls per frame; `None` if not known, as in all summaries that this version
    /// writes.
    #[serde(default)]
    pub syscalls_per_frame: Option<f64>,
    /// Latency of the median frame divided among its causes, microseconds. Of several runs, that of
    /// the run with the median total. `None` if not known.
    #[serde(default)]
    pub causes_us: Option<CausesUs>,
    /// Figures of each hop of the path in the run of `causes_us`, in path order; empty if not
    /// known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopSummary>,
    /// CPU time for each frame that no hop accounts for, in the run of `causes_us`, microseconds:
    /// that of the whole run, its workers included, less `cpu_us` of all hops; negative if the
    /// hops' clocks show more. `None` if the CPU time of the hops is not known.
    #[serde(default)]
    pub other_cpu_us: Option<f64>,
    /// Advice that follows from the figures, at most three sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// Peak of the resident memory, the highest of all runs, KiB; `None` if not known.
    #[serde(default)]
    pub peak_memory_kib: Option<u64>,
    /// Figures that not every row has, such as `cpu_us_per_push` of lab `queue` or `dropped` of a
    /// path. They are written as keys of the row. The reader drops unknown keys whose values are
    /// not numbers.
    #[serde(flatten, deserialize_with = "numbers_only")]
    pub extra: BTreeMap<String, f64>,
}

/// Figures of one hop of a path, over all frames of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HopSummary {
    /// Text of the hop in the path, such as `decode threads=1`.
    pub hop: String,
    /// Number of frames that passed the hop.
    #[serde(default)]
    pub frames: u64,
    /// Number of frames that the hop dropped.
    #[serde(default)]
    pub dropped: u64,
    /// CPU time of the hop by the clocks of its threads and workers, copies included, divided by
    /// the frames of the run (of several sinks, that of the sink with most frames), microseconds;
    /// `None` for a link, and if not known.
    #[serde(default)]
    pub cpu_us: Option<f64>,
    /// Percentiles of the time from entering to leaving the hop, microseconds; `None` if no frame passed.
    #[serde(default)]
    pub latency_us: Option<LatencyUs>,
    /// Mean number of bytes that the CPU copied for a frame that passed; 0 if no frame passed; `None` if not known.
    #[serde(default)]
    pub copied_bytes_per_frame: Option<f64>,
    /// Part of `held` in `causes_us` that is due to the depth of a decoder's frame threads,
    /// microseconds; `None` if there was none or it is not known.
    #[serde(default)]
    pub held_depth_us: Option<f64>,
    /// The hop's part of `causes_us` of the row, microseconds; `None` if not known, and for a hop that is
    /// not on the way to the row's sink.
    #[serde(default)]
    pub causes_us: Option<CausesUs>,
}

/// Percentiles of latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Shortest latency of a frame that at least half of the frames do not exceed.
    pub p50: f64,
    /// Shortest latency of a frame that at least 95 % of the frames do not exceed.
    pub p95: f64,
    /// Shortest latency of a frame that at least 99 % of the frames do not exceed.
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

/// Latency of a frame divided among its causes, microseconds; `None` for a cause that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CausesUs {
    /// CPU time in a stage, without copies; `None` if not known. All causes are those of
    /// [`ledger::Cause`](crate::ledger::Cause).
    pub compute: Option<f64>,
    /// Time of the copies of pixel and packet bytes by the CPU; `None` if not known.
    pub copy: Option<f64>,
    /// Time in which the frame waited for a busy consumer; `None` if not known.
    pub queue: Option<f64>,
    /// Time inside a stage, mostly a decoder, in which no thread is known to have worked on the
    /// frame; `None` if not known.
    pub held: Option<f64>,
    /// Time from hand-off until an idle consumer ran; `None` if not known.
    pub wakeup: Option<f64>,
    /// Time in which a stage's thread, or a decoder's frame thread, could run but had no CPU;
    /// `None` if not known.
    pub preempted: Option<f64>,
    /// Time in which a thread could run, but its cgroup had used up its CPU quota; `None` if not known.
    pub throttled: Option<f64>,
    /// Time in which a thread was stopped: by a signal, a debugger or the freezer; `None` if not known.
    pub stopped: Option<f64>,
    /// Time in which a thread was on a CPU that served interrupts or that the host had taken away; `None` if not known.
    pub stolen: Option<f64>,
    /// Time of known waits, such as for a free buffer or for I/O; `None` if not known.
    pub blocked: Option<f64>,
    /// Time of deliberate waits until a given time; `None` if not known.
    pub paced: Option<f64>,
    /// Time inside a V4L2 device; `None` if not known.
    pub device: Option<f64>,
    /// Time on the network; `None` if not known.
    pub network: Option<f64>,
    /// Time inside a decoder of whose threads the work cannot be assigned to one frame; `None` if
    /// not known.
    pub pool: Option<f64>,
    /// Time that no other cause accounts for; negative if the other causes exceed the latency; `None`
    /// if not known.
    pub unexplained: Option<f64>,
}

impl CausesUs {
    /// Returns the names and figures of all causes, in the order of every table, microseconds; `None`
    /// for a cause that is not known.
    pub fn named(&self) -> [(&'static str, Option<f64>); 15] {
        [
            ("compute", self.compute),
            ("copy", self.copy),
            ("queue", self.queue),
            ("held", self.held),
            ("wakeup", self.wakeup),
            ("preempted", self.preempted),
            ("throttled", self.throttled),
            ("stopped", self.stopped),
            ("stolen", self.stolen),
            ("blocked", self.blocked),
            ("paced", self.paced),
            ("device", self.device),
            ("network", self.network),
            ("pool", self.pool),
            ("unexplained", self.unexplained),
        ]
    }

    /// Returns the sum of the known causes, unexplained included, microseconds; `None` if none is
    /// known.
    pub fn total(&self) -> Option<f64> {
        let known: Vec<f64> = self.named().iter().filter_map(|(_, us)| *us).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Returns the unexplained time as a share of the total: 0 to 1 if the causes do not exceed the
    /// latency. `None` if the unexplained time is not known or the total is not positive.
    pub fn unexplained_share(&self) -> Option<f64> {
        let total = self.total().filter(|total| *total > 0.0)?;
        Some(self.unexplained?.abs() / total)
    }
}

impl SummaryRow {
    /// Returns the median CPU time of a run divided by its frames, microseconds, for
    /// [`SummaryRow::cpu_us_per_frame`]. `None` if the CPU time is not known or `frames` is 0.
    pub fn per_frame(cpu_ms: Option<Spread>, frames: u64) -> Option<f64> {
        cpu_ms.filter(|_| frames > 0).map(|spread| spread.median * 1e3 / frames as f64)
    }

    /// Returns the cost that was injected and the ledger's figure for it; `None` if the row is not
    /// of an injection, so has no `injected_us` or no `attributed_us`.
    pub fn injection(&self) -> Option<Injection> {
        let of = |key: &str| self.extra.get(key).copied();
        let injected_us = of("injected_us")?;
        let attributed_us = of("attributed_us")?;
        let error_us = of("error_us").unwrap_or(attributed_us - injected_us);
        Some(Injection { injected_us, attributed_us, error_us })
    }

    /// Returns a figure by the metric name that ratios and budgets use: a key of the row whose value is a
    /// number or a spread (which gives its median), `latency_p50_us` and the like, `cause_compute_us` and
    /// the like, `unexplained_share`, `outside_tolerance` (1 for an injection whose error is not
    /// [near](Injection::is_near), 0 for another injection), or a key of [`SummaryRow::extra`]. `None` if
    /// the name or the figure is not known.
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
            "cpu_us_per_frame" => self.cpu_us_per_frame,
            "load" => self.load,
            "latency_p50_us" => latency(|us| us.p50),
            "latency_p95_us" => latency(|us| us.p95),
            "latency_p99_us" => latency(|us| us.p99),
            "latency_max_us" => latency(|us| us.max),
            "copied_bytes_per_frame" => self.copied_bytes_per_frame,
            "switches_per_frame" => self.switches_per_frame,
            "syscalls_per_frame" => self.syscalls_per_frame,
            "other_cpu_us" => self.other_cpu_us,
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

/// Known cost that was injected into a path, and the ledger's figure for it, per frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Injection {
    /// Injected cost by a clock other than the ledger's, microseconds.
    pub injected_us: f64,
    /// Cost that the ledger attributes to the injected cause, microseconds.
    pub attributed_us: f64,
    /// Attributed minus injected cost, microseconds; if frames were compared one by one, the median
    /// of their errors.
    pub error_us: f64,
}

impl Injection {
    /// Returns true if the error is at most 10 % of the injected cost or at most 20 µs.
    pub fn is_near(&self) -> bool {
        self.error_us.abs() <= (self.injected_us * 0.10).max(20.0)
    }
}

/// Reads the unknown keys of a row: keeps those whose values are numbers, and drops the others, so that
/// summaries of later versions can be read.
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

/// Ratio a/b of two contenders over paired runs of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Name of the case.
    pub case: String,
    /// Name of the compared figure, such as `cpu_ms`.
    pub metric: String,
    /// Name of the contender in the numerator.
    pub a: String,
    /// Name of the contender in the denominator.
    pub b: String,
    /// Median of the ratios within the pairs.
    pub median: f64,
    /// Ends of the 95 % interval of the median; `None`, in JSON `null`, if only one pair was run.
    pub ci95: Option<[f64; 2]>,
    /// Number of pairs.
    pub pairs: usize,
    /// Conclusion that the interval allows; `None` if the summary lacks the conclusion.
    /// [`Ratio::verdict`] then computes it.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

impl Ratio {
    /// Creates the summary of `ratio`: contenders `a` and `b` in case `case`, compared by `metric`.
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

    /// Returns the conclusion that the interval allows: the recorded one, else computed from the
    /// interval.
    pub fn verdict(&self) -> Verdict {
        self.verdict.unwrap_or_else(|| Verdict::of(self.ci95))
    }
}

/// Contender that gave no figures, in one case or in all, and therefore does not count as passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Name of the contender that gave no figures.
    pub contender: String,
    /// Case in which the contender gave no figures; `None` for all cases.
    #[serde(default)]
    pub case: Option<String>,
    /// Reason, and what to do to make the contender run.
    pub reason: String,
}

impl Summary {
    /// Returns the row of a case and a contender; `None` if there is none.
    pub fn row(&self, case: &str, contender: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.case == case && row.contender == contender)
    }

    /// Returns the names of the cases in order of first appearance in the rows.
    pub fn cases(&self) -> Vec<&str> {
        in_order(self.rows.iter().map(|row| row.case.as_str()))
    }

    /// Returns the names of the contenders in order of first appearance in the rows.
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
