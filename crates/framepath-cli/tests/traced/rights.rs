// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces by a user who is not root and has the capabilities for level `bpf`. Only root can run these tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use framepath_os::process::children;
use framepath_testkit::harness::{Missing, Tested, needs_program, needs_root};
use framepath_testkit::{CommandOutput, finish};
use tempfile::TempDir;

use crate::harmless::open_folder;
use crate::{marks, needs_bpf};

const NOBODY: &str = "65534";

/// Runs `program` as user nobody, with the two capabilities of docs/trace.md.
fn as_nobody(program: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.args(["--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon"]);
    command.arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command)
}

/// Returns a folder that other users can read, and in it the binary `framepath`: user nobody may not enter the home folder of a
/// checkout.
fn folder() -> Result<(TempDir, PathBuf), Missing> {
    needs_root()?;
    needs_bpf()?;
    needs_program("setpriv", "util-linux")?;
    let folder = open_folder();
    let framepath = folder.path().join("framepath");
    let binary = framepath_testkit::program();
    fs::hard_link(&binary, &framepath).or_else(|_| fs::copy(&binary, &framepath).map(drop)).unwrap();
    Ok((folder, framepath))
}

/// Returns a copy of `program`, which root owns and every user executes with the rights of the mode `bit`.
fn copy_with_rights(program: &Path, bit: u32) -> PathBuf {
    let copy = program.with_extension(format!("{bit:o}"));
    fs::copy(program, &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755 | bit)).unwrap();
    copy
}

pub(crate) fn a_program_with_other_rights_leaves_the_recording() -> Tested {
    let (folder, framepath) = folder()?;
    let ran = as_nobody(&framepath, &["trace", "--level", "bpf", "--quiet", "--", "true"]);
    if ran.code != Some(0) {
        // Kernels before 6.6 have perf events for probes, and give them only to those with CAP_SYS_ADMIN.
        return Err(Missing::new(format!("{}; use Linux 6.6 or newer", ran.stderr.trim())));
    }
    let marks = PathBuf::from(marks::compile(&folder)?);
    fs::set_permissions(&marks, Permissions::from_mode(0o755)).unwrap();
    let id = folder.path().join("id");
    fs::copy("/usr/bin/id", &id).unwrap();
    let users = as_nobody(&copy_with_rights(&id, 0o4000), &["-u"]).ended(0).stdout;
    if users.trim() != "0" {
        let folder = folder.path().display();
        return Err(Missing::new(format!(
            "{folder} has no set-user-ID programs; set TMPDIR to a folder that may"
        )));
    }
    // The first ones may be missing: the program is mapped before it has its probes.
    let frames = " frames; latency (capture left to detect)";
    for probes in ["best", "links"] {
        let trace = |program: &Path| {
            // The shell goes on behind it.
            let script = format!(
                "FRAMEPATH_PROBES={probes} '{}' trace --level bpf -- sh -c '{}; :'",
                framepath.display(),
                program.display()
            );
            let ran = as_nobody(Path::new("/bin/sh"), &["-c", &script]).ended(0);
            assert_eq!(ran.stdout, "30 frames\n");
            ran
        };
        trace(&marks).prints(frames);
        for bit in [0o4000, 0o2000] {
            let ran = trace(&copy_with_rights(&marks, bit)).prints("note: no frame was seen");
            assert!(!ran.stderr.contains(frames), "{}", ran.stderr);
        }
    }
    // Root sees them.
    let set_user_id = copy_with_rights(&marks, 0o4000);
    finish(framepath_testkit::framepath(&["trace", "--level", "bpf", "--", set_user_id.to_str().unwrap()]))
        .ended(0)
        .prints(frames);
    Ok(())
}

pub(crate) fn a_process_of_another_user_is_refused() -> Tested {
    let (_folder, framepath) = folder()?;
    // It ends with this thread if the test fails.
    let mut other = children::on_a_lead(Command::new("sleep").arg("60")).spawn().unwrap();
    let pid = other.id().to_string();
    for level in ["bpf", "threads"] {
        let ran = as_nobody(&framepath, &["trace", "--level", level, "--seconds", "1", "-p", &pid]);
        ran.ended(1).prints("it runs as user 0; only root may observe processes of other users");
    }
    as_nobody(&framepath, &["top", "--once", "-p", &pid]).ended(1).prints("it runs as user 0");
    other.kill().unwrap();
    other.wait().unwrap();
    Ok(())
}
