/* gnss.h - streams of correlation sums of satellite signals: converts the device inputs of each antenna to heaps of
 * integrations.
 *
 * Flow:      device input --baseband.c--> complex float, one chunk of one antenna --matcher.h--> a round: one chunk of each
 *            antenna --gnss_quantise--> int8 --gnss_correlate, with the replicas of all followed satellites--> sums of all
 *            antennas --download--> gnss_align.c closes the loops --records of each antenna--> senders
 *            int8 samples of a block --gnss_search.c, on a device stream of its own--> acquisition --> gnss_align.c
 * Streams:   each entry of 'gnss' is a stream of all antennas.  The antennas of a process share the loops of a satellite.
 *            Streams are independent.  Both polarisations are tracked together.
 * Rounds:    a round waits for all antennas, but not for an antenna that is more than recv.window + 1 chunks late.  Such
 *            an antenna is absent from the round, and its late chunk is counted.
 * Heaps:     for each chunk of an antenna in a round one heap is sent, with the integrations that ended in the round
 *            (gnss_record.h).  The heap is sent even if no integration ended.
 * Missing:   samples whose filter touches a missing packet of either polarisation are zeros and count as missing.
 *            If a chunk has more than GNSS_MAX_RUNS gaps, all later samples of the chunk count as missing.  If no output
 *            buffer is free, the whole round counts as a gap.
 * Scale:     each polarisation of an antenna has a scale, a power of two.  The scale follows the level slowly
 *            (gnss_quantise.h).
 * Replays:   a round waits for the sums and searches of the round before.  An antenna waits for earlier data of other
 *            antennas.  So a recording gives the same heaps every time.
 * Ownership: as in common/engine/outbuf.h.
 * Threads:   the worker, except create and destroy (main).   Blocking: never.  fgpu_gnss_process() returns false if no
 *            buffer is free.  In a replay, it also returns false while it waits. */
#ifndef FGPU_GNSS_GNSS_H
#define FGPU_GNSS_GNSS_H

#include "common/http/status.h"
#include "fgpu/config/layout.h"

#include <stdbool.h>

struct device_stream;
struct memory_use;
struct engine;
struct fgpu_device_input;
struct fgpu_gnss;
struct outbuf;

enum fgpu_gnss_action { FGPU_GNSS_NO_ACTION, FGPU_GNSS_ADD, FGPU_GNSS_DROP, FGPU_GNSS_STEER };

#define FGPU_GNSS_ALL_ANTENNAS SIZE_MAX

/* A request about a satellite (gnss_control.h). */
struct fgpu_gnss_order {
    enum fgpu_gnss_action action;
    size_t ant, stream, satellite; /* 'ant' may be FGPU_GNSS_ALL_ANTENNAS */
    int64_t timestamp_samples;     /* for STEER: ADC timestamp, modulo 2^48, at which the code phase is 'code_chips' */
    double code_chips, doppler_hz;
};

/* Creates the streams of all antennas, and the search thread.  The engine must already have its senders.  If the
 * configuration has no stream, '*gnss' becomes NULL.  All functions accept NULL.  Returns 0 or negative errno with
 * one sentence in 'why'. */
int fgpu_gnss_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_gnss **gnss, char *why, size_t why_bytes);

/* Destroys the streams and the search thread.  The device's streams must be idle.  NULL is accepted. */
void fgpu_gnss_destroy(struct fgpu_gnss *gnss);

/* Returns true in a replay, unless the device has failed.  An antenna then waits until the other antennas have finished
 * earlier data (antenna.c). */
bool fgpu_gnss_is_replay(const struct fgpu_gnss *gnss);

/* Queues all work of an antenna for one input, and the rounds that are complete then.  'compute' is the stream of the
 * antenna's lane.  If a replay waits, the function returns false.  If no buffer is free and 'may_wait' is true, the function
 * also returns false.  In both cases the caller must repeat the call.  If no buffer is free and 'may_wait' is false,
 * the function skips and counts the input. */
bool fgpu_gnss_process(struct fgpu_gnss *gnss, size_t ant, struct device_stream *compute,
                       const struct fgpu_device_input *in, bool may_wait);

/* Finishes the inputs of an antenna that has ended.  Returns false if the caller must call again. */
bool fgpu_gnss_flush(struct fgpu_gnss *gnss, size_t ant);

/* Ends the tracking of all satellites at an antenna.  The antenna's next input may have any timestamp. */
void fgpu_gnss_restart(struct fgpu_gnss *gnss, size_t ant);

/* Applies an order.  The order takes effect with the next input. */
void fgpu_gnss_apply(struct fgpu_gnss *gnss, const struct fgpu_gnss_order *order);

/* Returns true if a buffer belongs to one of the satellite streams. */
bool fgpu_gnss_own(const struct fgpu_gnss *gnss, const struct outbuf *buffer);

/* Passes the sums of a downloaded buffer to the tracking loops, and hands the buffer to the sender. */
void fgpu_gnss_push(struct outbuf *buffer);

/* [HTTP] Adds "gnss". */
void fgpu_gnss_describe(const struct fgpu_gnss *gnss, json_t *into);

/* Logs the heaps that each stream sent.  Called after the senders have stopped. */
void fgpu_gnss_log(const struct fgpu_gnss *gnss);

/* Adds the memory of a satellite stream of all antennas to 'memory'. */
void fgpu_gnss_add_memory(const struct fgpu_layout *layout, const struct fgpu_config *config,
                          const struct fgpu_config_gnss *gnss, bool compiles, struct memory_use *memory);

/* Adds the memory that the searches of all streams share to 'memory'. */
void fgpu_gnss_add_search_memory(const struct fgpu_config *config, struct memory_use *memory);

#endif
