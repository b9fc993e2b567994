// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * gst-handoff: sends frames through GStreamer's inter-process elements:
 * shmsink and shmsrc, or unixfdsink and unixfdsrc (GStreamer 1.24).
 *
 * Every choice is the cheapest for GStreamer, so that errors of a comparison are
 * in GStreamer's favour:
 *
 *  - A GstBufferPool has HANDOFF_DEPTH buffers in memory of the sink's own
 *    allocator, so that the sink copies nothing. If none is free, the producer
 *    waits until the other process has released one. The sink would copy a
 *    frame in other memory; such a frame is counted as copied.
 *  - Only a bare pad is before the sink and after the source, as in gst-push:
 *    no appsrc, no appsink, no queue. The consumer takes its timestamp in the
 *    thread of the source element.
 *  - sync=false, no last sample, the debugging system off.
 *
 * Frames have no timestamps and caps of application/octet-stream: only their
 * bytes matter.
 */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gst/gst.h>

#include "../handoff/handoff.h"

/* Time without a frame after which the consumer ends with an error, microseconds. */
#define PATIENCE (10 * G_TIME_SPAN_SECOND)

/*
 * One pair of elements. wait-for-connection keeps its default (shmsink: true).
 * unixfdsink drops frames while no receiver is connected, which happens only in the
 * warm-up.
 */
struct elements {
	const char *mode, *contender, *sink, *source;
};

static const struct elements kinds[] = {
	{ "shm", "gst-shm", "shmsink", "shmsrc" },
	{ "unixfd", "gst-unixfd", "unixfdsink", "unixfdsrc" },
};

static const char *const modes[] = { "shm", "unixfd", NULL };

struct sender {
	struct handoff_producer producer;
	GstPad *pad;
	GstBufferPool *pool;
	GstAllocator *allocator;	/* allocator of the sink */
	GstBuffer *buffer;		/* acquired, not sent yet */
	GstMapInfo map;
	size_t bytes;
};

struct receiver {
	GMutex lock;
	GCond changed;			/* the tally is done */
	struct handoff_tally tally;	/* under lock */
	struct handoff_control *control;
	size_t bytes;
};

/* 1 after the measurement: errors are ignored, because shmsink reports its stop as one. */
static gint ending;

static void die_of_message(GstMessage *message)
{
	GError *error = NULL;

	gst_message_parse_error(message, &error, NULL);
	handoff_die(GST_OBJECT_NAME(GST_MESSAGE_SRC(message)), error->message);
}

/* An element's error ends the process, because there would be no other report. */
static GstBusSyncReply on_message(GstBus *bus, GstMessage *message, gpointer user)
{
	(void)bus;
	(void)user;
	if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR && !g_atomic_int_get(&ending))
		die_of_message(message);
	gst_message_unref(message);
	return GST_BUS_DROP;
}

/* Creates a pipeline of one element, which needs the pipeline's clock and base time. */
static GstElement *open_pipeline(GstElement *element)
{
	GstElement *pipeline = gst_pipeline_new(NULL);
	GstBus *bus = gst_element_get_bus(pipeline);

	gst_bus_set_sync_handler(bus, on_message, NULL, NULL);
	gst_object_unref(bus);
	gst_bin_add(GST_BIN(pipeline), element);
	return pipeline;
}

