// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs of a known kind and length, in a known place of a program: each must come out as its cause, in the stage of the
//! place, and with its reason. The programs measure the costs by clocks of their own (inject_causes.c).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use framepath_model::stats::median;
use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::{finish, framepath, holds_within, in_checkout};
use serde_json::Value;
use tempfile::TempDir;

use crate::needs_bpf;

/// Columns of the causes in the CSV, without `_ns`.
const CAUSES: [&str; 15] = [
    "queue",
    "wakeup",
    "blocked",
    "compute",
    "copy",
    "preempted",
    "unexplained",
    "device",
    "held",
    "pool",
    "paced",
    "stolen",
    "throttled",
    "stopped",
    "network",
];

/// Exit code of the programs for a kind that this machine cannot inject.
const UNAVAILABLE: i32 = 77;

/// Runs of a case; one within the tolerance is enough, because other programs disturb the machine.
const TRIES: usize = 3;

/// Name that the ledger must have beside the reason.
#[derive(Clone, Copy, Debug)]
enum Named {
    Nothing,
    /// The object of the wait is the report's detail: the peer's address, the file's path.
    Object,
    /// The report's detail is the name of the thread that ended the wait.
    EndedBy,
}

/// Kind of cost, and what the ledger must show.
#[derive(Clone, Copy)]
struct Case {
    kind: &'static str,
    cause: &'static str,
    /// Possible reasons; empty if the cause needs none.
    reasons: &'static [&'static str],
    named: Named,
    /// Options of the program.
    options: &'static [&'static str],
}

const fn case(kind: &'static str, cause: &'static str, reasons: &'static [&'static str]) -> Case {
    Case { kind, cause, reasons, named: Named::Nothing, options: &[] }
}

impl Case {
    const fn named(self, named: Named) -> Case {
        Case { named, ..self }
    }

    /// Returns the case with the cause that it has in `place`: the work of a codec's own threads cannot be told apart by frames.
    fn in_place(self, place: &Place) -> Case {
        let is_work = self.cause == "compute" && place.name == ENCODE.name;
        Case { cause: if is_work { "pool" } else { self.cause }, ..self }
    }

    const fn options(self, options: &'static [&'static str]) -> Case {
        Case { options, ..self }
    }
}

static CASES: [Case; 24] = [
    // A thread's turn begins up to a tick of the kernel behind the end of the throttled time.
    case("quota", "throttled", &[]).options(&["us=60000"]),
    case("stop", "stopped", &[]),
    case("freezer", "stopped", &[]),
    case("freezer-v2", "stopped", &[]),
    case("stop-waiting", "stopped", &[]),
    case("freezer-waiting", "stopped", &[]),
    case("tcp", "blocked", &["socket"]).named(Named::Object),
    case("udp", "blocked", &["socket"]).named(Named::Object),
    case("tcp-slices", "blocked", &["socket"]).named(Named::Object).options(&["us=50000"]),
    case("pipe", "blocked", &["pipe"]),
    case("poll", "blocked", &["pipe"]),
    case("epoll", "blocked", &["socket"]).named(Named::Object),
    case("io_uring", "blocked", &["io_uring"]),
    case("disk", "blocked", &["file"]).named(Named::Object),
    case("major-faults", "blocked", &["page fault"]),
    case("minor-faults", "compute", &[]),
    case("memory-high", "blocked", &["memory limit"]),
    case("lock", "blocked", &["lock"]).named(Named::EndedBy),
    case("hog", "preempted", &[]),
    case("sleep", "paced", &["timer"]),
    case("re", "paced", &["timer"]),
    case("epoll-empty", "paced", &["timer"]),
    case("epoll-timerfd", "paced", &["timer", "timerfd"]),
    case("timerfd", "paced", &["timer", "timerfd"]),
];

/// Place of the costs: the first word of its stage, and its program.
struct Place {
    name: &'static str,
    stage: &'static str,
    program: &'static str,
}

const DEMUX: Place = Place { name: "demux", stage: "demux", program: "causes" };
const FILTER: Place = Place { name: "filter", stage: "filter", program: "causes" };
const ENCODE: Place = Place { name: "encode", stage: "encode", program: "causes" };
const GST: Place = Place { name: "gst", stage: "inject", program: "causes_gst" };

