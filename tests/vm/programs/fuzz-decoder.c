// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random calls on the decoder node, on /dev/framepath and on the descriptors of
 * its streams. The processes are clients and decoders at the same time. Calls are
 * valid, nearly valid or random.
 *
 *   fuzz-decoder SECONDS SEED NODE
 *
 * The values for nearly valid calls (packets, buffers to write, epochs) are kept
 * per stream, for all threads, without a lock: an outdated value is one more
 * wrong value. Ends with an error if one of the important calls has never
 * succeeded.
 */
#include "fuzz.h"

#undef OUTPUT
#undef CAPTURE
#define OUTPUT V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE
#define CAPTURE V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE

#define NODES 4
#define STREAMS 6
#define DMABUFS 8
#define KNOWN 16

enum { STREAMON, DEQUEUED, IMPORTED, STOPPED, ACCEPTED, PACKET, PAYLOAD, EXPORTED, CAPTURED, FORMAT, FRAME, PACKET_DONE,
       DRAINED, CHANGED, ORPHANED, REACHED };
static const char *const names[REACHED] = { "STREAMON", "DQBUF", "QBUF of a dmabuf", "CMD_STOP", "ACCEPT", "NEXT_PACKET",
					    "pread", "EXPORT", "NEXT_CAPTURE", "FORMAT", "FRAME", "PACKET_DONE",
					    "DRAINED", "DRAINED for a change", "streams closed" };

struct stream {
	int fd, stash;
	uint32_t epoch;
	struct fp_packet packets[KNOWN];
	struct fp_capture captures[KNOWN];
	uint32_t packet, capture;	/* counts */
};

static const char *path;
static int nodes[NODES], dmabufs[DMABUFS];
/* All processes share shared_control and shared_node. */
static int control = -1, shared_control, shared_node;
static struct stream streams[STREAMS];

static void renew(int *slot, int fd)
{
	int old = __atomic_exchange_n(slot, fd, __ATOMIC_RELAXED);

	if (old > 2)
		close(old);
}

/* Returns RIGHT, and in one of 40 calls another value. */
static uint32_t or_any(uint32_t right)
{
	return rarely(40) ? below(2) ? random_bits() : below(4) : right;
}

/* ---- clients ------------------------------------------------------------- */

static uint32_t any_type(void)
{
	return rarely(30) ? below(12) : below(2) ? OUTPUT : CAPTURE;
}

static uint32_t any_memory(void)
{
	return rarely(30) ? below(6) : rarely(4) ? V4L2_MEMORY_DMABUF : V4L2_MEMORY_MMAP;
}

static void set_coded(int fd)
{
	static const uint32_t codecs[] = { V4L2_PIX_FMT_H264, V4L2_PIX_FMT_HEVC, V4L2_PIX_FMT_VP8, V4L2_PIX_FMT_VP9 };
	struct v4l2_format f = { .type = OUTPUT };

	f.fmt.pix_mp.pixelformat = or_any(codecs[below(4)]);
	f.fmt.pix_mp.width = 16 + below(100);
	f.fmt.pix_mp.height = 16 + below(100);
	f.fmt.pix_mp.num_planes = or_any(1);
	f.fmt.pix_mp.plane_fmt[0].sizeimage = 4096 + below(30000);
	done(ioctl(fd, VIDIOC_S_FMT, &f));
}

static void request_buffers(int fd, uint32_t type, uint32_t memory, uint32_t count)
{
	struct v4l2_requestbuffers r = { .count = count, .type = type, .memory = memory };

	done(ioctl(fd, VIDIOC_REQBUFS, &r));
}

static void queue_calls(int fd, unsigned long call, uint32_t type, uint32_t memory, uint32_t index)
{
	struct v4l2_plane planes[8] = { { .length = or_any(32768), .bytesused = or_any(1 + below(4096)) } };
	struct v4l2_buffer b = { .type = type, .memory = memory, .index = or_any(index), .length = or_any(1) & 7 };

	b.m.planes = planes;
	b.flags = rarely(8) ? random_bits() : 0;
	b.field = or_any(V4L2_FIELD_NONE);
	b.timestamp.tv_usec = below(1000000);
	planes[0].data_offset = rarely(8) ? below(5000) : 0;
	if (memory == V4L2_MEMORY_DMABUF) {
		planes[0].m.fd = or_any(dmabufs[below(DMABUFS)]);
		planes[0].length = rarely(4) ? random_bits() : 0;
	}
	if (call == VIDIOC_QBUF && memory == V4L2_MEMORY_DMABUF)
		reached(IMPORTED, ioctl(fd, call, &b));
	else if (call == VIDIOC_DQBUF)
		reached(DEQUEUED, ioctl(fd, call, &b));
	else
		done(ioctl(fd, call, &b));
}

