// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "handoff.h"

#define NSEC_PER_SEC 1000000000ull

/* Number of warm-up frames after which the consumer is ready: enough to use every slot twice. */
#define WARM_UP_FRAMES (2 * HANDOFF_DEPTH)
/* Frames per second of the warm-up. */
#define WARM_UP_RATE 1000
/* Maximum number of warm-up frames: the run fails if the consumer is not ready after 10 s. */
#define WARM_UP_MOST (10 * WARM_UP_RATE)

/* Messages of one byte: the producer's end is open; the consumer has finished its warm-up. */
enum { SAY_OPEN = 'o', SAY_READY = 'r' };

/* Figures of the consumer, sent to the producer after the last frame. */
struct report {
	uint64_t received, lost, duplicated, out_of_order;
	uint64_t copied_bytes, cpu_ns, switches, end_ns;
	uint64_t p50, p95, p99, max;
};

/* CPU time and context switches of all threads of this process. */
struct usage {
	uint64_t cpu_ns, switches;
};

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t consumer;	/* process id of the consumer; set only in the producer */

void handoff_die(const char *what, const char *object)
{
	fprintf(stderr, "handoff: %s: %s\n", what, object);
	exit(1);
}

void handoff_skip(const char *reason)
{
	printf("{\"skipped\":\"%s\"}\n", reason);
	exit(0);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

static struct usage usage_now(void)
{
	struct rusage of;
	uint64_t seconds, micros;

	getrusage(RUSAGE_SELF, &of);
	seconds = (uint64_t)of.ru_utime.tv_sec + (uint64_t)of.ru_stime.tv_sec;
	micros = (uint64_t)of.ru_utime.tv_usec + (uint64_t)of.ru_stime.tv_usec;
	return (struct usage){
		.cpu_ns = seconds * NSEC_PER_SEC + micros * 1000,
		.switches = (uint64_t)of.ru_nvcsw + (uint64_t)of.ru_nivcsw,
	};
}

/* ---- The two processes ---- */

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/*
 * Handler of SIGCHLD: ends the producer with status 1 if the consumer has ended,
 * because the consumer has to live until the producer closes the socket. Other
 * children are ignored: GStreamer starts one to scan plug-ins.
 */
static void on_child_end(int signal)
{
	static const char text[] = "handoff: the consumer ended early\n";
	int kept = errno;

	(void)signal;
	if (consumer > 0 && waitpid(consumer, NULL, WNOHANG) == consumer) {
		ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

		(void)written;
		_exit(1);
	}
	errno = kept;
}

static void on_signal(int number, void (*handler)(int))
{
	/* No SA_RESTART, so that a signal ends a sleep between two frames. */
	struct sigaction action = { .sa_handler = handler };

	sigaction(number, &action, NULL);
}

void handoff_fork(struct handoff_control *control)
{
	pid_t producer = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		handoff_die("socketpair", strerror(errno));
	control->child = fork();
	if (control->child < 0)
		handoff_die("fork", strerror(errno));
	control->fd = ends[control->child == 0];
	close(ends[control->child != 0]);
	if (control->child == 0) {
		/* The producer handles Ctrl-C and signals to the group. */
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != producer)
			_exit(1);
	} else {
		consumer = control->child;
		on_signal(SIGCHLD, on_child_end);
		on_signal(SIGINT, on_interrupt);
		on_signal(SIGTERM, on_interrupt);
	}
}

static void say(struct handoff_control *control, char word)
{
	if (send(control->fd, &word, 1, MSG_NOSIGNAL) != 1)
		handoff_die("the other process is gone", strerror(errno));
}

/*
 * Waits up to timeout_ms (0: does not wait; -1: no limit) for the message `word`
 * of the other process. Returns false after the timeout or a signal. Ends this
 * process if the other process has closed its end or sends another message.
 */
