/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Interface of framepath.ko to user space, beside the V4L2 interface of its nodes.
 *
 *   /dev/framepath       a decoder in user space attaches here
 *   /dev/framepath-meta  one record per frame of the measuring node
 *
 * All structures have a fixed size and no padding, the same for 32 and 64 bits.
 * Reserved fields are 0. docs/device-uapi.md describes each call and its errors.
 */
#ifndef _UAPI_FRAMEPATH_H
#define _UAPI_FRAMEPATH_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FRAMEPATH_VERSION 2

/* ---- /dev/framepath: the decoder ---------------------------------------- */

/**
 * struct fp_attach - argument of FRAMEPATH_IOC_ATTACH
 * @version: FRAMEPATH_VERSION; EPROTO for another
 * @reserved: 0
 */
struct fp_attach {
	__u32 version;
	__u32 reserved;
};

/**
 * struct fp_accept - result of FRAMEPATH_IOC_ACCEPT
 * @id: number of the stream, never reused
 * @codec: V4L2 pixel format of the OUTPUT queue
 * @stream: descriptor of the stream, close-on-exec
 * @stash: descriptor of a file of FRAMEPATH_STASH_BYTES, all 0 at first, which the
 *	kernel keeps for the next decoder
 * @width: width that the client has set on OUTPUT, pixels; 0 if none
 * @height: height that the client has set on OUTPUT, pixels; 0 if none
 * @epoch: number of flushes of the stream so far; none of them is announced again
 * @uid: user id of the client, for limits per user; for a client in a user namespace,
 *	that of the owner of its outermost namespace
 * @flags: FRAMEPATH_ACCEPT_*
 */
struct fp_accept {
	__u64 id;
	__u32 codec;
	__s32 stream;
	__s32 stash;
	__u32 width;
	__u32 height;
	__u32 epoch;
	__u32 uid;
	__u32 flags;
};

#define FRAMEPATH_ACCEPT_LIMITED 0x1	/* limits per user apply: no CAP_SYS_RESOURCE */

#define FRAMEPATH_STASH_BYTES (64ULL << 20)	/* uses memory only where written */

/**
 * struct fp_mark - properties that a frame takes over from its packet, unchanged
 * @timestamp: the client's timestamp, ns
 * @flags: V4L2_BUF_FLAG_*: key, P, B frame and others
 * @field: enum v4l2_field
 * @timecode: struct v4l2_timecode
 */
struct fp_mark {
	__u64 timestamp;
	__u32 flags;
	__u32 field;
	__u8 timecode[16];
};

enum fp_packet_kind {
	FRAMEPATH_PACKET = 1,	/* an OUTPUT buffer */
	FRAMEPATH_DRAIN = 2,	/* return all earlier frames, then FRAMEPATH_IOC_DRAINED */
	FRAMEPATH_FLUSH = 3,	/* OUTPUT was stopped: discard all, the epoch is new */
};

/**
 * struct fp_packet - result of FRAMEPATH_IOC_NEXT_PACKET
 * @kind: enum fp_packet_kind
 * @epoch: number of flushes of the stream so far
 * @seq: FRAMEPATH_PACKET: number of the packet in its stream, from 0, over all epochs
 * @index: FRAMEPATH_PACKET: index of the OUTPUT buffer
 * @generation: FRAMEPATH_PACKET: number of the buffer's memory: see struct fp_export
 * @offset: FRAMEPATH_PACKET: bytes in the buffer before the payload
 * @bytes: FRAMEPATH_PACKET: bytes of the payload
 * @mark: FRAMEPATH_PACKET: properties for the frame
 */
struct fp_packet {
	__u32 kind;
	__u32 epoch;
	__u64 seq;
	__u32 index;
	__u32 generation;
	__u32 offset;
	__u32 bytes;
	struct fp_mark mark;
};

/**
 * struct fp_packet_done - argument of FRAMEPATH_IOC_PACKET_DONE
 * @seq: number of the packet
 * @index: index of its OUTPUT buffer
 * @failed: 1 sets V4L2_BUF_FLAG_ERROR for the client, else 0
 */
