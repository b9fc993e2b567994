// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Program that is traced while its tracer is killed: knows nothing of framepath. Counts, starts children, and loads and
 * unloads libraries, without an end. Writes its process id, and the numbers of rounds, of ended children, of loaded
 * libraries, and of children that were seen stopped to a file as five numbers of 64 bits.
 * Usage: counter FILE LIBRARY...; the first two libraries stay loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct progress {
	volatile uint64_t pid, rounds, children, loads, stops;
};

static void *load(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);

	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	return handle;
}

static void child(struct progress *progress)
{
	char *arguments[] = { "/bin/true", NULL };
	int status;
	pid_t pid;

	if (posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ))
		return;
	while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status))
		progress->stops++;
	progress->children++;
}

int main(int count, char **arguments)
{
	struct timespec pause = { 0, 500000 };
	struct progress *progress;
	int file;

	if (count < 4)
		return 2;
	file = open(arguments[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || ftruncate(file, sizeof *progress))
		return 1;
	progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (progress == MAP_FAILED || !load(arguments[2]) || !load(arguments[3]))
		return 1;
	progress->pid = getpid();
	for (;;) {
		void *handle = load(arguments[2 + progress->rounds % (count - 2)]);

		if (!handle)
			return 1;
		progress->loads++;
		if (progress->rounds % 4 == 0)
			child(progress);
		nanosleep(&pause, NULL);
		dlclose(handle);
		progress->rounds++;
	}
}
