/* play.h - recordings, or signals that do not repeat (dsim/live.h), as heaps, ahead of their time.
 *
 * Flow:      recordings or dsim_live --reader thread: read, scale, quantise, pack--> full blocks --take--> dsim_send
 *            --buffer_ref_put--> free blocks --> reader thread
 * Ahead:     the blocks hold half a second of all inputs, within limits; that bounds the memory, and the time for
 *            which the disk may stall without a heap being late.
 * Time:      of signals, the timestamp says which samples they are.  The first sample of every recording belongs to the
 *            first heap.  All end with the shortest one, at a whole heap; looped, the same heaps come again.
 * Samples:   of recordings: q = round half to even of value * scale, clamped to what 'sample_bits' hold,
 *            [-2^(b-1), 2^(b-1) - 1]: an integer that fits passes unchanged, the most negative one included.  No dither.
 * Threads:   open, start, stop and destroy from one thread; take from the sender; buffer_ref_put of a block from any.
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

/* Consecutive heaps of all inputs.  Who takes it puts its reference, once, when nothing refers to the heaps any more. */
struct dsim_block {
    struct dsim_heaps heaps;
    struct buffer_ref ref;
};

/* Plays 'live' or, if that is NULL, opens all recordings; and registers the metrics.  'config' and 'live' must outlive
 * it, and nobody else use 'live'; 'n_heaps_wanted' of each input will be taken at most.  Returns 0 or negative errno with
 * one sentence in 'why'. */
int dsim_play_open(const struct dsim_config *config, struct dsim_live *live, int64_t n_heaps_wanted,
                   struct dsim_play **play, char *why, size_t why_bytes);

/* The blocks, for who wants to know where heaps will lie: all are whole until the reader starts. */
const struct dsim_block *dsim_play_blocks(const struct dsim_play *play, size_t *n);

/* Starts the reader; of signals, with the heap of this timestamp.  Returns 0 or negative errno. */
int dsim_play_start(struct dsim_play *play, int64_t first_timestamp);

/* Takes the next block, waiting until the monotonic clock reads 'deadline_ns'.  Returns 0, -ETIMEDOUT, or -EPIPE when
 * no more will come. */
int dsim_play_take(struct dsim_play *play, int64_t deadline_ns, struct dsim_block **block);

/* Once dsim_play_take() has said -EPIPE: whether the reason was an error (which has been logged). */
bool dsim_play_failed(const struct dsim_play *play);

/* Ends the reader and waits for it.  NULL is accepted. */
void dsim_play_stop(struct dsim_play *play);

/* Prints how much of the recordings, if there are any, was not played, missing or wrong; once stopped.  NULL is accepted. */
void dsim_play_print_summary(const struct dsim_play *play);

/* NULL is accepted. */
void dsim_play_destroy(struct dsim_play *play);

/* See 'Samples'. */
void dsim_play_quantise(const double *values, double scale, size_t n_samples, int sample_bits, int32_t *quantised);

#endif
