"""scripts/demo_beam, whole: one beam has the pulsar and the other does not, and a failure is reported."""
import os
import re
import subprocess
import sys

import harness


def run(tmp_path, **changes):
    """(exit status, output) of a copy with other constants, in a separate directory."""
    text = (harness.ROOT / "scripts" / "demo_beam").read_text()
    text = text.replace('ROOT / "demo-output" / "beam"', f'Path("{tmp_path}")').replace(".relative_to(ROOT)", "")
    text = text.replace("Path(__file__).resolve().parent.parent", f'Path("{harness.ROOT}")')
    for name, value in changes.items():
        text, n = re.subn(f"^{name} = .*$", f"{name} = {value}", text, flags=re.M)
        assert n == 1
    # 80 s with the thread sanitizer.
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=400,
                          env=os.environ | {"BUILD": str(harness.BUILD)})
    return done.returncode, done.stdout + done.stderr


def test_found(tmp_path):
    code, said = run(tmp_path)
    assert code == 0 and ": found;" in said, said
    snr = {name: float(found) for name, found in re.findall(r"^ *([a-z-]+) +([0-9.]+)   ", said, re.M)}
    assert snr["minimum"] < 6 < snr["incoherent"] and abs(snr["on-source"] / snr["incoherent"] / 8**0.5 - 1) < 0.1, said


def test_not_found(tmp_path):
    """Beams on a wrong sky: the delays of the beams are not the pulsar's.  The incoherent beam has none."""
    code, said = run(tmp_path, BEAMS='["minimum", "on-source"]')
    assert code == 1 and "NOT as predicted" in said, said
    bad = [line.split()[0] for line in said.splitlines() if line.endswith("| NOT as predicted")]
    assert bad == ["on-source", "minimum"], said
