"""Computes delays, phases and gains relative to a reference antenna, from all antennas' correlations with satellites.

At each antenna, the phases of a satellite's code and carrier are the phases of the replica plus an offset.  The
replica's phases are known exactly.  The early, prompt and late sums show the offset.  If the signal arrives later by
tau, the received code phase is smaller by tau times the chip rate.  The received carrier phase at the sky frequency f
is smaller by 2 pi f tau.  The antenna's instruments also turn the carrier phase by a constant.

A data bit inverts the sums or leaves the sums unchanged.  In the same code period, the antenna and the reference
receive the same data bit.  So the sign vanishes in the product of an antenna's sums and the conjugate of the
reference's sums.  An amplitude is the root of the mean square of complex sums.  Squares have no sign, and the mean
square of complex noise is zero.

All errors are computed from scatter: first between blocks of 0.02 s, then between satellites.
"""
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnsscal_read import Unusable

EARLY, PROMPT, LATE = range(3)
N_POLS = 2
TRACKING = 3  # enum fgpu_gnss_stage
LOCKED = 3  # flags FGPU_GNSS_CODE_LOCKED and FGPU_GNSS_CARRIER_LOCKED
MIN_PRESENT = 0.5  # fraction of an integration's samples that must have arrived
MIN_CN0_DB_HZ = 25  # of a polarisation
BLOCK_S = 0.02
MIN_BLOCKS = 20
MAX_DOPPLER_TURNS = 0.25  # largest difference of the Dopplers at two antennas, in turns per code period
OUTLIER_SIGMA = 5
MAX_STEPS = 32

BOC1 = np.where(np.arange(12) < 6, 1.0, -1.0) * np.sqrt(10 / 11)
BOC6 = np.where(np.arange(12) % 2, -1.0, 1.0) * np.sqrt(1 / 11)

# Sums over a code period of the products of adjacent chips, from PRN 1 on (kernels/gnss/gnss_codes.c).
L1CA_ADJACENT = (-1, -1, -1, -1, -1, -1, 63, -65, -1, -1, -1, -1, -1, -1, 63, -1,
                 63, -1, -1, -1, 63, -65, -1, 63, -1, -1, -1, -1, -1, -1, -1, -1)
L5I_ADJACENT = (-30, -162, 66, -70, -250, 10, -66, -102, -142, 6, -10, 34, -138, -118, -46, 122,
                14, 18, 2, -142, 14, -130, -18, -2, -134, -170, -146, -6, 138, -158, 134, -14)
L5Q_ADJACENT = (-10, 170, 34, 134, 50, -102, -126, -170, -178, 110, 22, -54, 174, 166, -2, -90,
                42, -22, -190, 58, -234, -66, 170, -26, 14, -154, 54, 34, 130, -78, -38, -162)
E1_ADJACENT = 50 * (0,)  # by the design of Galileo's codes


@dataclass(frozen=True)
class Signal:
    name: str
    system: str
    carrier_hz: float
    chip_rate_hz: float
    n_chips: int
    levels: tuple  # levels of the sub-carrier within a chip
    adjacent: tuple

    @property
    def period_s(self):
        return self.n_chips / self.chip_rate_hz

    def tap_chips(self):
        return 0.25 if len(self.levels) == 1 else 2.5 / 12  # fgpu/gnss/gnss_track.h

    def lag_one(self, prn):
        """Returns the autocorrelation of the satellite's code at a lag of one chip."""
        return self.adjacent[prn - 1] / self.n_chips


SIGNALS = [  # enum gnss_signal
    Signal("L1CA", "G", 1575.42e6, 1.023e6, 1023, (1.0,), L1CA_ADJACENT),
    Signal("L5I", "G", 1176.45e6, 10.23e6, 10230, (1.0,), L5I_ADJACENT),
    Signal("L5Q", "G", 1176.45e6, 10.23e6, 10230, (1.0,), L5Q_ADJACENT),
    Signal("E1B", "E", 1575.42e6, 1.023e6, 4092, tuple(BOC1 + BOC6), E1_ADJACENT),
    Signal("E1C", "E", 1575.42e6, 1.023e6, 4092, tuple(BOC1 - BOC6), E1_ADJACENT),
]


