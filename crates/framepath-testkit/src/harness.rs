// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test harness whose tests can report, at run time, that this machine lacks a requirement.
//!
//! The test is then reported as ignored, with the reason; `#[ignore]` is decided when the test
//! is compiled. A binary that uses this harness has `harness = false` in Cargo.toml and lists its
//! tests with [`tests!`](crate::tests!); a function that is left out of the list is dead code,
//! which clippy reports. `docs/decisions/0018-testkit.md` has the reasons.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Reason why this machine cannot run a test; the text ends with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(String);

impl Missing {
    /// Creates a reason; `reason` ends with advice on how to make the test run.
    pub fn new(reason: impl Into<String>) -> Missing {
        Missing(reason.into())
    }
}

impl Display for Missing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of a test that this machine may be unable to run: an error is the reason. A failed test
/// panics.
pub type Tested = Result<(), Missing>;

/// Return type of a test function: `()` or [`Tested`].
pub trait TestReturn {
    /// Returns the reason why the test cannot run, if there is one.
    fn missing(self) -> Option<Missing>;
}

impl TestReturn for () {
    fn missing(self) -> Option<Missing> {
        None
    }
}

impl TestReturn for Tested {
    fn missing(self) -> Option<Missing> {
        self.err()
    }
}

/// Creates a test with this name that runs `run`. The test is reported as ignored if `run` returns
/// a [`Missing`].
pub fn test<O: TestReturn>(name: impl Into<String>, run: impl FnOnce() -> O + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || -> Result<Completion, Failed> {
        Ok(match run().missing() {
            Some(reason) => Completion::ignored_with(reason),
            None => Completion::Completed,
        })
    })
}

/// Runs the tests that the command line names, or all, as libtest does. Returns the exit code of
/// the test binary.
pub fn main(tests: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Defines `main` of a test binary that runs the listed test functions.
#[macro_export]
macro_rules! tests {
    ($($test:path),+ $(,)?) => {
        fn main() -> std::process::ExitCode {
            $crate::harness::main(vec![$($crate::harness::test(stringify!($test), $test)),+])
        }
    };
}

/// Checks that the tests run as root, because only root can become another user. Fails with a
/// [`Missing`] if the effective user is another.
pub fn needs_root() -> Tested {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Missing::new("only root can become another user; run the tests as root"))
}

/// Checks that a folder of PATH has a file named `program`. Otherwise fails with a [`Missing`] that
/// advises `apt install PACKAGE`, where PACKAGE is `package`.
pub fn needs_program(program: &str, package: &str) -> Tested {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Missing::new(format!("{program} is not installed; apt install {package}")))
}
