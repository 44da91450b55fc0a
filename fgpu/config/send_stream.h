/* send_stream.h - settings that all SPEAD streams of an antenna share. */
#ifndef FGPU_CONFIG_SEND_STREAM_H
#define FGPU_CONFIG_SEND_STREAM_H

#include "common/net/spead.h"
#include "fgpu/config/config.h"

struct engine;
struct send_stream_config;

/* Initialiser of the struct spead_descriptor for the item feng_id. */
#define FGPU_SEND_FENG_ID_DESCRIPTOR                                                                                   \
    SPEAD_VALUE_DESCRIPTOR(SPEAD_FENG_ID, "feng_id", "Uniquely identifies the F-Engine source for the data.")

/* Fills 'stream' as outbuf_stream_config() does, and sets the heap counts and descriptor times of an antenna.  The heap
 * counts and descriptor times of two antennas differ. */
void fgpu_send_stream_config(const struct fgpu_config *config, struct engine *engine, size_t ant,
                             struct send_stream_config *stream);

#endif
