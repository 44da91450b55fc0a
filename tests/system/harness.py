"""Runs the real daemons on captures or on the loopback interface, with real spead2 at both ends.

A scenario is a dictionary of overrides on the defaults below.  Everything that a daemon reads and writes lies in the
test's directory: NAME.yaml, NAME.in.pcap, NAME.out.pcap, NAME.log.
"""
import contextlib
import copy
import http.client
import itertools
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import spead2
import spead2.recv
import spead2.send
import yaml

ROOT = Path(__file__).resolve().parents[2]
# Of everything random, with the test's name.
SEED = int(os.environ.get("CBF_SEED", "20261121"))
BUILD = ROOT / os.environ.get("CBF_BUILD", "build")
FAKE_CUDA = BUILD / "tests" / "cbf-cuda-fake.so"  # the cuda device without a GPU: tests/fakes/cuda
SANITIZED = any(word in BUILD.name for word in ("address", "thread"))
TIMEOUT_S = float(os.environ.get("CBF_TIMEOUT", "60"))
FIRST = -10  # the nice value of what has priority over the machine's other work
EXIT_CONFIG = 78  # of a bad configuration: EX_CONFIG of sysexits.h
DEVICE = os.environ.get("CBF_TEST_DEVICE", "cpu")  # of every daemon that does not say otherwise
DIRECT = os.environ.get("CBF_TEST_DIRECT", "0") != "0"  # likewise recv.direct, where a test does not say
FGPU_WRAPPER = shlex.split(os.environ.get("CBF_FGPU_WRAPPER", ""))  # a program that runs fgpu, such as a sanitizer
XBGPU_WRAPPER = []  # likewise of xbgpu
WATCHDOG_S = 0  # of every daemon that is started; 0: the init system does not want to know
LIBRARY_PATH = os.environ.get("CBF_LIBRARY_PATH")  # of the programs; this one keeps its own
LOOPBACK = "127.0.0.1"

FLAVOUR = spead2.Flavour(4, 64, 48, 0)
IMMEDIATE = [("u", 48)]
WIRE = 1 << 48

TIMESTAMP = 0x1600
XENG_RAW = 0x1800
XENG_WEIGHTS = 0x1801
DIGITISER_ID = 0x3101
DIGITISER_STATUS = 0x3102
ADC_SAMPLES = 0x3300
FENG_ID = 0x4101
FREQUENCY = 0x4103
FENG_RAW = 0x4300
BF_RAW = 0x5000
BEAM_ANTS = 0x5004
BEAM_MASK = 0x5080
CRC = 0x1804

# ---- Addresses -------------------------------------------------------------------------------------------------------

PORT = 20000 + os.getpid() % 10000
_groups = itertools.count(os.getpid() * 61)


def groups(n=1):
    """The text of 'n' consecutive multicast endpoints that no other program uses."""
    first = next(_groups)
    while (first % 0x10000) % 256 + n > 255:
        first = next(_groups)
    for _ in range(n - 1):
        next(_groups)
    plus = f"+{n - 1}" if n > 1 else ""
    return f"239.104.{first // 256 % 256}.{first % 256}{plus}:{PORT}"


def endpoints(text):
    """[(address, port)] of an endpoint list."""
    out = []
    for part in text.split(","):
        host, port = part.split(":")
        base, _, extra = host.partition("+")
        first = struct.unpack(">I", socket.inet_aton(base))[0]
        out += [(socket.inet_ntoa(struct.pack(">I", first + i)), int(port)) for i in range(int(extra or 0) + 1)]
    return out


# Below the ports that the system gives to whoever asks for any, so that nobody is given one before its daemon has it.
_tcp_ports = itertools.count(os.getpid() * 1009)


def free_tcp_port():
    while True:
        port = 10000 + next(_tcp_ports) % 22000
        with socket.socket() as s:
            try:
                s.bind((LOOPBACK, port))
            except OSError:
                continue
        return port


# ---- Heaps and packets -----------------------------------------------------------------------------------------------


def immediate(item_id, value):
    return spead2.Item(item_id, "", "", (), format=IMMEDIATE, value=int(value) % WIRE)


