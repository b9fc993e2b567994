// SPDX-License-Identifier: GPL-2.0-only
/*
 * The decoder's side of a stream: announcements, which follow from the state of
 * the stream, and the decoder's reports, which are checked before they change that
 * state. All functions run with the context's lock.
 */
#include <linux/string.h>

#include "compat.h"
#include "decoder.h"
#include "trace_decoder.h"

/* ---- announcements to the decoder ---------------------------------------- */

/* Returns the next announcement of NEXT_PACKET: enum fp_packet_kind, or 0. */
u32 fp_packet_pending(struct fp_ctx *ctx, struct fp_buffer **buffer)
{
	struct v4l2_m2m_buffer *b;

	if (ctx->flush_packet)
		return FRAMEPATH_FLUSH;
	if (!ctx->on[FRAMEPATH_QUEUE_OUTPUT] || fp_drained(ctx))
		return 0;
	v4l2_m2m_for_each_src_buf(ctx->fh.m2m_ctx, b) {
		*buffer = fp_buffer_of(&b->vb);
		if (fp_draining(ctx) && (*buffer)->seq >= ctx->drain_seq)
			break;
		if (!(*buffer)->announced)
			return FRAMEPATH_PACKET;
	}
	/* Not before CAPTURE streams: the end of the drain needs a buffer. */
	if (fp_draining(ctx) && !ctx->drain_announced && ctx->on[FRAMEPATH_QUEUE_CAPTURE])
		return FRAMEPATH_DRAIN;
	return 0;
}

static void fp_fill_packet(struct fp_packet *packet, const struct fp_buffer *buffer)
{
	const struct vb2_v4l2_buffer *vbuf = &buffer->m2m.vb;
	const struct vb2_plane *plane = &vbuf->vb2_buf.planes[0];

	packet->seq = buffer->seq;
	packet->index = vbuf->vb2_buf.index;
	packet->generation = buffer->generation;
	packet->offset = plane->data_offset;
	packet->bytes = plane->bytesused - plane->data_offset;
	packet->mark.timestamp = vbuf->vb2_buf.timestamp;
	packet->mark.flags = vbuf->flags & FP_MARK_FLAGS;
	packet->mark.field = vbuf->field;
	BUILD_BUG_ON(sizeof(packet->mark.timecode) != sizeof(vbuf->timecode));
	if (vbuf->flags & V4L2_BUF_FLAG_TIMECODE)
		memcpy(packet->mark.timecode, &vbuf->timecode, sizeof(packet->mark.timecode));
}

bool fp_packet_next(struct fp_ctx *ctx, struct fp_packet *packet)
{
	struct fp_buffer *buffer;
	u32 kind = fp_packet_pending(ctx, &buffer);

	if (!kind)
		return false;
	memset(packet, 0, sizeof(*packet));
	packet->kind = kind;
	packet->epoch = ctx->epoch;
	switch (kind) {
	case FRAMEPATH_FLUSH:
		ctx->flush_packet = false;
		break;
	case FRAMEPATH_DRAIN:
		ctx->drain_announced = true;
		break;
	case FRAMEPATH_PACKET:
		buffer->announced = true;
		fp_fill_packet(packet, buffer);
		trace_fp_packet_taken(ctx->number, packet->seq, packet->index, packet->bytes);
		break;
	}
	fp_stream_progress(ctx);
	return true;
}

/* Returns the CAPTURE run that the decoder should know, 0: OFF. */
u32 fp_capture_current(struct fp_ctx *ctx)
{
	if (!ctx->on[FRAMEPATH_QUEUE_CAPTURE] || fp_ctx_changed(ctx))
		return 0;
	return ctx->capture_run;
}

/* Returns the next announcement of NEXT_CAPTURE: enum fp_capture_kind, or 0. */
u32 fp_capture_pending(struct fp_ctx *ctx, struct fp_buffer **buffer)
{
	u32 current_run = fp_capture_current(ctx);
	struct v4l2_m2m_buffer *b;
	u32 size;

	if (ctx->flush_capture)
		return FRAMEPATH_CAPTURE_FLUSH;
	if (ctx->capture_announced && ctx->capture_announced != current_run)
		return FRAMEPATH_CAPTURE_OFF;
	if (!current_run)
		return 0;
	if (!ctx->capture_announced)
		return FRAMEPATH_CAPTURE_ON;
	size = fp_capture_sizeimage(ctx);
	v4l2_m2m_for_each_dst_buf(ctx->fh.m2m_ctx, b) {
		*buffer = fp_buffer_of(&b->vb);
		if (!(*buffer)->announced && vb2_plane_size(&b->vb.vb2_buf, 0) >= size)
			return FRAMEPATH_CAPTURE_QUEUED;
	}
	return 0;
}

