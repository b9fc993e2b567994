// SPDX-License-Identifier: MIT OR Apache-2.0
//! `filter`: a graph of libavfilter, as `ffmpeg -vf` takes it.
//!
//! The filters read frames in place; in a worker, and for frames that another process can change, in a copy.
//! A frame that was read in place and comes out unchanged costs no copy; every other output picture is copied
//! once into the stage's own pool.

use framepath_codec::filter::{FilterGraph, Filtered, InputMemory};
use framepath_model::format::Layout;
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::memory::pool::{GiveBack, Pool};
use framepath_os::process::signal;

use crate::copy_pool::slot_in;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::host::Task;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

static DEFINITION: Definition = Definition::stage(
    "filter",
    "filters of FFmpeg, as `ffmpeg -vf` takes them (needs libavfilter)",
)
.args(&[
    Arg::word(
        "graph",
        ValueKind::Text("a filter graph"),
        "filters separated by commas, in quotes, such as 'scale=640:-2,eq=contrast=1.2'",
    ),
    Arg::option(
        "threads",
        ValueKind::count(1, 64),
        DefaultValue::Is("1"),
        "threads of each filter that can divide a picture; more than 1 shorten the time for a picture and \
                 use more CPU time, which the ledger then shows in no hop",
    ),
])
.hosts(Hosts::NoService);

pub(crate) fn element() -> Element {
    Element::stage(&DEFINITION, make).with_task(|_, _| Ok(Task::Filter)).with_least_out(|_, _| SLOTS - 1)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Filter, StageError> {
    Ok(Filter::new(hop.text("graph"), hop.count("threads") as u32, place.give_back))
}

/// Number of slots of the stage's own pool: one for the frame being written, the others for frames in the
/// hops behind. The stage waits while all are in use.
const SLOTS: u32 = 8;

/// Stage that runs a graph of filters. The graph is made for the first frame, and again when frames change
/// their format, size or colours, and after a seek, flush or drain. If the format of the input is known, the start
/// of the stage also makes a graph, only to check the text and to describe the output.
pub(crate) struct Filter {
    text: String,
    /// Number of threads of each filter that can divide a picture.
    threads: u32,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    give_back: Option<&'static GiveBack>,
    /// Description of the input; `None` before the start.
    info: Option<StreamInfo>,
    /// The graph, and the layout of the frames that it takes; `None` before the first frame, and before the
    /// first after a seek, flush or drain.
    graph: Option<(FilterGraph, Layout)>,
    /// Pool of the output frames; `None` until the graph first outputs a picture that is not an unchanged input
    /// frame.
    pool: Option<Pool>,
    /// True if a frame has not come out at once: then the ledger shows how long each frame is inside.
    delays: bool,
    /// Number of frames that went in and did not come out; an estimate if the filters add or drop frames.
    inside: u64,
}

impl Filter {
    fn new(text: &str, threads: u32, give_back: Option<&'static GiveBack>) -> Filter {
        Filter {
            text: text.to_owned(),
            threads,
            give_back,
            info: None,
            graph: None,
            pool: None,
            delays: false,
            inside: 0,
        }
    }

    fn graph_for(&self, layout: &Layout, info: &StreamInfo) -> Result<FilterGraph, StageError> {
        // In a worker, the process that runs the path may reuse an input frame's memory after the call.
        let memory = if self.give_back.is_some() { InputMemory::Copied } else { InputMemory::InPlace };
        Ok(FilterGraph::new(&self.text, layout, info, memory, self.threads)?)
    }

    /// Passes all frames that the graph can output now to the next hop. `input` is the number of the frame that
    /// went in last; `None` at a drain. Returns true if the graph has output that frame.
    fn pass_output(&mut self, input: Option<u64>, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let (Some((graph, _)), give_back) = (&mut self.graph, self.give_back) else { return Ok(false) };
        let mut has_passed = false;
        // Some graphs output frames without end.
        while !signal::overdue() {
            let pool = &mut self.pool;
            let received =
                graph.receive(|layout| slot_in(pool, FilterGraph::slot_bytes(layout), SLOTS, give_back));
            let received = received.map_err(|error| out.fail(error))?;
            if matches!(received, Filtered::Same(_) | Filtered::New(..)) {
                self.inside = self.inside.saturating_sub(1);
            }
            let frame = match received {
                Filtered::Same(frame) => frame,
                Filtered::New(frame, meta) => frame.freeze(meta),
                Filtered::NeedsFrame | Filtered::End => break,
            };
            let seq = frame.meta().seq;
            has_passed |= Some(seq) == input;
            if self.delays {
                out.resume(seq);
            }
            out.push(Item::Frame(frame))?;
        }
        Ok(has_passed)
    }
}

impl Stage for Filter {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.info = Some(*info);
        // Errors in the text are found before the first frame, if the format is known.
        let Some(format) = info.format else { return Ok(*info) };
        let Ok(layout) = Layout::packed(format, info.width, info.height) else { return Ok(*info) };
        Ok(self.graph_for(&layout, info)?.output(info))
    }

    /// Returns false, because a filter may depend on earlier frames: another graph may emit other output.
    fn replayable(&self) -> bool {
        false
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let Some(info) = self.info else { return Err(out.fail(StageError::Downstream)) };
        let layout = *frame.layout();
        let described = |l: &Layout| (l.format, l.width, l.height, l.colors);
        if self.graph.as_ref().is_none_or(|(_, known)| described(known) != described(&layout)) {
            self.drain(out)?;
            self.graph = Some((self.graph_for(&layout, &info).map_err(|error| out.fail(error))?, layout));
        }
        let seq = frame.meta().seq;
        if self.delays {
            // The work that follows belongs to the frames that come out.
            out.hold(seq);
        }
        if let Some((graph, _)) = &mut self.graph {
            self.inside += 1;
            graph.push(frame).map_err(|error| out.fail(error))?;
        }
        if !self.pass_output(Some(seq), out)? && !self.delays {
            self.delays = true;
            out.hold(seq);
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some((graph, _)) = &mut self.graph {
            graph.drain();
        }
        self.pass_output(None, out)?;
        (self.graph, self.inside) = (None, 0);
        Ok(())
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.graph = None;
        out.flushed(std::mem::take(&mut self.inside));
        Ok(())
    }
}
