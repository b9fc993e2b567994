// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers whose network changes: the session goes on by a restart of ICE.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::{program, until, wait};
use rustix::process::Signal;

use crate::chromium::Chromium;
use crate::clip::numbered;
use crate::namespace::{ADDRESS, NEIGHBOURS, Namespace};
use crate::sender::{Sending, signal, started};

/// Port of the WHIP server, in a network namespace of its own.
const PORT: u16 = 8080;
/// Token of the sender.
const TOKEN: &str = "abcdefgh12345678";

/// Sends numbered pictures at an address that is not the loopback interface's, until it is ended.
fn send(namespace: &Namespace, folder: &Path) -> Sending {
    let clip = numbered(folder);
    let path = format!("file {} loop=inf rate=60 ! send listen={ADDRESS}:0 token={TOKEN}", clip.display());
    started(&mut namespace.framepath(&path))
}

pub fn a_viewer_whose_address_changes_keeps_its_session() -> Tested {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::new()?;
    let neighbour = namespace.neighbour()?;
    let sending = send(&namespace, folder.path());
    let mut viewer = neighbour.framepath(&format!("recv {} token={TOKEN} timeout=60s ! null", sending.url));
    let viewer = viewer.args(["--frames", "300"]).spawn().unwrap();
    sending.until_printed(": connected");
    neighbour.change_address();
    sending.until_printed(&format!("restarts ICE at {}", NEIGHBOURS[1]));
    let ended = wait(viewer, "recv");
    // The frames of the two seconds in between are lost, which the run says; all others are there.
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("ICE restarts from {}", NEIGHBOURS[1])), "{}", ended.stderr);
    assert!(!ended.stderr.contains("connection"), "{}", ended.stderr);
    sending.signal(Signal::INT);
    let sent = sending.end();
    assert_eq!(sent.stderr.matches(": connected").count(), 1, "{}", sent.stderr);
    Ok(())
}

pub fn a_browser_whose_address_changes_keeps_its_session() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::new()?;
    let neighbour = namespace.neighbour()?;
    let sending = send(&namespace, folder.path());
    let page = format!("http://{ADDRESS}:{}/#{TOKEN}", sending.port);
    let mut browser = Chromium::open_by(neighbour.inside("sh"), &page, (800, 600));
    let frames = "document.getElementById('picture')?.getVideoPlaybackQuality().totalVideoFrames";
    browser.until(&format!("{frames} > 60"));
    neighbour.change_address();
    sending.until_printed(&format!("restarts ICE at {}", NEIGHBOURS[1]));
    let before = browser.value(frames).as_u64().unwrap();
    browser.until(&format!("{frames} > {before} + 120"));
    assert_eq!(browser.text("state"), "");
    sending.signal(Signal::INT);
    let sent = sending.end();
    assert_eq!(sent.stderr.matches(": connected").count(), 1, "{}", sent.stderr);
    Ok(())
}

pub fn a_publisher_whose_address_changes_keeps_its_session() -> Tested {
    let peer = program().ancestors().nth(2).unwrap().join("peers/whip-restarts");
    if !peer.is_file() {
        return Err(Missing::new("Pion's server is not built; make -C peers whip-whep"));
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = numbered(folder.path());
    let namespace = Namespace::new()?;
    let neighbour = namespace.neighbour()?;
    let mut server = namespace.inside(&peer);
    let mut server = server.arg(format!("{ADDRESS}:{PORT}")).stdout(Stdio::piped()).spawn().unwrap();
    let listens = format!(":{PORT:04X} 00000000:0000 0A");
    until("Pion's server listens", || namespace.net("tcp").contains(&listens));
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let path = format!("file {} loop=inf rate=60 ! send whip=http://{ADDRESS}:{PORT}/whip", clip.display());
    let sender = neighbour.framepath(&path).spawn().unwrap();
    assert_eq!(lines.next().unwrap(), format!("packets from {}", NEIGHBOURS[0]));
    neighbour.change_address();
    let after = [lines.next(), lines.next()].map(Option::unwrap);
    assert_eq!(after, ["restart".to_owned(), format!("packets from {}", NEIGHBOURS[1])]);
    signal(&sender, Signal::INT);
    let sender = wait(sender, "send");
    assert_eq!(sender.code, Some(130), "{}", sender.stderr);
    assert_eq!(lines.next().unwrap(), "end");
    server.kill().unwrap();
    server.wait().unwrap();
    Ok(())
}
