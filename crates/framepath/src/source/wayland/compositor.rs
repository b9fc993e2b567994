// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection to a Wayland compositor whose waits end by a signal, a stop request or a time limit.

use std::env;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use framepath_model::shown::shown;
use framepath_os::process::{cancel, signal, stop};
use framepath_os::time::now_ns;
use wayland_client::backend::WaylandError;
use wayland_client::protocol::wl_buffer::WlBuffer;
use wayland_client::protocol::wl_callback::{self, WlCallback};
use wayland_client::protocol::wl_output::{self, WlOutput};
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_shm::{Format, WlShm};
use wayland_client::protocol::wl_shm_pool::WlShmPool;
use wayland_client::{Connection, Dispatch, EventQueue, Proxy, QueueHandle, WEnum, delegate_noop};
use wayland_protocols::ext::image_capture_source::v1::client::ext_output_image_capture_source_manager_v1::ExtOutputImageCaptureSourceManagerV1;
use wayland_protocols::ext::image_copy_capture::v1::client::ext_image_copy_capture_frame_v1::ExtImageCopyCaptureFrameV1;
use wayland_protocols::ext::image_copy_capture::v1::client::ext_image_copy_capture_manager_v1::ExtImageCopyCaptureManagerV1;
use wayland_protocols_wlr::screencopy::v1::client::zwlr_screencopy_frame_v1::{
    self, Flags, ZwlrScreencopyFrameV1,
};
use wayland_protocols_wlr::screencopy::v1::client::zwlr_screencopy_manager_v1::ZwlrScreencopyManagerV1;

use super::image_copy::{ImageCopySession, ImageCopyState};
use crate::error::StageError;

/// Time limit for the compositor's answer to a request.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Version of wl_output that has names, and that of the screen copies whose buffers have an end of their list.
const NAMED: u32 = 4;
const COPIES: u32 = 3;
/// Maximum number of changed rectangles that are kept for a copy. More count as one around all.
const MOST_RECTANGLES: usize = 256;

/// Form of the pictures that the compositor copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyForm {
    pub(super) format: Format,
    pub(super) width: u32,
    pub(super) height: u32,
    /// Bytes from one row to the next.
    pub(super) stride: u32,
}

/// State of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// The compositor has not said which buffers it takes.
    Asked,
    /// It waits for a buffer, or for a change.
    Waiting,
    Done,
    Failed,
}

/// Copy of an output, as the compositor reports it.
#[derive(Debug)]
pub(super) struct CopyEvents {
    pub(super) state: CopyState,
    /// Form of a buffer in shared memory; `None` if the compositor takes none.
    pub(super) form: Option<CopyForm>,
    /// Changed rectangles: x, y, width and height.
    pub(super) damage: Vec<[u32; 4]>,
    /// True if the rows are in the opposite order.
    pub(super) is_upside_down: bool,
}

impl CopyEvents {
    /// Adds a changed rectangle: x, y, width and height.
    pub(super) fn add_damage(&mut self, rectangle: [u32; 4]) {
        if self.damage.len() == MOST_RECTANGLES {
            self.damage = vec![[0, 0, u32::MAX, u32::MAX]];
        }
        self.damage.push(rectangle);
    }
}

/// Output of the compositor.
struct Output {
    /// Number of the global.
    global: u32,
    proxy: WlOutput,
    /// Name, such as `DP-1`; `None` from old compositors.
    name: Option<String>,
}

/// State of the compositor, as it has told it.
#[derive(Default)]
pub(super) struct CompositorState {
    shm: Option<WlShm>,
    /// The two protocols for copies.
    screencopy: Option<ZwlrScreencopyManagerV1>,
    pub(super) image_copy: ImageCopyState,
    outputs: Vec<Output>,
    /// Number of the last answered request of [`Compositor::settle`].
    answered: u32,
    /// Number of the present copy: events of earlier ones do not count.
    copy_number: u32,
    copy: Option<CopyEvents>,
}

/// Copy that the compositor was asked for. Dropping it cancels the copy: the compositor handles requests in order, so it no longer
/// writes the buffer when it has done a later one.
pub(super) enum PendingCopy {
    Screencopy(ZwlrScreencopyFrameV1),
    ImageCopy(ExtImageCopyCaptureFrameV1),
}

impl PendingCopy {
    /// Has the compositor copy the output into `buffer`: `at_once`, or at its next change.
    pub(super) fn start(&self, buffer: &WlBuffer, form: &CopyForm, at_once: bool) {
        match self {
            PendingCopy::Screencopy(copy) if at_once => copy.copy(buffer),
            PendingCopy::Screencopy(copy) => copy.copy_with_damage(buffer),
            PendingCopy::ImageCopy(copy) => {
                copy.attach_buffer(buffer);
                // The slot has an older picture or none, so that all of it is to be written. The layout has checked the sizes.
                copy.damage_buffer(0, 0, form.width as i32, form.height as i32);
                copy.capture();
            }
        }
    }

