"""recv.transport: ibverbs, over a software libibverbs (tests/fakes/verbs).  The same packets give the same output and the
same counters as from a socket or a capture, whatever else is on the wire.  Any failure gives one sentence and an end.
"""
import contextlib
import errno
import os
import random
import re
import signal
import socket
import struct
import time
from unittest import mock

import numpy as np
import pytest
import spead2
import spead2.send

import chain
import harness
import scenario
import streams
import test_fsim
import verbs
from harness import EXIT_CONFIG, endpoints, merge
from streams import STREAMS, Outcome, counts, heaps_received
from test_wrong_packets import TABLE, disturb

BURST = 32  # packets that are always room for

TRANSPORTS = {"udp": {"transport": "udp"}, "ibverbs": {"transport": "ibverbs"},
              "polling": {"transport": "ibverbs", "comp_vector": -1}}


@pytest.fixture
def ends():
    """The daemon's end of the wire, and the other."""
    with verbs.fake_wire() as both:
        yield both


def live_config(stream, end, sink, **recv):
    """Configuration of a program that receives at 'end', with room for all packets of a test, and writes its output to
    'sink'."""
    more = {"interface": end.interface, "chunks": 256, "threads": 1}
    out = {"send": {"pcap_file": str(sink)}}
    if stream.program == "visrec":
        more, out = {"interface": end.interface}, {"output": {"file": str(sink)}}
    else:
        out["outputs"] = [output | {"buffers": 64} for output in stream.config["outputs"]]
    listen = f"127.0.0.1:{harness.free_tcp_port()}"
    config = merge(stream.config, {"recv": more | recv, "http": {"listen": listen}} | out)
    for output in config.get("outputs", []):
        output["buffers"] = 1024  # on a busy machine all may wait to be written
    return config


def start(daemon, program, config, end, name=None):
    with mock.patch.dict(os.environ, end.env):
        return daemon(program, config, name)


# ---- Frames ----------------------------------------------------------------------------------------------------------


def ip_packet(endpoint, udp, protocol=17, fragment=0x4000, options=b"", checksum=0, address=None, length=0):
    """An Ethernet frame around 'udp'; checksum: the error of the checksum."""
    total = 20 + len(options) + len(udp) + length
    head = struct.pack(">BBHHHBBHI4s", 0x45 + len(options) // 4, 0, total, 7, fragment, 4, protocol, 0, 0x0A3C0002,
                       socket.inet_aton(address or endpoint[0])) + options
    head = head[:10] + struct.pack(">H", harness._checksum(head) ^ checksum) + head[12:]
    group = socket.inet_aton(endpoint[0])
    return b"\x01\0\x5e" + bytes([group[1] & 0x7F]) + group[2:] + b"\x02\0\0\0\0\1\x08\0" + head + udp


def datagram(endpoint, payload, length=0, port=0):
    return struct.pack(">HHHH", 7148, port or endpoint[1], 8 + len(payload) + length, 0) + payload


def ours(rng, endpoint, payload):
    """The packet in a frame of one kind or another."""
    options = [b"", b"", b"\1\1\1\0", b"\1" * 39 + b"\0"][rng.integers(4)]
    return ip_packet(endpoint, datagram(endpoint, payload), options=options) + bytes(rng.integers(0, 30))


def foreign(endpoint, payload):
    """Packets that the kernel would not give to a socket of this endpoint; each contains the packet."""
    udp = datagram(endpoint, payload)
    first, rest = endpoint[0].split(".", 1)
    return [
        ip_packet(endpoint, datagram(endpoint, payload, port=endpoint[1] + 1)),
        ip_packet(endpoint, udp, address=f"{int(first) - 1}.{rest}"),  # the same address of Ethernet
        ip_packet(endpoint, udp, protocol=6),
        ip_packet(endpoint, udp, fragment=0x2000),
        ip_packet(endpoint, udp, fragment=0x0020),
        ip_packet(endpoint, udp, checksum=0x0100),
        ip_packet(endpoint, udp, length=100),
        ip_packet(endpoint, datagram(endpoint, payload, length=1)),
        ip_packet(endpoint, udp[:6]),
        ip_packet(endpoint, udp).replace(b"\x08\0\x45", b"\x86\xdd\x45", 1),
        b"\xff" * 6 + b"\x02\0\0\0\0\1\x08\x06" + bytes(46),
    ]


