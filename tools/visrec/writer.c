/* writer.c - takes dumps from the receive thread, appends them to a file, reports progress. */
#include "tools/visrec/writer.h"

#include "common/recv/chunk.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/service.h"
#include "common/telemetry/stats.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tools/visrec/antennas.h"
#include "tools/visrec/files.h"
#include "tools/visrec/recv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WHY_BYTES 512

/* Without a terminal, a line of progress is written after this number of dumps or after this time, whichever comes
 * first. */
#define PROGRESS_DUMPS 10
#define PROGRESS_NS    (5 * NS_PER_S)

struct visrec_writer {
    struct visrec_writer_config config;
    struct visrec_writer_stats *stats;
    struct visrec_dump dump;
    struct thread thread;
    bool ended;                  /* true: max_dumps dumps were written, the capture has ended, or a write failed */
    int err;                     /* errno of the failed write */
    bool begun;                  /* true: the current file has a dump */
    int64_t last_samples;        /* timestamp of the current file's last dump */
    bool disk_full;              /* true: the disk was full at the last dump */
    uint64_t n_unwritten_before; /* number of lost dumps at the time when the disk became full */
    struct log_limit full_limit, room_limit, rollover_limit, full_file_limit;
    uint64_t shown_dumps; /* number of dumps in the most recent line of progress */
    int64_t shown_ns;
};

int visrec_writer_create(const struct visrec_writer_config *config, struct visrec_writer_stats *stats,
                         struct visrec_writer **writer)
{
    struct visrec_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->config = *config;
    w->stats = stats;
    counter_add(&stats->files, 1); /* main() has already created the first file */
    int err = visrec_dump_init(&w->dump, &config->shape);
    if (err)
        free(w);
    else
        *writer = w;
    return err;
}

void visrec_writer_destroy(struct visrec_writer *writer)
{
    if (!writer)
        return;
    visrec_dump_fini(&writer->dump);
    free(writer);
}

void visrec_writer_register(const struct visrec_writer_stats *stats)
{
    stats_counter("visrec_dumps", "Dumps written.", NULL, &stats->dumps);
    stats_counter("visrec_values", "Visibilities written.", NULL, &stats->values);
    stats_counter("visrec_flagged_values", "Flagged visibilities that were written.", NULL, &stats->flagged);
    stats_counter("visrec_files", "Files begun.", NULL, &stats->files);
    stats_counter("visrec_rollovers", "Files that were begun because timestamps went back.", NULL, &stats->rollovers);
    stats_counter("visrec_unwritten_dumps", "Dumps not written because the disk was full.", NULL,
                  &stats->unwritten_dumps);
}

void visrec_writer_account(const struct visrec_writer_stats *stats, char *text, size_t text_bytes)
{
    uint64_t n_dumps = counter_get(&stats->dumps), n_values = counter_get(&stats->values);

    snprintf(text, text_bytes, "%llu dump%s, %llu of %llu heaps missing, %.2f %% flagged", (unsigned long long)n_dumps,
             plural(n_dumps), (unsigned long long)counter_get(&stats->missing_heaps),
             (unsigned long long)counter_get(&stats->expected_heaps),
             n_values ? 100.0 * (double)counter_get(&stats->flagged) / (double)n_values : 0);
}

static void show_progress(struct visrec_writer *writer)
{
    const struct visrec_writer_stats *stats = writer->stats;
    uint64_t n_dumps = counter_get(&stats->dumps);
    int64_t now_ns = clock_monotonic_ns();
    char line[128];

    if (!writer->config.on_terminal && n_dumps < writer->shown_dumps + PROGRESS_DUMPS &&
        now_ns < writer->shown_ns + PROGRESS_NS)
        return;
    writer->shown_dumps = n_dumps;
    writer->shown_ns = now_ns;
    visrec_writer_account(stats, line, sizeof(line));
    if (writer->config.on_terminal)
        log_terminal("\r%s\033[K", line);
    else
        log_info("%s", line);
    service_status(writer->config.service, "%s", line);
}

static void count_dump(struct visrec_writer *writer)
{
    const struct visrec_dump *dump = &writer->dump;
    uint64_t n_heaps = visrec_dump_n_substreams(&dump->shape);
    uint64_t n_absent_dumps = 0; /* number of missing dumps between the previous and the current dump */

    if (writer->begun)
        n_absent_dumps =
            (uint64_t)((dump->timestamp_samples - writer->last_samples) / writer->config.integration_samples) - 1;
    writer->begun = true;
    writer->last_samples = dump->timestamp_samples;
    counter_add(&writer->stats->expected_heaps, (n_absent_dumps + 1) * n_heaps);
    counter_add(&writer->stats->missing_heaps, n_absent_dumps * n_heaps + dump->n_missing_heaps);
    counter_add(&writer->stats->values, visrec_dump_n_values(&dump->shape));
    counter_add(&writer->stats->flagged, dump->n_flagged);
    counter_add(&writer->stats->dumps, 1);
}

