// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one conformance suite: every check, on every link and every host. A new
//! link or host is one more line in the table below.

mod back_pressure;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod end_of_stream;
mod frame_return;
mod leaks;
mod order;
mod parts;
mod peer_death;
mod way;

use framepath::Leaky;
use way::{Way, direct, inline, queue};

macro_rules! conformance {
    ($($name:ident: $link:expr, $host:expr;)+) => {$(
        mod $name {
            use super::*;

            fn way() -> Way {
                Way { link: $link, host: $host }
            }

            conformance! { @checks
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
            common::ends(|| leaks::none(|| $module::$check(&way())));
        }
    )+};
}

conformance! {
    direct_inline: direct(), inline();
    queue_1_inline: queue(1, Leaky::No), inline();
    queue_4_inline: queue(4, Leaky::No), inline();
    queue_200_inline: queue(200, Leaky::No), inline();
    queue_leaky_upstream_inline: queue(4, Leaky::Upstream), inline();
    queue_leaky_downstream_inline: queue(4, Leaky::Downstream), inline();
}
