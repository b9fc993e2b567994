// SPDX-License-Identifier: GPL-2.0-only
/*
 * The decoder node: a V4L2 stateful video decoder, multi-planar with one plane.
 *
 * The node parses no bitstream and touches no pixel. The process that has attached
 * to /dev/framepath (attach.c) takes the client's packets and decodes into the
 * client's own CAPTURE buffers. v4l2-mem2mem supplies the two queues and the
 * helpers of their ioctls; none of its jobs ever runs.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <media/v4l2-event.h>
#include <media/v4l2-ioctl.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"

#define CREATE_TRACE_POINTS
#include "trace_decoder.h"

struct fp_decoder fp_decoder;

unsigned int fp_patience_ms = 5000;
module_param_named(patience_ms, fp_patience_ms, uint, 0644);
MODULE_PARM_DESC(patience_ms,
		 "time that a client waits for a decoder before its stream fails, ms; default 5000");

unsigned int fp_silence_ms = 10000;
module_param_named(silence_ms, fp_silence_ms, uint, 0644);
MODULE_PARM_DESC(silence_ms,
		 "time without progress of the decoder after which a stream fails, ms; 0: no limit; default 10000");

/* v4l2-compliance 1.30 does not know AV1, and runs no decoder tests on a node with it. */
bool fp_av1 = true;
module_param_named(av1, fp_av1, bool, 0444);
MODULE_PARM_DESC(av1, "the decoder node offers AV1; default yes");

/* ---- ioctls -------------------------------------------------------------- */

/*
 * Returns the context of an open file of the node. The V4L2 core holds the context's
 * lock in ioctls of the queues, and the node's lock in other ioctls.
 */
static struct fp_ctx *fp_file_ctx(struct file *file)
{
	return fp_ctx_of(fp_file_fh(file));
}

static int fp_ctx_lock(struct fp_ctx *ctx)
{
	return fp_file_lock(&fp_decoder.vdev, &ctx->lock);
}

static void fp_ctx_unlock(struct fp_ctx *ctx)
{
	fp_file_unlock(&fp_decoder.vdev, &ctx->lock);
}

static int fp_querycap(struct file *file, void *priv, struct v4l2_capability *cap)
{
	strscpy(cap->driver, FP_NAME, sizeof(cap->driver));
	strscpy(cap->card, FP_NAME "-decoder", sizeof(cap->card));
	return 0;
}

static int fp_enum_fmt_output(struct file *file, void *priv, struct v4l2_fmtdesc *f)
{
	return fp_enum_output(f);
}

