"""Detected beams of xbgpu: captures decoded by spead2 against numpy's integers, and against voltage beams of the same run."""
import subprocess

import numpy as np
import pytest
import yaml

import beammodel
import control
import harness
import scenario
import test_beams
from harness import endpoints, groups
from test_beams import N_ANTS, beams_config, random_voltages
from test_beams_katcp import load_time
from test_xbgpu_katcp import Fed

STREAMS = [
    {"products": "I", "spectra": 7, "windows": 9, "beams": 2},  # windows and heaps that begin within batches
    {"products": "IQUV", "spectra": 48, "windows": 3, "channels": 4},
    {"products": "power_0", "spectra": 1, "windows": 5, "channels": 8},
    {"products": "power_1", "spectra": 100, "windows": 2, "channels": 2, "beams": 9},
    {"products": "IQUV", "spectra": 5, "windows": 8, "channels": 2, "format": "uint8", "beams": 3},
]


def detected_config(streams, beams=(), **sections):
    config = beams_config(beams, **sections)
    config["detected"] = [{"name": f"powers{i}", "destination": groups()} | s for i, s in enumerate(streams)]
    return config


def model(config, stream, first_batch, voltages, present, weights=None):
    """As beammodel.windows(), of a beam with whole numbers [ant][pol] as weights, 1 by default."""
    weights = np.ones((N_ANTS, 2)) if weights is None else weights
    n_chan = config["recv"]["channels_per_substream"]
    parts = []
    for pol in range(2):
        values = beammodel.beam(voltages, present, pol, np.repeat(weights[:, pol, None], n_chan, 1))
        parts.append(beammodel.detected_parts(values)[0])
    powers = beammodel.detect(*parts, stream["products"]).transpose(0, 2, 1, 3)
    n_spectra = config["recv"]["spectra_per_heap"]
    share = np.repeat(present.mean(1), n_spectra)
    return beammodel.windows(stream, first_batch * n_spectra, powers.reshape(*powers.shape[:2], -1), share)


def incoherent_model(config, stream, first_batch, voltages, present, weights=1):
    """As model(), of the incoherent beam, with integers [batch or 1][ant][x, y, xy] as weights; 1 by default."""
    if isinstance(weights, int):
        weights = beammodel.incoherent_weights(np.full((1, N_ANTS, 2), weights))
    powers = beammodel.incoherent(voltages, present, weights, stream["products"]).transpose(0, 2, 1, 3)
    n_spectra = config["recv"]["spectra_per_heap"]
    share = np.repeat(present.mean(1), n_spectra)
    return beammodel.windows(stream, first_batch * n_spectra, powers.reshape(*powers.shape[:2], -1), share)


def set_device(device, config, work, request):
    if device == "emulated":  # the CUDA device without a GPU
        request.getfixturevalue("fake_cuda")
        config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}


def heaps_of(config, found, index):
    (where,) = endpoints(config["detected"][index]["destination"])
    return found[where]


