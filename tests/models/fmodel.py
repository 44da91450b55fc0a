"""The F-engine in numpy and float64, written from the specification and not from the C code.

Timestamps are ADC samples.  An index identifies a spectrum: its window starts at sample index * 2 * channels.
"""
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy.signal


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
    def held(self):
        """Samples that an input keeps from the input before, in addition to the largest difference of delays."""
        return self.window

    @property
    def grid(self):
        """Windows begin at multiples of this."""
        return 1

    @property
    def limit(self):
        return 2 ** (self.sample_bits - 1) - 1


@dataclass
class Narrow(Output):
    """A narrow band.  Its frequencies are exact: those of the doubles nearest to the decimal text (output_of)."""
    centre_frequency: Fraction = Fraction(0)
    decimation: int = 8
    ddc_taps: int = 0
    weight_pass: float = 0.005
    pass_bandwidth: float = 0.0
    rate: Fraction = Fraction(1712000000)

    @property
    def grid(self):
        """Samples of input for each that is channelised."""
        return self.decimation * (2 if self.pass_bandwidth else 1)

    @property
    def bins(self):
        return self.channels * (1 if self.pass_bandwidth else 2)

    @property
    def n_ddc_taps(self):
        return self.ddc_taps or 16 * self.grid

    @property
    def spacing(self):
        return 2 * self.channels * self.decimation

    @property
    def window(self):
        return self.taps * self.bins * self.grid + self.n_ddc_taps - self.grid

    @property
    def held(self):
        return self.window + self.grid - 1


def output_of(section, rate):
    """The model of an output section, as in YAML, with the digitiser's rate."""
    kind = Narrow if section.get("kind") == "narrowband" else Output
    values = {k: v for k, v in section.items() if k in kind.__dataclass_fields__}
    if kind is Narrow:
        values |= {"centre_frequency": Fraction(float(section["centre_frequency"])), "rate": Fraction(float(rate))}
    return kind(**values)


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
    """The batches with all their packets: present[pol][packet], the first packet at 'start'."""
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
    if isinstance(output, Narrow):
        whole = [[[(b * output.batch + s * output.spacing, 0.0, 0.0) for s in range(output.spectra_per_heap)]] * 2
                 for b in indices]
        return {b: delayed_voltages(start, samples, output, placed) for b, placed in zip(indices, whole)}
    skip = indices[0] * output.batch - start
    heap = output.spectra_per_heap
    both = [spectra(samples[pol, skip:], output) for pol in range(2)]
    out = {}
    for batch in indices:
        at = (batch - indices[0]) * heap
        out[batch] = np.stack([x[at:at + heap] for x in both], -1).swapaxes(0, 1)
    return out


# ---- Narrow bands ----------------------------------------------------------------------------------------------------