pub(crate) fn costs_in_a_demuxer_have_their_causes() -> Tested {
    costs_have_their_causes(&DEMUX)
}

pub(crate) fn costs_in_a_filter_have_their_causes() -> Tested {
    costs_have_their_causes(&FILTER)
}

pub(crate) fn costs_on_a_thread_of_an_encoder_have_their_causes() -> Tested {
    costs_have_their_causes(&ENCODE)
}

pub(crate) fn costs_in_a_gstreamer_element_have_their_causes() -> Tested {
    costs_have_their_causes(&GST)
}

fn costs_have_their_causes(place: &Place) -> Tested {
    /// One place at a time: the costs of two would disturb one another.
    static ONE: Mutex<()> = Mutex::new(());
    needs_bpf()?;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A folder on a disk, which a folder for temporary files may not be.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| TempDir::new()).unwrap();
    let folder = Folder { path: folder.path().canonicalize().unwrap(), _temporary: folder };
    folder.compile(place)?;
    let mut table = String::new();
    let mut failed = 0;
    // Kinds, separated by commas; all without the variable.
    let chosen = std::env::var("FRAMEPATH_TEST_CAUSES").ok();
    let is_chosen =
        |case: &&Case| chosen.as_ref().is_none_or(|kinds| kinds.split(',').any(|kind| kind == case.kind));
    for case in CASES.iter().filter(is_chosen) {
        let case = &case.in_place(place);
        let mut outcome = folder.run(place, case);
        for _ in 1..TRIES {
            if !outcome.is_failed {
                break;
            }
            outcome = folder.run(place, case);
        }
        failed += usize::from(outcome.is_failed);
        let verdict = if outcome.is_failed { "WRONG" } else { "" };
        writeln!(table, "{:16}{:8}{:6}{}", case.kind, place.name, verdict, outcome.text).unwrap();
    }
    if chosen.is_some() {
        eprint!("{table}");
    }
    assert!(holds_within(Duration::from_secs(10), || groups_left().is_empty()), "{:?}", groups_left());
    assert!(failed == 0, "{failed} cases are wrong:\n{table}");
    Ok(())
}

/// Folder with the programs and their files.
struct Folder {
    path: PathBuf,
    _temporary: TempDir,
}

/// Result of a run.
struct Outcome {
    is_failed: bool,
    text: String,
}

/// Injection of the program's report.
struct Injection {
    frame: u64,
    ns: f64,
    /// Time that the thread was not on a CPU, by its clocks.
    off_cpu_ns: f64,
    detail: String,
}

impl Folder {
    fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }

    fn compile(&self, place: &Place) -> Tested {
        if place.program == "causes_gst" {
            let libraries = libraries(&["gstreamer-1.0"], "libgstreamer1.0-dev")?;
            return self.cc("causes_gst", &["causes_gst.c", "inject_causes.c"], &["-pthread"], &libraries);
        }
        let names = ["libavformat", "libavcodec", "libavfilter", "libavutil"];
        let libraries = libraries(&names, "libavformat-dev libavfilter-dev")?;
        // The filter calls a function of the program.
        let options = ["-rdynamic", "-pthread"];
        self.cc("causes", &["causes.c", "inject_causes.c"], &options, &libraries)?;
        self.cc("causes_frei0r.so", &["causes_frei0r.c"], &["-fPIC", "-shared"], &[])
    }

    fn cc(&self, output: &str, sources: &[&str], options: &[&str], libraries: &[String]) -> Tested {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"]);
        compiler.args(options).arg("-o").arg(self.file(output));
        let folder = in_checkout("crates/framepath-cli/tests/traced");
        compiler.args(sources.iter().map(|source| folder.join(source))).args(libraries);
        match compiler.status() {
            Ok(status) => assert!(status.success(), "{compiler:?}"),
            Err(error) => return Err(Missing::new(format!("cc: {error}"))),
        }
        Ok(())
    }

    /// Traces the program with the costs of `case` in `place`, and compares the ledger with the program's report.
    fn run(&self, place: &Place, case: &Case) -> Outcome {
        let [json, csv, report] = ["json", "csv", "report"].map(|name| self.file(name));
        for file in [&json, &csv, &report] {
            let _ = fs::remove_file(file);
        }
        let outputs = ["trace", "--level", "bpf", "--quiet", "--json", &json, "--csv", &csv, "--"];
        let [program, report_option] = [self.file(place.program), format!("report={report}")];
        let command = [&program, case.kind, place.name, &report_option];
        let ran = finish(framepath(&[&outputs, &command[..], case.options].concat()));
        match ran.code {
            Some(0) => {}
            // Cgroups of version 2 with controllers are in the guest (tests/vm/jobs/trace-causes).
            Some(UNAVAILABLE) => {
                return Outcome { is_failed: case.kind != "memory-high", text: ran.stderr.trim().to_owned() };
            }
            _ => return Outcome { is_failed: true, text: format!("{ran:?}") },
        }
        let injected: Vec<Injection> = fs::read_to_string(report).unwrap().lines().map(injection).collect();
        let figures = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        let (is_right, times) = compare(case, &rows(Path::new(&csv), place.stage), &injected);
        let (is_named, wait) = named(case, place.stage, &figures, &injected);
        let is_failed = !is_right || !is_named;
        Outcome { is_failed, text: if wait.is_empty() { times } else { format!("{times}; {wait}") } }
    }
}

