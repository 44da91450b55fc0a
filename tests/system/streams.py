"""Streams for the three programs that receive, as packets that can be altered; their replay, and its results.

Captures come through a FIFO here, so that /metrics can be read after the last packet and before the end.

Streams end with a chunk.  A receiver that hears nothing for a second and two windows counts the rest of a chunk as
missing.  The end of a program does not count the rest.  If a stream ended within a chunk, the counts would depend on
which of the two comes first.

The sample rates are so low that a window lasts 16 s or more.  So a live feed may pause within a chunk.
"""
import os
import re
from dataclasses import dataclass

import h5py
import numpy as np

import harness
import scenario
import wire
from harness import SEED, endpoints, merge
from wire import PAYLOAD_LENGTH

BATCH = 64  # packets that a receiver takes at once
SAMPLE_RATE = 1000  # of both engines

# ---- The three programs ----------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """A program, its configuration, and the packets of an undisturbed stream for it, in order of time."""
    program: str
    prefix: str
    config: dict
    packets: list  # [(endpoint, wire.Packet)]
    ids: tuple  # items that a packet must have as immediates
    step: int  # samples from heap to heap
    chunk: int  # samples
    window: int  # chunks
    bad_source: tuple  # (item, values) that belong to nobody
    bad_frequency: tuple


def fgpu_stream(n_packets=16 * 12 - 3, payload_bytes=640, **recv):
    """An antenna; heaps of 640 bytes."""
    config = scenario.fgpu_config(
        outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 0.4}], time={"adc_sample_rate": SAMPLE_RATE},
        recv={"packet_samples": 512, "chunk_samples": 8192} | recv, send={"packet_payload": 1536})
    recv, rng = config["recv"], np.random.default_rng(SEED)
    sent = scenario.digitiser_heaps(config, scenario.noise(rng, 1, n_packets * 512, 10), 8192 * 1000 + 512 * 3)
    return Stream("fgpu", "fgpu_input", config, raw(sent, payload_bytes),
                  (harness.TIMESTAMP, harness.DIGITISER_ID, harness.DIGITISER_STATUS), 512, recv["chunk_samples"],
                  recv.get("window", 2), (harness.DIGITISER_ID, None), ())


def xbgpu_stream(n_batches=59, payload_bytes=64, **recv):
    """Two outputs.  The second sends the number of spectra of each baseline.  Heaps have 256 bytes."""
    outputs = [{"integration_batches": 5}, {"integration_batches": 3, "missing": "weights"}]
    config = scenario.xbgpu_config(outputs, time={"adc_sample_rate": SAMPLE_RATE}, recv={"antennas": 3} | recv)
    recv, rng = config["recv"], np.random.default_rng(SEED)
    voltages = scenario.random_voltages(rng, config, n_batches)
    step, n_ants = scenario.batch_samples(config), recv["antennas"]
    return Stream("xbgpu", "xbgpu_input", config, raw(scenario.feng_heaps(config, 4001, voltages), payload_bytes),
                  (harness.TIMESTAMP, harness.FENG_ID, harness.FREQUENCY), step, recv["batches_per_chunk"] * step,
                  recv.get("window", 2), (harness.FENG_ID, (n_ants, n_ants + 1, 2**16, 2**47)),
                  (harness.FREQUENCY, (0, 4, 9, 12, 2**47)))


def visrec_stream(n_dumps=24):
    """Three antennas, 16 channels in 4 substreams, dumps of 1024 samples; heaps in packets of 256 bytes."""
    config = {
        "time": {"sync_time": "1700000000.5", "adc_sample_rate": 100, "timebase": "packets"},
        "recv": {"sources": harness.groups(), "window": 2},
        "stream": {"channels": 16, "channels_per_substream": 4, "spectra_per_heap": 16, "samples_between_spectra": 32,
                   "integration_batches": 2, "weights": True},
        "telescope": {"name": "test array", "latitude": -30.7128, "longitude": 21.4439, "altitude": 1038.0},
        "antennas": [{"name": f"m{i}", "position": [10.0 * i, 20.0 * i * i, 0.0]} for i in range(3)],
        "output": {},
    }
    rng = np.random.default_rng(SEED)
    (where,) = endpoints(config["recv"]["sources"])
    sent = []
    for dump in range(n_dumps):
        for sub in range(4):
            vis = rng.integers(-2**31 + 1, 2**31, (4, 24, 2)).astype("<i4")
            heap = harness.make_heap([
                harness.immediate(harness.TIMESTAMP, (500 + dump) * 1024),
                harness.immediate(harness.FREQUENCY, 4 * sub),
                harness.payload_item(harness.XENG_RAW, vis),
                harness.payload_item(harness.XENG_WEIGHTS, rng.integers(1, 33, 6).astype("<u4"))])
            sent.append(harness.Sent(where, heap, 4 * dump + sub + 1))
    return Stream("visrec", "visrec", config, raw(sent, 256), (harness.TIMESTAMP, harness.FREQUENCY), 1024, 1024, 2,
                  (), (harness.FREQUENCY, (1, 16, 20, 2**47)))


