/* file.h - a file that grows by whole batches, and the list of its gaps beside it.
 *
 * Even after a kill, the file has its header and all complete batches.  A batch that does not fit on the disk leaves
 * the file and the list unchanged.
 * The list of gaps is NAME.gaps.  It has a line for each gap: first row, number of rows, first channel of the stream
 * and number of channels. */
#ifndef TOOLS_BEAMREC_FILE_H
#define TOOLS_BEAMREC_FILE_H

#include "tools/beamrec/header.h"

struct beamrec_file;

/* Creates the first file.  'format' is the value of the key 'config_key'.  The functions of record_name.h make the
 * file's name from 'format'.  The caller keeps both texts until the file is closed.  Returns 0, or negative errno with
 * one sentence in 'why'. */
int beamrec_file_open(const char *config_key, const char *format, bool overwrite, struct beamrec_file **file, char *why,
                      size_t why_bytes);

const char *beamrec_file_path(const struct beamrec_file *file);

/* Returns the number of rows in the file. */
uint64_t beamrec_file_n_rows(const struct beamrec_file *file);

/* Adds a line about a gap in the next batch.  beamrec_file_append() writes this line when it writes the batch. */
void beamrec_file_add_gap(struct beamrec_file *file, uint64_t first_row, size_t n_rows, size_t first_chan,
                          size_t n_chan);

/* Appends a batch.  An empty file gets 'header' first.  Returns 0, or negative errno with one sentence in 'why'. */
int beamrec_file_append(struct beamrec_file *file, const struct beamrec_header *header,
                        const struct beamrec_product *product, char *why, size_t why_bytes);

/* Begins the next file.  Returns 0, or negative errno with one sentence in 'why'.  After a failure the current file
 * stays in use. */
int beamrec_file_next(struct beamrec_file *file, char *why, size_t why_bytes);

/* Closes the file.  If the file contains no data, the function removes the file.  NULL is accepted. */
void beamrec_file_close(struct beamrec_file *file);

#endif
