// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs that follow the traced processes: what they start and execute, and which threads they wake up.

use std::os::fd::AsFd;

use framepath_os::bpf::assembler::Register::{R0, R1, R2, R3, R4, R7, R8, R9, R10};
use framepath_os::bpf::assembler::{Assembler, Condition, Helper, Register};

use crate::own_user::OwnUser;
use crate::probe_programs::{FIELDS, KEY, Maps, SCRATCH, STASH, TAG_WOKEN, address, begin, lookup};
use crate::switch_program::TaskMembers;

impl Maps<'_> {
    /// Program at the wake-up of a thread, which has its state at `state` still.
    pub(crate) fn waking(&self, [pid, tgid]: [u32; 2], state: u32) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(R9, R1, 0);
        read_kernel(&mut program, R8, R9, tgid);
        begin(&mut program, TAG_WOKEN);
        lookup(&mut program, self.traced, R8, &end);
        read_kernel(&mut program, R8, R9, pid);
        program.store(R10, FIELDS[0], R8);
        read_kernel(&mut program, R8, R9, state);
        program.store(R10, FIELDS[1], R8);
        self.send(&mut program);
        program.place(end).exit(0);
        program
    }

    /// Program at the start of a thread or process: the children of a traced process are traced.
    pub(crate) fn fork(&self, [_, tgid]: [u32; 2]) -> Assembler {
        let mut program = Assembler::new();
        let (end, untraced) = (program.label(), program.label());
        program.load(R9, R1, 8);
        read_kernel(&mut program, R9, R9, tgid);
        program.call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &untraced);
        // A thread of the same process is traced.
        program.copy(R1, R8).subtract(R1, R9).jump_if(R1, Condition::Equal, 0, &end);
        program.store(R10, KEY, R9).map(R1, self.traced.as_fd());
        address(&mut program, R2, KEY);
        program.store_value(R10, STASH, 1);
        address(&mut program, R3, STASH);
        program.set(R4, 0).call(Helper::MapUpdate);
        program.jump(&end);
        // The number may be that of a traced process that has ended.
        program.place(untraced).store(R10, KEY, R9).map(R1, self.traced.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapDelete);
        program.place(end).exit(0);
        program
    }

    /// Program behind exec, before the program's first instruction. A process that executes a program with the rights of another user
    /// or group (set-user-ID, set-group-ID) is not traced from here on.
    pub(crate) fn exec(&self, task: &TaskMembers, own: OwnUser) -> Assembler {
        let mut program = Assembler::new();
        let (end, other) = (program.label(), program.label());
        program.call(Helper::CurrentIds).copy(R7, R0);
        self.unless_traced(&mut program, &end);
        program.call(Helper::CurrentTask).copy(R9, R0);
        address(&mut program, R1, STASH);
        program.set(R2, 8).copy(R3, R9).add(R3, task.cred as i32).call(Helper::ReadKernel);
        program.load(R9, R10, STASH);
        for (member, id) in task.effective.into_iter().zip([own.user, own.group]) {
            // An id that cannot be read counts as 0, that of root.
            read_kernel(&mut program, R1, R9, member);
            program.set(R2, id as i32).shift_left(R2, 32).shift_left(R1, 32).subtract(R1, R2);
            program.jump_if(R1, Condition::NotEqual, 0, &other);
        }
        program.exit(0).place(other).store(R10, KEY, R8).map(R1, self.traced.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapDelete).place(end).exit(0);
        program
    }
}

/// Reads the 32 bits at `offset` of the kernel's struct at `from` into `to`.
fn read_kernel(program: &mut Assembler, to: Register, from: Register, offset: u32) {
    program.store_value(R10, SCRATCH, 0);
    address(program, R1, SCRATCH);
    program.set(R2, 4).copy(R3, from).add(R3, offset as i32).call(Helper::ReadKernel);
    program.load(to, R10, SCRATCH);
}
