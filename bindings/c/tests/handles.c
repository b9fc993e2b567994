/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Null pointers, errors, seeks, and runs with functions: handles FILE; prints what has failed. */
#include <framepath.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(bool holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        failures++;
    }
}

#define CHECK(condition) check((condition), #condition)

static bool count(framepath_frame *frame, void *user)
{
    int *counted = user;
    framepath_frame_free(frame);
    return ++*counted < 7;
}

static void nulls(void)
{
    framepath_error *error = NULL;
    framepath_frame *frame = NULL;
    framepath_plane plane;
    framepath_plane_mut written;
    CHECK(framepath_open(NULL, false, &error) == NULL && error);
    CHECK(strlen(framepath_error_text(error)) > 0);
    framepath_error_free(error);
    CHECK(framepath_open(NULL, false, NULL) == NULL);
    CHECK(framepath_start(NULL, NULL) == NULL);
    CHECK(framepath_run(NULL, NULL, NULL, NULL) == NULL);
    CHECK(framepath_next(NULL, &frame, NULL) == -1 && frame == NULL);
    CHECK(!framepath_seek(NULL, 0, NULL));
    CHECK(!framepath_frame_plane(NULL, 0, &plane));
    CHECK(!framepath_frame_plane_mut(NULL, 0, &written, NULL) && framepath_frame_share(NULL) == NULL);
    CHECK(framepath_path_new(NULL, NULL) == NULL && !framepath_path_append(NULL, "null", NULL));
    CHECK(!framepath_path_stage(NULL, NULL, NULL, NULL, NULL));
    CHECK(framepath_path_run(NULL, NULL, NULL, NULL) == NULL && framepath_path_start(NULL, NULL) == NULL);
    CHECK(framepath_frame_width(NULL) == 0 && framepath_frame_height(NULL) == 0);
    CHECK(framepath_frame_time(NULL) == -1 && !framepath_frame_is_damaged(NULL));
    CHECK(*framepath_frame_format(NULL) == 0 && *framepath_error_text(NULL) == 0);
    CHECK(framepath_report_frames(NULL) == 0 && framepath_report_lost(NULL) == 0);
    CHECK(*framepath_report_json(NULL) == 0);
    framepath_frame_free(NULL);
    framepath_error_free(NULL);
    framepath_path_free(NULL);
    framepath_report_free(NULL);
    framepath_close(NULL);
}

static void errors(void)
{
    framepath_error *error = NULL;
    CHECK(framepath_open("/no/such/file.mp4", true, &error) == NULL);
    CHECK(error && strstr(framepath_error_text(error), "/no/such/file.mp4"));
    framepath_error_free(error);
    error = NULL;
    CHECK(framepath_start("tset", &error) == NULL && error);
    framepath_error_free(error);
    error = NULL;
    CHECK(framepath_run("test frames=1", NULL, NULL, &error) == NULL && error);
    framepath_error_free(error);
    error = NULL;
    CHECK(framepath_open("bad \xff name", false, &error) == NULL && error);
    framepath_error_free(error);
}

static void frames(const char *file)
{
    framepath_frames *opened = framepath_open(file, false, NULL);
    framepath_frame *frame = NULL, *kept = NULL;
    framepath_plane plane, again;
    CHECK(framepath_next(opened, &kept, NULL) == 1);
    CHECK(framepath_frame_width(kept) == 320 && framepath_frame_height(kept) == 180);
    CHECK(strcmp(framepath_frame_format(kept), "yuv420p") == 0);
    CHECK(framepath_frame_plane(kept, 1, &plane) && plane.width == 160 && plane.rows == 90);
    CHECK(plane.stride >= plane.width && plane.data);
    CHECK(!framepath_frame_plane(kept, 3, &plane) && !framepath_frame_plane(kept, 0, NULL));
    CHECK(framepath_next(opened, NULL, NULL) == -1);
    CHECK(framepath_seek(opened, 0.5, NULL));
    CHECK(framepath_next(opened, &frame, NULL) == 1 && framepath_frame_time(frame) == 0.5);
    framepath_frame_free(frame);
    CHECK(framepath_duration(opened) == 1 && framepath_duration(NULL) == -1);
    CHECK(!framepath_seek(opened, -1, NULL));
    CHECK(framepath_seek(opened, 1e6, NULL));
    CHECK(framepath_next(opened, &frame, NULL) == 0 && frame == NULL);
    framepath_close(opened);
    CHECK(framepath_frame_plane(kept, 1, &again) && again.data == plane.data);
    framepath_frame_free(kept);
}

