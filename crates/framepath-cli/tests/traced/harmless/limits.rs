// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands under tight limits, commands that cannot be traced, and unusual arguments: traced, they do the same as alone, or do not
//! start.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use framepath_testkit::harness::{Missing, Tested, needs_root};
use framepath_testkit::{CommandOutput, finish, holds_within, program};

use super::killed::copy;
use super::{SOON, compile, levels, open_folder, source};

/// Starts twenty children, one after the other, and counts those that it could not start.
const FORKS: &str = "forks.c";

/// Folders in which root's library of level `preload` can be.
const LIBRARY_FOLDERS: [&str; 4] = ["/run", "/var/lib", "/usr/local/lib", "/root"];

/// Cgroup that limits the number of processes. Dropping the value removes it.
struct ProcessGroup(PathBuf);

impl ProcessGroup {
    fn new(most: u32) -> Result<ProcessGroup, Missing> {
        needs_root()?;
        let missing = |error| Missing::new(format!("no cgroup for a limit of processes: {error}"));
        // Version 1, and version 2.
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let root = roots.into_iter().map(Path::new).find(|root| root.join("cgroup.procs").exists());
        let root = root.ok_or_else(|| missing("none is mounted; mount one".to_owned()))?;
        let folder = root.join(format!("framepath-test-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| missing(error.to_string()))?;
        let group = ProcessGroup(folder);
        fs::write(group.0.join("pids.max"), most.to_string()).map_err(|error| missing(error.to_string()))?;
        Ok(group)
    }

    /// Returns the line of a shell script with which the shell enters the group.
    fn entrance(&self) -> String {
        format!("echo $$ >{}/cgroup.procs", self.0.display())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let is_removed = holds_within(SOON, || fs::remove_dir(&self.0).is_ok());
        assert!(is_removed || std::thread::panicking(), "{} has processes", self.0.display());
    }
}

/// Returns a shell in `folder` that runs the line `limit`, and then becomes `command`: alone, or traced with `options`.
fn limited(limit: &str, folder: &Path, options: Option<&[&str]>, command: &[&OsStr]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit}\nexec \"$@\""), "sh"]);
    if let Some(options) = options {
        shell.arg(program()).args(["trace", "--quiet"]).args(options).arg("--");
    }
    shell.args(command).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn words<'a>(command: &[&'a str]) -> Vec<&'a OsStr> {
    command.iter().map(|word| OsStr::new(*word)).collect()
}

/// Runs `command` alone and at each level, and asserts that all runs are the same. Returns what they are.
fn same_at_each_level(limit: &str, command: &[&OsStr]) -> CommandOutput {
    let folder = open_folder();
    let alone = finish(limited(limit, folder.path(), None, command));
    for level in levels() {
        let traced = finish(limited(limit, folder.path(), Some(&["--level", level]), command));
        let facts = |ran: &CommandOutput| (ran.code, ran.signal, ran.stdout.clone(), ran.stderr.clone());
        assert_eq!(facts(&traced), facts(&alone), "{level}, {limit}: {command:?}");
    }
    alone
}

/// Alone, the program needs two numbers. Traced, the tracer has one more, and takes no other one, not for a moment: neither while
/// the program runs nor behind its end, where the next run begins at once.
pub(crate) fn a_command_has_all_numbers_of_processes_but_one() -> Tested {
    let folder = open_folder();
    let library = copy("libavutil.so", folder.path())?;
    let forks = folder.path().join("forks");
    // Linked to a library of FFmpeg, so that its probes are removed when a child ends.
    compile(&source(FORKS), &forks, &["-Wl,--no-as-needed", library.to_str().unwrap()])?;
    let library_path = format!("export LD_LIBRARY_PATH={}", folder.path().display());
    let command = [forks.as_os_str()];
    let run = |most: u32, options: Option<&[&str]>| {
        let group = ProcessGroup::new(most)?;
        let limit = format!("{library_path}\n{}", group.entrance());
        let ran = [(); 2].map(|()| finish(limited(&limit, folder.path(), options, &command)));
        Ok(ran.map(|ran| ran.ended(0).stdout))
    };
    assert_eq!(run(2, None)?, ["0 of 20 failed\n"; 2]);
    for level in levels() {
        assert_eq!(run(3, Some(&["--level", level]))?, ["0 of 20 failed\n"; 2], "{level}");
    }
    Ok(())
}

