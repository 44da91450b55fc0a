"""Reports of cbf-point and phaseup.  The controller stores them, and shows them as sensors and on the array page."""
import time

from aiokatcp import Sensor
from aiokatcp.core import Timestamp

Status = Sensor.Status
OLD_EOP_S = 30 * 86400    # age of a table after which the earth's rotation is uncertain by more than a millisecond
CHECK_S = 1.0


class Reports:
    """'board' is the Board of the sensors; 'settings' keeps the reports."""

    def __init__(self, config, board, settings):
        self.settings = settings
        self.sensors = {}
        streams = [stream.name for stream in config.streams.values() if stream.kind == "voltages"]
        for name in streams:
            self._add(board, name, "pointing-target", str, "Target that cbf-point tracks.")
            self._add(board, name, "pointing-until", Timestamp, "UNIX time until which delay models have been sent.  "
                      "The status is error when this time is past.", "s")
            self._add(board, name, "calibration-time", Timestamp, "UNIX time of the calibration.", "s")
            self._add(board, name, "calibration-coherence", float, "Coherence of the sum of all antennas, from 0 to 1.")
            self._add(board, name, "calibration-reference", str, "Antenna relative to which phases are calibrated.")
        self.age = board.add("earth-orientation-age", float, "Age of the table of the earth's rotation that cbf-point "
                             "uses.  The status is warn above 30 days.", "s")
        for kind, name in [key[1:] for key in settings.keys("report")]:
            if name in streams:
                self._show(kind, name)

    def _add(self, board, stream, name, stype, description, units=""):
        self.sensors[stream, name] = board.add(f"{stream}.{name}", stype, description, units)

    def pointing(self, stream, target, until_s, eop_age_s):
        self._keep("pointing", stream, {"target": target, "until": until_s, "eop_age": eop_age_s})

    def calibration(self, stream, time_s, coherence, reference):
        self._keep("calibration", stream, {"time": time_s, "coherence": coherence, "reference": reference})

    def _keep(self, kind, stream, values):
        self.settings.put({("report", kind, stream): values})
        self._show(kind, stream)

    def _show(self, kind, stream):
        values = self.settings.get(("report", kind, stream))
        for name, value in values.items():
            if name == "eop_age":
                self.age.set_value(value, Status.WARN if value > OLD_EOP_S else Status.NOMINAL)
            else:
                status = Status.ERROR if name == "until" and value < time.time() else Status.NOMINAL
                self.sensors[stream, f"{kind}-{name}"].set_value(value, status)

    def check(self):
        """If the models of a stream have ended, sets the status of its sensor pointing-until to error."""
        for _, kind, stream in self.settings.keys("report"):
            sensor = self.sensors.get((stream, "pointing-until"))
            if kind == "pointing" and sensor and sensor.value < time.time() and sensor.status == Status.NOMINAL:
                sensor.set_value(sensor.value, Status.ERROR)

    def as_dict(self):
        """Returns all reports: {kind: {stream: report}}."""
        found = {"pointing": {}, "calibration": {}}
        for key in self.settings.keys("report"):
            found[key[1]][key[2]] = self.settings.get(key)
        return found
