/* send_stream.c - see send_stream.h. */
#include "fgpu/config/send_stream.h"

#include "common/engine/outbuf.h"
#include "common/send/sender.h"

void fgpu_send_stream_config(const struct fgpu_config *config, struct engine *engine, size_t ant,
                             struct send_stream_config *stream)
{
    int64_t feng_id = fgpu_config_antenna(config, ant)->feng_id;

    outbuf_stream_config(&config->send, engine, stream);
    stream->heap_cnt_start = (uint64_t)feng_id;
    stream->heap_cnt_step = (uint64_t)config->send.array_size;
    stream->descriptor_first_ns *= feng_id + 1;
    stream->descriptor_interval_ns *= config->send.array_size;
}
