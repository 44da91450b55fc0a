/* writer.c - takes batches from the receive thread, appends them to files, reports progress. */
#include "tools/beamrec/writer.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/why.h"
#include "common/daemon/service.h"
#include "common/recv/chunk.h"
#include "common/telemetry/stats.h"
#include "kernels/beamform/beam_detect.h"
#include "tools/beamrec/file.h"
#include "tools/beamrec/recv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES   512
#define KEY_BYTES   48
#define PROGRESS_NS (5 * NS_PER_S) /* without a terminal */
#define TERMINAL_NS (NS_PER_S / 5)

/* One recording: a product of a beam, and the file to which the product is written. */
struct recording {
    struct beamrec_product product;
    char *format;               /* name of the file, with codes of strftime */
    char config_key[KEY_BYTES]; /* key that sets 'format', for example "beams[0].filterbank" */
    struct beamrec_file *file;
    struct beamrec_header header;
    int64_t next_samples; /* timestamp of the next batch; unset while the file is empty */
};

struct stream {
    /* [n_recordings] A voltage beam has a filterbank, a voltages file, or both.  Each detected beam has a filterbank, a
     * DADA file, or both. */
    struct recording *recordings;
    size_t n_recordings;
    int64_t batch_samples;
    bool has_begun;
    int64_t next_samples;
};

struct beamrec_writer {
    struct beamrec_writer_config config;
    struct beamrec_writer_stats *stats;
    int64_t max_gap_samples;
    size_t n_substreams;
    struct stream *streams;
    struct thread thread;
    bool ended; /* true: max_batches batches were written, the capture has ended, or a write failed */
    int err;    /* errno of the failed write */
    bool disk_full;
    struct log_limit full_limit, room_limit, next_limit;
    int64_t shown_ns;
};

/* [detected[].products] value of STATE in PSRDADA files.  PSRCHIVE's Signal::string2State() reads these values. */
static const char *const states[] = {
    [BEAM_POWER_0] = "PP", [BEAM_POWER_1] = "QQ", [BEAM_TOTAL] = "Intensity", [BEAM_STOKES] = "Stokes"};

/* A key that sets a file name: the key 'key' of item 'i' in the list 'section'. */
struct file_key {
    const char *section, *key;
    size_t i;
};

/* Opens the file and product of a recording.  Takes ownership of 'format'.  If 'format' is NULL because memory ran out,
 * returns -ENOMEM.  'state' is used only for a PSRDADA file. */
static int open_recording(struct beamrec_writer *writer, struct stream *stream,
                          const struct beamrec_product_shape *shape, const char *state, const struct file_key *key,
                          char *format, char *why, size_t why_bytes)
{
    const struct beamrec_config *config = writer->config.config;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double spacing_samples = (double)config->stream.samples_between_spectra;
    struct recording *recording = &stream->recordings[stream->n_recordings++];

    recording->format = format;
    snprintf(recording->config_key, KEY_BYTES, "%s[%zu].%s", key->section, key->i, key->key);
    recording->header = (struct beamrec_header){
        .telescope = config->output.telescope,
        .source = config->output.source,
        .state = state,
        .sample_s = (double)shape->sum_spectra * spacing_samples / rate_hz,
        .centre_hz = config->stream.centre_frequency_hz > 0 ? config->stream.centre_frequency_hz : rate_hz / 4,
        .channel_hz = rate_hz / spacing_samples,
    };
    if (!format || beamrec_product_init(&recording->product, shape))
        return why_out_of_memory(why, why_bytes);
    counter_add(&writer->stats->files, 1);
    return beamrec_file_open(recording->config_key, format, config->output.overwrite, &recording->file, why, why_bytes);
}

