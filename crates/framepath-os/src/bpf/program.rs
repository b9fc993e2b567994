// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loaded programs, and the links that attach them to functions of programs and to tracepoints.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::assembler::Assembler;
use super::btf::Btf;
use super::link_removal::{remove_all, wait_for};
use super::{Attributes, Operation, call, call_for_descriptor};
use crate::measure::function_event;
use crate::process::process_room::has_room_for;

/// Event for which a program is written: the verifier checks its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Begin or return of a function of a user program. The context is the thread's registers (struct pt_regs).
    Function(FunctionInterface),
    /// Tracepoint of the kernel. The context is an array of its arguments, 8 bytes each.
    RawTracepoint,
}

/// Interface of the kernel that attaches programs to functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionInterface {
    /// BPF links of sessions (`uprobe_session`), since Linux 6.13: one program for begin and return, which is not called for the
    /// return if its result at the begin was 1. So a program that is not wanted in a process costs only the begin there. The
    /// number is that of the kernel's function `bpf_session_is_return`, which tells the two apart.
    Sessions(u32),
    /// BPF links (`uprobe_multi`), since Linux 6.6.
    Links,
    /// Perf events of the kind `uprobe`, since Linux 4.17. They are removed one by one, each in some tens of milliseconds.
    Events,
}

impl FunctionInterface {
    /// Returns the interface for programs of a begin alone.
    pub fn alone(self) -> FunctionInterface {
        match self {
            FunctionInterface::Sessions(_) => FunctionInterface::Links,
            other => other,
        }
    }

    /// Returns the best one that this kernel has.
    ///
    /// # Errors
    /// As for [`BpfProgram::load`].
    pub fn best() -> io::Result<FunctionInterface> {
        let mut empty = Assembler::new();
        empty.exit(0);
        let program = BpfProgram::load(ProgramKind::Function(FunctionInterface::Links), &empty)?;
        // A kernel that has links says that a folder is no file (EBADF); an older one does not know the type of the link.
        let refused =
            program.link_to_function(c"/", 0, false, 0).err().and_then(|error| error.raw_os_error());
        if refused != Some(libc::EBADF) {
            return Ok(FunctionInterface::Events);
        }
        let Some(is_return) = Btf::of_kernel().ok().and_then(|types| types.function("bpf_session_is_return"))
        else {
            return Ok(FunctionInterface::Links);
        };
        let sessions = FunctionInterface::Sessions(is_return);
        let mut session = Assembler::new();
        session.call_kernel(is_return).exit(0);
        let has_sessions = BpfProgram::load(ProgramKind::Function(sessions), &session).is_ok();
        Ok(if has_sessions { sessions } else { FunctionInterface::Links })
    }
}

/// Program that the kernel has verified.
#[derive(Debug)]
pub struct BpfProgram {
    descriptor: OwnedFd,
    kind: ProgramKind,
}

/// Attachment of a program. It ends when the value is dropped or this process ends; for several, see
/// [`link_removal`](super::link_removal).
#[derive(Debug)]
pub struct Link {
    pub(super) descriptor: OwnedFd,
}

/// Place in a file at which a program, of kind [`ProgramKind::Function`], is attached.
#[derive(Clone, Copy, Debug)]
pub struct FunctionPlace<'a> {
    /// The program.
    pub program: &'a BpfProgram,
    /// Offset of the instruction in the file, or, with `at_return`, of a function's first one.
    pub offset: u64,
    /// True for the return of the function. A program of [`FunctionInterface::Sessions`] is attached to begin and return without
    /// it.
    pub at_return: bool,
}

/// Greatest number of descriptors in a message (SCM_MAX_FD of the kernel), less a few.
const MOST_PLACES: usize = 250;

