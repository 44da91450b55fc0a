"""xbgpu's sensors of its beams: power, zeros, antennas and weights, against numpy's beams."""
import numpy as np

import beammodel
import harness
import scenario
from test_beams import N_ANTS, beams_config, ones, random_voltages
from test_beams_detected import detected_config
from test_xbgpu_katcp import Fed

N_TURNS = 3  # batches of a second
N_CHAN, N_SPECTRA = 8, 48


def model(config, voltages, present):
    """int64 [beam][batch][channel][spectrum][re, im] of beams with weights of 1."""
    values = [beammodel.beam(voltages, present, beam["pol"], ones(config)) for beam in config["beams"]]
    return beammodel.quantise(np.stack([np.real(values), np.imag(values)], -1))[0].astype(np.int64)


def check_figures(metrics, beam, expected, present, first_batch):
    """The figures of a beam come from its last measured batch."""
    measured = [b for b in range(len(present)) if (first_batch + b) % N_TURNS == beam % N_TURNS and present[b].any()]
    n = metrics.get("xbgpu_output_b_measured_samples_total", stream=f"beam{beam}") / (N_CHAN * N_SPECTRA)
    assert n == int(n) >= 2
    measured = measured[:int(n)]
    zeros = (expected[beam][measured] == 0).all(-1).sum()
    assert metrics.get("xbgpu_output_b_zero_samples_total", stream=f"beam{beam}") == zeros > 0
    rms = np.sqrt((expected[beam][measured[-1]] ** 2).mean())
    assert abs(metrics.get("xbgpu_output_b_rms", stream=f"beam{beam}") - rms) < 1e-6
    assert metrics.get("xbgpu_output_b_antennas", stream=f"beam{beam}") == present[measured[-1]].sum()


def check_spectrum(process, config, name, expected, first_batch):
    """Figures of one batch, channel by channel."""
    spectrum = process.status(f"?stream={name}")["spectrum"]
    assert spectrum["stream"] == name and spectrum["beam"] and spectrum["n_spectra"] == N_SPECTRA
    assert spectrum["axis"]["first_channel"] == config["recv"]["channel_offset"]
    batch = spectrum["timestamp"] // scenario.batch_samples(config) - first_batch
    powers = (expected[batch] ** 2).sum(-1).mean(-1)
    (curve,) = spectrum["curves"]
    np.testing.assert_allclose(curve["mean"], 10 * np.log10(powers / 127**2), atol=0.006)
    assert curve["pol"] == next(beam["pol"] for beam in config["beams"] if beam["name"] == name)


def test_figures(daemon, work, rng):
    """Four beams take turns in a second of three batches; a batch without antennas is not measured."""
    beams = [{"dither": "none"} for _ in range(4)]
    config = beams_config(beams, time={"adc_sample_rate": N_TURNS * 6144.0 + 100})
    assert scenario.batch_samples(config) == 6144
    first_batch, n = 3 * int(rng.integers(1000)), 30
    voltages = random_voltages(rng, config, n)
    voltages[:, :, :, ::7] = 0
    present = rng.random((n, N_ANTS)) > 0.3
    present[3] = False
    expected = model(config, voltages, present)
    fed = Fed(daemon, config, work)
    assert fed.process.status("?stream=beam1")["spectrum"] is None  # and from now on it is wanted
    fed.write(scenario.feng_heaps(config, first_batch, voltages, present, rng))
    metrics = fed.process.wait_counted(lambda m: all(
        m.get("xbgpu_output_b_measured_samples_total", stream=f"beam{beam}") >= 2 * N_CHAN * N_SPECTRA for beam in range(4)),
        "measured twice")
    for beam in range(4):
        check_figures(metrics, beam, expected, present, first_batch)
    check_spectrum(fed.process, config, "beam1", expected[1], first_batch)
    status = fed.process.status()
    assert [(beam["name"], beam["pol"]) for beam in status["beams"]] == [(f"beam{i}", i % 2) for i in range(4)]
    assert {"rms", "zero_samples", "measured_samples", "antennas", "clipped_samples", "zero_weights_ratio"} \
        <= set(next(stream for stream in status["streams"] if stream["stream"] == "beam0"))
    fed.end()


def test_zero_weights(daemon, work):
    """The share of weights of 0 follows ?beam-weights."""
    fed = Fed(daemon, beams_config([{}, {}]), work)
    share = lambda beam: fed.process.metrics().get("xbgpu_output_b_zero_weights_ratio", stream=beam)
    with fed.client() as client:
        assert share("beam0") == share("beam1") == 0
        client.request("beam-weights", "beam1", 0, 0.5, 0, 0, -0.0)
        assert (share("beam0"), share("beam1")) == (0, 0.8)
    fed.end()


DETECTED = [{"products": "I", "spectra": 7, "windows": 9, "channels": 4, "beams": 3},
            {"products": "IQUV", "spectra": 24, "windows": 3, "channels": 2, "format": "uint8"},
            {"products": "power_1", "spectra": 5, "windows": 6, "channels": 1},
            {"products": "power_0", "spectra": 1, "windows": 200, "channels": 1}]  # of more powers than are measured
