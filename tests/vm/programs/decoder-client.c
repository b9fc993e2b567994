// SPDX-License-Identifier: GPL-2.0-only
/*
 * A client of the decoder node. It sends packets of the fake codec, and knows the
 * expected content of each frame.
 *
 *   decoder-client NODE CASE [FRAMES]
 *
 * Each case checks order, timestamps and pixels of all frames, and that the
 * stream ends as the kernel's decoder document requires. Exit 0: no error.
 */
#include "fake.h"

#include <arpa/inet.h>
#include <signal.h>

#undef OUTPUT
#undef CAPTURE
#define OUTPUT V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE
#define CAPTURE V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
#define QUEUED 8

struct side {
	uint32_t type, memory;
	unsigned int count;
	uint8_t *at[32];
	size_t length[32];
	int dmabuf[32];
	bool queued[32];
	bool on;
};

struct client {
	int fd;
	struct side out, cap;
	struct v4l2_format format;	/* of CAPTURE */
	uint32_t pixelformat;		/* wanted, 0: the default */
	bool reorders;
	bool early;			/* drains before CAPTURE is ON */
	unsigned int pause_ms;		/* before it follows a change */
	uint32_t offset;		/* of each payload in its buffer */
	unsigned int sent, got, total;
	bool seen[100000];
	unsigned int changes, eos, errors;
	bool last, changed, fails;	/* fails: is to, at some point */
	struct fake (*frame)(unsigned int number);
};

static void xioctl(struct client *c, unsigned long request, void *argument, const char *what)
{
	check(!ioctl(c->fd, request, argument), "%s", what);
}

static struct fake plain(unsigned int number)
{
	return (struct fake){ FAKE_MAGIC, 320, 240, (number * 7 + 1) & 255 };
}

static struct fake resizing(unsigned int number)
{
	static const uint32_t sizes[][2] = { { 320, 240 }, { 640, 360 }, { 176, 144 }, { 99, 57 } };
	const uint32_t *size = sizes[number / 10 % 4];

	return (struct fake){ FAKE_MAGIC, size[0], size[1], (number * 7 + 1) & 255 };
}

static void subscribe(struct client *c)
{
	struct v4l2_event_subscription s = { .type = V4L2_EVENT_SOURCE_CHANGE };

	xioctl(c, VIDIOC_SUBSCRIBE_EVENT, &s, "SUBSCRIBE_EVENT");
	s.type = V4L2_EVENT_EOS;
	xioctl(c, VIDIOC_SUBSCRIBE_EVENT, &s, "SUBSCRIBE_EVENT");
}

static void allocate(struct client *c, struct side *q, unsigned int count)
{
	struct v4l2_requestbuffers r = { .count = count, .type = q->type, .memory = q->memory };

	xioctl(c, VIDIOC_REQBUFS, &r, "REQBUFS");
	check(r.count >= count, "REQBUFS gave %u", r.count);
	q->count = r.count;
	for (unsigned int i = 0; i < q->count; i++) {
		struct v4l2_plane plane = { };
		struct v4l2_buffer b = { .index = i, .type = q->type, .memory = q->memory,
					 .m.planes = &plane, .length = 1 };

		xioctl(c, VIDIOC_QUERYBUF, &b, "QUERYBUF");
		q->queued[i] = false;
		q->length[i] = plane.length;
		if (q->memory == V4L2_MEMORY_MMAP) {
			q->at[i] = mmap(NULL, plane.length, PROT_READ | PROT_WRITE, MAP_SHARED,
					c->fd, plane.m.mem_offset);
		} else {
			/* Larger than a frame, because other clients allocate larger buffers too. */
			struct dma_heap_allocation_data a = { .len = ((plane.length + 4095) & ~4095u) + 65536,
							      .fd_flags = O_RDWR | O_CLOEXEC };
			static int heap = -1;

			if (heap < 0)
				heap = open_or_fail("/dev/dma_heap/system", O_RDWR);
			check(!ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &a), "DMA_HEAP_IOCTL_ALLOC");
			q->dmabuf[i] = a.fd;
			q->length[i] = a.len;
			q->at[i] = mmap(NULL, a.len, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
		}
		check(q->at[i] != MAP_FAILED, "mmap");
	}
}

