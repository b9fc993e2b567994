// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of the nodes' buffers.
 *
 * MMAP buffers are allocated page by page, charged to the memory cgroup of the
 * calling task, and counted in the file's account until the last mapping and the
 * last dmabuf are gone. videobuf2-vmalloc does neither: it charges no cgroup, and
 * forgets memory that a client has exported or mapped when the queue is freed.
 * Imported memory belongs to its exporter and is not counted. User pointers, which
 * only the measuring node accepts, use videobuf2-vmalloc.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <media/videobuf2-memops.h>
#include <media/videobuf2-vmalloc.h>

#include "account.h"
#include "compat.h"
#include "memory.h"

/* A failed allocation is the client's error; no other process is killed for it. */
#define FP_PAGE_FLAGS (GFP_KERNEL_ACCOUNT | __GFP_HIGHMEM | __GFP_ZERO | __GFP_NOWARN | \
		       __GFP_RETRY_MAYFAIL)

/* Memory of an MMAP buffer. */
struct fp_memory {
	refcount_t ref;			/* of the queue, each dmabuf, each mapping */
	struct vb2_vmarea_handler handler;
	struct fp_account *account;
	size_t bytes;			/* whole pages */
	unsigned int count;		/* pages allocated so far */
	struct page **pages;
	void *address;			/* in the kernel; NULL: not mapped yet */
};

/* Serializes the first mapping of each memory. */
static DEFINE_MUTEX(fp_memory_map_lock);

static void fp_memory_free(struct fp_memory *memory)
{
	if (memory->address)
		vunmap(memory->address);
	while (memory->count)
		__free_page(memory->pages[--memory->count]);
	kvfree(memory->pages);
	fp_account_uncharge(memory->account, memory->bytes);
	fp_account_put(memory->account);
	kfree(memory);
}

static void fp_memory_put(void *priv)
{
	struct fp_memory *memory = priv;

	if (refcount_dec_and_test(&memory->ref))
		fp_memory_free(memory);
}

static int fp_memory_fill(struct fp_memory *memory)
{
	unsigned int pages = memory->bytes >> PAGE_SHIFT;

	memory->pages = kvmalloc_array(pages, sizeof(*memory->pages), GFP_KERNEL_ACCOUNT);
	if (!memory->pages)
		return -ENOMEM;
	while (memory->count < pages) {
		struct page *page;

		/* A killed process does not wait for the rest. */
		if (fatal_signal_pending(current))
			return -EINTR;
		page = alloc_page(FP_PAGE_FLAGS);
		if (!page)
			return -ENOMEM;
		memory->pages[memory->count++] = page;
		cond_resched();
	}
	return 0;
}

/*
 * Maps memory into the kernel's address space, if it is not mapped yet. Decoded frames
 * are mapped only for an importer of their dmabuf, since the module does not read them.
 */
static int fp_memory_map_kernel(struct fp_memory *memory)
{
	void *address;

	mutex_lock(&fp_memory_map_lock);
	address = memory->address;
	if (!address)
		address = vmap(memory->pages, memory->count, VM_MAP, PAGE_KERNEL);
	memory->address = address;
	mutex_unlock(&fp_memory_map_lock);
	return address ? 0 : -ENOMEM;
}

static void *fp_memory_alloc(struct vb2_buffer *vb, struct device *dev, unsigned long size)
{
	struct fp_queue_owner *owner = vb2_get_drv_priv(vb->vb2_queue);
	struct fp_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!memory)
		return ERR_PTR(-ENOMEM);
	memory->bytes = PAGE_ALIGN(size);
	ret = fp_account_charge(owner->account, memory->bytes);
	if (ret) {
		kfree(memory);
		return ERR_PTR(ret);
	}
	fp_account_get(owner->account);
	memory->account = owner->account;
	ret = fp_memory_fill(memory);
	if (!ret && vb->vb2_queue->type != V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE)
		ret = fp_memory_map_kernel(memory);
	if (ret) {
		fp_memory_free(memory);
		return ERR_PTR(ret);
	}
	refcount_set(&memory->ref, 1);
	memory->handler.refcount = &memory->ref;
	memory->handler.put = fp_memory_put;
	memory->handler.arg = memory;
	return memory;
}

/*
 * Maps the memory from its page vma->vm_pgoff on into a process. Fails for a mapping
 * beyond the end of the memory.
 */
