// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * gst-push: measures GStreamer's cost of passing buffers without touching their bytes.
 *
 * The test of Felipe Contreras, on GStreamer 1.x: the program pushes buffers
 * directly into a sink pad, or into a queue (a thread boundary) before this pad.
 * The program needs GStreamer's core and its coreelements plug-in, and prints one
 * line of JSON about one run.
 *
 * Every choice is the cheapest for GStreamer, so that errors of a comparison are
 * in GStreamer's favour:
 *
 *  - The last pad is a bare pad whose chain function drops the buffer. The
 *    element fakesink (sync=false, silent=true, no hand-off signal) costs more:
 *    README.md has the figures, and --sink fakesink measures them again.
 *  - Buffers are made before the clocks start and only referenced for a push.
 *    Allocating one per push (--alloc new) or taking it from a GstBufferPool
 *    (--alloc pool) costs more: README.md has these figures, too.
 *  - queue has silent=true; both queues keep their default limits. The
 *    debugging system is off.
 *
 * The program does not touch the bytes of a buffer, use a pipeline's clock, or
 * negotiate anything beyond application/octet-stream.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <gst/gst.h>

#include "options.h"

#define NSEC_PER_SEC 1000000000ull

/*
 * Number of buffers of --alloc reuse and --alloc pool: more than the 200
 * that a queue holds, so that the producer never writes the reference count of
 * a buffer that the consumer is about to drop.
 */
#define RING 256

/* Number of pushes before the clocks start: every buffer is used twice. */
#define WARM_UP (2 * RING)

/*
 * State of the last pad. In a paced run, `sent` and `arrived` have one
 * CLOCK_MONOTONIC stamp per buffer, in nanoseconds. Links are first in, first out
 * and drop nothing, so the n-th arrival belongs to the n-th push. A number in the
 * buffer would not do: one preallocated buffer can be in flight more than once.
 */
struct sink {
	GMutex lock;
	GCond changed;		/* flushed or eos became true */
	bool flushed;		/* under lock */
	bool eos;		/* under lock */
	uint64_t *sent;		/* written by the pushing thread */
	uint64_t *arrived;	/* written by the streaming thread until eos, then the latencies */
	uint64_t count;		/* number of stamped arrivals */
	uint64_t limit;		/* number of arrivals to stamp; others get no stamp */
};

/* Path of the buffers, from the pushing pad to the last pad. */
struct road {
	GstPad *src;
	GstPad *end;		/* last pad: the program's own, or fakesink's */
	GstElement *queue;	/* NULL in mode direct */
	GstElement *fakesink;	/* NULL with a bare pad */
	GstBus *bus;		/* fakesink's; NULL with a bare pad */
	struct sink sink;
};

