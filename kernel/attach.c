// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/framepath: a decoder in user space attaches and accepts streams. The
 * descriptors of accepted streams are in stream_file.c.
 */
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
	u64 attachment;			/* number of this file's attachment, never reused */
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
 * Wakes waiters that found the context's lock taken. Needed because no event
 * reports that the lock is free: a client may hold it during an allocation.
 */
void fp_ctx_retry(struct work_struct *work)
{
	struct fp_ctx *ctx = container_of(to_delayed_work(work), struct fp_ctx, retry);

	fp_event_signal(&ctx->packets);
	fp_event_signal(&fp_decoder.wanted);
}

void fp_ctx_retry_soon(struct fp_ctx *ctx)
{
	schedule_delayed_work(&ctx->retry, msecs_to_jiffies(FP_RETRY_MS));
}

static int fp_ioc_attach(struct fp_control *control, const struct fp_attach *attach)
{
	int ret = 0;

	if (attach->version != FRAMEPATH_VERSION) {
		pr_info_ratelimited(FP_NAME ": a decoder for version %u of the interface was refused; this module has version %u\n",
				    attach->version, FRAMEPATH_VERSION);
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
 * Returns a context that needs a decoder, locked and with a reference, or NULL.
 * Called with fp_decoder.lock, which keeps the contexts open. Skips a context
 * whose lock is taken, because a client can hold its lock for long, and wakes the
 * waiters soon, to try the context again.
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

/*
 * Reports whether a context needs a decoder. Called with fp_decoder.lock. Skips a
 * context whose lock is taken, as fp_wanted_lock() does.
 */
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

/* Result of FRAMEPATH_IOC_ACCEPT, and the files that its two descriptors get. */
struct fp_accepted {
	struct fp_accept accept;
	struct file *stream;
	struct file *stash;
};

/*
 * Makes the stash, the descriptors and the stream's file, which can all fail, before
 * the context gets the stream. Called with the context's lock.
 */
static int fp_accepted_prepare(struct fp_accepted *accepted, struct fp_ctx *ctx,
			       struct fp_stream *stream)
{
	struct fp_accept *accept = &accepted->accept;
	int ret;

	if (!ctx->stash) {
		struct file *stash = fp_shmem_file(FP_NAME "-stash", FRAMEPATH_STASH_BYTES);

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
	accepted->stream = fp_stream_file(stream);
	if (IS_ERR(accepted->stream)) {
		ret = PTR_ERR(accepted->stream);
		goto no_file;
	}
	accepted->stash = get_file(ctx->stash);
	return 0;

no_file:
	put_unused_fd(accept->stash);
no_stash:
	put_unused_fd(accept->stream);
	return ret;
}

/*
 * Makes a stream for the context and fills in the result of the call. Called with
 * the context's lock and a reference, which the stream takes over on success.
 */
static int fp_accept_ctx(struct fp_ctx *ctx, struct fp_control *control,
			 struct fp_accepted *accepted)
{
	struct fp_stream *stream = fp_stream_new(ctx, control->attachment);
	struct fp_account *account = ctx->owner.account;
	int ret;

	if (!stream)
		return -ENOMEM;
	ret = fp_accepted_prepare(accepted, ctx, stream);
	if (ret) {
		fp_stream_free(stream);
		return ret;
	}
	/* The file owns the stream now. */
	ctx->stream = stream;
	if (!ctx->id)
		ctx->id = atomic64_inc_return(&fp_decoder.id);
	accepted->accept.id = ctx->id;
	accepted->accept.codec = ctx->coded.pixelformat;
	if (ctx->coded.sized) {
		accepted->accept.width = ctx->coded.width;
		accepted->accept.height = ctx->coded.height;
	}
	accepted->accept.epoch = ctx->epoch;
	accepted->accept.uid = from_kuid_munged(current_user_ns(), fp_account_uid(account));
	accepted->accept.flags = fp_account_limited(account) ? FRAMEPATH_ACCEPT_LIMITED : 0;
	fp_stream_accepted(ctx);
	return 0;
}

/*
 * Copies the result to the caller and installs the descriptors. If the copy fails,
 * drops the files, which ends the stream. Called without locks, because a fault in
 * user memory can take long.
 */
static int fp_accepted_install(struct fp_accepted *accepted, void __user *user)
{
	const struct fp_accept *accept = &accepted->accept;

	if (copy_to_user(user, accept, sizeof(*accept))) {
		put_unused_fd(accept->stash);
		put_unused_fd(accept->stream);
		fput(accepted->stash);
		fput(accepted->stream);
		return -EFAULT;
	}
	fd_install(accept->stream, accepted->stream);
	fd_install(accept->stash, accepted->stash);
	return 0;
}

static int fp_ioc_accept(struct file *file, void __user *user)
{
	struct fp_control *control = file->private_data;
	struct fp_accepted accepted = { };
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
			ret = fp_accept_ctx(ctx, control, &accepted);
			mutex_unlock(&ctx->lock);
			if (!ret)
				return fp_accepted_install(&accepted, user);
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
	case FRAMEPATH_IOC_ATTACH:
		if (copy_from_user(&attach, pointer, sizeof(attach)))
			return -EFAULT;
		return fp_ioc_attach(control, &attach);
	case FRAMEPATH_IOC_ACCEPT:
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

/*
 * Takes the context's stream from the decoder, if this attachment accepted the
 * stream. Called with the context's lock.
 */
static void fp_ctx_detach(struct fp_ctx *ctx, u64 attachment)
{
	if (ctx->stream && fp_stream_attachment(ctx->stream) == attachment)
		fp_stream_orphan(ctx);
}

/* Detaches a context whose client held its lock when the decoder closed its file. */
void fp_ctx_orphan(struct work_struct *work)
{
	struct fp_ctx *ctx = container_of(work, struct fp_ctx, orphan);

	mutex_lock(&ctx->lock);
	fp_ctx_detach(ctx, READ_ONCE(ctx->orphan_of));
	mutex_unlock(&ctx->lock);
	kref_put(&ctx->ref, fp_ctx_free);
}

/*
 * Ends the file's attachment and takes all its streams from the decoder, because
 * another process may still hold their descriptors. Does not wait for a client that
 * holds its own lock, as the next decoder would wait for this: a work item takes
 * such a stream later.
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
				fp_ctx_detach(ctx, control->attachment);
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
