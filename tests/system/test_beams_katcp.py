"""Voltage beams of xbgpu under control of KATCP, by aiokatcp: exact to the batch."""
import numpy as np
import pytest

import beammodel
import control
import harness
import scenario
from test_beams import N_ANTS, beams_config, check_beam, check_correlation, heaps_of, ones, random_voltages
from test_xbgpu_katcp import Fed


def random_steering(rng, n):
    """weights, delays, phases, gain"""
    return rng.uniform(-1, 1, n), rng.uniform(-1e-5, 1e-5, n), rng.uniform(-np.pi, np.pi, n), rng.uniform(0.2, 0.6)


def steer(client, name, weights, delays, phases, gain):
    client.request("beam-weights", name, *map(float, weights))
    client.request("beam-delays", name, *(f"{float(d)!r}:{float(p)!r}" for d, p in zip(delays, phases)))
    client.request("beam-quant-gains", name, float(gain))


def change_in_the_middle(fed, config, voltages, first_batch, first, second, n_before):
    """A client steers beam 0 again between two parts of the input.  Returns the batch of steady-state-timestamp."""
    present = np.ones(voltages.shape[:2], bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    with fed.client() as client:
        steer(client, "beam0", *first)
        fed.write(sent[:n_before * N_ANTS])
        fed.wait_taken(client)
        steer(client, "beam0", *second)
        steady = int(client.value("steady-state-timestamp"))
        time_s, status, text = client.reading("beam0.delay")
        shown = [float(x) for x in text.strip("()").split(",")]
        np.testing.assert_array_equal(shown[1:], np.stack(second[1:3], -1).ravel())
        assert status == "nominal" and shown[0] == steady
        assert client.value("beam0.weight") == str([float(w) for w in second[0]])
        assert float(client.value("beam0.quantiser-gain")) == second[3]
        assert client.value("beam0.dither-seed") == "11"
        fed.write(sent[n_before * N_ANTS:])
    return steady // scenario.batch_samples(config) - first_batch


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_steering_holds_from_a_batch(device, daemon, work, rng, request):
    """Weights, delays and gains by KATCP: exact to the batch that steady-state-timestamp says, and 99.9 % of the components
    as double precision has them."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}])
    if device == "emulated":  # the CUDA device without a GPU
        request.getfixturevalue("fake_cuda")
        config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    first_batch, n = 300, 30
    voltages = random_voltages(rng, config, n, 40)
    present = np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work)
    first, second = random_steering(rng, N_ANTS), random_steering(rng, N_ANTS)
    changed = change_in_the_middle(fed, fed.config, voltages, first_batch, first, second, 15)
    found = fed.end()
    assert 0 < changed <= 15
    coefficients = [beammodel.coefficients(config, *(first if b < changed else second)) for b in range(n)]
    assert check_beam(config, 0, heaps_of(config, found, 0), first_batch, voltages, present, coefficients) >= 0.999
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, [ones(config)] * n) >= 0.999
    check_correlation(config, found, first_batch, voltages, present)


def nearest(numerator, denominator):
    return (2 * numerator + denominator) // (2 * denominator)


def to_ns(config, samples):
    """Nanoseconds since the sync time."""
    return nearest(samples * 10**9, config["time"]["adc_sample_rate"])


def on_ns(config, samples):
    """The sample nearest to a whole nanosecond near this one: load times have no more decimals."""
    return nearest(to_ns(config, samples) * config["time"]["adc_sample_rate"], 10**9)


def random_model(rng, config, start):
    """(start, delays, rates, phases, phase rates).  A batch turns phases by up to 0.3 rad."""
    start = on_ns(config, start)
    n, batch_s = N_ANTS, scenario.batch_samples(config) / config["time"]["adc_sample_rate"]
    return (start, rng.uniform(-1e-7, 1e-7, n), rng.uniform(-1e-4, 1e-4, n), rng.uniform(-np.pi, np.pi, n),
            rng.uniform(-0.3, 0.3, n) / batch_s)


def load_time(config, samples):
    """UNIX seconds of a sample, with nine decimals."""
    ns = to_ns(config, samples)
    return f"{config['time']['sync_time'] + ns // 10**9}.{ns % 10**9:09d}"


def add_model(client, config, name, model):
    client.request("beam-delays", name, load_time(config, model[0]),
                   *(",".join(map(repr, pair[:2])) + ":" + ",".join(map(repr, pair[2:])) for pair in np.stack(model[1:], -1).tolist()))


def shown_delays(client, name):
    text = client.value(f"{name}.delay")
    return [float(x) for x in text.strip("()").split(",")]


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_models(device, daemon, work, rng, request):
    """Models with rates hold from the first batch at or after their load times.  Load times lie between batches, at the
    start of one, and in the past; several wait.  Each model is evaluated on the grid of batches.  A setting without a
    load time holds until the first model."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}], steering={"grid_batches": 4})
    if device == "emulated":  # the CUDA device without a GPU
        request.getfixturevalue("fake_cuda")
        config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    first_batch, n, step = 300, 30, scenario.batch_samples(config)
    voltages, present = random_voltages(rng, config, n, 40), np.ones((n, N_ANTS), bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    weights, delays, phases, gain = random_steering(rng, N_ANTS)
    still = (-1, delays, 0 * delays, phases, 0 * phases)
    at_batch = next(b for b in range(first_batch + 16, first_batch + 20) if on_ns(config, b * step) == b * step)
    waiting = [random_model(rng, config, start) for start in (
        (first_batch + 6) * step + 2, at_batch * step, at_batch * step + 5, (first_batch + 24) * step - 2)]
    late = random_model(rng, config, (first_batch - 40) * step + 77)

    fed = Fed(daemon, config, work)
    with fed.client() as client:
        steer(client, "beam0", weights, delays, phases, gain)
        for model in waiting:
            add_model(client, config, "beam0", model)
            assert shown_delays(client, "beam0") == [model[0], *np.stack([model[1], model[3]], -1).ravel()]
        fed.write(sent[:15 * N_ANTS])
        fed.wait_taken(client)
        add_model(client, config, "beam1", late)
        steady = int(client.value("steady-state-timestamp"))
        since = (steady - late[0]) / config["time"]["adc_sample_rate"]
        shown = shown_delays(client, "beam1")
        assert shown[0] == steady
        np.testing.assert_allclose(shown[1:], np.stack([late[1] + since * late[2], late[3] + since * late[4]], -1).ravel())
        fed.write(sent[15 * N_ANTS:])
    found = fed.end()
    changed = steady // step - first_batch
    assert 0 < changed <= 15
    batches = range(first_batch, first_batch + n)
    wanted = [beammodel.coefficients(config, weights, *beammodel.delays_at(config, [still, *waiting], b), gain) for b in batches]
    assert check_beam(config, 0, heaps_of(config, found, 0), first_batch, voltages, present, wanted) >= 0.999
    wanted = [beammodel.coefficients(config, np.ones(N_ANTS), *beammodel.delays_at(config, [late], b), 1)
              if b >= steady // step else ones(config) for b in batches]
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, wanted) >= 0.999
    check_correlation(config, found, first_batch, voltages, present)


def test_models_that_wait(daemon, work, rng):
    """A model replaces all models that start at the same time or later.  A model without a load time replaces all.
    Weights hold for all models.  There is room for seven, which are kept over a restart."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}], steering={"grid_batches": 1})
    config["state"] = {"directory": str(work / "state")}
    (work / "state").mkdir()
    first_batch, n, step = 60, 30, scenario.batch_samples(config)
    voltages, present = random_voltages(rng, config, n, 40), np.ones((n, N_ANTS), bool)
    starts = [(first_batch + batch) * step for batch in (2, 3, 7, 8, 13, 14, 22)]
    models = [random_model(rng, config, start) for start in starts]
    weights, delays, phases, gain = random_steering(rng, N_ANTS)

    fed = Fed(daemon, config, work, "before")
    with fed.client() as client:
        add_model(client, config, "beam1", models[3])
        steer(client, "beam1", weights, delays, phases, gain)
        for model in models[:4] + models:
            add_model(client, config, "beam0", model)
        client.request("beam-weights", "beam0", *map(float, weights))
        with pytest.raises(control.FailReply, match="already has 7 pending delay models, which is the maximum"):
            add_model(client, config, "beam0", random_model(rng, config, starts[-1] + 1))
    fed.end()
    path = work / "state" / "beams"
    path.write_text(path.read_text() + f"model beam0 a0 {load_time(config, starts[0])} 0 0 0 0\nmodel beam0 a0 1e20 0 0 0 0\n")
    fed = Fed(daemon, config, work, "after")
    fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    found = fed.end()
    assert fed.process.log.read_text().count("saved setting ignored: its beam or antenna does not exist") == 2
    still = (-1, *[np.zeros(N_ANTS)] * 4)
    wanted = [beammodel.coefficients(config, weights, *beammodel.delays_at(config, [still, *models], first_batch + b), 1)
              for b in range(n)]
    assert check_beam(config, 0, heaps_of(config, found, 0), first_batch, voltages, present, wanted) >= 0.999
    wanted = [beammodel.coefficients(config, weights, delays, phases, gain)] * n
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, wanted) >= 0.999


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_renormalised(device, daemon, work, rng, request):
    """Beams that renormalise are scaled up for missing antennas with a weight.  Other beams are not."""
    config = beams_config([{"dither_seed": 11, "renormalise": True}, {"dither_seed": 12},
                           {"dither_seed": 13, "renormalise": True}])
    if device == "emulated":  # the CUDA device without a GPU
        request.getfixturevalue("fake_cuda")
        config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    first_batch, n = 40, 24
    voltages, present = random_voltages(rng, config, n, 20), rng.random((n, N_ANTS)) > 0.3
    present[3], present[4], present[5] = False, True, [False, False, True, False, False]
    weights = np.array([1, 0.5, 0, -1, 0.25])
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        client.request("beam-weights", "beam0", *map(float, weights))
        fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    found = fed.end()
    zeros = np.zeros(N_ANTS)
    for index, used in enumerate((weights, np.ones(N_ANTS), np.ones(N_ANTS))):
        factors = beammodel.renormalisation(used, present) if index != 1 else np.ones(n)
        wanted = [beammodel.coefficients(config, used, zeros, zeros, factor) for factor in factors]
        assert check_beam(config, index, heaps_of(config, found, index), first_batch, voltages, present, wanted) >= 0.999
    check_correlation(config, found, first_batch, voltages, present)


WRONG = [
    ("beam-weights", ["nothing", *"11111"], "there is no beam 'nothing'"),
    ("beam-weights", ["bcp0", *"11111"], "there is no beam 'bcp0'"),
    ("beam-weights", ["beam0", *"1111"], "there must be 5 weights, one for each antenna, not 4"),
    ("beam-weights", ["beam0", *"1111", "x"], "a weight"),
    ("beam-weights", ["beam0", *"1111", "1e7"], "a weight must have a magnitude of at most 1e+06: '1e7'"),
    ("beam-delays", ["beam0", *["0:0"] * 4], "there must be 5 delays, one for each antenna, not 4"),
    ("beam-delays", ["beam0", *["0:0"] * 4, "0"], "a delay must be DELAY:PHASE in s and rad, not '0'"),
    ("beam-delays", ["beam0", *["0:0"] * 4, "2:0"], "the magnitude of a delay must be at most 1 s: '2:0'"),
    ("beam-delays", ["beam0", *["0:0"] * 6], "there must be 5 delays, one for each antenna, not 6"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4], "a delay must be DELAY:PHASE in s and rad, not '1700000001'"),
    ("beam-delays", ["beam0", "now", *["0:0"] * 5], "the start time must be a UNIX time in seconds, not 'now'"),
    ("beam-delays", ["beam0", "1699999999", *["0:0"] * 5], "the start time is before the sync time"),
    ("beam-delays", ["beam0", *["0:0"] * 4, "0,0:0,0"], "a model with rates needs a load time: '0,0:0,0'"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4, "0,0:0"], "a model must be delay,rate:phase,phase_rate"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4, "0,0,1:0,0,0"],
     "a beam's model must not have accelerations: '0,0,1:0,0,0'"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4, "0,2e-3:0,0"],
     "the magnitude of a delay rate must be at most 0.001 s/s"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4, "2,0:0,0"],
     "the magnitude of a delay must be at most 1 s: '2,0:0,0'"),
    ("beam-delays", ["beam0", "1700000001", *["0:0"] * 4, "0,0:0,inf"], "delays, phases and their rates must be finite"),
    ("beam-quant-gains", ["beam0", "nan"], "a gain must be"),
    ("beam-calibration", ["a9v", "1"], "there is no input 'a9v'"),
    ("beam-calibration", ["a0v", "1", "2"], "the request must have one gain or 64 gains (one for each channel of the band), not 2"),
    ("beam-calibration", ["a0v", *["1"] * 63, "x"], "a gain must be a complex number like 1-0.5j: 'x'"),
    ("beam-calibration", ["9", "1e6+1j"], "a gain must have a magnitude of at most 1e6: '1e6+1j'"),
]


def test_wrong_requests(daemon, work):
    """Each is refused with a sentence, and changes nothing."""
    fed = Fed(daemon, beams_config([{"dither_seed": 1}]), work)

    with fed.client() as client:
        for name, args, words in WRONG:
            with pytest.raises(control.FailReply) as refused:
                client.request(name, *args)
            assert words in str(refused.value), (name, args)
        assert client.value("beam0.weight") == str([1.0] * N_ANTS)
        assert client.value("beam0.delay") == "(0" + ", 0.0, 0.0" * N_ANTS + ")"
    fed.end()


def test_settings_survive(daemon, work, rng):
    """A beam's settings hold from the first batch after a restart.  A row that fits no present antenna is left out."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}])
    config["state"] = {"directory": str(work / "state")}
    (work / "state").mkdir()
    first_batch, n = 60, 12
    voltages, steering = random_voltages(rng, config, n, 40), random_steering(rng, N_ANTS)
    present = np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work, "before")

    with fed.client() as client:
        steer(client, "beam1", *steering)
        client.request("capture-start", "beam0", (first_batch + 7) * scenario.batch_samples(config))
    fed.end()
    path = work / "state" / "beams"
    path.write_text(path.read_text() + "antenna beam1 m999 1 0 0\ngain beam7 1\ngain beam1 x\n")
    fed = Fed(daemon, config, work, "after")
    fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    found = fed.end()
    assert fed.process.log.read_text().count("saved setting ignored: its beam or antenna does not exist") == 3
    coefficients = [beammodel.coefficients(config, *steering)] * n
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, coefficients) >= 0.999
    first = [h.items["timestamp"] for h in heaps_of(config, found, 0) if h.kind == "data"]
    assert first[0] == (first_batch + 7) * scenario.batch_samples(config) and len(first) == n - 7


