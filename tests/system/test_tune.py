"""--tune of both daemons.  On the cpu there is nothing to measure.  On a device that compiles (tests/fakes/cuda, with
made-up times) a choice is kept for each kernel.  The next start uses the choice, and survives any damage to the file."""
import re
import subprocess

import pytest

import harness
import scenario
import test_xbgpu
from test_fgpu import check
from test_narrowband import NARROW

# The outputs wide0 and wide1 are the same work, and bcp1 and bcp2.
F = [{"gain": 0.22}, {"gain": 0.22}, {"sample_bits": 4, "gain": 0.022}, NARROW | {"name": "narrow", "gain": 0.3}]
X = [{"integration_batches": 2}, {"integration_batches": 3}, {"integration_batches": 3}]
LARGE = {"channels": 64, "spectra_per_heap": 256}
KEPT = {"fgpu": [f"wide{i}: channelise_{part}" for i in (0, 2) for part in ("front", "back")] + ["narrow: ddc"],
        "xbgpu": ["bcp0: correlate", "bcp1: correlate"]}
ON_CPU = r"\A(.* info: .*\n){2}.* info: there is nothing to tune on the cpu device\n\Z"
NO_PLACE = r"device.kernel_cache: \S*/none cannot be written: No such file or directory"
slow = pytest.mark.skipif("thread" in harness.BUILD.name, reason="half a minute of measurements")


def test_who_tunes(daemon):
    for name in ("fgpu", "xbgpu", "dsim"):
        assert ("--tune" in subprocess.check_output([harness.BUILD / name, "--help"], text=True)) == (name != "dsim")
    assert "unrecognized option" in daemon("dsim", {}, options=["--tune"]).wait_end(78).log.read_text()


@pytest.mark.parametrize("program, outputs, kind, place, code, message, kept", [
    *[(*program, "cpu", "", 0, ON_CPU, []) for program in (("fgpu", F), ("xbgpu", X))],
    *[(*program, "cuda", "/none", 78, NO_PLACE, []) for program in (("fgpu", F), ("xbgpu", X))],
    ("fgpu", [LARGE | {"batches_per_buffer": 1024}], "cuda", "", 78, r"outputs\[0\].batches_per_buffer: output wide0 has "
     "262144 spectra in a buffer, but the GPU kernels support at most 262140", []),
    ("fgpu", [{}, LARGE | {"batches_per_buffer": 64}], "cuda", "", 1, r"outputs\[1\].batches_per_buffer: there is not "
     "enough memory to measure output wide1: stop other programs on the GPU", KEPT["fgpu"][:2]),
    pytest.param("fgpu", F, "cuda", "", 0, "narrow: channelise_narrow: there is nothing to tune: ", KEPT["fgpu"], marks=slow),
    ("xbgpu", X, "cuda", "", 0, "bcp0: correlate: default .* us: wgmma 1\n", KEPT["xbgpu"])],
    ids=lambda value: value if value in ("fgpu", "xbgpu", "cpu", "cuda") else "")
def test_tune(program, outputs, kind, place, code, message, kept, daemon, work, rng, request):
    device = {"kind": kind, "kernel_cache": f"{work}{place}"}
    if program == "fgpu":
        config = scenario.fgpu_config(outputs, substreams=1, device=device)
        scenario.chunk_for(config)
    else:
        config = scenario.xbgpu_config(outputs, recv={"antennas": 20, "spectra_per_heap": 32, "batches_per_chunk": 3}, device=device)
    if kind == "cuda":
        request.getfixturevalue("fake_cuda")
    idle = {"CBF_FAKE_CUDA": "idle=1,memory_mib=1" if code == 1 else "idle=1"}
    log = daemon(program, config, "tune", variables=idle, options=["--tune"]).wait_end(code, 4 * harness.TIMEOUT_S).log.read_text()
    assert re.search(message, log)
    measured = re.findall(r"(\w+: \w+): (default|candidate|kept) ([0-9.e+]+) us: (.*)", log)
    starts = re.findall(r"(\w+): measuring the kernel (\w+) with (\d+) candidate shapes, for up to 60 s: ", log)
    assert [": ".join(start[:2]) for start in starts] == kept + (["wide1: channelise_front"] if code == 1 else [])
    for job, (_, _, n) in zip(kept, starts):
        kinds, times, shapes = zip(*((kind, float(time), shape) for name, kind, time, shape in measured if name == job))
        assert kinds == ("default", *["candidate"] * (int(n) - 1), "kept") and len(set(shapes)) == int(n) > 1
        assert times[-1] == times[shapes.index(shapes[-1])] <= 1.01 * min(times)
    files = sorted(work.glob("*.tuned"))
    assert sorted(path.read_text().splitlines()[-1].removeprefix("shape: ") for path in files) == \
        sorted(shape for _, kind, _, shape in measured if kind == "kept")
    if kept == KEPT[program]:
        check_starts(program, {"fgpu": 7, "xbgpu": 3}[program], config, files, daemon, work, rng)


def check_starts(program, n_jobs, config, files, daemon, work, rng):
    """A start uses the files, except a damaged one.  The output is the same without files, bit for bit."""
    samples, raw = scenario.noise(rng, 1, 16 * 1024, 10), []
    for name, changed in ("tuned", []), ("damaged", files[:1]), ("default", files):
        for path in changed:
            path.unlink() if name == "default" else path.write_text(path.read_text() + "x")
        if program == "fgpu":
            found = scenario.run_pcap(daemon, program, config, work, scenario.digitiser_heaps(config, samples, 0), name)
            assert check(config, found, samples, 0) > 0
            raw.append({e: [bytes(h.items.get("feng_raw", b"")) for h in heaps if h.kind == "data"] for e, heaps in found.items()})
        else:
            test_xbgpu.run(daemon, work, config, 0, scenario.random_voltages(rng, config, 12), name=name)
        log = (work / f"{name}.log").read_text()
        n_ignored = log.count(f"{files[0]} is ignored, because it is damaged or was measured with kernels other than this "
                              f"program's kernels; {program} --tune makes a new file")
        assert (n_ignored > 0) == (name == "damaged") and log.count(".tuned") == n_ignored < n_jobs
        assert log.count(" uses its tuned shape") == (0 if name == "default" else n_jobs - n_ignored)
    assert raw[:1] == raw[-1:]
