"""Tests delays and models of control/point_*.py against astropy, the formula of VLBI, and pyuvdata."""
import datetime
import math
import time

import numpy as np
import point_array
import point_earth  # before astropy: nothing is fetched
import pytest
import sky
import yaml
from astropy.coordinates import get_body
from point_array import Unusable
from point_delay import Pointing
from point_target import parse_target
from pyuvdata import Telescope, UVData
from sgp4.api import WGS72, Satrec
from sgp4.exporter import export_tle

PLACE = {"latitude": -30.7128, "longitude": 21.4436, "altitude": 1038}
START_S = 1_790_000_000  # UNIX, within the tables' measurements
RA_DEG, DEC_DEG = 10.0, -34.5  # far from the Sun at this time, so light is hardly bent; above the horizon
SKY_HZ, RATE_HZ = 1.284e9, 1712e6
PS = 1e-12
N_ANTS = 12


def control_yaml(positions_m, **keys):
    streams = [{"name": name, "kind": "voltages", "channels": 8192, "samples_between_spectra": 16384, "sideband": sideband, "filter_samples": 16 * 16384,
                "centre_frequency": 428e6, "sky_centre_frequency": SKY_HZ, "bandwidth": 856e6}
               for name, sideband in (("wide", "upper"), ("inverted", "lower"))]
    streams.append({"name": "beam", "kind": "beam", "source": "wide", "pol": 0})
    return {"array": "test", "time": {"sync_time": 1700000000, "adc_sample_rate": RATE_HZ}, "telescope": PLACE,
            "antennas": [{"name": f"m{i:03}", "feng_id": i, "position": [float(x) for x in position]}
                         for i, position in enumerate(positions_m)], "streams": streams} | keys


def positions_of(rng, n_ants=N_ANTS):
    """Metres east, north, up: up to 8 km from each other."""
    angle, radius = rng.uniform(0, 2 * np.pi, n_ants), rng.uniform(0, 4000, n_ants)
    radius[:2], angle[:2] = 4000, (0, np.pi)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.uniform(-20, 20, n_ants)], -1)


def array_of(work, positions_m, **keys):
    path = work / "control.yaml"
    path.write_text(yaml.safe_dump(control_yaml(positions_m, **keys)))
    return point_array.load_array(path)


def antennas_of(positions_m):
    return sky.Antennas(PLACE["latitude"], PLACE["longitude"], PLACE["altitude"], positions_m)


@pytest.fixture(scope="module")
def earth():
    return point_earth.Earth()


def low_orbit(unix_s, height_km=500):
    """Elements of a satellite above a point 2 degrees east of the array at this time, in a circular orbit."""
    inclination, latitude = math.radians(51.6), math.radians(PLACE["latitude"])
    along = math.asin(math.sin(latitude) / math.sin(inclination))
    east = math.atan2(math.cos(inclination) * math.sin(along), math.cos(along))
    sidereal = sky.times_of(unix_s).sidereal_time("mean", longitude=PLACE["longitude"] + 2).rad
    minutes = 2 * math.pi * math.sqrt((6378.135 + height_km)**3 / 398600.8) / 60
    epoch_days = unix_s / 86400 + (datetime.date(1970, 1, 1) - datetime.date(1949, 12, 31)).days
    satellite = Satrec()
    satellite.sgp4init(WGS72, "i", 12345, epoch_days, 0.0, 0.0, 0.0, 1e-4, 0.0, inclination, along % (2 * math.pi),
                       2 * math.pi / minutes, (sidereal - east) % (2 * math.pi))
    return "tle " + " ".join(export_tle(satellite))


# ---- Delays ----------------------------------------------------------------------------------------------------------


