// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures of a screen that a PipeWire node has, such as the one to which the desktop's portal gives access.
//!
//! PipeWire's loop runs on the thread that calls [`PipewireScreen::dispatch`], and never blocks. The other process may write the memory of a
//! picture at any time, so no Rust reference to it is made; the picture is copied.

use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use framepath_model::format::{Layout, PixelFormat};
use pipewire::buffer::Buffer;
use pipewire::context::ContextRc;
use pipewire::loop_::Timeout;
use pipewire::main_loop::MainLoopRc;
use pipewire::properties::properties;
use pipewire::spa::buffer::ChunkFlags;
use pipewire::spa::param::ParamType;
use pipewire::spa::param::format::{FormatProperties, MediaSubtype, MediaType};
use pipewire::spa::param::video::{VideoFormat, VideoInfoRaw};
use pipewire::spa::pod::serialize::PodSerializer;
use pipewire::spa::pod::{Pod, Value, object, property};
use pipewire::spa::utils::{Direction, Fraction, Rectangle, SpaTypes};
use pipewire::stream::{StreamFlags, StreamListener, StreamRc, StreamState};

use crate::display::screen_pool::ScreenSlot;

/// State of a [`PipewireScreen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScreenState {
    /// The other side has not begun.
    Connecting,
    /// Pictures have this layout.
    Ready(Layout),
    /// The other side has ended the stream.
    Ended,
    /// The stream has failed; the text says why.
    Failed(String),
}

/// Stream of the pictures of a PipeWire node.
pub struct PipewireScreen {
    // In the order in which they must be dropped.
    _listener: StreamListener<()>,
    stream: StreamRc,
    state: Rc<RefCell<ScreenState>>,
    main_loop: MainLoopRc,
}

// SAFETY: all reference counts of PipeWire's objects and of `state` are inside of this value: those of the closures are owned by
// `_listener`, and no function returns a clone. So they move together, and only the thread that has the value uses them. PipeWire's loop
// belongs to the thread that has entered it; `dispatch` enters and leaves it in one call.
unsafe impl Send for PipewireScreen {}

/// Picture of a screen in the other process's memory, which gets it back when this value is dropped.
pub struct PipewirePicture<'a> {
    first: NonNull<u8>,
    /// Number of bytes from the first one on.
    bytes: usize,
    /// Bytes from one row to the next.
    stride: usize,
    _buffer: Buffer<'a>,
}

fn failed(what: &str) -> impl Fn(pipewire::Error) -> io::Error {
    move |error| io::Error::other(format!("PipeWire: {what}: {error}"))
}

impl PipewireScreen {
    /// Connects to node `node` of the PipeWire server at the other end of `remote`.
    ///
    /// # Errors
    /// PipeWire's library fails, or the server does not accept the connection.
    pub fn connect(remote: OwnedFd, node: u32) -> io::Result<PipewireScreen> {
        pipewire::init();
        let main_loop = MainLoopRc::new(None).map_err(failed("a loop"))?;
        let context = ContextRc::new(&main_loop, None).map_err(failed("a context"))?;
        let core = context.connect_fd_rc(remote, None).map_err(failed("the connection"))?;
        let kind = properties! {
            *pipewire::keys::MEDIA_TYPE => "Video",
            *pipewire::keys::MEDIA_CATEGORY => "Capture",
            *pipewire::keys::MEDIA_ROLE => "Screen",
        };
        let stream = StreamRc::new(core, "framepath", kind).map_err(failed("a stream"))?;
        let state = Rc::new(RefCell::new(ScreenState::Connecting));
        let (of_format, of_state) = (state.clone(), state.clone());
        let listener = stream
            .add_local_listener_with_user_data(())
            .state_changed(move |_, (), _, now| {
                *of_state.borrow_mut() = match now {
                    StreamState::Error(text) => ScreenState::Failed(text),
                    // The node is gone: its screen no longer exists, or the user has ended the access.
                    StreamState::Unconnected => ScreenState::Ended,
                    _ => return,
                };
            })
            .param_changed(move |_, (), id, param| {
                if id == ParamType::Format.as_raw() {
                    if let Some(param) = param {
                        *of_format.borrow_mut() = match layout(param) {
                            Ok(layout) => ScreenState::Ready(layout),
                            Err(text) => ScreenState::Failed(text),
                        };
                    }
                }
            })
            .register()
            .map_err(failed("a listener"))?;
        let format = wanted_format()?;
        let format = Pod::from_bytes(&format).ok_or_else(|| io::Error::other("PipeWire: a format"))?;
        let flags = StreamFlags::AUTOCONNECT | StreamFlags::MAP_BUFFERS | StreamFlags::DONT_RECONNECT;
        stream.connect(Direction::Input, Some(node), flags, &mut [format]).map_err(failed("the stream"))?;
        Ok(PipewireScreen { _listener: listener, stream, state, main_loop })
    }

    /// Returns the descriptor that is readable when [`dispatch`](PipewireScreen::dispatch) has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.main_loop.loop_().fd()
    }

    /// Handles what has happened, without a wait.
    ///
    /// # Errors
    /// From poll(2).
    pub fn dispatch(&mut self) -> io::Result<()> {
        let handled = self.main_loop.loop_().iterate(Timeout::Finite(Duration::ZERO));
        if handled < 0 { Err(io::Error::from_raw_os_error(-handled)) } else { Ok(()) }
    }

    /// Returns the state, as of the last [`dispatch`](PipewireScreen::dispatch).
    pub fn state(&self) -> ScreenState {
        self.state.borrow().clone()
    }

    /// Takes the newest picture, and drops older ones; `None` if there is no new one. The other side gets the memory back when the picture is
    /// dropped.
    pub fn take(&mut self) -> Option<PipewirePicture<'_>> {
        let mut newest = None;
        while let Some(buffer) = self.stream.dequeue_buffer() {
            newest = Some(buffer);
        }
        newest.and_then(PipewirePicture::of)
    }
}

