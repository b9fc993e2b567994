// SPDX-License-Identifier: GPL-2.0-only
/*
 * The client's side of a stream: waits and timeouts with and without a decoder,
 * effects of the client's ioctls, and buffers and events for the client. All
 * functions run with the context's lock. The decoder's side is in protocol.c.
 */
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/sched/signal.h>
#include <media/v4l2-event.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"
#include "trace_decoder.h"

/* ---- waiting ------------------------------------------------------------- */

void fp_event_init(struct fp_event *event)
{
	init_waitqueue_head(&event->wait);
}

void fp_event_signal(struct fp_event *event)
{
	atomic_inc(&event->count);
	wake_up_all(&event->wait);
}

/*
 * Waits until the event is signalled, at most timeout jiffies. Releases the context's
 * lock while it waits. Returns 1 after the event, 0 after the timeout, and a negative
 * errno after a signal.
 */
int fp_event_wait(struct fp_ctx *ctx, struct fp_event *event, long timeout)
{
	int seen = atomic_read(&event->count);
	long ret;

	mutex_unlock(&ctx->lock);
	ret = wait_event_interruptible_timeout(event->wait, atomic_read(&event->count) != seen,
					       timeout);
	mutex_lock(&ctx->lock);
	return ret > 0 ? 1 : ret;
}

/*
 * Waits until the stream's format is known, no packet is queued, or patience_ms have
 * passed; these return 0. Returns -EIO if the stream has failed, another errno after
 * a signal. A client that reads the CAPTURE format with packets queued needs the
 * stream's format, and may not use the SOURCE_CHANGE event.
 */