def test_ten_minutes(work, rng, earth):
    """A source is tracked for 10 minutes.  The delays of each model are within 1 ps of astropy's ITRS in all of the
    time in which it is valid."""
    positions_m = positions_of(rng)
    pointing = Pointing(array_of(work, positions_m), earth, parse_target(f"radec {RA_DEG} {DEC_DEG}"))
    worst_s, covered_s = 0, START_S
    for models in pointing.sequence(START_S, 5):
        if models.start_s >= START_S + 600:
            break
        assert models.start_s == covered_s
        covered_s += models.length_s
        at_s = models.start_s + models.length_s * np.array([0, 0.13, 0.5, 0.77, 1])
        expected_s = sky.itrs_delays_s(sky.icrs(RA_DEG, DEC_DEG), antennas_of(positions_m), at_s)
        worst_s = max(worst_s, np.abs(models.delays_s(at_s) - expected_s).max())
    assert covered_s == START_S + 600
    print(f"largest difference from astropy: {worst_s / PS:.4f} ps")
    assert worst_s < 1 * PS


@pytest.mark.parametrize("scale", [1, 12])
def test_formula_of_vlbi(work, rng, earth, scale):
    """Aberration and the Earth's rotation are right, by a formula in the barycentre's frame.  Over 100 km an antenna
    moves by a millimetre while the wave travels."""
    positions_m = scale * positions_of(rng)
    at_s = START_S + np.arange(0, 600.0, 60)
    pointing = Pointing(array_of(work, positions_m), earth, parse_target(f"radec {RA_DEG} {DEC_DEG}"))
    expected_s = sky.consensus_delays_s(*np.radians([RA_DEG, DEC_DEG]), antennas_of(positions_m), at_s)
    difference_s = np.abs(pointing.exact(at_s)[0] - expected_s).max()
    print(f"largest difference from the formula of VLBI: {difference_s / PS:.4f} ps")
    assert difference_s < 1 * PS


def test_pyuvdata(work, rng, earth):
    """The delays agree with the coordinate w of pyuvdata.  Without polar motion they would differ by tens of ps."""
    positions_m = positions_of(rng)
    antennas = antennas_of(positions_m)
    at_s = START_S + np.arange(0, 600.0, 30)
    telescope = Telescope.new(name="test", location=antennas.origin, instrument="test", x_orientation="east",
                              antenna_positions=antennas.baselines_m, antenna_names=[f"m{i:03}" for i in range(N_ANTS)],
                              antenna_numbers=np.arange(N_ANTS), feeds=["x"], mount_type="fixed")
    data = UVData.new(freq_array=np.array([SKY_HZ]), polarization_array=[-5], times=sky.times_of(at_s).jd, telescope=telescope,
                      antpairs=[(0, i) for i in range(1, N_ANTS)], do_blt_outer=True, channel_width=1e6,
                      integration_time=30.0, time_axis_faster_than_bls=False, empty=True)
    data.phase(ra=math.radians(RA_DEG), dec=math.radians(DEC_DEG), cat_name="source")
    w_s = data.uvw_array[:, 2].reshape(len(at_s), N_ANTS - 1) / sky.C
    array = array_of(work, positions_m)
    differences_s = []
    for pole in (earth.pole_rad, [0 * x for x in earth.pole_rad]):
        turned = object.__new__(point_earth.Earth)
        turned.__dict__.update(earth.__dict__ | {"pole_rad": pole})
        delays_s, _ = Pointing(array, turned, parse_target(f"radec {RA_DEG} {DEC_DEG}")).exact(at_s)
        differences_s.append(np.abs(delays_s[:, 1:] - delays_s[:, :1] - w_s).max())
    print("largest difference from pyuvdata: {:.3f} ps; without polar motion {:.3f} ps".format(*np.array(differences_s) / PS))
    assert differences_s[0] < 1 * PS < differences_s[1] < 50 * PS


