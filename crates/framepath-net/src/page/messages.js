// SPDX-License-Identifier: MIT OR Apache-2.0
// Messages of the ledger's data channels, in the form of postcard (ledger_message.rs).

/** Version of the messages. */
export const VERSION = 4;

/** Fields of a row, in their order on the wire. */
export const ROW_FIELDS = [
  "seq", "birth_ns", "enter_ns", "leave_ns", "copied_bytes", "copy_ns", "blocked_ns", "queue_ns", "paced_ns",
  "held_ns", "held_depth_ns", "pool_ns", "wakeup_ns", "network_ns", "device_ns", "device_queue_ns", "device_run_ns",
  "compute_ns", "preempted_ns", "throttled_ns", "stopped_ns", "stolen_ns", "cycles", "instructions", "cache_misses",
  "voluntary_switches", "involuntary_switches", "minor_faults", "flags", "hop", "thread",
];
/** Bit of a row's flags: the frame's way ends here. */
export const LAST = 1;

/** Ways in which a session ends. */
export const ENDS = ["complete", "failed", "by user"];

const KINDS = { path: 0, frame: 1, ping: 2, pong: 3, end: 4 };

class Writer {
  bytes = [];

  /** Writes a whole number, a Number or a BigInt. */
  number(value) {
    let rest = BigInt(value);
    while (rest > 0x7fn) {
      this.bytes.push(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.bytes.push(Number(rest));
  }

  text(value) {
    const bytes = new TextEncoder().encode(value);
    this.number(bytes.length);
    this.bytes.push(...bytes);
  }
}

class Reader {
  constructor(buffer) {
    this.bytes = new Uint8Array(buffer);
    this.at = 0;
  }

  byte() {
    if (this.at >= this.bytes.length) throw new RangeError("the message is too short");
    return this.bytes[this.at++];
  }

  /** Reads a whole number as a BigInt, because stamps are echoed exactly. */
  exact() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError("the number is too long");
  }

  number() {
    return Number(this.exact());
  }

  text() {
    const length = this.number();
    const end = this.at + length;
    if (end > this.bytes.length) throw new RangeError("the text is too long");
    const text = new TextDecoder().decode(this.bytes.subarray(this.at, end));
    this.at = end;
    return text;
  }

  list(item) {
    const length = this.number();
    if (length > this.bytes.length) throw new RangeError("the list is too long");
    return Array.from({ length }, () => item());
  }
}

function message(kind, write) {
  const writer = new Writer();
  writer.number(KINDS[kind]);
  write(writer);
  return new Uint8Array(writer.bytes);
}

/** Returns the message with the way of a frame: hops as [name, is a link], and names of threads. */
export function path(hops, threads) {
  return message("path", (to) => {
    to.bytes.push(VERSION);
    to.number(hops.length);
    for (const [name, link] of hops) {
      to.text(name);
      to.bytes.push(link ? 1 : 0);
    }
    to.number(threads.length);
    threads.forEach((name) => to.text(name));
  });
}

/** Returns the message with the rows of frame `id`. Fields that a row lacks are 0. */
export function frame(id, rows) {
  return message("frame", (to) => {
    to.number(id);
    to.number(0);
    to.number(rows.length);
    rows.forEach((row) => ROW_FIELDS.forEach((field) => to.number(row[field] ?? 0)));
  });
}

/** Returns the question for the time. */
export function ping(sent) {
  return message("ping", (to) => to.number(sent));
}

/** Returns the answer to a ping. */
export function pong(sent, received, replied) {
  return message("pong", (to) => [sent, received, replied].forEach((stamp) => to.number(stamp)));
}

/** Reads a message of the sender. Throws a RangeError if it is not valid. */
export function read(buffer) {
  const from = new Reader(buffer);
  switch (from.number()) {
    case KINDS.path: {
      if (from.byte() !== VERSION) throw new RangeError("the version is unknown");
      const hops = from.list(() => ({ name: from.text(), link: from.byte() === 1 }));
      return { kind: "path", hops, threads: from.list(() => from.text()) };
    }
    case KINDS.frame: {
      const id = from.exact();
      const time = from.byte() === 1 ? from.number() : null;
      const row = () => Object.fromEntries(ROW_FIELDS.map((field) => [field, from.number()]));
      return { kind: "frame", id, time, rows: from.list(row) };
    }
    case KINDS.ping:
      return { kind: "ping", sent: from.exact() };
    case KINDS.pong:
      return { kind: "pong", sent: from.number(), received: from.number(), replied: from.number() };
    case KINDS.end: {
      const end = ENDS[from.number()];
      return { kind: "end", end, all: from.number(), dropped: from.number() };
    }
    default:
      throw new RangeError("the kind of the message is unknown");
  }
}
