"""/metrics as Prometheus reads it, with the reference's names; /status.json, with the same contents.  Reading either does
not disturb a running correlator."""
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import chain
import demo_array
import harness

# katgpucbf's, of which counters have _total and _created.
REFERENCE = {
    "fgpu": ["fgpu_input_heaps", "fgpu_input_chunks", "fgpu_input_samples", "fgpu_input_bytes", "fgpu_input_missing_heaps",
             "fgpu_input_clipped_samples", "fgpu_input_too_old_heaps", "fgpu_input_metadata_heaps",
             "fgpu_input_bad_timestamp_heaps", "fgpu_output_heaps", "fgpu_output_bytes", "fgpu_output_samples",
             "fgpu_output_skipped_heaps", "fgpu_output_clipped_samples"],
    "xbgpu": ["xbgpu_input_heaps", "xbgpu_input_chunks", "xbgpu_input_bytes", "xbgpu_input_missing_heaps",
              "xbgpu_input_samples", "xbgpu_input_incomplete_heaps", "xbgpu_input_too_old_heaps",
              "xbgpu_input_metadata_heaps", "xbgpu_input_bad_timestamp_heaps", "xbgpu_input_bad_feng_id_heaps",
              "xbgpu_output_x_heaps", "xbgpu_output_x_bytes",
              "xbgpu_output_x_visibilities", "xbgpu_output_x_clipped_visibilities", "xbgpu_output_x_skipped_accs",
              "xbgpu_output_x_incomplete_accs"],
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The demonstration's array after three seconds of data: no counter grows any more."""
    work, started = tmp_path_factory.mktemp("ended"), []

    def daemon(program, config, name, **options):
        started.append(harness.Daemon(program, config, work, name, **options))
        return started[-1]

    try:
        array = demo_array.Array(daemon, work, {"digitiser": {"duration": 3.0}}).start(*demo_array.ENGINES, "dsim")
        array["dsim"].wait_end()
        for name in demo_array.ENGINES:
            still(array, name)
        yield array
    finally:
        for process in started:
            process.kill()


def still(array, name):
    """Waits until /status.json shows no data of any input for a second."""
    def look():
        said = array[name].status()
        return all(i["heaps"]["per_s"] == 0 and i["heaps"]["total"] > 0 for i in said["inputs"]) and said

    return harness.until(look, lambda: [i["heaps"] for i in array[name].status()["inputs"]])


def flat(value, name=""):
    """All counters in a part of /status.json: (name of the metric less its prefix, labels, total)."""
    for key, inner in value.items():
        if isinstance(inner, dict) and "total" in inner:
            yield name or key, key if name else None, inner["total"]
        elif isinstance(inner, dict):
            yield from flat(inner, name or key)


def test_names(ended):
    promtool = shutil.which("promtool")
    for name in ("fgpu0", "xbgpu0"):
        text = harness.page(ended[name].config["http"]["listen"], "metrics")
        metrics = harness.Metrics(text)
        have = {n for n, _, _ in metrics.samples}
        for metric in REFERENCE[name[:-1]]:
            assert {f"{metric}_total", f"{metric}_created"} <= have
        counts = Counter((n, tuple(sorted(labels.items()))) for n, labels, _ in metrics.samples)
        assert max(counts.values()) == 1
        now, process = time.time(), Path(f"/proc/{ended[name].process.pid}")
        assert now - 120 < metrics.get("process_start_time_seconds") < now
        assert all(now - 120 < v < now for n, _, v in metrics.samples if n.endswith("_created"))
        assert metrics.get("process_threads") == len(list((process / "task").iterdir()))
        assert abs(metrics.get("process_open_fds") - len(list((process / "fd").iterdir()))) <= 4
        user, system = map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:13])
        assert abs(metrics.get("process_cpu_seconds_total") - (user + system) / os.sysconf("SC_CLK_TCK")) < 1
        resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert abs(metrics.get("process_resident_memory_bytes") / resident - 1) < 0.1
        if promtool:
            check = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
            assert check.returncode == 0 and not check.stdout + check.stderr, check.stdout + check.stderr
    if not promtool:
        pytest.skip("names are checked but not by promtool, which is not there: scripts/setup ci")


def test_derived(ended):
    """Samples follow from heaps: of digitisers 4096, of F-engines 512 channels x 32 spectra x 2."""
    fgpu, xbgpu = ended["fgpu0"].metrics(), ended["xbgpu1"].metrics()
    for pol in (0, 1):
        heaps = fgpu.get("fgpu_input_heaps_total", antenna="m001", pol=pol)
        assert fgpu.get("fgpu_input_samples_total", antenna="m001", pol=pol) == 4096 * heaps > 0
    heaps = fgpu.get("fgpu_output_heaps_total", antenna="m000")
    assert fgpu.get("fgpu_output_samples_total", antenna="m000") == 512 * 32 * 2 * heaps > 0
    assert fgpu.get("fgpu_output_bytes_total", antenna="m000") == 512 * 32 * 4 * heaps
    assert xbgpu.get("xbgpu_input_samples_total") == 512 * 32 * 2 * xbgpu.get("xbgpu_input_heaps_total") > 0


