// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child process that does not outlive the measurement.

use std::process::Child;

use crate::error::LabError;

/// A child process. It is killed when this value is dropped, also on the way out of an error.
#[derive(Debug)]
pub(crate) struct OwnChild(Child);

impl OwnChild {
    pub(crate) fn new(child: Child) -> OwnChild {
        OwnChild(child)
    }

    /// Returns the process id, which stays this process's until the value is dropped or killed.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// [`LabError::Unknown`] with the exit status if the process had ended by itself; [`LabError::Io`].
    pub(crate) fn kill(mut self) -> Result<(), LabError> {
        let ended = self.0.try_wait().map_err(LabError::io("looking at a child process"))?;
        if let Some(status) = ended {
            return Err(LabError::Unknown(format!("a process ended before its measurement: {status}")));
        }
        self.0.kill().map_err(LabError::io("killing a child process"))?;
        self.0.wait().map_err(LabError::io("waiting for a child process"))?;
        Ok(())
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        // Both fail only if the process has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
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
        child.0.wait().unwrap();
        let said = child.kill().unwrap_err().to_string();
        assert!(said.contains("exit status: 1"), "{said}");
        sleeping().kill().unwrap();
    }
}
