// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs at the kernel's own tracepoints of V4L2. They see the buffers of every program, however it makes its system
//! calls, and nothing happens in other calls of ioctl.
//!
//! `v4l2_qbuf` and `v4l2_dqbuf` are at the end of the successful calls: the device may have worked on the buffer already. Most
//! drivers use videobuf2, whose tracepoints tell more: `vb2_qbuf` and `vb2_dqbuf` in these calls, `vb2_buf_queue` in front of the
//! driver's work on a buffer, and `vb2_buf_done` behind it. Their buffer is known by its address alone.

use std::io;
use std::os::fd::AsFd;

use framepath_os::bpf::assembler::Register::{R0, R1, R2, R3, R4, R7, R8, R9, R10};
use framepath_os::bpf::assembler::{Assembler, Condition, Helper};
use framepath_os::bpf::map::ProgramMap;
use framepath_os::bpf::program::{BpfProgram, Link, ProgramKind};

use crate::device_calls::{BUFFER_WORDS, HEAD_WORDS, PLANES, RECORD_WORDS};
use crate::probe_programs::{
    KEY, Maps, NO_WAKEUP, SCRATCH, STASH, TAG_DEQUEUED, TAG_QUEUED, address, key, registers,
};

/// Greatest number of buffers that drivers have.
const BUFFERS: u32 = 16_384;

/// Place of this thread's buffer among its running calls, of which it is none.
const INDEX: i32 = 0xff;

// Record: below the places of the other programs.
const RECORD: i16 = SCRATCH - 8 * RECORD_WORDS as i16;
const AT: i16 = RECORD;
const IDS: i16 = RECORD + 8;
const TAG: i16 = RECORD + 16;
const MINOR: i16 = RECORD + 24;
const DESCRIPTOR: i16 = RECORD + 32;
const BUFFER: i16 = RECORD + 40;
const TIME: i16 = RECORD + 48;
const PLANE: i16 = RECORD + 56;
const V4L2_BUFFER: i16 = RECORD + 8 * HEAD_WORDS as i16;

/// Programs at the tracepoints of V4L2.
#[derive(Debug)]
pub(crate) struct DeviceProbes {
    programs: Vec<(&'static str, BpfProgram, Option<Link>)>,
    _buffers: ProgramMap,
}

impl DeviceProbes {
    /// Loads the programs.
    ///
    /// # Errors
    /// As for [`BpfProgram::load`].
    pub(crate) fn new(maps: &Maps<'_>) -> io::Result<DeviceProbes> {
        let buffers = ProgramMap::new(1, BUFFERS)?;
        let programs = [
            ("vb2_buf_queue", maps.buffer_queued(&buffers)),
            ("vb2_buf_done", buffer_done(&buffers)),
            ("vb2_qbuf", maps.buffer_given()),
            ("vb2_dqbuf", maps.buffer_taken(&buffers)),
            ("v4l2_qbuf", maps.device_call(false)),
            ("v4l2_dqbuf", maps.device_call(true)),
        ];
        let load = |(name, program): &(&'static str, Assembler)| {
            Ok((*name, BpfProgram::load(ProgramKind::RawTracepoint, program)?, None))
        };
        let programs = programs.iter().map(load).collect::<io::Result<_>>()?;
        Ok(DeviceProbes { programs, _buffers: buffers })
    }

    /// Attaches the programs whose tracepoints are there: they come with the first driver that needs them.
    pub(crate) fn attach(&mut self) {
        for (name, program, link) in &mut self.programs {
            if link.is_none() {
                *link = program.attach_to_tracepoint(name).ok();
            }
        }
    }

    /// Removes the programs.
    pub(crate) fn detach(&mut self) {
        for (.., link) in &mut self.programs {
            *link = None;
        }
    }
}

/// Program at the moment at which a driver is done with a buffer, in any process or interrupt.
fn buffer_done(buffers: &ProgramMap) -> Assembler {
    let mut program = Assembler::new();
    let end = program.label();
    program.load(R9, R1, 8).store(R10, KEY, R9).map(R1, buffers.as_fd());
    address(&mut program, R2, KEY);
    program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, &end);
    program.copy(R8, R0).call(Helper::Now).store(R8, 0, R0);
    program.place(end).exit(0);
    program
}

