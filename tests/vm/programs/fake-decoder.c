// SPDX-License-Identifier: GPL-2.0-only
/*
 * A decoder of a made-up codec, attached to /dev/framepath. Each packet is one frame.
 * A packet that begins with a struct fake contains the frame's size and fill value.
 * Any other packet is a frame of the size that the client has set, filled with the
 * packet's first byte. A packet is done when its frame was delivered, so that after
 * this process was killed another fake decoder can continue.
 *
 *   fake-decoder [hold=N] [die=N] [fail=N] [quiet=N] [lie] [mute] [depth=10] [slow=US] [scratch=N]
 *
 * hold: delivers N frames late, the newest first, as with reordering; die: kills
 * itself after N frames; fail: fails streams after N frames; lie: makes invalid calls
 * around each frame, and ends with an error if the kernel accepts one; slow: takes US
 * microseconds for each frame; scratch: needs N bytes behind the pixels; mute: accepts
 * streams and makes no further call; quiet: makes no call after N frames. SIGTERM ends
 * this program. Its last line has the numbers of delivered frames and of invalid calls.
 */
#include "fake.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#define STREAMS 80
#define PENDING 64

struct mapping {
	uint32_t generation;
	uint8_t *memory;
	size_t length;
};

struct pending {
	struct fp_packet packet;
	struct fake fake;
	bool given;			/* by a decoder before this one */
};

struct stream {
	int fd, stash;
	struct fp_accept accept;
	struct mapping capture[32];
	bool on;
	uint32_t pixelformat;
	uint32_t ready[32];		/* CAPTURE buffers that may be written */
	unsigned int readies;
	struct pending pending[PENDING];
	unsigned int pendings;
	bool draining, formatted;
	uint32_t epoch;
	struct fake format;
};

static struct stream *streams[STREAMS];
static unsigned int hold, die, fail_after, quiet, slow, scratch, depth = 8;
static bool lie, mute;
static unsigned long frames, lies;
static volatile sig_atomic_t ended;

static int say(struct stream *s, unsigned long request, void *argument)
{
	return ioctl(s->fd, request, argument) ? -errno : 0;
}

/* Checks that the decoder can map a buffer only up to the format's size, in whole pages. */
static void check_lease(const struct fp_export *export, uint32_t length)
{
	off_t size = (length + 4095) & ~4095u;
	void *more;

	check(lseek(export->fd, 0, SEEK_END) == size, "a CAPTURE buffer of %u bytes is lent with %ld", length,
	      (long)lseek(export->fd, 0, SEEK_END));
	more = mmap(NULL, size + 4096, PROT_READ, MAP_SHARED, export->fd, 0);
	check(more == MAP_FAILED, "mmap behind a CAPTURE buffer");
}

static uint8_t *map(struct stream *s, uint32_t index, uint32_t generation, uint32_t length)
{
	struct mapping *m = &s->capture[index];
	struct fp_export export = { .queue = FRAMEPATH_QUEUE_CAPTURE, .index = index };

	if (m->memory && m->generation == generation && m->length >= length)
		return m->memory;
	if (m->memory)
		munmap(m->memory, m->length);
	m->memory = NULL;
	if (say(s, FRAMEPATH_IOC_EXPORT, &export))
		return NULL;
	if (export.generation == generation)
		check_lease(&export, length);
	m->length = length;
	m->memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, export.fd, 0);
	close(export.fd);
	if (m->memory == MAP_FAILED) {
		m->memory = NULL;
		return NULL;
	}
	m->generation = export.generation;
	return m->memory;
}

static uint32_t stride(const struct fake *fake)
{
	return (fake->width + 63) / 64 * 64 * (depth == 8 ? 1 : 2);
}

static uint32_t rows(const struct fake *fake)
{
	return (fake->height + 1) / 2 * 2;
}

static struct fp_format format_of(struct stream *s, const struct fake *fake)
{
	uint32_t pixels = stride(fake) * rows(fake) / 2 * 3;

