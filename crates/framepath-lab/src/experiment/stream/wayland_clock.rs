// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window of a clock on a Wayland compositor: a surface above all others (wlr-layer-shell).

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use wayland_client::globals::{GlobalListContents, registry_queue_init};
use wayland_client::protocol::wl_buffer::{self, WlBuffer};
use wayland_client::protocol::wl_compositor::WlCompositor;
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_shm::{Format, WlShm};
use wayland_client::protocol::wl_shm_pool::WlShmPool;
use wayland_client::protocol::wl_surface::WlSurface;
use wayland_client::{Connection, Dispatch, EventQueue, QueueHandle, delegate_noop};
use wayland_protocols_wlr::layer_shell::v1::client::zwlr_layer_shell_v1::{Layer, ZwlrLayerShellV1};
use wayland_protocols_wlr::layer_shell::v1::client::zwlr_layer_surface_v1::{
    self, Anchor, ZwlrLayerSurfaceV1,
};

use super::barcode::{self, PIXEL};
use super::desktop::{AREA, DesktopPictures, SIZE};
use super::screen_clock::ClockWindow;
use crate::display::Display;
use crate::error::LabError;

/// Buffers in turn: one that is shown, one that waits for the compositor, one that is drawn.
const BUFFERS: usize = 3;
/// Bytes of a row and of a picture.
const STRIDE: usize = SIZE.0 as usize * PIXEL;
const BYTES: usize = STRIDE * SIZE.1 as usize;

/// The window of a clock on a Wayland compositor.
pub(super) struct WaylandClock {
    connection: Connection,
    queue: EventQueue<ClockState>,
    state: ClockState,
    surface: WlSurface,
    memory: File,
    buffers: Vec<WlBuffer>,
    /// Scrolling content, twice below each other, and the rows by which it scrolls for each picture.
    content: Vec<u8>,
    scroll: u32,
    /// Buffer with the prepared picture.
    prepared: usize,
}

/// State of the compositor, as it has told it.
#[derive(Default)]
struct ClockState {
    is_configured: bool,
    /// True for each buffer that the compositor uses.
    in_use: [bool; BUFFERS],
}

fn failed(error: impl std::fmt::Display) -> LabError {
    LabError::Unknown(format!("the Wayland screen: {error}"))
}

impl WaylandClock {
    /// Covers the compositor's output.
    ///
    /// # Errors
    /// [`LabError::Unknown`]: the compositor cannot be used.
    pub(super) fn open(display: &Display, scroll: u32) -> Result<WaylandClock, LabError> {
        let variable = |name| {
            let mut variables = display.environment.iter();
            let found = variables.find(|(key, _)| *key == name).map(|(_, value)| value);
            found.ok_or_else(|| failed(format!("{} has no {name}", display.name)))
        };
        let socket = Path::new(variable("XDG_RUNTIME_DIR")?).join(variable("WAYLAND_DISPLAY")?);
        let stream = UnixStream::connect(socket).map_err(failed)?;
        let connection = Connection::from_socket(stream).map_err(failed)?;
        let (globals, mut queue) = registry_queue_init::<ClockState>(&connection).map_err(failed)?;
        let handle = queue.handle();
        let compositor: WlCompositor = globals.bind(&handle, 4..=4, ()).map_err(failed)?;
        let shm: WlShm = globals.bind(&handle, 1..=1, ()).map_err(failed)?;
        let shell: ZwlrLayerShellV1 = globals.bind(&handle, 1..=1, ()).map_err(failed)?;
        let surface = compositor.create_surface(&handle, ());
        let layer = shell.get_layer_surface(
            &surface,
            None,
            Layer::Overlay,
            "framepath-clock".to_owned(),
            &handle,
            (),
        );
        layer.set_size(SIZE.0.into(), SIZE.1.into());
        layer.set_anchor(Anchor::Top | Anchor::Left);
        layer.set_exclusive_zone(-1);
        surface.commit();
        let mut state = ClockState::default();
        while !state.is_configured {
            queue.blocking_dispatch(&mut state).map_err(failed)?;
        }
        let memory = framepath_os::memory::memory_file("framepath-clock").map_err(failed)?;
        memory.set_len((BYTES * BUFFERS) as u64).map_err(failed)?;
        let pictures = DesktopPictures::new();
        for buffer in 0..BUFFERS {
            memory.write_all_at(&pictures.base_bgr0(), (buffer * BYTES) as u64).map_err(failed)?;
        }
        let pool = shm.create_pool(memory.as_fd(), (BYTES * BUFFERS) as i32, &handle, ());
        let (width, height) = (SIZE.0.into(), SIZE.1.into());
        let buffer = |index: usize| {
            let offset = (index * BYTES) as i32;
            pool.create_buffer(offset, width, height, STRIDE as i32, Format::Xrgb8888, &handle, index)
        };
        let buffers = (0..BUFFERS).map(buffer).collect();
        let content = pictures.scrolling_bgr0().repeat(2);
        Ok(WaylandClock { connection, queue, state, surface, memory, buffers, content, scroll, prepared: 0 })
    }

