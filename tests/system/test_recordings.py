"""dsim plays recordings of real telescopes, and the F-engine and the whole correlator process them.

The recordings are the samples that come with `baseband`, which also decodes them.  dsim's output is compared with these
samples, requantised by numpy.  fgpu's output is compared with the float64 model.
"""
import struct
import subprocess
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import baseband.data
import h5py
import numpy as np
import pytest
from astropy import units
from astropy.time import Time
from baseband import dada, gsb, mark5b, vdif

import fmodel
import harness
import scenario
import xmodel
from harness import endpoints, groups, read_pcap
from test_fgpu import check

HEADER_BYTES = 72  # of a digitiser packet

# ---- Playing ---------------------------------------------------------------------------------------------------------


def dsim_config(recordings, antennas, pcap, **digitiser):
    """A configuration that writes a capture. 'antennas' are the antennas of an fgpu."""
    return {
        "time": {"sync_time": 1700000000, "adc_sample_rate": digitiser.pop("adc_sample_rate", 32000000)},
        "digitiser": {"sample_bits": 10, "packet_samples": 256, "first_timestamp": 0} | digitiser,
        "recordings": recordings,
        "antennas": [{"name": a["name"], "digitiser_id": 2 * i, "pol0": a["pol0"], "pol1": a["pol1"]}
                     for i, a in enumerate(antennas)],
        "send": {"pcap_file": str(pcap)},
    }


def unpack_heap(packet, bits):
    """({item id: value}, samples) of a digitiser packet; None of a descriptor."""
    items = {item >> 48 & 0x7FFF: item & (1 << 48) - 1 for item in struct.unpack(">8Q", packet[8:HEADER_BYTES])}
    if harness.TIMESTAMP not in items:
        return None
    return items, fmodel.unpack(np.frombuffer(packet[HEADER_BYTES:], np.uint8), bits)


def captured(config):
    """Checks the packets of a capture in all but their samples, and returns these as [input][n]."""
    bits, step = config["digitiser"]["sample_bits"], config["digitiser"]["packet_samples"]
    inputs = [endpoints(a[pol])[0] for a in config["antennas"] for pol in ("pol0", "pol1")]
    found = {where: [] for where in inputs}
    for where, packet in read_pcap(config["send"]["pcap_file"]):
        heap = unpack_heap(packet, bits)
        if not heap:
            continue
        items, samples = heap
        number = len(found[where])
        limit = 2**(bits - 1) - 1
        n_saturated = int(np.count_nonzero(np.abs(samples) >= limit))
        assert items[harness.TIMESTAMP] == config["digitiser"]["first_timestamp"] + number * step
        assert items[harness.DIGITISER_ID] == inputs.index(where)
        assert items[harness.DIGITISER_STATUS] == n_saturated << 32 | 2 * (n_saturated > 0)
        assert len(samples) == step
        found[where].append(samples)
    return np.array([np.concatenate(found[where]) for where in inputs])


