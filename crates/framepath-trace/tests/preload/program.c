/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Program that is observed. The first argument is the test; the program prints nothing if all is right.
 *
 * `program` is linked with the substitute for libavcodec; `host`, compiled with -DHOST, is not, and loads plug-ins.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* A packet with pts at 8 and data at 24. */
static const uint64_t packet[4] = {0, 42, 0, 4242};

#ifndef HOST

int avcodec_send_packet(void *context, const void *packet);

static void call(uintptr_t context, int times)
{
	for (int n = 0; n < times; n++)
		CHECK(avcodec_send_packet((void *)context, packet) == VERSION);
}

static void *caller(void *argument)
{
	call((uintptr_t)argument, 20);
	return NULL;
}

/* Calls from 500 threads at once. */
static void threads(void)
{
	static pthread_t all[500];
	for (uintptr_t n = 0; n < 500; n++)
		CHECK(pthread_create(&all[n], NULL, caller, (void *)(n + 1)) == 0);
	for (int n = 0; n < 500; n++)
		pthread_join(all[n], NULL);
}

static void wait_for(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Calls before and after a fork, in both processes; the child goes on by execve. */
static void fork_and_exec(const char *program)
{
	call(1, 3);
	pid_t child = fork();
	if (child == 0) {
		call(2, 4);
		execl(program, program, "calls", NULL);
		_exit(1);
	}
	call(3, 5);
	wait_for(child);
}

/* Becomes a daemon that closes all descriptors, and starts a program. */
static void close_all(const char *program)
{
	closefrom(3);
	call(1, 3);
	pid_t child = fork();
	if (child == 0) {
		closefrom(0);
		setsid();
		CHECK(chdir("/") == 0);
		execl(program, program, "calls", NULL);
		_exit(1);
	}
	wait_for(child);
}

/* Ends by a signal in the midst of calls of many threads. */
static void *endless_caller(void *argument)
{
	for (;;)
		call((uintptr_t)argument, 1);
	return NULL;
}

static void killed(void)
{
	pthread_t thread;
	struct timespec pause = {0, 30000000};
	for (uintptr_t n = 0; n < 8; n++)
		CHECK(pthread_create(&thread, NULL, endless_caller, (void *)(n + 1)) == 0);
	nanosleep(&pause, NULL);
	kill(getpid(), SIGKILL);
}

/* Prints its process id, and calls now and then for a minute, if nothing ends the program. */
static void slow(void)
{
	struct timespec pause = {0, 1000000};
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (int n = 0; n < 60000; n++) {
		call(1, 1);
		nanosleep(&pause, NULL);
	}
}

/* Overwrites the ring, if it finds it, and goes on with calls. */
static void scribble(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;
	call(1, 10);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long low, high;
		if (!strstr(line, "framepath-calls") || sscanf(line, "%lx-%lx", &low, &high) != 2)
			continue;
		found = 1;
		for (uint64_t *word = (uint64_t *)low; word < (uint64_t *)high; word++)
			*word = (uint64_t)random() >> (random() & 31);
	}
	fclose(maps);
	CHECK(found);
	call(1, 1000);
}

/* Prints the nanoseconds for a call: the median of 31 runs, with pauses in which the ring is emptied. */
static int by_value(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;
	return (difference > 0) - (difference < 0);
}

static void bench(void)
{
	enum { RUNS = 31, CALLS = 20000 };
	struct timespec begin, end, pause = {0, 60000000};
	double ns[RUNS];
	for (int run = 0; run < RUNS; run++) {
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		call(1, CALLS);
		clock_gettime(CLOCK_MONOTONIC, &end);
		ns[run] = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
	}
	qsort(ns, RUNS, sizeof(ns[0]), by_value);
	printf("%.1f ns (%.1f to %.1f)\n", ns[RUNS / 2], ns[0], ns[RUNS - 1]);
}

int main(int count, char **arguments)
{
	const char *test = count > 1 ? arguments[1] : "";
	if (strcmp(test, "calls") == 0)
		call(7, 6);
	else if (strcmp(test, "threads") == 0)
		threads();
	else if (strcmp(test, "fork") == 0)
		fork_and_exec(arguments[0]);
	else if (strcmp(test, "close") == 0)
		close_all(arguments[0]);
	else if (strcmp(test, "killed") == 0)
		killed();
	else if (strcmp(test, "slow") == 0)
		slow();
	else if (strcmp(test, "scribble") == 0)
		scribble();
	else if (strcmp(test, "bench") == 0)
		bench();
	else
		return 2;
	return 0;
}

#else

typedef int call_function(void *, const void *);

/* Loads a plug-in that no other object sees, calls its functions, and unloads it. */
static void use(const char *path, int version)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(plugin);
	call_function *in = (call_function *)dlsym(plugin, "plugin_call");
	call_function *tail = (call_function *)dlsym(plugin, "plugin_tail");
	CHECK(in && in((void *)(uintptr_t)version, packet) == version + 100);
	CHECK(tail && tail((void *)(uintptr_t)version, packet) > 0);
	CHECK(dlclose(plugin) == 0);
}

/* Uses the plug-ins of the arguments, which have the versions 1, 2 and so on, three times in turn. */
int main(int count, char **arguments)
{
	for (int round = 0; round < 3; round++)
		for (int n = 1; n < count; n++)
			use(arguments[n], n);
	return 0;
}

#endif
