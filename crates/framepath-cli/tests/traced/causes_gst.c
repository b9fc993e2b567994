// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * causes_gst: a GStreamer pipeline whose element `inject` has costs of one kind. The arguments and the report are those of
 * causes.c; the place is gst.
 */
#include <stdio.h>
#include <string.h>

#include <gst/gst.h>

#include "inject_causes.h"

static void handoff(GstElement *element, GstBuffer *buffer, gpointer data)
{
    const gint64 frame = GST_BUFFER_OFFSET(buffer);

    (void)element, (void)data;
    /* Now all threads exist. */
    if (frame == 0)
        causes_join();
    causes_inject(frame);
}

int main(int count, char **words)
{
    char text[256];
    GError *error = NULL;

    causes_prepare(count, words);
    if (strcmp(causes_place(), "gst"))
        die(causes_place(), "no such place; expected gst");
    gst_init(NULL, NULL);
    snprintf(text, sizeof(text),
             "videotestsrc num-buffers=%d ! video/x-raw,format=BGRx,width=64,height=48 ! "
             "identity name=inject signal-handoffs=true ! fakesink",
             causes_frames());
    GstElement *pipeline = gst_parse_launch(text, &error);

    if (error)
        die("pipeline", error->message);
    GstElement *identity = gst_bin_get_by_name(GST_BIN(pipeline), "inject");

    g_signal_connect(identity, "handoff", G_CALLBACK(handoff), NULL);
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    GstBus *bus = gst_element_get_bus(pipeline);
    GstMessage *message = gst_bus_timed_pop_filtered(bus, GST_CLOCK_TIME_NONE, GST_MESSAGE_EOS | GST_MESSAGE_ERROR);

    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR)
        die("pipeline", "failed");
    gst_message_unref(message);
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(bus);
    gst_object_unref(identity);
    gst_object_unref(pipeline);
    causes_report();
    return 0;
}
