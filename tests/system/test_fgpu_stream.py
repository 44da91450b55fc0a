"""fgpu live: multicast on the loopback interface, spead2 at both ends, /metrics, SIGTERM."""
import re
import signal
import time

import numpy as np
import pytest

import fmodel
import harness
import scenario
from harness import Sent, endpoints, merge

LIVE = {
    "time": {"adc_sample_rate": 16000000},
    "recv": {"interface": "lo", "packet_samples": 512, "chunk_samples": 8192, "chunks": 64},
    "send": {"interface": "lo", "ttl": 1},
}
WINDOW_CHUNKS = 2


def live_config(outputs=({},), feng_ids=(0,), substreams=2, **sections):
    # Room for all that a test sends: what a busy machine makes late must not be lost.
    outputs = [{"buffers": 128} | output for output in outputs]
    sections = merge(merge(LIVE, {"http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}}), sections)
    return scenario.fgpu_config(outputs, feng_ids, substreams=substreams, **sections)


def clocked(config):
    """Lets the daemon place the first timestamp by the clock; returns about now, on a chunk boundary."""
    sync_time = int(time.time()) - 100_000
    config["time"] |= {"timebase": "clock", "sync_time": sync_time}
    now = int((time.time() - sync_time) * config["time"]["adc_sample_rate"])
    return now - now % config["recv"]["chunk_samples"]


def sure_batches(config, output, start, n_samples):
    """Batches that come without a stop: they do not need the last open chunks."""
    chunk = config["recv"]["chunk_samples"]
    end = (start + n_samples) // chunk * chunk - WINDOW_CHUNKS * chunk
    return list(fmodel.batches(start, end - start, output))


def destinations(config):
    return ",".join(o["destinations"] for o in config["outputs"])


def n_stops(config):
    return len(config["antennas"]) * len(endpoints(destinations(config)))


def wait_batches(receiver, config, start, samples):
    """Waits for the last batch of each output that is sure to come before the end.

    The configuration must have batches_per_buffer: 1, and timestamps must not wrap.
    """
    for output in config["outputs"]:
        model = scenario.model_of(output)
        last = sure_batches(config, model, start, samples.shape[2])[-1] * model.batch
        where = endpoints(output["destinations"])
        n = len(config["antennas"]) * len(where)
        receiver.wait(lambda heaps: sum(h.endpoint in where and h.items.get("timestamp") == last for h in heaps) == n,
                      f"the last batch of {output['name']}")


def finish(config, process, receiver):
    """SIGTERM, then stop heaps on every substream from every antenna and a clean end; returns the streams."""
    process.terminate().wait_end()
    receiver.wait_stops(n_stops(config))
    return scenario.fgpu_streams(config, scenario.by_endpoint(receiver.heaps))


def check(config, streams, samples, start):
    for (o, a), got in streams.items():
        output = scenario.model_of(config["outputs"][o])
        all_batches = fmodel.batches(start, samples.shape[2], output)
        first = all_batches[0] * output.batch
        indices = [(first + (t - first) % harness.WIRE) // output.batch for t in got]  # the wire has 48 bits
        assert indices == list(range(all_batches[0], all_batches[0] + len(indices)))
        assert len(indices) <= len(all_batches)
        assert set(sure_batches(config, output, start, samples.shape[2])) <= set(indices)
        models = fmodel.voltages(start, samples[a], output)
        values = np.stack(list(got.values()))
        scenario.compare_voltages(values, np.stack([models[b] for b in indices]), output.limit, f"output {o} antenna {a}")


@pytest.mark.parametrize("timebase", ["packets", "clock"])
@pytest.mark.parametrize("rate_factor, n_threads", [(0, 1), (1.1, 2), (1.1, 13)])
def test_live_stream(timebase, rate_factor, n_threads, daemon, rng):
    """Two antennas, two outputs, through the network.  The drain sends all received data, then stop heaps.  With 13
    send threads each stream gets three, or one for each of its destinations."""
    config = live_config(outputs=[{"channels": 64, "gain": 0.4, "substreams": 4},
                                  {"channels": 256, "gain": 0.4, "spectra_per_heap": 32, "taps": 4, "substreams": 1}],
                         feng_ids=(2, 0), send={"rate_factor": rate_factor, "threads": n_threads})
    start = clocked(config) if timebase == "clock" else 2**40
    samples = scenario.noise(rng, 2, 8192 * 24, 10)
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config, first=True).wait_ready()
        harness.send_live(scenario.digitiser_heaps(config, samples, start))
        wait_batches(receiver, config, start, samples)
        streams = finish(config, process, receiver)
    check(config, streams, samples, start)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_without_data(how, daemon):
    """A daemon that never saw a packet describes its streams, and ends them."""
    config = live_config(feng_ids=(1, 3), substreams=4)
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        receiver.wait(lambda heaps: len(heaps) >= 8, "descriptors of both antennas on four substreams")
        process.process.send_signal(how)
        process.wait_end()
        receiver.wait_stops(8)
        streams = scenario.fgpu_streams(config, scenario.by_endpoint(receiver.heaps))
    assert not any(streams.values())


def test_scraped_to_the_last(daemon, rng):
    """Readers of /metrics during the daemon's stop do no harm, until the port is closed."""
    config = live_config(outputs=[{"gain": 0.4}], feng_ids=(0, 1))
    samples = scenario.noise(rng, 2, 8192 * 4, 10)
    process = daemon("fgpu", config).wait_ready()
    harness.send_live(scenario.digitiser_heaps(config, samples, 0), rate=20e6)
    with harness.Scraper(process, n_threads=2) as scraper:
        scraper.wait_replies(3)
        process.terminate().wait_end()
    assert scraper.refused


def test_stop_heaps_of_digitisers_end_nothing(daemon, rng):
    config = live_config(outputs=[{"gain": 0.4}])
    samples = scenario.noise(rng, 1, 8192 * 12, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)
    middle = len(sent) // 2
    pols = endpoints(config["antennas"][0]["pol0"]) + endpoints(config["antennas"][0]["pol1"])
    sent[middle:middle] = [Sent(e, harness.stop_heap(), 1) for e in pols]
    model = scenario.model_of(config["outputs"][0])
    last = sure_batches(config, model, 0, samples.shape[2])[-1] * model.batch
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        harness.send_live(sent)
        receiver.wait(lambda heaps: sum(h.items.get("timestamp") == last for h in heaps) == 2, "the last batch")
        streams = finish(config, process, receiver)
    check(config, streams, samples, 0)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_counters(n_threads, daemon, rng):
    """Saturation in and out, heaps in and out, lost heaps and the batches skipped for them."""
    config = live_config(outputs=[{"taps": 4, "gain": 3.0}], feng_ids=(0, 1), send={"threads": n_threads})
    output = scenario.model_of(config["outputs"][0])
    # Loud and counted in the first six chunks; silence behind them, which moves the window on.
    n_packets, n_loud = 16 * 12, 16 * 6
    samples = scenario.noise(rng, 2, n_packets * 512, 10)
    samples[:, 1] //= 2
    samples[..., n_loud * 512:] = 0
    counts = rng.integers(0, 500, (2, 2, n_packets))
    counts[..., n_loud:] = 0
    status = counts << 32 | (counts > 0) << 1
    present = np.ones((2, 2, n_packets), bool)
    present[0, 1, 40] = present[1, 0, 41] = present[1, 0, 60] = False
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        harness.send_live(scenario.digitiser_heaps(config, samples, 0, present, status))
        sent = {a: fmodel.batches_present(0, present[a], 512, output) for a in range(2)}
        n_sent = {a: 2 * len(sent[a]) for a in sent}
        # After a second of silence, the last chunks leave the window, too.
        metrics = process.wait_counted(
            lambda m: all(m.get("fgpu_output_heaps_total", antenna=f"m{a:03}") >= n_sent[a] for a in sent), "heaps sent")
        streams = finish(config, process, receiver)
    for a in range(2):
        antenna = f"m{a:03}"
        assert list(streams[0, a]) == [b * output.batch for b in sent[a]]
        assert metrics.get("fgpu_output_heaps_total", antenna=antenna, stream="wide0") == n_sent[a]
        assert metrics.get("fgpu_output_bytes_total", antenna=antenna, stream="wide0") == len(sent[a]) * 64 * 16 * 4
        lost = len(fmodel.batches(0, n_packets * 512, output)) - len(fmodel.batches_present(0, present[a], 512, output))
        assert metrics.get("fgpu_output_skipped_heaps_total", antenna=antenna, stream="wide0") == 2 * lost
        models = fmodel.voltages(0, samples[a], output)
        for pol in range(2):
            labels = {"antenna": antenna, "pol": pol}
            expected = (counts[a, pol] * present[a, pol]).sum()
            assert metrics.get("fgpu_input_clipped_samples_total", **labels) == expected
            n_lost = np.count_nonzero(~present[a, pol])
            assert metrics.get("fgpu_input_missing_heaps_total", **labels) == n_lost
            assert metrics.get("fgpu_input_heaps_total", **labels) == n_packets - n_lost
            peak = [np.maximum(np.abs(models[b][..., pol].real), np.abs(models[b][..., pol].imag)) for b in sent[a]]
            low, high = (np.count_nonzero(np.array(peak) > 127 + margin) for margin in (1e-3, -1e-3))
            assert high > 1000
            assert low <= metrics.get("fgpu_output_clipped_samples_total", stream="wide0", **labels) <= high


def test_pace(daemon, rng):
    """Input that comes faster than real time leaves at 1.1 times its real-time rate."""
    config = live_config(outputs=[{"gain": 0.4, "taps": 4}], substreams=1,
                         time={"adc_sample_rate": 200000}, send={"rate_factor": 1.1})
    samples = scenario.noise(rng, 1, 8192 * 24, 10)
    model = scenario.model_of(config["outputs"][0])
    wanted = sure_batches(config, model, 0, samples.shape[2])
    assert len(wanted) > 40
    interval = model.batch / 200000 / 1.1
    for attempt in range(3):  # a busy host may note arrivals late
        with harness.Receiver(destinations(config)) as receiver:
            process = daemon("fgpu", config, f"fgpu{attempt}").wait_ready()
            harness.send_live(scenario.digitiser_heaps(config, samples, 0), rate=1e6)  # twice as fast as in real time
            receiver.wait(lambda heaps: sum(h.kind == "data" for h in heaps) >= len(wanted), "every batch")
            finish(config, process, receiver)
        times = [h.arrival_s for h in receiver.data()][:len(wanted)]
        # None is early; and most are on time, however long the machine may keep one up.
        ratios = (times[-1] - times[0]) / ((len(wanted) - 1) * interval), np.median(np.diff(times)) / interval
        if ratios[0] > 0.85 and 0.9 < ratios[1] < 1.1:
            break
        print("another measurement, because the ratios are", ratios)
    assert ratios[0] > 0.85 and 0.9 < ratios[1] < 1.1, ratios


def test_interface_that_does_not_exist(daemon):
    """A restart cannot help, and the init system is told this."""
    config = live_config(recv={"interface": "no-such0"})
    daemon("fgpu", config).wait_end(code=78)


def test_time_that_is_set_forward(daemon, rng):
    """Digitisers whose time jumps by 2^40 samples: one event.  The skipped time counts neither as missing nor as
    skipped."""
    config = live_config(time={"timebase": "packets"})
    chunk, packet = (config["recv"][key] for key in ("chunk_samples", "packet_samples"))
    starts = [100 * chunk, 100 * chunk + 2**40]
    samples = scenario.noise(rng, 1, 8 * chunk, 10)
    with harness.Receiver(destinations(config)):
        with daemon("fgpu", config) as process:
            for start in starts:
                harness.send_live(scenario.digitiser_heaps(config, samples, start))
                # The last that leaves because others come: as many as the window has stay open.
                metrics = process.wait_counted(
                    lambda m: min(m.get("fgpu_input_newest_timestamp", pol=pol) for pol in ("0", "1")) >= start + 5 * chunk,
                    "the last chunk")
            for pol in ("0", "1"):
                assert metrics.get("fgpu_input_jumps_total", pol=pol) == 1
                # All but the packets that were refused until the eighth was believed.
                assert metrics.get("fgpu_input_gap_samples_total", pol=pol) == 2**40 - 8 * chunk + 7 * packet
                assert metrics.get("fgpu_input_missing_heaps_total", pol=pol) == 0
                assert metrics.get("fgpu_input_rejected_packets_total", pol=pol, reason="jump") == 7
    output = scenario.model_of(config["outputs"][0])
    n_batches = 2 * 8 * chunk // output.batch
    skipped = re.search(r"(\d+) skipped", process.log.read_text())
    assert skipped and int(skipped.group(1)) <= 2 * n_batches, skipped
