"""fgpu's streams of satellites' sums, on captures, against the model of the signals.

The signals are made here in float64: codes by other columns of the interface documents' tables than the program has
(gnsssignals.py), phases as functions of time.
"""
import numpy as np
import pytest

import harness
import scenario
from harness import SEED, merge
from gnsssignals import Signal, write_codes

RATE = 10_000_000  # real samples
PACKET, CHUNK = 4096, 49152
CENTRE, SKY = 2_500_000, 1_575_320_000  # of the band, in the digitiser's and in the sky's frequencies
SUBSAMPLING, N_TAPS = 2, 32
SIGNALS = ["L1CA", "L5I", "L5Q", "E1B", "E1C"]
NOISE = 20.0  # steps of the digitiser
AMPLITUDE = 63  # of a replica's carrier
LOCKED = 3  # code and carrier


class Satellite:
    """A signal as the digitiser sees it: 'delay' in ADC samples, each polarisation 'turns' ahead."""

    def __init__(self, signal, prn, cn0, delay, doppler, rate, turns=(0.0, 0.0), memory=None, seed=None):
        self.code = Signal(signal, prn, memory)
        self.signal, self.prn = signal, prn
        self.delay, self.doppler, self.rate, self.turns = delay, doppler, rate, turns
        self.amplitude = np.sqrt(2 * 10**(cn0 / 10) * NOISE**2 / (RATE / 2))
        self.symbols = None if seed is None else np.random.default_rng(seed).choice([-1, 1], 10000)

    def theta(self, seconds):
        return self.doppler * seconds + self.rate * seconds**2 / 2

    def seconds(self, t):
        return (t - self.delay) / RATE

    def chips(self, t):
        """The code phase at ADC sample t, counted through."""
        seconds, carrier = self.seconds(t), float(self.code.carrier)
        return self.code.chip_rate * seconds + self.theta(seconds) * self.code.chip_rate / carrier

    def turns_at(self, t, pol):
        """The sky's carrier minus SKY, as the digitiser has it around CENTRE."""
        seconds = self.seconds(t)
        return (float(self.code.carrier) - SKY) * seconds + self.theta(seconds) + self.turns[pol]

    def samples(self, t, is_inverted):
        """Samples of both polarisations."""
        chips = self.chips(t)
        n = len(self.code.levels) // self.code.n_sub
        levels = self.code.levels[np.floor(chips * self.code.n_sub).astype(int) % len(self.code.levels)]
        periods = np.floor(chips / n).astype(int)
        levels = levels * self.code.secondary[periods % len(self.code.secondary)]
        if self.symbols is not None:
            levels = levels * self.symbols[periods // (20 if self.signal == "L1CA" else 1)]
        sign = -1 if is_inverted else 1
        turns = CENTRE * (t % RATE) / RATE + sign * self.turns_at(t, 0)
        carrier = self.amplitude * levels * np.exp(2j * np.pi * (turns - np.floor(turns)))
        return [carrier.real, (carrier * np.exp(2j * np.pi * sign * (self.turns[1] - self.turns[0]))).real]


def make_samples(rng, satellites, first, n, is_inverted=False):
    """int16 [1][pol][n] of 8 bits from timestamp 'first' on."""
    out = np.empty((1, 2, n), np.int16)
    for at in range(0, n, 1 << 19):
        t = first + np.arange(at, min(at + (1 << 19), n))
        x = rng.standard_normal((2, len(t)), np.float32) * NOISE
        for s in satellites:
            x += s.samples(t, is_inverted)
        out[0, :, at:at + len(t)] = np.clip(np.rint(x), -128, 127)
    return out


def make_config(satellites, n_ants=1, **gnss):
    by_signal = {}
    for s in satellites:
        by_signal.setdefault(s.signal, []).append(s.prn)
    config = scenario.fgpu_config(
        outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4}], feng_ids=range(n_ants),
        time={"adc_sample_rate": RATE}, send={"array_size": max(4, n_ants)},
        recv={"sample_bits": 8, "packet_samples": PACKET, "chunk_samples": CHUNK})
    config["gnss"] = [{"name": "gnss", "destination": harness.groups(1), "centre_frequency": CENTRE, "decimation": 1,
                       "pass_bandwidth": 4500000, "sky_frequency": SKY} | gnss]
    config["satellites"] = [{"signal": signal, "prns": prns} for signal, prns in by_signal.items()]
    return config


