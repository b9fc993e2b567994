// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that tests and experiments inject into a worker: `decode host=process fault=crash@100`.

use std::fmt;
use std::str::FromStr;

use framepath_os::process::crash;

/// Kind of fault. A fault occurs in a worker that takes the input with the fault's number: a packet, a frame
/// or a flush. In a demuxer's worker, a fault occurs when the worker has read the packet with this number.
/// The worker of each connection of a network source counts as a first worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// The first worker crashes by a segmentation fault.
    Crash,
    /// The first worker hangs: it does nothing more, and does not end.
    Hang,
    /// The first worker allocates memory without end, until a signal ends the worker.
    Bomb,
    /// Every worker that takes the input crashes by a segmentation fault, not only the first.
    Poison,
}

const KINDS: [(&str, FaultKind); 4] = [
    ("crash", FaultKind::Crash),
    ("hang", FaultKind::Hang),
    ("bomb", FaultKind::Bomb),
    ("poison", FaultKind::Poison),
];

/// A fault, and the number of the input at which it occurs. Packets or frames and flushes share one sequence
/// of numbers, from 0. In a demuxer's worker the number is that of a packet; seeks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    kind: FaultKind,
    seq: u64,
}

/// Faults to inject into the workers of one stream. The text form of a fault is `KIND@N`; commas separate
/// several faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InjectedFaults(Vec<Fault>);

impl FromStr for InjectedFaults {
    type Err = String;

    fn from_str(text: &str) -> Result<InjectedFaults, String> {
        let faults = text.split(',').filter(|word| !word.is_empty()).map(|word| {
            let (name, seq) = word.split_once('@')?;
            let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == name)?;
            Some(Fault { kind, seq: seq.parse().ok()? })
        });
        faults.collect::<Option<_>>().map(InjectedFaults).ok_or_else(|| {
            format!(
                "fault={text}: not a list of faults; expected crash@N, hang@N, bomb@N or poison@N with the \
                 number N of a packet, frame or flush, counted together from 0; separate several by commas"
            )
        })
    }
}

impl fmt::Display for InjectedFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            let (name, _) = KINDS.into_iter().find(|(_, kind)| *kind == fault.kind).unwrap_or(KINDS[0]);
            write!(f, "{}{name}@{}", if at > 0 { "," } else { "" }, fault.seq)?;
        }
        Ok(())
    }
}

impl InjectedFaults {
    /// Returns the faults for a worker that replaces another worker: only those of kind `poison`.
    pub(super) fn for_replacement(&self) -> InjectedFaults {
        InjectedFaults(self.0.iter().filter(|fault| fault.kind == FaultKind::Poison).copied().collect())
    }

    /// Executes the first fault for input `seq` in the list, and then does not return; does nothing if the
    /// list has none. The worker of a stage calls this function just before the stage gets the packet, frame
    /// or flush; the worker of a demuxer, just before it sends the packet.
    pub(super) fn inject(&self, seq: u64) {
        match self.0.iter().find(|fault| fault.seq == seq).map(|fault| fault.kind) {
            Some(FaultKind::Crash | FaultKind::Poison) => crash::segmentation_fault(),
            Some(FaultKind::Hang) => crash::hang(),
            Some(FaultKind::Bomb) => crash::take_all_memory(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_printed() {
        let faults: InjectedFaults = "crash@3,poison@0,hang@18446744073709551615".parse().unwrap();
        assert_eq!(faults.to_string(), "crash@3,poison@0,hang@18446744073709551615");
        assert_eq!(faults.for_replacement().to_string(), "poison@0");
        assert_eq!("".parse::<InjectedFaults>(), Ok(InjectedFaults::default()));
        for wrong in ["crash", "crash@", "crash@-1", "fire@1", "crash@1;hang@2"] {
            assert!(wrong.parse::<InjectedFaults>().unwrap_err().contains(wrong));
        }
    }
}
