"""scripts/gnsscal against a model of the records (gnssmodel), dsim and fgpu, cssrlib's orbits and a KATCP server."""
import asyncio
import json
import runpy
import subprocess
import sys
import time

import aiokatcp
import numpy as np
import pytest
import spead2
import spead2.send
import yaml
from astropy.coordinates import EarthLocation

import fmodel
import gnsscal_orbits
import gnsscal_read
import gnsscal_solve
import gnsssignals
import harness
from gnssmodel import RECORD, SPOILED_SAMPLES, Input, Receiver, Satellite, spoil
from harness import BUILD, SEED, WIRE

GNSSCAL = harness.ROOT / "scripts" / "gnsscal"
C = 299792458.0
SYNC_TIME = 1700000000  # week 2288 of GPS, 252818 s
ENDPOINT = ("239.102.200.1", harness.PORT)

# ---- Configurations and heaps of the model ---------------------------------------------------------------------------

RATE = 200e6
SKY = 1575.32e6
CARRIER = 1575.42e6
N_ANTS = 4
START_S = (WIRE - 50e6) / RATE  # so timestamps wrap in the data
SPOILED_S = SPOILED_SAMPLES / RATE


def fgpu_config(**gnss):
    return {
        "time": {"sync_time": SYNC_TIME, "adc_sample_rate": "200e6"},
        "antennas": [{"name": f"m{i:03}", "feng_id": i} for i in range(N_ANTS)],
        "outputs": [{"name": "wide", "channels": 64}, {"kind": "narrowband", "name": "narrow", "channels": 64,
                                                       "centre_frequency": 47e6, "gain": 0.5}],
        "gnss": [{"name": "l1", "destination": f"{ENDPOINT[0]}:{ENDPOINT[1]}", "centre_frequency": 45e6, "decimation": 4,
                  "pass_bandwidth": 20e6, "sky_frequency": SKY} | gnss],
    }


def receiver(is_inverted=False):
    return Receiver(RATE, RATE / 8, SKY, SKY + 45e6 if is_inverted else SKY - 45e6, is_inverted)


INPUTS = [[Input(0, 0.3), Input(2e-9, -1.1)],
          [Input(30.0013e-6, 1.0, 1.2), Input(30.0613e-6, -2.0, 0.8)],  # polarisations 0.06 chip apart
          [Input(-29.9987e-6, 3.0, 0.7), Input(-29.9987e-6, 0.0, 0.75)],
          [Input(0.123e-6, -1.4), Input(-0.07e-6, 2.2)]]  # 0.2 chip apart


def of_pol(inputs, ant, pol, key):
    return getattr(inputs[ant][pol], key) - getattr(inputs[0][pol], key)


