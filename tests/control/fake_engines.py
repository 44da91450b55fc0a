"""Fake engines that only have a KATCP server, many in one process.  Tests use them as many engines or hung engines.

    fake_engines.py '{"f0": ["fgpu", 12000, ["m000"]], "x0": ["xbgpu", 12001, ["wide-vis"]]}' [DELAY_S]

Each request that sets something is answered after a random time up to DELAY_S, and noted.  ?requests returns the notes,
each with the monotonic time of its reply.  After ?refuse NAME, all requests NAME fail.  After ?hold NAME, the replies
to requests NAME wait for ?release.
"""
import asyncio
import json
import random
import sys
import time

import aiokatcp

N_CHANS = 64


class Engine(aiokatcp.DeviceServer):
    """'antennas' are the names of an F-engine's antennas; 'streams' are an X-engine's streams and beams."""

    VERSION, BUILD_STATE = "fake-1.0", "fake-1.0"

    def __init__(self, port, program, names, delay_s):
        super().__init__("127.0.0.1", port)
        self.program, self.delay_s, self.notes, self.refused = program, delay_s, [], set()
        self.held, self.has_come, self.is_released = None, asyncio.Event(), asyncio.Event()
        self.labels = [name + pol for name in names for pol in "vh"]
        add = self.add
        add("device-status", str, "ok")
        add("steady-state-timestamp", int, 0)
        if program == "fgpu":
            self.streams = ["wide"]
            for i in range(len(self.labels)):
                add(f"input{i}.dig-clip-cnt", int, 0)
                add(f"input{i}.rx.timestamp", int, 0)
                add(f"wide.input{i}.eq", str, "[1.0]")
                add(f"wide.input{i}.delay", str, "(-1, 0.0, 0.0, 0.0, 0.0)")
        else:
            self.streams = names
            add("rx.timestamp", int, 0)
            for name in names:
                add(f"{name}.chan-range", str, "(0,3)")
                add(f"{name}.xeng-clip-cnt", int, 0)
                add(f"{name}.rx.synchronised", bool, True)

    def add(self, name, stype, value):
        sensor = aiokatcp.Sensor(stype, name, "Fake.", "")
        sensor.set_value(value, aiokatcp.Sensor.Status.NOMINAL)
        self.sensors.add(sensor)

    async def note(self, ctx, known, *args):
        if ctx.req.name == self.held:
            self.has_come.set()
            await self.is_released.wait()
        await asyncio.sleep(random.uniform(0, self.delay_s))
        if not known or ctx.req.name in self.refused:
            raise aiokatcp.FailReply(f"{args[0]} is not known")
        self.notes.append((time.monotonic(), " ".join([ctx.req.name, *args])))

    async def request_gain(self, ctx, stream: str, label: str, *gains: str) -> tuple:
        """Gains of an input."""
        if gains:
            await self.note(ctx, stream in self.streams and label in self.labels, stream, label, *gains)
            self.sensors[f"{stream}.input{self.labels.index(label)}.eq"].value = f"[{','.join(gains)}]"
            return ()
        text = self.sensors[f"{stream}.input{self.labels.index(label)}.eq"].value
        return tuple(text.strip("[]").split(","))

    async def request_set(self, ctx, name: str, value: str) -> None:
        """Sets a sensor."""
        sensor = self.sensors[name]
        sensor.set_value(aiokatcp.core.decode(sensor.stype, value.encode()))

    async def request_requests(self, ctx) -> None:
        """Returns all noted requests."""
        ctx.informs([(repr(at_s), text) for at_s, text in self.notes])

    async def request_hold(self, ctx, name: str) -> None:
        """From now on, holds the replies to a request."""
        self.held = name

    async def request_held(self, ctx) -> None:
        """Replies as soon as a request is held."""
        await self.has_come.wait()

    async def request_release(self, ctx) -> None:
        """Sends the held replies, and holds no more."""
        self.held = None
        self.is_released.set()

    async def request_refuse(self, ctx, name: str) -> None:
        """From now on, refuses a request."""
        self.refused.add(name)


def noting(name):
    async def request(self, ctx, *args: str) -> None:
        """Notes the request."""
        await self.note(ctx, not args or args[0] in self.streams or name == "beam-calibration", *args)

    return request


OF = {"fgpu": ["gain-all", "delays", "resume"],
      "xbgpu": ["capture-start", "capture-stop", "beam-weights", "beam-delays", "beam-quant-gains", "beam-calibration"]}


def engine_class(program):
    methods = {"request_" + name.replace("-", "_"): noting(name) for name in OF[program]}
    return type(Engine)(f"Fake_{program}", (Engine,), methods)


async def main():
    engines = json.loads(sys.argv[1])
    delay_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0
    classes = {program: engine_class(program) for program in OF}
    servers = [classes[program](port, program, names, delay_s) for program, port, names in engines.values()]
    for server in servers:
        await server.start()
    print("ready", flush=True)
    await asyncio.gather(*(server.join() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
