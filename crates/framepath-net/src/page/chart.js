// SPDX-License-Identifier: MIT OR Apache-2.0
// Picture of the last frames: a bar for each, its causes stacked.

import { CAUSES, quantile } from "./ledger.js";

/** Draws the frames. Returns the latency at the upper edge, milliseconds. */
export function draw(canvas, frames) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const sorted = frames.map((frame) => frame.latency).sort((a, b) => a - b);
  // One slow frame does not make all others invisible.
  const top = Math.max(1e6, 1.25 * quantile(sorted, 0.98));
  const style = getComputedStyle(document.documentElement);
  const colours = CAUSES.map(([cause]) => style.getPropertyValue(`--${cause}`));
  const step = Math.max(2 * scale, width / 300);
  const first = Math.max(0, frames.length - Math.floor(width / step));
  frames.slice(first).forEach(({ causes }, at, all) => {
    const left = width - (all.length - at) * step;
    let bottom = height;
    CAUSES.forEach(([cause], index) => {
      const part = (Math.max(0, causes[cause]) / top) * height;
      context.fillStyle = colours[index];
      context.fillRect(left, bottom - part, Math.max(1, step - scale * 0.5), part);
      bottom -= part;
    });
  });
  return top / 1e6;
}

/** Fills the table of causes. Leaves out those that no frame has. */
export function fill(body, frames) {
  const rows = CAUSES.flatMap(([cause]) => {
    const times = frames.map((frame) => frame.causes[cause]).sort((a, b) => a - b);
    return times.some((time) => time !== 0) ? [[cause, times]] : [];
  });
  const all = frames.map((frame) => frame.latency).sort((a, b) => a - b);
  body.replaceChildren(...[...rows, ["latency", all]].map(([cause, times]) => {
    const line = document.createElement("tr");
    const name = document.createElement("th");
    name.scope = "row";
    if (cause !== "latency") {
      const box = document.createElement("span");
      box.className = "box";
      box.style.background = `var(--${cause})`;
      name.append(box);
    }
    name.append(cause);
    line.append(name, ...[0.5, 0.95].map((part) => {
      const cell = document.createElement("td");
      cell.textContent = (quantile(times, part) / 1e6).toFixed(2);
      return cell;
    }));
    return line;
  }));
}
