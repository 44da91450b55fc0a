/* writer.h - thread between the receive thread and the files.
 *
 * Flow:      assembler --full chunk--> inbox --> writer: copies the chunk to a dump, returns the chunk, appends the
 *            dump to the file
 * Threads:   one thread; between start and join, only this thread uses the files.
 * Next file: if a dump is not later than the previous dump, the dump begins the next file.  If the current file has no
 *            room for a dump, the dump also begins the next file (visrec/files.h).
 * Blocking:  the writer waits for the disk.  If the chunks run out meanwhile, the receive thread drops and counts
 *            heaps.
 * Full disk: dumps are dropped and counted until there is room again.  Then the recording continues in the same file,
 *            or in the next file if time went back.  If the input is a capture, a full disk is a failed write, because
 *            the capture can be read again.
 * End:       after 'max_dumps' dumps, or a failed write, the thread asks the service to stop.  Until the inbox is
 *            stopped, the thread returns further chunks unwritten.  The receive thread therefore never waits for the
 *            writer. */
#ifndef TOOLS_VISREC_WRITER_H
#define TOOLS_VISREC_WRITER_H

#include "common/base/counter.h"
#include "common/base/inbox.h"
#include "common/time/timebase.h"
#include "tools/visrec/dump.h"

#include <stdbool.h>
#include <stdint.h>

struct service;
struct visrec_antennas;
struct visrec_files;
struct visrec_writer;

struct visrec_writer_config {
    struct inbox *inbox; /* inbox of the writer; its items are enum visrec_item */
    const struct visrec_array *array;
    struct visrec_dump_shape shape;
    struct timebase timebase;
    int64_t integration_samples;
    int64_t max_dumps; /* 0: no end */
    struct visrec_files *files;
    struct visrec_antennas *antennas; /* NULL: absent antennas are not reported */
    struct service *service;
    bool outlasts_full_disk;
    bool on_terminal; /* true: progress is one line that is overwritten; false: a new line every few dumps */
};

struct visrec_writer_stats {
    struct counter dumps; /* dumps written */
    /* Number of heaps expected from the first to the last written dump, including the heaps of missing dumps.  If time
     * goes back, the next dump adds only its own heaps. */
    struct counter expected_heaps;
    struct counter missing_heaps;   /* expected heaps that are missing */
    struct counter values, flagged; /* visibilities that were written, and the flagged visibilities among them */
    struct counter files;           /* files begun */
    struct counter rollovers;       /* files that were begun because time went back */
    struct counter unwritten_dumps; /* dumps lost because the disk was full */
};

/* Creates the writer.  The caller owns 'stats'.  Returns 0 or -ENOMEM. */
int visrec_writer_create(const struct visrec_writer_config *config, struct visrec_writer_stats *stats,
                         struct visrec_writer **writer);

/* Registers 'stats' as metrics. */
void visrec_writer_register(const struct visrec_writer_stats *stats);

/* Writes a line such as "24 dumps, 3 of 48 heaps missing, 1.50 % flagged" to 'text'. */
void visrec_writer_account(const struct visrec_writer_stats *stats, char *text, size_t text_bytes);

int visrec_writer_start(struct visrec_writer *writer);

/* Waits until the thread has emptied the inbox and ended.  Call after the inbox has been stopped.  Returns 0, or
 * negative errno if a write failed.  The writer has then logged the failure. */
int visrec_writer_join(struct visrec_writer *writer);

/* Frees the writer.  NULL is accepted. */
void visrec_writer_destroy(struct visrec_writer *writer);

#endif
