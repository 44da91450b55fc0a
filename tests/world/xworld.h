/* xworld.h - the scenario of xworld.c, for the models of its outputs and requests.
 *
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_XWORLD_H
#define TESTS_WORLD_XWORLD_H

#include "common/base/units.h"
#include "tests/world/network.h"
#include "tests/world/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_ANTS       5
#define MAX_CHANS      4 /* of the substream */
#define N_STREAM_CHANS 64
#define MAX_SPECTRA    16384
#define BATCH_NS       (8 * NS_PER_MS)
#define STEP           128 /* ADC samples between spectra */
#define MAX_BATCHES    256
#define MAX_PARTS      16                                        /* packets of a heap */
#define RATE_HZ        (s.batch_samples * (NS_PER_S / BATCH_NS)) /* a batch takes BATCH_NS */
#define SYNC_UNIX_S    1759990000
#define SOURCE         "239.1.0.1:7148"
#define DESTINATION    "239.2.0.1:7148"
#define SKIP           1 /* missing_dump */

struct scenario {
    unsigned n_spectra; /* in a heap: 16, or as many as saturate sums */
    int64_t batch_samples;
    bool is_loud; /* the voltages of polarisation 0 are as large as possible */
    unsigned n_ants, n_chan, n_parts, n_batches, length, n_threads, n_senders, chunk_batches, window;
    unsigned first_chan;   /* of the substream */
    unsigned buffer_bytes; /* of a receive thread's socket */
    unsigned stop_batch;   /* the daemon is stopped before this batch; n_batches: after all data */
    unsigned grid_batches; /* of beams' delay rates */
    int max_shift;         /* of inputs, in spectra; 0: inputs are not shifted */
    bool shifts_change;    /* requests change the shifts of inputs */
    bool has_vis_shifts;   /* the visibilities have their own shifts */
    int vis_shifts[MAX_ANTS][2];
    bool has_gate;         /* the gate "g" selects the spectra of the dumps */
    unsigned missing_dump; /* 0: send, 1: skip, 2: always */
    int64_t first_batch;
    unsigned jump_at; /* batch before which all timestamps jump by jump_batches; n_batches: none */
    int64_t jump_batches;
    unsigned far_from, far_to; /* batches that are sent with false timestamps, which the clock denies */
    int64_t far_batches;
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
    unsigned n_dump_packets;               /* that were sent */
    uint64_t n_clipped;                    /* visibilities of the dumps that were sent */
    unsigned n_flagged_dumps;              /* flagged whole although all heaps arrived in time */
    bool time_flipped;                     /* a packet with a wrong timestamp was read, and has no CRC */
    bool is_silent[MAX_ANTS][MAX_BATCHES]; /* the F-engine sends nothing */
};
extern struct scenario s;

/* ---- xdraw.c: the scenario, its faults and the configuration ----------------------------------------------------------- */

/* Draws the scenario, the beams, the requests and the faults of the device. */
void scenario_draw(void);
void scenario_write_config(const char *path);

/* Draws the faults of the links, and decides which promises hold. */
void scenario_draw_links(void);

/* ---- xheaps.c: F-engines --------------------------------------------------------------------------------------------- */

/* Forgets the heaps of the previous run. */
void heaps_forget(void);

/* Returns the number of the batch, from timestamp 0 on, that the F-engines send as their batch 'b'. */
int64_t batch_of(unsigned b);

/* Returns the place of a batch in the order of sending.  The batches that a jump leaves out have places that no heap
 * has: below 0, or at or above n_batches. */
int64_t place_of(int64_t batch);

/* Returns the number of the receive thread that processes an F-engine. */
unsigned thread_of(unsigned ant);

/* The byte of a voltage after the shift of its input: pseudo-random in all its arguments, and never -128.  'set': the
 * shifts of the inputs, or those of the visibilities. */
enum shift_set { BEAM_SHIFTS, VIS_SHIFTS };
int8_t voltage(enum shift_set set, unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol,
               unsigned part);

