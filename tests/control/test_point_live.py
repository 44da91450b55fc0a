"""cbf-point as a program: its requests and its ends."""
import math
import os
import re
import signal
import subprocess
import sys
import time

import aiokatcp
import harness
import numpy as np
import point_earth  # noqa: F401 - before astropy: nothing is fetched
import pytest
import sky
import yaml
from astropy.coordinates import AltAz, SkyCoord
from stand_in import Controller
from test_point import PLACE, antennas_of, control_yaml, numbers

POINT = harness.ROOT / "control" / "cbf-point"
POSITIONS_M = [[-300, 200, 0], [500, -400, 5]]


def point(work, *arguments, **keys):
    path = work / "control.yaml"
    if not path.exists():
        path.write_text(yaml.safe_dump(control_yaml(POSITIONS_M, **keys)))
    return [sys.executable, str(POINT), str(path), *map(str, arguments)]


def start(work, name, *arguments):
    log = (work / f"{name}.log").open("wb")
    return subprocess.Popen(point(work, *arguments), stdout=log, stderr=log)


def overhead(azimuth_deg, elevation_deg):
    """The text of a target that is now in this direction."""
    frame = AltAz(obstime=sky.times_of(time.time()), location=antennas_of(POSITIONS_M).origin)
    found = SkyCoord(az=azimuth_deg * sky.u.deg, alt=elevation_deg * sky.u.deg, frame=frame).icrs
    return f"radec {found.ra.deg:.9f} {found.dec.deg:.9f}"


@pytest.fixture
def programs():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


# ---- Requests --------------------------------------------------------------------------------------------------------


def test_print(work):
    """Models of --print, with tables and times of the operator.  The controller is not needed."""
    done = subprocess.run(point(work, "inverted", "azel 30 50", "--print", "--start", "1700000001.5", "--duration", "9",
                                "--earth-orientation", point_earth.iers.IERS_A_FILE, "--reference", "m000"),
                          capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["?delays", "inverted"]] * 3
    centre_s = (16 * 16384 - 1) / 2 / 1712e6
    assert [round(float(line[2]) + centre_s, 6) for line in lines] == [1700000001.5, 1700000005, 1700000010]
    assert all(len(line) == 3 + 4 and line[5] == line[6] for line in lines)
    east, north, up = np.subtract(POSITIONS_M[1], POSITIONS_M[0])
    sin_az, cos_az, sin_el, cos_el = (f(math.radians(x)) for x in (30, 50) for f in (math.sin, math.cos))
    first, second = numbers(lines[0][3]), numbers(lines[0][5])
    assert not any(first[0] + first[1])
    assert abs(second[0][0] - (east * sin_az * cos_el + north * cos_az * cos_el + up * sin_el) / sky.C) < 1e-9  # m000 has another vertical


@pytest.mark.parametrize("arguments, why", [
    (("nowhere", "moon", "--print", "--duration", 5), "no stream of voltages 'nowhere'"),
    (("wide", "moon", "--print"), "--print needs --duration"), (("wide", "moon"), "give --controller"),
    (("wide", "moon", "--beam", "x"), "no beam 'x'"), (("wide", "moon", "--reference", "m9", "--print", "--duration", 1), "m9"),
    (("wide", "moon", "--controller", "host"), "HOST:PORT"), (("wide", "moon", "--pointing", "sun"), "needs --beam"),
    (("wide", "moon", "--start", 5), "--start needs"),
    (("wide", "moon", "--beam", "beam", "--print", "--duration", 5), "needs --pointing"),
    (("wide", "moon", "--beam", "beam", "--lead", 5), "only 7 models")])
def test_refused(work, arguments, why):
    import importlib.machinery
    import importlib.util
    loader = importlib.machinery.SourceFileLoader("cbf_point", str(POINT))
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader("cbf_point", loader))
    loader.exec_module(program)
    sys_argv, sys.argv = sys.argv, point(work, *arguments)[1:]
    try:
        with pytest.raises(program.Unusable, match=re.escape(why)):
            program.run(program.parse_args())
    finally:
        sys.argv = sys_argv


def test_sets(work):
    """Below the limit the program says so, and ends with 3."""
    done = subprocess.run(point(work, "wide", "azel 30 19", "--print", "--duration", 5, "--lowest", 20), capture_output=True,
                          text=True)
    assert done.returncode == 3 and not done.stdout
    assert "azel 30 19 is below the elevation of 20 degrees" in done.stderr


def test_requests(work, programs):
    """One request for all inputs, ahead of its load time, and a report; a controller that is away and comes back; SIGTERM.
    A beam's pointing comes from the controller."""
    target, port = overhead(40, 60), harness.free_tcp_port()
    options = ("--controller", f"127.0.0.1:{port}", "--interval", 1, "--lead", 0.4)
    sensors = {"wide__pfb_group_delay": -1712e3, "wide__adc_sample_rate": 1712e6, "wide__pointing_target": target}
    with Controller(port, **sensors) as controller:
        programs.append(start(work, "stream", "wide", target, *options))
        programs.append(start(work, "beam", "wide", overhead(42, 60), "--beam", "beam", *options, "--duration", 2.5))
        for name, n_models in (("delays", 4), ("beam-delays", 2)):
            for stream, load_time, *models in controller.wait(name, 3):
                assert stream == ("wide" if name == "delays" else "beam") and len(models) == n_models
                assert abs(float(load_time) % 1 - 0.999) < 1e-6  # a group delay of 1 ms before a whole second
        assert programs[1].wait(harness.TIMEOUT_S) == 0
        reports = [report for report in controller.wait("pointing-report", 5) if report[0] == "wide"]
        assert reports[0][1] == target and reports[1][2] == reports[0][2] + 1
        assert abs(reports[0][3] - point_earth.Earth().age_s()) < 600
        assert (work / "stream.log").read_text().count("late") == 0 or os.getloadavg()[0] > 2
    with Controller(port) as controller:
        controller.wait("delays", 2)
        programs[0].send_signal(signal.SIGTERM)
        assert programs[0].wait(harness.TIMEOUT_S) == 0
    assert "Traceback" not in (work / "stream.log").read_text() + (work / "beam.log").read_text()
