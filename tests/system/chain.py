"""The whole correlator, live on the loopback interface, at a rate that any machine sustains:

    dsim -> 2 fgpu (an antenna each) -> 2 xbgpu (half of the band each) -> visrec, and a receiver of the test.

How a test knows right values: the signal is noise that repeats after PERIOD windows of accumulation, and nothing is
dithered.  So a complete dump has the same bits as the dump PERIOD windows before, and differs from all dumps in between.
A replay of captures through other processes gives these bits beforehand, and numpy has confirmed them.
"""
import signal
import socket
import time

import h5py
import numpy as np

import fmodel
import harness
import scenario
import xmodel
from harness import endpoints, groups, merge

RATE = 524288  # samples/s
PACKET = 4096
CHANNELS = 256
SPECTRA = 32
BATCH = SPECTRA * 2 * CHANNELS
INTEGRATION = 6  # batches: not a power of two, so that the grid of 64 bits is not that of the wire's 48
WINDOW = INTEGRATION * BATCH
PERIOD = 5  # windows
N_ANTS = 2
N_SUBSTREAMS = 2
SUBSTREAM = CHANNELS // N_SUBSTREAMS
SYNC_TIME = 1_000_000  # so long ago that the wire's timestamps have wrapped a few times
BASELINES = [(0, 0), (0, 1), (1, 1)]  # in the order of the heap, and of the file

SIGNALS = "sky = wgn(0.03, 100); sky + wgn(0.03, 1); sky + wgn(0.03, 2); delay(sky, 3) + wgn(0.03, 3); wgn(0.05, 4);"
OUTPUT = {"kind": "wideband", "name": "wide", "channels": CHANNELS, "spectra_per_heap": SPECTRA, "taps": 4,
          "gain": 0.05, "dither": "none"}
WIDEBAND = fmodel.Output(CHANNELS, SPECTRA, taps=4, gain=0.05)


def now_samples():
    return int((time.time() - SYNC_TIME) * RATE)


