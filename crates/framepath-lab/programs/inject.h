/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* inject: known costs in known frames, measured by the program's own clocks. */
#ifndef INJECT_H
#define INJECT_H

#include <stdint.h>
#include <stdio.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* Prints a message, and ends the program. */
_Noreturn void die(const char *what, const char *why);

/*
 * Prepares the injection "KIND:STAGE:MICROSECONDS:EVERY". cpu is the CPU of the
 * thread that a real-time thread is to disturb; -1 if threads are not pinned.
 */
void inject_prepare(const char *text, int cpu);

/* Injects the cost if this is the injection's stage, and the turn of this frame. */
void inject(const char *stage, int64_t pts);

/*
 * Injects the cost as inject() does, for a frame whose time is not known yet.
 * inject_name() gives the time.
 */
void inject_unnamed(const char *stage);
void inject_name(int64_t pts);

/*
 * Occupies the CPU of an idle consumer if this is the turn of this frame. The
 * caller hands the frame over next, and calls inject_handed() then.
 */
void inject_late(const char *stage, int64_t pts);
void inject_handed(void);

/* Writes a line "inject PTS NANOSECONDS CPU_NANOSECONDS" for each injection. */
void inject_report(FILE *to);

#endif
