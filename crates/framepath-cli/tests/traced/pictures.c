// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Observer of the pictures that a program shows, preloaded into it: knows nothing of framepath. Each picture has a
 * number, a bit in each of eight stripes. For each call that shows one, writes a line to the file PICTURES: the times
 * before and behind the call, CLOCK_MONOTONIC nanoseconds, and the number.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The first fields of Xlib's struct. */
struct XImage {
	int width, height, xoffset, format;
	char *data;
	int byte_order, bitmap_unit, bitmap_bit_order, bitmap_pad, depth, bytes_per_line, bits_per_pixel;
};

static __thread int uploaded = -1;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void *real(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY);
	void *function = handle ? dlsym(handle, name) : NULL;

	if (!function)
		abort();
	return function;
}

/* Reads the number from the middle row of a picture; `step` is the distance of two pixels. */
static int number(const unsigned char *data, int width, int height, int pitch, int step)
{
	int bits = 0;

	for (int bit = 0; bit < 8; bit++) {
		int x = (2 * bit + 1) * width / 16;

		bits |= (data[(long)(height / 2) * pitch + x * step] > 128) << bit;
	}
	return bits;
}

static void report(uint64_t begin, int picture)
{
	static int file = -1;
	char line[80];
	int bytes = snprintf(line, sizeof line, "%llu %llu %d\n", (unsigned long long)begin,
			     (unsigned long long)now(), picture);

	if (file < 0)
		file = open(getenv("PICTURES"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (write(file, line, bytes) != bytes)
		abort();
}

/* Icons and pointers are smaller than the clip. */
static int is_picture(const struct XImage *image)
{
	return image->bits_per_pixel == 32 && image->width >= 200;
}

static int number_of(const struct XImage *image)
{
	return number((const unsigned char *)image->data, image->width, image->height, image->bytes_per_line, 4);
}

int XPutImage(void *display, unsigned long window, void *context, struct XImage *image, int from_x, int from_y,
	      int to_x, int to_y, unsigned int width, unsigned int height)
{
	static int (*put)(void *, unsigned long, void *, struct XImage *, int, int, int, int, unsigned int, unsigned int);
	uint64_t begin = now();
	int result;

	if (!put)
		put = real("libX11.so.6", "XPutImage");
	result = put(display, window, context, image, from_x, from_y, to_x, to_y, width, height);
	if (is_picture(image))
		report(begin, number_of(image));
	return result;
}

int XShmPutImage(void *display, unsigned long window, void *context, struct XImage *image, int from_x, int from_y,
		 int to_x, int to_y, unsigned int width, unsigned int height, int event)
{
	static int (*put)(void *, unsigned long, void *, struct XImage *, int, int, int, int, unsigned int, unsigned int,
			  int);
	/* The server may change the memory's owner behind the call. */
	int picture = is_picture(image) ? number_of(image) : -1;
	uint64_t begin = now();
	int result;

	if (!put)
		put = real("libXext.so.6", "XShmPutImage");
	result = put(display, window, context, image, from_x, from_y, to_x, to_y, width, height, event);
	if (picture >= 0)
		report(begin, picture);
	return result;
}

int SDL_UpdateYUVTexture(void *texture, const void *part, const unsigned char *luma, int pitch, const unsigned char *u,
			 int u_pitch, const unsigned char *v, int v_pitch)
{
	static int (*update)(void *, const void *, const unsigned char *, int, const unsigned char *, int,
			     const unsigned char *, int);

	if (!update)
		update = real("libSDL2-2.0.so.0", "SDL_UpdateYUVTexture");
	/* The clip is 256 by 64. */
	uploaded = number(luma, 256, 64, pitch, 1);
	return update(texture, part, luma, pitch, u, u_pitch, v, v_pitch);
}

void SDL_RenderPresent(void *renderer)
{
	static void (*present)(void *);
	uint64_t begin = now();

	if (!present)
		present = real("libSDL2-2.0.so.0", "SDL_RenderPresent");
	present(renderer);
	/* Without a new texture, it shows the last picture again. */
	if (uploaded >= 0)
		report(begin, uploaded);
	uploaded = -1;
}
