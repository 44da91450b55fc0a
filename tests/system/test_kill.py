"""Processes of a running correlator are killed, stopped and restarted.  The others continue, and no number is ever wrong.

CBF_KILL_ROUNDS (1) repeats the random parts.
"""
import os
import re
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import chain
import harness
import scenario
from chain import Chain, Layout
from harness import endpoints

sys.path.append(str(harness.ROOT / "scripts"))
import repair_uvh5  # noqa: E402

ROUNDS = int(os.environ.get("CBF_KILL_ROUNDS", "1"))
VICTIMS = ["dsim", "fgpu0", "xbgpu0", "visrec"]


def wait_survivors(running_chain, dumps, victim):
    """Processes that still have input continue: their counters rise, and all possible dumps come."""
    after = chain.now_samples()
    if victim == "dsim":
        pass
    elif victim.startswith("fgpu"):
        survivor = 1 - int(victim[-1])
        dumps.wait_dumps(2, after, baselines=[chain.BASELINES.index((survivor, survivor))])
    elif victim.startswith("xbgpu"):
        dumps.wait_dumps(2, after, substreams=[1 - int(victim[-1])])
    else:
        dumps.wait_dumps(2, after)
    running_chain.check_alive(*running_chain.others(victim))


def check_streams(dumps):
    """Heap counts of one life of an X-engine have no gaps, no two lives share any, and the last one ended with a stop
    heap."""
    step = chain.N_SUBSTREAMS
    for substream, heaps in enumerate(dumps.heaps):
        assert heaps[-1].kind == "stop"
        assert len({h.cnt for h in heaps}) == len(heaps)
        assert all(h.cnt % step == substream for h in heaps)
        for before, after in zip(heaps, heaps[1:]):
            new_life = before.kind == "stop" or after.kind == "descriptor"
            assert after.cnt == before.cnt + step or new_life, \
                f"substream {substream}: heap {after.cnt} ({after.kind}) after {before.cnt} ({before.kind})"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restarts(how, running, references, rng):
    """Every process in turn, in random order and at random times; one of the X-engines receives with two threads."""
    running_chain, dumps = running({"xbgpu1": {"recv": {"threads": 2}}})
    dumps.wait_dumps(2, 0)
    recordings = [running_chain.recording()]
    for victim in rng.permutation(VICTIMS * ROUNDS):
        time.sleep(rng.uniform(0, chain.WINDOW / chain.RATE))
        print(f"{how.name} to {victim}")
        if how == signal.SIGKILL:
            running_chain.kill(victim)
        else:
            n_stops = [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)]
            running_chain.terminate(victim)
            if victim == "xbgpu0":
                dumps.wait(lambda: dumps.n_stops(0) == n_stops[0] + 1, "the stop heap of xbgpu0")
        wait_survivors(running_chain, dumps, victim)
        running_chain.start(victim)
        dumps.wait_dumps(2, chain.now_samples())
        if victim == "visrec":
            recordings.append(running_chain.recording())
    n_stops = [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)]
    running_chain.terminate(*reversed(chain.NAMES))
    dumps.wait(lambda: [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)] == [n + 1 for n in n_stops], "stop heaps")
    check_streams(dumps)
    for path in recordings:
        if how == signal.SIGKILL:
            repair_uvh5.repair(path)  # which hardly any needs
        windows, present = chain.check_file(path, references)
        assert present.all(axis=(1, 2)).any(), f"{path}: none of {len(windows)} dumps is complete"


def last_match(process, pattern):
    """The groups of the last line of a log that has 'pattern', as numbers."""
    found = re.findall(pattern, process.log.read_text())
    assert found, f"{process.name} did not say {pattern}:\n{process.tail()}"
    return [int(n) for n in found[-1]]


def check_accounts(running_chain, dumps):
    """The losses that the processes report at their end equal the flagged data at the receiver; one life each."""
    for substream, received in enumerate(dumps.dumps):
        engine = running_chain[f"xbgpu{substream}"]
        n_sent, n_incomplete = last_match(engine, r"vis: (\d+) dumps? sent, (\d+) incomplete")
        assert n_sent == len(received)
        assert n_incomplete == sum(not d.complete for d in received)
        n_heaps, n_missing = last_match(engine, r"F-engines 0-1: (\d+) heaps? received, (\d+) missing")
        # Baselines of an antenna with itself tell whether all of its heaps were there.  What came before the first heap
        # of all is not missing.
        n_present = sum(d.present[0] + d.present[2] for d in received)
        n_absent = sum(2 - d.present[0] - d.present[2] for d in received[1:])
        assert n_heaps >= n_present * chain.INTEGRATION
        assert n_missing >= n_absent, f"xbgpu{substream}: {n_missing} heaps missing, {n_absent} antennas flagged"


