"""The measurements: what is sent, what must come out by the requirement or an independent model, and what came.

Voltages are in steps of the 8-bit output.  What lies below one step is seen in two ways: by averaging over spectra, which
the dither makes right, and by repeating the measurement with gains up to 7776 times higher, in channels where that does not
saturate.  Both are linear: gains are applied after the filter bank, before the rounding.
"""
import numpy as np

import fengine
import fmodel
from fengine import HEAP, RATE_HZ, START, Antenna, Model
from report import Row, db
from signals import LIMIT, Delayed, Impulses, Multitone, Sequence, Tones, repeat

TAPS = 16
LADDER = 6.0 ** np.arange(6)  # gains, of what puts a tone of full scale at PEAK
PEAK = 110.0
DITHER_VARIANCE = 1 / 6  # of each component: dither and rounding
CENTRE = 0.25  # of the band, in cycles per sample


class Plan:
    """How much is measured of a number of channels."""

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
        self.sfdr_channels = [(8 + 3111 * i) * channels // 32768 if channels < 32768 else 8 + 3111 * i
                              for i in range(n_tones)]
        self.sfdr_channels[0] = 8
        self.weights = fmodel.weights(self.step, TAPS)

    def samples(self, n_spectra):
        """Of a signal that starts and ends with the part of the sequence that it is."""
        return (self.lead + n_spectra) * self.step

    def response(self, offset):
        """Of the prototype filter to a tone 'offset' channels from a channel's centre; 1 is the peak."""
        i = np.arange(self.window) - (self.window - 1) / 2
        return np.sum(self.weights * np.cos(2 * np.pi * offset * i / self.step)) / np.sum(self.weights)

    def tone_gain(self):
        """That puts a tone of amplitude LIMIT at PEAK."""
        return PEAK / (LIMIT * np.sum(self.weights) / 2)


# ---- Tones: channel shape, spurs, linearity, group delay -------------------------------------------------------------

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


