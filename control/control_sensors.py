"""The engines' sensors under the array's names, and the state of the array.

Flow:   engine --#sensor-status--> Mirror --> Board --> Controller.sensors --> clients
A Mirror reads the sensors of one engine.  The Board owns the sensors of the array: copies of the engines' sensors (with
the names of control_names), sensors that combine the values of several engines, constants of streams, and the states of
the array and its streams.  While an engine is not present, its sensors have the status unreachable.
"""
import asyncio
import enum
import logging
import re
import time

import aiokatcp
from aiokatcp import Sensor
from aiokatcp.core import Timestamp, decode, encode

from control_names import Names
from control_streams import constants

REQUEST_S = 30.0     # time limit for the list of an engine's sensors and the subscription to them
# An X-engine counts the heaps of each antenna.  With the strategy auto it would send each count every second.
COUNTS = re.compile(r"\.rx\.(heaps|late-heaps|missing-heaps|refused-heaps)$")
COUNTS_STRATEGY = ("event-rate", "5", "inf")
TYPES = {"integer": int, "float": float, "boolean": bool, "timestamp": Timestamp, "address": aiokatcp.Address,
         "string": bytes}
Status = Sensor.Status
logger = logging.getLogger("control")
_words = {}


class _Word:
    @property
    def katcp_value(self):
        return self.value


def sensor_type(name, params):
    """Returns the Python type of a KATCP type; None if the type is unknown.  Discrete sensors with the same words get
    the same enum."""
    if name != "discrete":
        return TYPES.get(name)
    key = tuple(params)
    if key not in _words:
        _words[key] = enum.Enum("Word", [(f"WORD{i}", word) for i, word in enumerate(key)], type=_Word)
    return _words[key]


class Whole:
    """A sensor that combines the readings of 'n' engines."""

    def __init__(self, sensor, rule, n):
        self.sensor, self.rule, self.n = sensor, rule, n
        self.parts = {}  # name of the engine -> aiokatcp Reading

    def update(self, engine, reading):
        self.parts[engine] = reading
        parts = self.parts.values()
        valid = [part for part in parts if part.status.valid_value()]
        newest = max(parts, key=lambda part: part.timestamp)
        if self.rule == "all":
            good = len(valid) == self.n and all(part.value for part in valid)
            self.sensor.set_value(good, Status.NOMINAL if good else Status.ERROR, newest.timestamp)
        elif not valid:
            self.sensor.set_value(self.sensor.value, newest.status, newest.timestamp)
        elif self.rule == "latest":
            latest = max(valid, key=lambda part: part.timestamp)
            self.sensor.set_value(latest.value, latest.status, latest.timestamp)
        else:  # the last value of an unreachable engine still counts
            value = (sum if self.rule == "sum" else max)(part.value for part in parts)
            self.sensor.set_value(value, max(part.status for part in valid), newest.timestamp)


