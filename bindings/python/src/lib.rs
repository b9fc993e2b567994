// SPDX-License-Identifier: MIT OR Apache-2.0
//! Module `framepath._framepath`: framepath's decoders, paths and reports for Python.
//!
//! The package `framepath` beside it has the documentation of each function for Python (`__init__.pyi`). All waits release the GIL.

mod array;
mod dlpack;
mod error;
mod frame;
mod frames;
mod held;
mod new_frame;
mod path;
mod plane;
mod report;
mod rgb;
mod run;
mod samples;
mod stage;
mod table;

use pyo3::prelude::*;

#[pymodule]
mod _framepath {
    use super::*;

    #[pymodule_export]
    use crate::error::{Error, LossWarning, PathError};
    #[pymodule_export]
    use crate::frame::PyFrame;
    #[pymodule_export]
    use crate::frames::PyFrames;
    #[pymodule_export]
    use crate::path::PyPath;
    #[pymodule_export]
    use crate::plane::PyPlane;
    #[pymodule_export]
    use crate::report::PyReport;
    #[pymodule_export]
    use crate::table::PyTable;

    /// Names the program of the workers, of the same version. Only the first call has an effect.
    #[pyfunction]
    fn set_worker_program(path: std::path::PathBuf) {
        framepath::host::set_worker_program(path);
    }

    /// Ends the processes of this program that wait for a video to decode, and waits for their end.
    #[pyfunction]
    fn dismiss_workers(py: Python<'_>) {
        py.detach(framepath::host::dismiss_spares);
    }

    /// Quotes a word, such as the name of a file, for the text of a path.
    #[pyfunction]
    fn quote(word: &str) -> String {
        framepath::path::quote(word)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        framepath::silence_ffmpeg();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
