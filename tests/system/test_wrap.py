"""The 48 bits of the wire wrap every two days: daemons started before and after must agree.

The lengths of batches and dumps do not divide 2^48.  So a daemon whose grids begin again at the wrap would differ.
"""
import time

import numpy as np
import pytest

import fmodel
import harness
import scenario
import test_fgpu
import test_fgpu_stream
import test_xbgpu
import test_xbgpu_stream
import xmodel
from harness import WIRE, endpoints, merge

RATE = 1_000_000


def time_section(offset_s):
    """The wrap comes 'offset_s' from now."""
    return {"sync_time": f"{time.time() - WIRE / RATE + offset_s:.6f}", "adc_sample_rate": RATE, "timebase": "clock"}


def sister(config):
    """The same service with a separate port and separate destinations."""
    other = merge(config, {"http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}})
    for output in other["outputs"]:
        key = "destinations" if "destinations" in output else "destination"
        output[key] = harness.groups(len(endpoints(output[key])))
    return other


FGPU = {"outputs": [{"channels": 64, "spectra_per_heap": 48, "gain": 0.4, "taps": 4}],
        "recv": {"packet_samples": 512, "chunk_samples": 24 * 512}, "send": {"packet_payload": 1536}}
CHUNK = 24 * 512


def test_fgpu_recording(daemon, work, rng):
    config = scenario.fgpu_config(**FGPU)
    start = (WIRE // CHUNK - 4) * CHUNK
    samples = scenario.noise(rng, 1, 12 * CHUNK, 10)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert test_fgpu.check(config, found, samples, start) > 20


@pytest.mark.parametrize("offset_s", [-3, 3])
def test_fgpu_live(offset_s, daemon, rng):
    """One daemon sees the wrap, the other starts behind it: the same batches, bit for bit."""
    before = test_fgpu_stream.live_config(**FGPU, time=time_section(offset_s))
    after = sister(before)
    start = (WIRE // CHUNK - 10) * CHUNK
    samples = scenario.noise(rng, 1, 40 * CHUNK, 10)
    sent = scenario.digitiser_heaps(before, samples, start)
    half = len(sent) // 2
    output = scenario.model_of(before["outputs"][0])
    last = test_fgpu_stream.sure_batches(before, output, start, samples.shape[2])[-1] * output.batch % WIRE
    with harness.Receiver(test_fgpu_stream.destinations(before)) as first, \
            harness.Receiver(test_fgpu_stream.destinations(after)) as second:
        one = daemon("fgpu", before, "before").wait_ready()
        harness.send_live(sent[:half])
        two = daemon("fgpu", after, "after").wait_ready()
        harness.send_live(sent[half:])
        for receiver in (first, second):
            receiver.wait(lambda heaps: sum(h.items.get("timestamp") == last for h in heaps) == 2, "the last batch")
        streams = test_fgpu_stream.finish(before, one, first)
        later = test_fgpu_stream.finish(after, two, second)[0, 0]
    test_fgpu_stream.check(before, streams, samples, start)
    streams = streams[0, 0]
    half_start = start + 20 * CHUNK
    assert list(later)[0] == fmodel.batches(half_start, 20 * CHUNK, output)[0] * output.batch % WIRE
    common = [t for t in later if t in streams]
    assert len(common) > 10 and last in common
    for t in common:
        assert np.array_equal(streams[t], later[t]), f"batch {t}"


XBGPU = {"outputs": [{"integration_batches": 5}], "recv": {"spectra_per_heap": 48, "antennas": 3}}
STEP = 48 * 128


def test_xbgpu_recording(daemon, work, rng):
    config = scenario.xbgpu_config(**XBGPU)
    voltages = scenario.random_voltages(rng, config, 60)
    (dumps,) = test_xbgpu.run(daemon, work, config, WIRE // STEP - 27, voltages)
    assert len(dumps) >= 11


@pytest.mark.parametrize("offset_s", [-3, 3])
def test_xbgpu_live(offset_s, daemon, rng):
    before = test_xbgpu_stream.live_config(**XBGPU, time=time_section(offset_s))
    after = sister(before)
    first_batch = WIRE // STEP - 30
    voltages = scenario.random_voltages(rng, before, 120)
    sent = scenario.feng_heaps(before, first_batch, voltages)
    half = len(sent) // 2
    last = (first_batch + 110) // 5 - 1
    with harness.Receiver(test_xbgpu_stream.destinations(before)) as first, \
            harness.Receiver(test_xbgpu_stream.destinations(after)) as second:
        one = daemon("xbgpu", before, "before").wait_ready()
        harness.send_live(sent[:half])
        two = daemon("xbgpu", after, "after").wait_ready()
        harness.send_live(sent[half:])
        for config, receiver in ((before, first), (after, second)):
            test_xbgpu_stream.wait_window(receiver, config, 0, last)
        found = test_xbgpu_stream.finish(before, one, first) | test_xbgpu_stream.finish(after, two, second)
    present = np.ones((120, 3), bool)
    for config, missed in ((before, 0), (after, 60)):
        expected = xmodel.dumps(first_batch + missed, voltages[missed:], present[missed:], 5)
        test_xbgpu_stream.check_first(config, 0, found, expected)
