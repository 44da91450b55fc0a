"""Reads the status pages of all engines and recorders every 2 s, and keeps the array's state for the array page.

Flow:      /status.json?spectrum=none&sensors=none of each engine -> Page -> merge() once a second -> memory of the last
           hour -> Watch.state, which is /array.json
Threads:   an asyncio loop reads the pages, and spreads the reads over the 2 s.  Another thread merges copies of the
           pages.  So no long computation delays KATCP requests.
Failures:  an engine that does not answer has the state absent.  All other parts of the page go on.
"""

import asyncio
import dataclasses
import json
import logging
import time

import aiohttp

import control_banner
import control_memory
from control_merge import RANK, Page, merge

INTERVAL_S = 2.0
BUILD_S = 1.0
TIMEOUT_S = 2.0
MAX_BYTES = 16 << 20  # largest size of a status page
STAGE_WORDS = {
    "feed": "packets from the digitiser",
    "feed late": "late packets from the digitiser",
    "feed refused": "refused packets from the digitiser",
    "fgpu": "heaps in the F-engine",
    "network": "heaps between engines",
    "late": "late heaps",
    "refused": "refused heaps",
    "socket": "packets in the socket",
    "xbgpu": "heaps or dumps in the X-engine",
    "recorder": "dumps that were not written",
}

log = logging.getLogger(__name__)


def pages_of(config):
    """The pages of all engines and recorders of control.yaml that have an address for HTTP."""
    rows = [*config.get("engines", []), *config.get("recorders", [])]
    return [Page(r["name"], r["program"], r["host"], f"http://{r['http']}/", r) for r in rows if r.get("http")]


def failure(error):
    """Returns the end of a sentence that says why a status page could not be read."""
    if isinstance(error, TimeoutError):
        return f"does not answer within {TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "does not answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"refuses the controller's request with status {error.status}"
    return "gives an answer that is no status page" if isinstance(error, ValueError) else "breaks off its answer"


class Watch:
    """The state of the array.  'controller' has .engines and .report(); see control_http.start()."""

    def __init__(self, config, controller):
        self.config, self.controller = config, controller
        self.pages = pages_of(config)
        self.losses, self.troubles, self.history = (
            control_memory.Losses(),
            control_memory.Troubles(),
            control_memory.History(),
        )
        self.state = None  # the newest /array.json, as a dictionary
        self.n_reads, self.n_failed = 0, 0
        self.build_s = 0.0  # duration of the newest merge
        self.session = None
        self.tasks = []

    async def start(self):
        self.session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3 * INTERVAL_S),
        )
        self.tasks = [
            asyncio.create_task(self._poll(p, INTERVAL_S * i / len(self.pages))) for i, p in enumerate(self.pages)
        ]
        self.tasks.append(asyncio.create_task(self._build_always()))

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.session:
            await self.session.close()

    async def read(self, page, query):
        """Returns the status page for a query.  Raises TimeoutError, aiohttp.ClientError, or ValueError if the answer
        is no status page."""
        if page.program == "beamrec":
            return await self._read_health(page)
        async with self.session.get(
            f"{page.url}status.json", params=query, allow_redirects=False, raise_for_status=True
        ) as reply:
            body = await reply.content.read(MAX_BYTES)
            while len(body) < MAX_BYTES and (more := await reply.content.read(MAX_BYTES - len(body))):
                body += more
        status = json.loads(body)
        if not isinstance(status, dict) or not {"state", "start_time", "time"} <= set(status):
            raise ValueError("no status page")
        return status

    async def _read_health(self, page):
        """Returns the items of a status page that /healthz gives, because beamrec has no status page."""
        async with self.session.get(f"{page.url}healthz", allow_redirects=False) as reply:
            if reply.status not in (200, 503):
                reply.raise_for_status()
                raise ValueError("no answer of /healthz")
        return {"state": "running", "start_time": None, "time": time.time(), "healthy": reply.status == 200}

    async def _poll(self, page, delay_s):
        await asyncio.sleep(delay_s)
        while True:
            begin = time.monotonic()
            self.n_reads += 1
            try:
                page.take(await self.read(page, {"spectrum": "none", "sensors": "none"}), time.time())
            except (TimeoutError, aiohttp.ClientError, ValueError) as error:
                self.n_failed += 1
                if page.status is not None:
                    log.warning("The page of %s %s", page.full_name(), failure(error))
                page.status, page.why = None, failure(error)
            await asyncio.sleep(max(0.1, begin + INTERVAL_S - time.monotonic()))

    async def _build_always(self):
        while True:
            begin = time.monotonic()
            try:
                # in a thread: a merge of many pages must not delay KATCP requests
                self.state = await asyncio.to_thread(self._compute, time.time(), *self._snapshot())
            except Exception:  # the page of an engine of another version may lack a key
                log.exception("The array's state cannot be computed")
            self.build_s = time.monotonic() - begin
            await asyncio.sleep(max(0.1, BUILD_S - self.build_s))

    def build(self, now):
        """Computes the array's state from the newest answers."""
        self.state = self._compute(now, *self._snapshot())

    def _snapshot(self):
        """Returns (pages, settings) of this moment: copies that do not change any more."""
        engines = {e.name: e for e in self.controller.engines}
        for page in self.pages:
            engine = engines.get(page.name)
            page.katcp, page.katcp_why = (engine.state, engine.why) if engine else ("present", "")
        return [dataclasses.replace(p) for p in self.pages], self.controller.report()

    def _compute(self, now, pages, settings):
        """Returns the contents of /array.json; None until all pages have been read once."""
        if self.state is None and any(p.status is None and p.why == Page.why for p in pages):
            return None
        found = merge(self.config, pages)
        found["losses"] = self.losses.take(found["losses"], now)
        troubles = self.troubles.take(pages, now)
        banner = control_banner.make(found["engines"], found["antennas"], self._lately(found["losses"], now))
        lost_per_s = round(sum(row["lost_per_s"] for row in found["flow"]), 3)
        history = self.history.take(now, banner["level"], lost_per_s, found["flow"][0]["gbps"])
        return {
            "array": self.config.get("array", "array"),
            "time": round(now, 3),
            **banner,
            **found,
            "troubles": troubles,
            "history": history,
            "settings": settings,
        }

    @staticmethod
    def _lately(losses, now):
        """Returns texts about the losses of the last minute, the newest loss first."""
        rows = sorted((r for r in losses if now - r["last"] < control_memory.LATELY_S), key=lambda r: -r["last"])
        return [
            f"{r.get('antenna') or r.get('engine')} lost {STAGE_WORDS[r['stage']]}, "
            f"the last {now - r['last']:.0f} s ago"
            for r in rows
        ]

    def worst(self):
        """Returns the rank of the array's colour: 0 ok, 1 warn, 2 bad; 3 before all pages have been read once."""
        return RANK[self.state["level"]] if self.state else 3
