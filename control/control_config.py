"""control.yaml, the controller's configuration: antennas, streams, engines and recorders of an array.

scripts/array writes this file.  docs/control.md lists the keys.  All frequencies are in Hz, all times in s.
"""
import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

POLARISATIONS = "vh"  # last letters of the labels of polarisations 0 and 1
KINDS = ("voltages", "visibilities", "beam", "detected", "gnss")
KATCP_PORT = 7147
HTTP_PORT = 8080


class ConfigError(ValueError):
    """A mistake in control.yaml.  The text is one sentence that begins with the key."""


@dataclass(frozen=True)
class Antenna:
    name: str
    feng_id: int
    position: tuple | None = None  # (east, north, up) in m

    @property
    def labels(self):
        return [self.name + pol for pol in POLARISATIONS]


@dataclass(frozen=True)
class Stream:
    """A stream.  'keys' has all keys of the stream in control.yaml.  'source' is the name of the stream of voltages
    from which X-engines make this stream; '' for a stream of F-engines."""

    name: str
    kind: str
    source: str
    keys: dict

    def get(self, key, default=None):
        return self.keys.get(key, default)


@dataclass(frozen=True)
class EngineConfig:
    """An engine or a recorder.  'katcp' is (host, port), or None for a recorder.  'http' is host:port or ''.
    'antennas' are the names of an F-engine's antennas, in the order of its inputs.  'stream' is the name of the stream
    of voltages that an X-engine receives."""

    name: str
    program: str
    host: str
    katcp: tuple | None
    http: str
    antennas: tuple = ()
    stream: str = ""
    first_channel: int = 0
    channels: int = 0
    keys: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    array: str
    sync_time_s: float
    adc_sample_rate_hz: float
    katcp: tuple  # (host, port)
    allow: tuple  # networks whose hosts may send requests; None: every host may
    http: tuple | None  # (host, port)
    telescope: dict | None
    antennas: tuple
    streams: dict  # name -> Stream
    engines: tuple
    recorders: tuple
    state_directory: Path | None
    text: dict  # all keys of control.yaml
    delays_timeout_s: float = 1.0
    gains_timeout_s: float = 10.0

    @property
    def labels(self):
        """Labels of all inputs, in order: m000v, m000h, m001v, ..."""
        return [label for antenna in self.antennas for label in antenna.labels]

    def fengs(self):
        return [engine for engine in self.engines if engine.program == "fgpu"]

    def xengs(self, stream):
        """Returns the X-engines that make a Stream, in the order of their channels.  For a stream of voltages, returns
        the X-engines that receive it."""
        voltages = stream.source or stream.name
        found = [engine for engine in self.engines if engine.program == "xbgpu" and engine.stream == voltages]
        return sorted(found, key=lambda engine: engine.first_channel)

    def makers(self, stream):
        """Returns the engines that send 'stream'."""
        return self.fengs() if stream.kind in ("voltages", "gnss") else self.xengs(stream)

    def made_of(self, source):
        """Returns the Streams that X-engines make from the stream of voltages with the name 'source'."""
        return [stream for stream in self.streams.values() if stream.source == source]


# ---- Reading ---------------------------------------------------------------------------------------------------------


def _take(where, section, key, kind, default=...):
    """Returns the value of a key.  Raises ConfigError if the value is not of the type 'kind', or if the key is missing
    and has no default."""
    value = section.get(key, default)
    if value is ...:
        raise ConfigError(f"{where}{key}: missing")
    if value is default:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a text", int: "an integer", float: "a number", dict: "a section", list: "a list"}
        raise ConfigError(f"{where}{key}: must be {words[kind]}, not {value!r}")
    return value


