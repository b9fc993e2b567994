// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes flushing seeks in a GStreamer pipeline, and prints the frames after each:
 *
 *   gst-seek PIPELINE FRAMES MS...
 *
 * The pipeline ends in an element named sink. After FRAMES frames it seeks to the
 * first MS, after FRAMES more to the next one, and then plays to the end. Prints
 * "frame MD5" for each frame that arrives, "seek MS" where one was flushed, and
 * "end".
 */
#include <gst/gst.h>

#include <stdlib.h>

static GMutex lock;
static GCond changed;
static int wanted;	/* frames after which to seek, 0: no seek is left */
static int frames;	/* since the last flush */
static gboolean flushing;	/* the seek has come to the sink */
static const char *where = "";

/*
 * Runs in the stream's thread. Blocks the thread until the flush, because the stream could otherwise
 * end before the seek.
 */
static void on_buffer(GstElement *pipeline, GstBuffer *buffer)
{
	GstMapInfo map;
	char *sum;

	if (!gst_buffer_map(buffer, &map, GST_MAP_READ))
		g_error("a buffer cannot be read");
	sum = g_compute_checksum_for_data(G_CHECKSUM_MD5, map.data, map.size);
	gst_buffer_unmap(buffer, &map);
	g_print("frame %s\n", sum);
	g_free(sum);

	g_mutex_lock(&lock);
	if (++frames == wanted) {
		gst_element_post_message(pipeline,
					 gst_message_new_application(GST_OBJECT(pipeline), gst_structure_new_empty("seek")));
		while (!flushing)
			g_cond_wait(&changed, &lock);
	}
	g_mutex_unlock(&lock);
}

static GstPadProbeReturn on_data(GstPad *pad, GstPadProbeInfo *info, gpointer pipeline)
{
	(void)pad;
	if (info->type & GST_PAD_PROBE_TYPE_BUFFER) {
		on_buffer(pipeline, GST_PAD_PROBE_INFO_BUFFER(info));
		return GST_PAD_PROBE_OK;
	}
	g_mutex_lock(&lock);
	flushing = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_FLUSH_START;
	if (flushing) {
		g_cond_signal(&changed);
	} else {
		frames = 0;
		g_print("seek %s\n", where);
	}
	g_mutex_unlock(&lock);
	return GST_PAD_PROBE_OK;
}

static void seek(GstElement *pipeline, const char *to, gboolean last)
{
	g_mutex_lock(&lock);
	where = to;
	if (last)
		wanted = 0;
	g_mutex_unlock(&lock);
	if (!gst_element_seek_simple(pipeline, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE,
				     strtoull(to, NULL, 10) * GST_MSECOND))
		g_error("the seek to %s ms was refused", to);
}

int main(int argc, char **argv)
{
	GstElement *pipeline, *sink;
	GError *error = NULL;
	GstMessage *message;
	int next = 3;
	GstPad *pad;

	gst_init(&argc, &argv);
	if (argc < 4)
		g_error("usage: gst-seek PIPELINE FRAMES MS...");
	wanted = atoi(argv[2]);
	pipeline = gst_parse_launch(argv[1], &error);
	if (error)
		g_error("%s", error->message);
	sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
	pad = gst_element_get_static_pad(sink, "sink");
	gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_FLUSH, on_data, pipeline, NULL);
	gst_element_set_state(pipeline, GST_STATE_PLAYING);
	for (;;) {
		message = gst_bus_timed_pop_filtered(GST_ELEMENT_BUS(pipeline), GST_CLOCK_TIME_NONE,
						     GST_MESSAGE_ERROR | GST_MESSAGE_EOS | GST_MESSAGE_APPLICATION);
		if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS)
			break;
		if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
			gst_message_parse_error(message, &error, NULL);
			g_error("%s", error->message);
		}
		seek(pipeline, argv[next], next + 1 == argc);
		next++;
		gst_message_unref(message);
	}
	if (next != argc)
		g_error("the end came before the seek to %s ms", argv[next]);
	g_print("end\n");
	gst_element_set_state(pipeline, GST_STATE_NULL);
	return 0;
}
