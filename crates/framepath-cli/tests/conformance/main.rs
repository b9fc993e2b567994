// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance suite on stages in worker processes: every check, on every host.

mod hosted;
mod wakeups;
mod worker_death;

use framepath_testkit::conformance::{PathUnderTest, inline, isolated};
use hosted::{Gives, process, service};

framepath_testkit::conformance! {
    process_same_frame: process(Gives::Same), inline();
    process_own_frames: process(Gives::Copies), inline();
    service_same_frame: service(Gives::Same), inline();
    service_own_frames: service(Gives::Copies), inline();
}

macro_rules! worker_conformance {
    ($($name:ident: $link:expr;)+) => {$(
        mod $name {
            use super::*;

            fn way() -> PathUnderTest {
                PathUnderTest { link: $link, host: inline() }
            }

            #[test]
            fn a_worker_loses_no_frame() {
                isolated(|| worker_death::no_frame_is_lost(&way()));
            }

            #[test]
            fn a_frame_wakes_each_side_once() {
                isolated(|| wakeups::one_each_way(&way()));
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
