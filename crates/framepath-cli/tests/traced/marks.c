/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Frames of two threads, which the program names itself: marks FRAMES
 *
 * The first thread spins for 2 ms and sleeps for 1 ms with each frame; the second one spins for 3 ms. Each third frame is
 * dropped, and each fifth one passes through a stage of its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "framepath_frame.h"

enum { ROOM = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], first, count;

static void spin(long us)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
}

static void *detect(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!count)
            pthread_cond_wait(&changed, &lock);
        int frame = queue[first];
        first = (first + 1) % ROOM;
        count--;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
        if (frame < 0)
            return NULL;
        framepath_frame(frame % 16, "detect");
        spin(3000);
        if (frame % 5 == 4)
            framepath_frame(frame % 16, "log");
        framepath_frame_end(frame % 16);
    }
}

static void push(int frame)
{
    pthread_mutex_lock(&lock);
    while (count == ROOM)
        pthread_cond_wait(&changed, &lock);
    queue[(first + count++) % ROOM] = frame;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    int frames = argc > 1 ? atoi(argv[1]) : 30;
    pthread_t detector;
    pthread_create(&detector, NULL, detect, NULL);
    for (int frame = 0; frame < frames; frame++) {
        framepath_frame(frame % 16, "capture left");
        spin(2000);
        usleep(1000);
        if (frame % 3 == 2)
            continue;
        framepath_frame(frame % 16, "queue");
        push(frame);
    }
    push(-1);
    pthread_join(detector, NULL);
    printf("%d frames\n", frames);
    return 0;
}
