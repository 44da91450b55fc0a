"""What xbgpu says of its beams: power, zeros, antennas and weights, against numpy's beams."""
import numpy as np

import beammodel
import harness
import scenario
from test_beams import N_ANTS, beams_config, ones, random_voltages
from test_xbgpu_katcp import Fed

N_TURNS = 3  # batches of a second
N_CHAN, N_SPECTRA = 8, 48


def model(config, voltages, present):
    """int64 [beam][batch][channel][spectrum][re, im] of beams with weights of 1."""
    values = [beammodel.beam(voltages, present, beam["pol"], ones(config)) for beam in config["beams"]]
    return beammodel.quantise(np.stack([np.real(values), np.imag(values)], -1))[0].astype(np.int64)


def check_figures(metrics, beam, expected, present, first_batch):
    """The figures of a beam are those of the last of its batches that was measured."""
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
    """Of one batch, channel by channel."""
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
