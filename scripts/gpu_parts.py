"""Runs the parts of the GPU tests within their time limits, and counts their results."""
import concurrent.futures
import json
import os
import re
import shlex
import signal
import subprocess
import tarfile
import time
import traceback
import xml.etree.ElementTree
from dataclasses import asdict, dataclass, field

import gpu_machine
import gpu_pack
import gpu_startup

N_WORKERS = min(12, max(2, (os.cpu_count() or 1) - 4))
TOOLS = ["memcheck", "racecheck"]
# A few tests that replay captures through fgpu: several buffers and antennas, losses, outputs with 4 and 8 bits.
SANITIZED_REPLAYS = ["tests/system/test_fgpu.py::test_stream_may_start_anywhere[15]",
                     "tests/system/test_fgpu.py::test_lost_packets[0.01]",
                     "tests/system/test_fgpu.py::test_saturation_is_symmetric[4-7]"]
# Engine tests start an fgpu or an xbgpu.  Tests in REPLAYS may run side by side.  Tests in LIVE depend on the clock,
# so they run one by one.
REPLAYS = ["tests/system/test_fgpu.py", "tests/system/test_loss.py", "tests/system/test_spead_bytes.py",
           "tests/system/test_wrap.py", "tests/system/test_wrong_packets.py", "tests/system/test_xbgpu.py",
           "tests/system/test_gates.py", "tests/system/test_narrowband.py", "tests/system/test_gnss.py",
           "tests/system/test_beams.py", "tests/system/test_beams_detected.py"]
REPLAYS_CHOSEN = "not live and not visrec and not emulated and not mistakes"
LIVE = ["tests/system/test_fgpu_stream.py", "tests/system/test_wrap.py", "tests/system/test_kill.py"]
LIVE_CHOSEN = "test_fgpu_stream or fgpu_live or drain_of_an_f_engine or ((second_signal or while_starting) and fgpu0)"
REALTIME = "scripts/bench/realtime"
DIRECT_RATES = {"f": "600", "x": "15"}  # rates (f: MS/s, x: Gb/s) without losses in direct and in pinned memory
SESSION_MARGIN_S = 10  # time between pytest's time limit and the part's time limit, for the end of the last test
GRACE_S = 5  # time that a program gets to end by itself after its time limit
KEPT_ON_FAILURE_BYTES = 15 << 20


@dataclass
class Row:
    """The result of one program or set of tests."""
    part: str
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    note: str = ""
    lines: list = field(default_factory=list)  # measurements that the program printed, as text
    end: str = ""  # last lines of the output, to analyse a failure


