// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs of the probes: each writes a record of eight words into a ring.

use std::os::fd::AsFd;

use framepath_os::bpf::assembler::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use framepath_os::bpf::assembler::{Assembler, Condition, Helper, Label, Register};
use framepath_os::bpf::map::ProgramMap;
use framepath_os::bpf::ring::Ring;

use crate::calls::{self, Call, CallFilter, CallItem, CallSite, LIST_BUFFERS, LIST_LENGTH, Phase};
use crate::names::{FILTER_OUTPUTS, FILTERS};
use crate::own_user::OwnUser;
use crate::time_base::TIME_BASES;

/// Longest name of an object that a record has, bytes.
pub(crate) const NAME_BYTES: usize = 24;

/// Longest name of an element of GStreamer that a record has, bytes.
pub(crate) const ELEMENT_BYTES: usize = 32;

/// Flag of `bpf_ringbuf_output`: this process is not woken up, because it looks at the ring anyway.
pub(crate) const NO_WAKEUP: i32 = 1;

// Record: eight words below the end of the stack.
const RECORD: i16 = -64;
const AT: i16 = RECORD;
const IDS: i16 = RECORD + 8;
const TAG: i16 = RECORD + 16;
pub(crate) const FIELDS: [i16; 5] = [RECORD + 24, RECORD + 32, RECORD + 40, RECORD + 48, RECORD + 56];
const RECORD_BYTES: i32 = 64;
pub(crate) const KEY: i16 = RECORD - 8;
/// Two words: the object and the item of a call.
pub(crate) const STASH: i16 = RECORD - 24;
/// Lowest place on the stack that these programs use, but for [`LINK`].
pub(crate) const SCRATCH: i16 = RECORD - 32;

/// Beginning of an AVFilterLink, up to the end of its time base.
const LINK: i16 = SCRATCH - LINK_BYTES as i16;
const LINK_BYTES: i32 = TIME_BASES[1] + 8;

/// Tags of the records that are no calls. Calls have the index of their site, and the phase in bit 8.
pub(crate) const TAG_SWITCHED: i32 = 0x1000;
pub(crate) const TAG_WOKEN: i32 = 0x1001;
pub(crate) const TAG_MARKED: i32 = 0x1005;
pub(crate) const TAG_MARKED_END: i32 = 0x1006;
pub(crate) const TAG_QUEUED: i32 = 0x1007;
pub(crate) const TAG_DEQUEUED: i32 = 0x1008;
pub(crate) const LEAVE: i32 = 0x100;
/// Bit of the tag of a record with the name of a site's object.
pub(crate) const NAMED: i32 = 0x200;
/// Bits of the tag below the place of a filter in its graph, or of a record of a pad: [`PAD_LINKS`] and the others.
pub(crate) const PLACE_SHIFT: i32 = 16;
/// Bit of the place of a filter in a record about one of its outputs.
pub(crate) const FILTER_LINK: i32 = 0x100;
/// Bit of the place of a filter in a record with its first option.
pub(crate) const FILTER_OPTION: i32 = 0x200;
/// Places of the records of a pad: the addresses, the name of its parent, and that of the element behind it.
pub(crate) const PAD_LINKS: i32 = 0;
pub(crate) const PAD_PARENT: i32 = 1;
pub(crate) const PAD_NEXT: i32 = 2;

/// Offsets in the registers of user mode (struct pt_regs).
#[cfg(target_arch = "x86_64")]
pub(crate) mod registers {
    use crate::calls;

    pub(super) const ARGUMENTS: [i16; calls::ARGUMENTS] = [112, 104, 96];
    pub(super) const RESULT: i16 = 80;
    /// Number of the system call.
    pub(crate) const SYSTEM_CALL: i16 = 120;
    /// Arguments of the system call: rdi, rsi, rdx, r10 and r8.
    pub(crate) const CALL_ARGUMENTS: [i16; 5] = [112, 104, 96, 56, 72];
}
#[cfg(target_arch = "aarch64")]
pub(crate) mod registers {
    use crate::calls;

    pub(super) const ARGUMENTS: [i16; calls::ARGUMENTS] = [0, 8, 16];
    pub(super) const RESULT: i16 = 0;
    pub(crate) const SYSTEM_CALL: i16 = 280;
    pub(crate) const CALL_ARGUMENTS: [i16; 5] = [272, 8, 16, 24, 32];
}

