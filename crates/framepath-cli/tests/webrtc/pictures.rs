// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures that show their numbers, read in a browser; and sessions that a page in a browser opens by WHEP.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::chromium::Chromium;
use crate::clip::NUMBERED;

/// RTP timestamps from one picture to the next.
const TICKS: u64 = 90_000 / 60;
/// Reads the bits of each picture that the page shows into `seen`, with its RTP timestamp.
const READ_PICTURES: &str = "{
    window.seen = [];
    const video = document.getElementById('picture');
    const canvas = Object.assign(document.createElement('canvas'), { width: 512, height: 1 });
    const context = canvas.getContext('2d', { willReadFrequently: true });
    const look = (_, { rtpTimestamp }) => {
        context.drawImage(video, 0, 32, 512, 1, 0, 0, 512, 1);
        const { data } = context.getImageData(0, 0, 512, 1);
        const bits = Array.from({ length: 32 }, (_, cell) => (data[4 * (16 * cell + 8)] > 128 ? '1' : '0'));
        window.seen.push({ bits: bits.join(''), rtpTimestamp });
        video.requestVideoFrameCallback(look);
    };
    video.requestVideoFrameCallback(look);
}";

/// Functions of a page that receives a stream by WHEP: `watch` opens a session, and resolves once it is connected; `comeAndGo` opens
/// and closes `count` sessions, one behind the other.
pub const WATCH: &str = "
window.watch = async (headers, video) => {
    const peer = new RTCPeerConnection();
    peer.addTransceiver('video', { direction: 'recvonly' });
    if (video) peer.ontrack = ({ track }) => { video.srcObject = new MediaStream([track]); };
    const connected = new Promise((resolve) => {
        peer.onconnectionstatechange = () => { if (peer.connectionState === 'connected') resolve(); };
    });
    await peer.setLocalDescription();
    while (peer.iceGatheringState !== 'complete') await new Promise((resolve) => setTimeout(resolve, 5));
    headers = { 'Content-Type': 'application/sdp', ...headers };
    const answer = await fetch('/whep', { method: 'POST', headers, body: peer.localDescription.sdp });
    await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
    await connected;
    return peer;
};
window.comeAndGo = async (count, headers) => {
    for (let left = count; left > 0; left -= 1) (await watch(headers)).close();
    return count;
};";

/// A picture that was seen: the number of its frame, and the number that it shows.
pub type SeenPicture = (u64, u64);

/// Returns at least `count` pictures that the page shows, and that meet the JavaScript condition `is_known`. The JavaScript expression
/// `number` is the number of the frame of the picture `one`.
pub fn seen_pictures(browser: &mut Chromium, count: usize, is_known: &str, number: &str) -> Vec<SeenPicture> {
    browser.value(READ_PICTURES);
    browser.until(&format!("seen.filter((one) => {is_known}).length >= {count}"));
    let known =
        format!("seen.filter((one) => {is_known}).map((one) => ({{ id: {number}, bits: one.bits }}))");
    let seen = browser.value(&format!("JSON.stringify({known})"));
    let seen: Vec<Value> = serde_json::from_str(seen.as_str().unwrap()).unwrap();
    let pictures =
        seen.iter().map(|one| (one["id"].as_u64().unwrap(), picture(one["bits"].as_str().unwrap())));
    pictures.collect()
}

/// Returns `count` pictures that the page shows, with numbers of their frames by their RTP timestamps, 60 a second. A server may change
/// all timestamps by the same.
pub fn pictures_by_time(browser: &mut Chromium, count: usize) -> Vec<SeenPicture> {
    let number =
        format!("Math.round((2 ** 32 + one.rtpTimestamp - seen[0].rtpTimestamp) % 2 ** 32 / {TICKS})");
    aligned(&seen_pictures(browser, count, "true", &number))
}

/// Returns the same pictures with other numbers of their frames: all are changed by the same, so that most are those of the pictures.
fn aligned(seen: &[SeenPicture]) -> Vec<SeenPicture> {
    let mut offsets: BTreeMap<u64, usize> = BTreeMap::new();
    for (id, picture) in seen {
        *offsets.entry((picture + NUMBERED - id % NUMBERED) % NUMBERED).or_default() += 1;
    }
    let (offset, _) = offsets.into_iter().max_by_key(|(_, count)| *count).unwrap();
    seen.iter().map(|(id, picture)| (id + offset, *picture)).collect()
}

/// Frames behind its own by which the browser may have gone on before the page has read a picture: one, and more on a busy machine.
const GONE_ON: u64 = 4;

/// Asserts that all pictures show the numbers of their frames, or those of the frames to which the browser has gone on meanwhile.
pub fn assert_pictures(seen: &[SeenPicture]) {
    let is = |behind: u64| seen.iter().filter(|(id, picture)| (id + behind) % NUMBERED == *picture).count();
    let (right, later) = (is(0), (1..=GONE_ON).map(is).sum::<usize>());
    assert!(right + later == seen.len() && later < right, "{right} right, {later} later of {seen:?}");
}

/// Returns the number that was read from a picture.
fn picture(bits: &str) -> u64 {
    let (number, check) = bits.split_at(16);
    assert!(
        number.chars().zip(check.chars()).all(|(bit, other)| bit != other),
        "an unreadable picture: {bits}"
    );
    let lowest_last: String = number.chars().rev().collect();
    u64::from_str_radix(&lowest_last, 2).unwrap()
}
