// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits on buffer memory and streams, per file, per user and for the module.
 *
 * A file counts for the user that opened it. A file that was opened inside a user
 * namespace counts for the owner of the outermost one: a user with many mapped ids
 * would otherwise have the limit many times.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/debugfs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "account.h"
#include "core.h"

static unsigned int user_streams = 16;
module_param(user_streams, uint, 0644);
MODULE_PARM_DESC(user_streams,
		 "maximum number of streams of one user without CAP_SYS_RESOURCE; default 16");

static unsigned int memory_mb;
module_param(memory_mb, uint, 0644);
MODULE_PARM_DESC(memory_mb,
		 "maximum buffer memory in total, MiB; 0 (default): half of the machine's memory");

static unsigned int user_memory_mb;
module_param(user_memory_mb, uint, 0644);
MODULE_PARM_DESC(user_memory_mb,
		 "maximum buffer memory of one user without CAP_SYS_RESOURCE, MiB; 0 (default): half of the total");

static unsigned int file_memory_mb;
module_param(file_memory_mb, uint, 0644);
MODULE_PARM_DESC(file_memory_mb,
		 "maximum buffer memory of one open file, MiB; 0 (default): half of the total");

struct fp_user {
	struct list_head node;
	kuid_t uid;
	unsigned int files;		/* number of accounts of this user */
	unsigned int streams;		/* of all files of this user */
	u64 bytes;			/* buffer memory of all files of this user */
};

struct fp_account {
	struct kref ref;
	struct fp_user *user;
	bool limited;			/* limits per user apply: no CAP_SYS_RESOURCE */
	u64 bytes;			/* buffer memory of the file */
};

/* Protects the users, the totals, and the counts of accounts and users. */
static DEFINE_SPINLOCK(fp_account_lock);
static LIST_HEAD(fp_users);
static struct {
	unsigned int streams;
	u64 bytes;
	u64 most_bytes;			/* highest value of bytes so far */
} fp_total;

struct fp_counts fp_counts;
static struct dentry *fp_folder;

static u64 fp_limit(unsigned int mb, u64 otherwise)
{
	return mb ? (u64)mb << 20 : otherwise;
}

static u64 fp_memory_limit(void)
{
	return fp_limit(READ_ONCE(memory_mb), (u64)totalram_pages() * PAGE_SIZE / 2);
}

static kuid_t fp_current_user(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_euid();

	while (ns != &init_user_ns) {
		uid = ns->owner;
		ns = ns->parent;
	}
	return uid;
}

static struct fp_user *fp_user_find(kuid_t uid)
{
	struct fp_user *user;

	list_for_each_entry(user, &fp_users, node)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

struct fp_account *fp_account_open(void)
{
	struct fp_account *account = kzalloc(sizeof(*account), GFP_KERNEL_ACCOUNT);
	struct fp_user *user, *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);

	if (!account || !fresh) {
		kfree(account);
		kfree(fresh);
		return NULL;
	}
	kref_init(&account->ref);
	account->limited = !capable(CAP_SYS_RESOURCE);
	fresh->uid = fp_current_user();

	spin_lock(&fp_account_lock);
	user = fp_user_find(fresh->uid);
	if (!user) {
		user = fresh;
		fresh = NULL;
		list_add(&user->node, &fp_users);
	}
	user->files++;
	account->user = user;
	spin_unlock(&fp_account_lock);
	kfree(fresh);
	return account;
}

static void fp_account_free(struct kref *ref)
{
	struct fp_account *account = container_of(ref, struct fp_account, ref);
	struct fp_user *user = account->user;

	spin_lock(&fp_account_lock);
	if (--user->files)
		user = NULL;
	else
		list_del(&user->node);
	spin_unlock(&fp_account_lock);
	kfree(user);
	kfree(account);
}

void fp_account_get(struct fp_account *account)
{
	kref_get(&account->ref);
}

void fp_account_put(struct fp_account *account)
{
	kref_put(&account->ref, fp_account_free);
}

