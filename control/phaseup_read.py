"""Reads visibilities for phaseup_solve: from the X-engines' live streams, or from a file of visrec.

The baseline of antennas a1 <= a2 has the number a2 (a2 + 1) / 2 + a1.  In a heap, the product of polarisations p1 of a1
and p2 of a2 has the number 4 baseline + p1 + 2 p2.  phaseup uses the products with p1 = p2.  docs/visibilities.md
explains the signs.
"""
import ipaddress
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import spead2
import spead2.recv

import visfile
from array_plan import parse_feed
from gnsscal_read import WRAP, Unusable, load_yaml
from phaseup_search import baseline_of
from phaseup_solve import Data

N_POLS = 2
LIVE_GRACE_S = 10  # extra waiting time, because X-engines repeat descriptors only every 5 s
MAX_HEAPS = 4  # number of heaps of a substream in memory; a heap of 80 antennas has several megabytes
BAD_VALUE = -(1 << 31)  # real part of a visibility that could not be computed


@dataclass
class Stream:
    """A stream of visibilities, and the stream of voltages from which X-engines make it, as in control.yaml."""

    name: str
    voltages: str  # name of the stream of voltages
    names: list  # antennas, in the order of feng_id
    n_chan: int
    samples_between_spectra: int
    adc_rate_hz: float
    sync_time: float
    integration_s: float
    endpoints: list  # [(address, port)] of all substreams
    katcp: tuple  # (host, port) of the controller
    items: dict = field(default_factory=dict)  # {endpoint: ItemGroup}; a second read_live() needs no descriptors

    @property
    def channel_hz(self):
        return self.adc_rate_hz / self.samples_between_spectra

    @property
    def n_accs(self):
        return round(self.integration_s * self.channel_hz)

    @property
    def labels(self):
        """Returns the inputs' labels, [ant][pol]."""
        return [[name + letter for letter in "vh"] for name in self.names]


def address_of(text):
    """Returns (host, port) of a text HOST:PORT."""
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdigit():
        raise Unusable(f"{text!r}: not an address HOST:PORT")
    return host, int(port)


def endpoints_of(path, text):
    found = []
    for part in str(text).split(","):
        feed = parse_feed(part)
        if feed is None:
            raise Unusable(f"{path}: destinations: {part!r} is not an address such as 239.10.8.0+3:7148")
        found += [(str(ipaddress.IPv4Address(address)), port) for address, port in feed]
    return found


