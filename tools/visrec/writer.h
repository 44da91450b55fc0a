/* writer.h - the thread between the receive thread and the files.
 *
 * Flow:      assembler --full chunk--> inbox --> writer: turn it into a dump, give it back, append to the file
 * Threads:   one; it alone uses the files between start and join.
 * Next file: begins with a dump that is not later than the dump before, or for which the file is full (visrec/files.h).
 * Blocking:  on the disk.  Meanwhile chunks run out, and the receive thread counts the heaps that it drops.
 * Full disk: dumps are dropped and counted until there is room again.  Then the recording continues in the same file.
 *            If time had gone back, it continues in the next file.
 *            With a capture, which can be read again, a full disk is a failed write.
 * End:       after 'max_dumps' dumps, or a failed write, the thread asks the service to stop.  It takes chunks and
 *            gives them back until the inbox is stopped.  So the receive thread never waits for it. */
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
    struct inbox *inbox; /* of enum visrec_item */
    const struct visrec_array *array;
    struct visrec_dump_shape shape;
    struct timebase timebase;
    int64_t integration_samples;
    int64_t max_dumps; /* 0: no end */
    struct visrec_files *files;
    struct visrec_antennas *antennas; /* NULL: nobody asks which are absent */
    struct service *service;
    bool outlasts_full_disk;
    bool on_terminal; /* progress as one line that changes, else a line now and then */
};

struct visrec_writer_stats {
    struct counter dumps;           /* written */
    struct counter expected_heaps;  /* from the first dump written to the last; anew where time went back */
    struct counter missing_heaps;   /* of those */
    struct counter values, flagged; /* visibilities written, and those of them that are flagged */
    struct counter files;           /* begun */
    struct counter rollovers;       /* of these, because time had gone back */
    struct counter unwritten_dumps; /* because the disk was full */
};

/* 'stats' is the caller's.  Returns 0 or -ENOMEM. */
int visrec_writer_create(const struct visrec_writer_config *config, struct visrec_writer_stats *stats,
                         struct visrec_writer **writer);

/* Makes 'stats' public. */
void visrec_writer_register(const struct visrec_writer_stats *stats);

/* "24 dumps, 3 of 48 heaps missing, 1.50 % flagged". */
void visrec_writer_account(const struct visrec_writer_stats *stats, char *text, size_t text_bytes);

int visrec_writer_start(struct visrec_writer *writer);

/* Waits until the inbox, which the caller has stopped, is empty.  Returns 0, or negative errno if a write failed (which
 * has been logged). */
int visrec_writer_join(struct visrec_writer *writer);

/* NULL is accepted. */
void visrec_writer_destroy(struct visrec_writer *writer);

#endif
