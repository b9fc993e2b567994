// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that a sender's threads share, and the commands to the thread that has the sessions.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender as CommandSender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use framepath_model::access_unit::Coding;

use crate::congestion::SenderRequest;
use crate::error::WebrtcError;
use crate::ice_patch::{IceRestart, IceRestartRefused, IceRestarted, PatchedSession};
use crate::ledger_channel::LedgerChannel;
use crate::ledger_exchange::LedgerExchange;
use crate::ledger_message::SessionEnd;
use crate::lock::lock;
use crate::packetizer::PacketizedFrame;
use crate::pairing::{FINGERPRINT, PairingCode};
use crate::peer::{Identity, WebrtcPeer};
use crate::random::random_id;
use crate::sent_frame::SentFrame;
use crate::viewer::ViewerSession;
use crate::viewer_figures::ViewerFigures;
use crate::wake_event::WakeEvent;
use crate::wrong_tokens::WrongTokens;

/// Time limit for the sessions' answer to a request.
pub(crate) const REPLY: Duration = Duration::from_secs(5);

/// Maximum number of frames whose times are kept for [`WhepSender::take_sent`](crate::WhepSender::take_sent); the oldest are
/// forgotten.
const MOST_SENT: usize = 4096;

/// Sessions that the user wants to end.
#[derive(Debug, Default)]
pub(crate) struct SessionsToEnd {
    pub(crate) numbers: HashSet<u64>,
    pub(crate) all: bool,
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Number of viewers that have connected.
    pub viewers: u64,
    /// Number of frames that were sent, all viewers together.
    pub sent: u64,
    /// Number of frames that were dropped because a viewer's queue was full, or that depend on such a frame; all
    /// viewers together.
    pub dropped: u64,
    /// Number of keyframes that were asked of the encoder.
    pub keyframe_requests: u64,
}

/// Message to the thread that has the sessions.
pub(crate) enum SenderCommand {
    /// A frame and its number.
    Frame(Arc<PacketizedFrame>, u64),
    /// The session of a new viewer.
    Accept { session: Box<ViewerSession>, reply: SyncSender<Result<(), OfferRefused>> },
    /// The end of the session with this id. The reply is false if there is none.
    Delete {
        id: String,
        /// SHA-256 of the certificate that the request proves: only this viewer's session ends. `None`: any viewer's.
        viewer: Option<[u8; FINGERPRINT]>,
        reply: SyncSender<bool>,
    },
    /// Question for the session with this id, of this viewer if one is named. The reply is `None` if there is none.
    Session { id: String, viewer: Option<[u8; FINGERPRINT]>, reply: SyncSender<Option<PatchedSession>> },
    /// A restart of the ICE of the session with this id.
    Restart {
        id: String,
        /// As in `Delete`.
        viewer: Option<[u8; FINGERPRINT]>,
        request: Box<IceRestart>,
        reply: SyncSender<Result<IceRestarted, IceRestartRefused>>,
    },
    /// The stream ends in this way.
    End(SessionEnd),
}

/// Reason why a viewer gets no session.
pub(crate) enum OfferRefused {
    /// There are as many viewers as a sender has at most.
    Full,
    Invalid(String),
    /// The stream has ended, or a system call failed.
    Unavailable,
    /// The sessions' thread does not reply.
    Busy,
}

/// Functions of the caller.
pub(crate) type Notify = Box<dyn Fn() + Send>;
pub(crate) type MoreMetrics = Box<dyn Fn() -> String + Send>;
pub(crate) type NotifyRequest = Box<dyn Fn(SenderRequest) + Send>;

/// Part of a sender that its threads share.
pub(crate) struct SenderShared {
    /// Token that other programs' viewers send.
    pub(crate) token: String,
    /// Code for framepath's viewers, which do not send the token; `None` if the caller chose the token.
    pub(crate) pairing: Option<PairingCode>,
    pub(crate) wrong_tokens: WrongTokens,
    /// Proofs that have opened a session, 32 bytes for each viewer that has the code: none opens a second one.
    pub(crate) used_proofs: Mutex<HashSet<[u8; FINGERPRINT]>>,
    pub(crate) coding: Coding,
    /// Highest bit rate of the encoder, bits per second; `None` for a stream that does not follow the network.
    pub(crate) highest_rate: Option<u64>,
    pub(crate) identity: Identity,
    /// Port of the UDP socket.
    pub(crate) port: u16,
    /// Wakes the thread that has the sessions.
    pub(crate) wake: WakeEvent,
    /// Ends the HTTP server, and stays set.
    pub(crate) stop: WakeEvent,
    pub(crate) stopped: AtomicBool,
    pub(crate) watching: AtomicUsize,
    /// Figures of the viewers that watch.
    pub(crate) figures: Mutex<Vec<ViewerFigures>>,
    pub(crate) to_end: Mutex<SessionsToEnd>,
    pub(crate) viewers: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) keyframe_requests: AtomicU64,
    /// Exchange of the ledgers with the viewers.
    pub(crate) ledger: Arc<LedgerExchange>,
    /// Frames that have left since [`WhepSender::take_sent`](crate::WhepSender::take_sent).
    pub(crate) sent_frames: Mutex<VecDeque<SentFrame>>,
    /// Function that returns further lines of the page of figures.
    pub(crate) on_metrics: Mutex<Option<MoreMetrics>>,
    /// Function that is called when the number of viewers changes.
    pub(crate) on_change: Mutex<Option<Notify>>,
    /// Function that passes on requests to the encoder.
    pub(crate) on_request: Mutex<Option<NotifyRequest>>,
}

