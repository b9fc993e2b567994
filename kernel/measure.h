/* SPDX-License-Identifier: GPL-2.0-only */
/* The measuring node. Needs fp_meta_init() before, and fp_meta_exit() after it. */
#ifndef _FRAMEPATH_MEASURE_H
#define _FRAMEPATH_MEASURE_H

struct v4l2_device;

int fp_measure_init(struct v4l2_device *v4l2_dev);
void fp_measure_exit(void);
int fp_measure_register(void);
void fp_measure_unregister(void);

#endif
