// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers in a browser: the sender's page in Chromium.
//!
//! `FRAMEPATH_KEEP_PAGE=FILE` keeps a picture of the page, such as docs/pictures/page.png.

use std::path::Path;

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{framepath, until};

use crate::chromium::Chromium;
use crate::clip::numbered;
use crate::ledgers::{number, read};
use crate::pictures::{WATCH, assert_pictures, seen_pictures};
use crate::sender::{Sending, start, started};

/// Width and height of a telephone's screen, pixels.
const TELEPHONE: (u32, u32) = (420, 800);

/// Notes the number that the sender gives each frame in `sent`, by the frame's RTP timestamp.
const NOTE_SENT: &str = "(async () => {
    const { Ledger } = await import('/page/ledger.js');
    const { pushSent } = Ledger.prototype;
    window.sent = {};
    Ledger.prototype.pushSent = function (frame) {
        window.sent[frame.time] = Number(frame.id);
        return pushSent.call(this, frame);
    };
})()";

/// Sends a picture that moves, without end, encoded by `encode`.
fn send(encode: &str, options: &[&str]) -> Sending {
    let path = format!("test size=640x360 rate=30 frames=100000 ! {encode} ! send listen=127.0.0.1:0");
    started(&mut framepath(&[&["run", "-v", "--quiet", &path][..], options].concat()))
}

/// Returns the sender's page; behind `#`, it has the token.
fn page(sending: &Sending, token: &str) -> String {
    format!("http://127.0.0.1:{}/#{token}", sending.port)
}

pub fn a_browser_shows_the_stream_and_its_ledger() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    let sending = send("encode h264 gop=30", &["--csv", csv.to_str().unwrap()]);
    let origin = format!("http://127.0.0.1:{}/", sending.port);
    let mut browser = Chromium::open(&page(&sending, &sending.token), TELEPHONE);
    browser.until("document.getElementById('count')?.textContent >= 60");
    // The address has no token any more, and the page fits the screen.
    assert_eq!(browser.value("location.href"), origin);
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 420);
    assert_eq!(browser.value("document.getElementById('picture').videoWidth"), 640);
    let causes = browser.text("causes");
    for cause in ["compute", "network", "pool", "unexplained", "latency"] {
        assert!(causes.contains(cause), "{causes}");
    }
    let figures = browser.text("figures");
    assert!(figures.contains("640x360 H264") && figures.contains("clocks agree to ±"), "{figures}");
    // The keyboard is enough.
    browser.press("l");
    browser.until("document.getElementById('ledger').hidden");
    browser.press("l");
    browser.until("!document.getElementById('ledger').hidden");
    if let Some(keep) = std::env::var_os("FRAMEPATH_KEEP_PAGE") {
        browser.resize((1280, 680));
        browser.until("document.getElementById('count').textContent >= 250");
        browser.take_picture(Path::new(&keep));
    }
    sending.signal(rustix::process::Signal::INT);
    let ended = sending.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    browser.until("document.getElementById('state').textContent !== ''");
    let state = browser.text("state");
    assert!(state.contains("The stream has ended."), "{state}");
    assert_eq!(browser.complaints, [""; 0]);
    assert!(browser.requests.iter().all(|url| url.starts_with(&origin)), "{:?}", browser.requests);
    // The sender has the browser's rows, too.
    let table = read(&csv);
    let shown = table.values().filter(|rows| rows.len() > 5);
    let mut count = 0;
    for rows in shown {
        count += 1;
        for pair in rows.windows(2) {
            assert_eq!(number(&pair[0], "leave_ns"), number(&pair[1], "enter_ns"), "{pair:?}");
        }
    }
    assert!(count > 30, "{count} of {}", table.len());
    Ok(())
}

