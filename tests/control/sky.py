"""Computes delays of a target at antennas with astropy and with textbook formulas, without any code of control/."""
import astropy.units as u
import numpy as np
from astropy.coordinates import EarthLocation, ITRS, SkyCoord, TEME, GCRS, CartesianRepresentation
from astropy.coordinates import get_body_barycentric_posvel
from astropy.time import Time, TimeDelta
from pyuvdata.utils import ECEF_from_ENU

C = 299792458.0


class Antennas:
    """EarthLocations of a telescope's position and of antennas, from metres east, north and up."""

    def __init__(self, latitude_deg, longitude_deg, height_m, enu_m):
        self.origin = EarthLocation.from_geodetic(longitude_deg * u.deg, latitude_deg * u.deg, height_m * u.m)
        self.itrs_m = ECEF_from_ENU(np.asarray(enu_m, float), center_loc=self.origin)
        self.baselines_m = self.itrs_m - self.vector(self.origin)
        self.locations = [EarthLocation.from_geocentric(*x, unit=u.m) for x in self.itrs_m]

    @staticmethod
    def vector(location):
        return np.array([x.to_value(u.m) for x in location.geocentric])

    def clock_offsets_s(self):
        """Returns the difference between clocks that are synchronised in the frame of the Earth's centre and clocks
        that are synchronised on the ground."""
        velocity = np.cross([0, 0, 7.292115e-5], self.vector(self.origin))
        return self.baselines_m @ velocity / C**2


def times_of(unix_s):
    return Time(np.asarray(unix_s), format="unix")


def itrs_delays_s(coordinate, antennas, unix_s):
    """Returns how much earlier a plane wave arrives at each antenna than at the origin, [n, n_ants]: the product of the
    origin's apparent direction in ITRS and the baselines."""
    seen = coordinate.transform_to(ITRS(obstime=times_of(unix_s), location=antennas.origin))
    direction = seen.cartesian.xyz.value / np.linalg.norm(seen.cartesian.xyz.value, axis=0)
    return direction.T @ antennas.baselines_m.T / C


def consensus_delays_s(ra_rad, dec_rad, antennas, unix_s):
    """Returns the same delays by the formula of VLBI (IERS conventions 2010, 11.9), in the barycentre's frame, without
    gravity."""
    times = times_of(unix_s)
    k = np.array([np.cos(dec_rad) * np.cos(ra_rad), np.cos(dec_rad) * np.sin(ra_rad), np.sin(dec_rad)])
    earth = get_body_barycentric_posvel("earth", times)[1].xyz.to_value(u.m / u.s).T
    first, velocity_1 = (x.xyz.to_value() for x in antennas.origin.get_gcrs_posvel(times))
    out = []
    for location in antennas.locations:
        second, velocity_2 = (x.xyz.to_value() for x in location.get_gcrs_posvel(times))
        b, w2 = (second - first).T, velocity_2.T
        later = (-b @ k / C * (1 - np.sum(earth**2, 1) / 2 / C**2 - np.sum(earth * w2, 1) / C**2)
                 - np.sum(earth * b, 1) / C**2 * (1 + earth @ k / 2 / C)) / (1 + (earth + w2) @ k / C)
        out.append(-later)
    return np.stack(out, -1) + antennas.clock_offsets_s()


def satellite_delays_s(satellite, antennas, unix_s):
    """Returns the same delays for a satellite of sgp4.  The wave leaves the satellite's position in GCRS, and meets
    each antenna in GCRS."""
    out = []
    for at in unix_s:
        time, light_s = times_of(at), 0.0
        here, _ = (x.xyz.to_value() for x in antennas.origin.get_gcrs_posvel(time))
        for _ in range(4):
            sent = time - TimeDelta(light_s, format="sec")
            error, km, _ = satellite.sgp4(sent.utc.jd1, sent.utc.jd2)
            assert error == 0
            teme = TEME(CartesianRepresentation(*km, unit=u.km), obstime=sent)
            place = teme.transform_to(ITRS(obstime=sent)).transform_to(GCRS(obstime=sent)).cartesian.xyz.to_value(u.m)
            light_s = np.linalg.norm(place - here) / C
        row = []
        for location in antennas.locations:
            there, velocity = (x.xyz.to_value() for x in location.get_gcrs_posvel(time))
            later_s = 0.0
            for _ in range(3):
                distance = np.linalg.norm(there + velocity * later_s - place)
                later_s = (distance - np.linalg.norm(here - place)) / C
            row.append(-later_s)
        out.append(row)
    return np.array(out) + antennas.clock_offsets_s()


def icrs(ra_deg, dec_deg):
    return SkyCoord(ra_deg * u.deg, dec_deg * u.deg)
