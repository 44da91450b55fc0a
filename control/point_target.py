"""Targets.  The operator gives a target as text.  A target computes its direction and distance at a time.

    radec RA DEC           ICRS: 05:34:31.95 +22:00:52.2 (hours, degrees), or both in decimal degrees
    azel AZ EL [DISTANCE]  fixed to the ground: degrees from north towards east, degrees of elevation, metres
    tle FILE [NAME]        an earth satellite, from a file of two-line elements
    tle LINE1 LINE2        an earth satellite, from the elements themselves
    sun, moon, mercury ... neptune

Directions are unit vectors [n, 3] with the components east, north and up at the array's origin.  The wave arrives from
this direction at an observer at rest on the ground.  The direction contains precession, nutation, UT1, polar motion,
annual and diurnal aberration, and light time.  It does not contain refraction, because no model here describes the
troposphere.  Distances are in metres, and inf for sources of plane waves."""
import re
from dataclasses import dataclass
from pathlib import Path

import astropy.units as u
import erfa
import numpy as np
from astropy.coordinates import Angle
from sgp4.api import Satrec

from point_array import Unusable

C_M_S = 299792458.0
AU_M = 149597870700.0
EARTH_RATE_RAD_S = 7.292115e-5
DAY_S = 86400.0
PLANETS = {"mercury": 1, "venus": 2, "mars": 4, "jupiter": 5, "saturn": 6, "uranus": 7, "neptune": 8}  # of plan94
BODIES = ("sun", "moon", *PLANETS)
LIGHT_TIME_STEPS = 3


def east_north_up(azimuth_rad, elevation_rad):
    across = np.cos(elevation_rad)
    return np.stack([across * np.sin(azimuth_rad), across * np.cos(azimuth_rad), np.sin(elevation_rad)], -1)


def split(vectors):
    """Returns (unit vectors, lengths)."""
    lengths = np.linalg.norm(vectors, axis=-1)
    return vectors / lengths[..., None], lengths


def observer(earth, place):
    """Returns erfa's context of an observer without an atmosphere."""
    return erfa.apco13(*earth.utc, earth.dut1_s, place.longitude_rad, place.latitude_rad, place.height_m,
                       earth.pole_x_rad, earth.pole_y_rad, 0, 0, 0, 1)[0]


def topocentric(ri_rad, di_rad, context):
    """Returns the directions of positions in CIRS."""
    azimuth_rad, zenith_rad, *_ = erfa.atioq(ri_rad, di_rad, context)
    return east_north_up(azimuth_rad, np.pi / 2 - zenith_rad)


@dataclass
class Radec:
    text: str
    ra_rad: float
    dec_rad: float

    def at(self, earth, place):
        context = observer(earth, place)
        return topocentric(*erfa.atciq(self.ra_rad, self.dec_rad, 0, 0, 0, 0, context), context), np.inf


@dataclass
class Azel:
    text: str
    azimuth_rad: float
    elevation_rad: float
    distance_m: float = np.inf

    def at(self, earth, place):
        direction = east_north_up(self.azimuth_rad, self.elevation_rad)
        return np.broadcast_to(direction, (len(earth.dut1_s), 3)), self.distance_m


@dataclass
class Body:
    """A body of the solar system, from erfa's analytic theories.  The bending of the body's light by the Sun is left
    out."""
    text: str

    def barycentric_au(self, tt):
        helio, bary = (pv["p"] for pv in erfa.epv00(*tt))
        if self.text == "moon":
            return bary + erfa.moon98(*tt)["p"]
        sun = bary - helio
        return sun if self.text == "sun" else sun + erfa.plan94(*tt, PLANETS[self.text])["p"]

    def at(self, earth, place):
        context = observer(earth, place)
        light_s = np.zeros_like(earth.dut1_s)
        for _ in range(LIGHT_TIME_STEPS):
            seen_au = self.barycentric_au((earth.tt[0], earth.tt[1] - light_s / DAY_S)) - context["eb"]
            light_s = np.linalg.norm(seen_au, axis=-1) * AU_M / C_M_S
        natural, distance_au = split(seen_au)
        proper = erfa.ab(natural, context["v"], np.linalg.norm(context["eb"], axis=-1), context["bm1"])
        return topocentric(*erfa.c2s(erfa.rxp(context["bpn"], proper)), context), distance_au * AU_M


