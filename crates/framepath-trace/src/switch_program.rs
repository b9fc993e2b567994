// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF program at a switch of threads: the CPU clock of the thread that leaves its CPU, and why it leaves.
//!
//! Source of the struct members: include/linux/sched.h, include/linux/cred.h and kernel/sched/sched.h of the kernel, whose type information has
//! their offsets. A member that a kernel lacks reads as 0.

use std::os::fd::AsFd;

use framepath_os::bpf::assembler::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use framepath_os::bpf::assembler::{Assembler, Condition, Helper};
use framepath_os::bpf::btf::Btf;

use crate::probe_event::{SwitchOut, SwitchReason, SystemCall};
use crate::probe_programs::{Maps, NO_WAKEUP, SCRATCH, TAG_SWITCHED, address, read_user, registers};
use crate::timed_wait::{LimitKind, TIMED_WAITS, limit_ns};
use crate::wait_object::POLLED;
use crate::wait_reason::WaitCall;

/// Number of words of a record.
const WORDS: usize = 16 + POLLED;

// Record: below the places of the other programs.
const RECORD: i16 = SCRATCH - 8 * WORDS as i16;
const AT: i16 = RECORD;
const IDS: i16 = RECORD + 8;
const TAG: i16 = RECORD + 16;
const CLOCK: i16 = RECORD + 24;
const STATE: i16 = RECORD + 32;
const THROTTLED: i16 = RECORD + 40;
/// Bytes with the bits `frozen` and `in_memstall`.
const BITS: i16 = RECORD + 48;
/// Two words: counts of minor and major page faults.
const FAULTS: i16 = RECORD + 56;
const NUMBER: i16 = RECORD + 72;
/// Two words.
const ARGUMENTS: i16 = RECORD + 80;
const LIMIT: i16 = RECORD + 96;
/// Two words: the time at the address of the limit.
const TIME: i16 = RECORD + 104;
const QUEUE: i16 = RECORD + 120;
/// [`POLLED`] words.
const POLL: i16 = RECORD + 128;

/// States of a thread (linux/sched.h): stopped by a signal, by a debugger, and by the freezer of cgroup version 1.
const STOPPED: u64 = 0x4 | 0x8 | FROZEN;

/// State of a thread that the freezer of cgroup version 1 has stopped, or has found waiting, since Linux 6.1.
pub(crate) const FROZEN: u64 = 0x8000;

/// Places of the members of a thread's `task_struct`, bytes.
#[derive(Clone, Debug)]
pub(crate) struct TaskMembers {
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) state: u32,
    /// Pointer to the thread's `cred`.
    pub(crate) cred: u32,
    /// Effective user and group in `cred`.
    pub(crate) effective: [u32; 2],
    clock: u32,
    faults: [u32; 2],
    quota: Option<QuotaMark>,
    /// Byte and bit of `frozen`: the freezer of cgroup version 2.
    frozen: Option<(u32, u32)>,
    /// Byte and bit of `in_memstall`: the kernel makes room in memory for the thread.
    reclaim: Option<(u32, u32)>,
}

/// Mark of a thread whose group has used up its CPU quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuotaMark {
    /// `task_struct.throttled`, since Linux 6.18.
    Task(u32),
    /// `cfs_rq.throttle_count` of the thread's queue, which is at the second place behind the pointer at the first one.
    Queue(u32, u32),
}

impl TaskMembers {
    /// Finds the members of the running kernel; `None` if it lacks one that every kernel has.
    pub(crate) fn of(types: &Btf) -> Option<TaskMembers> {
        let [pid, tgid, state, entity] = types.offsets("task_struct", ["pid", "tgid", "__state", "se"])?;
        let [cred] = types.offsets("task_struct", ["cred"])?;
        let effective = types.offsets("cred", ["euid", "egid"])?;
        let [clock] = types.offsets("sched_entity", ["sum_exec_runtime"])?;
        let faults = types.offsets("task_struct", ["min_flt", "maj_flt"])?;
        let of_task = types.offsets("task_struct", ["throttled"]).map(|[at]| QuotaMark::Task(at));
        let of_queue = || {
            let [queue] = types.offsets("sched_entity", ["cfs_rq"])?;
            let [count] = types.offsets("cfs_rq", ["throttle_count"])?;
            Some(QuotaMark::Queue(entity + queue, count))
        };
        let bit = |member| types.bit_offset("task_struct", member).map(|bits| (bits / 8, bits % 8));
        Some(TaskMembers {
            pid,
            tgid,
            state,
            cred,
            effective,
            clock: entity + clock,
            faults,
            quota: of_task.or_else(of_queue),
            frozen: bit("frozen"),
            reclaim: bit("in_memstall"),
        })
    }

