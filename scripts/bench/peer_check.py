#!/usr/bin/env python3
"""Checks the spead2 programs with which the packet benchmarks compare ours (the peers).

Each build of spead2 sends slowly to a receiver of the same build, and no packet may be lost.  The build from source
must use GRO and GSO.  Do not publish the printed figures: the stream is slow and the machine is busy.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILDS = {"source": ROOT / ".venv-bench/bin/python", "wheel": ROOT / ".venv/bin/python"}
KINDS = {
    "dig": ["--n-sources", "2", "--heap-bytes", "5120", "--samples-per-heap", "4096"],
    "feng": ["--n-sources", "4", "--heap-bytes", "65536", "--samples-per-heap", "2097152"],
}
HEAPS_PER_CHUNK = {"dig": "509", "feng": "17"}
PID = os.getpid()
ENDPOINT = f"239.105.{PID // 256 % 256}.{PID % 256}:{20000 + PID % 10000}"


def check(build, kind):
    """Runs the receiver and the sender of a build.  Returns a sentence about a fault, or None."""
    shared = [*KINDS[kind], "--kind", kind, "--endpoint", ENDPOINT]
    peer = [BUILDS[build], ROOT / "scripts/bench/peer_spead2_recv.py"]
    with subprocess.Popen([*peer, *shared, "--heaps-per-chunk", HEAPS_PER_CHUNK[kind], "--buffer", str(16 << 20)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        if receiver.stdout.readline() != "READY\n":
            return "the receiver did not start"
        peer[1] = ROOT / "scripts/bench/peer_spead2_send.py"
        sent = json.loads(subprocess.check_output([*peer, *shared, "--seconds", "1", "--rate", "100e6"]))
        got = json.loads(receiver.communicate("stop\n")[0])
    print(f"{build:8} {kind:5} {sent['packets']:8} packets  {sent['cpu_ns'] / sent['packets']:6.0f} ns sent"
          f"  {got['cpu_ns'] / max(1, got['packets']):6.0f} ns received  lost {sent['heaps'] - got['heaps']} heaps"
          f"  gso {sent['gso']!s:5} gro {got['gro']!s:5}", flush=True)
    if sent["packets"] != got["packets"] or sent["heaps"] != got["heaps"] or got["lost_heaps"] or got["rejected_heaps"]:
        return f"lost data: sent {sent}, received {got}"
    if build == "source" and not (sent["gso"] and got["gro"]):
        return "was built without GSO or GRO: are the kernel's headers older than Linux 5.0?"
    return None


def main():
    wrong = {(build, kind): check(build, kind) for build in BUILDS for kind in KINDS}
    for (build, kind), text in wrong.items():
        if text:
            print(f"spead2 ({build}, {kind}) {text}", file=sys.stderr)
    return any(wrong.values())


if __name__ == "__main__":
    sys.exit(main())
