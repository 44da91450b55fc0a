"""visrec with heaps from spead2, by capture and by multicast; pyuvdata reads the result with all its checks."""

import importlib
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import warnings

import h5py
import numpy as np
import pytest
import spead2
import spead2.send
import yaml

import harness
import scenario
from harness import LOOPBACK, ROOT, TIMEOUT_S

VISREC = harness.BUILD / "visrec"
MAGIC = (-(2**31), 1)
LIGHT_M_S = 299792458.0
POLS = ["xx", "yy", "xy", "yx"]  # AIPS's numbers -5 to -8
ANTENNAS = [  # east, north, up in metres
    ("m000", [0.0, 0.0, 0.0]),
    ("m001", [310.0, 4.0, 1.5]),
    ("m002", [-25.0, 480.0, -3.0]),
    ("m003", [120.0, -230.5, 6.25]),
]


class Stream:
    """The shape of a correlation stream, and its heaps as an X-engine would send them."""

    def __init__(self, n_ants=3, n_chan=32, n_sub=4, weights=False, sample_rate=64e6, batches=16, gate=False, real=False):
        self.gate, self.real = gate, real
        self.n_ants, self.n_chan, self.n_sub, self.weights = n_ants, n_chan, n_sub, weights
        self.n_baselines = n_ants * (n_ants + 1) // 2
        self.chan_per_sub = n_chan // n_sub
        self.sample_rate = sample_rate
        self.spectra_per_heap, self.spacing, self.batches = 64, 2 * n_chan, batches
        self.n_spectra = self.spectra_per_heap * batches
        self.dump_samples = self.n_spectra * self.spacing

    def random_vis(self, rng):
        """[chan, baseline in the heap's order, p1 + 2 p2, (re, im)], up to the limits; xx and yy of autos real."""
        vis = rng.integers(-(2**31) + 1, 2**31, (self.n_chan, self.n_baselines, 4, 2), dtype=np.int64)
        for a in range(self.n_ants):
            auto = baseline_index(a, a)
            vis[:, auto, [0, 3]] = np.abs(vis[:, auto, [0, 3]]) * [1, 0]
            vis[:, auto, 2] = vis[:, auto, 1] * [1, -1]
        return vis

    def heap(self, timestamp, sub, vis, weights=None, descriptors=False, gate_spectra=None):
        """A heap of one substream of 'vis' [chan, baseline, product, (re, im)], weights [baseline] or [chan, baseline],
        gate_spectra [chan] of the substream."""
        own = vis[sub * self.chan_per_sub:(sub + 1) * self.chan_per_sub].astype("<f4" if self.real else "<i4")
        group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, 48))
        add_immediate(group, 0x1600, "timestamp", timestamp & (2**48 - 1))
        add_immediate(group, 0x4103, "frequency", sub * self.chan_per_sub)
        raw = own.reshape(self.chan_per_sub, self.n_baselines * 4, 2)
        group.add_item(0x1800, "xeng_raw", "", shape=raw.shape, dtype=raw.dtype, value=raw)
        if self.weights:
            own_weights = np.asarray(weights, "<u4")
            group.add_item(0x1801, "weights", "", shape=own_weights.shape, dtype=own_weights.dtype, value=own_weights)
        if self.gate:
            add_immediate(group, 0x1802, "gate", 1)
            spectra = np.asarray(gate_spectra, "<u4")
            group.add_item(0x1803, "gate_spectra", "", shape=spectra.shape, dtype=spectra.dtype, value=spectra)
        heap = group.get_heap(descriptors="all" if descriptors else "none", data="all")
        heap.repeat_pointers = True
        return heap

    def expected(self, vis):
        """The file's expected data for a dump: [baseline of the file, chan, pol], complex."""
        rows = []
        for a1, a2 in file_baselines(self.n_ants):
            products = vis[:, baseline_index(a1, a2)].astype(float)
            value = products[..., 0] + 1j * products[..., 1]
            rows.append(np.stack([value[:, "xy".index(pol[0]) + 2 * "xy".index(pol[1])] for pol in POLS], axis=-1))
        return np.conj(rows)


def add_immediate(group, number, name, value):
    group.add_item(number, name, "", shape=(), format=[("u", 48)], value=value)


def baseline_index(a1, a2):
    """In the heap, a1 <= a2."""
    return a2 * (a2 + 1) // 2 + a1


def file_baselines(n_ants):
    return [(a1, a2) for a1 in range(n_ants) for a2 in range(a1, n_ants)]


def packets_of(stream, heaps, payload=200):
    """The packets of each heap, as spead2 makes them: a list of lists."""
    return [harness.packets(heap, count, payload + 80) for count, heap in heaps]


def ut1_utc_s(unix_s):
    from astropy.time import Time

    return round(float(Time(unix_s, format="unix").delta_ut1_utc), 4)