def play(daemon, config, values, name="dsim"):
    """Runs dsim to the end of its recordings and checks that exactly the whole heaps of values[input][n] came."""
    bits = config["digitiser"]["sample_bits"]
    process = daemon("dsim", config, name).wait_end()
    step = config["digitiser"]["packet_samples"]
    expected = np.rint(np.clip(np.asarray(values, np.float64), -2**(bits - 1), 2**(bits - 1) - 1)).astype(np.int64)
    expected = expected[:, :expected.shape[1] // step * step]
    found = captured(config)
    assert found.shape == expected.shape, process.tail()
    differ = np.argwhere(found != expected)
    assert not len(differ), f"{len(differ)} samples differ, first at [input, sample] {differ[0]}: " \
                            f"{found[tuple(differ[0])]}, not {expected[tuple(differ[0])]}"
    return process, found


def channelise(daemon, work, config, samples, antennas, gain, name="fgpu"):
    """Runs fgpu on dsim's capture and compares all of its output with the model."""
    n_ants = len(antennas)
    fgpu = scenario.fgpu_config(
        outputs=[{"channels": 64, "taps": 4, "gain": gain},
                 {"channels": 128, "taps": 2, "gain": gain / 2, "spectra_per_heap": 16}],
        recv={"sample_bits": config["digitiser"]["sample_bits"], "packet_samples": 256, "chunk_samples": 4096})
    fgpu["antennas"] = antennas
    found = scenario.run_capture(daemon, "fgpu", fgpu, config["send"]["pcap_file"], work / f"{name}.out.pcap", name)
    return check(fgpu, found, samples.reshape(n_ants, 2, -1), 0, what=name)


def fgpu_antennas(n):
    return [{"name": f"m{i:03}", "feng_id": i, "pol0": groups(), "pol1": groups()} for i in range(n)]


# ---- Recordings of telescopes ----------------------------------------------------------------------------------------
# Each returns the keys of the recordings, values[n][input] by baseband, and what else it takes to play them.


def sample(name):
    return str(Path(baseband.data.__file__).parent / name)


def read(module, name, **how):
    with module.open(sample(name), "rs", **how) as file:
        return file.read()


def vdif_threads(work):
    """European VLBI Network and VLBA, pulsar B1957+20: VDIF of 8 threads of 2 bits."""
    values = read(vdif, "sample.vdif")
    assert values.shape == (40000, 8) and len(np.unique(values)) == 4
    keys = [{"kind": "vdif", "file": sample("sample.vdif"), "thread": i, "scale": 16} for i in range(8)]
    return keys, 16 * values, {}


def vdif_channels(work):
    """Wettzell: VDIF of 16 channels of 1 bit in one thread, whose first frame is in the middle of a second."""
    values = read(vdif, "sample_bps1.vdif", sample_rate=8 * units.MHz)
    assert values.shape == (8000, 16) and len(np.unique(values)) == 2
    channels = [0, 1, 5, 15]
    keys = [{"kind": "vdif", "file": sample("sample_bps1.vdif"), "channel": c, "sample_rate": 8e6, "scale": 40.25}
            for c in channels]
    return keys, 40.25 * values[:, channels], {}


def effelsberg(work):
    """Effelsberg at 800 MS/s, two polarisations of 8 bits as the digitiser made them: a DADA file, played as it is."""
    values = read(dada, "sample_meerkat.dada")
    assert values.shape == (14336, 2)
    keys = [{"kind": "int8", "file": sample("sample_meerkat.dada"), "header": 4096, "columns": 2, "column": i}
            for i in range(2)]
    return keys, values, {"sample_bits": 8, "adc_sample_rate": 800000000}


def gmrt(work):
    """GMRT, the Crab pulsar: 4 bits, as integers of 16 bits in both orders of bytes, the second one 1000 samples on."""
    values = read(gsb, "gsb/sample_gsb_rawdump.timestamp", raw=sample("gsb/sample_gsb_rawdump.dat"),
                  samples_per_frame=8192).astype(int)
    assert values.shape == (81920,) and len(np.unique(values)) > 8
    values = values[:16000]
    values.astype("<i2").tofile(work / "little")
    values.astype(">i2").tofile(work / "big")
    keys = [{"kind": "int16", "file": str(work / "little")},
            {"kind": "int16be", "file": str(work / "big"), "start": 1000}]
    return keys, np.stack([values[:-1000], values[1000:]], -1), {"sample_bits": 4}


def westerbork(work):
    """Westerbork: 8 channels of 2 bits in Mark 5B, as columns of float32."""
    values = read(mark5b, "sample.m5b", nchan=8, bps=2, kday=56000, sample_rate=32 * units.MHz)
    assert values.shape == (20000, 8)
    values.astype("<f4").tofile(work / "floats")
    keys = [{"kind": "float32", "file": str(work / "floats"), "columns": 8, "column": i, "scale": 300}
            for i in range(8)]
    return keys, 300.0 * values, {"sample_bits": 12}


@pytest.mark.parametrize("recording", [vdif_threads, vdif_channels, effelsberg, gmrt, westerbork])
def test_telescope(recording, daemon, work):
    """dsim's output equals baseband's samples, to the last bit, and fgpu channelises it as numpy does."""
    recordings, values, digitiser = recording(work)
    antennas = fgpu_antennas(len(recordings) // 2)
    config = dsim_config(recordings, antennas, work / "dsim.pcap", **digitiser)
    _, found = play(daemon, config, values.T)
    # White noise of rms s has rms s / sqrt(2) in each component: 30 steps.
    gain = float(30 * np.sqrt(2) / np.std(found))
    assert channelise(daemon, work, config, found, antennas, gain) >= 2 * len(antennas)


def test_clocks_that_disagree(daemon, work):
    """The threads as they were recorded, half of them months from the other half.  Threads of one clock can be
    played."""
    values = read(vdif, "sample.vdif")
    keys = [{"kind": "vdif", "file": sample("sample_vlbi.vdif"), "thread": i, "scale": 16} for i in range(4)]
    config = dsim_config(keys[1::2], fgpu_antennas(1), work / "dsim.pcap")
    play(daemon, config, 16 * values[:, 1:4:2].T)
    refused = daemon("dsim", dsim_config(keys[:2], fgpu_antennas(1), work / "no.pcap")).wait_end(code=78)
    assert "the frame at byte 20128, the first of thread 0, is 14352384.000 s before" in refused.log.read_text()


# ---- VDIF written by baseband ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_vdif_of_baseband(bits, daemon, work, rng):
    """4 channels in 3 threads over a change of second; then frames out of order, absent, twice, and marked invalid."""
    n_frames, frame_samples, fps = 40, 80, 25
    header = vdif.VDIFHeader.fromvalues(
        edv=1, time=Time("2020-06-07T08:09:10.4"), sample_rate=fps * frame_samples * units.Hz,
        samples_per_frame=frame_samples, nchan=4, bps=bits, complex_data=False, thread_id=0, station="me")
    with vdif.open(str(work / "whole.vdif"), "ws", header0=header, nthread=3) as file:
        file.write(rng.normal(0, 2, (n_frames * frame_samples, 3, 4)).astype(np.float32))
    with vdif.open(str(work / "whole.vdif"), "rs") as file:
        values = file.read().astype(float)
    # To the file's integers: baseband's levels of 4 and 8 bits are symmetrical about 0, or scaled.
    values = np.round(values * {4: 2.95, 8: 35.5}[bits] - {4: 0, 8: 0.5}[bits]) if bits > 2 else values
    scale = 30 if bits <= 2 else 1

    frames = np.frombuffer((work / "whole.vdif").read_bytes(), np.uint8).reshape(-1, header.frame_nbytes).copy()
    assert len(frames) == 3 * n_frames
    numbers = [vdif.VDIFHeader.fromfile(BytesIO(f.tobytes())) for f in frames]
    index = [(h["seconds"] - numbers[0]["seconds"]) * fps + h["frame_nr"] - numbers[0]["frame_nr"] for h in numbers]
    thread = [h["thread_id"] for h in numbers]
    assert sorted(zip(index, thread)) == [(i, t) for i in range(n_frames) for t in range(3)]
    fate = rng.choice(["play", "lose", "invalid", "double"], len(frames), p=[0.7, 0.1, 0.1, 0.1])
    fate[:3] = fate[-6:] = "play"  # the last 128 samples of each thread fill no heap, and are not counted
    out = []
    for i, what in enumerate(fate):
        if what in ("lose", "invalid"):
            values[index[i] * frame_samples:(index[i] + 1) * frame_samples, thread[i]] = 0
        frames[i, 3] |= 0x80 * (what == "invalid")
        out += [(0 if i == 0 else i + rng.uniform(0, 30), frames[i])] * {"lose": 0, "double": 2}.get(what, 1)
    out.sort(key=lambda pair: pair[0])
    (work / "damaged.vdif").write_bytes(b"".join(f.tobytes() for _, f in out))

    keys = [{"kind": "vdif", "file": str(work / "damaged.vdif"), "thread": t, "channel": c, "scale": scale}
            for t in (0, 2) for c in (3, 1)]
    config = dsim_config(keys, fgpu_antennas(2), work / "dsim.pcap", adc_sample_rate=fps * frame_samples, sample_bits=8)
    process, _ = play(daemon, config, np.stack([values[:, t, c] for t in (0, 2) for c in (3, 1)]) * scale)
    log = process.log.read_text()
    counts = {what: sum(2 for i in range(len(frames)) if fate[i] == what and thread[i] != 1) for what in set(fate)}
    n_lost, n_invalid = (counts.get(what, 0) * frame_samples for what in ("lose", "invalid"))
    assert f" {n_lost} missing and {n_invalid} invalid samples" in log, log
    assert f" 0 too late, {counts.get('double', 0)} double" in log, log


# ---- How it ends -----------------------------------------------------------------------------------------------------


def write_noise(work, rng, name, n, columns=1):
    values = rng.integers(-512, 512, (n, columns))
    values.astype("<i2").tofile(work / name)
    return values


def test_shortest_ends_it(daemon, work, rng):
    """All recordings end with the whole heaps of the shortest.  The log reports the rest of each."""
    lengths = [2600, 2560, 9999, 3000]
    values = [write_noise(work, rng, f"{i}", n)[:2560, 0] for i, n in enumerate(lengths)]
    keys = [{"kind": "int16", "file": str(work / f"{i}")} for i in range(4)]
    process, _ = play(daemon, dsim_config(keys, fgpu_antennas(2), work / "dsim.pcap"), values)
    log = process.log.read_text()
    assert "10 heaps per polarisation sent" in log
    assert f"{sum(lengths) - 4 * 2560} samples at their ends not played" in log


def test_loop(daemon, work, rng):
    """Whole heaps again and again, the timestamps going on; one recording for all polarisations."""
    values = write_noise(work, rng, "x", 5 * 256 + 100)[:5 * 256, 0]
    config = dsim_config([{"kind": "int16", "file": str(work / "x")}], fgpu_antennas(2), work / "dsim.pcap", loop=True,
                         duration=100.5 * 256 / 32e6, first_timestamp=256 * 77)
    play(daemon, config, [np.tile(values, 20)] * 4)


def next_heaps(listener, n):
    """The next (timestamp, samples of 10 bits)."""
    out = []
    while len(out) < n:
        found = unpack_heap(listener.recv(), 10)
        out += [(found[0][harness.TIMESTAMP], found[1])] if found else []
    return out


LIVE = {"first_timestamp": -1, "adc_sample_rate": 256 * 500}


def test_live(daemon, work, rng):
    """In real time over the loopback interface, from the clock, until it is stopped: nothing is left out."""
    values = write_noise(work, rng, "x", 10000)[:9984, 0]
    antennas = fgpu_antennas(1)
    config = dsim_config([{"kind": "int16", "file": str(work / "x")}], antennas, "", loop=True, **LIVE)
    config["send"] = {"interface": harness.LOOPBACK, "ttl": 0}
    config["http"] = {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}"}
    with harness.Listener(endpoints(antennas[0]["pol1"])[0]) as listener:
        with daemon("dsim", config) as process:
            heaps = next_heaps(listener, 100)
            metrics = process.metrics()
    assert metrics.get("dsim_zeroed_samples_total") == 0 and metrics.get("dsim_reader_late_total") >= 0
    first = heaps[0][0]
    assert first % 256 == 0
    for i, (timestamp, samples) in enumerate(heaps):
        assert timestamp == first + 256 * i
        assert np.array_equal(samples, np.tile(values, 2)[256 * i % 9984:][:256])


def test_file_is_cut_while_it_plays(daemon, work, rng):
    """The heaps that were read before are sent; then it ends, and that is no success."""
    write_noise(work, rng, "x", 1 << 20)
    antennas = fgpu_antennas(1)
    config = dsim_config([{"kind": "int16", "file": str(work / "x")}], antennas, "", **LIVE)
    config["send"] = {"interface": harness.LOOPBACK, "ttl": 0}
    with harness.Listener(endpoints(antennas[0]["pol0"])[0]) as listener:
        process = daemon("dsim", config).wait_ready()
        next_heaps(listener, 10)
        with open(work / "x", "r+b") as file:
            file.truncate(1001)
        process.wait_end(code=1)
    assert f"recordings[0]: {work / 'x'} has only 1001 bytes now, but had 2097152 when" in process.log.read_text()


@pytest.mark.parametrize("change, says", [
    ({"recordings": []}, "Either signals or recordings must be given."),
    ({"recordings": [{"kind": "int8", "file": "x"}], "signals": {"specification": "1;"}}, "not both"),
    ({"recordings": [{"kind": "int8", "file": "x"}] * 3}, "3 items; it must have one, or one for each of 2"),
    ({"recordings": [{"kind": "int8", "file": "x", "columns": 2, "column": 2}]}, "less than columns (2), not 2"),
    ({"recordings": [{"kind": "int8", "file": "x", "thread": 1}]}, "belongs to kind vdif"),
    ({"recordings": [{"kind": "int24", "file": "x"}]}, "int8, int16, int16be, float32, vdif or ci16"),
    ({"recordings": [{"kind": "int8", "file": "x", "scale": 0}]}, "scale must be"),
    ({"digitiser": {"period": 256}}, "period applies to signals only"),
    ({"digitiser": {"dither_seed": 1}}, "dither_seed applies to signals only"),
    ({"digitiser": {"loop": True}}, "needs a duration"),
    ({"send": {"pcap_file": "nosuchfile"}}, "would overwrite recordings[0].file"),
    ({}, "recordings[0]: nosuchfile cannot be opened: No such file or directory"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample_mwa.vdif")}]},
     "sample_mwa.vdif: the frame at byte 0 holds complex samples"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample_arochime.vdif")}]}, "complex samples"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample_drao_corrupted.vdif")}]}, "complex samples"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample.vdif"), "thread": 8}]},
     "no thread 8 among its first 16 frames, but only 0 to 7"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample.vdif"), "sample_rate": 1e6 + 1}]},
     "sample_rate must be the rate"),
    ({"recordings": [{"kind": "vdif", "file": sample("sample.dada")}]}, "the frame at byte 0"),
    ({"recordings": [{"kind": "vdif", "file": "/dev/null"}]}, "not a regular file"),
])
def test_refused(change, says, daemon, work):
    config = dsim_config([{"kind": "int8", "file": "nosuchfile"}], fgpu_antennas(1), work / "out.pcap")
    process = daemon("dsim", harness.merge(config, change)).wait_end(code=78)
    assert says in process.log.read_text(), process.tail()


