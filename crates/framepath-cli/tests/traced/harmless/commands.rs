// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that start, stop and end processes in unusual ways: traced, they do the same as alone.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use framepath_os::process::children::signal_process;
use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::processes::{Process, family, kill_family};
use framepath_testkit::{clip, holds_within, program};

use super::{mark, open_folder, shell_code, shown};
use crate::needs_bpf;

/// Time limit of a command; alone, none of them takes longer than 2 s.
const LIMIT: Duration = Duration::from_secs(20);
/// Time limit of a stop, and of processes that end behind their command.
const STOP_LIMIT: Duration = Duration::from_secs(4);
const SIGCONT: i32 = 18;

/// Lines of a shell script in front of that of a [`Case`]: `run` runs a command with standard error of the run, which lacks
/// the shell's own messages about signals: a signal that ends a traced command is an exit code of the tracer.
const PRELUDE: &str =
    r#"echo $$ >starter; ulimit -c 0; exec 3>&2 2>/dev/null; run() { (exec "$@" 2>&3 3>&-); }"#;

/// Script of a case in a terminal of its own; `inside` runs the command. Its input has no end, so that script(1) sends none.
const IN_TERMINAL: &str = "mkfifo endless; run script -qec 'sh ./inside' /dev/null <>endless";

/// Prints all that a process can see of how it was started, except the ids of processes.
const FACTS: &str = r#"read -r line <"/proc/$$/stat"
set -- ${line##*) }
starter=$(cat starter)
name() { case $1 in $$) echo itself ;; "$starter") echo starter ;; 0 | -1) echo none ;; *) echo another ;; esac; }
echo "process group: $(name "$3"); session: $(name "$4"); foreground group: $(name "$6"); nice ${17}"
[ "$5" = 0 ] && echo 'no terminal' || echo 'a terminal'
while read -r key value; do
    case $key in TracerPid: | [UG]id: | Groups: | NoNewPrivs: | Seccomp: | SigBlk: | SigIgn: | Cap* | Cpus_allowed_list:)
        echo "$key $value" ;;
    esac
done <"/proc/$$/status"
ls "/proc/$$/fd"
umask
ulimit -a
pwd
(cd "/proc/$$" && cat cgroup oom_score_adj timerslack_ns coredump_filter)
env | grep -v -e ^_= -e ^HARMLESS_RUN= | sort
"#;

/// Waits as a shell with job control and su(1) do, and prints each status that the child has had.
const WATCHING_PARENT: &str = r#"
import os
for program in (["/bin/true"], ["sh", "-c", "true; /bin/true; exit 7"], ["ffmpeg", "-v", "error", "-version"]):
    child = os.fork()
    if child == 0:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execvp(program[0], program)
    while True:
        status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)[1]
        if os.WIFSTOPPED(status):
            print(program, "stopped by", os.WSTOPSIG(status))
        elif os.WIFCONTINUED(status):
            print(program, "continued")
        else:
            print(program, "ended", os.waitstatus_to_exitcode(status))
            break
"#;

/// Starts processes as Python programs do: by a fork, by a fork without an exec, and with threads.
const PYTHON_CHILDREN: &str = r#"
import multiprocessing, os, subprocess, threading
def square(number):
    return number * number
