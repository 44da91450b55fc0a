/* keys.h - the keys of the section recv that several programs share. */
#ifndef COMMON_RECV_KEYS_H
#define COMMON_RECV_KEYS_H

#include "common/config/config.h"
#include "common/config/transport_keys.h"
#include "common/net/access.h"

#include <stdbool.h>
#include <stddef.h>

struct config_device;
struct device;
struct endpoint_list;
struct recv_source_config;

/* Values of the keys of the section recv.  Each program's struct for its recv section begins with a struct
 * config_recv named 'base'.  Keys that a program does not have stay 0. */
struct config_recv {
    char *interface;       /* interface for multicast; NULL: the kernel chooses */
    char *pcap_file;       /* NULL: the network */
    char *from;            /* networks of allowed senders; NULL: all senders are allowed */
    struct access senders; /* 'from' in parsed form, set by recv_keys_check() */
    bool crc;              /* true: packets without a CRC item are refused */
    int64_t buffer_bytes;
    int transport;       /* enum transport */
    int64_t comp_vector; /* the NIC's interrupt that wakes thread 0; < 0: the threads poll */
    int64_t window_chunks;
    int64_t n_chunks;  /* number of chunks per input (fgpu) or per receive thread (xbgpu) */
    int64_t n_threads; /* 0: one per input */
    struct config_int_list affinity;
    int64_t busy_poll_us; /* duration of polling before the thread sleeps; 0: no polling */
    bool direct;          /* true: chunks are in device memory that the host writes to, so audits are impossible */
    bool gpudirect;       /* true: payloads are in device memory that the NIC writes to, so audits are impossible */
};

/* Rows of the table of keys, for all programs.  The program defines KEYS_OF as its struct for the recv section. */
#define CONFIG_INTERFACE_ROW                                                                                           \
    KEY_STRING("interface", base.interface, "", 0, 64,                                                                 \
               "Interface that receives multicast, by name or address; empty: the kernel chooses.")
#define CONFIG_RECV_FROM_ROW                                                                                           \
    KEY_STRING("from", base.from, "", 0, 4096,                                                                         \
               "Networks and addresses of allowed senders, comma separated, as in 10.1.0.0/16, 10.2.3.4. Packets of "  \
               "other senders are refused (bad_sender). Empty: all senders are allowed.")
#define CONFIG_CRC_ROW                                                                                                 \
    KEY_BOOL("crc", base.crc, false,                                                                                   \
             "true: packets without a CRC (send.crc of the sender) are refused. A CRC is always checked if present.")
#define CONFIG_TRANSPORT_ROW                                                                                           \
    KEY_ENUM(                                                                                                          \
        "transport", base.transport, "udp", config_transport_choices,                                                  \
        "How packets are received. udp: through the kernel's sockets. ibverbs: directly from a NIC that supports it.")
#define CONFIG_COMP_VECTOR_ROW                                                                                         \
    KEY_INT("comp_vector", base.comp_vector, "0", UNIT_NONE, -1, 65535,                                                \
            "With ibverbs: number of the NIC's interrupt that wakes the first receive thread; other threads use the "  \
            "next interrupts. -1: the threads never sleep, and each uses a whole core.")

/* Rows of the keys that only fgpu and xbgpu have. */
#define CONFIG_PCAP_FILE_ROW                                                                                           \
    KEY_STRING("pcap_file", base.pcap_file, "", 0, 4096,                                                               \
               "Replay this capture instead of listening to the network; a slow replay loses no packets.")
#define CONFIG_BUFFER_ROW                                                                                              \
    KEY_INT("buffer", base.buffer_bytes, "33554432", UNIT_BYTES, 0, 4294967296.0,                                      \
            "Size of each receive thread's socket buffer, shared by its endpoints; 0: the kernel's default. With "     \
            "ibverbs: size of the thread's ring of frames.")
#define CONFIG_AFFINITY_ROW                                                                                            \
    KEY_INT_LIST("affinity", base.affinity, "", UNIT_NONE, -1, 4095,                                                   \
                 "CPU of each receive thread; a list that is too short is repeated; []: threads are not pinned.")
#define CONFIG_BUSY_POLL_ROW                                                                                           \
    KEY_INT("busy_poll", base.busy_poll_us, "0", UNIT_NONE, 0, 10000,                                                  \
            "Microseconds for which a receive thread polls for packets before it sleeps. Polling uses a whole core. "  \
            "0: no polling.")
#define CONFIG_DIRECT_ROW                                                                                              \
    KEY_BOOL(                                                                                                          \
        "direct", base.direct, false,                                                                                  \
        "true: receive threads write samples directly to GPU memory. This saves host memory traffic, and needs a GPU " \
        "whose whole memory can be mapped (docs/operation.md).")
#define CONFIG_GPUDIRECT_ROW                                                                                           \
    KEY_BOOL("gpudirect", base.gpudirect, false,                                                                       \
             "true, only with transport ibverbs: the network card writes payloads directly to GPU memory, by dma-buf " \
             "(docs/operation.md).")

/* Checks the keys of the section recv against each other and against 'device', and reports errors.  'device' is NULL
 * for a program without a device, which does not have the keys direct and gpudirect. */
void recv_keys_check(struct config_recv *recv, const struct config_device *device, struct config *errors);

/* Returns the configuration of a source for receive thread 't' and the endpoints.  'device' is used with gpudirect
 * only. */
struct recv_source_config recv_keys_source(const struct config_recv *recv, const struct endpoint_list *endpoints,
                                           size_t t, struct device *device);

/* Parses 'from', the networks of allowed senders, into 'senders'.  recv_keys_set_senders() makes all endpoints of a
 * list point to 'senders'.  'senders' must outlive the list. */
void recv_keys_check_from(char *const *from, struct access *senders, struct config *errors);
void recv_keys_set_senders(struct endpoint_list *list, const struct access *senders);

/* Reports an error at 'list' if an endpoint is given twice, because its packets would then arrive twice. */
void recv_keys_check_sources(const struct endpoint_list *list, struct config *errors);

#endif
