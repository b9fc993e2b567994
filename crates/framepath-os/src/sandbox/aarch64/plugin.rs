// SPDX-License-Identifier: MIT OR Apache-2.0
//! aarch64: what a frei0r plug-in does beyond what a decoder does.

use crate::sandbox::policy::{condition, table};

table! {
    /// Once it is loaded.
    PLUGIN on "aarch64":
    // What image libraries ask about the machine.
    SYS_uname = 160,
    SYS_sysinfo = 179,
    SYS_times = 153,
}

table! {
    /// While it is loaded, beside [`PLUGIN`].
    LOADING on "aarch64":
    // The dynamic loader: reads libraries, maps their code. Which files, Landlock
    // says.
    SYS_openat = 56 if condition::reading(2),
    SYS_newfstatat = 79,
    SYS_faccessat = 48,
    SYS_readlinkat = 78,
    SYS_mmap = 222,
    SYS_mprotect = 226,
    // Entering the next role.
    SYS_prctl = 167 if condition::NAME_AND_LOCKS,
    SYS_prlimit64 = 261 if condition::OWN_LIMITS,
    SYS_capget = 90,
    SYS_capset = 91,
    SYS_landlock_create_ruleset = 444,
    SYS_landlock_add_rule = 445,
    SYS_landlock_restrict_self = 446,
    SYS_seccomp = 277,
}
