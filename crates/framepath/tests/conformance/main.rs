// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance suite on the links within one process. A new link is one more line in the
//! table below; hosts that need the worker program are in `framepath-cli`'s suite.

mod links;

use framepath::Leaky;
use framepath_testkit::conformance::inline;
use links::{direct, queue};

framepath_testkit::conformance! {
    direct_inline: direct(), inline();
    queue_1_inline: queue(1, Leaky::No), inline();
    queue_4_inline: queue(4, Leaky::No), inline();
    queue_200_inline: queue(200, Leaky::No), inline();
    queue_leaky_upstream_inline: queue(4, Leaky::Upstream), inline();
    queue_leaky_downstream_inline: queue(4, Leaky::Downstream), inline();
}