def heaps_of(records, n_heap=64):
    """[Sent] of {feng_id: records}, descriptors first, as fgpu sends them."""
    sent = []
    for feng_id, of in records.items():
        of = of[np.argsort(of["timestamp"], kind="stable")]
        items = spead2.send.ItemGroup(flavour=harness.FLAVOUR)
        items.add_item(harness.TIMESTAMP, "timestamp", "", (), format=harness.IMMEDIATE)
        items.add_item(harness.FENG_ID, "feng_id", "", (), format=harness.IMMEDIATE)
        items.add_item(0x4400, "gnss_sums", "", (n_heap,), dtype=RECORD)
        generator = spead2.send.HeapGenerator(items, flavour=harness.FLAVOUR)
        sent.append(harness.Sent(ENDPOINT, generator.get_heap(descriptors="all", data="none"), 1 + feng_id))
        for first in range(0, len(of), n_heap // 2):
            part = np.zeros(n_heap, RECORD)
            here = of[first:first + n_heap // 2]
            part[:len(here)] = here
            part["timestamp"] %= WIRE
            items["timestamp"].value = int(here["timestamp"][0]) % WIRE
            items["feng_id"].value = feng_id
            items["gnss_sums"].value = part
            sent.append(harness.Sent(ENDPOINT, generator.get_heap(descriptors="none", data="all"),
                                     0x100000 * (1 + feng_id) + first))
    return sent


def write_model(work, satellites, inputs, n_periods=1000, noise=1.0, is_inverted=False,
                start_s=START_S):
    """Writes fgpu.yaml and sums.pcap; returns the heaps."""
    random = np.random.default_rng(SEED)
    records = {ant: np.concatenate([spoil(receiver(is_inverted).records(sat, ant, pols, start_s, n_periods, random, noise),
                                          random) for sat in satellites])
               for ant, pols in enumerate(inputs)}
    sent = heaps_of(records)
    harness.write_heaps(work / "sums.pcap", sent)
    (work / "fgpu.yaml").write_text(yaml.safe_dump(fgpu_config(inverted=is_inverted)))
    return sent


def still(delay_s, doppler_hz, rate_hz_s=0.0):
    """A way through space that all antennas share."""
    return lambda ant, t: delay_s - (doppler_hz * (t - START_S) + rate_hz_s * (t - START_S) ** 2 / 2) / CARRIER


SATELLITES = [Satellite(7, still(0.07, -1500, 0.4), 48), Satellite(19, still(0.0712345, 2500, -0.3), 46),
              Satellite(3, still(0.0819, 4321), 44)]


def gnsscal(work, *more, config="fgpu.yaml"):
    """(output, JSON) of a run that must succeed."""
    done = call(work, config, *more, "--json", "found.json")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((work / "found.json").read_text())


def call(work, *arguments):
    return subprocess.run([sys.executable, GNSSCAL, *map(str, arguments)], cwd=work, capture_output=True, text=True,
                          timeout=harness.TIMEOUT_S)


def turned(radians):
    """The same angle in degrees, within half a turn of 0."""
    return np.degrees(np.angle(np.exp(1j * radians)))


def check_model(found, inputs, sky_of_output, is_inverted=False, max_delay_error_s=6e-9, max_phase_error_deg=0.8,
                sigmas=5.0):
    """All inputs have the injected values within the stated errors, and the errors are small."""
    rx = receiver(is_inverted)
    assert len(found["inputs"]) == 2 * (N_ANTS - 1)
    for one in found["inputs"]:
        ant, pol = int(one["antenna"][1:]), one["pol"]
        delay_s = of_pol(inputs, ant, pol, "delay_s")
        assert one["delay_s"]["error"] < max_delay_error_s
        assert abs(one["delay_s"]["value"] - delay_s) < sigmas * one["delay_s"]["error"], one
        sign = -1 if is_inverted else 1  # of a frequency of the digitiser against the sky's
        for key, sky_hz in (("phase_rad", CARRIER), ("centre_phase_rad", sky_of_output)):
            phase = of_pol(inputs, ant, pol, "phase_rad") - 2 * np.pi * sign * rx.intermediate_hz(sky_hz) * delay_s
            assert abs(turned(one[key]["value"] - phase)) < sigmas * np.degrees(one[key]["error"]), (key, one)
        assert np.degrees(one["phase_rad"]["error"]) < max_phase_error_deg
        gain = inputs[ant][pol].gain / inputs[0][pol].gain
        assert abs(one["gain"]["value"] - gain) < sigmas * one["gain"]["error"] and one["gain"]["error"] < 0.02


# ---- The model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_inverted", [False, True])
def test_model(work, is_inverted):
    write_model(work, SATELLITES, INPUTS, is_inverted=is_inverted)
    text, found = gnsscal(work, "--pcap", "sums.pcap", "--no-geometry", "--all-satellites", "--output", "narrow",
                          "--delays", "cal", "--gains", "cal")
    sky_of_output = SKY - 2e6 if is_inverted else SKY + 2e6
    check_model(found, INPUTS, sky_of_output, is_inverted)
    assert all(sorted(one["satellites"]) == ["L1CA-19", "L1CA-3", "L1CA-7"] for one in found["inputs"])
    assert "m003" in text and "L1CA-19" in text
    assert abs(found["start_unix_s"] - (SYNC_TIME + START_S - SPOILED_S)) < 0.002

    # fgpu adds the delay and the phase of its files, at the digitiser's frequencies (test_end_to_end shows that it does).
    for ant in range(N_ANTS):
        rows = [line.split() for line in (work / "cal" / f"m{ant:03}.delays").read_text().splitlines() if line[0] != "#"]
        assert [row[1] for row in rows] == ["0", "1"] and all(float(row[3]) == float(row[5]) == 0 for row in rows)
        assert float(rows[0][0]) == pytest.approx(found["start_unix_s"], abs=1e-5)
        for pol, row in enumerate(rows):
            delay_s, phase = (of_pol(INPUTS, ant, pol, key) for key in ("delay_s", "phase_rad"))
            phase = (-phase if is_inverted else phase) - 2 * np.pi * 47e6 * delay_s
            assert abs(float(row[2]) + delay_s) < 1.5e-8
            assert abs(turned(float(row[4]) + phase)) < 10
        rows = [line.split() for line in (work / "cal" / f"m{ant:03}.gains").read_text().splitlines() if line[0] != "#"]
        for pol, row in enumerate(rows):
            assert row[:3] == ["narrow", str(pol), "*"] and float(row[4]) == 0
            assert float(row[3]) == pytest.approx(0.5 * INPUTS[0][pol].gain / INPUTS[ant][pol].gain, rel=0.05)


def test_model_without_noise(work):
    """Only arithmetic is left: 0.2 ns, a tenth of a degree."""
    write_model(work, SATELLITES, INPUTS, n_periods=600, noise=0)
    _, found = gnsscal(work, "--pcap", "sums.pcap", "--no-geometry", "--all-satellites")
    for one in found["inputs"]:
        ant, pol = int(one["antenna"][1:]), one["pol"]
        delay_s = of_pol(INPUTS, ant, pol, "delay_s")
        # 60 ns and 190 ns between polarisations go through the discriminator's curve, which is that of 25 MHz.
        assert abs(one["delay_s"]["value"] - delay_s) < (2e-10 if pol == 0 else 2e-9)
        phase = of_pol(INPUTS, ant, pol, "phase_rad") - 2 * np.pi * 45.1e6 * delay_s
        assert abs(turned(one["phase_rad"]["value"] - phase)) < 0.1
        assert one["gain"]["value"] == pytest.approx(INPUTS[ant][pol].gain / INPUTS[0][pol].gain, rel=1e-2)


def test_false_lock(work):
    """If a satellite's loop at one antenna is locked half a turn a code period off, the satellite does not count
    there."""
    false = Satellite(3, still(0.0819, 4321), 48, false_ants=(2,))
    write_model(work, [*SATELLITES[:2], false], INPUTS)
    _, found = gnsscal(work, "--pcap", "sums.pcap", "--no-geometry", "--all-satellites")
    check_model(found, INPUTS, SKY + 5e6)
    assert all(("L1CA-3" in one["satellites"]) == (one["antenna"] != "m002") for one in found["inputs"])


def test_no_phases_without_a_beam(work):
    write_model(work, SATELLITES[:1], INPUTS, n_periods=600)
    text, found = gnsscal(work, "--pcap", "sums.pcap", "--no-geometry", "--reference", "m002", "--delays", "cal")
    assert "No phases and gains" in text
    assert all(one["phase_rad"] is one["gain"] is None for one in found["inputs"])
    for one in found["inputs"]:
        ant, pol = int(one["antenna"][1:]), one["pol"]
        delay_s = INPUTS[ant][pol].delay_s - INPUTS[2][pol].delay_s
        assert abs(one["delay_s"]["value"] - delay_s) < 5 * one["delay_s"]["error"] < 5e-8
    assert (work / "cal" / "m002.delays").read_text().count(" 0.000000000e+00 0 0.000000 0\n") == 2


def test_live(work):
    sent = write_model(work, SATELLITES[:2], INPUTS, n_periods=600)
    process = subprocess.Popen([sys.executable, GNSSCAL, "fgpu.yaml", "--interface", "127.0.0.1", "--seconds", "0.5",
                                "--no-geometry", "--all-satellites", "--json", "found.json"],
                               cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "receiving" in process.stdout.readline()
        harness.send_live(sent, rate=20e6)
        _, errors = process.communicate(timeout=harness.TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    found = json.loads((work / "found.json").read_text())
    check_model(found, INPUTS, SKY + 5e6, max_delay_error_s=1.2e-8, max_phase_error_deg=1.5)
    assert abs(found["start_unix_s"] - time.time()) < WIRE / RATE / 2 + 10  # the wrap of now


def test_katcp(work):
    write_model(work, SATELLITES[:1], INPUTS, n_periods=600)
    requests = []

    class Server(aiokatcp.DeviceServer):
        VERSION = BUILD_STATE = "test-1.0"

        async def request_delays(self, ctx, stream: str, start: str, *models: str) -> None:
            """Adds delay models."""
            requests.append((stream, start, models))
            if stream != "wide":
                raise aiokatcp.FailReply("no such output")

    async def run():
        server = Server("127.0.0.1", 0)
        await server.start()
        where = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        done = []
        for output in ("wide", "narrow"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, GNSSCAL, "fgpu.yaml", "--pcap", "sums.pcap", "--no-geometry", "--all-satellites",
                "--output", output, "--katcp", where, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            done.append((*await process.communicate(), process.returncode))
        await server.stop()
        return done

    good, bad = asyncio.run(run())
    assert good[2] == 0 and b"8 inputs" in good[0], good
    assert bad[2] == 2 and bad[1].decode().count("\n") == 1 and b"?delays failed: no such output" in bad[1]
    stream, start, models = requests[0]
    assert stream == "wide" and float(start) > SYNC_TIME and len(models) == 8
    for number, text in enumerate(models):
        name, _, model = text.partition("=")
        delay, phase = (list(map(float, half.split(","))) for half in model.split(":"))
        expected_s = of_pol(INPUTS, number // 2, number % 2, "delay_s")
        assert name == str(number) and delay[1] == phase[1] == 0 and abs(delay[0] + expected_s) < 3e-8


LEVELS = {  # of a chip in 12 parts, by the Galileo OS SIS ICD, 2.3.3
    "L1CA": np.ones(12), "L5I": np.ones(12), "L5Q": np.ones(12),
    "E1B": np.repeat([1, -1], 6) * np.sqrt(10 / 11) + np.tile([1, -1], 6) * np.sqrt(1 / 11),
    "E1C": np.repeat([1, -1], 6) * np.sqrt(10 / 11) - np.tile([1, -1], 6) * np.sqrt(1 / 11)}


@pytest.mark.parametrize("signal", gnsscal_solve.SIGNALS, ids=lambda signal: signal.name)
def test_discriminator(signal):
    """Without a filter the discriminator equals that of the autocorrelation of the chip's levels, by sums over time."""
    parts = 100  # of a twelfth
    chip = np.repeat(LEVELS[signal.name], parts)
    padded = np.concatenate([np.zeros(2 * len(chip)), chip, np.zeros(2 * len(chip))])

    def correlation(chips):
        shift = round(chips * len(chip))
        return abs(np.dot(chip, padded[2 * len(chip) + shift:3 * len(chip) + shift])) / np.dot(chip, chip)
    found = gnsscal_solve.Discriminator(signal, 0.0, 0.0, 400 * signal.chip_rate_hz, np.ones(1), np.zeros(1))
    tap = 0.25 if signal.name[0] == "L" else 2.5 / 12
    for x in np.array([-90, -31, 0, 12, 60, 90]) / 1200:
        assert abs(found.offset_chips(correlation(x - tap), correlation(x + tap)) - x) < 2e-3
        assert abs(found.loss(x) - correlation(x)) < 1e-2
    assert np.isnan(found.offset_chips(0.0, 1.0)) and np.isnan(found.offset_chips(1.0, 0.0))


@pytest.mark.parametrize("prn", [3, 7, 8])  # adjacent chips have products whose sums are -1, 63 and -65
def test_sampled_code(prn):
    """One code period at 8 MS/s, through fgpu's filter to 4 MS/s, correlated with the replica: at all offsets that fgpu
    permits between a signal and the shared replica, the discriminator is right within 0.005 ADC samples."""
    carrier_hz, chips, code = 1e5, 1.023e6 / ADC, gnsssignals.l1ca(prn)
    h = fmodel.ddc_filter(2, 32, 0.005, 0.75)
    found = gnsscal_solve.discriminator_of(gnsscal_solve.SIGNALS[0], prn, carrier_hz,
                                           gnsscal_read.Band(ADC, 2, 32, 0.005, 0.75))
    t = (np.arange(64)[:, None] + 0.5) / 32 + np.arange(-15, 8016)  # 64 phases between chips and samples

    def signal(t, ahead=0.0):
        return code[np.floor(t * chips + ahead).astype(int) % 1023] * np.exp(2j * np.pi * carrier_hz * t / ADC)
    middle = t[:, 15:-16:2] + 0.5  # the middles of the windows
    for late in (-1.2, -0.75, 0.3, 0.9, 1.2):
        windows = np.lib.stride_tricks.sliding_window_view(signal(t - late), 32, axis=1)[:, ::2]
        early, prompt, after = (np.sum(windows @ h * np.conj(signal(middle, tap))) for tap in (0.25, 0, -0.25))
        offset = found.offset_chips(*((tap * np.conj(prompt)).real for tap in (early, after)))
        assert abs(offset / chips + late) < 0.005, late


def test_adjacent_chips():
    l1ca, l5i, l5q = gnsscal_solve.SIGNALS[:3]
    codes = [(l1ca, prn, gnsssignals.l1ca(prn)) for prn in gnsssignals.G2_DELAYS]
    codes += [(signal, prn, gnsssignals.l5(prn, part)) for prn in gnsssignals.XB_STATES
              for part, signal in enumerate((l5i, l5q))]
    for signal, prn, code in codes:
        assert signal.lag_one(prn) == np.dot(code, np.roll(code, 1)) / len(code), (signal.name, prn)


def test_outliers():
    """A satellite that a reflection delays by 100 sigma does not count; the error covers the scatter of the others."""
    random = np.random.default_rng(SEED)
    values = 5 + random.normal(0, 3, 12)
    values[4] = 300
    found = gnsscal_solve.combine(values, np.full(12, 1.0))
    assert abs(found.value - 5) < 4 and 0.5 < found.error < 2
    assert gnsscal_solve.combine([1, 3], [1, 1]).error == pytest.approx(1)
    assert gnsscal_solve.combine([2, 2, 2], [1, 1, 1]).error == pytest.approx(3 ** -0.5)


# ---- The sky ---------------------------------------------------------------------------------------------------------

# By cssrlib 1.2.1 (eph2pos) of the ephemerides below, at 252817, 252818, 252819 and 252820 s of week 2288.
ORBITS = {
    ("G", 7): [[-16811256.81779878, -13499027.968376158, -15364845.92454498],
               [-16811778.35943992, -13500983.728967125, -15362662.642044637],
               [-16812299.914595746, -13502939.195306996, -15360479.02951305],
               [-16812821.48321746, -13504894.367364148, -15358295.086999407]],
    ("G", 19): [[3202344.3539523515, 24425727.249206483, 9306195.542104712],
                [3201643.2332629547, 24424689.530945864, 9309103.616236016],
                [3200941.908349337, 24423651.511693057, 9312011.48713158],
                [3200240.3791791224, 24422613.191493772, 9314919.154727472]],
    ("G", 3): [[-17399787.369939514, 11195426.412773173, 16499805.035457335],
               [-17399126.68452001, 11193409.971683402, 16501878.430589065],
               [-17398466.01156715, 11191393.253049, 16503951.470790485],
               [-17397805.351132363, 11189376.256904582, 16506024.156017255]],
    ("E", 11): [[2192144.903824826, 17340568.800745163, 23880615.129843317],
                [2190148.906758894, 17341900.98726262, 23879831.292498957],
                [2188153.0819603684, 17343233.290418968, 23879047.087896414],
                [2186157.429466344, 17344565.71017568, 23878262.51604775]],
}
TOW = 252818  # of the sync time
EPHEMERIDES = {
    ("G", 7): [56, -112.40625, 4.3e-9, 1.234567890123, -5.9e-6, 0.0161234567891, 9.1e-6, 5153.678901234, 252000, 1.9e-7,
               -2.345678901234, -8.2e-8, 0.9512345678901, 215.15625, -2.1789012345678, -7.9e-9, -1.5e-10, 1, 2288, 0, 2, 0,
               -1.1e-8, 56],
    ("G", 19): [12, 35.5, 4.9e-9, -0.6543210987, 1.8e-6, 0.0098765432101, 5.4e-6, 5153.512345678, 252000, -1.4e-7,
                0.7654321098765, 6.1e-8, 0.9712345678901, 280.34375, 0.9876543210123, -8.1e-9, 2.5e-10, 1, 2288, 0, 2, 0,
                -1.5e-8, 12],
    ("G", 3): [13, -55.5, 4.1e-9, 0.2543210987, 2.8e-6, 0.0038765432101, 6.4e-6, 5153.612345678, 252000, 1.1e-7,
               1.5654321098765, -4.1e-8, 0.9612345678901, 240.34375, 0.4876543210123, -8.2e-9, -2.5e-10, 1, 2288, 0, 2, 0,
               -1.5e-8, 13],
    ("E", 11): [80, -20.25, 3.1e-9, 0.345678901234, -9.8e-7, 0.0002345678901, 7.7e-6, 5440.612345678, 252600, 3.2e-8,
                -0.98765432109, -2.1e-8, 0.9876543210987, 170.125, 1.45678901234, -5.6e-9, 3.3e-10, 517, 2288, 0, 3.12, 0,
                4.4e-9, 4.9e-9],
}


def rinex(version, ephemerides=None):
    """A navigation file, with records that gnsscal must pass over."""
    def line(first, numbers):
        return first + "".join(f"{number: .12E}".replace("E", "D") for number in numbers)
    two, four = version < 3, version >= 4
    lines = [f"{version:9.2f}{'':11}N: GNSS NAV DATA    {'' if two else 'M: MIXED':20}RINEX VERSION / TYPE",
             f"{18:6}{'':54}LEAP SECONDS", f"{'':60}END OF HEADER"]
    if four:
        lines += ["> ION G07 LNAV", line("    2023 11 14 22 00 00", [1e-8, 2e-8, 3e-8]), line("    ", [1, 2, 3, 4])]
    if not two:
        lines += (["> EPH R05 FDMA"] if four else []) + [line("R05 2023 11 14 22 15 00", [1, 2, 3])]
        lines += [line("    ", [11000, 1, 0, 0])] * 3
    for (system, prn), numbers in (ephemerides or EPHEMERIDES).items():
        if two and system != "G":
            continue
        lines += [f"> EPH {system}{prn:02} {'LNAV' if system == 'G' else 'INAV'}"] if four else []
        lines.append(line(f"{prn:2} 23 11 14 22  0  0.0" if two else f"{system}{prn:02} 2023 11 14 22 00 00",
                          [-3.1e-4, -2.2e-12, 0]))
        numbers = numbers + [252000, 4]
        lines += [line("   " if two else "    ", numbers[i:i + 4]) for i in range(0, 28, 4)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("version", [2.11, 3.04, 4.0])
def test_orbits(work, version):
    (work / "nav").write_text(rinex(version))
    ephemerides = gnsscal_orbits.Ephemerides(work / "nav")
    for (system, prn), positions in ORBITS.items():
        eph = ephemerides.nearest(system, prn, 2288 * 604800 + TOW)
        if version < 3 and system == "E":
            assert eph is None
            continue
        found = gnsscal_orbits.position(eph, TOW - eph["toe"] + np.arange(-1, 3))
        assert np.abs(found - positions).max() < 1e-4
        assert ephemerides.nearest(system, prn, 2288 * 604800 + TOW + 5 * 3600) is None
        eph["health"] = 1
        assert ephemerides.nearest(system, prn, 2288 * 604800 + TOW) is None


LATITUDE, LONGITUDE, ALTITUDE = 40.0, 83.0, 1000.0
PLACES = [[0, 0, 0], [300, -40, 2], [-120.5, 210, -3], [15, 95.25, 10]]


def middle_and_axes():
    """By astropy; the axes (east, north, up) by differences, to 1e-7."""
    def at(lat, lon, height):
        return EarthLocation.from_geodetic(lon, lat, height).to_geocentric()
    middle = np.array([x.to_value("m") for x in at(LATITUDE, LONGITUDE, ALTITUDE)])
    axes = []
    for lat, lon, height in ((0, 1e-4, 0), (1e-4, 0, 0), (0, 0, 10)):
        ends = [np.array([x.to_value("m") for x in at(LATITUDE + s * lat, LONGITUDE + s * lon, ALTITUDE + s * height)])
                for s in (-1, 1)]
        axes.append((ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0]))
    return middle, np.array(axes)


def way_of(key):
    """A satellite's path to each antenna, from cssrlib's positions, with a separate term for the Earth's rotation."""
    coefficients = np.polyfit(np.arange(-1, 3), np.array(ORBITS[key]), 3)
    middle, axes = middle_and_axes()
    places = middle + np.array(PLACES) @ axes

    def way_s(ant, t):
        x = places[ant]
        delay_s = 0.08
        for _ in range(4):
            powers = (np.asarray(t) - delay_s)[..., None] ** np.arange(3, -1, -1)
            sat = powers @ coefficients
            sagnac = 7.2921151467e-5 / C * (sat[..., 0] * x[1] - sat[..., 1] * x[0])
            delay_s = (np.linalg.norm(sat - x, axis=-1) + sagnac) / C
        return delay_s
    return way_s


def direction_of(key):
    """(azimuth, elevation) in degrees."""
    middle, axes = middle_and_axes()
    east, north, up = axes @ (np.array(ORBITS[key][1]) - middle)
    return np.degrees(np.arctan2(east, north)) % 360, np.degrees(np.arctan2(up, np.hypot(east, north)))


SKY_ARGUMENTS = ["--pcap", "sums.pcap", "--ephemeris", "nav", "--positions", "array.yaml"]
SKY_KEYS = [("G", 19), ("G", 3)]


@pytest.fixture
def sky(work):
    """A capture of two satellites over an array that is 400 m wide; its directory."""
    write_model(work, [Satellite(prn, way_of(("G", prn)), 47) for _, prn in SKY_KEYS], INPUTS, start_s=0.1)
    (work / "nav").write_text(rinex(3.04))
    (work / "array.yaml").write_text(yaml.safe_dump({
        "telescope": {"name": "x", "latitude": LATITUDE, "longitude": LONGITUDE, "altitude": ALTITUDE},
        "antennas": [{"name": f"m{i:03}", "position": place} for i, place in enumerate(PLACES)]}))
    return work


def test_geometry(sky):
    _, found = gnsscal(sky, *SKY_ARGUMENTS, "--all-satellites")
    check_model(found, INPUTS, SKY + 5e6)
    assert all(sorted(one["satellites"]) == ["L1CA-19", "L1CA-3"] for one in found["inputs"])
    _, wrong = gnsscal(sky, "--pcap", "sums.pcap", "--no-geometry", "--all-satellites")
    assert max(one["delay_s"]["error"] for one in wrong["inputs"]) > 1e-7  # satellites disagree without it


def test_main_beam(sky):
    """Phases are of the satellite that the dishes look at; delays of both."""
    azimuth, elevation = direction_of(("G", 3))
    for radius, n in ((0.5, 1), (179, 2)):
        beam = f"{azimuth + 0.3},{elevation - 0.3},{radius}"
        _, found = gnsscal(sky, *SKY_ARGUMENTS, "--beam", beam)
        check_model(found, INPUTS, SKY + 5e6)
        assert all(len(one["satellites"]) == 2 and len(one["beam_satellites"]) == n for one in found["inputs"])
        assert all("L1CA-3" in one["beam_satellites"] for one in found["inputs"])
    text, found = gnsscal(sky, *SKY_ARGUMENTS, "--beam", f"{azimuth + 2},{elevation},0.5")
    assert "No phases and gains" in text and found["inputs"][0]["phase_rad"] is None


# ---- The programs ----------------------------------------------------------------------------------------------------

ADC = 8e6
LATE = [(0, 0), (240.3, 240.3), (-240.55, -240.35), (17.25, 18.75)]  # samples; the last polarisations 0.19 chip apart
GAINS = (1, 1.2, 0.7, 1.3)
BASE = 1000  # samples that all are later by, so that none is early


def programs_config(work, name, specification, seconds, **fgpu):
    """Writes dsim's and fgpu's files."""
    def feeds(ant):
        return {f"pol{pol}": f"239.102.0.{2 * ant + pol}:{harness.PORT}" for pol in range(2)}
    dsim = {
        "time": {"sync_time": SYNC_TIME, "adc_sample_rate": ADC},
        "digitiser": {"packet_samples": 4096, "sample_bits": 8, "duration": seconds, "first_timestamp": 40960,
                      "period": 4096 * 2560, "dither_seed": 1},
        "signals": {"specification": specification},
        "antennas": [{"name": f"m{i:03}", "digitiser_id": 2 * i} | feeds(i) for i in range(N_ANTS)],
        "send": {"pcap_file": str(work / f"{name}.in.pcap")},
    }
    config = {
        "time": {"sync_time": SYNC_TIME, "adc_sample_rate": ADC},
        "device": {"kind": harness.DEVICE, "threads": 1},
        "recv": {"pcap_file": str(work / f"{name}.in.pcap"), "sample_bits": 8, "packet_samples": 4096,
                 "chunk_samples": 32768, "max_delay_diff": 0},
        "antennas": [{"name": f"m{i:03}", "feng_id": i} | feeds(i) for i in range(N_ANTS)],
        "outputs": [{"name": "wide", "channels": 64, "spectra_per_heap": 256, "taps": 4, "dither": "none",
                     "destinations": f"239.102.1.0:{harness.PORT}"}],
        "send": {"pcap_file": str(work / f"{name}.out.pcap"), "array_size": N_ANTS, "packet_payload": 8192},
    } | fgpu
    for program, sections in (("dsim", dsim), ("fgpu", config)):
        (work / f"{name}.{program}.yaml").write_text(yaml.safe_dump(sections))
    for program in ("dsim", "fgpu"):
        done = subprocess.run([BUILD / program, f"{name}.{program}.yaml"], cwd=work, capture_output=True, text=True,
                              timeout=4 * harness.TIMEOUT_S)  # each program needs 10 s of a processor
        assert done.returncode == 0, done.stderr


def specification_of(sky, noise):
    """Each input is its gain times the sky, delayed, plus separate noise."""
    return sky + "".join(f"{GAINS[i // 2]} * (track(sky, {BASE + LATE[i // 2][i % 2]}, 0) + wgn({noise}, {i + 1}));\n"
                         for i in range(2 * N_ANTS))


@pytest.mark.skipif(harness.SANITIZED, reason="10 s of processor time become minutes")
def test_end_to_end(work):
    """dsim to fgpu to gnsscal: gnsscal finds the injected values.  With gnsscal's files, fgpu's channels of all
    antennas have one phase and one level."""
    satellites = [{"signal": "L1CA", "prns": [7, 19]}]
    stream = {"name": "l1", "destination": f"239.102.2.0:{harness.PORT}", "centre_frequency": 2000000, "decimation": 1,
              "pass_bandwidth": 3000000, "sky_frequency": 1575320000}
    programs_config(work, "sums", specification_of(
        "sky = gnss(L1CA, 7, 48, 0.1, 2.1e6, 1234.5, -1500, 0.4, 3) "
        "+ gnss(L1CA, 19, 48, 0.1, 2.1e6, 3000.25, 2500, -0.3, 4);\n", 0.1), 2.7, gnss=[stream], satellites=satellites)
    _, found = gnsscal(work, "--pcap", "sums.out.pcap", "--no-geometry", "--all-satellites", "--delays", "cal", "--gains",
                       "cal", config="sums.fgpu.yaml")
    assert len(found["inputs"]) == 6
    for one in found["inputs"]:
        ant, pol = int(one["antenna"][1:]), one["pol"]
        late = LATE[ant][pol]
        assert abs(ADC * one["delay_s"]["value"] - late) < 0.1 and ADC * one["delay_s"]["error"] < 0.05, one
        for key, hz in (("phase_rad", 2.1e6), ("centre_phase_rad", 2e6)):
            assert abs(turned(one[key]["value"] + 2 * np.pi * hz * late / ADC)) < 2, one
        assert one["gain"]["value"] == pytest.approx(GAINS[ant], rel=0.02)

    antennas = yaml.safe_load((work / "sums.fgpu.yaml").read_text())["antennas"]
    for antenna in antennas:
        antenna |= {key: str(work / "cal" / f"{antenna['name']}.{key}") for key in ("delays", "gains")}
    programs_config(work, "noise", specification_of("sky = wgn(0.1, 100);\n", 0.01), 0.2, antennas=antennas)
    check_channels(work / "noise.out.pcap")


def check_channels(path):
    heaps = [heap.items for heap in harness.decode_pcap(path)["239.102.1.0", harness.PORT] if heap.kind == "data"]
    by_ant = [{heap["timestamp"]: heap["feng_raw"].astype(float) for heap in heaps if heap["feng_id"] == ant}
              for ant in range(N_ANTS)]
    common = set.intersection(*map(set, by_ant))
    assert len(common) > 10
    for pol in range(2):
        voltages = [np.concatenate([of[t][:, :, pol, 0] + 1j * of[t][:, :, pol, 1] for t in sorted(common)], axis=1)[4:56]
                    for of in by_ant]  # [chan][spectrum], but for the ends of the band, where track()'s filter ends
        for ant in range(1, N_ANTS):
            fringes = np.sum(voltages[ant] * np.conj(voltages[0]), axis=1)
            power = np.sum(np.abs(voltages[0]) ** 2, axis=1)
            assert np.all(np.abs(fringes) > 0.9 * power) and np.all(np.abs(fringes) < 1.1 * power)
            assert np.abs(np.degrees(np.angle(fringes))).max() < 8, (ant, pol)  # at the band's ends: 0.1 sample is 17
            assert abs(np.degrees(np.angle(fringes.sum()))) < 2


# ---- Wrong inputs ----------------------------------------------------------------------------------------------------

CAPTURE = ["--pcap", "sums.pcap"]
WRONG = [  # arguments, what the sentence says
    (["fgpu.yaml"], "either --pcap or --interface"),
    (["fgpu.yaml", "--interface", "127.0.0.1", "--no-geometry"], "--interface needs --seconds"),
    (["fgpu.yaml", *CAPTURE], "either --ephemeris"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "nav"], "--positions need each other"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--beam", "1,2,3"], "--beam needs --ephemeris"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--gains", "x"], "--gains needs --beam"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--katcp", "a:1", "b:2"], "2 addresses for 1 configuration"),
    (["none.yaml", *CAPTURE, "--no-geometry"], "none.yaml: cannot be read"),
    (["sums.pcap", *CAPTURE, "--no-geometry"], "sums.pcap: "),
    (["list.yaml", *CAPTURE, "--no-geometry"], "list.yaml: not a configuration"),
    (["empty.yaml", *CAPTURE, "--no-geometry"], "empty.yaml: has no 'gnss'"),
    (["odd.yaml", *CAPTURE, "--no-geometry"], "odd.yaml: not a configuration of fgpu: 'sky_frequency' is missing"),
    (["fgpu.yaml", "fgpu.yaml", *CAPTURE, "--no-geometry"], "must differ in name and feng_id"),
    (["fgpu.yaml", "other.yaml", *CAPTURE, "--no-geometry"], "other.yaml: sky_hz is 1"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--stream", "l2"], "'gnss' has no 'l2', only l1"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--output", "x"], "'outputs' has no 'x', only wide, narrow"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--reference", "m9"], "no antenna 'm9', only m000, m001"),
    (["fgpu.yaml", "--pcap", "none.pcap", "--no-geometry"], "none.pcap: not a capture"),
    (["fgpu.yaml", "--pcap", "fgpu.yaml", "--no-geometry"], "fgpu.yaml: not a capture"),
    (["more.yaml", *CAPTURE, "--no-geometry"], "m009: sums.pcap has no sums of its stream l1 (feng_id 9)"),
    (["fgpu.yaml", "--interface", "1.2.3", "--seconds", "1", "--no-geometry"], "cannot be received on 1.2.3"),
    (["fgpu.yaml", "--pcap", "short.pcap", "--no-geometry"], "polarisation 0 has no usable satellite"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "nav", "--positions", "fgpu.yaml"], "has no antenna positions"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "nav", "--positions", "places.yaml"], "has no position of m001"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "nav", "--positions", "array.yaml"], "no satellite whose ephemeris is known"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "cut", "--positions", "array.yaml"], "cut: not a RINEX navigation file"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "fgpu.yaml", "--positions", "array.yaml"], "not a RINEX navigation file"),
    (["fgpu.yaml", *CAPTURE, "--ephemeris", "none", "--positions", "array.yaml"], "none: cannot be read"),
    (["fgpu.yaml", *CAPTURE, "--no-geometry", "--json", "fgpu.yaml/x"], "cannot be written"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A directory of files that are good but for one thing each."""
    work = tmp_path_factory.mktemp("wrong")
    good = fgpu_config()
    random = np.random.default_rng(SEED)
    for name, n_periods in (("sums", 450), ("short", 350)):
        harness.write_heaps(work / f"{name}.pcap", heaps_of({
            ant: receiver().records(SATELLITES[0], ant, INPUTS[ant], START_S, n_periods, random) for ant in range(N_ANTS)}))
    odd, other, more = fgpu_config(), fgpu_config(sky_frequency=1e9), fgpu_config()
    del odd["gnss"][0]["sky_frequency"]
    other["antennas"] = [{"name": "n", "feng_id": 99}]
    more["antennas"].append({"name": "m009", "feng_id": 9})
    place = {"telescope": {"latitude": 0, "longitude": 0, "altitude": 0}}
    for name, config in (("fgpu", good), ("odd", odd), ("other", other), ("more", more), ("list", [1]), ("empty", {"a": 1}),
                         ("places", place | {"antennas": [{"name": "m000", "position": [0, 0, 0]}, {"name": "m001"}]}),
                         ("array", place | {"antennas": [{"name": f"m{i:03}", "position": [i, 0, 0]} for i in range(4)]})):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(config))
    (work / "nav").write_text(rinex(3.04))
    (work / "cut").write_text("\n".join(rinex(3.04).splitlines()[:-4]) + "\n")
    return work


@pytest.mark.parametrize("arguments, sentence", WRONG)
def test_wrong_input(wrong, arguments, sentence, monkeypatch, capsys):
    monkeypatch.chdir(wrong)
    monkeypatch.setattr(sys, "argv", ["gnsscal", *arguments])
    assert runpy.run_path(str(GNSSCAL))["main"]() == 2
    said = capsys.readouterr().err
    assert said.startswith("gnsscal: ") and said.count("\n") == 1, said
    assert sentence in said