def run(daemon, work, config, samples, first, present=None, name="run"):
    sent = scenario.digitiser_heaps(config, samples, first, present)
    found = scenario.run_pcap(daemon, "fgpu", config, work, sent, name)
    heaps = [heap for heap in found[harness.endpoints(config["gnss"][0]["destination"])[0]] if heap.kind == "data"]
    heaps.sort(key=lambda heap: heap.items["feng_id"])  # antennas have no order; the heaps of an antenna keep theirs
    return heaps, np.concatenate([heap.items["gnss_sums"] for heap in heaps])


def records_of(records, satellite):
    return records[(records["prn"] == satellite.prn) & (records["signal"] == SIGNALS.index(satellite.signal))]


def middle(records):
    """ADC time of an integration's middle sample: its filter is centred there."""
    return records["timestamp"] + (N_TAPS - 1) / 2


def check_phases(records, satellite, is_inverted, what):
    """Code and carrier of locked integrations are the model's."""
    t = middle(records)
    n_chips = len(satellite.code.levels) // satellite.code.n_sub
    code = records["code_phase"] - satellite.chips(t) % n_chips
    code -= n_chips * np.rint(code / n_chips)
    prompt = records["sums"][:, 1, :, 0] + 1j * records["sums"][:, 1, :, 1]
    assert np.sqrt(np.mean(code**2)) < 0.02, f"{what}: code {np.sqrt(np.mean(code ** 2))} chips"
    for pol in range(2):
        measured = records["carrier_phase"] + np.angle(prompt[:, pol]) / (2 * np.pi)
        error = measured - satellite.turns_at(t, pol) + (0.25 if satellite.signal == "L5Q" else 0)
        halves = np.angle(np.exp(4j * np.pi * error)) / (4 * np.pi)  # data turn the sum by half a turn
        mean, rms = abs(np.mean(halves)), np.std(halves)
        assert mean < 5 / 360 and rms < 20 / 360, f"{what} pol{pol}: carrier off by {360 * mean} and {360 * rms} deg"
    doppler = satellite.doppler + satellite.rate * satellite.seconds(t)
    assert np.max(np.abs(records["doppler"] - doppler)) < 5, what


def check_sums(records, satellite, what):
    """Sums have the samples' units, except for the filter's effect on the code."""
    expected = satellite.amplitude / 2 * np.sqrt(SUBSAMPLING) * AMPLITUDE * records["n_present"]
    level = np.sqrt(np.mean(np.abs(satellite.code.levels)**2))
    prompt = np.hypot(*np.moveaxis(records["sums"][:, 1], -1, 0)).mean(axis=1)
    ratio = np.mean(prompt) / np.mean(expected * level)
    assert 0.85 < ratio < 1.1 or satellite.signal[0] == "E", f"{what}: sums are {ratio} times the model's"


@pytest.mark.parametrize("is_inverted", [False, True])
def test_tracked(daemon, work, is_inverted):
    """Two polarisations, data bits, Doppler and its rate; one of the satellites is not there."""
    rng = np.random.default_rng([SEED, is_inverted])
    memory = write_codes(work / "codes.txt", rng)
    sky = [Satellite("L1CA", 7, 47, 1234.5, -1500, 0.4, (0.1, 0.35), seed=1),
           Satellite("E1B", 11, 47, -3000.25, 2500, -0.3, (0.0, -0.2), memory, seed=2)][:1 if is_inverted else 2]
    absent = Satellite("L1CA", 32, 0, 0, 0, 0)
    config = make_config([*sky, absent], codes=str(work / "codes.txt"), inverted=is_inverted)
    first = int(rng.integers(1, 2**30)) * PACKET
    for s in sky:
        s.delay += first
    n = (19 if is_inverted else 24) * 1_000_000 // PACKET * PACKET
    heaps, records = run(daemon, work, config, make_samples(rng, sky, first, n, is_inverted), first)
    assert set(np.diff([heap.items["timestamp"] for heap in heaps])[1:]) == {CHUNK}
    assert len(records_of(records, absent)) == 0
    for s in sky:
        what = f"CBF_SEED={SEED} {s.signal}-{s.prn}"
        mine = records_of(records, s)
        assert np.all(mine["n_starts"] == 1), f"{what} was lost"
        assert np.all(np.diff(mine["code_period"]) == 1), what
        whole = mine[mine["timestamp"] < first + n - 2 * CHUNK]
        assert np.all(whole["n_present"] == whole["n_samples"]), what
        locked = whole[(whole["stage"] == 3) & (whole["flags"] & 3 == LOCKED)][100:]
        assert len(locked) > 40, f"{what}: {len(locked)} locked integrations"
        # A replica of BOC(1,1) for CBOC, in a band of 4.5 MHz: 1.9 dB by a calculation without noise.
        expected = 47 - (1.9 if s.signal == "E1B" else 0)
        assert np.all(np.abs(locked["cn0"][-1] - expected) < 1.8), f"{what}: {locked['cn0'][-1]} dB-Hz"
        check_phases(locked, s, is_inverted, what)
        check_sums(locked, s, what)


