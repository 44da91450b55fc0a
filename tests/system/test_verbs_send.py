"""send.transport: ibverbs, over a software libibverbs (tests/fakes/verbs).  The same packets leave in the same order as
from a socket, at the same pace.  Any failure gives one sentence and a clean end, or some packets that are counted.
"""
import os
import re
import select
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from unittest import mock

import numpy as np
import pytest
import yaml

import control
import harness
import scenario
import verbs
from harness import EXIT_CONFIG, endpoints, groups, merge

HEAP_CNT = 0x8001  # the item, immediate
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35


@pytest.fixture
def ends():
    """The daemon's end of the wire, and the other."""
    with verbs.fake_wire() as both:
        yield both


def start(daemon, program, config, end, name=None, first=False, **env):
    with mock.patch.dict(os.environ, end.env | env):
        return daemon(program, config, name, first=first)


# ---- The other end ---------------------------------------------------------------------------------------------------


def arrival_ns(control):
    """The kernel's time stamp of a datagram, from the control messages of recvmsg()."""
    ((_, _, stamp),) = control
    seconds, nanoseconds = struct.unpack("qq", stamp)
    return seconds * 10**9 + nanoseconds


def wait_for_stamps():
    """Returns when the kernel stamps packets on arrival.  Stamping begins some time after a socket asks for stamps
    (net_enable_timestamp() defers it).  An earlier packet has the time of its recvmsg()."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        s.bind(("127.0.0.1", 0))
        stamp_ns = sent_ns = 0
        while stamp_ns >= sent_ns:
            s.sendto(b"probe", s.getsockname())
            sent_ns = time.time_ns()
            stamp_ns = arrival_ns(s.recvmsg(100, 100)[1])


class Recorder:
    """Keeps each datagram to these destinations that comes out of an end, with the kernel's time of its arrival.

    The kernel stamps a packet before it queues it for the CPU that sent it.  A sender that changes CPUs may have packets
    in two queues, which are emptied in any order; so the stamps have the order in which packets left."""

    def __init__(self, destinations, end):
        self.packets = defaultdict(list)  # by destination: (ns, payload), in the order in which they left
        self.sockets = {}
        self.ending = False
        for where in endpoints(destinations):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            s.bind(where)
            group = socket.inet_aton(where[0]) + socket.inet_aton(end.address)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            self.sockets[s.fileno()] = (s, where)
        wait_for_stamps()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        poller = select.poll()
        for fd in self.sockets:
            poller.register(fd, select.POLLIN)
        while True:
            ready = poller.poll(20)
            for fd, _ in ready:
                s, where = self.sockets[fd]
                payload, control, _, _ = s.recvmsg(65536, 100)
                self.packets[where].append((arrival_ns(control), payload))
            if not ready and self.ending:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """All packets that have come are kept to the end."""
        self.ending = True
        self.thread.join()
        for packets in self.packets.values():
            packets.sort(key=lambda packet: packet[0])
        for s, _ in self.sockets.values():
            s.close()


def heap_cnt_at(packet):
    """The place of the heap count in a packet."""
    for at in range(8, 8 + 8 * struct.unpack(">H", packet[6:8])[0], 8):
        if struct.unpack(">H", packet[at:at + 2])[0] == HEAP_CNT:
            return at
    raise AssertionError("a packet without a heap count")


def by_sender(packets, n_senders):
    """{(destination, sender): packets in order}, the heap counts from the first of each, for that is the clock's."""
    out = defaultdict(list)
    first = {}
    for where, received in packets.items():
        for _, packet in received:
            at = heap_cnt_at(packet)
            cnt = int.from_bytes(packet[at + 2:at + 8], "big")
            key = where, cnt % n_senders
            since = (cnt - first.setdefault(key, cnt)) % harness.WIRE
            out[key].append(packet[:at + 2] + since.to_bytes(6, "big") + packet[at + 8:])
    return out