class Recorder:
    """A recorder's configuration, process and file."""

    def __init__(self, tmp_path, stream, changes):
        self.path = tmp_path / "out.uvh5"
        self.config_path = tmp_path / "visrec.yaml"
        self.log_path = tmp_path / "visrec.log"
        self.config = {
            "time": {"sync_time": "1700000000.5", "adc_sample_rate": stream.sample_rate, "timebase": "packets"},
            "recv": {"sources": "239.1.2.3:7148", "interface": LOOPBACK},
            "stream": {
                "channels": stream.n_chan, "channels_per_substream": stream.chan_per_sub,
                "spectra_per_heap": stream.spectra_per_heap, "samples_between_spectra": stream.spacing,
                "integration_batches": stream.batches, "weights": stream.weights,
            },
            "telescope": {"name": "test array", "latitude": -30.7128, "longitude": 21.4439, "altitude": 1038.0,
                          "ut1_utc": 0.0104},
            "antennas": [{"name": name, "position": position} for name, position in ANTENNAS[:stream.n_ants]],
            "output": {"file": str(self.path)},
        }
        for section, keys in changes.items():
            self.config.setdefault(section, {}).update(keys)
        self.process = None

    def start(self, **kwargs):
        self.config_path.write_text(yaml.safe_dump(self.config))
        environment = {k: v for k, v in os.environ.items() if k not in ("JOURNAL_STREAM", "NOTIFY_SOCKET")}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([VISREC, self.config_path], stdout=subprocess.PIPE, stderr=log,
                                            env=environment, **kwargs)

    def finish(self, *statuses):
        """Waits for the end, with one of these statuses or 0; returns (the account of dumps and heaps in the last line, log)."""
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        log = self.log_text()
        assert not output
        for line in log.splitlines():
            assert re.match(r"20\d\d-\d\d-\d\dT[\d:.]+Z visrec\[\d+\] |.*\.yaml:\d+:", line), line
        account = re.search(r" info: (\d+ dumps?, \d+ of \d+ heaps missing), \d+\.\d\d % flagged\n$", log)
        assert self.process.returncode in (statuses or (0,)), log
        return account[1] if account else "", log

    def run(self, *statuses, **kwargs):
        self.start(**kwargs)
        return self.finish(*statuses)

    def log_text(self):
        return self.log_path.read_text()

    def start_recording(self):
        self.start()
        harness.until(lambda: "recording" in self.log_text() or self.process.poll() is not None, self.log_text)
        assert self.process.poll() is None, self.log_text()

    def n_dumps(self):
        """In the file at this moment; 0 while it cannot be read."""
        try:
            with h5py.File(self.path, "r") as file:
                return int(file["Header/Ntimes"][()])
        except (OSError, KeyError):
            return 0

    def metrics(self):
        """{name with labels: value}"""
        lines = harness.page(self.config["http"]["listen"], "metrics").splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def health(self):
        """HTTP's status."""
        try:
            harness.page(self.config["http"]["listen"], "healthz")
            return 200
        except urllib.error.HTTPError as error:
            return error.code

    def n_packets(self):
        """Received until this moment; as many as you like once it has ended."""
        try:
            return self.metrics()['visrec_packets_total{thread="visrec-recv"}']
        except OSError:
            return math.inf

    def wait_for_packets(self, n):
        harness.until(lambda: self.n_packets() >= n or self.process.poll() is not None, self.log_text)

    def wait_until_taken(self, n):
        """Until 'n' dumps are written or counted as unwritten.  A dump that comes while the writer is busy with as many
        as it has buffers is lost in the receive thread."""
        def n_taken():
            metrics = self.metrics()
            return metrics["visrec_dumps_total"] + metrics["visrec_unwritten_dumps_total"]
        harness.until(lambda: n_taken() >= n, self.log_text)

    def wait_for_dumps(self, n):
        harness.until(lambda: self.n_dumps() >= n or self.process.poll() is not None, self.log_text)

    def read(self):
        """The file as pyuvdata sees it, every check on (sidereal times to 5 ms) and every warning an error but that its
        table of the earth is old."""
        import pyuvdata

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="time is out of IERS range")
            uvd = pyuvdata.UVData()
            uvd.read_uvh5(self.path, run_check=True, check_extra=True, run_check_acceptability=True,
                          strict_uvw_antpos_check=True, check_autos=True, fix_autos=False)
        return uvd

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def recorder(tmp_path):
    made = []

    def make(stream, changes=None):
        made.append(Recorder(tmp_path, stream, changes or {}))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def from_capture(tmp_path, packets):
    """The change of the configuration that reads these packets."""
    harness.write_pcap(tmp_path / "in.pcap", [(("239.1.2.3", 7148), packet) for packet in packets])
    return {"recv": {"interface": "", "pcap_file": str(tmp_path / "in.pcap")}}


def record_capture(recorder, tmp_path, stream, packets, changes=None):
    one = recorder(stream, from_capture(tmp_path, packets) | (changes or {}))
    output, _ = one.run()
    return one, output


def heaps_of_dump(stream, index, vis, weights=None):
    """The heaps of a dump with counts as an engine that starts at dump 0 gives them: [(count, heap)]."""
    return [(sub + stream.n_sub * index,
             stream.heap(index * stream.dump_samples, sub, vis, None if weights is None else weights[sub]))
            for sub in range(stream.n_sub)]


def flatten(lists):
    return [item for items in lists for item in items]


def test_complete_dumps(recorder, tmp_path, rng):
    """Values, order, polarisations, times, frequencies and geometry."""
    stream = Stream(n_ants=4)
    dumps = {index: stream.random_vis(rng) for index in range(7, 12)}
    packets = flatten(packets_of(stream, flatten(heaps_of_dump(stream, i, vis) for i, vis in dumps.items())))
    one, output = record_capture(recorder, tmp_path, stream, packets, {"stream": {"centre_frequency": 1284e6}})
    assert output == "5 dumps, 0 of 20 heaps missing"

    uvd = one.read()
    assert (uvd.Ntimes, uvd.Nbls, uvd.Nfreqs, uvd.Npols) == (5, 10, 32, 4)
    assert uvd.get_pols() == POLS
    pairs = file_baselines(4)
    assert list(zip(uvd.ant_1_array, uvd.ant_2_array)) == pairs * 5
    np.testing.assert_array_equal(uvd.data_array, np.concatenate([stream.expected(vis) for vis in dumps.values()]))
    assert not uvd.flag_array.any()
    assert (uvd.nsample_array == 1).all()

    middles_s = [1700000000.5 + (index + 0.5) * stream.dump_samples / 64e6 for index in dumps]
    np.testing.assert_allclose((uvd.time_array[::10] - 2440587.5) * 86400, middles_s, rtol=0, atol=4e-5)
    np.testing.assert_allclose(uvd.integration_time, stream.dump_samples / 64e6, rtol=1e-14)
    np.testing.assert_allclose(uvd.freq_array, 1284e6 + (np.arange(32) - 16) * 1e6, rtol=1e-14)
    np.testing.assert_allclose(uvd.channel_width, 1e6)
    np.testing.assert_allclose(uvd.telescope.get_enu_antpos(), [p for _, p in ANTENNAS], atol=1e-6)
    assert list(uvd.telescope.antenna_names) == [name for name, _ in ANTENNAS]
    assert uvd.telescope.name == "test array"
    positions = np.array([p for _, p in ANTENNAS])
    np.testing.assert_allclose(uvd.uvw_array[:10], [positions[a2] - positions[a1] for a1, a2 in pairs], atol=1e-9)
    # The zenith is at the sidereal time; pyuvdata, which wants it to 5 ms, has its own from the times and IERS's tables.
    np.testing.assert_array_equal(uvd.phase_center_app_ra, uvd.lst_array)
    recorded = uvd.lst_array.copy()
    uvd.set_lsts_from_time_array()
    difference_s = ((recorded - uvd.lst_array + math.pi) % (2 * math.pi) - math.pi) / (2 * math.pi) * 86400
    assert 0 < np.abs(difference_s).max() < 3e-3
    assert "samples_between_spectra: 64" in uvd.history


