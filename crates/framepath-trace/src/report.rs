// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of a recording, as text and for JSON.

mod left_out;
mod quota;
mod seen_calls;
mod shown_names;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;

use framepath_model::shown::shown;
use framepath_model::shown_time::shown_time;
use framepath_os::process::children::ResourceUsage;
use framepath_os::process::signal;
use serde::Serialize;

use crate::call_findings::{CallFindings, LateProbes};
use crate::calls::{CALL_SITES, Call, CallEvent};
use crate::frame_ledger::StreamLedger;
use crate::link_counts::LinkCounts;
use crate::shown_order::Unmatched;
use crate::thread_times::ThreadRow;
use crate::trace_level::TraceLevel;

pub use left_out::{LeftOut, LeftOutReason};
pub use quota::QuotaCount;
pub(crate) use seen_calls::SeenCalls;

/// Number of threads in the text; the others are summed up.
const LISTED: usize = 30;

/// The same in the text of a part.
const LISTED_OF_PART: usize = 10;

/// Resources of the recorded program by the kernel's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// User and system CPU time, nanoseconds: of the command and of the descendants that were waited for, or of all
    /// threads of a running process during the recording. `None` if not known.
    pub cpu_ns: Option<u64>,
    /// Exit code of the command; `None` if a signal ended it, and for a running process.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the command; `None` if it exited, and for a running process.
    pub signal: Option<i32>,
}

impl Usage {
    /// Takes the usage of an ended command, which had used `before_ns` of CPU time before its program.
    pub(crate) fn of_command(usage: &ResourceUsage, before_ns: u64) -> Usage {
        let cpu_ns = usage.cpu_ns.saturating_sub(before_ns);
        Usage { cpu_ns: Some(cpu_ns), exit_code: usage.exit_code, signal: usage.signal }
    }

    /// Returns how the command failed; `None` if it did not, and for a running process.
    fn failure(&self) -> Option<String> {
        match (self.exit_code, self.signal) {
            (_, Some(number)) => Some(match signal::name(number) {
                Some(name) => format!("was ended by signal {number} ({name})"),
                None => format!("was ended by signal {number}"),
            }),
            (Some(code), None) if code != 0 => Some(format!("ended with status {code}")),
            _ => None,
        }
    }
}

/// Result of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// The program of the command, or the number and name of the process.
    pub program: String,
    /// Level of the recording.
    pub level: TraceLevel,
    /// Duration of the recording, nanoseconds.
    pub wall_ns: u64,
    /// Resources by the kernel's own counts, an independent observer.
    pub usage: Usage,
    /// CPU time that this process used for the recording and its analysis, nanoseconds; without the cost of the probes,
    /// which is part of the program's. `None` if not known.
    pub own_cpu_ns: Option<u64>,
    /// How often the CPU quotas of the program's cgroups were used up, by the kernel's own count.
    pub quota: QuotaCount,
    /// Times of the threads, the most CPU time first.
    pub threads: Vec<ThreadRow>,
    /// Number of events that the kernel reported as lost.
    pub lost_events: u64,
    /// Number of outputs of decoders, filters and encoders whose frame could not be told.
    pub ambiguous: u64,
    /// Frames that are in no ledger, by reason and stage.
    pub left_out: Vec<LeftOut>,
    /// Parts of the program that cannot be observed, a sentence each: the reason, and what would help.
    pub unprobed: Vec<String>,
    /// Files that got their probes when a process had already mapped them.
    pub late_probes: Vec<LateProbes>,
    /// Number of probes of functions, and how many of them the kernel emulates, which is ten times as fast.
    pub probes: [usize; 2],
    /// Ledgers of the video streams that passed FFmpeg's libraries, the longest first. Not in the JSON of the threads.
    #[serde(skip)]
    pub streams: Vec<StreamLedger>,
    /// Number of further streams, with fewer frames, whose ledgers are not kept.
    #[serde(skip)]
    pub more_streams: usize,
    /// Number of single pictures, as icons and covers, that were decoded beside a stream: their ledgers are not kept.
    #[serde(skip)]
    pub single_pictures: u64,
    /// Links between the calls of FFmpeg's libraries that had one frame, by the rule that made them.
    pub links: LinkCounts,
    /// True if the recording was [limited](crate::Recording::within) to some stages.
    #[serde(skip)]
    pub is_limited: bool,
    /// Pictures of windows that are not matched with frames, a sentence for each process.
    #[serde(skip)]
    pub(crate) unmatched: Vec<String>,
    /// Calls that were seen; empty if there are frames.
    #[serde(skip)]
    pub(crate) seen: SeenCalls,
    /// Why a higher level is not possible, if it was not demanded.
    #[serde(skip)]
    pub(crate) no_higher: Option<String>,
    /// True if the ledgers tell the time behind a used CPU quota from preemptions.
    #[serde(skip)]
    pub(crate) knows_quotas: bool,
    /// True if the recording goes on: the report is of a part.
    #[serde(skip)]
    pub(crate) is_part: bool,
    /// Calls of the libraries, in the order of their times; empty at level `threads`.
    #[serde(skip)]
    pub calls: Vec<CallEvent>,
}

