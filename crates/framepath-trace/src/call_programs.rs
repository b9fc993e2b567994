// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs of the observed functions, in the kernel.

use std::io;

use framepath_os::bpf::assembler::Assembler;
use framepath_os::bpf::program::{BpfProgram, FunctionInterface, FunctionPlace, ProgramKind};

use crate::calls::CALL_SITES;
use crate::probe_programs::Maps;
use crate::probe_site::ProbeSite;

/// Programs of [`CALL_SITES`]. Each is loaded when the first file with its function gets probes: the kernel checks all of them in
/// about a tenth of a second.
#[derive(Debug)]
pub(crate) struct CallPrograms {
    interface: FunctionInterface,
    loaded: Vec<Option<SitePrograms>>,
}

/// Programs for the calls of a function.
#[derive(Debug)]
enum SitePrograms {
    /// One for its begin and its return.
    Session(BpfProgram),
    /// One for its begin, and one for its return.
    Pair(BpfProgram, BpfProgram),
}

impl CallPrograms {
    /// Returns the programs for an interface of the kernel; none is loaded.
    pub(crate) fn new(interface: FunctionInterface) -> CallPrograms {
        CallPrograms { interface, loaded: CALL_SITES.iter().map(|_| None).collect() }
    }

    /// Loads the programs of the site at `index`, if they are not loaded.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(crate) fn load(&mut self, index: usize, maps: &Maps<'_>) -> io::Result<()> {
        if self.loaded[index].is_some() {
            return Ok(());
        }
        let site = &CALL_SITES[index];
        let function =
            |program: Assembler| BpfProgram::load(ProgramKind::Function(self.interface.alone()), &program);
        self.loaded[index] = Some(match self.interface {
            FunctionInterface::Sessions(is_return) => {
                let program = maps.session(index, site, is_return);
                SitePrograms::Session(BpfProgram::load(ProgramKind::Function(self.interface), &program)?)
            }
            _ => SitePrograms::Pair(function(maps.enter(index, site))?, function(maps.leave(index, site))?),
        });
        Ok(())
    }

    /// Returns the places of the programs of the site at `index`, which are loaded, in a file that has the function at `offset`.
    pub(crate) fn places(&self, index: usize, offset: u64, site: ProbeSite) -> Vec<FunctionPlace<'_>> {
        let place = |program, offset, at_return| FunctionPlace { program, offset, at_return };
        match &self.loaded[index] {
            // At the instruction for the return, the arguments are still in their registers, too.
            Some(SitePrograms::Session(session)) => vec![place(session, offset + site.leave, false)],
            Some(SitePrograms::Pair(enter, _)) if !CALL_SITES[index].call.has_return() => {
                vec![place(enter, offset + site.enter, false)]
            }
            Some(SitePrograms::Pair(enter, leave)) => {
                vec![place(enter, offset + site.enter, false), place(leave, offset + site.leave, true)]
            }
            None => Vec::new(),
        }
    }
}
