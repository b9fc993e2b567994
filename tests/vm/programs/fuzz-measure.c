// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random calls on the measuring node and its records:
 *
 *   fuzz-measure SECONDS SEED PATH...
 */
#include "fuzz.h"

static char **paths;
static unsigned int path_count;
static volatile int descriptor = -1;
static uint8_t area[1 << 20] __attribute__((aligned(4096)));

static uint32_t any_type(void)
{
	static const uint32_t types[] = { OUTPUT, CAPTURE, OUTPUT, CAPTURE, V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE,
					  V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE, 0, 77 };

	return types[below(8)];
}

/* Makes a call of a client, in which a value may be wrong. */
static void nearly_right(int fd)
{
	uint32_t type = any_type(), memory = 1 + below(4);
	bool mplane = type > 8;

	switch (below(10)) {
	case 0: {
		struct v4l2_requestbuffers r = { .count = below(6), .type = type, .memory = memory };

		done(ioctl(fd, VIDIOC_REQBUFS, &r));
		break;
	}
	case 1:
	case 2:
	case 3: {
		struct v4l2_plane planes[2] = { { .length = 1 << 19, .bytesused = below(2) ? 1 << 19 : below(5000) } };
		struct v4l2_buffer b = { .type = type, .memory = memory, .index = below(5), .length = sizeof(area) };

		b.field = below(8) ? V4L2_FIELD_NONE : below(12);
		b.bytesused = below(8) ? 307200 : random_bits();
		b.flags = below(8) ? 0 : random_bits();
		b.m.userptr = below(8) ? (unsigned long)area + below(4096) : random_bits();
		if (memory == V4L2_MEMORY_DMABUF)
			b.m.fd = below(40);
		if (mplane) {
			planes[0].m.userptr = b.m.userptr;
			b.length = 1 + !below(8);
			b.m.planes = planes;
		}
		switch (below(4)) {
		case 0:
			done(ioctl(fd, VIDIOC_DQBUF, &b));
			break;
		case 1:
			done(ioctl(fd, below(2) ? VIDIOC_PREPARE_BUF : VIDIOC_QUERYBUF, &b));
			break;
		default:
			done(ioctl(fd, VIDIOC_QBUF, &b));
		}
		break;
	}
	case 4: {
		int t = type;

		done(ioctl(fd, below(3) ? VIDIOC_STREAMON : VIDIOC_STREAMOFF, &t));
		break;
	}
	case 5: {
		struct v4l2_format f = { .type = type };

		/* Only the width may be of any size, because the guest's memory is too small for both. */
		f.fmt.pix.width = below(4) ? 4 + below(700) : random_bits();
		f.fmt.pix.height = 4 + below(60);
		f.fmt.pix.pixelformat = below(2) ? V4L2_PIX_FMT_GREY : V4L2_PIX_FMT_H264;
		done(ioctl(fd, below(2) ? VIDIOC_S_FMT : VIDIOC_TRY_FMT, &f));
		break;
	}
	case 6: {
		struct order o = { random_bits(), below(3), below(300), below(800), below(800), below(800), below(800),
				   below(2), below(2) };

		done(set_order(fd, &o));
		break;
	}
	case 7: {
		struct v4l2_exportbuffer e = { .type = type, .index = below(5), .plane = !below(9), .flags = below(2) ? 2 : 0 };
		int result = ioctl(fd, VIDIOC_EXPBUF, &e);

		done(result);
		/* Some dmabufs stay open, so that other calls import them. */
		if (!result && (e.fd > 30 || below(2)))
			close(e.fd);
		break;
	}
	case 8: {
		size_t length = 4096u << below(8);
		void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
				(below(2) ? 0 : 0x40000000) + 4096ul * below(300));

		done(at == MAP_FAILED ? -1 : 0);
		if (at != MAP_FAILED)
			munmap(at, length);
		break;
	}
	case 9: {
		struct pollfd p = { .fd = fd, .events = random_bits() };
		uint32_t size = 8 * below(20);
		char bytes[512];

		done(poll(&p, 1, below(3)));
		done(ioctl(fd, FRAMEPATH_IOC_META_BYTES, &size));
		done(read(fd, bytes, below(sizeof(bytes))));
		break;
	}
	}
}

static void call(void)
{
	if (rarely(200)) {
		int fresh = open(paths[below(path_count)], (below(4) ? O_RDWR : O_RDONLY) | (below(8) ? O_NONBLOCK : 0));
		int old = __atomic_exchange_n(&descriptor, fresh, __ATOMIC_RELAXED);

		done(fresh);
		close(old);
	}
	if (below(2))
		nearly_right(descriptor);
	else
		anything(descriptor);
	/* Rarely closes the descriptors that other calls have left open. */
	if (rarely(500))
		for (int fd = 10; fd < 200; fd++)
			close(fd);
}

int main(int argc, char **argv)
{
	check(argc > 3, "usage: fuzz-measure SECONDS SEED PATH...");
	paths = argv + 3;
	path_count = argc - 3;
	fuzz(argv[1], argv[2], call);
	return 0;
}