impl TraceReport {
    pub(crate) fn new(
        program: String,
        wall_ns: u64,
        usage: Usage,
        mut threads: Vec<ThreadRow>,
        lost_events: u64,
        frames: Option<CallFindings>,
    ) -> TraceReport {
        let frames = frames.unwrap_or_default();
        let level = frames.level.unwrap_or(TraceLevel::Threads);
        let lost_events = lost_events + frames.lost;
        let probes = [frames.probes.all, frames.probes.emulated];
        for row in &mut threads {
            row.codec = frames.codecs.get(&row.thread).cloned();
            row.clock_ns = frames.clocks.get(&row.thread).copied();
        }
        threads.sort_by_key(|row| (Reverse(row.cpu_ns()), row.thread));
        let CallFindings {
            ambiguous,
            unmatched,
            mut streams,
            calls,
            is_limited,
            more_streams,
            single_pictures,
            links,
            unprobed,
            late,
            objects,
            ..
        } = frames;
        streams.iter_mut().for_each(|stream| stream.name_waits(&objects, &threads));
        let unmatched = unmatched.into_iter().map(Unmatched::note).collect();
        let seen = match streams.is_empty() {
            true => SeenCalls {
                marks: frames.marks as u64,
                device_calls: frames.device_calls as u64,
                ..SeenCalls::of(&calls)
            },
            false => SeenCalls::default(),
        };
        let mut report = TraceReport {
            program,
            level,
            wall_ns,
            usage,
            own_cpu_ns: None,
            quota: QuotaCount::default(),
            knows_quotas: frames.knows_quotas,
            no_higher: None,
            threads,
            lost_events,
            ambiguous,
            left_out: Vec::new(),
            unprobed,
            late_probes: late,
            probes,
            streams,
            more_streams,
            single_pictures,
            links,
            is_limited,
            unmatched,
            seen,
            is_part: false,
            calls,
        };
        report.escape_names();
        report.add_left_out(LeftOutReason::Ambiguous, None, ambiguous);
        for stream in &report.streams {
            let stage = stream.stages.last().map(String::as_str);
            left_out::add(&mut report.left_out, LeftOutReason::Incomplete, stage, stream.others);
        }
        report
    }

    /// Counts `frames` as left out of the ledgers for `reason` in `stage`. Without effect for 0 frames.
    pub(crate) fn add_left_out(&mut self, reason: LeftOutReason, stage: Option<&str>, frames: u64) {
        left_out::add(&mut self.left_out, reason, stage, frames);
    }

    /// Turns the report into that of a part of a recording that goes on. It counts no frames as left out, because frames that
    /// began before the part, or end later, look the same.
    pub(crate) fn of_part(mut self) -> TraceReport {
        self.left_out.clear();
        self.is_part = true;
        self
    }

