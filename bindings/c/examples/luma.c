/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sums the luma of each frame of a video: luma FILE */
#include <framepath.h>
#include <inttypes.h>
#include <stdio.h>

static uint64_t sum_of(const framepath_plane *plane)
{
    uint64_t sum = 0;
    for (size_t y = 0; y < plane->rows; y++)
        for (size_t x = 0; x < plane->width; x++)
            sum += plane->data[y * plane->stride + x];
    return sum;
}

int main(int argc, char **argv)
{
    framepath_error *error = NULL;
    framepath_frames *frames = framepath_open(argc > 1 ? argv[1] : NULL, true, &error);
    framepath_frame *frame = NULL;
    int next = -1;
    while (frames && (next = framepath_next(frames, &frame, &error)) > 0) {
        framepath_plane luma;
        if (framepath_frame_plane(frame, 0, &luma))
            printf("%.3f %" PRIu64 "\n", framepath_frame_time(frame), sum_of(&luma));
        framepath_frame_free(frame);
    }
    if (next < 0)
        fprintf(stderr, "luma: %s\n", framepath_error_text(error));
    framepath_error_free(error);
    framepath_close(frames);
    return next < 0;
}
