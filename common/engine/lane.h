/* lane.h - members whose chunks are processed together: an antenna's polarisations in fgpu, all F-engines in xbgpu.
 *
 * Flow:      full chunk --matcher--> set of chunks --upload--> device input --compute--> output buffers
 * Inputs:    three device inputs alternate: one is read, one keeps the history of the next, one is uploaded.
 * Ownership: a lane is a struct of the daemon that begins with a struct lane.  A device input is a struct of the daemon
 *            that begins with a struct device_input.  A device input belongs to the worker from take to return, and
 *            then to the device until it comes back as {ENGINE_INPUT_FREE, 0, input}.
 * Threads:   the worker, except init and fini (main).
 * Blocking:  never; nothing allocates after init. */
#ifndef COMMON_ENGINE_LANE_H
#define COMMON_ENGINE_LANE_H

#include "common/base/buffer_ref.h"
#include "common/base/counter.h"
#include "common/recv/matcher.h"

#include <stdbool.h>
#include <stddef.h>

#define LANE_N_INPUTS 3

struct device_event;
struct device_kernel;
struct device_stream;
struct engine;

struct device_input {
    struct lane *lane;             /* [const] */
    struct buffer_ref ref;         /* its readers; returns to the worker's inbox */
    struct device_event *uploaded; /* [const] */
};

struct lane {
    struct engine *engine; /* [const] */
    unsigned n_members;    /* [const] the same for each lane */
    struct matcher *matcher;
    struct device_stream *compute; /* stream of the kernels */
    struct device_kernel *gather;  /* for chunk_gather() with gpudirect; else NULL */
    struct device_input *free[LANE_N_INPUTS];
    size_t n_free;
    bool busy; /* a device input is being processed */
    struct counter late_chunks;
};

/* Adds a zeroed lane to the engine.  The lane matches chunks of 'matcher'.n_members members, with its own
 * 'late_chunks'.  'name' is the name of the compute stream.  Returns 0 or negative errno. */
int lane_init(struct lane *lane, struct engine *engine, const struct matcher_config *matcher, const char *name,
              bool gathers);

/* Adds a zeroed device input.  Call LANE_N_INPUTS times.  Returns 0 or negative errno. */
int lane_add_input(struct lane *lane, struct device_input *input);

/* Returns a free device input, or NULL. */
struct device_input *lane_take_input(struct lane *lane);

/* Adds an input that has come back to the free inputs. */
void lane_give_input(struct device_input *input);

/* Makes the kernels wait for the upload.  Call when all data for the input's kernels have been queued for upload. */
void lane_uploaded(struct device_input *input);

/* Lets the input come back.  Call when all its readers have been queued on the compute stream. */
void lane_return_input(struct device_input *input);

/* Free a lane and a device input, while the device is idle.  A zeroed lane and a zeroed input are accepted. */
void lane_fini(struct lane *lane);
void lane_fini_input(struct device_input *input);

#endif
