/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internals of the decoder node: one context per open file of the node.
 *
 *   decoder.c      the node: files and ioctls     format.c    formats and layouts
 *   queue.c        the two vb2 queues             stream.c    the client's side
 *   attach.c       /dev/framepath                 protocol.c  the decoder's side
 *   stream_file.c  descriptors of streams         memory.c    memory of the buffers
 *   account.c      limits per file and user
 *
 * The module stores no messages for the decoder. Announcements follow from the
 * state of the buffers and a few flags; "announced" marks what the decoder already
 * knows. So nothing is allocated per frame and nothing can overflow, and a new
 * decoder gets everything again when the marks are cleared.
 */
#ifndef FP_DECODER_H
#define FP_DECODER_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <media/v4l2-ctrls.h>
#include <media/v4l2-device.h>
#include <media/v4l2-fh.h>
#include <media/v4l2-mem2mem.h>
#include <media/videobuf2-v4l2.h>

#include "account.h"
#include "memory.h"
#include "uapi/framepath.h"

#define FP_SIZE_MIN		16	/* smallest width and height that a client may set */
#define FP_SIZE_MAX		8192	/* largest; streams may be smaller than FP_SIZE_MIN */
#define FP_CAPTURE_MAX		32	/* largest min_buffers of a format */
#define FP_OUTPUT_SIZE_MAX	SZ_32M	/* largest packet, bytes */
#define FP_RETRY_MS		5	/* until a context that was locked is tried again */

/* Flags that a frame takes over from its packet. */
#define FP_MARK_FLAGS	(V4L2_BUF_FLAG_KEYFRAME | V4L2_BUF_FLAG_PFRAME | V4L2_BUF_FLAG_BFRAME | \
			 V4L2_BUF_FLAG_TIMECODE | V4L2_BUF_FLAG_TSTAMP_SRC_MASK)

struct fp_stream;
struct fp_control;

/* Counter of changes with a wait queue, for waits without the lock. */
struct fp_event {
	wait_queue_head_t wait;
	atomic_t count;
};

/* A packet or a CAPTURE buffer; on the context's ready lists while queued. */
struct fp_buffer {
	struct v4l2_m2m_buffer m2m;	/* first: vb2 allocates it */
	u64 seq;			/* OUTPUT: number of the packet in the stream */
	u32 generation;			/* number of the buffer's memory */
	bool announced;			/* the decoder has the buffer */
};

/* Format of the OUTPUT queue, as the client has set it. */
struct fp_coded {
	u32 pixelformat;
	u32 width, height;
	u32 sizeimage;			/* of a packet's buffer, bytes */
	u32 colorspace, xfer_func, ycbcr_enc, quantization;	/* 0: not set */
	bool sized;			/* the client gave width and height */
};

/* Reason why a client with queued work waits, and the module parameter with its limit. */
enum fp_wait {
	FP_WAIT_NONE,			/* no wait that has a limit */
	FP_WAIT_DECODER,		/* until a decoder accepts the stream: patience_ms */
	FP_WAIT_PROGRESS,		/* for a step of the decoder that accepted: silence_ms */
};

struct fp_ctx {
	struct fp_queue_owner owner;	/* first: fp_memory_ops */
	struct kref ref;		/* of the file, each stream file, a queued orphan work */
	struct list_head node;		/* in fp_decoder.contexts, under fp_decoder.lock */
	unsigned int number;		/* number of the context in traces */

	struct v4l2_fh fh;
	struct v4l2_ctrl_handler controls;
	struct v4l2_ctrl *min_buffers;

	struct mutex lock;		/* guards all below, both queues, a drain's state */
	bool closed;			/* fh and the queues are gone */
	bool on[2];			/* per FRAMEPATH_QUEUE_*: the queue streams */
	bool failed[2];			/* per FRAMEPATH_QUEUE_*: ioctls fail until STREAMOFF */
	bool decoder_failed;		/* the stream failed; STREAMOFF of OUTPUT ends it */

	struct fp_coded coded;
	u32 pixelformat;		/* of CAPTURE */
	struct fp_format format;	/* reported by a decoder, or a guess until then */
	bool format_known;		/* a decoder has reported format */
	bool format_reported;		/* the present decoder has, in this sequence */
	bool changing;			/* the sequence ended, the next format is due */
	bool change_sent;		/* the client has not yet answered a SOURCE_CHANGE */
	u32 format_run;			/* number of SOURCE_CHANGE events so far */

	u32 epoch;			/* number of flushes of the stream */
	u64 next_seq;			/* number of the next packet of the stream */
	u32 sequence[2];		/* per FRAMEPATH_QUEUE_*: sequence of the next buffer */
	bool flush_packet;		/* NEXT_PACKET has to announce the flush */
	bool flush_capture;		/* NEXT_CAPTURE has to announce the flush */

