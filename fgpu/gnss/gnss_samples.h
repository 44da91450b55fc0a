/* gnss_samples.h - the samples of a stream of satellite sums: from each antenna's baseband to 8-bit rows of all antennas.
 *
 * Flow:      device input --baseband.c--> complex float, a chunk's row in a slot --matcher: all antennas--> int8 rows
 * Rows:      each row has pitch_samples samples of one polarisation.  The last sample of the row is the last sample of
 *            the chunk.  In front of the chunk's samples a row has earlier samples, which a replica meets at antennas with
 *            other delays.
 * Missing:   int8 samples are zeros where input is missing.
 * Order:     an antenna's compute stream writes a slot.  The stream's own compute stream reads the slot for a round, and
 *            has the int8 rows for itself.
 * Threads:   the worker.   Blocking and allocation: none. */
#ifndef FGPU_GNSS_GNSS_SAMPLES_H
#define FGPU_GNSS_GNSS_SAMPLES_H

#include "fgpu/gnss/gnss_stream.h"

/* Takes back the chunks that the matcher or a round has released.  Counts the chunks that were in no round. */
void gnss_samples_take_back(struct gnss_stream *stream);

/* Returns the chunk into which an antenna's samples of a device input go.  The chunk may be in use. */
struct gnss_chunk *gnss_samples_chunk(struct gnss_antenna *antenna, const struct fgpu_device_input *in);

/* Queues the copy of the samples that the antenna's baseband has made of 'in', and of earlier samples.  The antenna's
 * newest chunk becomes 'chunk'.  Returns false if the input has made no samples; the chunk then stays free. */
bool gnss_samples_take(struct gnss_antenna *antenna, struct gnss_chunk *chunk, struct device_stream *compute,
                       const struct fgpu_device_input *in);

/* Returns the number of samples in [begin, end) that are present. */
int64_t gnss_samples_present(const struct gnss_chunk *chunk, int64_t begin, int64_t end);

/* Queues the conversion of all antennas' chunks to int8 rows.  set[ant] may be NULL.  The chunks may be released then. */
void gnss_samples_quantise(struct gnss_stream *stream, struct gnss_chunk *const *set, struct gnss_buffer *buffer);

/* Returns the antenna's int8 row of polarisation 0 on the device. */
static inline int8_t *gnss_samples_row(const struct gnss_stream *stream, size_t ant)
{
    return stream->samples + ant * N_POLS * stream->sizes.pitch_samples * 2;
}

/* Returns the index of a sample in the rows of a chunk whose samples end before 'end'. */
static inline int64_t gnss_samples_index(const struct gnss_stream *stream, int64_t end, int64_t sample)
{
    return sample - (end - (int64_t)stream->sizes.pitch_samples);
}

#endif
