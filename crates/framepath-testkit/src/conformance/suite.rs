// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of checks, as a macro that makes one test per check and combination.

/// Defines a module of tests for each line `NAME: LINK, HOST;`, with one test per check.
#[macro_export]
macro_rules! conformance {
    ($($name:ident: $link:expr, $host:expr;)+) => {$(
        mod $name {
            use super::*;

            fn way() -> $crate::conformance::PathUnderTest {
                $crate::conformance::PathUnderTest { link: $link, host: $host }
            }

            $crate::conformance! { @checks
                order::frames_arrive_in_order_and_unchanged,
                order::unequal_rates_lose_no_frame,
                back_pressure::a_slow_sink_stops_the_source,
                end_of_stream::an_empty_stream_ends,
                end_of_stream::frames_in_flight_are_drained,
                peer_death::a_stage_after_the_link_fails,
                peer_death::a_stage_before_the_link_fails,
                peer_death::a_sink_fails_while_the_source_waits_for_it,
                peer_death::the_source_fails,
                peer_death::a_stage_after_the_link_panics,
                frame_return::slots_are_reused,
                closing::rows_tile_the_latency_of_every_frame,
                closing::causes_add_up_exactly,
            }
        }
    )+};
    (@checks $($module:ident::$check:ident,)+) => {$(
        #[test]
        fn $check() {
            $crate::conformance::isolated(|| $crate::conformance::$module::$check(&way()));
        }
    )+};
}
