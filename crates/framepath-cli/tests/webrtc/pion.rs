// SPDX-License-Identifier: MIT OR Apache-2.0
//! WHIP and WHEP with a server of others: Pion's example, which passes one stream of H.264 on to any number of viewers. It offers no
//! address of the loopback interface, so it runs in a network namespace.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::{program, until, wait};
use rustix::process::Signal;

use crate::chromium::Chromium;
use crate::clip::{hashes, numbered};
use crate::namespace::{ADDRESS, Namespace};
use crate::pictures::{WATCH, assert_pictures, pictures_by_time};
use crate::sender::signal;

/// Port of Pion's example, which cannot be chosen.
const PORT: u16 = 8080;
/// Viewers that come and go, one behind the other.
const VIEWERS: u64 = 100;
/// Page that the server serves beside its endpoints.
const PAGE: &str = "<!doctype html><title>viewer</title><link rel=icon href=data:><video id=picture autoplay muted playsinline></video>";

/// Pion's server in a network namespace. It ends with this value.
struct Server {
    pion: Child,
    namespace: Namespace,
}

impl Server {
    /// Starts the server, whose files are in `folder`.
    fn start(folder: &Path) -> Result<Server, Missing> {
        let peer = program().ancestors().nth(2).unwrap().join("peers/whip-whep");
        if !peer.is_file() {
            return Err(Missing::new("Pion's server is not built; make -C peers whip-whep"));
        }
        fs::write(folder.join("index.html"), PAGE).unwrap();
        let namespace = Namespace::new()?;
        let mut command = namespace.inside(&peer);
        let pion = command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Server { pion, namespace };
        let state = format!(":{PORT:04X} 00000000000000000000000000000000:0000 0A");
        until("Pion's server listens", || server.namespace.net("tcp6").contains(&state));
        Ok(server)
    }

    /// Returns the number of UDP sockets in the namespace.
    fn sockets(&self) -> usize {
        let count = |file| self.namespace.net(file).lines().count() - 1;
        count("udp") + count("udp6")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.pion.kill();
        let _ = self.pion.wait();
    }
}

pub fn a_stream_goes_through_a_server_to_a_browser_and_to_framepath() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let clip = numbered(folder.path());
    let server = Server::start(folder.path())?;
    let url = format!("http://{ADDRESS}:{PORT}");
    let path = format!("file {} loop=inf rate=60 ! send whip={url}/whip", clip.display());
    let sender = server.namespace.framepath(&path).spawn().unwrap();
    // The server gives viewers a track before it has the stream, and asks for keyframes every three seconds.
    let mut browser = Chromium::open_by(server.namespace.inside("sh"), &url, (800, 600));
    browser.until("document.getElementById('picture') !== null");
    browser.value(WATCH);
    browser.value("watch({}, document.getElementById('picture')).then(() => true)");
    browser.until("document.getElementById('picture').videoWidth === 512");
    assert_pictures(&pictures_by_time(&mut browser, 200));
    // framepath's own viewer gets the pictures of the file, in order.
    let view = format!("recv {url}/whep timeout=60s ! decode ! framemd5 -");
    let mut viewer = server.namespace.framepath(&view);
    let viewer = wait(viewer.args(["--frames", "100"]).spawn().unwrap(), "recv");
    assert_eq!(viewer.code, Some(0), "{}", viewer.stderr);
    let all = framepath_testkit::run(&[
        "run",
        "--quiet",
        &format!("file {} ! decode ! framemd5 -", clip.display()),
    ]);
    let (all, got) = (hashes(&all.ended(0).frames()), hashes(&viewer.frames()));
    let at = all.iter().position(|hash| *hash == got[0]).unwrap();
    let expected: Vec<_> = all.iter().cycle().skip(at).take(got.len()).cloned().collect();
    assert_eq!(got, expected);
    // The server closes the sockets of its viewers when it has seen that they are gone.
    let before = server.sockets();
    assert_eq!(browser.value(&format!("comeAndGo({VIEWERS})")), VIEWERS);
    drop(browser);
    until("the server has forgotten its viewers", || server.sockets() < before);
    signal(&sender, Signal::INT);
    let sender = wait(sender, "send");
    assert_eq!(sender.code, Some(130), "{}", sender.stderr);
    Ok(())
}

pub fn a_server_that_disappears_is_an_error() -> Tested {
    let folder = tempfile::tempdir().unwrap();
    let clip = numbered(folder.path());
    let mut server = Server::start(folder.path())?;
    let path = format!("file {} loop=inf rate=60 ! send whip=http://{ADDRESS}:{PORT}/whip", clip.display());
    let sender = server.namespace.framepath(&path).spawn().unwrap();
    until("the sender is connected", || server.sockets() > 1);
    server.pion.kill().unwrap();
    server.pion.wait().unwrap();
    wait(sender, "send").ended(1).prints("/whip");
    Ok(())
}
