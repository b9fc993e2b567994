// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a device.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::NodeRole;

/// Error of a V4L2 node, a dma-heap or another device file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum V4l2Error {
    /// The node, or another device file such as a dma-heap, cannot be opened.
    #[error("cannot open {}: {errno}", node.display())]
    Open {
        /// Path of the file.
        node: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The file is not a V4L2 node or, where [`MetaReader`](super::MetaReader) opens it, not the node with
    /// the records of framepath's kernel module.
    #[error("{}: not a V4L2 node, or not the node with framepath's records", node.display())]
    NoNode {
        /// Path of the file.
        node: PathBuf,
    },
    /// The node does not have the required role.
    #[error("{}: is {role} ({card}); expected {wanted}", node.display())]
    Role {
        /// Path of the node.
        node: PathBuf,
        /// The device's name.
        card: String,
        /// Role of the node.
        role: NodeRole,
        /// Role that was expected.
        wanted: NodeRole,
    },
    /// The device has formats, but not the requested one.
    #[error("{}: no {wanted}; supported: {offers}", node.display())]
    Format {
        /// Path of the node.
        node: PathBuf,
        /// Name of the requested format.
        wanted: String,
        /// Names of the formats that the device supports, separated by commas; `nothing` if it lists none.
        offers: String,
    },
    /// A call failed with EBUSY. Most often another program uses the device, or frames of an earlier queue of
    /// this program do.
    #[error("{}: in use by another program, or by frames of an earlier queue ({call})", node.display())]
    Busy {
        /// Path of the node.
        node: PathBuf,
        /// System call that failed.
        call: &'static str,
    },
    /// A call failed with ENODEV or ENXIO, most often because the device was removed.
    #[error("{}: the device is gone: unplugged, or its driver unloaded ({call})", node.display())]
    Gone {
        /// Path of the node.
        node: PathBuf,
        /// System call that failed.
        call: &'static str,
    },
    /// A call failed with EIO, most often because the device stopped the stream after an error.
    #[error("{}: the device failed and outputs no more frames ({call}: {})", node.display(), Errno::IO)]
    Failed {
        /// Path of the node.
        node: PathBuf,
        /// System call that failed.
        call: &'static str,
    },
    /// The device delivered no result within the time limit.
    #[error("{}: the device delivered {awaited} for {} ms", node.display(), waited_ms)]
    Silent {
        /// Path of the node.
        node: PathBuf,
        /// Text that names the missing result, such as `no frame`.
        awaited: &'static str,
        /// Time waited, milliseconds.
        waited_ms: u128,
    },
    /// The driver reported something impossible, or does not support what the caller needs.
    #[error("{}: the driver {what}", node.display())]
    Driver {
        /// Path of the node.
        node: PathBuf,
        /// Action of the driver: the end of a sentence after `the driver`.
        what: String,
    },
    /// A packet or frame is larger than the device's OUTPUT buffers.
    #[error("{}: {bytes} bytes do not fit a buffer of the device; the maximum is {most}", node.display())]
    TooLong {
        /// Path of the node.
        node: PathBuf,
        /// Size of the data up to the end of the first part that does not fit, bytes.
        bytes: usize,
        /// Size of one buffer, bytes.
        most: usize,
    },
    /// A system call other than open(2) failed with an error that has no other variant here.
    #[error("{}: {call}: {errno}", node.display())]
    Os {
        /// The node, or the file that was used.
        node: PathBuf,
        /// System call that failed.
        call: &'static str,
        /// The kernel's error.
        errno: Errno,
    },
}

impl V4l2Error {
    /// Makes the error of `call` on `node`: [`Busy`](V4l2Error::Busy) for EBUSY, [`Gone`](V4l2Error::Gone)
    /// for ENODEV and ENXIO, [`Failed`](V4l2Error::Failed) for EIO, otherwise [`Os`](V4l2Error::Os).
    pub(super) fn of(node: &Path, call: &'static str, errno: Errno) -> V4l2Error {
        let node = node.to_owned();
        match errno {
            Errno::BUSY => V4l2Error::Busy { node, call },
            Errno::NODEV | Errno::NXIO => V4l2Error::Gone { node, call },
            Errno::IO => V4l2Error::Failed { node, call },
            errno => V4l2Error::Os { node, call, errno },
        }
    }
}
