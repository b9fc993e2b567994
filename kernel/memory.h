/* SPDX-License-Identifier: GPL-2.0-only */
/* Counted and limited memory of the nodes' buffers. */
#ifndef FP_MEMORY_H
#define FP_MEMORY_H

#include <linux/dma-buf.h>
#include <media/videobuf2-core.h>

struct fp_account;

/* First member of the driver data of a queue with fp_memory_ops. */
struct fp_queue_owner {
	struct fp_account *account;	/* counts the memory of the queue's buffers */
};

extern const struct vb2_mem_ops fp_memory_ops;

struct dma_buf *fp_memory_lease(struct dma_buf *lent, size_t bytes);
bool fp_memory_same(struct vb2_buffer *from, struct vb2_buffer *to, size_t size);

#endif
