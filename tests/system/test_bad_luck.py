"""The scenarios of docs/reliability.md that no other file has: wrong times, mixed configurations, an interface that goes down,
and a slow device."""
import contextlib
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import chain
import fmodel
import harness
import scenario
import stopping
import test_fgpu_stream
import test_xbgpu_stream
import verbs
import xmodel
from harness import SYNCHRONISED, UNSYNCHRONISED, endpoints, merge

# ---- One antenna whose time is wrong ---------------------------------------------------------------------------------

N_ANTS, WRONG, LENGTH = 4, 3, 4  # antennas, the antenna with the wrong time, batches of a dump
BATCH_S = 1 / 32
JUMP_HEAPS = 8  # heaps of each F-engine after which the X-engine follows the majority
LATE_S = 0.5  # a silence of 1.25 s closes the open chunks
RECOVERY = JUMP_HEAPS + LENGTH  # batches: after a stall of the sender one more dump may begin before the jump


class Paced:
    """Sends heaps of voltages in real time.  'n_sent' counts the heaps of each antenna; 'late_s' is the largest delay of a
    batch by a busy host."""

    def __init__(self, config, voltages, shift_batches):
        self.config, self.voltages, self.shift = config, voltages, shift_batches
        (self.endpoint,) = endpoints(config["recv"]["sources"])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(harness.LOOPBACK))
        time_section = config["time"]
        self.first = int((time.time() - time_section["sync_time"]) / BATCH_S) // LENGTH * LENGTH + 2 * LENGTH
        self.start = time_section["sync_time"] + self.first * BATCH_S
        self.n_sent = [0] * N_ANTS
        self.late_s = 0

    @harness.priority()
    def send(self, batches, ants):
        for batch in batches:
            time.sleep(max(0.0, self.start + (batch + 1) * BATCH_S - time.time()))
            for ant in ants:
                number = self.first + batch + (self.shift if ant == WRONG else 0)
                heap = harness.feng_heap(number * scenario.batch_samples(self.config), ant,
                                         self.config["recv"]["channel_offset"], self.voltages[batch, ant])
                for packet in harness.packets(heap, ant + N_ANTS * (batch + 1)):
                    self.socket.sendto(packet, self.endpoint)
                self.n_sent[ant] += 1
            self.late_s = max(self.late_s, time.time() - (self.start + (batch + 1) * BATCH_S))


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("shift_s", [3, 1, -1])
def test_one_antenna_off(shift_s, is_first, daemon, rng):
    """One of four antennas is ahead or behind, as with a wrong sync time.  All other baselines are exact.  If the wrong
    antenna is heard first, the others are back after RECOVERY batches.  The data come in real time: if the sender was late
    by more than LATE_S, a new engine gets new data.  The engine and the sender have priority, so that a busy host
    seldom delays them."""
    for _ in range(5):
        if try_one_antenna_off(shift_s, is_first, daemon, rng):
            return
    pytest.fail(f"the sender was late by more than {LATE_S} s each time")


