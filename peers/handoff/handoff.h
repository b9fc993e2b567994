/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Common code of the peers of lab `handoff`. One program is one measurement: a
 * producer sends frames to a consumer in another process.
 *
 * The frame. Its first 16 bytes are a struct handoff_header; the producer writes
 * and the consumer reads nothing else of it. The producer takes the timestamp of
 * the finished frame just before the send. The consumer takes its own as soon as
 * it holds the frame.
 *
 * The run.
 *   1. The process forks. The parent is the producer, the child the consumer.
 *   2. The producer opens its end and sends OPEN; the consumer opens its own.
 *   3. Frames numbered HANDOFF_WARM_UP, one per millisecond, until the consumer
 *      has received 16 and sends READY; then one numbered HANDOFF_MARK, which
 *      starts the clocks of both processes.
 *   4. The measured frames, numbered from 0: paced, or at full speed against the
 *      back-pressure of the measured software, with HANDOFF_DEPTH frames in
 *      flight if the software has such a setting.
 *   5. The consumer reports. The producer prints one line of JSON: the keys of
 *      README.md, or {"skipped":"REASON"} if this machine lacks a requirement.
 *
 * CPU and switches are those of whole processes, every thread of them,
 * between the mark and the last frame.
 */
#ifndef HANDOFF_H
#define HANDOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum number of frames in flight, if the measured software has such a setting. */
#define HANDOFF_DEPTH 8

/* Sequence number of the frame that starts the clocks of both processes. */
#define HANDOFF_MARK (UINT64_MAX - 1)
/* Sequence number of the warm-up frames, which come before the mark. */
#define HANDOFF_WARM_UP UINT64_MAX

/* First 16 bytes of a frame. */
struct handoff_header {
	uint64_t sequence;
	uint64_t stamp_ns;	/* just before the send, CLOCK_MONOTONIC */
};

struct handoff_options {
	const char *mode;	/* NULL if the program has no modes */
	size_t bytes;		/* size of a frame */
	uint64_t frames;	/* number of measured frames */
	uint64_t rate;		/* frames per second, 0: full speed */
};

/* Figures of the consumer. Initially 0 except for `frames` and `latency_ns`. */
struct handoff_tally {
	uint64_t frames;	/* number of measured frames, sent */
	uint64_t *latency_ns;	/* by sequence number; 0: frame not received */
	uint64_t warm_up;	/* number of warm-up frames received */
	bool marked;		/* the mark was received: the clocks run */
	bool done;		/* the last measured frame was received */
	uint64_t next;		/* next expected sequence number */
	uint64_t received, duplicated, out_of_order;
	uint64_t copied_bytes;	/* of measured frames; the program counts its own copies */
	uint64_t cpu_ns, switches;	/* between mark and done */
	uint64_t end_ns;	/* arrival of the last frame, CLOCK_MONOTONIC */
};

/* Connection of the two processes for messages beside the frames. */
struct handoff_control {
	int fd;
	int child;		/* process id of the consumer; 0 in the consumer itself */
};

/* The measured transport. */
struct handoff_producer {
	void *state;
	/* Returns memory for the next frame; may wait for a frame in flight. */
	void *(*take)(void *state);
	/* Sends the frame that `take` returned last. */
	void (*send)(void *state);
	uint64_t copied_bytes;	/* added up by `take` and `send` */
};

/*
 * Parses the arguments MODE --bytes N --frames N --rate HZ. `modes` ends with
 * NULL; if `modes` is NULL there is no MODE. Ends the process with status 2 for an
 * invalid argument, with 0 after --help.
 */
void handoff_read_options(struct handoff_options *options, const char *program,
			  const char *const *modes, int argc, char **argv);

/*
 * Forks the consumer and connects both processes. Returns in both; the consumer is
 * killed when the producer ends.
 */
void handoff_fork(struct handoff_control *control);

/* Producer: sends the message OPEN, after it has opened its end. */
void handoff_say_open(struct handoff_control *control);
/* Consumer: waits for the message OPEN, without a limit. */
void handoff_await_open(struct handoff_control *control);

/*
 * Producer: sends the warm-up and the measured frames, waits for the consumer's
 * report and end, and prints the line of JSON. Prints no line if a signal came.
 */
void handoff_produce(struct handoff_control *control, const struct handoff_options *options,
		     struct handoff_producer *producer, const char *contender,
		     const char *software);

/* Consumer: prepares the figures of a run. */
void handoff_tally_open(struct handoff_tally *tally, const struct handoff_options *options);
/*
 * Consumer: records the arrival of a frame, and sends READY after the last warm-up
 * frame. Ends the process if the producer cannot have sent the frame.
 */
void handoff_saw(struct handoff_tally *tally, struct handoff_control *control, const void *frame);
/* Consumer: sends its figures, waits until the producer closes the connection, ends the process. */
void handoff_report(struct handoff_tally *tally, struct handoff_control *control)
	__attribute__((noreturn));

/* Prints the error `what` and its object to standard error; ends the process with status 1. */
void handoff_die(const char *what, const char *object) __attribute__((noreturn));
/* Prints {"skipped":"REASON"}, and ends the process with status 0. */
void handoff_skip(const char *reason) __attribute__((noreturn));

#endif