def check_same(found, expected):
    """Describes how packets of a sender differ: how many are missing or new, and where the order differs."""
    differences = [f"{sorted(set(found) ^ set(expected))} sent once only"] if set(found) != set(expected) else []
    for key in sorted(set(found) & set(expected)):
        a, b = found[key], expected[key]
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            missing, new = Counter(b) - Counter(a), Counter(a) - Counter(b)
            differences.append(f"{key}: {len(a)} packets in place of {len(b)}, {missing.total()} missing, "
                               f"{new.total()} new; the first that differs is {at}")
    assert not differences, "\n".join(differences)


# ---- Programs and their input ----------------------------------------------------------------------------------------

RATE = 2_000_000
RUN = 256  # packets, of which the pace is looked at


def fgpu_case(work, rng, n_chunks=24, n_threads=1, rate_factor=1.1, **send):
    """Two antennas and two outputs, over a capture: nothing is lost, at any pace.  Descriptors repeat only after a
    minute, and no run takes a minute."""
    config = scenario.fgpu_config(
        [{"channels": 64, "gain": 0.4, "substreams": 4},
         {"channels": 256, "gain": 0.4, "spectra_per_heap": 32, "taps": 4, "substreams": 1}], feng_ids=(19, 11),
        time={"adc_sample_rate": RATE}, recv={"packet_samples": 512, "chunk_samples": 8192},
        send={"array_size": 24, "packet_payload": 1024, "threads": n_threads, "rate_factor": rate_factor} | send)
    source = work / "fgpu.in.pcap"
    harness.write_heaps(source, scenario.digitiser_heaps(config, scenario.noise(rng, 2, 8192 * n_chunks, 10), 2**40))
    config["recv"]["pcap_file"] = str(source)
    return "fgpu", config, [o["destinations"] for o in config["outputs"]], config["send"]["array_size"]


# What send.gpudirect is no mistake for; where there is no GPU (no_gpu, below) it is the cpu device.
NOT_CPU = "auto" if harness.DEVICE == "cpu" else harness.DEVICE


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    if harness.DEVICE == "cpu":
        monkeypatch.setenv("CBF_CUDA_DEVICE", "/nonexistent")


def gpudirect_case(work, rng, n_chunks=24, n_threads=1, rate_factor=1.1, **send):
    """The same, with a narrow band of 4-bit samples as well, some input missing, and heaps that the NIC reads."""
    config = fgpu_case(work, rng, n_chunks, n_threads, rate_factor, gpudirect=True, **send)[1]
    narrow = {"kind": "narrowband", "name": "narrow", "channels": 64, "taps": 4, "decimation": 4, "gain": 0.4,
              "centre_frequency": 90000.25, "sample_bits": 4, "batches_per_buffer": 3, "substreams": 2}
    config["outputs"] += scenario.fgpu_config([narrow])["outputs"]
    config["device"]["kind"] = NOT_CPU
    present = np.ones((2, 2, 16 * n_chunks), bool)
    present[0, 1, 6 * n_chunks] = present[1, 0, 9 * n_chunks + 3] = False
    harness.write_heaps(config["recv"]["pcap_file"], scenario.digitiser_heaps(
        config, scenario.noise(rng, 2, 8192 * n_chunks, 10), 2**40, present))
    return "fgpu", config, [o["destinations"] for o in config["outputs"]], config["send"]["array_size"]


def xbgpu_case(work, rng, n_batches=64, n_threads=1, rate_factor=1.1, **send):
    """Two outputs, of which the second has weights."""
    config = scenario.xbgpu_config(
        [{"integration_batches": 5}, {"integration_batches": 3, "missing": "weights"}], time={"adc_sample_rate": RATE},
        recv={"antennas": 5, "channels_per_substream": 32, "channel_offset": 32},
        send={"packet_payload": 1032, "threads": n_threads, "rate_factor": rate_factor} | send)
    source = work / "xbgpu.in.pcap"
    harness.write_heaps(source, scenario.feng_heaps(config, 4001, scenario.random_voltages(rng, config, n_batches)))
    config["recv"]["pcap_file"] = str(source)
    return "xbgpu", config, [o["destination"] for o in config["outputs"]], 1


