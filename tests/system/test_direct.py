"""recv.direct: the same bits and the same counters.  No thread reads data in device memory from the host.

On the cpu device that memory is ordinary memory with two addresses.  In replays direct-guard.so
(tests/fakes/direct_guard) watches the host's address.  With CBF_TEST_DIRECT=1 every fgpu and xbgpu of all engine tests
is direct.
"""
import re
import subprocess

import numpy as np
import pytest
import yaml

import fmodel
import harness
import scenario
import test_fgpu
import test_fgpu_stream
import test_gates
import test_xbgpu_stream
import xmodel
from harness import endpoints, merge

GUARD = harness.BUILD / "tests" / "direct-guard.so"
# A sanitizer's runtime must be the first library of a process.
GUARDED = harness.DEVICE == "cpu" and GUARD.exists() and not harness.SANITIZED
DIRECT = {"recv": {"direct": True}}
FAKE_VULKAN = harness.BUILD / "tests" / "fake_vulkan"


def said_of_inputs(process):
    """Received and refused packets, from the daemon's last report."""
    return re.findall(r"\S+ \S+: \d+ heaps received.*", process.log.read_text())


def data_of(path):
    """{(destination, timestamp, antenna): items as bytes}; descriptors come again as time goes by, and count as heaps."""
    out = {}
    for endpoint, heaps in harness.decode_pcap(path).items():
        for heap in heaps:
            if heap.kind == "data":
                key = endpoint, heap.items["timestamp"], heap.items.get("feng_id")
                assert key not in out
                out[key] = {name: np.asarray(value).tobytes() for name, value in heap.items.items()}
    return out


def replay_both(daemon, program, config, work, sent, monkeypatch, **write):
    """Runs it without and with direct memory, over the same packets: the same must come out.  Returns the heaps."""
    source = work / "in.pcap"
    harness.write_heaps(source, sent, **write)
    captures, said = {}, {}
    for direct in (False, True):
        sink = work / f"out{int(direct)}.pcap"
        files = {"recv": {"pcap_file": str(source), "direct": direct}, "send": {"pcap_file": str(sink)}}
        if direct and GUARDED:
            monkeypatch.setenv("LD_PRELOAD", str(GUARD))
        process = daemon(program, merge(config, files), f"{program}{int(direct)}").wait_end()
        monkeypatch.delenv("LD_PRELOAD", raising=False)
        captures[direct] = data_of(sink)
        said[direct] = said_of_inputs(process)
    assert captures[True].keys() == captures[False].keys()
    different = [key for key, items in captures[True].items() if items != captures[False][key]]
    assert not different, f"{len(different)} of {len(captures[True])} heaps differ, the first: {different[0]}"
    assert said[True] == said[False] and said[True]
    return harness.decode_pcap(work / "out1.pcap")


@pytest.mark.parametrize("index", range(6))
def test_fgpu_replay(index, daemon, work, rng, monkeypatch):
    """Antennas, widths and packets of all sizes; some lost, others out of place, of some of which headers are longer."""
    config, samples, start = test_fgpu.random_case(rng, index)
    for output in config["outputs"]:
        output |= {"dither": "uniform", "dither_seed": int(rng.integers(2**31))}
    present = rng.random((*samples.shape[:2], samples.shape[2] // config["recv"]["packet_samples"])) > 0.01
    sent = scenario.digitiser_heaps(config, samples, start, present)
    for i in range(0, len(sent) - 1, 7):
        sent[i], sent[i + 1] = sent[i + 1], sent[i]
    for i in range(3, len(sent), 5):
        sent[i].heap.add_item(harness.immediate(0x4999, i))
    found = replay_both(daemon, "fgpu", config, work, sent, monkeypatch)
    scenario.fgpu_streams(config, found)


@pytest.mark.parametrize("case", range(6))
def test_xbgpu_replay(case, daemon, work, rng, monkeypatch):
    """Several members and packets to a heap.  Shifts make the program keep history of chunks that the host may no
    longer read."""
    shifts = rng.integers(-16, 17, 6) if case % 2 else np.zeros(6, int)
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 1, "missing": "weights"}, {"integration_batches": 3},
                 {"integration_batches": 5, "missing_dump": "skip"}],
        recv={"antennas": 3, "batches_per_chunk": int(rng.integers(1, 6)), "chunks": 20, "window": 6,
              "threads": int(rng.integers(1, 4)), "shifts": [int(s) for s in shifts],
              "channels_per_substream": int(rng.choice([1, 2, 4]))})
    voltages = scenario.random_voltages(rng, config, 43)
    present = rng.random((43, 3)) >= 0.03
    test_gates.bridge(present, config)
    sent = scenario.feng_heaps(config, 3, voltages, present, rng)
    found = replay_both(daemon, "xbgpu", config, work, sent, monkeypatch, max_packet=72 + 8 * int(rng.integers(8, 200)))
    first, voltages, came = test_gates.pad(config, 3, voltages, present)
    voltages, present = test_gates.shifted(config, first, voltages, came)
    for o, output in enumerate(config["outputs"]):
        expected = test_gates.expect(config, output, first, voltages, present, came)
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(config, o, found[endpoint], {w: dump[:3] for w, dump in expected.items()})


