"""The number of measurements for a number of channels, and code that the measurements share.

Voltages are in steps of the 8-bit output.  Values below one step are measured in two ways.  One way averages over
spectra; the dither makes the mean right.  The other way repeats the measurement with gains up to 7776 times higher, in
channels without saturation.  Both are linear: gains are applied after the filter bank, before the rounding.
"""
import numpy as np

import fmodel

TAPS = 16
LADDER = 6.0 ** np.arange(6)  # gains, of what puts a tone of full scale at PEAK
PEAK = 110.0


class Plan:
    """How much is measured of a number of channels over the whole band."""

    section = {}  # of the output, beside channels

    def __init__(self, channels, quick):
        self.channels, self.step = channels, 2 * channels
        self.lead = TAPS - 1  # spectra that still see what was before
        self.window = TAPS * self.step
        many = 64 if quick else max(128, min(1024, 4194304 // channels))
        self.spectra_sfdr = 16 if quick else many // 4
        self.spectra_shape = 16 if quick else many // 4
        self.spectra_linearity = 16 if quick else many // 8
        self.spectra_phase = self.spectra_rate = self.spectra_levels = many
        # Every 3111th channel from 8 of 32768; as densely of fewer.
        n_tones = 4 if quick else 11
        self.sfdr_channels = [8 + 3111 * i * channels // 32768 for i in range(n_tones)]
        self.weights = fmodel.weights(self.step, TAPS)

    def samples(self, n_spectra):
        """The number of spectra of a signal that starts and ends with its part of the sequence."""
        return (self.lead + n_spectra) * self.step

    def response(self, offset):
        """Response of the prototype filter to a tone 'offset' channels from a channel's centre; 1 is the peak."""
        i = np.arange(self.window) - (self.window - 1) / 2
        return np.sum(self.weights * np.cos(2 * np.pi * offset * i / self.step)) / np.sum(self.weights)

    def gain(self, amplitude):
        """That puts a tone of this amplitude at PEAK."""
        return PEAK / (amplitude * np.sum(self.weights) / 2)


def ladder(plan, found, timestamp, n, mean):
    """The result of 'mean' on the spectra, by channel, divided by the gain: from the highest gain without
    saturation."""
    best = None
    for step, factor in enumerate(LADDER):
        x = found[step // 2].spectra(step % 2, timestamp, n)
        fits = np.max(np.maximum(np.abs(x.real), np.abs(x.imag)), axis=0) < 127
        value = mean(x) / factor
        best = value if best is None else np.where(fits, value, best)
    return best


def spectrum(plan, samples):
    """complex128 [channel] of a window's samples, at a gain of 1."""
    return fmodel.spectra(samples, fmodel.Output(channels=plan.channels, taps=TAPS))[0]
