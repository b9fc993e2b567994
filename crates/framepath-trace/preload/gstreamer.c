/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions of GStreamer with which elements hand over buffers and wait. Elements and base classes are in other
 * libraries than these functions, so that their calls come here. Calls inside libgstreamer do not: those of ghost pads,
 * which pass a buffer through the border of a bin. Therefore the facts about a pad say which element gets the buffers
 * behind all borders.
 */
#include "shim.h"

#include <string.h>

/* Offsets in GStreamer 1: the public headers. They belong to its stable ABI. */
enum {
	OBJECT_NAME = 32,
	OBJECT_PARENT = 40,
	BUFFER_PTS = 72,
	PAD_PEER = 264,
	CODEC_FRAME_PTS = 32,
	CODEC_FRAME_INPUT = 56,
};

/* GST_FLOW_ERROR, and GST_CLOCK_ERROR. */
enum {
	FLOW_ERROR = -5,
	CLOCK_ERROR = 4,
};

/* Number of pads whose facts are not written again. */
#define PADS 1024
/* Number of borders of bins between two elements. */
#define BORDERS 16

#define CORE "libgstreamer-1.0"
#define BASE "libgstbase-1.0"
#define VIDEO "libgstvideo-1.0"
#define FUNCTION(symbol, file, definition) \
	{.name = symbol, .library = file, .own = definition, .is_changing = ATOMIC_FLAG_INIT}

/* Keys of the pads whose facts were written, by their hash. */
static _Atomic uintptr_t known[PADS];

static struct item buffer(const void *from)
{
	struct item item = NO_ITEM;
	if (from) {
		item.data = from;
		memcpy(&item.pts, (const char *)from + BUFFER_PTS, sizeof(item.pts));
	}
	return item;
}

/* Functions of GStreamer and GObject, found for a call from an address. Objects that they return have a reference. */
struct tools {
	uintptr_t (*ghost_type)(void);
	uintptr_t (*proxy_type)(void);
	int (*is_a)(const void *, uintptr_t);
	void *(*peer)(void *);
	void *(*parent)(void *);
	void *(*internal)(void *);
	void (*unref)(void *);
};

static int find_tools(struct tools *tools, const void *from)
{
	static struct function ghost_type = FUNCTION("gst_ghost_pad_get_type", CORE, NULL);
	static struct function proxy_type = FUNCTION("gst_proxy_pad_get_type", CORE, NULL);
	static struct function is_a = FUNCTION("g_type_check_instance_is_a", "libgobject-2.0", NULL);
	static struct function peer = FUNCTION("gst_pad_get_peer", CORE, NULL);
	static struct function parent = FUNCTION("gst_object_get_parent", CORE, NULL);
	static struct function internal = FUNCTION("gst_proxy_pad_get_internal", CORE, NULL);
	static struct function unref = FUNCTION("gst_object_unref", CORE, NULL);
	tools->ghost_type = (uintptr_t(*)(void))next_of(&ghost_type, from);
	tools->proxy_type = (uintptr_t(*)(void))next_of(&proxy_type, from);
	tools->is_a = (int (*)(const void *, uintptr_t))next_of(&is_a, from);
	tools->peer = (void *(*)(void *))next_of(&peer, from);
	tools->parent = (void *(*)(void *))next_of(&parent, from);
	tools->internal = (void *(*)(void *))next_of(&internal, from);
	tools->unref = (void (*)(void *))next_of(&unref, from);
	return tools->ghost_type && tools->proxy_type && tools->is_a && tools->peer && tools->parent &&
	       tools->internal && tools->unref;
}

/*
 * Describes the pad that gets the buffers of `pad` behind the borders of bins, and its element. The pipeline may change
 * at any time, so each object is used only with a reference.
 */
static void describe_next(struct pad_facts *facts, void *pad, const void *from)
{
	struct tools tools;
	if (!find_tools(&tools, from))
		return;
	void *peer = tools.peer(pad);
	for (int border = 0; peer && border < BORDERS; border++) {
		void *behind;
		if (tools.is_a(peer, tools.ghost_type()))
			/* Into a bin: the inner pad of the ghost pad is linked to the receiver. */
			behind = tools.internal(peer);
		else if (tools.is_a(peer, tools.proxy_type()))
			/* Out of a bin: the parent of the inner pad is the ghost pad. */
			behind = tools.parent(peer);
		else
			break;
		tools.unref(peer);
		peer = behind ? tools.peer(behind) : NULL;
		if (behind)
			tools.unref(behind);
	}
	void *next = peer ? tools.parent(peer) : NULL;
	facts->peer = peer;
	facts->next = next;
	copy_name(facts->next_name, pointer_at(next, OBJECT_NAME));
	if (next)
		tools.unref(next);
	if (peer)
		tools.unref(peer);
}

