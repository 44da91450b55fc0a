/* vdif.h - the frames of a VDIF recording: headers parsed and judged, samples decoded.  Bytes only; no I/O.
 *
 * VDIF is the VLBI Data Interchange Format, written down in the VDIF Specification, release 1.1.1 (2014).  A file is
 * one frame after the other: a header of 32 bytes (16 where the legacy flag is set), then samples.  All numbers are
 * little-endian words of 32 bits:
 *   word 0   bit 31 invalid, bit 30 legacy, bits 0-29 seconds since the reference epoch
 *   word 1   bits 24-29 reference epoch (half-years since 2000), bits 0-23 number of the frame in the second
 *   word 2   bits 29-31 version, bits 24-28 log2 of the channels, bits 0-23 length of the frame in units of 8 bytes
 *   word 3   bit 31 complex, bits 26-30 bits per sample less one, bits 16-25 thread, bits 0-15 station
 *   word 4   bits 24-31 version of the extended data (EDV), which is all that is read of words 4 to 7
 *
 * Samples go from time to time and, at one time, from channel to channel; the first one is in the lowest bits of a word
 * and none crosses a word's end, so a word has 32 / bits of them (rounded down) and its highest bits may be unused.
 * Several channels must have samples whose bits are a power of two. */
#ifndef TOOLS_SHARED_VDIF_H
#define TOOLS_SHARED_VDIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VDIF_HEADER_BYTES 32 /* read before it is known whether the header is a legacy one of 16; no frame is shorter */
#define VDIF_N_THREADS    1024

/* The magnitude of the outer levels of 2-bit samples, where that of the inner ones is 1: the means of normal noise
 * outside and inside of +-sigma, where the thresholds are, are as 1 / ((sqrt(e) - 1) (1 / erf(sqrt(1/2)) - 1)). */
#define VDIF_2BIT_HIGH 3.316505

struct vdif_header {
    bool is_invalid, is_legacy, is_complex;
    uint32_t seconds; /* since the reference epoch */
    unsigned epoch;
    uint32_t frame; /* number in the second, from 0 */
    uint32_t n_channels;
    size_t header_bytes;
    size_t frame_bytes; /* header and samples */
    int bits;           /* of a sample, 1 to 32 */
    unsigned thread, station;
    unsigned edv; /* 0 in legacy headers */
};

/* Parses any bytes; vdif_unplayable() judges them. */
struct vdif_header vdif_parse(const uint8_t bytes[VDIF_HEADER_BYTES]);

/* NULL if the frame holds real samples that vdif_decode() understands, else the predicate of a sentence of which the
 * frame is the subject ("holds complex samples, ..."), static. */
const char *vdif_unplayable(const struct vdif_header *header);

/* Samples of each channel in a playable frame, at least 1. */
uint32_t vdif_n_samples(const struct vdif_header *header);

/* values[0..n_samples) = samples 'first' to first + n_samples - 1 of a channel of a playable frame, from 'payload' (the
 * bytes behind its header).  Codes are offset binary, with these values:
 *   1 bit             -1, 1
 *   2 bits            -VDIF_2BIT_HIGH, -1, 1, VDIF_2BIT_HIGH
 *   3 bits and more   code - 2^(bits - 1) */
void vdif_decode(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t first,
                 size_t n_samples, double *values);

/* Channelised voltages: complex samples, real part first, as CHIME's backend writes them, one of each channel at a time.
 * NULL if the frame holds such of 4 bits, else the predicate of a sentence as above. */
const char *vdif_no_voltages(const struct vdif_header *header);

/* Spectra in a frame of voltages, at least 1. */
uint32_t vdif_n_spectra(const struct vdif_header *header);

/* value = (real, imaginary) part of a voltage, -8 to 7, from the bytes behind the header of a frame of voltages. */
void vdif_voltage(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t spectrum,
                  double value[2]);

#endif