/* Source of the buffers to push. */
struct supply {
	enum alloc alloc;
	size_t size;
	unsigned int next;	/* ALLOC_REUSE: number of buffers taken */
	GstBuffer *ring[RING];	/* ALLOC_REUSE */
	GstBufferPool *pool;	/* ALLOC_POOL */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

static void die(const char *what, const char *object)
{
	fprintf(stderr, "gst-push: %s: %s\n", what, object);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/* ---- The last pad ---- */

static GstFlowReturn drop_buffer(GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
	(void)pad;
	(void)parent;
	gst_buffer_unref(buffer);
	return GST_FLOW_OK;
}

static GstFlowReturn stamp_buffer(GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
	struct sink *sink = gst_pad_get_element_private(pad);

	(void)parent;
	if (sink->count < sink->limit)
		sink->arrived[sink->count++] = now_ns();
	gst_buffer_unref(buffer);
	return GST_FLOW_OK;
}

static gboolean on_event(GstPad *pad, GstObject *parent, GstEvent *event)
{
	struct sink *sink = gst_pad_get_element_private(pad);

	(void)parent;
	if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
		g_mutex_lock(&sink->lock);
		sink->eos = true;
		g_cond_signal(&sink->changed);
		g_mutex_unlock(&sink->lock);
	}
	gst_event_unref(event);
	return TRUE;
}

/* ---- The path ---- */

static GstElement *make_element(const char *name)
{
	GstElement *element = gst_element_factory_make(name, NULL);

	if (!element)
		die("GStreamer has no such element (plug-in coreelements)", name);
	return gst_object_ref_sink(element);
}

static void start_element(GstElement *element)
{
	if (gst_element_set_state(element, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE)
		die("element does not start", GST_ELEMENT_NAME(element));
}

static void link_pads(GstPad *src, GstPad *sink)
{
	if (gst_pad_link(src, sink) != GST_PAD_LINK_OK)
		die("pads do not link", GST_PAD_NAME(sink));
}

static void build_road(struct road *road, const struct options *options)
{
	memset(road, 0, sizeof(*road));
	g_mutex_init(&road->sink.lock);
	g_cond_init(&road->sink.changed);

	road->src = gst_object_ref_sink(gst_pad_new("src", GST_PAD_SRC));
	if (options->fakesink) {
		road->fakesink = make_element("fakesink");
		g_object_set(road->fakesink, "sync", FALSE, "async", FALSE, "silent", TRUE,
			     "signal-handoffs", FALSE, NULL);
		road->bus = gst_bus_new();
		gst_element_set_bus(road->fakesink, road->bus);
		road->end = gst_element_get_static_pad(road->fakesink, "sink");
	} else {
		road->end = gst_object_ref_sink(gst_pad_new("sink", GST_PAD_SINK));
		gst_pad_set_element_private(road->end, &road->sink);
		gst_pad_set_chain_function(road->end, options->rate ? stamp_buffer : drop_buffer);
		gst_pad_set_event_function(road->end, on_event);
	}

	if (strcmp(options->mode, "direct") == 0) {
		link_pads(road->src, road->end);
	} else {
		GstPad *in, *out;

		road->queue = make_element(options->mode);
		/* Limits: queue 200 buffers, 10 MiB, 1 s; queue2 100, 2 MiB, 2 s. */
		if (strcmp(options->mode, "queue") == 0)
			g_object_set(road->queue, "silent", TRUE, NULL);
		else
			g_object_set(road->queue, "use-buffering", FALSE, NULL);
		in = gst_element_get_static_pad(road->queue, "sink");
		out = gst_element_get_static_pad(road->queue, "src");
		link_pads(out, road->end);
		link_pads(road->src, in);
		gst_object_unref(in);
		gst_object_unref(out);
	}

	/* From the end to the beginning, so that no pad gets data before it is ready. */
	if (road->fakesink)
		start_element(road->fakesink);
	else
		gst_pad_set_active(road->end, TRUE);
	if (road->queue)
		start_element(road->queue);
	gst_pad_set_active(road->src, TRUE);
}

static void start_stream(GstPad *src)
{
	GstCaps *caps = gst_caps_new_empty_simple("application/octet-stream");
	GstSegment segment;

	gst_segment_init(&segment, GST_FORMAT_BYTES);
	if (!gst_pad_push_event(src, gst_event_new_stream_start("gst-push")) ||
	    !gst_pad_push_event(src, gst_event_new_caps(caps)) ||
	    !gst_pad_push_event(src, gst_event_new_segment(&segment)))
		die("stream does not start", "event refused");
	gst_caps_unref(caps);
}

static GstPadProbeReturn on_flush(GstPad *pad, GstPadProbeInfo *info, gpointer user)
{
	struct sink *sink = user;

	(void)pad;
	if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) != GST_EVENT_CUSTOM_DOWNSTREAM)
		return GST_PAD_PROBE_OK;
	g_mutex_lock(&sink->lock);
	sink->flushed = true;
	g_cond_signal(&sink->changed);
	g_mutex_unlock(&sink->lock);
	return GST_PAD_PROBE_REMOVE;
}

/*
 * Waits until no buffer is left in the path, which stays open. A custom event
 * follows the buffers, and a probe at the last pad detects the event. The probe is
 * removed before the clocks start, because a pad with probes is slower.
 */
static void flush_road(struct road *road)
{
	gst_pad_add_probe(road->end, GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_flush, &road->sink,
			  NULL);
	gst_pad_push_event(road->src, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM,
							   gst_structure_new_empty("flush")));
	g_mutex_lock(&road->sink.lock);
	while (!road->sink.flushed)
		g_cond_wait(&road->sink.changed, &road->sink.lock);
	g_mutex_unlock(&road->sink.lock);
}

