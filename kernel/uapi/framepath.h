/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * framepath.ko as user space sees it, beside the V4L2 interface of its nodes.
 *
 *   /dev/framepath       where a decoder in user space attaches
 *   /dev/framepath-meta  one record per frame of the measuring node
 *
 * All structures are of fixed size, without padding, the same for 32 and 64
 * bits. Reserved fields are 0.
 */
#ifndef _UAPI_FRAMEPATH_H
#define _UAPI_FRAMEPATH_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FP_VERSION 2

/* ---- /dev/framepath: the decoder ---------------------------------------- */

/*
 * One process attaches at a time (EBUSY for another). It accepts streams: one
 * for each file that a client has opened and started. A stream's descriptor
 * gives its packets and its CAPTURE buffers, and takes the frames. When the
 * descriptor that attached is closed, its streams are taken from it (ENODEV).
 *
 * What waits does not with O_NONBLOCK (EAGAIN). poll() of /dev/framepath says
 * POLLIN for a stream to accept; of a stream, POLLIN for a packet, POLLPRI for
 * CAPTURE, POLLHUP when it has ended.
 *
 * The kernel keeps what is needed to go on with another decoder when this one
 * dies: packets that were not said to be done are given again, CAPTURE buffers
 * that were not given back are announced again, and a file (the stash) in
 * which the decoder keeps what it wants to find again. A client waits for a
 * decoder for a while (module parameter patience_ms), then its queues fail.
 *
 * A decoder that makes no progress for silence_ms (module parameter) loses the
 * stream, and the client's queues fail. Progress is a packet or CAPTURE event
 * taken, a packet done, a format, a frame, an end. It is expected while a packet
 * that is not done or a drain is there, and either the format is not said yet or
 * min_buffers CAPTURE buffers are queued. So a decoder that needs more packets
 * says that those it has are done.
 */

struct fp_attach {
	__u32 version;		/* FP_VERSION; EPROTO for another */
	__u32 reserved;
};

struct fp_accept {
	__u64 id;		/* out: of the stream, never used again */
	__u32 codec;		/* out: V4L2 pixel format of the OUTPUT queue */
	__s32 stream;		/* out: descriptor, close-on-exec */
	__s32 stash;		/* out: descriptor of FP_STASH_BYTES, all 0 at first */
	__u32 width;		/* out: as the client has set them on OUTPUT; */
	__u32 height;		/*      0 where it has not */
	__u32 epoch;		/* out: flushes so far; none is pending after it */
	__u32 uid;		/* out: the client's user, for limits per user */
	__u32 flags;		/* out: FP_ACCEPT_* */
};

#define FP_ACCEPT_LIMITED 0x1	/* limits per user apply: without CAP_SYS_RESOURCE */

#define FP_STASH_BYTES (64ULL << 20)	/* memory only where written */

/* What travels unchanged from a packet to the frame it becomes. */
struct fp_mark {
	__u64 timestamp;	/* ns, the client's */
	__u32 flags;		/* V4L2_BUF_FLAG_*: key, P, B frame and others */
	__u32 field;		/* enum v4l2_field */
	__u8 timecode[16];	/* struct v4l2_timecode */
};

enum fp_packet_kind {
	FP_PACKET = 1,		/* an OUTPUT buffer */
	FP_DRAIN = 2,		/* all before it is to be given, then FP_IOC_DRAINED */
	FP_FLUSH = 3,		/* OUTPUT was stopped: forget all, the epoch is new */
};

struct fp_packet {
	__u32 kind;		/* enum fp_packet_kind */
	__u32 epoch;		/* counts flushes */
	__u64 seq;		/* number of the packet in its stream, from 0, over epochs */
	__u32 index;		/* of the OUTPUT buffer */
	__u32 generation;	/* of its memory: see struct fp_export */
	__u32 offset;		/* bytes in front of the payload */
	__u32 bytes;		/* of payload */
	struct fp_mark mark;
};

struct fp_packet_done {
	__u64 seq;
	__u32 index;
	__u32 failed;		/* 1: the client finds V4L2_BUF_FLAG_ERROR */
};

enum fp_capture_kind {
	FP_CAPTURE_ON = 1,	/* CAPTURE streams: count buffers, of this format */
	FP_CAPTURE_OFF = 2,	/* it does not: all buffers are the client's */
	FP_CAPTURE_QUEUED = 3,	/* buffer index may be written until FP_IOC_FRAME */
	FP_CAPTURE_FLUSH = 4,	/* as FP_FLUSH, for who waits here */
};

