/* stream_info.c - adds the constant sensors of output streams, once at the start. */
#include "common/engine/stream_info.h"

#include "common/base/clock.h"
#include "common/base/file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void stream_info_init(struct stream_info *info, size_t max, struct sensors *set)
{
    *info = (struct stream_info){
        .set = set, .items = calloc(max, sizeof(*info->items)), .max = max, .now_ns = clock_unix_ns()};
    info->err = info->items ? 0 : -ENOMEM;
}

void stream_info_fini(struct stream_info *info)
{
    free(info->items);
    *info = (struct stream_info){0};
}

/* Adds the sensor <stream>.<name>.  Returns NULL after an error. */
static struct sensor *add(struct stream_info *info, const char *name, const char *units, enum sensor_type type,
                          union sensor_value value, const char *description)
{
    char full[160];

    if (info->err)
        return NULL;
    assert(info->n < info->max);
    struct sensor *sensor = &info->items[info->n++];
    snprintf(full, sizeof(full), "%s.%s", info->stream, name);
    const struct sensor_desc about = {.name = full, .description = description, .units = units, .type = type};
    info->err = sensors_add(info->set, sensor, &about, (struct sensor_reading){info->now_ns, SENSOR_NOMINAL, value});
    return info->err ? NULL : sensor;
}

void stream_info_integer(struct stream_info *info, const char *name, int64_t value, const char *description)
{
    add(info, name, "", SENSOR_INTEGER, (union sensor_value){.integer = value}, description);
}

void stream_info_real(struct stream_info *info, const char *name, const char *units, double value,
                      const char *description)
{
    add(info, name, units, SENSOR_FLOAT, (union sensor_value){.real = value}, description);
}

void stream_info_text(struct stream_info *info, const char *name, const char *text, const char *description)
{
    struct sensor *sensor = add(info, name, "", SENSOR_STRING, (union sensor_value){0}, description);

    if (sensor)
        info->err = sensors_set_text(info->set, sensor, info->now_ns, text ? SENSOR_NOMINAL : SENSOR_INACTIVE,
                                     text ? text : "");
}

void stream_info_written(struct stream_info *info, const char *name, void (*write)(const void *arg, FILE *out),
                         const void *arg, const char *description)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *out = open_memstream(&text, &text_bytes);

    if (out)
        write(arg, out);
    if (file_close_text(out, &text))
        info->err = -ENOMEM;
    stream_info_text(info, name, text, description);
    free(text);
}
