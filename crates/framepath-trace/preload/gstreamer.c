/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions of GStreamer with which elements hand over buffers. Elements and base classes are in other libraries than
 * these functions, so that their calls come here. Calls inside libgstreamer do not: those of ghost pads, which pass a
 * buffer through the border of a bin.
 */
#include "shim.h"

#include <string.h>

/* Offsets in GStreamer 1: the public headers. They belong to its stable ABI. */
enum {
	OBJECT_NAME = 32,
	OBJECT_PARENT = 40,
	BUFFER_PTS = 72,
};

/* GST_FLOW_ERROR. */
#define FLOW_ERROR (-5)

/* Number of pads whose names are not written again. */
#define PADS 1024

/* Keys of the pads whose names were written, by their hash. A pad that takes another one's place is written again. */
static _Atomic uintptr_t named[PADS];

static const void *pointer_at(const void *object, int offset)
{
	const void *pointer;
	memcpy(&pointer, (const char *)object + offset, sizeof(pointer));
	return pointer;
}

static struct item buffer(const void *from)
{
	struct item item = NO_ITEM;
	if (from) {
		item.data = from;
		/* GST_CLOCK_TIME_NONE, which is -1, is no time. */
		memcpy(&item.pts, (const char *)from + BUFFER_PTS, sizeof(item.pts));
		if (item.pts == -1)
			item.pts = INT64_MIN;
	}
	return item;
}

/* Appends `text` at `at`. Returns the new end; what does not fit is cut off. */
static char *append(char *at, const char *end, const char *text)
{
	while (text && *text && at < end)
		*at++ = *text++;
	return at;
}

/* Writes the name of a pad, "element:pad", the first time that the pad is used. */
static void name_pad(const void *pad)
{
	if (!pad || !is_recorded())
		return;
	const void *name = pointer_at(pad, OBJECT_NAME);
	const void *parent = pointer_at(pad, OBJECT_PARENT);
	/* An address of a new pad can be that of an old one, but its name and parent differ then. */
	uintptr_t key = (uintptr_t)pad ^ (uintptr_t)name << 16 ^ (uintptr_t)parent << 32;
	_Atomic uintptr_t *entry = &named[(key ^ key >> 16 ^ key >> 32) / 16 % PADS];
	if (atomic_exchange_explicit(entry, key, memory_order_relaxed) == key)
		return;
	char text[NAME_BYTES] = "";
	char *at = append(text, text + NAME_BYTES, parent ? pointer_at(parent, OBJECT_NAME) : NULL);
	at = append(at, text + NAME_BYTES, ":");
	append(at, text + NAME_BYTES, name);
	record_name(pad, text);
}

EXPORT int gst_pad_push(void *pad, void *item);
EXPORT int gst_pad_push(void *pad, void *item)
{
	static struct function function = {
		.name = "gst_pad_push", .library = "libgstreamer-1.0", .own = (void *)gst_pad_push, .is_changing = ATOMIC_FLAG_INIT};
	int (*next)(void *, void *) = (int (*)(void *, void *))next_of(&function, __builtin_return_address(0));
	if (!next)
		return FLOW_ERROR;
	name_pad(pad);
	record(PAD_PUSH, ENTER, pad, buffer(item), 0);
	int result = next(pad, item);
	record(PAD_PUSH, LEAVE, pad, NO_ITEM, result);
	return result;
}

/* Records one call, with the first buffer of the list. */
EXPORT int gst_pad_push_list(void *pad, void *list);
EXPORT int gst_pad_push_list(void *pad, void *list)
{
	static struct function function = {.name = "gst_pad_push_list",
					   .library = "libgstreamer-1.0",
					   .own = (void *)gst_pad_push_list,
					   .is_changing = ATOMIC_FLAG_INIT};
	static struct function length_function = {
		.name = "gst_buffer_list_length", .library = "libgstreamer-1.0", .is_changing = ATOMIC_FLAG_INIT};
	static struct function get_function = {
		.name = "gst_buffer_list_get", .library = "libgstreamer-1.0", .is_changing = ATOMIC_FLAG_INIT};
	const void *from = __builtin_return_address(0);
	int (*next)(void *, void *) = (int (*)(void *, void *))next_of(&function, from);
	unsigned (*length)(void *) = (unsigned (*)(void *))next_of(&length_function, from);
	void *(*get)(void *, unsigned) = (void *(*)(void *, unsigned))next_of(&get_function, from);
	if (!next)
		return FLOW_ERROR;
	name_pad(pad);
	record(PAD_PUSH, ENTER, pad, buffer(list && length && get && length(list) > 0 ? get(list, 0) : NULL), 0);
	int result = next(pad, list);
	record(PAD_PUSH, LEAVE, pad, NO_ITEM, result);
	return result;
}

EXPORT int gst_pad_pull_range(void *pad, uint64_t offset, unsigned size, void **item);
EXPORT int gst_pad_pull_range(void *pad, uint64_t offset, unsigned size, void **item)
{
	static struct function function = {.name = "gst_pad_pull_range",
					   .library = "libgstreamer-1.0",
					   .own = (void *)gst_pad_pull_range,
					   .is_changing = ATOMIC_FLAG_INIT};
	int (*next)(void *, uint64_t, unsigned, void **) =
		(int (*)(void *, uint64_t, unsigned, void **))next_of(&function, __builtin_return_address(0));
	if (!next)
		return FLOW_ERROR;
	name_pad(pad);
	record(PAD_PULL, ENTER, pad, NO_ITEM, 0);
	int result = next(pad, offset, size, item);
	record(PAD_PULL, LEAVE, pad, buffer(result >= 0 && item ? *item : NULL), result);
	return result;
}