class Wire:
    """Puts frames onto the wire at one end."""

    def __init__(self, end):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind((end.interface, 0))

    def send(self, frame):
        self.socket.send(frame)


@contextlib.contextmanager
def one_cpu():
    """This thread, and each thread that it starts, send from one CPU.  Linux keeps no order between frames that
    different CPUs have sent."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(cpus))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@one_cpu()
def feed(process, stream, end, frames, n_sent=0, n_dumps=()):
    """Sends [(frame, whether it is for the daemon)], never more than it has room for, after 'n_sent' others; n_dumps[i]
    must have been written before the next."""
    wire_end = Wire(end)
    burst = BURST if stream.program != "visrec" else 8
    for i, (frame, is_ours) in enumerate(frames):
        wire_end.send(frame)
        n_sent += is_ours
        if i % burst == burst - 1 or i == len(frames) - 1:
            metrics = process.wait_counted(lambda m: m.get(f"{stream.prefix}_packets_total") >= n_sent,
                                           f"{n_sent} packets taken")
            if len(n_dumps):
                process.wait_metric(lambda m: m.get("visrec_dumps_total") >= n_dumps[i], f"{n_dumps[i]} dumps written")
    assert metrics.get(f"{stream.prefix}_packets_total") == n_sent
    return metrics


def n_written(stream, packets):
    """The number of dumps that a recorder has closed before each packet, by the good packets: it has room for few
    more."""
    if stream.program != "visrec":
        return ()
    good = {packet.bytes(): packet.get(harness.TIMESTAMP) // stream.step for _, packet in stream.packets}
    first = min(good.values())
    return np.maximum.accumulate([good.get(payload, first) - first - stream.window for _, payload in packets])


def run_live(daemon, work, ends, stream, frames, n_dumps, name, **recv):
    """Runs a program over frames, and ends it."""
    sink = work / f"{name}.out"
    config = live_config(stream, ends[0], sink, **recv)
    with start(daemon, stream.program, config, ends[0], name) as process:
        metrics = feed(process, stream, ends[1], frames, n_dumps=n_dumps)
    sent = streams.read_file(sink) if stream.program == "visrec" else streams.read_sent(sink)
    return Outcome(sent, metrics, process.log.read_text())


def assert_same(stream, found, expected):
    assert counts(stream, found.metrics) == counts(stream, expected.metrics)
    for name in ("missing_heaps", "incomplete_heaps", "jumps", "kernel_drops"):
        total = "" if name == "kernel_drops" else "_total"
        assert found.metrics.get(f"{stream.prefix}_{name}{total}") == \
            expected.metrics.get(f"{stream.prefix}_{name}{total}"), name
    assert heaps_received(found.log) == heaps_received(expected.log)
    assert found.sent.keys() == expected.sent.keys()
    for key in expected.sent:
        assert found.sent[key] == expected.sent[key], f"what leaves for {key} has changed"


# ---- The same from everywhere ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", STREAMS)
def test_same_as_sockets(program, daemon, work, ends, rng):
    """Packets out of order, twice, missing and wrong for every reason, among packets for others."""
    stream = STREAMS[program]()

    def bad_at(good):
        if rng.random() > 0.3:
            return []
        reason = list(TABLE)[rng.integers(len(TABLE))]
        bad = [] if (program, reason) in (("fgpu", "bad_frequency"), ("visrec", "bad_source"), ("fgpu", "jump"),
                                          ("xbgpu", "jump"), ("visrec", "jump")) else TABLE[reason](stream, good)
        bad = [b for b in bad if len(b) <= 4096]
        return [(reason, bad[i]) for i in rng.permutation(len(bad))[:3]]

    packets, refused = disturb(stream, bad_at)
    assert len(refused) > 8
    packets = [packets[i] for i in np.argsort(np.arange(len(packets)) + rng.uniform(0, 4, len(packets)))]
    packets = [p for i, p in enumerate(packets) if i < 200 or rng.random() > 0.01]
    frames, told = [], []
    for packet in packets:
        frames.append((ours(rng, *packet), True))
        told.append(packet)
        if rng.random() < 0.2:
            others = foreign(*packet)
            frames.append((others[rng.integers(len(others))], False))
            told.append(packet)
    outcomes = {name: run_live(daemon, work, ends, stream, frames, n_written(stream, told), name, **recv)
                for name, recv in TRANSPORTS.items()}
    assert sum(counts(stream, outcomes["udp"].metrics).values()) >= sum(refused.values()) / 2
    for name in ("ibverbs", "polling"):
        assert_same(stream, outcomes[name], outcomes["udp"])
    replayed = streams.replay(daemon, work, stream, packets, "replayed")
    assert outcomes["ibverbs"].sent == replayed.sent


@pytest.mark.parametrize("mtu, n", [(1500, 44), (9000, 46), (9002, 44)])
def test_many_groups(mtu, n, daemon, work, rng):
    """More groups than a socket may join, a packet as large as the interface takes, and two ports of each."""
    with verbs.fake_wire(mtu=mtu) as ends:
        stream = STREAMS["xbgpu"](payload_bytes=256)
        (where,) = endpoints(stream.config["recv"]["sources"])
        first = where[0].rsplit(".", 1)[0]
        groups = [f"{first}.{i}" for i in rng.permutation(250)[:n // 2]]
        config = live_config(stream, ends[0], work / "out", transport="ibverbs",
                             sources=",".join(f"{group}:{port}" for group in groups for port in (7148, 7149)))
        with start(daemon, "xbgpu", config, ends[0]) as process:
            packets = [p.bytes() for _, p in stream.packets]
            packets[7] += bytes(mtu - 28 - len(packets[7]))
            frames = [(ip_packet(e, datagram(e, p)), True) for p in packets for e in
                      [(groups[rng.integers(len(groups))], int(rng.choice([7148, 7149])))]]
            assert max(len(frame) for frame, _ in frames) == mtu + 14
            metrics = feed(process, stream, ends[1], frames)
            assert counts(stream, metrics)["malformed: bad_length"] == 1
            assert sum(counts(stream, metrics).values()) == 1


def test_unicast(daemon, work, ends):
    """Sends to an address of the interface.  The kernel then lets no other program use the port."""
    stream = STREAMS["xbgpu"]()
    sources = f"{ends[0].address}:7148"
    config = live_config(stream, ends[0], work / "out", transport="ibverbs", sources=sources)
    with start(daemon, "xbgpu", config, ends[0]) as process:
        start(daemon, "xbgpu", live_config(stream, ends[0], work / "out", transport="ibverbs", sources=sources), ends[0],
              "second").wait_end(1)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.bind((ends[0].interface, 0))
            mac = raw.getsockname()[4]
            raw.bind((ends[1].interface, 0))
            for _, p in stream.packets[:BURST]:
                where = (ends[0].address, 7148)
                raw.send(mac + ip_packet(where, datagram(where, p.bytes()))[6:])
        process.wait_metric(lambda m: m.get("xbgpu_input_packets_total") == BURST, "all packets")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_threads_that_share_a_group(transport, daemon, work, ends):
    """Each of two threads sees all packets of the group, and ignores packets of the other thread's F-engines."""
    stream = STREAMS["xbgpu"]()
    config = live_config(stream, ends[0], work / "out", threads=2, window=8, **TRANSPORTS[transport])
    with start(daemon, "xbgpu", config, ends[0]) as process, one_cpu():
        wire_end, n = Wire(ends[1]), len(stream.packets)
        for i, (endpoint, packet) in enumerate(stream.packets):
            wire_end.send(ip_packet(endpoint, datagram(endpoint, packet.bytes())))
            if i % 16 == 15 or i == n - 1:
                process.wait_metric(lambda m: m.get("xbgpu_input_packets_total") == 2 * (i + 1), "both threads")
        for thread, n_others in (("recv0", n * 2 // 3), ("recv1", n // 3)):
            metrics = process.wait_metric(lambda m: m.get("xbgpu_input_ignored_packets_total", thread=thread,
                                                          reason="other_thread") == n_others, "the other's ignored")
        assert sum(counts(stream, metrics).values()) == n
    packets = [(endpoint, packet.bytes()) for endpoint, packet in stream.packets]
    assert streams.read_sent(work / "out") == streams.replay(daemon, work, stream, packets, "replayed").sent


@pytest.mark.parametrize("transport", ["ibverbs", "polling"])
def test_ring_overflow(transport, daemon, work):
    """Packets without a posted frame are lost, and counted as the NIC counts them.  The daemon continues."""
    with verbs.fake_wire(limits="max_qp_wr=8") as ends:
        stream = STREAMS["xbgpu"](payload_bytes=256)
        config = live_config(stream, ends[0], work / "out", **TRANSPORTS[transport])
        with start(daemon, "xbgpu", config, ends[0]) as process:
            wire_end, n, n_lost = Wire(ends[1]), 0, 0
            for _ in range(50):  # the card and the thread both go on; who is faster is chance
                process.process.send_signal(signal.SIGSTOP)
                for endpoint, packet in stream.packets:
                    wire_end.send(ip_packet(endpoint, datagram(endpoint, packet.bytes())))
                process.process.send_signal(signal.SIGCONT)
                n += len(stream.packets)
                process.wait_metric(lambda m: m.get("xbgpu_input_packets_total") + m.get("xbgpu_input_kernel_drops") == n,
                                    "packets taken and dropped")
                n_lost = ends[0].counter("out_of_buffer")
                if n_lost > 0:
                    break
            assert process.metrics().get("xbgpu_input_kernel_drops") == n_lost > 0
            again = [(ip_packet(e, datagram(e, p.bytes())), True) for e, p in stream.packets[:4]]
            for frame in again:
                feed(process, stream, ends[1], [frame], n - n_lost + again.index(frame))


# ---- From real senders -----------------------------------------------------------------------------------------------


def run_both(daemon, work, ends, program, config, send, n_least):
    """Runs a program twice on the same wire, once with sockets: each takes 'n_least' packets, and stop heaps."""
    prefix = f"{program}_input"
    stream = streams.Stream(program, prefix, config, [], (), 0, 0, 0, (), ())
    processes = [start(daemon, program, live_config(stream, ends[0], work / name, **TRANSPORTS[name]), ends[0], name)
                 for name in ("udp", "ibverbs")]
    for process in processes:
        process.wait_ready()
    send()
    taken = [p.wait_metric(lambda m: m.get(f"{prefix}_packets_total") >= n_least, f"{n_least} packets")
             for p in processes]
    n_packets = max(metrics.get(f"{prefix}_packets_total") for metrics in taken)
    outcomes = []
    for process, name in zip(processes, ("udp", "ibverbs")):
        metrics = process.wait_metric(lambda m: m.get(f"{prefix}_packets_total") >= n_packets, f"{n_packets} packets")
        process.terminate().wait_end()
        outcomes.append(Outcome(streams.read_sent(work / name), metrics, process.log.read_text()))
    return outcomes


def assert_sent_same(outcomes):
    udp, ibverbs = outcomes
    assert sum(map(len, udp.sent.values())) >= 12
    assert heaps_received(udp.log) == heaps_received(ibverbs.log)
    assert udp.sent.keys() == ibverbs.sent.keys()
    for where in udp.sent:  # antennas are in nobody's order
        assert sorted(udp.sent[where]) == sorted(ibverbs.sent[where])


def test_fed_by_dsim(daemon, work, ends):
    layout, n_windows = chain.Layout(work), 3
    first = int(time.time() - chain.SYNC_TIME) * chain.RATE // chain.WINDOW * chain.WINDOW
    dsim = merge(layout.dsim(), {
        "digitiser": {"duration": n_windows * chain.WINDOW / chain.RATE, "first_timestamp": first % harness.WIRE},
        "send": {"interface": ends[1].interface, "ttl": 1, "buffer": 4194304}})
    n_heaps = n_windows * chain.WINDOW // chain.PACKET

    def send():
        log = daemon("dsim", dsim, "dsim").wait_end().log.read_text()
        assert f"{n_heaps} heaps per polarisation sent, 0 packets failed" in log

    assert_sent_same(run_both(daemon, work, ends, "fgpu", layout.fgpu(0, 1), send, 2 * chain.N_ANTS * n_heaps))


def test_fed_by_fsim(daemon, work, ends):
    n_batches, n_ants = 60, 3
    send = {"interface": ends[1].interface, "ttl": 1, "packet_payload": 96, "rate_factor": 1.1}
    fsim = test_fsim.fsim_config(test_fsim.SIGNALS["noise"], n_batches, 2, time={"adc_sample_rate": 100000},
                                 stream={"antennas": n_ants}, send=send)
    config = test_fsim.xbgpu_config(fsim, [{"integration_batches": 5}])
    assert_sent_same(run_both(daemon, work, ends, "xbgpu", config,
                              lambda: test_fsim.start(daemon, fsim).wait_end(), 3 * n_batches * n_ants))


def test_fed_by_spead2(daemon, work, ends, rng):
    # The window holds the whole stream.  A daemon that is stalled for a moment reads all packets of one socket before
    # those of the next.
    config = scenario.fgpu_config(outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4}], pol_groups=2,
                                  time={"adc_sample_rate": streams.SAMPLE_RATE},
                                  recv={"packet_samples": 4096, "chunk_samples": 65536, "window": 18, "chunks": 60})
    # The stream ends with a chunk: 77 + 195 packets are 17 chunks.
    sent = scenario.digitiser_heaps(config, scenario.noise(rng, 1, 195 * 4096, 10), 4096 * 77)
    where = list(dict.fromkeys(s.endpoint for s in sent))

    @one_cpu()
    def send():
        paced = spead2.send.StreamConfig(max_packet_size=8000, max_heaps=len(sent) + 1, rate=2e6)
        stream = spead2.send.UdpStream(spead2.ThreadPool(), where, paced, ttl=1, interface_address=ends[1].address)
        stream.send_heaps([spead2.send.HeapReference(s.heap, cnt=s.cnt, substream_index=where.index(s.endpoint))
                           for s in sent], spead2.send.GroupMode.SERIAL)

    outcomes = run_both(daemon, work, ends, "fgpu", config, send, len(sent))
    assert_sent_same(outcomes)


