// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder that runs: packets go in, and a thread passes frames on as soon as they are ready.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use framepath::{Codec, Frame, Frames, FramesWaker, Level, NextFrame, Options, Packet, Pipeline};

use crate::handover::{Given, Handover};
use crate::packets::PacketSource;

/// Packets on their way to the decoder, and the reason for which it takes no more.
pub(crate) type Packets = Handover<Packet, DecodeEnd>;

/// Packets that wait for the decoder before GStreamer has to wait.
const MOST_WAITING: usize = 8;

/// Path of framepath with a sandboxed decoder. Dropping it ends its processes, and the frames inside are lost.
pub(crate) struct RunningDecoder {
    packets: Arc<Packets>,
    /// True once nobody wants further frames.
    is_over: Arc<AtomicBool>,
    waker: FramesWaker,
    /// Result for the last frame.
    last: Arc<Mutex<Result<(), gst::FlowError>>>,
    /// `None` once it has been waited for.
    thread: Option<JoinHandle<()>>,
}

/// Reason for which no further frame is passed on.
pub(crate) enum DecodeEnd {
    /// All frames were passed on.
    Done,
    /// The elements behind take no frame.
    Flow(gst::FlowError),
    /// The decoder has failed, with this text.
    Failed(String),
}

impl RunningDecoder {
    /// Starts a decoder with these options of the stage `decode`; `size` is 0 if it is not known. `pass` gets the frames, in a thread of its
    /// own.
    ///
    /// # Errors
    /// Text of the reason.
    pub(crate) fn start(
        codec: Codec,
        size: (u32, u32),
        options: &str,
        pass: impl FnMut(Frame) -> Result<(), gst::FlowError> + Send + 'static,
    ) -> Result<RunningDecoder, String> {
        let packets = Arc::new(Packets::new(MOST_WAITING));
        let source = PacketSource::new(packets.clone(), codec, size).map_err(|error| error.to_string())?;
        let pipeline = Pipeline::from_source(source).append(&format!("decode host=process {options}"));
        let options = Options { level: Level::Off, ..Options::default() };
        let frames = pipeline.and_then(|pipeline| pipeline.frames_with(options));
        let frames = frames.map_err(|error| error.to_string())?;
        let (is_over, last) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Ok(()))));
        let waker = frames.waker();
        let passing = Passing { packets: packets.clone(), is_over: is_over.clone(), last: last.clone() };
        let thread = std::thread::Builder::new().name("framepathdec".to_owned());
        let thread = thread.spawn(move || passing.run(frames, pass)).map_err(|error| error.to_string())?;
        Ok(RunningDecoder { packets, is_over, waker, last, thread: Some(thread) })
    }

    /// Gives the decoder a packet; waits while too many wait.
    ///
    /// # Errors
    /// The wait was ended ([`set_unlocked`](RunningDecoder::set_unlocked)), or the decoder has ended.
    pub(crate) fn decode(&self, packet: Packet) -> Result<(), DecodeEnd> {
        match self.packets.give(packet) {
            Given::Done => self.last.lock().unwrap_or_else(PoisonError::into_inner).map_err(DecodeEnd::Flow),
            Given::Unlocked => Err(DecodeEnd::Flow(gst::FlowError::Flushing)),
            Given::Ended => Err(self.packets.take_end().unwrap_or(DecodeEnd::Flow(gst::FlowError::Eos))),
        }
    }

    /// Waits until the frames of all packets were passed on.
    ///
    /// # Errors
    /// As [`decode`](RunningDecoder::decode).
    pub(crate) fn drain(self) -> Result<(), DecodeEnd> {
        match self.packets.finish() {
            Given::Unlocked => Err(DecodeEnd::Flow(gst::FlowError::Flushing)),
            Given::Done | Given::Ended => match self.packets.take_end() {
                None | Some(DecodeEnd::Done) => Ok(()),
                Some(end) => Err(end),
            },
        }
    }

    /// Returns the packets, whose waits another thread can end.
    pub(crate) fn packets(&self) -> Arc<Packets> {
        self.packets.clone()
    }
}

impl Drop for RunningDecoder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.packets.at_end();
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It has caught its panics.
            let _ = thread.join();
        }
    }
}

/// State of the thread that passes frames on.
struct Passing {
    packets: Arc<Packets>,
    is_over: Arc<AtomicBool>,
    last: Arc<Mutex<Result<(), gst::FlowError>>>,
}

impl Passing {
    fn run(self, mut frames: Frames, pass: impl FnMut(Frame) -> Result<(), gst::FlowError>) {
        // Whoever waits would wait for ever.
        let end = catch_unwind(AssertUnwindSafe(|| self.pass_all(&mut frames, pass)));
        let end = end.unwrap_or_else(|_| DecodeEnd::Failed("a panic, which is a bug".to_owned()));
        // Whoever waits for the end may start another decoder at once.
        drop(frames);
        self.packets.end(end);
    }

    fn pass_all(
        &self,
        frames: &mut Frames,
        mut pass: impl FnMut(Frame) -> Result<(), gst::FlowError>,
    ) -> DecodeEnd {
        loop {
            let flow = match frames.next_unless(|| self.is_over.load(Ordering::Acquire)) {
                _ if self.is_over.load(Ordering::Acquire) => return DecodeEnd::Done,
                NextFrame::Frame(Ok(frame)) => pass(frame),
                NextFrame::Frame(Err(error)) => return DecodeEnd::Failed(error.to_string()),
                NextFrame::News | NextFrame::End => return DecodeEnd::Done,
            };
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = flow;
            match flow {
                // An element may be linked later.
                Ok(()) | Err(gst::FlowError::NotLinked) => {}
                Err(flow) => return DecodeEnd::Flow(flow),
            }
        }
    }
}