def check_stream(config, index, heaps, expected):
    """Compares a stream with the model of its beams, expected[beam]."""
    recv, stream = config["recv"], config["detected"][index]
    between, length = recv["samples_between_spectra"], stream["spectra"] * stream["windows"]
    assert heaps[0].kind == "descriptor" and heaps[-1].kind == "stop"
    assert [h.items["timestamp"] for h in heaps[1:-1]] == [n * length * between for n in expected[0]]
    filter_samples = recv.get("filter_samples", 16 * between)
    for heap, number in zip(heaps[1:-1], expected[0]):
        items = heap.items
        assert items["frequency"] == recv["channel_offset"]
        assert items["beam_centre"] == (filter_samples + (stream["spectra"] - 1) * between) // 2
        np.testing.assert_allclose(items["beam_fractions"], expected[0][number][1], rtol=1e-6)
        powers = np.stack([e[number][0] for e in expected])
        found = items["beam_powers"]
        assert found.shape == powers.shape
        if stream.get("format") != "uint8":
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, powers.astype(np.float32))
            continue
        least, most = powers.min(1), powers.max(1)
        np.testing.assert_array_equal(items["beam_offsets"], least.astype(np.float32))
        np.testing.assert_array_equal(items["beam_scales"], (most - least).astype(np.float32) / np.float32(255))
        span = np.maximum(most - least, 1)[:, None]
        np.testing.assert_array_equal(found, (510 * (powers - least[:, None]) + span) // (2 * span))


@pytest.mark.parametrize("bits", [8, 4])
def test_exact(bits, daemon, work, rng):
    """All products and formats are exact in every bit, with absent antennas and an absent batch.  The correlation is
    also exact."""
    config = detected_config(STREAMS, recv={"sample_bits": bits, "filter_samples": 1000 + bits})
    first_batch, n = int(rng.integers(1000)) * 2, 14
    voltages = random_voltages(rng, config, n, 24 if bits == 8 else 7)
    present = rng.random((n, N_ANTS)) > 0.2
    present[4] = False
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    for index, stream in enumerate(config["detected"]):
        beam = model(config, stream, first_batch, voltages, present)
        assert len(beam) > 1
        check_stream(config, index, heaps_of(config, found, index), [beam] * stream.get("beams", 1))
    test_beams.check_correlation(config, found, first_batch, voltages, present)


INCOHERENT = [stream | {"kind": "incoherent", "beams": 1} for stream in STREAMS]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_incoherent(device, bits, daemon, work, rng, request):
    """All products and formats of incoherent beams are exact in every bit, with absent antennas, an absent batch, and
    voltages of -128.  A coherent beam and the correlation are also exact."""
    config = detected_config(INCOHERENT + STREAMS[:1], recv={"sample_bits": bits})
    set_device(device, config, work, request)
    first_batch, n = int(rng.integers(1000)) * 2, 14
    voltages = random_voltages(rng, config, n, 24 if bits == 8 else 7)
    voltages[:, 0] = -128 if bits == 8 else -8
    present = rng.random((n, N_ANTS)) > 0.2
    present[4] = False
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    for index, stream in enumerate(INCOHERENT):
        beam = incoherent_model(config, stream, first_batch, voltages, present)
        assert len(beam) > 1
        check_stream(config, index, heaps_of(config, found, index), [beam])
    coherent = model(config, STREAMS[0], first_batch, voltages, present)
    check_stream(config, len(INCOHERENT), heaps_of(config, found, len(INCOHERENT)), [coherent] * 2)
    test_beams.check_correlation(config, found, first_batch, voltages, present)


def test_incoherent_of_one_antenna(daemon, work, rng):
    """With the weight of all antennas but one at 0, an incoherent beam has the powers of the coherent one."""
    both = [{"products": "IQUV", "spectra": 20, "windows": 4, "kind": kind} for kind in ("coherent", "incoherent")]
    config = detected_config(both)
    voltages, present = random_voltages(rng, config, 8, 24), np.ones((8, N_ANTS), bool)
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        for name in "powers0.0", "powers1.0":
            client.request("beam-weights", name, 0, 0, 0, 1, 0)
    fed.write(scenario.feng_heaps(config, 0, voltages, present))
    found = fed.end()
    coherent, incoherent = [[h.items["beam_powers"] for h in heaps_of(config, found, i)[1:-1]] for i in range(2)]
    assert len(coherent) > 1
    np.testing.assert_array_equal(coherent, incoherent)


def test_against_voltage_beams(daemon, work, rng):
    """Powers equal the powers of the same run's voltage beams, within the error of rounding those to 8 bits."""
    stream = {"products": "I", "spectra": 48, "windows": 2}
    config = detected_config([stream], [{"dither": "none"}, {"dither": "none"}])
    n = 6
    voltages = random_voltages(rng, config, n)
    present = np.ones((n, N_ANTS), bool)
    sent = scenario.feng_heaps(config, 0, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    both = [test_beams.heaps_of(config, found, index)[1:-1] for index in range(2)]
    power = sum((np.array([h.items["bf_raw"] for h in heaps], float) ** 2).sum((-1, -2)) for heaps in both)
    detected = np.concatenate([h.items["beam_powers"][0, :, 0] for h in heaps_of(config, found, 0)[1:-1]])
    np.testing.assert_allclose(detected / beammodel.STEPS**2, power, rtol=1e-6)


def test_loss_changes_only_its_windows(daemon, work, rng):
    """Without one heap, only the windows with its spectra differ, and their fractions show this."""
    config = detected_config(STREAMS[:1])
    n = 8
    voltages = random_voltages(rng, config, n)
    present = np.ones((n, N_ANTS), bool)
    lost_batch, lost_ant = int(rng.integers(1, n - 1)), int(rng.integers(N_ANTS))
    results = []
    for name in ["whole", "lossy"]:
        present[lost_batch, lost_ant] = name == "whole"
        sent = scenario.feng_heaps(config, 0, voltages, present, rng)
        heaps = heaps_of(config, scenario.run_pcap(daemon, "xbgpu", config, work, sent, name), 0)[1:-1]
        results.append([np.concatenate([h.items[item] for h in heaps], axis)
                        for item, axis in [("beam_powers", 1), ("beam_fractions", 0)]])
    (whole, all_there), (lossy, fractions) = results
    begins = np.arange(len(fractions)) * 7
    touched = (begins < (lost_batch + 1) * 48) & (begins + 7 > lost_batch * 48)
    assert (all_there == 1).all() and ((fractions < 1) == touched).all()
    assert ((whole != lossy).any((0, 2, 3)) == touched).all()


@pytest.mark.parametrize("stream, recv, sentence", [
    ({}, {"sample_bits": 16}, "beams need recv.sample_bits of 4 or 8, not 16"),
    ({"channels": 3}, {}, "the key channels of powers0 must be a divisor of recv.channels_per_substream"),
    ({"buffers": 1}, {},
     "buffers must be at least 2, not 1; the number of heaps of powers0 that end in one chunk is 1"),
    ({"kind": "incoherent", "beams": 2}, {}, "powers0 is incoherent, so it has one beam, not 2"),
    ({"kind": "incoherent", "spectra": 4096, "channels": 256},
     {"antennas": 513, "channels": 256, "channels_per_substream": 256, "channel_offset": 0},
     "powers of powers0 do not fit in 64 bits: recv.antennas times spectra times channels must be at most 2^29"),
    ({"name": "beam"}, {}, "the name of beam beam0 begins with the name of detected beams beam"),
])
def test_refused(stream, recv, sentence, work):
    config = detected_config([stream], [{}], recv=recv)
    path = work / "refused.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    done = subprocess.run([harness.BUILD / "xbgpu", "--check-config", path], capture_output=True, text=True, timeout=60,
                          env=harness.environment_of_programs())
    assert done.returncode == 78 and sentence in done.stderr


def change(client):
    """Weights for inputs, for antennas, and a gain, all whole numbers: coefficients are exact.
    Returns [beam][ant][pol]."""
    per_input = np.array([[1, 0], [2, -1], [0, 3], [-2, 1], [1, 1]])
    per_ant = np.array([0, 1, -1, 2, 0])
    client.request("beam-weights", "powers0.0", *map(int, per_input.ravel()))
    client.request("beam-weights", "powers0.1", *map(int, per_ant))
    client.request("beam-quant-gains", "powers0.1", 2)
    assert client.value("powers0.0.weight") == str([float(w) for w in per_input.ravel()])
    assert float(client.value("powers0.1.quantiser-gain")) == 2
    return np.stack([per_input, 2 * np.repeat(per_ant[:, None], 2, 1)])


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_steering_holds_from_a_batch(device, daemon, work, rng, request):
    """Weights of a beam hold from the batch that steady-state-timestamp says, also within a window."""
    stream = {"products": "IQUV", "spectra": 100, "windows": 3, "channels": 2, "beams": 2}
    config = detected_config([stream])
    set_device(device, config, work, request)
    first_batch, n = 300, 30
    voltages, present = random_voltages(rng, config, n, 5), np.ones((n, N_ANTS), bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        fed.write(sent[:15 * N_ANTS])
        fed.wait_taken(client)
        after = change(client)
        held = int(client.value("steady-state-timestamp")) // scenario.batch_samples(config) - first_batch
        fed.write(sent[15 * N_ANTS:])
    found = fed.end()
    assert 0 < held <= 15
    expected = []
    for beam in range(2):
        weights = np.where(np.arange(n)[:, None, None] < held, 1, after[beam])  # [batch][ant][pol]
        weighted = voltages.astype(np.int64) * weights[:, :, None, None, :, None]
        expected.append(model(config, stream, first_batch, weighted, present))
    check_stream(config, 0, heaps_of(config, found, 0), expected)


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_models_begin_within_a_heap(device, daemon, work, rng, request):
    """Models with load times and rates hold from their batches, within windows, heaps and chunks."""
    stream = {"products": "IQUV", "spectra": 100, "windows": 3, "channels": 2, "beams": 2}
    config = detected_config([stream], steering={"grid_batches": 3})
    set_device(device, config, work, request)
    first_batch, n, batch_samples = 300, 30, scenario.batch_samples(config)
    quarter = np.pi / 2 / (3 * batch_samples / config["time"]["adc_sample_rate"])  # rad/s: a quarter turn an interval
    voltages, present = random_voltages(rng, config, n, 5), np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        half = [f"0,0:{np.pi * (i % 2)},0" for i in range(2 * N_ANTS)]
        turning = [f"0,0:{-np.pi / 4},{quarter}"] * N_ANTS
        client.request("beam-delays", "powers0.0", load_time(config, (first_batch + 7) * batch_samples - 5), *half)
        client.request("beam-delays", "powers0.0", load_time(config, (first_batch + 8) * batch_samples), *half[::-1])
        client.request("beam-delays", "powers0.1", load_time(config, (first_batch + 12) * batch_samples), *turning)
    fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    found = fed.end()
    batch, input_number = np.arange(n)[:, None], np.arange(2 * N_ANTS)
    halves = np.where(batch < 7, 0, np.where(batch < 8, input_number % 2, (input_number + 1) % 2)) * 2
    quarters = np.broadcast_to(np.where(batch < 12, 0, (batch - 12) // 3), halves.shape)
    expected = []
    for turns in halves, quarters:
        factors = (1j**turns).reshape(n, N_ANTS, 1, 1, 2)
        turned = (voltages[..., 0] + 1j * voltages[..., 1]) * factors
        turned = np.rint(np.stack([turned.real, turned.imag], -1)).astype(np.int64)
        expected.append(model(config, stream, first_batch, turned, present))
    check_stream(config, 0, heaps_of(config, found, 0), expected)


def change_incoherent(client):
    """Weights for inputs and a gain, of two incoherent beams.  Returns weights [beam][ant][x, y, xy] as integers."""
    per_input = np.array([[1, 0], [2.5, 1e-3], [0, 3], [0.7, 1], [100, 1 / 3]])
    per_ant = np.array([0, 1, 0.1, 2, 0])
    client.request("beam-weights", "powers0.0", *map(float, per_input.ravel()))
    client.request("beam-weights", "powers1.0", *map(float, per_ant))
    client.request("beam-quant-gains", "powers1.0", 1.5)
    assert client.value("powers0.0.weight") == str([float(w) for w in per_input.ravel()])
    return [beammodel.incoherent_weights(per_input), beammodel.incoherent_weights(np.stack([per_ant] * 2, -1), 1.5)]


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_weights_of_incoherent_beams(device, daemon, work, rng, request):
    """Weights and gains of incoherent beams hold from the batch that steady-state-timestamp says, also within a window,
    and after a restart."""
    streams = [{"products": p, "spectra": 100, "windows": 3, "channels": 2, "kind": "incoherent"} for p in ("IQUV", "I")]
    config = detected_config(streams, state={"directory": str(work / "state")})
    (work / "state").mkdir()
    set_device(device, config, work, request)
    first_batch, n = 300, 30
    voltages, present = random_voltages(rng, config, n, 24), np.ones((n, N_ANTS), bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    fed = Fed(daemon, config, work, "before")
    with fed.client() as client:
        fed.write(sent[:15 * N_ANTS])
        fed.wait_taken(client)
        after = change_incoherent(client)
        held = int(client.value("steady-state-timestamp")) // scenario.batch_samples(config) - first_batch
        fed.write(sent[15 * N_ANTS:])
    found = fed.end()
    assert 0 < held <= 15
    fed = Fed(daemon, config, work, "after")
    fed.write(sent)
    kept = fed.end()
    ones = beammodel.incoherent_weights(np.ones((N_ANTS, 2)))
    for index, stream in enumerate(streams):
        for heaps, begin in (found, held), (kept, 0):
            weights = np.where(np.arange(n)[:, None, None] < begin, ones, after[index])
            expected = incoherent_model(config, stream, first_batch, voltages, present, weights)
            check_stream(config, index, heaps_of(config, heaps, index), [expected])


def test_settings_survive(daemon, work, rng):
    """Weights and capture of detected beams hold after a restart."""
    stream = {"products": "I", "spectra": 24, "windows": 4, "beams": 2}
    config = detected_config([stream], state={"directory": str(work / "state")})
    (work / "state").mkdir()
    n, from_heap = 12, 3
    voltages, present = random_voltages(rng, config, n, 5), np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work, "before")
    with fed.client() as client:
        weights = change(client)
        client.request("capture-start", "powers0", from_heap * 96 * config["recv"]["samples_between_spectra"])
    fed.end()
    fed = Fed(daemon, config, work, "after")
    fed.write(scenario.feng_heaps(config, 0, voltages, present))
    found = fed.end()
    expected = [model(config, stream, 0, voltages, present, w) for w in weights]
    sent = [{number: heap for number, heap in e.items() if number >= from_heap} for e in expected]
    check_stream(config, 0, heaps_of(config, found, 0), sent)


WRONG = [
    ("beam-weights", ["powers0", *"11111"], "there is no beam 'powers0'"),
    ("beam-weights", ["powers0.2", *"11111"], "there is no beam 'powers0.2'"),
    ("beam-weights", ["powers0.1", *"111111"], "5 weights (one for each antenna) or 10 (one for each input), not 6"),
    ("beam-delays", ["powers0.1", *["0:0"] * 9], "5 delays (one for each antenna) or 10 (one for each input), not 9"),
    ("capture-start", ["powers0.1"], "there is no stream"),
]


def test_wrong_requests(daemon, work):
    fed = Fed(daemon, detected_config([{"beams": 2}]), work)
    with fed.client() as client:
        for name, args, words in WRONG:
            with pytest.raises(control.FailReply) as refused:
                client.request(name, *args)
            assert words in str(refused.value), (name, args)
    fed.end()


WRONG_INCOHERENT = [
    ("beam-weights", ["powers0.0", *"111", "-0.5", "1"],
     "a weight of an incoherent beam must not be negative, but is -0.5"),
    ("beam-weights", ["powers0.0", *"1111", "13108"], "the square of the gain must be at most 13107.2 in beam powers0.0"),
    ("beam-weights", ["powers0.0", *"1111", "nan"], "a weight"),
    ("beam-quant-gains", ["powers0.0", "-115"], "the square of the gain must be at most 13107.2 in beam powers0.0"),
    ("beam-delays", ["powers0.0", *["0:0"] * 5], "beam powers0.0 is incoherent, so it has no delays"),
    ("beam-calibration", ["a0v", "1"], "?beam-calibration does not apply to incoherent beams, and this X-engine makes no other beams"),
]


def test_wrong_requests_of_incoherent_beams(daemon, work):
    stream = {"kind": "incoherent", "spectra": 4096, "channels": 2}
    fed = Fed(daemon, detected_config([stream]), work)
    with fed.client() as client:
        for name, args, words in WRONG_INCOHERENT:
            with pytest.raises(control.FailReply) as refused:
                client.request(name, *args)
            assert words in str(refused.value), (name, args)
        client.request("beam-quant-gains", "powers0.0", -114)
        assert client.value("powers0.0.weight") == str([1.0] * 10)
        with pytest.raises(control.FailReply):
            client.request("sensor-value", "powers0.0.delay")
    fed.end()


@pytest.mark.parametrize("kept, taken", [((1, 2, -3, 4, 0), (1, 1, 1, 4, 0)), ((100000, 2, 3, 4, 0), (1, 1, 1, 1, 1))])
def test_kept_settings_of_another_kind(kept, taken, daemon, work, rng):
    """An incoherent beam leaves out delays and negative weights that were kept of a coherent one of its name, and all weights
    if one is beyond the limit."""
    stream = {"products": "I", "spectra": 24, "windows": 4}
    config = detected_config([stream], state={"directory": str(work / "state")})
    (work / "state").mkdir()
    voltages, present = random_voltages(rng, config, 12, 5), np.ones((12, N_ANTS), bool)
    fed = Fed(daemon, config, work, "before")
    with fed.client() as client:
        client.request("beam-weights", "powers0.0", *kept)
        client.request("beam-delays", "powers0.0", "0:0", "1e-9:0", "0:0", "0:0", "0:0")
    fed.end()
    config["detected"][0]["kind"] = "incoherent"
    fed = Fed(daemon, config, work, "after")
    fed.write(scenario.feng_heaps(config, 0, voltages, present))
    found = fed.end()
    weights = beammodel.incoherent_weights(np.stack([taken] * 2, -1))
    check_stream(config, 0, heaps_of(config, found, 0),
                 [incoherent_model(config, stream, 0, voltages, present, weights[None])])


def test_calibration(daemon, work, rng):
    """A gain of an input is in all detected beams, also if there is no voltage beam."""
    stream = {"products": "IQUV", "spectra": 48, "windows": 2}
    config = detected_config([stream], steering={"calibration": str(work / "gains")})
    (work / "gains").write_text("a2h * -3 0\na0v * 2 0\n")
    voltages, present = random_voltages(rng, config, 6, 5), np.ones((6, N_ANTS), bool)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, scenario.feng_heaps(config, 0, voltages, present, rng))
    weights = np.ones((N_ANTS, 2))
    weights[2, 1], weights[0, 0] = -3, 2
    check_stream(config, 0, heaps_of(config, found, 0), [model(config, stream, 0, voltages, present, weights)])
