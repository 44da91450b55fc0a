/* antennas.h - which antennas the recording lacks, by name.
 *
 * Flow:      the writer shows each dump that it has written
 * An antenna's own visibilities (its autocorrelations) are flagged where the X-engines had not all of its heaps.
 * Threads:   one calls look; the counters may be read by any. */
#ifndef TOOLS_VISREC_ANTENNAS_H
#define TOOLS_VISREC_ANTENNAS_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

struct visrec_antennas;

/* Registers a counter for each antenna; 'array' must outlive it.  Returns 0 or -ENOMEM. */
int visrec_antennas_create(const struct visrec_array *array, struct visrec_antennas **antennas);

/* NULL is accepted. */
void visrec_antennas_destroy(struct visrec_antennas *antennas);

/* Counts the flags of a dump.  Logs which antennas are absent from the dump, when that changes: all values are flagged,
 * and another antenna has a value.  NULL is accepted. */
void visrec_antennas_poll(struct visrec_antennas *antennas, const struct visrec_dump *dump);

#endif