    /// Returns true if the first wait for a change may be answered at once.
    pub(super) fn may_begin_by_waiting(&self) -> bool {
        matches!(self, PendingCopy::Screencopy(_))
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        match self {
            PendingCopy::Screencopy(copy) => copy.destroy(),
            PendingCopy::ImageCopy(copy) => copy.destroy(),
        }
    }
}

/// Connection to a compositor.
pub(super) struct Compositor {
    connection: Connection,
    queue: EventQueue<CompositorState>,
    handle: QueueHandle<CompositorState>,
    state: CompositorState,
    asked: u32,
    session: Option<ImageCopySession>,
}

/// Output that is captured.
#[derive(Clone)]
pub(super) struct ChosenOutput {
    global: u32,
    proxy: WlOutput,
    /// Name for the user.
    pub(super) name: String,
}

impl Compositor {
    /// Connects to the compositor in `WAYLAND_DISPLAY`.
    ///
    /// # Errors
    /// There is none, it cannot be reached, does not answer, or cannot copy its outputs.
    pub(super) fn connect() -> Result<Compositor, StageError> {
        let connection = connection()?;
        let queue = connection.new_event_queue();
        let handle = queue.handle();
        connection.display().get_registry(&handle, ());
        let state = CompositorState::default();
        let mut compositor = Compositor { connection, queue, handle, state, asked: 0, session: None };
        // The list of objects, and then what the outputs tell.
        compositor.settle()?;
        compositor.settle()?;
        if compositor.state.screencopy.is_none() && !compositor.state.image_copy.is_offered() {
            return Err(StageError::Screen(
                "the compositor cannot copy its screen for other programs: it has neither ext-image-copy-capture nor wlr-screencopy 3 \
                 (sway, labwc, Hyprland, river and COSMIC have one of them)"
                    .to_owned(),
            ));
        }
        Ok(compositor)
    }

    /// Returns the output `name`, or the first one, and the names of all.
    ///
    /// # Errors
    /// There is no output, or none with this name.
    pub(super) fn output(&self, name: Option<&str>) -> Result<(ChosenOutput, Vec<String>), StageError> {
        let name_of = |(number, output): (usize, &Output)| {
            output.name.clone().unwrap_or_else(|| format!("output {number}"))
        };
        let names: Vec<String> = self.state.outputs.iter().enumerate().map(name_of).collect();
        let at = match name {
            Some(name) => names.iter().position(|other| other == name),
            None => (!names.is_empty()).then_some(0),
        };
        let Some((at, output)) = at.and_then(|at| Some((at, self.state.outputs.get(at)?))) else {
            return Err(StageError::Screen(match name {
                Some(name) => {
                    format!(
                        "the compositor has no output {}; it has: {}",
                        shown(name),
                        shown(&names.join(", "))
                    )
                }
                None => "the compositor has no output".to_owned(),
            }));
        };
        let (global, proxy) = (output.global, output.proxy.clone());
        Ok((ChosenOutput { global, proxy, name: names[at].clone() }, names))
    }

    /// Returns true while the compositor has the output.
    pub(super) fn has(&self, output: &ChosenOutput) -> bool {
        self.state.outputs.iter().any(|other| other.global == output.global)
    }

    /// Returns the shared memory object.
    ///
    /// # Errors
    /// The compositor has none.
    pub(super) fn shm(&self) -> Result<&WlShm, StageError> {
        self.state.shm.as_ref().ok_or_else(|| StageError::Screen("the compositor has no wl_shm".to_owned()))
    }

    pub(super) fn handle(&self) -> &QueueHandle<CompositorState> {
        &self.handle
    }

    /// Begins a copy of an output. It will be done `at_once`, or at the output's next change.
    ///
    /// # Errors
    /// The compositor no longer offers copies.
    pub(super) fn begin_copy(
        &mut self,
        output: &ChosenOutput,
        with_pointer: bool,
        at_once: bool,
    ) -> Result<PendingCopy, StageError> {
        self.state.copy_number = self.state.copy_number.wrapping_add(1);
        let number = self.state.copy_number;
        let new = |form: Option<CopyForm>| CopyEvents {
            state: if form.is_some() { CopyState::Waiting } else { CopyState::Asked },
            form,
            damage: Vec::new(),
            is_upside_down: false,
        };
        if self.state.image_copy.is_offered() {
            // Only the first copy of a session does not wait for a change.
            if at_once || self.session.is_none() {
                self.session = None;
                self.session = self.state.image_copy.open(&output.proxy, with_pointer, &self.handle);
            }
            if let Some(session) = &self.session {
                self.state.copy = Some(new(self.state.image_copy.form()));
                return Ok(PendingCopy::ImageCopy(session.begin_copy(&self.handle, number)));
            }
        }
        let missing = || StageError::Screen("the compositor no longer copies its screen".to_owned());
        let manager = self.state.screencopy.as_ref().ok_or_else(missing)?;
        self.state.copy = Some(new(None));
        let (pointer, output) = (i32::from(with_pointer), &output.proxy);
        Ok(PendingCopy::Screencopy(manager.capture_output(pointer, output, &self.handle, number)))
    }