def unwrap(timestamp):
    """The 64-bit timestamp nearest to now."""
    now = now_samples()
    return now + (timestamp - now + harness.WIRE // 2) % harness.WIRE - harness.WIRE // 2


class Layout:
    """The configurations of all processes; 'overrides' are sections by the names of processes."""

    def __init__(self, work, overrides=None):
        self.work = work
        self.overrides = overrides or {}
        self.digitisers = [groups(2) for _ in range(N_ANTS)]
        self.voltages = groups(N_SUBSTREAMS)
        self.visibilities = groups(N_SUBSTREAMS)
        self.listen = {name: f"127.0.0.1:{harness.free_tcp_port()}" for name in NAMES}
        self.n_recordings = 0

    def config(self, name):
        config = getattr(self, name.rstrip("0123456789"))(*map(int, name[len(name.rstrip("0123456789")):]))
        config = merge(config, {"http": {"listen": self.listen[name]}})
        return merge(config, self.overrides.get(name, {}))

    def inputs(self, ant):
        pol0, pol1 = (f"{host}:{port}" for host, port in endpoints(self.digitisers[ant]))
        return {"pol0": pol0, "pol1": pol1}

    def dsim(self):
        return {
            "time": {"sync_time": SYNC_TIME, "adc_sample_rate": RATE},
            "digitiser": {"sample_bits": 10, "packet_samples": PACKET, "period": PERIOD * WINDOW, "dither_seed": 1},
            "signals": {"specification": SIGNALS},
            "antennas": [{"name": f"m{ant:03}", "digitiser_id": 2 * ant} | self.inputs(ant) for ant in range(N_ANTS)],
            "send": {"interface": "lo", "ttl": 0},
        }

    def fgpu(self, *ants):
        return {
            "time": {"sync_time": SYNC_TIME, "adc_sample_rate": RATE},
            "device": harness.FGPU["device"],
            "recv": {"interface": "lo", "sample_bits": 10, "packet_samples": PACKET, "chunk_samples": 8 * PACKET,
                     "max_delay_diff": 0, "threads": 1, "window": 4, "chunks": 32, "buffer": 4194304},
            "antennas": [{"name": f"m{ant:03}", "feng_id": ant} | self.inputs(ant) for ant in ants],
            "outputs": [OUTPUT | {"destinations": self.voltages, "buffers": 64}],
            # After a pause an engine is late by what its buffers held, seconds at this rate: 1.1 would make up for them
            # in ten times as long, all of it too late for the X-engines.
            "send": {"interface": "lo", "ttl": 0, "packet_payload": 4096, "array_size": N_ANTS, "rate_factor": 4},
        }

    def xbgpu(self, index):
        host, port = endpoints(self.voltages)[index]
        to_host, to_port = endpoints(self.visibilities)[index]
        return {
            "time": {"sync_time": SYNC_TIME, "adc_sample_rate": RATE},
            "device": {"kind": "cpu", "threads": 1},
            "recv": {"interface": "lo", "sources": f"{host}:{port}", "antennas": N_ANTS, "channels": CHANNELS,
                     "channels_per_substream": SUBSTREAM, "channel_offset": index * SUBSTREAM,
                     "spectra_per_heap": SPECTRA, "samples_between_spectra": 2 * CHANNELS, "batches_per_chunk": 2,
                     "window": 8, "chunks": 32, "buffer": 4194304},
            "outputs": [{"kind": "correlate", "name": "vis", "integration_batches": INTEGRATION, "audit_samples": 8,
                         "destination": f"{to_host}:{to_port}", "send_enabled": True, "buffers": 32}],
            # A dump in many packets, over all of its time: a kill hits it in the middle.
            "send": {"interface": "lo", "ttl": 0, "packet_payload": 1024},
        }

    def visrec(self):
        self.n_recordings += 1
        return {
            "time": {"sync_time": SYNC_TIME, "adc_sample_rate": RATE},
            "recv": {"interface": "lo", "sources": self.visibilities, "buffer": 4194304},
            "stream": {"channels": CHANNELS, "channels_per_substream": SUBSTREAM, "spectra_per_heap": SPECTRA,
                       "samples_between_spectra": 2 * CHANNELS, "integration_batches": INTEGRATION},
            "telescope": {"name": "test", "latitude": -30.7, "longitude": 21.4, "altitude": 1050},
            "antennas": [{"name": f"m{ant:03}", "position": [30 * ant, 0, 0]} for ant in range(N_ANTS)],
            "output": {"file": str(self.work / f"recording{self.n_recordings}.uvh5")},
        }


NAMES = ["visrec", "xbgpu0", "xbgpu1", "fgpu0", "fgpu1", "dsim"]  # in the order in which they start


# ---- What every dump must be -----------------------------------------------------------------------------------------


def replay_references(daemon, work):
    """int32 [window % PERIOD][channel][product][re, im], by captures from process to process."""
    layout = Layout(work)
    first = PERIOD * WINDOW
    capture = {name: str(work / f"reference.{name}.pcap") for name in ("dsim", "fgpu", "xbgpu0", "xbgpu1")}
    packets = {"time": {"timebase": "packets"}}
    dsim = merge(layout.dsim(), {"digitiser": {"duration": (PERIOD + 2) * WINDOW / RATE, "first_timestamp": first},
                                 "send": {"pcap_file": capture["dsim"]}})
    fgpu = merge(layout.fgpu(*range(N_ANTS)), packets | {"recv": {"pcap_file": capture["dsim"]},
                                                         "send": {"pcap_file": capture["fgpu"]}})
    daemon("dsim", dsim, "reference.dsim").wait_end()
    daemon("fgpu", fgpu, "reference.fgpu").wait_end()
    parts = []
    for index in range(N_SUBSTREAMS):
        name = f"xbgpu{index}"
        # Nothing paces the antennas: one may be far ahead of the other in the capture.
        patient = {"pcap_file": capture["fgpu"], "window": 64, "chunks": 131}
        xbgpu = merge(layout.xbgpu(index), packets | {"recv": patient, "send": {"pcap_file": capture[name]}})
        process = daemon("xbgpu", xbgpu, f"reference.{name}").wait_end()
        scenario.check_audits(process.log.read_text())
        (heaps,) = harness.decode_pcap(capture[name]).values()
        dumps = {h.items["timestamp"]: h.items["xeng_raw"] for h in heaps if h.kind == "data"}
        parts.append([dumps[first + window * WINDOW] for window in range(1, PERIOD + 1)])
    references = np.roll(np.concatenate(parts, axis=1), 1, axis=0)
    check_references(references, layout, capture["dsim"])
    return references


def check_references(references, layout, capture):
    """Compares the references with numpy.  The tolerance is the effect on a sum of one voltage in a thousand that is
    off by one."""
    payload_bytes = PACKET * 10 // 8  # of heaps of data, which are one packet each
    packed = {endpoint: [] for ant in range(N_ANTS) for endpoint in endpoints(layout.digitisers[ant])}
    for endpoint, packet in harness.read_pcap(capture):
        if len(packet) > payload_bytes:
            packed[endpoint].append(np.frombuffer(packet[-payload_bytes:], np.uint8))
    samples = [fmodel.unpack(np.concatenate(payloads), 10) for payloads in packed.values()]
    samples = np.reshape(samples, (N_ANTS, 2, -1))[..., :(PERIOD + 1) * WINDOW]
    for ant in range(N_ANTS):
        assert np.array_equal(samples[ant, :, :WINDOW], samples[ant, :, PERIOD * WINDOW:]), "dsim does not repeat"
    batches = range(PERIOD * INTEGRATION, 2 * PERIOD * INTEGRATION)
    models = [fmodel.voltages(PERIOD * WINDOW, samples[ant], WIDEBAND, batches) for ant in range(N_ANTS)]
    voltages = np.array([[fmodel.quantise(models[ant][b], 127) for ant in range(N_ANTS)] for b in batches])
    for window in range(PERIOD):
        part = voltages[window * INTEGRATION:(window + 1) * INTEGRATION]
        expected = xmodel.correlate(part, np.ones(part.shape[:2], bool))
        off = np.abs(references[window] - expected).max()
        assert off < 0.01 * np.abs(expected).max(), f"the reference of window {window} is off by {off}"
        for other in range(window):
            assert not np.array_equal(references[window], references[other])


# ---- The receiver ----------------------------------------------------------------------------------------------------


class Dump:
    """A dump of one X-engine: 'present' [baseline]; a baseline is flagged throughout, or it has the right values."""

    def __init__(self, heap, references):
        self.substream = heap.items["frequency"] // SUBSTREAM
        self.timestamp = unwrap(heap.items["timestamp"])
        self.cnt = heap.cnt
        what = f"dump {self.timestamp} of substream {self.substream}"
        assert self.timestamp % WINDOW == 0, f"{what} is off the grid by {self.timestamp % WINDOW}"
        expected = references[self.timestamp // WINDOW % PERIOD]
        expected = expected[self.substream * SUBSTREAM:(self.substream + 1) * SUBSTREAM]
        found = heap.items["xeng_raw"]
        assert found.shape == expected.shape
        self.present = []
        for index, baseline in enumerate(BASELINES):
            products = slice(4 * index, 4 * index + 4)
            flagged = (found[:, products] == xmodel.MAGIC).all(-1)
            right = (found[:, products] == expected[:, products]).all(-1)
            assert flagged.all() or right.all(), \
                f"{what}: baseline {baseline}: {flagged.sum()} values flagged, {right.sum()} right of {right.size}"
            self.present.append(bool(right.all()))
        assert self.present[1] == (self.present[0] and self.present[2]), f"{what}: baselines {self.present} present"

    @property
    def complete(self):
        return all(self.present)


class Dumps:
    """Receives both X-engines' output with spead2, and compares every dump with the references on arrival."""

    def __init__(self, layout, references, interface_address=harness.LOOPBACK):
        self.receiver = harness.Receiver(layout.visibilities, interface_address, may_lose=True)
        self.references = references
        self.endpoints = endpoints(layout.visibilities)
        self.n_seen = 0
        self.heaps = [[] for _ in range(N_SUBSTREAMS)]  # in order of arrival
        self.dumps = [[] for _ in range(N_SUBSTREAMS)]

    def refresh(self):
        with self.receiver.changed:
            new = self.receiver.heaps[self.n_seen:]
            self.n_seen += len(new)
        for heap in new:
            substream = self.endpoints.index(heap.endpoint)
            self.heaps[substream].append(heap)
            if heap.kind == "data":
                dump = Dump(heap, self.references)
                assert dump.substream == substream
                before = self.dumps[substream]
                assert not before or before[-1].timestamp < dump.timestamp, "dumps go backwards in time"
                before.append(dump)

    def newest(self):
        """Timestamp of the newest dump of all."""
        self.refresh()
        return max((dumps[-1].timestamp for dumps in self.dumps if dumps), default=0)

    def wait(self, condition, what, timeout=harness.TIMEOUT_S):
        deadline = time.monotonic() + timeout
        while True:
            self.refresh()
            if condition():
                return
            assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s; {self.describe()}"
            with self.receiver.changed:
                self.receiver.changed.wait_for(lambda: len(self.receiver.heaps) > self.n_seen, 0.1)

    def wait_dumps(self, n, after, substreams=range(N_SUBSTREAMS), baselines=range(len(BASELINES))):
        """Waits for 'n' dumps of each substream, later than timestamp 'after', in which these baselines are there."""
        def enough():
            return all(sum(d.timestamp > after and all(d.present[b] for b in baselines) for d in self.dumps[s]) >= n
                       for s in substreams)
        self.wait(enough, f"{n} dumps after {after} of substreams {list(substreams)} with baselines {list(baselines)}")

    def n_stops(self, substream):
        self.refresh()
        return sum(h.kind == "stop" for h in self.heaps[substream])

    def describe(self):
        return ", ".join(f"{len(d)} dumps of substream {s}, {sum(x.complete for x in d)} complete"
                         for s, d in enumerate(self.dumps))


def check_file(path, references):
    """Holds a recording to the references; returns (windows, present [dump][baseline][substream])."""
    with h5py.File(path, "r") as file:
        header, data = file["Header"], file["Data"]
        n_times = int(header["Ntimes"][()])
        shape = (n_times, len(BASELINES), CHANNELS, 4)
        assert int(header["Nblts"][()]) == n_times * len(BASELINES) == len(header["time_array"])
        values = data["visdata"][()].reshape(shape)
        flags = data["flags"][()].reshape(shape).astype(bool)
        nsamples = data["nsamples"][()].reshape(shape)
        times_s = (header["time_array"][::len(BASELINES)] - 2440587.5) * 86400
    windows = (times_s - SYNC_TIME) * RATE / WINDOW - 0.5
    assert np.abs(windows - np.rint(windows)).max(initial=0) < 0.01  # a Julian date resolves 40 us
    windows = np.rint(windows).astype(np.int64)
    assert (np.diff(windows) > 0).all()
    products = [0, 3, 2, 1]  # of xx, yy, xy, yx
    expected = references.reshape(PERIOD, CHANNELS, len(BASELINES), 4, 2)[:, :, :, products].astype(np.int64)
    expected = expected.transpose(0, 2, 1, 3, 4)[windows % PERIOD]
    right = (values["r"] == expected[..., 0]) & (values["i"] == -expected[..., 1])
    assert (flags | right).all(), f"{path}: {np.sum(~flags & ~right)} values are wrong"
    assert (values["r"][flags] == 0).all() and (values["i"][flags] == 0).all()
    assert (nsamples == ~flags).all()
    by_substream = flags.reshape(n_times, len(BASELINES), N_SUBSTREAMS, -1)
    assert (by_substream.all(-1) == by_substream.any(-1)).all(), f"{path}: a baseline is flagged in part"
    return windows, ~by_substream.all(-1)


# ---- The processes ---------------------------------------------------------------------------------------------------


class Chain:
    """The running processes, by name.  A process that a test ends is started again under a new log name and socket."""

    def __init__(self, daemon, layout):
        self.daemon = daemon
        self.layout = layout
        self.processes = {}
        self.n_starts = 0

    def start(self, *names):
        # With priority: an engine believes a late F-engine if a busy host keeps the other F-engine waiting for a window.
        for name in names:
            self.n_starts += 1
            process = self.daemon(name.rstrip("0123456789"), self.layout.config(name), f"{name}.{self.n_starts}",
                                  first=True)
            self.processes[name] = process
        for name in names:
            self.processes[name].wait_ready()

    def __getitem__(self, name):
        return self.processes[name]

    def recording(self):
        return self.processes["visrec"].config["output"]["file"]

    def others(self, *names):
        return [name for name in self.processes if name not in names]

    def check_alive(self, *names):
        """The processes run, are well, and have not told the init system that they stop."""
        for name in names:
            process = self.processes[name]
            assert process.process.poll() is None, f"{name} has ended:\n{process.tail()}"
            harness.page(self.layout.listen[name], "healthz")  # 200, or an HTTPError
            assert "STOPPING=1" not in notifications(process)

    def kill(self, name):
        process = self.processes[name].process
        process.send_signal(signal.SIGKILL)
        assert process.wait(harness.TIMEOUT_S) == -signal.SIGKILL

    def terminate(self, *names):
        """SIGTERM, a clean end, and the init system hears of it."""
        for name in names:
            process = self.processes[name]
            notifications(process)
            process.terminate().wait_end()
            assert "STOPPING=1" in notifications(process), f"{name} did not say that it stops"
            if name.startswith("xbgpu"):
                scenario.check_audits(process.log.read_text())


def notifications(process):
    """A process's messages to the init system since the last call."""
    lines = []
    while True:
        try:
            lines += process.notify.recv(4096, socket.MSG_DONTWAIT).decode().splitlines()
        except BlockingIOError:
            return lines
