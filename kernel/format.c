// SPDX-License-Identifier: GPL-2.0-only
/*
 * Formats of the decoder node: the lists, layouts in a buffer, and the ioctls that
 * read and set formats and selections. No buffers, no streaming.
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

static const u32 fp_output_formats[] = {
	V4L2_PIX_FMT_H264,
	V4L2_PIX_FMT_HEVC,
	V4L2_PIX_FMT_VP8,
	V4L2_PIX_FMT_VP9,
	/* The last: see fp_output_count(). */
	V4L2_PIX_FMT_AV1,
};

static unsigned int fp_output_count(void)
{
	return ARRAY_SIZE(fp_output_formats) - !fp_av1;
}

struct fp_capture_format {
	u32 pixelformat;
	u32 depth;
};

/* The first format of a depth is the default. */
static const struct fp_capture_format fp_capture_formats[] = {
	{ V4L2_PIX_FMT_YUV420, 8 },
	{ V4L2_PIX_FMT_NV12, 8 },
	{ V4L2_PIX_FMT_P010, 10 },
};

/*
 * Reports whether CAPTURE offers the format: formats of the stream's depth, or,
 * before a decoder has reported it, of each depth that the codec can have.
 */
static bool fp_capture_offers(struct fp_ctx *ctx, const struct fp_capture_format *fmt)
{
	if (ctx->format_known)
		return fmt->depth == ctx->format.depth;
	return fmt->depth == 8 || ctx->coded.pixelformat != V4L2_PIX_FMT_VP8;
}

/* Returns the offered CAPTURE format with this pixelformat, else the first offered one. */
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

/* Returns the OUTPUT format itself, or the default if the node does not offer it. */
static u32 fp_output_find(u32 pixelformat)
{
	unsigned int i;

	for (i = 0; i < fp_output_count(); i++)
		if (fp_output_formats[i] == pixelformat)
			return pixelformat;
	return fp_output_formats[0];
}

static u32 fp_sample_bytes(u32 pixelformat)
{
	return pixelformat == V4L2_PIX_FMT_P010 ? 2 : 1;
}

/*
 * Layout of a CAPTURE frame in its buffer. Before a decoder has reported the format:
 * a guess from the client's size and the bytes per sample of the pixel format.
 */
struct fp_layout {
	u32 width, height;		/* pixels */
	u32 bytesperline;		/* stride of luma, bytes */
	u32 sizeimage;			/* size of the buffer, bytes */
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

/* Returns the bytes of a CAPTURE frame's pixels, without the decoder's scratch planes. */
u32 fp_capture_payload(struct fp_ctx *ctx)
{
	struct fp_layout layout = fp_layout(ctx, ctx->pixelformat);

	return layout.bytesperline * layout.height / 2 * 3;
}

/*
 * Returns the bytes of the largest plane that CREATE_BUFS may make, as clients
 * allocate ahead: twice the format's size or 1 MiB more, whichever is larger; on
 * OUTPUT no more than the largest packet.
 */
u32 fp_plane_limit(struct fp_ctx *ctx, bool output)
{
	u32 size = output ? ctx->coded.sizeimage : fp_capture_sizeimage(ctx);
	u32 limit = PAGE_ALIGN(size + max_t(u32, size, SZ_1M));

	return output ? min_t(u32, limit, FP_OUTPUT_SIZE_MAX) : limit;
}

/* Sets the CAPTURE format to a guess from the client's size, until a decoder reports one. */
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
	ctx->format_reported = false;
	ctx->changing = false;
	ctx->pixelformat = fp_capture_find(ctx, ctx->pixelformat)->pixelformat;
}

void fp_format_reset(struct fp_ctx *ctx)
{
	struct fp_coded *coded = &ctx->coded;

	memset(coded, 0, sizeof(*coded));
	coded->pixelformat = fp_output_formats[0];
	coded->width = 640;
	coded->height = 480;
	coded->sizeimage = SZ_1M;
	fp_format_guess(ctx);
}

/*
 * Reports whether a decoder's sizeimage is possible for a frame with so many bytes of
 * pixels. Behind the pixels a decoder may have scratch planes, no larger than the
 * pixels and FP_SCRATCH_SLACK: those of a frame that it converts.
 */
static bool fp_sizeimage_fits(u32 sizeimage, u32 pixels)
{
	return sizeimage >= pixels && sizeimage <= 2 * pixels + FP_SCRATCH_SLACK;
}

/*
 * Checks a format that a decoder has reported. Returns -EINVAL, or 0 for a format
 * with which the module's computations do not overflow.
 */
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

/*
 * Reports whether a client that is set up for one format can go on with the other.
 * Colours may differ.
 */
