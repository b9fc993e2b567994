// SPDX-License-Identifier: MIT OR Apache-2.0
//! Level `preload` with programs that do what programs do with a library in them, and with the real ffmpeg.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use framepath_os::process::children;
use framepath_trace::{Call, CallEvent, NO_PTS, Phase, Recording, TraceError, TraceLevel, TraceReport};
use libtest_mimic::{Arguments, Completion, Trial};

/// First argument with which this binary records the command of the other arguments.
const RECORD: &str = "--record";

/// Frames of the clip.
const FRAMES: usize = 30;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == RECORD) {
        let mut command = Command::new(&arguments[1]);
        command.args(&arguments[2..]);
        record(&mut command);
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, &str, fn()); 11] = [
        ("all_frames_pass_the_calls_of_ffmpeg", "ffmpeg", all_frames_pass_the_calls_of_ffmpeg),
        ("the_output_of_ffmpeg_is_the_same", "ffmpeg", the_output_of_ffmpeg_is_the_same),
        ("buffers_pass_the_pads_of_gstreamer", "gst-launch-1.0", buffers_pass_the_pads_of_gstreamer),
        ("no_call_of_500_threads_is_missing", "cc", no_call_of_500_threads_is_missing),
        ("processes_are_told_apart", "cc", processes_are_told_apart),
        ("a_daemon_that_closes_all_is_recorded", "cc", a_daemon_that_closes_all_is_recorded),
        ("each_plug_in_has_its_own_library", "cc", each_plug_in_has_its_own_library),
        ("the_end_by_a_signal_is_no_trouble", "cc", the_end_by_a_signal_is_no_trouble),
        ("a_program_that_overwrites_the_ring", "cc", a_program_that_overwrites_the_ring),
        ("nothing_is_left_after_sigkill", "cc", nothing_is_left_after_sigkill),
        ("a_running_process_cannot_get_the_library", "true", a_running_process_cannot_get_the_library),
    ];
    let is_denied = matches!(
        Recording::of_command(Command::new("true"), Some(TraceLevel::Threads)),
        Err(TraceError::Denied { .. })
    );
    let trials = tests.map(|(name, program, test)| {
        Trial::ignorable_test(name, move || {
            if is_denied {
                return Ok(Completion::ignored_with("the kernel denies perf; see perf_event_paranoid"));
            }
            if !has_program(program) {
                return Ok(Completion::ignored_with(format!("no {program} in PATH; install it")));
            }
            test();
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn record(command: &mut Command) -> TraceReport {
    let command = std::mem::replace(command, Command::new("false"));
    Recording::of_command(command, Some(TraceLevel::Preload)).unwrap().run(None).unwrap()
}

fn clip() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips/h264-180p8-container.mp4")
}

/// Substitutes for libavcodec, plug-ins and programs, compiled once.
static PROGRAMS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload");
    let compile = |output: &str, source: &str, options: &[&str]| {
        let mut cc = Command::new("cc");
        cc.current_dir(&folder).args(["-O2", "-Wall", "-Wextra", "-o", output]).arg(sources.join(source));
        let done = cc.args(options).status().unwrap();
        assert!(done.success(), "{cc:?}");
    };
    for version in ["1", "2"] {
        fs::create_dir(folder.path().join(version)).unwrap();
        let (library, name) =
            (format!("{version}/libavcodec.so.{version}"), format!("libavcodec.so.{version}"));
        let shared = ["-fPIC", "-shared"];
        let soname = format!("-Wl,-soname,{name}");
        compile(&library, "library.c", &[shared[0], shared[1], &format!("-DVERSION={version}"), &soname]);
        compile(
            &format!("{version}/plugin.so"),
            "plugin.c",
            &[shared[0], shared[1], &library, "-Wl,-rpath,$ORIGIN"],
        );
    }
    let options = ["-pthread", "-DVERSION=1", "1/libavcodec.so.1", "-Wl,-rpath,$ORIGIN/1"];
    compile("program", "program.c", &options);
    compile("host", "program.c", &["-DHOST"]);
    folder
});

/// Records the test program with the test `name`.
fn record_program(name: &str) -> TraceReport {
    record(Command::new(PROGRAMS.path().join("program")).arg(name))
}

fn leaves(report: &TraceReport, call: Call) -> impl Iterator<Item = &CallEvent> {
    report.calls.iter().filter(move |event| event.call == call && event.phase == Phase::Leave)
}

/// Returns the number of calls of each process, and checks that each call has a begin and an end.
fn calls_of_processes(report: &TraceReport) -> BTreeMap<i32, usize> {
    let mut counts = BTreeMap::new();
    for event in &report.calls {
        *counts.entry(event.process).or_insert(0) += 1;
    }
    let ends = report.calls.iter().filter(|event| event.phase == Phase::Leave).count();
    assert_eq!(2 * ends, report.calls.len());
    counts.into_iter().map(|(process, count)| (process, count / 2)).collect()
}

fn all_frames_pass_the_calls_of_ffmpeg() {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error", "-i"]).arg(clip());
    let report = record(ffmpeg.args(["-vf", "hflip", "-c:v", "mpeg4", "-f", "null", "-"]));
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    let good = |call| leaves(&report, call).filter(|event| event.result >= 0).collect::<Vec<_>>();
    for (call, phase_of_item) in [
        (Call::ReadPacket, Phase::Leave),
        (Call::ReceiveFrame, Phase::Leave),
        (Call::FilterInput, Phase::Enter),
        (Call::FilterOutput, Phase::Leave),
        (Call::ReceivePacket, Phase::Leave),
        (Call::SendFrame, Phase::Enter),
        (Call::SendPacket, Phase::Enter),
        (Call::WritePacket, Phase::Enter),
    ] {
        let with_item = report.calls.iter().filter(|event| event.call == call && event.data != 0);
        let with_item: Vec<&CallEvent> = with_item.collect();
        assert!(with_item.iter().all(|event| event.phase == phase_of_item), "{call:?}");
        // ffmpeg also decodes the first packet to learn the format.
        let items: BTreeSet<i64> = with_item.iter().map(|event| event.pts).collect();
        assert_eq!((items.len(), items.contains(&NO_PTS)), (FRAMES, false), "{call:?}");
    }
    for call in
        [Call::ReadPacket, Call::ReceiveFrame, Call::FilterOutput, Call::ReceivePacket, Call::WritePacket]
    {
        assert_eq!(good(call).len(), FRAMES, "{call:?}");
    }
    // A packet that was read is sent, under the same address.
    let read: BTreeSet<(u64, i64)> =
        good(Call::ReadPacket).iter().map(|event| (event.data, event.pts)).collect();
    let sent = report.calls.iter().filter(|event| event.call == Call::SendPacket && event.data != 0);
    let sent: BTreeSet<(u64, i64)> = sent.map(|event| (event.data, event.pts)).collect();
    assert!(read.is_subset(&sent), "{read:?} {sent:?}");
    let opened: Vec<i32> = leaves(&report, Call::OpenGraph).map(|event| event.result).collect();
    assert!(opened.contains(&0), "{opened:?}");
    // The threads are those that the kernel reports.
    let threads: BTreeSet<i32> = report.threads.iter().map(|row| row.thread).collect();
    assert!(report.calls.iter().all(|event| threads.contains(&event.thread)));
}

fn the_output_of_ffmpeg_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = |recorded: bool, name: &str, options: &[&str]| {
        let path = |end: &str| folder.path().join(format!("{name}-{recorded}.{end}"));
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-i"]).arg(clip()).args(options).arg("-");
        command.stdout(File::create(path("out")).unwrap()).stderr(File::create(path("err")).unwrap());
        let exit_code =
            if recorded { record(&mut command).usage.exit_code } else { command.status().unwrap().code() };
        (exit_code, fs::read(path("out")).unwrap(), fs::read(path("err")).unwrap())
    };
    for (name, options) in [
        ("md5", &["-f", "framemd5"][..]),
        ("encode", &["-c:v", "mpeg4", "-bitexact", "-f", "matroska"]),
        ("error", &["-c:v", "no-such-encoder", "-f", "matroska"]),
    ] {
        let (recorded, plain) = (run(true, name, options), run(false, name, options));
        assert!(plain.1.len() > 1000 || name == "error");
        assert!(recorded == plain, "{name}: {:?}", String::from_utf8_lossy(&recorded.2));
    }
}

