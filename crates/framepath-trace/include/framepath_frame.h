/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Says where a program's frames are, for `framepath trace`. Copy this file into your program; it needs no library.
 *
 *     framepath_frame(id, "capture");    the frame begins its first stage, on this thread
 *     framepath_frame(id, "queue");      it waits until another thread takes it
 *     framepath_frame(id, "detect");     that thread has taken it
 *     framepath_frame_end(id);           it has left the program
 *
 * `id` tells the frames apart that are in the process at one time. A stage ends where the frame's next one begins. The
 * stage with which the frame began begins a new frame of that id; the one before it was dropped. `stage` has at most
 * 23 bytes. Both functions may be called on every thread and in signal handlers.
 *
 * Without an observer, a call costs a read of the name's first byte and an instruction that does nothing (nop). The
 * places are static probes in the format of SystemTap's sys/sdt.h (USDT): provider `framepath`, probes `frame` and
 * `frame_end`. Other programs find them too, for example: bpftrace -e 'usdt:./program:framepath:frame { printf("%d %s\n", arg0, str(arg1)); }'
 *
 * C99 or newer, or C++; GCC or Clang; Linux on x86-64 or AArch64.
 */
#ifndef FRAMEPATH_FRAME_H
#define FRAMEPATH_FRAME_H

#include <stdint.h>

/* The instruction, and the note that says where it is and where its arguments are. */
#define FRAMEPATH_PROBE_(name, arguments)                                                                              \
    "990: nop\n"                                                                                                       \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                                      \
    ".balign 4\n"                                                                                                      \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                                                 \
    "991: .asciz \"stapsdt\"\n"                                                                                        \
    "992: .balign 4\n"                                                                                                 \
    "993: .8byte 990b\n"                                                                                               \
    ".8byte _.stapsdt.base\n"                                                                                          \
    ".8byte 0\n"                                                                                                       \
    ".asciz \"framepath\"\n"                                                                                           \
    ".asciz \"" name "\"\n"                                                                                            \
    ".asciz \"" arguments "\"\n"                                                                                       \
    "994: .balign 4\n"                                                                                                 \
    ".popsection\n"                                                                                                    \
    ".ifndef _.stapsdt.base\n"                                                                                         \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                            \
    ".weak _.stapsdt.base\n"                                                                                           \
    ".hidden _.stapsdt.base\n"                                                                                         \
    "_.stapsdt.base: .space 1\n"                                                                                       \
    ".size _.stapsdt.base, 1\n"                                                                                        \
    ".popsection\n"                                                                                                    \
    ".endif\n"

#if defined(__x86_64__)
#define FRAMEPATH_ARGUMENTS_ "8@%%rdi 8@%%rsi"
#define FRAMEPATH_ID_ "8@%%rdi"
#define FRAMEPATH_FIRST_ "rdi"
#define FRAMEPATH_SECOND_ "rsi"
#elif defined(__aarch64__)
#define FRAMEPATH_ARGUMENTS_ "8@x0 8@x1"
#define FRAMEPATH_ID_ "8@x0"
#define FRAMEPATH_FIRST_ "x0"
#define FRAMEPATH_SECOND_ "x1"
#else
#error "framepath_frame.h knows x86-64 and AArch64"
#endif

/* The frame `id` begins stage `stage`. */
static __attribute__((noinline, unused)) void framepath_frame(uint64_t id, const char *stage)
{
    /* An observer cannot read a page that the program has never touched. */
    (void)*(const volatile char *)stage;
    register uint64_t first __asm__(FRAMEPATH_FIRST_) = id;
    register const char *second __asm__(FRAMEPATH_SECOND_) = stage;
    __asm__ __volatile__(FRAMEPATH_PROBE_("frame", FRAMEPATH_ARGUMENTS_) : : "r"(first), "r"(second) : "memory");
}

/* The frame `id` has left its last stage. */
static __attribute__((noinline, unused)) void framepath_frame_end(uint64_t id)
{
    register uint64_t first __asm__(FRAMEPATH_FIRST_) = id;
    __asm__ __volatile__(FRAMEPATH_PROBE_("frame_end", FRAMEPATH_ID_) : : "r"(first) : "memory");
}

#undef FRAMEPATH_PROBE_
#undef FRAMEPATH_ARGUMENTS_
#undef FRAMEPATH_ID_
#undef FRAMEPATH_FIRST_
#undef FRAMEPATH_SECOND_

#endif
