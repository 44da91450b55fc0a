"""Delays, phases and their rates: a known signal with a tone in every channel, and the effect of delay models on it."""
import fengine
import numpy as np
from fengine import HEAP, RATE_HZ, START, Antenna, Model
from plan import PEAK, spectrum
from report import Row
from signals import Delayed, Multitone, Sequence, repeat

DITHER_VARIANCE = 1 / 6  # of each component: dither and rounding
CENTRE = 0.25  # of the band, in cycles per sample

DELAYS = [("0", 0.0), ("+79.53 us", 79.53e-6), ("2.5 ps", 2.5e-12), ("-79.53 us", -79.53e-6),
          ("2.75 samples", 2.75 / RATE_HZ)]
PHASES = [("+pi", np.pi), ("-pi", -np.pi), ("2 pi/3", 2 * np.pi / 3), ("0.01 rad", 0.01)]
EVALUATIONS_HZ = 2500
BANDS_HZ = {"U": 1088000000, "L": 1712000000, "S": 1750000000}  # sample rates of the receivers' digitisers
RATES = [("+2.56e-9", 2.56e-9), ("-2.56e-9", -2.56e-9), ("2.5e-12", 2.5e-12)]
PHASE_RATES = [("+49.22 rad/s", 49.22), ("-49.22 rad/s", -49.22), ("0.044 rad/s", 0.044)]


def rms_deg(radians):
    return np.degrees(np.sqrt(np.mean(np.square(radians))))


def delayed_spectrum(plan, signal, delay, phase):
    """The expected effect of a delay and phase model on any window: the spectrum of the delayed signal.  The delay has
    not turned the centre of the band."""
    samples = signal.at(np.arange(plan.window) - delay) if delay else signal(0, plan.window)
    return spectrum(plan, samples) * np.exp(1j * (phase + 2 * np.pi * CENTRE * delay))


def noise_deg(n_averaged, n_noisy=1):
    """Phase noise of a voltage of PEAK from dither and rounding alone, in degrees rms."""
    return np.degrees(np.sqrt(n_noisy * DITHER_VARIANCE / n_averaged) / PEAK)


def phase_row(name, error, noise):
    """Figures of the errors over the channels in radians, and of each channel's noise in degrees."""
    largest = np.degrees(np.max(np.abs(error)))
    return Row("0128, 0112" if name.startswith("phase") else "0128, 0185",
               f"{name}: rms phase error over the channels in degrees "
               "(largest phase error; noise of the measurement)",
               "largest <= 1; goal <= 0.05 rms", f"{rms_deg(error):.4f} ({largest:.3f}; {noise:.4f})",
               largest <= 1 and rms_deg(error) <= 0.05)


def evaluation_row(plan, known=False):
    """Models are evaluated for each spectrum.  Narrow bands of many channels have few spectra; this is known.  The
    figure is for RATE_HZ, then for each receiver's band with too few spectra."""
    too_few = [f"{band} ({rate_hz / plan.step:.0f} Hz)" for band, rate_hz in BANDS_HZ.items()
               if rate_hz / plan.step < EVALUATIONS_HZ]
    figure = f"{RATE_HZ / plan.step:.0f} Hz" + (f"; fails in {', '.join(too_few)}" if too_few else "")
    return Row("0187, 0188", "rate at which models are evaluated: once a spectrum, with the digitisers of every band",
               f">= {EVALUATIONS_HZ} Hz", figure, not too_few, known)


def static(plan, work):
    """Delays and phases that stay as they are, one after another."""
    signal = Multitone(plan.step, np.arange(1, plan.channels), 32)
    reach = -(-140000 // plan.step) + HEAP  # spectra that a delay may reach to either side
    n = plan.spectra_phase
    settings = [(f"delay {name}", d * RATE_HZ, 0.0) for name, d in DELAYS]
    settings += [(f"phase {name}", 0.0, p) for name, p in PHASES]
    settings.append(("79.53 us and 1 rad", 79.53e-6 * RATE_HZ, 1.0))
    n_spectra = reach + n * len(settings) + reach + plan.lead + 4 * HEAP
    sequence = repeat(signal, n_spectra * plan.step)
    starts = [START + (reach + n * i) * plan.step for i in range(len(settings))]
    models = [Model(t, delay=d, phase=p) for t, (_, d, p) in zip(starts, settings)]
    gain = plan.gain(signal.amplitude)
    found, = fengine.run(work, "static", plan, [Antenna([sequence] * 2, [gain] * 2, [models, []])],
                         max_delay_diff=1 << 18)
    frequency = np.arange(1, plan.channels) / plan.step  # channel 0 has no phase
    rows, worst_step, delay_errors, last = [], 0, [], None
    for start, (name, delay, phase) in zip(starts, settings):
        x = found.spectra(0, start, n)[:, 1:]
        want = delayed_spectrum(plan, signal, delay, phase)[1:]
        error = np.angle(np.mean(x, axis=0) / want)
        delay_errors.append(abs(np.polyfit(frequency, error, 1)[0]) / 2 / np.pi / RATE_HZ)
        rows.append(phase_row(name, error, noise_deg(n)))
        # Which spectra follow which model: the one before the start still the last one.
        if last is not None:
            for timestamp, model in ((start - plan.step, last), (start, want)):
                left = np.angle(found.spectra(0, timestamp, 1)[0, 1:] / model)
                worst_step = max(worst_step, rms_deg(left))
        last = want
    rows.append(Row("0185", "delay error in ps, from the slope of the phase over the band: largest of the rows above",
                    "<= 2.5", f"{max(delay_errors) * 1e12:.4f}", max(delay_errors) <= 2.5e-12))
    rows.append(Row("0077", "load time: a model applies from the first spectrum at or after the model's load time",
                    "error < 10 ms", f"next spectrum, {plan.step / RATE_HZ * 1e6:.2f} us",
                    worst_step < 3 * noise_deg(1)))
    return [*rows, evaluation_row(plan)]


def rates(plan, work):
    """A source that drifts in one polarisation, and in the other one that does not and a model that lets it drift."""
    signal = Multitone(plan.step, np.arange(1, plan.channels), 32)
    n, middle = plan.spectra_rate, (plan.window - 1) / 2
    gain = plan.gain(signal.amplitude)
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
    found, = fengine.run(work, "rates", plan, [Antenna([still, drifting], [gain] * 2, [models, []])],
                         max_delay_diff=fengine.PACKET_SAMPLES)
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
            rows.append(Row("0128, 0185", f"{name} instead of the window's middle: phase error in degrees, rms "
                            "(largest step between the halves of the time; noise)", "reported", text))
        else:
            kind = "0128, 0185" if rate else "0128, 0112"
            rows.append(Row(kind, f"{name}: phase error in degrees, rms (largest step between the halves of the time; "
                            "noise)", "step <= 2; goal <= 0.05 rms", text, step <= 2 and rms_deg(error) <= 0.05))
    return rows
