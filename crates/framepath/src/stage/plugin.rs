// SPDX-License-Identifier: MIT OR Apache-2.0
//! `plugin`: a frei0r filter or source.
//!
//! Output frames are RGBA, in the size and with the times of the input frames. A filter also reads the
//! input's pixels; a source does not. The filter reads a frame without a copy if the frame is RGBA, is
//! aligned, has no padding and sides that are multiples of 8, and has no other reader (some plug-ins write
//! to their input). A frame in memory of a device or of another process, as a worker gets it, counts as one
//! with other readers. Every other frame is converted or copied into the stage's own picture, whose last
//! column and row are repeated up to the next multiple of 8. The layout of the output crops it again,
//! without a copy.

use std::path::PathBuf;

use framepath_codec::Converter;
use framepath_codec::frei0r::{self, ColorModel, Instance, ParamValue};
use framepath_model::format::{Layout, PixelFormat, PlaneLayout};
use framepath_model::path::{Arg, Definition, Hop, Hosts, ValueKind};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, FrameMut, GiveBack, Pool};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::host::Task;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage(
    "plugin",
    "a frei0r plug-in: a filter changes each frame, a source replaces it; outputs RGBA",
)
.args(&[Arg::word("plugin", ValueKind::Plugin, "name of the plug-in's file, without `.so`")])
.hosts(Hosts::NoService)
.open("a parameter that the plug-in declares, as `framepath plugins NAME` lists it")
.known_as(&["frei0r"]);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, make).with_task(task).with_least_out(|_, _| SLOTS - 1)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<PluginStage, StageError> {
    // The search only reads folders. The file is opened when the stage starts.
    let file = match &place.plugin {
        Some(loaded) => loaded.clone(),
        None => frei0r::find(hop.text("plugin"))?.path,
    };
    Ok(PluginStage::new(file, hop.open(), place.give_back))
}

/// Returns the task of a worker that loads the plug-in's file. The worker's sandbox allows that file.
fn task(hop: &Hop, _: &HopPlace<'_>) -> Result<Task, StageError> {
    let file = frei0r::find(hop.text("plugin"))?.path;
    let plugin = file.canonicalize().map_err(StageError::io(file.display().to_string()))?;
    Ok(Task::Plugin(plugin))
}

/// Number of slots of the stage's own pool: one for the frame being written, the others for frames in the
/// hops behind. The stage waits while all are in use.
const SLOTS: u32 = 8;

/// Number of spare rows behind each picture, because the plug-in `partik0l` draws beyond the picture's end.
/// The kernel allocates their memory only when they are written.
const SPARE_ROWS: usize = 32;

/// Frame rate in Hz of a stream with neither timestamps nor a rate.
const RATE: f64 = 25.0;

/// Stage that runs a plug-in. The plug-in is loaded when the stage starts, so that no foreign code runs
/// before.
pub(crate) struct PluginStage {
    /// Path of the plug-in's file.
    file: PathBuf,
    /// Names and values of parameters from path text. Checked when the stage starts.
    params: Vec<(String, String)>,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// Plug-in in use; `None` before the start.
    loaded: Option<Loaded>,
}

/// A plug-in that is loaded, for one stream.
struct Loaded {
    plugin: frei0r::Plugin,
    /// Index and value of each parameter that the path sets.
    settings: Vec<(usize, ParamValue)>,
    /// Seconds per tick of the frames' timestamps.
    time_base: Rational,
    /// Frames per second, for frames without a timestamp, or if the time base is not known.
    frame_rate: Rational,
    /// Converter to RGBA.
    converter: Converter,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// State for the size of the last frame; `None` before the first frame. Replaced when frames change
    /// size.
    sized: Option<AtSize>,
}

/// State that depends on the size of the frames.
struct AtSize {
    /// Instance of the plug-in for pictures of the size of `padded`.
    instance: Instance,
    /// Layout of the plug-in's picture, whose sides are those of the frame rounded up to multiples of 8.
    padded: Layout,
    /// Layout of the frame inside the plug-in's picture.
    visible: Layout,
    /// Pool of the output frames.
    pool: Pool,
    /// Picture for frames that the plug-in cannot read in place.
    scratch: FrameMut,
}

