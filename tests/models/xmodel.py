"""The X-engine in numpy, exact: written from the specification and not from the C code.

Voltages are int8 [batch][ant][channel][spectrum][pol][re, im], also for 4 bits, or float16; presence is bool
[batch][ant].  Sums of float16 are float64, and dumps are float32 approximations of them.
"""
import math
from fractions import Fraction

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
    """The output for one window with all batches given: (visibilities, weights, n clipped)."""
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
    """Voltages and presence with shifted inputs: input i = 2 * ant + pol at spectrum t has its value of t - shifts[i].

    A batch of an antenna is present if all heaps that contribute to it were present.  Absent voltages are zero.
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


def dumps(first_batch, voltages, present, length, missing="flag", missing_dump="send", came=None, n_buffers=0):
    """{window: dump} of batches first_batch, first_batch + 1, ... in windows of 'length' batches.

    A window with a heap is sent after a heap of its last batch, or of a later one, has come.  'came' says which heaps
    came; 'present' says it for the batches made from them.  With "always", windows without a heap are sent, too, after a
    heap of a later window has come, up to 'n_buffers' in a row.  The first window with a heap is not sent if an antenna
    is present in some, but not all, of its batches.
    """
    observed = np.flatnonzero((present if came is None else came).any(axis=1))
    out = {}
    if not len(observed):
        return out
    last = first_batch + observed[-1]
    gap, begun = {}, False
    for window in range(first_batch // length, (last + 1) // length):
        at = np.arange(window * length, (window + 1) * length) - first_batch
        inside = (at >= 0) & (at < len(voltages))
        v = np.zeros((length, *voltages.shape[1:]), voltages.dtype)
        p = np.zeros((length, present.shape[1]), bool)
        v[inside], p[inside] = voltages[at[inside]], present[at[inside]]
        made = dump(v, p, missing)
        if not p.any():
            gap[window] = made
            continue
        if missing_dump == "always" and begun and len(gap) <= n_buffers:
            out |= gap
        gap = {}
        is_part = not begun and (p.any(axis=0) != p.all(axis=0)).any()
        begun = True
        if not is_part and not (missing_dump == "skip" and is_missing(made[0]).all()):
            out[window] = made
    return out | gap if missing_dump == "always" and begun and len(gap) <= n_buffers else out


# ---- Gates -----------------------------------------------------------------------------------------------------------


def dispersion_samples(config, gate, chan):
    """The delay in samples of the engine's channel 'chan' after the place where the gate's phase holds."""
    recv, dm = config["recv"], gate.get("dispersion_measure", 0)
    rate = config["time"]["adc_sample_rate"]
    if not dm:
        return 0
    f = Fraction(gate["centre_frequency"]) + (recv["channel_offset"] + chan - recv["channels"] // 2) * Fraction(
        rate, recv["samples_between_spectra"])
    ref = gate.get("reference_frequency", 0)
    per_mhz2 = 1 / (f / 10**6) ** 2 - (1 / (Fraction(ref) / 10**6) ** 2 if ref else 0)
    return round(Fraction(dm) / Fraction("2.41e-4") * per_mhz2 * rate)


def taken(config, gate, first_batch, n_batches):
    """bool [batch][channel][spectrum]: which spectra a gate takes, in exact arithmetic."""
    recv = config["recv"]
    step, n_spectra = recv["samples_between_spectra"], recv["spectra_per_heap"]
    rate = config["time"]["adc_sample_rate"]
    epoch = gate.get("epoch", 0)
    if gate.get("epoch_time"):
        epoch = (Fraction(str(gate["epoch_time"])) - config["time"]["sync_time"]) * rate // 1
    delays = [dispersion_samples(config, gate, chan) for chan in range(recv["channels_per_substream"])]
    start = first_batch * n_spectra * step - epoch
    dt = np.array([[int(start) + s * step - d for s in range(n_batches * n_spectra)] for d in delays], object)
    if gate["kind"] == "switch":
        on = gate["on_until"] - gate.get("on_from", 0)
        out = (dt - gate.get("on_from", 0)) % gate["period"] < (on if on > 0 else on + gate["period"])
        out = out.astype(bool)
    else:
        # (a + b dt + c dt^2) / n turns, all integers.
        terms = [Fraction(str(gate.get("phase", 0))), Fraction(str(gate["frequency"])) / rate,
                 Fraction(str(gate.get("frequency_derivative", 0))) / 2 / rate**2]
        n = math.lcm(*(term.denominator for term in terms))
        a, b, c = (int(term * n) for term in terms)
        place = (a + b * dt + c * dt * dt) % n * gate["bins"]
        edge = n // 10**9
        sure = (dt == 0) | (place % n > edge) & (place % n < n - edge)
        assert sure.all(), "too near the edge of a bin to be sure"
        out = np.isin((place // n).astype(np.int64), gate["take"])
    return out.reshape(len(out), n_batches, n_spectra).swapaxes(0, 1)


def gated_dumps(first_batch, voltages, present, length, mask, by_channel, **kwargs):
    """As dumps(), for the spectra in mask[batch][channel][spectrum]; the fourth result is the spectra of each channel.

    A batch counts in the fourth if any antenna is present in it.  Flags are those of all spectra.
    """
    sums = dumps(first_batch, voltages * mask[:, None, :, :, None, None], present, length, **kwargs)
    counts = mask.sum(axis=2)  # [batch][channel]
    n_ants = present.shape[1]
    out = {}
    for window, (vis, _, clipped) in sums.items():
        at = slice(max(window * length - first_batch, 0), (window + 1) * length - first_batch)
        here, there = counts[at], present[at]
        w = np.empty((here.shape[1], n_baselines(n_ants)), np.uint32)
        for a2 in range(n_ants):
            for a1 in range(a2 + 1):
                w[:, baseline(a1, a2)] = (here * (there[:, a1] & there[:, a2])[:, None]).sum(axis=0)
        out[window] = vis, w if by_channel else w[0], clipped, (here * there.any(axis=1)[:, None]).sum(axis=0)
    return out
