// SPDX-License-Identifier: MIT OR Apache-2.0
//! `send rtp=`: RTP and SRTP to libavformat, and through Janus to browsers.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{framepath, in_checkout, run, until, wait};
use rustix::process::Signal;

use crate::chromium::Chromium;
use crate::clip::{FRAMES, hashes, hashes_of, numbered};
use crate::namespace::{ADDRESS, Namespace};
use crate::pictures::{assert_pictures, pictures_by_time};
use crate::sender::signal;

/// Key of SRTP, 30 bytes in Base64.
const KEY: &str = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw";
/// Size of a browser's window.
const WINDOW: (u32, u32) = (800, 600);

/// Returns a port of the loopback interface that is free for UDP, with the one behind it.
fn free_ports() -> u16 {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    (0..1000)
        .map(|step| 20_000 + 2 * ((seed / 1000 + step) % 10_000) as u16)
        .find(|port| [*port, port + 1].iter().all(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok()))
        .unwrap()
}

/// Makes a clip of `codec` in `folder` that fits into the receive buffer of a socket: a receiver that waits for the processor loses none of
/// it.
fn small(folder: &Path, name: &str, codec: &str) -> PathBuf {
    let clip = folder.join(name);
    let source = format!("testsrc2=size=160x90:rate=25:duration={}", FRAMES / 25);
    let coding = ["-c:v", codec, "-pix_fmt", "yuv420p", "-b:v", "100k", "-g", "25", "-bf", "0"];
    let file = ["-preset", "veryfast", clip.to_str().unwrap()];
    // libvpx has no presets.
    let file = if codec == "libvpx" { &file[2..] } else { &file };
    framepath_testkit::ffmpeg(&[&["-f", "lavfi", "-i", &source][..], &coding, file].concat());
    assert!(fs::metadata(&clip).unwrap().len() < 150_000);
    clip
}

/// Sends a clip with these options, and returns the hashes of the frames that a receiver decodes: the source that `receiver` makes of
/// the port and the session description.
fn received(clip: &Path, options: &str, receiver: impl Fn(u16, &str) -> String) -> Vec<String> {
    let port = free_ports();
    let sdp = clip.with_extension("sdp");
    let sdp = sdp.to_str().unwrap();
    let send = |frames: &str| {
        let path =
            format!("file {} rate=100 ! send rtp=127.0.0.1:{port} sdp={sdp} {options}", clip.display());
        run(&["run", "--quiet", "--frames", frames, &path]).ended(0);
    };
    // Only for the description.
    send("1");
    let source = receiver(port, sdp);
    let mut receiver = framepath(&["run", "--quiet", &format!("{source} timeout=60s ! decode ! framemd5 -")]);
    let receiver = receiver.spawn().unwrap();
    let bound = format!(":{port:04X} ");
    until("the receiver listens", || {
        let sockets = ["udp", "udp6"].map(|file| fs::read_to_string(format!("/proc/net/{file}")).unwrap());
        sockets.concat().contains(&bound)
    });
    send(&FRAMES.to_string());
    hashes(&wait(receiver, "rtp").ended(0).frames())
}

pub fn a_stream_over_rtp_arrives_encrypted_and_plain() {
    let folder = tempfile::tempdir().unwrap();
    let clip = small(folder.path(), "clip.mp4", "libx264");
    let all = hashes_of(&clip);
    let by_description = |_, sdp: &str| format!("rtp sdp={sdp}");
    for options in [&format!("srtp={KEY}"), "plain=yes"] {
        assert_eq!(received(&clip, options, by_description), all, "{options}");
        let description = fs::read_to_string(clip.with_extension("sdp")).unwrap();
        assert_eq!(description.contains("RTP/SAVP"), options.starts_with("srtp"), "{description}");
    }
    for (name, codec) in [("vp8.webm", "libvpx"), ("hevc.mp4", "libx265")] {
        let clip = small(folder.path(), name, codec);
        let (got, all) = (received(&clip, &format!("srtp={KEY}"), by_description), hashes_of(&clip));
        assert_eq!(got.len(), all.len());
        assert_eq!(got, all, "{}", clip.display());
    }
}

pub fn recv_receives_rtp_at_an_address_and_by_a_description() {
    let folder = tempfile::tempdir().unwrap();
    let clip = small(folder.path(), "clip.mp4", "libx264");
    let all = hashes_of(&clip);
    let by_description = received(&clip, "plain=yes", |_, sdp| format!("recv sdp={sdp}"));
    assert_eq!(by_description, all);
    let at_address =
        received(&clip, &format!("srtp={KEY}"), |port, _| format!("recv rtp=0.0.0.0:{port} srtp={KEY}"));
    assert_eq!(at_address, all);
    let clip = small(folder.path(), "vp8.webm", "libvpx");
    let vp8 = received(&clip, "plain=yes", |port, _| format!("recv rtp=127.0.0.1:{port} codec=vp8"));
    assert_eq!(vp8, hashes_of(&clip));
}

pub fn a_receiver_of_rtp_without_or_with_too_many_addresses_is_refused() {
    for (options, error) in [
        ("", "no sender: name a WHEP endpoint or a pairing code, or receive RTP with rtp=ADDRESS:PORT"),
        ("rtp=0.0.0.0:5004 sdp=a.sdp", "rtp= and sdp= exclude each other"),
        ("http://127.0.0.1:9/whep rtp=0.0.0.0:5004", "url= and rtp= exclude each other"),
        ("http://127.0.0.1:9/whep codec=vp8", "codec= belongs to rtp="),
        ("sdp=a.sdp codec=vp8", "the session description has its value"),
        ("rtp=0.0.0.0:5004 token=abc", "token= is for WebRTC"),
        ("rtp=5004", "expected an IP address of this computer and a port"),
        ("rtp=0.0.0.0:0", "expected an IP address of this computer and a port"),
        ("rtp=0.0.0.0:5004 srtp=short", "srtp=: expected 40 characters of Base64"),
    ] {
        run(&["run", "--quiet", &format!("recv {options} ! null")]).ended(1).prints(error);
    }
    // Nobody sends.
    let port = free_ports();
    let path = format!("recv rtp=127.0.0.1:{port} timeout=1s ! null");
    run(&["run", "--quiet", &path]).ended(1);
}

