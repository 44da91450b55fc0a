/* gnss_stream.h - one antenna's stream of satellite sums: creation and destruction of its buffers and satellites, and
 * its status.
 *
 * For gnss.c and gnss_stream.c only.  gnss.h is the interface for other files.
 * Threads: as in gnss.h. */
#ifndef FGPU_GNSS_STREAM_H
#define FGPU_GNSS_STREAM_H

#include "common/engine/engine.h"
#include "common/time/timebase.h"
#include "fgpu/baseband.h"
#include "fgpu/gnss.h"
#include "fgpu/gnss_config.h"
#include "fgpu/gnss_record.h"
#include "fgpu/gnss_search.h"
#include "fgpu/gnss_track.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/gnss/gnss_quantise.h"

enum { ITEM_TIMESTAMP, ITEM_FENG_ID, ITEM_SUMS, N_ITEMS };

struct gnss_piece_info {
    uint16_t satellite;
    uint32_t n_missing;
};

/* The output buffer for one chunk. */
struct gnss_buffer {
    struct outbuf base; /* first */
    struct gnss_stream *stream;
    struct gnss_piece *pieces, *device_pieces; /* [const] in pinned memory and on the device: [max_pieces] */
    int64_t *sums, *device_sums;               /* [const] pinned and on the device: [max_pieces][tap][pol][re, im] */
    struct gnss_level *levels, *device_levels; /* [const] in pinned memory and on the device: [pol] */
    struct gnss_piece_info *infos;             /* [const] [max_pieces] */
    size_t n_pieces;
    int64_t begin, end; /* number of the first sample; number of the sample after the last sample */
    uint64_t n_present;
    float scale[N_POLS];
    bool ends_block;                  /* the buffer has the last samples of a search's block */
    struct fgpu_gnss_record *records; /* [const] in pinned memory: the heap's payload, [max_pieces] */
    struct send_heap heap;
    struct send_group group;
    struct send_job job;
};

struct gnss_followed {
    struct fgpu_gnss_satellite id; /* [const] */
    const int8_t *table;           /* [const] host */
    struct fgpu_gnss_track track;
    bool is_dropped;                     /* true after ?gnss-drop: the satellite is neither searched for nor followed */
    int64_t retry_sample;                /* first sample at which a search for the satellite may begin */
    struct fgpu_gnss_order first_order;  /* STEER: order that waits for the first input */
    struct gauge stage, cn0_mdb[N_POLS]; /* enum fgpu_gnss_stage; C/N0 in thousandths of dB-Hz */
    struct gauge doppler_mhz;            /* thousandths of Hz */
    double peak[FGPU_GNSS_N_TAPS];       /* [worker] mean amplitude of each tap's sums over both polarisations */
    /* 'peak' in thousandths of the prompt tap's amplitude; 0: the satellite is not followed */
    struct gauge taps[FGPU_GNSS_N_TAPS];
    struct counter losses, searches;
    int64_t started_sample;
    struct sensor stage_sensor, cn0_sensor, doppler_sensor, age_sensor;
};

struct gnss_stream {
    struct fgpu_gnss *gnss;
    const struct fgpu_config_gnss *config; /* [const] */
    struct fgpu_gnss_sizes sizes;          /* [const] */
    size_t ant;                            /* [const] */
    double sample_rate_hz;                 /* [const] */
    int64_t subsampling, n_taps;           /* [const] */
    struct fgpu_baseband *baseband;
    struct device_kernel *quantise, *correlate;
    const struct kernel *variant;     /* variant of 'correlate' */
    int8_t *samples;                  /* on the device: [pol][pitch_samples][re, im] */
    int8_t *carrier;                  /* device */
    int8_t *codes;                    /* device */
    int32_t *offsets;                 /* device: zeros */
    struct gnss_satellite *entries;   /* device: [satellite] */
    int8_t *tables;                   /* on the host: tables of all codes */
    struct gnss_followed *satellites; /* shape [n_satellites] */
    struct gnss_buffer *buffers;      /* shape [FGPU_GNSS_N_BUFFERS] */
    struct outbuf_pool pool;
    size_t n_downloading; /* buffers being downloaded */
    float scale[N_POLS];
    bool has_input; /* true if an input has been processed; 'input_samples' is the timestamp of the last input */
    int64_t input_samples;
    struct fgpu_gnss_search search;
    bool is_searching; /* a search has begun, and its result has not been used yet */
    bool is_stale;     /* true if the data's time restarted during the search */
    bool fills_block;  /* true while the block's last samples are being downloaded */
    uint32_t n_collected;
    int64_t collected_end; /* number of the sample after the last collected sample */
    size_t next_satellite; /* index of the first candidate for the next search */
    struct send_stream *send;
    struct send_stream_stats stats;
    struct counter dropped_heaps, clipped_samples, present_samples, missing_samples;
};

struct fgpu_gnss {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct engine *engine;
    struct timebase timebase;
    size_t n_streams;            /* streams of one antenna */
    struct gnss_stream *streams; /* shape [ant][n_streams] */
    struct fgpu_gnss_searcher *searcher;
};

/* The names of the values of enum fgpu_gnss_stage. */
extern const char *const fgpu_gnss_stage_words[];

/* Number of sums of a piece: [tap][pol][re, im]. */
#define GNSS_SUMS_OF_PIECE (FGPU_GNSS_N_TAPS * N_POLS * 2)

/* Returns the correlator's arguments for a buffer.  If 'buffer' is NULL, returns the arguments for compiling the
 * kernel. */
struct gnss_correlate_args gnss_stream_correlate_args(const struct gnss_stream *stream,
                                                      const struct gnss_buffer *buffer);

/* Initialises a stream whose 'gnss', 'ant' and 'config' are set and whose other fields are zero.  Returns 0 or
 * negative errno with one sentence in 'why'. */
int gnss_stream_init(struct gnss_stream *stream, char *why, size_t why_bytes);

/* Frees a stream, after the searcher has been destroyed.  A zero-initialised stream is accepted. */
void gnss_stream_fini(struct gnss_stream *stream, struct device *device);

#endif