class Run:
    """A running part: its place, its log and its time limit."""

    def __init__(self, part, place, limit_s):
        self.part = part
        self.place = place
        self.deadline = time.monotonic() + limit_s
        self.log = open(place.out / f"{part}.log", "w", errors="replace")

    def execute(self, command, env, leave_s=0):
        """Runs a program.  Returns (exit code, output, seconds).  The program may use the part's remaining time
        except 'leave_s', which other programs need.  If this time is up, ends the program and returns the code
        None."""
        began = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], env=env, cwd=self.place.root, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, process_group=0)
        try:
            output, _ = process.communicate(timeout=max(1, self.deadline - leave_s - began))
            code = process.returncode
        except subprocess.TimeoutExpired:
            output, code = self.interrupt(process), None
        seconds = time.monotonic() - began
        ended = "out of time" if code is None else f"code {code}"
        self.log.write(f"==== {' '.join(map(str, command))}\n{output}\n==== {ended} after {seconds:.1f} s\n\n")
        self.log.flush()
        return code, output, seconds

    @staticmethod
    def interrupt(process):
        """Ends a program and all programs that it started.  The program may first write its results (pytest does)."""
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=GRACE_S)[0]
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # all processes of the program have ended
        return process.communicate()[0]

    def together(self, function, items, n=N_WORKERS):
        """Calls function(item) for each item, several calls at a time.  Returns the rows that the calls return."""
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            return list(pool.map(function, items))

    # ---- Kinds of programs -------------------------------------------------------------------------------------------

    def suite(self, name, wrapper=(), label="", **env):
        """Runs a unit test.  The counts come from Check's own summary."""
        command = [*wrapper, self.place.build / "tests" / name]
        code, output, seconds = self.execute(command, self.place.programs(CK_TIMEOUT_MULTIPLIER="10", **env))
        found = re.search(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", output, re.M)
        checks, failures, errors = map(int, found.groups()) if found else (0, 0, 0)
        bad = failures + errors
        skipped = len(re.findall(r"^skipped: .", output, re.M))
        if not bad and (code not in ((0, 77) if skipped else (0,)) or not checks + skipped):
            bad += 1
        note = "" if not bad else "out of time" if code is None else first_error(output) or f"code {code}"
        return Row(self.part, label + name, max(0, checks - bad), bad, skipped, seconds, note, end=end_of(output))

    def tests(self, name, arguments, n_workers=N_WORKERS, leave_s=0, **env):
        """Runs engine tests.  The counts come from pytest's report."""
        report = self.place.work / f"{self.part}-{name}.xml"
        command = [self.place.python, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider",
                   "-W", "ignore::pytest.PytestConfigWarning", "--maxfail=30", f"--junitxml={report}", *arguments]
        if n_workers > 1 and has_module(self.place, "xdist"):
            command += ["-p", "xdist", "-n", n_workers]
        if has_module(self.place, "pytest_timeout"):  # lets pytest end in time and report the tests that have run
            left_s = self.deadline - leave_s - SESSION_MARGIN_S - time.monotonic()
            command += ["-p", "timeout", "--session-timeout", max(1, int(left_s))]
        code, output, seconds = self.execute(command, self.place.pytest(**env), leave_s)
        row = Row(self.part, name, seconds=seconds, end=end_of(output))
        if report.exists():
            suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
            row.failed = int(suite.get("failures")) + int(suite.get("errors"))
            row.skipped = int(suite.get("skipped"))
            row.passed = int(suite.get("tests")) - row.failed - row.skipped
            row.lines = sorted(p.get("value") for p in suite.iter("property") if p.get("name") == "measured")
            broken = [case.get("name") for case in suite.iter("testcase")
                      if case.find("failure") is not None or case.find("error") is not None]
            row.note = ", ".join(broken[:3])
        else:  # pytest wrote no report before its end: count the tests in its progress output
            marks = "".join(re.findall(r"^([.FEsxX]+)(?= +\[ *\d+%\]|!!!)", output, re.M))
            row.passed, row.skipped = marks.count("."), marks.count("s")
            row.failed = marks.count("F") + marks.count("E")
        if code is None or (not row.failed and (code != 0 or not row.passed)):
            row.failed = max(row.failed, 1)
            interrupted = re.search(r"^!{3,} (.*) !{3,}$", output, re.M)
            row.note = ("out of time" if code is None else interrupted.group(1) if interrupted else
                        f"pytest ended with code {code}")
        return row

    def program(self, name, command):
        """Runs a program that measures.  Its output is the result."""
        code, output, seconds = self.execute(command, self.place.programs())
        note = "" if code == 0 else "out of time" if code is None else f"code {code}"
        return Row(self.part, name, int(code == 0), int(code != 0), 0, seconds, note, output.splitlines())


def end_of(output):
    return "\n".join(output.splitlines()[-30:])[-3000:]


def first_error(output):
    """Returns the line in which Check (the unit test library) names the first test that failed."""
    found = re.search(r"^\S+:\d+:[FE]:.*$", output, re.M)
    return found.group(0)[:120] if found else ""


def has_module(place, name):
    return subprocess.run([place.python, "-c", f"import {name}"], env=place.pytest(), capture_output=True).returncode == 0


# ---- Parts -----------------------------------------------------------------------------------------------------------


def unit(run):
    """unit tests of the device and of the code that runs on it"""
    suites = gpu_pack.suites(run.place.root)
    if not suites:
        return [Row(run.part, "unit tests", failed=1, note="no unit test uses CBF_TEST_DEVICE")]
    jobs = [job for name in suites for job in cases(run.place.root, name)]
    return run.together(lambda job: run.suite(job[0], label=f"{job[1].get('CK_RUN_CASE', '')} ".lstrip(),
                                              CK_FORK=fork_mode(job[0]), **job[1]), jobs)


def cases(root, suite):
    """Returns the jobs for a unit test.  In a test of kernels, each case is a job, and the jobs may run side by side.
    A test of the device is a single job.  Some cases of a test of the device are not for GPUs."""
    if fork_mode(suite) == "yes":
        return [(suite, {})]
    text = next((root / "tests/unit").rglob(f"{suite}.c")).read_text()
    found = dict.fromkeys(re.findall(r'\.group = "([^"]+)"', text))
    return [(suite, {"CK_RUN_CASE": case}) for case in found or ["all"]]


def fork_mode(suite):
    """Returns the value of CK_FORK.  Each forked test creates a CUDA context, which takes a fraction of a second.
    Only the device's tests must fork, because some of these tests end their process."""
    return "yes" if suite.startswith(("check_device", "check_cuda_device")) else "no"


def engine(run):
    """engine tests of fgpu: replays side by side, then live tests"""
    yield run.tests("replays", [*REPLAYS, "-k", REPLAYS_CHOSEN], leave_s=60)
    yield run.tests("live", [*LIVE, "-k", LIVE_CHOSEN], n_workers=1)


def same(run):
    """compares fgpu's outputs on the CPU and on the GPU from the same captures"""
    yield run.tests("cpu and cuda", ["tests/gpu"], n_workers=min(6, N_WORKERS))


def sanitize(run):
    """runs the kernels' unit tests and a few replays under compute-sanitizer"""
    sanitizer = gpu_machine.tool("compute-sanitizer")
    if not os.path.exists(sanitizer):
        return [Row(run.part, "compute-sanitizer", failed=1, note="not installed on this machine")]
    common = ["--error-exitcode", "9", "--print-limit", "20"]

    def one(job):
        tool, suite, case = job
        name = case.get("CK_RUN_CASE", "replays")
        report = run.place.work / f"{tool}-{suite or 'fgpu'}-{name}-%p.txt"
        barriers = ["--num-cuda-barriers", "64"] if tool == "racecheck" else []  # for each block
        wrapper = [sanitizer, "--tool", tool, *barriers, "--log-file", report, *common]
        if suite:
            row = run.suite(suite, wrapper, f"{tool} {name} ", CK_FORK="no", **case)
        else:
            row = run.tests(f"{tool} fgpu", SANITIZED_REPLAYS, 1, CBF_TIMEOUT="100",
                            CBF_FGPU_WRAPPER=" ".join(map(str, wrapper)))
        return clean(run, row, sorted(report.parent.glob(report.name.replace("%p", "*"))))

    jobs = [job for name in gpu_pack.suites(run.place.root) if fork_mode(name) == "no"
            # the cpu device does not use CUDA, so the sanitizer writes no report
            for job in cases(run.place.root, name) if job[1]["CK_RUN_CASE"] != "cpu"]
    return run.together(one, [(tool, *job) for tool in TOOLS for job in [*jobs, (None, {})]])


def clean(run, row, reports):
    """Adds a sanitizer's reports to a row.  The row fails if there is no report, or if a report names an error."""
    texts = [path.read_text(errors="replace") for path in reports]
    run.log.write("".join(f"==== {path.name}\n{text}\n" for path, text in zip(reports, texts)))
    summaries = [line for text in texts for line in re.findall(r"========= ((?:ERROR|RACECHECK) SUMMARY: .*)", text)]
    found = [line for line in summaries if not re.search(r"SUMMARY: 0 (errors|hazards)", line)]
    if found or len(summaries) < max(1, len(texts)):
        row.failed = max(row.failed, 1)
        row.note = found[0] if found else f"{len(texts)} reports, {len(summaries)} with a summary"
    return row


def startup(run):
    """measures the start of fgpu (32768 channels) from exec to READY, with and without compiled kernels"""
    lines, failed = gpu_startup.measure(run.place, run.log, run.deadline)
    yield Row(run.part, "fgpu, 32768 channels", passed=len(lines), failed=len(failed), note="; ".join(failed)[:120],
              lines=lines)


def bench(run):
    """bench_fgpu ($BENCH_FLAGS); ncu also counts the traffic of the GPU's memory"""
    program = run.place.build / "bench" / "bench_fgpu"
    flags = shlex.split(os.environ.get("BENCH_FLAGS", ""))
    yield run.program("bench_fgpu", [program, "--device", gpu_machine.DEVICE, *flags])
    if os.path.exists(gpu_machine.tool("ncu")):
        counter = [run.place.python, "scripts/bench/fgpu_dram.py", "--ncu", gpu_machine.tool("ncu"), "--bench", program]
        yield run.program("fgpu_dram.py", [*counter, "--", "--device", gpu_machine.DEVICE])


def xbench(run):
    """bench_xbgpu ($XBENCH_FLAGS): the X-engine's kernels"""
    program = run.place.build / "bench" / "bench_xbgpu"
    flags = shlex.split(os.environ.get("XBENCH_FLAGS", ""))
    yield run.program("bench_xbgpu", [program, "--device", gpu_machine.DEVICE, *flags])


def ddc(run):
    """bench_ddc ($DDC_FLAGS): the down-converter"""
    flags = shlex.split(os.environ.get("DDC_FLAGS", ""))
    yield run.program("bench_ddc", [run.place.build / "bench" / "bench_ddc", "--device", gpu_machine.DEVICE, *flags])


def beam(run):
    """bench_beam ($BEAM_FLAGS): the beamformer"""
    flags = shlex.split(os.environ.get("BEAM_FLAGS", ""))
    yield run.program("bench_beam", [run.place.build / "bench" / "bench_beam", "--device", gpu_machine.DEVICE, *flags])


def gnss(run):
    """bench_gnss ($GNSS_FLAGS) and bench_search: satellites' correlation and search; not a part of 'all'"""
    flags = shlex.split(os.environ.get("GNSS_FLAGS", ""))
    yield run.program("bench_gnss", [run.place.build / "bench" / "bench_gnss", "--device", gpu_machine.DEVICE, *flags])
    yield run.program("bench_search", [run.place.build / "bench" / "bench_search", "--device", gpu_machine.DEVICE])


def script(run, name, command, variable):
    """Runs a script that starts and measures programs.  Its flags come from the environment variable 'variable'."""
    flags = shlex.split(os.environ.get(variable, ""))
    return run.program(name, [run.place.python, *command, "--build", run.place.build, "--device", gpu_machine.DEVICE,
                              *flags])


def kill(run):
    """scripts/bench/kill.py: SIGKILL of both engines to the next good heap ($KILL_FLAGS); not a part of 'all'"""
    flags = shlex.split(os.environ.get("KILL_FLAGS", ""))
    yield run.program("kill", [run.place.python, "scripts/bench/kill.py", "--device", gpu_machine.DEVICE, *flags])


def realtime(run):
    """the highest clean rate of dsim, fgpu and a receiver that counts heaps ($REALTIME_FLAGS); not a part of 'all'"""
    yield script(run, "realtime", [REALTIME, "f"], "REALTIME_FLAGS")


def realtime_x(run):
    """the highest clean rate of fsim and xbgpu, with every dump checked ($REALTIME_X_FLAGS); not a part of 'all'"""
    yield script(run, "realtime-x", [REALTIME, "x"], "REALTIME_X_FLAGS")


def realtime_chain(run):
    """the highest clean rate of dsim, fgpu and xbgpu, with every dump checked ($REALTIME_CHAIN_FLAGS); not a part of 'all'"""
    yield script(run, "realtime-chain", [REALTIME, "chain"], "REALTIME_CHAIN_FLAGS")


def pacing(run):
    """departure times of the packets of a batch and of a dump ($PACING_FLAGS); not a part of 'all'"""
    yield script(run, "pacing", ["scripts/bench/pacing"], "PACING_FLAGS")


def direct(run):
    """part 'engine' with recv.direct; measures rates and CPU times with direct and pinned memory; not a part of 'all'"""
    yield run.suite("check_device", CK_FORK="yes", CBF_TEST_DIRECT="1")
    yield run.tests("replays", [*REPLAYS, "tests/system/test_direct.py", "-k", f"{REPLAYS_CHOSEN} and not fake"],
                    leave_s=240, CBF_TEST_DIRECT="1")
    yield run.tests("live", [*LIVE, "tests/system/test_direct.py", "-k", f"{LIVE_CHOSEN} or xbgpu_live"], n_workers=1,
                    leave_s=190, CBF_TEST_DIRECT="1")
    yield run.program("bench_direct", [run.place.build / "bench" / "bench_direct", "--device", gpu_machine.DEVICE])
    for name, mode, options in (("realtime", "f", ["--channels", "8192"]), ("realtime-x", "x", [])):
        for more in ([], ["--direct"]):
            yield run.program(" ".join([name, *more]),
                              [run.place.python, REALTIME, mode, "--build", run.place.build, "--device",
                               gpu_machine.DEVICE, *options, "--rate", DIRECT_RATES[mode], "--seconds", "20", *more])


def tune(run):
    """--tune of both daemons, compared to the defaults, for five sizes of each kernel ($TUNE); not a part of 'all'"""
    work = run.place.out / "tune"
    (work / "cache").mkdir(parents=True, exist_ok=True)
    chosen = os.environ.get("TUNE", "wide narrow x").split()
    for name, text in tune_files(work / "cache").items():
        if name.partition("-")[0] in chosen:
            (work / f"{name}.yaml").write_text(text)
            program = "xbgpu" if name.startswith("x-") else "fgpu"
            yield run.program(f"{program} --tune {name}", [run.place.build / program, "--tune", work / f"{name}.yaml"])


def tune_files(cache):
    """Returns {name: configuration}: an fgpu with outputs of five sizes (wide and narrow), and xbgpus for five
    numbers of antennas.  Heaps and chunks have the sizes in bench_fgpu, bench_ddc and bench_xbgpu."""
    common = (f"device: {{kind: cuda, kernel_cache: {cache}}}\n"
              "time: {sync_time: 1700000000, adc_sample_rate: 1712000000}\n")
    fgpu = common + ("recv: {chunk_samples: 33554432, packet_samples: 4096}\n"
                     "antennas: [{name: m000, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}]\noutputs:\n")
    wide = "".join(f"  - {{name: wide{n}, channels: {n}, spectra_per_heap: 256, batches_per_buffer: {max(1, 262144 // n)}, "
                   f"destinations: 239.2.0.{i}}}\n" for i, n in enumerate([1024, 4096, 8192, 32768, 65536]))
    narrow = "".join(f"  - {{name: narrow{d}, kind: narrowband, channels: {n}, decimation: {d}, centre_frequency: 428e6, "
                     f"spectra_per_heap: 256, batches_per_buffer: {max(1, 262144 // n // d)}, destinations: 239.2.0.{i}}}\n"
                     for i, (n, d) in enumerate([(32768, 4), (16384, 8), (8192, 16), (4096, 32), (1024, 64)]))
    files = {"wide": fgpu + wide, "narrow": fgpu + narrow}
    for n_ants in (16, 64, 80, 128, 256):
        n_chan, n_spectra = (512, 32) if n_ants == 80 else (64, 1024)
        files[f"x-{n_ants}"] = common + (
            f"recv: {{sources: 239.10.1.0, antennas: {n_ants}, channels: {64 * n_chan}, channels_per_substream: {n_chan}, "
            f"spectra_per_heap: {n_spectra}, samples_between_spectra: {128 * n_chan}, batches_per_chunk: 32}}\n"
            "outputs: [{name: vis, integration_batches: 1024, destination: 239.20.1.0}]\n")
    return files


def qualify(run):
    """make qualify-f ($QUALIFY_FLAGS): acceptance tests of the F-engine; not a part of 'all'"""
    flags = shlex.split(os.environ.get("QUALIFY_FLAGS", ""))
    yield run.program("qualify_f", [run.place.python, "tests/qualify/qualify_f.py", *flags])


PARTS = {  # {name: (function, limit in seconds)}
    "unit": (unit, 400), "engine": (engine, 260), "same": (same, 120), "sanitize": (sanitize, 560),
    "startup": (startup, 120), "bench": (bench, 300), "xbench": (xbench, 400), "ddc": (ddc, 120), "beam": (beam, 200),
    "realtime": (realtime, 560), "realtime-x": (realtime_x, 560), "realtime-chain": (realtime_chain, 560),
    "pacing": (pacing, 120), "tune": (tune, 560), "qualify": (qualify, 560), "direct": (direct, 560),
    "gnss": (gnss, 120), "kill": (kill, 560),
}
ALL = [name for name in PARTS
       if name not in ("realtime", "realtime-x", "realtime-chain", "pacing", "tune", "qualify", "direct", "gnss",
                       "kill")]


def describe():
    return "parts:\n" + "\n".join(f"  {name:15}{function.__doc__} ({limit} s at most)"
                                  for name, (function, limit) in PARTS.items())


# ---- A run -----------------------------------------------------------------------------------------------------------


def execute(command, root):
    """Runs any program of the tree with the environment variables of the parts.  Returns the program's exit code."""
    with gpu_machine.place_of(root) as place:
        return subprocess.run(command, env=place.programs(), cwd=root).returncode


def run(parts, limit_s, root):
    """Runs the parts in order; returns 0, or 1 if anything failed."""
    absent = gpu_machine.why_no_gpu() if gpu_machine.DEVICE == "cuda" else ""
    if absent:
        print(f"gpu: {absent}: nothing was run")
        return 0
    if not (root / "build" / "fgpu").exists():
        raise SystemExit(f"gpu: there is no {root / 'build' / 'fgpu'}: run make gpu-pack, or make gpu-programs")
    with gpu_machine.place_of(root) as place:
        summary = run_parts(parts, limit_s, place)
        keep_what_failed(place)
    print(table(summary))
    return 1 if any(row["failed"] for row in summary["rows"]) or not summary["rows"] else 0


def run_parts(parts, limit_s, place):
    deadline = time.monotonic() + limit_s
    summary = {"commit": gpu_machine.commit(place.root), "device": gpu_machine.DEVICE, "seed": place.seed,
               "machine": gpu_machine.describe(), "date": time.strftime("%Y-%m-%d"), "rows": []}
    print(f"device {gpu_machine.DEVICE}, {summary['machine']}, commit {summary['commit']}, TEST_SEED={place.seed}",
          flush=True)
    for name in parts:
        function, part_limit_s = PARTS[name]
        under_way = Run(name, place, min(part_limit_s, deadline - time.monotonic()))
        for row in rows_of(name, function, under_way):
            end = row.end if row.failed else ""
            row.end = ""
            summary["rows"].append(asdict(row))
            print(line(asdict(row)), end, sep="\n" if end else "", flush=True)
        under_way.log.close()
        (place.out / "summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def rows_of(name, function, under_way):
    """Returns the rows of a part.  An exception in the part itself counts as a failure, and later parts still run."""
    try:
        yield from function(under_way)
    except Exception as error:  # any exception
        yield Row(name, "the part itself", failed=1, note=repr(error)[:120], end=traceback.format_exc())


def keep_what_failed(place):
    """Packs the input and output files of daemons in failed tests.  pytest keeps these files.  Captures are packed
    only as long as there is room."""
    kept = [path for directory in place.work.glob("cbf-*") for path in directory.rglob("*") if path.is_file()]
    if not kept:
        return
    room = KEPT_ON_FAILURE_BYTES
    with tarfile.open(place.out / "failures.tar.gz", "w:gz") as archive:
        for path in sorted(kept, key=lambda p: p.stat().st_size):
            room -= path.stat().st_size
            if room < 0:
                break
            archive.add(path, path.relative_to(place.work))


def line(row):
    text = (f"{row['part']:9} {row['name']:34} {row['passed']:4} passed {row['failed']:3} failed {row['skipped']:3} skipped"
            f" {row['seconds']:6.1f} s  {row['note']}")
    return "\n".join([text.rstrip(), *(f"          {measured}" for measured in row["lines"])])


def table(summary):
    rows = summary["rows"]
    passed, failed, skipped = (sum(row[key] for row in rows) for key in ("passed", "failed", "skipped"))
    return "\n".join(["", *(line({**row, "lines": []}) for row in rows),
                      f"gpu tests on {summary['machine']['gpu']}, commit {summary['commit']}: "
                      f"{passed} passed, {failed} failed, {skipped} skipped"])
