"""KATCP to a running program: aiokatcp's client with synchronous calls, and bare lines."""
import asyncio
import socket
import threading
import time

import aiokatcp

from harness import LOOPBACK, TIMEOUT_S

FailReply = aiokatcp.FailReply
InvalidReply = aiokatcp.InvalidReply


class Client:
    """aiokatcp's client on an event loop in a thread."""

    def __init__(self, process):
        self.port = int(process.config["katcp"]["listen"].split(":")[1])
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = self._run(aiokatcp.Client.connect(LOOPBACK, self.port))

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def ask(self, name, *args):
        """The arguments of the reply and of each inform, as text; FailReply and InvalidReply are raised."""
        reply, informs = self._run(self.client.request(name, *args))
        return [arg.decode() for arg in reply], [[arg.decode() for arg in inform.arguments] for inform in informs]

    def request(self, name, *args):
        return self.ask(name, *args)[0]

    def informs(self, name, *args):
        return self.ask(name, *args)[1]

    def reading(self, name):
        """(UNIX time, status, value as text) of a sensor."""
        (timestamp, n, found, status, value), = self.informs("sensor-value", name)
        assert (n, found) == ("1", name)
        return float(timestamp), status, value

    def value(self, name, kind=str):
        return kind(self.reading(name)[2])

    def wait(self, name, condition, what, timeout=TIMEOUT_S):
        """Asks for the sensor's reading until condition(status, value)."""
        deadline = time.monotonic() + timeout
        while True:
            reading = self.reading(name)
            if condition(*reading[1:]):
                return reading
            assert time.monotonic() < deadline, f"{name} is {reading}: not {what} within {timeout:g} s"
            time.sleep(0.01)

    def close(self):
        async def stop():
            self.client.close()
            await self.client.wait_closed()

        self._run(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Lines:
    """A connection without any library.  The server's first informs have been read."""

    def __init__(self, process, listen="listen"):
        port = int(process.config["katcp"][listen].split(":")[1])
        self.socket = socket.create_connection((LOOPBACK, port), TIMEOUT_S)
        self.file = self.socket.makefile("rw", newline="\n")

    def ask(self, line):
        """Sends a line.  Returns the reply's line, without its informs and other lines in between."""
        self.file.write(line + "\n")
        self.file.flush()
        name = line[1:].split(" ")[0].split("[")[0]
        while True:
            got = self.file.readline()
            assert got, f"the server hung up after {line[:100]}"
            if got.startswith(f"!{name}"):
                return got[:-1]

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