/* Writes the facts about a pad before its first buffer, and again after it was linked to another one. */
static void describe(void *pad, const void *from)
{
	if (!pad || !is_recorded())
		return;
	struct pad_facts facts = {.parent = pointer_at(pad, OBJECT_PARENT)};
	const void *name = pointer_at(pad, OBJECT_NAME), *peer = pointer_at(pad, PAD_PEER);
	/* The address of a new pad can be that of an old one, but its name, parent and peer differ then. */
	uintptr_t key = (uintptr_t)pad ^ (uintptr_t)name << 16 ^ (uintptr_t)facts.parent << 32 ^ (uintptr_t)peer << 48;
	_Atomic uintptr_t *entry = &known[(key ^ key >> 16 ^ key >> 32) / 16 % PADS];
	if (atomic_load_explicit(entry, memory_order_relaxed) == key)
		return;
	copy_name(facts.name, pointer_at(facts.parent, OBJECT_NAME));
	describe_next(&facts, pad, from);
	/* A bin may link its border later. */
	if (facts.next)
		atomic_store_explicit(entry, key, memory_order_relaxed);
	record_facts(PAD, pad, &facts, sizeof(facts));
}

EXPORT int gst_pad_push(void *pad, void *item);
EXPORT int gst_pad_push(void *pad, void *item)
{
	static struct function function = FUNCTION("gst_pad_push", CORE, (void *)gst_pad_push);
	const void *from = __builtin_return_address(0);
	int (*next)(void *, void *) = (int (*)(void *, void *))next_of(&function, from);
	if (!next)
		return FLOW_ERROR;
	describe(pad, from);
	record(PAD_PUSH, ENTER, pad, buffer(item), 0);
	int result = next(pad, item);
	record(PAD_PUSH, LEAVE, pad, NO_ITEM, result);
	return result;
}

/* Records one call, with the first buffer of the list. */
EXPORT int gst_pad_push_list(void *pad, void *list);
EXPORT int gst_pad_push_list(void *pad, void *list)
{
	static struct function function = FUNCTION("gst_pad_push_list", CORE, (void *)gst_pad_push_list);
	static struct function length_function = FUNCTION("gst_buffer_list_length", CORE, NULL);
	static struct function get_function = FUNCTION("gst_buffer_list_get", CORE, NULL);
	const void *from = __builtin_return_address(0);
	int (*next)(void *, void *) = (int (*)(void *, void *))next_of(&function, from);
	unsigned (*length)(void *) = (unsigned (*)(void *))next_of(&length_function, from);
	void *(*get)(void *, unsigned) = (void *(*)(void *, unsigned))next_of(&get_function, from);
	if (!next)
		return FLOW_ERROR;
	describe(pad, from);
	record(PAD_PUSH, ENTER, pad, buffer(list && length && get && length(list) > 0 ? get(list, 0) : NULL), 0);
	int result = next(pad, list);
	record(PAD_PUSH, LEAVE, pad, NO_ITEM, result);
	return result;
}

/* Notes that one buffer was made from another one. */
static void copied(void *to, const void *of)
{
	if (to && of && to != of)
		record(COPY_BUFFER, ENTER, to, buffer(of), 0);
}

EXPORT int gst_buffer_copy_into(void *to, void *of, unsigned flags, size_t offset, size_t size);
EXPORT int gst_buffer_copy_into(void *to, void *of, unsigned flags, size_t offset, size_t size)
{
	static struct function function = FUNCTION("gst_buffer_copy_into", CORE, (void *)gst_buffer_copy_into);
	int (*next)(void *, void *, unsigned, size_t, size_t) =
		(int (*)(void *, void *, unsigned, size_t, size_t))next_of(&function, __builtin_return_address(0));
	if (!next)
		return 0;
	copied(to, of);
	return next(to, of, flags, offset, size);
}

/*
 * Calls of gst_buffer_copy_into inside libgstreamer do not come here, so that the functions count that make copies by it.
 * Their objects are mostly buffers; a copy of another object is that of no buffer.
 */
