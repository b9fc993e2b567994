// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the measuring node: measure NODE [TEST...]. The table at the end has
 * the names of the tests. Without TEST, runs all.
 */
#include "v4l2.h"

#include <pthread.h>

static const char *node_path;

static int node_open(void)
{
	return open_or_fail(node_path, O_RDWR);
}

static int meta_open(void)
{
	return meta_open_as(O_RDONLY | O_NONBLOCK);
}

/* Compares the record of the frame that has just been dequeued with the expected record. */
static void check_record(int meta, const struct order *o, const struct expected *e, bool in_place,
			 const uint8_t *want, size_t size)
{
	struct fp_meta_record r = meta_read(meta);
	uint32_t flags = (in_place ? FRAMEPATH_META_IN_PLACE : 0) | (o->crc32 ? FRAMEPATH_META_CRC32 : 0);

	check(r.source_sequence == (uint64_t)o->sequence, "record of source sequence %llu, wanted %lld",
	      (unsigned long long)r.source_sequence, (long long)o->sequence);
	check(r.algo == (uint32_t)o->algo && r.status == e->status, "algo %u status %u, wanted %d %u", r.algo, r.status,
	      o->algo, e->status);
	check(!memcmp(r.roi, e->roi, sizeof(r.roi)), "roi %u %u %ux%u, wanted %u %u %ux%u", r.roi[0], r.roi[1], r.roi[2],
	      r.roi[3], e->roi[0], e->roi[1], e->roi[2], e->roi[3]);
	check(r.value[0] == (o->algo ? (uint32_t)o->level : 0) && r.value[1] == e->set, "values %u %u, wanted %d %u",
	      r.value[0], r.value[1], o->level, e->set);
	check(r.copied == (in_place ? 0 : e->outside), "%llu bytes copied, wanted %llu", (unsigned long long)r.copied,
	      (unsigned long long)(in_place ? 0 : e->outside));
	check(r.flags == flags, "flags %u, wanted %u", r.flags, flags);
	if (o->crc32)
		check(r.crc32 == crc32_of(want, size) && r.end_ns <= r.checksum_ns && r.checksum_ns <= r.done_ns,
		      "CRC32 %#x at %llu", r.crc32, (unsigned long long)r.checksum_ns);
	else
		check(!r.crc32 && !r.checksum_ns, "a CRC32 that was not wanted");
	check(!r.reserved, "reserved %u", r.reserved);
	check(r.queued_ns <= r.ready_ns && r.ready_ns <= r.start_ns && r.start_ns <= r.end_ns && r.end_ns <= r.done_ns,
	      "times out of order: %llu %llu %llu %llu %llu", (unsigned long long)r.queued_ns,
	      (unsigned long long)r.ready_ns, (unsigned long long)r.start_ns, (unsigned long long)r.end_ns,
	      (unsigned long long)r.done_ns);
}

/*
 * Sends one frame from OUTPUT buffer i to CAPTURE buffer j, and checks the result.
 * SAME: both buffers are the same memory.
 */
static void frame(struct queue *output, struct queue *capture, unsigned i, unsigned j, uint32_t width, uint32_t height,
		  const struct order *o, int meta, bool same)
{
	size_t size = (size_t)width * height;
	uint8_t *source = malloc(size), *want = malloc(size);
	struct expected e;
	struct v4l2_buffer b;

	fill(source, size);
	if (!same)
		memset(capture->buffers[j].pixels, 0x77, size);
	memcpy(output->buffers[i].pixels, source, size);
	e = reference(want, source, width, height, o);
	order(output->fd, *o);
	queue_put(capture, j);
	queue_put(output, i);
	b = queue_get(capture);
	check(b.index == j && b.bytesused == size && !(b.flags & V4L2_BUF_FLAG_ERROR),
	      "CAPTURE %u of %u bytes, flags %#x", b.index, b.bytesused, b.flags);
	check_record(meta, o, &e, same && o->in_place, want, size);
	b = queue_get(output);
	check(b.index == i, "OUTPUT %u", b.index);
	check(!memcmp(capture->buffers[j].pixels, want, size), "pixels differ: %ux%u level %d roi %d %d %dx%d in place %d",
	      width, height, o->level, o->left, o->top, o->width, o->height, o->in_place);
	check(same || !memcmp(output->buffers[i].pixels, source, size), "OUTPUT was written to");
	free(source);
	free(want);
}

