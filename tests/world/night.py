#!/usr/bin/env python3
"""Runs the seeds of all simulated worlds, and prints one table of the faults and counters.

    tests/world/night.py [--world NAME]... [--piece N] FIRST N

Each world runs the seeds FIRST to FIRST + N - 1 in pieces.  The table has a row for each kind of fault, each counter and
each kind of result, and a column for each world.  "never" marks a row that no seed of a world increased.  "-" marks a row
that the world does not have.  Rows that a world leaves out follow with their reasons.  A seed that fails is printed as one command, and the next piece begins after this seed.
The exit status is 1 if a seed failed.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build/tests"
ROW = re.compile(r"^ *(\d+|never)  (.+)", re.M)
LEFT_OUT = re.compile(r"^ *left out  (.+)", re.M)
FAILURE = re.compile(r"world: seed (\d+), .*")
PIECE_S = 10  # longest time of a seed on a busy host


def run_piece(program, first, n, table, left_out):
    """Adds the rows of a run to 'table' and the set 'left_out'.  Returns the first seed that was not run, and a text if a seed failed."""
    try:
        done = subprocess.run([program, str(first), str(n)], capture_output=True, text=True, check=False,
                              timeout=60 + n * PIECE_S)
    except subprocess.TimeoutExpired:
        return first + n, f"{program} {first} {n}: no end"
    for number, name in ROW.findall(done.stdout):
        table[name] = table.get(name, 0) + (0 if number == "never" else int(number))
    left_out.update(LEFT_OUT.findall(done.stdout))
    if done.returncode == 0:
        return first + n, None
    failure = FAILURE.search(done.stderr)
    if not failure:
        return first + n, f"{program} {first} {n}: exit status {done.returncode}\n{done.stderr[-2000:]}"
    return int(failure[1]) + 1, f"{program}: {failure[0]}"


def run_world(program, first, n, piece):
    table, left_out, failures, seed = {}, set(), [], first
    while seed < first + n:
        seed, failure = run_piece(program, seed, min(piece, first + n - seed), table, left_out)
        if failure:
            failures.append(failure)
            print(failure, flush=True)
    return table, left_out, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", action="append", help="xworld, for example; may be repeated; default: all worlds")
    parser.add_argument("--piece", type=int, default=250, help="number of seeds that one process runs")
    parser.add_argument("first", type=int)
    parser.add_argument("n", type=int)
    args = parser.parse_args()
    worlds = args.world or [path.name for path in sorted(BUILD.glob("?world"))]
    results = {name: run_world(BUILD / name, args.first, args.n, args.piece) for name in worlds}
    print("".join(f"{name:>14}" for name in worlds))
    for row in sorted({row for table, _, _ in results.values() for row in table}):
        cells = [table.get(row) for table, _, _ in results.values()]
        print("".join(f"{'-' if cell is None else cell or 'never':>14}" for cell in cells) + "  " + row)
    for name, (_, left_out, failures) in results.items():
        for row in sorted(left_out):
            print(f"{name} leaves out {row}")
        print(f"{name}: {args.n} seeds from {args.first} on, {len(failures)} failures")
    sys.exit(any(failures for _, _, failures in results.values()))


if __name__ == "__main__":
    main()
