// SPDX-License-Identifier: GPL-2.0-only
/*
 * Formats of the decoder node: what there is, how it lies in a buffer, and what
 * becomes of what a client or a decoder asks for. No buffers, no streaming.
 */
#include <linux/align.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "compat.h"
#include "core.h"
#include "decoder.h"

#define FP_OUTPUT_SIZE_MIN	SZ_4K
#define FP_STRIDE_MAX		(FP_SIZE_MAX * 2 + SZ_4K)
#define FP_ROWS_MAX		(FP_SIZE_MAX + SZ_1K)
#define FP_SCRATCH_SLACK	SZ_1M	/* alignment of a decoder's own planes */

struct fp_output_format {
	u32 pixelformat;
	const char *description;
};

static const struct fp_output_format fp_output_formats[] = {
	{ V4L2_PIX_FMT_H264, "H.264" },
	{ V4L2_PIX_FMT_HEVC, "HEVC" },
	{ V4L2_PIX_FMT_VP8, "VP8" },
	{ V4L2_PIX_FMT_VP9, "VP9" },
	/* The last: see fp_output_count(). */
	{ V4L2_PIX_FMT_AV1, "AV1" },
};

static unsigned int fp_output_count(void)
{
	return ARRAY_SIZE(fp_output_formats) - !fp_av1;
}

struct fp_capture_format {
	u32 pixelformat;
	u32 depth;
};

/* The first of a depth is the one a client finds set. */
static const struct fp_capture_format fp_capture_formats[] = {
	{ V4L2_PIX_FMT_YUV420, 8 },
	{ V4L2_PIX_FMT_NV12, 8 },
	{ V4L2_PIX_FMT_P010, 10 },
};

/* Before a decoder has said the depth, each that the codec has. */
static bool fp_capture_offers(struct fp_ctx *ctx, const struct fp_capture_format *fmt)
{
	if (ctx->format_known)
		return fmt->depth == ctx->format.depth;
	return fmt->depth == 8 || ctx->coded.pixelformat != V4L2_PIX_FMT_VP8;
}

static const struct fp_capture_format *fp_capture_find(struct fp_ctx *ctx, u32 pixelformat)
{
	const struct fp_capture_format *first = NULL;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fp_capture_formats); i++) {
		const struct fp_capture_format *fmt = &fp_capture_formats[i];

		if (!fp_capture_offers(ctx, fmt))
			continue;
		if (fmt->pixelformat == pixelformat)
			return fmt;
		if (!first)
			first = fmt;
	}
	return first;
}

static const struct fp_output_format *fp_output_find(u32 pixelformat)
{
	unsigned int i;

	for (i = 0; i < fp_output_count(); i++)
		if (fp_output_formats[i].pixelformat == pixelformat)
			return &fp_output_formats[i];
	return &fp_output_formats[0];
}

static u32 fp_sample_bytes(u32 pixelformat)
{
	return pixelformat == V4L2_PIX_FMT_P010 ? 2 : 1;
}

/*
 * How a frame lies in its buffer. Before a decoder has said it, a guess for the
 * samples of the pixel format that is asked about.
 */
struct fp_layout {
	u32 width, height;
	u32 bytesperline;
	u32 sizeimage;
};

static struct fp_layout fp_layout(struct fp_ctx *ctx, u32 pixelformat)
{
	const struct fp_format *format = &ctx->format;
	struct fp_layout layout = {
		.width = format->width,
		.height = format->height,
		.bytesperline = format->bytesperline,
	};

	if (!ctx->format_known) {
		layout.bytesperline *= fp_sample_bytes(pixelformat);
		layout.sizeimage = layout.bytesperline * layout.height / 2 * 3;
	} else if (pixelformat == V4L2_PIX_FMT_YUV420) {
		layout.sizeimage = format->sizeimage_native;
	} else {
		layout.sizeimage = format->sizeimage_packed;
	}
	return layout;
}

u32 fp_capture_sizeimage(struct fp_ctx *ctx)
{
	return fp_layout(ctx, ctx->pixelformat).sizeimage;
}

/* The pixels of a frame, without what lies behind them. */
u32 fp_capture_payload(struct fp_ctx *ctx)
{
	struct fp_layout layout = fp_layout(ctx, ctx->pixelformat);

	return layout.bytesperline * layout.height / 2 * 3;
}

