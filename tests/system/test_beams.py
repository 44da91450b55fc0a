"""Voltage beams of xbgpu: captures against numpy, requests by aiokatcp to the batch, losses, and the correlation beside."""
import asyncio
import subprocess

import numpy as np
import pytest
import yaml

import beammodel
import harness
import scenario
import test_xbgpu
import test_xbgpu_katcp
import xmodel
from harness import endpoints, groups
from test_xbgpu_katcp import Fed, reading

N_ANTS = 5


def beams_config(beams, outputs=({"integration_batches": 2},), **sections):
    recv = {"antennas": N_ANTS, "channels": 64, "channels_per_substream": 8, "channel_offset": 24, "spectra_per_heap": 48,
            "samples_between_spectra": 128, "batches_per_chunk": 3} | sections.pop("recv", {})
    config = scenario.xbgpu_config(outputs, recv=recv, **sections)
    config["beams"] = [{"name": f"beam{i}", "pol": i % 2, "destination": groups()} | beam for i, beam in enumerate(beams)]
    return config


def random_voltages(rng, config, n_batches, limit=24):
    recv = config["recv"]
    shape = (n_batches, recv["antennas"], recv["channels_per_substream"], recv["spectra_per_heap"], 2, 2)
    return rng.integers(-limit, limit + 1, shape, np.int8)


def check_beam(config, index, heaps, first_batch, voltages, present, coefficients, what=""):
    """Compares a beam's heaps with the model; coefficients[batch].  Returns the share of equal components."""
    recv, conf = config["recv"], config["beams"][index]
    n_spectra = recv["spectra_per_heap"]
    assert heaps[0].kind == "descriptor" and heaps[-1].kind == "stop"
    data = {h.items["timestamp"]: h for h in heaps[1:-1]}
    wanted = [b for b in range(len(voltages)) if present[b].any()]
    assert list(data) == [(first_batch + b) * scenario.batch_samples(config) for b in wanted], what
    off = []
    for batch, heap in zip(wanted, data.values()):
        assert heap.items["frequency"] == recv["channel_offset"]
        assert heap.items["beam_ants"] == present[batch].sum()
        found = heap.items["bf_raw"]
        assert found.shape == (recv["channels_per_substream"], n_spectra, 2) and found.dtype == np.int8
        one = slice(batch, batch + 1)
        values = beammodel.beam(voltages[one], present[one], conf["pol"], coefficients[batch])[0]
        values = np.stack([values.real, values.imag], -1)
        if conf.get("dither", "uniform") == "uniform":
            values = values + beammodel.dither(config, conf["dither_seed"], (first_batch + batch) * n_spectra, n_spectra)
        off.append(np.abs(found.astype(int) - beammodel.quantise(values)[0]))
    off = np.array(off)
    assert off.max() <= 1, what
    return (off == 0).mean()


def check_correlation(config, found, first_batch, voltages, present):
    expected = xmodel.dumps(first_batch, voltages, present, config["outputs"][0]["integration_batches"], "flag", "send")
    (where,) = endpoints(config["outputs"][0]["destination"])
    scenario.check_dumps(config, 0, found[where], expected, "beside beams")


def heaps_of(config, found, index):
    (where,) = endpoints(config["beams"][index]["destination"])
    return found[where]


def ones(config):
    n = config["recv"]["antennas"]
    return beammodel.coefficients(config, np.ones(n), np.zeros(n), np.zeros(n), 1)


@pytest.mark.parametrize("bits", [8, 4])
def test_plain_sums(bits, daemon, work, rng):
    """Weights of 1: beams are exact sums, whether dithered or not, of the antennas that were there; the correlation beside
    is exact as well."""
    config = beams_config([{"dither": "none"}, {"dither_seed": 5}, {"dither_seed": 7, "pol": 0}],
                          recv={"sample_bits": bits})
    first_batch, n = int(rng.integers(1000)) * 2, 14
    voltages = random_voltages(rng, config, n, 24 if bits == 8 else 7)
    present = rng.random((n, N_ANTS)) > 0.2
    present[4] = False  # a batch of which nothing comes
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    for index in range(3):
        equal = check_beam(config, index, heaps_of(config, found, index), first_batch, voltages, present,
                           [ones(config)] * n, f"beam {index}")
        assert equal == 1
    check_correlation(config, found, first_batch, voltages, present)


def test_half_floats_are_refused(work):
    config = beams_config([{}], recv={"sample_bits": 16, "spectra_per_heap": 48})
    path = work / "half.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    done = subprocess.run([harness.BUILD / "xbgpu", "--check-config", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "beams need recv.sample_bits of 4 or 8, not 16" in done.stderr


def random_steering(rng, n):
    """weights, delays, phases, gain"""
    return rng.uniform(-1, 1, n), rng.uniform(-1e-5, 1e-5, n), rng.uniform(-np.pi, np.pi, n), rng.uniform(0.2, 0.6)


async def steer(client, name, weights, delays, phases, gain):
    await client.request("beam-weights", name, *map(float, weights))
    await client.request("beam-delays", name, *(f"{float(d)!r}:{float(p)!r}" for d, p in zip(delays, phases)))
    await client.request("beam-quant-gains", name, float(gain))


