// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clients of the decoder node that exceed their share. Each case checks a limit:
 *
 *   decoder-hostile NODE sizes           sizes that CREATE_BUFS accepts; counted memory
 *   decoder-hostile NODE memory UID      memory of user UID, with any number of files
 *   decoder-hostile NODE cgroup FOLDER   memory charged to a memory cgroup, which it makes
 *   decoder-hostile NODE grab UID N      N streams and no more, held until SIGTERM
 *   decoder-hostile NODE namespace UID   while UID holds N streams, its subordinate ids get none
 *   decoder-hostile NODE served UID N M  the decoder accepts M of N streams, and fails the others
 *   decoder-hostile NODE loop UID        allocates and frees until SIGTERM
 *   decoder-hostile NODE racing          maps buffers during the allocation of their memory
 *   decoder-hostile NODE frozen          a client that never leaves CREATE_BUFS, before
 *                                        and after a decoder has accepted its stream; its
 *                                        second thread waits in G_FMT for the first
 *
 * Runs as root; UID is the user that opens the files.
 */
#include "fake.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#undef OUTPUT
#undef CAPTURE
#define OUTPUT V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE
#define CAPTURE V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
#define FILES 100
#define SECONDS 60

static const char *node;
static struct shared {
	volatile bool inside;		/* CREATE_BUFS has begun and not ended */
	volatile unsigned int rounds;	/* calls of it that have ended */
	volatile bool ready;
	volatile uint32_t bytes;	/* of each of the buffers it makes, two at least */
	volatile bool asks;		/* another thread of the client has begun */
	volatile bool asking;		/* it is in G_FMT */
} *shared;

static unsigned long long count_of(const char *name)
{
	FILE *file = fopen("/sys/kernel/debug/framepath/counts", "r");
	unsigned long long value, found = 0;
	char line[64];
	bool is = false;

	check(file, "counts in debugfs");
	while (fscanf(file, "%63s %llu", line, &value) == 2) {
		if (!strcmp(line, name)) {
			found = value;
			is = true;
		}
	}
	fclose(file);
	check(is, "no count %s", name);
	return found;
}

static void write_to(const char *path, const char *text)
{
	int fd = open_or_fail(path, O_WRONLY);

	check(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "writing %s", path);
	close(fd);
}

static void become(unsigned int uid)
{
	check(!setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid), "becoming %u", uid);
}

static void set_size(int fd, uint32_t width, uint32_t height)
{
	struct v4l2_format f = { .type = OUTPUT };

	f.fmt.pix_mp.pixelformat = V4L2_PIX_FMT_VP8;
	f.fmt.pix_mp.width = width;
	f.fmt.pix_mp.height = height;
	f.fmt.pix_mp.num_planes = 1;
	f.fmt.pix_mp.plane_fmt[0].sizeimage = 4096;
	check(!ioctl(fd, VIDIOC_S_FMT, &f), "S_FMT");
}

static uint32_t sizeimage(int fd, uint32_t type)
{
	struct v4l2_format f = { .type = type };

	check(!ioctl(fd, VIDIOC_G_FMT, &f), "G_FMT");
	return f.fmt.pix_mp.plane_fmt[0].sizeimage;
}

/* Returns the number of created buffers, or a negative errno. */
static int create(int fd, uint32_t type, uint32_t bytes, unsigned int count)
{
	struct v4l2_create_buffers c = { .count = count, .memory = V4L2_MEMORY_MMAP, .format.type = type };

	check(!ioctl(fd, VIDIOC_G_FMT, &c.format), "G_FMT");
	c.format.fmt.pix_mp.plane_fmt[0].sizeimage = bytes;
	return ioctl(fd, VIDIOC_CREATE_BUFS, &c) ? -errno : (int)c.count;
}

static void release(int fd, uint32_t type)
{
	struct v4l2_requestbuffers r = { .type = type, .memory = V4L2_MEMORY_MMAP };

	check(!ioctl(fd, VIDIOC_REQBUFS, &r), "REQBUFS 0");
}

/* Returns 0, or a negative errno. */
static int begin_stream(int fd)
{
	struct v4l2_requestbuffers r = { .count = 1, .type = OUTPUT, .memory = V4L2_MEMORY_MMAP };
	int type = OUTPUT;

	set_size(fd, 320, 240);
	check(!ioctl(fd, VIDIOC_REQBUFS, &r), "REQBUFS");
	return ioctl(fd, VIDIOC_STREAMON, &type) ? -errno : 0;
}

