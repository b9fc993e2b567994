// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service and clients of several users, and outputs beside files of other users. Only root can run these tests.

mod outputs;
mod squatters;
mod users;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

framepath_testkit::tests! {
    outputs::an_output_takes_no_permissions_from_another_users_file,
    outputs::a_link_of_another_user_in_a_public_folder_is_not_followed,
    outputs::a_fifo_of_another_user_in_a_public_folder_is_not_written,
    users::a_service_accepts_only_its_own_user_and_allowed_users,
    squatters::a_socket_in_another_users_folder_is_an_error_and_changes_no_file,
    squatters::clients_refuse_a_service_of_another_user_unless_named,
}

const NOBODY: u32 = 65_534;
const NOGROUP: u32 = 65_534;

/// Creates a `framepath` command as user nobody. The caller opens the binary, because user nobody
/// may not enter the home folder of a checkout.
fn as_nobody(binary: &File, args: &[&str]) -> Command {
    let mut command = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
    command.args(args).uid(NOBODY).gid(NOGROUP);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn binary() -> File {
    File::open(framepath_testkit::program()).unwrap()
}
