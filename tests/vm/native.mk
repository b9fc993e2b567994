# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds slow parts in the root at the machine's own speed, instead of in a guest: the
# programs of the jobs, and frame hashes of the clips by ffmpeg's own decoders. OUT is
# the worktree's folder in the cache.
#
#     make -f tests/vm/native.mk OUT=FOLDER

CLIPS := $(notdir $(wildcard clips/*-180p8* clips/*-180p10* clips/*-9?x*))
PROGRAMS := $(basename $(notdir $(wildcard tests/vm/programs/*.c)))

CFLAGS := -O2 -Wall -Wextra -Wno-missing-field-initializers

# Failed recipes leave no file; a new recipe or a new root rebuilds everything.
.DELETE_ON_ERROR:
MADE_OF := tests/vm/native.mk /cache/root.made

all: $(PROGRAMS:%=$(OUT)/native/%) \
	$(foreach format,yuv420p nv12 p010le,$(CLIPS:%=$(OUT)/software/%.$(format)))

$(OUT)/native/gst-seek: tests/vm/programs/gst-seek.c $(MADE_OF) | $(OUT)/native
	$(CC) $(CFLAGS) -o $@ $< $$(pkg-config --cflags --libs gstreamer-1.0)

$(OUT)/native/%: tests/vm/programs/%.c $(wildcard tests/vm/programs/*.h kernel/pixels.* kernel/uapi/*.h) $(MADE_OF) | $(OUT)/native
	$(CC) $(CFLAGS) -static -pthread -o $@ $<

# One line per frame with its MD5; a stream that changes its size is not scaled.
define software
$(OUT)/software/%.$(1): clips/% $(MADE_OF) | $(OUT)/software
	ffmpeg -v error -nostdin -threads 1 -i $$< -noautoscale -fps_mode passthrough -pix_fmt $(1) -f framemd5 -y $$@.part
	sed -n 's/^0,.*, *\([0-9a-f]\{32\}\)$$$$/\1/p' $$@.part >$$@
	rm $$@.part
endef
$(foreach format,yuv420p nv12 p010le,$(eval $(call software,$(format))))

$(OUT)/native $(OUT)/software:
	mkdir -p $@