/* ---- sizes of CREATE_BUFS, and counted memory ----------------------------- */

static int export(int fd, uint32_t type)
{
	struct v4l2_exportbuffer e = { .type = type, .flags = O_RDWR | O_CLOEXEC };

	check(!ioctl(fd, VIDIOC_EXPBUF, &e), "EXPBUF");
	return e.fd;
}

static void *map(int fd, uint32_t type, size_t bytes)
{
	struct v4l2_plane plane = { };
	struct v4l2_buffer b = { .type = type, .memory = V4L2_MEMORY_MMAP, .m.planes = &plane, .length = 1 };
	void *memory;

	check(!ioctl(fd, VIDIOC_QUERYBUF, &b), "QUERYBUF");
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, plane.m.mem_offset);
	check(memory != MAP_FAILED, "mmap");
	return memory;
}

static uint32_t limit_of(uint32_t size)
{
	return (size + (size < 1 << 20 ? 1 << 20 : size) + 4095) & ~4095u;
}

/* The module rejects a dmabuf that is too small, and keeps no reference to it. */
static void refused_import(void)
{
	struct v4l2_requestbuffers r = { .count = 1, .type = OUTPUT, .memory = V4L2_MEMORY_DMABUF };
	struct v4l2_plane plane = { .bytesused = 16, .length = 1 << 20 };
	struct v4l2_buffer b = { .type = OUTPUT, .memory = V4L2_MEMORY_DMABUF, .m.planes = &plane, .length = 1 };
	int from = open_or_fail(node, O_RDWR), to = open_or_fail(node, O_RDWR);

	set_size(from, 320, 240);
	set_size(to, 320, 240);
	check(create(from, OUTPUT, 8192, 1) == 1, "a packet's buffer");
	check(!ioctl(to, VIDIOC_REQBUFS, &r), "REQBUFS");
	plane.m.fd = export(from, OUTPUT);
	check(ioctl(to, VIDIOC_QBUF, &b) && errno == EFAULT, "QBUF of 1 MiB in 8 KiB");
	close(plane.m.fd);
	close(from);
	check(!count_of("memory_bytes"), "a dmabuf that was turned down is kept");
	close(to);
}

static void case_sizes(void)
{
	const unsigned long long limit = count_of("memory_limit_bytes");
	int fd = open_or_fail(node, O_RDWR), files[FILES], dmabuf, got;
	unsigned int buffers = 0, i;
	uint32_t frame, bytes;
	uint8_t *mapped;

	check(!count_of("memory_bytes"), "memory is in use");
	set_size(fd, 320, 240);
	frame = sizeimage(fd, CAPTURE);
	bytes = limit_of(frame);
	check(create(fd, CAPTURE, 512u << 20, 1) == -EINVAL, "512 MiB for 320x240");
	check(create(fd, CAPTURE, bytes + 1, 1) == -EINVAL, "more than is allowed");
	check(create(fd, CAPTURE, frame - 1, 1) == -EINVAL, "less than a frame");
	check(create(fd, CAPTURE, bytes, 1) == 1, "what is allowed");
	check(create(fd, OUTPUT, limit_of(4096) + 1, 1) == -EINVAL, "more than is allowed for packets");
	check(create(fd, OUTPUT, 8192, 1) == 1, "two pages");
	check(count_of("memory_bytes") == bytes + 8192, "%llu bytes are counted", count_of("memory_bytes"));

	/* Memory that the queue has freed counts as long as a mapping or a dmabuf of it exists. */
	mapped = map(fd, CAPTURE, bytes);
	dmabuf = export(fd, CAPTURE);
	release(fd, OUTPUT);
	release(fd, CAPTURE);
	check(count_of("memory_bytes") == bytes, "mapped and exported memory is not counted");
	mapped[bytes - 1] = 1;
	munmap(mapped, bytes);
	check(count_of("memory_bytes") == bytes, "exported memory is not counted");
	mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, dmabuf, 0);
	check(mapped != MAP_FAILED && mapped[bytes - 1] == 1, "mmap of the dmabuf");
	check(mmap(NULL, bytes + 4096, PROT_READ, MAP_SHARED, dmabuf, 0) == MAP_FAILED, "mmap behind the dmabuf");
	munmap(mapped, bytes);
	close(fd);
	check(count_of("memory_bytes") == bytes, "memory of a closed file is not counted");
	close(dmabuf);
	check(!count_of("memory_bytes"), "memory is left");
	refused_import();

	/* First the limit of one file, then files up to the limit of the module. */
	for (i = 0; i < FILES; i++) {
		files[i] = open_or_fail(node, O_RDWR);
		set_size(files[i], 2048, 2048);
		frame = sizeimage(files[i], CAPTURE);
		got = create(files[i], CAPTURE, 2 * frame, 32);
		if (got < 0)
			break;
		buffers += got;
		check(got * 2ull * frame <= limit / 2, "one file has %d buffers of %u bytes", got, 2 * frame);
	}
	check(i >= 2 && i < FILES && got == -ENOMEM, "file %u: %d", i, got);
	check(count_of("memory_bytes") == buffers * 2ull * frame, "%u buffers are counted as %llu bytes", buffers,
	      count_of("memory_bytes"));
	check(count_of("memory_most_bytes") <= limit, "%llu bytes", count_of("memory_most_bytes"));
	do
		close(files[i]);
	while (i--);
	check(!count_of("memory_bytes"), "memory is left");
}