static void release(struct client *c, struct side *q)
{
	struct v4l2_requestbuffers r = { .type = q->type, .memory = q->memory };

	for (unsigned int i = 0; i < q->count; i++) {
		munmap(q->at[i], q->length[i]);
		if (q->memory == V4L2_MEMORY_DMABUF)
			close(q->dmabuf[i]);
	}
	q->count = 0;
	xioctl(c, VIDIOC_REQBUFS, &r, "REQBUFS 0");
}

static int give_buffer(struct client *c, struct side *q, unsigned int i, uint32_t bytes,
			unsigned int number)
{
	struct v4l2_plane plane = { .bytesused = bytes, .length = q->length[i] };
	struct v4l2_buffer b = { .index = i, .type = q->type, .memory = q->memory,
				 .m.planes = &plane, .length = 1 };

	if (bytes && c->offset) {
		plane.data_offset = c->offset;
		plane.bytesused += c->offset;
	}
	if (q->memory == V4L2_MEMORY_DMABUF)
		plane.m.fd = q->dmabuf[i];
	b.timestamp.tv_sec = number / 1000;
	b.timestamp.tv_usec = number % 1000 * 1000;
	if (bytes)
		b.flags = number % 3 ? V4L2_BUF_FLAG_PFRAME : V4L2_BUF_FLAG_KEYFRAME;
	if (ioctl(c->fd, VIDIOC_QBUF, &b))
		return errno == EIO && c->fails ? 0 : -errno;
	q->queued[i] = true;
	return 0;
}

static void queue_captures(struct client *c)
{
	for (unsigned int i = 0; i < c->cap.count; i++)
		if (!c->cap.queued[i])
			check(!give_buffer(c, &c->cap, i, 0, 0), "QBUF CAPTURE");
}

static void run(struct client *c, struct side *q, bool on)
{
	xioctl(c, on ? VIDIOC_STREAMON : VIDIOC_STREAMOFF, &q->type, on ? "STREAMON" : "STREAMOFF");
	q->on = on;
	if (!on)
		memset(q->queued, 0, sizeof(q->queued));
}

static void set_output(struct client *c, uint32_t codec, uint32_t width, uint32_t height)
{
	struct v4l2_format f = { .type = OUTPUT };

	f.fmt.pix_mp.pixelformat = codec;
	f.fmt.pix_mp.width = width;
	f.fmt.pix_mp.height = height;
	f.fmt.pix_mp.num_planes = 1;
	f.fmt.pix_mp.plane_fmt[0].sizeimage = 4096;
	xioctl(c, VIDIOC_S_FMT, &f, "S_FMT OUTPUT");
	check(f.fmt.pix_mp.pixelformat == codec, "S_FMT took another codec");
}

static void set_up_capture(struct client *c)
{
	struct v4l2_control minimum = { .id = V4L2_CID_MIN_BUFFERS_FOR_CAPTURE };
	struct v4l2_selection visible = { .type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
					  .target = V4L2_SEL_TGT_COMPOSE };

	if (c->cap.on)
		run(c, &c->cap, false);
	if (c->cap.count)
		release(c, &c->cap);
	c->format = (struct v4l2_format){ .type = CAPTURE };
	xioctl(c, VIDIOC_G_FMT, &c->format, "G_FMT CAPTURE");
	if (c->pixelformat) {
		c->format.fmt.pix_mp.pixelformat = c->pixelformat;
		xioctl(c, VIDIOC_S_FMT, &c->format, "S_FMT CAPTURE");
		check(c->format.fmt.pix_mp.pixelformat == c->pixelformat, "another pixel format");
	}
	xioctl(c, VIDIOC_G_SELECTION, &visible, "G_SELECTION");
	xioctl(c, VIDIOC_G_CTRL, &minimum, "MIN_BUFFERS_FOR_CAPTURE");
	check(visible.r.width <= c->format.fmt.pix_mp.width, "visible width");
	allocate(c, &c->cap, minimum.value + 2);
	queue_captures(c);
	run(c, &c->cap, true);
	c->last = false;
	c->changed = false;
}

