// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that shows pictures on a screen by KMS alone, as a desktop does: three buffers in turn, one page flip for
 * each refresh.
 *
 *     scanout CARD HERTZ PICTURES
 *
 * Each picture has its number, 16 bits of blocks of 16x16 pixels, black or white, the lowest bit first, at the upper left
 * corner of the screen. The buffers are larger than the screen, which shows the part from (32, 8) on. Prints the number, the
 * refresh and the time (nanoseconds) of each picture, and then shows the last one until its standard input ends.
 */
#include <drm/drm.h>
#include <drm/drm_fourcc.h>
#include <drm/drm_mode.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WIDTH = 640, HEIGHT = 480, LEFT = 32, TOP = 8, BUFFERS = 3, BITS = 16, BLOCK = 16 };

static int card;

static void call(unsigned long request, void *argument, const char *name)
{
	while (ioctl(card, request, argument)) {
		if (errno == EINTR)
			continue;
		perror(name);
		exit(1);
	}
}
#define CALL(request, argument) call(request, argument, #request)

struct buffer {
	uint32_t id, pitch;
	uint8_t *pixels;
};

static struct buffer make_buffer(void)
{
	struct drm_mode_create_dumb made = { .width = WIDTH + 2 * LEFT, .height = HEIGHT + 2 * TOP, .bpp = 32 };
	struct drm_mode_map_dumb place = { 0 };
	struct drm_mode_fb_cmd2 shown = { .width = made.width, .height = made.height, .pixel_format = DRM_FORMAT_XRGB8888 };
	struct buffer buffer;

	CALL(DRM_IOCTL_MODE_CREATE_DUMB, &made);
	shown.handles[0] = place.handle = made.handle;
	shown.pitches[0] = made.pitch;
	CALL(DRM_IOCTL_MODE_ADDFB2, &shown);
	CALL(DRM_IOCTL_MODE_MAP_DUMB, &place);
	buffer.id = shown.fb_id;
	buffer.pitch = made.pitch;
	buffer.pixels = mmap(NULL, made.size, PROT_READ | PROT_WRITE, MAP_SHARED, card, place.offset);
	if (buffer.pixels == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	/* What is outside of the screen is white. */
	memset(buffer.pixels, 255, made.size);
	for (int y = 0; y < HEIGHT; y++)
		memset(buffer.pixels + (TOP + y) * buffer.pitch + LEFT * 4, 64, WIDTH * 4);
	return buffer;
}

static void draw(const struct buffer *buffer, unsigned number)
{
	for (int y = 0; y < BLOCK; y++)
		for (int bit = 0; bit < BITS; bit++)
			memset(buffer->pixels + (TOP + y) * buffer->pitch + (LEFT + bit * BLOCK) * 4,
			       number >> bit & 1 ? 255 : 0, BLOCK * 4);
}

int main(int count, char **words)
{
	uint32_t crtcs[8], connectors[8], encoders[8];
	struct drm_mode_card_res resources = {
		.crtc_id_ptr = (uintptr_t)crtcs, .count_crtcs = 8,
		.connector_id_ptr = (uintptr_t)connectors, .count_connectors = 8,
		.encoder_id_ptr = (uintptr_t)encoders, .count_encoders = 8,
	};
	struct buffer buffers[BUFFERS];
	struct drm_mode_crtc crtc = { .count_connectors = 1, .x = LEFT, .y = TOP, .mode_valid = 1 };
	struct drm_mode_modeinfo *mode = &crtc.mode;
	unsigned hertz, pictures;

	if (count != 4)
		return 2;
	card = open(words[1], O_RDWR | O_CLOEXEC);
	if (card < 0) {
		perror(words[1]);
		return 1;
	}
	hertz = atoi(words[2]);
	pictures = atoi(words[3]);
	CALL(DRM_IOCTL_MODE_GETRESOURCES, &resources);
	for (int index = 0; index < BUFFERS; index++)
		buffers[index] = make_buffer();
	*mode = (struct drm_mode_modeinfo){
		.hdisplay = WIDTH, .hsync_start = WIDTH + 16, .hsync_end = WIDTH + 112, .htotal = 800,
		.vdisplay = HEIGHT, .vsync_start = HEIGHT + 10, .vsync_end = HEIGHT + 12, .vtotal = 525,
		.clock = 800 * 525 * hertz / 1000, .vrefresh = hertz, .name = "test",
	};
	crtc.crtc_id = crtcs[0];
	crtc.set_connectors_ptr = (uintptr_t)connectors;
	crtc.fb_id = buffers[0].id;
	draw(&buffers[0], 0);
	CALL(DRM_IOCTL_MODE_SETCRTC, &crtc);
	for (unsigned number = 1; number <= pictures; number++) {
		struct buffer *next = &buffers[number % BUFFERS];
		struct drm_mode_crtc_page_flip flip = { .crtc_id = crtcs[0], .fb_id = next->id, .flags = DRM_MODE_PAGE_FLIP_EVENT };
		struct drm_event_vblank event;

		draw(next, number);
		CALL(DRM_IOCTL_MODE_PAGE_FLIP, &flip);
		if (read(card, &event, sizeof(event)) != sizeof(event))
			return 1;
		printf("%u %u %llu\n", number, event.sequence, event.tv_sec * 1000000000ull + event.tv_usec * 1000ull);
		fflush(stdout);
	}
	while (read(0, &(char){ 0 }, 1) > 0)
		;
	return 0;
}
