/* gnss_stream.h - a stream of satellite sums of all antennas: creation and destruction of its buffers and satellites.
 *
 * For gnss*.c only.  gnss.h is the interface for other files.
 * Threads: as in gnss.h. */
#ifndef FGPU_GNSS_GNSS_STREAM_H
#define FGPU_GNSS_GNSS_STREAM_H

#include "common/engine/engine.h"
#include "common/engine/outbuf.h"
#include "common/recv/chunk.h"
#include "common/send/sender.h"
#include "common/telemetry/sensor.h"
#include "common/time/timebase.h"
#include "fgpu/input/baseband.h"
#include "fgpu/gnss/gnss.h"
#include "fgpu/gnss/gnss_align.h"
#include "fgpu/gnss/gnss_config.h"
#include "fgpu/gnss/gnss_record.h"
#include "fgpu/gnss/gnss_search.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/gnss/gnss_quantise.h"

enum { ITEM_TIMESTAMP, ITEM_FENG_ID, ITEM_SUMS, N_ITEMS };

#define GNSS_MAX_RUNS 64 /* maximum number of runs of present samples in a chunk, and in the samples before it */

/* A run [begin, end) of present samples. */
struct gnss_run {
    int64_t begin, end;
};

/* The samples of one antenna that one chunk yields, and earlier samples in front of them. */
struct gnss_chunk {
    struct chunk base; /* first; for the matcher, which uses only 'ref' and 'timestamp_samples' */
    struct gnss_slot *slot;
    bool is_free;
    bool is_used;                 /* the chunk has been part of a round */
    struct device_event *written; /* on the antenna's compute stream */
    int64_t begin, end;           /* numbers of the first sample of the chunk and of the sample after the last */
    uint64_t n_present;           /* number of present samples in [begin, end) */
    size_t n_runs;
    struct gnss_run runs[2 * GNSS_MAX_RUNS]; /* of all samples in the row, in order of time */
    int64_t last_arrival_ns;
};

/* Baseband samples of all antennas for one chunk.  Chunk number k is in slot k modulo the number of slots. */
struct gnss_slot {
    float *samples; /* device: [ant][pol][pitch_samples] complex; the last sample of a row is sample 'end' - 1 */
    struct gnss_chunk *chunks; /* [ant] */
    struct device_event *read; /* on the stream's compute stream: the samples have been read */
};

/* One antenna's part of an output buffer. */
struct gnss_part {
    bool is_present; /* the antenna has samples in the buffer's chunk */
    bool ends_block; /* the buffer has the last samples of a block of the antenna's search */
    uint64_t n_samples, n_present;
    float scale[N_POLS];
    struct fgpu_gnss_record *records; /* [const] in pinned memory: the heap's payload, [max_pieces] */
    size_t n_records;
    struct send_heap heap;
    struct send_group group;
    struct send_job job;
};

/* The output buffer for one chunk of all antennas. */
struct gnss_buffer {
    struct outbuf base; /* first */
    struct gnss_stream *stream;
    struct gnss_piece *pieces, *device_pieces; /* [const] in pinned memory and on the device: [max_pieces] */
    int32_t *offsets, *device_offsets;         /* [const] pinned and on the device: [satellite][ant] */
    int64_t *sums, *device_sums;               /* [const] pinned and device: [max_pieces][tap][ant][pol][re, im] */
    struct gnss_level *levels, *device_levels; /* [const] pinned and device: [ant][pol] */
    uint32_t *n_missing;                       /* [const] [max_pieces][ant] */
    size_t n_pieces;
    int64_t begin, end;      /* number of the first sample; number of the sample after the last sample */
    struct gnss_part *parts; /* [const] [ant] */
};

/* One satellite at one antenna. */
struct gnss_view {
    bool needs_wide;  /* the next search has all Dopplers, although another antenna follows the satellite */
    bool is_contrary; /* a search has found the satellite where the steering antenna does not follow the satellite */
    bool is_dropped;  /* true after ?gnss-drop: the satellite is neither searched for nor followed */
    int64_t retry_sample; /* first sample at which a search for the satellite may begin */
    int64_t started_sample;
    struct fgpu_gnss_order first_order;  /* STEER: order that waits for the first input */
    struct gauge stage, cn0_mdb[N_POLS]; /* enum fgpu_gnss_stage; C/N0 in thousandths of dB-Hz */
    struct gauge doppler_mhz;            /* thousandths of Hz */
    double peak[FGPU_GNSS_N_TAPS];       /* [worker] mean amplitude of each tap's sums over both polarisations */
    /* 'peak' in thousandths of the prompt tap's amplitude; 0: the satellite is not followed */
    struct gauge taps[FGPU_GNSS_N_TAPS];
    struct counter losses, searches;
    struct sensor stage_sensor, cn0_sensor, doppler_sensor, age_sensor;
};

