// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open V4L2 node: its role, formats, controls and events.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::ioctl::Opcode;

use super::call::call;
use super::{Direction, Fourcc, V4l2Error, abi};
use crate::machine::nodes;
use crate::measure::meter;
use crate::process::stop;

/// Role of a V4L2 node, by its queues and their formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// Only emits: a camera or grabber, whose frames may be compressed.
    Camera,
    /// Takes packets: a decoder, by a packet format of its OUTPUT queue.
    Decoder,
    /// Takes frames and emits packets: an encoder, by a packet format of its CAPTURE queue only.
    Encoder,
    /// Measuring node of framepath's kernel module: takes and emits frames.
    Measuring,
    /// Any other device that takes and emits frames.
    Converter,
    /// Node of any other role, such as video output, radio or metadata.
    Other,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeRole::Camera => "a camera",
            NodeRole::Decoder => "a stateful decoder",
            NodeRole::Encoder => "an encoder",
            NodeRole::Measuring => "framepath's measuring node",
            NodeRole::Converter => "a memory-to-memory device",
            NodeRole::Other => "neither a source nor a codec of video",
        })
    }
}

/// Format that a queue supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatOffer {
    /// V4L2 code of the format.
    pub fourcc: Fourcc,
    /// True if the format is of packets, false if it is of pixels.
    pub compressed: bool,
}

/// Format of a queue: what the driver reports, or what the program requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFormat {
    /// Width in pixels; 0 if unknown.
    pub width: u32,
    /// Height in pixels; 0 if unknown.
    pub height: u32,
    /// Format of the pixels or packets.
    pub fourcc: Fourcc,
    /// Number of bytes from one row of the first plane to the next; 0 in a request lets the driver choose.
    pub stride: u32,
    /// Size of a buffer, bytes; 0 in a request lets the driver choose.
    pub bytes: u32,
    /// Number of planes with separate memory; more than one is not supported. Ignored in a request,
    /// which has one.
    pub memory_planes: u32,
}

/// Part of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Distance from the picture's left edge, pixels.
    pub left: u32,
    /// Distance from the picture's top edge, pixels.
    pub top: u32,
    /// Width of the part, pixels; at least 1.
    pub width: u32,
    /// Height of the part, pixels; at least 1.
    pub height: u32,
}

/// Value of a V4L2 control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlValue {
    /// Value of a 32-bit control: a number, a menu or a switch.
    Int(i32),
    /// Value of a 64-bit control.
    Wide(i64),
}

/// Result of [`Node::wait`] and [`Node::wait_for_capture`]; all false if nothing is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// True if a CAPTURE buffer can be dequeued.
    pub capture: bool,
    /// True if an OUTPUT buffer can be dequeued.
    pub output: bool,
    /// True if an event can be dequeued.
    pub event: bool,
    /// True if a queue is in error, no buffer is queued that could become ready, or the device is gone.
    pub error: bool,
}

impl Ready {
    /// Returns true if nothing was ready before the wait ended.
    pub fn is_none(&self) -> bool {
        *self == Ready::default()
    }
}

/// Driver name of framepath's kernel module.
const DRIVER: &str = "framepath";

/// Open V4L2 node. Several threads may use it.
#[derive(Debug)]
pub struct Node {
    fd: OwnedFd,
    path: PathBuf,
    driver: String,
    card: String,
    caps: u32,
}

/// Returns the path of the first node `/dev/video*`, in the byte order of the names (`video10` before
/// `video2`), that can be opened and for which `is` returns true; `None` if there is none.
pub fn find_node(is: impl Fn(&Node) -> bool) -> Option<PathBuf> {
    nodes("/dev", "video").into_iter().find(|path| Node::open(path).is_ok_and(|node| is(&node)))
}