def test_documentation(work):
    """The example of the manual is a good configuration."""
    page = (harness.ROOT / "docs" / "recordings.md").read_text()
    (work / "dsim.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    done = subprocess.run([harness.BUILD / "dsim", "--check-config", work / "dsim.yaml"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_complex(daemon, work):
    """Complex integers at twice their rate and a quarter of it, against an interpolation by transforms.  The signal is
    below 0.45 of the rate and repeats; the middle is compared."""
    n, n_columns = 4096, 2
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    bins = np.fft.fftfreq(n)
    spectrum = (random.normal(size=(n_columns, n)) + 1j * random.normal(size=(n_columns, n))) * (np.abs(bins) < 0.45)
    x = np.fft.ifft(spectrum) * 3000 * np.sqrt(n)
    x = np.rint(x.real) + 1j * np.rint(x.imag)
    rows = np.tile(np.stack([x.real, x.imag], axis=-1).transpose(1, 0, 2), (3, 1, 1))  # [row][column][part]
    (work / "complex.sigmf-data").write_bytes(rows.astype("<i2").tobytes())
    config = dsim_config([{"kind": "ci16", "file": str(work / "complex.sigmf-data"), "columns": n_columns, "column": i}
                          for i in range(n_columns)], fgpu_antennas(1), work / "out.pcap", sample_bits=16)
    daemon("dsim", config).wait_end()
    found = captured(config)
    wide = np.zeros((n_columns, 2 * n), complex)
    wide[:, np.rint(bins * n).astype(int)] = 2 * np.fft.fft(x)
    expected = np.real(np.fft.ifft(wide) * 1j ** (np.arange(2 * n) % 4))
    assert found.shape == (n_columns, 6 * n)
    middle = found[:, 2 * n:4 * n]
    assert np.array_equal(middle[:, ::2], np.rint(expected[:, ::2]))
    assert np.max(np.abs(middle - expected)) < 3  # half a step of rounding, -90 dB, the file's rounding beyond the band


# ---- The whole correlator --------------------------------------------------------------------------------------------


def packets_by_destination(path):
    out = defaultdict(list)
    for where, packet in read_pcap(path):
        out[where].append(packet)
    return out


def correlate(daemon, work, name, configs):
    """dsim, fgpu, xbgpu and visrec, each on the capture of the one before; returns the captures and the UVH5 file."""
    captures = {}
    source = None
    for program, config in configs.items():
        sink = work / f"{name}.{program}.{'uvh5' if program == 'visrec' else 'pcap'}"
        overrides = {"recv": {"pcap_file": str(source)}} if source else {}
        overrides |= {"output": {"file": str(sink)}} if program == "visrec" else {"send": {"pcap_file": str(sink)}}
        process = daemon(program, harness.merge(config, overrides), f"{name}.{program}").wait_end()
        scenario.check_audits(process.log.read_text())
        source = captures[program] = sink
    return captures


def test_whole_correlator(daemon, work):
    """A recording to visibilities, offline: exact, and the same to the last packet when it is repeated.

    Antennas share fgpu's capture.  There one antenna may be ahead of another by fgpu's data in flight.  xbgpu's window
    bridges this, and no later stage depends on it.
    """
    rate, n_ants, n_chan, heap, length = 32000000, 4, 64, 16, 3
    antennas = fgpu_antennas(n_ants)
    voltages, visibilities = groups(), groups()
    keys = [{"kind": "vdif", "file": sample("sample.vdif"), "thread": i, "scale": 16} for i in range(8)]
    time = {"sync_time": 1700000000, "adc_sample_rate": rate, "timebase": "packets"}
    fgpu = scenario.fgpu_config(
        outputs=[{"channels": n_chan, "taps": 4, "gain": 0.9, "dither": "uniform", "dither_seed": 20261121}],
        time=time, recv={"packet_samples": 256, "chunk_samples": 4096}, send={"array_size": n_ants})
    fgpu["antennas"], fgpu["outputs"][0]["destinations"] = antennas, voltages
    stream = {"channels": n_chan, "channels_per_substream": n_chan, "spectra_per_heap": heap,
              "samples_between_spectra": 2 * n_chan}
    xbgpu = scenario.xbgpu_config(outputs=[{"integration_batches": length}], time=time,
                                  recv=stream | {"antennas": n_ants, "channel_offset": 0, "window": 8, "chunks": 19})
    xbgpu["recv"]["sources"], xbgpu["outputs"][0]["destination"] = voltages, visibilities
    configs = {
        "dsim": dsim_config(keys, antennas, "", loop=True, duration=200000 / rate),
        "fgpu": fgpu,
        "xbgpu": xbgpu,
        "visrec": {
            "time": time,
            "recv": {"sources": visibilities},
            "stream": stream | {"integration_batches": length},
            "telescope": {"name": "replay", "latitude": -30.7, "longitude": 21.4, "altitude": 1000.0},
            "antennas": [{"name": a["name"], "position": [40.0 * i, 7.0 * i, 0.0]} for i, a in enumerate(antennas)],
        },
    }
    runs = [correlate(daemon, work, name, configs) for name in ("once", "again")]
    for program in ("dsim", "fgpu", "xbgpu"):
        once, again = ([(where, sorted(found) if program == "fgpu" else found)
                        for where, found in packets_by_destination(captures[program]).items()] for captures in runs)
        assert len(once) and sorted(once) == sorted(again), program

    streams = scenario.fgpu_streams(fgpu, harness.decode_pcap(runs[0]["fgpu"]))
    batches = list(streams[0, 0])
    spectra = np.stack([[streams[0, a][t] for a in range(n_ants)] for t in batches])
    first_batch = batches[0] // (heap * 2 * n_chan)
    expected = xmodel.dumps(first_batch, spectra, np.ones(spectra.shape[:2], bool), length)
    found = harness.decode_pcap(runs[0]["xbgpu"])
    scenario.check_dumps(xbgpu, 0, found[endpoints(visibilities)[0]], expected)
    assert len(expected) == 200000 // (length * heap * 2 * n_chan)

    data = []
    for captures in runs:
        with h5py.File(captures["visrec"]) as file:
            data.append((file["Data/visdata"][()], file["Data/flags"][()], file["Header/time_array"][()]))
    assert all(np.array_equal(x, y) for x, y in zip(*data))
    pairs = [(a, b) for a in range(n_ants) for b in range(a, n_ants)]
    in_file = data[0][0].reshape(len(expected), len(pairs), n_chan, 4)
    for dump, (vis, _, _) in zip(in_file, expected.values()):
        for row, (a, b) in zip(dump, pairs):
            products = vis[:, 4 * xmodel.baseline(a, b) + np.array([0, 3, 2, 1])]  # xx, yy, xy, yx
            assert np.array_equal(row["r"], products[..., 0]) and np.array_equal(row["i"], -products[..., 1])
    assert not data[0][1].any()
