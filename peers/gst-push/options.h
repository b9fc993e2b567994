// SPDX-License-Identifier: MIT OR Apache-2.0
/* Arguments of gst-push. */
#ifndef GST_PUSH_OPTIONS_H
#define GST_PUSH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Origin of the pushed buffers: made before, allocated for each push, or from a pool. */
enum alloc { ALLOC_REUSE, ALLOC_NEW, ALLOC_POOL };

/* Number of values of enum alloc. */
#define ALLOC_KINDS 3

/* Values of --alloc, by enum alloc. */
extern const char *const alloc_names[ALLOC_KINDS];

struct options {
	const char *mode;	/* direct, queue, queue2 */
	enum alloc alloc;
	bool fakesink;		/* the element fakesink instead of a bare pad */
	size_t size;		/* size of a buffer, bytes */
	uint64_t pushes;	/* number of buffers to push */
	uint64_t rate;		/* buffers per second, 0: full speed */
};

/* Parses the arguments. Ends the process with status 2 for an invalid one, with 0 after --help. */
void parse_options(struct options *options, int argc, char **argv);

#endif
