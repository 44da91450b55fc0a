"""scripts/demo_gnss, whole: it finds dsim's delays and phases, and notices other values."""
import json
import os
import subprocess
import sys

import pytest

import harness


@pytest.mark.skipif(harness.SANITIZED, reason="15 s of processor time become minutes")
def test_calibrated(tmp_path, monkeypatch, capsys):
    text = (harness.ROOT / "scripts" / "demo_gnss").read_text()
    text = text.replace('ROOT / "demo-output" / "gnss"', f'Path("{tmp_path}")').replace(".relative_to(ROOT)", "")
    text = text.replace("Path(__file__).resolve().parent.parent", f'Path("{harness.ROOT}")')
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200,
                          env=os.environ | {"BUILD": str(harness.BUILD), "PYTHONPATH": str(harness.ROOT / "scripts")})
    assert done.returncode == 0 and "6 satellites, 4 antennas" in done.stdout and ": calibrated;" in done.stdout, done
    assert (tmp_path / "satellites.png").stat().st_size > 10000

    script = {"__name__": "demo_gnss"}
    exec(compile(text, "demo_gnss", "exec"), script)
    calibration = json.loads((tmp_path / "calibration.json").read_text())
    assert script["check_calibration"](calibration)
    script["DELAYS"][1] += 0.15
    assert not script["check_calibration"](calibration)
    script["SATELLITES"][31] = (45, 0, 0, 0)
    assert not script["check_followed"](script["read_records"]())
    assert "L1CA-31" in capsys.readouterr().out
