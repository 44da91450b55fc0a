#!/usr/bin/env python3
"""fgpu_dram.py - measures the device memory traffic of the F-engine's kernels with Nsight Compute (ncu).

  fgpu_dram.py --bench build/bench/bench_fgpu [--channels 1024,4096,...] [--json FILE] [-- more options of bench_fgpu]
  fgpu_dram.py --parse CSV --channels N --samples N     only reads a CSV file of ncu (--csv, either --page)

bench_fgpu --once runs its kernels in two rounds.  The first round warms up; the figures are from the second round.
As in the F-engine, caches are not cleared between kernels.  The program prints bytes per dual-polarisation sample.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
SIZES = "1024,4096,8192,32768,65536"


def number(text):
    return float(text.replace(",", ""))


def parse_launches(text):
    """Reads the launches from ncu's CSV, in order, each as {"name": kernel, metric: bytes}.  The CSV has a line for
    each launch (--page raw), or for each launch and metric."""
    lines = [line for line in text.splitlines() if line.startswith('"')]  # other lines are bench_fgpu's output
    rows = list(csv.reader(lines))
    if not rows or "Kernel Name" not in rows[0]:
        raise ValueError("there is no table of kernels in ncu's output")
    head = rows[0]
    name = head.index("Kernel Name")
    launches = {}
    if "Metric Name" in head:
        metric, unit, value = (head.index(f"Metric {word}") for word in ("Name", "Unit", "Value"))
        for row in rows[1:]:
            launch = launches.setdefault(int(row[head.index("ID")]), {"name": row[name]})
            launch[row[metric]] = number(row[value]) * UNITS[row[unit]]
    else:
        units = rows[1]
        for row in rows[2:]:
            launches[int(row[head.index("ID")])] = {"name": row[name]} | {
                m: number(row[head.index(m)]) * UNITS[units[head.index(m)]] for m in METRICS}
    for launch in launches.values():
        if not set(METRICS) <= launch.keys():
            raise ValueError(f"ncu did not count {' and '.join(METRICS)} for {launch['name']}")
    return [launches[i] for i in sorted(launches)]


def traffic(launches, n_rounds, n_samples):
    """Returns the bytes per sample of each kernel in the last round, in the order of the kernels' first launches.
    Launches before the rounds (for tuning and tables) are left out."""
    names = [launch["name"] for launch in launches]
    n = len(names) // n_rounds
    while n and names[-n * n_rounds:] != names[-n:] * n_rounds:
        n -= 1
    if not n or set(names[:-n * n_rounds]) & set(names[-n:]):
        raise ValueError(f"{len(names)} launches do not end in {n_rounds} equal rounds: {', '.join(names)}")
    kernels = {}
    for launch in launches[-n:]:
        sums = kernels.setdefault(launch["name"], {"launches": 0, "read": 0.0, "written": 0.0})
        sums["launches"] += 1
        sums["read"] += launch[METRICS[0]] / n_samples
        sums["written"] += launch[METRICS[1]] / n_samples
    return kernels


def show(n_chan, kernels):
    total = sum(k["read"] + k["written"] for k in kernels.values())
    for name, k in kernels.items():
        print(f"{n_chan:8} {name[:44]:44} {k['launches']:4} {k['read']:8.2f} {k['written']:8.2f} "
              f"{k['read'] + k['written']:8.2f}")
    print(f"{n_chan:8} {'all':44} {'':4} {'':8} {'':8} {total:8.2f}", flush=True)
    return total


def profile(ncu, bench, n_chan, more):
    """Runs ncu.  Returns its CSV and the output of bench_fgpu."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as log:
        command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS),
                   "--clock-control", "none", "--cache-control", "none", "--log-file", log.name,
                   bench, "--once", "--channels", str(n_chan), *more]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        text = log.read()
    if run.returncode:
        sys.exit(f"{' '.join(command)} failed with {run.returncode}:\n{run.stdout}{text}")
    facts = json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])
    return text, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/bench/bench_fgpu")
    parser.add_argument("--ncu", default=os.environ.get("NCU", "ncu"))
    parser.add_argument("--channels", default=SIZES)
    parser.add_argument("--json")
    parser.add_argument("--parse", metavar="CSV")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("more", nargs="*")
    args = parser.parse_args()
    print(f"{'channels':>8} {'kernel':44} {'runs':>4} {'read':>8} {'written':>8} {'bytes':>8}")
    results = {}
    for n_chan in args.channels.split(","):
        if args.parse:
            text, facts = open(args.parse).read(), {"rounds": args.rounds, "samples": args.samples}
        else:
            text, facts = profile(args.ncu, args.bench, n_chan, args.more)
        kernels = traffic(parse_launches(text), facts["rounds"], facts["samples"])
        results[n_chan] = {"kernels": kernels, "bytes_per_sample": show(int(n_chan), kernels)}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
