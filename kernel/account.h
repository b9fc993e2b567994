/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits on buffer memory and streams of a file, a user and the whole module.
 */
#ifndef FP_ACCOUNT_H
#define FP_ACCOUNT_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#define FP_STREAMS_MAX		64	/* limit of the module: contexts whose OUTPUT streams */

struct fp_user;

/*
 * Account of one open file. Buffer memory holds a reference, and can exist longer
 * than the file is open.
 */
struct fp_account;

/* Numbers of events since the module was loaded; in debugfs, framepath/counts. */
struct fp_counts {
	atomic_long_t cpu_access_begun;	/* begin_cpu_access of imported buffers */
	atomic_long_t cpu_access_ended;	/* end_cpu_access of imported buffers */
	atomic_long_t silent;		/* streams that failed because the decoder was silent */
};

extern struct fp_counts fp_counts;

void fp_account_init(void);
void fp_account_exit(void);

struct fp_account *fp_account_open(void);
void fp_account_get(struct fp_account *account);
void fp_account_put(struct fp_account *account);
kuid_t fp_account_uid(const struct fp_account *account);
bool fp_account_limited(const struct fp_account *account);

int fp_account_charge(struct fp_account *account, u64 bytes);
void fp_account_uncharge(struct fp_account *account, u64 bytes);
int fp_account_stream_begin(struct fp_account *account);
void fp_account_stream_end(struct fp_account *account);

#endif