pub fn rtp_without_a_key_that_a_receiver_can_know_is_refused() {
    let path = |options: &str| format!("test frames=3 ! encode h264 ! send {options}");
    for (options, error) in [
        ("rtp=127.0.0.1:5004", "a receiver needs the key; add sdp=FILE"),
        ("rtp=127.0.0.1:5004 srtp=short", "srtp=: expected 40 characters of Base64"),
        (
            "rtp=127.0.0.1:5004 plain=yes listen=127.0.0.1:0",
            "listen= is for WebRTC, and rtp= has no sessions",
        ),
        ("rtp=localhost plain=yes", "expected an IP address and a port, such as 192.168.1.5:5004"),
        ("rtp=127.0.0.1:65535 plain=yes", "reports need the port behind it, too"),
        ("plain=yes", "plain= belongs to rtp="),
    ] {
        run(&["run", "--quiet", &path(options)]).ended(1).prints(error);
    }
}

pub fn only_its_user_may_read_the_file_with_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let [sdp, other] = ["stream.sdp", "other"].map(|name| folder.path().join(name));
    let path = format!("test frames=3 ! encode h264 ! send rtp=127.0.0.1:9 sdp={}", sdp.display());
    fs::write(&other, "other").unwrap();
    for before in 0..3 {
        match before {
            0 => {}
            1 => fs::set_permissions(&sdp, fs::Permissions::from_mode(0o644)).unwrap(),
            _ => {
                fs::remove_file(&sdp).unwrap();
                std::os::unix::fs::symlink(&other, &sdp).unwrap();
            }
        }
        run(&["run", "--quiet", &path]).ended(0);
        let file = fs::symlink_metadata(&sdp).unwrap();
        assert!(file.is_file() && file.permissions().mode() & 0o777 == 0o600, "{before}: {file:?}");
        assert!(fs::read_to_string(&sdp).unwrap().contains("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:"));
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "other");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    // Neither the input nor another output.
    for path in [
        format!(
            "test frames=3 ! encode h264 ! tee ( queue ! mux {0} ) ( queue ! send rtp=127.0.0.1:9 sdp={0} )",
            sdp.display()
        ),
        format!("file {0} ! send rtp=127.0.0.1:9 sdp={0}", sdp.display()),
    ] {
        run(&["run", "--quiet", &path]).ended(2).prints("; choose another file");
    }
    run(&["run", "--quiet", &path, "--json", sdp.to_str().unwrap()]).ended(2).prints("; choose another file");
}

pub fn packets_that_the_kernel_refuses_are_an_error() -> Tested {
    let namespace = Namespace::new()?;
    // The namespace has no route to it.
    let path = "test frames=100000 rate=100 size=64x48 ! encode h264 ! send rtp=198.51.100.1:5004 plain=yes";
    let ran = wait(namespace.framepath(path).spawn().unwrap(), "send");
    ran.ended(1).prints("packets: Network is unreachable");
    Ok(())
}

/// Janus with contrib/janus/fanout, in a network namespace. Both end with this value.
struct Fanout(Child);

impl Drop for Fanout {
    fn drop(&mut self) {
        // It ends Janus.
        signal(&self.0, Signal::TERM);
        let _ = self.0.wait();
    }
}

pub fn a_stream_goes_through_janus_to_two_browsers() -> Tested {
    needs_program("chromium", "chromium")?;
    needs_program("janus", "janus")?;
    needs_program("python3", "python3")?;
    let folder = tempfile::tempdir().unwrap();
    let clip = numbered(folder.path());
    let namespace = Namespace::new()?;
    let mut command = namespace.inside(in_checkout("contrib/janus/fanout"));
    command.args(["--listen", &format!("{ADDRESS}:8090"), "--key", KEY, "--token", "lab"]);
    let _fanout = Fanout(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    until("the front listens", || namespace.net("tcp").contains(":1F9A 00000000:0000 0A"));
    // The only keyframe of its own is the first: Janus asks for those that browsers need.
    let path = format!(
        "file {} loop=inf rate=60 ! decode ! encode h264 preset=ultrafast gop=100000 ! send rtp=127.0.0.1:5004 srtp={KEY}",
        clip.display()
    );
    let sender = namespace.framepath(&path).spawn().unwrap();
    let open = |token: &str| {
        Chromium::open_by(namespace.inside("sh"), &format!("http://{ADDRESS}:8090/#{token}"), WINDOW)
    };
    let mut stranger = open("wrong");
    stranger.until("document.getElementById('state')?.textContent === 'the token is wrong'");
    drop(stranger);
    let mut browsers = [open("lab"), open("lab")];
    for browser in &mut browsers {
        browser.until("document.getElementById('picture')?.videoWidth === 512");
    }
    for browser in &mut browsers {
        assert_pictures(&pictures_by_time(browser, 200));
    }
    // One leaves, and the other goes on.
    let [first, mut second] = browsers;
    drop(first);
    assert_pictures(&pictures_by_time(&mut second, 100));
    signal(&sender, Signal::INT);
    let sender = wait(sender, "send");
    assert_eq!(sender.code, Some(130), "{}", sender.stderr);
    Ok(())
}
