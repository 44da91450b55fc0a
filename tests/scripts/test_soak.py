"""scripts/bench/soak.py: wrong values, unexplained flags and growth are noticed."""
import importlib
import threading

import numpy as np
import pytest

import harness
import xmodel


@pytest.fixture
def soak_check(monkeypatch):
    for folder in ("scripts/bench", "scripts"):
        monkeypatch.syspath_prepend(str(harness.ROOT / folder))
    return importlib.import_module("soak_check")


class Heaps:
    """A receiver with two heaps: the right dump 9 of the second X-engine, and then the same dump with changes."""

    def __init__(self, checked, right, change):
        dump = right[9 % len(right), checked.HALF:].copy()
        changed = dump.copy()
        change(changed)
        items = [{"timestamp": n * checked.WINDOW, "xeng_raw": raw} for n, raw in ((9, dump), (9 + len(right), changed))]
        self.heaps = [harness.Heap(("239.0.0.2", 1), n, "data", item) for n, item in enumerate(items)]
        self.changed = threading.Condition()


def received(soak_check, change):
    """Compares the two heaps.  Returns (exact, flagged, wrong) baselines, and the complete dumps."""
    right = np.random.default_rng(1).integers(-1000, 1000, (soak_check.PERIOD, 2 * soak_check.HALF, 40, 2), np.int32)
    checked = soak_check.Received.__new__(soak_check.Received)
    checked.right, checked.tally = right, soak_check.Tally("receiver")
    checked.where, checked.complete, checked.newest = [("239.0.0.1", 1), ("239.0.0.2", 1)], [set(), set()], [-1, -1]
    checked.receiver = Heaps(soak_check, right, change)
    checked.refresh()
    assert checked.tally.n_dumps == 2 and checked.newest == [-1, 17]
    return (checked.tally.exact, checked.tally.flagged, checked.tally.wrong), checked.complete[1]


def test_values(soak_check):
    def flag(values):
        values[:, 4:8] = xmodel.MAGIC

    def flag_in_part(values):
        values[:-1, 4:8] = xmodel.MAGIC

    def flip(values):
        values[100, 39, 1] ^= 1

    assert received(soak_check, lambda values: None) == ((20, 0, 0), {9, 17})
    assert received(soak_check, flag) == ((19, 1, 0), {9})
    assert received(soak_check, flag_in_part) == ((19, 0, 1), {9})
    assert received(soak_check, flip) == ((19, 0, 1), {9})


@pytest.mark.parametrize("samples, grows", [
    ([(1000, 20, 5)] * 9, False),
    ([(1000 + n / 8, 20, 5) for n in range(180)], False),  # 0.75 %
    ([(1000 if n > 50 else 500, 20, 5) for n in range(180)], False),
    ([(1000 + n / 4, 20, 5) for n in range(180)], True),
    ([(1000 + 4 * n, 20, 5) for n in range(12)], False),  # a short life
    ([(1000, 20 + n // 8, 5) for n in range(12)], True),
    ([(1000, 20, 5 + n // 8) for n in range(12)], True),
])
def test_growth(soak_check, samples, grows):
    sampler = soak_check.Sampler(None)
    sampler.lives[1] = soak_check.Life("fgpu0", True)
    sampler.lives[1].samples = samples
    assert sampler.rows()[1] == grows