/*
 * The largest plane that CREATE_BUFS may make: twice what the format needs, or
 * 1 MiB more, as clients allocate ahead; of OUTPUT no more than the largest packet.
 */
u32 fp_plane_limit(struct fp_ctx *ctx, bool output)
{
	u32 size = output ? ctx->coded.sizeimage : fp_capture_sizeimage(ctx);
	u32 limit = PAGE_ALIGN(size + max_t(u32, size, SZ_1M));

	return output ? min_t(u32, limit, FP_OUTPUT_SIZE_MAX) : limit;
}

/* No decoder has said anything: the frame is as large as the client says. */
static void fp_format_guess(struct fp_ctx *ctx)
{
	struct fp_format *format = &ctx->format;

	memset(format, 0, sizeof(*format));
	format->depth = 8;
	format->width = ctx->coded.width;
	format->height = ALIGN(ctx->coded.height, 2);
	format->bytesperline = ALIGN(ctx->coded.width, 64);
	format->visible_width = ctx->coded.width;
	format->visible_height = ctx->coded.height;
	format->min_buffers = 1;
	ctx->format_known = false;
	ctx->format_said = false;
	ctx->changing = false;
	ctx->pixelformat = fp_capture_find(ctx, ctx->pixelformat)->pixelformat;
}

void fp_format_reset(struct fp_ctx *ctx)
{
	struct fp_coded *coded = &ctx->coded;

	memset(coded, 0, sizeof(*coded));
	coded->pixelformat = fp_output_formats[0].pixelformat;
	coded->width = 640;
	coded->height = 480;
	coded->sizeimage = SZ_1M;
	fp_format_guess(ctx);
}

/*
 * Behind the pixels a decoder may have planes of its own, no larger than the
 * pixels: those of a frame that it has to convert.
 */
static bool fp_sizeimage_fits(u32 sizeimage, u32 pixels)
{
	return sizeimage >= pixels && sizeimage <= 2 * pixels + FP_SCRATCH_SLACK;
}

/* Whether a decoder's format can be: whatever passes is safe to compute with. */
int fp_format_check(const struct fp_format *format)
{
	u32 sample, pixels;

	if (format->depth != 8 && format->depth != 10)
		return -EINVAL;
	sample = format->depth == 8 ? 1 : 2;
	if (!format->width || format->width > FP_SIZE_MAX ||
	    !format->height || format->height > FP_ROWS_MAX || format->height % 2)
		return -EINVAL;
	if (format->bytesperline < format->width * sample ||
	    format->bytesperline > FP_STRIDE_MAX || format->bytesperline % (2 * sample))
		return -EINVAL;
	if (!format->visible_width || format->visible_width > format->width ||
	    format->left > format->width - format->visible_width ||
	    !format->visible_height || format->visible_height > format->height ||
	    format->top > format->height - format->visible_height)
		return -EINVAL;
	/* At most 20 K times 9 K times 1.5: fits in 32 bits, and its limit doubled too. */
	pixels = format->bytesperline * format->height / 2 * 3;
	if (!fp_sizeimage_fits(format->sizeimage_packed, pixels) ||
	    (format->depth == 8 && !fp_sizeimage_fits(format->sizeimage_native, pixels)))
		return -EINVAL;
	if (!format->min_buffers || format->min_buffers > FP_CAPTURE_MAX)
		return -EINVAL;
	if (format->colorspace > V4L2_COLORSPACE_DCI_P3 ||
	    format->xfer_func > V4L2_XFER_FUNC_SMPTE2084 ||
	    format->ycbcr_enc > V4L2_YCBCR_ENC_SMPTE240M ||
	    format->quantization > V4L2_QUANTIZATION_LIM_RANGE)
		return -EINVAL;
	return 0;
}

/* Whether a client that is set up for one can go on with the other. */
bool fp_format_same(const struct fp_format *a, const struct fp_format *b)
{
	return a->depth == b->depth && a->width == b->width && a->height == b->height &&
	       a->bytesperline == b->bytesperline && a->left == b->left && a->top == b->top &&
	       a->visible_width == b->visible_width && a->visible_height == b->visible_height &&
	       a->sizeimage_native == b->sizeimage_native &&
	       a->sizeimage_packed == b->sizeimage_packed && a->min_buffers == b->min_buffers;
}

