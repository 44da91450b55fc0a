"""Computes satellites' positions from broadcast ephemerides in RINEX files, and their signals' delays at antennas.

The files are RINEX 2 (GPS), or RINEX 3 and 4 (GPS LNAV; Galileo INAV and FNAV).  Orbits follow IS-GPS-200, table 20-IV.
The Galileo OS SIS ICD has the same formulas with another value of mu.  Positions are in metres along the axes of
ECEF.

Only differences between antennas count.  So the satellite's clock, the ionosphere and the troposphere are left out.
Over a kilometre, their effects differ by less than a centimetre.
"""
import calendar
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnsscal_read import Unusable, load_yaml

C = 299792458.0
GPS_EPOCH_UNIX_S = 315964800
WEEK_S = 604800
MU = {"G": 3.986005e14, "E": 3.986004418e14}
EARTH_RATE = 7.2921151467e-5
MAX_AGE_S = 4 * 3600
WGS84_A, WGS84_F = 6378137.0, 1 / 298.257223563
N_ORBIT_NUMBERS = 24  # numbers in the six lines of an ephemeris that follow its clock line
ORBIT = ("iode", "crs", "delta_n", "m0", "cuc", "e", "cus", "sqrt_a", "toe", "cic", "omega0", "cis", "i0", "crc",
         "omega", "omega_dot", "idot", "codes", "week", "flag", "accuracy", "health")
DEFAULT_LEAP_S = 18  # GPS - UTC, since 2017


@dataclass
class Telescope:
    latitude_rad: float
    longitude_rad: float
    position: np.ndarray
    antennas: dict  # name: position

    def axes(self):
        """Unit vectors east, north, up."""
        slat, clat = np.sin(self.latitude_rad), np.cos(self.latitude_rad)
        slon, clon = np.sin(self.longitude_rad), np.cos(self.longitude_rad)
        return np.array([[-slon, clon, 0], [-slat * clon, -slat * slon, clat], [clat * clon, clat * slon, slat]])


