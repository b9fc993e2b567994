// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of a run for Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use framepath::{Report, export};
use pyo3::prelude::*;

use crate::error::Error;
use crate::table::PyTable;

/// Report of a run that has ended.
#[pyclass(frozen, name = "Report", module = "framepath")]
pub struct PyReport {
    report: Mutex<Report>,
}

impl PyReport {
    pub(crate) fn new(report: Report) -> PyReport {
        PyReport { report: Mutex::new(report) }
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyReport {
    #[getter]
    fn frames(&self) -> u64 {
        self.lock().frames
    }

    #[getter]
    fn copied_bytes(&self) -> u64 {
        self.lock().copied_bytes
    }

    /// Duration of the run, seconds.
    #[getter]
    fn wall(&self) -> f64 {
        self.lock().wall_ns as f64 / 1e9
    }

    /// CPU time of the process and its workers during the run, seconds.
    #[getter]
    fn cpu(&self) -> f64 {
        self.lock().cpu_ns as f64 / 1e9
    }

    #[getter]
    fn path(&self) -> String {
        self.lock().path()
    }

    /// Losses, one text for each.
    #[getter]
    fn losses(&self) -> Vec<String> {
        self.lock().losses().iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.lock().notes.clone()
    }

    /// Number of frames that were lost or damaged.
    #[getter]
    fn lost(&self) -> u64 {
        self.lock().losses().iter().map(|loss| loss.count).sum()
    }

    /// Table of the hops with the causes of the median frame's latency.
    #[getter]
    fn table(&self) -> PyTable {
        PyTable::of(&mut self.lock())
    }

    /// The summary of the command `framepath run --json`, as JSON.
    fn json(&self) -> PyResult<String> {
        let summary = export::summary::summary(&mut self.lock(), "run");
        serde_json::to_string(&summary).map_err(|error| Error::new_err(error.to_string()))
    }

    /// The page of the command `framepath run --html`.
    fn html(&self) -> PyResult<String> {
        let mut page = Vec::new();
        export::page::write(&mut self.lock(), &mut page)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }

    /// Picture in Jupyter: the page, in a frame of its own.
    fn _repr_html_(&self) -> PyResult<String> {
        let page = self.html()?.replace('&', "&amp;").replace('"', "&quot;");
        Ok(format!(
            "<iframe srcdoc=\"{page}\" style=\"width:100%;height:640px;border:0\" sandbox=\"allow-scripts\"></iframe>"
        ))
    }

    fn __str__(&self) -> String {
        export::text::summary(&mut self.lock())
    }

    fn __repr__(&self) -> String {
        let report = self.lock();
        format!("<framepath.Report of {}: {} frames>", report.path(), report.frames)
    }
}
