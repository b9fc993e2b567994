// SPDX-License-Identifier: GPL-2.0-only
/*
 * framepath.ko: loads and unloads.
 *
 * A stateful decoder node whose decoding is done in user space, and a measuring
 * node with a record of each frame. There is no hardware: the platform device
 * is there for the nodes to have a parent. It has no driver, so nothing can be
 * unbound under an open file; the module's references do the rest.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/stringify.h>
#include <media/v4l2-device.h>
#include <media/v4l2-ioctl.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"
#include "measure.h"
#include "meta.h"

static struct platform_device *fp_parent;
static struct v4l2_device fp_v4l2;

/*
 * The core changes a handle's priority in two steps, and leaves it to the lock of
 * the node to keep two threads apart. The nodes have none: a priority would stay
 * behind, and EBUSY for everybody with it.
 */
long fp_video_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	static DEFINE_MUTEX(priority);
	long ret;

	if (cmd != VIDIOC_S_PRIORITY)
		return video_ioctl2(file, cmd, arg);
	mutex_lock(&priority);
	ret = video_ioctl2(file, cmd, arg);
	mutex_unlock(&priority);
	return ret;
}

static int __init fp_init(void)
{
	int ret;

	fp_parent = platform_device_register_simple(FP_NAME, PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(fp_parent))
		return PTR_ERR(fp_parent);

	/* Without a driver there is no name that could be taken from it. */
	strscpy(fp_v4l2.name, FP_NAME, sizeof(fp_v4l2.name));
	ret = v4l2_device_register(&fp_parent->dev, &fp_v4l2);
	if (ret)
		goto no_v4l2;
	ret = fp_meta_register();
	if (ret)
		goto no_meta;
	ret = fp_measure_register(&fp_v4l2);
	if (ret)
		goto no_measure;
	ret = fp_decoder_register(&fp_v4l2);
	if (ret)
		goto no_decoder;
	return 0;

no_decoder:
	fp_measure_unregister();
no_measure:
	fp_meta_unregister();
no_meta:
	v4l2_device_unregister(&fp_v4l2);
no_v4l2:
	platform_device_unregister(fp_parent);
	return ret;
}
module_init(fp_init);

static void __exit fp_exit(void)
{
	fp_decoder_unregister();
	fp_measure_unregister();
	fp_meta_unregister();
	v4l2_device_unregister(&fp_v4l2);
	platform_device_unregister(fp_parent);
}
module_exit(fp_exit);

MODULE_DESCRIPTION("V4L2 decoder in user space, and a measuring node");
MODULE_LICENSE("GPL");
/* A decoder that is refused (EPROTO) finds this in /sys/module/framepath/version. */
MODULE_VERSION("attach-" __stringify(FP_VERSION));
FP_IMPORT_NS_DMA_BUF;
