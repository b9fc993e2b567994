// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP server of gst-rtsp-server, as a process of the test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::in_checkout;

/// Debian's interpreter, which has Debian's modules.
const PYTHON: &str = "/usr/bin/python3";
const PACKAGES: &str =
    "python3-gi gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-good gstreamer1.0-plugins-bad";

/// Checks that this machine has gst-rtsp-server and the elements that it needs.
pub fn needs_server() -> Tested {
    let program = "import gi\n\
         gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0')\n\
         from gi.repository import Gst, GstRtspServer\n\
         Gst.init(None)\n\
         assert all(map(Gst.ElementFactory.find, ['qtdemux', 'h264parse', 'rtph264pay', 'rtpbin', 'udpsink']))\n";
    let status = Command::new(PYTHON).args(["-c", program]).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Missing::new(format!("gst-rtsp-server is not installed; apt install {PACKAGES}")))
}

/// Running server. Dropping it kills the process.
pub struct RtspServer {
    process: Child,
    pub port: u16,
}

impl RtspServer {
    /// Starts a server that serves `clip` at `port`; 0 is a free port.
    pub fn start(clip: &Path, port: u16) -> RtspServer {
        let mut process = Command::new(PYTHON)
            .arg(in_checkout("crates/framepath-cli/tests/network/rtsp-server.py"))
            .args([clip.to_str().unwrap(), &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").and_then(|port| port.parse().ok());
        RtspServer { process, port: port.unwrap_or_else(|| panic!("the RTSP server says {line:?}")) }
    }

    /// Returns the URL of the clip.
    pub fn url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/clip", self.port)
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        // Fails only if the server has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
