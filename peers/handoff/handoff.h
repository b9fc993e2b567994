/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the peers of lab `handoff` have in common: one program is one
 * measurement, a producer that hands frames to a consumer in another process.
 *
 * The frame. Its first 16 bytes are a struct handoff_header; nothing else of
 * it is written by the producer or looked at by the consumer. The stamp is
 * taken when the frame is ready, as the last thing before it is handed off;
 * the consumer takes its own as soon as it holds the frame.
 *
 * The run.
 *   1. The process forks. The parent is the producer, the child the consumer.
 *   2. The producer opens its end and says OPEN; the consumer opens its own.
 *   3. Frames numbered HANDOFF_WARM_UP, one a millisecond, until the consumer
 *      has seen some and says READY; then one numbered HANDOFF_MARK. With it
 *      the clocks of both processes start.
 *   4. The measured frames, numbered from 0: paced, or flat out against the
 *      back-pressure of what is measured, with HANDOFF_DEPTH frames under way
 *      where that can be set.
 *   5. The consumer reports. The producer prints one line of JSON: the keys of
 *      README.md, or {"skipped":"REASON"} where this machine lacks something.
 *
 * CPU and switches are those of whole processes, every thread of them,
 * between the mark and the last frame.
 */
#ifndef HANDOFF_H
#define HANDOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDOFF_DEPTH 8

#define HANDOFF_MARK (UINT64_MAX - 1)
#define HANDOFF_WARM_UP UINT64_MAX

struct handoff_header {
	uint64_t sequence;
	uint64_t stamp_ns;	/* CLOCK_MONOTONIC */
};

struct handoff_options {
	const char *mode;	/* one of the program's, NULL where it has none */
	size_t bytes;		/* of a frame */
	uint64_t frames;	/* measured */
	uint64_t rate;		/* frames per second, 0: flat out */
};

/* What the consumer saw. All zero but `frames` and `latency_ns` at first. */
struct handoff_tally {
	uint64_t frames;	/* wanted */
	uint64_t *latency_ns;	/* by sequence number; 0: not seen */
	uint64_t warm_up;
	bool marked;		/* clocks run */
	bool done;		/* the last frame was seen */
	uint64_t next;		/* sequence number that is due */
	uint64_t received, duplicated, out_of_order;
	uint64_t copied_bytes;	/* by the consumer, of measured frames; its own to count */
	uint64_t cpu_ns, switches;	/* between mark and done */
	uint64_t end_ns;
};

/* The two processes' talk beside the frames. */
struct handoff_control {
	int fd;
	int child;		/* the consumer; 0 in the consumer itself */
};

/* What hands frames over. */
struct handoff_producer {
	void *state;
	/* Memory for the next frame, waiting while HANDOFF_DEPTH are under way. */
	void *(*take)(void *state);
	void (*send)(void *state);
	uint64_t copied_bytes;	/* by take and send; their own to count */
};

/*
 * Reads the words MODE --bytes N --frames N --rate HZ. `modes` ends with NULL;
 * where it is NULL there is no MODE. Ends the process with status 2 when a
 * word makes no sense, with 0 after --help.
 */
void handoff_read_options(struct handoff_options *options, const char *program,
			  const char *const *modes, int argc, char **argv);

/* Forks. Returns in both processes; the consumer dies with the producer. */
void handoff_fork(struct handoff_control *control);

/* Producer: its end is open. Consumer: waits for that. */
void handoff_say_open(struct handoff_control *control);
void handoff_await_open(struct handoff_control *control);

/* Producer: everything from the warm-up to the line of JSON. */
void handoff_produce(struct handoff_control *control, const struct handoff_options *options,
		     struct handoff_producer *producer, const char *contender,
		     const char *software);

void handoff_tally_open(struct handoff_tally *tally, const struct handoff_options *options);
/* Consumer: has this frame, now. Says READY when that is due. */
void handoff_saw(struct handoff_tally *tally, struct handoff_control *control, const void *frame);
/* Consumer: reports, waits for the producer's end, ends the process. */
void handoff_report(struct handoff_tally *tally, struct handoff_control *control)
	__attribute__((noreturn));

/* Says what failed on what, and ends the process with status 1. */
void handoff_die(const char *what, const char *object) __attribute__((noreturn));
/* Prints {"skipped":...} and ends the process with status 0. */
void handoff_skip(const char *reason) __attribute__((noreturn));

#endif