/* From now on what a client asks is answered of this format. */
void fp_format_take(struct fp_ctx *ctx, const struct fp_format *format)
{
	ctx->format = *format;
	ctx->format_known = true;
	ctx->coded.width = format->width;
	ctx->coded.height = format->height;
	ctx->pixelformat = fp_capture_find(ctx, ctx->pixelformat)->pixelformat;
}

int fp_enum_output(struct v4l2_fmtdesc *f)
{
	const struct fp_output_format *fmt;

	if (f->index >= fp_output_count())
		return -EINVAL;
	fmt = &fp_output_formats[f->index];
	f->pixelformat = fmt->pixelformat;
	/* Kernels before 7 do not know AV1's. */
	strscpy(f->description, fmt->description, sizeof(f->description));
	f->flags = V4L2_FMT_FLAG_COMPRESSED | V4L2_FMT_FLAG_DYN_RESOLUTION;
	return 0;
}

int fp_enum_capture(struct fp_ctx *ctx, struct v4l2_fmtdesc *f)
{
	unsigned int i, index = 0;

	for (i = 0; i < ARRAY_SIZE(fp_capture_formats); i++) {
		if (!fp_capture_offers(ctx, &fp_capture_formats[i]))
			continue;
		if (index++ == f->index) {
			f->pixelformat = fp_capture_formats[i].pixelformat;
			return 0;
		}
	}
	return -EINVAL;
}

int fp_enum_framesizes(struct v4l2_frmsizeenum *f)
{
	bool known = fp_output_find(f->pixel_format)->pixelformat == f->pixel_format;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fp_capture_formats); i++)
		known |= fp_capture_formats[i].pixelformat == f->pixel_format;
	if (!known || f->index)
		return -EINVAL;

	fp_any_size(f, FP_SIZE_MIN, FP_SIZE_MAX);
	return 0;
}

static bool fp_colorspace_told(const struct v4l2_pix_format_mplane *pix)
{
	return pix->colorspace && pix->colorspace <= V4L2_COLORSPACE_DCI_P3;
}

/* Where nobody says: as players guess. */
static u32 fp_colorspace_guess(u32 width)
{
	return width > 1024 ? V4L2_COLORSPACE_REC709 : V4L2_COLORSPACE_SMPTE170M;
}

static void fp_fill_colors(struct fp_ctx *ctx, struct v4l2_pix_format_mplane *pix, bool decoded)
{
	const struct fp_coded *coded = &ctx->coded;
	const struct fp_format *format = &ctx->format;

	pix->colorspace = coded->colorspace ?: fp_colorspace_guess(coded->width);
	pix->xfer_func = coded->xfer_func;
	pix->ycbcr_enc = coded->ycbcr_enc;
	pix->quantization = coded->quantization;
	/* The stream knows better than the client, where it says so. */
	if (!decoded)
		return;
	if (format->colorspace)
		pix->colorspace = format->colorspace;
	if (format->xfer_func)
		pix->xfer_func = format->xfer_func;
	if (format->ycbcr_enc)
		pix->ycbcr_enc = format->ycbcr_enc;
	if (format->quantization)
		pix->quantization = format->quantization;
}

static void fp_fill_plane(struct v4l2_pix_format_mplane *pix, u32 bytesperline, u32 sizeimage)
{
	pix->field = V4L2_FIELD_NONE;
	pix->flags = 0;
	pix->num_planes = 1;
	memset(pix->reserved, 0, sizeof(pix->reserved));
	memset(pix->plane_fmt, 0, sizeof(pix->plane_fmt));
	pix->plane_fmt[0].bytesperline = bytesperline;
	pix->plane_fmt[0].sizeimage = sizeimage;
}

void fp_get_output(struct fp_ctx *ctx, struct v4l2_format *f)
{
	struct v4l2_pix_format_mplane *pix = &f->fmt.pix_mp;

	pix->pixelformat = ctx->coded.pixelformat;
	pix->width = ctx->coded.width;
	pix->height = ctx->coded.height;
	fp_fill_plane(pix, 0, ctx->coded.sizeimage);
	fp_fill_colors(ctx, pix, false);
}

