// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * causes: a video program on FFmpeg's libraries that has costs of one kind in one place, and measures them by clocks of its
 * own. It demuxes raw pictures that it makes itself, decodes, filters, encodes and writes them.
 *
 *     causes KIND PLACE [OPTION=VALUE...]
 *
 *     us=MICROSECONDS   length of an injection, 30000 without it; kinds with a truth of their own choose theirs
 *     frames=N          80 without it
 *     every=N           each N-th frame has an injection, the 10th without it
 *     report=FILE       standard output without it
 *     folder=DIR        of the file that `disk` and `major-faults` read, on a disk; the program's own without it
 *
 * Places: demux (in the demuxer's read callback), filter (in a frei0r filter), encode (on a frame thread of the encoder, in
 * its get_encode_buffer); gst is that of causes_gst.c, which has the same arguments.
 * Kinds: the table in inject_causes.c. `causes list` prints them.
 *
 * By hand, in this folder:
 *
 *     mkdir -p /tmp/causes
 *     libraries=$(pkg-config --cflags --libs libavformat libavcodec libavfilter libavutil)
 *     cc -std=gnu11 -O2 -rdynamic -o /tmp/causes/causes causes.c inject_causes.c $libraries -pthread
 *     cc -std=gnu11 -O2 -fPIC -shared -o /tmp/causes/causes_frei0r.so causes_frei0r.c
 *     cc -std=gnu11 -O2 -o /tmp/causes/causes_gst causes_gst.c inject_causes.c \
 *         $(pkg-config --cflags --libs gstreamer-1.0) -pthread
 *     /tmp/causes/causes lock encode                                          what the program itself measures
 *     framepath trace --csv /tmp/causes/frames.csv -- /tmp/causes/causes lock encode report=/tmp/causes/report
 *
 * The test (causes.rs) of some kinds, with its table: FRAMEPATH_TEST_CAUSES=lock,quota and `--test traced -- causes`.
 *
 * The report has a line "inject KIND PLACE FRAME BEGIN_NS END_NS WALL_NS CPU_NS INJECTED_NS DETAIL" for each injection.
 * INJECTED_NS is the length that the ledger must show: inject_causes.c says how each kind knows it. DETAIL, to the end of the
 * line, is the peer's address, the file's path or the name of the thread that holds the lock; "-" without one. The exit code
 * is 77 if this machine cannot inject the kind; the reason is on standard error.
 */
#define _GNU_SOURCE

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>
#include <libavfilter/avfilter.h>
#include <libavfilter/buffersink.h>
#include <libavfilter/buffersrc.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>

#include "inject_causes.h"

enum { WIDTH = 64, HEIGHT = 48, PICTURE = WIDTH * HEIGHT * 4, IO_BYTES = 4096, RATE = 25, OUTSTANDING = 16 };

static AVFormatContext *input, *output;
static AVCodecContext *decoder, *encoder;
static AVFilterGraph *graph;
static AVFilterContext *filter_in, *filter_out;
static AVFrame *filtered;
static AVPacket *encoded;

/* Frame that the demuxer has not read yet; -1 when its turn is over. */
static int64_t next_frame = -1;
static int64_t bytes_left;

/* Encoder's buffers with an injection whose frame is not known yet. */
static struct {
    _Atomic(const uint8_t *) data;
    int injection;
} outstanding[OUTSTANDING];

static int is_place(const char *place)
{
    return !strcmp(causes_place(), place);
}

static int check(int result, const char *what)
{
    if (result < 0)
        die(what, av_err2str(result));
    return result;
}

static int read_input(void *opaque, uint8_t *bytes, int size)
{
    (void)opaque;
    if (!bytes_left)
        return AVERROR_EOF;
    if (next_frame >= 0 && is_place("demux"))
        causes_inject(next_frame);
    next_frame = -1;
    size = size < bytes_left ? size : bytes_left;
    bytes_left -= size;
    memset(bytes, bytes_left / PICTURE, size);
    return size;
}

void causes_filter(double ms)
{
    if (is_place("filter"))
        causes_inject((int64_t)(ms * RATE / 1000 + 0.5));
}

static int get_encode_buffer(AVCodecContext *codec, AVPacket *packet, int flags)
{
    static atomic_int calls;
    const int injection = causes_inject(atomic_fetch_add(&calls, 1));
    const int result = avcodec_default_get_encode_buffer(codec, packet, flags);

    if (injection >= 0 && result >= 0) {
        outstanding[injection % OUTSTANDING].injection = injection;
        atomic_store(&outstanding[injection % OUTSTANDING].data, packet->data);
    }
    return result;
}

/* Gives the injection in the buffer of this packet the packet's time. */
static void name(const AVPacket *packet)
{
    for (int at = 0; at < OUTSTANDING; at++) {
        const uint8_t *data = atomic_load(&outstanding[at].data);

        if (data && data == packet->data) {
            causes_name(outstanding[at].injection, packet->pts);
            atomic_store(&outstanding[at].data, NULL);
        }
    }
}