def random_gains(rng, n):
    """complex64 [n] as complex128."""
    return (rng.uniform(0.1, 1, n) * np.exp(2j * np.pi * rng.random(n))).astype(np.complex64).astype(complex)


def calibrate(client, label, gains):
    client.request("beam-calibration", label, *(f"{g.real!r}{g.imag:+}j" for g in gains.tolist()))


@pytest.mark.parametrize("device", ["configured", "emulated"])
def test_calibration(device, daemon, work, rng, request):
    """Gains of channels from a file, by a request that is exact to the batch, and after a restart.  Settings then take
    precedence over the file. 99.9 % of the components equal double precision."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}])
    if device == "emulated":  # the CUDA device without a GPU
        request.getfixturevalue("fake_cuda")
        config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    config["state"] = {"directory": str(work / "state")}
    config["steering"] = {"calibration": str(work / "gains")}
    (work / "state").mkdir()
    gains = np.ones((2, N_ANTS, config["recv"]["channels"]), complex)
    gains[0, 0] = random_gains(rng, gains.shape[2])
    gains[1, 3, 20:30] = 0.25 - 0.5j
    (work / "gains").write_text("# a file of the whole band\n9 * 1 0\na3h 20-29 0.25 -0.5\n" + "".join(
        f"a0v {chan} {g.real!r} {g.imag!r}\n" for chan, g in enumerate(gains[0, 0].tolist())))
    first_batch, n = 300, 30
    voltages, present = random_voltages(rng, config, n, 20), np.ones((n, N_ANTS), bool)  # beams of an rms below 32
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    after = gains.copy()
    after[0, 2], after[1, 1], after[1, 3] = random_gains(rng, gains.shape[2]), 0.5j, 0

    fed = Fed(daemon, config, work, "first")
    with fed.client() as client:
        fed.write(sent[:15 * N_ANTS])
        fed.wait_taken(client)
        held = []
        for label, values in (("a2v", after[0, 2]), ("3", after[1, 1, :1]), ("a3h", after[1, 3])):
            calibrate(client, label, values)
            held.append(int(client.value("steady-state-timestamp")) // scenario.batch_samples(config) - first_batch)
        fed.write(sent[15 * N_ANTS:])
    found = fed.end()
    assert 0 < held[0] <= held[1] <= held[2] <= 15

    def expected(pol, since):
        """Beams of a batch.  Inputs in 'since' have changed."""
        calibration = gains[pol].copy()
        for input_pol, ant in since:
            calibration[ant] = after[pol, ant] if input_pol == pol else calibration[ant]
        return beammodel.coefficients(config, np.ones(N_ANTS), np.zeros(N_ANTS), np.zeros(N_ANTS), 1, calibration)

    changes = [(0, 2), (1, 1), (1, 3)]
    for pol in range(2):
        wanted = [expected(pol, [c for c, begin in zip(changes, held) if b >= begin]) for b in range(n)]
        assert check_beam(config, pol, heaps_of(config, found, pol), first_batch, voltages, present, wanted) >= 0.999

    damaged = work / "state" / "calibration@a1"
    damaged.write_text(damaged.read_text() + "a1h 64 1 0\n")
    after[1, 1] = 1
    fed = Fed(daemon, config, work, "second")
    fed.write(sent)
    found = fed.end()
    assert "calibration@a1:3: channels must be *, one channel of the band, or first-last, not 64; the file is ignored" in (
        fed.process.log.read_text())
    for pol in range(2):
        wanted = [expected(pol, changes)] * n
        assert check_beam(config, pol, heaps_of(config, found, pol), first_batch, voltages, present, wanted) >= 0.999


@pytest.mark.parametrize("line, why", [
    ("a0v * 1", "a line must have four fields: input, channels, real part and imaginary part"),
    ("m0 * 1 0", "the first field must be the label or the number of an input, not m0"),
    ("a0v 64 1 0", "channels must be *, one channel of the band, or first-last, not 64"),
    ("a0v * 1 x", "the imaginary part must be a number, not x"),
    ("a0v * 1e6 1e6", "a gain must have a magnitude of at most 1e6"),
])
def test_bad_calibration_file(line, why, daemon, work):
    """The engine does not start."""
    config = beams_config([{"dither_seed": 1}], recv={"pcap_file": str(work / "none.pcap")},
                          send={"pcap_file": str(work / "out.pcap")})
    harness.write_pcap(work / "none.pcap", [])
    (work / "gains").write_text(f"a0v * 1 0\n{line}\n")
    config["steering"] = {"calibration": str(work / "gains")}
    text = daemon("xbgpu", config).wait_end(code=78).log.read_text()
    assert f"steering.calibration: {work}/gains:2: {why}" in text, text


def test_oldest_model_is_forgotten(daemon, work, rng):
    """A model beyond the seventh takes the place of the oldest one, once the second one holds."""
    config = beams_config([{"dither_seed": 11}])
    config["state"] = {"directory": str(work / "state")}
    (work / "state").mkdir()
    first_batch, n, step = 60, 30, scenario.batch_samples(config)
    voltages, present = random_voltages(rng, config, n, 40), np.ones((n, N_ANTS), bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    models = [random_model(rng, config, (first_batch - 40 + i) * step) for i in range(7)]
    models.append(random_model(rng, config, (first_batch + 25) * step))

    fed = Fed(daemon, config, work)
    with fed.client() as client:
        for model in models[:7]:
            add_model(client, config, "beam0", model)
        with pytest.raises(control.FailReply, match="which is the maximum"):
            add_model(client, config, "beam0", models[7])
        fed.write(sent[:15 * N_ANTS])
        client.wait("beam0.tx.next-timestamp", lambda _, v: int(v) > 0, "made")
        add_model(client, config, "beam0", models[7])
        fed.write(sent[15 * N_ANTS:])
    found = fed.end()
    wanted = [beammodel.coefficients(config, np.ones(N_ANTS), *beammodel.delays_at(config, models, first_batch + b), 1)
              for b in range(n)]
    assert check_beam(config, 0, heaps_of(config, found, 0), first_batch, voltages, present, wanted) >= 0.999
    rows = [line.split()[3:] for line in (work / "state" / "beams").read_text().splitlines() if line.startswith("model")]
    assert [row[0] for row in rows] == [load_time(config, model[0]) for model in models[1:] for _ in range(N_ANTS)]
    np.testing.assert_array_equal([[float(x) for x in row[1:]] for row in rows],
                                  np.concatenate([np.stack(model[1:], -1) for model in models[1:]]))


def test_capture(daemon, work, rng):
    """A beam that is not enabled sends descriptors only, until ?capture-start with a timestamp."""
    config = beams_config([{"send_enabled": False, "dither": "none"}, {"dither": "none"}])
    first_batch, n = 30, 12
    voltages = random_voltages(rng, config, n)
    present = np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work)

    with fed.client() as client:
        client.request("capture-start", "beam0", (first_batch + 5) * scenario.batch_samples(config))
        fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    found = fed.end()
    first = [h.items["timestamp"] for h in heaps_of(config, found, 0) if h.kind == "data"]
    assert first == [(first_batch + b) * scenario.batch_samples(config) for b in range(5, n)]
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, [ones(config)] * n) == 1