def test_loss(recorder, tmp_path, rng):
    """Heaps and packets that are lost, doubled, late or foreign; a dump that never came; an engine that restarts."""
    stream = Stream(n_ants=3)
    indices = [3, 4, 6, 7, 8]  # dump 5 never comes
    dumps = {index: stream.random_vis(rng) for index in indices}
    dumps[4][:, [baseline_index(0, 2), baseline_index(2, 2)]] = MAGIC
    heaps = {index: packets_of(stream, heaps_of_dump(stream, index, vis)) for index, vis in dumps.items()}

    packets = []
    # Dump 3: interleaved, out of order, each packet of substream 2 twice.
    first = flatten(heaps[3]) + heaps[3][2]
    packets += [first[i] for i in rng.permutation(len(first))]
    # Dump 4: substream 1 lacks a packet, which a second copy of another does not make up for.
    packets += heaps[4][0] + heaps[4][1][:2] + heaps[4][1][1:2] + heaps[4][1][3:] + flatten(heaps[4][2:])
    # Dump 6: substream 3 is absent; its last packet of substream 0 comes after those of dump 7.
    packets += heaps[6][0][:-1] + flatten(heaps[6][1:3])
    packets += flatten(heaps[7]) + heaps[6][0][-1:]
    # Between them what is not ours: descriptors, a stop heap, another length, a timestamp in between, another channel.
    foreign = [stream.heap(0, 0, dumps[3], descriptors=True)]
    group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, 48))
    foreign += [group.get_end()]
    wrong = Stream(n_ants=4)
    foreign += [wrong.heap(7 * stream.dump_samples, 0, wrong.random_vis(rng))]
    foreign += [stream.heap(7 * stream.dump_samples + stream.spacing, 0, dumps[3])]
    shifted = Stream(n_ants=3, n_sub=8)
    foreign += [shifted.heap(7 * stream.dump_samples, 1, dumps[3])]
    packets += flatten(packets_of(stream, list(enumerate(foreign))))
    packets += [b"", b"S", b"not SPEAD at all", packets[0][:40]]
    # Dump 8 from engines that have started again: heap counts from 0.
    packets += flatten(packets_of(stream, heaps_of_dump(stream, 0, dumps[8]) and
                                  [(sub, stream.heap(8 * stream.dump_samples, sub, dumps[8])) for sub in range(4)]))
    one, output = record_capture(recorder, tmp_path, stream, packets)
    assert output == "5 dumps, 6 of 24 heaps missing"  # 1 of dump 4, 4 of dump 5, 1 of dump 6

    expected = {index: stream.expected(vis) for index, vis in dumps.items()}
    flags = {index: np.zeros(expected[index].shape, bool) for index in indices}
    flags[4][:, 8:16] = True
    pairs = file_baselines(3)
    for pair in [(0, 2), (2, 2)]:
        flags[4][pairs.index(pair)] = True
    flags[6][:, 24:32] = True
    assert f", {100 * np.mean(list(flags.values())):.2f} % flagged\n" in one.log_text()
    uvd = one.read()
    starts = (uvd.time_array[::6] - 2440587.5) * 86400 - 1700000000.5
    np.testing.assert_allclose(starts * 64e6 / stream.dump_samples - 0.5, indices, atol=0.05)
    for n, index in enumerate(indices):
        rows = slice(6 * n, 6 * (n + 1))
        np.testing.assert_array_equal(uvd.flag_array[rows], flags[index], err_msg=f"dump {index}")
        np.testing.assert_array_equal(uvd.data_array[rows], np.where(flags[index], 0, expected[index]),
                                      err_msg=f"dump {index}")
        np.testing.assert_array_equal(uvd.nsample_array[rows], ~flags[index], err_msg=f"dump {index}")


def test_weights(recorder, tmp_path, rng):
    """The spectra that went into each baseline become nsamples; three baselines leave an odd heap length."""
    stream = Stream(n_ants=2, weights=True)
    vis = stream.random_vis(rng)
    weights = rng.integers(1, stream.n_spectra + 1, (stream.n_sub, stream.n_baselines))
    weights[1, baseline_index(0, 1)] = 0
    weights[2, baseline_index(1, 1)] = stream.n_spectra
    one, _ = record_capture(recorder, tmp_path, stream,
                            flatten(packets_of(stream, heaps_of_dump(stream, 1, vis, weights))))
    uvd = one.read()
    for n, (a1, a2) in enumerate(file_baselines(2)):
        fraction = np.repeat(weights[:, baseline_index(a1, a2)], stream.chan_per_sub) / stream.n_spectra
        np.testing.assert_array_equal(uvd.nsample_array[n], np.repeat(fraction[:, None], 4, 1).astype(np.float32))
        np.testing.assert_array_equal(uvd.flag_array[n], np.repeat(fraction[:, None] == 0, 4, 1))


@pytest.mark.parametrize("weights", ["none", "one for all channels", "by channel"])
def test_gate(weights, recorder, tmp_path, rng):
    """The gate's specification and the number of spectra that it took, in each channel.  Data without spectra are
    flagged."""
    stream = Stream(n_ants=2, weights=weights != "none", gate=True)
    vis, by_channel = stream.random_vis(rng), weights == "by channel"
    spectra = rng.integers(0, stream.n_spectra // 4, stream.n_chan)
    spectra[::5] = 0
    w = rng.integers(0, 3, (stream.n_chan if by_channel else stream.n_sub, stream.n_baselines)) * 100
    of_sub = w.reshape(stream.n_sub, -1, stream.n_baselines) if by_channel else w
    parts = [spectra[sub * 8:sub * 8 + 8] for sub in range(4)]
    heaps = [(sub, stream.heap(stream.dump_samples, sub, vis, of_sub[sub], gate_spectra=parts[sub])) for sub in range(4)]
    gate = "kind: phase, frequency: 11.25, bins: 16, take: [0, 1]"
    changes = {"stream": {"gate": gate, "gate_channels": by_channel}}
    one, output = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps)), changes)
    assert output == "1 dump, 0 of 4 heaps missing"
    uvd = one.read()
    assert uvd.extra_keywords == {"gate": gate, "spectra": stream.n_spectra} and gate in uvd.history
    expected = stream.expected(vis)
    for n, (a1, a2) in enumerate(file_baselines(2)):
        own = w[:, baseline_index(a1, a2)]
        taken = spectra if weights == "none" else own if by_channel else np.repeat(own, stream.chan_per_sub)
        taken = np.repeat(taken[:, None], 4, 1)
        np.testing.assert_array_equal(np.rint(uvd.nsample_array[n] * uvd.extra_keywords["spectra"]), taken)
        np.testing.assert_array_equal(uvd.flag_array[n], taken == 0)
        np.testing.assert_array_equal(uvd.data_array[n], np.where(taken == 0, 0, expected[n]))


