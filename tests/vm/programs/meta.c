// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/framepath-meta: meta NODE. Several kinds of readers at the same time. No
 * reader may lose or repeat a record without an error, and each record wakes all
 * sleeping readers.
 */
#include "v4l2.h"

#include <pthread.h>
#include <signal.h>

#define FRAMES 20000
#define META "/dev/framepath-meta"

struct source {
	int fd;
	struct queue output, capture;
};

static struct source source_open(const char *path)
{
	struct source s = { .fd = open_or_fail(path, O_RDWR) };

	set_format(s.fd, V4L2_PIX_FMT_GREY, 16, 16);
	queue_make(&s.output, s.fd, OUTPUT, MMAP, 1);
	queue_make(&s.capture, s.fd, CAPTURE, MMAP, 1);
	stream(s.fd, true);
	return s;
}

static void source_frame(struct source *s, int64_t sequence)
{
	order(s->fd, (struct order){ .sequence = sequence });
	queue_put(&s->capture, 0);
	queue_put(&s->output, 0);
	queue_get(&s->output);
	queue_get(&s->capture);
}

/* ---- */

enum habit { GREEDY, SINGLE, POLLING, SLOW, HABITS };

struct reader {
	enum habit habit;
	int fd;
	uint64_t read, first_number;
	pthread_t thread;
};

/* Reads until the record of the last frame, which is always in the ring. */
static void *reader_run(void *argument)
{
	struct reader *r = argument;
	static const size_t sizes[HABITS] = { 1000, 1, 50, 10 };
	struct fp_meta_record *records = calloc(1000, sizeof(*records));
	uint64_t next = 0;

	for (;;) {
		struct pollfd p = { .fd = r->fd, .events = POLLIN };
		ssize_t bytes;

		if (r->habit == POLLING)
			check(poll(&p, 1, -1) == 1 && p.revents == POLLIN, "poll gave %#x", p.revents);
		/* Reads slowly until the ring has wrapped twice, then at full speed. */
		if (r->habit == SLOW && next < FRAMES / 2)
			usleep(50000);
		/* Asks for one byte more; read() must still return whole records. */
		bytes = read(r->fd, records, sizes[r->habit] * sizeof(*records) + 1);
		check(bytes > 0 && bytes % sizeof(*records) == 0, "reader %d: read gave %zd", r->habit, bytes);
		for (size_t i = 0; i < bytes / sizeof(*records); i++) {
			if (!r->read)
				r->first_number = records[i].number - records[i].source_sequence;
			check(records[i].source_sequence >= next, "reader %d: frame %llu again, after %llu", r->habit,
			      (unsigned long long)records[i].source_sequence, (unsigned long long)next);
			check(records[i].number - records[i].source_sequence == r->first_number,
			      "reader %d: record %llu is of frame %llu", r->habit, (unsigned long long)records[i].number,
			      (unsigned long long)records[i].source_sequence);
			next = records[i].source_sequence + 1;
			r->read++;
		}
		if (next == FRAMES) {
			free(records);
			return NULL;
		}
	}
}

static void readers(const char *path)
{
	static const char *const names[HABITS] = { "greedy", "single", "polling", "slow" };
	struct source s = source_open(path);
	struct reader all[HABITS];

	for (int i = 0; i < HABITS; i++) {
		all[i] = (struct reader){ .habit = i };
		all[i].fd = meta_open_as(O_RDONLY | (i == POLLING ? O_NONBLOCK : 0));
		check(!pthread_create(&all[i].thread, NULL, reader_run, &all[i]), "pthread_create");
	}
	for (int i = 0; i < FRAMES; i++)
		source_frame(&s, i);
	for (int i = 0; i < HABITS; i++) {
		uint64_t missed;

		pthread_join(all[i].thread, NULL);
		missed = meta_missed(all[i].fd);
		printf("reader %s: %llu read, %llu missed\n", names[i], (unsigned long long)all[i].read,
		       (unsigned long long)missed);
		check(all[i].read + missed == FRAMES, "reader %s: %llu read and %llu missed of %d", names[i],
		      (unsigned long long)all[i].read, (unsigned long long)missed, FRAMES);
		check(i != SLOW || missed, "the slow reader missed nothing");
		close(all[i].fd);
	}
	close(s.fd);
}

/* ---- */

struct echo {
	int meta, back;
};

static void *echo_run(void *argument)
{
	struct echo *e = argument;

	for (unsigned i = 0; i < 2000; i++) {
		struct fp_meta_record r = meta_read(e->meta);

		check(r.source_sequence == i, "woken for frame %llu, not %u", (unsigned long long)r.source_sequence, i);
		check(write(e->back, "", 1) == 1, "write");
	}
	return NULL;
}

/* Sends one record at a time to a waiting reader. A lost wake-up would hang this test. */
static void wakeups(const char *path)
{
	struct source s = source_open(path);
	int ends[2];
	char byte;
	pthread_t thread;
	struct echo echo = { .meta = meta_open_as(O_RDONLY) };

	check(!pipe(ends), "pipe");
	echo.back = ends[1];
	check(!pthread_create(&thread, NULL, echo_run, &echo), "pthread_create");
	for (unsigned i = 0; i < 2000; i++) {
		struct pollfd p = { .fd = ends[0], .events = POLLIN };

		source_frame(&s, i);
		check(poll(&p, 1, 20000) == 1, "the reader slept through frame %u", i);
		check(read(ends[0], &byte, 1) == 1, "read");
	}
	pthread_join(thread, NULL);
	printf("wakeups: 2000 of 2000\n");
	close(echo.meta);
	close(s.fd);
}

