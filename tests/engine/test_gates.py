"""xbgpu's shifts and gates against exact sums, on captures."""
import numpy as np
import pytest

import scenario
import xmodel
from harness import endpoints
from test_xbgpu import bridge


def pad(config, first_batch, voltages, present):
    """Puts absent batches in front, back to where the first chunk begins."""
    n = first_batch % config["recv"]["batches_per_chunk"]
    return (first_batch - n, np.concatenate([np.zeros_like(voltages[:1]).repeat(n, axis=0), voltages]),
            np.concatenate([np.zeros((n, present.shape[1]), bool), present]))


def shifted(config, first_batch, voltages, came):
    """What the batches are that are correlated: only those of chunks of which something came."""
    shifts = config["recv"].get("shifts") or [0] * (2 * came.shape[1])
    voltages, present = xmodel.shift(voltages, came, shifts)
    n_batches = config["recv"]["batches_per_chunk"]
    for chunk in range(0, len(came), n_batches):
        present[chunk:chunk + n_batches] &= came[chunk:chunk + n_batches].any()
    return voltages, present


def run(daemon, work, config, first_batch, voltages, present, rng, name="run", **write):
    """Runs xbgpu over the voltages and compares every output with the model.  Returns the expected dumps by output."""
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent, name, **write)
    first_batch, voltages, came = pad(config, first_batch, voltages, present)
    voltages, present = shifted(config, first_batch, voltages, came)
    out = []
    for o, output in enumerate(config["outputs"]):
        expected = xmodel.dumps(first_batch, voltages, present, output["integration_batches"],
                                output.get("missing", "flag"), output.get("missing_dump", "send"), came=came)
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(config, o, found[endpoint], expected, f"{name} {config['recv']}")
        out.append(expected)
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
    vis = dumps[4][0].astype(np.int64)
    auto = vis[:, 4 * xmodel.baseline(0, 0)]
    assert np.array_equal(vis[:, 4 * xmodel.baseline(0, 1)], auto)
