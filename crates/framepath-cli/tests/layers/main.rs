// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath run` on a machine that lacks layers of the sandbox.
//!
//! This binary is also the launcher: it disables system calls for itself, as on
//! a kernel without them, and executes `framepath`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Number of the system call seccomp(2).
const SECCOMP: i64 = if cfg!(target_arch = "x86_64") { 317 } else { 277 };
/// Number of the system call landlock_create_ruleset(2).
const LANDLOCK: i64 = 444;
/// Number of the system call landlock_add_rule(2).
const LANDLOCK_RULE: i64 = 445;
/// Number of the system call unshare(2).
const UNSHARE: i64 = if cfg!(target_arch = "x86_64") { 272 } else { 97 };

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_machine_with_all_layers_prints_no_note", complete),
    ("a_machine_without_landlock_runs_with_one_note", no_landlock),
    ("a_machine_without_namespaces_runs_with_a_note", no_namespaces),
    ("a_machine_without_seccomp_is_an_error", no_seccomp),
    ("sandbox_allow_runs_without_seccomp", allowed),
    ("sandbox_require_fails_without_any_layer", required),
    ("sandbox_require_fails_before_a_plugin_is_loaded_without_landlock", required_for_a_plugin),
    ("sandbox_require_fails_without_a_sandbox", required_inline),
    ("options_of_workers_are_refused_without_a_worker", options_of_workers_inline),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, command)) = arguments.split_first() {
        if let Some(calls) = first.strip_prefix("--without=") {
            become_without(calls, command);
        }
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replaces this process by `command`, for which the system calls `calls` (numbers separated by
/// commas) fail: with EPERM if unshare is among them, else with ENOSYS.
fn become_without(calls: &str, command: &[String]) {
    let refused: Vec<i64> = calls.split(',').map(|call| call.parse().unwrap()).collect();
    let errno = if refused.contains(&UNSHARE) { 1 } else { 38 };
    let rules = refused.into_iter().map(|call| (call, Vec::new())).collect();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno));
    let filter = SeccompFilter::new(rules, allow, refuse, std::env::consts::ARCH.try_into().unwrap());
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    panic!("{}", Command::new(&command[0]).args(&command[1..]).exec());
}

/// Runs `framepath run` with a clip through a worker, without the system calls `calls`.
fn run(calls: &[i64], options: &str) -> framepath_testkit::CommandOutput {
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    run_path(calls, &format!("file {} ! decode host=process {options} ! null", clip.display()))
}

/// Runs `framepath run` with `path`, without the system calls `calls`.
fn run_path(calls: &[i64], path: &str) -> framepath_testkit::CommandOutput {
    let mut command = framepath_testkit::framepath(&["run", "--quiet", path]);
    if !calls.is_empty() {
        let calls = calls.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let mut without = Command::new(std::env::current_exe().unwrap());
        without.arg(format!("--without={calls}")).arg(command.get_program()).args(command.get_args());
        without.stdin(std::process::Stdio::null());
        without.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command = without;
    }
    framepath_testkit::finish(command)
}

/// Returns the number of notes about layers that this machine lacks: 0 if it has all layers, else 1.
/// Old kernels have no ports or signals in Landlock, and some users may not create namespaces.
fn lacks_by_itself() -> usize {
    run(&[], "").ended(0).stderr.lines().count()
}

fn complete() {
    let ran = run(&[], "").ended(0);
    assert!(ran.stderr.lines().count() <= 1, "{ran:#?}");
    // On a machine with all layers the strictest setting has no effect.
    if ran.stderr.is_empty() {
        assert_eq!(run(&[], "sandbox=require").ended(0).stderr, "");
        assert_eq!(run(&[], "sandbox=allow").ended(0).stderr, "");
    }
}

/// Checks that standard error has a single line, and that this line names all of `layers`.
fn assert_note(ran: &framepath_testkit::CommandOutput, layers: &[&str]) {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let [line] = lines[..] else { panic!("one line: {ran:#?}") };
    for layer in layers {
        assert!(line.contains(layer), "{layer}: {line}");
    }
}

fn no_landlock() {
    assert_note(&run(&[LANDLOCK], "").ended(0), &["Landlock files", "Landlock network"]);
}

fn no_namespaces() {
    assert_note(&run(&[UNSHARE], "").ended(0), &["user namespace", "pid namespace", "network namespace"]);
}

fn no_seccomp() {
    let ran = run(&[SECCOMP], "").ended(1);
    assert!(ran.stderr.contains("seccomp") && ran.stderr.contains("sandbox=allow"), "{ran:#?}");
}

fn allowed() {
    assert_note(&run(&[SECCOMP], "sandbox=allow").ended(0), &["seccomp"]);
    assert_note(&run(&[SECCOMP, LANDLOCK], "sandbox=allow").ended(0), &["seccomp", "Landlock files"]);
}

fn required() {
    for (missing, layer) in [(LANDLOCK, "Landlock files"), (UNSHARE, "user namespace"), (SECCOMP, "seccomp")]
    {
        let ran = run(&[missing], "sandbox=require").ended(1);
        assert!(ran.stderr.contains(layer), "{ran:#?}");
    }
    if lacks_by_itself() > 0 {
        run(&[], "sandbox=require").ended(1);
    }
}

fn required_for_a_plugin() {
    // Only the first step, in which the plug-in is loaded, adds rules to Landlock.
    let path = "test frames=3 size=64x48 format=rgba ! plugin frei0r:invert0r host=process";
    let ran = run_path(&[LANDLOCK_RULE], &format!("{path} sandbox=require ! null")).ended(1);
    assert!(ran.stderr.contains("Landlock files"), "{ran:#?}");
    assert_note(&run_path(&[LANDLOCK_RULE], &format!("{path} ! null")).ended(0), &["Landlock files"]);
}

fn required_inline() {
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let clip = clip.display();
    for path in [
        format!("file {clip} ! decode sandbox=require ! null"),
        format!("file {clip} sandbox=require ! decode ! null"),
        format!("file {clip} sandbox=require host=inline ! decode host=process ! null"),
        "test frames=3 ! convert format=nv12 sandbox=require ! null".to_owned(),
    ] {
        let ran = run_path(&[], &path).ended(1);
        assert!(ran.stderr.contains("without a sandbox; add host=process"), "{ran:#?}");
    }
}

fn options_of_workers_inline() {
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let clip = clip.display();
    let convert = "test frames=3 ! convert format=nv12";
    let plugin = "test frames=3 format=rgba ! plugin frei0r:invert0r";
    for (path, hosts) in [
        (format!("file {clip} ! decode fault=crash@1 ! null"), "fault= belongs to workers, but `decode`"),
        (format!("file {clip} ! decode host=inline memory=1GiB ! null"), "host=process or host=service"),
        (format!("file {clip} watchdog=1s ! decode ! null"), "watchdog= belongs to workers, but `file`"),
        (format!("file {clip} fault=crash@1 host=inline ! decode host=process ! null"), "but `file`"),
        (format!("{convert} watchdog=1s ! null"), "watchdog= belongs to workers, but `convert`"),
        (format!("{plugin} memory=1GiB ! null"), "remove it, or add host=process\n"),
    ] {
        let ran = run_path(&[], &path).ended(1);
        assert!(ran.stderr.contains(hosts), "{ran:#?}");
    }
    for host in ["process", "inline ! decode host=process"] {
        let path = format!("file {clip} host={host} memory=1GiB watchdog=9s ! null");
        assert_eq!(run_path(&[], &path).ended(0).stderr, "");
    }
}
