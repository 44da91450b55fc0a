/* gnss_search.h - searches for satellites, on a thread of their own.
 *
 * Flow:      worker: begin --> thread: block wanted --> worker: samples of a block --push--> thread: gnss_acquire_add
 *            --> ... --> thread: found or not --> worker
 * Stages:    a wide search covers all Dopplers of the satellite.  A narrow search of new samples, around the peak of
 *            the wide one, follows.  So the result is fresh, however long the wide search took, and noise must win twice.
 * Blocks:    those of a narrow search begin with a code period, as the wide search saw it.  Data and secondary codes
 *            turn the signal between periods.  Within a block a turn splits the peak, and moves it to a Doppler so wrong
 *            that the loops lock half a turn a period off.
 * Ownership: a search is the worker's or the thread's, as 'is_away' says.  Memory is the stream's.
 * Threads:   the functions are the worker's, but create, start, stop and destroy: main.
 * Blocking:  only the thread computes.   Allocation: the thread allocates for each search; the worker never. */
#ifndef FGPU_GNSS_SEARCH_H
#define FGPU_GNSS_SEARCH_H

#include "fgpu/gnss_track.h"
#include "kernels/gnss/gnss_acquire.h"

#include <stdatomic.h>
#include <stdbool.h>

struct engine;
struct fgpu_gnss_searcher;

enum fgpu_gnss_search_state {
    FGPU_GNSS_SEARCH_IDLE,
    FGPU_GNSS_SEARCH_WANTS, /* a block of 'n_wanted' samples */
    FGPU_GNSS_SEARCH_ENDED, /* 'is_found', and then 'found' */
};

/* One stream's search; zeros to begin with. */
struct fgpu_gnss_search {
    atomic_bool is_away; /* with the thread */
    enum fgpu_gnss_search_state state;
    int8_t *samples;      /* [const] pinned: [pol][pitch_samples][re, im] */
    size_t pitch_samples; /* [const] */
    uint32_t n_wanted;
    int64_t block_sample; /* the block's first, as fgpu_gnss_search_block() says */
    bool begins_anew;     /* with this block: time has gone back since the block before */
    size_t satellite;
    bool is_found;
    struct fgpu_gnss_acquisition found;

    /* The thread's, from begin on. */
    struct gnss_acquire_config config;
    uint32_t n_blocks, n_added;
    bool is_narrow;
    int64_t origin_sample; /* of the first block */
    double period_begin;   /* narrow: the sample with which a code period began */
    double period_samples; /* narrow */
    struct gnss_acquire *acquire;
};

/* Makes the thread's inbox, for searches of 'n_streams'.  The thread tells the engine's worker when a search is back.
 * Returns 0 or -ENOMEM. */
int fgpu_gnss_searcher_create(struct engine *engine, size_t n_streams, struct fgpu_gnss_searcher **searcher);
/* Returns 0 or negative errno. */
int fgpu_gnss_searcher_start(struct fgpu_gnss_searcher *searcher);
/* Once the worker has ended; a block that is being added is added first.  Idempotent. */
void fgpu_gnss_searcher_stop(struct fgpu_gnss_searcher *searcher);
/* Stops first.  NULL is accepted. */
void fgpu_gnss_searcher_destroy(struct fgpu_gnss_searcher *searcher);

/* Begins a search; 'config'.table must stay. */
void fgpu_gnss_search_begin(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                            const struct gnss_acquire_config *config, uint32_t n_blocks);

/* The first sample at or behind 'sample' with which a wanted block may begin. */
int64_t fgpu_gnss_search_block(const struct fgpu_gnss_search *search, int64_t sample);

/* Hands over the block that was wanted: its samples have all come. */
void fgpu_gnss_search_push(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search);

/* Frees what a search has; it is the worker's, or the thread has ended. */
void fgpu_gnss_search_fini(struct fgpu_gnss_search *search);

static inline bool fgpu_gnss_search_is_away(const struct fgpu_gnss_search *search)
{
    return atomic_load_explicit(&search->is_away, memory_order_acquire);
}

#endif
