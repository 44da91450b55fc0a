"""Runs the real fgpu on generated digitiser samples and returns its voltages by timestamp.

The packets go through a named pipe.  So generating, channelising and reading /metrics happen side by side, and no
capture of the input is kept.
"""
import os
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("models", "system")]
import harness  # noqa: E402
import scenario  # noqa: E402

RATE_HZ = 1712000000
SYNC_S = 1700000000
START = 1 << 36  # timestamp of the first sample: a multiple of every packet, chunk and heap
PACKET_SAMPLES = 16384
HEAP = 16  # spectra


@dataclass
class Model:
    """A delay model from the first sample time that is at or before 'timestamp': samples, samples per sample, radians,
    radians per sample."""
    timestamp: int
    delay: float = 0.0
    rate: float = 0.0
    phase: float = 0.0
    phase_rate: float = 0.0

    @property
    def start_ns(self):
        return self.timestamp * 10**9 // RATE_HZ

    @property
    def start(self):
        """As fgpu rounds it: half to even, of exact numbers."""
        whole, rest = divmod(2 * self.start_ns * RATE_HZ + 10**9, 2 * 10**9)
        return whole - (1 if rest == 0 and whole % 2 else 0)

    def line(self, pol):
        seconds, ns = divmod(self.start_ns, 10**9)
        return (f"{SYNC_S + seconds}.{ns:09} {pol} {self.delay / RATE_HZ!r} {self.rate!r} {self.phase!r} "
                f"{self.phase_rate * RATE_HZ!r}")


@dataclass
class Antenna:
    """Its samples (signals.Sequence), delay models and gains (a number, or one for each channel) by polarisation."""
    samples: list
    gains: list
    models: list = field(default_factory=lambda: [[], []])


class Voltages:
    """The output for one antenna."""

    def __init__(self, plan, batches):
        self.channels, self.step, self.batches = plan.channels, plan.step, batches

    def spectra(self, pol, timestamp, n):
        """complex64 [n][channel] of the spectra from 'timestamp' on."""
        first = timestamp // self.step
        assert timestamp % self.step == 0
        out = np.empty((n, self.channels), np.complex64)
        for i in range(n):
            batch, spectrum = divmod(first + i, HEAP)
            part = self.batches[batch * HEAP * self.step][:, spectrum, pol]
            out[i].real, out[i].imag = part[:, 0], part[:, 1]
        return out


def _header(pol_id):
    """A packet's bytes before its samples, of timestamp and heap count 0: Ethernet, IP, UDP, SPEAD-64-48."""
    def item(number, value, immediate=True):
        return (immediate << 63) | (number << 48) | value

    n_bytes = 2 * PACKET_SAMPLES
    items = [item(1, 0), item(2, n_bytes), item(3, 0), item(4, n_bytes), item(harness.TIMESTAMP, 0),
             item(harness.DIGITISER_ID, pol_id), item(harness.DIGITISER_STATUS, 0), item(harness.ADC_SAMPLES, 0, False)]
    return struct.pack(">BBBBHH8Q", 0x53, 4, 2, 6, 0, len(items), *items)


class Feed:
    """Writes digitiser packets of several inputs into a stream, as a capture."""

    def __init__(self, stream, endpoints):
        self.stream, self.heap = stream, 0
        self.frames = []
        for i, endpoint in enumerate(endpoints):
            frame = harness.frame(endpoint, _header(i) + bytes(2 * PACKET_SAMPLES))
            self.frames.append(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame[:42])
        stream.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))

    def write(self, samples):
        """A packet for each input; samples[input] is big-endian bytes."""
        for i, payload in enumerate(samples):
            header = bytearray(_header(i))
            header[10:16] = (2 * self.heap + 2).to_bytes(6, "big")
            header[42:48] = (START + self.heap * PACKET_SAMPLES).to_bytes(6, "big")
            self.stream.write(b"".join((self.frames[i], header, payload)))
        self.heap += 1


class Packets:
    """Cuts a sequence into packets."""

    def __init__(self, sequence):
        self.blocks = sequence.blocks()
        self.rest = np.empty(0, np.int16)

    def next(self):
        """The next packet's bytes, zeros behind the end."""
        while len(self.rest) < PACKET_SAMPLES:
            block = next(self.blocks, None)
            if block is None:
                block = np.zeros(PACKET_SAMPLES, np.int16)
            self.rest = np.concatenate([self.rest, block])
        packet, self.rest = self.rest[:PACKET_SAMPLES], self.rest[PACKET_SAMPLES:]
        return packet.astype(">i2").tobytes()


