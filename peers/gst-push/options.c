// SPDX-License-Identifier: MIT OR Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

const char *const alloc_names[ALLOC_KINDS] = { "reuse", "new", "pool" };

static void usage(FILE *to)
{
	fputs("usage: gst-push MODE SIZE TOTAL_BYTES [OPTION...]\n"
	      "       gst-push MODE SIZE --count N [OPTION...]\n"
	      "  MODE                    direct (pad to pad), or a queue or queue2 between\n"
	      "  SIZE                    size of a buffer in bytes, at most 64 MiB\n"
	      "  TOTAL_BYTES             bytes to push; rounded down to whole buffers\n"
	      "  --count N               number of buffers to push\n"
	      "  --rate HZ               buffers per second, with a measured latency;\n"
	      "                          default: full speed, no latency\n"
	      "  --alloc reuse|new|pool  reference buffers made before (default), allocate\n"
	      "                          one per push, or take it from a GstBufferPool\n"
	      "  --reuse                 the same as --alloc reuse\n"
	      "  --sink pad|fakesink     a bare pad (default), or the element fakesink\n",
	      to);
}

static void refuse(const char *what, const char *word)
{
	fprintf(stderr, "gst-push: %s: %s\n", what, word);
	usage(stderr);
	exit(2);
}

static uint64_t parse_number(const char *what, const char *word)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(word, &end, 10);
	if (errno || end == word || *end || *word == '-' || value == 0)
		refuse(what, word);
	return value;
}

void parse_options(struct options *options, int argc, char **argv)
{
	const char *words[3] = { NULL, NULL, NULL };
	int count = 0;

	memset(options, 0, sizeof(*options));
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
			usage(stdout);
			exit(0);
		} else if (strcmp(word, "--reuse") == 0) {
			options->alloc = ALLOC_REUSE;
		} else if (strncmp(word, "--", 2) != 0) {
			if (count == 3)
				refuse("unexpected argument", word);
			words[count++] = word;
		} else if (!value) {
			refuse("unknown option, or missing value", word);
		} else if (strcmp(word, "--count") == 0) {
			options->pushes = parse_number("--count: expected a number of buffers", argv[++i]);
		} else if (strcmp(word, "--rate") == 0) {
			options->rate = parse_number("--rate: expected buffers per second", argv[++i]);
		} else if (strcmp(word, "--sink") == 0) {
			options->fakesink = strcmp(argv[++i], "fakesink") == 0;
			if (!options->fakesink && strcmp(value, "pad") != 0)
				refuse("--sink: expected pad or fakesink", value);
		} else if (strcmp(word, "--alloc") == 0) {
			size_t alloc = 0;

			while (alloc < ALLOC_KINDS &&
			       strcmp(alloc_names[alloc], value) != 0)
				alloc++;
			if (alloc == ALLOC_KINDS)
				refuse("--alloc: expected reuse, new or pool", value);
			options->alloc = (enum alloc)alloc;
			i++;
		} else {
			refuse("unknown option", word);
		}
	}

	options->mode = words[0];
	if (!words[0] || !words[1])
		refuse("missing arguments", "MODE and SIZE");
	if (strcmp(words[0], "direct") != 0 && strcmp(words[0], "queue") != 0 &&
	    strcmp(words[0], "queue2") != 0)
		refuse("MODE: expected direct, queue or queue2", words[0]);
	options->size = parse_number("SIZE: expected a number of bytes", words[1]);
	if (!words[2] == !options->pushes)
		refuse("expected exactly one of", "TOTAL_BYTES and --count N");
	if (words[2]) {
		uint64_t total = parse_number("TOTAL_BYTES: expected a number of bytes", words[2]);

		options->pushes = total / options->size;
		if (options->pushes == 0)
			refuse("TOTAL_BYTES is less than one buffer", words[2]);
	}
	if (options->size > 64u << 20)
		refuse("SIZE: expected at most 64 MiB", words[1]);
	if (options->rate && options->fakesink)
		refuse("--rate needs a bare pad for its timestamps, not", "--sink fakesink");
}