/// Maps that the programs use.
pub(crate) struct Maps<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) traced: &'a ProgramMap,
    pub(crate) running: &'a ProgramMap,
    pub(crate) objects: &'a ProgramMap,
    pub(crate) lost: &'a ProgramMap,
    /// True if objects of FFmpeg are named at their first use, because a program that runs already has opened them before.
    pub(crate) names_at_use: bool,
    /// User whose processes alone are recorded.
    pub(crate) user: Option<OwnUser>,
}

impl Maps<'_> {
    /// Program at the begin of a function.
    pub(crate) fn enter(&self, index: usize, site: &CallSite) -> Assembler {
        let mut program = Assembler::new();
        let unwanted = program.label();
        program.copy(R6, R1);
        self.record_begin(&mut program, index, site, &unwanted);
        program.place(unwanted).exit(0);
        program
    }

    /// Program at the begin and at the return of a function, which the kernel's function `is_return` tells apart. Its result at
    /// the begin is 1 if the return is not wanted.
    pub(crate) fn session(&self, index: usize, site: &CallSite, is_return: u32) -> Assembler {
        let mut program = Assembler::new();
        let (begin, end, unwanted) = (program.label(), program.label(), program.label());
        program.copy(R6, R1).call_kernel(is_return);
        program.shift_left(R0, 56).jump_if(R0, Condition::Equal, 0, &begin);
        self.record_return(&mut program, index, site, &end);
        program.place(end).exit(0);
        program.place(begin);
        self.record_begin(&mut program, index, site, &unwanted);
        if site.call.has_return() {
            program.exit(0);
        }
        program.place(unwanted).exit(1);
        program
    }

    /// Keeps the arguments of a function that begins for its return, and writes a record. Jumps to `unwanted` if the process is
    /// not traced, because the probe is in other programs, too, and if the call is not to be recorded.
    fn record_begin(&self, program: &mut Assembler, index: usize, site: &CallSite, unwanted: &Label) {
        program.call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(program, unwanted);
        filter(program, site.filter, unwanted);
        begin_call(program, index as i32);
        let [object, item] = site.places.map(|place| registers::ARGUMENTS[usize::from(place)]);
        program.load(R8, R6, object).load(R9, R6, item);
        program.store(R10, FIELDS[0], R8);
        if site.call.has_return() {
            let kept = program.label();
            program.store(R10, STASH, R8).store(R10, STASH + 8, R9);
            key(program, index as i32);
            if site.call.is_opening() {
                // An encoder opens codecs inside: their number is in place of the item, which this call does not have.
                let outer = program.label();
                program.store_value(R10, STASH + 8, 0).map(R1, self.running.as_fd());
                address(program, R2, KEY);
                program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, &outer);
                program.load(R1, R0, 8).add(R1, 1).store(R0, 8, R1).jump(&kept);
                program.place(outer);
            }
            program.map(R1, self.running.as_fd());
            address(program, R2, KEY);
            address(program, R3, STASH);
            program.set(R4, 0).call(Helper::MapUpdate);
            program.place(kept);
        }
        if site.item == CallItem::FramePair {
            address(program, R1, FIELDS[0]);
            program.set(R2, 8).copy(R3, R8).call(Helper::ReadUser);
        }
        if site.read_at == Phase::Enter {
            read_item(program, site.item);
        }
        self.send(program);
        self.announce(program, index as i32, site.call);
    }

    /// Sends the facts about the object of a call, whose address is in R8, if it is new. They are read here, because a read of
    /// the program's memory from another process can wait forever, for a file system of the program (FUSE). Loses R8 and R9.
    fn announce(&self, program: &mut Assembler, index: i32, call: Call) {
        let facts = match call {
            Call::PadPush => Facts::Pad,
            // A program may leave out avformat_find_stream_info for a format that needs none (mpv).
            Call::ReadPacket => Facts::Name(INPUT),
            _ if !self.names_at_use => return,
            Call::SendPacket | Call::SendFrame | Call::ReceiveFrame | Call::ReceivePacket => {
                Facts::Name(CODEC)
            }
            Call::WritePacket => Facts::Name(OUTPUT),
            Call::FilterInput | Call::FilterOutput => Facts::Graph,
            _ => return,
        };
        let known = program.label();
        // Forked processes have the same addresses. Numbers of processes have 22 bits.
        program.copy(R1, R7).shift_right(R1, 32).shift_left(R1, 42).subtract(R1, R8).store(R10, KEY, R1);
        program.map(R1, self.objects.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::NotEqual, 0, &known);
        program.map(R1, self.objects.as_fd());
        address(program, R2, KEY);
        address(program, R3, KEY);
        // There may be too many objects.
        program.set(R4, 0).call(Helper::MapUpdate).jump_if(R0, Condition::NotEqual, 0, &known);
        match facts {
            Facts::Pad => self.send_pad(program, index),
            Facts::Name(offset) => {
                read_name(program, index, offset);
                self.send(program);
            }
            Facts::Graph => {
                // The AVFilterGraph of an AVFilterContext.
                program.copy(R9, R8).add(R9, 80);
                read_user(program, FIELDS[0], 8);
                program.load(R8, R10, FIELDS[0]);
                self.send_filters(program, index, &known);
            }
        }
        program.place(known);
    }

    /// Sends the records of the GstPad whose address is in R8: a GstObject has its name at 32 and its parent at 40, a pad has
    /// its peer at 264. What cannot be read is 0. Loses R8 and R9.
    fn send_pad(&self, program: &mut Assembler, index: i32) {
        program.store_value(R10, TAG, index | NAMED | PAD_LINKS << PLACE_SHIFT);
        program.copy(R9, R8).add(R9, 40);
        read_user(program, FIELDS[1], 8);
        program.copy(R9, R8).add(R9, 264);
        read_user(program, FIELDS[2], 8);
        program.load(R9, R10, FIELDS[2]).add(R9, 40);
        read_user(program, FIELDS[3], 8);
        program.load(R8, R10, FIELDS[1]).load(R9, R10, FIELDS[3]).store(R10, STASH, R9);
        // A bin links its border later: what is not linked is looked at again.
        let linked = program.label();
        program.jump_if(R9, Condition::NotEqual, 0, &linked).map(R1, self.objects.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapDelete).place(linked);
        self.send(program);
        for place in [PAD_PARENT, PAD_NEXT] {
            program.store_value(R10, TAG, index | NAMED | place << PLACE_SHIFT);
            program.copy(R9, R8).add(R9, 32);
            read_user(program, SCRATCH, 8);
            program.load(R9, R10, SCRATCH);
            read_text(program, FIELDS[1], ELEMENT_BYTES as i32);
            self.send(program);
            program.load(R8, R10, STASH);
        }
    }

    /// Program at the return of a function.
    pub(crate) fn leave(&self, index: usize, site: &CallSite) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.copy(R6, R1);
        self.record_return(&mut program, index, site, &end);
        program.place(end).exit(0);
        program
    }

    /// Writes the record of a function that returns. Jumps to `end` if there is none: the process is not traced, or the function
    /// began before the probes.
    fn record_return(&self, program: &mut Assembler, index: usize, site: &CallSite, end: &Label) {
        program.call(Helper::CurrentIds).copy(R7, R0);
        if self.user.is_some() {
            // A process can leave the recording inside a call: by exec.
            self.unless_traced(program, end);
        }
        key(program, index as i32);
        program.map(R1, self.running.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapLookup);
        program.jump_if(R0, Condition::Equal, 0, end);
        let is_opening = site.call.is_opening();
        let is_item_read = site.read_at == Phase::Leave || site.item == CallItem::Value;
        program.load(R8, R0, 0);
        if is_opening || is_item_read {
            program.load(R9, R0, 8);
        }
        if is_opening {
            let outer = program.label();
            program.jump_if(R9, Condition::Equal, 0, &outer);
            program.copy(R1, R9).add(R1, -1).store(R0, 8, R1);
            program.place(outer);
        }
        begin_call(program, index as i32 | LEAVE);
        if is_opening {
            let inner = program.label();
            program.jump_if(R9, Condition::NotEqual, 0, &inner).map(R1, self.running.as_fd());
            address(program, R2, KEY);
            program.call(Helper::MapDelete).place(inner);
        }
        if site.filter != CallFilter::All {
            // The next return may be that of a call that is not recorded.
            program.map(R1, self.running.as_fd());
            address(program, R2, KEY);
            program.call(Helper::MapDelete);
        }
        program.load(R1, R6, registers::RESULT).store(R10, FIELDS[3], R1);
        program.store(R10, FIELDS[0], R8);
        if site.item == CallItem::Returned {
            program.copy(R9, R1);
        }
        if is_item_read {
            read_item(program, site.item);
        }
        self.send(program);
        if is_opening {
            // The object is that of the outer call.
            program.jump_if(R9, Condition::NotEqual, 0, end);
        }
        match site.call {
            Call::OpenCodec | Call::OpenInput | Call::OpenOutput => {
                let offset = match site.call {
                    Call::OpenCodec => CODEC,
                    Call::OpenInput => INPUT,
                    _ => OUTPUT,
                };
                read_name(program, index as i32, offset);
                self.send(program);
            }
            Call::OpenGraph => self.send_filters(program, index as i32, end),
            _ => {}
        }
    }

    /// Sends a record for each filter of the AVFilterGraph whose address is in R8: the array is at 8, its length at 16, and
    /// an AVFilterContext has the AVFilter at 8, which begins with its name. Jumps to `end` behind the last one.
    fn send_filters(&self, program: &mut Assembler, index: i32, end: &Label) {
        // The reads of one filter fail and leave zeros, or all read what the graph has.
        for place in 0..FILTERS as i32 {
            program.store_value(R10, TAG, index | NAMED | place << PLACE_SHIFT);
            program.copy(R9, R8).add(R9, 16);
            read_user(program, SCRATCH, 4);
            program.load(R1, R10, SCRATCH).shift_left(R1, 32).shift_right(R1, 32);
            program.jump_if(R1, Condition::NotAbove, place, end);
            program.copy(R9, R8).add(R9, 8);
            read_user(program, SCRATCH, 8);
            program.load(R9, R10, SCRATCH).add(R9, 8 * place);
            read_user(program, FIELDS[1], 8);
            program.load(R9, R10, FIELDS[1]).add(R9, 8);
            for _ in 0..2 {
                read_user(program, SCRATCH, 8);
                program.load(R9, R10, SCRATCH);
            }
            read_text(program, FIELDS[2], NAME_BYTES as i32);
            self.send(program);
            self.send_set_pts(program, index, place);
            self.send_filter_outputs(program, index, place);
        }
    }

    /// Sends a record with the first option of the AVFilterContext whose record has been sent, if it is a `setpts`: AVFilter has its
    /// AVClass at 32, and that the table of AVOptions at 16, of which the first one has the option's offset in the struct at 72 of
    /// the context at 16. Source: the public headers of FFmpeg 4 to 8.
    fn send_set_pts(&self, program: &mut Assembler, index: i32, place: i32) {
        let end = program.label();
        for (shift, text) in [(0, *b"setp"), (32, *b"ts\0\0")] {
            let unused = if shift == 0 { 0 } else { 8 };
            program.load(R1, R10, FIELDS[2]).shift_left(R1, 32 - shift + unused).shift_right(R1, 32 + unused);
            program.jump_if(R1, Condition::NotEqual, i32::from_le_bytes(text), &end);
        }
        program.store_value(R10, TAG, index | NAMED | (place | FILTER_OPTION) << PLACE_SHIFT);
        program.load(R9, R10, FIELDS[1]).add(R9, 8);
        for offset in [32, 16, 16] {
            read_user(program, SCRATCH, 8);
            program.load(R9, R10, SCRATCH).add(R9, offset);
        }
        program.store_value(R10, STASH, 0);
        read_user(program, STASH, 4);
        program.load(R9, R10, FIELDS[1]).add(R9, 72);
        read_user(program, SCRATCH, 8);
        program.load(R9, R10, SCRATCH).load(R1, R10, STASH).add_register(R9, R1);
        read_user(program, SCRATCH, 8);
        program.load(R9, R10, SCRATCH);
        read_text(program, FIELDS[2], NAME_BYTES as i32);
        self.send_uncounted(program);
        program.place(end);
    }

    /// Sends a record for each output of the AVFilterContext whose address is in the first field behind the object: the array of
    /// its links is at 56, its length at 64. An AVFilterLink has the filter to which it leads at 16.
    fn send_filter_outputs(&self, program: &mut Assembler, index: i32, place: i32) {
        let last = program.label();
        program.load(R9, R10, FIELDS[1]).add(R9, 56);
        read_user(program, STASH, 8);
        program.add(R9, 8).store_value(R10, STASH + 8, 0);
        read_user(program, STASH + 8, 4);
        program.store_value(R10, TAG, index | NAMED | (place | FILTER_LINK) << PLACE_SHIFT);
        for output in 0..FILTER_OUTPUTS as i32 {
            program.load(R1, R10, STASH + 8).jump_if(R1, Condition::NotAbove, output, &last);
            program.load(R9, R10, STASH).add(R9, 8 * output);
            read_user(program, LINK, 8);
            program.load(R9, R10, LINK);
            read_user(program, LINK, LINK_BYTES);
            for (field, at) in FIELDS[2..].iter().zip([16, TIME_BASES[0], TIME_BASES[1]]) {
                program.load(R1, R10, LINK + at as i16).store(R10, *field, R1);
            }
            self.send_uncounted(program);
        }
        program.place(last);
    }

    /// Sends a record that is not counted if there is no room. It makes ways through a graph unknown, which is said elsewhere; for
    /// so many of them, the verifier would need three times as long with the count.
    fn send_uncounted(&self, program: &mut Assembler) {
        program.map(R1, self.ring.as_fd());
        address(program, R2, RECORD);
        program.set(R3, RECORD_BYTES).set(R4, NO_WAKEUP).call(Helper::RingOutput);
    }

    /// Program at a static probe of framepath_frame.h, `frame` or, with `is_end`, `frame_end`.
    pub(crate) fn mark(&self, is_end: bool) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.copy(R6, R1);
        begin(&mut program, if is_end { TAG_MARKED_END } else { TAG_MARKED });
        self.unless_traced(&mut program, &end);
        program.load(R1, R6, registers::ARGUMENTS[0]).store(R10, FIELDS[0], R1);
        if !is_end {
            program.load(R9, R6, registers::ARGUMENTS[1]);
            read_text(&mut program, FIELDS[2], NAME_BYTES as i32);
        }
        self.send(&mut program);
        program.place(end).exit(0);
        program
    }

    /// Jumps to `end` if the current process, whose ids are in R7, is not traced. Leaves its number in R8 and at KEY.
    pub(crate) fn unless_traced(&self, program: &mut Assembler, end: &Label) {
        program.copy(R8, R7).shift_right(R8, 32);
        lookup(program, self.traced, R8, end);
    }

    /// Sends the record; counts it if there is no room.
    pub(crate) fn send(&self, program: &mut Assembler) {
        let sent = program.label();
        self.send_uncounted(program);
        program.jump_if(R0, Condition::Equal, 0, &sent);
        self.count_lost(program, &sent);
        program.place(sent);
    }

    /// Counts a lost record; jumps to `end` if there is no counter.
    pub(crate) fn count_lost(&self, program: &mut Assembler, end: &Label) {
        program.store_value(R10, KEY, 0).map(R1, self.lost.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, end);
        // Two CPUs may count one loss together: the number is only shown.
        program.load(R1, R0, 0).add(R1, 1).store(R0, 0, R1);
    }
}