def chunk(plan, max_delay_diff=0):
    """Samples of an input that fgpu takes at once."""
    return -(-(2 * plan.window + max_delay_diff) // PACKET_SAMPLES) * PACKET_SAMPLES


def _config(work, name, plan, antennas, max_delay_diff):
    channels = plan.channels
    config = scenario.fgpu_config(
        outputs=[{"channels": channels, "spectra_per_heap": HEAP, "dither": "uniform", "dither_seed": 1,
                  "substreams": 1, "batches_per_buffer": max(1, 1024 // channels)} | plan.section],
        feng_ids=range(len(antennas)),
        device={"threads": 2},
        recv={"sample_bits": 16, "packet_samples": PACKET_SAMPLES, "chunk_samples": chunk(plan, max_delay_diff),
              "max_delay_diff": max_delay_diff},
        send={"packet_payload": 8 * min(4096, channels * 2), "array_size": len(antennas),
              "pcap_file": str(work / f"{name}.out.pcap")},
        http={"listen": f"127.0.0.1:{harness.free_tcp_port()}"})
    for a, antenna in enumerate(antennas):
        lines = []
        for pol in range(2):
            gains = np.atleast_1d(antenna.gains[pol]).astype(complex)
            where = ["*"] if len(gains) == 1 else range(channels)
            lines += [f"wide0 {pol} {c} {g.real!r} {g.imag!r}" for c, g in zip(where, gains.tolist())]
        (work / f"{name}.{a}.gains").write_text("\n".join(lines) + "\n")
        config["antennas"][a]["gains"] = str(work / f"{name}.{a}.gains")
        if any(antenna.models):
            text = [m.line(pol) for pol in range(2) for m in antenna.models[pol]]
            (work / f"{name}.{a}.delays").write_text("\n".join(text) + "\n")
            config["antennas"][a]["delays"] = str(work / f"{name}.{a}.delays")
    return config


def _read(path, channels, n_antennas):
    """[antenna] {timestamp: int8 [channel][spectrum][pol][re, im]} of the complete heaps of a capture, in order."""
    heap_bytes = channels * HEAP * 4
    out = [{} for _ in range(n_antennas)]
    got = {}
    data = memoryview(np.memmap(path, np.uint8, "r"))
    at = 24
    while at < len(data):
        n = struct.unpack_from("<I", data, at + 8)[0]
        spead = at + 16 + 42
        n_items = struct.unpack_from(">H", data, spead + 6)[0]
        pointers = struct.unpack_from(f">{n_items}Q", data, spead + 8)
        items = {p >> 48 & 0x7FFF: p & 0xFFFFFFFFFFFF for p in pointers}
        if harness.FENG_RAW in items:
            feng_id, timestamp = items[harness.FENG_ID], items[harness.TIMESTAMP]
            payload = spead + 8 + 8 * n_items
            if timestamp not in out[feng_id]:
                out[feng_id][timestamp] = np.empty(heap_bytes, np.int8)
            offset, n_bytes = items[3], items[4]
            part = np.frombuffer(data[payload:payload + n_bytes], np.int8)
            out[feng_id][timestamp][offset:offset + n_bytes] = part
            got[feng_id, timestamp] = got.get((feng_id, timestamp), 0) + n_bytes
        at += 16 + n
    assert all(n == heap_bytes for n in got.values()), "an incomplete heap"
    return [{t: raw.reshape(channels, HEAP, 2, 2) for t, raw in heaps.items()} for heaps in out]


def run(work, name, plan, antennas, max_delay_diff=0, watch=None):
    """Runs fgpu, with the output of a plan, over the antennas' samples; [Voltages] of each.  watch(process) is called
    once all samples are fed."""
    work.mkdir(parents=True, exist_ok=True)
    config = _config(work, name, plan, antennas, max_delay_diff)
    sequences = {id(s): s for antenna in antennas for s in antenna.samples}
    n_packets = -(-max(s.n_samples for s in sequences.values()) // PACKET_SAMPLES)
    endpoints = [harness.endpoints(a[f"pol{pol}"])[0] for a in config["antennas"] for pol in range(2)]
    fifo = work / f"{name}.fifo"
    os.mkfifo(fifo)
    config["recv"]["pcap_file"] = str(fifo)
    both_ends = os.open(fifo, os.O_RDWR)  # so that neither side waits for the other to open it
    process = harness.Daemon("fgpu", config, work, name)
    try:
        with open(fifo, "wb", buffering=1 << 20) as stream:
            feed = Feed(stream, endpoints)
            stream.flush()
            process.wait_ready()
            os.close(both_ends)
            packets = {key: Packets(s) for key, s in sequences.items()}
            for _ in range(n_packets):
                now = {key: p.next() for key, p in packets.items()}
                feed.write([now[id(s)] for antenna in antennas for s in antenna.samples])
            stream.flush()
            if watch:
                watch(process)
        process.wait_end()
    except BrokenPipeError:
        raise SystemExit(f"fgpu ended early:\n{process.tail()}") from None
    finally:
        process.kill()
        fifo.unlink()
    sink = work / f"{name}.out.pcap"
    found = _read(sink, plan.channels, len(antennas))
    sink.unlink()
    return [Voltages(plan, batches) for batches in found]
