"""Requests that go to several engines.  They are stored, sent in parallel, and answered with one reply.

First a request is checked completely.  Then its values are stored, and the request is sent in parallel to all engines
that it concerns.  The reply is ok, or fail with a sentence that names every engine that failed.  The controller keeps a
setting unless all engines concerned have refused it.  Engines that are absent or hung get the stored settings when they
are back.
"""
import asyncio
import logging

from aiokatcp import FailReply, Sensor

from control_engine import Engine, EngineFailed, EngineRefused
from control_reports import Reports
from control_sensors import Board, Mirror
from control_server import Server
from control_settings import Sender, Settings
from control_state import ArrayState

FIRST_TRY_S = 1.0     # longest time that the start waits for connections to engines
Status = Sensor.Status
logger = logging.getLogger("control")


class FanOut(Server):
    """'config' is a control_config.Config.  'engines' are the control_engine.Engines, in the order of control.yaml."""

    VERSION = "cbf-control-1.0"
    BUILD_STATE = "cbf-control-1.0"

    def __init__(self, config):
        super().__init__(*config.katcp, config.allow)
        self.config = config
        self.labels = config.labels
        self.settings = Settings(config.state_directory)
        sender = Sender(config, self.settings)
        self.engines = [Engine(engine, sender.messages, self._engine_changed) for engine in config.engines]
        self.by_name = {engine.name: engine for engine in self.engines}
        self.of_antenna = {name: engine for engine in self.engines for name in engine.config.antennas}
        self._interface_timer = None
        self.board = Board(config, self.sensors, self._interface_changed, self._note)
        self.state = ArrayState(config, self.board, self.engines, self.loop)
        self.kept = self.board.add("state-status", str, "Whether settings survive a restart: kept (yes), none (no "
                                   "directory), failed (a setting could not be written), ignored (a damaged file was "
                                   "put aside at the start).")
        self._show_kept()
        self.reports = Reports(config, self.board, self.settings)
        for engine in self.engines:
            engine.mirror = Mirror(self.board, engine)

    def _put(self, stored):
        """Stores settings.  Returns the former values."""
        former = self.settings.put(stored)
        self._show_kept()
        return former

    def _show_kept(self):
        if self.kept.value != self.settings.status or self.kept.status == Status.UNKNOWN:
            is_good = self.settings.status in ("none", "kept")
            self.kept.set_value(self.settings.status, Status.NOMINAL if is_good else Status.ERROR)

    async def start(self):
        """Connects to the engines, then listens.  Engines that do not answer at once are connected later."""
        for engine in self.engines:
            engine.start()
        waits = [asyncio.ensure_future(engine.tried.wait()) for engine in self.engines]
        if waits:
            _, late = await asyncio.wait(waits, timeout=FIRST_TRY_S)
            for wait in late:
                wait.cancel()
        await super().start()

    async def on_stop(self):
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        self.settings.close()

    def report(self):
        """Returns the section 'settings' of /array.json."""
        return self.reports.as_dict()

    def _engine_changed(self, engine):
        self.state.compute()

    def _note(self, engine, name, status, raw):
        self.state.note(engine, name, status, raw)

    def _interface_changed(self):
        """Sends clients one #interface-changed for all sensors that are added within 0.2 s."""
        if self._interface_timer is None:
            self._interface_timer = self.loop.call_later(0.2, self._inform_interface)

    def _inform_interface(self):
        self._interface_timer = None
        self.mass_inform("interface-changed", "sensor-list")

    # ---- Fan-out -----------------------------------------------------------------------------------------------------

    async def _send(self, calls, timeout_s):
        """Sends calls [(Engine, name, arguments)] in parallel.  Returns a reply or an EngineFailed for each call, in
        the order of the calls."""
        return await asyncio.gather(*(engine.request(timeout_s, name, *args) for engine, name, args in calls),
                                    return_exceptions=True)

    async def _apply(self, stored, calls, timeout_s):
        """Stores settings and sends them.  'stored' is {key: value}.  'calls' is [(Engine, name, arguments, keys of the
        settings that the call sets)].  Raises FailReply, which names every engine that failed."""
        if not calls:
            raise FailReply("control.yaml has no engine that this request concerns")
        former = self._put(stored)
        serials = {key: self.settings.serial(key) for key in stored}
        replies = await self._send([call[:3] for call in calls], timeout_s)
        refused = set(stored)
        for call, reply in zip(calls, replies):
            if not isinstance(reply, EngineRefused):
                refused -= set(call[3])
        if refused:
            self.settings.restore({key: former[key] for key in refused}, serials)
        self._reply(calls, replies)

    def _reply(self, calls, replies):
        """Raises FailReply if a reply is an exception."""
        failed = []
        for call, reply in zip(calls, replies):
            if isinstance(reply, EngineFailed):
                failed.append(f"{call[0]} {reply}")
            elif isinstance(reply, BaseException):
                raise reply
        if failed:
            logger.warning("?%s: %s", calls[0][1], "; ".join(failed))
            raise FailReply("; ".join(failed))

    def _stream(self, name, *kinds):
        stream = self.config.streams.get(name)
        if stream is None or stream.kind not in kinds:
            known = [s.name for s in self.config.streams.values() if s.kind in kinds]
            raise FailReply(f"there is no stream '{name[:64]}' of {' or '.join(kinds)}; "
                            f"there is {', '.join(known) or 'none'}")
        return stream

    def _fengs(self, labels):
        """Returns {Engine: [labels of its inputs]} for the inputs in 'labels'.  Raises FailReply if an antenna has no
        F-engine."""
        found = {}
        for label in labels:
            engine = self.of_antenna.get(label[:-1])
            if engine is None:
                raise FailReply(f"no F-engine has the antenna {label[:-1]}")
            found.setdefault(engine, []).append(label)
        return found

    def _xengs(self, stream):
        return [self.by_name[engine.name] for engine in self.config.xengs(stream)]
