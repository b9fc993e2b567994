/* SPDX-License-Identifier: GPL-2.0-only */
/* The measuring node. fp_meta_register() comes first, and goes last. */
#ifndef _FRAMEPATH_MEASURE_H
#define _FRAMEPATH_MEASURE_H

struct v4l2_device;

int fp_measure_register(struct v4l2_device *v4l2_dev);
void fp_measure_unregister(void);

#endif
