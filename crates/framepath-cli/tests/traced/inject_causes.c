// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * inject_causes: costs of one kind in some frames. How the length of each is known is in the table below; where a second
 * observer ends the wait, its stamp just before is the end, because the wake-up that follows is no part of the cost.
 *
 * The helper process sends to the slow connections, stops or freezes the program, and removes the control groups when the
 * program has ended, however it ended: it reads the program's requests from a pipe until the pipe's end.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject_causes.h"

enum { MOST = 256, BLOCK = 128 << 10, PAGE = 4096, SLICE_MS = 20, QUOTA_US = 1000 };

/* Reads of BLOCK bytes at this rate take about 100 ms: the kernel allows what a tenth of a second brings at once. */
#define BYTES_PER_SECOND "1048576"
#define SECOND 1000000000LL
/* A wait that nothing ends fails after this time. */
#define PATIENCE (10 * SECOND)

struct kind {
    const char *name;
    /* Prepares the kind before threads exist; NULL without a preparation. */
    void (*prepare)(void);
    /* Joins control groups; NULL without. */
    void (*join)(void);
    /* Costs time on the caller's thread, since the stamps `begin_ns` and `cpu_ns`. Returns the injected length. */
    int64_t (*cost)(int64_t begin_ns, int64_t cpu_ns);
    /* What the helper process does for an injection; NULL without. */
    void (*serve)(void);
    /* How the injected length is known. */
    const char *truth;
};

struct injection {
    int64_t frame, begin_ns, end_ns, cpu_ns, injected_ns;
};

/* Memory that the program and the helper process share. */
struct shared {
    atomic_int served;
    atomic_llong begin_ns, end_ns;
};

static const struct kind *kind;
static const char *kind_text, *place, *report_path, *folder;
static int frames = 80, every = 10;
static int64_t cost_ns = 30000000;
static char detail[PATH_MAX + 64] = "-";
static struct injection injections[MOST];
static atomic_int injection_count, is_injecting;

static pid_t program, helper;
static struct shared *shared;
static int requests[2], asked;
static int reader = -1, writer = -1, epoll_fd = -1, timer_fd = -1;

/* File that the helper removes; empty without one. */
static char made_file[sizeof(detail)];

static int group_version;
static char group_root[PATH_MAX / 4], group[PATH_MAX / 2];

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t thread_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void die(const char *what, const char *why)
{
    fprintf(stderr, "causes: %s: %s\n", what, why);
    exit(1);
}

static int64_t check(int64_t result, const char *what)
{
    if (result < 0)
        die(what, strerror(errno));
    return result;
}

__attribute__((format(printf, 1, 2))) static _Noreturn void unavailable(const char *reason, ...)
{
    va_list words;

    va_start(words, reason);
    fprintf(stderr, "not available here: ");
    vfprintf(stderr, reason, words);
    fprintf(stderr, "\n");
    va_end(words);
    exit(UNAVAILABLE);
}