def check_recorder_accounts(running_chain, windows, present):
    n_dumps, n_missing, n_expected = last_match(running_chain["visrec"], r"(\d+) dumps?, (\d+) of (\d+) heaps missing")
    assert n_dumps == len(windows)
    assert n_expected == chain.N_SUBSTREAMS * (windows[-1] - windows[0] + 1)
    n_with_data = np.count_nonzero(present.any(axis=1))
    assert n_expected - n_missing >= n_with_data


def test_backlog(running):
    """An F-engine that was stopped sends its backlog in a burst, while the other F-engine is stopped.  The X-engines do
    not go back to the time of the backlog."""
    running_chain, dumps = running()
    dumps.wait_dumps(2, 0)
    fgpu0, fgpu1 = (running_chain[f"fgpu{i}"].process for i in range(2))
    fgpu0.send_signal(signal.SIGSTOP)
    wait_survivors(running_chain, dumps, "fgpu0")
    fgpu1.send_signal(signal.SIGSTOP)
    time.sleep(1)  # two windows of an X-engine: nothing moves that could be waited for
    fgpu0.send_signal(signal.SIGCONT)
    for engine in ("xbgpu0", "xbgpu1"):
        running_chain[engine].wait_metric(
            lambda m: m.get("xbgpu_input_rejected_packets_total", reason="jump") > 20, "refused packets of the backlog")
    fgpu1.send_signal(signal.SIGCONT)
    dumps.wait_dumps(2, chain.now_samples())
    for engine in ("xbgpu0", "xbgpu1"):
        assert running_chain[engine].metrics().get("xbgpu_input_jumps_total") == 0


def test_pauses(running, references, rng):
    """Every process in turn is stopped for longer than any window.  All losses are accounted for."""
    # A buffer that does not hold what comes meanwhile.
    running_chain, dumps = running({"xbgpu0": {"recv": {"buffer": 65536}}})
    dumps.wait_dumps(2, 0)
    for victim in rng.permutation(VICTIMS * ROUNDS):
        time.sleep(rng.uniform(0, chain.WINDOW / chain.RATE))
        print(f"SIGSTOP to {victim}")
        running_chain[victim].process.send_signal(signal.SIGSTOP)
        if victim == "dsim":
            time.sleep(1.5)  # nothing moves that could be waited for
        wait_survivors(running_chain, dumps, victim)
        running_chain[victim].process.send_signal(signal.SIGCONT)
        dumps.wait_dumps(2, chain.now_samples())
        running_chain.check_alive(*chain.NAMES)
    running_chain.terminate(*reversed(chain.NAMES))
    dumps.wait(lambda: all(dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)), "stop heaps")
    check_streams(dumps)
    check_accounts(running_chain, dumps)
    assert not all(d.complete for d in dumps.dumps[0][1:]), "nothing was lost: the pauses were too short"
    windows, present = chain.check_file(running_chain.recording(), references)
    assert present.all(axis=(1, 2)).any()
    check_recorder_accounts(running_chain, windows, present)


# ---- Draining --------------------------------------------------------------------------------------------------------


def test_drain_of_an_f_engine(daemon, work, rng):
    """SIGTERM under load: every batch whose input has come is sent, complete, and both substreams end."""
    layout = Layout(work)
    engines = Chain(daemon, layout)
    with harness.Receiver(layout.voltages) as receiver:
        engines.start("fgpu0", "dsim")
        received = rng.integers(40, 80)
        inputs = engines["fgpu0"].wait_metric(lambda m: m.get("fgpu_input_heaps_total") >= 2 * received, "input")
        engines.terminate("fgpu0")
        receiver.wait_stops()
        engines.terminate("dsim")
        heaps = scenario.by_endpoint(receiver.heaps)
    batches = []
    for endpoint in endpoints(layout.voltages):
        assert heaps[endpoint][0].kind == "descriptor"
        found = [h for h in heaps[endpoint] if h.kind != "descriptor"]
        assert [h.kind for h in found] == ["data"] * (len(found) - 1) + ["stop"]
        batches.append([h.items["timestamp"] for h in found[:-1]])
    assert batches[0] == batches[1]
    steps = np.diff(batches[0]) % harness.WIRE
    assert (steps % chain.BATCH == 0).all()
    n_missing = last_match(engines["fgpu0"], r"heaps received, (\d+) missing")[0]
    if n_missing == 0 and inputs.get("fgpu_input_missing_heaps_total") == 0:
        assert (steps == chain.BATCH).all()
        n_samples = inputs.get("fgpu_input_heaps_total") / 2 * chain.PACKET
        assert len(batches[0]) >= (n_samples - chain.WIDEBAND.reach) // chain.BATCH


def slow(program, factor):
    """Lets a process believe that time goes 'factor' times as slowly, so that its output is late and its drain long."""
    return {program: {"time": {"adc_sample_rate": chain.RATE / factor, "timebase": "packets"}}}


