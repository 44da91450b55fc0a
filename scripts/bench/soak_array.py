"""The array of scripts/bench/soak.py: the demonstration's array with a signal that repeats, and each dump's right values.

No value is dithered after the digitisers, no delay drifts, and the signal repeats after PERIOD dumps.  So each dump
without a flag has the same bits as the dump PERIOD dumps before.  A replay of captures through fault-free processes
gives these bits, and numpy confirms them for all baselines.
"""
import os
import time
from pathlib import Path

import numpy as np

import demo_array
import fmodel
import harness
import xmodel

RATE = int(demo_array.RATE_HZ)
CHANNELS, HALF, SPECTRA, N_ANTS = demo_array.CHANNELS, demo_array.HALF, 32, 4
BATCH = SPECTRA * 2 * CHANNELS
BATCHES = 8  # of a dump: integration_time in config/demo
WINDOW = BATCHES * BATCH
PERIOD = 8  # dumps: the period of the digitisers in config/demo
PACKET_SAMPLES, SAMPLE_BITS = 4096, 10
N_BASELINES = xmodel.n_baselines(N_ANTS)
FILE_SECONDS = 30  # of each file of the recorder


class Array(demo_array.Array):
    """The running array.  A process that ended is started again under a new log name."""

    def __init__(self, work):
        super().__init__(None, work, katcp=True, recording=work / "dumps-%Y%m%dT%H%M%SZ.uvh5")
        self.sync_time = self.configs["dsim"]["time"]["sync_time"]
        signals = self.configs["dsim"]["signals"]
        signals["specification"] = signals["specification"].replace("track(", "delay(").replace(", 2e-7)", ")")
        for name in ("fgpu0", "fgpu1"):
            self.configs[name]["outputs"][0]["dither"] = "none"
            for antenna in self.configs[name]["antennas"]:
                antenna.pop("delays", None)
        self.configs["visrec"]["output"]["max_file_time"] = FILE_SECONDS
        self.n_lives = dict.fromkeys(self.configs, 0)

    def start(self, *names):
        for name in names:
            self.n_lives[name] += 1
            log = f"{name}.{self.n_lives[name]}"
            self.processes[name] = harness.Daemon(name.rstrip("01"), self.configs[name], self.work, log, first=True)
        for name in names:
            self.processes[name].wait_ready()

    def kill_all(self):
        for process in self.processes.values():
            process.kill()

    def now_samples(self):
        return int((time.time() - self.sync_time) * RATE)


# ---- The right values ------------------------------------------------------------------------------------------------


def references(array, work):
    """Returns int32 [dump % PERIOD][channel][4 * baseline + product][re, im]."""
    first, packets = PERIOD * WINDOW, {"time": {"timebase": "packets"}}
    capture = {name: work / f"{name}.pcap" for name in array.configs}

    def replay(name, source, changes=None):
        config = harness.merge(array.configs[name], packets | {"send": {"pcap_file": str(capture[name])}})
        config = harness.merge(config, {"recv": {"pcap_file": str(capture[source])}} if source else {})
        config.pop("http", None)
        config.pop("katcp", None)
        harness.Daemon(name.rstrip("01"), harness.merge(config, changes or {}), work, f"reference.{name}").wait_end()

    del packets["time"]  # dsim has no time base
    replay("dsim", None, {"digitiser": {"duration": (PERIOD + 2) * WINDOW / RATE, "first_timestamp": first}})
    packets["time"] = {"timebase": "packets"}
    for name in ("fgpu0", "fgpu1"):
        replay(name, "dsim")
    join_captures(capture["fgpu0"], capture["fgpu1"], work / "fgpu.pcap")
    parts, capture["fgpu"] = [], work / "fgpu.pcap"
    for name in ("xbgpu0", "xbgpu1"):
        # The second F-engine's heaps come after all heaps of the first.
        replay(name, "fgpu", {"recv": {"window": 64, "chunks": 131}})
        (heaps,) = harness.decode_pcap(capture[name]).values()
        dumps = {heap.items["timestamp"]: heap.items["xeng_raw"] for heap in heaps if heap.kind == "data"}
        parts.append([dumps[first + window * WINDOW] for window in range(1, PERIOD + 1)])
    right = np.roll(np.concatenate(parts, axis=1), 1, axis=0)
    confirm(right, digitised(array, capture["dsim"]))
    for path in capture.values():
        Path(path).unlink(missing_ok=True)
    return right


def join_captures(first, second, joined):
    """Writes the records of two captures into one file, after one file header of 24 bytes."""
    joined.write_bytes(first.read_bytes() + second.read_bytes()[24:])


def digitised(array, capture):
    """Returns the samples [antenna][pol][n] of dsim's capture."""
    payload_bytes = PACKET_SAMPLES * SAMPLE_BITS // 8
    inputs = [endpoint for antenna in array.configs["dsim"]["antennas"] for pol in ("pol0", "pol1")
              for endpoint in harness.endpoints(antenna[pol])]
    packed = {endpoint: [] for endpoint in inputs}
    for endpoint, packet in harness.read_pcap(capture):
        if len(packet) > payload_bytes:
            packed[endpoint].append(np.frombuffer(packet[-payload_bytes:], np.uint8))
    samples = [fmodel.unpack(np.concatenate(packed[endpoint]), SAMPLE_BITS) for endpoint in inputs]
    return np.reshape(samples, (N_ANTS, 2, -1))


def confirm(right, samples):
    """Compares the replay's dumps with numpy.  The tolerance is the effect on a sum of one voltage in a thousand that
    is off by one."""
    output = fmodel.Output(CHANNELS, SPECTRA)
    assert np.array_equal(samples[..., :WINDOW], samples[..., PERIOD * WINDOW:(PERIOD + 1) * WINDOW]), "dsim does not repeat"
    for window in range(PERIOD):
        batches = range((PERIOD + window) * BATCHES, (PERIOD + window + 1) * BATCHES)
        part = samples[..., window * WINDOW:(window + 1) * WINDOW + output.reach]
        models = [fmodel.voltages((PERIOD + window) * WINDOW, part[ant], output, batches) for ant in range(N_ANTS)]
        voltages = np.array([[fmodel.quantise(model[b], output.limit) for model in models] for b in batches])
        expected = xmodel.correlate(voltages, np.ones(voltages.shape[:2], bool))
        off = np.abs(right[window] - expected).max()
        assert off < 0.01 * np.abs(expected).max(), f"the reference of dump {window} is off by {off}"
        assert not any(np.array_equal(right[window], right[other]) for other in range(window))


# ---- Loss ------------------------------------------------------------------------------------------------------------

LOSSES = ("input_missing_heaps_total", "input_kernel_drops", "input_rejected_packets_total", "late_chunks_total",
          "output_dropped_heaps_total", "output_x_dropped_accs_total")


def lost(array):
    """Returns the losses that the engines and the kernel have counted, of all engines together.  On a busy host the engines
    also lose chunks that are late, and heaps for which no output buffer is free."""
    total = own_drops()
    for name in demo_array.ENGINES:
        page = array[name].metrics()
        prefix = name.rstrip("01")
        total += sum(value for metric, _, value in page.samples if metric in [f"{prefix}_{loss}" for loss in LOSSES])
    return total


def own_drops():
    """Returns the packets that the kernel dropped at this program's UDP sockets."""
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            inodes.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if f"socket:[{row[9]}]" in inodes)
