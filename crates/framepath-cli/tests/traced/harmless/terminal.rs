// SPDX-License-Identifier: MIT OR Apache-2.0
//! Job control: an interactive shell in a terminal, with the keys of a user (terminal.py).

use std::process::{Command, Stdio};

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{finish, program};

use super::source;
use crate::needs_bpf;

/// Plays a scenario alone, so that the scenario itself is right, and then traced at each of `levels`.
fn play(scenario: &str, levels: &[&str]) -> Tested {
    needs_bpf()?;
    needs_program("python3", "python3")?;
    needs_program("bash", "bash")?;
    let mut wrong = Vec::new();
    for level in levels {
        // CI has SIGINT and SIGQUIT ignored.
        framepath_os::process::signal_relay::restore_keys();
        let mut command = Command::new("python3");
        command.arg(source("terminal.py")).arg(program()).args([level, scenario]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = finish(command);
        if ran.code != Some(0) {
            wrong.push(format!("{level}: {}{}", ran.stdout, ran.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

const LEVELS: [&str; 4] = ["alone", "bpf", "threads", "preload"];

pub(crate) fn ctrl_z_stops_a_traced_command_and_fg_continues_it() -> Tested {
    play("stop_key", &LEVELS)
}

pub(crate) fn a_command_that_is_stopped_by_a_signal_stops_its_job() -> Tested {
    play("stop_signal", &LEVELS)
}

pub(crate) fn a_command_that_ignores_ctrl_z_goes_on() -> Tested {
    play("ignored_stop_key", &LEVELS)
}

pub(crate) fn a_traced_command_reads_the_terminal() -> Tested {
    play("input", &LEVELS)
}

pub(crate) fn a_background_job_that_reads_the_terminal_stops() -> Tested {
    play("background_input", &LEVELS)
}

pub(crate) fn a_command_that_handles_ctrl_c_goes_on() -> Tested {
    play("handled_interrupt", &LEVELS)
}

pub(crate) fn ctrl_backslash_ends_a_traced_command() -> Tested {
    play("quit_key", &LEVELS)
}

pub(crate) fn a_background_job_ends_with_its_code() -> Tested {
    play("background", &LEVELS)
}

pub(crate) fn a_closed_terminal_ends_a_traced_command() -> Tested {
    play("hangup", &LEVELS)
}

pub(crate) fn an_attached_program_in_the_foreground_is_not_stopped() -> Tested {
    play("attached", &["alone", "bpf", "threads"])
}
