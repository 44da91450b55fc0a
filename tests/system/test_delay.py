"""Delays of fgpu against the float64 model, and against the effect of a delay on a tone in closed form."""

import numpy as np
import pytest

import fmodel
import harness
import scenario
from fmodel import Delay
from harness import SEED, WIRE, merge

RATE = 10**9  # samples per second, so that nine decimals of a start are whole samples
SYNC = 1700000000


def write_delays(path, models):
    """models[pol] as fgpu reads them."""
    with open(path, "w") as out:
        out.write("# start pol delay rate phase phase_rate acceleration\n")
        for pol, of_pol in enumerate(models):
            for m in of_pol:
                seconds = f"{SYNC + m.start // RATE}.{m.start % RATE:09}"
                out.write(f"{seconds} {pol} {m.delay / RATE!r} {m.rate!r} {m.phase!r} {m.phase_rate * RATE!r} "
                          f"{m.acceleration * RATE!r}\n")
    return str(path)


def delay_config(**overrides):
    config = scenario.fgpu_config(
        outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 0.4, "dither": "none"},
                 {"channels": 128, "spectra_per_heap": 48, "taps": 7, "gain": 0.4, "batches_per_buffer": 3,
                  "dither": "none"}],
        recv={"packet_samples": 512, "chunk_samples": 8192, "max_delay_diff": 1024}, send={"packet_payload": 1536},
        time={"sync_time": SYNC, "adc_sample_rate": RATE})
    return merge(config, overrides)


def run(daemon, work, config, models, samples, start, present=None, name="run"):
    """Output streams of antennas with models[ant][pol]."""
    for antenna, of_antenna in zip(config["antennas"], models):
        antenna["delays"] = write_delays(work / f"{name}.{antenna['name']}.delays", of_antenna)
    sent = scenario.digitiser_heaps(config, samples, start, present)
    return scenario.fgpu_streams(config, scenario.run_pcap(daemon, "fgpu", config, work, sent, name))