static int fp_enum_fmt_capture(struct file *file, void *priv, struct v4l2_fmtdesc *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_enum_capture(ctx, f);
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_enum_sizes(struct file *file, void *priv, struct v4l2_frmsizeenum *f)
{
	return fp_enum_framesizes(f);
}

static int fp_g_fmt_output(struct file *file, void *priv, struct v4l2_format *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	fp_get_output(ctx, f);
	fp_ctx_unlock(ctx);
	return 0;
}

static int fp_try_fmt_output(struct file *file, void *priv, struct v4l2_format *f)
{
	fp_try_output(f);
	return 0;
}

static int fp_s_fmt_output(struct file *file, void *priv, struct v4l2_format *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret = 0;

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	if (vb2_is_busy(fp_output_queue(ctx)) || vb2_is_busy(fp_capture_queue(ctx))) {
		ret = -EBUSY;
	} else {
		fp_set_output(ctx, f);
		fp_stream_renew(ctx);
	}
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_g_fmt_capture(struct file *file, void *priv, struct v4l2_format *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_stream_await_format(ctx);
	if (!ret) {
		fp_get_capture(ctx, f);
		ctx->format_asked = ctx->format_run;
	}
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_try_fmt_capture(struct file *file, void *priv, struct v4l2_format *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_stream_await_format(ctx);
	if (!ret)
		fp_try_capture(ctx, f);
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_s_fmt_capture(struct file *file, void *priv, struct v4l2_format *f)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_stream_await_format(ctx);
	if (ret)
		goto unlock;
	fp_try_capture(ctx, f);
	if (f->fmt.pix_mp.pixelformat != ctx->pixelformat) {
		ret = -EBUSY;
		if (vb2_is_busy(fp_capture_queue(ctx)))
			goto unlock;
		ctx->pixelformat = f->fmt.pix_mp.pixelformat;
	}
	ctx->format_asked = ctx->format_run;
	ret = 0;
unlock:
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_g_selection(struct file *file, void *priv, struct v4l2_selection *s)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	/* The core replaces the multi-planar types by single-planar ones. */
	if (s->type != V4L2_BUF_TYPE_VIDEO_CAPTURE)
		return -EINVAL;
	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_stream_await_format(ctx);
	if (!ret)
		ret = fp_get_selection(ctx, s);
	fp_ctx_unlock(ctx);
	return ret;
}

/*
 * Changes nothing, as nothing is scaled. The ioctl exists because ffmpeg reads the
 * selection only if it can be set.
 */
static int fp_s_selection(struct file *file, void *priv, struct v4l2_selection *s)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (s->type != V4L2_BUF_TYPE_VIDEO_CAPTURE)
		return -EINVAL;
	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	ret = fp_stream_await_format(ctx);
	if (!ret)
		ret = fp_set_selection(ctx, s);
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_reqbufs(struct file *file, void *priv, struct v4l2_requestbuffers *rb)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (V4L2_TYPE_IS_CAPTURE(rb->type) && rb->count) {
		ret = fp_stream_await_format(ctx);
		if (ret)
			return ret;
	}
	return v4l2_m2m_ioctl_reqbufs(file, priv, rb);
}

static int fp_create_bufs(struct file *file, void *priv, struct v4l2_create_buffers *create)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret;

	if (V4L2_TYPE_IS_CAPTURE(create->format.type) && create->count) {
		ret = fp_stream_await_format(ctx);
		if (ret)
			return ret;
	}
	return v4l2_m2m_ioctl_create_bufs(file, priv, create);
}

static int fp_streamon(struct file *file, void *priv, enum v4l2_buf_type type)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	bool was_on = ctx->on[FRAMEPATH_QUEUE_OUTPUT];
	int ret;

	if (fp_ctx_failed(ctx))
		return -EIO;
	if (type == fp_capture_queue(ctx)->type) {
		/* Buffers too small for the format that the client knows. */
		if (ctx->format_asked == ctx->format_run && !fp_capture_fits(ctx))
			return -EINVAL;
		return v4l2_m2m_ioctl_streamon(file, priv, type);
	}

	/* The number of open files is not limited, that of streams is. */
	if (!was_on) {
		ret = fp_account_stream_begin(ctx->owner.account);
		if (ret)
			return ret;
	}
	ret = v4l2_m2m_ioctl_streamon(file, priv, type);
	/* fp_output_off() ends a stream that is on. */
	if (ret && !was_on)
		fp_account_stream_end(ctx->owner.account);
	return ret;
}

static int fp_streamoff(struct file *file, void *priv, enum v4l2_buf_type type)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int queue = V4L2_TYPE_IS_OUTPUT(type) ? FRAMEPATH_QUEUE_OUTPUT : FRAMEPATH_QUEUE_CAPTURE;
	int ret = v4l2_m2m_ioctl_streamoff(file, priv, type);

	if (!ret)
		ctx->failed[queue] = false;
	return ret;
}

static int fp_decoder_cmd(struct file *file, void *priv, struct v4l2_decoder_cmd *cmd)
{
	struct fp_ctx *ctx = fp_file_ctx(file);
	int ret = v4l2_m2m_ioctl_try_decoder_cmd(file, priv, cmd);

	if (ret)
		return ret;
	if (fp_ctx_lock(ctx))
		return -ERESTARTSYS;
	if (fp_ctx_failed(ctx))
		ret = -EIO;
	else if (cmd->cmd == V4L2_DEC_CMD_STOP)
		ret = fp_stop_command(ctx);
	else
		ret = fp_start_command(ctx, file, cmd);
	fp_ctx_unlock(ctx);
	return ret;
}

static int fp_subscribe_event(struct v4l2_fh *fh, const struct v4l2_event_subscription *sub)
{
	switch (sub->type) {
	case V4L2_EVENT_EOS:
		return v4l2_event_subscribe(fh, sub, 0, NULL);
	case V4L2_EVENT_SOURCE_CHANGE:
		return v4l2_src_change_event_subscribe(fh, sub);
	default:
		return v4l2_ctrl_subscribe_event(fh, sub);
	}
}

