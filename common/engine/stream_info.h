/* stream_info.h - constant sensors that describe an output stream.
 *
 * Flow:      stream_info_init; for each stream, set 'stream' and add its sensors; stream_info_fini
 * Ownership: the sensors live until stream_info_fini(); nobody may read the set after that call.
 * Errors:    'err' keeps the first error.  After an error no sensor is added.
 * Threads:   main. */
#ifndef COMMON_ENGINE_STREAM_INFO_H
#define COMMON_ENGINE_STREAM_INFO_H

#include "common/telemetry/sensor.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct stream_info {
    struct sensors *set;  /* [const] */
    struct sensor *items; /* [max] sensors; the first 'n' are in use */
    size_t n, max;
    const char *stream; /* name of the stream, the prefix of its sensors' names */
    int64_t now_ns;     /* [const] */
    int err;
};

/* Makes room for 'max' sensors.  Sets 'err' to -ENOMEM if there is no memory. */
void stream_info_init(struct stream_info *info, size_t max, struct sensors *set);

/* Frees the sensors.  A zero-initialised struct is accepted. */
void stream_info_fini(struct stream_info *info);

void stream_info_integer(struct stream_info *info, const char *name, int64_t value, const char *description);
void stream_info_real(struct stream_info *info, const char *name, const char *units, double value,
                      const char *description);

/* Adds a string sensor.  'text' is NULL if the text would be too long.  The sensor is then inactive. */
void stream_info_text(struct stream_info *info, const char *name, const char *text, const char *description);

/* Adds a string sensor with the text that write(arg, out) writes. */
void stream_info_written(struct stream_info *info, const char *name, void (*write)(const void *arg, FILE *out),
                         const void *arg, const char *description);

#endif