static void fp_fill_capture(struct fp_ctx *ctx, struct v4l2_format *f, u32 pixelformat)
{
	struct v4l2_pix_format_mplane *pix = &f->fmt.pix_mp;
	struct fp_layout layout = fp_layout(ctx, pixelformat);

	pix->pixelformat = pixelformat;
	pix->width = layout.width;
	pix->height = layout.height;
	fp_fill_plane(pix, layout.bytesperline, layout.sizeimage);
	fp_fill_colors(ctx, pix, true);
}

void fp_get_capture(struct fp_ctx *ctx, struct v4l2_format *f)
{
	fp_fill_capture(ctx, f, ctx->pixelformat);
}

/* There is no scaling: the client chooses the pixel format, and nothing else. */
void fp_try_capture(struct fp_ctx *ctx, struct v4l2_format *f)
{
	fp_fill_capture(ctx, f, fp_capture_find(ctx, f->fmt.pix_mp.pixelformat)->pixelformat);
}

void fp_try_output(struct v4l2_format *f)
{
	struct v4l2_pix_format_mplane *pix = &f->fmt.pix_mp;
	u32 size = pix->num_planes ? pix->plane_fmt[0].sizeimage : 0;

	pix->pixelformat = fp_output_find(pix->pixelformat)->pixelformat;
	if (!pix->width || !pix->height) {
		pix->width = 640;
		pix->height = 480;
	}
	pix->width = clamp_t(u32, pix->width, FP_SIZE_MIN, FP_SIZE_MAX);
	pix->height = clamp_t(u32, pix->height, FP_SIZE_MIN, FP_SIZE_MAX);
	/* A byte per pixel is more than a sane stream's largest packet. */
	if (!size)
		size = max_t(u32, pix->width * pix->height, SZ_1M);
	size = clamp_t(u32, size, FP_OUTPUT_SIZE_MIN, FP_OUTPUT_SIZE_MAX);
	fp_fill_plane(pix, 0, PAGE_ALIGN(size));
	if (!fp_colorspace_told(pix))
		pix->colorspace = fp_colorspace_guess(pix->width);
	if (pix->xfer_func > V4L2_XFER_FUNC_SMPTE2084)
		pix->xfer_func = V4L2_XFER_FUNC_DEFAULT;
	if (pix->ycbcr_enc > V4L2_YCBCR_ENC_SMPTE240M)
		pix->ycbcr_enc = V4L2_YCBCR_ENC_DEFAULT;
	if (pix->quantization > V4L2_QUANTIZATION_LIM_RANGE)
		pix->quantization = V4L2_QUANTIZATION_DEFAULT;
}

void fp_set_output(struct fp_ctx *ctx, struct v4l2_format *f)
{
	const struct v4l2_pix_format_mplane *pix = &f->fmt.pix_mp;
	struct fp_coded *coded = &ctx->coded;
	bool told = fp_colorspace_told(pix);

	coded->sized = pix->width && pix->height;
	fp_try_output(f);
	/* What TRY_FMT has guessed comes back from many clients. */
	told = told && pix->colorspace != fp_colorspace_guess(pix->width);
	coded->pixelformat = pix->pixelformat;
	coded->width = pix->width;
	coded->height = pix->height;
	coded->sizeimage = pix->plane_fmt[0].sizeimage;
	coded->colorspace = told ? pix->colorspace : 0;
	coded->xfer_func = pix->xfer_func;
	coded->ycbcr_enc = pix->ycbcr_enc;
	coded->quantization = pix->quantization;
	fp_format_guess(ctx);
}

int fp_get_selection(struct fp_ctx *ctx, struct v4l2_selection *s)
{
	const struct fp_format *format = &ctx->format;

	switch (s->target) {
	case V4L2_SEL_TGT_CROP_BOUNDS:
		s->r.left = 0;
		s->r.top = 0;
		s->r.width = format->width;
		s->r.height = format->height;
		return 0;
	case V4L2_SEL_TGT_CROP:
	case V4L2_SEL_TGT_CROP_DEFAULT:
	case V4L2_SEL_TGT_COMPOSE:
	case V4L2_SEL_TGT_COMPOSE_DEFAULT:
	case V4L2_SEL_TGT_COMPOSE_BOUNDS:
	case V4L2_SEL_TGT_COMPOSE_PADDED:
		s->r.left = format->left;
		s->r.top = format->top;
		s->r.width = format->visible_width;
		s->r.height = format->visible_height;
		return 0;
	default:
		return -EINVAL;
	}
}
