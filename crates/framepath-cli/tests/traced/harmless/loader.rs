// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader of programs, which each program on the machine has in its memory, is as it was.

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{finish, framepath};

use crate::needs_bpf;

/// Compares the loader's file with a private mapping of it, in which the kernel shows its breakpoints.
const COMPARE: &str = "
import mmap, re
path = re.search(r'(/\\S*/ld-linux\\S*)', open('/proc/self/maps').read())[1]
with open(path, 'rb') as file:
    mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    print(mapped[:] == file.read())
";

pub(crate) fn the_loader_has_no_breakpoint() -> Tested {
    needs_bpf()?;
    needs_program("valgrind", "valgrind")?;
    let trace = ["trace", "--level", "bpf", "--quiet", "--"];
    let ran = finish(framepath(&[&trace[..], &["/usr/bin/python3", "-c", COMPARE]].concat())).ended(0);
    assert_eq!(ran.stdout, "True\n");
    // An emulator runs the loader's instructions itself, and knows no breakpoints of the kernel.
    finish(framepath(&[&trace[..], &["valgrind", "-q", "--error-exitcode=9", "true"]].concat())).ended(0);
    Ok(())
}
