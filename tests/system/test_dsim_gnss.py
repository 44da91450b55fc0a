"""Satellites' signals of dsim, as spead2 reads them from captures, against a model.  The model's codes come from other
columns of the interface documents' tables than the program's.  Its phases are rational numbers."""
from fractions import Fraction

import numpy as np
import pytest
import yaml

import harness
from harness import EXIT_CONFIG
from test_dsim import check_samples, endpoints, group, make_config, read_capture, run

PACKET = 4096
BITS = 16

# ---- The model ------------------------------------------------------------------------------------------------------

# IS-GPS-200, table 3-Ia: the delay of G2 in chips, of PRN 1 on.
G2_DELAYS = dict(enumerate([
    5, 6, 7, 8, 17, 18, 139, 140, 141, 251, 252, 254, 255, 256, 257, 258, 469, 470, 471, 472, 473, 474, 509, 512, 513, 514,
    515, 516, 859, 860, 861, 862], 1))
# IS-GPS-705, table 3-Ia: initial states of XB for I5 and Q5, stage 1 first.
XB_STATES = {1: ("0101011100100", "1001011001100"), 2: ("1100000110101", "0100011110110"),
             3: ("0100000001000", "1111000100011"), 4: ("1011000100110", "0011101101010"),
             5: ("1110111010111", "0011110110010"), 6: ("0110011111010", "0101010101001"),
             7: ("1010010011111", "1111110000001"), 8: ("1011110100100", "0110101101000"),
             9: ("1111100101011", "1011101000011"), 10: ("0111111011110", "0010010000110"),
             11: ("0000100111010", "0001000000101"), 12: ("1110011111001", "0101011000101"),
             32: ("0000010111001", "1001000101010")}
SECONDARY = {"L1CA": "0", "L5I": "0000110101", "L5Q": "00000100110101001110", "E1B": "0",
             "E1C": "0011100000001010110110010"}


def register(taps, n, state):
    """The output of a shift register of XORs, stage 1 first, as 0 and 1."""
    out, stages = [], list(state)
    for _ in range(n):
        out.append(stages[-1])
        stages = [sum(stages[tap - 1] for tap in taps) % 2] + stages[:-1]
    return np.array(out)


def l1ca(prn):
    g1 = register([3, 10], 1023, [1] * 10)
    g2 = register([2, 3, 6, 8, 9, 10], 1023, [1] * 10)
    return 1 - 2 * (g1 ^ np.roll(g2, G2_DELAYS[prn]))


def l5(prn, part):
    xa = register([9, 10, 12, 13], 8190, [1] * 13)  # cut short by one chip
    xb = register([1, 3, 4, 6, 7, 8, 12, 13], 10230, map(int, XB_STATES[prn][part]))
    return 1 - 2 * (np.resize(xa, 10230) ^ xb)


class Signal:
    """A signal's levels of unit power over one code period, in sub-chips, and its constants."""

    def __init__(self, name, prn, memory=None):
        self.name = name
        self.carrier = Fraction(117645, 10 ** 5) * 10 ** 9 if name[:2] == "L5" else Fraction(157542, 10 ** 5) * 10 ** 9
        self.quarter = Fraction(-1, 4) if name == "L5Q" else 0
        self.chip_rate = 10230000 if name[:2] == "L5" else 1023000
        if name[0] == "E":
            chips, k = memory[name, prn], np.arange(12)
            slow, fast = np.where(k < 6, 1, -1), np.where(k % 2, -1, 1)
            levels = (3 * slow + (1 if name == "E1B" else -1) * fast) / 2  # dsim's sum of sub-carriers: 2 to 1
        else:
            chips, levels = l1ca(prn) if name == "L1CA" else l5(prn, "IQ".index(name[2])), np.ones(1)
        self.n_sub = len(levels)
        self.levels = np.outer(chips, levels / np.sqrt(np.mean(levels ** 2))).ravel()
        self.secondary = np.array([-1 if chip == "1" else 1 for chip in SECONDARY[name]])

    def at(self, t, fs, carrier, delay, doppler, rate):
        """(level, its neighbours, cosine) at sample t, from rational numbers."""
        seconds = (t - Fraction(delay)) / Fraction(fs)
        theta = Fraction(doppler) * seconds + Fraction(rate) * seconds ** 2 / 2
        position = self.n_sub * (self.chip_rate * seconds + theta * self.chip_rate / self.carrier)
        turns = (Fraction(carrier) * seconds + theta + self.quarter) % 1
        near = [self.level(position.__floor__())]
        if min(position % 1, 1 - position % 1) < Fraction(2, 10 ** 5):  # fixed point may take the sub-chip beside it
            near += [self.level(position.__floor__() + 1), self.level(position.__floor__() - 1)]
        return near, np.cos(2 * np.pi * float(turns))

    def level(self, subchip):
        period, within = divmod(subchip, len(self.levels))
        return self.levels[within] * self.secondary[period % len(self.secondary)]


