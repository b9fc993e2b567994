// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restart of ICE in a session: the ends find each other anew, as after a change of an end's network, and all else goes on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use str0m::change::SdpOffer;

use super::rtc_settings::host;
use super::{WebrtcPeer, description, guarded, read_answer};
use crate::error::WebrtcError;
use crate::ice_fragment::IceFragment;

impl WebrtcPeer {
    /// Returns the description of the other end.
    pub(crate) fn description(&self) -> &Arc<str> {
        &self.description
    }

    /// Accepts a restart by the other end, which has asked for it from the address `remote`, and reaches the socket at `local`: its offer, as
    /// it was read from `description`. The session may move once, to another port or address of `remote`. Returns the fragment that
    /// answers.
    ///
    /// # Errors
    /// The offer does not fit the session, which has failed then.
    pub(crate) fn accept_restart(
        &mut self,
        (offer, description_of_other): (SdpOffer, Arc<str>),
        local: SocketAddr,
        remote: IpAddr,
    ) -> Result<IceFragment, WebrtcError> {
        let candidate = (local != self.local).then(|| host(local)).transpose()?;
        let accepted = guarded(|| {
            if let Some(candidate) = candidate {
                self.rtc.add_local_candidate(candidate);
            }
            Ok(self.rtc.sdp_api().accept_offer(offer)?.to_sdp_string())
        });
        let fragment = accepted.and_then(|answer| {
            IceFragment::read(&answer).ok_or_else(|| description("the answer has no ICE"))
        });
        if fragment.is_err() {
            self.rtc.disconnect();
        }
        self.local = local;
        self.restarted(description_of_other, vec![remote]);
        fragment
    }

    /// Restarts ICE for another socket with the address `local`: calls `exchange` with the fragment for the other end, and takes the
    /// fragment that it returns, whose candidates have the addresses to which the session may move.
    ///
    /// # Errors
    /// The error of `exchange`, or the fragment is no answer to it: the session stays as it was. It has failed if the fragment does not fit
    /// it.
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
        if !answer.restarts(&self.description) {
            return Err(description("the answer does not restart ICE"));
        }
        let addresses = answer.addresses().collect();
        let answer = answer.merge_into(&self.description);
        let parsed = read_answer(&answer)?;
        let accepted = guarded(|| {
            self.rtc.sdp_api().accept_answer(pending, parsed)?;
            self.rtc.add_local_candidate(candidate);
            Ok(())
        });
        if accepted.is_err() {
            self.rtc.disconnect();
        }
        self.local = local;
        self.restarted(answer.into(), addresses);
        accepted
    }

    /// Goes on after a restart, with the other end's description as it is now.
    fn restarted(&mut self, description: Arc<str>, addresses: Vec<IpAddr>) {
        let now = Instant::now();
        self.description = description;
        self.remote.restarted(addresses, now);
        self.deadline = now;
    }
}

#[cfg(test)]
mod tests;
