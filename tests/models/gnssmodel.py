"""An array's records of satellites' sums in numpy and float64, written from fgpu/gnss/gnss_record.h.

The satellite's signal reaches each antenna later by the path through space (seconds, a function of the time of
reception) and by the antenna's instrument.  Replicas have a small error, and an error of half a turn, as loops have.
Times are of 64 bits: np.longdouble.
"""
from dataclasses import dataclass

import numpy as np

import gnsssignals

RECORD = np.dtype([
    ("timestamp", "<i8"), ("code_period", "<i8"), ("code_phase", "<f8"), ("carrier_cycles", "<i8"),
    ("carrier_phase", "<f8"), ("doppler", "<f8"), ("doppler_rate", "<f8"), ("sums", "<f8", (3, 2, 2)),
    ("cn0", "<f4", (2,)), ("n_samples", "<u4"), ("n_present", "<u4"), ("prn", "<u2"), ("signal", "<u2"), ("stage", "<u2"), ("flags", "<u2"),
    ("symbol_period", "<i4"), ("n_starts", "<u4")])
TAP_CHIPS = 0.25
SYMBOL_PERIODS = 20
SPOILED_SAMPLES = 10 ** 7  # from records of a loop that is not locked to the first good one


@dataclass
class Satellite:
    """A signal of L1CA."""
    prn: int
    way_s: object  # (antenna's index, seconds): the way through space
    cn0_db_hz: float
    signal: int = 0
    carrier_hz: float = 1575.42e6
    chip_rate_hz: float = 1.023e6
    n_chips: int = 1023
    false_ants: tuple = ()  # whose loops are locked half a turn a code period off


@dataclass
class Input:
    delay_s: float = 0.0
    phase_rad: float = 0.0  # of the baseband, beside the delay's
    gain: float = 1.0


def triangle(chips):
    return np.maximum(0, 1 - np.abs(chips))


def autocorrelation(prn, chips):
    """Of the code of L1CA, within 2 chips."""
    code = gnsssignals.l1ca(prn)
    return sum(code @ np.roll(code, lag) / len(code) * triangle(chips - lag) for lag in range(-2, 3))


