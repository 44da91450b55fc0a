"""Narrow bands: the down-converter and the filter bank after it, in the real fgpu.

The tests measure a tone's place in the band, the flatness of the band, aliases from outside, and delays and phases."""
import fengine
import fmodel
import numpy as np
from fengine import HEAP, RATE_HZ, START, Antenna, Model
from phases import DELAYS, PHASES, evaluation_row, noise_deg, phase_row
from plan import LADDER, PEAK, TAPS, ladder
from report import Row, db
from signals import LIMIT, Multitone, Sequence, Tones, repeat

N_FLAT = 31  # tones over the band
FULL = 0.98 * LIMIT


class Band:
    """How much is measured of a narrow band; frequencies are multiples of 1 / step cycles per sample."""

    def __init__(self, channels, decimation, kept, quick):
        """'kept' of the band is flat and free of aliases; 0: all, for twice the band is made and half discarded."""
        self.channels, self.decimation, self.kept = channels, decimation, kept
        self.step = 2 * channels * decimation
        self.subsampling = decimation * (2 if kept else 1)
        self.bins = channels * (1 if kept else 2)
        self.ddc_taps = 16 * self.subsampling
        self.window = TAPS * self.bins * self.subsampling + self.ddc_taps - self.subsampling
        self.lead = -(-self.window // self.step) - 1
        self.centre = round(0.23 * self.step)  # channel channels / 2
        self.spectra_tones = 16 if quick else max(8, min(64, 2097152 // self.step))
        self.spectra_phase = 32 if quick else 64 if self.step > 65536 else 128
        # A tone of amplitude 2 is 1 before the first filter, whose gain is the root of the subsampling.
        self.weights = fmodel.weights(self.bins, TAPS) * np.sqrt(self.subsampling)
        self.section = {"kind": "narrowband", "decimation": decimation,
                        "centre_frequency": repr(self.centre * RATE_HZ / self.step)}
        if kept:
            self.section["pass_bandwidth"] = kept * RATE_HZ / 2 / decimation
        # The channels that are flat and free of aliases.
        half = int(channels * kept / 2) if kept else channels // 2
        self.first, self.last = channels // 2 - half, min(channels // 2 + half, channels - 1)

    def frequency(self, channel):
        return self.centre + channel - self.channels // 2

    def samples(self, n_spectra):
        return (self.lead + n_spectra) * self.step

    def gain(self, amplitude):
        """That puts a tone of this amplitude at PEAK."""
        return PEAK / (amplitude * np.sum(self.weights) / 2)


def tones(band, work):
    inside = [int(band.first + x * (band.last - band.first)) for x in (0, 0.21, 0.5, 0.83, 1)]
    flat = np.linspace(band.first, band.last, N_FLAT).astype(int)
    # Frequencies that the subsampling turns into ones inside the band, to either side of it.
    apart = band.step // band.subsampling
    channels = inside[::2] if band.step <= 65536 else inside[1:2]  # where spectra are long, fewer
    aliases = [band.frequency(c) + n * apart for n in (-3, -2, -1, 1, 2, 3) for c in channels]
    aliases = [k for k in aliases if 0 < k < band.step // 2]
    comb = Tones([(FULL / 36, int(band.frequency(c)), np.pi * i * i / N_FLAT) for i, c in enumerate(flat)], band.step)
    parts = [((band.lead + HEAP) * band.step, Tones([], band.step), True)]
    parts.append((band.samples(band.spectra_tones), comb, True))
    for k in [band.frequency(c) for c in inside] + aliases:
        parts.append((band.samples(band.spectra_tones), Tones([(FULL, int(k), 1.0)], band.step), True))
    parts.append((2 * band.window + 2 * HEAP * band.step, Tones([], band.step), True))
    sequence = Sequence(parts)
    antennas = [Antenna([sequence] * 2, list(gains)) for gains in (band.gain(LIMIT) * LADDER).reshape(-1, 2)]
    found = fengine.run(work, "narrow", band, antennas)
    starts = [int(s) for s in START + np.cumsum([p[0] for p in parts])]
    rows = flatness(band, found, starts[0], flat)
    rows += places(band, found, starts[1:], inside)
    rows += alias_rejection(band, found, starts[1 + len(inside):], aliases)
    return rows


def powers(band, found, start):
    return ladder(band, found, start, band.spectra_tones, lambda x: np.sqrt(np.mean(np.abs(x)**2, axis=0)))**2 / PEAK**2


def quiet(power):
    """The median of the nine tenths of the channels with the least power.  The noise is so low that the median may be
    0."""
    return np.mean(np.sort(power)[:len(power) * 9 // 10])


def flatness(band, found, start, flat):
    """Tones in many channels at once.  Their phase is the same in every spectrum, so voltages can be averaged."""
    level = np.abs(ladder(band, found, start, band.spectra_tones, lambda x: np.mean(x, axis=0)))[flat]
    level = 20 * np.log10(level / PEAK * 36 * LIMIT / FULL)
    noise = 20 * np.log10(1 + 0.41 / PEAK / np.sqrt(band.spectra_tones))
    return [Row("VLBI", f"gain at {N_FLAT} frequencies of the band in dB, lowest and highest (noise)", "ripple < 0.1",
                f"{level.min():+.4f} to {level.max():+.4f} ({noise:.4f})", np.ptp(level) < 0.1)]


def places(band, found, starts, inside):
    worst, far, floor, right = np.inf, np.inf, np.inf, 0
    for channel, start in zip(inside, starts):
        power = powers(band, found, start)
        right += int(np.argmax(power)) == channel
        others = np.delete(power, channel)
        worst = min(worst, db(power[channel] / np.max(others)))
        beside = [c for c in (channel - 1, channel, channel + 1) if 0 <= c < band.channels]
        far = min(far, db(power[channel] / np.max(np.delete(power, beside))))
        floor = min(floor, db(power[channel] / quiet(others)))
    return [Row("0126", "tones at channels' centres are in those channels", "all", f"{right} of {len(inside)}",
                right == len(inside)),
            Row("0126", "SFDR in dB: a tone of 0.98 of full scale over the strongest other channel; without the two "
                "neighbours (noise)", "> 53; goal > 80", f"{worst:.1f}; {far:.1f} ({floor:.1f})", worst > 80)]


def alias_rejection(band, found, starts, aliases):
    """Tones of full scale outside the band, at any place of the kept part where they may land."""
    loudest, floor = 0, 0
    for start, _ in zip(starts, aliases):
        power = powers(band, found, start)[band.first:band.last + 1]
        loudest, floor = max(loudest, np.max(power)), max(floor, quiet(power))
    reference = (FULL / LIMIT)**2
    return [Row("VLBI", "alias rejection in dB, of tones outside the band that fold into it (noise)", "> 80",
                f"{db(reference / loudest):.1f} ({db(reference / floor):.1f})", db(reference / loudest) > 80)]


def static(band, work):
    """Delays and phases in one polarisation, against the other; tones in every second channel."""
    channels = np.arange(band.first + band.first % 2 + 2, band.last, 2)
    frequency = band.frequency(channels)
    signal = Multitone(band.step, frequency)
    reach = -(-140000 // band.step) + HEAP
    n = band.spectra_phase
    settings = [(f"delay {name}", d * RATE_HZ, 0.0) for name, d in DELAYS]
    settings += [(f"phase {name}", 0.0, p) for name, p in PHASES[:2]]
    sequence = repeat(signal, (2 * reach + n * len(settings) + band.lead + 4 * HEAP) * band.step)
    starts = [START + (reach + n * i) * band.step for i in range(len(settings))]
    models = [Model(t, delay=d, phase=p) for t, (_, d, p) in zip(starts, settings)]
    found, = fengine.run(work, "narrowphases", band, [Antenna([sequence] * 2, [band.gain(signal.amplitude)] * 2,
                                                              [models, []])], max_delay_diff=1 << 18)
    still = np.mean(found.spectra(1, starts[0], n * len(settings)), axis=0)[channels]
    rows = []
    for start, (name, delay, phase) in zip(starts, settings):
        want = phase - 2 * np.pi * (frequency - band.centre) / band.step * delay
        x = np.mean(found.spectra(0, start, n), axis=0)[channels]
        rows.append(phase_row(name, np.angle(x * np.conj(still) * np.exp(-1j * want)), noise_deg(n)))
    return [*rows, evaluation_row(band, known=True)]