/* Opens the node as user UID, then becomes root again. Returns the descriptor. */
static int open_as(unsigned int uid)
{
	int fd;

	check(!setresuid(-1, uid, -1), "user %u", uid);
	fd = open_or_fail(node, O_RDWR);
	check(!setresuid(-1, 0, -1), "root");
	set_size(fd, 2048, 2048);
	return fd;
}

/* All files of a user share one limit; those of another user have their own. */
static void case_memory(unsigned int uid)
{
	const unsigned long long limit = count_of("memory_limit_bytes") / 2;
	unsigned long long bytes = 0;
	int files[FILES], other, got;
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		uint32_t buffer;

		files[i] = open_as(uid);
		buffer = 2 * sizeimage(files[i], CAPTURE);
		/* Two buffers per file, so that no file reaches the limit of one file. */
		got = create(files[i], CAPTURE, buffer, 2);
		if (got < 0)
			break;
		bytes += got * (unsigned long long)buffer;
		check(bytes <= limit, "user %u has %llu bytes in %u files, not %llu", uid, bytes, i + 1, limit);
	}
	check(i >= 2 && i < FILES && got == -ENOMEM, "file %u: %d", i, got);
	check(count_of("memory_bytes") == bytes, "%llu bytes are counted", count_of("memory_bytes"));
	other = open_as(uid + 1);
	check(create(other, CAPTURE, sizeimage(other, CAPTURE), 1) == 1, "another user has no memory");
	close(other);
	do
		close(files[i]);
	while (i--);
	check(!count_of("memory_bytes"), "memory is left");
}

static unsigned long long number_in(const char *folder, const char *name)
{
	unsigned long long value;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	check(file && fscanf(file, "%llu", &value) == 1, "%s", path);
	fclose(file);
	return value;
}

static void set_in(const char *folder, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	write_to(path, text);
}

/* Buffers are charged to the cgroup of the process; at its limit an allocation fails with an error. */
static void case_cgroup(const char *folder)
{
	unsigned long long before;
	long long charged;
	uint32_t frame;
	int fd, got;

	check(!mkdir(folder, 0755), "%s", folder);
	set_in(folder, "cgroup.procs", "0");
	fd = open_or_fail(node, O_RDWR);
	set_size(fd, 2048, 2048);
	frame = sizeimage(fd, CAPTURE);
	before = number_in(folder, "memory.current");
	check(create(fd, CAPTURE, frame, 4) == 4, "four buffers");
	charged = number_in(folder, "memory.current") - before;
	check(charged >= 4ll * frame, "%lld of %llu bytes are charged", charged, 4ull * frame);
	release(fd, CAPTURE);
	check(!count_of("memory_bytes"), "memory is left");
	charged = number_in(folder, "memory.current") - before;
	check(charged < frame, "%lld bytes are charged for memory that was freed", charged);

	set_in(folder, "memory.max", "16M");
	got = create(fd, CAPTURE, 2 * frame, 32);
	check(got == -ENOMEM || (got > 0 && got * 2ull * frame <= 16 << 20), "%d buffers of %u bytes in 16 MiB", got,
	      2 * frame);
	check(number_in(folder, "memory.current") <= 16 << 20, "more than memory.max");
	close(fd);
}

/* ---- streams ------------------------------------------------------------- */

static volatile sig_atomic_t ended;

static void on_term(int signal)
{
	(void)signal;
	ended = 1;
}