@dataclass
class Estimate:
    value: float
    error: float


@dataclass
class Link:
    """One satellite's signal at an antenna, relative to the reference antenna.  Arrays are [block][pol]."""

    name: str
    cn0_db_hz: np.ndarray  # [pol], at the antenna itself
    frequency_hz: float  # carrier with its Doppler shift
    delay_s: np.ndarray
    phasor: np.ndarray  # complex; its phase is the antenna's phase minus the reference's phase
    gain: np.ndarray  # amplitude divided by the reference's amplitude
    is_in_beam: bool = True


@dataclass
class Solution:
    """One polarisation of an antenna, relative to the reference antenna.  The signal is late by 'delay_s'."""

    antenna: str
    pol: int
    satellites: list
    beam_satellites: list
    delay_s: Estimate
    carrier_hz: float  # carrier frequency of the satellites; 'phase_rad' is measured at this frequency
    phase_rad: Estimate = None
    centre_phase_rad: Estimate = None  # phase at the centre of the output's band
    gain: Estimate = None


# ---- Discriminator ---------------------------------------------------------------------------------------------------


@lru_cache
def filter_of(band):
    """Returns the down-converter's filter: weights of ADC samples, and the samples' delays in s.  fgpu minimises the
    largest error.  Here the filter minimises the sum of the squares of the same errors.  The responses differ only in
    the transition between the bands, by less than a tenth.  If a complex sample has more than MAX_STEPS ADC samples,
    the filter has the same length in s, but only MAX_STEPS steps."""
    n_steps = min(band.subsampling, MAX_STEPS)
    n_taps = band.n_taps * n_steps // band.subsampling
    edge = band.pass_fraction / 2 or 0.25
    f = np.linspace(0, n_steps / 2, 2 * n_taps)  # in units of the rate of complex samples
    is_pass = f <= edge
    is_stop = (f >= 1 - edge) & ((band.pass_fraction > 0) | ((f + 0.25) % 1 <= 0.5))
    accuracy = np.where(is_pass, band.weight_pass, is_stop)
    late = (np.arange(n_taps) - (n_taps - 1) / 2) / n_steps
    distance, tap = np.unique(np.abs(late), return_inverse=True)
    cosines = np.cos(2 * np.pi * np.outer(f, distance))
    sums = np.linalg.lstsq(accuracy[:, None] * cosines, accuracy * is_pass, rcond=None)[0]  # of taps at a distance
    return (sums / np.bincount(tap))[tap], late / band.sample_rate_hz


class Discriminator:
    """Computes a code's offset from the early and late amplitudes, with the code's autocorrelation in the band.

    A complex sample is a weighted sum of ADC samples.  So the autocorrelation in the band is the weighted sum of the
    code's autocorrelations, delayed as the ADC samples are.  This is exact if no filter comes before the ADC.
    """

    def __init__(self, signal, lag_one, offset_hz, sample_rate_hz, weights, late_s):
        """'lag_one' is the code's autocorrelation at a lag of one chip.  'offset_hz' is the carrier's frequency minus
        the band's centre.  'weights' and 'late_s' are the band's filter."""
        sent = np.array(signal.levels)
        n = len(sent)
        replica = sent if sample_rate_hz >= n * signal.chip_rate_hz else np.sign(sent)  # fgpu/gnss/gnss_config.c
        chip = np.pad(np.correlate(sent, replica, "full"), n + 1)
        code = chip + lag_one * (np.roll(chip, n) + np.roll(chip, -n))
        lags = np.arange(-2 * n, 2 * n + 1) / n  # the autocorrelation is linear between these lags
        turned = weights * np.exp(-2j * np.pi * offset_hz * late_s)

        def correlation(chips):
            return np.interp(chips[:, None] - signal.chip_rate_hz * late_s, lags, code) @ turned
        self.x = np.linspace(-1, 1, 801)
        prompt = correlation(self.x)
        early, late = (correlation(self.x - tap) for tap in (signal.tap_chips(), -signal.tap_chips()))
        self.prompt = np.abs(prompt) / np.abs(prompt[400])
        early, late = ((tap * np.conj(prompt)).real for tap in (early, late))
        ratio = (early - late) / np.where((early > 0) & (late > 0), early + late, np.nan)
        rises = np.diff(ratio) > 0
        first = 400 - np.argmin(np.append(rises[:400][::-1], False))
        last = 400 + np.argmin(np.append(rises[400:], False))
        self.x, self.ratio, self.prompt = (values[first:last + 1] for values in (self.x, ratio, self.prompt))

    def offset_chips(self, early, late):
        """Returns the signal's code phase minus the replica's code phase; NaN outside the range of the taps."""
        ratio = (early - late) / np.maximum(early + late, 1e-30)
        return np.interp(ratio, self.ratio, self.x, left=np.nan, right=np.nan)

    def loss(self, offset_chips):
        """Returns the amplitude of the prompt sum at this offset, relative to the amplitude at offset 0."""
        return np.interp(offset_chips, self.x, self.prompt)