def load_telescope(path):
    """Reads an array.yaml or a configuration of visrec: 'telescope', and each antenna's 'position' (east, north, up)."""
    config = load_yaml(path)
    try:
        given = config["telescope"]
        latitude, longitude = np.radians([float(given["latitude"]), float(given["longitude"])])
        e2 = WGS84_F * (2 - WGS84_F)
        n = WGS84_A / np.sqrt(1 - e2 * np.sin(latitude) ** 2)
        height = float(given["altitude"])
        across = (n + height) * np.cos(latitude)
        position = np.array([across * np.cos(longitude), across * np.sin(longitude),
                             (n * (1 - e2) + height) * np.sin(latitude)])
        telescope = Telescope(latitude, longitude, position, {})
        for antenna in config["antennas"]:
            if "position" in antenna:
                east_north_up = np.array(antenna["position"], float).reshape(3)
                telescope.antennas[antenna["name"]] = position + east_north_up @ telescope.axes()
        return telescope
    except KeyError as error:
        raise Unusable(f"{path}: has no antenna positions: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise Unusable(f"{path}: has no antenna positions: {error}") from error


# ---- RINEX -----------------------------------------------------------------------------------------------------------


def numbers_of(line, first):
    """Returns the numbers in fields of 19 columns, beginning at column 'first'.  An empty field is 0."""
    fields = [line[at:at + 19].strip() for at in range(first, min(len(line), first + 76), 19)]
    return [float(field.upper().replace("D", "E")) if field else 0.0 for field in fields]


class Ephemerides:
    """All ephemerides of a RINEX navigation file."""

    def __init__(self, path):
        self.path, self.leap_s, self.found = path, DEFAULT_LEAP_S, {}  # found: {(system, PRN): [ephemeris]}
        try:
            lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
        except OSError as error:
            raise Unusable(f"{path}: cannot be read: {error.strerror}") from error
        try:
            version = float(lines[0][:9])
            if lines[0][60:].strip() != "RINEX VERSION / TYPE" or "N" not in lines[0][20:21]:
                raise ValueError("the first line does not begin a navigation file")
            body = next(i for i, line in enumerate(lines) if line[60:].strip() == "END OF HEADER") + 1
            for line in lines[:body]:
                if line[60:].strip() == "LEAP SECONDS":
                    self.leap_s = int(line[:6])
            self.read_body(lines[body:], version)
        except (ValueError, IndexError, StopIteration) as error:
            raise Unusable(f"{path}: not a RINEX navigation file: {error or 'its header has no end'}") from error

    def read_body(self, lines, version):
        at, is_wanted = 0, True
        while at < len(lines):
            line = lines[at]
            if line.startswith(">"):  # RINEX 4: this line tells the kind of the next record
                is_wanted = line.split()[1] == "EPH" and line.split()[3] in ("LNAV", "INAV", "FNAV")
                at += 1
                continue
            system = "G" if version < 3 else line[:1]
            begins = line[:2].strip().isdigit() if version < 3 else line[1:3].strip().isdigit() and system.isalpha()
            if begins and is_wanted and system in MU:
                prn = int(line[:2] if version < 3 else line[1:3])
                self.add(system, prn, lines[at + 1:at + 7], 3 if version < 3 else 4)
                at += 6
            at += 1

    def add(self, system, prn, lines, first):
        numbers = [number for line in lines for number in (numbers_of(line, first) + [0.0] * 4)[:4]]
        if len(numbers) != N_ORBIT_NUMBERS:
            raise ValueError(f"the data of {system}{prn:02d} are cut off")
        eph = dict(zip(ORBIT, numbers), system=system)
        if eph["sqrt_a"] <= 0:
            raise ValueError(f"{system}{prn:02d} has no orbit")
        self.found.setdefault((system, prn), []).append(eph)

    def nearest(self, system, prn, gps_s):
        """Returns the healthy ephemeris with the nearest reference time, or None."""
        def age(eph):
            return abs(gps_s - epoch_gps_s(eph))
        usable = [eph for eph in self.found.get((system, prn), []) if age(eph) <= MAX_AGE_S and eph["health"] == 0]
        return min(usable, key=age, default=None)


def epoch_gps_s(eph):
    return eph["week"] * WEEK_S + eph["toe"]


def position(eph, t):
    """Returns the satellite's position [..., 3], 't' seconds after the ephemeris' time, along the axes of ECEF at
    that time."""
    t = np.asarray(t)
    a = eph["sqrt_a"] ** 2
    mean = eph["m0"] + (np.sqrt(MU[eph["system"]] / a ** 3) + eph["delta_n"]) * t
    eccentric = mean
    for _ in range(10):
        eccentric = mean + eph["e"] * np.sin(eccentric)
    true = np.arctan2(np.sqrt(1 - eph["e"] ** 2) * np.sin(eccentric), np.cos(eccentric) - eph["e"])
    u = true + eph["omega"]
    c2, s2 = np.cos(2 * u), np.sin(2 * u)
    u = u + eph["cus"] * s2 + eph["cuc"] * c2
    r = a * (1 - eph["e"] * np.cos(eccentric)) + eph["crs"] * s2 + eph["crc"] * c2
    i = eph["i0"] + eph["idot"] * t + eph["cis"] * s2 + eph["cic"] * c2
    node = eph["omega0"] + (eph["omega_dot"] - EARTH_RATE) * t - EARTH_RATE * eph["toe"]
    x, y = r * np.cos(u), r * np.sin(u)
    return np.stack([x * np.cos(node) - y * np.cos(i) * np.sin(node), x * np.sin(node) + y * np.cos(i) * np.cos(node),
                     y * np.sin(i)], -1)


def seen(eph, t, place):
    """Returns (satellite's position, travel time of its signal in s) for a signal received at 'place' at time 't'.
    The position is along the axes of ECEF at 't'."""
    delay_s = np.full(np.shape(t), 0.075)
    for _ in range(4):
        sent = position(eph, t - delay_s)
        turn = EARTH_RATE * delay_s
        at = np.stack([sent[..., 0] * np.cos(turn) + sent[..., 1] * np.sin(turn),
                       sent[..., 1] * np.cos(turn) - sent[..., 0] * np.sin(turn), sent[..., 2]], -1)
        delay_s = np.linalg.norm(at - place, axis=-1) / C
    return at, delay_s


def direction(eph, t, telescope):
    """Returns (azimuth from north towards east, elevation) in radians."""
    at, _ = seen(eph, t, telescope.position)
    east, north, up = telescope.axes() @ (at - telescope.position)
    return np.arctan2(east, north) % (2 * np.pi), np.arctan2(up, np.hypot(east, north))


def separation(one, other):
    """Returns the angle in radians between two directions (azimuth, elevation)."""
    vectors = [np.array([np.cos(el) * np.sin(az), np.cos(el) * np.cos(az), np.sin(el)]) for az, el in (one, other)]
    return np.arctan2(np.linalg.norm(np.cross(*vectors)), np.dot(*vectors))


class Sky:
    """Delays and directions of satellites at the antennas."""

    def __init__(self, ephemerides, telescope, reference, sync_time, start_s):
        """All times are seconds since the sync time.  'start_s' is the time at which the data start."""
        self.ephemerides, self.telescope, self.reference = ephemerides, telescope, reference
        self.sync_gps_s = sync_time - GPS_EPOCH_UNIX_S + ephemerides.leap_s
        self.start_s = start_s

    def ephemeris(self, signal, prn):
        """Returns the ephemeris of a satellite; None if the file has no usable ephemeris."""
        return self.ephemerides.nearest(signal.system, prn, self.sync_gps_s + self.start_s)

    def later_s(self, antenna, signal, prn, seconds):
        """Returns the delay of the signal at 'antenna' relative to the reference, in s.  There is one delay for each
        time of reception in 'seconds'.  If the signal arrives later at 'antenna', the delay is positive."""
        eph = self.ephemeris(signal, prn)
        grid = np.linspace(seconds[0], seconds[-1], 2 + int(seconds[-1] - seconds[0]))
        own_s, other_s = (seen(eph, self.sync_gps_s - epoch_gps_s(eph) + grid, self.telescope.antennas[name])[1]
                          for name in (antenna, self.reference))
        return np.interp(seconds, grid, own_s - other_s)

    def direction(self, signal, prn):
        eph = self.ephemeris(signal, prn)
        return direction(eph, self.sync_gps_s - epoch_gps_s(eph) + self.start_s, self.telescope)
