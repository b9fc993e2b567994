// SPDX-License-Identifier: GPL-2.0-only
/*
 * Platform driver of framepath.ko: a stateful decoder node whose decoding happens in
 * user space, and a measuring node with a record of each frame.
 *
 * There is no hardware. The module registers one platform device, which the driver
 * binds once; sysfs cannot unbind it while a file is open (platform_create_bundle()).
 * An open file holds a reference to the module.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/stringify.h>
#include <media/media-device.h>
#include <media/v4l2-device.h>

#include "account.h"
#include "compat.h"
#include "core.h"
#include "decoder.h"
#include "measure.h"
#include "meta.h"

static struct platform_device *fp_device;
static struct v4l2_device fp_v4l2;

/* ---- the media device ---------------------------------------------------- */

#ifdef CONFIG_MEDIA_CONTROLLER
static struct media_device fp_media;

static void fp_media_init(struct device *dev)
{
	fp_media.dev = dev;
	strscpy(fp_media.model, FP_NAME, sizeof(fp_media.model));
	media_device_init(&fp_media);
	fp_v4l2.mdev = &fp_media;
}

static void fp_media_exit(void)
{
	media_device_cleanup(&fp_media);
}

static int fp_media_register(void)
{
	return media_device_register(&fp_media);
}

static void fp_media_unregister(void)
{
	media_device_unregister(&fp_media);
}
#else
static void fp_media_init(struct device *dev)
{
}

static void fp_media_exit(void)
{
}

static int fp_media_register(void)
{
	return 0;
}

static void fp_media_unregister(void)
{
}
#endif

/* ---- locks of the nodes -------------------------------------------------- */

/*
 * Takes the lock of an open file in an ioctl that the core calls with the lock of
 * the node vdev, and releases the node's lock meanwhile: a client can hold the
 * file's lock for as long as an allocation or a fence takes, and no other client
 * waits for that. Returns -ERESTARTSYS after a signal, with the node's lock taken
 * again and the file's lock not taken.
 */
int fp_file_lock(struct video_device *vdev, struct mutex *lock)
{
	mutex_unlock(vdev->lock);
	if (!mutex_lock_interruptible(lock))
		return 0;
	mutex_lock(vdev->lock);
	return -ERESTARTSYS;
}

/* Reverses fp_file_lock(): releases the file's lock and takes the node's lock again. */
void fp_file_unlock(struct video_device *vdev, struct mutex *lock)
{
	mutex_unlock(lock);
	mutex_lock(vdev->lock);
}

/* ---- the platform driver ------------------------------------------------- */

/*
 * Registers the devices with user space, after everything that they use.
 * /dev/framepath is the last one: udev starts the decoder's service when
 * /dev/framepath appears, and the service looks for the decoder node.
 */
static int __init fp_register(void)
{
	int ret = fp_measure_register();

	if (ret)
		return ret;
	ret = fp_decoder_register();
	if (ret)
		goto no_decoder;
	ret = fp_media_register();
	if (ret)
		goto no_media;
	ret = fp_meta_register();
	if (ret)
		goto no_meta;
	ret = fp_attach_register();
	if (ret)
		goto no_attach;
	return 0;

no_attach:
	fp_meta_unregister();
no_meta:
	fp_media_unregister();
no_media:
	fp_decoder_unregister();
no_decoder:
	fp_measure_unregister();
	return ret;
}

static void fp_unregister(void)
{
	fp_attach_unregister();
	fp_meta_unregister();
	fp_media_unregister();
	fp_decoder_unregister();
	fp_measure_unregister();
}

static void fp_remove(void *unused)
{
	fp_unregister();
	fp_account_exit();
	fp_decoder_exit();
	fp_measure_exit();
	fp_meta_exit();
	v4l2_device_unregister(&fp_v4l2);
	fp_media_exit();
}

static int __init fp_probe(struct platform_device *pdev)
{
	int ret;

	fp_media_init(&pdev->dev);
	ret = v4l2_device_register(&pdev->dev, &fp_v4l2);
	if (ret)
		goto no_v4l2;
	ret = fp_meta_init();
	if (ret)
		goto no_meta;
	ret = fp_measure_init(&fp_v4l2);
	if (ret)
		goto no_measure;
	ret = fp_decoder_init(&fp_v4l2);
	if (ret)
		goto no_decoder;
	fp_account_init();
	ret = fp_register();
	if (ret)
		goto no_devices;
	/* Used instead of .remove, whose type differs between kernels. */
	return devm_add_action_or_reset(&pdev->dev, fp_remove, NULL);

no_devices:
	fp_account_exit();
	fp_decoder_exit();
no_decoder:
	fp_measure_exit();
no_measure:
	fp_meta_exit();
no_meta:
	v4l2_device_unregister(&fp_v4l2);
no_v4l2:
	fp_media_exit();
	return ret;
}

static struct platform_driver fp_driver = {
	.driver = {
		.name = FP_NAME,
	},
};

static int __init fp_init(void)
{
	fp_device = platform_create_bundle(&fp_driver, fp_probe, NULL, 0, NULL, 0);
	return PTR_ERR_OR_ZERO(fp_device);
}
module_init(fp_init);

static void __exit fp_exit(void)
{
	platform_device_unregister(fp_device);
	platform_driver_unregister(&fp_driver);
}
module_exit(fp_exit);

MODULE_AUTHOR("The framepath authors");
MODULE_DESCRIPTION("V4L2 decoder in user space, and a measuring node");
MODULE_LICENSE("GPL");
/* A decoder that gets EPROTO reads this in /sys/module/framepath/version. */
MODULE_VERSION("attach-" __stringify(FRAMEPATH_VERSION));
FP_IMPORT_NS_DMA_BUF;
