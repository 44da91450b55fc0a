#!/usr/bin/env python3
"""Sends heaps with spead2 and one send thread: the peer of `make bench-send`.

The heaps have the form of katgpucbf's heaps: every packet repeats all item pointers.  Packets of heaps with the same
timestamp alternate; digitisers' heaps follow one another.  The memory of sent heaps is used again at once.

    .venv-bench/bin/python scripts/bench/peer_spead2_send.py --kind feng --heap-bytes 65536 --samples-per-heap 2097152 \\
        --endpoint 239.1.2.3:7148 --seconds 10 --cpu 0
    .venv-bench/bin/python scripts/bench/peer_spead2_send.py --kind dig --n-sources 2 --heap-bytes 5120 \\
        --samples-per-heap 4096 --endpoint 127.0.0.1:7148 --seconds 10 --rate 250e6 --cpu 0

In .venv-bench spead2 is built from source, with GSO.  In .venv spead2 is the wheel of PyPI, without GSO.

Kinds: dig (one packet per heap, headers of 72 bytes), feng (headers of 72 bytes), x (headers of 64 bytes).
Timestamps begin at 0.  Each timestamp has one heap of each source for each endpoint.  The number of the source is the
heap cnt modulo the number of sources.  There are no descriptors and no stop heap.

stdout: one JSON line at the end.
  packets, heaps:        number of sent packets and heaps.
  bytes:                 payload of the packets.
  cpu_ns:                CPU time of the send thread alone, user and system.  On the loopback interface this time
                         includes the receiving half of the network stack.
  wall_ns:               time from the first heap to the last heap.
  buffer_bytes, gso:     values that the kernel reports.  The kernel doubles the requested size for its bookkeeping.
"""
import argparse
import asyncio
import collections
import socket
import time

import numpy as np
import spead2
import spead2.send
import spead2.send.asyncio

from peer_common import (ADC_SAMPLES, DIGITISER_ID, DIGITISER_STATUS, FENG_ID, FENG_RAW, FLAVOUR, FREQUENCY, SOL_UDP,
                         TIMESTAMP, UDP_SEGMENT, XENG_RAW, PinnedPool, endpoint, report, send_socket)

HEADER_BYTES = {"dig": 72, "feng": 72, "x": 64}
IN_FLIGHT = 4  # batches that spead2 holds at once
BATCH_BYTES = 1 << 20  # smallest payload


def item(number, dtype, value):
    return spead2.Item(number, "", "", shape=value.shape, dtype=dtype, value=value)


def immediate(number, value):
    """Returns an immediate item.  The item's value (the low 48 bits of a big-endian word) is read when a packet is
    made."""
    return item(number, np.uint8, value.reshape(1).view(np.uint8)[2:])


class Batch:
    """The heaps of 'n_times' consecutive timestamps, made once and sent repeatedly."""

    def __init__(self, args, n_times, payload):
        self.step = args.samples_per_heap
        self.times = np.zeros(n_times, ">u8")
        self.offsets = np.arange(n_times, dtype=np.uint64) * self.step
        self.constants = np.arange(max(args.n_sources, len(args.endpoint)) + 1).astype(">u8")
        payloads = iter(payload.reshape(-1, args.heap_bytes))
        self.heaps = spead2.send.HeapReferenceList([
            spead2.send.HeapReference(self.make_heap(args.kind, time, source, substream, next(payloads)),
                                      substream_index=substream)
            for time in range(n_times) for substream in range(len(args.endpoint)) for source in range(args.n_sources)])

    def make_heap(self, kind, time, source, substream, payload):
        heap = spead2.send.Heap(FLAVOUR)
        heap.repeat_pointers = True
        heap.add_item(immediate(TIMESTAMP, self.times[time:time + 1]))
        if kind == "dig":
            heap.add_item(immediate(DIGITISER_ID, self.constants[source:source + 1]))
            heap.add_item(immediate(DIGITISER_STATUS, self.constants[:1]))
            heap.add_item(item(ADC_SAMPLES, np.uint8, payload))
        else:
            if kind == "feng":
                heap.add_item(immediate(FENG_ID, self.constants[source:source + 1]))
            heap.add_item(immediate(FREQUENCY, self.constants[substream:substream + 1]))
            heap.add_item(item(FENG_RAW if kind == "feng" else XENG_RAW, np.uint8, payload))
        return heap

    def stamp(self, first_time):
        self.times[:] = self.offsets + np.uint64(first_time * self.step)