	return (struct fp_format){
		.epoch = s->epoch, .depth = depth,
		.width = fake->width, .height = rows(fake), .bytesperline = stride(fake),
		.visible_width = fake->width, .visible_height = fake->height,
		.sizeimage_native = pixels + scratch, .sizeimage_packed = pixels + scratch,
		.min_buffers = 2,
	};
}

/* Makes an invalid call, which the kernel has to reject with ERROR. */
static void tell(struct stream *s, const char *what, unsigned long request, void *argument,
		 int error)
{
	int ret = say(s, request, argument);

	lies++;
	/* The client may seek or close meanwhile; then the call fails with another error. */
	if (ret == error || ret == -ENODEV || ret == -ESTALE || ret == -EBUSY)
		return;
	printf("FAIL %s: %d, not %d\n", what, ret, error);
	fflush(stdout);
	_exit(1);
}

static void tell_frames(struct stream *s, const struct fp_frame *honest)
{
	struct fp_frame f;

	f = *honest, f.index = 33;
	tell(s, "frame, index", FRAMEPATH_IOC_FRAME, &f, -EINVAL);
	f = *honest, f.index = UINT32_MAX;
	tell(s, "frame, index", FRAMEPATH_IOC_FRAME, &f, -EINVAL);
	f = *honest, f.generation++;
	tell(s, "frame, generation", FRAMEPATH_IOC_FRAME, &f, -ESTALE);
	f = *honest, f.epoch--;
	tell(s, "frame, epoch", FRAMEPATH_IOC_FRAME, &f, -ESTALE);
	f = *honest, f.seq += 1000000;
	tell(s, "frame, seq", FRAMEPATH_IOC_FRAME, &f, -ERANGE);
	f = *honest, f.failed = 2;
	tell(s, "frame, failed", FRAMEPATH_IOC_FRAME, &f, -EINVAL);
	f = *honest, f.reserved = 1;
	tell(s, "frame, reserved", FRAMEPATH_IOC_FRAME, &f, -EINVAL);
}

/* Checks that no bytes before or behind a packet can be read. */
static void tell_payload(struct stream *s, const struct fp_packet *packet)
{
	uint64_t at = ((uint64_t)packet->index << 32) + packet->offset;
	char bytes[8192];
	ssize_t got = pread(s->fd, bytes, sizeof(bytes), at);

	lies++;
	/* The client may seek or close meanwhile. */
	if (got < 0)
		return;
	check(got == packet->bytes, "a packet of %u bytes has %zd", packet->bytes, got);
	got = pread(s->fd, bytes, sizeof(bytes), at + packet->bytes);
	check(got <= 0, "%zd bytes behind a packet", got);
	if (!packet->offset)
		return;
	got = pread(s->fd, bytes, sizeof(bytes), at - packet->offset);
	check(got < 0, "%zd bytes before a packet", got);
	got = pread(s->fd, bytes, 1, at - 1);
	check(got < 0, "the byte before a packet");
}

