"""The F-engine in numpy and float64, written from the specification and not from the C code.

Timestamps are ADC samples.  A spectrum is known by its index: its window starts at sample index * 2 * channels.
"""
from dataclasses import dataclass

import numpy as np


@dataclass
class Output:
    """One output stream, as configured."""
    channels: int = 64
    spectra_per_heap: int = 16
    taps: int = 16
    w_cutoff: float = 1.0
    window_function: str = "hann"
    gain: float = 1.0
    sample_bits: int = 8

    @property
    def spacing(self):
        return 2 * self.channels

    @property
    def window(self):
        return self.taps * self.spacing

    @property
    def batch(self):
        """Samples from batch to batch."""
        return self.spectra_per_heap * self.spacing

    @property
    def reach(self):
        """Samples that a batch looks at."""
        return self.batch - self.spacing + self.window

    @property
    def limit(self):
        return 2 ** (self.sample_bits - 1) - 1


def weights(step, taps, w_cutoff=1.0, window_function="hann"):
    """The prototype filter, normalised so that white noise keeps its variance; rounded to float32 as it is stored."""
    n = step * taps
    i = np.arange(n)
    window = np.sin(np.pi * i / (n - 1)) ** 2 if window_function == "hann" else np.ones(n)
    w = window * np.sinc(w_cutoff * ((i + 0.5) / step - taps / 2))
    return (w / np.sqrt(np.sum(w**2))).astype(np.float32).astype(np.float64)


def pack(samples, bits):
    """Two's complement, most significant bit first, without gaps."""
    words = np.asarray(samples).astype(">i2")
    all_bits = np.unpackbits(words.view(np.uint8).reshape(-1, 2), axis=1)
    return np.packbits(all_bits[:, 16 - bits:])


def unpack(packed, bits):
    fields = np.unpackbits(packed).reshape(-1, bits).astype(np.int64)
    values = fields @ (1 << np.arange(bits)[::-1])
    return values - ((values >> (bits - 1)) << bits)


def spectra(samples, output):
    """Complex spectra [n][channels], gain applied, of all windows that lie in 'samples', the first at its start."""
    step = output.spacing
    frames = samples[:len(samples) // step * step].reshape(-1, step).astype(np.float64)
    w = weights(step, output.taps, output.w_cutoff, output.window_function).reshape(output.taps, step)
    n = max(len(frames) - output.taps + 1, 0)
    filtered = np.zeros((n, step))
    for tap in range(output.taps):
        filtered += w[tap] * frames[tap:tap + n]
    return np.fft.rfft(filtered, axis=1)[:, :output.channels] * output.gain


def quantise(values, limit):
    """[..., re/im] integers: clipped, then rounded half to even."""
    parts = np.stack([values.real, values.imag], -1)
    return np.rint(np.clip(parts, -limit, limit)).astype(np.int8)


def batches(start, n_samples, output):
    """Indices of the batches that the samples with timestamps [start, start + n_samples) allow."""
    first = -(-start // output.batch)
    last = (start + n_samples - output.reach) // output.batch
    return range(first, last + 1)


def batches_present(start, present, packet_samples, output):
    """Those batches of which every packet is there: present[pol][packet], the first packet at 'start'."""
    lost = np.concatenate([[0], np.cumsum(~present.all(axis=0))])
    out = []
    for batch in batches(start, present.shape[1] * packet_samples, output):
        first = (batch * output.batch - start) // packet_samples
        last = (batch * output.batch + output.reach - 1 - start) // packet_samples
        if lost[last + 1] == lost[first]:
            out.append(batch)
    return out


def voltages(start, samples, output, indices=None):
    """{batch index: complex [channels][spectra][pol]} before quantisation, of samples[pol][n] that begin at 'start'."""
    indices = batches(start, samples.shape[1], output) if indices is None else indices
    if not len(indices):
        return {}
    skip = indices[0] * output.batch - start
    heap = output.spectra_per_heap
    both = [spectra(samples[pol, skip:], output) for pol in range(2)]
    out = {}
    for batch in indices:
        at = (batch - indices[0]) * heap
        out[batch] = np.stack([x[at:at + heap] for x in both], -1).swapaxes(0, 1)
    return out
