#!/usr/bin/env python3
"""Makes a failing run of a simulated world simpler, and prints the simplest run as one command.

    tests/world/shrink.py build/tests/xworld SEED

A world prints the values that it draws by name.  shrink.py lowers one value after another with --set NAME=VALUE, as long
as the run fails, until no value can be lowered.
"""
import re
import shlex
import subprocess
import sys

DRAW = re.compile(r"^draw (\w+)=(\d+)$", re.M)
FAILURE = re.compile(r"^world: seed.*", re.M)
RUN_S = 30  # a run that takes longer has failed


def command(program, seed, values):
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return [program, "--verbose", *sets, seed]


def run(program, seed, values):
    """Returns (the drawn values, the failure), or (..., None) if the run is right or refuses the values."""
    try:
        done = subprocess.run(command(program, seed, values), capture_output=True, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired:
        return {}, "no end"
    failure = FAILURE.search(done.stderr)
    text = failure[0] if failure else f"exit status {done.returncode}" if done.returncode else None
    if text and " is not below " in text:
        text = None
    return {name: int(value) for name, value in DRAW.findall(done.stderr)}, text


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, seed = sys.argv[1:]
    drawn, failure = run(program, seed, {})
    if not failure:
        sys.exit("shrink: the run does not fail")
    values, lowered = {}, True
    while lowered:
        lowered = False
        for name, value in drawn.items():
            now = values.get(name, value)
            for lower in sorted({0, now // 2, now - 1} - {now, -1}):
                text = run(program, seed, values | {name: lower})[1]
                if text:
                    values[name], failure, lowered = lower, text, True
                    break
    print(failure.split("; repeat with")[0])
    print(shlex.join(command(program, seed, values)))


if __name__ == "__main__":
    main()
