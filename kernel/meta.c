// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/framepath-meta: one ring of records that all readers share, and a cursor for
 * each reader. The writer never waits. A reader that falls behind by more than the
 * ring continues with the oldest record, and counts the missed ones.
 *
 * ring.lock orders writer and readers: a record is complete and numbered before it
 * is visible, and readers are woken after that. Readers copy batches under the lock,
 * because a copy to user space may fault.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "meta.h"

#define FP_META_RECORDS 4096	/* records in the ring: 480 KiB */
#define FP_META_BATCH 32	/* most records that are copied under ring.lock at once */

static struct {
	spinlock_t lock;		/* guards records, next, and the readers' cursors */
	wait_queue_head_t wait;		/* of readers that wait for a record */
	struct fp_meta_record *records;
	u64 next;			/* number of the next record to be written */
} ring;

/* An open file of /dev/framepath-meta. */
struct fp_meta_reader {
	struct mutex lock;		/* guards the rest: one batch at a time */
	u64 cursor;			/* next record to read; changes under ring.lock too */
	u64 missed;			/* records overwritten before they were read */
	size_t record_bytes;		/* bytes of each record that the reader gets */
	struct fp_meta_record batch[FP_META_BATCH];
};

void fp_meta_push(struct fp_meta_record *record)
{
	spin_lock(&ring.lock);
	record->number = ring.next;
	ring.records[ring.next % FP_META_RECORDS] = *record;
	ring.next++;
	spin_unlock(&ring.lock);

	wake_up_interruptible(&ring.wait);
}

static bool fp_meta_readable(struct fp_meta_reader *reader)
{
	bool readable;

	spin_lock(&ring.lock);
	readable = reader->cursor != ring.next;
	spin_unlock(&ring.lock);

	return readable;
}

/*
 * Moves the cursor behind records that the ring no longer has, and counts them as
 * missed. Called with ring.lock.
 */
static void fp_meta_catch_up(struct fp_meta_reader *reader)
{
	u64 behind = ring.next - reader->cursor;

	if (behind > FP_META_RECORDS) {
		reader->missed += behind - FP_META_RECORDS;
		reader->cursor = ring.next - FP_META_RECORDS;
	}
}

/*
 * Copies up to limit records, at most a batch, from the cursor on into the batch.
 * Returns their number. fp_meta_advance() moves the cursor behind them.
 */
static size_t fp_meta_peek(struct fp_meta_reader *reader, size_t limit)
{
	u8 *packed = (u8 *)reader->batch;
	size_t count, i;

	spin_lock(&ring.lock);
	fp_meta_catch_up(reader);
	count = min_t(u64, ring.next - reader->cursor, min_t(size_t, limit, FP_META_BATCH));
	for (i = 0; i < count; i++)
		memcpy(packed + i * reader->record_bytes,
		       &ring.records[(reader->cursor + i) % FP_META_RECORDS],
		       reader->record_bytes);
	spin_unlock(&ring.lock);

	return count;
}

static void fp_meta_advance(struct fp_meta_reader *reader, size_t count)
{
	spin_lock(&ring.lock);
	reader->cursor += count;
	spin_unlock(&ring.lock);
}

static ssize_t fp_meta_read(struct file *file, char __user *buffer, size_t bytes, loff_t *offset)
{
	struct fp_meta_reader *reader = file->private_data;
	size_t done = 0, want, size;
	int ret;

	for (;;) {
		ret = mutex_lock_interruptible(&reader->lock);
		if (ret)
			return ret;
		size = reader->record_bytes;
		/* At most a ring: a fast writer must not keep the call in the kernel. */
		want = min_t(size_t, bytes / size, FP_META_RECORDS);
		if (!want)
			ret = -EINVAL;
		while (done < want) {
			size_t count = fp_meta_peek(reader, want - done);

			if (!count)
				break;
			if (copy_to_user(buffer + done * size, reader->batch, count * size)) {
				ret = -EFAULT;
				break;
			}
			fp_meta_advance(reader, count);
			done += count;
		}
		mutex_unlock(&reader->lock);

		if (done)
			return done * size;
		if (ret)
			return ret;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = wait_event_interruptible(ring.wait, fp_meta_readable(reader));
		if (ret)
			return ret;
	}
}

