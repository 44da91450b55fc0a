/* stream_info.h - sensors that say what a stream is, and never change.
 *
 * Flow:      stream_info_init, for each stream: 'stream' set, then its sensors added; stream_info_fini
 * Ownership: the sensors live until stream_info_fini(); nobody may read the set any more by then.
 * Errors:    the first one stays in 'err'; nothing is added after it.
 * Threads:   main. */
#ifndef COMMON_ENGINE_STREAM_INFO_H
#define COMMON_ENGINE_STREAM_INFO_H

#include "common/telemetry/sensor.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct stream_info {
    struct sensors *set;  /* [const] */
    struct sensor *items; /* [n] of [max] */
    size_t n, max;
    const char *stream; /* what names begin with */
    int64_t now_ns;     /* [const] */
    int err;
};

/* Makes room for 'max' sensors; -ENOMEM is in 'err'. */
void stream_info_init(struct stream_info *info, size_t max, struct sensors *set);

/* A struct of zeros is accepted. */
void stream_info_fini(struct stream_info *info);

void stream_info_integer(struct stream_info *info, const char *name, int64_t value, const char *description);
void stream_info_real(struct stream_info *info, const char *name, const char *units, double value,
                      const char *description);

/* 'text' NULL: it is too long to be told. */
void stream_info_text(struct stream_info *info, const char *name, const char *text, const char *description);

/* The same of what write(arg, out) writes. */
void stream_info_written(struct stream_info *info, const char *name, void (*write)(const void *arg, FILE *out),
                         const void *arg, const char *description);

#endif