struct fp_capture {
	__u32 kind;		/* enum fp_capture_kind */
	__u32 epoch;
	__u32 index;		/* QUEUED */
	__u32 generation;	/* QUEUED: of the buffer's memory */
	__u32 count;		/* ON: buffers there are */
	__u32 pixelformat;	/* ON */
	__u32 length;		/* ON, QUEUED: sizeimage, which the buffer has at least */
	__u32 reserved;
};

#define FP_QUEUE_OUTPUT 0
#define FP_QUEUE_CAPTURE 1

/*
 * A CAPTURE buffer's memory, as far as the format of the moment needs it: whole
 * pages that hold sizeimage bytes. mmap() only, no device can import it.
 */
struct fp_export {
	__u32 queue;		/* FP_QUEUE_CAPTURE; packets are read by pread() */
	__u32 index;
	__u32 generation;	/* out: a buffer with another has other memory */
	__s32 fd;		/* out: dmabuf, close-on-exec, writable */
};

/*
 * The stream's format, before the first frame: once after FP_IOC_ACCEPT, after
 * each FP_FLUSH and after each FP_DRAINED_CHANGE; EBUSY at another time. Of a
 * sequence whose frames were all given by a decoder before this one, nothing
 * is said. Where it is another than the client knows, the client sees a
 * SOURCE_CHANGE, and a CAPTURE queue that streams is OFF until the client has
 * set it up again. Planes lie in a buffer as V4L2 has them: chroma directly
 * behind bytesperline * height bytes of luma.
 */
struct fp_format {
	__u32 epoch;
	__u32 depth;		/* bits: 8 offers YU12 and NV12, 10 P010 */
	__u32 width;		/* coded; bytesperline / bytes per sample at most */
	__u32 height;		/* rows of luma in the buffer, even */
	__u32 bytesperline;	/* of luma */
	__u32 left, top, visible_width, visible_height;
	__u32 sizeimage_native;	/* of YU12 */
	__u32 sizeimage_packed;	/* of NV12 or P010: scratch planes behind the pixels, */
				/* no larger than the pixels and 1 MiB */
	__u32 min_buffers;	/* CAPTURE buffers decoding needs at least, up to 32 */
	__u32 colorspace, xfer_func, ycbcr_enc, quantization;	/* V4L2's; 0 unknown */
};

struct fp_frame {
	__u64 seq;		/* of the packet it came from */
	__u32 epoch;		/* ESTALE where it is an old one */
	__u32 index;		/* EBUSY where the buffer is the client's now */
	__u32 generation;	/* ESTALE where the buffer has other memory now */
	__u32 failed;		/* 1: the client finds V4L2_BUF_FLAG_ERROR */
	__u32 copied;		/* bytes of pixels the decoder has copied for it */
	__u32 reserved;
	struct fp_mark mark;
};

/*
 * ECANCELED answers an END that nobody waits for: the client has called its
 * drain off. EBUSY: packets from before the drain are not done. After a CHANGE
 * the LAST buffer goes with FP_IOC_FORMAT, behind the event: at once, please.
 */
enum fp_drained_why {
	FP_DRAINED_END = 1,	/* answers FP_DRAIN: LAST, and the EOS event */
	FP_DRAINED_CHANGE = 2,	/* the sequence is over: LAST; FP_IOC_FORMAT follows */
};

struct fp_drained {
	__u32 epoch;		/* ESTALE where it is an old one */
	__u32 why;		/* enum fp_drained_why */
	__s32 index;		/* out: CAPTURE buffer that went to the client with it, */
	__u32 reserved;		/*      no longer the decoder's; -1: none did */
};

struct fp_fail {
	__s32 error;		/* positive errno: for the log */
	__u32 reserved;
};

/* Packets whose frames were given to the client, over all decoders. */
#define FP_DELIVERED_WINDOW 8192	/* packets back that are remembered */
struct fp_delivered {
	__u64 first;		/* in: number of the packet of bit 0 */
	__u64 next;		/* out: number of the packet that will be queued next */
	__u64 bits[16];		/* out: 1024 packets; ERANGE before the window */
};

#define FP_IOC_ATTACH		_IOW(0xFB, 0x01, struct fp_attach)
#define FP_IOC_ACCEPT		_IOR(0xFB, 0x02, struct fp_accept)	/* waits */