impl PluginStage {
    pub(crate) fn new<'a>(
        file: PathBuf,
        params: impl Iterator<Item = (&'a str, &'a str)>,
        give_back: Option<&'static GiveBack>,
    ) -> PluginStage {
        let params = params.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        PluginStage { file, params, give_back, loaded: None }
    }
}

impl Stage for PluginStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let plugin = frei0r::Plugin::load(&self.file)?;
        plugin.refuse_mixer()?;
        let settings: Result<_, _> =
            self.params.iter().map(|(name, value)| plugin.check(name, value)).collect();
        self.loaded = Some(Loaded {
            plugin,
            settings: settings?,
            time_base: info.time_base,
            frame_rate: info.frame_rate,
            converter: Converter::new(PixelFormat::Rgba),
            give_back: self.give_back,
            sized: None,
        });
        Ok(StreamInfo { format: Some(PixelFormat::Rgba), ..*info })
    }

    /// Returns false, because a plug-in may depend on earlier frames: another instance may emit other
    /// output.
    fn replayable(&self) -> bool {
        false
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|e| out.fail(e))?;
        let Some(loaded) = &mut self.loaded else { return Err(out.fail(StageError::Downstream)) };
        let meta = frame.meta();
        let made = loaded.apply(frame).map_err(|e| out.fail(e))?.freeze(meta);
        out.push(Item::Frame(made))
    }
}

impl Loaded {
    fn apply(&mut self, frame: Frame) -> Result<FrameMut, StageError> {
        let (width, height) = (frame.layout().width, frame.layout().height);
        let seconds = self.seconds(&frame.meta());
        let colors = self.converter.colors(frame.layout());
        let sized = match &mut self.sized {
            Some(sized) if (sized.visible.width, sized.visible.height) == (width, height) => sized,
            _ => {
                self.sized.insert(AtSize::new(self.plugin, &self.settings, (width, height), self.give_back)?)
            }
        };
        let info = self.plugin.info();
        let is_bgra = info.color_model == ColorModel::Bgra8888;
        let mut output = sized.pool.acquire()?;
        output.set_layout(&sized.padded)?;
        if info.kind.inputs() == 0 {
            sized.instance.update(seconds, &mut [], output.plane_mut(0));
        } else {
            let mut own = if same_layout(&frame, &sized.padded) { frame.try_unique() } else { Err(frame) };
            let input = match &mut own {
                Ok(unique) => unique,
                Err(shared) => {
                    sized.fill_scratch(shared, &mut self.converter)?;
                    &mut sized.scratch
                }
            };
            if is_bgra {
                swap_red_and_blue(input.plane_mut(0));
            }
            sized.instance.update(seconds, &mut [input.plane_mut(0)], output.plane_mut(0));
        }
        if is_bgra {
            swap_red_and_blue(output.plane_mut(0));
        }
        output.set_layout(&sized.visible.with_colors(colors))?;
        Ok(output)
    }

    /// Returns the time of a frame in seconds: from its timestamp if it has one and the time base is known,
    /// else its number divided by the frame rate, or by [`RATE`].
    fn seconds(&self, meta: &FrameMeta) -> f64 {
        match (meta.pts, self.time_base.value()) {
            (Some(pts), Some(tick)) => pts as f64 * tick,
            _ => meta.seq as f64 / self.frame_rate.value().unwrap_or(RATE),
        }
    }
}

impl AtSize {
    fn new(
        plugin: frei0r::Plugin,
        settings: &[(usize, ParamValue)],
        (width, height): (u32, u32),
        give_back: Option<&'static GiveBack>,
    ) -> Result<AtSize, StageError> {
        // Opaque buffers may be wider than any picture.
        Layout::packed(PixelFormat::Rgba, width, height)?;
        let (padded_width, padded_height) = frei0r::padded(width, height);
        let padded = Layout::packed(PixelFormat::Rgba, padded_width, padded_height)?;
        let plane = PlaneLayout {
            offset: 0,
            stride: padded_width as usize * 4,
            width: width as usize * 4,
            rows: height as usize,
        };
        let visible = Layout::from_planes(PixelFormat::Rgba, width, height, &[plane])?;
        let mut instance = plugin.instance(padded_width, padded_height)?;
        for (place, value) in settings {
            instance.set(*place, value);
        }
        let bytes = Converter::slot_bytes(&padded) + SPARE_ROWS * plane.stride;
        let scratch = Pool::new(bytes, 1)?.acquire()?;
        Ok(AtSize { instance, padded, visible, pool: Pool::for_stage(bytes, SLOTS, give_back)?, scratch })
    }

