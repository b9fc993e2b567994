// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folder for the time of one measurement.

use tempfile::TempDir;

use crate::error::LabError;

/// Makes an empty folder, with a random name and for this user only. The folder is removed with its files when the value is
/// dropped.
///
/// # Errors
/// [`LabError::Io`] if the folder for temporary files is full or cannot be written.
pub(crate) fn temporary_folder() -> Result<TempDir, LabError> {
    tempfile::Builder::new().prefix("framepath-").tempdir().map_err(LabError::io("making a temporary folder"))
}
