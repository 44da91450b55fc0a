"""All losses are accounted for.  The tests take heaps and packets out of recordings of the whole chain.  After that,
exactly the data named by the rules of docs/loss.md are missing, flagged or counted.

dsim, fgpu, xbgpu and visrec make the recordings once.  Then each pattern of loss is one replay of a daemon (or of all
of them).  The model is written from the rules: it knows which packets are present, and nothing of the code.
"""
import itertools
import os
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import h5py
import numpy as np
import pytest

import fmodel
import harness
import scenario
import xmodel
from harness import SEED, Daemon, endpoints, merge
from lossmodel import Member, match

CASES = int(os.environ.get("CBF_RANDOM_CASES", "50"))

N_ANTS = 3
PACKET = 264  # samples of a digitiser heap: never aligned with a batch
N_PACKETS = 420  # of each polarisation
FIRST_PACKET = 1237  # in the middle of a chunk, of a batch and of an accumulation
RATE = 1_000_000
SYNC_TIME = 1700000000
F_CHUNK, F_WINDOW, F_CHUNKS = 11, 2, 9  # packets of a chunk, chunks of the window, and of an input
X_CHUNK, X_WINDOW = 4, 2  # batches of a chunk, chunks of the window
V_WINDOW = 2  # dumps
CHANNELS, SUBSTREAMS = 64, 2
F_OUTPUTS = [
    {"channels": CHANNELS, "spectra_per_heap": 16, "taps": 4, "gain": 0.3, "dither": "uniform", "dither_seed": 11,
     "substreams": SUBSTREAMS},
    {"channels": 128, "spectra_per_heap": 16, "taps": 9, "gain": 0.3, "dither": "uniform", "dither_seed": 12,
     "batches_per_buffer": 3, "substreams": 1},
]
X_OUTPUTS = [
    {"integration_batches": 3},
    {"integration_batches": 5, "missing_dump": "skip"},
    {"integration_batches": 4, "missing": "weights"},
    {"integration_batches": 1, "missing": "weights", "missing_dump": "skip"},
]

# ---- Recordings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packet:
    """A packet of a recording: its record in the file, and the contents of its header."""
    record: bytes
    endpoint: tuple
    timestamp: int  # -1: a descriptor or a stop heap
    source: int  # digitiser id, feng_id or first channel
    offset: int  # of its payload in the heap


def parse(record, source_id):
    """The packet of a capture record that one of our programs wrote: Ethernet, IPv4 without options, UDP,
    SPEAD-64-48."""
    at = 16 + 14 + 20 + 8
    endpoint = (".".join(str(b) for b in record[46:50]), int.from_bytes(record[52:54], "big"))
    n_items = int.from_bytes(record[at + 6:at + 8], "big")
    words = struct.unpack_from(f">{n_items}Q", record, at + 8)
    items = {word >> 48 & 0x7FFF: word & (harness.WIRE - 1) for word in words}
    return Packet(record, endpoint, items.get(harness.TIMESTAMP, -1), items.get(source_id, -1), items.get(3, 0))


def load(paths, source_id):
    """The packets of captures, in order of time as a paced network brings them: a replay, which is not paced, writes
    each stream as fast as it can be had."""
    packets = []
    for path in paths:
        data = path.read_bytes()
        at = 24
        while at < len(data):
            end = at + 16 + int.from_bytes(data[at + 8:at + 12], "little")
            packets.append(parse(data[at:end], source_id))
            at = end
    return sorted(packets, key=lambda p: p.timestamp)


def store(path, packets):
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + b"".join(p.record for p in packets))


def heap_of(packet):
    return packet.source, packet.timestamp


def n_parts(packets):
    """How many packets a heap of a recording has."""
    (n,) = set(Counter(heap_of(p) for p in packets if p.timestamp >= 0).values())
    return n


