#!/usr/bin/env python3
"""bench_control.py [--requests N] [--seed S]: sends random requests, and the delays of 64 antennas, to cbf-control.

24 engines (16 F-engines, 8 X-engines) are fakes.  The fakes only speak KATCP and answer within 5 ms.  Two engines are
stopped, and one hangs.  Clients are unmodified aiokatcp.  The benchmark prints the time that the controller adds to the
engines' time, and the controller's CPU time.  On a busy machine a good engine may answer too late.  If the controller's
reply then names this engine, the benchmark does not count the reply as wrong.
"""
import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("control", "system", "models")]

import aiokatcp  # noqa: E402
from controlled import Controller, Fakes, layout  # noqa: E402
import random_requests  # noqa: E402

N_DELAYS = 50
STOPPED, HUNG = {"f3", "x5"}, {"f7"}


def cpu_s(process):
    """CPU time of a running process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentiles(values):
    return "  ".join(f"{q:g} %: {1e3 * values[min(len(values) - 1, int(q / 100 * len(values)))]:.1f} ms"
                     for q in (50, 90, 99, 99.9, 100))


def random_part(work, n, seed):
    config = layout(16, 8, per_feng=4)
    names = {engine["name"] for engine in config["engines"]}
    good = sorted(names - STOPPED - HUNG)
    fakes = [Fakes(config, good[part::3], 0.005) for part in range(3)] + [Fakes(config, HUNG)]
    controller = Controller(config, work)
    try:
        controller.wait_ready()
        fakes[-1].send_signal(signal.SIGSTOP)
        start_s, start_cpu_s = time.monotonic(), cpu_s(controller.process)
        answers = asyncio.run(random_requests.run(config, seed, n, STOPPED | HUNG))
        took_s, used_s = time.monotonic() - start_s, cpu_s(controller.process) - start_cpu_s
        last = asyncio.run(random_requests.replied_s(config, STOPPED | HUNG))
        slow = ("gain", "gain-all", "beam-calibration")
        over = random_requests.overheads_s(answers, last, lambda name: 10 if name in slow else 1)
        late = [answer for answer in answers if answer.late]
        wrong = [answer for answer in answers if not answer.is_right and not answer.late]
        print(f"{len(answers)} of {n} requests answered in {took_s:.1f} s, {len(wrong)} wrongly; {len(late)} found a "
              f"good engine late; CPU time of the controller {1e3 * used_s / n:.2f} ms a request; seed {seed}")
        print(f"after the slowest good engine or the time-out: {percentiles(over)}; "
              f"{sum(x > 0.05 for x in over)} over 50 ms")
        return len(answers) == n and not wrong
    finally:
        controller.kill()
        for each in fakes:
            each.kill()


async def delays(config, n):
    took_s = []
    port = int(config["katcp"]["listen"].split(":")[1])
    async with await aiokatcp.Client.connect("127.0.0.1", port) as client:
        for i in range(n):
            models = ["1.23456789012e-9,1.2345e-12:0.123456789,1.234e-5"] * 2 * len(config["antennas"])
            start_s = time.monotonic()
            await client.request("delays", "wide", f"{time.time() + 5:.6f}", *models)
            took_s.append(time.monotonic() - start_s)
            await asyncio.sleep(0.1)
    return sorted(took_s)


def delays_part(work):
    for n_fengs, per_feng in ((16, 4), (64, 1)):
        config = layout(n_fengs, 0, per_feng=per_feng)
        names = [engine["name"] for engine in config["engines"]]
        fakes = [Fakes(config, names[part::2]) for part in range(2)]
        controller = Controller(config, work, f"control{n_fengs}")
        try:
            controller.wait_ready()
            start_s = cpu_s(controller.process)
            took_s = asyncio.run(delays(config, N_DELAYS))
            used_ms = 1e3 * (cpu_s(controller.process) - start_s) / N_DELAYS
            print(f"?delays of 64 antennas, {n_fengs} F-engines: {percentiles(took_s)}; CPU time {used_ms:.1f} ms")
        finally:
            controller.kill()
            for each in fakes:
                each.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        good = random_part(work, args.requests, args.seed)
        (work / "state" / "settings.sqlite").unlink()
        delays_part(work)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