static void tell_others(struct stream *s, const struct fp_packet *packet)
{
	struct fp_packet_done done = { .seq = packet->seq, .index = packet->index + 1 };
	struct fp_drained drained = { .epoch = s->epoch, .why = 3 };
	struct fp_export export = { .queue = FRAMEPATH_QUEUE_OUTPUT, .index = packet->index };
	struct fp_delivered delivered = { .first = UINT64_MAX };
	struct fp_fail fail = { .error = -5 };
	struct fp_format format = format_of(s, &s->format);

	tell(s, "done, index", FRAMEPATH_IOC_PACKET_DONE, &done, -EINVAL);
	done.seq += 100000;
	tell(s, "done, seq", FRAMEPATH_IOC_PACKET_DONE, &done, -EINVAL);
	tell(s, "drained, why", FRAMEPATH_IOC_DRAINED, &drained, -EINVAL);
	drained.why = FRAMEPATH_DRAINED_END;
	if (!s->draining)
		tell(s, "drained, not asked", FRAMEPATH_IOC_DRAINED, &drained, -ECANCELED);
	tell(s, "export, OUTPUT", FRAMEPATH_IOC_EXPORT, &export, -EINVAL);
	export.queue = 2;
	tell(s, "export, queue", FRAMEPATH_IOC_EXPORT, &export, -EINVAL);
	tell_payload(s, packet);
	export = (struct fp_export){ .queue = FRAMEPATH_QUEUE_CAPTURE, .index = 99 };
	tell(s, "export, index", FRAMEPATH_IOC_EXPORT, &export, -EINVAL);
	tell(s, "delivered", FRAMEPATH_IOC_DELIVERED, &delivered, -ERANGE);
	tell(s, "fail", FRAMEPATH_IOC_FAIL, &fail, -EINVAL);
	tell(s, "format, twice", FRAMEPATH_IOC_FORMAT, &format, -EBUSY);
	tell(s, "ioctl", _IOW(0xFB, 0x7f, int), &fail, -ENOTTY);
	for (uint32_t i = 0; i < sizeof(format) / 4; i++) {
		struct fp_format garbage = format;

		((uint32_t *)&garbage)[i] = 0xfedcba98;
		tell(s, "format, garbage", FRAMEPATH_IOC_FORMAT, &garbage, -EINVAL);
	}
}

static bool delivered(struct stream *s, uint64_t seq)
{
	struct fp_delivered d = { .first = seq };

	return !say(s, FRAMEPATH_IOC_DELIVERED, &d) && d.bits[0] & 1;
}

static bool same(const struct fake *a, const struct fake *b)
{
	return a->width == b->width && a->height == b->height;
}

static bool payload(struct stream *s, const struct fp_packet *packet, void *to, size_t bytes)
{
	uint64_t at = ((uint64_t)packet->index << 32) + packet->offset;

	return pread(s->fd, to, bytes, at) == (ssize_t)bytes;
}

static void take_packet(struct stream *s, const struct fp_packet *packet)
{
	struct pending *p = &s->pending[s->pendings++];
	uint8_t first = 0;

	*p = (struct pending){ .packet = *packet, .given = delivered(s, packet->seq) };
	if (packet->bytes >= sizeof(p->fake) &&
	    payload(s, packet, &p->fake, sizeof(p->fake)) && p->fake.magic == FAKE_MAGIC)
		return;
	payload(s, packet, &first, 1);
	p->fake = (struct fake){ .width = s->accept.width, .height = s->accept.height,
				 .fill = first };
	if (!p->fake.width || !p->fake.height)
		p->fake.width = 640, p->fake.height = 480;
}

/* Starts a new epoch. The waits for packets and for buffers both announce it, in any order. */
static void flush(struct stream *s, uint32_t epoch)
{
	if (s->epoch == epoch)
		return;
	s->epoch = epoch;
	s->pendings = 0;
	s->draining = false;
	s->formatted = false;
}

static void next_packets(struct stream *s)
{
	struct fp_packet packet;

	while (!s->draining && s->pendings <= hold && s->pendings < PENDING) {
		if (say(s, FRAMEPATH_IOC_NEXT_PACKET, &packet))
			return;
		switch (packet.kind) {
		case FRAMEPATH_PACKET:
			s->epoch = packet.epoch;
			take_packet(s, &packet);
			break;
		case FRAMEPATH_DRAIN:
			s->epoch = packet.epoch;
			s->draining = true;
			break;
		case FRAMEPATH_FLUSH:
			flush(s, packet.epoch);
			break;
		}
	}
}

