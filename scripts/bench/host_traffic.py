"""Estimates how many times each byte of payload crosses a host's memory bus.  'scripts/bench/realtime chain'
multiplies this number by counts of bytes.  scripts/bench/scaling uses the number, too.

A pass is one read of a byte from memory, or one write to memory.  'least' assumes that all data between two steps stay
in the last-level cache: NICs and GPUs write to the cache, and socket buffers and receive rings stay in the cache.
'most' assumes that no data stay in the cache.  Each normal write then reads the cache line first, and this read is a
second pass.  A non-temporal store is always a single pass.  docs/scaling.md explains each pass."""
from dataclasses import dataclass


@dataclass
class Pass:
    what: str
    least: float
    most: float


# RECEIVED lists the passes for each byte that a NIC receives.  SENT lists the passes for each byte that a NIC sends.
RECEIVED = {
    "sockets": [Pass("NIC writes socket buffer", 0, 1), Pass("kernel reads it", 0, 1), Pass("copy to the chunk", 1, 1),
                Pass("GPU reads the chunk", 1, 1)],
    "ibverbs": [Pass("NIC writes the ring", 0, 1), Pass("thread reads it", 0, 1), Pass("copy to the chunk", 1, 1),
                Pass("GPU reads the chunk", 1, 1)],
    "ibverbs, direct": [Pass("NIC writes the ring", 0, 1), Pass("thread reads it, writes to the GPU", 0, 1)],
    "gpudirect": [Pass("frame headers, completions, positions", 0, 0.1)],
}
SENT = {
    "sockets": [Pass("GPU writes the buffer", 1, 1), Pass("kernel reads it", 1, 1),
                Pass("kernel writes socket buffer", 0, 2), Pass("NIC reads it", 0, 1)],
    "ibverbs": [Pass("GPU writes the buffer", 1, 1), Pass("NIC reads it", 1, 1)],
    "gpudirect": [Pass("headers, work requests, completions", 0, 0.1)],
}
# Over loopback, sender and receiver share the socket buffers.
LOOPBACK_SENT = SENT["sockets"][:3]
LOOPBACK_RECEIVED = RECEIVED["sockets"][1:]
LOOPBACK_DIRECT = RECEIVED["sockets"][1:2]  # a thread copies to the GPU through a buffer that stays in the cache
SIMULATED = [Pass("kernel reads the period", 0, 1), Pass("kernel writes socket buffer", 0, 2)]


def total(passes):
    """Returns (sum of 'least', sum of 'most') over the passes."""
    return sum(p.least for p in passes), sum(p.most for p in passes)


def stage(name, bytes_per_s, passes):
    least, most = total(passes)
    return {"stage": name, "bytes_per_s": bytes_per_s, "least": least * bytes_per_s, "most": most * bytes_per_s}


def chain(samples_per_s, voltages_per_s, direct):
    """Returns table rows for dsim, fgpu and xbgpu on one host over loopback, from the measured bytes/s of payload.
    'direct' is true if the engines use recv.direct."""
    received = LOOPBACK_DIRECT if direct else LOOPBACK_RECEIVED
    return [stage("dsim", samples_per_s, SIMULATED), stage("fgpu receives", samples_per_s, received),
            stage("fgpu sends", voltages_per_s, LOOPBACK_SENT), stage("xbgpu receives", voltages_per_s, received)]


def print_rows(rows):
    print(f"{'memory traffic, estimated':26} {'payload GB/s':>13} {'at least GB/s':>14} {'at most GB/s':>13}")
    together = {"stage": "all", "bytes_per_s": 0.0}
    for key in ("least", "most"):
        together[key] = sum(row[key] for row in rows)
    for row in [*rows, together]:
        payload = f"{1e-9 * row['bytes_per_s']:13.2f}" if row is not together else " " * 13
        print(f"{row['stage']:26} {payload} {1e-9 * row['least']:14.2f} {1e-9 * row['most']:13.2f}")