def endpoint(where, text, default_port, names=False):
    """Returns (address, port) of 'a.b.c.d:port', or of 'a.b.c.d' with the default port.  If 'names' is true, the name
    of a program in a cluster is accepted in place of an address."""
    host, _, port = text.partition(":")
    try:
        if not (names and re.fullmatch(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)*", host)):
            ipaddress.IPv4Address(host)
        number = int(port or default_port)
        if not 0 < number < 65536:
            raise ValueError
    except ValueError:
        raise ConfigError(f"{where}: must be an IPv4 address and a port, as in 10.8.0.1:{default_port}, not {text!r}") \
            from None
    return host, number


def _allow(text):
    """Returns the networks whose hosts may send requests; None: every host may.  This host itself always may."""
    if text.strip() == "any":
        return None
    try:
        return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigError(f"katcp.allow: {error}") from None


def _katcp(section):
    listen = endpoint("katcp.listen", _take("katcp.", section, "listen", str, f"127.0.0.1:{KATCP_PORT}"), KATCP_PORT)
    text = _take("katcp.", section, "allow", str, "")
    if not text and not ipaddress.ip_address(listen[0]).is_loopback:
        raise ConfigError(f"katcp.allow: missing; {listen[0]} is not loopback, so the key must name the networks whose "
                          "hosts may send requests, or 'any'")
    return listen, _allow(text)


def _items(text, key, required=()):
    items = _take("", text, key, list, [])
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise ConfigError(f"{key}[{i}]: must be a section")
        for name in ("name", *required):
            _take(f"{key}[{i}].", item, name, str)
    names = [item["name"] for item in items]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: two items have the name {name}")
    return items


def _antennas(text):
    found = []
    for i, item in enumerate(_items(text, "antennas")):
        position = _take(f"antennas[{i}].", item, "position", list, None)
        feng_id = _take(f"antennas[{i}].", item, "feng_id", int)
        found.append(Antenna(item["name"], feng_id, tuple(map(float, position)) if position else None))
    if not found:
        raise ConfigError("antennas: missing")
    found.sort(key=lambda antenna: antenna.feng_id)
    if len({antenna.feng_id for antenna in found}) < len(found):
        raise ConfigError("antennas: two antennas have the same feng_id")
    return tuple(found)


def _streams(text):
    streams = {}
    for i, item in enumerate(_items(text, "streams", ("kind",))):
        if item["kind"] not in KINDS:
            raise ConfigError(f"streams[{i}].kind: must be one of {', '.join(KINDS)}, not {item['kind']!r}")
        source = _take(f"streams[{i}].", item, "source", str, "")
        streams[item["name"]] = Stream(item["name"], item["kind"], source, item)
    for stream in streams.values():
        if stream.kind in ("visibilities", "beam", "detected"):
            if stream.source not in streams or streams[stream.source].kind != "voltages":
                raise ConfigError(f"streams: source of {stream.name} must be a stream of voltages, "
                                  f"not {stream.source!r}")
        if stream.kind == "voltages":
            _take(f"streams: {stream.name}: ", stream.keys, "channels", int)
        if stream.kind == "detected":
            _take(f"streams: {stream.name}: ", stream.keys, "beams", int)
    return streams


def _engine(section, i, item, antennas, streams):
    where = f"{section}[{i}]."
    names = tuple(_take(where, item, "antennas", list, []))
    stream = _take(where, item, "stream", str, "")
    katcp = _take(where, item, "katcp", str, None)
    for name in names:
        if name not in antennas:
            raise ConfigError(f"{where}antennas: there is no antenna {name}")
    if stream and stream not in streams:
        raise ConfigError(f"{where}stream: there is no stream {stream}")
    if section == "engines":
        if item["program"] not in ("fgpu", "xbgpu"):
            raise ConfigError(f"{where}program: must be fgpu or xbgpu, not {item['program']!r}")
        _take(where, item, "antennas" if item["program"] == "fgpu" else "stream",
              list if item["program"] == "fgpu" else str)
        _take(where, item, "katcp", str)
    return EngineConfig(item["name"], item["program"], item["host"],
                        endpoint(f"{where}katcp", katcp, KATCP_PORT, names=True) if katcp else None,
                        _take(where, item, "http", str, ""), names, stream,
                        _take(where, item, "first_channel", int, 0), _take(where, item, "channels", int, 0), item)


def _state_directory(text):
    """Returns state.directory, or else StateDirectory= of the systemd unit.  Returns None if there is neither: settings
    then do not survive a restart."""
    directory = _take("state.", _take("", text, "state", dict, {}), "directory", str, None)
    directory = directory or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(directory) if directory else None


def parse(text):
    """Returns the Config of a mapping read from control.yaml.  Raises ConfigError."""
    if not isinstance(text, dict):
        raise ConfigError("the file must have sections")
    time, timeouts = _take("", text, "time", dict), _take("", text, "timeouts", dict, {})
    listen, allow = _katcp(_take("", text, "katcp", dict, {}))
    http = _take("", text, "http", dict, None)
    antennas, streams = _antennas(text), _streams(text)
    engines = {section: tuple(_engine(section, i, item, {antenna.name for antenna in antennas}, streams)
                              for i, item in enumerate(_items(text, section, ("program", "host"))))
               for section in ("engines", "recorders")}
    carried = [name for engine in engines["engines"] for name in engine.antennas]
    for name in carried:
        if carried.count(name) > 1:
            raise ConfigError(f"engines: two engines have the antenna {name}")
    return Config(
        array=_take("", text, "array", str),
        sync_time_s=_take("time.", time, "sync_time", float),
        adc_sample_rate_hz=_take("time.", time, "adc_sample_rate", float),
        katcp=listen, allow=allow,
        http=endpoint("http.listen", _take("http.", http, "listen", str), HTTP_PORT) if http else None,
        telescope=_take("", text, "telescope", dict, None),
        antennas=antennas, streams=streams, engines=engines["engines"], recorders=engines["recorders"],
        state_directory=_state_directory(text), text=text,
        delays_timeout_s=_take("timeouts.", timeouts, "delays", float, 1.0),
        gains_timeout_s=_take("timeouts.", timeouts, "gains", float, 10.0))


def load(path):
    """Returns the Config of a file.  Raises ConfigError with the file's name."""
    try:
        return parse(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ConfigError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise ConfigError(f"{path}: {reason}") from None
