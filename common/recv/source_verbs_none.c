/* source_verbs_none.c - replaces the verbs files if the program was built without libibverbs and librdmacm. */
#include "common/recv/source.h"
#include "common/net/verbs.h"

#include <errno.h>
#include <stdio.h>

const bool verbs_built_in = false;

int recv_source_verbs_open(const struct recv_source_config *config, struct recv_source **source, char *why,
                           size_t why_bytes)
{
    snprintf(why, why_bytes,
             "recv.transport: this program was built without ibverbs; use udp, or build with libibverbs-dev and "
             "librdmacm-dev installed");
    return -ENOTSUP;
}
