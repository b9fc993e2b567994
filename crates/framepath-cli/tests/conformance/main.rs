// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance suite of `framepath`, on stages in worker processes: every
//! check, on every host. The checks are where the other links have them,
//! `crates/framepath/tests/conformance`.

#[path = "../../../framepath/tests/conformance/back_pressure.rs"]
mod back_pressure;
#[path = "../../../framepath/tests/conformance/closing.rs"]
mod closing;
#[path = "../../../framepath/tests/common/mod.rs"]
mod common;
#[path = "../../../framepath/tests/conformance/end_of_stream.rs"]
mod end_of_stream;
#[path = "../../../framepath/tests/conformance/frame_return.rs"]
mod frame_return;
#[path = "../cli/harness.rs"]
#[allow(dead_code, reason = "the other tests need the rest")]
mod harness;
mod hosted;
#[path = "../../../framepath/tests/conformance/leaks.rs"]
mod leaks;
#[path = "../../../framepath/tests/conformance/order.rs"]
mod order;
#[path = "../../../framepath/tests/conformance/parts.rs"]
mod parts;
#[path = "../../../framepath/tests/conformance/peer_death.rs"]
mod peer_death;
#[path = "../service/service.rs"]
#[allow(dead_code, reason = "the other tests need the rest")]
mod service;
#[path = "../../../framepath/tests/conformance/suite.rs"]
mod suite;
mod wakeups;
#[path = "../../../framepath/tests/conformance/way.rs"]
#[allow(dead_code, reason = "other links drop frames")]
mod way;
mod worker_death;

use hosted::{Gives, process, service};
use suite::conformance;
use way::{Way, inline};

conformance! {
    process_same_frame: process(Gives::Same), inline();
    process_own_frames: process(Gives::Copies), inline();
    service_same_frame: service(Gives::Same), inline();
    service_own_frames: service(Gives::Copies), inline();
}

macro_rules! worker_conformance {
    ($($name:ident: $link:expr;)+) => {$(
        mod $name {
            use super::*;

            fn way() -> Way {
                Way { link: $link, host: inline() }
            }

            #[test]
            fn nothing_is_lost_with_a_worker() {
                leaks::none(|| common::ends(|| worker_death::nothing_is_lost(&way())));
            }

            #[test]
            fn frames_wake_each_side_once() {
                leaks::none(|| common::ends(|| wakeups::one_each_way(&way())));
            }
        }
    )+};
}

worker_conformance! {
    workers_of_process_same_frame: process(Gives::Same);
    workers_of_process_own_frames: process(Gives::Copies);
    workers_of_service_same_frame: service(Gives::Same);
    workers_of_service_own_frames: service(Gives::Copies);
}