@lru_cache(None)
def ddc_filter(subsampling, n_taps, weight_pass, pass_fraction):
    """The low-pass filter before samples are left out, of frequencies in units of the rate after that."""
    if pass_fraction:
        bands = [0, pass_fraction / 2, 1 - pass_fraction / 2, subsampling / 2]
    else:
        bands = [0, 0.25]
        n = 0
        while n + 0.75 < subsampling / 2:
            bands += [n + 0.75, min(n + 1.25, subsampling / 2)]
            n += 1
    gains = [1.0] + [0.0] * (len(bands) // 2 - 1)
    weight = [weight_pass] + [1.0] * (len(bands) // 2 - 1)
    h = scipy.signal.remez(n_taps, bands, gains, weight=weight, fs=subsampling, maxiter=1000)
    return (h * np.sqrt(subsampling)).astype(np.float32).astype(np.float64)


def baseband(first, samples, output):
    """Samples from timestamp 'first' on, mixed by e^{2 pi i f t} at their own times, f = -centre / rate, filtered in
    correlation order and subsampled: (number of the first one, timestamp / subsampling; the samples)."""
    step = output.grid
    f = -output.centre_frequency / output.rate
    skip = -first % step
    t0 = first + skip
    # t f modulo 1, exactly, in pieces that are short enough for doubles.
    starts = [float((t0 + i) * f % 1) for i in range(0, len(samples) - skip, 4096)]
    inside = np.array([float(i * f % 1) for i in range(4096)])
    turns = np.add.outer(starts, inside).ravel()[:len(samples) - skip]
    mixed = samples[skip:] * np.exp(2j * np.pi * turns)
    h = ddc_filter(step, output.n_ddc_taps, output.weight_pass,
                   float(output.pass_bandwidth / (output.rate / 2 / output.decimation)) if output.pass_bandwidth else 0)
    return t0 // step, np.convolve(mixed, h[::-1], "valid")[::step]


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

    def at(self, t, grid=1):
        """Coarse delay, fine delay and phase at output time 't', from the exact values of the numbers."""
        r = t - self.start
        delay = Fraction(self.delay) + Fraction(self.rate) * r + Fraction(self.acceleration) * r * r / 2
        coarse = round(delay)  # half to even
        start, fine = t - coarse, delay - coarse
        sign = (fine > 0) - (fine < 0)
        aligned = ((start + grid // 2) // grid if grid % 2 else (2 * start + grid - sign) // (2 * grid)) * grid
        return t - aligned, float(fine + aligned - start), self.phase + self.phase_rate * r


def delay_at(models, t, grid=1):
    """The model of a list in order of start that holds: zero before the first."""
    return ([Delay()] + [m for m in models if m.start <= t])[-1].at(t, grid)


def held(config, start, chunks, n_samples):
    """[first, end) of the available timestamps, one chunk after another.  Samples begin at 'start', and the chunks with
    these numbers came.  A chunk adds itself and, from the chunk before, the length of its history."""
    recv = config["recv"]
    packet, chunk = recv["packet_samples"], recv["chunk_samples"]
    window = max(output_of(o, config["time"]["adc_sample_rate"]).held for o in config["outputs"])
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
            values = [delay_at(m, t, output.grid) for m in models]
            starts = [t - v[0] for v in values]
            if min(starts) < first:  # on to the next batch for which everything is there
                placed = []
                t += -t % output.batch
                while min(t - delay_at(m, t, output.grid)[0] for m in models) < first:
                    t += output.batch
                continue
            if max(starts) + output.window > end:
                break
            turn = 0 if isinstance(output, Narrow) else np.pi / 2  # the mixer goes by the input's own time
            placed.append([(s, v[1], v[2] + turn * (v[0] % 4)) for s, v in zip(starts, values)])
            t += output.spacing
            if len(placed) == output.spectra_per_heap:
                done[t // output.batch - 1] = [list(pol) for pol in zip(*placed)]
                placed = []
    return done


def delayed_voltages(start, samples, output, placed):
    """Complex [channels][spectra][pol] of one batch, placed as delayed_batches() says, of samples[pol] from 'start'."""
    if isinstance(output, Narrow):
        return delayed_narrow(start, samples, output, placed)
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


def delayed_narrow(start, samples, output, placed):
    """The same of a narrow band."""
    w = weights(output.bins, output.taps, output.w_cutoff, output.window_function)
    chan = np.arange(output.channels)
    edge = (output.bins - output.channels) // 2
    out = np.empty((output.channels, output.spectra_per_heap, 2), complex)
    for pol in range(2):
        first = np.array([p[0] for p in placed[pol]])
        fine, phase = (np.array([p[i] for p in placed[pol]])[:, None] for i in (1, 2))
        begin, end = first.min(), first.max() + output.window
        number, mixed = baseband(int(begin), samples[pol, begin - start:end - start], output)
        windows = np.lib.stride_tricks.sliding_window_view(mixed, len(w))[first // output.grid - number]
        summed = (windows * w).reshape(len(first), output.taps, output.bins).sum(axis=1)
        bins = np.fft.fftshift(np.fft.fft(summed), axes=1)[:, edge:edge + output.channels]
        theta = phase - np.pi * fine * (chan - output.channels / 2) / (output.channels * output.decimation)
        out[..., pol] = (bins * np.exp(1j * theta) * output.gain).T
    return out
