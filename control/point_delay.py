"""Computes delay models of all antennas from a target's direction.

Geometry.  The array's origin O receives a wavefront at time T.  Antenna a is at the position b relative to O, and
receives the same wavefront at T + g.  For a target in the direction s at the distance R,

    c g = |R s - b'| - R,   b' = b + g (w x b),   and for a plane wave   c g = -s . b'

w is the Earth's rotation.  Antenna a moves while the wave travels from O to a, which changes g by 0.05 ps over 8 km.
All clocks of the antennas are synchronised in the rest frame of the ground, as by signals over a fibre and back.
Clocks that are synchronised in the frame of the Earth's centre (GPS) differ from ground clocks by (w x O) . b / c^2.
This difference is a constant of each antenna, at most 41 ps for 8 km.  A calibration removes it.

Delay.  The F-engine's output at t + D has the input of time t (fgpu/delay.h).  The input has the wavefront at T + g.
With D = -g, the outputs of all antennas have the wavefront at T.  D is positive for an antenna that is nearer to the
target than O: its data are shifted to a later time.

Time.  The F-engine evaluates a model at the first sample of a spectrum's filter window.  The spectrum's time is the
middle of the window, which is later by the group delay G of the filter bank.  So a model that describes g from time T
on starts at T - G.

Phase.  A receiver digitises the sky frequency f_sky as f.  For the upper side band f_sky = f + L.  For the lower side
band f_sky = L - f, and the voltage is conjugated.  L is constant, and the same for all antennas.  The sky's voltage at
an antenna has the factor e^(-2 pi i f_sky g).  The digitised spectrum has the factor

    e^(-2 pi i f_sky g)  (upper)     e^(+2 pi i f_sky g)  (lower)

The F-engine multiplies channel f of a stream with centre f_c by e^(i phase - 2 pi i D (f - f_c)).  With D = -g and
f - f_c = +-(f_sky - f_sky_c) the sum of all phases is

    upper:  phase - 2 pi f_sky_c g       lower:  phase + 2 pi f_sky_c g

in every channel.  The sum is 0 for phase = -2 pi f_sky_c D (upper) and phase = +2 pi f_sky_c D (lower).  The phase
depends on the sky frequency and not on the digitised frequency, because a mixer does not delay the signal that it mixes
with.  X-engines' beams use the same signs for the delay and phase of each antenna (docs/beams.md).

Models.  A polynomial is fitted to the delays at Chebyshev points of the time in which the model is valid.  Its order is
2 for F-engines and 1 for beams."""
from dataclasses import dataclass

import numpy as np

from point_array import N_POLS, Unusable
from point_target import C_M_S, EARTH_RATE_RAD_S

N_POINTS = 9
POINTS = (1 - np.cos(np.pi * np.arange(N_POINTS) / (N_POINTS - 1))) / 2  # Chebyshev points from 0 to 1
SHORTEST = 1 / 16  # length of the shortest model, relative to the interval


def geometric_delays_s(direction, distance_m, array):
    """Returns how much later the wave arrives at each antenna than at the array's origin, in s, [n, n_ants].

    'direction' has the shape [n, 3].  'distance_m' is inf or has the shape [n].
    """
    distance_m = np.broadcast_to(distance_m, len(direction))[:, None]
    axis = array.place.axes @ [0, 0, 1]
    turning_m_s = EARTH_RATE_RAD_S * np.cross(axis, array.positions_m)
    delays_s = np.zeros((len(direction), len(array.positions_m)))
    for _ in range(2):
        b_m = array.positions_m + delays_s[..., None] * turning_m_s
        along_m = np.einsum("ni,nai->na", direction, b_m)
        with np.errstate(invalid="ignore"):  # a plane wave has R = inf
            # excess_m / far_m is |R s - b| - R, without a difference of two large numbers
            excess_m = np.sum(b_m**2, axis=-1) / distance_m - 2 * along_m
            far_m = np.sqrt(1 + excess_m / distance_m) + 1
        delays_s = excess_m / far_m / C_M_S
    return delays_s


