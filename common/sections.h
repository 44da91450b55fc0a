/* sections.h - the sections of a configuration file that several programs share: structs, keys and table rows.
 *
 * A program puts the row into its table and the struct, under the section's name, into its own: both daemons have all
 * six sections. */
#ifndef COMMON_SECTIONS_H
#define COMMON_SECTIONS_H

#include "common/config.h"
#include "common/endpoint.h"
#include "common/katcp_access.h"
#include "common/timebase.h"

#include <stdint.h>

enum config_timebase { CONFIG_TIMEBASE_CLOCK, CONFIG_TIMEBASE_PACKETS };

struct config_time {
    struct decimal sync_time_s;
    struct decimal adc_sample_rate_hz;
    int timebase; /* enum config_timebase */
    double clock_tolerance_s;
};

struct config_device {
    int kind;  /* enum device_kind */
    char *gpu; /* "auto", index, UUID or PCI address */
    int64_t n_threads;
    char *kernel_cache; /* NULL: the service's or the user's */
};

struct config_send {
    int transport;   /* enum transport */
    char *interface; /* NULL: the kernel's choice */
    char *pcap_file; /* NULL: the network */
    int64_t ttl;
    int64_t buffer_bytes;
    int64_t packet_payload_bytes;
    double rate_factor;
    int64_t n_threads;
    struct config_int_list affinity;
    bool crc; /* packets carry a CRC item; daemons only */
    /* fgpu only. */
    int64_t array_size; /* stride of heap counts, and of descriptors in time */
    bool gpudirect;     /* the card reads heaps from device memory */
};

struct config_http {
    struct endpoint_list listen; /* none, or one */
    char *allow;                 /* networks (katcp_access.h); NULL: all */
    char *names;                 /* besides this host's own (http_names.h); NULL: none */
};

struct config_katcp {
    struct endpoint_list listen, read_only_listen; /* none, or one */
    char *allow;                                   /* networks (katcp_access.h); NULL: all */
    int64_t max_clients;                           /* of each of both */
    bool halt_stays;                               /* ?halt from another host ends it for good */
};

struct config_state {
    char *directory; /* NULL: the service's, or none */
};

#define CONFIG_N_TIME_KEYS      4
#define CONFIG_N_DEVICE_KEYS    4
#define CONFIG_N_FSIM_SEND_KEYS 9 /* without the last ones, the daemons' and fgpu's own */
#define CONFIG_N_SEND_KEYS      (CONFIG_N_FSIM_SEND_KEYS + 1)
#define CONFIG_N_FGPU_SEND_KEYS (CONFIG_N_SEND_KEYS + 2)
#define CONFIG_N_HTTP_KEYS      3
#define CONFIG_N_KATCP_KEYS     5
#define CONFIG_N_STATE_KEYS     1

extern const struct config_key config_time_keys[CONFIG_N_TIME_KEYS];
extern const struct config_key config_device_keys[CONFIG_N_DEVICE_KEYS];
extern const struct config_key config_send_keys[CONFIG_N_FGPU_SEND_KEYS];
extern const struct config_key config_http_keys[CONFIG_N_HTTP_KEYS];
extern const struct config_key config_katcp_keys[CONFIG_N_KATCP_KEYS];
extern const struct config_key config_state_keys[CONFIG_N_STATE_KEYS];

/* Rows of a table of sections; 'type' is the struct of the whole file. */
#define CONFIG_TIME_SECTION(type)                                                                                      \
    {                                                                                                                  \
        .name = "time", .help = "Time: what a timestamp means.", .keys = config_time_keys,                             \
        .n_keys = CONFIG_N_TIME_KEYS, .struct_bytes = sizeof(struct config_time), .offset = offsetof(type, time)       \
    }
#define CONFIG_DEVICE_SECTION(type)                                                                                    \
    {                                                                                                                  \
        .name = "device", .help = "Where the kernels run.", .keys = config_device_keys,                                \
        .n_keys = CONFIG_N_DEVICE_KEYS, .struct_bytes = sizeof(struct config_device),                                  \
        .offset = offsetof(type, device), .optional = true                                                             \
    }
