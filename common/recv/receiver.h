/* receiver.h - a receive thread: source -> parse -> identify -> assemble.
 *
 * Flow:      recv_source --slots--> identify() --> member's assembler --full chunks--> worker's inbox
 * Threads:   one per receiver; it owns its source and its assemblers.
 * Blocking:  waits for packets, 100 ms at most; for free chunks only where the source can wait.
 *
 * Landing: the receiver expects sources to take turns as they did before.  It offers the place of each expected payload
 * as a payload slot.  A packet as expected costs no copy.  An unexpected packet is copied by way of the slot's own
 * buffer, because its place may hold another packet of the same batch.  If fewer than half of a batch came as expected,
 * the next batches are received into the slots' own buffers and copied once.  Packets that the source lends are copied
 * once, past the cache.  All packets are copied so if chunks are direct.
 *
 * CRC: a packet with a CRC item (spead.h) is refused unless the item agrees, wherever its payload landed: bytes of refused
 * packets are never marked as arrived.  Payloads that a card wrote to a device's memory are not checked.
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
    unsigned source;         /* in that member */
    uint64_t wire_timestamp; /* 48 bits */
    uint32_t extra;
};

/* Says whose packet it is, or why it is not one of ours.  Pure; 'context' is the daemon's constant description.
 * packet->wanted[] is in the order of receiver_config.wanted_ids. */
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
    const struct assembler_config *assemblers; /* copied; may_wait is set here, from the source */
    size_t n_assemblers;
    bool direct;          /* their chunks are (chunk.h): nothing may land in them, as what fell wrong would be read */
    bool needs_crc;       /* packets without a CRC item are refused */
    struct inbox *worker; /* told {end_kind, 0, NULL} when a file has ended or the source died, after a flush */
    int end_kind;
};

/* Counters of a receiver for packets that are not yet assigned to a member. */
struct receiver_stats {
    struct counter packets;
    struct counter rejects[N_REJECTS];
    struct counter refused_heaps[N_REJECTS]; /* heaps whose first packet is among those, or among a member's */
    struct counter metadata_heaps;           /* descriptors, and heaps that lack an item */
    struct counter malformed[SPEAD_N_ERRORS];
};

/* Adds what the buffers of a receiver take, chunks not counted, whose source is given these, as
 * recv_packet_ring_init(). */
void receiver_add_memory(const struct config_recv *keys, size_t mtu, size_t n_kept, struct memory_use *use);

/* Opens the source and makes the assemblers.  Returns 0 or negative errno with one sentence in 'why'. */
int receiver_create(const struct receiver_config *config, struct receiver **receiver, char *why, size_t why_bytes);

/* The same with a source that is open already and now belongs to the receiver, also on failure: for tests. */
int receiver_create_from(const struct receiver_config *config, struct recv_source *source, struct receiver **receiver);

const struct receiver_stats *receiver_get_stats(const struct receiver *receiver);

/* recv_source_kernel_drops() of a receiver's source.  Any thread. */
int64_t receiver_kernel_drops(const void *receiver);

/* True where the source is a file. */
bool receiver_can_wait(const struct receiver *receiver);

int receiver_start(struct receiver *receiver);

/* recv_source_enable() of its source: the last that a start needs. */
int receiver_enable(struct receiver *receiver, char *why, size_t why_bytes);

/* Once the worker was told of the end: 0 at the end of a file, or the negative errno with which the source died. */
int receiver_get_error(const struct receiver *receiver);

/* Stops the thread (within 100 ms) and leaves open what is; free inboxes never wait again.  Idempotent. */
void receiver_halt(struct receiver *receiver);

/* First sample of the oldest open chunk of a halted receiver; INT64_MAX if no chunk is open.  receiver_flush_oldest()
 * hands that chunk on.  So the last chunks of several receivers can leave in order of time (receiver_set.c). */
int64_t receiver_oldest_samples(const struct receiver *receiver);
void receiver_flush_oldest(struct receiver *receiver);

/* Halts, then hands on all open chunks.  Idempotent. */
void receiver_stop(struct receiver *receiver);

/* Stops it first.  NULL is accepted. */
void receiver_destroy(struct receiver *receiver);

#endif