/// Handle by which HTTP connections send commands.
#[derive(Clone)]
pub(crate) struct Commands {
    pub(crate) shared: Arc<SenderShared>,
    pub(crate) queue: CommandSender<SenderCommand>,
}

impl Commands {
    /// Sends a command. Returns false after the end of the stream.
    pub(crate) fn send(&self, command: SenderCommand) -> bool {
        let sent = self.queue.send(command).is_ok();
        self.shared.wake.set();
        sent
    }

    /// Opens the session of a viewer at the address `remote`, who has sent the offer to this computer's address `local`, and whose
    /// certificate has the SHA-256 `viewer` if it is proved. Returns the session's id and the answer's text. The caller's thread reads the offer, which may
    /// take long, so that the stream goes on.
    ///
    /// # Errors
    /// See [`OfferRefused`].
    pub(crate) fn accept(
        &self,
        offer: &str,
        viewer: Option<[u8; FINGERPRINT]>,
        [local, remote]: [IpAddr; 2],
    ) -> Result<(String, String), OfferRefused> {
        let id = random_id().map_err(|_| OfferRefused::Unavailable)?;
        let local = SocketAddr::new(local, self.shared.port);
        let SenderShared { coding, highest_rate, identity, ledger, .. } = &*self.shared;
        let accepted = WebrtcPeer::accept(offer, viewer, (*coding, *highest_rate), identity, local);
        let (peer, answer) = accepted.map_err(|error| match error {
            WebrtcError::Description(text) => OfferRefused::Invalid(text),
            error => {
                log::debug!("offer: {error}");
                OfferRefused::Invalid("the offer is not possible".to_owned())
            }
        })?;
        let session = Box::new(ViewerSession::new(
            id.clone(),
            viewer,
            remote,
            peer,
            LedgerChannel::new(ledger.clone()),
        ));
        let (reply, replies) = sync_channel(1);
        if !self.send(SenderCommand::Accept { session, reply }) {
            return Err(OfferRefused::Unavailable);
        }
        match replies.recv_timeout(REPLY) {
            Ok(accepted) => accepted.map(|()| (id, answer)),
            Err(RecvTimeoutError::Timeout) => Err(OfferRefused::Busy),
            Err(RecvTimeoutError::Disconnected) => Err(OfferRefused::Unavailable),
        }
    }
}

impl SenderShared {
    /// Makes the shared part of a sender with this codec and these bit rates, which has its UDP socket at `port`, no token and no
    /// pairing code.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn new(
        (coding, bit_rates): (Coding, Option<&RangeInclusive<u64>>),
        identity: Identity,
        port: u16,
    ) -> Result<SenderShared, WebrtcError> {
        Ok(SenderShared {
            token: String::new(),
            pairing: None,
            wrong_tokens: WrongTokens::default(),
            used_proofs: Mutex::default(),
            coding,
            highest_rate: bit_rates.map(|rates| *rates.end()),
            identity,
            port,
            wake: WakeEvent::new()?,
            stop: WakeEvent::new()?,
            stopped: AtomicBool::new(false),
            watching: AtomicUsize::new(0),
            figures: Mutex::default(),
            to_end: Mutex::default(),
            viewers: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            keyframe_requests: AtomicU64::new(0),
            ledger: Arc::default(),
            sent_frames: Mutex::default(),
            on_metrics: Mutex::new(None),
            on_change: Mutex::new(None),
            on_request: Mutex::new(None),
        })
    }

    /// Keeps the times of frames that have left.
    pub(crate) fn add_sent(&self, frames: impl ExactSizeIterator<Item = SentFrame>) {
        if frames.len() == 0 {
            return;
        }
        let mut sent = lock(&self.sent_frames);
        sent.extend(frames);
        let surplus = sent.len().saturating_sub(MOST_SENT);
        sent.drain(..surplus);
    }

    /// Records that a proof is used. Returns false if it was used before.
    pub(crate) fn use_proof(&self, proof: [u8; FINGERPRINT]) -> bool {
        lock(&self.used_proofs).insert(proof)
    }

    /// Forgets a proof that has opened no session.
    pub(crate) fn forget_proof(&self, proof: &[u8; FINGERPRINT]) {
        lock(&self.used_proofs).remove(proof);
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> SenderCounts {
        let SenderShared { viewers, sent, dropped, keyframe_requests, .. } = self;
        let counts = [viewers, sent, dropped, keyframe_requests];
        let [viewers, sent, dropped, keyframe_requests] = counts.map(|count| count.load(Ordering::Relaxed));
        SenderCounts { viewers, sent, dropped, keyframe_requests }
    }
}
