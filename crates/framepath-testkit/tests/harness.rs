// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the harness reports the result of a test at run time. The binary runs itself and reads
//! the report.

use std::process::{Command, ExitCode};

use framepath_testkit::harness::{self, Missing, Tested, needs_program, test};

/// Environment variable by which the binary runs the tests whose report it checks.
const REPORTED: &str = "FRAMEPATH_TEST_REPORTED";

fn main() -> ExitCode {
    if std::env::var_os(REPORTED).is_some() {
        return harness::main(vec![
            test("passes", || ()),
            test("lacks", lacks),
            test("fails", || assert_eq!(1, 2)),
        ]);
    }
    harness::main(vec![
        test("a_missing_requirement_is_ignored_not_passed", a_missing_requirement_is_ignored_not_passed),
        test("programs", programs),
    ])
}

fn lacks() -> Tested {
    Err(Missing::new("no such device"))
}

fn report(filter: &[&str]) -> (Option<i32>, String) {
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own).args(filter).env(REPORTED, "1").output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn a_missing_requirement_is_ignored_not_passed() {
    let (code, text) = report(&[]);
    assert_ne!(code, Some(0));
    assert!(text.contains("1 passed; 1 failed; 1 ignored;"), "{text}");
    let (code, text) = report(&["lacks"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("0 passed; 0 failed; 1 ignored;"), "{text}");
    assert!(text.contains("no such device"), "{text}");
}

fn programs() {
    assert_eq!(needs_program("sh", "dash"), Ok(()));
    assert!(needs_program("framepath-is-no-such-program", "nothing").is_err());
}
