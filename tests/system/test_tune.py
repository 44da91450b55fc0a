"""--tune of both daemons.  On the cpu there is nothing to measure.  On a device that compiles (tests/fakes/cuda, with
made-up times) a choice is kept for each kernel.  The next start uses the choice, and survives any damage to the file."""
import re
import subprocess

import numpy as np
import pytest
import yaml

import harness
import scenario
import test_xbgpu
from test_fgpu import check
from test_narrowband import NARROW

fake_cuda = pytest.mark.skipif(harness.why_no_fake_cuda() is not None, reason=str(harness.why_no_fake_cuda()))


def tune(program, config, work, settings="idle=1"):
    path = work / "tune.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return subprocess.run([*fake(settings), harness.BUILD / program, "--tune", path], capture_output=True, text=True,
                          timeout=4 * harness.TIMEOUT_S)


def fake(settings):
    """A wrapper of a daemon, so that its CUDA device is one without a GPU; the emulator runs in the root of the tree."""
    return ["env", "-C", str(harness.ROOT), f"CBF_CUDA_DEVICE={harness.FAKE_CUDA}", f"CBF_FAKE_CUDA={settings}"]


@pytest.fixture
def cache(work, monkeypatch):
    for name in ("FGPU_WRAPPER", "XBGPU_WRAPPER"):
        monkeypatch.setattr(harness, name, fake("emulate=1"))
    (work / "cache").mkdir()
    return work / "cache"


def config_of(program, **device):
    if program == "xbgpu":
        return scenario.xbgpu_config([{"integration_batches": 2}, {"integration_batches": 3}, {"integration_batches": 3}],
                                     recv={"antennas": 20, "spectra_per_heap": 32, "batches_per_chunk": 3}, device=device)
    config = scenario.fgpu_config(outputs=({"gain": 0.22}, {"gain": 0.22}, {"sample_bits": 4, "gain": 0.022},
                                           NARROW | {"name": "narrow", "gain": 0.3}), substreams=1, device=device)
    scenario.chunk_for(config)
    return config


@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_nothing_to_tune_on_the_cpu(program, work):
    done = tune(program, config_of(program, kind="cpu", kernel_cache=str(work)), work)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1].endswith("there is nothing to tune on the cpu device")
    assert not list(work.glob("*.tuned"))


