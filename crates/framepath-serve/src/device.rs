// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder behind the kernel module's decoder node: a sandboxed worker
//! decodes each accepted stream of a V4L2 client into the client's own CAPTURE
//! buffers.
//!
//! ```text
//! V4L2 client ──packets──▶ framepath.ko ──▶ feed ──copies──▶ worker
//!             ◀──frames─── framepath.ko ◀── deliver ◀─────────┘ │
//!                  └── CAPTURE buffers, provided ───────────────┘
//! ```

mod captures;
mod feed;
mod stash;
mod users;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use framepath_codec::{Codec, TrackInfo};
use framepath_model::access_unit::Coding;
use framepath_model::orientation::Orientation;
use framepath_model::shown::shown;
use framepath_model::stream::{Rational, StreamInfo};
use framepath_os::v4l2::Fourcc;
use framepath_os::v4l2::attach::Attached;

use feed::Serving;
use framepath::host::for_serve::HostError;
use framepath::host::for_serve::codec_of;
use framepath::host::for_serve::keep_ready;
use users::Users;

/// Settings for decoding the device's streams.
#[derive(Clone, Debug)]
pub struct DeviceSettings {
    /// Time without progress after which a worker that has work is replaced. Default: 2 s.
    pub watchdog: Duration,
    /// Limit of a worker's address space beyond the part that is mapped when the worker enters its sandbox,
    /// bytes. Default: 4 GiB.
    pub memory_bytes: u64,
    /// Number of threads of each decoder. More threads need more CAPTURE buffers of the client. Default: 1.
    pub threads: u32,
    /// Number of spare workers that are kept running for the device's streams. Default: 1.
    pub spares: u32,
    /// Maximum number of simultaneous streams of one user without CAP_SYS_RESOURCE. Each stream has one
    /// worker. Default: 16.
    pub user_streams: u32,
}

impl Default for DeviceSettings {
    fn default() -> DeviceSettings {
        DeviceSettings {
            watchdog: Duration::from_secs(2),
            memory_bytes: 4 << 30,
            threads: 1,
            spares: 1,
            user_streams: 16,
        }
    }
}

/// Decodes the streams of the device's clients, each in its own threads. Returns only on an error.
///
/// # Errors
/// Accepting a stream or starting a thread failed. Failures of single streams are reported on standard
/// error.
pub fn serve(attached: &Attached, settings: &DeviceSettings) -> io::Result<std::convert::Infallible> {
    keep_ready(settings.memory_bytes, settings.spares as usize);
    let users = Arc::new(Users::new(settings.user_streams));
    loop {
        let offered = attached.accept()?;
        let (id, settings) = (offered.id, settings.clone());
        let place = match offered.limited_uid.map(|uid| users.begin(uid).ok_or(uid)).transpose() {
            Ok(place) => place,
            Err(uid) => {
                print_note(&format!(
                    "stream {id}: refused: user {uid} has {} streams, the limit; raise --device-user-streams",
                    settings.user_streams
                ));
                // Reports the failure to the kernel, because the kernel would offer the stream
                // again otherwise.
                let _ = offered.stream.fail();
                continue;
            }
        };
        let serving = move || {
            let _place = place;
            if let Err(error) = Serving::run(offered, settings) {
                print_note(&format!("stream {id}: {error}"));
            }
        };
        thread::Builder::new().name("fp-feed".to_owned()).spawn(serving)?;
    }
}

/// Writes a message for the operator of the service to standard error.
fn print_note(text: &str) {
    eprintln!("framepath: device: {}", shown(text));
}

/// Returns the codec of V4L2's format `fourcc`: as the decoder names it, and as the parser of packets names
/// it. `None` if the format is not supported.
fn coding_of(fourcc: Fourcc) -> Option<(Codec, Coding)> {
    let codec = codec_of(fourcc)?;
    Some((codec, codec.coding()))
}

fn track_of(codec: Codec, width: u32, height: u32) -> Result<TrackInfo, HostError> {
    let stream = StreamInfo {
        format: None,
        width,
        height,
        // The device's timestamps are nanoseconds.
        time_base: Rational::new(1, 1_000_000_000),
        frame_rate: Rational::new(0, 1),
        sample_aspect: Rational::new(1, 1),
        orientation: Orientation::Upright,
    };
    TrackInfo::from_codec(codec, stream).map_err(|error| HostError::Failed { text: error.to_string() })
}
