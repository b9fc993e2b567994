// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first SIGINT or SIGTERM ends every wait: the command exits with 130,
//! whatever it is blocked in. A second signal ends the command at once.

mod situation;

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::process::children;
use situation::{SITUATIONS, Situation};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGSTOP: i32 = 19;
/// Time limit for the end of the process after a signal; a process that takes longer hangs.
const HANGS: Duration = Duration::from_secs(10);

#[test]
fn the_first_sigint_ends_every_wait() {
    assert_all_end_after(SIGINT, "SIGINT");
}

#[test]
fn the_first_sigterm_ends_every_wait() {
    assert_all_end_after(SIGTERM, "SIGTERM");
}

fn assert_all_end_after(signal: i32, name: &str) {
    let mut wrong = Vec::new();
    for situation in SITUATIONS {
        let (mut child, _others) = situation.begin();
        settle(&mut child, situation);
        children::signal(&child, signal).unwrap();
        let since = Instant::now();
        let ended = ended_within(&mut child, HANGS);
        println!("{name} to exit: {:>4} ms  {}", since.elapsed().as_millis(), situation.what);
        if ended.and_then(|status| status.code()) != Some(130) {
            wrong.push((situation.what, ended));
        }
    }
    assert!(wrong.is_empty(), "after {name}, not exit code 130: {wrong:?}");
}

#[test]
fn a_stopped_zygote_does_not_hold_the_command() {
    let clip = framepath_testkit::clip("h264-180p8-container.mp4");
    let path = format!("file {clip} loop=inf rate=40 host=process ! decode host=process ! null");
    let mut child = framepath_testkit::framepath(&["run", "--quiet", &path]).spawn().unwrap();
    let children_of = |pid: u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let all = lists.collect::<String>();
        all.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    };
    // The zygote has forked the workers of the two stages, and spare ones.
    let zygote = || children_of(child.id()).into_iter().find(|pid| children_of(*pid).len() >= 4);
    framepath_testkit::until("the workers and the spare ones run", || zygote().is_some());
    children::signal_process(zygote().unwrap(), SIGSTOP).unwrap();
    children::signal(&child, SIGINT).unwrap();
    let ended = ended_within(&mut child, HANGS);
    assert_eq!(ended.and_then(|status| status.code()), Some(130));
}

#[test]
fn a_second_signal_ends_the_command_at_once() {
    // 143 is the second signal's code. The code is 130 if the process ended before the second
    // signal; then the test tries again.
    let mut codes = Vec::new();
    while codes.len() < 10 && !codes.contains(&Some(128 + SIGTERM)) {
        codes.push(code_after_two_signals());
    }
    assert!(codes.contains(&Some(128 + SIGTERM)), "{codes:?}");
}

fn code_after_two_signals() -> Option<i32> {
    // The command has 0.4 s after the first signal.
    let hangs = "a worker that hangs, with the stream inside";
    let situation = SITUATIONS.iter().find(|situation| situation.what == hangs).unwrap();
    let (mut child, _others) = situation.begin();
    settle(&mut child, situation);
    children::signal(&child, SIGINT).unwrap();
    // Waits until the first signal is delivered, because the kernel may reorder two pending
    // signals.
    while field(child.id(), "ShdPnd").is_some_and(|pending| pending != 0) {
        thread::sleep(Duration::from_millis(1));
    }
    children::signal(&child, SIGTERM).unwrap();
    ended_within(&mut child, HANGS).expect("it hangs").code()
}

#[test]
fn a_signal_that_comes_twice_is_one() {
    // As from timeout(1). The kernel may also join the two; a test on a busy machine tries again.
    let ends_cleanly = |_| {
        let path = "test rate=50 frames=0 ! null";
        let mut command = framepath_testkit::framepath(&["run", "--quiet", "--json", "-", path]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        framepath_testkit::until("signals are handled", || {
            let handled = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1);
            field(child.id(), "SigCgt").is_some_and(|caught| caught & handled == handled)
        });
        children::signal(&child, SIGINT).unwrap();
        while field(child.id(), "ShdPnd").is_some_and(|pending| pending != 0) {
            thread::sleep(Duration::from_millis(1));
        }
        children::signal(&child, SIGINT).unwrap();
        let code = ended_within(&mut child, HANGS).expect("it hangs").code();
        let summary = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        assert_eq!(code, Some(130));
        summary.contains("\"rows\"")
    };
    assert!((0..10).any(ends_cleanly), "no summary");
}

/// Returns the set of signals in the line `name` of /proc/PID/status: bit N-1 is signal N. `None` if
/// there is no such process or line.
fn field(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Waits until the child handles both signals and uses no CPU, which means that it is blocked. Panics
/// after 60 s, or if the child ends.
fn settle(child: &mut Child, situation: &Situation) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut before, mut quiet) = (None, 0);
    while quiet < 4 {
        assert!(Instant::now() < deadline, "{}: it never comes to rest", situation.what);
        if let Some(status) = child.try_wait().unwrap() {
            panic!("{}: ended by itself with {status}", situation.what);
        }
        let now = cpu_ticks(child.id());
        // Several samples, because a starting process on a busy machine may use no CPU either.
        let handled = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1);
        let catches = field(child.id(), "SigCgt").is_some_and(|caught| caught & handled == handled);
        quiet = if catches && before == Some(now) { quiet + 1 } else { 0 };
        before = Some(now);
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the sum of user and system time of a process so far, in the kernel's ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Fields 14 and 15 of proc(5); the first here is field 3.
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits for the child's end and returns its status. Kills the child and returns `None` if it does
/// not end within `limit`.
fn ended_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
