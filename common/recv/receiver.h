/* receiver.h - a receive thread: source -> parse -> identify -> assemble.
 *
 * Flow:      recv_source --slots--> identify() --> member's assembler --full chunks--> worker's inbox
 * Threads:   one per receiver.  The thread owns its source and its assemblers.
 * Blocking:  waits at most 100 ms for packets.  Waits for free chunks only if the source can wait.
 *
 * Landing: the receiver expects sources to alternate in the same order as before.  The receiver offers the place of
 * each expected payload as a payload slot.  An expected packet costs no copy.  An unexpected packet is copied by way of
 * the slot's own buffer, because its place may hold another packet of the same batch.  If fewer than half of a batch
 * came as expected, the next batches are received into the slots' own buffers and copied once.  Zero-copy packets of
 * the source are copied once, past the cache.  If chunks are direct, all packets are copied in this way.
 *
 * CRC: a packet with a CRC item (spead.h) is refused if the CRC does not match, even if the payload was received in
 * place.  Bytes of refused packets are never marked as arrived.  Payloads that a NIC wrote to device memory are not
 * checked.
 *
 * Files: the order in which members' chunks reach the worker is exact only if one receiver reads the whole file. */
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

/* The identity that the daemon reads from a parsed packet. */
struct receiver_identity {
    unsigned member;         /* index in the receiver's list of assemblers */
    unsigned source;         /* index of the source in this member */
    uint64_t wire_timestamp; /* 48 bits */
    uint32_t extra;
};

/* Identifies a packet's member and source, or returns the reason why the packet is not ours.  Pure function; 'context'
 * is the daemon's constant description.  packet->wanted[] is in the order of receiver_config.wanted_ids. */
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
    const struct assembler_config *assemblers; /* copied; the receiver sets may_wait, from the source */
    size_t n_assemblers;
    bool direct;          /* chunks are direct: nothing is received in place, as misplaced payloads would be read */
    bool needs_crc;       /* packets without a CRC item are refused */
    struct inbox *worker; /* receives {end_kind, 0, NULL} after the final flush: a file ended or the source died */
    int end_kind;
};

/* Counters of a receiver for packets that are not yet assigned to a member. */
struct receiver_stats {
    struct counter packets;
    struct counter rejects[N_REJECTS];
    struct counter refused_heaps[N_REJECTS]; /* heaps whose first packet is in 'rejects', here or of a member */
    struct counter metadata_heaps;           /* descriptors, and heaps that lack an item */
    struct counter malformed[SPEAD_N_ERRORS];
};

/* Adds the memory for a receiver's buffers, without chunks.  The arguments describe the receiver's source, as in
 * recv_packet_ring_init(). */
void receiver_add_memory(const struct config_recv *keys, size_t mtu, size_t n_kept, struct memory_use *use);

/* Opens the source and creates the assemblers.  Returns 0 or negative errno with one sentence in 'why'. */
int receiver_create(const struct receiver_config *config, struct receiver **receiver, char *why, size_t why_bytes);

/* Does the same with an open source, for tests.  The source then belongs to the receiver, also on failure. */
int receiver_create_from(const struct receiver_config *config, struct recv_source *source, struct receiver **receiver);

const struct receiver_stats *receiver_get_stats(const struct receiver *receiver);

/* Returns recv_source_kernel_drops() of the receiver's source.  Any thread. */
int64_t receiver_kernel_drops(const void *receiver);

/* Returns true if the source is a file. */
bool receiver_can_wait(const struct receiver *receiver);

int receiver_start(struct receiver *receiver);

/* Calls recv_source_enable() of the source, as the last step of a start. */
int receiver_enable(struct receiver *receiver, char *why, size_t why_bytes);

/* Returns 0 if a file ended, or the negative errno of a dead source.  Call after the worker received end_kind. */
int receiver_get_error(const struct receiver *receiver);

/* Stops the thread within 100 ms.  Open chunks stay open, and free inboxes never wait again.  Idempotent. */
void receiver_halt(struct receiver *receiver);

/* Returns the first sample of the oldest open chunk of a halted receiver; INT64_MAX if no chunk is open.
 * receiver_flush_oldest() hands this chunk on.  So the last chunks of several receivers can leave in order of time
 * (receiver_set.c). */
int64_t receiver_oldest_samples(const struct receiver *receiver);
void receiver_flush_oldest(struct receiver *receiver);

/* Halts the receiver, then hands on all open chunks.  Idempotent. */
void receiver_stop(struct receiver *receiver);

/* Stops the receiver, then frees it.  NULL is accepted. */
void receiver_destroy(struct receiver *receiver);

#endif
