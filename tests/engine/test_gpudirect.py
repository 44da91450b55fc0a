"""recv.gpudirect: the card writes payloads to the device, over a software libibverbs (tests/fake_verbs): the same output and
the same counters as from a socket."""
import shutil
import subprocess

import numpy as np
import pytest
import yaml

import harness
import scenario
from harness import merge
from streams import STREAMS, counts
from test_verbs_recv import assert_same, ends, feed, foreign, live_config, ours, run_live, start  # noqa: F401
from test_wrong_packets import TABLE, disturb

FAKE_CUDA = harness.BUILD / "tests" / "cbf-cuda-fake.so"
# One or two fewer than a stream makes, so that some are used again.
FEW_CHUNKS = {"fgpu": 10, "xbgpu": 14}
GPUDIRECT = {"transport": "ibverbs", "gpudirect": True}


@pytest.fixture(autouse=True)
def gpu(work, monkeypatch):
    """gpu(what CUDA is to do): there is none, and so the cuda device goes without, on CUDA variants of kernels."""
    if not FAKE_CUDA.exists() or not shutil.which("g++"):
        pytest.skip("built without CUDA, or g++ is not there")
    for name in ("common", "kernels", "tests"):  # the emulator compiles kernels as if in the root of the tree
        (work / name).symlink_to(harness.ROOT / name)

    def use(cuda="gpus=1"):
        monkeypatch.setenv("CBF_CUDA_DEVICE", str(FAKE_CUDA))
        monkeypatch.setenv("CBF_FAKE_CUDA", f"emulate=1,{cuda}")

    use()
    return use


def stream_of(program, payload_bytes, **more):
    """With buffers for all that comes out, however fast it goes in."""
    stream = STREAMS[program](payload_bytes=payload_bytes, **more)
    stream.config = merge(stream.config, {"device": {"kind": "cuda"}})
    for output in stream.config["outputs"]:
        output["buffers"] = 128
    return stream


@pytest.mark.parametrize("program, payload_bytes", [("fgpu", 640), ("xbgpu", 64), ("xbgpu", 256), ("xbgpu", 104)])
def test_same_as_sockets(program, payload_bytes, daemon, work, ends, rng):  # noqa: F811
    """Packets out of order, twice, missing and wrong for every reason, wholly in the host's part of a frame or not."""
    stream = stream_of(program, payload_bytes, **({"n_batches": 120} if program == "xbgpu" else {}))

    def bad_at(good):
        if rng.random() > 0.2:
            return []
        reason = list(TABLE)[rng.integers(len(TABLE))]
        bad = [] if (program, reason) in (("fgpu", "bad_frequency"), ("fgpu", "jump"),
                                          ("xbgpu", "jump")) else TABLE[reason](stream, good)
        bad = [b for b in bad if len(b) <= 4096]
        return [(reason, bad[i]) for i in rng.permutation(len(bad))[:3]]

    packets, refused = disturb(stream, bad_at)
    packets = [packets[i] for i in np.argsort(np.arange(len(packets)) + rng.uniform(0, 4, len(packets)))]
    packets = [p for i, p in enumerate(packets) if i < 200 or rng.random() > 0.01]
    frames = []
    for packet in packets:
        frames.append((ours(rng, *packet), True))
        if rng.random() < 0.2:
            others = foreign(*packet)
            frames.append((others[rng.integers(len(others))], False))
    more = {"packet_payload": payload_bytes} if program == "xbgpu" else {}
    udp = run_live(daemon, work, ends, stream, frames, (), "udp")
    direct = run_live(daemon, work, ends, stream, frames, (), "gpudirect", **GPUDIRECT, **more)
    assert_same(stream, direct, udp)
    assert len(direct.sent) > 0 and any(len(sent) > 5 for sent in direct.sent.values())


def undisturbed(stream):
    return [(ours_of(endpoint, p.bytes()), True) for endpoint, p in stream.packets]


def ours_of(endpoint, payload):
    return ours(np.random.default_rng(len(payload)), endpoint, payload)


@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_short_queue(program, daemon, work, ends, monkeypatch):  # noqa: F811
    """A card whose queue holds few frames, in a device whose chunks hold many: frames come and go by the reserve."""
    stream = stream_of(program, 640 if program == "fgpu" else 256)
    more = {"packet_payload": 256} if program == "xbgpu" else {}
    expected = run_live(daemon, work, ends, stream, undisturbed(stream), (), "udp")
    limits = {"CBF_FAKE_VERBS_LIMITS": "max_qp_wr=64"}
    ends[0].env.update(limits)
    found = run_live(daemon, work, ends, stream, undisturbed(stream), (), "gpudirect", **GPUDIRECT, **more,
                     chunks=FEW_CHUNKS[program])
    assert_same(stream, found, expected)


