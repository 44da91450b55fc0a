"""scripts/setup, with a fake apt-get that the tests control, and with time a hundred times as fast."""
import os
import re
import shutil
import subprocess

import pytest

import harness

PROGRAMS = {
    "dpkg-query": "echo not-installed",
    "sudo": 'exec "$@"',
    "sleep": f'echo "$1" >>"$SLEPT"; exec {shutil.which("sleep")} "$(printf "0.%02d" "$1")"',
}
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"


@pytest.fixture
def setup(tmp_path):
    """Runs scripts/setup with only Debian packages to install. 'update' and 'install' are apt-get's actions."""
    def run(update, install="true"):
        apt = f'case " $* " in *" update "*) {update} ;; *" install "*) {install} ;; esac'
        (tmp_path / "slept").touch()
        for name, text in {**PROGRAMS, "apt-get": apt}.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / name).chmod(0o755)
        return subprocess.run([harness.ROOT / "scripts/setup", "deb"], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLEPT": str(tmp_path / "slept")})
    return run


def test_says_how_long_it_takes(setup):
    done = setup("true", "sleep 50")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0].startswith("setup: installing Debian packages: ")
    assert "netcat-openbsd" in lines[0].split()
    assert re.fullmatch(r"setup: still installing Debian packages \(\d+ s\)", lines[1])
    assert re.fullmatch(r"setup: installing Debian packages: done in \d+ s", lines[-1])


def test_waits_for_the_lock_of_the_lists(setup, tmp_path):
    """The message appears once."""
    tries = tmp_path / "tries"
    done = setup(f'echo >>{tries}; [ "$(wc -l <{tries})" -gt 3 ] || {{ echo "{LOCKED}" >&2; exit 100; }}')
    assert done.returncode == 0 and done.stdout.count("another program holds apt's lock") == 1, done.stdout + done.stderr
    assert (tmp_path / "slept").read_text().split().count("5") == 3 and "done in" in done.stdout


def test_other_failures_end_it(setup, tmp_path):
    done = setup("echo E: no network; exit 100")
    assert done.returncode == 1 and "5" not in (tmp_path / "slept").read_text().split()
    assert "E: no network" in done.stderr and "setup: apt could not install what is needed; try: " in done.stderr
    assert "done in" not in done.stdout
    done = setup("echo updated", "echo E: unmet dependencies; exit 100")
    assert done.returncode == 1 and "E: unmet dependencies" in done.stderr
