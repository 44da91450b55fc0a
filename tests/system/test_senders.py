"""Permitted senders (recv.from), and the treatment of heaps for which two senders sent different bytes.
"""
import socket
from types import SimpleNamespace

import pytest

import harness
import streams
import wire
from harness import merge
from streams import STREAMS, Outcome, check_same, replay
from test_verbs_recv import BURST, live_config, n_written, one_cpu
from test_wrong_packets import at_time, disturb

STRANGER = "127.0.0.2"  # the harness sends from 127.0.0.1


class FromStranger(bytes):
    """A packet of a capture that another host sent."""
    sender = STRANGER


def undisturbed(daemon, work, stream):
    return replay(daemon, work, stream, [(endpoint, packet.bytes()) for endpoint, packet in stream.packets], "alone")


def forgeries(stream, good):
    """Packets that would take the packet's place, end the stream by a jump, or be in the way."""
    other = good.inverted()
    period = stream.step * (2**40 // stream.step)
    return [other.bytes(), at_time(stream, other, good.get(harness.TIMESTAMP) + period), b"", b"rubbish"]


# ---- recv.from -------------------------------------------------------------------------------------------------------


def open_socket(address):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.bind((address, 0))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    return out


def run_live(daemon, work, stream, senders, n_each):
    """Sends the stream from 127.0.0.1, and before each packet the forgeries of it from the stranger, of which 'n_each'
    messages reach the program."""
    sink = work / "live.out"
    config = live_config(stream, SimpleNamespace(interface="lo"), sink, **senders)
    with daemon(stream.program, config, "live") as process, one_cpu():
        burst = BURST if stream.program != "visrec" else 8
        n_dumps = n_written(stream, [(endpoint, p.bytes()) for endpoint, p in stream.packets])
        with open_socket("127.0.0.1") as ours, open_socket(STRANGER) as stranger:
            for i, (endpoint, good) in enumerate(stream.packets):
                for forged in forgeries(stream, good):
                    stranger.sendto(forged, endpoint)
                ours.sendto(good.bytes(), endpoint)
                if i % burst != burst - 1 and i != len(stream.packets) - 1:
                    continue
                n = (i + 1) * (1 + n_each)
                metrics = process.wait_counted(lambda m: m.get(f"{stream.prefix}_packets_total") >= n, f"{n} packets taken")
                if len(n_dumps):
                    process.wait_metric(lambda m: m.get("visrec_dumps_total") >= n_dumps[i], f"{n_dumps[i]} dumps written")
    sent = streams.read_file(sink) if stream.program == "visrec" else streams.read_sent(sink)
    return Outcome(sent, metrics, process.log.read_text())


@pytest.mark.parametrize("program, senders, n_each", [
    ("fgpu", "127.0.0.1/32, 10.0.0.0/8", 4), ("xbgpu", "127.0.0.1/32, 10.0.0.0/8", 4),
    ("visrec", "127.0.0.1/32, 10.0.0.0/8", 4), ("xbgpu", "127.0.0.1", 0)])
def test_strangers_change_nothing(program, senders, n_each, daemon, work):
    """A stranger is always first with other bytes, and claims jumps.  The output is the same, bit for bit.  If the
    kernel joins groups for sources, the stranger's packets do not even arrive."""
    stream = STREAMS[program]()
    found = run_live(daemon, work, stream, {"from": senders}, n_each)
    refused = {"bad_sender": n_each * len(stream.packets)}
    check_same(stream, found, undisturbed(daemon, work, stream), refused)
    assert (f"packet refused: the sender {STRANGER}, which recv.from does not allow, sends to " in found.log) == (n_each > 0)
    assert found.metrics.get(f"{stream.prefix}_kernel_drops") == 0


@pytest.mark.parametrize("program", STREAMS)
def test_captures_name_their_senders(program, daemon, work):
    """In a replay it is the frame's source address that counts."""
    stream = STREAMS[program]()
    expected = undisturbed(daemon, work, stream)
    stream.config = merge(stream.config, {"recv": {"from": "127.0.0.0/31"}})
    packets, refused = disturb(stream, lambda good: [("bad_sender", FromStranger(forged))
                                                     for forged in forgeries(stream, good)])
    check_same(stream, replay(daemon, work, stream, packets, "with"), expected, refused)


def test_an_antenna_has_senders_of_its_own(daemon, work):
    """antennas[].from replaces recv.from."""
    stream = STREAMS["fgpu"]()
    expected = undisturbed(daemon, work, stream)
    (antenna,) = stream.config["antennas"]
    stream.config = merge(stream.config, {"recv": {"from": STRANGER}})
    stream.config["antennas"] = [antenna | {"from": "127.0.0.1"}]
    packets, refused = disturb(stream, lambda good: [("bad_sender", FromStranger(good.inverted().bytes()))])
    check_same(stream, replay(daemon, work, stream, packets, "with"), expected, refused)


@pytest.mark.parametrize("program, where", [("fgpu", "recv"), ("fgpu", "antennas"), ("xbgpu", "recv"),
                                            ("visrec", "recv")])
def test_networks_that_are_none(program, where, daemon, work):
    """One sentence at the key's line."""
    config = merge(STREAMS[program]().config, {"output": {"file": str(work / "out")}} if program == "visrec" else {})
    (config["antennas"][0] if where == "antennas" else config["recv"])["from"] = "10.0.0.1/8"
    log = daemon(program, config).wait_end(code=78).log.read_text()
    assert 'from: "10.0.0.1/8" is not a network: its address has bits outside the mask' in log


# ---- Contested heaps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", STREAMS)
def test_contested_heaps_are_missing(program, daemon, work, rng):
    """A stranger sends other bytes for some heaps, first or second, whole packets or parts.  Those heaps are absent as
    if never sent, and no other heap is touched.  The log names both senders."""
    stream = STREAMS[program]()
    heaps = list(dict.fromkeys((endpoint, p.get(wire.HEAP_CNT)) for endpoint, p in stream.packets))
    middle = heaps[len(heaps) // 4:len(heaps) // 2]
    contested = {middle[i] for i in rng.choice(len(middle), len(middle) // 4, replace=False)}
    assert len(contested) > 3
    out, calm, n_refused = [], [], 0
    for endpoint, good in stream.packets:
        if (endpoint, good.get(wire.HEAP_CNT)) not in contested:
            out.append((endpoint, good.bytes()))
            calm.append(out[-1])
            continue
        other = good.inverted()
        copies = [[FromStranger(other.bytes()), good.bytes()], [good.bytes(), FromStranger(other.bytes())],
                  [good.bytes(), FromStranger(other.part(8, 8).bytes())],
                  [FromStranger(other.part(0, 8).bytes()), good.bytes()]][rng.integers(4)]
        out += [(endpoint, copy) for copy in copies]
        n_refused += 1
    expected = replay(daemon, work, stream, calm, "calm")
    found = replay(daemon, work, stream, out, "contested")
    check_same(stream, found, expected, {"duplicate": n_refused}, 0, len(contested))
    assert f"different bytes for the same heap, first {STRANGER}, then 127.0.0.1;" in found.log or \
        f"different bytes for the same heap, first 127.0.0.1, then {STRANGER};" in found.log