@pytest.mark.parametrize("bits", [8, 16])
def test_gate_of_xbgpu(bits, recorder, daemon, work, tmp_path, rng):
    """The file equals xbgpu's output of a gate, for a substream, with weights by channel."""
    gate = {"kind": "phase", "name": "p", "frequency": 3000.5, "bins": 8, "take": [0, 3], "dispersion_measure": 0.5,
            "centre_frequency": 20e6}
    config = scenario.xbgpu_config(
        outputs=[{"gate": "p", "missing": "weights"}], gates=[gate], time={"adc_sample_rate": 16000000},
        recv={"antennas": 3, "channels": 8, "channels_per_substream": 4, "channel_offset": 4, "sample_bits": bits})
    present = rng.random((12, 3)) >= 0.1
    sent = scenario.feng_heaps(config, 0, scenario.random_voltages(rng, config, 12), present)
    (endpoint, heaps), = scenario.run_pcap(daemon, "xbgpu", config, work, sent).items()
    dumps = [h.items for h in heaps if h.kind == "data"]
    stream = Stream(n_chan=8, n_sub=2, weights=True, sample_rate=16000000, batches=4)
    values = "float32" if bits == 16 else "int32"
    one = recorder(stream, {
        "recv": {"interface": "", "pcap_file": str(work / "run.out.pcap"), "sources": f"{endpoint[0]}:{endpoint[1]}"},
        "time": {"sync_time": 1700000000},
        "stream": {"gate": yaml.safe_dump(gate), "gate_channels": True, "values": values, "spectra_per_heap": 16,
                   "samples_between_spectra": 128}})
    output, log = one.run()
    assert output == f"{len(dumps)} dumps, {len(dumps)} of {2 * len(dumps)} heaps missing" and len(dumps) >= 2, log
    uvd = one.read()
    assert yaml.safe_load(uvd.extra_keywords["gate"]) == gate
    whole = np.full((len(dumps), 8, 6, 4, 2), np.nan)
    whole[:, 4:] = np.reshape([d["xeng_raw"] for d in dumps], (len(dumps), 4, 6, 4, 2))
    taken = np.zeros((len(dumps), 8, 6))
    taken[:, 4:] = [d["xeng_weights"] for d in dumps]
    for d in range(len(dumps)):
        rows, pairs = slice(6 * d, 6 * d + 6), file_baselines(3)
        spectra = np.array([taken[d][:, baseline_index(*pair)] for pair in pairs])[..., None]
        np.testing.assert_array_equal(np.rint(uvd.nsample_array[rows] * 64), np.repeat(spectra, 4, 2))
        np.testing.assert_array_equal(uvd.flag_array[rows], np.repeat(spectra, 4, 2) == 0)
        expected = np.where(spectra == 0, 0, stream.expected(whole[d]))
        np.testing.assert_array_equal(uvd.data_array[rows], expected)
    assert 0 < taken[:, 4:].max() < 64 and len(np.unique(taken[:, 4:])) > 4


def test_stream_without_the_gate(recorder, tmp_path, rng):
    """Heaps of another kind than the file's are refused, and the log reports them."""
    stream = Stream(n_ants=2)
    packets = flatten(packets_of(stream, heaps_of_dump(stream, 1, stream.random_vis(rng))))
    one = recorder(stream, from_capture(tmp_path, packets) | {"stream": {"gate": "kind: switch"}})
    _, log = one.run(0, 1)
    assert f"{len(packets)} refused as heap_size" in log, log


def test_half_floats(recorder, tmp_path, rng):
    """Visibilities of half floats are float32 in the file, bit for bit; NaN, as the X-engine marks them, is flagged."""
    stream = Stream(n_ants=3, real=True)
    vis = stream.random_vis(rng).astype(np.float32) * np.float32(1e-7)
    vis[:, baseline_index(0, 1), :, 0] = -0.0
    vis[3:9, baseline_index(1, 2)] = np.nan
    one, _ = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps_of_dump(stream, 1, vis))),
                            {"stream": {"values": "float32"}})
    with h5py.File(one.path, "r") as file:
        assert file["Data/visdata"].dtype == np.complex64
    uvd = one.read()
    missing = np.isnan(stream.expected(vis))
    np.testing.assert_array_equal(uvd.flag_array, missing)
    np.testing.assert_array_equal(uvd.data_array, np.where(missing, 0, stream.expected(vis)).astype(np.complex64))
    assert missing.sum() == 6 * 4 and not uvd.extra_keywords
    visfile = importlib.import_module("visfile")
    np.testing.assert_array_equal(visfile.load(one.path, "yx").vis.data[0], uvd.data_array[:6, :, 3])


def test_wire_timestamp_wraps(recorder, tmp_path, rng):
    """48 bits run over in the middle of the recording."""
    stream = Stream(n_ants=1, n_sub=2)
    first = 2**48 // stream.dump_samples - 2
    dumps = [stream.random_vis(rng) for _ in range(5)]
    heaps = flatten([(2 * n + sub, stream.heap((first + n) * stream.dump_samples, sub, vis)) for sub in range(2)]
                    for n, vis in enumerate(dumps))
    wrap_s = 1700000000 + 2**48 / stream.sample_rate
    one, output = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps)),
                                 {"telescope": {"ut1_utc": ut1_utc_s(wrap_s)}})
    assert output == "5 dumps, 0 of 10 heaps missing"
    uvd = one.read()
    steps_s = np.diff(uvd.time_array) * 86400
    np.testing.assert_allclose(steps_s, stream.dump_samples / 64e6, atol=1e-4)


def test_pause(recorder, tmp_path, rng):
    """After a pause longer than the window the recording continues with the first dump after it."""
    stream = Stream(n_ants=1)
    indices = [0, 1, 1000, 1001, 1002, 1003]
    vis = stream.random_vis(rng)
    one, output = record_capture(recorder, tmp_path, stream,
                                 flatten(packets_of(stream, flatten(heaps_of_dump(stream, i, vis) for i in indices))))
    uvd = one.read()
    starts = (uvd.time_array - 2440587.5) * 86400 - 1700000000.5
    np.testing.assert_allclose(starts * 64e6 / stream.dump_samples - 0.5, [0, 1, 1000, 1001, 1002, 1003], atol=0.1)
    assert not uvd.flag_array.any()
    assert output == f"6 dumps, {4 * 998} of {4 * 1004} heaps missing"


def indices_in(path, stream):
    """The dumps of a file, in its order.  Their values equal the dump with that index modulo 16."""
    with h5py.File(path, "r") as file:
        starts_s = (file["Header/time_array"][::stream.n_baselines] - 2440587.5) * 86400 - 1700000000.5
        indices = np.rint(starts_s * stream.sample_rate / stream.dump_samples - 0.5).astype(int).tolist()
        return indices, file["Data/visdata"][()].reshape(len(indices), stream.n_baselines, stream.n_chan, 4)