def test_drain_of_a_slow_x_engine(daemon, work):
    """A dump takes four times longer to send than to make.  Dumps that are complete at the signal are sent to their
    end."""
    layout = Layout(work, slow("xbgpu0", 4))
    engines = Chain(daemon, layout)
    host, port = endpoints(layout.visibilities)[0]
    with harness.Receiver(f"{host}:{port}") as receiver:
        engines.start("xbgpu0", "fgpu0", "fgpu1", "dsim")
        engine = engines["xbgpu0"]
        engine.wait_metric(lambda m: m.get("xbgpu_output_x_packets_total") > 0, "a dump that leaves")
        engines.terminate("xbgpu0")
        receiver.wait_stops()
        heaps = receiver.heaps
    kinds = [h.kind for h in heaps if h.kind != "descriptor"]
    assert kinds == ["data"] * last_match(engine, r"vis: (\d+) dumps? sent")[0] + ["stop"]
    assert len(kinds) > 1
    assert (np.diff([h.cnt for h in heaps]) == chain.N_SUBSTREAMS).all()


@pytest.mark.parametrize("program, second", [("fgpu0", signal.SIGINT), ("xbgpu0", signal.SIGTERM)])
def test_second_signal(program, second, daemon, work):
    """A second signal ends a drain of many seconds at once, and the exit code reports this."""
    engines = Chain(daemon, Layout(work, slow(program, 100)))
    engines.start("xbgpu0", "fgpu0", "fgpu1", "dsim")
    process = engines[program]
    sent = {"fgpu0": "fgpu_output_packets_total", "xbgpu0": "xbgpu_output_x_packets_total"}[program]
    process.wait_metric(lambda m: m.get(sent) > 0, "the first packet")
    process.terminate()
    while "STOPPING=1" not in chain.notifications(process):
        select.select([process.notify, process.pidfd], [], [], harness.TIMEOUT_S)
        assert process.process.poll() is None, process.tail()
    with pytest.raises(subprocess.TimeoutExpired):
        process.process.wait(0.5)  # seconds of draining are left
    at = time.monotonic()
    process.process.send_signal(second)
    process.wait_end(code=1)
    assert time.monotonic() - at < 8  # the drain alone takes 10 s
    assert "second signal" in process.log.read_text()


# ---- Starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["fgpu0", "xbgpu0", "dsim", "visrec"])
def test_stop_while_starting(program, daemon, work, rng):
    """SIGTERM at any time before a process is ready ends it cleanly.  Before the process reads its configuration, the
    signal itself ends it; the init system counts this as a clean end, too."""
    layout = Layout(work)
    for n in range(5 * ROUNDS):
        process = daemon(program.rstrip("01"), layout.config(program), f"{program}.{n}")
        time.sleep(rng.uniform(0, 0.06))
        process.terminate()
        try:
            code = process.process.wait(harness.TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{program} does not end:\n{process.tail()}") from None
        if code == -signal.SIGTERM:
            assert not process.log.read_text()
        else:
            assert code == 0, process.tail()
    assert not list(work.glob("*.uvh5"))


def test_second_instances(daemon, work, references):
    """A second instance of an F-engine, and then of an X-engine, as after a split of the network.  The receivers count
    duplicates.  Only dumps that one of the two instances flags may differ.  Every recorded value is right or flagged."""
    array = Chain(daemon, Layout(work))
    array.start(*chain.NAMES)

    def total(metric, *processes, **labels):
        return sum(process.metrics().get(metric, **labels) for process in processes)

    def wait_dumps(n):
        goal = total("visrec_dumps_total", array["visrec"]) + n
        array["visrec"].wait_metric(lambda metrics: metrics.get("visrec_dumps_total") >= goal, f"{n} dumps more")

    wait_dumps(3)
    engines = {}
    for name, receiver, prefix in (("fgpu0", "xbgpu1", "xbgpu_input"), ("xbgpu0", "visrec", "visrec")):
        config = array.layout.config(name) | {"http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}}
        refused = f"{prefix}_rejected_packets_total"
        before = total(refused, array[receiver], reason="duplicate")
        engines[name] = array[name], daemon(name.rstrip("0"), config, f"{name}.second").wait_ready()
        array[receiver].wait_metric(
            lambda metrics, refused=refused, before=before: metrics.get(refused, reason="duplicate") > before + 20,
            "duplicates")
        wait_dumps(3)
    assert total("xbgpu_input_contested_heaps_total", array["xbgpu0"], array["xbgpu1"]) == 0
    contested = total("visrec_contested_heaps_total", array["visrec"])
    assert contested <= total("xbgpu_output_x_incomplete_accs_total", *engines["xbgpu0"])
    array.terminate(*reversed(chain.NAMES))
    _, present = chain.check_file(array.recording(), references)
    assert present.all((1, 2)).any()
