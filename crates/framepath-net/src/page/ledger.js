// SPDX-License-Identifier: MIT OR Apache-2.0
// Ledger of the last frames: the sender's rows, the way, and what the browser says about each frame that it shows.

import { LAST } from "./messages.js";

/** Causes in the order of every table, each with the fields of a row that have its time. */
export const CAUSES = [
  ["compute", "compute_ns"], ["copy", "copy_ns"], ["queue", "queue_ns"], ["held", "held_ns"], ["wakeup", "wakeup_ns"],
  ["preempted", "preempted_ns"], ["throttled", "throttled_ns"], ["stopped", "stopped_ns"], ["stolen", "stolen_ns"],
  ["blocked", "blocked_ns"], ["paced", "paced_ns"],
  ["device", "device_ns"], ["network", "network_ns"], ["pool", "pool_ns"], ["unexplained", null],
];
/** Number of frames that are kept: those of the chart, and those of which one end's rows are missing. */
const MOST = 300;
/** Hops of this page, as [name, is a link]. */
export const HOPS = [["browser decode", false], ["browser display", false]];

/** Returns the rows of a frame in this page's clock. The times are those of `requestVideoFrameCallback`, nanoseconds.
 *
 * `received` is the arrival of the last packet, `decode` the time in the decoder, `composed` the time at which the browser submitted
 * the frame, and `shown` the time at which it expects the frame on the screen. When the decoder began is not known: the rest of the
 * first row, mostly the wait in the jitter buffer and for the compositor, stays unexplained. */
export function browserRows(id, { received, decode, composed, shown }) {
  const leave = Math.max(received, composed);
  const end = Math.max(leave, shown);
  const row = { seq: id, birth_ns: received };
  return [
    { ...row, enter_ns: received, leave_ns: leave, pool_ns: Math.min(decode, leave - received), hop: 0 },
    { ...row, enter_ns: leave, leave_ns: end, paced_ns: end - leave, hop: 1, flags: LAST },
  ];
}

/** Returns the time of the rows by cause, nanoseconds; what no cause accounts for is unexplained. */
export function causesOf(rows, latency) {
  const causes = {};
  let explained = 0;
  for (const [cause, field] of CAUSES) {
    if (field === null) continue;
    causes[cause] = rows.reduce((sum, row) => sum + row[field], 0);
    explained += causes[cause];
  }
  causes.unexplained = latency - explained;
  return causes;
}

/** Removes the oldest entries of a map that has too many. */
function limit(map) {
  for (const key of map.keys()) {
    if (map.size <= MOST) return;
    map.delete(key);
  }
}

export class Ledger {
  /** Frames of the sender by RTP timestamp, and frames that this page has shown and whose rows have not come. */
  sent = new Map();
  shown = new Map();
  /** Last frames with all their times: latency and causes, nanoseconds. */
  frames = [];

  constructor(clock) {
    this.clock = clock;
  }

  /** Adds a frame of the sender. Returns the rows of this page for it, if it was shown. */
  pushSent(frame) {
    if (frame.time === null || frame.rows.length === 0) return null;
    this.sent.set(frame.time, frame);
    limit(this.sent);
    const shown = this.shown.get(frame.time);
    return shown ? this.join(frame, shown) : null;
  }

  /** Adds a frame that the browser has shown, with this RTP timestamp. Returns the rows of this page, if the sender's have come. */
  pushShown(time, shown) {
    this.shown.set(time, shown);
    limit(this.shown);
    const frame = this.sent.get(time);
    return frame ? this.join(frame, shown) : null;
  }

  join(frame, shown) {
    this.sent.delete(frame.time);
    this.shown.delete(frame.time);
    const rows = browserRows(frame.id, shown);
    const clock = this.clock.offset();
    if (clock) {
      const birth = Math.min(...frame.rows.map((row) => row.birth_ns)) - clock.offset;
      const sent = Math.max(...frame.rows.map((row) => row.leave_ns)) - clock.offset;
      const wire = { network_ns: Math.max(0, shown.received - sent) };
      const full = [...frame.rows, wire, ...rows].map((row) => ({ ...EMPTY, ...row }));
      const latency = rows[1].leave_ns - birth;
      this.frames.push({ latency, causes: causesOf(full, latency) });
      if (this.frames.length > MOST) this.frames.shift();
    }
    return { id: frame.id, rows };
  }
}

const EMPTY = Object.fromEntries(CAUSES.filter(([, field]) => field).map(([, field]) => [field, 0]));

/** Returns the value below which a part of the sorted values is. */
export function quantile(sorted, part) {
  return sorted.length === 0 ? 0 : sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}
