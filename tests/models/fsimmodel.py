"""fsim's voltages in numpy: written from tools/fsim/signal.h, not from the C code.

Voltages are float64 [batch][ant][channel][spectrum][pol][re, im].  Batch 0 has timestamp 0.
"""
import math

import numpy as np

LIMIT = {4: 7, 8: 127, 16: 2048}
MASK = np.uint64(0xFFFFFFFF)


def philox(counter, seed):
    """Philox4x32-7: the four 32-bit words, as uint64 arrays; 'counter' is four that broadcast."""
    c = [np.asarray(x, np.uint64) for x in np.broadcast_arrays(*counter)]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(7):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [p1 >> np.uint64(32) ^ c[1] ^ k[0], p1 & MASK, p0 >> np.uint64(32) ^ c[3] ^ k[1], p0 & MASK]
        k = [k[0] + np.uint64(0x9E3779B9) & MASK, k[1] + np.uint64(0xBB67AE85) & MASK]
    return c


def draw(seed, spectrum, chan, last):
    return philox([np.asarray(spectrum) & 0xFFFFFFFF, np.asarray(spectrum) >> 32, chan, last], seed)


def sum_bytes(r):
    """[..., re, im] of normal noise with variance 43690."""
    total = [sum((word >> np.uint64(8 * i) & np.uint64(0xFF)).astype(np.int64) for word in pair for i in range(4))
             for pair in (r[:2], r[2:])]
    return np.stack(total, -1) - 1020.0


def repeated(values, n):
    return np.resize(np.atleast_1d(np.asarray(values, np.int64)), n)


def values(config, first_batch, n_batches):
    """fsim's voltages in these batches, before the conversion to a format."""
    stream, signal = config["stream"], config["signal"]
    n_ants, n_spectra = stream["antennas"], stream["spectra_per_heap"]
    n_chan = stream["channels_per_substream"] * config["n_substreams"]
    kind, bits, n_inputs = signal["kind"], stream.get("sample_bits", 8), 2 * n_ants
    period = signal.get("period", 8) if kind in ("noise", "uniform") else 4
    batch = np.arange(first_batch, first_batch + n_batches) % period
    # Axes: batch, ant, channel, spectrum, pol.
    spectrum = (batch[:, None] * n_spectra + np.arange(n_spectra)).reshape(n_batches, 1, 1, n_spectra, 1)
    chan = stream.get("channel_offset", 0) + np.arange(n_chan).reshape(1, 1, n_chan, 1, 1)
    inputs = np.arange(n_inputs).reshape(1, n_ants, 1, 1, 2)
    if kind == "constant":
        z = [repeated(signal.get(part, default), n_inputs)[inputs] for part, default in (("real", 1), ("imag", 0))]
        out = np.stack(z, -1)
    elif kind == "tone":
        delays, rates = (repeated(signal.get(name, 0), n_inputs)[inputs] for name in ("delays", "rates"))
        z = signal.get("amplitude", 7) * np.array([1, 1j, -1, -1j])[(delays * chan + rates * spectrum) % 4]
        out = np.stack([z.real, z.imag], -1)
    elif kind == "uniform":
        n_bits = min(bits, 12)
        r = draw(signal.get("seed", 1), spectrum, chan, inputs)[:2]
        u = np.stack(r, -1).astype(np.int64) >> (32 - n_bits)
        out = np.where(u >= 2**(n_bits - 1), u - 2**n_bits, u)
    else:
        rms, rho, seed = signal.get("rms", 2), signal.get("correlation", 0), signal.get("seed", 1)
        out = sum_bytes(draw(seed, spectrum, chan, inputs)) * (rms * math.sqrt((1 - rho) / 43690))
        common = sum_bytes(draw(seed, spectrum, chan, 2**32 - 2 + inputs % 2))
        out = out + common * (rms * math.sqrt(rho / 43690))
        if bits < 16:
            out = np.clip(np.rint(out), -LIMIT[bits], LIMIT[bits])
    shape = (n_batches, n_ants, n_chan, n_spectra, 2, 2)
    return np.broadcast_to(out, shape).astype(np.float64)


def encode(config, v):
    """The values as they lie in a heap: int8 or '<f2' with an axis of re and im, or bytes of two nibbles."""
    bits, offset = config["stream"].get("sample_bits", 8), config["stream"].get("sample_encoding") == "offset"
    if bits == 16:
        return v.astype("<f2")
    v = v.astype(np.int8)
    if bits == 8:
        return v
    nibbles = (v + 8 if offset else v & 15).astype(np.uint8)
    return nibbles[..., 0] << 4 | nibbles[..., 1]


def is_dropped(config, batch, ant):
    drop, n_ants = config["stream"].get("drop", 0), config["stream"]["antennas"]
    return drop > 0 and (batch * n_ants + ant + 1) % drop == 0


def present(config, first_batch, n_batches):
    """bool [batch][ant]"""
    return np.array([[not is_dropped(config, first_batch + b, a) for a in range(config["stream"]["antennas"])]
                     for b in range(n_batches)])
