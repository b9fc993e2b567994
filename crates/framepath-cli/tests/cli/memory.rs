// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoders without enough memory: libavcodec hides failed allocations, and framepath must not take
//! them for damage of the stream.

use std::process::{Command, Stdio};

use framepath_testkit::{CommandOutput, ffmpeg, finish, program};

/// Limits between which the first one with exit code 0 is searched, bytes of address space.
const SEARCHED: (u64, u64) = (200 << 20, 2 << 30);

/// Distance between the limits that are tried above the first one with exit code 0: in this range a
/// few small allocations fail.
const ABOVE: u64 = 8 << 10;

/// Distance between the limits that are tried below.
const BELOW: u64 = 512 << 10;

/// Decodes `file` with an address space of `bytes`.
fn decoded(file: &str, options: &str, bytes: u64) -> CommandOutput {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={bytes}")).arg(program());
    let path = format!("file '{file}' ! decode host=inline {options} ! framemd5 -");
    command.args(["run", "--quiet", "--ledger", "off", &path]);
    finish({
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    })
}

/// Checks that a run of exit code 0 delivers all frames, with limits around the memory that the run
/// needs. Returns the errors.
fn check(encoder: &[&str], options: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.mkv");
    let file = file.to_str().unwrap();
    let source = ["-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25", "-frames:v", "8"];
    ffmpeg(&[&source[..], encoder, &["-pix_fmt", "yuv420p", file]].concat());
    let (mut low, mut high) = SEARCHED;
    let whole = decoded(file, options, high).ended(0).frames();
    assert_eq!(whole.len(), 8);
    while high - low > ABOVE {
        let middle = low.midpoint(high);
        if decoded(file, options, middle).code == Some(0) { high = middle } else { low = middle }
    }
    let above = (0..8).map(|step| high + step * ABOVE);
    let below = (1..20).map(|step| high - step * BELOW);
    let mut errors = Vec::new();
    for limit in above.chain(below) {
        let run = decoded(file, options, limit);
        assert!(run.code != Some(0) || run.frames() == whole, "limit {limit}: {run:#?}");
        assert!(!run.stderr.contains("damaged stream"), "limit {limit}: {run:#?}");
        errors.push(run.stderr);
    }
    errors
}

#[test]
fn a_lack_of_memory_on_slice_threads_is_an_error() {
    let errors = check(&["-c:v", "ffv1", "-level", "3", "-slices", "24"], "threads=8 pool=14");
    assert!(errors.iter().any(|error| error.contains("ffv1: out of memory")), "{errors:?}");
}

#[test]
fn a_lack_of_memory_on_frame_threads_is_an_error() {
    let errors = check(&["-c:v", "libx264", "-preset", "ultrafast"], "threads=2");
    assert!(errors.iter().any(|error| error.contains("memory")), "{errors:?}");
}
