/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Library that `framepath trace` loads into a program before the program's own libraries. It defines functions of
 * FFmpeg's libraries and of GStreamer, records the calls, and forwards them to the real functions.
 *
 * The program must not notice the library: it writes nothing to the program's files, starts no thread, and has no
 * descriptor open after its start. A recorded call takes no lock and allocates no memory; only the first call of a
 * function from an object of the program searches the real function, which the loader does with its own lock. If
 * anything is missing, the library only forwards.
 */
#ifndef FRAMEPATH_SHIM_H
#define FRAMEPATH_SHIM_H

/* For RTLD_NEXT, dl_iterate_phdr and F_GET_SEALS; this header comes first in each file. */
#define _GNU_SOURCE

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

/* Numbers of functions: the order of `Call` in src/calls.rs. GetBuffer, number 3, cannot be preloaded. */
enum call {
	OPEN_CODEC = 0,
	READ_PACKET = 1,
	SEND_PACKET = 2,
	RECEIVE_FRAME = 4,
	FILTER_INPUT = 5,
	FILTER_OUTPUT = 6,
	SEND_FRAME = 7,
	RECEIVE_PACKET = 8,
	WRITE_PACKET = 9,
	OPEN_INPUT = 10,
	OPEN_OUTPUT = 11,
	OPEN_GRAPH = 12,
	PAD_PUSH = 13,
	CLOCK_WAIT = 14,
	COPY_FRAME = 15,
	COPY_BUFFER = 16,
	FINISH_FRAME = 17,
	POP_BUFFER = 18,
	/* No calls, but parts of the facts about an object of FFmpeg or a pad of GStreamer. */
	FILTER_OPTION = 252,
	FILTER_LINK = 253,
	OBJECT = 254,
	PAD = 255,
};

/* Moments of a call: the order of `Phase` in src/calls.rs. */
enum phase {
	ENTER = 0,
	LEAVE = 1,
};

/* Address of the bytes and presentation time of a packet, frame or buffer. */
struct item {
	const void *data;
	int64_t pts;
};

/* Item of a call that has none: `NO_PTS` in src/calls.rs. */
#define NO_ITEM ((struct item){NULL, INT64_MIN})

/* Writes one record to the ring, or counts it as lost if the ring is full. Does nothing without a ring. */
HIDDEN void record(enum call call, enum phase phase, const void *object, struct item item, int result);

/* Size of a part of facts, bytes: the words of a record. */
#define PART_BYTES 24

/* Facts about a codec, a demuxer, a muxer or a filter. */
struct object_facts {
	/* Kind of a codec's stream (enum AVMediaType); -1 for what is no codec. */
	int64_t media;
	/* Graph of a filter, and the filter's place there. */
	const void *graph;
	uint64_t index;
	/* Name, padded with zeroes. */
	char name[2 * PART_BYTES];
};

/* Facts about an output of a filter. */
struct filter_output {
	/* Filter to which it leads. */
	const void *to;
	/* Words of the link that have the time base, one for each layout of the struct. */
	uint64_t time_bases[2];
};

/* Facts about a pad: its element and the next one, which gets the buffers. */
struct pad_facts {
	const void *parent;
	const void *peer;
	const void *next;
	/* Names, padded with zeroes. */
	char name[2 * PART_BYTES];
	char next_name[2 * PART_BYTES];
};

/* Writes facts about the object at `address`, of `bytes` bytes, to the ring: one record for each part. */
HIDDEN void record_facts(enum call kind, const void *address, const void *facts, size_t bytes);

/* Returns the pointer at `offset` of an object; NULL without an object. */
HIDDEN const void *pointer_at(const void *object, int offset);

/* Copies a name, which may be NULL, to facts. */
HIDDEN void copy_name(char to[2 * PART_BYTES], const char *name);

/* Returns true if there is a ring. */
HIDDEN int is_recorded(void);

/* Number of objects (the program, a library, a plug-in) whose calls of one function are looked up only once. */
#define CALLERS 4

/* Function to which the calls from one object go. */
struct caller {
	/* Odd while a thread changes the entry. */
	_Atomic unsigned version;
	/* Value of `closed` before the look-up. The entry is free if it differs from the present value. */
	_Atomic unsigned closed;
	/* First address of the object. */
	_Atomic uintptr_t low;
	/* Size of the object's address range; 0 if the entry was never used. */
	_Atomic size_t bytes;
	/* The real function. */
	_Atomic(void *) next;
};

/* One function that this library defines. */
struct function {
	const char *name;
	/* Beginning of the name of the library's file. */
	const char *library;
	/* The definition in this library. */
	void *own;
	/* True while a thread adds a caller. */
	atomic_flag is_changing;
	struct caller callers[CALLERS];
};

/* Looks up the real function for a call from the address `from`. Returns NULL if there is none. */
HIDDEN void *look_up(struct function *function, uintptr_t from);

/*
 * Number of calls of dlclose so far, and 1. Another object can be at the address of an unloaded one, so all that was
 * looked up before is out of date.
 */
HIDDEN extern _Atomic unsigned closed;

/*
 * Returns the real function for a call from the address `from`. A process can have several versions of a library, so
 * the real function depends on the object that calls.
 */
static inline void *next_of(struct function *function, const void *from)
{
	unsigned now = atomic_load_explicit(&closed, memory_order_relaxed);
	for (int n = 0; n < CALLERS; n++) {
		struct caller *caller = &function->callers[n];
		/* Acquire: pairs with the release at the end of a change. */
		unsigned version = atomic_load_explicit(&caller->version, memory_order_acquire);
		unsigned looked_up = atomic_load_explicit(&caller->closed, memory_order_relaxed);
		uintptr_t low = atomic_load_explicit(&caller->low, memory_order_relaxed);
		size_t bytes = atomic_load_explicit(&caller->bytes, memory_order_relaxed);
		void *next = atomic_load_explicit(&caller->next, memory_order_relaxed);
		/* The fields belong together if the version is still the same. */
		atomic_thread_fence(memory_order_acquire);
		if (looked_up == now && (uintptr_t)from - low < bytes && version % 2 == 0 &&
		    atomic_load_explicit(&caller->version, memory_order_relaxed) == version)
			return next;
	}
	return look_up(function, (uintptr_t)from);
}

#endif