impl Maps<'_> {
    /// Program at the moment at which a driver gets a buffer of a traced process: its end is wanted.
    fn buffer_queued(&self, buffers: &ProgramMap) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(R9, R1, 8).call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.store_value(R10, STASH, 0).store(R10, KEY, R9).map(R1, buffers.as_fd());
        address(&mut program, R2, KEY);
        address(&mut program, R3, STASH);
        program.set(R4, 0).call(Helper::MapUpdate);
        program.place(end).exit(0);
        program
    }

    /// Program in VIDIOC_QBUF: keeps the buffer's address and the time for the end of the call.
    fn buffer_given(&self) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(R9, R1, 8).call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.call(Helper::Now).store(R10, STASH, R9).store(R10, STASH + 8, R0);
        self.keep(&mut program);
        program.place(end).exit(0);
        program
    }

    /// Program in VIDIOC_DQBUF: keeps the buffer's address, and the time at which the driver was done with it.
    fn buffer_taken(&self, buffers: &ProgramMap) -> Assembler {
        let mut program = Assembler::new();
        let (end, unknown) = (program.label(), program.label());
        program.load(R9, R1, 8).call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.store(R10, STASH, R9).store_value(R10, STASH + 8, 0);
        program.store(R10, KEY, R9).map(R1, buffers.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, &unknown);
        program.load(R1, R0, 0).store(R10, STASH + 8, R1).map(R1, buffers.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapDelete).place(unknown);
        self.keep(&mut program);
        program.place(end).exit(0);
        program
    }

    /// Keeps the two words at STASH for the end of this thread's call.
    fn keep(&self, program: &mut Assembler) {
        key(program, INDEX);
        program.map(R1, self.running.as_fd());
        address(program, R2, KEY);
        address(program, R3, STASH);
        program.set(R4, 0).call(Helper::MapUpdate);
    }

    /// Program at the end of VIDIOC_QBUF or VIDIOC_DQBUF: sends the record.
    fn device_call(&self, is_dequeue: bool) -> Assembler {
        let mut program = Assembler::new();
        let (end, unknown, sent) = (program.label(), program.label(), program.label());
        program.load(R9, R1, 8).load(R1, R1, 0).store(R10, MINOR, R1);
        program.call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.call(Helper::Now).store(R10, AT, R0).store(R10, IDS, R7);
        program.store_value(R10, TAG, if is_dequeue { TAG_DEQUEUED } else { TAG_QUEUED });
        program.store_value(R10, BUFFER, 0).store_value(R10, TIME, 0).store_value(R10, PLANE, 0);
        key(&mut program, INDEX);
        program.map(R1, self.running.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, &unknown);
        program.load(R1, R0, 0).store(R10, BUFFER, R1).load(R1, R0, 8).store(R10, TIME, R1);
        program.map(R1, self.running.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapDelete).place(unknown);
        program.call(Helper::CurrentTask).copy(R1, R0).call(Helper::TaskRegisters).copy(R8, R0);
        program.load(R1, R8, registers::CALL_ARGUMENTS[0]).store(R10, DESCRIPTOR, R1);
        address(&mut program, R1, V4L2_BUFFER);
        program.set(R2, 8 * BUFFER_WORDS as i32).copy(R3, R9).call(Helper::ReadKernel);
        // For a buffer without planes, this is no address of the kernel: the read fails and leaves a zero.
        address(&mut program, R1, PLANE);
        program.set(R2, 4).load(R3, R10, V4L2_BUFFER + PLANES).call(Helper::ReadKernel);
        program.map(R1, self.ring.as_fd());
        address(&mut program, R2, RECORD);
        program.set(R3, 8 * RECORD_WORDS as i32).set(R4, NO_WAKEUP).call(Helper::RingOutput);
        program.jump_if(R0, Condition::Equal, 0, &sent);
        self.count_lost(&mut program, &sent);
        program.place(sent).place(end).exit(0);
        program
    }
}