static void events(struct client *c)
{
	struct v4l2_event event;

	while (!ioctl(c->fd, VIDIOC_DQEVENT, &event)) {
		if (event.type == V4L2_EVENT_EOS)
			c->eos++;
		if (event.type != V4L2_EVENT_SOURCE_CHANGE)
			continue;
		c->changes++;
		c->changed = true;
		usleep(c->pause_ms * 1000);
		if (!c->cap.on)
			set_up_capture(c);
	}
}

static bool send_packet(struct client *c)
{
	struct fake fake = c->frame(c->sent);

	for (unsigned int i = 0; i < c->out.count; i++) {
		if (c->out.queued[i])
			continue;
		memcpy(c->out.at[i] + c->offset, &fake, sizeof(fake));
		check(!give_buffer(c, &c->out, i, sizeof(fake), c->sent), "QBUF OUTPUT");
		c->sent++;
		return true;
	}
	return false;
}

/* Returns 0, or a negative errno. */
static int dequeue(struct client *c, struct side *q, struct v4l2_buffer *b,
		   struct v4l2_plane *plane)
{
	*plane = (struct v4l2_plane){ };
	*b = (struct v4l2_buffer){ .type = q->type, .memory = q->memory, .m.planes = plane,
				   .length = 1 };
	if (ioctl(c->fd, VIDIOC_DQBUF, b))
		return -errno;
	q->queued[b->index] = false;
	return 0;
}

static void check_frame(struct client *c, const struct v4l2_buffer *b, uint32_t bytes)
{
	unsigned int number = b->timestamp.tv_sec * 1000 + b->timestamp.tv_usec / 1000;
	struct fake fake = c->frame(number);
	const struct v4l2_pix_format_mplane *pix = &c->format.fmt.pix_mp;
	const uint8_t *at = c->cap.at[b->index];

	check(number < c->sent && !c->seen[number], "frame %u, of %u sent", number, c->sent);
	check(c->reorders || number >= c->got, "frame %u came behind %u", number, c->got);
	check(pix->width == fake.width, "frame %u is %u wide, not %u", number, pix->width, fake.width);
	check(bytes == pix->plane_fmt[0].bytesperline * pix->height / 2 * 3, "%u bytes", bytes);
	check(b->flags & (number % 3 ? V4L2_BUF_FLAG_PFRAME : V4L2_BUF_FLAG_KEYFRAME), "flags %x",
	      b->flags);
	for (uint32_t i = 0; i < bytes; i += 61)
		check(at[i] == fake.fill, "frame %u: byte %u is %u, not %u", number, i, at[i],
		      fake.fill);
	c->seen[number] = true;
	c->got = number + 1;
	c->total++;
}

/*
 * Makes one turn of the client's loop: waits, and handles events and finished buffers. Returns 0, or
 * a negative errno, which ends the loop.
 */
static int turn(struct client *c, int timeout_ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN | POLLOUT | POLLPRI };
	struct v4l2_plane plane;
	struct v4l2_buffer b;
	int ret;

	check(poll(&p, 1, timeout_ms) >= 0, "poll");
	check(p.revents, "nothing happens: %u sent, %u frames, last %d", c->sent, c->total, c->last);
	if (p.revents & POLLERR)
		return -EIO;
	if (p.revents & POLLPRI)
		events(c);
	if (p.revents & POLLOUT) {
		ret = dequeue(c, &c->out, &b, &plane);
		if (ret && ret != -EAGAIN)
			return ret;
		c->errors += !ret && b.flags & V4L2_BUF_FLAG_ERROR;
	}
	if (!(p.revents & POLLIN) || !c->cap.on)
		return 0;
	ret = dequeue(c, &c->cap, &b, &plane);
	if (ret == -EAGAIN)
		return 0;
	if (ret)
		return ret;
	if (plane.bytesused)
		check_frame(c, &b, plane.bytesused);
	if (b.flags & V4L2_BUF_FLAG_LAST) {
		c->last = true;
		check(dequeue(c, &c->cap, &b, &plane) == -EPIPE, "DQBUF behind LAST");
		events(c);
		return 0;
	}
	check(!give_buffer(c, &c->cap, b.index, 0, 0), "QBUF CAPTURE");
	return 0;
}

