/* fworld.h - the parts of fworld: the scenario of a run, the model of the filter bank, and the judge of a run.
 *
 * The number of a packet is its timestamp in 64 bits, divided by PACKET.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_FWORLD_H
#define TESTS_WORLD_FWORLD_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_ANTS     2
#define N_CHAN       64
#define STEP         (2 * N_CHAN) /* ADC samples between spectra */
#define N_TAPS       4
#define N_SPECTRA    16
#define N_SUBSTREAMS 2
#define SUB_CHAN     (N_CHAN / N_SUBSTREAMS)
#define BATCH        (N_SPECTRA * STEP)             /* samples */
#define REACH        (BATCH - STEP + N_TAPS * STEP) /* samples of a batch's filter windows */
#define PACKET       256                            /* samples */
#define BITS         10
#define PERIOD       4 /* batches */
#define GAIN         0.02
#define RATE_HZ      256000
#define PACKET_NS    ((int64_t)PACKET * NS_PER_S / RATE_HZ)
#define MAX_PACKETS  1024
#define HEAP_BYTES   (SUB_CHAN * N_SPECTRA * 4)
#define WIRE_PERIOD  (INT64_C(1) << 48) /* samples until the timestamps of packets repeat */

struct scenario {
    unsigned n_ants, n_threads, chunk_packets, window, n_packets;
    int64_t sync_unix_s, first_packet; /* number of the first packet */
    bool is_prompt, is_lossy;
};
extern struct scenario s;

/* ---- fmodel.c: samples and the filter bank --------------------------------------------------------------------------- */

/* Writes the samples of a packet. */
void model_pack(unsigned ant, unsigned pol, int64_t first_sample, uint8_t *out);

/* Keeps the heap of a run without faults as the voltages of 'batch' and of all batches PERIOD apart. */
void model_keep(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap);

/* Compares the voltages that were kept with a filter bank in double precision.  Fails the run if they differ. */
void model_check(void);

/* True after model_check(). */
extern bool model_is_known;

/* Returns true if the heap has the voltages of the run without faults. */
bool model_is_exact(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap);

/* ---- fjudge.c: the fate of packets, and the heaps of voltages --------------------------------------------------------- */

/* A packet of the digitisers. */
struct sent {
    int64_t sent_ns;
    unsigned n_sent;
    bool arrived, late; /* the packet was read; every copy of the packet was read late */
};

/* Forgets the packets, heaps and excuses of the previous run. */
void judge_begin(void);

/* Returns the record of a packet.  Makes a record if there is none. */
struct sent *judge_sent(unsigned ant, unsigned pol, int64_t packet);

/* Excuses the absence of batches of an antenna whose packets were sent in [from_ns, to_ns). */
void judge_excuse(unsigned ant, int64_t from_ns, int64_t to_ns);

/* Returns the time when the first packet of an antenna was sent that arrived, from this time on.  If there is none, returns
 * a time far in the future. */
int64_t judge_first_read_ns(unsigned ant, int64_t from_ns);

/* Returns the time when the last packet of an input was sent that arrived.  If there is none, returns INT64_MIN. */
int64_t judge_last_read_ns(unsigned ant, unsigned pol);

/* Takes a datagram of voltages.  'substream' is the index of the substream, as a pointer. */
void judge_take(void *substream, const uint8_t *bytes, size_t n_bytes);

/* Returns the heap of a batch.  Fails the run if the heap did not arrive. */
const uint8_t *judge_heap(unsigned ant, unsigned substream, int64_t batch);

/* Judges all batches.  Fails the run if a batch is wrong. */
void judge_all(void);

/* Prints the fate of each packet: not sent (-), lost (x), late (l) or in time (.). */
void judge_show(void);

#endif