    /// Writes `frame` into the scratch picture as RGBA, and repeats the edges of the frame.
    fn fill_scratch(&mut self, frame: &Frame, converter: &mut Converter) -> Result<(), StageError> {
        let scratch = &mut self.scratch;
        scratch.set_layout(&self.visible)?;
        let visible = self.visible.planes()[0];
        if frame.layout().format == PixelFormat::Rgba {
            let from = frame.plane(0);
            let from_stride = frame.layout().planes()[0].stride;
            let to = scratch.plane_mut(0);
            meter::copy(self.visible.pixel_bytes(), || {
                for (row, to) in to.chunks_mut(visible.stride).enumerate().take(visible.rows) {
                    from.sub(row * from_stride..row * from_stride + visible.width)
                        .copy_to(&mut to[..visible.width]);
                }
            });
        } else {
            converter.convert(frame, scratch)?;
        }
        scratch.set_layout(&self.padded)?;
        let added = self.padded.pixel_bytes() - self.visible.pixel_bytes();
        if added > 0 {
            let pixels = scratch.plane_mut(0);
            meter::copy(added, || repeat_edges(pixels, visible));
        }
        Ok(())
    }
}

/// True if a plug-in can read the frame's pixels in place: the frame is RGBA, has the layout `padded` and is
/// aligned.
fn same_layout(frame: &Frame, padded: &Layout) -> bool {
    let layout = frame.layout();
    let stride = padded.planes()[0].stride;
    layout.format == PixelFormat::Rgba
        && (layout.width, layout.height) == (padded.width, padded.height)
        && layout.planes()[0].stride == stride
        && frame.plane(0).as_ptr() as usize % frei0r::ALIGN == 0
}

/// Fills the parts of an RGBA picture right of and below the visible part with copies of the last visible
/// column and row.
fn repeat_edges(pixels: &mut [u8], visible: PlaneLayout) {
    for row in pixels.chunks_exact_mut(visible.stride).take(visible.rows) {
        let (inside, outside) = row.split_at_mut(visible.width);
        let last = &inside[visible.width - 4..];
        for pixel in outside.chunks_exact_mut(4) {
            pixel.copy_from_slice(last);
        }
    }
    let (inside, outside) = pixels.split_at_mut(visible.rows * visible.stride);
    let last = &inside[inside.len() - visible.stride..];
    for row in outside.chunks_exact_mut(visible.stride) {
        row.copy_from_slice(last);
    }
}

/// Converts RGBA to BGRA or back, in place. The ledger counts this as a copy, because it writes every pixel.
fn swap_red_and_blue(pixels: &mut [u8]) {
    meter::copy(pixels.len(), || {
        for pixel in pixels.chunks_exact_mut(4) {
            pixel.swap(0, 2);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_repeated_to_the_right_and_below() {
        let mut pixels = vec![0; 3 * 4 * 3];
        // Two by two pixels are visible, of three by three.
        for (row, values) in [[1, 2], [3, 4]].into_iter().enumerate() {
            for (column, value) in values.into_iter().enumerate() {
                pixels[row * 12 + column * 4..][..4].fill(value);
            }
        }
        repeat_edges(&mut pixels, PlaneLayout { offset: 0, stride: 12, width: 8, rows: 2 });
        let firsts: Vec<u8> = pixels.chunks(4).map(|pixel| pixel[0]).collect();
        assert_eq!(firsts, [1, 2, 2, 3, 4, 4, 3, 4, 4]);
    }

    #[test]
    fn red_and_blue_change_places() {
        let mut pixels = [1, 2, 3, 4, 5, 6, 7, 8];
        swap_red_and_blue(&mut pixels);
        assert_eq!(pixels, [3, 2, 1, 4, 7, 6, 5, 8]);
        assert_eq!(meter::take().copied_bytes, 8);
    }
}
