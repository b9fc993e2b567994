// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of traced processes that copy memory: `memcpy` and `memmove` of the C library.
//!
//! A C library has several of each, and chooses by the processor when it is loaded; the chosen ones have no names in the
//! file. So their addresses are read from where a library of the process keeps them for its calls, and their lengths from
//! the table by which functions are unwound. Source of its format: Linux Standard Base Core, "The .eh_frame_hdr section".

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};
use framepath_os::process::memory_words::memory_words;
use framepath_os::process::regular_file::RegularFile;
use object::ReadCache;

use crate::elf_file::ElfFile;
use crate::library::{MappedPart, code_files, mappings};
use crate::patience::Patience;

/// Time on a CPU between two samples of a thread, nanoseconds: no multiple or part of the times that programs and
/// kernels like to wait for.
pub(crate) const SAMPLE_NS: u64 = 997_000;

/// Names of the functions.
const NAMES: [&str; 2] = ["memcpy", "memmove"];

/// Beginnings of the names of libraries that call the functions. Others are looked at after them.
const CALLERS: [&str; 4] = ["libav", "libsw", "libgst", "libc.so"];

/// Number of samples of a process for which the functions are looked for. A library that resolves calls lazily knows
/// the address only behind the first call.
const TRIES: u32 = 200;

/// Time in which the functions of a process are looked for: a program can map any number of files.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest time of a read of a process's memory.
const READ: Duration = Duration::from_millis(200);

/// Length below which a function is the short begin of another one, which follows it in the file, bytes.
const BEGIN_BYTES: u64 = 512;

/// Functions that copy memory, of all processes of a recording.
#[derive(Debug)]
pub(crate) struct CopyFunctions {
    processes: HashMap<i32, KnownFunctions>,
    /// Time of the tries for all processes.
    patience: Patience,
}

/// Functions of one process.
#[derive(Debug, Default)]
struct KnownFunctions {
    /// Addresses of their instructions.
    ranges: Vec<Range<u64>>,
    tries: u32,
    /// Time that the tries took.
    spent: Duration,
}

impl CopyFunctions {
    pub(crate) fn new() -> CopyFunctions {
        CopyFunctions { processes: HashMap::new(), patience: Patience::new() }
    }

    /// Returns false for a sample outside of the functions. Must get all events, in the order of their times, soon after
    /// them: a process that has ended has no memory to look at.
    pub(crate) fn is_wanted(&mut self, event: &ThreadEvent) -> bool {
        match event.kind {
            ThreadEventKind::Sampled { address } => self.contains(event.process, address),
            ThreadEventKind::Named { is_exec: true, .. } => {
                self.processes.remove(&event.process);
                true
            }
            ThreadEventKind::Mapped { .. } => false,
            _ => true,
        }
    }

    /// Returns the processes whose functions are known.
    pub(crate) fn known(&self) -> HashSet<i32> {
        let known = self.processes.iter().filter(|(_, known)| !known.ranges.is_empty());
        known.map(|(process, _)| *process).collect()
    }

    fn contains(&mut self, process: i32, address: u64) -> bool {
        let known = self.processes.entry(process).or_default();
        let patience = PATIENCE.saturating_sub(known.spent).min(self.patience.left());
        if known.ranges.is_empty() && known.tries < TRIES && !patience.is_zero() {
            let begun = Instant::now();
            known.tries += 1;
            match find(process.unsigned_abs(), begun + patience) {
                Ok(ranges) => known.ranges = ranges,
                // A read that never ends keeps a process: no second one.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => known.tries = TRIES,
                // The process has ended or its memory is another user's.
                Err(_) => {}
            }
            known.spent += begun.elapsed();
            self.patience.spend(begun);
        }
        known.ranges.iter().any(|range| range.contains(&address))
    }
}

