"""The X-engine in numpy, exact: written from the specification and not from the C code.

Voltages are int8 [batch][ant][channel][spectrum][pol][re, im], also those of 4 bits, or float16; presence is bool
[batch][ant].  Sums of float16 are float64, and dumps float32 that come near them.
"""
import numpy as np

MAGIC = np.array([-2**31, 1], np.int32)
LIMIT = 2**31 - 1


def is_missing(visibilities):
    """bool [channel][4 * baseline + product]"""
    if visibilities.dtype.kind == "f":
        return np.isnan(visibilities).all(-1)
    return (visibilities == MAGIC).all(-1)


def baseline(a1, a2):
    return a2 * (a2 + 1) // 2 + a1


def n_baselines(n_ants):
    return n_ants * (n_ants + 1) // 2


def correlate(voltages, present):
    """[channel][4 * baseline + product][re, im]: the sum over batches, absent heaps counting as zero; int64, or float64
    of float16."""
    n_batches, n_ants, n_chan, n_spectra = voltages.shape[:4]
    # Sums stay below 2^53, so that float64 matrix products are exact.
    assert n_batches * n_spectra < 2**37
    v = np.where(present[:, :, None, None, None, None], voltages, 0).astype(np.float64)
    v = v.transpose(5, 2, 1, 4, 0, 3).reshape(2, n_chan, n_ants * 2, n_batches * n_spectra)
    re, im = v
    re_t, im_t = re.swapaxes(1, 2), im.swapaxes(1, 2)
    # x conj(y): [channel][input of x][input of y], input = 2 * ant + pol.
    real = re @ re_t + im @ im_t
    imag = im @ re_t - re @ im_t
    out = np.empty((n_chan, 4 * n_baselines(n_ants), 2), np.float64 if voltages.dtype.kind == "f" else np.int64)
    for a2 in range(n_ants):
        for a1 in range(a2 + 1):
            for p1 in range(2):
                for p2 in range(2):
                    at = 4 * baseline(a1, a2) + p1 + 2 * p2
                    out[:, at, 0] = real[:, 2 * a1 + p1, 2 * a2 + p2]
                    out[:, at, 1] = imag[:, 2 * a1 + p1, 2 * a2 + p2]
    return out


def weights(present, n_spectra):
    """uint32 [baseline]: spectra in which both antennas were there."""
    n_ants = present.shape[1]
    out = np.empty(n_baselines(n_ants), np.uint32)
    for a2 in range(n_ants):
        for a1 in range(a2 + 1):
            out[baseline(a1, a2)] = n_spectra * np.count_nonzero(present[:, a1] & present[:, a2])
    return out


def dump(voltages, present, missing="flag"):
    """What is sent for one window, all of whose batches are given: (visibilities, weights, n clipped)."""
    sums = correlate(voltages, present)
    n_spectra = voltages.shape[3]
    w = weights(present, n_spectra)
    least = 1 if missing == "weights" else n_spectra * len(present)
    flagged = np.repeat(w < least, 4)
    if sums.dtype.kind == "f":
        out = sums.astype(np.float32)
        out[:, flagged] = np.nan
        return out, w, 0
    clipped = np.clip(sums, -LIMIT, LIMIT)
    n_clipped = np.count_nonzero((clipped != sums).any(-1)[:, ~flagged])
    out = clipped.astype(np.int32)
    out[:, flagged] = MAGIC
    return out, w, n_clipped


def shift(voltages, present, shifts):
    """Voltages and presence of which input i = 2 * ant + pol is, at spectrum t, what it was at t - shifts[i].

    A batch of an antenna is there if every heap that it is made of was; what is not there is zero.
    """
    n_batches, n_ants, n_chan, n_spectra = voltages.shape[:4]
    n = n_batches * n_spectra
    out, there = np.zeros_like(voltages), np.ones_like(present)
    for i, by in enumerate(shifts):
        ant, pol = divmod(i, 2)
        at = np.arange(n) - by
        inside = (at >= 0) & (at < n)
        series = voltages[:, ant, :, :, pol].swapaxes(1, 2).reshape(n, n_chan, 2)
        moved = np.where(inside[:, None, None], series[np.clip(at, 0, n - 1)], 0)
        out[:, ant, :, :, pol] = moved.reshape(n_batches, n_spectra, n_chan, 2).swapaxes(1, 2)
        came = inside & present[np.clip(at, 0, n - 1) // n_spectra, ant]
        there[:, ant] &= came.reshape(n_batches, n_spectra).all(axis=1)
    return np.where(there[:, :, None, None, None, None], out, 0), there


def dumps(first_batch, voltages, present, length, missing="flag", missing_dump="send", came=None):
    """{window: dump} of batches first_batch, first_batch + 1, ... in windows of 'length' batches.

    A window is sent once a heap of its last batch or of a later one has come, if any heap of its own has.  'came' is which
    heaps did, where 'present' is of what was made of them.
    """
    observed = np.flatnonzero((present if came is None else came).any(axis=1))
    out = {}
    if not len(observed):
        return out
    last = first_batch + observed[-1]
    for window in range(first_batch // length, (last + 1) // length):
        at = np.arange(window * length, (window + 1) * length) - first_batch
        inside = (at >= 0) & (at < len(voltages))
        v = np.zeros((length, *voltages.shape[1:]), voltages.dtype)
        p = np.zeros((length, present.shape[1]), bool)
        v[inside], p[inside] = voltages[at[inside]], present[at[inside]]
        made = dump(v, p, missing)
        if p.any() and not (missing_dump == "skip" and is_missing(made[0]).all()):
            out[window] = made
    return out
