"""One engine as the controller sees it: its KATCP connection, its state, and requests with a time-out.

Flow:   Controller --request()--> Engine --> aiokatcp client --> fgpu or xbgpu
States: absent   there is no connection
        hung     the engine did not answer a request, or an attempt to connect, in time
        present  the engine takes requests
An engine becomes present after it has got all settings that the controller holds (control_settings).  If a request is
not answered in time, the controller cannot know whether the setting has taken effect.  The controller then ends the
connection, and sends all settings again on the next connection.  All methods run on one event loop.
"""
import asyncio
import errno
import logging
import os
import time

import aiokatcp

RETRY_S = 0.5        # time from the end of a connection to the next attempt
CONNECT_S = 10.0     # time limit of one attempt; a stopped engine (SIGSTOP) may continue, and answer, within this time
PROBE_S = 1.0        # time from one ?watchdog to the next
SLACK_S = 0.01       # added to a caller's time-out, so that the engine's state is known before the caller gives up
SILENT_S = 3.0       # an engine is hung if it does not answer ?watchdog within this time

MANY_ARGS = 1000     # longer requests are encoded one at a time: 32768 gains for one engine take 15 ms

ABSENT, HUNG, PRESENT = "absent", "hung", "present"
logger = logging.getLogger("control")
_encoding = asyncio.Lock()  # one long message at a time, so that the event loop can serve other requests in between


class EngineFailed(Exception):
    """An engine did not carry out a request.  The text is a clause without its subject, the engine: for example 'is
    absent'."""


class EngineRefused(EngineFailed):
    """The engine has answered the request with fail or invalid."""


def why_not_connected(error):
    """Returns a clause that says why a connection failed with an OSError."""
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection: the program does not run"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        return "cannot be reached: no route to its host"
    text = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else str(error)
    return f"has no connection: {text}"


class Engine:
    """An engine.  'config' is its EngineConfig.  'messages(engine, sent, in_effect)' returns the settings to send, as a
    list of (name, arguments, timeout_s).  In the dict 'sent' the function notes the settings that it has returned, so
    that the next call returns only newer settings.  'in_effect' has the values of the sensors that show the engine's
    delay models.  'on_state(engine)' is called after each change of the state."""

    def __init__(self, config, messages, on_state=lambda engine: None):
        self.config = config
        self.name, self.program, self.host = config.name, config.program, config.host
        self.state, self.why, self.since = ABSENT, "has not been connected yet", time.time()
        self.tried = asyncio.Event()   # set after the first attempt to connect
        self.refused = {}              # stored settings that the engine has refused: request -> reason
        self.mirror = None             # a control_sensors.Mirror, if the sensors are wanted
        self._messages, self._on_state = messages, on_state
        self._client = None
        self._lock = asyncio.Lock()    # one request at a time, in the order of request()
        self._n_requests = 0           # number of requests that wait to be sent or answered
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
        """Sends a request when all earlier requests to this engine have been answered.

        Returns the arguments of the reply, as bytes, within timeout_s.  Raises EngineRefused, or EngineFailed if the
        engine is not present or timeout_s has passed.  A request that has not been sent by then stays in the
        queue and is sent later, because newer settings may be queued after it.
        """
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
                    await asyncio.sleep(0)  # meanwhile, the task 'ask' encodes and writes the message
                return await ask
        finally:
            self._n_requests -= 1

    def _late(self, turn):
        """Logs the engine's refusal of a request whose caller waits no longer."""
        if not turn.cancelled() and isinstance(turn.exception(), EngineRefused):
            logger.error("%s %s", self, turn.exception())

    def clause(self):
        """Returns a clause about an engine that is not present."""
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
            except Exception:  # a defect in this program must not end the attempts to connect
                logger.exception("%s", self)
                self._set_state(ABSENT, "has sent an unexpected message")
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
        self._set_state(PRESENT, "; ".join(self.refused.values()))
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
        """Sends the stored settings, then the settings that have changed meanwhile, until no setting has changed.
        There is no await between the last check of the settings and the state PRESENT in _serve(), so no setting is
        lost."""
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
        """Returns {name of a sensor: value} of the sensors that show an F-engine's delay models; {} for an X-engine."""
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