static void on_signal(int number)
{
	(void)number;
}

static void *interrupted_run(void *argument)
{
	struct fp_meta_record r;

	check(read(*(int *)argument, &r, sizeof(r)) < 0 && errno == EINTR, "a read that a signal ended");
	return argument;
}

static void alone(const char *path)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct source s = source_open(path);
	struct fp_meta_record r[3];
	struct pollfd p;
	pthread_t thread;
	volatile unsigned long nowhere = 16;
	int meta = meta_open_as(O_RDONLY), early = meta_open_as(O_RDONLY | O_NONBLOCK), late;

	p = (struct pollfd){ .fd = early, .events = POLLIN };
	check(read(early, r, sizeof(r)) < 0 && errno == EAGAIN, "read with nothing there");
	check(!poll(&p, 1, 0), "poll with nothing there");
	check(read(early, r, sizeof(r[0]) - 1) < 0 && errno == EINVAL, "read of a part of a record");
	check(write(early, r, sizeof(r)) < 0, "write");
	check(ioctl(early, _IO(0xFB, 0x7f)) && errno == ENOTTY, "an unknown ioctl");
	check(ioctl(early, FRAMEPATH_IOC_META_MISSED, NULL) && errno == EFAULT, "FRAMEPATH_IOC_META_MISSED to nowhere");
	source_frame(&s, 1);
	source_frame(&s, 2);
	late = meta_open_as(O_RDONLY | O_NONBLOCK);
	check(read(late, r, sizeof(r)) < 0 && errno == EAGAIN, "records of before open");
	check(read(early, (void *)nowhere, sizeof(r)) < 0 && errno == EFAULT, "read to nowhere");
	check(read(early, r, sizeof(r)) == 2 * sizeof(r[0]) && r[0].source_sequence == 1 && r[1].source_sequence == 2,
	      "two records, after a read that failed");

	/* 5000 more records that no reader reads: the oldest record of the ring is next. */
	for (unsigned i = 3; i < 5003; i++)
		source_frame(&s, i);
	check(meta_missed(early) > 0, "nothing missed");
	check(read(early, r, sizeof(r)) == sizeof(r) && r[0].source_sequence == 3 + meta_missed(early),
	      "after %llu missed comes frame %llu", (unsigned long long)meta_missed(early),
	      (unsigned long long)r[0].source_sequence);
	printf("alone: ring of %llu records\n", 5000 - (unsigned long long)meta_missed(early));

	sigaction(SIGUSR1, &action, NULL);
	while (poll(&(struct pollfd){ .fd = meta, .events = POLLIN }, 1, 0) == 1)
		meta_read(meta);
	check(!pthread_create(&thread, NULL, interrupted_run, &meta), "pthread_create");
	usleep(200000);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	close(meta);
	close(early);
	close(late);
	close(s.fd);
}

static int meta_bytes(int meta, uint32_t *bytes)
{
	return ioctl(meta, FRAMEPATH_IOC_META_BYTES, bytes);
}

/* A reader for the shorter records of an older interface gets the part of a record that it knows. */
static void sizes(const char *path)
{
	struct source s = source_open(path);
	int older = open_or_fail(META, O_RDONLY | O_NONBLOCK), whole = meta_open_as(O_RDONLY | O_NONBLOCK);
	const size_t first = FRAMEPATH_META_BYTES_FIRST;
	struct fp_meta_record r;
	uint8_t bytes[3 * sizeof(r)];
	uint32_t size;

	source_frame(&s, 7);
	source_frame(&s, 8);
	check(read(older, bytes, first - 1) < 0 && errno == EINVAL, "read of a part of an older record");
	check(read(older, bytes, sizeof(bytes)) == 2 * (ssize_t)first, "two older records");
	for (int i = 0; i < 2; i++) {
		r = meta_read(whole);
		check(r.source_sequence == 7u + i && !memcmp(bytes + i * first, &r, first), "older record %d differs", i);
	}

	size = 8192;
	check(!meta_bytes(older, &size) && size == sizeof(r), "a newer reader gets %u bytes", size);
	source_frame(&s, 9);
	check(read(older, bytes, sizeof(bytes)) == sizeof(r), "a whole record");
	for (size = 0; size < sizeof(r); size++) {
		uint32_t asked = size;

		if (size < first || size % 8)
			check(meta_bytes(older, &asked) && errno == EINVAL, "records of %u bytes", size);
	}
	check(ioctl(older, FRAMEPATH_IOC_META_BYTES, NULL) && errno == EFAULT, "FRAMEPATH_IOC_META_BYTES to nowhere");
	printf("sizes: %zu and %zu bytes\n", first, sizeof(r));
	close(older);
	close(whole);
	close(s.fd);
}

int main(int argc, char **argv)
{
	check(argc == 2, "usage: meta NODE");
	setvbuf(stdout, NULL, _IOLBF, 0);
	alone(argv[1]);
	sizes(argv[1]);
	wakeups(argv[1]);
	readers(argv[1]);
	printf("meta: passed\n");
	return 0;
}
