// SPDX-License-Identifier: GPL-2.0-only
/*
 * The descriptor of a stream that the decoder has accepted: ioctls, pread() of
 * packets, poll(). protocol.c checks the contents of each request.
 */
#include <linux/anon_inodes.h>
#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"

/* Bytes of a packet that are copied under one acquisition of the context's lock. */
#define FP_BOUNCE_BYTES 32768

/* State of a stream's descriptor. Requests are allowed while ctx->stream points to it. */
struct fp_stream {
	struct fp_ctx *ctx;		/* with a reference */
	u64 attachment;			/* attachment that accepted the stream */
	bool stopped;			/* FRAMEPATH_IOC_STOP was called; under ctx->lock */
	struct work_struct end;		/* for a release that found ctx->lock taken */
	struct mutex reading;		/* guards bounce; taken before ctx->lock */
	u8 bounce[FP_BOUNCE_BYTES];	/* part of a packet on its way to the reader */
};

/*
 * Returns 0 while requests are allowed, -ESHUTDOWN after FRAMEPATH_IOC_STOP, -ENODEV
 * after the decoder has lost the stream. Called with the context's lock.
 */
static int fp_stream_check(struct fp_stream *stream)
{
	if (stream->stopped)
		return -ESHUTDOWN;
	if (stream->ctx->closed || stream->ctx->stream != stream)
		return -ENODEV;
	return 0;
}

/*
 * Waits for the event. Releases the context's lock while it waits. Returns 0 if there
 * may be an announcement; -EAGAIN with O_NONBLOCK, without waiting. *locked is false
 * if the caller was killed and the lock was not taken again.
 */
static int fp_stream_wait(struct file *file, struct fp_event *event, bool *locked)
{
	struct fp_stream *stream = file->private_data;
	int ret, seen = atomic_read(&event->count);

	if (file->f_flags & O_NONBLOCK)
		return -EAGAIN;
	mutex_unlock(&stream->ctx->lock);
	ret = wait_event_interruptible(event->wait, atomic_read(&event->count) != seen);
	if (mutex_lock_killable(&stream->ctx->lock)) {
		*locked = false;
		return -ERESTARTSYS;
	}
	return ret ?: fp_stream_check(stream);
}

/*
 * FRAMEPATH_IOC_EXPORT: makes a dmabuf of a CAPTURE buffer with the bytes of a frame,
 * without the rest of a larger buffer.
 */
static int fp_ioc_export(struct fp_ctx *ctx, struct fp_export *export)
{
	struct dma_buf *dmabuf;
	struct vb2_buffer *vb;
	int fd;

	if (export->queue != FRAMEPATH_QUEUE_CAPTURE)
		return -EINVAL;
	vb = vb2_get_buffer(fp_capture_queue(ctx), export->index);
	/* An imported buffer has memory only after its first QBUF. */
	if (!vb || !vb->planes[0].mem_priv)
		return -EINVAL;

	if (vb->memory == VB2_MEMORY_MMAP) {
		dmabuf = fp_memory_ops.get_dmabuf(vb, vb->planes[0].mem_priv, O_RDWR);
		if (!dmabuf)
			return -ENOMEM;
	} else {
		dmabuf = vb->planes[0].dbuf;
		get_dma_buf(dmabuf);
	}
	dmabuf = fp_memory_lease(dmabuf, min_t(size_t, fp_capture_sizeimage(ctx),
					       vb2_plane_size(vb, 0)));
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		return fd;
	}
	export->generation = fp_buffer_of(to_vb2_v4l2_buffer(vb))->generation;
	export->fd = fd;
	return 0;
}

static int fp_ioc_fail(struct fp_ctx *ctx, const struct fp_fail *fail)
{
	if (fail->reserved || fail->error < 0 || fail->error > MAX_ERRNO)
		return -EINVAL;
	pr_info_ratelimited(FP_NAME ": the decoder failed stream %llu: error %d\n",
			    ctx->id, fail->error);
	fp_stream_fail(ctx, fail->error);
	return 0;
}

static int fp_ioc_stop(struct fp_stream *stream)
{
	stream->stopped = true;
	fp_event_signal(&stream->ctx->packets);
	fp_event_signal(&stream->ctx->captures);
	return 0;
}

union fp_stream_argument {
	struct fp_packet packet;
	struct fp_packet_done packet_done;
	struct fp_capture capture;
	struct fp_export export;
	struct fp_format format;
	struct fp_frame frame;
	struct fp_drained drained;
	struct fp_fail fail;
	struct fp_delivered delivered;
};

/*
 * Executes one request. Called with the context's lock, which is not held afterwards
 * if *locked is false.
 */
