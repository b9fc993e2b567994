// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a player and measures the resources of all its processes within a window of time,
//! without its start-up. Stops a player that does not end by itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use framepath_os::process::children;
use framepath_os::process::signal;
use framepath_os::time::{cpu_ns_of, now_ns};

use super::energy::Energy;
use crate::descendants::{Descendant, descendants, process};
use crate::error::LabError;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Interval between two checks of the player's processes.
const LOOK: Duration = Duration::from_millis(50);

/// Longest time from SIGTERM to a player until SIGKILL, nanoseconds.
const GRACE_NS: u64 = 1_000_000_000;

/// Start and end of the measurement, and the player's time limit, in nanoseconds from the
/// player's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) limit_ns: u64,
}

impl Window {
    /// Creates the window for a clip of `seconds` seconds. The measurement begins after 1.5 s, or
    /// at 30 % of the clip if that is earlier, so that the player has started. The measurement ends 0.2 s before
    /// the clip's end, or at 70 % of the clip if that is later. The limit is ten seconds after the
    /// clip's end.
    pub(super) fn from_clip(seconds: f64) -> Window {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        Window {
            from_ns: ns((seconds * 0.3).min(1.5)),
            to_ns: ns((seconds - 0.2).max(seconds * 0.7)),
            limit_ns: ns(seconds + 10.0),
        }
    }
}

/// Resources that a player's processes used within the window, and the player's output.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub(super) window_ns: u64,
    pub(super) cpu_ns: u64,
    /// Number of voluntary context switches within the window, of the player's threads that exist at the
    /// window's end.
    pub(super) wakeups: u64,
    /// CPU time of the display server within the window, nanoseconds; `None` if its process is not known.
    pub(super) server_cpu_ns: Option<u64>,
    /// Sum of the peak memory of the processes that run at the window's end, KiB; `None` if not
    /// known.
    pub(super) peak_kib: Option<u64>,
    /// Energy that the whole machine used within the window; `None` if the machine does not report energy.
    pub(super) microjoules: Option<f64>,
    /// All output of the player from start to end, standard output first.
    pub(super) text: String,
}

/// Display of a player: its server, and a check for the player's window.
pub(super) struct PlayerEnvironment<'a> {
    /// Process id of the display server; `None` without a display or if not known.
    pub(super) server: Option<u32>,
    /// Function that checks that the player shows a window, called once before the measurement. The
    /// function's error is the reason for a run without figures.
    pub(super) window: &'a dyn Fn() -> Result<(), String>,
}

/// Resources that the processes of a player have used since their start, at one time.
struct Usage {
    at_ns: u64,
    processes: Vec<Descendant>,
    cpu_ns: BTreeMap<u32, u64>,
    /// Number of voluntary context switches by thread id.
    switches: BTreeMap<u32, u64>,
    peak_kib: u64,
    server_cpu_ns: Option<u64>,
    energy: Energy,
}

/// Runs the player `command` to its end, and measures it within `window`.
///
/// # Errors
/// [`LabError::Missing`] with the reason if the player does not start, ends before the window does,
/// asks a question, shows no window, runs beyond the limit (it is then stopped), or does not exit with
/// 0; [`LabError::Interrupted`] after SIGINT or SIGTERM; [`LabError::Io`] if a system call fails.
pub(super) fn watch(
    command: &mut Command,
    window: Window,
    around: &PlayerEnvironment<'_>,
) -> Result<Watched, LabError> {
    let Started { mut player, start_ns, output } = Started::new(command)?;
    let outcome = observed(&mut player, start_ns, window, around);
    let (outcome, ended) = match outcome {
        Ok(figures) => (Ok(figures), player.reap()),
        Err(error) => (Err(error), player.end()),
    };
    let text = output.text();
    let why = |what: String| LabError::Missing(with_last_line(what, &text));
    let figures = outcome.map_err(|trouble| match trouble {
        Trouble::Interrupted => LabError::Interrupted,
        Trouble::Ended(seconds) => {
            let how = ended.as_ref().map_or_else(|error| error.to_string(), how_ended);
            why(format!("{how} after {seconds:.1} s"))
        }
        Trouble::Wrong(what) => why(what),
    })?;
    let ended = ended.map_err(LabError::io("waiting for a player"))?;
    match ended.exit_code {
        Some(0) => Ok(Watched { text, ..figures }),
        _ => Err(why(format!("{} at the end of the clip", how_ended(&ended)))),
    }
}