def load_stream(path, name=None):
    """Returns the Stream 'name' of control.yaml; without a name, the first stream of visibilities."""
    config = load_yaml(path)
    try:
        streams = {stream["name"]: stream for stream in config["streams"]}
        kinds = [stream["name"] for stream in config["streams"] if stream["kind"] == "visibilities"]
        if not kinds:
            raise Unusable(f"{path}: has no stream of visibilities")
        if name is not None and name not in kinds:
            raise Unusable(f"{path}: has no stream of visibilities '{name}', only {', '.join(kinds)}")
        vis = streams[name or kinds[0]]
        voltages = streams[vis["source"]]
        antennas = sorted(config["antennas"], key=lambda antenna: antenna["feng_id"])
        return Stream(vis["name"], voltages["name"], [antenna["name"] for antenna in antennas],
                      int(voltages["channels"]), int(voltages["samples_between_spectra"]),
                      float(config["time"]["adc_sample_rate"]),
                      float(config["time"]["sync_time"]), float(vis["integration_s"]),
                      endpoints_of(path, vis["destinations"]), address_of(config["katcp"]["listen"]))
    except KeyError as error:
        raise Unusable(f"{path}: not a configuration of cbf-control: {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"{path}: not a configuration of cbf-control: {error}") from error


# ---- Live ------------------------------------------------------------------------------------------------------------


class Sums:
    """Sums over all dumps.  The thread of a substream adds only the substream's channels, so threads share no
    elements."""

    def __init__(self, stream):
        self.stream = stream
        n_ant = len(stream.names)
        shape = (N_POLS, n_ant * (n_ant + 1) // 2, stream.n_chan)
        self.vis, self.n_spectra = np.zeros(shape, np.complex64), np.zeros(shape, np.float32)
        self.timestamps = []  # timestamps of the dumps

    def add(self, first, raw, weights):
        """Adds a heap.  raw: [chan, product, 2].  weights: numbers of spectra, [baseline] or [chan, baseline].

        Without weights, each visibility is the sum of the stream's number of spectra.
        """
        n_chan, n_product = raw.shape[:2]
        if first + n_chan > self.stream.n_chan or n_product != 4 * self.vis.shape[1]:
            raise Unusable(f"{self.stream.name}: a heap has the channels {first} to {first + n_chan - 1} and "
                           f"{n_product} products; the configuration has {self.stream.n_chan} channels and "
                           f"{4 * self.vis.shape[1]} products")
        hands = raw.reshape(n_chan, -1, 4, 2)[:, :, ::3].transpose(2, 1, 0, 3)  # [pol, baseline, chan, 2]
        is_good = (hands[..., 0] != BAD_VALUE) & np.isfinite(hands[..., 0])
        part = (slice(None), slice(None), slice(first, first + n_chan))
        vis = hands[..., 0] + np.complex64(1j) * hands[..., 1].astype(np.float32)
        self.vis[part] += np.where(is_good, vis, 0)
        n = np.float32(self.stream.n_accs) if weights is None else np.atleast_2d(weights).T.astype(np.float32)
        self.n_spectra[part] += is_good * n

    def data(self, near_unix_s):
        """Returns the Data.  Adds to each timestamp the multiple of WRAP that brings its time nearest to
        'near_unix_s'."""
        stream = self.stream
        near = round((near_unix_s - stream.sync_time) * stream.adc_rate_hz)
        times = [near + (t - near + WRAP // 2) % WRAP - WRAP // 2 for t in self.timestamps]
        start, end = (stream.sync_time + t / stream.adc_rate_hz for t in (min(times), max(times)))
        return Data(stream.names, stream.channel_hz, self.vis, self.n_spectra, start, end + stream.integration_s)


def take(spead_stream, items, sums, n_dumps, not_before, failures):
    """Adds 'n_dumps' dumps of a substream, beginning at the timestamp 'not_before'.  Returns earlier if the stream
    stops."""
    n_taken = 0
    try:
        for heap in spead_stream:
            updated = items.update(heap)
            if "xeng_raw" not in updated:
                continue
            timestamp = int(items["timestamp"].value)
            if (timestamp - not_before) % WRAP >= WRAP // 2:
                continue
            weights = items["xeng_weights"].value if "xeng_weights" in updated else None
            sums.add(int(items["frequency"].value), items["xeng_raw"].value, weights)
            sums.timestamps.append(timestamp)
            n_taken += 1
            if n_taken == n_dumps:
                return
    except Unusable as error:
        failures.append(error)


def read_live(stream, interface, n_dumps, not_before=None):
    """Receives 'n_dumps' dumps of each substream, on the interface with the IPv4 address 'interface'.

    not_before: timestamp, in ADC samples, of the first dump to use.  Returns (Data, [substreams without data]).
    """
    now_s = time.time()
    if not_before is None:
        not_before = round((now_s - stream.sync_time) * stream.adc_rate_hz) - WRAP // 4
    sums, failures, running = Sums(stream), [], []
    for address, port in stream.endpoints:
        spead_stream = spead2.recv.Stream(
            spead2.ThreadPool(), spead2.recv.StreamConfig(max_heaps=MAX_HEAPS, stop_on_stop_item=False),
            spead2.recv.RingStreamConfig(heaps=MAX_HEAPS))
        try:
            spead_stream.add_udp_reader(address, port, buffer_size=8 << 20, interface_address=interface)
        except (RuntimeError, ValueError) as error:
            raise Unusable(f"{address}:{port}: cannot be received on {interface}: {error}") from error
        items = stream.items.setdefault((address, port), spead2.ItemGroup())
        thread = threading.Thread(target=take, args=(spead_stream, items, sums, n_dumps, not_before, failures),
                                  daemon=True)
        thread.start()
        running.append((thread, spead_stream))
    wait_s = max(0.0, stream.sync_time + not_before / stream.adc_rate_hz - now_s)
    deadline_s = time.monotonic() + wait_s + (n_dumps + 1) * stream.integration_s + LIVE_GRACE_S
    for thread, spead_stream in running:
        thread.join(max(0, deadline_s - time.monotonic()))
        spead_stream.stop()
        thread.join()
    if failures:
        raise failures[0]
    if not sums.timestamps:
        raise Unusable(f"{stream.name}: no complete heap came on {interface}: do X-engines send it (?capture-start)?")
    width = stream.n_chan // len(stream.endpoints)
    heard = sums.n_spectra.any((0, 1)).reshape(-1, width).any(1)
    return sums.data(now_s), [f"{a}:{p}" for (a, p), ok in zip(stream.endpoints, heard) if not ok]


# ---- Files -----------------------------------------------------------------------------------------------------------


def read_file(path, n_dumps=None):
    """Returns the Data of the last 'n_dumps' dumps of a file, or of all dumps."""
    dumps = slice(-n_dumps if n_dumps else None, None)
    try:
        sets = [visfile.load(path, pol, dumps) for pol in ("xx", "yy")]
    except visfile.Unreadable as error:
        raise Unusable(str(error)) from error
    first = sets[0]
    n_ant, n_chan = len(first.names), len(first.freqs_hz)
    if n_chan < 2:
        raise Unusable(f"{path}: has one channel, but a delay needs two or more")
    channel_hz = float(first.freqs_hz[1] - first.freqs_hz[0])
    shape = (N_POLS, n_ant * (n_ant + 1) // 2, n_chan)
    vis, n_spectra = np.zeros(shape, np.complex64), np.zeros(shape, np.float32)
    for pol, found in enumerate(sets):
        at = [baseline_of(min(pair), max(pair)) for pair in found.baselines]
        is_earlier = np.array([a1 <= a2 for a1, a2 in found.baselines])[:, None]
        total = found.vis.filled(0).sum(0)  # conj(e_a1) e_a2
        vis[pol, at] = np.where(is_earlier, total.conj(), total)
        is_good = ~np.ma.getmaskarray(found.vis)
        n_spectra[pol, at] = (found.nsamples * is_good).sum(0) * (first.integration_s * channel_hz)
    half_s = first.integration_s / 2
    return Data(first.names, channel_hz, vis, n_spectra, first.unix_s[0] - half_s, first.unix_s[-1] + half_s)