async def send(args):
    group = args.n_sources * len(args.endpoint)
    # If the packets of different heaps alternate, a call sends the heaps of one timestamp.  Otherwise a call sends the
    # heaps of several timestamps, because calls are slow.
    dealt = args.kind != "dig" and group > 1
    n_times = 1 if dealt else max(1, BATCH_BYTES // (group * args.heap_bytes))
    mode = spead2.send.GroupMode.ROUND_ROBIN if dealt else spead2.send.GroupMode.SERIAL
    rng = np.random.default_rng(1)
    batches = [Batch(args, n_times, rng.integers(0, 256, n_times * group * args.heap_bytes, np.uint8))
               for _ in range(IN_FLIGHT)]

    pool = PinnedPool(args.cpu)
    sock = send_socket(args.interface, args.buffer)
    config = spead2.send.StreamConfig(max_packet_size=args.packet_payload + HEADER_BYTES[args.kind],
                                      max_heaps=IN_FLIGHT * n_times * group, rate=args.rate)
    stream = spead2.send.asyncio.UdpStream(pool.pool, sock, args.endpoint, config)
    stream.set_cnt_sequence(0, 1)

    cpu_ns, start_ns = pool.cpu_ns(), time.monotonic_ns()
    under_way, n_sent = collections.deque(), 0
    while time.monotonic_ns() < start_ns + args.seconds * 1e9:
        if len(under_way) == IN_FLIGHT:
            await under_way.popleft()
        batch = batches[n_sent % IN_FLIGHT]
        batch.stamp(n_sent * n_times)
        under_way.append(stream.async_send_heaps(batch.heaps, mode))
        n_sent += 1
    for sent in under_way:
        await sent
    cpu_ns, wall_ns = pool.cpu_ns() - cpu_ns, time.monotonic_ns() - start_ns

    heaps = n_sent * n_times * group
    packets = heaps * -(-args.heap_bytes // args.packet_payload)
    report(spead2=spead2.__version__, kind=args.kind, packets=packets, heaps=heaps, bytes=heaps * args.heap_bytes,
           cpu_ns=cpu_ns, wall_ns=wall_ns, buffer_bytes=sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
           gso=sock.getsockopt(SOL_UDP, UDP_SEGMENT) > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", type=lambda text: [endpoint(one) for one in text.split(",")], required=True,
                        help="ADDRESS:PORT,..., one for each substream")
    parser.add_argument("--interface", default="127.0.0.1", help="address of the interface [%(default)s]")
    parser.add_argument("--kind", choices=HEADER_BYTES, required=True)
    parser.add_argument("--n-sources", type=int, default=1, help="number of digitisers or F-engines [%(default)s]")
    parser.add_argument("--heap-bytes", type=int, required=True, help="payload of a heap")
    parser.add_argument("--packet-payload", type=int, default=8192, help="largest payload of a packet [%(default)s]")
    parser.add_argument("--samples-per-heap", type=int, required=True, help="step of the timestamps")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=0, help="bytes a second, headers included; 0: no limit")
    parser.add_argument("--buffer", type=int, default=1 << 20, help="socket send buffer, bytes [%(default)s]")
    parser.add_argument("--cpu", type=int, default=-1, help="CPU of the send thread, which no other thread uses")
    asyncio.run(send(parser.parse_args()))


if __name__ == "__main__":
    main()
