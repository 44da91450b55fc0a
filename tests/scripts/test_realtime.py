"""scripts/bench/realtime: a small run of a chain is clean and prints its results; faults are noticed; the search finds the
highest rate.  scripts/bench/pacing: its figures from times.  After either of these scripts the kernel's limits have
their old values."""
import argparse
import importlib.machinery
import importlib.util
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import harness

BENCH = harness.ROOT / "scripts" / "bench"


@pytest.fixture
def scripts(monkeypatch):
    """Imports a script by its name."""
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name):
        path = next(path for path in (BENCH / name, harness.ROOT / "scripts" / name) if path.exists())
        loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(path))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(module)
        return module

    return load


@pytest.mark.skipif(harness.SANITIZED, reason="what sanitizers cost is not what it measures")
def test_the_chain_runs(work):
    """Two antennas, two X-engines, two seconds.  A busy machine may lose data or be late, so there are some runs."""
    for _ in range(5):
        (work / "results.json").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, BENCH / "realtime", "chain", "--build", harness.BUILD, "--device", "cpu", "--channels", "64",
             "--substreams", "2", "--rate", "1", "--seconds", "2", "--period", "65536", "--integration", "16",
             "--warm-up", "0", "--logs", work, "--json", work / "results.json"],
            capture_output=True, text=True, timeout=4 * harness.TIMEOUT_S)
        assert (work / "results.json").exists(), done.stdout + done.stderr
        (run,) = json.loads((work / "results.json").read_text())["runs"]
        assert run["clean"] == (done.returncode == 0) == (not run["why"]), done.stdout
        assert run["dumps"]["wrong"] == 0, done.stdout
        # 2 antennas, 2 polarisations, 1 MS/s of 10 bits in, half as many complex values of 16 bits out.
        rates = run["samples_gbit_per_s"] / 0.04, run["voltages_gbit_per_s"] / 0.032
        if run["dumps"]["exact"] > 0 and max(abs(rate - 1) for rate in rates) < 0.2:
            break
    assert run["dumps"]["exact"] > 0, done.stdout
    assert 0 < run["off"] < 0.01
    assert rates == pytest.approx((1, 1), rel=0.2)
    assert set(run["latency"]) == {"m000", "m001"} and 0 <= run["apart"][0] <= max(late for late, _ in run["latency"].values())
    memory = {row["stage"]: row for row in run["memory"]}
    assert memory["fgpu sends"]["least"] == pytest.approx(2 * memory["xbgpu receives"]["bytes_per_s"])


@pytest.mark.skipif(harness.SANITIZED, reason="what sanitizers cost is not what it measures")
def test_satellites_run_beside_a_wide_band(work):
    """Two satellites: every integration comes, and its sums are numpy's."""
    done = subprocess.run(
        [sys.executable, BENCH / "realtime", "f", "--build", harness.BUILD, "--device", "cpu", "--channels", "64",
         "--rate", "4.096", "--satellites", "2", "--seconds", "2", "--warm-up", "0", "--json", work / "results.json"],
        capture_output=True, text=True, timeout=4 * harness.TIMEOUT_S)
    assert (work / "results.json").exists(), done.stdout + done.stderr
    (run,) = json.loads((work / "results.json").read_text())["runs"]
    assert run["clean"] == (done.returncode == 0) == (not run["why"]), done.stdout
    assert not [sentence for stage, sentence in run["why"] if stage == "start"], done.stdout
    assert not [sentence for stage, sentence in run["why"] if stage == "gnss" and "differ" in sentence], done.stdout
    assert run["sums_off"] is None or 1e-4 < run["sums_off"] < 0.03
    assert run["clean"] <= bool(run["sums_off"])


