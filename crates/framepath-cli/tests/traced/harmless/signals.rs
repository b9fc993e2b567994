// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to the tracer: which of them reach the command, and which end the tracer.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use framepath_os::process::children::signal_process;
use framepath_testkit::harness::Tested;
use framepath_testkit::processes::Process;
use framepath_testkit::{framepath, holds_within};
use tempfile::TempDir;

use super::{Run, SOON, has_descriptor, levels, number_in, shown};
use crate::needs_bpf;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Time in which a tracer does nothing more after a signal: longer than any of its own limits.
const LONG: Duration = Duration::from_secs(6);

/// Program that counts in the file `count`. Writes a line to the file `signals` for each of SIGHUP, SIGINT and SIGTERM,
/// and goes on.
const HANDLES: &str = r#"for name in HUP INT TERM; do trap "echo $name >>signals" $name; done
    n=0; echo $$ >pid; while :; do sleep 0.05; n=$((n + 1)); echo $n >next; mv next count; done"#;

/// The same, without the handlers.
const COUNTS: &str =
    "n=0; echo $$ >pid; while :; do sleep 0.05; n=$((n + 1)); echo $n >next; mv next count; done";

/// Program with the folder of its files.
struct Counter {
    run: Run,
    folder: TempDir,
}

impl Counter {
    /// Starts `script` traced with the options `options`; alone with `None`. Returns when it counts.
    fn start(script: &str, options: Option<&[&str]>) -> Counter {
        let folder = TempDir::new().unwrap();
        let shell = ["sh", "-c", script];
        let mut command = match options {
            Some(options) => framepath(&[&["trace", "--quiet"], options, &["--"], &shell].concat()),
            None => {
                let mut command = Command::new(shell[0]);
                command.args(&shell[1..]);
                command
            }
        };
        let run = Run::start(command.current_dir(folder.path()));
        let counter = Counter { run, folder };
        counter.goes_on("at the start");
        counter
    }

