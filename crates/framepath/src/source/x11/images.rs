// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of captured pictures, which the X server writes if it shares memory (MIT-SHM 1.2), and the requests that
//! fill it.

use std::ops::Range;
use std::os::fd::OwnedFd;

use framepath_model::changed_rows::ChangedRows;
use framepath_model::format::Layout;
use framepath_os::display::screen_pool::{ScreenPool, ScreenSlot};
use x11rb::connection::Connection;
use x11rb::protocol::shm::ConnectionExt as _;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat};

use super::server::{XFailure, XServer};
use super::target::Target;
use crate::error::StageError;

/// Pool of pictures of one size.
pub(super) struct Images {
    pub(super) pool: ScreenPool,
    /// Id of the server's mapping of the pool; `None` if the server sends pixels over the connection.
    segment: Option<u32>,
}

impl Images {
    /// Makes a pool of `slots` pictures with `layout`. With `shares`, the server maps it.
    ///
    /// # Errors
    /// Memory is short, the server denies to map it, or the pool has more than 4 GiB.
    pub(super) fn new(
        server: &XServer,
        layout: &Layout,
        slots: u32,
        shares: bool,
    ) -> Result<Images, StageError> {
        let memory = |error| StageError::Io {
            what: format!("memory for {slots} pictures of {} bytes", layout.size),
            error,
        };
        let pool = ScreenPool::new(layout.size, slots).map_err(memory)?;
        let segment = match shares {
            // The protocol has 32 bits for an offset in the memory.
            true if u32::try_from(pool.slot_bytes() as u64 * u64::from(slots)).is_err() => {
                let bytes = layout.size;
                let what = format!(
                    "pool={slots}: pictures of {bytes} bytes fill more than 4 GiB; use a smaller pool"
                );
                return Err(StageError::Screen(what));
            }
            true => {
                let memfd = pool.memfd().and_then(|memfd| memfd.try_clone_to_owned()).map_err(memory)?;
                Some(attach(server, memfd)?)
            }
            false => None,
        };
        Ok(Images { pool, segment })
    }

    /// Lets the server release the pool. Frames of the pool stay valid.
    pub(super) fn detach(self, server: &XServer) -> Result<(), XFailure> {
        match self.segment {
            Some(segment) => server.ask(|connection| Ok(connection.shm_detach(segment)?.check()?)),
            None => Ok(()),
        }
    }

    /// Has the server write the target's pixels into the rows `stale` of `slot`: in the shared memory, so that this
    /// process copies none, or over the connection, with a copy that the ledger counts.
    ///
    /// # Errors
    /// As [`XServer::ask`]; also if the server sends another amount of pixels than expected.
    pub(super) fn capture(
        &self,
        slot: &mut ScreenSlot<'_>,
        server: &XServer,
        target: &Target,
        layout: &Layout,
        stale: &ChangedRows,
    ) -> Result<(), XFailure> {
        let lost = |what: String| XFailure::Lost(server.error(what));
        let stride = layout.size / layout.height as usize;
        let wanted: Option<Vec<Band>> =
            stale.bands().iter().map(|rows| Band::of(target, rows, stride)).collect();
        let (Some(drawable), Some(wanted)) = (target.drawable, wanted) else {
            return Err(lost("the picture is too large for a request".to_owned()));
        };
        let expect = |band: &Band, bytes: usize, depth: u8| match (bytes, depth) == (band.bytes, target.depth)
        {
            true => Ok(()),
            false => Err(lost(format!(
                "it sent {bytes} bytes of depth {depth}; expected {} bytes of depth {}",
                band.bytes, target.depth
            ))),
        };
        let planes = u32::MAX;
        if let Some(segment) = self.segment {
            let format = u8::from(ImageFormat::Z_PIXMAP);
            let first = slot.offset();
            let replies = server.ask(|connection| {
                let request = |band: &Band| {
                    let (x, y, width, height) = band.rectangle;
                    let offset = (first + band.offset) as u32;
                    connection.shm_get_image(drawable, x, y, width, height, planes, format, segment, offset)
                };
                // All requests first, so that there is one wait.
                let requests = wanted.iter().map(request).collect::<Result<Vec<_>, _>>()?;
                Ok(requests.into_iter().map(|request| request.reply()).collect::<Result<Vec<_>, _>>()?)
            })?;
            let mut pairs = wanted.iter().zip(replies);
            return pairs.try_for_each(|(band, reply)| expect(band, reply.size as usize, reply.depth));
        }
        for band in wanted {
            server.admit_reply(band.bytes);
            let reply = server.ask(|connection| {
                let format = ImageFormat::Z_PIXMAP;
                let (x, y, width, height) = band.rectangle;
                Ok(connection.get_image(format, drawable, x, y, width, height, planes)?.reply()?)
            })?;
            expect(&band, reply.data.len(), reply.depth)?;
            slot.write(band.offset, &reply.data);
        }
        Ok(())
    }
}

/// Rows that the server is to write.
struct Band {
    /// Place, width and height in the coordinates of the drawable.
    rectangle: (i16, i16, u16, u16),
    /// Offset of the first byte in the slot, and the number of bytes.
    offset: usize,
    bytes: usize,
}

impl Band {
    /// Returns the band `rows` of a picture of `target` with rows of `stride` bytes; `None` if it is too large for a
    /// request.
    fn of(target: &Target, rows: &Range<u32>, stride: usize) -> Option<Band> {
        let rectangle = target.rectangle(rows)?;
        Some(Band { rectangle, offset: rows.start as usize * stride, bytes: rows.len() * stride })
    }
}

/// Returns true if the server can map memory of this process: it has MIT-SHM 1.2, and the connection passes
/// descriptors.
pub(super) fn shares_memory(server: &XServer) -> Result<bool, StageError> {
    if !server.is_local() || !server.has("MIT-SHM").map_err(XFailure::into_error)? {
        return Ok(false);
    }
    let version = server.ask(|connection| Ok(connection.shm_query_version()?.reply()?));
    let version = version.map_err(XFailure::into_error)?;
    Ok((version.major_version, version.minor_version) >= (1, 2))
}

fn attach(server: &XServer, memfd: OwnedFd) -> Result<u32, StageError> {
    let attached = server.ask(|connection| {
        let segment = connection.generate_id()?;
        connection.shm_attach_fd(segment, memfd, false)?.check()?;
        Ok(segment)
    });
    attached.map_err(XFailure::into_error)
}
