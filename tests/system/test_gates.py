"""xbgpu's shifts and gates against exact sums, on captures."""
import subprocess

import numpy as np
import pytest
import yaml

import harness
import scenario
import xmodel
from harness import endpoints
from test_xbgpu import bridge


def pad(config, first_batch, voltages, present):
    """Puts absent batches in front, back to the start of the first chunk."""
    n = first_batch % config["recv"]["batches_per_chunk"]
    return (first_batch - n, np.concatenate([np.zeros_like(voltages[:1]).repeat(n, axis=0), voltages]),
            np.concatenate([np.zeros((n, present.shape[1]), bool), present]))


def shifted(config, first_batch, voltages, came, own=None):
    """The correlated batches, with an output's own shifts: only batches of chunks with a received heap."""
    shifts = own or config["recv"].get("shifts") or [0] * (2 * came.shape[1])
    voltages, present = xmodel.shift(voltages, came, shifts)
    n_batches = config["recv"]["batches_per_chunk"]
    for chunk in range(0, len(came), n_batches):
        present[chunk:chunk + n_batches] &= came[chunk:chunk + n_batches].any()
    return voltages, present


def expect(config, output, first_batch, voltages, present, came):
    """The dumps of an output, of batches that are padded and shifted."""
    how = {"missing": output.get("missing", "flag"), "missing_dump": output.get("missing_dump", "send"), "came": came,
           "n_buffers": output.get("buffers", 0)}
    length = output["integration_batches"]
    if not output.get("gate"):
        return xmodel.dumps(first_batch, voltages, present, length, **how)
    (gate,) = (g for g in config["gates"] if g["name"] == output["gate"])
    mask = xmodel.taken(config, gate, first_batch, len(came))
    return xmodel.gated_dumps(first_batch, voltages, present, length, mask, bool(gate.get("dispersion_measure")), **how)


def check_gate(config, output, heaps, expected):
    """A dump's gate figures."""
    dumps = [h for h in heaps if h.kind == "data"]
    for heap, dump in zip(dumps, expected.values()):
        if not output.get("gate"):
            assert not {"gate", "gate_spectra"} & set(heap.items)
            continue
        assert [g["name"] for g in config["gates"]].index(output["gate"]) == heap.items["gate"]
        assert np.array_equal(np.atleast_1d(heap.items["gate_spectra"]), dump[3]), output


def run(daemon, work, config, first_batch, voltages, present, rng, name="run", **write):
    """Runs xbgpu over the voltages and compares every output with the model.  Returns the heaps by output."""
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent, name, **write)
    first_batch, voltages, came = pad(config, first_batch, voltages, present)
    out = []
    for o, output in enumerate(config["outputs"]):
        expected = expect(config, output, first_batch, *shifted(config, first_batch, voltages, came, output.get("shifts")),
                          came)
        (endpoint,) = endpoints(output["destination"])
        plain = {window: dump[:3] for window, dump in expected.items()}
        scenario.check_dumps(config, o, found[endpoint], plain, f"{name} {config['recv']}")
        check_gate(config, output, found[endpoint], expected)
        out.append([h.items for h in found[endpoint] if h.kind == "data"])
    return out


def shifts_config(rng, shifts, **recv):
    return scenario.xbgpu_config(
        outputs=[{"integration_batches": 1, "missing": "weights", "audit_samples": 16},
                 {"integration_batches": 3, "audit_samples": 16}, {"integration_batches": 8, "missing": "weights"},
                 {"integration_batches": 5, "missing_dump": "skip"}],
        recv={"antennas": len(shifts) // 2, "batches_per_chunk": 4, "spectra_per_heap": 16, "chunks": 10,
              "shifts": [int(s) for s in shifts]} | recv)


