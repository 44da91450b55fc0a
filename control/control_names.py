"""Names of the engines' sensors in the array.  An engine's own names contain indices.  In place of an index, a name in
the array contains the name of a stream or the label of an input.

Clients of the reference implementation use the same names:
    fgpu   input{i}.NAME                -> STREAM.LABEL.NAME, for each stream of voltages
           STREAM.input{i}.NAME         -> STREAM.LABEL.NAME
           STREAM.dither-seed           -> STREAM.LABEL.dither-seed, for each label of the engine
    xbgpu  rx.NAME                      -> STREAM.INDEX.rx.NAME, for each stream that the engine makes
           STREAM.NAME                  -> STREAM.INDEX.NAME; INDEX counts the X-engines of the stream by channel
    both   a constant of a stream       -> STREAM.NAME, once for all engines
           any other sensor             -> ENGINE.NAME
RULES has the sensors of X-engines that are combined into one sensor of the stream.
"""
import re
from dataclasses import dataclass

# How the values of all X-engines become one sensor STREAM.NAME.  If a name is in HIDDEN, the array does not show the
# X-engines' own sensors of this name.
RULES = {"rx.synchronised": "all", "xeng-clip-cnt": "sum", "beng-clip-cnt": "sum", "audit-failure-cnt": "sum",
         "wrong-dump-cnt": "sum", "delay": "latest", "quantiser-gain": "latest", "weight": "latest"}
HIDDEN = set(RULES) - {"audit-failure-cnt", "wrong-dump-cnt"}
CONSTANTS = {
    "adc-bits", "adc-sample-rate", "bandwidth", "bls-ordering", "center-freq", "ddc-group-delay", "decimation-factor",
    "feng-out-bits-per-sample", "beng-out-bits-per-sample", "int-time", "n-accs", "n-ants", "n-bls", "n-chans",
    "n-chans-per-substream", "n-samples-between-spectra", "n-xengs", "pfb-group-delay", "scale-factor-timestamp",
    "spectra-per-heap", "sync-time", "xeng-out-bits-per-sample"}
# Names of engines' sensors that describe only the engine's own inputs.
OF_ENGINE = {"input-labels", "source-indices"}
INPUT = re.compile(r"input(\d+)\.(.+)")


@dataclass(frozen=True)
class Place:
    """The sensors of the array that get the value of an engine's sensor.  Each sensor in 'names' gets the value of
    only this engine.  'whole' is (name, rule) of a sensor that combines the values of several engines."""

    names: tuple = ()
    whole: tuple | None = None


class Names:
    """The names for all engines of a Config."""

    def __init__(self, config):
        self.config = config
        antennas = {antenna.name: antenna for antenna in config.antennas}
        self.labels = {engine.name: [label for name in engine.antennas for label in antennas[name].labels]
                       for engine in config.engines}
        self.voltages = [stream.name for stream in config.streams.values() if stream.kind == "voltages"]
        self.made, self.index = {}, {}
        for engine in config.engines:
            if engine.program == "xbgpu":
                self.made[engine.name] = [stream.name for stream in config.made_of(engine.stream)]
                self.index[engine.name] = config.xengs(config.streams[engine.stream]).index(engine)
        # Prefixes of sensors' names: each stream, and each beam in a stream of detected beams.
        self.prefixes = list(config.streams)
        for stream in config.streams.values():
            if stream.kind == "detected":
                self.prefixes += [f"{stream.name}.{i}" for i in range(stream.get("beams"))]
        self.prefixes.sort(key=len, reverse=True)

    def place(self, engine, name):
        """Returns the Place of the sensor 'name' of an EngineConfig."""
        if name == "steady-state-timestamp":
            return Place((f"{engine.name}.{name}",), whole=(name, "max"))
        found = (self._of_feng if engine.program == "fgpu" else self._of_xeng)(engine, name)
        return found or Place((f"{engine.name}.{name}",))

    def _split(self, name):
        """Returns (stream or beam, rest) of a sensor's name; ('', name) if the name does not begin with a stream."""
        for prefix in self.prefixes:
            if name.startswith(prefix + "."):
                return prefix, name[len(prefix) + 1:]
        return "", name

    def _of_feng(self, engine, name):
        stream, rest = self._split(name)
        labels = self.labels[engine.name]
        if stream and stream not in self.voltages:
            return None
        if (match := INPUT.fullmatch(rest)) and int(match[1]) < len(labels):
            label = labels[int(match[1])]
            return Place(tuple(f"{each}.{label}.{match[2]}" for each in ([stream] if stream else self.voltages)))
        if not stream or rest in OF_ENGINE:
            return None
        if rest == "dither-seed":
            return Place(tuple(f"{stream}.{label}.{rest}" for label in labels))
        return Place(whole=(name, "latest")) if rest in CONSTANTS else None

    def _of_xeng(self, engine, name):
        index, made = self.index[engine.name], self.made[engine.name]
        if name.startswith("rx."):
            return Place(tuple(f"{stream}.{index}.{name}" for stream in made)) if made else None
        stream, rest = self._split(name)
        if not stream or rest in OF_ENGINE:
            return None
        if rest in CONSTANTS:
            return Place(whole=(name, "latest"))
        own = () if rest in HIDDEN else (f"{stream}.{index}.{rest}",)
        return Place(own, whole=(name, RULES[rest]) if rest in RULES else None)
