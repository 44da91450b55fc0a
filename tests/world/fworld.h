/* fworld.h - the parts of fworld: the scenario of a run, the model of the filter bank, and the judge of a run.
 *
 * The number of a packet is its timestamp in 64 bits, divided by PACKET.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_FWORLD_H
#define TESTS_WORLD_FWORLD_H

#include "common/base/units.h"
#include "tests/world/clock.h"
#include "tests/world/network.h"
#include "tests/world/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_ANTS     2
#define N_CHAN       64
#define STEP         (2 * N_CHAN) /* ADC samples between spectra */
#define N_TAPS       4
#define N_SPECTRA    16
#define N_SUBSTREAMS 2
#define SUB_CHAN     (N_CHAN / N_SUBSTREAMS)
#define NARROW       N_SUBSTREAMS /* index of the first substream of the narrow band, whose heaps have the same size */
#define N_HEAPS      (2 * N_SUBSTREAMS)
#define SUBSAMPLING  2 /* decimation of 1, and a pass_bandwidth */
#define DDC_TAPS     32
#define BATCH        (N_SPECTRA * STEP)             /* samples */
#define REACH        (BATCH - STEP + N_TAPS * STEP) /* samples of a batch's filter windows */
#define NARROW_REACH (BATCH - STEP + (N_TAPS * N_CHAN - 1) * SUBSAMPLING + DDC_TAPS)
#define PACKET       256 /* samples */
#define BITS         10
#define PERIOD       4 /* batches */
#define GAIN         0.02
#define RATE_HZ      (s.rate_hz) /* of the digitisers */
#define PACKET_NS    (PACKET * NS_PER_S / RATE_HZ)
#define MAX_PACKETS  1024
#define HEAP_BYTES   (SUB_CHAN * N_SPECTRA * 4)
#define WIRE_PERIOD  (INT64_C(1) << 48) /* samples until the timestamps of packets repeat */

struct scenario {
    unsigned n_ants, n_threads, n_senders, chunk_packets, window, n_packets;
    int64_t sync_unix_s, first_packet; /* number of the first packet */
    int64_t rate_hz;                   /* SATELLITE_RATE_HZ if fgpu follows satellites, otherwise USUAL_RATE_HZ */
    bool is_prompt, is_lossy, has_narrow, has_gnss;
    bool is_calm;                     /* two antennas follow a satellite for a long time, and no input is silent */
    bool is_buffer_small;             /* of the sockets that receive */
    bool has_others;                  /* packets that are no samples */
    bool has_crc;                     /* packets of samples have a CRC */
    double halve, contest;            /* probability that half of a packet is sent, that another copy is sent, too */
    unsigned n_clipped[2 * MAX_ANTS]; /* saturated samples of each packet of an input */
    uint64_t n_clipped_voltages;      /* of the wide band, as the daemon counts */
    uint64_t n_contested;             /* heaps, as the daemon counts */
    uint64_t n_voltage_packets;       /* that were sent */
};
extern struct scenario s;

/* ---- ffaults.c: faults of time and of the device ----------------------------------------------------------------- */

enum clock_fault { RIGHT, STEPPED, LEAP, DRIFTING, UNSYNCHRONISED, CORRECTED };
enum digitiser_fault { RUNNING, RESTARTED, ANTENNA_OFF, POL_OFF, SYNC_OFF, SAMPLE_OFF };

#define ALL UINT32_MAX

enum device_fault { GOOD, SLOW, FAILING };

/* A change of the host's clock while the daemon runs. */
struct clock_change {
    int64_t after_ns; /* since the first packet */
    int64_t step_ns;  /* that the clock is set forward */
    int state;        /* that the kernel reports afterwards */
};

struct faults {
    enum clock_fault clock;
    struct world_clock at_start;
    struct clock_change changes[4];
    size_t n_changes;
    int64_t corrected_ns;    /* when the kernel reports a right clock, since the first packet */
    unsigned pause_at;       /* number of packets before all digitisers pause; 0: no pause */
    int64_t n_pause_packets; /* that are not sent in the pause */
    enum digitiser_fault digitiser;
    unsigned ant, pol, from, to; /* inputs (or ALL) and packets whose timestamps are shifted */
    int64_t shift_samples;
    unsigned n_silent; /* packets before 'from' that these inputs do not send */
    bool is_denied;    /* the host's synchronised clock contradicts the shifted timestamps */
    enum device_fault device;
};
extern struct faults faults;

/* Draws the faults of a run.  May raise s.n_packets. */
void faults_draw(void);

/* Starts the faults of the clock and the device, after the start of the daemon. */
void faults_begin(int64_t begin_ns);

