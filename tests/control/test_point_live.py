"""cbf-point as a program: its requests, its ends, and flat fringes through real engines."""
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
from control import Client
from pyuvdata import UVData
from stand_in import Controller
from test_point import PLACE, antennas_of, control_yaml, numbers

POINT = harness.ROOT / "control" / "cbf-point"
POSITIONS_M = [[-300, 20, 0], [500, -40, 5]]
SKY_HZ, RATE_HZ, CHANNELS = 1.4e9, 250e3, 128
TONES = (25, 60, 80, 105)  # channels
LEAD_S, INTERVAL_S, DUMP_S = 1.5, 2, 0.524288


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


# ---- Fringes ---------------------------------------------------------------------------------------------------------


def signals(coordinate, sync_time):
    """Signals of dsim: tones from the sky at both antennas.  The receivers of polarisation 0 keep the band's order, those of
    polarisation 1 invert the band.  A delay g turns the phase of a tone by the sky frequency, so the tone is tracked with
    g f_sky / f."""
    middle_s = 20.0  # of the run, after sync_time
    near_s = np.array([middle_s - 5, middle_s, middle_s + 5])
    later_s = -sky.itrs_delays_s(coordinate, antennas_of(POSITIONS_M), sync_time + near_s)
    statements = []
    for antenna in range(2):
        rate = (later_s[2, antenna] - later_s[0, antenna]) / 10
        first_s = later_s[1, antenna] - rate * middle_s
        for sign in (1, -1):
            terms = [f"wgn(0.005, {len(statements) + 1})"]
            for channel in TONES:
                hz = channel * RATE_HZ / (2 * CHANNELS)
                scale = sign * (SKY_HZ + sign * (hz - RATE_HZ / 4)) / hz
                terms.append(f"track(cw(0.1, {hz!r}), {scale * first_s * RATE_HZ:.9f}, {scale * rate:.15e})")
            statements.append(" + ".join(terms) + ";")
    return "\n".join(statements)


def configs(work, sync_time, coordinate, katcp_port):
    """Configurations of all programs."""
    times = {"sync_time": sync_time, "adc_sample_rate": RATE_HZ}
    feeds = [{"name": f"m{i:03}", "pol0": harness.groups(), "pol1": harness.groups()} for i in range(2)]
    voltages, visibilities = harness.groups(), harness.groups()
    send = {"interface": "lo", "ttl": 0}
    stream = {"channels": CHANNELS, "channels_per_substream": CHANNELS, "spectra_per_heap": 16,
              "samples_between_spectra": 2 * CHANNELS}
    return {
        "dsim": {"time": times, "digitiser": {"dither_seed": 1, "period": 1 << 16, "packet_samples": 1024}, "send": send,
                 "signals": {"specification": signals(coordinate, sync_time)},
                 "antennas": [feed | {"digitiser_id": 2 * i} for i, feed in enumerate(feeds)]},
        "fgpu": {"time": times, "device": {"threads": 1}, "send": send | {"array_size": 2},
                 "recv": {"interface": "lo", "sample_bits": 10, "packet_samples": 1024, "chunk_samples": 16384,
                          "max_delay_diff": 8192},
                 "antennas": [feed | {"feng_id": i} for i, feed in enumerate(feeds)],
                 "outputs": [{"kind": "wideband", "name": "wide", "channels": CHANNELS, "spectra_per_heap": 16, "gain": 0.1,
                              "destinations": voltages, "dither_seed": 1}],
                 "katcp": {"listen": f"127.0.0.1:{katcp_port}"}},
        "xbgpu": {"time": times, "device": {"threads": 1}, "send": send,
                  "recv": {"sources": voltages, "interface": "lo", "antennas": 2, **stream},
                  "outputs": [{"kind": "correlate", "name": "vis", "integration_time": DUMP_S, "destination": visibilities}]},
        "visrec": {"time": times, "recv": {"sources": visibilities, "interface": "lo"},
                   "stream": stream | {"integration_time": DUMP_S, "centre_frequency": SKY_HZ},
                   "telescope": {"name": "test", **PLACE},
                   "antennas": [{"name": f"m{i:03}", "position": x} for i, x in enumerate(POSITIONS_M)],
                   "output": {"file": str(work / "fringes.uvh5"), "max_dumps": 7}}}


