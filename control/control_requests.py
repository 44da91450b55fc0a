"""The controller: one KATCP server for the whole array, with its engines, sensors and requests."""
from aiokatcp import FailReply

import control_values as values
from control_xengs import XengRequests


class Controller(XengRequests):
    """Requests that concern the array as a whole.  control_fengs, control_xengs and control_server have the other
    requests."""

    async def request_engine_list(self, ctx) -> None:
        """Lists engines: name, program, host, KATCP address, HTTP address, state, reason for the state."""
        ctx.informs([(engine.name, engine.program, engine.host, "%s:%d" % engine.config.katcp, engine.config.http,
                      engine.state, engine.why) for engine in self.engines])

    async def request_pointing_report(self, ctx, stream: str, target: str, until: float, eop_age: float) -> None:
        """Reports the state of cbf-point, which the controller shows as sensors of the stream.

        ?pointing-report STREAM TARGET UNTIL EOP_AGE.  UNTIL is the UNIX time until which models have been sent.
        EOP_AGE is the age of the table of the earth's rotation, in s.
        """
        self._stream(stream, "voltages")
        self.reports.pointing(stream, target, values.number(str(until), "UNTIL"),
                              values.number(str(eop_age), "EOP_AGE"))

    async def request_calibration_report(self, ctx, stream: str, time: float, coherence: float, reference: str) -> None:
        """Reports a calibration, which the controller shows as sensors of the stream.

        ?calibration-report STREAM TIME COHERENCE REFERENCE.  TIME is the UNIX time of the data.  COHERENCE is from 0 to
        1.  REFERENCE is the antenna relative to which phases are calibrated.
        """
        self._stream(stream, "voltages")
        if not 0 <= coherence <= 1:
            raise FailReply(f"the coherence must be from 0 to 1, not {coherence:g}")
        self.reports.calibration(stream, values.number(str(time), "TIME"), coherence, reference)