static bool said(struct handoff_control *control, char word, int timeout_ms)
{
	struct pollfd poller = { .fd = control->fd, .events = POLLIN };
	char heard;

	if (poll(&poller, 1, timeout_ms) <= 0)
		return false;
	if (recv(control->fd, &heard, 1, 0) != 1 || heard != word)
		handoff_die("the other process is gone", "no message from it");
	return true;
}

void handoff_say_open(struct handoff_control *control)
{
	say(control, SAY_OPEN);
}

void handoff_await_open(struct handoff_control *control)
{
	said(control, SAY_OPEN, -1);
}

/* ---- The consumer ---- */

void handoff_tally_open(struct handoff_tally *tally, const struct handoff_options *options)
{
	memset(tally, 0, sizeof(*tally));
	tally->frames = options->frames;
	tally->latency_ns = calloc(options->frames, sizeof(uint64_t));
	if (!tally->latency_ns)
		handoff_die("no memory for the timestamps; use fewer frames", "--frames");
}

void handoff_saw(struct handoff_tally *tally, struct handoff_control *control, const void *frame)
{
	uint64_t now = now_ns();
	struct handoff_header header;
	struct usage usage;

	memcpy(&header, frame, sizeof(header));
	if (header.sequence == HANDOFF_WARM_UP) {
		if (++tally->warm_up == WARM_UP_FRAMES)
			say(control, SAY_READY);
		return;
	}
	if (header.sequence == HANDOFF_MARK) {
		usage = usage_now();
		tally->cpu_ns = usage.cpu_ns;
		tally->switches = usage.switches;
		tally->marked = true;
		return;
	}
	if (!tally->marked || tally->done || header.sequence >= tally->frames)
		handoff_die("received a frame that was not sent", "sequence number");
	if (tally->latency_ns[header.sequence]) {
		tally->duplicated++;
	} else {
		/* 0 means a missing frame, so the smallest latency is 1. */
		uint64_t latency = now - header.stamp_ns;

		tally->latency_ns[header.sequence] = latency ? latency : 1;
		tally->received++;
	}
	if (header.sequence < tally->next)
		tally->out_of_order++;
	else
		tally->next = header.sequence + 1;
	if (header.sequence + 1 == tally->frames) {
		usage = usage_now();
		tally->cpu_ns = usage.cpu_ns - tally->cpu_ns;
		tally->switches = usage.switches - tally->switches;
		tally->end_ns = now;
		tally->done = true;
	}
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Returns the nearest-rank percentile: the smallest value that `percent` % of all do not exceed. */
static uint64_t percentile(const uint64_t *sorted, uint64_t count, unsigned int percent)
{
	uint64_t rank = (count * percent + 99) / 100;

	return sorted[rank ? rank - 1 : 0];
}

void handoff_report(struct handoff_tally *tally, struct handoff_control *control)
{
	struct report report = {
		.received = tally->received,
		.lost = tally->frames - tally->received,
		.duplicated = tally->duplicated,
		.out_of_order = tally->out_of_order,
		.copied_bytes = tally->copied_bytes,
		.cpu_ns = tally->cpu_ns,
		.switches = tally->switches,
		.end_ns = tally->end_ns,
	};
	const uint64_t *sorted = tally->latency_ns + report.lost;
	char end;

	/* Lost frames have latency 0 and are first. */
	qsort(tally->latency_ns, tally->frames, sizeof(uint64_t), compare_u64);
	report.p50 = percentile(sorted, report.received, 50);
	report.p95 = percentile(sorted, report.received, 95);
	report.p99 = percentile(sorted, report.received, 99);
	report.max = sorted[report.received - 1];
	if (send(control->fd, &report, sizeof(report), MSG_NOSIGNAL) != sizeof(report))
		handoff_die("the producer is gone", strerror(errno));
	/* The frames' memory may end with this process, so the producer ends first. */
	while (recv(control->fd, &end, 1, 0) > 0)
		;
	_exit(0);
}

/* ---- The producer ---- */

static void sleep_until(uint64_t due_ns)
{
	struct timespec at = {
		.tv_sec = (time_t)(due_ns / NSEC_PER_SEC),
		.tv_nsec = (long)(due_ns % NSEC_PER_SEC),
	};

	while (!interrupted && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

static void hand_over(struct handoff_producer *producer, uint64_t sequence)
{
	struct handoff_header header = { .sequence = sequence };
	void *frame = producer->take(producer->state);

	header.stamp_ns = now_ns();
	memcpy(frame, &header, sizeof(header));
	producer->send(producer->state);
}

/* Sends warm-up frames until the consumer is ready or a signal came, then the mark. */
static void warm_up(struct handoff_control *control, struct handoff_producer *producer)
{
	for (int i = 0; !interrupted && !said(control, SAY_READY, 0); i++) {
		if (i == WARM_UP_MOST)
			handoff_die("the consumer receives no frame", "timeout after 10 s");
		hand_over(producer, HANDOFF_WARM_UP);
		sleep_until(now_ns() + NSEC_PER_SEC / WARM_UP_RATE);
	}
	hand_over(producer, HANDOFF_MARK);
}

static void end_interrupted(struct handoff_control *control)
{
	signal(SIGCHLD, SIG_DFL);
	kill(control->child, SIGKILL);
	waitpid(control->child, NULL, 0);
	fputs("handoff: interrupted; no figures\n", stderr);
}

static void print_run(const struct handoff_options *options, const char *contender,
		      const char *software, uint64_t copied_bytes, const struct usage *usage,
		      uint64_t start_ns, const struct report *report)
{
	printf("{\"contender\":\"%s\",\"software\":\"%s\",\"bytes\":%zu,\"frames\":%" PRIu64
	       ",\"rate\":%" PRIu64,
	       contender, software, options->bytes, options->frames, options->rate);
	printf(",\"received\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64
	       ",\"out_of_order\":%" PRIu64,
	       report->received, report->lost, report->duplicated, report->out_of_order);
	printf(",\"wall_ns\":%" PRIu64 ",\"producer_cpu_ns\":%" PRIu64
	       ",\"consumer_cpu_ns\":%" PRIu64 ",\"producer_switches\":%" PRIu64
	       ",\"consumer_switches\":%" PRIu64 ",\"copied_bytes\":%" PRIu64,
	       report->end_ns - start_ns, usage->cpu_ns, report->cpu_ns, usage->switches,
	       report->switches, copied_bytes + report->copied_bytes);
	printf(",\"latency_ns\":{\"p50\":%" PRIu64 ",\"p95\":%" PRIu64 ",\"p99\":%" PRIu64
	       ",\"max\":%" PRIu64 "}}\n",
	       report->p50, report->p95, report->p99, report->max);
	if (fflush(stdout) != 0)
		handoff_die("stdout", strerror(errno));
}

void handoff_produce(struct handoff_control *control, const struct handoff_options *options,
		     struct handoff_producer *producer, const char *contender,
		     const char *software)
{
	struct usage before, after;
	struct report report;
	uint64_t start;

	warm_up(control, producer);
	producer->copied_bytes = 0;
	before = usage_now();
	start = now_ns();
	for (uint64_t i = 0; i < options->frames && !interrupted; i++) {
		if (options->rate)
			sleep_until(start + (i + 1) * NSEC_PER_SEC / options->rate);
		hand_over(producer, i);
	}
	if (interrupted) {
		end_interrupted(control);
		return;
	}
	/* Waits for the consumer's report, which follows the last frame. */
	while (recv(control->fd, &report, sizeof(report), 0) != sizeof(report))
		if (errno != EINTR || interrupted)
			handoff_die("no report from the consumer", strerror(errno));
	after = usage_now();
	after.cpu_ns -= before.cpu_ns;
	after.switches -= before.switches;
	print_run(options, contender, software, producer->copied_bytes, &after, start, &report);
	signal(SIGCHLD, SIG_DFL);
	close(control->fd);
	waitpid(control->child, NULL, 0);
}
