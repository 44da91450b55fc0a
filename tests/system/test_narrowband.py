"""Narrowband outputs of fgpu against the float64 model, and against their effect on a tone in closed form."""
from fractions import Fraction

import numpy as np
import pytest

import fmodel
import harness
import scenario
from harness import SEED
from fmodel import Delay
from test_delay import RATE, SYNC, random_models, run
from test_delay import check as check_delayed
from test_fgpu import check, check_input_power, input_power

NARROW = {"kind": "narrowband", "channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 1.0, "dither": "none",
          "centre_frequency": 214000000.25, "decimation": 4}


def narrow_config(outputs, multiple=1, **sections):
    """Outputs that say of no kind are narrow."""
    config = scenario.fgpu_config(outputs=[({} if "kind" in o else NARROW) | {"name": f"o{i}", "dither": "none"} | o
                                           for i, o in enumerate(outputs)], **sections)
    scenario.chunk_for(config, multiple)
    return config


def test_one_output(daemon, work, rng):
    config = narrow_config([{}])
    samples = scenario.noise(rng, 1, 40 * 1024, 10)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    assert check(config, found, samples, 0) > 2


def random_output(rng, bits):
    """An output section; gains for some 25 steps in each part, of noise a quarter of the range."""
    keep = bool(rng.random() < 0.5)
    decimation = int(rng.choice([1, 3, 4, 5, 6, 12] if keep else [2, 3, 4, 5, 7, 8, 10, 16]))
    channels = 2**int(rng.integers(6, 9))
    step = decimation * (2 if keep else 1)
    band = 1712000000 / 2 / decimation
    rms = 25 if rng.random() < 0.7 else 1.5
    output = {
        "channels": channels, "decimation": decimation, "taps": int(rng.choice([1, 2, 4, 7])),
        "spectra_per_heap": 16 * int(rng.integers(1, 4)), "batches_per_buffer": int(rng.integers(1, 4)),
        "window_function": str(rng.choice(["hann", "rect"])), "w_cutoff": float(rng.choice([1.0, 0.9, 0.0])),
        "sample_bits": 8 if rms > 2 else 4, "substreams": 2**int(rng.integers(0, 4)),
        "centre_frequency": str(round(float(rng.uniform(0, 856e6)), int(rng.integers(0, 10)))),
        "gain": float(rms * np.sqrt(2) / max((2**(bits - 1) - 1) / 4, 0.9)),
    }
    if output["taps"] == 1:
        output["window_function"] = "rect"
    if rng.random() < 0.5:
        output["ddc_taps"] = int(rng.integers(max(4, step), 20 * step))
    if keep:
        output["pass_bandwidth"] = float(rng.uniform(0.3, 0.9) * band)
    return output