def delays_at(requests, unix_s):
    """Delays of the inputs at a time, by the last model that has started: [n_inputs]."""
    stream, load_time, *models = [r for r in requests if float(r[1]) <= unix_s][-1]
    r = unix_s - float(load_time)
    return np.array([delays[0] + delays[1] * r + delays[2] * r**2 / 2 for delays, _ in map(numbers, models)])


@pytest.mark.skipif(harness.SANITIZED, reason="too slow for samples in real time")
def test_fringes(work, daemon, programs):
    """dsim sends a source that moves, at 1.4 GHz.  The fringes of both side bands are flat in time and frequency.  At the
    meridian, delays over east and west have no curvature, as the delays of dsim."""
    sync_time, katcp_port = int(time.time()), harness.free_tcp_port()
    target = overhead(0, 60)
    ra_deg, dec_deg = map(float, target.split()[1:])
    config = configs(work, sync_time, sky.icrs(ra_deg, dec_deg), katcp_port)
    running = {name: daemon(name, config[name], name, first=True) for name in ("xbgpu", "fgpu", "dsim")}
    for process in running.values():
        process.wait_ready()
    client = None

    async def forward(name, stream, *arguments):
        """Models of the stream 'upper' go to polarisation 0, and models of the stream 'lower' to polarisation 1."""
        nonlocal client
        if name != "delays":
            return
        client = client or await aiokatcp.Client.connect("127.0.0.1", katcp_port)
        pol = ("upper", "lower").index(stream)
        await client.request("delays", "wide", arguments[0], *(f"{2 * a + pol}={arguments[1 + 2 * a + pol]}" for a in range(2)))

    streams = [{"name": name, "kind": "voltages", "channels": CHANNELS, "samples_between_spectra": 2 * CHANNELS,
                "sideband": name, "centre_frequency": RATE_HZ / 4, "sky_centre_frequency": SKY_HZ} for name in ("upper", "lower")]
    point(work, streams=streams, time={"sync_time": sync_time, "adc_sample_rate": RATE_HZ})  # writes control.yaml
    with Controller(forward=forward) as controller:
        for name in ("upper", "lower"):
            programs.append(start(work, name, name, target, "--controller", controller.address, "--interval", INTERVAL_S,
                                  "--lead", LEAD_S))
        with Client(running["fgpu"]) as engine:
            for i in range(4):  # until the data have reached the first model of each input
                engine.wait(f"wide.input{i}.delay", lambda status, value: int(value[1:].split(",")[0]) > 0,
                            "a model in effect")
        daemon("visrec", config["visrec"], "visrec", first=True).wait_end()
        requests = controller.named("delays")
        for process in programs:
            process.terminate()
            assert process.wait(harness.TIMEOUT_S) == 0
        controller.run(close(client))
    data = UVData.from_file(str(work / "fringes.uvh5"), run_check_acceptability=False)
    check_fringes(data, requests, ra_deg, dec_deg)


async def close(client):
    client.close()
    await client.wait_closed()


def check_fringes(data, requests, ra_deg, dec_deg):
    unix_s = sky.Time(data.get_times(0, 1), format="jd").unix
    good = ~data.get_flags(0, 1).any(axis=(1, 2))
    good[0] = False  # may have begun before the first models
    assert good.sum() >= 3, f"only {good.sum()} of {len(good)} dumps are whole"
    upper = [r for r in requests if r[0] == "upper"]
    delays_s = np.array([delays_at(upper, t) for t in unix_s[good]])
    turns = np.ptp(SKY_HZ * (delays_s[:, 2] - delays_s[:, 0]))
    for pol in ("xx", "yy"):
        phase_deg = np.degrees(np.angle(data.get_data(0, 1, pol)[good][:, TONES]))
        print(f"{pol}: largest phase {np.abs(phase_deg).max():.3f} degrees in {good.sum()} dumps; without models "
              f"{360 * turns:.0f} degrees of drift")
        assert np.abs(phase_deg).max() < 0.2
    assert turns > 0.2
    data.phase(ra=math.radians(ra_deg), dec=math.radians(dec_deg), cat_name="source")
    w_s = data.uvw_array[data.antpair2ind(0, 1), 2][good] / sky.C
    difference_s = np.abs(delays_s[:, 2] - delays_s[:, 0] - w_s).max()
    print(f"largest difference between models and pyuvdata's w of the file: {1e12 * difference_s:.3f} ps")
    assert difference_s < 50e-12
