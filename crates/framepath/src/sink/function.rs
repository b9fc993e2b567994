// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function as the sink of a pipeline.

use std::error::Error;
use std::ops::ControlFlow;

use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::Frame;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// Return type of a function of [`sink_fn`](crate::Pipeline::sink_fn): `()`, a
/// [`ControlFlow`], or a `Result` of one of them.
pub trait SinkReturn {
    /// Returns `Continue` if the run continues with the next frame, `Break` if the run (in a `tee` only this
    /// branch) ends without an error.
    ///
    /// # Errors
    /// The function's error, with which the run fails.
    fn control(self) -> Result<ControlFlow<()>, Box<dyn Error + Send + Sync>>;
}

impl SinkReturn for () {
    fn control(self) -> Result<ControlFlow<()>, Box<dyn Error + Send + Sync>> {
        Ok(ControlFlow::Continue(()))
    }
}

impl SinkReturn for ControlFlow<()> {
    fn control(self) -> Result<ControlFlow<()>, Box<dyn Error + Send + Sync>> {
        Ok(self)
    }
}

impl<C: SinkReturn, E: Into<Box<dyn Error + Send + Sync>>> SinkReturn for Result<C, E> {
    fn control(self) -> Result<ControlFlow<()>, Box<dyn Error + Send + Sync>> {
        self.map_err(Into::into)?.control()
    }
}

/// Sink that calls a function with each frame.
pub(crate) struct Function<F> {
    function: F,
}

impl<F> Function<F> {
    pub(crate) fn new(function: F) -> Function<F> {
        Function { function }
    }
}

impl<R: SinkReturn, F: FnMut(Frame) -> R + Send> Stage for Function<F> {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        match (self.function)(frame).control() {
            Ok(ControlFlow::Continue(())) => Ok(()),
            Ok(ControlFlow::Break(())) => Err(out.enough()),
            Err(error) => Err(out.fail(StageError::Other(error))),
        }
    }
}