static int open_beam(struct beamrec_writer *writer, size_t i, char *why, size_t why_bytes)
{
    const struct beamrec_config_stream *keys = &writer->config.config->stream;
    const struct beamrec_config_beam *beam = beamrec_config_beam(writer->config.config, i);
    struct stream *stream = &writer->streams[i];
    struct beamrec_product_shape shape = {
        .bits = (int)beam->bits,
        .n_chan = (size_t)keys->n_chan,
        .n_chan_substream = (size_t)keys->n_chan_substream,
        .n_spectra = (size_t)keys->spectra_per_heap,
        .sum_spectra = (size_t)beam->sum_spectra,
        .sum_channels = (size_t)beam->sum_channels,
        .n_products = 1,
    };
    int err = 0;

    stream->recordings = calloc(2, sizeof(*stream->recordings));
    if (!stream->recordings)
        return -ENOMEM;
    if (beam->filterbank)
        err = open_recording(writer, stream, &shape, NULL, &(struct file_key){"beams", "filterbank", i},
                             strdup(beam->filterbank), why, why_bytes);
    shape.is_dada = true;
    shape.bits = 8;
    shape.sum_spectra = shape.sum_channels = 1;
    if (!err && beam->voltages)
        err = open_recording(writer, stream, &shape, "Analytic", &(struct file_key){"beams", "voltages", i},
                             strdup(beam->voltages), why, why_bytes);
    return err;
}

static int open_detected(struct beamrec_writer *writer, size_t i, char *why, size_t why_bytes)
{
    const struct beamrec_config *config = writer->config.config;
    const struct beamrec_config_detected *detected = beamrec_config_detected(config, i);
    struct stream *stream = &writer->streams[config->beams.n + i];
    struct beamrec_product_shape shape = {
        .bits = (int)detected->bits,
        .n_chan = (size_t)config->stream.n_chan,
        .n_chan_substream = (size_t)config->stream.n_chan_substream,
        .n_spectra = (size_t)(detected->heap_windows * detected->window_spectra),
        .sum_spectra = (size_t)detected->window_spectra,
        .sum_channels = (size_t)detected->group_channels,
        .is_detected = true,
        .powers = beamrec_config_powers(config, i),
    };
    int err = 0;

    shape.n_products = shape.powers.n_products;
    stream->recordings = calloc(2 * shape.powers.n_beams, sizeof(*stream->recordings));
    if (!stream->recordings)
        return -ENOMEM;
    for (size_t n = 0; n < 2 * shape.powers.n_beams && !err; n++) {
        shape.beam = n / 2;
        shape.is_dada = n % 2;
        const struct file_key key = {"detected", shape.is_dada ? "dada" : "filterbank", i};
        const char *file = shape.is_dada ? detected->dada : detected->filterbank;
        if (file)
            err = open_recording(writer, stream, &shape, states[detected->products], &key,
                                 beamrec_config_file(file, shape.beam), why, why_bytes);
    }
    return err;
}

int beamrec_writer_create(const struct beamrec_writer_config *config, struct beamrec_writer_stats *stats,
                          struct beamrec_writer **writer, char *why, size_t why_bytes)
{
    const struct beamrec_config *keys = config->config;
    size_t n_streams = beamrec_config_n_streams(keys);
    struct beamrec_writer *w = calloc(1, sizeof(*w));
    double rate_hz = timebase_decimal_to_double(keys->time.adc_sample_rate_hz);
    int err = 0;

    if (!w)
        return -ENOMEM;
    w->config = *config;
    w->stats = stats;
    w->max_gap_samples = (int64_t)(keys->output.max_gap_s * rate_hz);
    w->n_substreams = (size_t)(keys->stream.n_chan / keys->stream.n_chan_substream);
    w->streams = calloc(n_streams, sizeof(*w->streams));
    if (!w->streams)
        err = -ENOMEM;
    for (size_t i = 0; i < n_streams && !err; i++) {
        w->streams[i].batch_samples = beamrec_config_batch_samples(keys, i);
        err = beamrec_config_is_detected(keys, i) ? open_detected(w, i - keys->beams.n, why, why_bytes)
                                                  : open_beam(w, i, why, why_bytes);
    }
    if (err)
        beamrec_writer_destroy(w);
    else
        *writer = w;
    return err;
}

void beamrec_writer_destroy(struct beamrec_writer *writer)
{
    if (!writer)
        return;
    for (size_t i = 0; writer->streams && i < beamrec_config_n_streams(writer->config.config); i++) {
        struct stream *stream = &writer->streams[i];
        for (size_t n = 0; n < stream->n_recordings; n++) {
            beamrec_file_close(stream->recordings[n].file);
            beamrec_product_fini(&stream->recordings[n].product);
            free(stream->recordings[n].format);
        }
        free(stream->recordings);
    }
    free(writer->streams);
    free(writer);
}