#define CONFIG_SEND_SECTION(type, what, n)                                                                             \
    {                                                                                                                  \
        .name = "send", .help = what, .keys = config_send_keys, .n_keys = (n),                                         \
        .struct_bytes = sizeof(struct config_send), .offset = offsetof(type, send), .optional = true                   \
    }
#define CONFIG_HTTP_SECTION(type)                                                                                      \
    {                                                                                                                  \
        .name = "http", .help = "Monitoring.", .keys = config_http_keys, .n_keys = CONFIG_N_HTTP_KEYS,                 \
        .struct_bytes = sizeof(struct config_http), .offset = offsetof(type, http), .optional = true                   \
    }

#define CONFIG_STATE_SECTION(type)                                                                                     \
    {                                                                                                                  \
        .name = "state", .help = "Settings that are kept across restarts.", .keys = config_state_keys,                 \
        .n_keys = CONFIG_N_STATE_KEYS, .struct_bytes = sizeof(struct config_state), .offset = offsetof(type, state),   \
        .optional = true                                                                                               \
    }

#define CONFIG_KATCP_SECTION(type)                                                                                     \
    {                                                                                                                  \
        .name = "katcp", .help = "Control.", .keys = config_katcp_keys, .n_keys = CONFIG_N_KATCP_KEYS,                 \
        .struct_bytes = sizeof(struct config_katcp), .offset = offsetof(type, katcp), .optional = true                 \
    }

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
extern const char *const config_transport_choices[];

/* The check of recv.direct and recv.gpudirect; an error at either if they do not agree with other keys. */
void config_check_direct(const bool *direct, const bool *gpudirect, int transport, const char *pcap_file,
                         const struct config_device *device, struct config *errors);

/* The check of a section's transport against its other keys; an error at 'transport' if they do not agree. */
void config_check_transport(const int *transport, const char *interface, const char *pcap_file, struct config *errors);

/* A program's check of the katcp section, and of its ports against http's. */
void config_check_katcp(const struct config_katcp *katcp, const struct config_http *http, struct config *errors);

/* Both daemons' check of the device section. */
void config_check_device(const struct config_device *device, struct config *errors);

/* A program's check of the send section against its device (NULL: it has none, and no key gpudirect), and the capture that
 * is read (NULL: none). */
void config_check_send(const struct config_send *send, const struct config_device *device, const char *recv_pcap_file,
                       struct config *errors);

/* What ibverbs sends to is multicast; an error at 'destinations' if one is not. */
void config_check_multicast(const struct endpoint_list *destinations, struct config *errors);

/* That, where the send section says so. */
void config_check_destinations(const struct config_send *send, const struct endpoint_list *destinations,
                               struct config *errors);

/* Every program's check of the http section. */
void config_check_http(const struct config_http *http, struct config *errors);

/* Who may send: 'from' as given, and as parsed.  Endpoints refer to that, so it must outlive them. */
void config_check_from(char *const *from, struct katcp_access *senders, struct config *errors);
void config_set_senders(struct endpoint_list *list, const struct katcp_access *senders);

/* True if one of 'destinations' is one of 'inputs', which is an error at 'destinations': the output would come back. */
bool config_check_loop(const struct endpoint_list *inputs, const struct endpoint_list *destinations,
                       struct config *errors);

/* An endpoint that is given twice would bring each of its packets twice; an error at 'list' if there is one. */
void config_check_sources(const struct endpoint_list *list, struct config *errors);

/* At the start of both: whether threads can be pinned as recv.affinity and send.affinity ask.  Returns 0, or -EINVAL
 * with one sentence in 'why'. */
int config_check_cpus(const struct config_int_list *recv, const struct config_int_list *send, char *why,
                      size_t why_bytes);

#endif
