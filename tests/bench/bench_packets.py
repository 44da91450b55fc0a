#!/usr/bin/env python3
"""make bench-recv, make bench-send: the packet path beside spead2 and beside the shortest loop that does the same.

What is compared is CPU time per packet of the one thread that receives or sends, the scarce thing at a telescope; the
rate with which the run went is beside it.  All take turns, run by run, on the same CPU.

recv: packets to assembled chunks.  bench_feed feeds them over loopback and never has more than a few MiB in flight, so
nothing is lost; whether the feeding or the receiving CPU set the rate is in the last column.
send: full buffers to packets, unpaced, to sockets that nobody reads, which lose them at once.  On loopback the sender's
CPU time includes the way through the receiving half of the kernel up to there.

  ours           the daemons' receiver (bench_receive.c) or sender (bench_send.c)
  plain loop     the ceiling: recvmmsg and non-temporal copies, which believes every packet; or sendmmsg (bench_feed.c)
  spead2         built from its source, with GRO and GSO, as katgpucbf uses it (peer_spead2_*.py)
  spead2 wheel   that of PyPI, without
"""
import argparse
import json
import random
import socket
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SHAPES = {  # as in bench_shapes.h
    "dig": dict(heap_bytes=5120, payload=5120, samples=4096, heaps_per_chunk=8192),
    "feng": dict(heap_bytes=65536, payload=8192, samples=256 * 8192, heaps_per_chunk=640),
}
TITLES = {"dig": "Digitiser heaps: 5120 bytes, one packet", "feng": "F-engine heaps: 64 KiB in packets of 8 KiB"}
BUFFER_BYTES = 64 << 20
IN_FLIGHT_BYTES = 4 << 20
CPU, FEED_CPU = 0, 1  # of what is measured, and of what feeds it
TIMEOUT_S = 120
SEND_SECONDS = 1
N_MANY = 8  # destinations

# ---- Receiving -----------------------------------------------------------------------------------------------------


def spead2_recv(python, kind, endpoint):
    shape = SHAPES[kind]
    return [python, HERE / "peer_spead2_recv.py", "--kind", kind, "--n-sources", "1", "--heap-bytes",
            shape["heap_bytes"], "--samples-per-heap", shape["samples"], "--heaps-per-chunk", shape["heaps_per_chunk"],
            "--endpoint", endpoint, "--buffer", BUFFER_BYTES, "--cpu", CPU]


def receivers(build, kind, endpoint, join):
    own = [build / "bench" / "bench_receive"]
    rest = [kind, endpoint, 1, BUFFER_BYTES, CPU]
    return {
        "ours": own + ["ours"] + rest,
        "plain loop": own + ["plain" if join else "plain-single"] + rest,
        "spead2": spead2_recv(".venv-bench/bin/python", kind, endpoint),
        "spead2 wheel": spead2_recv(".venv/bin/python", kind, endpoint),
    }


def run_recv(build, kind, join, name, n_packets):
    """One run of one receiver.  Returns what it and the feeder say of it."""
    endpoint = f"127.0.0.1:{random.randrange(20000, 30000)}"
    shape = SHAPES[kind]
    n_heaps = n_packets * shape["payload"] // shape["heap_bytes"]
    command = [str(a) for a in receivers(build, kind, endpoint, join)[name]]
    receiver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)
    try:
        assert receiver.stdout.readline().strip() == "READY", receiver.stderr.read()
        feed = [build / "bench" / "bench_feed", kind, endpoint, n_heaps, int(join), 1, IN_FLIGHT_BYTES, FEED_CPU]
        fed = json.loads(subprocess.run([str(a) for a in feed], check=True, capture_output=True, text=True,
                                        timeout=TIMEOUT_S).stdout)
        out, err = receiver.communicate(timeout=TIMEOUT_S)
        assert receiver.returncode == 0, err
    finally:
        receiver.kill()
        receiver.wait()
    got = json.loads(out.strip().splitlines()[-1])
    lost = fed["packets"] - got["packets"]
    assert lost == 0 and fed["dropped"] == 0, f"{name} lost {lost} packets, {fed['dropped']} of them in the socket"
    return {
        "ns": got["cpu_ns"] / got["packets"],
        "gbps": 8 * fed["packets"] * shape["payload"] / fed["wall_ns"],
        "waited": fed["wait_ns"] / fed["wall_ns"],
    }