static int fp_memory_mmap(void *priv, struct vm_area_struct *vma)
{
	struct fp_memory *memory = priv;
	int ret;

	/* CREATE_BUFS in another thread: the buffer exists before its memory. */
	if (!memory)
		return -EINVAL;
	ret = vm_map_pages(vma, memory->pages, memory->count);
	if (ret)
		return ret;
	fp_vma_dontexpand(vma);
	vma->vm_private_data = &memory->handler;
	vma->vm_ops = &vb2_common_vm_ops;
	vma->vm_ops->open(vma);
	return 0;
}

/* ---- as a dmabuf --------------------------------------------------------- */

static struct sg_table *fp_dmabuf_map(struct dma_buf_attachment *attachment,
				      enum dma_data_direction direction)
{
	struct fp_memory *memory = attachment->dmabuf->priv;
	struct sg_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	int ret;

	if (!table)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table_from_pages(table, memory->pages, memory->count, 0, memory->bytes,
					GFP_KERNEL);
	if (ret)
		goto no_table;
	ret = dma_map_sgtable(attachment->dev, table, direction, 0);
	if (ret)
		goto no_map;
	return table;

no_map:
	sg_free_table(table);
no_table:
	kfree(table);
	return ERR_PTR(ret);
}

static void fp_dmabuf_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			    enum dma_data_direction direction)
{
	dma_unmap_sgtable(attachment->dev, table, direction, 0);
	sg_free_table(table);
	kfree(table);
}

static int fp_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct fp_memory *memory = dmabuf->priv;
	int ret = fp_memory_map_kernel(memory);

	if (ret)
		return ret;
	iosys_map_set_vaddr(map, memory->address);
	return 0;
}

static int fp_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	return fp_memory_mmap(dmabuf->priv, vma);
}

static void fp_dmabuf_release(struct dma_buf *dmabuf)
{
	fp_memory_put(dmabuf->priv);
}

static const struct dma_buf_ops fp_dmabuf_ops = {
	.map_dma_buf = fp_dmabuf_map,
	.unmap_dma_buf = fp_dmabuf_unmap,
	.vmap = fp_dmabuf_vmap,
	.mmap = fp_dmabuf_mmap,
	.release = fp_dmabuf_release,
};

static struct dma_buf *fp_memory_get_dmabuf(struct vb2_buffer *vb, void *priv,
					    unsigned long flags)
{
	struct fp_memory *memory = priv;
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	info.ops = &fp_dmabuf_ops;
	info.size = memory->bytes;
	info.flags = flags;
	info.priv = memory;
	refcount_inc(&memory->ref);
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		fp_memory_put(memory);
		return NULL;
	}
	return dmabuf;
}

/* ---- leases for the decoder ---------------------------------------------- */

/* The decoder may map a lease, but no device may import it. */
static int fp_lease_attach(struct dma_buf *lease, struct dma_buf_attachment *attachment)
{
	return -EOPNOTSUPP;
}

static struct sg_table *fp_lease_map(struct dma_buf_attachment *attachment,
				     enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void fp_lease_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			   enum dma_data_direction direction)
{
}

static int fp_lease_mmap(struct dma_buf *lease, struct vm_area_struct *vma)
{
	return dma_buf_mmap(lease->priv, vma, vma->vm_pgoff);
}

static int fp_lease_begin(struct dma_buf *lease, enum dma_data_direction direction)
{
	return dma_buf_begin_cpu_access(lease->priv, direction);
}

static int fp_lease_end(struct dma_buf *lease, enum dma_data_direction direction)
{
	return dma_buf_end_cpu_access(lease->priv, direction);
}

static void fp_lease_release(struct dma_buf *lease)
{
	dma_buf_put(lease->priv);
}

static const struct dma_buf_ops fp_lease_ops = {
	.attach = fp_lease_attach,
	.map_dma_buf = fp_lease_map,
	.unmap_dma_buf = fp_lease_unmap,
	.begin_cpu_access = fp_lease_begin,
	.end_cpu_access = fp_lease_end,
	.mmap = fp_lease_mmap,
	.release = fp_lease_release,
};

/*
 * Makes a lease: another dmabuf of the first bytes of the dmabuf lent, in whole pages.
 * dma-buf refuses mappings beyond the end of the lease. Takes over the reference to
 * lent, also on failure (ERR_PTR).
 */