static void run(int fd, bool on, int type)
{
	if (on)
		reached(STREAMON, ioctl(fd, VIDIOC_STREAMON, &type));
	else
		done(ioctl(fd, VIDIOC_STREAMOFF, &type));
}

/* Makes all calls of a client up to the first frame. */
static void whole_client(int fd)
{
	uint32_t memory = any_memory();

	set_coded(fd);
	for (uint32_t type = CAPTURE; type <= OUTPUT; type++) {
		request_buffers(fd, type, memory, 4);
		for (uint32_t i = 0; i < 4; i++)
			queue_calls(fd, VIDIOC_QBUF, type, memory, i);
		run(fd, true, type);
	}
}

/* Makes the calls of a client after SOURCE_CHANGE. */
static void follow(int fd)
{
	struct v4l2_format f = { .type = CAPTURE };
	uint32_t memory = any_memory();

	run(fd, false, CAPTURE);
	request_buffers(fd, CAPTURE, memory, 0);
	done(ioctl(fd, VIDIOC_G_FMT, &f));
	request_buffers(fd, CAPTURE, memory, 4);
	for (uint32_t i = 0; i < 4; i++)
		queue_calls(fd, VIDIOC_QBUF, CAPTURE, memory, i);
	run(fd, true, CAPTURE);
}

static void export(int fd)
{
	struct v4l2_exportbuffer e = { .type = any_type(), .index = below(5), .flags = or_any(O_RDWR) };

	if (done(ioctl(fd, VIDIOC_EXPBUF, &e)))
		renew(&dmabufs[below(DMABUFS)], e.fd);
}

static void touch(int fd, size_t length, off_t at)
{
	uint8_t *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);

	if (!done(memory == MAP_FAILED ? -1 : 0))
		return;
	memory[below(4096)] = below(256);
	munmap(memory, length);
}

static void look(int fd)
{
	struct pollfd p = { .fd = fd, .events = random_bits() };

	done(poll(&p, 1, below(3)));
}

static void formats(int fd)
{
	static const unsigned long calls[] = { VIDIOC_G_FMT, VIDIOC_S_FMT, VIDIOC_TRY_FMT };
	struct v4l2_format f = { .type = CAPTURE };
	struct v4l2_selection s = { .type = or_any(V4L2_BUF_TYPE_VIDEO_CAPTURE), .target = or_any(below(0x104)) };

	f.fmt.pix_mp.pixelformat = below(2) ? V4L2_PIX_FMT_NV12 : below(2) ? V4L2_PIX_FMT_YUV420 : V4L2_PIX_FMT_P010;
	f.fmt.pix_mp.num_planes = or_any(1);
	done(ioctl(fd, calls[below(3)], &f));
	done(ioctl(fd, below(2) ? VIDIOC_G_SELECTION : VIDIOC_S_SELECTION, &s));
}

static void events_and_controls(int fd)
{
	struct v4l2_event_subscription s = { .type = or_any(below(6)), .flags = below(4) };
	struct v4l2_control c = { .id = or_any(V4L2_CID_MIN_BUFFERS_FOR_CAPTURE), .value = random_bits() };
	struct v4l2_event event;

	if (s.type == V4L2_EVENT_CTRL)
		s.id = or_any(V4L2_CID_MIN_BUFFERS_FOR_CAPTURE);
	done(ioctl(fd, below(4) ? VIDIOC_SUBSCRIBE_EVENT : VIDIOC_UNSUBSCRIBE_EVENT, &s));
	done(ioctl(fd, VIDIOC_DQEVENT, &event));
	done(ioctl(fd, below(4) ? VIDIOC_G_CTRL : VIDIOC_S_CTRL, &c));
}