    /// True if the kernel tells which threads wait for the CPU quota of their group.
    pub(crate) fn knows_quotas(&self) -> bool {
        self.quota.is_some()
    }

    /// Returns the switch of a record; `None` if it is too short. CLOCK_REALTIME is ahead of CLOCK_MONOTONIC by `ahead_ns`.
    pub(crate) fn switch(&self, words: &[u64], ahead_ns: u64) -> Option<SwitchOut> {
        let [
            at_ns,
            ids,
            _,
            clock_ns,
            state,
            throttled,
            bits,
            minor,
            major,
            number,
            first,
            second,
            limit,
            time,
            part,
            queue,
            polled @ ..,
        ] = *words.first_chunk::<WORDS>()?;
        let is_set = |byte: usize, bit: Option<(u32, u32)>| {
            bit.is_some_and(|(_, bit)| bits >> (8 * byte) >> bit & 1 == 1)
        };
        let number = i64::from(number as i32);
        let reason = match state {
            0 if throttled != 0 => SwitchReason::Throttled,
            0 => SwitchReason::Preempted,
            _ if state & STOPPED != 0 || is_set(0, self.frozen) => SwitchReason::Stopped,
            _ => SwitchReason::Waits(SystemCall {
                number,
                arguments: [first, second],
                polled,
                limit_ns: limit_ns(at_ns, number, [second, limit], [time, part], ahead_ns),
                is_reclaim: is_set(1, self.reclaim),
                ..SystemCall::default()
            }),
        };
        let (process, thread) = ((ids >> 32) as i32, ids as i32);
        Some(SwitchOut { at_ns, process, thread, reason, queue, clock_ns, faults: [minor, major] })
    }
}

impl Maps<'_> {
    /// Program at a switch of threads.
    pub(crate) fn switch(&self, task: &TaskMembers) -> Assembler {
        let mut program = Assembler::new();
        let (end, send) = (program.label(), program.label());
        program.copy(R6, R1).call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.call(Helper::Now).store(R10, AT, R0).store(R10, IDS, R7);
        for word in 2..WORDS as i16 {
            program.store_value(R10, RECORD + 8 * word, 0);
        }
        program.store_value(R10, TAG, TAG_SWITCHED).call(Helper::CurrentTask).copy(R9, R0);
        read_task(&mut program, CLOCK, task.clock, 8);
        for (number, member) in task.faults.into_iter().enumerate() {
            read_task(&mut program, FAULTS + 8 * number as i16, member, 8);
        }
        match task.quota {
            Some(QuotaMark::Task(member)) => read_task(&mut program, THROTTLED, member, 1),
            Some(QuotaMark::Queue(queue, count)) => {
                read_task(&mut program, QUEUE, queue, 8);
                address(&mut program, R1, THROTTLED);
                program.set(R2, 4).load(R3, R10, QUEUE).add(R3, count as i32).call(Helper::ReadKernel);
            }
            None => {}
        }
        // Arguments: preempt, prev, next, and since Linux 5.18 the state of prev; 0 is runnable.
        program.load(R1, R6, 24).store(R10, STATE, R1).jump_if(R1, Condition::Equal, 0, &send);
        for (byte, member) in [task.frozen, task.reclaim].into_iter().enumerate() {
            if let Some((member, _)) = member {
                read_task(&mut program, BITS + byte as i16, member, 1);
            }
        }
        program.copy(R1, R9).call(Helper::TaskRegisters).copy(R8, R0);
        program.load(R7, R8, registers::SYSTEM_CALL).store(R10, NUMBER, R7);
        for (number, register) in registers::CALL_ARGUMENTS[..2].iter().enumerate() {
            program.load(R1, R8, *register).store(R10, ARGUMENTS + 8 * number as i16, R1);
        }
        read_limit(&mut program);
        read_polled(&mut program);
        program.place(send).map(R1, self.ring.as_fd());
        address(&mut program, R2, RECORD);
        program.set(R3, 8 * WORDS as i32).set(R4, NO_WAKEUP).call(Helper::RingOutput);
        program.jump_if(R0, Condition::Equal, 0, &end);
        self.count_lost(&mut program, &end);
        program.place(end).exit(0);
        program
    }
}

