// SPDX-License-Identifier: GPL-2.0-only
/*
 * The decoder node's two vb2 queues. v4l2-mem2mem's ready lists have the buffers
 * that the client has queued; stream.c and protocol.c take them from there. All
 * functions run with the context's lock, which is the lock of both queues.
 */
#include <linux/dma-buf.h>

#include "compat.h"
#include "decoder.h"
#include "trace_decoder.h"

static int fp_queue_setup(struct vb2_queue *q, unsigned int *buffers, unsigned int *planes,
			  unsigned int sizes[], struct device *alloc_devs[])
{
	struct fp_ctx *ctx = vb2_get_drv_priv(q);
	u32 size = q->is_output ? ctx->coded.sizeimage : fp_capture_sizeimage(ctx);

	if (*planes)
		return *planes == 1 && sizes[0] >= size &&
		       sizes[0] <= fp_plane_limit(ctx, q->is_output) ? 0 : -EINVAL;

	if (!q->is_output)
		*buffers = max(*buffers, ctx->format.min_buffers);
	*planes = 1;
	sizes[0] = size;
	return 0;
}

static int fp_buf_out_validate(struct vb2_buffer *vb)
{
	struct vb2_v4l2_buffer *vbuf = to_vb2_v4l2_buffer(vb);

	if (vbuf->field == V4L2_FIELD_ANY)
		vbuf->field = V4L2_FIELD_NONE;
	return 0;
}

/* Numbers the memory of a buffer, so that the decoder maps new memory anew. */
static int fp_buf_init(struct vb2_buffer *vb)
{
	struct fp_ctx *ctx = vb2_get_drv_priv(vb->vb2_queue);

	fp_buffer_of(to_vb2_v4l2_buffer(vb))->generation = ++ctx->generation;
	return 0;
}

/*
 * Returns the direction of the CPU's access to a buffer: the module reads packets for
 * the decoder, and the decoder reads and writes CAPTURE buffers that it maps.
 */
static enum dma_data_direction fp_cpu_access(const struct vb2_buffer *vb)
{
	return vb->vb2_queue->is_output ? DMA_FROM_DEVICE : DMA_BIDIRECTIONAL;
}

/*
 * Gives an imported buffer to the CPU, until buf_finish. The exporter may wait for a
 * device until a signal comes; only this client's lock is held meanwhile.
 */
static int fp_buf_prepare(struct vb2_buffer *vb)
{
	int ret;

	if (vb->memory != VB2_MEMORY_DMABUF)
		return 0;
	ret = dma_buf_begin_cpu_access(vb->planes[0].dbuf, fp_cpu_access(vb));
	if (!ret)
		atomic_long_inc(&fp_counts.cpu_access_begun);
	return ret;
}

static void fp_buf_finish(struct vb2_buffer *vb)
{
	if (vb->memory != VB2_MEMORY_DMABUF)
		return;
	dma_buf_end_cpu_access(vb->planes[0].dbuf, fp_cpu_access(vb));
	atomic_long_inc(&fp_counts.cpu_access_ended);
}

static void fp_queue_packet(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf)
{
	struct fp_buffer *buffer = fp_buffer_of(vbuf);
	u32 bytes = vb2_get_plane_payload(&vbuf->vb2_buf, 0);

	buffer->announced = false;
	buffer->seq = ctx->next_seq++;
	/* The packet one window earlier had the same bit. */
	__clear_bit(buffer->seq % FRAMEPATH_DELIVERED_WINDOW, ctx->delivered);
	v4l2_m2m_buf_queue(ctx->fh.m2m_ctx, vbuf);
	trace_fp_packet_queued(ctx->number, buffer->seq, vbuf->vb2_buf.index, bytes);
	fp_event_signal(&ctx->packets);
	fp_stream_update(ctx);
}

static void fp_queue_capture(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf)
{
	struct fp_buffer *buffer = fp_buffer_of(vbuf);

	buffer->announced = false;
	trace_fp_capture_queued(ctx->number, vbuf->vb2_buf.index, buffer->generation);
	v4l2_m2m_buf_queue(ctx->fh.m2m_ctx, vbuf);
	if (v4l2_m2m_dst_buf_is_last(ctx->fh.m2m_ctx))
		fp_drain_last(ctx, vbuf);
	else if (ctx->change_last_due)
		fp_change_last(ctx, vbuf);
	else
		fp_event_signal(&ctx->captures);
	fp_stream_update(ctx);
}

static void fp_buf_queue(struct vb2_buffer *vb)
{
	struct fp_ctx *ctx = vb2_get_drv_priv(vb->vb2_queue);

	if (vb->vb2_queue->is_output)
		fp_queue_packet(ctx, to_vb2_v4l2_buffer(vb));
	else
		fp_queue_capture(ctx, to_vb2_v4l2_buffer(vb));
}

static int fp_start_streaming(struct vb2_queue *q, unsigned int count)
{
	struct fp_ctx *ctx = vb2_get_drv_priv(q);

	if (q->is_output)
		fp_output_on(ctx);
	else
		fp_capture_on(ctx);
	return 0;
}

static void fp_stop_streaming(struct vb2_queue *q)
{
	struct fp_ctx *ctx = vb2_get_drv_priv(q);
	struct vb2_v4l2_buffer *vbuf;

	for (;;) {
		if (q->is_output)
			vbuf = v4l2_m2m_src_buf_remove(ctx->fh.m2m_ctx);
		else
			vbuf = v4l2_m2m_dst_buf_remove(ctx->fh.m2m_ctx);
		if (!vbuf)
			break;
		v4l2_m2m_buf_done(vbuf, VB2_BUF_STATE_ERROR);
	}

	if (q->is_output)
		fp_output_off(ctx);
	else
		fp_capture_off(ctx);
}

static const struct vb2_ops fp_queue_ops = {
	.queue_setup = fp_queue_setup,
	.buf_out_validate = fp_buf_out_validate,
	.buf_init = fp_buf_init,
	.buf_prepare = fp_buf_prepare,
	.buf_finish = fp_buf_finish,
	.buf_queue = fp_buf_queue,
	.start_streaming = fp_start_streaming,
	.stop_streaming = fp_stop_streaming,
	FP_VB2_WAIT_OPS
};

static int fp_queue_init_one(struct fp_ctx *ctx, struct vb2_queue *q, u32 type)
{
	q->type = type;
	q->io_modes = VB2_MMAP | VB2_DMABUF;
	q->drv_priv = ctx;
	q->ops = &fp_queue_ops;
	q->mem_ops = &fp_memory_ops;
	q->buf_struct_size = sizeof(struct fp_buffer);
	q->timestamp_flags = V4L2_BUF_FLAG_TIMESTAMP_COPY;
	q->lock = &ctx->lock;
	q->dev = fp_decoder.v4l2_dev->dev;
	return vb2_queue_init(q);
}

int fp_queue_init(void *priv, struct vb2_queue *src, struct vb2_queue *dst)
{
	struct fp_ctx *ctx = priv;
	int ret;

	ret = fp_queue_init_one(ctx, src, V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE);
	if (ret)
		return ret;
	return fp_queue_init_one(ctx, dst, V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE);
}
