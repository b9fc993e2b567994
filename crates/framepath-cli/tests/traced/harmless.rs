// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracing harms nobody: a traced command and a traced process run, stop, continue and end as they do alone.

pub(crate) mod commands;
pub(crate) mod killed;
pub(crate) mod limits;
pub(crate) mod loader;
pub(crate) mod plugins;
pub(crate) mod signals;
pub(crate) mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use framepath_os::process::children::signal_process;
use framepath_testkit::harness::Missing;
use framepath_testkit::processes::{Process, family, kill_family};
use framepath_testkit::{holds_within, in_checkout};
use tempfile::TempDir;

use crate::needs_bpf;

const LEVELS: [&str; 3] = ["bpf", "threads", "preload"];

/// Time limit of a step that takes milliseconds.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Returns the levels of this user.
pub(crate) fn levels() -> &'static [&'static str] {
    if needs_bpf().is_ok() { &LEVELS } else { &LEVELS[1..] }
}

/// Returns an entry for the environment of a run that no other run has.
pub(crate) fn mark() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("HARMLESS_RUN={}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Process of a test with all that it starts. Dropping the value kills them.
pub(crate) struct Run {
    child: Child,
    mark: String,
}

impl Run {
    /// Starts `command`. Without a terminal and input; signals to the test's process group do not reach it.
    pub(crate) fn start(command: &mut Command) -> Run {
        // CI has SIGINT and SIGQUIT ignored.
        framepath_os::process::signal_relay::restore_keys();
        let mark = mark();
        let (name, value) = mark.split_once('=').unwrap();
        let command =
            command.env(name, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = std::os::unix::process::CommandExt::process_group(command, 0).spawn().unwrap();
        Run { child, mark }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processes of the run that have not ended.
    pub(crate) fn left(&self) -> Vec<Process> {
        family(self.pid(), &self.mark)
    }

    /// Returns those of them that are stopped.
    pub(crate) fn stopped(&self) -> Vec<Process> {
        self.left().into_iter().filter(Process::is_stopped).collect()
    }

    /// Sends a signal to the first process, which may have ended.
    pub(crate) fn signal(&self, number: i32) {
        let _ = signal_process(self.pid(), number);
    }

    /// Waits for the end of the first process. Returns its exit code, in the shell's convention for signals; `None` if it has
    /// not ended after `limit`.
    pub(crate) fn code_within(&mut self, limit: Duration) -> Option<i32> {
        let mut status = None;
        holds_within(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.map(shell_code)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        kill_family(self.pid(), &self.mark);
        let _ = self.child.wait();
    }
}

/// Returns the exit code that a shell shows: 128 and the number of a signal that ended the process.
pub(crate) fn shell_code(status: std::process::ExitStatus) -> i32 {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_default();
    status.code().unwrap_or(128 + signal)
}

/// Returns `pid` and the state of each process, for texts.
pub(crate) fn shown(processes: &[Process]) -> String {
    let texts: Vec<String> =
        processes.iter().map(|one| format!("{} {} {}", one.pid, one.name, one.state)).collect();
    texts.join(", ")
}

/// Returns the file `name` of this folder.
pub(crate) fn source(name: &str) -> PathBuf {
    in_checkout("crates/framepath-cli/tests/traced").join(name)
}

/// Compiles the C file `source` to `output`, with `options` last.
///
/// # Errors
/// There is no C compiler.
pub(crate) fn compile(source: &Path, output: &Path, options: &[&str]) -> Result<(), Missing> {
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(output)
        .arg(source)
        .args(options);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return Err(Missing::new(format!("cc: {error}"))),
    }
    Ok(())
}

/// Returns true if the process `pid` has a descriptor whose name has the part `name`: of an event, or of a link of BPF.
pub(crate) fn has_descriptor(pid: u32, name: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.any(|target| target.to_string_lossy().contains(name))
}

/// Returns the number in a file; 0 if the file has none.
pub(crate) fn number_in(file: &Path) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Folder that other users can read.
pub(crate) fn open_folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    folder
}