static void nap(int64_t ns)
{
    struct timespec time = { ns / SECOND, ns % SECOND };

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

/* Writes `text` to a file of a control group. Returns false if the kernel denies it. */
static int put(const char *path, const char *file, const char *text)
{
    char name[PATH_MAX];

    snprintf(name, sizeof(name), "%s/%s", path, file);
    const int fd = open(name, O_WRONLY | O_CLOEXEC);
    const int is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    return is_written;
}

static void must_put(const char *path, const char *file, const char *text)
{
    if (!put(path, file, text))
        unavailable("cannot write %s to %s/%s: %s", text, path, file, strerror(errno));
}

/* ---- Control groups ---- */

static int has_word(const char *text, const char *word, const char *separators)
{
    char copy[512], *at = copy;

    snprintf(copy, sizeof(copy), "%s", text);
    for (char *next; (next = strsep(&at, separators));)
        if (!strcmp(next, word))
            return 1;
    return 0;
}

/* Finds the hierarchy of a controller: version 2 if it has the controller there, version 1 otherwise. */
static int find_group(const char *controller, int version)
{
    char type[64], path[PATH_MAX / 4], options[512], controllers[512] = "";
    FILE *mounts = fopen("/proc/self/mounts", "re");

    group_version = 0;
    while (mounts && fscanf(mounts, "%*s %1023s %63s %511s %*d %*d", path, type, options) == 3) {
        if (!strcmp(type, "cgroup2") && version != 1) {
            char name[PATH_MAX];

            snprintf(name, sizeof(name), "%s/cgroup.controllers", path);
            FILE *file = fopen(name, "re");

            if (file && !fgets(controllers, sizeof(controllers), file))
                controllers[0] = '\0';
            if (file)
                fclose(file);
            /* Each group of version 2 has a freezer. */
            if (has_word(controllers, controller, " \n") || !strcmp(controller, "freezer")) {
                group_version = 2;
                strcpy(group_root, path);
                break;
            }
        }
        if (!strcmp(type, "cgroup") && version != 2 && has_word(options, controller, ",")) {
            group_version = 1;
            strcpy(group_root, path);
        }
    }
    if (mounts)
        fclose(mounts);
    snprintf(group, sizeof(group), "%s/framepath-causes-%d", group_root, program);
    return group_version;
}

/* Makes a group for the program. Version 2 must have the controller switched on at the root. */
static void make_group(const char *controller)
{
    char text[64];

    if (group_version == 2 && controller) {
        snprintf(text, sizeof(text), "+%s", controller);
        must_put(group_root, "cgroup.subtree_control", text);
    }
    if (mkdir(group, 0755))
        unavailable("cannot make the control group %s: %s", group, strerror(errno));
}

/* Removes the program's groups when it has ended. */
static void remove_group(void)
{
    for (int round = 0; round < 500 && group_version; round++) {
        DIR *entries = opendir(group);

        if (!entries)
            return;
        for (struct dirent *entry; (entry = readdir(entries));) {
            char path[PATH_MAX];

            if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", group, entry->d_name);
            rmdir(path);
        }
        closedir(entries);
        if (!rmdir(group))
            return;
        nap(10000000);
    }
}

static void join_group(void)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", program);
    must_put(group, "cgroup.procs", text);
}

/* ---- Helper process ---- */

static void ask(void)
{
    asked++;
    if (write(requests[1], "", 1) != 1)
        die("request to the helper process", strerror(errno));
}

static void await_served(void)
{
    const int64_t since_ns = now_ns();

    while (atomic_load(&shared->served) < asked)
        if (now_ns() - since_ns > PATIENCE)
            die(kind_text, "the helper process has not answered in 10 s");
}

static void help(void)
{
    struct sched_param priority = { .sched_priority = 2 };
    char byte;

    /* The helper ends when the program has ended. */
    for (const int *signal = (int[]){ SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, 0 }; *signal; signal++)
        sigaction(*signal, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    sched_setscheduler(0, SCHED_FIFO, &priority);
    close(requests[1]);
    while (read(requests[0], &byte, 1) == 1) {
        atomic_store(&shared->begin_ns, now_ns());
        kind->serve();
        atomic_fetch_add(&shared->served, 1);
    }
    remove_group();
    unlink(made_file);
    _exit(0);
}

/* Ends the helper process and waits until it has removed the groups. Other ends of the program leave that to the helper. */
static void end_helper(void)
{
    char text[32];

    /* A group with a process cannot be removed. */
    snprintf(text, sizeof(text), "%d", program);
    if (group_version)
        put(group_root, "cgroup.procs", text);
    close(requests[1]);
    waitpid(helper, NULL, 0);
}

static void start_helper(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe2(requests, O_CLOEXEC))
        die("helper process", strerror(errno));
    helper = check(fork(), "fork");
    if (!helper)
        help();
    close(requests[0]);
    atexit(end_helper);
}

static void send_late(void)
{
    nap(cost_ns);
    atomic_store(&shared->end_ns, now_ns());
    if (write(writer, "", 1) != 1)
        _exit(1);
}

/* Length of a wait that the helper has ended. */
static int64_t until_sent(int64_t begin_ns)
{
    return atomic_load(&shared->end_ns) - begin_ns;
}

/* ---- Slow peers ---- */

static void make_pipe(void)
{
    int ends[2];

    check(pipe2(ends, O_CLOEXEC), "pipe");
    reader = ends[0], writer = ends[1];
}

static void make_sockets(int type)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in own = address;
    socklen_t length = sizeof(address);
    const int peer = check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket");

    reader = check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket");
    check(bind(peer, (struct sockaddr *)&address, length), "bind");
    check(getsockname(peer, (struct sockaddr *)&address, &length), "address");
    if (type == SOCK_STREAM)
        check(listen(peer, 1), "listen");
    else
        check(bind(reader, (struct sockaddr *)&own, length), "bind");
    check(connect(reader, (struct sockaddr *)&address, length), "connect");
    writer = peer;
    if (type == SOCK_STREAM) {
        writer = check(accept4(peer, NULL, NULL, SOCK_CLOEXEC), "accept");
        close(peer);
    } else {
        check(getsockname(reader, (struct sockaddr *)&own, &length), "address");
        check(connect(peer, (struct sockaddr *)&own, length), "connect");
    }
    snprintf(detail, sizeof(detail), "%s 127.0.0.1:%d", type == SOCK_STREAM ? "tcp" : "udp", ntohs(address.sin_port));
}