static void end(struct visrec_writer *writer, int err)
{
    writer->ended = true;
    writer->err = err;
    service_stop(writer->config.service, err ? EXIT_FAILURE : 0);
}

/* Counts a dump that found the disk full, and reports the state.  'why' names the file. */
static void note_full_disk(struct visrec_writer *writer, const char *why)
{
    struct counter *unwritten = &writer->stats->unwritten_dumps;

    if (!writer->disk_full) {
        writer->disk_full = true;
        writer->n_unwritten_before = counter_get(unwritten);
        log_limited(&writer->full_limit, LOG_LEVEL_ERROR, "%s; dumps are lost until the disk has room", why);
    }
    counter_add(unwritten, 1);
    uint64_t n_lost = counter_get(unwritten) - writer->n_unwritten_before;
    service_status(writer->config.service, "the disk is full: %llu dump%s lost", (unsigned long long)n_lost,
                   plural(n_lost));
}

static void note_room(struct visrec_writer *writer)
{
    if (!writer->disk_full)
        return;
    uint64_t n_lost = counter_get(&writer->stats->unwritten_dumps) - writer->n_unwritten_before;

    writer->disk_full = false;
    log_limited(&writer->room_limit, LOG_LEVEL_WARNING,
                "the disk has room again, and the recording continues; %llu dump%s", (unsigned long long)n_lost,
                n_lost == 1 ? " was lost" : "s were lost");
}

/* Returns true if the dump is not later than the file's last dump.  UVH5 counts distinct times, and pyuvdata requires
 * increasing times. */
static bool is_backward(const struct visrec_writer *writer)
{
    return writer->begun && writer->dump.timestamp_samples <= writer->last_samples;
}

static int begin_next_file(struct visrec_writer *writer, char *why, size_t why_bytes)
{
    struct visrec_files *files = writer->config.files;
    uint64_t n_dumps = visrec_files_n_dumps(files);
    int64_t timestamp_samples = writer->dump.timestamp_samples;
    bool backward = is_backward(writer);
    int err = visrec_files_next(files, why, why_bytes);

    if (err)
        return err;
    counter_add(&writer->stats->files, 1);
    if (!backward) {
        log_limited(&writer->full_file_limit, LOG_LEVEL_INFO,
                    "the file is full (%llu dump%s): the recording continues in %s", (unsigned long long)n_dumps,
                    plural(n_dumps), visrec_files_path(files));
        return 0;
    }
    log_limited(&writer->rollover_limit, LOG_LEVEL_WARNING,
                "the timestamps went back from %lld to %lld: the recording continues in %s",
                (long long)writer->last_samples, (long long)timestamp_samples, visrec_files_path(files));
    counter_add(&writer->stats->rollovers, 1);
    writer->begun = false;
    return 0;
}

static void append_dump(struct visrec_writer *writer)
{
    const struct visrec_writer_config *config = &writer->config;
    int64_t middle_samples = writer->dump.timestamp_samples + config->integration_samples / 2;
    char why[WHY_BYTES];
    int err = 0;

    if (is_backward(writer) || visrec_files_is_full(config->files, &writer->dump))
        err = begin_next_file(writer, why, sizeof(why));
    if (!err)
        err = visrec_files_append(config->files, &writer->dump, timebase_unix_ns(&config->timebase, middle_samples),
                                  why, sizeof(why));
    if ((err == -ENOSPC || err == -EDQUOT) && config->outlasts_full_disk) {
        note_full_disk(writer, why);
        return;
    }
    if (err) {
        log_error("%s", why);
        end(writer, err);
        return;
    }
    note_room(writer);
    count_dump(writer);
    visrec_antennas_poll(config->antennas, &writer->dump);
    show_progress(writer);
    if (config->max_dumps > 0 && counter_get(&writer->stats->dumps) == (uint64_t)config->max_dumps)
        end(writer, 0);
}

static void take_chunk(struct visrec_writer *writer, struct chunk *chunk)
{
    if (!writer->ended)
        visrec_dump_fill(&writer->dump, writer->config.array, chunk->timestamp_samples, chunk->present, chunk->payload);
    buffer_ref_put(&chunk->ref);
    if (!writer->ended)
        append_dump(writer);
}

static void *run(void *arg)
{
    struct visrec_writer *writer = arg;
    struct inbox_item item;

    writer->shown_ns = clock_monotonic_ns();
    while (inbox_pop(writer->config.inbox, &item) == 0) {
        if (item.kind == VISREC_ITEM_CHUNK) {
            thread_watched(false); /* a slow disk must not trigger the watchdog */
            take_chunk(writer, item.object);
            thread_watched(true);
        } else if (!writer->ended) {
            end(writer, 0); /* the receiver has read the whole capture */
        }
    }
    if (writer->config.on_terminal && counter_get(&writer->stats->dumps) > 0)
        log_terminal("\n");
    return NULL;
}

int visrec_writer_start(struct visrec_writer *writer)
{
    return thread_start(&writer->thread, "visrec-writer", -1, run, writer);
}

int visrec_writer_join(struct visrec_writer *writer)
{
    thread_join(&writer->thread);
    return writer->err;
}