MEASURED = 1024  # powers at most


def detected_model(config, stream, first_batch, voltages, present, gain):
    """Heaps of a beam by number: powers [window][product][group], fractions [window], share of its samples that clip."""
    values = [beammodel.beam(voltages, present, pol, gain * ones(config)) for pol in range(2)]
    (x, clipped_x), (y, clipped_y) = map(beammodel.detected_parts, values)
    spectra = lambda a: np.moveaxis(a, -2, 0).reshape(a.shape[-2], *a.shape[:-3], -1)  # [channel][...][spectrum]
    powers = spectra(beammodel.detect(x, y, stream["products"])).transpose(1, 0, 2)
    clipped = spectra(clipped_x.astype(int) + clipped_y)[None]
    first, share = first_batch * N_SPECTRA, np.repeat(present.mean(1), N_SPECTRA)
    heaps = beammodel.windows(stream, first, powers, share)
    whole = beammodel.windows(stream | {"channels": N_CHAN}, first, clipped, share)
    n = N_CHAN * stream["spectra"] * stream["windows"] * 2
    return {number: (*heap, whole[number][0].sum() / n) for number, heap in heaps.items()}


def figures_are(metrics, config, stream, beam, heaps):
    """Whether the figures of a beam come from its last heap so far."""
    name, products = f"{stream['name']}.{beam}", "IQUV" if stream["products"] == "IQUV" else [stream["products"]]
    n_left = int(metrics.get("xbgpu_output_b_heaps_total", stream=stream["name"]))
    length = stream["spectra"] * stream["windows"]
    turns = max(1, round(config["time"]["adc_sample_rate"] / (length * config["recv"]["samples_between_spectra"])))
    left = sorted(heaps)[:n_left]
    powers, fractions, clipped = heaps[[n for n in left if n % turns == beam % turns][-1]]
    step = -(-powers.size // MEASURED)
    powers = powers / (beammodel.STEPS**2 * stream["spectra"] * stream["channels"])
    tolerance = np.ptp(powers, 0).mean(-1) / 500 if stream.get("format") == "uint8" else np.zeros(len(products))
    powers = powers[fractions > 0, :, ::step]
    get = lambda metric, **labels: metrics.get(f"xbgpu_output_b_{metric}", stream=name, **labels)
    return all(abs(get("power", product=product) - mean) <= 2e-6 * (1 + abs(mean)) + off
               for product, mean, off in zip(products, powers.mean((0, 2)), tolerance)) and (
        abs(get("clipped_ratio") - clipped) < 1e-6 and abs(get("zero_powers_ratio") - (powers == 0).mean()) < 1e-6 and
        abs(metrics.get("xbgpu_output_b_present_ratio", stream=stream["name"]) - heaps[left[-1]][1].mean()) < 1e-6)


def test_detected_figures(daemon, work, rng):
    """Beams take turns; one has only zeros, another clips; absent antennas, and batches of which nothing comes."""
    config = detected_config(DETECTED, time={"adc_sample_rate": 2.5 * 6144})
    first_batch, n = 3 * int(rng.integers(333)), 30
    voltages = random_voltages(rng, config, n)
    present = rng.random((n, N_ANTS)) > 0.3
    present[[9, n - 6, n - 3]] = False
    gains = {"powers0": (1, 0, 4)}
    expected = {(s["name"], beam): detected_model(config, s, first_batch, voltages, present, gain)
                for s in config["detected"] for beam, gain in enumerate(gains.get(s["name"], (1,)))}
    assert all(heap[2] > 0.1 for heap in expected["powers0", 2].values() if heap[1].mean() > 0.6)
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        client.request("beam-weights", "powers0.1", *[0] * N_ANTS)
        client.request("beam-quant-gains", "powers0.2", 4)
    fed.write(scenario.feng_heaps(config, first_batch, voltages, present, rng))
    metrics = fed.process.wait_counted(lambda m: all(
        m.get("xbgpu_output_b_heaps_total", stream=s["name"]) > 3 and
        figures_are(m, config, s, beam, heaps)
        for s in config["detected"] for (name, beam), heaps in expected.items() if name == s["name"]), "measured")
    assert metrics.get("xbgpu_output_b_zero_powers_ratio", stream="powers0.1") == 1
    assert all(metrics.get("xbgpu_audits_total", stream=s["name"]) > 0 == metrics.get("xbgpu_audit_failures_total", stream=s["name"])
               for s in config["detected"])
    status = fed.process.status()
    assert [(d["name"], d["beams"]) for d in status["detected"]] == [("powers0", 3), ("powers1", 1), ("powers2", 1), ("powers3", 1)]
    beam = next(s for s in status["streams"] if s["stream"] == "powers1.0")
    assert set(beam["power"]) == set("IQUV") and {"zero_powers_ratio", "clipped_ratio", "zero_weights_ratio"} <= set(beam)
    fed.end()