def counters(metrics, prefix):
    """All metrics except the number of copies and the clocks."""
    return {(name, *sorted(labels.items())): value for name, labels, value in metrics.samples
            if name.startswith(prefix) and not re.search("copied|latency|drops|_created$", name)}


def test_fgpu_live(daemon):
    """Through the network, with losses: voltages as the model's, and the same counters."""
    seen = {}
    for direct in (False, True):
        rng = np.random.default_rng(1)
        config = test_fgpu_stream.live_config(outputs=[{"gain": 0.4, "substreams": 4}], feng_ids=(2, 0),
                                              recv={"direct": direct})
        samples = scenario.noise(rng, 2, 8192 * 24, 10)
        present = np.ones((2, 2, samples.shape[2] // 512), bool)
        present[0, 1, 40] = present[1, 0, 41] = False
        sent = scenario.digitiser_heaps(config, samples, 0, present)
        model = scenario.model_of(config["outputs"][0])
        last = test_fgpu_stream.sure_batches(config, model, 0, samples.shape[2])[-1] * model.batch
        with harness.Receiver(test_fgpu_stream.destinations(config)) as receiver:
            process = daemon("fgpu", config, f"fgpu{int(direct)}").wait_ready()
            harness.send_live(sent)
            receiver.wait(lambda heaps: sum(h.items.get("timestamp") == last for h in heaps) == 8, "the last batch")
            # After a second of silence, the last chunks leave the window, too, and their samples are counted.
            metrics = process.wait_counted(lambda m: m.get("fgpu_input_samples_total") == 512 * np.count_nonzero(present),
                                           "all samples")
            streams = test_fgpu_stream.finish(config, process, receiver)
        seen[direct] = streams, counters(metrics, "fgpu_input_")
        for (_, ant), got in streams.items():
            batches = fmodel.batches_present(0, present[ant], 512, model)
            models = fmodel.voltages(0, samples[ant], model)
            assert list(got) == [b * model.batch for b in batches][:len(got)]
            scenario.compare_voltages(np.stack(list(got.values())), np.stack([models[b] for b in batches[:len(got)]]),
                                      model.limit, f"direct {direct}, antenna {ant}")
        if direct:
            assert metrics.get("fgpu_input_copied_packets_total") >= np.count_nonzero(present)
    assert seen[True][1] == seen[False][1]
    for stream, got in seen[True][0].items():
        n = min(len(got), len(seen[False][0][stream]))
        assert n > 10 and all(np.array_equal(got[t], seen[False][0][stream][t]) for t in list(got)[:n])


def test_xbgpu_live(daemon, rng):
    config = test_xbgpu_stream.live_config(outputs=[{"integration_batches": 3}], recv={"antennas": 4, "threads": 2,
                                                                                         "window": 8, "direct": True})
    voltages = scenario.random_voltages(rng, config, 96)
    present = rng.random((96, 4)) > 0.01
    present[[0, -1]] = True
    with harness.Receiver(test_xbgpu_stream.destinations(config)) as receiver:
        process = daemon("xbgpu", config).wait_ready()
        assert "the host does not audit" in process.log.read_text()
        sent = test_xbgpu_stream.portions(config, 48, voltages, present)
        test_xbgpu_stream.send_in_step(config, process, sent)
        test_xbgpu_stream.wait_window(receiver, config, 0, (48 + 72) // 3 - 1)
        found = test_xbgpu_stream.finish(config, process, receiver)
    test_xbgpu_stream.check_first(config, 0, found, xmodel.dumps(48, voltages, present, 3), 72 // 3)
    assert re.search("bcp0: .* 0 products audited", process.log.read_text())


def test_no_audit(work):
    """A request for an impossible setting gets a message.  The default falls back."""
    config = scenario.xbgpu_config(outputs=[{"audit_samples": 3}, {}], **DIRECT)
    path = work / "mistake.yaml"

    def ask(option):
        path.write_text(yaml.safe_dump(config))
        return subprocess.run([harness.BUILD / "xbgpu", option, path], capture_output=True, text=True, timeout=60)

    result = ask("--check-config")
    assert result.returncode == 78 and len(result.stderr.splitlines()) == 1
    assert "audit_samples must be 0 with recv.direct: the host does not read" in result.stderr
    config["outputs"][0]["audit_samples"] = 0
    assert ask("--check-config").returncode == 0
    printed = yaml.safe_load(ask("--print-config").stdout)
    assert [output["audit_samples"] for output in printed["outputs"]] == [0, 0]


# ---- The cuda device, on a CUDA and a Vulkan that need no GPU --------------------------------------------------------

fakes = pytest.mark.skipif(not (FAKE_VULKAN / "libvulkan.so.1").exists(), reason="built without Vulkan")


@pytest.fixture
def on_fakes(fake_cuda, monkeypatch):
    """on_fakes(settings of CUDA, settings of Vulkan): for programs that are started later."""
    def use(cuda="gpus=1", vulkan=""):
        fake_cuda(cuda)
        monkeypatch.setenv("CBF_FAKE_VULKAN", vulkan)
        monkeypatch.setattr(harness, "LIBRARY_PATH", str(FAKE_VULKAN))

    return use


def small(program):
    config = scenario.fgpu_config() if program == "fgpu" else scenario.xbgpu_config()
    return merge(config, {"device": {"kind": "cuda"}})


@fakes
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_fake_cuda(program, daemon, work, rng, monkeypatch, on_fakes):
    """The program writes to memory that is not the host's, and the output is still the same."""
    on_fakes(vulkan="heap_mib=64")
    config = small(program)
    if program == "fgpu":
        sent = scenario.digitiser_heaps(config, scenario.noise(rng, 1, 16384 * 5, 10), 0)
    else:
        sent = scenario.feng_heaps(config, 4, scenario.random_voltages(rng, config, 40), rng=rng)
    found = replay_both(daemon, program, config, work, sent, monkeypatch)
    assert sum(heap.kind == "data" for heaps in found.values() for heap in heaps) > 5


@fakes
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
@pytest.mark.parametrize("cuda, vulkan, code, says", [
    ("gpus=1", "heap_mib=0", 78, "recv.direct: this GPU has no memory that the host can write to"),
    ("gpus=1", "exports=0", 78, "recv.direct: the GPU's Vulkan driver exports no memory that the host can write to: "),
    ("gpus=1", "vkCreateInstance=-9", 78, "recv.direct: vkCreateInstance failed: VK_ERROR_INCOMPATIBLE_DRIVER (-9): "),
    ("gpus=1", "vkMapMemory=-5", 1, "recv.direct: vkMapMemory failed: VK_ERROR_MEMORY_MAP_FAILED (-5)"),
    ("import=999", "", 1, "recv.direct: cudaImportExternalMemory failed: "),
    ("gpus=1", "heap_mib=1", 78, r"recv.direct: this configuration needs \d+ MiB of GPU memory that the host can "
                                 r"write to; the total is 1 MiB, of which 1 MiB are available; "
                                 r"lower .*resizable BAR.* or set the key to false"),
])
def test_failed_start(program, cuda, vulkan, code, says, daemon, on_fakes):
    """One sentence that begins with the key, and the code that says whether a restart may help."""
    on_fakes(cuda, vulkan)
    chunks = {"chunk_samples": 16384 * 20} if program == "fgpu" else {"batches_per_chunk": 1000}
    config = merge(small(program), {"recv": {"direct": True, "interface": "lo"} | chunks})
    log = daemon(program, config).wait_end(code).log.read_text()
    errors = [line for line in log.splitlines() if " error: " in line]
    assert len(errors) == 1 and re.search(says if code == 78 and "needs" in says else re.escape(says), errors[0]), log