def try_one_antenna_off(shift_s, is_first, daemon, rng):
    """Returns False if the sender was late."""
    config = test_xbgpu_stream.live_config(
        [{"integration_batches": LENGTH}], recv={"antennas": N_ANTS},
        time={"adc_sample_rate": 65536, "sync_time": int(time.time()) - 1000, "timebase": "clock"})
    assert scenario.batch_samples(config) / 65536 == BATCH_S
    n_batches, alone = 24 * LENGTH, 12 if is_first else 0
    voltages = scenario.random_voltages(rng, config, n_batches)
    with harness.Receiver(test_xbgpu_stream.destinations(config)) as receiver:
        process = daemon("xbgpu", config, first=True).wait_ready()
        sender = Paced(config, voltages, round(shift_s / BATCH_S))
        sender.send(range(alone), [WRONG])
        sender.send(range(alone, 2 * alone or LENGTH), range(N_ANTS) if is_first else range(N_ANTS - 1))
        sender.send(range(2 * alone or LENGTH, n_batches), range(N_ANTS))
        if sender.late_s > LATE_S:
            process.terminate().wait_end()
            return False
        last = (sender.first + n_batches) // LENGTH - 3
        test_xbgpu_stream.wait_window(receiver, config, 0, last)
        n_taken = range(alone + JUMP_HEAPS - 1, alone + RECOVERY) if is_first else [0]
        metrics = process.wait_counted(
            lambda m: sender.n_sent[WRONG] - m.get("xbgpu_feng_refused_heaps_total", feng=WRONG) in n_taken, "refused heaps")
        process.terminate().wait_end()
        receiver.wait_stops(1)
        found = {heap.items["timestamp"]: heap.items["xeng_raw"] for heap in receiver.data()}
    present = np.ones((LENGTH, N_ANTS), bool)
    present[:, WRONG] = False
    first = (alone + RECOVERY if is_first else 0) // LENGTH + sender.first // LENGTH
    for window in range(first, last + 1):
        at = window * LENGTH - sender.first
        expected, _, _ = xmodel.dump(voltages[at:at + LENGTH], present)
        np.testing.assert_array_equal(found[window * LENGTH * scenario.batch_samples(config)], expected, f"dump {window}")
    assert metrics.get("xbgpu_input_jumps_total") == is_first
    return True


# ---- The host's clock ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(harness.SANITIZED, reason="the clock is preloaded, which a sanitizer's runtime does not allow")
@pytest.mark.parametrize("step_s", [-1, 3600])
def test_stepped_clock(step_s, daemon, work, rng):
    """The clock is stepped by an hour, or by the second of a leap second, while data come: every batch is sent.  An engine
    that starts then sends every batch, too."""
    config = test_fgpu_stream.live_config([{"gain": 0.4}], time={"adc_sample_rate": 262144})
    start = test_fgpu_stream.clocked(config)
    samples = scenario.noise(rng, 1, 8192 * 48, 10)
    rate = 2 * 262144 * 1.25
    sent = scenario.digitiser_heaps(config, samples, start)
    third = len(sent) // 3
    for name in ("before", "after"):
        clock = harness.Clock(work / f"{name}.clock", 0 if name == "before" else step_s, SYNCHRONISED)
        config["http"] = {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}
        with harness.Receiver(test_fgpu_stream.destinations(config)) as receiver:
            process = daemon("fgpu", config, name, clock=clock).wait_ready()
            harness.send_live(sent[:third], rate=rate)
            clock.set(step_s, SYNCHRONISED)
            harness.send_live(sent[third:2 * third], rate=rate)
            clock.set(step_s, UNSYNCHRONISED)
            harness.send_live(sent[2 * third:], rate=rate)
            test_fgpu_stream.wait_batches(receiver, config, start, samples)
            metrics = process.metrics()
            streams = test_fgpu_stream.finish(config, process, receiver)
        test_fgpu_stream.check(config, streams, samples, start)
        for pol in range(2):
            for counter in ("missing_heaps", "jumps", "rejected_packets"):
                assert metrics.get(f"fgpu_input_{counter}_total", pol=pol) == 0, (name, counter)


# ---- F-engines that differ -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key, value", [("channels", 512), ("sample_bits", 4), ("spectra_per_heap", 64)])
def test_mixed_configurations(key, value, daemon, work, references):
    """An F-engine sends heaps of another size than the rest of the array.  The X-engines refuse its packets by reason, and
    the other baselines are exact."""
    layout = chain.Layout(work)
    output = layout.fgpu(1)["outputs"][0]
    layout.overrides["fgpu1"] = {"outputs": [output | {key: value}]}
    dumps = chain.Dumps(layout, references)
    array = chain.Chain(daemon, layout)
    try:
        array.start(*chain.NAMES)
        pages = [array[f"xbgpu{i}"].wait_metric(
            lambda m: sum(m.get("xbgpu_input_rejected_packets_total", reason=r) for r in ("heap_size", "bad_frequency")) > 0,
            "refused packets") for i in range(2)]
        dumps.wait_dumps(2, chain.now_samples(), baselines=[0])
    finally:
        dumps.receiver.stop()
    for received in dumps.dumps:
        assert all(dump.present[1:] == [False, False] for dump in received)
    for page in pages:
        assert page.get("xbgpu_feng_heaps_total", feng=1) == 0
        assert page.get("xbgpu_feng_missing_heaps_total", feng=0) == 0