@pytest.mark.parametrize("shifts", [
    [0, 0, 5, 5, 0, 11],         # later only: nothing lags
    [0, 0, -5, -5, -11, 0],      # ahead only
    [3, -7, 0, 1, -1, 15],
    [16, 16, -16, -16, 0, 0],    # by exactly a heap
    [16, 0, 0, -16, 16, -16],
    [-16, -16, -16, -16, -16, -16],
    [16, 16, 16, 16, 16, 16],
    [0, 0, 0, 0, 0, 0],
], ids=str)
@pytest.mark.parametrize("n_batches", [1, 4])
def test_shifts(shifts, n_batches, daemon, work, rng):
    """Both signs across batches and chunks, heaps lost on either side of each edge, and of all antennas for a while."""
    config = shifts_config(rng, shifts, batches_per_chunk=n_batches, threads=int(rng.integers(1, 4)),
                           window=2 if n_batches == 4 else 6, chunks=20)
    voltages = scenario.random_voltages(rng, config, 43)
    voltages[9:11] = -128
    present = rng.random((43, 3)) >= 0.03
    for batch in (3, 4, 7, 12):  # the ends and beginnings of chunks
        present[batch, rng.integers(0, 3)] = False
    present[20:24] = False  # a chunk that is not there at all
    present[33:35, 1] = False
    bridge(present, config)
    dumps = run(daemon, work, config, int(rng.choice([0, 3, 4, 2**30 + 5])), voltages, present, rng)
    assert len(dumps[1]) >= 11


@pytest.mark.parametrize("case", range(12))
def test_random_shifts(case, daemon, work, rng):
    """Anything goes."""
    n_ants, n_spectra = int(rng.integers(1, 6)), 16 * int(rng.integers(1, 4))
    low, high = sorted(rng.integers(-n_spectra, n_spectra + 1, 2))
    shifts = rng.integers(low, high + 1, 2 * n_ants)
    config = shifts_config(rng, shifts, spectra_per_heap=n_spectra, batches_per_chunk=int(rng.integers(1, 9)),
                           threads=int(rng.integers(1, n_ants + 1)), window=int(rng.integers(1, 4)), chunks=14)
    voltages = scenario.random_voltages(rng, config, int(rng.integers(20, 50)))
    present = rng.random(voltages.shape[:2]) >= rng.choice([0, 0.02, 0.1])
    present[:, rng.integers(0, n_ants)] &= rng.random(len(present)) >= 0.1
    bridge(present, config)
    run(daemon, work, config, int(rng.integers(0, 100)), voltages, present, rng)


@pytest.mark.parametrize("recv_shifts, shifts", [
    ([], [[0, 0, 5, 5, 0, 11], [0] * 6]),                                 # nothing lags
    ([], [[0, 0, -5, -5, -11, 0], [16, -16, 3, 0, 0, -16]]),
    ([3, -7, 0, 1, -1, 15], [[0] * 6, [-16] * 6, [16, 0, 0, 0, 0, 0]]),
    ([3, -7, 0, 1, -1, 15], [[3, -7, 0, 1, -1, 15]]),
], ids=str)
def test_shifts_of_outputs(recv_shifts, shifts, daemon, work, rng):
    """Outputs with their own shifts beside outputs with the common ones, with gates and without, and with heaps
    lost."""
    config = shifts_config(rng, recv_shifts, antennas=3, batches_per_chunk=int(rng.integers(1, 6)), window=4, chunks=20)
    config["gates"] = [{"kind": "switch", "name": "on", "period": 5001, "on_until": 2300}]
    own = scenario.xbgpu_config(
        outputs=[{"name": f"own{i}-{length}", "integration_batches": length, "missing": "weights", "audit_samples": 16,
                  "shifts": by} | gate for i, by in enumerate(shifts) for length, gate in ((3, {}), (4, {"gate": "on"}))])
    config["outputs"][1:1] = own["outputs"]
    present = losses(rng, config)
    present[20:24] = False
    bridge(present, config)
    run(daemon, work, config, int(rng.choice([0, 3, 2**30 + 5])), scenario.random_voltages(rng, config, 40), present, rng)