# A dump has 10 baselines x 1024 channels x 4 polarisations x 8 bytes that cannot be compressed: 0.33 MB.
@pytest.mark.parametrize("limit", ["size", "time"])
def test_rotation(recorder, tmp_path, rng, limit):
    """Files by size, or by time with a dump that never comes: each is whole, and together they are all that came."""
    stream = Stream(n_ants=4, n_chan=1024, n_sub=2)
    dump_s = stream.dump_samples / stream.sample_rate
    kinds = [stream.random_vis(rng) for _ in range(3)]
    came = [index for index in range(100, 145) if index != 110]
    heaps = flatten(heaps_of_dump(stream, index, kinds[index % 3]) for index in came)
    keys = {"size": {"max_file_size": 11_000_000}, "time": {"max_file_time": 15.01 * dump_s}}[limit]
    one, output = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps, payload=8192)),
                                 {"output": keys | {"file": str(tmp_path / "out-%Y.uvh5")}})
    assert output == f"44 dumps, 2 of {2 * 45} heaps missing"
    year = time.gmtime().tm_year
    paths = [tmp_path / f"out-{year}{number}.uvh5" for number in ("", "-2", "-3")]
    assert sorted(paths) == sorted(tmp_path.glob("*.uvh5*"))
    recorded = []
    for path in paths:
        one.path = path
        uvd = one.read()
        indices, _ = indices_in(path, stream)
        recorded += indices
        expected = np.concatenate([stream.expected(kinds[index % 3]) for index in indices])
        np.testing.assert_array_equal(uvd.data_array, expected)
        assert not uvd.flag_array.any()
    assert recorded == came
    together = type(uvd).from_file(paths, run_check_acceptability=False)
    assert together.Ntimes == len(came) and (np.diff(together.time_array) >= 0).all()
    if limit == "size":  # nearly full: HDF5's tables are allowed 4 MiB
        sizes = [path.stat().st_size for path in paths]
        assert all(11_000_000 - 5_000_000 < size <= 11_000_000 for size in sizes[:-1]) and sizes[-1] <= 11_000_000
    else:
        assert indices_in(paths[0], stream)[0] == [index for index in range(100, 115) if index != 110]
        assert indices_in(paths[1], stream)[0] == list(range(115, 130))


FAR = 1 << 16  # dumps: 67 s


@pytest.mark.parametrize("n_forged", [2, 3])
def test_forged_time_costs_a_second_of_dumps(recorder, tmp_path, rng, n_forged):
    """A burst of packets from the far future, twice.  All heaps except the last are only begun.  Two heaps of each
    substream are refused.  Three are believed and lose two dumps, and the recording continues in additional files."""
    stream = Stream(n_ants=2, n_sub=2)
    kinds = [stream.random_vis(rng) for _ in range(16)]

    def dump(index):
        return packets_of(stream, heaps_of_dump(stream, index, kinds[index % 16]))

    def burst(index):
        begun = [heap[:1] for n in range(n_forged - 1) for heap in dump(index + n)]
        return begun + [heap[1:] for heap in dump(index + n_forged - 2)] + dump(index + n_forged - 1)

    real = range(18)
    packets = []
    for index in real:
        packets += flatten(dump(index))
        if index in (5, 11):
            packets += flatten(burst(FAR + 100 * index))
    one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"overwrite": True}})
    (tmp_path / "out-2.uvh5").write_text("precious")
    output, log = one.run()
    assert (tmp_path / "out-2.uvh5").read_text() == "precious"
    files = [one.path] + sorted(path for path in tmp_path.glob("out-*.uvh5") if path.name != "out-2.uvh5")
    assert [path.name for path in files] == ["out.uvh5", "out-3.uvh5", "out-4.uvh5"][:1 if n_forged == 2 else 3]
    recorded = []
    for path in files:
        indices, vis = indices_in(path, stream)
        assert indices == sorted(set(indices))
        for index, values in zip(indices, vis):
            if index < FAR:
                np.testing.assert_array_equal(values["r"] + 1j * values["i"], stream.expected(kinds[index % 16]))
                recorded.append(index)
    assert n_forged == 2 or files[1].name in log
    assert output.startswith(f"{sum(len(indices_in(path, stream)[0]) for path in files)} dumps, ")
    lost = sorted(set(real) - set(recorded))
    assert recorded == sorted(recorded) and set(lost) <= (set() if n_forged == 2 else {6, 7, 12, 13}), lost


def test_synchronised_anew(recorder, tmp_path, rng):
    """Time starts from 0 again: the same timestamps a second time, in a separate file."""
    stream = Stream(n_ants=1)
    dumps = [stream.random_vis(rng) for _ in range(16)]
    order = [*range(5, 15), *range(10)]
    heaps = flatten(heaps_of_dump(stream, index, dumps[index]) for index in order)
    one, output = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps)))
    assert indices_in(one.path, stream)[0] == list(range(5, 15))
    second = indices_in(tmp_path / "out-2.uvh5", stream)[0]
    assert set(range(2, 10)) <= set(second) <= set(range(10)) and second == sorted(second)
    n_missing = 4 * (second[-1] - second[0] + 1 - len(second))
    assert output == f"{10 + len(second)} dumps, {n_missing} of {4 * (10 + second[-1] - second[0] + 1)} heaps missing"
    one.path = tmp_path / "out-2.uvh5"
    assert one.read().Ntimes == len(second)


def test_nothing_came(recorder, tmp_path):
    """A recording without a dump leaves no file, which would be in the way of the next."""
    one, output = record_capture(recorder, tmp_path, Stream(), [b"not SPEAD"])
    assert output == "0 dumps, 0 of 0 heaps missing"
    assert not one.path.exists()


def test_all_refused(recorder, tmp_path, rng):
    """Visibilities of another shape came, and none of ours: the exit status says that nothing was recorded."""
    wrong = Stream(n_ants=4)
    packets = flatten(packets_of(wrong, heaps_of_dump(wrong, 0, wrong.random_vis(rng))))
    one = recorder(Stream(n_ants=3), from_capture(tmp_path, packets))
    output, log = one.run(1)
    assert output == "0 dumps, 0 of 0 heaps missing", log
    assert f"{len(packets)} refused as heap_size" in log
    assert not one.path.exists()


# Readers as docs/visibilities.md has them: where no network is, 60 days after the tables of the Earth were made.
READ_OFFLINE = """
import sys, warnings
from astropy.time import Time
from astropy.utils import iers
now = Time(float(sys.argv[2]), format="unix")
Time.now = classmethod(lambda cls: now)  # what astropy takes for the age of its tables
assert iers.conf.auto_download and iers.conf.auto_max_age == 30
warnings.simplefilter("error")
import pyuvdata

uvd = pyuvdata.UVData.from_file(sys.argv[1], run_check_acceptability=False)
print(uvd.Ntimes, float(uvd.lst_array[0]))

try:
    pyuvdata.UVData.from_file(sys.argv[1])
except Warning as warning:
    print("default:", "failed to download" in str(warning) and "finals2000A" in str(warning))

iers.conf.auto_max_age = None
iers.conf.auto_download = False
uvd = pyuvdata.UVData.from_file(sys.argv[1])
print(uvd.Ntimes, float(uvd.lst_array[0]))
"""


