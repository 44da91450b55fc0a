"""The state of the array: which engines and antennas are missing, and which streams are whole.

An antenna is missing if its F-engine is not present, if one of its inputs receives no packets, or if an X-engine that
is present receives nothing from its F-engine.
"""
import enum
import re

from aiokatcp import Sensor

from control_engine import ABSENT, HUNG, PRESENT

Status = Sensor.Status
FENG_STATE = re.compile(r"(.+)\.rx\.state")
INPUT_TIMESTAMP = re.compile(r"input(\d+)\.rx\.timestamp")
RECOMPUTE_S = 0.2


class Level(enum.Enum):
    OK = 0
    DEGRADED = 1
    FAIL = 2


class EngineState(enum.Enum):
    ABSENT = ABSENT
    HUNG = HUNG
    PRESENT = PRESENT


LEVEL_STATUS = {Level.OK: Status.NOMINAL, Level.DEGRADED: Status.WARN, Level.FAIL: Status.ERROR}


class ArrayState:
    """Sensors of the array's state.  'board' is the Board; 'engines' are the Engines; 'loop' is the event loop."""

    def __init__(self, config, board, engines, loop):
        self.config, self.engines, self.loop = config, engines, loop
        self.silent = {}  # (engine, sensor) -> name of the antenna that the sensor reports as silent
        self.level = Level.FAIL
        self._timer = None
        self.sensors = {
            "array": [board.add(name, Level, "State of the array: degraded while an engine or an antenna is missing; "
                                "fail while no stream has data.") for name in ("array-status", "device-status")],
            "antennas": board.add("missing-antennas", str, "Antennas whose data are missing, separated by commas."),
            "engines": board.add("missing-engines", str, "Engines that are absent or hung, separated by commas.")}
        self.of_engine = {engine.name: board.add(f"{engine.name}.state", EngineState,
                                                 f"Whether {engine} is present, absent or hung.") for engine in engines}
        whole = "State of the stream: degraded while antennas or channels are missing; fail while all are missing."
        self.of_stream = {name: board.add(f"{name}.status", Level, whole) for name in config.streams}
        self.compute()

    def note(self, engine, name, status, raw):
        """Handles a new reading of an engine's sensor."""
        if match := FENG_STATE.fullmatch(name):
            antenna = match[1] if status == Status.ERROR and raw in (b"silent", b"dead") else None
        elif match := INPUT_TIMESTAMP.fullmatch(name):
            number = int(match[1]) // 2
            antenna = engine.config.antennas[number] if status == Status.ERROR else None
        else:
            return
        if self.silent.get((engine.name, name)) != antenna:
            self.silent[engine.name, name] = antenna
            self.schedule()

    def schedule(self):
        """Starts a timer of 0.2 s.  When the timer ends, the state is computed once for all changes of this time."""
        if self._timer is None:
            self._timer = self.loop.call_later(RECOMPUTE_S, self.compute)

    def missing_antennas(self):
        """Returns the names of the missing antennas, in the order of the array."""
        away = {engine.name for engine in self.engines if engine.state != PRESENT}
        missing = {name for engine in self.config.fengs() if engine.name in away for name in engine.antennas}
        missing |= {antenna for (engine, _), antenna in self.silent.items() if antenna and engine not in away}
        return [antenna.name for antenna in self.config.antennas if antenna.name in missing]

    def compute(self):
        if self._timer:
            self._timer.cancel()
        self._timer = None
        away = {engine.name for engine in self.engines if engine.state != PRESENT}
        antennas = self.missing_antennas()
        levels = [self._stream(stream, antennas, away) for stream in self.config.streams.values()]
        for engine in self.engines:
            status = Status.NOMINAL if engine.state == PRESENT else Status.ERROR
            _set(self.of_engine[engine.name], EngineState(engine.state), status)
        if levels and all(level == Level.FAIL for level in levels):
            self.level = Level.FAIL
        else:
            self.level = Level.DEGRADED if away or antennas or set(levels) != {Level.OK} else Level.OK
        for sensor in self.sensors["array"]:
            _set(sensor, self.level, LEVEL_STATUS[self.level])
        for key, names in (("antennas", antennas), ("engines", [e.name for e in self.engines if e.name in away])):
            _set(self.sensors[key], ",".join(names), Status.ERROR if names else Status.NOMINAL)

    def _stream(self, stream, antennas, away):
        makers = self.config.makers(stream)
        n_away = sum(engine.name in away for engine in makers)
        if n_away == len(makers) or len(antennas) == len(self.config.antennas):
            level = Level.FAIL
        else:
            level = Level.DEGRADED if n_away or antennas else Level.OK
        _set(self.of_stream[stream.name], level, LEVEL_STATUS[level])
        return level


def _set(sensor, value, status):
    if (sensor.value, sensor.status) != (value, status):
        sensor.set_value(value, status)