if __name__ == "__main__":
    print([subprocess.run(["sh", "-c", f"exit {code}"]).returncode for code in (0, 1, 7)])
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(square, range(20)))
    found = []
    threads = [threading.Thread(target=lambda: found.append(subprocess.getoutput("echo x"))) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(found)
    child = os.fork()
    if child == 0:
        os._exit(9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

const MAKEFILE: &str = "all: 1 2 3 4 5 6 7 8
\t@echo made
1 2 3 4 5 6 7 8:
\t@sleep 0.05; echo $@ >made.$@
bad:
\t@exit 3
";

/// Command, and the shell script in which it runs.
#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    command: Vec<String>,
    /// Script behind [`PRELUDE`]; `"$@"` is the command or its trace. Its exit code is that of the case.
    script: &'static str,
    /// True if programs run that cannot read the library of level `preload`: those of another user, and those that start when
    /// the tracer has ended. The loader says so (docs/trace.md).
    is_without_preload: bool,
    /// True if the command stops itself, and goes on when its parent gets SIGCONT.
    stops: bool,
    in_terminal: bool,
}

fn case(name: &'static str, command: &[&str]) -> Case {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    Case { name, command, script: r#"run "$@""#, is_without_preload: false, stops: false, in_terminal: false }
}

impl Case {
    fn within(self, script: &'static str) -> Case {
        Case { script, ..self }
    }

    fn without_preload(self) -> Case {
        Case { is_without_preload: true, ..self }
    }

    fn stops(self) -> Case {
        Case { stops: true, ..self }
    }

    fn in_terminal(self) -> Case {
        Case { in_terminal: true, script: IN_TERMINAL, ..self }
    }
}

/// Commands that end by themselves: by an exit code or a signal.
fn endings() -> Vec<Case> {
    let sh = |name, script| case(name, &["sh", "-c", script]);
    vec![
        sh("exit code 0", "exit 0"),
        sh("exit code 3", "echo out; echo err >&2; exit 3"),
        sh("exit code 127", "/nonexistent/program"),
        sh("exit code 255", "exit 255"),
        sh("SIGTERM to itself", "kill -TERM $$"),
        sh("SIGSEGV to itself", "kill -SEGV $$"),
        sh("SIGKILL to itself", "kill -KILL $$"),
        sh("SIGINT to itself", "kill -INT $$"),
        sh("SIGHUP to itself", "kill -HUP $$"),
        sh("SIGQUIT to itself", "kill -QUIT $$"),
        sh("SIGSTOP to itself", "echo before; kill -STOP $$; echo on; exit 5").stops(),
        sh("SIGSTOP twice", "kill -STOP $$; echo on; kill -STOP $$; echo on; kill -TERM $$").stops(),
        sh(
            "a child that stops itself",
            r#"sh -c 'kill -STOP $$; exit 6' &
            until grep -q 'State:.T' "/proc/$!/status"; do sleep 0.02; done; kill -CONT $!; wait $!"#,
        ),
        sh("a process that is left behind", "(sleep 1; echo late >late) & echo early")
            .within(
                r#"run "$@"; [ -s late ] && echo 'too late'
                n=0; until [ -s late ] || [ $n = 100 ]; do sleep 0.05; n=$((n + 1)); done; cat late"#,
            )
            .without_preload(),
        case("timeout", &["timeout", "1", "sleep", "5"]),
        case("timeout -s INT", &["timeout", "-s", "INT", "1", "sleep", "5"]),
        case("timeout --foreground", &["timeout", "--foreground", "0.5", "sleep", "5"]),
        case("timeout -k", &["timeout", "-k", "0.3", "0.3", "sh", "-c", "trap '' TERM; sleep 3; sleep 3"]),
        case("within timeout", &["sleep", "5"]).within(r#"run timeout 1 "$@""#),
        case("within timeout -s INT", &["sleep", "5"]).within(r#"run timeout -s INT 1 "$@""#),
    ]
}

/// Commands that change the user, the session or the process group.
fn starters() -> Vec<Case> {
    const AS: &str = "sh ./facts; id -un; exit 4";
    let facts = |name| case(name, &["sh", "./facts"]);
    let sudo = ["sudo", "-n", "-u", "nobody", "sh", "-c", AS];
    vec![
        facts("facts"),
        facts("facts, in the background").within(r#"run "$@" & wait $!"#),
        facts("facts, ignored signals").within(r#"trap '' HUP INT QUIT TERM TSTP USR1 PIPE; run "$@""#),
        facts("facts, one more descriptor").within(r#"run "$@" 7<starter"#),
        facts("facts, other limits")
            .within(r#"ulimit -S -n 1000; ulimit -S -s 4096; umask 027; run nice -n 3 "$@""#),
        facts("facts, in a terminal").in_terminal(),
        case("su", &["su", "-s", "/bin/sh", "nobody", "-c", AS]).without_preload(),
        case("su, SIGTERM to itself", &["su", "-s", "/bin/sh", "nobody", "-c", "kill -TERM $$"])
            .without_preload(),
        case("su, in a terminal", &["su", "-s", "/bin/sh", "nobody", "-c", AS])
            .without_preload()
            .in_terminal(),
        case("runuser", &["runuser", "-u", "nobody", "--", "sh", "-c", AS]).without_preload(),
        case("sudo", &sudo).without_preload(),
        case("sudo, in a terminal", &sudo).without_preload().in_terminal(),
        case("sg", &["sg", "nogroup", "-c", "sh ./facts; id -gn; exit 4"]),
        case("sg, in a terminal", &["sg", "nogroup", "-c", "sh ./facts; id -gn; exit 4"]).in_terminal(),
        case("script", &["script", "-qec", "sh ./facts; tty -s && echo tty; exit 6", "/dev/null"]),
        case("nohup", &["nohup", "sh", "./facts"]),
        case("nohup, in a terminal", &["nohup", "sh", "-c", "sh ./facts; exit 2"]).in_terminal(),
        case("setsid -w", &["setsid", "-w", "sh", "-c", "sh ./facts; exit 9"]),
        case("setsid -w, in a terminal", &["setsid", "-w", "sh", "-c", "sh ./facts; exit 9"]).in_terminal(),
        case("env -i", &["env", "-i", "PATH=/usr/bin:/bin", "sh", "./facts"]),
        case("exec", &["sh", "-c", "exec sh -c 'exec sh ./facts'"]),
    ]
}

/// Shells with job control, and programs with many children.
fn parents() -> Vec<Case> {
    const JOBS: &str =
        "sleep 0.1 & wait; jobs; sleep 0.1 & jobs; wait; /bin/true | cat; (exit 3); echo $?; exit 5";
    const STOPPED: &str = r#"sh -c 'kill -STOP $$; echo on; exit 6' &
        until grep -q 'State:.T' "/proc/$!/status"; do sleep 0.02; done; jobs; kill -CONT %1; wait $!; echo $?; exit 5"#;
    const FOREGROUND: &str = r#"sh -c 'kill -STOP $$; echo on; exit 6'; echo $?; jobs; fg; echo $?; exit 5"#;
    const XARGS: &str = r#"seq 12 | run "$@"; code=$?; cat done.* | sort -n; exit $code"#;
    const MADE: &str = r#"run "$@"; code=$?; cat made.*; exit $code"#;
    let xargs = |name, script| case(name, &["xargs", "-P", "4", "-n", "1", "sh", "-c", script]).within(XARGS);
    let file = clip("h264-180p8-container.mp4");
    vec![
        case("sh -m", &["sh", "-m", "-c", JOBS]),
        case("sh -m, in a terminal", &["sh", "-m", "-c", JOBS]).in_terminal(),
        case("sh -m, fg in a terminal", &["sh", "-m", "-c", FOREGROUND]).in_terminal(),
        case("bash -m", &["bash", "-m", "-c", JOBS]),
        case("bash -m, a stopped job", &["bash", "-m", "-c", STOPPED]),
        case("bash -m, in a terminal", &["bash", "-m", "-c", JOBS]).in_terminal(),
        case("bash -m, fg in a terminal", &["bash", "-m", "-c", FOREGROUND]).in_terminal(),
        xargs("xargs -P", r#"echo "$0" >"done.$0""#),
        xargs("xargs -P, a failure", r#"echo "$0" >"done.$0"; [ "$0" != 7 ]"#),
        case("make -j4", &["make", "-s", "-j4", "all"]).within(MADE),
        case("make -j4, a failure", &["make", "-j4", "bad"]),
        case("a parent that sees stops", &["python3", "watching_parent.py"]),
        case("children of Python", &["python3", "python_children.py"]),
        case(
            "strace",
            &[
                "strace",
                "-f",
                "-qq",
                "-o",
                "log",
                "-e",
                "trace=none",
                "-e",
                "signal=!CHLD",
                "sh",
                "-c",
                "/bin/true; ls",
            ],
        )
        .within(r#"run "$@"; code=$?; sed 's/^[0-9]* *//' log; exit $code"#),
        case("busybox", &["busybox", "sh", "-c", "echo out; busybox true; exit 8"]),
        case("ffmpeg", &["ffmpeg", "-v", "error", "-i", &file, "-f", "framemd5", "-"]),
    ]
}

/// Commands that read and write pipes.
fn pipes() -> Vec<Case> {
    vec![
        case("cat to the end", &["cat"])
            .within(r#"head -c 3000000 /dev/zero | tr '\0' x | run "$@" | md5sum"#),
        case("wc to the end", &["wc", "-c"]).within(r#"(sleep 0.2; seq 100000) | run "$@""#),
        case("a line of the input", &["sh", "-c", r#"read -r line; echo "got $line""#])
            .within(r#"printf 'one\ntwo\n' | { run "$@"; cat; }"#),
        case("a pipeline", &["sort", "-rn"]).within(r#"seq 20000 | run "$@" | tail -n 3"#),
        case("a closed pipe", &["yes"]).within(r#"{ run "$@"; echo $? >code; } | head -n 1; cat code"#),
        case("a pipeline inside", &["bash", "-c", "set -o pipefail; yes | head -n 1000 | md5sum; echo $?"]),
    ]
}

/// Run of a case.
#[derive(Debug)]
struct Observed {
    /// Exit code; `None` if the run did not end.
    code: Option<i32>,
    stdout: String,
    stderr: String,
    /// Other faults: of processes that are left, and of stops.
    faults: Vec<String>,
}

/// Runs `case` alone, or traced with the options `traced`.
fn observe(case: &Case, traced: Option<&[&str]>) -> Observed {
    let (folder, mark) = (open_folder(), mark());
    let file = |name: &str| folder.path().join(name);
    let files = [("facts", FACTS), ("Makefile", MAKEFILE)];
    let files = files
        .into_iter()
        .chain([("watching_parent.py", WATCHING_PARENT), ("python_children.py", PYTHON_CHILDREN)]);
    for (name, text) in files {
        fs::write(file(name), text).unwrap();
    }
    let mut words: Vec<String> = Vec::new();
    if let Some(options) = traced {
        words.push(program().to_str().unwrap().to_owned());
        words
            .extend(["trace", "--quiet"].iter().chain(options).chain(&["--"]).map(|word| (*word).to_owned()));
    }
    words.extend(case.command.iter().cloned());
    if case.in_terminal {
        let quoted: Vec<String> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let check = r#"[ "$(stty -g)" = "$before" ] || echo 'the settings of the terminal are changed'"#;
        let lines =
            ["echo $$ >starter", "before=$(stty -g)", &quoted.join(" "), "code=$?", check, "exit $code"];
        fs::write(file("inside"), lines.join("\n")).unwrap();
    }
    let (stdout, stderr) =
        (fs::File::create(file("stdout")).unwrap(), fs::File::create(file("stderr")).unwrap());
    let (name, value) = mark.split_once('=').unwrap();
    // setsid does not fork here, so the session has the child's number.
    let mut shell = Command::new("setsid");
    shell.args(["sh", "-c", &format!("{PRELUDE}\n{}", case.script), "sh"]).args(&words);
    shell.current_dir(folder.path()).env(name, value).env("SHELL", "/bin/sh").env("TERM", "dumb");
    shell.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let mut shell = shell.spawn().unwrap();
    let mut faults = Vec::new();
    let code = ended(&mut shell, case, &mark, &mut faults);
    if code.is_none() {
        faults.push(format!("hangs: {}", shown(&family(shell.id(), &mark))));
    } else {
        holds_within(STOP_LIMIT, || family(shell.id(), &mark).is_empty());
        let left = family(shell.id(), &mark);
        if !left.is_empty() {
            faults.push(format!("left behind: {}", shown(&left)));
        }
    }
    kill_family(shell.id(), &mark);
    let _ = shell.wait();
    let path = folder.path().to_str().unwrap();
    let text =
        |name| text(&file(name)).replace(path, "FOLDER").split_inclusive('\n').map(comparable).collect();
    Observed { code, stdout: text("stdout"), stderr: text("stderr"), faults }
}

/// Waits for the end of the shell, and continues a command that stops. Returns the exit code.
fn ended(shell: &mut Child, case: &Case, mark: &str, faults: &mut Vec<String>) -> Option<i32> {
    let begun = Instant::now();
    let (mut code, mut stopped_since) = (None, None);
    let pid = shell.id();
    holds_within(LIMIT, || {
        code = shell.try_wait().unwrap().map(shell_code);
        if code.is_some() || !case.stops {
            return code.is_some();
        }
        let run = family(pid, mark);
        let Some(child) = run.iter().find(|process| process.parent == pid) else { return false };
        if child.is_stopped() {
            stopped_since = None;
            // To the one process that the shell sees, and only when the command itself has stopped, too.
            // The tracer has a process that watches for the end of the stop.
            let is_watcher = |process: &&Process| process.parent == child.pid && process.name == child.name;
            let others = run.iter().filter(|process| process.pid != pid && !is_watcher(process));
            if others.clone().count() > 0 && others.clone().all(Process::is_stopped) {
                let _ = signal_process(child.pid, SIGCONT);
            }
        } else if run.iter().any(Process::is_stopped) {
            let since = *stopped_since.get_or_insert(begun.elapsed());
            if begun.elapsed() > since + STOP_LIMIT {
                faults.push(format!("a stop that the shell does not see: {}", shown(&run)));
                run.iter().for_each(|process| drop(signal_process(process.pid, SIGCONT)));
                stopped_since = None;
            }
        }
        false
    });
    code
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}

/// Returns the first line in which two texts differ.
fn first_difference(alone: &str, traced: &str) -> String {
    let (mut ours, mut theirs) = (alone.lines(), traced.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return "the end of the last line".to_owned(),
            (alone, traced) if alone == traced => {}
            (alone, traced) => return format!("alone {alone:?}, traced {traced:?}"),
        }
    }
}

/// Returns the lines without those that docs/trace.md announces for level `preload`.
fn without_announced(text: &str, case: &Case) -> String {
    let announced = |line: &&str| {
        let is_variable = line.starts_with("LD_PRELOAD=") || line.starts_with("FRAMEPATH_TRACE_RING=");
        let is_loader = line.contains("from LD_PRELOAD cannot be preloaded");
        is_variable || is_loader && case.is_without_preload
    };
    text.split_inclusive('\n').filter(|line| !announced(line)).collect()
}

/// Returns a line without numbers that differ from run to run: ids of processes, and the signals that the C library keeps for
/// its threads (32 and 33), which are ignored in children of some programs.
fn comparable(line: &str) -> String {
    const OF_LIBRARY: u64 = 3 << 31;
    let ignored =
        line.strip_prefix("SigIgn: ").and_then(|number| u64::from_str_radix(number.trim(), 16).ok());
    match (ignored, line.split_once("cannot set terminal process group (")) {
        (Some(signals), _) => format!("SigIgn: {:x}\n", signals & !OF_LIBRARY),
        (None, Some((_, tail))) => {
            format!("no terminal{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        (None, None) => line.to_owned(),
    }
}

/// Runs all commands alone and traced, and compares.
fn compare(level: &[&str]) {
    let cases = [endings(), starters(), parents(), pipes()].concat();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for case in &cases {
        let program = &case.command[0];
        if let Err(missing) = needs_program(program, program) {
            eprintln!("not run: {}: {missing}", case.name);
            continue;
        }
        compared += 1;
        let alone = observe(case, None);
        assert!(alone.code.is_some() && alone.faults.is_empty(), "alone: {case:?}: {alone:#?}");
        let mut traced = observe(case, Some(level));
        if level.contains(&"preload") {
            traced.stdout = without_announced(&traced.stdout, case);
            traced.stderr = without_announced(&traced.stderr, case);
        }
        let mut differences = traced.faults.clone();
        if let Some(code) = traced.code.filter(|_| traced.code != alone.code) {
            differences.push(format!("exit code {code}, alone {}", alone.code.unwrap_or_default()));
        }
        for (name, alone, traced) in
            [("stdout", &alone.stdout, &traced.stdout), ("stderr", &alone.stderr, &traced.stderr)]
        {
            if alone != traced {
                differences.push(format!("{name}: {}", first_difference(alone, traced)));
            }
        }
        if !differences.is_empty() {
            wrong.push(format!("{}: {}", case.name, differences.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} commands differ:\n{}", wrong.len(), wrong.join("\n"));
}

pub(crate) fn commands_run_as_alone() -> Tested {
    needs_bpf()?;
    compare(&[]);
    Ok(())
}

pub(crate) fn commands_run_as_alone_at_level_threads() {
    compare(&["--level", "threads"]);
}

pub(crate) fn commands_run_as_alone_at_level_preload() {
    compare(&["--level", "preload"]);
}
