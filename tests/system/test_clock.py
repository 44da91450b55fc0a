"""A wrong clock of the host: at the start, while fgpu runs, and until NTP has corrected it.

At 1712 MS/s half a period of the 48-bit timestamps is 22.8 h.  A clock with a larger error places timestamps whole
periods wrong.
"""
import re
import time

import pytest

import harness
import scenario
import test_fgpu_stream
from harness import SYNCHRONISED, UNSYNCHRONISED, WIRE
from test_wrap import sister

RATE = 1_712_000_000
SYNC_TIME = int(time.time()) - 400_000_000
HOUR, DAY, YEAR = 3600, 86400, 365 * 86400
OFFSETS = [10 * YEAR, -10 * YEAR, DAY, -DAY, HOUR, -HOUR, 1, -1]
CONFIG = {"outputs": [{"channels": 64, "spectra_per_heap": 48, "gain": 0.4, "taps": 4}],
          "recv": {"packet_samples": 512, "chunk_samples": 24 * 512}, "send": {"packet_payload": 1536},
          "time": {"sync_time": SYNC_TIME, "adc_sample_rate": RATE, "timebase": "clock"}}
CHUNK = 24 * 512


def true_samples():
    return int((time.time() - SYNC_TIME) * RATE) // CHUNK * CHUNK


def send_burst(config, rng):
    """Some chunks of now; returns the timestamp of the first."""
    start = true_samples()
    samples = scenario.noise(rng, 1, 5 * CHUNK, 10)
    harness.send_live(scenario.digitiser_heaps(config, samples, start))
    return start


def wrong_periods(process):
    """By how many periods the timestamps of both polarisations are off; None before any came."""
    found = process.metrics()
    newest = [found.get("fgpu_input_newest_timestamp", pol=str(pol)) for pol in range(2)]
    return None if min(newest) < 0 else {round((n - true_samples()) / WIRE) for n in newest}


def wait_shown(process, synchronised):
    """The engine reads its clock once a second.  The status page shows the values of /metrics."""
    process.wait_metric(lambda metrics: metrics.get("fgpu_clock_synchronised") == synchronised,
                        f"fgpu_clock_synchronised {synchronised}")
    assert process.status()["other"]["clock_synchronised"] == synchronised


@pytest.mark.skipif(harness.SANITIZED, reason="the clock is preloaded, which a sanitizer's runtime does not allow")
def test_wrong_clock(daemon, work, rng):
    """Said at the start; whole periods off until the clock is right, and right from then on, wherever the clock goes."""
    base = test_fgpu_stream.live_config(**CONFIG)
    engines = []
    for i, offset_s in enumerate(OFFSETS):
        clock = harness.Clock(work / f"clock{i}", offset_s, UNSYNCHRONISED)
        engines.append((daemon("fgpu", sister(base), f"fgpu{i}", clock=clock), clock, offset_s))
    for process, _, _ in engines:
        process.wait_ready()
        assert "clock is not synchronised" in process.log.read_text()

    def burst_until(done, what):
        deadline = time.monotonic() + harness.TIMEOUT_S
        while not all(done(*engine) for engine in engines):
            assert time.monotonic() < deadline, what
            send_burst(base, rng)

    burst_until(lambda process, clock, offset_s: wrong_periods(process) is not None, "no data")
    for process, _, offset_s in engines:
        # Timestamps lie within half a period of the clock, so this is what they must be off by.
        assert wrong_periods(process) == {round(offset_s * RATE / WIRE)}, offset_s
        assert "2^48 samples, because the clock was wrong" not in process.log.read_text()
        wait_shown(process, 0)
    for _, clock, _ in engines:
        clock.set(0, SYNCHRONISED)
    burst_until(lambda process, clock, offset_s: wrong_periods(process) == {0}, "timestamps are not put right")
    for process, _, offset_s in engines:
        wait_shown(process, 1)
        # Found by the look at the clock, or by the first packet behind a gap; and not a word where nothing was off.
        log = process.log.read_text()
        jumps = [int(n) for n in re.findall(r"timestamps jumped by (-?\d+) samples", log)]
        moved = "2^48 samples, because the clock was wrong" in log or any(abs(n) > WIRE // 2 for n in jumps)
        assert moved == bool(round(offset_s * RATE / WIRE)), offset_s

    # Stepped while it runs, which the kernel takes for not synchronised: nothing changes.
    for _, clock, offset_s in engines:
        clock.set(offset_s, UNSYNCHRONISED)
    before = [process.metrics().get("fgpu_input_chunks_total") for process, _, _ in engines]
    for _ in range(5):
        send_burst(base, rng)
    burst_until(lambda process, clock, offset_s: process.metrics().get("fgpu_input_chunks_total") >=
                before[[e[0] for e in engines].index(process)] + 20, "chunks stop")
    for process, _, offset_s in engines:
        assert wrong_periods(process) == {0}, offset_s
        wait_shown(process, 0)
        process.terminate().wait_end()