static void play(GstElement *pipeline)
{
	if (gst_element_set_state(pipeline, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE ||
	    gst_element_get_state(pipeline, NULL, NULL, GST_CLOCK_TIME_NONE) ==
		    GST_STATE_CHANGE_FAILURE)
		handoff_die("element does not start", GST_OBJECT_NAME(pipeline));
}

static void link_pads(GstPad *src, GstPad *sink)
{
	if (gst_pad_link(src, sink) != GST_PAD_LINK_OK)
		handoff_die("pads do not link", GST_PAD_NAME(sink));
}

/* ---- The consumer ---- */

static GstFlowReturn on_buffer(GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
	struct receiver *receiver = gst_pad_get_element_private(pad);
	GstMapInfo map;

	(void)parent;
	if (!gst_buffer_map(buffer, &map, GST_MAP_READ))
		handoff_die("a buffer cannot be mapped", "consumer");
	if (map.size != receiver->bytes)
		handoff_die("a buffer of another size", "consumer");
	g_mutex_lock(&receiver->lock);
	handoff_saw(&receiver->tally, receiver->control, map.data);
	if (receiver->tally.done)
		g_cond_signal(&receiver->changed);
	g_mutex_unlock(&receiver->lock);
	gst_buffer_unmap(buffer, &map);
	gst_buffer_unref(buffer);
	return GST_FLOW_OK;
}

static gboolean take_event(GstPad *pad, GstObject *parent, GstEvent *event)
{
	(void)pad;
	(void)parent;
	gst_event_unref(event);
	return TRUE;
}

static void await_frames(struct receiver *receiver)
{
	uint64_t seen = 0;

	g_mutex_lock(&receiver->lock);
	while (!receiver->tally.done) {
		gint64 until = g_get_monotonic_time() + PATIENCE;
		uint64_t now;

		if (g_cond_wait_until(&receiver->changed, &receiver->lock, until))
			continue;
		now = receiver->tally.warm_up + receiver->tally.received;
		if (now == seen)
			handoff_die("no frame for 10 s", "frames were lost");
		seen = now;
	}
	g_mutex_unlock(&receiver->lock);
}

static void consume(struct handoff_control *control, const struct handoff_options *options,
		    const struct elements *kind, const char *socket)
{
	GstPad *pad = gst_object_ref_sink(gst_pad_new("sink", GST_PAD_SINK));
	struct receiver receiver = { .control = control, .bytes = options->bytes };
	GstElement *source, *pipeline;
	GstPad *src;

	/* The elements exist: the producer checks this before it sends OPEN. */
	handoff_await_open(control);
	source = gst_element_factory_make(kind->source, NULL);
	src = gst_element_get_static_pad(source, "src");
	pipeline = open_pipeline(source);
	g_mutex_init(&receiver.lock);
	g_cond_init(&receiver.changed);
	handoff_tally_open(&receiver.tally, options);
	gst_pad_set_element_private(pad, &receiver);
	gst_pad_set_chain_function(pad, on_buffer);
	gst_pad_set_event_function(pad, take_event);
	gst_pad_set_active(pad, TRUE);
	link_pads(src, pad);
	g_object_set(source, "socket-path", socket, NULL);
	play(pipeline);
	await_frames(&receiver);
	/* The threads of GStreamer end with the process. */
	handoff_report(&receiver.tally, control);
}

/* ---- The producer ---- */

static void *take(void *state)
{
	struct sender *sender = state;

	if (gst_buffer_pool_acquire_buffer(sender->pool, &sender->buffer, NULL) != GST_FLOW_OK)
		handoff_die("buffer pool has no buffer", "GstBufferPool");
	if (!gst_buffer_map(sender->buffer, &sender->map, GST_MAP_WRITE))
		handoff_die("a buffer cannot be mapped", "producer");
	if (gst_buffer_peek_memory(sender->buffer, 0)->allocator != sender->allocator)
		sender->producer.copied_bytes += sender->bytes;
	return sender->map.data;
}

static void send_frame(void *state)
{
	struct sender *sender = state;
	GstFlowReturn flow;

	gst_buffer_unmap(sender->buffer, &sender->map);
	flow = gst_pad_push(sender->pad, sender->buffer);
	if (flow != GST_FLOW_OK)
		handoff_die("push failed", gst_flow_get_name(flow));
}

static void start_stream(GstPad *pad, GstCaps *caps)
{
	GstSegment segment;

	gst_segment_init(&segment, GST_FORMAT_TIME);
	if (!gst_pad_push_event(pad, gst_event_new_stream_start("gst-handoff")) ||
	    !gst_pad_push_event(pad, gst_event_new_caps(caps)) ||
	    !gst_pad_push_event(pad, gst_event_new_segment(&segment)))
		handoff_die("stream does not start", "event refused");
}

/* Creates the pool of buffers in memory of the allocator that the sink offers. */
static void open_pool(struct sender *sender, GstCaps *caps)
{
	GstQuery *query = gst_query_new_allocation(caps, FALSE);
	GstStructure *config;
	GstAllocationParams params;

	if (!gst_pad_peer_query(sender->pad, query) ||
	    gst_query_get_n_allocation_params(query) == 0)
		handoff_die("the sink offers no memory", "allocation query");
	gst_query_parse_nth_allocation_param(query, 0, &sender->allocator, &params);
	gst_query_unref(query);
	if (!sender->allocator)
		handoff_die("the sink offers no allocator", "allocation query");
	sender->pool = gst_buffer_pool_new();
	config = gst_buffer_pool_get_config(sender->pool);
	gst_buffer_pool_config_set_params(config, caps, (guint)sender->bytes, HANDOFF_DEPTH,
					  HANDOFF_DEPTH);
	gst_buffer_pool_config_set_allocator(config, sender->allocator, &params);
	if (!gst_buffer_pool_set_config(sender->pool, config) ||
	    !gst_buffer_pool_set_active(sender->pool, TRUE))
		handoff_die("buffer pool does not start", "GstBufferPool");
}

static void produce(struct handoff_control *control, const struct handoff_options *options,
		    const struct elements *kind, const char *socket)
{
	GstElement *sink = gst_element_factory_make(kind->sink, NULL);
	GstElement *pipeline = open_pipeline(sink);
	GstCaps *caps = gst_caps_new_empty_simple("application/octet-stream");
	struct sender sender = { .bytes = options->bytes };
	GstPad *sink_pad;
	char software[64];
	guint major, minor, micro, nano;

	gst_version(&major, &minor, &micro, &nano);
	snprintf(software, sizeof(software), "GStreamer %u.%u.%u", major, minor, micro);
	g_object_set(sink, "socket-path", socket, "sync", FALSE, "async", FALSE,
		     "enable-last-sample", FALSE, NULL);
	if (strcmp(kind->mode, "shm") == 0)
		/* shmsink rounds the size of each block up, at most to pages. */
		g_object_set(sink, "shm-size",
			     (guint)((HANDOFF_DEPTH + 1) * (options->bytes + 4096)), NULL);
	sender.pad = gst_object_ref_sink(gst_pad_new("src", GST_PAD_SRC));
	sink_pad = gst_element_get_static_pad(sink, "sink");
	link_pads(sender.pad, sink_pad);
	gst_object_unref(sink_pad);
	gst_pad_set_active(sender.pad, TRUE);
	play(pipeline);
	start_stream(sender.pad, caps);
	open_pool(&sender, caps);
	handoff_say_open(control);

	sender.producer.state = &sender;
	sender.producer.take = take;
	sender.producer.send = send_frame;
	handoff_produce(control, options, &sender.producer, kind->contender, software);
	g_atomic_int_set(&ending, 1);
	gst_element_set_state(pipeline, GST_STATE_NULL);
	/* The shared memory is freed with its last buffer. */
	gst_buffer_pool_set_active(sender.pool, FALSE);
	gst_object_unref(sender.pool);
	gst_object_unref(sender.allocator);
	gst_object_unref(sender.pad);
	gst_object_unref(pipeline);
	gst_caps_unref(caps);
}

/* Prints {"skipped":"REASON"} and ends the process if this GStreamer lacks the elements. */
static void require(const struct elements *kind)
{
	GstElementFactory *sink = gst_element_factory_find(kind->sink);
	GstElementFactory *source = gst_element_factory_find(kind->source);
	char reason[160];
	guint major, minor, micro, nano;

	if (sink && source) {
		gst_object_unref(sink);
		gst_object_unref(source);
		return;
	}
	gst_version(&major, &minor, &micro, &nano);
	if (strcmp(kind->mode, "unixfd") == 0 && (major == 1 && minor < 24))
		snprintf(reason, sizeof(reason),
			 "GStreamer %u.%u.%u has no %s; use 1.24 or newer (Debian 13)", major,
			 minor, micro, kind->sink);
	else
		snprintf(reason, sizeof(reason),
			 "GStreamer has no %s; apt install gstreamer1.0-plugins-bad",
			 kind->sink);
	handoff_skip(reason);
}

/* Folder of the elements' socket; the producer removes both at every exit. */
static char folder[] = "/tmp/gst-handoff-XXXXXX";
/* Path of the elements' socket in this folder. */
static char socket_path[sizeof(folder) + 8];

static void remove_socket(void)
{
	unlink(socket_path);
	rmdir(folder);
}

int main(int argc, char **argv)
{
	struct handoff_options options;
	struct handoff_control control;
	const struct elements *kind = kinds;

	handoff_read_options(&options, "gst-handoff", modes, argc, argv);
	while (strcmp(kind->mode, options.mode) != 0)
		kind++;
	if (!mkdtemp(folder))
		handoff_die("mkdtemp", folder);
	snprintf(socket_path, sizeof(socket_path), "%s/frames", folder);
	/* Forks before GStreamer starts threads. */
	handoff_fork(&control);
	gst_init(NULL, NULL);
	gst_debug_set_active(FALSE);
	if (control.child == 0)
		consume(&control, &options, kind, socket_path);
	atexit(remove_socket);
	require(kind);
	produce(&control, &options, kind, socket_path);
	return 0;
}