/// Facts about an object that is new.
enum Facts {
    /// Those of a GstPad.
    Pad,
    /// Name of the struct to which the object points at this offset.
    Name(i32),
    /// Filters of the graph of an AVFilterContext.
    Graph,
}

/// Offsets of the AVCodec in an AVCodecContext, and of the AVInputFormat and the AVOutputFormat in an AVFormatContext.
const CODEC: i32 = 16;
const INPUT: i32 = 8;
const OUTPUT: i32 = 16;

/// Begins the record: time, ids (also in R7), tag, and empty fields. Loses R0 to R5.
pub(crate) fn begin(program: &mut Assembler, tag: i32) {
    program.call(Helper::CurrentIds).copy(R7, R0);
    begin_call(program, tag);
    program.store_value(R10, FIELDS[0], 0);
}

/// Begins the record of a call of the thread whose ids are in R7: time, ids, tag, and empty fields behind the object. Loses R0
/// to R5.
fn begin_call(program: &mut Assembler, tag: i32) {
    program.call(Helper::Now).store(R10, AT, R0).store(R10, IDS, R7);
    program.store_value(R10, TAG, tag);
    for field in &FIELDS[1..] {
        program.store_value(R10, *field, 0);
    }
}

/// Jumps to `end` if the call, whose registers are at the address in R6, is not to be recorded. Loses R0 to R5, R8 and R9.
fn filter(program: &mut Assembler, filter: CallFilter, end: &Label) {
    match filter {
        CallFilter::All => {}
        CallFilter::Surface => {
            let is_wanted = program.label();
            program.load(R8, R6, registers::ARGUMENTS[1]).shift_left(R8, 32).shift_right(R8, 32);
            program.jump_if(R8, Condition::Equal, calls::ATTACH.into(), &is_wanted);
            program.jump_if(R8, Condition::NotEqual, calls::COMMIT.into(), end);
            program.place(is_wanted);
            // A wl_proxy begins with the address of its wl_interface, and that with the address of its name. What cannot be
            // read is 0.
            program.load(R9, R6, registers::ARGUMENTS[0]);
            for _ in 0..2 {
                read_user(program, SCRATCH, 8);
                program.load(R9, R10, SCRATCH);
            }
            read_user(program, SCRATCH, 8);
            program.add(R9, 7).store_value(R10, KEY, 0);
            read_user(program, KEY, 4);
            for (at, shift, wanted) in [(SCRATCH, 0, *b"wl_s"), (SCRATCH, 32, *b"urfa"), (KEY, 0, *b"ace\0")]
            {
                program.load(R1, R10, at).shift_left(R1, 32 - shift).shift_right(R1, 32);
                program.jump_if(R1, Condition::NotEqual, i32::from_le_bytes(wanted), end);
            }
        }
        CallFilter::NotTested => {
            let bit = i32::from(calls::TEST_ONLY);
            program.load(R8, R6, registers::ARGUMENTS[2]).shift_left(R8, 63 - bit).shift_right(R8, 63);
            program.jump_if(R8, Condition::NotEqual, 0, end);
        }
    }
}

