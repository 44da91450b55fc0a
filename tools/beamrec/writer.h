/* writer.h - thread between the receive thread and the files.
 *
 * Flow:      assembler --full chunk--> inbox --> writer --rows--> each file of the stream
 * Threads:   one thread; between start and join, only this thread uses products and files.
 * Gaps:      missing batches are filled, and listed in the list of gaps.  The next file begins after a gap longer
 *            than output.max_gap, or if the timestamps go back.
 * Full disk: batches are dropped and counted until there is room again.  The dropped batches become a gap in the file.
 *            If the input is a capture, a full disk is a failed write, because the capture can be read again.
 * End:       after 'max_batches' batches, or a failed write, the thread asks the service to stop.  Until the inbox is
 *            stopped, the thread returns further chunks unwritten.  The receive thread therefore never waits for the
 *            writer. */
#ifndef TOOLS_BEAMREC_WRITER_H
#define TOOLS_BEAMREC_WRITER_H

#include "common/base/counter.h"
#include "common/base/inbox.h"
#include "common/time/timebase.h"
#include "tools/beamrec/config.h"

struct service;
struct beamrec_writer;

struct beamrec_writer_config {
    struct inbox *inbox; /* inbox of the writer; its items are enum beamrec_item */
    const struct beamrec_config *config;
    struct timebase timebase;
    struct service *service;
    bool on_terminal; /* true: progress is one line that is overwritten; false: a new line every few seconds */
};

struct beamrec_writer_stats {
    struct counter batches;           /* batches that were written to all files of their stream */
    struct counter expected_heaps;    /* heaps expected in the written batches and in the gaps between them */
    struct counter missing_heaps;     /* expected heaps that are missing */
    struct counter partial_windows;   /* windows of detected beams in which spectra of some antennas are missing */
    struct counter files;             /* files begun */
    struct counter unwritten_batches; /* batches lost because the disk was full */
};

/* Creates the writer and all files.  The caller owns 'stats'.  Returns 0, or negative errno with one sentence in
 * 'why'. */
int beamrec_writer_create(const struct beamrec_writer_config *config, struct beamrec_writer_stats *stats,
                          struct beamrec_writer **writer, char *why, size_t why_bytes);

/* Registers 'stats' as metrics. */
void beamrec_writer_register(const struct beamrec_writer_stats *stats);

/* Writes a line such as "24 batches, 3 of 48 heaps missing" to 'text', and ", 5 partial windows" if there are any. */
void beamrec_writer_account(const struct beamrec_writer_stats *stats, char *text, size_t text_bytes);

int beamrec_writer_start(struct beamrec_writer *writer);

/* Waits until the thread has emptied the inbox and ended.  Call after the inbox has been stopped.  Returns 0, or
 * negative errno if a write failed.  The writer has then logged the failure. */
int beamrec_writer_join(struct beamrec_writer *writer);

/* Closes the files and frees the writer.  NULL is accepted. */
void beamrec_writer_destroy(struct beamrec_writer *writer);

#endif
