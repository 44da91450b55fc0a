/* recording.h - channelised voltages that a telescope recorded in VDIF, as CHIME's backend writes them.
 *
 * A frame holds one thread's voltages in all channels of the stream, of one spectrum or more.  The frame's second and
 * number give its time.  The recording begins, for all threads, at the earliest frame of the file.  Heaps that need a
 * frame that is missing or marked invalid are not sent.
 *
 * Ownership: the file is mapped, and read when the heaps are made.   Threads: main makes it; then all may read it. */
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
    bool real_is_high;                  /* of a byte's bits, against VDIF */
    struct vdif_header first;           /* all others are alike */
    int64_t n_frames;                   /* of each thread, those that are not there included */
    int slot_of_thread[VDIF_N_THREADS]; /* -1: not wanted */
    size_t n_slots;
    const uint8_t **payloads; /* [slot][frame]; NULL: not there */
};

/* Maps and surveys signal.file, and says in the log what is there.  Returns 0 or negative errno with one sentence in
 * 'why'. */
int fsim_recording_open(const struct fsim_config *config, struct fsim_recording **recording, char *why,
                        size_t why_bytes);

int64_t fsim_recording_n_spectra(const struct fsim_recording *recording);

/* Whether a spectrum of a wanted thread is there. */
bool fsim_recording_has(const struct fsim_recording *recording, int64_t thread, int64_t spectrum);

/* value = (real, imaginary) part of a voltage that is there, -8 to 7. */
void fsim_recording_value(const struct fsim_recording *recording, int64_t thread, uint32_t chan, int64_t spectrum,
                          double value[2]);

/* NULL is accepted. */
void fsim_recording_close(struct fsim_recording *recording);

#endif