static void command(struct client *c, uint32_t command)
{
	struct v4l2_decoder_cmd cmd = { .cmd = command };

	xioctl(c, VIDIOC_DECODER_CMD, &cmd, command == V4L2_DEC_CMD_STOP ? "STOP" : "START");
}

static struct client *begin(const char *node, uint32_t memory)
{
	struct client *c = calloc(1, sizeof(*c));

	c->fd = open_or_fail(node, O_RDWR | O_NONBLOCK);
	c->frame = plain;
	c->out = (struct side){ .type = OUTPUT, .memory = memory };
	c->cap = (struct side){ .type = CAPTURE, .memory = memory };
	subscribe(c);
	set_output(c, V4L2_PIX_FMT_VP8, 0, 0);
	allocate(c, &c->out, QUEUED);
	run(c, &c->out, true);
	return c;
}

/* Sends the packets before number END, drains, and checks that all their frames have arrived. */
static void run_to(struct client *c, unsigned int end, int timeout_ms)
{
	unsigned int eos = c->eos;
	bool stopped = false;

	for (c->last = false; !c->last;) {
		while (c->sent < end && send_packet(c))
			;
		if (c->sent == end && !stopped && (c->cap.on || c->early)) {
			command(c, V4L2_DEC_CMD_STOP);
			stopped = true;
		}
		check(!turn(c, timeout_ms), "the stream broke at %u of %u", c->total, end);
		if (c->last && c->changed)
			set_up_capture(c);
	}
	check(stopped, "LAST at %u of %u", c->total, end);
	check(c->eos == eos + 1, "%u EOS events", c->eos - eos);
}

static void finish(struct client *c, unsigned int frames)
{
	check(c->total == frames, "%u frames of %u", c->total, frames);
	check(!c->errors, "%u packets failed", c->errors);
	close(c->fd);
	free(c);
}

static void case_plain(const char *node, unsigned int frames, uint32_t memory, uint32_t pixelformat,
		       bool reorders)
{
	struct client *c = begin(node, memory);

	c->pixelformat = pixelformat;
	c->reorders = reorders;
	run_to(c, frames, 20000);
	finish(c, frames);
}

/* Sends payloads that begin at an offset inside their buffers. */
static void case_offset(const char *node, unsigned int frames)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);

	c->offset = 1000;
	run_to(c, frames, 20000);
	finish(c, frames);
}

/*
 * Pauses before CAPTURE is set up, and again with every buffer filled. The decoder
 * cannot continue meanwhile, so the module must not fail it as silent.
 */
static void case_pause(const char *node, unsigned int ms)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);

	c->pause_ms = ms;
	while (c->total < 20) {
		while (send_packet(c))
			;
		check(!turn(c, 20000), "before the pause");
	}
	while (send_packet(c))
		;
	usleep(ms * 1000);
	run_to(c, 100, 20000);
	finish(c, 100);
}

static void case_resize(const char *node, unsigned int frames)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);

	c->frame = resizing;
	run_to(c, frames, 20000);
	check(c->changes == (frames + 9) / 10, "%u changes", c->changes);
	finish(c, frames);
}

/* Sends all packets and STOP before the client reacts to SOURCE_CHANGE. */
static void case_early(const char *node, unsigned int rounds)
{
	for (unsigned int round = 0; round < rounds; round++) {
		struct client *c = begin(node, V4L2_MEMORY_MMAP);

		c->reorders = true;
		c->early = true;
		run_to(c, 1 + round % QUEUED, 20000);
		finish(c, 1 + round % QUEUED);
	}
}

/* Drains, continues in each of the three possible ways, and drains again. */
static void case_drain(const char *node, unsigned int frames)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);

	c->reorders = true;
	for (unsigned int round = 0; round < 9; round++) {
		struct v4l2_decoder_cmd stop = { .cmd = V4L2_DEC_CMD_STOP };

		run_to(c, c->sent + frames, 20000);
		check(c->total == (round + 1) * frames, "%u frames in round %u", c->total, round);
		check(!ioctl(c->fd, VIDIOC_DECODER_CMD, &stop), "STOP when stopped");
		switch (round % 3) {
		case 0:
			command(c, V4L2_DEC_CMD_START);
			break;
		case 1:
			run(c, &c->cap, false);
			run(c, &c->cap, true);
			break;
		case 2:
			run(c, &c->out, false);
			run(c, &c->out, true);
			break;
		}
		queue_captures(c);
	}
	finish(c, 9 * frames);
}

