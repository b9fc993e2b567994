/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Made by cbindgen of src/; docs/c.md explains it. */

#ifndef FRAMEPATH_H
#define FRAMEPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 Reason of a failure. Ended by `framepath_error_free`.
 */
typedef struct framepath_error framepath_error;

/*
 Decoded frame. Keeps a buffer of the decoder until `framepath_frame_free`: a program that keeps more than 4 frames while it
 asks for the next may wait for ever.
 */
typedef struct framepath_frame framepath_frame;

/*
 Running path, whose frames a program takes. Ended by `framepath_close`. One thread at a time may use it.
 */
typedef struct framepath_frames framepath_frames;

/*
 Report of a run. Ended by `framepath_report_free`.
 */
typedef struct framepath_report framepath_report;

/*
 One plane of a frame: `rows` rows of `width` bytes, each `stride` bytes behind the one before. Samples of more than 8 bits have two
 bytes, the lower one first.
 */
typedef struct {
  /*
   First sample. Read-only, and valid as long as the frame. With `host=process` it is memory of a sandboxed process, which a decoder
   that has been taken over can change at any time: check what you read from it once, on a copy.
   */
  const uint8_t *data;
  /*
   Bytes from one row to the next.
   */
  size_t stride;
  /*
   Bytes of samples in a row.
   */
  size_t width;
  /*
   Number of rows.
   */
  size_t rows;
} framepath_plane;

/*
 Function that gets each frame of a run, in the thread of the hop before it. The frame belongs to the function, which frees it. Returns
 false to end the run without an error.
 */
typedef bool (*framepath_sink)(framepath_frame *frame, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the text of an error, which lives as long as the error; an empty text for null.

 # Safety
 `error` is null or an error that was not freed.
 */
const char *framepath_error_text(const framepath_error *error);

/*
 Ends an error. Does nothing for null.

 # Safety
 `error` is null or an error that was not freed.
 */
void framepath_error_free(framepath_error *error);

/*
 Returns the width in pixels; 0 for null.

 # Safety
 `frame` is null or a frame that was not freed.
 */
uint32_t framepath_frame_width(const framepath_frame *frame);

/*
 Returns the height in pixels; 0 for null.

 # Safety
 `frame` is null or a frame that was not freed.
 */
uint32_t framepath_frame_height(const framepath_frame *frame);

/*
 Returns the pixel format, such as `yuv420p`, which lives as long as the frame; an empty text for null.

 # Safety
 `frame` is null or a frame that was not freed.
 */
const char *framepath_frame_format(const framepath_frame *frame);

/*
 Returns the presentation time in seconds; -1 if it is not known.

 # Safety
 `frame` is null or a frame that was not freed.
 */
double framepath_frame_time(const framepath_frame *frame);

/*
 Returns true if the decoder has concealed parts of the picture, because the stream is damaged.

 # Safety
 `frame` is null or a frame that was not freed.
 */
bool framepath_frame_is_damaged(const framepath_frame *frame);

/*
 Writes plane number `index`, from 0, to `plane`. Returns false, and writes nothing, if the frame has no such plane or a pointer is null.

 # Safety
 `frame` is null or a frame that was not freed; `plane` is null or writable.
 */
bool framepath_frame_plane(const framepath_frame *frame,
                           size_t index,
                           framepath_plane *plane);

/*
 Gives back a frame. Any thread may do it. Does nothing for null.

 # Safety
 `frame` is null or a frame that was not freed.
 */
void framepath_frame_free(framepath_frame *frame);

/*
 Opens a video file for decoding. With `sandboxed`, demuxer and decoder run in processes of their own that reach neither files nor the
 network, and whose crash costs no frame. Their program is the command `framepath` of the same version, next to the program, in PATH, or
 named by the variable FRAMEPATH_WORKER. Returns null on failure.

 # Safety
 `file` ends in a zero; `error` is null or writable.
 */
framepath_frames *framepath_open(const char *file,
                                 bool sandboxed,
                                 framepath_error **error);

/*
 Starts a path without a sink, such as `file clip.mp4 ! decode ! scale size=640x360`. Returns null on failure.

 # Safety
 `path` ends in a zero; `error` is null or writable.
 */
framepath_frames *framepath_start(const char *path,
                                  framepath_error **error);

/*
 Waits for the next frame, and gives it to the caller. Returns 1 with a frame, 0 at the end, and -1 on failure, after which the end
 follows.

 # Safety
 `frames` is null or was not closed; `frame` is writable; `error` is null or writable.
 */
int framepath_next(framepath_frames *frames,
                   framepath_frame **frame,
                   framepath_error **error);

/*
 Goes to a time, in seconds from the stream's start, also behind its end: the next frame is the first one that is not before it. Returns
 false on failure; the frames then go on.

 # Safety
 `frames` is null or was not closed; `error` is null or writable.
 */
bool framepath_seek(framepath_frames *frames,
                    double seconds,
                    framepath_error **error);

/*
 Ends the decoder and its processes. Frames that the program has stay valid. Does nothing for null.

 # Safety
 `frames` is null or was not closed.
 */
void framepath_close(framepath_frames *frames);

/*
 Runs a path to its end, and returns the report; null on failure. With `sink`, the path has no sink of its own, and each frame is given to
 the function, with `user`.

 # Safety
 `path` ends in a zero; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this function runs.
 */
framepath_report *framepath_run(const char *path,
                                framepath_sink sink,
                                void *user,
                                framepath_error **error);

/*
 Returns the number of frames that reached the sink; 0 for null.

 # Safety
 `report` is null or was not freed.
 */
uint64_t framepath_report_frames(const framepath_report *report);

/*
 Returns the number of lost frames; 0 for null.

 # Safety
 `report` is null or was not freed.
 */
uint64_t framepath_report_lost(const framepath_report *report);

/*
 Returns the summary that `framepath run --json` writes, which lives as long as the report; an empty text for null.

 # Safety
 `report` is null or was not freed.
 */
const char *framepath_report_json(const framepath_report *report);

/*
 Ends a report. Does nothing for null.

 # Safety
 `report` is null or was not freed.
 */
void framepath_report_free(framepath_report *report);

/*
 Returns the version of the library, such as `0.1.0`.
 */
const char *framepath_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRAMEPATH_H */