/// Attaches programs to places in the file `path`. The probes belong to the file: the programs run in `process` when that maps the
/// file now or later, also behind an exec; neither in its children nor in others. With `None`, they run in each process, so they
/// must tell by themselves which ones they want. No process stops for it.
///
/// A process of its own makes the links, because a SIGKILL to this one while the kernel sets breakpoints would make it leave some
/// in other programs. Where there is no room for one, this process makes them.
///
/// # Errors
/// EINVAL if there is no instruction at a place, or the kernel has no such interface; ESRCH without the process; EMFILE if
/// there are too many descriptors. Then no program is attached.
pub fn attach_to_functions(
    path: &Path,
    places: &[FunctionPlace<'_>],
    process: Option<u32>,
) -> io::Result<Vec<Link>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut links: Vec<Link> = Vec::new();
    for places in places.chunks(MOST_PLACES) {
        let are_events =
            places.iter().any(|place| place.program.kind == ProgramKind::Function(FunctionInterface::Events));
        let descriptors: io::Result<Vec<OwnedFd>> = match are_events {
            true => {
                places.iter().map(|place| place.program.event_at_function(&path, place, process)).collect()
            }
            false if has_room_for(1) => link_apart(&path, places, process.unwrap_or(0)),
            false => link_here(&path, places, process.unwrap_or(0)),
        };
        match descriptors {
            Ok(descriptors) => links.extend(descriptors.into_iter().map(|descriptor| Link { descriptor })),
            Err(error) => {
                remove_all(links);
                return Err(error);
            }
        }
    }
    Ok(links)
}

/// Makes links in this process.
fn link_here(path: &CStr, places: &[FunctionPlace<'_>], process: u32) -> io::Result<Vec<OwnedFd>> {
    let link = |place: &FunctionPlace<'_>| {
        place.program.link_to_function(path, place.offset, place.at_return, process)
    };
    places.iter().map(link).collect()
}

/// Makes links in a process of its own, and takes them over.
fn link_apart(path: &CStr, places: &[FunctionPlace<'_>], process: u32) -> io::Result<Vec<OwnedFd>> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // The child allocates nothing: other threads may have held the allocator's locks when it was forked.
    let mut made: Vec<OwnedFd> = Vec::with_capacity(places.len());
    let mut lent: Vec<BorrowedFd<'_>> = Vec::with_capacity(places.len());
    // SAFETY: the child only makes system calls with memory that was allocated before, and ends by _exit(2).
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system call. A signal for the group is not for this process.
        unsafe { libc::setpgid(0, 0) };
        let mut status = 0;
        for place in places {
            match place.program.link_to_function(path, place.offset, place.at_return, process) {
                Ok(link) => made.push(link),
                Err(error) => {
                    status = error.raw_os_error().unwrap_or(libc::EIO);
                    break;
                }
            }
        }
        if status == 0 {
            lent.extend(made.iter().map(AsFd::as_fd));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PLACES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&lent));
        let bytes = i32::to_ne_bytes(status);
        // Fails if the parent has ended: then the links end with this process.
        let _ = sendmsg(&theirs, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
        // SAFETY: ends this process without what the program registered for its end.
        unsafe { libc::_exit(0) }
    }
    drop(theirs);
    if child < 0 {
        return link_here(path, places, process);
    }
    let mut bytes = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PLACES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&ours, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            made.extend(descriptors);
        }
    }
    wait_for(child);
    match (received?.bytes, i32::from_ne_bytes(bytes)) {
        (4, 0) if made.len() == places.len() => Ok(made),
        (4, status) if status != 0 => Err(io::Error::from_raw_os_error(status)),
        _ => Err(io::Error::other("the process that makes the probes has ended")),
    }
}

/// Attributes of BPF_PROG_LOAD.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: *const u64,
    license: *const u8,
    log_level: u32,
    log_bytes: u32,
    log: *mut u8,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

// SAFETY: the beginning of the anonymous struct of BPF_PROG_LOAD. Values are made only in `BpfProgram::load`, with
// addresses that live as long as the call.
unsafe impl Attributes for Load {}

/// Attributes of BPF_LINK_CREATE for BPF_TRACE_UPROBE_MULTI.
#[repr(C)]
struct FunctionLink {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: *const u8,
    offsets: *const u64,
    counters: *const u64,
    cookies: *const u64,
    count: u32,
    probe_flags: u32,
    process: u32,
    padding: u32,
}

// SAFETY: the anonymous struct of BPF_LINK_CREATE with its `uprobe_multi` part. Values are made only in
// `BpfProgram::link_to_function`, with addresses that live as long as the call.
unsafe impl Attributes for FunctionLink {}

