// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracers that are killed at any time: the program goes on, and no probe is left in its memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::processes::Process;
use framepath_testkit::{framepath, holds_within};
use tempfile::TempDir;

use super::{Run, SOON, compile, has_descriptor, shown, source};
use crate::needs_bpf;

/// Number of killed tracers of each kind.
const ROUNDS: u64 = 100;
/// Time after the tracer's start, or after the start of its observation, until which it is killed.
const LATEST: Duration = Duration::from_millis(60);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGNALS: [(&str, i32); 3] = [("SIGKILL", SIGKILL), ("SIGTERM", SIGTERM), ("SIGINT", 2)];
/// Number of wrong rounds after which a test ends.
const MOST_WRONG: usize = 10;
/// Environment variable with the seed of an earlier run.
const SEED: &str = "HARMLESS_SEED";
/// Libraries of the program; it keeps the first two. They are copies, because probes belong to files: other tests, which trace
/// at the same time, have probes in the system's libraries, and remove those that a killed tracer has left there.
const LIBRARIES: [&str; 4] = ["libavcodec.so", "libavformat.so", "libavfilter.so", "libavutil.so"];
/// Number of those that stay mapped and have functions that a tracer probes.
const PROBED: usize = 2;

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    /// Takes the seed from the environment, or from the time.
    fn new() -> Random {
        let of_time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or_else(of_time);
        eprintln!("{SEED}={seed}");
        Random(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

/// Compiled program counter.c with its libraries.
struct Program {
    folder: Rc<TempDir>,
    /// Paths of the libraries.
    libraries: Vec<PathBuf>,
    /// File in which the program writes its numbers.
    progress: PathBuf,
    /// Bytes of the libraries that were compared.
    files: HashMap<PathBuf, Vec<u8>>,
}

/// Numbers of counter.c.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    rounds: u64,
    children: u64,
    stops: u64,
}

impl Program {
    fn new() -> Result<Program, Missing> {
        let folder = TempDir::new().unwrap();
        compile(&source("counter.c"), &folder.path().join("counter"), &["-ldl"])?;
        let libraries =
            LIBRARIES.into_iter().map(|name| copy(name, folder.path())).collect::<Result<_, _>>()?;
        let progress = folder.path().join("progress");
        Ok(Program { folder: Rc::new(folder), libraries, progress, files: HashMap::new() })
    }

    /// Returns the same program and libraries with numbers of its own.
    fn another(&self) -> Program {
        let progress = self.folder.path().join("progress of another");
        let (folder, libraries) = (Rc::clone(&self.folder), self.libraries.clone());
        Program { folder, libraries, progress, files: HashMap::new() }
    }

    /// Returns the program and its arguments.
    fn words(&self) -> Vec<String> {
        let program = self.folder.path().join("counter");
        let files = [program, self.progress.clone()].into_iter().chain(self.libraries.iter().cloned());
        files.map(|file| file.to_str().unwrap().to_owned()).collect()
    }

    /// Starts the program as `command` does, which may be traced.
    fn run(&self, command: &mut Command) -> Run {
        let _ = fs::remove_file(&self.progress);
        Run::start(command.env("LD_LIBRARY_PATH", self.folder.path()))
    }

    /// Starts the program traced.
    fn traced(&self) -> Run {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.run(&mut framepath(&[&["trace", "--quiet", "--"], &words[..]].concat()))
    }

    fn progress(&self) -> Progress {
        let bytes = fs::read(&self.progress).unwrap_or_default();
        let number = |at: usize| {
            bytes.get(8 * at..8 * at + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
        };
        Progress { rounds: number(1), children: number(2), stops: number(4) }
    }

    /// Starts the program, untraced, and waits until it counts.
    fn start(&self) -> Run {
        let words = self.words();
        let run = self.run(Command::new(&words[0]).args(&words[1..]));
        assert!(holds_within(SOON, || self.progress().rounds > 0), "the program does not start");
        run
    }

    /// Returns true when the program has counted on and started another child.
    fn goes_on(&self) -> bool {
        let before = self.progress();
        holds_within(SOON, || {
            let now = self.progress();
            now.rounds > before.rounds && now.children > before.children
        })
    }

    /// Returns the bytes in the program's memory that differ from those of its files: breakpoints.
    fn changed_bytes(&mut self, pid: u32) -> Vec<String> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return vec!["no memory".to_owned()] };
        let mut changed = Vec::new();
        let mut compared = 0;
        for line in maps.lines() {
            // from-to r-xp offset device inode path
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [range, "r-xp", offset, _, _, path] = fields[..] else { continue };
            let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
            if !self.libraries[..PROBED].iter().any(|library| library == Path::new(path)) {
                continue;
            }
            let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let (from, to, offset) = (number(from), number(to), number(offset));
            let mut found = vec![0; to - from];
            if memory.read_exact_at(&mut found, from as u64).is_err() {
                changed.push(format!("{name} cannot be read"));
                continue;
            }
            let file = self.files.entry(path.into()).or_insert_with(|| fs::read(path).unwrap());
            // Behind the file's end, the page has zeros.
            let wanted = file[offset..].iter().copied().chain(std::iter::repeat(0));
            let different =
                found.iter().zip(wanted).enumerate().filter(|(_, (found, wanted))| **found != *wanted);
            changed.extend(
                different.map(|(at, (found, _))| format!("{name}+{:#x} is {found:#x}", offset + at)).take(5),
            );
            compared += 1;
        }
        if compared < PROBED {
            changed.push(format!("only {compared} files are mapped"));
        }
        changed
    }

    /// Checks a command whose tracer was killed, perhaps before the command began. Returns the faults.
    fn faults_of_command(&mut self, tracer: &Run, has_begun: bool) -> Vec<String> {
        let command = || tracer.left().into_iter().find(|process| process.name == "counter");
        // A command that has not begun ends without its tracer. One that is about to begin loads its libraries first.
        let is_decided = || tracer.left().is_empty() || self.progress().rounds > 0;
        if !holds_within(SOON, is_decided) {
            return vec![format!("neither begins nor ends: {}", shown(&tracer.left()))];
        }
        match command() {
            Some(process) => {
                let mut faults = self.faults(process.pid, || tracer.stopped());
                let stops = self.progress().stops;
                if stops > 0 {
                    faults.push(format!("its parent saw {stops} stops of its children"));
                }
                faults
            }
            None if has_begun => vec!["the command has ended with its tracer".to_owned()],
            None => Vec::new(),
        }
    }

    /// Checks a program whose tracer is gone. Returns its faults.
    fn faults(&mut self, pid: u32, stopped: impl Fn() -> Vec<Process>) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.goes_on() {
            faults.push("the program does not go on".to_owned());
        }
        if !holds_within(SOON, || stopped().is_empty()) {
            faults.push(format!("stopped: {}", shown(&stopped())));
        }
        let mut changed = Vec::new();
        holds_within(Duration::from_secs(3), || {
            changed = self.changed_bytes(pid);
            changed.is_empty()
        });
        faults.extend(changed);
        faults
    }
}

