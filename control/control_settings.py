"""Settings that the controller stores for the engines, in an SQLite file.

A setting has a key (request, stream, input or beam) and a value.  A request stores its values before the request is
sent.  So an engine that comes back meanwhile also gets the new values.  If the engines refuse a value, the former
value is stored again.  SQLite writes each change atomically.  A killed controller therefore loses no setting of an
answered request.

    key                              value
    ("gain-all", STREAM, "")         [texts of 1 or n_channels gains], or ["default"]
    ("gain", STREAM, LABEL)          [texts of gains]; an engine gets them after gain-all
    ("delays", STREAM, LABEL)        [[START in UNIX seconds as text, MODEL], ...] in the order of their starts
    ("beam-weights", STREAM, BEAM)   [arguments after the beam's name]; also for "beam-quant-gains"
    ("beam-delays", STREAM, BEAM)    [[START, MODEL, MODEL, ...], ...] in the order of their starts
    ("beam-calibration", STREAM, LABEL)  [texts of gains]
    ("capture", STREAM, "")          ["start"], ["start", TIMESTAMP] or ["stop"]
    ("report", KIND, STREAM)         report of cbf-point or phaseup, as a dictionary
"""
import ast
import itertools
import json
import logging
import math
import os
import sqlite3
import time

MAX_MODELS = 255     # largest number of delay models of an input, as in the engines
DATABASE = "settings.sqlite"
logger = logging.getLogger("control")


class Settings:
    """Settings by key.  'directory' is a Path or None.  If 'directory' is None, the settings are lost when the process
    ends.  'status' is one of: none (no directory); kept; ignored (a damaged file was put aside at the start); failed (a
    setting could not be written, and is lost when the process ends)."""

    def __init__(self, directory):
        self.status = "kept" if directory else "none"
        self._values, self._serials, self._serial = {}, {}, itertools.count(1)
        self._database = self._open(directory / DATABASE) if directory else sqlite3.connect(":memory:")
        self._database.execute("create table if not exists settings (key text primary key, value text not null)")
        for key, value in self._database.execute("select key, value from settings"):
            self._take(tuple(json.loads(key)), json.loads(value))

    def _open(self, path):
        try:
            return self._connect(path)
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(".damaged")
            logger.error("%s: %s; the controller renames the file to %s, and begins without settings",
                         path, error, aside.name)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            os.replace(path, aside)
            self.status = "ignored"
            return self._connect(path)

    @staticmethod
    def _connect(path):
        database = sqlite3.connect(path)
        try:
            # A killed process then loses no change.  A host that loses power may lose the newest changes.
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = normal")
            if database.execute("pragma quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the file is damaged")
        except sqlite3.DatabaseError:
            database.close()
            raise
        return database

    def close(self):
        self._database.close()

    def _take(self, key, value):
        self._values[key] = value
        self._serials[key] = next(self._serial)

    def get(self, key, default=None):
        return self._values.get(key, default)

    def serial(self, key):
        """Returns a number that grows with each change of the setting; 0 if the setting was never stored."""
        return self._serials.get(key, 0)

    def keys(self, kind):
        return [key for key in self._values if key[0] == kind]

    def put(self, values):
        """Stores {key: value}; the value None removes a setting.  Returns {key: former value} for restore()."""
        former = {key: self._values.get(key) for key in values}
        gone = [key for key, value in values.items() if value is None]
        try:
            with self._database:
                self._database.executemany("delete from settings where key = ?", [[json.dumps(key)] for key in gone])
                self._database.executemany("replace into settings values (?, ?)", [
                    [json.dumps(key), json.dumps(value)] for key, value in values.items() if value is not None])
        except sqlite3.Error as error:  # engines must get their delays even if the disk is full
            logger.error("a setting cannot be stored, so a restart of the controller loses the setting: %s", error)
            self.status = "failed"
        for key, value in values.items():
            self._take(key, value)
        for key in gone:
            del self._values[key]
        return former

    def restore(self, former, serials):
        """Undoes a put() for the keys of 'former', except for keys that have changed since.  'serials' are the serials
        of the keys after the put()."""
        self.put({key: value for key, value in former.items() if self.serial(key) == serials[key]})


def current(models):
    """Returns those of the models [[START, ...], ...] that are still needed: the newest model that has begun, and all
    later models.  It does no harm to send these models to an engine again: each model replaces itself."""
    begun = [i for i, model in enumerate(models) if float(model[0]) <= time.time()]
    return models[begun[-1] if begun else 0:]


def add_model(models, start, numbers):
    """Adds a model to the models [[START, ...], ...] of an input or a beam.  As in an engine, the new model removes
    models that begin at the same time or later.  Returns a new list."""
    earlier = [model for model in models or [] if float(model[0]) < float(start)]
    return current([*earlier, [start, *numbers]])[-MAX_MODELS:]