static void wait_for_end(const char *what)
{
	printf("decoder-hostile %s\n", what);
	fflush(stdout);
	for (unsigned int i = 0; !ended && i < SECONDS * 100; i++)
		usleep(10000);
	check(ended, "nobody has ended this");
}

static void case_grab(unsigned int uid, unsigned int limit)
{
	unsigned int streams = 0;

	become(uid);
	for (unsigned int i = 0; i < FILES; i++) {
		int ret = begin_stream(open_or_fail(node, O_RDWR));

		check(!ret || ret == -EBUSY, "STREAMON: %d", ret);
		streams += !ret;
	}
	check(streams == limit, "user %u has %u streams, not %u", uid, streams, limit);
	wait_for_end("holds its streams");
}

/* Returns the number of failed streams. */
static unsigned int failed_streams(const int *files, unsigned int total)
{
	unsigned int failed = 0;

	for (unsigned int i = 0; i < total; i++) {
		int type = OUTPUT;

		failed += ioctl(files[i], VIDIOC_STREAMON, &type) && errno == EIO;
	}
	return failed;
}

static void case_served(unsigned int uid, unsigned int total, unsigned int served)
{
	unsigned int failed = 0;
	int files[FILES];

	check(total <= FILES && served <= total, "%u of %u streams", served, total);
	become(uid);
	for (unsigned int i = 0; i < total; i++) {
		files[i] = open_or_fail(node, O_RDWR);
		check(!begin_stream(files[i]), "STREAMON");
	}
	for (unsigned int i = 0; failed < total - served && i < SECONDS * 10; i++) {
		usleep(100000);
		failed = failed_streams(files, total);
	}
	/* The number of failed streams must not grow later. */
	usleep(1000000);
	failed = failed_streams(files, total);
	check(failed == total - served, "of %u streams %u fail, not %u", total, failed, total - served);
}

static void case_namespace(unsigned int uid)
{
	int status, in[2], out[2], ret;
	char path[64], byte = 0;
	pid_t child;

	check(!pipe(in) && !pipe(out), "pipe");
	child = fork();
	check(child >= 0, "fork");
	if (!child) {
		become(uid);
		check(!unshare(CLONE_NEWUSER), "a user namespace");
		check(write(out[1], &byte, 1) == 1 && read(in[0], &byte, 1) == 1, "pipe");
		check(!setresuid(3, 3, 3), "another id of the namespace");
		ret = begin_stream(open_or_fail(node, O_RDWR));
		check(ret == -EBUSY, "STREAMON of another id: %d", ret);
		_exit(0);
	}
	check(read(out[0], &byte, 1) == 1, "pipe");
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	write_to(path, "0 200000 10");
	check(write(in[1], &byte, 1) == 1, "pipe");
	check(waitpid(child, &status, 0) == child && !status, "the namespace's process: %#x", status);
}

static void case_loop(unsigned int uid)
{
	unsigned int rounds = 0;
	int fd;

	become(uid);
	fd = open_or_fail(node, O_RDWR);
	check(!begin_stream(fd), "STREAMON");
	release(fd, CAPTURE);
	printf("decoder-hostile allocates\n");
	fflush(stdout);
	for (uint64_t begun = now_ns(); !ended && now_ns() - begun < SECONDS * 1000000000ull; rounds++) {
		create(fd, CAPTURE, 2 * sizeimage(fd, CAPTURE), 32);
		release(fd, CAPTURE);
	}
	check(ended, "nobody has ended this");
	printf("decoder-hostile: %u rounds\n", rounds);
}

/*
 * mmap() takes no lock of the driver. So it can find buffers of CREATE_BUFS before
 * their memory is allocated, and after their memory was freed.
 */
static void case_racing(void)
{
	int fd = open_or_fail(node, O_RDWR);
	struct v4l2_plane plane = { };
	struct v4l2_buffer b = { .type = CAPTURE, .memory = V4L2_MEMORY_MMAP, .m.planes = &plane, .length = 1 };
	unsigned int made = 0;
	pid_t child;
	int status;

	set_size(fd, 1920, 1088);
	check(create(fd, CAPTURE, sizeimage(fd, CAPTURE), 1) == 1, "one buffer");
	check(!ioctl(fd, VIDIOC_QUERYBUF, &b), "QUERYBUF");
	release(fd, CAPTURE);
	child = fork();
	check(child >= 0, "fork");
	while (!child && !ended) {
		void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, plane.m.mem_offset);

		if (memory == MAP_FAILED) {
			check(errno == EINVAL || errno == ENOMEM, "mmap");
			continue;
		}
		/* The memory of a buffer must exist as long as its mapping. */
		shared->bytes += *(volatile unsigned char *)memory;
		shared->rounds++;
		munmap(memory, 4096);
	}
	if (!child)
		_exit(0);
	/* Only one buffer, so that the other process maps the memory that is being allocated. */
	for (unsigned int round = 0; round < 400; round++) {
		made += create(fd, CAPTURE, 2 * sizeimage(fd, CAPTURE), 1) > 0;
		release(fd, CAPTURE);
	}
	kill(child, SIGTERM);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "the mapping process");
	check(made, "no buffer was made");
	printf("decoder-hostile: %u of 400 calls made a buffer, %u mappings\n", made, shared->rounds);
}