/* A satellite.  One pair of loops follows it at all antennas. */
struct gnss_followed {
    struct fgpu_gnss_satellite id; /* [const] */
    const int8_t *table;           /* [const] host */
    struct fgpu_gnss_align align;
    size_t n_wide; /* number of antennas that search for the satellite without knowing the Doppler */
};

/* An antenna of a stream. */
struct gnss_antenna {
    struct gnss_stream *stream; /* [const] */
    size_t ant;                 /* [const] */
    struct fgpu_baseband *baseband;
    struct gnss_view *views; /* [satellite] */
    float scale[N_POLS];
    bool has_input; /* true if an input has been processed; 'input_samples' is the timestamp of the last input */
    int64_t input_samples;
    struct gnss_chunk *newest; /* chunk of the last input; NULL: none */
    struct fgpu_gnss_search search;
    bool is_searching; /* a search has begun, and its result has not been used yet */
    bool is_wide;      /* the search does not know the Doppler; the satellite counts it in 'n_wide' */
    bool has_ended;    /* no more input will come */
    bool is_stale;     /* true if the data's time restarted during the search */
    bool fills_block;  /* true while the block's last samples are being downloaded */
    uint32_t n_collected;
    int64_t collected_end; /* number of the sample after the last collected sample */
    size_t next_satellite; /* index of the first candidate for the next search */
    struct send_stream *send;
    struct send_stream_stats stats;
    struct counter dropped_heaps, late_heaps, clipped_samples, present_samples, missing_samples;
};

struct gnss_stream {
    struct fgpu_gnss *gnss;
    const struct fgpu_config_gnss *config; /* [const] */
    size_t index;                          /* [const] index in the configuration's section 'gnss' */
    struct fgpu_gnss_sizes sizes;          /* [const] */
    double sample_rate_hz;                 /* [const] */
    int64_t subsampling, n_taps;           /* [const] */
    struct gnss_antenna *antennas;         /* [ant] */
    struct gnss_slot *slots;               /* [sizes.n_slots] */
    struct inbox *free_chunks;             /* chunks that the matcher has given back */
    struct matcher *matcher; /* matches the chunks of all antennas; one chunk of each antenna is a round */
    int64_t last_end;        /* 'end' of the last round */
    int64_t shown_sample;    /* 'end' of the buffer after which sensors and metrics were updated last */
    struct device_stream *compute;
    struct device_kernel *quantise, *correlate;
    const struct kernel *variant;     /* variant of 'correlate' */
    int8_t *samples;                  /* on the device: [ant][pol][pitch_samples][re, im] */
    struct gnss_level *levels;        /* device: levels of earlier samples, which are not used */
    int8_t *carrier;                  /* device */
    int8_t *codes;                    /* device */
    struct gnss_satellite *entries;   /* device: [satellite] */
    int8_t *tables;                   /* on the host: tables of all codes */
    struct gnss_followed *satellites; /* [satellite] */
    struct gnss_buffer *buffers;      /* [FGPU_GNSS_N_BUFFERS] */
    struct outbuf_pool pool;
    size_t n_downloading; /* buffers being downloaded */
};

struct fgpu_gnss {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct engine *engine;
    struct timebase timebase;
    size_t n_ants, n_streams;
    struct gnss_stream *streams; /* [n_streams] */
    struct fgpu_gnss_searcher *searcher;
};

/* The names of the values of enum fgpu_gnss_stage. */
extern const char *const fgpu_gnss_stage_words[];

#define GNSS_ANTENNA_SUMS (FGPU_GNSS_N_TAPS * N_POLS * 2)

/* Returns the number of sums of a piece: [tap][ant][pol][re, im]. */
static inline size_t gnss_piece_sums(const struct gnss_stream *stream)
{
    return stream->gnss->n_ants * GNSS_ANTENNA_SUMS;
}

/* Returns the correlator's arguments for a buffer.  If 'buffer' is NULL, returns the arguments for compiling the
 * kernel. */
struct gnss_correlate_args gnss_stream_correlate_args(const struct gnss_stream *stream,
                                                      const struct gnss_buffer *buffer);

/* Initialises a stream whose 'gnss', 'index' and 'config' are set and whose other fields are zero.  Returns 0 or
 * negative errno with one sentence in 'why'. */
int gnss_stream_init(struct gnss_stream *stream, char *why, size_t why_bytes);

/* Frees a stream, after the searcher has been destroyed.  A zero-initialised stream is accepted. */
void gnss_stream_fini(struct gnss_stream *stream, struct device *device);

#endif
