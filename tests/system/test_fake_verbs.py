"""The software libibverbs of tests/fakes/verbs against spead2, whose ibverbs sender and receiver work with real NICs.
Over it spead2's sender and receiver exchange heaps with each other, with sockets, and with our engines.
check_fake_verbs.c tests the rest."""
import os
import time
from unittest import mock

import numpy as np
import pytest
import spead2.recv
import spead2.send

import harness
import scenario
import test_fgpu_stream
import test_xbgpu_stream
import verbs
import xmodel
from harness import Sent, endpoints, groups

pytestmark = pytest.mark.skipif(not hasattr(spead2.recv, "UdpIbvConfig"), reason="this spead2 has no ibverbs")
RATE = 20e6  # bytes per second
MAX_PACKET = verbs.MTU - 28
PATIENT = "patient=1"  # no frame is lost, however busy the machine is


@pytest.fixture
def wire(monkeypatch, capfd):
    """The daemon's end, and spead2's end in this process, which must not misuse its device."""
    verbs.load()
    monkeypatch.setenv("CBF_FAKE_VERBS_LIMITS", PATIENT)
    with verbs.fake_wire(limits=PATIENT) as ends:
        yield ends
    assert "fake verbs" not in capfd.readouterr().err


# ---- spead2 with itself ----------------------------------------------------------------------------------------------


def exchange(wire, rng, sender, receiver, **more):
    """Heaps from one end to two groups at the other.  Other heaps go to another port, and to a group with the same
    Ethernet address, without a listener."""
    mine = endpoints(groups(2))
    others = [(mine[0][0], mine[0][1] + 1), (mine[1][0].replace("239.", "238."), mine[1][1])]
    items = spead2.send.ItemGroup(flavour=harness.FLAVOUR)
    items.add_item(harness.ADC_SAMPLES, "samples", "", (100003,), np.uint8)
    data = rng.integers(0, 256, (40, 100003), np.uint8)
    sent = [Sent(e, items.get_heap(descriptors="all", data="none"), 1 + i) for i, e in enumerate(mine + others)]
    for i, content in enumerate(data):
        for e in (mine[i % 2], others[i % 2]):
            heap = harness.make_heap([harness.payload_item(harness.ADC_SAMPLES, content)])
            sent.append(Sent(e, heap, 10 + len(sent)))
    sent += [Sent(e, harness.stop_heap(), 1000 + i) for i, e in enumerate(mine)]
    where = ",".join(f"{host}:{port}" for host, port in mine)
    with harness.Receiver(where, wire[0].address, ibverbs=receiver == "ibverbs") as receiver:
        start = time.monotonic()
        harness.send_live(sent, RATE, MAX_PACKET, wire[1].address, sender == "ibverbs", **more)
        assert time.monotonic() - start > 0.9 * 2 * data.size / RATE
        receiver.wait_stops()
    found = scenario.by_endpoint(receiver.heaps)
    for i, endpoint in enumerate(mine):
        assert [h.cnt for h in found[endpoint]] == [s.cnt for s in sent if s.endpoint == endpoint]
        values = [h.items["samples"] for h in found[endpoint] if h.kind == "data"]
        assert np.array_equal(values, data[i::2])


@pytest.mark.parametrize("sender, receiver", [("ibverbs", "ibverbs"), ("udp", "ibverbs"), ("ibverbs", "udp")])
def test_heaps_arrive(sender, receiver, wire, rng):
    exchange(wire, rng, sender, receiver)


def test_a_card_without_help(wire, rng, monkeypatch):
    """No checksums, no rates, short queues, one completion vector."""
    monkeypatch.setenv("CBF_FAKE_VERBS_LIMITS", f"{PATIENT},ip_csum=0,max_rate_kbps=0,max_qp_wr=300,comp_vectors=1")
    exchange(wire, rng, "ibverbs", "ibverbs")


def test_hardware_rate(wire, rng):
    """The card keeps the rate that spead2 asks it to."""
    exchange(wire, rng, "ibverbs", "ibverbs", rate_method=spead2.send.RateMethod.HW)


# ---- spead2 with our engines -----------------------------------------------------------------------------------------


def over(end):
    """Keys of an engine's configuration that send all its traffic over one end of the wire."""
    through = {"interface": end.interface, "transport": "ibverbs"}
    return {"recv": through, "send": through}


def run(daemon, program, config, end):
    with mock.patch.dict(os.environ, end.env):
        process = daemon(program, config).wait_ready()
    trace = "\n".join(end.trace)
    assert "ibv_create_flow" in trace and "recv 0 x 0" in trace, trace  # a queue that receives, and one that only sends
    sources = [config["recv"]["sources"]] if program == "xbgpu" else \
        [antenna[pol] for antenna in config["antennas"] for pol in ("pol0", "pol1")]
    assert {host for source in sources for host, _ in endpoints(source)} <= end.joined  # or a switch sends nothing
    return process


def test_fgpu(wire, daemon, rng):
    """Digitisers' heaps from spead2 to an F-engine and its voltages back, all over ibverbs."""
    config = harness.merge(test_fgpu_stream.live_config(
        outputs=[{"channels": 64, "gain": 0.4, "substreams": 4},
                 {"channels": 256, "gain": 0.4, "spectra_per_heap": 32, "taps": 4, "substreams": 1}],
        feng_ids=(2, 0), send={"threads": 2}), over(wire[0]))
    start, samples = 2**40, scenario.noise(rng, 2, 8192 * 24, 10)
    with harness.Receiver(test_fgpu_stream.destinations(config), wire[1].address, ibverbs=True) as receiver:
        process = run(daemon, "fgpu", config, wire[0])
        harness.send_live(scenario.digitiser_heaps(config, samples, start), max_packet=MAX_PACKET,
                          interface_address=wire[1].address, ibverbs=True)
        test_fgpu_stream.wait_batches(receiver, config, start, samples)
        streams = test_fgpu_stream.finish(config, process, receiver)
    test_fgpu_stream.check(config, streams, samples, start)


def test_xbgpu(wire, daemon, rng):
    """F-engines' heaps from spead2 to an X-engine and its dumps back, all over ibverbs."""
    config = harness.merge(test_xbgpu_stream.live_config(
        outputs=[{"integration_batches": 3}, {"integration_batches": 8, "missing": "weights"}],
        recv={"antennas": 4, "window": 8}), over(wire[0]))
    first_batch, n_sure = 48, 72
    voltages = scenario.random_voltages(rng, config, 96)
    present = rng.random((96, 4)) > 0.01
    present[[0, -1]] = True
    with harness.Receiver(test_xbgpu_stream.destinations(config), wire[1].address, ibverbs=True) as receiver:
        process = run(daemon, "xbgpu", config, wire[0])
        harness.send_live(scenario.feng_heaps(config, first_batch, voltages, present), max_packet=MAX_PACKET,
                          interface_address=wire[1].address, ibverbs=True)
        for index, length in enumerate([3, 8]):
            test_xbgpu_stream.wait_window(receiver, config, index, (first_batch + n_sure) // length - 1)
        found = test_xbgpu_stream.finish(config, process, receiver)
    for index, output in enumerate(config["outputs"]):
        expected = xmodel.dumps(first_batch, voltages, present, output["integration_batches"],
                                output.get("missing", "flag"))
        test_xbgpu_stream.check_first(config, index, found, expected, n_sure // output["integration_batches"])