SECTIONS = {"inputs": "input_", "fengs": "feng_", "receivers": "input_", "antennas": "", "other": ""}


def at_once(engine):
    """/status.json, and metrics of the same time: descriptors leave every 5 s, and the next engine counts them."""
    def totals(status):
        parts = [status.get(section, []) for section in (*SECTIONS, "streams")]
        return [list(flat(thing)) for part in parts for thing in (part if isinstance(part, list) else [part])]

    def look():
        before, metrics, after = engine.status(), engine.metrics(), engine.status()
        return totals(before) == totals(after) and (before, metrics)

    return harness.until(look, engine.status)


def test_status_equals_metrics(ended):
    for name in demo_array.ENGINES:
        program = name[:-1]
        status, metrics = at_once(ended[name])
        assert status["program"] == program and status["state"] == "running" and status["healthy"] is True
        assert status["pid"] == ended[name].process.pid
        n_compared = 0
        for section, prefix in (SECTIONS | {"streams": "output_" if program == "fgpu" else "output_x_"}).items():
            objects = status.get(section, [])
            for thing in objects if isinstance(objects, list) else [objects]:
                own = {k: v for k, v in thing.items() if isinstance(v, str) and k != "state"}
                for key, rest, total in flat(thing):
                    names = [f"{program}_{p}{key}_total" for p in (prefix, "")]
                    more = {} if rest is None else {"reason": rest, "error": rest, "pol": rest}
                    found = [v for n, labels, v in metrics.samples if n in names and own.items() <= labels.items()
                             and (rest is None or any(labels.get(k) == v for k, v in more.items()))]
                    assert found == [total], f"{name} {section} {own} {key} {rest}: {found}, not {total}"
                    n_compared += 1
        counters = [n for n, _, _ in metrics.samples if n.endswith("_total") and n.startswith(program)]
        assert n_compared == len(counters)


def test_looking_costs_nothing(running):
    """Some people look at each engine as often as they are answered, at all baselines, while dumps must be right."""
    correlator, dumps = running()
    dumps.wait_dumps(2, dumps.newest())
    stop, counts, problems = threading.Event(), Counter(), []

    def look(name, which):
        for i in range(10**9):
            if stop.is_set():
                return
            query = f"?baseline={i % 2},1" if which else ""
            try:
                spectrum = correlator[name].status(query)["spectrum"]
            except Exception as error:  # told by the test
                problems.append(f"{name}: {error!r}")
                return
            counts[name] += 1
            counts[name, "spectra"] += spectrum is not None
            stop.wait(0.02)  # somebody has to do the rest

    engines = [name for name in chain.NAMES if name.rstrip("01") in ("fgpu", "xbgpu")]
    threads = [threading.Thread(target=look, args=(name, which)) for name in engines for which in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        dumps.wait_dumps(6, dumps.newest())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems, problems
    for name in engines:
        metrics = correlator[name].metrics()
        program = name[:-1]
        looks = metrics.get(f"{program}_snapshot_seconds")
        print(f"{name}: {counts[name]} answers, {counts[name, 'spectra']} with spectra, last look {1e6 * looks:.0f} us")
        assert counts[name, "spectra"] > 5 and 0 < looks < 0.5
        assert metrics.get("fgpu_output_dropped_heaps_total" if program == "fgpu" else
                           "xbgpu_output_x_dropped_accs_total") == 0


@pytest.mark.parametrize("program", ["fgpu0", "xbgpu0"])
def test_asked_while_a_start_fails(daemon, work, program):
    """No reader gets counters that have been freed (an address sanitizer sees it; otherwise it is seldom a crash)."""
    layout, over = chain.Layout(work), threading.Event()

    def scrape(port):
        with contextlib.suppress(OSError):
            while not over.is_set():
                with contextlib.suppress(OSError), socket.create_connection((harness.LOOPBACK, port), 1) as s:
                    while not over.is_set():
                        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        if not s.recv(1 << 20):
                            break

    for i in range(4):
        over.clear()
        port = harness.free_tcp_port()
        config = layout.config(program) | {"http": {"listen": f"{harness.LOOPBACK}:{port}"},
                                           "state": {"directory": str(work / "none")}}
        threads = [threading.Thread(target=scrape, args=(port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            log = daemon(program[:-1], config, f"{program}-{i}").wait_end(code=78).log.read_text()
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert "state.directory: files cannot be kept" in log
