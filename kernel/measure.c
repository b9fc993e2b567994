// SPDX-License-Identifier: GPL-2.0-only
/*
 * The measuring node: a mem2mem device that applies a threshold to a GREY frame,
 * and records the time of each step and the number of copied bytes.
 *
 * The node processes a frame in the ioctl that completes its pair of buffers, QBUF
 * or STREAMON of either queue, before that ioctl returns. This has the lowest
 * latency, as no thread is woken, and the times are those of the path and not of a
 * scheduler. A client that wants to overlap its own work queues from another
 * thread; files do not wait for each other. v4l2-mem2mem supplies the queues, but
 * its jobs are not used: v4l2_m2m_job_finish() schedules a work item per job, which
 * costs a switch to a kernel thread per frame, and its one job at a time per device
 * makes files wait for each other.
 *
 * The controls are read at the begin of VIDIOC_QBUF of an OUTPUT buffer, all under
 * the lock of VIDIOC_S_EXT_CTRLS, so a buffer has all values of such a call or none.
 *
 * The node has no scaling, no other format, no request API and no fences of its
 * own; QBUF waits for the fences of a dmabuf.
 */
#include <linux/crc32.h>
#include <linux/dma-buf.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <media/v4l2-ctrls.h>
#include <media/v4l2-device.h>
#include <media/v4l2-event.h>
#include <media/v4l2-fh.h>
#include <media/v4l2-ioctl.h>
#include <media/v4l2-mem2mem.h>
#include <media/videobuf2-v4l2.h>

#include "account.h"
#include "compat.h"
#include "core.h"
#include "measure.h"
#include "measure_controls.h"
#include "memory.h"
#include "meta.h"
#include "pixels.h"
#include "uapi/framepath.h"

#define CREATE_TRACE_POINTS
#include "trace_measure.h"

#define FP_MEASURE_NAME FP_NAME "-measure"
#define FP_MEASURE_SMALLEST 4U		/* width and height, pixels */
#define FP_MEASURE_LARGEST 4096U

static struct {
	struct v4l2_m2m_dev *m2m;
	struct video_device video;
	struct mutex lock;		/* video's: see fp_file_lock() */
	atomic_t contexts;		/* opened since the module was loaded */
} node;

struct fp_measure_context {
	struct fp_queue_owner owner;	/* first: fp_memory_ops */
	struct v4l2_fh fh;
	struct fp_measure_controls controls;
	struct mutex lock;		/* guards both queues and what follows */
	struct v4l2_pix_format format;	/* of both queues */
	u32 sequence;			/* frames since OUTPUT was started */
	u32 number;
};

struct fp_measure_buffer {
	struct v4l2_m2m_buffer m2m;	/* first: vb2 allocates it as this */
	struct fp_measure_order order;	/* OUTPUT: controls at its QBUF */
	u64 queued_ns;			/* OUTPUT: time of its QBUF */
	u64 handed_ns;			/* time of buf_queue */
};

static struct fp_measure_context *to_context(struct file *file)
{
	return container_of(fp_file_fh(file), struct fp_measure_context, fh);
}

static struct fp_measure_buffer *to_buffer(struct vb2_v4l2_buffer *vbuf)
{
	return container_of(vbuf, struct fp_measure_buffer, m2m.vb);
}

/* ---- a frame ------------------------------------------------------------ */

static void fp_measure_pixels(struct fp_measure_context *ctx, struct fp_measure_buffer *from,
			      struct fp_measure_buffer *to, struct fp_meta_record *record)
{
	const struct fp_measure_order *order = &from->order;
	struct vb2_buffer *from_vb = &from->m2m.vb.vb2_buf;
	struct vb2_buffer *to_vb = &to->m2m.vb.vb2_buf;
	u8 *from_memory = vb2_plane_vaddr(from_vb, 0);
	u8 *to_memory = vb2_plane_vaddr(to_vb, 0);
	struct fp_region region = {};

