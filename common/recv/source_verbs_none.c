/* source_verbs_none.c - instead of the verbs files, where the program was built without libibverbs and librdmacm. */
#include "common/recv/source.h"
#include "common/net/verbs.h"

#include <errno.h>
#include <stdio.h>

const bool verbs_built_in = false;

int packet_source_verbs_open(const struct packet_source_config *config, struct packet_source **source, char *why,
                             size_t why_bytes)
{
    snprintf(why, why_bytes,
             "recv.transport: this program was built without ibverbs; use udp, or build where libibverbs-dev and "
             "librdmacm-dev are");
    return -ENOTSUP;
}