/// Sets `register` to an address on the stack.
pub(crate) fn address(program: &mut Assembler, register: Register, at: i16) {
    program.copy(register, R10).add(register, at.into());
}

/// Stores the key of the running call of this thread (R7) and site.
pub(crate) fn key(program: &mut Assembler, index: i32) {
    program.copy(R1, R7).shift_left(R1, 32).or(R1, index).store(R10, KEY, R1);
}

/// Reads the fields of the item whose address is in R9. What cannot be read is 0.
fn read_item(program: &mut Assembler, item: CallItem) {
    if item == CallItem::None {
        return;
    }
    let end = program.label();
    if item == CallItem::BufferList {
        read_first_buffer(program, &end);
    }
    program.store(R10, FIELDS[1], R9);
    for (field, offset) in [(FIELDS[1], item.data_offset()), (FIELDS[2], item.pts_offset())] {
        let Some(offset) = offset else { continue };
        address(program, R1, field);
        program.set(R2, 8).copy(R3, R9).add(R3, offset).call(Helper::ReadUser);
    }
    program.place(end);
}

/// Sets R9, the address of a GstBufferList, to that of its first buffer. Jumps to `end` if the list is empty: its array may
/// have the address of a buffer that was in it.
fn read_first_buffer(program: &mut Assembler, end: &Label) {
    program.store(R10, STASH, R9).add(R9, LIST_LENGTH);
    read_user(program, SCRATCH, 4);
    program.load(R1, R10, SCRATCH).shift_left(R1, 32).jump_if(R1, Condition::Equal, 0, end);
    program.load(R9, R10, STASH).add(R9, LIST_BUFFERS);
    for _ in 0..2 {
        read_user(program, SCRATCH, 8);
        program.load(R9, R10, SCRATCH);
    }
}