def test_read_without_network(recorder, tmp_path, rng):
    """A fresh process without a network, with tables that are too old for the recording.  The documented calls read it.
    pyuvdata's default, which checks sidereal times, asks for new tables."""
    from astropy.time import Time
    from astropy.utils import iers

    root, user = ["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]
    alone = next((way for way in (root, user)
                  if subprocess.run([*way, sys.executable, "-c", ""], capture_output=True).returncode == 0), None)
    if not alone:
        pytest.skip("cannot create a namespace without a network here")
    now_s = round(Time(iers.IERS_Auto.open().meta["predictive_mjd"] + 60, format="mjd").unix)
    stream = Stream(n_ants=3)
    heaps = flatten(heaps_of_dump(stream, index, stream.random_vis(rng)) for index in range(3))
    one, _ = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps)),
                            {"time": {"sync_time": str(now_s - 3600)}, "telescope": {"ut1_utc": ut1_utc_s(now_s)}})
    reader = subprocess.run([*alone, sys.executable, "-c", READ_OFFLINE, one.path, str(now_s)],
                            capture_output=True, text=True, timeout=TIMEOUT_S)
    assert reader.returncode == 0, reader.stderr
    middle = Time(now_s - 3600 + stream.dump_samples / 2 / stream.sample_rate, format="unix")
    sidereal_rad = middle.sidereal_time("apparent", longitude=21.4439).rad
    documented, default, configured = reader.stdout.splitlines()
    assert default == "default: True"
    for reply in (documented, configured):
        n_times, lst_rad = map(float, reply.split())
        assert n_times == 3 and abs(lst_rad - sidereal_rad) < 3e-7


def source_delays(times_s, right_ascension_deg, declination_deg):
    """Delay in seconds at each antenna of a plane wave, by astropy's altitude and azimuth of the source."""
    from astropy import units
    from astropy.coordinates import AltAz, EarthLocation, SkyCoord
    from astropy.time import Time
    site = EarthLocation.from_geodetic(21.4439 * units.deg, -30.7128 * units.deg, 1038 * units.m)
    frame = AltAz(obstime=Time(times_s, format="unix"), location=site)
    source = SkyCoord(right_ascension_deg * units.deg, declination_deg * units.deg).transform_to(frame)
    east = np.cos(source.alt) * np.sin(source.az)
    north = np.cos(source.alt) * np.cos(source.az)
    direction = np.stack([east, north, np.sin(source.alt)], axis=-1).value  # [time, enu]
    positions = np.array([position for _, position in ANTENNAS])
    return -direction @ positions.T / LIGHT_M_S  # the nearer to the source, the earlier


def test_phase_convention(recorder, tmp_path):
    """A source on the sky, correlated by definition: pyuvdata, given its direction, must find all phases zero."""
    from astropy import units  # noqa: F401  (pyuvdata needs it; fail here if it is not there)

    stream = Stream(n_ants=4, n_chan=64, n_sub=2, sample_rate=128e6, batches=40000)
    indices = np.arange(4)
    middles_s = 1700000000.5 + (indices + 0.5) * stream.dump_samples / stream.sample_rate
    assert middles_s[-1] - middles_s[0] > 5  # the sky turns enough for the signs to matter
    ra_deg, dec_deg = 40.0, -55.0
    delays_s = source_delays(middles_s, ra_deg, dec_deg)  # [time, ant]
    freqs_hz = 1284e6 + (np.arange(64) - 32) * 1e6
    signal = np.exp(-2j * np.pi * freqs_hz[None, None] * delays_s[..., None])  # [time, ant, chan], FFT e^(-2 pi i f t)
    feeds = np.array([1.0, 0.5j])  # what the two polarisations make of it

    heaps = []
    for index in indices:
        vis = np.zeros((64, stream.n_baselines, 4, 2))
        for a1, a2 in file_baselines(4):
            for p1 in range(2):
                for p2 in range(2):
                    product = signal[index, a1] * feeds[p1] * np.conj(signal[index, a2] * feeds[p2]) * 1e9
                    vis[:, baseline_index(a1, a2), p1 + 2 * p2] = np.stack([product.real, product.imag], -1).round()
        heaps += heaps_of_dump(stream, int(index), vis)
    one, _ = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps, payload=8192)),
                            {"stream": {"centre_frequency": 1284e6}})
    uvd = one.read()
    before = np.angle(uvd.get_data(0, 1, "xx"))
    assert np.ptp(np.unwrap(before[0])) > 1  # or there would be nothing to flatten
    uvd.phase(lon=math.radians(ra_deg), lat=math.radians(dec_deg), cat_name="source", cat_type="sidereal",
              phase_frame="icrs")
    for a1, a2 in file_baselines(4):
        for pol, expected in [("xx", 1), ("yy", 0.25)]:
            data = uvd.get_data(a1, a2, pol) / 1e9
            # 2e-3 rad: diurnal aberration and what else the two ways to the source's direction differ in.
            np.testing.assert_allclose(data, expected, atol=0.01, err_msg=f"{a1}-{a2} {pol}")
        # 'xy' is conj(x of ant_1) times y of ant_2, in the convention that the phases above have shown.
        np.testing.assert_allclose(uvd.get_data(a1, a2, "xy") / 1e9, 0.5j, atol=0.01, err_msg=f"{a1}-{a2} xy")
        np.testing.assert_allclose(uvd.get_data(a1, a2, "yx") / 1e9, -0.5j, atol=0.01, err_msg=f"{a1}-{a2} yx")


class Sender:
    """X-engines on multicast, each substream with its own group."""

    MAX_PACKET = 2000

    def __init__(self, stream):
        base = 1 + (os.getpid() * 7) % 200
        self.stream = stream
        self.endpoints = [(f"239.77.{base}.{sub + 1}", 17148) for sub in range(stream.n_sub)]
        self.sources = f"239.77.{base}.1+{stream.n_sub - 1}:17148"
        config = spead2.send.StreamConfig(max_packet_size=self.MAX_PACKET, rate=20e6)
        self.udp = spead2.send.UdpStream(spead2.ThreadPool(), self.endpoints, config, ttl=1, interface_address=LOOPBACK)

    def send(self, timestamp, vis):
        """Returns the number of packets."""
        heaps = [self.stream.heap(timestamp, sub, vis) for sub in range(self.stream.n_sub)]
        for sub, heap in enumerate(heaps):
            self.udp.send_heap(heap, substream_index=sub)
        return sum(len(list(spead2.send.PacketGenerator(heap, 1, self.MAX_PACKET))) for heap in heaps)


def send_paced(one, sender, first, dumps):
    """Sends a dump when all earlier packets have been received and the window (2) has released all that it can.  Losses
    by a burst are not the subject here."""
    n_packets = 0
    for n, vis in enumerate(dumps):
        n_packets += sender.send((first + n) * sender.stream.dump_samples, vis)
        one.wait_for_packets(n_packets)
        one.wait_for_dumps(n - 1)


def live(recorder, stream, sender, changes=None):
    sync_s = int(time.time()) - 86400 * 3
    listen = f"{LOOPBACK}:{harness.free_tcp_port()}"
    one = recorder(stream, {"recv": {"sources": sender.sources}, "time": {"sync_time": sync_s, "timebase": "clock"},
                            "telescope": {"ut1_utc": ut1_utc_s(time.time())}, "http": {"listen": listen}} | (changes or {}))
    now_samples = int((time.time() - sync_s) * stream.sample_rate)
    return one, now_samples // stream.dump_samples, sync_s


