// SPDX-License-Identifier: MIT OR Apache-2.0
// WebRTC session with the sender: WHEP (RFC 9725 for its counterpart WHIP), and the data channels of the ledger.

import { Clock, now } from "./clock.js";
import { HOPS, Ledger } from "./ledger.js";
import * as messages from "./messages.js";

const ENDPOINT = "/whep";
/** Time between two pings, milliseconds, at the start and later. */
const PINGS = { first: 20, later: 200, count: 10 };
/** Time between two reports of rows, milliseconds. */
const REPORT = 50;
/** Time for the candidates of this browser, milliseconds. */
const GATHERING = 2000;
/** Time between two restarts of ICE, milliseconds, while no packet arrives. */
const RESTART = 2000;
/** Media type of the ICE part of a session description. */
const FRAGMENT = "application/trickle-ice-sdpfrag";
/** Time for the connection, milliseconds. */
const CONNECTING = 15000;

/** What the sender's answer means, by its HTTP status. */
const REFUSED = {
  400: "The sender and this browser have no codec in common, or disagree on the session.",
  401: "The token is wrong.",
  429: "There were too many wrong tokens. Try again in a moment.",
  503: "The sender has too many viewers, or its stream has ended.",
};

export class Session extends EventTarget {
  clock = new Clock();
  ledger = new Ledger(this.clock);
  /** Frames whose rows the sender has not got, each with its number. */
  unreported = [];
  /** True while ICE restarts. */
  restarting = false;
  /** Way in which the sender ended the session, with the number of frames and of those dropped; null before. */
  end = null;

  constructor(token, video) {
    super();
    this.token = token;
    this.video = video;
  }

  /** Opens the session. Throws an Error whose message is for the user. */
  async open() {
    const peer = new RTCPeerConnection();
    this.peer = peer;
    peer.addTransceiver("video", { direction: "recvonly" });
    peer.addEventListener("track", (event) => {
      this.receiver = event.receiver;
      this.video.srcObject = new MediaStream([event.track]);
    });
    peer.addEventListener("connectionstatechange", () => {
      if (peer.connectionState === "failed") this.close("The connection is lost.");
      if (peer.connectionState === "disconnected") this.restart(peer);
    });
    this.openLedger();
    await peer.setLocalDescription();
    await gathered(peer);
    const answer = await this.post(peer.localDescription.sdp);
    if (this.peer !== peer) return;
    await peer.setRemoteDescription({ type: "answer", sdp: answer });
    this.deadline = setTimeout(() => {
      if (peer.connectionState !== "connected") this.close("No packet arrives. Is UDP to the sender's port allowed?");
    }, CONNECTING);
    this.watchFrames();
  }

  async post(offer) {
    let response;
    try {
      response = await fetch(ENDPOINT, {
        method: "POST",
        headers: { "Content-Type": "application/sdp", Authorization: `Bearer ${this.token}` },
        body: offer,
      });
    } catch {
      throw new Error("The sender does not answer.");
    }
    const text = await response.text();
    if (response.status !== 201) {
      throw new Error(REFUSED[response.status] ?? `The sender refuses the session: HTTP status ${response.status}.`);
    }
    this.resource = response.headers.get("Location");
    return text;
  }

  /**
   * Restarts ICE until packets arrive again: the network of this device may be another one. The browser says when it gives up.
   */
  async restart(peer) {
    if (this.restarting) return;
    this.restarting = true;
    while (this.peer === peer && peer.connectionState === "disconnected") {
      const again = new Promise((resolve) => setTimeout(resolve, RESTART));
      try {
        await peer.setLocalDescription(await peer.createOffer({ iceRestart: true }));
        const response = await fetch(this.resource, {
          method: "PATCH",
          headers: { "Content-Type": FRAGMENT, "If-Match": "*", Authorization: `Bearer ${this.token}` },
          body: icePart(peer.localDescription.sdp),
          signal: AbortSignal.timeout(RESTART),
        });
        if (response.status !== 200) throw new Error(`HTTP status ${response.status}`);
        const answer = merged(peer.remoteDescription.sdp, await response.text());
        await peer.setRemoteDescription({ type: "answer", sdp: answer });
      } catch {
        // The session stays as it was, and the next try has an offer of its own.
        if (peer.signalingState === "have-local-offer") {
          await peer.setLocalDescription({ type: "rollback" }).catch(() => {});
        }
      }
      await again;
    }
    this.restarting = false;
  }