#define DEFINE_COPY(symbol) \
	EXPORT void *symbol(void *of); \
	EXPORT void *symbol(void *of) \
	{ \
		static struct function function = FUNCTION(#symbol, CORE, (void *)symbol); \
		void *(*next)(void *) = (void *(*)(void *))next_of(&function, __builtin_return_address(0)); \
		if (!next) \
			return NULL; \
		const void *was = of; \
		void *to = next(of); \
		if (to && to != was) \
			record(COPY_BUFFER, ENTER, to, (struct item){.data = was, .pts = NO_ITEM.pts}, 0); \
		return to; \
	}

DEFINE_COPY(gst_mini_object_copy)
DEFINE_COPY(gst_mini_object_make_writable)

static struct item codec_frame(const void *frame)
{
	struct item item = NO_ITEM;
	if (frame) {
		item.data = pointer_at(frame, CODEC_FRAME_INPUT);
		memcpy(&item.pts, (const char *)frame + CODEC_FRAME_PTS, sizeof(item.pts));
	}
	return item;
}

#define DEFINE_FINISH(symbol) \
	EXPORT int symbol(void *codec, void *frame); \
	EXPORT int symbol(void *codec, void *frame) \
	{ \
		static struct function function = FUNCTION(#symbol, VIDEO, (void *)symbol); \
		int (*next)(void *, void *) = \
			(int (*)(void *, void *))next_of(&function, __builtin_return_address(0)); \
		if (!next) \
			return FLOW_ERROR; \
		record(FINISH_FRAME, ENTER, codec, codec_frame(frame), 0); \
		int result = next(codec, frame); \
		record(FINISH_FRAME, LEAVE, codec, NO_ITEM, result); \
		return result; \
	}

DEFINE_FINISH(gst_video_encoder_finish_frame)
DEFINE_FINISH(gst_video_encoder_finish_subframe)
DEFINE_FINISH(gst_video_decoder_finish_frame)

EXPORT void *gst_aggregator_pad_pop_buffer(void *pad);
EXPORT void *gst_aggregator_pad_pop_buffer(void *pad)
{
	static struct function function =
		FUNCTION("gst_aggregator_pad_pop_buffer", BASE, (void *)gst_aggregator_pad_pop_buffer);
	void *(*next)(void *) = (void *(*)(void *))next_of(&function, __builtin_return_address(0));
	if (!next)
		return NULL;
	record(POP_BUFFER, ENTER, pad, NO_ITEM, 0);
	void *item = next(pad);
	record(POP_BUFFER, LEAVE, pad, buffer(item), 0);
	return item;
}

/* Takes a buffer, too, but does not return it. Inside the library it calls the function above, which does not come here. */
EXPORT int gst_aggregator_pad_drop_buffer(void *pad);
EXPORT int gst_aggregator_pad_drop_buffer(void *pad)
{
	static struct function function =
		FUNCTION("gst_aggregator_pad_drop_buffer", BASE, (void *)gst_aggregator_pad_drop_buffer);
	static struct function peek_function = FUNCTION("gst_aggregator_pad_peek_buffer", BASE, NULL);
	static struct function unref_function = FUNCTION("gst_mini_object_unref", CORE, NULL);
	const void *from = __builtin_return_address(0);
	int (*next)(void *) = (int (*)(void *))next_of(&function, from);
	void *(*peek)(void *) = (void *(*)(void *))next_of(&peek_function, from);
	void (*unref)(void *) = (void (*)(void *))next_of(&unref_function, from);
	if (!next)
		return 0;
	void *item = peek && unref ? peek(pad) : NULL;
	record(POP_BUFFER, ENTER, pad, NO_ITEM, 0);
	record(POP_BUFFER, LEAVE, pad, buffer(item), 0);
	if (item)
		unref(item);
	return next(pad);
}

EXPORT int gst_clock_id_wait(void *id, int64_t *jitter);
EXPORT int gst_clock_id_wait(void *id, int64_t *jitter)
{
	static struct function function = FUNCTION("gst_clock_id_wait", CORE, (void *)gst_clock_id_wait);
	int (*next)(void *, int64_t *) =
		(int (*)(void *, int64_t *))next_of(&function, __builtin_return_address(0));
	if (!next)
		return CLOCK_ERROR;
	record(CLOCK_WAIT, ENTER, id, NO_ITEM, 0);
	int result = next(id, jitter);
	record(CLOCK_WAIT, LEAVE, id, NO_ITEM, result);
	return result;
}