static void runs(void)
{
    int counted = 0;
    framepath_report *report = framepath_run("test frames=100 size=64x48", count, &counted, NULL);
    CHECK(report && counted == 7 && framepath_report_lost(report) == 0);
    framepath_report_free(report);
    report = framepath_run("test frames=10 size=64x48 ! queue ! null", NULL, NULL, NULL);
    CHECK(framepath_report_frames(report) == 10);
    CHECK(strstr(framepath_report_json(report), "\"frames\":10"));
    framepath_report_free(report);
    CHECK(strcmp(framepath_version(), "0.1.0") == 0);
}

/* User of the stages below. */
struct stage {
    int calls;
    framepath_frame *kept;
    double time;
};

/* Passes on one frame late, and drops the last. */
static framepath_frame *delay(framepath_frame *frame, void *user, framepath_error **error)
{
    struct stage *stage = user;
    framepath_frame *before = stage->kept;
    CHECK(error && !*error);
    stage->calls++;
    stage->time = framepath_frame_time(frame);
    stage->kept = frame;
    return before;
}

static framepath_frame *fail_at_third(framepath_frame *frame, void *user, framepath_error **error)
{
    struct stage *stage = user;
    if (++stage->calls == 3)
        *error = framepath_error_new("no face in the picture");
    return frame;
}

/* Fails by the library's error, and frees the frame. */
static framepath_frame *fail_by_plane(framepath_frame *frame, void *user, framepath_error **error)
{
    framepath_plane_mut plane;
    (void)user;
    CHECK(!framepath_frame_plane_mut(frame, 9, &plane, error));
    framepath_frame_free(frame);
    return NULL;
}

/* Writes while another handle reads: the other one keeps its pixels, and the second write copies nothing. */
static framepath_frame *write_beside_reader(framepath_frame *frame, void *user, framepath_error **error)
{
    struct stage *stage = user;
    framepath_frame *reader = framepath_frame_share(frame);
    framepath_plane before, after;
    framepath_plane_mut written, again;
    double time = framepath_frame_time(frame);
    CHECK(framepath_frame_plane(reader, 0, &before));
    CHECK(framepath_frame_plane_mut(frame, 0, &written, error) && written.data != before.data);
    CHECK(written.rows == before.rows && written.width == before.width && written.stride == written.width);
    CHECK(written.data[0] == before.data[0]);
    written.data[0] = (uint8_t)(before.data[0] + 1);
    CHECK(framepath_frame_plane_mut(frame, 0, &again, error) && again.data == written.data);
    CHECK(framepath_frame_plane(frame, 0, &after) && after.data == written.data);
    CHECK(after.data[0] == (uint8_t)(before.data[0] + 1));
    CHECK(framepath_frame_time(frame) == time && framepath_frame_time(reader) == time);
    framepath_frame_free(reader);
    stage->calls++;
    return frame;
}

static framepath_frame *write_only_handle(framepath_frame *frame, void *user, framepath_error **error)
{
    framepath_plane before;
    framepath_plane_mut written;
    (void)user;
    CHECK(framepath_frame_plane(frame, 0, &before));
    CHECK(framepath_frame_plane_mut(frame, 0, &written, error) && written.data == before.data);
    return frame;
}

/* Runs "test ! STAGE ! queue ! null", and returns the number of frames; -1, with the error, on failure. */
static long run_with(framepath_stage function, struct stage *stage, framepath_error **error, bool *copied)
{
    framepath_path *path = framepath_path_new("test frames=6 size=64x48", NULL);
    long frames = -1;
    CHECK(framepath_path_stage(path, "mine", function, stage, NULL));
    CHECK(framepath_path_append(path, "queue ! null", NULL));
    framepath_report *report = framepath_path_run(path, NULL, NULL, error);
    if (report) {
        frames = (long)framepath_report_frames(report);
        CHECK(strstr(framepath_report_json(report), "mine"));
        /* A copy of each frame: 64x48 pixels of nv12. */
        if (copied)
            *copied = strstr(framepath_report_json(report), "\"copied_bytes_per_frame\":4608") != NULL;
    }
    framepath_report_free(report);
    framepath_path_free(path);
    return frames;
}

