/* antennas.h - finds antennas without data in the recording, and logs their names.
 *
 * Flow:      the writer passes each written dump to visrec_antennas_poll()
 * An antenna's autocorrelations are flagged if the X-engines lacked some of the antenna's heaps.
 * Threads:   one thread calls visrec_antennas_poll(); any thread may read the counters. */
#ifndef TOOLS_VISREC_ANTENNAS_H
#define TOOLS_VISREC_ANTENNAS_H

#include "tools/visrec/array.h"
#include "tools/visrec/dump.h"

struct visrec_antennas;

/* Registers a counter for each antenna.  'array' must outlive the object.  Returns 0 or -ENOMEM. */
int visrec_antennas_create(const struct visrec_array *array, struct visrec_antennas **antennas);

/* Frees the object.  NULL is accepted. */
void visrec_antennas_destroy(struct visrec_antennas *antennas);

/* Adds the flags of a dump to the counters.  Logs the names of absent antennas when the set of absent antennas changes.
 * An antenna is absent if all values of its autocorrelations are flagged, and another antenna has an unflagged value.
 * NULL is accepted. */
void visrec_antennas_poll(struct visrec_antennas *antennas, const struct visrec_dump *dump);

#endif