	if (!from_memory || !to_memory) {
		record->status = FRAMEPATH_STATUS_FAILED;
		return;
	}
	if (order->algo == FRAMEPATH_ALGO_THRESHOLD) {
		region = order->region;
		if (fp_region_clamp(&region, ctx->format.width, ctx->format.height))
			record->status = FRAMEPATH_STATUS_ROI_CLAMPED;
		record->roi[0] = region.left;
		record->roi[1] = region.top;
		record->roi[2] = region.width;
		record->roi[3] = region.height;
		record->value[0] = order->level;
	}

	if (order->in_place && fp_memory_same(from_vb, to_vb, ctx->format.sizeimage))
		record->flags |= FRAMEPATH_META_IN_PLACE;
	else
		record->copied = fp_copy_around(to_memory, from_memory, ctx->format.width,
						ctx->format.height, &region);
	if (order->algo == FRAMEPATH_ALGO_THRESHOLD)
		record->value[1] = fp_threshold(to_memory, from_memory, ctx->format.width,
						&region, order->level);
}

/* Not a part of the work on the pixels, which end_ns ends. */
static void fp_measure_checksum(struct fp_measure_context *ctx, struct fp_measure_buffer *to,
				struct fp_meta_record *record)
{
	const u8 *memory = vb2_plane_vaddr(&to->m2m.vb.vb2_buf, 0);

	record->crc32 = ~crc32_le(~0, memory, ctx->format.sizeimage);
	record->checksum_ns = ktime_get_ns();
	record->flags |= FRAMEPATH_META_CRC32;
}

static void fp_measure_frame(struct fp_measure_context *ctx, struct fp_measure_buffer *from,
			     struct fp_measure_buffer *to)
{
	struct vb2_v4l2_buffer *from_vbuf = &from->m2m.vb;
	struct vb2_v4l2_buffer *to_vbuf = &to->m2m.vb;
	const u32 travels = V4L2_BUF_FLAG_TIMECODE | V4L2_BUF_FLAG_KEYFRAME | V4L2_BUF_FLAG_PFRAME |
			    V4L2_BUF_FLAG_BFRAME | V4L2_BUF_FLAG_TSTAMP_SRC_MASK;
	struct fp_meta_record record = {
		.source_sequence = from->order.source_sequence,
		.queued_ns = from->queued_ns,
		.ready_ns = max(from->handed_ns, to->handed_ns),
		.start_ns = ktime_get_ns(),
		.context = ctx->number,
		.algo = from->order.algo,
	};
	enum vb2_buffer_state state;

	trace_fp_measure_start(ctx->number, record.source_sequence);
	fp_measure_pixels(ctx, from, to, &record);
	trace_fp_measure_end(ctx->number, record.source_sequence);
	record.end_ns = ktime_get_ns();
	if (from->order.crc32 && record.status != FRAMEPATH_STATUS_FAILED)
		fp_measure_checksum(ctx, to, &record);

	to_vbuf->vb2_buf.timestamp = from_vbuf->vb2_buf.timestamp;
	to_vbuf->timecode = from_vbuf->timecode;
	to_vbuf->field = from_vbuf->field;
	to_vbuf->flags = (to_vbuf->flags & ~travels) | (from_vbuf->flags & travels);
	to_vbuf->sequence = ctx->sequence;
	from_vbuf->sequence = ctx->sequence;
	ctx->sequence++;
	state = record.status == FRAMEPATH_STATUS_FAILED ? VB2_BUF_STATE_ERROR : VB2_BUF_STATE_DONE;

	/* The record comes first, so that it is there when the frame is dequeued. */
	v4l2_m2m_buf_done(from_vbuf, state);
	record.done_ns = ktime_get_ns();
	fp_meta_push(&record);
	trace_fp_measure_done(&record);
	v4l2_m2m_buf_done(to_vbuf, state);
}

/* Processes all frames whose buffers are queued. */
static void fp_measure_run(struct fp_measure_context *ctx)
{
	struct v4l2_m2m_ctx *queues = ctx->fh.m2m_ctx;

	lockdep_assert_held(&ctx->lock);
	while (v4l2_m2m_next_src_buf(queues) && v4l2_m2m_next_dst_buf(queues)) {
		struct vb2_v4l2_buffer *from = v4l2_m2m_src_buf_remove(queues);
		struct vb2_v4l2_buffer *to = v4l2_m2m_dst_buf_remove(queues);

		fp_measure_frame(ctx, to_buffer(from), to_buffer(to));
		cond_resched();
	}
}

