/* play.h - makes heaps of recordings, or of signals that do not repeat (dsim/live.h), before dsim_send needs the heaps.
 *
 * Flow:      recordings or dsim_live --reader thread: read, scale, quantise, pack--> full blocks --take--> dsim_send
 *            --buffer_ref_put--> free blocks --> reader thread
 * Ahead:     the blocks contain half a second of all inputs, or less if half a second needs too much memory.  If the
 *            disk stalls for longer, heaps are late.
 * Time:      for live signals, the timestamp determines the samples.  The first sample of every recording belongs to
 *            the first heap.  All recordings end with the last whole heap of the shortest recording.  With 'loop', the
 *            recordings then repeat from their first heap.
 * Samples:   for recordings, q = round half to even of value * scale, clamped to the range of 'sample_bits',
 *            [-2^(b-1), 2^(b-1) - 1].  With scale 1, an integer in this range stays unchanged, including the most
 *            negative integer.  No dither is added.
 * Threads:   call open, start, stop and destroy from one thread, and take from the sender's thread.  Any thread may
 *            call buffer_ref_put for a block.
 * Blocking:  take waits until its deadline.   Nothing allocates after open. */
#ifndef TOOLS_DSIM_PLAY_H
#define TOOLS_DSIM_PLAY_H

#include "common/base/buffer_ref.h"
#include "tools/dsim/config.h"
#include "tools/dsim/live.h"
#include "tools/dsim/signal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dsim_play;

/* Consecutive heaps of all inputs.  The caller of dsim_play_take() releases the block's reference, once, when no
 * packet refers to the heaps any more. */
struct dsim_block {
    struct dsim_heaps heaps;
    struct buffer_ref ref;
};

/* Plays 'live' or, if 'live' is NULL, opens all recordings.  Registers the metrics.  'config' and 'live' must
 * outlive the result, and nothing else may use 'live'.  The reader makes at most 'n_heaps_wanted' heaps of each input.
 * Returns 0 or negative errno with one sentence in 'why'. */
int dsim_play_open(const struct dsim_config *config, struct dsim_live *live, int64_t n_heaps_wanted,
                   struct dsim_play **play, char *why, size_t why_bytes);

/* Returns all blocks, so that a sink can register their memory.  Before the reader starts, all blocks have their full
 * size. */
const struct dsim_block *dsim_play_blocks(const struct dsim_play *play, size_t *n);

/* Starts the reader.  Live signals start with the heap of 'first_timestamp'.  Returns 0 or negative errno. */
int dsim_play_start(struct dsim_play *play, int64_t first_timestamp);

/* Takes the next block, waiting until the monotonic clock reads 'deadline_ns'.  Returns 0, -ETIMEDOUT, or -EPIPE if
 * no more blocks will come. */
int dsim_play_take(struct dsim_play *play, int64_t deadline_ns, struct dsim_block **block);

/* Returns true if an error ended the reader.  The reader has logged the error.  Call after dsim_play_take() has
 * returned -EPIPE. */
bool dsim_play_failed(const struct dsim_play *play);

/* Ends the reader and waits for it.  Accepts NULL. */
void dsim_play_stop(struct dsim_play *play);

/* Prints how many samples and frames of the recordings were missing, wrong or not played.  Prints nothing without
 * recordings.  Call after dsim_play_stop().  Accepts NULL. */
void dsim_play_print_summary(const struct dsim_play *play);

/* Accepts NULL. */
void dsim_play_destroy(struct dsim_play *play);

/* Quantises recorded values, as described under 'Samples'. */
void dsim_play_quantise(const double *values, double scale, size_t n_samples, int sample_bits, int32_t *quantised);

#endif
