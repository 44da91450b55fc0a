/* streams.h - the streams that a file expects, and what came of them: between listening and judging. */
#ifndef TOOLS_DOCTOR_STREAMS_H
#define TOOLS_DOCTOR_STREAMS_H

#include "tools/doctor/doctor.h"
#include "tools/doctor/source.h"

#include <net/if.h>

/* A source that a file names: a polarisation of an antenna, or an F-engine. */
struct stream_input {
    const struct endpoint *endpoint; /* the first of its own; of an F-engine the first of all */
    char name[80];                   /* "m000 pol1"; of an F-engine "m000", or "feng 3" where no file names it */
    struct source_shape shape;
    uint64_t id; /* fgpu: the bit that the id must end with; xbgpu: the frequency that it must have */
    struct source source;
    char elsewhere[IF_NAMESIZE]; /* silent where it should come: the interface on which it does; "": none */
};

struct stream_file {
    const struct doctor_file *file;
    char interface[IF_NAMESIZE];
    double late_max_s, early_max_s; /* by which its heaps may be late or early while all is well */
    size_t n_inputs;
    struct stream_input *inputs;
    /* Packets that belong to none of the inputs. */
    uint64_t n_foreign, n_itemless, n_unknown;
    struct sockaddr_in foreign_from, unknown_from;
    uint64_t unknown_id;
    uint64_t n_drops;      /* of the listener, which then cannot tell losses */
    int64_t start_unix_ns; /* when the groups were joined */
    double seconds;
};

/* doctor/judge.c: adds the findings. */
void doctor_judge(struct doctor *doctor, const struct stream_file *file);

#endif
