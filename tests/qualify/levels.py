"""Levels and timestamps: gains, dither, saturation, timestamps."""
import fengine
import numpy as np
from fengine import HEAP, START, Antenna
from plan import PEAK, spectrum
from report import Row
from signals import LIMIT, Impulses, Multitone, Sequence, repeat


def measure(plan, work):
    signal = Multitone(plan.step, np.arange(1, plan.channels), 32)
    n = plan.spectra_levels
    rng = np.random.default_rng([7, plan.channels])
    expected = spectrum(plan, signal(0, plan.window))
    gain = plan.gain(signal.amplitude) / 2

    def random_gains():
        g = gain * rng.uniform(0.5, 2, plan.channels) * np.exp(2j * np.pi * rng.random(plan.channels))
        return g.astype(np.complex64).astype(complex)

    # So long that most of it has been sent, and counted, before the end.
    sequence = repeat(signal, max((HEAP + n + plan.lead + HEAP) * plan.step + 2 * plan.window,
                                  4 * fengine.chunk(plan), 64 * fengine.PACKET_SAMPLES))
    timestamp = START + HEAP * plan.step
    places = [timestamp - START + plan.window // 2 + spectra * plan.step + odd for spectra, odd in ((4, 17), (6, 1001))]
    impulses = [Sequence([(sequence.n_samples, Impulses([p]), False)]) for p in places]
    known = [random_gains(), random_gains()]
    low = [(plan.gain(signal.amplitude) / PEAK * rng.uniform(0.2, 3, plan.channels)).astype(np.float32).astype(float)
           for _ in range(2)]
    loud = loud_gains(plan, expected, gain, rng)
    impulse_gain = PEAK / (LIMIT * np.max(plan.weights))
    antennas = [Antenna([sequence] * 2, known), Antenna([sequence] * 2, low), Antenna([sequence] * 2, loud),
                Antenna(impulses, [impulse_gain] * 2)]
    clipped = [np.count_nonzero(saturates(expected * g)) for g in loud]
    counted = []
    found = fengine.run(work, "levels", plan, antennas,
                        watch=lambda process: counted.extend(count_clipped(process, clipped)))
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
                "< 0.1", f"{rms:.1e} ({worst:.1e})", worst < 0.1)]


def dither(plan, found, timestamp, n, expected, low):
    """Levels of 0.2 to 3 steps: the output is right on average, has the expected noise, and is independent."""
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
    pairs = [(a, b), (c, d), (a, c), (b, d)]
    pairs += [(e[1:], e[:-1]) for e in errors] + [(e[:, 1:], e[:, :-1]) for e in errors]
    largest = max(abs(np.sum(p * q)) / (unit * np.sqrt(p.size)) for p, q in pairs)
    ok = abs(bias) < 5 and abs(ratio - 1) < 5 * np.sqrt(2 / size) and largest < 5
    return [Row("", "dither, at levels of 0.2 to 3 steps: mean error, variance over the ideal variance, largest "
                "correlation (parts, polarisations, next spectrum, next channel)", "within 5 sigma of 0, 1, 0",
                f"{bias:+.2f} sigma, {ratio:.5f}, {largest:.2f} sigma", ok)]


def saturates(voltages, limit=127):
    return np.maximum(np.abs(voltages.real), np.abs(voltages.imag)) > limit


def loud_gains(plan, expected, gain, rng):
    """Some levels saturate, but none so closely that the dither decides."""
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
    return [Row("0118", "values that occur in 8 bits", "255 from -127 to 127",
                f"{len(values)} from {min(values)} to {max(values)}", values == set(range(-127, 128))),
            Row("0118", "output samples that should be clipped to -127 or 127 but are not, or that are wrong below "
                "this level", "0", f"{wrong}", wrong == 0),
            Row("", "saturated samples of both polarisations: number that fgpu counted / number in the model", "equal",
                f"{sum(counted[1:]):.0f} / {heaps * HEAP * sum(clipped):.0f} in {heaps:.0f} heaps", ok)]


def timestamps(plan, found, timestamp, places, gain):
    """Heaps have the right timestamps.  An impulse is at its timestamp, to a fraction of a sample."""
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
            Row("", "an impulse's position, from the phases of a spectrum: difference from its timestamp",
                "< 0.5 sample", f"{worst:.4f} samples", worst < 0.5)]