static void create(int fd)
{
	struct v4l2_create_buffers c = { .count = below(3), .memory = any_memory(), .format.type = any_type() };

	if (done(ioctl(fd, VIDIOC_G_FMT, &c.format)) && rarely(3))
		c.format.fmt.pix_mp.plane_fmt[0].sizeimage = below(65536);
	done(ioctl(fd, VIDIOC_CREATE_BUFS, &c));
}

static void client(int fd)
{
	uint32_t type = any_type();

	switch (below(26)) {
	case 0:
		whole_client(fd);
		break;
	case 1:
		if (rarely(3))
			request_buffers(fd, type, any_memory(), below(6));
		break;
	case 2:
		create(fd);
		break;
	case 3:
		export(fd);
		break;
	case 4:
		touch(fd, 4096u << below(5), (type == CAPTURE ? 0x40000000 : 0) + 4096ul * below(40));
		break;
	case 5:
		formats(fd);
		break;
	case 6:
		events_and_controls(fd);
		break;
	case 7:
		run(fd, true, type);
		break;
	case 8:
		run(fd, !rarely(4), type);
		break;
	case 9: {
		struct v4l2_decoder_cmd c = { .cmd = or_any(below(2)), .flags = or_any(0) };

		if (c.cmd == V4L2_DEC_CMD_STOP)
			reached(STOPPED, ioctl(fd, VIDIOC_DECODER_CMD, &c));
		else
			done(ioctl(fd, VIDIOC_DECODER_CMD, &c));
		break;
	}
	case 10:
		queue_calls(fd, below(2) ? VIDIOC_PREPARE_BUF : VIDIOC_QUERYBUF, type, any_memory(), below(5));
		break;
	case 11:
		look(fd);
		break;
	case 12:
		set_coded(fd);
		break;
	case 13: {
		int copy = dup(fd);

		look(copy);
		close(copy);
		break;
	}
	case 14:
		follow(fd);
		break;
	case 15:
	case 16:
	case 17:
	case 18:
		queue_calls(fd, VIDIOC_DQBUF, type, any_memory(), 0);
		break;
	default:
		queue_calls(fd, VIDIOC_QBUF, type, any_memory(), below(5));
	}
}

/* ---- decoders ------------------------------------------------------------ */

static void attach(void)
{
	struct fp_attach attach = { .version = or_any(FRAMEPATH_VERSION), .reserved = or_any(0) };

	if (control < 0 || rarely(400))
		renew(&control, open("/dev/framepath", O_RDWR | (below(4) ? O_NONBLOCK : 0)));
	done(ioctl(rarely(8) ? shared_control : control, FRAMEPATH_IOC_ATTACH, &attach));
}

static void accept_stream(struct stream *s)
{
	struct fp_accept accept;

	if (!reached(ACCEPTED, ioctl(rarely(8) ? shared_control : control, FRAMEPATH_IOC_ACCEPT, &accept)))
		return;
	if (below(4))
		fcntl(accept.stream, F_SETFL, O_NONBLOCK);
	s->epoch = accept.epoch;
	renew(&s->stash, accept.stash);
	renew(&s->fd, accept.stream);
}

static void next_packet(struct stream *s)
{
	struct fp_packet *packet = &s->packets[s->packet % KNOWN];

	if (!reached(PACKET, ioctl(s->fd, FRAMEPATH_IOC_NEXT_PACKET, packet)))
		return;
	s->epoch = packet->epoch;
	if (packet->kind == FRAMEPATH_PACKET)
		s->packet++;
}

static void next_capture(struct stream *s)
{
	struct fp_capture *capture = &s->captures[s->capture % KNOWN];

	if (!reached(CAPTURED, ioctl(s->fd, FRAMEPATH_IOC_NEXT_CAPTURE, capture)))
		return;
	if (capture->kind == FRAMEPATH_CAPTURE_QUEUED)
		s->capture++;
}

static void say_format(struct stream *s)
{
	struct fp_format f = { .epoch = or_any(s->epoch), .depth = or_any(rarely(8) ? 10 : 8) };

	f.width = or_any(below(8) ? 64 : 2 + below(60) * 2);
	f.height = or_any(64);
	f.bytesperline = or_any(256);
	f.visible_width = or_any(f.width);
	f.visible_height = or_any(f.height);
	/* The other fields may be wrong, but the format must not need much memory. */
	f.sizeimage_native = 24576 + !below(8) * 4096;
	f.sizeimage_packed = 24576 + !below(8) * 4096;
	f.min_buffers = or_any(1 + !below(8));
	if (f.bytesperline <= 512 && f.height <= 512)
		reached(FORMAT, ioctl(s->fd, FRAMEPATH_IOC_FORMAT, &f));
}

