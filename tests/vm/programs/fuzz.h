/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared code of the programs that make random calls on device files; the kernel's
 * own checks find the errors. Several processes with several threads each share
 * descriptors, so that calls race. Half of the calls are nearly valid, because
 * random calls alone would all fail early.
 */
#ifndef FRAMEPATH_TEST_FUZZ_H
#define FRAMEPATH_TEST_FUZZ_H

#include "v4l2.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#define PROCESSES 4
#define THREADS 3	/* of each */

static uint64_t deadline;
static struct {
	unsigned long calls, succeeded, processes;
	unsigned long reached[32];	/* of what a program counts by itself */
} *totals;

static __thread uint64_t state;

static inline uint32_t random_bits(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 24;
}

static inline uint32_t below(uint32_t limit)
{
	return random_bits() % limit;
}

/* Returns true in one of N calls. */
static inline bool rarely(uint32_t n)
{
	return !below(n);
}

/* Counts a call. Returns true if it succeeded. */
static inline bool done(long result)
{
	__atomic_fetch_add(&totals->calls, 1, __ATOMIC_RELAXED);
	if (result < 0)
		return false;
	__atomic_fetch_add(&totals->succeeded, 1, __ATOMIC_RELAXED);
	return true;
}

/* Counts a call, and its success under the number WHAT. Returns true if it succeeded. */
static inline bool reached(unsigned int what, long result)
{
	if (!done(result))
		return false;
	__atomic_fetch_add(&totals->reached[what], 1, __ATOMIC_RELAXED);
	return true;
}

/*
 * Makes a call with a random command and random bytes. Sizes stay small, because an allocation that
 * exceeds the guest's memory would be no error of the module.
 */
static inline void anything(int fd)
{
	uint32_t words[256];
	unsigned long command = 0;

	for (unsigned int i = 0; i < 256; i++)
		words[i] = below(3) ? below(4) : random_bits();
	switch (below(3)) {
	case 0:
		command = _IOC(below(4), 0xFB, below(0x30), below(2) ? below(200) : 8);
		break;
	case 1:
		command = _IOC(below(4), 'V', below(110), below(300));
		break;
	case 2: {
		static const unsigned long commands[] = {
			VIDIOC_QUERYCAP,   VIDIOC_ENUM_FMT,	   VIDIOC_G_FMT,       VIDIOC_S_FMT,	  VIDIOC_TRY_FMT,
			VIDIOC_REQBUFS,	   VIDIOC_QUERYBUF,	   VIDIOC_QBUF,	       VIDIOC_DQBUF,	  VIDIOC_EXPBUF,
			VIDIOC_CREATE_BUFS, VIDIOC_PREPARE_BUF,	   VIDIOC_G_EXT_CTRLS, VIDIOC_S_EXT_CTRLS, VIDIOC_QUERYCTRL,
			VIDIOC_QUERY_EXT_CTRL, VIDIOC_QUERYMENU,   VIDIOC_SUBSCRIBE_EVENT, VIDIOC_UNSUBSCRIBE_EVENT,
			VIDIOC_DQEVENT,	   VIDIOC_ENUM_FRAMESIZES, VIDIOC_G_SELECTION, VIDIOC_S_SELECTION, VIDIOC_DECODER_CMD,
			VIDIOC_TRY_DECODER_CMD, VIDIOC_S_PRIORITY, VIDIOC_G_CTRL,      VIDIOC_S_CTRL,	  VIDIOC_G_PARM,
		};

		command = commands[below(sizeof(commands) / sizeof(commands[0]))];
		break;
	}
	}
	/* Height, and the first plane's size. */
	if (_IOC_NR(command) == _IOC_NR(VIDIOC_S_FMT))
		words[3] = 0, words[7] &= 0xffff;
	if (_IOC_NR(command) == _IOC_NR(VIDIOC_REQBUFS))
		words[0] &= 7;
	if (_IOC_NR(command) == _IOC_NR(VIDIOC_CREATE_BUFS))
		words[1] &= 7, words[7] = 0, words[11] &= 0xffff;
	done(ioctl(fd, command, words));
}

static inline void on_signal(int number)
{
	(void)number;
}

static pthread_t others[THREADS - 1];

/* Runs in the first thread, which receives the process's signals, and signals the other threads. */
static inline void on_alarm(int number)
{
	(void)number;
	for (unsigned int i = 0; i < THREADS - 1; i++)
		pthread_kill(others[i], SIGUSR1);
}

static void (*fuzz_call)(void);

static inline void *fuzz_thread(void *seed)
{
	state = (uintptr_t)seed * 0x9e3779b97f4a7c15ull + 1;
	while (now_ns() < deadline)
		fuzz_call();
	return NULL;
}

static inline void fuzz_process(unsigned long seed)
{
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &action, NULL);
	for (unsigned int i = 1; i < THREADS; i++)
		check(!pthread_create(&others[i - 1], NULL, fuzz_thread, (void *)(seed + i)), "a thread");
	/* The signal ends calls that wait. */
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	fuzz_thread((void *)seed);
	/* Other threads may still wait in a call. */
	_exit(0);
}

/*
 * Calls call() in several processes until the time is over. Starts a new process for each that kills
 * itself.
 */
static inline void fuzz(const char *seconds, const char *seed_text, void (*call)(void))
{
	unsigned long seed = strtoul(seed_text, NULL, 0);
	unsigned int running = 0;

	deadline = now_ns() + strtoull(seconds, NULL, 0) * 1000000000;
	totals = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(totals != MAP_FAILED, "mmap");
	fuzz_call = call;
	while (running || now_ns() < deadline) {
		int status;

		while (running < PROCESSES && now_ns() < deadline) {
			pid_t child = fork();

			check(child >= 0, "fork");
			if (!child)
				fuzz_process(seed * 1000003 + totals->processes * THREADS);
			running++;
			totals->processes++;
		}
		/* If a process hangs in a call for 60 s after the deadline, SIGALRM ends this program. */
		signal(SIGALRM, SIG_DFL);
		alarm(now_ns() < deadline ? 0 : 60);
		check(wait(&status) > 0, "wait");
		running--;
		check((WIFEXITED(status) && !WEXITSTATUS(status)) ||
		      (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "a process ended with %#x", status);
	}
	printf("seed %lu: %lu calls, %lu succeeded, %lu processes\n", seed, totals->calls, totals->succeeded,
	       totals->processes);
}

#endif