def test_lag_function(daemon, work, rng):
    """Side by side, by one xbgpu, from a signal that reaches the second antenna 5 spectra later; against numpy's."""
    lags, n = range(-8, 9), 64
    config = shifts_config(rng, [], antennas=2)
    outputs = [{"integration_batches": 4, "shifts": [0, 0, lag, lag], "audit_samples": 8} for lag in lags]
    config["outputs"] = scenario.xbgpu_config(outputs=outputs)["outputs"]
    series = rng.integers(-90, 91, (12 * 16 + 5, 4, 2), np.int8)
    voltages = np.empty((12, 2, 4, 16, 2, 2), np.int8)
    for ant, late in enumerate((0, 5)):
        for pol in range(2):
            moved = series[5 - late:][:12 * 16] // (1 + pol)
            voltages[:, ant, :, :, pol] = moved.reshape(12, 16, 4, 2).swapaxes(1, 2)
    dumps = run(daemon, work, config, 0, voltages, np.ones((12, 2), bool), rng)
    middle = [next(d for d in one if d["timestamp"] == n * 128)["xeng_raw"] for one in dumps]
    for chan in range(4):
        e = [voltages[:, ant, chan, :, 0].reshape(-1, 2).astype(float) @ [1, 1j] for ant in range(2)]
        wanted = np.correlate(e[1][n - 8:2 * n + 8], e[0][n:2 * n], "valid").conj()[::-1]
        found = np.array([vis[chan, 4 * xmodel.baseline(0, 1)] for vis in middle]) @ [1, 1j]
        assert np.array_equal(found, wanted)
        assert lags[np.argmax(np.abs(found))] == -5


def test_shift_is_a_delay(daemon, work, rng):
    """An input that is 7 spectra early, and shifted by 7, agrees with the others."""
    config = shifts_config(rng, [0, 0, 7, 0])
    config["outputs"] = config["outputs"][1:2]
    n = 24 * 16
    series = rng.integers(-128, 128, (n + 7, 4, 2), np.int8)
    voltages = np.empty((24, 2, 4, 16, 2, 2), np.int8)
    for ant in range(2):
        for pol in range(2):
            by = 7 if (ant, pol) == (1, 0) else 0
            voltages[:, ant, :, :, pol] = series[by:by + n].reshape(24, 16, 4, 2).swapaxes(1, 2)
    (dumps,) = run(daemon, work, config, 0, voltages, np.ones((24, 2), bool), rng)
    vis = dumps[4]["xeng_raw"].astype(np.int64)
    auto = vis[:, 4 * xmodel.baseline(0, 0)]
    assert np.array_equal(vis[:, 4 * xmodel.baseline(0, 1)], auto)


# ---- Gates -----------------------------------------------------------------------------------------------------------

RATE = 1712000000


def gates_config(rng, gates, outputs, **recv):
    """Each output of every gate, and one without."""
    recv = {"antennas": 3, "batches_per_chunk": 4, "spectra_per_heap": 16, "samples_between_spectra": 128,
            "chunks": 10} | recv
    return scenario.xbgpu_config(
        outputs=[output | {"gate": g} for output in outputs for g in ["", *(gate["name"] for gate in gates)]],
        recv=recv, gates=gates)


OUTPUTS = [{"integration_batches": 3, "missing": "weights", "audit_samples": 16},
           {"integration_batches": 5, "audit_samples": 16}]


def losses(rng, config, n_batches=40):
    present = rng.random((n_batches, config["recv"]["antennas"])) >= 0.05
    present[9] = False  # a batch without any heap in a chunk that came
    present[16:20] = False
    present[-1] = True
    bridge(present, config)
    return present


def phase_gates(n_bins, parts, **gate):
    """Gates that share a phase, and its bins by turns."""
    return [{"kind": "phase", "name": f"part{i}", "bins": n_bins, "take": list(range(i, n_bins, parts))} | gate
            for i in range(parts)]


