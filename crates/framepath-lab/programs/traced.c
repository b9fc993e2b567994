// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * traced: a video program on FFmpeg's libraries that `framepath trace` observes. It
 * measures by itself what the ledger must show: the latency of each frame, costs
 * that it injects (inject.c), waits in its queue, and the number in each picture.
 *
 *     traced [OPTION...] INPUT OUTPUT REPORT
 *
 *     threads=N type=frame|slice   threads of the decoder
 *     scale=W:H                    a filter between decoder and encoder
 *     encoder=rawvideo|mpeg4       format=NAME of the muxer
 *     queue=N                      a thread of its own behind the decoder
 *     pace=MICROSECONDS            sleep before each packet
 *     pin=1                        threads on CPUs 0 and 1
 *     inject=KIND:STAGE:MICROSECONDS:EVERY
 *
 * Stages: read (inside the demuxer), send (before the decoder), buffer and
 * buffer-early (in the decoder's thread, behind and before its buffer), push, filter,
 * encode, write (before these calls), output (inside the muxer), after (between two
 * frames).
 *
 * The report has lines "packet ORDER PTS", "frame PTS BEGIN_NS END_NS PICTURE QUEUED_NS",
 * "inject PTS NS CPU_NS", and "cpu NS".
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>
#include <libavfilter/avfilter.h>
#include <libavfilter/buffersink.h>
#include <libavfilter/buffersrc.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>

#include "inject.h"

#define MOST 65536
#define QUEUE 64
#define IO_BYTES 4096

struct noted {
	int64_t pts, begin_ns, end_ns, queued_ns;
	int number;
};

static struct noted packets[MOST], frames[MOST];
static int packet_count, frame_count;

static AVFormatContext *input, *output;
static AVCodecContext *decoder, *encoder;
static AVFilterGraph *graph;
static AVFilterContext *filter_in, *filter_out;
static AVFrame *filtered;
static AVPacket *encoded;
static int input_fd, output_fd;

static const char *threads = "1", *type = "frame", *scale, *encoder_name = "rawvideo", *format;
static int depth, pace_us, pinned;

/* Bounded queue between two threads; NULL is the end. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_frame = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER;
static AVFrame *queue[QUEUE];
static int64_t pushed_ns[QUEUE];
static int queue_first, queue_count, is_idle;

static int check(int result, const char *what)
{
	if (result < 0)
		die(what, av_err2str(result));
	return result;
}

static int read_input(void *opaque, uint8_t *bytes, int size)
{
	ssize_t count;

	(void)opaque;
	/* While the program opens the file, there is no frame. */
	if (encoder || filter_in || decoder)
		inject_unnamed("read");
	count = read(input_fd, bytes, size);
	return count > 0 ? count : count == 0 ? AVERROR_EOF : AVERROR(errno);
}

static int64_t seek_input(void *opaque, int64_t offset, int whence)
{
	(void)opaque;
	if (whence == AVSEEK_SIZE)
		return AVERROR(ENOSYS);
	return lseek(input_fd, offset, whence);
}

static int write_output(void *opaque, uint8_t *bytes, int size)
{
	(void)opaque;
	if (packet_count)
		inject_unnamed("output");
	return write(output_fd, bytes, size);
}

static int get_buffer(AVCodecContext *codec, AVFrame *frame, int flags)
{
	int result;

	inject("buffer-early", frame->pts);
	result = avcodec_default_get_buffer2(codec, frame, flags);
	inject("buffer", frame->pts);
	return result;
}

/* Reads the number that the picture's first sixteen blocks show. */
static int number_of(const AVFrame *frame)
{
	const int side = frame->width / 16;
	int number = 0;

	for (int bit = 0; bit < 16; bit++)
		number |= (frame->data[0][side / 2 * frame->linesize[0] + bit * side + side / 2] > 127) << bit;
	return number;
}

static void open_graph(const AVFrame *frame)
{
	char text[128];

	graph = avfilter_graph_alloc();
	snprintf(text, sizeof(text), "video_size=%dx%d:pix_fmt=%d:time_base=%d/%d:pixel_aspect=1/1",
		 frame->width, frame->height, frame->format, input->streams[0]->time_base.num,
		 input->streams[0]->time_base.den);
	check(avfilter_graph_create_filter(&filter_in, avfilter_get_by_name("buffer"), "in", text, NULL,
					   graph), "buffer");
	check(avfilter_graph_create_filter(&filter_out, avfilter_get_by_name("buffersink"), "out", NULL,
					   NULL, graph), "buffersink");
	AVFilterContext *scaler;
	check(avfilter_graph_create_filter(&scaler, avfilter_get_by_name("scale"), "scale", scale, NULL,
					   graph), "scale");
	check(avfilter_link(filter_in, 0, scaler, 0), "link");
	check(avfilter_link(scaler, 0, filter_out, 0), "link");
	check(avfilter_graph_config(graph, NULL), "graph");
	filtered = av_frame_alloc();
}