/* Sends the end of stream and waits until the last pad has received it. */
static void end_stream(struct road *road)
{
	gst_pad_push_event(road->src, gst_event_new_eos());
	if (road->fakesink) {
		gst_message_unref(gst_bus_timed_pop_filtered(road->bus, GST_CLOCK_TIME_NONE,
							     GST_MESSAGE_EOS));
		return;
	}
	g_mutex_lock(&road->sink.lock);
	while (!road->sink.eos)
		g_cond_wait(&road->sink.changed, &road->sink.lock);
	g_mutex_unlock(&road->sink.lock);
}

static void stop_element(GstElement *element)
{
	if (!element)
		return;
	gst_element_set_state(element, GST_STATE_NULL);
	gst_object_unref(element);
}

static void free_road(struct road *road)
{
	gst_pad_set_active(road->src, FALSE);
	stop_element(road->queue);
	if (road->fakesink) {
		gst_element_set_bus(road->fakesink, NULL);
		gst_object_unref(road->bus);
	} else {
		gst_pad_set_active(road->end, FALSE);
	}
	stop_element(road->fakesink);
	gst_object_unref(road->end);
	gst_object_unref(road->src);
	free(road->sink.sent);
	free(road->sink.arrived);
	g_cond_clear(&road->sink.changed);
	g_mutex_clear(&road->sink.lock);
}

/* ---- Buffers ---- */

static void open_supply(struct supply *supply, const struct options *options)
{
	GstStructure *config;

	memset(supply, 0, sizeof(*supply));
	supply->alloc = options->alloc;
	supply->size = options->size;
	switch (options->alloc) {
	case ALLOC_REUSE:
		for (int i = 0; i < RING; i++)
			supply->ring[i] = gst_buffer_new_allocate(NULL, options->size, NULL);
		break;
	case ALLOC_POOL:
		supply->pool = gst_buffer_pool_new();
		config = gst_buffer_pool_get_config(supply->pool);
		gst_buffer_pool_config_set_params(config, NULL, (guint)options->size, RING, 0);
		if (!gst_buffer_pool_set_config(supply->pool, config) ||
		    !gst_buffer_pool_set_active(supply->pool, TRUE))
			die("buffer pool does not start", "GstBufferPool");
		break;
	case ALLOC_NEW:
		break;
	}
}

static GstBuffer *take_buffer(struct supply *supply)
{
	GstBuffer *buffer = NULL;

	switch (supply->alloc) {
	case ALLOC_REUSE:
		return gst_buffer_ref(supply->ring[supply->next++ % RING]);
	case ALLOC_NEW:
		return gst_buffer_new_allocate(NULL, supply->size, NULL);
	case ALLOC_POOL:
		if (gst_buffer_pool_acquire_buffer(supply->pool, &buffer, NULL) != GST_FLOW_OK)
			die("buffer pool has no buffer", "GstBufferPool");
		return buffer;
	}
	return NULL;
}

static void close_supply(struct supply *supply)
{
	for (int i = 0; i < RING; i++)
		if (supply->ring[i])
			gst_buffer_unref(supply->ring[i]);
	if (supply->pool) {
		gst_buffer_pool_set_active(supply->pool, FALSE);
		gst_object_unref(supply->pool);
	}
}

/* ---- Pushing ---- */

static void push(GstPad *src, GstBuffer *buffer)
{
	GstFlowReturn flow = gst_pad_push(src, buffer);

	if (flow != GST_FLOW_OK)
		die("push failed", gst_flow_get_name(flow));
}

static void push_flat_out(GstPad *src, struct supply *supply, uint64_t pushes)
{
	for (uint64_t i = 0; i < pushes && !interrupted; i++)
		push(src, take_buffer(supply));
}