  openLedger() {
    const channel = (label, options) => {
      const opened = this.peer.createDataChannel(label, options);
      opened.binaryType = "arraybuffer";
      opened.addEventListener("message", (event) => this.receive(event.data));
      return opened;
    };
    this.times = channel("framepath-clock", { ordered: false, maxRetransmits: 0 });
    this.rows = channel("framepath-ledger", { ordered: true });
    let pings = 0;
    const ping = () => {
      this.send(this.times, messages.ping(now()));
      pings += 1;
      this.pinging = setTimeout(ping, pings < PINGS.count ? PINGS.first : PINGS.later);
    };
    this.times.addEventListener("open", ping);
    this.rows.addEventListener("open", () => {
      this.send(this.rows, messages.path(HOPS, ["browser"]));
      this.reporting = setInterval(() => this.sendRows(), REPORT);
    });
  }

  send(channel, message) {
    if (channel.readyState === "open") channel.send(message);
  }

  receive(data) {
    const returned = now();
    let message;
    try {
      message = messages.read(data);
    } catch (error) {
      console.warn(`ledger: ${error.message}`);
      return;
    }
    switch (message.kind) {
      case "ping":
        this.send(this.times, messages.pong(message.sent, returned, now()));
        break;
      case "pong":
        this.clock.push({ ...message, returned });
        break;
      case "frame":
        this.report(this.ledger.pushSent(message));
        break;
      case "end":
        this.end = message;
        break;
    }
    if (this.end) this.close(endText(this.end));
  }

  report(done) {
    if (done) this.unreported.push(done);
  }

  /** Sends the rows of the frames whose display is past: the sender takes rows from the future for forged. */
  sendRows() {
    const past = (done) => done.rows.every((row) => row.leave_ns <= now());
    this.unreported.filter(past).forEach((done) => this.send(this.rows, messages.frame(done.id, done.rows)));
    this.unreported = this.unreported.filter((done) => !past(done));
  }

  watchFrames() {
    const shown = (_, metadata) => {
      this.dispatchEvent(new Event("frame"));
      // Other browsers than Chromium lack some of the figures.
      if (metadata.rtpTimestamp !== undefined && metadata.receiveTime !== undefined) {
        const times = {
          received: Math.round(metadata.receiveTime * 1e6),
          decode: Math.round((metadata.processingDuration ?? 0) * 1e9),
          composed: Math.round(metadata.presentationTime * 1e6),
          shown: Math.round(metadata.expectedDisplayTime * 1e6),
        };
        this.report(this.ledger.pushShown(metadata.rtpTimestamp, times));
      }
      this.callback = this.video.requestVideoFrameCallback(shown);
    };
    if (this.video.requestVideoFrameCallback) this.callback = this.video.requestVideoFrameCallback(shown);
  }

  /** Ends the session, and tells why. Does nothing after the first call. */
  close(reason) {
    if (this.peer === null) return;
    clearTimeout(this.pinging);
    clearInterval(this.reporting);
    clearTimeout(this.deadline);
    if (this.callback !== undefined) this.video.cancelVideoFrameCallback(this.callback);
    this.peer?.close();
    this.peer = null;
    if (this.resource && !this.end) {
      const headers = { Authorization: `Bearer ${this.token}` };
      fetch(this.resource, { method: "DELETE", headers, keepalive: true }).catch(() => {});
    }
    this.dispatchEvent(new CustomEvent("closed", { detail: reason }));
  }
}

/** Waits until the browser has its candidates: the sender's answer needs no others. */
function gathered(peer) {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((resolve) => {
    setTimeout(resolve, GATHERING);
    peer.addEventListener("icegatheringstatechange", () => {
      if (peer.iceGatheringState === "complete") resolve();
    });
  });
}

const ICE = /^a=(ice-ufrag|ice-pwd|candidate|end-of-candidates)\b/;

/** Returns the ICE part of a session description: that of its first media, whose transport all share (RFC 8840, section 9). */
function icePart(sdp) {
  const media = sdp.split(/^(?=m=)/m)[1];
  const lines = media.split("\r\n").filter((line) => /^(m=|a=mid:)/.test(line) || ICE.test(line));
  return lines.map((line) => `${line}\r\n`).join("");
}

/** Returns a session description with another ICE part. */
function merged(sdp, part) {
  const kept = sdp.split("\r\n").filter((line) => !ICE.test(line));
  const ice = part.split("\r\n").filter((line) => ICE.test(line));
  return kept.flatMap((line) => (line.startsWith("a=mid:") ? [line, ...ice] : [line])).join("\r\n");
}

function endText({ end, dropped }) {
  const lost = dropped > 0 ? ` ${dropped} frames were dropped, because the network was slower than the stream.` : "";
  switch (end) {
    case "complete":
      return `The stream has ended.${lost}`;
    case "by user":
      return "The sender has ended this session.";
    default:
      return "The stream has failed at the sender.";
  }
}
