// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open stream without work makes no system call, on either
//! side. The only test of its process, because it counts the calls of every thread.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use framepath::{Level, Pipeline};

/// Time until the first frame has arrived and the thread that watches the worker sleeps, too.
const SETTLING: Duration = Duration::from_secs(3);
/// Time in which no thread may run.
const LOOKED: Duration = Duration::from_secs(3);

/// State of a thread: true if it sleeps, and the number of its context switches. A thread that makes a
/// system call has to run, and then leaves its CPU once more, or does not sleep.
type Ran = (bool, u64);

/// Returns the state of every thread of `process`, except the calling one, by thread id.
fn threads_of(process: &str) -> BTreeMap<String, Ran> {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let own = own.file_name().unwrap().to_str().unwrap().to_owned();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let others = names.filter(|name| process != "self" || *name != own);
    others
        .map(|name| {
            let status = fs::read_to_string(format!("/proc/{process}/task/{name}/status")).unwrap();
            let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
            let switches = |key: &str| of(key).parse::<u64>().unwrap();
            let ran = switches("voluntary_ctxt_switches:") + switches("nonvoluntary_ctxt_switches:");
            (name, (of("State:").starts_with('S'), ran))
        })
        .collect()
}

#[test]
fn an_idle_stream_makes_no_system_call_on_either_side() {
    framepath::host::set_worker_program(framepath_testkit::program());
    // The second packet is due in a hundred seconds; the test does not wait for it.
    let text = format!(
        "file {} rate=0.01 ! decode threads=1 host=process ! null",
        framepath_testkit::clip("vp9-180p8.ivf")
    );
    let built = Pipeline::from_path(&framepath::path::parse(&text).unwrap()).unwrap();
    let worker = built.workers().next().unwrap();
    let options = framepath_testkit::pipeline::at(Level::Off);
    let progress = options.progress.clone();
    let _stream = thread::spawn(move || built.run(&options));
    thread::sleep(SETTLING);
    assert_eq!(progress.load(Ordering::Relaxed), 1, "the first frame arrived");
    let worker = worker.pid.load(Ordering::Relaxed).to_string();
    let look = || (threads_of("self"), threads_of(&worker));
    let before = look();
    assert!(before.0.len() >= 3 && before.1.len() >= 2, "{before:?}");
    let asleep = before.0.values().chain(before.1.values()).all(|(sleeps, _)| *sleeps);
    assert!(asleep, "somebody does not sleep: {before:?}");
    thread::sleep(LOOKED);
    assert_eq!(look(), before, "somebody ran");
}
