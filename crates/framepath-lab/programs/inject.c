// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * inject: known costs in known frames. A helper thread ends the waits; its stamp
 * just before is the end of the injected wait, because the wake-up that follows is
 * no part of it.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

#define MOST 4096
#define UNNAMED INT64_MIN

enum kind { NONE, SPIN, COPY, SLEEP, FUTEX, MUTEX, PIPE, FAULT, PREEMPT, LATE };

static const char *const kinds[] = {
	"none", "spin", "copy", "sleep", "futex", "mutex", "read", "fault", "preempt", "late",
};

struct injected {
	int64_t pts, ns, cpu_ns;
};

static enum kind kind;
static char stage_wanted[32];
static int64_t cost_ns;
static int every, turn;
static struct injected injected[MOST];
static int injected_count;

/* One injection at a time: decoders have several threads. */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

/* The helper's requests and answers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static int asked, done;
static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static atomic_int begun, served;
static atomic_llong begin_ns, end_ns;
static int pipes[2], fault_fd;
static volatile unsigned char *page;
static unsigned char *from, *to;
#define COPY_BYTES (1 << 20)

static int64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

void die(const char *what, const char *why)
{
	fprintf(stderr, "traced: %s: %s\n", what, why);
	exit(1);
}

static void nap(int64_t ns)
{
	struct timespec time = { ns / 1000000000, ns % 1000000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

static void zero_page(void)
{
	struct uffd_msg message;
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, 4096 } };

	if (read(fault_fd, &message, sizeof(message)) != sizeof(message))
		die("read of a page fault", strerror(errno));
	nap(cost_ns);
	atomic_store(&end_ns, now_ns());
	if (ioctl(fault_fd, UFFDIO_ZEROPAGE, &zero))
		die("UFFDIO_ZEROPAGE", strerror(errno));
}

static void serve(void)
{
	if (kind == MUTEX)
		pthread_mutex_lock(&contended);
	atomic_store(&begin_ns, now_ns());
	atomic_fetch_add(&begun, 1);
	switch (kind) {
	case FAULT:
		zero_page();
		return;
	case PREEMPT:
	case LATE:
		while (now_ns() - atomic_load(&begin_ns) < cost_ns)
			;
		break;
	default:
		nap(cost_ns);
	}
	atomic_store(&end_ns, now_ns());
	if (kind == MUTEX)
		pthread_mutex_unlock(&contended);
	if (kind == PIPE && write(pipes[1], "", 1) != 1)
		die("write to the pipe", strerror(errno));
	if (kind == FUTEX) {
		pthread_mutex_lock(&lock);
		done++;
		pthread_cond_signal(&done_cond);
		pthread_mutex_unlock(&lock);
	}
}

static void *help(void *unused)
{
	(void)unused;
	for (int count = 1;; count++) {
		pthread_mutex_lock(&lock);
		while (asked < count)
			pthread_cond_wait(&asked_cond, &lock);
		pthread_mutex_unlock(&lock);
		serve();
		atomic_store(&served, count);
	}
	return NULL;
}

static void ask(void)
{
	pthread_mutex_lock(&lock);
	asked++;
	pthread_mutex_unlock(&lock);
	pthread_cond_signal(&asked_cond);
}

static void prepare_fault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	fault_fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (uintptr_t)page;
	range.range.len = 4096;
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api) || ioctl(fault_fd, UFFDIO_REGISTER, &range))
		die("userfaultfd", strerror(errno));
}

void inject_prepare(const char *text, int cpu)
{
	char name[32];
	int us;
	pthread_t helper;

	if (sscanf(text, "%31[^:]:%31[^:]:%d:%d", name, stage_wanted, &us, &every) != 4 || every < 1)
		die(text, "expected KIND:STAGE:MICROSECONDS:EVERY");
	for (unsigned index = 0; index < sizeof(kinds) / sizeof(*kinds); index++)
		if (!strcmp(name, kinds[index]))
			kind = index;
	cost_ns = us * 1000LL;
	if (kind == PIPE && pipe(pipes))
		die("pipe", strerror(errno));
	if (kind == FAULT)
		prepare_fault();
	from = calloc(2, COPY_BYTES);
	to = from + COPY_BYTES;
	if (pthread_create(&helper, NULL, help, NULL))
		die("pthread_create", strerror(errno));
	if (kind == PREEMPT || kind == LATE) {
		struct sched_param priority = { .sched_priority = 1 };
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (cpu < 0 || (errno = pthread_setaffinity_np(helper, sizeof(set), &set)) ||
		    (errno = pthread_setschedparam(helper, SCHED_FIFO, &priority)))
			die("a pinned real-time thread", strerror(errno));
	}
}

/* Costs time on the caller's thread. Returns the injected time of the cause. */
static int64_t cost(void)
{
	const int64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int64_t since_ns = now_ns();
	char byte;

	switch (kind) {
	case SPIN:
	case COPY:
		while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns < cost_ns)
			if (kind == COPY)
				memcpy(to, from, COPY_BYTES);
		return clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	case SLEEP:
		/* What follows the timer's end is wake-up. */
		nap(cost_ns);
		return cost_ns;
	case FUTEX:
		ask();
		pthread_mutex_lock(&lock);
		while (done < asked)
			pthread_cond_wait(&done_cond, &lock);
		pthread_mutex_unlock(&lock);
		break;
	case MUTEX:
		ask();
		while (atomic_load(&begun) < asked)
			;
		since_ns = now_ns();
		pthread_mutex_lock(&contended);
		pthread_mutex_unlock(&contended);
		break;
	case PIPE:
		ask();
		if (read(pipes[0], &byte, 1) != 1)
			die("read of the pipe", strerror(errno));
		break;
	case FAULT:
		madvise((void *)page, 4096, MADV_DONTNEED);
		ask();
		since_ns = now_ns();
		*page;
		break;
	case PREEMPT:
		ask();
		while (atomic_load(&served) < asked)
			;
		/* Other threads may have taken the CPU, too. */
		return now_ns() - since_ns - (clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns);
	default:
		return 0;
	}
	return atomic_load(&end_ns) - since_ns;
}