def test_who_tunes():
    helped = {name: subprocess.run([harness.BUILD / name, "--help"], capture_output=True, text=True, timeout=60).stdout
              for name in ("fgpu", "xbgpu", "dsim")}
    assert "--tune" in helped["fgpu"] and "--tune" in helped["xbgpu"] and "--tune" not in helped["dsim"]
    done = subprocess.run([harness.BUILD / "dsim", "--tune", "x.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "unrecognized option" in done.stderr


def check_log(log, output, kernel):
    """The default, each candidate's time, and the fastest kept; returns the kept shape."""
    lines = re.findall(rf"{output}: {kernel}: (default|candidate|kept) ([0-9.e+]+) us: (.*)", log)
    (n,) = re.findall(rf"{output}: measuring the kernel {kernel} with (\d+) candidate shapes, for up to 60 s: ", log)
    assert [line[0] for line in lines] == ["default", *["candidate"] * (int(n) - 1), "kept"]
    assert len({line[2] for line in lines[:-1]}) == int(n) > 1
    times = {shape: float(time) for _, time, shape in lines[:-1]}
    assert times[lines[-1][2]] == float(lines[-1][1]) <= 1.01 * min(times.values())
    return lines[-1][2]


@fake_cuda
@pytest.mark.skipif("thread" in harness.BUILD.name, reason="half a minute of measurements")
def test_fgpu_keeps_and_takes(cache, daemon, work, rng):
    config = config_of("fgpu", kind="cuda", kernel_cache=str(cache))
    done = tune("fgpu", config, work)
    assert done.returncode == 0, done.stderr
    # The first two are the same work, which is measured once.
    kept = {(o, k): check_log(done.stderr, o, f"channelise_{k}") for o in ("wide0", "wide2") for k in ("front", "back")}
    kept["narrow", "ddc"] = check_log(done.stderr, "narrow", "ddc")
    assert "wide1" not in done.stderr and "narrow: channelise_narrow: there is nothing to tune: " in done.stderr
    files = sorted(cache.glob("*.tuned"))
    assert sorted(path.read_text().splitlines()[-1].removeprefix("shape: ") for path in files) == sorted(kept.values())

    samples = scenario.noise(rng, 1, 16 * 1024, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)

    def run(name):
        found = scenario.run_pcap(daemon, "fgpu", config, work, sent, name)
        assert check(config, found, samples, 0) > 0
        log = (work / f"{name}.log").read_text()
        return log.count(" uses its tuned shape"), log, {e: [h.items.get("feng_raw") for h in heaps if h.kind == "data"]
                                                     for e, heaps in found.items()}

    n, log, tuned = run("tuned")
    assert n == 7 and "warning" not in log
    text = files[0].read_text()
    files[0].write_text(text.replace("kernels: ", "kernels: 0"))
    n, log, _ = run("stale")
    assert 5 <= n < 7 and re.search(rf"{re.escape(str(files[0]))} is ignored, because it is damaged or was measured "
                                    "with kernels other than this program's kernels; fgpu --tune makes a new file",
                                    log)
    for path in files:
        path.unlink()
    n, log, default = run("default")
    assert n == 0 and ".tuned" not in log and set(tuned) == set(default)
    for endpoint in default:  # every bit
        np.testing.assert_array_equal(tuned[endpoint], default[endpoint])


@fake_cuda
def test_xbgpu_keeps_and_takes(cache, daemon, work, rng):
    config = config_of("xbgpu", kind="cuda", kernel_cache=str(cache))
    done = tune("xbgpu", config, work)
    assert done.returncode == 0, done.stderr
    assert "bcp2" not in done.stderr  # which is as bcp1
    kept = [check_log(done.stderr, name, "correlate") for name in ("bcp0", "bcp1")]
    assert re.search("bcp0: correlate: default .* us: wgmma 1\n", done.stderr)
    files = list(cache.glob("*.tuned"))
    assert sorted(path.read_text().splitlines()[-1].removeprefix("shape: ") for path in files) == sorted(kept)
    voltages = scenario.random_voltages(rng, config, 12)
    for name in ("tuned", "damaged"):
        test_xbgpu.run(daemon, work, config, 0, voltages, name=name)
        log = (work / f"{name}.log").read_text()
        assert log.count(": the kernel correlate uses its tuned shape") == (3 if name == "tuned" else 0)
        assert log.count("kernels other than this program's kernels; xbgpu --tune makes a new file") == (0 if name == "tuned" else 3)
        for path in files:
            path.write_text(path.read_text() + "x")


@fake_cuda
def test_more_spectra_than_a_gpu_takes(work):
    """Shapes that a start refuses are not measured."""
    config = scenario.fgpu_config(outputs=({"channels": 64, "spectra_per_heap": 256, "batches_per_buffer": 1024},),
                                  device={"kind": "cuda", "kernel_cache": str(work)})
    done = tune("fgpu", config, work)
    assert done.returncode == 78 and "measuring" not in done.stderr
    assert "outputs[0].batches_per_buffer: output wide0 has 262144 spectra in a buffer, but the GPU kernels support " \
           "at most 262140" in done.stderr


@fake_cuda
def test_too_little_memory(work):
    config = scenario.fgpu_config(outputs=({}, {"channels": 64, "spectra_per_heap": 256, "batches_per_buffer": 64}),
                                  device={"kind": "cuda", "kernel_cache": str(work)})
    done = tune("fgpu", config, work, "idle=1,memory_mib=1")
    assert done.returncode == 1 and "wide0: channelise_front: kept" in done.stderr
    assert "outputs[1].batches_per_buffer: there is not enough memory to measure output wide1: " \
           "stop other programs on the GPU" in \
           done.stderr
    assert sorted(work.glob("*.tuned")) == sorted(work.glob("*-1-heaps-of-16-*.tuned")) != []


@fake_cuda
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_nowhere_to_keep_it(program, work):
    done = tune(program, config_of(program, kind="cuda", kernel_cache=str(work / "is-not-there")), work)
    assert done.returncode == 78 and "measuring" not in done.stderr
    assert f"device.kernel_cache: {work / 'is-not-there'} cannot be written: No such file or directory" in done.stderr