impl Node {
    /// Opens the node for reading and writing. No call blocks except [`Node::wait`] and its
    /// variants.
    ///
    /// # Errors
    /// The node does not exist, access is denied, the device is in use or gone, or the file is not a V4L2
    /// node.
    pub fn open(path: &Path) -> Result<Node, V4l2Error> {
        let node = path.to_owned();
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::BUSY) => return Err(V4l2Error::Busy { node, call: "open" }),
            Err(Errno::NODEV | Errno::NXIO) => return Err(V4l2Error::Gone { node, call: "open" }),
            Err(Errno::ISDIR) => return Err(V4l2Error::NoNode { node }),
            Err(errno) => return Err(V4l2Error::Open { node, errno }),
        };
        Node::from_open(fd, node)
    }

    /// Uses the open descriptor `fd`, opened as by [`Node::open`]; `node` is its path.
    ///
    /// # Errors
    /// [`V4l2Error::NoNode`] if the file is not a V4L2 node, or its driver does not answer VIDIOC_QUERYCAP.
    pub fn from_open(fd: OwnedFd, node: PathBuf) -> Result<Node, V4l2Error> {
        let is_device =
            fstat(&fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::CharacterDevice);
        let mut caps = abi::Capability::default();
        // SAFETY: the structure of the ioctl.
        let answered = is_device && unsafe { call(fd.as_fd(), abi::QUERYCAP, &mut caps) }.is_ok();
        if !answered {
            return Err(V4l2Error::NoNode { node });
        }
        let of_node = caps.capabilities & abi::CAP_DEVICE_CAPS != 0;
        Ok(Node {
            fd,
            path: node,
            driver: text(&caps.driver),
            card: text(&caps.card),
            caps: if of_node { caps.device_caps } else { caps.capabilities },
        })
    }

    /// Returns the node's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the driver's name, as the driver reports it.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the device's name (`card`), as the driver reports it.
    pub fn card(&self) -> &str {
        &self.card
    }

    /// Returns true if frames can be read with [`Node::read`].
    pub fn can_read(&self) -> bool {
        self.caps & abi::CAP_READWRITE != 0
    }

    /// Returns true if the node has queues of buffers.
    pub fn can_stream(&self) -> bool {
        self.caps & abi::CAP_STREAMING != 0
    }

    /// Returns the node's descriptor, to send to another process ([`Node::from_open`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true if the node has multi-planar video queues and no single-planar ones.
    pub(super) fn is_multiplanar(&self) -> bool {
        let single = abi::CAP_VIDEO_CAPTURE | abi::CAP_VIDEO_OUTPUT | abi::CAP_VIDEO_M2M;
        let multi = abi::CAP_VIDEO_CAPTURE_MPLANE | abi::CAP_VIDEO_OUTPUT_MPLANE | abi::CAP_VIDEO_M2M_MPLANE;
        self.caps & multi != 0 && self.caps & single == 0
    }

    /// Returns V4L2's buffer type for a queue (`enum v4l2_buf_type`).
    pub(super) fn kind(&self, direction: Direction) -> u32 {
        match (direction, self.is_multiplanar()) {
            (Direction::Capture, false) => abi::TYPE_CAPTURE,
            (Direction::Output, false) => abi::TYPE_OUTPUT,
            (Direction::Capture, true) => abi::TYPE_CAPTURE_MPLANE,
            (Direction::Output, true) => abi::TYPE_OUTPUT_MPLANE,
        }
    }

    /// Returns true if a buffer of the node's queues is described by a list of planes.
    pub(super) fn has_planes(&self) -> bool {
        self.is_multiplanar()
    }

    pub(super) fn error(&self, call: &'static str, errno: Errno) -> V4l2Error {
        V4l2Error::of(&self.path, call, errno)
    }

    /// Calls the ioctl `opcode` with the structure `body`; `name` is its name in errors.
    ///
    /// # Safety
    /// As for the function [`call`].
    pub(super) unsafe fn call<T>(
        &self,
        name: &'static str,
        opcode: Opcode,
        body: &mut T,
    ) -> Result<(), V4l2Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { call(self.fd.as_fd(), opcode, body) }.map(drop).map_err(|errno| self.error(name, errno))
    }

    /// Returns the node's role. Reads the formats if the node is a memory-to-memory device.
    pub fn role(&self) -> NodeRole {
        let has = |bits| self.caps & bits != 0;
        let capture = has(abi::CAP_VIDEO_CAPTURE | abi::CAP_VIDEO_CAPTURE_MPLANE);
        let output = has(abi::CAP_VIDEO_OUTPUT | abi::CAP_VIDEO_OUTPUT_MPLANE);
        if !(has(abi::CAP_VIDEO_M2M | abi::CAP_VIDEO_M2M_MPLANE) || capture && output) {
            return if capture { NodeRole::Camera } else { NodeRole::Other };
        }
        let packets = |direction| self.formats(direction).iter().any(|offer| offer.compressed);
        match (packets(Direction::Output), packets(Direction::Capture)) {
            (true, _) => NodeRole::Decoder,
            (false, true) => NodeRole::Encoder,
            (false, false) if self.driver == DRIVER => NodeRole::Measuring,
            (false, false) => NodeRole::Converter,
        }
    }

    /// Returns an error if the node does not have the role `wanted`.
    pub fn must_be(&self, wanted: NodeRole) -> Result<(), V4l2Error> {
        let role = self.role();
        if role == wanted {
            return Ok(());
        }
        Err(V4l2Error::Role { node: self.path.clone(), card: self.card.clone(), role, wanted })
    }

    /// Returns the formats that a queue supports, at most 256; none if the driver does not list them.
    pub fn formats(&self, direction: Direction) -> Vec<FormatOffer> {
        let mut offers = Vec::new();
        // Limited, because a faulty driver's list might never end.
        for index in 0..256 {
            let mut desc = abi::FmtDesc { index, kind: self.kind(direction), ..Default::default() };
            // SAFETY: the structure of the ioctl.
            if unsafe { call(self.fd.as_fd(), abi::ENUM_FMT, &mut desc) }.is_err() {
                break;
            }
            let compressed = desc.flags & abi::FMT_FLAG_COMPRESSED != 0;
            offers.push(FormatOffer { fourcc: Fourcc(desc.pixelformat), compressed });
        }
        offers
    }

    /// Makes the error that a queue does not support the format `wanted`. The error lists the supported
    /// formats.
    pub fn lacks(&self, direction: Direction, wanted: &str) -> V4l2Error {
        let names: Vec<String> = self.formats(direction).iter().map(|o| o.fourcc.to_string()).collect();
        let offers = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        V4l2Error::Format { node: self.path.clone(), wanted: wanted.to_owned(), offers }
    }

    /// Returns a queue's format. A decoder knows CAPTURE's format only after the stream's head: before, some
    /// drivers return an error, and others another format; framepath's kernel module waits for it for a
    /// limited time while packets are queued.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn format(&self, direction: Direction) -> Result<QueueFormat, V4l2Error> {
        Ok(self.picture(&self.raw_format(direction)?))
    }

    pub(super) fn raw_format(&self, direction: Direction) -> Result<abi::RawFormat, V4l2Error> {
        let mut format =
            abi::RawFormat { kind: self.kind(direction), body: abi::FormatBody { raw: [0; 200] } };
        // SAFETY: the structure of the ioctl.
        unsafe { self.call("VIDIOC_G_FMT", abi::G_FMT, &mut format) }?;
        Ok(format)
    }

    /// Sets a queue's format. Returns the format that the driver chose, which may differ from `requested`.
    ///
    /// # Errors
    /// The queue already has buffers, or does not support the format.
    pub fn set_format(
        &self,
        direction: Direction,
        requested: &QueueFormat,
    ) -> Result<QueueFormat, V4l2Error> {
        let body = match self.is_multiplanar() {
            false => abi::FormatBody {
                pix: abi::PixFormat {
                    width: requested.width,
                    height: requested.height,
                    pixelformat: requested.fourcc.0,
                    field: abi::FIELD_ANY,
                    bytesperline: requested.stride,
                    sizeimage: requested.bytes,
                    ..Default::default()
                },
            },
            true => {
                let mut planes = [abi::PlanePixFormat::default(); abi::MOST_PLANES];
                planes[0].sizeimage = requested.bytes;
                planes[0].bytesperline = requested.stride;
                abi::FormatBody {
                    pix_mp: abi::PixFormatMplane {
                        width: requested.width,
                        height: requested.height,
                        pixelformat: requested.fourcc.0,
                        field: abi::FIELD_ANY,
                        planes,
                        num_planes: 1,
                        ..Default::default()
                    },
                }
            }
        };
        // The kernel reads the rest of the union too, so it is zeroed.
        let mut format =
            abi::RawFormat { kind: self.kind(direction), body: abi::FormatBody { raw: [0; 200] } };
        match self.is_multiplanar() {
            // SAFETY: the member that was written above.
            false => format.body.pix = unsafe { body.pix },
            // SAFETY: as above.
            true => format.body.pix_mp = unsafe { body.pix_mp },
        }
        // SAFETY: the structure of the ioctl.
        unsafe { self.call("VIDIOC_S_FMT", abi::S_FMT, &mut format) }?;
        Ok(self.picture(&format))
    }

    fn picture(&self, format: &abi::RawFormat) -> QueueFormat {
        match self.is_multiplanar() {
            false => {
                // SAFETY: every bit pattern is valid for every member, and all of `raw` was
                // written.
                let pix = unsafe { format.body.pix };
                QueueFormat {
                    width: pix.width,
                    height: pix.height,
                    fourcc: Fourcc(pix.pixelformat),
                    stride: pix.bytesperline,
                    bytes: pix.sizeimage,
                    memory_planes: 1,
                }
            }
            true => {
                // SAFETY: as above.
                let pix = unsafe { format.body.pix_mp };
                QueueFormat {
                    width: pix.width,
                    height: pix.height,
                    fourcc: Fourcc(pix.pixelformat),
                    stride: pix.planes[0].bytesperline,
                    bytes: pix.planes[0].sizeimage,
                    memory_planes: pix.num_planes.into(),
                }
            }
        }
    }

    /// Returns the visible part of the pictures of CAPTURE; `None` if the driver reports none, an empty part,
    /// or one that begins outside the picture.
    pub fn visible(&self) -> Option<Rect> {
        // The documentation requires the single-planar number; old drivers require the queue's.
        [abi::TYPE_CAPTURE, self.kind(Direction::Capture)].into_iter().find_map(|kind| {
            let mut selection =
                abi::Selection { kind, target: abi::SEL_TGT_COMPOSE, ..abi::Selection::default() };
            // SAFETY: the structure of the ioctl.
            unsafe { call(self.fd.as_fd(), abi::G_SELECTION, &mut selection) }.ok()?;
            let (left, top) = (u32::try_from(selection.left).ok()?, u32::try_from(selection.top).ok()?);
            let (width, height) = (selection.width, selection.height);
            (width > 0 && height > 0).then_some(Rect { left, top, width, height })
        })
    }

    /// Sets controls: all or none.
    ///
    /// # Errors
    /// The device does not have a control, or does not accept its value.
    ///
    /// # Panics
    /// There are more than 16 controls.
    pub fn set_controls(&self, controls: &[(u32, ControlValue)]) -> Result<(), V4l2Error> {
        let mut list = [abi::ExtControl::default(); 16];
        for (place, (id, value)) in list[..controls.len()].iter_mut().zip(controls) {
            place.id = *id;
            match value {
                ControlValue::Int(value) => place.value[..4].copy_from_slice(&value.to_ne_bytes()),
                ControlValue::Wide(value) => place.value = value.to_ne_bytes(),
            }
        }
        let mut all = abi::ExtControls {
            which: 0,
            count: controls.len() as u32,
            error_idx: 0,
            request_fd: 0,
            reserved: 0,
            controls: list.as_mut_ptr(),
        };
        // SAFETY: the structure of the ioctl; it points to `count` controls without payloads.
        unsafe { self.call("VIDIOC_S_EXT_CTRLS", abi::S_EXT_CTRLS, &mut all) }
    }

    /// Requests `hz` frames per second, a fraction (numerator, denominator); `None` keeps the rate.
    /// Returns the duration of a frame that is in force afterwards, seconds as a fraction (numerator,
    /// denominator). Returns `None` if the driver has no rates, reports none or rejects the request.
    pub fn set_rate(&self, hz: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let mut parm = abi::StreamParm {
            kind: self.kind(Direction::Capture),
            capability: 0,
            capture_mode: 0,
            numerator: 0,
            denominator: 0,
            rest: [0; 46],
        };
        // SAFETY: the structure of the ioctl.
        unsafe { call(self.fd.as_fd(), abi::G_PARM, &mut parm) }.ok()?;
        if let Some((over, under)) = hz {
            (parm.numerator, parm.denominator) = (under, over);
            // SAFETY: as above.
            unsafe { call(self.fd.as_fd(), abi::S_PARM, &mut parm) }.ok()?;
        }
        (parm.numerator > 0 && parm.denominator > 0).then_some((parm.numerator, parm.denominator))
    }

    /// Waits for an event, a buffer or an error of a queue for at most `time`; the time is recorded as device
    /// time. Returns an [empty](Ready::is_none) result after the timeout, after a signal, or if the calling
    /// thread's run is requested to stop or woken during the wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait(&self, time: Duration) -> Result<Ready, V4l2Error> {
        self.poll(PollFlags::IN | PollFlags::OUT | PollFlags::PRI, time, || false)
    }

    /// Waits as [`Node::wait`] does, but only for a CAPTURE buffer or an error. Returns an empty result
    /// immediately if `awake` returns true, and early if the calling thread's run is
    /// [woken](crate::process::stop::Stop::wake).
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait_for_capture(&self, time: Duration, awake: impl Fn() -> bool) -> Result<Ready, V4l2Error> {
        self.poll(PollFlags::IN, time, awake)
    }

    fn poll(&self, flags: PollFlags, time: Duration, awake: impl Fn() -> bool) -> Result<Ready, V4l2Error> {
        let polled = meter::in_device(|| stop::poll_unless(self.fd.as_fd(), flags, time, awake));
        let found = polled.map_err(|errno| self.error("poll", errno))?;
        Ok(Ready {
            capture: found.contains(PollFlags::IN),
            output: found.contains(PollFlags::OUT),
            event: found.contains(PollFlags::PRI),
            error: found.intersects(PollFlags::ERR | PollFlags::HUP),
        })
    }

    /// Reads a frame into `to` by a copy, for a driver that can [read](Node::can_read). Returns
    /// the number of bytes, or `None` if no frame is ready yet.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn read(&self, to: &mut [u8]) -> Result<Option<usize>, V4l2Error> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *to)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(self.error("read", errno)),
        }
    }
}

/// Returns the text of `bytes` up to the first zero byte; invalid UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_node_is_reported() {
        let open = |path: &str| Node::open(Path::new(path)).unwrap_err();
        assert!(matches!(open("/dev/null"), V4l2Error::NoNode { .. }));
        assert!(matches!(open("/dev"), V4l2Error::NoNode { .. }));
        let missing = open("/dev/no-such-video");
        assert!(matches!(missing, V4l2Error::Open { errno: Errno::NOENT, .. }));
        assert!(missing.to_string().starts_with("cannot open /dev/no-such-video: "));
    }
}