/// Copies a library to `folder`, with the name by which others need it.
pub(crate) fn copy(name: &str, folder: &Path) -> Result<PathBuf, Missing> {
    let found = Command::new("cc").arg(format!("-print-file-name={name}")).output().unwrap().stdout;
    let found = PathBuf::from(String::from_utf8(found).unwrap().trim());
    let file =
        found.canonicalize().map_err(|_| Missing::new(format!("no {name}; apt install libavfilter-dev")))?;
    // libavcodec.so.59.37.100 is libavcodec.so.59.
    let parts = file.file_name().unwrap().to_str().unwrap().split('.').take(3);
    let copy = folder.join(parts.collect::<Vec<_>>().join("."));
    fs::copy(&file, &copy).unwrap();
    Ok(copy)
}

/// Sleeps for a random time: in each second round from the begin of the observation on.
fn pause(random: &mut Random, round: u64, mut has_begun: impl FnMut() -> bool) -> String {
    let is_late = round % 2 == 1;
    let since = if is_late { "the begin of the observation" } else { "the start" };
    if is_late && !holds_within(Duration::from_secs(3), &mut has_begun) {
        return "without observation".to_owned();
    }
    let time = Duration::from_micros(random.below(LATEST.as_micros() as u64));
    thread::sleep(time);
    format!("{time:?} after {since}")
}

fn assert_harmless(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} of at most {ROUNDS} rounds are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

pub(crate) fn a_killed_tracer_of_a_process_leaves_nothing() -> Tested {
    needs_bpf()?;
    let (mut program, mut random, mut wrong) = (Program::new()?, Random::new(), Vec::new());
    let mut run = program.start();
    for round in 0..ROUNDS {
        let (name, number) = SIGNALS[random.below(3) as usize];
        let pid = run.pid();
        let stops = program.progress().stops;
        let mut tracer = Run::start(&mut framepath(&["trace", "--quiet", "-p", &pid.to_string()]));
        let tracer_pid = tracer.pid();
        let when = pause(&mut random, round, || has_descriptor(tracer_pid, "bpf_link"));
        tracer.signal(number);
        let mut faults = Vec::new();
        if tracer.code_within(SOON).is_none() {
            faults.push("the tracer does not end".to_owned());
        }
        drop(tracer);
        faults.extend(program.faults(pid, || run.stopped()));
        let stops = program.progress().stops - stops;
        if stops > 0 {
            faults.push(format!("its parent saw {stops} stops of its children"));
        }
        if !faults.is_empty() {
            wrong.push(format!("round {round}: {name} {when}: {}", faults.join("; ")));
            run = program.start();
        }
        if wrong.len() > MOST_WRONG {
            break;
        }
    }
    assert_harmless(&wrong);
    Ok(())
}