/* ---- */

static void test_snapshot(void)
{
	int fd = node_open(), meta = meta_open();
	struct queue output, capture;
	struct v4l2_buffer b;
	const size_t size = 64 * 48;
	uint8_t source[64 * 48], want[64 * 48];

	set_format(fd, V4L2_PIX_FMT_GREY, 64, 48);
	queue_make(&output, fd, OUTPUT, MMAP, 4);
	queue_make(&capture, fd, CAPTURE, MMAP, 4);
	fill(source, size);
	for (unsigned i = 0; i < 4; i++)
		memcpy(output.buffers[i].pixels, source, size);

	/* Queues the buffers before STREAMON, each with other values; then changes all controls. */
	struct order orders[4] = {
		{ 100, FRAMEPATH_ALGO_THRESHOLD, 50 },
		{ 101, FRAMEPATH_ALGO_THRESHOLD, 200, 5, 6, 7, 8, 0, 1 },
		{ 1ll << 40, FRAMEPATH_ALGO_NONE, 3 },
		{ 103, FRAMEPATH_ALGO_THRESHOLD, 0, 60, 40, 50, 50 },
	};

	for (unsigned i = 0; i < 4; i++) {
		order(fd, orders[i]);
		queue_put(&output, i);
		queue_put(&capture, i);
	}
	order(fd, (struct order){ 999, FRAMEPATH_ALGO_THRESHOLD, 128, 1, 1, 1, 1, 1 });
	stream(fd, true);
	for (unsigned i = 0; i < 4; i++) {
		struct expected e = reference(want, source, 64, 48, &orders[i]);

		b = queue_get(&capture);
		check(b.index == i && b.sequence == i, "CAPTURE %u sequence %u", b.index, b.sequence);
		check(!memcmp(capture.buffers[i].pixels, want, size), "buffer %u has not its own values", i);
		check_record(meta, &orders[i], &e, false, want, size);
		queue_get(&output);
	}

	/* PREPARE_BUF does not read the controls, QBUF does. */
	struct order early = { 7, FRAMEPATH_ALGO_THRESHOLD, 30 }, late = { 8, FRAMEPATH_ALGO_THRESHOLD, 220 };
	struct expected e = reference(want, source, 64, 48, &late);

	order(fd, early);
	b = queue_buffer(&output, 0);
	check(!ioctl(fd, VIDIOC_PREPARE_BUF, &b), "PREPARE_BUF");
	order(fd, late);
	queue_put(&output, 0);

	/* A failed QBUF does not change the values of the queued buffer. */
	order(fd, early);
	b = queue_buffer(&output, 0);
	check(ioctl(fd, VIDIOC_QBUF, &b) && errno == EINVAL, "QBUF of a queued buffer");
	queue_put(&capture, 2);
	queue_get(&capture);
	queue_get(&output);
	check(!memcmp(capture.buffers[2].pixels, want, size), "a prepared buffer has not the values of its QBUF");
	check_record(meta, &late, &e, false, want, size);

	/* Timestamp, timecode and flags are copied from OUTPUT to CAPTURE. */
	order(fd, late);
	b = queue_buffer(&output, 1);
	b.timestamp = (struct timeval){ 12, 345678 };
	b.flags = V4L2_BUF_FLAG_TIMECODE | V4L2_BUF_FLAG_TSTAMP_SRC_SOE;
	b.timecode = (struct v4l2_timecode){ .type = V4L2_TC_TYPE_25FPS, .frames = 11, .seconds = 22, .minutes = 33 };
	check(!ioctl(fd, VIDIOC_QBUF, &b), "QBUF");
	queue_put(&capture, 1);
	b = queue_get(&capture);
	check(b.timestamp.tv_sec == 12 && b.timestamp.tv_usec == 345678, "timestamp");
	check(b.flags & V4L2_BUF_FLAG_TIMECODE && b.timecode.frames == 11 && b.timecode.minutes == 33, "timecode");
	check((b.flags & V4L2_BUF_FLAG_TSTAMP_SRC_MASK) == V4L2_BUF_FLAG_TSTAMP_SRC_SOE, "flags %#x", b.flags);
	check((b.flags & V4L2_BUF_FLAG_TIMESTAMP_MASK) == V4L2_BUF_FLAG_TIMESTAMP_COPY, "flags %#x", b.flags);
	stream(fd, false);
	close(meta);
	close(fd);
}

