// SPDX-License-Identifier: MIT OR Apache-2.0
//! Change of the ICE part of a viewer's session while it runs: further candidates, or a restart (RFC 9725, section 4.3).

use std::net::IpAddr;

use crate::ice_fragment::IceFragment;
use crate::pairing::FINGERPRINT;

/// Request for a change.
pub(crate) struct IcePatch {
    /// Id of the session.
    pub(crate) id: String,
    /// SHA-256 of the certificate that the request proves: only this viewer's session changes. `None`: any viewer's.
    pub(crate) viewer: Option<[u8; FINGERPRINT]>,
    pub(crate) fragment: IceFragment,
    /// Entity tag that the session has to have; `None` for any.
    pub(crate) tag: Option<String>,
    /// This computer's address that the viewer has asked, and the viewer's address.
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

/// Change that was made.
pub(crate) enum IcePatched {
    /// The candidates were taken.
    Candidates,
    /// ICE restarts, with this fragment of the sender.
    Restarted { fragment: IceFragment, tag: String },
}

/// Reason why nothing was changed.
pub(crate) enum IcePatchRefused {
    /// There is no such session.
    NoSession,
    /// The session has another entity tag.
    OtherTag,
    /// The session connects, or has restarted less than a second ago.
    Busy,
    Invalid(String),
}

/// Returns the entity tag of a session that has restarted so many times: each set of credentials has its own.
pub(crate) fn entity_tag(restarts: u32) -> String {
    format!("\"{restarts}\"")
}