def test_multicast_until_max_dumps(recorder, rng):
    """From sockets, on the host's clock three days after the synchronisation: the wire's 48 bits have not wrapped, but
    a first timestamp taken for itself would be wrong at other rates."""
    stream = Stream(n_ants=4)
    sender = Sender(stream)
    one, first, sync_s = live(recorder, stream, sender, {"output": {"max_dumps": 4}})
    one.start_recording()
    dumps = [stream.random_vis(rng) for _ in range(8)]
    send_paced(one, sender, first, dumps)  # more than it wants, for its window to move on
    output, _ = one.finish()
    assert output == "4 dumps, 0 of 16 heaps missing"
    uvd = one.read()
    np.testing.assert_array_equal(uvd.data_array, np.concatenate([stream.expected(vis) for vis in dumps[:4]]))
    start_s = (uvd.time_array[0] - 2440587.5) * 86400 - sync_s
    assert abs(start_s - (first + 0.5) * stream.dump_samples / 64e6) < 5e-5


def test_sigterm_writes_what_is_open(recorder, rng):
    stream = Stream(n_ants=2, batches=160000)  # no dump closes by a silence, which lasts 21 s
    sender = Sender(stream)
    one, first, _ = live(recorder, stream, sender)
    one.start_recording()
    send_paced(one, sender, first, [stream.random_vis(rng) for _ in range(6)])
    assert one.n_dumps() == 4
    metrics = one.metrics()
    assert metrics["visrec_dumps_total"] == 4
    assert metrics["visrec_rollovers_total"] == 0
    assert one.health() == 200
    one.process.send_signal(signal.SIGTERM)
    output, _ = one.finish()
    # Of the last dump the recorder may not have taken all packets from the socket yet.
    assert output in [f"6 dumps, {n} of 24 heaps missing" for n in range(4)] + ["5 dumps, 0 of 20 heaps missing"]
    assert one.read().Ntimes in (5, 6)


def test_killed_recorder_leaves_a_readable_file(recorder, rng):
    stream = Stream(n_ants=4, n_chan=256, batches=160000)
    sender = Sender(stream)
    one, first, _ = live(recorder, stream, sender)
    one.start_recording()
    dumps = [stream.random_vis(rng) for _ in range(8)]
    send_paced(one, sender, first, dumps)
    one.process.kill()
    one.finish(-signal.SIGKILL)
    uvd = one.read()
    assert uvd.Ntimes == 6
    np.testing.assert_array_equal(uvd.data_array, np.concatenate([stream.expected(vis) for vis in dumps[:6]]))


def test_full_disk(recorder, tmp_path, rng):
    """A failed write ends the recording with one sentence and status 1.  Earlier data stay readable."""
    stream = Stream(n_ants=4, n_chan=1024)
    vis = stream.random_vis(rng)
    heaps = flatten(heaps_of_dump(stream, n, vis) for n in range(40))
    one = recorder(stream, from_capture(tmp_path, flatten(packets_of(stream, heaps, payload=8192))))
    limit = 10_000_000  # of 40 * 0.5 MB
    output, log = one.run(1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    complaints = [line for line in log.splitlines() if "cannot" in line]
    assert len(complaints) == 1 and "File too large" in complaints[0] and str(one.path) in complaints[0], log
    assert "HDF5" not in log
    n_dumps = int(output.split()[0])
    assert 5 < n_dumps < 40
    assert one.read().Ntimes == n_dumps


def test_existing_file_is_kept(recorder, tmp_path, rng):
    stream = Stream(n_ants=1)
    packets = flatten(packets_of(stream, heaps_of_dump(stream, 0, stream.random_vis(rng))))
    one = recorder(stream, from_capture(tmp_path, packets))
    one.path.write_text("precious")
    _, log = one.run(78)
    assert "exists already" in log
    assert one.path.read_text() == "precious"
    one.config["output"]["overwrite"] = True
    one.run()
    assert one.read().Ntimes == 1


def test_restart_beside_the_file_before(recorder, tmp_path, rng):
    """With a time in its name that repeats, a recording gets a separate file.  Init systems need this."""
    stream = Stream(n_ants=1)
    packets = flatten(packets_of(stream, heaps_of_dump(stream, 0, stream.random_vis(rng))))
    one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"file": str(tmp_path / "%Y.uvh5")}})
    year = time.gmtime().tm_year
    for name in (f"{year}.uvh5", f"{year}-2.uvh5"):
        output, log = one.run()
        assert output == "1 dump, 0 of 4 heaps missing", log
        assert re.search(r" info: visrec \S+ \(", log.splitlines()[0]) and f"channels to {tmp_path / name}\n" in log
        one.path = tmp_path / name
        assert one.read().Ntimes == 1


def test_absent_antenna_is_named(recorder, rng):
    """In the log, once, and as a label of its counter of flags: two dumps are without m001."""
    stream = Stream(n_ants=3)
    sender = Sender(stream)
    one, first, _ = live(recorder, stream, sender)
    dumps = [stream.random_vis(rng) for _ in range(7)]
    for vis in dumps[1:3]:
        vis[:, [baseline_index(*pair) for pair in ((0, 1), (1, 1), (1, 2))]] = MAGIC
    one.start_recording()
    send_paced(one, sender, first, dumps)
    metrics = one.metrics()
    flagged = {n: metrics[f'visrec_antenna_flagged_values_total{{feng="{n}",antenna="m00{n}"}}'] for n in range(3)}
    assert flagged == {0: 0, 1: 2 * 32 * 4, 2: 0}
    assert one.log_text().count("the dumps have no data of m001\n") == 1
    assert metrics["visrec_files_total"] == 1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("link", ["to nothing", "to a file"])
def test_symbolic_link(recorder, tmp_path, rng, link, overwrite):
    """A link is never followed to make a file.  A file behind a link is overwritten on request, and the link stays."""
    stream = Stream(n_ants=1)
    packets = flatten(packets_of(stream, heaps_of_dump(stream, 0, stream.random_vis(rng))))
    one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"overwrite": overwrite}})
    target = tmp_path / "target.uvh5"
    if link == "to a file":
        target.write_text("precious")
    one.path.symlink_to(target)
    works = link == "to a file" and overwrite
    _, log = one.run(0 if works else 78)
    assert one.path.is_symlink()
    if works:
        assert one.read().Ntimes == 1
        assert sorted(path.name for path in tmp_path.glob("*.uvh5*")) == ["out.uvh5", "target.uvh5"]
        return
    assert ("without a target" if link == "to nothing" else "exists already") in log, log
    assert target.read_text() == "precious" if link == "to a file" else not target.exists()


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        ("stream", {"channels_per_substream": 5}, ["channels_per_substream", "divide"]),
        ("stream", {"integration_batches": 0}, ["integration_batches", "integration_time"]),
        ("stream", {"integration_time": 1.0}, ["integration_batches", "integration_time"]),
        ("stream", {"integration_batches": 1, "samples_between_spectra": 1}, ["0.1 ms"]),
        ("output", {"file": "/nonexistent/out.uvh5"}, ["/nonexistent/out.uvh5", "No such file"]),
        ("recv", {"interface": "nosuch0"}, ["nosuch0"]),
        ("recv", {"pcap_file": "/nonexistent.pcap"}, ["/nonexistent.pcap"]),
        ("telescope", {"latitude": 91}, ["latitude"]),
        ("output", {"max_file_size": 8_000_000}, ["max_file_size", "8399168 bytes"]),  # 8 MiB, 6 x 32 x 4 x 13, 6 x 12 x 8
        ("output", {"max_file_time": 0.001}, ["max_file_time", "0.001024 s"]),
    ],
)
def test_what_a_restart_cannot_cure(recorder, section, changes, words):
    one = recorder(Stream(), {section: changes})
    _, log = one.run(78)
    for word in words:
        assert word in log


