"""Delays and phases of beams over the whole band, and levels of beams: xbgpu with known voltages."""
import bengine
import numpy as np
from bengine import FIRST_BATCH, HEAP, Beam, Engine, frequencies
from fengine import RATE_HZ, scenario
from phases import noise_deg, rms_deg
from plan import PEAK
from report import Row
from test_beams_katcp import add_model, on_ns

N_ANTS = 4
LIMIT = 127
RMS = 32.0  # of the noise, a complex one
DELAYS = [("-509 ns and 1 rad", -509e-9, 1.0), ("-100 ns and pi/2", -100e-9, np.pi / 2), ("15.9 ps", 15.9e-12, 0.0),
          ("+509 ns and -pi/2", 509e-9, -np.pi / 2), ("2.5 ps", 2.5e-12, 0.0), ("phase +pi", 0.0, np.pi),
          ("phase -pi", 0.0, -np.pi), ("phase 2 pi/3", 0.0, 2 * np.pi / 3), ("phase 0.01 rad", 0.0, 0.01)]
GAINS = [0.5, 1.0, 2.0]
DELAY_RATE, PHASE_RATE = 4e-11, 0.2  # s/s and rad/s: a beam 0.55 degrees off, 8 km away


def measure(plan, work):
    """Polarisation 0 has one signal at all antennas, each with a separate delay and phase.  All beams take these back.
    Polarisation 1 has the same noise at all antennas."""
    rng, n, f = np.random.default_rng([8, plan.channels]), plan.n_spectra, frequencies(plan.channels)[:, None]
    delays, phases = rng.uniform(-509e-9, 509e-9, N_ANTS), rng.uniform(-np.pi, np.pi, N_ANTS)
    shape = (plan.channels, n)
    signal = PEAK * np.exp(2j * np.pi * rng.random(shape))
    phasors = [np.exp(1j * (phase - 2 * np.pi * delay * f)) for delay, phase in zip(delays, phases)]
    skies = [signal * phasor.conj() for phasor in phasors]
    voltages = np.empty((2, N_ANTS, *shape), np.complex64)
    voltages[0] = np.rint(np.real(skies)) + 1j * np.rint(np.imag(skies))
    noise = np.clip(np.rint(rng.normal(0, RMS / np.sqrt(2), (*shape, 2))), -LIMIT, LIMIT)
    voltages[1] = noise.astype(np.float32).view(np.complex64)[..., 0]
    mean = np.full(N_ANTS, 1 / N_ANTS)
    beams = [Beam(0, mean, delays + d, phases + p) for _, d, p in [("", 0, 0), *DELAYS]]
    beams += [Beam(1, mean, gain=gain) for gain in GAINS] + [Beam(1, mean, phases=np.ones(N_ANTS), gain=2.9)]
    found = bengine.run(work, "band", beams, bengine.in_batches(voltages))
    expected = sum(v * phasor for v, phasor in zip(voltages[0], phasors)) / N_ANTS
    rows = turned(found[:len(DELAYS) + 1], expected, f)
    return rows + levels(found[len(DELAYS) + 1:], voltages[1, 0])


def turned(found, expected, f):
    """Beams whose delays differ by a known delay from the first beam's: against that beam, and in double precision."""
    rows, slopes, noise = [], [], noise_deg(expected.shape[1])
    for x, (name, delay, phase) in zip(found[1:], DELAYS):
        turn = np.exp(1j * (phase - 2 * np.pi * delay * f)).astype(np.complex64)
        reference = found[0] * turn
        lsb = np.abs(x - reference).max()
        largest = np.degrees(np.abs(np.angle((x * reference.conj()).mean(1)))).max()
        error = np.angle((x * (expected * turn).conj()).mean(1))
        slopes.append(abs(np.polyfit(f[:, 0], error, 1)[0]) / 2 / np.pi)
        rows.append(Row("0220", f"{name}: rms phase error over the channels in degrees (noise of the measurement). "
                        "Compared with the beam without this delay and phase, rotated by both: largest phase error "
                        "in degrees, and largest difference in LSB",
                        "goal <= 0.05 rms; < 1 and <= 2.9",
                        f"{rms_deg(error):.4f} ({noise:.4f}); {largest:.3f} and {lsb:.2f}",
                        rms_deg(error) <= 0.05 and largest < 1 and lsb <= 2.9))
    return rows + [Row("0121, 0122", "delay error in ps, from the slope of the phase over the band minus -2 pi f "
                       "delay: largest of the rows above", "goal <= 2.5", f"{max(slopes) * 1e12:.4f}",
                       max(slopes) <= 2.5e-12)]