class Recordings:
    """The undamaged recordings of a small array, and the configurations that made them."""

    def __init__(self, work):
        self.work = work
        time = {"sync_time": SYNC_TIME, "adc_sample_rate": RATE}
        self.fgpu = scenario.fgpu_config(
            F_OUTPUTS, feng_ids=range(N_ANTS), pol_groups=2, time=time,
            recv={"packet_samples": PACKET, "chunk_samples": F_CHUNK * PACKET, "window": F_WINDOW, "chunks": F_CHUNKS},
            send={"packet_payload": 512})
        self.xbgpu = [self.xbgpu_config(substream, time) for substream in range(SUBSTREAMS)]
        dsim = {
            "time": time,
            "digitiser": {"packet_samples": PACKET, "period": N_PACKETS * PACKET, "dither_seed": 1,
                          "duration": (N_PACKETS + 0.5) * PACKET / RATE, "first_timestamp": FIRST_PACKET * PACKET},
            "signals": {"specification": "sky = wgn(0.1, 1);" + "".join(
                f"delay(sky, {5 * i}) + wgn(0.2, {2 + i});" for i in range(2 * N_ANTS))},
            "antennas": [{"name": a["name"], "digitiser_id": 2 * a["feng_id"], "pol0": a["pol0"], "pol1": a["pol1"]}
                         for a in self.fgpu["antennas"]],
            "send": {"pcap_file": str(work / "digitisers.pcap")},
        }
        self.run("dsim", dsim, "dsim", work)
        self.digitisers = load([work / "digitisers.pcap"], harness.DIGITISER_ID)
        inputs = Counter(p.source for p in self.digitisers if p.timestamp >= 0)
        assert inputs == {i: N_PACKETS for i in range(2 * N_ANTS)}

        found, log = self.replay("fgpu", self.fgpu, self.digitisers, work, "whole")
        self.streams = scenario.fgpu_streams(self.fgpu, found)
        where = endpoints(self.fgpu["outputs"][0]["destinations"])
        fengs = load([work / "whole.out.pcap"], harness.FENG_ID)
        self.fengs = [[p for p in fengs if p.endpoint == endpoint] for endpoint in where]
        # [batch][ant][channel][spectrum][pol][re, im]
        batches = list(self.streams[0, 0])
        assert all(list(self.streams[0, a]) == batches for a in range(N_ANTS)) and len(batches) > 45
        self.first_batch = batches[0] // (16 * 2 * CHANNELS)
        voltages = np.stack([np.stack([self.streams[0, a][t] for t in batches]) for a in range(N_ANTS)], axis=1)
        assert 20 < voltages.std() < 50
        self.voltages = np.split(voltages, SUBSTREAMS, axis=2)

        for substream, config in enumerate(self.xbgpu):
            self.replay("xbgpu", config, self.fengs[substream], work, f"whole{substream}")
        captures = [work / f"whole{substream}.out.pcap" for substream in range(SUBSTREAMS)]
        self.visibilities = [self.by_output(load(captures, harness.FREQUENCY), o) for o in range(len(X_OUTPUTS))]

    def xbgpu_config(self, substream, time):
        config = scenario.xbgpu_config(
            X_OUTPUTS, time=time,
            recv={"antennas": N_ANTS, "channels": CHANNELS, "channels_per_substream": CHANNELS // SUBSTREAMS,
                  "channel_offset": substream * CHANNELS // SUBSTREAMS, "batches_per_chunk": X_CHUNK,
                  "window": X_WINDOW},
            send={"packet_payload": 1024})
        address, port = endpoints(self.fgpu["outputs"][0]["destinations"])[substream]
        config["recv"]["sources"] = f"{address}:{port}"
        return config

    def by_output(self, packets, o):
        """The output 'o' of the engines of both substreams."""
        where = [e for config in self.xbgpu for e in endpoints(config["outputs"][o]["destination"])]
        return [p for p in packets if p.endpoint in where]

    @staticmethod
    def run(program, config, name, work):
        process = Daemon(program, config, work, name)
        try:
            return process.wait_end().log.read_text()
        finally:
            process.kill()

    def replay(self, program, config, packets, work, name):
        """Returns the heaps that came out, by destination, and the log."""
        source, sink = work / f"{name}.in.pcap", work / f"{name}.out.pcap"
        store(source, packets)
        config = merge(config, {"recv": {"pcap_file": str(source)}, "send": {"pcap_file": str(sink)}})
        log = self.run(program, config, name, work)
        scenario.check_audits(log)
        return harness.decode_pcap(sink), log

    def visrec_config(self, o, work, name="visrec"):
        output, recv = X_OUTPUTS[o], self.xbgpu[0]["recv"]
        return {
            "time": self.fgpu["time"] | {"timebase": "packets"},
            "recv": {"sources": ",".join(c["outputs"][o]["destination"] for c in self.xbgpu), "window": V_WINDOW},
            "stream": {"channels": CHANNELS, "channels_per_substream": CHANNELS // SUBSTREAMS,
                       "spectra_per_heap": recv["spectra_per_heap"],
                       "samples_between_spectra": recv["samples_between_spectra"],
                       "integration_batches": output["integration_batches"],
                       "weights": output.get("missing") == "weights"},
            "telescope": {"name": "test", "latitude": -30, "longitude": 21, "altitude": 1000},
            "antennas": [{"name": a["name"], "position": [20 * a["feng_id"], 0, 0]} for a in self.fgpu["antennas"]],
            "output": {"file": str(work / f"{name}.uvh5")},
        }

    def visrec(self, o, packets, work, name):
        """Records output 'o'.  Returns the recorder's text and the path of the file."""
        source = work / f"{name}.in.pcap"
        store(source, packets)
        config = merge(self.visrec_config(o, work, name), {"recv": {"pcap_file": str(source)}})
        return self.run("visrec", config, name, work), work / f"{name}.uvh5"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    return Recordings(tmp_path_factory.mktemp("loss"))


