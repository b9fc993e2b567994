// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restart of the ICE of a viewer's session while it runs (RFC 9725, section 4.3).

use std::net::IpAddr;
use std::sync::Arc;

use str0m::change::SdpOffer;

use crate::ice_fragment::IceFragment;

/// Session as a request for a change needs it.
pub(crate) struct PatchedSession {
    /// Description of the viewer.
    pub(crate) description: Arc<str>,
    pub(crate) tag: String,
}

/// Request for a restart, whose offer the connection's thread has read.
pub(crate) struct IceRestart {
    /// Entity tag that the session has to have still.
    pub(crate) tag: String,
    /// Description of the viewer with the fragment of the request, as text and as it was read.
    pub(crate) description: Arc<str>,
    pub(crate) offer: SdpOffer,
    /// This computer's address that the viewer has asked, and the viewer's address.
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

/// Restart that was done.
pub(crate) struct IceRestarted {
    /// Fragment of the sender.
    pub(crate) fragment: IceFragment,
    pub(crate) tag: String,
}

/// Reason why nothing was changed.
pub(crate) enum IceRestartRefused {
    /// There is no such session.
    NoSession,
    /// The session has another entity tag.
    OtherTag,
    /// The session connects, or there was another restart a moment ago.
    Busy,
    Invalid(String),
}

/// Returns the entity tag of a session that has restarted so many times: each set of credentials has its own.
pub(crate) fn entity_tag(restarts: u32) -> String {
    format!("\"{restarts}\"")
}
