/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pixel functions of the measuring node. They depend on no device and no buffer, and
 * build in user space too, for their test.
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

/* A rectangle of pixels. A frame has one byte per pixel, and no padding. */
struct fp_region {
	u32 left;
	u32 top;
	u32 width;		/* 0 before fp_region_clamp(): up to the edge */
	u32 height;
};

/*
 * Clips the region to a frame of width x height pixels; returns true if a part of the
 * region was outside. left + width and top + height must fit 32 bits.
 */
bool fp_region_clamp(struct fp_region *region, u32 width, u32 height);

/*
 * Writes the pixels of the clamped region of frame from to frame to: 255 for a pixel at
 * or above the level, 0 for another. Does not touch pixels outside the region. to may
 * equal from, and must not overlap it otherwise. width is that of both frames, which
 * have up to 4096x4096 pixels. Returns the number of pixels set to 255.
 */
u32 fp_threshold(u8 *to, const u8 *from, u32 width, const struct fp_region *region, u8 level);

/*
 * Copies the pixels outside the clamped region from frame from to frame to, all pixels
 * if the region is empty. Returns their number.
 */
u64 fp_copy_around(u8 *to, const u8 *from, u32 width, u32 height, const struct fp_region *region);

#endif
