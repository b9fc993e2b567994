/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the measuring node does to pixels. Knows no device and no buffer, and
 * builds in user space too, where its test is.
 */
#ifndef _FRAMEPATH_PIXELS_H
#define _FRAMEPATH_PIXELS_H

#include <linux/types.h>

#ifndef __KERNEL__
#include <stdbool.h>
#include <stddef.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
#endif

/* A rectangle of pixels. A frame has width * height bytes, without padding. */
struct fp_region {
	u32 left;
	u32 top;
	u32 width;		/* 0 before fp_region_clamp(): up to the edge */
	u32 height;
};

/*
 * Cuts the region to the frame; true where the region asked for more than
 * there is. left + width and top + height fit 32 bits.
 */
bool fp_region_clamp(struct fp_region *region, u32 width, u32 height);

/*
 * Pixels of the clamped region at or above the level become 255, the others
 * 0; those outside are not touched. to may be from, and may not overlap it
 * otherwise. Gives the number of pixels set. Frames of up to 4096x4096.
 */
u32 fp_threshold(u8 *to, const u8 *from, u32 width, const struct fp_region *region, u8 level);

/* Copies the pixels outside the clamped region; gives their number. */
u64 fp_copy_around(u8 *to, const u8 *from, u32 width, u32 height, const struct fp_region *region);

#endif
