// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session description in memory, as an input of libavformat; and the record of libavformat's messages about
//! a stream from the network.
//!
//! libavformat reports lost RTP packets and the sender's goodbye only as log messages. The worker
//! process that demuxes a network stream prints no messages of FFmpeg's libraries, so this module
//! sets its own log callback there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::slice;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ffmpeg_sys_next as ff;

/// Size of the read buffer of a session description, bytes.
const BUFFER_BYTES: usize = 4096;

/// Number of lost RTP packets in this process that [`take_lost`] has not returned.
static LOST: AtomicU64 = AtomicU64::new(0);
/// True once a sender has said goodbye (RTCP BYE) for a stream in this process.
static GOODBYE: AtomicBool = AtomicBool::new(false);

/// Number of redirections in this process.
static REDIRECTS: AtomicU64 = AtomicU64::new(0);

/// Start of libavformat's message about lost packets, whose number follows.
const LOST_MESSAGE: &[u8] = b"RTP: missed ";
/// Start of libavformat's message about a sender's goodbye.
const GOODBYE_MESSAGE: &[u8] = b"Received BYE";

/// Start of libavformat's message about a redirection, as a format.
const REDIRECT_MESSAGE: &[u8] = b"Status %d: Redirecting";
/// Maximum number of redirections of an RTSP server; libavformat has no limit.
pub(crate) const MOST_REDIRECTS: u64 = 10;

/// Text of a session description, and the position in bytes up to which libavformat has read it.
struct Unread {
    text: Vec<u8>,
    position: usize,
}

/// Input of a network stream: the memory with a session description, or nothing for a URL. libavformat makes
/// the sockets itself.
pub(crate) struct NetworkInput(Option<(NonNull<ff::AVIOContext>, NonNull<Unread>)>);

// SAFETY: only this value owns the context and the text, and neither is tied to the thread that made it.
unsafe impl Send for NetworkInput {}

impl NetworkInput {
    /// Makes the input of a URL.
    pub(crate) fn of_url() -> NetworkInput {
        NetworkInput(None)
    }

    /// Makes the input that reads `text`, a session description; `None` if there is not enough memory.
    pub(crate) fn of_text(text: &[u8]) -> Option<NetworkInput> {
        let unread = Box::into_raw(Box::new(Unread { text: text.to_owned(), position: 0 }));
        // SAFETY: the buffer is from av_malloc, as avio_alloc_context requires, and belongs to the context
        // afterwards. On failure the buffer and the text are still ours to free. The callback gets `unread`,
        // which `NetworkInput` keeps alive longer than the context.
        unsafe {
            let buffer = ff::av_malloc(BUFFER_BYTES).cast::<u8>();
            let context = match buffer.is_null() {
                true => std::ptr::null_mut(),
                false => ff::avio_alloc_context(
                    buffer,
                    BUFFER_BYTES as c_int,
                    0,
                    unread.cast(),
                    Some(read),
                    None,
                    None,
                ),
            };
            match NonNull::new(context) {
                Some(context) => Some(NetworkInput(Some((context, NonNull::new_unchecked(unread))))),
                None => {
                    ff::av_free(buffer.cast());
                    drop(Box::from_raw(unread));
                    None
                }
            }
        }
    }

    /// Returns the context for `AVFormatContext::pb`; null for a URL. Valid while `self` lives.
    pub(crate) fn as_ptr(&self) -> *mut ff::AVIOContext {
        self.0.as_ref().map_or(std::ptr::null_mut(), |(context, _)| context.as_ptr())
    }
}

impl Drop for NetworkInput {
    fn drop(&mut self) {
        let Some((context, unread)) = self.0.take() else { return };
        let mut context = context.as_ptr();
        // SAFETY: nothing uses the context any more, because the demuxer is closed first. libav may have
        // replaced the buffer, so the current buffer is freed, then the context, then the text.
        unsafe {
            ff::av_freep((&raw mut (*context).buffer).cast());
            ff::avio_context_free(&mut context);
            drop(Box::from_raw(unread.as_ptr()));
        }
    }
}

/// Callback of the I/O context: copies up to `size` bytes of the text into `buffer`. Returns their number;
/// `AVERROR_EOF` at the end of the text. No path in it panics, so nothing unwinds into C.
unsafe extern "C" fn read(opaque: *mut c_void, buffer: *mut u8, size: c_int) -> c_int {
    // SAFETY: `opaque` is the text passed to avio_alloc_context. libav calls back only within a call of ours,
    // which borrows the input exclusively.
    let unread = unsafe { &mut *opaque.cast::<Unread>() };
    let rest = unread.text.get(unread.position..).unwrap_or_default();
    let count = rest.len().min(usize::try_from(size).unwrap_or(0));
    if count == 0 {
        return ff::AVERROR_EOF;
    }
    // SAFETY: libav owns `size` writable bytes at `buffer`, at least `count`.
    unsafe { slice::from_raw_parts_mut(buffer, count) }.copy_from_slice(&rest[..count]);
    unread.position += count;
    count as c_int
}