fn buffers_pass_the_pads_of_gstreamer() {
    let pipeline =
        "videotestsrc num-buffers=20 ! ( identity name=first ) ! queue name=middle ! fakesink name=end";
    let mut command = Command::new("gst-launch-1.0");
    let report = record(command.arg("-q").args(pipeline.split(' ')));
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    let mut of_pads = BTreeMap::<u64, BTreeSet<i64>>::new();
    for event in report.calls.iter().filter(|event| event.call == Call::PadPush) {
        let times = of_pads.entry(event.object).or_default();
        times.extend((event.phase == Phase::Enter).then_some(event.pts));
    }
    assert_eq!(of_pads.values().map(BTreeSet::len).collect::<Vec<_>>(), [20; 3]);
    // The elements are found behind the border of the bin.
    let stages: Vec<&str> = report.streams[0].stages.iter().map(String::as_str).collect();
    assert_eq!((stages.last(), report.streams[0].frames), (Some(&"end"), 20), "{stages:?}");
    assert!(stages.contains(&"first") && stages.contains(&"middle"), "{stages:?}");
}

fn no_call_of_500_threads_is_missing() {
    let report = record_program("threads");
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    let mut of_threads = BTreeMap::<(i32, u64), usize>::new();
    for event in leaves(&report, Call::SendPacket) {
        *of_threads.entry((event.thread, event.object)).or_default() += 1;
        assert_eq!(event.result, 1);
    }
    assert_eq!(of_threads.len(), 500);
    assert!(of_threads.values().all(|calls| *calls == 20), "{of_threads:?}");
    let items = report.calls.iter().filter(|event| event.phase == Phase::Enter);
    assert!(items.map(|event| (event.data, event.pts)).all(|item| item == (4242, 42)));
}

