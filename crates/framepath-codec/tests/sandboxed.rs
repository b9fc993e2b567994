// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoders inside the sandbox: decodes every small committed clip in a worker that is
//! confined before the decoder is opened, and compares with this process.
//!
//! The binary starts itself as the worker, so it has its own main.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

use framepath_codec::{Decoder, DecoderOptions, DecoderOutput, Demuxer, OutputFormat};
use framepath_os::memory::commit;
use framepath_os::memory::pool::{GiveBack, GiveBackWords, GrantedMemory};
use framepath_os::process::sandbox::{self, ResourceLimits, SandboxRole};
use framepath_os::process::spawn::{SOCKET, spawn};

const WORKER: &str = "--worker";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [WORKER, clip, threads] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        worker(Path::new(clip), threads.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for clip in clips() {
        for threads in [1, 3] {
            let wanted = common::hashes(&clip, &common::options(threads, OutputFormat::Native));
            let got = in_worker(&clip, threads);
            let same = !wanted.is_empty() && got == wanted;
            if same {
                passed += 1
            } else {
                failed += 1
            }
            let word = if same { "ok" } else { "FAILED" };
            let name = clip.file_name().unwrap().to_string_lossy();
            println!("test {name}, {threads} threads, {} of {} frames ... {word}", got.len(), wanted.len());
        }
    }
    assert!(passed + failed > 0, "no clips");
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn clips() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips");
    let mut clips: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    clips.retain(|clip| clip.to_string_lossy().contains("180p"));
    clips.sort();
    clips
}

/// Returns the hashes of the frames of `clip` that a worker of this binary sends; fewer if the
/// worker ended early.
fn in_worker(clip: &Path, threads: u32) -> Vec<String> {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let threads = threads.to_string();
    let arguments = [OsStr::new(WORKER), clip.as_os_str(), OsStr::new(&threads)];
    let _worker = spawn(&std::env::current_exe().unwrap(), &arguments, theirs.as_fd()).unwrap();
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Creates the memory for pools, 8 areas of 256 MiB, which is never freed. Called before the
/// sandbox is entered, because no memfd can be made inside.
fn granted() -> &'static GiveBack {
    const SLOTS: u32 = 1024;
    let zeroed = |_| AtomicU64::new(0);
    let summary: Vec<_> = (0..GiveBackWords::summary_words(SLOTS)).map(zeroed).collect();
    let counts: Vec<_> = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
    let waits = Box::leak(Box::new(AtomicU32::new(0)));
    let words = GiveBackWords::new(waits, summary.leak(), counts.leak()).unwrap();
    let memory: Vec<_> = (0..8).map(|_| commit::grant(256 << 20).unwrap()).collect();
    let memory = Mutex::new(memory);
    let source = move |_| match memory.lock().unwrap().pop() {
        Some(fd) => Ok(GrantedMemory { number: 0, fd }),
        None => Err("no more memory".to_owned()),
    };
    Box::leak(Box::new(GiveBack::with_memory(words, Box::new(source))))
}

fn worker(clip: &Path, threads: u32) {
    // SAFETY: the socket that `spawn` put there; no other code here owns it.
    let mut socket = unsafe { File::from_raw_fd(SOCKET) };
    let mut demuxer = Demuxer::open(clip).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = demuxer.read().unwrap() {
        packets.push(packet);
    }
    let options =
        DecoderOptions { give_back: Some(granted()), ..common::options(threads, OutputFormat::Native) };
    sandbox::enter(SandboxRole::Decode, &ResourceLimits::default()).unwrap();
    assert!(File::open(clip).is_err(), "locked in");

    let mut decoder = Decoder::open(demuxer.info(), &options).unwrap();
    let mut packets = packets.into_iter();
    loop {
        let last = match packets.next() {
            Some(packet) => decoder.send(packet).map(|()| false),
            None => decoder.drain().map(|()| true),
        };
        let last = last.unwrap();
        while let DecoderOutput::Frame(frame) = decoder.receive().unwrap() {
            writeln!(socket, "{}", common::hash(&frame)).unwrap();
        }
        if last {
            return;
        }
    }
}
