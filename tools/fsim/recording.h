/* recording.h - reads channelised voltages that a telescope recorded in VDIF.  CHIME's backend writes such files.
 *
 * A frame contains one thread's voltages of one or more spectra, in all channels of the stream.  A frame's time is its
 * second and its number in the second.  For all threads, the recording begins at the earliest frame of the file.  A
 * heap is not sent if one of its frames is missing or marked invalid.
 *
 * Ownership: the file is mapped, and is read when the heaps are made.
 * Threads:   the main thread opens the recording; then any thread may read it. */
#ifndef TOOLS_FSIM_RECORDING_H
#define TOOLS_FSIM_RECORDING_H

#include "tools/fsim/config.h"
#include "tools/shared/vdif.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fsim_recording {
    const uint8_t *file;
    size_t file_bytes;
    bool real_is_high;                  /* true: the real part is in a byte's high bits, contrary to VDIF */
    struct vdif_header first;           /* header of the first frame; all other frames have the same format */
    int64_t n_frames;                   /* number of frames of each thread, missing frames included */
    int slot_of_thread[VDIF_N_THREADS]; /* slot of each thread; -1: the thread is not wanted */
    size_t n_slots;
    const uint8_t **payloads; /* [slot][frame]; NULL: missing frame */
};

/* Maps and surveys signal.file, and logs the contents.  Returns 0 or negative errno with one sentence in 'why'. */
int fsim_recording_open(const struct fsim_config *config, struct fsim_recording **recording, char *why,
                        size_t why_bytes);

int64_t fsim_recording_n_spectra(const struct fsim_recording *recording);

/* Returns true if a spectrum of a wanted thread was recorded. */
bool fsim_recording_has(const struct fsim_recording *recording, int64_t thread, int64_t spectrum);

/* Writes the real and the imaginary part of a recorded voltage to 'value'.  Each part is from -8 to 7. */
void fsim_recording_value(const struct fsim_recording *recording, int64_t thread, uint32_t chan, int64_t spectrum,
                          double value[2]);

/* Unmaps the file and frees the recording.  NULL is accepted. */
void fsim_recording_close(struct fsim_recording *recording);

#endif
