#!/usr/bin/env python3
"""hostile: measures the effect of forged digitiser packets on the demonstration's array, on the loopback interface:

    dsim -> fgpu0, fgpu1 -> xbgpu0, xbgpu1 -> visrec;    this program sends forged packets to one input of fgpu0

  .venv/bin/python scripts/bench/hostile.py                        three runs of each case, a minute each: half an hour
  .venv/bin/python scripts/bench/hostile.py --seconds 10 --runs 1

Cases: "none": no forged packets.  "far": ten bursts a second of 8 heaps, 2^32 samples ahead of the true data.  "near":
20 heaps a second, 1.9 chunks ahead of the true data.  The cases take turns, so a change of the host's load affects
all cases.  Each run starts its own array.

A dump is complete if no value of the dump is flagged in the recorder's file.  A dump is absent if the file has a gap
in its place.  "F" marks counts of both F-engines, "X" counts of both X-engines, and "V" counts of the recorder.  If
the rate of the forged packets was wrong by more than 5 %, the program exits with code 1.
Needs the programs (make), numpy, h5py, PyYAML and spead2.
On another machine, from `make gpu-pack`: scripts/gpu exec python3 scripts/bench/hostile.py
"""
import argparse
import os
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "system"))
import demo_array  # noqa: E402
import harness  # noqa: E402

HEAP_SAMPLES = 4096
HEAP_BYTES = HEAP_SAMPLES * 10 // 8
FAR_SAMPLES = 1 << 32
SETTLED_DUMPS = 4  # number of recorded dumps before a measurement begins
RATE_TOLERANCE = 0.05
STARTED = ("visrec", *demo_array.ENGINES, "dsim")

# {case: (heaps in a burst, bursts a second, function)}.  The function gets the number of samples in a chunk.  The
# function returns the number of samples by which the burst's timestamps are ahead of the true timestamps.
CASES = {
    "none": None,
    "far": (8, 10, lambda chunk: FAR_SAMPLES),
    "near": (1, 20, lambda chunk: 2 * chunk - 2 * HEAP_SAMPLES),
}

COUNTERS = {
    "F missing": ("fgpu", "fgpu_input_missing_heaps_total"),
    "F skipped": ("fgpu", "fgpu_output_skipped_heaps_total"),
    "F jumps": ("fgpu", "fgpu_input_jumps_total"),
    "F refused": ("fgpu", "fgpu_input_rejected_packets_total"),
    "X missing": ("xbgpu", "xbgpu_input_missing_heaps_total"),
    "V missing": ("visrec", "visrec_missing_heaps_total"),
}