    /// Returns what is known of the present copy.
    pub(super) fn copy(&self) -> Option<&CopyEvents> {
        self.state.copy.as_ref()
    }

    /// Takes the events of the present copy; later ones do not count.
    pub(super) fn take_copy(&mut self) -> Option<CopyEvents> {
        self.state.copy.take()
    }

    /// Waits until the compositor has answered all requests.
    ///
    /// # Errors
    /// A signal or a stop request ended the wait; the compositor does not answer in time, or the connection has failed.
    pub(super) fn settle(&mut self) -> Result<(), StageError> {
        self.asked = self.asked.wrapping_add(1);
        let number = self.asked;
        self.connection.display().sync(&self.handle, number);
        self.wait_for(|state| state.answered == number)
    }

    /// Waits until `is_there`, which the compositor answers at once.
    ///
    /// # Errors
    /// As [`settle`](Compositor::settle).
    pub(super) fn wait_for(&mut self, is_there: impl Fn(&CompositorState) -> bool) -> Result<(), StageError> {
        let until_ns = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            self.queue.dispatch_pending(&mut self.state).map_err(lost)?;
            if is_there(&self.state) {
                return Ok(());
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                let seconds = PATIENCE.as_secs();
                return Err(StageError::Screen(format!("the compositor has not answered for {seconds} s")));
            }
            if signal::interrupted() {
                return Err(StageError::io("wait for the compositor")(cancel::canceled()));
            }
            self.wait(Duration::from_nanos(left_ns), || false)?;
        }
    }

    /// Waits for events of the compositor, at most `limit`, until `awake`, a signal or a stop request; takes those that came.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn wait(&mut self, limit: Duration, awake: impl Fn() -> bool) -> Result<(), StageError> {
        match self.connection.flush() {
            // The compositor does not read; the rest is sent later.
            Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            flushed => flushed.map_err(lost)?,
        }
        if let Some(guard) = self.queue.prepare_read() {
            let is_readable = stop::wait_for_socket(guard.connection_fd().as_fd(), false, limit, awake)
                .map_err(|error| StageError::Screen(format!("waiting for the compositor: {error}")))?;
            if is_readable {
                match guard.read() {
                    Ok(_) => {}
                    Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(lost(error)),
                }
            }
        }
        self.queue.dispatch_pending(&mut self.state).map_err(lost)?;
        Ok(())
    }
}

/// Connects to the compositor that the environment names.
fn connection() -> Result<Connection, StageError> {
    let advice = "set WAYLAND_DISPLAY and XDG_RUNTIME_DIR, or run it inside the session";
    let failed =
        |what: &str| StageError::Screen(format!("cannot connect to a Wayland compositor: {what}; {advice}"));
    if let Some(number) = env::var_os("WAYLAND_SOCKET") {
        // The library takes any number for an open descriptor that is nobody else's.
        let number = number.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|number| *number > 2);
        if !number.is_some_and(|number| Path::new(&format!("/proc/self/fd/{number}")).exists()) {
            return Err(failed("WAYLAND_SOCKET is no open descriptor"));
        }
        return Connection::connect_to_env().map_err(|error| failed(&error.to_string()));
    }
    let name = env::var_os("WAYLAND_DISPLAY").filter(|name| !name.is_empty());
    let mut path = PathBuf::from(name.unwrap_or_else(|| "wayland-0".into()));
    if path.is_relative() {
        let folder = env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        path = Path::new(&folder.ok_or_else(|| failed("XDG_RUNTIME_DIR is not set"))?).join(path);
    }
    let at = |error: &dyn std::fmt::Display| failed(&format!("{}: {error}", shown(&path.to_string_lossy())));
    let stream = UnixStream::connect(&path).map_err(|error| at(&error))?;
    Connection::from_socket(stream).map_err(|error| at(&error))
}

impl CompositorState {
    /// Returns the events of the present copy, if `number` is its number.
    pub(super) fn copy_with(&mut self, number: u32) -> Option<&mut CopyEvents> {
        self.copy.as_mut().filter(|_| self.copy_number == number)
    }

