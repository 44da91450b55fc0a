/* reject.h - the reasons to refuse a packet.  fgpu, xbgpu and visrec use the same reasons.
 *
 * Flow: the receiver finds most reasons before REJECT_TOO_OLD, and the assembler finds the others. */
#ifndef COMMON_RECV_REJECT_H
#define COMMON_RECV_REJECT_H

#include <assert.h>
#include <stdbool.h>

/* Reasons to refuse a packet.  Each reason has a counter.  The reasons before REJECT_TOO_OLD do not depend on the
 * window. */
enum reject {
    REJECT_NONE = 0,
    REJECT_BAD_SENDER,    /* recv.from does not allow this sender to send to this endpoint */
    REJECT_MALFORMED,     /* not a SPEAD-64-48 packet (spead.h lists the errors) */
    REJECT_DESCRIPTOR,    /* a packet of a descriptor heap, which any stream may contain */
    REJECT_STOP,          /* a packet of a stop heap, which any stream may contain */
    REJECT_OTHER_THREAD,  /* the packet's source belongs to another receive thread; this is no error */
    REJECT_NO_ITEMS,      /* the packet lacks a required item, and is not a descriptor */
    REJECT_HEAP_SIZE,     /* the packet's heap length is not the configured length */
    REJECT_ALIGNMENT,     /* payload offset or length is not a multiple of 8, or there is no payload */
    REJECT_BAD_TIMESTAMP, /* timestamp is not a multiple of the heap's length */
    REJECT_BAD_SOURCE,    /* the packet's polarisation or feng_id is not in the configuration */
    REJECT_BAD_FREQUENCY, /* the packet's first channel is not this engine's first channel (wrong address) */
    REJECT_CRC,           /* the packet's CRC item does not match, or is missing although recv.crc requires it */
    REJECT_TOO_OLD,       /* behind the window */
    /* timestamp far from the window or in the future, without enough evidence of a jump of time (assemble.h) */
    REJECT_JUMP,
    /* with this packet there is enough evidence of a jump of time, but the host's synchronised clock contradicts the
     * jump */
    REJECT_CLOCK,
    REJECT_DUPLICATE, /* some of the packet's bytes had already arrived */
    REJECT_NO_CHUNK,  /* no chunk is free, or the chunk has no room for the packet's frame (chunk.h) */
    N_REJECTS
};

/* Returns the name of a reason, as in labels of metrics: "too_old". */
static inline const char *reject_name(enum reject reject)
{
    static const char *const names[N_REJECTS] = {
        [REJECT_NONE] = "none",
        [REJECT_BAD_SENDER] = "bad_sender",
        [REJECT_MALFORMED] = "malformed",
        [REJECT_DESCRIPTOR] = "descriptor",
        [REJECT_STOP] = "stop",
        [REJECT_OTHER_THREAD] = "other_thread",
        [REJECT_NO_ITEMS] = "no_items",
        [REJECT_HEAP_SIZE] = "heap_size",
        [REJECT_ALIGNMENT] = "alignment",
        [REJECT_BAD_TIMESTAMP] = "bad_timestamp",
        [REJECT_BAD_SOURCE] = "bad_source",
        [REJECT_BAD_FREQUENCY] = "bad_frequency",
        [REJECT_CRC] = "crc",
        [REJECT_TOO_OLD] = "too_old",
        [REJECT_JUMP] = "jump",
        [REJECT_CLOCK] = "clock",
        [REJECT_DUPLICATE] = "duplicate",
        [REJECT_NO_CHUNK] = "no_chunk",
    };

    assert((unsigned)reject < N_REJECTS);
    return names[reject];
}

/* Returns true if every stream may contain packets with this reason.  Such packets count as ignored, not as refused. */
static inline bool reject_is_harmless(enum reject reject)
{
    return reject == REJECT_DESCRIPTOR || reject == REJECT_STOP || reject == REJECT_OTHER_THREAD;
}

#endif
