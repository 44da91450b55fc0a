/* verbs.h - an Ethernet port through libibverbs, for the raw packet queues of receivers and senders.
 *
 * A raw packet queue passes whole Ethernet frames between a NIC and this process's memory.  The kernel takes part only
 * at the start.  recv/source_verbs.c receives with such a queue, and send/sink_verbs.c sends with one.  Only frames of
 * our groups and ports are steered to us, so the kernel gets the host's other traffic as before.
 *
 * Threads:   one thread opens and closes.  A port belongs to one source or sink.  One other thread may use the port in
 *            between.
 * Errors:    0 or negative errno with one sentence in 'why': the failed call, the interface and a remedy.  -ENODEV,
 *            -ENOTSUP, -EPERM and -E2BIG (locked memory) are errors that a restart does not cure.
 *
 * If the libraries or headers were missing at build time (or VERBS= was given to make), recv/source_verbs_none.c and
 * send/sink_verbs_none.c replace all verbs files.  Their functions, called by recv/source.c and send/sink.c, report the
 * missing support. */
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
    unsigned port_num;        /* number of the port on the device, from 1 */
    uint32_t max_queue;       /* work requests that a queue may hold */
    uint32_t max_completions; /* entries that a completion queue may hold */
    uint32_t max_parts;       /* parts of one work request */
    bool computes_ip;         /* true if the NIC computes the IPv4 checksum of sent frames */
    uint64_t rate_max_bits_s; /* highest rate limit of a queue; 0: the NIC cannot pace */
    uint8_t mac[6];
    uint32_t address; /* IPv4 of the interface, network order */
    size_t mtu;       /* bytes of an IP packet */
    char interface[16];
    int interface_index;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

/* True if this program was built with ibverbs. */
extern const bool verbs_built_in;

/* Opens the port of 'interface' (name or address). */
int verbs_port_open(const char *interface, struct verbs_port *port, char *why, size_t why_bytes);
void verbs_port_close(struct verbs_port *port); /* all objects made with the port must be gone */

/* Writes into 'why' that a call failed with 'err' (positive; 0: an I/O error): "ibverbs on eth0: what: reason; cure".
 * The cure is added if it is known, for example for a permission.  Returns -err. */
int verbs_fail(const struct verbs_port *port, int err, const char *what, char *why, size_t why_bytes);

/* Does the same for a call that makes the kernel lock at least 'n_bytes' of memory.  Returns -E2BIG if the limit does
 * not allow this. */
int verbs_fail_to_lock(const struct verbs_port *port, int err, size_t n_bytes, const char *what, char *why,
                       size_t why_bytes);

/* Bytes that a queue locks for each entry, at least. */
#define VERBS_ENTRY_BYTES 64

/* Context of sending queues and of their completion queues. */
extern char verbs_sends[];

/* Memory that the NIC may read, or also write.  The memory is registered in its place, and freed later by its owner. */
struct verbs_memory {
    struct ibv_mr *mr;
    uint8_t *base;
    size_t n_bytes;
};
int verbs_memory_register(struct verbs_port *port, void *base, size_t n_bytes, bool writable,
                          struct verbs_memory *memory, char *why, size_t why_bytes);
/* Registers device memory by its file descriptor; its addresses begin at 'base'. */
int verbs_memory_register_exported(struct verbs_port *port, void *base, size_t n_bytes, int fd, bool writable,
                                   struct verbs_memory *memory, char *why, size_t why_bytes);
void verbs_memory_unregister(struct verbs_memory *memory);

#endif
