/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Declarations of framepath.h without comments: the ABI of the SONAME. Made by: bindings/c/abi record */
#ifndef FRAMEPATH_H
#define FRAMEPATH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef struct framepath_error framepath_error;
typedef struct framepath_frame framepath_frame;
typedef struct framepath_frames framepath_frames;
typedef struct framepath_path framepath_path;
typedef struct framepath_report framepath_report;
typedef struct {
  const uint8_t *data;
  size_t stride;
  size_t width;
  size_t rows;
} framepath_plane;
typedef struct {
  uint8_t *data;
  size_t stride;
  size_t width;
  size_t rows;
} framepath_plane_mut;
typedef framepath_frame *(*framepath_stage)(framepath_frame *frame,
                                            void *user,
                                            framepath_error **error);
typedef bool (*framepath_sink)(framepath_frame *frame, void *user);
#ifdef __cplusplus
extern "C" {
#endif
const char *framepath_version(void);
framepath_error *framepath_error_new(const char *text);
const char *framepath_error_text(const framepath_error *error);
void framepath_error_free(framepath_error *error);
uint32_t framepath_frame_width(const framepath_frame *frame);
uint32_t framepath_frame_height(const framepath_frame *frame);
const char *framepath_frame_format(const framepath_frame *frame);
double framepath_frame_time(const framepath_frame *frame);
bool framepath_frame_is_damaged(const framepath_frame *frame);
bool framepath_frame_plane(const framepath_frame *frame,
                           size_t index,
                           framepath_plane *plane);
bool framepath_frame_plane_mut(framepath_frame *frame,
                               size_t index,
                               framepath_plane_mut *plane,
                               framepath_error **error);
framepath_frame *framepath_frame_share(const framepath_frame *frame);
void framepath_frame_free(framepath_frame *frame);
framepath_frames *framepath_open(const char *file,
                                 bool sandboxed,
                                 framepath_error **error);
framepath_frames *framepath_start(const char *path,
                                  framepath_error **error);
int framepath_next(framepath_frames *frames,
                   framepath_frame **frame,
                   framepath_error **error);
bool framepath_seek(framepath_frames *frames,
                    double seconds,
                    framepath_error **error);
double framepath_duration(const framepath_frames *frames);
void framepath_close(framepath_frames *frames);
framepath_path *framepath_path_new(const char *text,
                                   framepath_error **error);
bool framepath_path_append(framepath_path *path,
                           const char *text,
                           framepath_error **error);
bool framepath_path_stage(framepath_path *path,
                          const char *name,
                          framepath_stage stage,
                          void *user,
                          framepath_error **error);
framepath_report *framepath_path_run(framepath_path *path,
                                     framepath_sink sink,
                                     void *user,
                                     framepath_error **error);
framepath_frames *framepath_path_start(framepath_path *path,
                                       framepath_error **error);
void framepath_path_free(framepath_path *path);
uint64_t framepath_report_frames(const framepath_report *report);
uint64_t framepath_report_lost(const framepath_report *report);
const char *framepath_report_json(const framepath_report *report);
void framepath_report_free(framepath_report *report);
framepath_report *framepath_run(const char *path,
                                framepath_sink sink,
                                void *user,
                                framepath_error **error);
#ifdef __cplusplus
}
#endif
#endif
