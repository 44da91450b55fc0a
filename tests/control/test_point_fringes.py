"""Tests the fringes of a moving source, from dsim through fgpu, xbgpu and visrec.  With the models of cbf-point they
are flat.

The programs write and read captures, so a slow host only takes longer.  dsim sends tones at both antennas.  A receiver
turns the phase of a delayed tone by the sky frequency.  dsim has no receiver, so it delays each tone by g f_sky / f.
The phase is then that of a delay g at the sky frequency.  The receivers of polarisation 0 keep the order of the band,
and the receivers of polarisation 1 invert the band.

dsim's delays are linear.  The source crosses the meridian, where delays from east to west have no curvature.  The rest
of the curvature is computed with astropy, and left out of the phases.
"""
from dataclasses import dataclass

import harness
import numpy as np
import point_earth  # noqa: F401 - before astropy: nothing is fetched
import program
import pytest
import sky
import yaml
from astropy.coordinates import AltAz, SkyCoord
from pyuvdata import UVData
from test_point import PLACE, START_S, antennas_of, control_yaml, numbers

SKY_HZ = 1.4e9
TAPS = 16


@dataclass
class Case:
    rate_hz: float
    channels: int
    tones: tuple  # channels
    duration_s: float
    heaps_per_dump: int
    east_m: float  # between the antennas

    @property
    def positions_m(self):
        return [[-0.4 * self.east_m, 4, 0], [0.6 * self.east_m, -4, 1]]

    def hz(self, channel):
        return channel * self.rate_hz / (2 * self.channels)

    def later_s(self, coordinate, unix_s):
        """[n, 2]"""
        return -sky.itrs_delays_s(coordinate, antennas_of(self.positions_m), unix_s)

    def line(self, coordinate):
        """(delays of dsim at sync_time in s [2], rates [2])"""
        near_s = self.duration_s * np.array([0.25, 0.5, 0.75])
        later_s = self.later_s(coordinate, START_S + near_s)
        rates = (later_s[2] - later_s[0]) / (near_s[2] - near_s[0])
        return later_s[1] - rates * near_s[1], rates


CASES = {"wide": Case(125e3, 64, (12, 30, 40, 52), 6.5, 32, 800), "ten minutes": Case(4e3, 64, (12, 40), 600, 20, 200)}


def at_meridian(case):
    """Returns a source that is in the north at an elevation of 60 degrees in the middle of the run."""
    frame = AltAz(obstime=sky.times_of(START_S + case.duration_s / 2), location=antennas_of(case.positions_m).origin)
    found = SkyCoord(az=0 * sky.u.deg, alt=60 * sky.u.deg, frame=frame).icrs
    return sky.icrs(round(found.ra.deg, 6), round(found.dec.deg, 6))


def signals(case, coordinate):
    first_s, rates = case.line(coordinate)
    statements = []
    for antenna in range(2):
        for sign in (1, -1):
            terms = [f"wgn(0.005, {len(statements) + 1})"]
            for hz in map(case.hz, case.tones):
                scale = sign * (SKY_HZ + sign * (hz - case.rate_hz / 4)) / hz
                terms.append(f"track(cw(0.1, {hz!r}), {scale * first_s[antenna] * case.rate_hz:.9f}, "
                             f"{scale * rates[antenna]:.15e})")
            statements.append(" + ".join(terms) + ";")
    return "\n".join(statements)


def models_of(case, coordinate, work):
    """The requests that cbf-point prints: {side band: [(load time, models of the inputs)]}."""
    streams = [{"name": name, "kind": "voltages", "channels": case.channels, "samples_between_spectra": 2 * case.channels,
                "sideband": name, "filter_samples": TAPS * 2 * case.channels, "centre_frequency": case.rate_hz / 4, "sky_centre_frequency": SKY_HZ}
               for name in ("upper", "lower")]
    path = work / "control.yaml"
    path.write_text(yaml.safe_dump(control_yaml(case.positions_m, streams=streams,
                                                time={"sync_time": START_S, "adc_sample_rate": case.rate_hz})))
    found = {}
    for name in ("upper", "lower"):
        target = f"radec {coordinate.ra.deg:.6f} {coordinate.dec.deg:.6f}"
        status, text = program.run(path, name, target, "--print", "--start", START_S + 1, "--duration", case.duration_s)
        assert status == 0
        lines = [line.split() for line in text.splitlines()]
        assert all(line[:2] == ["?delays", name] for line in lines)
        found[name] = [(line[2], line[3:]) for line in lines]
    return found


def write_delays(models, work):
    """Files of delays for fgpu, one for each antenna: polarisation 0 of the upper side band, 1 of the lower."""
    for antenna in range(2):
        rows = []
        for pol, name in enumerate(("upper", "lower")):
            for load_time, texts in models[name]:
                (delay, rate, acceleration), (phase, phase_rate, phase_acceleration) = numbers(texts[2 * antenna + pol])
                rows.append(f"{load_time} {pol} {delay!r} {rate!r} {phase!r} {phase_rate!r} {acceleration!r} "
                            f"{phase_acceleration!r}")
        (work / f"m{antenna:03}.delays").write_text("\n".join(rows) + "\n")