def amplitude(cn0, noise, fs):
    """The amplitude of a carrier times levels of unit power: C = a^2 / 2, N0 = noise^2 / (fs / 2)."""
    return np.sqrt(2 * 10 ** (cn0 / 10) * noise ** 2 / (fs / 2))


def write_codes(path, random):
    """Random memory codes in the form of the ICD; {(signal, PRN): chips}."""
    codes, lines = {}, []
    for name, prn in (("E1B", 4), ("E1B", 11), ("E1C", 11), ("E1C", 50)):
        digits = random.integers(0, 16, 1023)
        codes[name, prn] = 1 - 2 * ((digits[:, None] >> np.array([3, 2, 1, 0])) & 1).ravel()
        lines += [f"{name} Code No {prn}", "".join(f"{digit:X}" for digit in digits), "-----"]
    path.write_text("\n".join(lines) + "\n")
    return codes


# ---- Running --------------------------------------------------------------------------------------------------------

def samples_of(tmp_path, specification, n_outputs, fs, first, n_packets, **signals):
    """The samples of each output, [output][sample]; there are two for each antenna."""
    config = make_config(
        time={"adc_sample_rate": fs}, signals={"specification": specification, **signals},
        digitiser={"packet_samples": PACKET, "period": 256 * PACKET, "duration": (n_packets + 0.5) * PACKET / fs,
                   "first_timestamp": first, "sample_bits": BITS},
        send={"pcap_file": str(tmp_path / "out.pcap")})
    config["antennas"] = [{"name": f"a{i}", "digitiser_id": 2 * i, "pol0": endpoints(2 * i), "pol1": endpoints(2 * i + 1)}
                          for i in range(n_outputs // 2)]
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    return [np.concatenate([samples for heap, samples in read_capture(tmp_path / "out.pcap", group(g))
                            if samples is not None and not heap.descriptors]).astype(float) for g in range(n_outputs)]


SATELLITES = [  # signal, PRN, carrier, delay, Doppler, Doppler rate
    ("L1CA", 1, 2.5e6, 0, 0, 0),
    ("L1CA", 32, 1575.42e6, 1234.5, -4321.25, 0.75),
    ("L5I", 3, -4e6, -77777.125, 2500, -5),
    ("L5Q", 32, 1e6, 1e9, 1e4, 3),
    ("E1B", 4, 3.3e6, 12.75, 1999.5, 0.5),
    ("E1C", 50, 3.3e6, 0.25, -1e3, 1),
]


@pytest.mark.parametrize("first", [0, 10 ** 10 // PACKET * PACKET, 2 ** 46])
def test_samples(tmp_path, first):
    """Phases after hours equal rational arithmetic."""
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    fs, cn0, noise, n_packets = 10e6, 60, 0.5, 5
    memory = write_codes(tmp_path / "codes.txt", random)
    specification = "".join(
        f"nodither(gnss({name}, {prn}, {cn0}, {noise}, {carrier}, {delay}, {doppler}, {rate}));\n"
        for name, prn, carrier, delay, doppler, rate in SATELLITES)
    received = samples_of(tmp_path, specification, len(SATELLITES), fs, first, n_packets,
                          code_file=str(tmp_path / "codes.txt"))
    scale = amplitude(cn0, noise, fs) * (2 ** (BITS - 1) - 1)
    for samples, (name, prn, *arguments) in zip(received, SATELLITES):
        signal = Signal(name, prn, memory)
        assert len(samples) == n_packets * PACKET
        for i in random.choice(len(samples), 1500, replace=False):
            near, cosine = signal.at(first + int(i), fs, *arguments)
            error = min(abs(samples[i] - scale * level * cosine) for level in near)
            *_, doppler, rate = arguments
            seconds = (first + i) / fs
            theta = abs(doppler) * seconds + abs(rate) * seconds ** 2 / 2
            turns = 2.1e6 * abs(rate) / fs ** 2 + 5.5e-20 * (first + i) + 1.1e-19 * theta  # as dsim/gnss.h says
            allowed = 2 * np.pi * scale * turns
            assert error < 0.501 + allowed, f"{name} {prn} sample {i}: {samples[i]}, {scale * near[0] * cosine}"


def test_acquisition(tmp_path):
    """The peak of a search in delay and Doppler is at the arguments' values, and C/N0 equals the requested one."""
    fs, n_ms, cn0, noise, carrier, delay, doppler = 4e6, 200, 45.0, 0.1, 1.1e6, 1234.5, 1750.0
    x, alone = (samples / (2 ** (BITS - 1) - 1) for samples in samples_of(
        tmp_path, f"s = gnss(L1CA, 19, {cn0}, {noise}, {carrier}, {delay}, {doppler}, 0, 3); s + wgn({noise}, 8); s;",
        2, fs, 0, n_ms * 4000 // PACKET + 1))
    x, t = x[:n_ms * 4000], np.arange(n_ms * 4000) / fs
    chips = l1ca(19)
    code = np.fft.fft(chips[np.floor(np.arange(4000) * 1.023 / 4).astype(int)])
    power = {}
    for d in np.arange(-5000, 5001, 250.0):
        wiped = (x * np.exp(-2j * np.pi * (carrier + d) * t)).reshape(n_ms, 4000)
        power[d] = np.sum(np.abs(np.fft.ifft(np.fft.fft(wiped) * np.conj(code))) ** 2, axis=0)
    found = max(power, key=lambda d: power[d].max())
    assert found == doppler and np.argmax(power[found]) in (1234, 1235)
    seconds = t - delay / fs
    replica = chips[np.floor((1 + doppler / 1575.42e6) * 1.023e6 * seconds).astype(int) % 1023] * np.exp(
        -2j * np.pi * ((carrier + doppler) * seconds))
    first = 1235 + 4000 * 20  # symbols last 20 ms
    prompt = (x * replica)[first:first + 8 * 80000].reshape(8 * 20, 4000).mean(axis=1)
    a = 2 * np.mean(np.abs(prompt.reshape(8, 20).mean(axis=1).real))
    measured = 10 * np.log10(a ** 2 / 2 / (2 * (np.var(x) - a ** 2 / 2) / fs))
    print(f"C/N0 {measured:.3f} dB-Hz")
    assert measured == pytest.approx(cn0, abs=0.3)
    assert 10 * np.log10(np.var(alone) / (2 * noise ** 2 / fs)) == pytest.approx(cn0, abs=0.05)


@pytest.mark.parametrize("specification, says", [
    ("gnss(E1B, 1, 45, 0.1, 0, 0, 0, 0);", "needs a file of codes, signals.code_file"),
    ("gnss(L5I, 1, 45, 0.1, 0, 0, 0, 0);", "needs an adc_sample_rate of at least 3410000 Hz"),
])
def test_refused(tmp_path, specification, says):
    fs = 3e6 if "L5I" in specification else 10e6
    done = run(tmp_path, make_config(time={"adc_sample_rate": fs}, signals={"specification": specification}))
    assert done.returncode == EXIT_CONFIG and says in done.stderr


def test_code_that_is_not_there(tmp_path):
    write_codes(tmp_path / "codes.txt", np.random.default_rng(1))
    signals = {"specification": "gnss(E1B, 5, 45, 0.1, 0, 0, 0, 0);", "code_file": str(tmp_path / "codes.txt")}
    done = run(tmp_path, make_config(time={"adc_sample_rate": 10e6}, signals=signals))
    assert done.returncode == EXIT_CONFIG and "there is no E1B Code No 5" in done.stderr


def test_documentation(tmp_path):
    """The example of the manual is sent as it is."""
    write_codes(tmp_path / "e1.txt", np.random.default_rng(1))
    page = (harness.ROOT / "docs" / "satellites.md").read_text()
    config = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    config["signals"]["code_file"] = str(tmp_path / "e1.txt")
    done = run(tmp_path, harness.merge(config, {"digitiser": {"duration": 0.001},
                                                "send": {"pcap_file": str(tmp_path / "out.pcap")}}))
    assert done.returncode == 0, done.stdout + done.stderr