def test_losses(daemon, work):
    """Records say which samples were there, to the sample; the satellite is followed over gaps."""
    rng = np.random.default_rng(SEED)
    first = int(rng.integers(1, 2**30)) * PACKET
    satellite = Satellite("L1CA", 19, 50, first + 777.75, 800, 0.2, seed=3)
    n_packets = 18_000_000 // PACKET
    samples = make_samples(rng, [satellite], first, n_packets * PACKET)
    present = rng.random((1, 2, n_packets)) > 0.003
    present[:, :, :4] = present[:, :, -4:] = True
    begin = int(rng.integers(3400, 3600))
    present[:, :, begin:begin + 60] = False  # 25 ms
    heaps, records = run(daemon, work, make_config([satellite]), samples, first, present)
    mine = records_of(records, satellite)
    what = f"CBF_SEED={SEED}"
    assert np.all(mine["n_starts"] == 1), f"{what}: lost"
    both = np.repeat(present[0].all(axis=0), PACKET)
    clear = np.concatenate([[0], np.cumsum(both)])
    begins = mine["timestamp"] // SUBSAMPLING - mine["n_samples"] // 2
    mine = mine[mine["timestamp"] < first + samples.shape[2] - 2 * CHUNK]
    for record, begin in zip(mine, begins):
        number = begin + np.arange(record["n_samples"])
        at = number * SUBSAMPLING - first
        there = clear[at + N_TAPS] - clear[at] == N_TAPS
        assert record["n_present"] == np.count_nonzero(there), f"{what}: {record}"
    assert np.any(mine["n_present"] < mine["n_samples"])
    locked = mine[(mine["stage"] == 3) & (mine["flags"] & 3 == LOCKED)][100:-2]
    check_phases(locked[locked["n_present"] == locked["n_samples"]], satellite, False, what)


def test_antennas(daemon, work):
    """Three antennas share the loops of a satellite: the antenna that finds the satellite stops after 1.85 s, an antenna
    receives the signal half a complex sample beside the replica, an antenna receives only noise."""
    rng = np.random.default_rng(SEED)
    first, late, n_packets, n_first = int(rng.integers(1, 2**30)) * PACKET, 75, 21_500_000 // PACKET, 18_500_000 // PACKET
    sky = Satellite("L1CA", 7, 48, first + 1234.5, -1500, 0.4, (0.1, 0.35), seed=1)
    n = n_packets * PACKET
    signal = np.concatenate([np.float32(sky.samples(first - late + np.arange(at, min(at + (1 << 19), n + late)), False))
                             for at in range(0, n + late, 1 << 19)], axis=1)
    samples = np.empty((3, 2, n), np.int16)
    for ant, of_ant in enumerate((signal[:, late:], signal[:, :n], 0)):
        noise = rng.standard_normal((2, n), np.float32) * NOISE
        samples[ant] = np.clip(np.rint(noise + of_ant), -128, 127)
    present = np.ones((3, 2, n_packets), bool)
    present[0, :, n_first:] = False
    config = make_config([sky], 3, max_antenna_delay=20e-6)
    heaps, _ = run(daemon, work, config, samples, first, present)
    n_again = 6_000_000 // PACKET * PACKET
    again, _ = run(daemon, work, config, samples[:, :, :n_again], first, present, "again")
    both = [sorted((h.items["timestamp"], h.items["feng_id"], h.items["gnss_sums"].tobytes()) for h in of
                   if h.items["timestamp"] < first + n_again - 8 * CHUNK) for of in (heaps, again)]
    assert len(both[0]) > 300 and both[0] == both[1], "a recording gives the same heaps every time"
    what, ends = f"CBF_SEED={SEED}", (n_first * PACKET, n)
    of_ant = [np.concatenate([h.items["gnss_sums"] for h in heaps if h.items["feng_id"] == ant]) for ant in range(3)]
    assert len(records_of(of_ant[2], sky)) == 0, f"{what}: noise was followed"
    for ant, delay in enumerate((0, late)):
        mine = records_of(of_ant[ant], sky)
        assert np.all(mine["n_starts"] == 1) and np.all(np.diff(mine["code_period"]) == 1), f"{what}: m{ant} was lost"
        whole = mine[mine["n_present"] == mine["n_samples"]]
        assert len(whole) > len(mine) - 12, f"{what}: samples of m{ant} are missing"
        assert ends[ant] - 2 * CHUNK < whole["timestamp"][-1] - first < ends[ant], f"{what}: m{ant} ends early"
        there = Satellite("L1CA", 7, 48, sky.delay + delay, -1500, 0.4, [t - CENTRE * delay / RATE for t in sky.turns], seed=1)
        t = middle(whole)
        code = whole["code_phase"] - there.chips(t) % 1023
        residual = (code - 1023 * np.rint(code / 1023)) * RATE / SUBSAMPLING / 1.023e6  # complex samples
        assert np.all(np.abs(residual[200:]) < 0.65), f"{what}: m{ant} is {residual[200:].min()} to {residual[200:].max()} off"
        prompt = whole["sums"][:, 1, :, 0] + 1j * whole["sums"][:, 1, :, 1]
        locked = (whole["stage"] == 3) & (whole["flags"] & 3 == LOCKED)
        assert np.count_nonzero(locked) > 100 * (1 + ant), f"{what}: m{ant}"
        for pol in range(2):
            turns = whole["carrier_phase"] + np.angle(prompt[:, pol]) / (2 * np.pi) - there.turns_at(t, pol)
            halves = np.angle(np.exp(4j * np.pi * turns[locked])) / (4 * np.pi)
            assert abs(np.mean(halves)) < 5 / 360 and np.std(halves) < 20 / 360, f"{what}: m{ant} pol{pol}"
        assert abs(whole["doppler"][-1] - there.doppler - 0.4 * there.seconds(t[-1])) < 5


