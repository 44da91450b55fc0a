"""Reads the F-engines' configuration and their heaps of satellites' correlation sums (fgpu/gnss/gnss_record.h)."""
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import spead2
import spead2.recv
import yaml

WRAP = 1 << 48  # ADC samples after which the timestamps in heaps wrap around
DEFAULT_PORT = 7148
LIVE_GRACE_S = 10  # additional waiting time for the heaps of a live stream


class Unusable(Exception):
    """An error whose text says in one sentence why the input cannot be used."""


@dataclass
class Antenna:
    name: str
    feng_id: int
    engine: int  # index of the configuration file of the antenna's F-engine
    index: int  # index of the antenna in its F-engine
    endpoint: tuple  # (address, port) of the antenna's stream


@dataclass(frozen=True)
class Band:
    """How fgpu makes a stream's complex samples from ADC samples: kernels/ddc/design_ddc.h."""

    adc_rate_hz: float
    subsampling: int
    n_taps: int
    weight_pass: float
    pass_fraction: float  # width of the pass band, in units of the rate of complex samples; 0: half of the band

    @property
    def sample_rate_hz(self):
        return self.adc_rate_hz / self.subsampling


@dataclass
class Array:
    """One gnss stream of all antennas, and the output to calibrate.  The stream contains sums for each satellite."""

    sync_time: float  # UNIX time of ADC sample 0
    adc_rate_hz: float
    stream: str
    band: Band
    sky_hz: float  # sky frequency at the centre of the stream's band
    is_inverted: bool
    output: str
    output_sky_hz: float  # sky frequency at the centre of the output's band
    output_gain: float
    antennas: list

    @property
    def endpoints(self):
        return list(dict.fromkeys(antenna.endpoint for antenna in self.antennas))


def load_yaml(path):
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise Unusable(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise Unusable(f"{path}: not a configuration: it has no keys")
    return loaded


def choose(path, sections, key, name):
    """Returns the section with this name; the first section if no name is given."""
    names = [section["name"] for section in sections or []]
    if not names:
        raise Unusable(f"{path}: has no '{key}'")
    if name is not None and name not in names:
        raise Unusable(f"{path}: '{key}' has no '{name}', only {', '.join(names)}")
    return sections[names.index(name) if name is not None else 0]


def endpoint_of(text):
    address, _, port = str(text).partition(":")
    return address, int(port or DEFAULT_PORT)


def engine_of(path, stream, output):
    """Reads the configuration file of one F-engine.  Returns an Array of this F-engine's antennas, with 'engine' 0."""
    config = load_yaml(path)
    try:
        gnss = choose(path, config.get("gnss"), "gnss", stream)
        out = choose(path, config.get("outputs"), "outputs", output)
        rate_hz = float(config["time"]["adc_sample_rate"])
        pass_hz = float(gnss.get("pass_bandwidth", 0))
        subsampling = int(gnss["decimation"]) * (2 if pass_hz > 0 else 1)
        band = Band(rate_hz, subsampling, int(gnss.get("ddc_taps", 0)) or 16 * subsampling,
                    float(gnss.get("weight_pass", 0.005)), pass_hz * subsampling / rate_hz)
        centre_hz = float(out["centre_frequency"]) if out.get("kind") == "narrowband" else rate_hz / 4
        is_inverted = bool(gnss.get("inverted", False))
        from_stream_hz = centre_hz - float(gnss["centre_frequency"])
        array = Array(sync_time=float(config["time"]["sync_time"]), adc_rate_hz=rate_hz, stream=gnss["name"],
                      band=band, sky_hz=float(gnss["sky_frequency"]), is_inverted=is_inverted, output=out["name"],
                      output_sky_hz=float(gnss["sky_frequency"]) + (-from_stream_hz if is_inverted else from_stream_hz),
                      output_gain=float(out.get("gain", 1)), antennas=[])
        endpoint = endpoint_of(gnss["destination"])
        array.antennas = [Antenna(antenna["name"], int(antenna["feng_id"]), 0, index, endpoint)
                          for index, antenna in enumerate(config["antennas"])]
        return array
    except KeyError as error:
        raise Unusable(f"{path}: not a configuration of fgpu: {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"{path}: not a configuration of fgpu: {error}") from error


def load_array(paths, stream=None, output=None):
    """Returns the Array in the files of all F-engines.  All files must have the same streams and outputs."""
    engines = [engine_of(path, stream, output) for path in paths]
    array = engines[0]
    known = []
    for engine, (path, one) in enumerate(zip(paths, engines)):
        for key in ("sync_time", "adc_rate_hz", "stream", "band", "sky_hz", "is_inverted", "output", "output_sky_hz",
                    "output_gain"):
            if getattr(array, key) != getattr(one, key):
                raise Unusable(f"{path}: {key} is {getattr(one, key)}, but {getattr(array, key)} in {paths[0]}")
        for antenna in one.antennas:
            antenna.engine = engine
            for other in known:
                if antenna.name == other.name or antenna.feng_id == other.feng_id:
                    raise Unusable(f"{path}: {antenna.name} and {other.name} must differ in name and feng_id")
            known.append(antenna)
    array.antennas = known
    return array


class Collector:
    """Collects an endpoint's heaps until each antenna has 'seconds' of data.  If 'seconds' is 0, collects until the
    stream ends."""

    def __init__(self, array, endpoint, seconds):
        self.n_samples = seconds * array.adc_rate_hz if seconds else float("inf")
        self.feng_ids = {antenna.feng_id for antenna in array.antennas if antenna.endpoint == endpoint}
        self.records = {}  # {feng_id: list of arrays}

    def take(self, stream):
        """Returns when all antennas have their data, or when the stream ends."""
        items, first, ended = spead2.ItemGroup(), {}, set()
        for heap in stream:
            if "gnss_sums" not in items.update(heap):
                continue
            feng_id, timestamp = int(items["feng_id"].value), int(items["timestamp"].value)
            if feng_id not in self.feng_ids or feng_id in ended:
                continue
            records = items["gnss_sums"].value
            self.records.setdefault(feng_id, []).append(records[records["prn"] > 0])
            if (timestamp - first.setdefault(feng_id, timestamp)) % WRAP >= self.n_samples:
                ended.add(feng_id)
                if ended == self.feng_ids:
                    return


def make_stream():
    config = spead2.recv.StreamConfig(max_heaps=64, stop_on_stop_item=False)
    return spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=256))