/* Seeks: stops in the middle of the stream, and continues at another packet. */
static void case_seek(const char *node, unsigned int rounds, bool resize, bool both)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);

	if (resize)
		c->frame = resizing;
	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int wanted = c->total + 1 + round % 7;

		while (c->total < wanted) {
			while (send_packet(c))
				;
			check(!turn(c, 20000), "seek");
			check(!c->last || c->changed, "LAST without a change");
			if (c->last)
				set_up_capture(c);
		}
		if (both)
			run(c, &c->cap, false);
		run(c, &c->out, false);
		run(c, &c->out, true);
		if (both)
			set_up_capture(c);
		/* Frames that were decoded before the seek may still be dequeued. */
		c->sent += 10 - c->sent % 10 + (resize ? 10 : 0);
	}
	close(c->fd);
	free(c);
}

/* Stops CAPTURE in the middle and sets it up again, without a change of OUTPUT. */
static void case_capture(const char *node, unsigned int rounds)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);
	unsigned int before = 0;

	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int wanted = c->total + 1 + round % 5;

		while (c->total < wanted) {
			while (send_packet(c))
				;
			check(!turn(c, 20000), "capture");
		}
		check(c->changes == 1, "%u changes", c->changes);
		if (round % 2) {
			set_up_capture(c);
		} else {
			run(c, &c->cap, false);
			queue_captures(c);
			run(c, &c->cap, true);
		}
		before = c->total;
	}
	check(before, "no frame");
	close(c->fd);
	free(c);
}

/* Queries the format as ffmpeg does: after a packet was sent, without a wait for the event. */
static void case_ask(const char *node)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);
	struct v4l2_format f = { .type = CAPTURE };
	struct v4l2_selection s = { .type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
				    .target = V4L2_SEL_TGT_COMPOSE };

	c->frame = resizing;
	c->sent = 30;
	send_packet(c);
	xioctl(c, VIDIOC_G_FMT, &f, "G_FMT");
	check(f.fmt.pix_mp.width == 99 && f.fmt.pix_mp.height == 58, "%ux%u",
	      f.fmt.pix_mp.width, f.fmt.pix_mp.height);
	xioctl(c, VIDIOC_G_SELECTION, &s, "G_SELECTION");
	check(s.r.width == 99 && s.r.height == 57, "%ux%u visible", s.r.width, s.r.height);

	/* The decoder writes the whole coded frame. */
	s.target = V4L2_SEL_TGT_COMPOSE_PADDED;
	xioctl(c, VIDIOC_G_SELECTION, &s, "G_SELECTION");
	check(s.r.width == 99 && s.r.height == 58, "%ux%u padded", s.r.width, s.r.height);

	/* S_SELECTION applies the stream's rectangle, or fails. */
	s.target = V4L2_SEL_TGT_COMPOSE;
	s.r = (struct v4l2_rect){ 1, 2, 30, 40 };
	xioctl(c, VIDIOC_S_SELECTION, &s, "S_SELECTION");
	check(!s.r.left && !s.r.top && s.r.width == 99 && s.r.height == 57, "%ux%u applied", s.r.width,
	      s.r.height);
	for (unsigned int i = 0; i < 4; i++) {
		bool larger = i & 1;

		s.flags = i < 2 ? V4L2_SEL_FLAG_LE : V4L2_SEL_FLAG_GE;
		s.r = (struct v4l2_rect){ 0, 0, larger ? 100 : 30, larger ? 58 : 40 };
		if (larger == (i < 2))
			xioctl(c, VIDIOC_S_SELECTION, &s, "S_SELECTION that the stream's meets");
		else
			check(ioctl(c->fd, VIDIOC_S_SELECTION, &s) && errno == ERANGE,
			      "S_SELECTION that it does not meet");
	}
	close(c->fd);
	free(c);
}