/// Runs `command` for at most `limit`, then stops it. Returns all its output, standard output first.
///
/// # Errors
/// [`LabError::Missing`] with the reason if the program does not start, still ran at the limit, or did
/// not exit with 0; [`LabError::Interrupted`]; [`LabError::Io`] if a system call fails.
pub(super) fn listen(command: &mut Command, limit: Duration) -> Result<String, LabError> {
    let Started { mut player, start_ns, output } = Started::new(command)?;
    let runs = player.runs_until(start_ns + limit.as_nanos() as u64);
    let ended = if matches!(runs, Ok(false)) { player.reap() } else { player.end() };
    let text = output.text();
    let why = |what: String| LabError::Missing(with_last_line(what, &text));
    match (runs, ended) {
        (Err(_), _) => Err(LabError::Interrupted),
        (Ok(true), _) => Err(why(format!("still ran after {} s, and was stopped", limit.as_secs()))),
        (_, Err(error)) => Err(LabError::io("waiting for a player")(error)),
        (_, Ok(ended)) if ended.exit_code == Some(0) => Ok(text),
        (_, Ok(ended)) => Err(why(how_ended(&ended))),
    }
}

/// A player that has just started, its start time and its output.
struct Started {
    player: Player,
    start_ns: u64,
    output: Output,
}

/// Files in memory that receive a player's output.
struct Output {
    stdout: File,
    stderr: File,
}

impl Started {
    fn new(command: &mut Command) -> Result<Started, LabError> {
        let file = || {
            framepath_os::memory::memory_file("framepath-player")
                .map_err(LabError::io("creating a file in memory"))
        };
        let clone = |file: &File| {
            file.try_clone().map_err(LabError::io("duplicating the handle of a file in memory"))
        };
        let output = Output { stdout: file()?, stderr: file()? };
        // A player that reads standard input blocks, because nothing is written to the pipe. The function
        // `watch` detects such a player; the time limit ends every other program that blocks.
        command.stdin(Stdio::piped()).stdout(clone(&output.stdout)?).stderr(clone(&output.stderr)?);
        let start_ns = now_ns();
        let child = children::on_a_lead(command)
            .spawn()
            .map_err(|error| LabError::Missing(format!("starting the player: {error}")))?;
        Ok(Started { player: Player { child: Some(child), known: Vec::new() }, start_ns, output })
    }
}

impl Output {
    /// Returns all output as text, standard output first.
    fn text(mut self) -> String {
        text_of(&mut self.stdout) + &text_of(&mut self.stderr)
    }
}

/// Reason why a player has no figures.
enum Trouble {
    /// The player ended before the window did; the number is the seconds since its start.
    Ended(f64),
    /// The player misbehaved and was stopped; the text says how.
    Wrong(String),
    Interrupted,
}

fn observed(
    player: &mut Player,
    start_ns: u64,
    window: Window,
    around: &PlayerEnvironment<'_>,
) -> Result<Watched, Trouble> {
    let seconds = || (now_ns() - start_ns) as f64 / 1e9;
    if !player.runs_until(start_ns + window.from_ns)? {
        return Err(Trouble::Ended(seconds()));
    }
    player.refuse_questions()?;
    (around.window)().map_err(Trouble::Wrong)?;
    let before = player.usage(around.server);
    if !player.runs_until(start_ns + window.to_ns)? {
        return Err(Trouble::Ended(seconds()));
    }
    player.refuse_questions()?;
    let after = player.usage(around.server);
    player.known = after.processes.clone();
    if player.runs_until(start_ns + window.limit_ns)? {
        return Err(Trouble::Wrong(format!("still ran after {:.0} s, and was stopped", seconds())));
    }
    Ok(between(&before, &after))
}

/// Computes the resources used from `before` to `after`. New threads and processes
/// count from zero. Processes that ended in between are missing, and so are the context switches of
/// threads that ended in between.
fn between(before: &Usage, after: &Usage) -> Watched {
    let grown = |before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>| -> u64 {
        after.iter().map(|(id, now)| now.saturating_sub(before.get(id).copied().unwrap_or(0))).sum()
    };
    Watched {
        window_ns: after.at_ns - before.at_ns,
        cpu_ns: grown(&before.cpu_ns, &after.cpu_ns),
        wakeups: grown(&before.switches, &after.switches),
        server_cpu_ns: before.server_cpu_ns.zip(after.server_cpu_ns).map(|(a, b)| b.saturating_sub(a)),
        peak_kib: Some(after.peak_kib).filter(|kib| *kib > 0),
        microjoules: after.energy.since(&before.energy, after.at_ns - before.at_ns),
        text: String::new(),
    }
}