pub fn a_browser_with_a_wrong_token_says_so() -> Tested {
    needs_program("chromium", "chromium")?;
    let sending = send("convert format=yuv420p ! encode vp8 gop=30", &[]);
    let mut browser = Chromium::open(&page(&sending, ""), TELEPHONE);
    browser.until("document.activeElement?.id === 'token'");
    browser.type_text("wrong");
    browser.press("Enter");
    browser.until("document.getElementById('state')?.textContent === 'The token is wrong.'");
    // The form is there again.
    browser.value("document.getElementById('token').select()");
    browser.type_text(&sending.token.clone());
    browser.press("Enter");
    browser.until("document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > 5");
    sending.signal(rustix::process::Signal::INT);
    sending.end();
    Ok(())
}

pub fn a_browser_shows_the_pictures_that_were_sent() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let sending = start(&numbered(folder.path()), "loop=inf rate=60", "token=lab");
    let mut browser = Chromium::open(&format!("http://127.0.0.1:{}/?picture#lab", sending.port), TELEPHONE);
    browser.until("document.getElementById('picture')?.videoWidth === 512");
    // The picture fills the window, and the heading is hidden.
    let (width, height) = TELEPHONE;
    for (side, size) in [("clientWidth", width), ("clientHeight", height)] {
        assert_eq!(browser.value(&format!("document.getElementById('picture').{side}")), size);
    }
    assert_eq!(browser.value("document.querySelector('h1').offsetHeight"), 0);
    browser.value(NOTE_SENT);
    let seen = seen_pictures(&mut browser, 600, "one.rtpTimestamp in sent", "sent[one.rtpTimestamp]");
    sending.signal(rustix::process::Signal::INT);
    sending.end();
    assert_pictures(&seen);
    Ok(())
}

pub fn viewers_that_come_and_go_leave_nothing() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let sending = start(&numbered(folder.path()), "loop=inf rate=60", "token=lab");
    let mut browser = Chromium::open(&page(&sending, "lab"), TELEPHONE);
    browser.until("document.getElementById('picture')?.videoWidth === 512");
    browser.value(WATCH);
    browser.value("comeAndGo(10, { Authorization: 'Bearer lab' })");
    let before = sending.descriptors_and_threads();
    assert_eq!(browser.value("comeAndGo(100, { Authorization: 'Bearer lab' })"), 100);
    until("the sender has forgotten the viewers", || sending.viewers() == 1);
    // A connection for requests may wait for further ones.
    let is_as_before =
        || sending.descriptors_and_threads().iter().zip(before).all(|(now, then)| *now <= then);
    until("nothing of the viewers is left", is_as_before);
    browser.value("document.getElementById('leave').click()");
    until("the sender has no viewer", || sending.viewers() == 0);
    sending.signal(rustix::process::Signal::INT);
    sending.end();
    Ok(())
}

pub fn a_tab_in_the_background_goes_on_and_harms_nobody() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let sending = start(&numbered(folder.path()), "loop=inf rate=60", "token=lab");
    let mut browser = Chromium::open(&page(&sending, "lab"), TELEPHONE);
    browser.until("document.getElementById('picture')?.videoWidth === 512");
    browser.open_in_front("about:blank");
    browser.until("document.hidden");
    // Meanwhile, another viewer loses no frame.
    let path = format!("recv {} token=lab latency=5s ! null", sending.url);
    framepath_testkit::run(&["run", "--quiet", "--frames", "600", &path]).ended(0);
    assert_eq!(browser.value("document.hidden"), true);
    browser.bring_to_front();
    browser.until("!document.hidden");
    browser.value(
        "window.shown = document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames",
    );
    browser.until(
        "document.getElementById('picture').getVideoPlaybackQuality().totalVideoFrames > window.shown + 60",
    );
    assert_eq!(browser.text("state"), "");
    assert_eq!(browser.complaints, [""; 0]);
    assert_eq!(sending.viewers(), 1);
    sending.signal(rustix::process::Signal::INT);
    sending.end();
    Ok(())
}