static __poll_t fp_meta_poll(struct file *file, poll_table *table)
{
	struct fp_meta_reader *reader = file->private_data;

	poll_wait(file, &ring.wait, table);

	return fp_meta_readable(reader) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int fp_meta_missed(struct fp_meta_reader *reader, u64 __user *user)
{
	u64 missed;
	int ret;

	ret = mutex_lock_interruptible(&reader->lock);
	if (ret)
		return ret;
	spin_lock(&ring.lock);
	fp_meta_catch_up(reader);
	spin_unlock(&ring.lock);
	missed = reader->missed;
	mutex_unlock(&reader->lock);

	return copy_to_user(user, &missed, sizeof(missed)) ? -EFAULT : 0;
}

/*
 * FRAMEPATH_IOC_META_BYTES: takes the bytes of a record that the reader knows, and
 * returns the bytes of each record that it gets from now on: no more than a record of
 * this module has.
 */
static int fp_meta_bytes(struct fp_meta_reader *reader, u32 __user *user)
{
	u32 bytes;
	int ret;

	if (get_user(bytes, user))
		return -EFAULT;
	if (bytes < FRAMEPATH_META_BYTES_FIRST || bytes % sizeof(u64))
		return -EINVAL;
	bytes = min_t(u32, bytes, sizeof(reader->batch[0]));
	ret = mutex_lock_interruptible(&reader->lock);
	if (ret)
		return ret;
	reader->record_bytes = bytes;
	mutex_unlock(&reader->lock);
	return put_user(bytes, user);
}

static long fp_meta_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct fp_meta_reader *reader = file->private_data;
	void __user *user = (void __user *)argument;

	switch (command) {
	case FRAMEPATH_IOC_META_MISSED:
		return fp_meta_missed(reader, user);
	case FRAMEPATH_IOC_META_BYTES:
		return fp_meta_bytes(reader, user);
	default:
		return -ENOTTY;
	}
}

static int fp_meta_open(struct inode *inode, struct file *file)
{
	struct fp_meta_reader *reader = kzalloc(sizeof(*reader), GFP_KERNEL);

	if (!reader)
		return -ENOMEM;

	mutex_init(&reader->lock);
	reader->record_bytes = FRAMEPATH_META_BYTES_FIRST;
	spin_lock(&ring.lock);
	reader->cursor = ring.next;
	spin_unlock(&ring.lock);
	file->private_data = reader;

	return stream_open(inode, file);
}

static int fp_meta_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct file_operations fp_meta_fops = {
	.owner = THIS_MODULE,
	.open = fp_meta_open,
	.release = fp_meta_release,
	.read = fp_meta_read,
	.poll = fp_meta_poll,
	.unlocked_ioctl = fp_meta_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice fp_meta_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "framepath-meta",
	.fops = &fp_meta_fops,
};

int fp_meta_init(void)
{
	BUILD_BUG_ON(offsetofend(struct fp_meta_record, copied) != FRAMEPATH_META_BYTES_FIRST);
	spin_lock_init(&ring.lock);
	init_waitqueue_head(&ring.wait);
	ring.next = 0;
	ring.records = vzalloc(array_size(FP_META_RECORDS, sizeof(*ring.records)));
	if (!ring.records)
		return -ENOMEM;

	return 0;
}

void fp_meta_exit(void)
{
	vfree(ring.records);
}

int fp_meta_register(void)
{
	return misc_register(&fp_meta_device);
}

void fp_meta_unregister(void)
{
	misc_deregister(&fp_meta_device);
}
