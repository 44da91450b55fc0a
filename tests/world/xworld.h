/* xworld.h - the scenario of xworld.c, for the models of its outputs and requests.
 *
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_XWORLD_H
#define TESTS_WORLD_XWORLD_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_ANTS    5
#define MAX_CHANS   4 /* of the substream */
#define N_CHAN      64
#define N_SPECTRA   16
#define BATCH_NS    (8 * NS_PER_MS)
#define STEP        128 /* ADC samples between spectra */
#define BATCH       ((int64_t)N_SPECTRA * STEP)
#define MAX_BATCHES 256

struct scenario {
    unsigned n_ants, n_chan, n_parts, n_batches, length, n_threads, n_senders, chunk_batches, window;
    unsigned first_chan;   /* of the substream */
    unsigned buffer_bytes; /* of a receive thread's socket */
    unsigned stop_batch;   /* the daemon is stopped before this batch; n_batches: after all data */
    bool has_shifts;
    int shifts[2][2 * MAX_ANTS]; /* in spectra, of each input [ant][pol]: BEAM_SHIFTS and VIS_SHIFTS */
    bool has_gate;               /* the gate "g" selects the spectra of the dumps */
    unsigned missing_dump;       /* 0: send, 1: skip, 2: always */
    int64_t first_batch;
    int64_t begin_ns; /* batch b is sent at begin_ns + b * BATCH_NS */
    bool is_prompt;   /* packets overtake each other by less than half a chunk, which is the margin of data_time.h */
    bool has_silence, is_lossy;
    bool may_fail, has_failed; /* the device; a drain that is given up counts as a failure */
    uint64_t n_beam_heaps;     /* that were made, by the log */
    uint64_t n_given_up;       /* heaps that the drain did not send, by the log */
    bool is_stalled, gave_up;  /* the device is so slow after the stop that the drain may be given up */
    bool is_overloaded;        /* the device may be slower than the data */
    bool has_forger;           /* a second host sends voltages, and recv.from names only the first */
    bool has_crc;              /* packets have a CRC, and xbgpu refuses packets without a CRC */
    unsigned n_flipped_read;
    bool time_flipped;                     /* a packet with a wrong timestamp was read, and has no CRC */
    bool is_silent[MAX_ANTS][MAX_BATCHES]; /* the F-engine sends nothing */
};
extern struct scenario s;

/* The byte of a voltage: pseudo-random in all its arguments, and never -128. */
int8_t voltage(unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol, unsigned part);

/* The same after the shifts of a set. */
enum { BEAM_SHIFTS, VIS_SHIFTS };
int8_t shifted_voltage(unsigned set, unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol,
                       unsigned part);

/* Returns whether xbgpu has all heaps of an F-engine that a batch of beams needs.  'batch' counts from timestamp 0. */
enum presence { ABSENT, PRESENT, UNSURE };
enum presence presence(unsigned ant, int64_t batch);

/* Returns true if one of these heaps may have wrong values. */
bool is_suspect(unsigned ant, int64_t batch);

struct wire_packet;

/* Checks that a packet has the first channel and a heap count of the substream. */
void check_substream(const struct wire_packet *packet);

/* ---- xrequests.c: requests over KATCP ----------------------------------------------------------------------------- */

#define MAX_STREAMS 4 /* vis, two voltage beams, one stream of detected beams */
#define MAX_BEAMS   4 /* two voltage beams, two beams of the stream of detected beams */

/* The settings of a beam from a timestamp on: antenna a has the coefficient weight * j^quarter * 2^-shift. */
struct steering {
    int64_t from_samples;
    int weight[MAX_ANTS], quarter[MAX_ANTS], shift;
};

/* Draws the requests of the scenario.  The streams have these names. */
void requests_draw(const char *const *streams, unsigned n_streams, const char *const *beams, unsigned n_beams);

/* Connects the clients. */
void requests_connect(void);

/* Sends the requests that are due before this batch is sent. */
void requests_send(unsigned batch);

/* Checks that each request has been answered once, and closes the connections. */
void requests_check(void);
void requests_end(void);

/* Returns true if all settings are known: the daemon has answered all requests. */
bool requests_are_known(void);

/* Returns whether the stream is sent: a heap that begins at a timestamp, and that is complete between two times. */
enum presence requests_sends(unsigned stream, int64_t begin_samples, int64_t from_ns, int64_t to_ns);

/* Returns whether the gate takes the spectrum with this timestamp.  Writes the gate's keys of the configuration. */
bool requests_gate_takes(int64_t samples);
void requests_write_gate(FILE *file);

/* Returns the settings of a beam for a batch. */
const struct steering *requests_steering(unsigned beam, int64_t batch);

/* ---- xothers.c: other packets -------------------------------------------------------------------------------------- */

struct network_port;

/* Sends other packets to xbgpu, at random. */
void others_send(struct network_port *port, unsigned batch);

/* ---- xbeams.c: voltage beams and detected beams -------------------------------------------------------------------- */

/* Draws the beams of the scenario, and requests. */
void beams_draw(void);
void beams_write_config(FILE *file);
void beams_listen(void);

/* Compares all heaps of beams with the model. */
void beams_check(void);

/* Returns the number of complete heaps of beams. */
uint64_t beams_n_sent(void);

/* Frees the heaps, after world_end(). */
void beams_end(void);

#endif