def record(case, coordinate, work, daemon):
    """Runs all programs, one after the other.  Returns the recorded file."""
    time = {"sync_time": START_S, "adc_sample_rate": case.rate_hz}
    played = {"time": time | {"timebase": "packets"}}
    stream = {"channels": case.channels, "channels_per_substream": case.channels, "spectra_per_heap": 16,
              "samples_between_spectra": 2 * case.channels}
    feeds = [{"name": f"m{i:03}", "pol0": harness.groups(), "pol1": harness.groups()} for i in range(2)]
    voltages, visibilities = harness.groups(), harness.groups()
    files = {name: str(work / f"{name}.pcap") for name in ("dsim", "fgpu", "xbgpu")}
    configs = {
        "dsim": {"time": time, "antennas": [feed | {"digitiser_id": 2 * i} for i, feed in enumerate(feeds)],
                 "digitiser": {"dither_seed": 1, "period": 1 << 16, "packet_samples": 1024, "first_timestamp": 0,
                               "duration": case.duration_s},
                 "signals": {"specification": signals(case, coordinate)}, "send": {"pcap_file": files["dsim"]}},
        "fgpu": played | {
            "recv": {"pcap_file": files["dsim"], "sample_bits": 10, "packet_samples": 1024, "max_delay_diff": 1024,
                     "chunk_samples": 16 * 1024},
            "antennas": [feed | {"feng_id": i, "delays": str(work / f"m{i:03}.delays")} for i, feed in enumerate(feeds)],
            "outputs": [{"kind": "wideband", "name": "wide", "channels": case.channels, "spectra_per_heap": 16, "gain": 0.1,
                         "taps": TAPS, "destinations": voltages, "dither_seed": 1}],
            "send": {"array_size": 2, "pcap_file": files["fgpu"]}},
        "xbgpu": played | {
            "recv": {"sources": voltages, "antennas": 2, "pcap_file": files["fgpu"], "window": 64, "chunks": 131} | stream,
            "outputs": [{"kind": "correlate", "name": "vis", "integration_batches": case.heaps_per_dump,
                         "destination": visibilities}],
            "send": {"pcap_file": files["xbgpu"]}},
        "visrec": played | {
            "recv": {"sources": visibilities, "pcap_file": files["xbgpu"]},
            "stream": stream | {"integration_batches": case.heaps_per_dump, "centre_frequency": SKY_HZ},
            "telescope": {"name": "test", **PLACE},
            "antennas": [{"name": f"m{i:03}", "position": x} for i, x in enumerate(case.positions_m)],
            "output": {"file": str(work / "fringes.uvh5")}}}
    for program, config in configs.items():
        daemon(program, config, program).wait_end()
    return UVData.from_file(str(work / "fringes.uvh5"), run_check_acceptability=False)


def delay_between_s(models, unix_s):
    """Delay of antenna 1 minus delay of antenna 0 at a time, by the last model that has started."""
    load_time, texts = [(start, texts) for start, texts in models if float(start) <= unix_s][-1]
    r = unix_s - float(load_time)
    first, second = (np.dot(numbers(texts[i])[0], [1, r, r**2 / 2]) for i in (0, 2))
    return second - first


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_flat(work, daemon, case):
    coordinate = at_meridian(case)
    models = models_of(case, coordinate, work)
    write_delays(models, work)
    data = record(case, coordinate, work, daemon)
    unix_s = sky.Time(data.get_times(0, 1), format="jd").unix
    whole = ~data.get_flags(0, 1).any(axis=(1, 2)) & (unix_s > START_S + 1 + data.integration_time[0])
    assert whole.sum() >= len(whole) - 3 >= 8
    unix_s = unix_s[whole]
    first_s, rates = case.line(coordinate)
    curved_s = case.later_s(coordinate, unix_s) - first_s - rates * (unix_s - START_S)[:, None]
    curved_deg = 360 * SKY_HZ * (curved_s[:, 0] - curved_s[:, 1])
    turns = SKY_HZ * (rates[0] - rates[1]) * np.ptp(unix_s)
    for pol, sign in (("xx", 1), ("yy", -1)):
        phase_deg = np.degrees(np.angle(data.get_data(0, 1, pol)[whole][:, case.tones]))
        flat_deg = phase_deg + sign * curved_deg[:, None]
        print(f"{pol}: {np.ptp(unix_s):.0f} s, {abs(turns):.1f} turns without models; largest phase "
              f"{np.abs(phase_deg).max():.3f} degrees, {np.abs(flat_deg).max():.3f} without the curvature that dsim lacks")
        assert np.abs(phase_deg).max() < 3 and np.abs(flat_deg).max() < 0.3
    assert abs(turns) > 1
    # The file's times are those of first samples of windows.
    window_centre_s = (TAPS * 2 * case.channels - 1) / 2 / case.rate_hz
    compare_w(data, whole, coordinate, np.array([delay_between_s(models["upper"], t - window_centre_s) for t in unix_s]))


def compare_w(data, whole, coordinate, delays_s):
    """Compares the delays with w of the recorded file.  The recorder's sidereal times do not know UT1, so w is also
    computed with pyuvdata's sidereal times."""
    differences_s = []
    for set_times in (False, True):
        copy = data.copy()
        if set_times:
            copy.set_lsts_from_time_array()
        copy.phase(ra=coordinate.ra.rad, dec=coordinate.dec.rad, cat_name="source")
        w_s = copy.uvw_array[copy.antpair2ind(0, 1), 2][whole] / sky.C
        differences_s.append(np.abs(delays_s - w_s).max())
    print("largest difference of models from w of the file: {:.3f} ps; with UT1 {:.3f} ps".format(
        *1e12 * np.array(differences_s)))
    assert differences_s[0] < 50e-12 and differences_s[1] < 1e-12