/// A started player. Dropping this value stops the player.
struct Player {
    /// Process of the player; `None` once the player has been reaped.
    child: Option<Child>,
    /// Processes of the player at the end of the window, and when it is stopped; `reap` kills those that still
    /// run.
    known: Vec<Descendant>,
}

impl Player {
    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Waits until `until_ns` of the monotonic clock and returns true; returns false as soon as the
    /// player has ended.
    ///
    /// # Errors
    /// [`Trouble::Interrupted`] after SIGINT or SIGTERM.
    fn runs_until(&self, until_ns: u64) -> Result<bool, Trouble> {
        loop {
            if signal::interrupted() {
                return Err(Trouble::Interrupted);
            }
            if process(self.pid()).is_none() {
                return Ok(false);
            }
            let left = until_ns.saturating_sub(now_ns());
            if left == 0 {
                return Ok(true);
            }
            sleep(LOOK.min(Duration::from_nanos(left)));
        }
    }

    /// Fails if a process of the player waits for standard input, because a player that asks a question
    /// does not play.
    fn refuse_questions(&self) -> Result<(), Trouble> {
        match self.processes().iter().any(|process| waits_for_input(process.pid())) {
            true => Err(Trouble::Wrong("asks a question on standard input, and was stopped".to_owned())),
            false => Ok(()),
        }
    }

    fn processes(&self) -> Vec<Descendant> {
        process(self.pid()).into_iter().chain(descendants(self.pid())).collect()
    }

    fn usage(&self, server: Option<u32>) -> Usage {
        let processes = self.processes();
        let pids = || processes.iter().map(Descendant::pid);
        Usage {
            at_ns: now_ns(),
            cpu_ns: pids().filter_map(|pid| Some((pid, cpu_ns_of(pid)?))).collect(),
            switches: pids().flat_map(voluntary_switches).collect(),
            peak_kib: pids().filter_map(peak_kib).sum(),
            server_cpu_ns: server.and_then(cpu_ns_of),
            energy: Energy::now(),
            processes,
        }
    }

    /// Stops the player: sends SIGTERM to its process group and, after at most [`GRACE_NS`], kills the
    /// remaining processes, those that left the group included. Returns the resources it used.
    fn end(&mut self) -> std::io::Result<children::ResourceUsage> {
        self.known.extend(self.processes());
        if let Some(child) = &self.child {
            // The error is ignored, because the player may have ended.
            let _ = children::signal_group(child, SIGTERM);
            let until = now_ns() + GRACE_NS;
            while process(child.id()).is_some() && now_ns() < until {
                sleep(LOOK);
            }
            let _ = children::signal_group(child, SIGKILL);
        }
        self.reap()
    }

    /// Kills the player's remaining processes, and waits for the player. Returns the resources it
    /// used; zeros if it was already waited for.
    fn reap(&mut self) -> std::io::Result<children::ResourceUsage> {
        let Some(child) = self.child.take() else { return Ok(children::ResourceUsage::default()) };
        let _ = children::signal_group(&child, SIGKILL);
        for process in self.known.drain(..) {
            if process.pid() != child.id() && process.runs() {
                let _ = children::signal_process(process.pid(), SIGKILL);
            }
        }
        children::wait(child)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if self.child.is_some() {
            let _ = self.end();
        }
    }
}

/// Returns true if the main thread of the process sleeps in read(2) of descriptor 0; false if this user
/// may not read its system calls.
fn waits_for_input(pid: u32) -> bool {
    const READ: &str = if cfg!(target_arch = "x86_64") { "0 0x0 " } else { "63 0x0 " };
    fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(READ))
}

/// Returns the id and the number of voluntary switches (proc_pid_status(5)) of each thread of a
/// process; each switch is a sleep and a wake-up.
fn voluntary_switches(pid: u32) -> Vec<(u32, u64)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_task = |task: fs::DirEntry| {
        let id = task.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        Some((id, field(&status, "voluntary_ctxt_switches")?))
    };
    tasks.flatten().filter_map(of_task).collect()
}

fn peak_kib(pid: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM")
}

