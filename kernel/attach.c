// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/framepath, where a decoder in user space attaches, and the descriptors of
 * the streams it accepts. Whatever it says is checked in stream.c; here are the
 * files, their waits, and who may speak.
 */
#include <linux/anon_inodes.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"

/* An open file of /dev/framepath. */
struct fp_control {
	bool attached;			/* under fp_decoder.lock */
	u64 attachment;			/* number of its attachment, never used again */
};

/* Of a payload, copied with the context's lock in one go. */
#define FP_BOUNCE_BYTES 32768

/* A stream's descriptor. It speaks while it is ctx->stream. */
struct fp_stream {
	struct fp_ctx *ctx;		/* holds a reference */
	u64 attachment;			/* that accepted it */
	bool stopped;			/* FP_IOC_STOP was said; under ctx->lock */
	struct work_struct end;		/* of a release that found ctx->lock taken */
	struct mutex reading;		/* taken before ctx->lock */
	u8 bounce[FP_BOUNCE_BYTES];	/* under reading */
};

void fp_ctx_free(struct kref *ref)
{
	struct fp_ctx *ctx = container_of(ref, struct fp_ctx, ref);

	if (ctx->stash)
		fput(ctx->stash);
	cancel_delayed_work_sync(&ctx->retry);
	mutex_destroy(&ctx->lock);
	fp_account_put(ctx->owner.account);
	kfree(ctx);
}

/*
 * Whoever found the context's lock taken looks again. That is needed because no
 * event says that it is free: a client may hold it while it allocates.
 */
void fp_ctx_retry(struct work_struct *work)
{
	struct fp_ctx *ctx = container_of(to_delayed_work(work), struct fp_ctx, retry);

	fp_news_add(&ctx->packets);
	fp_news_add(&fp_decoder.wanted);
}

static void fp_ctx_retry_soon(struct fp_ctx *ctx)
{
	schedule_delayed_work(&ctx->retry, msecs_to_jiffies(FP_RETRY_MS));
}

/* ---- a stream's descriptor ------------------------------------------------ */

/* With the context's lock. */
static int fp_stream_ended(struct fp_stream *stream)
{
	if (stream->stopped)
		return -ESHUTDOWN;
	if (stream->ctx->closed || stream->ctx->stream != stream)
		return -ENODEV;
	return 0;
}

/*
 * With the context's lock, which it lets go of. 0: there may be something to say.
 * A decoder that is killed does not wait for the lock, and is told so by locked.
 */
static int fp_stream_wait(struct file *file, struct fp_news *news, bool *locked)
{
	struct fp_stream *stream = file->private_data;
	int ret, seen = atomic_read(&news->count);

	if (file->f_flags & O_NONBLOCK)
		return -EAGAIN;
	mutex_unlock(&stream->ctx->lock);
	ret = wait_event_interruptible(news->wait, atomic_read(&news->count) != seen);
	if (mutex_lock_killable(&stream->ctx->lock)) {
		*locked = false;
		return -ERESTARTSYS;
	}
	return ret ?: fp_stream_ended(stream);
}

/* The decoder gets the bytes of a frame, and nothing that lies behind them. */
static int fp_ioc_export(struct fp_ctx *ctx, struct fp_export *export)
{
	struct dma_buf *dmabuf;
	struct vb2_buffer *vb;
	int fd;

	if (export->queue != FP_QUEUE_CAPTURE)
		return -EINVAL;
	vb = vb2_get_buffer(fp_capture_queue(ctx), export->index);
	/* An imported buffer has memory since it was first queued. */
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
	pr_info_ratelimited(FP_NAME ": the decoder gives up stream %llu: error %d\n",
			    ctx->id, fail->error);
	fp_stream_fail(ctx, fail->error);
	return 0;
}