/* Returns when packet 'p' is sent, in packets after packet 0. */
int64_t faults_time(unsigned p);

/* Returns the number of samples by which an input's packet 'p' has a wrong timestamp. */
int64_t faults_shift(unsigned ant, unsigned pol, unsigned p);

/* Returns the number of WIRE_PERIODs by which the daemon extends an input's timestamps too far, because its clock is wrong
 * when the first packet arrives.  Call this function at the start. */
int64_t faults_wrong_periods(unsigned ant, unsigned pol);

/* Excuses the absence of batches that may be lost. */
void faults_excuse(int64_t begin_ns, int64_t jitter_ns);

/* Adds all kinds of faults to the report. */
void faults_begin_report(void);

const char *faults_clock(void);
const char *faults_digitiser(void);

int64_t random_between(int64_t least, int64_t most);

/* ---- fsettings.c: delays and gains through KATCP ----------------------------------------------------------------- */

#define MAX_UNSURE 16

/* The settings that an input may have at one time.  There are several if a request is under way. */
struct settings {
    unsigned n_delays, n_gains;
    int64_t delays[MAX_UNSURE]; /* [n_delays] samples */
    double gains[MAX_UNSURE];   /* [n_gains] */
};

/* Draws the requests of a run, after faults_draw(). */
void settings_draw(void);
bool settings_exist(void);

/* Connects to the daemon. */
void settings_begin(void);

/* Sends the next request if it is due when packet 'p' is sent. */
void settings_step(unsigned p);

/* Checks that all requests have replies.  Call this function after the daemon's end. */
void settings_end(void);

/* Finds the settings of a spectrum whose timestamp is 'samples'. */
void settings_at(unsigned input, int64_t samples, struct settings *settings);

/* Prints the requests. */
void settings_show(void);

/* Returns true if an input may have the delay, in samples, at the time 'samples' or later. */
bool settings_may_delay(unsigned input, int64_t samples, int64_t delay);

/* Returns true if a change of a delay may lose this batch. */
bool settings_lose(unsigned ant, int64_t batch_samples);

/* ---- fothers.c: packets that are no samples, or that spoil samples ------------------------------------------------- */

struct sent;

/* Draws the kinds of packets of a run, after faults_draw(). */
void others_draw(void);

/* Sends a packet with a mistake beside this packet of samples, at random. */
void others_send(struct network_port *port, const struct wire_packet *packet);

/* Sends half of packet 'p' instead of the packet, at random.  Returns true if it does. */
bool others_send_half(struct network_port *port, const struct wire_packet *packet, struct sent *sent, unsigned p);

/* Sends a copy of packet 'p' with other samples, at random. */
void others_contest(struct network_port *port, const struct wire_packet *packet, struct sent *sent, unsigned p);

/* Counts a packet with a flipped bit that the daemon has read.  Returns true if the daemon may take the packet, because
 * the packet has no CRC any more.  All other bits of such a packet are right. */
bool others_flipped(const struct network_delivery *delivery);

/* Compares the daemon's counters with the packets that it read.  'has_flips': bits flip in the network. */
void others_check(bool has_flips);

/* ---- fmodel.c: samples and the filter bank ----------------------------------------------------------------------- */

/* Returns a sample of 10 bits at a time in samples since the sync time. */
int model_sample(unsigned ant, unsigned pol, int64_t time);

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

/* Compares a heap with the filter bank in double precision and the settings of its spectra.  Fails the run if they
 * differ. */
void model_compare(unsigned ant, unsigned substream, int64_t batch, const uint8_t *heap);

/* Finds how many voltages model_compare() found clipped, at least and at most.  A voltage of 127 may be clipped. */
void model_count_clipped(uint64_t *n_least, uint64_t *n_most);
void model_forget_clipped(void);

/* ---- fjudge.c: the fate of packets, and the heaps of voltages ---------------------------------------------------- */

/* A packet of the digitisers. */
struct sent {
    int64_t sent_ns;
    unsigned n_sent;
    bool arrived, late;     /* the packet was read; every copy of the packet was read late */
    bool may_have_arrived;  /* a copy without its CRC was read */
    bool was_contested;     /* a copy with other samples was read */
    bool contested_in_time; /* this copy was in time */
    bool half_arrived;      /* half of the packet was read instead of the packet */
};

/* Forgets the packets, heaps and excuses of the previous run. */
void judge_begin(void);

/* Returns the record of a packet.  Makes a record if there is none. */
struct sent *judge_sent(unsigned ant, unsigned pol, int64_t packet);

