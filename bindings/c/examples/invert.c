/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Inverts the luma of a video, drops each second frame, and prints how many frames are left and the sum of their luma. PATH has no sink,
   as `file clip.mp4 ! decode`: invert PATH */
#include <framepath.h>
#include <inttypes.h>
#include <stdio.h>

/* Stage. `user` counts the frames. */
static framepath_frame *invert(framepath_frame *frame, void *user, framepath_error **error)
{
    unsigned *seen = user;
    framepath_plane_mut luma;
    if ((*seen)++ % 2 || !framepath_frame_plane_mut(frame, 0, &luma, error)) {
        framepath_frame_free(frame);
        return NULL; /* dropped, or, with an error, the end of the run */
    }
    for (size_t y = 0; y < luma.rows; y++)
        for (size_t x = 0; x < luma.width; x++)
            luma.data[y * luma.stride + x] = (uint8_t)(255 - luma.data[y * luma.stride + x]);
    return frame;
}

/* Sink. `user` is the sum. */
static bool add(framepath_frame *frame, void *user)
{
    uint64_t *sum = user;
    framepath_plane luma;
    if (framepath_frame_plane(frame, 0, &luma))
        for (size_t y = 0; y < luma.rows; y++)
            for (size_t x = 0; x < luma.width; x++)
                *sum += luma.data[y * luma.stride + x];
    framepath_frame_free(frame);
    return true;
}

int main(int argc, char **argv)
{
    unsigned seen = 0;
    uint64_t sum = 0;
    framepath_error *error = NULL;
    framepath_path *path = framepath_path_new(argc > 1 ? argv[1] : NULL, &error);
    framepath_report *report = NULL;
    if (path && framepath_path_stage(path, "invert", invert, &seen, &error) &&
        framepath_path_append(path, "queue", &error))
        report = framepath_path_run(path, add, &sum, &error);
    if (report)
        printf("%" PRIu64 " %" PRIu64 "\n", framepath_report_frames(report), sum);
    else
        fprintf(stderr, "invert: %s\n", framepath_error_text(error));
    framepath_path_free(path);
    framepath_error_free(error);
    framepath_report_free(report);
    return !report;
}
