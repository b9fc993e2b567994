// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that both ends of WHEP use.

/// Path of the endpoint.
pub(crate) const ENDPOINT: &str = "/whep";
/// Path of the figures.
pub(crate) const METRICS: &str = "/metrics";
/// Media type of offers and answers.
pub(crate) const SDP: &str = "application/sdp";