struct fp_packet_done {
	__u64 seq;
	__u32 index;
	__u32 failed;
};

enum fp_capture_kind {
	FRAMEPATH_CAPTURE_ON = 1,	/* CAPTURE streams: count buffers, of this format */
	FRAMEPATH_CAPTURE_OFF = 2,	/* CAPTURE stopped: the client owns all buffers */
	FRAMEPATH_CAPTURE_QUEUED = 3,	/* the buffer may be written until FRAMEPATH_IOC_FRAME */
	FRAMEPATH_CAPTURE_FLUSH = 4,	/* as FRAMEPATH_FLUSH, for a thread that waits here */
};

/**
 * struct fp_capture - result of FRAMEPATH_IOC_NEXT_CAPTURE
 * @kind: enum fp_capture_kind
 * @epoch: number of flushes of the stream so far
 * @index: QUEUED: index of the CAPTURE buffer
 * @generation: QUEUED: number of the buffer's memory
 * @count: ON: number of buffers
 * @pixelformat: ON: V4L2 pixel format
 * @length: ON, QUEUED: sizeimage, bytes; a QUEUED buffer has at least as many
 * @reserved: 0
 */
struct fp_capture {
	__u32 kind;
	__u32 epoch;
	__u32 index;
	__u32 generation;
	__u32 count;
	__u32 pixelformat;
	__u32 length;
	__u32 reserved;
};

#define FRAMEPATH_QUEUE_OUTPUT 0
#define FRAMEPATH_QUEUE_CAPTURE 1

/**
 * struct fp_export - argument of FRAMEPATH_IOC_EXPORT
 * @queue: FRAMEPATH_QUEUE_CAPTURE; packets are read by pread()
 * @index: index of the buffer
 * @generation: out: number of the memory; another number means other memory
 * @fd: out: dmabuf, close-on-exec, writable
 *
 * The dmabuf covers sizeimage bytes of the current format, in whole pages. It can
 * be mapped by mmap(); no device can import it.
 */
struct fp_export {
	__u32 queue;
	__u32 index;
	__u32 generation;
	__s32 fd;
};

/**
 * struct fp_format - argument of FRAMEPATH_IOC_FORMAT: format of a sequence
 * @epoch: number of flushes of the stream; ESTALE for an old number
 * @depth: bits per sample: 8 offers YU12 and NV12, 10 offers P010
 * @width: coded width, pixels; at most bytesperline / bytes per sample
 * @height: rows of luma in the buffer, even
 * @bytesperline: stride of luma, bytes
 * @left: left edge of the visible part, pixels
 * @top: upper edge of the visible part, pixels
 * @visible_width: width of the visible part, pixels
 * @visible_height: height of the visible part, pixels
 * @sizeimage_native: bytes of a YU12 buffer
 * @sizeimage_packed: bytes of an NV12 or P010 buffer, with the decoder's scratch
 *	planes behind the pixels, which are no larger than the pixels and 1 MiB
 * @min_buffers: CAPTURE buffers that decoding needs at least, up to 32
 * @colorspace: V4L2's value, 0 if unknown
 * @xfer_func: V4L2's value, 0 if unknown
 * @ycbcr_enc: V4L2's value, 0 if unknown
 * @quantization: V4L2's value, 0 if unknown
 *
 * Planes lie in a buffer as V4L2 defines them: chroma directly behind
 * bytesperline * height bytes of luma.
 */
struct fp_format {
	__u32 epoch;
	__u32 depth;
	__u32 width;
	__u32 height;
	__u32 bytesperline;
	__u32 left, top, visible_width, visible_height;
	__u32 sizeimage_native;
	__u32 sizeimage_packed;
	__u32 min_buffers;
	__u32 colorspace, xfer_func, ycbcr_enc, quantization;
};