int fp_stream_await_format(struct fp_ctx *ctx)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(fp_patience_ms);
	int ret;

	while (!ctx->format_known && ctx->on[FRAMEPATH_QUEUE_OUTPUT] &&
	       v4l2_m2m_num_src_bufs_ready(ctx->fh.m2m_ctx)) {
		long left = deadline - jiffies;

		if (fp_ctx_failed(ctx))
			return -EIO;
		if (left <= 0)
			return 0;
		ret = fp_event_wait(ctx, &ctx->formats, left);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* ---- with and without a decoder ------------------------------------------ */

/*
 * Reports whether the decoder could go on without the client: it has a packet or a
 * drain to work on, and either has not reported the format or has as many CAPTURE
 * buffers as it reported as its minimum. Otherwise the decoder waits for the client
 * (which is paused, or about to set CAPTURE up), and no timeout applies.
 */
static bool fp_decoder_could_go_on(struct fp_ctx *ctx)
{
	struct v4l2_m2m_ctx *m2m = ctx->fh.m2m_ctx;
	unsigned int packets, needed;

	if (!ctx->stream || ctx->closed || !ctx->on[FRAMEPATH_QUEUE_OUTPUT] || fp_drained(ctx) ||
	    fp_ctx_failed(ctx))
		return false;
	packets = v4l2_m2m_num_src_bufs_ready(m2m);
	if (packets && !ctx->format_reported)
		return true;
	if ((!packets && !fp_draining(ctx)) || !fp_capture_current(ctx))
		return false;
	needed = min_t(unsigned int, ctx->format.min_buffers,
		       fp_queue_buffers(fp_capture_queue(ctx)));
	return v4l2_m2m_num_dst_bufs_ready(m2m) >= max(needed, 1U);
}

static enum fp_wait fp_wait_reason(struct fp_ctx *ctx, bool wanted)
{
	if (wanted && (v4l2_m2m_num_src_bufs_ready(ctx->fh.m2m_ctx) || fp_draining(ctx)))
		return FP_WAIT_DECODER;
	if (READ_ONCE(fp_silence_ms) && fp_decoder_could_go_on(ctx))
		return FP_WAIT_PROGRESS;
	return FP_WAIT_NONE;
}

static void fp_wait_begin(struct fp_ctx *ctx)
{
	unsigned int ms = ctx->wait == FP_WAIT_DECODER ? fp_patience_ms : fp_silence_ms;
	unsigned long time = msecs_to_jiffies(ms);

	ctx->deadline = jiffies + time;
	/* A timer that runs earlier suffices: its handler sets it again. */
	if (delayed_work_pending(&ctx->patience) && !time_after(ctx->armed, ctx->deadline))
		return;
	ctx->armed = ctx->deadline;
	mod_delayed_work(system_wq, &ctx->patience, time);
}

/* Restarts the timeout of silence_ms, because the decoder took a step. */
void fp_stream_progress(struct fp_ctx *ctx)
{
	fp_stream_update(ctx);
	if (ctx->wait == FP_WAIT_PROGRESS)
		ctx->deadline = jiffies + msecs_to_jiffies(fp_silence_ms);
}

/*
 * Updates the client's wait and its timeout, and whether the context needs a decoder,
 * after a change of the decoder or of the work for it.
 */
void fp_stream_update(struct fp_ctx *ctx)
{
	bool wanted = ctx->on[FRAMEPATH_QUEUE_OUTPUT] && !ctx->stream && !ctx->closed &&
		      !fp_ctx_failed(ctx);
	enum fp_wait waits = fp_wait_reason(ctx, wanted);

	if (wanted != ctx->wanted) {
		WRITE_ONCE(ctx->wanted, wanted);
		if (wanted)
			fp_event_signal(&fp_decoder.wanted);
	}
	if (waits == ctx->wait)
		return;
	ctx->wait = waits;
	/* The timer of a wait that ended is not cancelled; its handler does nothing. */
	if (waits != FP_WAIT_NONE)
		fp_wait_begin(ctx);
}

/*
 * Timer of a wait: fails the stream if the deadline has passed, else runs again at
 * the deadline. Takes the context's lock. May run after the end of the wait, and does
 * nothing then.
 */
void fp_stream_patience(struct work_struct *work)
{
	struct fp_ctx *ctx = container_of(to_delayed_work(work), struct fp_ctx, patience);

	mutex_lock(&ctx->lock);
	if (ctx->closed || ctx->wait == FP_WAIT_NONE) {
		;
	} else if (time_before(jiffies, ctx->deadline)) {
		ctx->armed = ctx->deadline;
		mod_delayed_work(system_wq, &ctx->patience, ctx->deadline - jiffies);
	} else {
		if (ctx->wait == FP_WAIT_PROGRESS) {
			atomic_long_inc(&fp_counts.silent);
			pr_info_ratelimited(FP_NAME ": stream %llu: no progress of the decoder in %u ms\n",
					    ctx->id, fp_silence_ms);
		}
		fp_stream_fail(ctx, ETIMEDOUT);
	}
	mutex_unlock(&ctx->lock);
}

static void fp_event_signal_all(struct fp_ctx *ctx)
{
	fp_event_signal(&ctx->packets);
	fp_event_signal(&ctx->captures);
	fp_event_signal(&ctx->formats);
}

/* Clears all that the context knows of its stream and the decoder. */
static void fp_stream_forget(struct fp_ctx *ctx)
{
	ctx->stream = NULL;
	ctx->id = 0;
	ctx->epoch = 0;
	ctx->next_seq = 0;
	ctx->flush_packet = false;
	ctx->flush_capture = false;
	ctx->capture_announced = 0;
	ctx->decoder_failed = false;
	bitmap_zero(ctx->delivered, FRAMEPATH_DELIVERED_WINDOW);
	if (ctx->stash)
		fput(ctx->stash);
	ctx->stash = NULL;
}

/* Begins another stream after S_FMT of OUTPUT. The client has no buffers. */
void fp_stream_renew(struct fp_ctx *ctx)
{
	fp_stream_forget(ctx);
	fp_event_signal_all(ctx);
}

/*
 * Fails the stream: the decoder loses it, and both queues return errors until
 * STREAMOFF. The positive errno is for the trace only.
 */
void fp_stream_fail(struct fp_ctx *ctx, int error)
{
	struct v4l2_m2m_ctx *m2m = ctx->fh.m2m_ctx;

	trace_fp_failed(ctx->number, error);
	ctx->stream = NULL;
	ctx->decoder_failed = true;
	ctx->failed[FRAMEPATH_QUEUE_OUTPUT] = true;
	if (ctx->on[FRAMEPATH_QUEUE_OUTPUT])
		vb2_queue_error(v4l2_m2m_get_src_vq(m2m));
	if (ctx->on[FRAMEPATH_QUEUE_CAPTURE]) {
		ctx->failed[FRAMEPATH_QUEUE_CAPTURE] = true;
		vb2_queue_error(v4l2_m2m_get_dst_vq(m2m));
	}
	if (!ctx->on[FRAMEPATH_QUEUE_OUTPUT])
		fp_stream_forget(ctx);
	fp_stream_update(ctx);
	fp_event_signal_all(ctx);
}

/* Takes the stream from its decoder. The next decoder gets all announcements again. */
void fp_stream_orphan(struct fp_ctx *ctx)
{
	trace_fp_orphaned(ctx->number, ctx->id);
	ctx->stream = NULL;
	if (ctx->closed)
		return;
	fp_stream_update(ctx);
	fp_event_signal_all(ctx);
}

/* Clears the marks of earlier announcements, because a decoder has accepted the stream. */
void fp_stream_accepted(struct fp_ctx *ctx)
{
	struct v4l2_m2m_buffer *b;

	v4l2_m2m_for_each_src_buf(ctx->fh.m2m_ctx, b)
		fp_buffer_of(&b->vb)->announced = false;
	ctx->drain_announced = false;
	ctx->flush_packet = false;
	ctx->flush_capture = false;
	ctx->capture_announced = 0;
	ctx->format_reported = false;
	ctx->changing = false;
	trace_fp_accepted(ctx->number, ctx->id);
	fp_stream_update(ctx);
}

/* ---- the client's ioctls ------------------------------------------------- */

void fp_output_on(struct fp_ctx *ctx)
{
	ctx->on[FRAMEPATH_QUEUE_OUTPUT] = true;
	ctx->sequence[FRAMEPATH_QUEUE_OUTPUT] = 0;
	/* A seek ends the state after LAST. */
	vb2_clear_last_buffer_dequeued(fp_capture_queue(ctx));
	fp_event_signal(&ctx->packets);
	fp_stream_update(ctx);
}

/* STREAMOFF of OUTPUT, a flush. The client owns all packets again. */
void fp_output_off(struct fp_ctx *ctx)
{
	ctx->on[FRAMEPATH_QUEUE_OUTPUT] = false;
	fp_account_stream_end(ctx->owner.account);
	ctx->epoch++;
	ctx->flush_packet = ctx->stream;
	ctx->flush_capture = ctx->stream;
	ctx->format_reported = false;
	ctx->changing = false;
	/* A seek aborts a SOURCE_CHANGE: it is sent again where it still applies. */
	ctx->change_sent = false;
	/* A seek cancels a drain without LAST. */
	v4l2_m2m_clear_state(ctx->fh.m2m_ctx);
	ctx->change_last_due = false;
	trace_fp_flush(ctx->number, ctx->epoch);
	if (ctx->decoder_failed)
		fp_stream_forget(ctx);
	fp_stream_update(ctx);
	fp_event_signal_all(ctx);
}

void fp_capture_on(struct fp_ctx *ctx)
{
	ctx->on[FRAMEPATH_QUEUE_CAPTURE] = true;
	ctx->sequence[FRAMEPATH_QUEUE_CAPTURE] = 0;
	ctx->capture_run++;
	ctx->capture_format = ctx->format_asked;
	ctx->change_sent = fp_ctx_changed(ctx);
	ctx->fh.m2m_ctx->has_stopped = false;
	/* CAPTURE is set up for an older format; the event of the new one is queued. */
	if (ctx->change_sent)
		fp_send_change_last(ctx);
	fp_stream_update(ctx);
	fp_event_signal(&ctx->captures);
	fp_event_signal(&ctx->packets);
}

/* STREAMOFF of CAPTURE. The client owns all CAPTURE buffers again. */
void fp_capture_off(struct fp_ctx *ctx)
{
	/* STREAMOFF cancels a drain, but not if it answers a SOURCE_CHANGE of that drain. */
	if (!fp_ctx_changed(ctx))
		v4l2_m2m_update_stop_streaming_state(ctx->fh.m2m_ctx, fp_capture_queue(ctx));
	ctx->change_last_due = false;
	ctx->on[FRAMEPATH_QUEUE_CAPTURE] = false;
	fp_stream_update(ctx);
	fp_event_signal(&ctx->captures);
	fp_event_signal(&ctx->packets);
}

/* Reports whether all CAPTURE buffers can hold frames of the stream's format. */
bool fp_capture_fits(struct fp_ctx *ctx)
{
	struct vb2_queue *q = fp_capture_queue(ctx);
	u32 size = fp_capture_sizeimage(ctx);
	unsigned int i;

	for (i = 0; i < fp_queue_indices(q); i++) {
		struct vb2_buffer *vb = vb2_get_buffer(q, i);

		if (vb && vb2_plane_size(vb, 0) < size)
			return false;
	}
	return true;
}

/*
 * V4L2_DEC_CMD_STOP: begins a drain. Returns -EBUSY during an earlier drain.
 * v4l2_m2m_decoder_cmd() would end the drain at once if OUTPUT is empty, but the
 * decoder can still have frames of packets that are done.
 */
int fp_stop_command(struct fp_ctx *ctx)
{
	struct v4l2_m2m_ctx *m2m = ctx->fh.m2m_ctx;

	/*
	 * V4L2 lets a decoder ignore STOP while CAPTURE does not stream. This decoder
	 * begins the drain, as v4l2-mem2mem's helpers do: a client may have queued its
	 * last packet before another of its threads has answered the SOURCE_CHANGE.
	 */
	if (!ctx->on[FRAMEPATH_QUEUE_OUTPUT])
		return 0;
	if (m2m->is_draining)
		return -EBUSY;
	if (v4l2_m2m_has_stopped(m2m))
		return 0;
	m2m->is_draining = true;
	ctx->drain_announced = false;
	ctx->drain_seq = ctx->next_seq;
	trace_fp_drain(ctx->number, ctx->drain_seq);
	fp_event_signal(&ctx->packets);
	fp_stream_update(ctx);
	return 0;
}

/*
 * V4L2_DEC_CMD_START: goes on after a drain, or answers a SOURCE_CHANGE with the
 * buffers as they are. Returns -EBUSY before the LAST of the change, -EINVAL if a
 * buffer is too small.
 */
int fp_start_command(struct fp_ctx *ctx, struct file *file, struct v4l2_decoder_cmd *cmd)
{
	bool changed = fp_ctx_changed(ctx);
	int ret;

	/* START answers an older SOURCE_CHANGE: the newer event has its own LAST. */
	if (changed && ctx->format_asked != ctx->format_run)
		return 0;
	if (ctx->change_last_due)
		return -EBUSY;
	if (changed) {
		if (!fp_capture_fits(ctx))
			return -EINVAL;
		ctx->capture_run++;
		ctx->capture_format = ctx->format_run;
		ctx->change_sent = false;
		fp_event_signal(&ctx->captures);
	} else {
		/* A drain continues after a change, but fails START otherwise. */
		ret = v4l2_m2m_decoder_cmd(file, ctx->fh.m2m_ctx, cmd);
		if (ret)
			return ret;
	}
	vb2_clear_last_buffer_dequeued(fp_capture_queue(ctx));
	fp_stream_update(ctx);
	fp_event_signal(&ctx->packets);
	return 0;
}

/* ---- buffers and events for the client ----------------------------------- */

/* Takes a CAPTURE buffer from the ready list and sets its payload, flags and sequence. */
static void fp_capture_take(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf, u32 payload,
			    u32 flags)
{
	v4l2_m2m_dst_buf_remove_by_buf(ctx->fh.m2m_ctx, vbuf);
	vb2_set_plane_payload(&vbuf->vb2_buf, 0, payload);
	vbuf->flags &= ~(FP_MARK_FLAGS | V4L2_BUF_FLAG_LAST);
	vbuf->flags |= flags;
	vbuf->sequence = ctx->sequence[FRAMEPATH_QUEUE_CAPTURE]++;
}

/* Gives a CAPTURE buffer on the ready list back to the client. */
void fp_capture_done(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf, u32 payload, u32 flags,
		     enum vb2_buffer_state state)
{
	fp_capture_take(ctx, vbuf, payload, flags);
	v4l2_m2m_buf_done(vbuf, state);
}

/* Takes a CAPTURE buffer from the ready list for LAST, which is an empty buffer. */
static void fp_last_take(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf, u32 flags)
{
	trace_fp_capture_last(ctx->number, vbuf->vb2_buf.index, fp_buffer_of(vbuf)->generation);
	vbuf->field = V4L2_FIELD_NONE;
	vbuf->vb2_buf.timestamp = 0;
	fp_capture_take(ctx, vbuf, 0, flags);
}

/* Gives the buffer back as LAST of a drain. */
void fp_drain_last(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf)
{
	fp_last_take(ctx, vbuf, 0);
	v4l2_m2m_last_buffer_done(ctx->fh.m2m_ctx, vbuf);
	/* After the buffer: ffmpeg takes an event without a buffer for a stalled stream. */
	fp_queue_v4l2_event(ctx, V4L2_EVENT_EOS, 0);
}

/* Gives the buffer back as LAST before a SOURCE_CHANGE; a drain is not affected. */
void fp_change_last(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf)
{
	fp_last_take(ctx, vbuf, V4L2_BUF_FLAG_LAST);
	ctx->change_last_due = false;
	v4l2_m2m_buf_done(vbuf, VB2_BUF_STATE_DONE);
}

/*
 * Returns a queued CAPTURE buffer for LAST, if possible one that the decoder lacks;
 * NULL if no buffer is queued.
 */
static struct vb2_v4l2_buffer *fp_last_buffer(struct fp_ctx *ctx)
{
	struct vb2_v4l2_buffer *vbuf = NULL;
	struct v4l2_m2m_buffer *b;

	v4l2_m2m_for_each_dst_buf(ctx->fh.m2m_ctx, b) {
		if (!fp_buffer_of(&b->vb)->announced)
			return &b->vb;
		if (!vbuf)
			vbuf = &b->vb;
	}
	return vbuf;
}

/*
 * Sends LAST of a drain: with a queued buffer, or the next one that the client
 * queues. Returns the index of a buffer that the decoder had, else -1.
 */
int fp_send_drain_last(struct fp_ctx *ctx)
{
	struct vb2_v4l2_buffer *vbuf = fp_last_buffer(ctx);
	int index;

	if (!vbuf) {
		ctx->fh.m2m_ctx->next_buf_last = true;
		return -1;
	}
	index = fp_buffer_of(vbuf)->announced ? vbuf->vb2_buf.index : -1;
	fp_drain_last(ctx, vbuf);
	return index;
}

/* As fp_send_drain_last(), before a SOURCE_CHANGE. */
void fp_send_change_last(struct fp_ctx *ctx)
{
	struct vb2_v4l2_buffer *vbuf = fp_last_buffer(ctx);

	if (vbuf)
		fp_change_last(ctx, vbuf);
	else
		ctx->change_last_due = true;
}

void fp_queue_v4l2_event(struct fp_ctx *ctx, u32 type, u32 changes)
{
	struct v4l2_event event = {
		.type = type,
		.u.src_change.changes = changes,
	};

	v4l2_event_queue_fh(&ctx->fh, &event);
}
