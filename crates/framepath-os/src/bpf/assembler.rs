// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of a BPF program, with labels for forward jumps.
//!
//! Source: RFC 9669, and the numbers of helper functions in linux/bpf.h.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Register of a program. R0 has results, R1 to R5 are arguments of helpers and lost by a call, R6 to R9 are kept,
/// R10 is the end of the stack of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    /// Result of a helper or of the program.
    R0,
    /// First argument; the context when the program begins.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Fifth argument.
    R5,
    /// Register that calls keep.
    R6,
    /// Register that calls keep.
    R7,
    /// Register that calls keep.
    R8,
    /// Register that calls keep.
    R9,
    /// Address behind the stack; read only.
    R10,
}

/// Helper function of the kernel (enum bpf_func_id).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: address of the value or 0.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`.
    MapUpdate = 2,
    /// `bpf_map_delete_elem(map, key)`.
    MapDelete = 3,
    /// `bpf_ktime_get_ns()`: CLOCK_MONOTONIC, nanoseconds.
    Now = 5,
    /// `bpf_get_current_pid_tgid()`: the process in the upper half, the thread in the lower half.
    CurrentIds = 14,
    /// `bpf_probe_read_user_str(to, bytes, from)`: reads the process's memory up to a zero, which is always written.
    ReadUserText = 114,
    /// `bpf_probe_read_user(to, size, address)`.
    ReadUser = 112,
    /// `bpf_probe_read_kernel(to, size, address)`.
    ReadKernel = 113,
    /// `bpf_ringbuf_output(ring, data, size, flags)`: 0 if there was room.
    RingOutput = 130,
    /// `bpf_get_current_task_btf()`: the current task.
    CurrentTask = 158,
    /// `bpf_task_pt_regs(task)`: the registers of the task's user mode.
    TaskRegisters = 175,
}

/// Condition of a jump that compares a register with a constant, without signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Equality.
    Equal = 0x15,
    /// Inequality.
    NotEqual = 0x55,
    /// Less or equal, without signs.
    NotAbove = 0xb5,
}

/// Place to which a jump leads.
#[derive(Debug)]
pub struct Label(usize);

/// Program that is being written.
#[derive(Debug, Default)]
pub struct Assembler {
    words: Vec<u64>,
    /// For each label, the indices of the jumps to it, and whether it has been placed.
    labels: Vec<(Vec<usize>, bool)>,
}

