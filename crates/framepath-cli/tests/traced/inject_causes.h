/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* inject_causes: costs of one kind in some frames of a program, measured by clocks of the program's own. */
#ifndef INJECT_CAUSES_H
#define INJECT_CAUSES_H

#include <stdint.h>

/* Exit code of a program whose kind of cost this machine cannot inject. */
#define UNAVAILABLE 77

/* Prints a message and ends the program. */
_Noreturn void die(const char *what, const char *why);

/*
 * Reads the program's arguments (head of causes.c), and starts the helper process and threads. To be called before any other
 * library's function. Ends the program with UNAVAILABLE and the reason if the machine cannot inject the kind.
 */
void causes_prepare(int count, char **words);

/* Place and number of frames of the arguments. */
const char *causes_place(void);
int causes_frames(void);

/*
 * Puts the program into the control groups that the kind needs. To be called before the first injection, when all threads
 * exist; takes some milliseconds.
 */
void causes_join(void);

/*
 * Injects the cost on the caller's thread if it is the turn of frame `frame`. Returns the number of the injection, for
 * causes_name; -1 without one.
 */
int causes_inject(int64_t frame);

/* Gives the injection `index` the number of its frame, where causes_inject had the number of a call. */
void causes_name(int index, int64_t frame);

/* Writes the report. */
void causes_report(void);

#endif
