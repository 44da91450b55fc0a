"""fgpu --tune: on the cpu there is nothing to measure; on a device that compiles (the CUDA kernels on the emulator) a choice
is kept, which the next start takes, whatever has become of the file in between."""
import re
import shutil
import subprocess

import pytest
import yaml

import harness
import scenario
from test_fgpu import check


def tune(config, work, *wrapper):
    path = work / "tune.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return subprocess.run([*wrapper, harness.BUILD / "fgpu", "--tune", path], capture_output=True, text=True,
                          timeout=4 * harness.TIMEOUT_S)


def test_nothing_to_tune_on_the_cpu(work):
    done = tune(scenario.fgpu_config(device={"kind": "cpu", "kernel_cache": str(work)}), work)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1].endswith("there is nothing to tune on the cpu device")
    assert not list(work.glob("*.tuned"))


def test_only_fgpu_tunes(work):
    done = subprocess.run([harness.BUILD / "xbgpu", "--tune", "x.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "unrecognized option" in done.stderr
    helped = {name: subprocess.run([harness.BUILD / name, "--help"], capture_output=True, text=True, timeout=60).stdout
              for name in ("fgpu", "xbgpu")}
    assert "--tune" in helped["fgpu"] and "--tune" not in helped["xbgpu"]


@pytest.fixture
def emulated(monkeypatch):
    """A wrapper of fgpu, so that its CUDA device is one without a GPU; the emulator runs in the root of the tree."""
    plugin = harness.BUILD / "tests" / "cbf-cuda-fake.so"
    if not plugin.exists() or not shutil.which("g++"):
        pytest.skip("built without the CUDA toolkit, or there is no g++")
    wrapper = ["env", "-C", str(harness.ROOT), f"CBF_CUDA_DEVICE={plugin}", "CBF_FAKE_CUDA=emulate=1"]
    monkeypatch.setattr(harness, "FGPU_WRAPPER", wrapper)
    return wrapper


@pytest.mark.skipif("thread" in harness.BUILD.name, reason="half a minute of measurements")
def test_choice_is_kept_and_taken(emulated, daemon, work, rng):
    cache = work / "cache"
    cache.mkdir()
    config = scenario.fgpu_config(outputs=({}, {}, {"sample_bits": 4}), substreams=1,
                                  device={"kind": "cuda", "kernel_cache": str(cache)})
    for output, rms in zip(config["outputs"], (20, 20, 2)):
        output["gain"] = rms * 2**0.5 / 128
    scenario.chunk_for(config)
    done = tune(config, work, *emulated)
    assert done.returncode == 0, done.stderr
    # The first two are the same work, which is measured once.
    assert [name for name in ("wide0", "wide1", "wide2") if f"{name}: measuring" in done.stderr] == ["wide0", "wide2"]
    assert done.stderr.count("Gsamples/s") == 2
    files = sorted(cache.glob("*.tuned"))
    assert len(files) == 2

    samples = scenario.noise(rng, 1, 16 * 1024, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)

    def log_of(name):
        assert check(config, scenario.run_pcap(daemon, "fgpu", config, work, sent, name), samples, 0) > 0
        return (work / f"{name}.log").read_text()

    log = log_of("tuned")
    assert log.count(": tuned shape") == 3 and "warning" not in log
    files[0].write_text(files[0].read_text().replace("unzip: ", "unzip: x"))
    log = log_of("edited")
    assert 1 <= log.count(": tuned shape") < 3
    assert re.search(rf"{re.escape(str(files[0]))} is ignored, as it has a line \d+ that is none of its own; "
                     "fgpu --tune makes a new one", log)
    for path in files:
        path.unlink()
    assert ": tuned shape" not in log_of("default")


def test_more_spectra_than_a_gpu_takes(emulated, work):
    """What a start refuses is not measured."""
    config = scenario.fgpu_config(outputs=({"channels": 64, "spectra_per_heap": 256, "batches_per_buffer": 1024},),
                                  device={"kind": "cuda", "kernel_cache": str(work)})
    done = tune(config, work, *emulated)
    assert done.returncode == 78 and "measuring" not in done.stderr
    assert "outputs[0].batches_per_buffer: output wide0 has 262144 spectra in a buffer, of which a GPU can take " \
           "262140 at most" in done.stderr


def test_too_little_memory(emulated, work):
    config = scenario.fgpu_config(outputs=({}, {"channels": 64, "spectra_per_heap": 256, "batches_per_buffer": 64}),
                                  device={"kind": "cuda", "kernel_cache": str(work)})
    done = tune(config, work, *emulated[:-1], f"{emulated[-1]},memory_mib=1")
    assert done.returncode == 1 and "wide0: " in done.stderr
    assert "outputs[1].batches_per_buffer: there is not enough memory to measure output wide1: stop what uses the GPU" in \
           done.stderr
    assert [path.name for path in work.glob("*.tuned")] == [path.name for path in work.glob("*-64ch-*1x16-*.tuned")]


def test_nowhere_to_keep_it(emulated, work):
    config = scenario.fgpu_config(outputs=({},), device={"kind": "cuda", "kernel_cache": str(work / "is-not-there")})
    done = tune(config, work, *emulated)
    assert done.returncode == 78 and "measuring" not in done.stderr
    assert f"device.kernel_cache: {work / 'is-not-there'} cannot be written: No such file or directory" in done.stderr
