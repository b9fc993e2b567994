/* SPDX-License-Identifier: GPL-2.0-only */
/* Controls of the measuring node, per open file. */
#ifndef FP_MEASURE_CONTROLS_H
#define FP_MEASURE_CONTROLS_H

#include <linux/types.h>
#include <media/v4l2-ctrls.h>

#include "pixels.h"
#include "uapi/framepath.h"

#define FP_MEASURE_CONTROLS (FRAMEPATH_CID_CRC32 - FRAMEPATH_CID_BASE + 1)

struct fp_measure_controls {
	struct v4l2_ctrl_handler handler;
	/* Controls, one cluster; the index of a control is its id - FRAMEPATH_CID_BASE. */
	struct v4l2_ctrl *of[FP_MEASURE_CONTROLS];
};

/* Values of all controls at one time: the order for the processing of one frame. */
struct fp_measure_order {
	u64 source_sequence;
	u32 algo;
	u8 level;
	bool in_place;
	bool crc32;
	struct fp_region region;
};

/* Makes the controls of an open file. The caller frees the handler, also after a failure. */
int fp_measure_controls_init(struct fp_measure_controls *controls);
void fp_measure_controls_snapshot(struct fp_measure_controls *controls,
				  struct fp_measure_order *order);

#endif