static int fp_stream_do(struct file *file, unsigned int cmd, union fp_stream_argument *arg,
			bool *locked)
{
	struct fp_stream *stream = file->private_data;
	struct fp_ctx *ctx = stream->ctx;
	int ret = fp_stream_check(stream);

	if (ret)
		return ret;
	switch (cmd) {
	case FRAMEPATH_IOC_NEXT_PACKET:
		while (!ret && !fp_packet_next(ctx, &arg->packet))
			ret = fp_stream_wait(file, &ctx->packets, locked);
		return ret;
	case FRAMEPATH_IOC_PACKET_DONE:
		return fp_packet_done(ctx, &arg->packet_done);
	case FRAMEPATH_IOC_NEXT_CAPTURE:
		while (!ret && !fp_capture_next(ctx, &arg->capture))
			ret = fp_stream_wait(file, &ctx->captures, locked);
		return ret;
	case FRAMEPATH_IOC_EXPORT:
		return fp_ioc_export(ctx, &arg->export);
	case FRAMEPATH_IOC_FORMAT:
		return fp_report_format(ctx, &arg->format);
	case FRAMEPATH_IOC_FRAME:
		return fp_report_frame(ctx, &arg->frame);
	case FRAMEPATH_IOC_DRAINED:
		return fp_report_drained(ctx, &arg->drained);
	case FRAMEPATH_IOC_FAIL:
		return fp_ioc_fail(ctx, &arg->fail);
	case FRAMEPATH_IOC_DELIVERED:
		return fp_delivered(ctx, &arg->delivered);
	case FRAMEPATH_IOC_STOP:
		return fp_ioc_stop(stream);
	default:
		return -ENOTTY;
	}
}

/*
 * Takes the context's lock for a request. With O_NONBLOCK, NEXT_PACKET and
 * NEXT_CAPTURE do not wait for a client that holds the lock, and return -EAGAIN.
 */
static int fp_stream_lock(struct file *file, unsigned int cmd)
{
	struct fp_stream *stream = file->private_data;
	struct mutex *lock = &stream->ctx->lock;

	if (file->f_flags & O_NONBLOCK &&
	    (cmd == FRAMEPATH_IOC_NEXT_PACKET || cmd == FRAMEPATH_IOC_NEXT_CAPTURE))
		return mutex_trylock(lock) ? 0 : -EAGAIN;
	return mutex_lock_interruptible(lock) ? -ERESTARTSYS : 0;
}

static long fp_stream_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct fp_stream *stream = file->private_data;
	void __user *pointer = (void __user *)user;
	unsigned int size = _IOC_SIZE(cmd);
	union fp_stream_argument arg;
	bool locked = true;
	int ret;

	if (_IOC_TYPE(cmd) != _IOC_TYPE(FRAMEPATH_IOC_ATTACH) || size > sizeof(arg))
		return -ENOTTY;
	memset(&arg, 0, sizeof(arg));
	if ((_IOC_DIR(cmd) & _IOC_WRITE) && copy_from_user(&arg, pointer, size))
		return -EFAULT;

	ret = fp_stream_lock(file, cmd);
	if (ret)
		return ret;
	ret = fp_stream_do(file, cmd, &arg, &locked);
	if (locked)
		mutex_unlock(&stream->ctx->lock);

	if (!ret && (_IOC_DIR(cmd) & _IOC_READ) && copy_to_user(pointer, &arg, size))
		return -EFAULT;
	return ret;
}

/*
 * Copies a part of a packet that the decoder has into the bounce buffer. Returns the
 * number of bytes, 0 at the end of the packet. Called with the context's lock.
 */
static ssize_t fp_payload(struct fp_stream *stream, u32 index, u32 offset, size_t bytes)
{
	struct v4l2_m2m_buffer *b;
	ssize_t ret = fp_stream_check(stream);

	if (ret)
		return ret;
	v4l2_m2m_for_each_src_buf(stream->ctx->fh.m2m_ctx, b) {
		struct vb2_buffer *vb = &b->vb.vb2_buf;
		size_t end = vb2_get_plane_payload(vb, 0);
		const u8 *memory = vb2_plane_vaddr(vb, 0);

		if (vb->index != index || !fp_buffer_of(&b->vb)->announced)
			continue;
		if (!memory)
			return -EIO;
		/* The client sent only the payload; the bytes before it stay hidden. */
		if (offset < vb->planes[0].data_offset)
			return -EINVAL;
		if (offset >= end)
			return 0;
		bytes = min(bytes, end - offset);
		memcpy(stream->bounce, memory + offset, bytes);
		return bytes;
	}
	return -EINVAL;
}

