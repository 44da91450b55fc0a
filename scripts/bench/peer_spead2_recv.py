#!/usr/bin/env python3
"""Receives packets with spead2 and assembles chunks, with one receive thread: the peer of `make bench-recv`.

The receiver has katgpucbf's settings: two open chunks, non-temporal copies, and a placement callback compiled from C.
For heaps of one packet (digitisers) the receiver keeps one heap in flight.  For larger heaps (F-engines) the receiver
keeps a reassembly table for each source; the heap cnt modulo the number of sources must be the feng_id.  The main
thread takes each chunk, counts its heaps and gives the chunk back.

    .venv-bench/bin/python scripts/bench/peer_spead2_recv.py --kind dig --n-sources 2 --heap-bytes 5120 \\
        --samples-per-heap 4096 --heaps-per-chunk 512 --endpoint 239.1.2.3:7148 --buffer 4194304 --cpu 1
    .venv-bench/bin/python scripts/bench/peer_spead2_recv.py --kind feng --n-sources 4 --heap-bytes 65536 \\
        --samples-per-heap 2097152 --heaps-per-chunk 16 --endpoint 127.0.0.1:7148 --buffer 4194304 --cpu 1

In .venv-bench spead2 is built from source, with GRO.  In .venv spead2 is the wheel of PyPI, without GRO.

stdout: "READY" as soon as the program can receive packets, then one JSON line for each request.
stdin:  "report" requests a line with the counts so far.  "stop", or the end of stdin, requests the last line.
        Packets that are in the socket when "stop" comes are still received.  A stop heap in the stream also ends the
        program.

All counts begin at READY.  The difference of two lines is the count between these lines.
  packets bytes heaps    received packets, payload bytes of complete heaps, and heaps.  A stop heap is not counted
  chunks                 chunks that have left the window and are not empty
  lost_heaps             heaps missing between the first and the last timestamp of these chunks
  incomplete_heaps too_old_heaps rejected_heaps   spead2's counts; a packet after a gap in its heap is not counted
  socket_drops           buffers dropped because the socket was full: packets, or with GRO up to 64 KiB of packets
  cpu_ns                 CPU time of the receive thread alone, user and system
  wall_ns                time since READY
  batches                number of times that the receive thread woke up and found packets
  buffer_bytes gro       values that the kernel reports.  The kernel doubles the requested size for its bookkeeping
"""
import argparse
import ctypes
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import spead2
import spead2.recv
import spead2.send

from peer_common import (DIGITISER_ID, FENG_ID, FLAVOUR, SOL_UDP, TIMESTAMP, UDP_GRO, PinnedPool, endpoint,
                         receive_socket, report, say, send_socket, socket_drops)

N_OPEN = 2  # chunks under construction
N_SPARE = 4  # chunks that the consumer may hold at the same time
SHUFFLED_HEAPS = 4  # open heaps of a source, if its packets are not in order


