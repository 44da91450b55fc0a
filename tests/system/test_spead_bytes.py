"""Every packet of both daemons equals, byte for byte, spead2's packet of the same heap as katgpucbf declares it."""
import numpy as np
import pytest
import spead2.send

import harness
import scenario
import test_beams
from harness import (BEAM_ANTS, BEAM_MASK, BF_RAW, FENG_ID, FENG_RAW, FLAVOUR, FREQUENCY, IMMEDIATE, TIMESTAMP,
                     XENG_RAW, XENG_WEIGHTS, endpoints, packets)

TIMESTAMP_TEXT = "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate."
FENG_ID_TEXT = "Uniquely identifies the F-Engine source for the data."
FENG_FREQUENCY_TEXT = "Identifies the first channel in the band of frequencies in the SPEAD heap."
FENG_RAW_TEXT = "Channelised complex data from both polarisations of digitiser associated with F-Engine."
XENG_FREQUENCY_TEXT = "Value of first channel in collections stored here."
XENG_RAW_TEXT = "Integrated baseline correlation products."
BEAM_FREQUENCY_TEXT = "Value of the first channel in collections stored here."
BEAM_ANTS_TEXT = "Count of antennas included in the beam sum."
BF_RAW_TEXT = "Beamformer output for frequency-domain beam."
BEAM_MASK_TEXT = "Antennas included in beam: antenna a is bit a % 8 of byte a / 8."


def feng_descriptors(n_chan, n_spectra, bits, encoding="twos_complement"):
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    group.add_item(TIMESTAMP, "timestamp", TIMESTAMP_TEXT, (), format=IMMEDIATE)
    group.add_item(FENG_ID, "feng_id", FENG_ID_TEXT, (), format=IMMEDIATE)
    group.add_item(FREQUENCY, "frequency", FENG_FREQUENCY_TEXT, (), format=IMMEDIATE)
    kind = {4: {"format": [("u" if encoding == "offset" else "i", 4)]}, 8: {"dtype": np.int8},
            16: {"dtype": np.dtype("<f2")}}[bits]
    group.add_item(FENG_RAW, "feng_raw", FENG_RAW_TEXT, (n_chan, n_spectra, 2, 2), **kind)
    return group.get_heap(descriptors="all", data="none")


def xeng_group(n_chan, n_products, dtype=np.int32):
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    group.add_item(FREQUENCY, "frequency", XENG_FREQUENCY_TEXT, (), format=IMMEDIATE)
    group.add_item(TIMESTAMP, "timestamp", TIMESTAMP_TEXT, (), format=IMMEDIATE)
    group.add_item(XENG_RAW, "xeng_raw", XENG_RAW_TEXT, (n_chan, n_products, 2), dtype)
    return group


def beam_group(n_chan, n_spectra):
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    group.add_item(TIMESTAMP, "timestamp", TIMESTAMP_TEXT, (), format=IMMEDIATE)
    group.add_item(FREQUENCY, "frequency", BEAM_FREQUENCY_TEXT, (), format=IMMEDIATE)
    group.add_item(BEAM_ANTS, "beam_ants", BEAM_ANTS_TEXT, (), format=IMMEDIATE)
    group.add_item(BF_RAW, "bf_raw", BF_RAW_TEXT, (n_chan, n_spectra, 2), np.int8)
    return group


def compare(found, expected):
    """Both are [(endpoint, bytes)] in order of departure."""
    for i, (f, e) in enumerate(zip(found, expected)):
        assert f[0] == e[0], f"packet {i} went to {f[0]}, not to {e[0]}"
        if f[1] != e[1]:
            at = next((k for k, (x, y) in enumerate(zip(f[1], e[1])) if x != y), min(len(f[1]), len(e[1])))
            raise AssertionError(f"packet {i} differs from byte {at} of {len(f[1])} ({len(e[1])} expected):\n"
                                 f"  found    {f[1][at & ~7:][:32].hex(' ', 8)}\n"
                                 f"  expected {e[1][at & ~7:][:32].hex(' ', 8)}")
    assert len(found) == len(expected)


def test_sizes_of_known_packets():
    """The sizes that katgpucbf's streams have (computed from the protocol's rules)."""
    assert [len(p) for p in packets(feng_descriptors(128, 256, 8), 1)] == [838]
    assert [len(p) for p in packets(feng_descriptors(128, 256, 4), 1)] == [766]
    assert [len(p) for p in packets(xeng_group(128, 12960).get_heap(descriptors="all", data="none"), 1)] == [609]
    assert [len(p) for p in packets(beam_group(128, 256).get_heap(descriptors="all", data="none"), 1)] == [755]
    assert [len(p) for p in packets(harness.stop_heap(), 1)] == [57]


