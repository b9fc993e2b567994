// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data channels of a session for the ledger.

use framepath_os::time::now_ns;
use str0m::channel::{Channel, ChannelConfig, Reliability};

use super::{WebrtcPeer, guarded};
use crate::ledger_channel::{LedgerChannel, LedgerStream};

impl WebrtcPeer {
    /// Opens the data channels for the ledger. One end begins the association.
    pub(super) fn start_ledger(&mut self, begins: bool) {
        let mut direct = self.rtc.direct_api();
        direct.start_sctp(begins);
        for (number, stream) in (0..).zip(LedgerStream::ALL) {
            let (ordered, reliability) = match stream {
                LedgerStream::Clock => (false, Reliability::MaxRetransmits { retransmits: 0 }),
                LedgerStream::Rows => (true, Reliability::Reliable),
            };
            let (label, negotiated) = (stream.label().to_owned(), Some(number));
            let config = ChannelConfig { label, ordered, reliability, negotiated, protocol: String::new() };
            self.ledger.push((direct.create_data_channel(config), stream));
        }
    }

    /// Queues the messages of `ledger`, which [`drive`](WebrtcPeer::drive) sends. Returns true if there were any. A message for which
    /// there is no room is lost.
    pub(crate) fn write_messages(&mut self, ledger: &mut LedgerChannel) -> bool {
        let mut has_any = false;
        while let Some((stream, message)) = ledger.poll(now_ns()) {
            has_any |= self.write_ledger(stream, &message);
        }
        has_any
    }

    /// Queues a message about the ledger, which [`drive`](WebrtcPeer::drive) sends. Returns false if there is no room for it.
    pub(super) fn write_ledger(&mut self, stream: LedgerStream, message: &[u8]) -> bool {
        let written = guarded(|| {
            self.channel(stream).map_or(Ok(false), |mut channel| Ok(channel.write(true, message)?))
        });
        written.unwrap_or(false)
    }

    /// Returns true if both ends have data channels for the ledger.
    pub(crate) fn has_ledger(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// Returns true if all messages about rows have arrived at the other end, and the one about the session's end with them.
    pub(crate) fn has_delivered_rows(&mut self) -> bool {
        self.channel(LedgerStream::Rows).is_none_or(|mut channel| channel.buffered_amount() == 0)
    }

    /// Returns the data channel; `None` before it is open.
    fn channel(&mut self, stream: LedgerStream) -> Option<Channel<'_>> {
        let (id, _) = *self.ledger.iter().find(|(_, known)| *known == stream)?;
        self.rtc.channel(id)
    }
}