    /// Writes a rectangle of `width` pixels into the prepared buffer.
    fn put(&self, pixels: &[u8], width: usize, x: usize, y: usize) -> Result<(), LabError> {
        for (row, pixels) in pixels.chunks_exact(width * PIXEL).enumerate() {
            let at = self.prepared * BYTES + (y + row) * STRIDE + x * PIXEL;
            self.memory.write_all_at(pixels, at as u64).map_err(failed)?;
        }
        Ok(())
    }
}

impl ClockWindow for WaylandClock {
    fn prepare(&mut self, number: u32) -> Result<(), LabError> {
        self.prepared = loop {
            self.queue.dispatch_pending(&mut self.state).map_err(failed)?;
            match self.state.in_use.iter().position(|in_use| !in_use) {
                Some(free) => break free,
                None => drop(self.queue.blocking_dispatch(&mut self.state).map_err(failed)?),
            }
        };
        let (x, y, width, height) = AREA;
        let (width, height) = (usize::from(width), usize::from(height));
        let from = number as usize * self.scroll as usize % height;
        let row = width * PIXEL;
        self.put(&self.content[from * row..][..height * row], width, x as usize, y as usize)?;
        self.put(&barcode::draw(number), barcode::WIDTH, 0, 0)
    }

    fn show(&mut self) -> Result<(), LabError> {
        let (x, y, width, height) = AREA;
        self.surface.attach(Some(&self.buffers[self.prepared]), 0, 0);
        self.surface.damage_buffer(x.into(), y.into(), width.into(), height.into());
        self.surface.damage_buffer(0, 0, barcode::WIDTH as i32, barcode::HEIGHT as i32);
        self.surface.commit();
        self.state.in_use[self.prepared] = true;
        self.connection.flush().map_err(failed)?;
        // Takes what the compositor has sent, without a wait.
        if let Some(guard) = self.connection.prepare_read() {
            let _ = guard.read();
        }
        Ok(())
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for ClockState {
    fn event(
        _: &mut ClockState,
        _: &WlRegistry,
        _: wl_registry::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<ClockState>,
    ) {
    }
}

impl Dispatch<ZwlrLayerSurfaceV1, ()> for ClockState {
    fn event(
        state: &mut ClockState,
        layer: &ZwlrLayerSurfaceV1,
        event: zwlr_layer_surface_v1::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<ClockState>,
    ) {
        if let zwlr_layer_surface_v1::Event::Configure { serial, .. } = event {
            layer.ack_configure(serial);
            state.is_configured = true;
        }
    }
}

impl Dispatch<WlBuffer, usize> for ClockState {
    fn event(
        state: &mut ClockState,
        _: &WlBuffer,
        event: wl_buffer::Event,
        index: &usize,
        _: &Connection,
        _: &QueueHandle<ClockState>,
    ) {
        if let wl_buffer::Event::Release = event {
            state.in_use[*index] = false;
        }
    }
}

delegate_noop!(ClockState: WlCompositor);
delegate_noop!(ClockState: ignore WlShm);
delegate_noop!(ClockState: WlShmPool);
delegate_noop!(ClockState: ignore WlSurface);
delegate_noop!(ClockState: ZwlrLayerShellV1);
