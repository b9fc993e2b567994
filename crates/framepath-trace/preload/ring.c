/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ring in shared memory, in which all threads of all recorded processes write and `framepath trace` reads. The reader
 * is framepath-os, src/measure/call_ring.rs, which explains the states of a slot.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* "fpcalls" and the version of the format. */
#define MAGIC 0x01736c6c61637066

/* Number of slots, a constant: the program may write anything to the memory, so no index comes from it. */
#define SLOTS 65536
/* State of a slot that is not used any more. */
#define RETIRED UINT64_MAX
/* Attempts to get a slot before the record is lost: a call never waits. */
#define ATTEMPTS 100

/* Words of a record behind the ids. */
struct content {
	/* Call, phase << 8, result << 32; for facts, the part << 8. */
	uint64_t kind;
	uint64_t object;
	/* Address of the item's bytes, presentation time, and nothing; or a part of facts. */
	uint64_t words[3];
};

/* One record; valid while `state` is odd. */
struct slot {
	_Atomic uint64_t state;
	uint64_t at_ns;
	/* Process in the low, thread in the high half. */
	uint64_t ids;
	struct content content;
};

/* Memory of the ring. The counters have cache lines of their own, because every record changes the first one. */
struct ring {
	uint64_t magic;
	/* Number of slots that were taken since the beginning. */
	_Alignas(64) _Atomic uint64_t head;
	/* Number of records that found no slot. */
	_Alignas(64) _Atomic uint64_t lost;
	_Alignas(4096) struct slot slots[SLOTS];
};

_Static_assert(sizeof(struct slot) == 64, "a record is one cache line");
_Static_assert(sizeof(struct filter_output) == PART_BYTES, "an output has one part");
_Static_assert(sizeof(struct object_facts) == 3 * PART_BYTES, "an object has three parts");
_Static_assert(sizeof(struct pad_facts) == 5 * PART_BYTES, "a pad has five parts; addresses have 64 bits");

static struct ring *ring;
/* Id of this process. The kernel clears it in a new process after every kind of fork. */
static _Atomic int *process;

struct ids {
	int process;
	int thread;
};

/* Ids of the calling thread. Initial-exec: the library is there from the start, and the access is one instruction. */
static __thread struct ids own __attribute__((tls_model("initial-exec")));

static void *map(int file, size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Returns the ids of the calling thread as one word. */
static uint64_t own_ids(void)
{
	int id = atomic_load_explicit(process, memory_order_relaxed);
	if (id == 0) {
		id = getpid();
		atomic_store_explicit(process, id, memory_order_relaxed);
	}
	if (own.process != id)
		own = (struct ids){id, (int)syscall(SYS_gettid)};
	return (uint32_t)own.process | (uint64_t)(uint32_t)own.thread << 32;
}

/*
 * Maps the ring when the library is loaded: also after each execve, and before the program can close descriptors,
 * change its user or enter a sandbox. The descriptor is closed again. The path is in /proc/PID/fd of framepath, so it
 * is gone when framepath has ended, and the program inherits no descriptor.
 */
__attribute__((constructor)) static void map_ring(void)
{
	const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
	const char *path = secure_getenv("FRAMEPATH_TRACE_RING");
	int saved = errno;
	if (!path || strncmp(path, "/proc/", 6) != 0)
		return;
	int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file >= 0) {
		struct stat status;
		/*
		 * The seals exclude every other kind of file, and a SIGBUS for a page that is not there. The owner excludes a
		 * file of another user's process that has got the number of the one that has ended.
		 */
		int seals = fcntl(file, F_GET_SEALS);
		if (seals >= 0 && (seals & wanted) == wanted && fstat(file, &status) == 0 &&
		    status.st_uid == geteuid() && status.st_size == (off_t)sizeof(struct ring)) {
			struct ring *mapped = map(file, sizeof(struct ring), MAP_SHARED);
			process = map(-1, sizeof(*process), MAP_PRIVATE | MAP_ANONYMOUS);
			if (mapped && mapped->magic == MAGIC && process &&
			    madvise(process, sizeof(*process), MADV_WIPEONFORK) == 0)
				ring = mapped;
		}
		/* The program may soon allow itself no such system calls (seccomp). */
		if (ring)
			(void)own_ids();
		close(file);
	}
	errno = saved;
}

/* Writes a record, or counts it as lost. */
static void write_record(const struct content *content)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
		struct slot *slot = &ring->slots[at % SLOTS];
		uint64_t empty = at / SLOTS * 2;
		/* Acquire: pairs with the reader's release of the slot. */
		uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
		/* The reader has not read the slot's last record: the ring is full. */
		if (state < empty)
			break;
		/* Another thread has taken this slot. */
		if (state > empty && state != RETIRED)
			continue;
		if (!atomic_compare_exchange_strong_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
							     memory_order_relaxed) ||
		    state == RETIRED)
			continue;
		slot->at_ns = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
		slot->ids = own_ids();
		slot->content = *content;
		/*
		 * Release: the record comes before its state. Fails if this thread was stopped for so long that the
		 * reader has given up the slot and counted the record as lost.
		 */
		atomic_compare_exchange_strong_explicit(&slot->state, &empty, empty + 1, memory_order_release,
							memory_order_relaxed);
		return;
	}
	atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
}

void record(enum call call, enum phase phase, const void *object, struct item item, int result)
{
	if (!ring)
		return;
	uint64_t kind = (uint64_t)call | (uint64_t)phase << 8 | (uint64_t)(uint32_t)result << 32;
	struct content content = {kind, (uintptr_t)object, {(uintptr_t)item.data, (uint64_t)item.pts, 0}};
	write_record(&content);
}

void record_facts(enum call kind, const void *address, const void *facts, size_t bytes)
{
	for (uint64_t part = 0; ring && part < bytes / PART_BYTES; part++) {
		struct content content = {(uint64_t)kind | part << 8, (uintptr_t)address, {0}};
		memcpy(content.words, (const char *)facts + part * PART_BYTES, PART_BYTES);
		write_record(&content);
	}
}

const void *pointer_at(const void *object, int offset)
{
	const void *pointer = NULL;
	if (object)
		memcpy(&pointer, (const char *)object + offset, sizeof(pointer));
	return pointer;
}

void copy_name(char to[2 * PART_BYTES], const char *name)
{
	for (int n = 0; name && name[n] && n < 2 * PART_BYTES - 1; n++)
		to[n] = name[n];
}

int is_recorded(void)
{
	return ring != NULL;
}
