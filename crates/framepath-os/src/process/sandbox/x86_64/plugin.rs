// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls for loading a frei0r plug-in on x86_64, in addition to those of a decoder. A
//! loaded plug-in needs no more than a decoder, as tests with Debian's plug-ins show.

use crate::process::sandbox::policy::{condition, table};

table! {
    /// Calls for loading a plug-in, in addition to those of a decoder: the dynamic loader's, and those
    /// for entering the next role. The rules for SYS_mmap, SYS_mprotect and SYS_prctl replace the decoder's
    /// rules.
    LOADING on "x86_64":
    // The dynamic loader: reads libraries, maps their code. Landlock limits the files.
    SYS_open = 2 if condition::reading(1),
    SYS_openat = 257 if condition::reading(2),
    SYS_newfstatat = 262,
    SYS_mmap = 9,
    SYS_mprotect = 10,
    // Entering the next role.
    SYS_prctl = 157 if condition::NAME_AND_LOCKS,
    SYS_prlimit64 = 302 if condition::OWN_LIMITS,
    SYS_capget = 125,
    SYS_capset = 126,
    SYS_landlock_create_ruleset = 444,
    SYS_landlock_add_rule = 445,
    SYS_landlock_restrict_self = 446,
    SYS_seccomp = 317,
}