static void open_output(const AVFrame *frame)
{
	const AVCodec *codec = avcodec_find_encoder_by_name(encoder_name);

	encoder = avcodec_alloc_context3(codec);
	encoder->width = frame->width;
	encoder->height = frame->height;
	encoder->pix_fmt = frame->format;
	encoder->time_base = input->streams[0]->time_base;
	encoder->thread_count = 1;
	if (output->oformat->flags & AVFMT_GLOBALHEADER)
		encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
	check(avcodec_open2(encoder, codec, NULL), encoder_name);
	AVStream *stream = avformat_new_stream(output, NULL);
	stream->time_base = encoder->time_base;
	check(avcodec_parameters_from_context(stream->codecpar, encoder), "stream");
	check(avformat_write_header(output, NULL), "header");
	encoded = av_packet_alloc();
}

static void write_packets(void)
{
	while (avcodec_receive_packet(encoder, encoded) >= 0) {
		const int64_t pts = encoded->pts;

		av_packet_rescale_ts(encoded, encoder->time_base, output->streams[0]->time_base);
		inject("write", pts);
		check(av_interleaved_write_frame(output, encoded), "write");
		inject_name(pts);
		for (int index = frame_count - 1; index >= 0; index--) {
			if (frames[index].pts == pts) {
				frames[index].end_ns = now_ns();
				break;
			}
		}
		inject("after", pts);
	}
}

/* Takes a frame from the decoder to the file. */
static void finish(AVFrame *frame, int64_t queued_ns)
{
	const int64_t pts = frame->pts;

	if (frame_count < MOST)
		frames[frame_count++] =
			(struct noted){ .pts = pts, .number = number_of(frame), .queued_ns = queued_ns };
	if (scale) {
		if (!graph)
			open_graph(frame);
		inject("filter", pts);
		check(av_buffersrc_add_frame_flags(filter_in, frame, AV_BUFFERSRC_FLAG_KEEP_REF), "filter");
		check(av_buffersink_get_frame(filter_out, filtered), "filter");
	}
	AVFrame *last = scale ? filtered : frame;
	if (!encoder)
		open_output(last);
	inject("encode", pts);
	last->pict_type = AV_PICTURE_TYPE_NONE;
	check(avcodec_send_frame(encoder, last), "encode");
	if (scale)
		av_frame_unref(filtered);
	write_packets();
}

static void push(AVFrame *frame)
{
	if (frame) {
		inject("push", frame->pts);
		pthread_mutex_lock(&queue_lock);
		const int can_be_late = is_idle && !queue_count;

		pthread_mutex_unlock(&queue_lock);
		if (can_be_late)
			inject_late("push", frame->pts);
	}
	/* A frame that waits for room in the queue waits in the queue. */
	const int64_t since_ns = now_ns();

	pthread_mutex_lock(&queue_lock);
	while (queue_count == depth)
		pthread_cond_wait(&has_room, &queue_lock);
	const int at = (queue_first + queue_count++) % QUEUE;

	queue[at] = frame;
	pushed_ns[at] = since_ns;
	pthread_mutex_unlock(&queue_lock);
	pthread_cond_signal(&has_frame);
	if (frame)
		inject_handed();
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity", strerror(errno));
}

static void *consume(void *unused)
{
	AVFrame *frame;
	int is_over;

	(void)unused;
	if (pinned)
		pin(1);
	do {
		pthread_mutex_lock(&queue_lock);
		is_idle = !queue_count;
		while (!queue_count)
			pthread_cond_wait(&has_frame, &queue_lock);
		is_idle = 0;
		const int64_t queued_ns = now_ns() - pushed_ns[queue_first];

		frame = queue[queue_first];
		queue_first = (queue_first + 1) % QUEUE;
		queue_count--;
		pthread_mutex_unlock(&queue_lock);
		pthread_cond_signal(&has_room);
		is_over = !frame;
		if (frame)
			finish(frame, queued_ns);
		av_frame_free(&frame);
	} while (!is_over);
	return NULL;
}

static void take_frames(void)
{
	AVFrame *frame = av_frame_alloc();

	while (avcodec_receive_frame(decoder, frame) >= 0) {
		if (!depth) {
			finish(frame, 0);
			av_frame_unref(frame);
			continue;
		}
		push(frame);
		frame = av_frame_alloc();
	}
	av_frame_free(&frame);
}

