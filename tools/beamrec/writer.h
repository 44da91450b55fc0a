/* writer.h - the thread between the receive thread and the files.
 *
 * Flow:      assembler --full chunk--> inbox --> writer: rows of each file of the stream, appended to it
 * Threads:   one; it alone uses products and files between start and join.
 * Gaps:      batches that did not come are filled and listed.  After a gap longer than output.max_gap, or where time
 *            has gone back, the next file begins.
 * Full disk: batches are dropped and counted until there is room again, and are then a gap.  Not so with a capture,
 *            which can be read again: there it is a write that fails.
 * End:       once 'max_batches' are written, or a write fails, it asks the service to stop; chunks are taken and given
 *            back until the inbox is stopped, so the receive thread never waits for it. */
#ifndef TOOLS_BEAMREC_WRITER_H
#define TOOLS_BEAMREC_WRITER_H

#include "common/base/counter.h"
#include "common/base/inbox.h"
#include "common/time/timebase.h"
#include "tools/beamrec/config.h"

struct service;
struct beamrec_writer;

struct beamrec_writer_config {
    struct inbox *inbox; /* of enum beamrec_item */
    const struct beamrec_config *config;
    struct timebase timebase;
    struct service *service;
    bool on_terminal; /* progress as one line that changes, else a line now and then */
};

struct beamrec_writer_stats {
    struct counter batches;           /* written, to all files of a stream */
    struct counter expected_heaps;    /* of the batches written and the gaps between them */
    struct counter missing_heaps;     /* of those */
    struct counter partial_windows;   /* of detected beams: of a heap's, that lack spectra of antennas */
    struct counter files;             /* begun */
    struct counter unwritten_batches; /* because the disk was full */
};

/* Makes all files.  'stats' is the caller's.  Returns 0, or negative errno with one sentence in 'why'. */
int beamrec_writer_create(const struct beamrec_writer_config *config, struct beamrec_writer_stats *stats,
                          struct beamrec_writer **writer, char *why, size_t why_bytes);

/* Makes 'stats' public. */
void beamrec_writer_register(const struct beamrec_writer_stats *stats);

/* "24 batches, 3 of 48 heaps missing", and ", 5 partial windows" where there are any. */
void beamrec_writer_account(const struct beamrec_writer_stats *stats, char *text, size_t text_bytes);

int beamrec_writer_start(struct beamrec_writer *writer);

/* Waits until the inbox, which the caller has stopped, is empty.  Returns 0, or negative errno if a write failed (which
 * has been logged). */
int beamrec_writer_join(struct beamrec_writer *writer);

/* Closes the files.  NULL is accepted. */
void beamrec_writer_destroy(struct beamrec_writer *writer);

#endif
