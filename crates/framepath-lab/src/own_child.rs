// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child process that does not outlive the measurement.

use std::process::Child;

use crate::error::LabError;

/// A child process. It is killed when this value is dropped, also on the way out of an error.
#[derive(Debug)]
pub(crate) struct OwnChild(Option<Child>);

impl OwnChild {
    pub(crate) fn new(child: Child) -> OwnChild {
        OwnChild(Some(child))
    }

    /// Returns the process id, which stays this process's until the value is dropped or killed.
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Kills the process with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// [`LabError::Unknown`] with the exit status if the process had ended by itself; [`LabError::Io`].
    pub(crate) fn kill(self) -> Result<(), LabError> {
        let mut child = self.running()?;
        child.kill().map_err(LabError::io("killing a child process"))?;
        child.wait().map_err(LabError::io("waiting for a child process"))?;
        Ok(())
    }

    /// Ends the process as Ctrl-C does, or with SIGKILL if it still runs five seconds later. Returns the CPU time of the process
    /// and of all processes that it has started and waited for, nanoseconds.
    ///
    /// # Errors
    /// As [`kill`](OwnChild::kill).
    #[cfg(feature = "play")]
    pub(crate) fn interrupt(self) -> Result<u64, LabError> {
        use framepath_os::process::children;
        const SIGINT: i32 = 2;
        const POLLS: u32 = 500;
        const POLL: std::time::Duration = std::time::Duration::from_millis(10);
        let mut child = self.running()?;
        children::signal(&child, SIGINT).map_err(LabError::io("interrupting a child process"))?;
        for _ in 0..POLLS {
            if crate::descendants::process(child.id()).is_none() {
                break;
            }
            std::thread::sleep(POLL);
        }
        // Without an effect on a process that has ended.
        child.kill().map_err(LabError::io("killing a child process"))?;
        children::wait(child).map(|usage| usage.cpu_ns).map_err(LabError::io("waiting for a child process"))
    }

    /// Returns the process if it has not ended.
    fn running(mut self) -> Result<Child, LabError> {
        let ended = || LabError::Unknown("a process ended before its measurement".to_owned());
        let mut child = self.0.take().ok_or_else(ended)?;
        match child.try_wait().map_err(LabError::io("looking at a child process"))? {
            Some(status) => {
                Err(LabError::Unknown(format!("a process ended before its measurement: {status}")))
            }
            None => Ok(child),
        }
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only if the process has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn sleeping() -> OwnChild {
        OwnChild::new(Command::new("sleep").arg("60").spawn().unwrap())
    }

    #[test]
    fn a_dropped_child_has_ended() {
        let child = sleeping();
        let pid = child.id();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_that_ended_by_itself_is_an_error() {
        let mut child = OwnChild::new(Command::new("false").spawn().unwrap());
        child.0.as_mut().unwrap().wait().unwrap();
        let said = child.kill().unwrap_err().to_string();
        assert!(said.contains("exit status: 1"), "{said}");
        sleeping().kill().unwrap();
    }
}