static void push_paced(GstPad *src, struct supply *supply, struct sink *sink,
		       const struct options *options)
{
	uint64_t start = now_ns();

	for (uint64_t i = 0; i < options->pushes && !interrupted; i++) {
		uint64_t due = start + (i + 1) * NSEC_PER_SEC / options->rate;
		struct timespec at = {
			.tv_sec = (time_t)(due / NSEC_PER_SEC),
			.tv_nsec = (long)(due % NSEC_PER_SEC),
		};
		GstBuffer *buffer;

		while (!interrupted &&
		       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			;
		buffer = take_buffer(supply);
		sink->sent[i] = now_ns();
		push(src, buffer);
	}
}

/* ---- Figures ---- */

static uint64_t cpu_ns(const struct rusage *usage)
{
	uint64_t seconds = (uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec;
	uint64_t micros = (uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec;

	return seconds * NSEC_PER_SEC + micros * 1000;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Returns the nearest-rank percentile: the smallest value that `percent` % of all do not exceed. */
static uint64_t percentile(const uint64_t *sorted, uint64_t count, unsigned int percent)
{
	uint64_t rank = (count * percent + 99) / 100;

	return sorted[rank ? rank - 1 : 0];
}

static void print_latency(struct sink *sink)
{
	uint64_t count = sink->count, *latency = sink->arrived;

	for (uint64_t i = 0; i < count; i++)
		latency[i] -= sink->sent[i];
	qsort(latency, count, sizeof(*latency), compare_u64);
	printf("{\"p50\":%" G_GUINT64_FORMAT ",\"p95\":%" G_GUINT64_FORMAT
	       ",\"p99\":%" G_GUINT64_FORMAT ",\"max\":%" G_GUINT64_FORMAT "}",
	       percentile(latency, count, 50), percentile(latency, count, 95),
	       percentile(latency, count, 99), latency[count - 1]);
}

static void print_run(const struct options *options, struct sink *sink, uint64_t wall_ns,
		      const struct rusage *before, const struct rusage *after)
{
	guint major, minor, micro, nano;

	gst_version(&major, &minor, &micro, &nano);
	printf("{\"mode\":\"%s\",\"size\":%zu,\"pushes\":%" G_GUINT64_FORMAT
	       ",\"rate\":%" G_GUINT64_FORMAT ",\"alloc\":\"%s\",\"sink\":\"%s\""
	       ",\"gstreamer\":\"%u.%u.%u\",\"wall_ns\":%" G_GUINT64_FORMAT
	       ",\"cpu_ns\":%" G_GUINT64_FORMAT
	       ",\"voluntary_switches\":%ld,\"involuntary_switches\":%ld,\"latency_ns\":",
	       options->mode, options->size, options->pushes, options->rate,
	       alloc_names[options->alloc], options->fakesink ? "fakesink" : "pad", major, minor,
	       micro, wall_ns, cpu_ns(after) - cpu_ns(before), after->ru_nvcsw - before->ru_nvcsw,
	       after->ru_nivcsw - before->ru_nivcsw);
	if (options->rate)
		print_latency(sink);
	else
		printf("null");
	printf("}\n");
	if (fflush(stdout) != 0)
		die("stdout", strerror(errno));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_interrupt };
	struct options options;
	struct supply supply;
	struct road road;
	struct rusage before, after;
	uint64_t start, end;

	parse_options(&options, argc, argv);
	gst_init(NULL, NULL);
	gst_debug_set_active(FALSE);
	/* No SA_RESTART, so that a signal ends a sleep between two pushes. */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	build_road(&road, &options);
	open_supply(&supply, &options);
	start_stream(road.src);
	push_flat_out(road.src, &supply, WARM_UP);
	flush_road(&road);
	if (options.rate) {
		road.sink.sent = calloc(options.pushes, sizeof(uint64_t));
		road.sink.arrived = calloc(options.pushes, sizeof(uint64_t));
		if (!road.sink.sent || !road.sink.arrived)
			die("no memory for the timestamps; use fewer buffers", "--count");
		/* The queue's own lock publishes these to the streaming thread. */
		road.sink.limit = options.pushes;
	}

	getrusage(RUSAGE_SELF, &before);
	start = now_ns();
	if (options.rate)
		push_paced(road.src, &supply, &road.sink, &options);
	else
		push_flat_out(road.src, &supply, options.pushes);
	end_stream(&road);
	end = now_ns();
	getrusage(RUSAGE_SELF, &after);

	if (!interrupted)
		print_run(&options, &road.sink, end - start, &before, &after);
	free_road(&road);
	close_supply(&supply);
	if (interrupted) {
		fputs("gst-push: interrupted; no figures\n", stderr);
		return 130;
	}
	return 0;
}
