// SPDX-License-Identifier: MIT OR Apache-2.0
//! A signal ends the wait of any thread for a free slot. The test starts itself as the process that waits, because
//! the handlers of signals belong to a whole process.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::memory::pool::{Pool, PoolError};
use framepath_os::process::signal;
use rustix::process::{Pid, Signal, kill_process};

/// Set in the process that waits.
const WAITS: &str = "FRAMEPATH_TEST_WAITS_FOR_A_SLOT";

#[test]
fn a_signal_ends_the_wait_for_a_slot_in_any_thread() {
    if std::env::var_os(WAITS).is_some() {
        return wait_for_a_slot();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_signal_ends_the_wait_for_a_slot_in_any_thread", "--nocapture"]);
    let mut child = command.env(WAITS, "1").stdout(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let stat = format!("/proc/{}/status", child.id());
    let until = Instant::now() + Duration::from_secs(60);
    // SIGTERM is caught once the handlers are installed.
    while !catches_sigterm(&std::fs::read_to_string(&stat).unwrap()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(pid, Signal::TERM).unwrap();
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    let ended = child.try_wait().unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// Holds the only slot of a pool, and waits for another one in a thread that knows nothing of signals.
fn wait_for_a_slot() {
    signal::install().unwrap();
    let mut pool = Pool::new(4096, 1).unwrap();
    let held = pool.acquire().unwrap();
    let waited = thread::spawn(move || pool.acquire().map(drop));
    assert!(matches!(waited.join().unwrap(), Err(PoolError::Closed)));
    drop(held);
}

fn catches_sigterm(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (Signal::TERM.as_raw() - 1) & 1 == 1
}
