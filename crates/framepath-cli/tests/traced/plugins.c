// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Program that loads many plug-ins: knows nothing of framepath. Waits for a line of input, loads all files `*.so` of a
 * folder one after the other, calls the function `plugin` of each, and prints their number, the time of all this in
 * nanoseconds, and how often its parent has seen it stop.
 * Usage: plugins FOLDER [watched]: with `watched`, a child loads, and its parent waits for stops, too.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int load(const char *folder, const char *name)
{
	char path[4096];
	void *handle;
	int (*plugin)(void);

	snprintf(path, sizeof path, "%s/%s", folder, name);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		fprintf(stderr, "%s\n", dlerror());
		return 0;
	}
	plugin = (int (*)(void))dlsym(handle, "plugin");
	return plugin ? plugin() : 0;
}

static int load_all(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	uint64_t begin;
	int loaded = 0;

	if (!folder || getchar() == EOF)
		return 1;
	begin = now();
	while ((entry = readdir(folder))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (dot && !strcmp(dot, ".so"))
			loaded += load(path, entry->d_name);
	}
	printf("%d %llu", loaded, (unsigned long long)(now() - begin));
	fflush(stdout);
	return 0;
}

int main(int count, char **arguments)
{
	int status = 0, stops = 0;
	pid_t child;

	if (count < 2)
		return 2;
	if (count == 2) {
		status = load_all(arguments[1]);
		puts(" 0");
		return status;
	}
	child = fork();
	if (child == 0)
		_exit(load_all(arguments[1]));
	while (waitpid(child, &status, WUNTRACED | WCONTINUED) == child && !WIFEXITED(status) && !WIFSIGNALED(status))
		stops++;
	printf(" %d\n", stops);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
