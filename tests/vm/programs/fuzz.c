// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random calls on device files, for the kernel's own checks to find what they
 * do: fuzz SECONDS SEED PATH... Four processes with two threads each, which
 * share a descriptor, so that calls meet. Half of the calls are nearly right,
 * else none would get far. Says how many there were and how many succeeded.
 */
#include "v4l2.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static char **paths;
static unsigned path_count;
static uint64_t deadline;
static volatile int descriptor = -1;
static struct {
	unsigned long calls, succeeded;
} *totals;
static uint8_t area[1 << 20] __attribute__((aligned(4096)));

static __thread uint64_t state;

static uint32_t random_bits(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 24;
}

static uint32_t below(uint32_t limit)
{
	return random_bits() % limit;
}

static uint32_t any_type(void)
{
	static const uint32_t types[] = { OUTPUT, CAPTURE, OUTPUT, CAPTURE, V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE,
					  V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE, 0, 77 };

	return types[below(8)];
}

static void done(long result)
{
	__atomic_fetch_add(&totals->calls, 1, __ATOMIC_RELAXED);
	if (result >= 0)
		__atomic_fetch_add(&totals->succeeded, 1, __ATOMIC_RELAXED);
}

/* A call as a client makes it, with a value or two wrong at times. */
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

		/* Not both of any size: what a guest's memory has not is no mistake. */
		f.fmt.pix.width = below(4) ? 16 + below(700) : random_bits();
		f.fmt.pix.height = 16 + below(60);
		f.fmt.pix.pixelformat = below(2) ? V4L2_PIX_FMT_GREY : V4L2_PIX_FMT_H264;
		done(ioctl(fd, below(2) ? VIDIOC_S_FMT : VIDIOC_TRY_FMT, &f));
		break;
	}
	case 6: {
		struct order o = { random_bits(), below(3), below(300), below(800), below(800), below(800), below(800),
				   below(2) };

		done(set_order(fd, &o));
		break;
	}
	case 7: {
		struct v4l2_exportbuffer e = { .type = type, .index = below(5), .plane = !below(9), .flags = below(2) ? 2 : 0 };
		int result = ioctl(fd, VIDIOC_EXPBUF, &e);

		done(result);
		/* Some stay, for others to import. */
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
		char bytes[512];

		done(poll(&p, 1, below(3)));
		done(read(fd, bytes, below(sizeof(bytes))));
		break;
	}
	}
}

/* Any command, any bytes. */
static void anything(int fd)
{
	uint8_t bytes[1024];
	unsigned long command = 0;

	for (unsigned i = 0; i < sizeof(bytes); i += 4) {
		uint32_t word = below(3) ? below(4) : random_bits();

		memcpy(bytes + i, &word, 4);
	}
	switch (below(3)) {
	case 0:
		command = _IOC(below(4), 0xFB, below(0x30), below(2) ? below(200) : 8);
		break;
	case 1:
		command = _IOC(below(4), 'V', below(110), below(300));
		break;
	case 2: {
		static const unsigned long commands[] = {
			VIDIOC_QUERYCAP,   VIDIOC_ENUM_FMT,	   VIDIOC_G_FMT,       VIDIOC_S_FMT,	  VIDIOC_TRY_FMT,
			VIDIOC_REQBUFS,	   VIDIOC_QUERYBUF,	   VIDIOC_QBUF,	       VIDIOC_DQBUF,	  VIDIOC_EXPBUF,
			VIDIOC_CREATE_BUFS, VIDIOC_PREPARE_BUF,	   VIDIOC_G_EXT_CTRLS, VIDIOC_S_EXT_CTRLS, VIDIOC_QUERYCTRL,
			VIDIOC_QUERY_EXT_CTRL, VIDIOC_QUERYMENU,   VIDIOC_SUBSCRIBE_EVENT, VIDIOC_UNSUBSCRIBE_EVENT,
			VIDIOC_DQEVENT,	   VIDIOC_ENUM_FRAMESIZES, VIDIOC_G_SELECTION, VIDIOC_S_SELECTION, VIDIOC_DECODER_CMD,
			VIDIOC_TRY_DECODER_CMD, VIDIOC_S_PRIORITY, VIDIOC_G_CTRL,      VIDIOC_S_CTRL,	  VIDIOC_G_PARM,
		};

		command = commands[below(sizeof(commands) / sizeof(commands[0]))];
		break;
	}
	}
	/* The same here: width and height are the third and fourth word. */
	if (command == VIDIOC_S_FMT)
		memset(bytes + 12, 0, 4);
	done(ioctl(fd, command, bytes));
}

static void *calls(void *seed)
{
	state = (uintptr_t)seed * 0x9e3779b97f4a7c15ull + 1;
	while (now_ns() < deadline) {
		if (below(200) == 0) {
			int fresh = open(paths[below(path_count)], (below(4) ? O_RDWR : O_RDONLY) | (below(8) ? O_NONBLOCK : 0));
			int old = __atomic_exchange_n(&descriptor, fresh, __ATOMIC_RELAXED);

			done(fresh);
			close(old);
		}
		if (below(2))
			nearly_right(descriptor);
		else
			anything(descriptor);
		/* What other calls have left behind is closed now and then. */
		if (below(500) == 0)
			for (int fd = 10; fd < 200; fd++)
				close(fd);
	}
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	unsigned long seed;

	check(argc > 3, "usage: fuzz SECONDS SEED PATH...");
	paths = argv + 3;
	path_count = argc - 3;
	seed = strtoul(argv[2], NULL, 0);
	deadline = now_ns() + strtoull(argv[1], NULL, 0) * 1000000000;
	totals = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(totals != MAP_FAILED, "mmap");
	for (unsigned i = 0; i < 4; i++) {
		pthread_t thread;

		if (fork())
			continue;
		/* A call that waits ends with a signal. */
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &often, NULL);
		pthread_create(&thread, NULL, calls, (void *)(seed * 100 + i * 2));
		calls((void *)(seed * 100 + i * 2 + 1));
		/* The other thread may wait in a call for longer than we do. */
		_exit(0);
	}
	for (unsigned i = 0; i < 4; i++) {
		int status;

		check(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status), "a process ended with %#x", status);
	}
	printf("fuzz: seed %lu, %lu calls, %lu succeeded\n", seed, totals->calls, totals->succeeded);
	return 0;
}
