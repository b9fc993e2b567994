// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relay between two virtual network devices that loses and delays packets: a bad network for lab `stream`. It knows nothing of
//! the packets' contents, so that it treats all protocols alike.
//!
//! ```text
//! sender's namespace            relay                    receiver's namespace
//! program ── fp0 ──▶ schedule, by a seeded generator ──▶ fp1 ── program
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use framepath_os::time::now_ns;
use framepath_os::tun::open_tun;

use crate::error::LabError;

/// Names of the two devices: of the sender's end and of the receiver's.
pub const DEVICES: [&str; 2] = ["fp0", "fp1"];
/// Largest IP packet.
const LARGEST: usize = 65_535;

/// Losses and delays of a network, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Share of the packets that are lost, percent, independently of each other.
    pub loss_percent: f64,
    /// Greatest delay of a packet, milliseconds. The delays are spread evenly from 0 to this; a packet never overtakes another.
    pub jitter_ms: f64,
    /// Seed of the generator: the same seed loses the packets with the same numbers.
    pub seed: u64,
}

/// Makes the two [`DEVICES`] in the network namespace of this process and starts to forward packets between them, until the
/// process ends. The devices need addresses, and at least one of them another namespace.
///
/// # Errors
/// [`LabError::Io`]: the devices cannot be made.
pub fn start(impairment: &Impairment) -> Result<(), LabError> {
    let open = |name| {
        open_tun(name).map_err(LabError::io(format!("making the network device {name} by /dev/net/tun")))
    };
    let [near, far] = [open(DEVICES[0])?, open(DEVICES[1])?];
    let clone =
        |file: &File| file.try_clone().map_err(LabError::io("duplicating the handle of a network device"));
    forward(clone(&near)?, clone(&far)?, PacketSchedule::new(impairment, 0));
    forward(far, near, PacketSchedule::new(impairment, 1));
    Ok(())
}

/// Starts the two threads of one direction: one takes packets and decides, the other waits until they are due.
fn forward(from: File, to: File, schedule: PacketSchedule) {
    let (sender, receiver) = channel();
    thread::spawn(move || take(from, schedule, &sender));
    thread::spawn(move || pass_on(to, &receiver));
}

fn take(mut from: File, mut schedule: PacketSchedule, kept: &Sender<(u64, Vec<u8>)>) {
    let mut buffer = vec![0; LARGEST];
    // The read fails when the device's namespace has ended, and with it the device.
    while let Ok(bytes) = from.read(&mut buffer) {
        let due = schedule.due_ns(now_ns());
        if due.is_some_and(|due| kept.send((due, buffer[..bytes].to_vec())).is_err()) {
            return;
        }
    }
}

fn pass_on(mut to: File, kept: &Receiver<(u64, Vec<u8>)>) {
    for (due_ns, packet) in kept {
        let wait = due_ns.saturating_sub(now_ns());
        if wait > 0 {
            thread::sleep(Duration::from_nanos(wait));
        }
        // A device that is not up yet refuses packets: a network without a cable loses them.
        let _ = to.write(&packet);
    }
}

/// Fate of one direction's packets, in their order.
#[derive(Debug)]
struct PacketSchedule {
    loss: f64,
    jitter_ns: f64,
    /// State of the generator, splitmix64.
    random: u64,
    /// Time at which the last packet leaves, nanoseconds.
    last_due_ns: u64,
}

impl PacketSchedule {
    /// Creates the schedule of a direction, which has a sequence of losses of its own.
    fn new(impairment: &Impairment, direction: u64) -> PacketSchedule {
        PacketSchedule {
            loss: impairment.loss_percent / 100.0,
            jitter_ns: impairment.jitter_ms * 1e6,
            random: impairment.seed.wrapping_mul(2).wrapping_add(direction),
            last_due_ns: 0,
        }
    }

    /// Returns the time at which a packet that has arrived at `now_ns` leaves; `None` if it is lost.
    fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        // Both numbers of every packet, so that the losses do not depend on the jitter.
        let (loss, jitter) = (self.random(), self.random());
        if loss < self.loss {
            return None;
        }
        self.last_due_ns = self.last_due_ns.max(now_ns + (jitter * self.jitter_ns) as u64);
        Some(self.last_due_ns)
    }

    /// Returns the generator's next number, at least 0 and below 1.
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u64 = 10_000;

    fn fates(impairment: Impairment) -> Vec<Option<u64>> {
        let mut schedule = PacketSchedule::new(&impairment, 0);
        (0..PACKETS).map(|number| schedule.due_ns(number * 1_000_000)).collect()
    }

    #[test]
    fn a_good_network_passes_every_packet_at_once() {
        let fates = fates(Impairment::default());
        assert!((0..PACKETS).all(|number| fates[number as usize] == Some(number * 1_000_000)));
    }

    #[test]
    fn the_share_of_losses_is_as_asked_and_the_same_each_time() {
        let bad = Impairment { loss_percent: 3.0, jitter_ms: 5.0, seed: 7 };
        let lost = |fates: &[Option<u64>]| fates.iter().filter(|fate| fate.is_none()).count();
        assert!((250..350).contains(&lost(&fates(bad))), "{}", lost(&fates(bad)));
        assert_eq!(fates(bad), fates(bad));
        assert_ne!(fates(bad), fates(Impairment { seed: 8, ..bad }));
    }

    #[test]
    fn jitter_delays_packets_but_keeps_their_order() {
        let fates = fates(Impairment { loss_percent: 0.0, jitter_ms: 5.0, seed: 7 });
        let due: Vec<u64> = fates.into_iter().flatten().collect();
        assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
        let delays = || due.iter().zip(0..).map(|(due, number)| due - number * 1_000_000);
        assert!(delays().all(|delay| delay <= 5_000_000) && delays().any(|delay| delay > 4_000_000));
    }
}
