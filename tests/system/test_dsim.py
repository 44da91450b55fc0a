"""dsim's output: spead2 receives it from captures and from loopback multicast, and the test compares it with a numpy model
of the signals."""
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import numpy as np
import pytest
import spead2
import spead2.recv
import yaml

import harness
from harness import EXIT_CONFIG, TIMEOUT_S, until

DSIM = harness.BUILD / "dsim"
NET = os.getpid() % 250
PORT = 20000 + os.getpid() % 10000

TIMESTAMP, DIGITISER_ID, STATUS, SAMPLES = 0x1600, 0x3101, 0x3102, 0x3300
HEADER_BYTES = 72


# ---- The model: the signals of SPECIFICATION by their definitions ---------------------------------------------------

SPECIFICATION = """
tone = cw(0.4, 1000);   x = tone + comb(0.3, 333) * 2;
nodither(x);
nodither(delay(x, -17));
nodither(multicw(3, 0.2, -0.05, 700, 1100) - 0.25);
nodither(cw(1.5, 4321));
"""


def cycles(frequency, n, fs):
    return max(1, round(n * frequency / fs))


def cw(amplitude, frequency, n, fs):
    return amplitude * np.cos(2 * np.pi * (cycles(frequency, n, fs) * np.arange(n) % n) / n)


def comb(amplitude, frequency, n, fs):
    values = np.zeros(n)
    w = cycles(frequency, n, fs)
    values[np.rint(np.arange(w) * n / w).astype(int)] = amplitude
    return values


def model(n, fs):
    x = cw(0.4, 1000, n, fs) + comb(0.3, 333, n, fs) * 2
    tones = sum(cw(0.2 - 0.05 * i, 700 + 1100 * i, n, fs) for i in range(3))
    return [x, np.roll(x, -17), tones - 0.25, cw(1.5, 4321, n, fs)]


def check_samples(samples, values, bits, where):
    """Equal to the clipped and rounded values, up to ties that the last bit of a cosine may turn."""
    limit = 2 ** (bits - 1) - 1
    scaled = np.clip(values * limit, -limit, limit)
    wrong = np.abs(samples - scaled) > 0.5 + 1e-9
    assert not wrong.any(), f"{where}: samples {np.flatnonzero(wrong)[:5]} of {len(samples)} differ"


# ---- Running and receiving ------------------------------------------------------------------------------------------

def group(i):
    return f"239.103.{NET}.{i}"


def endpoints(i, n=1):
    return f"{group(i)}+{n - 1}:{PORT}" if n > 1 else f"{group(i)}:{PORT}"


def make_config(**overrides):
    """Two antennas; polarisation 0 of the first is dealt over three endpoints.  Overrides are updates of sections."""
    config = {
        "time": {"sync_time": 1700000000, "adc_sample_rate": 48000},
        "digitiser": {"packet_samples": 264, "period": 264 * 15, "dither_seed": 1},
        "signals": {"specification": SPECIFICATION},
        "antennas": [
            {"name": "a", "digitiser_id": 4, "pol0": endpoints(0, 3), "pol1": endpoints(3)},
            {"name": "b", "digitiser_id": 10, "pol0": endpoints(4), "pol1": endpoints(5, 2)},
        ],
        "send": {"interface": "127.0.0.1"},
    }
    for section, keys in overrides.items():
        config.setdefault(section, {}).update(keys)
    return config


# (digitiser id, first group, number of groups) of each input of make_config().
INPUTS = [(4, 0, 3), (5, 3, 1), (10, 4, 1), (11, 5, 2)]


def write_config(tmp_path, config):
    path = tmp_path / "dsim.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def run(tmp_path, config):
    return subprocess.run([DSIM, write_config(tmp_path, config)], capture_output=True, text=True, timeout=TIMEOUT_S)


class Heap:
    """The contents of a received heap."""

    def __init__(self, heap):
        self.cnt = heap.cnt
        self.descriptors = {d.id: d for d in heap.get_descriptors()}
        self.items = {item.id: item for item in heap.get_items()}
        self.arrival = time.time()

    def immediate(self, item_id):
        return self.items[item_id].immediate_value


