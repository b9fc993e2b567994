/* SPDX-License-Identifier: GPL-2.0-only */
/* Steps of a frame in the measuring node. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM framepath_measure

#if !defined(_FRAMEPATH_TRACE_MEASURE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _FRAMEPATH_TRACE_MEASURE_H

#include <linux/tracepoint.h>

#include "uapi/framepath.h"

DECLARE_EVENT_CLASS(fp_measure_step,
		    TP_PROTO(u32 context, u64 source_sequence),
		    TP_ARGS(context, source_sequence),
		    TP_STRUCT__entry(__field(u64, source_sequence)
				     __field(u32, context)),
		    TP_fast_assign(__entry->source_sequence = source_sequence;
				   __entry->context = context;),
		    TP_printk("context %u source_sequence %llu",
			      __entry->context, __entry->source_sequence)
);

/* VIDIOC_QBUF of the OUTPUT buffer begins. */
DEFINE_EVENT(fp_measure_step, fp_measure_queue,
	     TP_PROTO(u32 context, u64 source_sequence),
	     TP_ARGS(context, source_sequence)
);

/* Both buffers are queued; work on the pixels begins. */
DEFINE_EVENT(fp_measure_step, fp_measure_start,
	     TP_PROTO(u32 context, u64 source_sequence),
	     TP_ARGS(context, source_sequence)
);

/* The pixels are done. */
DEFINE_EVENT(fp_measure_step, fp_measure_end,
	     TP_PROTO(u32 context, u64 source_sequence),
	     TP_ARGS(context, source_sequence)
);

/* The record is readable; the CAPTURE buffer is given back next. */
TRACE_EVENT(fp_measure_done,
	    TP_PROTO(const struct fp_meta_record *record),
	    TP_ARGS(record),
	    TP_STRUCT__entry(__field(u64, number)
			     __field(u64, source_sequence)
			     __field(u64, copied)
			     __field(u32, context)
			     __field(u32, algo)
			     __field(u32, status)
			     __field(u32, flags)),
	    TP_fast_assign(__entry->number = record->number;
			   __entry->source_sequence = record->source_sequence;
			   __entry->copied = record->copied;
			   __entry->context = record->context;
			   __entry->algo = record->algo;
			   __entry->status = record->status;
			   __entry->flags = record->flags;),
	    TP_printk("context %u source_sequence %llu record %llu algo %u status %u flags %#x copied %llu",
		      __entry->context, __entry->source_sequence, __entry->number,
		      __entry->algo, __entry->status, __entry->flags, __entry->copied)
);

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace_measure
#include <trace/define_trace.h>