# ---- Patterns of loss ------------------------------------------------------------------------------------------------


def pattern(rng, packets, step):
    """What a random pattern leaves of a recording whose heaps are 'step' samples apart; half are two patterns."""
    data = [p for p in packets if p.timestamp >= 0]
    sources = sorted({p.source for p in data})
    first, last = data[0].timestamp // step, data[-1].timestamp // step
    several = len(data) > len({heap_of(p) for p in data})
    names, lost = [], set()
    for _ in range(int(rng.integers(1, 3))):
        kind = str(rng.choice(KINDS if several else KINDS[:-1]))
        some = set(rng.choice(sources, int(rng.integers(1, len(sources) + 1)), replace=False).tolist())
        one = int(rng.choice(sources))
        begin = int(rng.integers(first, last + 1))
        # As long as the window bridges, or longer.
        end = begin + int(rng.integers(1, max(3, (last - first) // int(rng.choice([4, 12])))))
        times = set(rng.integers(first, last + 1, int(rng.integers(1, 9))).tolist())
        share = rng.choice([0.01, 0.05])
        choose = {
            "heaps": lambda p: p.source == one and p.timestamp // step in times,
            "heaps of several": lambda p: p.source in some and p.timestamp // step in times,
            "burst": lambda p: p.source == one and begin <= p.timestamp // step < end,
            "antenna": lambda p: p.source // 2 == one // 2 and begin <= p.timestamp // step < end,
            "all": lambda p: begin <= p.timestamp // step < end,
            "ends": lambda p: p.source in some and not first + len(times) <= p.timestamp // step < last - 3,
            "silent source": lambda p: p.source == one,
            "every other": lambda p: p.source == one and p.timestamp // step in range(begin, last + 1, 2),
            "packets": lambda p: rng.random() < share,
        }[kind]
        names.append(kind)
        lost |= {p for p in data if choose(p)}
    print(f"CBF_SEED={SEED}: lost are {' and '.join(names)}: {len(lost)} of {len(data)} packets")
    return [p for p in packets if p not in lost]


KINDS = ["heaps", "heaps of several", "burst", "antenna", "all", "ends", "silent source", "every other", "packets"]


# ---- The model -------------------------------------------------------------------------------------------------------


def times_of(packets, step):
    return [(p.source, p.timestamp // step, place) for place, p in enumerate(packets) if p.timestamp >= 0]


class FengModel:
    """fgpu's result for the packets: for each antenna and output the sent batches and the number of skipped ones."""

    def __init__(self, packets):
        times = times_of(packets, PACKET)
        self.inputs = [Member([t for t in times if t[0] == i], 1, 1, F_CHUNK, F_WINDOW) for i in range(2 * N_ANTS)]
        self.sent, self.n_skipped = {}, {}
        for a in range(N_ANTS):
            pair = self.inputs[2 * a:2 * a + 2]
            match(pair, F_CHUNKS - F_WINDOW - 3)
            present = np.zeros((2, N_PACKETS), bool)
            for pol, member in enumerate(pair):
                present[pol, [time - FIRST_PACKET for _, time in member.used]] = True
            for o, section in enumerate(F_OUTPUTS):
                output = scenario.model_of(section)
                self.sent[o, a] = fmodel.batches_present(FIRST_PACKET * PACKET, present, PACKET, output)
                self.n_skipped[o, a] = self.n_made(pair, output) - len(self.sent[o, a])

    def n_discarded(self, a):
        """Chunks of which the other polarisation's did not come, or not in time."""
        ends = [member.ends().keys() for member in self.inputs[2 * a:2 * a + 2]]
        return len(ends[0] ^ ends[1]) + sum(len(member.late) for member in self.inputs[2 * a:2 * a + 2])

    @staticmethod
    def n_made(pair, output):
        """Batches between the first heaps and the last ones of chunks that both polarisations have, or cut by a gap."""
        common = sorted(pair[0].ends().keys() & pair[1].ends().keys())
        if not common:
            return 0
        first = max(min(time for _, time in member.used if time // F_CHUNK == common[0]) for member in pair)
        end = min(member.ends()[common[-1]] for member in pair)
        whole = fmodel.batches(first * PACKET, (end - first) * PACKET, output)
        gaps = [c for c in common if c > common[0] and c - 1 not in common]
        n_begun = -(-gaps[-1] * F_CHUNK * PACKET // output.batch) if gaps else 0
        return max(whole.start, whole.stop, n_begun) - whole.start


@lru_cache(maxsize=None)
def dump(recordings, substream, first_batch, present_bytes, missing):
    present = np.frombuffer(present_bytes, bool).reshape(-1, N_ANTS)
    length = len(present)
    voltages = np.zeros((length, *recordings.voltages[substream].shape[1:]), np.int8)
    for i in range(length):
        at = first_batch + i - recordings.first_batch
        if 0 <= at < len(recordings.voltages[substream]):
            voltages[i] = recordings.voltages[substream][at]
    return xmodel.dump(voltages, present, missing)


@dataclass
class Dumps:
    """xbgpu's expected result for one output."""
    sent: dict = field(default_factory=dict)  # {window: (visibilities, weights, n clipped)}
    n_incomplete: int = 0
    n_skipped: int = 0
    n_absent: int = 0

    def line(self):
        return (f"{len(self.sent)} dumps sent, {self.n_incomplete} incomplete, {self.n_skipped} skipped "
                f"(no complete baseline), {self.n_absent} absent (no heaps arrived), 0 dropped")


class XengModel:
    """xbgpu's expected result for the packets [(feng_id, batch)] of a substream, one member to each of 'threads'."""

    def __init__(self, recordings, substream, packets, threads=1):
        bounds = [m * N_ANTS // threads for m in range(threads + 1)]
        n = n_parts(recordings.fengs[substream])
        self.members = {}
        for low, high in zip(bounds, bounds[1:]):
            of_member = [p for p in packets if low <= p[0] < high]
            self.members[f"F-engines {low}-{high - 1}"] = Member(of_member, high - low, n, X_CHUNK, X_WINDOW)
        members = list(self.members.values())
        match(members, X_WINDOW)
        complete = set().union(*(member.used for member in members))
        end = max([0, *(e for member in members for e in member.ends().values())])
        self.n_late = sum(len(member.late) for member in members)
        self.outputs = [self.dumps(recordings, substream, output, complete, end) for output in X_OUTPUTS]

    @staticmethod
    def dumps(recordings, substream, output, complete, end):
        length, missing = output["integration_batches"], output.get("missing", "flag")
        out, last = Dumps(), None
        for window in range(recordings.first_batch // length, end // length):
            present = np.array([[(ant, window * length + i) in complete for ant in range(N_ANTS)]
                                for i in range(length)])
            if not present.any():
                continue
            is_part = last is None and (present.any(axis=0) != present.all(axis=0)).any()
            out.n_absent += window - last - 1 if last is not None else 0
            last = window
            if is_part:
                continue
            out.n_incomplete += not present.all()
            dumped = dump(recordings, substream, window * length, present.tobytes(), missing)
            if output.get("missing_dump") == "skip" and (dumped[0] == xmodel.MAGIC).all():
                out.n_skipped += 1
            else:
                out.sent[window] = dumped
        return out


# ---- fgpu ------------------------------------------------------------------------------------------------------------


def check_log(log, what, line):
    """A daemon's last report equals its counters. 'line' has plural nouns, even for one."""
    said = [re.sub(r"\b1 (heap|dump|packet)\b", r"1 \1s", text)
            for text in re.findall(rf"info: {re.escape(what)}: (.* (?:heap|dump|chunk)s? .*)", log)]
    assert len(said) == 1 and said[0].startswith(line), f"{what}: {said}, not '{line}'"


def check_fgpu(recordings, packets, work, name="fgpu"):
    """Replays the remaining packets.  Returns the model, with which all results agreed."""
    model = FengModel(packets)
    found, log = recordings.replay("fgpu", recordings.fgpu, packets, work, name)
    streams = scenario.fgpu_streams(recordings.fgpu, found)
    for (o, a), got in streams.items():
        output, what = scenario.model_of(F_OUTPUTS[o]), f"antenna {a} output {o}"
        wanted = [batch * output.batch for batch in model.sent[o, a]]
        assert list(got) == wanted, f"{what}: {sorted(set(got) ^ set(wanted))} are there or not"
        for timestamp, voltages in got.items():
            assert np.array_equal(voltages, recordings.streams[o, a][timestamp]), f"{what}: {timestamp} has changed"
        n = F_OUTPUTS[o]["substreams"]
        check_log(log, f"m{a:03} wide{o}", f"{n * len(wanted)} heaps sent, {n * model.n_skipped[o, a]} skipped "
                                           f"(input missing), 0 dropped")
    for i, member in enumerate(model.inputs):
        check_log(log, f"m{i // 2:03} pol{i % 2}", member.line())
    for a in range(N_ANTS):
        (unmatched, late), = re.findall(rf"info: m{a:03}: (\d+) chunks? discarded .*, (\d+) discarded \(too late\)", log)
        assert int(unmatched) + int(late) == model.n_discarded(a), (unmatched, late)
    return model


@pytest.mark.parametrize("case", range(-(-CASES * 2 // 5)))
def test_digitiser_heaps(case, recordings, work):
    """Exactly the batches whose windows touch a lost heap are absent, as a whole.  All others are present, bit for
    bit."""
    rng = np.random.default_rng([SEED, 1, case])
    check_fgpu(recordings, pattern(rng, recordings.digitisers, PACKET), work)


def test_isolated_heaps(recordings, work):
    """Loses a heap of each input of an antenna in turn, so far apart that batches lie between: all places in a
    chunk."""
    lost = {(2 * a + k % 2, (FIRST_PACKET + 5 * a + 43 * k) * PACKET) for a in range(N_ANTS) for k in range(1, 10)}
    assert {timestamp // PACKET % F_CHUNK for _, timestamp in lost} == set(range(F_CHUNK))
    model = check_fgpu(recordings, [p for p in recordings.digitisers if heap_of(p) not in lost], work)
    assert [member.n_missing for member in model.inputs] == [4, 5] * N_ANTS
    assert min(len(sent) for sent in model.sent.values()) > 6


# ---- xbgpu -----------------------------------------------------------------------------------------------------------


def check_xbgpu(recordings, substream, packets, work, threads=1, name="xbgpu"):
    """Replays the remaining packets.  Returns the model, with which all results agreed."""
    config = merge(recordings.xbgpu[substream], {"recv": {"threads": threads}})
    step = scenario.batch_samples(config)
    model = XengModel(recordings, substream, times_of(packets, step), threads)
    found, log = recordings.replay("xbgpu", config, packets, work, name)
    for fengs, member in model.members.items():
        check_log(log, fengs, member.line())
    assert re.findall(r"(\d+) chunks? discarded, because", log) == [str(model.n_late)] * (model.n_late > 0)
    for o, output in enumerate(config["outputs"]):
        check_log(log, output["name"], model.outputs[o].line())
        scenario.check_dumps(config, o, found[endpoints(output["destination"])[0]], model.outputs[o].sent)
    return model


@pytest.mark.parametrize("case", range(-(-CASES * 2 // 5)))
def test_feng_heaps(case, recordings, work):
    """Exactly the baselines of antennas that lost a heap or a packet of one are flagged, or weigh less."""
    rng = np.random.default_rng([SEED, 2, case])
    substream = int(rng.integers(0, SUBSTREAMS))
    packets = pattern(rng, recordings.fengs[substream], 16 * 2 * CHANNELS)
    check_xbgpu(recordings, substream, packets, work, threads=int(rng.integers(1, N_ANTS + 1)))


# ---- visrec ----------------------------------------------------------------------------------------------------------


def check_file(path, o, windows, recorded):
    """recorded[substream][window] is the output: (visibilities, weights, n clipped), or absent."""
    output = X_OUTPUTS[o]
    length = output["integration_batches"]
    n_spectra = 16 * length
    half = CHANNELS // SUBSTREAMS
    pairs = [(a1, a2) for a1 in range(N_ANTS) for a2 in range(a1, N_ANTS)]
    with h5py.File(path, "r") as file:
        times = file["Header/time_array"][::len(pairs)]
        vis, flags, nsamples = (file[f"Data/{name}"][()] for name in ("visdata", "flags", "nsamples"))
        assert list(zip(file["Header/ant_1_array"], file["Header/ant_2_array"])) == pairs * len(windows)
    starts = ((times - 2440587.5) * 86400 - SYNC_TIME) * RATE / (n_spectra * 2 * CHANNELS) - 0.5
    assert np.array_equal(np.rint(starts), windows) and np.abs(starts - windows).max() < 0.1
    for n, window in enumerate(windows):
        for (i, (a1, a2)), substream in itertools.product(enumerate(pairs), range(SUBSTREAMS)):
            at = np.s_[n * len(pairs) + i, substream * half:(substream + 1) * half]
            what = f"dump {window}, baseline ({a1}, {a2}), substream {substream}"
            expected = np.zeros((half, 4, 2), int)
            good = np.zeros((half, 4), bool)
            fraction = np.float32(1)
            if window in recorded[substream]:
                values, weights, _ = recorded[substream][window]
                baseline = xmodel.baseline(a1, a2)
                products = values[:, [4 * baseline + product for product in (0, 3, 2, 1)]]
                good = ~(products == xmodel.MAGIC).all(-1)
                expected = np.where(good[..., None], products * [1, -1], 0)
                if output.get("missing") == "weights":
                    fraction = np.float32(weights[baseline]) / np.float32(n_spectra)
            assert np.array_equal(flags[at], ~good), what
            assert np.array_equal(nsamples[at], good * fraction), what
            assert np.array_equal(vis[at]["r"], expected[..., 0]), what
            assert np.array_equal(vis[at]["i"], expected[..., 1]), what


def check_visrec(recordings, o, packets, recorded, work, name="visrec"):
    """Records the remaining packets of output 'o'; recorded[substream][window] holds the full output."""
    step = X_OUTPUTS[o]["integration_batches"] * 16 * 2 * CHANNELS
    member = Member(times_of(packets, step), SUBSTREAMS, n_parts(recordings.visibilities[o]), 1, V_WINDOW, jump_heaps=3)
    log, path = recordings.visrec(o, packets, work, name)
    windows = sorted({window for _, window in member.complete})
    n_heaps = SUBSTREAMS * (windows[-1] + 1 - windows[0]) if windows else 0
    # The recorder speaks of the dumps in the file, though heaps of others may have begun.
    plural = "" if len(windows) == 1 else "s"
    last = f"{len(windows)} dump{plural}, {n_heaps - len(member.complete)} of {n_heaps} heaps missing"
    assert re.findall(r" (\d+ dumps?, \d+ of \d+ heaps missing), \d+\.\d\d % flagged\n", log)[-1] == last, log
    if not windows:
        assert not path.exists()
        return
    half = CHANNELS // SUBSTREAMS
    kept = [{window: dump for window, dump in dumps.items() if (substream * half, window) in member.complete}
            for substream, dumps in enumerate(recorded)]
    check_file(path, o, windows, kept)


def undamaged(recordings, o):
    step = 16 * 2 * CHANNELS
    return [XengModel(recordings, substream, times_of(packets, step)).outputs[o].sent
            for substream, packets in enumerate(recordings.fengs)]


@pytest.mark.parametrize("case", range(-(-CASES // 10)))
def test_visibility_heaps(case, recordings, work):
    """A dump is in the file if any heap of it came.  Channels of absent heaps are flagged, without samples."""
    rng = np.random.default_rng([SEED, 3, case])
    o = int(rng.integers(0, len(X_OUTPUTS)))
    packets = pattern(rng, recordings.visibilities[o], X_OUTPUTS[o]["integration_batches"] * 16 * 2 * CHANNELS)
    check_visrec(recordings, o, packets, undamaged(recordings, o), work)


# ---- The whole chain -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", range(-(-CASES // 10)))
def test_chain(case, recordings, work):
    """Digitiser heaps are lost; which dumps and baselines of the file are flagged follows from that alone."""
    rng = np.random.default_rng([SEED, 4, case])
    feng = check_fgpu(recordings, pattern(rng, recordings.digitisers, PACKET), work)
    step = 16 * 2 * CHANNELS
    sent = [(a, batch) for a in range(N_ANTS) for batch in feng.sent[0, a]]
    fengs = load([work / "fgpu.out.pcap"], harness.FENG_ID)
    xengs = []
    for substream, endpoint in enumerate(endpoints(recordings.fgpu["outputs"][0]["destinations"])):
        packets = [p for p in fengs if p.endpoint == endpoint]
        assert sorted({(a, batch) for a, batch, _ in times_of(packets, step)}) == sent
        xengs.append(check_xbgpu(recordings, substream, packets, work, name=f"xbgpu{substream}"))
    captures = load([work / f"xbgpu{substream}.out.pcap" for substream in range(SUBSTREAMS)], harness.FREQUENCY)
    for o in (0, 2):
        check_visrec(recordings, o, recordings.by_output(captures, o), [xeng.outputs[o].sent for xeng in xengs], work,
                     name=f"visrec{o}")


def test_books(recordings, work):
    """The example of docs/loss.md: three packets of one polarisation, and each counter's value."""
    step = 16 * 2 * CHANNELS
    first = recordings.first_batch
    # Amid batches that belong to different dumps.
    lost = {(batch * step + step // 2) // PACKET * PACKET for batch in (first + 9, first + 20, first + 31)}
    packets = [p for p in recordings.digitisers if p.source != 2 or p.timestamp not in lost]
    assert len(packets) == len(recordings.digitisers) - 3
    feng = check_fgpu(recordings, packets, work)
    assert [m.n_missing for m in feng.inputs] == [0, 0, 3, 0, 0, 0]
    assert [SUBSTREAMS * feng.n_skipped[0, a] for a in range(N_ANTS)] == [0, 6, 0]
    fengs = load([work / "fgpu.out.pcap"], harness.FENG_ID)
    xengs = []
    for substream, endpoint in enumerate(endpoints(recordings.fgpu["outputs"][0]["destinations"])):
        packets = [p for p in fengs if p.endpoint == endpoint]
        xengs.append(check_xbgpu(recordings, substream, packets, work, name=f"xbgpu{substream}"))
        assert [m.n_missing for m in xengs[-1].members.values()] == [3]
        assert xengs[-1].outputs[0].n_incomplete == 3
    captures = load([work / f"xbgpu{substream}.out.pcap" for substream in range(SUBSTREAMS)], harness.FREQUENCY)
    check_visrec(recordings, 0, recordings.by_output(captures, 0), [xeng.outputs[0].sent for xeng in xengs], work)
    with h5py.File(work / "visrec.uvh5", "r") as file:
        flags = file["Data/flags"][()].reshape(-1, 6, CHANNELS, 4)
    assert not ((flags.any((2, 3))) ^ flags.all((2, 3))).any()
    assert Counter(flags.all((2, 3)).sum(1).tolist()) == {3: 3, 0: len(flags) - 3}


def test_counters_exist(recordings, daemon, work):
    """Every metric that docs/loss.md names is one of the program's."""
    text = (harness.ROOT / "docs/loss.md").read_text()
    configs = {"fgpu": recordings.fgpu, "xbgpu": recordings.xbgpu[0], "visrec": recordings.visrec_config(0, work)}
    for program, config in configs.items():
        http = {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}
        with daemon(program, merge(config, {"http": http, "recv": {"interface": "lo"}})) as process:
            have = {name for name, _, _ in process.metrics().samples}
            named = set(re.findall(rf"`({program}_\w+)`", text))
            assert len(named) > 5 and named <= have, named - have