static const struct v4l2_ioctl_ops fp_ioctl_ops = {
	.vidioc_querycap = fp_querycap,
	.vidioc_enum_fmt_vid_out = fp_enum_fmt_output,
	.vidioc_enum_fmt_vid_cap = fp_enum_fmt_capture,
	.vidioc_enum_framesizes = fp_enum_sizes,
	.vidioc_g_fmt_vid_out_mplane = fp_g_fmt_output,
	.vidioc_try_fmt_vid_out_mplane = fp_try_fmt_output,
	.vidioc_s_fmt_vid_out_mplane = fp_s_fmt_output,
	.vidioc_g_fmt_vid_cap_mplane = fp_g_fmt_capture,
	.vidioc_try_fmt_vid_cap_mplane = fp_try_fmt_capture,
	.vidioc_s_fmt_vid_cap_mplane = fp_s_fmt_capture,
	.vidioc_g_selection = fp_g_selection,
	.vidioc_s_selection = fp_s_selection,

	.vidioc_reqbufs = fp_reqbufs,
	.vidioc_create_bufs = fp_create_bufs,
	FP_IOCTL_REMOVE_BUFS
	.vidioc_querybuf = v4l2_m2m_ioctl_querybuf,
	.vidioc_prepare_buf = v4l2_m2m_ioctl_prepare_buf,
	.vidioc_qbuf = v4l2_m2m_ioctl_qbuf,
	.vidioc_dqbuf = v4l2_m2m_ioctl_dqbuf,
	.vidioc_expbuf = v4l2_m2m_ioctl_expbuf,
	.vidioc_streamon = fp_streamon,
	.vidioc_streamoff = fp_streamoff,

	.vidioc_try_decoder_cmd = v4l2_m2m_ioctl_try_decoder_cmd,
	.vidioc_decoder_cmd = fp_decoder_cmd,
	.vidioc_subscribe_event = fp_subscribe_event,
	.vidioc_unsubscribe_event = v4l2_event_unsubscribe,
};

/* ---- files --------------------------------------------------------------- */

static int fp_ctx_controls(struct fp_ctx *ctx)
{
	v4l2_ctrl_handler_init(&ctx->controls, 1);
	ctx->min_buffers = v4l2_ctrl_new_std(&ctx->controls, NULL,
					     V4L2_CID_MIN_BUFFERS_FOR_CAPTURE,
					     1, FP_CAPTURE_MAX, 1, 1);
	return ctx->controls.error;
}

static struct fp_ctx *fp_ctx_new(void)
{
	struct fp_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int ret;

	BUILD_BUG_ON(offsetof(struct fp_ctx, owner));
	if (!ctx)
		return ERR_PTR(-ENOMEM);
	ctx->owner.account = fp_account_open();
	if (!ctx->owner.account) {
		kfree(ctx);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&ctx->ref);
	mutex_init(&ctx->lock);
	fp_event_init(&ctx->packets);
	fp_event_init(&ctx->captures);
	fp_event_init(&ctx->formats);
	INIT_DELAYED_WORK(&ctx->patience, fp_stream_patience);
	INIT_DELAYED_WORK(&ctx->retry, fp_ctx_retry);
	INIT_WORK(&ctx->orphan, fp_ctx_orphan);
	fp_format_reset(ctx);

	ret = fp_ctx_controls(ctx);
	if (ret)
		goto no_controls;
	ctx->fh.m2m_ctx = v4l2_m2m_ctx_init(fp_decoder.m2m, ctx, fp_queue_init);
	if (IS_ERR(ctx->fh.m2m_ctx)) {
		ret = PTR_ERR(ctx->fh.m2m_ctx);
		goto no_controls;
	}
	return ctx;

no_controls:
	v4l2_ctrl_handler_free(&ctx->controls);
	mutex_destroy(&ctx->lock);
	fp_account_put(ctx->owner.account);
	kfree(ctx);
	return ERR_PTR(ret);
}

/*
 * Ends the queues and the stream of a file that is being closed. The decoder's
 * descriptors keep the context, but their requests fail from now on.
 */
static void fp_ctx_close(struct fp_ctx *ctx)
{
	mutex_lock(&ctx->lock);
	v4l2_m2m_ctx_release(ctx->fh.m2m_ctx);
	ctx->closed = true;
	fp_event_signal(&ctx->packets);
	fp_event_signal(&ctx->captures);
	/* The decoder has its own reference; no other one is needed. */
	if (ctx->stash)
		fput(ctx->stash);
	ctx->stash = NULL;
	mutex_unlock(&ctx->lock);
	cancel_delayed_work_sync(&ctx->patience);
	if (cancel_work_sync(&ctx->orphan))
		kref_put(&ctx->ref, fp_ctx_free);
}

