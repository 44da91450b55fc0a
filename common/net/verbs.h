/* verbs.h - an Ethernet port through libibverbs, for the raw packet queues of receivers and senders.
 *
 * A raw packet queue passes whole Ethernet frames between a NIC and this process's memory.  The Linux kernel is
 * involved only at the start.  recv/source_verbs.c receives with such a queue, and send/sink_verbs.c sends with such
 * a queue.  The NIC steers only the frames for this program's groups and ports to the queue.  The Linux kernel still
 * receives all other frames.
 *
 * Threads:   one thread opens and closes a port.  A port belongs to one source or sink.  Between open and close one
 *            other thread may use the port.
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
    unsigned port_num;        /* number of the port on its RDMA device, counted from 1 */
    uint32_t max_queue;       /* largest number of work requests in a queue */
    uint32_t max_completions; /* largest number of entries in a completion queue */
    uint32_t max_parts;       /* largest number of scatter/gather elements of a work request */
    bool computes_ip;         /* true if the NIC computes the IPv4 checksum of sent frames */
    uint64_t rate_max_bits_s; /* highest rate limit of a queue; 0: the NIC cannot limit the rate */
    uint8_t mac[6];
    uint32_t address; /* IPv4 address of the interface, network order */
    size_t mtu;       /* largest size of an IP packet */
    char interface[16];
    int interface_index;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

/* True if this program was built with ibverbs. */
extern const bool verbs_built_in;

/* Opens the port of 'interface' (name or address). */
int verbs_port_open(const char *interface, struct verbs_port *port, char *why, size_t why_bytes);
/* Closes the port.  All objects that were created with the port must be destroyed before this call. */
void verbs_port_close(struct verbs_port *port);

/* Writes into 'why' that a call failed: "ibverbs on eth0: what: reason; cure".  'err' is a positive errno; 0 stands
 * for EIO.  The cure is present only if the function knows one, for example for a missing permission.  Returns
 * -err. */
int verbs_fail(const struct verbs_port *port, int err, const char *what, char *why, size_t why_bytes);

/* Does the same as verbs_fail(), for a call that makes the Linux kernel pin at least 'n_bytes' bytes of memory.  If the
 * limit on locked memory is too low, returns -E2BIG and adds advice. */
int verbs_fail_to_lock(const struct verbs_port *port, int err, size_t n_bytes, const char *what, char *why,
                       size_t why_bytes);

/* Lower bound of the locked memory that each entry of a queue needs, in bytes. */
#define VERBS_ENTRY_BYTES 64

/* The address of this variable is the context of each sender's queue and completion queue.  The context distinguishes
 * these queues from receivers' queues. */
extern char verbs_sends[];

/* Memory that the NIC may read.  The NIC may also write to the memory if the memory is registered as writable.  The
 * owner frees the memory after it has been unregistered. */
struct verbs_memory {
    struct ibv_mr *mr;
    uint8_t *base;
    size_t n_bytes;
};
int verbs_memory_register(struct verbs_port *port, void *base, size_t n_bytes, bool writable,
                          struct verbs_memory *memory, char *why, size_t why_bytes);
/* Registers GPU memory by its DMA-BUF file descriptor 'fd'.  'base' is the address of the first byte. */
int verbs_memory_register_exported(struct verbs_port *port, void *base, size_t n_bytes, int fd, bool writable,
                                   struct verbs_memory *memory, char *why, size_t why_bytes);
void verbs_memory_unregister(struct verbs_memory *memory);

#endif
