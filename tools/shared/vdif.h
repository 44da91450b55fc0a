/* vdif.h - frames of a VDIF recording: parses and checks headers, and decodes samples.  Works on bytes in memory,
 * without I/O.
 *
 * VDIF is the VLBI Data Interchange Format, defined in the VDIF Specification, release 1.1.1 (2014).  A file is a
 * sequence of frames: a header of 32 bytes (16 bytes if the legacy flag is set), then samples.  All numbers are
 * little-endian words of 32 bits:
 *   word 0:  bit 31 invalid, bit 30 legacy, bits 0-29 seconds since the reference epoch.
 *   word 1:  bits 24-29 reference epoch (half-years since 2000), bits 0-23 number of the frame in the second.
 *   word 2:  bits 29-31 version, bits 24-28 log2 of the channels, bits 0-23 length of the frame in units of 8 bytes.
 *   word 3:  bit 31 complex, bits 26-30 bits per sample less one, bits 16-25 thread, bits 0-15 station.
 *   word 4:  bits 24-31 version of the extended data (EDV); the rest of words 4 to 7 is not read.
 *
 * The order of samples is [time][channel].  The first sample is in the lowest bits of a word.  No sample crosses the
 * end of a word.  A word therefore has 32 / bits samples (rounded down), and its highest bits may be unused.  If there
 * are several channels, the bits of a sample must be a power of two. */
#ifndef TOOLS_SHARED_VDIF_H
#define TOOLS_SHARED_VDIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of bytes that are read from each frame as its header.  A legacy header has only 16 bytes, but 32 bytes are
 * read.  Every frame is longer than 32 bytes. */
#define VDIF_HEADER_BYTES 32
#define VDIF_N_THREADS    1024

/* Magnitude of the outer levels of 2-bit samples, if the inner levels are 1.  The thresholds are +-sigma of normal
 * noise.  Each level is the mean magnitude of the noise below or above the threshold.  The ratio of these means is
 * 1 / ((sqrt(e) - 1) (1 / erf(sqrt(1/2)) - 1)). */
#define VDIF_2BIT_HIGH 3.316505

struct vdif_header {
    bool is_invalid, is_legacy, is_complex;
    uint32_t seconds; /* seconds since the reference epoch */
    unsigned epoch;
    uint32_t frame; /* number of the frame in its second, counted from 0 */
    uint32_t n_channels;
    size_t header_bytes;
    size_t frame_bytes; /* header and samples */
    int bits;           /* number of bits of a sample, 1 to 32 */
    unsigned thread, station;
    unsigned edv; /* 0 in legacy headers */
};

/* Parses a header.  Accepts any bytes; vdif_unplayable() checks the result. */
struct vdif_header vdif_parse(const uint8_t bytes[VDIF_HEADER_BYTES]);

/* Returns NULL if the frame contains real samples that vdif_decode() can decode.  Otherwise returns a static predicate
 * for a sentence whose subject is the frame, for example "holds complex samples, ...". */
const char *vdif_unplayable(const struct vdif_header *header);

/* Returns the number of samples of each channel in a playable frame, at least 1. */
uint32_t vdif_n_samples(const struct vdif_header *header);

/* Decodes n_samples samples, beginning with sample 'first', into 'values'.  The samples are from one channel of a
 * playable frame.  'payload' points to the bytes after the frame's header.  Codes are offset binary, with these
 * values:
 *   1 bit:            -1, 1.
 *   2 bits:           -VDIF_2BIT_HIGH, -1, 1, VDIF_2BIT_HIGH.
 *   3 bits and more:  code - 2^(bits - 1). */
void vdif_decode(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t first,
                 size_t n_samples, double *values);

/* Checks that a frame contains channelised voltages of 4 bits, as CHIME's backend writes them.  These are complex
 * samples [time][channel], real part first.  Returns NULL if the frame contains such samples, or else a predicate, like
 * vdif_unplayable(). */
const char *vdif_no_voltages(const struct vdif_header *header);

/* Returns the number of spectra in a frame of voltages, at least 1. */
uint32_t vdif_n_spectra(const struct vdif_header *header);

/* Writes the real and the imaginary part of a voltage to 'value'.  Each part is from -8 to 7.  'payload' points to the
 * bytes after the header of a frame of voltages. */
void vdif_voltage(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t spectrum,
                  double value[2]);

#endif
