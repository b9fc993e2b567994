// SPDX-License-Identifier: MIT OR Apache-2.0
/* The words of gst-push's command line. */
#ifndef GST_PUSH_OPTIONS_H
#define GST_PUSH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum alloc { ALLOC_REUSE, ALLOC_NEW, ALLOC_POOL };

#define ALLOC_KINDS 3

/* By enum alloc. */
extern const char *const alloc_names[ALLOC_KINDS];

struct options {
	const char *mode;	/* direct, queue, queue2 */
	enum alloc alloc;
	bool fakesink;
	size_t size;		/* bytes in a buffer */
	uint64_t pushes;
	uint64_t rate;		/* buffers per second, 0: flat out */
};

/* Ends the process with status 2 when a word makes no sense, 0 after --help. */
void parse_options(struct options *options, int argc, char **argv);

#endif