/* No jobs: see the top of the file. */
static int fp_measure_job_ready(void *context)
{
	return 0;
}

static void fp_measure_device_run(void *context)
{
}

static const struct v4l2_m2m_ops fp_measure_m2m_ops = {
	.job_ready = fp_measure_job_ready,
	.device_run = fp_measure_device_run,
};

/* ---- the queues --------------------------------------------------------- */

static int fp_measure_queue_setup(struct vb2_queue *queue, unsigned int *buffers,
				  unsigned int *planes, unsigned int sizes[],
				  struct device *devices[])
{
	struct fp_measure_context *ctx = vb2_get_drv_priv(queue);

	/* CREATE_BUFS: up to the size of the largest frame. */
	if (*planes)
		return *planes == 1 && sizes[0] >= ctx->format.sizeimage &&
		       sizes[0] <= FP_MEASURE_LARGEST * FP_MEASURE_LARGEST ? 0 : -EINVAL;

	*planes = 1;
	sizes[0] = ctx->format.sizeimage;
	return 0;
}

static int fp_measure_buf_out_validate(struct vb2_buffer *vb)
{
	struct vb2_v4l2_buffer *vbuf = to_vb2_v4l2_buffer(vb);

	if (vbuf->field == V4L2_FIELD_ANY)
		vbuf->field = V4L2_FIELD_NONE;
	return vbuf->field == V4L2_FIELD_NONE ? 0 : -EINVAL;
}

/*
 * Waits until other users of a dmabuf are done; a signal ends the wait. vb2 calls
 * buf_finish for each buffer that was prepared.
 */
static int fp_measure_buf_prepare(struct vb2_buffer *vb)
{
	struct fp_measure_context *ctx = vb2_get_drv_priv(vb->vb2_queue);
	bool output = V4L2_TYPE_IS_OUTPUT(vb->vb2_queue->type);

	if (vb2_plane_size(vb, 0) < ctx->format.sizeimage)
		return -EINVAL;
	if (output && vb2_get_plane_payload(vb, 0) < ctx->format.sizeimage)
		return -EINVAL;
	vb2_set_plane_payload(vb, 0, ctx->format.sizeimage);

	if (vb->memory != VB2_MEMORY_DMABUF)
		return 0;
	return dma_buf_begin_cpu_access(vb->planes[0].dbuf,
					output ? DMA_FROM_DEVICE : DMA_BIDIRECTIONAL);
}

static void fp_measure_buf_finish(struct vb2_buffer *vb)
{
	bool output = V4L2_TYPE_IS_OUTPUT(vb->vb2_queue->type);

	if (vb->memory == VB2_MEMORY_DMABUF)
		dma_buf_end_cpu_access(vb->planes[0].dbuf,
				       output ? DMA_FROM_DEVICE : DMA_BIDIRECTIONAL);
}

static void fp_measure_buf_queue(struct vb2_buffer *vb)
{
	struct fp_measure_context *ctx = vb2_get_drv_priv(vb->vb2_queue);
	struct vb2_v4l2_buffer *vbuf = to_vb2_v4l2_buffer(vb);

	to_buffer(vbuf)->handed_ns = ktime_get_ns();
	v4l2_m2m_buf_queue(ctx->fh.m2m_ctx, vbuf);
}

static int fp_measure_start_streaming(struct vb2_queue *queue, unsigned int count)
{
	struct fp_measure_context *ctx = vb2_get_drv_priv(queue);

	if (V4L2_TYPE_IS_OUTPUT(queue->type))
		ctx->sequence = 0;
	return 0;
}

static void fp_measure_stop_streaming(struct vb2_queue *queue)
{
	struct fp_measure_context *ctx = vb2_get_drv_priv(queue);
	struct vb2_v4l2_buffer *vbuf;

	for (;;) {
		if (V4L2_TYPE_IS_OUTPUT(queue->type))
			vbuf = v4l2_m2m_src_buf_remove(ctx->fh.m2m_ctx);
		else
			vbuf = v4l2_m2m_dst_buf_remove(ctx->fh.m2m_ctx);
		if (!vbuf)
			return;
		v4l2_m2m_buf_done(vbuf, VB2_BUF_STATE_ERROR);
	}
}