@pytest.mark.parametrize("index", range(11))
def test_random(index, daemon, work):
    """Several narrowband outputs beside a wide one: all widths of samples, odd decimations, any place and time."""
    rng = np.random.default_rng([SEED, index])
    bits = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16][index % 11]
    outputs = [random_output(rng, bits) for _ in range(3)]
    outputs.insert(int(rng.integers(0, 4)), {"kind": "wideband", "channels": 64, "taps": 8, "gain": 0.02})
    for o in outputs:
        if o.get("kind") == "wideband":
            o["gain"] = 25 / max((2**(bits - 1) - 1) / 4, 0.9)
    config = narrow_config(outputs, int(rng.integers(1, 3)), feng_ids=(0, 2),
                           recv={"sample_bits": bits, "packet_samples": int(rng.choice([512, 1024, 4096])),
                                 "max_delay_diff": int(rng.choice([0, 8, 1000]))})
    models = [scenario.model_of(o, config) for o in config["outputs"]]
    packet = config["recv"]["packet_samples"]
    n_samples = max(max(2 * m.batch + m.window for m in models), int(2.3 * config["recv"]["chunk_samples"]))
    samples = scenario.noise(rng, 2, -(-n_samples // packet) * packet, bits)
    start = int(rng.choice([0, rng.integers(0, 2**20), rng.integers(2**40, 2**47)])) // packet * packet
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert check(config, found, samples, start, what=f"CBF_SEED={SEED} case {index}, start {start}") > 0


def test_frequencies_that_are_no_doubles(daemon, work, rng):
    """The mixer's frequency is the ratio of the doubles nearest to both texts.  At the end of the 48 bits of a timestamp
    the ratio of the decimals themselves is 4 to 8 degrees away."""
    config = narrow_config([{"centre_frequency": "536870913.33", "gain": 0.1},
                            {"centre_frequency": "268435457.1", "decimation": 3, "pass_bandwidth": 1e8, "gain": 0.1}],
                           time={"sync_time": SYNC, "adc_sample_rate": "1100000000.1"})
    packet, model = config["recv"]["packet_samples"], scenario.model_of(config["outputs"][0], config)
    n_samples = -(-(3 * model.batch + model.window) // packet) * packet
    start = (2**48 - 2 * n_samples) // packet * packet
    samples = scenario.noise(rng, 1, n_samples, 10)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert check(config, found, samples, start) > 2


# ---- Delays, losses and gaps -----------------------------------------------------------------------------------------


def delay_config(**sections):
    """Both ways of ending the band, an odd decimation, and a wide output beside them."""
    outputs = [{"centre_frequency": 123456789.125, "taps": 3}, {"kind": "wideband", "taps": 4},
               {"centre_frequency": 333333333.333333333, "decimation": 5, "taps": 2, "spectra_per_heap": 32},
               {"centre_frequency": 250000000, "decimation": 3, "pass_bandwidth": 1e8, "batches_per_buffer": 2}]
    return narrow_config([{"gain": 0.2} | o for o in outputs],
                         **{"recv": {"packet_samples": 512, "max_delay_diff": 1024}, "send": {"packet_payload": 1024},
                            "time": {"sync_time": SYNC, "adc_sample_rate": RATE}} | sections)


@pytest.mark.parametrize("bits", [3, 8, 10, 12])
def test_random_delays(bits, daemon, work):
    """Several models per polarisation, which change anywhere; early, late, and far away."""
    rng = np.random.default_rng([SEED, bits])
    config = delay_config()
    config["recv"]["sample_bits"] = bits
    for output in config["outputs"]:
        output["gain"] = 30.0 / max((2**(bits - 1) - 1) / 4, 0.9)
    start = int(rng.choice([0, 512 * 77, 10**14])) // 512 * 512
    n_samples = 40 * config["recv"]["chunk_samples"]
    samples = scenario.noise(rng, 1, n_samples, bits)
    models = [[random_models(rng, start, n_samples, int(rng.integers(1, 5)), 400, 1e-3) for _ in range(2)]]
    streams = run(daemon, work, config, models, samples, start)
    assert check_delayed(config, streams, models, samples, start, what=f"CBF_SEED={SEED} {bits} bits") > 10


@pytest.mark.parametrize("fraction", range(-2, 12))
def test_delays_between_two_samples_of_the_band(fraction, daemon, work, rng):
    """Whole, half and quarter samples of input, for decimations for which half of one is half way between two."""
    config = delay_config()
    samples = scenario.noise(rng, 1, 12 * config["recv"]["chunk_samples"], 10)
    models = [[[Delay(0, 20 + fraction / 2)], [Delay(0, -11 - fraction / 4)]]]
    streams = run(daemon, work, config, models, samples, 0)
    assert check_delayed(config, streams, models, samples, 0) > 10


@pytest.mark.parametrize("steps", [(20000, 20000), (-20000, -20000), (700, 0), (3000, 0), (20000, -20000), (0, 5000)])
def test_jumps(steps, daemon, work, rng):
    config = delay_config()
    samples = scenario.noise(rng, 1, 40 * config["recv"]["chunk_samples"], 10)
    at = 12 * config["recv"]["chunk_samples"] + 1001
    models = [[[Delay(0, 10.5), Delay(at, 10.5 + step), Delay(2 * at, 20.25)] for step in steps]]
    streams = run(daemon, work, config, models, samples, 0)
    assert check_delayed(config, streams, models, samples, 0) > 20


@pytest.mark.parametrize("loss", [0.001, 0.01])
def test_lost_packets(loss, daemon, work, rng):
    config = delay_config()
    n_packets = 60 * config["recv"]["chunk_samples"] // 512
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    present = rng.random((1, 2, n_packets)) >= loss
    models = [[[Delay(0, 733.3, 1e-4)], [Delay(0, -214.8, -2e-4), Delay(70000, -100.2)]]]
    start = config["recv"]["chunk_samples"] * 3
    streams = run(daemon, work, config, models, samples, start, present)
    assert check_delayed(config, streams, models, samples, start, present) > 10


def test_gap(daemon, work, rng):
    """After lost chunks each output starts again by itself with a whole batch."""
    config = delay_config()
    per_chunk = config["recv"]["chunk_samples"] // 512
    n_packets = per_chunk * 40
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    present = np.ones((1, 2, n_packets), bool)
    present[:, 1, per_chunk * 20:per_chunk * 21] = False
    models = [[[Delay(0, 300.25, 1.0371e-3)], [Delay(0, 250.37, -1.0371e-3)]]]
    streams = run(daemon, work, config, models, samples, 0, present)
    chunks = [c for c in range(40) if c != 20]
    assert check_delayed(config, streams, models, samples, 0, present, chunks=chunks) > 20


@pytest.mark.parametrize("many", [False, True], ids=["few", "many channels"])
def test_emulated_kernels(many, daemon, work, rng, fake_cuda):
    """The same through the CUDA variants of the kernels, which need no GPU for that (tests/fakes/cuda); of many channels in
    two kernels."""
    config = delay_config(device={"kind": "cuda"})
    if many:
        config = narrow_config([{"channels": 1024, "taps": 2, "decimation": 3, "gain": 0.2}], device={"kind": "cuda"},
                               recv={"packet_samples": 512, "max_delay_diff": 1024},
                               time={"sync_time": SYNC, "adc_sample_rate": RATE})
    n_samples = (24 if many else 16) * config["recv"]["chunk_samples"]
    samples = scenario.noise(rng, 1, n_samples, 10)
    models = [[random_models(rng, 0, n_samples, 3, 400, 1e-3) for _ in range(2)]]
    streams = run(daemon, work, config, models, samples, 0)
    assert check_delayed(config, streams, models, samples, 0) >= (2 if many else 5)


# ---- Tones, in closed form -------------------------------------------------------------------------------------------


def tones(rng, n_samples, start, rate, of_pols):
    """of_pols[pol]: (amplitude, frequency as a fraction of a Hz) of its tones; phase 0 at timestamp 0. 12 bits, rounded
    with dither, so that the rounding is no tone."""
    x = rng.uniform(-0.5, 0.5, (1, 2, n_samples))
    for pol, of_pol in enumerate(of_pols):
        for amplitude, frequency in of_pol:
            f = Fraction(frequency) / rate
            blocks = np.array([float((start + i) * f % 1) for i in range(0, n_samples, 1024)])
            turns = np.add.outer(blocks, np.array([float(i * f % 1) for i in range(1024)])).ravel()[:n_samples]
            x[0, pol] += amplitude * np.cos(2 * np.pi * turns)
    return np.rint(x).astype(np.int16)


def tone_config(**output):
    return narrow_config([{"channels": 256, "taps": 16, "dither": "uniform", "dither_seed": 3} | output],
                         recv={"packet_samples": 4096, "sample_bits": 12, "max_delay_diff": 8192},
                         time={"sync_time": SYNC, "adc_sample_rate": RATE})


START = 4096 * 10**6


@pytest.mark.parametrize("keep", [False, True], ids=["discard", "no discard"])
@pytest.mark.parametrize("delays", [
    [Delay(0), Delay(0)],
    [Delay(0, 42.4), Delay(0, -24.2)],
    [Delay(0, 0.0043, 0, 2.0), Delay(0, -4136.36, 0, -3.1)],
    [Delay(START, 5, 1e-5, 0.3, 1e-5), Delay(START, -5, -1.2e-5, 1, -2e-5)],
])
def test_tones(delays, keep, daemon, work, rng):
    """A tone at f is in the nearest channel, with the gain of the filter bank alone.  A delay d turns the tone by -2 pi
    (f - centre) d, and the phase of the model is added: to 0.002 radians and 0.3 steps."""
    decimation, channels, centre = 6, 256, Fraction("187654321.25")
    config = tone_config(decimation=decimation, centre_frequency=str(float(centre)),
                         **{"pass_bandwidth": 5e7} if keep else {})
    output = scenario.model_of(config["outputs"][0], config)
    width = Fraction(RATE, 2 * decimation * channels)
    n_samples = -(-(6 * output.batch + output.window) // 4096) * 4096
    w_sum = fmodel.weights(output.bins, 16).sum()
    level, amplitude = 110.0, 1800.0
    for channel in (55, 128, 200) if keep else (0, 1, 127, 128, 255):
        f = centre + (channel - channels // 2) * width
        # A real tone has half of its amplitude at f; white noise keeps its density, so the filter's gain is the root of
        # the subsampling.
        config["outputs"][0]["gain"] = float(level / (amplitude / 2 * w_sum * np.sqrt(output.grid)))
        x = tones(rng, n_samples, START, RATE, [[(amplitude, f)]] * 2)
        (got,) = run(daemon, work, config, [[[delays[0]], [delays[1]]]], x, START, name=f"c{channel}").values()
        assert len(got) >= 4
        found = np.stack([v[..., 0] + 1j * v[..., 1] for v in got.values()])
        for pol in range(2):
            m = delays[pol]
            expected = np.empty(found.shape[::2][:2], complex)
            for b, t in enumerate(got):
                for s in range(output.spectra_per_heap):
                    time = t + s * output.spacing
                    r = time - m.start
                    d = m.delay + m.rate * r
                    turns = float(f / RATE * time % 1) - float(centre / RATE * time % 1)
                    # A sample of the band has the time of the first one that the mixer's filter looks at, whose phase
                    # is that of the middle one.
                    turns += float((f - centre) / RATE * (Fraction(output.n_ddc_taps - 1, 2) - Fraction(d)))
                    expected[b, s] = np.exp(1j * (2 * np.pi * turns + m.phase + m.phase_rate * r))
            off = found[:, channel, :, pol] * expected.conj()
            what = f"channel {channel}, pol {pol}"
            assert abs(np.abs(off.mean()) - level) < 0.3, f"{what}: {np.abs(off.mean())}"
            assert abs(np.angle(off.mean())) < 0.002, f"{what}: {np.angle(off.mean())} rad"
            others = np.delete(found[..., pol], channel, axis=1)
            assert np.abs(others).max() < 3, f"{what}: {np.abs(others).max()} in another channel"


@pytest.mark.parametrize("keep", [False, True], ids=["discard", "no discard"])
def test_aliases(keep, daemon, work, rng):
    """Tones that subsampling would move into the band leave nothing: they are 80 dB below a tone in the band."""
    decimation, channels, centre = 5, 256, Fraction(300000000)
    config = tone_config(decimation=decimation, centre_frequency=int(centre), spectra_per_heap=32,
                         **{"pass_bandwidth": 6e7} if keep else {})
    output = scenario.model_of(config["outputs"][0], config)
    width, fold = Fraction(RATE, 2 * decimation * channels), Fraction(RATE, output.grid)
    n_samples = -(-(2 * output.batch + output.window) // 4096) * 4096
    inside = [60, 128, 190] if keep else [0, 100, 255]
    amplitude = 2000.0
    config["outputs"][0]["gain"] = float(1000 * 110.0 / (amplitude / 2 * fmodel.weights(output.bins, 16).sum() *
                                                         np.sqrt(output.grid)))
    n_tried = 0
    for channel in inside:
        f = centre + (channel - channels // 2) * width
        aliases = [(f + n * fold) % RATE for n in range(1, output.grid)]
        aliases = {min(a, RATE - a) for a in aliases}
        # Each is a real tone, which is in the band itself at its own frequency or not at all.
        aliases = [a for a in aliases if abs(a - centre) > width * channels / 2 + 20 * width]
        for a in aliases[:3]:
            x = tones(rng, n_samples, START, RATE, [[(amplitude, a)], []])
            (got,) = run(daemon, work, config, [[[], []]], x, START, name=f"a{n_tried}").values()
            values = np.stack([v[..., 0] + 1j * v[..., 1] for v in got.values()])[:, channel, :, 0]
            # 1000 times the gain at which a tone in the band would be 110.
            rms = np.sqrt(np.mean(np.abs(values)**2))
            assert rms < 1000 * 110 * 10**(-80 / 20), f"{float(a)} Hz in channel {channel}: {rms}"
            n_tried += 1
    assert n_tried >= 4


# ---- Configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output, sentence", [
    ({"decimation": 1}, "decimation must be 2 to 256 without a pass_bandwidth, not 1"),
    ({"decimation": 129, "pass_bandwidth": 1e6}, "decimation must be 1 to 128 with a pass_bandwidth, not 129"),
    ({"decimation": 257}, "outputs[0].decimation must be"),
    ({"centre_frequency": 856000001}, "centre_frequency must be from 0 to 856000000 Hz, half of the sample rate"),
    ({"centre_frequency": -1}, "outputs[0].centre_frequency must be"),
    ({"pass_bandwidth": 214e6}, "pass_bandwidth must be less than the output's band of 214000000 Hz, or 0"),
    ({"decimation": 1, "pass_bandwidth": 1e-8}, "pass_bandwidth must be at least 856 Hz, a millionth of"),
    ({"ddc_taps": 3}, "ddc_taps must be from 4 to 256 with this decimation, not 3"),
    ({"ddc_taps": 257}, "ddc_taps must be from 4 to 256 with this decimation, not 257"),
    ({"kind": "wideband"}, "belongs to kind narrowband, but the kind is wideband"),
    ({"decimation": 256}, "must be at least the longest filter window plus max_delay_diff"),
    ({"ddc_taps": 250, "pass_bandwidth": 1e6},
     "outputs[0].ddc_taps: no filter of 250 taps can be designed for output o0 in double precision"),
])
def test_mistakes(output, sentence, daemon, work):
    config = narrow_config([{}], recv={"pcap_file": str(work / "none.pcap")},
                           send={"pcap_file": str(work / "out.pcap")})
    harness.write_pcap(work / "none.pcap", [])
    config["outputs"][0] |= output
    process = daemon("fgpu", config).wait_end(code=78)
    text = process.log.read_text()
    assert sentence in text and ".yaml:" in text, text


@pytest.mark.parametrize("key", ["centre_frequency", "decimation"])
def test_mistakes_of_omission(key, daemon, work):
    config = narrow_config([{}])
    del config["outputs"][0][key]
    text = daemon("fgpu", config).wait_end(code=78).log.read_text()
    assert f"outputs[0].{key} is missing" in text, text


# ---- What is said of the inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["narrow alone", "narrow first", "narrow last"])
@pytest.mark.parametrize("bits", [2, 10, 16])
def test_input_power(where, bits, daemon, work, rng):
    """Levels of the last whole second, exactly, by the first wide output, or by a narrow one if there is no wide
    one."""
    rate = 32768  # four batches of the narrow one, sixteen of the wide one
    narrow = {"centre_frequency": 4000, "batches_per_buffer": 2}
    wide = {"kind": "wideband"}
    outputs = {"narrow alone": [narrow, narrow], "narrow first": [narrow, wide], "narrow last": [wide, narrow]}[where]
    config = narrow_config(outputs, recv={"packet_samples": 512, "sample_bits": bits},
                           time={"adc_sample_rate": rate, "sync_time": SYNC})
    samples = scenario.noise(rng, 1, 7 * rate, bits)
    samples[0, 0] = 200 if bits == 10 else 2**(bits - 1) - 1
    pol0, pol1, n, valid = input_power(daemon, work, config, scenario.digitiser_heaps(config, samples, 0), "whole")
    assert valid and n >= 5
    check_input_power(bits, pol0, pol1, samples[0, 1, (n - 1) * rate:n * rate])
    present = np.ones((1, 2, samples.shape[2] // 512), bool)
    present[0, 0, (n - 1) * rate // 512 + 5] = False
    sent = scenario.digitiser_heaps(config, samples, 0, present)
    assert input_power(daemon, work, config, sent, "lost")[2:] == (n, False)