static void stages(void)
{
    struct stage stage = {0};
    framepath_error *error = NULL;
    bool copied = false;
    CHECK(run_with(delay, &stage, NULL, NULL) == 5 && stage.calls == 6 && stage.time > 0);
    framepath_frame_free(stage.kept);

    stage = (struct stage){0};
    CHECK(run_with(fail_at_third, &stage, &error, NULL) == -1 && stage.calls == 3);
    CHECK(strcmp(framepath_error_text(error), "mine: no face in the picture") == 0);
    framepath_error_free(error);
    error = NULL;
    CHECK(run_with(fail_by_plane, &stage, &error, NULL) == -1);
    CHECK(strcmp(framepath_error_text(error), "mine: plane 9: the frame has 2") == 0);
    framepath_error_free(error);

    stage = (struct stage){0};
    CHECK(run_with(write_beside_reader, &stage, NULL, &copied) == 6 && stage.calls == 6 && copied);
    CHECK(run_with(write_only_handle, &stage, NULL, &copied) == 6 && !copied);

    error = framepath_error_new(NULL);
    CHECK(strlen(framepath_error_text(error)) > 0);
    framepath_error_free(error);
}

static void paths(void)
{
    struct stage stage = {0};
    framepath_error *error = NULL;
    framepath_frame *frame = NULL;
    char first[500];
    int counted = 0;

    /* The first failure is that of all later calls. */
    framepath_path *path = framepath_path_new("test frames=6 size=64x48", NULL);
    CHECK(!framepath_path_append(path, "nul", &error) && error);
    snprintf(first, sizeof first, "%s", framepath_error_text(error));
    framepath_error_free(error);
    error = NULL;
    CHECK(!framepath_path_stage(path, NULL, delay, &stage, NULL));
    CHECK(framepath_path_run(path, count, &counted, &error) == NULL && counted == 0);
    CHECK(*first && strcmp(framepath_error_text(error), first) == 0);
    framepath_error_free(error);
    error = NULL;
    framepath_path_free(path);

    /* A path runs once. */
    path = framepath_path_new("test frames=6 size=64x48", NULL);
    framepath_report *report = framepath_path_run(path, count, &counted, NULL);
    CHECK(framepath_report_frames(report) == 6 && counted == 6);
    framepath_report_free(report);
    CHECK(framepath_path_run(path, count, &counted, &error) == NULL);
    CHECK(error && strstr(framepath_error_text(error), "runs once"));
    framepath_error_free(error);
    error = NULL;
    framepath_path_free(path);

    /* No function; a function behind the sink; no sink. */
    path = framepath_path_new("test frames=6 size=64x48", NULL);
    CHECK(!framepath_path_stage(path, "empty", NULL, NULL, &error));
    CHECK(strcmp(framepath_error_text(error), "empty: the function is null") == 0);
    framepath_error_free(error);
    error = NULL;
    framepath_path_free(path);
    path = framepath_path_new("test frames=6 size=64x48 ! null", NULL);
    CHECK(framepath_path_stage(path, "late", delay, &stage, NULL));
    CHECK(framepath_path_run(path, NULL, NULL, &error) == NULL && error);
    framepath_error_free(error);
    framepath_path_free(path);
    path = framepath_path_new("test frames=6 size=64x48", NULL);
    CHECK(framepath_path_run(path, NULL, NULL, NULL) == NULL);
    framepath_path_free(path);

    /* Frames behind a stage: they and the functions outlive the path. */
    stage = (struct stage){0};
    path = framepath_path_new("test frames=6 size=64x48", NULL);
    CHECK(framepath_path_stage(path, NULL, write_beside_reader, &stage, NULL));
    framepath_frames *opened = framepath_path_start(path, NULL);
    framepath_path_free(path);
    CHECK(framepath_next(opened, &frame, NULL) == 1);
    framepath_close(opened);
    CHECK(stage.calls > 0 && framepath_frame_width(frame) == 64);
    framepath_frame_free(frame);

    /* A path that never ran. */
    framepath_path_free(framepath_path_new("test frames=6 size=64x48", NULL));
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    nulls();
    errors();
    frames(argv[1]);
    runs();
    stages();
    paths();
    return failures ? 1 : 0;
}