/// Returns the compiler's options for libraries, by pkg-config.
fn libraries(names: &[&str], packages: &str) -> Result<Vec<String>, Missing> {
    let found = Command::new("pkg-config").args(["--cflags", "--libs"]).args(names).output();
    match found {
        Ok(found) if found.status.success() => {
            Ok(String::from_utf8(found.stdout).unwrap().split_whitespace().map(str::to_owned).collect())
        }
        _ => Err(Missing::new(format!(
            "no headers of {}; apt install pkg-config {packages}",
            names.join(", ")
        ))),
    }
}

/// Parses a line of the program's report (head of causes.c).
fn injection(line: &str) -> Injection {
    let words: Vec<&str> = line.splitn(10, ' ').collect();
    let ns = |index: usize| words[index].parse::<f64>().unwrap();
    Injection {
        frame: words[3].parse().unwrap(),
        ns: ns(8),
        off_cpu_ns: ns(6) - ns(7),
        detail: words[9].to_owned(),
    }
}

/// Returns the times of each cause in the stage whose name begins with the word `stage`, nanoseconds: by frame, in the order
/// of [`CAUSES`].
fn rows(csv: &Path, stage: &str) -> BTreeMap<u64, Vec<f64>> {
    let text = fs::read_to_string(csv).unwrap();
    let mut lines = text.lines().map(cells);
    let names = lines.next().unwrap();
    let column = |name: &str| {
        names.iter().position(|other| other == name).unwrap_or_else(|| panic!("no column {name}"))
    };
    let [of_frame, of_stage] = ["seq", "stage"].map(column);
    let columns = CAUSES.map(|cause| column(&format!("{cause}_ns")));
    let is_wanted = |line: &Vec<String>| line[of_stage].split(' ').next() == Some(stage);
    let times = |line: &[String]| columns.map(|column| line[column].parse().unwrap_or(0.0)).to_vec();
    lines.filter(is_wanted).map(|line| (line[of_frame].parse().unwrap(), times(&line))).collect()
}

/// Returns the cells of a line of CSV (RFC 4180).
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            _ => cells.last_mut().unwrap().push(character),
        }
    }
    cells
}