def test_majority(daemon, work):
    """An antenna whose delay is too large finds the satellite first.  Two other antennas agree, and go on without it."""
    rng = np.random.default_rng(SEED)
    first, n, late = int(rng.integers(1, 2**30)) * PACKET, 9_000_000 // PACKET * PACKET, (300, 0, 20)
    sky = Satellite("L1CA", 7, 48, first + 1234.5, -1500, 0.4, (0.1, 0.35), seed=1)
    signal = np.concatenate([np.float32(sky.samples(first - 300 + np.arange(at, min(at + (1 << 19), n + 300)), False))
                             for at in range(0, n + 300, 1 << 19)], axis=1)
    samples = np.stack([np.clip(np.rint(rng.standard_normal((2, n), np.float32) * NOISE + signal[:, 300 - d:300 - d + n]),
                                -128, 127).astype(np.int16) for d in late])
    heaps, _ = run(daemon, work, make_config([sky], 3, max_antenna_delay=20e-6), samples, first)
    end = [np.concatenate([h.items["gnss_sums"] for h in heaps if h.items["feng_id"] == ant])[-300:] for ant in range(3)]
    assert len(records_of(end[0], sky)) == 0, f"CBF_SEED={SEED}: m0 is followed"
    for ant in (1, 2):
        mine = records_of(end[ant], sky)
        code = mine["code_phase"] - sky.chips(middle(mine) - late[ant]) % 1023
        assert len(mine) > 30 and np.all(np.abs(code - 1023 * np.rint(code / 1023)) < 0.2), f"CBF_SEED={SEED}: m{ant}"