static void open_input(void)
{
    AVDictionary *options = NULL;
    const AVInputFormat *format = av_find_input_format("rawvideo");
    char text[32];

    snprintf(text, sizeof(text), "%dx%d", WIDTH, HEIGHT);
    av_dict_set(&options, "video_size", text, 0);
    av_dict_set(&options, "pixel_format", "bgra", 0);
    av_dict_set_int(&options, "framerate", RATE, 0);
    bytes_left = (int64_t)PICTURE * causes_frames();
    input = avformat_alloc_context();
    input->pb = avio_alloc_context(av_malloc(IO_BYTES), IO_BYTES, 0, NULL, read_input, NULL, NULL);
    check(avformat_open_input(&input, NULL, format, &options), "demuxer");
    const AVCodecParameters *of_stream = input->streams[0]->codecpar;
    const AVCodec *codec = avcodec_find_decoder(of_stream->codec_id);

    decoder = avcodec_alloc_context3(codec);
    check(avcodec_parameters_to_context(decoder, of_stream), "decoder's parameters");
    decoder->pkt_timebase = input->streams[0]->time_base;
    check(avcodec_open2(decoder, codec, NULL), "decoder");
}

/* The filter is a plugin beside this program. */
static void open_graph(void)
{
    char text[128], folder[PATH_MAX];
    AVFilterContext *filter;
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

    if (length < 0)
        die("/proc/self/exe", "cannot read the link");
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    setenv("FREI0R_PATH", folder, 1);
    graph = avfilter_graph_alloc();
    graph->nb_threads = 1;
    snprintf(text, sizeof(text), "video_size=%dx%d:pix_fmt=%d:time_base=%d/%d:pixel_aspect=1/1", WIDTH, HEIGHT,
             AV_PIX_FMT_BGRA, decoder->pkt_timebase.num, decoder->pkt_timebase.den);
    check(avfilter_graph_create_filter(&filter_in, avfilter_get_by_name("buffer"), "in", text, NULL, graph), "buffer");
    check(avfilter_graph_create_filter(&filter_out, avfilter_get_by_name("buffersink"), "out", NULL, NULL, graph),
          "buffersink");
    if (!avfilter_get_by_name("frei0r")) {
        fprintf(stderr, "not available here: this FFmpeg has no filter frei0r\n");
        exit(UNAVAILABLE);
    }
    check(avfilter_graph_create_filter(&filter, avfilter_get_by_name("frei0r"), "frei0r", "causes_frei0r", NULL, graph),
          "causes_frei0r.so in the program's folder");
    check(avfilter_link(filter_in, 0, filter, 0), "link");
    check(avfilter_link(filter, 0, filter_out, 0), "link");
    check(avfilter_graph_config(graph, NULL), "graph");
    filtered = av_frame_alloc();
}

static void open_output(void)
{
    const AVCodec *codec = avcodec_find_encoder_by_name("rawvideo");

    check(avformat_alloc_output_context2(&output, NULL, "nut", NULL), "muxer");
    check(avio_open(&output->pb, "/dev/null", AVIO_FLAG_WRITE), "/dev/null");
    encoder = avcodec_alloc_context3(codec);
    encoder->width = WIDTH;
    encoder->height = HEIGHT;
    encoder->pix_fmt = AV_PIX_FMT_BGRA;
    encoder->time_base = (AVRational){ 1, RATE };
    encoder->thread_count = is_place("encode") ? 2 : 1;
    encoder->thread_type = FF_THREAD_FRAME;
    if (is_place("encode"))
        encoder->get_encode_buffer = get_encode_buffer;
    if (output->oformat->flags & AVFMT_GLOBALHEADER)
        encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    check(avcodec_open2(encoder, codec, NULL), "encoder");
    AVStream *stream = avformat_new_stream(output, NULL);

    stream->time_base = encoder->time_base;
    check(avcodec_parameters_from_context(stream->codecpar, encoder), "stream");
    check(avformat_write_header(output, NULL), "header");
    encoded = av_packet_alloc();
}

static void write_packets(void)
{
    while (avcodec_receive_packet(encoder, encoded) >= 0) {
        name(encoded);
        av_packet_rescale_ts(encoded, encoder->time_base, output->streams[0]->time_base);
        check(av_interleaved_write_frame(output, encoded), "write");
    }
}

static void take_frames(AVFrame *frame)
{
    while (avcodec_receive_frame(decoder, frame) >= 0) {
        check(av_buffersrc_add_frame_flags(filter_in, frame, AV_BUFFERSRC_FLAG_KEEP_REF), "filter");
        check(av_buffersink_get_frame(filter_out, filtered), "filter");
        check(avcodec_send_frame(encoder, filtered), "encode");
        av_frame_unref(filtered);
        av_frame_unref(frame);
        write_packets();
    }
}

int main(int count, char **words)
{
    causes_prepare(count, words);
    if (!is_place("demux") && !is_place("filter") && !is_place("encode"))
        die(causes_place(), "no such place; expected demux, filter or encode");
    av_log_set_level(AV_LOG_ERROR);
    open_input();
    open_graph();
    open_output();
    causes_join();
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();

    for (int64_t number = 0;; number++) {
        next_frame = number;
        if (av_read_frame(input, packet) < 0)
            break;
        check(avcodec_send_packet(decoder, packet), "decode");
        av_packet_unref(packet);
        take_frames(frame);
    }
    check(avcodec_send_packet(decoder, NULL), "drain");
    take_frames(frame);
    check(avcodec_send_frame(encoder, NULL), "drain");
    write_packets();
    check(av_write_trailer(output), "trailer");
    causes_report();
    return 0;
}