struct changer {
	int fd;
	volatile bool stop;
	unsigned long changes;
};

static void *change(void *argument)
{
	struct changer *c = argument;

	while (!c->stop) {
		int k = c->changes++ % 200;

		order(c->fd, (struct order){ k, FRAMEPATH_ALGO_THRESHOLD, k, k / 8, k / 10, 1 + k / 8, 1 + k / 10 });
	}
	return NULL;
}

/* Another thread changes the controls all the time. Each buffer must have the values of one change. */
static void test_race(void)
{
	int fd = node_open(), meta = meta_open();
	struct queue output, capture;
	struct changer changer = { .fd = fd };
	pthread_t thread;
	unsigned others = 0;
	uint64_t before = -1;

	set_format(fd, V4L2_PIX_FMT_GREY, 64, 48);
	queue_make(&output, fd, OUTPUT, MMAP, 2);
	queue_make(&capture, fd, CAPTURE, MMAP, 2);
	order(fd, (struct order){ 0, FRAMEPATH_ALGO_THRESHOLD, 0, 0, 0, 1, 1 });
	stream(fd, true);
	check(!pthread_create(&thread, NULL, change, &changer), "pthread_create");
	for (unsigned i = 0; i < 20000 || others < 20; i++) {
		queue_put(&capture, i % 2);
		queue_put(&output, i % 2);
		queue_get(&capture);
		queue_get(&output);
		struct fp_meta_record r = meta_read(meta);
		uint32_t k = r.source_sequence;

		check(r.value[0] == k && r.roi[0] == k / 8 && r.roi[1] == k / 10 && r.roi[2] == 1 + k / 8 &&
		      r.roi[3] == 1 + k / 10, "frame %u has controls of two changes: %u, level %u, roi %u %u %ux%u", i, k,
		      r.value[0], r.roi[0], r.roi[1], r.roi[2], r.roi[3]);
		others += r.source_sequence != before;
		before = r.source_sequence;
	}
	changer.stop = true;
	pthread_join(thread, NULL);
	printf("race: %lu changes, seen by %u frames\n", changer.changes, others);
	stream(fd, false);
	close(meta);
	close(fd);
}

static void test_roi(void)
{
	static const uint32_t sizes[][2] = { { 4, 4 },	   { 5, 7 },	 { 4, 16 },  { 16, 16 },    { 17, 19 },
					     { 640, 480 }, { 641, 479 }, { 4096, 4 }, { 4096, 4096 } };
	static const struct order fixed[] = {
		{ 0, 1, 128, 0, 0, 0, 0 }, { 0, 1, 0, 0, 0, 0, 0 }, { 0, 1, 255, 3, 3, 0, 0 }, { 0, 1, 1, 0, 0, 1, 1 },
		{ 0, 1, 9, 15, 15, 9, 9 }, { 0, 1, 9, 0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff },
		{ 0, 1, 9, 0, 0, 0x7fffffff, 0x7fffffff }, { 0, 1, 9, 5000, 0, 0, 0 }, { 0, 1, 9, 0, 5000, 7, 7 },
		{ 0, 0, 9, 1, 1, 5, 5 }, { 0, 1, 9, 16, 0, 0, 0 }, { 0, 1, 9, 0, 16, 0, 0 },
	};
	unsigned frames = 0;

	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		int fd = node_open(), meta = meta_open();
		uint32_t width = sizes[s][0], height = sizes[s][1];
		unsigned rounds = width * height > 1000000 ? 4 : 200;
		struct queue output, capture;

		set_format(fd, V4L2_PIX_FMT_GREY, width, height);
		queue_make(&output, fd, OUTPUT, MMAP, 2);
		queue_make(&capture, fd, CAPTURE, MMAP, 2);
		stream(fd, true);
		for (unsigned i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++, frames++)
			frame(&output, &capture, i % 2, 0, width, height, &fixed[i], meta, false);
		for (unsigned i = 0; i < rounds; i++, frames++) {
			struct order o = { rand(), FRAMEPATH_ALGO_THRESHOLD, rand() % 256, rand() % width, rand() % height,
					   rand() % (width * 5 / 4), rand() % (height * 5 / 4), rand() % 2,
					   rand() % 2 };

			frame(&output, &capture, i % 2, i % 2, width, height, &o, meta, false);
		}
		stream(fd, false);
		queue_free(&output);
		queue_free(&capture);
		close(meta);
		close(fd);
	}
	printf("roi: %u frames equal to the byte\n", frames);
}