@dataclass
class Receiver:
    adc_rate_hz: float
    sample_rate_hz: float
    sky_hz: float
    oscillator_hz: float  # sky frequency that comes to the digitiser as 0
    is_inverted: bool = False

    def intermediate_hz(self, sky_hz):
        return self.oscillator_hz - sky_hz if self.is_inverted else sky_hz - self.oscillator_hz

    def carrier(self, satellite, ant, seconds, delay_s):
        """Turns in the baseband that runs as the sky does.  The oscillator comes before the instrument's delay, the
        mixer behind it."""
        behind = seconds - delay_s
        at_digitiser = (satellite.carrier_hz - self.oscillator_hz) * behind
        at_digitiser = at_digitiser - satellite.carrier_hz * satellite.way_s(ant, behind)
        return at_digitiser - (self.sky_hz - self.oscillator_hz) * seconds

    def code(self, satellite, ant, seconds, delay_s):
        """Chips since the code's time 0."""
        behind = seconds - delay_s
        return satellite.chip_rate_hz * (behind - satellite.way_s(ant, behind))

    def middles(self, satellite, ant, start_s, n_periods, delay_s):
        """Timestamps of the middles of code periods, and the periods' numbers."""
        first = np.ceil(self.code(satellite, ant, start_s, delay_s) / satellite.n_chips)
        period = first + np.arange(n_periods)
        seconds = start_s + np.zeros(n_periods, np.longdouble)
        for _ in range(4):
            missing = (period + 0.5) * satellite.n_chips - self.code(satellite, ant, seconds, delay_s)
            seconds = seconds + missing / satellite.chip_rate_hz
        return np.round(seconds * self.adc_rate_hz).astype(np.int64), period.astype(np.int64)

    def records(self, satellite, ant, pols, start_s, n_periods, random, noise=1.0):
        """The records of one antenna; 'noise' 0: none."""
        timestamp, period = self.middles(satellite, ant, start_s, n_periods, pols[0].delay_s)
        seconds = timestamp / np.longdouble(self.adc_rate_hz)
        n_samples = round(self.sample_rate_hz * satellite.n_chips / satellite.chip_rate_hz)
        code_error = 0.05 * np.sin(np.arange(n_periods) / 100 + ant)
        carrier_error = 0.03 * np.sin(np.arange(n_periods) / 40 + ant) + 0.5 * (ant % 2)
        code = self.code(satellite, ant, seconds, pols[0].delay_s) - code_error
        carrier = self.carrier(satellite, ant, seconds, pols[0].delay_s) - carrier_error

        r = np.zeros(n_periods, RECORD)
        r["timestamp"], r["code_phase"] = timestamp, code % satellite.n_chips
        r["carrier_cycles"], r["carrier_phase"] = np.floor(carrier), carrier % 1
        if ant in satellite.false_ants:
            carrier = carrier - period % 2 / 2
            r["carrier_phase"] = carrier % 1
        step_s = 1e-4
        way_change = (satellite.way_s(ant, seconds + step_s) - satellite.way_s(ant, seconds - step_s)) / (2 * step_s)
        r["doppler"] = -satellite.carrier_hz * way_change + random.normal(0, 0.5, n_periods)
        amplitude = 1.0
        if ant in satellite.false_ants:
            r["doppler"] += 0.5 * satellite.chip_rate_hz / satellite.n_chips
            amplitude = 2 / np.pi
        r["n_samples"], r["n_present"] = n_samples, n_samples
        r["prn"], r["signal"], r["stage"], r["flags"], r["n_starts"] = satellite.prn, satellite.signal, 3, 7, 1
        r["cn0"] = satellite.cn0_db_hz
        part = random.random(n_periods) < 0.15 * ant  # the share of integrations with missing samples
        r["n_present"][part] = random.integers(0, n_samples, part.sum())

        data = 1 - 2 * np.random.default_rng(satellite.prn).integers(0, 2, 100000)[period // SYMBOL_PERIODS % 100000]
        away = TAP_CHIPS * np.array([1, 0, -1])
        covariance = autocorrelation(satellite.prn, away[:, None] - away[None, :])
        for pol, one in enumerate(pols):
            turns = (self.carrier(satellite, ant, seconds, one.delay_s) - carrier).astype(float)
            offset = (self.code(satellite, ant, seconds, one.delay_s) - code).astype(float)
            signal = amplitude * data * np.exp(2j * np.pi * turns + 1j * one.phase_rad) * r["n_present"]
            sigma = noise * np.sqrt(self.sample_rate_hz / 10 ** (satellite.cn0_db_hz / 10) / 2 * r["n_present"])
            white = random.normal(size=(2, n_periods, 3)) @ np.linalg.cholesky(covariance + 1e-9 * np.eye(3)).T
            taps = signal[:, None] * autocorrelation(satellite.prn, offset[:, None] - away)
            taps = taps + sigma[:, None] * (white[0] + 1j * white[1])
            r["sums"][:, :, pol, 0], r["sums"][:, :, pol, 1] = one.gain * taps.real, one.gain * taps.imag
        return r


def spoil(records, random):
    """Losses, and records of loops that are not locked, which say nothing."""
    wrong = records[:50].copy()
    wrong["timestamp"] -= SPOILED_SAMPLES
    wrong["stage"], wrong["sums"], wrong["code_phase"] = 2, random.normal(0, 1e9, wrong["sums"].shape), 17
    unlocked = random.random(len(records)) < 0.02
    records = records.copy()
    records["flags"][unlocked] = 5
    records["sums"][unlocked] = random.normal(0, 1e9, records["sums"][unlocked].shape)
    return np.concatenate([wrong, records[random.random(len(records)) > 0.05]])