impl<'a> PipewirePicture<'a> {
    /// Makes a picture of a buffer; `None` for one that only tells that something else has changed, such as the pointer.
    fn of(mut buffer: Buffer<'a>) -> Option<PipewirePicture<'a>> {
        let data = buffer.datas_mut().first()?.as_raw();
        let (chunk, first) = (NonNull::new(data.chunk)?, NonNull::new(data.data.cast::<u8>())?);
        // SAFETY: PipeWire's library has checked that the chunk is mapped, for as long as the buffer is dequeued. The other process may write it
        // at any time, so it is read once, by a copy.
        let chunk = unsafe { chunk.read_volatile() };
        let is_damaged = chunk.flags & ChunkFlags::CORRUPTED.bits() != 0;
        // As PipeWire's documentation says, so that nothing is outside of the memory.
        let (most, offset) = (data.maxsize, chunk.offset.checked_rem(data.maxsize)?);
        let bytes = chunk.size.min(most - offset) as usize;
        let stride = usize::try_from(chunk.stride).ok()?;
        // SAFETY: the memory has `most` bytes, and the offset is less.
        let first = unsafe { first.add(offset as usize) };
        (bytes > 0 && !is_damaged).then_some(PipewirePicture { first, bytes, stride, _buffer: buffer })
    }

    /// Copies the pixels into a slot, with this layout, whose rows have no padding; the meter counts the copy.
    ///
    /// # Errors
    /// The layout is none of packed pixels, or the picture has fewer bytes.
    pub fn copy_into(&self, slot: &mut ScreenSlot<'_>, layout: &Layout) -> io::Result<()> {
        let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        let [plane] = layout.planes() else { return wrong("PipeWire: not packed pixels".to_owned()) };
        let (row, rows) = (plane.width, plane.rows);
        let stride = if self.stride == 0 { row } else { self.stride };
        let needed = stride.checked_mul(rows.saturating_sub(1)).and_then(|before| before.checked_add(row));
        if stride < row || needed.is_none_or(|needed| needed > self.bytes) {
            let (width, height, bytes) = (layout.width, layout.height, self.bytes);
            return wrong(format!(
                "PipeWire: a picture of {width}x{height} has {bytes} bytes, and {stride} for each row"
            ));
        }
        // Rows without padding are one piece.
        let (piece, pieces) = if stride == row { (row * rows, 1) } else { (row, rows) };
        for index in 0..pieces {
            // SAFETY: inside of the picture's bytes, by the check above; they stay mapped while this value has the buffer.
            unsafe { slot.write_foreign(index * row, self.first.add(index * stride), piece) };
        }
        Ok(())
    }
}

/// Returns the format that is asked for, in the form of PipeWire's messages: pixels of 4 bytes, of any size, at any rate. Without a modifier,
/// so that the pixels are in memory that the CPU reads.
fn wanted_format() -> io::Result<Vec<u8>> {
    let format = object!(
        SpaTypes::ObjectParamFormat,
        ParamType::EnumFormat,
        property!(FormatProperties::MediaType, Id, MediaType::Video),
        property!(FormatProperties::MediaSubtype, Id, MediaSubtype::Raw),
        property!(
            FormatProperties::VideoFormat,
            Choice,
            Enum,
            Id,
            VideoFormat::BGRx,
            VideoFormat::BGRx,
            VideoFormat::BGRA,
            VideoFormat::RGBx,
            VideoFormat::RGBA
        ),
        property!(
            FormatProperties::VideoSize,
            Choice,
            Range,
            Rectangle,
            Rectangle { width: 1920, height: 1080 },
            Rectangle { width: 1, height: 1 },
            Rectangle { width: Layout::MAX_SIDE, height: Layout::MAX_SIDE }
        ),
        property!(
            FormatProperties::VideoFramerate,
            Choice,
            Range,
            Fraction,
            Fraction { num: 0, denom: 1 },
            Fraction { num: 0, denom: 1 },
            Fraction { num: 1000, denom: 1 }
        ),
    );
    let (bytes, _) = PodSerializer::serialize(io::Cursor::new(Vec::new()), &Value::Object(format))
        .map_err(|error| io::Error::other(format!("PipeWire: a format: {error:?}")))?;
    Ok(bytes.into_inner())
}

/// Reads the layout of the format on which both sides have agreed.
fn layout(param: &Pod) -> Result<Layout, String> {
    let mut info = VideoInfoRaw::default();
    info.parse(param).map_err(|error| format!("PipeWire: a format that cannot be read: {error}"))?;
    let pixels = match info.format() {
        VideoFormat::BGRx | VideoFormat::BGRA => PixelFormat::Bgr0,
        VideoFormat::RGBx | VideoFormat::RGBA => PixelFormat::Rgba,
        other => return Err(format!("PipeWire: pixels in the format {other:?}, which was not asked for")),
    };
    Layout::packed(pixels, info.size().width, info.size().height)
        .map_err(|error| format!("PipeWire: {error}"))
}
