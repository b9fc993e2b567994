// SPDX-License-Identifier: MIT OR Apache-2.0
/* Arguments of gst-push. */
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
	uint64_t rate;		/* buffers per second, 0: full speed */
};

/* Ends the process with status 2 for an invalid argument, with 0 after --help. */
void parse_options(struct options *options, int argc, char **argv);

#endif
