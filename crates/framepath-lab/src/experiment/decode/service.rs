// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `framepath serve` for the contenders of `decode` that use it, and its CPU time.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use framepath_os::process::children;
use framepath_os::process::running::with_children;
use framepath_os::process::signal;
use framepath_serve::Viewer;
use tempfile::TempDir;

use crate::descendants::children as children_of;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::temporary_folder::temporary_folder;

const SIGTERM: i32 = 15;

/// Number of polls for an idle service, at intervals of [`BETWEEN`]: about ten seconds in all.
const LOOKS: u32 = 1000;
/// Interval between two polls of the service.
const BETWEEN: Duration = Duration::from_millis(10);

/// Number of successive polls with the same number of children after which a service with a device
/// counts as idle. Such a service keeps more spare workers than it reports.
const STILL: u32 = 20;

/// A running service. Dropping this value stops the service.
pub(super) struct Served {
    child: Option<Child>,
    device: bool,
    pub(super) socket: PathBuf,
    /// Folder of the socket.
    _folder: TempDir,
}

impl Served {
    /// Starts a service and waits until it is idle and has a spare worker. If `device` is true, the service
    /// also decodes for the kernel's decoder node.
    ///
    /// # Errors
    /// [`LabError::Io`] if the program cannot be started, [`LabError::Missing`] if the service is not ready
    /// within about ten seconds, [`LabError::Interrupted`] after SIGINT or SIGTERM.
    pub(super) fn start(settings: &ExperimentSettings, device: bool) -> Result<Served, LabError> {
        let folder = temporary_folder()?;
        let socket = folder.path().join("socket");
        let child = Command::new(&settings.framepath)
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .args(device.then_some("--device"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LabError::io("starting framepath serve"))?;
        let served = Served { child: Some(child), device, socket, _folder: folder };
        served.wait_until_idle()?;
        Ok(served)
    }

    /// Waits until the service has no stream, has a spare worker, and has no child process besides its spare
    /// workers: it has then waited for every worker that has ended, so that its CPU time includes all of a run.
    /// With a device, it is also enough that the number of children stays the same for [`STILL`] polls. Fails
    /// after about ten seconds, or after SIGINT or SIGTERM.
    fn wait_until_idle(&self) -> Result<(), LabError> {
        let pid = self.child.as_ref().map_or(0, Child::id);
        let (mut before, mut still) = (0, 0);
        for _ in 0..LOOKS {
            let seen = Viewer::connect(&self.socket).ok().and_then(|viewer| viewer.snapshot().ok());
            let spares = seen.filter(|seen| seen.totals.streams == 0).map_or(0, |seen| seen.totals.spares);
            // The CPU time of a released worker counts after the service has waited for the worker.
            // Until then the service has more children than spare workers.
            let living = children_of(pid);
            still = if living == before { still + 1 } else { 0 };
            before = living;
            if spares > 0 && (living == spares as usize || self.device && still >= STILL) {
                return Ok(());
            }
            if signal::interrupted() {
                return Err(LabError::Interrupted);
            }
            sleep(BETWEEN);
        }
        Err(LabError::Missing(
            "framepath serve is not ready and idle within 10 s; start it by hand to see its error".to_owned(),
        ))
    }

    /// Runs `work`. Returns its result, and the CPU time in nanoseconds that the service and its
    /// workers used meanwhile; known to 10 ms, because the kernel reports the time of ended children
    /// in ticks.
    ///
    /// # Errors
    /// The error of `work`; the service does not become idle within about ten seconds
    /// ([`LabError::Missing`]); its CPU time cannot be read; or SIGINT or SIGTERM came.
    pub(super) fn charged<R>(
        &self,
        work: impl FnOnce() -> Result<R, LabError>,
    ) -> Result<(R, u64), LabError> {
        let pid = self.child.as_ref().map_or(0, Child::id);
        let used = || with_children(pid).map_err(LabError::io("reading the CPU time of framepath serve"));
        let before = used()?;
        let done = work()?;
        self.wait_until_idle()?;
        Ok((done, used()?.saturating_sub(before)))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // The error is ignored, because the service may have ended already.
            let _ = children::signal(&child, SIGTERM);
            let _ = children::wait(child);
        }
    }
}
