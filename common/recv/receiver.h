/* receiver.h - a receiver: a thread that receives packets, identifies them and passes them to assemblers.
 *
 * Flow:      recv_source --slots--> identify() --> member's assembler --full chunks--> worker's inbox
 * Threads:   one thread per receiver.  The thread owns its source and its assemblers.
 * Blocking:  the thread waits at most 100 ms for packets.  It waits for free chunks only if the source can wait.
 *
 * Landing: the receiver predicts the next packets (predict.h), and offers the place of each predicted payload to the
 * source as a slot's payload buffer.  If the prediction is right, the payload is received in place, without a copy.
 * If the prediction is wrong, the payload is copied to the slot's own buffer first, and then to its right place.  The
 * first copy is needed because the right place may hold another packet of the same batch.  If most predictions are
 * wrong, the next batches are received into the slots' own buffers and copied once.  Packets that stay in the
 * source's memory (zero-copy) are copied to their places once, past the cache.  If chunks are in direct memory, all
 * packets are copied past the cache.
 *
 * CRC: a packet whose CRC item (spead.h) does not match is refused, even if its payload was received in place.  The
 * bytes of a refused packet are not marked as arrived, so a later packet overwrites them.  Payloads that a NIC wrote to
 * device memory are not checked.
 *
 * Files: the chunks of all members reach the worker in a repeatable order only if one receiver reads the whole file. */
#ifndef COMMON_RECV_RECEIVER_H
#define COMMON_RECV_RECEIVER_H

#include "common/recv/assemble.h"
#include "common/base/counter.h"
#include "common/recv/source.h"
#include "common/net/spead.h"

#include <stdbool.h>

struct config_recv;
struct memory_use;
struct receiver;

/* The identity of a packet, which the daemon derives from the packet's items. */
struct receiver_identity {
    unsigned member;         /* index of the member in receiver_config.assemblers */
    unsigned source;         /* index of the source in the member */
    uint64_t wire_timestamp; /* 48 bits */
    uint32_t extra;
};

/* Identifies a packet's member and source.  Returns REJECT_NONE, or the reason why the packet is not for this receiver.
 * Pure function; 'context' is constant data of the daemon.  packet->wanted[] has the items of
 * receiver_config.wanted_ids, in the same order. */
typedef enum reject (*receiver_identify)(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                         struct receiver_identity *identity);

struct receiver_config {
    const char *thread_name; /* copied */
    int cpu;                 /* < 0: not pinned */
    struct recv_source_config source;
    const uint16_t *wanted_ids; /* [const, static] */
    size_t n_wanted;
    receiver_identify identify;
    const void *context;
    /* [n_assemblers] configurations of the assemblers, copied; the receiver sets may_wait */
    const struct assembler_config *assemblers;
    size_t n_assemblers;
    /* true: chunks are direct.  No payload is then received in place, because the host could not move a misplaced
     * payload */
    bool direct;
    bool needs_crc; /* true: packets without a CRC item are refused */
    /* inbox that gets {end_kind, 0, NULL} after the last chunks, when the file has ended or the source is dead */
    struct inbox *worker;
    int end_kind;
};

/* Counters of a receiver. */
struct receiver_stats {
    struct counter packets;
    struct counter rejects[N_REJECTS];
    struct counter refused_heaps[N_REJECTS]; /* heaps whose first packet the receiver or an assembler refused */
    struct counter metadata_heaps;           /* descriptor heaps, and heaps that lack an item */
    struct counter malformed[SPEAD_N_ERRORS];
};

/* Adds the memory of a receiver's buffers to 'use'.  The memory of chunks is not included.  'mtu' and 'n_kept' are as
 * in recv_packet_ring_init(). */
void receiver_add_memory(const struct config_recv *keys, size_t mtu, size_t n_kept, struct memory_use *use);

/* Opens the source and creates the assemblers.  Returns 0 or negative errno with one sentence in 'why'. */
int receiver_create(const struct receiver_config *config, struct receiver **receiver, char *why, size_t why_bytes);

/* Creates a receiver with an open source, for tests.  The receiver owns the source, even if this function fails. */
int receiver_create_from(const struct receiver_config *config, struct recv_source *source, struct receiver **receiver);

const struct receiver_stats *receiver_get_stats(const struct receiver *receiver);

/* Returns the number of dropped packets, from recv_source_kernel_drops().  Any thread. */
int64_t receiver_kernel_drops(const void *receiver);

/* Returns true if the source is a file. */
bool receiver_can_wait(const struct receiver *receiver);

int receiver_start(struct receiver *receiver);

/* Starts the delivery of packets with recv_source_enable(), as the last step of a start. */
int receiver_enable(struct receiver *receiver, char *why, size_t why_bytes);

/* Returns the negative errno of a dead source, or 0 if a file ended.  Call after the worker has received end_kind. */
int receiver_get_error(const struct receiver *receiver);

/* Stops the thread within 100 ms.  Open chunks stay open.  Assemblers never wait for free chunks afterwards.
 * Idempotent. */
void receiver_halt(struct receiver *receiver);

/* Returns the timestamp of the oldest open chunk of a halted receiver; INT64_MAX if no chunk is open.
 * receiver_flush_oldest() hands this chunk on.  receiver_set.c calls these two functions, so that the last chunks of
 * several receivers leave in order of time. */
int64_t receiver_oldest_samples(const struct receiver *receiver);
void receiver_flush_oldest(struct receiver *receiver);

/* Halts the receiver, then hands on all open chunks.  Idempotent. */
void receiver_stop(struct receiver *receiver);

/* Stops the receiver, then frees it.  NULL is accepted. */
void receiver_destroy(struct receiver *receiver);

#endif