static int fp_open(struct file *file)
{
	struct fp_ctx *ctx = fp_ctx_new();

	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	v4l2_fh_init(&ctx->fh, &fp_decoder.vdev);
	ctx->fh.ctrl_handler = &ctx->controls;
	fp_fh_add(&ctx->fh, file);
	mutex_lock(&fp_decoder.lock);
	ctx->number = ++fp_decoder.number;
	list_add_tail(&ctx->node, &fp_decoder.contexts);
	mutex_unlock(&fp_decoder.lock);
	return 0;
}

static int fp_release(struct file *file)
{
	struct fp_ctx *ctx = fp_file_ctx(file);

	mutex_lock(&fp_decoder.lock);
	list_del(&ctx->node);
	mutex_unlock(&fp_decoder.lock);

	/* Before the handle goes: no event is queued after this. */
	fp_ctx_close(ctx);
	fp_fh_del(&ctx->fh, file);
	v4l2_fh_exit(&ctx->fh);
	v4l2_ctrl_handler_free(&ctx->controls);
	kref_put(&ctx->ref, fp_ctx_free);
	return 0;
}

static const struct v4l2_file_operations fp_fops = {
	.owner = THIS_MODULE,
	.open = fp_open,
	.release = fp_release,
	.poll = v4l2_m2m_fop_poll,
	.unlocked_ioctl = video_ioctl2,
	.mmap = v4l2_m2m_fop_mmap,
};

/* ---- the node ------------------------------------------------------------ */

/* There are no jobs, as the decoder takes the buffers by itself. */
static int fp_job_ready(void *priv)
{
	return 0;
}

static void fp_device_run(void *priv)
{
}

static const struct v4l2_m2m_ops fp_m2m_ops = {
	.job_ready = fp_job_ready,
	.device_run = fp_device_run,
};

int fp_decoder_init(struct v4l2_device *v4l2_dev)
{
	struct video_device *vdev = &fp_decoder.vdev;

	fp_decoder.v4l2_dev = v4l2_dev;
	mutex_init(&fp_decoder.lock);
	mutex_init(&fp_decoder.vdev_lock);
	INIT_LIST_HEAD(&fp_decoder.contexts);
	fp_event_init(&fp_decoder.wanted);
	fp_decoder.m2m = v4l2_m2m_init(&fp_m2m_ops);
	if (IS_ERR(fp_decoder.m2m))
		return PTR_ERR(fp_decoder.m2m);
	fp_decoder.work = alloc_workqueue(FP_NAME, WQ_UNBOUND, 0);
	if (!fp_decoder.work) {
		v4l2_m2m_release(fp_decoder.m2m);
		return -ENOMEM;
	}

	strscpy(vdev->name, FP_NAME "-decoder", sizeof(vdev->name));
	vdev->v4l2_dev = v4l2_dev;
	vdev->fops = &fp_fops;
	vdev->ioctl_ops = &fp_ioctl_ops;
	vdev->lock = &fp_decoder.vdev_lock;
	vdev->vfl_dir = VFL_DIR_M2M;
	vdev->device_caps = V4L2_CAP_VIDEO_M2M_MPLANE | V4L2_CAP_STREAMING;
	vdev->release = video_device_release_empty;

	return 0;
}

void fp_decoder_exit(void)
{
	destroy_workqueue(fp_decoder.work);
	v4l2_m2m_release(fp_decoder.m2m);
}

int fp_decoder_register(void)
{
	int ret = video_register_device(&fp_decoder.vdev, VFL_TYPE_VIDEO, -1);

	if (ret)
		return ret;
	ret = v4l2_m2m_register_media_controller(fp_decoder.m2m, &fp_decoder.vdev,
						 MEDIA_ENT_F_PROC_VIDEO_DECODER);
	if (ret)
		video_unregister_device(&fp_decoder.vdev);
	return ret;
}

void fp_decoder_unregister(void)
{
	v4l2_m2m_unregister_media_controller(fp_decoder.m2m);
	video_unregister_device(&fp_decoder.vdev);
}