# ---- An interface that goes down -------------------------------------------------------------------------------------


@contextlib.contextmanager
def wire():
    """Two interfaces of this host, joined by a cable, in a network namespace of this thread."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    with verbs.namespace():
        ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        for i, name in enumerate(("near", "far")):
            Path(f"/proc/sys/net/ipv4/conf/{name}/accept_local").write_text("1")
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
            ip("address", "add", f"10.61.0.{i + 1}/24", "dev", name)
            ip("link", "set", name, "up")
        yield ip


def test_interface_down_and_up(daemon, rng):
    """The interface of the input goes down for some packets, and comes up again.  The engine continues by itself: exactly
    the packets of the outage are missing, and exactly the batches that need them are absent."""
    with wire() as ip:
        config = test_fgpu_stream.live_config([{"gain": 0.4}], recv={"interface": "near"}, time={"timebase": "packets"})
        output = scenario.model_of(config["outputs"][0])
        n_packets, outage = 16 * 48, range(16 * 20 + 5, 16 * 23 + 9)  # a chunk has 16 packets
        samples = scenario.noise(rng, 1, 512 * n_packets, 10)
        sent = scenario.digitiser_heaps(config, samples, 0)

        def turn(state):
            ip("link", "set", "near", state)
            harness.until(lambda: f"state {state.upper()}" in subprocess.check_output(["ip", "link", "show", "near"], text=True),
                          state)

        def send(first, last):
            harness.send_live(sent[2 * first:2 * last], interface_address="10.61.0.2")

        with harness.Receiver(test_fgpu_stream.destinations(config)) as receiver:
            process = daemon("fgpu", config).wait_ready()
            send(0, outage.start)
            turn("down")
            send(outage.start, outage.stop)
            turn("up")
            send(outage.stop, n_packets)
            test_fgpu_stream.wait_batches(receiver, config, 0, samples)
            metrics = process.metrics()
            streams = test_fgpu_stream.finish(config, process, receiver)
    present = np.ones((2, n_packets), bool)
    present[:, outage] = False
    expected = fmodel.batches_present(0, present, 512, output)
    got = [timestamp // output.batch for timestamp in streams[0, 0]]
    assert got == expected[:len(got)] and len(got) >= len(expected) - 2 * 8192 // output.batch - 1
    models = fmodel.voltages(0, samples[0], output)
    scenario.compare_voltages(np.stack(list(streams[0, 0].values())), np.stack([models[b] for b in got]), output.limit, "fgpu")
    for pol in range(2):
        assert metrics.get("fgpu_input_missing_heaps_total", pol=pol) == len(outage)
        assert metrics.get("fgpu_input_rejected_packets_total", pol=pol) == 0


# ---- A slow device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, thread", [("fgpu0", "compute0"), ("xbgpu0", "compute")])
def test_slow_device(name, thread, running):
    """The thread that computes stands still until all buffers are full.  Every dump is right or flagged, and complete
    dumps come again."""
    recv = {"fgpu0": {"chunks": 11}, "xbgpu0": {"chunks": 19}}[name]
    array, dumps = running({name: {"recv": recv | {"buffer": 32768}}})
    dumps.wait_dumps(2, 0)
    prefix = f"{name[:-1]}_input"

    def lost(metrics):
        return metrics.get(f"{prefix}_kernel_drops") + metrics.get(f"{prefix}_rejected_packets_total", reason="no_chunk")

    with stopping.stopped(stopping.threads(array[name].process.pid)[thread]):
        array[name].wait_metric(lambda metrics: lost(metrics) > 0, "a loss")
    dumps.wait_dumps(2, chain.now_samples())
    array.check_alive(*chain.NAMES)
    assert array[name].metrics().get(f"{prefix}_missing_heaps_total") > 0