    /// Returns the sentence about probes that came late; `None` if all were there in time. Libraries that show pictures do not
    /// count: most programs load them and show nothing at once.
    fn late_note(&self) -> Option<String> {
        let late = self.late_probes.iter().filter(|late| !shows_pictures(&late.file));
        let files = late.clone().count();
        let latest = late.max_by_key(|late| late.late_ns)?;
        let (file, late) = (shown(&latest.file), time(latest.late_ns));
        Some(match files {
            1 => format!("{file} got its probes {late} after it was mapped; its calls before are not known"),
            files => format!(
                "{files} files got their probes after they were mapped, {file} {late} after; their calls before are not known"
            ),
        })
    }

    /// Returns the sentence that says why there is no frame; `None` if there are frames, and at level `threads`, which sees none.
    pub fn without_frames(&self) -> Option<String> {
        const NONE: &str = "no frame was seen";
        if self.level == TraceLevel::Threads || !self.streams.is_empty() {
            return None;
        }
        if self.is_part {
            return Some(format!("{NONE} in this time"));
        }
        let failure = self.usage.failure().map(|how| format!("the program {how} before its first frame"));
        if self.is_limited && failure.is_none() && !self.seen.is_empty() {
            return Some(format!(
                "{NONE} between the named stages; without --from and --to, the table has all stages"
            ));
        }
        let seen = (!self.seen.is_empty()).then(|| self.seen.text());
        Some(match (failure, seen) {
            (Some(failure), Some(seen)) => format!("{NONE}: {failure}; {seen}"),
            (Some(failure), None) => format!("{NONE}: {failure}"),
            (None, Some(seen)) => format!("{NONE}: {seen}; {}", self.seen.remedy()),
            (None, None) if !self.unprobed.is_empty() => {
                format!("{NONE}, because a part of the program cannot be observed")
            }
            (None, None) => {
                let used = match self.level {
                    TraceLevel::Bpf => "neither FFmpeg's shared libraries, GStreamer nor a V4L2 device",
                    _ => "neither FFmpeg's shared libraries nor GStreamer",
                };
                format!("{NONE}: the program uses {used}, or no video")
            }
        })
    }