void beamrec_writer_register(const struct beamrec_writer_stats *stats)
{
    stats_counter("beamrec_batches", "Batches of streams written.", NULL, &stats->batches);
    stats_counter("beamrec_gap_heaps", "Heaps that did not arrive and were filled.", NULL, &stats->missing_heaps);
    stats_counter("beamrec_partial_windows", "Windows of detected beams in which spectra of some antennas are missing.",
                  NULL, &stats->partial_windows);
    stats_counter("beamrec_files", "Files begun.", NULL, &stats->files);
    stats_counter("beamrec_unwritten_batches", "Batches not written because the disk was full.", NULL,
                  &stats->unwritten_batches);
}

void beamrec_writer_account(const struct beamrec_writer_stats *stats, char *text, size_t text_bytes)
{
    uint64_t n = counter_get(&stats->batches), n_partial = counter_get(&stats->partial_windows);
    int n_text = snprintf(text, text_bytes, "%llu batch%s, %llu of %llu heaps missing", (unsigned long long)n,
                          n == 1 ? "" : "es", (unsigned long long)counter_get(&stats->missing_heaps),
                          (unsigned long long)counter_get(&stats->expected_heaps));

    if (n_partial > 0 && (size_t)n_text < text_bytes)
        snprintf(text + n_text, text_bytes - (size_t)n_text, ", %llu partial window%s", (unsigned long long)n_partial,
                 plural(n_partial));
}

static void show_progress(struct beamrec_writer *writer)
{
    int64_t now_ns = clock_monotonic_ns();
    char line[128];

    if (now_ns < writer->shown_ns + (writer->config.on_terminal ? TERMINAL_NS : PROGRESS_NS))
        return;
    writer->shown_ns = now_ns;
    beamrec_writer_account(writer->stats, line, sizeof(line));
    if (writer->config.on_terminal)
        log_terminal("\r%s\033[K", line);
    else
        log_info("%s", line);
    service_status(writer->config.service, "%s", line);
}

static void end(struct beamrec_writer *writer, int err)
{
    writer->ended = true;
    writer->err = err;
    service_stop(writer->config.service, err ? EXIT_FAILURE : 0);
}

/* Adds the gaps of a batch to the file's list: missing heaps, and windows without data. */
static void add_gaps(struct recording *recording, size_t n_substreams)
{
    const struct beamrec_product *product = &recording->product;
    uint64_t first_row = beamrec_file_n_rows(recording->file);
    size_t n_chan = product->shape.n_chan_substream;

    for (size_t i = 0; i < n_substreams; i++) {
        const float *fractions = product->fractions + i * product->n_rows;
        for (size_t row = 0, n; row<product->n_rows; row += n> 0 ? n : 1) {
            for (n = 0; row + n < product->n_rows && !(fractions[row + n] > 0); n++) {
            }
            if (n > 0)
                beamrec_file_add_gap(recording->file, first_row + row, n, i * n_chan, n_chan);
        }
    }
}

/* Appends a batch.  A heap is used only if present[substream] is true.  If 'present' is NULL, the whole batch is
 * missing. */
static int append(struct beamrec_writer *writer, const struct stream *stream, struct recording *recording,
                  const uint8_t *present, const uint8_t *heaps, char *why, size_t why_bytes)
{
    beamrec_product_fill(&recording->product, present, heaps);
    add_gaps(recording, writer->n_substreams);
    int err = beamrec_file_append(recording->file, &recording->header, &recording->product, why, why_bytes);
    if (!err)
        recording->next_samples += stream->batch_samples;
    return err;
}

/* Prepares the file for a batch with this timestamp.  Fills a short gap with empty batches.  After a longer gap, or if
 * the timestamp is earlier than expected, begins the next file. */
static int reach(struct beamrec_writer *writer, const struct stream *stream, struct recording *recording,
                 int64_t timestamp_samples, char *why, size_t why_bytes)
{
    bool is_empty = beamrec_file_n_rows(recording->file) == 0;
    int64_t gap_samples = timestamp_samples - recording->next_samples;
    int err = 0;

    if (!is_empty && (gap_samples < 0 || gap_samples > writer->max_gap_samples)) {
        err = beamrec_file_next(recording->file, why, why_bytes);
        if (err)
            return err;
        counter_add(&writer->stats->files, 1);
        beamrec_product_restart(&recording->product);
        log_limited(&writer->next_limit, LOG_LEVEL_WARNING,
                    "the timestamps jumped %s by %lld samples: the recording continues in %s",
                    gap_samples < 0 ? "back" : "ahead", llabs((long long)gap_samples),
                    beamrec_file_path(recording->file));
        is_empty = true;
    }
    if (is_empty) {
        recording->next_samples = timestamp_samples;
        recording->header.start_ns = timebase_unix_ns(&writer->config.timebase, timestamp_samples);
    }
    while (recording->next_samples < timestamp_samples && !err)
        err = append(writer, stream, recording, NULL, NULL, why, why_bytes);
    return err;
}

