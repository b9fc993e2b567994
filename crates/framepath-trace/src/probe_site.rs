// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the instruction at which a function is probed.
//!
//! The kernel emulates a few instructions, and steps through the others one by one, which takes ten times as long.
//! Most functions push registers within their first instructions, and a push is emulated.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.

use crate::calls;

/// Instructions of a function at which probes are cheap, as distances from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeSite {
    /// Instruction for the function's begin: its first arguments are still in their registers.
    pub enter: u64,
    /// Instruction for the function's return: the return address is still on top of the stack.
    pub leave: u64,
    /// Number of these two instructions that the kernel emulates.
    pub emulated: usize,
}

/// Looks at this many instructions at most.
const MOST: usize = 16;

/// Chooses the instructions in `code`, the bytes of a function for x86-64 of which the first `arguments` arguments are looked
/// at.
pub fn choose(code: &[u8], arguments: usize) -> ProbeSite {
    let arguments = &ARGUMENTS[..arguments.min(ARGUMENTS.len())];
    let kind = |code: &[u8]| kind(code, arguments);
    // `endbr64`, which marks targets of indirect jumps, changes nothing.
    let start = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    let is_emulated = |at: usize| matches!(code.get(at..).and_then(kind), Some(Kind::Emulated));
    if let Some(jump) = tail_call(code, start, arguments) {
        return ProbeSite { enter: jump as u64, leave: jump as u64, emulated: 2 };
    }
    let leave = (start as u64, usize::from(is_emulated(start)));
    let mut at = start;
    for _ in 0..MOST {
        match code.get(at..).and_then(kind) {
            Some(Kind::Emulated) => {
                // Up to here, only instructions have passed that leave the stack as it was, or `sub rsp`.
                return ProbeSite { enter: at as u64, leave: leave.0, emulated: 1 + leave.1 };
            }
            Some(Kind::Harmless(bytes)) => at += bytes,
            None => break,
        }
    }
    ProbeSite { enter: 0, leave: leave.0, emulated: leave.1 }
}

/// Finds the jump with which a function that only checks its stack ends: to the function that does its work. There, the
/// arguments are still in their registers, and the return address is on top of the stack again. `None` if the function has
/// another branch before that, or begins with an instruction that is emulated anyway.
fn tail_call(code: &[u8], start: usize, arguments: &[u8]) -> Option<usize> {
    // sub rsp, imm8; it is added again before the jump.
    let [0x48, 0x83, 0xec, bytes, ..] = *code.get(start..)? else { return None };
    let mut at = start + 4;
    let mut is_checked = false;
    for _ in 0..MOST {
        let rest = code.get(at..)?;
        match *rest {
            [0x48, 0x83, 0xc4, added, ..] if added == bytes => {
                let jump = at + 4;
                return matches!(code.get(jump), Some(0xe9 | 0xeb)).then_some(jump);
            }
            // sub rax, fs:[imm32] compares the value against overflows; then comes a jump that is never taken.
            [0x64, 0x48, 0x2b, ..] => (at, is_checked) = (at + 9, true),
            [0x75, _, ..] if is_checked => (at, is_checked) = (at + 2, false),
            [0x0f, 0x85, ..] if is_checked => (at, is_checked) = (at + 6, false),
            _ => match kind(rest, arguments)? {
                Kind::Harmless(bytes) => at += bytes,
                Kind::Emulated => return None,
            },
        }
    }
    None
}

enum Kind {
    /// The kernel emulates it.
    Emulated,
    /// It has this many bytes and does not change the registers of the arguments.
    Harmless(usize),
}

/// Numbers of the registers with the first arguments: rdi, rsi and rdx.
const ARGUMENTS: [u8; calls::ARGUMENTS] = [7, 6, 2];

