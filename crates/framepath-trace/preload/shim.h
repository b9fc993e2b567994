/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Library that `framepath trace` loads into a program before the program's own libraries. It defines functions of
 * FFmpeg's libraries and of GStreamer, records the calls, and forwards them to the real functions.
 *
 * The program must not notice the library: it writes nothing to the program's files, starts no thread, has no
 * descriptor open after its start, takes no lock, and allocates no memory in a recorded call. If anything is missing,
 * it only forwards.
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
	PAD_PUSH = 10,
	PAD_PULL = 11,
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

/* Number of objects (the program, a library, a plug-in) whose calls of one function are looked up only once. */
#define CALLERS 4

/* Function to which the calls from one object go. */
struct caller {
	/* First address of the object; 0 if this entry is not used. Set last. */
	_Atomic uintptr_t low;
	/* Size of the object's address range. */
	size_t bytes;
	/* The real function. */
	void *next;
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
 * Returns the real function for a call from the address `from`. A process can have several versions of a library, so
 * the real function depends on the object that calls.
 */
static inline void *next_of(struct function *function, const void *from)
{
	for (int n = 0; n < CALLERS; n++) {
		struct caller *caller = &function->callers[n];
		/* Acquire: pairs with the release in look_up, so that the other fields are there. */
		uintptr_t low = atomic_load_explicit(&caller->low, memory_order_acquire);
		if (low == 0)
			break;
		if ((uintptr_t)from - low < caller->bytes)
			return caller->next;
	}
	return look_up(function, (uintptr_t)from);
}

#endif
