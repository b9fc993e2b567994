// SPDX-License-Identifier: GPL-2.0-only
/*
 * Latency from QBUF of a frame to DQBUF of its result, on two nodes in turns:
 * latency MEASURING_NODE VIM2M. vim2m moves the same number of bytes (320x480 of
 * RGB565) in its shortest transaction time. Also compares the kernel's threshold
 * with a loop over bytes in this program. Prints the figures and checks no limit.
 */
#include "v4l2.h"

#define FRAMES 300
#define CID_TRANS_TIME (V4L2_CID_USER_BASE + 0x1000)

struct node {
	int fd;
	struct queue output, capture;
	uint64_t ns[FRAMES], run_ns[FRAMES];
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values)
{
	qsort(values, FRAMES, sizeof(*values), compare);
	return values[FRAMES / 2];
}

static struct node node_open(const char *path, uint32_t pixelformat, uint32_t width)
{
	struct node n = { .fd = open_or_fail(path, O_RDWR) };

	set_format(n.fd, pixelformat, width, 480);
	queue_make(&n.output, n.fd, OUTPUT, MMAP, 1);
	queue_make(&n.capture, n.fd, CAPTURE, MMAP, 1);
	check(n.output.size == 307200 && n.capture.size == 307200, "%zu bytes", n.output.size);
	fill(n.output.buffers[0].pixels, 307200);
	stream(n.fd, true);
	return n;
}

static void node_frame(struct node *n, unsigned i)
{
	uint64_t begun;

	queue_put(&n->capture, 0);
	begun = now_ns();
	queue_put(&n->output, 0);
	queue_get(&n->capture);
	n->ns[i] = now_ns() - begun;
	queue_get(&n->output);
}

/* Threshold as the kernel's compiler may generate it: without vector registers. */
static uint32_t __attribute__((noinline, optimize("no-tree-vectorize"), target("no-sse")))
plain(uint8_t *to, const uint8_t *from, size_t count, uint8_t level)
{
	uint32_t set = 0;

	for (size_t i = 0; i < count; i++) {
		bool white = from[i] >= level;

		to[i] = white ? 255 : 0;
		set += white;
	}
	return set;
}

int main(int argc, char **argv)
{
	static struct node copy, vim2m, threshold;
	static uint64_t plain_ns[FRAMES];
	struct v4l2_control time = { .id = CID_TRANS_TIME, .value = 1 };
	uint8_t *scratch = malloc(307200);
	volatile uint32_t sink;
	int meta;

	check(argc == 3, "usage: latency MEASURING_NODE VIM2M");
	copy = node_open(argv[1], V4L2_PIX_FMT_GREY, 640);
	threshold = node_open(argv[1], V4L2_PIX_FMT_GREY, 640);
	vim2m = node_open(argv[2], V4L2_PIX_FMT_RGB565, 320);
	meta = meta_open_as(O_RDONLY | O_NONBLOCK);
	order(threshold.fd, (struct order){ .algo = FRAMEPATH_ALGO_THRESHOLD, .level = 128 });
	check(!ioctl(vim2m.fd, VIDIOC_S_CTRL, &time), "vim2m's transaction time");
	for (unsigned i = 0; i < FRAMES; i++) {
		struct fp_meta_record r;
		uint64_t begun;

		node_frame(&vim2m, i);
		node_frame(&copy, i);
		r = meta_read(meta);
		copy.run_ns[i] = r.end_ns - r.start_ns;
		node_frame(&threshold, i);
		r = meta_read(meta);
		threshold.run_ns[i] = r.end_ns - r.start_ns;
		begun = now_ns();
		sink = plain(scratch, threshold.output.buffers[0].pixels, 307200, 128);
		plain_ns[i] = now_ns() - begun;
		check(sink == r.value[1], "pixels set: %u and %u", sink, r.value[1]);
	}
	uint64_t vim = median(vim2m.ns), copied = median(copy.ns), set = median(threshold.ns), byte = median(plain_ns);

	printf("latency p50 in ns: vim2m %llu, copy %llu (%.3f), threshold %llu (%.3f)\n", (unsigned long long)vim,
	       (unsigned long long)copied, (double)copied / vim, (unsigned long long)set, (double)set / vim);
	uint64_t run = median(threshold.run_ns);

	printf("pixels p50 in ns: copy %llu, threshold %llu, byte loop %llu (%.3f)\n",
	       (unsigned long long)median(copy.run_ns), (unsigned long long)run, (unsigned long long)byte,
	       (double)run / byte);
	return 0;
}