/// Reads `bytes` bytes at `member` of the task whose address is in R9 to the stack at `to`.
fn read_task(program: &mut Assembler, to: i16, member: u32, bytes: i32) {
    address(program, R1, to);
    program.set(R2, bytes).copy(R3, R9).add(R3, member as i32).call(Helper::ReadKernel);
}

/// Stores the limit of a wait: the number of the system call is in R7, the address of its registers in R8. Loses R9.
fn read_limit(program: &mut Assembler) {
    let (end, has_address) = (program.label(), program.label());
    for wait in TIMED_WAITS {
        let next = program.label();
        program.jump_if(R7, Condition::NotEqual, wait.number as i32, &next);
        program.load(R9, R8, registers::CALL_ARGUMENTS[wait.place]).store(R10, LIMIT, R9);
        program.jump(if wait.limit == LimitKind::Milliseconds { &end } else { &has_address });
        program.place(next);
    }
    program.jump(&end);
    program.place(has_address);
    program.jump_if(R9, Condition::Equal, 0, &end);
    read_user(program, TIME, 16);
    program.place(end);
}

/// Stores the first descriptors of a poll(2), or the first words of the sets of a select(2): the registers are as for
/// [`read_limit`].
fn read_polled(program: &mut Assembler) {
    let end = program.label();
    for wait in TIMED_WAITS {
        let next = program.label();
        program.jump_if(R7, Condition::NotEqual, wait.number as i32, &next);
        match WaitCall::of(wait.number) {
            WaitCall::Poll => {
                // Each entry is read alone, because the memory behind a shorter array may not be readable.
                for place in 0..POLLED as i16 {
                    program.load(R9, R8, registers::CALL_ARGUMENTS[0]).add(R9, 8 * i32::from(place));
                    read_user(program, POLL + 8 * place, 8);
                }
            }
            WaitCall::Select => {
                for place in 0..2 {
                    program.load(R9, R8, registers::CALL_ARGUMENTS[1 + place]);
                    read_user(program, POLL + 8 * place as i16, 8);
                }
            }
            _ => {}
        }
        program.jump(&end);
        program.place(next);
    }
    program.place(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_why_the_thread_left_its_cpu() {
        let members = TaskMembers {
            pid: 0,
            tgid: 4,
            state: 6,
            cred: 0,
            effective: [0, 4],
            clock: 8,
            faults: [16, 24],
            quota: Some(QuotaMark::Task(32)),
            frozen: Some((40, 4)),
            reclaim: Some((40, 6)),
        };
        let mut words = [0; WORDS];
        (words[0], words[1], words[3]) = (1_000, 7 << 32 | 8, 500);
        let reason = |words: &[u64]| members.switch(words, 0).map(|switch| switch.reason);
        assert_eq!(reason(&words), Some(SwitchReason::Preempted));
        words[5] = 1;
        assert_eq!(reason(&words), Some(SwitchReason::Throttled));
        words[4] = 0x104;
        assert_eq!(reason(&words), Some(SwitchReason::Stopped));
        // The freezer of version 2, whose threads are in an ordinary wait; then one that makes room in memory.
        (words[4], words[6], words[9]) = (1, 1 << 4, u64::from(-1i32 as u32));
        assert_eq!(reason(&words), Some(SwitchReason::Stopped));
        words[6] = 1 << 14;
        let wait = SystemCall { number: -1, is_reclaim: true, ..SystemCall::default() };
        assert_eq!(reason(&words), Some(SwitchReason::Waits(wait)));
        assert_eq!(members.switch(&words[1..], 0), None);
    }
}
