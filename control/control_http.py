"""The array page over HTTP: /, /array.json, /fringe.json, /healthz and /metrics.

Access:    the name in the header Host: must be an address, localhost, a name of this host or one of http.names.
           http.allow names the networks whose hosts may connect.  No request changes anything.
Limits:    a request's header must be complete within 10 s.  If more than 64 connections are open, the server closes the
           oldest connection of the host that has the most connections.
"""

import asyncio
import collections
import gzip
import ipaddress
import json
import pathlib
import re
import socket

from aiohttp import web

from control_fringe import Fringes, Refused
from control_watch import Watch

HERE = pathlib.Path(__file__).resolve().parent
# The second folder has the style sheet and the plots of the engines' page.  The array page also uses them.
FOLDERS = (HERE / "page", HERE.parent / "common" / "http" / "page")
FILES = {
    "index.html": "text/html",
    "array.css": "text/css",
    "array.js": "text/javascript",
    "array_draw.js": "text/javascript",
    "status.css": "text/css",
    "plot.js": "text/javascript",
}
MAX_CONNECTIONS = 64
HEADER_S = 10.0
SETTLE_S = 0.02  # within this time, asyncio sets the transport of a new connection
HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


# ---- Who may read ----------------------------------------------------------------------------------------------------


def words(text):
    return [w for w in re.split(r"[,\s]+", text or "") if w]


def networks_of(text):
    """Returns the networks in a text such as "10.0.0.0/8, 192.168.1.7".  Raises ValueError."""
    return [ipaddress.ip_network("0.0.0.0/0" if w == "any" else w) for w in words(text)]


def own_names():
    """Returns the names of this host: localhost, its name with and without domain, and its other names in
    /etc/hosts."""
    name = socket.gethostname().lower()
    names = {"localhost", name, name.split(".")[0]}
    try:
        for line in pathlib.Path("/etc/hosts").read_text().splitlines():
            row = [w.lower() for w in line.split("#")[0].split()[1:]]
            if name in row:
                names.update(row)
    except OSError:
        pass  # the file may be absent
    return names


