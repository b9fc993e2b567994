// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in the calls with which a program exchanges buffers with V4L2 devices.
//!
//! A captured frame is known by the index of its buffer until that goes back to the device; the kernel's record of the buffer
//! must then be the same. In a device with two queues, which decodes, encodes or converts, a frame is known by the time
//! stamp that the device copies from its packet; the driver must have got the packet before it was done with the frame. What
//! does not agree is counted and never guessed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::device_calls::{DeviceCall, DeviceFile, DeviceQueue};

/// Greatest number of packets that wait in one device; older ones have been dropped inside.
const WAITING: usize = 1024;

/// Frame of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DequeuedFrame {
    /// Time at which the first packet of the frame was given to the device, CLOCK_MONOTONIC nanoseconds; `None` for a device
    /// that captures.
    pub(crate) given_ns: Option<u64>,
    /// Call with which the program got the frame.
    pub(crate) taken: DeviceCall,
    /// Call with which the frame's buffer went back to the device.
    pub(crate) back: DeviceCall,
}

/// Work of a device with two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceWork {
    Decode,
    Encode,
    /// Frames of equal sizes become frames of equal sizes.
    Convert,
}

/// Frames of one open file of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceStream {
    /// Frames whose buffers went back, in the order in which the program got them.
    pub(crate) frames: Vec<DequeuedFrame>,
    /// Number of packets and frames that began and did not get there.
    pub(crate) others: u64,
    /// Work of a device with two queues; `None` for one that captures.
    pub(crate) work: Option<DeviceWork>,
}

/// Frames of the devices of a recording.
#[derive(Debug, Default)]
pub(crate) struct DeviceFrames {
    pub(crate) streams: BTreeMap<DeviceFile, DeviceStream>,
    /// Number of frames whose identifications do not agree.
    pub(crate) ambiguous: u64,
}

/// Packet in a device.
#[derive(Clone, Copy, Debug)]
struct Packet {
    given_ns: u64,
    timestamp: (i64, i64),
    /// True if another packet in the device has the same time stamp.
    is_ambiguous: bool,
}

/// Calls of one open file so far.
#[derive(Debug, Default)]
struct Exchange {
    stream: DeviceStream,
    ambiguous: u64,
    /// Packets in the device.
    packets: VecDeque<Packet>,
    /// Time stamps of the last frames that were found.
    found: VecDeque<(i64, i64)>,
    /// True if two frames of one packet were seen: time stamps do not tell the packets of this program apart.
    has_equal_stamps: bool,
    /// Frames that the program has, by the indices of their buffers.
    taken: HashMap<u32, (Option<u64>, DeviceCall)>,
    /// Sizes of the buffers of each queue.
    output: Sizes,
    capture: Sizes,
}

/// Sizes of the buffers of one queue.
#[derive(Debug, Default)]
struct Sizes {
    /// Size of the first buffer.
    first: Option<u32>,
    varies: bool,
    sum: u64,
}

impl Sizes {
    fn add(&mut self, bytes: u32) {
        self.varies |= *self.first.get_or_insert(bytes) != bytes;
        self.sum += u64::from(bytes);
    }
}

impl DeviceFrames {
    /// Finds the frames in `calls`, which are in the order of their times.
    pub(crate) fn of(calls: &[DeviceCall]) -> DeviceFrames {
        let given = calls.iter().filter(|call| call.queue == DeviceQueue::Output && !call.is_dequeue);
        let with_packets: HashSet<DeviceFile> = given.map(|call| call.file).collect();
        let mut exchanges: BTreeMap<DeviceFile, Exchange> = BTreeMap::new();
        for call in calls {
            let exchange = exchanges.entry(call.file).or_default();
            match (call.queue, call.is_dequeue) {
                (DeviceQueue::Output, false) => exchange.give(call),
                // The packet's bytes: the device may still have the packet's frame.
                (DeviceQueue::Output, true) => {}
                (DeviceQueue::Capture, true) => exchange.take(call, with_packets.contains(&call.file)),
                (DeviceQueue::Capture, false) => exchange.put_back(call),
            }
        }
        let mut found = DeviceFrames::default();
        for (file, exchange) in exchanges {
            let (stream, ambiguous) = exchange.finish(with_packets.contains(&file));
            found.ambiguous += ambiguous;
            found.streams.insert(file, stream);
        }
        found
    }
}

impl Exchange {
    /// Notes that a packet, or a part of one, is given to the device.
    fn give(&mut self, call: &DeviceCall) {
        if call.bytes == 0 {
            return;
        }
        self.output.add(call.bytes);
        let timestamp = call.timestamp;
        // Parts of one frame, such as its slices.
        if self.packets.back().is_some_and(|last| last.timestamp == timestamp) {
            return;
        }
        let mut is_ambiguous = false;
        for other in self.packets.iter_mut().filter(|other| other.timestamp == timestamp) {
            (other.is_ambiguous, is_ambiguous) = (true, true);
        }
        let given_ns = call.at_ns;
        self.packets.push_back(Packet { given_ns, timestamp, is_ambiguous });
        if self.packets.len() > WAITING {
            self.packets.pop_front();
            self.stream.others += 1;
        }
    }

