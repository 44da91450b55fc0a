"""Finds the delay and the complex gain of every input, from visibilities of a point source at the phase centre.

The model of an input's voltage is e_i = g_i s + noise, where s is the source.  A visibility is then
V_ij = sum of e_i conj(e_j) = n g_i conj(g_j), where n is the number of spectra.  The phase of g_i is
phase_i - 2 pi x df delay_i.  x is the channel, counted from the centre of the band.

The steps for each polarisation:
1. Every visibility is divided by the roots of its inputs' powers.  All baselines then have the same noise.
2. Channels with interference are found by their correlation.
3. A Fourier transform over the channels of one antenna's baselines finds the approximate delays.  An antenna without
   fringes in the transform is searched again, on the baseline with the sum of all other antennas.
4. The delays are removed, and groups of channels are averaged.
5. StefCal finds the gains in each group (phaseup_stefcal.py).  Lines through the groups' phases refine the delays.
"""
from dataclasses import dataclass, field

import numpy as np
from scipy.ndimage import uniform_filter1d

from gnsscal_read import Unusable
from gnsscal_solve import Estimate
from phaseup_search import MAD_SIGMA, MIN_PEAK, baseline_of, beam_spectra, find_delays, find_interference, rotation, row
from phaseup_stefcal import amplitude_covariance, phase_covariance, stefcal

N_GROUPS = 64  # largest number of groups of channels to which a delay is fitted
GROUP_SIGMA = 5  # limit, in standard deviations; the fit of a line ignores groups that deviate more from the line
MIN_GROUPS = 8  # lowest number of groups that remain after merging
MIN_GROUP_PEAK = 5  # lowest ratio of a fringe to the noise in each group
SMOOTHED = 9  # number of groups over which amplitudes are averaged for the computation of errors
BANDPASS_ROUNDS = 2
MAX_BANDPASS_ERROR_DEG = 15
DB = 20 / np.log(10)


@dataclass
class Data:
    """Sums of visibilities over all chosen dumps."""

    names: list  # names of antennas
    channel_hz: float  # distance between two channels
    vis: np.ndarray  # complex64 [pol, baseline, chan]: sum of e_a1 conj(e_a2); baseline is a2 (a2 + 1) / 2 + a1
    n_spectra: np.ndarray  # float32 [pol, baseline, chan]: number of spectra in each sum
    start_unix_s: float
    end_unix_s: float

    @property
    def n_chan(self):
        return self.vis.shape[2]


@dataclass
class Solution:
    """One polarisation of all antennas.  Phases and delays are relative to the reference antenna."""

    pol: int
    delay_s: list  # Estimate of each antenna; None if the antenna has no solution
    phase_rad: list  # Estimate at the centre of the band
    gain_db: list  # Estimate, relative to the mean of all antennas
    level: np.ndarray  # [ant]: rms of each input
    coherence: np.ndarray  # [ant]: coherence of the antenna with the others after the correction
    coherence_before: float
    coherence_after: float
    noise_coherence: float  # |sum of V| / sum of |V| after a perfect correction; below 1 because of noise
    unsolved: dict  # {antenna: why it has no solution}
    flagged: np.ndarray  # bool [chan]
    reduced_chi2: float  # reduced chi square of the line fits; above 1 if the phases are not straight lines
    # complex [ant, chan]: ratio of the gains to the gains of the line; or None
    bandpass: np.ndarray = field(default=None)


# ---- Groups of channels ----------------------------------------------------------------------------------------------


def group_sums(vis, turned, good, size):
    """Returns the sums of visibilities over groups of 'size' channels, [group, ant, ant], zero on the diagonal."""
    n_ant, n_group = len(turned), vis.shape[1] // size
    sums = np.zeros((n_group, n_ant, n_ant), np.complex64)
    turned = turned * good
    for ant in range(1, n_ant):
        rho = vis[row(ant)] * turned[:ant]
        rho *= turned[ant].conj()
        sums[:, :ant, ant] = rho.reshape(ant, n_group, size).sum(2).T
        sums[:, ant, :ant] = sums[:, :ant, ant].conj()
    return sums


def group_counts(n_spectra, n_ant, good, size):
    """Returns the numbers of spectra in group_sums(), [group, ant, ant]."""
    n_group = n_spectra.shape[1] // size
    counts = np.zeros((n_group, n_ant, n_ant), np.float32)
    use = good.astype(np.float32).reshape(n_group, size, 1)
    for ant in range(1, n_ant):
        parts = n_spectra[row(ant)].reshape(ant, n_group, size).transpose(1, 0, 2)
        counts[:, :ant, ant] = counts[:, ant, :ant] = (parts @ use)[..., 0]
    return counts


