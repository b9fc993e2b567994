// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pixel functions of the measuring node: eight pixels at a time in a 64-bit word,
 * since kernel code should not use vector registers.
 */
#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#include "pixels.h"

#define FP_ONES 0x0101010101010101ULL	/* 1 in each byte of a word */
#define FP_TOPS (FP_ONES << 7)		/* top bit of each byte of a word */

static u32 fp_smaller(u32 a, u32 b)
{
	return a < b ? a : b;
}

bool fp_region_clamp(struct fp_region *region, u32 width, u32 height)
{
	struct fp_region asked = *region;
	u32 right = asked.width ? asked.left + asked.width : width;
	u32 bottom = asked.height ? asked.top + asked.height : height;

	region->left = fp_smaller(asked.left, width);
	region->top = fp_smaller(asked.top, height);
	region->width = fp_smaller(right, width) - region->left;
	region->height = fp_smaller(bottom, height) - region->top;

	return right > width || bottom > height || asked.left >= width || asked.top >= height;
}

/*
 * Loads eight bytes from any address. __builtin: memcpy() is no builtin on some
 * architectures.
 */
static __always_inline u64 fp_load(const u8 *from)
{
	u64 word;

	__builtin_memcpy(&word, from, sizeof(word));
	return word;
}

static __always_inline void fp_store(u8 *to, u64 word)
{
	__builtin_memcpy(to, &word, sizeof(word));
}

/*
 * Applies the threshold to eight pixels in *word. Returns 1 in each byte whose pixel
 * is set. The addend is 128 minus the low seven bits of the level; its sum with the
 * pixel's low seven bits has the top bit set if these are not less than the level's.
 * The sum is at most 127 + 128, so that no carry leaves the byte. A pixel is set if
 * this bit or its own top bit is set (level below 128), or both are (other levels).
 */
static __always_inline u64 fp_threshold_word(u64 *word, u64 addend, bool upper)
{
	u64 sum = (*word & ~FP_TOPS) + addend;
	u64 tops = (upper ? sum & *word : sum | *word) & FP_TOPS;
	u64 set = tops >> 7;

	/* 256 - 1 in each byte that is set; the borrow stays inside. */
	*word = (tops << 1) - set;
	return set;
}

/* Returns the sum of the eight bytes of the word. */
static __always_inline u32 fp_sum_bytes(u64 word)
{
	word = (word & 0x00ff00ff00ff00ffULL) + (word >> 8 & 0x00ff00ff00ff00ffULL);
	return word * 0x0001000100010001ULL >> 48;
}

static __always_inline u32 fp_threshold_span(u8 *to, const u8 *from, u32 count, u8 level,
					     bool upper)
{
	u64 addend = FP_ONES * (0x80 - (level & 0x7f));
	u32 set = 0;

	while (count >= 16) {
		/* A byte counts up to 255: 127 times two words. */
		u32 pairs = fp_smaller(count / 16, 127);
		u64 sums = 0;

		count -= pairs * 16;
		for (; pairs; pairs--, from += 16, to += 16) {
			u64 first = fp_load(from);
			u64 second = fp_load(from + 8);

			sums += fp_threshold_word(&first, addend, upper);
			sums += fp_threshold_word(&second, addend, upper);
			fp_store(to, first);
			fp_store(to + 8, second);
		}
		set += fp_sum_bytes(sums);
	}
	for (; count; count--, from++, to++) {
		bool white = *from >= level;

		*to = white ? 0xff : 0;
		set += white;
	}
	return set;
}

u32 fp_threshold(u8 *to, const u8 *from, u32 width, const struct fp_region *region, u8 level)
{
	size_t start = (size_t)region->top * width + region->left;
	u32 span = region->width;
	u32 rows = region->height;
	u32 set = 0;

	/* Adjacent rows are processed as one. */
	if (region->width == width && rows) {
		span *= rows;
		rows = 1;
	}
	to += start;
	from += start;
	for (; rows; rows--, to += width, from += width) {
		if (level < 0x80)
			set += fp_threshold_span(to, from, span, level, false);
		else
			set += fp_threshold_span(to, from, span, level, true);
	}
	return set;
}

u64 fp_copy_around(u8 *to, const u8 *from, u32 width, u32 height, const struct fp_region *region)
{
	size_t size = (size_t)width * height;
	size_t at = 0;
	u32 row;

	if (!region->width || !region->height) {
		memmove(to, from, size);
		return size;
	}
	/* From the end of one row of the region to the start of the next. */
	for (row = 0; row < region->height; row++) {
		size_t start = ((size_t)region->top + row) * width + region->left;

		memmove(to + at, from + at, start - at);
		at = start + region->width;
	}
	memmove(to + at, from + at, size - at);
	return size - (u64)region->width * region->height;
}
