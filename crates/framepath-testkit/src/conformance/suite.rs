// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of checks, as a macro that makes one test per check and combination.

/// Makes a module of tests for each line `NAME: LINK, HOST;`, one test per check.
#[macro_export]
macro_rules! conformance {
    ($($name:ident: $link:expr, $host:expr;)+) => {$(
        mod $name {
            use super::*;

            fn way() -> $crate::conformance::PathUnderTest {
                $crate::conformance::PathUnderTest { link: $link, host: $host }
            }

            $crate::conformance! { @checks
                order::frames_come_in_order_and_unchanged,
                order::rates_of_any_two_ends_lose_nothing,
                back_pressure::a_slow_sink_stops_the_source,
                end_of_stream::an_empty_stream_ends,
                end_of_stream::everything_inside_is_drained,
                peer_death::a_stage_behind_fails,
                peer_death::a_stage_before_fails,
                peer_death::a_sink_fails_while_the_source_waits_for_it,
                peer_death::the_source_fails,
                peer_death::a_stage_behind_panics,
                frame_return::slots_are_used_again,
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
