/* reject.h - the reasons to refuse a packet.  Both daemons and visrec have the same reasons, each with a counter.
 *
 * Flow: recv_source and receiver find the reasons before REJECT_TOO_OLD, the assembler finds the others. */
#ifndef COMMON_RECV_REJECT_H
#define COMMON_RECV_REJECT_H

#include <assert.h>
#include <stdbool.h>

/* Reasons to refuse a packet; each has a counter.  The reasons before REJECT_TOO_OLD do not depend on the window. */
enum reject {
    REJECT_NONE = 0,
    REJECT_BAD_SENDER,    /* from an address that may not send to this endpoint (recv.from) */
    REJECT_MALFORMED,     /* not SPEAD-64-48 (spead.h lists the errors) */
    REJECT_DESCRIPTOR,    /* item descriptors without data; part of any stream */
    REJECT_STOP,          /* a stop heap: part of any stream */
    REJECT_OTHER_THREAD,  /* the packet of a source that another receive thread assembles; no error */
    REJECT_NO_ITEMS,      /* lacks an item that our heaps have, and is not a descriptor */
    REJECT_HEAP_SIZE,     /* heap length differs from the configuration's */
    REJECT_ALIGNMENT,     /* payload offset or length not a multiple of 8, or no payload */
    REJECT_BAD_TIMESTAMP, /* timestamp not a multiple of the heap's length */
    REJECT_BAD_SOURCE,    /* polarisation or feng_id not one of ours */
    REJECT_BAD_FREQUENCY, /* first channel not this engine's: wrong wiring */
    REJECT_CRC,           /* the CRC item does not match the packet, or is missing (recv.crc) */
    REJECT_TOO_OLD,       /* behind the window */
    REJECT_JUMP,          /* far from the window, or ahead of its time, and not (yet) believed */
    REJECT_CLOCK,         /* a claim that would be believed, but the host's synchronised clock contradicts it */
    REJECT_DUPLICATE,     /* some of the packet's bytes had already arrived */
    REJECT_NO_CHUNK,      /* no free chunk: the worker is behind; or no room for the packet's frame (chunk.h) */
    N_REJECTS
};

/* Returns the reason as in the metric's label: "too_old". */
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

/* Returns true for the reasons of packets that belong to any stream.  These count as ignored, not as refused. */
static inline bool reject_is_harmless(enum reject reject)
{
    return reject == REJECT_DESCRIPTOR || reject == REJECT_STOP || reject == REJECT_OTHER_THREAD;
}

#endif