/* Tests every memory type on each queue, with separate and shared buffers, in place and not. */
static void test_memory(void)
{
	const uint32_t width = 642, height = 37;
	unsigned frames = 0, in_place = 0;
	int meta = meta_open();

	for (unsigned pair = 0; pair < KINDS * KINDS; pair++) {
		int fd = node_open();
		struct queue output, capture;

		set_format(fd, V4L2_PIX_FMT_GREY, width, height);
		queue_make(&output, fd, OUTPUT, pair % KINDS, 2);
		queue_make(&capture, fd, CAPTURE, pair / KINDS, 2);
		stream(fd, true);
		for (unsigned i = 0; i < 8; i++, frames++) {
			struct order o = { i, i & 1, 77 + i, 3, 2, 600, 30, i >> 1 & 1, i >> 2 & 1 };

			frame(&output, &capture, i % 2, i >> 2, width, height, &o, meta, false);
		}
		stream(fd, false);
		queue_free(&output);
		queue_free(&capture);
		close(fd);
	}
	for (unsigned way = 0; way < 5; way++) {
		static const char *const names[] = { "userptr", "udmabuf", "heap", "OUTPUT exported", "CAPTURE exported" };
		int fd = node_open();
		struct queue output, capture, *mine = way == 4 ? &capture : &output, *other = way == 4 ? &output : &capture;

		set_format(fd, V4L2_PIX_FMT_GREY, width, height);
		queue_make(mine, fd, mine == &output ? OUTPUT : CAPTURE, way > 2 ? MMAP : USER + way, 2);
		request(other, fd, mine == &output ? CAPTURE : OUTPUT, way == 0 ? V4L2_MEMORY_USERPTR : V4L2_MEMORY_DMABUF, 2);
		for (unsigned i = 0; i < 2; i++) {
			other->buffers[i] = mine->buffers[i];
			if (way > 2)
				other->buffers[i].dmabuf = queue_export(mine, i);
		}
		stream(fd, true);
		for (unsigned i = 0; i < 16; i++, frames++) {
			struct order o = { i, i & 1, 99 + i, i, 1, 500, 0, i >> 1 & 1, i >> 2 & 1 };
			/* Buffers of the same index share their memory. */
			bool same = i < 8;

			frame(&output, &capture, i % 2, same ? i % 2 : !(i % 2), width, height, &o, meta, same);
			in_place += same && o.in_place;
		}
		printf("memory: %s at both ends, in place\n", names[way]);
		stream(fd, false);
		for (unsigned i = 0; i < 2; i++) {
			if (way > 2)
				close(other->buffers[i].dmabuf);
			other->buffers[i].pixels = NULL;
		}
		queue_free(other);
		queue_free(mine);
		close(fd);
	}
	printf("memory: %u frames, %u of them in place with no byte copied\n", frames, in_place);
	close(meta);
}

