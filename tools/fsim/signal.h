/* signal.h - voltages that fsim sends.  Each voltage is a function of three indices: input (2 * antenna +
 * polarisation), channel of the whole stream, and spectrum (timestamp / samples_between_spectra, modulo the period).
 * With the configuration alone, any voltage can therefore be computed without running fsim.
 *
 * Below, V(x, y) is the sum over n spectra of x * conj(y).  The voltages are exact in all formats, and so are the sums.
 *
 *   constant:  x = real[x] + i imag[x].  V = n x conj(y).
 *   tone:      x = amplitude * i^(delays[x] * channel + rates[x] * spectrum).  If rates[x] = rates[y] modulo 4,
 *              V = n amplitude^2 i^((delays[x] - delays[y]) * channel), else 0 over any multiple of 4 spectra.
 *   noise:     own noise plus common noise; the same polarisation of all antennas shares the common noise:
 *              x = g(spectrum, channel, x) * rms * sqrt((1 - correlation) / 43690) +
 *                  g(spectrum, channel, 2^32 - 2 + polarisation) * rms * sqrt(correlation / 43690)
 *              The computation is in doubles: the square root first, then both products are rounded before the sum.
 *              The sum is rounded half to even and clipped to +-7 or +-127.  For half floats the sum is only rounded to
 *              the nearest half float.
 *   uniform:   x = u(spectrum, channel, x).  With 4 or 8 bits, every value is equally likely, -8 and -128 included.
 *              With half floats, the integers -2048 to 2047 are equally likely.
 *
 * Random numbers: r[0..3] = Philox4x32-7 (kernels/util/philox.h) of the counter (spectrum modulo 2^32, spectrum / 2^32,
 * channel, last argument) and the key (seed modulo 2^32, seed / 2^32).
 *   g:         real part: the sum of the 8 bytes of r[0] and r[1], less 1020; imaginary part: the same of r[2] and
 *              r[3].  The distribution is nearly normal, ends at 4.9 sigma, and has the variance
 *              8 (2^16 - 1) / 12 = 43690.
 *   u:         upper 4, 8 or 12 bits, as a signed integer, of r[0] (real) and r[1] (imaginary).
 *
 * Recordings have no formula: fsim/recording.h. */
#ifndef TOOLS_FSIM_SIGNAL_H
#define TOOLS_FSIM_SIGNAL_H

#include "kernels/util/voltages.h"
#include "tools/fsim/config.h"

#include <stddef.h>
#include <stdint.h>

/* Returns the number of heaps after which the voltages repeat.  Not valid for recordings. */
int64_t fsim_signal_period(const struct fsim_config *config);

/* Writes the real and the imaginary part of one voltage to 'value'.  For integer formats, the parts are rounded and
 * clipped.  Not valid for recordings. */
void fsim_signal_value(const struct fsim_config *config, size_t input, uint32_t chan, uint64_t spectrum,
                       double value[2]);

/* Writes a voltage to 'out', which has room for voltage_bytes(format).  For integer formats, the parts must be integers
 * in range.  For half floats, the parts are rounded to nearest, ties to even. */
void fsim_put_voltage(enum voltage_format format, const double value[2], uint8_t *out);

#endif