bool fp_capture_next(struct fp_ctx *ctx, struct fp_capture *capture)
{
	struct v4l2_m2m_buffer *b;
	struct fp_buffer *buffer;
	u32 kind = fp_capture_pending(ctx, &buffer);

	if (!kind)
		return false;
	memset(capture, 0, sizeof(*capture));
	capture->kind = kind;
	capture->epoch = ctx->epoch;
	switch (kind) {
	case FRAMEPATH_CAPTURE_FLUSH:
		ctx->flush_capture = false;
		break;
	case FRAMEPATH_CAPTURE_OFF:
		ctx->capture_announced = 0;
		break;
	case FRAMEPATH_CAPTURE_ON:
		ctx->capture_announced = ctx->capture_run;
		v4l2_m2m_for_each_dst_buf(ctx->fh.m2m_ctx, b)
			fp_buffer_of(&b->vb)->announced = false;
		capture->count = fp_queue_buffers(fp_capture_queue(ctx));
		capture->pixelformat = ctx->pixelformat;
		capture->length = fp_capture_sizeimage(ctx);
		break;
	case FRAMEPATH_CAPTURE_QUEUED:
		buffer->announced = true;
		capture->index = buffer->m2m.vb.vb2_buf.index;
		capture->generation = buffer->generation;
		capture->length = fp_capture_sizeimage(ctx);
		trace_fp_capture_announced(ctx->number, capture->index, capture->generation);
		break;
	}
	fp_stream_progress(ctx);
	return true;
}

/* ---- the decoder's reports ------------------------------------------------ */

int fp_packet_done(struct fp_ctx *ctx, const struct fp_packet_done *done)
{
	struct v4l2_m2m_buffer *b;

	if (done->failed > 1 || done->seq >= ctx->next_seq)
		return -EINVAL;
	v4l2_m2m_for_each_src_buf(ctx->fh.m2m_ctx, b) {
		struct fp_buffer *buffer = fp_buffer_of(&b->vb);

		if (buffer->seq != done->seq)
			continue;
		if (b->vb.vb2_buf.index != done->index || !buffer->announced)
			return -EINVAL;
		trace_fp_packet_done(ctx->number, buffer->seq, done->index,
				     vb2_get_plane_payload(&b->vb.vb2_buf, 0));
		v4l2_m2m_src_buf_remove_by_buf(ctx->fh.m2m_ctx, &b->vb);
		b->vb.sequence = ctx->sequence[FRAMEPATH_QUEUE_OUTPUT]++;
		v4l2_m2m_buf_done(&b->vb, done->failed ? VB2_BUF_STATE_ERROR :
							 VB2_BUF_STATE_DONE);
		fp_stream_progress(ctx);
		fp_event_signal(&ctx->formats);
		return 0;
	}
	/* Flushed, or already done. */
	return -ESTALE;
}

/*
 * Reports whether a client that streams on CAPTURE is already set up for the format,
 * by an earlier sequence of the stream or by its own S_FMT.
 */
static bool fp_format_expected(struct fp_ctx *ctx, const struct fp_format *format)
{
	const struct fp_format *known = &ctx->format;
	u32 native = ctx->pixelformat == V4L2_PIX_FMT_YUV420;

	if (ctx->changing)
		return false;
	/* An earlier decoder may have reported it. */
	if (fp_ctx_changed(ctx) && !ctx->change_sent)
		return false;
	if (ctx->format_known)
		return fp_format_same(known, format);
	return ctx->on[FRAMEPATH_QUEUE_CAPTURE] && ctx->pixelformat != V4L2_PIX_FMT_P010 &&
	       format->depth == 8 &&
	       format->width == known->width && format->height == known->height &&
	       format->bytesperline == known->bytesperline &&
	       !format->left && format->visible_width == known->visible_width &&
	       !format->top && format->visible_height == known->visible_height &&
	       fp_capture_sizeimage(ctx) == (native ? format->sizeimage_native :
						      format->sizeimage_packed) &&
	       format->min_buffers <= fp_queue_buffers(fp_capture_queue(ctx));
}

int fp_report_format(struct fp_ctx *ctx, const struct fp_format *format)
{
	bool expected;
	int ret = fp_format_check(format);

	if (ret)
		return ret;
	if (format->epoch != ctx->epoch)
		return -ESTALE;
	if (ctx->format_reported)
		return -EBUSY;

	expected = fp_format_expected(ctx, format);
	trace_fp_format(ctx->number, format->width, format->height, format->depth, !expected);
	fp_format_take(ctx, format);
	ctx->format_reported = true;
	ctx->changing = false;
	v4l2_ctrl_s_ctrl(ctx->min_buffers, format->min_buffers);
	if (!expected) {
		ctx->format_run++;
		fp_queue_v4l2_event(ctx, V4L2_EVENT_SOURCE_CHANGE, V4L2_EVENT_SRC_CH_RESOLUTION);
		ctx->change_sent = ctx->on[FRAMEPATH_QUEUE_CAPTURE];
		if (ctx->on[FRAMEPATH_QUEUE_CAPTURE])
			fp_send_change_last(ctx);
		fp_event_signal(&ctx->captures);
	}
	fp_event_signal(&ctx->formats);
	fp_stream_progress(ctx);
	return 0;
}