def make_stream():
    config = spead2.recv.StreamConfig(max_heaps=4)
    return spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=10000))


def receive(stream, heaps):
    """Appends (Heap, samples) for all heaps of a stream, in order of arrival. spead2 unpacks the samples by dsim's
    descriptors; None for heaps that come before a descriptor."""
    item_group = spead2.ItemGroup()
    for received in stream:
        heap = Heap(received)
        updated = item_group.update(received)
        samples = np.asarray(updated["adc_samples"].value, np.int64) if "adc_samples" in updated else None
        heaps.append((heap, samples))
    return heaps


def read_capture(path, address):
    stream = make_stream()
    stream.add_udp_pcap_file_reader(str(path), filter=f"dst host {address} and udp dst port {PORT}")
    return receive(stream, [])


# ---- Captures -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("bits", [2, 5, 10, 12, 16])
def test_capture(tmp_path, bits):
    """Every field of every heap, over three sendings of the descriptors."""
    pcap = tmp_path / "out.pcap"
    first, fs, packet, period = 264 * 7, 48000, 264, 264 * 15
    config = make_config(digitiser={"sample_bits": bits, "duration": 10.1, "first_timestamp": first},
                         send={"pcap_file": str(pcap)})
    done = run(tmp_path, config)
    n_heaps = int(10.1 * fs) // packet
    assert done.returncode == 0, done.stderr
    assert f"{n_heaps} heaps per polarisation sent, 0 packets failed" in done.stdout

    values = model(period, fs)
    limit = 2 ** (bits - 1) - 1
    for i, (digitiser_id, first_group, n_groups) in enumerate(INPUTS):
        by_group = [read_capture(pcap, group(first_group + g)) for g in range(n_groups)]
        described = [heap for heap, _ in by_group[0] if heap.descriptors]
        assert [heap.cnt for heap in described] == [1, 3, 5]
        for heap in described:
            assert set(heap.descriptors) == {TIMESTAMP, DIGITISER_ID, STATUS, SAMPLES}
            assert heap.descriptors[SAMPLES].name == b"adc_samples"
            assert heap.descriptors[SAMPLES].format == [("i", bits)]
            assert tuple(heap.descriptors[SAMPLES].shape) == (packet,)
            assert heap.descriptors[TIMESTAMP].format == [("u", 48)]
        for others in by_group[1:]:
            assert not any(heap.descriptors for heap, _ in others)

        numbers = []
        for g, heaps in enumerate(by_group):
            for heap, samples in heaps:
                if heap.descriptors:
                    continue
                timestamp = heap.immediate(TIMESTAMP)
                number = (timestamp - first) // packet
                numbers.append(number)
                assert timestamp == first + number * packet
                assert timestamp // packet % n_groups == g
                assert heap.cnt == 2 + 2 * number
                assert heap.immediate(DIGITISER_ID) == digitiser_id
                start = timestamp % period
                expected = values[i][start:start + packet]
                n_saturated = np.sum(np.abs(np.rint(np.clip(expected * limit, -limit, limit))) == limit)
                assert heap.immediate(STATUS) == int(n_saturated) << 32 | (2 if n_saturated else 0)
                if g == 0:
                    check_samples(samples, expected, bits, f"input {i}, heap {number}")
        assert sorted(numbers) == list(range(n_heaps))

    lengths = [len(payload) for _, payload in harness.read_pcap(pcap)]
    data = [n for n in lengths if n == HEADER_BYTES + packet * bits // 8]
    assert len(data) == len(INPUTS) * n_heaps and len(lengths) == len(data) + 3 * len(INPUTS)


def test_order_of_packets(tmp_path):
    """Descriptors first, then time-major, by antenna and polarisation."""
    pcap = tmp_path / "out.pcap"
    done = run(tmp_path, make_config(digitiser={"duration": 1, "first_timestamp": 0}, send={"pcap_file": str(pcap)}))
    assert done.returncode == 0, done.stderr
    stream = make_stream()
    stream.add_udp_pcap_file_reader(str(pcap))
    heaps = [Heap(received) for received in stream]
    assert all(heap.descriptors for heap in heaps[:4])
    seen = [(heap.immediate(TIMESTAMP), heap.immediate(DIGITISER_ID)) for heap in heaps[4:]]
    ids = [digitiser_id for digitiser_id, _, _ in INPUTS]
    assert seen == [(264 * i, digitiser_id) for i in range(48000 // 264) for digitiser_id in ids]


def test_timestamps_wrap_on_the_wire(tmp_path):
    """The timestamp wraps at 48 bits, but the signal continues."""
    pcap = tmp_path / "out.pcap"
    packet, period = 256, 256 * 15
    first = (1 << 48) - 10 * packet
    config = make_config(digitiser={"packet_samples": packet, "period": period, "duration": 0.2,
                                    "first_timestamp": first},
                         send={"pcap_file": str(pcap)})
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    values = model(period, 48000)[1]
    heaps = [(heap, samples) for heap, samples in read_capture(pcap, group(3)) if not heap.descriptors]
    assert len(heaps) == int(0.2 * 48000) // packet
    for number, (heap, samples) in enumerate(heaps):
        timestamp = first + number * packet
        assert heap.immediate(TIMESTAMP) == timestamp % (1 << 48)
        start = timestamp % period
        check_samples(samples, values[start:start + packet], 10, f"heap {number}")


def noise_capture(tmp_path, name, specification, dither_seed):
    pcap = tmp_path / name
    config = make_config(digitiser={"duration": 0.5, "first_timestamp": 0, "dither_seed": dither_seed},
                         signals={"specification": specification}, send={"pcap_file": str(pcap)})
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    return [np.concatenate([samples for heap, samples in read_capture(pcap, group(g)) if not heap.descriptors])
            for g in (3, 4)]


def test_noise_is_reproducible(tmp_path):
    first = noise_capture(tmp_path, "1.pcap", "wgn(0.1, 7);", 5)
    again = noise_capture(tmp_path, "2.pcap", "wgn(0.1, 7);", 5)
    dithered_else = noise_capture(tmp_path, "3.pcap", "wgn(0.1, 7);", 6)
    other = noise_capture(tmp_path, "4.pcap", "wgn(0.1);", 5)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert 0 < np.max(np.abs(first[0] - dithered_else[0])) <= 1
    assert 0 < np.max(np.abs(first[0] - first[1])) <= 1  # the same noise, but a dither of its own
    assert abs(np.corrcoef(first[0], other[0])[0, 1]) < 0.1
    assert np.std(first[0][:3960]) == pytest.approx(51.1, rel=0.06)


def test_common_and_independent_noise(tmp_path):
    """A variable is one noise, wherever it is used."""
    common = noise_capture(tmp_path, "1.pcap", "s = wgn(0.1); 0; s + wgn(0.1); s + wgn(0.1); 0;", -1)
    assert np.corrcoef(common[0][:3960], common[1][:3960])[0, 1] == pytest.approx(0.5, abs=0.07)


def test_pulsar(tmp_path):
    """Pulses of the noise that wgn() has, dispersed by numpy; three samples later at the second antenna."""
    n, rate, radio = 1 << 16, 2e6, 10e6
    dm = 0.004  # 9.2 ms across the band of 1 MHz
    specification = (f"p = pulsar(0.1, {n / rate / 4}, {n / rate / 32}, {dm}, {radio}, 7); nodither(wgn(0.1, 7)); "
                     "nodither(p); nodither(delay(p, 3)); 0;")
    config = make_config(time={"adc_sample_rate": rate}, signals={"specification": specification},
                         digitiser={"packet_samples": 256, "period": n, "duration": n / rate, "first_timestamp": 0,
                                    "sample_bits": 16},
                         send={"pcap_file": str(tmp_path / "out.pcap")})
    for pol in "pol0", "pol1":
        for i, antenna in enumerate(config["antennas"]):
            antenna[pol] = endpoints(2 * i + int(pol[3]))
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    noise, pulsar, delayed = (
        np.concatenate([samples for heap, samples in read_capture(tmp_path / "out.pcap", group(g))
                        if samples is not None and not heap.descriptors]).astype(float) for g in range(3))
    assert len(noise) == n and np.array_equal(delayed, np.roll(pulsar, 3))
    pulses = np.where(np.arange(n) % (n // 4) < n // 32, noise, 0)
    f = radio + np.fft.rfftfreq(n, 1 / rate)
    top = radio + rate / 2
    chirp = np.exp(2j * np.pi * dm / 2.41e-4 * 1e12 * (f - top) ** 2 / (top ** 2 * f))
    error = pulsar - np.fft.irfft(np.fft.rfft(pulses) * chirp, n)
    assert np.std(pulsar) > 1000 and np.std(error) < 0.45, "half a step of rounding, twice"
    folded = np.mean(np.fft.irfft(np.fft.rfft(pulsar) / chirp, n).reshape(4, 8, -1) ** 2, axis=(0, 2))
    assert np.argmax(folded) == 0 and np.all(folded[1:] < 1e-6 * folded[0])


def test_pulsar_period(tmp_path):
    config = make_config(signals={"specification": "pulsar(0.1, 0.01, 1e-3, 0.1, 1e7);"})
    done = run(tmp_path, config)
    assert done.returncode == EXIT_CONFIG and "pulsar() needs a period that is a power of two" in done.stderr


TRACKS = """
sky = cw(0.4, 5000) + multicw(5, 0.1, 0, 700, 4012);
nodither(track(sky, 3.3, 2.5e-4));
nodither(0.5 * track(sky, -1000.7, -1e-9) + delay(cw(0.2, 300), 3));
nodither(cw(1.5, 4321));
nodither(track(cw(0.9, 21600), 1e6, 1e-3));
"""
TONES = [(0.4, 5000)] + [(0.1, 700 + 4012 * i) for i in range(5)]


def tracked(tones, delay, rate, timestamps, n, fs):
    """Tones of n samples' period at timestamp - (delay + rate timestamp)."""
    positions = timestamps % n - (delay + rate * timestamps)
    return sum(a * np.cos(2 * np.pi * cycles(f, n, fs) * positions / n) for a, f in tones)


def tracks_model(timestamps, n, fs):
    return [tracked(TONES, 3.3, 2.5e-4, timestamps, n, fs),
            0.5 * tracked(TONES, -1000.7, -1e-9, timestamps, n, fs) + tracked([(0.2, 300)], 3, 0, timestamps, n, fs),
            tracked([(1.5, 4321)], 0, 0, timestamps, n, fs),
            tracked([(0.9, 21600)], 1e6, 1e-3, timestamps, n, fs)]


def check_tracks(heaps, i, period, fs):
    """The signal after 'timestamp' samples of drift, to 1e-4 of full scale."""
    for heap, samples in heaps:
        timestamp = heap.immediate(TIMESTAMP)
        expected = 511 * tracks_model(timestamp + np.arange(264), period, fs)[i]
        error = np.max(np.abs(samples - np.clip(expected, -511, 511)))
        assert error < 0.5 + 0.05, f"input {i}, heap at {timestamp}: {error}"


@pytest.mark.parametrize("first", [0, 264 * 7, 264 * 10 ** 9])
def test_tracks(tmp_path, first):
    """Drifting signals, which continue after the end of a period, at 0 and long after it."""
    pcap = tmp_path / "out.pcap"
    config = make_config(digitiser={"duration": 2, "first_timestamp": first}, signals={"specification": TRACKS},
                         send={"pcap_file": str(pcap)})
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    for i, (_, group_of_pol, _) in enumerate(INPUTS):
        heaps = [(heap, samples) for heap, samples in read_capture(pcap, group(group_of_pol)) if samples is not None
                 and not heap.descriptors]
        assert len(heaps) >= 48000 * 2 // 264 // 3
        check_tracks(heaps, i, 264 * 15, 48000)


# ---- The network ----------------------------------------------------------------------------------------------------

class Receiver:
    """Receives each input of make_config() on a separate thread, all its groups in one stream."""

    def __init__(self):
        self.heaps = [[] for _ in INPUTS]
        self.streams, self.threads = [], []
        for i, (_, first_group, n_groups) in enumerate(INPUTS):
            stream = make_stream()
            for g in range(n_groups):
                stream.add_udp_reader(group(first_group + g), PORT, buffer_size=1 << 20,
                                      interface_address="127.0.0.1")
            self.streams.append(stream)
            self.threads.append(threading.Thread(target=receive, args=(stream, self.heaps[i])))
            self.threads[-1].start()

    def data(self, i):
        return [(heap, samples) for heap, samples in self.heaps[i] if not heap.descriptors]

    def wait(self, n_heaps):
        """Until each input has 'n_heaps' data heaps."""
        received = lambda: [len(self.data(i)) for i in range(len(INPUTS))]
        until(lambda: min(received()) >= n_heaps, lambda: f"{n_heaps} heaps of each, but {received()}")

    def wait_since(self, timestamp, n_heaps):
        """Until each input has 'n_heaps' data heaps from this timestamp on.  A busy host receives heaps late."""
        received = lambda: [sum(heap.immediate(TIMESTAMP) >= timestamp for heap, _ in self.data(i)) for i in range(len(INPUTS))]
        until(lambda: min(received()) >= n_heaps, lambda: f"{n_heaps} heaps of each since {timestamp}, but {received()}")

    def close(self):
        for stream in self.streams:
            stream.stop()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def start(tmp_path):
    processes = []

    def start(config, env=None):
        processes.append(subprocess.Popen([DSIM, write_config(tmp_path, config)], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("n_threads", [1, 3])
def test_real_time(receiver, start, n_threads):
    """By the clock: the first timestamp on the period, each heap when its last sample is due and not before."""
    fs, packet, period, sync = 48000, 264, 264 * 15, 1700000000.25
    process = start(make_config(time={"sync_time": sync}, send={"threads": n_threads}))

    def lateness():
        return [heap.arrival - (sync + (heap.immediate(TIMESTAMP) + packet) / fs)
                for i in range(len(INPUTS)) for heap, _ in receiver.data(i)]

    receiver.wait(int(1.5 * fs) // packet)
    until(lambda: min(lateness()) < 0.2, "a heap on time")  # a busy host delays heaps
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    n_heaps = int(stdout.split(" heaps per polarisation sent, 0 packets failed")[0].split()[-1])
    timestamps = lambda i: sorted(heap.immediate(TIMESTAMP) for heap, _ in receiver.data(i))
    # The threads do not end at the same heap.
    until(lambda: all(len(timestamps(i)) >= n_heaps and set(np.diff(timestamps(i))) == {packet} for i in range(len(INPUTS))),
          f"{n_heaps} heaps of each input, without a gap")

    values = model(period, fs)
    firsts = set()
    for i, (digitiser_id, _, n_groups) in enumerate(INPUTS):
        heaps = sorted(receiver.data(i), key=lambda pair: pair[0].immediate(TIMESTAMP))
        first = heaps[0][0].immediate(TIMESTAMP)
        firsts.add(first)
        n_undescribed = 0
        for heap, samples in heaps:
            timestamp = heap.immediate(TIMESTAMP)
            assert heap.immediate(DIGITISER_ID) == digitiser_id
            if samples is None:
                n_undescribed += 1
                continue
            start_in_period = timestamp % period
            check_samples(samples, values[i][start_in_period:start_in_period + packet], 10, f"input {i}")
        assert n_undescribed <= n_groups  # groups are different sockets, so some may overtake the descriptors
    assert len(firsts) == 1 and firsts.pop() % period == 0
    assert min(lateness()) > -0.001


def test_tracks_in_real_time(receiver, start):
    """Computed while they are sent: none missing, none before its time, and soon begun."""
    sync = time.time() - 1e6
    process = start(make_config(time={"sync_time": sync}, signals={"specification": TRACKS}))
    receiver.wait(100)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    n_sent = int(stdout.split(" heaps per polarisation")[0].split()[-1])
    receiver.wait(n_sent)
    for i in range(len(INPUTS)):
        heaps = sorted(receiver.data(i), key=lambda pair: pair[0].immediate(TIMESTAMP))
        timestamps = [heap.immediate(TIMESTAMP) for heap, _ in heaps]
        assert np.all(np.diff(timestamps) == 264) and timestamps[0] % (264 * 15) == 0
        assert min(heap.arrival - (sync + (heap.immediate(TIMESTAMP) + 264) / 48000) for heap, _ in heaps) > -0.001
        check_tracks([pair for pair in heaps if pair[1] is not None], i, 264 * 15, 48000)


def test_stop_by_signal(receiver, start, tmp_path):
    """READY comes when it sends; SIGTERM ends it cleanly; an explicit first timestamp starts at once."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(TIMEOUT_S)
    http_port = harness.free_tcp_port()
    process = start(make_config(digitiser={"first_timestamp": 264 * 1000}, http={"listen": f"127.0.0.1:{http_port}"}),
                    {"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert b"READY=1" in notify.recv(4096)
    receiver.wait(20)
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=TIMEOUT_S).read().decode()
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(values["dsim_packets_sent_total"]) >= 80
    assert float(values["dsim_packets_failed_total"]) == 0
    assert 0 <= float(values["dsim_time_error_s"]) < TIMEOUT_S

    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    n_sent = int(stdout.split(" heaps per polarisation")[0].split()[-1])
    receiver.wait(n_sent)
    for i in range(len(INPUTS)):
        timestamps = sorted(heap.immediate(TIMESTAMP) for heap, _ in receiver.data(i))
        assert timestamps == [264 * (1000 + n) for n in range(n_sent)]


@pytest.mark.parametrize("n_threads", [1, 9])
def test_catches_up(receiver, start, n_threads):
    """A host that stalls for more than a second delays the heaps and loses none.  The log reports the delay."""
    process = start(make_config(send={"threads": n_threads}))
    receiver.wait(5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    n_before = len(receiver.data(0))
    process.send_signal(signal.SIGCONT)
    receiver.wait(n_before + int(1.2 * 48000) // 264)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    assert stderr.count("does not keep up") == 1
    assert float(stdout.split("at most ")[1].split()[0]) > 1
    n_sent = int(stdout.split(" heaps per polarisation")[0].split()[-1])
    receiver.wait(n_sent)
    n_received = []
    for i in range(len(INPUTS)):
        timestamps = sorted(heap.immediate(TIMESTAMP) for heap, _ in receiver.data(i))
        assert np.all(np.diff(timestamps) == 264)
        n_received.append(len(timestamps))
    assert min(n_received) == n_sent
    assert n_threads > 1 or max(n_received) == n_sent


# ---- What it refuses ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("overrides, says", [
    ({"signals": {"specification": "a = 1;\ncw(a, 2);"}}, "line 2, column 4: expected the amplitude, a number"),
    ({"signals": {"specification": "1; 2;"}}, "2 expressions"),
    ({"digitiser": {"sample_bits": 11}}, "2 to 10, 12 or 16"),
    ({"digitiser": {"period": 265}}, "multiple of packet_samples"),
    ({"digitiser": {"first_timestamp": 1}}, "multiple of packet_samples"),
    ({"digitiser": {"packet_samples": 65536, "period": 65536, "sample_bits": 16}}, "one packet"),
    ({"send": {"pcap_file": "x.pcap"}}, "needs a duration"),
    ({"send": {"interface": "nosuchif0"}}, "nosuchif0"),
    ({"send": {"affinity": [4000]}}, "send.affinity: no thread can be pinned to CPU 4000"),
    ({"antennas": [{"name": "a", "digitiser_id": 3, "pol0": endpoints(0), "pol1": endpoints(1)}],
      "signals": {"specification": "1;"}}, "even"),
])
def test_refused(tmp_path, overrides, says):
    config = make_config()
    for section, keys in overrides.items():
        if isinstance(keys, list):
            config[section] = keys
        else:
            config[section].update(keys)
    done = run(tmp_path, config)
    assert done.returncode == EXIT_CONFIG
    assert says in done.stdout + done.stderr


def test_period_too_long_for_the_memory(tmp_path):
    config = make_config(digitiser={"period": 1 << 31, "packet_samples": 4096, "sample_bits": 16})
    config["antennas"] = [{"name": f"a{i}", "digitiser_id": 2 * i, "pol0": endpoints(0), "pol1": endpoints(1)}
                          for i in range(1024)]
    config["signals"] = {"specification": "wgn(0.1);"}
    done = run(tmp_path, config)
    assert done.returncode != 0
    assert "make the period shorter" in done.stderr
