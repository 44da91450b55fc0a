/* streams.h - the streams that a file expects, and the measurements of their packets.  streams.c makes the
 * measurements, and judge.c judges them. */
#ifndef TOOLS_DOCTOR_STREAMS_H
#define TOOLS_DOCTOR_STREAMS_H

#include "tools/doctor/doctor.h"
#include "tools/doctor/source.h"

#include <net/if.h>

/* A source that a file names: a polarisation of an antenna, or an F-engine. */
struct stream_input {
    const struct endpoint *endpoint; /* first endpoint of the input; for an F-engine, the first endpoint of the file */
    char name[80];                   /* "m000 pol1"; for an F-engine "m000", or "feng 3" if no file names the antenna */
    struct source_shape shape;
    uint64_t id; /* for fgpu, the required last bit of the digitiser's id; for xbgpu, the required first channel (item
                  * frequency) */
    struct source source;
    /* A source may be silent on its own interface although its packets arrive on another interface.  This text is the
     * name of the other interface, or "". */
    char elsewhere[IF_NAMESIZE];
};

struct stream_file {
    const struct doctor_file *file;
    char interface[IF_NAMESIZE];
    double late_max_s, early_max_s; /* limits in s: a heap that is later or earlier has a wrong time */
    size_t n_inputs;
    struct stream_input *inputs;
    /* Packets that belong to no input: not SPEAD-64-48, without the required items, or with an unknown id. */
    uint64_t n_foreign, n_itemless, n_unknown;
    struct sockaddr_in foreign_from, unknown_from;
    uint64_t unknown_id;
    uint64_t n_drops;      /* number of packets that cbf-doctor's own sockets lost; if > 0, losses are not judged */
    int64_t start_unix_ns; /* time at which the groups were joined */
    double seconds;
};

/* Adds the findings about a file's streams (doctor/judge.c). */
void doctor_judge(struct doctor *doctor, const struct stream_file *file);

#endif
