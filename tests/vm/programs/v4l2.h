/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared code of the measuring node's test programs: a mem2mem node's two queues
 * over any memory, its controls and its records. A failed call that is not under
 * test ends the program.
 */
#ifndef FRAMEPATH_TEST_V4L2_H
#define FRAMEPATH_TEST_V4L2_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <linux/videodev2.h>

#include "../../../kernel/uapi/framepath.h"

#define OUTPUT V4L2_BUF_TYPE_VIDEO_OUTPUT
#define CAPTURE V4L2_BUF_TYPE_VIDEO_CAPTURE
#define BUFFERS 8

static inline void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	int error = errno;
	va_list list;

	va_start(list, format);
	printf("FAIL ");
	vprintf(format, list);
	printf(" (errno %d, %s)\n", error, strerror(error));
	va_end(list);
	fflush(stdout);
	_exit(1);
}

#define check(condition, ...)                   \
	do {                                    \
		if (!(condition))               \
			fail(__VA_ARGS__);      \
	} while (0)

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline int open_or_fail(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	check(fd >= 0, "open %s", path);
	return fd;
}

static inline void set_format(int fd, uint32_t pixelformat, uint32_t width, uint32_t height)
{
	for (int i = 0; i < 2; i++) {
		struct v4l2_format f = { .type = i ? CAPTURE : OUTPUT };

		f.fmt.pix.width = width;
		f.fmt.pix.height = height;
		f.fmt.pix.pixelformat = pixelformat;
		check(!ioctl(fd, VIDIOC_S_FMT, &f), "S_FMT");
		check(f.fmt.pix.width == width && f.fmt.pix.height == height && f.fmt.pix.pixelformat == pixelformat,
		      "S_FMT %ux%u gave %ux%u", width, height, f.fmt.pix.width, f.fmt.pix.height);
	}
}

/* ---- memory ------------------------------------------------------------- */

enum kind { MMAP, USER, UDMABUF, HEAP, KINDS };

static inline const char *kind_name(enum kind kind)
{
	return (const char *[]){ "mmap", "userptr", "udmabuf", "heap" }[kind];
}

struct memory {
	uint8_t *pixels;
	size_t size;
	int dmabuf;	/* or -1 */
};

static inline struct memory memory_user(size_t size)
{
	struct memory m = { .size = size, .dmabuf = -1 };

	m.pixels = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(m.pixels != MAP_FAILED, "mmap");
	memset(m.pixels, 0, size);
	return m;
}

static inline struct memory memory_of_dmabuf(int fd, size_t size)
{
	struct memory m = { .size = size, .dmabuf = fd };

	m.pixels = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(m.pixels != MAP_FAILED, "mmap of a dmabuf");
	return m;
}

