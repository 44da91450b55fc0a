"""beamrec with heaps from spead2, by capture and by multicast: files against numpy, DADA read by baseband, SIGPROC by a
reader written from the format's definition."""
import os
import re
import resource
import signal
import struct
import subprocess

import baseband.dada
import numpy as np
import pytest
import spead2
import spead2.send
import yaml

import harness
from harness import LOOPBACK, TIMEOUT_S

BEAMREC = harness.BUILD / "beamrec"
N_CHAN, N_SUB, N_SPECTRA, SPACING = 32, 4, 48, 64
BATCH = N_SPECTRA * SPACING
RATE = 2e6
SYNC_S = 1700000000
SUM_SPECTRA, SUM_CHANNELS = 12, 4
GROUPS = [f"239.78.{1 + os.getpid() % 200}.{i + 1}" for i in range(3)]
PORT = 17149


def heap(timestamp, sub, voltages):
    """A heap of one substream of voltages [chan, spectrum, (re, im)]."""
    own = voltages[sub * (N_CHAN // N_SUB):(sub + 1) * (N_CHAN // N_SUB)]
    return harness.make_heap([harness.immediate(0x1600, timestamp), harness.immediate(0x4103, sub * (N_CHAN // N_SUB)),
                              harness.immediate(0x5004, 3), harness.payload_item(0x5000, own)])


def random_batches(rng, n):
    """int8 [batch, chan, spectrum, (re, im)], the band not flat."""
    scale = np.linspace(5, 30, N_CHAN)[:, None, None]
    return np.clip(np.rint(rng.normal(0, scale, (n, N_CHAN, N_SPECTRA, 2))), -128, 127).astype(np.int8)


class Recorder:
    def __init__(self, tmp_path, n_beams=2, bits=(8, 32), **sections):
        self.path, self.log_path = tmp_path, tmp_path / "beamrec.log"
        self.config = {
            "time": {"sync_time": SYNC_S, "adc_sample_rate": RATE, "timebase": "packets"},
            "recv": {"interface": LOOPBACK},
            "stream": {"channels": N_CHAN, "channels_per_substream": N_CHAN // N_SUB, "spectra_per_heap": N_SPECTRA,
                       "samples_between_spectra": SPACING, "centre_frequency": 1e9},
            "output": {"telescope": "Test", "source": "J0000-0000"},
            "beams": [{"name": f"beam{i}", "sources": f"{GROUPS[i]}:{PORT}", "filterbank": str(tmp_path / f"{i}.fil"),
                       "voltages": str(tmp_path / f"{i}.dada"), "bits": bits[i], "sum_spectra": SUM_SPECTRA,
                       "sum_channels": SUM_CHANNELS} for i in range(n_beams)],
        }
        for section, keys in sections.items():
            self.config.setdefault(section, {}).update(keys)

    def start(self, **kwargs):
        (self.path / "beamrec.yaml").write_text(yaml.safe_dump(self.config))
        environment = {k: v for k, v in os.environ.items() if k not in ("JOURNAL_STREAM", "NOTIFY_SOCKET")}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([BEAMREC, self.path / "beamrec.yaml"], stderr=log, env=environment,
                                            **kwargs)

    def log(self):
        return self.log_path.read_text()

    def finish(self, status=0):
        assert self.process.wait(TIMEOUT_S) == status, self.log()
        account = re.search(r" info: (\d+ batch(?:es)?, \d+ of \d+ heaps missing)\n$", self.log())
        return account[1] if account else ""

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def recorder(tmp_path):
    made = []

    def make(**changes):
        made.append(Recorder(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def record(recorder, tmp_path, beams, lost=(), status=0, batches=None, kwargs=None, **changes):
    """Records a capture of beams[beam][batch], but for lost (beam, batch, sub)."""
    packets = []
    for n, batch in enumerate(batches or range(len(beams[0]))):
        for sub in range(N_SUB):
            for beam, voltages in enumerate(beams):
                if (beam, n, sub) not in lost:
                    packets += [((GROUPS[beam], PORT), packet) for packet in
                                harness.packets(heap(batch * BATCH, sub, voltages[n]), 1 + n * N_SUB + sub, 300)]
    harness.write_pcap(tmp_path / "in.pcap", packets)
    one = recorder(recv={"interface": "", "pcap_file": str(tmp_path / "in.pcap")}, n_beams=len(beams), **changes)
    one.start(**(kwargs or {}))
    return one, one.finish(status)


def read_sigproc(path):
    """(header, values [row, channel], with nifs > 1 [row, product and channel]), as SIGPROC's manual defines the format; a
    row that is not whole is left out."""
    data = path.read_bytes()
    at = 0

    def text():
        nonlocal at
        (n,) = struct.unpack_from("<i", data, at)
        at += 4 + n
        return data[at - n:at].decode()

    assert text() == "HEADER_START"
    header = {}
    while (key := text()) != "HEADER_END":
        if key == "source_name":
            header[key] = text()
            continue
        kind = "<d" if key in ("tstart", "tsamp", "fch1", "foff", "src_raj", "src_dej") else "<i"
        (header[key],) = struct.unpack_from(kind, data, at)
        at += struct.calcsize(kind)
    values = np.frombuffer(data[at:], {8: np.uint8, 32: "<f4"}[header["nbits"]])
    n_values = header["nchans"] * header["nifs"]
    n_rows = len(values) // n_values
    return header, values[:n_rows * n_values].reshape(n_rows, -1)


def powers(voltages):
    """[row, channel falling in frequency] of [batch, chan, spectrum, 2]."""
    squares = (voltages.astype(np.int64) ** 2).sum(-1)
    n = len(squares)
    sums = squares.reshape(n, N_CHAN // SUM_CHANNELS, SUM_CHANNELS, N_SPECTRA // SUM_SPECTRA, SUM_SPECTRA).sum((2, 4))
    return sums.transpose(0, 2, 1).reshape(-1, N_CHAN // SUM_CHANNELS)[:, ::-1]


def levels(values, first):
    """The 8 bits of powers.  Their scale comes from the powers of the first batch."""
    scale = 24 / np.std(first)
    return np.clip(np.rint((values - (np.mean(first) - 96 / scale)) * scale), 0, 255)


def time_ordered(voltages):
    """complex [spectrum, chan]"""
    return (voltages[..., 0] + 1j * voltages[..., 1].astype(float)).transpose(0, 2, 1).reshape(-1, N_CHAN)


def read_dada(path):
    with baseband.dada.open(str(path), "rs", squeeze=False) as file:
        return file.header0, file.start_time, file.read()[:, 0, :]


def test_files(recorder, tmp_path, rng):
    """Two beams, one of 8 bits and one of 32: all values, all headers."""
    beams = [random_batches(rng, 9) for _ in range(2)]
    first = 7 * 10 ** 6
    one, account = record(recorder, tmp_path, beams, batches=range(first, first + 9))
    assert account == "18 batches, 0 of 72 heaps missing"
    start_s = SYNC_S + first * BATCH / RATE
    for i, voltages in enumerate(beams):
        header, values = read_sigproc(tmp_path / f"{i}.fil")
        expected = powers(voltages)
        if i == 0:
            expected = levels(expected, powers(voltages[:1]))
        np.testing.assert_array_equal(values, expected)
        width_mhz = RATE / SPACING / 1e6
        assert (header["nchans"], header["nbits"], header["nifs"], header["data_type"]) == (8, [8, 32][i], 1, 1)
        assert header["source_name"] == "J0000-0000"
        assert header["tsamp"] == SUM_SPECTRA * SPACING / RATE and header["foff"] == pytest.approx(-4 * width_mhz)
        assert header["fch1"] == pytest.approx(1000 + (29.5 - 16) * width_mhz)
        assert (header["tstart"] - 40587) * 86400 == pytest.approx(start_s, abs=2e-6)
        header, start, samples = read_dada(tmp_path / f"{i}.dada")
        np.testing.assert_array_equal(samples, time_ordered(voltages))
        assert abs(start.unix - start_s) < 1e-6
        assert header["TSAMP"] == SPACING / RATE * 1e6 and header["NCHAN"] == N_CHAN
        assert header["SOURCE"] == "J0000-0000" and header["TELESCOPE"] == "Test"
        assert header["FREQ"] == pytest.approx(1000 - width_mhz / 2) and header["BW"] == pytest.approx(32 * width_mhz)
        assert header["FILE_SIZE"] == len(samples) * N_CHAN * 2
        assert not (tmp_path / f"{i}.fil.gaps").exists() and not (tmp_path / f"{i}.dada.gaps").exists()


def test_gaps(recorder, tmp_path, rng):
    """A heap, and two batches, that did not come: filled with the mean of the batches before, in voltages 0, listed."""
    voltages = random_batches(rng, 8)
    lost = {(0, 3, 1)} | {(0, n, sub) for n in (5, 6) for sub in range(N_SUB)}
    _, account = record(recorder, tmp_path, [voltages], lost, bits=[32])
    assert account == "6 batches, 9 of 32 heaps missing"
    _, values = read_sigproc(tmp_path / "0.fil")
    rows = N_SPECTRA // SUM_SPECTRA
    expected = powers(voltages).reshape(8, rows, -1).astype(float)
    of_sub1 = slice(4, 6)  # channels 8 to 15, falling
    expected[3, :, of_sub1] = expected[:3, :, of_sub1].mean((0, 1))
    means = expected[:5].mean((0, 1))
    means[of_sub1] = expected[[0, 1, 2, 4], :, of_sub1].mean((0, 1))
    expected[5:7] = means
    np.testing.assert_allclose(values, expected.reshape(-1, 8), rtol=1e-6)
    gaps = [tuple(map(int, line.split())) for line in (tmp_path / "0.fil.gaps").read_text().splitlines()]
    assert gaps == [(n * rows, rows, sub * 8, 8) for n, sub in [(3, 1)] + [(n, s) for n in (5, 6) for s in range(4)]]
    _, _, samples = read_dada(tmp_path / "0.dada")
    holed = voltages.copy()
    holed[3, 8:16] = 0
    holed[5:7] = 0
    np.testing.assert_array_equal(samples, time_ordered(holed))
    assert len((tmp_path / "0.dada.gaps").read_text().splitlines()) == 9


def test_next_file(recorder, tmp_path, rng):
    """After a gap longer than max_gap new files begin, with a new time and scale."""
    voltages = random_batches(rng, 16)
    batches = [*range(100, 104), *range(50000, 50012)]
    one, account = record(recorder, tmp_path, [voltages], batches=batches, bits=[8], output={"max_gap": 1})
    assert account == "16 batches, 0 of 64 heaps missing"
    assert f"the timestamps jumped ahead by {(50000 - 104) * BATCH} samples: the recording continues in" in one.log()
    for name, part, first in (("0", voltages[:4], 100), ("0-2", voltages[4:], 50000)):
        header, values = read_sigproc(tmp_path / f"{name}.fil")
        np.testing.assert_array_equal(values, levels(powers(part), powers(part[:1])))
        assert (header["tstart"] - 40587) * 86400 == pytest.approx(SYNC_S + first * BATCH / RATE, abs=2e-6)
        np.testing.assert_array_equal(read_dada(tmp_path / f"{name}.dada")[2], time_ordered(part))


def test_failing_write(recorder, tmp_path, rng):
    """A failed write ends the recording with one sentence and status 1.  Earlier data stay readable."""
    voltages = random_batches(rng, 20)
    limit = 30000
    one, account = record(recorder, tmp_path, [voltages], status=1, bits=[32],
                          kwargs={"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))})
    complaints = [line for line in one.log().splitlines() if "cannot be written" in line]
    assert len(complaints) == 1 and "File too large" in complaints[0]
    n = int(account.split()[0])
    assert n == (limit - 4096) // (N_CHAN * N_SPECTRA * 2)
    np.testing.assert_array_equal(read_dada(tmp_path / "0.dada")[2], time_ordered(voltages[:n]))


def test_existing_file_is_kept(recorder, tmp_path, rng):
    (tmp_path / "0.fil").write_text("precious")
    one, _ = record(recorder, tmp_path, [random_batches(rng, 1)], status=harness.EXIT_CONFIG, bits=[8])
    assert "File exists" in one.log() and (tmp_path / "0.fil").read_text() == "precious"
    assert not (tmp_path / "0.dada").exists()


def test_bad_configurations(recorder, tmp_path):
    for beam, words in [({"sum_spectra": 5}, "sum_spectra must divide"),
                        ({"sum_channels": 16}, "sum_channels must divide"),
                        ({"bits": 16}, "bits must be 8 or 32"), ({"sources": f"{GROUPS[1]}:{PORT}"}, "has the address"),
                        ({"filterbank": "", "voltages": ""}, "neither filterbank nor voltages"),
                        ({"filterbank": "one", "voltages": "one"}, "are the same file")]:
        one = recorder()
        one.config["beams"][0].update(beam)
        one.start()
        one.finish(harness.EXIT_CONFIG)
        assert words in one.log()


def send(voltages, first=0):
    config = spead2.send.StreamConfig(max_packet_size=1000, rate=5e6)
    udp = spead2.send.UdpStream(spead2.ThreadPool(), [(GROUPS[0], PORT)], config, ttl=1, interface_address=LOOPBACK)
    for n, batch in enumerate(voltages):
        for sub in range(N_SUB):
            udp.send_heap(heap((1000 + first + n) * BATCH, sub, batch), cnt=1 + (first + n) * N_SUB + sub)


def live(recorder, voltages):
    """Sends batches to a recorder that listens."""
    one = recorder(n_beams=1, time={"timebase": "packets", "clock_tolerance": 0})
    one.start()
    harness.until(lambda: "recording" in one.log(), one.log)
    send(voltages)
    return one


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_full_disk(recorder, small_disk, rng):
    """Data without room on the disk are lost and reported.  When there is room again, the lost data are a gap, filled
    and listed.  All other data are exact."""
    voltages = random_batches(rng, 60)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    one = recorder(n_beams=1, bits=[32], time={"timebase": "packets", "clock_tolerance": 0})
    one.config["beams"][0].update(voltages=str(small_disk / "0.dada"), filterbank="")
    one.start()
    harness.until(lambda: "recording" in one.log(), one.log)
    send(voltages[:30])
    harness.until(lambda: "batches are lost until the disk has room" in one.log(), one.log)
    ballast.unlink()
    send(voltages[30:36], 30)
    harness.until(lambda: "the disk has room again, and the recording continues" in one.log(), one.log)
    one.process.send_signal(signal.SIGTERM)
    one.finish(1)
    assert "batches were lost because the disk was full" in one.log()
    samples = read_dada(small_disk / "0.dada")[2].reshape(-1, N_SPECTRA, N_CHAN)
    expected = time_ordered(voltages).reshape(-1, N_SPECTRA, N_CHAN)[:len(samples)]
    expected = expected.copy()
    gaps = [[int(field) for field in line.split()] for line in (small_disk / "0.dada.gaps").read_text().splitlines()]
    for row, n_rows, channel, n_channels in gaps:  # the end may come in the middle of a batch
        assert n_rows == N_SPECTRA and row % N_SPECTRA == 0
        expected[row // N_SPECTRA, :, channel:channel + n_channels] = 0
    assert 0 < len({row for row, *_ in gaps}) < len(samples) and len(samples) > 20
    np.testing.assert_array_equal(samples, expected)


def n_bytes(path):
    return path.stat().st_size if path.exists() else 0


def test_killed_recorder_leaves_readable_files(recorder, tmp_path, rng):
    """Data that have left the window (8) are in the files, complete."""
    voltages = random_batches(rng, 20)
    one = live(recorder, voltages)
    heap_bytes = N_CHAN * N_SPECTRA * 2
    harness.until(lambda: n_bytes(tmp_path / "0.dada") >= 4096 + 12 * heap_bytes, one.log)
    one.process.kill()
    one.finish(-signal.SIGKILL)
    _, _, samples = read_dada(tmp_path / "0.dada")
    n = len(samples) // N_SPECTRA
    assert n >= 11
    np.testing.assert_array_equal(samples, time_ordered(voltages[:n]))
    header, values = read_sigproc(tmp_path / "0.fil")
    assert len(values) >= 11 * N_SPECTRA // SUM_SPECTRA
    np.testing.assert_array_equal(values, levels(powers(voltages), powers(voltages[:1]))[:len(values)])


def test_sigterm_writes_what_is_open(recorder, tmp_path, rng):
    voltages = random_batches(rng, 12)
    one = live(recorder, voltages)
    harness.until(lambda: n_bytes(tmp_path / "0.dada") >= 4096 + 4 * N_CHAN * N_SPECTRA * 2, one.log)
    one.process.send_signal(signal.SIGTERM)
    one.finish()
    samples = read_dada(tmp_path / "0.dada")[2]
    assert 4 <= len(samples) // N_SPECTRA <= 12
