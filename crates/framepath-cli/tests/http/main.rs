// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source `url` with http:// and https://, and web servers on 127.0.0.1: ordinary ones, broken ones, and
//! workers that attack the requests for bytes.
//!
//! This binary is also the worker that attacks: `framepath` starts it under a name that selects the act.

mod broken;
mod files;
mod hostile;
mod server;
mod tls;
mod waits;

use std::process::{Command, ExitCode};

use framepath_testkit::harness::{main as run_tests, test};
use framepath_testkit::{CommandOutput, finish, framepath};

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let own = arguments.next().unwrap_or_default();
    if arguments.next().as_deref() == Some("framepath-worker") {
        hostile::run(own.as_ref());
    }
    run_tests(vec![
        test("frames_equal_those_of_the_file", files::frames_equal_those_of_the_file),
        test(
            "an_index_behind_the_pictures_takes_few_requests",
            files::an_index_behind_the_pictures_takes_few_requests,
        ),
        test("a_server_without_ranges_sends_a_stream", files::a_server_without_ranges_sends_a_stream),
        test("redirects_are_followed_and_bounded", files::redirects_are_followed_and_bounded),
        test("a_foreign_server_works", files::a_foreign_server_works),
        test("a_foreign_server_with_ranges_works", files::a_foreign_server_with_ranges_works),
        test("each_refusal_has_its_reason", broken::each_refusal_has_its_reason),
        test("answers_that_are_no_http_are_refused", broken::answers_that_are_no_http_are_refused),
        test("a_playlist_is_refused_by_name", broken::a_playlist_is_refused_by_name),
        test(
            "a_broken_connection_continues_at_its_place",
            broken::a_broken_connection_continues_at_its_place,
        ),
        test(
            "a_server_that_is_away_for_a_while_is_asked_again",
            broken::a_server_that_is_away_for_a_while_is_asked_again,
        ),
        test(
            "a_broken_connection_ends_the_run_after_five_tries",
            broken::a_broken_connection_ends_the_run_after_five_tries,
        ),
        test(
            "without_ranges_a_broken_connection_ends_the_run",
            broken::without_ranges_a_broken_connection_ends_the_run,
        ),
        test("a_file_that_changes_is_not_mixed", broken::a_file_that_changes_is_not_mixed),
        test("ctrl_c_ends_every_wait", waits::ctrl_c_ends_every_wait),
        test("a_certificate_is_verified", tls::a_certificate_is_verified),
        test("https_never_becomes_http", tls::https_never_becomes_http),
        test("a_server_without_tls_is_named", tls::a_server_without_tls_is_named),
        test("hostile_workers_reach_nothing_else", hostile::hostile_workers_reach_nothing_else),
    ])
}

/// Removes the settings of proxies, which would receive the requests.
pub fn without_proxies(command: &mut Command) -> &mut Command {
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

/// Runs `path`.
pub fn run(path: &str) -> CommandOutput {
    let mut command = framepath(&["run", path]);
    without_proxies(&mut command);
    finish(command)
}

/// Returns the path's beginning, `url ADDRESS OPTIONS ! decode`.
pub fn url(address: &str, options: &str) -> String {
    // Quoted, because an address may have any characters.
    format!("url '{address}' {options} ! decode")
}

/// Returns the hashes of the frames of `path`, which ends with exit code 0.
pub fn hashes(path: &str) -> Vec<String> {
    run(&format!("{path} ! framemd5 -")).ended(0).frames()
}
