/* gnss_search.h - searches for satellites, on a stream of the device and a thread of their own.
 *
 * Flow:      worker: begin --> thread: block wanted --> worker: samples of a block --push--> thread: gnss_acquire_add
 *            --> device stream "search": powers --callback--> thread --> ... --> thread: found or not --> worker
 * Stages:    a wide search covers all Dopplers of the satellite.  A narrow search around the peak of the wide search
 *            follows, with new samples.  So the result is recent, however long the wide search took.  Noise causes a
 *            false acquisition only if its peak is the highest in both searches.
 * Blocks:    a block of a narrow search begins with a code period, as found by the wide search.  Data and secondary
 *            codes change the signal's sign between periods.  A change within a block would split the peak and move
 *            it to a wrong Doppler.  With this Doppler the loops would lock with an error of half a turn per period.
 * Ownership: a search belongs to the thread while 'is_away', else to the worker.  The memory belongs to the stream.
 * Threads:   the worker calls begin, block and push.  main calls the other functions.  The thread enqueues the
 *            operations of all searches on the device stream, and computes only the threshold and the interpolation of
 *            the peak.
 * Failure:   after a failure of the device a search ends, and the satellite counts as not found.
 * Blocking:  only the thread waits.   Allocation: in create and init. */
#ifndef FGPU_GNSS_GNSS_SEARCH_H
#define FGPU_GNSS_GNSS_SEARCH_H

#include "fgpu/gnss/gnss_track.h"
#include "kernels/gnss/gnss_acquire.h"

#include <stdatomic.h>
#include <stdbool.h>

struct engine;
struct fgpu_gnss_searcher;

enum fgpu_gnss_search_state {
    FGPU_GNSS_SEARCH_IDLE,
    FGPU_GNSS_SEARCH_WANTS, /* the search needs a block of 'n_wanted' samples */
    FGPU_GNSS_SEARCH_ENDED, /* 'is_found' and 'found' have the result */
};

/* The search of one antenna in one stream.  Initialise with zeros. */
struct fgpu_gnss_search {
    atomic_bool is_away; /* true while the thread owns the search; otherwise the worker owns the search */
    enum fgpu_gnss_search_state state;
    struct fgpu_gnss_searcher *searcher; /* [const] */
    int8_t *samples;                     /* [const] in device memory: [pol][pitch_samples][re, im] */
    size_t pitch_samples;                /* [const] */
    uint32_t n_wanted;
    int64_t block_sample; /* number of the block's first sample, chosen by fgpu_gnss_search_block() */
    bool begins_anew;     /* true if time went back before this block, so that the search restarts with this block */
    size_t satellite;
    bool is_found;
    struct fgpu_gnss_acquisition found;

    /* From fgpu_gnss_search_begin() on, the thread owns these fields. */
    struct gnss_acquire_config config;
    uint32_t n_blocks, n_added;
    bool is_narrow;
    int64_t origin_sample;        /* first sample of the first block */
    double period_begin;          /* for a narrow search: sample at which a code period began */
    double period_samples;        /* narrow search */
    struct gnss_acquire *acquire; /* [const] */
};

/* Creates the thread's inbox and the device stream, for 'n_searches' searches within 'limits'.  When the thread has
 * handed a search back, it notifies the engine's worker.  Returns 0 or negative errno. */
int fgpu_gnss_searcher_create(struct engine *engine, size_t n_searches, const struct gnss_acquire_limits *limits,
                              struct fgpu_gnss_searcher **searcher);
/* Starts the thread.  Returns 0 or negative errno. */
int fgpu_gnss_searcher_start(struct fgpu_gnss_searcher *searcher);
/* Stops the thread, and waits for the device stream.  The worker must have ended.  Idempotent. */
void fgpu_gnss_searcher_stop(struct fgpu_gnss_searcher *searcher);
/* Stops the thread and destroys the searcher.  NULL is accepted. */
void fgpu_gnss_searcher_destroy(struct fgpu_gnss_searcher *searcher);

/* Allocates the device's memory for a search.  Returns 0 or -ENOMEM. */
int fgpu_gnss_search_init(struct fgpu_gnss_searcher *searcher, const struct gnss_acquire_limits *limits,
                          struct fgpu_gnss_search *search);
/* Frees the memory of a search, except 'samples'.  The searcher must have stopped or been destroyed.  A
 * zero-initialised search is accepted. */
void fgpu_gnss_search_fini(struct fgpu_gnss_search *search);

/* Begins a search, which must be within the limits of fgpu_gnss_search_init().  'config'.table must remain valid. */
void fgpu_gnss_search_begin(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                            const struct gnss_acquire_config *config, uint32_t n_blocks);

/* Begins a search whose Dopplers are so few that it needs no wide search first.  A code period of the signal begins at
 * sample 'period_begin' and has 'period_samples' samples. */
void fgpu_gnss_search_begin_narrow(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                                   const struct gnss_acquire_config *config, uint32_t n_blocks, double period_begin,
                                   double period_samples);

/* Returns the first sample at or after 'sample' at which the wanted block may begin. */
int64_t fgpu_gnss_search_block(const struct fgpu_gnss_search *search, int64_t sample);

/* Hands the wanted block to the thread.  All samples of the block must be in 'search->samples'. */
void fgpu_gnss_search_push(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search);

static inline bool fgpu_gnss_search_is_away(const struct fgpu_gnss_search *search)
{
    return atomic_load_explicit(&search->is_away, memory_order_acquire);
}

#endif
