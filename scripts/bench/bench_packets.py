#!/usr/bin/env python3
"""make bench-recv, make bench-send: the packet path beside spead2 and beside the shortest loop with the same result.

The benchmark compares the CPU time per packet of the one thread that receives or sends.  This time is the scarce
resource at a telescope.  The table also has the rate of each run.  All programs take turns, run by run, on the same CPU.

recv: packets to assembled chunks.  bench_feed feeds them over loopback and never has more than a few MiB in flight, so
nothing is lost.  The last column says whether the feeding or the receiving CPU set the rate.  A flow is the packets of
one F-engine, all to one socket; or the packets of a digitiser to one of its groups, each with a socket.  Flows take
turns, message by message.  "shuffled": each flow's packets, within a window of them.
send: full buffers to packets, unpaced, into a bridge without ports.  The bridge takes joined packets as a network card
with segmentation and checksum offload does, and then drops them.  The bridge needs a network namespace, and so root or
user namespaces.  Without a namespace, packets go to loopback sockets without a reader (--loopback).  The sender's CPU
time then includes the receiving half of the kernel up to those sockets.  With several destinations, each timestamp has
a heap for each.

  ours           the daemons' receiver (bench_receive.c) or sender (bench_send.c)
  plain loop     the ceiling: recvmmsg and non-temporal copies without checks of packets; or sendmmsg (bench_feed.c)
  spead2         built from its source, with GRO and GSO, as katgpucbf uses it (peer_spead2_*.py)
  spead2 wheel   the wheel of PyPI, without GRO and GSO (--wheel)
"""
import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
CHUNK_BYTES = 40 << 20  # equals the chunk size in bench_shapes.h; the sizes in Case are from bench_shapes.h, too
BUFFER_BYTES = 64 << 20
IN_FLIGHT_BYTES = 4 << 20
CPU, FEED_CPU = 0, 1  # CPU of the measured program, and CPU of the feeder
TIMEOUT_S = 120
WINDOW = 16  # packets of each flow that are sent in random order
PAYLOADS = (1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Case:
    kind: str  # dig or feng
    payload: int  # bytes of a packet
    flows: int = 1  # recv: number of F-engines, or of a digitiser's multicast groups
    shuffle: int = 1  # recv: number of packets that come in random order; 1: in order
    join: bool = True  # recv: a message has as many packets as fit (GSO); otherwise one packet
    destinations: int = 1  # send

    @property
    def heap_bytes(self):
        return self.payload if self.kind == "dig" else 65536

    @property
    def samples(self):
        return self.payload * 8 // 10 if self.kind == "dig" else 256 * 8192

    @property
    def sources(self):
        return 1 if self.kind == "dig" else self.flows

    @property
    def endpoints(self):
        return self.flows if self.kind == "dig" else 1

    @property
    def heaps_per_chunk(self):
        return CHUNK_BYTES // self.heap_bytes // self.sources

    @property
    def shape(self):
        return f"{self.kind}:{self.payload}"

    def heaps(self):
        if self.kind == "dig":
            return f"digitiser heaps of {self.payload} bytes, each in one packet"
        return f"F-engine heaps of 64 KiB in packets of {self.payload} bytes"

    def recv_title(self):
        return (f"{self.heaps()}, {self.flows} flow{'s' if self.flows > 1 else ''}, "
                f"{'shuffled' if self.shuffle > 1 else 'in order'}, {'joined' if self.join else 'one by one'}")

    def send_title(self):
        return f"{self.heaps()}, {self.destinations} destination{'s' if self.destinations > 1 else ''}"


RECV = [Case("dig", 5120), Case("dig", 5120, join=False), Case("dig", 1024), Case("dig", 5120, flows=7, shuffle=WINDOW),
        Case("feng", 8192), Case("feng", 8192, join=False), Case("feng", 4096), Case("feng", 2048), Case("feng", 1024),
        Case("feng", 8192, flows=7), Case("feng", 8192, flows=7, shuffle=WINDOW), Case("feng", 1024, flows=7)]
SEND = [Case("dig", 5120), Case("feng", 8192), Case("feng", 4096), Case("feng", 2048), Case("feng", 1024),
        Case("feng", 8192, destinations=7), Case("feng", 8192, destinations=64), Case("feng", 1024, destinations=64)]
RECV_ALL = [Case(kind, payload, flows, shuffle, join)
            for kind, payloads in (("dig", PAYLOADS + (5120,)), ("feng", PAYLOADS))
            for payload, flows, shuffle, join in product(payloads, (1, 2, 4, 7), (1, WINDOW), (True, False))]
SEND_ALL = [Case(kind, payload, destinations=n) for kind, payloads in (("dig", PAYLOADS + (5120,)), ("feng", PAYLOADS))
            for payload, n in product(payloads, (1, 2, 4, 7, 64))]


def python(args, name):
    return ".venv/bin/python" if name == "spead2 wheel" else ".venv-bench/bin/python"


def contenders(args):
    names = ["ours", "plain loop", "spead2"] + (["spead2 wheel"] if args.wheel else [])
    return [name for name in names if not args.only or name in args.only]


# ---- Receiving -----------------------------------------------------------------------------------------------------

def receiver(args, case, name, endpoint):
    if name in ("ours", "plain loop"):
        what = "ours" if name == "ours" else "plain" if case.join else "plain-single"
        return [args.build / "bench/bench_receive", what, case.shape, endpoint, case.sources, BUFFER_BYTES, CPU]
    return [python(args, name), HERE / "peer_spead2_recv.py", "--kind", case.kind, "--n-sources", case.sources,
            "--heap-bytes", case.heap_bytes, "--samples-per-heap", case.samples, "--heaps-per-chunk",
            case.heaps_per_chunk, "--endpoint", endpoint, "--buffer", BUFFER_BYTES, "--cpu", CPU,
            *(["--shuffled"] if case.shuffle > 1 else [])]


def run_recv(args, case, name):
    """One run of one receiver.  Returns the reports of the receiver and of the feeder."""
    port = random.randrange(20000, 30000)
    endpoint = ",".join(f"127.0.0.1:{port + i}" for i in range(case.endpoints))
    n_heaps = max(1, int(args.megabytes * 1e6 * (1 if case.join else 0.25)) // case.heap_bytes // case.flows)
    command = [str(a) for a in receiver(args, case, name, endpoint)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        assert process.stdout.readline().strip() == "READY", process.stderr.read()
        feed = [args.build / "bench/bench_feed", case.shape, endpoint, n_heaps, int(case.join), case.sources,
                case.shuffle, IN_FLIGHT_BYTES, FEED_CPU]
        fed = json.loads(subprocess.run([str(a) for a in feed], check=True, capture_output=True, text=True,
                                        timeout=TIMEOUT_S).stdout)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.wait()
    got = json.loads(out.strip().splitlines()[-1])
    lost = fed["packets"] - got["packets"]
    assert lost == 0 and fed["dropped"] == 0, f"{name} lost {lost} packets, {fed['dropped']} of them in the socket"
    whole = fed["packets"] * case.payload - case.heap_bytes * case.flows  # the last heap may be incomplete after shuffling
    assert got["bytes"] >= whole, f"{name} made heaps of only {got['bytes']} of {whole} bytes"
    return {
        "ns": got["cpu_ns"] / got["packets"],
        "gbps": 8 * fed["packets"] * case.payload / fed["wall_ns"],
        "waited": fed["wait_ns"] / fed["wall_ns"],
    }


# ---- Sending -------------------------------------------------------------------------------------------------------

INTERFACE, ADDRESS = "null0", "10.254.254.1"
NAMESPACE = f"""
ip link set lo up &&
ip link add {INTERFACE} type bridge mcast_snooping 0 &&
ip link set {INTERFACE} mtu 9000 up &&
ip addr add {ADDRESS}/24 dev {INTERFACE} &&
ip route add 239.0.0.0/8 dev {INTERFACE} &&
exec "$@"
"""


def enter_namespace(args):
    """Starts this program again in a new network namespace with a bridge, if the user may create namespaces."""
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    shell = [*unshare, "sh", "-c", NAMESPACE, "sh"]
    if subprocess.run([*shell, "true"], capture_output=True).returncode == 0:
        os.execvp(shell[0], [*shell, sys.executable, *sys.argv, "--in-namespace"])
    print("This user may make no network namespace, so the packets go to loopback sockets that no program reads.")


def open_sockets(n):
    """Opens sockets that no program reads.  Returns the sockets and their endpoints."""
    sinks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(n)]
    for sink in sinks:
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sink.bind(("127.0.0.1", 0))
    return sinks, [f"127.0.0.1:{s.getsockname()[1]}" for s in sinks]


def sender(args, case, name, destinations):
    if name == "ours":
        return [args.build / "bench/bench_send", case.shape, destinations, args.seconds, CPU]
    if name == "plain loop":
        n_heaps = int(args.seconds * 6e9) // case.heap_bytes // case.destinations
        return [args.build / "bench/bench_feed", case.shape, destinations, n_heaps, 1, 1, 1, 0, CPU]
    return [python(args, name), HERE / "peer_spead2_send.py", "--kind", case.kind, "--heap-bytes", case.heap_bytes,
            "--packet-payload", case.payload, "--samples-per-heap", case.samples, "--endpoint", destinations,
            "--interface", ADDRESS if args.in_namespace else "127.0.0.1", "--seconds", args.seconds, "--cpu", CPU]


def run_send(args, case, name):
    sinks, endpoints = [], [f"239.254.0.{i + 1}:7148" for i in range(case.destinations)]
    if not args.in_namespace:
        sinks, endpoints = open_sockets(case.destinations)
    command = [str(a) for a in sender(args, case, name, ",".join(endpoints))]
    sent = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)
    for sink in sinks:
        sink.close()
    return {"ns": sent["cpu_ns"] / sent["packets"],
            "gbps": 8 * sent["packets"] * case.payload / sent["wall_ns"]}


# ---- Tables --------------------------------------------------------------------------------------------------------

def bench(args, title, case, run):
    """Runs all programs in turn, and prints a row for each."""
    runs = {name: [] for name in contenders(args)}
    for _ in range(args.rounds):
        for name in runs:
            runs[name].append(run(args, case, name))
    print(f"\n{title}")
    for name, results in runs.items():
        ns = [r["ns"] for r in results]
        ratios = [r["ns"] / first["ns"] for r, first in zip(results, next(iter(runs.values())))]
        bound = ""
        if "waited" in results[0]:
            bound = "  receiver" if statistics.median(r["waited"] for r in results) > 0.1 else "  feeder"
        median = statistics.median(ns)
        print(f"{name:14}{spread(ns, '%6.0f'):^24}{8 * case.payload / median:^12.1f}{1e3 / median:^11.2f}"
              f"{spread([r['gbps'] for r in results], '%5.1f'):^24}{spread(ratios, '%5.2f'):^22}{bound}".rstrip(),
              flush=True)


def print_heading():
    print(f"\n{'':14}{'CPU ns a packet':^24}{'if a core is full':^23}{'Gb/s of the runs':^24}{'CPU time / ours':^22}")
    print(f"{'':14}{'min  median     max':^24}{'Gb/s':^12}{'10^6/s':^11}{'min  median   max':^24}"
          f"{'min  median   max':^22}")


def spread(values, form):
    return "  ".join(form % v for v in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["recv", "send"])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--all", action="store_true", help="run all payloads, numbers of flows or destinations, and orders; "
                        "takes an hour")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=1000, help="payload of a run of recv, in MB [%(default)s]")
    parser.add_argument("--seconds", type=float, default=0.6, help="duration of a run of send [%(default)s]")
    parser.add_argument("--wheel", action="store_true", help="spead2's wheel too")
    parser.add_argument("--only", nargs="*", help="names of programs to run; ratios are relative to the first name")
    parser.add_argument("--case", nargs="*", help="run only cases whose titles have all these words")
    parser.add_argument("--loopback", action="store_true", help="send to loopback instead of a bridge without ports")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "send" and not args.loopback and not args.in_namespace:
        sys.stdout.flush()
        enter_namespace(args)
    subprocess.run([args.build / "bench" / "bench_machine"], check=True)
    if args.what == "recv":
        print(f"{args.rounds} rounds of {args.megabytes:.0f} MB (1/4 of it for messages of one packet); no losses")
        cases, run, title = RECV_ALL if args.all else RECV, run_recv, Case.recv_title
    else:
        print(f"{args.rounds} rounds of {args.seconds} s, "
              f"{'to a bridge without ports' if args.in_namespace else 'to loopback sockets that no program reads'}")
        cases, run, title = SEND_ALL if args.all else SEND, run_send, Case.send_title
    print_heading()
    for case in cases:
        text = title(case)[0].upper() + title(case)[1:]
        if all(word in text for word in args.case or []):
            bench(args, text, case, run)


if __name__ == "__main__":
    main()
