// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of another program that a display controller scans out.
//!
//! The other program may draw into a buffer at any time. So no Rust reference to the memory is made, and its frames are
//! those of a [`ForeignPool`].

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;
use rustix::fs::{SeekFrom, fstat, seek};

use crate::memory::pool::{ForeignError, ForeignPool, Frame, Returns};
use crate::process::stop;
use crate::v4l2::{CpuAccess, Region, sync_dmabuf};

/// Buffer that a display controller scans out, mapped for reading. At most one frame of it exists at a time. Frames may
/// outlive this value, and keep the memory.
pub struct ScanoutBuffer {
    memory: Arc<ScanoutMemory>,
    frames: ForeignPool,
    /// Number of the dmabuf among all of this machine's.
    inode: u64,
}

struct ScanoutMemory {
    region: Arc<Region>,
    /// True while a frame of the buffer exists.
    is_in_use: AtomicBool,
}

impl ScanoutMemory {
    /// Announces that the CPU begins to read, or ends it if `end` is true.
    fn sync(&self, end: bool) {
        self.region.dmabuf(0).into_iter().for_each(|fd| sync_dmabuf(fd, CpuAccess::Read, end));
    }
}

impl Returns for ScanoutMemory {
    fn give_back(&self, _: u32) {
        self.sync(true);
        // Pairs with the acquire in `frame`: the reads of this frame are done before the next frame begins.
        self.is_in_use.store(false, Ordering::Release);
    }
}

impl ScanoutBuffer {
    /// Maps a buffer.
    ///
    /// # Errors
    /// The exporter does not let the CPU map it, or the descriptor is no dmabuf.
    pub fn map(dmabuf: OwnedFd) -> io::Result<ScanoutBuffer> {
        let inode = inode_of(&dmabuf)?;
        // The kernel's own size of the buffer, which never changes: pixels beyond it would end the process (SIGBUS).
        let bytes =
            usize::try_from(seek(&dmabuf, SeekFrom::End(0))?).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let region = Arc::new(Region::map_dmabufs(vec![dmabuf], bytes, CpuAccess::Read)?);
        let memory = Arc::new(ScanoutMemory { region: region.clone(), is_in_use: AtomicBool::new(false) });
        Ok(ScanoutBuffer { frames: ForeignPool::from_region(region, memory.clone()), memory, inode })
    }

    /// Returns true if `dmabuf` is this buffer. Two descriptors of one buffer differ; the buffer's inode does not, and is not
    /// used again while this value lives.
    ///
    /// # Errors
    /// From fstat(2).
    pub fn is(&self, dmabuf: &OwnedFd) -> io::Result<bool> {
        Ok(inode_of(dmabuf)? == self.inode)
    }

    /// Waits until the program that draws, or its GPU, has finished the picture in the buffer (the dmabuf's fences), at most
    /// `limit`. Returns true then, and false if the time has passed, or a signal, a stop request or `awake` ended the wait.
    ///
    /// # Errors
    /// From poll(2).
    pub fn wait_drawn(&self, limit: Duration, awake: impl Fn() -> bool) -> io::Result<bool> {
        match self.memory.region.dmabuf(0) {
            Some(dmabuf) => stop::wait_for_socket(dmabuf, false, limit, awake),
            None => Ok(true),
        }
    }

    /// Makes a frame of the buffer; `None` while an earlier one exists.
    ///
    /// # Errors
    /// The layout is larger than the buffer.
    pub fn frame(&self, layout: &Layout, meta: FrameMeta) -> Result<Option<Frame>, ForeignError> {
        // Pairs with the release in `give_back`.
        if self.memory.is_in_use.swap(true, Ordering::Acquire) {
            return Ok(None);
        }
        self.memory.sync(false);
        let frame = self.frames.frame(0, layout, meta);
        if frame.is_err() {
            self.memory.give_back(0);
        }
        frame.map(Some)
    }
}

fn inode_of(fd: &OwnedFd) -> io::Result<u64> {
    Ok(fstat(fd.as_fd())?.st_ino)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use framepath_model::format::PixelFormat;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// A memfd in place of a dmabuf, which needs a driver; tests/vm has a driver.
    fn memory(bytes: u64) -> OwnedFd {
        let memory = memfd_create("scanout", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, bytes).unwrap();
        memory
    }

    #[test]
    fn a_buffer_has_one_frame_at_a_time() {
        let layout = Layout::packed(PixelFormat::Bgr0, 64, 20).unwrap();
        let memory = memory(64 * 20 * 4);
        let drawing = File::from(memory.try_clone().unwrap());
        drawing.write_all_at(&[7; 64 * 20 * 4], 0).unwrap();
        let buffer = ScanoutBuffer::map(memory).unwrap();
        let frame = buffer.frame(&layout, FrameMeta::default()).unwrap().unwrap();
        assert!(buffer.frame(&layout, FrameMeta::default()).unwrap().is_none());
        assert_eq!(frame.plane(0).to_vec(), vec![7; 64 * 20 * 4]);
        assert!(frame.dmabuf().is_some() && frame.is_foreign());
        drop(frame);
        let frame = buffer.frame(&layout, FrameMeta::default()).unwrap().unwrap();
        drop(buffer);
        // The frame keeps the memory.
        assert_eq!(frame.plane(0).to_vec(), vec![7; 64 * 20 * 4]);
    }

    #[test]
    fn a_layout_beyond_the_buffer_is_refused() {
        let buffer = ScanoutBuffer::map(memory(4096)).unwrap();
        let large = Layout::packed(PixelFormat::Bgr0, 64, 17).unwrap();
        for _ in 0..2 {
            assert!(buffer.frame(&large, FrameMeta::default()).is_err());
        }
        let fits = Layout::packed(PixelFormat::Bgr0, 64, 16).unwrap();
        assert!(buffer.frame(&fits, FrameMeta::default()).unwrap().is_some(), "an error leaves it free");
        assert!(ScanoutBuffer::map(memory(0)).is_err());
    }

    #[test]
    fn a_buffer_is_known_by_its_inode() {
        let first = memory(4096);
        let again = first.as_fd().try_clone_to_owned().unwrap();
        let buffer = ScanoutBuffer::map(first).unwrap();
        assert!(buffer.is(&again).unwrap());
        assert!(!buffer.is(&memory(4096)).unwrap());
    }
}