/// Finds the functions of a process. Empty if no library knows them yet. Looks at no further file behind `deadline`.
fn find(process: u32, deadline: Instant) -> io::Result<Vec<Range<u64>>> {
    let mappings = mappings(process)?;
    let mut files = code_files(&mappings);
    let rank = |mapping: &MappedPart| CALLERS.iter().position(|name| mapping.file.name.starts_with(name));
    files.sort_by_key(|mapping| rank(mapping).unwrap_or(CALLERS.len()));
    for caller in files {
        if Instant::now() > deadline {
            break;
        }
        let Ok(file) = RegularFile::open_chosen(&caller.file.path, process) else { continue };
        let content = ReadCache::new(file.file());
        let Ok(elf) = ElfFile::parse(&content) else { continue };
        let Some(base) = base(&elf, caller) else { continue };
        let mut ranges = Vec::new();
        let slots: Vec<u64> = elf.slots(&NAMES).into_iter().map(|slot| base.wrapping_add(slot)).collect();
        if slots.is_empty() {
            continue;
        }
        for function in memory_words(process, &slots, READ)?.into_iter().flatten() {
            let inside = mappings.iter().find(|mapping| mapping.is_code && mapping.range.contains(&function));
            // An address in the caller itself leads to the loader, which has not looked for the function yet.
            if let Some(target) = inside.filter(|target| target.file.identity != caller.file.identity) {
                ranges.extend(extent(process, target, function));
            }
        }
        if !ranges.is_empty() {
            return Ok(ranges);
        }
    }
    Ok(Vec::new())
}

/// Returns what must be added to an address in the file for the address in the process.
fn base(elf: &ElfFile<'_>, mapping: &MappedPart) -> Option<u64> {
    Some(mapping.range.start.wrapping_sub(elf.code_address(mapping.offset)?))
}

/// Returns the addresses of a function's instructions in `process`.
fn extent(process: u32, mapping: &MappedPart, function: u64) -> Option<Range<u64>> {
    let file = RegularFile::open_chosen(&mapping.file.path, process).ok()?;
    let content = ReadCache::new(file.file());
    let elf = ElfFile::parse(&content).ok()?;
    let base = base(&elf, mapping)?;
    let first = elf.function_at(function.wrapping_sub(base))?;
    let mut end = first.end;
    if first.end - first.start < BEGIN_BYTES {
        // Functions begin at multiples of 64 bytes.
        end = first
            .end
            .checked_next_multiple_of(64)
            .and_then(|at| elf.function_at(at))
            .map_or(end, |next| next.end);
    }
    Some(base.wrapping_add(first.start)..base.wrapping_add(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of this process are those that the loader finds, and copying runs inside them.
    #[test]
    fn the_functions_of_a_process_are_found() {
        let ranges = find(std::process::id(), Instant::now() + PATIENCE).unwrap();
        // The loader has put the address of the chosen function into this program.
        for (name, address) in
            [("memcpy", libc::memcpy as *const () as u64), ("memmove", libc::memmove as *const () as u64)]
        {
            let range = ranges.iter().find(|range| range.contains(&address));
            let range = range.unwrap_or_else(|| panic!("{name} at {address:x} is not in {ranges:x?}"));
            assert!((64..65_536).contains(&(range.end - range.start)), "{range:x?}");
        }
        let mut functions = CopyFunctions::new();
        let process = std::process::id() as i32;
        let sample = |address| ThreadEvent {
            process,
            thread: 1,
            at_ns: 1,
            kind: ThreadEventKind::Sampled { address },
        };
        assert!(functions.is_wanted(&sample(ranges[0].start)));
        assert!(!functions.is_wanted(&sample(find as fn(u32, Instant) -> _ as usize as u64)));
        assert_eq!(functions.known(), HashSet::from([process]));
        let kind = ThreadEventKind::Named { name: String::new(), is_exec: true };
        assert!(functions.is_wanted(&ThreadEvent { process, thread: 1, at_ns: 2, kind }));
        assert!(functions.known().is_empty());
    }
}
