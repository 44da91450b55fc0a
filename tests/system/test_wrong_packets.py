"""Faults of a packet, reason by reason: counted exactly, named in the log now and then, and without effect on the output.
fgpu, xbgpu and the recorder read the same kinds of packets, so one table serves all three.
"""
import re
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

import harness
import scenario
import test_xbgpu_stream
import wire
import xmodel
from harness import endpoints
from streams import BATCH, IGNORED, STREAMS, check_same, counts, replay
from wire import DESCRIPTOR, HEAP_CNT, HEAP_LENGTH, PAYLOAD_LENGTH, PAYLOAD_OFFSET, STREAM_CTRL

NOT_HERE = {"no_chunk": "check_assemble.c: without_a_free_chunk_heaps_are_lost_and_counted",
            "clock": "check_assemble.c: claims_that_the_clock_contradicts_are_refused",
            "bad_sender": "test_senders.py: test_captures_name_their_senders",
            "other_thread": "test_other_thread: each thread of a live xbgpu refuses the other's"}

_undisturbed = {}


@pytest.fixture
def undisturbed(daemon, work):
    """The stream of a program, and its result without faults, which is computed once."""
    def get(program):
        if program not in _undisturbed:
            stream = STREAMS[program]()
            packets = [(endpoint, packet.bytes()) for endpoint, packet in stream.packets]
            outcome = replay(daemon, work, stream, packets, "undisturbed")
            assert not any(counts(stream, outcome.metrics).values())
            _undisturbed[program] = stream, outcome
        return _undisturbed[program]

    return get


# ---- The table -------------------------------------------------------------------------------------------------------


def truncated(s, good):
    whole = good.bytes()
    header_bytes = len(whole) - len(good.payload)
    return [whole[:n] for n in (0, 1, 7, 8, 16, header_bytes - 8, header_bytes - 1, header_bytes, len(whole) - 1)] + [
        good.put(PAYLOAD_LENGTH, len(good.payload) + n).bytes() for n in (1, 8, 2**47)]


def bad_magic(s, good):
    return [replace(good, first=first + (2, 6)).bytes() for first in
            [(0, 4), (0x52, 4), (0xD3, 4), (0x53, 0), (0x53, 3), (0x53, 5), (0x53, 255)]] + [bytes(8), b"\xff" * 1400]


def bad_flavour(s, good):
    """64-40 is the other flavour in use; other flavours that add up to 64 bits, and some that do not."""
    return [replace(good, first=(0x53, 4) + widths).bytes() for widths in
            [(3, 5), (4, 4), (1, 7), (6, 2), (0, 8), (8, 0), (2, 5), (3, 6), (2, 255), (255, 6)]]


def no_standard(s, good):
    out = [good.put(HEAP_LENGTH, 0), replace(good, items=())]
    for item in wire.STANDARD:
        out += [good.without(item), good.put(item, good.get(item), immediate=False)]
    return [p.bytes() for p in out]


def bad_length(s, good):
    length = good.get(HEAP_LENGTH)
    return [good.bytes() + b"\0", good.bytes() * 2] + [p.bytes() for p in (
        good.put(PAYLOAD_LENGTH, 0), good.put(PAYLOAD_LENGTH, len(good.payload) - 8),
        good.put(PAYLOAD_OFFSET, length), good.put(PAYLOAD_OFFSET, length - len(good.payload) + 1),
        good.put(PAYLOAD_OFFSET, 2**48 - 8), good.put(HEAP_LENGTH, 1), good.put(HEAP_LENGTH, len(good.payload) - 1))]


def header_too_long(s, good):
    """Far more items than any sender of ours could have reason to add."""
    return [replace(good, items=good.items + ((0x2222, True, 5),) * n).bytes() for n in (128, 200, 3000)]


def no_items(s, good):
    out = []
    for item in s.ids:
        out += [good.without(item), good.put(item, good.get(item), immediate=False)]
    # Pointers only in the first packet of a heap: the others say nothing but where in some heap they belong.
    out += [good.without(*s.ids), replace(good, items=good.items[:4])]
    return [p.bytes() for p in out]


def descriptors(s, good):
    """A heap that only describes items, as every sender repeats it; and an item described beside data."""
    with_data = replace(good, items=good.items + ((DESCRIPTOR, False, 0),))
    return descriptor_heap() + ([with_data.bytes()] if s.program != "visrec" else [])


