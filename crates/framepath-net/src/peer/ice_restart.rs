// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restart of ICE in a session: the ends find each other anew, as after a change of an end's network, and all else goes on.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use str0m::Candidate;
use str0m::change::SdpOffer;

use super::{WebrtcPeer, description, guarded, read_answer};
use crate::error::WebrtcError;
use crate::ice_fragment::IceFragment;

impl WebrtcPeer {
    /// Returns true if a fragment of the other end is one of a restart: its credentials are not the present ones.
    pub(crate) fn is_restart(&self, fragment: &IceFragment) -> bool {
        let of_other_end = IceFragment::read(&self.description).and_then(|known| known.credentials);
        fragment.credentials.is_some() && fragment.credentials != of_other_end
    }

    /// Takes further candidates of the other end. Those that cannot be used have no effect.
    pub(crate) fn add_candidates(&mut self, fragment: &IceFragment) {
        for candidate in &fragment.candidates {
            match Candidate::from_sdp_string(candidate) {
                Ok(candidate) => self.rtc.add_remote_candidate(candidate),
                Err(error) => log::debug!("candidate: {error}"),
            }
        }
    }

    /// Accepts a restart by the other end, which has asked for it from the address `remote`, and reaches the socket at `local`. The
    /// session may move once, to another port or address of `remote`. Returns the fragment that answers.
    ///
    /// # Errors
    /// The fragment does not fit the session.
    pub(crate) fn accept_restart(
        &mut self,
        fragment: &IceFragment,
        local: SocketAddr,
        remote: IpAddr,
    ) -> Result<IceFragment, WebrtcError> {
        let offer = fragment.merge_into(&self.description);
        let parsed = SdpOffer::from_sdp_string(&offer).map_err(|error| {
            log::debug!("restart: {error}");
            description("not a fragment of this session's description")
        })?;
        if local != self.local {
            self.rtc.add_local_candidate(host(local)?);
            self.local = local;
        }
        let answer = guarded(|| Ok(self.rtc.sdp_api().accept_offer(parsed)?))?.to_sdp_string();
        self.restarted(offer, Some(remote));
        IceFragment::read(&answer).ok_or_else(|| description("the answer has no ICE"))
    }

    /// Restarts ICE for another socket with the address `local`: calls `exchange` with the fragment for the other end, and takes the
    /// fragment that it returns. The session stays as it was if this fails.
    ///
    /// # Errors
    /// The error of `exchange`, or the other end's fragment does not fit the session.
    pub(crate) fn restart(
        &mut self,
        local: SocketAddr,
        exchange: impl FnOnce(IceFragment) -> Result<IceFragment, WebrtcError>,
    ) -> Result<(), WebrtcError> {
        let candidate = host(local)?;
        let mut changes = self.rtc.sdp_api();
        // The candidate of the socket before goes with it.
        changes.ice_restart(false);
        let (offer, pending) = changes.apply().ok_or_else(|| description("the restart is empty"))?;
        let fragment = IceFragment::read(&offer.to_sdp_string());
        let fragment = fragment.ok_or_else(|| description("the restart has no ICE"))?;
        let value = candidate.to_sdp_string();
        let answer = exchange(fragment.with_candidate(value.trim_start_matches("candidate:").to_owned()))?;
        if !self.is_restart(&answer) {
            return Err(description("the answer does not restart ICE"));
        }
        let answer = answer.merge_into(&self.description);
        let parsed = read_answer(&answer)?;
        guarded(|| {
            self.rtc.sdp_api().accept_answer(pending, parsed)?;
            self.rtc.add_local_candidate(candidate);
            Ok(())
        })?;
        self.local = local;
        self.restarted(answer, None);
        Ok(())
    }

    /// Goes on after a restart, with the other end's description as it is now.
    fn restarted(&mut self, description: String, only: Option<IpAddr>) {
        self.description = description;
        self.remote.restarted(only);
        self.deadline = Instant::now();
    }
}

/// Returns the candidate of a socket.
fn host(local: SocketAddr) -> Result<Candidate, WebrtcError> {
    Candidate::host(local, "udp").map_err(description)
}

#[cfg(test)]
mod tests;
