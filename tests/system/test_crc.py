"""CRC items: the CRCs that the daemons send, and packets with a flipped bit, which neither xbgpu nor visrec accepts.

The CRC here is RFC 3720's (Castagnoli), written from its definition.  The packets to flip are spead2's.
"""
import struct
from collections import Counter

import numpy as np
import pytest

import chain
import fmodel
import harness
import scenario
import xmodel
from harness import endpoints
from test_visrec import Stream, flatten, from_capture, heaps_of_dump, packets_of, recorder  # noqa: F401

SPEAD_DESCRIPTOR, SPEAD_STREAM_CTRL, SPEAD_CRC = 0x05, 0x06, harness.CRC
N_FLIPS = 10000

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header_bytes(packet):
    return 8 + 8 * struct.unpack_from(">H", packet, 6)[0]


def with_item(packet, value):
    """The packet with a CRC item of this value behind its other items."""
    n = header_bytes(packet)
    return packet[:6] + struct.pack(">H", n // 8) + packet[8:n] + struct.pack(">Q", (0x8000 | SPEAD_CRC) << 48 | value) + packet[n:]


def with_crc(packet):
    return with_item(packet, crc32c(with_item(packet, 0)))


def without_crc(packet):
    """The packet without its last item, which must be a CRC that agrees."""
    n = header_bytes(packet)
    bare = packet[:6] + struct.pack(">H", n // 8 - 2) + packet[8:n - 8] + packet[n:]
    assert with_crc(bare) == packet
    return bare


def flipped(packet, bit):
    packet = bytearray(packet)
    packet[bit // 8] ^= 1 << bit % 8
    return bytes(packet)


def with_flips(rng, packets):
    """The packets, and in front of each some copies of it with one bit flipped."""
    n_each = rng.multinomial(N_FLIPS, np.full(len(packets), 1 / len(packets)))
    out = []
    for packet, n in zip(packets, n_each):
        out += [flipped(packet, int(bit)) for bit in rng.integers(0, 8 * len(packet), n)]
        out.append(packet)
    return out


def test_fgpu_sends(daemon, work, rng):
    """Every packet but stops ends its items with its CRC, and is otherwise as without."""
    config = scenario.fgpu_config(outputs=({"gain": 0.4},), send={"packet_payload": 1000})
    samples = scenario.noise(rng, 1, 16384 * 4, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)
    bare = scenario.run_pcap(daemon, "fgpu", config, work, sent, "bare")
    config["send"]["crc"] = True
    found = scenario.run_pcap(daemon, "fgpu", config, work, sent, "crc")
    check_sent(work)
    for (o, a), got in scenario.fgpu_streams(config, found).items():
        output = scenario.model_of(config["outputs"][o])
        model = fmodel.voltages(0, samples[a], output)
        values = np.stack(list(got.values()))
        scenario.compare_voltages(values, np.stack([model[t // output.batch] for t in got]), output.limit, "with CRC")
    assert len(bare) == len(found)


def item_ids(packet):
    return {word >> 48 & 0x7FFF for word in struct.unpack_from(f">{header_bytes(packet) // 8 - 1}Q", packet, 8)}


def check_sent(work):
    """Compares captures with and without CRC.  Descriptors differ, as the CRC has one."""
    bare, sealed = (harness.read_pcap(work / f"{name}.out.pcap") for name in ("bare", "crc"))
    described = [without_crc(packet) for _, packet in sealed if SPEAD_DESCRIPTOR in item_ids(packet)]
    assert b"crc" in b"".join(described)
    bare, sealed = ([(to, p) for to, p in all_packets if SPEAD_DESCRIPTOR not in item_ids(p)]
                    for all_packets in (bare, sealed))
    n_stops = sum(SPEAD_STREAM_CTRL in item_ids(packet) for _, packet in bare)
    assert 0 < n_stops < len(bare) // 2
    sealed = [(to, p if SPEAD_STREAM_CTRL in item_ids(p) else without_crc(p)) for to, p in sealed]
    assert sorted(bare) == sorted(sealed)  # streams take turns as it happens


def test_xbgpu_sends(daemon, work, rng):
    config = scenario.xbgpu_config(outputs=[{}, {"missing": "weights"}], send={"packet_payload": 200})
    voltages = scenario.random_voltages(rng, config, 12)
    sent = scenario.feng_heaps(config, 0, voltages)
    scenario.run_pcap(daemon, "xbgpu", config, work, sent, "bare")
    config["send"]["crc"] = True
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent, "crc")
    check_sent(work)
    for o, output in enumerate(config["outputs"]):
        expected = xmodel.dumps(0, voltages, np.ones(voltages.shape[:2], bool), 4, output.get("missing", "flag"))
        scenario.check_dumps(config, o, found[endpoints(output["destination"])[0]], expected)


def check_replay(daemon, work, config, packets, voltages):
    """xbgpu refuses some packets, and its output is exactly that of the voltages; None: no output."""
    harness.write_pcap(work / "in.pcap", packets)
    config["recv"]["pcap_file"], config["send"]["pcap_file"] = str(work / "in.pcap"), str(work / "out.pcap")
    process = daemon("xbgpu", config).wait_end()
    found = harness.decode_pcap(work / "out.pcap")
    expected = {} if voltages is None else xmodel.dumps(0, voltages, np.ones(voltages.shape[:2], bool), 4)
    scenario.check_dumps(config, 0, found[endpoints(config["outputs"][0]["destination"])[0]], expected)
    assert "packet refused (crc)" in process.log.read_text()


@pytest.mark.parametrize("threads", [1, 2])
def test_flips_do_not_reach_sums(daemon, work, rng, threads):
    """10^4 packets with a flipped bit among the packets of three F-engines: all are refused, and the dumps are
    exact."""
    config = scenario.xbgpu_config(outputs=[{}], recv={"antennas": 3, "crc": True, "threads": threads})
    voltages = scenario.random_voltages(rng, config, 20)
    sent = scenario.feng_heaps(config, 0, voltages)
    good = [with_crc(packet) for heap in sent for packet in harness.packets(heap.heap, heap.cnt, 300)]
    packets = with_flips(rng, good)
    check_replay(daemon, work, config, [(sent[0].endpoint, packet) for packet in packets], voltages)


def test_flips_do_not_reach_the_recording(recorder, tmp_path):  # noqa: F811
    rng = np.random.default_rng(visrec_seed := 20261124)
    print("seed", visrec_seed)
    stream = Stream(n_ants=3)
    dumps = {index: stream.random_vis(rng) for index in range(4)}
    good = [with_crc(packet) for packet in
            flatten(packets_of(stream, flatten(heaps_of_dump(stream, i, vis) for i, vis in dumps.items())))]
    changes = {"recv": {"crc": True}}
    one, output = record(recorder, tmp_path, stream, with_flips(rng, good), changes)
    assert output.startswith(f"4 dumps, 0 of {4 * stream.n_sub} heaps missing")
    uvd = one.read()
    np.testing.assert_array_equal(uvd.data_array, np.concatenate([stream.expected(vis) for vis in dumps.values()]))
    assert not uvd.flag_array.any()


def record(recorder, tmp_path, stream, packets, changes):  # noqa: F811
    one = recorder(stream, harness.merge(from_capture(tmp_path, packets), changes))
    output, log = one.run(0, 1)
    assert Counter(line.split("(")[-1].split(")")[0] for line in log.splitlines() if "refused (" in line)["crc"] > 0, log
    return one, output


@pytest.mark.parametrize("needed", [False, True])
def test_packets_without_a_crc(daemon, work, rng, needed):
    """Packets without a CRC are refused if the file says so.  A present CRC is always checked."""
    config = scenario.xbgpu_config(outputs=[{}], recv={"antennas": 2, "crc": needed})
    voltages = scenario.random_voltages(rng, config, 8)
    sent = scenario.feng_heaps(config, 0, voltages)
    packets = [(s.endpoint, packet) for s in sent for packet in harness.packets(s.heap, s.cnt)]
    if not needed:
        packets = [(to, damaged) for to, packet in packets
                   for damaged in (flipped(with_crc(packet), 8 * len(packet)), packet)]
    check_replay(daemon, work, config, packets, None if needed else voltages)


def test_live_chain(running):
    """With CRCs everywhere, required by every receiver, dumps are complete and the same as without."""
    sends, needs = {"send": {"crc": True}}, {"recv": {"crc": True}}
    running_chain, dumps = running({"fgpu0": sends, "fgpu1": sends, "xbgpu0": sends | needs, "xbgpu1": sends | needs,
                                    "visrec": needs})
    dumps.wait_dumps(2, 0)
    for name in ("xbgpu0", "xbgpu1"):
        assert running_chain[name].metrics().get("xbgpu_input_rejected_packets_total", reason="crc") == 0
    running_chain.terminate(*reversed(chain.NAMES))
    windows, present = chain.check_file(running_chain.recording(), dumps.references)
    assert len(windows) >= 2 and present.any()