def fit_lines(phase, sigma, x):
    """Fits phase = a + b x to each row, [row, group].  'sigma' is the error of each phase.  For a group without
    data, 'sigma' is inf.  The fit omits outliers.  Returns (a, b, covariance of a and b [row, 2, 2], reduced chi
    square) of all rows."""
    weight = np.where(np.isfinite(sigma), 1 / np.maximum(sigma, 1e-12)**2, 0)
    for _ in range(3):
        s0, s1, s2 = weight.sum(1), weight @ x, weight @ x**2
        t0, t1 = (weight * phase).sum(1), (weight * phase) @ x
        det = np.maximum(s0 * s2 - s1**2, 1e-300)
        a, b = (s2 * t0 - s1 * t1) / det, (s0 * t1 - s1 * t0) / det
        away = np.abs(phase - a[:, None] - b[:, None] * x)
        used = weight > 0
        scatter = np.array([MAD_SIGMA * np.median(one[ok]) if ok.any() else 0 for one, ok in zip(away, used)])
        limit = GROUP_SIGMA * np.maximum(np.where(np.isfinite(sigma), sigma, 0), scatter[:, None])
        chi2 = (weight * away**2).sum(1) / np.maximum(used.sum(1) - 2, 1)
        weight = np.where(away <= limit, weight, 0)
    # A chi square above 1 increases the errors.  A chi square below 1 does not reduce the errors.  If there are few
    # groups, the chi square may be below 1 by chance.
    worse = np.maximum(1, chi2)
    covariance = np.array([[s2, -s1], [-s1, s0]]).transpose(2, 0, 1) / det[:, None, None] * worse[:, None, None]
    return a, b, covariance, chi2


def unwrap_near(phase, weight):
    """Adds multiples of 2 pi to the phases, [row, group], and returns the sums.  Each sum differs by at most pi from
    the weighted mean of its row."""
    middle = np.angle((weight * np.exp(1j * phase)).sum(1, keepdims=True))
    return middle + np.angle(np.exp(1j * (phase - middle)))


def peak_over_noise(gain, counts):
    """Returns |sum of all groups' gains| / noise for each antenna.  The phases of all groups must be equal."""
    information = np.einsum("gij,gj->gi", counts, np.abs(gain)**2)
    return np.abs((gain * information).sum(0)) / np.sqrt(np.maximum(information.sum(0), 1e-30))


