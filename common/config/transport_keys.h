/* transport_keys.h - keys that the recv and send sections of a configuration file have in common: the transport of
 * packets, and the CPUs of the receive and send threads. */
#ifndef COMMON_CONFIG_TRANSPORT_KEYS_H
#define COMMON_CONFIG_TRANSPORT_KEYS_H

#include "common/config/config.h"

#include <stddef.h>

/* Names of enum transport (endpoint.h). */
extern const char *const config_transport_choices[];

/* Checks a section's transport against its other keys.  Adds an error at 'transport' if the transport needs a key that
 * is missing. */
void config_check_transport(const int *transport, const char *interface, const char *pcap_file, struct config *errors);

/* Checks whether threads can be pinned to the CPUs in recv.affinity and send.affinity.  Both daemons call this function
 * at their start.  Returns 0, or -EINVAL with one sentence in 'why'. */
int config_check_cpus(const struct config_int_list *recv, const struct config_int_list *send, char *why,
                      size_t why_bytes);

#endif
