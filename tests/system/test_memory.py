"""An engine's memory equals the figure that it prints and checks before it starts.  The CUDA runtime of tests/fakes/cuda
counts the memory, for random configurations."""
import re
import subprocess

import numpy as np
import pytest

import harness
import scenario
import verbs
from harness import merge

FAKE_VULKAN = harness.BUILD / "tests" / "fake_vulkan"
MIB = 2**20
# Of a receive thread: slots for 64 packets, and without ibverbs a buffer of 4 MiB.
HUGE_PAGE = 2 * MIB
SLOTS_BYTES = -(-64 * (256 + 2 * 65536) // HUGE_PAGE) * HUGE_PAGE  # whole huge pages
SOURCE_BYTES = 64 * 65536
STATED = re.compile(r"memory: (\d+) MiB of chunks, (\d+) MiB of output buffers, (\d+) MiB of other data: in total "
                    r"(\d+) MiB of host memory, (\d+) MiB on the device(?:, of which (\d+) MiB are direct chunks)?\n")

pytestmark = pytest.mark.skipif(not (FAKE_VULKAN / "libvulkan.so.1").exists(), reason="built without Vulkan")


def random_recv(rng, path):
    if path == "gpudirect":
        return {"transport": "ibverbs", "gpudirect": True, "buffer": int(rng.integers(1, 30)) * MIB}
    return {"direct": path == "direct"}


def random_fgpu(rng, recv):
    """Returns a configuration, and the order of magnitude of its memory beside pinned memory."""
    outputs = []
    for i in range(rng.integers(1, 4)):
        n_chan = int(2 ** rng.integers(8, 12))
        output = {"channels": n_chan, "spectra_per_heap": int(rng.choice([16, 48, 256])),
                  "batches_per_buffer": int(rng.integers(1, 4))}
        if i > 0 and rng.random() < 0.5:
            output |= {"kind": "narrowband", "centre_frequency": 300e6, "decimation": int(rng.integers(2, 9))}
        outputs.append(output)
    config = scenario.fgpu_config(outputs, range(rng.integers(1, 4)))
    packet = int(rng.choice([1024, 4096]))
    n_chunks = int(rng.integers(7, 12))
    config["recv"] |= {"packet_samples": packet, "sample_bits": int(rng.choice([8, 10])), "chunks": n_chunks,
                       "threads": int(rng.integers(0, 4))}
    scenario.chunk_for(config, int(rng.integers(1, 5)))
    return merge(config, {"recv": recv})


def random_xbgpu(rng, recv):
    n_ants, n_chan = int(rng.integers(2, 9)), int(rng.choice([16, 64]))
    outputs = [{"name": f"o{i}", "buffers": int(rng.integers(4, 12)), "integration_batches": int(rng.choice([8, 300])),
                "missing": str(rng.choice(["flag", "weights"]))} for i in range(rng.integers(1, 3))]
    recv = {"antennas": n_ants, "channels": 4 * n_chan, "channels_per_substream": n_chan, "channel_offset": 0,
            "spectra_per_heap": int(rng.choice([64, 256])), "samples_between_spectra": 8 * n_chan, "chunks": 12,
            "batches_per_chunk": int(rng.integers(1, 7)), "threads": int(rng.integers(1, 4)),
            "max_shift": int(rng.choice([0, 3]))} | recv
    if recv.get("gpudirect"):
        recv["packet_payload"] = int(rng.choice([1024, 4096]))
    config = scenario.xbgpu_config(outputs=outputs) if outputs else None
    if rng.random() < 0.5:
        config["gates"] = [{"kind": "switch", "name": "s", "period": 1000, "on_until": 500}]
        config["outputs"][0]["gate"] = "s"
    if rng.random() < 0.5:
        config["beams"] = [{"name": f"beam{i}", "pol": i % 2, "destination": harness.groups()}
                           for i in range(rng.integers(1, 40))]
    return merge(config, {"recv": recv})


def run(daemon, work, config, program, monkeypatch, fake_cuda):
    """Returns the reported memory (MiB of host and device memory), and the counted memory (bytes on the device, and
    pinned)."""
    counts = work / "counts"
    fake_cuda("memory_mib=65536")
    monkeypatch.setenv("CBF_FAKE_CUDA_COUNTS", str(counts))
    monkeypatch.setenv("CBF_FAKE_VULKAN", "heap_mib=65536")
    with daemon(program, merge(config, {"device": {"kind": "cuda"}})) as process:
        device, pinned = (int(n) for n in np.fromfile(counts, dtype="<u8"))
    *_, host, stated, direct = (int(n or 0) for n in STATED.search(process.log.read_text()).groups())
    assert not np.fromfile(counts, dtype="<u8").any(), "it left memory behind"
    drop_in = subprocess.run([harness.BUILD / "cbf-doctor", "--memory-max", work / f"{process.name}.yaml"],
                             capture_output=True, text=True, check=True).stdout
    bound = int(re.search(r"^\[Service\]\nMemoryMax=(\d+)$", drop_in, re.M)[1])
    assert bound > host * MIB + 2**32 - MIB, "MemoryMax= would be in its way"
    return host, stated, device, pinned


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("path", ["pinned", "direct", "gpudirect"])
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_stated_is_taken(program, path, index, daemon, work, rng, monkeypatch, fake_cuda):
    make = {"fgpu": random_fgpu, "xbgpu": random_xbgpu}[program]
    config = make(rng, random_recv(rng, path))
    monkeypatch.setattr(harness, "LIBRARY_PATH", str(FAKE_VULKAN))
    if path == "gpudirect":
        with verbs.fake_wire(mtu=int(rng.choice([5600, 9000]))) as ends:
            config = merge(config, {section: {"interface": ends[0].interface} for section in ("recv", "send")})
            for name, value in ends[0].env.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setattr(harness, "LIBRARY_PATH", None)
            host, stated, device, pinned = run(daemon, work, config, program, monkeypatch, fake_cuda)
    else:
        config["recv"]["interface"] = "lo"
        host, stated, device, pinned = run(daemon, work, config, program, monkeypatch, fake_cuda)
    assert abs(stated - device / MIB) <= 1, f"{stated} MiB stated, {device / MIB:.2f} taken of the device"
    n_inputs = config["recv"]["antennas"] if program == "xbgpu" else 2 * len(config["antennas"])
    n_threads = min(config["recv"]["threads"] or n_inputs, n_inputs)
    receivers = n_threads * (SLOTS_BYTES + (0 if path == "gpudirect" else SOURCE_BYTES))
    others = host * MIB - pinned - receivers
    assert -MIB <= others <= 0.05 * pinned + 4 * MIB, f"{others / MIB:.2f} MiB beside {pinned / MIB:.2f} that are pinned"
