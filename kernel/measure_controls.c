// SPDX-License-Identifier: GPL-2.0-only
/*
 * Controls of the measuring node. They form one cluster, so that VIDIOC_S_EXT_CTRLS
 * sets several at once, and a snapshot has all values of such a call or none.
 */
#include "measure_controls.h"

static const char * const fp_measure_algos[] = {
	[FRAMEPATH_ALGO_NONE] = "None",
	[FRAMEPATH_ALGO_THRESHOLD] = "Threshold",
	NULL,
};

static const struct v4l2_ctrl_config fp_measure_configs[FP_MEASURE_CONTROLS] = {
	{ .id = FRAMEPATH_CID_SRC_SEQUENCE, .name = "Source Sequence",
	  .type = V4L2_CTRL_TYPE_INTEGER64, .max = S64_MAX, .step = 1 },
	{ .id = FRAMEPATH_CID_ALGO, .name = "Algorithm", .type = V4L2_CTRL_TYPE_MENU,
	  .max = FRAMEPATH_ALGO_THRESHOLD, .qmenu = fp_measure_algos },
	{ .id = FRAMEPATH_CID_THRESHOLD, .name = "Threshold", .type = V4L2_CTRL_TYPE_INTEGER,
	  .max = 255, .step = 1, .def = 128 },
	{ .id = FRAMEPATH_CID_ROI_LEFT, .name = "ROI Left", .type = V4L2_CTRL_TYPE_INTEGER,
	  .max = S32_MAX, .step = 1 },
	{ .id = FRAMEPATH_CID_ROI_TOP, .name = "ROI Top", .type = V4L2_CTRL_TYPE_INTEGER,
	  .max = S32_MAX, .step = 1 },
	{ .id = FRAMEPATH_CID_ROI_WIDTH, .name = "ROI Width", .type = V4L2_CTRL_TYPE_INTEGER,
	  .max = S32_MAX, .step = 1 },
	{ .id = FRAMEPATH_CID_ROI_HEIGHT, .name = "ROI Height", .type = V4L2_CTRL_TYPE_INTEGER,
	  .max = S32_MAX, .step = 1 },
	{ .id = FRAMEPATH_CID_IN_PLACE, .name = "In Place", .type = V4L2_CTRL_TYPE_BOOLEAN,
	  .max = 1, .step = 1 },
	{ .id = FRAMEPATH_CID_CRC32, .name = "CRC32", .type = V4L2_CTRL_TYPE_BOOLEAN,
	  .max = 1, .step = 1 },
};

int fp_measure_controls_init(struct fp_measure_controls *controls)
{
	int i;

	v4l2_ctrl_handler_init(&controls->handler, FP_MEASURE_CONTROLS);
	for (i = 0; i < FP_MEASURE_CONTROLS; i++)
		controls->of[i] = v4l2_ctrl_new_custom(&controls->handler,
						       &fp_measure_configs[i], NULL);
	if (controls->handler.error)
		return controls->handler.error;

	v4l2_ctrl_cluster(FP_MEASURE_CONTROLS, controls->of);
	return 0;
}

static struct v4l2_ctrl *fp_measure_control(struct fp_measure_controls *controls, u32 id)
{
	return controls->of[id - FRAMEPATH_CID_BASE];
}

/* Returns the present value of a control. Called with the controls' lock. */
static s32 fp_measure_value(struct fp_measure_controls *controls, u32 id)
{
	return fp_measure_control(controls, id)->cur.val;
}

void fp_measure_controls_snapshot(struct fp_measure_controls *controls,
				  struct fp_measure_order *order)
{
	struct v4l2_ctrl *sequence = fp_measure_control(controls, FRAMEPATH_CID_SRC_SEQUENCE);

	v4l2_ctrl_lock(controls->of[0]);
	order->source_sequence = *sequence->p_cur.p_s64;
	order->algo = fp_measure_value(controls, FRAMEPATH_CID_ALGO);
	order->level = fp_measure_value(controls, FRAMEPATH_CID_THRESHOLD);
	order->region.left = fp_measure_value(controls, FRAMEPATH_CID_ROI_LEFT);
	order->region.top = fp_measure_value(controls, FRAMEPATH_CID_ROI_TOP);
	order->region.width = fp_measure_value(controls, FRAMEPATH_CID_ROI_WIDTH);
	order->region.height = fp_measure_value(controls, FRAMEPATH_CID_ROI_HEIGHT);
	order->in_place = fp_measure_value(controls, FRAMEPATH_CID_IN_PLACE);
	order->crc32 = fp_measure_value(controls, FRAMEPATH_CID_CRC32);
	v4l2_ctrl_unlock(controls->of[0]);
}
