"""StefCal, and the covariances of its results.

Salvini and Wijnholds, "Fast gain calibration in radio astronomy using alternating direction implicit methods", A&A 571,
A97 (2014).  The model is a point source: the visibility of antennas i and j is g_i conj(g_j).

All functions compute many groups of channels at once.  The axes of arrays are [group, ant].
"""
import numpy as np

MAX_ITERATIONS = 200
TOLERANCE = 1e-5  # the rounds end when the relative change of all gains is at most this number


def stefcal(sums, counts):
    """Returns the gains g, complex [group, ant].  The gains minimise the sum, over all antennas i and j, of
    counts |sums / counts - g_i conj(g_j)|^2.

    sums: sums of normalised visibilities, [group, ant, ant], Hermitian.  The phases of the sums should be near zero.
    counts: the number of spectra in each sum.  'sums' and 'counts' are zero on the diagonal and where there are no
    data.  Antennas without data get the gain 0.
    """
    heard = counts.sum(2)
    mean = np.abs(sums.real.sum(2)) / np.maximum(heard, 1)
    start = np.sqrt(np.maximum(mean, 1e-3 * mean.max(initial=1e-30)))
    gain = np.where(heard > 0, start, 0).astype(sums.dtype)
    for round_number in range(1, MAX_ITERATIONS + 1):
        # |sum of V_ij g_j| / sum of n |g_j|^2 is the least squares solution for g_i alone.
        power = (counts @ (gain.real**2 + gain.imag**2)[..., None])[..., 0]
        new = (sums @ gain[..., None])[..., 0] / np.maximum(power, 1e-30)
        if round_number % 2:
            gain = new
            continue
        change = np.linalg.norm(new - gain)
        gain = (gain + new) / 2  # the mean of two rounds converges, while single rounds oscillate
        if change <= TOLERANCE * np.linalg.norm(gain):
            break
    return gain


def _voltage_covariance(level, counts):
    """Returns (C, n): the covariance of phase-aligned voltages, weighted by gains, and the typical number of spectra.

    The covariance of y_i = conj(g_i) e_i and y_j is |g_i|^2 |g_j|^2.  The variance of y_i is |g_i|^2, because
    normalised inputs have the power 1.  An antenna with fewer spectra has a smaller weight.
    """
    present = counts.sum(2)
    n = present.max(1)[:, None] / np.maximum((present > 0).sum(1) - 1, 1)[:, None]
    weight = np.sqrt(present / np.maximum(present.max(1), 1e-30)[:, None])
    signal = weight * level**2
    covariance = signal[:, :, None] * signal[:, None, :]
    index = np.arange(level.shape[1])
    covariance[:, index, index] = (weight * level)**2
    return covariance, n[:, :, None]


def _inverse_normal(normal, present):
    """Inverts the normal matrices of the antennas with data.  The rows and columns of other antennas become 0."""
    index = np.arange(normal.shape[1])
    both = present[:, :, None] & present[:, None, :]
    normal = np.where(both, normal, 0)
    normal[:, index, index] += ~present
    return np.where(both, np.linalg.inv(normal), 0)


def phase_covariance(level, counts, reference):
    """Returns the variances of phases relative to the antenna 'reference', [group, ant], in rad^2.  An antenna
    without data has the variance inf.

    level: |g| of inputs that are normalised to power 1, float [group, ant].  T is the sum of all y_j.  The least
    squares phases are L^-1 Im(y_i conj(T)).  L is the Laplacian matrix with the weights counts |g_i|^2 |g_j|^2.  The
    covariance of Im(y_i conj(T)) contains the noise of the source itself, so the variances also hold for strong
    sources.
    """
    index = np.arange(level.shape[1])
    p = counts * (level**2)[:, :, None] * (level**2)[:, None, :]
    normal = -p
    normal[:, index, index] = p.sum(2)
    present = p.sum(2) > 0
    c, n = _voltage_covariance(level, counts)
    c_sum = c.sum(2)
    scatter = n / 2 * (c * c_sum.sum(1)[:, None, None] - c_sum[:, :, None] * c_sum[:, None, :])
    free = present.copy()
    free[:, reference] = False
    inverse = _inverse_normal(normal, free)
    variance = np.einsum("gij,gjk,gik->gi", inverse, scatter, inverse, optimize=True)
    return np.where(present & present[:, reference, None], variance, np.inf)


def amplitude_covariance(level, counts):
    """Returns the variances of the logarithms of |g| relative to the mean of all antennas, [group, ant].

    Two antennas are too few to determine both amplitudes.  Their variances are inf.
    """
    index = np.arange(level.shape[1])
    p = counts * (level**2)[:, :, None] * (level**2)[:, None, :]
    normal = p.copy()
    normal[:, index, index] = p.sum(2)
    present = p.sum(2) > 0
    present &= present.sum(1, keepdims=True) > 2
    c, n = _voltage_covariance(level, counts)
    c_sum = c.sum(2)
    rest = c_sum[:, :, None] - c  # covariance of y_i with the sum of all voltages except y_k
    rests = c_sum.sum(1)[:, None, None] - c_sum[:, :, None] - c_sum[:, None, :] + c
    scatter = n / 2 * (c * rests + rest * rest.transpose(0, 2, 1))
    n_present = np.maximum(present.sum(1), 1)[:, None, None]
    from_mean = np.eye(level.shape[1]) - present[:, None, :] / n_present
    inverse = from_mean @ _inverse_normal(normal, present)
    variance = np.einsum("gij,gjk,gik->gi", inverse, scatter, inverse, optimize=True)
    return np.where(present, variance, np.inf)
