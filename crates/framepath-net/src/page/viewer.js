// SPDX-License-Identifier: MIT OR Apache-2.0
// The page: the token's form, the picture, and the ledger beside it.

import { draw, fill } from "./chart.js";
import { Session } from "./session.js";

/** Time between two updates of the figures, milliseconds. */
const UPDATE = 500;
/** Key of the token in this tab's storage, so that a reload needs no new one. */
const TOKEN = "framepath-token";

const $ = (id) => document.getElementById(id);
const [form, input, state, stream, video] = ["enter", "token", "state", "stream", "picture"].map($);
let session = null;
let updating = null;
let last = null;

async function watch(token) {
  session?.close("");
  form.hidden = true;
  state.textContent = "Connecting …";
  const opened = new Session(token, video);
  session = opened;
  opened.addEventListener("closed", (event) => {
    if (session === opened) leave(event.detail);
  });
  opened.addEventListener("frame", () => {
    stream.hidden = false;
    video.focus();
    state.textContent = "";
  }, { once: true });
  try {
    await opened.open();
    sessionStorage.setItem(TOKEN, token);
    if (session === opened) state.textContent = "Waiting for the first picture …";
  } catch (error) {
    sessionStorage.removeItem(TOKEN);
    opened.close(error.message);
  }
  last = null;
  updating ??= setInterval(update, UPDATE);
}

function leave(reason) {
  session = null;
  clearInterval(updating);
  updating = null;
  video.srcObject = null;
  stream.hidden = true;
  form.hidden = false;
  state.textContent = reason;
  input.focus();
}

/** Returns the figures of the browser about the stream that it receives. */
async function received(peer) {
  const stats = await peer.getStats();
  const all = [...stats.values()];
  const inbound = all.find((entry) => entry.type === "inbound-rtp" && entry.kind === "video");
  return inbound && { ...inbound, codec: stats.get(inbound.codecId)?.mimeType?.replace("video/", "") };
}

async function update() {
  const shown = session;
  if (!shown?.peer || $("ledger").hidden || stream.hidden) return;
  const figures = await received(shown.peer);
  if (session !== shown || !figures) return;
  const before = last ?? figures;
  last = figures;
  const seconds = Math.max(0.001, (figures.timestamp - before.timestamp) / 1000);
  const rate = (8 * (figures.bytesReceived - before.bytesReceived)) / seconds / 1e6;
  const frames = (figures.framesDecoded - before.framesDecoded) / seconds;
  const clock = shown.clock.offset();
  $("figures").textContent = [
    `${video.videoWidth}x${video.videoHeight} ${figures.codec ?? ""}`,
    `${frames.toFixed(0)} frames/s`,
    `${rate.toFixed(2)} Mbit/s`,
    `${figures.packetsLost} packets lost of ${figures.packetsReceived + figures.packetsLost}`,
    `${figures.framesDropped ?? 0} frames dropped here`,
    clock ? `clocks agree to ±${(clock.error / 1e6).toFixed(2)} ms` : "clocks not compared yet",
  ].join(" · ");
  const all = shown.ledger.frames;
  $("count").textContent = all.length;
  $("scale").textContent = `full height: ${draw($("chart"), all).toFixed(1)} ms`;
  fill($("causes"), all);
  $("knowledge").textContent = all.length === 0
    ? "No frame has rows of both ends yet: the sender may keep no ledger, or this browser may not say when it received a frame."
    : "From the birth of a frame at the sender to the time at which this browser expects it on the screen; what happens behind that, "
      + "in the compositor and the screen, it does not know. In “unexplained” are its jitter buffer and its wait for the compositor.";
}

function toggle() {
  const ledger = $("ledger");
  ledger.hidden = !ledger.hidden;
  $("toggle").setAttribute("aria-expanded", String(!ledger.hidden));
}

function full() {
  if (document.fullscreenElement) document.exitFullscreen();
  else video.requestFullscreen?.();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  watch(input.value.trim());
});
$("full").addEventListener("click", full);
$("toggle").addEventListener("click", toggle);
$("leave").addEventListener("click", () => session?.close("You have left the stream."));
document.addEventListener("keydown", (event) => {
  if (stream.hidden || event.ctrlKey || event.altKey || event.metaKey || event.target === input) return;
  if (event.key === "f") full();
  if (event.key === "l") toggle();
});
window.addEventListener("pagehide", () => session?.close(""));

// `/?picture` fills the window with the picture, for a screen that shows nothing else.
if (new URLSearchParams(location.search).has("picture")) {
  document.body.classList.add("only-picture");
  toggle();
}

// A link that the sender prints has the token behind `#`, which browsers do not send to servers.
let given = null;
try {
  given = decodeURIComponent(location.hash.slice(1)) || sessionStorage.getItem(TOKEN);
} catch {
  // What is behind `#` is no text.
}
history.replaceState(null, "", location.pathname + location.search);
if (given) watch(given);
else input.focus();
