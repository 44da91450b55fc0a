"""A device that fails while fgpu runs: one sentence, exit code 1, an end that does not hang, and no wrong output.

The cuda device runs on a CUDA runtime that needs no GPU (tests/fakes/cuda/fake_cuda.h) and fails on demand.
"""
import re

import numpy as np
import pytest

import harness
import scenario
import xmodel
from scenario import chunk_for, digitiser_heaps, fgpu_config, noise

SENTENCE = re.compile(r"cuda: .* on stream \w+ failed: .*; newest operation of each stream: ")


def data_heaps(path):
    """{(endpoint, timestamp): voltages} of a capture that was finished, or had not been begun."""
    if not path.exists():
        return {}
    found = [heap for heaps in harness.decode_pcap(path).values() for heap in heaps if heap.kind == "data"]
    return {(heap.endpoint, heap.items["timestamp"]): heap.items["feng_raw"] for heap in found}


@pytest.fixture
def run(daemon, work, rng, fake_cuda):
    """run(settings of the fake, exit code) -> (the daemon, its data heaps); the same input each time."""
    config = fgpu_config(device={"kind": "cuda"}, outputs=({"dither": "uniform", "dither_seed": 1},))
    chunk_for(config)
    samples = noise(rng, 1, 40 * config["recv"]["chunk_samples"], config["recv"]["sample_bits"])
    harness.write_heaps(work / "in.pcap", digitiser_heaps(config, samples, 0))

    def start(settings, code):
        name = f"fgpu-{settings}"
        config["recv"]["pcap_file"], config["send"]["pcap_file"] = str(work / "in.pcap"), str(work / f"{name}.pcap")
        fake_cuda(settings)
        return daemon("fgpu", config, name).wait_end(code), data_heaps(work / f"{name}.pcap")

    return start


@pytest.mark.parametrize("how", ["refuse", "die"])
def test_whatever_operation(run, rng, how):
    """'refuse': a call is refused; 'die': the GPU fails without a failing call.  The first operations belong to the
    start.  Then come uploads, kernels, downloads and callbacks."""
    _, expected = run("gpus=1", 0)
    n_sent = []
    for n in [1, 2, 3, *sorted(rng.choice(range(4, 200), 3, replace=False)), 200]:
        process, found = run(f"{how}={n}", 1)
        errors = [line for line in process.log.read_text().splitlines() if "] error: " in line]
        assert len(errors) == 1 and SENTENCE.search(errors[0]), errors
        for key, voltages in found.items():
            np.testing.assert_array_equal(voltages, expected[key], f"{how}={n}, heap {key}")
        n_sent.append(len(found))
    assert n_sent[0] == 0 and len(expected) > n_sent[-1] > 0, (len(expected), n_sent)


