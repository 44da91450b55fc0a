"""The F-engine in numpy and float64, written from the specification and not from the C code.

Timestamps are ADC samples.  A spectrum is known by its index: its window starts at sample index * 2 * channels.
"""
from dataclasses import dataclass
from fractions import Fraction

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


# ---- Delays ----------------------------------------------------------------------------------------------------------


@dataclass
class Delay:
    """A delay model of one polarisation: samples, samples per sample (squared), radians, radians per sample."""
    start: int = -1
    delay: float = 0.0
    rate: float = 0.0
    phase: float = 0.0
    phase_rate: float = 0.0
    acceleration: float = 0.0

    def at(self, t):
        """Coarse delay, fine delay and phase at output time 't', from the exact values of the numbers."""
        r = t - self.start
        delay = Fraction(self.delay) + Fraction(self.rate) * r + Fraction(self.acceleration) * r * r / 2
        coarse = round(delay)  # half to even
        return coarse, float(delay - coarse), self.phase + self.phase_rate * r


def delay_at(models, t):
    """Of a list in order of start: zero before the first."""
    return ([Delay()] + [m for m in models if m.start <= t])[-1].at(t)


def held(config, start, chunks, n_samples):
    """[first, end) of the timestamps that are at hand, one chunk after another, of samples from 'start' on of which the
    chunks with these numbers came: a chunk, and before it as much of the one before as its history is long."""
    recv = config["recv"]
    packet, chunk = recv["packet_samples"], recv["chunk_samples"]
    window = max(o["taps"] * 2 * o["channels"] for o in config["outputs"])
    history = -(-(window + recv["max_delay_diff"]) // packet) * packet
    out = []
    for c in chunks:
        end = min((c + 1) * chunk, start + n_samples)
        first = c * chunk - (history if c - 1 in chunks else 0)
        out.append((max(first, start) if not out else first, end))
    return out


def delayed_batches(output, models, inputs):
    """{batch index: [pol][spectrum] (first sample of the window, fine delay, phase)} of the batches that must come, if
    no packet of these inputs is lost; models[pol], and inputs as held() gives them."""
    done, placed = {}, []
    t = max(0, inputs[0][0] - 2**21)  # no delay of a test reaches further
    t += -t % output.batch
    for first, end in inputs:
        while True:
            values = [delay_at(m, t) for m in models]
            starts = [t - v[0] for v in values]
            if min(starts) < first:  # on to the next batch for which everything is there
                placed = []
                t += -t % output.batch
                while min(t - delay_at(m, t)[0] for m in models) < first:
                    t += output.batch
                continue
            if max(starts) + output.window > end:
                break
            placed.append([(s, v[1], v[2] + np.pi / 2 * (v[0] % 4)) for s, v in zip(starts, values)])
            t += output.spacing
            if len(placed) == output.spectra_per_heap:
                done[t // output.batch - 1] = [list(pol) for pol in zip(*placed)]
                placed = []
    return done


def delayed_voltages(start, samples, output, placed):
    """Complex [channels][spectra][pol] of one batch, placed as delayed_batches() says, of samples[pol] from 'start'."""
    w = weights(output.spacing, output.taps, output.w_cutoff, output.window_function)
    chan = np.arange(output.channels)
    out = np.empty((output.channels, output.spectra_per_heap, 2), complex)
    for pol in range(2):
        first = np.array([p[0] for p in placed[pol]])
        fine, phase = (np.array([p[i] for p in placed[pol]])[:, None] for i in (1, 2))
        windows = np.lib.stride_tricks.sliding_window_view(samples[pol], output.window)[first - start]
        summed = (windows * w).reshape(len(first), output.taps, output.spacing).sum(axis=1)
        theta = phase - np.pi * fine * (chan - output.channels / 2) / output.channels
        out[..., pol] = (np.fft.rfft(summed)[:, :output.channels] * np.exp(1j * theta) * output.gain).T
    return out