/* Returns whether xbgpu has all heaps of an F-engine from which a batch comes after the shifts.  'batch' counts from
 * timestamp 0. */
enum presence { ABSENT, PRESENT, UNSURE };
enum presence presence(unsigned ant, int64_t batch);

/* Returns true if one of these heaps may have wrong values. */
bool is_suspect(unsigned ant, int64_t batch);

/* Returns true if a batch comes from the heap 'source' after the shifts of an antenna's inputs. */
bool heaps_feed(enum shift_set set, unsigned ant, int64_t batch, int64_t source);

/* Returns true if a heap of the batch's chunk certainly arrived in time.  Otherwise xbgpu may not compute the batch. */
bool heaps_have_chunk(int64_t batch);

/* Returns true if the heap of a batch may have wrong values. */
bool heaps_suspect(unsigned ant, int64_t batch);

/* Sends batch 'b' of an F-engine. */
void heaps_send(struct network_port *port, unsigned ant, unsigned b);

/* Returns true if a packet of a heap was read. */
bool heaps_were_read(unsigned ant, unsigned b);

/* Returns true if all packets of a heap arrived, or arrived in time. */
bool heaps_arrived(unsigned ant, unsigned b);
bool heaps_in_time(unsigned ant, unsigned b);

/* Returns true if a receive thread has read a packet of the batches before 'end'. */
bool heaps_heard(unsigned thread, unsigned end);

/* Largest age at which a packet is certainly in time: the window, without the chunk that leaves and half a chunk. */
int64_t heaps_in_time_ns(void);

/* Returns the batch from which on all heaps are certainly expected. */
int64_t heaps_begun(void);

/* Returns true if the jump may cost batch 'b'. */
bool is_near_jump(int64_t b);

/* ---- xdumps.c: dumps ------------------------------------------------------------------------------------------------- */

void dumps_forget(void);
void dumps_listen(void);

/* Compares xbgpu's counters with the dumps that it sent, while xbgpu runs. */
void dumps_check_counters(void);

/* Checks that a packet has the first channel and a heap count of the substream. */
void dumps_check_substream(const struct wire_packet *packet);

/* Returns the end of the newest dump in samples, or 0. */
int64_t dumps_newest_end(void);

/* Compares all dumps with the model. */
void dumps_check(void);

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

/* Draws the shifts of inputs at the start.  Writes their keys of the configuration.  Returns the shift of an input in a
 * batch, in spectra. */
void requests_draw_shifts(void);
void requests_write_shifts(FILE *file);
int requests_shift(unsigned ant, unsigned pol, int64_t batch);

/* Writes the calibration gain [re, im] of an input. */
void requests_calibration(unsigned ant, unsigned pol, unsigned chan, int64_t batch, int gain[2]);

/* Returns the settings of a beam for a batch.  They are valid until the next call. */
const struct steering *requests_steering(unsigned beam, int64_t batch);

/* ---- xothers.c: other packets -------------------------------------------------------------------------------------- */

/* Forgets the packets of the previous run. */
void others_draw(void);

/* Sends other packets to xbgpu, at random. */
void others_send(struct network_port *port, unsigned b);

/* Sends the first packet of a heap with a timestamp that the clock denies, if the receive thread knows the time. */
void others_send_far(struct network_port *port, unsigned ant, unsigned b);

/* Compares xbgpu's counters with the packets that xbgpu read.  'has_flips': bits flip in the network. */
void others_check(bool has_flips);

/* ---- xbeams.c: voltage beams and detected beams -------------------------------------------------------------------- */

/* Draws the beams of the scenario, and requests. */
void beams_draw(void);
void beams_write_config(FILE *file);
void beams_listen(void);

/* Returns true if the scenario has beams. */
bool beams_exist(void);

/* Sets the faults of the links to the beams' receivers. */
void beams_set_faults(const struct network_faults *faults);

/* Compares all heaps of beams with the model. */
void beams_check(void);

/* Returns the number of complete heaps of beams. */
uint64_t beams_n_sent(void);

/* Frees the heaps, after world_end(). */
void beams_end(void);

#endif
