// SPDX-License-Identifier: MIT OR Apache-2.0
//! `url http://...` and `url https://...`: this process fetches the bytes, and a worker demuxes them.

mod answer;
mod client;
mod remote_file;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use framepath_model::path::Hop;
use framepath_os::measure::meter;
use framepath_os::process::cancel::canceled;
use framepath_os::process::signal;

use self::client::HttpClient;
use self::remote_file::RemoteFile;
use crate::element::HopPlace;
use crate::error::StageError;
use crate::host::{ByteServer, DemuxedInput, ServedInput};
use crate::source::file::{File, FileOptions, always_demuxer_of};
use crate::source::url::address::shown;

/// Interval of checks for a signal or a stop request while the server has not answered the first request.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Opens the file at the address of `hop`.
///
/// # Errors
/// An option is invalid; the server cannot be reached or does not have the file; the demuxer's worker cannot
/// open the file; or a signal or a stop request has canceled the wait.
pub(super) fn open(hop: &Hop, place: &HopPlace<'_>) -> Result<File, StageError> {
    let spec = always_demuxer_of(hop, place.behind)?;
    let address = hop.text("url");
    let name = shown(address);
    let ca = hop.is_set("ca").then(|| hop.text("ca"));
    let client = HttpClient::new(address, ca)?;
    let cancel = client.canceler();
    let notes = place.outcomes.notes.clone();
    // In a thread, because no signal ends a wait of the client or of the name resolver.
    let (sender, receiver) = channel();
    let (to_open, to_fail) = (address.to_owned(), StageError::io(name.clone()));
    let open = move || {
        // After a signal or a stop request there is no receiver.
        let _ = sender.send(RemoteFile::open(client, to_open, notes));
    };
    let spawned = thread::Builder::new().name("fp-http".to_owned()).spawn(open);
    spawned.map_err(StageError::io("start a thread"))?;
    let opened = loop {
        match meter::blocked(|| receiver.recv_timeout(CHECK_INTERVAL)) {
            Ok(opened) => break opened,
            Err(RecvTimeoutError::Timeout) if !signal::interrupted() => {}
            Err(RecvTimeoutError::Timeout) => {
                cancel.cancel();
                return Err(to_fail(canceled()));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(to_fail(std::io::ErrorKind::Other.into())),
        }
    };
    let remote = opened.map_err(|reason| StageError::Option(format!("open {name}: {reason}")))?;
    let (size, seekable) = (remote.size(), remote.is_seekable());
    log::info!(
        "url {name}: {} bytes, {}",
        size.map_or("unknown".to_owned(), |size| size.to_string()),
        match seekable {
            true => "seekable",
            false => "not seekable",
        }
    );
    let input = ServedInput { name: name.clone(), size, seekable };
    let server = ByteServer::start(input, remote, move || cancel.cancel());
    let server = server.map_err(StageError::io("serve bytes to the demuxer"))?;
    let file = File::remote(&name, DemuxedInput::Served(server), &FileOptions::of(hop), spec)?;
    file.report_worker(place);
    Ok(file)
}
