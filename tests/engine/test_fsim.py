"""fsim: every packet of its captures as spead2 makes them of the voltages that numpy computes; and fsim -> xbgpu, by
captures and live, every dump as numpy or a closed form has it."""
import copy

import numpy as np
import pytest
import spead2.send

import fsimmodel
import harness
import scenario
import xmodel
from harness import FENG_ID, FENG_RAW, FLAVOUR, FREQUENCY, IMMEDIATE, TIMESTAMP, endpoints, groups, merge, packets
from test_spead_bytes import FENG_FREQUENCY_TEXT, FENG_ID_TEXT, FENG_RAW_TEXT, TIMESTAMP_TEXT, compare
from test_xbgpu import n_magic

FSIM = {
    "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000},
    "stream": {"antennas": 3, "channels": 64, "channels_per_substream": 4, "channel_offset": 8, "spectra_per_heap": 16,
               "samples_between_spectra": 128, "first_timestamp": 0},
    "signal": {"kind": "noise"},
    "send": {"rate_factor": 0},
}
SIGNALS = {
    "constant": {"kind": "constant", "real": [7, -7, 3], "imag": [-8, 5]},
    "tone": {"kind": "tone", "amplitude": 7, "delays": [0, 1, 2, -3, 5], "rates": [0, 0, 1, 0]},
    "noise": {"kind": "noise", "seed": 2**40 + 17, "rms": 2.5, "correlation": 0.3, "period": 3},
    "uniform": {"kind": "uniform", "seed": 5, "period": 4},
}
FORMATS = [(8, "twos_complement"), (4, "twos_complement"), (4, "offset"), (16, "twos_complement")]


def fsim_config(signal, n_batches, substreams=1, **sections):
    """A configuration that sends some batches; "n_substreams" is for the model."""
    config = merge(FSIM, sections)
    config["signal"] = copy.deepcopy(signal)
    stream = config["stream"]
    stream["destinations"] = groups(substreams)
    stream["duration"] = (n_batches + 0.5) * batch_samples(config) / config["time"]["adc_sample_rate"]
    config["n_substreams"] = substreams
    return config


def batch_samples(config):
    return config["stream"]["spectra_per_heap"] * config["stream"]["samples_between_spectra"]


def start(daemon, config, name="fsim"):
    return daemon("fsim", {k: v for k, v in config.items() if k != "n_substreams"}, name)


def capture(daemon, config, path):
    config["send"]["pcap_file"] = str(path)
    return start(daemon, config).wait_end()


# ---- Packets ---------------------------------------------------------------------------------------------------------


def feng_descriptors(config):
    stream = config["stream"]
    bits = stream.get("sample_bits", 8)
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    group.add_item(TIMESTAMP, "timestamp", TIMESTAMP_TEXT, (), format=IMMEDIATE)
    group.add_item(FENG_ID, "feng_id", FENG_ID_TEXT, (), format=IMMEDIATE)
    group.add_item(FREQUENCY, "frequency", FENG_FREQUENCY_TEXT, (), format=IMMEDIATE)
    kind = {4: {"format": [("u" if stream.get("encoding") == "offset" else "i", 4)]}, 8: {"dtype": np.int8},
            16: {"dtype": np.dtype("<f2")}}[bits]
    shape = (stream["channels_per_substream"], stream["spectra_per_heap"], 2, 2)
    group.add_item(FENG_RAW, "feng_raw", FENG_RAW_TEXT, shape, **kind)
    return group.get_heap(descriptors="all", data="none")