	/* The rest of a drain's state is v4l2-mem2mem's: see fp_draining(). */
	u64 drain_seq;			/* number of the first packet after the drain */
	bool drain_announced;		/* the decoder knows of the drain */
	bool change_last_due;		/* the next CAPTURE buffer is LAST before a change */

	u32 capture_run;		/* number of the CAPTURE run (OFF, ON) */
	u32 capture_announced;		/* run announced to the decoder, 0: OFF */
	u32 format_asked;		/* format_run that the client has read last */
	u32 capture_format;		/* format_run that CAPTURE is set up for */
	u32 generation;			/* last number assigned to a buffer's memory */

	struct fp_stream *stream;	/* of the decoder's descriptor; NULL: no decoder */
	u64 id;				/* number of the stream; 0: never accepted */
	struct file *stash;		/* file for the decoder; NULL: never accepted */
	DECLARE_BITMAP(delivered, FRAMEPATH_DELIVERED_WINDOW); /* by seq: frame is returned */

	bool wanted;			/* a decoder could accept it; read without the lock */
	enum fp_wait wait;		/* present wait of the client */
	unsigned long deadline;		/* end of the wait, jiffies */
	unsigned long armed;		/* next run of patience, jiffies */
	struct delayed_work patience;

	u64 orphan_of;			/* attachment that ended; set under fp_decoder.lock */
	struct work_struct orphan;	/* holds a reference while it is queued */
	struct delayed_work retry;	/* see fp_ctx_retry() */

	struct fp_event packets;	/* ends waits of NEXT_PACKET */
	struct fp_event captures;	/* ends waits of NEXT_CAPTURE */
	struct fp_event formats;	/* ends waits of the client for the format */
};

/* There is one decoder node. */
struct fp_decoder {
	struct v4l2_device *v4l2_dev;
	struct video_device vdev;
	struct mutex vdev_lock;		/* vdev's: see fp_file_lock() */
	struct v4l2_m2m_dev *m2m;
	struct workqueue_struct *work;	/* for work that waits for a context's lock */

	/*
	 * Under this lock a context's lock may only be tried (mutex_trylock()),
	 * because a client can hold its own during an allocation or a fence.
	 */
	struct mutex lock;
	struct list_head contexts;	/* of the open files of the node */
	unsigned int number;		/* last number assigned to a context */
	atomic64_t id;			/* last number assigned to a stream */
	u64 attachment;			/* last number assigned to an attachment */
	struct fp_control *attached;	/* file of the attached decoder; NULL: none */
	struct fp_event wanted;		/* ends waits of ACCEPT */
};

extern struct fp_decoder fp_decoder;
extern unsigned int fp_patience_ms;
extern unsigned int fp_silence_ms;
extern bool fp_av1;

/* decoder.c */
int fp_decoder_init(struct v4l2_device *v4l2_dev);
void fp_decoder_exit(void);
int fp_decoder_register(void);
void fp_decoder_unregister(void);

static inline bool fp_ctx_failed(struct fp_ctx *ctx)
{
	return ctx->failed[FRAMEPATH_QUEUE_OUTPUT] || ctx->failed[FRAMEPATH_QUEUE_CAPTURE];
}

/* Reports whether the client has requested a drain that the decoder has not finished. */
static inline bool fp_draining(struct fp_ctx *ctx)
{
	struct v4l2_m2m_ctx *m2m = ctx->fh.m2m_ctx;

	return m2m->is_draining && !v4l2_m2m_dst_buf_is_last(m2m);
}

/*
 * Reports whether the decoder has finished a drain: packets then wait until the
 * client continues.
 */
static inline bool fp_drained(struct fp_ctx *ctx)
{
	struct v4l2_m2m_ctx *m2m = ctx->fh.m2m_ctx;

	return v4l2_m2m_has_stopped(m2m) || v4l2_m2m_dst_buf_is_last(m2m);
}

/* Reports whether CAPTURE streams, but is not set up for the stream's present format. */
static inline bool fp_ctx_changed(struct fp_ctx *ctx)
{
	return ctx->on[FRAMEPATH_QUEUE_CAPTURE] && ctx->capture_format != ctx->format_run;
}

static inline struct fp_ctx *fp_ctx_of(struct v4l2_fh *fh)
{
	return container_of(fh, struct fp_ctx, fh);
}

static inline struct fp_buffer *fp_buffer_of(struct vb2_v4l2_buffer *vbuf)
{
	return container_of(vbuf, struct fp_buffer, m2m.vb);
}

static inline struct vb2_queue *fp_output_queue(struct fp_ctx *ctx)
{
	return v4l2_m2m_get_src_vq(ctx->fh.m2m_ctx);
}