static int fp_frame_buffer(struct fp_ctx *ctx, const struct fp_frame *frame,
			   struct vb2_v4l2_buffer **vbuf)
{
	struct vb2_buffer *vb = vb2_get_buffer(fp_capture_queue(ctx), frame->index);
	struct v4l2_m2m_buffer *b;

	if (!vb)
		return -EINVAL;
	if (fp_buffer_of(to_vb2_v4l2_buffer(vb))->generation != frame->generation)
		return -ESTALE;
	v4l2_m2m_for_each_dst_buf(ctx->fh.m2m_ctx, b) {
		if (&b->vb.vb2_buf != vb)
			continue;
		*vbuf = &b->vb;
		return fp_buffer_of(&b->vb)->announced ? 0 : -EBUSY;
	}
	return -EBUSY;
}

static void fp_take_mark(struct vb2_v4l2_buffer *vbuf, const struct fp_mark *mark)
{
	vbuf->vb2_buf.timestamp = mark->timestamp;
	vbuf->field = V4L2_FIELD_NONE;
	if (mark->field > V4L2_FIELD_ANY && mark->field <= V4L2_FIELD_INTERLACED_BT)
		vbuf->field = mark->field;
	if (mark->flags & V4L2_BUF_FLAG_TIMECODE)
		memcpy(&vbuf->timecode, mark->timecode, sizeof(vbuf->timecode));
}

int fp_report_frame(struct fp_ctx *ctx, const struct fp_frame *frame)
{
	struct vb2_v4l2_buffer *vbuf;
	int ret;

	if (frame->failed > 1 || frame->reserved)
		return -EINVAL;
	if (frame->epoch != ctx->epoch)
		return -ESTALE;
	if (!ctx->format_reported)
		return -EINVAL;
	if (frame->seq >= ctx->next_seq || ctx->next_seq - frame->seq > FRAMEPATH_DELIVERED_WINDOW)
		return -ERANGE;
	/* After LAST, and while CAPTURE is OFF, the client owns every buffer. */
	if (fp_drained(ctx) || !ctx->capture_announced ||
	    ctx->capture_announced != fp_capture_current(ctx))
		return -EBUSY;
	ret = fp_frame_buffer(ctx, frame, &vbuf);
	if (ret)
		return ret;

	__set_bit(frame->seq % FRAMEPATH_DELIVERED_WINDOW, ctx->delivered);
	fp_take_mark(vbuf, &frame->mark);
	trace_fp_frame(ctx->number, frame->seq, frame->index, frame->copied,
		       frame->mark.timestamp);
	fp_capture_done(ctx, vbuf, fp_capture_payload(ctx),
			frame->mark.flags & FP_MARK_FLAGS,
			frame->failed ? VB2_BUF_STATE_ERROR : VB2_BUF_STATE_DONE);
	fp_stream_progress(ctx);
	return 0;
}

static int fp_report_end(struct fp_ctx *ctx, struct fp_drained *drained)
{
	struct v4l2_m2m_buffer *b;

	if (!fp_draining(ctx) || !ctx->drain_announced)
		return -ECANCELED;
	/* The frames after a change are still missing. */
	if (!fp_capture_current(ctx) || ctx->changing)
		return -EBUSY;
	v4l2_m2m_for_each_src_buf(ctx->fh.m2m_ctx, b)
		if (fp_buffer_of(&b->vb)->seq < ctx->drain_seq)
			return -EBUSY;

	drained->index = fp_send_drain_last(ctx);
	fp_stream_progress(ctx);
	return 0;
}

int fp_report_drained(struct fp_ctx *ctx, struct fp_drained *drained)
{
	if (drained->reserved)
		return -EINVAL;
	if (drained->epoch != ctx->epoch)
		return -ESTALE;
	drained->index = -1;
	switch (drained->why) {
	case FRAMEPATH_DRAINED_END:
		trace_fp_drained(ctx->number, drained->why);
		return fp_report_end(ctx, drained);
	case FRAMEPATH_DRAINED_CHANGE:
		if (!ctx->format_reported)
			return -EINVAL;
		trace_fp_drained(ctx->number, drained->why);
		ctx->format_reported = false;
		ctx->changing = true;
		fp_stream_progress(ctx);
		return 0;
	default:
		return -EINVAL;
	}
}

int fp_delivered(struct fp_ctx *ctx, struct fp_delivered *delivered)
{
	const unsigned int bits = sizeof(delivered->bits) * BITS_PER_BYTE;
	u64 seq = delivered->first;
	unsigned int i;

	delivered->next = ctx->next_seq;
	memset(delivered->bits, 0, sizeof(delivered->bits));
	if (seq > ctx->next_seq || ctx->next_seq - seq > FRAMEPATH_DELIVERED_WINDOW)
		return -ERANGE;
	for (i = 0; i < bits && seq < ctx->next_seq; i++, seq++)
		if (test_bit(seq % FRAMEPATH_DELIVERED_WINDOW, ctx->delivered))
			delivered->bits[i / 64] |= BIT_ULL(i % 64);
	return 0;
}