def expected_packets(config, v):
    """All packets of a capture of v[batch][ant]..., which begins with the batch of first_timestamp."""
    stream, where = config["stream"], endpoints(config["stream"]["destinations"])
    n_ants, cps, size = stream["antennas"], stream["channels_per_substream"], config["send"]["packet_payload"] + 72
    first = stream["first_timestamp"] // batch_samples(config)
    seconds = batch_samples(config) / config["time"]["adc_sample_rate"]
    encoded, counts, due = fsimmodel.encode(config, v), list(range(n_ants)), [0.0] * n_ants
    out = []

    def heap_of(ant, destination, heap):
        counts[ant] += n_ants
        return [(where[destination], p) for p in packets(heap, counts[ant] - n_ants, size)]

    for b in range(len(v)):
        for ant in range(n_ants):
            if b * seconds >= due[ant]:
                due[ant] += 5 * (ant + 1 if due[ant] == 0 else n_ants)
                out += [p for d in range(len(where)) for p in heap_of(ant, d, feng_descriptors(config))]
        heaps = []
        for ant in range(n_ants):
            if fsimmodel.is_dropped(config, first + b, ant):
                continue
            for d in range(len(where)):
                part = np.ascontiguousarray(encoded[b, ant, d * cps:(d + 1) * cps])
                heap = harness.feng_heap((first + b) * batch_samples(config), ant, stream["channel_offset"] + d * cps, part)
                heaps.append(heap_of(ant, d, heap))
        out += [p for together in zip(*heaps) for p in together]
    for ant in range(n_ants):
        out += [p for d in range(len(where)) for p in heap_of(ant, d, harness.stop_heap())]
    return out


@pytest.mark.parametrize("bits, encoding", FORMATS)
@pytest.mark.parametrize("kind", SIGNALS)
def test_packets(kind, bits, encoding, daemon, work):
    """The whole capture, byte for byte, with several substreams and packets that do not divide a heap."""
    config = fsim_config(SIGNALS[kind], 9, 2, stream={"sample_bits": bits, "encoding": encoding, "antennas": 5,
                                                      "channels_per_substream": 16, "spectra_per_heap": 18,
                                                      "channel_offset": 16, "first_timestamp": 18 * 128 * 7},
                         send={"packet_payload": 808})
    v = fsimmodel.values(config, 7, 9)
    capture(daemon, config, work / "out.pcap")
    compare(harness.read_pcap(work / "out.pcap"), expected_packets(config, v))
    if kind == "noise":
        assert 0.2 < np.mean(v[:, 0, ..., 0, :] * v[:, 1, ..., 0, :]) / np.mean(v**2) < 0.4
        assert abs(np.mean(v[..., 0, :] * v[..., 1, :])) / np.mean(v**2) < 0.1
    if kind == "uniform":
        limit = {4: 8, 8: 128, 16: 2048}[bits]
        assert v.min() < -0.99 * limit and v.max() > 0.97 * (limit - 1) and len(np.unique(v)) > 1.5 * min(limit, 128)


@pytest.mark.parametrize("bits, encoding", FORMATS)
def test_decoded(bits, encoding, daemon, work):
    """What spead2 makes of it by the descriptors alone; a timestamp that wraps; descriptors on schedule."""
    step = 16 * 2**20
    first = (2**48 // step - 3) * step
    config = fsim_config(SIGNALS["noise"], 8, 3, stream={"sample_bits": bits, "encoding": encoding, "antennas": 2,
                                                         "samples_between_spectra": 2**20, "first_timestamp": first},
                         time={"adc_sample_rate": step / 3}, send={"packet_payload": 1024})
    v = fsimmodel.values(config, first // step, 8)
    if encoding == "offset":
        v = v + 8
    if bits == 16:
        v = v.astype("<f2")
    capture(daemon, config, work / "out.pcap")
    found = harness.decode_pcap(work / "out.pcap")
    assert list(found) == endpoints(config["stream"]["destinations"])
    for d, heaps in enumerate(found.values()):
        data = [h for h in heaps if h.kind == "data"]
        assert [h.items["timestamp"] for h in data] == [(first + b * step) % 2**48 for b in range(8) for _ in range(2)]
        assert [h.kind for h in heaps[-2:]] == ["stop"] * 2
        # At 0 s; antenna 0 at 5 s, antenna 1 at 10 s, both every 10 s; a batch is 3 s.
        descriptors = [(i, h.cnt % 2) for i, h in enumerate(heaps) if h.kind == "descriptor"]
        assert descriptors == [(0, 0), (1, 1), (6, 0), (11, 1), (14, 0), (19, 1)]
        for h in data:
            b = ((h.items["timestamp"] - first) % 2**48) // step
            assert h.items["frequency"] == 8 + 4 * d
            assert np.array_equal(h.items["feng_raw"], v[b, h.items["feng_id"], 4 * d:4 * d + 4])


def test_fgpu_sends_the_same(daemon, work, rng):
    """Packets of fgpu and of fsim that carry the same timestamps differ in nothing but the voltages."""
    config = scenario.fgpu_config(outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4}], substreams=2,
                                  send={"packet_payload": 1024, "array_size": 1}, recv={"sample_bits": 8})
    samples = scenario.noise(rng, 1, 32768, 8)
    scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    sent = harness.read_pcap(work / "run.out.pcap")
    heaps = [p for _, p in sent if len(p) == 72 + 1024]
    n_batches = len(heaps) // (2 * 2)
    first = int.from_bytes(heaps[0][42:48], "big")
    like = fsim_config(SIGNALS["noise"], n_batches, 2,
                       stream={"antennas": 1, "channels_per_substream": 32, "channel_offset": 0,
                               "first_timestamp": first}, send={"packet_payload": 1024})
    like["stream"]["destinations"] = config["outputs"][0]["destinations"]
    capture(daemon, like, work / "fsim.pcap")
    found = harness.read_pcap(work / "fsim.pcap")
    assert n_batches >= 10 and len(found) == len(sent)
    for f, s in zip(found, sent):
        assert f[0] == s[0] and len(f[1]) == len(s[1])
        assert f[1][:72] == s[1][:72] and (len(s[1]) == 72 + 1024 or f[1] == s[1])


