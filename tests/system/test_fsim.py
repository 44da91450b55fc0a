"""fsim: every packet of its captures equals spead2's packet of numpy's voltages.  fsim -> xbgpu, by captures and live:
every dump equals numpy's, or a closed form."""
import copy
import subprocess
import time
from io import BytesIO
from pathlib import Path

import baseband.data
import numpy as np
import pytest
from astropy import units
from astropy.time import Time
from baseband import vdif

import fsimmodel
import harness
import scenario
import wire
import xmodel
from harness import FENG_ID, TIMESTAMP, endpoints, groups, merge, packets
from test_spead_bytes import compare, feng_descriptors
from test_xbgpu import n_magic

FSIM = {
    "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000},
    "stream": {"antennas": 3, "channels": 64, "channels_per_substream": 4, "channel_offset": 8, "spectra_per_heap": 16,
               "samples_between_spectra": 128, "first_timestamp": 0},
    "signal": {"kind": "noise"},
    "send": {"rate_factor": 0},
}
SIGNALS = {
    "constant": {"kind": "constant", "real": [7, -7, 3], "imag": [-8, 5]},
    "tone": {"kind": "tone", "amplitude": 7, "delays": [0, 1, 2, -3, 5], "rates": [0, 0, 1, 0]},
    "noise": {"kind": "noise", "seed": 2**40 + 17, "rms": 2.5, "correlation": 0.3, "period": 3},
    "uniform": {"kind": "uniform", "seed": 5, "period": 4},
}
FORMATS = [(8, "twos_complement"), (4, "twos_complement"), (4, "offset"), (16, "twos_complement")]


def fsim_config(signal, n_batches, substreams=1, **sections):
    """A configuration that sends some batches; "n_substreams" is for the model."""
    config = merge(FSIM, sections)
    config["signal"] = copy.deepcopy(signal)
    stream = config["stream"]
    stream["destinations"] = groups(substreams)
    stream["duration"] = (n_batches + 0.5) * batch_samples(config) / config["time"]["adc_sample_rate"]
    config["n_substreams"] = substreams
    return config


def batch_samples(config):
    return config["stream"]["spectra_per_heap"] * config["stream"]["samples_between_spectra"]


def start(daemon, config, name="fsim"):
    return daemon("fsim", {k: v for k, v in config.items() if k != "n_substreams"}, name)


def capture(daemon, config, path):
    config["send"]["pcap_file"] = str(path)
    return start(daemon, config).wait_end()


# ---- Packets ---------------------------------------------------------------------------------------------------------


def expected_packets(config, v):
    """All packets of a capture of v[batch][ant]..., which begins with the batch of first_timestamp."""
    stream, where = config["stream"], endpoints(config["stream"]["destinations"])
    n_ants, cps, size = stream["antennas"], stream["channels_per_substream"], config["send"]["packet_payload"] + 72
    first = stream["first_timestamp"] // batch_samples(config)
    seconds = batch_samples(config) / config["time"]["adc_sample_rate"]
    encoded, counts, due = fsimmodel.encode(config, v), list(range(n_ants)), [0.0] * n_ants
    descriptors = cps, stream["spectra_per_heap"], stream.get("sample_bits", 8), stream.get("sample_encoding")
    out = []

    def heap_of(ant, destination, heap):
        counts[ant] += n_ants
        return [(where[destination], p) for p in packets(heap, counts[ant] - n_ants, size)]

    for b in range(len(v)):
        for ant in range(n_ants):
            if b * seconds >= due[ant]:
                due[ant] += 5 * (ant + 1 if due[ant] == 0 else n_ants)
                out += [p for d in range(len(where)) for p in heap_of(ant, d, feng_descriptors(*descriptors))]
        heaps = []
        for ant in range(n_ants):
            if fsimmodel.is_dropped(config, first + b, ant):
                continue
            for d in range(len(where)):
                part = np.ascontiguousarray(encoded[b, ant, d * cps:(d + 1) * cps])
                heap = harness.feng_heap((first + b) * batch_samples(config), ant, stream["channel_offset"] + d * cps, part)
                heaps.append(heap_of(ant, d, heap))
        out += [p for together in zip(*heaps) for p in together]
    for ant in range(n_ants):
        out += [p for d in range(len(where)) for p in heap_of(ant, d, harness.stop_heap())]
    return out