static void count_windows(struct beamrec_writer *writer, const struct beamrec_product *product,
                          const struct chunk *chunk)
{
    uint64_t n = 0;

    for (size_t i = 0; i < writer->n_substreams * product->n_rows; i++)
        n += chunk->present[i / product->n_rows] && !(product->fractions[i] >= 1);
    counter_add(&writer->stats->partial_windows, n);
}

static void count(struct beamrec_writer *writer, struct stream *stream, const struct chunk *chunk)
{
    int64_t gap_samples = stream->has_begun ? chunk->timestamp_samples - stream->next_samples : 0;
    uint64_t n_absent = gap_samples > 0 && gap_samples <= writer->max_gap_samples
                            ? (uint64_t)(gap_samples / stream->batch_samples) * writer->n_substreams
                            : 0;

    stream->has_begun = true;
    stream->next_samples = chunk->timestamp_samples + stream->batch_samples;
    counter_add(&writer->stats->expected_heaps, n_absent + writer->n_substreams);
    counter_add(&writer->stats->missing_heaps, n_absent + writer->n_substreams - chunk->n_present);
    counter_add(&writer->stats->batches, 1);
    count_windows(writer, &stream->recordings[0].product, chunk);
}

static void note_failure(struct beamrec_writer *writer, int err, const char *why)
{
    if ((err != -ENOSPC && err != -EDQUOT) || writer->config.config->recv.base.pcap_file) {
        log_error("%s", why);
        end(writer, err);
        return;
    }
    if (!writer->disk_full)
        log_limited(&writer->full_limit, LOG_LEVEL_ERROR, "%s; batches are lost until the disk has room", why);
    writer->disk_full = true;
    counter_add(&writer->stats->unwritten_batches, 1);
    service_status(writer->config.service, "the disk is full");
}

static void take_chunk(struct beamrec_writer *writer, const struct chunk *chunk)
{
    struct stream *stream = &writer->streams[chunk->member];
    int64_t max_batches = writer->config.config->output.max_batches;
    char why[WHY_BYTES] = "";
    int err = 0;

    for (size_t i = 0; i < stream->n_recordings && !err; i++) {
        struct recording *recording = &stream->recordings[i];
        err = reach(writer, stream, recording, chunk->timestamp_samples, why, sizeof(why));
        if (!err)
            err = append(writer, stream, recording, chunk->present, chunk->payload, why, sizeof(why));
    }
    if (err) {
        note_failure(writer, err, why);
        return;
    }
    if (writer->disk_full)
        log_limited(&writer->room_limit, LOG_LEVEL_WARNING, "the disk has room again, and the recording continues");
    writer->disk_full = false;
    count(writer, stream, chunk);
    show_progress(writer);
    if (max_batches > 0 && counter_get(&writer->stats->batches) == (uint64_t)max_batches)
        end(writer, 0);
}

static void *run(void *arg)
{
    struct beamrec_writer *writer = arg;
    struct inbox_item item;

    writer->shown_ns = clock_monotonic_ns();
    while (inbox_pop(writer->config.inbox, &item) == 0) {
        if (item.kind == BEAMREC_ITEM_CHUNK) {
            struct chunk *chunk = item.object;
            thread_watched(false); /* a slow disk must not trigger the watchdog */
            if (!writer->ended)
                take_chunk(writer, chunk);
            buffer_ref_put(&chunk->ref);
            thread_watched(true);
        } else if (!writer->ended) {
            end(writer, 0); /* the receiver has read the whole capture */
        }
    }
    if (writer->config.on_terminal && counter_get(&writer->stats->batches) > 0)
        log_terminal("\n");
    return NULL;
}

int beamrec_writer_start(struct beamrec_writer *writer)
{
    return thread_start(&writer->thread, "beamrec-writer", -1, run, writer);
}

int beamrec_writer_join(struct beamrec_writer *writer)
{
    thread_join(&writer->thread);
    return writer->err;
}