/// Makes the record one with the name of the object whose address is in R8: that of the struct to which it points at
/// `offset`, whose first field is the name. Behind the object comes the word at 8, whose upper half is a codec's kind.
fn read_name(program: &mut Assembler, index: i32, offset: i32) {
    program.store_value(R10, TAG, index | NAMED);
    // Without the struct or the name, the reads fail and leave zeros.
    program.copy(R9, R8).add(R9, 8);
    read_user(program, FIELDS[1], 8);
    program.copy(R9, R8).add(R9, offset);
    for _ in 0..2 {
        read_user(program, SCRATCH, 8);
        program.load(R9, R10, SCRATCH);
    }
    read_text(program, FIELDS[2], NAME_BYTES as i32);
}

/// Reads `bytes` bytes of the process's memory at the address in R9 to the stack at `to`.
pub(crate) fn read_user(program: &mut Assembler, to: i16, bytes: i32) {
    address(program, R1, to);
    program.set(R2, bytes).copy(R3, R9).call(Helper::ReadUser);
}

/// Reads a text of the process's memory at the address in R9, up to its zero, to the stack at `to`: at most `bytes` bytes, of
/// which the last one is zero. What cannot be read is 0.
fn read_text(program: &mut Assembler, to: i16, bytes: i32) {
    address(program, R1, to);
    program.set(R2, bytes).copy(R3, R9).call(Helper::ReadUserText);
}

/// Jumps to `end` if `map` has no entry for the number in `register`, which is then at KEY.
pub(crate) fn lookup(program: &mut Assembler, map: &ProgramMap, register: Register, end: &Label) {
    program.store(R10, KEY, register).map(R1, map.as_fd());
    address(program, R2, KEY);
    program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, end);
}