def test_jump_beside_a_silent_antenna(daemon, work):
    """Chunks wait for the silent antenna.  After a jump, a new chunk may need the place of a waiting chunk."""
    rng = np.random.default_rng(SEED)
    config, first, n_before, n_after = make_config([Satellite("L1CA", 7, 48, 0, 0, 0)], 2), 2**21 * PACKET, 14, 12
    samples = np.clip(np.rint(rng.standard_normal((2, 2, CHUNK * max(n_before, n_after))) * NOISE), -128, 127).astype(np.int16)
    present = np.ones((2, 2, samples.shape[2] // PACKET), bool)
    present[1] = False
    for jump in [*range(50, 58), -55]:  # each remainder of a division by the number of places
        parts = [scenario.digitiser_heaps(config, samples[:, :, :k * CHUNK], at, present) for k, at in
                 ((n_before, first), (n_after, first + (n_before + jump) * CHUNK))]
        scenario.run_pcap(daemon, "fgpu", config, work, parts[0] + parts[1], f"jump{jump}")


def test_time_goes_back(daemon, work):
    """All satellites are searched for again, and no record has data of the time before."""
    rng = np.random.default_rng(SEED)
    parts, config = [], None
    for k, first in enumerate([2**31, 2**20]):
        satellite = Satellite("L1CA", 7, 50, first + 100.5, 500 - 1000 * k, 0)
        config = config or make_config([satellite])
        n = 400 * PACKET
        parts.append((satellite, first, scenario.digitiser_heaps(config, make_samples(rng, [satellite], first, n), first)))
    found = scenario.run_pcap(daemon, "fgpu", config, work, parts[0][2] + parts[1][2])
    heaps = found[harness.endpoints(config["gnss"][0]["destination"])[0]]
    records = np.concatenate([heap.items["gnss_sums"] for heap in heaps if heap.kind == "data"])
    records = records[(records["prn"] == 7) & (records["n_present"] == records["n_samples"])]
    assert sorted(set(records["n_starts"])) == [1, 2]
    for k, (satellite, first, _) in enumerate(parts):
        mine = records[records["n_starts"] == k + 1]
        assert np.all((mine["timestamp"] >= first) & (mine["timestamp"] < first + 400 * PACKET))
        assert np.all(np.abs(mine["doppler"] - satellite.doppler) < 100)
        code = mine["code_phase"] - satellite.chips(middle(mine)) % 1023
        assert np.all(np.abs(code - 1023 * np.rint(code / 1023)) < 0.5)


@pytest.mark.parametrize("n_ants, n_packets", [(1, 150), (8, 110)])  # from 8 antennas on another kernel correlates
def test_emulated(daemon, work, fake_cuda, n_ants, n_packets):
    """The CUDA kernels make the same of the same samples, but for the rounding of the filter."""
    rng = np.random.default_rng(SEED)
    first = 2**33
    satellite = Satellite("L1CA", 7, 52, first + 100.5, 500, 0)
    samples = np.repeat(make_samples(rng, [satellite], first, n_packets * PACKET), n_ants, axis=0)
    config = make_config([satellite], n_ants, acquire_blocks=3 if n_ants == 1 else 1)
    cpu = records_of(run(daemon, work, config, samples, first)[1], satellite)
    again = records_of(run(daemon, work, config, samples, first, name="again")[1], satellite)
    assert np.array_equal(cpu, again), "a recording gives the same records every time"
    cuda = records_of(run(daemon, work, merge(config, {"device": {"kind": "cuda"}}), samples, first, name="cuda")[1], satellite)
    assert len(cpu) == len(cuda) > 15 * n_ants
    for name in ("timestamp", "code_period", "n_samples", "n_present", "stage"):
        assert np.array_equal(cpu[name], cuda[name]), name
    assert np.max(np.abs(cpu["code_phase"] - cuda["code_phase"])) < 1e-5
    limit = 1e-3 * np.max(np.abs(cpu["sums"]))
    assert np.max(np.abs(cpu["sums"] - cuda["sums"])) < limit


@pytest.mark.parametrize("change, says", [
    ({"gnss": [{"sky_frequency": 1.2e9}]}, "no satellite of 'satellites' has its carrier in the band of stream gnss"),
    ({"gnss": [{"name": "wide0"}]}, "a stream and an output have the same name, wide0"),
    ({"gnss": [{"name": "a b"}]}, "name must consist of letters"),
    ({"satellites": [{"signal": "E1B", "prns": [3]}]}, "codes must name the file with the codes of E1B"),
    ({"satellites": [{"signal": "L1CA", "prns": [3, 4, 3]}]}, "satellite L1CA-3 is listed twice"),
    ({"satellites": [{"signal": "L1CA", "prns": [33]}]}, "satellites of L1CA have the numbers 1 to 32, not 33"),
    ({"satellites": []}, "no satellite of 'satellites' has its carrier in the band of stream gnss"),
    ({"recv": {"chunk_samples": 1048576}}, "chunk_samples must be at most 0.06 s of data if there are gnss streams"),
    ({"gnss": [{"decimation": 8, "pass_bandwidth": 300000}]}, "L1CA needs at least 1024032.5 complex samples a second"),
    ({"gnss": [{"centre_frequency": 5.1e6}]}, "centre_frequency must be from 0 to 5000000 Hz"),
    ({"gnss": [{"codes": "missing.txt"}], "satellites": [{"signal": "E1C", "prns": [3]}]}, "gnss[0].codes:"),
])
def test_refused(daemon, work, change, says):
    config = make_config([Satellite("L1CA", 7, 40, 0, 0, 0)])
    if "gnss" in change:
        config["gnss"][0] |= change["gnss"][0]
    config |= {key: value for key, value in change.items() if key == "satellites"}
    config["recv"] |= change.get("recv", {})
    harness.write_heaps(work / "in.pcap", [])
    config["recv"]["pcap_file"], config["send"]["pcap_file"] = str(work / "in.pcap"), str(work / "out.pcap")
    process = daemon("fgpu", config).wait_end(harness.EXIT_CONFIG)
    assert says in process.log.read_text()