/// Returns the number behind `name:` in `status`, the text of a status file in /proc; `None` if it is
/// missing.
fn field(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

fn how_ended(usage: &children::ResourceUsage) -> String {
    match (usage.exit_code, usage.signal) {
        (Some(code), _) => format!("exited with {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "did not end normally".to_owned(),
    }
}

fn with_last_line(what: String, text: &str) -> String {
    let mut lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    match lines.next_back() {
        Some(line) => format!("{what}: {}", line.chars().take(160).collect::<String>()),
        None => format!("{what}, without an error message"),
    }
}

fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // A read error of the memory file leaves the output empty.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Window = Window { from_ns: 300_000_000, to_ns: 600_000_000, limit_ns: 1_500_000_000 };

    fn run(script: &str) -> Result<Watched, LabError> {
        let around = PlayerEnvironment { server: None, window: &|| Ok(()) };
        watch(Command::new("sh").args(["-c", script]), SHORT, &around)
    }

    fn reason(script: &str) -> String {
        match run(script) {
            Err(LabError::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_playing_player_has_figures() {
        let watched = run("echo hello; sleep 0.9; echo done >&2").unwrap();
        assert_eq!(watched.text, "hello\ndone\n");
        assert!(watched.window_ns > 0 && watched.peak_kib.is_some());
    }

    #[test]
    fn listen_returns_all_output_or_a_reason() {
        let listen =
            |script: &str| super::listen(Command::new("sh").args(["-c", script]), Duration::from_millis(400));
        assert_eq!(listen("echo hashes; echo a note >&2").unwrap(), "hashes\na note\n");
        let reason = |script: &str| match listen(script) {
            Err(LabError::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("echo no device >&2; exit 3"), "exited with 3: no device");
        assert!(reason("sleep 106").starts_with("still ran after"));
    }

    #[test]
    fn children_are_charged_to_the_player() {
        let busy = "sh -c 'i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done' & sleep 0.9; kill $!";
        let watched = run(busy).unwrap();
        assert!(watched.cpu_ns > 50_000_000, "{watched:?}");
    }

    #[test]
    fn crashes_and_early_exits_are_reasons() {
        assert_eq!(reason("kill -SEGV $$").split(" after").next(), Some("was killed by signal 11"));
        assert!(reason("echo no such codec >&2; exit 3").ends_with(": no such codec"));
        assert!(reason("exit 0").ends_with(", without an error message"));
        assert!(reason("sleep 0.8; exit 4").starts_with("exited with 4 at the end of the clip"));
    }

    #[test]
    fn a_hung_player_is_stopped_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        // One process ignores SIGTERM, the other is in its own session.
        let script = format!(
            "trap '' TERM; (trap '' TERM; exec sleep 103) & echo $! > {0}; setsid sleep 104 & echo $! >> {0}; \
             echo playing; sleep 105",
            pids.display()
        );
        let reason = reason(&script);
        assert!(reason.starts_with("still ran after") && reason.ends_with("playing"), "{reason}");
        for pid in fs::read_to_string(&pids).unwrap().lines() {
            let pid = pid.parse().unwrap();
            // A killed process takes a moment to disappear.
            let gone = (0..100).any(|_| {
                sleep(Duration::from_millis(20));
                process(pid).is_none()
            });
            assert!(gone, "{pid} was left");
        }
    }

    #[test]
    fn a_player_that_asks_is_stopped() {
        let reason = reason("echo 'Overwrite? [y/N]'; read answer; sleep 9");
        assert!(reason.starts_with("asks a question") && reason.ends_with("[y/N]"), "{reason}");
    }

    #[test]
    fn a_missing_window_is_a_reason() {
        let around = PlayerEnvironment { server: None, window: &|| Err("opened no window".to_owned()) };
        let outcome = watch(Command::new("sleep").arg("100"), SHORT, &around);
        assert!(matches!(outcome, Err(LabError::Missing(reason)) if reason.starts_with("opened no window")));
    }

    #[test]
    fn windows_exclude_the_start_and_the_end() {
        let window = Window::from_clip(5.0);
        assert_eq!(
            (window.from_ns, window.to_ns, window.limit_ns),
            (1_500_000_000, 4_800_000_000, 15_000_000_000)
        );
        let short = Window::from_clip(0.4);
        assert!(short.from_ns < short.to_ns && short.to_ns < 400_000_000);
    }
}