def solve_groups(sums, counts, usable):
    """Runs StefCal without antennas that have no fringes.  Merges groups until most phases have small errors.  Returns
    (gains [group, ant], sums, counts, usable)."""
    while True:
        pairs = usable[:, None] & usable
        sums, counts = sums * pairs, counts * pairs
        gain = stefcal(sums, counts)
        peak = peak_over_noise(gain, counts)
        weak = usable & (peak < MIN_PEAK)
        n_group = len(sums)
        if weak.any():
            usable = usable & ~weak
        elif usable.any() and n_group >= 2 * MIN_GROUPS and n_group % 2 == 0 and (
                peak[usable].min() / np.sqrt(n_group) < MIN_GROUP_PEAK):
            sums, counts = (one.reshape(n_group // 2, 2, *one.shape[1:]).sum(1) for one in (sums, counts))
        else:
            return gain, sums, counts, usable


def estimates(values, errors, usable):
    return [Estimate(float(value), float(error)) if ok else None for value, error, ok in zip(values, errors, usable)]


# ---- All steps -------------------------------------------------------------------------------------------------------


@dataclass
class Fringes:
    """One polarisation after StefCal, before the choice of a reference antenna."""

    inverse: np.ndarray  # float32 [ant, chan]: 1 / root of the power; 0 without data
    level: np.ndarray  # [ant]: rms
    flagged: np.ndarray  # bool [chan]
    coherent: np.ndarray  # [chan]: real part of the sum of all normalised visibilities
    turns: np.ndarray  # [ant]: approximate delay in turns per channel
    phase: np.ndarray  # [ant]: approximate phase at the centre
    gain: np.ndarray  # complex [group, ant]: gains after the removal of 'turns' and 'phase'
    smooth: np.ndarray  # [group, ant]: |gain|, averaged over groups to reduce noise
    sums: np.ndarray  # [group, ant, ant]
    counts: np.ndarray  # [group, ant, ant]
    usable: np.ndarray  # bool [ant]
    unsolved: dict


def channels_of(data):
    return np.arange(data.n_chan) - data.n_chan // 2


def group_size(n_chan):
    """Returns the number of channels in each group of the fit of lines."""
    return next(n_chan // n for n in range(min(N_GROUPS, n_chan), 0, -1) if n_chan % n == 0)


def powers_of(vis, n_spectra, n_ant):
    """Returns (mean power [ant, chan], 1 / root of the power); both are 0 without data."""
    autos = [baseline_of(ant, ant) for ant in range(n_ant)]
    power = np.where(n_spectra[autos] > 0, vis[autos].real / np.maximum(n_spectra[autos], 1e-30), 0)
    return power, np.where(power > 0, 1 / np.sqrt(np.maximum(power, 1e-30)), 0).astype(np.float32)


def find_fringes(data, pol, first):
    """Returns the Fringes of one polarisation.  The search for delays begins with the baselines of antenna 'first'."""
    vis, n_spectra, n_ant = data.vis[pol], data.n_spectra[pol], len(data.names)
    power, inverse = powers_of(vis, n_spectra, n_ant)
    heard = (inverse > 0).any(1)
    if heard.sum() < 2:
        raise Unusable(f"polarisation {pol}: fewer than two antennas have data")
    flagged, coherent = find_interference(inverse, vis, n_spectra)
    good = ~flagged
    channel = channels_of(data)
    order = [ant for ant in (first, *range(n_ant)) if heard[ant]]
    turns, phase, is_found = find_delays(vis, inverse * good, order, channel)
    size = group_size(data.n_chan)
    sums = group_sums(vis, rotation(inverse, turns, phase, channel), good, size)
    counts = group_counts(n_spectra, n_ant, good & (inverse > 0).any(0), size)
    gain, sums, counts, usable = solve_groups(sums, counts, is_found)
    level = np.sqrt([one[good & (one > 0)].mean() if (good & (one > 0)).any() else 0 for one in power])
    smooth = np.abs(uniform_filter1d(gain, min(SMOOTHED, len(gain)), axis=0, mode="nearest"))
    has_data = n_spectra[[baseline_of(ant, ant) for ant in range(n_ant)]].any(1)
    why = np.where(heard, "no fringes", np.where(has_data, "no signal", "no data"))
    unsolved = {data.names[ant]: str(why[ant]) for ant in np.flatnonzero(~usable)}
    return Fringes(inverse, level, flagged, coherent, turns, phase, gain, smooth, sums, counts, usable, unsolved)


def choose_reference(names, fringes, name):
    """Returns the index of the reference antenna 'name'.  Without a name, returns the first antenna with fringes in all
    polarisations."""
    in_all = np.logical_and.reduce([one.usable for one in fringes])
    if name is None:
        if not in_all.any():
            raise Unusable("no antenna has fringes in all polarisations: is the source at the phase centre?")
        return int(np.argmax(in_all))
    for pol, one in enumerate(fringes):
        if name in one.unsolved:
            raise Unusable(f"reference antenna {name}: {one.unsolved[name]} in polarisation {pol}; choose another "
                           "--reference")
    return names.index(name)


def find_gains_db(f):
    """Returns (gain of each antenna relative to the mean of all antennas, its error), both in dB."""
    variance = amplitude_covariance(f.smooth, f.counts)
    weight = np.where(np.isfinite(variance), 1 / np.maximum(variance, 1e-30), 0).sum(0)
    total = np.where(np.isfinite(variance), 1 / np.maximum(variance, 1e-30), 0)
    logs = np.log(np.maximum(f.smooth, 1e-30) * np.maximum(f.level, 1e-30))
    mean = (total * logs).sum(0) / np.maximum(weight, 1e-30)
    present = weight > 0
    relative = mean - mean[present].mean() if present.any() else mean
    return DB * relative, np.where(present, DB / np.sqrt(np.maximum(weight, 1e-30)), np.nan)


def solve_pol(data, pol, f, reference, bandpass):
    """Returns the Solution of one polarisation from its Fringes.

    bandpass: number of channels in a group of the bandpass; 0: no bandpass.
    """
    n_ant = len(data.names)
    x = channels_of(data).reshape(len(f.gain), -1).mean(1)
    sigma = np.sqrt(phase_covariance(f.smooth, f.counts, reference)).T
    sigma[reference] = np.inf
    weight = np.where(np.isfinite(sigma), 1 / np.maximum(sigma, 1e-12)**2, 0)
    phase = unwrap_near(np.angle(f.gain * f.gain[:, [reference]].conj()).T, weight)
    offset, slope, covariance, chi2 = fit_lines(phase, sigma, x)

    # From here on, turns and phases describe the whole gain, relative to the reference antenna.
    turns = f.turns - slope / (2 * np.pi) - f.turns[reference]
    centre = f.phase + offset - f.phase[reference]
    centre = np.angle(np.exp(1j * centre))
    delay_s = turns / data.channel_hz
    delay_error_s = np.sqrt(covariance[:, 1, 1]) / (2 * np.pi * data.channel_hz)
    gain_db, gain_error_db = find_gains_db(f)

    sums, phasor = f.sums, None
    rest = np.exp(1j * (offset[:, None] + slope[:, None] * x)).T  # [group, ant]: phases of the lines, as in f.sums
    if bandpass:
        turned = rotation(f.inverse, turns, centre, channels_of(data)) * f.usable[:, None]
        phasor = solve_bandpass(data, pol, f, turned, reference, bandpass)
        sums = group_sums(data.vis[pol], turned * phasor.conj(), ~f.flagged, data.n_chan // len(f.gain))
        rest = np.ones_like(rest)
    model = f.counts * f.smooth[:, :, None] * f.smooth[:, None, :]
    corrected = (sums * rest.conj()[:, :, None] * rest[:, None, :]).real
    return Solution(
        pol, estimates(delay_s, delay_error_s, f.usable), estimates(centre, np.sqrt(covariance[:, 0, 0]), f.usable),
        estimates(gain_db, gain_error_db, f.usable), f.level,
        corrected.sum((0, 2)) / np.maximum(model.sum((0, 2)), 1e-30),
        abs(2 * f.coherent[~f.flagged].sum()) / model.sum(), corrected.sum() / model.sum(),
        min(1.0, float(model.sum() / np.abs(sums).sum())), f.unsolved, f.flagged,
        float(np.median(chi2[f.usable & (np.arange(len(data.names)) != reference)])), phasor)


def solve_bandpass(data, pol, f, turned, reference, size):
    """Returns the phases that remain in the gains after the correction by the factors 'turned'.  The phases are complex
    factors, [ant, chan].  Each group of 'size' channels has one phase.

    B_i is the sum over all other antennas j of |g_j| V_ij.  The phase of B_i is the phase of g_i minus the mean phase
    of the other antennas.  If the phases are small, StefCal's solution is a step of (1 - the antenna's share) times the
    phase of B_i.
    """
    if data.n_chan % size:
        raise Unusable(f"--bandpass: {size} channels do not divide the band's {data.n_chan} channels")
    level = np.where(f.usable, f.smooth.mean(0), 0)
    information = np.einsum("gij,j->gi", f.counts, level**2) * size * len(f.gain) / data.n_chan
    error_deg = np.degrees(np.median(1 / np.sqrt(2 * information[:, f.usable]) / level[f.usable]))
    if not error_deg <= MAX_BANDPASS_ERROR_DEG:
        raise Unusable(f"--bandpass: the phases of groups of {size} channels have errors of {error_deg:.0f} degrees; "
                       "choose larger groups or more dumps")
    step = (1 - level**2 / (level**2).sum())[:, None]
    phasor = np.ones((len(level), data.n_chan), np.complex64)
    for _ in range(BANDPASS_ROUNDS):
        beam = beam_spectra(data.vis[pol], turned * phasor.conj(), level) * ~f.flagged
        angle = step * np.angle(beam.reshape(len(level), -1, size).sum(2))
        phasor *= np.repeat(np.exp(1j * angle), size, axis=1)
    return phasor * phasor[reference].conj()


def solve(data, reference=None, bandpass=0):
    """Returns (name of the reference antenna, [Solution of each polarisation]).

    reference: name of an antenna; None: the first antenna with fringes in all polarisations.
    bandpass: number of channels in a group.  In addition to the line, each group gets a phase.  0: lines only.
    Raises Unusable if the data have no solution.
    """
    if reference is not None and reference not in data.names:
        raise Unusable(f"--reference: there is no antenna '{reference}', only {', '.join(data.names)}")
    first = data.names.index(reference) if reference else 0
    fringes = [find_fringes(data, pol, first) for pol in range(len(data.vis))]
    chosen = choose_reference(data.names, fringes, reference)
    return data.names[chosen], [solve_pol(data, pol, f, chosen, bandpass) for pol, f in enumerate(fringes)]


def line_phase(solution, ant, n_chan, channel_hz):
    """Returns the phase of an antenna's gain in each channel, [chan]: the sum of phase, delay and bandpass of the
    solution."""
    x = np.arange(n_chan) - n_chan // 2
    phase = solution.phase_rad[ant].value - 2 * np.pi * channel_hz * x * solution.delay_s[ant].value
    return phase if solution.bandpass is None else phase + np.angle(solution.bandpass[ant])
