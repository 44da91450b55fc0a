"""The engines as services of a real systemd: start, watchdog, restart, state, end."""
import contextlib
import os
import random
import signal
import socket
import statistics
import struct
import time
from pathlib import Path

import harness
import pytest
import yaml
from engines import BATCH, DUMP_BATCHES, RATE, TIME, FEngine, Running, XEngine, katcp
from stopping import stopped, threads

ENGINES = [FEngine, XEngine]
N_KILLS = 10
MAX_RECOVERY_S = 3
WATCHDOG_S = 4


@pytest.mark.parametrize("engine", ENGINES)
def test_start(engine, machine):
    """The service has started when it is ready.  It runs under a dynamic account, cannot change the machine, and has
    its own directories."""
    with Running(engine(machine, "gpu0"), simulate=False) as running:
        unit = running.engine.unit
        assert machine.show(unit, "ActiveState", "StatusText", "NRestarts") == ["active", "running", "0"]
        status = Path(f"/proc/{machine.pid(unit)}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert fields["CapEff"].strip("0") == fields["CapBnd"].strip("0") == "" and fields["NoNewPrivs"] == "1"
        uid = fields["Uid"].split()[0]
        assert int(uid) >= 61184  # a dynamic one
        for kind in ("lib", "cache"):
            assert machine.run(f"stat -c %u /var/{kind}/cbf/gpu0/.").stdout.strip() == uid
        assert machine.run("stat -c %u /run/cbf/gpu0/.").stdout.strip() == uid
        assert "READY" not in machine.journal(unit)


def recorder_config(file):
    stream = {"channels": 64, "channels_per_substream": 64, "samples_between_spectra": 128, "integration_batches": 1000}
    return {"time": TIME, "recv": {"sources": harness.groups(), "interface": "lo", "buffer": 65536}, "stream": stream,
            "telescope": {"name": "t", "latitude": -30, "longitude": 21, "altitude": 0},
            "antennas": [{"name": "m000", "position": [0, 0, 0]}], "output": {"file": file}}


def recordings(machine, directory):
    return set(machine.run(f"ls {directory}/").stdout.split())


def test_recorder(machine):
    """The service records in its own directory.  If it is killed in the second of its start, it continues in another
    file.  A stop leaves the recording."""
    unit = "visrec@store.service"
    machine.configure("store", recorder_config("/var/lib/cbf/store/vis-%Y.uvh5"))
    machine.run(f"systemctl start {unit}")
    before = recordings(machine, "/var/lib/cbf/store")
    os.kill(machine.pid(unit), signal.SIGKILL)
    machine.wait_show(unit, lambda values: values == ["active", "1"], "ActiveState", "NRestarts")
    after = recordings(machine, "/var/lib/cbf/store")
    assert len(before) == 1 and len(after) == 2 and before < after, (before, after)
    machine.run(f"systemctl stop {unit}")
    assert machine.show(unit, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]


def test_recorder_on_another_disk(machine):
    """Refused as packaged; allowed by the drop-in of the manual."""
    unit = "visrec@store.service"
    machine.configure("store", recorder_config("/data/vis.uvh5"))
    machine.run("install -d -o cbf /data; rm -f /data/*")
    assert machine.run(f"systemctl start {unit}", check=False).returncode != 0
    machine.drop_in(unit, "[Unit]\nRequiresMountsFor=/data\n[Service]\nDynamicUser=no\nUser=cbf\nUMask=0022\nReadWritePaths=/data")
    machine.run(f"systemctl start {unit}")
    assert machine.run("stat -c '%U %a' /data/vis.uvh5").stdout.split() == ["cbf", "644"]


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_drains(engine, machine):
    """After SIGTERM the service sends all received data, then a stop heap on every stream.  The end is clean and causes
    no restart."""
    with Running(engine(machine, "gpu0")) as running:
        running.engine.learn(running.receiver)
        machine.run(f"systemctl stop {running.engine.unit}")
        running.receiver.wait_stops()
        for heap in running.receiver.data():
            assert running.engine.is_valid(heap) or engine is XEngine
        n_streams = len(harness.endpoints(running.engine.destinations))
        assert sum(h.kind == "stop" for h in running.receiver.heaps) == n_streams
        assert running.receiver.heaps[-1].kind == "stop"
        assert machine.show(running.engine.unit, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]


def stop_worker(running, stack):
    """Stops the worker's thread.  The thread is named before any consequence."""
    tid = threads(running.machine.pid(running.engine.unit))["worker"]
    stack.enter_context(stopped(tid))


def stop_process(running, stack):
    os.kill(running.machine.pid(running.engine.unit), signal.SIGSTOP)


@pytest.mark.parametrize("stop", [stop_worker, stop_process])
def test_watchdog(stop, machine):
    """A stuck thread is named, and its process is killed and started again.  The same happens to a stopped process."""
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(Running(engine(machine, f"gpu{i}"))) for i, engine in enumerate(ENGINES)]
        for running in both:
            unit = running.engine.unit
            assert machine.show(unit, "WatchdogUSec") == "10s"
            machine.drop_in(unit, f"[Service]\nWatchdogSec={WATCHDOG_S}")
            machine.run(f"systemctl restart {unit}")
            running.engine.learn(running.receiver)
        # Nothing but the fault brings it about.
        time.sleep(1.3 * WATCHDOG_S)
        units = [running.engine.unit for running in both]
        assert [machine.show(unit, "NRestarts", "ActiveState") for unit in units] == [["0", "active"]] * 2
        since = time.time()
        with contextlib.ExitStack() as fault:
            for running in both:
                stop(running, fault)
            for unit in units:
                if stop == stop_worker:
                    said = machine.wait_show(unit, lambda text: "hangs" in text, "StatusText")
                    assert said.startswith("FAILED: thread worker (")
                machine.wait_journal(unit, since, "Killing process")
        for running in both:
            unit = running.engine.unit
            machine.wait_show(unit, lambda v: v == ["1", "active"], "NRestarts", "ActiveState")
            running.wait_valid(time.monotonic())
            journal = machine.journal(unit, since)
            assert "Watchdog timeout" in journal
            assert ("thread worker (" in journal) == (stop == stop_worker), journal
            assert machine.show(unit, "StatusText") == "running"
        seconds = time.time() - since
        print(f"\n{stop.__name__}: WatchdogSec={WATCHDOG_S}: valid output again after {seconds:.1f} s")
        assert seconds < 3 * WATCHDOG_S