/*
 * pread() on a stream gives the payload of an OUTPUT buffer that was taken by
 * FP_IOC_NEXT_PACKET and is not done: at (index << 32) + offset in the buffer.
 * Bytes in front of the payload are EINVAL, behind it is the end. (A copy, so
 * that no mapping of the client's memory can fault the decoder.)
 */

/*
 * On a stream. ENODEV once the client has closed, has begun another stream in
 * the same file, or the stream has failed; ESHUTDOWN after FP_IOC_STOP.
 */
#define FP_IOC_NEXT_PACKET	_IOR(0xFB, 0x10, struct fp_packet)	/* waits */
#define FP_IOC_PACKET_DONE	_IOW(0xFB, 0x11, struct fp_packet_done)
#define FP_IOC_NEXT_CAPTURE	_IOR(0xFB, 0x12, struct fp_capture)	/* waits */
#define FP_IOC_EXPORT		_IOWR(0xFB, 0x13, struct fp_export)
#define FP_IOC_FORMAT		_IOW(0xFB, 0x14, struct fp_format)
#define FP_IOC_FRAME		_IOW(0xFB, 0x15, struct fp_frame)
#define FP_IOC_DRAINED		_IOWR(0xFB, 0x16, struct fp_drained)
#define FP_IOC_FAIL		_IOW(0xFB, 0x17, struct fp_fail)
#define FP_IOC_DELIVERED	_IOWR(0xFB, 0x18, struct fp_delivered)
#define FP_IOC_STOP		_IO(0xFB, 0x19)		/* ends the waits, for good */

/* ---- the measuring node ------------------------------------------------- */

/*
 * Controls, snapshotted when an OUTPUT buffer is queued. The base is
 * V4L2_CID_USER_BASE + 0x1e00.
 */
#define FP_CID_BASE		(0x00980900 + 0x1e00)
#define FP_CID_SRC_SEQUENCE	(FP_CID_BASE + 0)	/* int64: the source's number of it */
#define FP_CID_ALGO		(FP_CID_BASE + 1)	/* menu: enum fp_algo */
#define FP_CID_THRESHOLD	(FP_CID_BASE + 2)	/* 0 to 255 */
#define FP_CID_ROI_LEFT		(FP_CID_BASE + 3)
#define FP_CID_ROI_TOP		(FP_CID_BASE + 4)
#define FP_CID_ROI_WIDTH	(FP_CID_BASE + 5)	/* 0: up to the frame's edge */
#define FP_CID_ROI_HEIGHT	(FP_CID_BASE + 6)
#define FP_CID_IN_PLACE		(FP_CID_BASE + 7)	/* boolean */

enum fp_algo {
	FP_ALGO_NONE = 0,
	FP_ALGO_THRESHOLD = 1,	/* a pixel of the ROI at or above the level is 255, else 0 */
};

/* ---- /dev/framepath-meta ------------------------------------------------ */

enum fp_status {
	FP_STATUS_DONE = 0,
	FP_STATUS_ROI_CLAMPED = 1,	/* done, over the part inside the frame */
	FP_STATUS_FAILED = 2,
};

#define FP_META_IN_PLACE 0x1	/* worked in place: OUTPUT and CAPTURE are the same memory */

/* All times are CLOCK_MONOTONIC, ns. */
struct fp_meta_record {
	__u64 number;		/* of the record, from 0 since the module was loaded */
	__u64 source_sequence;
	__u64 queued_ns;	/* OUTPUT buffer queued */
	__u64 ready_ns;		/* both buffers there: could have started */
	__u64 start_ns;
	__u64 end_ns;		/* pixels done */
	__u64 done_ns;		/* OUTPUT buffer given back; CAPTURE's follows the record */
	__u32 context;		/* which open file of the node, never used again */
	__u32 algo;
	__u32 status;
	__u32 flags;
	__u32 roi[4];		/* left, top, width, height, as used; 0 without algorithm */
	__u32 value[2];		/* threshold: level, pixels set */
	__u64 copied;		/* bytes */
};

/*
 * A reader sees the records made after it was opened. The record of a frame is
 * there before its CAPTURE buffer can be dequeued; none is made for a buffer
 * that STREAMOFF gives back. read() gives whole records, at least one, and
 * waits for it unless O_NONBLOCK; EINVAL where there is no room for one. A
 * reader that falls behind goes on with the oldest there is;
 * FP_IOC_META_MISSED says how many records it has missed, since it was opened.
 */
#define FP_IOC_META_MISSED	_IOR(0xFB, 0x20, __u64)

#endif
