// SPDX-License-Identifier: MIT OR Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handoff.h"

/* Name of the program, and its modes: NULL, or ended by NULL. */
struct words {
	const char *program;
	const char *const *modes;
};

static void usage(const struct words *words, FILE *to)
{
	fprintf(to, "usage: %s ", words->program);
	for (size_t i = 0; words->modes && words->modes[i]; i++)
		fprintf(to, "%s%s", i ? "|" : "", words->modes[i]);
	fputs(" --bytes N --frames N [--rate HZ]\n"
	      "  --bytes N   size of a frame, 16 bytes to 64 MiB\n"
	      "  --frames N  number of measured frames, 1 to 10 million\n"
	      "  --rate HZ   frames per second; 0 (default): full speed\n",
	      to);
}

static void refuse(const struct words *words, const char *what, const char *word)
{
	fprintf(stderr, "%s: %s: %s\n", words->program, what, word);
	usage(words, stderr);
	exit(2);
}

static uint64_t number(const struct words *words, const char *name, const char *word,
		       uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(word, &end, 10);
	if (errno || end == word || *end || *word == '-' || value < least || value > most)
		refuse(words, name, word);
	return value;
}

static bool known(const char *const *modes, const char *word)
{
	for (size_t i = 0; modes && modes[i]; i++)
		if (strcmp(modes[i], word) == 0)
			return true;
	return false;
}

void handoff_read_options(struct handoff_options *options, const char *program,
			  const char *const *modes, int argc, char **argv)
{
	const struct words words = { program, modes };

	memset(options, 0, sizeof(*options));
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];

		if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
			usage(&words, stdout);
			exit(0);
		} else if (!options->mode && known(modes, word)) {
			options->mode = word;
		} else if (i + 1 == argc) {
			refuse(&words, "unknown argument, or missing value", word);
		} else if (strcmp(word, "--bytes") == 0) {
			options->bytes = number(&words, "--bytes: expected 16 bytes to 64 MiB", argv[++i],
						sizeof(struct handoff_header), 64u << 20);
		} else if (strcmp(word, "--frames") == 0) {
			options->frames = number(&words, "--frames: expected 1 to 10 million",
						 argv[++i], 1, 10000000);
		} else if (strcmp(word, "--rate") == 0) {
			options->rate = number(&words, "--rate: expected 0 to 100000 frames per second",
					       argv[++i], 0, 100000);
		} else {
			refuse(&words, "unknown argument", word);
		}
	}
	if (modes && !options->mode)
		refuse(&words, "missing argument", "MODE");
	if (!options->bytes || !options->frames)
		refuse(&words, "missing options", "--bytes and --frames");
}
