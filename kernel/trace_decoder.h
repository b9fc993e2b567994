/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM framepath_decoder

#if !defined(FP_TRACE_DECODER_H) || defined(TRACE_HEADER_MULTI_READ)
#define FP_TRACE_DECODER_H

#include <linux/tracepoint.h>

/* Steps of a packet: queued by the client, taken by the decoder, given back. */
DECLARE_EVENT_CLASS(fp_packet,
		    TP_PROTO(unsigned int context, u64 seq, u32 index, u32 bytes),
		    TP_ARGS(context, seq, index, bytes),
		    TP_STRUCT__entry(__field(unsigned int, context)
				     __field(u64, seq)
				     __field(u32, index)
				     __field(u32, bytes)
		    ),
		    TP_fast_assign(__entry->context = context;
				   __entry->seq = seq;
				   __entry->index = index;
				   __entry->bytes = bytes;
		    ),
		    TP_printk("context=%u seq=%llu index=%u bytes=%u",
			      __entry->context, __entry->seq, __entry->index, __entry->bytes)
);

DEFINE_EVENT(fp_packet, fp_packet_queued,
	     TP_PROTO(unsigned int context, u64 seq, u32 index, u32 bytes),
	     TP_ARGS(context, seq, index, bytes));
DEFINE_EVENT(fp_packet, fp_packet_taken,
	     TP_PROTO(unsigned int context, u64 seq, u32 index, u32 bytes),
	     TP_ARGS(context, seq, index, bytes));
DEFINE_EVENT(fp_packet, fp_packet_done,
	     TP_PROTO(unsigned int context, u64 seq, u32 index, u32 bytes),
	     TP_ARGS(context, seq, index, bytes));

/* Steps of a CAPTURE buffer: queued, announced to the decoder, given back as LAST. */
DECLARE_EVENT_CLASS(fp_capture,
		    TP_PROTO(unsigned int context, u32 index, u32 generation),
		    TP_ARGS(context, index, generation),
		    TP_STRUCT__entry(__field(unsigned int, context)
				     __field(u32, index)
				     __field(u32, generation)
		    ),
		    TP_fast_assign(__entry->context = context;
				   __entry->index = index;
				   __entry->generation = generation;
		    ),
		    TP_printk("context=%u index=%u generation=%u",
			      __entry->context, __entry->index, __entry->generation)
);

DEFINE_EVENT(fp_capture, fp_capture_queued,
	     TP_PROTO(unsigned int context, u32 index, u32 generation),
	     TP_ARGS(context, index, generation));
DEFINE_EVENT(fp_capture, fp_capture_announced,
	     TP_PROTO(unsigned int context, u32 index, u32 generation),
	     TP_ARGS(context, index, generation));
DEFINE_EVENT(fp_capture, fp_capture_last,
	     TP_PROTO(unsigned int context, u32 index, u32 generation),
	     TP_ARGS(context, index, generation));

/* The decoder gives a CAPTURE buffer back as a frame; copied: bytes of pixels. */
TRACE_EVENT(fp_frame,
	    TP_PROTO(unsigned int context, u64 seq, u32 index, u32 copied, u64 timestamp),
	    TP_ARGS(context, seq, index, copied, timestamp),
	    TP_STRUCT__entry(__field(unsigned int, context)
			     __field(u64, seq)
			     __field(u32, index)
			     __field(u32, copied)
			     __field(u64, timestamp)
	    ),
	    TP_fast_assign(__entry->context = context;
			   __entry->seq = seq;
			   __entry->index = index;
			   __entry->copied = copied;
			   __entry->timestamp = timestamp;
	    ),
	    TP_printk("context=%u seq=%llu index=%u copied=%u timestamp=%llu",
		      __entry->context, __entry->seq, __entry->index, __entry->copied,
		      __entry->timestamp)
);

/* The decoder reports the format; changed: the client gets a SOURCE_CHANGE. */
TRACE_EVENT(fp_format,
	    TP_PROTO(unsigned int context, u32 width, u32 height, u32 depth, bool changed),
	    TP_ARGS(context, width, height, depth, changed),
	    TP_STRUCT__entry(__field(unsigned int, context)
			     __field(u32, width)
			     __field(u32, height)
			     __field(u32, depth)
			     __field(bool, changed)
	    ),
	    TP_fast_assign(__entry->context = context;
			   __entry->width = width;
			   __entry->height = height;
			   __entry->depth = depth;
			   __entry->changed = changed;
	    ),
	    TP_printk("context=%u width=%u height=%u depth=%u changed=%d",
		      __entry->context, __entry->width, __entry->height, __entry->depth,
		      __entry->changed)
);

/* State changes of a stream; value: see each event. */
DECLARE_EVENT_CLASS(fp_stream,
		    TP_PROTO(unsigned int context, u64 value),
		    TP_ARGS(context, value),
		    TP_STRUCT__entry(__field(unsigned int, context)
				     __field(u64, value)
		    ),
		    TP_fast_assign(__entry->context = context;
				   __entry->value = value;
		    ),
		    TP_printk("context=%u value=%llu", __entry->context, __entry->value)
);

/* The client requests a drain; value: number of the first packet after it. */
DEFINE_EVENT(fp_stream, fp_drain, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));
/* The decoder reports a drain; value: enum fp_drained_why. */
DEFINE_EVENT(fp_stream, fp_drained, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));
/* The client stopped OUTPUT; value: the new epoch. */
DEFINE_EVENT(fp_stream, fp_flush, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));
/* A decoder accepted the stream; value: the stream's id. */
DEFINE_EVENT(fp_stream, fp_accepted, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));
/* The decoder lost the stream, which needs another; value: the stream's id. */
DEFINE_EVENT(fp_stream, fp_orphaned, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));
/* The stream failed; value: a positive errno. */
DEFINE_EVENT(fp_stream, fp_failed, TP_PROTO(unsigned int context, u64 value),
	     TP_ARGS(context, value));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace_decoder
#include <trace/define_trace.h>