static void make_tcp(void)
{
    make_sockets(SOCK_STREAM);
}

static void make_udp(void)
{
    make_sockets(SOCK_DGRAM);
}

static void take(void)
{
    char byte;

    if (read(reader, &byte, 1) != 1)
        die("read", strerror(errno));
}

static int64_t receive(int64_t begin_ns, int64_t cpu_ns)
{
    char byte;

    (void)cpu_ns;
    ask();
    if (recv(reader, &byte, 1, 0) != 1)
        die("recv", strerror(errno));
    return until_sent(begin_ns);
}

/* As FFmpeg waits for its sockets, with slices of 20 instead of 100 ms. */
static int64_t receive_slices(int64_t begin_ns, int64_t cpu_ns)
{
    struct pollfd wanted = { .fd = reader, .events = POLLIN };
    char byte;

    (void)cpu_ns;
    ask();
    while (!check(poll(&wanted, 1, SLICE_MS), "poll"))
        ;
    if (recv(reader, &byte, 1, 0) != 1)
        die("recv", strerror(errno));
    return until_sent(begin_ns);
}

static int64_t read_pipe(int64_t begin_ns, int64_t cpu_ns)
{
    (void)cpu_ns;
    ask();
    take();
    return until_sent(begin_ns);
}

static int64_t poll_pipe(int64_t begin_ns, int64_t cpu_ns)
{
    struct pollfd wanted = { .fd = reader, .events = POLLIN };

    (void)cpu_ns;
    ask();
    check(poll(&wanted, 1, -1), "poll");
    take();
    return until_sent(begin_ns);
}

