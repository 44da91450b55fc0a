/* transport_keys.c - keys that the recv and send sections have in common, and their checks. */
#include "common/config/transport_keys.h"

#include "common/net/endpoint.h"
#include "common/base/thread.h"

const char *const config_transport_choices[] = {"udp", "ibverbs", NULL}; /* enum transport */

void config_check_transport(const int *transport, const char *interface, const char *pcap_file, struct config *errors)
{
    if (*transport == TRANSPORT_IBVERBS && !interface && !pcap_file)
        config_error(errors, transport, "transport: ibverbs needs an interface, which selects the NIC");
}

int config_check_cpus(const struct config_int_list *recv, const struct config_int_list *send, char *why,
                      size_t why_bytes)
{
    int err = threads_check_cpus(recv->items, recv->n, "recv.affinity", why, why_bytes);

    return err ? err : threads_check_cpus(send->items, send->n, "send.affinity", why, why_bytes);
}