/**
 * struct fp_frame - argument of FRAMEPATH_IOC_FRAME
 * @seq: number of the frame's packet; ERANGE if it is none of the latest
 *	FRAMEPATH_DELIVERED_WINDOW packets
 * @epoch: number of flushes of the stream; ESTALE for an old number
 * @index: index of the CAPTURE buffer; EBUSY if the client owns the buffer now
 * @generation: number of the buffer's memory; ESTALE if it has other memory now
 * @failed: 1 sets V4L2_BUF_FLAG_ERROR for the client, else 0
 * @copied: bytes of pixels that the decoder has copied for the frame
 * @reserved: 0
 * @mark: properties from the packet
 */
struct fp_frame {
	__u64 seq;
	__u32 epoch;
	__u32 index;
	__u32 generation;
	__u32 failed;
	__u32 copied;
	__u32 reserved;
	struct fp_mark mark;
};

enum fp_drained_why {
	FRAMEPATH_DRAINED_END = 1,	/* answers FRAMEPATH_DRAIN: LAST, and the EOS event */
	FRAMEPATH_DRAINED_CHANGE = 2,	/* the sequence ended; FRAMEPATH_IOC_FORMAT follows */
};

/**
 * struct fp_drained - argument of FRAMEPATH_IOC_DRAINED
 * @epoch: number of flushes of the stream; ESTALE for an old number
 * @why: enum fp_drained_why
 * @index: out: CAPTURE buffer that the client got as LAST and the decoder no longer
 *	has; -1 if the decoder had no such buffer
 * @reserved: 0
 */
struct fp_drained {
	__u32 epoch;
	__u32 why;
	__s32 index;
	__u32 reserved;
};

/**
 * struct fp_fail - argument of FRAMEPATH_IOC_FAIL
 * @error: positive errno or 0, for the log
 * @reserved: 0
 */
struct fp_fail {
	__s32 error;
	__u32 reserved;
};

#define FRAMEPATH_DELIVERED_WINDOW 8192	/* number of latest packets that are remembered */

/**
 * struct fp_delivered - argument of FRAMEPATH_IOC_DELIVERED
 * @first: number of the packet of bit 0; ERANGE if it is older than the window, or
 *	above @next
 * @next: out: number of the packet that will be queued next
 * @bits: out: one bit for each of 1024 packets, bit n % 64 of bits[n / 64] for packet
 *	first + n; 1 if a decoder has returned the packet's frame
 */
struct fp_delivered {
	__u64 first;
	__u64 next;
	__u64 bits[16];
};

/* On /dev/framepath. */
#define FRAMEPATH_IOC_ATTACH		_IOW(0xFB, 0x01, struct fp_attach)
#define FRAMEPATH_IOC_ACCEPT		_IOR(0xFB, 0x02, struct fp_accept)	/* waits */

/*
 * On a stream. ENODEV after the client has closed the file or begun another stream,
 * and after the stream has failed; ESHUTDOWN after FRAMEPATH_IOC_STOP.
 */
#define FRAMEPATH_IOC_NEXT_PACKET	_IOR(0xFB, 0x10, struct fp_packet)	/* waits */
#define FRAMEPATH_IOC_PACKET_DONE	_IOW(0xFB, 0x11, struct fp_packet_done)
#define FRAMEPATH_IOC_NEXT_CAPTURE	_IOR(0xFB, 0x12, struct fp_capture)	/* waits */
#define FRAMEPATH_IOC_EXPORT		_IOWR(0xFB, 0x13, struct fp_export)
#define FRAMEPATH_IOC_FORMAT		_IOW(0xFB, 0x14, struct fp_format)
#define FRAMEPATH_IOC_FRAME		_IOW(0xFB, 0x15, struct fp_frame)
#define FRAMEPATH_IOC_DRAINED		_IOWR(0xFB, 0x16, struct fp_drained)
#define FRAMEPATH_IOC_FAIL		_IOW(0xFB, 0x17, struct fp_fail)
#define FRAMEPATH_IOC_DELIVERED		_IOWR(0xFB, 0x18, struct fp_delivered)
#define FRAMEPATH_IOC_STOP		_IO(0xFB, 0x19)

/* ---- the measuring node ------------------------------------------------- */