/* ---- a client that never leaves CREATE_BUFS ------------------------------- */

static pid_t hostile;

static void set_priority(pid_t process, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	check(!sched_setscheduler(process, priority ? SCHED_FIFO : SCHED_OTHER, &param), "a priority of %d", priority);
}

static pid_t start(int priority, const char *program, const char *word, const char *more)
{
	pid_t child = fork();

	check(child >= 0, "fork");
	if (child) {
		/* The child starts although this process does not sleep. */
		if (priority)
			set_priority(child, priority);
		return child;
	}
	if (word)
		execlp(program, program, node, word, more, NULL);
	else
		execlp(program, program, NULL);
	fail("%s", program);
}

/*
 * Waits for CHILD and returns its exit status. Polls without sleep if SLEEPS is false, because a sleep
 * would let the hostile client continue.
 */
static int finish(pid_t child, bool sleeps, const char *what)
{
	uint64_t begun = now_ns();
	int status;

	while (!waitpid(child, &status, WNOHANG)) {
		if (sleeps)
			usleep(1000);
		if (now_ns() - begun < SECONDS / 2 * 1000000000ull)
			continue;
		kill(child, SIGKILL);
		/* The end of the hostile client ends every wait of the child. */
		kill(hostile, SIGKILL);
		set_priority(0, 0);
		fail("%s waits for the hostile client", what);
	}
	return status;
}

/* Waits until a decoder has accepted the stream, with a format whose buffers take long to allocate. */
static void be_accepted(int fd)
{
	struct v4l2_event_subscription s = { .type = V4L2_EVENT_SOURCE_CHANGE };
	struct fake fake = { FAKE_MAGIC, 2048, 2048, 1 };
	struct v4l2_plane plane = { .bytesused = sizeof(fake), .length = 4096 };
	struct v4l2_buffer b = { .type = OUTPUT, .memory = V4L2_MEMORY_MMAP, .m.planes = &plane, .length = 1 };
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	check(!ioctl(fd, VIDIOC_SUBSCRIBE_EVENT, &s), "SUBSCRIBE_EVENT");
	memcpy(map(fd, OUTPUT, 4096), &fake, sizeof(fake));
	check(!ioctl(fd, VIDIOC_QBUF, &b), "QBUF");
	check(poll(&p, 1, 20000) == 1 && p.revents & POLLPRI, "no SOURCE_CHANGE");
}

/* Calls an ioctl that takes the lock of the node first, and then needs the lock of the file. */
static void *ask(void *argument)
{
	int fd = *(int *)argument;

	set_priority(0, 20);
	shared->asks = true;
	for (;;) {
		struct v4l2_format f = { .type = CAPTURE };

		shared->asking = true;
		check(!ioctl(fd, VIDIOC_G_FMT, &f), "G_FMT");
		shared->asking = false;
		usleep(1000);
	}
	return NULL;
}

static void __attribute__((noreturn)) stay_inside(bool accepted)
{
	int fd = open_or_fail(node, O_RDWR);
	pthread_t asking;
	uint32_t bytes;

	check(!begin_stream(fd), "STREAMON");
	if (accepted) {
		be_accepted(fd);
	} else {
		int type = OUTPUT;

		/* Sets a large size, which is possible only while OUTPUT has no buffers. */
		check(!ioctl(fd, VIDIOC_STREAMOFF, &type), "STREAMOFF");
		release(fd, OUTPUT);
		set_size(fd, 2048, 2048);
		check(create(fd, OUTPUT, 4096, 1) == 1 && !ioctl(fd, VIDIOC_STREAMON, &type), "STREAMON");
	}
	bytes = 2 * sizeimage(fd, CAPTURE);
	shared->bytes = (bytes + 4095) & ~4095u;
	check(!pthread_create(&asking, NULL, ask, &fd), "pthread_create");
	/* The other thread must set its priority before this thread does. */
	while (!shared->asks)
		usleep(1000);
	/* Without a real-time priority, this thread would get a share of the CPU from the scheduler. */
	set_priority(0, 1);
	shared->ready = true;
	for (;;) {
		shared->inside = true;
		check(create(fd, CAPTURE, bytes, 32) > 1, "CREATE_BUFS");
		shared->inside = false;
		shared->rounds++;
		release(fd, CAPTURE);
	}
}