static void next_captures(struct stream *s)
{
	struct fp_capture c;

	while (!say(s, FRAMEPATH_IOC_NEXT_CAPTURE, &c)) {
		switch (c.kind) {
		case FRAMEPATH_CAPTURE_ON:
			s->on = true;
			s->pixelformat = c.pixelformat;
			s->readies = 0;
			break;
		case FRAMEPATH_CAPTURE_OFF:
			s->on = false;
			s->readies = 0;
			break;
		case FRAMEPATH_CAPTURE_QUEUED:
			if (map(s, c.index, c.generation, c.length))
				s->ready[s->readies++] = c.index;
			break;
		case FRAMEPATH_CAPTURE_FLUSH:
			flush(s, c.epoch);
			break;
		}
	}
}

/* Returns the index of the newest pending frame that has the size of the oldest one. */
static unsigned int choose(struct stream *s)
{
	unsigned int chosen = 0;

	for (unsigned int i = 1; i < s->pendings; i++) {
		if (!same(&s->pending[i].fake, &s->pending[0].fake))
			break;
		chosen = i;
	}
	return chosen;
}

static void packet_done(struct stream *s, unsigned int i)
{
	struct fp_packet_done done = { .seq = s->pending[i].packet.seq,
				       .index = s->pending[i].packet.index };

	say(s, FRAMEPATH_IOC_PACKET_DONE, &done);
	memmove(&s->pending[i], &s->pending[i + 1],
		(--s->pendings - i) * sizeof(s->pending[0]));
}

static bool say_format(struct stream *s, const struct fake *fake)
{
	struct fp_format format = format_of(s, fake);

	s->formatted = !say(s, FRAMEPATH_IOC_FORMAT, &format);
	s->format = *fake;
	next_captures(s);
	return s->formatted;
}

/* Delivers a pending frame. Returns false if no frame can be delivered now. */
static bool give(struct stream *s)
{
	unsigned int i = choose(s);
	struct pending *p = &s->pending[i];
	struct fp_drained change = { .epoch = s->epoch, .why = FRAMEPATH_DRAINED_CHANGE };
	struct fp_frame frame;
	struct mapping *m;
	uint32_t bytes;
	int ret;

	if (p->given) {
		packet_done(s, i);
		return true;
	}
	if (!s->formatted || !same(&s->format, &p->fake)) {
		if (s->formatted && say(s, FRAMEPATH_IOC_DRAINED, &change))
			return false;
		return say_format(s, &p->fake);
	}
	if (!s->on || !s->readies)
		return false;
	m = &s->capture[s->ready[0]];
	frame = (struct fp_frame){ .seq = p->packet.seq, .epoch = s->epoch,
				   .index = s->ready[0], .generation = m->generation,
				   .mark = p->packet.mark };
	memmove(&s->ready[0], &s->ready[1], --s->readies * sizeof(s->ready[0]));
	bytes = stride(&p->fake) * rows(&p->fake) / 2 * 3;
	if (m->length < bytes)
		return true;
	memset(m->memory, p->fake.fill, bytes);
	if (slow)
		usleep(slow);
	if (lie) {
		tell_frames(s, &frame);
		tell_others(s, &p->packet);
	}
	ret = say(s, FRAMEPATH_IOC_FRAME, &frame);
	if (ret) {
		/* The client has flushed or stopped. After a flush the decoder still owns the buffer. */
		if (ret == -ESTALE)
			s->ready[s->readies++] = frame.index;
		next_captures(s);
		return s->epoch == frame.epoch && s->readies;
	}
	if (lie)
		tell(s, "frame, twice", FRAMEPATH_IOC_FRAME, &frame, -EBUSY);
	frames++;
	if (die && frames >= die)
		kill(getpid(), SIGKILL);
	if (quiet && frames >= quiet)
		mute = true;
	if (fail_after && frames >= fail_after) {
		struct fp_fail fail = { .error = EIO };

		say(s, FRAMEPATH_IOC_FAIL, &fail);
		return false;
	}
	packet_done(s, i);
	return true;
}