@pytest.mark.parametrize("engine", ENGINES)
def test_recovery(engine, machine):
    """From kill -9 to valid output, in the phase of a batch or dump at which it happens to be."""
    with Running(engine(machine, "gpu0")) as running:
        unit = running.engine.unit
        running.engine.learn(running.receiver)
        kept = "/var/lib/cbf/gpu0/set-by-somebody"
        machine.run(f"echo kept > {kept} && chown --reference=/var/lib/cbf/gpu0/. {kept}")
        seconds = []
        seed = int(os.environ.get("CBF_SEED", time.time()))
        rng = random.Random(seed)
        for i in range(N_KILLS):
            running.wait_valid(time.monotonic())
            time.sleep(rng.uniform(0, DUMP_BATCHES * BATCH / RATE))
            killed_s = time.monotonic()
            os.kill(machine.pid(unit), signal.SIGKILL)
            gone_s = time.monotonic()
            machine.wait_show(unit, lambda n: n == str(i + 1), "NRestarts")
            # What is valid and came before the restart was sent by the process that is gone.
            machine.wait_show(unit, lambda us: int(us) / 1e6 > killed_s, "ExecMainStartTimestampMonotonic")
            seconds.append(running.wait_valid(max(gone_s, restarted(machine, unit))) - killed_s)
        print(f"\n{engine.program}: from kill -9 to valid output: median {statistics.median(seconds):.2f} s, "
              f"from {min(seconds):.2f} s to {max(seconds):.2f} s, {N_KILLS} times (CBF_SEED={seed})")
        assert statistics.median(seconds) <= MAX_RECOVERY_S
        assert machine.run(f"cat {kept}").stdout == "kept\n"
        uid = machine.run(f"stat -c %u /proc/{machine.show(unit, 'MainPID')}").stdout
        assert machine.run(f"stat -c %u {kept}").stdout == uid


def restarted(machine, unit):
    """When the running process began, as time.monotonic has it."""
    return int(machine.show(unit, "ExecMainStartTimestampMonotonic")) / 1e6


def test_settings_are_kept(machine):
    """Settings over KATCP hold again after kill -9, a stop and a start, and ?restart."""
    engine = FEngine(machine, "gpu0")
    with Running(engine, simulate=False):
        katcp(engine, "gain wide 0 0.125")
        delays = f"{TIME['sync_time']} 1e-6,0:0.5,0 2e-6,0:0.25,0"
        katcp(engine, f"delays wide {delays}")
        expected = [katcp(engine, f"gain wide {i}")[0] for i in range(2)]
        assert [complex(gain) for gain, in expected] == pytest.approx([0.125, 0.05])
        # Written within a second; a stop, or a look at the file, is what tells.
        state = machine.path("/var/lib/cbf/gpu0/")
        deadline = time.monotonic() + 10
        while len(list(state.glob("*@*"))) < 2:
            assert time.monotonic() < deadline, list(state.iterdir())
            time.sleep(0.05)
        for i, how in enumerate(("systemctl kill -s KILL", "systemctl restart", "restart")):
            before = machine.show(engine.unit, "MainPID")
            if how == "restart":
                katcp(engine, "restart")
            else:
                machine.run(f"{how} {engine.unit}")
            machine.wait_show(engine.unit, lambda v: v[0] == "active" and v[1] not in ("0", before),
                              "ActiveState", "MainPID")
            assert [katcp(engine, f"gain wide {i}")[0] for i in range(2)] == expected, how
            assert "delay" in machine.journal(engine.unit)
        katcp(engine, "halt")
        machine.wait_show(engine.unit, lambda v: v == ["inactive", "success"], "ActiveState", "Result")


