"""scripts/bench/kill.py: a kill of each engine is measured, and a heap with a flag is not good."""
import importlib
import re
import subprocess
import sys

import numpy as np
import pytest

import harness
import xmodel

SCRIPT = harness.ROOT / "scripts" / "bench" / "kill.py"


@pytest.mark.skipif(harness.SANITIZED, reason="what sanitizers cost is not what it measures")
def test_rows():
    done = subprocess.run([sys.executable, SCRIPT, "--kills", "1"], capture_output=True, text=True,
                          timeout=4 * harness.TIMEOUT_S)
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| 3 \|$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["fgpu", "xbgpu"], done.stdout + done.stderr
    for _, started, ready, good, worst in rows:
        assert 0.2 <= float(started) <= float(ready) <= float(good) == float(worst)
    assert done.returncode in (0, 1)  # on a busy machine a kill may take longer than the goal


def test_good_heaps(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    kill = importlib.import_module("kill")
    assert kill.restart_s() == 0.2
    dump = np.ones((4, 12, 2), np.int32)
    assert kill.is_good(harness.Heap(("239.0.0.1", 1), 1, "data", {"xeng_raw": dump}))
    dump[3, 11] = xmodel.MAGIC
    assert not kill.is_good(harness.Heap(("239.0.0.1", 1), 1, "data", {"xeng_raw": dump}))
    assert kill.is_good(harness.Heap(("239.0.0.1", 1), 1, "data", {"feng_raw": dump}))
