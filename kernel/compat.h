/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels that this module builds for, 6.1 to current.
 * No other file of the module depends on the kernel's version.
 */
#ifndef FP_COMPAT_H
#define FP_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/shmem_fs.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/videodev2.h>
#include <media/v4l2-fh.h>
#include <media/v4l2-mem2mem.h>
#include <media/videobuf2-v4l2.h>

#ifndef V4L2_PIX_FMT_AV1
#define V4L2_PIX_FMT_AV1 v4l2_fourcc('A', 'V', '0', '1')
#define FP_DESCRIBE_AV1
#endif

/* Describes AV1 for V4L2 cores that do not know AV1; without it, such a core warns. */
static inline void fp_describe_av1(struct v4l2_fmtdesc *f)
{
#ifdef FP_DESCRIBE_AV1
	if (f->pixelformat == V4L2_PIX_FMT_AV1)
		strscpy(f->description, "AV1", sizeof(f->description));
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define FP_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#else
#define FP_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
/* vb2 itself releases the queue's lock while it waits. */
#define FP_VB2_WAIT_OPS
#else
#define FP_VB2_WAIT_OPS				\
	.wait_prepare = vb2_ops_wait_prepare,	\
	.wait_finish = vb2_ops_wait_finish,
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define FP_IOCTL_REMOVE_BUFS .vidioc_remove_bufs = v4l2_m2m_ioctl_remove_bufs,
#else
#define FP_IOCTL_REMOVE_BUFS
#endif

static inline struct v4l2_fh *fp_file_fh(struct file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return file_to_v4l2_fh(file);
#else
	return file->private_data;
#endif
}

static inline void fp_fh_add(struct v4l2_fh *fh, struct file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	v4l2_fh_add(fh, file);
#else
	file->private_data = fh;
	v4l2_fh_add(fh);
#endif
}

static inline void fp_fh_del(struct v4l2_fh *fh, struct file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	v4l2_fh_del(fh, file);
#else
	v4l2_fh_del(fh);
#endif
}

static inline unsigned int fp_queue_buffers(struct vb2_queue *q)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	return vb2_get_num_buffers(q);
#else
	return q->num_buffers;
#endif
}

/* Returns a limit for loops: the index of each buffer of the queue is less. */
static inline unsigned int fp_queue_indices(struct vb2_queue *q)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	return q->max_num_buffers;
#else
	return q->num_buffers;
#endif
}

static inline int fp_core_expbuf(struct vb2_queue *q, int *fd,
				 struct vb2_buffer *vb, unsigned int flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	return vb2_core_expbuf(q, fd, q->type, vb, 0, flags);
#else
	return vb2_core_expbuf(q, fd, q->type, vb->index, 0, flags);
#endif
}

static inline int fp_dma_buf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return dma_buf_vmap_unlocked(dmabuf, map);
#else
	return dma_buf_vmap(dmabuf, map);
#endif
}

static inline void fp_dma_buf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	dma_buf_vunmap_unlocked(dmabuf, map);
#else
	dma_buf_vunmap(dmabuf, map);
#endif
}

static inline void fp_vma_dontexpand(struct vm_area_struct *vma)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, VM_DONTEXPAND);
#else
	vma->vm_flags |= VM_DONTEXPAND;
#endif
}

static inline struct file *fp_shmem_file(const char *name, loff_t size)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
	return shmem_file_setup(name, size, mk_vma_flags(VMA_NORESERVE_BIT));
#else
	return shmem_file_setup(name, size, VM_NORESERVE);
#endif
}

#endif
