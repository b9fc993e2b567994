// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes a clip's packets in the format of v4l2-ctl and v4l2-compliance (--stream-from-hdr):
 *
 *   packets CLIP TIMES OUT
 *
 * CLIP is IVF, or H.264 or HEVC with start codes, by its file name. OUT has the clip
 * TIMES times, with one packet per access unit.
 */
#include "v4l2.h"

#include <arpa/inet.h>
#include <sys/stat.h>

static FILE *out;
static unsigned long count;

static void put(const uint8_t *at, size_t bytes)
{
	uint32_t header[2] = { htonl(v4l2_fourcc('V', 'h', 'd', 'r')), htonl(bytes) };

	check(fwrite(header, sizeof(header), 1, out) == 1 && fwrite(at, bytes, 1, out) == 1, "fwrite");
	count++;
}

static uint32_t word(const uint8_t *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

static void ivf(const uint8_t *clip, size_t size)
{
	for (size_t at = 32; at + 12 <= size; at += 12 + word(clip + at)) {
		check(word(clip + at) <= size - at - 12, "a packet is longer than the file");
		put(clip + at + 12, word(clip + at));
	}
}

/*
 * Sets SLICE if the unit behind a start code is a slice of a picture, and FIRST if the slice is the
 * picture's first.
 */
static void look(const uint8_t *unit, bool hevc, bool *slice, bool *first)
{
	uint8_t kind = hevc ? unit[0] >> 1 & 63 : unit[0] & 31;

	*slice = hevc ? kind < 32 : kind >= 1 && kind <= 5;
	*first = unit[hevc ? 2 : 1] & 0x80;
}

static void start_codes(const uint8_t *clip, size_t size, bool hevc)
{
	size_t begin = 0;
	bool picture = false, slice, first;

	for (size_t at = 0; at + 6 <= size; at++) {
		size_t head = at;

		if (clip[at] || clip[at + 1] || clip[at + 2] != 1)
			continue;
		if (head && !clip[head - 1])
			head--;
		look(clip + at + 3, hevc, &slice, &first);
		/* The first unit after a picture that is no slice of it begins the next packet. */
		if (picture && (!slice || first)) {
			put(clip + begin, head - begin);
			begin = head;
			picture = false;
		}
		picture |= slice;
	}
	put(clip + begin, size - begin);
}

int main(int argc, char **argv)
{
	struct stat status;
	const char *end;
	uint8_t *clip;
	int fd;

	check(argc == 4, "usage: packets CLIP TIMES OUT");
	fd = open_or_fail(argv[1], O_RDONLY);
	check(!fstat(fd, &status), "fstat");
	clip = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	check(clip != MAP_FAILED, "mmap");
	out = fopen(argv[3], "w");
	check(out, "%s", argv[3]);
	end = strrchr(argv[1], '.');
	for (int i = 0; i < atoi(argv[2]); i++) {
		if (!strcmp(end, ".ivf"))
			ivf(clip, status.st_size);
		else
			start_codes(clip, status.st_size, !strcmp(end, ".hevc"));
	}
	check(!fclose(out), "fclose");
	printf("packets: %lu of %s\n", count, argv[1]);
	return 0;
}
