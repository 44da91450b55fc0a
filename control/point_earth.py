"""Orientation of the Earth at a time: leap seconds, UT1 and polar motion, from tables on this host.

Tables:  UT1 and polar motion come from IERS's finals2000A (with predictions for a year) or eopc04.  The package
         astropy-iers-data has a finals2000A.  If the operator names a file, the file replaces this table.  Leap seconds
         come from the newest table of astropy-iers-data and tzdata, or from a file that the operator names.
Age:     a table of any age can be used.  After a table's end, UT1 - TAI and the pole keep their last values.  UT1 is
         then wrong by up to 2 ms for each day.  An error of 1 ms in UT1 is 0.24 ps for each kilometre of a baseline.
Network: the program fetches no table from the network."""
import time
from dataclasses import dataclass
from pathlib import Path

import erfa
import numpy as np
from astropy.utils.data import conf as data_conf

from point_array import Unusable

data_conf.allow_internet = False  # set before the next import, which reads leap seconds
from astropy.utils import iers  # noqa: E402

iers.conf.auto_download = False
iers.conf.auto_max_age = None

UNIX_EPOCH_JD = 2440587.5
MJD_JD = 2400000.5
DAY_S = 86400.0
TZDATA_LEAP_SECONDS = Path("/usr/share/zoneinfo/leap-seconds.list")


@dataclass
class Orientation:
    """The Earth's orientation at n times.  Dates are pairs of arrays [n], in days.  Angles are in radians."""
    utc: tuple
    tt: tuple
    ut1: tuple
    dut1_s: np.ndarray
    pole_x_rad: np.ndarray
    pole_y_rad: np.ndarray


def tai_minus_utc_s(mjd):
    year, month, day, fraction = erfa.jd2cal(MJD_JD, mjd)
    return erfa.dat(year, month, day, fraction)


def load_leap_seconds(path=None):
    """Gives erfa a table of leap seconds.  Returns the UNIX time at which the table expires."""
    files = [path] if path else [iers.IERS_LEAP_SECOND_FILE, *(f for f in [TZDATA_LEAP_SECONDS] if f.exists())]
    try:
        table = iers.LeapSeconds.auto_open(files)
        erfa.leap_seconds.update(table)
    except Exception as error:  # astropy's readers raise exceptions of many types
        raise Unusable(f"{path or 'leap seconds'}: not a table of leap seconds") from error
    return float(table.expires.unix)


def open_table(path):
    for kind in (iers.IERS_A, iers.IERS_B):
        try:
            table = kind.open(str(path))
            if len(table):
                return table
        except Exception:  # astropy's readers raise exceptions of many types
            continue
    raise Unusable(f"{path}: not a finals2000A or eopc04 table of IERS")


class Earth:
    """Tables of the Earth's orientation."""

    def __init__(self, orientation_path=None, leap_seconds_path=None):
        self.leap_seconds_expire_unix_s = load_leap_seconds(leap_seconds_path)
        self.path = orientation_path or iers.IERS_A_FILE
        if not Path(self.path).is_file():
            raise Unusable(f"{self.path}: there is no such file")
        table = open_table(self.path)
        self.mjd = np.asarray(table["MJD"].to_value("d"))
        self.ut1_tai_s = np.asarray(table["UT1_UTC"].to_value("s")) - tai_minus_utc_s(self.mjd)
        self.pole_rad = [np.asarray(table[name].to_value("rad")) for name in ("PM_x", "PM_y")]
        measured_mjd = float(table.meta.get("predictive_mjd", self.mjd[-1]))
        self.measured_until_unix_s = (measured_mjd + MJD_JD - UNIX_EPOCH_JD) * DAY_S
        self.predicted_until_unix_s = (float(self.mjd[-1]) + MJD_JD - UNIX_EPOCH_JD) * DAY_S

    def age_s(self, unix_s=None):
        """Returns the time since the last measured orientation in the table."""
        return max(0.0, (time.time() if unix_s is None else unix_s) - self.measured_until_unix_s)

    def at(self, unix_s):
        """Returns the Orientation at UNIX times [n]."""
        days = np.floor(unix_s / DAY_S)
        midnight_mjd = UNIX_EPOCH_JD - MJD_JD + days
        day_s = DAY_S + tai_minus_utc_s(midnight_mjd + 1) - tai_minus_utc_s(midnight_mjd)  # a leap second adds 1 s
        utc = (UNIX_EPOCH_JD + days, (unix_s - DAY_S * days) / day_s)
        mjd = midnight_mjd + utc[1]
        dut1_s = np.interp(mjd, self.mjd, self.ut1_tai_s) + tai_minus_utc_s(mjd)
        pole_x_rad, pole_y_rad = (np.interp(mjd, self.mjd, column) for column in self.pole_rad)
        return Orientation(utc, erfa.taitt(*erfa.utctai(*utc)), erfa.utcut1(*utc, dut1_s), dut1_s, pole_x_rad,
                           pole_y_rad)

    def warnings(self, unix_s):
        """Returns sentences about tables that are too old at a UNIX time."""
        found = []
        days = self.age_s(unix_s) / DAY_S
        if unix_s > self.predicted_until_unix_s:
            ended_days = (unix_s - self.predicted_until_unix_s) / DAY_S
            found.append(f"{self.path} ended {ended_days:.0f} days ago; UT1 is wrong by up to 2 ms for "
                         "each of these days")
        elif days > 30:
            found.append(f"the newest measurement in {self.path} is {days:.0f} days old; UT1 is a prediction")
        if unix_s > self.leap_seconds_expire_unix_s:
            found.append("the table of leap seconds has expired; after an unknown leap second UT1 is wrong by 1 s")
        return found
