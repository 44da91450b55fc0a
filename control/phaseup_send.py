"""Turns solutions into settings: gains or delay models, as requests to the array's controller or as files for fgpu.

In each channel, the gain of an input is multiplied by exp(-i phase), where 'phase' is the phase of the solution.  So
the gain's magnitude and the rms of the quantised voltages do not change, unless amplitudes are also corrected.
"""
import ast
import asyncio
from dataclasses import dataclass

import aiokatcp
import numpy as np

from gnsscal_read import Unusable
from phaseup_solve import DB, line_phase

TIMEOUT_S = 15  # a little more than the controller's longest time-out
N_PARALLEL = 8  # number of requests for gains that are sent at the same time
AMPLITUDE_LIMIT = 2  # largest factor by which an amplitude changes


@dataclass
class Model:
    """A delay model, as in ?delays."""

    delay_s: float = 0.0
    rate: float = 0.0
    acceleration: float = 0.0  # 1/s
    phase_rad: float = 0.0
    phase_rate: float = 0.0  # rad/s
    phase_acceleration: float = 0.0  # rad/s^2

    def after(self, seconds):
        """Returns the same model with a later start."""
        return Model(self.delay_s + self.rate * seconds + self.acceleration * seconds**2 / 2,
                     self.rate + self.acceleration * seconds, self.acceleration,
                     self.phase_rad + self.phase_rate * seconds + self.phase_acceleration * seconds**2 / 2,
                     self.phase_rate + self.phase_acceleration * seconds, self.phase_acceleration)

    def plus(self, delay_s, phase_rad):
        return Model(self.delay_s + delay_s, self.rate, self.acceleration, self.phase_rad + phase_rad, self.phase_rate,
                     self.phase_acceleration)

    def text(self):
        delay = f"{self.delay_s:.12e},{self.rate:.12e}"
        phase = f"{self.phase_rad:.9f},{self.phase_rate:.12e}"
        if self.acceleration or self.phase_acceleration:
            delay, phase = f"{delay},{self.acceleration:.12e}", f"{phase},{self.phase_acceleration:.12e}"
        return f"{delay}:{phase}"


# ---- Corrections -----------------------------------------------------------------------------------------------------


def amplitude_factors(solution):
    """Returns a factor for each antenna, [ant].  With these factors all solved inputs have the same response to the
    source.

    The factors are limited to AMPLITUDE_LIMIT, and do not change the mean power of all solved inputs.  Inputs without a
    solution have the factor 1.
    """
    solved = np.array([gain is not None for gain in solution.gain_db])
    if any(gain and not np.isfinite(gain.error) for gain in solution.gain_db):
        raise Unusable("--amplitudes needs at least three antennas with fringes")
    factors = np.array([np.exp(-gain.value / DB) if gain else 1.0 for gain in solution.gain_db])
    power = solution.level**2
    for _ in range(3):  # a limited factor changes the mean
        factors[solved] *= np.sqrt(power[solved].sum() / (power[solved] * factors[solved]**2).sum())
        factors[solved] = np.clip(factors[solved], 1 / AMPLITUDE_LIMIT, AMPLITUDE_LIMIT)
    return factors


def corrections(data, labels, solutions, amplitudes=False):
    """Returns {label: complex factors [chan]} of all inputs that have a solution."""
    found = {}
    for solution in solutions:
        factors = amplitude_factors(solution) if amplitudes else np.ones(len(data.names))
        for ant, delay in enumerate(solution.delay_s):
            if delay:
                phase = line_phase(solution, ant, data.n_chan, data.channel_hz)
                found[labels[ant][solution.pol]] = factors[ant] * np.exp(-1j * phase)
    return found


def model_changes(labels, solutions):
    """Returns {label: (delay in s, phase in rad)}: the numbers to add to the delay model of each solved input."""
    return {labels[ant][solution.pol]: (-delay.value, -solution.phase_rad[ant].value)
            for solution in solutions for ant, delay in enumerate(solution.delay_s) if delay}


# ---- The controller --------------------------------------------------------------------------------------------------


def gain_text(value):
    return f"{value.real:.8g}{value.imag:+.8g}j"


