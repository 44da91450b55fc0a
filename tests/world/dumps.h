/* dumps.h - the dumps that the X-engines of vworld.c send: their contents, the fates of their packets, and the promises
 * of the recorder that follow.
 *
 * Contents:  pseudo-random visibilities, weights and counts of a gate, which the recorder's file must contain.
 * Fates:     dumps_seen() follows the recorder's window (assemble.h) packet by packet.  The recorder may accept more
 *            packets than this file promises: around a jump of the timestamps nothing is promised.
 * Threads:   threads of the world. */
#ifndef TESTS_WORLD_DUMPS_H
#define TESTS_WORLD_DUMPS_H

#include "tests/world/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUMPS_MAX            64
#define DUMPS_MAX_ANTS       3
#define DUMPS_MAX_BASELINES  (DUMPS_MAX_ANTS * (DUMPS_MAX_ANTS + 1) / 2)
#define DUMPS_MAX_CHANS      3 /* of a substream */
#define DUMPS_MAX_SUBSTREAMS 4
#define DUMPS_MAX_PARTS      8
#define DUMPS_MAX_HEAP       (DUMPS_MAX_CHANS * (DUMPS_MAX_BASELINES * (32 + 4) + 4))

#define DUMPS_FAR_AWAY  500000 /* distance of false times, in dumps */
#define DUMPS_N_SPECTRA 400    /* spectra of a complete accumulation */
#define DUMPS_SAMPLES   102400
#define DUMPS_RATE_HZ   1024000
#define DUMPS_NS        100000000                /* duration of a dump */
#define DUMPS_CLOCK_NS  (20 * (int64_t)DUMPS_NS) /* the recorder's tolerance is longer */

struct dumps_shape {
    unsigned n_ants, n_baselines, n_chan, n_substreams; /* n_chan: channels of a substream */
    bool weights, gate, gate_channels, real;
    size_t heap_bytes, part_bytes;
    unsigned n_parts; /* packets of a heap */
    unsigned window;  /* dumps of the recorder's window */
    bool is_prompt;   /* packets overtake each other by less than a dump */
    bool has_clock;   /* the recorder compares false times with the host's clock */
    bool has_crc;     /* packets carry a CRC, and the recorder requires it */
};

/* Kinds of packets.  The recorder counts a packet of each kind but the first three under one reason. */
enum dumps_kind {
    DUMPS_GENUINE,
    DUMPS_FORGED, /* a genuine heap's identity, with other visibilities */
    DUMPS_FAR,    /* a time far from all dumps */
    DUMPS_DESCRIPTOR,
    DUMPS_STOP,
    DUMPS_NO_ITEMS,
    DUMPS_HEAP_SIZE,
    DUMPS_ALIGNMENT,
    DUMPS_BAD_TIMESTAMP,
    DUMPS_BAD_FREQUENCY,
    DUMPS_STRANGER, /* as a genuine packet, from a sender that is not allowed */
    DUMPS_MALFORMED,
    DUMPS_N_KINDS
};

struct dumps_packet {
    enum dumps_kind kind;
    unsigned dump, substream, part;
    bool is_astray; /* DUMPS_FAR: a substream whose own time is wrong */
};

struct dumps_heap {
    int64_t last_read_ns;           /* when the last packet was read whole */
    unsigned read, in_time, forged; /* bit k: part k was read whole, certainly within the window, forged */
    unsigned forged_in_time;
};

struct dumps {
    struct dumps_shape shape;
    unsigned n;
    int64_t numbers[DUMPS_MAX]; /* the timestamp is number * DUMPS_SAMPLES */
    unsigned epochs[DUMPS_MAX]; /* a jump of the timestamps begins an epoch */
    struct dumps_heap heaps[DUMPS_MAX][DUMPS_MAX_SUBSTREAMS];
    uint64_t n_read[DUMPS_N_KINDS]; /* packets without a flipped bit */
    uint64_t n_flipped;             /* packets with a flipped bit that were read */
    bool is_unsafe;                 /* the recorder may have followed a false time */
};
extern struct dumps dumps;

/* Forgets all dumps.  Then sets the sizes of a heap and its parts from the other members of dumps.shape. */
void dumps_begin(const struct dumps_shape *shape, unsigned n_parts);

/* Writes the heap of a dump.  A forged heap has other visibilities. */
void dumps_fill_heap(unsigned dump, unsigned substream, bool is_forged, uint8_t *out);
size_t dumps_weights_offset(void);
size_t dumps_gate_offset(void);

/* The network's report of a packet; 'arg' is a struct dumps_packet. */
void dumps_seen(void *arg, const struct network_delivery *delivery);

/* Returns true if the heap is certainly complete in the file. */
bool dumps_promised(unsigned dump, unsigned substream);

/* Returns true if all packets of the heap arrived. */
bool dumps_arrived(unsigned dump, unsigned substream);

/* Returns true if the recorder certainly compared two different copies of a packet. */
bool dumps_contested(unsigned dump, unsigned substream);

/* A value in the file: visibility, flag, and the fraction of the spectra. */
struct dumps_value {
    uint32_t re, im;
    bool is_flagged;
    float nsamples;
};

/* Returns the value of a complete heap.  'pol' is the index of the file's polarisation: xx, yy, xy, yx. */
struct dumps_value dumps_expect(unsigned dump, unsigned substream, unsigned chan, unsigned ant_1, unsigned ant_2,
                                unsigned pol, bool is_forged);

#endif