static int fp_ioc_stop(struct fp_stream *stream)
{
	stream->stopped = true;
	fp_news_add(&stream->ctx->packets);
	fp_news_add(&stream->ctx->captures);
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

/* With the context's lock. */
static int fp_stream_do(struct file *file, unsigned int cmd, union fp_stream_argument *arg,
			bool *locked)
{
	struct fp_stream *stream = file->private_data;
	struct fp_ctx *ctx = stream->ctx;
	int ret = fp_stream_ended(stream);

	if (ret)
		return ret;
	switch (cmd) {
	case FP_IOC_NEXT_PACKET:
		while (!ret && !fp_packet_next(ctx, &arg->packet))
			ret = fp_stream_wait(file, &ctx->packets, locked);
		return ret;
	case FP_IOC_PACKET_DONE:
		return fp_packet_done(ctx, &arg->packet_done);
	case FP_IOC_NEXT_CAPTURE:
		while (!ret && !fp_capture_next(ctx, &arg->capture))
			ret = fp_stream_wait(file, &ctx->captures, locked);
		return ret;
	case FP_IOC_EXPORT:
		return fp_ioc_export(ctx, &arg->export);
	case FP_IOC_FORMAT:
		return fp_said_format(ctx, &arg->format);
	case FP_IOC_FRAME:
		return fp_said_frame(ctx, &arg->frame);
	case FP_IOC_DRAINED:
		return fp_said_drained(ctx, &arg->drained);
	case FP_IOC_FAIL:
		return fp_ioc_fail(ctx, &arg->fail);
	case FP_IOC_DELIVERED:
		return fp_delivered(ctx, &arg->delivered);
	case FP_IOC_STOP:
		return fp_ioc_stop(stream);
	default:
		return -ENOTTY;
	}
}

/* A decoder that does not want to wait for a client's words waits for its lock neither. */
static int fp_stream_lock(struct file *file, unsigned int cmd)
{
	struct fp_stream *stream = file->private_data;
	struct mutex *lock = &stream->ctx->lock;

	if (file->f_flags & O_NONBLOCK &&
	    (cmd == FP_IOC_NEXT_PACKET || cmd == FP_IOC_NEXT_CAPTURE))
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

	if (_IOC_TYPE(cmd) != _IOC_TYPE(FP_IOC_ATTACH) || size > sizeof(arg))
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

/* With the context's lock: part of the payload of a packet the decoder has. */
static ssize_t fp_payload(struct fp_stream *stream, u32 index, u32 offset, size_t bytes)
{
	struct v4l2_m2m_buffer *b;
	ssize_t ret = fp_stream_ended(stream);

	if (ret)
		return ret;
	v4l2_m2m_for_each_src_buf(stream->ctx->fh.m2m_ctx, b) {
		struct vb2_buffer *vb = &b->vb.vb2_buf;
		size_t end = vb2_get_plane_payload(vb, 0);
		const u8 *memory = vb2_plane_vaddr(vb, 0);

		if (vb->index != index || !fp_buffer_of(&b->vb)->told)
			continue;
		if (!memory)
			return -EIO;
		/* Around the payload is what the client did not send. */
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

/* By way of a bounce buffer: no fault in the decoder's memory holds the lock. */
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
	/* A decoder that polls many streams does not wait for one whose client is busy. */
	if (!mutex_trylock(&ctx->lock)) {
		fp_ctx_retry_soon(ctx);
		return 0;
	}
	if (fp_stream_ended(stream)) {
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

/* With the context's lock, which it lets go of. */
static void fp_stream_end(struct fp_stream *stream)
{
	struct fp_ctx *ctx = stream->ctx;

	if (ctx->stream == stream)
		fp_stream_orphan(ctx);
	mutex_unlock(&ctx->lock);
	kref_put(&ctx->ref, fp_ctx_free);
	mutex_destroy(&stream->reading);
	kvfree(stream);
}

static void fp_stream_end_work(struct work_struct *work)
{
	struct fp_stream *stream = container_of(work, struct fp_stream, end);

	mutex_lock(&stream->ctx->lock);
	fp_stream_end(stream);
}

/* A decoder that ends does not wait for a client, and so the next one does not. */
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

/* ---- /dev/framepath ------------------------------------------------------- */

static int fp_ioc_attach(struct fp_control *control, const struct fp_attach *attach)
{
	int ret = 0;

	if (attach->version != FP_VERSION) {
		pr_info_ratelimited(FP_NAME ": a decoder for version %u of the interface was refused; this module has version %u\n",
				    attach->version, FP_VERSION);
		return -EPROTO;
	}
	if (attach->reserved)
		return -EINVAL;
	mutex_lock(&fp_decoder.lock);
	if (fp_decoder.attached) {
		ret = -EBUSY;
	} else {
		fp_decoder.attached = control;
		control->attached = true;
		control->attachment = ++fp_decoder.attachment;
	}
	mutex_unlock(&fp_decoder.lock);
	return ret;
}

/*
 * A context that wants a decoder, locked and with a reference, or NULL. With the
 * list's lock, which keeps the contexts open. A client can hold its lock for
 * long, and is passed over then; others do not wait for it.
 */
static struct fp_ctx *fp_wanted_lock(void)
{
	struct fp_ctx *ctx;

	list_for_each_entry(ctx, &fp_decoder.contexts, node) {
		if (!READ_ONCE(ctx->wanted))
			continue;
		if (!mutex_trylock(&ctx->lock)) {
			fp_ctx_retry_soon(ctx);
			continue;
		}
		if (ctx->wanted) {
			kref_get(&ctx->ref);
			return ctx;
		}
		mutex_unlock(&ctx->lock);
	}
	return NULL;
}

/* With the list's lock. */
static bool fp_wanted(void)
{
	struct fp_ctx *ctx;

	list_for_each_entry(ctx, &fp_decoder.contexts, node) {
		if (!READ_ONCE(ctx->wanted))
			continue;
		if (!mutex_is_locked(&ctx->lock))
			return true;
		fp_ctx_retry_soon(ctx);
	}
	return false;
}

/* What an accepted stream is given with. */
struct fp_given {
	struct fp_accept accept;
	struct file *stream;
	struct file *stash;
};

/* With the context's lock: all that can fail, before anything is changed. */
static int fp_given_make(struct fp_given *given, struct fp_ctx *ctx, struct fp_stream *stream)
{
	struct fp_accept *accept = &given->accept;
	int ret;

	if (!ctx->stash) {
		struct file *stash = fp_shmem_file(FP_NAME "-stash", FP_STASH_BYTES);

		if (IS_ERR(stash))
			return PTR_ERR(stash);
		stash->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
		ctx->stash = stash;
	}
	accept->stream = get_unused_fd_flags(O_CLOEXEC);
	if (accept->stream < 0)
		return accept->stream;
	accept->stash = get_unused_fd_flags(O_CLOEXEC);
	if (accept->stash < 0) {
		ret = accept->stash;
		goto no_stash;
	}
	given->stream = anon_inode_getfile("[framepath-stream]", &fp_stream_fops, stream, O_RDWR);
	if (IS_ERR(given->stream)) {
		ret = PTR_ERR(given->stream);
		goto no_file;
	}
	given->stream->f_mode |= FMODE_PREAD;
	given->stash = get_file(ctx->stash);
	return 0;

no_file:
	put_unused_fd(accept->stash);
no_stash:
	put_unused_fd(accept->stream);
	return ret;
}

/* With the context's lock, and a reference to it that the stream takes over. */
static int fp_accept_ctx(struct fp_ctx *ctx, struct fp_control *control, struct fp_given *given)
{
	struct fp_stream *stream = kvzalloc(sizeof(*stream), GFP_KERNEL);
	struct fp_account *account = ctx->owner.account;
	int ret;

	if (!stream)
		return -ENOMEM;
	mutex_init(&stream->reading);
	stream->ctx = ctx;
	stream->attachment = control->attachment;
	ret = fp_given_make(given, ctx, stream);
	if (ret) {
		mutex_destroy(&stream->reading);
		kvfree(stream);
		return ret;
	}
	/* The file owns the stream now. */
	ctx->stream = stream;
	if (!ctx->id)
		ctx->id = atomic64_inc_return(&fp_decoder.id);
	given->accept.id = ctx->id;
	given->accept.codec = ctx->coded.pixelformat;
	if (ctx->coded.sized) {
		given->accept.width = ctx->coded.width;
		given->accept.height = ctx->coded.height;
	}
	given->accept.epoch = ctx->epoch;
	given->accept.uid = from_kuid_munged(current_user_ns(), fp_account_uid(account));
	given->accept.flags = fp_account_limited(account) ? FP_ACCEPT_LIMITED : 0;
	fp_stream_accepted(ctx);
	return 0;
}

/* Without locks: a fault in user memory may take as long as it likes. */
static int fp_given_install(struct fp_given *given, void __user *user)
{
	const struct fp_accept *accept = &given->accept;

	if (copy_to_user(user, accept, sizeof(*accept))) {
		put_unused_fd(accept->stash);
		put_unused_fd(accept->stream);
		fput(given->stash);
		fput(given->stream);
		return -EFAULT;
	}
	fd_install(accept->stream, given->stream);
	fd_install(accept->stash, given->stash);
	return 0;
}

static int fp_ioc_accept(struct file *file, void __user *user)
{
	struct fp_control *control = file->private_data;
	struct fp_given given = { };
	int ret;

	for (;;) {
		int seen = atomic_read(&fp_decoder.wanted.count);
		struct fp_ctx *ctx;

		mutex_lock(&fp_decoder.lock);
		if (!control->attached) {
			mutex_unlock(&fp_decoder.lock);
			return -ENOTCONN;
		}
		ctx = fp_wanted_lock();
		mutex_unlock(&fp_decoder.lock);

		if (ctx) {
			ret = fp_accept_ctx(ctx, control, &given);
			mutex_unlock(&ctx->lock);
			if (!ret)
				return fp_given_install(&given, user);
			kref_put(&ctx->ref, fp_ctx_free);
			return ret;
		}
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = wait_event_interruptible(fp_decoder.wanted.wait,
					       atomic_read(&fp_decoder.wanted.count) != seen);
		if (ret)
			return ret;
	}
}

static long fp_control_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct fp_control *control = file->private_data;
	void __user *pointer = (void __user *)user;
	struct fp_attach attach;

	switch (cmd) {
	case FP_IOC_ATTACH:
		if (copy_from_user(&attach, pointer, sizeof(attach)))
			return -EFAULT;
		return fp_ioc_attach(control, &attach);
	case FP_IOC_ACCEPT:
		return fp_ioc_accept(file, pointer);
	default:
		return -ENOTTY;
	}
}

static __poll_t fp_control_poll(struct file *file, poll_table *wait)
{
	struct fp_control *control = file->private_data;
	__poll_t events = 0;

	poll_wait(file, &fp_decoder.wanted.wait, wait);
	mutex_lock(&fp_decoder.lock);
	if (control->attached && fp_wanted())
		events = EPOLLIN | EPOLLRDNORM;
	mutex_unlock(&fp_decoder.lock);
	return events;
}

static int fp_control_open(struct inode *inode, struct file *file)
{
	struct fp_control *control = kzalloc(sizeof(*control), GFP_KERNEL);

	if (!control)
		return -ENOMEM;
	file->private_data = control;
	return nonseekable_open(inode, file);
}

/* With the context's lock. */
static void fp_ctx_lose(struct fp_ctx *ctx, u64 attachment)
{
	if (ctx->stream && ctx->stream->attachment == attachment)
		fp_stream_orphan(ctx);
}

/* Of a context whose client held its lock when the decoder went. */
void fp_ctx_orphan(struct work_struct *work)
{
	struct fp_ctx *ctx = container_of(work, struct fp_ctx, orphan);

	mutex_lock(&ctx->lock);
	fp_ctx_lose(ctx, READ_ONCE(ctx->orphan_of));
	mutex_unlock(&ctx->lock);
	kref_put(&ctx->ref, fp_ctx_free);
}

/*
 * A decoder that has gone may have left its streams to a process that hangs. The
 * next decoder waits for no client that holds its own lock.
 */
static int fp_control_release(struct inode *inode, struct file *file)
{
	struct fp_control *control = file->private_data;
	struct fp_ctx *ctx;

	mutex_lock(&fp_decoder.lock);
	if (control->attached) {
		fp_decoder.attached = NULL;
		list_for_each_entry(ctx, &fp_decoder.contexts, node) {
			if (mutex_trylock(&ctx->lock)) {
				fp_ctx_lose(ctx, control->attachment);
				mutex_unlock(&ctx->lock);
				continue;
			}
			WRITE_ONCE(ctx->orphan_of, control->attachment);
			kref_get(&ctx->ref);
			if (!queue_work(fp_decoder.work, &ctx->orphan))
				kref_put(&ctx->ref, fp_ctx_free);
		}
	}
	mutex_unlock(&fp_decoder.lock);
	kfree(control);
	return 0;
}

static const struct file_operations fp_control_fops = {
	.owner = THIS_MODULE,
	.open = fp_control_open,
	.release = fp_control_release,
	.poll = fp_control_poll,
	.unlocked_ioctl = fp_control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice fp_control_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = FP_NAME,
	.fops = &fp_control_fops,
	.mode = 0600,
};

int fp_attach_register(void)
{
	return misc_register(&fp_control_device);
}

void fp_attach_unregister(void)
{
	misc_deregister(&fp_control_device);
}