static inline struct memory memory_udmabuf(size_t size)
{
	size_t pages = (size + 4095) & ~4095ul;
	int device = open_or_fail("/dev/udmabuf", O_RDWR), file = memfd_create("frame", MFD_ALLOW_SEALING), fd;
	struct udmabuf_create create = { .memfd = file, .flags = UDMABUF_FLAGS_CLOEXEC, .size = pages };

	check(file >= 0 && !ftruncate(file, pages) && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	fd = ioctl(device, UDMABUF_CREATE, &create);
	check(fd >= 0, "UDMABUF_CREATE");
	close(file);
	close(device);
	return memory_of_dmabuf(fd, size);
}

static inline struct memory memory_heap(size_t size)
{
	int device = open_or_fail("/dev/dma_heap/system", O_RDWR);
	struct dma_heap_allocation_data data = { .len = (size + 4095) & ~4095ul, .fd_flags = O_RDWR | O_CLOEXEC };

	check(!ioctl(device, DMA_HEAP_IOCTL_ALLOC, &data), "DMA_HEAP_IOCTL_ALLOC");
	close(device);
	return memory_of_dmabuf(data.fd, size);
}

static inline void memory_free(struct memory *m)
{
	munmap(m->pixels, m->size);
	if (m->dmabuf >= 0)
		close(m->dmabuf);
}

/* ---- queues ------------------------------------------------------------- */

struct queue {
	int fd;
	uint32_t type;
	uint32_t memory;	/* V4L2_MEMORY_* */
	unsigned count;
	size_t size;
	struct memory buffers[BUFFERS];
};

static inline void request(struct queue *q, int fd, uint32_t type, uint32_t memory, unsigned count)
{
	struct v4l2_requestbuffers r = { .count = count, .type = type, .memory = memory };
	struct v4l2_format f = { .type = type };

	check(!ioctl(fd, VIDIOC_G_FMT, &f), "G_FMT");
	check(!ioctl(fd, VIDIOC_REQBUFS, &r) && r.count == count, "REQBUFS %u gave %u", count, r.count);
	*q = (struct queue){ .fd = fd, .type = type, .memory = memory, .count = count, .size = f.fmt.pix.sizeimage };
}

/* Makes a queue with COUNT buffers of the kind, each with its own memory. */
static inline void queue_make(struct queue *q, int fd, uint32_t type, enum kind kind, unsigned count)
{
	request(q, fd, type, kind == MMAP ? V4L2_MEMORY_MMAP : kind == USER ? V4L2_MEMORY_USERPTR : V4L2_MEMORY_DMABUF,
		count);
	for (unsigned i = 0; i < count; i++) {
		struct v4l2_buffer b = { .type = type, .memory = q->memory, .index = i };

		if (kind == USER) {
			q->buffers[i] = memory_user(q->size);
		} else if (kind == UDMABUF) {
			q->buffers[i] = memory_udmabuf(q->size);
		} else if (kind == HEAP) {
			q->buffers[i] = memory_heap(q->size);
		} else {
			check(!ioctl(fd, VIDIOC_QUERYBUF, &b), "QUERYBUF");
			q->buffers[i] = (struct memory){ .size = b.length, .dmabuf = -1 };
			q->buffers[i].pixels = mmap(NULL, b.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, b.m.offset);
			check(q->buffers[i].pixels != MAP_FAILED, "mmap of a buffer");
		}
	}
}

static inline int queue_export(struct queue *q, unsigned index)
{
	struct v4l2_exportbuffer e = { .type = q->type, .index = index, .flags = O_RDWR | O_CLOEXEC };

	check(!ioctl(q->fd, VIDIOC_EXPBUF, &e), "EXPBUF");
	return e.fd;
}

static inline void queue_free(struct queue *q)
{
	struct v4l2_requestbuffers r = { .type = q->type, .memory = q->memory };

	for (unsigned i = 0; i < q->count; i++)
		if (q->buffers[i].pixels)
			memory_free(&q->buffers[i]);
	check(!ioctl(q->fd, VIDIOC_REQBUFS, &r), "REQBUFS 0");
}

static inline struct v4l2_buffer queue_buffer(struct queue *q, unsigned index)
{
	struct v4l2_buffer b = { .type = q->type, .memory = q->memory, .index = index, .field = V4L2_FIELD_NONE };

	b.length = q->buffers[index].size;
	if (q->type == OUTPUT)
		b.bytesused = q->size;
	if (q->memory == V4L2_MEMORY_USERPTR)
		b.m.userptr = (unsigned long)q->buffers[index].pixels;
	else if (q->memory == V4L2_MEMORY_DMABUF)
		b.m.fd = q->buffers[index].dmabuf;
	return b;
}

static inline void queue_put(struct queue *q, unsigned index)
{
	struct v4l2_buffer b = queue_buffer(q, index);

	check(!ioctl(q->fd, VIDIOC_QBUF, &b), "QBUF of %s %u", q->type == OUTPUT ? "OUTPUT" : "CAPTURE", index);
}

static inline struct v4l2_buffer queue_get(struct queue *q)
{
	struct v4l2_buffer b = { .type = q->type, .memory = q->memory };

	check(!ioctl(q->fd, VIDIOC_DQBUF, &b), "DQBUF of %s", q->type == OUTPUT ? "OUTPUT" : "CAPTURE");
	return b;
}

static inline void stream(int fd, bool on)
{
	for (int i = 0; i < 2; i++) {
		int type = i ? CAPTURE : OUTPUT;

		check(!ioctl(fd, on ? VIDIOC_STREAMON : VIDIOC_STREAMOFF, &type), "STREAMON or STREAMOFF");
	}
}

/* ---- the measuring node ------------------------------------------------- */

struct order {
	int64_t sequence;
	int32_t algo, level, left, top, width, height, in_place, crc32;
};

static inline int set_order(int fd, const struct order *o)
{
	struct v4l2_ext_control c[] = {
		{ .id = FRAMEPATH_CID_SRC_SEQUENCE, .value64 = o->sequence },
		{ .id = FRAMEPATH_CID_ALGO, .value = o->algo },
		{ .id = FRAMEPATH_CID_THRESHOLD, .value = o->level },
		{ .id = FRAMEPATH_CID_ROI_LEFT, .value = o->left },
		{ .id = FRAMEPATH_CID_ROI_TOP, .value = o->top },
		{ .id = FRAMEPATH_CID_ROI_WIDTH, .value = o->width },
		{ .id = FRAMEPATH_CID_ROI_HEIGHT, .value = o->height },
		{ .id = FRAMEPATH_CID_IN_PLACE, .value = o->in_place },
		{ .id = FRAMEPATH_CID_CRC32, .value = o->crc32 },
	};
	struct v4l2_ext_controls all = { .which = V4L2_CTRL_WHICH_CUR_VAL, .count = 9, .controls = c };

	return ioctl(fd, VIDIOC_S_EXT_CTRLS, &all);
}

static inline void order(int fd, struct order o)
{
	check(!set_order(fd, &o), "S_EXT_CTRLS");
}

/* Opens the records' device for whole records. Returns the descriptor. */
static inline int meta_open_as(int flags)
{
	int meta = open_or_fail("/dev/framepath-meta", flags);
	uint32_t bytes = sizeof(struct fp_meta_record);

	check(!ioctl(meta, FRAMEPATH_IOC_META_BYTES, &bytes) && bytes == sizeof(struct fp_meta_record),
	      "FRAMEPATH_IOC_META_BYTES gave %u", bytes);
	return meta;
}

static inline struct fp_meta_record meta_read(int meta)
{
	struct fp_meta_record r;

	check(read(meta, &r, sizeof(r)) == sizeof(r), "read of a record");
	return r;
}

static inline uint64_t meta_missed(int meta)
{
	uint64_t missed;

	check(!ioctl(meta, FRAMEPATH_IOC_META_MISSED, &missed), "FRAMEPATH_IOC_META_MISSED");
	return missed;
}

/* Returns the CRC-32 of IEEE 802.3, computed bit by bit. */
static inline uint32_t crc32_of(const uint8_t *bytes, size_t count)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < count; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* Expected result of the node, computed byte by byte as in the user-space stage. */
struct expected {
	uint32_t roi[4], set, status;
	uint64_t outside;
};

static inline struct expected reference(uint8_t *to, const uint8_t *from, uint32_t width, uint32_t height,
					const struct order *o)
{
	uint64_t right = o->width ? (uint64_t)o->left + o->width : width;
	uint64_t bottom = o->height ? (uint64_t)o->top + o->height : height;
	struct expected e = { .outside = (uint64_t)width * height };

	if (to != from)
		memcpy(to, from, e.outside);
	if (o->algo != FRAMEPATH_ALGO_THRESHOLD)
		return e;
	if (right > width || bottom > height || (uint32_t)o->left >= width || (uint32_t)o->top >= height)
		e.status = FRAMEPATH_STATUS_ROI_CLAMPED;
	right = right < width ? right : width;
	bottom = bottom < height ? bottom : height;
	e.roi[0] = (uint32_t)o->left < width ? (uint32_t)o->left : width;
	e.roi[1] = (uint32_t)o->top < height ? (uint32_t)o->top : height;
	e.roi[2] = right - e.roi[0];
	e.roi[3] = bottom - e.roi[1];
	for (uint32_t y = e.roi[1]; y < bottom; y++)
		for (uint32_t x = e.roi[0]; x < right; x++) {
			uint8_t *pixel = to + (size_t)y * width + x;

			*pixel = *pixel >= o->level ? 255 : 0;
			e.set += *pixel == 255;
		}
	e.outside -= (uint64_t)e.roi[2] * e.roi[3];
	return e;
}

static inline void fill(uint8_t *pixels, size_t size)
{
	static uint64_t state = 88172645463325252ull;

	for (size_t i = 0; i < size; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		pixels[i] = state >> 32;
	}
}

#endif