/* Tests vpipe's four fixtures of 4x4 pixels, with the expected frames at level 128. */
static void test_fixtures(void)
{
	static const struct {
		const char *name;
		uint8_t pixels[16], want[16];
		uint32_t set;
	} fixtures[] = {
		{ "flat", { 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100 }, { 0 }, 0 },
		{ "ramp", { 0, 17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 238, 255 },
		  { 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255 }, 8 },
		{ "checker", { 0, 255, 0, 255, 255, 0, 255, 0, 0, 255, 0, 255, 255, 0, 255, 0 },
		  { 0, 255, 0, 255, 255, 0, 255, 0, 0, 255, 0, 255, 255, 0, 255, 0 }, 8 },
		{ "around the level", { 126, 127, 128, 129, 129, 128, 127, 126, 127, 128, 127, 128, 0, 127, 128, 255 },
		  { 0, 0, 255, 255, 255, 255, 0, 0, 0, 255, 0, 255, 0, 0, 255, 255 }, 8 },
	};
	const unsigned count = sizeof(fixtures) / sizeof(fixtures[0]);
	int meta = meta_open();

	check(crc32_of((const uint8_t *)"123456789", 9) == 0xcbf43926, "the CRC32 of the test itself");
	for (unsigned i = 0; i < 4 * count; i++) {
		bool in_place = i & 1, crc32 = i & 2;
		const uint8_t *pixels = fixtures[i / 4].pixels, *want = fixtures[i / 4].want;
		struct order o = { i, FRAMEPATH_ALGO_THRESHOLD, 128, 0, 0, 0, 0, in_place, crc32 };
		struct expected e = { .roi = { 0, 0, 4, 4 }, .set = fixtures[i / 4].set };
		struct queue output, capture;
		uint8_t stage[16];
		int fd = node_open();

		reference(stage, pixels, 4, 4, &o);
		check(!memcmp(stage, want, 16), "the reference of %s", fixtures[i / 4].name);
		set_format(fd, V4L2_PIX_FMT_GREY, 4, 4);
		queue_make(&output, fd, OUTPUT, USER, 1);
		check(output.size == 16, "a 4x4 frame has %zu bytes", output.size);
		queue_make(&capture, fd, CAPTURE, in_place ? USER : MMAP, 1);
		if (in_place) {
			memory_free(&capture.buffers[0]);
			capture.buffers[0] = output.buffers[0];
		}
		memcpy(output.buffers[0].pixels, pixels, 16);
		order(fd, o);
		stream(fd, true);
		queue_put(&capture, 0);
		queue_put(&output, 0);
		queue_get(&capture);
		queue_get(&output);
		check(!memcmp(capture.buffers[0].pixels, want, 16), "%s differs, in place %d", fixtures[i / 4].name, in_place);
		/* With the whole frame as region the threshold itself writes the copy. */
		check_record(meta, &o, &e, in_place, want, 16);
		stream(fd, false);
		if (in_place)
			capture.buffers[0].pixels = NULL;
		queue_free(&capture);
		queue_free(&output);
		close(fd);
	}
	printf("fixtures: %u of 4x4 pixels, copied and in place, with a CRC32 and without\n", count);
	close(meta);
}

static void test_sequence(void)
{
	int fd = node_open(), meta = meta_open();
	struct queue output, capture;
	uint64_t first = 0, context = 0;

	set_format(fd, V4L2_PIX_FMT_GREY, 640, 480);
	queue_make(&output, fd, OUTPUT, MMAP, 4);
	queue_make(&capture, fd, CAPTURE, MMAP, 4);
	stream(fd, true);
	for (unsigned i = 0; i < 4; i++)
		queue_put(&capture, i);
	for (unsigned i = 0; i < 10000; i++) {
		struct v4l2_buffer b;

		order(fd, (struct order){ 5000000000ll + i, FRAMEPATH_ALGO_THRESHOLD, i % 256 });
		queue_put(&output, i % 4);
		b = queue_get(&capture);
		check(b.sequence == i, "frame %u has sequence %u", i, b.sequence);
		queue_put(&capture, b.index);
		queue_get(&output);
		struct fp_meta_record r = meta_read(meta);

		if (!i) {
			first = r.number;
			context = r.context;
		}
		check(r.number == first + i && r.source_sequence == 5000000000ull + i && r.context == context &&
		      r.value[0] == i % 256, "frame %u has record %llu of frame %llu", i, (unsigned long long)r.number,
		      (unsigned long long)r.source_sequence);
	}
	char nothing[sizeof(struct fp_meta_record)];

	check(read(meta, nothing, sizeof(nothing)) < 0 && errno == EAGAIN, "a record too many");
	printf("sequence: 10000 frames, no gap, no duplicate\n");
	stream(fd, false);
	close(meta);
	close(fd);
}