@lru_cache
def discriminator_of(signal, prn, offset_hz, band):
    return Discriminator(signal, signal.lag_one(prn), offset_hz, band.sample_rate_hz, *filter_of(band))


# ---- One satellite at two antennas -----------------------------------------------------------------------------------


def wrap(values, period):
    return values - period * np.round(values / period)


def usable(records, signal, prn):
    """Returns the integrations of a satellite during which the tracking loops were locked."""
    good = ((records["signal"] == signal) & (records["prn"] == prn) & (records["stage"] == TRACKING)
            & (records["flags"] & LOCKED == LOCKED) & (records["n_present"] >= MIN_PRESENT * records["n_samples"]))
    return records[good]


def nearest(times, wanted):
    """Returns for each wanted time the index of the nearest time in 'times'."""
    after = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    return after - (wanted - times[after - 1] < times[after] - wanted)


def code_delay_s(own, other, apart_s, signal):
    """Returns the delay in s of the code of the replica 'own' relative to the code of the replica 'other'.  The delay
    is within +-half a period.  Uses only the replicas."""
    rate_hz = signal.chip_rate_hz * (1 + other["doppler"] / signal.carrier_hz)
    chips = other["code_phase"] + rate_hz * apart_s - own["code_phase"]
    return wrap(chips, signal.n_chips) / rate_hz


def match(own, other, adc_rate_hz, signal):
    """Pairs the integrations of 'own' with the integrations of 'other' that have the same code period.  Returns the
    integrations of 'own', the integrations of 'other', and the times in s from the middle of 'other' to the middle of
    'own'."""
    own_t, other_t = own["timestamp"], other["timestamp"]
    at = nearest(other_t, own_t)
    delay_s = code_delay_s(own, other[at], (own_t - other_t[at]) / adc_rate_hz, signal)
    turn = 2j * np.pi / signal.period_s
    late_s = np.angle(np.mean(np.exp(turn * delay_s))) * signal.period_s / (2 * np.pi)
    at = nearest(other_t, own_t - round(late_s * adc_rate_hz))
    apart_s = (own_t - other_t[at]) / adc_rate_hz
    good = np.abs(apart_s - late_s) < signal.period_s / 4
    return own[good], other[at[good]], apart_s[good]


def block_sums(values, block, n_blocks):
    """Returns the sums over each block along the first axis."""
    out = np.zeros((n_blocks,) + values.shape[1:], values.dtype)
    np.add.at(out, block, values)
    return out


def code_and_gain(records, block, n_blocks, discriminator):
    """Returns (code offset in chips, amplitude) of one antenna, each [block][pol]."""
    sums = records["sums"][..., 0] + 1j * records["sums"][..., 1]
    squares = block_sums(sums ** 2, block, n_blocks)
    weight = block_sums(records["n_present"].astype(float) ** 2, block, n_blocks)[:, None]
    prompt = squares[:, PROMPT]
    turned = squares * np.exp(-1j * np.angle(prompt))[:, None]
    early, prompt, late = (np.sqrt(np.maximum(turned[:, tap].real, 0) / weight) for tap in range(3))
    offset = discriminator.offset_chips(early, late)
    return offset, prompt / discriminator.loss(offset)