STREAMS = {"fgpu": fgpu_stream, "xbgpu": xbgpu_stream, "visrec": visrec_stream}


def raw(sent, payload_bytes):
    """spead2's packets of heaps, taken apart."""
    out = []
    for s in sent:
        first = harness.packets(s.heap, s.cnt, 1 << 16)[0]
        header_bytes = len(first) - wire.parse(first).get(PAYLOAD_LENGTH)
        out += [(s.endpoint, wire.parse(p)) for p in harness.packets(s.heap, s.cnt, header_bytes + payload_bytes)]
    return out


# ---- A replay that can be looked at ----------------------------------------------------------------------------------


@dataclass
class Outcome:
    sent: object  # what left, by destination in order; or what is in the recorder's file
    metrics: harness.Metrics
    log: str


def replay(daemon, work, stream, packets, name):
    """Runs a program over [(endpoint, bytes)].  The last two batches must not be among the counted packets."""
    fifo, sink = work / f"{name}.in.fifo", work / f"{name}.out"
    os.mkfifo(fifo)
    capture = work / f"{name}.in.pcap"
    harness.write_pcap(capture, packets)
    config = merge(stream.config, {"recv": {"pcap_file": str(fifo)},
                                   "http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}})
    if stream.program == "visrec":
        config["output"]["file"] = str(sink)
    else:
        config["send"]["pcap_file"] = str(sink)
    whole = capture.read_bytes()
    both_ends = os.open(fifo, os.O_RDWR)  # so that neither side waits for the other to open it
    with open(fifo, "wb") as feed:
        process = daemon(stream.program, config, name)
        feed.write(whole[:24])
        feed.flush()
        process.wait_ready()
        os.close(both_ends)
        feed.write(whole[24:])
        feed.flush()
        n = len(packets) // BATCH * BATCH
        metrics = process.wait_counted(lambda m: m.get(f"{stream.prefix}_packets_total") >= n, f"{n} packets taken")
    process.wait_end()
    log = process.log.read_text()
    scenario.check_audits(log)
    return Outcome(read_file(sink) if stream.program == "visrec" else read_sent(sink), metrics, log)


def read_sent(path):
    out = {}
    for endpoint, payload in harness.read_pcap(path):
        out.setdefault(endpoint, []).append(payload)
    return out


def read_file(path):
    with h5py.File(path, "r") as file:
        names = ["Data/visdata", "Data/flags", "Data/nsamples", "Header/time_array"]
        return {name: file[name][()].tobytes() for name in names}


IGNORED = {"descriptor", "stop", "other_thread"}  # part of any stream: not refused, and no warning


def counts(stream, metrics):
    """Numbers of packets refused or ignored for each reason of the program.  Malformed packets are counted by their
    fault."""
    out = {}
    for kind in ("rejected", "ignored"):
        reasons = {labels["reason"] for name, labels, _ in metrics.samples
                   if name == f"{stream.prefix}_{kind}_packets_total"}
        assert not reasons & out.keys() and (reasons <= IGNORED) == (kind == "ignored")
        out |= {r: metrics.get(f"{stream.prefix}_{kind}_packets_total", reason=r) for r in reasons}
    if stream.program == "fgpu":
        for reason in ("too_old", "bad_timestamp"):
            assert reason not in out
            out[reason] = metrics.get(f"fgpu_input_{reason}_heaps_total")
    name = f"{stream.prefix}_malformed_packets_total"
    errors = {labels["error"] for n, labels, _ in metrics.samples if n == name}
    out |= {f"malformed: {e}": metrics.get(name, error=e) for e in errors}
    assert out.pop("malformed") == sum(n for reason, n in out.items() if reason.startswith("malformed: "))
    return out


def heaps_received(log):
    """The final report of each member, or of the recorder, about received and missing data."""
    found = re.findall(r"(\d+) heaps? received, (\d+) missing", log)
    found = found or re.findall(r"(\d+) dumps?, (\d+) of (\d+) heaps missing", log)[-1:]  # it also says so as time passes
    assert found
    return found


def check_same(stream, outcome, expected, refused, n_holed=0, n_contested=0):
    """The same output, exactly 'refused': {reason: packets}, and all that is missing has a hole or was contested."""
    found = counts(stream, outcome.metrics)
    differ = {reason: (n, refused.get(reason, 0)) for reason, n in found.items() if n != refused.get(reason, 0)}
    assert not differ, f"packets refused, and how many should have been: {differ}"
    assert sum(found.values()) == sum(refused.values())
    for name, n in [("missing_heaps", n_holed + n_contested), ("incomplete_heaps", n_holed),
                    ("contested_heaps", n_contested), ("jumps", 0)]:
        assert outcome.metrics.get(f"{stream.prefix}_{name}_total") == n, name
    ends = heaps_received(outcome.log), heaps_received(expected.log)
    assert ends[0] == ends[1], f"received and missing: {ends[0]}, not {ends[1]}"
    assert outcome.sent.keys() == expected.sent.keys()
    for key in expected.sent:
        assert outcome.sent[key] == expected.sent[key], f"what leaves for {key} has changed"
