// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of an output by the protocol ext-image-copy-capture.
//!
//! The first copy of a session is done at once, each later one when the output has changed since the one before.

use wayland_client::protocol::wl_output::WlOutput;
use wayland_client::protocol::wl_shm::Format;
use wayland_client::{Connection, Dispatch, QueueHandle, WEnum, delegate_noop};
use wayland_protocols::ext::image_capture_source::v1::client::ext_image_capture_source_v1::ExtImageCaptureSourceV1;
use wayland_protocols::ext::image_capture_source::v1::client::ext_output_image_capture_source_manager_v1::ExtOutputImageCaptureSourceManagerV1;
use wayland_protocols::ext::image_copy_capture::v1::client::ext_image_copy_capture_frame_v1::{
    self, ExtImageCopyCaptureFrameV1,
};
use wayland_protocols::ext::image_copy_capture::v1::client::ext_image_copy_capture_manager_v1::{
    ExtImageCopyCaptureManagerV1, Options,
};
use wayland_protocols::ext::image_copy_capture::v1::client::ext_image_copy_capture_session_v1::{
    self, ExtImageCopyCaptureSessionV1,
};

use super::compositor::{CompositorState, CopyForm, CopyState};
use super::images::pixel_format;

/// State of the protocol and of the present session, as the compositor has told it.
#[derive(Default)]
pub(super) struct ImageCopyState {
    pub(super) copies: Option<ExtImageCopyCaptureManagerV1>,
    pub(super) sources: Option<ExtOutputImageCaptureSourceManagerV1>,
    /// Number of the present session: events of earlier ones do not count.
    session: u32,
    /// Width and height of its buffers, and the first format of those that are supported, or of all.
    size: (u32, u32),
    format: Option<Format>,
    /// True once the compositor has told all of it.
    is_done: bool,
}

/// Session of copies of one output.
pub(super) struct ImageCopySession {
    session: ExtImageCopyCaptureSessionV1,
    source: ExtImageCaptureSourceV1,
}

impl Drop for ImageCopySession {
    fn drop(&mut self) {
        self.session.destroy();
        self.source.destroy();
    }
}

impl ImageCopySession {
    /// Begins the next copy, whose events have this number.
    pub(super) fn begin_copy(
        &self,
        handle: &QueueHandle<CompositorState>,
        number: u32,
    ) -> ExtImageCopyCaptureFrameV1 {
        self.session.create_frame(handle, number)
    }
}

impl ImageCopyState {
    /// Returns true if the compositor has the protocol.
    pub(super) fn is_offered(&self) -> bool {
        self.copies.is_some() && self.sources.is_some()
    }

    /// Opens a session; `None` if the compositor does not have the protocol.
    pub(super) fn open(
        &mut self,
        output: &WlOutput,
        with_pointer: bool,
        handle: &QueueHandle<CompositorState>,
    ) -> Option<ImageCopySession> {
        let (copies, sources) = (self.copies.as_ref()?, self.sources.as_ref()?);
        self.session = self.session.wrapping_add(1);
        (self.size, self.format, self.is_done) = ((0, 0), None, false);
        let source = sources.create_source(output, handle, ());
        let options = if with_pointer { Options::PaintCursors } else { Options::empty() };
        let session = copies.create_session(&source, options, handle, self.session);
        Some(ImageCopySession { session, source })
    }

    /// Returns the form of the session's buffers; `None` if it is not known, or the compositor has no buffers in shared memory.
    pub(super) fn form(&self) -> Option<CopyForm> {
        let format = self.format.filter(|_| self.is_done)?;
        let (width, height) = self.size;
        // Formats of four bytes; others are refused.
        Some(CopyForm { format, width, height, stride: width.saturating_mul(4) })
    }
}

impl Dispatch<ExtImageCopyCaptureSessionV1, u32> for CompositorState {
    fn event(
        state: &mut CompositorState,
        _: &ExtImageCopyCaptureSessionV1,
        event: ext_image_copy_capture_session_v1::Event,
        number: &u32,
        _: &Connection,
        _: &QueueHandle<CompositorState>,
    ) {
        let session = &mut state.image_copy;
        if session.session != *number {
            return;
        }
        match event {
            // The first event of a list, which may come again with another size.
            ext_image_copy_capture_session_v1::Event::BufferSize { width, height } => {
                (session.size, session.format, session.is_done) = ((width, height), None, false);
            }
            ext_image_copy_capture_session_v1::Event::ShmFormat { format: WEnum::Value(format) } => {
                let is_supported = |format: &Format| pixel_format(*format).is_some();
                if !session.format.as_ref().is_some_and(is_supported) {
                    session.format = Some(format);
                }
            }
            ext_image_copy_capture_session_v1::Event::Done => {
                session.is_done = true;
                match session.form() {
                    Some(form) => state.set_form(form),
                    None => state.fail_copy(),
                }
            }
            ext_image_copy_capture_session_v1::Event::Stopped => state.fail_copy(),
            _ => {}
        }
    }
}

impl Dispatch<ExtImageCopyCaptureFrameV1, u32> for CompositorState {
    fn event(
        state: &mut CompositorState,
        _: &ExtImageCopyCaptureFrameV1,
        event: ext_image_copy_capture_frame_v1::Event,
        number: &u32,
        _: &Connection,
        _: &QueueHandle<CompositorState>,
    ) {
        let Some(copy) = state.copy_with(*number) else { return };
        match event {
            ext_image_copy_capture_frame_v1::Event::Damage { x, y, width, height } => {
                copy.add_damage([x, y, width, height].map(|number| u32::try_from(number).unwrap_or(0)));
            }
            ext_image_copy_capture_frame_v1::Event::Ready => copy.state = CopyState::Done,
            ext_image_copy_capture_frame_v1::Event::Failed { .. } => copy.state = CopyState::Failed,
            _ => {}
        }
    }
}

delegate_noop!(CompositorState: ExtImageCopyCaptureManagerV1);
delegate_noop!(CompositorState: ExtOutputImageCaptureSourceManagerV1);
delegate_noop!(CompositorState: ExtImageCaptureSourceV1);
