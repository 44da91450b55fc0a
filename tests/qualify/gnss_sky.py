"""A sky of navigation satellites in numpy: its samples in a SigMF file, its phases as functions of time in float64.

Codes come from tests/models/gnsssignals.py.  The model uses other columns of the interface documents than the
programs.  Times T are seconds since the first sample of the file.  A satellite's carrier and code are quadratics of
T - delay.
"""
import json
from dataclasses import dataclass, field

import fengine  # noqa: F401  finds the folders of tests/system
import numpy as np
from gnsssignals import Signal

BLOCK = 1 << 14  # samples made at once
ROW = 128  # of a block; a carrier is the product of one phasor for each row and one for each column
NOISE = 1000.0  # steps of the file in each component
PARTS = {"L1CA": ("L1CA",), "E1": ("E1B", "E1C"), "L5": ("L5I", "L5Q")}
# A part's factor in the sum: E1 is E1B minus E1C, L5Q is a quarter turn behind L5I.
FACTORS = {"L1CA": 1, "E1B": 1, "E1C": -1, "L5I": 1, "L5Q": -1j}
SYMBOL_PERIODS = {"L1CA": 20, "L5I": 10, "E1B": 1}  # code periods of a data symbol; the others have no data
N_SYMBOLS = 20000


@dataclass
class Satellite:
    """All parts of its signal have 'cn0_db_hz' each.  'memory' has the chips of E1, as write_codes() returns them."""
    system: str
    prn: int
    cn0_db_hz: float
    delay_s: float
    doppler_hz: float
    rate_hz_s: float = 0.0
    memory: dict = None
    codes: dict = field(init=False)
    symbols: np.ndarray = field(init=False)

    def __post_init__(self):
        self.codes = {name: Signal(name, self.prn, self.memory) for name in PARTS[self.system]}
        self.symbols = np.random.default_rng([self.prn, len(self.system)]).choice([-1, 1], N_SYMBOLS)

    @property
    def code(self):
        """Any part: all parts share chip rate, carrier and length."""
        return next(iter(self.codes.values()))

    @property
    def n_chips(self):
        return len(self.code.levels) // self.code.n_sub

    @property
    def carrier_hz(self):
        return float(self.code.carrier)

    def theta(self, t):
        """Turns of the Doppler."""
        since = t - self.delay_s
        return self.doppler_hz * since + self.rate_hz_s * since**2 / 2

    def turns(self, t, zero_hz):
        """The carrier's frequency relative to the sky's frequency 'zero_hz'."""
        return (self.carrier_hz - zero_hz) * (t - self.delay_s) + self.theta(t)

    def chips(self, t):
        """Counted through."""
        return self.code.chip_rate * ((t - self.delay_s) + self.theta(t) / self.carrier_hz)

    def doppler(self, t):
        return self.doppler_hz + self.rate_hz_s * (t - self.delay_s)

    def signs(self, name, periods):
        """The sign of a part's data and secondary code in code periods."""
        secondary = self.codes[name].secondary
        signs = secondary[periods % len(secondary)]
        return signs * self.symbols[periods // SYMBOL_PERIODS[name] % N_SYMBOLS] if name in SYMBOL_PERIODS else signs

    def tables(self):
        """{signs of all parts: sub-chips of a period}, complex64."""
        names = list(self.codes)
        found = {}
        for signs in np.ndindex(*(2,) * len(names)):
            signs = tuple(2 * sign - 1 for sign in signs)
            found[signs] = sum(sign * FACTORS[name] * self.codes[name].levels
                               for sign, name in zip(signs, names)).astype(np.complex64)
        return found


class Source:
    """Adds a satellite to blocks of complex64 samples."""

    def __init__(self, satellite, rate_hz, zero_hz, noise=NOISE):
        self.satellite, self.rate_hz, self.zero_hz = satellite, rate_hz, zero_hz
        # The noise of a component has the variance noise^2: N0 = 2 noise^2 / rate.
        self.amplitude = np.sqrt(2 * noise**2 / rate_hz * 10**(satellite.cn0_db_hz / 10))
        self.tables = satellite.tables()
        self.steps = np.arange(BLOCK, dtype=np.float64)

    def carrier(self, first):
        """complex64 [BLOCK].  The Doppler rate's product of row and column is left out: 1e-7 turns at 1 Hz/s."""
        t, s = first / self.rate_hz, self.satellite
        start = s.turns(t, self.zero_hz)
        step = (s.carrier_hz - self.zero_hz + s.doppler(t)) / self.rate_hz
        bend = s.rate_hz_s / (2 * self.rate_hz**2)
        rows, columns = ROW * np.arange(BLOCK // ROW), np.arange(ROW)
        rows = start % 1 + step * rows + bend * rows**2
        columns = step * columns + bend * columns**2
        rows, columns = (np.exp(2j * np.pi * (turns % 1)) for turns in (rows, columns))
        return np.multiply.outer((self.amplitude * rows).astype(np.complex64), columns.astype(np.complex64)).ravel()

    def add(self, first, out):
        """Adds the samples [first, first + BLOCK)."""
        s, carrier = self.satellite, self.carrier(first)
        start, end = s.chips(np.array([first, first + BLOCK]) / self.rate_hz)
        slope = (end - start) / BLOCK  # the Doppler rate bends it by 1e-12 chips
        period = int(start // s.n_chips)
        at = 0
        while at < BLOCK:
            next_period = min(BLOCK, int(np.ceil(((period + 1) * s.n_chips - start) / slope)))
            n = next_period - at
            chips = start - period * s.n_chips + slope * self.steps[at:next_period]
            index = np.minimum((chips * s.code.n_sub).astype(np.int32), len(s.code.levels) - 1)
            table = self.tables[tuple(int(s.signs(name, period)) for name in s.codes)]
            out[at:next_period] += carrier[at:next_period] * table[index] if n else 0
            at, period = next_period, period + 1


def write(path, satellites, rate_hz, seconds, zero_hz, seed):
    """A SigMF recording of complex 16-bit samples of two polarisations, [sample][pol][re, im]: path.sigmf-data and
    path.sigmf-meta.  Each polarisation has separate noise and the same satellites. 'zero_hz' is the sky's frequency at
    0 Hz.  Returns the path of the data."""
    rng = np.random.default_rng(seed)
    sources = [Source(satellite, rate_hz, zero_hz) for satellite in satellites]
    data = path.with_suffix(".sigmf-data")
    with open(data, "wb") as file:
        for first in range(0, int(rate_hz * seconds), BLOCK):
            sky = np.zeros(BLOCK, np.complex64)
            for source in sources:
                source.add(first, sky)
            x = rng.standard_normal((BLOCK, 2, 2), np.float32)
            x *= np.float32(NOISE)
            x += sky.view(np.float32).reshape(BLOCK, 1, 2)
            np.rint(x, out=x)
            file.write(np.clip(x, -32768, 32767, out=x).astype("<i2"))
    meta = {"global": {"core:datatype": "ci16_le", "core:sample_rate": rate_hz, "core:num_channels": 2,
                       "core:version": "1.0.0"},
            "captures": [{"core:sample_start": 0, "core:frequency": zero_hz}], "annotations": []}
    path.with_suffix(".sigmf-meta").write_text(json.dumps(meta, indent=1))
    return data


def write_codes(path, prns, rng):
    """Random memory codes of E1 in the form of the ICD; {(signal, PRN): chips}."""
    codes, lines = {}, []
    for name in PARTS["E1"]:
        for prn in prns:
            digits = rng.integers(0, 16, 1023)
            codes[name, prn] = 1 - 2 * ((digits[:, None] >> np.array([3, 2, 1, 0])) & 1).ravel()
            lines += [f"{name} Code No {prn}", "".join(f"{digit:X}" for digit in digits), "-----"]
    path.write_text("\n".join(lines) + "\n")
    return codes
