"""A stand-in of the controller for tests of cbf-point.  It records requests, and forwards ?delays to one fgpu."""
import asyncio
import threading
import time

import aiokatcp
import harness

class Server(aiokatcp.DeviceServer):
    VERSION, BUILD_STATE = "stand-in-1.0", "1.0"

    def __init__(self, owner, port, **sensors):
        super().__init__(harness.LOOPBACK, port)
        self.owner = owner
        for name, value in sensors.items():
            self.sensors.add(aiokatcp.Sensor(type(value), name.replace("__", ".").replace("_", "-"), "", default=value,
                                             initial_status=aiokatcp.Sensor.Status.NOMINAL))

    async def request_delays(self, ctx, stream: str, start: str, *models: str) -> None:
        """Delays of all inputs of a stream."""
        await self.owner.take("delays", stream, start, *models)

    async def request_beam_delays(self, ctx, beam: str, start: str, *models: str) -> None:
        """Delays of all antennas in a beam."""
        await self.owner.take("beam-delays", beam, start, *models)

    async def request_pointing_report(self, ctx, stream: str, target: str, until_unix_s: float, eop_age_s: float) -> None:
        """The target of a stream."""
        await self.owner.take("pointing-report", stream, target, until_unix_s, eop_age_s)


class Controller:
    """'forward' is an async function that gets the arguments of each request before the reply is sent.  'requests' has
    all requests that were answered with ok.  'times' has the UNIX times at which they came."""

    def __init__(self, port=None, forward=None, **sensors):
        self.port, self.forward, self.sensors = port or harness.free_tcp_port(), forward, sensors
        self.requests, self.times, self.changed = [], [], threading.Condition()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    @property
    def address(self):
        return f"{harness.LOOPBACK}:{self.port}"

    async def take(self, *arguments):
        came_s = time.time()
        if self.forward:
            await self.forward(*arguments)
        with self.changed:
            self.requests.append(arguments)
            self.times.append(came_s)
            self.changed.notify_all()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(harness.TIMEOUT_S)

    def named(self, name):
        return [arguments for found, *arguments in list(self.requests) if found == name]

    def wait(self, name, n, timeout=harness.TIMEOUT_S):
        """Waits until n requests of this name were answered."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.named(name)) >= n, timeout), \
                f"{len(self.named(name))} of {n} ?{name} within {timeout:g} s"
        return self.named(name)

    def __enter__(self):
        async def start():
            self.server = Server(self, self.port, **self.sensors)
            await self.server.start()

        self.thread.start()
        self.run(start())
        return self

    def __exit__(self, *_):
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