static inline struct vb2_queue *fp_capture_queue(struct fp_ctx *ctx)
{
	return v4l2_m2m_get_dst_vq(ctx->fh.m2m_ctx);
}

/* format.c: all with the context's lock */
void fp_format_reset(struct fp_ctx *ctx);
int fp_format_check(const struct fp_format *format);
bool fp_format_same(const struct fp_format *a, const struct fp_format *b);
void fp_format_take(struct fp_ctx *ctx, const struct fp_format *format);
u32 fp_capture_sizeimage(struct fp_ctx *ctx);
u32 fp_capture_payload(struct fp_ctx *ctx);
u32 fp_plane_limit(struct fp_ctx *ctx, bool output);
int fp_enum_output(struct v4l2_fmtdesc *f);
int fp_enum_capture(struct fp_ctx *ctx, struct v4l2_fmtdesc *f);
int fp_enum_framesizes(struct v4l2_frmsizeenum *f);
void fp_get_output(struct fp_ctx *ctx, struct v4l2_format *f);
void fp_get_capture(struct fp_ctx *ctx, struct v4l2_format *f);
void fp_try_output(struct v4l2_format *f);
void fp_try_capture(struct fp_ctx *ctx, struct v4l2_format *f);
void fp_set_output(struct fp_ctx *ctx, struct v4l2_format *f);
int fp_get_selection(struct fp_ctx *ctx, struct v4l2_selection *s);
int fp_set_selection(struct fp_ctx *ctx, struct v4l2_selection *s);

/* queue.c */
int fp_queue_init(void *priv, struct vb2_queue *src, struct vb2_queue *dst);

/* stream.c: all with the context's lock */
void fp_event_init(struct fp_event *event);
void fp_event_signal(struct fp_event *event);
int fp_event_wait(struct fp_ctx *ctx, struct fp_event *event, long timeout);
int fp_stream_await_format(struct fp_ctx *ctx);
void fp_stream_update(struct fp_ctx *ctx);
void fp_stream_progress(struct fp_ctx *ctx);
void fp_stream_patience(struct work_struct *work);
void fp_stream_fail(struct fp_ctx *ctx, int error);
void fp_stream_renew(struct fp_ctx *ctx);
void fp_stream_orphan(struct fp_ctx *ctx);
void fp_stream_accepted(struct fp_ctx *ctx);
void fp_output_on(struct fp_ctx *ctx);
void fp_output_off(struct fp_ctx *ctx);
void fp_capture_on(struct fp_ctx *ctx);
void fp_capture_off(struct fp_ctx *ctx);
bool fp_capture_fits(struct fp_ctx *ctx);
int fp_stop_command(struct fp_ctx *ctx);
int fp_start_command(struct fp_ctx *ctx, struct file *file, struct v4l2_decoder_cmd *cmd);
void fp_capture_done(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf, u32 payload, u32 flags,
		     enum vb2_buffer_state state);
void fp_drain_last(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf);
void fp_change_last(struct fp_ctx *ctx, struct vb2_v4l2_buffer *vbuf);
int fp_send_drain_last(struct fp_ctx *ctx);
void fp_send_change_last(struct fp_ctx *ctx);
void fp_queue_v4l2_event(struct fp_ctx *ctx, u32 type, u32 changes);

/* protocol.c: all with the context's lock */
u32 fp_packet_pending(struct fp_ctx *ctx, struct fp_buffer **buffer);
bool fp_packet_next(struct fp_ctx *ctx, struct fp_packet *packet);
u32 fp_capture_current(struct fp_ctx *ctx);
u32 fp_capture_pending(struct fp_ctx *ctx, struct fp_buffer **buffer);
bool fp_capture_next(struct fp_ctx *ctx, struct fp_capture *capture);
int fp_packet_done(struct fp_ctx *ctx, const struct fp_packet_done *done);
int fp_report_format(struct fp_ctx *ctx, const struct fp_format *format);
int fp_report_frame(struct fp_ctx *ctx, const struct fp_frame *frame);
int fp_report_drained(struct fp_ctx *ctx, struct fp_drained *drained);
int fp_delivered(struct fp_ctx *ctx, struct fp_delivered *delivered);

/* attach.c */
int fp_attach_register(void);
void fp_attach_unregister(void);
void fp_ctx_free(struct kref *ref);
void fp_ctx_orphan(struct work_struct *work);
void fp_ctx_retry(struct work_struct *work);
void fp_ctx_retry_soon(struct fp_ctx *ctx);

/* stream_file.c */
struct fp_stream *fp_stream_new(struct fp_ctx *ctx, u64 attachment);
void fp_stream_free(struct fp_stream *stream);
struct file *fp_stream_file(struct fp_stream *stream);
u64 fp_stream_attachment(const struct fp_stream *stream);

#endif