@pytest.mark.parametrize("body", ["moon", "sun", "jupiter"])
def test_bodies(work, rng, earth, body):
    positions_m = positions_of(rng)
    antennas = antennas_of(positions_m)
    at_s = START_S + np.array([0.0, 3600, 40000])
    delays_s, _ = Pointing(array_of(work, positions_m), earth, parse_target(body)).exact(at_s)
    times = sky.times_of(at_s)
    seen = get_body(body, times, antennas.origin).transform_to(sky.ITRS(obstime=times, location=antennas.origin))
    far_m = seen.cartesian.xyz.to_value("m").T
    nearer_m = np.linalg.norm(far_m, axis=1)[:, None] - np.linalg.norm(far_m[:, None].astype(np.longdouble)
                                                                       - antennas.baselines_m, axis=2)
    difference_s = np.abs(delays_s - nearer_m.astype(float) / sky.C).max()
    print(f"{body}: largest difference from astropy's get_body: {difference_s / PS:.3f} ps")
    assert difference_s < 5 * PS


def test_low_orbit(work, rng, earth):
    """The models of a satellite at 500 km are within 1 ps, with light times to each antenna.  Models of a plane wave
    would be wrong by tens of metres."""
    positions_m = positions_of(rng, 5)
    array, antennas = array_of(work, positions_m), antennas_of(positions_m)
    target = parse_target(low_orbit(START_S))
    pointing = Pointing(array, earth, target)
    worst_s, lengths_s = 0, []
    for models in pointing.sequence(START_S, 5):
        if models.start_s >= START_S + 5:
            break
        lengths_s.append(models.length_s)
        at_s = models.start_s + models.length_s * np.array([0, 0.27, 1])
        expected_s = sky.satellite_delays_s(target.satellite, antennas, at_s)
        worst_s = max(worst_s, np.abs(models.delays_s(at_s) - expected_s).max())
    direction, _ = target.at(earth.at(np.array([float(START_S)])), array.place)
    flat_s = positions_m @ direction[0] / sky.C
    wrong_m = np.abs(flat_s - pointing.exact(np.array([float(START_S)]))[0][0]).max() * sky.C
    print(f"largest difference from light times: {worst_s / PS:.4f} ps; models of {min(lengths_s)} to {max(lengths_s)} s; "
          f"a plane wave is wrong by {wrong_m:.1f} m")
    assert worst_s < 1 * PS
    assert sum(lengths_s) == 5 and wrong_m > 5


def test_near_source(work, rng, earth):
    """The delays of a source on a mast, 3 km away, agree with Pythagoras' theorem."""
    positions_m = positions_of(rng)
    delays_s, elevations_rad = Pointing(array_of(work, positions_m), earth, parse_target("azel 30 2 3000")).exact(
        START_S + np.array([0.0, 7]))
    mast_m = 3000 * np.array([math.cos(math.radians(2)) * math.sin(math.radians(30)),
                              math.cos(math.radians(2)) * math.cos(math.radians(30)), math.sin(math.radians(2))])
    expected_s = (3000 - np.linalg.norm(mast_m - positions_m, axis=1)) / sky.C
    assert np.abs(delays_s - expected_s).max() < 0.1 * PS
    assert np.allclose(np.degrees(elevations_rad), 2)


def test_reference_antenna(work, rng, earth):
    """With a reference antenna, the delay of this antenna is 0, and all other delays are differences from it."""
    array = array_of(work, positions_of(rng))
    at_s, target = START_S + np.array([0.0, 300]), parse_target(f"radec {RA_DEG} {DEC_DEG}")
    delays_s, _ = Pointing(array, earth, target).exact(at_s)
    relative_s, _ = Pointing(array.seen_from("m003"), earth, target).exact(at_s)
    assert np.abs(relative_s - (delays_s - delays_s[:, 3:4])).max() < 1 * PS
    assert (relative_s[:, 3] == 0).all()


# ---- Models ----------------------------------------------------------------------------------------------------------


def numbers(text):
    delays, phases = text.split(":")
    return [float(x) for x in delays.split(",")], [float(x) for x in phases.split(",")]


