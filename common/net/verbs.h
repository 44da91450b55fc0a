/* verbs.h - an Ethernet port through libibverbs: what raw packet queues of receivers and senders share.
 *
 * A raw packet queue hands whole Ethernet frames between a network card and this process's memory; the kernel is asked
 * once, at the start.  recv/source_verbs.c receives with one, send/sink_verbs.c sends with one.  Only frames of our
 * groups and ports are steered to us, so the host's other traffic is the kernel's as before.
 *
 * Threads:   open and close from one thread, before and after; a port belongs to one source or sink, which may be used
 *            by one other thread in between.
 * Errors:    0 or negative errno with one sentence in 'why': names what failed, the interface and what to do.  -ENODEV,
 *            -ENOTSUP, -EPERM and -E2BIG (locked memory) are what a restart does not cure.
 * Where the libraries or headers were not there at build time (or VERBS= was given to make), recv/source_verbs_none.c and
 * send/sink_verbs_none.c take the place of all verbs files: what recv/source.c and send/sink.c call says so. */
#ifndef COMMON_NET_VERBS_H
#define COMMON_NET_VERBS_H

#include "common/net/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_context;
struct ibv_pd;
struct ibv_mr;
struct rdma_event_channel;
struct rdma_cm_id;

struct verbs_port {
    struct ibv_context *context;
    struct ibv_pd *pd;
    unsigned port_num;        /* of the device, from 1 */
    uint32_t max_queue;       /* work requests that a queue may hold */
    uint32_t max_completions; /* entries that a completion queue may hold */
    uint32_t max_parts;       /* of one work request */
    bool computes_ip;         /* fills in the checksum of IPv4 headers that are sent */
    uint64_t rate_max_bits_s; /* of a queue that is paced by the card; 0: it cannot */
    uint8_t mac[6];
    uint32_t address; /* IPv4 of the interface, network order */
    size_t mtu;       /* bytes of IP packet */
    char interface[16];
    int interface_index;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

/* Whether this program was built with ibverbs. */
extern const bool verbs_built_in;

/* Opens the port that 'interface' (name or address) belongs to. */
int verbs_port_open(const char *interface, struct verbs_port *port, char *why, size_t why_bytes);
void verbs_port_close(struct verbs_port *port); /* everything made with it must be gone */

/* Says in 'why' that a call failed with 'err' (positive; else an I/O error): "ibverbs on eth0: what: reason; cure",
 * where the cure is known, as of a permission.  Returns -err. */
int verbs_fail(const struct verbs_port *port, int err, const char *what, char *why, size_t why_bytes);

/* The same of a call that has the kernel lock 'n_bytes' of memory at least.  Returns -E2BIG where so much may not be
 * locked. */
int verbs_fail_to_lock(const struct verbs_port *port, int err, size_t n_bytes, const char *what, char *why,
                       size_t why_bytes);

/* A queue locks so much for each entry, or more. */
#define VERBS_ENTRY_BYTES 64

/* The context of queues by which packets leave, and of their completion queues. */
extern char verbs_sends[];

/* Memory that the card may read, or also write.  Registered where it lies; freed by whoever allocated it, later. */
struct verbs_memory {
    struct ibv_mr *mr;
    uint8_t *base;
    size_t n_bytes;
};
int verbs_memory_register(struct verbs_port *port, void *base, size_t n_bytes, bool writable,
                          struct verbs_memory *memory, char *why, size_t why_bytes);
/* The same of a device's memory, by its file descriptor; its addresses are 'base' and on. */
int verbs_memory_register_exported(struct verbs_port *port, void *base, size_t n_bytes, int fd, bool writable,
                                   struct verbs_memory *memory, char *why, size_t why_bytes);
void verbs_memory_unregister(struct verbs_memory *memory);

#endif