pub(crate) fn a_limit_of_file_sizes_is_the_commands() {
    let ran = same_at_each_level("ulimit -f 1", &words(&["sh", "-c", "echo out; exit 3"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "out\n"));
    let write = ["sh", "-c", "ulimit -c 0; exec head -c 4000 /dev/zero >written"];
    assert_eq!(same_at_each_level("ulimit -f 1", &words(&write)).signal, Some(25));
    assert_eq!(same_at_each_level("ulimit -f 1; trap '' XFSZ", &words(&write)).code, Some(1));
    same_at_each_level("trap '' XFSZ", &words(&["grep", "Sig[BI]", "/proc/self/status"]));
    // A file of the figures that becomes too large is an error, and no signal.
    let folder = open_folder();
    let command = words(&["sh", "-c", "echo out"]);
    for level in levels() {
        let options = ["--level", level, "--json", "figures"];
        let child = limited("ulimit -f 1", folder.path(), Some(&options), &command).spawn().unwrap();
        let library = format!(".framepath-{}-", child.id());
        let ran = framepath_testkit::wait(child, level).ended(1).prints("File too large");
        assert_eq!(ran.stdout, "out\n");
        let left = LIBRARY_FOLDERS.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let left = left.flatten().find(|entry| entry.file_name().as_bytes().starts_with(library.as_bytes()));
        assert!(left.is_none(), "{left:?}");
    }
}

/// With too few descriptors, the command does not start. It never runs alone.
pub(crate) fn a_command_runs_traced_or_not_at_all() {
    let mut codes = Vec::new();
    for level in levels().iter().map(|level| Some(*level)).chain([None]) {
        for files in (4..40).chain([50, 60, 70, 80, 100, 120]) {
            let folder = open_folder();
            let command = words(&["sh", "-c", "echo x >ran; sleep 0.02; echo x >ended; exit 3"]);
            let options = level.map_or(Vec::new(), |level| vec!["--level", level]);
            let ran = finish(limited(&format!("ulimit -n {files}"), folder.path(), Some(&options), &command));
            let has = |name: &str| folder.path().join(name).exists();
            let what = format!("{level:?}, {files} descriptors: {ran:#?}");
            match ran.code {
                Some(3) => assert!(has("ended"), "{what}"),
                // The loader of programs needs some, too.
                Some(1 | 127) => assert!(!has("ran"), "{what}"),
                _ => panic!("{what}"),
            }
            codes.push((level, ran.code));
        }
    }
    for level in levels() {
        assert!(
            codes.contains(&(Some(level), Some(3))) && codes.contains(&(Some(level), Some(1))),
            "{codes:?}"
        );
    }
}

pub(crate) fn an_error_before_the_start_ends_the_command_without_a_word() {
    for level in levels() {
        let folder = open_folder();
        let options = ["--level", level, "--json", "/nonexistent/figures"];
        let command = words(&["sh", "-c", "echo x >ran"]);
        let ran = finish(limited("ulimit -c unlimited", folder.path(), Some(&options), &command)).ended(1);
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran:#?}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

pub(crate) fn arguments_of_any_bytes_reach_the_command() {
    let bytes = OsStr::from_bytes(b"a\xff\xfe\x80b");
    let script = OsStr::new("printf %s \"$1\" | od -An -tx1; exit 4");
    let command = [OsStr::new("sh"), OsStr::new("-c"), script, OsStr::new("sh"), bytes];
    let ran = same_at_each_level(":", &command);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), " 61 ff fe 80 62\n"));
    // The program, too, can have such a name.
    let folder = open_folder();
    let program = folder.path().join(OsStr::from_bytes(b"program\xff"));
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let command = [program.as_os_str(), OsStr::new("-c"), OsStr::new("exit 5")];
    assert_eq!(same_at_each_level(":", &command).code, Some(5));
    for level in levels() {
        let options = ["--level", level, "--json", "-"];
        let ran = finish(limited(":", folder.path(), Some(&options), &command)).ended(5);
        assert!(ran.stdout.contains("program\u{fffd}"), "{}", ran.stdout);
    }
}