# ---- What fails ------------------------------------------------------------------------------------------------------

# The calls of a start that the trace does not show.
UNTRACED = ["ibv_query_device_ex", "ibv_query_port", "ibv_post_recv"]
CODES = {"EPERM": EXIT_CONFIG, "EINVAL": EXIT_CONFIG, "EOPNOTSUPP": EXIT_CONFIG, "EBUSY": 1, "ENOMEM": 1, "EIO": 1}


def errors(process):
    return [line.split("error: ", 1)[1] for line in process.log.read_text().splitlines() if "] error: " in line]


def calls_of(daemon, work, stream):
    with verbs.fake_wire() as ends:
        config = live_config(stream, ends[0], work / "out", transport="ibverbs", threads=2)
        with start(daemon, "fgpu", config, ends[0], "traced") as process:
            begin = [line.split()[0] for line in ends[0].trace]
        end = [line.split()[0] for line in ends[0].trace][len(begin):]
        return begin, end


def test_whatever_call_fails_at_the_start(daemon, work):
    """Each call, for each thread, fails for different reasons.  There is one sentence, the exit code says whether a
    restart helps, and nothing is left behind."""
    stream = STREAMS["fgpu"]()
    begin, end = calls_of(daemon, work, stream)
    calls = {call: begin.count(call) for call in begin} | {call: 2 for call in UNTRACED}
    assert {"ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_comp_channel", "ibv_create_cq",
            "ibv_create_qp", "ibv_modify_qp", "ibv_create_flow"} <= calls.keys()
    for call, n in calls.items():
        for at in range(1, n + 1):
            reason = list(CODES)[(at + len(call)) % len(CODES)]
            if (call, reason) == ("ibv_query_device_ex", "EOPNOTSUPP"):
                continue  # then the header asks the older way
            with verbs.fake_wire(fail=f"{call}:{reason}@{at}") as ends:
                config = live_config(stream, ends[0], work / "out", transport="ibverbs", threads=2)
                process = start(daemon, "fgpu", config, ends[0], f"{call}-{at}-{reason}").wait_end(CODES[reason])
                (error,) = errors(process)
                text = os.strerror(getattr(errno, reason))
                assert ends[0].interface in error or "239." in error, error
                assert text in error or (reason, "ibv_create_flow") == ("EOPNOTSUPP", call), (text, error)
    # What fails on the way out is nobody's business any more.
    for call in dict.fromkeys(end):
        with verbs.fake_wire(fail=f"{call}:EIO", may_complain=True) as ends:
            config = live_config(stream, ends[0], work / "out", transport="ibverbs", threads=2)
            ends[0].env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # of that library
            process = start(daemon, "fgpu", config, ends[0], f"end-{call}").wait_ready()
            process.terminate().wait_end()
            assert errors(process) == []