# ---- fsim -> xbgpu ---------------------------------------------------------------------------------------------------


def xbgpu_config(config, outputs, **recv):
    """That of an X-engine of the first substream."""
    stream = config["stream"]
    keys = ("antennas", "channels", "channels_per_substream", "channel_offset", "spectra_per_heap",
            "samples_between_spectra")
    out = scenario.xbgpu_config(outputs, recv={k: stream[k] for k in keys} | recv)
    out["time"] = merge(out["time"], config["time"])
    out["recv"]["sources"] = "{}:{}".format(*endpoints(stream["destinations"])[0])
    return out


def correlate(daemon, work, config, outputs, first_batch, v, present, **recv):
    """Plays fsim's capture to xbgpu and compares every dump with numpy's.  Returns those of output 0."""
    xbgpu = xbgpu_config(config, outputs, **recv)
    capture(daemon, config, work / "fsim.pcap")
    found = scenario.run_capture(daemon, "xbgpu", xbgpu, work / "fsim.pcap", work / "xbgpu.pcap")
    cps, all_dumps = config["stream"]["channels_per_substream"], []
    for o, output in enumerate(xbgpu["outputs"]):
        dumps = xmodel.dumps(first_batch, v[:, :, :cps].astype(np.int8), present, output["integration_batches"],
                             output.get("missing", "flag"))
        scenario.check_dumps(xbgpu, o, found[endpoints(output["destination"])[0]], dumps)
        all_dumps.append(dumps)
    return all_dumps[0]


@pytest.mark.parametrize("n_ants", [1, 4, 7])
@pytest.mark.parametrize("kind", SIGNALS)
def test_correlated(kind, n_ants, daemon, work):
    """Two lengths; the second of two substreams is none of xbgpu's business."""
    config = fsim_config(SIGNALS[kind], 24, 2, stream={"antennas": n_ants, "first_timestamp": 3 * 16 * 128})
    v = fsimmodel.values(config, 3, 24)
    dumps = correlate(daemon, work, config, [{"integration_batches": 3}, {"integration_batches": 7}], 3, v,
                      np.ones(v.shape[:2], bool))
    assert len(dumps) == 8 and not any(n_magic(vis) for vis, _, _ in dumps.values())