def is_name_accepted(names, host):
    """Returns True if the header Host: has an address or one of 'names', with or without a port."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]*)?", host)
    if not found:
        return False
    name = found[1].strip("[]")
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name.lower().removesuffix(".") in names


def make_guard(names, networks):
    @web.middleware
    async def guard(request, handler):
        """Refuses clients of networks that are not allowed, and requests for names of other hosts.  Adds the headers
        that every answer has."""
        remote = ipaddress.ip_address(request.remote)
        host = request.headers.get("Host")
        if networks and not remote.is_loopback and not any(remote in n for n in networks):
            reply = web.Response(status=403, text="this address is not in http.allow of control.yaml\n")
        elif host is not None and not is_name_accepted(names, host):
            reply = web.Response(
                status=421,
                text="the name in Host: is not a name of this host; http.names in control.yaml permits "
                "other names\n",
            )
        else:
            try:
                reply = await handler(request)
            except web.HTTPException as error:
                reply = web.Response(
                    status=error.status,
                    text=f"{error.reason}; there are /, /array.json, /fringe.json, /metrics and " "/healthz\n",
                    headers={k: v for k, v in error.headers.items() if k == "Allow"},
                )
        if reply.status in (403, 421):
            reply.force_close()
        reply.headers.update(HEADERS)
        return reply

    return guard


def close_surplus(server):
    """Closes connections until at most MAX_CONNECTIONS are open.  Each time, closes the oldest connection of the host
    that has the most connections."""
    hosts = {
        c: (c.transport.get_extra_info("peername") or ("",))[0]
        for c in server.connections
        if c.transport is not None and not c.transport.is_closing()
    }
    for _ in range(len(hosts) - MAX_CONNECTIONS):
        most, _ = collections.Counter(hosts.values()).most_common(1)[0]
        oldest = next(c for c, host in hosts.items() if host == most)
        del hosts[oldest]
        oldest.transport.abort()


def limit(server):
    """Returns a function that makes a connection.  A moment later, connections above MAX_CONNECTIONS are closed."""

    def make():
        asyncio.get_running_loop().call_later(SETTLE_S, close_surplus, server)
        return server()

    return make


# ---- Answers ---------------------------------------------------------------------------------------------------------


class Answers:
    def __init__(self, watch):
        self.watch, self.fringes = watch, Fringes(watch)
        self.files = {name: next(d / name for d in FOLDERS if (d / name).exists()).read_bytes() for name in FILES}
        self.made = (None, b"", b"")  # state, its JSON, and its JSON compressed by gzip

    def routes(self):
        return [
            web.get("/", self.file),
            web.get("/array.json", self.array),
            web.get("/fringe.json", self.fringe),
            web.get("/healthz", self.health),
            web.get("/metrics", self.metrics),
            web.get("/{name:[a-z_.]+}", self.file),
        ]

    async def file(self, request):
        name = request.match_info.get("name", "index.html")
        if name not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[name], content_type=FILES[name], charset="utf-8")

    async def array(self, request):
        state = self.watch.state
        if state is None:
            return web.Response(
                status=503, text="the controller has not read all status pages yet\n", headers={"Retry-After": "1"}
            )
        if self.made[0] is not state:
            text = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
            self.made = state, text, gzip.compress(text, 1, mtime=0)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(
                body=self.made[2],
                content_type="application/json",
                headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"},
            )
        return web.Response(body=self.made[1], content_type="application/json", headers={"Vary": "Accept-Encoding"})

    async def fringe(self, request):
        try:
            found = await self.fringes.get(request.query)
        except Refused as why:
            return web.json_response({"error": str(why)}, status=400)
        return web.Response(text=json.dumps(found, separators=(",", ":")), content_type="application/json")

    async def health(self, request):
        """Answers ok while the controller runs.  Missing engines are no reason to restart the controller."""
        return web.Response(text="ok\n")

    async def metrics(self, request):
        return web.Response(
            text="\n".join(self._lines()) + "\n", headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    def _lines(self):
        watch, state = self.watch, self.watch.state or {}

        def metric(name, kind, text, samples):
            yield f"# HELP cbf_control_{name} {text}"
            yield f"# TYPE cbf_control_{name} {kind}"
            yield from (f"cbf_control_{name}{labels} {value:g}" for labels, value in samples)

        yield from metric(
            "array_state",
            "gauge",
            "The array's colour: 0 green, 1 amber, 2 red, 3 not known yet.",
            [("", watch.worst())],
        )
        for what in ("engines", "antennas"):
            states = collections.Counter(row["state"] for row in state.get(what, []))
            yield from metric(
                what,
                "gauge",
                f"Number of {what} in each state.",
                [(f'{{state="{s}"}}', states[s]) for s in ("ok", "warn", "bad", "absent")],
            )
        yield from metric(
            "page_reads_total", "counter", "Number of reads of engines' status pages.", [("", watch.n_reads)]
        )
        yield from metric(
            "page_read_failures_total",
            "counter",
            "Number of reads of engines' status pages that failed.",
            [("", watch.n_failed)],
        )
        yield from metric(
            "merge_seconds", "gauge", "Duration of the newest merge of all status pages.", [("", watch.build_s)]
        )


# ---- Start and stop --------------------------------------------------------------------------------------------------


class Http:
    """The running server.  'port' is the port on which it listens."""

    def __init__(self, watch, runner, server):
        self.watch, self._runner, self._server = watch, runner, server
        self.port = server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()
        await self._runner.cleanup()
        await self.watch.stop()


async def start(config, controller):
    """Starts the array page.  'config' is control.yaml as a dictionary.  Returns an Http, whose stop() ends the page.
    Raises OSError if the address is in use, and ValueError if http.allow is wrong.

    'controller' has .engines, a list of objects with .name, .state (present, absent or hung) and .why.  It also has
    .report(), which returns "settings" of /array.json: {"pointing": {STREAM: {"target", "until"}}, "calibration":
    {STREAM: {"time", "coherence", "reference"}}}.
    """
    http = config["http"]
    names = own_names() | {n.lower() for n in words(http.get("names"))}
    guard = make_guard(names, networks_of(http.get("allow")))
    watch = Watch(config, controller)
    app = web.Application(middlewares=[guard])
    app.add_routes(Answers(watch).routes())
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=HEADER_S,
        max_headers=64,
        max_field_size=4096,
        handler_cancellation=True,
        shutdown_timeout=1,
    )
    await runner.setup()
    host, _, port = http["listen"].rpartition(":")
    try:
        server = await asyncio.get_running_loop().create_server(limit(runner.server), host, int(port), backlog=128)
    except OSError:
        await runner.cleanup()
        raise
    await watch.start()
    return Http(watch, runner, server)