    /// Tells the present copy the form of its buffer, if it waits for that.
    pub(super) fn set_form(&mut self, form: CopyForm) {
        if let Some(copy) = self.copy.as_mut().filter(|copy| copy.state == CopyState::Asked) {
            (copy.form, copy.state) = (Some(form), CopyState::Waiting);
        }
    }

    /// Lets the present copy fail.
    pub(super) fn fail_copy(&mut self) {
        self.copy.iter_mut().for_each(|copy| copy.state = CopyState::Failed);
    }

    pub(super) fn copy_state(&self) -> CopyState {
        self.copy.as_ref().map_or(CopyState::Failed, |copy| copy.state)
    }
}

fn lost(error: impl std::fmt::Display) -> StageError {
    StageError::Screen(format!("the connection to the compositor is lost: {}", shown(&error.to_string())))
}

impl Dispatch<WlRegistry, ()> for CompositorState {
    fn event(
        state: &mut CompositorState,
        registry: &WlRegistry,
        event: wl_registry::Event,
        (): &(),
        _: &Connection,
        handle: &QueueHandle<CompositorState>,
    ) {
        match event {
            wl_registry::Event::Global { name, interface, version } => {
                if interface == WlShm::interface().name {
                    state.shm = Some(registry.bind(name, 1, handle, ()));
                } else if interface == ZwlrScreencopyManagerV1::interface().name && version >= COPIES {
                    state.screencopy = Some(registry.bind(name, COPIES, handle, ()));
                } else if interface == ExtImageCopyCaptureManagerV1::interface().name {
                    state.image_copy.copies = Some(registry.bind(name, 1, handle, ()));
                } else if interface == ExtOutputImageCaptureSourceManagerV1::interface().name {
                    state.image_copy.sources = Some(registry.bind(name, 1, handle, ()));
                } else if interface == WlOutput::interface().name {
                    let proxy = registry.bind(name, version.min(NAMED), handle, name);
                    state.outputs.push(Output { global: name, proxy, name: None });
                }
            }
            wl_registry::Event::GlobalRemove { name } => state.outputs.retain(|output| output.global != name),
            _ => {}
        }
    }
}

impl Dispatch<WlOutput, u32> for CompositorState {
    fn event(
        state: &mut CompositorState,
        _: &WlOutput,
        event: wl_output::Event,
        global: &u32,
        _: &Connection,
        _: &QueueHandle<CompositorState>,
    ) {
        if let wl_output::Event::Name { name } = event {
            let output = state.outputs.iter_mut().find(|output| output.global == *global);
            output.into_iter().for_each(|output| output.name = Some(name.clone()));
        }
    }
}

impl Dispatch<WlCallback, u32> for CompositorState {
    fn event(
        state: &mut CompositorState,
        _: &WlCallback,
        event: wl_callback::Event,
        number: &u32,
        _: &Connection,
        _: &QueueHandle<CompositorState>,
    ) {
        if let wl_callback::Event::Done { .. } = event {
            state.answered = *number;
        }
    }
}

impl Dispatch<ZwlrScreencopyFrameV1, u32> for CompositorState {
    fn event(
        state: &mut CompositorState,
        _: &ZwlrScreencopyFrameV1,
        event: zwlr_screencopy_frame_v1::Event,
        number: &u32,
        _: &Connection,
        _: &QueueHandle<CompositorState>,
    ) {
        let Some(copy) = state.copy_with(*number) else { return };
        match event {
            zwlr_screencopy_frame_v1::Event::Buffer {
                format: WEnum::Value(format),
                width,
                height,
                stride,
            } => {
                copy.form = Some(CopyForm { format, width, height, stride });
            }
            zwlr_screencopy_frame_v1::Event::BufferDone => copy.state = CopyState::Waiting,
            zwlr_screencopy_frame_v1::Event::Flags { flags: WEnum::Value(flags) } => {
                copy.is_upside_down = flags.contains(Flags::YInvert);
            }
            zwlr_screencopy_frame_v1::Event::Damage { x, y, width, height } => {
                copy.add_damage([x, y, width, height]);
            }
            zwlr_screencopy_frame_v1::Event::Ready { .. } => copy.state = CopyState::Done,
            zwlr_screencopy_frame_v1::Event::Failed => copy.state = CopyState::Failed,
            _ => {}
        }
    }
}

delegate_noop!(CompositorState: ignore WlShm);
delegate_noop!(CompositorState: WlShmPool);
delegate_noop!(CompositorState: ignore WlBuffer);
delegate_noop!(CompositorState: ZwlrScreencopyManagerV1);
