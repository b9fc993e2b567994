// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the screens.

use std::fmt::Display;

use crate::error::LabError;

/// Returns the error for a failure of an X server.
pub(super) fn x_error(error: impl Display) -> LabError {
    LabError::Unknown(format!("X server: {error}"))
}