impl Assembler {
    /// Returns a program without instructions.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, value: i32) -> &mut Assembler {
        let registers = to as u8 | (from as u8) << 4;
        self.words.push(
            u64::from(code)
                | u64::from(registers) << 8
                | u64::from(offset as u16) << 16
                | u64::from(value as u32) << 32,
        );
        self
    }

    /// Copies `from` to `to`.
    pub fn copy(&mut self, to: Register, from: Register) -> &mut Assembler {
        self.push(0xbf, to, from, 0, 0)
    }

    /// Sets `to` to `value`, with its sign extended to 64 bits.
    pub fn set(&mut self, to: Register, value: i32) -> &mut Assembler {
        self.push(0xb7, to, Register::R0, 0, value)
    }

    /// Adds `value` to `to`.
    pub fn add(&mut self, to: Register, value: i32) -> &mut Assembler {
        self.push(0x07, to, Register::R0, 0, value)
    }

    /// Adds `what` to `to`.
    pub fn add_register(&mut self, to: Register, what: Register) -> &mut Assembler {
        self.push(0x0f, to, what, 0, 0)
    }

    /// Subtracts `what` from `from`.
    pub fn subtract(&mut self, from: Register, what: Register) -> &mut Assembler {
        self.push(0x1f, from, what, 0, 0)
    }

    /// Sets `to` to the bitwise or of `to` and `value`, whose sign is extended to 64 bits.
    pub fn or(&mut self, to: Register, value: i32) -> &mut Assembler {
        self.push(0x47, to, Register::R0, 0, value)
    }

    /// Shifts `to` to the left by `bits`.
    pub fn shift_left(&mut self, to: Register, bits: i32) -> &mut Assembler {
        self.push(0x67, to, Register::R0, 0, bits)
    }

    /// Shifts `to` to the right by `bits`, without its sign.
    pub fn shift_right(&mut self, to: Register, bits: i32) -> &mut Assembler {
        self.push(0x77, to, Register::R0, 0, bits)
    }

    /// Loads 8 bytes from `from` + `offset`.
    pub fn load(&mut self, to: Register, from: Register, offset: i16) -> &mut Assembler {
        self.push(0x79, to, from, offset, 0)
    }

    /// Stores the 8 bytes of `from` at `to` + `offset`.
    pub fn store(&mut self, to: Register, offset: i16, from: Register) -> &mut Assembler {
        self.push(0x7b, to, from, offset, 0)
    }

    /// Stores `value`, with its sign extended to 64 bits, at `to` + `offset`.
    pub fn store_value(&mut self, to: Register, offset: i16, value: i32) -> &mut Assembler {
        self.push(0x7a, to, Register::R0, offset, value)
    }

    /// Sets `to` to the address of the map with descriptor `map`, which has to stay open until the program is loaded.
    pub fn map(&mut self, to: Register, map: BorrowedFd<'_>) -> &mut Assembler {
        // BPF_PSEUDO_MAP_FD is 1; the instruction has two words.
        self.push(0x18, to, Register::R1, 0, map.as_raw_fd());
        self.words.push(0);
        self
    }

    /// Jumps to `label`.
    pub fn jump(&mut self, label: &Label) -> &mut Assembler {
        self.labels[label.0].0.push(self.words.len());
        self.push(0x05, Register::R0, Register::R0, 0, 0)
    }

    /// Calls `helper` with its arguments in R1 to R5.
    pub fn call(&mut self, helper: Helper) -> &mut Assembler {
        self.push(0x85, Register::R0, Register::R0, 0, helper as i32)
    }

    /// Calls the kernel's function with the number `function` in its type information ([`Btf::function`](super::btf::Btf::function)),
    /// with its arguments in R1 to R5.
    pub fn call_kernel(&mut self, function: u32) -> &mut Assembler {
        // BPF_PSEUDO_KFUNC_CALL is 2.
        self.push(0x85, Register::R0, Register::R2, 0, function as i32)
    }

    /// Returns a label that has no place yet.
    pub fn label(&mut self) -> Label {
        self.labels.push((Vec::new(), false));
        Label(self.labels.len() - 1)
    }

    /// Jumps to `label` if `register` compared with `value` fulfils `condition`.
    pub fn jump_if(
        &mut self,
        register: Register,
        condition: Condition,
        value: i32,
        label: &Label,
    ) -> &mut Assembler {
        self.labels[label.0].0.push(self.words.len());
        self.push(condition as u8, register, Register::R0, 0, value)
    }

    /// Places `label` in front of the next instruction. The verifier refuses jumps back, so it must be placed once and
    /// behind all its jumps.
    ///
    /// # Panics
    /// The label has been placed, or a jump is too long.
    pub fn place(&mut self, label: Label) -> &mut Assembler {
        let here = self.words.len();
        let (jumps, is_placed) = &mut self.labels[label.0];
        assert!(!std::mem::replace(is_placed, true), "a label has one place");
        for jump in jumps.drain(..) {
            let offset = i16::try_from(here - jump - 1).expect("a short jump");
            self.words[jump] |= u64::from(offset as u16) << 16;
        }
        self
    }

    /// Ends the program with the result `value`.
    pub fn exit(&mut self, value: i32) -> &mut Assembler {
        self.set(Register::R0, value);
        self.push(0x95, Register::R0, Register::R0, 0, 0)
    }

    /// Returns the instructions, 8 bytes each.
    ///
    /// # Panics
    /// A jump leads to a label without a place.
    pub fn words(&self) -> &[u64] {
        assert!(self.labels.iter().all(|(jumps, _)| jumps.is_empty()), "every label has a place");
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R10};
    use super::*;

    #[test]
    fn instructions_have_the_encoding_of_the_kernel() {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(R1, R10, -8).jump_if(R1, Condition::Equal, 7, &end).store_value(R10, -16, -1);
        program.call(Helper::Now).place(end).exit(0);
        let bytes: Vec<[u8; 8]> = program.words().iter().map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[0], [0x79, 0xa1, 0xf8, 0xff, 0, 0, 0, 0]);
        // Over two instructions.
        assert_eq!(bytes[1], [0x15, 0x01, 2, 0, 7, 0, 0, 0]);
        assert_eq!(bytes[2], [0x7a, 0x0a, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[3], [0x85, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes[4], [0xb7, R0 as u8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[5], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "every label has a place")]
    fn a_label_without_a_place_is_no_program() {
        let mut program = Assembler::new();
        let label = program.label();
        program.jump_if(R1, Condition::Equal, 0, &label).exit(0);
        program.words();
    }
}