@pytest.mark.parametrize("stream, sign", [("wide", -1), ("inverted", 1)])
def test_text_of_models(work, rng, earth, stream, sign):
    """The delays and phases of the texts are right if they are evaluated as in fgpu, at any time in which the models
    are valid."""
    array = array_of(work, positions_of(rng))
    pointing = Pointing(array, earth, parse_target(f"radec {RA_DEG} {DEC_DEG}"))
    models, of = pointing.models(START_S, 5), array.stream(stream)
    window_centre_s = (16 * 16384 - 1) / 2 / RATE_HZ
    whole, fraction = models.load_time(of).split(".")
    assert len(fraction) == 9
    assert abs(START_S - int(whole) - float("0." + fraction) - window_centre_s) < 1e-9
    texts = models.texts(of, per_input=True)
    assert texts[0::2] == texts[1::2] == models.texts(of, per_input=False)
    at_s = START_S + np.linspace(0, 5, 11)
    expected_s, _ = pointing.exact(at_s)
    for antenna, text in enumerate(texts[0::2]):
        r = at_s - START_S
        delays, phases = ([values[0] + values[1] * r + values[2] * r**2 / 2] for values in numbers(text))
        assert np.abs(delays - expected_s[:, antenna]).max() < 0.01 * PS
        turn = np.exp(1j * (phases - sign * 2 * np.pi * SKY_HZ * expected_s[:, antenna]))
        assert np.abs(np.angle(turn)).max() < 1e-3


def test_beam(work, rng, earth):
    """A beam's delays add to the delays of its stream.  A beam's models are linear."""
    array = array_of(work, positions_of(rng))
    stream, beam = parse_target(f"radec {RA_DEG} {DEC_DEG}"), parse_target(f"radec {RA_DEG + 0.4} {DEC_DEG - 0.3}")
    pointing = Pointing(array, earth, beam, order=1, relative_to=stream)
    models = pointing.models(START_S, 5)
    at_s = START_S + np.array([0, 2.2, 5])
    antennas = antennas_of(array.positions_m)
    expected_s = (sky.itrs_delays_s(sky.icrs(RA_DEG + 0.4, DEC_DEG - 0.3), antennas, at_s)
                  - sky.itrs_delays_s(sky.icrs(RA_DEG, DEC_DEG), antennas, at_s))
    assert np.abs(models.delays_s(at_s) - expected_s).max() < 1 * PS
    assert all(len(part) == 2 for text in models.texts(array.stream("wide"), per_input=False) for part in numbers(text))


def test_speed(work, rng, earth):
    """Models of 80 antennas take less than 50 ms of CPU time."""
    array = array_of(work, positions_of(rng, 80))
    pointing = Pointing(array, earth, parse_target(f"radec {RA_DEG} {DEC_DEG}"))
    taken_s = []
    for i in range(10):
        begin_s = time.process_time()
        pointing.models(START_S + 5 * i, 5).texts(array.stream("wide"), per_input=True)
        taken_s.append(time.process_time() - begin_s)
    print(f"80 antennas: {1e3 * min(taken_s):.1f} ms")
    assert min(taken_s) < 0.05


# ---- Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ERFA function")  # years in which nobody knows the leap seconds
def test_past_the_tables_end(earth):
    """Beyond the table's end UT1 - TAI and the pole keep their last values, and warnings say so."""
    last_s = earth.predicted_until_unix_s
    at = earth.at(np.array([last_s, last_s + 1e8]))
    assert at.dut1_s[1] == at.dut1_s[0] and at.pole_x_rad[1] == at.pole_x_rad[0]
    assert "ended 1157 days ago" in " ".join(earth.warnings(last_s + 1e8))
    assert "leap seconds has expired" in " ".join(earth.warnings(last_s + 1e8))
    measured_s = earth.measured_until_unix_s
    assert earth.age_s(measured_s + 5) == 5 and earth.age_s(measured_s - 5) == 0
    assert not earth.warnings(measured_s) and "31 days old" in " ".join(earth.warnings(measured_s + 31.2 * 86400))


