/* gnss_follow.h - the searches of a stream's antennas for satellites, and the signals that they begin to follow.
 *
 * Flow:      8-bit samples of a round --block--> gnss_search.h --acquisition--> gnss_align.h: start or join
 * Wide:      while no antenna follows a satellite, one antenna at a time searches all Dopplers for the satellite.
 * Join:      the other antennas then search near the known Doppler.
 * Contrary:  two antennas that find the satellite elsewhere than the only steering antenna start the loops again.
 * Threads:   the worker.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_FOLLOW_H
#define FGPU_GNSS_GNSS_FOLLOW_H

#include "fgpu/gnss/gnss_stream.h"

/* Continues an antenna's search with the antenna's chunk of a round, whose int8 rows are queued. */
void gnss_follow_search(struct gnss_antenna *antenna, const struct gnss_chunk *chunk, struct gnss_part *part);

/* Lets other antennas search for the satellite, too.  Called if the antenna is absent from a round. */
void gnss_follow_release(struct gnss_antenna *antenna);

/* Returns true while a block is being downloaded or searched. */
bool gnss_follow_is_away(const struct gnss_antenna *antenna);

/* Begins to follow a signal at an antenna: starts the loops, or joins the other antennas.  'sample' is the time of the
 * acquisition for sensors.  Returns false if the antenna's delay is too large. */
bool gnss_follow_signal(struct gnss_antenna *antenna, size_t satellite, const struct fgpu_gnss_acquisition *found,
                        int64_t sample);

/* Starts the loops with a signal at an antenna.  Antennas that found the signal elsewhere may search at once. */
void gnss_follow_start(struct gnss_antenna *antenna, size_t satellite, const struct fgpu_gnss_acquisition *found);

#endif