def fit(delays_s, length_s, order):
    """Returns (coefficients [order + 1, n_ants], largest error in s) of polynomials in the seconds since the first
    point."""
    powers = POINTS[:, None] ** np.arange(order + 1)
    scaled = np.linalg.lstsq(powers, delays_s, rcond=None)[0]
    error_s = float(np.abs(powers @ scaled - delays_s).max())
    return scaled / length_s ** np.arange(order + 1)[:, None], error_s


@dataclass
class Models:
    """Models of all antennas, which are valid for 'length_s' seconds from the UNIX time 'start_s'.  A spectrum's time
    is the middle of its filter window."""
    start_s: float
    length_s: float
    # [order + 1, n_ants] of polynomials: delay in s as a function of the seconds since start_s
    coefficients: np.ndarray
    error_s: float  # largest difference from the exact delay
    elevation_rad: float  # lowest elevation of the target

    def delays_s(self, unix_s):
        """Returns the delays in s at UNIX times [n], shape [n, n_ants]."""
        return (unix_s - self.start_s)[:, None] ** np.arange(len(self.coefficients)) @ self.coefficients

    def load_time(self, stream):
        """Returns the time at which the engines of a stream must load the models, as text.  The text has nine decimals,
        the largest number that a request accepts."""
        whole = np.floor(self.start_s - stream.group_delay_s)
        nanoseconds = round((self.start_s - whole - stream.group_delay_s) * 1e9)
        return f"{int(whole) + nanoseconds // 10**9}.{nanoseconds % 10**9:09}"

    def texts(self, stream, per_input):
        """Returns the arguments of ?delays (the model of each input) or ?beam-delays (the model of each antenna)."""
        sign = 1 if stream.is_inverted else -1
        factorials = np.array([1, 1, 2])[:len(self.coefficients), None]
        delays = factorials * self.coefficients
        phases = sign * 2 * np.pi * stream.sky_centre_hz * delays
        phases[0] = np.remainder(phases[0] + np.pi, 2 * np.pi) - np.pi
        return [",".join(f"{x:.12g}" for x in delays[:, a]) + ":" + ",".join(f"{x:.12g}" for x in phases[:, a])
                for a in range(delays.shape[1]) for _ in range(N_POLS if per_input else 1)]


class Pointing:
    """Follows a target.  With 'relative_to', computes the delays that remain after the array has been pointed at this
    other target."""

    def __init__(self, array, earth, target, order=2, relative_to=None, accuracy_s=5e-13):
        self.array, self.earth, self.target, self.relative_to = array, earth, target, relative_to
        self.order, self.accuracy_s = order, accuracy_s

    def exact(self, unix_s):
        """Returns (delays of the F-engine or beam in s [n, n_ants], elevations in rad [n]) at UNIX times [n]."""
        orientation = self.earth.at(unix_s)
        direction, distance_m = self.target.at(orientation, self.array.place)
        delays_s = -geometric_delays_s(direction, distance_m, self.array)
        if self.relative_to:
            delays_s += geometric_delays_s(*self.relative_to.at(orientation, self.array.place), self.array)
        return delays_s, np.arcsin(np.clip(direction[:, 2], -1, 1))

    def models(self, start_s, length_s):
        delays_s, elevations_rad = self.exact(start_s + length_s * POINTS)
        if not np.isfinite(delays_s).all():
            raise Unusable(f"target '{self.target.text}' has no finite delays at {start_s:.0f}")
        return Models(start_s, length_s, *fit(delays_s, length_s, self.order), float(elevations_rad.min()))

    def sequence(self, start_s, interval_s):
        """Yields Models without end, each valid for at most the interval.  If the error exceeds the accuracy, the
        length is halved, down to a sixteenth of the interval.  Models that last a whole interval start at multiples of
        the interval."""
        while True:
            end_s = (np.floor(start_s / interval_s) + 1) * interval_s
            length_s = end_s - start_s
            while True:
                models = self.models(start_s, length_s)
                if models.error_s <= self.accuracy_s or length_s / 2 < interval_s * SHORTEST:
                    break
                length_s /= 2
            yield models
            start_s += length_s