static const struct fp_packet *a_packet(const struct stream *s)
{
	return &s->packets[(s->packet - 1 - (below(2) ? 0 : below(4))) % KNOWN];
}

static void say_frame(struct stream *s)
{
	const struct fp_capture *capture = &s->captures[(s->capture - 1 - (below(2) ? 0 : below(4))) % KNOWN];
	const struct fp_packet *packet = a_packet(s);
	struct fp_frame f = { .seq = or_any(packet->seq), .epoch = or_any(s->epoch), .index = or_any(capture->index) };

	f.generation = or_any(capture->generation);
	f.failed = or_any(0);
	f.copied = random_bits();
	f.reserved = or_any(0);
	f.mark = packet->mark;
	if (rarely(8))
		f.mark.flags = random_bits();
	reached(FRAME, ioctl(s->fd, FRAMEPATH_IOC_FRAME, &f));
}

static void say_done(struct stream *s)
{
	const struct fp_packet *packet = a_packet(s);
	struct fp_packet_done d = { .seq = or_any(packet->seq), .index = or_any(packet->index), .failed = or_any(0) };

	reached(PACKET_DONE, ioctl(s->fd, FRAMEPATH_IOC_PACKET_DONE, &d));
}

static void say_drained(struct stream *s)
{
	struct fp_drained d = { .epoch = or_any(s->epoch),
				.why = or_any(rarely(4) ? FRAMEPATH_DRAINED_CHANGE : FRAMEPATH_DRAINED_END) };

	reached(d.why == FRAMEPATH_DRAINED_CHANGE ? CHANGED : DRAINED, ioctl(s->fd, FRAMEPATH_IOC_DRAINED, &d));
}

static void export_to_decoder(struct stream *s)
{
	struct fp_export e = { .queue = or_any(below(2)), .index = or_any(below(5)) };

	if (!reached(EXPORTED, ioctl(s->fd, FRAMEPATH_IOC_EXPORT, &e)))
		return;
	if (below(2))
		touch(e.fd, 4096, 0);
	/* Clients import the dmabuf, also into the node that exported it. */
	renew(&dmabufs[below(DMABUFS)], e.fd);
}

static void payload(struct stream *s)
{
	static __thread char bytes[100000];
	uint64_t index = or_any(a_packet(s)->index);
	off_t at = (off_t)(index << 32) + (below(2) ? 0 : or_any(below(40000)));

	if (rarely(16))
		done(read(s->fd, bytes, below(sizeof(bytes))));
	else
		reached(PAYLOAD, pread(s->fd, bytes, below(sizeof(bytes)), at));
	if (rarely(16))
		done(pread(s->fd, (void *)(uintptr_t)random_bits(), below(65536), at));
}

static void use_stash(struct stream *s)
{
	off_t at = (off_t)below(FRAMEPATH_STASH_BYTES / 4096) * 4096;
	char bytes[512] = { };

	done(pwrite(s->stash, bytes, sizeof(bytes), at));
	done(pread(s->stash, bytes, sizeof(bytes), at));
	if (rarely(8))
		done(ftruncate(s->stash, below(2) ? FRAMEPATH_STASH_BYTES : random_bits()));
	if (rarely(8))
		done(mmap(NULL, 4096, PROT_READ, MAP_SHARED, s->fd, 0) == MAP_FAILED ? -1 : 0);
}

/* Makes all calls of a decoder up to its first frame. */
static void whole_decoder(struct stream *s)
{
	next_packet(s);
	say_format(s);
	for (int i = 0; i < 6; i++)
		next_capture(s);
	payload(s);
	say_frame(s);
	say_done(s);
}

