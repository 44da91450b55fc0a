"""Requests for F-engines: gains and delays."""
from aiokatcp import FailReply

import control_values as values
from control_fanout import FanOut
from control_settings import add_model


class FengRequests(FanOut):
    """Requests for F-engines.  Their argument STREAM is a stream of voltages."""

    async def request_gain(self, ctx, stream: str, input: str, *gains: str) -> tuple:
        """Sets or returns the gains of an input.

        ?gain STREAM INPUT [VALUE...].  STREAM is a stream of voltages.  INPUT is a label (m000v) or the input's
        number.  Give one complex VALUE for all channels, or one for each channel.  Without a VALUE, the reply has the
        gains in effect.
        """
        found = self._stream(stream, "voltages")
        label = values.input_label(input, self.labels)
        (engine,) = self._fengs([label])
        if not gains:
            call = engine, "gain", (stream, label)
            (reply,) = replies = await self._send([call], self.config.gains_timeout_s)
            self._reply([call], replies)
            return tuple(reply)
        checked = values.gains(gains, found.get("channels"))
        key = ("gain", stream, label)
        await self._apply({key: checked}, [(engine, "gain", (stream, label, *checked), [key])],
                          self.config.gains_timeout_s)
        return ()

    async def request_gain_all(self, ctx, stream: str, *gains: str) -> None:
        """Sets the gains of all inputs.

        ?gain-all STREAM VALUE...|default.  STREAM and VALUE are as for ?gain.  'default' restores the gains of the
        engines' configuration.
        """
        found = self._stream(stream, "voltages")
        checked = ["default"] if gains == ("default",) else values.gains(gains, found.get("channels"))
        key = ("gain-all", stream, "")
        former = [other for other in self.settings.keys("gain") if other[1] == stream]
        calls = [(engine, "gain-all", (stream, *checked), [key, *former]) for engine in self._fengs(self.labels)]
        await self._apply({key: checked} | dict.fromkeys(former), calls, self.config.gains_timeout_s)

    async def request_delays(self, ctx, stream: str, start: str, *models: str) -> None:
        """Adds delay models that take effect at the same time in all F-engines.

        ?delays STREAM TIME [INPUT=]MODEL...  TIME is in UNIX seconds.  Give a MODEL for each input of the stream, in
        the order of the inputs, or INPUT=MODEL for some inputs.  A MODEL is delay,rate:phase,phase_rate in s, s/s, rad,
        rad/s, or delay,rate,acceleration:phase,phase_rate,phase_acceleration.
        """
        found = self._stream(stream, "voltages")
        values.start(start, self.config.sync_time_s)
        given = values.models(models, self.labels, found.get("max_delay", values.MAX_DELAY_S))
        stored, calls = {}, []
        for engine, labels in self._fengs(given).items():
            keys = [("delays", stream, label) for label in labels]
            stored.update({key: add_model(self.settings.get(key), start, [given[key[2]]]) for key in keys})
            is_whole = labels == self.board.names.labels[engine.name]
            args = [given[label] if is_whole else f"{label}={given[label]}" for label in labels]
            calls.append((engine, "delays", (stream, start, *args), keys))
        await self._apply(stored, calls, self.config.delays_timeout_s)

    async def request_resume(self, ctx, stream: str, *antennas: str) -> None:
        """Resumes a stream that is silent after a delay that was too large.

        ?resume STREAM [ANTENNA...].  STREAM is a stream of voltages.  Without an ANTENNA all antennas resume.
        """
        self._stream(stream, "voltages")
        for name in antennas:
            if name not in self.of_antenna:
                raise FailReply(f"there is no antenna '{name[:64]}'")
        engines = {}
        for name in antennas or self.of_antenna:
            engines.setdefault(self.of_antenna[name], []).append(name)
        calls = [(engine, "resume", (stream, *names)) for engine, names in engines.items()]
        self._reply(calls, await self._send(calls, self.config.delays_timeout_s))