/* Returns true if a packet that is read 'age_ns' after it was sent is certainly in time. */
bool judge_is_in_time(int64_t age_ns);

/* Excuses the absence of batches of an antenna whose packets were sent in [from_ns, to_ns). */
void judge_excuse(unsigned ant, int64_t from_ns, int64_t to_ns);

/* Returns the time when the first packet of an input was sent that arrived, from this time on.  If there is none,
 * returns a time far in the future. */
int64_t judge_first_read_ns(unsigned ant, unsigned pol, int64_t from_ns);

/* Returns the time when an input had sent a chunk from its beginning, of which three quarters arrived. */
int64_t judge_first_chunk_ns(unsigned ant, unsigned pol);

/* Returns the time when the last packet of an input was sent that arrived.  If there is none, returns INT64_MIN. */
int64_t judge_last_read_ns(unsigned ant, unsigned pol);

/* Finds the first and the last packet of an input of which a part arrived.  Returns false if none arrived. */
bool judge_span(unsigned ant, unsigned pol, int64_t *first, int64_t *last);

/* Returns the time after the newest batch of an antenna of which a part was sent. */
int64_t judge_newest_samples(unsigned ant);

/* If packets of both polarisations at the same time are in fgpu's chunks, or if they may have wrong samples: */
enum presence { ABSENT, UNSURE, PRESENT, SUSPECT };
enum presence judge_presence(unsigned ant, int64_t packet);

/* Takes a datagram of voltages.  'substream' is the index of the substream, as a pointer. */
void judge_take(void *substream, const uint8_t *bytes, size_t n_bytes);

/* Returns the heap of a batch.  Fails the run if the heap did not arrive. */
const uint8_t *judge_heap(unsigned ant, unsigned substream, int64_t batch);

/* Judges all batches.  Fails the run if a batch is wrong. */
void judge_all(void);

/* Prints the fate of each packet: not sent (-), lost (x), late (l) or in time (.). */
void judge_show(void);

/* ---- fsums.c: a satellite's signal, and its sums ----------------------------------------------------------------- */

#define USUAL_RATE_HZ     256000
#define SATELLITE_RATE_HZ 4096000
#define SATELLITE         7 /* PRN of the satellite whose signal the samples have */
#define CODE_CHIPS        1023
#define CHIP_RATE_HZ      1.023e6
#define N_SATELLITE_TAPS  3 /* early, prompt, late */
#define SUMS              "239.2.2.0:7148"

#define MAX_PARTS 6

/* The samples of an integration that are in one round, or that are missing. */
struct integration_part {
    int64_t first;   /* complex samples since the sync time; the part ends where the next part begins */
    bool is_missing; /* fgpu has none of the samples, even if their packets arrived */
};

/* The samples of an integration at one antenna.  The phases are those of the sample 'middle'. */
struct integration {
    unsigned ant, prn;
    bool is_inverted;
    int64_t first, end, middle; /* complex samples since the sync time */
    struct integration_part parts[MAX_PARTS];
    unsigned n_parts;
    uint64_t carrier, carrier_step; /* 2^-64 turns */
    uint64_t code, code_step;       /* 2^-48 chips */
    uint32_t n_present;
};

/* Returns true if these sums [tap][pol][re, im] are right for a set of present packets that is possible. */
bool sums_match(const struct integration *integration, double found[N_SATELLITE_TAPS][2][2]);

bool sums_are_zero(double found[N_SATELLITE_TAPS][2][2]);

/* Returns the signal of the satellite in the samples, its code phase, and the distance of its carrier from a quarter of
 * the sample rate. */
double sums_signal(unsigned ant, unsigned pol, int64_t time);
double sums_true_chips(unsigned ant, double time_samples);
double sums_true_offset_hz(void);

/* ---- fgnss.c and ftrack.c: requests about satellites, and the judge of heaps of sums ----------------------------- */

/* Draws satellites and requests, after faults_draw() and draw_sync(). */
void gnss_draw(void);

/* Writes the keys 'gnss' and 'satellites'. */
void gnss_write_config(FILE *file);

/* Connects to the daemon. */
void gnss_begin(void);

/* Sends the next request if it is due when packet 'p' is sent. */
void gnss_step(unsigned p);

/* Takes a datagram of sums. */
void gnss_take(void *unused, const uint8_t *bytes, size_t n_bytes);

/* Compares the counters of samples and of heaps that were not made with the heaps.  Call this function after the last heap and before the stop. */
void gnss_check_counters(void);

/* Judges all heaps.  Fails the run if a record is wrong or missing. */
void gnss_judge(void);

/* Prints the requests. */
void gnss_show(void);

#endif