def link(array, signal_index, prn, records, reference, later_s):
    """Returns the satellite's Link.  If the antennas did not track the satellite together for long enough, returns
    None.  If the antennas tracked the satellite at different Dopplers, returns None: a loop may lock at a Doppler that
    is wrong by half a turn per code period.  'later_s' is a function from seconds since the sync time to the signal's
    geometric delay."""
    signal = SIGNALS[signal_index]
    own, other = usable(records, signal_index, prn), usable(reference, signal_index, prn)
    if len(own) < 2 or len(other) < 2:
        return None
    own, other, apart_s = match(own, other, array.adc_rate_hz, signal)
    if len(own) == 0:
        return None
    seconds = own["timestamp"] / array.adc_rate_hz
    block = ((own["timestamp"] - own["timestamp"][0]) / (BLOCK_S * array.adc_rate_hz)).astype(int)
    full = np.bincount(block) >= 0.5 * BLOCK_S / signal.period_s
    kept = full[block]
    own, other, apart_s, seconds = own[kept], other[kept], apart_s[kept], seconds[kept]
    block = (np.cumsum(full) - 1)[block[kept]]
    n_blocks = int(full.sum())
    if n_blocks < MIN_BLOCKS or abs(np.median(own["doppler"] - other["doppler"])) > MAX_DOPPLER_TURNS / signal.period_s:
        return None

    expected_s = later_s(seconds)
    discriminator = discriminator_of(signal, prn, signal.carrier_hz - array.sky_hz, array.band)
    offset, amplitude = code_and_gain(own, block, n_blocks, discriminator)
    other_offset, other_amplitude = code_and_gain(other, block, n_blocks, discriminator)
    delay_s = code_delay_s(own, other, apart_s, signal) - expected_s
    delay_s = delay_s[0] + wrap(delay_s - delay_s[0], signal.period_s)
    delay_s = block_sums(delay_s, block, n_blocks) / np.bincount(block)

    carrier_hz = signal.carrier_hz - array.sky_hz + other["doppler"]
    turns = own["carrier_phase"] - other["carrier_phase"] - carrier_hz * apart_s + signal.carrier_hz * expected_s
    prompts = [r["sums"][:, PROMPT, :, 0] + 1j * r["sums"][:, PROMPT, :, 1] for r in (own, other)]
    phasor = block_sums(prompts[0] * np.conj(prompts[1]) * np.exp(2j * np.pi * turns)[:, None], block, n_blocks)
    return Link(f"{signal.name}-{prn}", np.median(own["cn0"], axis=0),
                signal.carrier_hz + float(np.mean(other["doppler"])),
                delay_s[:, None] + (other_offset - offset) / signal.chip_rate_hz, phasor,
                amplitude / np.maximum(other_amplitude, 1e-30))


# ---- Averages --------------------------------------------------------------------------------------------------------


def combine(values, errors):
    """Returns the weighted mean of the estimates without outliers.  The error of the mean is computed from the
    estimates' errors and from their scatter; the larger value counts."""
    values, errors = np.asarray(values, float), np.maximum(np.asarray(errors, float), 1e-30)
    if len(values) > 3:
        middle = np.median(values)
        spread = 1.4826 * np.median(np.abs(values - middle))
        kept = np.abs(values - middle) <= OUTLIER_SIGMA * np.maximum(spread, np.median(errors))
        values, errors = values[kept], errors[kept]
    weights = errors ** -2 / np.sum(errors ** -2)
    mean = float(np.sum(weights * values))
    formal = float(np.sum(errors ** -2) ** -0.5)
    scatter = float(np.sqrt(np.sum(weights * (values - mean) ** 2) / (len(values) - 1))) if len(values) > 1 else 0
    return Estimate(mean, max(formal, scatter))