def read_captures(array, paths, seconds):
    """Returns {feng_id: records} from pcap files."""
    collected = {}
    for path in paths:
        for endpoint in array.endpoints:
            stream, collector = make_stream(), Collector(array, endpoint, seconds)
            try:
                stream.add_udp_pcap_file_reader(str(path), "udp and dst host {} and dst port {}".format(*endpoint))
            except RuntimeError as error:
                raise Unusable(f"{path}: not a capture: {error}") from error
            collector.take(stream)
            stream.stop()
            merge(collected, collector.records)
    return collected


def read_live(array, interface, seconds):
    """Returns {feng_id: records} from multicast streams, received on the interface with this address."""
    collected, running = {}, []
    for endpoint in array.endpoints:
        stream, collector = make_stream(), Collector(array, endpoint, seconds)
        try:
            stream.add_udp_reader(*endpoint, buffer_size=8 << 20, interface_address=interface)
        except (RuntimeError, ValueError) as error:
            raise Unusable(f"{endpoint[0]}:{endpoint[1]}: cannot be received on {interface}: {error}") from error
        thread = threading.Thread(target=collector.take, args=(stream,), daemon=True)
        thread.start()
        running.append((thread, stream, collector))
    print(f"receiving {', '.join(f'{address}:{port}' for address, port in array.endpoints)} on {interface}", flush=True)
    deadline_s = time.monotonic() + seconds + LIVE_GRACE_S
    for thread, stream, collector in running:
        thread.join(max(0, deadline_s - time.monotonic()))
        stream.stop()
        thread.join()
        merge(collected, collector.records)
    return collected


def merge(collected, records):
    for feng_id, parts in records.items():
        collected[feng_id] = np.concatenate(([collected[feng_id]] if feng_id in collected else []) + parts)


def unwrap(collected, near_samples=None):
    """Unwraps all antennas' timestamps relative to the first timestamp.  Then adds a multiple of WRAP to all
    timestamps, so that the first timestamp is as near to 'near_samples' as possible."""
    base = next(int(records["timestamp"][0]) for records in collected.values() if len(records))
    start = base
    if near_samples is not None:
        start += round((near_samples - base) / WRAP) * WRAP
    for records in collected.values():
        records["timestamp"] = (records["timestamp"] - base + WRAP // 2) % WRAP - WRAP // 2 + start


def read(array, captures=(), interface=None, seconds=0, near_unix_s=None):
    """Returns {antenna's name: records in order of time}, from captures, or without captures from live streams."""
    collected = read_captures(array, captures, seconds) if captures else read_live(array, interface, seconds)
    where = ", ".join(map(str, captures)) if captures else ", ".join(f"{a}:{p}" for a, p in array.endpoints)
    for antenna in array.antennas:
        if len(collected.get(antenna.feng_id, ())) == 0:
            raise Unusable(f"{antenna.name}: {where} has no sums of its stream {array.stream} (feng_id "
                           f"{antenna.feng_id})")
    unwrap(collected, near_unix_s and (near_unix_s - array.sync_time) * array.adc_rate_hz)
    return {antenna.name: np.sort(collected[antenna.feng_id], order="timestamp") for antenna in array.antennas}