    /// Returns what a reader must know about the figures, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let gaps: u64 = self.threads.iter().map(|row| row.gaps).sum();
        if gaps + self.lost_events > 0 {
            notes.push(format!("{} events were lost; {gaps} times of threads are missing", self.lost_events));
        }
        notes.extend(left_out::note(&self.left_out));
        notes.extend(self.links.note());
        if self.single_pictures > 0 {
            notes.push(format!("single pictures (icons, covers), not shown: {}", self.single_pictures));
        }
        if self.more_streams > 0 {
            notes.push(format!("{} more streams, with fewer frames, are not shown", self.more_streams));
        }
        notes.extend(self.unmatched.iter().cloned());
        notes.extend(self.without_frames());
        if self.streams.is_empty() {
            notes.extend(self.unprobed.iter().cloned());
        }
        notes.extend(self.quota.note(self.knows_quotas));
        notes.extend(self.late_note());
        let missing = match self.level {
            TraceLevel::Threads => {
                "frames and stages need level `preload` or `bpf`, reasons of waits level `bpf`"
            }
            TraceLevel::Preload => "reasons of waits, wake-ups and the threads of decoders need level `bpf`",
            TraceLevel::Bpf => return notes,
        };
        notes.push(match &self.no_higher {
            Some(reason) => format!("{missing}, which is not possible: {reason}; see framepath doctor"),
            None => format!("{missing}: see framepath doctor"),
        });
        notes
    }

    /// Returns the time on CPUs of all threads, nanoseconds.
    pub fn running_ns(&self) -> u64 {
        self.threads.iter().map(ThreadRow::cpu_ns).sum()
    }

    /// Returns the report as a table for people, with a line break at the end.
    pub fn text(&self) -> String {
        let running = self.running_ns();
        let processes: BTreeSet<i32> = self.threads.iter().map(|row| row.process).collect();
        let mut text = String::new();
        let load = running as f64 / self.wall_ns.max(1) as f64;
        let _ = writeln!(
            text,
            "{}, level {}: {} in {} and {}; on CPUs {}, load {load:.2}",
            shown(&self.program),
            self.level.name(),
            time(self.wall_ns),
            count(processes.len(), "process", "processes"),
            count(self.threads.len(), "thread", "threads"),
            time(running),
        );
        if let Some(cpu_ns) = self.usage.cpu_ns.filter(|ns| *ns > 0) {
            let off = 100.0 * (running as f64 / cpu_ns as f64 - 1.0);
            let _ = writeln!(text, "the kernel's own count: {} of CPU time ({off:+.1} %)", time(cpu_ns));
        }
        if let Some(own_ns) = self.own_cpu_ns {
            let of_program = self.usage.cpu_ns.filter(|ns| *ns > 0).unwrap_or(running);
            let _ = write!(text, "framepath's own work: {} of CPU time", time(own_ns));
            if of_program > 0 {
                let share = 100.0 * own_ns as f64 / of_program as f64;
                let _ = write!(text, " ({share:.1} % of the program's)");
            }
            text.push('\n');
        }
        self.write_streams(&mut text, StreamLedger::text);
        self.write_threads(&mut text, LISTED);
        for note in self.notes() {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// Returns the report of a part of a program's run ([`LiveRecording`](crate::LiveRecording)) as a table for people, with
    /// a line break at the end.
    pub fn text_of_part(&self) -> String {
        let seconds = self.wall_ns as f64 / 1e9;
        let load = self.running_ns() as f64 / self.wall_ns.max(1) as f64;
        let mut text = format!(
            "{}, level {}: the last {seconds:.1} s; {}, load {load:.2}\n",
            shown(&self.program),
            self.level.name(),
            count(self.threads.len(), "thread", "threads"),
        );
        self.write_streams(&mut text, StreamLedger::text_of_part);
        self.write_threads(&mut text, LISTED_OF_PART);
        if let Some(note) = self.without_frames() {
            let _ = writeln!(text, "note: {note}");
        }
        if self.level != TraceLevel::Bpf {
            text.push_str("note: frames need level `bpf`: see framepath doctor\n");
        }
        text
    }

    fn write_streams(&self, text: &mut String, text_of: impl Fn(&StreamLedger) -> String) {
        for stream in &self.streams {
            text.push('\n');
            if self.streams.len() > 1 {
                let _ = writeln!(text, "process {}, {}", stream.process, shown(&stream.way()));
            }
            text.push_str(&text_of(stream));
        }
    }

    /// Writes a line for each thread, at most `listed`.
    fn write_threads(&self, text: &mut String, listed: usize) {
        let running = self.running_ns();
        let _ = writeln!(
            text,
            "\n{:<20} {:>8} {:>10} {:>6} {:>8} {:>10} {:>8} {:>10}",
            "thread", "id", "on a CPU", "", "runs", "preempted", "waits", "waiting"
        );
        for row in self.threads.iter().take(listed) {
            let share = 100.0 * row.cpu_ns() as f64 / running.max(1) as f64;
            let name = if row.name.is_empty() { "?" } else { &row.name };
            let name = row.codec.as_ref().map_or(name.to_owned(), |codec| format!("{name}: {codec}"));
            let name = shown(&name);
            let _ = writeln!(
                text,
                "{name:<20} {:>8} {:>10} {share:>4.1} % {:>8} {:>10} {:>8} {:>10}",
                row.thread,
                time(row.cpu_ns()),
                row.runs,
                time(row.preempted_ns + row.start_ns),
                row.waits,
                time(row.waiting_ns),
            );
        }
        if let Some(rest) = self.threads.get(listed..).filter(|rest| !rest.is_empty()) {
            let sum = rest.iter().map(ThreadRow::cpu_ns).sum();
            let _ = writeln!(text, "({} more threads: {} on CPUs)", rest.len(), time(sum));
        }
    }
}

/// Returns true if the observed functions of this library only show pictures.
fn shows_pictures(file: &str) -> bool {
    let is_display = |call| matches!(call, Call::Upload | Call::Present | Call::Attach | Call::Commit);
    CALL_SITES.iter().any(|site| is_display(site.call) && file.starts_with(site.library))
}

pub(crate) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

pub(crate) fn time(ns: u64) -> String {
    shown_time(ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Phase;

    #[test]
    fn the_text_has_the_times_and_says_what_is_missing() {
        let row = |thread, running_ns, gaps| ThreadRow {
            process: 7,
            thread,
            name: "av:h264:df0".to_owned(),
            running_ns,
            runs: 3,
            preempted_ns: 2_000,
            start_ns: 1_000,
            waits: 2,
            waiting_ns: 5_000_000,
            gaps,
            ..ThreadRow::default()
        };
        let usage = Usage { cpu_ns: Some(2_000_000), ..Usage::default() };
        let threads: Vec<_> = (0..32).map(|n| row(n, 62_500, u64::from(n == 0))).collect();
        let text = TraceReport::new("ff\nmpeg".to_owned(), 4_000_000, usage, threads, 5, None).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "ff\\nmpeg, level threads: 4.00 ms in 1 process and 32 threads; on CPUs 2.00 ms, load 0.50"
        );
        assert_eq!(lines[1], "the kernel's own count: 2.00 ms of CPU time (+0.0 %)");
        assert_eq!(
            lines[4],
            "av:h264:df0                 0    62.5 µs  3.1 %        3     3.0 µs        2    5.00 ms"
        );
        assert_eq!(lines[34], "(2 more threads: 125.0 µs on CPUs)");
        assert_eq!(lines[35], "note: 5 events were lost; 1 times of threads are missing");
        assert!(lines[36].starts_with("note: frames and stages need level `preload` or `bpf`"));
    }

    /// Makes the report of a program without frames.
    fn without_frames(usage: Usage, seen: &[Call]) -> TraceReport {
        let event = |(at, call): (usize, &Call)| {
            let event = |phase, at_ns| CallEvent {
                at_ns,
                process: 1,
                thread: 1,
                call: *call,
                phase,
                object: 9,
                data: 5,
                pts: 7,
                result: 0,
            };
            [event(Phase::Enter, 10 * at as u64), event(Phase::Leave, 10 * at as u64 + 1)]
        };
        let calls = seen.iter().enumerate().flat_map(event).collect();
        let frames = CallFindings { level: Some(TraceLevel::Bpf), calls, ..CallFindings::default() };
        TraceReport::new("player".to_owned(), 1_000, usage, Vec::new(), 0, Some(frames))
    }

    #[test]
    fn a_report_without_frames_says_why() {
        let exited = |code| Usage { exit_code: Some(code), ..Usage::default() };
        let killed = Usage { signal: Some(9), ..Usage::default() };
        let reads = [Call::ReadPacket; 12];
        for (usage, seen, note) in [
            (
                exited(0),
                &[][..],
                "no frame was seen: the program uses neither FFmpeg's shared libraries, GStreamer nor a V4L2 device, or no \
                 video",
            ),
            (exited(3), &[], "no frame was seen: the program ended with status 3 before its first frame"),
            (
                killed,
                &[],
                "no frame was seen: the program was ended by signal 9 (SIGKILL) before its first frame",
            ),
            (
                exited(1),
                &reads[..],
                "no frame was seen: the program ended with status 1 before its first frame; 12 packets were read, none was \
                 given to a decoder",
            ),
            (
                exited(0),
                &reads[..],
                "no frame was seen: 12 packets were read, none was given to a decoder; the program decodes by other means \
                 than FFmpeg's shared libraries, or not at all",
            ),
        ] {
            let report = without_frames(usage, seen);
            assert_eq!(report.notes(), [note]);
            assert!(report.text().ends_with(&format!("note: {note}\n")));
        }
        let part = without_frames(Usage::default(), &[]).of_part();
        assert_eq!(part.notes(), ["no frame was seen in this time"]);
        assert!(part.text_of_part().ends_with("note: no frame was seen in this time\n"));
    }

    #[test]
    fn what_cannot_be_observed_is_not_said_to_be_unused() {
        let mut report = without_frames(Usage { exit_code: Some(0), ..Usage::default() }, &[]);
        report.unprobed.push("player is static; a build with shared libraries can be observed".to_owned());
        assert_eq!(
            report.notes(),
            [
                "no frame was seen, because a part of the program cannot be observed",
                "player is static; a build with shared libraries can be observed"
            ]
        );
    }

    #[test]
    fn late_probes_are_one_note() {
        let mut report = without_frames(Usage { exit_code: Some(1), ..Usage::default() }, &[]);
        let late = |file: &str, late_ns| LateProbes { file: file.to_owned(), process: 7, late_ns };
        report.late_probes.push(late("libSDL2-2.0.so.0", 9_000_000));
        assert_eq!(report.notes().len(), 1);
        report.late_probes.push(late("libavcodec.so.61", 2_000_000));
        assert_eq!(
            report.notes()[1..],
            ["libavcodec.so.61 got its probes 2.00 ms after it was mapped; its calls before are not known"]
        );
        report.late_probes.push(late("player", 500));
        let note = &report.notes()[1];
        assert!(
            note.starts_with("2 files got their probes after they were mapped, libavcodec.so.61 "),
            "{note}"
        );
    }

    #[test]
    fn marks_and_calls_of_devices_are_calls() {
        let mut report = without_frames(Usage::default(), &[]);
        report.seen.device_calls = 7;
        let note = report.without_frames().unwrap();
        assert!(note.starts_with("no frame was seen: 7 calls of a V4L2 device were seen; "), "{note}");
    }

    #[test]
    fn frames_that_are_left_out_are_counted_in_text_and_json() {
        let stream = |stage: &str, others| StreamLedger {
            stages: vec!["demux mov".to_owned(), stage.to_owned()],
            others,
            ..StreamLedger::default()
        };
        let streams = vec![stream("mux mp4", 2), stream("mux mp4", 1), stream("present", 0)];
        let findings =
            CallFindings { level: Some(TraceLevel::Bpf), ambiguous: 4, streams, ..CallFindings::default() };
        let report =
            TraceReport::new("player".to_owned(), 1_000, Usage::default(), Vec::new(), 0, Some(findings));
        assert_eq!(report.notes(), ["left out: 4 ambiguous, 3 that did not pass mux mp4"]);
        let entry =
            |reason, stage: Option<&str>, frames| LeftOut { reason, stage: stage.map(str::to_owned), frames };
        assert_eq!(
            report.left_out,
            [entry(LeftOutReason::Ambiguous, None, 4), entry(LeftOutReason::Incomplete, Some("mux mp4"), 3)]
        );
        assert_eq!(report.of_part().left_out, []);
    }

    #[test]
    fn the_own_work_is_compared_with_the_programs() {
        let usage = Usage { cpu_ns: Some(2_000_000), ..Usage::default() };
        let mut report = TraceReport::new("player".to_owned(), 4_000_000, usage, Vec::new(), 0, None);
        assert!(!report.text().contains("own work"));
        report.own_cpu_ns = Some(26_000);
        assert!(
            report.text().contains("\nframepath's own work: 26.0 µs of CPU time (1.3 % of the program's)\n")
        );
        report.usage.cpu_ns = None;
        assert!(report.text().contains("\nframepath's own work: 26.0 µs of CPU time\n"));
    }
}