def check(config, streams, models, samples, start, present=None, chunks=None, what=""):
    """Compares with the model.  Returns the number of batches."""
    recv = config["recv"]
    n_samples = samples.shape[2]
    if chunks is None:
        chunks = range(start // recv["chunk_samples"], -(-(start + n_samples) // recv["chunk_samples"]))
    inputs = fmodel.held(config, start, chunks, n_samples)
    n = 0
    for (o, a), got in streams.items():
        output = scenario.model_of(config["outputs"][o], config)
        placed = fmodel.delayed_batches(output, models[a], inputs)
        if present is not None:
            there = np.repeat(present[a], recv["packet_samples"], axis=1)
            lost = np.concatenate([np.zeros((2, 1), int), np.cumsum(~there, axis=1)], axis=1)
            placed = {b: p for b, p in placed.items()
                      if all(lost[pol, f - start + output.window] == lost[pol, f - start] for pol in range(2)
                             for f, _, _ in p[pol])}
        name = f"{what} antenna {a}, output {o}"
        assert [t // output.batch for t in got] == [b for b in placed], name
        for (timestamp, values), p in zip(got.items(), placed.values()):
            model = fmodel.delayed_voltages(start, samples[a], output, p)
            scenario.compare_voltages(values, model, output.limit, f"{name}, batch {timestamp // output.batch}")
            n += 1
    return n


def random_models(rng, start, n_samples, n_models, spread, rate):
    """Models of one polarisation, one of which may start after the end."""
    starts = np.sort(rng.choice(n_samples, n_models, replace=False)) + start
    return [Delay(int(s), float(rng.uniform(-spread, spread)), float(rng.uniform(-rate, rate)),
                  float(rng.uniform(-3.1, 3.1)), float(rng.uniform(-1e-3, 1e-3)),
                  float(rng.choice([0, rng.uniform(-1e-9, 1e-9)]))) for s in starts]


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16])
def test_random_models(bits, daemon, work):
    """Several models per polarisation, which change anywhere, of noise and tones; early, late, and far away."""
    rng = np.random.default_rng([SEED, bits])
    config = delay_config(recv={"sample_bits": bits})
    config["antennas"] = scenario.fgpu_config(outputs=[], feng_ids=(0, 1))["antennas"]
    for output in config["outputs"]:
        output["gain"] = 30.0 / max((2**(bits - 1) - 1) / 4, 0.9)
    start = int(rng.choice([0, 512 * 77, 10**14, WIRE // 2 - 512 * 300])) // 512 * 512
    samples = scenario.noise(rng, 2, 60000 // 512 * 512, bits)
    models = [[random_models(rng, start, 60000, int(rng.integers(0, 5)), 400, 1e-3) for _ in range(2)]
              for _ in range(2)]
    streams = run(daemon, work, config, models, samples, start)
    assert check(config, streams, models, samples, start, what=f"CBF_SEED={SEED} {bits} bits") > 40


def test_cuda_kernels(daemon, work, rng, fake_cuda):
    """The same through the CUDA variants of the kernels, which need no GPU for that (tests/fakes/cuda)."""
    config = delay_config(device={"kind": "cuda"}, antennas=scenario.fgpu_config(outputs=[])["antennas"])
    samples = scenario.noise(rng, 1, 60000 // 512 * 512, 10)
    models = [[random_models(rng, 0, 50000, 4, 400, 1e-3) for _ in range(2)]]
    streams = run(daemon, work, config, models, samples, 0)
    assert check(config, streams, models, samples, 0) > 20


@pytest.mark.parametrize("loss", [0.003, 0.03])
def test_lost_packets(loss, daemon, work, rng):
    """Presence follows the shifted windows, on each polarisation."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"])
    n_packets = 300
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    present = rng.random((1, 2, n_packets)) >= loss
    models = [[[Delay(0, 733.3, 1e-4)], [Delay(0, -214.8, -2e-4), Delay(70000, -100.2)]]]
    streams = run(daemon, work, config, models, samples, 512 * 16, present)
    assert check(config, streams, models, samples, 512 * 16, present) > 10


def test_gap(daemon, work, rng):
    """After lost chunks an output starts again with a whole batch, wherever its delays say that input is there."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"])
    n_packets = 16 * 12
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    present = np.ones((1, 2, n_packets), bool)
    present[:, 1, 16 * 5:16 * 6] = False
    models = [[[Delay(0, 3000.25, 1e-3)], [Delay(0, 2500.5, -1e-3)]]]
    streams = run(daemon, work, config, models, samples, 0, present)
    assert check(config, streams, models, samples, 0, present, chunks=[c for c in range(12) if c != 5]) > 30


@pytest.mark.parametrize("steps", [(20000, 20000), (-20000, -20000), (700, 0), (3000, 0), (0, -3000), (20000, -20000),
                                   (0, 5000)])
def test_jumps(steps, daemon, work, rng):
    """Jumps up reuse input, or wait for available input if it is gone.  Jumps down pass input over.  If the
    polarisations differ by more than the history holds, there is no output until they agree again."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"])
    samples = scenario.noise(rng, 1, 512 * 16 * 14, 10)
    models = [[[Delay(0, 10.5), Delay(40001, 10.5 + step), Delay(90001, 20.25)] for step in steps]]
    streams = run(daemon, work, config, models, samples, 0)
    assert check(config, streams, models, samples, 0) > 20


def test_stream_begins_with_a_delay(daemon, work, rng):
    """The first batch is the first that delays allow: an early one if they are negative."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"])
    samples = scenario.noise(rng, 1, 512 * 16 * 6, 10)
    start = 512 * 10000
    for i, (d0, d1) in enumerate([(-30000.5, -30500), (30000, 29900.25), (-500, 500), (-10.0**6, -10.0**6)]):
        models = [[[Delay(0, d0)], [Delay(0, d1)]]]
        streams = run(daemon, work, config, models, samples, start, name=f"run{i}")
        assert check(config, streams, models, samples, start) > 20


START = 4096 * 10**6


def tone(rng, n_samples, channels, channel, amplitude, start):
    """A tone in the middle of a channel, by its exact phase."""
    turns = (np.arange(n_samples) + start % (2 * channels)) * channel % (2 * channels) / (2 * channels)
    return amplitude * np.cos(2 * np.pi * turns)


@pytest.mark.parametrize("delays", [
    [Delay(0), Delay(0)],
    [Delay(0, 8192), Delay(0, 234.5)],
    [Delay(0, -42), Delay(0, 58)],
    [Delay(0, 42.4), Delay(0, 24.2)],
    [Delay(0, 0.0043, 0, 2.0), Delay(0, -136153.36, 0, -3.1)],
    [Delay(0, 5, 1e-5, 0, 1e-4), Delay(0, -5, -1.2e-5, 1, -2e-4)],
    [Delay(START, 0, 2.56e-4, 0.01, 0.03), Delay(START - 10**5, 100, 0, 0, 0, 1e-9)],
])
def test_tones(delays, daemon, work, rng):
    """A delay d turns frequency f by -2 pi (f - fs / 4) d, and the phase of the model is added: to 0.002 radians and
    0.3 steps, a tenth of the acceptance tests' tolerance."""
    channels, heap = 512, 16
    config = scenario.fgpu_config(
        outputs=[{"channels": channels, "spectra_per_heap": heap, "taps": 16, "dither": "uniform", "dither_seed": 5}],
        recv={"packet_samples": 4096, "chunk_samples": 65536, "max_delay_diff": 150000, "sample_bits": 12},
        time={"sync_time": SYNC, "adc_sample_rate": RATE})
    config["recv"]["chunk_samples"] = 65536 * 4
    start, n_samples = START, 4096 * 200
    output = scenario.model_of(config["outputs"][0])
    w_sum = fmodel.weights(output.spacing, 16).sum()
    level = 110.0
    for channel in (1, 77, 256, 400, 510):
        amplitude = 1900.0
        config["outputs"][0]["gain"] = float(level / (amplitude * w_sum / 2))
        x = tone(rng, n_samples, channels, channel, amplitude, start)
        # Rounded, with a dither of its own, so that the rounding is no tone.
        x = np.rint(x + rng.uniform(-0.5, 0.5, (1, 2, n_samples))).astype(np.int16)
        (got,) = run(daemon, work, config, [[[delays[0]], [delays[1]]]], x, start, name=f"c{channel}").values()
        assert len(got) > 20
        found = np.stack([v[channel, :, :, 0] + 1j * v[channel, :, :, 1] for v in got.values()])
        times = np.array([[t + s * output.spacing for s in range(heap)] for t in got])
        for pol in range(2):
            m = delays[pol]
            r = (times - m.start).astype(float)
            d = m.delay + m.rate * r + m.acceleration * r * r / 2
            model = 2 * np.pi * (times % (2 * channels)) * channel / (2 * channels)
            model = model - 2 * np.pi * (channel / (2 * channels) - 0.25) * d + m.phase + m.phase_rate * r
            off = found[..., pol] * np.exp(-1j * model)
            what = f"channel {channel}, pol {pol}"
            zero = off.mean()
            assert abs(np.abs(zero) - level) < 0.3, f"{what}: {np.abs(zero)}"
            assert abs(np.angle(zero)) < 0.002, f"{what}: {np.angle(zero)} rad"
            worst = np.abs(np.angle(off.mean(axis=1))).max()
            assert worst < 0.02, f"{what}: a heap is off by {worst} rad"


def test_impossible_delays(daemon, work, rng):
    """A delay that grows faster than time stops all output but not the program: it drains as usual."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"])
    samples = scenario.noise(rng, 1, 512 * 16 * 6, 10)
    models = [[[Delay(0, 0, 0.99, 0, 0, 1e-3)], []]]
    for i, start in enumerate((0, 512 * 16 * 100)):
        streams = run(daemon, work, config, models, samples, start, name=f"run{i}")
        assert sum(len(got) for got in streams.values()) < 20


@pytest.mark.parametrize("row, why", [("0 0 0", "a line must have"),
                                      ("1.5 0 0 0",
                                       "the magnitude of a delay must be at most 1 s (recv.max_delay), not 1.5")])
def test_bad_file(row, why, daemon, work):
    """A mistake is named by key, file and line, and no restart cures it."""
    config = delay_config(antennas=scenario.fgpu_config(outputs=[])["antennas"],
                          recv={"pcap_file": str(work / "none.pcap")}, send={"pcap_file": str(work / "out.pcap")})
    harness.write_pcap(work / "none.pcap", [])
    bad = work / "bad.delays"
    bad.write_text(f"{SYNC} 0 0 0 0 0\n{SYNC} 1 {row}\n")
    config["antennas"][0]["delays"] = str(bad)
    process = daemon("fgpu", config).wait_end(code=78)
    text = process.log.read_text()
    assert f"antennas[0].delays: {bad}:2: {why}" in text, text
    assert ".yaml:" in text
