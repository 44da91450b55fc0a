/* transport_keys.h - what the recv and send sections of a configuration file have in common: how packets travel, and
 * the CPUs of the threads that see to it. */
#ifndef COMMON_CONFIG_TRANSPORT_KEYS_H
#define COMMON_CONFIG_TRANSPORT_KEYS_H

#include "common/config/config.h"

#include <stddef.h>

/* enum transport (endpoint.h). */
extern const char *const config_transport_choices[];

/* The check of a section's transport against its other keys; an error at 'transport' if they do not agree. */
void config_check_transport(const int *transport, const char *interface, const char *pcap_file, struct config *errors);

/* At the start of both: whether threads can be pinned as recv.affinity and send.affinity ask.  Returns 0, or -EINVAL
 * with one sentence in 'why'. */
int config_check_cpus(const struct config_int_list *recv, const struct config_int_list *send, char *why,
                      size_t why_bytes);

#endif