@pytest.mark.parametrize("program", ["fgpu", "xbgpu", "visrec"])
def test_packets_come_last(program, daemon, work, ends):
    """The flows are set after all other steps.  So a slow start neither loses packets nor gets old ones."""
    stream = STREAMS[program]()
    config = live_config(stream, ends[0], work / "out", transport="ibverbs")
    if program != "visrec":
        config["send"] = {"interface": ends[0].interface, "transport": "ibverbs"}
    with start(daemon, program, config, ends[0]) as process:
        calls = [line.split()[0] for line in ends[0].trace]
    first = calls.index("ibv_create_flow")
    assert set(calls[first:]) == {"ibv_create_flow"}
    assert calls.count("ibv_create_qp") == {"fgpu": 2, "xbgpu": 3, "visrec": 1}[program]


# What fails while packets come, and what is said of it.
RUNNING = {
    "ibv_post_recv:ENOMEM@5": "a work request was refused: Cannot allocate memory",
    "ibv_poll_cq:EINVAL@20": "the completion queue cannot be read",
    "ibv_req_notify_cq:EIO@3": "completion events cannot be requested: Input/output error",
    "ibv_get_cq_event:EIO@2": "the completion channel cannot be read: Input/output error",
    "completion:IBV_WC_LOC_LEN_ERR@100": "receiving failed: local length error (a frame is longer than the MTU was",
    "completion:IBV_WC_GENERAL_ERR@100": "receiving failed: general error",
    "removal@100": ("the NIC failed or was removed: ", "completion events cannot be requested: Input/output error",
                    "a work request was refused: Input/output error"),  # whichever is noticed first
}