static void honest(pid_t *decoder, unsigned int rounds, const char *what)
{
	int status;

	if (!*decoder)
		*decoder = start(20, "fake-decoder", NULL, NULL);
	status = finish(start(20, "decoder-client", "plain", "20"), false, what);
	check(!status, "%s ended with %#x", what, status);
	check(shared->inside && shared->rounds == rounds, "the hostile client went on");
	check(shared->asking, "no thread of the hostile client waits for its lock");
}

static void end_decoder(pid_t *decoder, unsigned int rounds)
{
	int status;

	kill(*decoder, SIGTERM);
	status = finish(*decoder, false, "the decoder that ends");
	check(!status, "the decoder ended with %#x", status);
	check(shared->inside && shared->rounds == rounds, "the hostile client went on");
	*decoder = 0;
}

/*
 * All processes run on one CPU. The hostile client has a low priority; this process has a
 * higher one and never sleeps. So the client does not continue, and keeps its lock.
 */
static void freeze(bool accepted)
{
	pid_t decoder = accepted ? start(0, "fake-decoder", NULL, NULL) : 0;
	unsigned long long own;
	unsigned int rounds = 0, i;

	memset(shared, 0, sizeof(*shared));
	hostile = fork();
	check(hostile >= 0, "fork");
	if (!hostile)
		stay_inside(accepted);
	set_priority(0, 10);
	for (i = 0; !shared->ready && i < SECONDS * 100; i++)
		usleep(10000);
	check(shared->ready, "the hostile client has not begun");
	for (i = 0; i < SECONDS * 1000; i++) {
		usleep(1000);
		/* Memory besides the packet's: the client is allocating the first of several buffers. */
		rounds = shared->rounds;
		own = count_of("memory_bytes") - 4096;
		if (shared->inside && own && own <= shared->bytes)
			break;
	}
	check(i < SECONDS * 1000, "the client was never found inside CREATE_BUFS");
	if (decoder)
		set_priority(decoder, 20);

	honest(&decoder, rounds, "an honest client");
	end_decoder(&decoder, rounds);
	honest(&decoder, rounds, "an honest client of the next decoder");
	end_decoder(&decoder, rounds);

	kill(hostile, SIGKILL);
	finish(hostile, true, "the hostile client's end");
	set_priority(0, 0);
	check(!count_of("memory_bytes") && !count_of("streams"), "something is left");
}

static void case_frozen(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	check(!sched_setaffinity(0, sizeof(first), &first), "one processor");
	/* Otherwise the kernel runs real-time tasks for at most 95 % of the time. */
	write_to("/proc/sys/kernel/sched_rt_runtime_us", "-1");
	freeze(false);
	freeze(true);
}

int main(int count, char **words)
{
	const char *name = count > 2 ? words[2] : "";
	unsigned int uid = count > 3 ? atoi(words[3]) : 0;

	check(count > 2, "decoder-hostile NODE CASE [UID [N [M]]]");
	node = words[1];
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED, "mmap");
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_term }, NULL);
	if (!strcmp(name, "sizes"))
		case_sizes();
	else if (!strcmp(name, "memory"))
		case_memory(uid);
	else if (!strcmp(name, "cgroup") && count > 3)
		case_cgroup(words[3]);
	else if (!strcmp(name, "grab"))
		case_grab(uid, count > 4 ? atoi(words[4]) : 16);
	else if (!strcmp(name, "namespace"))
		case_namespace(uid);
	else if (!strcmp(name, "served") && count > 5)
		case_served(uid, atoi(words[4]), atoi(words[5]));
	else if (!strcmp(name, "loop"))
		case_loop(uid);
	else if (!strcmp(name, "racing"))
		case_racing();
	else if (!strcmp(name, "frozen"))
		case_frozen();
	else
		fail("no case %s", name);
	printf("decoder-hostile %s: ok\n", name);
	return 0;
}
