// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to a screen that the user gives in the dialog of the desktop's portal (org.freedesktop.portal.ScreenCast).

use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ashpd::desktop::PersistMode;
use ashpd::desktop::screencast::{CursorMode, Screencast, SourceType};
use ashpd::zbus::block_on;
use framepath_model::shown::shown;
use framepath_os::process::{cancel, signal};

use super::PortalKind;
use crate::error::StageError;

/// Time between two checks for a signal or a stop request while the user chooses.
const INTERVAL: Duration = Duration::from_millis(50);

/// Access to a screen. It ends with this value.
pub(super) struct PortalAccess {
    /// The thread that has the session ends it when this end of the channel is gone.
    _end: mpsc::Sender<()>,
}

/// Screen to which the portal gives access.
pub(super) struct GrantedScreen {
    /// Connection to PipeWire.
    pub(super) remote: OwnedFd,
    /// Number of the PipeWire node with the screen's pictures.
    pub(super) node: u32,
}

impl PortalAccess {
    /// Asks the user, for as long as that takes.
    ///
    /// # Errors
    /// There is no portal, the user refuses, or a signal or a stop request ended the wait.
    pub(super) fn ask(
        kind: PortalKind,
        with_pointer: bool,
    ) -> Result<(PortalAccess, GrantedScreen), StageError> {
        let (end, ended) = mpsc::channel();
        let (answers, answer) = mpsc::sync_channel(1);
        // The calls have neither a time limit nor a way to end them, so they have a thread of their own.
        let session = move || block_on(hold(kind, with_pointer, &answers, &ended));
        thread::Builder::new()
            .name("fp-portal".to_owned())
            .spawn(session)
            .map_err(StageError::io("a thread for the portal"))?;
        loop {
            match answer.recv_timeout(INTERVAL) {
                Ok(Ok(granted)) => return Ok((PortalAccess { _end: end }, granted)),
                Ok(Err(error)) => return Err(refused(&error)),
                Err(RecvTimeoutError::Timeout) if signal::interrupted() => {
                    return Err(StageError::io("wait for the portal")(cancel::canceled()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(StageError::Screen("no answer".to_owned()));
                }
            }
        }
    }
}

fn refused(error: &ashpd::Error) -> StageError {
    StageError::Screen(match error {
        ashpd::Error::Response(_) => "the dialog was closed without a choice".to_owned(),
        error => {
            let advice = "it needs D-Bus of the session (DBUS_SESSION_BUS_ADDRESS), xdg-desktop-portal and the desktop's own part of it";
            format!("{}; {advice}", shown(&error.to_string()))
        }
    })
}

/// Asks the portal, and keeps its session until `ended`.
async fn hold(
    kind: PortalKind,
    with_pointer: bool,
    answers: &mpsc::SyncSender<Result<GrantedScreen, ashpd::Error>>,
    ended: &mpsc::Receiver<()>,
) {
    let asked = async {
        let portal = Screencast::new().await?;
        let session = portal.create_session().await?;
        let kinds = match kind {
            PortalKind::Any => SourceType::Monitor | SourceType::Window,
            PortalKind::Screen => SourceType::Monitor.into(),
            PortalKind::Window => SourceType::Window.into(),
        };
        // A kind that the desktop does not have is an error.
        let kinds = match portal.available_source_types().await {
            Ok(available) if !(kinds & available).is_empty() => kinds & available,
            _ => kinds,
        };
        let pointer = if with_pointer { CursorMode::Embedded } else { CursorMode::Hidden };
        portal.select_sources(&session, pointer, kinds, false, None, PersistMode::DoNot).await?;
        let chosen = portal.start(&session, None).await?.response()?;
        let stream = chosen.streams().first().ok_or(ashpd::Error::NoResponse)?;
        let node = stream.pipe_wire_node_id();
        let remote = portal.open_pipe_wire_remote(&session).await?;
        Ok((session, GrantedScreen { remote, node }))
    };
    match asked.await {
        Ok((session, granted)) => {
            if answers.send(Ok(granted)).is_ok() {
                // Until the other end is gone.
                let _ = ended.recv();
            }
            // The portal ends the session in any case when the connection ends.
            let _ = session.close().await;
        }
        // Nobody may wait for it any more.
        Err(error) => drop(answers.send(Err(error))),
    }
}
