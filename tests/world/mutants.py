#!/usr/bin/env python3
"""Finds out whether the simulated world notices mistakes: changes one random line of the code at a time, and runs seeds.

    tests/world/mutants.py [--draw SEED] [--mutants N] [--seeds N] [FILE...]

Each mutant is a copy of the tree with one changed operator, constant or statement.  xworld runs the seeds from 1 on until
a run fails, ends abnormally or takes too long.  The report names the mutants that no seed noticed: look whether such a
mutant changes anything.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ["common/recv/assemble.c", "common/recv/chunk_heap.c", "common/recv/claims.c", "common/recv/matcher.c",
         "common/base/inbox.c", "common/send/sender.c", "common/send/stream.c", "common/send/stream_packets.c",
         "common/send/stream_serve.c", "common/engine/engine.c", "common/engine/outbuf.c", "xbgpu/input.c",
         "xbgpu/window.c", "xbgpu/output.c"]
CHANGES = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
           (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " = "),
           (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\b0\b", "1"), (r"\b1\b", "2"), (r"\+\+", "--"),
           (r"^    +[a-z]\w*\(.*\);$", "    ;")]  # a call whose result is not used
NOT_CODE = re.compile(r"^\s*(/?\*|//|#|static_assert|_Static_assert)|assert\(|log_\w+\(|^\S|^\s*\.")
RUN_S = 60  # longest time for one tenth of the seeds


def draw(rng, files, tree):
    """Returns (file, number of the line, the changed line) of a random mutant."""
    while True:
        name = rng.choice(files)
        lines = (tree / name).read_text().splitlines()
        number = rng.randrange(len(lines))
        line = lines[number]
        pattern, new = rng.choice(CHANGES)
        places = list(re.finditer(pattern, line))
        if NOT_CODE.search(line) or not places:
            continue
        place = rng.choice(places)
        return name, number, line[:place.start()] + new + line[place.end():]


def build(tree):
    done = subprocess.run(["make", "-j2", "-s", "build/tests/xworld"], cwd=tree, capture_output=True, check=False)
    return done.returncode == 0


def noticed(tree, n_seeds):
    """Returns how a run of the seeds ended, or None if no seed noticed anything."""
    step = max(1, n_seeds // 10)
    for first in range(1, n_seeds + 1, step):
        try:
            done = subprocess.run(["build/tests/xworld", str(first), str(step)], cwd=tree, capture_output=True, text=True,
                                  timeout=RUN_S, check=False)
        except subprocess.TimeoutExpired:
            return f"no end, seeds {first} to {first + step - 1}"
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=1, help="seed that draws the mutants")
    parser.add_argument("--mutants", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("files", nargs="*", default=FILES)
    args = parser.parse_args()
    rng, n_found = random.Random(args.draw), 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
        if not build(tree):
            sys.exit("mutants: the unchanged tree cannot be built")
        count = 0
        while count < args.mutants:
            name, number, line = draw(rng, args.files, tree)
            path = tree / name
            text = path.read_text()
            lines = text.splitlines()
            old, lines[number] = lines[number], line
            path.write_text("\n".join(lines) + "\n")
            if build(tree):
                count += 1
                how = noticed(tree, args.seeds)
                n_found += how is not None
                print(f"{count}. {name}:{number + 1}\n   -{old}\n   +{line}\n   {how or 'NOT NOTICED'}", flush=True)
            path.write_text(text)
    print(f"{n_found} of {args.mutants} mutants noticed within {args.seeds} seeds")


if __name__ == "__main__":
    main()