@pytest.mark.parametrize("fail", RUNNING)
@pytest.mark.parametrize("transport", ["ibverbs", "polling"])
def test_whatever_fails_while_packets_come(fail, transport, daemon, work):
    """One sentence about it, exit code 1, and all earlier output is right."""
    if transport == "polling" and re.match("ibv_req_notify|ibv_get_cq", fail):
        pytest.skip("who polls asks for no events")
    stream = STREAMS["xbgpu"](payload_bytes=256)
    with verbs.fake_wire(fail=fail) as ends:
        config = live_config(stream, ends[0], work / "out", **TRANSPORTS[transport])
        process = start(daemon, "xbgpu", config, ends[0]).wait_ready()
        wire_end = Wire(ends[1])
        # However few wake-ups an engine needs for however many packets, as long as they come there is a next one.
        give_up = time.monotonic() + harness.TIMEOUT_S
        while process.process.poll() is None and time.monotonic() < give_up:
            for endpoint, packet in stream.packets:
                wire_end.send(ip_packet(endpoint, datagram(endpoint, packet.bytes())))
        process.wait_end(1)
        said = errors(process)
        assert said[0].removeprefix(f"ibverbs on {ends[0].interface}: ").startswith(RUNNING[fail]), said
        assert sum("ibverbs on" in line for line in said) == 1 and len(said) == 2, said