/// Returns what the first instruction of `code` is; `None` if it is not known. `arguments` are the registers to keep.
fn kind(code: &[u8], arguments: &[u8]) -> Option<Kind> {
    // mov rax, fs:[imm32] and sub rax, fs:[imm32]: the value against overflows of the stack.
    if matches!(code, [0x64, 0x48, 0x8b | 0x2b, 0x04, 0x25, ..]) {
        return Some(Kind::Harmless(9));
    }
    let rex = code.first().copied().filter(|byte| byte & 0xf0 == 0x40);
    let prefix = usize::from(rex.is_some());
    let rex = rex.unwrap_or(0);
    let byte = |at: usize| code.get(prefix + at).copied();
    let operation = byte(0)?;
    // Number of a register, with the fourth bit from the prefix.
    let register = |bits: u8, rex_bit: u8| bits & 7 | (rex >> rex_bit & 1) << 3;
    let unless_argument = |register: u8, bytes: usize| {
        (!arguments.contains(&register)).then_some(Kind::Harmless(prefix + bytes))
    };
    match operation {
        // push r64; call rel32.
        0x50..=0x57 => Some(Kind::Emulated),
        0xe8 if prefix == 0 => Some(Kind::Emulated),
        // A nop of one byte. Longer ones are left alone, because kernels may rewrite them.
        0x90 if prefix == 0 => Some(Kind::Emulated),
        // A short or near conditional jump.
        0x70..=0x7f if prefix == 0 => Some(Kind::Emulated),
        0x0f if prefix == 0 && byte(1)? & 0xf0 == 0x80 => Some(Kind::Emulated),
        // test r, r and cmp r, r between registers.
        0x84 | 0x85 | 0x38..=0x3b if byte(1)? >> 6 == 3 => Some(Kind::Harmless(prefix + 2)),
        // mov, xor, or, and, add, sub of registers: to the register of the lower bits.
        0x89 | 0x31 | 0x09 | 0x21 | 0x01 | 0x29 if byte(1)? >> 6 == 3 => {
            unless_argument(register(byte(1)?, 0), 2)
        }
        // mov and xor of registers: to the register of the upper bits.
        0x8b | 0x33 if byte(1)? >> 6 == 3 => unless_argument(register(byte(1)? >> 3, 2), 2),
        // mov (to a register, and from one) and lea with an address: rm 4 has a byte more, and without an offset rm 5 is
        // relative to rip.
        0x89 | 0x8b | 0x8d if byte(1)? >> 6 != 3 => {
            let (mode, rm) = (byte(1)? >> 6, byte(1)? & 7);
            let offset = match (mode, rm) {
                (0, 5) => 4,
                (0, 4) if byte(2)? & 7 == 5 => 4,
                (0, _) => 0,
                (1, _) => 1,
                _ => 4,
            };
            let bytes = 2 + usize::from(rm == 4) + offset;
            match operation {
                0x89 => Some(Kind::Harmless(prefix + bytes)),
                _ => unless_argument(register(byte(1)? >> 3, 2), bytes),
            }
        }
        // mov r32, imm32.
        0xb8..=0xbf if rex & 8 == 0 => unless_argument(register(operation, 0), 5),
        // add, or, and, sub, xor, cmp of a register with imm8 or imm32; `sub rsp` among them.
        0x83 if byte(1)? >> 6 == 3 => unless_argument(register(byte(1)?, 0), 3),
        0x81 if byte(1)? >> 6 == 3 => unless_argument(register(byte(1)?, 0), 6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(enter: u64, leave: u64, emulated: usize) -> ProbeSite {
        ProbeSite { enter, leave, emulated }
    }

    #[test]
    fn the_first_emulated_instruction_before_an_argument_changes_is_chosen() {
        // push r15.
        assert_eq!(choose(&[0x41, 0x57, 0x48], 2), site(0, 0, 2));
        // endbr64; push rbp.
        assert_eq!(choose(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], 2), site(4, 4, 2));
        // test rsi, rsi; je.
        assert_eq!(choose(&[0x48, 0x85, 0xf6, 0x74, 0x10], 2), site(3, 0, 1));
        // mov eax, [rdi+0x88]; sub rsp, 8; test eax, eax; jne near.
        let code = [0x8b, 0x87, 0x88, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0x85, 0xc0, 0x0f, 0x85, 0, 0, 0, 0];
        assert_eq!(choose(&code, 2), site(12, 0, 1));
        // sub rsp, 0x18; mov rax, fs:0x28; mov [rsp+8], rax; xor eax, eax; call.
        let protected = [
            0x48, 0x83, 0xec, 0x18, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0x48, 0x89, 0x44, 0x24, 8,
            0x31, 0xc0, 0xe8,
        ];
        assert_eq!(choose(&protected, 2), site(20, 0, 1));
        // The same, compared at once: mov rax, [rsp+8]; sub rax, fs:0x28; jne.
        let mut compared = protected[..20].to_vec();
        compared.extend([0x48, 0x8b, 0x44, 0x24, 8, 0x64, 0x48, 0x2b, 0x04, 0x25, 0x28, 0, 0, 0, 0x75, 0x16]);
        assert_eq!(choose(&compared, 2), site(34, 0, 1));
        // Then it gives its work to another function: mov rax, [rdi+0x20]; mov ecx, [rax+0xc4]; add rsp, 0x18; jmp.
        compared.extend([
            0x48, 0x8b, 0x47, 0x20, 0x8b, 0x88, 0xc4, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0xe9, 0, 0, 0, 0,
        ]);
        assert_eq!(choose(&compared, 2), site(50, 50, 2));
        // Another branch in front of the jump could leave it out.
        let mut branched = compared.clone();
        branched.splice(46..46, [0x85, 0xc0, 0x74, 0x10]);
        assert_eq!(choose(&branched, 2), site(34, 0, 1));
        // mov rdi, rsi comes before the push: the first instruction, which is not emulated.
        assert_eq!(choose(&[0x48, 0x89, 0xf7, 0x53], 2), site(0, 0, 0));
        // xor esi, esi.
        assert_eq!(choose(&[0x31, 0xf6, 0x53], 2), site(0, 0, 0));
        // mov r14, rdi (a register with a prefix); push rbx.
        assert_eq!(choose(&[0x49, 0x89, 0xfe, 0x53], 2), site(3, 0, 1));
        // mov edx, eax; push rbx: the third argument matters only where it is looked at.
        assert_eq!(choose(&[0x89, 0xc2, 0x53], 2), site(2, 0, 1));
        assert_eq!(choose(&[0x89, 0xc2, 0x53], 3), site(0, 0, 0));
        // An unknown instruction, and bytes that end too early.
        assert_eq!(choose(&[0x0f, 0x05, 0x53], 2), site(0, 0, 0));
        for end in 0..code.len() {
            let _ = choose(&code[..end], 2);
        }
    }
}