@pytest.mark.parametrize("bits, encoding", FORMATS)
@pytest.mark.parametrize("kind", SIGNALS)
def test_packets(kind, bits, encoding, daemon, work):
    """The whole capture, byte for byte, with several substreams and packets that do not divide a heap."""
    config = fsim_config(SIGNALS[kind], 9, 2, stream={"sample_bits": bits, "sample_encoding": encoding, "antennas": 5,
                                                      "channels_per_substream": 16, "spectra_per_heap": 18,
                                                      "channel_offset": 16, "first_timestamp": 18 * 128 * 7},
                         send={"packet_payload": 808})
    v = fsimmodel.values(config, 7, 9)
    capture(daemon, config, work / "out.pcap")
    compare(harness.read_pcap(work / "out.pcap"), expected_packets(config, v))
    if kind == "noise":
        assert 0.2 < np.mean(v[:, 0, ..., 0, :] * v[:, 1, ..., 0, :]) / np.mean(v**2) < 0.4
        assert abs(np.mean(v[..., 0, :] * v[..., 1, :])) / np.mean(v**2) < 0.1
    if kind == "uniform":
        limit = {4: 8, 8: 128, 16: 2048}[bits]
        assert v.min() < -0.99 * limit and v.max() > 0.97 * (limit - 1) and len(np.unique(v)) > 1.5 * min(limit, 128)


@pytest.mark.parametrize("bits, encoding", FORMATS)
def test_decoded(bits, encoding, daemon, work):
    """spead2's result from the descriptors alone; a timestamp that wraps; descriptors on schedule."""
    step = 16 * 2**20
    first = (2**48 // step - 3) * step
    config = fsim_config(SIGNALS["noise"], 8, 3, stream={"sample_bits": bits, "sample_encoding": encoding, "antennas": 2,
                                                         "samples_between_spectra": 2**20, "first_timestamp": first},
                         time={"adc_sample_rate": step / 3}, send={"packet_payload": 1024})
    v = fsimmodel.values(config, first // step, 8)
    if encoding == "offset":
        v = v + 8
    if bits == 16:
        v = v.astype("<f2")
    capture(daemon, config, work / "out.pcap")
    found = harness.decode_pcap(work / "out.pcap")
    assert list(found) == endpoints(config["stream"]["destinations"])
    for d, heaps in enumerate(found.values()):
        data = [h for h in heaps if h.kind == "data"]
        assert [h.items["timestamp"] for h in data] == [(first + b * step) % 2**48 for b in range(8) for _ in range(2)]
        assert [h.kind for h in heaps[-2:]] == ["stop"] * 2
        # At 0 s; antenna 0 at 5 s, antenna 1 at 10 s, both every 10 s; a batch is 3 s.
        descriptors = [(i, h.cnt % 2) for i, h in enumerate(heaps) if h.kind == "descriptor"]
        assert descriptors == [(0, 0), (1, 1), (6, 0), (11, 1), (14, 0), (19, 1)]
        for h in data:
            b = ((h.items["timestamp"] - first) % 2**48) // step
            assert h.items["frequency"] == 8 + 4 * d
            assert np.array_equal(h.items["feng_raw"], v[b, h.items["feng_id"], 4 * d:4 * d + 4])


def test_fgpu_sends_the_same(daemon, work, rng):
    """Packets of fgpu and of fsim that carry the same timestamps differ in nothing but the voltages."""
    config = scenario.fgpu_config(outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4}], substreams=2,
                                  send={"packet_payload": 1024, "array_size": 1}, recv={"sample_bits": 8})
    samples = scenario.noise(rng, 1, 32768, 8)
    scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    sent = harness.read_pcap(work / "run.out.pcap")
    heaps = [p for _, p in sent if len(p) == 72 + 1024]
    n_batches = len(heaps) // (2 * 2)
    first = int.from_bytes(heaps[0][42:48], "big")
    like = fsim_config(SIGNALS["noise"], n_batches, 2,
                       stream={"antennas": 1, "channels_per_substream": 32, "channel_offset": 0,
                               "first_timestamp": first}, send={"packet_payload": 1024})
    like["stream"]["destinations"] = config["outputs"][0]["destinations"]
    capture(daemon, like, work / "fsim.pcap")
    found = harness.read_pcap(work / "fsim.pcap")
    assert n_batches >= 10 and len(found) == len(sent)
    for f, s in zip(found, sent):
        assert f[0] == s[0] and len(f[1]) == len(s[1])
        assert f[1][:72] == s[1][:72] and (len(s[1]) == 72 + 1024 or f[1] == s[1])