def descriptor_heap():
    import spead2
    heap = harness.make_heap([])
    heap.add_descriptor(spead2.Descriptor(0x1600, "timestamp", "", (), format=[("u", 48)]))
    return harness.packets(heap, 1)


def stop(s, good):
    """spead2's stop heaps, and one in the middle of data."""
    ours = wire.Packet(((HEAP_CNT, True, 9), (HEAP_LENGTH, True, 1), (PAYLOAD_OFFSET, True, 0),
                        (PAYLOAD_LENGTH, True, 1), (STREAM_CTRL, True, 2), (wire.NULL, False, 0)), b"\0")
    return harness.packets(harness.stop_heap(), 7) + [
        ours.bytes(), replace(good, items=good.items + ((STREAM_CTRL, True, 2),)).bytes()]


def heap_size(s, good):
    length = good.get(HEAP_LENGTH)
    small = good.put(PAYLOAD_OFFSET, 0).part(0, 16)
    return [good.put(HEAP_LENGTH, n).bytes() for n in (length + 1, length + 8, 2 * length, 2**47)] + [
        small.put(HEAP_LENGTH, n).bytes() for n in (16, length // 2, length - 8, length - 1)]


def alignment(s, good):
    start = good.put(PAYLOAD_OFFSET, 0)
    parts = [start.part(*part) for part in [(4, 8), (1, 16), (0, 12), (8, 7), (0, 0), (8, 0)]]
    return [p.bytes() for p in parts + [good.part(0, 0).put(PAYLOAD_OFFSET, good.get(HEAP_LENGTH))]]


def at_time(s, good, timestamp):
    return good.put(harness.TIMESTAMP, timestamp % harness.WIRE).bytes()


def bad_timestamp(s, good):
    t = good.get(harness.TIMESTAMP)
    return [at_time(s, good, t + n) for n in (1, -1, s.step // 2, s.step + 1, -s.chunk - 1, 2**40 + 1)]


def bad_source(s, good):
    item, values = s.bad_source
    return [good.put(item, value).bytes() for value in values or (good.get(item) ^ 1, good.get(item) ^ 5)]


def bad_frequency(s, good):
    item, values = s.bad_frequency
    return [good.put(item, value).bytes() for value in values]


def crc(s, good):
    """A CRC item that disagrees, behind the other items and in front of them."""
    return [replace(good, items=items).bytes() for items in
            (good.items + ((harness.CRC, True, 1),), ((harness.CRC, True, harness.WIRE - 1),) + good.items)]


def too_old(s, good):
    """As far behind the window as that is long, and within the next one that far."""
    t = good.get(harness.TIMESTAMP)
    oldest = (t // s.chunk - s.window + 1) * s.chunk
    return [at_time(s, good, max(oldest - n, oldest - s.window * s.chunk)) for n in
            (s.step, s.chunk, s.chunk + s.step, s.window * s.chunk)]


def jump(s, good):
    """Ancient, far in the future, and clocks that jump about or stand still far away: never believed."""
    t = good.get(harness.TIMESTAMP)
    places = [1, -1, 2, -2, 3, -3, 4, 1, 1, 1, -4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    period = s.step * (2**40 // s.step)
    near_misses = [t - (2 * s.window + 1) * s.chunk, t + 2 * s.window * s.chunk]
    return [at_time(s, good, where) for where in [t + place * period for place in places] + [0] + near_misses]


def duplicate(s, good):
    """The packet again, and parts of it.  (Other bytes contest the heap: test_senders.py.)"""
    size = len(good.payload)
    return [p.bytes() for p in (good, good, good.part(0, 8), good.part(8, 16), good.part(size - 8, 8),
                                good.put(HEAP_CNT, 12345))]


TABLE = {
    "malformed: truncated": truncated, "malformed: bad_magic": bad_magic, "malformed: bad_flavour": bad_flavour,
    "malformed: no_standard": no_standard, "malformed: bad_length": bad_length,
    "malformed: header_too_long": header_too_long, "no_items": no_items, "descriptor": descriptors, "stop": stop, "heap_size": heap_size,
    "alignment": alignment, "bad_timestamp": bad_timestamp, "bad_source": bad_source, "bad_frequency": bad_frequency,
    "crc": crc,
    "too_old": too_old, "jump": jump, "duplicate": duplicate,
}
HEAPS = {"too_old": "too_old", "no_items": "metadata", "descriptor": "metadata", "bad_timestamp": "bad_timestamp",
         "bad_source": "bad_feng_id"}
CASES = [(program, reason) for program in STREAMS for reason in TABLE
         if (program, reason) not in [("fgpu", "bad_frequency"), ("visrec", "bad_source")]
         and not (harness.DIRECT and reason == "duplicate")]  # where the host may not read, each contests its heap


@pytest.mark.parametrize("program", STREAMS)
def test_table_is_complete(program, undisturbed):
    """Every reason that a program can count is provoked here, or known to be elsewhere."""
    stream, outcome = undisturbed(program)
    assert counts(stream, outcome.metrics).keys() == TABLE.keys() | NOT_HERE.keys()


def warnings(log, reason):
    """The times, in seconds of the day, of the lines that name a reason, by the thread or input that they are from."""
    text = "is not SPEAD-64-48" if reason.startswith("malformed") else f"packet refused ({reason})"
    times = defaultdict(list)
    for h, m, s, speaker in re.findall(
            r"T(\d\d):(\d\d):([\d.]+)Z [^\n]*warning: ([^\n:]*): [^\n]*" + re.escape(text), log):
        times[speaker].append(int(h) * 3600 + int(m) * 60 + float(s))
    return times


def disturb(stream, bad_at):
    """The stream's packets as bytes. bad_at(good) returns the packets to insert after a packet, in the second quarter.
    Returns [(endpoint, bytes)], and the number of packets of each reason."""
    out, refused = [], Counter()
    n = len(stream.packets)
    for i, (endpoint, good) in enumerate(stream.packets):
        out.append((endpoint, good.bytes()))
        if n // 4 <= i < n // 2:
            for reason, bad in bad_at(good):
                out.append((endpoint, bad))
                refused[reason] += 1
    assert n // 2 > 2 * BATCH
    return out, refused


@pytest.mark.parametrize("program, reason", CASES)
def test_reason(program, reason, undisturbed, daemon, work, rng):
    """Counted to the packet under its own reason and no other, named in the log, and the output is the same."""
    stream, expected = undisturbed(program)
    n_heaps = 0  # refused, by their first packets

    def bad_at(good):
        nonlocal n_heaps
        bad = TABLE[reason](stream, good) if rng.random() < 0.2 else []
        n_heaps += sum(wire.parse(p).get(PAYLOAD_OFFSET) in (0, None) for p in bad) if reason in HEAPS else 0
        return [(reason, bad[i]) for i in rng.permutation(len(bad))]

    packets, refused = disturb(stream, bad_at)
    assert refused
    outcome = replay(daemon, work, stream, packets, "disturbed")
    check_same(stream, outcome, expected, refused)
    for name in set(HEAPS.values()) if program == "xbgpu" else {"metadata"} if program == "fgpu" else ():
        counted = outcome.metrics.get(f"{stream.prefix}_{name}_heaps_total")
        assert counted == (n_heaps if name == HEAPS.get(reason) else 0), name
    assert bool(warnings(outcome.log, reason)) == (reason not in IGNORED)


@pytest.mark.parametrize("program", STREAMS)
def test_log_is_not_flooded(program, undisturbed, daemon, work, rng):
    """A thousand wrong packets of each kind: every reason is named, but no sooner again than after 10 s."""
    stream, expected = undisturbed(program)
    kinds = {reason: make for reason, make in TABLE.items() if (program, reason) in CASES}

    def bad_at(good):
        out = []
        for reason, make in kinds.items():
            bad = make(stream, good)
            out += [(reason, bad[i % len(bad)]) for i in range(1 + 4 * 1000 // len(stream.packets))]
        return [out[i] for i in rng.permutation(len(out))]

    packets, refused = disturb(stream, bad_at)
    assert min(refused.values()) >= 1000
    outcome = replay(daemon, work, stream, packets, "flooded")
    check_same(stream, outcome, expected, refused)
    for reason in kinds:
        times = warnings(outcome.log, reason)
        assert all(b - a > 9.9 for some in times.values() for a, b in zip(some, some[1:])), times
        assert bool(times) == (reason not in IGNORED), reason
    assert len(outcome.log.splitlines()) < 60


# ---- What may look strange and is right ------------------------------------------------------------------------------


@pytest.mark.parametrize("program", STREAMS)
def test_disguises(program, undisturbed, daemon, work, rng):
    """Items in any order, unknown ones, padding, repeated ones of which the last counts; heaps cut anywhere."""
    stream, expected = undisturbed(program)
    out = []
    for endpoint, good in stream.packets:
        items = list(good.items)
        unknown = [(int(rng.integers(0x2000, 0x2FFF)), bool(rng.integers(2)), int(rng.integers(2**48)))
                   for _ in range(rng.choice([0, 1, 2, 24, 110]))]
        items = [items[i] for i in rng.permutation(len(items))]
        for extra in unknown + [(wire.NULL, False, 0)] * int(rng.integers(0, 3)):
            items.insert(int(rng.integers(0, len(items) + 1)), extra)
        if rng.random() < 0.5:
            items = [(n, True, int(rng.integers(2**48))) for n in (harness.TIMESTAMP, HEAP_LENGTH)] + items
        strange = replace(good, items=tuple(items))
        cut = 8 * int(rng.integers(0, len(good.payload) // 8))
        parts = [strange.part(cut, len(good.payload) - cut), strange.part(0, cut)] if cut else [strange]
        out += [(endpoint, p.bytes()) for p in parts]
    outcome = replay(daemon, work, stream, out, "disguised")
    check_same(stream, outcome, expected, {})


def test_pointers_in_the_first_packet_only(undisturbed, daemon, work):
    """A sender that does not repeat its items: no heap is ever complete, the log reports this, and no byte of a heap
    leaves."""
    stream, _ = undisturbed("xbgpu")
    endpoint = stream.packets[0][0]
    packets = [(endpoint, p if p.get(PAYLOAD_OFFSET) == 0 else replace(p, items=p.items[:4]))
               for _, p in stream.packets]
    tail = [(endpoint, packets[0][1])] * 2 * BATCH
    outcome = replay(daemon, work, stream, [(e, p.bytes()) for e, p in packets + tail], "bare")
    assert counts(stream, outcome.metrics)["no_items"] == 3 * len(packets) // 4
    assert outcome.metrics.get("xbgpu_input_heaps_total") == 0
    assert len(warnings(outcome.log, "no_items")) >= 1
    for sent in outcome.sent.values():
        assert all(wire.parse(p).get(harness.TIMESTAMP) is None for p in sent), "a dump of nothing"


# ---- Clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", STREAMS)
def test_mad_clock(program, undisturbed, daemon, work, rng):
    """Sources whose heaps each come a second time by a running clock far away: exactly those are refused."""
    stream, expected = undisturbed(program)
    away = stream.step * (2**41 // stream.step)

    def bad_at(good):
        return [("jump", at_time(stream, good, good.get(harness.TIMESTAMP) + away))]

    packets, refused = disturb(stream, bad_at)
    outcome = replay(daemon, work, stream, packets, "mad")
    check_same(stream, outcome, expected, refused)


# ---- Threads ---------------------------------------------------------------------------------------------------------


def test_other_thread(daemon, rng):
    """Each of two receive threads sees all packets, and silently refuses packets of the other thread's F-engines."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 4, "buffers": 64}], time={"adc_sample_rate": 4000000},
        recv={"antennas": 3, "threads": 2, "interface": "lo", "batches_per_chunk": 2, "chunks": 128, "window": 8},
        send={"interface": "lo", "ttl": 1}, http={"listen": f"127.0.0.1:{harness.free_tcp_port()}"})
    voltages = scenario.random_voltages(rng, config, 64)
    (where,) = endpoints(config["outputs"][0]["destination"])
    sent = test_xbgpu_stream.portions(config, 0, voltages)
    n_sent = sum(map(len, sent))
    with harness.Receiver(config["outputs"][0]["destination"]) as receiver:
        with daemon("xbgpu", config) as process:
            test_xbgpu_stream.send_in_step(config, process, sent)
            metrics = process.wait_counted(
                lambda m: m.get("xbgpu_input_packets_total") == 2 * n_sent
                and m.get("xbgpu_input_ignored_packets_total") >= n_sent, "all packets taken by both threads")
            for thread, n in (("recv0", 2 * 64), ("recv1", 1 * 64)):
                assert metrics.get("xbgpu_input_ignored_packets_total", thread=thread, reason="other_thread") == n
            assert metrics.get("xbgpu_input_ignored_packets_total") == n_sent
            assert metrics.get("xbgpu_input_rejected_packets_total") == 0
        receiver.wait_stops()
        found = scenario.by_endpoint(receiver.heaps)[where]
    expected = xmodel.dumps(0, voltages, np.ones((64, 3), bool), 4)
    n = sum(h.kind == "data" for h in found)
    assert n >= 12
    scenario.check_dumps(config, 0, found, dict(list(expected.items())[:n]))
    assert "other_thread" not in process.log.read_text()