CASES = {"fgpu": fgpu_case, "gpudirect": gpudirect_case, "xbgpu": xbgpu_case}


def run(daemon, case, ends, transport, name, **env):
    """Runs a program over its capture; returns the packets that came out of the other end, and the log."""
    program, config, destinations, n_senders = case
    config = merge(config, {"send": {"interface": ends[0].interface, "transport": transport}})
    if transport == "udp":
        config["send"].pop("gpudirect", None)
    with Recorder(",".join(destinations), ends[1]) as recorder:
        process = start(daemon, program, config, ends[0], name, **env).wait_end()
    return by_sender(recorder.packets, n_senders), process.log.read_text()


def said(log):
    """A program's last report of its sent packets."""
    return sorted(re.findall(r"\S+ \S+: \d+ (?:heaps|dumps) sent.*", log))


# ---- The same as from a socket ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("program, n_threads, rate_factor",
                         [("fgpu", 1, 0), ("fgpu", 2, 1.1), ("fgpu", 13, 4), ("gpudirect", 1, 0), ("gpudirect", 2, 1.1),
                          ("gpudirect", 13, 4), ("xbgpu", 1, 1.1), ("xbgpu", 2, 0)])
def test_same_packets(program, n_threads, rate_factor, daemon, work, rng, ends):
    """Data, descriptors and stop heaps: each destination gets the same packets in the same order."""
    case = CASES[program](work, rng, n_threads=n_threads, rate_factor=rate_factor)
    expected, log = run(daemon, case, ends, "udp", "udp")
    found, verbs_log = run(daemon, case, ends, "ibverbs", "ibverbs")
    assert said(verbs_log) == said(log) != []
    assert program != "gpudirect" or re.search(r": [1-9]\d* heaps sent, [1-9]\d* skipped", log)
    assert found.keys() == expected.keys()
    assert any(line.startswith("ibv_create_qp") for line in ends[0].trace)
    for key, packets in expected.items():
        assert len(packets) > 10
        assert found[key] == packets, f"what {key} gets has changed"


@pytest.mark.parametrize("limits", ["ip_csum=0", "max_qp_wr=64", "max_qp_wr=100,max_cqe=65", "max_rate_kbps=0"])
@pytest.mark.parametrize("program", ["fgpu", "gpudirect"])
def test_lesser_cards(program, limits, daemon, work, rng, ends):
    """A queue of 64 packets is full all the time; loans come home all the same, for there are few buffers."""
    case = CASES[program](work, rng, rate_factor=0)
    expected, _ = run(daemon, case, ends, "udp", "udp")
    found, _ = run(daemon, case, ends, "ibverbs", "ibverbs",
                   CBF_FAKE_VERBS_LIMITS=ends[0].env["CBF_FAKE_VERBS_LIMITS"] + limits)
    assert found == expected


