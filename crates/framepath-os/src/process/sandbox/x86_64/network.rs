// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of a demuxer that reads its stream from the network, on x86_64, in addition to those of
//! a decoder.

use crate::process::sandbox::policy::condition::*;
use crate::process::sandbox::policy::table;

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::Network`], in addition to those of
    /// a decoder. The rule for SYS_sendto replaces the decoder's rule.
    NETWORK on "x86_64":
    // TCP and UDP. No listen and no accept: a worker only connects.
    SYS_socket = 41 if INTERNET_SOCKET,
    SYS_connect = 42,
    // UDP; Landlock denies it for TCP.
    SYS_bind = 49,
    SYS_getsockname = 51,
    SYS_getpeername = 52,
    SYS_setsockopt = 54 if STREAMING_OPTION,
    SYS_getsockopt = 55 if STREAMING_OPTION,
    // Reports to the sender of an RTP stream have an address. No sendmsg: see the table of a decoder.
    SYS_sendto = 44 if NO_FAST_OPEN,
}
