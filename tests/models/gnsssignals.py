"""Signals of navigation satellites in numpy: codes from other columns of the interface documents' tables than the program's,
phases as rational numbers."""
from fractions import Fraction

import numpy as np

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