class Array(demo_array.Array):
    """Runs the demonstration's array and its recorder."""

    def __init__(self, work):
        super().__init__(self.program, work)
        self.work = work
        text = (demo_array.DEMO / "visrec.yaml").read_text().replace(demo_array.PORT, f":{harness.PORT}")
        config = harness.merge(yaml.safe_load(text), {
            "time": {"sync_time": self.configs["dsim"]["time"]["sync_time"]},
            "output": {"file": str(work / "dumps.uvh5")},
            "http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}})
        del config["output"]["max_dumps"]
        self.configs["visrec"] = config

    def program(self, program, config, name, clock, first):
        return harness.Daemon(program, config, self.work, name, first=first)  # with the host's clock

    def counted(self):
        """Returns the table's counters.  Each counter is the sum over all programs of a kind."""
        pages = {name: self[name].metrics() for name in self.processes if name != "dsim"}
        return {label: sum(page.get(metric) for name, page in pages.items() if name.rstrip("01") == program)
                for label, (program, metric) in COUNTERS.items()}

    def n_dumps(self):
        return int(self["visrec"].metrics().get("visrec_dumps_total"))

    def stop(self):
        """Ends the recorder first, then all other programs.  So the end of the senders makes no recorded dump
        incomplete."""
        for name in self.processes:
            self[name].terminate().wait_end()

    def kill(self):
        for process in self.processes.values():
            process.kill()


def forged_packet(timestamp):
    """Returns a forged heap of digitiser 0, polarisation 0.  Only the timestamp differs from the timestamps of the true
    heaps."""
    def item(code, value, immediate=1):
        return immediate << 63 | code << 48 | value & (1 << 48) - 1

    items = [item(1, timestamp // HEAP_SAMPLES), item(2, HEAP_BYTES), item(3, 0), item(4, HEAP_BYTES),
             item(harness.TIMESTAMP, timestamp), item(harness.DIGITISER_ID, 0), item(harness.DIGITISER_STATUS, 0),
             item(harness.ADC_SAMPLES, 0, immediate=0)]
    return struct.pack(f">BBBBHH{len(items)}Q", 0x53, 4, 2, 6, 0, len(items), *items) + b"\xaa" * HEAP_BYTES


class Stranger(threading.Thread):
    """Sends bursts at regular times for 'seconds'.  A late burst is sent at once."""

    def __init__(self, array, case, seconds):
        super().__init__()
        config = array.configs["fgpu0"]
        self.n_burst, bursts_hz, ahead = CASES[case]
        self.ahead_samples = ahead(config["recv"]["chunk_samples"])
        self.period_s = 1 / bursts_hz
        self.n_bursts = round(seconds * bursts_hz)
        self.sync_time, self.rate_hz = config["time"]["sync_time"], float(config["time"]["adc_sample_rate"])
        self.endpoint, = harness.endpoints(config["antennas"][0]["pol0"])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(harness.LOOPBACK))
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        self.n_sent, self.seconds = 0, 0.0

    def run(self):
        started = time.monotonic()
        for burst in range(self.n_bursts):
            time.sleep(max(0.0, started + burst * self.period_s - time.monotonic()))
            now = int((time.time() - self.sync_time) * self.rate_hz) // HEAP_SAMPLES * HEAP_SAMPLES
            for k in range(self.n_burst):
                self.socket.sendto(forged_packet(now + self.ahead_samples + k * HEAP_SAMPLES), self.endpoint)
                self.n_sent += 1
        time.sleep(max(0.0, started + self.n_bursts * self.period_s - time.monotonic()))
        self.seconds = time.monotonic() - started
        self.socket.close()


def dumps_of_files(work, first, last):
    """Returns the numbers of (complete, incomplete, absent) dumps in the recorder's files.  Counts the dumps with
    numbers 'first' to 'last' - 1."""
    flagged = {}
    for path in work.glob("dumps*.uvh5"):
        with h5py.File(path) as file:
            times = file["Header/time_array"][:]
            rows = file["Data/flags"][:].reshape(len(times), -1).any(axis=1)
            for when in np.unique(times):
                flagged[when] = bool(rows[times == when].any())
    times = sorted(flagged)
    step = min(np.diff(times))
    times = times[first:last]
    n_incomplete = sum(flagged[when] for when in times)
    n_places = round((times[-1] - times[0]) / step) + 1
    return len(times) - n_incomplete, n_incomplete, n_places - len(times)


def measure(case, seconds, work):
    array = Array(work)
    try:
        array.start(*STARTED)
        array["visrec"].wait_metric(lambda page: page.get("visrec_dumps_total") >= SETTLED_DUMPS, "the first dumps")
        first, before = array.n_dumps(), array.counted()
        stranger = Stranger(array, case, seconds) if CASES[case] else None
        if stranger:
            stranger.start()
            stranger.join()
        else:
            time.sleep(seconds)
        last = array.n_dumps()
        after = array.counted()
        array.stop()
    finally:
        array.kill()
    complete, incomplete, absent = dumps_of_files(work, first, last)
    row = {"complete": complete, "incomplete": incomplete, "absent": absent}
    row |= {label: int(after[label] - before[label]) for label in COUNTERS}
    row["sent"] = stranger.n_sent if stranger else 0
    row["sent/s"] = round(stranger.n_sent / stranger.seconds, 1) if stranger else 0.0
    return row


def rate_is_wrong(case, row):
    wanted = CASES[case][0] * CASES[case][1] if CASES[case] else 0
    return abs(row["sent/s"] - wanted) > RATE_TOLERANCE * wanted


def print_row(case, run, row):
    print(f"| {case:5} | {run:6} | " + " | ".join(f"{row[name]:{len(name)}g}" for name in row) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="duration of a run (%(default)g)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case (%(default)d)")
    args = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}; "
          f"{args.runs} x {args.seconds:g} s of each case\n", flush=True)
    rows, wrong = {case: [] for case in CASES}, []
    for run in range(1, args.runs + 1):
        for case in CASES:
            with tempfile.TemporaryDirectory(prefix="hostile-") as work:
                row = measure(case, args.seconds, Path(work))
            if run == 1 and case == next(iter(CASES)):
                print("| case  | run    | " + " | ".join(row) + " |\n|" + "---|" * (2 + len(row)), flush=True)
            print_row(case, run, row)
            rows[case].append(row)
            if rate_is_wrong(case, row):
                wrong.append(f"{case}, run {run}: {row['sent/s']:g} heaps/s")
    for case, done in rows.items():
        print_row(case, "median", {name: statistics.median(row[name] for row in done) for name in done[0]})
    if wrong:
        sys.exit("hostile: the forged packets were not sent at their rate: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