# ---- Messages to an engine ------------------------------------------------------------------------------------------


class Sender:
    """Makes the messages that send the controller's settings to an engine."""

    def __init__(self, config, settings):
        self.config, self.settings = config, settings

    def messages(self, engine, sent, in_effect):
        """Returns [(request, arguments, timeout_s)] for the settings whose serials differ from the serials in
        'sent' {key: serial}.  Enters the new serials in 'sent'.

        'in_effect' {sensor: value} has the delay models that the F-engine uses.  The result does not contain these
        models.  If the F-engine got such a model again, it would remove all later models for an instant.
        """
        make = self._of_feng if engine.program == "fgpu" else self._of_xeng
        return list(make(engine.config, lambda key: self._is_new(key, sent), in_effect))

    def _is_new(self, key, sent):
        serial = self.settings.serial(key)
        if serial == sent.get(key, 0):
            return False
        sent[key] = serial
        return self.settings.get(key) is not None

    def _of_feng(self, engine, is_new, in_effect):
        antennas = {antenna.name: antenna for antenna in self.config.antennas}
        labels = [label for name in engine.antennas for label in antennas[name].labels]
        for stream in self.config.streams.values():
            if stream.kind == "voltages":
                yield from self._gains(stream.name, labels, is_new)
                yield from self._delays(stream.name, labels, is_new, in_effect)

    def _gains(self, stream, labels, is_new):
        """Yields the request gain-all first, because gain-all replaces the gains of single inputs."""
        new = [label for label in labels if is_new(("gain", stream, label))]
        if is_new(("gain-all", stream, "")):
            yield "gain-all", (stream, *self.settings.get(("gain-all", stream, ""))), self.config.gains_timeout_s
            new = [label for label in labels if self.settings.get(("gain", stream, label))]
        for label in new:
            yield "gain", (stream, label, *self.settings.get(("gain", stream, label))), self.config.gains_timeout_s

    def _delays(self, stream, labels, is_new, in_effect):
        """Yields one request for each start time, with all models that begin at this time."""
        starts = {}
        for i, label in enumerate(labels):
            if is_new(("delays", stream, label)):
                models = current(self.settings.get(("delays", stream, label)))
                if self._is_in_effect(models[0], in_effect.get(f"{stream}.input{i}.delay")):
                    models = models[1:]
                for start, model in models:
                    starts.setdefault(start, []).append(f"{label}={model}")
        for start in sorted(starts, key=float):
            yield "delays", (stream, start, *starts[start]), self.config.delays_timeout_s

    def _is_in_effect(self, model, text):
        """Returns whether the text of a sensor (start in ADC samples, delay, rate, phase, phase rate) describes this
        model.  A model with accelerations never matches."""
        try:
            start, *numbers = ast.literal_eval(text)
            wanted = [float(x) for part in model[1].split(":") for x in part.split(",")]
        except (ValueError, SyntaxError, TypeError):
            return False
        if len(numbers) != 4 or len(wanted) != 4:
            return False
        begin = (float(model[0]) - self.config.sync_time_s) * self.config.adc_sample_rate_hz
        turns = (numbers[2] - wanted[2]) / (2 * math.pi)
        # A UNIX time in double precision may be wrong by almost a microsecond.
        return (abs(start - begin) <= 1 + 1e-6 * self.config.adc_sample_rate_hz and abs(turns - round(turns)) < 1e-9
                and all(math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-30)
                        for a, b in zip(numbers[:2] + numbers[3:], wanted[:2] + wanted[3:])))

    def _of_xeng(self, engine, is_new, _in_effect):
        streams = {stream.name for stream in self.config.made_of(engine.stream)}
        fast_s, slow_s = self.config.delays_timeout_s, self.config.gains_timeout_s
        for kind in ("beam-weights", "beam-quant-gains", "beam-delays"):
            for key in self.settings.keys(kind):
                if key[1] in streams and is_new(key):
                    value = self.settings.get(key)
                    for args in current(value) if kind == "beam-delays" else [value]:
                        yield kind, (key[2], *args), fast_s
        for key in self.settings.keys("beam-calibration"):
            if key[1] == engine.stream and is_new(key):
                yield "beam-calibration", (key[2], *self.settings.get(key)), slow_s
        for key in self.settings.keys("capture"):
            if key[1] in streams and is_new(key):
                what, *timestamp = self.settings.get(key)
                yield f"capture-{what}", (key[1], *timestamp), fast_s


def now_text(lead_s=0.0):
    """Returns the present UNIX time plus lead_s, as text with nanoseconds.  An engine reads this text exactly."""
    now_ns = time.time_ns() + int(lead_s * 1e9)
    return f"{now_ns // 10**9}.{now_ns % 10**9:09d}"