/*
 * Reads a packet: the upper half of the file position is the index of its OUTPUT
 * buffer, the lower half the offset. Uses a bounce buffer, so that no fault in the
 * decoder's memory holds the context's lock.
 */
static ssize_t fp_stream_read(struct file *file, char __user *user, size_t bytes, loff_t *at)
{
	struct fp_stream *stream = file->private_data;
	u32 index = *at >> 32, offset = lower_32_bits(*at);
	size_t done = 0;
	ssize_t ret = 0;

	if (mutex_lock_interruptible(&stream->reading))
		return -ERESTARTSYS;
	while (done < bytes && offset + done <= U32_MAX) {
		ret = mutex_lock_interruptible(&stream->ctx->lock);
		if (ret)
			break;
		ret = fp_payload(stream, index, offset + done,
				 min_t(size_t, bytes - done, FP_BOUNCE_BYTES));
		mutex_unlock(&stream->ctx->lock);
		if (ret <= 0)
			break;
		if (copy_to_user(user + done, stream->bounce, ret)) {
			ret = -EFAULT;
			break;
		}
		done += ret;
	}
	mutex_unlock(&stream->reading);
	*at += done;
	return done ?: ret;
}

static __poll_t fp_stream_poll(struct file *file, poll_table *wait)
{
	struct fp_stream *stream = file->private_data;
	struct fp_ctx *ctx = stream->ctx;
	struct fp_buffer *buffer;
	__poll_t events = 0;

	poll_wait(file, &ctx->packets.wait, wait);
	poll_wait(file, &ctx->captures.wait, wait);
	/* A decoder that polls many streams must not wait for one busy client. */
	if (!mutex_trylock(&ctx->lock)) {
		fp_ctx_retry_soon(ctx);
		return 0;
	}
	if (fp_stream_check(stream)) {
		events = EPOLLHUP;
	} else {
		if (fp_packet_pending(ctx, &buffer))
			events |= EPOLLIN | EPOLLRDNORM;
		if (fp_capture_pending(ctx, &buffer))
			events |= EPOLLPRI;
	}
	mutex_unlock(&ctx->lock);
	return events;
}

/* Frees a stream whose file is closed or was never made. */
void fp_stream_free(struct fp_stream *stream)
{
	mutex_destroy(&stream->reading);
	kvfree(stream);
}

/*
 * Ends the descriptor: takes the stream from it, drops its reference and frees it.
 * Called with the context's lock, which it releases.
 */
static void fp_stream_end(struct fp_stream *stream)
{
	struct fp_ctx *ctx = stream->ctx;

	if (ctx->stream == stream)
		fp_stream_orphan(ctx);
	mutex_unlock(&ctx->lock);
	kref_put(&ctx->ref, fp_ctx_free);
	fp_stream_free(stream);
}

static void fp_stream_end_work(struct work_struct *work)
{
	struct fp_stream *stream = container_of(work, struct fp_stream, end);

	mutex_lock(&stream->ctx->lock);
	fp_stream_end(stream);
}

/*
 * Ends the descriptor, by a work item if a client holds the context's lock: the end of
 * a decoder must not wait for a client, as the next decoder waits for this end.
 */
static int fp_stream_release(struct inode *inode, struct file *file)
{
	struct fp_stream *stream = file->private_data;

	if (mutex_trylock(&stream->ctx->lock)) {
		fp_stream_end(stream);
	} else {
		INIT_WORK(&stream->end, fp_stream_end_work);
		queue_work(fp_decoder.work, &stream->end);
	}
	return 0;
}

static const struct file_operations fp_stream_fops = {
	.owner = THIS_MODULE,
	.read = fp_stream_read,
	.release = fp_stream_release,
	.poll = fp_stream_poll,
	.unlocked_ioctl = fp_stream_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

struct fp_stream *fp_stream_new(struct fp_ctx *ctx, u64 attachment)
{
	struct fp_stream *stream = kvzalloc(sizeof(*stream), GFP_KERNEL);

	if (!stream)
		return NULL;
	mutex_init(&stream->reading);
	stream->ctx = ctx;
	stream->attachment = attachment;
	return stream;
}

/*
 * Makes the file of a stream, which then owns the stream and its reference to the
 * context. On failure returns an ERR_PTR, and the caller keeps the stream.
 */
struct file *fp_stream_file(struct fp_stream *stream)
{
	struct file *file = anon_inode_getfile("[framepath-stream]", &fp_stream_fops, stream,
					       O_RDWR);

	if (!IS_ERR(file))
		file->f_mode |= FMODE_PREAD;
	return file;
}

u64 fp_stream_attachment(const struct fp_stream *stream)
{
	return stream->attachment;
}