def levels(found, noise):
    """Gains of 1/2, 1, 2, and a beam that uses all values."""
    power = np.mean(np.abs(noise)**2)
    off = [np.mean(np.abs(x)**2) / power / gain**2 - 1 for x, gain in zip(found, GAINS)]
    differences = []
    for x, gain in zip(found[1:], GAINS[1:]):
        ratio = gain / GAINS[0]
        scaled = [np.clip(part * ratio, -LIMIT, LIMIT) for part in (found[0].real, found[0].imag)]
        differences.append(max(np.abs(part - want).max() for part, want in zip((x.real, x.imag), scaled)) / ratio)
    values = np.unique([found[-1].real, found[-1].imag])
    return [Row("0117", "gains of 1/2, 1, 2: error of the power, which should be the input's power times the squared "
                "gain, in %", "within 5",
                ", ".join(f"{100 * o:+.2f}" for o in off), np.abs(off).max() <= 0.05),
            Row("0117", "gains of 1/2, 1, 2: largest difference from the scaled beam with gain 1/2, divided by the "
                "ratio of the gains, in LSB", "<= 1", f"{max(differences):.2f}", max(differences) <= 1),
            Row("0118", "values that occur in 8 bits", "255 from -127 to 127",
                f"{len(values)} from {values.min():.0f} to {values.max():.0f}",
                np.array_equal(values, np.arange(-LIMIT, LIMIT + 1)))]


def rates(plan, work):
    """A model with rates and a load time that is no batch's start, in an engine with 64 of 4096 channels."""
    channels, n_batches = 64, plan.n_batches
    slice_of_band = {"channels": 4096, "samples_between_spectra": 8192, "channel_offset": 3968}
    settings = bengine.config([Beam(0, np.ones(1))], 1, channels, HEAP, slice_of_band)
    step, rng = scenario.batch_samples(settings), np.random.default_rng(9)
    start = on_ns(settings, (FIRST_BATCH + n_batches // 8) * step - step // 3)
    angles = rng.uniform(0, 7, (n_batches, 1, channels, HEAP, 2, 1)) + [0, np.pi / 2]
    voltages = np.rint(PEAK * np.cos(angles)).astype(np.int8)
    model = (start, *(np.array([x]) for x in (1e-9, DELAY_RATE, 1.0, PHASE_RATE)))
    with Engine(work, "rates", settings) as engine:
        with engine.client() as client:
            add_model(client, settings, "beam0", model)
        engine.write(scenario.feng_heaps(settings, FIRST_BATCH, voltages))
        x = bengine.samples(*engine.beams()).reshape(channels, n_batches, HEAP)
    given = voltages[:, 0, :, :, 0].astype(np.float32).view(np.complex64)[..., 0].transpose(1, 0, 2)
    f = frequencies(4096)[3968:3968 + channels, None]
    since = ((FIRST_BATCH + np.arange(n_batches) + 0.5) * step - start) / RATE_HZ
    model_phase = 1 + PHASE_RATE * since - 2 * np.pi * f * (1e-9 + DELAY_RATE * since)
    wanted = np.where(np.arange(n_batches) < n_batches // 8, 0, model_phase)
    error = np.angle(((x * given.conj()).mean(-1) * np.exp(-1j * wanted)).mean(0))
    late = np.abs(error).max() > 0.1
    return [Row("0220", f"delay rate {DELAY_RATE} s/s and {PHASE_RATE} rad/s: error against the model at the centre of "
                "each batch, in degrees rms (largest)", "goal <= 0.05 rms",
                f"{rms_deg(error):.4f} ({np.degrees(np.abs(error).max()):.3f})", rms_deg(error) <= 0.05),
            Row("0077", "load time: a model applies from the first batch that begins at or after the model's load time",
                "error < 10 ms", "no" if late else f"next batch, {step / RATE_HZ * 1e6:.0f} us", not late)]