class Mirror:
    """Copies the readings of one engine's sensors to the Board."""

    def __init__(self, board, engine):
        self.board, self.engine = board, engine
        self.feeds = {}  # name of the engine's sensor -> (type, [Sensor], Whole or None)

    async def run(self, client):
        """Subscribes to all sensors, and again after #interface-changed.  Runs until it is cancelled."""
        changed = asyncio.Event()
        client.add_inform_callback("sensor-status", self._status)
        client.add_inform_callback("interface-changed", lambda *args: changed.set())
        while True:
            changed.clear()
            try:
                async with asyncio.timeout(REQUEST_S):
                    await self._subscribe(client)
            except (TimeoutError, OSError, aiokatcp.FailReply, aiokatcp.InvalidReply) as error:
                logger.warning("%s: sensors cannot be read: %s", self.engine, str(error) or "no answer in time")
            except Exception:  # a defect in this program must not end this loop
                logger.exception("%s: sensors cannot be read", self.engine)
            await changed.wait()

    async def _subscribe(self, client):
        _, informs = await client.request("sensor-list")
        seen = {}
        for i, inform in enumerate(informs):
            name, description, units, kind = (arg.decode("utf-8", "replace") for arg in inform.arguments[:4])
            if stype := sensor_type(kind, inform.arguments[4:]):
                seen[name] = self.board.feeds(self.engine, name, description, units, stype)
            if i % 100 == 99:
                await asyncio.sleep(0)  # lets other tasks run, such as requests
        for name in set(self.feeds) - set(seen):
            self.board.remove(self.feeds[name][1])
        self.feeds = seen
        self.board.interface_changed()
        counts = [name for name in seen if COUNTS.search(name)]
        rest = [name for name in seen if not COUNTS.search(name)]
        for names, strategy in ((rest, ("auto",)), (counts, COUNTS_STRATEGY)):
            if names:
                await client.request("sensor-sampling", ",".join(names), *strategy)

    def _status(self, timestamp: Timestamp, n: int, *args: bytes):
        for i in range(0, 3 * n, 3):
            name, status, value = args[i:i + 3]
            self._update(name.decode(), decode(Status, status), value, float(timestamp))

    def _update(self, name, status, raw, timestamp):
        if name not in self.feeds:
            return
        stype, sensors, whole = self.feeds[name]
        try:
            value = decode(stype, raw)
        except ValueError as error:
            logger.debug("%s: sensor %s: %s", self.engine, name, error)
            return
        for sensor in sensors:
            sensor.set_value(value, status, timestamp)
        if whole:
            whole.update(self.engine.name, sensors[0].reading if sensors else
                         aiokatcp.Reading(timestamp, status, value))
        self.board.note(self.engine, name, status, raw)

    def disconnected(self):
        """Sets the status of all sensors of the engine to unreachable."""
        now = time.time()
        for _, sensors, whole in self.feeds.values():
            for sensor in sensors:
                if sensor.status != Status.UNREACHABLE:
                    sensor.set_value(sensor.value, Status.UNREACHABLE, now)
            if whole and self.engine.name in whole.parts:
                value = whole.parts[self.engine.name].value
                whole.update(self.engine.name, aiokatcp.Reading(now, Status.UNREACHABLE, value))


class Board:
    """All sensors of the array.  'sensors' is the aiokatcp SensorSet of the controller.  'interface_changed' is called
    after sensors have been added or removed.  'note(engine, name, status, raw)' is called for each reading of an
    engine."""

    def __init__(self, config, sensors, interface_changed, note):
        self.config, self.sensors = config, sensors
        self.interface_changed, self.note = interface_changed, note
        self.names = Names(config)
        self.wholes = {}  # name -> Whole
        self.own = set()
        for stream in config.streams.values():
            for name, stype, units, description, value in constants(config, stream):
                self.add(f"{stream.name}.{name}", stype, description, units).set_value(value)

    def add(self, name, stype, description, units=""):
        """Adds a sensor whose value the controller sets itself.  Returns the Sensor."""
        sensor = Sensor(stype, name, description, units)
        self.sensors.add(sensor)
        self.own.add(name)
        return sensor

    def feeds(self, engine, name, description, units, stype):
        """Returns (type, [Sensor], Whole or None): the sensors of the array that get the value of an engine's sensor.
        Existing sensors are kept, so that clients keep their subscriptions."""
        place = self.names.place(engine.config, name)
        whole = None
        if place.whole and place.whole[0] not in self.own:
            whole = self._whole(engine, *place.whole, stype, description, units)
        sensors = [self._sensor(each, stype, description, units) for each in place.names if each not in self.own]
        return stype, sensors, whole

    def _sensor(self, name, stype, description, units):
        sensor = self.sensors.get(name)
        if sensor is None or (sensor.stype, sensor.description, sensor.units) != (stype, description, units):
            sensor = Sensor(stype, name, description, units)
            self.sensors.add(sensor)
        return sensor

    def _whole(self, engine, name, rule, stype, description, units):
        if name not in self.wholes or self.wholes[name].sensor.stype is not stype:
            n = len([each for each in self.config.engines if each.program == engine.program
                     and each.stream == engine.config.stream])
            self.wholes[name] = Whole(self._sensor(name, stype, description, units), rule, n)
        return self.wholes[name]

    def remove(self, sensors):
        for sensor in sensors:
            self.sensors.pop(sensor.name, None)
