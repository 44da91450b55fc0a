/* signal.h - the voltages that fsim sends, each a function of where it is: input (2 * antenna + polarisation),
 * channel of the whole stream, and spectrum (timestamp / samples_between_spectra, modulo the period).  So whoever knows
 * the configuration can compute any of them, without running fsim.
 *
 * Below, V(x, y) is the sum over n spectra of x * conj(y); the voltages are exact in all formats, and so are the sums.
 *
 *   constant   x = real[x] + i imag[x].  V = n x conj(y).
 *   tone       x = amplitude * i^(delays[x] * channel + rates[x] * spectrum).  If rates[x] = rates[y] modulo 4,
 *              V = n amplitude^2 i^((delays[x] - delays[y]) * channel), else 0 over any multiple of 4 spectra.
 *   noise      own and common noise, the latter shared by the polarisation of all antennas:
 *              x = g(spectrum, channel, x) * rms * sqrt((1 - correlation) / 43690) +
 *                  g(spectrum, channel, 2^32 - 2 + polarisation) * rms * sqrt(correlation / 43690)
 *              in doubles, the square root first, both products rounded before the sum; then rounded half to even and
 *              clipped to +-7, +-127; with half floats only rounded to the nearest of them.
 *   uniform    x = u(spectrum, channel, x): every value that 4 or 8 bits hold, -8 and -128 included, equally often; with
 *              half floats the integers -2048 to 2047.
 *
 * Random numbers: r[0..3] = Philox4x32-7 (kernels/util/philox.h) of the counter (spectrum modulo 2^32, spectrum / 2^32,
 * channel, last argument) and the key (seed modulo 2^32, seed / 2^32).
 *   g          real part: the sum of the 8 bytes of r[0] and r[1], less 1020; imaginary part: of r[2] and r[3].  That is
 *              near to a normal distribution, ends at 4.9 sigma, and has the variance 8 (2^16 - 1) / 12 = 43690.
 *   u          the upper 4, 8 or 12 bits, as a signed integer, of r[0] (real) and r[1] (imaginary).
 *
 * Recordings have no formula: fsim/recording.h. */
#ifndef TOOLS_FSIM_SIGNAL_H
#define TOOLS_FSIM_SIGNAL_H

#include "kernels/util/voltages.h"
#include "tools/fsim/config.h"

#include <stddef.h>
#include <stdint.h>

/* After how many heaps the voltages repeat; not of recordings. */
int64_t fsim_signal_period(const struct fsim_config *config);

/* value = (real, imaginary) part of one voltage, rounded and clipped for integer formats; not of recordings. */
void fsim_signal_value(const struct fsim_config *config, size_t input, uint32_t chan, uint64_t spectrum,
                       double value[2]);

/* Writes a voltage, whose parts the format holds (half floats: rounded to the nearest, ties to even), at 'out', which
 * has room for voltage_bytes(format). */
void fsim_put_voltage(enum voltage_format format, const double value[2], uint8_t *out);

#endif
