"""Voltages of an array that observes a point source, and their visibilities, in numpy."""
from dataclasses import dataclass

import numpy as np

import phaseup_solve


@dataclass
class Truth:
    """True values of one polarisation.  Each array is [ant]."""

    delay_s: np.ndarray
    phase_rad: np.ndarray  # phase at channel n/2
    amplitude: np.ndarray  # rms of each input

    def gain(self, n_chan, channel_hz):
        turn = 2 * np.pi * channel_hz * (np.arange(n_chan) - n_chan // 2)
        return self.amplitude[:, None] * np.exp(1j * (self.phase_rad[:, None] - turn * self.delay_s[:, None]))


def random_truth(rng, n_ant, delay_s=30e-9, decibel=3.0):
    return Truth(rng.uniform(-delay_s, delay_s, n_ant), rng.uniform(-np.pi, np.pi, n_ant),
                 10 ** (rng.uniform(-decibel, decibel, n_ant) / 20))


def noise(rng, *shape):
    """Complex noise of unit power."""
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * np.sqrt(0.5)


def voltages(rng, gain, n_spectra, correlation):
    """[ant, chan, spectrum].  correlation: share of the source in each input's power."""
    n_ant, n_chan = gain.shape
    sky = noise(rng, 1, n_chan, n_spectra) * np.sqrt(correlation)
    return gain[:, :, None] * (sky + noise(rng, n_ant, n_chan, n_spectra) * np.sqrt(1 - correlation))


def correlate(v):
    """[baseline, chan] of v[ant, chan, spectrum], in the order of the X-engine: sum of e_i conj(e_j)."""
    return np.array([(v[i] * v[j].conj()).sum(1) for j in range(len(v)) for i in range(j + 1)])


def data_of(pols, n_spectra, channel_hz):
    """phaseup's Data of voltages of each polarisation."""
    vis = np.array([correlate(v) for v in pols], np.complex64)
    return phaseup_solve.Data([f"m{i:03}" for i in range(len(pols[0]))], channel_hz, vis,
                              np.full(vis.shape, n_spectra, np.float32), 1.7e9, 1.7e9 + n_spectra / channel_hz)
