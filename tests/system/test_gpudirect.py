"""recv.gpudirect: the NIC writes payloads to the device, over a software libibverbs (tests/fakes/verbs).  Output and
counters are the same as from a socket.  send.gpudirect: the NIC reads payloads from the device.  test_verbs_send.py
tests that the packets are the same, and failures during a run.

On the cpu device such payloads have addresses without memory.  So a processor that reads there is detected.
"""
import math
import re
import subprocess

import numpy as np
import pytest
import yaml

import fmodel
import harness
import scenario
import test_fgpu_stream
import test_verbs_send
from harness import endpoints, merge
from streams import STREAMS, counts
from test_verbs_recv import assert_same, ends, feed, foreign, live_config, ours, run_live, start  # noqa: F401
from test_wrong_packets import TABLE, disturb

# One or two fewer than a stream makes, so that some are used again.
FEW_CHUNKS = {"fgpu": 10, "xbgpu": 14}
GPUDIRECT = {"transport": "ibverbs", "gpudirect": True}


@pytest.fixture(autouse=True)
def gpu(fake_cuda):
    """gpu(settings of CUDA): there is no GPU.  So the cuda device runs CUDA variants of kernels without one."""
    return fake_cuda


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
    stream = stream_of(program, payload_bytes, **({"n_batches": 119} if program == "xbgpu" else {}))

    def bad_at(good):
        if rng.random() > 0.2:
            return []
        reason = list(TABLE)[rng.integers(len(TABLE))]
        bad = [] if (program, reason) in (("fgpu", "bad_frequency"), ("fgpu", "jump"),
                                          ("xbgpu", "jump")) else TABLE[reason](stream, good)
        if reason == "crc":  # is of bytes that the host may not read
            bad = []
        if reason == "duplicate":  # other bytes contest a heap also where the host may read them
            bad = [good.inverted().bytes()]
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
    """A NIC whose queue holds few frames, with a device whose chunks hold many: the reserve supplies the frames."""
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
    """A GPU that needs a flush after a NIC's writes."""
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
    with start(daemon, "xbgpu", config, ends[0]) as process:
        metrics = feed(process, stream, ends[1], undisturbed(stream))
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
    ("ordering=0,flushes=0", "cuda", "recv.gpudirect: this GPU neither orders"),
    ("gpus=0", "auto", "recv.gpudirect: the network card cannot write to GPU memory"),
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


# ---- Sending ---------------------------------------------------------------------------------------------------------

SENDS = {"udp": {"transport": "udp"}, "pinned": {"transport": "ibverbs"},
         "gpudirect": {"transport": "ibverbs", "gpudirect": True}}
NARROW = {"kind": "narrowband", "name": "narrow", "channels": 64, "spectra_per_heap": 32, "taps": 4, "decimation": 4,
          "centre_frequency": 3000000.25, "gain": 0.03, "sample_bits": 4, "substreams": 1}


def send_config(ends, how, **sections):  # noqa: F811
    """Two antennas, a wide output that saturates and a narrow one, between loopback and a card."""
    wide = {"channels": 256, "gain": 2.5, "taps": 4, "substreams": 4, "batches_per_buffer": 2}
    config = test_fgpu_stream.live_config([wide, NARROW], (2, 0), **sections)
    config["send"] |= {"interface": ends[0].interface, "packet_payload": 1024, **SENDS[how]}
    if how == "gpudirect" and "device" not in sections:
        config["device"]["kind"] = test_verbs_send.NOT_CPU
    return config


def output_counters(metrics):
    return {(name, *sorted(labels.items())): value for name, labels, value in metrics.samples
            if re.match("fgpu_output_.*_total$", name)}