def payload_item(item_id, array):
    return spead2.Item(item_id, "", "", array.shape, array.dtype, value=array)


def make_heap(items):
    heap = spead2.send.Heap(FLAVOUR)
    heap.repeat_pointers = True
    for item in items:
        heap.add_item(item)
    return heap


def digitiser_heap(timestamp, pol, packed, status=0):
    return make_heap([
        immediate(TIMESTAMP, timestamp),
        immediate(DIGITISER_ID, pol),
        immediate(DIGITISER_STATUS, status),
        payload_item(ADC_SAMPLES, packed),
    ])


def feng_heap(timestamp, feng_id, frequency, voltages):
    return make_heap([
        immediate(TIMESTAMP, timestamp),
        immediate(FENG_ID, feng_id),
        immediate(FREQUENCY, frequency),
        payload_item(FENG_RAW, voltages),
    ])


def stop_heap():
    heap = spead2.send.Heap(FLAVOUR)
    heap.add_end()
    return heap


def packets(heap, cnt, max_packet=8264):
    """The UDP payloads that spead2 makes of a heap."""
    return list(spead2.send.PacketGenerator(heap, cnt, max_packet))


@dataclass
class Sent:
    """A heap on its way to a daemon."""
    endpoint: tuple
    heap: object
    cnt: int


# ---- Captures --------------------------------------------------------------------------------------------------------


def _checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def frame(endpoint, payload):
    """An Ethernet frame with a UDP packet to 'endpoint', from 127.0.0.1 or as the payload's 'sender' says."""
    address, sender = socket.inet_aton(endpoint[0]), socket.inet_aton(getattr(payload, "sender", LOOPBACK))
    udp = struct.pack(">HHHH", 7148, endpoint[1], 8 + len(payload), 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0x4000, 4, 17, 0, sender, address)
    ip = ip[:10] + struct.pack(">H", _checksum(ip)) + ip[12:]
    ethernet = b"\x01\0\x5e" + bytes([address[1] & 0x7F]) + address[2:] + b"\x02\0\0\0\0\1\x08\0"
    return ethernet + ip + udp + payload


