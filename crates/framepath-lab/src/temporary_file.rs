// SPDX-License-Identifier: MIT OR Apache-2.0
//! File for the time of one measurement.

use std::fs;
use std::path::{Path, PathBuf};

/// Path of a file in the folder for temporary files. The file is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Returns the path of a file that is not made yet. `name` is the end of its name, the rest is this process's own.
    pub(crate) fn named(name: &str) -> TemporaryFile {
        TemporaryFile(std::env::temp_dir().join(format!("framepath-{}-{name}", std::process::id())))
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.0);
    }
}
