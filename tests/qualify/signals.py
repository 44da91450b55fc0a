"""Signals of a qualification's digitisers: 16-bit samples by their index, computed block by block."""
import numpy as np

LIMIT = 32767
BLOCK = 1 << 19  # samples computed at once; the dither of each has a seed of its own
SEED = 20261121


class Tones:
    """Sum of a cos(2 pi (k i / period) + phase) of (a, k, phase), with an integer k."""

    def __init__(self, tones, period):
        self.tones, self.period = tones, period

    def __call__(self, first, n):
        i = np.arange(first, first + n)
        out = np.zeros(n)
        for amplitude, k, phase in self.tones:
            out += amplitude * np.cos(2 * np.pi / self.period * (k * i % self.period) + phase)
        return out


class Multitone:
    """Tones of the same amplitude and random phases at some multiples of 1/period cycles per sample.  The integers are
    known exactly.  Between samples the signal is interpolated in a table 'finer' times as dense (32: error below -110
    dB)."""

    def __init__(self, period, multiples, finer=1, peak=0.9 * LIMIT):
        self.step, self.finer = period, finer
        rng = np.random.default_rng([SEED, period])
        spectrum = np.zeros(period // 2 + 1, complex)
        spectrum[multiples] = np.exp(2j * np.pi * rng.random(len(multiples)))
        self.fine = np.fft.irfft(spectrum, period * finer)
        scale = peak / np.max(np.abs(self.fine))
        self.fine *= scale  # [period finer]
        self.amplitude = 2 * scale / (period * finer)  # of each tone
        self.integers = np.rint(self.fine[::finer])

    def __call__(self, first, n):
        return np.take(self.integers, np.arange(first, first + n) % self.step)

    def at(self, positions):
        """At any position: the cubic through the four points of the table around it."""
        x = positions * self.finer
        whole = np.floor(x)
        f = x - whole
        i = whole.astype(np.int64)
        before, here, after, last = (np.take(self.fine, (i + k) % len(self.fine)) for k in (-1, 0, 1, 2))
        return (-before * f * (f - 1) * (f - 2) / 6 + here * (f + 1) * (f - 1) * (f - 2) / 2
                - after * (f + 1) * f * (f - 2) / 2 + last * (f + 1) * f * (f - 1) / 6)


class Delayed:
    """A multitone at i - (delay + rate (i - reference)): the signal of a drifting source."""

    def __init__(self, multitone, delay, rate, reference):
        self.multitone, self.delay, self.rate, self.reference = multitone, delay, rate, reference

    def __call__(self, first, n):
        i = np.arange(n)
        late = self.delay + self.rate * ((first - self.reference) + i)
        return self.multitone.at((first % self.multitone.step + i) - late)


class Impulses:
    """One sample of full scale at each of some places."""

    def __init__(self, places):
        self.places = places

    def __call__(self, first, n):
        out = np.zeros(n)
        for place in self.places:
            if first <= place < first + n:
                out[place - first] = LIMIT
        return out


class Sequence:
    """One signal after another, as 16-bit integers: (samples, signal, dither) each; a signal counts its own samples."""

    def __init__(self, parts, seed=0):
        self.parts, self.seed = parts, seed
        self.n_samples = sum(n for n, _, _ in parts)

    def blocks(self):
        """int16 arrays of at most BLOCK samples; every part begins with a new one."""
        for p, (n_samples, signal, dither) in enumerate(self.parts):
            for first in range(0, n_samples, BLOCK):
                n = min(BLOCK, n_samples - first)
                values = signal(first, n)
                if dither:
                    values = values + np.random.default_rng([SEED, self.seed, p, first]).uniform(-0.5, 0.5, n)
                yield np.rint(np.clip(values, -LIMIT, LIMIT)).astype(np.int16)


def repeat(signal, n_samples):
    """A signal without an end and without dither."""
    return Sequence([(n_samples, signal, False)])