pub(crate) fn a_killed_tracer_of_a_command_leaves_nothing() -> Tested {
    needs_bpf()?;
    let (mut program, mut random, mut wrong) = (Program::new()?, Random::new(), Vec::new());
    // An untraced one, which has the probes of the files, too.
    let mut beside = program.another();
    let mut untraced = beside.start();
    for round in 0..ROUNDS {
        let signal = SIGNALS[random.below(3) as usize];
        let mut tracer = program.traced();
        let when = pause(&mut random, round, || program.progress().rounds > 0);
        let has_begun = program.progress().rounds > 0;
        tracer.signal(signal.1);
        let mut faults = match (tracer.code_within(SOON), signal.1) {
            (None, _) => vec![format!("the tracer does not end: {}", shown(&tracer.left()))],
            (_, SIGKILL) => program.faults_of_command(&tracer, has_begun),
            (code, number) => ended_with(&tracer, code, number),
        };
        drop(tracer);
        let of_others = beside.faults(untraced.pid(), || untraced.stopped());
        if !of_others.is_empty() {
            faults.push(format!("an untraced program: {}", of_others.join("; ")));
            untraced = beside.start();
        }
        if !faults.is_empty() {
            wrong.push(format!("round {round}: {} {when}: {}", signal.0, faults.join("; ")));
        }
        if wrong.len() > MOST_WRONG {
            break;
        }
    }
    assert_harmless(&wrong);
    Ok(())
}

/// Checks a command to which its tracer has forwarded a signal before it ended itself. Returns the faults.
fn ended_with(tracer: &Run, code: Option<i32>, number: i32) -> Vec<String> {
    let mut faults = Vec::new();
    // The command's child ends by itself.
    if !holds_within(SOON, || tracer.left().is_empty()) {
        faults.push(format!("left: {}", shown(&tracer.left())));
    }
    if code != Some(128 + number) {
        faults.push(format!("the tracer's exit code is {}", code.unwrap_or_default()));
    }
    faults
}

/// SIGKILL that comes while the tracer removes its probes: behind the end of its command, and behind SIGTERM. A kernel gives up
/// the removal then, if a thread of the tracer waits for it in close(2) (`failed to unregister, leaking uprobe`).
pub(crate) fn a_tracer_that_is_killed_while_it_ends_leaves_nothing() -> Tested {
    needs_bpf()?;
    let (mut program, mut random, mut wrong) = (Program::new()?, Random::new(), Vec::new());
    let mut run = program.start();
    let folder = Rc::clone(&program.folder);
    // It finds the program's libraries, and puts its probes there.
    let short =
        || Run::start(framepath(&["trace", "--quiet", "--", "true"]).env("LD_LIBRARY_PATH", folder.path()));
    let begun = Instant::now();
    assert_eq!(short().code_within(SOON), Some(0));
    let whole = begun.elapsed();
    let below = |random: &mut Random, limit: Duration| {
        let time = Duration::from_micros(random.below(limit.as_micros() as u64));
        thread::sleep(time);
        time
    };
    for round in 0..ROUNDS {
        let (mut tracer, when) = if round % 2 == 0 {
            let tracer = short();
            let time = below(&mut random, whole);
            (tracer, format!("{time:?} after the start of a command, of {whole:?} until its end"))
        } else {
            let tracer = Run::start(&mut framepath(&["trace", "--quiet", "-p", &run.pid().to_string()]));
            let pid = tracer.pid();
            let observes = holds_within(SOON, || has_descriptor(pid, "bpf_link"));
            assert!(observes, "the tracer does not begin");
            thread::sleep(LATEST);
            tracer.signal(SIGTERM);
            let time = below(&mut random, LATEST);
            (tracer, format!("{time:?} after SIGTERM"))
        };
        tracer.signal(SIGKILL);
        assert!(tracer.code_within(SOON).is_some(), "the tracer does not end");
        drop(tracer);
        let faults = program.faults(run.pid(), || run.stopped());
        if !faults.is_empty() {
            wrong.push(format!("round {round}: SIGKILL {when}: {}", faults.join("; ")));
            run = program.start();
        }
        if wrong.len() > MOST_WRONG {
            break;
        }
    }
    assert_harmless(&wrong);
    Ok(())
}

/// Probes belong to files, so they are in the memory of other programs, too, until the tracer is gone.
pub(crate) fn programs_beside_a_traced_one_run_on() -> Tested {
    needs_bpf()?;
    let traced = Program::new()?;
    let mut beside = traced.another();
    let run = beside.start();
    for (name, number) in SIGNALS {
        let mut tracer = traced.traced();
        assert!(holds_within(SOON, || traced.progress().rounds > 100), "{}", shown(&tracer.left()));
        assert!(beside.goes_on() && run.stopped().is_empty(), "during the trace: {}", shown(&run.left()));
        tracer.signal(number);
        assert!(tracer.code_within(SOON).is_some(), "the tracer goes on after {name}");
        drop(tracer);
        assert_eq!(beside.faults(run.pid(), || run.stopped()), Vec::<String>::new(), "after {name}");
        assert_eq!(beside.progress().stops, 0, "stops of the program's children");
    }
    Ok(())
}
