"""Tied-array beams in numpy, double precision: written from kernels/beamform/*.h, not from the C code.

Voltages are int8 [batch][ant][channel][spectrum][pol][re, im]; presence is bool [batch][ant].
"""
import numpy as np

import fsimmodel

LIMIT = 127


def coefficients(config, weights, delays, phases, gain, calibration=1):
    """complex128 [ant][channel of this engine]; the calibration is one number, or [ant][channel of the band]."""
    recv = config["recv"]
    chan_hz = config["time"]["adc_sample_rate"] / recv["samples_between_spectra"]
    chan = np.arange(recv["channels_per_substream"]) + recv["channel_offset"] - recv["channels"] / 2
    turns = np.asarray(phases)[:, None] / (2 * np.pi) - np.multiply.outer(np.asarray(delays), chan * chan_hz)
    gains = np.broadcast_to(np.complex128(calibration), (recv["antennas"], recv["channels"]))
    gains = gains[:, recv["channel_offset"]:][:, :recv["channels_per_substream"]]
    return np.asarray(weights)[:, None] * gain * np.exp(2j * np.pi * turns) * gains


def grid_batches(config):
    """Batches between two evaluations of rates: as configured, or as many as 10 ms hold, but at least one."""
    recv = config["recv"]
    batch_s = recv["spectra_per_heap"] * recv["samples_between_spectra"] / config["time"]["adc_sample_rate"]
    return config.get("steering", {}).get("grid_batches", 0) or max(1, int(0.01 / batch_s))


def delays_at(config, models, batch):
    """(delays, phases) of a batch.  Models, in order of start, are (start, delays, rates, phases, phase_rates): in
    samples, s, s/s, rad, rad/s.  The last started model holds, evaluated at the centre of the grid's interval."""
    recv, grid = config["recv"], grid_batches(config)
    batch_samples = recv["spectra_per_heap"] * recv["samples_between_spectra"]
    start, delays, rates, phases, phase_rates = [m for m in models if m[0] <= batch * batch_samples][-1]
    since = ((batch // grid + 0.5) * grid * batch_samples - start) / config["time"]["adc_sample_rate"]
    return np.asarray(delays) + since * np.asarray(rates), np.asarray(phases) + since * np.asarray(phase_rates)


def dither(config, seed, first_spectrum, n_spectra):
    """float64 [channel][spectrum][re, im] in (-1/2, 1/2), of spectra counted from timestamp 0."""
    recv = config["recv"]
    chan = np.arange(recv["channels_per_substream"])[:, None] + recv["channel_offset"]
    spectrum = first_spectrum + np.arange(n_spectra)[None]
    words = np.stack(fsimmodel.philox([chan, spectrum // 8 & 0xFFFFFFFF, spectrum // 8 >> 32, 0], seed), -1)
    more = (0x9E3779B1 * words + np.roll(words, -1, -1)) & np.uint64(0xFFFFFFFF)
    words = np.concatenate([words, more], -1)
    word = np.take_along_axis(words, (spectrum % 8)[..., None] + np.zeros_like(words[..., :1], np.int64), -1)[..., 0]
    halves = np.stack([word & np.uint64(0xFFFF), word >> np.uint64(16)], -1).astype(np.int64) | 1
    return halves / 2**16 - 0.5


def renormalisation(weights, present):
    """float64 [batch]: sqrt(all / present) over the antennas with a weight; 1 if none is present."""
    used = np.asarray(weights) != 0
    n_present = (present & used).sum(-1)
    return np.where(n_present > 0, np.sqrt(used.sum() / np.maximum(n_present, 1)), 1)


def beam(voltages, present, pol, coefficient):
    """complex128 [batch][channel][spectrum]."""
    v = np.where(present[:, :, None, None, None], voltages[..., pol, :], 0).astype(np.float64)
    return np.einsum("bacs,ac->bcs", v[..., 0] + 1j * v[..., 1], coefficient)


def quantise(values):
    """int8 [...][re, im] of float64, and bool [...] of which samples were clipped."""
    return np.rint(np.clip(values, -LIMIT, LIMIT)).astype(np.int8), (np.abs(values) > LIMIT).any(-1)


# ---- Detected beams: integers, from kernels/beamform/beam_detect.h ---------------------------------------------------

STEPS = 256
N_PRODUCTS = {"power_0": 1, "power_1": 1, "I": 1, "IQUV": 4}


def detected_parts(values):
    """int64 of complex sums, and bool of which samples were clipped."""
    parts = np.stack([values.real, values.imag], -1) * STEPS
    return np.rint(np.clip(parts, -32767, 32767)).astype(np.int64), (np.abs(parts) > 32767).any(-1)


def detect(x, y, products):
    """int64 [product][batch][channel][spectrum] of parts [batch][channel][spectrum][re, im]."""
    xx, yy = (x**2).sum(-1), (y**2).sum(-1)
    if products == "IQUV":
        return np.stack([xx + yy, xx - yy, 2 * (x * y).sum(-1), 2 * (x[..., 1] * y[..., 0] - x[..., 0] * y[..., 1])])
    return {"power_0": xx, "power_1": yy, "I": xx + yy}[products][None]


def incoherent_weights(weights, gain=1):
    """int64 [...][x, y, xy], times 2^16, of weights [...][pol], from xbgpu/beam/incoherent.h."""
    amplitudes = np.float32(np.asarray(weights, np.float64) * gain**2).astype(np.float64)
    cross = np.sqrt(amplitudes[..., 0] * amplitudes[..., 1])
    return np.rint(np.concatenate([amplitudes, cross[..., None]], -1) * 2**16).astype(np.int64)


def incoherent(voltages, present, weights, products):
    """int64 [product][batch][channel][spectrum] of weights [batch or 1][ant][x, y, xy]: kernels/beamform/beam_incoherent.h."""
    v = np.where(present[:, :, None, None, None, None], voltages, 0).astype(np.int64)
    x, y = v[..., 0, :], v[..., 1, :]
    wx, wy, wxy = np.moveaxis(weights, -1, 0)[..., None, None]
    xx, yy = (wx * (x**2).sum(-1)).sum(1), (wy * (y**2).sum(-1)).sum(1)
    if products == "IQUV":
        cross = (x * y).sum(-1), x[..., 1] * y[..., 0] - x[..., 0] * y[..., 1]
        return np.stack([xx + yy, xx - yy] + [2 * (wxy * c).sum(1) for c in cross])
    return {"power_0": xx, "power_1": yy, "I": xx + yy}[products][None]


def windows(stream, first_spectrum, powers, share):
    """Heaps by number: powers int64 [window][product][channel group] and fractions float64 [window], of powers
    [product][channel][spectrum] and of the share of antennas [spectrum], which begin with spectrum 'first_spectrum'.

    The first heap with data is not sent if data of its first window are missing."""
    spectra, n_windows = stream.get("spectra", 16), stream.get("windows", 16)
    length, group = spectra * n_windows, stream.get("channels", 1)
    heaps, begun = {}, False
    for number in range(first_spectrum // length, (first_spectrum + len(share)) // length):
        begin = number * length - first_spectrum
        there = slice(max(begin, 0), begin + length)
        absent = [(0, 0), (0, 0), (max(-begin, 0), 0)]
        sums = np.pad(powers[:, :, there], absent).reshape(len(powers), -1, group, n_windows, spectra).sum((2, 4))
        fractions = np.pad(share[there], absent[2]).reshape(n_windows, spectra).mean(1)
        if fractions.any() and (begun or fractions[0] == 1):
            heaps[number] = sums.transpose(2, 0, 1), fractions
        begun |= fractions.any()
    return heaps
