/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Null pointers, errors, seeks, and runs with a function: handles FILE; prints what has failed. */
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
    CHECK(framepath_open(NULL, false, &error) == NULL && error);
    CHECK(strlen(framepath_error_text(error)) > 0);
    framepath_error_free(error);
    CHECK(framepath_open(NULL, false, NULL) == NULL);
    CHECK(framepath_start(NULL, NULL) == NULL);
    CHECK(framepath_run(NULL, NULL, NULL, NULL) == NULL);
    CHECK(framepath_next(NULL, &frame, NULL) == -1 && frame == NULL);
    CHECK(!framepath_seek(NULL, 0, NULL));
    CHECK(!framepath_frame_plane(NULL, 0, &plane));
    CHECK(framepath_frame_width(NULL) == 0 && framepath_frame_height(NULL) == 0);
    CHECK(framepath_frame_time(NULL) == -1 && !framepath_frame_is_damaged(NULL));
    CHECK(*framepath_frame_format(NULL) == 0 && *framepath_error_text(NULL) == 0);
    CHECK(framepath_report_frames(NULL) == 0 && framepath_report_lost(NULL) == 0);
    CHECK(*framepath_report_json(NULL) == 0);
    framepath_frame_free(NULL);
    framepath_error_free(NULL);
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

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    nulls();
    errors();
    frames(argv[1]);
    runs();
    return failures ? 1 : 0;
}