    /// Notes that the program gets a frame.
    fn take(&mut self, call: &DeviceCall, has_packets: bool) {
        if !call.has_frame() {
            return;
        }
        self.capture.add(call.bytes);
        let mut given_ns = None;
        if has_packets {
            let fits = |packet: &Packet| packet.timestamp == call.timestamp;
            let packet = self.packets.iter().position(fits).and_then(|at| self.packets.remove(at));
            let is_later = |packet: &Packet| packet.given_ns <= call.done_ns.unwrap_or(call.at_ns);
            match packet.filter(|packet| !packet.is_ambiguous && is_later(packet)) {
                Some(packet) => {
                    given_ns = Some(packet.given_ns);
                    self.found.push_back(call.timestamp);
                    self.found.drain(..self.found.len().saturating_sub(WAITING));
                }
                None => {
                    self.has_equal_stamps |= self.found.contains(&call.timestamp);
                    self.ambiguous += 1;
                    self.taken.remove(&call.index);
                    return;
                }
            }
        }
        // The buffer of a frame before came back in another way: the stream was stopped.
        let before = self.taken.insert(call.index, (given_ns, *call));
        self.stream.others += u64::from(before.is_some());
    }

    /// Notes that the device gets a buffer back.
    fn put_back(&mut self, call: &DeviceCall) {
        let Some((given_ns, taken)) = self.taken.remove(&call.index) else { return };
        match taken.buffer == call.buffer {
            true => self.stream.frames.push(DequeuedFrame { given_ns, taken, back: *call }),
            false => self.ambiguous += 1,
        }
    }

    fn finish(mut self, has_packets: bool) -> (DeviceStream, u64) {
        if self.has_equal_stamps {
            self.ambiguous += self.stream.frames.drain(..).count() as u64;
        }
        self.stream.others += (self.taken.len() + self.packets.len()) as u64;
        self.stream.frames.sort_by_key(|frame| frame.taken.at_ns);
        self.stream.work = has_packets.then(|| self.work());
        (self.stream, self.ambiguous)
    }