@pytest.mark.parametrize("drop", [1, 4, 17])
def test_drop(drop, daemon, work):
    """Heaps left out on purpose are missing where the rule says, and nowhere else; with 1 nothing is sent at all."""
    config = fsim_config(SIGNALS["uniform"], 30, 1, stream={"drop": drop})
    v, present = fsimmodel.values(config, 0, 30), fsimmodel.present(config, 0, 30)
    assert abs(np.count_nonzero(~present) - 90 / drop) <= 1
    if drop == 1:
        capture(daemon, config, work / "fsim.pcap")
        assert {h.kind for h in harness.decode_pcap(work / "fsim.pcap")[endpoints(config["stream"]["destinations"])[0]]} \
            == {"descriptor", "stop"}
        return
    correlate(daemon, work, config, [{"integration_batches": 2, "missing": "weights"}, {"integration_batches": 2}], 0, v,
              present)


def test_closed_form(daemon, work):
    """The sums that fsim_signal.h promises, without a model of each voltage in between."""
    signal = {"kind": "tone", "amplitude": 11, "delays": [0, 1, 2, 3, -5, 7, 4, 9], "rates": [0, 0, 1, 1, 0, 4, 2, 3]}
    config = fsim_config(signal, 10, 1, stream={"antennas": 4})
    xbgpu = xbgpu_config(config, [{"integration_batches": 5}])
    capture(daemon, config, work / "fsim.pcap")
    found = scenario.run_capture(daemon, "xbgpu", xbgpu, work / "fsim.pcap", work / "xbgpu.pcap")
    (heaps,) = found.values()
    dumps = [h.items["xeng_raw"] for h in heaps if h.kind == "data"]
    assert len(dumps) == 2
    for c in range(4):
        for a2 in range(4):
            for a1 in range(a2 + 1):
                for p1 in range(2):
                    for p2 in range(2):
                        x, y = 2 * a1 + p1, 2 * a2 + p2
                        same = (signal["rates"][x] - signal["rates"][y]) % 4 == 0
                        turns = (signal["delays"][x] - signal["delays"][y]) * (8 + c)
                        value = same * 5 * 16 * 11**2 * [1, 1j, -1, -1j][turns % 4]
                        for dump in dumps:
                            assert complex(*dump[c, 4 * xmodel.baseline(a1, a2) + p1 + 2 * p2]) == value


@pytest.mark.parametrize("send_threads, recv_threads", [(1, 1), (3, 2)])
def test_live(send_threads, recv_threads, daemon, work):
    """Over loopback multicast, paced by the clock and with its timestamps, until it is stopped: no heap is missing."""
    config = fsim_config(SIGNALS["uniform"], 1, 1, time={"adc_sample_rate": 16 * 128 * 200},
                         stream={"antennas": 6, "duration": 0, "first_timestamp": -1},
                         send={"interface": harness.LOOPBACK, "ttl": 0, "rate_factor": 1.1, "threads": send_threads})
    config["stream"]["duration"] = 0
    config["http"] = {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}"}
    xbgpu = xbgpu_config(config, [{"integration_batches": 20}], interface=harness.LOOPBACK, threads=recv_threads)
    xbgpu["time"]["timebase"] = "clock"
    xbgpu["send"]["interface"] = harness.LOOPBACK
    with harness.Receiver(xbgpu["outputs"][0]["destination"]) as receiver:
        x = daemon("xbgpu", xbgpu).wait_ready()
        fsim = start(daemon, config).wait_ready()
        receiver.wait(lambda heaps: sum(h.kind == "data" for h in heaps) >= 8, "8 dumps")
        metrics = fsim.metrics()
        fsim.terminate().wait_end()
        x.terminate().wait_end()
        receiver.wait_stops()
    assert metrics.get("fsim_output_heaps_total") >= 6 * 20 * 7
    assert " 0 packets failed" in fsim.log.read_text()
    length = 20 * batch_samples(config)
    v = fsimmodel.values(config, 0, 4).astype(np.int8)
    for i, heap in enumerate(receiver.data()):
        first = heap.items["timestamp"] // length * 20
        expected = xmodel.correlate(v[(first + np.arange(20)) % 4], np.ones((20, 6), bool))
        found = heap.items["xeng_raw"]
        if i == 0 and n_magic(found):
            continue
        assert np.array_equal(found, expected), f"dump {i} at {heap.items['timestamp']}"
