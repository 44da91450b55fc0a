"""Voltage beams of xbgpu: captures against numpy, losses, and the correlation at the same time."""
import subprocess

import numpy as np
import pytest
import yaml

import beammodel
import harness
import scenario
import xmodel
from harness import endpoints, groups

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
    """With weights of 1, beams are exact sums of the present antennas, whether dithered or not.  The correlation is
    also exact."""
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


@pytest.mark.parametrize("n_ants", [5, 19])
def test_bitmap_of_antennas(n_ants, daemon, work, rng):
    """With steering.antenna_mask spead2 reads a bitmap of the antennas that came, through its descriptor; the rest is as
    without it."""
    config = beams_config([{"dither_seed": 5}, {"dither": "none"}], recv={"antennas": n_ants},
                          steering={"antenna_mask": True})
    first_batch, n = int(rng.integers(1000)) * 2, 14
    voltages, present = random_voltages(rng, config, n), rng.random((n, n_ants)) > 0.4
    present[:3], present[2, n_ants - 1] = [[True], [False], [False]], True
    found = scenario.run_pcap(daemon, "xbgpu", config, work, scenario.feng_heaps(config, first_batch, voltages, present, rng))
    for index in range(2):
        heaps = heaps_of(config, found, index)
        assert check_beam(config, index, heaps, first_batch, voltages, present, [ones(config)] * n) == 1
        for heap in heaps[1:-1]:
            batch = heap.items["timestamp"] // scenario.batch_samples(config) - first_batch
            assert heap.items["beam_mask"].dtype == np.uint8
            np.testing.assert_array_equal(heap.items["beam_mask"], np.packbits(present[batch], bitorder="little"))
    check_correlation(config, found, first_batch, voltages, present)


def test_half_floats_are_refused(work):
    config = beams_config([{}], recv={"sample_bits": 16, "spectra_per_heap": 48})
    path = work / "half.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    done = subprocess.run([harness.BUILD / "xbgpu", "--check-config", path], capture_output=True, text=True, timeout=60,
                          env=harness.environment_of_programs())
    assert done.returncode == 78 and "beams need recv.sample_bits of 4 or 8, not 16" in done.stderr