async def change_in_the_middle(fed, config, voltages, first_batch, first, second, n_before):
    """Feeds a part, steers beam 0 anew, feeds the rest.  Returns the batch that steady-state-timestamp says."""
    present = np.ones(voltages.shape[:2], bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present)
    async with fed.client() as client:
        await steer(client, "beam0", *first)
        fed.write(sent[:n_before * N_ANTS])
        await test_xbgpu_katcp.wait_for(client, "rx.timestamp", lambda v: int(v) >= 0, "data")
        await steer(client, "beam0", *second)
        steady = int((await reading(client, "steady-state-timestamp"))[2])
        time_s, status, text = await reading(client, "beam0.delay")
        shown = [float(x) for x in text.strip("()").split(",")]
        np.testing.assert_array_equal(shown[1:], np.stack(second[1:3], -1).ravel())
        assert status == "nominal" and shown[0] == steady
        assert (await reading(client, "beam0.weight"))[2] == str([float(w) for w in second[0]])
        assert float((await reading(client, "beam0.quantiser-gain"))[2]) == second[3]
        assert (await reading(client, "beam0.dither-seed"))[2] == "11"
        fed.write(sent[n_before * N_ANTS:])
    return steady // scenario.batch_samples(config) - first_batch


def test_steering_holds_from_a_batch(daemon, work, rng):
    """Weights, delays and gains by KATCP: exact to the batch that steady-state-timestamp says, and 99.9 % of the components
    as double precision has them."""
    config = beams_config([{"dither_seed": 11}, {"dither_seed": 12}])
    first_batch, n = 300, 30
    voltages = random_voltages(rng, config, n, 100)
    present = np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work)
    first, second = random_steering(rng, N_ANTS), random_steering(rng, N_ANTS)
    changed = asyncio.run(change_in_the_middle(fed, fed.config, voltages, first_batch, first, second, 15))
    found = fed.end()
    assert 0 < changed <= 15
    coefficients = [beammodel.coefficients(config, *(first if b < changed else second)) for b in range(n)]
    assert check_beam(config, 0, heaps_of(config, found, 0), first_batch, voltages, present, coefficients) >= 0.999
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, [ones(config)] * n) >= 0.999
    check_correlation(config, found, first_batch, voltages, present)


WRONG = [
    ("beam-weights", ["nothing", *"11111"], "there is no beam 'nothing'"),
    ("beam-weights", ["bcp0", *"11111"], "there is no beam 'bcp0'"),
    ("beam-weights", ["beam0", *"1111"], "there must be 5 weights, one for each antenna, not 4"),
    ("beam-weights", ["beam0", *"1111", "x"], "a weight"),
    ("beam-weights", ["beam0", *"1111", "1e7"], "a weight must be at most 1e+06 either way: '1e7'"),
    ("beam-delays", ["beam0", *["0:0"] * 4], "there must be 5 delays, one for each antenna, not 4"),
    ("beam-delays", ["beam0", *["0:0"] * 4, "0"], "a delay must be DELAY:PHASE in s and rad, not '0'"),
    ("beam-delays", ["beam0", *["0:0"] * 4, "2:0"], "a delay must be at most 1 s either way: '2:0'"),
    ("beam-quant-gains", ["beam0", "nan"], "a gain must be"),
]


def test_wrong_requests(daemon, work):
    """Each is refused with a sentence, and changes nothing."""
    fed = Fed(daemon, beams_config([{"dither_seed": 1}]), work)

    async def ask():
        async with fed.client() as client:
            for name, args, words in WRONG:
                with pytest.raises(Exception) as refused:
                    await client.request(name, *args)
                assert words in str(refused.value), (name, args)
            assert (await reading(client, "beam0.weight"))[2] == str([1.0] * N_ANTS)
            assert (await reading(client, "beam0.delay"))[2] == "(0" + ", 0.0, 0.0" * N_ANTS + ")"
    asyncio.run(ask())
    fed.end()


def test_capture(daemon, work, rng):
    """A beam that is not enabled sends descriptors only, until ?capture-start with a timestamp; ?capture-stop ends it."""
    config = beams_config([{"send_enabled": False, "dither": "none"}, {"dither": "none"}])
    first_batch, n = 30, 12
    voltages = random_voltages(rng, config, n)
    present = np.ones((n, N_ANTS), bool)
    fed = Fed(daemon, config, work)

    async def ask():
        async with fed.client() as client:
            await client.request("capture-start", "beam0", (first_batch + 5) * scenario.batch_samples(config))
            fed.write(scenario.feng_heaps(config, first_batch, voltages, present))
    asyncio.run(ask())
    found = fed.end()
    first = [h.items["timestamp"] for h in heaps_of(config, found, 0) if h.kind == "data"]
    assert first == [(first_batch + b) * scenario.batch_samples(config) for b in range(5, n)]
    assert check_beam(config, 1, heaps_of(config, found, 1), first_batch, voltages, present, [ones(config)] * n) == 1
