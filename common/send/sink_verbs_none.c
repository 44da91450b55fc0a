/* sink_verbs_none.c - replaces send/sink_verbs.c in a program without ibverbs, like recv/source_verbs_none.c. */
#include "common/send/sink.h"

#include <errno.h>
#include <stdio.h>

int send_sink_verbs_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes,
             "send.transport: this program was built without ibverbs; use udp, or build with libibverbs-dev and "
             "librdmacm-dev installed");
    return -ENOTSUP;
}
