"""Tests cbf-point as a program: its requests, its messages and its exit codes."""
import asyncio
import math
import re
import signal
import subprocess
import sys
import time

import harness
import numpy as np
import point_earth  # noqa: F401 - before astropy: nothing is fetched
import program
import pytest
import sky
import yaml
from astropy.coordinates import AltAz, SkyCoord
from control import Client
from point_array import Unusable
from stand_in import Controller
from test_point import antennas_of, control_yaml, numbers

POSITIONS_M = [[-300, 200, 0], [500, -400, 5]]


def control(work):
    path = work / "control.yaml"
    config = control_yaml(POSITIONS_M)
    for stream in config["streams"][:2]:
        stream["filter_samples"] = 2 * 1712000 + 1  # a group delay of 1 ms
    path.write_text(yaml.safe_dump(config))
    return path


def start(work, name, *arguments):
    command = [sys.executable, str(program.POINT), str(control(work)), *map(str, arguments)]
    with (work / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


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
    """--print prints models, also with tables and times of the operator, and does not need the controller."""
    status, text = program.run(control(work), "inverted", "azel 30 50", "--print", "--start", "1700000001.5", "--duration", 9,
                               "--earth-orientation", point_earth.iers.IERS_A_FILE, "--reference", "m000")
    assert status == 0
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines] == [["?delays", "inverted"]] * 3
    centre_s = 1e-3  # the group delay
    assert [round(float(line[2]) + centre_s, 6) for line in lines] == [1700000001.5, 1700000005, 1700000010]
    assert all(len(line) == 3 + 4 and line[5] == line[6] for line in lines)
    east, north, up = np.subtract(POSITIONS_M[1], POSITIONS_M[0])
    sin_az, cos_az, sin_el, cos_el = (f(math.radians(x)) for x in (30, 50) for f in (math.sin, math.cos))
    first, second = numbers(lines[0][3]), numbers(lines[0][5])
    assert not any(first[0] + first[1])
    # m000 has another vertical, by 12 arcsec.
    assert abs(second[0][0] - (east * sin_az * cos_el + north * cos_az * cos_el + up * sin_el) / sky.C) < 1e-9


@pytest.mark.parametrize("arguments, why", [
    (("nowhere", "moon", "--print", "--duration", 5), "no stream of voltages 'nowhere'"),
    (("wide", "moon", "--print"), "--print needs --duration"), (("wide", "moon"), "give --controller"),
    (("wide", "moon", "--beam", "x"), "no beam 'x'"), (("wide", "moon", "--reference", "m9", "--print", "--duration", 1), "m9"),
    (("wide", "moon", "--controller", "host"), "HOST:PORT"), (("wide", "moon", "--pointing", "sun"), "needs --beam"),
    (("wide", "moon", "--start", 5), "--start needs"),
    (("wide", "moon", "--beam", "beam", "--print", "--duration", 5), "needs --pointing"),
    (("wide", "moon", "--beam", "beam", "--lead", 5), "only 7 models")])
def test_refused(work, arguments, why):
    with pytest.raises(Unusable, match=re.escape(why)):
        program.run(control(work), *arguments)


def test_sets(work, caplog):
    """Below the limit the program says so, and ends with 3."""
    status, text = program.run(control(work), "wide", "azel 30 19", "--print", "--duration", 5, "--lowest", 20)
    assert status == 3 and not text
    assert "azel 30 19 is below the elevation of 20 degrees" in caplog.text


def fgpu_config():
    """An F-engine of two antennas, which needs no data to take delays."""
    feeds = [{"name": f"m{i:03}", "feng_id": i, "pol0": harness.groups(), "pol1": harness.groups()} for i in range(2)]
    return {"time": {"sync_time": 1700000000, "adc_sample_rate": 1e6}, "antennas": feeds,
            "recv": {"interface": "lo", "sample_bits": 10, "packet_samples": 4096, "chunk_samples": 65536,
                     "max_delay_diff": 16384},
            "outputs": [{"kind": "wideband", "name": "wide", "channels": 64, "destinations": harness.groups()}],
            "send": {"interface": "lo", "ttl": 0, "array_size": 2},
            "katcp": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}}


def test_requests(work, daemon, programs):
    """cbf-point sends one request for all inputs before its load time, and a report.  It survives that the controller
    is away and comes back, and ends after SIGTERM.  A beam's pointing comes from the controller.  A real fgpu accepts
    the models."""
    target, port = overhead(40, 60), harness.free_tcp_port()
    options = ("--controller", f"127.0.0.1:{port}", "--interval", 1)
    sensors = {"wide__pointing_target": target}
    engine = daemon("fgpu", fgpu_config())
    with Controller(port, **sensors) as controller:
        programs.append(start(work, "stream", "wide", target, *options, "--lead", 1.5))
        programs.append(start(work, "beam", "wide", overhead(42, 60), "--beam", "beam", *options, "--duration", 15,
                              "--lead", 0.4))
        for name, n_models in (("delays", 4), ("beam-delays", 2)):
            for stream, load_time, *models in controller.wait(name, 3):
                assert stream == ("wide" if name == "delays" else "beam") and len(models) == n_models
                assert abs(float(load_time) % 1 - 0.999) < 1e-6  # a group delay of 1 ms before a whole second
        ahead_s = [float(r[2]) - at_s for r, at_s in zip(controller.requests, controller.times) if r[0] == "delays"]
        assert 0 < max(ahead_s) < 1.5
        assert programs[1].wait(harness.TIMEOUT_S) == 0
        reports = controller.wait("pointing-report", 5)
        # The controller takes no report of a beam.
        assert {tuple(report[:2]) for report in reports} == {("wide", target)}
        # A busy machine stalls cbf-point, which then leaves out models whose time has passed.
        assert 1 in np.diff([until_s for _, _, until_s, _ in reports])
        assert abs(reports[0][3] - point_earth.Earth().age_s()) < 600
    with Client(engine.wait_ready()) as client:
        async def forward(name, *arguments):
            if name == "delays":
                await asyncio.to_thread(client.request, "delays", *arguments)

        with Controller(port, forward) as controller:
            controller.wait("delays", 2)
            programs[0].send_signal(signal.SIGTERM)
            assert programs[0].wait(harness.TIMEOUT_S) == 0
    log = (work / "stream.log").read_text()
    assert "succeeds again" in log or "?delays" not in log
    assert "Traceback" not in log + (work / "beam.log").read_text()
