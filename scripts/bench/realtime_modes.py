"""The modes of scripts/bench/realtime.  A mode has programs with their configurations, and conditions of a clean run.

An object of a mode's class is one run.  Mode F has dsim, fgpu and a receiver that counts heaps.  Mode X has fsim,
xbgpu, a check of every dump, and receivers that count heaps of beams.  Mode Chain has dsim, fgpu, an xbgpu for each
substream, and a check of every dump."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import host_traffic
from realtime_dumps import Dumps
from realtime_host import (F_LOSSES, X_LOSSES, add_search_options, cores_used, free_port, grown, metrics, power_of_two,
                           write_config)

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests/models", "tests/system")]
import fmodel  # noqa: E402
import fsimmodel  # noqa: E402
import harness  # noqa: E402
import xmodel  # noqa: E402
from realtime_satellites import GRID_HZ, LOCKED, Records, Sky, judge_sums  # noqa: E402

SAMPLE_BITS, PACKET_SAMPLES, N_TAPS, GAIN, N_POLS = 10, 4096, 16, 1.5, 2
POLL_S = 0.25
CHUNK_S = 0.005          # shortest chunk of fgpu
X_CHUNK_S = 0.010        # shortest chunk of xbgpu in a chain
BUFFERS_S = 0.15         # duration of the data that fgpu's output buffers hold
X_WINDOW_MAX = 64        # chunks
LATE_S = 0.05            # allowed lateness of the simulator
LATENCY = re.compile(r'fgpu_output_latency_seconds{.*?antenna="([^"]*)"')
LOSSES = {"fgpu": F_LOSSES, "xbgpu": X_LOSSES, "dsim": re.compile("dsim_packets_failed")}
COUNTS = ("broken", "missing", "late", "drops")
WINDOW_SPECTRA, WINDOWS = 32, 16  # detected beams: number of spectra in a window, and number of windows in a heap
CALIBRATION = 0.02       # calibration gain of every input in the beams


def kind_of(name):
    """Returns the program that a process runs: xbgpu for the process xbgpu3."""
    return name.rstrip("0123456789")


class Watch:
    """Watches how late the simulator is, between two snapshots of the metrics."""

    def __init__(self, mode, before):
        self.mode, self.start, self.before, self.late_s = mode, before.time, before.metrics, 0.0

    def look(self):
        self.note(self.mode.metrics([self.mode.SIMULATOR]))

    def note(self, found):
        self.late_s = max(self.late_s, found[self.mode.SIMULATOR][self.mode.LATE])


class LatencyWatch(Watch):
    """Also watches the latency of the output that the receiver counts."""

    def __init__(self, mode, before):
        super().__init__(mode, before)
        self.latencies = []

    def look(self):
        self.latencies.append(self.mode.last_count()["latency_s"])
        super().look()


class ChainWatch(Watch):
    """Also watches the latency of each antenna, and the times at which data are lost."""

    def __init__(self, mode, before):
        super().__init__(mode, before)
        self.latency = {}        # {antenna: (largest latency in s, time of this latency in s after the start)}
        self.apart = (0.0, 0.0)  # (largest difference in s between antennas' latencies, time of this difference)
        self.lost = {}           # {program: [time of the first loss, time of the last loss], in s after the start}

    def look(self):
        now, found = time.monotonic() - self.start, self.mode.metrics(self.mode.names)
        self.note(found)
        latencies = {LATENCY.match(name)[1]: value for name, value in found["fgpu"].items() if LATENCY.match(name)}
        for antenna, value in latencies.items():
            self.latency[antenna] = max(self.latency.get(antenna, (0.0, 0.0)), (value, now))
        self.apart = max(self.apart, (max(latencies.values()) - min(latencies.values()), now))
        for name in self.mode.names:
            if grown(self.before[name], found[name], LOSSES[kind_of(name)]):
                self.lost[name] = [self.lost.get(name, [now])[0], now]
        self.before = found


# ---- Shared by all modes ---------------------------------------------------------------------------------------------

class Mode:
    """A run at the rate 'rate', whose unit is UNIT.  'expected' is the result of expected_dump()."""
    UNIT, WATCH, SPARE_CPUS = "MS/s", Watch, 3
    SIMULATOR, LATE, REFUSED = "dsim", "dsim_time_error_s", "dsim_packets_failed_total"
    APART = ("dsim",)  # threads that share no CPU with the engine

    def __init__(self, args, pins, names, expected=None):
        self.args, self.pins, self.names, self.expected = args, pins, names, expected
        self.sync_time = int(time.time()) - 10
        self.net, self.port = 1 + os.getpid() % 200, 20000 + os.getpid() % 10000  # simultaneous runs differ
        self.ports = {name: free_port() for name in names}
        self.programs = {}

    @staticmethod
    def cases(args):
        """Returns the cases to measure, in order: [(options, words such as ' with 8192 channels')]."""
        return [(args, "")]

    @staticmethod
    def expected_dump(args, pins):
        return None

    def common(self, name):
        return {"time": {"sync_time": self.sync_time, "adc_sample_rate": self.adc_rate},
                "http": {"listen": f"127.0.0.1:{self.ports[name]}"}}

    def send(self, pinned, **more):
        return {"interface": "lo", "ttl": 1, "buffer": 16 << 20, "affinity": self.pins.of(pinned)} | more

    def recv(self, **more):
        return {"interface": "lo", "buffer": self.args.recv_buffer, "direct": self.args.direct} | more

    def device(self):
        return {"kind": self.args.device, "threads": self.args.device_threads}

    def program(self, directory, name, config):
        return name, [os.path.join(self.args.build, kind_of(name)), write_config(directory, name, config)]

    def counter(self, name, endpoints, step_samples, n_threads, cpus):
        """A receiver that counts heaps."""
        command = [os.path.join(self.args.build, "bench/count_heaps"), "--endpoints", endpoints, "--step", step_samples,
                   "--sync-time", self.sync_time, "--rate", self.adc_rate, "--interface", "lo", "--threads", n_threads,
                   "--buffer", self.args.recv_buffer, "--interval", POLL_S]
        command += ["--affinity", ",".join(map(str, cpus))] if cpus else []
        return name, [str(word) for word in command], None

    def last_count(self, name):
        """Returns the newest counts of a receiver of counter(), or None before the receiver prints its first line."""
        lines = self.programs[name].text().rsplit("\n", 2)
        return json.loads(lines[-2]) if len(lines) > 1 and lines[-2].startswith("{") else None

    def metrics(self, names):
        return {name: metrics(self.ports[name]) for name in names}

    def stage_of(self, name, metric):
        """If this metric of the program 'name' grows, a stage is too slow.  Returns this stage."""
        return name

    def judge(self, before, after, watch):
        """Returns [(stage, sentence)] about faults of the run.  'stage' is the probable cause of the fault."""
        why, simulator = [], self.SIMULATOR
        if watch.late_s > LATE_S:
            why.append((simulator, f"{simulator} sent up to {watch.late_s:.3f} s late"))
        if after.metrics[simulator][self.REFUSED] > 0:
            why.append((simulator, f"{simulator}'s packets were refused"))
        for name in self.names:
            if name == simulator:
                continue
            why += [(self.stage_of(name, metric), f"{metric} +{n:.0f}")
                    for metric, n in grown(before.metrics[name], after.metrics[name], LOSSES[kind_of(name)])]
            if kind_of(name) == "xbgpu" and not after.metrics[name]["xbgpu_device_ok"]:
                why.append((name, "the audit found a wrong sum"))
        return why + self.judge_output(before, after, watch)

    def title(self, result):
        """Returns the first columns of a run's line in the table."""
        return f"{result['rate'] / 1e6:8.1f}"

    def notes(self, result):
        """Returns the lines below the title."""
        return []

    def begin(self):
        """Opens the receivers, before the programs start."""

    def stop(self):
        """The run calls this method after the programs have ended."""


