/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions of FFmpeg's libraries at which packets and frames change hands. The types are opaque, so that no header
 * of FFmpeg is needed and one library serves all versions.
 */
#include "shim.h"

#include <errno.h>
#include <string.h>

/* Offsets in FFmpeg 4 to 8, where they are equal: the public headers. A struct with a name begins with its address. */
enum {
	CODEC_MEDIA = 12,
	CODEC_CODEC = 16,
	FORMAT_DEMUXER = 8,
	FORMAT_MUXER = 16,
	GRAPH_FILTERS = 8,
	GRAPH_COUNT = 16,
	FILTER_KIND = 8,
	FILTER_LINKS = 56,
	FILTER_LINK_COUNT = 64,
	LINK_TO = 16,
	FILTER_PRIVATE = 72,
	KIND_CLASS = 32,
	CLASS_OPTIONS = 16,
	OPTION_OFFSET = 16,
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

/* Offsets of the time base in a link between filters: FFmpeg 4 to 6, and 7.1 and newer. */
static const int link_time_bases[] = {72, 96};

/* Number of filters of a graph that are named, and of their outputs. */
#define FILTERS 64
#define OUTPUTS 4

static void describe(const void *object, const void *named, struct object_facts facts)
{
	copy_name(facts.name, pointer_at(named, 0));
	record_facts(OBJECT, object, &facts, sizeof(facts));
}

static void describe_codec(const void *codec)
{
	int media;
	memcpy(&media, (const char *)codec + CODEC_MEDIA, sizeof(media));
	describe(codec, pointer_at(codec, CODEC_CODEC), (struct object_facts){.media = media});
}

static void describe_input(const void *format)
{
	describe(format, pointer_at(format, FORMAT_DEMUXER), (struct object_facts){.media = -1});
}

static void describe_output(const void *format)
{
	describe(format, pointer_at(format, FORMAT_MUXER), (struct object_facts){.media = -1});
}

/* The expression of setpts: the first option of the filter, in the struct to which its context points. */
static void describe_expression(const void *filter)
{
	const char *kind = pointer_at(filter, FILTER_KIND), *name = pointer_at(kind, 0);
	const char *option = pointer_at(pointer_at(kind, KIND_CLASS), CLASS_OPTIONS);
	int offset;
	if (!name || strcmp(name, "setpts") || !option)
		return;
	memcpy(&offset, option + OPTION_OFFSET, sizeof(offset));
	const char *text = pointer_at(pointer_at(filter, FILTER_PRIVATE), offset);
	char part[PART_BYTES] = "";
	for (int n = 0; text && text[n] && n < PART_BYTES; n++)
		part[n] = text[n];
	record_facts(FILTER_OPTION, filter, part, sizeof(part));
}

static void describe_outputs(const void *filter)
{
	unsigned count = 0;
	const char *links = pointer_at(filter, FILTER_LINKS);
	if (links)
		memcpy(&count, (const char *)filter + FILTER_LINK_COUNT, sizeof(count));
	for (unsigned n = 0; n < count && n < OUTPUTS; n++) {
		const char *link = pointer_at(links, n * sizeof(link));
		struct filter_output facts = {.to = pointer_at(link, LINK_TO)};
		for (int at = 0; link && at < 2; at++)
			memcpy(&facts.time_bases[at], link + link_time_bases[at], sizeof(facts.time_bases[at]));
		record_facts(FILTER_LINK, filter, &facts, sizeof(facts));
	}
}

static void describe_graph(const void *graph)
{
	unsigned count;
	const char *filters = pointer_at(graph, GRAPH_FILTERS);
	memcpy(&count, (const char *)graph + GRAPH_COUNT, sizeof(count));
	for (unsigned n = 0; filters && n < count && n < FILTERS; n++) {
		const void *filter = pointer_at(filters, n * sizeof(filter));
		describe(filter, pointer_at(filter, FILTER_KIND), (struct object_facts){-1, graph, n, ""});
		describe_expression(filter);
		describe_outputs(filter);
	}
}

#define PACKET(from) read_item(from, PACKET_DATA, PACKET_PTS)
#define FRAME(from) read_item(from, FRAME_DATA, FRAME_PTS)

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
/* Expands TWO and WITH_FLAGS to two arguments each. */
#define DEFINE_FOR(...) DEFINE(__VA_ARGS__)

/* Defines a function that makes its first argument ready. */
#define DEFINE_OPENING(symbol, parameters, arguments, file, call, describe_object) \
	EXPORT int symbol parameters; \
	EXPORT int symbol parameters \
	{ \
		static struct function function = { \
			.name = #symbol, .library = file, .own = (void *)symbol, .is_changing = ATOMIC_FLAG_INIT}; \
		int(*next) parameters = (int(*) parameters)next_of(&function, __builtin_return_address(0)); \
		if (!next) \
			return -ENOSYS; \
		record(call, ENTER, object, NO_ITEM, 0); \
		int result = next arguments; \
		if (result >= 0 && object && is_recorded()) \
			describe_object(object); \
		record(call, LEAVE, object, NO_ITEM, result); \
		return result; \
	}

DEFINE_OPENING(avcodec_open2, (void *object, const void *codec, void **options), (object, codec, options), "libavcodec",
	       OPEN_CODEC, describe_codec)
DEFINE_OPENING(avformat_find_stream_info, (void *object, void **options), (object, options), "libavformat", OPEN_INPUT,
	       describe_input)
DEFINE_OPENING(avformat_write_header, (void *object, void **options), (object, options), "libavformat", OPEN_OUTPUT,
	       describe_output)
DEFINE_OPENING(avfilter_graph_config, (void *object, void *log), (object, log), "libavfilter", OPEN_GRAPH, describe_graph)
DEFINE_FOR(av_read_frame, TWO, "libavformat", READ_PACKET, PACKET, LEAVE)
DEFINE_FOR(avcodec_send_packet, TWO, "libavcodec", SEND_PACKET, PACKET, ENTER)
DEFINE_FOR(avcodec_receive_frame, TWO, "libavcodec", RECEIVE_FRAME, FRAME, LEAVE)
DEFINE_FOR(av_buffersrc_add_frame_flags, WITH_FLAGS, "libavfilter", FILTER_INPUT, FRAME, ENTER)
/* These two call the one above inside their library, where the call does not come here. */
DEFINE_FOR(av_buffersrc_add_frame, TWO, "libavfilter", FILTER_INPUT, FRAME, ENTER)
DEFINE_FOR(av_buffersrc_write_frame, TWO, "libavfilter", FILTER_INPUT, FRAME, ENTER)
DEFINE_FOR(av_buffersink_get_frame_flags, WITH_FLAGS, "libavfilter", FILTER_OUTPUT, FRAME, LEAVE)
DEFINE_FOR(av_buffersink_get_frame, TWO, "libavfilter", FILTER_OUTPUT, FRAME, LEAVE)
DEFINE_FOR(avcodec_send_frame, TWO, "libavcodec", SEND_FRAME, FRAME, ENTER)
DEFINE_FOR(avcodec_receive_packet, TWO, "libavcodec", RECEIVE_PACKET, PACKET, LEAVE)
DEFINE_FOR(av_interleaved_write_frame, TWO, "libavformat", WRITE_PACKET, PACKET, ENTER)
DEFINE_FOR(av_write_frame, TWO, "libavformat", WRITE_PACKET, PACKET, ENTER)

/* Defines a function that makes the first frame from the second one: the record has the addresses of the bytes of both. */
#define DEFINE_COPY(symbol) \
	EXPORT int symbol(void *to, const void *from); \
	EXPORT int symbol(void *to, const void *from) \
	{ \
		static struct function function = { \
			.name = #symbol, .library = "libavutil", .own = (void *)symbol, .is_changing = ATOMIC_FLAG_INIT}; \
		int (*next)(void *, const void *) = \
			(int (*)(void *, const void *))next_of(&function, __builtin_return_address(0)); \
		if (!next) \
			return -ENOSYS; \
		if (to) \
			record(COPY_FRAME, ENTER, pointer_at(to, FRAME_DATA), FRAME(from), 0); \
		return next(to, from); \
	}

DEFINE_COPY(av_frame_copy_props)
DEFINE_COPY(av_frame_copy)
