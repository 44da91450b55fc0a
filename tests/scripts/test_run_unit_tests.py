"""scripts/run-unit-tests on small programs that print Check's lines."""
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/run-unit-tests"
GOOD = "echo '100%: Checks: 5, Failures: 0, Errors: 0'"
PARTLY = "echo 'skipped: no net'; echo 'skipped: no net'; echo 'skipped: no GPU'; " + GOOD
NOTHING = "echo 'skipped: no GPU'; exit 77"


def run(directory, programs, *left_out):
    for name, body in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    ended = subprocess.run([SCRIPT, directory, *left_out], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout.splitlines()


def test_skips_are_counted_apart(tmp_path):
    code, lines = run(tmp_path, {"check_a": GOOD, "check_b": PARTLY, "check_c": NOTHING, "check_d": "exit 1", "other": "exit 1"},
                      "check_d")
    assert code == 0
    assert lines[-1].startswith("unit tests: 10 passed, 0 failed, 4 skipped in ")
    assert lines[-4:-1] == ["SKIPPED [1] check_b: no GPU", "SKIPPED [2] check_b: no net", "SKIPPED [1] check_c: no GPU"]
    assert any(re.fullmatch(r"check_b +\d+ s  5 passed, 3 skipped", line) for line in lines)


@pytest.mark.parametrize("body", [
    "echo '80%: Checks: 5, Failures: 1, Errors: 0'; exit 1",
    GOOD + "; exit 1",
    "echo '100%: Checks: 0, Failures: 0, Errors: 0'",
    "echo '100%: Checks: 1, Failures: 0, Errors: 0'; exit 77",
    "exit 77",
    "kill -9 $$",
], ids=["failure", "exit", "no case", "no reason", "no sum", "killed"])
def test_failures(tmp_path, body):
    code, lines = run(tmp_path, {"check_a": GOOD, "check_b": body})
    assert code == 1
    assert " 1 failed, " in lines[-1]
    assert "== check_b" in lines


def test_nothing_passed(tmp_path):
    code, lines = run(tmp_path, {"check_c": NOTHING})
    assert code == 1
    assert lines[-1].startswith("unit tests: 0 passed, 0 failed, 1 skipped in ")