class Controller:
    """A connection to the array's controller.  Failures raise Unusable with a sentence."""

    def __init__(self, client, address):
        self.client, self.address = client, address

    @classmethod
    async def connect(cls, address):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return cls(await aiokatcp.Client.connect(*address), address)
        except (OSError, TimeoutError) as error:
            raise Unusable(f"{address[0]}:{address[1]}: no controller answers: {error or 'no reply'}") from error

    async def close(self):
        self.client.close()
        await self.client.wait_closed()

    async def request(self, name, *args):
        """Returns (arguments of the reply, arguments of each inform) as texts."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply, informs = await self.client.request(name, *args)
        except (OSError, TimeoutError, aiokatcp.FailReply, aiokatcp.InvalidReply) as error:
            what = " ".join([f"?{name}", *map(str, args[:2])])
            raise Unusable(f"{self.address[0]}:{self.address[1]}: {what} failed: {error or 'no reply'}") from error
        return ([arg.decode() for arg in reply],
                [[arg.decode() for arg in inform.arguments] for inform in informs])

    async def sensor(self, name):
        _, informs = await self.request("sensor-value", name)
        return informs[0][4]

    async def for_each(self, keys, call):
        """Awaits call(key) for all keys, N_PARALLEL at a time.  Returns {key: result}.  After all calls have ended,
        raises one Unusable that names all failures."""
        places = asyncio.Semaphore(N_PARALLEL)

        async def one(key):
            async with places:
                return await call(key)
        results = await asyncio.gather(*(one(key) for key in keys), return_exceptions=True)
        failed = [result for result in results if isinstance(result, Unusable)]
        if failed:
            raise Unusable(f"{len(failed)} of {len(results)} requests failed: "
                           + "; ".join(dict.fromkeys(map(str, failed))))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return dict(zip(keys, results))

    async def gains(self, stream, labels):
        """Returns {label: present gains, complex [1] or [chan]}."""
        async def read(label):
            reply, _ = await self.request("gain", stream, label)
            try:
                return np.array([complex(text) for text in reply])
            except ValueError as error:
                raise Unusable(f"?gain {stream} {label}: the reply does not have gains: {error}") from error
        return await self.for_each(labels, read)

    async def set_gains(self, stream, gains):
        """Sets {label: gains}."""
        await self.for_each(list(gains), lambda label: self.request("gain", stream, label,
                                                                    *map(gain_text, gains[label])))

    async def set_beam_calibration(self, stream, gains):
        await self.for_each(list(gains), lambda label: self.request("beam-calibration", stream, label,
                                                                    *map(gain_text, gains[label])))

    async def model(self, stream, label, start_unix_s, of_stream):
        """Returns the present delay model of an input, moved to the start 'start_unix_s'."""
        text = await self.sensor(f"{stream}.{label}.delay")
        try:
            start, *terms = [float(term) for term in ast.literal_eval(text)]
        except (ValueError, SyntaxError, TypeError) as error:
            raise Unusable(f"{stream}.{label}.delay is {text!r}, not a delay model") from error
        if start < 0 or len(terms) not in (4, 6):
            return Model()
        now = (start_unix_s - of_stream.sync_time) * of_stream.adc_rate_hz
        delay_s, rate, phase_rad, phase_rate, acceleration, phase_acceleration = [*terms, 0.0, 0.0][:6]
        in_force = Model(delay_s, rate, acceleration, phase_rad, phase_rate, phase_acceleration)
        return in_force.after((now - start) / of_stream.adc_rate_hz)

    async def add_delays(self, of_stream, start_unix_s, changes):
        """Adds {label: (delay in s, phase in rad)} to the present delay models.  The new models start at
        'start_unix_s'."""
        stream = of_stream.voltages
        models = await self.for_each(list(changes), lambda label: self.model(stream, label, start_unix_s, of_stream))
        await self.request("delays", stream, f"{start_unix_s:.6f}",
                           *(f"{label}={models[label].plus(*change).text()}" for label, change in changes.items()))

    async def report(self, stream, unix_s, coherence, reference):
        await self.request("calibration-report", stream, f"{unix_s:.3f}", f"{coherence:.6f}", reference)


# ---- Files -----------------------------------------------------------------------------------------------------------


def write(path, lines):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise Unusable(f"{path}: cannot be written: {error.strerror}") from error
    print(f"wrote {path}")


def write_gains(directory, output, names, labels, gains):
    """Writes ANTENNA.gains for fgpu's key `gains`.  gains: {label: complex [chan]}."""
    for name, of_antenna in zip(names, labels):
        rows = [f"{output} {pol} {channel} {value.real:.8g} {value.imag:.8g}" for pol, label in enumerate(of_antenna)
                for channel, value in enumerate(gains.get(label, ()))]
        if rows:
            write(directory / f"{name}.gains", ["# phaseup: output  pol  channel  real  imaginary", *rows])


def write_delays(directory, output, names, labels, changes, start_unix_s):
    """Writes ANTENNA.delays for fgpu's key `delays`.  changes: {label: (delay, phase)}."""
    for name, of_antenna in zip(names, labels):
        rows = [f"{start_unix_s:.6f} {pol} {delay_s:.12e} 0 {phase_rad:.9f} 0"
                for pol, (delay_s, phase_rad) in ((pol, changes[label]) for pol, label in enumerate(of_antenna)
                                                  if label in changes)]
        if rows:
            write(directory / f"{name}.delays", [f"# phaseup: phases at the centre of {output}",
                                                 "# start  pol  delay  rate  phase  phase rate", *rows])
