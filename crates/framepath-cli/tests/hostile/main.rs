// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers that attack `framepath`. After every attack `framepath` ends by itself, in
//! time, and either reports an error or continues with another worker without a
//! loss.
//!
//! The module `flush` runs such a worker in a program that seeks.
//!
//! The modules `caller` and `deed` have callers that attack a worker of `framepath`: the worker also
//! ends by itself, in time. In `scribble` a third process writes into the memory that caller and
//! worker share.
//!
//! This binary is also the worker: `framepath` starts it under a name that selects
//! the act. Arguments select the acts to run.

use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

mod act;
mod caller;
mod deed;
mod demuxer;
mod flood;
mod flush;
mod peer;
mod pools;
mod scribble;

use framepath_model::wire::VERSION;
use framepath_os::crossing::Socket;

use act::{ACTS, Act, Part, Then};
use caller::Caller;
use deed::{DEEDS, Deed};
use scribble::PARTS;

/// Number of tests that run at the same time; most of them sleep.
const AT_ONCE: usize = 6;

type Test = Box<dyn Fn() + Send + Sync>;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let own = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "framepath-worker") {
        peer::run(Path::new(&own));
    }
    if let [first, act] = arguments.as_slice() {
        if first == flush::DRIVE {
            flush::drive(act);
            return ExitCode::SUCCESS;
        }
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let acts = ACTS
        .iter()
        .chain(demuxer::ACTS)
        .flat_map(|act| [false, true].map(|once| (act, once)))
        // One run is enough without a stream or without a second worker.
        .filter(|(act, once)| (act.then != Then::Opening && act.part != Part::File) || !once)
        .map(|(act, once)| {
            let name = format!("{}{}", if once { "once-" } else { "" }, act.name);
            (name.clone(), Box::new(move || play(&name, act, once)) as Test)
        });
    let deeds = DEEDS
        .iter()
        .map(|deed| (format!("a-caller-{}", deed.name), Box::new(move || play_deed(deed)) as Test));
    let parts = PARTS
        .iter()
        .map(|part| (format!("wild-{}", part.name), Box::new(move || scribble::play(part)) as Test));
    let service =
        [("service-with-another-version".to_owned(), Box::new(play_service_of_another_version) as Test)];
    let beside = [("beside-an-honest-stream".to_owned(), Box::new(flood::beside_an_honest_stream) as Test)];
    let all = acts
        .chain(deeds)
        .chain(parts)
        .chain(service)
        .chain(beside)
        .chain(pools::tests())
        .chain(flush::tests());
    let tests: Vec<(String, Test)> = all.filter(|(name, _)| chosen(name)).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(AssertUnwindSafe(test)).is_ok() {
                        println!("test {name} ... ok");
                    } else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("test {name} ... FAILED");
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("\ntest result: {} passed; {failed} failed", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a path whose workers play the act; with `once`, only the first worker plays it. Checks the exit
/// code, and that an attack of the first worker alone loses no frame if the act says so.
fn play(name: &str, act: &Act, once: bool) {
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let worker = folder.path().join(act.name);
    symlink(own, &worker).unwrap();
    if once {
        // The first worker removes the name, so that the next worker is honest.
        symlink(env!("CARGO_BIN_EXE_framepath"), folder.path().join("honest")).unwrap();
    }
    let hashes = folder.path().join("hashes");
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let (clip, hashes_name) = (clip.display(), hashes.display());
    let path = |options: &str| match act.part {
        Part::Frames => {
            let source = "test frames=300 size=64x36 format=yuv420p pool=4";
            format!("{source} ! threshold level=99 {options} ! framemd5 {hashes_name}")
        }
        Part::Packets | Part::Converted => {
            let convert = if act.part == Part::Converted { "! convert format=p010" } else { "" };
            let decode = format!("decode threads=1 {options} {convert}");
            format!("file {clip} loop=4 host=inline ! {decode} ! framemd5 {hashes_name}")
        }
        Part::File => format!("file {clip} {options} ! decode threads=1 ! framemd5 {hashes_name}"),
    };
    // The timeout is long, because an honest worker on a busy machine must not exceed it.
    let options = if once { "host=process watchdog=5s" } else { "host=process watchdog=200ms" };
    let mut command = framepath_testkit::framepath(&["run", &path(options)]);
    command.env("FRAMEPATH_WORKER", &worker);
    let ran = framepath_testkit::finish(command);
    let got = fs::read_to_string(&hashes).unwrap_or_default();
    // 3: a packet at which every worker breaks the protocol is skipped and reported.
    assert!(matches!(ran.code, Some(0 | 1 | 3)), "{name}: {ran:#?}");
    assert!(!ran.stderr.contains("panicked"), "{name}: {ran:#?}");
    assert!(!ran.stderr.contains('\x1b'), "{name}: {ran:#?}");
    if std::env::var_os("SHOW").is_some() {
        println!("{name}: {:?} {}", ran.code, ran.stderr.lines().last().unwrap_or_default());
    }
    if act.name == "speaks-another-version" && !once {
        assert_names_versions(&ran.stderr, &worker);
    }
    match (act.then, once) {
        (Then::Anything, _) | (Then::Wrong | Then::Opening, true) => {}
        (_, false) => assert_eq!(ran.code, Some(1), "{name}: {ran:#?}"),
        (Then::Broken, true) => {
            assert_eq!(ran.code, Some(0), "{name}: {ran:#?}");
            framepath_testkit::run(&["run", &path("")]).ended(0);
            let inline = fs::read_to_string(&hashes).unwrap();
            assert_eq!(hashes_of(&got), hashes_of(&inline), "{name}");
        }
    }
}

/// Checks that `text` names both versions of the wire format, and `worker`, which has the other one.
fn assert_names_versions(text: &str, worker: &Path) {
    let named = [format!("version {},", VERSION + 1), format!("version {VERSION};")];
    assert!(named.iter().all(|version| text.contains(version)), "{text}");
    assert!(text.contains(worker.to_str().unwrap()), "{text}");
}

/// Checks that a service whose worker program is of another release reports it to its client.
fn play_service_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join("speaks-another-version");
    symlink(std::env::current_exe().unwrap(), &worker).unwrap();
    let socket = folder.path().join("socket");
    let mut serve =
        framepath_testkit::framepath(&["serve", "--spares", "0", "--socket", socket.to_str().unwrap()]);
    let mut serve = serve.env("FRAMEPATH_WORKER", &worker).spawn().unwrap();
    while Socket::connect(&socket).is_err() {
        assert!(serve.try_wait().unwrap().is_none(), "the service has ended");
        thread::sleep(std::time::Duration::from_millis(5));
    }
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let path = format!("file {} ! decode host=service socket={} ! null", clip.display(), socket.display());
    let ran = framepath_testkit::run(&["run", &path]).ended(1);
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_names_versions(&ran.stderr, &worker);
}

/// Plays the deed against a worker, which must not end by a signal or with a panic. A deed with
/// `Then::Ends` must make the worker end by itself; otherwise the caller leaves first.
fn play_deed(deed: &Deed) {
    let mut caller = Caller::start();
    (deed.play)(&mut caller);
    let by_itself = deed.then == deed::Then::Ends;
    if !by_itself {
        caller.leave();
    }
    let usage = caller.ended();
    assert!(matches!(usage.exit_code, Some(0 | 1)), "{}: {usage:?}", deed.name);
}

fn hashes_of(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}