    /// Returns the work of a device with two queues: packets have different sizes, frames have equal ones.
    fn work(&self) -> DeviceWork {
        match (self.output.varies, self.capture.varies) {
            (true, false) => DeviceWork::Decode,
            (false, true) => DeviceWork::Encode,
            (false, false) => DeviceWork::Convert,
            // The pictures' size changes.
            (true, true) if self.output.sum <= self.capture.sum => DeviceWork::Decode,
            (true, true) => DeviceWork::Encode,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Open file of the calls.
    pub(crate) const FILE: DeviceFile = DeviceFile { process: 1, minor: Some(0), descriptor: 3 };

    /// Returns a call of thread 1 with a queue's buffer of 100 bytes, whose time stamp is `second`.
    pub(crate) fn call(
        at_ns: u64,
        queue: DeviceQueue,
        is_dequeue: bool,
        index: u32,
        second: i64,
    ) -> DeviceCall {
        DeviceCall {
            at_ns,
            thread: 1,
            file: FILE,
            queue,
            is_dequeue,
            index,
            buffer: u64::from(index) + 1,
            done_ns: None,
            bytes: 100,
            sequence: 0,
            timestamp: (second, 0),
            flags: 0x4000,
        }
    }

    fn give(at_ns: u64, second: i64) -> DeviceCall {
        call(at_ns, DeviceQueue::Output, false, 0, second)
    }

    fn take(at_ns: u64, index: u32, second: i64) -> DeviceCall {
        call(at_ns, DeviceQueue::Capture, true, index, second)
    }

    fn back(at_ns: u64, index: u32) -> DeviceCall {
        call(at_ns, DeviceQueue::Capture, false, index, 0)
    }

    /// Frames of a stream: when the packet was given, and when the frame was taken and its buffer put back.
    type Found = Vec<(Option<u64>, u64, u64)>;

    /// Returns the frames, and the numbers of others and of ambiguous ones.
    fn find(calls: &[DeviceCall]) -> (Found, u64, u64) {
        let found = DeviceFrames::of(calls);
        let Some(stream) = found.streams.get(&FILE) else { return (Vec::new(), 0, found.ambiguous) };
        let frames = stream.frames.iter();
        let frames = frames.map(|frame| (frame.given_ns, frame.taken.at_ns, frame.back.at_ns)).collect();
        (frames, stream.others, found.ambiguous)
    }

    #[test]
    fn a_captured_frame_lasts_until_its_buffer_goes_back() {
        // The device gets its buffers first; they go back in another order; the last one does not.
        let calls = [
            back(1, 0),
            back(2, 1),
            take(10, 0, 0),
            take(20, 1, 0),
            back(25, 1),
            back(30, 0),
            take(40, 1, 0),
        ];
        assert_eq!(find(&calls), (vec![(None, 10, 30), (None, 20, 25)], 1, 0));
        // Another buffer has the index: the buffers are new ones.
        let other = DeviceCall { buffer: 77, ..back(30, 0) };
        assert_eq!(find(&[take(10, 0, 0), other]), (vec![], 0, 1));
        // The stream was stopped in between.
        let calls = [take(10, 0, 0), take(20, 0, 0), back(30, 0)];
        assert_eq!(find(&calls), (vec![(None, 20, 30)], 1, 0));
        // Each open file has indices of its own.
        let other = DeviceFile { descriptor: 4, ..FILE };
        let calls = [take(10, 0, 0), DeviceCall { file: other, ..take(11, 0, 0) }, back(30, 0)];
        assert_eq!(find(&calls), (vec![(None, 10, 30)], 0, 0));
    }

    #[test]
    fn a_decoded_frame_has_the_stamp_of_its_packet() {
        // The second packet has two parts, and its frame comes first. A third packet has no frame.
        let calls = [
            give(1, 7),
            give(2, 8),
            give(3, 8),
            give(4, 9),
            take(10, 0, 8),
            back(12, 0),
            take(14, 1, 7),
            back(16, 1),
        ];
        assert_eq!(find(&calls), (vec![(Some(2), 10, 12), (Some(1), 14, 16)], 1, 0));
        // A frame of no packet, and one that the driver had before the packet.
        let early = DeviceCall { done_ns: Some(5), ..take(20, 1, 8) };
        let calls = [give(1, 7), take(10, 0, 5), give(15, 8), early, back(21, 0), back(22, 1)];
        assert_eq!(find(&calls), (vec![], 1, 2));
        // An empty buffer at the end.
        let last = DeviceCall { bytes: 0, flags: 0x0010_4000, ..take(10, 0, 7) };
        assert_eq!(find(&[give(1, 7), last, back(11, 0)]), (vec![], 1, 0));
    }

    #[test]
    fn packets_with_equal_stamps_are_not_told_apart() {
        let calls = [
            give(1, 0),
            give(2, 0),
            take(10, 0, 0),
            back(12, 0),
            give(13, 0),
            take(14, 1, 0),
            back(16, 1),
            take(18, 0, 0),
            back(20, 0),
        ];
        assert_eq!(find(&calls), (vec![], 0, 3));
        let calls = [give(1, 7), give(2, 8), give(3, 7), take(10, 0, 7), back(12, 0)];
        assert_eq!(find(&calls), (vec![], 2, 1));
    }

    #[test]
    fn the_sizes_of_buffers_tell_the_work_of_a_device() {
        let work = |output: [u32; 2], capture: [u32; 2]| {
            let sized = |call: DeviceCall, bytes| DeviceCall { bytes, ..call };
            let calls = [
                sized(give(1, 7), output[0]),
                sized(give(2, 8), output[1]),
                sized(take(10, 0, 7), capture[0]),
                sized(take(20, 1, 8), capture[1]),
                back(30, 0),
            ];
            DeviceFrames::of(&calls).streams[&FILE].work
        };
        assert_eq!(work([10, 12], [100, 100]), Some(DeviceWork::Decode));
        assert_eq!(work([100, 100], [10, 12]), Some(DeviceWork::Encode));
        assert_eq!(work([100, 100], [10, 10]), Some(DeviceWork::Convert));
        assert_eq!(work([10, 12], [100, 200]), Some(DeviceWork::Decode));
        assert_eq!(work([100, 200], [10, 12]), Some(DeviceWork::Encode));
        assert_eq!(DeviceFrames::of(&[take(1, 0, 0)]).streams[&FILE].work, None);
    }

    #[test]
    fn random_calls_do_no_harm() {
        let mut random = 1u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        for _ in 0..500 {
            let mut calls: Vec<DeviceCall> = (0..200)
                .map(|_| {
                    let queue = if below(2) == 0 { DeviceQueue::Capture } else { DeviceQueue::Output };
                    let (at_ns, index) = (below(1000), below(4) as u32);
                    let mut call = call(at_ns, queue, below(2) == 0, index, below(5) as i64);
                    call.thread = below(3) as i32;
                    call.done_ns = (below(2) == 0).then(|| below(1000)).filter(|ns| *ns <= at_ns);
                    call.bytes = below(3) as u32;
                    call.buffer = below(2);
                    call
                })
                .collect();
            calls.sort_by_key(|call| call.at_ns);
            let found = DeviceFrames::of(&calls);
            let frames: usize = found.streams.values().map(|stream| stream.frames.len()).sum();
            assert!(frames as u64 + found.ambiguous <= 200);
            let (spans, names) = (found.spans(), crate::names::ObjectNames::default());
            let timelines = HashMap::new();
            let ledgers =
                found.ledgers(&crate::attribution::TraceFacts::new(&spans, &timelines, &names, &[]));
            assert_eq!(ledgers.iter().map(|ledger| ledger.frames).sum::<u64>(), frames as u64);
        }
    }
}