@dataclass
class Tle:
    """An earth satellite.  SGP4 gives the satellite's position in TEME.  The axes of TEME do not rotate.

    The wave leaves the satellite at the time T - light.  The Earth's rotation moves the origin with the velocity v.  In
    the rest frame of the origin, the satellite's position at T - light is displaced by v * light (aberration).
    """
    text: str
    satellite: Satrec

    def teme_m(self, utc, earlier_s):
        errors, km, _ = self.satellite.sgp4_array(*np.broadcast_arrays(utc[0], utc[1] - earlier_s / DAY_S))
        if errors.any():
            raise Unusable(f"{self.text}: SGP4 finds no position at this time (error {errors.max()})")
        return km * 1e3

    def at(self, earth, place):
        spin = erfa.rz(erfa.gmst82(*earth.ut1), np.broadcast_to(np.eye(3), (len(earth.dut1_s), 3, 3)))
        to_itrs = erfa.rxr(erfa.pom00(earth.pole_x_rad, earth.pole_y_rad, erfa.sp00(*earth.tt)), spin)
        here_m = place.position_m
        light_s = np.zeros_like(earth.dut1_s)
        for _ in range(LIGHT_TIME_STEPS):
            seen_m = erfa.rxp(to_itrs, self.teme_m(earth.utc, light_s)) - here_m
            light_s = np.linalg.norm(seen_m, axis=-1) / C_M_S
        velocity_m_s = np.cross([0, 0, EARTH_RATE_RAD_S], here_m)
        return split((seen_m + velocity_m_s * light_s[:, None]) @ place.axes.T)


# ---- From text -------------------------------------------------------------------------------------------------------


def parse_radec(text, ra, dec):
    is_hours = ":" in ra or "h" in ra
    angles = Angle(ra, u.hourangle if is_hours else u.deg), Angle(dec, u.deg)
    if abs(angles[1].deg) > 90:
        raise ValueError("the declination is beyond 90 degrees")
    return Radec(text, *(float(angle.rad) for angle in angles))


def parse_azel(text, azimuth, elevation, distance="inf"):
    numbers = float(azimuth), float(elevation), float(distance)
    if not np.isfinite(numbers[:2]).all() or abs(numbers[1]) > 90 or not numbers[2] > 0:
        raise ValueError("the elevation is beyond 90 degrees, or a number is not valid")
    return Azel(text, *np.radians(numbers[:2]).tolist(), numbers[2])


def parse_elements(first, second):
    for line, number in ((first, "1"), (second, "2")):
        digits = sum(int(c) if c.isdigit() else c == "-" for c in line[:68])
        if len(line) != 69 or line[0] != number or str(digits % 10) != line[68]:
            raise ValueError(f"line {number} of the elements is not complete, or its checksum is wrong")
    return Tle(f"tle {first} {second}", Satrec.twoline2rv(first, second))


def parse_tle(rest):
    if given := re.fullmatch(r"(1 .{67})\s+(2 .{67})", rest.strip(), re.S):
        return parse_elements(*given.groups())
    path, _, name = rest.strip().partition(" ")
    lines = [line.rstrip() for line in Path(path).read_text(encoding="ascii", errors="replace").splitlines()]
    for i, line in enumerate(lines[:-1]):
        if line.startswith("1 ") and lines[i + 1].startswith("2 "):
            title = lines[i - 1].removeprefix("0 ").strip() if i else ""
            if not name.strip() or name.strip() in (title, line[2:7].strip()):
                return parse_elements(line, lines[i + 1])
    raise ValueError(f"{path} has no elements{' of ' + name.strip() if name else ''}")


def parse_target(text):
    """Returns the target that 'text' describes.  If 'text' names a file of elements, the target's own text contains the
    elements instead of the file's name."""
    kind, _, rest = text.strip().partition(" ")
    try:
        if kind == "tle":
            return parse_tle(rest)
        if kind == "radec":
            return parse_radec(text.strip(), *rest.split())
        if kind == "azel":
            return parse_azel(text.strip(), *rest.split())
        if kind.lower() in BODIES and not rest:
            return Body(kind.lower())
    except (ValueError, TypeError, OSError) as error:  # TypeError: a wrong number of words
        why = "a wrong number of words" if isinstance(error, TypeError) else error
        raise Unusable(f"target '{text}': {why}") from error
    raise Unusable(f"target '{text}' is not one of: radec RA DEC, azel AZ EL [DISTANCE], tle FILE [NAME], "
                   f"{', '.join(BODIES)}")
