/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory of the nodes' buffers, counted and limited. */
#ifndef FP_MEMORY_H
#define FP_MEMORY_H

#include <linux/dma-buf.h>
#include <media/videobuf2-core.h>

struct fp_account;

/*
 * The driver's data of a queue with fp_memory_ops begins with this, so that an
 * allocation finds its account.
 */
struct fp_queue_owner {
	struct fp_account *account;
};

extern const struct vb2_mem_ops fp_memory_ops;

struct dma_buf *fp_memory_lease(struct dma_buf *lent, size_t bytes);

#endif
