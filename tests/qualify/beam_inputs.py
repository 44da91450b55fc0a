"""The inputs of a beam and their strengths: weights, gains and channels.  The last part has the real F-engine."""
import bengine
import fengine
import numpy as np
from bengine import HEAP, Beam
from fengine import PACKET_SAMPLES, RATE_HZ, START, Antenna, Model
from plan import Plan
from report import Row
from signals import LIMIT, Sequence, Tones, repeat

N_ANTS, CHANNELS = 64, 128
N_SPECTRA = 256
TURNS_DB = np.linspace(-40, 40, 41)
SMALL_DELAYS = [(-200e-12, -np.pi / 2), (-10e-12, -1.0), (0.0, 0.35), (16e-12, 0.0), (290e-12, np.pi / 2)]
RMS = 16  # of the real and the imaginary part


def sums(plan, work):
    """Four beams of both polarisations with whole weights, whose sums are exact; weights and gains of -40 to 40 dB."""
    rng = np.random.default_rng(10)
    parts = rng.integers(-4, 5, (2, N_ANTS, CHANNELS, N_SPECTRA, 2)).astype(np.float32)
    voltages = parts.view(np.complex64)[..., 0]
    weights = [np.ones(N_ANTS), *rng.integers(-1, 2, (3, N_ANTS))]
    scales = 10**(TURNS_DB / 20)
    even = RMS / np.std(voltages[0].real.sum(0)) * np.ones(N_ANTS)
    beams = [Beam(pol, w) for w in weights for pol in range(2)]
    beams += [Beam(0, even, gain=scale) for scale in scales] + [Beam(0, even * scale) for scale in scales]
    found = bengine.run(work, "sums", beams, bengine.in_batches(voltages))
    wrong = [np.count_nonzero(x != np.einsum("acs,a->cs", voltages[beam.pol], beam.weights))
             for x, beam in zip(found, beams[:8])]
    rows = [Row("0183", "sums of H and of V over 64 antennas: samples that are not exact", "0", f"{sum(wrong[:2])}",
                sum(wrong[:2]) == 0),
            Row("0095, 0242", "beams of both polarisations, with separate weights, that are exact in all samples",
                ">= 4", f"{wrong.count(0) // 2}", wrong.count(0) == 8)]
    for number, what, power in (("0117", "gain", [np.mean(np.abs(x)**2) for x in found[8:49]]),
                                ("0123", "weights", [np.mean(np.abs(x)**2) for x in found[49:]])):
        off_db = 10 * np.log10(np.maximum(power, 1e-9) / power[20]) - TURNS_DB
        near, good = np.abs(TURNS_DB) <= 6, TURNS_DB[np.abs(off_db) < 0.5]
        worst = 100 * np.abs(10**(off_db[near] / 10) - 1).max()
        rows.append(Row(number, f"{what} of -40 to +40 dB: power within 6 dB, largest difference from proportional in "
                        "% (range in which it is within 0.5 dB)", "<= 5",
                        f"{worst:.2f} ({good[0]:+.0f} to {good[-1]:+.0f} dB)", worst <= 5))
    return rows


def mapping(plan, work):
    """Each input has a signal in a separate channel.  One beam has one input, another beam all others."""
    rng = np.random.default_rng(11)
    channel = rng.permutation(2 * N_ANTS).reshape(2, N_ANTS)
    voltages = np.zeros((2, N_ANTS, 2 * N_ANTS, HEAP), np.complex64)
    for pol in range(2):
        voltages[pol, np.arange(N_ANTS), channel[pol]] = 1 + rng.integers(0, 100, (N_ANTS, HEAP)) + 5j
    inputs = [(i % 2, a) for i, a in enumerate(rng.choice(N_ANTS, 16, replace=False))]
    beams = [Beam(pol, weights) for pol, a in inputs for weights in (np.eye(N_ANTS)[a], 1 - np.eye(N_ANTS)[a])]
    found = bengine.run(work, "mapping", beams, bengine.in_batches(np.repeat(voltages, 2, 3)))
    good = sum(set(np.flatnonzero(np.abs(one).sum(1))) == {channel[pol, a]}
               and set(np.flatnonzero(np.abs(rest).sum(1))) == set(channel[pol]) - {channel[pol, a]}
               for (pol, a), one, rest in zip(inputs, found[::2], found[1::2]))
    return [Row("0123", "weights of 0 and 1, 64 antennas: inputs whose signal is in the right channel of the "
                "input's own beam, and not in the beam of all other inputs", "all",
                f"{good} of {len(inputs)}", good == len(inputs))]


class Noise:
    """White noise, block by block."""

    def __call__(self, first, n):
        return np.random.default_rng([12, first]).normal(0, LIMIT / 8, n)


def chain(plan, work):
    """fgpu, then xbgpu.  The F-engine delays inputs of polarisation 0, and beams take the delays back.  Polarisation 1
    has no delays.  The last antenna has tones in 30 channels."""
    feng = Plan(1024, True)
    n_ants, n = len(SMALL_DELAYS) + 1, 8 * fengine.HEAP
    noise = repeat(Noise(), feng.samples(n + 4 * fengine.HEAP))
    tones = sorted(np.random.default_rng(13).choice(np.arange(50, feng.channels - 50), 30, replace=False).tolist())
    amplitude, phases = 0.9 * LIMIT / len(tones), np.random.default_rng(14).uniform(0, 7, len(tones))
    tone = Tones([(amplitude, k, phase) for k, phase in zip(tones, phases)], feng.step)
    gain = RMS * np.sqrt(2) / (LIMIT / 8)
    antennas = [Antenna([noise] * 2, [gain] * 2, [[Model(START, d * RATE_HZ, phase=p)], []]) for d, p in SMALL_DELAYS]
    antennas.append(Antenna([Sequence([(noise.n_samples, tone, True)])] * 2, [feng.gain(amplitude)] * 2))
    found = fengine.run(work, "chain", feng, antennas, max_delay_diff=PACKET_SAMPLES)
    first = START // (fengine.HEAP * feng.step) + 2
    voltages = np.array([[v.batches[(first + b) * fengine.HEAP * feng.step] for v in found] for b in range(8)])
    one = np.eye(n_ants)
    beams = [Beam(0, one[a], -d * one[a], -p * one[a]) for a, (d, p) in enumerate(SMALL_DELAYS)]
    beams += [Beam(1, one[a]) for a in range(n_ants)]
    beams = bengine.run(work, "beams", beams, voltages, first)
    off = [max(np.abs(part).max() for part in ((x - other).real, (x - other).imag))
           for x, other in zip(beams, beams[n_ants - 1:-1])]
    power = (np.abs(beams[-1])**2).mean(1)
    seen = np.flatnonzero(power > 0.5 * power.max()).tolist()
    return [Row("0220", "F-engine's delays of -200, -10, 0, 16, 290 ps and phases, which a beam compensates: "
                "largest difference from the input without delay in LSB", "<= 3", f"{max(off):.0f}", max(off) <= 3),
            Row("", "30 tones from the F-engine: channels of the beam with over half of the largest power",
                "the 30 tones' channels",
                f"{len(set(seen) & set(tones))} of 30, {len(set(seen) - set(tones))} others", seen == tones)]