def test_spead2_and_pace(daemon, work, rng, ends):
    """spead2 reads the values of the capture that the same input makes; and nothing leaves before its time."""
    program, config, destinations, _ = fgpu_case(work, rng, n_chunks=192)
    replay = merge(config, {"send": {"pcap_file": str(work / "replay.pcap")}})
    daemon(program, replay, "replay").wait_end()
    config = merge(config, {"send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    where = ",".join(destinations)
    with Recorder(where, ends[1]) as recorder:
        start(daemon, program, config, ends[0], first=True).wait_end()
    harness.write_pcap(work / "sent.pcap", [(e, packet) for e, packets in recorder.packets.items() for _, packet in packets])
    found = scenario.fgpu_streams(config, harness.decode_pcap(work / "sent.pcap"))
    expected = scenario.fgpu_streams(replay, harness.decode_pcap(work / "replay.pcap"))
    assert found.keys() == expected.keys()
    for key, heaps in expected.items():
        assert found[key].keys() == heaps.keys() and len(heaps) > 20
        assert all(np.array_equal(found[key][t], heaps[t]) for t in heaps)
    check_pace(config, recorder.packets)


def check_pace(config, packets):
    """What each sender has sent is never ahead of its rate by more than the lateness that it may make up for.

    And its best run of packets keeps the rate: the others wait for a host that is busy with something else, and with
    sanitizers all do.
    """
    for output in config["outputs"]:
        rate = None
        by_feng = defaultdict(list)
        for where in endpoints(output["destinations"]):
            for ns, packet in packets[where]:
                at = heap_cnt_at(packet)
                cnt = int.from_bytes(packet[at + 2:at + 8], "big")
                by_feng[cnt % config["send"]["array_size"]].append((ns / 1e9, len(packet)))
        for sent in by_feng.values():
            sent = np.array(sorted(sent)[len(endpoints(output["destinations"])):-20])  # without descriptors and the end
            packet_bytes = sent[:, 1].max()
            rate = 1.1 * 2 * RATE * packet_bytes / (packet_bytes - 72)  # of payload, 2 bytes a sample, and headers
            ahead_s = np.cumsum(sent[:, 1]) / rate - (sent[:, 0] - sent[0, 0])
            assert len(sent) > 500
            assert ahead_s.max() < 0.1, f"{ahead_s.max():.3f} s ahead of its time"
            best_s = max(ahead_s[RUN:] - ahead_s[:-RUN])
            assert harness.SANITIZED or best_s > -0.25 * RUN * packet_bytes / rate, "too slow everywhere"


# ---- What fails ------------------------------------------------------------------------------------------------------

# Those of librdmacm fail in check_sink_verbs.c.
SETUP = ["ibv_query_device_ex", "ibv_query_port", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_cq", "ibv_create_qp",
         "ibv_modify_qp"]


def calls_of(trace):
    """The number of calls of each function, from the trace."""
    return Counter(line.split()[0] for line in trace if line.startswith(("ibv_", "rdma_")))


@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_failing_start(program, daemon, work, rng, ends):
    """Each call of the start in turn, the first and the last time that it is made: a sentence, and nothing is left."""
    case = CASES[program](work, rng, n_chunks=4) if program == "fgpu" else CASES[program](work, rng, n_batches=8)
    run(daemon, case, ends, "ibverbs", "sound")
    made = calls_of(ends[0].trace)
    config = merge(case[1], {"send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    known = set(SETUP) | {"ibv_destroy_qp", "ibv_destroy_cq", "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_open_device",
                          "ibv_close_device", "ibv_modify_qp_rate_limit", "rdma_destroy_id",
                          "rdma_destroy_event_channel"}
    assert set(made) <= known, "calls that this test does not know"
    for call in SETUP:
        for at in {1, made.get(call, 1)}:
            process = start(daemon, program, config, ends[0], f"{call}.{at}", CBF_FAKE_VERBS_FAIL=f"{call}:EIO@{at}")
            process.wait_end(1)
            errors = [line for line in process.log.read_text().splitlines() if " error: " in line]
            assert len(errors) == 1 and "send.transport: ibverbs on veth0: " in errors[0], errors
            assert ends[0].complaints == []


@pytest.mark.parametrize("program", ["fgpu", "gpudirect", "xbgpu"])
@pytest.mark.parametrize("fail", ["ibv_post_send:ENOMEM@3", "ibv_poll_cq:EIO@4", "completion:IBV_WC_LOC_QP_OP_ERR@30",
                                  "completion:IBV_WC_GENERAL_ERR@1,completion:IBV_WC_FATAL_ERR@97"])
def test_failing_queue(program, fail, daemon, work, rng, ends):
    """Packets are lost and counted, a list or two; all others come, in order, and the program ends as it should."""
    case = CASES[program](work, rng)
    expected, _ = run(daemon, case, ends, "udp", "udp")
    found, log = run(daemon, case, ends, "ibverbs", "failing", CBF_FAKE_VERBS_FAIL=fail)
    # The first time that a queue fails is always told, as are its packets; the second maybe not, so soon after.
    told = [int(n) for n in re.findall(r"and others failed \(.+\): (\d+) packets are lost; sending continues", log)]
    assert 0 < len(told) <= len(fail.split(","))
    assert all(re.search(rf": {n} packets could not be sent since the start", log) for n in told[:1])
    n_missing = 0
    for key, packets in expected.items():
        # The first packet may be among the lost: counts are compared from the last, the stop's, instead.
        came = recount(found[key])
        rest = iter(recount(packets))
        assert all(packet in rest for packet in came), f"what {key} gets is out of order, or not what was sent"
        n_missing += len(packets) - len(came)
    # A card may have sent what counts as failed.
    assert n_missing <= (sum(told) if len(told) == len(fail.split(",")) else 256)
    assert n_missing > 0 or "post_send" not in fail


def recount(packets):
    """Heap counts from the last packet's back."""
    out = []
    at = heap_cnt_at(packets[-1])
    last = int.from_bytes(packets[-1][at + 2:at + 8], "big")
    for packet in packets:
        at = heap_cnt_at(packet)
        before = (last - int.from_bytes(packet[at + 2:at + 8], "big")) % harness.WIRE
        out.append(packet[:at + 2] + before.to_bytes(6, "big") + packet[at + 8:])
    return out


@pytest.mark.parametrize("program", ["fgpu", "gpudirect", "xbgpu"])
@pytest.mark.parametrize("fail", ["removal@100", "completion:IBV_WC_FATAL_ERR@100,ibv_modify_qp:EIO@13"])
def test_lost_card(program, fail, daemon, work, rng, ends):
    """A NIC that cannot be opened again ends the program, with 1, and the init system starts it again."""
    n_sinks = {"fgpu": 4, "gpudirect": 6, "xbgpu": 2}[program]
    program, config, _, _ = CASES[program](work, rng)
    config = merge(config, {"send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    fail = fail.replace("13", str(3 * n_sinks + 1))
    process = start(daemon, program, config, ends[0], CBF_FAKE_VERBS_FAIL=fail)
    process.wait_end(1)
    assert re.search(r"error: the queue of veth0 to 239\.\S+ and others failed \(.*\) and cannot be restarted",
                     process.log.read_text())


@pytest.mark.parametrize("program, n", [("fgpu", 20), ("gpudirect", 20), ("xbgpu", 5)])
def test_stop_in_the_middle(program, n, daemon, work, rng, ends):
    """SIGTERM while a slow stream has much to send: all that was taken leaves in the time of a drain, then stops."""
    program, config, destinations, _ = CASES[program](work, rng, rate_factor=1)
    config = merge(config, {"time": {"adc_sample_rate": RATE // 8},
                            "send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    where = ",".join(destinations)
    with harness.Receiver(where, ends[1].address) as receiver:
        with start(daemon, program, config, ends[0]) as process:
            receiver.wait(lambda heaps: sum(h.kind == "data" for h in heaps) >= n, f"{n} heaps")
            began = time.monotonic()
        took = time.monotonic() - began
        receiver.wait_stops(len(endpoints(where)) * (2 if program == "fgpu" else 1))
        heaps = receiver.data()
    assert took < 30
    n_sent = sum(map(int, re.findall(r": (\d+) (?:heaps|dumps) sent", process.log.read_text())))
    assert len(heaps) == n_sent >= n


# ---- Configurations --------------------------------------------------------------------------------------------------


def refused(daemon, program, config, end, name):
    process = start(daemon, program, config, end, name)
    process.wait_end(EXIT_CONFIG)
    return process.log.read_text()


def test_wrong_configurations(daemon, work, rng, ends):
    program, config, _, _ = fgpu_case(work, rng, n_chunks=4)
    config = merge(config, {"send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    unicast = merge(config, {})
    unicast["outputs"][1]["destinations"] = f"{ends[1].address}:7148"
    text = refused(daemon, program, unicast, ends[0], "unicast")
    assert f"{ends[1].address}:7148 is not a multicast address, which send.transport ibverbs needs" in text
    nowhere = merge(config, {})
    del nowhere["send"]["interface"]
    assert "ibverbs needs an interface" in refused(daemon, program, nowhere, ends[0], "nowhere")
    loopback = merge(config, {"send": {"interface": "lo"}})
    assert re.search(r"send\.transport: ibverbs on lo: this interface belongs to no NIC with ibverbs",
                     refused(daemon, program, loopback, ends[0], "loopback"))
    # Heaps of 4 KiB, in packets of 9000 bytes and 100 more than the wire takes.
    large = merge(config, {"send": {"packet_payload": 65000}})
    large["outputs"][0] |= {"spectra_per_heap": 1024}
    text = refused(daemon, program, large, ends[0], "large")
    assert re.search(r"send\.interface: packets of 65072 bytes, 65100 with IPv4 and UDP, exceed the MTU of "
                     r"veth0, which is 9000: raise the MTU", text), text


# ---- Simulators, and the whole correlator ----------------------------------------------------------------------------


def test_dsim(daemon, work, ends):
    """A period's heaps as from a capture; new signals while it runs; and signals that are computed as they go."""
    config = {
        "time": {"sync_time": 1_000_000, "adc_sample_rate": 1_000_000},
        "digitiser": {"sample_bits": 10, "packet_samples": 1024, "period": 65536, "dither_seed": 7, "duration": 0.5,
                      "first_timestamp": 1024 * 5},
        "signals": {"specification": "wgn(0.1, 1);"},
        "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": groups(2), "pol1": groups()}],
        "send": {"threads": 2},
    }
    for name, signals in (("period", "wgn(0.1, 1);"), ("live", "track(wgn(0.1, 1), 3.25, 1e-6);")):
        config["signals"]["specification"] = signals
        where = config["antennas"][0]["pol0"] + "," + config["antennas"][0]["pol1"]
        found = {}
        for transport in ("udp", "ibverbs"):
            live = merge(config, {"send": {"interface": ends[0].interface, "transport": transport}})
            with Recorder(where, ends[1]) as recorder:
                start(daemon, "dsim", live, ends[0], f"{name}.{transport}").wait_end()
            found[transport] = {e: [p for _, p in packets] for e, packets in recorder.packets.items()}
        assert sum(map(len, found["udp"].values())) > 900
        check_same(found["ibverbs"], found["udp"])


def wait_packets(recorder, where, n):
    """Waits until 'n' more packets have come to each destination."""
    wanted = {e: len(recorder.packets[e]) + n for e in endpoints(where)}
    harness.until(lambda: all(len(recorder.packets[e]) >= wanted[e] for e in wanted), f"{n} packets to each of {where}")


def test_dsim_changes_its_signals(daemon, work, ends):
    """Each new period is registered, and the one before forgotten: its memory may be had again for the next."""
    levels = [0.5, -0.25, 0.125, -0.75, 0.375]
    where = groups(2)
    pol0, pol1 = (f"{host}:{port}" for host, port in endpoints(where))
    config = {
        "time": {"sync_time": 1_000_000, "adc_sample_rate": 2_000_000},
        "digitiser": {"sample_bits": 8, "packet_samples": 4096, "period": 1 << 20},
        "signals": {"specification": f"nodither({levels[0]});"},
        "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": pol0, "pol1": pol1}],
        "send": {"interface": ends[0].interface, "transport": "ibverbs", "threads": 2},
        "katcp": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"},
    }
    begins = []
    with Recorder(where, ends[1]) as recorder:
        with start(daemon, "dsim", config, ends[0]) as process, control.Client(process) as client:
            for level in levels[1:]:
                wait_packets(recorder, where, 100)
                begins.append(int(client.request("signals", f"nodither({level});")[0]) % harness.WIRE)
            wait_packets(recorder, where, 200)
    for packets in recorder.packets.values():
        seen = Counter()
        for _, packet in packets:
            items = {int.from_bytes(packet[at:at + 2], "big"): int.from_bytes(packet[at + 2:at + 8], "big")
                     for at in range(8, 72, 8)}
            timestamp = items.get(0x8000 | harness.TIMESTAMP)
            if timestamp is None:
                continue  # descriptors
            which = sum(timestamp >= begin for begin in begins)
            assert packet[-4096:] == bytes([round(levels[which] * 127) % 256]) * 4096
            seen[which] += 1
        assert set(seen) == set(range(len(levels)))
    registered = [line for line in ends[0].trace if line.startswith("ibv_reg_mr 2097152 ")]
    assert len(registered) == 2 * len(levels)


@pytest.mark.parametrize("program", ["dsim", "fsim"])
def test_simulators_configurations(program, daemon, work, ends):
    path = harness.ROOT / "config" / "fsim.yaml"
    assert path.exists()
    if program == "dsim":
        config = {
            "time": {"sync_time": 1_000_000, "adc_sample_rate": 1_000_000}, "digitiser": {},
            "signals": {"specification": "wgn(0.1, 1);"},
            "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": "10.1.2.3", "pol1": groups()}]}
    else:
        config = yaml.safe_load(path.read_text())
        config["stream"]["destinations"] = "10.1.2.3:7148"
    config = merge(config, {"send": {"transport": "ibverbs", "interface": ends[0].interface}})
    text = refused(daemon, program, config, ends[0], program)
    assert "10.1.2.3:7148 is not a multicast address, which send.transport ibverbs needs" in text
    del config["send"]["interface"]
    assert "ibverbs needs an interface" in refused(daemon, program, config, ends[0], program + "2")


def test_fsim(daemon, work, ends):
    where = groups(2)
    config = {
        "time": {"sync_time": 1_000_000, "adc_sample_rate": 2_000_000},
        "stream": {"antennas": 5, "channels": 64, "channels_per_substream": 32, "spectra_per_heap": 32,
                   "samples_between_spectra": 128, "destinations": where, "first_timestamp": 4096 * 3, "duration": 0.3},
        "signal": {"kind": "uniform", "seed": 3, "period": 5},
        "send": {"packet_payload": 1000, "threads": 2},
    }
    found = {}
    for transport in ("udp", "ibverbs"):
        live = merge(config, {"send": {"interface": ends[0].interface, "transport": transport}})
        with Recorder(where, ends[1]) as recorder:
            start(daemon, "fsim", live, ends[0], transport).wait_end()
        found[transport] = by_sender(recorder.packets, 5)
    assert len(found["udp"]) == 10 and min(map(len, found["udp"].values())) > 100
    check_same(found["ibverbs"], found["udp"])


def test_whole_correlator(daemon, work, references):
    """From digitiser to recorder, each stage by ibverbs; the dumps are right to the bit, here and in the recording."""
    import chain

    with verbs.fake_wire() as (a, b):
        def at(recv, send):
            sections = {}
            if recv:
                sections["recv"] = {"interface": recv.interface, "transport": "ibverbs"}
            if send:
                sections["send"] = {"interface": send.interface, "transport": "ibverbs", "ttl": 1}
            return sections
        # Frames come out of the other end only.
        overrides = {"dsim": at(None, a), "visrec": at(b, None)}
        overrides["visrec"]["recv"]["window"] = 24  # an X-engine that ends sends 20 dumps at once, before the other's
        overrides |= {name: at(b, b) for name in ("fgpu0", "fgpu1")}
        overrides |= {name: at(a, a) for name in ("xbgpu0", "xbgpu1")}
        for name in ("xbgpu0", "xbgpu1"):
            overrides[name]["recv"] |= {"window": 60, "chunks": 140}  # an F-engine may be held up for 3 s
        with mock.patch.dict(os.environ, a.env | {"CBF_FAKE_VERBS": "veth0,veth1"}):
            layout = chain.Layout(work, overrides)
            dumps = chain.Dumps(layout, references, b.address)
            running = chain.Chain(daemon, layout)
            running.start(*chain.NAMES)
            dumps.wait_dumps(8, 0)
            for name in reversed(chain.NAMES):
                running[name].terminate().wait_end()
            dumps.receiver.stop()
    assert all(d.complete for of in dumps.dumps for d in of[2:-2])
    windows, present = chain.check_file(running.recording(), references)
    assert len(windows) >= 8 and present[2:-2].all()