def of_blocks(values):
    """Returns the mean of a satellite's blocks without outliers.  The blocks' scatter gives the error of the mean."""
    middle = np.median(values)
    values = values[np.abs(values - middle) <= OUTLIER_SIGMA * 1.4826 * np.median(np.abs(values - middle))]
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def combine_links(estimates):
    return combine([e.value for e in estimates], [e.error for e in estimates])


def combine_phases(phasors):
    """Combines phases.  Because phases are cyclic, they are counted from the phase of the sum of all phasors."""
    centre = np.angle(sum(np.sum(p) / np.sum(np.abs(p)) for p in phasors))
    found = combine_links([of_blocks(np.angle(p * np.exp(-1j * centre))) for p in phasors])
    return Estimate(float(np.angle(np.exp(1j * (found.value + centre)))), found.error)


def solve_pol(array, antenna, pol, links, carrier_hz):
    """Returns the Solution of one polarisation."""
    heard = [one for one in links if one.cn0_db_hz[pol] >= MIN_CN0_DB_HZ and np.all(np.isfinite(one.delay_s[:, pol]))]
    if not heard:
        raise Unusable(f"{antenna}: polarisation {pol} has no usable satellite: this antenna and the reference must follow "
                       f"a satellite for {MIN_BLOCKS * BLOCK_S:g} s, above {MIN_CN0_DB_HZ} dB-Hz, at the same Doppler, with "
                       "less than half a chip between the polarisations")
    delay_s = combine_links([of_blocks(one.delay_s[:, pol]) for one in heard])
    beam = [one for one in heard if one.is_in_beam]
    solution = Solution(antenna, pol, [one.name for one in heard], [one.name for one in beam], delay_s, carrier_hz)
    if beam:
        turn = 2 * np.pi * delay_s.value
        phase = combine_phases([one.phasor[:, pol] * np.exp(1j * turn * (one.frequency_hz - carrier_hz))
                                for one in beam])
        away_rad = 2 * np.pi * (array.output_sky_hz - carrier_hz)
        centre_rad = phase.value - away_rad * delay_s.value
        logarithms = combine_links([of_blocks(np.log(one.gain[:, pol])) for one in beam])
        gain = float(np.exp(logarithms.value))
        solution.phase_rad = phase
        solution.centre_phase_rad = Estimate(float(np.angle(np.exp(1j * centre_rad))),
                                             float(np.hypot(phase.error, away_rad * delay_s.error)))
        solution.gain = Estimate(gain, gain * logarithms.error)
    return solution


def satellites_of(records):
    """Returns (signal, PRN) of all satellites that were followed."""
    return sorted(set(zip(records["signal"].tolist(), records["prn"].tolist())))


def solve(array, records, reference, sky=None, in_beam=lambda signal, prn: True):
    """Returns [Solution]: one for each polarisation of each antenna except the reference.

    Without a 'sky' (gnsscal_orbits.Sky), all antennas are taken to be at one place.  With a 'sky', only satellites
    with known ephemerides count.  A satellite's delay always counts.  Its phase and its gain count only if
    in_beam(signal, PRN) is true.
    """
    known = [(index, prn) for index, prn in satellites_of(records[reference])
             if sky is None or sky.ephemeris(SIGNALS[index], prn)]
    if not known:
        raise Unusable(f"{reference}: follows no satellite" + (" whose ephemeris is known" if sky else ""))
    carrier_hz = SIGNALS[known[0][0]].carrier_hz
    solutions = []
    for antenna in array.antennas:
        if antenna.name == reference:
            continue
        links = []
        for index, prn in known:
            signal = SIGNALS[index]

            def later_s(seconds):
                return sky.later_s(antenna.name, signal, prn, seconds) if sky else np.zeros(len(seconds))
            found = link(array, index, prn, records[antenna.name], records[reference], later_s)
            if found:
                found.is_in_beam = in_beam(signal, prn)
                links.append(found)
        solutions += [solve_pol(array, antenna.name, pol, links, carrier_hz) for pol in range(N_POLS)]
    return solutions
