/* SPDX-License-Identifier: GPL-2.0-only */
/* Packet format of the fake codec, shared by the fake decoder and its client. */
#ifndef FRAMEPATH_TEST_FAKE_H
#define FRAMEPATH_TEST_FAKE_H

#include "v4l2.h"

#define FAKE_MAGIC 0x454b4146

struct fake {
	uint32_t magic;
	uint32_t width, height;
	uint32_t fill;
};

#endif