static void make_epoll(int fd)
{
    struct epoll_event event = { .events = EPOLLIN };

    epoll_fd = check(epoll_create1(EPOLL_CLOEXEC), "epoll");
    if (fd >= 0)
        check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static void make_epoll_of_tcp(void)
{
    make_tcp();
    make_epoll(reader);
}

static int64_t wait_epoll(int64_t begin_ns, int64_t cpu_ns)
{
    struct epoll_event event;

    (void)cpu_ns;
    ask();
    check(epoll_wait(epoll_fd, &event, 1, -1), "epoll_wait");
    take();
    return until_sent(begin_ns);
}

/* ---- Timers ---- */

static void make_epoll_of_nothing(void)
{
    make_epoll(-1);
}

static void set_timer(int64_t ns)
{
    struct itimerspec time = { .it_value = { ns / SECOND, ns % SECOND } };

    check(timerfd_settime(timer_fd, 0, &time, NULL), "timerfd_settime");
}

static void make_epoll_of_timer(void)
{
    timer_fd = check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd");
    set_timer(3600 * SECOND);
    make_epoll(timer_fd);
}

static int wait_epoll_until(const struct timespec *limit)
{
    struct epoll_event event;

    /* Of glibc 2.35 */
    const int ready = syscall(SYS_epoll_pwait2, epoll_fd, &event, 1, limit, NULL, 0);

    if (ready < 0 && errno == ENOSYS)
        unavailable("this kernel has no epoll_pwait2");
    return check(ready, "epoll_pwait2");
}

static int64_t wait_epoll_limit(int64_t begin_ns, int64_t cpu_ns)
{
    const struct timespec limit = { cost_ns / SECOND, cost_ns % SECOND };

    (void)begin_ns, (void)cpu_ns;
    if (wait_epoll_until(&limit))
        die("epoll_pwait2", "the limit has not run out");
    return cost_ns;
}

static int64_t wait_epoll_timer(int64_t begin_ns, int64_t cpu_ns)
{
    uint64_t count;

    (void)begin_ns, (void)cpu_ns;
    set_timer(cost_ns);
    if (wait_epoll_until(NULL) != 1 || read(timer_fd, &count, sizeof(count)) != sizeof(count))
        die("timerfd", strerror(errno));
    return cost_ns;
}

static int64_t sleep_once(int64_t begin_ns, int64_t cpu_ns)
{
    (void)begin_ns, (void)cpu_ns;
    nap(cost_ns);
    return cost_ns;
}

/* As `ffmpeg -re` waits for a frame's time, by sleeps of 10 ms. */
static int64_t sleep_slices(int64_t begin_ns, int64_t cpu_ns)
{
    (void)cpu_ns;
    for (int64_t left; (left = begin_ns + cost_ns - now_ns()) > 0;)
        usleep(left < 10000000 ? left / 1000 + 1 : 10000);
    return cost_ns;
}

/* ---- Locks and threads ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, contended = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int wanted_count;
static atomic_int locked_count, taken_count, done_count;
static atomic_llong released_ns;
static pthread_t other;

static void await_wanted(int count)
{
    pthread_mutex_lock(&lock);
    while (wanted_count < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Has the lock, but for the time in which the waiting thread takes it. */
static void *hold(void *unused)
{
    for (int count = 1;; count++) {
        pthread_mutex_lock(&contended);
        atomic_store(&locked_count, count);
        await_wanted(count);
        nap(cost_ns);
        atomic_store(&released_ns, now_ns());
        pthread_mutex_unlock(&contended);
        while (atomic_load(&taken_count) < count)
            nap(100000);
    }
    return unused;
}

static void *take_cpu(void *unused)
{
    for (int count = 1;; count++) {
        await_wanted(count);
        const int64_t begin_ns = now_ns();

        while (now_ns() - begin_ns < cost_ns)
            ;
        atomic_store(&done_count, count);
    }
    return unused;
}

static void make_thread(const char *name, void *(*run)(void *))
{
    errno = pthread_create(&other, NULL, run, NULL);
    if (errno)
        die("thread", strerror(errno));
    pthread_setname_np(other, name);
}

static void want(void)
{
    pthread_mutex_lock(&lock);
    wanted_count++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void make_holder(void)
{
    make_thread("holder", hold);
    strcpy(detail, "holder");
}

static int64_t wait_lock(int64_t begin_ns, int64_t cpu_ns)
{
    (void)begin_ns, (void)cpu_ns;
    while (atomic_load(&locked_count) == wanted_count)
        ;
    want();
    const int64_t since_ns = now_ns();

    pthread_mutex_lock(&contended);
    pthread_mutex_unlock(&contended);
    atomic_store(&taken_count, wanted_count);
    return atomic_load(&released_ns) - since_ns;
}

static void make_hog(void)
{
    struct sched_param priority = { .sched_priority = 1 };

    make_thread("hog", take_cpu);
    strcpy(detail, "hog");
    errno = pthread_setschedparam(other, SCHED_FIFO, &priority);
    if (errno)
        unavailable("SCHED_FIFO: %s", strerror(errno));
}

static int64_t lose_cpu(int64_t begin_ns, int64_t cpu_ns)
{
    cpu_set_t all, one;
    const pthread_t self = pthread_self();

    pthread_getaffinity_np(self, sizeof(all), &all);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    pthread_setaffinity_np(self, sizeof(one), &one);
    pthread_setaffinity_np(other, sizeof(one), &one);
    want();
    while (atomic_load(&done_count) < wanted_count)
        ;
    pthread_setaffinity_np(self, sizeof(all), &all);
    return now_ns() - begin_ns - (thread_ns() - cpu_ns);
}

/* ---- Quota, stops ---- */

static void make_quota(void)
{
    if (!find_group("cpu", 0))
        unavailable("no control group has the controller cpu");
}

/* Sets the calling thread's quota, or removes it. */
static void set_quota(const char *path, int is_set)
{
    char text[64];

    if (group_version == 1)
        snprintf(text, sizeof(text), "%d", is_set ? QUOTA_US : -1);
    else if (is_set)
        snprintf(text, sizeof(text), "%d %lld", QUOTA_US, (long long)cost_ns / 1000 + QUOTA_US);
    else
        strcpy(text, "max");
    must_put(path, group_version == 2 ? "cpu.max" : "cpu.cfs_quota_us", text);
}

static void make_quota_group(const char *path)
{
    char text[32];

    if (mkdir(path, 0755))
        unavailable("cannot make the control group %s: %s", path, strerror(errno));
    if (group_version == 2) {
        must_put(path, "cgroup.type", "threaded");
        must_put(group, "cgroup.subtree_control", "+cpu");
        must_put(path, "cpu.weight", "10000");
    } else {
        must_put(path, "cpu.shares", "262144");
        snprintf(text, sizeof(text), "%lld", (long long)cost_ns / 1000 + QUOTA_US);
        must_put(path, "cpu.cfs_period_us", text);
    }
}

/*
 * Each thread has a group of its own, so that the group's throttled time is the thread's. The groups have a quota only during
 * an injection. The group `first` keeps a quota, because the machine's first quota costs more time.
 */
static void join_quota(void)
{
    char path[PATH_MAX];
    DIR *threads;

    make_group("cpu");
    if (group_version == 2)
        join_group();
    /* Groups compete with the other programs of the machine as single threads do. */
    must_put(group, group_version == 2 ? "cpu.weight" : "cpu.shares", group_version == 2 ? "10000" : "262144");
    snprintf(path, sizeof(path), "%s/first", group);
    make_quota_group(path);
    set_quota(path, 1);
    threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", group, entry->d_name);
        make_quota_group(path);
        must_put(path, group_version == 2 ? "cgroup.threads" : "tasks", entry->d_name);
    }
    if (threads)
        closedir(threads);
}

static int64_t throttled_ns(const char *path)
{
    char name[PATH_MAX], word[64];
    long long value, found = -1;

    snprintf(name, sizeof(name), "%s/cpu.stat", path);
    FILE *file = fopen(name, "re");

    while (file && fscanf(file, "%63s %lld", word, &value) == 2) {
        if (!strcmp(word, "throttled_time"))
            found = value;
        if (!strcmp(word, "throttled_usec"))
            found = value * 1000;
    }
    if (file)
        fclose(file);
    return check(found, name);
}

static int64_t use_quota(int64_t begin_ns, int64_t cpu_ns)
{
    char path[PATH_MAX];

    (void)begin_ns;
    snprintf(path, sizeof(path), "%s/%ld", group, (long)syscall(SYS_gettid));
    const int64_t before_ns = throttled_ns(path);

    set_quota(path, 1);
    while (thread_ns() - cpu_ns < QUOTA_US * 1500LL)
        ;
    set_quota(path, 0);
    return throttled_ns(path) - before_ns;
}

static void stop(void)
{
    kill(program, SIGSTOP);
    nap(cost_ns);
    atomic_store(&shared->end_ns, now_ns());
    kill(program, SIGCONT);
}

static void make_freezer(void)
{
    if (!find_group("freezer", 1) && !find_group("freezer", 2))
        unavailable("no control group has a freezer");
}

static void make_freezer_v2(void)
{
    if (!find_group("freezer", 2))
        unavailable("no cgroup v2 is mounted");
}

static void join_freezer(void)
{
    make_group(NULL);
    join_group();
}

static void freeze(void)
{
    const char *file = group_version == 2 ? "cgroup.freeze" : "freezer.state";

    put(group, file, group_version == 2 ? "1" : "FROZEN");
    nap(cost_ns);
    atomic_store(&shared->end_ns, now_ns());
    put(group, file, group_version == 2 ? "0" : "THAWED");
}

/* Time until the helper stops or freezes a program whose thread waits for the pipe, nanoseconds. */
enum { BEFORE_STOP = 300000 };

static void stop_waiting(void)
{
    nap(BEFORE_STOP);
    atomic_store(&shared->begin_ns, now_ns());
    stop();
    if (write(writer, "", 1) != 1)
        _exit(1);
}

static void freeze_waiting(void)
{
    nap(BEFORE_STOP);
    atomic_store(&shared->begin_ns, now_ns());
    freeze();
    if (write(writer, "", 1) != 1)
        _exit(1);
}

static void make_pipe_and_freezer(void)
{
    make_pipe();
    make_freezer();
}

static int64_t be_stopped_waiting(int64_t begin_ns, int64_t cpu_ns)
{
    (void)begin_ns, (void)cpu_ns;
    ask();
    take();
    return until_sent(atomic_load(&shared->begin_ns));
}

static int64_t be_stopped(int64_t begin_ns, int64_t cpu_ns)
{
    (void)begin_ns, (void)cpu_ns;
    ask();
    await_served();
    return until_sent(atomic_load(&shared->begin_ns));
}

/* ---- Disk and memory ---- */

static int disk_fd = -1;
static char disk_rule[64];
static const volatile unsigned char *disk_bytes;

static void make_disk(void)
{
    char name[PATH_MAX];
    struct stat status;
    static unsigned char block[BLOCK];

    if (!find_group("io", 2) && !find_group("blkio", 1))
        unavailable("no control group has the controller io or blkio");
    snprintf(detail, sizeof(detail), "%s/causes-%d", folder, program);
    strcpy(made_file, detail);
    const int fd = check(open(detail, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), detail);

    for (int count = 0; count < frames / every + 2; count++) {
        memset(block, count + 1, sizeof(block));
        if (write(fd, block, sizeof(block)) != sizeof(block))
            die(detail, strerror(errno));
    }
    check(fsync(fd), detail);
    check(fstat(fd, &status), detail);
    errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    /* The limits are those of whole disks. */
    unsigned major = major(status.st_dev), minor = minor(status.st_dev);

    if (!major) {
        unlink(made_file);
        unavailable("%s is not on a disk; give another folder=", detail);
    }
    snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/partition", major, minor);
    if (!access(name, F_OK)) {
        snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/../dev", major, minor);
        FILE *file = fopen(name, "re");

        if (!file || fscanf(file, "%u:%u", &major, &minor) != 2)
            die(name, "cannot read");
        fclose(file);
    }
    snprintf(disk_rule, sizeof(disk_rule), group_version == 2 ? "%u:%u rbps=%s" : "%u:%u %s", major, minor,
             BYTES_PER_SECOND);
}

static void join_disk(void)
{
    make_group("io");
    must_put(group, group_version == 2 ? "io.max" : "blkio.throttle.read_bps_device", disk_rule);
    if (!strcmp(kind_text, "disk")) {
        disk_fd = open(detail, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (disk_fd < 0)
            unavailable("O_DIRECT of %s: %s", detail, strerror(errno));
    } else {
        disk_fd = check(open(detail, O_RDONLY | O_CLOEXEC), detail);
        const size_t bytes = (size_t)BLOCK * (frames / every + 2);

        disk_bytes = mmap(NULL, bytes, PROT_READ, MAP_SHARED, disk_fd, 0);
        if (disk_bytes == MAP_FAILED)
            die(detail, strerror(errno));
        madvise((void *)disk_bytes, bytes, MADV_RANDOM);
    }
    join_group();
}

static int64_t not_on_cpu(int64_t begin_ns, int64_t cpu_ns)
{
    return now_ns() - begin_ns - (thread_ns() - cpu_ns);
}

static int64_t read_disk(int64_t begin_ns, int64_t cpu_ns)
{
    static unsigned char block[BLOCK] __attribute__((aligned(PAGE)));

    if (pread(disk_fd, block, BLOCK, (off_t)BLOCK * injection_count) != BLOCK)
        die(detail, strerror(errno));
    return not_on_cpu(begin_ns, cpu_ns);
}

static int64_t fault_disk(int64_t begin_ns, int64_t cpu_ns)
{
    struct rusage before, after;

    getrusage(RUSAGE_THREAD, &before);
    for (int at = 0; at < BLOCK; at += PAGE)
        (void)disk_bytes[(size_t)BLOCK * injection_count + at];
    getrusage(RUSAGE_THREAD, &after);
    if (after.ru_majflt - before.ru_majflt < BLOCK / PAGE / 2)
        die(detail, "the file's pages were in memory");
    return not_on_cpu(begin_ns, cpu_ns);
}

enum { FRESH = 4 << 20 };

static unsigned char *map_fresh(void)
{
    unsigned char *fresh = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (fresh == MAP_FAILED)
        die("mmap", strerror(errno));
    madvise(fresh, FRESH, MADV_NOHUGEPAGE);
    return fresh;
}

static int64_t fault_memory(int64_t begin_ns, int64_t cpu_ns)
{
    struct rusage before, after;
    int pages = 0;

    (void)begin_ns;
    getrusage(RUSAGE_THREAD, &before);
    /* The kernel gives the same few pages again and again, so that the host of a virtual machine has them. */
    while (thread_ns() - cpu_ns < cost_ns) {
        unsigned char *fresh = map_fresh();

        for (size_t at = 0; at < FRESH; at += PAGE, pages++)
            fresh[at] = 1;
        munmap(fresh, FRESH);
    }
    getrusage(RUSAGE_THREAD, &after);
    snprintf(detail, sizeof(detail), "%ld minor faults of %d pages", after.ru_minflt - before.ru_minflt, pages);
    return thread_ns() - cpu_ns;
}

static void make_memory(void)
{
    if (!find_group("memory", 2))
        unavailable("memory.high is a file of cgroup v2, and no cgroup v2 here has the controller memory");
}

static void join_memory(void)
{
    make_group("memory");
    join_group();
}

/* Touches fresh memory above the limit, until the kernel has kept the thread from its CPU for the wanted time. */
static int64_t exceed_memory(int64_t begin_ns, int64_t cpu_ns)
{
    unsigned char *fresh[32];
    int count = 0;

    must_put(group, "memory.high", "1048576");
    while (count < 32 && not_on_cpu(begin_ns, cpu_ns) < cost_ns) {
        fresh[count] = map_fresh();
        for (size_t at = 0; at < FRESH && not_on_cpu(begin_ns, cpu_ns) < cost_ns; at += PAGE)
            fresh[count][at] = 1;
        count++;
    }
    must_put(group, "memory.high", "max");
    while (count--)
        munmap(fresh[count], FRESH);
    return not_on_cpu(begin_ns, cpu_ns);
}

/* ---- io_uring ---- */

static int ring_fd = -1;
static struct io_uring_params ring;
static unsigned char *ring_bytes;
static struct io_uring_sqe *ring_entries;

static void make_ring(void)
{
    make_pipe();
    ring_fd = syscall(SYS_io_uring_setup, 4, &ring);
    if (ring_fd < 0)
        unavailable("io_uring_setup: %s", strerror(errno));
    if (!(ring.features & IORING_FEAT_SINGLE_MMAP))
        unavailable("this kernel's io_uring has no IORING_FEAT_SINGLE_MMAP");
    fcntl(ring_fd, F_SETFD, FD_CLOEXEC);
    ring_bytes = mmap(NULL, ring.cq_off.cqes + ring.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, ring_fd, IORING_OFF_SQ_RING);
    ring_entries = mmap(NULL, ring.sq_entries * sizeof(*ring_entries), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        ring_fd, IORING_OFF_SQES);
    if (ring_bytes == MAP_FAILED || ring_entries == MAP_FAILED)
        die("io_uring", strerror(errno));
}

static _Atomic unsigned *ring_word(unsigned offset)
{
    return (_Atomic unsigned *)(ring_bytes + offset);
}

static int64_t read_ring(int64_t begin_ns, int64_t cpu_ns)
{
    static char byte;
    const unsigned tail = atomic_load(ring_word(ring.sq_off.tail));
    const unsigned slot = tail & *ring_word(ring.sq_off.ring_mask);

    (void)cpu_ns;
    ring_entries[slot] = (struct io_uring_sqe){
        .opcode = IORING_OP_READ, .fd = reader, .addr = (uintptr_t)&byte, .len = 1, .off = -1,
    };
    *ring_word(ring.sq_off.array + slot * sizeof(unsigned)) = slot;
    atomic_store(ring_word(ring.sq_off.tail), tail + 1);
    ask();
    check(syscall(SYS_io_uring_enter, ring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
    const unsigned head = atomic_load(ring_word(ring.cq_off.head));
    const struct io_uring_cqe *done = (void *)(ring_bytes + ring.cq_off.cqes);

    done += head & *ring_word(ring.cq_off.ring_mask);
    if (head == atomic_load(ring_word(ring.cq_off.tail)) || done->res != 1)
        die("io_uring", "the read has failed");
    atomic_store(ring_word(ring.cq_off.head), head + 1);
    return until_sent(begin_ns);
}

/* ---- Kinds ---- */

#define SENT "from before the call to the stamp of the peer, just before it sends"
#define WALL_LESS_CPU "wall time less the thread's CPU clock"
#define NOMINAL "the limit of the call"

static const struct kind kinds[] = {
    { "quota", make_quota, join_quota, use_quota, NULL, "difference of the thread's group's throttled time in cpu.stat" },
    { "stop", NULL, NULL, be_stopped, stop, "stamps of the helper process, before SIGSTOP and SIGCONT" },
    { "freezer", make_freezer, join_freezer, be_stopped, freeze, "stamps of the helper process, before both writes" },
    { "freezer-v2", make_freezer_v2, join_freezer, be_stopped, freeze, "as freezer; cgroup.freeze of cgroup v2" },
    { "stop-waiting", make_pipe, NULL, be_stopped_waiting, stop_waiting, "as stop; while the thread waits for a pipe" },
    { "freezer-waiting", make_pipe_and_freezer, join_freezer, be_stopped_waiting, freeze_waiting,
      "as freezer; while the thread waits for a pipe" },
    { "tcp", make_tcp, NULL, receive, send_late, SENT },
    { "udp", make_udp, NULL, receive, send_late, SENT },
    { "tcp-slices", make_tcp, NULL, receive_slices, send_late, SENT },
    { "pipe", make_pipe, NULL, read_pipe, send_late, SENT },
    { "poll", make_pipe, NULL, poll_pipe, send_late, SENT },
    { "epoll", make_epoll_of_tcp, NULL, wait_epoll, send_late, SENT },
    { "io_uring", make_ring, NULL, read_ring, send_late, SENT },
    { "disk", make_disk, join_disk, read_disk, NULL, WALL_LESS_CPU },
    { "major-faults", make_disk, join_disk, fault_disk, NULL, WALL_LESS_CPU },
    { "minor-faults", NULL, NULL, fault_memory, NULL, "the thread's CPU clock" },
    { "memory-high", make_memory, join_memory, exceed_memory, NULL, WALL_LESS_CPU },
    { "lock", make_holder, NULL, wait_lock, NULL, "from before the lock to the stamp of the holder, before it unlocks" },
    { "hog", make_hog, NULL, lose_cpu, NULL, WALL_LESS_CPU },
    { "sleep", NULL, NULL, sleep_once, NULL, NOMINAL },
    { "re", NULL, NULL, sleep_slices, NULL, "from before the sleeps to the frame's time" },
    { "epoll-empty", make_epoll_of_nothing, NULL, wait_epoll_limit, NULL, NOMINAL },
    { "epoll-timerfd", make_epoll_of_timer, NULL, wait_epoll_limit, NULL, NOMINAL },
    { "timerfd", make_epoll_of_timer, NULL, wait_epoll_timer, NULL, "the time of the timer" },
};

/* ---- Interface ---- */

static void set(const char *option)
{
    const char *value = strchr(option, '=');

    if (!value++)
        die(option, "expected OPTION=VALUE");
    const size_t length = value - option;

    if (!strncmp(option, "us=", length))
        cost_ns = atoi(value) * 1000LL;
    else if (!strncmp(option, "frames=", length))
        frames = atoi(value);
    else if (!strncmp(option, "every=", length))
        every = atoi(value);
    else if (!strncmp(option, "report=", length))
        report_path = value;
    else if (!strncmp(option, "folder=", length))
        folder = value;
    else
        die(option, "no such option");
}

static const char *own_folder(void)
{
    static char path[PATH_MAX / 2];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    path[check(length, "/proc/self/exe")] = '\0';
    *strrchr(path, '/') = '\0';
    return path;
}

void causes_prepare(int count, char **words)
{
    const unsigned kind_count = sizeof(kinds) / sizeof(*kinds);

    if (count == 2 && !strcmp(words[1], "list")) {
        for (unsigned index = 0; index < kind_count; index++)
            printf("%-16s %s\n", kinds[index].name, kinds[index].truth);
        exit(0);
    }
    if (count < 3)
        die("usage", "causes KIND PLACE [OPTION=VALUE...]");
    program = getpid();
    kind_text = words[1], place = words[2];
    for (int index = 3; index < count; index++)
        set(words[index]);
    if (!folder)
        folder = own_folder();
    if (every < 2 || frames / every >= MOST || cost_ns < 1000000)
        die("usage", "expected every >= 2, frames / every < 256, us >= 1000");
    for (unsigned index = 0; index < kind_count; index++)
        if (!strcmp(kind_text, kinds[index].name))
            kind = &kinds[index];
    if (!kind)
        die(kind_text, "no such kind; see causes list");
    if (kind->prepare)
        kind->prepare();
    if (kind->serve || kind->join)
        start_helper();
}

const char *causes_place(void)
{
    return place;
}

int causes_frames(void)
{
    return frames;
}

void causes_join(void)
{
    if (kind->join)
        kind->join();
}

int causes_inject(int64_t frame)
{
    if (frame % every != every - 1 || atomic_exchange(&is_injecting, 1))
        return -1;
    const int index = injection_count;
    const int64_t cpu_ns = thread_ns(), begin_ns = now_ns();
    const int64_t injected_ns = kind->cost(begin_ns, cpu_ns);

    injections[index] = (struct injection){ frame, begin_ns, now_ns(), thread_ns() - cpu_ns, injected_ns };
    atomic_store(&injection_count, index + 1);
    atomic_store(&is_injecting, 0);
    return index;
}

void causes_name(int index, int64_t frame)
{
    injections[index].frame = frame;
}

void causes_report(void)
{
    FILE *file = report_path ? fopen(report_path, "we") : stdout;

    if (!file)
        die(report_path, strerror(errno));
    for (int index = 0; index < injection_count; index++) {
        const struct injection *one = &injections[index];

        fprintf(file, "inject %s %s %lld %lld %lld %lld %lld %lld %s\n", kind_text, place, (long long)one->frame,
                (long long)one->begin_ns, (long long)one->end_ns, (long long)(one->end_ns - one->begin_ns),
                (long long)one->cpu_ns, (long long)one->injected_ns, detail);
    }
    if (fflush(file) || (report_path && fclose(file)))
        die("report", strerror(errno));
}