struct dma_buf *fp_memory_lease(struct dma_buf *lent, size_t bytes)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *lease;

	info.ops = &fp_lease_ops;
	info.size = min_t(size_t, PAGE_ALIGN(bytes), lent->size);
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = lent;
	lease = dma_buf_export(&info);
	if (IS_ERR(lease))
		dma_buf_put(lent);
	return lease;
}

/* ---- imported memory ----------------------------------------------------- */

/* Memory of an imported dmabuf. */
struct fp_import {
	struct dma_buf *dmabuf;
	size_t bytes;			/* that the buffer needs */
	void *address;			/* in the kernel; NULL: not mapped */
};

/*
 * Records the dmabuf; fp_import_map() checks it. Must not fail: vb2 drops its
 * reference to the dmabuf if map_dmabuf fails, but leaks it if attach_dmabuf fails
 * (Linux 6.12).
 */
static void *fp_import_attach(struct vb2_buffer *vb, struct device *dev, struct dma_buf *dmabuf,
			      unsigned long size)
{
	struct fp_import *import = kzalloc(sizeof(*import), GFP_KERNEL | __GFP_NOFAIL);

	import->dmabuf = dmabuf;
	import->bytes = size;
	return import;
}

static void fp_import_detach(void *priv)
{
	kfree(priv);
}

static int fp_import_map(void *priv)
{
	struct fp_import *import = priv;
	struct iosys_map map;

	if (import->dmabuf->size < import->bytes)
		return -EFAULT;
	if (fp_dma_buf_vmap(import->dmabuf, &map))
		return -EFAULT;
	import->address = map.vaddr;
	return 0;
}

static void fp_import_unmap(void *priv)
{
	struct fp_import *import = priv;
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(import->address);

	fp_dma_buf_vunmap(import->dmabuf, &map);
	import->address = NULL;
}

/* ---- for vb2 ------------------------------------------------------------- */

static void *fp_memory_vaddr(struct vb2_buffer *vb, void *priv)
{
	switch (vb->memory) {
	case VB2_MEMORY_MMAP:
		return ((struct fp_memory *)priv)->address;
	case VB2_MEMORY_DMABUF:
		return ((struct fp_import *)priv)->address;
	default:
		return vb2_vmalloc_memops.vaddr(vb, priv);
	}
}

static unsigned int fp_memory_num_users(void *priv)
{
	struct fp_memory *memory = priv;

	return refcount_read(&memory->ref);
}

static void *fp_memory_get_userptr(struct vb2_buffer *vb, struct device *dev,
				   unsigned long address, unsigned long size)
{
	return vb2_vmalloc_memops.get_userptr(vb, dev, address, size);
}

static void fp_memory_put_userptr(void *priv)
{
	vb2_vmalloc_memops.put_userptr(priv);
}

const struct vb2_mem_ops fp_memory_ops = {
	.alloc = fp_memory_alloc,
	.put = fp_memory_put,
	.get_dmabuf = fp_memory_get_dmabuf,
	.get_userptr = fp_memory_get_userptr,
	.put_userptr = fp_memory_put_userptr,
	.attach_dmabuf = fp_import_attach,
	.detach_dmabuf = fp_import_detach,
	.map_dmabuf = fp_import_map,
	.unmap_dmabuf = fp_import_unmap,
	.vaddr = fp_memory_vaddr,
	.mmap = fp_memory_mmap,
	.num_users = fp_memory_num_users,
};

/*
 * Reports whether the first size bytes of both buffers are the same memory. All
 * importers of a dmabuf share one kernel mapping, and so does the queue that exported
 * it. Only user memory has a mapping per buffer; there the pages are compared, since
 * the same address can belong to another process or have another page by now.
 */
bool fp_memory_same(struct vb2_buffer *from, struct vb2_buffer *to, size_t size)
{
	u8 *from_memory = vb2_plane_vaddr(from, 0);
	u8 *to_memory = vb2_plane_vaddr(to, 0);
	size_t at;

	if (from_memory == to_memory)
		return true;
	if (from->memory != VB2_MEMORY_USERPTR || to->memory != VB2_MEMORY_USERPTR ||
	    from->planes[0].m.userptr != to->planes[0].m.userptr)
		return false;

	for (at = 0; at < size; at += PAGE_SIZE - offset_in_page(from_memory + at)) {
		if (vmalloc_to_page(from_memory + at) != vmalloc_to_page(to_memory + at))
			return false;
	}
	return true;
}
