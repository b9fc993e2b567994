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
 Frame. Keeps a buffer of the decoder until `framepath_frame_free`: a program that keeps more than 4 frames while it
 asks for the next may wait for ever.
 */
typedef struct framepath_frame framepath_frame;

/*
 Running path, whose frames a program takes. Ended by `framepath_close`. One thread at a time may use it.
 */
typedef struct framepath_frames framepath_frames;

/*
 Path that is being built from text and functions. Runs once. Ended by `framepath_path_free`. One thread at a time may use it.
 */
typedef struct framepath_path framepath_path;

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
   First sample. Read-only, and valid as long as the frame, or until `framepath_frame_plane_mut` copies it. With `host=process` it is
   memory of a sandboxed process, which a decoder that has been taken over can change at any time: check what you read from it once, on a
   copy.
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
 One plane of a frame, for writing: as `framepath_plane`.
 */
typedef struct {
  /*
   First sample. No other process can change it. Writable until the frame is shared, passed on, given back or freed.
   */
  uint8_t *data;
  /*
   Bytes from one row to the next.
   */
  size_t stride;
  /*
   Bytes of samples in a row. The bytes behind them, up to the next row, are padding, except behind the last row.
   */
  size_t width;
  /*
   Number of rows.
   */
  size_t rows;
} framepath_plane_mut;

/*
 Function that gets each frame in the middle of a path, in the thread of the hop before it, one call at a time. The frame belongs to the
 function, which returns, keeps or frees it. The function returns the frame to pass on, the same or another one, which then belongs to the
 path; or null to drop the frame. Frames of other paths keep their numbers and times. To end the run with a failure, the function sets
 `*error`, which is null at first, by `framepath_error_new` or a failing function of this library; the path frees the error and a returned
 frame. The function must not throw an exception and must not call longjmp.
 */
typedef framepath_frame *(*framepath_stage)(framepath_frame *frame,
                                            void *user,
                                            framepath_error **error);

/*
 Function that gets each frame at the end of a path, in the thread of the hop before it, one call at a time. The frame belongs to the
 function, which frees it during the call or later. The function returns false to end the run without an error. The function must not
 throw an exception and must not call longjmp.
 */
typedef bool (*framepath_sink)(framepath_frame *frame, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the library, such as `0.1.0`.
 */
const char *framepath_version(void);

/*
 Makes an error with a copy of `text`, for a failing `framepath_stage`. Null, and text that is not UTF-8, give an error that says only that
 there is no message. Any thread may call it.

 # Safety
 `text` is null or ends in a zero.
 */
framepath_error *framepath_error_new(const char *text);

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
 Writes plane number `index`, from 0, to `plane`, so that the program can change the pixels. Copies the frame once, and counts the copy in
 the ledger, if another handle, a decoder or another process uses the pixels, or their memory is a device's. The handle then has the copy,
 with the same times and without padding, and pointers of earlier calls of `framepath_frame_plane` end. Later calls for the handle copy
 nothing. The copies of a path, stage or sink have 8 buffers: the call waits while all are in use. No other thread may use the handle
 during the call. Returns false, and leaves the frame as it was, if the frame has no such plane, memory is short or a pointer is null.

 # Safety
 `frame` is null or a frame that was not freed; `plane` is null or writable; `error` is null or writable.
 */
bool framepath_frame_plane_mut(framepath_frame *frame,
                               size_t index,
                               framepath_plane_mut *plane,
                               framepath_error **error);

/*
 Returns another handle to the same frame, without a copy; the caller frees it. With it, a stage can keep a frame and pass it on. Any
 thread may do it. Returns null for null, and for the 65,536th handle.

 # Safety
 `frame` is null or a frame that was not freed.
 */
framepath_frame *framepath_frame_share(const framepath_frame *frame);

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
 Returns the seconds from the start of the source's stream to its end, as its container declares it; -1 if that is not known, as for
 elementary and live streams, and for null.

 # Safety
 `frames` is null or was not closed.
 */
double framepath_duration(const framepath_frames *frames);

/*
 Ends the decoder and its processes. Frames that the program has stay valid. Does nothing for null.

 # Safety
 `frames` is null or was not closed.
 */
void framepath_close(framepath_frames *frames);

/*
 Starts a path with text: a source, and stages and a sink or none, such as `file clip.mp4 ! decode`. Returns null on failure.

 # Safety
 `text` is null or ends in a zero; `error` is null or writable.
 */
framepath_path *framepath_path_new(const char *text,
                                   framepath_error **error);

/*
 Adds text behind the last hop of a path: stages and queues, and a sink or none, such as `queue ! scale size=640x360`. Returns false on
 failure. All later calls for the path then fail with the same error, so that a program may check only the last one.

 # Safety
 `path` is null or was not freed; `text` is null or ends in a zero; `error` is null or writable.
 */
bool framepath_path_append(framepath_path *path,
                           const char *text,
                           framepath_error **error);

/*
 Adds a function behind the last hop of a path. `name` is the stage's name in errors and in the report; null for `stage`. The path calls
 the function with `user` until `framepath_path_run` or `framepath_close` returns. Returns false on failure, as `framepath_path_append`.

 # Safety
 `path` is null or was not freed; `name` is null or ends in a zero; `error` is null or writable; `stage` may be called, and `user` used,
 on any thread until the run has ended.
 */
bool framepath_path_stage(framepath_path *path,
                          const char *name,
                          framepath_stage stage,
                          void *user,
                          framepath_error **error);

/*
 Runs a path to its end, and returns the report; null on failure, also of a function. With `sink`, the path has no sink of its own, and
 each frame is given to the function, with `user`. No function of the path is called after the return. The path cannot run again, and
 must still be freed.

 # Safety
 `path` is null or was not freed; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this function
 runs.
 */
framepath_report *framepath_path_run(framepath_path *path,
                                     framepath_sink sink,
                                     void *user,
                                     framepath_error **error);

/*
 Starts a path that has no sink, for `framepath_next`; null on failure. The functions of the path are called on another thread, until
 `framepath_close` returns. The path cannot run again, and must still be freed, which does not end the frames.

 # Safety
 `path` is null or was not freed; `error` is null or writable.
 */
framepath_frames *framepath_path_start(framepath_path *path,
                                       framepath_error **error);

/*
 Ends a path, whether it has run or not. Does nothing for null.

 # Safety
 `path` is null or was not freed.
 */
void framepath_path_free(framepath_path *path);

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
 Runs a path to its end, and returns the report; null on failure. With `sink`, the path has no sink of its own, and each frame is given to
 the function, with `user`. The same as `framepath_path_new`, `framepath_path_run` and `framepath_path_free`.

 # Safety
 `path` is null or ends in a zero; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this
 function runs.
 */
framepath_report *framepath_run(const char *path,
                                framepath_sink sink,
                                void *user,
                                framepath_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRAMEPATH_H */