PHASES = {
    "slow": dict(frequency=29.946923),  # longer than the recording
    "some per heap": dict(frequency="150321.712345678901", phase="0.123456789012345678"),
    "half a spectrum": dict(frequency="26750001.9", phase=-0.7),
    "faster than spectra": dict(frequency=98765432.1),  # 7.4 turns from one to the next
    "falling": dict(frequency="300321.7", frequency_derivative="-999.5", epoch=-(2**48) + 12345),
    "rising": dict(frequency="300321.7", frequency_derivative="3.5e-9", epoch=2**47),
    "by clock": dict(frequency="150321.7", epoch_time="1699999999.123456789"),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("first_batch", [0, 3, 2**30 + 5])
def test_phase(phase, first_batch, daemon, work, rng):
    """A pulsar's bins, taken by turns, with heaps lost."""
    config = gates_config(rng, phase_gates(7, 2, **PHASES[phase]), OUTPUTS)
    present = losses(rng, config)
    run(daemon, work, config, first_batch, scenario.random_voltages(rng, config, 40), present, rng)


@pytest.mark.parametrize("period, on_from, on_until", [
    (1, 0, 1), (128, 0, 1), (129, 0, 128), (2048, 0, 1024), (2047, 2000, 10), (100003, 777, 50001), (2**50 + 1, 5, 10**6)])
def test_switch(period, on_from, on_until, daemon, work, rng):
    """A calibration signal, on and off, that fits nothing."""
    gates = [{"kind": "switch", "name": "on", "period": period, "on_from": on_from, "on_until": on_until, "epoch": 77}]
    if on_until - on_from != period:
        gates.append(gates[0] | {"name": "off", "on_from": on_until % period, "on_until": on_from or period})
    config = gates_config(rng, gates, OUTPUTS)
    run(daemon, work, config, int(rng.choice([0, 3, 2**30 + 5])), scenario.random_voltages(rng, config, 40),
        losses(rng, config), rng)


@pytest.mark.parametrize("reference", [0, 1.4e9])
def test_dispersion(reference, daemon, work, rng):
    """Channels have the pulse at different times, so counts and weights are by channel."""
    gates = phase_gates(9, 3, frequency="31234.5678", dispersion_measure=478.8, centre_frequency=856e6,
                        reference_frequency=reference)
    config = gates_config(rng, gates, OUTPUTS, channels_per_substream=8, channel_offset=16)
    dumps = run(daemon, work, config, 5, scenario.random_voltages(rng, config, 40), losses(rng, config), rng)
    assert dumps[1][2]["xeng_weights"].shape == (8, 6)
    assert len(set(map(tuple, dumps[1][2]["xeng_weights"].T))) > 0
    assert any(len(set(items["gate_spectra"])) > 1 for items in dumps[1])


@pytest.mark.parametrize("shifts", [[], [3, -7, 0, 1, -1, 15]], ids=str)
@pytest.mark.parametrize("dispersion", [0, 123.4])
@pytest.mark.parametrize("parts", [2, 16])
def test_complementary(parts, dispersion, shifts, daemon, work, rng):
    """Gates that leave nothing out and share nothing add up to an output without a gate, bit for bit."""
    gates = phase_gates(32, parts, frequency="99321.7", dispersion_measure=dispersion, centre_frequency=856e6)
    config = gates_config(rng, gates, OUTPUTS, shifts=shifts, spectra_per_heap=48)
    dumps = run(daemon, work, config, 3, scenario.random_voltages(rng, config, 40), losses(rng, config), rng)
    for first in (0, parts + 1):
        n_compared = 0
        assert len({len(d) for d in dumps[first:first + parts + 1]}) == 1
        for whole, *pieces in zip(*dumps[first:first + parts + 1]):
            flags = (whole["xeng_raw"] == xmodel.MAGIC).all(-1)
            for piece in pieces:
                assert piece["timestamp"] == whole["timestamp"]
                assert np.array_equal((piece["xeng_raw"] == xmodel.MAGIC).all(-1), flags)
            total = sum(piece["xeng_raw"].astype(np.int64) for piece in pieces)
            assert np.array_equal(total[~flags], whole["xeng_raw"][~flags])
            n_compared += np.count_nonzero(~flags)
            if "xeng_weights" in whole:
                total = sum(piece["xeng_weights"].astype(np.int64) for piece in pieces)
                assert np.array_equal(np.broadcast_to(whole["xeng_weights"], total.shape), total)
        assert n_compared > 0


def test_nothing_taken(daemon, work, rng):
    """A gate that takes no spectrum of a window: zeros in place of visibilities, and no spectra."""
    gates = [{"kind": "switch", "name": "late", "period": 2**40, "on_from": 128 * 16 * 30, "on_until": 2**39}]
    config = gates_config(rng, gates, [{"integration_batches": 5}, {"integration_batches": 5, "missing": "weights"}])
    present = np.ones((40, 3), bool)
    present[12, 1] = False
    dumps = run(daemon, work, config, 0, scenario.random_voltages(rng, config, 40), present, rng)
    assert len(dumps[1]) == 8 and not dumps[1][1]["xeng_raw"].any() and not dumps[1][1]["gate_spectra"].any()
    assert not dumps[3][1]["xeng_weights"].any() and dumps[3][7]["gate_spectra"].tolist() == [80] * 4


@pytest.mark.parametrize("shifts", [[], [3, -7, 0, 1, -1, 15]], ids=str)
def test_accumulations_without_a_heap(shifts, daemon, work, rng):
    """With a gate they are sent as all missing, too: no spectra, no weights."""
    gates = [{"kind": "switch", "name": "on", "period": 5001, "on_until": 2300}]
    outputs = [{"integration_batches": 1, "missing": missing, "missing_dump": "always", "buffers": 20}
               for missing in ("flag", "weights")]
    config = gates_config(rng, gates, outputs, shifts=shifts)
    present = losses(rng, config)
    dumps = run(daemon, work, config, 3, scenario.random_voltages(rng, config, 40), present, rng)
    assert len(dumps[1]) >= 38 and sum(not items["gate_spectra"].any() for items in dumps[3]) >= 5


@pytest.mark.parametrize("bits", [8, 16])
def test_long_accumulations(bits, daemon, work, rng):
    """Accumulations that fit sums of 32 bits only because gates leave spectra out, and accumulations that do not
    fit."""
    n_spectra = {8: 4080, 16: 512}[bits]
    gates = [{"kind": "switch", "name": "odd", "period": 2049, "on_until": 1000},
             {"kind": "switch", "name": "all", "period": 10, "on_until": 10}]
    outputs = [{"integration_batches": n, "missing": "weights"} for n in (16, 17, 55)]
    config = gates_config(rng, gates, outputs, antennas=2, spectra_per_heap=n_spectra, channels_per_substream=1,
                          sample_bits=bits)
    voltages = scenario.random_voltages(rng, config, 60)
    if bits == 8:
        voltages[:, 0] = -128
        voltages[:, 1] = np.array([[-128, -128], [127, 127]], np.int8)
    present = rng.random((60, 2)) >= 0.03
    present[-1] = True
    bridge(present, config)
    run(daemon, work, config, 1, voltages, present, rng)


@pytest.mark.parametrize("case", range(12))
def test_random_gates(case, daemon, work, rng):
    """Shifts, gates of both kinds, dispersion, odd sizes, several streams of a gate."""
    n_ants, n_spectra = int(rng.integers(1, 5)), 16 * int(rng.integers(1, 6))
    step = int(rng.integers(1, 300))
    heap = step * n_spectra
    gates = [{"kind": "phase", "name": "p", "frequency": f"{RATE / heap * rng.uniform(0, 30):.7f}", "phase": f"{rng.random():.12f}",
              "bins": 13, "take": [int(b) for b in rng.permutation(13)[:rng.integers(1, 13)]],
              "dispersion_measure": float(rng.choice([0, 1, 1000])), "centre_frequency": 20e9},
             {"kind": "switch", "name": "s", "period": 3 * heap + 1, "on_from": int(rng.integers(0, heap)),
              "on_until": int(rng.integers(heap, 3 * heap)), "epoch": int(rng.integers(-10**9, 10**9))}]
    config = gates_config(
        rng, gates, [{"integration_batches": int(rng.integers(1, 13)), "missing": str(rng.choice(["flag", "weights"])),
                      "buffers": int(rng.integers(2, 5)), "audit_samples": 8} for _ in range(2)],
        antennas=n_ants, spectra_per_heap=n_spectra, samples_between_spectra=step, window=int(rng.integers(1, 4)),
        batches_per_chunk=int(rng.integers(1, 9)), threads=int(rng.integers(1, n_ants + 1)), chunks=14,
        shifts=[int(s) for s in rng.integers(-n_spectra, n_spectra + 1, 2 * n_ants)] if rng.random() < 0.5 else [],
        sample_bits=(8, 4, 16)[case % 3], sample_encoding="offset" if case % 3 == 1 else "twos_complement")
    present = rng.random((36, n_ants)) >= 0.05
    bridge(present, config)
    run(daemon, work, config, int(rng.integers(0, 100)), scenario.random_voltages(rng, config, 36), present, rng)


@pytest.mark.parametrize("bits, encoding", [(8, "twos_complement"), (4, "offset"), (16, "twos_complement")])
def test_emulated(bits, encoding, daemon, work, rng, fake_cuda):
    """The CUDA variants of all kernels, on a device without a GPU: shifts of all and of outputs, and gates with and
    without dispersion."""
    gates = phase_gates(9, 1, frequency="99321.7", dispersion_measure=478.8, centre_frequency=856e6)
    gates[0]["take"] = [1, 2, 5]
    gates.append({"kind": "switch", "name": "on", "period": 5001, "on_until": 2300})
    config = gates_config(rng, gates, OUTPUTS[:1], shifts=[3, -7, 0, 1, -1, 15], channels_per_substream=2,
                          sample_bits=bits, sample_encoding=encoding)
    for output in config["outputs"][:2]:  # with a gate and without
        output["shifts"] = [0, 16, -16, 2, 2, -3]
    config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    present = losses(rng, config, 24)
    run(daemon, work, config, 3, scenario.random_voltages(rng, config, 24), present, rng)


@pytest.mark.parametrize("bits, n_spectra", [(8, 4096), (16, 512)])
def test_emulated_totals(bits, n_spectra, daemon, work, rng, fake_cuda):
    """The same, of accumulations that sums of 32 bits do not hold."""
    gates = [{"kind": "switch", "name": "on", "period": 5001, "on_until": 2300}]
    config = gates_config(rng, gates, [{"integration_batches": 18, "missing": "weights"}], antennas=2,
                          spectra_per_heap=n_spectra, channels_per_substream=1, sample_bits=bits)
    config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    voltages = scenario.random_voltages(rng, config, 18)
    if bits == 8:
        voltages[:, 0] = -128
    run(daemon, work, config, 0, voltages, np.ones((18, 2), bool), rng)


# ---- Mistakes --------------------------------------------------------------------------------------------------------

PULSE = {"kind": "phase", "name": "pulse", "frequency": 30, "bins": 4, "take": [0]}
CAL = {"kind": "switch", "name": "pulse", "period": 100, "on_until": 50}


@pytest.mark.parametrize("gate, recv, says", [
    ({}, {"shifts": [1, 2, 3]}, "shifts must have 6 items, one for each polarisation of 3 antennas, not 3"),
    ({"output": [1, 2, 3]}, {}, "shifts must have 6 items, one for each polarisation of 3 antennas, not 3"),
    ({"output": [0, 17, 0, 0, 0, 0]}, {}, "a shift of 17 spectra, of polarisation 1 of antenna 0, is longer than a heap of 16"),
    ({"output": [0, 1, 0, 0, 0, -1]}, {"chunks": 8}, "chunks must be at least 9 with a window of 2 and shifts, not 8"),
    ({}, {"shifts": [0, 17, 0, 0, 0, 0]}, "a shift of 17 spectra, of polarisation 1 of antenna 0, is longer than a heap of 16"),
    ({}, {"shifts": [0, 0, 0, 0, -17, 0]}, "a shift of -17 spectra, of polarisation 0 of antenna 2, is longer than a heap of 16"),
    ({}, {"shifts": [0, 1, 0, 0, 0, -1], "chunks": 8}, "chunks must be at least 9 with a window of 2 and shifts, not 8"),
    ({"name": "other"}, {}, "no output uses gate other"),
    ({"name": "other"}, {}, "output bcp0 has gate pulse, but gates has no gate of that name"),
    ({"take": [4]}, {}, "gate pulse takes bin 4, but the last of its 4 bins is bin 3"),
    ({"take": []}, {}, "gate pulse takes no bins"),
    ({"frequency": 2e9}, {}, "gate pulse has a frequency of 2e+09 Hz, but the frequency must be below adc_sample_rate"),
    ({"epoch": 5, "epoch_time": 1700000001}, {}, "gate pulse needs one of epoch and epoch_time, not both"),
    ({"dispersion_measure": 3}, {}, "gate pulse with a dispersion_measure needs a centre_frequency"),
    ({"dispersion_measure": 3, "centre_frequency": 1e6}, {}, "channel 8 would be at -320000000 Hz, but must be above 0 Hz"),
    ({"dispersion_measure": 1e5, "centre_frequency": 3.30e8, "reference_frequency": 1}, {},
     "gate pulse with a dispersion_measure of 100000 delays a channel by 7.1e+29 samples, more than 2^60"),
    ({"period": 100}, {}, "period"),
    (CAL | {"on_until": 101}, {}, "gate pulse is on from sample 0 until sample 101, but its period has only 100 samples"),
    (CAL | {"on_from": 50}, {}, "gate pulse is on from sample 50 until the same"),
    (CAL | {"bins": 4}, {}, "bins"),
])
def test_mistakes(gate, recv, says, work):
    """One sentence each, at the place."""
    base = {} if gate.get("kind") == "switch" else PULSE
    gate = dict(gate)
    output = {"gate": "pulse", "shifts": gate.pop("output", [])}
    config = scenario.xbgpu_config(outputs=[output], recv={"antennas": 3} | recv, gates=[base | gate])
    path = work / "mistake.yaml"
    path.write_text(yaml.safe_dump(config))
    result = subprocess.run([harness.BUILD / "xbgpu", "--check-config", path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 78
    assert any(says in line and line.startswith(f"{path}:") for line in result.stderr.splitlines()), result.stderr


def test_memory_is_said(daemon, work):
    """The requirements of streams and gates are checked before anything is made."""
    gates = phase_gates(32, 16, frequency=30, dispersion_measure=1, centre_frequency=1284e6)
    config = scenario.xbgpu_config(
        outputs=[{"gate": g["name"], "missing": "weights", "buffers": 65536} for g in gates], gates=gates,
        recv={"antennas": 1024, "channels": 4096, "channels_per_substream": 64, "channel_offset": 64,
              "samples_between_spectra": 8192})
    process = daemon("xbgpu", config, "large")
    process.wait_end(code=78)
    log = process.log.read_text()
    assert "recv.batches_per_chunk" in log and "MiB" in log, log
