"""Reads the parts of control.yaml that pointing needs: the telescope's place, antennas' positions and streams."""
from dataclasses import dataclass
from pathlib import Path

import erfa
import numpy as np
import yaml

WGS84 = 1  # number of the ellipsoid WGS84 in erfa
N_POLS = 2


class Unusable(Exception):
    """Input that cannot be used.  The text is one sentence for the operator."""


@dataclass
class Place:
    """A point on Earth, WGS84."""
    longitude_rad: float
    latitude_rad: float
    height_m: float

    @property
    def position_m(self):
        """Returns the position in ITRS, in metres, [3]."""
        return erfa.gd2gc(WGS84, self.longitude_rad, self.latitude_rad, self.height_m)

    @property
    def axes(self):
        """Returns the unit vectors east, north and up in ITRS, [3, 3]."""
        slat, clat = np.sin(self.latitude_rad), np.cos(self.latitude_rad)
        slon, clon = np.sin(self.longitude_rad), np.cos(self.longitude_rad)
        return np.array([[-slon, clon, 0], [-slat * clon, -slat * slon, clat], [clat * clon, clat * slon, slat]])


@dataclass
class Stream:
    """A stream of voltages.  'group_delay_s' is the time from the first sample of a filter window to the window's
    centre."""
    name: str
    sky_centre_hz: float
    is_inverted: bool  # the sky frequency falls while the digitised frequency rises
    group_delay_s: float


@dataclass
class Array:
    name: str
    place: Place  # origin of the antennas' positions, and of the delays
    antennas: list  # names, in the order of feng_id
    positions_m: np.ndarray  # [n_ants, 3]: metres east, north and up, relative to 'place'
    streams: dict  # name: Stream
    sources: dict  # name of a beam: name of its Stream
    adc_rate_hz: float
    controller: str  # HOST:PORT; empty if the file has none

    def stream(self, name):
        if name not in self.streams:
            raise Unusable(f"there is no stream of voltages '{name}', only {', '.join(self.streams)}")
        return self.streams[name]

    def seen_from(self, antenna):
        """Returns the same array with 'antenna' as origin of the delays."""
        if antenna not in self.antennas:
            raise Unusable(f"there is no antenna '{antenna}', only {', '.join(self.antennas)}")
        itrs_m = self.place.position_m + self.positions_m @ self.place.axes
        origin_m = itrs_m[self.antennas.index(antenna)]
        place = Place(*(float(x) for x in erfa.gc2gd(WGS84, origin_m)))
        return Array(self.name, place, self.antennas, (itrs_m - origin_m) @ place.axes.T, self.streams, self.sources,
                     self.adc_rate_hz, self.controller)


def stream_of(config, adc_rate_hz):
    sideband = config.get("sideband", "upper")
    if sideband not in ("upper", "lower"):
        raise ValueError(f"sideband '{sideband}' of {config['name']} is neither upper nor lower")
    centre_hz = float(config.get("sky_centre_frequency", config.get("centre_frequency")))
    return Stream(config["name"], centre_hz, sideband == "lower", (int(config["filter_samples"]) - 1) / 2 / adc_rate_hz)


def load_array(path):
    """Reads control.yaml.  Raises Unusable if the file lacks anything that pointing needs."""
    try:
        config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Unusable(f"{path}: cannot be read: {error}") from error
    try:
        telescope = config["telescope"]
        longitude_rad, latitude_rad = np.radians([float(telescope["longitude"]), float(telescope["latitude"])])
        place = Place(float(longitude_rad), float(latitude_rad), float(telescope["altitude"]))
        antennas = sorted(config["antennas"], key=lambda antenna: antenna["feng_id"])
        positions_m = np.array([antenna["position"] for antenna in antennas], float).reshape(len(antennas), 3)
        adc_rate_hz = float(config["time"]["adc_sample_rate"])
        streams = [stream_of(of, adc_rate_hz) for of in config["streams"] if of["kind"] == "voltages"]
        sources = {of["name"]: of["source"] for of in config["streams"] if of["kind"] in ("beam", "detected")}
        return Array(config.get("array", ""), place, [antenna["name"] for antenna in antennas], positions_m,
                     {stream.name: stream for stream in streams}, sources, adc_rate_hz,
                     config.get("katcp", {}).get("listen", ""))
    except KeyError as error:
        raise Unusable(f"{path}: pointing needs the key {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"{path}: not a control.yaml that pointing can use: {error}") from error