def write_pcap(path, udp_packets):
    """Writes [(endpoint, payload)] as a capture, a microsecond apart."""
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for i, (endpoint, payload) in enumerate(udp_packets):
            data = frame(endpoint, payload)
            out.write(struct.pack("<IIII", i // 1000000, i % 1000000, len(data), len(data)))
            out.write(data)


def read_pcap(path):
    """[(endpoint, payload)] of a capture of IPv4 UDP over Ethernet, in order."""
    data = Path(path).read_bytes()
    magic = struct.unpack("<I", data[:4])[0]
    assert magic in (0xA1B2C3D4, 0xA1B23C4D), f"{path}: not a capture of this machine"
    assert struct.unpack("<I", data[20:24])[0] == 1, f"{path}: not Ethernet"
    out = []
    at = 24
    while at < len(data):
        kept, length = struct.unpack("<II", data[at + 8:at + 16])
        assert kept == length, f"{path}: truncated packet"
        raw = data[at + 16:at + 16 + kept]
        assert len(raw) == kept, f"{path}: ends inside a packet"
        at += 16 + kept
        assert raw[12:14] == b"\x08\0" and raw[14] == 0x45 and raw[23] == 17, f"{path}: not plain IPv4 UDP"
        assert _checksum(raw[14:34]) == 0, f"{path}: bad IP checksum"
        ip_length, udp_length = struct.unpack(">H", raw[16:18])[0], struct.unpack(">H", raw[38:40])[0]
        assert ip_length == udp_length + 20 == kept - 14, f"{path}: lengths disagree"
        out.append(((socket.inet_ntoa(raw[30:34]), struct.unpack(">H", raw[36:38])[0]), raw[42:]))
    return out


# ---- What comes back -------------------------------------------------------------------------------------------------


@dataclass
class Heap:
    """A received heap: 'kind' is "descriptor", "data" or "stop"; items by name, as the descriptors say."""
    endpoint: tuple
    cnt: int
    kind: str
    items: dict = field(default_factory=dict)
    arrival_s: float = field(default_factory=time.monotonic)


class Decoder:
    """Turns the heaps of one destination into values, by the descriptors that came before them."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.descriptors = {}

    def knows(self, heap):
        """Whether the descriptors of a heap's items have come."""
        return bool(heap.get_descriptors()) or all(i.id <= 6 or i.id in self.descriptors for i in heap.get_items())

    def decode(self, heap):
        if heap.is_end_of_stream():
            return Heap(self.endpoint, heap.cnt, "stop")
        raw_descriptors = heap.get_descriptors()
        for raw in raw_descriptors:
            descriptor = spead2.Descriptor.from_raw(raw, heap.flavour)
            self.descriptors[descriptor.id] = descriptor
        if raw_descriptors:
            names = {spead2.Descriptor.from_raw(raw, heap.flavour).name for raw in raw_descriptors}
            return Heap(self.endpoint, heap.cnt, "descriptor", {name: None for name in names})
        out = Heap(self.endpoint, heap.cnt, "data")
        for item in heap.get_items():
            if item.id <= 6:
                continue
            assert item.id in self.descriptors, f"item {item.id:#x} came to {self.endpoint} before its descriptor"
            descriptor = self.descriptors[item.id]
            out.items[descriptor.name] = self.value(descriptor, item)
        return out

    @staticmethod
    def value(descriptor, item):
        if descriptor.format == IMMEDIATE and not descriptor.shape:
            assert item.is_immediate
            return item.immediate_value
        raw = np.frombuffer(bytes(item), np.uint8)
        if descriptor.dtype is not None:
            return raw.view(descriptor.dtype).reshape(descriptor.shape)
        (code, bits), = descriptor.format
        assert code in "iu" and bits < 8 and 8 % bits == 0
        kind = np.int8 if code == "i" else np.uint8
        parts = [(raw << (bits * i)).astype(kind) >> (8 - bits) for i in range(8 // bits)]
        return np.stack(parts, -1).reshape(descriptor.shape)


def _recv_stream():
    config = spead2.recv.StreamConfig(max_heaps=64, stop_on_stop_item=False)
    return spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=256))


def decode_pcap(path):
    """All heaps of a capture by destination, each in the order of arrival, as spead2 reads them."""
    out = {}
    for endpoint in dict.fromkeys(endpoint for endpoint, _ in read_pcap(path)):
        decoder = Decoder(endpoint)
        stream = _recv_stream()
        stream.add_udp_pcap_file_reader(str(path), f"udp and dst host {endpoint[0]} and dst port {endpoint[1]}")
        out[endpoint] = [decoder.decode(heap) for heap in stream]
        assert stream.stats["incomplete_heaps_evicted"] == 0, f"{path}: incomplete heaps to {endpoint}"
    return out


class Listener:
    """A socket that has joined the group of an endpoint: packets as they come."""

    def __init__(self, endpoint):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(endpoint)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                               socket.inet_aton(endpoint[0]) + socket.inet_aton(LOOPBACK))
        self.socket.settimeout(TIMEOUT_S)

    def recv(self):
        return self.socket.recv(65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Receiver:
    """Receives multicast with spead2 on a separate thread, from sockets or with ibverbs.  'heaps' grows as heaps come.

    With 'may_lose' data wait for their descriptors: a busy host may have lost them, and they come again."""

    def __init__(self, destinations, interface_address=LOOPBACK, ibverbs=False, may_lose=False):
        self.heaps = []
        self.may_lose = may_lose
        self.changed = threading.Condition()
        self.streams = []
        self.threads = []
        for endpoint in endpoints(destinations):
            stream = _recv_stream()
            if ibverbs:
                stream.add_udp_ibv_reader(spead2.recv.UdpIbvConfig(
                    endpoints=[endpoint], interface_address=interface_address, buffer_size=16 << 20))
            else:
                stream.add_udp_reader(*endpoint, buffer_size=4 << 20, interface_address=interface_address)
            thread = threading.Thread(target=self._run, args=(stream, Decoder(endpoint)), daemon=True)
            self.streams.append(stream)
            self.threads.append(thread)
            thread.start()

    def _run(self, stream, decoder):
        for heap in stream:
            if self.may_lose and not decoder.knows(heap):
                continue
            decoded = decoder.decode(heap)
            with self.changed:
                self.heaps.append(decoded)
                self.changed.notify_all()

    def wait(self, condition, what, timeout=TIMEOUT_S):
        """Waits until condition(heaps); fails with 'what' if it does not become true."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.heaps), timeout), \
                f"{what}: not within {timeout:g} s; {len(self.heaps)} heaps came"

    def wait_stops(self, n=None):
        n = n or len(self.streams)
        self.wait(lambda heaps: sum(h.kind == "stop" for h in heaps) >= n, f"{n} stop heaps")

    def data(self):
        with self.changed:
            return [h for h in self.heaps if h.kind == "data"]

    def stop(self):
        for stream in self.streams:
            stream.stop()
        for thread in self.threads:
            thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@contextlib.contextmanager
def priority():
    """The calling thread, and each thread that it starts, has priority over the machine's other work, if this user may set
    priorities."""
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    may_set = os.geteuid() == 0
    if may_set:
        os.setpriority(os.PRIO_PROCESS, thread, FIRST)
    try:
        yield
    finally:
        if may_set:
            os.setpriority(os.PRIO_PROCESS, thread, before)


@priority()
def send_live(sent, rate=1e6, max_packet=9000, interface_address=LOOPBACK, ibverbs=False, **more):
    """Sends heaps by multicast with spead2, in order, at 'rate' bytes/s, from a socket or with ibverbs.  Returns when all
    heaps have left.  'more' holds arguments of spead2's StreamConfig.

    The threads of a daemon receive separately.  A thread that falls behind the others by the window of chunks loses
    heaps.  So a test with several threads chooses a low rate: the window then takes longer than a busy machine keeps a
    thread waiting.
    """
    where = list(dict.fromkeys(s.endpoint for s in sent))
    config = spead2.send.StreamConfig(max_packet_size=max_packet, max_heaps=len(sent) + 1, rate=rate,
                                      burst_size=16384, **more)
    if ibverbs:
        stream = spead2.send.UdpIbvStream(spead2.ThreadPool(), config, spead2.send.UdpIbvConfig(
            endpoints=where, interface_address=interface_address))
    else:
        stream = spead2.send.UdpStream(spead2.ThreadPool(), where, config, ttl=1, interface_address=interface_address)
    references = [spead2.send.HeapReference(s.heap, cnt=s.cnt, substream_index=where.index(s.endpoint)) for s in sent]
    stream.send_heaps(references, spead2.send.GroupMode.SERIAL)


def write_heaps(path, sent, max_packet=9000, extra=()):
    """Writes heaps to a capture; 'extra' is [(index, endpoint, payload)]: raw packets put in front of heap 'index'."""
    extra_at = defaultdict(list)
    for index, endpoint, payload in extra:
        extra_at[index].append((endpoint, payload))
    out = []
    for i, s in enumerate(sent):
        out += extra_at[i]
        out += [(s.endpoint, p) for p in packets(s.heap, s.cnt, max_packet)]
    out += extra_at[len(sent)]
    write_pcap(path, out)


# ---- Daemons ---------------------------------------------------------------------------------------------------------

FGPU = {
    "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000, "timebase": "packets"},
    "device": {"kind": DEVICE, "threads": 1},
    "recv": {"sample_bits": 10, "packet_samples": 1024, "chunk_samples": 16384, "max_delay_diff": 0, "buffer": 4194304},
    "antennas": [],
    "outputs": [],
    "send": {"rate_factor": 0, "packet_payload": 8192, "array_size": 4},
}
FGPU_OUTPUT = {"kind": "wideband", "name": "wide", "channels": 64, "spectra_per_heap": 16, "taps": 16, "dither": "none"}

XBGPU = {
    "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000, "timebase": "packets"},
    "device": {"kind": DEVICE, "threads": 1},
    "recv": {"antennas": 2, "channels": 64, "channels_per_substream": 4, "channel_offset": 8, "spectra_per_heap": 16,
             "samples_between_spectra": 128, "batches_per_chunk": 4, "buffer": 4194304},
    "outputs": [],
    "send": {"rate_factor": 0, "packet_payload": 8192},
}
XBGPU_OUTPUT = {"kind": "correlate", "name": "bcp", "integration_batches": 4, "send_enabled": True}


def merge(base, overrides):
    """'base' with the overrides laid over it, section by section."""
    out = copy.deepcopy(base)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = copy.deepcopy(value)
    return out


class Metrics:
    """A scrape of /metrics."""

    def __init__(self, text):
        self.samples = []
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            name, _, rest = line.partition("{") if "{" in line else (line.split()[0], "", "")
            labels, _, value = rest.rpartition("}") if rest else ("", "", line.split()[1])
            pairs = dict(part.split("=", 1) for part in labels.split(",")) if labels else {}
            self.samples.append((name, {k.strip(): v.strip('"') for k, v in pairs.items()}, float(value)))

    def get(self, name, **labels):
        """The sum of a metric over all label sets that have these labels; there must be one."""
        labels = {k: str(v) for k, v in labels.items()}
        found = [v for n, have, v in self.samples if n == name and labels.items() <= have.items()]
        names = sorted({n for n, _, _ in self.samples})
        assert found, f"no metric {name}{labels} among {names}"
        return sum(found)


def until(condition, what, timeout=TIMEOUT_S):
    """Asks until condition() is true, and returns its value. 'what' or what() names the missing result."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what() if callable(what) else what}: not within {timeout:g} s"
        time.sleep(0.01)
    return answer


def page(where, path):
    """The text of a page of the program that listens at 'where'."""
    with urllib.request.urlopen(f"http://{where}/{path}", timeout=TIMEOUT_S) as reply:
        return reply.read().decode()


def wait_asleep(process, timeout=TIMEOUT_S):
    """Waits until a program's main thread sleeps, or it has ended.

    After READY a program is on its way into its event loop.  There the thread sanitizer's runtime (not the program) may
    lose a signal.
    """
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "SZX":
            return
        assert time.monotonic() < deadline, f"process {process.pid} does not sleep within {timeout:g} s"
        select.select([], [], [], 0.001)


def directly(config):
    """Sets recv.direct, and so no audit, unless the test sets them."""
    config = merge(config, {})
    if config.get("recv", {}).setdefault("direct", True):
        for output in config["outputs"]:
            output.pop("audit_samples", None)
    return config


SYNCHRONISED, UNSYNCHRONISED = 0, 5  # as adjtimex(2) returns


def why_no_fake_cuda():
    """Why no daemon can run emulated kernels (tests/fakes/cuda), or None."""
    if not FAKE_CUDA.exists():
        return "built without the CUDA toolkit"
    return None if shutil.which("g++") else "there is no g++, which compiles emulated kernels"


class Clock:
    """The kernel's clock of one process (tests/fakes/clock), which a sanitizer's runtime does not allow."""

    def __init__(self, path, offset_s=0, state=SYNCHRONISED):
        self.path = path
        self.path.write_bytes(bytes(24))
        self.set(offset_s, state)

    def set(self, offset_s, state, monotonic_offset_s=0):
        with self.path.open("r+b") as file:
            file.write(struct.pack("=qqq", offset_s, state, monotonic_offset_s))

    def environment(self):
        return {"LD_PRELOAD": str(BUILD / "tests" / "fake-clock.so"), "CBF_FAKE_CLOCK": str(self.path)}


def environment_of_programs():
    """The tests' environment variables, and the places of the programs' libraries."""
    return {**os.environ, "LD_LIBRARY_PATH": LIBRARY_PATH} if LIBRARY_PATH else dict(os.environ)


class Daemon:
    """One running program. 'stderr': a descriptor instead of its log; 'clock': a Clock instead of the kernel's;
    'first': it has priority over the machine's other work, if this user may set priorities.  'wrapper': the command that
    runs it, such as Python.  'variables': of its environment.  'options': of its command line."""

    def __init__(self, program, config, work, name, stderr=None, clock=None, first=False, wrapper=(), variables=None,
                 options=()):
        if DIRECT and program in ("fgpu", "xbgpu"):
            config = directly(config)
        binary = BUILD / program
        assert binary.exists(), f"{binary} is not built: run make"
        self.name = name
        self.log = work / f"{name}.log"
        self.config = config
        path = work / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False, width=1000))
        notify_path = work / f"{name}.notify"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(notify_path))
        environment = {k: v for k, v in environment_of_programs().items()
                       if k not in ("JOURNAL_STREAM", "WATCHDOG_USEC")}
        environment["NOTIFY_SOCKET"] = str(notify_path)
        if WATCHDOG_S:
            environment["WATCHDOG_USEC"] = str(int(WATCHDOG_S * 1e6))
        if clock:
            environment.update(clock.environment())
        environment.update(variables or {})
        wrapper = {"fgpu": FGPU_WRAPPER, "xbgpu": XBGPU_WRAPPER}.get(program, list(wrapper))
        if first and os.geteuid() == 0:
            wrapper = ["nice", "-n", str(FIRST), *wrapper]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*wrapper, str(binary), *options, str(path)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=stderr or log, env=environment, cwd=work)
        self.pidfd = os.pidfd_open(self.process.pid)

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])

    def wait_ready(self, timeout=TIMEOUT_S):
        """Waits until the daemon has sent READY to the init system."""
        deadline = time.monotonic() + timeout
        while True:
            ready, _, _ = select.select([self.notify, self.pidfd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{self.name} not ready within {timeout:g} s:\n{self.tail()}"
            if self.notify in ready:
                if "READY=1" in self.notify.recv(4096).decode().splitlines():
                    wait_asleep(self.process)
                    return self
            elif self.pidfd in ready:
                raise AssertionError(f"{self.name} ended before it was ready, code {self.process.wait()}:\n{self.tail()}")

    def wait_end(self, code=0, timeout=2 * TIMEOUT_S):
        """Waits until the daemon has ended, which it must with 'code'."""
        try:
            ended = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout:g} s:\n{self.tail()}") from None
        assert ended == code, f"{self.name} ended with code {ended}, not {code}:\n{self.tail()}"
        return self

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self

    def metrics(self):
        return Metrics(page(self.config["http"]["listen"], "metrics"))

    def status(self, query=""):
        """/status.json."""
        return json.loads(page(self.config["http"]["listen"], f"status.json{query}"))

    def wait_metric(self, condition, what, timeout=TIMEOUT_S):
        """Scrapes until condition(metrics); counters follow the packets by an instant."""
        deadline = time.monotonic() + timeout
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            assert time.monotonic() < deadline, f"{self.name}: {what}: not within {timeout:g} s"
            select.select([self.pidfd], [], [], 0.02)

    def wait_counted(self, condition, what, timeout=TIMEOUT_S):
        """All counters after condition(metrics) holds.  A page is read counter by counter.  So the first page that
        fulfils the condition may have older values of the counters read before."""
        self.wait_metric(condition, what, timeout)
        return self.metrics()

    def __enter__(self):
        return self.wait_ready()

    def __exit__(self, error, *_):
        if not error:
            self.terminate().wait_end()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.pidfd)
        self.notify.close()


class Scraper:
    """Reads a daemon's /metrics in a loop from some threads, until the connection is refused or reset by its end."""

    def __init__(self, process, n_threads=1):
        host, port = process.config["http"]["listen"].split(":")
        self.where = (host, int(port))
        self.changed = threading.Condition()
        self.n_replies = 0
        self.n_refused = 0
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(n_threads)]

    @property
    def refused(self):
        """True if every thread continued until the peer stopped listening."""
        return self.n_refused == len(self.threads)

    def _run(self):
        while True:
            try:
                with urllib.request.urlopen("http://%s:%d/metrics" % self.where, timeout=TIMEOUT_S) as reply:
                    reply.read()
            except urllib.error.URLError as error:
                if isinstance(error.reason, ConnectionRefusedError):
                    break
            except (OSError, http.client.HTTPException):
                pass  # cut off by the end; the next one is refused
            else:
                with self.changed:
                    self.n_replies += 1
                    self.changed.notify_all()
        with self.changed:
            self.n_refused += 1

    def wait_replies(self, n):
        with self.changed:
            assert self.changed.wait_for(lambda: self.n_replies >= n, TIMEOUT_S), f"{self.n_replies} scrapes answered"

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join(TIMEOUT_S)
