// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that loads many libraries: it is never stopped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::processes::Process;
use framepath_testkit::{framepath, until, wait};
use tempfile::TempDir;

use super::{compile, source};
use crate::needs_bpf;

const PLUGINS: usize = 120;
/// Number of runs of each kind.
const PAIRS: usize = 3;

/// Compiles the program and a plug-in, and copies the plug-in, so that each copy is a library of its own.
fn folder() -> Result<(TempDir, PathBuf), Missing> {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    compile(&source("plugins.c"), &file("plugins"), &["-ldl"])?;
    fs::write(file("plugin.c"), "int plugin(void);\nint plugin(void)\n{\n\treturn 1;\n}\n").unwrap();
    compile(&file("plugin.c"), &file("plugin"), &["-shared", "-fPIC"])?;
    for number in 0..PLUGINS {
        fs::copy(file("plugin"), file(&format!("plugin-{number}.so"))).unwrap();
    }
    let program = file("plugins");
    Ok((folder, program))
}

/// States of the program that were seen: number of all samples, and of those in which it was stopped.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    all: usize,
    stopped: usize,
}

/// Returns the process of `child` or the one that it has started, whose program is `plugins`.
fn plugins_of(child: &Child) -> u32 {
    let is_ours = |process: &Process| {
        process.name == "plugins" && (process.pid == child.id() || process.parent == child.id())
    };
    let mut found = None;
    until("the program starts", || {
        found = Process::all().into_iter().find(is_ours);
        found.is_some()
    });
    found.unwrap().pid
}

/// Runs the program, and looks at its state all the time. Returns the time of the loads and the samples.
fn sampled(mut command: Command) -> (Duration, Samples) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = plugins_of(&child);
    let is_over = Arc::new(AtomicBool::new(false));
    let sampler = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut samples = Samples::default();
            while !is_over.load(Ordering::Relaxed) {
                let Some(process) = Process::of(pid) else { break };
                samples.all += 1;
                samples.stopped += usize::from(process.is_stopped());
                thread::sleep(Duration::from_micros(100));
            }
            samples
        }
    });
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let ran = wait(child, "plugins").ended(0);
    is_over.store(true, Ordering::Relaxed);
    (loaded(&ran.stdout).0, sampler.join().unwrap())
}

/// Returns the time of the loads, and the stops and continuations that the parent saw, if all plug-ins were loaded.
fn loaded(text: &str) -> (Duration, u64) {
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [loaded, ns, stops] = numbers[..] else { panic!("{text:?}") };
    assert_eq!(loaded, PLUGINS as u64, "{text:?}");
    (Duration::from_nanos(ns), stops)
}

fn traced(arguments: &[&str]) -> Command {
    framepath(&[&["trace", "--quiet", "--"], arguments].concat())
}

/// Returns the time of the loads and the stops that the parent saw.
fn watched(mut command: Command) -> (Duration, u64) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    loaded(&wait(child, "plugins").ended(0).stdout)
}

fn of(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

pub(crate) fn a_program_that_loads_many_libraries_is_never_stopped() -> Tested {
    needs_bpf()?;
    let (folder, program) = folder()?;
    let (plugins, program_name) = (folder.path().to_str().unwrap(), program.to_str().unwrap());
    let mut seen = Samples::default();
    for _ in 0..PAIRS {
        let (alone, _) = sampled(of(&program, &[plugins]));
        let (time, samples) = sampled(traced(&[program_name, plugins]));
        eprintln!("{PLUGINS} plug-ins: alone {alone:?}, traced {time:?}; {samples:?}");
        (seen.all, seen.stopped) = (seen.all + samples.all, seen.stopped + samples.stopped);
    }
    assert!(seen.all > 20 && seen.stopped == 0, "{seen:?}");
    Ok(())
}

/// The parent's waitpid(2) sees each stop, also one that the samples miss.
pub(crate) fn the_parent_of_such_a_program_sees_no_stop() -> Tested {
    needs_bpf()?;
    let (folder, program) = folder()?;
    let (plugins, program_name) = (folder.path().to_str().unwrap(), program.to_str().unwrap());
    assert_eq!(watched(of(&program, &[plugins, "watched"])).1, 0);
    let (time, stops) = watched(traced(&[program_name, plugins, "watched"]));
    assert_eq!(stops, 0, "stops and continuations in {time:?}");
    Ok(())
}