/* Tests calls that the node rejects, and buffers that it returns without processing. */
static void test_refusals(void)
{
	int fd = node_open(), meta = meta_open(), type;
	struct queue output, capture;
	struct v4l2_buffer b;
	struct v4l2_format f = { .type = OUTPUT };
	struct fp_meta_record r;
	struct pollfd poller = { .fd = fd, .events = POLLIN | POLLOUT };

	set_format(fd, V4L2_PIX_FMT_GREY, 640, 480);
	f.fmt.pix.width = 1;
	f.fmt.pix.height = 100000;
	f.fmt.pix.pixelformat = V4L2_PIX_FMT_YUYV;
	check(!ioctl(fd, VIDIOC_TRY_FMT, &f), "TRY_FMT");
	check(f.fmt.pix.width == 4 && f.fmt.pix.height == 4096 && f.fmt.pix.pixelformat == V4L2_PIX_FMT_GREY,
	      "TRY_FMT gave %ux%u", f.fmt.pix.width, f.fmt.pix.height);
	queue_make(&capture, fd, CAPTURE, USER, 2);
	f.fmt.pix.width = 320;
	f.fmt.pix.height = 240;
	check(ioctl(fd, VIDIOC_S_FMT, &f) && errno == EBUSY, "S_FMT with CAPTURE buffers there");
	queue_make(&output, fd, OUTPUT, USER, 2);

	b = queue_buffer(&output, 0);
	b.bytesused = output.size - 1;
	check(ioctl(fd, VIDIOC_QBUF, &b) && errno == EINVAL, "QBUF of a part of a frame");
	b = queue_buffer(&output, 0);
	b.length = output.size - 1;
	check(ioctl(fd, VIDIOC_QBUF, &b) && errno == EINVAL, "QBUF of memory too small");
	b = queue_buffer(&capture, 0);
	b.m.userptr = 4096;
	check(ioctl(fd, VIDIOC_QBUF, &b) && errno == EFAULT, "QBUF of no memory");
	b = queue_buffer(&output, 0);
	b.field = V4L2_FIELD_INTERLACED;
	check(ioctl(fd, VIDIOC_QBUF, &b) && errno == EINVAL, "QBUF of fields");

	/* STREAMOFF returns all buffers, without records. */
	stream(fd, true);
	queue_put(&output, 0);
	queue_put(&output, 1);
	check(poll(&poller, 1, 0) == 0, "poll with nothing done gave %#x", poller.revents);
	type = OUTPUT;
	check(!ioctl(fd, VIDIOC_STREAMOFF, &type), "STREAMOFF");
	queue_put(&capture, 0);
	check(!ioctl(fd, VIDIOC_STREAMON, &type), "STREAMON");
	queue_put(&output, 1);
	poller.events = POLLIN;
	check(poll(&poller, 1, 0) == 1 && poller.revents == POLLIN, "poll with a frame done gave %#x", poller.revents);
	b = queue_get(&capture);
	check(b.sequence == 0, "sequence %u after STREAMON", b.sequence);
	b = queue_get(&output);
	check(b.index == 1, "OUTPUT %u", b.index);
	meta_read(meta);
	check(read(meta, &r, sizeof(r)) < 0 && errno == EAGAIN, "a record of STREAMOFF's");
	check(read(meta, &r, sizeof(r) - 1) < 0 && errno == EINVAL, "read of a part of a record");

	/* Closes the node while buffers are queued. */
	queue_put(&output, 0);
	close(fd);
	close(meta);
}

/* ---- */

static void *change_priority(void *fd)
{
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t priority = i & 1 ? V4L2_PRIORITY_RECORD : V4L2_PRIORITY_BACKGROUND;

		ioctl(*(int *)fd, VIDIOC_S_PRIORITY, &priority);
	}
	return NULL;
}

/* Closing a handle releases its priority, even if its threads changed the priority concurrently. */
static void test_priority(void)
{
	pthread_t threads[2];
	uint32_t priority;
	int fd = node_open();

	for (int i = 0; i < 2; i++)
		check(!pthread_create(&threads[i], NULL, change_priority, &fd), "a thread");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	close(fd);
	fd = node_open();
	check(!ioctl(fd, VIDIOC_G_PRIORITY, &priority), "G_PRIORITY");
	check(priority == V4L2_PRIORITY_DEFAULT, "priority %u is left", priority);
	close(fd);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "snapshot", test_snapshot }, { "race", test_race },	      { "roi", test_roi },
	{ "memory", test_memory },     { "sequence", test_sequence }, { "refusals", test_refusals },
	{ "priority", test_priority }, { "fixtures", test_fixtures },
};

int main(int argc, char **argv)
{
	unsigned done = 0;

	check(argc >= 2, "usage: measure NODE [TEST...]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	node_path = argv[1];
	for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		bool wanted = argc == 2;

		for (int j = 2; j < argc; j++)
			wanted |= !strcmp(argv[j], tests[i].name);
		if (!wanted)
			continue;
		printf("%s ...\n", tests[i].name);
		tests[i].run();
		done++;
	}
	check(done == (argc == 2 ? sizeof(tests) / sizeof(tests[0]) : (unsigned)argc - 2), "no such test");
	printf("measure: %u tests passed\n", done);
	return 0;
}