def test_antennas_of_the_same_name(recorder):
    one = recorder(Stream())
    one.config["antennas"][2]["name"] = "m000"
    _, log = one.run(78)
    assert "m000" in log


def fringe_capture(recorder, tmp_path, rng):
    """Noise common to all antennas with a delay each, and a tone, as in the demonstration's recording."""
    stream = Stream(n_ants=4, n_chan=128, n_sub=4)
    delays = [0, 5, -3, 17]
    chan = np.arange(128)
    envelope = np.where(chan == 40, 30, 1) * (0.5 + 0.4 * np.cos(chan / 20))
    heaps = []
    for n in range(4):
        vis = np.zeros((128, stream.n_baselines, 4, 2))
        for a1, a2 in file_baselines(4):
            phase = -2 * np.pi * chan / 256 * (delays[a1] - delays[a2])
            value = 1e6 * envelope[:, None] * np.exp(1j * phase)[:, None] * [1, 0, 0, 1]
            if a1 != a2:
                value = value + rng.normal(scale=2e4, size=(128, 4)) + 1j * rng.normal(scale=2e4, size=(128, 4))
            vis[:, baseline_index(a1, a2)] = np.stack([value.real, value.imag], -1)
        heaps += heaps_of_dump(stream, n, vis)
    one, _ = record_capture(recorder, tmp_path, stream, flatten(packets_of(stream, heaps)))
    return one


@pytest.fixture
def plot_fringes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("plot_fringes")


def check_pictures_data(plot_fringes, path, models_path):
    """The pictures show delay models put back, lost data by antenna, and models as fgpu reads them."""
    data = plot_fringes.visfile.load(path, "yy")
    offsets_hz = data.freqs_hz - data.freqs_hz[64]
    start = data.unix_s[1]
    models_path.write_text(f"# comment\n{start:.9f} 0 1 2 3 4\n{start:.9f} 1 -3e-6 2e-9 0.5 0.25 1e-8 0.125  # of y\n"
                           f"{data.unix_s[3] - data.integration_s / 4:.9f} 1 0 0 1 0\n")
    models = plot_fringes.read_models(models_path)
    t = data.unix_s[2] - start
    angle = 0.5 + 0.25 * t + 0.0625 * t**2 - 2 * np.pi * offsets_hz * (-3e-6 + 2e-9 * t + 0.5e-8 * t**2)
    for name, a1, a2, sign in [("m003", 0, 3, -1), ("m001", 1, 3, 1)]:
        vis = data.vis[:, data.index(a1, a2)]
        found = plot_fringes.untracked(data, a1, a2, {name: models}) / vis
        assert np.all(np.abs(found[0] - 1) < 1e-9)  # before the first model
        assert np.all(np.abs(found[2] - np.exp(1j * sign * angle)) < 1e-4)
        assert np.all(np.abs(found[3] - np.exp(1j * sign)) < 1e-4)

    assert not plot_fringes.lost_percent([data]).any()
    data.unix_s = data.unix_s + np.array([0, 0, 1, 1]) * data.integration_s  # the third dump never came
    data.vis[0, data.index(1, 1), :32] = np.ma.masked
    data.nsamples[3, data.index(2, 2)] = 0.5
    np.testing.assert_allclose(plot_fringes.lost_percent([data]),
                               [[0, 25, 0, 0], [0, 0, 0, 0], [100, 100, 100, 100], [0, 0, 0, 0], [0, 0, 50, 0]])
    level = plot_fringes.coefficient(data, data.vis, 0, 2)
    np.testing.assert_allclose(level[:, :20], 1, atol=0.15)  # one sky, as strong in both, and noise of 3 %


def test_scripts(recorder, plot_fringes, tmp_path, rng):
    """The table accepts the injected values and refuses all others.  The plots are PNGs."""
    one = fringe_capture(recorder, tmp_path, rng)

    def table(*arguments):
        return subprocess.run([sys.executable, ROOT / "scripts/fringe_table.py", one.path, *arguments],
                              capture_output=True, text=True, timeout=TIMEOUT_S)

    good = table("--delays", "0,5,-3,17", "--tone-channel", "40")
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.count("WRONG") == 0
    assert good.stdout.splitlines()[1].split() == "baseline expected recovered xx recovered yy".split()
    assert table("--delays", "0,5,-3,17", "--tracked", "0").returncode == 0  # of an autocorrelation, the phase is 0
    for arguments in [("--delays=0,5,-3,16", "--tone-channel=40"), ("--delays=0,5,-3,17", "--tone-channel=41"),
                      ("--delays=0,-5,3,-17", "--tone-channel=40"), ("--delays=0,5,-3,17", "--lost-heaps=1"),
                      ("--delays=0,5,-3,17", "--tracked=1")]:
        bad = table(*arguments)
        assert bad.returncode == 1, bad.stdout + bad.stderr
    assert table("--delays", "0,5").returncode == 2
    assert table("--delays=0,5,-3,17", "--drifts=0,0").returncode == 2
    still = table("--delays=0,5,-3,17", "--drifts=0,0,0,0.2")
    assert still.returncode == 1 and still.stdout.count("WRONG") == 3, still.stdout  # three baselines do not drift so

    check_pictures_data(plot_fringes, one.path, tmp_path / "models")

    def plots(*arguments):
        return subprocess.run([sys.executable, ROOT / "scripts/plot_fringes.py", one.path, "--output", tmp_path / "png",
                               *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)

    drawn = plots("--baseline", "m003,m001", "--model", "m003", tmp_path / "models", "--mark", "m003", "0.4", "0.5", "why")
    assert drawn.returncode == 0, drawn.stderr
    names = ["fringes.png", "autos.png", "waterfall_m001-m003.png", "lost.png"]
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / "png" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    wrong = plots("--baseline", "0,3")
    assert wrong.returncode == 1 and "it has m000, m001, m002, m003" in wrong.stderr