    fn at_level(script: &str, level: &str) -> Counter {
        Counter::start(script, Some(&["--level", level]))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn count(&self) -> u64 {
        number_in(&self.file("count"))
    }

    /// Returns the process that counts.
    fn counting(&self) -> u32 {
        number_in(&self.file("pid")) as u32
    }

    fn signals(&self) -> String {
        fs::read_to_string(self.file("signals")).unwrap_or_default()
    }

    fn goes_on(&self, when: &str) {
        let before = self.count();
        let counts = holds_within(SOON, || self.count() > before);
        assert!(counts, "the program does not go on {when}: {}", shown(&self.run.left()));
    }

    fn stops_with_its_tracer(&self, what: &str) {
        let pids = [self.run.pid(), self.counting()];
        let is_stopped = |pid: u32| Process::of(pid).is_some_and(|process| process.is_stopped());
        let both = holds_within(SOON, || pids.into_iter().all(is_stopped));
        assert!(both, "{what}: the tracer and the program are not both stopped: {}", shown(&self.run.left()));
    }
}

pub(crate) fn the_first_signal_is_forwarded_and_the_second_ends_the_tracer() {
    let signals = [("TERM", SIGTERM), ("HUP", SIGHUP), ("INT", SIGINT)];
    let each = levels().iter().flat_map(|level| signals.map(|(name, number)| (*level, name, number)));
    // All at the same time, because each takes seconds.
    let mut counters: Vec<_> =
        each.map(|(level, name, number)| (level, name, number, Counter::at_level(HANDLES, level))).collect();
    let mut wrong = Vec::new();
    for (.., number, counter) in &counters {
        counter.run.signal(*number);
    }
    for (level, name, _, counter) in &counters {
        let wanted = format!("{name}\n");
        if !holds_within(SOON, || counter.signals() == wanted) {
            wrong.push(format!("{level}, SIG{name}: the command received {:?}", counter.signals()));
        }
    }
    std::thread::sleep(LONG);
    for (level, name, number, counter) in &mut counters {
        if let Some(code) = counter.run.code_within(Duration::ZERO) {
            wrong.push(format!("{level}, SIG{name}: the tracer ended with {code} after the first signal"));
        }
        counter.run.signal(*number);
    }
    for (level, name, _, counter) in &mut counters {
        if counter.run.code_within(SOON).is_none() {
            wrong.push(format!("{level}, SIG{name}: the tracer goes on after the second signal"));
        }
        let before = counter.count();
        if !holds_within(SOON, || counter.count() > before) {
            wrong.push(format!(
                "{level}, SIG{name}: the command does not run on: {}",
                shown(&counter.run.left())
            ));
        }
        if counter.signals() != format!("{name}\n") {
            wrong.push(format!("{level}, SIG{name}: the command received {:?} in all", counter.signals()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub(crate) fn a_signal_ends_a_command_that_does_not_handle_it() {
    for level in levels() {
        for number in [SIGTERM, SIGHUP, SIGINT] {
            let mut counter = Counter::at_level(COUNTS, level);
            counter.run.signal(number);
            let code = counter.run.code_within(SOON);
            assert_eq!(code, Some(128 + number), "{level}: {}", shown(&counter.run.left()));
            // Its children may end a little later.
            let has_ended = holds_within(SOON, || Process::of(counter.counting()).is_none());
            assert!(has_ended, "{level}, signal {number}: {}", shown(&counter.run.left()));
        }
    }
}

pub(crate) fn a_killed_tracer_leaves_its_command_running() {
    for level in levels() {
        let mut counter = Counter::at_level(COUNTS, level);
        counter.run.signal(SIGKILL);
        assert_eq!(counter.run.code_within(SOON), Some(128 + SIGKILL));
        counter.goes_on(&format!("after SIGKILL of the tracer, {level}"));
    }
}

pub(crate) fn each_signal_ends_only_the_tracer_of_a_running_process() {
    for level in levels().iter().filter(|level| **level != "preload") {
        let counter = Counter::start(COUNTS, None);
        for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGKILL] {
            let pid = counter.counting().to_string();
            let mut tracer = Run::start(&mut framepath(&["trace", "--quiet", "--level", level, "-p", &pid]));
            let tracer_pid = tracer.pid();
            let observes = || has_descriptor(tracer_pid, "perf_event");
            assert!(holds_within(SOON, observes), "{level}: the tracer does not begin");
            std::thread::sleep(Duration::from_millis(300));
            tracer.signal(number);
            assert!(tracer.code_within(SOON).is_some(), "{level}: the tracer goes on after signal {number}");
            counter.goes_on(&format!("after signal {number} to its tracer"));
            assert_eq!(shown(&counter.run.stopped()), "", "{level}: signal {number}");
        }
    }
}

pub(crate) fn a_stopped_command_stops_its_tracer() {
    for level in levels() {
        let mut counter = Counter::at_level(COUNTS, level);
        for round in 0..2 {
            signal_process(counter.counting(), SIGSTOP).unwrap();
            counter.stops_with_its_tracer(&format!("{level}, round {round}"));
            counter.run.signal(SIGCONT);
            counter.goes_on(&format!("after SIGCONT to the tracer, {level}"));
        }
        // The command alone is continued, ends, and the tracer says so when it goes on.
        signal_process(counter.counting(), SIGSTOP).unwrap();
        counter.stops_with_its_tracer(level);
        signal_process(counter.counting(), SIGCONT).unwrap();
        counter.goes_on(&format!("after SIGCONT to the command, {level}"));
        signal_process(counter.counting(), SIGTERM).unwrap();
        counter.run.signal(SIGCONT);
        assert_eq!(
            counter.run.code_within(SOON),
            Some(128 + SIGTERM),
            "{level}: {}",
            shown(&counter.run.left())
        );
    }
}

pub(crate) fn a_command_that_was_stopped_when_it_was_attached_stays_so() -> Tested {
    needs_bpf()?;
    let counter = Counter::start(COUNTS, None);
    signal_process(counter.counting(), SIGSTOP).unwrap();
    let pid = counter.counting().to_string();
    let mut tracer = Run::start(&mut framepath(&["trace", "--quiet", "-p", &pid, "--seconds", "1"]));
    assert_eq!(tracer.code_within(SOON), Some(0));
    assert!(Process::of(counter.counting()).is_some_and(|process| process.is_stopped()));
    signal_process(counter.counting(), SIGCONT).unwrap();
    counter.goes_on("after SIGCONT");
    Ok(())
}