@pytest.mark.parametrize("engine", ENGINES)
def test_clock(engine, machine):
    """The engine reads the state that it may not ask the kernel for."""
    with Running(engine(machine, "gpu0"), simulate=False) as running:
        machine.wait_show("gpucbf-clock.service", lambda state: state == "active", "ActiveState")
        _, state, esterror_us, maxerror_us = map(
            int, machine.run("cat /run/cbf-clock/state").stdout.split())
        found = {}
        for name in ("time.state", "time.esterror", "time.maxerror"):
            _, ((_, _, sensor, status, value),) = katcp(running.engine, f"sensor-value {name}")
            assert sensor == name and status != "unreachable"
            found[name] = value
        assert found["time.state"] == ("ok", "ins", "del", "oop", "wait", "error")[state]
        assert float(found["time.esterror"]) == pytest.approx(esterror_us * 1e-6, abs=1e-3)
        assert float(found["time.maxerror"]) == pytest.approx(maxerror_us * 1e-6, abs=1e-1)


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_configuration(engine, machine):
    """78 is not restarted: with a file that is wrong, an interface that does not exist.  1 is: a port that is taken."""
    running = engine(machine, "gpu0")
    for key, value in (("interface", "nosuch0"), ("buffer", -1)):
        config = harness.merge(running.config, {"recv": {key: value}})
        machine.configure("gpu0", config)
        assert machine.run(f"systemctl start {running.unit}", check=False).returncode != 0
        found = machine.wait_show(running.unit, lambda v: v[0] == "failed", "ActiveState", "ExecMainStatus", "NRestarts")
        assert found == ["failed", "78", "0"], machine.journal(running.unit)
        line = next(n for n, text in enumerate(yaml.safe_dump(config, sort_keys=False, width=1000).splitlines(), 1)
                    if text.strip().startswith(f"{key}:"))
        assert f"/etc/cbf/gpu0.yaml:{line}:" in machine.journal(running.unit)
        time.sleep(1)
        assert machine.show(running.unit, "ActiveState", "NRestarts") == ["failed", "0"]
        machine.run(f"systemctl reset-failed {running.unit}")
    with socket.socket() as taken:
        host, port = running.listen.split(":")
        taken.bind((host, int(port)))
        taken.listen()
        machine.configure("gpu0", running.config)
        machine.run(f"systemctl start --no-block {running.unit}")
        # More often than systemd's own limit for a burst of starts.
        found = machine.wait_show(running.unit, lambda v: int(v[0]) >= 6, "NRestarts", "ExecMainStatus")
        assert found[1] in ("0", "1")
    machine.wait_show(running.unit, lambda state: state == "active", "ActiveState")


def test_no_configuration(machine):
    """Neither a start nor a loop of starts."""
    assert machine.run("systemctl start fgpu@nosuch.service", check=False).returncode != 0
    assert machine.show("fgpu@nosuch.service", "ActiveState", "NRestarts") == ["inactive", "0"]


def test_target(machine):
    """All engines of the host start and stop as one.  Enabled engines run again after a boot."""
    engines = [FEngine(machine, "gpu0"), XEngine(machine, "gpu1")]
    units = [engine.unit for engine in engines]
    for engine in engines:
        machine.configure(engine.name, engine.config)

    def states():
        return [machine.show(unit, "ActiveState") for unit in units]
    machine.run(f"systemctl enable gpucbf.target {' '.join(units)}")
    assert states() == ["inactive"] * 2
    for verb, expected in (("start", "active"), ("restart", "active"), ("stop", "inactive")):
        machine.run(f"systemctl {verb} gpucbf.target")
        for unit in units:
            machine.wait_show(unit, lambda state: state == expected, "ActiveState")
    machine.halt()
    machine.boot()
    assert states() == ["active"] * 2
    # An upgrade changes nothing that runs.
    pids = [machine.show(unit, "MainPID") for unit in units]
    machine.run("dpkg -i /packages/gpucbf_*.deb")
    assert [machine.show(unit, "MainPID") for unit in units] == pids
    machine.run(f"systemctl disable gpucbf.target {' '.join(units)}")


@pytest.mark.parametrize("engine", ENGINES)
def test_log_is_bounded(engine, machine):
    """The journal does not grow with packets from the network, whatever they contain."""
    with Running(engine(machine, "gpu0"), simulate=False) as running:
        source = running.engine.sources if engine is XEngine else running.engine.pols[0]
        (endpoint,) = harness.endpoints(source)
        since, n = time.time(), 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(harness.LOOPBACK))
            while time.time() < since + 3:
                for size in (0, 1, 8, 64, 1000, 5000):
                    # Of all kinds of wrong: no SPEAD, too short, of another shape.
                    out.sendto(struct.pack(">BBBBHH", 0x53, 4, 2, 6, 0, n % 9) * (1 + size // 8) if n % 2 else
                               bytes(size), endpoint)
                    n += 1
        lines = machine.journal(running.engine.unit, since).splitlines()
        print(f"\n{engine.program}: {n} wrong packets in 3 s gave {len(lines)} lines")
        assert 0 < len(lines) <= 20, "\n".join(lines[:30])
