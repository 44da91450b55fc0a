/* lane.h - a lane processes the chunks of its members together.  The members are an antenna's two polarisations in
 * fgpu, and all F-engines in xbgpu.  Each lane has a matcher and a compute stream.
 *
 * Flow:      full chunk --matcher--> set of chunks --upload--> device input --compute--> output buffers
 * Inputs:    a lane has three device inputs in rotation.  Kernels read one input.  A second input keeps older samples.
 *            The kernels also need these samples when they process the next input.  The third input is being uploaded.
 * Ownership: each daemon has its own structs, which begin with a struct lane and a struct device_input.  A device input
 *            belongs to the worker from lane_take_input() to lane_return_input().  It then belongs to the device until
 *            the worker receives {ENGINE_INPUT_FREE, 0, input}.
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
    struct buffer_ref ref;         /* counts the input's readers; the last reader pushes ENGINE_INPUT_FREE */
    struct device_event *uploaded; /* [const] */
};

struct lane {
    struct engine *engine; /* [const] */
    unsigned n_members;    /* [const] number of polarisations (fgpu) or F-engines (xbgpu) in the lane */
    struct matcher *matcher;
    struct device_stream *compute; /* stream that runs the kernels */
    struct device_kernel *gather;  /* kernel of chunk_gather(); NULL without gpudirect */
    struct device_input *free[LANE_N_INPUTS];
    size_t n_free;
    bool busy; /* true while a device input is being processed */
    struct counter late_chunks;
};

/* Initialises a zeroed lane and adds it to the engine.  'matcher' is the configuration of the lane's matcher.  Its
 * member 'late_chunks' is replaced by the lane's counter.  'name' is the name of the compute stream.  If 'gathers' is
 * true, creates the kernel of chunk_gather().  Returns 0 or negative errno. */
int lane_init(struct lane *lane, struct engine *engine, const struct matcher_config *matcher, const char *name,
              bool gathers);

/* Initialises a zeroed device input and adds it to the lane's free inputs.  Call LANE_N_INPUTS times for each lane.
 * Returns 0 or negative errno. */
int lane_add_input(struct lane *lane, struct device_input *input);

/* Takes a free device input from the lane.  Returns NULL if none is free. */
struct device_input *lane_take_input(struct lane *lane);

/* Adds the input of an ENGINE_INPUT_FREE item to the lane's free inputs. */
void lane_give_input(struct device_input *input);

/* Makes the compute stream wait for the input's upload.  Call when all copies to the input are queued on the upload
 * stream. */
void lane_uploaded(struct device_input *input);

/* Gives the input back.  When the kernels that are queued on the compute stream have run, the input arrives in the
 * worker's inbox.  Call this function after all kernels that read the input are queued. */
void lane_return_input(struct device_input *input);

/* Free the parts of a lane or of a device input, while the device is idle.  Zeroed structs are accepted. */
void lane_fini(struct lane *lane);
void lane_fini_input(struct device_input *input);

#endif
