"""Measurements with tones: channel shape, spurs, group delay, linearity."""
import fengine
import numpy as np
from fengine import HEAP, START, Antenna
from plan import LADDER, PEAK, ladder
from report import Row, db
from signals import LIMIT, Sequence, Tones

N_OFFSETS, N_TONES = 128, 32  # offsets in a channel, and tones at a time
N_LEVELS = 10
SHAPE_AMPLITUDE = 1 / 36  # of full scale: a gain of the ladder puts it at PEAK
FINER = 512  # frequencies are multiples of a channel over this


def shape_tones(plan, part):
    """[(channel, offset, (amplitude, k, phase))] of the tones that are sent together."""
    out = []
    for j in range(N_TONES):
        number = part * N_TONES + j
        # Each offset once, spread over the band in an order of no meaning.
        offset = (((number * 53) % N_OFFSETS) + 0.5) / N_OFFSETS - 0.5
        channel = int((j + 0.5) * plan.channels / N_TONES)
        phase = np.pi * j * j / N_TONES  # so that they do not add up to peaks
        out.append((channel, offset, (SHAPE_AMPLITUDE * LIMIT, round((channel + offset) * FINER), phase)))
    return out


def measure(plan, work):
    full = 0.98 * LIMIT
    period = plan.step * FINER
    parts = [(2 * plan.window, Tones([], period), True)]
    for channel in plan.sfdr_channels:
        parts.append((plan.samples(plan.spectra_sfdr), Tones([(full, channel * FINER, 1.0)], period), True))
    for part in range(N_OFFSETS // N_TONES):
        together = Tones([t for _, _, t in shape_tones(plan, part)], period)
        parts.append((plan.samples(plan.spectra_shape), together, True))
    level_channel = plan.channels * 5 // 16 + 1
    for level in range(N_LEVELS):
        tone = Tones([(full / 2**level, level_channel * FINER, 0.5)], period)
        parts.append((plan.samples(plan.spectra_linearity), tone, True))
    parts.append((2 * plan.window + 2 * HEAP * plan.step, Tones([], period), True))
    sequence = Sequence(parts)
    gain = plan.gain(LIMIT)
    antennas = [Antenna([sequence] * 2, list(gains)) for gains in (gain * LADDER).reshape(-1, 2)]
    found = fengine.run(work, "tones", plan, antennas)
    starts = iter(START + np.cumsum([0] + [p[0] for p in parts])[1:])
    rows, plots = [], {}
    rows += spurs(plan, found, [next(starts) for _ in plan.sfdr_channels], plots)
    rows += shape(plan, found, [next(starts) for _ in range(N_OFFSETS // N_TONES)], plots)
    rows += linearity(plan, found, [next(starts) for _ in range(N_LEVELS)], level_channel)
    return rows, plots


def spurs(plan, found, starts, plots):
    """A tone at a channel's centre: the channel where it appears, and the strongest of all other channels."""
    worst, far, floors, right = np.inf, np.inf, [], 0
    for channel, start in zip(plan.sfdr_channels, starts):
        power = ladder(plan, found, int(start), plan.spectra_sfdr, lambda x: np.sqrt(np.mean(np.abs(x)**2, axis=0)))**2
        right += int(np.argmax(power)) == channel
        others = np.delete(power, channel)
        floors.append(db(np.median(others) / power[channel]))
        if (found_worst := -db(np.max(others) / power[channel])) < worst:
            worst = found_worst
            plots["spurs"] = 10 * np.log10(np.maximum(power, 1e-30) / power[channel])
        beside = [c for c in (channel - 1, channel + 1) if c >= 0]
        far = min(far, -db(np.max(np.delete(power, [channel, *beside])) / power[channel]))
    n = len(plan.sfdr_channels)
    return [Row("0126", "a tone at a channel's centre is in that channel", "all", f"{right} of {n}", right == n),
            Row("0126", "SFDR in dB: a tone of 0.98 of full scale over the strongest other channel (noise: over their "
                "median)", "> 53; goal > 80", f"{worst:.1f} ({-max(floors):.1f})", worst > 80),
            Row("0126", "SFDR in dB without the two neighbouring channels, where the filter's design permits "
                f"{-db(plan.response(1)**2):.1f}", "goal > 80", f"{far:.1f}", far > 80)]


def shape(plan, found, starts, plots):
    """Tones at 128 offsets from their channels' centres, in their channels and the neighbours."""
    offsets, responses, errors, phases = [], [], [], []
    for part, start in enumerate(starts):
        n = plan.spectra_shape
        for channel, offset, (amplitude, k, phase) in shape_tones(plan, part):
            turns = k / FINER / plan.step * (np.arange(n) * plan.step)
            # Referred to the window's first sample of the first spectrum; the part's own samples begin at 'start'.
            unwind = np.exp(-1j * (2 * np.pi * turns + phase))[:, None]
            value = ladder(plan, found, int(start), n, lambda x, u=unwind: np.mean(x * u, axis=0))
            value = value / (PEAK * amplitude / LIMIT)
            for m in range(-3, 4):
                offsets.append(offset - m)
                responses.append(abs(value[channel + m]))
            errors.append(20 * np.log10(abs(value[channel]) / plan.response(offset)))
            phases.append((offset, np.angle(value[channel])))
    order = np.argsort(offsets)
    offsets, level = np.array(offsets)[order], 20 * np.log10(np.maximum(np.array(responses)[order], 1e-9))
    plots["shape"] = offsets, level

    def width(level_db):
        """Width between the outermost places where the response crosses a level, on straight lines between points."""
        out = []
        for side in (-1, 1):
            x, y = (side * offsets)[::side], level[::side]
            i = np.flatnonzero((y[:-1] >= level_db) & (y[1:] < level_db) & (x[1:] > 0))[-1]
            out.append(x[i] + (x[i + 1] - x[i]) * (y[i] - level_db) / (y[i] - y[i + 1]))
        return sum(out)

    w3, w53 = width(-3), width(-53)
    far = np.max(level[np.abs(offsets) >= 1])
    floor = np.median(level[np.abs(offsets) > 2])
    error = np.max(np.abs(errors))
    rows = [Row("0126", "channel shape: width at -53 dB over width at -3 dB, 128 tones", "<= 2",
                f"{w53:.3f} / {w3:.3f} = {w53 / w3:.3f}", w53 <= 2 * w3),
            Row("0126", "leakage in dB of a tone into channels other than its own channel and the nearer neighbour "
                "(noise: median further than 2 channels away)", "<= -53", f"{far:.1f} ({floor:.1f})", far <= -53),
            Row("0126", "gain from -0.5 to +0.5 channels in dB, largest difference from the design in float64",
                "<= 0.1", f"{error:.4f}", error <= 0.1)]
    return rows + group_delay(plan, phases)


def group_delay(plan, phases):
    """The slope of the phase over a channel, from tones with known phases at the first sample."""
    offset, phase = np.array(phases).T
    expected = (plan.window - 1) / 2
    # What is left of the phase once the expected delay is taken out is small, so it does not wrap.
    rest = np.angle(np.exp(1j * (phase - 2 * np.pi * offset * expected / plan.step)))
    (slope, _), covariance = np.polyfit(offset, rest, 1, cov=True)
    delay, sigma = expected + slope * plan.step / 2 / np.pi, np.sqrt(covariance[0, 0]) * plan.step / 2 / np.pi
    return [Row("", "group delay of the filter bank in samples, from the phases of the 128 tones (sigma)",
                "(taps x 2 channels - 1) / 2, within 7 sigma", f"{delay:.2f}, to be {expected} ({sigma:.2f})",
                abs(delay - expected) <= 7 * sigma)]


def linearity(plan, found, starts, channel):
    """A tone from 0.98 of full scale to 1/512 of that, without another gain than the ladder's."""
    levels = []
    for start in starts:
        value = ladder(plan, found, int(start), plan.spectra_linearity, lambda x: np.mean(x, axis=0))
        levels.append(abs(value[channel]))
    expected = PEAK * 0.98 / 2.0 ** np.arange(N_LEVELS)
    relative = np.array(levels) / expected
    worst = np.max(np.abs(20 * np.log10(relative)))
    return [Row("", "linearity: tones of 2^0 to 2^-9 of the full level, largest error of the level in dB "
                "(relative MSE)",
                "reported", f"{worst:.4f} ({np.mean((relative - 1)**2):.1e})")]