// Declared here, because the bindings have no type for `va_list` that all architectures share. On x86_64 and
// aarch64, a `va_list` argument is passed as a pointer.
unsafe extern "C" {
    #[link_name = "av_log_set_callback"]
    fn set_log_callback(
        callback: Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *mut c_void)>,
    );
    #[link_name = "av_log_format_line2"]
    fn format_line(
        sender: *mut c_void,
        level: c_int,
        format: *const c_char,
        arguments: *mut c_void,
        line: *mut c_char,
        line_bytes: c_int,
        prefixes: *mut c_int,
    ) -> c_int;
}

/// Sets the log callback of FFmpeg's libraries to one that counts lost packets and records
/// goodbyes, in the whole process and for ever. No message of FFmpeg's libraries is printed any
/// more.
pub(crate) fn watch_messages() {
    static ONCE: Once = Once::new();
    // SAFETY: sets one global pointer of libavutil, to a function that lives as long as the process.
    ONCE.call_once(|| unsafe { set_log_callback(Some(on_message)) });
}

/// Returns the number of packets lost since the last call, in all network streams of this process.
pub(crate) fn take_lost() -> u64 {
    LOST.swap(0, Ordering::Relaxed)
}

/// Returns true if a sender has said goodbye for any network stream of this process since
/// [`watch_messages`].
pub(crate) fn has_goodbye() -> bool {
    GOODBYE.load(Ordering::Relaxed)
}

/// Returns true if servers have redirected this process more than [`MOST_REDIRECTS`] times since [`watch_messages`]: a
/// process makes one connection.
pub(crate) fn has_too_many_redirects() -> bool {
    REDIRECTS.load(Ordering::Relaxed) > MOST_REDIRECTS
}

/// Callback for each message of FFmpeg's libraries, on any thread: counts lost packets (at least
/// one for each message about them) and redirections, and records a goodbye. Ignores all other messages. No path in
/// it panics.
unsafe extern "C" fn on_message(
    sender: *mut c_void,
    level: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) {
    if format.is_null() {
        return;
    }
    // SAFETY: the library passes a C string.
    let text = unsafe { CStr::from_ptr(format) }.to_bytes();
    if text.starts_with(GOODBYE_MESSAGE) {
        GOODBYE.store(true, Ordering::Relaxed);
    } else if text.starts_with(REDIRECT_MESSAGE) {
        REDIRECTS.fetch_add(1, Ordering::Relaxed);
    } else if text.starts_with(LOST_MESSAGE) {
        let mut line: [c_char; 256] = [0; 256];
        // 0: the line does not begin with the sender's name.
        let mut prefixes = 0;
        // SAFETY: the library's own arguments for this format, used once; a buffer of the stated length, which
        // the function ends with a zero.
        let line = unsafe {
            format_line(
                sender,
                level,
                format,
                arguments,
                line.as_mut_ptr(),
                line.len() as c_int,
                &mut prefixes,
            );
            CStr::from_ptr(line.as_ptr())
        };
        LOST.fetch_add(lost_in(line.to_bytes()).max(1), Ordering::Relaxed);
    }
}

/// Returns the number in a message about lost packets; 0 if there is none.
fn lost_in(line: &[u8]) -> u64 {
    let at = line.windows(LOST_MESSAGE.len()).position(|window| window == LOST_MESSAGE);
    let digits = at.map_or(&[][..], |at| &line[at + LOST_MESSAGE.len()..]);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).take(9);
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_libavformat_are_counted() {
        assert_eq!(lost_in(b"[sdp @ 0x1] RTP: missed 12 packets\n"), 12);
        assert_eq!((lost_in(b"RTP: missed packets"), lost_in(b"")), (0, 0));
        watch_messages();
        // SAFETY: formats with their arguments; no sender.
        unsafe {
            let (none, warning) = (std::ptr::null_mut::<c_void>(), ff::AV_LOG_WARNING as c_int);
            ff::av_log(none, warning, c"RTP: missed %d packets\n".as_ptr(), 7 as c_int);
            ff::av_log(none, warning, c"RTP: missed %d packets\n".as_ptr(), 35 as c_int);
            ff::av_log(none, warning, c"something else %d\n".as_ptr(), 9 as c_int);
            let redirect = c"Status %d: Redirecting to %s\n".as_ptr();
            for _ in 0..MOST_REDIRECTS {
                ff::av_log(none, ff::AV_LOG_INFO as c_int, redirect, 302 as c_int, c"rtsp://a/".as_ptr());
            }
            assert!(!has_too_many_redirects());
            ff::av_log(none, ff::AV_LOG_INFO as c_int, redirect, 302 as c_int, c"rtsp://a/".as_ptr());
            assert!(has_too_many_redirects());
            assert!(!has_goodbye());
            let goodbye = c"Received BYE for stream %d (%d/%d)\n".as_ptr();
            ff::av_log(none, ff::AV_LOG_DEBUG as c_int, goodbye, 0 as c_int, 1 as c_int, 1 as c_int);
        }
        assert_eq!((take_lost(), take_lost(), has_goodbye()), (42, 0, true));
    }
}
