// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * causes_frei0r: a frei0r filter that copies the picture and calls the program that has loaded the filter. The types are
 * those of frei0r.h, version 1.2 of the interface.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct filter {
    unsigned width, height;
};

struct filter_info {
    const char *name, *author;
    int plugin_type, color_model, frei0r_version, major_version, minor_version, num_params;
    const char *explanation;
};

enum { PLUGIN_TYPE_FILTER = 0, COLOR_MODEL_BGRA8888 = 0, FREI0R_VERSION = 1 };

/* Defined in causes.c; FFmpeg gives the time in milliseconds. */
void causes_filter(double ms);

int f0r_init(void)
{
    return 1;
}

void f0r_deinit(void)
{
}

void f0r_get_plugin_info(struct filter_info *info)
{
    *info = (struct filter_info){
        .name = "causes",
        .author = "framepath",
        .plugin_type = PLUGIN_TYPE_FILTER,
        .color_model = COLOR_MODEL_BGRA8888,
        .frei0r_version = FREI0R_VERSION,
        .explanation = "calls the program",
    };
}

void f0r_get_param_info(void *info, int index)
{
    (void)info, (void)index;
}

void *f0r_construct(unsigned width, unsigned height)
{
    struct filter *filter = malloc(sizeof(*filter));

    if (filter)
        *filter = (struct filter){ width, height };
    return filter;
}

void f0r_destruct(void *filter)
{
    free(filter);
}

void f0r_set_param_value(void *filter, void *value, int index)
{
    (void)filter, (void)value, (void)index;
}

void f0r_get_param_value(void *filter, void *value, int index)
{
    (void)filter, (void)value, (void)index;
}

void f0r_update(void *of_filter, double ms, const uint32_t *in, uint32_t *out)
{
    const struct filter *filter = of_filter;

    memcpy(out, in, (size_t)filter->width * filter->height * 4);
    causes_filter(ms);
}
