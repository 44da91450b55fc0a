"""Finds channels with interference, and approximate delays, in the visibilities of one polarisation.

All visibilities are sums of e_a1 conj(e_a2) of the voltages e of antennas a1 and a2, complex64 [baseline, chan].  The
baseline has the number a2 (a2 + 1) / 2 + a1.  'inverse' is 1 / root of each input's power, float32 [ant, chan]; 0
without data.
"""
import numpy as np

PADDING = 4  # length of the Fourier transform that finds a delay, divided by the number of channels
MIN_PEAK = 5  # lowest ratio of a fringe's peak to the noise; noise alone reaches this ratio once in 10^7 transforms
# the search starts with an antenna that has this number of fringes; the sum of the found antennas finds other antennas
ENOUGH_FRINGES = 5
OUTLIER_SIGMA = 6  # lowest deviation of a channel with interference, in standard deviations
OUTLIER_FRACTION = 0.1  # lowest deviation of such a channel, relative to the channels nearby
MAD_SIGMA = 1.4826  # ratio of the standard deviation to the median absolute deviation


def baseline_of(a1, a2):
    return a2 * (a2 + 1) // 2 + a1


def row(ant):
    """Returns the slice of the baselines that an antenna forms with all antennas of lower index."""
    return slice(baseline_of(0, ant), baseline_of(ant, ant))


def with_antenna(vis, ant, n_ant):
    """Returns the visibilities e_i conj(e_ant) of all antennas i with 'ant', [ant, chan]."""
    others = np.arange(n_ant)
    found = vis[baseline_of(np.minimum(others, ant), np.maximum(others, ant))]
    found[ant + 1:] = found[ant + 1:].conj()
    return found


# ---- Interference ----------------------------------------------------------------------------------------------------


def local_outliers(values):
    """Returns the channels, bool [chan], whose values differ too much from the values of the channels nearby."""
    size = max(1, min(64, len(values) // 4))
    parts = np.array_split(values, max(1, len(values) // size))
    middles = np.array([np.median(part) for part in parts])
    centres = np.cumsum([len(part) for part in parts]) - np.array([len(part) / 2 for part in parts])
    expected = np.interp(np.arange(len(values)) + 0.5, centres, middles)
    away = np.abs(values - expected)
    spread = np.repeat([MAD_SIGMA * np.median(one) for one in np.array_split(away, len(parts))],
                       [len(part) for part in parts])
    return away > np.maximum(OUTLIER_SIGMA * np.maximum(spread, np.median(spread)), OUTLIER_FRACTION * np.abs(expected))


def find_interference(inverse, vis, n_spectra):
    """Returns (channels without data or with interference, sum of all normalised visibilities in each channel).

    Interference increases the mean square of the correlation.  Power that is not correlated does no harm.
    """
    n_chan = vis.shape[1]
    energy, coherent = np.zeros(2 * n_chan), np.zeros(n_chan)
    for ant in range(1, len(inverse)):
        rho = vis[row(ant)] * (inverse[:ant] * inverse[ant])
        parts = rho.view(np.float32)  # real and imaginary parts
        energy += np.einsum("ac,ac->c", parts, parts)
        coherent += rho.real.sum(0)
    energy = energy.reshape(n_chan, 2).sum(1)
    n_sum, n_square = n_spectra.sum(0, dtype=float), np.einsum("bc,bc->c", n_spectra, n_spectra).astype(float)
    has_data = (n_sum > 0) & (energy > 0)
    flagged = ~has_data
    if has_data.sum() >= 16:
        flagged[has_data] |= local_outliers(((energy - n_sum) / np.maximum(n_square, 1))[has_data])
    return flagged, coherent


# ---- Approximate delays ----------------------------------------------------------------------------------------------


def fringe_peaks(spectra, channel):
    """Returns (delay in turns per channel, phase at channel 0, peak / noise) of each row of 'spectra', [ant, chan]."""
    n_padded = PADDING << int(np.ceil(np.log2(spectra.shape[1])))
    transform = np.fft.ifft(spectra, n_padded, axis=1)
    peak = np.argmax(transform.real**2 + transform.imag**2, axis=1)
    value = transform[np.arange(len(spectra)), peak] * n_padded
    turns = np.where(peak < n_padded // 2, peak, peak - n_padded) / n_padded
    noise = np.sqrt(np.sum(spectra.real**2 + spectra.imag**2, axis=1))
    return turns, np.angle(value) + 2 * np.pi * turns * channel[0], np.abs(value) / np.maximum(noise, 1e-30)


def find_anchor(vis, inverse, order, channel):
    """Tries the antennas in 'order', and chooses the first antenna that has fringes with enough other antennas.  If no
    antenna has enough fringes, chooses the antenna with the most fringes.  Returns (turns, phases, is_found) from the
    baselines of the chosen antenna."""
    best = None
    n_enough = min((inverse > 0).any(1).sum() / 2, ENOUGH_FRINGES)
    for ant in order:
        spectra = with_antenna(vis, ant, len(inverse)) * (inverse * inverse[ant])
        spectra[ant] = 0
        turns, phase, peak = fringe_peaks(spectra, channel)
        found = peak >= MIN_PEAK
        found[ant] = found.any()
        turns[ant] = phase[ant] = 0
        if best is None or found.sum() > best[2].sum():
            best = turns, phase, found
        if best[2].sum() >= n_enough:
            break
    return best


def rotation(inverse, turns, phase, channel):
    """Returns the factors, complex64 [ant, chan], that remove delays, phases and powers from visibilities."""
    return (inverse * np.exp(1j * (2 * np.pi * turns[:, None] * channel - phase[:, None]))).astype(np.complex64)


def beam_spectra(vis, turned, weight):
    """Returns the visibilities between each antenna and the weighted sum of all other antennas, [ant, chan]."""
    sums, weight = np.zeros(turned.shape, np.complex64), weight.astype(np.complex64)
    for ant in range(1, len(turned)):
        rho = vis[row(ant)] * turned[:ant]
        rho *= turned[ant].conj()
        sums[ant] += (weight[:ant] @ rho).conj()
        if weight[ant]:
            rho *= weight[ant]
            sums[:ant] += rho
    return sums


def find_delays(vis, inverse, order, channel):
    """Returns (turns per channel, phase at the centre, whether there are fringes) of each antenna."""
    turns, phase, is_found = find_anchor(vis, inverse, order, channel)
    missed = (inverse > 0).any(1) & ~is_found
    turns, phase = np.where(is_found, turns, 0), np.where(is_found, phase, 0)
    while missed.any() and is_found.sum() >= 2:
        spectra = beam_spectra(vis, rotation(inverse, turns, phase, channel), is_found)
        more, more_phase, peak = fringe_peaks(spectra, channel)
        is_new = missed & (peak >= MIN_PEAK)
        if not is_new.any():
            break
        turns, phase = turns + is_new * more, phase + is_new * more_phase
        missed, is_found = missed & ~is_new, is_found | is_new
    return turns, phase, is_found