# ---- On the network --------------------------------------------------------------------------------------------------


def packets_until(listener, n_stops):
    """All packets until so many are stops, taken apart."""
    out = []
    while n_stops:
        packet = wire.parse(listener.recv())
        n_stops -= packet.get(wire.STREAM_CTRL) == 2
        out.append(packet)
    return out


def test_threads_keep_together(daemon, work):
    """As fast as it goes, no antenna is more than a batch ahead of another, and every packet comes."""
    n_ants, n_batches = 7, 150
    config = fsim_config(SIGNALS["noise"], n_batches, 1, stream={"antennas": n_ants},
                         send={"interface": harness.LOOPBACK, "ttl": 0, "threads": 3, "packet_payload": 128})
    with harness.Listener(endpoints(config["stream"]["destinations"])[0]) as listener:
        start(daemon, config).wait_end()
        found = [p for p in packets_until(listener, n_ants) if p.get(FENG_ID) is not None]
    numbers = np.array([p.get(TIMESTAMP) // batch_samples(config) for p in found])
    assert len(found) == n_ants * n_batches * 2
    behind = np.maximum.accumulate(numbers) - numbers
    assert behind.max() <= 1 and numbers[-1] == n_batches - 1
    v = fsimmodel.encode(config, fsimmodel.values(config, 0, n_batches))
    for p, b in zip(found, numbers):
        at = p.get(wire.PAYLOAD_OFFSET)
        assert p.payload == v[b, p.get(FENG_ID)].tobytes()[at:at + 128]


def test_stopped(daemon, work):
    """A signal ends fsim after whole batches.  Heap counts begin with the clock's.  Each antenna sends a stop."""
    config = fsim_config(SIGNALS["uniform"], 1, 2, time={"adc_sample_rate": 16 * 128 * 100},
                         stream={"antennas": 3, "duration": 0, "first_timestamp": -1},
                         send={"interface": harness.LOOPBACK, "ttl": 0, "rate_factor": 1.1, "threads": 2})
    config["stream"]["duration"] = 0
    to_unix = time.time() - time.monotonic()
    with harness.Receiver(config["stream"]["destinations"]) as receiver:
        with start(daemon, config) as fsim:
            receiver.wait(lambda heaps: sum(h.kind == "data" for h in heaps) >= 60, "60 heaps")
        receiver.wait_stops(6)
    for ant in range(3):
        heaps = scenario.in_order([h for h in receiver.heaps if h.cnt % 3 == ant], ant, 3, 2)
        assert heaps[0].cnt > 3 * 1000 and [h.kind for h in heaps[-2:]] == ["stop"] * 2
        data = [h for h in heaps if h.kind == "data"]
        assert len(data) == len(heaps) - 4 and len(data) % 2 == 0
        first = data[0].items["timestamp"]
        for i, h in enumerate(data):
            assert h.items["timestamp"] == first + i // 2 * batch_samples(config)
            assert (h.items["feng_id"], h.items["frequency"]) == (ant, 8 + 4 * (i % 2))
            end = config["time"]["sync_time"] + (h.items["timestamp"] + batch_samples(config)) / (16 * 128 * 100)
            assert h.arrival_s + to_unix > end - 0.001, "sent before its last sample was taken"


# ---- fsim -> xbgpu ---------------------------------------------------------------------------------------------------


def xbgpu_config(config, outputs, **recv):
    """That of an X-engine of the first substream."""
    stream = config["stream"]
    own = ("destinations", "first_timestamp", "duration", "drop")
    out = scenario.xbgpu_config(outputs, recv={k: v for k, v in stream.items() if k not in own} | recv)
    out["time"] = merge(out["time"], config["time"])
    out["recv"]["sources"] = "{}:{}".format(*endpoints(stream["destinations"])[0])
    return out


def correlate(daemon, work, config, outputs, first_batch, v, present, **recv):
    """Plays fsim's capture to xbgpu and compares every dump with numpy's.  Returns the dumps of output 0, and fsim."""
    xbgpu = xbgpu_config(config, outputs, **recv)
    process = capture(daemon, config, work / "fsim.pcap")
    found = scenario.run_capture(daemon, "xbgpu", xbgpu, work / "fsim.pcap", work / "xbgpu.pcap")
    cps, all_dumps = config["stream"]["channels_per_substream"], []
    v = v[:, :, :cps].astype(np.float16 if config["stream"].get("sample_bits") == 16 else np.int8)
    for o, output in enumerate(xbgpu["outputs"]):
        dumps = xmodel.dumps(first_batch, v, present, output["integration_batches"],
                             output.get("missing", "flag"))
        scenario.check_dumps(xbgpu, o, found[endpoints(output["destination"])[0]], dumps)
        all_dumps.append(dumps)
    return all_dumps[0], process


@pytest.mark.parametrize("bits, encoding", FORMATS)
@pytest.mark.parametrize("n_ants", [1, 7])
@pytest.mark.parametrize("kind", SIGNALS)
def test_correlated(kind, n_ants, bits, encoding, daemon, work):
    """Two lengths; the second of two substreams is none of xbgpu's business."""
    config = fsim_config(SIGNALS[kind], 24, 2, stream={"antennas": n_ants, "first_timestamp": 3 * 16 * 128,
                                                       "sample_bits": bits, "sample_encoding": encoding})
    v = fsimmodel.values(config, 3, 24)
    dumps, _ = correlate(daemon, work, config, [{"integration_batches": 3}, {"integration_batches": 7}], 3, v,
                      np.ones(v.shape[:2], bool))
    assert len(dumps) == 8 and not any(n_magic(vis) for vis, _, _ in dumps.values())


@pytest.mark.parametrize("drop", [1, 4, 17])
def test_drop(drop, daemon, work):
    """Heaps left out on purpose are missing exactly by the rule.  With 1 nothing is sent."""
    config = fsim_config(SIGNALS["uniform"], 30, 1, stream={"drop": drop})
    v, present = fsimmodel.values(config, 0, 30), fsimmodel.present(config, 0, 30)
    assert abs(np.count_nonzero(~present) - 90 / drop) <= 1
    if drop == 1:
        capture(daemon, config, work / "fsim.pcap")
        assert {h.kind for h in harness.decode_pcap(work / "fsim.pcap")[endpoints(config["stream"]["destinations"])[0]]} \
            == {"descriptor", "stop"}
        return
    correlate(daemon, work, config, [{"integration_batches": 2, "missing": "weights"}, {"integration_batches": 2}], 0, v,
              present)


def test_closed_form(daemon, work):
    """The sums that fsim/signal.h promises, without a model of each voltage in between."""
    signal = {"kind": "tone", "amplitude": 11, "delays": [0, 1, 2, 3, -5, 7, 4, 9], "rates": [0, 0, 1, 1, 0, 4, 2, 3]}
    config = fsim_config(signal, 10, 1, stream={"antennas": 4})
    xbgpu = xbgpu_config(config, [{"integration_batches": 5}])
    capture(daemon, config, work / "fsim.pcap")
    found = scenario.run_capture(daemon, "xbgpu", xbgpu, work / "fsim.pcap", work / "xbgpu.pcap")
    (heaps,) = found.values()
    dumps = [h.items["xeng_raw"] for h in heaps if h.kind == "data"]
    assert len(dumps) == 2
    for c in range(4):
        for a2 in range(4):
            for a1 in range(a2 + 1):
                for p1 in range(2):
                    for p2 in range(2):
                        x, y = 2 * a1 + p1, 2 * a2 + p2
                        same = (signal["rates"][x] - signal["rates"][y]) % 4 == 0
                        turns = (signal["delays"][x] - signal["delays"][y]) * (8 + c)
                        value = same * 5 * 16 * 11**2 * [1, 1j, -1, -1j][turns % 4]
                        for dump in dumps:
                            assert complex(*dump[c, 4 * xmodel.baseline(a1, a2) + p1 + 2 * p2]) == value


@pytest.mark.parametrize("send_threads, recv_threads", [(1, 1), (3, 2)])
def test_live(send_threads, recv_threads, daemon, work):
    """Over loopback multicast, paced by the clock and with its timestamps, until it is stopped: no heap is missing."""
    config = fsim_config(SIGNALS["uniform"], 1, 1, time={"adc_sample_rate": 16 * 128 * 200},
                         stream={"antennas": 6, "duration": 0, "first_timestamp": -1},
                         send={"interface": harness.LOOPBACK, "ttl": 0, "rate_factor": 1.1, "threads": send_threads})
    config["stream"]["duration"] = 0
    config["http"] = {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}"}
    # The window takes 6 s: on a busy host a thread of fsim may be late.
    xbgpu = xbgpu_config(config, [{"integration_batches": 20}], interface=harness.LOOPBACK, threads=recv_threads, window=60,
                         chunks=150, batches_per_chunk=20)
    xbgpu["time"]["timebase"] = "clock"
    xbgpu["send"]["interface"] = harness.LOOPBACK
    with harness.Receiver(xbgpu["outputs"][0]["destination"]) as receiver:
        with daemon("xbgpu", xbgpu) as x, start(daemon, config) as fsim:
            receiver.wait(lambda heaps: sum(h.kind == "data" for h in heaps) >= 8, "8 dumps")
            metrics = fsim.metrics()
        receiver.wait_stops()
    assert metrics.get("fsim_output_heaps_total") >= 6 * 20 * 7
    assert " 0 packets failed" in fsim.log.read_text()
    length = 20 * batch_samples(config)
    v = fsimmodel.values(config, 0, 4).astype(np.int8)
    for i, heap in enumerate(receiver.data()):
        first = heap.items["timestamp"] // length * 20
        expected = xmodel.correlate(v[(first + np.arange(20)) % 4], np.ones((20, 6), bool))
        found = heap.items["xeng_raw"]
        if i == 0 and n_magic(found):
            continue
        assert np.array_equal(found, expected), f"dump {i} at {heap.items['timestamp']}"


# ---- Recordings ------------------------------------------------------------------------------------------------------

CHIME = str(Path(baseband.data.__file__).parent / "sample_arochime.vdif")
CHIME_RATE = 800e6 / 2048  # spectra per second
FRAMES_PER_S = 1000  # of what is written here


def read_vdif(path, rate, samples_per_frame=1):
    """int [spectrum][thread][channel][re, im]; baseband's level is one sigma."""
    with vdif.open(str(path), "rs", sample_rate=rate * units.Hz) as file:
        z = np.rint(file.read().astype(np.complex128) * 2.95)
    return np.stack([z.real, z.imag], -1).astype(int)


def recording_config(path, threads, n_batches, rate, **stream):
    signal = {"kind": "recording", "file": str(path), "threads": threads}
    return fsim_config(signal, n_batches, 1, time={"adc_sample_rate": rate * 2048},
                       stream={"samples_between_spectra": 2048} | stream)


def recorded(values, threads, n_batches, n_spectra):
    """[batch][ant][channel][spectrum][pol][re, im], the spectra again and again."""
    values = values[np.arange(n_batches * n_spectra) % len(values)][:, threads]
    shape = (n_batches, n_spectra, len(threads) // 2, 2, *values.shape[2:])
    return values.reshape(shape).transpose(0, 2, 4, 1, 3, 5)


@pytest.mark.parametrize("bits, encoding", FORMATS)
def test_chime(bits, encoding, daemon, work):
    """The 5 spectra of 1024 channels that CHIME's backend wrote: all of the band, correlated as numpy does."""
    values = read_vdif(CHIME, CHIME_RATE)
    assert values.shape == (5, 2, 1024, 2) and -8 <= values.min() < -4 and 4 < values.max() <= 7
    config = recording_config(CHIME, [0, 1, 1, 0], 17, CHIME_RATE, antennas=2, channels=1024, channel_offset=0,
                              channels_per_substream=1024, sample_bits=bits, sample_encoding=encoding)
    config["signal"]["loop"] = True
    v = recorded(values, [0, 1, 1, 0], 17, 16)
    dumps, fsim = correlate(daemon, work, config, [{"integration_batches": 5}, {"integration_batches": 1}], 0, v,
                            np.ones((17, 2), bool))
    assert len(dumps) == 3 and not any(n_magic(vis) for vis, _, _ in dumps.values())
    # 16 times the sum over the recording, for it takes 5 heaps until heap and recording begin together again.
    z = values[..., 0] + 1j * values[..., 1]
    for vis, _, _ in dumps.values():
        assert np.array_equal(vis[:, 0, 0] + 1j * vis[:, 0, 1], 16 * np.sum(values[:, 0]**2, (0, 2)))
        assert np.array_equal(vis[:, 2, 0] + 1j * vis[:, 2, 1], 16 * np.sum(z[:, 0] * z[:, 1].conj(), 0))
    assert "the recording makes 5 heaps of each of 2 antennas; 0 of all these heaps are not sent" in fsim.log.read_text()


def test_chime_by_its_own_order(daemon, work):
    """With the real part in the high bits, the codes of the file are the heaps' codes.  Channel 0 is real, because real
    samples give only real voltages there."""
    config = recording_config(CHIME, [0, 1], 1, CHIME_RATE, antennas=1, channels=1024, channel_offset=0,
                              channels_per_substream=1024, sample_bits=4, sample_encoding="offset")
    config["signal"] |= {"loop": True, "real_part": "high"}
    capture(daemon, config, work / "fsim.pcap")
    heap = b"".join(p[72:] for _, p in harness.read_pcap(work / "fsim.pcap") if len(p) == 72 + 8192)
    frames = np.fromfile(CHIME, np.uint8).reshape(5, 2, 1056)[:, :, 32:]
    sent = np.frombuffer(heap, np.uint8).reshape(1024, 16, 2)
    assert np.array_equal(sent, frames[np.arange(16) % 5].transpose(2, 0, 1))
    assert (sent[0] & 15 == 8).all() and (sent[0] >> 4 != 8).all()


def write_vdif(rng, path, n_frames, frame_spectra, n_chan=64, n_threads=3):
    """A recording over a change of second, by baseband.  Returns its frames [n][bytes] and values."""
    values = rng.integers(-8, 8, (n_frames * frame_spectra, n_threads, n_chan, 2))
    header = vdif.VDIFHeader.fromvalues(
        edv=1, time=Time("2020-06-07T08:09:10.97"), sample_rate=FRAMES_PER_S * frame_spectra * units.Hz,
        samples_per_frame=frame_spectra, nchan=n_chan, bps=4, complex_data=True, thread_id=0, station="me")
    with vdif.open(str(path), "ws", header0=header, nthread=n_threads) as file:
        file.write((values[..., 0] + 1j * values[..., 1]) / 2.95)
    frames = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, header.frame_nbytes).copy()
    assert len(frames) == n_frames * n_threads
    assert np.array_equal(read_vdif(path, FRAMES_PER_S * frame_spectra), values)
    return frames, values


@pytest.mark.parametrize("frame_spectra", [1, 4, 20])
def test_damaged_recording(frame_spectra, daemon, work, rng):
    """Frames missing, invalid, twice and in any order: the heaps that need them are not sent, all others are exact."""
    n_frames = 1600 // frame_spectra + 3
    frames, values = write_vdif(rng, work / "whole.vdif", n_frames, frame_spectra)
    headers = [vdif.VDIFHeader.fromfile(BytesIO(f.tobytes())) for f in frames]
    index = np.array([(h["seconds"] - headers[0]["seconds"]) * FRAMES_PER_S + h["frame_nr"] - headers[0]["frame_nr"]
                      for h in headers])
    thread = np.array([h["thread_id"] for h in headers])
    fate = rng.choice(["play", "lose", "invalid", "double"], len(frames), p=[0.97, 0.01, 0.01, 0.01])
    fate[:3] = fate[-3:] = "play"
    frames[fate == "invalid", 3] |= 0x80
    order = rng.permutation(np.repeat(np.arange(len(frames)), np.select([fate == "lose", fate == "double"], [0, 2], 1)))
    (work / "damaged.vdif").write_bytes(frames[order].tobytes() + b"a part of a frame")

    threads, n_batches = [0, 2], n_frames * frame_spectra // 16
    there = np.ones((n_frames, 3), bool)
    there[index, thread] = (fate == "play") | (fate == "double")
    present = np.repeat(there[:, threads].all(1), frame_spectra)[:n_batches * 16].reshape(n_batches, 16).all(1)
    config = recording_config(work / "damaged.vdif", threads, 1000, FRAMES_PER_S * frame_spectra, antennas=1, channels=64,
                              sample_bits=4)
    # Only bridged silences are this test's business.
    v = recorded(values, threads, n_batches, 16)[:, :, 8:12]
    _, fsim = correlate(daemon, work, config, [{"integration_batches": 4, "missing": "weights"}], 0, v, present[:, None],
                        window=32, chunks=70)
    assert n_batches >= 100 and 0.2 < np.mean(present) < 0.99
    log = fsim.log.read_text()
    n_absent = np.count_nonzero(~there[:, threads])
    n = {what: np.count_nonzero((fate == what) & np.isin(thread, threads)) for what in ("invalid", "double")}
    assert f"{n_frames} frames of 2 threads, of which {n_absent} are missing or invalid ({n['invalid']} marked invalid); " \
           f"{n['double']} duplicate" in log, log
    assert f"makes {n_batches} heaps of each of 1 antennas; {np.count_nonzero(~present)} of all these heaps are not sent" in log, log
    assert f"{np.count_nonzero(present)} heaps sent" in log


@pytest.mark.parametrize("loop, n_batches", [(True, 7), (False, 2)])
def test_whole_heaps_again(loop, n_batches, daemon, work, rng):
    """A recording that is longer than a heap is looped by its whole heaps; without loop it ends with them."""
    _, values = write_vdif(rng, work / "r.vdif", 40, 1)
    config = recording_config(work / "r.vdif", [1], 7, FRAMES_PER_S, antennas=1, channels=64)
    config["signal"]["loop"] = loop
    v = recorded(values[:32], [1, 1], n_batches, 16)[:, :, 8:12]
    dumps, _ = correlate(daemon, work, config, [{"integration_batches": 1}], 0, v, np.ones((n_batches, 1), bool))
    assert len(dumps) == n_batches


# ---- What is refused -------------------------------------------------------------------------------------------------


def sample(name):
    return str(Path(baseband.data.__file__).parent / name)


@pytest.mark.parametrize("change, says", [
    ({"stream": {"channels_per_substream": 5}}, "channels_per_substream must divide channels (64), but is 5"),
    ({"stream": {"channel_offset": 6}}, "channel_offset must be a multiple of channels_per_substream (4), not 6"),
    ({"stream": {"destinations": "239.1.1.1+14"}}, "15 destinations would need channels up to 67, but the stream has 64"),
    ({"stream": {"sample_bits": 5}}, "sample_bits must be 4, 8 or 16, not 5"),
    ({"stream": {"sample_encoding": "offset"}}, "the encoding offset exists only for 4 bits, not for 8"),
    ({"stream": {"first_timestamp": 2049}}, "first_timestamp must be a multiple of"),
    ({"stream": {"channels": 65536, "channels_per_substream": 65536, "channel_offset": 0, "spectra_per_heap": 65536}},
     "A heap would have 17179869184 bytes"),
    ({"stream": {"duration": 0}}, "pcap_file needs a duration"),
    ({"send": {"packet_payload": 1001}}, "packet_payload must be a multiple of 8"),
    ({"send": {"rate_factor": 0.5}}, "rate_factor must be at least 1"),
    ({"signal": {"kind": "constant", "real": [1, 128]}}, "real must be from -128 to 127 for this sample_bits, not 128"),
    ({"signal": {"kind": "constant", "imag": -9}, "stream": {"sample_bits": 4}}, "imag must be from -8 to 7"),
    ({"signal": {"kind": "constant", "real": []}}, "real must have at least one value"),
    ({"signal": {"kind": "tone", "amplitude": 8}, "stream": {"sample_bits": 4}}, "amplitude must be 7 at most"),
    ({"signal": {"kind": "noise", "amplitude": 8}}, "belongs to kind tone"),
    ({"signal": {"period": 1000000}, "stream": {"antennas": 4096}}, "signal.period: "),
    ({"signal": {"kind": "recording"}}, "kind recording needs the key file"),
    ({"signal": {"kind": "recording", "file": "nosuchfile"}}, "signal.file: nosuchfile cannot be opened: No such file"),
    ({"signal": {"kind": "recording", "file": "/dev/null"}}, "signal.file: /dev/null is no VDIF file"),
    ({"signal": {"kind": "recording", "file": CHIME}}, "sample_arochime.vdif has 1024 channels, not 64"),
    ({"signal": {"kind": "recording", "file": CHIME}, "stream": {"channels": 1024}}, "has only 5 spectra, less than a heap"),
    ({"signal": {"kind": "recording", "file": CHIME, "threads": [0, 5]}, "stream": {"channels": 1024}},
     "signal.threads: ", ),
    ({"signal": {"kind": "recording", "file": CHIME, "spectrum_rate": 300000}, "stream": {"channels": 1024}},
     "a number that is too high for one second: see signal.spectrum_rate"),
    ({"signal": {"kind": "recording", "file": sample("sample_mwa.vdif")}}, "does not hold complex samples of 4 bits"),
    ({"signal": {"kind": "recording", "file": sample("sample.vdif")}}, "does not hold complex samples of 4 bits"),
    ({"signal": {"kind": "recording", "file": sample("sample.dada")}}, "signal.file: the frame at byte 0"),
])
def test_refused(change, says, daemon, work):
    config = merge(fsim_config({}, 4), change | {"send": {"pcap_file": str(work / "out.pcap")} | change.get("send", {})})
    config["signal"].setdefault("kind", "noise")
    process = start(daemon, config).process
    assert process.wait(60) in (1, 78)
    assert says in (work / "fsim.log").read_text()
    assert not (work / "out.pcap").exists()


def test_documentation(work):
    """The manual's example of a recording is a good configuration."""
    page = (harness.ROOT / "docs" / "recordings.md").read_text()
    (work / "fsim.yaml").write_text(page.split("```yaml\n")[2].split("```")[0])
    done = subprocess.run([harness.BUILD / "fsim", "--check-config", work / "fsim.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
