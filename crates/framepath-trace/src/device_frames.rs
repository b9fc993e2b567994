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
pub(crate) struct DeviceFrame {
    /// Time at which the first packet of the frame was given to the driver, CLOCK_MONOTONIC nanoseconds; `None` for a device
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
    pub(crate) frames: Vec<DeviceFrame>,
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
            found.ambiguous += exchange.ambiguous;
            found.streams.insert(file, exchange.finish(with_packets.contains(&file)));
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
        let given_ns = call.driver_ns.unwrap_or(call.at_ns);
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
            let is_later = |packet: &Packet| packet.given_ns <= call.driver_ns.unwrap_or(call.at_ns);
            match packet.filter(|packet| !packet.is_ambiguous && is_later(packet)) {
                Some(packet) => given_ns = Some(packet.given_ns),
                None => {
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
            true => self.stream.frames.push(DeviceFrame { given_ns, taken, back: *call }),
            false => self.ambiguous += 1,
        }
    }

    fn finish(mut self, has_packets: bool) -> DeviceStream {
        self.stream.others += (self.taken.len() + self.packets.len()) as u64;
        self.stream.frames.sort_by_key(|frame| frame.taken.at_ns);
        self.stream.work = has_packets.then(|| self.work());
        self.stream
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