bool fp_format_same(const struct fp_format *a, const struct fp_format *b)
{
	return a->depth == b->depth && a->width == b->width && a->height == b->height &&
	       a->bytesperline == b->bytesperline && a->left == b->left && a->top == b->top &&
	       a->visible_width == b->visible_width && a->visible_height == b->visible_height &&
	       a->sizeimage_native == b->sizeimage_native &&
	       a->sizeimage_packed == b->sizeimage_packed && a->min_buffers == b->min_buffers;
}

/* Makes the format that a decoder has reported that of the stream. */
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
	if (f->index >= fp_output_count())
		return -EINVAL;
	f->pixelformat = fp_output_formats[f->index];
	fp_describe_av1(f);
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
	bool known = fp_output_find(f->pixel_format) == f->pixel_format;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fp_capture_formats); i++)
		known |= fp_capture_formats[i].pixelformat == f->pixel_format;
	if (!known || f->index)
		return -EINVAL;

	fp_any_size(f, FP_SIZE_MIN, FP_SIZE_MAX);
	return 0;
}

static bool fp_colorspace_given(const struct v4l2_pix_format_mplane *pix)
{
	return pix->colorspace && pix->colorspace <= V4L2_COLORSPACE_DCI_P3;
}

/*
 * Returns the colour space for a width if neither the stream nor the client gives
 * one: the guess that players make.
 */
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
	/* The stream's own values, where it has some, override the client's. */
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

/*
 * Adjusts f to the nearest CAPTURE format. The node does not scale, so that the
 * client chooses only the pixel format.
 */
void fp_try_capture(struct fp_ctx *ctx, struct v4l2_format *f)
{
	fp_fill_capture(ctx, f, fp_capture_find(ctx, f->fmt.pix_mp.pixelformat)->pixelformat);
}

void fp_try_output(struct v4l2_format *f)
{
	struct v4l2_pix_format_mplane *pix = &f->fmt.pix_mp;
	u32 size = pix->num_planes ? pix->plane_fmt[0].sizeimage : 0;

	pix->pixelformat = fp_output_find(pix->pixelformat);
	if (!pix->width || !pix->height) {
		pix->width = 640;
		pix->height = 480;
	}
	pix->width = clamp_t(u32, pix->width, FP_SIZE_MIN, FP_SIZE_MAX);
	pix->height = clamp_t(u32, pix->height, FP_SIZE_MIN, FP_SIZE_MAX);
	/* The largest packet of a usual stream has less than a byte per pixel. */
	if (!size)
		size = max_t(u32, pix->width * pix->height, SZ_1M);
	size = clamp_t(u32, size, FP_OUTPUT_SIZE_MIN, FP_OUTPUT_SIZE_MAX);
	fp_fill_plane(pix, 0, PAGE_ALIGN(size));
	if (!fp_colorspace_given(pix))
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
	bool given = fp_colorspace_given(pix);

	coded->sized = pix->width && pix->height;
	fp_try_output(f);
	/* Many clients set what TRY_FMT has guessed. */
	given = given && pix->colorspace != fp_colorspace_guess(pix->width);
	coded->pixelformat = pix->pixelformat;
	coded->width = pix->width;
	coded->height = pix->height;
	coded->sizeimage = pix->plane_fmt[0].sizeimage;
	coded->colorspace = given ? pix->colorspace : 0;
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
	/* The decoder writes the whole coded frame. */
	case V4L2_SEL_TGT_COMPOSE_PADDED:
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
		s->r.left = format->left;
		s->r.top = format->top;
		s->r.width = format->visible_width;
		s->r.height = format->visible_height;
		return 0;
	default:
		return -EINVAL;
	}
}

static bool fp_rect_contains(const struct v4l2_rect *outer, const struct v4l2_rect *inner)
{
	return inner->left >= outer->left && inner->top >= outer->top &&
	       (s64)inner->left + inner->width <= (s64)outer->left + outer->width &&
	       (s64)inner->top + inner->height <= (s64)outer->top + outer->height;
}

/*
 * Writes the rectangle that applies to s: that of the stream, as nothing is scaled.
 * Returns -ERANGE if it breaks a constraint flag of the client, -EINVAL for a target
 * that cannot be set.
 */
int fp_set_selection(struct fp_ctx *ctx, struct v4l2_selection *s)
{
	struct v4l2_selection applied = *s;
	int ret;

	if (s->target != V4L2_SEL_TGT_CROP && s->target != V4L2_SEL_TGT_COMPOSE)
		return -EINVAL;
	ret = fp_get_selection(ctx, &applied);
	if (ret)
		return ret;
	if ((s->flags & V4L2_SEL_FLAG_GE && !fp_rect_contains(&applied.r, &s->r)) ||
	    (s->flags & V4L2_SEL_FLAG_LE && !fp_rect_contains(&s->r, &applied.r)))
		return -ERANGE;
	s->r = applied.r;
	return 0;
}
