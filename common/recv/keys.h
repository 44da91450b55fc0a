/* keys.h - keys of the recv sections of a configuration file, each program's own, that several programs have. */
#ifndef COMMON_RECV_KEYS_H
#define COMMON_RECV_KEYS_H

#include "common/config/config.h"
#include "common/config/transport_keys.h"

#include <stdbool.h>
#include <stddef.h>

struct config_device;
struct endpoint_list;
struct katcp_access;

/* Rows of a program's recv section, whose struct is 'type'. */
#define CONFIG_INTERFACE_ROW(type)                                                                                     \
    {                                                                                                                  \
        "interface", CFG_STRING, UNIT_NONE, 0, 64, "", false, offsetof(type, interface), NULL,                         \
            "Interface, by name or address, on which multicast is received; empty is the kernel's choice."             \
    }
#define CONFIG_FROM_ROW(type, help)                                                                                    \
    {                                                                                                                  \
        "from", CFG_STRING, UNIT_NONE, 0, 4096, "", false, offsetof(type, from), NULL, help                            \
    }
#define CONFIG_RECV_FROM_ROW(type)                                                                                     \
    CONFIG_FROM_ROW(type,                                                                                              \
                    "Networks and addresses that may send packets here, 10.1.0.0/16, 10.2.3.4: comma separated; "      \
                    "others' packets are refused (bad_sender); empty: anybody may.")
#define CONFIG_CRC_ROW(type)                                                                                           \
    {                                                                                                                  \
        "crc", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, offsetof(type, crc), NULL,                                   \
            "Refuse packets without a CRC (send.crc of the sender). A CRC that is there is always checked."            \
    }
#define CONFIG_TRANSPORT_ROW(type)                                                                                     \
    {                                                                                                                  \
        "transport", CFG_ENUM, UNIT_NONE, 0, 0, "udp", false, offsetof(type, transport), config_transport_choices,     \
            "How packets are received: through the kernel's sockets, or from the card itself, if it can."              \
    }
#define CONFIG_COMP_VECTOR_ROW(type)                                                                                   \
    {                                                                                                                  \
        "comp_vector", CFG_INT, UNIT_NONE, -1, 65535, "0", false, offsetof(type, comp_vector), NULL,                   \
            "Which of the card's interrupts wakes the first receive thread with ibverbs; other threads have the next " \
            "ones. -1: they never sleep, and take a core each."                                                        \
    }

/* Of the daemons'. */
#define CONFIG_PCAP_FILE_ROW(type)                                                                                     \
    {                                                                                                                  \
        "pcap_file", CFG_STRING, UNIT_NONE, 0, 4096, "", false, offsetof(type, pcap_file), NULL,                       \
            "Replay this capture instead of listening to the network; nothing is lost, however slow."                  \
    }
#define CONFIG_BUFFER_ROW(type)                                                                                        \
    {                                                                                                                  \
        "buffer", CFG_INT, UNIT_BYTES, 0, 4294967296.0, "33554432", false, offsetof(type, buffer_bytes), NULL,         \
            "Socket buffer of each receive thread, shared by its endpoints, 0 leaves the kernel's default; with "      \
            "ibverbs its ring of frames."                                                                              \
    }
#define CONFIG_AFFINITY_ROW(type)                                                                                      \
    {                                                                                                                  \
        "affinity", CFG_INT_LIST, UNIT_NONE, -1, 4095, "", false, offsetof(type, affinity), NULL,                      \
            "CPU of each receive thread, repeated as needed; none: not pinned."                                        \
    }
#define CONFIG_BUSY_POLL_ROW(type)                                                                                     \
    {                                                                                                                  \
        "busy_poll", CFG_INT, UNIT_NONE, 0, 10000, "0", false, offsetof(type, busy_poll_us), NULL,                     \
            "Microseconds for which a receive thread polls for packets before it sleeps, which takes its core; 0: it " \
            "sleeps."                                                                                                  \
    }
#define CONFIG_DIRECT_ROW(type)                                                                                        \
    {                                                                                                                  \
        "direct", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, offsetof(type, direct), NULL,                             \
            "Receive threads write samples straight into the GPU's memory: saves the host's memory traffic, "          \
            "where the GPU lets all of its memory be mapped (docs/operation.md)."                                      \
    }
#define CONFIG_GPUDIRECT_ROW(type)                                                                                     \
    {                                                                                                                  \
        "gpudirect", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, offsetof(type, gpudirect), NULL,                       \
            "With transport ibverbs: the network card writes payloads straight into the GPU's memory, by dma-buf "     \
            "(docs/operation.md)."                                                                                     \
    }

/* The check of recv.direct and recv.gpudirect; an error at either if they do not agree with other keys. */
void config_check_direct(const bool *direct, const bool *gpudirect, int transport, const char *pcap_file,
                         const struct config_device *device, struct config *errors);

/* Who may send: 'from' as given, and as parsed.  Endpoints refer to that, so it must outlive them. */
void config_check_from(char *const *from, struct katcp_access *senders, struct config *errors);
void config_set_senders(struct endpoint_list *list, const struct katcp_access *senders);

/* An endpoint that is given twice would bring each of its packets twice; an error at 'list' if there is one. */
void config_check_sources(const struct endpoint_list *list, struct config *errors);

#endif