static int is_turn(void)
{
	return ++turn % every == 0 && injected_count < MOST;
}

void inject(const char *stage, int64_t pts)
{
	if (kind == NONE || kind == LATE || strcmp(stage, stage_wanted))
		return;
	pthread_mutex_lock(&one);
	if (is_turn()) {
		const int64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		const int64_t ns = cost();

		injected[injected_count++] =
			(struct injected){ pts, ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns };
	}
	pthread_mutex_unlock(&one);
}

void inject_unnamed(const char *stage)
{
	inject(stage, UNNAMED);
}

void inject_name(int64_t pts)
{
	for (int index = injected_count - 1; index >= 0 && injected[index].pts == UNNAMED; index--)
		injected[index].pts = pts;
}

static int is_late;

void inject_late(const char *stage, int64_t pts)
{
	is_late = kind == LATE && !strcmp(stage, stage_wanted) && is_turn();
	if (!is_late)
		return;
	ask();
	while (atomic_load(&begun) < asked)
		;
	injected[injected_count].pts = pts;
}

void inject_handed(void)
{
	const int64_t handed_ns = now_ns();

	if (!is_late)
		return;
	while (atomic_load(&served) < asked)
		sched_yield();
	injected[injected_count++].ns = atomic_load(&end_ns) - handed_ns;
	is_late = 0;
}

void inject_report(FILE *report)
{
	for (int index = 0; index < injected_count; index++)
		fprintf(report, "inject %lld %lld %lld\n", (long long)injected[index].pts,
			(long long)injected[index].ns, (long long)injected[index].cpu_ns);
}
