/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions of FFmpeg's libraries at which packets and frames change hands. The types are opaque, so that no header
 * of FFmpeg is needed and one library serves all versions.
 */
#include "shim.h"

#include <errno.h>
#include <string.h>

/* Offsets in AVPacket and AVFrame, equal in FFmpeg 4 to 8: the public headers. */
enum {
	PACKET_PTS = 8,
	PACKET_DATA = 24,
	FRAME_DATA = 0,
	FRAME_PTS = 136,
};

static struct item read_item(const void *from, int data, int pts)
{
	struct item item = NO_ITEM;
	/* A null pointer ends a stream. */
	if (from) {
		memcpy(&item.data, (const char *)from + data, sizeof(item.data));
		memcpy(&item.pts, (const char *)from + pts, sizeof(item.pts));
	}
	return item;
}

#define PACKET(from) read_item(from, PACKET_DATA, PACKET_PTS)
#define FRAME(from) read_item(from, FRAME_DATA, FRAME_PTS)
#define NONE(from) NO_ITEM

/*
 * Defines a function: its name, parameters and arguments, its library, its number, and the moment at which its item
 * has the bytes. The first parameter is `object`, the second `item`. After an error, the item has no bytes.
 */
#define DEFINE(symbol, parameters, arguments, file, call, kind, read_at) \
	EXPORT int symbol parameters; \
	EXPORT int symbol parameters \
	{ \
		static struct function function = { \
			.name = #symbol, .library = file, .own = (void *)symbol, .is_changing = ATOMIC_FLAG_INIT}; \
		int(*next) parameters = (int(*) parameters)next_of(&function, __builtin_return_address(0)); \
		if (!next) \
			return -ENOSYS; \
		record(call, ENTER, object, read_at == ENTER ? kind(item) : NO_ITEM, 0); \
		int result = next arguments; \
		record(call, LEAVE, object, read_at == LEAVE && result >= 0 ? kind(item) : NO_ITEM, result); \
		return result; \
	}

#define TWO (void *object, void *item), (object, item)
#define WITH_FLAGS (void *object, void *item, int flags), (object, item, flags)
#define DEFINE_AS(...) DEFINE(__VA_ARGS__)

DEFINE(avcodec_open2, (void *object, const void *item, void **options), (object, item, options), "libavcodec", OPEN_CODEC,
       NONE, LEAVE)
DEFINE(avformat_find_stream_info, (void *object, void **options), (object, options), "libavformat", OPEN_INPUT, NONE, LEAVE)
DEFINE(avformat_write_header, (void *object, void **options), (object, options), "libavformat", OPEN_OUTPUT, NONE, LEAVE)
DEFINE(avfilter_graph_config, (void *object, void *log), (object, log), "libavfilter", OPEN_GRAPH, NONE, LEAVE)
DEFINE_AS(av_read_frame, TWO, "libavformat", READ_PACKET, PACKET, LEAVE)
DEFINE_AS(avcodec_send_packet, TWO, "libavcodec", SEND_PACKET, PACKET, ENTER)
DEFINE_AS(avcodec_receive_frame, TWO, "libavcodec", RECEIVE_FRAME, FRAME, LEAVE)
DEFINE_AS(av_buffersrc_add_frame_flags, WITH_FLAGS, "libavfilter", FILTER_INPUT, FRAME, ENTER)
DEFINE_AS(av_buffersink_get_frame_flags, WITH_FLAGS, "libavfilter", FILTER_OUTPUT, FRAME, LEAVE)
DEFINE_AS(av_buffersink_get_frame, TWO, "libavfilter", FILTER_OUTPUT, FRAME, LEAVE)
DEFINE_AS(avcodec_send_frame, TWO, "libavcodec", SEND_FRAME, FRAME, ENTER)
DEFINE_AS(avcodec_receive_packet, TWO, "libavcodec", RECEIVE_PACKET, PACKET, LEAVE)
DEFINE_AS(av_interleaved_write_frame, TWO, "libavformat", WRITE_PACKET, PACKET, ENTER)
DEFINE_AS(av_write_frame, TWO, "libavformat", WRITE_PACKET, PACKET, ENTER)
