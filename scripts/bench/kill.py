#!/usr/bin/env python3
"""kill: measures the time from SIGKILL of an engine to its next good heap, under a supervisor that acts as systemd does:

    dsim -> fgpu -> a receiver: complete heaps of voltages
    fsim -> xbgpu -> a receiver: complete dumps without a flag

  .venv/bin/python scripts/bench/kill.py                               20 kills of each engine on the CPU: 2 minutes
  .venv/bin/python scripts/bench/kill.py --device cuda --kills 100

The supervisor waits RestartSec, runs --check-config, and then starts the engine (systemd/engine@.service.in).  Each kill
strikes at a random time.  A good heap holds only samples from after the kill, so the killed process cannot have sent
it.  The kernel cache is warm: the first start compiles the kernels.  The program ends with exit code 1 if a kill took
longer than the goal.
Needs the programs (make), numpy, PyYAML and spead2.
"""
import argparse
import logging
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests/models", "tests/system")]
import harness  # noqa: E402
import xmodel  # noqa: E402

UNIT = harness.ROOT / "systemd" / "engine@.service.in"
GOAL_S = {"cpu": 3, "cuda": 4}
DUMP_S = 0.5

# On the CPU, the engines have the sizes of the demonstration.  On a GPU, they have the sizes of a large array, at rates
# that loopback can carry.
SIZES = {
    "fgpu": {"cpu": {"antennas": 2, "channels": 1024, "substreams": 2, "spectra": 32, "rate_hz": 1e6},
             "cuda": {"antennas": 1, "channels": 32768, "substreams": 64, "spectra": 32, "rate_hz": 64e6}},
    "xbgpu": {"cpu": {"antennas": 4, "channels": 1024, "substreams": 2, "spectra": 32, "rate_hz": 1e6},
              "cuda": {"antennas": 64, "channels": 32768, "substreams": 64, "spectra": 256, "rate_hz": 214e6}},
}
N_TAPS = 16
PACKET_SAMPLES = 4096


def restart_s():
    """Returns RestartSec of the engines' systemd unit."""
    return int(re.search(r"^RestartSec=(\d+)ms$", UNIT.read_text(), re.M)[1]) / 1000


def power_of_two(n):
    return 1 << (int(n) - 1).bit_length()