fn processes_are_told_apart() {
    let report = record_program("fork");
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    // The child calls before and after it executes a program.
    let mut counts: Vec<usize> = calls_of_processes(&report).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [3 + 5, 4 + 6]);
    assert!(report.calls.iter().all(|event| event.process == event.thread));
}

fn a_daemon_that_closes_all_is_recorded() {
    let report = record_program("close");
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    let mut counts: Vec<usize> = calls_of_processes(&report).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 6]);
}

fn each_plug_in_has_its_own_library() {
    let folder = PROGRAMS.path();
    let plug_ins = ["1/plugin.so", "2/plugin.so"].map(|name| folder.join(name));
    // The program checks which library answers.
    let report = record(Command::new(folder.join("host")).args(plug_ins));
    assert_eq!((report.usage.exit_code, report.lost_events), (Some(0), 0));
    assert_eq!(calls_of_processes(&report).into_values().collect::<Vec<_>>(), [3 * 2 * 2]);
}

fn the_end_by_a_signal_is_no_trouble() {
    let report = record_program("killed");
    assert_eq!(report.usage.signal, Some(9));
    // More calls than the ring can have: some may be lost, and are counted.
    assert!(leaves(&report, Call::SendPacket).count() > 1000);
}

fn a_program_that_overwrites_the_ring() {
    let report = record_program("scribble");
    assert_eq!(report.usage.exit_code, Some(0));
    assert!(report.lost_events > 0);
    report.text();
}

fn nothing_is_left_after_sigkill() {
    let mut recorder = Command::new(std::env::current_exe().unwrap());
    recorder.arg(RECORD).arg(PROGRAMS.path().join("program")).arg("slow").stdout(Stdio::piped());
    let mut recorder = recorder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    let of_program = |name: &str| format!("/proc/{pid}/{name}");
    let descriptors_in = |folder: &str| {
        let links = fs::read_dir(folder).unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
        links.filter_map(Result::ok).map(|link| link.display().to_string()).collect::<Vec<_>>()
    };
    // Without those that the program inherits from this test.
    let own = descriptors_in("/proc/self/fd");
    let descriptors = || {
        let of_program = descriptors_in(&of_program("fd")).into_iter();
        of_program.filter(|name| !own.contains(name)).collect::<Vec<_>>()
    };
    assert!(fs::read_to_string(of_program("maps")).unwrap().contains("framepath-calls"));
    let environment = fs::read(of_program("environ")).unwrap();
    let variables = environment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let ring = variables.filter_map(|text| text.strip_prefix("FRAMEPATH_TRACE_RING=")).next().unwrap();
    assert!(Path::new(ring).exists());
    assert!(descriptors().iter().all(|name| !name.contains("framepath")), "{:?}", descriptors());

    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(!Path::new(ring).exists());
    let stat = || fs::read_to_string(of_program("schedstat")).unwrap();
    // The program goes on, with its one thread.
    let before = stat();
    let runs = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        stat() != before
    });
    assert!(runs);
    assert_eq!(fs::read_dir(of_program("task")).unwrap().count(), 1);
    assert!(descriptors().iter().all(|name| !name.contains("framepath")), "{:?}", descriptors());
    children::signal_process(pid, 9).unwrap();
}

fn a_running_process_cannot_get_the_library() {
    let error = Recording::of_process(std::process::id(), Some(TraceLevel::Preload)).unwrap_err();
    assert!(matches!(error, TraceError::NoPreload { .. }), "{error}");
}
