// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run without enough file descriptors fails. The error blames no packet, and no packet is
//! skipped.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use framepath_testkit::{CommandOutput, finish, framepath, in_checkout, wait};

/// Number of packets of the clip that the command receives before its descriptors are limited.
const BEFORE: usize = 10;

/// Runs the path with at most `files` file descriptors per process.
fn with_files(files: u32, path: &str) -> CommandOutput {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {files} && exec \"$@\"");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_framepath"), "run", "--quiet", path]);
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(command)
}

pub fn too_few_descriptors_fail_the_run_and_skip_no_packet() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let path = format!("file {} ! decode host=process ! framemd5 -", clip.display());
    let mut codes = Vec::new();
    // From too few descriptors to load the program, to enough.
    for files in 4..40 {
        let ran = with_files(files, &path);
        assert!(!ran.stderr.contains("skipped"), "{files} descriptors: {ran:#?}");
        // 127: the dynamic linker could not load the libraries.
        assert!(matches!(ran.code, Some(0 | 1 | 127)), "{files} descriptors: {ran:#?}");
        codes.push(ran.code);
    }
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(1)), "{codes:?}");
}

/// Maximum number of attempts until a run has too few descriptors to share its frames.
const ROUNDS: usize = 5;

/// After the first worker's crash the next worker starts, but the caller has no descriptor to share
/// the frames with it.
pub fn running_out_of_descriptors_fails_the_run_and_skips_no_frame() {
    let path = "file FIFO host=inline ! decode threads=1 ! threshold host=process fault=crash@15 ! y4m -";
    // Several attempts: only one number of descriptors has this effect, and other threads also use
    // descriptors for short times.
    let unshared =
        (0..ROUNDS).any(|_| with_fewer(path).iter().any(|ran| ran.stderr.contains("share a pool")));
    assert!(unshared, "no run failed at that");
}

pub fn running_out_of_descriptors_fails_the_run_and_skips_no_packet() {
    with_fewer("file FIFO host=inline ! decode threads=1 host=process fault=crash@15 ! y4m -");
}

/// Runs the path 16 times, with 0 to 15 free descriptors after the first [`BEFORE`] packets. Later the
/// path's worker crashes, and the next worker needs descriptors. Checks that each run succeeds or fails
/// for lack of descriptors, and that both occur. Returns the results of the runs.
fn with_fewer(path: &str) -> Vec<CommandOutput> {
    let clip = fs::read(in_checkout("clips/vp9-180p8.ivf")).unwrap();
    let (first, rest) = clip.split_at(end_of_packet(&clip, BEFORE));
    let run = |more| {
        let (mut child, mut fifo) = started(path, first);
        // After the frames of the first packets, the first worker has all its descriptors.
        let seen = child.stdout.as_mut().unwrap().read(&mut [0; 4096]).unwrap();
        lower_limit(&child, more);
        // An error is ignored, because the command may have ended.
        let _ = fifo.write_all(rest);
        drop(fifo);
        let ran = wait_for_bytes(child);
        assert!(seen > 0 && !ran.stderr.contains("skipped"), "{more} more: {ran:#?}");
        assert!(matches!(ran.code, Some(0 | 1)), "{more} more: {ran:#?}");
        // EMFILE
        assert!(ran.code == Some(0) || ran.stderr.contains("os error 24"), "{more} more: {ran:#?}");
        ran
    };
    let ran: Vec<CommandOutput> = (0..16).map(run).collect();
    assert!(
        ran.iter().any(|ran| ran.code == Some(0)) && ran.iter().any(|ran| ran.code == Some(1)),
        "{ran:#?}"
    );
    ran
}

/// Returns the offset behind the first `number` packets of an IVF file.
fn end_of_packet(ivf: &[u8], number: usize) -> usize {
    let length = |at: usize| u32::from_le_bytes(ivf[at..at + 4].try_into().unwrap()) as usize;
    (0..number).fold(32, |at, _| at + 12 + length(at))
}

/// Starts the path with `FIFO` replaced by a new fifo, and writes `first` to the fifo. Returns the
/// process and the fifo's writing end.
fn started(path: &str, first: &[u8]) -> (Child, File) {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = path.replace("FIFO", fifo.to_str().unwrap());
    let child = framepath(&["run", "--quiet", &path]).spawn().unwrap();
    let mut writer = OpenOptions::new().write(true).open(&fifo).unwrap();
    writer.write_all(first).unwrap();
    (child, writer)
}

/// Limits the process to `more` descriptors in addition to its open ones.
fn lower_limit(child: &Child, more: usize) {
    let files = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let number = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().to_str().unwrap().parse();
    let used: BTreeSet<u64> = files.map(|file| number(file).unwrap()).collect();
    let limit = (0..).filter(|number| !used.contains(number)).nth(more);
    let pid = Pid::from_raw(child.id() as i32);
    prlimit(pid, Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
}

/// Waits for the process to end; discards its standard output, which is not text.
fn wait_for_bytes(mut child: Child) -> CommandOutput {
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let ran = wait(child, "a run without descriptors");
    reader.join().unwrap().unwrap();
    ran
}
