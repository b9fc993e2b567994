// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of encoders.

use std::ffi::c_int;

use framepath_model::format::{LayoutError, PixelFormat};

use crate::EncoderApi;
use crate::encoder_settings::EncoderName;
use crate::error::libav_message;

/// Error of an encoder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The installed libavcodec has no encoder for the codec with this API.
    #[error("the installed libavcodec has no {api} encoder of {codec}{}", missing(names))]
    NotBuilt {
        /// Name of the codec.
        codec: &'static str,
        /// API of the encoder.
        api: EncoderApi,
        /// Names of the encoders that libavcodec would have; empty if no such encoder exists.
        names: String,
    },
    /// The encoder does not take the pixel format.
    #[error("{encoder} does not take {format} frames; put `convert format={instead}` in front")]
    Format {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Pixel format of the frames.
        format: PixelFormat,
        /// Pixel format that the encoder takes.
        instead: String,
    },
    /// The encoder does not take pictures with an odd width or height in this format.
    #[error(
        "{encoder} does not take {format} pictures of {width}x{height} pixels, because a side is odd; put `crop \
         roi=0,0,{},{}` or `scale` in front",
        .width & !1,
        .height & !1
    )]
    OddSize {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Pixel format of the frames.
        format: PixelFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// An option of the encoder is not possible.
    #[error("{option}: {encoder} {reason}")]
    Option {
        /// Name of the option in paths.
        option: &'static str,
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Reason why the option is not possible.
        reason: String,
    },
    /// libavcodec, the encoder or the hardware failed.
    #[error("{encoder}: cannot {operation}: {message}")]
    Encoder {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// libav's message, or the name of the missing device.
        message: String,
    },
    /// The frame is not a picture.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

fn missing(names: &str) -> String {
    if names.is_empty() { String::new() } else { format!(" ({names}); install a build that has one") }
}

/// Returns the error of `encoder` for libav's `code`.
pub(super) fn failure(encoder: EncoderName, operation: &'static str, code: c_int) -> EncodeError {
    EncodeError::Encoder {
        encoder: encoder.name.to_string_lossy().into_owned(),
        operation,
        message: libav_message(code),
    }
}