def placement(args):
    """Returns the callback of peer_place.c in the form that spead2 expects: a tuple that begins with a capsule.  The
    capsule's name is the callback's signature."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "place.so"
        macros = [f"-DHEAP_BYTES={args.heap_bytes}", f"-DHEAPS_PER_CHUNK={args.heaps_per_chunk}",
                  f"-DN_SOURCES={args.n_sources}", f"-DSAMPLES_PER_HEAP={args.samples_per_heap}"]
        source = Path(__file__).with_name("peer_place.c")
        subprocess.run(["gcc", "-std=c11", "-O3", "-fPIC", "-shared", *macros, "-o", library, source], check=True)
        loaded = ctypes.CDLL(library)
    function = getattr(loaded, f"place_{args.kind}")
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    signature = b"void (void *, size_t)"
    # The capsule keeps only the address of its name, so the tuple keeps the name itself.
    return make(ctypes.cast(function, ctypes.c_void_p), signature, None), signature, loaded


def make_chunk(args):
    """Returns a chunk on its own pages, which are huge pages if the system allows.  All pages are mapped at once."""
    size = args.heap_bytes * args.heaps_per_chunk * args.n_sources
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(memory, np.uint8)
    data[:] = 0
    return spead2.recv.Chunk(data=data, present=np.zeros(args.heaps_per_chunk * args.n_sources, np.uint8))


class Receiver:
    def __init__(self, args):
        self.args = args
        self.present = self.chunks = 0
        self.first_time = self.last_time = None
        self.finished = False
        self.pool = PinnedPool(args.cpu)
        in_flight = {"max_heaps": 1} if args.kind == "dig" else {"substreams": args.n_sources}
        if args.shuffled and args.kind != "dig":
            in_flight.update(max_heaps=SHUFFLED_HEAPS, allow_out_of_order=True)
        config = spead2.recv.StreamConfig(memcpy=spead2.MEMCPY_NONTEMPORAL, **in_flight)
        source = DIGITISER_ID if args.kind == "dig" else FENG_ID
        place = placement(args)
        chunk_config = spead2.recv.ChunkStreamConfig(
            items=[spead2.HEAP_LENGTH_ID, TIMESTAMP, source], max_chunks=N_OPEN, place=place)
        rings = [spead2.recv.ChunkRingbuffer(N_OPEN + N_SPARE) for _ in range(2)]
        self.stream = spead2.recv.ChunkRingStream(self.pool.pool, config, chunk_config, *rings)
        for _ in range(N_OPEN + N_SPARE):
            self.stream.add_free_chunk(make_chunk(args))

    def account(self, chunk):
        """Counts the heaps of a chunk that has left the window, and the timestamps from the chunk's first to its last
        heap."""
        n_times, n_sources = self.args.heaps_per_chunk, self.args.n_sources
        if self.args.kind == "dig":
            there = chunk.present.reshape(n_sources, n_times).any(axis=0)
        else:
            there = chunk.present.reshape(n_times, n_sources).any(axis=1)
        times = np.flatnonzero(there)
        if len(times) == 0:
            return
        self.chunks += 1
        self.present += int(np.count_nonzero(chunk.present))
        start = chunk.chunk_id * n_times
        if self.first_time is None:
            self.first_time = start + int(times[0])
        self.last_time = start + int(times[-1])

    def results(self):
        stats, cpu_ns = self.stream.stats, self.pool.cpu_ns()
        n_times = 0 if self.first_time is None else self.last_time + 1 - self.first_time
        stops = int(self.finished)  # spead2 counts the stop packet, and refuses its heap
        incomplete = stats["incomplete_heaps_evicted"] + stats["incomplete_heaps_flushed"]
        rejected = stats["rejected_heaps"] - stops
        heaps = stats["heaps"] - incomplete - rejected - stats["too_old_heaps"]
        return dict(
            spead2=spead2.__version__, kind=self.args.kind, packets=stats["packets"] - stops,
            bytes=heaps * self.args.heap_bytes, heaps=heaps,
            lost_heaps=n_times * self.args.n_sources - self.present, chunks=self.chunks,
            incomplete_heaps=incomplete, too_old_heaps=stats["too_old_heaps"], rejected_heaps=rejected,
            socket_drops=sum(map(socket_drops, self.socks)), cpu_ns=cpu_ns - self.cpu_start_ns,
            wall_ns=time.monotonic_ns() - self.wall_start_ns, batches=stats["batches"],
            buffer_bytes=self.socks[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            gro=bool(self.socks[0].getsockopt(SOL_UDP, UDP_GRO)))

    def stop_packet(self):
        """Returns a packet of a stop heap.  The packet is received after all packets that are in the socket."""
        heap = spead2.send.Heap(FLAVOUR)
        heap.add_end()
        (packet,) = spead2.send.PacketGenerator(heap, 0, 1472)
        return packet

    def take_chunks(self, ring):
        """Takes the chunks that are ready, and gives them back."""
        while True:
            try:
                chunk = ring.get_nowait()
            except spead2.Empty:
                return
            self.account(chunk)
            self.stream.add_free_chunk(chunk)

    def requests(self):
        """Returns the requests that wait in stdin.  The end of stdin is a request to stop."""
        text = os.read(sys.stdin.fileno(), 4096).decode()
        return text.split() if text else ["stop"]

    def run(self):
        """Serves the ring of ready chunks and stdin until the stream has ended."""
        ring, stopping = self.stream.data_ringbuffer, None
        size = self.args.buffer // len(self.args.endpoint)
        self.socks = [receive_socket(*one, self.args.interface, size) for one in self.args.endpoint]
        for sock in self.socks:
            self.stream.add_udp_reader(sock)
        self.cpu_start_ns, self.wall_start_ns = self.pool.cpu_ns(), time.monotonic_ns()
        say("READY")
        while not self.finished:
            if stopping:  # a full socket drops the stop packet, so send it again and again
                stopping.sendto(self.stop_packet(), self.args.endpoint[0])
            watched = [ring.data_fd] if stopping else [ring.data_fd, sys.stdin]
            ready = select.select(watched, [], [], 0.05 if stopping else None)[0]
            try:
                self.take_chunks(ring)
            except spead2.Stopped:
                self.finished = True
            for request in self.requests() if sys.stdin in ready else []:
                if request == "report":
                    report(**self.results())
                elif request == "stop":
                    stopping = send_socket(self.args.interface, 65536)
        # The ring ends before the receive thread has finished its last batch, so stop() waits for the thread.
        self.stream.stop()
        report(**self.results())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", type=lambda text: [endpoint(one) for one in text.split(",")], required=True,
                        help="ADDRESS:PORT,..., multicast or unicast")
    parser.add_argument("--interface", default="127.0.0.1", help="address of the interface [%(default)s]")
    parser.add_argument("--kind", choices=["dig", "feng"], required=True)
    parser.add_argument("--n-sources", type=int, required=True,
                        help="number of sources; each digitiser_id or feng_id is below this number")
    parser.add_argument("--heap-bytes", type=int, required=True, help="payload of a heap")
    parser.add_argument("--samples-per-heap", type=int, required=True, help="step of the timestamps")
    parser.add_argument("--heaps-per-chunk", type=int, required=True, help="of each source")
    parser.add_argument("--shuffled", action="store_true", help="packets of a heap may come in any order")
    parser.add_argument("--buffer", type=int, default=4 << 20, help="socket receive buffer, shared by the endpoints, "
                        "bytes [%(default)s]")
    parser.add_argument("--cpu", type=int, default=-1, help="CPU of the receive thread, which no other thread uses")
    Receiver(parser.parse_args()).run()


if __name__ == "__main__":
    main()
