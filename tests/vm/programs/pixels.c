// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compares kernel/pixels.c with a plain loop over bytes: every level, every pixel
 * value, every alignment of both sides, every length around the size of a word
 * and around the counter's limit; then regions. Needs no kernel module.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../../kernel/pixels.c"

static unsigned long compared;

static void fail(const char *what, unsigned a, unsigned b, unsigned c)
{
	printf("FAIL %s: %u %u %u\n", what, a, b, c);
	exit(1);
}

static u32 plain(u8 *to, const u8 *from, size_t count, u8 level)
{
	u32 set = 0;

	for (size_t i = 0; i < count; i++) {
		to[i] = from[i] >= level ? 255 : 0;
		set += to[i] == 255;
	}
	return set;
}

/* Checks one row of count pixels at the given offsets; the bytes around the row must not change. */
static void row(const u8 *pixels, u32 count, unsigned to_offset, unsigned from_offset, u8 level, bool in_place)
{
	static u8 from[8192], to[8192], want[8192];
	struct fp_region whole = { 0, 0, count, 1 };
	u8 *target = in_place ? from + from_offset : to + to_offset;
	u32 set;

	memset(from, 0x5a, count + 48);
	memset(to, 0xa5, count + 48);
	memcpy(from + from_offset, pixels, count);
	memcpy(want, in_place ? from : to, count + 48);
	set = plain(want + (target - (in_place ? from : to)), pixels, count, level);
	if (fp_threshold(target, from + from_offset, count, &whole, level) != set)
		fail("pixels set (level, count, offset)", level, count, to_offset);
	if (memcmp(in_place ? from : to, want, count + 48))
		fail("pixels (level, count, offset)", level, count, to_offset);
	compared += count;
}

static void rows(void)
{
	u8 ramp[512], noise[5000];

	for (unsigned i = 0; i < sizeof(ramp); i++)
		ramp[i] = i;
	for (unsigned i = 0; i < sizeof(noise); i++)
		noise[i] = rand() >> 7;
	for (unsigned level = 0; level < 256; level++) {
		/* Every value in every byte of a word, with every pair of alignments. */
		for (unsigned shift = 0; shift < 16; shift++)
			for (unsigned to = 0; to < 8; to++)
				for (unsigned from = 0; from < 8; from++)
					row(ramp + shift, 256, to, from, level, false);
		for (unsigned from = 0; from < 16; from++)
			row(ramp, 512, 0, from, level, true);
		for (unsigned count = 1; count < 80; count++)
			row(noise, count, level & 7, level >> 5, level, level & 1);
		/* A row with more set pixels than a counter of one byte can hold. */
		row(noise, 5000, 3, 5, level, false);
		memset(ramp, level, 256);
		row(ramp, 256, 1, 2, level, false);
		for (unsigned i = 0; i < 256; i++)
			ramp[i] = i;
	}
	u8 *white = malloc(4100);

	memset(white, 255, 4100);
	for (unsigned count = 2000; count < 4100; count++)
		row(white, count, 0, 0, 200, false);
	free(white);
}

/* Checks a whole frame of the node: the pixels of the region, and the copied pixels around it. */
static void regions(void)
{
	static u8 from[97 * 61], to[97 * 61], want[97 * 61];

	for (unsigned i = 0; i < sizeof(from); i++)
		from[i] = rand() >> 7;
	for (unsigned round = 0; round < 20000; round++) {
		struct fp_region asked = { rand() % 120, rand() % 80, rand() % 120, rand() % 80 };
		struct fp_region region = asked;
		u8 level = rand() >> 7;
		bool cut = fp_region_clamp(&region, 97, 61), beyond = asked.left >= 97 || asked.top >= 61;
		u32 set = 0, inside = 0;

		for (u32 y = 0; y < 61; y++)
			for (u32 x = 0; x < 97; x++) {
				bool in = x >= asked.left && (!asked.width || x < asked.left + asked.width) &&
					  y >= asked.top && (!asked.height || y < asked.top + asked.height);
				u8 pixel = from[y * 97 + x];

				want[y * 97 + x] = in ? (pixel >= level ? 255 : 0) : pixel;
				inside += in;
				set += in && pixel >= level;
			}
		beyond |= asked.left + asked.width > 97 || asked.top + asked.height > 61;
		if (cut != beyond)
			fail("a region is said to be cut", asked.left, asked.width, cut);
		if (region.width * region.height != inside)
			fail("pixels of a region", region.width, region.height, inside);
		memset(to, 0x11, sizeof(to));
		if (fp_copy_around(to, from, 97, 61, &region) != sizeof(from) - inside)
			fail("bytes copied", region.left, region.width, region.height);
		if (fp_threshold(to, from, 97, &region, level) != set)
			fail("pixels set in a region", region.left, region.width, set);
		if (memcmp(to, want, sizeof(to)))
			fail("a frame", region.left, region.width, level);
		memcpy(to, from, sizeof(to));
		fp_threshold(to, to, 97, &region, level);
		if (memcmp(to, want, sizeof(to)))
			fail("a frame in place", region.left, region.width, level);
		compared += 2 * sizeof(to);
	}
}

int main(void)
{
	struct fp_region far = { 0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff };

	if (!fp_region_clamp(&far, 16, 16) || far.left != 16 || far.width || far.top != 16 || far.height)
		fail("the farthest region", far.left, far.width, far.height);
	rows();
	regions();
	printf("pixels: %lu compared, equal\n", compared);
	return 0;
}
