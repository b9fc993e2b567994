// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of C as stages and sinks of a path.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use framepath::{HopFailure, Item, Out, Stage, StageError, StreamInfo};

use crate::error::framepath_error;
use crate::frame::{FrameOrigin, framepath_frame};

/// Function that gets each frame in the middle of a path, in the thread of the hop before it, one call at a time. The frame belongs to the
/// function, which returns, keeps or frees it. The function returns the frame to pass on, the same or another one, which then belongs to the
/// path; or null to drop the frame. Frames of other paths keep their numbers and times. To end the run with a failure, the function sets
/// `*error`, which is null at first, by `framepath_error_new` or a failing function of this library; the path frees the error and a returned
/// frame. The function must not throw an exception and must not call longjmp.
#[allow(non_camel_case_types)]
pub type framepath_stage = Option<
    unsafe extern "C" fn(
        frame: *mut framepath_frame,
        user: *mut c_void,
        error: *mut *mut framepath_error,
    ) -> *mut framepath_frame,
>;

/// Function that gets each frame at the end of a path, in the thread of the hop before it, one call at a time. The frame belongs to the
/// function, which frees it during the call or later. The function returns false to end the run without an error. The function must not
/// throw an exception and must not call longjmp.
#[allow(non_camel_case_types)]
pub type framepath_sink =
    Option<unsafe extern "C" fn(frame: *mut framepath_frame, user: *mut c_void) -> bool>;

/// Function of a [`Callback`].
pub(crate) enum CallbackFunction {
    /// Never null: `framepath_stage`.
    Stage(
        unsafe extern "C" fn(
            *mut framepath_frame,
            *mut c_void,
            *mut *mut framepath_error,
        ) -> *mut framepath_frame,
    ),
    /// Never null: `framepath_sink`.
    Sink(unsafe extern "C" fn(*mut framepath_frame, *mut c_void) -> bool),
}

/// Stage or sink that calls a function of the program.
pub(crate) struct Callback {
    function: CallbackFunction,
    /// Pointer of the program, which its function gets.
    user: *mut c_void,
    origin: Arc<FrameOrigin>,
}

// SAFETY: only the program's function uses `user`, and `Callback::new` demands that it may do so on any thread.
unsafe impl Send for Callback {}

impl Callback {
    /// # Safety
    /// The function is as its type describes, and may be called with `user` on any thread until the stage is dropped.
    pub(crate) unsafe fn new(function: CallbackFunction, user: *mut c_void) -> Callback {
        Callback { function, user, origin: FrameOrigin::new(None) }
    }
}

impl Stage for Callback {
    fn name(&self) -> &str {
        match self.function {
            CallbackFunction::Stage(_) => "stage",
            CallbackFunction::Sink(_) => "sink_fn",
        }
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.origin = FrameOrigin::new(Some(info.time_base));
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let frame = framepath_frame::new(frame, &self.origin);
        match self.function {
            CallbackFunction::Stage(function) => {
                let mut error = ptr::null_mut();
                // SAFETY: as the caller of `new` promises; so the function returns a frame and an error of ours.
                let (frame, failed) = unsafe {
                    let frame = function(frame, self.user, &raw mut error);
                    (framepath_frame::take(frame), framepath_error::take(error))
                };
                match (failed, frame) {
                    (Some(text), _) => Err(out.fail(StageError::Other(text.into()))),
                    (None, Some(frame)) => out.push(Item::Frame(frame)),
                    (None, None) => Ok(()),
                }
            }
            CallbackFunction::Sink(function) => {
                // SAFETY: as the caller of `new` promises.
                match unsafe { function(frame, self.user) } {
                    true => Ok(()),
                    false => Err(out.enough()),
                }
            }
        }
    }
}