/* Without a decoder, or if the decoder fails, the client gets an error. Then it tries again. */
static void case_error(const char *node)
{
	struct client *c = begin(node, V4L2_MEMORY_MMAP);
	int ret;

	c->fails = true;
	do {
		while (c->sent < 90000 && send_packet(c))
			;
		ret = turn(c, 20000);
	} while (!ret);
	check(ret == -EIO, "%d", ret);
	c->fails = false;
	check(ioctl(c->fd, VIDIOC_STREAMON, &c->out.type) && errno == EIO, "STREAMON after it failed");
	check(give_buffer(c, &c->out, 0, 16, 0) == -EIO, "QBUF after it failed");
	run(c, &c->out, false);
	run(c, &c->cap, false);
	run(c, &c->out, true);
	close(c->fd);
	free(c);
}

/* Closes the node at different points of a stream. */
static void case_close(const char *node, unsigned int rounds)
{
	for (unsigned int round = 0; round < rounds; round++) {
		struct client *c = begin(node, V4L2_MEMORY_MMAP);

		while (c->total < round % 13) {
			while (send_packet(c))
				;
			turn(c, 20000);
		}
		if (round % 3 == 1 && c->cap.on)
			command(c, V4L2_DEC_CMD_STOP);
		close(c->fd);
		for (unsigned int i = 0; i < c->out.count; i++)
			munmap(c->out.at[i], c->out.length[i]);
		for (unsigned int i = 0; i < c->cap.count; i++)
			munmap(c->cap.at[i], c->cap.length[i]);
		free(c);
	}
}

/* Writes packets for v4l2-compliance and v4l2-ctl, in the format of --stream-to-hdr. */
static void case_file(const char *path, unsigned int frames)
{
	FILE *f = fopen(path, "w");
	uint32_t header[2] = { htonl(v4l2_fourcc('V', 'h', 'd', 'r')), htonl(sizeof(struct fake)) };

	check(f, "%s", path);
	for (unsigned int i = 0; i < frames; i++) {
		struct fake fake = plain(i);

		fwrite(header, sizeof(header), 1, f);
		fwrite(&fake, sizeof(fake), 1, f);
	}
	fclose(f);
}

int main(int count, char **words)
{
	unsigned int number = count > 3 ? atoi(words[3]) : 100;
	const char *node, *name;

	check(count > 2, "decoder-client NODE CASE [FRAMES]");
	node = words[1];
	name = words[2];
	alarm(280);
	if (!strcmp(name, "plain"))
		case_plain(node, number, V4L2_MEMORY_MMAP, 0, false);
	else if (!strcmp(name, "reorder"))
		case_plain(node, number, V4L2_MEMORY_MMAP, 0, true);
	else if (!strcmp(name, "nv12"))
		case_plain(node, number, V4L2_MEMORY_MMAP, V4L2_PIX_FMT_NV12, false);
	else if (!strcmp(name, "p010"))
		case_plain(node, number, V4L2_MEMORY_MMAP, V4L2_PIX_FMT_P010, false);
	else if (!strcmp(name, "dmabuf"))
		case_plain(node, number, V4L2_MEMORY_DMABUF, 0, false);
	else if (!strcmp(name, "offset"))
		case_offset(node, number);
	else if (!strcmp(name, "pause"))
		case_pause(node, number);
	else if (!strcmp(name, "resize"))
		case_resize(node, number);
	else if (!strcmp(name, "drain"))
		case_drain(node, number);
	else if (!strcmp(name, "early"))
		case_early(node, number);
	else if (!strcmp(name, "seek"))
		case_seek(node, number, false, false);
	else if (!strcmp(name, "seek-resize"))
		case_seek(node, number, true, false);
	else if (!strcmp(name, "seek-both"))
		case_seek(node, number, true, true);
	else if (!strcmp(name, "capture"))
		case_capture(node, number);
	else if (!strcmp(name, "ask"))
		case_ask(node);
	else if (!strcmp(name, "error"))
		case_error(node);
	else if (!strcmp(name, "close"))
		case_close(node, number);
	else if (!strcmp(name, "file"))
		case_file(node, number);
	else
		fail("no case %s", name);
	printf("decoder-client %s: ok\n", name);
	return 0;
}