def test_wrong_sums_of_satellites_are_noticed(scripts):
    model = scripts("realtime_satellites.py")
    random = np.random.default_rng(3)
    sky = model.Sky(4_096_000, 1)
    n, baseband = 2048, random.standard_normal((2, sky.period // sky.step)) + 0j
    records = np.zeros(6, model.gnssmodel.RECORD)
    records["timestamp"] = (10 * n + np.arange(6) * n + n // 2) * sky.step
    records["prn"], records["n_samples"], records["n_present"], records["flags"] = 1, n, n, 3
    records["code_phase"], records["carrier_cycles"], records["n_starts"] = 511.25, np.arange(6) * 3, 1
    for record in records:
        sums = sky.sums(baseband, record, 3 / n)
        record["sums"] = np.stack([sums.real, sums.imag], axis=-1)
    assert model.judge_sums(sky, baseband, records) == ([], {1: pytest.approx(0, abs=1e-9)})
    for key, change, says in (("sums", lambda sums: 1.1 * sums, "sums differ"),
                              ("code_phase", lambda phase: phase + 1, "sums differ"),
                              ("n_samples", lambda samples: samples - [0, 0, 0, 1, 0, 0], "do not follow each other in 1 places"),
                              ("n_present", lambda samples: samples - 1, "samples were missing"),
                              ("flags", lambda flags: flags - 1, "lost")):
        wrong = records.copy()
        wrong[key] = change(wrong[key])
        assert any(says in sentence for sentence in model.judge_sums(sky, baseband, wrong)[0]), key
    assert model.judge_sums(sky, baseband, records[:2])[0] == ["PRN 1: 2 integrations came out"]


def test_a_wrong_dump_is_noticed(scripts):
    modes = scripts("realtime_modes.py")
    random = np.random.default_rng(1)
    expected = random.integers(-10**6, 10**6, (8, 12, 2))
    judge = modes.Judge(expected, 0.01)
    half = expected[4:].astype("<i4")
    bit = half.copy()
    bit[3, 11, 1] ^= 1
    flagged = half.copy()
    flagged[:, 4:8] = [-2**31, 1]
    assert judge(0, half.view(np.uint8).ravel()) == "wrong"  # of the other channels
    assert judge(4, half.view(np.uint8).ravel()) == "exact"
    assert judge(4, half.view(np.uint8).ravel()) == "exact"
    assert judge(4, bit.view(np.uint8).ravel()) == "wrong"
    assert judge(4, flagged.view(np.uint8).ravel()) == "flagged"
    assert modes.Judge(expected, 0.01)(4, np.zeros_like(half).view(np.uint8).ravel()) == "wrong"


def search_options(host, *given):
    parser = argparse.ArgumentParser()
    host.add_search_options(parser, 900, 3000, 1712, "MS/s")
    return parser.parse_args(given)


@pytest.mark.parametrize("holds, expected, confirmed", [
    (5000, 3000, [3000]),
    (2800, 2760, [3000, 2760]),
    (1800, 1712, [3000, 2760, 1712]),
    (1000, 0, [3000, 2760, 1712]),
])
def test_a_rate_that_does_not_hold_is_lowered_to_the_goal_at_last(scripts, capsys, holds, expected, confirmed):
    """All rates are clean for a moment, and up to 'holds' for longer."""
    host = scripts("realtime_host.py")
    args, results = search_options(host), []

    def run(rate, seconds):
        return {"rate": rate, "clean": seconds < args.confirm or rate <= holds}

    assert host.run_or_search(args, run, lambda result: None, results, "MS/s") == (expected > 0)
    assert [r["rate"] for r in results if r.get("confirmation")] == pytest.approx(confirmed)
    assert (f"clean to {expected} MS/s" if expected else "no clean rate was found") in capsys.readouterr().out


def test_no_search_without_time_for_its_confirmations(scripts):
    host = scripts("realtime_host.py")
    with pytest.raises(SystemExit, match="--budget must be more than 240 s"):
        host.run_or_search(search_options(host, "--budget", "240"), None, None, [], "MS/s")


def test_it_is_said_who_is_late_and_when_what_is_lost(scripts, monkeypatch):
    modes = scripts("realtime_modes.py")

    def found(late_ms, too_old, dsim_s=0.0):
        loss = 'xbgpu_input_rejected_packets_total{fengs="0-1",reason="too_old"}'
        return {"fgpu": {f'fgpu_output_latency_seconds{{antenna="m{a:03}",stream="wide"}}': ms / 1e3 for a, ms in enumerate(late_ms)},
                "dsim": {"dsim_time_error_s": dsim_s}} | {f"xbgpu{s}": {loss: n} for s, n in enumerate(too_old)}

    class Mode:
        SIMULATOR, LATE, names = "dsim", "dsim_time_error_s", ["fgpu", "dsim", "xbgpu0", "xbgpu1"]

    class Before:
        time, metrics = 1000.0, found([1, 1], [5, 0])

    looks = [found([10, 20], [5, 0]), found([10, 90], [5, 3], 0.5), found([15, 30], [5, 4])]
    watch = modes.ChainWatch(Mode, Before)
    for i, look in enumerate(looks):
        Mode.metrics = staticmethod(lambda names, look=look: {name: look[name] for name in names})
        monkeypatch.setattr(modes.time, "monotonic", lambda i=i: 1001.0 + i)
        watch.look()
    assert watch.lost == {"xbgpu1": [2.0, 3.0]} and watch.late_s == 0.5
    assert watch.latency == {"m000": (0.015, 3.0), "m001": (0.09, 2.0)}
    assert watch.apart == (pytest.approx(0.08), 2.0)


def test_cpus_are_kept_for_threads(scripts, monkeypatch):
    """Assigns 16 CPUs, with two X-engines on each of two."""
    host = scripts("realtime_host.py")
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(host, "place_in_core", lambda cpu: 0)
    aside = []
    monkeypatch.setattr(host.os, "sched_setaffinity", lambda pid, cpus: aside.append(cpus))
    pins = host.Pins({"dsim": 4, "recv": 4, "send": 4, "xrecv": 2}, ("dsim",), True, spare=2)
    assert pins.used and pins.of("send") == [9, 10, 11, 12] and pins.of("xrecv") == [13, 14]
    assert pins.but("dsim", "xrecv", "send") == {5, 6, 7, 8, 15}
    pins.step_aside()
    assert aside == [{0, 15}]
    assert not host.Pins({"dsim": 4, "recv": 4, "send": 4, "xrecv": 4}, ("dsim",), True, spare=2).used


def test_bursts(scripts):
    """Packets of 1000 bytes through a port of 1 byte/ns: three of one message, two just behind it, and one alone."""
    pacing = scripts("pacing")
    ns = np.array([0, 0, 0, 2000, 3500, 9000]) + 10**18
    n_bytes = np.full(6, 1000.0)
    assert pacing.waits(ns, n_bytes, 1.0).tolist() == [0, 1000, 2000, 1000, 500, 0]
    assert pacing.bursts(ns, n_bytes, 1.0).tolist() == [5000, 1000]
    assert pacing.bursts(ns, n_bytes, 10.0).tolist() == [3000, 1000, 1000, 1000]
    assert pacing.queue(ns, n_bytes, 1.0) == 3000


def test_behind_the_schedule(scripts):
    """Two groups at 1 byte/ns, of which the first is left out; the second is 0, 500 and 300 ns behind."""
    pacing = scripts("pacing")
    rows = [(0, 1, 0, 1000), (9999, 1, 1000, 1000), (10000, 2, 0, 1000), (11500, 2, 1000, 1000), (12300, 2, 2000, 1000)]
    arrivals = np.array([(ns, timestamp, offset, n_bytes, 0, 1) for ns, timestamp, offset, n_bytes in rows], pacing.ARRIVAL)
    assert pacing.behind(arrivals, 1.0).tolist() == [0, 500, 300]
    result = pacing.analyse(arrivals, 1e9, 3)
    assert (result["packets"], result["groups"], result["behind_us"]["100"]) == (5, 2, 0.5)
    arrivals["is_data"] = 0
    with pytest.raises(RuntimeError):
        pacing.analyse(arrivals, 1e9, 3)


# ---- Limits of the kernel --------------------------------------------------------------------------------------------

LOW, HIGH, OTHERS = 1000, 1 << 40, 77

RAISED = """
import pathlib, signal, sys, time
sys.path.insert(0, sys.argv[1])
import kernel_limits
kernel_limits.ROOT = pathlib.Path(sys.argv[2])
for number in kernel_limits.ENDS:  # who runs the tests in the background ignores some
    signal.signal(number, signal.SIG_DFL)
with kernel_limits.raised({"net.core.rmem_max": 2000, "net.core.wmem_max": 2000, "net.core.optmem_max": 2000}):
    print("raised", flush=True)
    while True:  # a signal just before signal.pause() would not end that
        time.sleep(0.01)
"""


@pytest.fixture
def limits(tmp_path):
    """Files like sysctl's, without optmem_max. read() returns the contents of the others."""
    directory = tmp_path / "net/core"
    directory.mkdir(parents=True)
    names = ("rmem_max", "wmem_max")
    for name, value in zip(names, (LOW, HIGH)):
        (directory / name).write_text(str(value))
    return lambda: [int((directory / name).read_text()) for name in names]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_limits_are_set_back_on_a_signal(limits, tmp_path, number):
    process = subprocess.Popen([sys.executable, "-c", RAISED, BENCH.parent, tmp_path], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    with process:
        assert process.stdout.readline() == "raised\n" and limits() == [2000, HIGH]
        process.send_signal(number)
        try:
            process.wait(harness.TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode not in (0, -signal.SIGTERM, -signal.SIGHUP) and limits() == [LOW, HIGH]


def test_limits_of_others_are_left(limits, tmp_path, scripts, monkeypatch):
    kernel_limits = scripts("../kernel_limits.py")
    monkeypatch.setattr(kernel_limits, "ROOT", tmp_path)
    before = signal.getsignal(signal.SIGTERM)  # other tests may have left one
    with kernel_limits.raised({"net.core.rmem_max": 2000, "net.core.wmem_max": 2000}):
        (tmp_path / "net/core/rmem_max").write_text(str(OTHERS))
    assert limits() == [OTHERS, HIGH]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("command, function", [(["realtime", "f"], "run"), (["realtime", "x"], "run"),
                                               (["realtime", "chain"], "run"), (["pacing"], "measure_sender")])
def test_scripts_set_limits_back(limits, tmp_path, scripts, monkeypatch, command, function):
    """However a run ends, the limits are restored.  Steps that can fail before the first raise do so before any limit
    is raised."""
    script = scripts(command[0])

    def fail(*_):
        assert limits() == [1 << 30, HIGH]
        raise EOFError

    monkeypatch.setattr(script.kernel_limits, "ROOT", tmp_path)
    monkeypatch.setattr(script, function, fail)
    for mode in getattr(script, "MODES", {}).values():
        monkeypatch.setattr(mode, "expected_dump", lambda *_: None)
    monkeypatch.setattr(script.Pins, "step_aside", lambda self: None)
    monkeypatch.setattr(sys, "argv", [*command, "--rate", "1"])
    with pytest.raises(EOFError):
        script.main()
    assert limits() == [LOW, HIGH]