def sure_output(config, samples, present):
    """Heaps and packets that come without a stop: all of whole chunks, the last of them behind a second's silence."""
    n_heaps, n_packets = 0, 0
    chunk = config["recv"]["chunk_samples"]
    for output in config["outputs"]:
        model = scenario.model_of(output, config)
        sure = list(fmodel.batches(0, samples.shape[2] // chunk * chunk, model))
        sure = sure[:len(sure) - len(sure) % output.get("batches_per_buffer", 1)]
        where, bits = endpoints(output["destinations"]), output.get("sample_bits", 8)
        for ant in range(len(present)):
            n = len(set(sure) & set(fmodel.batches_present(0, present[ant], config["recv"]["packet_samples"], model)))
            n_heaps += n * len(where)
            n_packets += n * model.channels * model.spectra_per_heap * 4 * bits // 8 // config["send"]["packet_payload"]
    return n_heaps, n_packets


def power_dbfs(voltages, limit):
    """[pol][channel] of a batch [channel][spectrum][pol][re, im]; a tone that fills the range is 0 dB."""
    with np.errstate(divide="ignore"):
        return 10 * np.log10((voltages.astype(float)**2).sum(-1).mean(1).T / limit**2)


def look(process, antenna, stream):
    """The status page's data of a stream.  Requests the next update."""
    return process.status(f"?antenna={antenna}&stream={stream}")


def feed_chunks(process, config, samples, present):
    """A chunk of each input at a time, so that no receive thread is ahead of another by more."""
    sent, n = scenario.digitiser_heaps(config, samples, 0, present), 0
    per_chunk = config["recv"]["chunk_samples"] // config["recv"]["packet_samples"]
    for first in range(0, present.shape[2], per_chunk):
        n_chunk = np.count_nonzero(present[:, :, first:first + per_chunk])
        harness.send_live(sent[n:n + n_chunk])
        n += n_chunk
        process.wait_metric(lambda m: m.get("fgpu_input_packets_total") == n, f"{n} packets taken")


def run_send(daemon, ends, how, samples, present, name, **sections):  # noqa: F811
    """Everything that is to be seen of an fgpu: (streams, counters, looks, sent how many heaps)."""
    config = send_config(ends, how, **sections)
    n_heaps, n_packets = sure_output(config, samples, present)
    looks = {}
    with harness.Receiver(test_fgpu_stream.destinations(config), ends[1].address) as receiver:
        process = test_verbs_send.start(daemon, "fgpu", config, ends[0], name).wait_ready()
        assert look(process, "m000", "narrow")["spectrum"] is None  # from now on all are wanted
        feed_chunks(process, config, samples, present)
        metrics = process.wait_metric(lambda m: m.get("fgpu_output_packets_total") >= n_packets, f"{n_packets} packets")
        assert metrics.get("fgpu_output_heaps_total") == n_heaps
        for a, antenna in enumerate(config["antennas"]):
            for o, output in enumerate(config["outputs"]):
                looks[o, a] = look(process, antenna["name"], output["name"])["spectrum"]
        streams = test_fgpu_stream.finish(config, process, receiver)
    for (o, a), spectrum in looks.items():
        batch = streams[o, a][spectrum["timestamp"]]
        expected = power_dbfs(batch, 2**(config["outputs"][o].get("sample_bits", 8) - 1) - 1)
        assert spectrum["n_spectra"] == batch.shape[1]
        for curve in spectrum["curves"]:
            mean = [-math.inf if p is None else p for p in curve["mean"]]
            np.testing.assert_allclose(mean, expected[curve["pol"]], atol=0.01)
    return streams, output_counters(metrics), re.findall(r"\S+ \S+: \d+ heaps sent.*", process.log.read_text())


def noise_with_gaps(rng):
    samples = scenario.noise(rng, 2, 8192 * 32, 10)
    present = np.ones((2, 2, 16 * 32), bool)
    present[0, 1, 3] = present[0, 1, 100] = present[1, 0, 141] = False  # so the first buffer lacks its first batch
    return samples, present


def assert_same_output(found, expected):
    for key, batches in expected[0].items():
        assert len(batches) > 10 and found[0][key].keys() == batches.keys()
        assert all(np.array_equal(found[0][key][t], batches[t]) for t in batches)
    assert found[1:] == expected[1:]
    counted = {(key[0], dict(key[1:])["stream"]): n for key, n in found[1].items() if n}
    for counter, stream in (("clipped_samples", "wide0"), ("skipped_heaps", "wide0"), ("skipped_heaps", "narrow")):
        assert counted[f"fgpu_output_{counter}_total", stream]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_send_live(n_threads, daemon, rng, ends, gpu):  # noqa: F811
    """Live: the same values, counters (also of saturated samples) and spectra on the status page, with any sender."""
    gpu("gpus=0")
    samples, present = noise_with_gaps(rng)
    results = {how: run_send(daemon, ends, how, samples, present, how, send={"threads": n_threads}) for how in SENDS}
    assert_same_output(results["pinned"], results["udp"])
    assert_same_output(results["gpudirect"], results["udp"])
    # The card may read a stream's buffers, all of them in one registration, and write none.
    registered = [line for line in ends[0].trace if line.startswith("ibv_reg_dmabuf_mr ")]
    assert len(registered) == 4 and all(line.endswith("access 0: ok") for line in registered)


def test_send_from_a_gpu(daemon, rng, ends, gpu):  # noqa: F811
    gpu("gpus=1")
    samples, present = noise_with_gaps(rng)
    expected = run_send(daemon, ends, "pinned", samples, present, "pinned", device={"kind": "cuda"})
    found = run_send(daemon, ends, "gpudirect", samples, present, "gpudirect", device={"kind": "cuda"})
    assert_same_output(found, expected)


@pytest.mark.parametrize("environment, code, says", [
    ({"CBF_FAKE_VERBS_LIMITS": "dmabuf=0"}, 78, "send.gpudirect: ibverbs on veth0: cannot register "),
    ({"CBF_FAKE_VERBS_FAIL": "ibv_reg_dmabuf_mr:EIO@1"}, 1, "send.gpudirect: ibverbs on veth0: cannot register "),
    ({"CBF_FAKE_VERBS_FAIL": "ibv_reg_dmabuf_mr:EIO@4"}, 1, "send.gpudirect: ibverbs on veth0: cannot register "),
])
def test_send_by_a_card_that_cannot(environment, code, says, daemon, ends, gpu):  # noqa: F811
    gpu("gpus=0")
    config = send_config(ends, "gpudirect")
    process = test_verbs_send.start(daemon, "fgpu", config, ends[0], **environment).wait_end(code)
    errors = [line for line in process.log.read_text().splitlines() if " error: " in line]
    assert len(errors) == 1 and says in errors[0] and "of the device's memory" in errors[0], process.tail()


@pytest.mark.parametrize("cuda, code, says", [
    ("dmabuf=801", 78, "send.gpudirect: the NVIDIA driver does not share the GPU's memory with network cards"),
    ("dmabuf=-1", 78, "send.gpudirect: the NVIDIA driver is too old to share the GPU's memory with network cards"),
    ("dmabuf=2", 1, "send.gpudirect: the NVIDIA driver does not share the GPU's memory with network cards"),
])
def test_send_from_a_gpu_that_cannot(cuda, code, says, daemon, ends, gpu):  # noqa: F811
    gpu(cuda)
    config = send_config(ends, "gpudirect", device={"kind": "cuda"})
    process = test_verbs_send.start(daemon, "fgpu", config, ends[0]).wait_end(code)
    errors = [line for line in process.log.read_text().splitlines() if " error: " in line]
    assert len(errors) == 1 and says in errors[0], process.tail()


def test_send_from_a_gpu_that_fails(daemon, work, rng, ends, gpu):  # noqa: F811
    """Packets already queued on the NIC have left unchanged.  The end is the same as for every failed device."""
    case = test_verbs_send.gpudirect_case(work, rng)
    case[1]["device"]["kind"] = "cuda"
    gpu("gpus=1")
    expected, _ = test_verbs_send.run(daemon, case, ends, "ibverbs", "sound")
    config = merge(case[1], {"send": {"interface": ends[0].interface, "transport": "ibverbs"}})
    n_sent = []
    for when in (60, 150, 300):
        gpu(f"die={when}")
        with test_verbs_send.Recorder(",".join(case[2]), ends[1]) as recorder:
            process = test_verbs_send.start(daemon, "fgpu", config, ends[0], f"failing{when}").wait_end(1)
        errors = [line for line in process.log.read_text().splitlines() if " error: " in line]
        assert len(errors) == 1 and re.search(r"cuda: .* on stream \w+ failed: ", errors[0]), errors
        n_sent.append(0)
        for key, packets in test_verbs_send.by_sender(recorder.packets, case[3]).items():
            n = len(packets) - 1  # the last is a stop
            assert packets[:n] == expected[key][:n] and n < len(expected[key]) - 1
            n_sent[-1] += n
    assert n_sent[0] < n_sent[-1]


@pytest.mark.parametrize("send, says", [
    ({}, "gpudirect needs transport: ibverbs"),
    ({"transport": "udp", "interface": "lo"}, "gpudirect needs transport: ibverbs"),
    ({"transport": "ibverbs", "interface": "lo"}, "gpudirect needs a GPU, and device.kind is cpu"),
    ({"transport": "ibverbs", "interface": "lo", "pcap_file": "x"}, "gpudirect needs transport: ibverbs, and no pcap_file"),
])
def test_send_mistakes(send, says, work):
    path = work / "mistake.yaml"
    lines = yaml.safe_dump(merge(scenario.fgpu_config(), {"send": send | {"gpudirect": True}})).splitlines()
    path.write_text("\n".join(lines) + "\n")
    result = subprocess.run([harness.BUILD / "fgpu", "--check-config", path], capture_output=True, text=True, timeout=60)
    (line,) = [i for i, text in enumerate(lines, 1) if text == "  gpudirect: true"]
    assert result.returncode == 78 and result.stderr == f"{path}:{line}:14: {says}\n"


def test_xbgpu_has_no_such_key(work):
    path = work / "mistake.yaml"
    path.write_text(yaml.safe_dump(merge(scenario.xbgpu_config(), {"send": {"gpudirect": True}})))
    result = subprocess.run([harness.BUILD / "xbgpu", "--check-config", path], capture_output=True, text=True, timeout=60)
    assert result.returncode == 78 and "gpudirect" in result.stderr
