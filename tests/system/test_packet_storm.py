"""Streams in a storm of all packet faults at once: the output equals the output of the stream without a storm.

A storm is made packet by packet beside a judge.  The judge knows the fate of each packet by the words of
common/recv/assemble.h.  So each extra packet is known to be refused, with its reason, before it enters the storm.  An
extra packet that would be accepted is left out: a flip of a bit that turns it into a missing packet, or a slightly fast
clock.  A second copy with other bytes contests its heap, which is then missing.  Such copies enter only for some chosen
heaps.
"""
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

import harness
import streams
import wire
from streams import BATCH, check_same, replay
from wire import DESCRIPTOR, HEAP_LENGTH, PAYLOAD_LENGTH, PAYLOAD_OFFSET, STREAM_CTRL


class Judge:
    """The expected treatment of each packet, in order of arrival."""

    def __init__(self, stream):
        self.stream = stream
        self.recv = stream.config["recv"]
        self.heap_bytes = stream.packets[0][1].get(HEAP_LENGTH)
        self.oldest = {}  # chunk of the window, by member, once that has begun
        self.arrived = defaultdict(int)  # a bit for each 8 bytes, by source and time
        self.payload = defaultdict(lambda: bytearray(self.heap_bytes))
        self.contested = set()  # (source, time)
        self.n_far = Counter()  # in a row, by source

    def whose(self, endpoint, packet):
        """(member, source), or the reason why the packet belongs to no input."""
        if any(number == DESCRIPTOR for number, _, _ in packet.items):
            return "descriptor"
        if None in map(packet.get, self.stream.ids):
            return "no_items"
        if self.stream.program == "fgpu":
            antenna = self.stream.config["antennas"][0]
            pol = [endpoint in harness.endpoints(antenna[p]) for p in ("pol0", "pol1")].index(True)
            return (pol, pol) if packet.get(harness.DIGITISER_ID) % 2 == pol else "bad_source"
        feng_id, n_ants = packet.get(harness.FENG_ID), self.recv["antennas"]
        if feng_id >= n_ants:
            return "bad_source"
        if packet.get(harness.FREQUENCY) != self.recv["channel_offset"]:
            return "bad_frequency"
        n_members = self.recv.get("threads", 1)
        return max(m for m in range(n_members) if m * n_ants // n_members <= feng_id), feng_id

    def bits(self, packet):
        first = packet.get(PAYLOAD_OFFSET) // 8
        end = -(-(packet.get(PAYLOAD_OFFSET) + packet.get(PAYLOAD_LENGTH)) // 8)
        return (1 << end) - (1 << first)

    def verdict(self, endpoint, packet):
        """(reason, member, source); the reason is "good" for a packet whose place is still empty."""
        if isinstance(packet, str):
            return f"malformed: {packet}", None, None
        if packet.get(STREAM_CTRL) == 2:
            return "stop", None, None
        whose = self.whose(endpoint, packet)
        if isinstance(whose, str):
            return whose, None, None
        return self.place(whose, packet), *whose

    def place(self, whose, packet):
        s, time = self.stream, packet.get(harness.TIMESTAMP)
        offset, size = packet.get(PAYLOAD_OFFSET), packet.get(PAYLOAD_LENGTH)
        if packet.get(HEAP_LENGTH) != self.heap_bytes:
            return "heap_size"
        if size == 0 or offset % 8 or (size % 8 and offset + size != self.heap_bytes):
            return "alignment"
        if time % s.step:
            return "bad_timestamp"
        if whose[0] not in self.oldest:
            return "good"
        ahead = self.ahead(whose[0], time)
        if ahead < -s.window or ahead >= 2 * s.window:
            return "jump"
        if ahead < 0:
            return "too_old"
        if self.arrived[whose[1], time] & self.bits(packet):
            return "duplicate"
        return "good"

    def ahead(self, member, time):
        """Chunks from the oldest one of the window."""
        oldest = self.oldest[member] * self.stream.chunk
        return ((time - oldest + harness.WIRE // 2) % harness.WIRE - harness.WIRE // 2) // self.stream.chunk

    def take(self, endpoint, raw):
        """Records a packet that has come.  Returns its treatment."""
        packet = wire.parse(raw)
        reason, member, source = self.verdict(endpoint, packet)
        if reason == "jump":
            self.n_far[source] += 1
        if reason in ("too_old", "duplicate", "good"):
            self.n_far[source] = 0
        if self.contests(endpoint, raw):
            self.contested.add((source, packet.get(harness.TIMESTAMP)))
        if reason == "good":
            time, offset = packet.get(harness.TIMESTAMP), packet.get(PAYLOAD_OFFSET)
            self.arrived[source, time] |= self.bits(packet)
            self.payload[source, time][offset:offset + len(packet.payload)] = packet.payload
            self.oldest.setdefault(member, time // self.stream.chunk)
            self.oldest[member] += max(0, self.ahead(member, time) - self.stream.window + 1)
        return reason

    def contests(self, endpoint, raw):
        """The packet is a duplicate, and differs from the first one."""
        packet = wire.parse(raw)
        reason, _, source = self.verdict(endpoint, packet)
        if reason != "duplicate" or harness.DIRECT:  # there the host may not read what came first
            return reason == "duplicate"
        key, offset = (source, packet.get(harness.TIMESTAMP)), packet.get(PAYLOAD_OFFSET)
        return bool(self.bits(packet) & ~self.arrived[key]) or packet.payload != bytes(
            self.payload[key][offset:offset + len(packet.payload)])

    def is_harmless(self, endpoint, raw, may_be_contested):
        """The packet will be refused, and contests only heaps that may be contested.  It does not complete the number
        of claims after which a jump of its source is believed."""
        packet = wire.parse(raw)
        reason, _, source = self.verdict(endpoint, packet)
        if self.contests(endpoint, raw) and (source, packet.get(harness.TIMESTAMP)) not in may_be_contested:
            return False
        return reason != "good" and (reason != "jump" or self.n_far[source] < 3)


# ---- What comes too much ---------------------------------------------------------------------------------------------


def flipped(rng, raw, n_header):
    """With one to three bits of the header changed."""
    out = bytearray(raw)
    for bit in rng.integers(0, 8 * n_header, rng.integers(1, 4)):
        out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def nuisances(rng, stream, packet):
    """Extra packets of a stream, made from a packet that has come.  Packets that might be accepted have another
    payload."""
    other = packet.inverted()
    raw, n_header = other.bytes(), len(other.bytes()) - len(other.payload)
    heap_bytes, time = packet.get(HEAP_LENGTH), packet.get(harness.TIMESTAMP)
    item, values = stream.bad_source
    kind = rng.integers(0, 10)
    if kind == 0:
        return [packet.bytes()] * int(rng.integers(1, 20))
    if kind == 1:
        return [raw] * int(rng.integers(1, 20))
    if kind == 2:
        return [flipped(rng, raw, n_header) for _ in range(30)]
    if kind == 3:
        away = [-1000, -3 * stream.window, 2 * stream.window, 3 * stream.window, 10**6]
        times = [time + int(n) * stream.chunk for n in rng.choice(away, 2)]
        times += [0, int(rng.integers(2**36)) * stream.step]
        return [other.put(harness.TIMESTAMP, t % harness.WIRE).bytes() for t in times]
    if kind == 4:
        values = values or [other.get(item) ^ 1]
        strangers = [other.put(item, int(v)) for v in values]
        strangers += [other.put(stream.bad_frequency[0], int(v)) for v in (stream.bad_frequency or ((), ()))[1]]
        return [p.bytes() for p in strangers]
    if kind == 5:
        return [raw[:rng.integers(0, len(raw))] for _ in range(4)]
    if kind == 6:
        return [raw + rng.bytes(rng.integers(1, 300)), rng.bytes(rng.integers(0, 1400)),
                raw[:8] + rng.bytes(len(raw) - 8), raw[:n_header - 16] + rng.bytes(16) + other.payload]
    if kind == 7:  # pieces of its heap, cut otherwise
        whole = replace(other.put(PAYLOAD_OFFSET, 0).put(PAYLOAD_LENGTH, heap_bytes), payload=rng.bytes(heap_bytes))
        at = rng.integers(0, heap_bytes, 6)
        return [whole.bytes()] + [whole.part(int(a), int(rng.integers(0, heap_bytes - a + 1))).bytes() for a in at] + [
            whole.part(8 * int(a // 8), 8).bytes() for a in at]
    if kind == 8:
        return harness.packets(harness.stop_heap(), 5) + [packet.without(*stream.ids[:1]).bytes()]
    return [other.put(harness.TIMESTAMP, (time + n) % harness.WIRE).bytes() for n in (1, -stream.chunk, -stream.step)]


def out_of_order(stream, rng):
    """Indices of packets, each so much later at most that its chunk has not left yet; the first heaps stay first."""
    times = np.array([packet.get(harness.TIMESTAMP) for _, packet in stream.packets])
    n_per_chunk = np.count_nonzero(times // stream.chunk == times[len(times) // 2] // stream.chunk)
    late = rng.uniform(0, (stream.window - 1) * n_per_chunk, len(times))
    late[times == times[0]] = -len(times)
    return sorted(range(len(times)), key=lambda i: i + late[i]), 2 * int(n_per_chunk)


def choose_heaps(heaps, rng):
    """Some heaps and a packet of each, to make a hole, and some that may be contested; neither the first heaps nor the
    last, which say how long the stream is."""
    keys = list(heaps)
    middle = np.arange(len(keys) // 20, len(keys) * 3 // 5)
    chosen = [keys[i] for i in rng.choice(middle, len(keys) // 20 + len(keys) // 10, replace=False)]
    holed, contested = set(chosen[:len(keys) // 20]), set(chosen[len(keys) // 20:])
    return holed, {int(rng.choice(heaps[key])) for key in sorted(holed)}, contested


def make_storm(stream, rng):
    """([packets of the storm], [packets without the heaps that have holes or are contested], refused by reason, heaps
    with a hole, heaps contested)"""
    judge, storm, refused = Judge(stream), [], Counter()
    heap_of = [(endpoint, packet.get(wire.HEAP_CNT)) for endpoint, packet in stream.packets]
    heaps = defaultdict(list)
    for i, heap in enumerate(heap_of):
        heaps[heap].append(i)
    holed, holes, contested = choose_heaps(heaps, rng)
    key_of = [(judge.whose(endpoint, packet)[1], packet.get(harness.TIMESTAMP)) for endpoint, packet in stream.packets]
    may_be_contested = {key for key, heap in zip(key_of, heap_of) if heap in contested}
    order, reach = out_of_order(stream, rng)

    def add(endpoint, raw, good=False):
        assert good or judge.is_harmless(endpoint, raw, may_be_contested)
        reason = judge.take(endpoint, raw)
        assert (reason == "good") == good, reason
        storm.append((endpoint, raw))
        if not good:
            refused[reason] += 1

    come = []
    for n, i in enumerate(order):
        endpoint, packet = stream.packets[i]
        if i in holes:
            # In its place the others of the same heap that have come, so often that they have the size of the heap.
            for k in set(heaps[heap_of[i]]) & set(come[-reach:]):
                for _ in heaps[heap_of[i]] if not harness.DIRECT else ():
                    add(endpoint, stream.packets[k][1].bytes())
            continue
        add(endpoint, packet.bytes(), good=True)
        come.append(i)
        if n > len(order) * 3 // 4 or rng.random() < 0.5:
            continue
        where, victim = stream.packets[come[-min(len(come), int(rng.integers(1, reach)))]]
        for raw in nuisances(rng, stream, victim):
            if judge.is_harmless(where, raw, may_be_contested):
                add(where, raw)
    assert len(order) // 4 > 2 * BATCH
    calm = [(endpoint, packet.bytes()) for heap, key, (endpoint, packet) in zip(heap_of, key_of, stream.packets)
            if heap not in holed and key not in judge.contested]
    return storm, calm, refused, len(holed), len(judge.contested)


def check_storm(stream, rng, daemon, work):
    storm, calm, refused, n_holed, n_contested = make_storm(stream, rng)
    print(f"{len(calm)} packets in a storm of {len(storm)}; refused: {dict(refused)}; contested: {n_contested}")
    wanted = {"duplicate", "too_old", "jump", "heap_size", "alignment", "bad_timestamp", "bad_source", "no_items",
              "stop", "malformed: truncated", "malformed: bad_magic", "malformed: bad_flavour",
              "malformed: bad_length", "malformed: no_standard"}
    assert n_holed > 3 and n_contested > 3 and refused.keys() >= wanted and refused["duplicate"] > (50 if harness.DIRECT else 200)
    expected = replay(daemon, work, stream, calm, "calm")
    check_same(stream, replay(daemon, work, stream, storm, "storm"), expected, refused, n_holed,
               n_contested)


@pytest.mark.parametrize("seed", range(6))
def test_xbgpu(seed, daemon, work, rng):
    n_ants = int(rng.integers(2, 5))
    stream = streams.xbgpu_stream(
        n_batches=160, payload_bytes=int(rng.choice([40, 64, 88, 128])), antennas=n_ants,
        batches_per_chunk=int(rng.integers(2, 7)), window=int(rng.integers(2, 4)), chunks=12,
        threads=int(rng.integers(1, 3)))
    check_storm(stream, rng, daemon, work)


@pytest.mark.parametrize("seed", range(4))
def test_fgpu(seed, daemon, work, rng):
    stream = streams.fgpu_stream(
        n_packets=240, payload_bytes=int(rng.choice([80, 136, 200, 320])), window=int(rng.integers(2, 4)), chunks=12)
    check_storm(stream, rng, daemon, work)
