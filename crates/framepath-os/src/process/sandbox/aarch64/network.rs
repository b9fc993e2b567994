// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of a demuxer that reads its stream from the network, on aarch64, in addition to those of
//! a decoder.

use crate::process::sandbox::policy::condition::*;
use crate::process::sandbox::policy::table;

table! {
    /// System calls allowed in [`crate::process::sandbox::SandboxRole::Network`], in addition to those of
    /// a decoder. The rule for SYS_sendto replaces the decoder's rule.
    NETWORK on "aarch64":
    // TCP and UDP. No listen and no accept: a worker only connects.
    SYS_socket = 198 if INTERNET_SOCKET,
    SYS_connect = 203,
    // UDP; Landlock denies it for TCP.
    SYS_bind = 200,
    SYS_getsockname = 204,
    SYS_getpeername = 205,
    SYS_setsockopt = 208 if STREAMING_OPTION,
    SYS_getsockopt = 209 if STREAMING_OPTION,
    // Reports to the sender of an RTP stream have an address. No sendmsg: see the table of a decoder.
    SYS_sendto = 206 if NO_FAST_OPEN,
}
