#!/usr/bin/env python3
"""Finds out whether the simulated worlds notice mistakes: changes one random line of the code at a time, and runs seeds.

    tests/world/mutants.py [--draw SEED] [--mutants N] [--seeds N] [FILE[:LINE]...]

A mutant is a copy of the tree with one changed operator, constant, condition or statement.  Each world that contains the
file runs the seeds 1 to N, few at first, until a run fails, ends abnormally or takes too long.  A mutant with the same
machine code as the original is reported, and does not count.  Look at each mutant that no seed noticed: either the change
has no effect, or a world lacks a fault or a check.  The exit status is 1 if there is such a mutant.
"""
import argparse
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORLDS = {"fgpu/": ["fworld"], "xbgpu/": ["xworld"], "tools/visrec/": ["vworld"], "common/recv/matcher.c": ["xworld", "fworld"],
          "common/recv/": ["xworld", "fworld", "vworld"], "common/": ["xworld", "fworld"]}
FILES = [*(f"common/recv/{name}.c" for name in ("assemble", "chunk", "chunk_heap", "claims", "predict", "receiver",
                                                "receiver_packets", "receiver_set", "matcher")),
         "common/engine/lane.c", "xbgpu/input.c", "fgpu/antenna.c",
         "xbgpu/window.c", "xbgpu/output.c", "fgpu/output.c", "tools/visrec/dump.c",
         "common/base/inbox.c", "common/base/buffer_ref.c", "common/engine/outbuf.c", "common/engine/command.c",
         "common/engine/engine.c", "tools/visrec/writer.c",
         *(f"common/send/{name}.c" for name in ("sender", "sender_group", "stream", "stream_packets", "stream_serve")),
         "xbgpu/send.c", "fgpu/send.c"]
CHANGES = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
           (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" [-+|&]= ", " = "),
           (r" / ", " * "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\b0\b", "1"), (r"\b1\b", "2"), (r"\+\+", "--"),
           (r"\bif \((?=.*\)$)", "if (!("),  # closed in candidates()
           (r"^    +[a-z]\w*\(.*\);$", "    ;"),  # a call whose result is not used
           (r"^    +[a-z][\w>.\[\]-]* = [^;]*;$", "    ;")]  # an assignment
NOT_CODE = re.compile(r"^\s*(/?\*|//|#|static_assert|_Static_assert)|assert\(|log_\w+\(|^\S|^\s*\.")
NO_CODE = re.compile(r'/\*.*?(\*/|$)|"(\\.|[^"\\])*"')  # comments and texts within a line
STEPS = [10, 40, 150, 800, 9000]  # numbers of seeds that a world runs in turn
CPU_S, WALL_S, MEMORY_BYTES = 10, 120, 8 << 30  # limits of a step, without those of its seeds


def candidates(name):
    """Returns all mutants of a file: (name, number of the line, the changed line)."""
    name, _, only = name.partition(":")
    found = []
    for number, line in enumerate((ROOT / name).read_text().splitlines()):
        if NOT_CODE.search(line) or (only and int(only) != number + 1):
            continue
        code = NO_CODE.sub(lambda text: " " * len(text[0]), line)
        for pattern, new in CHANGES:
            for place in re.finditer(pattern, code):
                end = ")" if new == "if (!(" else ""
                found.append((name, number, line[:place.start()] + new + line[place.end():] + end))
    return found


def order(draw, mutant):
    """Returns a pseudo-random number of a mutant.  A change of other lines does not change the number."""
    name, number, line = mutant
    lines = (ROOT / name).read_text().splitlines()
    earlier = lines[:number].count(lines[number])
    return hashlib.sha256(f"{draw}\0{name}\0{lines[number]}\0{earlier}\0{line}".encode()).digest()


def make(tree, targets):
    return subprocess.run(["make", "-j2", "-s", *targets], cwd=tree, capture_output=True, check=False).returncode == 0


def machine_code(tree, name):
    """Returns the object of a source file without debug information."""
    stripped = tree / "build/stripped.o"
    subprocess.run(["objcopy", "--strip-debug", tree / f"build/obj/{name[:-2]}.o", stripped], check=True)
    return stripped.read_bytes()


def run_step(tree, world, first, n):
    """Returns how the run of n seeds failed, or None."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S + n // 4, CPU_S + n // 4))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run([f"build/tests/{world}", str(first), str(n)], cwd=tree, capture_output=True, check=False,
                              errors="replace", timeout=WALL_S + n, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return f"{world}: no end, seeds {first} to {first + n - 1}"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return f"{world}: {lines[-1] if lines else f'exit status {done.returncode}'}, seeds {first} to {first + n - 1}"


def noticed(tree, worlds, n_seeds):
    """Returns how the first run that noticed the mutant ended, or None."""
    first = 1
    for step in STEPS:
        n = min(step, n_seeds + 1 - first)
        for world in worlds if n > 0 else []:
            how = run_step(tree, world, first, n)
            if how:
                return how
        first += n
    return None


def try_mutant(tree, mutant, n_seeds):
    """Returns what came of a mutant, or None if it cannot be compiled."""
    name, number, line = mutant
    worlds = next(worlds for prefix, worlds in WORLDS.items() if name.startswith(prefix))
    path, built = tree / name, f"build/obj/{name[:-2]}.o"
    text = path.read_text()
    lines = text.splitlines()
    make(tree, [built])
    before = machine_code(tree, name)
    lines[number] = line
    try:
        path.write_text("\n".join(lines) + "\n")
        if not make(tree, [built]):
            return None
        if machine_code(tree, name) == before:
            return "same machine code"
        make(tree, [f"build/tests/{world}" for world in worlds])
        return noticed(tree, worlds, n_seeds) or "NOT NOTICED"
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=1, help="seed that draws the mutants")
    parser.add_argument("--mutants", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE[:LINE]")
    args = parser.parse_args()
    mutants = [mutant for name in args.files for mutant in candidates(name)]
    mutants.sort(key=lambda mutant: order(args.draw, mutant))
    count = n_found = 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "build-*"))
        if not make(tree, ["build/tests/xworld", "build/tests/fworld", "build/tests/vworld"]):
            sys.exit("mutants: the unchanged tree cannot be built")
        for mutant in mutants:
            if count == args.mutants:
                break
            how = try_mutant(tree, mutant, args.seeds)
            if how is None:
                continue
            name, number, line = mutant
            old = (ROOT / name).read_text().splitlines()[number]
            is_counted = how != "same machine code"
            count += is_counted
            n_found += is_counted and how != "NOT NOTICED"
            print(f"{count if is_counted else '-'}. {name}:{number + 1}\n   -{old}\n   +{line}\n   {how}", flush=True)
    print(f"{n_found} of {count} mutants noticed within {args.seeds} seeds")
    sys.exit(n_found < count)


if __name__ == "__main__":
    main()