static void decoder(struct stream *s)
{
	struct fp_delivered delivered = { .first = or_any(a_packet(s)->seq) };
	struct fp_fail fail = { .error = or_any(EIO) };

	if (s->fd < 0 && !rarely(16)) {
		attach();
		accept_stream(s);
		return;
	}
	switch (below(24)) {
	case 0:
		attach();
		break;
	case 1:
	case 2:
		accept_stream(s);
		break;
	case 3:
		next_packet(s);
		break;
	case 4:
		next_capture(s);
		break;
	case 5:
		say_format(s);
		break;
	case 6:
		say_frame(s);
		break;
	case 7:
		say_done(s);
		break;
	case 8:
	case 9:
		say_drained(s);
		break;
	case 10:
		export_to_decoder(s);
		break;
	case 11:
		payload(s);
		break;
	case 12:
		use_stash(s);
		break;
	case 13:
		look(s->fd);
		look(control);
		break;
	case 14:
		done(ioctl(s->fd, FRAMEPATH_IOC_DELIVERED, &delivered));
		break;
	case 15:
		if (rarely(20))
			done(ioctl(s->fd, FRAMEPATH_IOC_FAIL, &fail));
		break;
	case 16:
		if (rarely(40))
			done(ioctl(s->fd, FRAMEPATH_IOC_STOP));
		break;
	case 17:
		if (rarely(20)) {
			reached(ORPHANED, s->fd > 2 ? 0 : -1);
			renew(&s->fd, -1);
		}
		break;
	case 18:
		if (rarely(200))
			renew(&control, -1);
		break;
	default:
		whole_decoder(s);
	}
}

/* ---- both ---------------------------------------------------------------- */

/* Decodes a stream from its first packet to its end, while other threads make random calls. */
static void whole_stream(int node, struct stream *s)
{
	struct v4l2_decoder_cmd stop = { .cmd = V4L2_DEC_CMD_STOP };

	attach();
	whole_client(node);
	accept_stream(s);
	whole_decoder(s);
	follow(node);
	for (uint32_t left = below(8); left; left--) {
		whole_decoder(s);
		for (uint32_t type = CAPTURE; type <= OUTPUT; type++) {
			queue_calls(node, VIDIOC_DQBUF, type, V4L2_MEMORY_MMAP, 0);
			queue_calls(node, VIDIOC_QBUF, type, V4L2_MEMORY_MMAP, left % 4);
		}
	}
	reached(STOPPED, ioctl(node, VIDIOC_DECODER_CMD, &stop));
	for (int i = 0; i < 5; i++) {
		next_packet(s);
		say_done(s);
	}
	say_drained(s);
}

static void call(void)
{
	int *node = &nodes[below(NODES)];
	struct stream *s = &streams[below(STREAMS)];

	if (*node < 0 || rarely(400)) {
		renew(node, open(path, (below(8) ? O_RDWR : O_RDONLY) | (below(8) ? O_NONBLOCK : 0)));
		done(*node);
		set_coded(*node);
	}
	if (rarely(100))
		whole_stream(*node, s);
	switch (below(8)) {
	case 0:
		anything(rarely(20) ? shared_node : *node);
		break;
	case 1:
		anything(rarely(20) ? control : s->fd);
		break;
	case 2:
	case 3:
	case 4:
		client(rarely(20) ? shared_node : *node);
		break;
	default:
		/* Only one process at a time can be the decoder. */
		if (s->fd < 0 && below(4))
			client(*node);
		else
			decoder(s);
	}
	/* Rarely closes the descriptors that other calls have left open, or kills this process. */
	if (rarely(5000))
		for (int fd = 40; fd < 400; fd++)
			close(fd);
	if (rarely(30000))
		kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	check(argc == 4, "usage: fuzz-decoder SECONDS SEED NODE");
	path = argv[3];
	shared_node = open_or_fail(path, O_RDWR | O_NONBLOCK);
	shared_control = open_or_fail("/dev/framepath", O_RDWR | O_NONBLOCK);
	memset(nodes, -1, sizeof(nodes));
	memset(dmabufs, -1, sizeof(dmabufs));
	for (int i = 0; i < STREAMS; i++)
		streams[i].fd = streams[i].stash = -1;
	fuzz(argv[1], argv[2], call);
	for (int i = 0; i < REACHED; i++) {
		printf("  %-22s %lu\n", names[i], totals->reached[i]);
		check(totals->reached[i], "%s never succeeded", names[i]);
	}
	return 0;
}
