// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * unix-handoff: sends frames with all their bytes through a unix stream socket.
 *
 * The two processes share no memory: the producer calls send(2), the consumer
 * read(2), with default socket buffers. The kernel copies every byte in and out;
 * both copies are counted, the size of the frame each. The socket buffer limits
 * the frames in flight: dozens of frames of 4 KiB, less than one 1080p frame.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <stdio.h>
#include <unistd.h>

#include "../handoff/handoff.h"

/* One end of the socket, and its frame. */
struct end {
	int fd;
	size_t bytes;
	unsigned char *frame;
	struct handoff_producer *producer;	/* counts the copies */
};

static void *take(void *state)
{
	struct end *end = state;

	return end->frame;
}

static void send_frame(void *state)
{
	struct end *end = state;

	for (size_t at = 0; at < end->bytes;) {
		ssize_t count = send(end->fd, end->frame + at, end->bytes - at, MSG_NOSIGNAL);

		if (count < 0 && errno != EINTR)
			handoff_die("send", strerror(errno));
		at += count < 0 ? 0 : (size_t)count;
	}
	end->producer->copied_bytes += end->bytes;
}

static void consume(struct handoff_control *control, const struct handoff_options *options,
		    struct end *end)
{
	struct handoff_tally tally;

	handoff_tally_open(&tally, options);
	handoff_await_open(control);
	while (!tally.done) {
		for (size_t at = 0; at < end->bytes;) {
			ssize_t count = read(end->fd, end->frame + at, end->bytes - at);

			if (count == 0 || (count < 0 && errno != EINTR))
				handoff_die("read", count ? strerror(errno) : "end of stream");
			at += count < 0 ? 0 : (size_t)count;
		}
		if (tally.marked)
			tally.copied_bytes += end->bytes;
		handoff_saw(&tally, control, end->frame);
	}
	handoff_report(&tally, control);
}

int main(int argc, char **argv)
{
	struct handoff_options options;
	struct handoff_control control;
	struct handoff_producer producer = { .take = take, .send = send_frame };
	struct end end = { .producer = &producer };
	struct utsname kernel;
	char software[160];
	int ends[2];

	handoff_read_options(&options, "unix-handoff", NULL, argc, argv);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		handoff_die("socketpair", strerror(errno));
	handoff_fork(&control);
	end.fd = ends[control.child == 0];
	close(ends[control.child != 0]);
	end.bytes = options.bytes;
	end.frame = calloc(1, options.bytes);
	if (!end.frame)
		handoff_die("no memory for a frame; use smaller frames", "--bytes");
	if (control.child == 0)
		consume(&control, &options, &end);
	producer.state = &end;
	uname(&kernel);
	snprintf(software, sizeof(software), "Linux %s", kernel.release);
	handoff_say_open(&control);
	handoff_produce(&control, &options, &producer, "unix-socket", software);
	free(end.frame);
	return 0;
}
