"""Requests for X-engines: capture and beams."""
from aiokatcp import FailReply

import control_values as values
from control_fengs import FengRequests
from control_settings import add_model, now_text

BEAM_LEAD_S = 0.2     # a request without a load time takes effect after this time, in all X-engines at once
SENT = ("visibilities", "beam", "detected")


class XengRequests(FengRequests):
    """Requests for X-engines.  STREAM is a stream that X-engines make.  BEAM is a voltage beam, or STREAM.NUMBER for
    one beam of a stream of detected beams."""

    def _beam(self, name):
        """Returns (Stream, possible numbers of values, Engines) of a beam."""
        base, _, number = name.rpartition(".")
        stream = self.config.streams.get(name)
        if stream is None or stream.kind == "detected":
            stream = self.config.streams.get(base)
            n = stream.get("beams") if stream and stream.kind == "detected" else 0
            if not number.isdecimal() or int(number) >= n:
                raise FailReply(f"there is no beam '{name[:64]}'; a detected beam is STREAM.NUMBER")
        elif stream.kind != "beam":
            raise FailReply(f"{name} is a stream of {stream.kind}, not a beam")
        n_ants = len(self.config.antennas)
        counts = {n_ants} if stream.kind == "beam" else {n_ants, 2 * n_ants}
        return stream, counts, self._xengs(stream)

    async def _apply_to_beam(self, name, stream, engines, beam, value, args, timeout_s):
        key = (name, stream.name, beam)
        await self._apply({key: value}, [(engine, name, (beam, *args), [key]) for engine in engines], timeout_s)

    async def request_beam_weights(self, ctx, beam: str, *weights: str) -> None:
        """Sets the weights of a beam.

        ?beam-weights BEAM WEIGHT...  A WEIGHT is a real number.  Give one WEIGHT for each antenna.  For a detected
        beam, one WEIGHT for each input is also possible.
        """
        stream, counts, engines = self._beam(beam)
        checked = values.weights(weights, counts, stream.get("incoherent", False))
        await self._apply_to_beam("beam-weights", stream, engines, beam, checked, checked, self.config.delays_timeout_s)

    async def request_beam_quant_gains(self, ctx, beam: str, gain: str) -> None:
        """Sets the gain by which a beam is multiplied before rounding.

        ?beam-quant-gains BEAM GAIN.  GAIN is a real number.
        """
        stream, _, engines = self._beam(beam)
        values.number(gain, "the gain")
        await self._apply_to_beam("beam-quant-gains", stream, engines, beam, [gain], [gain],
                                  self.config.delays_timeout_s)

    async def request_beam_delays(self, ctx, beam: str, *models: str) -> None:
        """Sets the delays of a beam at the same time in all X-engines.

        ?beam-delays BEAM [LOAD_TIME] DELAY:PHASE...  Give a DELAY in s and a PHASE in rad for each antenna.  The phase
        applies at the centre of the stream.  LOAD_TIME is in UNIX seconds.  With a LOAD_TIME, models may be
        DELAY,RATE:PHASE,PHASE_RATE.  Without a LOAD_TIME the delays take effect 0.2 s later, and replace pending
        delays.
        """
        stream, counts, engines = self._beam(beam)
        if stream.get("incoherent", False):
            raise FailReply(f"beam {beam} is incoherent, so it has no delays")
        is_timed = bool(models) and ":" not in models[0]
        if is_timed:
            start, numbers = values.start(models[0], self.config.sync_time_s), models[1:]
        else:
            start, numbers = now_text(BEAM_LEAD_S), models
        checked = values.beam_models(numbers, counts, is_timed)
        kept = add_model(self.settings.get(("beam-delays", stream.name, beam)), start, checked)
        await self._apply_to_beam("beam-delays", stream, engines, beam, kept, [start, *checked],
                                  self.config.delays_timeout_s)

    async def request_beam_calibration(self, ctx, stream: str, input: str, *gains: str) -> None:
        """Sets the gains of an input for all beams of a stream of voltages.

        ?beam-calibration STREAM INPUT VALUE...  STREAM is a stream of voltages.  INPUT is a label (m000v) or a number.
        Give one complex VALUE, or one for each channel of the stream.
        """
        found = self._stream(stream, "voltages")
        label = values.input_label(input, self.labels)
        checked = values.gains(gains, found.get("channels"))
        key = ("beam-calibration", stream, label)
        calls = [(engine, "beam-calibration", (label, *checked), [key]) for engine in self._xengs(found)]
        await self._apply({key: checked}, calls, self.config.gains_timeout_s)

    # ---- Capture -----------------------------------------------------------------------------------------------------

    async def request_capture_start(self, ctx, stream: str, timestamp: int = None) -> None:
        """Starts the sending of a stream by all its X-engines.

        ?capture-start STREAM [TIMESTAMP].  Heaps that begin before TIMESTAMP, in ADC samples, are not sent.
        """
        found = self._stream(stream, *SENT)
        if timestamp is not None and timestamp < 0:
            raise FailReply(f"the timestamp must be 0 or more, not {timestamp}")
        await self._capture(found, "start", *([] if timestamp is None else [str(timestamp)]))

    async def request_capture_stop(self, ctx, stream: str) -> None:
        """Stops the sending of a stream by all its X-engines; they still compute it.

        ?capture-stop STREAM.
        """
        await self._capture(self._stream(stream, *SENT), "stop")

    async def _capture(self, stream, what, *args):
        key = ("capture", stream.name, "")
        calls = [(engine, f"capture-{what}", (stream.name, *args), [key]) for engine in self._xengs(stream)]
        await self._apply({key: [what, *args]}, calls, self.config.delays_timeout_s)

    def is_up(self, stream):
        """Returns whether a stream is sent.  The last capture request decides; without a request, control.yaml
        decides."""
        kept = self.settings.get(("capture", stream.name, ""))
        return kept[0] == "start" if kept else bool(stream.get("send_enabled", True))

    async def request_capture_list(self, ctx, stream: str = None) -> None:
        """Lists streams: name, addresses, up (sent) or down (not sent).

        ?capture-list [STREAM].
        """
        if stream is not None and stream not in self.config.streams:
            raise FailReply(f"there is no stream '{stream[:64]}'")
        ctx.informs([(each.name, each.get("destinations", ""), "up" if self.is_up(each) else "down")
                     for each in self.config.streams.values() if stream in (None, each.name)])

    async def request_capture_status(self, ctx) -> str:
        """Returns capturing while a stream of X-engines is sent, else idle."""
        sent = [stream for stream in self.config.streams.values() if stream.kind in SENT]
        return "capturing" if any(self.is_up(stream) for stream in sent) else "idle"
