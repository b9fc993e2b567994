// SPDX-License-Identifier: MIT OR Apache-2.0
// Offset of the sender's clock, by pings with four stamps (NTP, RFC 5905, section 8).

/** Time for which a ping counts, nanoseconds: clocks drift. */
const WINDOW = 10e9;

/** Returns this page's clock, nanoseconds. */
export function now() {
  return Math.round(performance.now() * 1e6);
}

export class Clock {
  pings = [];

  /** Adds an answered ping: departure and return by this page's clock, arrival and reply by the sender's. */
  push({ sent, received, replied, returned }) {
    const round = returned - sent - (replied - received);
    if (round < 0) return;
    this.pings.push({ returned, round, offset: (received - sent + (replied - returned)) / 2 });
    this.pings = this.pings.filter((ping) => returned - ping.returned <= WINDOW);
  }

  /** Returns the sender's clock less this page's, and its largest error, nanoseconds; null before the first ping. */
  offset() {
    if (this.pings.length === 0) return null;
    const best = this.pings.reduce((best, ping) => (ping.round < best.round ? ping : best));
    return { offset: best.offset, error: best.round / 2 };
  }
}