/// Compares the rows of a stage with the injections: the wanted cause must have their length, and no other one may have
/// more than the tolerance. All figures are medians over the frames with an injection, less the median over the others. The
/// programs' clocks also show how long other programs of the machine kept the thread from a CPU beside the injection.
fn compare(case: &Case, rows: &BTreeMap<u64, Vec<f64>>, injected: &[Injection]) -> (bool, String) {
    let is_injected = |frame: u64| injected.iter().any(|injection| injection.frame == frame);
    let seen: Vec<&Injection> =
        injected.iter().filter(|injection| rows.contains_key(&injection.frame)).collect();
    let length = median(&injected.iter().map(|injection| injection.ns).collect::<Vec<_>>()).unwrap_or(0.0);
    if seen.len() != injected.len() || injected.len() < 5 || length < 5e6 {
        let text =
            format!("{} injections of {:.2} ms, {} in the ledger", injected.len(), length / 1e6, seen.len());
        return (false, text);
    }
    let tolerance = (length / 10.0).max(5e5);
    let beside = |injection: &Injection| {
        injection.off_cpu_ns - if matches!(case.cause, "compute" | "pool") { 0.0 } else { injection.ns }
    };
    let beside = median(&injected.iter().map(beside).collect::<Vec<_>>()).unwrap_or(0.0).max(0.0);
    let mut is_right = true;
    let mut text = format!("{:7.2} ms injected:", length / 1e6);
    for (index, cause) in CAUSES.iter().enumerate() {
        let others: Vec<f64> =
            rows.iter().filter(|(frame, _)| !is_injected(**frame)).map(|(_, times)| times[index]).collect();
        let usual = median(&others).unwrap_or(0.0);
        let is_wanted = *cause == case.cause;
        // What the cause has beside the injection.
        let apart = |injection: &&Injection| {
            rows[&injection.frame][index] - usual - if is_wanted { injection.ns } else { 0.0 }
        };
        let apart = median(&seen.iter().map(apart).collect::<Vec<_>>()).unwrap_or(0.0);
        let by_others = if ["wakeup", "preempted", "stolen"].contains(cause) { beside } else { 0.0 };
        let is_within = if is_wanted { apart.abs() <= tolerance } else { apart <= tolerance + by_others };
        is_right &= is_within;
        if is_wanted || apart.abs() > 5e4 {
            let gained = apart + if is_wanted { length } else { 0.0 };
            write!(text, " {cause} {:.2}{}", gained / 1e6, if is_within { "" } else { "!" }).unwrap();
        }
    }
    if beside > 5e5 {
        write!(text, " (other programs: {:.2})", beside / 1e6).unwrap();
    }
    (is_right, text)
}

/// Checks the reason of the longest wait with the wanted cause, and returns the wait as a text.
fn named(case: &Case, stage: &str, figures: &Value, injected: &[Injection]) -> (bool, String) {
    if case.reasons.is_empty() {
        return (true, String::new());
    }
    let hops = figures["rows"].as_array().unwrap().iter().flat_map(|row| row["hops"].as_array().unwrap());
    let mut hops = hops.filter(|hop| hop["hop"].as_str().unwrap().split(' ').next() == Some(stage));
    let waits = hops.next().and_then(|hop| hop["waits"].as_array()).map_or(&[][..], Vec::as_slice);
    // The longest one is the first.
    let Some(wait) = waits.iter().find(|wait| wait["cause"] == case.cause) else {
        let waits: Vec<String> = waits.iter().map(Value::to_string).collect();
        return (false, format!("no {} wait in [{}]", case.cause, waits.join(", ")));
    };
    let detail = injected.first().map_or("", |injection| &injection.detail);
    let is_named = match case.named {
        Named::Nothing => true,
        Named::Object => wait["object"] == detail,
        Named::EndedBy => wait["ended_by"] == detail,
    };
    let is_right = case.reasons.iter().any(|reason| wait["reason"] == *reason);
    if is_named && is_right {
        return (true, wait.to_string());
    }
    (false, format!("{wait}, but expected {:?} {:?} {detail}", case.reasons, case.named))
}

/// Returns the control groups of programs that have ended.
fn groups_left() -> Vec<PathBuf> {
    let folders =
        |path: &Path| fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let root = Path::new("/sys/fs/cgroup");
    let groups = folders(root).chain([root.to_owned()]).flat_map(|path| folders(&path).collect::<Vec<_>>());
    let has_ended = |group: &PathBuf| {
        let name = group.file_name().and_then(|name| name.to_str());
        let program = name.and_then(|name| name.strip_prefix("framepath-causes-"));
        program.is_some_and(|program| !Path::new("/proc").join(program).exists())
    };
    groups.filter(has_ended).collect()
}