@pytest.mark.parametrize("how", ["refuse", "die"])
def test_whatever_operation_of_xbgpu(how, daemon, work, rng, monkeypatch, fake_cuda):
    """The same for xbgpu: no sent dump is wrong.  The kernels are those of the cpu device."""
    config = scenario.xbgpu_config(device={"kind": "cuda"}, recv={"antennas": 3, "batches_per_chunk": 1},
                                   outputs=[{"integration_batches": 2}])
    voltages = scenario.random_voltages(rng, config, 40)
    expected = xmodel.dumps(0, voltages, np.ones(voltages.shape[:2], bool), 2)
    length = 2 * scenario.batch_samples(config)
    harness.write_heaps(work / "in.pcap", scenario.feng_heaps(config, 0, voltages))
    config["recv"]["pcap_file"] = str(work / "in.pcap")
    n_sent = []
    for n in [1, 2, 3, *sorted(rng.choice(range(4, 150), 5, replace=False)), 150]:
        config["send"]["pcap_file"] = str(work / f"{how}{n}.pcap")
        monkeypatch.setenv("CBF_FAKE_CUDA", f"{how}={n}")
        process = daemon("xbgpu", config, f"{how}{n}").wait_end(1)
        errors = [line for line in process.log.read_text().splitlines() if "] error: " in line]
        assert len(errors) == 1 and SENTENCE.search(errors[0]), errors
        path = work / f"{how}{n}.pcap"
        found = [heap.items for heaps in harness.decode_pcap(path).values() for heap in heaps if heap.kind == "data"] \
            if path.exists() else []
        for items in found:
            np.testing.assert_array_equal(items["xeng_raw"], expected[items["timestamp"] // length][0], f"{how}={n}")
        n_sent.append(len(found))
    assert n_sent[0] == 0 and len(expected) > n_sent[-1] > 0, n_sent


def test_gpu_that_hangs(daemon, monkeypatch, fake_cuda):
    """The watchdog is no longer fed, and the log names the stream and its operations."""
    monkeypatch.setattr(harness, "WATCHDOG_S", 3)
    config = fgpu_config(device={"kind": "cuda"}, recv={"interface": "lo"}, send={"interface": "lo"})
    chunk_for(config)
    rng = np.random.default_rng(1)
    samples = noise(rng, 1, 40 * config["recv"]["chunk_samples"], config["recv"]["sample_bits"])
    fake_cuda("hang=40")
    process = daemon("fgpu", config).wait_ready()
    harness.send_live(digitiser_heaps(config, samples, 0), rate=2e6)
    said = b""
    while b"STATUS=FAILED" not in said:
        process.notify.settimeout(3 * harness.WATCHDOG_S + 3)
        said = process.notify.recv(4096)
    assert re.match(rb"STATUS=FAILED: thread cuda-watch \(\d+\) hangs", said), said
    assert re.search(r"cuda: stream \w+ hangs: no operation has completed for 3 s; newest operation: \w+",
                     process.log.read_text())
    process.notify.settimeout(2)
    with pytest.raises(TimeoutError):
        process.notify.recv(4096)


@pytest.mark.parametrize("every, code", [(4, 0), (1, 1)])
def test_bits_that_flip_in_downloads(every, code, daemon, work, rng, monkeypatch, fake_cuda):
    """A bit flips in every 4th download, or in each: of visibilities, of the count of clipped ones, of checksums, of
    each dump.  A sent dump is right to the last bit or all flagged, with weights of 0.  Ten wrong dumps end xbgpu."""
    config = scenario.xbgpu_config(device={"kind": "cuda"}, recv={"antennas": 3, "channels_per_substream": 4},
                                   outputs=[{"integration_batches": 2, "missing": "weights"}])
    voltages = scenario.random_voltages(rng, config, 25)
    present = np.ones(voltages.shape[:2], bool)
    expected = xmodel.dumps(0, voltages, present, 2, "weights")
    harness.write_heaps(work / "in.pcap", scenario.feng_heaps(config, 0, voltages))
    config["recv"]["pcap_file"], config["send"]["pcap_file"] = str(work / "in.pcap"), str(work / "out.pcap")
    monkeypatch.setenv("CBF_FAKE_CUDA", f"flip={every}")  # the kernels are those of the cpu device
    process = daemon("xbgpu", config).wait_end(code)
    (heaps,) = harness.decode_pcap(work / "out.pcap").values()
    found = [heap.items for heap in heaps if heap.kind == "data"]
    wrong = {d // 3 for d in range(every - 1, 3 * len(found), every)}
    assert len(found) == len(expected) == 12 and len(wrong) == (9 if every == 4 else 12)
    for i, (items, (visibilities, weights, _)) in enumerate(zip(found, expected.values())):
        if i in wrong:
            assert xmodel.is_missing(items["xeng_raw"]).all() and not items["xeng_weights"].any(), i
        else:
            np.testing.assert_array_equal(items["xeng_raw"], visibilities, f"dump {i}")
            np.testing.assert_array_equal(items["xeng_weights"], weights, f"dump {i}")
    log = process.log.read_text()
    assert f"; {len(wrong)} dumps wrong" in log and re.search("error: bcp0: dump [0-9]+ is wrong: ", log)
    assert ("10 dumps were wrong since the start: the process ends" in log) == (code == 1)
    process.notify.settimeout(5)
    while b"STATUS=FAILED: sums of the device are wrong" not in process.notify.recv(4096):
        continue
