"""One engine as the controller sees it: its KATCP connection, its state, and requests with a time-out.

Flow:   Controller --request()--> Engine --> aiokatcp client --> fgpu or xbgpu
States: absent   there is no connection
        hung     the engine accepts connections, or has one, but did not answer in time
        present  the engine takes requests
An engine becomes present after it has got all settings that the controller holds (control_settings).  A request that
is not answered in time ends the connection, because the controller cannot know whether the setting has taken effect.
The next connection then sets everything again.  All methods run on one event loop.
"""
import asyncio
import errno
import logging
import os
import time

import aiokatcp

RETRY_S = 0.5        # from the end of a connection to the next attempt
CONNECT_S = 10.0     # limit of one attempt; a stopped engine accepts a connection, and answers when it continues
PROBE_S = 1.0        # from one ?watchdog to the next
SLACK_S = 0.01       # by which a caller waits longer than the engine may take, so that its state is known first
SILENT_S = 3.0       # an engine that does not answer ?watchdog for so long is hung

MANY_ARGS = 1000     # encoding a gain for each of 32768 channels takes 15 ms for each engine

ABSENT, HUNG, PRESENT = "absent", "hung", "present"
logger = logging.getLogger("control")
_encoding = asyncio.Lock()  # between the messages of a long request, the event loop serves other requests


class EngineFailed(Exception):
    """A clause without a subject about a request that an engine did not carry out, like 'is absent'."""


class EngineRefused(EngineFailed):
    """The engine has answered the request with fail or invalid."""


def why_not_connected(error):
    """A clause about an OSError of a connection."""
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection: the program does not run"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        return "cannot be reached: no route to its host"
    text = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else str(error)
    return f"has no connection: {text}"


