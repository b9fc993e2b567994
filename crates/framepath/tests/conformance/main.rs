// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one conformance suite: every check, on every link and every host. A new
//! link or host is one more line in the table below; those that need workers
//! are in `framepath-cli`'s, where the worker's program is.

mod back_pressure;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod end_of_stream;
mod frame_return;
mod leaks;
mod links;
mod order;
mod parts;
mod peer_death;
mod suite;
mod way;

use framepath::Leaky;
use links::{direct, queue};
use suite::conformance;
use way::{Way, inline};

conformance! {
    direct_inline: direct(), inline();
    queue_1_inline: queue(1, Leaky::No), inline();
    queue_4_inline: queue(4, Leaky::No), inline();
    queue_200_inline: queue(200, Leaky::No), inline();
    queue_leaky_upstream_inline: queue(4, Leaky::Upstream), inline();
    queue_leaky_downstream_inline: queue(4, Leaky::Downstream), inline();
}