def ladder(plan, found, timestamp, n, mean):
    """{what 'mean' makes of the spectra} per channel in units of a gain of 1, from the highest gain that does not
    saturate; and that gain."""
    best = top = None
    for step, factor in enumerate(LADDER):
        x = found[step // 2].spectra(step % 2, timestamp, n)
        fits = np.max(np.maximum(np.abs(x.real), np.abs(x.imag)), axis=0) < 127
        value = mean(x) / factor
        best = value if best is None else np.where(fits, value, best)
        top = np.full(plan.channels, factor) if top is None else np.where(fits, factor, top)
    return best, top


def tones(plan, work):
    full = 0.98 * LIMIT
    period = plan.step * FINER
    parts = [(2 * plan.window, Tones([], period), True)]
    for channel in plan.sfdr_channels:
        parts.append((plan.samples(plan.spectra_sfdr), Tones([(full, channel * FINER, 1.0)], period), True))
    for part in range(N_OFFSETS // N_TONES):
        parts.append((plan.samples(plan.spectra_shape), Tones([t for _, _, t in shape_tones(plan, part)], period), True))
    level_channel = plan.channels * 5 // 16 + 1
    for level in range(N_LEVELS):
        parts.append((plan.samples(plan.spectra_linearity), Tones([(full / 2**level, level_channel * FINER, 0.5)], period), True))
    parts.append((2 * plan.window + 2 * HEAP * plan.step, Tones([], period), True))
    sequence = Sequence(parts)
    gain = plan.tone_gain()
    antennas = [Antenna([sequence] * 2, [gain * LADDER[2 * a], gain * LADDER[2 * a + 1]]) for a in range(len(LADDER) // 2)]
    found = fengine.run(work, "tones", plan.channels, antennas)
    starts = iter(START + np.cumsum([0] + [p[0] for p in parts])[1:])
    rows, plots = [], {}
    rows += spurs(plan, found, [next(starts) for _ in plan.sfdr_channels], plots)
    rows += shape(plan, found, [next(starts) for _ in range(N_OFFSETS // N_TONES)], plots)
    rows += linearity(plan, found, [next(starts) for _ in range(N_LEVELS)], level_channel)
    return rows, plots


def spurs(plan, found, starts, plots):
    """A tone at a channel's centre: where it is found, and the strongest of all other channels."""
    worst, far, floors, right = np.inf, np.inf, [], 0
    for channel, start in zip(plan.sfdr_channels, starts):
        power, _ = ladder(plan, found, int(start), plan.spectra_sfdr, lambda x: np.sqrt(np.mean(np.abs(x)**2, axis=0)))
        power = power**2
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
            Row("0126", "SFDR in dB: a tone of 0.98 of full scale over the strongest other channel (noise: over their median)",
                "> 53; goal > 80", f"{worst:.1f} ({-max(floors):.1f})", worst > 80),
            Row("0126", f"the same without the two neighbours, where the filter's design has {-db(plan.response(1)**2):.1f}",
                "goal > 80", f"{far:.1f}", far > 80)]


def shape(plan, found, starts, plots):
    """Tones at 128 offsets from their channels' centres, in their channels and the neighbours."""
    offsets, responses, errors, phases = [], [], [], []
    for part, start in enumerate(starts):
        n = plan.spectra_shape
        for channel, offset, (amplitude, k, phase) in shape_tones(plan, part):
            turns = k / FINER / plan.step * (np.arange(n) * plan.step)
            # Referred to the window's first sample of the first spectrum; the part's own samples begin at 'start'.
            unwind = np.exp(-1j * (2 * np.pi * turns + phase))[:, None]
            value, _ = ladder(plan, found, int(start), n, lambda x, u=unwind: np.mean(x * u, axis=0))
            value = value / (plan.tone_gain() * amplitude * np.sum(plan.weights) / 2)
            for m in range(-3, 4):
                offsets.append(offset - m)
                responses.append(abs(value[channel + m]))
            errors.append(20 * np.log10(abs(value[channel]) / plan.response(offset)))
            phases.append((offset, np.angle(value[channel])))
    order = np.argsort(offsets)
    offsets, level = np.array(offsets)[order], 20 * np.log10(np.maximum(np.array(responses)[order], 1e-9))
    plots["shape"] = offsets, level

    def width(level_db):
        """Between the outermost places where the response goes through a level, on straight lines between points."""
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
            Row("0126", "leakage in dB: a tone anywhere in a channel, in any but its own and the nearer neighbour (noise: median "
                "further than 2 channels away)", "<= -53", f"{far:.1f} ({floor:.1f})", far <= -53),
            Row("0126", "gain from -0.5 to +0.5 channels in dB, largest difference from the filter's design in float64",
                "<= 0.1", f"{error:.4f}", error <= 0.1)]
    return rows + group_delay(plan, phases)


def group_delay(plan, phases):
    """The slope of the phase over a channel, of tones whose phase at the first sample is known."""
    offset, phase = np.array(phases).T
    expected = (plan.window - 1) / 2
    # What is left of the phase once the expected delay is taken out is small, so it does not wrap.
    rest = np.angle(np.exp(1j * (phase - 2 * np.pi * offset * expected / plan.step)))
    (slope, _), covariance = np.polyfit(offset, rest, 1, cov=True)
    delay, sigma = expected + slope * plan.step / 2 / np.pi, np.sqrt(covariance[0, 0]) * plan.step / 2 / np.pi
    return [Row("", "group delay of the filter bank in samples, from the phases of those tones (sigma)",
                "(taps x 2 channels - 1) / 2, within 7 sigma", f"{delay:.2f}, to be {expected} ({sigma:.2f})",
                abs(delay - expected) <= 7 * sigma)]


def linearity(plan, found, starts, channel):
    """A tone from 0.98 of full scale to 1/512 of that, without another gain than the ladder's."""
    levels = []
    for start in starts:
        value, _ = ladder(plan, found, int(start), plan.spectra_linearity, lambda x: np.mean(x, axis=0))
        levels.append(abs(value[channel]))
    expected = PEAK * 0.98 / 2.0 ** np.arange(N_LEVELS)
    relative = np.array(levels) / expected
    worst = np.max(np.abs(20 * np.log10(relative)))
    return [Row("", "linearity: a tone of 2^0 to 2^-9, largest difference from proportional in dB (relative MSE)", "reported",
                f"{worst:.4f} ({np.mean((relative - 1)**2):.1e})")]


# ---- Delays and phases ----------------------------------------------------------------------------------------------

DELAYS = [("0", 0.0), ("+79.53 us", 79.53e-6), ("2.5 ps", 2.5e-12), ("-79.53 us", -79.53e-6),
          ("2.75 samples", 2.75 / RATE_HZ)]
PHASES = [("+pi", np.pi), ("-pi", -np.pi), ("2 pi/3", 2 * np.pi / 3), ("0.01 rad", 0.01)]
RATES = [("+2.56e-9", 2.56e-9), ("-2.56e-9", -2.56e-9), ("2.5e-12", 2.5e-12)]
PHASE_RATES = [("+49.22 rad/s", 49.22), ("-49.22 rad/s", -49.22), ("0.044 rad/s", 0.044)]


def rms_deg(radians):
    return np.degrees(np.sqrt(np.mean(np.square(radians))))


def flat_gain(plan, signal, peak=PEAK):
    """That puts the tones of a multitone at 'peak'."""
    return peak / (signal.amplitude * np.sum(plan.weights) / 2)


def spectrum(plan, samples):
    """complex128 [channel] of a window's samples, at a gain of 1."""
    return fmodel.spectra(samples, fmodel.Output(channels=plan.channels, taps=TAPS))[0]


def delayed_spectrum(plan, signal, delay, phase):
    """What a model of a delay and a phase must make of any window: the spectrum of the delayed signal, in which the delay
    has turned the centre of the band by no more than the phase."""
    samples = signal.at(np.arange(plan.window) - delay) if delay else signal(0, plan.window)
    return spectrum(plan, samples) * np.exp(1j * (phase + 2 * np.pi * CENTRE * delay))


def noise_deg(n_averaged, n_noisy=1):
    """Of the phase of a voltage of PEAK, by dither and rounding alone, in degrees rms."""
    return np.degrees(np.sqrt(n_noisy * DITHER_VARIANCE / n_averaged) / PEAK)


def static_phases(plan, work):
    signal = Multitone(plan.channels)
    reach = -(-140000 // plan.step) + HEAP  # spectra that a delay may reach to either side
    n = plan.spectra_phase
    settings = [(f"delay {name}", d * RATE_HZ, 0.0) for name, d in DELAYS] + [(f"phase {name}", 0.0, p) for name, p in PHASES]
    settings.append(("79.53 us and 1 rad", 79.53e-6 * RATE_HZ, 1.0))
    n_spectra = reach + n * len(settings) + reach + plan.lead + 4 * HEAP
    sequence = repeat(signal, n_spectra * plan.step)
    starts = [START + (reach + n * i) * plan.step for i in range(len(settings))]
    models = [Model(t, delay=d, phase=p) for t, (_, d, p) in zip(starts, settings)]
    gain = flat_gain(plan, signal)
    found, = fengine.run(work, "static", plan.channels, [Antenna([sequence] * 2, [gain] * 2, [models, []])],
                         max_delay_diff=1 << 18 if plan.channels > 256 else 1 << 19)
    frequency = np.arange(1, plan.channels) / plan.step  # channel 0 has no phase
    rows, worst_step, delay_errors, last = [], 0, [], None
    for start, (name, delay, phase) in zip(starts, settings):
        x = found.spectra(0, start, n)[:, 1:]
        want = delayed_spectrum(plan, signal, delay, phase)[1:]
        error = np.angle(np.mean(x, axis=0) / want)
        delay_errors.append(abs(np.polyfit(frequency, error, 1)[0]) / 2 / np.pi / RATE_HZ)
        kind = "0128, 0112" if name.startswith("phase") else "0128, 0185"
        rows.append(Row(kind, f"{name}: phase error over the channels in degrees, rms (largest; noise of the measurement)",
                        "largest <= 1; goal <= 0.05 rms",
                        f"{rms_deg(error):.4f} ({np.degrees(np.max(np.abs(error))):.3f}; {noise_deg(n):.4f})",
                        bool(np.degrees(np.max(np.abs(error))) <= 1 and rms_deg(error) <= 0.05)))
        # Which spectra follow which model: the one before the start still the last one.
        if last is not None:
            for timestamp, model in ((start - plan.step, last), (start, want)):
                left = np.angle(found.spectra(0, timestamp, 1)[0, 1:] / model)
                worst_step = max(worst_step, rms_deg(left))
        last = want
    rows.append(Row("0185", "delay error in ps: slope of the phase over the band, largest of the above", "<= 2.5",
                    f"{max(delay_errors) * 1e12:.4f}", max(delay_errors) <= 2.5e-12))
    noise_of_one = noise_deg(1)
    rows.append(Row("0077", "load time: the first spectrum at or after a model's start has it, the one before has not",
                    "error < 10 ms", f"next spectrum, {plan.step / RATE_HZ * 1e6:.2f} us", worst_step < 3 * noise_of_one))
    rows.append(Row("0187, 0188", "rate at which models are evaluated: once a spectrum", ">= 2500 Hz",
                    f"{RATE_HZ / plan.step:.0f} Hz", RATE_HZ / plan.step >= 2500))
    return rows


def tracking(plan, work):
    """A source that drifts in one polarisation, and in the other one that does not and a model that lets it drift."""
    signal = Multitone(plan.channels)
    n, middle = plan.spectra_rate, (plan.window - 1) / 2
    gain = flat_gain(plan, signal)
    start, at = [], START + HEAP * plan.step
    parts, models = [(HEAP * plan.step, signal, False)], []
    # (name, criterion's text, delay at the start, rate, phase rate, what the delay is referred to)
    cases = [(f"delay rate {name} s/s", 2.4995, rate, 0.0, middle) for name, rate in RATES]
    cases += [(f"phase rate {name}", 0.0, 0.0, rate, 0) for name, rate in PHASE_RATES]
    cases += [("delay rate +2.56e-9 s/s, model at the window's start", 2.4995, 2.56e-9, 0.0, 0)]
    for _, delay, rate, phase_rate, reference in cases:
        model = Model(at, delay, rate, -2 * np.pi * CENTRE * delay,
                      phase_rate / RATE_HZ - 2 * np.pi * CENTRE * rate)
        models.append(model)
        start.append(at)
        sky = Delayed(signal, delay, rate, model.start + reference - at)
        parts.append((plan.samples(n), sky if delay else signal, False))
        at += plan.samples(n)
    parts.append((2 * plan.window, signal, False))
    drifting = Sequence(parts)
    still = repeat(signal, drifting.n_samples)
    found, = fengine.run(work, "rates", plan.channels, [Antenna([still, drifting], [gain] * 2, [models, []])],
                         max_delay_diff=PACKET)
    rows = []
    for (name, delay, rate, phase_rate, reference), t, model in zip(cases, start, models):
        x = [found.spectra(pol, t, n)[:, 1:] for pol in range(2)]
        times = t + np.arange(n) * plan.step - model.start
        product = x[0] * np.conj(x[1]) * np.exp(-1j * phase_rate / RATE_HZ * times)[:, None]
        halves = np.angle(product.reshape(2, n // 2, -1).mean(axis=1))
        error = np.angle(product.mean(axis=0))
        step = np.degrees(np.max(np.abs(np.angle(np.exp(1j * (halves[1] - halves[0]))))))
        noise = noise_deg(n, 2)
        text = f"{rms_deg(error):.4f} ({step:.3f}; {noise:.4f})"
        if rate and reference == 0:
            rows.append(Row("0128, 0185", f"{name} instead of its middle: the same", "reported", text))
        else:
            kind = "0128, 0185" if rate else "0128, 0112"
            rows.append(Row(kind, f"{name}: phase error in degrees, rms (largest step between the halves of the time; noise)",
                            "step <= 2; goal <= 0.05 rms", text, bool(step <= 2 and rms_deg(error) <= 0.05)))
    return rows


PACKET = fengine.PACKET_SAMPLES


# ---- Levels: gains, dither, saturation, timestamps -------------------------------------------------------------------


def levels(plan, work):
    signal = Multitone(plan.channels)
    n = plan.spectra_levels
    rng = np.random.default_rng([7, plan.channels])
    expected = spectrum(plan, signal(0, plan.window))
    gain = flat_gain(plan, signal, PEAK / 2)

    def random_gains():
        g = gain * rng.uniform(0.5, 2, plan.channels) * np.exp(2j * np.pi * rng.random(plan.channels))
        return g.astype(np.complex64).astype(complex)

    # So long that most of it has been sent, and counted, before the end.
    sequence = repeat(signal, max((HEAP + n + plan.lead + HEAP) * plan.step + 2 * plan.window,
                                  4 * fengine.chunk(plan.channels), 64 * fengine.PACKET_SAMPLES))
    timestamp = START + HEAP * plan.step
    places = [timestamp - START + plan.window // 2 + 4 * plan.step + 17, timestamp - START + plan.window // 2 + 6 * plan.step + 1001]
    impulses = [Sequence([(sequence.n_samples, Impulses([p]), False)]) for p in places]
    known = [random_gains(), random_gains()]
    low = [(flat_gain(plan, signal, 1.0) * rng.uniform(0.2, 3, plan.channels)).astype(np.float32).astype(float)
           for _ in range(2)]
    loud = loud_gains(plan, expected, gain, rng)
    impulse_gain = PEAK / (LIMIT * np.max(plan.weights))
    antennas = [Antenna([sequence] * 2, known), Antenna([sequence] * 2, low), Antenna([sequence] * 2, loud),
                Antenna(impulses, [impulse_gain] * 2)]
    clipped = [np.count_nonzero(saturates(expected * g)) for g in loud]
    counted = []
    found = fengine.run(work, "levels", plan.channels, antennas, watch=lambda p: counted.extend(count_clipped(p, clipped)))
    rows = gains(plan, found[0], timestamp, n, expected, known)
    rows += dither(plan, found[1], timestamp, n, expected, low)
    rows += saturation(found[2], timestamp, n, expected, loud, clipped, counted)
    rows += timestamps(plan, found, timestamp, places, impulse_gain)
    return rows


def gains(plan, found, timestamp, n, expected, known):
    errors = []
    for pol in range(2):
        x = found.spectra(pol, timestamp, n)[:, 1:]
        errors.append(np.abs(np.mean(x, axis=0) / (expected * known[pol])[1:] - 1))
    rms, worst = np.sqrt(np.mean(np.square(errors))), np.max(errors)
    return [Row("0119", "gains of 0.5 to 2 and any phase, each channel its own: relative error, rms (largest)",
                "< 0.1", f"{rms:.1e} ({worst:.1e})", bool(worst < 0.1))]


def dither(plan, found, timestamp, n, expected, low):
    """Levels of 0.2 to 3 steps: what comes is right on average, as noisy as it must be, and independent."""
    errors, variance = [], 0
    for pol in range(2):
        x, want = found.spectra(pol, timestamp, n)[:, 1:], (expected * low[pol])[1:]
        for part, value in ((x.real, want.real), (x.imag, want.imag)):
            errors.append(part.astype(float) - value)
            rest = value - np.floor(value)
            variance += np.sum(rest * (1 - rest)) * n
    size = sum(e.size for e in errors)
    bias = np.sum(errors) / np.sqrt(variance)
    ratio = np.sum(np.square(errors)) / variance
    a, b, c, d = errors
    unit = variance / size
    pairs = [(a, b), (c, d), (a, c), (b, d)] + [(e[1:], e[:-1]) for e in errors] + [(e[:, 1:], e[:, :-1]) for e in errors]
    largest = max(abs(np.sum(p * q)) / (unit * np.sqrt(p.size)) for p, q in pairs)
    ok = abs(bias) < 5 and abs(ratio - 1) < 5 * np.sqrt(2 / size) and largest < 5
    return [Row("", "dither, at levels of 0.2 to 3 steps: mean error, variance over the ideal, largest correlation (parts, "
                "polarisations, next spectrum, next channel)", "within 5 sigma of 0, 1, 0",
                f"{bias:+.2f} sigma, {ratio:.5f}, {largest:.2f} sigma", bool(ok))]


def saturates(voltages, limit=127):
    return np.maximum(np.abs(voltages.real), np.abs(voltages.imag)) > limit


def loud_gains(plan, expected, gain, rng):
    """Of which some saturate, none so closely that the dither decides."""
    out = []
    for _ in range(2):
        g = gain * rng.uniform(0.5, 4, plan.channels)
        close = saturates(expected * g, 126.3) & ~saturates(expected * g, 127.7)
        out.append(np.where(close, 0.9 * g, g))
        close = saturates(expected * out[-1], 126.3) & ~saturates(expected * out[-1], 127.7)
        assert not close.any()
    return out


def count_clipped(process, per_spectrum):
    """Heaps and saturated samples by polarisation that fgpu counts, once the counters agree about how many heaps."""
    got = []

    def read(m):
        heaps = m.get("fgpu_output_heaps_total", antenna="m002")
        values = [m.get("fgpu_output_clipped_samples_total", antenna="m002", pol=pol) for pol in range(2)]
        got[:] = [heaps, *values]
        return heaps >= 2 and all(v == heaps * HEAP * c for v, c in zip(values, per_spectrum))

    try:
        process.wait_metric(read, "saturation counts", timeout=10)
    except AssertionError:
        pass  # the row shows what was counted
    return got


def saturation(found, timestamp, n, expected, loud, clipped, counted):
    wrong, values = 0, set()
    for pol in range(2):
        x = found.spectra(pol, timestamp, n)[:, 1:]
        want = (expected * loud[pol])[1:]
        for part, value in ((x.real, want.real), (x.imag, want.imag)):
            clear = np.abs(value) > 127.5
            wrong += np.count_nonzero(part[:, clear] != np.sign(value[clear]) * 127)
            wrong += np.count_nonzero(np.abs(part[:, ~clear] - value[~clear]) >= 1)
            values |= set(np.unique(part).astype(int).tolist())
    heaps = counted[0]
    ok = heaps >= 2 and all(v == heaps * HEAP * c for v, c in zip(counted[1:], clipped)) and wrong == 0
    return [Row("0118", "values that occur in 8 bits", "255 from -127 to 127", f"{len(values)} from {min(values)} to {max(values)}",
                values == set(range(-127, 128))),
            Row("0118", "output: symmetric at -127 and 127, and right below; samples that are not", "0", f"{wrong}",
                wrong == 0),
            Row("", "saturated samples counted, of both polarisations, over those of the model", "equal",
                f"{sum(counted[1:]):.0f} / {heaps * HEAP * sum(clipped):.0f} in {heaps:.0f} heaps", bool(ok))]


def timestamps(plan, found, timestamp, places, gain):
    """Heaps where they must be; and an impulse where its timestamp says, to a fraction of a sample."""
    aligned = all(t % (HEAP * plan.step) == 0 and gap in (None, HEAP * plan.step)
                  for v in found for t, gap in zip(v.batches, [None, *np.diff(list(v.batches))]))
    worst = 0
    for pol, place in enumerate(places):
        at = place + START
        first = at - plan.window // 2 - (at - plan.window // 2) % plan.step  # spectra that have it in the middle
        x = found[3].spectra(pol, first, 1)[0]
        channel = np.arange(1, plan.channels)
        rest = np.angle(x[1:] * np.exp(2j * np.pi * channel * (at - first) / plan.step))
        worst = max(worst, abs(np.polyfit(channel, rest, 1)[0]) * plan.step / 2 / np.pi)
    return [Row("", "heaps' timestamps: multiples of spectra x 2 channels, none missing", "all",
                "all" if aligned else "not all", aligned),
            Row("", "an impulse's place, from the phases of a spectrum, against its timestamp", "< 0.5 sample",
                f"{worst:.4f} samples", bool(worst < 0.5))]
