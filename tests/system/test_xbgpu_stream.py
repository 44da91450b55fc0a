"""xbgpu live: multicast on the loopback interface, spead2 at both ends, /metrics, SIGTERM."""
import re
import time

import numpy as np
import pytest

import harness
import scenario
import xmodel
from harness import Sent, endpoints, merge

LIVE = {
    "time": {"adc_sample_rate": 4000000},
    "recv": {"interface": "lo", "batches_per_chunk": 2, "chunks": 128},
    "send": {"interface": "lo", "ttl": 1},
}


def live_config(outputs=({},), **sections):
    # Room for all that a test sends: what a busy machine makes late must not be lost.
    outputs = [{"buffers": 64} | output for output in outputs]
    sections = merge(merge(LIVE, {"http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}}), sections)
    return scenario.xbgpu_config(outputs, **sections)


def destinations(config):
    return ",".join(o["destination"] for o in config["outputs"])


def portions(config, first_batch, voltages, present=None):
    """The heaps of voltages[batch][ant], in portions of four chunks."""
    n = 4 * config["recv"]["batches_per_chunk"]
    return [scenario.feng_heaps(config, first_batch + at, voltages[at:at + n], None if present is None else present[at:at + n])
            for at in range(0, len(voltages), n)]


def send_in_step(config, process, sent, **more):
    """Sends portions, each when all receive threads have taken the portion before.  So no thread falls behind the others
    by the window.  The sender waits only between chunks."""
    n_packets = 0
    for portion in sent:
        harness.send_live(portion, **more)
        n_packets += sum(len(harness.packets(s.heap, s.cnt, 9000)) for s in portion)
        process.wait_metric(lambda m: m.get("xbgpu_input_packets_total") == n_packets * config["recv"].get("threads", 1),
                            f"{n_packets} packets taken by each thread")


def wait_window(receiver, config, index, window):
    """Waits for the dump of a window, which is the last that is sure to come before the end."""
    output = config["outputs"][index]
    (where,) = endpoints(output["destination"])
    timestamp = window * output["integration_batches"] * scenario.batch_samples(config) % harness.WIRE
    receiver.wait(lambda heaps: any(h.endpoint == where and h.items.get("timestamp") == timestamp for h in heaps),
                  f"window {window} of {output['name']}")


def finish(config, process, receiver, n_heaps=0):
    """Stops the daemon once it has received that many heaps.  Packets still in its socket would be lost."""
    process.wait_metric(lambda m: m.get("xbgpu_input_heaps_total") >= n_heaps, f"{n_heaps} heaps received")
    process.terminate().wait_end()
    receiver.wait_stops(len(config["outputs"]))
    return scenario.by_endpoint(receiver.heaps)


def check_first(config, index, found, expected, n_sure=0):
    """Compares an output's dumps with the first expected ones.  The drain before the stop may or may not include the
    open chunks."""
    heaps = found[endpoints(config["outputs"][index]["destination"])[0]]
    n = sum(h.kind == "data" for h in heaps)
    assert n_sure <= n <= len(expected)
    scenario.check_dumps(config, index, heaps, dict(list(expected.items())[:n]))


@pytest.mark.parametrize("timebase", ["packets", "clock"])
@pytest.mark.parametrize("rate_factor", [0, 1.1])
def test_live_stream(timebase, rate_factor, daemon, rng):
    """Two integration lengths through the network; stop heaps of F-engines end nothing; SIGTERM drains."""
    config = live_config(outputs=[{"integration_batches": 3}, {"integration_batches": 8, "missing": "weights"}],
                         recv={"antennas": 4, "threads": 2, "window": 8}, send={"rate_factor": rate_factor})
    first_batch = 48
    if timebase == "clock":
        sync_time = int(time.time()) - 1000
        config["time"] |= {"timebase": "clock", "sync_time": sync_time}
        first_batch = int((time.time() - sync_time) * 4e6) // scenario.batch_samples(config) // 24 * 24
    voltages = scenario.random_voltages(rng, config, 96)
    present = rng.random((96, 4)) > 0.01
    present[[0, -1]] = True
    sent = portions(config, first_batch, voltages, present)
    (source,) = endpoints(config["recv"]["sources"])
    sent[6][10:10] = [Sent(source, harness.stop_heap(), 10**6 + i) for i in range(4)]
    # The last eight chunks stay open, so that everything up to batch 72 must come without a stop.
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("xbgpu", config, first=True).wait_ready()
        send_in_step(config, process, sent)
        for index, length in enumerate([3, 8]):
            wait_window(receiver, config, index, (first_batch + 72) // length - 1)
        found = finish(config, process, receiver, present.sum())
    for index, output in enumerate(config["outputs"]):
        expected = xmodel.dumps(first_batch, voltages, present, output["integration_batches"],
                                output.get("missing", "flag"))
        check_first(config, index, found, expected, 72 // output["integration_batches"])


def test_stop_without_data(daemon):
    config = live_config(outputs=[{}, {"send_enabled": False}])
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("xbgpu", config).wait_ready()
        receiver.wait(lambda heaps: len(heaps) >= 2, "descriptors of both outputs")
        found = finish(config, process, receiver)
    for index, output in enumerate(config["outputs"]):
        scenario.check_dumps(config, index, found[endpoints(output["destination"])[0]], {})


def test_scraped_to_the_last(daemon, rng):
    """Readers of /metrics during the daemon's stop do no harm, until the port is closed."""
    config = live_config(outputs=[{}, {"missing": "weights"}], recv={"antennas": 3})
    voltages = scenario.random_voltages(rng, config, 16)
    process = daemon("xbgpu", config).wait_ready()
    harness.send_live(scenario.feng_heaps(config, 0, voltages), rate=4e5)
    with harness.Scraper(process, n_threads=2) as scraper:
        scraper.wait_replies(3)
        process.terminate().wait_end()
    assert scraper.refused


def test_counters(daemon, rng):
    """Dumps sent, skipped, incomplete; heaps received and missing; visibilities clipped.  After the last packet a silence
    of 5 s closes the last chunks, so the counters are those of the whole stream."""
    config = live_config(
        outputs=[{"integration_batches": 4}, {"integration_batches": 4, "missing_dump": "skip"}],
        time={"adc_sample_rate": 8000000},
        recv={"antennas": 3, "channels_per_substream": 1, "channel_offset": 9, "spectra_per_heap": 32768,
              "antenna_names": "m000, m001, m017"})
    voltages = scenario.random_voltages(rng, config, 32)
    voltages[:, :, :, 100:] = 0
    voltages[4:8, 1] = -128
    present = np.ones((32, 3), bool)
    present[1, 0] = present[8, 0] = present[9, 1] = present[10, 2] = False
    expected = {o: xmodel.dumps(0, voltages, present, 4, missing_dump=policy) for o, policy in enumerate(["send", "skip"])}
    assert [len(expected[o]) for o in range(2)] == [7, 6]  # without the first window, which m000 entered late
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("xbgpu", config).wait_ready()
        send_in_step(config, process, portions(config, 0, voltages, present), rate=30e6)
        metrics = process.wait_counted(
            lambda m: m.get("xbgpu_input_heaps_total") == present.sum()
            and [m.get("xbgpu_output_x_heaps_total", stream=f"bcp{o}") for o in range(2)] == [7, 6], "all heaps and dumps")
        found = finish(config, process, receiver, present.sum())
    for index in range(2):
        check_first(config, index, found, expected[index], len(expected[index]))
    n_clipped = expected[0][1][2]
    assert n_clipped == 4
    for stream, n_heaps in [("bcp0", 7), ("bcp1", 6)]:
        assert metrics.get("xbgpu_output_x_heaps_total", stream=stream) == n_heaps
        assert metrics.get("xbgpu_output_x_bytes_total", stream=stream) == n_heaps * 1 * 24 * 8
        assert metrics.get("xbgpu_output_x_visibilities_total", stream=stream) == n_heaps * 24
        assert metrics.get("xbgpu_output_x_clipped_visibilities_total", stream=stream) == n_clipped
    assert metrics.get("xbgpu_output_x_skipped_accs_total", stream="bcp0") == 0
    assert metrics.get("xbgpu_output_x_skipped_accs_total", stream="bcp1") == 1
    assert metrics.get("xbgpu_output_x_incomplete_accs_total", stream="bcp0") == 1
    assert metrics.get("xbgpu_input_missing_heaps_total") == 4
    for feng, (antenna, n_missing) in enumerate([("m000", 2), ("m001", 1), ("m017", 1)]):
        counts = {name: metrics.get(f"xbgpu_feng_{name}_total", feng=str(feng), antenna=antenna)
                  for name in ("heaps", "missing_heaps", "late_heaps", "refused_heaps")}
        assert counts["missing_heaps"] == n_missing and counts["late_heaps"] == counts["refused_heaps"] == 0
        assert counts["heaps"] + n_missing == 32
    assert re.search(r"info: m000, m001, m017: 92 heaps received, 4 missing", process.log.read_text())


def test_interface_that_does_not_exist(daemon):
    daemon("xbgpu", live_config(recv={"interface": "no-such0"})).wait_end(code=78)


def test_time_that_is_set_forward(daemon, rng):
    """F-engines whose time jumps by 2^30 batches: no window of the skipped time counts as absent."""
    config = live_config(outputs=[{"integration_batches": 4}], recv={"antennas": 3}, time={"timebase": "packets"})
    batch = scenario.batch_samples(config)
    voltages = scenario.random_voltages(rng, config, 32)
    with harness.Receiver(destinations(config)) as receiver:
        with daemon("xbgpu", config) as process:
            for first in (64, 64 + 2**30):
                harness.send_live(scenario.feng_heaps(config, first, voltages), rate=5e6)
                wait_window(receiver, config, 0, first // 4 + 5)
            metrics = process.wait_counted(lambda m: m.get("xbgpu_input_jumps_total") == 1, "the jump")
            assert metrics.get("xbgpu_input_gap_samples_total") > 2**29 * batch
            assert metrics.get("xbgpu_input_missing_heaps_total") < 100
            assert metrics.get("xbgpu_output_x_absent_accs_total") == 0