class Bench:
    """An engine, its simulator, and the receiver of its last substream."""

    def __init__(self, program, device, work):
        self.program, self.device, self.work = program, device, work
        self.size = SIZES[program][device]
        self.common = {"time": {"sync_time": int(time.time()) - 10, "adc_sample_rate": self.size["rate_hz"]},
                       "send": {"interface": "lo", "ttl": 0}}
        self.inputs = [harness.groups() for _ in range(2 * self.size["antennas"])]
        self.voltages = harness.groups(self.size["substreams"])
        self.output = self.voltages if program == "fgpu" else harness.groups()
        self.engine, self.n_starts = None, 0
        self.config = getattr(self, program)()

    def stream(self):
        """Returns the keys that describe the voltages to fsim and to xbgpu."""
        width = self.size["channels"] // self.size["substreams"]
        return {"antennas": self.size["antennas"], "channels": self.size["channels"], "channels_per_substream": width,
                "spectra_per_heap": self.size["spectra"], "samples_between_spectra": 2 * self.size["channels"]}

    def recv(self):
        return {"interface": "lo", "buffer": (4 if self.device == "cpu" else 64) << 20}

    def antennas(self):
        return [{"name": f"m{a:03}", "pol0": self.inputs[2 * a], "pol1": self.inputs[2 * a + 1]}
                for a in range(self.size["antennas"])]

    def dsim(self):
        signals = "".join(f"wgn(0.1, {seed}); " for seed in range(1, 2 * self.size["antennas"] + 1))
        return self.common | {
            "digitiser": {"sample_bits": 10, "packet_samples": PACKET_SAMPLES, "period": 1 << 20},
            "signals": {"specification": signals},
            "antennas": [antenna | {"digitiser_id": 2 * a} for a, antenna in enumerate(self.antennas())]}

    def fsim(self):
        return self.common | {"stream": self.stream() | {"destinations": last(self.voltages)}, "signal": {"kind": "noise"}}

    def fgpu(self):
        window = N_TAPS * 2 * self.size["channels"]
        return self.common | {
            "device": {"kind": self.device},
            "recv": self.recv() | {"sample_bits": 10, "packet_samples": PACKET_SAMPLES, "max_delay_diff": 0,
                                   "chunk_samples": power_of_two(max(window, 0.033 * self.size["rate_hz"]))},
            "antennas": [antenna | {"feng_id": a} for a, antenna in enumerate(self.antennas())],
            "outputs": [{"kind": "wideband", "name": "wide", "channels": self.size["channels"], "taps": N_TAPS,
                         "spectra_per_heap": self.size["spectra"], "destinations": self.voltages}],
            "send": self.common["send"] | {"array_size": self.size["antennas"]}}

    def xbgpu(self):
        return self.common | {
            "device": {"kind": self.device},
            "recv": self.recv() | self.stream() | {"sources": last(self.voltages), "channel_offset": 0,
                                                   "batches_per_chunk": 2},
            "outputs": [{"kind": "correlate", "name": "vis", "integration_time": DUMP_S, "destination": self.output,
                         "send_enabled": True}]}

    def variables(self):
        """Returns the environment variables that systemd sets."""
        found = {}
        for name in ("STATE", "CACHE"):
            directory = self.work / name.lower()
            directory.mkdir(mode=0o700, exist_ok=True)
            found[f"{name}_DIRECTORY"] = str(directory)
        return found

    def start(self):
        self.n_starts += 1
        name = f"{self.program}.{self.n_starts}"
        self.engine = harness.Daemon(self.program, self.config, self.work, name, variables=self.variables())

    def restart(self):
        """Starts the killed engine as systemd does."""
        path = self.work / f"{self.program}.{self.n_starts}.yaml"
        self.engine.kill()
        time.sleep(restart_s())
        subprocess.run([harness.BUILD / self.program, "--check-config", path], env=harness.environment_of_programs(),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.start()

    def wait_good(self, receiver, after_s):
        """Waits for the first good heap with data from after the UNIX time 'after_s'.  Returns its time of arrival
        (monotonic)."""
        first = (after_s - self.common["time"]["sync_time"]) * self.size["rate_hz"]
        arrivals = []

        def look(heaps):
            for heap in heaps:
                if heap.kind == "data" and heap.items["timestamp"] >= first and is_good(heap):
                    arrivals.append(heap.arrival_s)
                    break
            heaps.clear()
            return arrivals

        receiver.wait(look, f"a good heap of {self.engine.name}")
        return arrivals[0]

    def kill(self, receiver):
        """Returns the seconds from the kill to (the new process, READY, its first good heap)."""
        at, at_unix = time.monotonic(), time.time()
        self.engine.process.send_signal(signal.SIGKILL)
        self.engine.process.wait()
        self.restart()
        started = time.monotonic()
        self.engine.wait_ready()
        ready = time.monotonic()
        return started - at, ready - at, self.wait_good(receiver, at_unix) - at

    def run(self, n_kills, rng):
        """Returns a row (see kill()) for each kill."""
        simulator = "dsim" if self.program == "fgpu" else "fsim"
        rows = []
        with harness.Receiver(last(self.output), may_lose=True) as receiver:
            feed = harness.Daemon(simulator, getattr(self, simulator)(), self.work, simulator)
            try:
                feed.wait_ready()
                self.start()
                self.engine.wait_ready()
                self.wait_good(receiver, 0)
                for _ in range(n_kills):
                    time.sleep(rng.uniform(0, 2 * DUMP_S))
                    rows.append(self.kill(receiver))
            finally:
                feed.kill()
                if self.engine:
                    self.engine.kill()
        return rows


def last(destinations):
    """Returns the last of several destinations."""
    host, port = harness.endpoints(destinations)[-1]
    return f"{host}:{port}"


def is_good(heap):
    """A heap of voltages has no flags.  The receiver passes on only complete heaps."""
    return "xeng_raw" not in heap.items or not xmodel.is_missing(heap.items["xeng_raw"]).any()


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--device", choices=GOAL_S, default="cpu")
    parser.add_argument("--programs", nargs="+", choices=list(SIZES), default=list(SIZES), metavar="PROGRAM")
    parser.add_argument("--kills", type=int, default=20, help="kills of each program (%(default)d)")
    parser.add_argument("--seed", type=int, default=None, help="of the times of the kills")
    args = parser.parse_args()
    logging.getLogger("spead2").addHandler(logging.NullHandler())  # each kill leaves incomplete heaps
    seed = args.seed if args.seed is not None else int(time.time())
    rng = random.Random(seed)
    print(f"{args.device}, {len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}, seed {seed}; "
          f"{args.kills} kills, dumps of {DUMP_S} s; seconds from the kill, medians and the worst\n\n"
          "| program | new process | READY | first good heap | worst | goal |\n|---|---:|---:|---:|---:|---:|", flush=True)
    is_late = False
    for program in args.programs:
        with tempfile.TemporaryDirectory(prefix="kill-") as work:
            columns = list(zip(*Bench(program, args.device, Path(work)).run(args.kills, rng)))
        median = [f"{statistics.median(column):.2f}" for column in columns]
        worst = max(columns[-1])
        print(f"| {program} | {' | '.join(median)} | {worst:.2f} | {GOAL_S[args.device]} |", flush=True)
        is_late |= worst > GOAL_S[args.device]
    return is_late


if __name__ == "__main__":
    sys.exit(main())