class WithF(Mode):
    """A mode with dsim and fgpu."""

    def __init__(self, args, pins, rate, names, expected=None):
        super().__init__(args, pins, names, expected)
        self.rate = self.adc_rate = round(rate * 1e6)
        self.period = args.period
        self.batch_samples = args.spectra_per_heap * 2 * args.channels
        window = N_TAPS * 2 * args.channels + self.MAX_DELAY_DIFF
        self.chunk_samples = args.chunk_samples or power_of_two(max(self.rate * CHUNK_S, window))
        self.n_buffers = 2 * (-(-self.chunk_samples // self.batch_samples) + 1)
        self.n_buffers += int(BUFFERS_S * self.rate / self.batch_samples)

    @staticmethod
    def add_options(parser, groups, dsim_threads):
        parser.add_argument("--groups", type=int, default=groups, help="multicast groups of each polarisation")
        parser.add_argument("--spectra-per-heap", type=int, default=256)
        parser.add_argument("--packet-payload", type=int, default=8192)
        parser.add_argument("--chunk-samples", type=int, default=0, help="chunk of fgpu; 0: chosen from the rate")
        parser.add_argument("--chunks", type=int, default=16)
        parser.add_argument("--period", type=int, default=1 << 20, help="samples after which dsim's signal repeats")
        parser.add_argument("--dsim-threads", type=int, default=dsim_threads, help="send threads of dsim")
        parser.add_argument("--send-threads", type=int, default=2, help="send threads of fgpu")

    def antennas(self):
        return [{"name": f"m{a:03}", "pol0": self.inputs[2 * a], "pol1": self.inputs[2 * a + 1]}
                for a in range(len(self.inputs) // 2)]

    def dsim(self, specification, capture=None, **digitiser):
        """Returns dsim's configuration.  With a 'capture', dsim writes one period to this file and sends nothing."""
        config = self.common("dsim") | {
            "digitiser": {"sample_bits": SAMPLE_BITS, "packet_samples": PACKET_SAMPLES, "period": self.period} | digitiser,
            "signals": {"specification": specification},
            "antennas": [a | {"digitiser_id": 2 * i} for i, a in enumerate(self.antennas())],
            "send": self.send("dsim", threads=self.args.dsim_threads)}
        if capture:
            duration = (self.period + 2 * PACKET_SAMPLES) / self.rate
            config["digitiser"] |= {"first_timestamp": 0, "duration": duration}
            config["send"] = {"pcap_file": str(capture)}
            del config["http"]
        return config

    def fgpu(self, recv, output, send):
        args, antennas = self.args, self.antennas()
        return self.common("fgpu") | {
            "device": self.device(),
            "recv": self.recv(sample_bits=SAMPLE_BITS, packet_samples=PACKET_SAMPLES, chunk_samples=self.chunk_samples,
                              max_delay_diff=self.MAX_DELAY_DIFF, chunks=args.chunks, affinity=self.pins.of("recv"), **recv),
            "antennas": [a | {"feng_id": i} for i, a in enumerate(antennas)],
            "outputs": [{"name": "wide", "channels": args.channels, "spectra_per_heap": args.spectra_per_heap, "taps": N_TAPS,
                         "gain": GAIN, "buffers": self.n_buffers} | output],
            "send": self.send("send", packet_payload=args.packet_payload, threads=args.send_threads,
                              array_size=len(antennas), **send)}

    def period_of_samples(self):
        """Returns the samples that dsim repeats, int [input][sample], from a capture that dsim writes."""
        with tempfile.TemporaryDirectory(prefix="realtime") as directory:
            capture = os.path.join(directory, "dsim.pcap")
            _, command = self.program(directory, "dsim", self.dsim(capture))
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode:
                raise SystemExit(f"dsim: {made.stderr[-800:]}")
            payload_bytes = PACKET_SAMPLES * SAMPLE_BITS // 8
            packed = [[] for _ in self.inputs]
            input_of = {endpoint: i for i, text in enumerate(self.inputs) for endpoint in harness.endpoints(text)}
            for endpoint, packet in harness.read_pcap(capture):
                if len(packet) > payload_bytes:
                    packed[input_of[endpoint]].append(np.frombuffer(packet[-payload_bytes:], np.uint8))
        samples = [fmodel.unpack(np.concatenate(p), SAMPLE_BITS)[:self.period] for p in packed]
        assert all(len(s) == self.period for s in samples), "dsim's capture is too short"
        return np.array(samples)


class Judge:
    """Judges dumps.  The first dump of a substream may differ from 'expected' by 'tolerance' times the largest
    expected value.  All later dumps must equal the first dump."""

    def __init__(self, expected, tolerance):
        self.expected, self.tolerance, self.first, self.off = expected, tolerance, {}, {}

    def __call__(self, channel, found):
        found = found.view("<i4").reshape(-1, *self.expected.shape[1:])
        if channel in self.first and np.array_equal(found, self.first[channel]):
            return "exact"
        if xmodel.is_missing(found).any():
            return "flagged"
        if channel in self.first:
            return "wrong"
        off = np.abs(found - self.expected[channel:channel + len(found)]).max() / np.abs(self.expected).max()
        self.off[channel] = off
        if off > self.tolerance:
            return "wrong"
        self.first[channel] = found.copy()
        return "exact"


class WithDumps(Mode):
    """A mode with one xbgpu or more, whose dumps are judged."""

    def begin(self):
        self.judge_of_dumps = Judge(self.expected, self.TOLERANCE)
        self.receiver = Dumps(self.dumps, self.judge_of_dumps)

    def stop(self):
        self.receiver.stop()

    def xbgpu(self, name, dumps, affinity, send, **recv):
        return self.common(name) | {
            "device": self.device(), "recv": self.recv(affinity=affinity, **recv),
            "outputs": [{"name": "bcp", "integration_batches": self.args.integration, "destination": dumps,
                         "send_enabled": True}],
            "send": send}

    def wait_for_output(self):
        deadline = time.monotonic() + 20 + 4 * self.dump_s
        while len(self.judge_of_dumps.first) < len(self.dumps):
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(self.judge_of_dumps.first)} of {len(self.dumps)} substreams sent a good "
                                   f"dump: {self.counts()}, off by {self.judge_of_dumps.off}")
            time.sleep(POLL_S)

    def counts(self):
        return self.receiver.counts()

    def judge_output(self, before, after, watch):
        seconds, why = after.time - before.time, []
        for name in ("wrong", "flagged", "incomplete"):
            if after.counts[name] > before.counts[name]:
                why.append(("dumps", f"{after.counts[name] - before.counts[name]} {name}"))
        n, expected = after.counts["exact"] - before.counts["exact"], len(self.dumps) * seconds / self.dump_s
        if n < max(0.97 * expected - 2 * len(self.dumps), min(expected / 2, len(self.dumps))):
            why.append(("dumps", f"{n} dumps came out in {seconds:.2f} s instead of {expected:.0f}"))
        return why

    def results(self, before, after, watch):
        return {"dumps": {name: after.counts[name] - before.counts[name] for name in after.counts}}

    def summary(self, result):
        return f"  {result['dumps']['exact']} dumps exact" if "dumps" in result else ""


def checked(sums):
    assert np.abs(sums).max() < 2**31, "a dump would saturate: choose a shorter --integration"
    return sums


# ---- f: dsim, fgpu and a receiver that counts ------------------------------------------------------------------------

class F(WithF):
    """dsim sends two polarisations of 10-bit samples.  A receiver counts every heap of fgpu's output.  With
    --satellites, fgpu also tracks satellites.  Every integration must arrive with locked tracking.  The sums of
    random integrations are compared with sums that numpy computes."""
    RATES, WATCH, APART, MAX_DELAY_DIFF = (900, 3000, 1712), LatencyWatch, ("dsim", "count"), 65536
    COLUMNS = f"{'channels':>7} {'MS/s':>9}"

    def __init__(self, args, pins, rate, expected=None):
        super().__init__(args, pins, rate, ["dsim", "fgpu"], expected)
        self.inputs = [f"239.{100 + p}.{self.net}.0+{args.groups - 1}:{self.port}" for p in range(N_POLS)]
        self.outputs = f"239.110.{self.net}.0+{args.destinations - 1}:{self.port}"
        self.sky = Sky(self.rate, args.satellites) if args.satellites else None
        if self.sky:
            self.period, self.records_endpoint = self.sky.period, f"239.111.{self.net}.0:{self.port}"
        self.prefix, self.order = f"{args.channels}-{self.rate / 1e6:.0f}", ("dsim", "fgpu", "count")

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--channels", type=int, nargs="+", default=[8192, 32768])
        parser.add_argument("--destinations", type=int, default=16, help="of the output")
        parser.add_argument("--count-threads", type=int, default=2)
        parser.add_argument("--satellites", type=int, default=0,
                            help="number of satellites that fgpu also tracks, in one narrow band; needs --rate")
        super().add_options(parser, 8, 2)

    @staticmethod
    def check_options(parser, args):
        if args.satellites and (not args.rate or round(args.rate * 1e6) % GRID_HZ):
            parser.error(f"--satellites needs a --rate that is a multiple of {GRID_HZ / 1e6} MS/s")

    @staticmethod
    def threads(args):
        return {"dsim": args.dsim_threads, "recv": 2, "send": args.send_threads, "count": args.count_threads}

    @staticmethod
    def cases(args):
        return [(type(args)(**vars(args) | {"channels": n}), f" with {n} channels") for n in args.channels]

    @staticmethod
    def describe(args):
        return []

    def commands(self, directory):
        yield self.counter("count", self.outputs, self.batch_samples, self.args.count_threads, self.pins.of("count"))
        fgpu = self.fgpu({}, {"destinations": self.outputs}, {})
        if self.sky:
            fgpu |= self.sky.sections(self.records_endpoint)
        yield *self.program(directory, "fgpu", fgpu), self.pins.engine
        yield *self.program(directory, "dsim", self.dsim()), None

    def dsim(self, capture=None):
        if self.sky:
            return super().dsim(self.sky.specification(), capture, dither_seed=1)
        return super().dsim("wgn(0.05);", capture)  # an rms of 26

    @classmethod
    def expected_dump(cls, args, pins):
        """Returns the baseband of the satellites' signals, or None without satellites."""
        mode = cls(type(args)(**vars(args) | {"channels": args.channels[0]}), pins, args.rate or 1)
        return mode.sky.baseband(mode.period_of_samples()) if mode.sky else None

    def begin(self):
        self.records = Records(self.records_endpoint) if self.sky else None

    def stop(self):
        if self.records:
            self.records.stop()

    def last_count(self):
        return super().last_count("count")

    def counts(self):
        return self.last_count() | ({"gnss_heaps": self.records.count()} if self.sky else {})

    def wait_for_output(self):
        deadline = time.monotonic() + 10 + 4 * self.batch_samples / self.rate + (100 if self.sky else 0)
        while time.monotonic() < deadline:
            count = self.last_count()
            if count and count["heaps"] > 0 and (not self.sky or self.are_tracked()):
                return
            time.sleep(POLL_S)
        raise RuntimeError("nothing came out")

    def are_tracked(self):
        """Returns true if each satellite was locked in its latest integration."""
        n = self.records.count()
        latest = {record["prn"]: record["flags"] for record in self.records.between(n - 10, n)}
        return len(latest) == self.sky.n and all(flags & LOCKED == LOCKED for flags in latest.values())

    def stage_of(self, name, metric):
        if "no_chunk" in metric:
            return "fgpu device"  # the device did not return chunks in time
        if "dropped" in metric or "failed" in metric:
            return "fgpu send"  # the send threads did not return buffers in time, or the device was late
        return "fgpu recv" if metric.startswith("fgpu_input") else "fgpu"

    def judge_output(self, before, after, watch):
        why = [("count", f"counted {name} +{after.counts[name] - before.counts[name]}")
               for name in COUNTS if after.counts[name] > before.counts[name]]
        count_s = after.counts["time"] - before.counts["time"]
        expected = self.rate * count_s / self.batch_samples * self.args.destinations
        got = after.counts["heaps"] - before.counts["heaps"]
        if got < 0.97 * expected - 2 * self.args.destinations:
            why.append(("output", f"{got} heaps came out in {count_s:.2f} s instead of {expected:.0f}"))
        latencies = [s for s in watch.latencies if s > 0]
        half = len(latencies) // 2
        growth = statistics.median(latencies[half:]) - statistics.median(latencies[:half]) if half else 0
        if growth > LATE_S + self.batch_samples / self.rate:
            why.append(("output", f"the output fell behind by {growth:.3f} s"))
        if self.sky:
            found, self.errors = judge_sums(self.sky, self.expected,
                                            self.records.between(before.counts["gnss_heaps"], after.counts["gnss_heaps"]))
            why += [("gnss", sentence) for sentence in found]
        return why

    def results(self, before, after, watch):
        latencies = [s for s in watch.latencies if s > 0]
        return {"channels": self.args.channels, "fgpu_start_s": self.programs["fgpu"].start_s,
                "latency_s": {"first": latencies[0], "max": max(latencies)} if latencies else None,
                "chunk_samples": self.chunk_samples,
                "output_gbit_per_s": 8e-9 * (after.counts["bytes"] - before.counts["bytes"]) /
                (after.counts["time"] - before.counts["time"]), "counts": after.counts} | (
                    {"sums_off": max(self.errors.values(), default=None)} if self.sky else {})

    def title(self, result):
        return f"{self.args.channels:7} {result['rate'] / 1e6:9.1f}"

    def summary(self, result):
        latency = f"  latency {result['latency_s']['max']:.3f} s" if result.get("latency_s") else ""
        sums = f", {self.sky.n} satellites: sums within {result['sums_off']:.1e} of numpy's" if result.get("sums_off") else ""
        return latency + sums

    def headline(self, result):
        return (f"{self.args.channels} channels at {result['rate'] / 1e6:.1f} MS/s",
                f"output {result['output_gbit_per_s']:.2f} Gb/s", f", fgpu ready after {result['fgpu_start_s']:.2f} s")


# ---- x: fsim, xbgpu and a check of every dump ------------------------------------------------------------------------

class X(WithDumps):
    """All F-engines of an array send one substream of random voltages.  The voltages cover the whole range and repeat
    after --period heaps.  So numpy computes every complete dump beforehand.  Each dump is compared bit for bit."""
    UNIT, RATES, TOLERANCE = "Gb/s", (20, 100, 60), 0
    SIMULATOR, LATE, REFUSED, APART = "fsim", "fsim_late_seconds", "fsim_output_failed_packets_total", ("fsim",)
    COLUMNS = f"{'Gb/s':>7}"

    def __init__(self, args, pins, rate, expected=None):
        super().__init__(args, pins, ["fsim", "xbgpu"], expected)
        self.rate, self.voltages = rate, f"239.120.{self.net}.0:{self.port}"
        self.dumps = [f"239.121.{self.net}.0:{self.port}"]
        spectrum_bytes = args.antennas * args.channels_per_substream * 2 * args.sample_bits // 4
        self.adc_rate = round(rate * 1e9 / 8 / spectrum_bytes * 2 * args.channels)
        self.dump_s = args.spectra_per_heap * 2 * args.channels / self.adc_rate * args.integration
        batch_samples = args.spectra_per_heap * 2 * args.channels
        self.counted = {}  # {receiver: (endpoints, number of ADC samples between the starts of successive heaps)}
        if args.beams:
            self.counted["beams"] = f"239.122.{self.net}.0+{args.beams - 1}:{self.port}", batch_samples
        if args.detected:
            self.counted["detected"] = f"239.123.{self.net}.0:{self.port}", WINDOWS * WINDOW_SPECTRA * 2 * args.channels
        self.prefix, self.order = f"{rate:.1f}", ("fsim", "xbgpu", *self.counted)

    @staticmethod
    def add_options(parser):
        parser.add_argument("--beams", type=int, default=0, help="number of voltage beams")
        parser.add_argument("--detected", type=int, default=0, help="number of detected beams")
        parser.add_argument("--antennas", type=int, default=80)
        parser.add_argument("--channels", type=int, default=8192)
        parser.add_argument("--channels-per-substream", type=int, default=128)
        parser.add_argument("--spectra-per-heap", type=int, default=128)
        parser.add_argument("--sample-bits", type=int, default=8, choices=[4, 8])
        parser.add_argument("--sample-encoding", default="twos_complement", choices=["twos_complement", "offset"])
        parser.add_argument("--packet-payload", type=int, default=8192)
        parser.add_argument("--batches-per-chunk", type=int, default=32)
        parser.add_argument("--window", type=int, default=2, help="chunks")
        parser.add_argument("--chunks", type=int, default=12, help="chunks of each receive thread")
        parser.add_argument("--integration", type=int, default=512, help="batches")
        parser.add_argument("--period", type=int, default=4,
                            help="batches after which the voltages repeat; divides the integration")
        parser.add_argument("--fsim-threads", type=int, default=4)
        parser.add_argument("--recv-threads", type=int, default=4)

    @staticmethod
    def check_options(parser, args):
        if args.integration % args.period:
            parser.error("--period must divide --integration")

    @staticmethod
    def threads(args):
        return {"fsim": args.fsim_threads, "recv": args.recv_threads, "send": 1,
                "count": (args.beams > 0) + (args.detected > 0)}

    @staticmethod
    def describe(args):
        return [f"{args.antennas} antennas, {args.channels_per_substream} of {args.channels} channels, {args.sample_bits} bits, "
                f"{args.beams} voltage beams, {args.detected} detected beams"]

    def stream(self):
        return {name: getattr(self.args, name) for name in
                ("antennas", "channels", "channels_per_substream", "spectra_per_heap", "sample_bits", "sample_encoding")
                } | {"samples_between_spectra": 2 * self.args.channels}

    def fsim(self):
        return self.common("fsim") | {
            "stream": self.stream() | {"destinations": self.voltages},
            "signal": {"kind": "uniform", "period": self.args.period},
            "send": self.send("fsim", packet_payload=self.args.packet_payload, threads=self.args.fsim_threads)}

    def xbgpu(self):
        args = self.args
        return super().xbgpu("xbgpu", self.dumps[0], self.pins.of("recv"), self.send("send"), sources=self.voltages,
                             batches_per_chunk=args.batches_per_chunk, window=args.window, chunks=args.chunks,
                             threads=args.recv_threads, **self.stream())

    def beams(self, directory):
        """Returns the configuration's sections about beams.  The voltages cover the full range.  A calibration
        prevents saturation of the beams."""
        args, sections = self.args, {}
        calibration = os.path.join(directory, "calibration")
        with open(calibration, "w") as file:
            file.writelines(f"{i} * {CALIBRATION} 0\n" for i in range(N_POLS * args.antennas))
        if args.beams:
            address = self.counted["beams"][0].partition("+")[0].rpartition(".")[0]
            sections["beams"] = [{"name": f"beam{b}", "pol": b % N_POLS, "destination": f"{address}.{b}:{self.port}"}
                                 for b in range(args.beams)]
        if args.detected:
            sections["detected"] = [{"name": "detected", "beams": args.detected, "products": "I", "spectra": WINDOW_SPECTRA,
                                     "windows": WINDOWS, "destination": self.counted["detected"][0]}]
        return sections | ({"steering": {"calibration": calibration}} if sections else {})

    def counts(self):
        """Returns the numbers of dumps, of beam heaps that arrived, and of beam heaps that were lost."""
        counts = super().counts()
        for name in self.counted:
            found = self.last_count(name) or {}
            counts |= {f"{name} {key}": found.get(key, 0) for key in ("time", "heaps", *COUNTS)}
        return counts

    def judge_output(self, before, after, watch):
        why = super().judge_output(before, after, watch)
        for name, (endpoints, step_samples) in self.counted.items():
            n = {key: after.counts[f"{name} {key}"] - before.counts[f"{name} {key}"] for key in ("time", "heaps", *COUNTS)}
            why += [(name, f"counted {key} +{n[key]}") for key in COUNTS if n[key] > 0]
            n_endpoints = len(harness.endpoints(endpoints))
            expected = self.adc_rate * n["time"] / step_samples * n_endpoints
            if n["heaps"] < 0.97 * expected - 2 * n_endpoints:
                why.append((name, f"{n['heaps']} heaps came out in {n['time']:.2f} s instead of {expected:.0f}"))
        return why

    def commands(self, directory):
        for i, (name, (endpoints, step_samples)) in enumerate(self.counted.items()):
            yield self.counter(name, endpoints, step_samples, 1, self.pins.of("count")[i:i + 1])
        yield *self.program(directory, "xbgpu", self.xbgpu() | self.beams(directory)), self.pins.engine
        yield *self.program(directory, "fsim", self.fsim()), None

    @staticmethod
    def expected_dump(args, pins):
        """Returns the value that every complete dump must have: int64 [channel][4 * baseline + product][re, im]."""
        config = {"stream": {"antennas": args.antennas, "channels_per_substream": args.channels_per_substream,
                             "spectra_per_heap": args.spectra_per_heap, "sample_bits": args.sample_bits},
                  "signal": {"kind": "uniform", "period": args.period}, "n_substreams": 1}
        present = np.ones((1, args.antennas), bool)
        sums = sum(xmodel.correlate(fsimmodel.values(config, batch, 1).astype(np.int8), present)
                   for batch in range(args.period))
        return checked(sums * (args.integration // args.period))

    def results(self, before, after, watch):
        args, seconds = self.args, after.time - before.time
        heap_bytes = args.channels_per_substream * args.spectra_per_heap * args.sample_bits // 2
        return super().results(before, after, watch) | {
            "sent_gbit_per_s": 8e-9 * heap_bytes * after.grown(before, "fsim", "fsim_output_heaps_total") / seconds,
            "packets_per_s": after.grown(before, "fsim", "fsim_output_packets_total") / seconds}

    def title(self, result):
        return f"{result['rate']:7.2f}"

    def headline(self, result):
        return (f"{result['sent_gbit_per_s']:.2f} Gb/s of voltages",
                f"{result['packets_per_s']:.0f} packets/s, {result['dumps']['exact']} dumps exact"
                + "".join(f", {result['dumps'][f'{name} heaps']} heaps of {name}" for name in self.counted), "")


# ---- chain: dsim, fgpu, an xbgpu for each substream, and a check of every dump ---------------------------------------

class Chain(WithF, WithDumps):
    """dsim sends 10-bit samples of both polarisations of every antenna: noise that all antennas share, and noise that
    only one antenna has.  The noise repeats after --period samples, and no program dithers.  So all dumps have the
    same bits.  Beforehand, dsim writes its samples to a capture, from which numpy computes the expected dump.  The
    first dump may differ from the expected dump by a hundredth of the largest expected value, because float32 and
    float64 may round a voltage differently.  All other dumps must equal the first dump.

    The F-engine sends the whole band in --substreams substreams.  Each substream has its own xbgpu.  So all sent
    voltages are received and correlated.  In an array, each xbgpu would have its own host."""
    RATES, WATCH, SPARE_CPUS, MAX_DELAY_DIFF, TOLERANCE = (1000, 2400, 1712), ChainWatch, 2, 0, 0.01
    COLUMNS = f"{'MS/s':>8}"

    def __init__(self, args, pins, rate, expected=None):
        xbgpus = [f"xbgpu{s}" for s in range(args.substreams)]
        super().__init__(args, pins, rate, ["fgpu", "dsim", *xbgpus], expected)
        self.inputs = [f"239.{100 + i // 2}.{self.net}.{(i % 2) * args.groups}+{args.groups - 1}:{self.port}"
                       for i in range(N_POLS * args.antennas)]
        self.voltages = [f"239.160.{self.net}.{s}:{self.port}" for s in range(args.substreams)]
        self.dumps = [f"239.161.{self.net}.{s}:{self.port}" for s in range(args.substreams)]
        self.x_batches = args.batches_per_chunk or power_of_two(max(1, self.rate * X_CHUNK_S / self.batch_samples))
        # The earliest antenna is still filling the newest chunk of the window.  So this chunk adds no waiting time.
        self.x_window = args.x_window or min(X_WINDOW_MAX, 1 + -(-self.n_buffers // self.x_batches))
        self.x_wait_s = (self.x_window - 1) * self.x_batches * self.batch_samples / self.rate
        self.dump_s = self.batch_samples * args.integration / self.rate
        self.prefix, self.order = f"{self.rate / 1e6:.0f}", ["dsim", "fgpu", *xbgpus]

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--antennas", type=int, default=2)
        parser.add_argument("--channels", type=int, default=8192)
        parser.add_argument("--substreams", type=int, default=4, help="number of substreams and X-engines")
        parser.add_argument("--integration", type=int, default=256, help="batches")
        parser.add_argument("--batches-per-chunk", type=int, default=0, help="chunk of xbgpu; 0: chosen from the rate")
        parser.add_argument("--recv-threads", type=int, default=4, help="receive threads of fgpu")
        parser.add_argument("--rate-factor", type=float, default=1.1, help="send.rate_factor of fgpu")
        parser.add_argument("--x-threads", type=int, default=1, help="receive threads of each X-engine")
        parser.add_argument("--x-cpus", type=int, default=0,
                            help="CPUs that the receive threads of all X-engines share; 0: one for each thread")
        parser.add_argument("--x-window", type=int, default=0,
                            help="window in chunks; 0: as long as the data in fgpu's buffers")
        super().add_options(parser, 1, 4)

    @staticmethod
    def check_options(parser, args):
        if args.channels % args.substreams or args.period % (2 * args.channels) or args.period % PACKET_SAMPLES or \
                args.integration * args.spectra_per_heap * 2 * args.channels % args.period:
            parser.error("--substreams must divide --channels; a spectrum and a packet must each divide --period; "
                         "--period must divide the integration")

    @staticmethod
    def threads(args):
        return {"dsim": args.dsim_threads, "recv": args.recv_threads, "send": args.send_threads,
                "xrecv": args.x_cpus or args.x_threads * args.substreams}

    @staticmethod
    def describe(args):
        return [f"{args.antennas} antennas, {args.channels} channels in {args.substreams} substreams"]

    def dsim(self, capture=None):
        """The signal of each polarisation has an rms of 26 (full scale 511).  Half of the power is common to all
        antennas."""
        own = " ".join(f"sky + wgn(0.035, {i + 1});" for i in range(len(self.inputs)))
        return super().dsim(f"sky = wgn(0.035, 100); {own}", capture, dither_seed=1)

    def fgpu(self):
        return super().fgpu({"threads": self.args.recv_threads},
                            {"dither": "none", "destinations": ",".join(self.voltages)},
                            {"rate_factor": self.args.rate_factor})

    def xbgpu(self, substream):
        args, n_chan = self.args, self.args.channels // self.args.substreams
        cpus = self.pins.of("xrecv") * args.x_threads * args.substreams  # if CPUs are scarce, threads share CPUs
        send = {"interface": "lo", "ttl": 1, "buffer": 16 << 20}
        return super().xbgpu(f"xbgpu{substream}", self.dumps[substream],
                             cpus[substream * args.x_threads:(substream + 1) * args.x_threads], send,
                             sources=self.voltages[substream], antennas=args.antennas, channels=args.channels,
                             channels_per_substream=n_chan, channel_offset=substream * n_chan,
                             spectra_per_heap=args.spectra_per_heap, samples_between_spectra=2 * args.channels,
                             batches_per_chunk=self.x_batches, window=self.x_window,
                             chunks=max(args.chunks, 2 * self.x_window + 3), threads=args.x_threads)

    def commands(self, directory):
        for s in range(self.args.substreams):
            yield *self.program(directory, f"xbgpu{s}", self.xbgpu(s)), self.pins.but("dsim", "recv", "send")
        yield *self.program(directory, "fgpu", self.fgpu()), self.pins.but("dsim", "xrecv", "send")
        yield *self.program(directory, "dsim", self.dsim()), None

    @classmethod
    def expected_dump(cls, args, pins):
        """Returns the expected dump: int64 [channel][4 * baseline + product][re, im].  numpy computes the spectra in
        float64."""
        samples = cls(args, pins, 1).period_of_samples()
        output = fmodel.Output(args.channels, args.spectra_per_heap, taps=N_TAPS, gain=GAIN)
        reach = np.resize(np.arange(args.period), args.period + output.window - output.spacing)
        voltages = np.array([fmodel.quantise(fmodel.spectra(s[reach], output), output.limit) for s in samples])
        n_spectra = voltages.shape[1]  # period of the voltages [input][spectrum][channel][re, im]
        voltages = voltages.reshape(args.antennas, N_POLS, n_spectra, args.channels, 2).transpose(0, 3, 2, 1, 4)
        sums = xmodel.correlate(voltages[np.newaxis], np.ones((1, args.antennas), bool))
        return checked(sums * (args.integration * args.spectra_per_heap // n_spectra))

    def results(self, before, after, watch):
        samples, voltages = (after.grown(before, "fgpu", name) / (after.time - before.time)
                             for name in ("fgpu_input_bytes_total", "fgpu_output_bytes_total"))
        return super().results(before, after, watch) | {
            "samples_gbit_per_s": 8e-9 * samples, "voltages_gbit_per_s": 8e-9 * voltages,
            "memory": host_traffic.chain(samples, voltages, self.args.direct), "off": max(self.judge_of_dumps.off.values()),
            "latency": watch.latency, "apart": watch.apart, "lost": watch.lost, "x_wait_s": self.x_wait_s}

    def summary(self, result):
        return (f"  {cores_used(result)['all']:.1f} cores" if "dumps" in result else "") + super().summary(result)

    def notes(self, result):
        lines = [f"{program} lost from {first:.2f} to {last:.2f} s" for program, (first, last) in result.get("lost", {}).items()]
        if "latency" in result:
            late = ", ".join(f"{antenna} {1e3 * most:.1f} ms (at {when:.1f} s)"
                             for antenna, (most, when) in result["latency"].items())
            apart, when = result["apart"]
            lines.append(f"largest latencies: {late}; antennas differ by up to {1e3 * apart:.1f} ms (at {when:.1f} s), "
                         f"X-engines wait {1e3 * result['x_wait_s']:.0f} ms")
        return lines

    def headline(self, result):
        return (f"{result['rate'] / 1e6:.1f} MS/s",
                f"{result['samples_gbit_per_s']:.2f} Gb/s of samples, {result['voltages_gbit_per_s']:.2f} Gb/s of voltages, "
                f"{result['dumps']['exact']} dumps exact (the first within {result['off']:.1e} of numpy's)", "")


MODES = {"f": F, "x": X, "chain": Chain}


def parse_args(argv=None, description=None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="mode", required=True)
    for name, mode in MODES.items():
        command = commands.add_parser(name, description=mode.__doc__)
        mode.add_options(command)
        add_search_options(command, *mode.RATES, mode.UNIT)
    args = parser.parse_args(argv)
    MODES[args.mode].check_options(commands.choices[args.mode], args)
    return args