static void open_input(const char *path)
{
	AVDictionary *options = NULL;

	input_fd = open(path, O_RDONLY);
	if (input_fd < 0)
		die(path, strerror(errno));
	input = avformat_alloc_context();
	input->pb = avio_alloc_context(av_malloc(IO_BYTES), IO_BYTES, 0, NULL, read_input, NULL, seek_input);
	check(avformat_open_input(&input, path, NULL, NULL), path);
	check(avformat_find_stream_info(input, NULL), path);
	const AVCodecParameters *of_stream = input->streams[0]->codecpar;
	const AVCodec *codec = avcodec_find_decoder(of_stream->codec_id);
	AVCodecContext *made = avcodec_alloc_context3(codec);

	check(avcodec_parameters_to_context(made, of_stream), "parameters");
	made->pkt_timebase = input->streams[0]->time_base;
	if (codec->capabilities & AV_CODEC_CAP_DR1)
		made->get_buffer2 = get_buffer;
#if LIBAVCODEC_VERSION_MAJOR < 60
	made->thread_safe_callbacks = 1;
#endif
	av_dict_set(&options, "threads", threads, 0);
	av_dict_set(&options, "thread_type", type, 0);
	check(avcodec_open2(made, codec, &options), "decoder");
	decoder = made;
}

static void set(const char *option)
{
	const char *value = strchr(option, '=') + 1;
	const size_t length = value - option;

	if (!strncmp(option, "threads=", length))
		threads = value;
	else if (!strncmp(option, "type=", length))
		type = value;
	else if (!strncmp(option, "scale=", length))
		scale = value;
	else if (!strncmp(option, "encoder=", length))
		encoder_name = value;
	else if (!strncmp(option, "format=", length))
		format = value;
	else if (!strncmp(option, "queue=", length))
		depth = atoi(value) < QUEUE ? atoi(value) : QUEUE;
	else if (!strncmp(option, "pace=", length))
		pace_us = atoi(value);
	else if (!strncmp(option, "pin=", length))
		pinned = atoi(value);
	else if (!strncmp(option, "inject=", length))
		inject_prepare(value, pinned ? depth > 0 : -1);
	else
		die(option, "no such option");
}

static void report(const char *path)
{
	FILE *file = fopen(path, "w");
	struct rusage usage;

	if (!file)
		die(path, strerror(errno));
	for (int index = 0; index < packet_count; index++)
		fprintf(file, "packet %d %lld\n", index, (long long)packets[index].pts);
	for (int index = 0; index < frame_count; index++) {
		const struct noted *frame = &frames[index];
		int64_t begin_ns = 0;

		for (int at = 0; at < packet_count; at++)
			if (packets[at].pts == frame->pts)
				begin_ns = packets[at].begin_ns;
		fprintf(file, "frame %lld %lld %lld %d %lld\n", (long long)frame->pts, (long long)begin_ns,
			(long long)frame->end_ns, frame->number, (long long)frame->queued_ns);
	}
	inject_report(file);
	getrusage(RUSAGE_SELF, &usage);
	fprintf(file, "cpu %lld\n",
		(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
		(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL);
	fclose(file);
}

int main(int count, char **words)
{
	pthread_t consumer;
	AVPacket *packet = av_packet_alloc();

	av_log_set_level(AV_LOG_ERROR);
	while (count > 4) {
		set(words[1]);
		words++, count--;
	}
	if (count != 4)
		die("usage", "traced [OPTION...] INPUT OUTPUT REPORT");
	if (pinned)
		pin(0);
	output_fd = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
	check(avformat_alloc_output_context2(&output, NULL, format ? format : "rawvideo", NULL), "muxer");
	output->pb = avio_alloc_context(av_malloc(IO_BYTES), IO_BYTES, 1, NULL, NULL, write_output, NULL);
	open_input(words[1]);
	if (depth && pthread_create(&consumer, NULL, consume, NULL))
		die("pthread_create", strerror(errno));
	for (;;) {
		if (pace_us)
			usleep(pace_us);
		const int64_t begin_ns = now_ns();

		if (av_read_frame(input, packet) < 0)
			break;
		inject_name(packet->pts);
		if (packet->stream_index == 0 && packet_count < MOST) {
			packets[packet_count++] = (struct noted){ .pts = packet->pts, .begin_ns = begin_ns };
			inject("send", packet->pts);
			check(avcodec_send_packet(decoder, packet), "decode");
			take_frames();
		}
		av_packet_unref(packet);
	}
	check(avcodec_send_packet(decoder, NULL), "drain");
	take_frames();
	if (depth) {
		push(NULL);
		pthread_join(consumer, NULL);
	}
	if (encoder) {
		avcodec_send_frame(encoder, NULL);
		write_packets();
		av_write_trailer(output);
	}
	report(words[3]);
	return 0;
}
