// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls and events of a decoder node (Documentation/userspace-api/media/v4l/dev-decoder.rst).

use rustix::io::Errno;

use super::call::call;
use super::node::Node;
use super::{V4l2Error, abi};

/// Event that a decoder node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderEvent {
    /// The format of the stream's pictures is known for the first time, or has changed: a source change with
    /// the flag for the resolution.
    SourceChange,
    /// The last frame of a drain is ready (V4L2_EVENT_EOS).
    EndOfStream,
    /// Any other event, by its V4L2 number; also a source change that keeps the resolution.
    Other(u32),
}

impl Node {
    /// Returns the minimum number of CAPTURE buffers for decoding; `None` if the driver does not
    /// report it.
    pub fn min_capture_buffers(&self) -> Option<u32> {
        let mut control = abi::RawControl { id: abi::CID_MIN_BUFFERS_FOR_CAPTURE, value: 0 };
        // SAFETY: the structure of the ioctl.
        unsafe { call(self.fd(), abi::G_CTRL, &mut control) }.ok()?;
        u32::try_from(control.value).ok()
    }

    /// Subscribes to a decoder's events: source change and end of stream.
    ///
    /// # Errors
    /// The error of the driver; a driver without these events is not a stateful decoder.
    pub fn subscribe(&self) -> Result<(), V4l2Error> {
        for kind in [abi::EVENT_SOURCE_CHANGE, abi::EVENT_EOS] {
            let mut subscription = abi::EventSubscription { kind, ..Default::default() };
            // SAFETY: the structure of the ioctl.
            unsafe { self.call("VIDIOC_SUBSCRIBE_EVENT", abi::SUBSCRIBE_EVENT, &mut subscription) }?;
        }
        Ok(())
    }

    /// Takes the next event; `None` if there is none. Does not wait.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn next_event(&self) -> Result<Option<DecoderEvent>, V4l2Error> {
        let mut event = abi::RawEvent {
            kind: 0,
            body: abi::EventBody([0; 64]),
            pending: 0,
            sequence: 0,
            seconds: 0,
            nanoseconds: 0,
            id: 0,
            reserved: [0; 8],
        };
        // SAFETY: the structure of the ioctl.
        match unsafe { call(self.fd(), abi::DQEVENT, &mut event) } {
            Ok(_) => {}
            Err(Errno::NOENT | Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(self.error("VIDIOC_DQEVENT", errno)),
        }
        let changes =
            u32::from_ne_bytes([event.body.0[0], event.body.0[1], event.body.0[2], event.body.0[3]]);
        Ok(Some(match event.kind {
            abi::EVENT_SOURCE_CHANGE if changes & abi::EVENT_SRC_CH_RESOLUTION != 0 => {
                DecoderEvent::SourceChange
            }
            abi::EVENT_EOS => DecoderEvent::EndOfStream,
            other => DecoderEvent::Other(other),
        }))
    }

    /// Starts a drain: announces to the decoder that no packet follows. The decoder marks the last buffer
    /// ([`Dequeued::last`](super::Dequeued::last)), which may be empty.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn stop_decoding(&self) -> Result<(), V4l2Error> {
        self.decoder_command(abi::DEC_CMD_STOP)
    }

    /// Makes a decoder continue after a drain.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn start_decoding(&self) -> Result<(), V4l2Error> {
        self.decoder_command(abi::DEC_CMD_START)
    }

    fn decoder_command(&self, cmd: u32) -> Result<(), V4l2Error> {
        let mut command = abi::DecoderCmd { cmd, ..Default::default() };
        // SAFETY: the structure of the ioctl.
        unsafe { self.call("VIDIOC_DECODER_CMD", abi::DECODER_CMD, &mut command) }
    }
}