@pytest.mark.parametrize("substreams", [1, 4])
@pytest.mark.parametrize("payload", [960, 1536, 7680])
@pytest.mark.parametrize("bits", [8, 4])
def test_fgpu(bits, payload, substreams, daemon, work, rng):
    """Descriptors, batches with their packets interleaved over the substreams, stop heaps: the whole capture."""
    config = scenario.fgpu_config(
        outputs=[{"channels": 128, "spectra_per_heap": 48, "sample_bits": bits, "gain": 0.3, "taps": 4}],
        feng_ids=(5,), substreams=substreams, send={"packet_payload": payload, "array_size": 7},
        recv={"sample_bits": 8})
    start = 2**48 - 12288 * 2
    start -= start % 1024
    samples = scenario.noise(rng, 1, 65536, 8)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    where = endpoints(config["outputs"][0]["destinations"])
    n_chan = 128 // substreams
    count = 5
    expected = []
    for endpoint in where:
        expected += [(endpoint, p) for p in packets(feng_descriptors(n_chan, 48, bits), count, payload + 72)]
        count += 7
    streams = scenario.fgpu_streams(config, found)
    assert len(streams[0, 0]) >= 4
    for timestamp, values in streams[0, 0].items():
        if bits == 4:
            values = ((values[..., 0] << 4) | (values[..., 1] & 15)).astype(np.uint8)
        heaps = []
        for substream in range(substreams):
            part = np.ascontiguousarray(values[substream * n_chan:(substream + 1) * n_chan])
            heap = harness.feng_heap(timestamp, 5, substream * n_chan, part)
            heaps.append(packets(heap, count, payload + 72))
            count += 7
        expected += [(where[i], p) for together in zip(*heaps) for i, p in enumerate(together)]
    for endpoint in where:
        expected += [(endpoint, p) for p in packets(harness.stop_heap(), count, payload + 72)]
        count += 7
    compare(harness.read_pcap(work / "run.out.pcap"), expected)


@pytest.mark.parametrize("missing, bits", [("flag", 8), ("flag", 4), ("flag", 16), ("weights", 8)])
@pytest.mark.parametrize("payload", [1000, 1024, 8192])
def test_xbgpu(payload, missing, bits, daemon, work, rng):
    """Descriptor, dumps, stop heap: the whole capture.  With weights, an item of ours is added behind the others."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 3, "missing": missing}],
                                   recv={"antennas": 5, "sample_bits": bits},
                                   send={"packet_payload": payload})
    voltages = scenario.random_voltages(rng, config, 20)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, scenario.feng_heaps(config, 2, voltages))
    (endpoint,) = endpoints(config["outputs"][0]["destination"])
    group = xeng_group(4, 60, "<f4" if bits == 16 else "<i4")
    sent = harness.read_pcap(work / "run.out.pcap")
    count = 2
    if missing == "weights":
        # How the extra item is described is our own business, but for the wire's sake it must parse.
        descriptors = [p for p in sent if p[1][8:16] == (0x8001 << 48 | count).to_bytes(8, "big")]
        expected = list(descriptors)
        group.add_item(XENG_WEIGHTS, "xeng_weights", "", (15,), np.uint32)
        assert found[endpoint][0].items.keys() == {"frequency", "timestamp", "xeng_raw", "xeng_weights"}
    else:
        descriptors = group.get_heap(descriptors="all", data="none")
        expected = [(endpoint, p) for p in packets(descriptors, count, payload + 64)]
    # The header grows by a pointer with the extra item; what a packet may carry of payload does not change.
    largest = payload + 64 + 8 * (missing == "weights")
    for heap in found[endpoint]:
        if heap.kind == "data":
            for name, value in heap.items.items():
                group[name].value = value
            data = group.get_heap(descriptors="none", data="all")
            data.repeat_pointers = True
            expected += [(endpoint, p) for p in packets(data, heap.cnt, largest)]
    assert sum(h.kind == "data" for h in found[endpoint]) == 6
    expected += [(endpoint, p) for p in packets(harness.stop_heap(), 2 + 16 * 7, largest)]
    compare(sent, expected)


@pytest.mark.parametrize("payload, n_ants, masked",
                         [(704, 5, False), (1152, 5, False), (8192, 5, False), (1000, 57, True)])
def test_beams_of_xbgpu(payload, n_ants, masked, daemon, work, rng):
    """The whole output for the beams: descriptors, batches with their packets interleaved over the beams, stop heaps.
    The bitmap of antennas is our own item after the others (spead2 makes immediates of less than 7 bytes)."""
    config = test_beams.beams_config([{"dither_seed": i} for i in range(3)],
                                     recv={"antennas": n_ants, "spectra_per_heap": 144},
                                     send={"packet_payload": payload}, steering={"antenna_mask": masked})
    n = 9
    voltages, present = test_beams.random_voltages(rng, config, n), rng.random((n, n_ants)) > 0.3
    present[0], present[4] = True, False
    found = scenario.run_pcap(daemon, "xbgpu", config, work, scenario.feng_heaps(config, 2**20, voltages, present, rng))
    where = [endpoints(beam["destination"])[0] for beam in config["beams"]]
    sent = [packet for packet in harness.read_pcap(work / "run.out.pcap") if packet[0] in where]
    recv, group = config["recv"], beam_group(8, 144)
    count, step = recv["channel_offset"] // 8, recv["channels"] // 8
    if masked:
        group.add_item(BEAM_MASK, "beam_mask", BEAM_MASK_TEXT, (-(-n_ants // 8),), np.uint8)
    descriptors, largest = group.get_heap(descriptors="all", data="none"), payload + 72 + 8 * masked
    expected = [(where[i], p) for i in range(3) for p in packets(descriptors, count + i * step, largest)]
    batches = [[heap for heap in found[endpoint] if heap.kind == "data"] for endpoint in where]
    for beams in zip(*batches, strict=True):
        heaps = []
        for heap in beams:
            for name, value in heap.items.items():
                group[name].value = value
            data = group.get_heap(descriptors="none", data="all")
            data.repeat_pointers = True
            heaps.append(packets(data, heap.cnt, largest))
        expected += [(where[i], p) for together in zip(*heaps, strict=True) for i, p in enumerate(together)]
    assert [heap.cnt for beams in zip(*batches) for heap in beams] == [count + step * i for i in range(3, 3 * n)]
    expected += [(where[i], p) for i in range(3) for p in packets(harness.stop_heap(), count + (3 * n + i) * step)]
    compare(sent, expected)