static const struct vb2_ops fp_measure_vb2_ops = {
	.queue_setup = fp_measure_queue_setup,
	.buf_out_validate = fp_measure_buf_out_validate,
	.buf_prepare = fp_measure_buf_prepare,
	.buf_finish = fp_measure_buf_finish,
	.buf_queue = fp_measure_buf_queue,
	.start_streaming = fp_measure_start_streaming,
	.stop_streaming = fp_measure_stop_streaming,
	FP_VB2_WAIT_OPS
};

static int fp_measure_queue_init(void *context, struct vb2_queue *output,
				 struct vb2_queue *capture)
{
	struct fp_measure_context *ctx = context;
	struct vb2_queue *queues[] = { output, capture };
	int i, ret;

	output->type = V4L2_BUF_TYPE_VIDEO_OUTPUT;
	capture->type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
	for (i = 0; i < ARRAY_SIZE(queues); i++) {
		queues[i]->io_modes = VB2_MMAP | VB2_DMABUF | VB2_USERPTR;
		queues[i]->drv_priv = ctx;
		queues[i]->buf_struct_size = sizeof(struct fp_measure_buffer);
		queues[i]->ops = &fp_measure_vb2_ops;
		queues[i]->mem_ops = &fp_memory_ops;
		queues[i]->timestamp_flags = V4L2_BUF_FLAG_TIMESTAMP_COPY;
		queues[i]->lock = &ctx->lock;
		ret = vb2_queue_init(queues[i]);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---- ioctls ------------------------------------------------------------- */

static int fp_measure_querycap(struct file *file, void *priv, struct v4l2_capability *cap)
{
	strscpy(cap->driver, FP_NAME, sizeof(cap->driver));
	strscpy(cap->card, FP_MEASURE_NAME, sizeof(cap->card));
	return 0;
}

static int fp_measure_enum_fmt(struct file *file, void *priv, struct v4l2_fmtdesc *format)
{
	if (format->index)
		return -EINVAL;
	format->pixelformat = V4L2_PIX_FMT_GREY;
	return 0;
}

static int fp_measure_enum_framesizes(struct file *file, void *priv, struct v4l2_frmsizeenum *size)
{
	if (size->index || size->pixel_format != V4L2_PIX_FMT_GREY)
		return -EINVAL;
	fp_any_size(size, FP_MEASURE_SMALLEST, FP_MEASURE_LARGEST);
	return 0;
}

/* Adjusts the format to the nearest supported one; colours stay. */
static void fp_measure_nearest(struct v4l2_pix_format *pix)
{
	pix->width = clamp(pix->width, FP_MEASURE_SMALLEST, FP_MEASURE_LARGEST);
	pix->height = clamp(pix->height, FP_MEASURE_SMALLEST, FP_MEASURE_LARGEST);
	pix->pixelformat = V4L2_PIX_FMT_GREY;
	pix->field = V4L2_FIELD_NONE;
	pix->bytesperline = pix->width;
	pix->sizeimage = pix->width * pix->height;
	if (pix->colorspace == V4L2_COLORSPACE_DEFAULT)
		pix->colorspace = V4L2_COLORSPACE_REC709;
}

static int fp_measure_try_fmt_output(struct file *file, void *priv, struct v4l2_format *format)
{
	fp_measure_nearest(&format->fmt.pix);
	return 0;
}

/* Both queues have OUTPUT's format; CAPTURE's cannot be set. */
static int fp_measure_g_fmt(struct file *file, void *priv, struct v4l2_format *format)
{
	struct fp_measure_context *ctx = to_context(file);

	if (fp_file_lock(&node.video, &ctx->lock))
		return -ERESTARTSYS;
	format->fmt.pix = ctx->format;
	fp_file_unlock(&node.video, &ctx->lock);
	return 0;
}

static int fp_measure_s_fmt_output(struct file *file, void *priv, struct v4l2_format *format)
{
	struct fp_measure_context *ctx = to_context(file);
	struct v4l2_pix_format *pix = &format->fmt.pix;
	struct v4l2_m2m_ctx *queues = ctx->fh.m2m_ctx;
	int ret = 0;

	fp_measure_nearest(pix);
	if (fp_file_lock(&node.video, &ctx->lock))
		return -ERESTARTSYS;
	if (vb2_is_busy(v4l2_m2m_get_src_vq(queues)) ||
	    (vb2_is_busy(v4l2_m2m_get_dst_vq(queues)) &&
	     (pix->width != ctx->format.width || pix->height != ctx->format.height)))
		ret = -EBUSY;
	else
		ctx->format = *pix;
	fp_file_unlock(&node.video, &ctx->lock);
	return ret;
}

/*
 * Stores the controls in the buffer. No callback of vb2 runs exactly once per QBUF
 * and at its time: PREPARE_BUF calls buf_prepare, STREAMON calls buf_queue. A buffer
 * that is already queued keeps its controls, and QBUF fails.
 */
static int fp_measure_qbuf(struct file *file, void *priv, struct v4l2_buffer *buffer)
{
	struct fp_measure_context *ctx = to_context(file);
	int ret;

	if (V4L2_TYPE_IS_OUTPUT(buffer->type)) {
		u64 queued_ns = ktime_get_ns();
		struct vb2_queue *queue = v4l2_m2m_get_src_vq(ctx->fh.m2m_ctx);
		struct vb2_buffer *vb = vb2_get_buffer(queue, buffer->index);

		if (vb && vb->state == VB2_BUF_STATE_DEQUEUED) {
			struct fp_measure_buffer *out = to_buffer(to_vb2_v4l2_buffer(vb));

			out->queued_ns = queued_ns;
			fp_measure_controls_snapshot(&ctx->controls, &out->order);
			trace_fp_measure_queue(ctx->number, out->order.source_sequence);
		}
	}
	ret = v4l2_m2m_ioctl_qbuf(file, priv, buffer);
	if (!ret)
		fp_measure_run(ctx);
	return ret;
}

static int fp_measure_streamon(struct file *file, void *priv, enum v4l2_buf_type type)
{
	int ret = v4l2_m2m_ioctl_streamon(file, priv, type);

	if (!ret)
		fp_measure_run(to_context(file));
	return ret;
}

static const struct v4l2_ioctl_ops fp_measure_ioctl_ops = {
	.vidioc_querycap = fp_measure_querycap,
	.vidioc_enum_fmt_vid_out = fp_measure_enum_fmt,
	.vidioc_enum_fmt_vid_cap = fp_measure_enum_fmt,
	.vidioc_enum_framesizes = fp_measure_enum_framesizes,
	.vidioc_try_fmt_vid_out = fp_measure_try_fmt_output,
	.vidioc_g_fmt_vid_out = fp_measure_g_fmt,
	.vidioc_s_fmt_vid_out = fp_measure_s_fmt_output,
	.vidioc_try_fmt_vid_cap = fp_measure_g_fmt,
	.vidioc_g_fmt_vid_cap = fp_measure_g_fmt,
	.vidioc_s_fmt_vid_cap = fp_measure_g_fmt,
	.vidioc_reqbufs = v4l2_m2m_ioctl_reqbufs,
	.vidioc_create_bufs = v4l2_m2m_ioctl_create_bufs,
	FP_IOCTL_REMOVE_BUFS
	.vidioc_querybuf = v4l2_m2m_ioctl_querybuf,
	.vidioc_prepare_buf = v4l2_m2m_ioctl_prepare_buf,
	.vidioc_qbuf = fp_measure_qbuf,
	.vidioc_dqbuf = v4l2_m2m_ioctl_dqbuf,
	.vidioc_expbuf = v4l2_m2m_ioctl_expbuf,
	.vidioc_streamon = fp_measure_streamon,
	.vidioc_streamoff = v4l2_m2m_ioctl_streamoff,
	.vidioc_subscribe_event = v4l2_ctrl_subscribe_event,
	.vidioc_unsubscribe_event = v4l2_event_unsubscribe,
};

/* ---- files -------------------------------------------------------------- */

static int fp_measure_open(struct file *file)
{
	struct fp_measure_context *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	int ret;

	if (!ctx)
		return -ENOMEM;

	ctx->owner.account = fp_account_open();
	if (!ctx->owner.account) {
		kfree(ctx);
		return -ENOMEM;
	}
	mutex_init(&ctx->lock);
	ctx->number = atomic_inc_return(&node.contexts) - 1;
	ctx->format.width = 640;
	ctx->format.height = 480;
	fp_measure_nearest(&ctx->format);

	ret = fp_measure_controls_init(&ctx->controls);
	if (ret)
		goto free_controls;

	v4l2_fh_init(&ctx->fh, &node.video);
	ctx->fh.ctrl_handler = &ctx->controls.handler;
	ctx->fh.m2m_ctx = v4l2_m2m_ctx_init(node.m2m, ctx, fp_measure_queue_init);
	if (IS_ERR(ctx->fh.m2m_ctx)) {
		ret = PTR_ERR(ctx->fh.m2m_ctx);
		goto exit_fh;
	}
	fp_fh_add(&ctx->fh, file);
	return 0;

exit_fh:
	v4l2_fh_exit(&ctx->fh);
free_controls:
	v4l2_ctrl_handler_free(&ctx->controls.handler);
	mutex_destroy(&ctx->lock);
	fp_account_put(ctx->owner.account);
	kfree(ctx);
	return ret;
}

static int fp_measure_release(struct file *file)
{
	struct fp_measure_context *ctx = to_context(file);

	fp_fh_del(&ctx->fh, file);
	mutex_lock(&ctx->lock);
	v4l2_m2m_ctx_release(ctx->fh.m2m_ctx);
	mutex_unlock(&ctx->lock);
	v4l2_fh_exit(&ctx->fh);
	v4l2_ctrl_handler_free(&ctx->controls.handler);
	mutex_destroy(&ctx->lock);
	fp_account_put(ctx->owner.account);
	kfree(ctx);
	return 0;
}

static const struct v4l2_file_operations fp_measure_fops = {
	.owner = THIS_MODULE,
	.open = fp_measure_open,
	.release = fp_measure_release,
	.poll = v4l2_m2m_fop_poll,
	.unlocked_ioctl = video_ioctl2,
	.mmap = v4l2_m2m_fop_mmap,
};

int fp_measure_init(struct v4l2_device *v4l2_dev)
{
	BUILD_BUG_ON(offsetof(struct fp_measure_context, owner));
	node.m2m = v4l2_m2m_init(&fp_measure_m2m_ops);
	if (IS_ERR(node.m2m))
		return PTR_ERR(node.m2m);

	strscpy(node.video.name, FP_MEASURE_NAME, sizeof(node.video.name));
	node.video.vfl_dir = VFL_DIR_M2M;
	node.video.device_caps = V4L2_CAP_VIDEO_M2M | V4L2_CAP_STREAMING;
	mutex_init(&node.lock);
	node.video.lock = &node.lock;
	node.video.v4l2_dev = v4l2_dev;
	node.video.fops = &fp_measure_fops;
	node.video.ioctl_ops = &fp_measure_ioctl_ops;
	node.video.release = video_device_release_empty;
	return 0;
}

void fp_measure_exit(void)
{
	v4l2_m2m_release(node.m2m);
}

/* A look-up table, in terms of the media controller: each pixel is mapped by itself. */
int fp_measure_register(void)
{
	int ret = video_register_device(&node.video, VFL_TYPE_VIDEO, -1);

	if (ret)
		return ret;
	ret = v4l2_m2m_register_media_controller(node.m2m, &node.video,
						 MEDIA_ENT_F_PROC_VIDEO_LUT);
	if (ret)
		video_unregister_device(&node.video);
	return ret;
}

void fp_measure_unregister(void)
{
	v4l2_m2m_unregister_media_controller(node.m2m);
	video_unregister_device(&node.video);
}
