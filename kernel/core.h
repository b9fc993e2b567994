/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FP_CORE_H
#define FP_CORE_H

#include <linux/mutex.h>
#include <linux/videodev2.h>

#define FP_NAME "framepath"

/* Fills f in with every width and height from the smallest to the largest, in pixels. */
static inline void fp_any_size(struct v4l2_frmsizeenum *f, u32 smallest, u32 largest)
{
	f->type = V4L2_FRMSIZE_TYPE_CONTINUOUS;
	f->stepwise.min_width = smallest;
	f->stepwise.max_width = largest;
	f->stepwise.step_width = 1;
	f->stepwise.min_height = smallest;
	f->stepwise.max_height = largest;
	f->stepwise.step_height = 1;
}

struct video_device;

/* core.c */
int fp_file_lock(struct video_device *vdev, struct mutex *lock);
void fp_file_unlock(struct video_device *vdev, struct mutex *lock);

#endif