class Engine:
    """An engine.  'config' is its EngineConfig.  'messages(engine, sent, in_effect)' returns the settings to send, as a
    list of (name, arguments, timeout_s).  In the dict 'sent' the function notes the settings that it has returned, so
    that the next call returns only newer settings.  'in_effect' are the values of the engine's sensors of delay models.
    'on_state(engine)' is called after each change of the state."""

    def __init__(self, config, messages, on_state=lambda engine: None):
        self.config = config
        self.name, self.program, self.host = config.name, config.program, config.host
        self.state, self.why, self.since = ABSENT, "has not been connected yet", time.time()
        self.tried = asyncio.Event()   # set after the first attempt
        self.refused = {}              # requests of kept settings that the engine has refused: name -> reason
        self.mirror = None             # a control_sensors.Mirror, if the sensors are wanted
        self._messages, self._on_state = messages, on_state
        self._client = None
        self._lock = asyncio.Lock()    # one request at a time, in the order of request()
        self._n_requests = 0           # that have been sent or wait
        self._failed = asyncio.Event()  # a request was not answered in time
        self._task = None

    def __str__(self):
        return f"{self.name} on {self.host}"

    def start(self):
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"engine {self.name}")

    async def stop(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _set_state(self, state, why=""):
        if (state, why) == (self.state, self.why):
            return
        if state != self.state:
            logger.log(logging.INFO if state == PRESENT else logging.WARNING, "%s is %s%s", self, state,
                       f": {why}" if why else "")
            self.since = time.time()
        self.state, self.why = state, why
        self._on_state(self)

    # ---- Requests ----------------------------------------------------------------------------------------------------

    async def request(self, timeout_s, name, *args):
        """Sends a request when all earlier requests of this engine are answered.  Returns the arguments of the reply,
        as bytes, within timeout_s.  Raises EngineRefused, or EngineFailed if the engine is not present or the time is
        over.  A request that still waits for its turn then keeps its turn, because newer settings may wait behind
        it."""
        sent = asyncio.Event()
        if not self._n_requests:
            return await self._turn(sent, timeout_s, name, *args)
        turn = asyncio.ensure_future(self._turn(sent, timeout_s, name, *args))
        await asyncio.wait([turn], timeout=timeout_s + SLACK_S)
        if turn.done():
            return turn.result()
        turn.add_done_callback(self._late)
        if sent.is_set():
            raise EngineFailed(f"did not answer ?{name} within {timeout_s:g} s")
        raise EngineFailed(f"is busy, and gets ?{name} later")

    async def _turn(self, sent, timeout_s, name, *args):
        self._n_requests += 1
        try:
            async with self._lock:
                if self.state != PRESENT:
                    raise EngineFailed(self.clause())
                sent.set()
                if len(args) < MANY_ARGS:
                    return await self._ask(self._client, timeout_s, name, *args)
                async with _encoding:
                    ask = asyncio.ensure_future(self._ask(self._client, timeout_s, name, *args))
                    await asyncio.sleep(0)  # the message is written here
                return await ask
        finally:
            self._n_requests -= 1

    def _late(self, turn):
        """Logs the failure of a request whose caller has got a reply."""
        if not turn.cancelled() and isinstance(turn.exception(), EngineRefused):
            logger.error("%s %s", self, turn.exception())

    def clause(self):
        """A clause about an engine that is not present."""
        return "is absent" if self.state == ABSENT else "does not answer"

    async def _ask(self, client, timeout_s, name, *args):
        try:
            async with asyncio.timeout(timeout_s):
                reply, _ = await client.request(name, *args)
                return reply
        except (aiokatcp.FailReply, aiokatcp.InvalidReply) as error:
            raise EngineRefused(f"refused ?{name}: {error}") from None
        except TimeoutError:
            why = f"did not answer ?{name} within {timeout_s:g} s"
            self._set_state(HUNG, why)
            self._failed.set()
            raise EngineFailed(why) from None
        except OSError:
            raise EngineFailed("lost its connection") from None

    # ---- The connection ----------------------------------------------------------------------------------------------

    async def _run(self):
        while True:
            client = aiokatcp.Client(*self.config.katcp, auto_reconnect=False)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await client.wait_connected()
                await self._serve(client)
            except TimeoutError:
                self._set_state(HUNG, "accepts no connection")
            except EngineFailed as error:
                if self.state != HUNG:
                    self._set_state(ABSENT, str(error))
            except OSError as error:
                self._set_state(ABSENT, why_not_connected(error))
            except Exception:  # a defect costs one connection, not the engine
                logger.exception("%s", self)
                self._set_state(ABSENT, "has sent something unexpected")
            finally:
                self._client = None
                client.close()
                self.mirror and self.mirror.disconnected()
                self.tried.set()
            await asyncio.sleep(RETRY_S)

    async def _serve(self, client):
        """Serves one connection until its end.  Raises EngineFailed."""
        await self._send_settings(client)
        self._client = client
        self._failed.clear()
        self._set_state(PRESENT)
        self.tried.set()
        parts = [self._probe(client), self._wait_end(client), self._failed.wait()]
        if self.mirror:
            parts.append(self.mirror.run(client))
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            await asyncio.wait(tasks[:3], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise EngineFailed(self.why or "lost its connection")

    async def _send_settings(self, client):
        """Sends the settings that the controller holds, until none has changed meanwhile.  There is no await between
        the last look at the settings and PRESENT in _serve(), so no setting is lost."""
        self.refused = {}
        sent, in_effect = {}, await self._models_in_effect(client)
        while messages := self._messages(self, sent, in_effect):
            for name, args, timeout_s in messages:
                try:
                    await self._ask(client, timeout_s, name, *args)
                except EngineRefused as error:
                    logger.error("%s %s", self, error)
                    self.refused[f"?{name} {' '.join(args[:2])}"] = str(error)

    async def _models_in_effect(self, client):
        """{name of a sensor: value} of the F-engine's sensors of delay models."""
        if self.program != "fgpu":
            return {}
        try:
            async with asyncio.timeout(CONNECT_S):
                _, informs = await client.request("sensor-value", "/input[0-9]+[.]delay$/")
        except (aiokatcp.FailReply, aiokatcp.InvalidReply):
            return {}
        return {inform.arguments[2].decode(): inform.arguments[4].decode() for inform in informs}

    async def _probe(self, client):
        """Ends when the engine does not answer ?watchdog.  A long request, such as ?gain-all, delays the answers, so an
        engine with a request in progress is not asked."""
        while True:
            await asyncio.sleep(PROBE_S)
            if not self._n_requests:
                try:
                    await self._ask(client, SILENT_S, "watchdog")
                except EngineFailed:
                    return

    async def _wait_end(self, client):
        await client.wait_disconnected()
        self._set_state(ABSENT, "lost its connection")