static void work(struct stream *s)
{
	bool again;

	do {
		next_captures(s);
		next_packets(s);
		again = false;
		/* Reports the format immediately, because the client cannot drain before CAPTURE is set up. */
		if (s->pendings && !s->formatted && !s->pending[0].given)
			say_format(s, &s->pending[0].fake);
		while (s->pendings && (s->pendings > hold || s->draining) && give(s)) {
			next_captures(s);
			again = true;
		}
	} while (again);

	if (s->draining && !s->pendings) {
		struct fp_drained end = { .epoch = s->epoch, .why = FRAMEPATH_DRAINED_END };
		int ret = say(s, FRAMEPATH_IOC_DRAINED, &end);

		if (ret == -EBUSY)
			return;
		s->draining = false;
		for (unsigned int i = 0; !ret && i < s->readies; i++)
			if ((int)s->ready[i] == end.index)
				s->ready[i] = s->ready[--s->readies];
		work(s);
	}
}

static void drop(unsigned int i)
{
	struct stream *s = streams[i];

	for (unsigned int j = 0; j < 32; j++) {
		if (s->capture[j].memory)
			munmap(s->capture[j].memory, s->capture[j].length);
	}
	close(s->fd);
	close(s->stash);
	free(s);
	streams[i] = NULL;
}

static void accept_stream(int control)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (ioctl(control, FRAMEPATH_IOC_ACCEPT, &s->accept)) {
		free(s);
		return;
	}
	s->fd = s->accept.stream;
	s->stash = s->accept.stash;
	fcntl(s->fd, F_SETFL, O_NONBLOCK);
	for (unsigned int i = 0; i < STREAMS; i++) {
		if (!streams[i]) {
			streams[i] = s;
			return;
		}
	}
	fail("more than %d streams", STREAMS);
}

static void on_term(int signal)
{
	(void)signal;
	ended = 1;
}

int main(int count, char **words)
{
	struct fp_attach attach = { .version = FRAMEPATH_VERSION };
	int control = open_or_fail("/dev/framepath", O_RDWR | O_NONBLOCK);

	for (int i = 1; i < count; i++) {
		lie |= !strcmp(words[i], "lie");
		mute |= !strcmp(words[i], "mute");
		sscanf(words[i], "hold=%u", &hold);
		sscanf(words[i], "die=%u", &die);
		sscanf(words[i], "fail=%u", &fail_after);
		sscanf(words[i], "quiet=%u", &quiet);
		sscanf(words[i], "slow=%u", &slow);
		sscanf(words[i], "scratch=%u", &scratch);
		sscanf(words[i], "depth=%u", &depth);
	}
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_term }, NULL);
	attach.version++;
	check(ioctl(control, FRAMEPATH_IOC_ATTACH, &attach) && errno == EPROTO, "ATTACH of another version");
	attach.version--;
	/* The kernel may not have detached the previous decoder yet. */
	while (ioctl(control, FRAMEPATH_IOC_ATTACH, &attach)) {
		check(errno == EBUSY, "ATTACH");
		usleep(10000);
	}

	while (!ended) {
		struct pollfd fds[STREAMS + 1] = { { .fd = control, .events = POLLIN } };

		for (unsigned int i = 0; i < STREAMS; i++)
			fds[i + 1] = (struct pollfd){ streams[i] ? streams[i]->fd : -1,
						      mute ? 0 : POLLPRI };
		for (unsigned int i = 0; i < STREAMS; i++)
			if (streams[i] && !mute && !streams[i]->draining &&
			    streams[i]->pendings <= hold)
				fds[i + 1].events |= POLLIN;
		if (poll(fds, STREAMS + 1, 1000) < 0)
			continue;
		if (fds[0].revents)
			accept_stream(control);
		for (unsigned int i = 0; i < STREAMS; i++) {
			if (fds[i + 1].revents & POLLHUP)
				drop(i);
			else if (fds[i + 1].revents)
				work(streams[i]);
		}
	}
	printf("fake-decoder: %lu frames, %lu lies\n", frames, lies);
	return 0;
}
