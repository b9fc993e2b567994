// SPDX-License-Identifier: MIT OR Apache-2.0
//! Image sequence: each of its files becomes one packet.
//!
//! No parser looks for the ends of the pictures, because it would join a file that is no picture, or a
//! picture that is cut off, with the next file, and both would be lost.

use std::fs::File;
use std::io::{self, Write};

use framepath_os::measure::meter;
use framepath_os::process::cancel;

use super::Demuxer;
use super::context::Context;
use super::origin::DemuxerInput;
use crate::container::Formats;
use crate::input::{ContainerInput, MediaFile};
use crate::track::TrackInfo;
use crate::{CodecError, Packet};

/// Writes a part of a file of an image sequence for [`MediaFile::pictures`]: the number of bytes (32 bits,
/// little-endian) and the bytes. An empty chunk ends the file.
///
/// # Errors
/// A write failed, or `bytes` has 4 GiB or more.
pub fn write_chunk(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let count = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&count.to_le_bytes())?;
    to.write_all(bytes)
}

/// Files of an image sequence, in the order of their numbers.
pub(super) struct PictureFiles {
    /// Pipe or socket with the chunks of the files.
    chunks: File,
    /// Number of files that were returned as packets: the time of the next file, in ticks.
    returned: i64,
    /// Number of files at the start that are no pictures, and that are not returned yet.
    unusable: u64,
    /// First picture, if it is not returned yet.
    first: Option<Packet>,
    /// Bytes from which the demuxer's context has read the first picture's properties; they live as long as
    /// the context. `None` before.
    _examined: Option<Box<DemuxerInput>>,
}

impl PictureFiles {
    /// Returns the packet of the next file; `None` behind the last file. An empty damaged packet stands for an
    /// empty file, and for a file in front of the first picture. `name` is for errors, `info` the track.
    ///
    /// # Errors
    /// A read failed, or there is not enough memory.
    pub(super) fn next(&mut self, name: &str, info: &TrackInfo) -> Result<Option<Packet>, CodecError> {
        let packet = if self.unusable > 0 {
            self.unusable -= 1;
            Packet::new().ok_or_else(|| no_memory(name)).map(Some)
        } else if let Some(first) = self.first.take() {
            Ok(Some(first))
        } else {
            self.read(name)
        };
        let Some(mut packet) = packet? else { return Ok(None) };
        if packet.is_empty() {
            packet.set_damaged();
        } else {
            packet.set_key();
        }
        let meta = packet.meta_mut();
        (meta.pts, meta.duration) = (Some(self.returned), 1);
        meta.orientation = info.stream.orientation;
        self.returned += 1;
        Ok(Some(packet))
    }

    /// Reads the next file; `None` behind the last one, and if the chunks end inside a file. The time of reading is
    /// recorded as blocked.
    fn read(&mut self, name: &str) -> Result<Option<Packet>, CodecError> {
        let failed = |source| CodecError::Io { file: name.to_owned(), operation: "read", source };
        let mut packet = Packet::new().ok_or_else(|| no_memory(name))?;
        loop {
            let mut count = [0; 4];
            if !self.fill(&mut count).map_err(failed)? {
                return Ok(None);
            }
            match u32::from_le_bytes(count) {
                0 => return Ok(Some(packet)),
                count => {
                    let room = packet.grow(count as usize).ok_or_else(|| no_memory(name))?;
                    if !self.fill(room).map_err(failed)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Fills `buffer`; returns false if the chunks end before.
    fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<bool> {
        while !buffer.is_empty() {
            match meter::blocked(|| cancel::read(&self.chunks, buffer))? {
                0 => return Ok(false),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(true)
    }
}

impl Demuxer {
    /// Creates a demuxer for the image sequence `file`. The first file that is a picture decides the codec and the
    /// stream's properties; `track` is the number of its track.
    ///
    /// # Errors
    /// No file is a picture, there is no such track, a read failed, or there is not enough memory.
    pub(super) fn open_pictures(file: MediaFile, track: Option<usize>) -> Result<Demuxer, CodecError> {
        let name = file.name().to_owned();
        let mut files =
            PictureFiles { chunks: file.into_file(), returned: 0, unusable: 0, first: None, _examined: None };
        while let Some(packet) = files.read(&name)? {
            match examined(&name, &packet, track) {
                Ok(Some((context, stream, input))) => {
                    (files.first, files._examined) = (Some(packet), Some(Box::new(input)));
                    let input = DemuxerInput::Pictures(files);
                    return Demuxer::from_parts(name, input, context, stream, (track, Formats::All));
                }
                Err(error @ (CodecError::Memory { .. } | CodecError::NoTrack { .. })) => return Err(error),
                Ok(None) | Err(_) => files.unusable += 1,
            }
        }
        let message = format!("none of the {} files of the image sequence is a picture", files.unusable);
        Err(CodecError::Demux { file: name, operation: "open", message })
    }
}

/// Examines the file in `packet`. Returns libavformat's context of the picture, the index of its stream, and the
/// input from which the context reads; `None` if the file is no picture whose size libavformat finds.
///
/// # Errors
/// As [`Context::open`] and [`Context::track`].
fn examined(
    name: &str,
    packet: &Packet,
    track: Option<usize>,
) -> Result<Option<(Context, std::ffi::c_int, DemuxerInput)>, CodecError> {
    let bytes = packet.bytes().unwrap_or_default();
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| no_memory(name))?;
    copy.extend_from_slice(bytes);
    let mut input = DemuxerInput::File(ContainerInput::of_bytes(copy, name.to_owned())?);
    let (context, stream) = Context::open(name, &mut input, track, Formats::All)?;
    let size = context.track(name, stream)?.stream;
    let is_picture = context.is_picture() && size.width > 0 && size.height > 0;
    Ok(is_picture.then_some((context, stream, input)))
}

fn no_memory(name: &str) -> CodecError {
    CodecError::Memory { file: name.to_owned(), operation: "read" }
}
