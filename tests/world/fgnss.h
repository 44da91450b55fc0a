/* fgnss.h - the parts of fworld that judge satellites: the heaps of sums, requests, and the model of the loops.
 *
 * For fgnss.c and ftrack*.c only.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_FGNSS_H
#define TESTS_WORLD_FGNSS_H

#include "tests/world/fworld.h"

#define MAX_PRNS     2
#define MAX_RECORDS  16
#define MARGIN_HEAPS 10 /* after a reply, heaps that may be older than the request */
#define L1_HZ        1575.42e6
#define CARRIER_HZ   30123.4 /* in the baseband, without Doppler */
#define GNSS_RATE_HZ (SATELLITE_RATE_HZ / SUBSAMPLING)
#define CODE_SAMPLES (GNSS_RATE_HZ / 1000)  /* complex samples of a code period */
#define DELAY        ((DDC_TAPS - 1) / 2.0) /* ADC samples from the timestamp of a complex sample to its signal */

/* A record, as the descriptor's dtype says. */
struct record {
    int64_t timestamp, code_period;
    double code_phase;
    int64_t carrier_cycles;
    double carrier_phase, doppler, doppler_rate, sums[N_SATELLITE_TAPS][2][2];
    float cn0[2];
    uint32_t n_samples, n_present;
    uint16_t prn, signal, stage, flags;
    int32_t symbol_period;
    uint32_t n_starts;
};

struct heap {
    int64_t begin, end;     /* complex samples since the sync time */
    bool is_continued;      /* the antenna's heap before this heap ends where this heap begins */
    bool continues_samples; /* the first filter windows reach into an earlier chunk */
    unsigned arrival;       /* number of heaps of all antennas that arrived before this heap */
    struct record records[MAX_RECORDS];
};

/* The heaps of all antennas for the same chunk. */
struct round {
    int64_t begin, end;           /* samples of the replicas, which are late by the largest delay */
    bool is_continued;            /* the round before this round ends where this round begins */
    bool went_back;               /* the time is before the end of the round before this round */
    struct heap *heaps[MAX_ANTS]; /* NULL: the antenna has no samples */
    unsigned n_before[MAX_ANTS];  /* number of the antenna's heaps before this round */
};

struct order {
    enum { STEER, DROP, ADD } kind;
    unsigned ant, index, due; /* index of the satellite in 'prns' */
    int64_t timestamp;        /* samples since the sync time */
    double chips, doppler_hz;
    bool has_begun;             /* a record follows from the request */
    unsigned n_before, n_after; /* number of the antenna's heaps before the request, and before its reply */
    unsigned n_arrivals;        /* number of heaps of all antennas before the request */
};

struct gnss {
    unsigned prns[MAX_PRNS];
    bool is_inverted, has_search;
    int64_t delay_samples; /* largest delay between two antennas */
    struct round *rounds;
    unsigned n_rounds;
    struct order *orders;
    unsigned n_sent; /* orders that were sent */
};
extern struct gnss gnss;

/* Returns the timestamp nearest to the run's first timestamp that has these low 48 bits. */
int64_t gnss_unwrap(uint64_t wire);

/* Returns true if timestamps may jump.  fgpu stops all tracking at a jump. */
bool gnss_may_restart(void);

/* Returns the first complex sample to which a request to follow a satellite refers. */
int64_t gnss_order_sample(const struct order *order);

/* Judges the records of a satellite. */
void gnss_judge_satellite(unsigned index);

#endif