@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_gpu_that_must_be_told(program, daemon, work, ends, gpu):  # noqa: F811
    """A GPU of a kind that must be told of what cards write."""
    gpu("ordering=0")
    stream = stream_of(program, 640 if program == "fgpu" else 256)
    more = {"packet_payload": 256} if program == "xbgpu" else {}
    expected = run_live(daemon, work, ends, stream, undisturbed(stream), (), "udp")
    found = run_live(daemon, work, ends, stream, undisturbed(stream), (), "gpudirect", **GPUDIRECT, **more)
    assert_same(stream, found, expected)


def test_more_packets_than_promised(daemon, work, ends):  # noqa: F811
    """Packets that carry less than recv.packet_payload find no room in their chunk, which is a counter, and not the end."""
    stream = stream_of("xbgpu", 64)
    config = live_config(stream, ends[0], work / "out", **GPUDIRECT, packet_payload=128, chunks=64)
    process = start(daemon, "xbgpu", config, ends[0]).wait_ready()
    metrics = feed(process, stream, ends[1], undisturbed(stream))
    process.terminate().wait_end()
    reasons = counts(stream, metrics)
    assert len(stream.packets) / 4 < reasons["no_chunk"] <= len(stream.packets) / 2
    assert {reason for reason, n in reasons.items() if n} == {"no_chunk"}


@pytest.mark.parametrize("environment, code, says", [
    ({"CBF_FAKE_VERBS_LIMITS": "dmabuf=0"}, 78, "recv.gpudirect: ibverbs on "),
    ({"CBF_FAKE_VERBS_FAIL": "ibv_reg_dmabuf_mr:ENOMEM"}, None, "recv.gpudirect: ibverbs on "),
])
def test_card_that_cannot(environment, code, says, daemon, work, ends):  # noqa: F811
    stream = stream_of("xbgpu", 256)
    ends[0].env.update(environment)
    process = start(daemon, "xbgpu", live_config(stream, ends[0], work / "out", **GPUDIRECT), ends[0])
    ended = process.process.wait(60)
    errors = [line for line in process.log.read_text().splitlines() if " error: " in line]
    assert len(errors) == 1 and says in errors[0] and "of the device's memory" in errors[0], process.tail()
    assert ended == code if code else ended in (1, 78)


@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
@pytest.mark.parametrize("cuda, kind, says", [
    ("has_dmabuf=0", "cuda", "recv.gpudirect: the NVIDIA driver does not share this GPU's memory as a dma-buf"),
    ("ordering=0,flushes=0", "cuda", "recv.gpudirect: this GPU neither keeps the order"),
    ("gpus=0", "auto", "recv.gpudirect: there is no GPU whose memory the network card could write to"),
])
def test_gpu_that_cannot(program, cuda, kind, says, daemon, work, ends, gpu):  # noqa: F811
    """One sentence, before anything is made."""
    gpu(cuda)
    stream = stream_of(program, 640 if program == "fgpu" else 256)
    config = merge(live_config(stream, ends[0], work / "out", **GPUDIRECT), {"device": {"kind": kind}})
    process = start(daemon, program, config, ends[0])
    assert process.process.wait(60) == 78
    log = process.log.read_text()
    errors = [line for line in log.splitlines() if " error: " in line]
    assert len(errors) == 1 and says in errors[0] and "ibverbs on" not in log, process.tail()


@pytest.mark.parametrize("recv, says", [
    ({"transport": "ibverbs", "interface": "lo"}, "gpudirect needs a GPU, and device.kind is cpu"),
    ({}, "gpudirect needs transport: ibverbs"),
    ({"transport": "ibverbs", "interface": "lo", "pcap_file": "x"}, "gpudirect needs transport: ibverbs, and no pcap_file"),
    ({"transport": "ibverbs", "interface": "lo", "direct": True}, "direct and gpudirect exclude each other"),
])
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_mistakes(program, recv, says, work):
    config = scenario.fgpu_config() if program == "fgpu" else scenario.xbgpu_config()
    path = work / "mistake.yaml"
    path.write_text(yaml.safe_dump(merge(config, {"recv": {"gpudirect": True} | recv})))
    result = subprocess.run([harness.BUILD / program, "--check-config", path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 78 and says in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