def test_leap_second(earth):
    """UT1 and TT around the leap second at the end of 2016."""
    first = sky.Time("2016-12-31T12:00:00", scale="utc")
    unix_s = 1483185600 + np.array([0, 43199, 43200.0, 43201])  # 43200: 2017-01-01T00:00:00
    at = earth.at(unix_s)
    times = first + sky.TimeDelta([0, 43199, 43201, 43202], format="sec")
    for ours, theirs in ((at.tt, times.tt), (at.ut1, times.ut1)):
        assert np.abs((ours[0] - theirs.jd1) + (ours[1] - theirs.jd2)).max() * 86400 < 1e-4  # tables differ by 0.01 ms


def test_tables_of_the_operator(work):
    table = work / "old.all"
    lines = open(point_earth.iers.IERS_A_FILE).read().splitlines()
    n_measured = next(i for i, line in enumerate(lines) if line[57:58] == "P")  # the flag of UT1
    table.write_text("\n".join(lines[:n_measured + 20]) + "\n")
    old = point_earth.Earth(table)
    assert old.path == table
    assert round(old.predicted_until_unix_s - old.measured_until_unix_s) == 19 * 86400
    bad = work / "bad.all"
    bad.write_text("nothing\n")
    for paths in ((bad, None), (work / "absent", None), (None, bad)):
        with pytest.raises(Unusable, match="no such file|not a"):
            point_earth.Earth(*paths)


# ---- Targets and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, ra_deg, dec_deg", [
    ("radec 05:34:31.95 +22:00:52.2", 83.633125, 22.014500), ("radec 83.633125 22.0145", 83.633125, 22.0145),
    ("radec 00:00:30 -00:00:36", 0.125, -0.01)])
def test_radec(text, ra_deg, dec_deg):
    target = parse_target(text)
    assert np.allclose(np.degrees([target.ra_rad, target.dec_rad]), [ra_deg, dec_deg], atol=1e-9, rtol=0)


@pytest.mark.parametrize("text", ["", "m31", "radec 1", "radec 1 2 3", "radec x y", "radec 10 91", "azel 10 91", "azel 10",
                                  "azel nan 4", "azel 10 20 0", "azel 1 2 3 4", "moon 3", "tle /nonexistent", "tle"])
def test_bad_targets(text):
    with pytest.raises(Unusable, match="target"):
        parse_target(text)


def test_elements(work):
    text = low_orbit(START_S)
    first, second = text[4:73], text[74:]
    path = work / "orbits.tle"
    path.write_text(f"OTHER\n{first.replace('12345', '12340')}\n{second}\n0 MINE\n{first}\n{second}\n")
    for name in ("MINE", "12345"):
        assert parse_target(f"tle {path} {name}").text == text == parse_target(text).text
    with pytest.raises(Unusable, match="checksum"):
        parse_target(f"tle {path} OTHER")
    with pytest.raises(Unusable, match="no elements of ISS"):
        parse_target(f"tle {path} ISS")


@pytest.mark.parametrize("keys, why", [
    ({"telescope": {}}, "longitude"), ({"antennas": [{"name": "a", "feng_id": 0}]}, "position"),
    ({"antennas": [{"name": "a", "feng_id": 0, "position": [1, 2]}]}, "not a control.yaml"),
    ({"time": {}}, "adc_sample_rate"), ({"streams": None}, "not a control"),
    ({"streams": [{"name": "s", "kind": "voltages", "sideband": "left", "samples_between_spectra": 8,
                   "centre_frequency": 1}]}, "neither upper nor lower")])
def test_bad_files(work, rng, keys, why):
    with pytest.raises(Unusable, match=why):
        array_of(work, positions_of(rng), **keys)
