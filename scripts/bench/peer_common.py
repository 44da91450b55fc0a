"""Functions for both spead2 peers of the packet benchmarks: sockets, a pinned thread, its CPU time, and results."""
import json
import os
import socket
import struct
import time

import spead2

FLAVOUR = spead2.Flavour(4, 64, 48, 0)
TIMESTAMP, XENG_RAW = 0x1600, 0x1800
DIGITISER_ID, DIGITISER_STATUS, ADC_SAMPLES = 0x3101, 0x3102, 0x3300
FENG_ID, FREQUENCY, FENG_RAW = 0x4101, 0x4103, 0x4300

# Constants of Linux that Python's socket module lacks.
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_MEMINFO, SK_MEMINFO_DROPS = 32, 33, 55, 8


def endpoint(text):
    """("239.1.2.3", 7148) of "239.1.2.3:7148"."""
    host, port = text.split(":")
    return socket.inet_ntoa(socket.inet_aton(host)), int(port)


def is_multicast(host):
    return 224 <= int(host.split(".")[0]) < 240


def set_buffer(sock, force, option, size):
    """Sets the size of a socket buffer.  Only root may exceed the system's maximum."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, force, size)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, option, size)


def receive_socket(host, port, interface, buffer_bytes):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    set_buffer(sock, SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
    if is_multicast(host):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        membership = socket.inet_aton(host) + socket.inet_aton(interface)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    sock.bind((host, port))
    return sock


def send_socket(interface, buffer_bytes, ttl=4):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    set_buffer(sock, SO_SNDBUFFORCE, socket.SO_SNDBUF, buffer_bytes)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    return sock


def socket_drops(sock):
    """Returns the number of buffers that the kernel dropped because the socket was full.  A buffer holds
    one packet.  With GRO, a buffer holds up to 64 KiB of packets."""
    numbers = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)
    return struct.unpack_from("=I", numbers, 4 * SK_MEMINFO_DROPS)[0]


class PinnedPool:
    """A spead2 thread pool with one thread, which is pinned to CPU 'cpu' (not pinned if negative).  The pool reports
    the thread's CPU time."""

    def __init__(self, cpu):
        others = os.sched_getaffinity(0) - {cpu}
        before = set(os.listdir("/proc/self/task"))
        self.pool = spead2.ThreadPool(1, [cpu] if cpu >= 0 else [])
        (tid,) = set(os.listdir("/proc/self/task")) - before
        # The number of the thread's CPU clock, in the form that clock_getcpuclockid(3) returns.
        self._clock = (~int(tid) << 3) | 6
        if cpu >= 0 and others:
            os.sched_setaffinity(0, others)

    def cpu_ns(self):
        return time.clock_gettime_ns(self._clock)


def say(text):
    print(text, flush=True)


def report(**results):
    say(json.dumps(results))