def bench_recv(args):
    for kind, shape in SHAPES.items():
        for join in (True, False):
            how = "as many to a message as fit (GSO)" if join else "one to a message"
            bench(args, f"{TITLES[kind]}; {how}", shape["payload"], receivers(args.build, kind, "", join),
                  lambda name: run_recv(args.build, kind, join, name, args.packets))


# ---- Sending -------------------------------------------------------------------------------------------------------

def senders(build, kind, destinations):
    shape = SHAPES[kind]
    peer = [HERE / "peer_spead2_send.py", "--kind", kind, "--heap-bytes", shape["heap_bytes"], "--samples-per-heap",
            shape["samples"], "--endpoint", ",".join(destinations), "--seconds", SEND_SECONDS, "--cpu", CPU]
    return {
        "ours": [build / "bench" / "bench_send", kind, ",".join(destinations), SEND_SECONDS, CPU],
        "plain loop": [build / "bench" / "bench_feed", kind, destinations[0], 300000 * shape["payload"] //
                       shape["heap_bytes"], 1, 1, 0, CPU],
        "spead2": [".venv-bench/bin/python", *peer],
        "spead2 wheel": [".venv/bin/python", *peer],
    }


def run_send(build, kind, n_destinations, name):
    sinks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(n_destinations)]
    for sink in sinks:
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sink.bind(("127.0.0.1", 0))
    command = senders(build, kind, [f"127.0.0.1:{s.getsockname()[1]}" for s in sinks])[name]
    sent = json.loads(subprocess.run([str(a) for a in command], check=True, capture_output=True, text=True,
                                     timeout=TIMEOUT_S).stdout)
    for sink in sinks:
        sink.close()
    return {"ns": sent["cpu_ns"] / sent["packets"],
            "gbps": 8 * sent["packets"] * SHAPES[kind]["payload"] / sent["wall_ns"]}


def bench_send(args):
    for kind, n in (("dig", 1), ("feng", 1), ("feng", N_MANY)):
        commands = senders(args.build, kind, ["127.0.0.1:1"])
        if n > 1:
            del commands["plain loop"]  # it knows one destination
        bench(args, f"{TITLES[kind]}; {n} destination{'s in turn' if n > 1 else ''}", SHAPES[kind]["payload"], commands,
              lambda name: run_send(args.build, kind, n, name))


# ---- Tables --------------------------------------------------------------------------------------------------------

def bench(args, title, payload, commands, run):
    """Runs all in turn and prints their table."""
    names = [name for name in commands if not args.only or name in args.only]
    runs = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            runs[name].append(run(name))
    print(f"\n{title}")
    print(f"{'':14}{'CPU ns a packet':^24}{'Gb/s if 1 CPU':>14}{'Gb/s of the runs':^24}{'CPU time / ours':^22}")
    print(f"{'':14}{'min  median     max':^24}{'did only that':>14}{'min  median   max':^24}{'min  median   max':^22}")
    for name, results in runs.items():
        ns = [r["ns"] for r in results]
        ratios = [r["ns"] / ours["ns"] for r, ours in zip(results, runs[names[0]])]
        bound = ""
        if "waited" in results[0]:
            bound = "  receiver" if statistics.median(r["waited"] for r in results) > 0.1 else "  feeder"
        print(f"{name:14}{spread(ns, '%6.0f'):^24}{8 * payload / statistics.median(ns):^14.1f}"
              f"{spread([r['gbps'] for r in results], '%5.1f'):^24}{spread(ratios, '%5.2f'):^22}{bound}", flush=True)


def spread(values, form):
    return "  ".join(form % v for v in (min(values), statistics.median(values), max(values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["recv", "send"])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--packets", type=int, default=400000, help="of a run of recv [%(default)s]")
    parser.add_argument("--only", nargs="*", help="names, the first of which is what the others are divided by")
    args = parser.parse_args()
    subprocess.run([args.build / "bench" / "bench_machine"], check=True)
    if args.what == "recv":
        print(f"{args.rounds} rounds of {args.packets} packets; none was lost in any run")
        bench_recv(args)
    else:
        print(f"{args.rounds} rounds of {SEND_SECONDS} s")
        bench_send(args)


if __name__ == "__main__":
    main()
