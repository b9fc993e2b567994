// SPDX-License-Identifier: MIT OR Apache-2.0
//! x
use crate::error::LabError;
use crate::experiment::Settings;
use crate::watch::Watch;
use framepath_model::summary::Summary;
pub(super) fn run(_: &Settings, _: &dyn Watch, _: &mut Summary) -> Result<(), LabError> {
    Ok(())
}