/* Controls, read when an OUTPUT buffer is queued. */
#define FRAMEPATH_CID_BASE		(0x00980900 + 0x1e00)	/* V4L2_CID_USER_BASE + 0x1e00 */
#define FRAMEPATH_CID_SRC_SEQUENCE	(FRAMEPATH_CID_BASE + 0)	/* int64 */
#define FRAMEPATH_CID_ALGO		(FRAMEPATH_CID_BASE + 1)	/* menu: enum fp_algo */
#define FRAMEPATH_CID_THRESHOLD		(FRAMEPATH_CID_BASE + 2)	/* 0 to 255 */
#define FRAMEPATH_CID_ROI_LEFT		(FRAMEPATH_CID_BASE + 3)
#define FRAMEPATH_CID_ROI_TOP		(FRAMEPATH_CID_BASE + 4)
#define FRAMEPATH_CID_ROI_WIDTH		(FRAMEPATH_CID_BASE + 5)	/* 0: up to the edge */
#define FRAMEPATH_CID_ROI_HEIGHT	(FRAMEPATH_CID_BASE + 6)	/* 0: up to the edge */
#define FRAMEPATH_CID_IN_PLACE		(FRAMEPATH_CID_BASE + 7)	/* boolean */
#define FRAMEPATH_CID_CRC32		(FRAMEPATH_CID_BASE + 8)	/* boolean */

enum fp_algo {
	FRAMEPATH_ALGO_NONE = 0,
	FRAMEPATH_ALGO_THRESHOLD = 1,	/* ROI pixels at or above the level are 255, else 0 */
};

/* ---- /dev/framepath-meta ------------------------------------------------ */

enum fp_status {
	FRAMEPATH_STATUS_DONE = 0,
	FRAMEPATH_STATUS_ROI_CLAMPED = 1,	/* done, over the part inside the frame */
	FRAMEPATH_STATUS_FAILED = 2,
};

#define FRAMEPATH_META_IN_PLACE 0x1	/* OUTPUT and CAPTURE are the same memory */
#define FRAMEPATH_META_CRC32 0x2	/* crc32 and checksum_ns are valid */

/**
 * struct fp_meta_record - one frame of the measuring node
 * @number: number of the record, from 0 since the module was loaded
 * @source_sequence: number of the frame at its source, from the control
 * @queued_ns: time at which the OUTPUT buffer was queued
 * @ready_ns: time at which both buffers were queued
 * @start_ns: time at which the work began
 * @end_ns: time at which the pixels were done
 * @done_ns: time at which the OUTPUT buffer was given back; the CAPTURE buffer follows
 * @context: number of the open file of the node, from 0, never reused
 * @algo: enum fp_algo
 * @status: enum fp_status
 * @flags: FRAMEPATH_META_*
 * @roi: left, top, width, height of the region as used, pixels; 0 without algorithm
 * @value: FRAMEPATH_ALGO_THRESHOLD: the level, and the number of pixels set to 255
 * @copied: bytes copied: those outside the region, all without algorithm, 0 in place
 * @checksum_ns: time at which the checksum was done, after @end_ns; 0 without one
 * @crc32: CRC-32 (IEEE 802.3, as zlib's) of the CAPTURE frame; 0 without one
 * @reserved: 0
 *
 * All times are CLOCK_MONOTONIC, ns. The structure grows at its end only; a reader
 * gets the fields it knows: see FRAMEPATH_IOC_META_BYTES.
 */
struct fp_meta_record {
	__u64 number;
	__u64 source_sequence;
	__u64 queued_ns;
	__u64 ready_ns;
	__u64 start_ns;
	__u64 end_ns;
	__u64 done_ns;
	__u32 context;
	__u32 algo;
	__u32 status;
	__u32 flags;
	__u32 roi[4];
	__u32 value[2];
	__u64 copied;
	__u64 checksum_ns;
	__u32 crc32;
	__u32 reserved;
};

#define FRAMEPATH_META_BYTES_FIRST 104	/* bytes of a record up to copied */

#define FRAMEPATH_IOC_META_MISSED	_IOR(0xFB, 0x20, __u64)
#define FRAMEPATH_IOC_META_BYTES	_IOWR(0xFB, 0x21, __u32)

#endif