/// Attributes of BPF_RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct Tracepoint {
    name: *const u8,
    program: u32,
    padding: u32,
}

// SAFETY: the anonymous struct of BPF_RAW_TRACEPOINT_OPEN. Values are made only in
// `BpfProgram::attach_to_tracepoint`, with an address that lives as long as the call.
unsafe impl Attributes for Tracepoint {}

const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_TRACE_UPROBE_SESSION: u32 = 57;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
const LOG_BYTES: usize = 64 << 10;

impl BpfProgram {
    /// Loads a program.
    ///
    /// # Errors
    /// EPERM without the capabilities; the verifier's text if it refuses the program.
    pub fn load(kind: ProgramKind, assembler: &Assembler) -> io::Result<BpfProgram> {
        let words = assembler.words();
        let (program_type, attach_type) = match kind {
            ProgramKind::Function(FunctionInterface::Sessions(_)) => {
                (BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_SESSION)
            }
            ProgramKind::Function(FunctionInterface::Links) => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_MULTI),
            ProgramKind::Function(FunctionInterface::Events) => (BPF_PROG_TYPE_KPROBE, 0),
            ProgramKind::RawTracepoint => (BPF_PROG_TYPE_RAW_TRACEPOINT, 0),
        };
        let mut attributes = Load {
            program_type,
            instruction_count: words.len() as u32,
            instructions: words.as_ptr(),
            license: c"Dual MIT/GPL".as_ptr().cast(),
            log_level: 0,
            log_bytes: 0,
            log: std::ptr::null_mut(),
            kernel_version: 0,
            flags: 0,
            name: *b"framepath\0\0\0\0\0\0\0",
            interface: 0,
            attach_type,
        };
        match call_for_descriptor(Operation::ProgramLoad, &attributes) {
            Ok(descriptor) => Ok(BpfProgram { descriptor, kind }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // The verifier also refuses with EACCES: its text says which it was.
                let mut log = vec![0; LOG_BYTES];
                (attributes.log_level, attributes.log_bytes) = (1, LOG_BYTES as u32);
                attributes.log = log.as_mut_ptr();
                // Fails again.
                let _ = call(Operation::ProgramLoad, &attributes);
                let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
                let text = String::from_utf8_lossy(text).trim().to_owned();
                Err(if text.is_empty() { error } else { io::Error::other(format!("{error}: {text}")) })
            }
            Err(error) => Err(error),
        }
    }

    fn event_at_function(
        &self,
        path: &CStr,
        place: &FunctionPlace<'_>,
        process: Option<u32>,
    ) -> io::Result<OwnedFd> {
        let event = function_event::open(path, place.offset, place.at_return, process)?;
        function_event::run(&event, self.descriptor.as_fd())?;
        Ok(event)
    }

    /// With a process of 0, for all of them.
    fn link_to_function(
        &self,
        path: &CStr,
        offset: u64,
        at_return: bool,
        process: u32,
    ) -> io::Result<OwnedFd> {
        let attach_type = match self.kind {
            ProgramKind::Function(FunctionInterface::Sessions(_)) => BPF_TRACE_UPROBE_SESSION,
            _ => BPF_TRACE_UPROBE_MULTI,
        };
        let attributes = FunctionLink {
            program: self.descriptor.as_raw_fd() as u32,
            target: 0,
            attach_type,
            flags: 0,
            path: path.as_ptr().cast(),
            offsets: &offset,
            counters: std::ptr::null(),
            cookies: std::ptr::null(),
            count: 1,
            probe_flags: if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
            process,
            padding: 0,
        };
        call_for_descriptor(Operation::LinkCreate, &attributes)
    }

    /// Attaches the program, of kind [`ProgramKind::RawTracepoint`], to the kernel's tracepoint `name`.
    ///
    /// # Errors
    /// ENOENT if the kernel has no such tracepoint.
    pub fn attach_to_tracepoint(&self, name: &str) -> io::Result<Link> {
        let name = CString::new(name)?;
        let attributes = Tracepoint {
            name: name.as_ptr().cast(),
            program: self.descriptor.as_raw_fd() as u32,
            padding: 0,
        };
        Ok(Link { descriptor: call_for_descriptor(Operation::RawTracepointOpen, &attributes)? })
    }
}