kuid_t fp_account_uid(const struct fp_account *account)
{
	return account->user->uid;
}

bool fp_account_limited(const struct fp_account *account)
{
	return account->limited;
}

static bool fp_room(u64 used, u64 more, u64 limit)
{
	return used <= limit && more <= limit - used;
}

/*
 * Counts bytes of buffer memory for the file, its user and the module. Returns
 * -ENOMEM, and counts nothing, if one of the three limits would be exceeded.
 */
int fp_account_charge(struct fp_account *account, u64 bytes)
{
	u64 limit = fp_memory_limit();
	u64 of_user = fp_limit(READ_ONCE(user_memory_mb), limit / 2);
	u64 of_file = fp_limit(READ_ONCE(file_memory_mb), limit / 2);
	struct fp_user *user = account->user;
	int ret = -ENOMEM;

	spin_lock(&fp_account_lock);
	if (fp_room(fp_total.bytes, bytes, limit) && fp_room(account->bytes, bytes, of_file) &&
	    (!account->limited || fp_room(user->bytes, bytes, of_user))) {
		fp_total.bytes += bytes;
		fp_total.most_bytes = max(fp_total.most_bytes, fp_total.bytes);
		user->bytes += bytes;
		account->bytes += bytes;
		ret = 0;
	}
	spin_unlock(&fp_account_lock);
	return ret;
}

void fp_account_uncharge(struct fp_account *account, u64 bytes)
{
	spin_lock(&fp_account_lock);
	fp_total.bytes -= bytes;
	account->user->bytes -= bytes;
	account->bytes -= bytes;
	spin_unlock(&fp_account_lock);
}

/*
 * Counts a stream for the file's user and the module. Returns -EBUSY, and counts
 * nothing, if the limit of one of them is reached.
 */
int fp_account_stream_begin(struct fp_account *account)
{
	struct fp_user *user = account->user;
	int ret = -EBUSY;

	spin_lock(&fp_account_lock);
	if (fp_total.streams < FP_STREAMS_MAX &&
	    (!account->limited || user->streams < READ_ONCE(user_streams))) {
		fp_total.streams++;
		user->streams++;
		ret = 0;
	}
	spin_unlock(&fp_account_lock);
	return ret;
}

void fp_account_stream_end(struct fp_account *account)
{
	spin_lock(&fp_account_lock);
	fp_total.streams--;
	account->user->streams--;
	spin_unlock(&fp_account_lock);
}

static int fp_counts_show(struct seq_file *file, void *unused)
{
	unsigned int streams, users = 0;
	u64 bytes, most_bytes;
	struct fp_user *user;

	spin_lock(&fp_account_lock);
	streams = fp_total.streams;
	bytes = fp_total.bytes;
	most_bytes = fp_total.most_bytes;
	list_for_each_entry(user, &fp_users, node)
		users++;
	spin_unlock(&fp_account_lock);

	seq_printf(file, "memory_limit_bytes %llu\n", fp_memory_limit());
	seq_printf(file, "memory_bytes %llu\n", bytes);
	seq_printf(file, "memory_most_bytes %llu\n", most_bytes);
	seq_printf(file, "streams %u\n", streams);
	seq_printf(file, "users %u\n", users);
	seq_printf(file, "cpu_access_begun %ld\n",
		   atomic_long_read(&fp_counts.cpu_access_begun));
	seq_printf(file, "cpu_access_ended %ld\n",
		   atomic_long_read(&fp_counts.cpu_access_ended));
	seq_printf(file, "silent_streams %ld\n", atomic_long_read(&fp_counts.silent));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(fp_counts);

void fp_account_init(void)
{
	fp_folder = debugfs_create_dir(FP_NAME, NULL);
	debugfs_create_file("counts", 0400, fp_folder, NULL, &fp_counts_fops);
}

void fp_account_exit(void)
{
	debugfs_remove(fp_folder);
}
