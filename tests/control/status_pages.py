"""Hand-made /status.json of an array's engines, and servers for them.  tests/control/test_watch.py and measurements use
them."""

import asyncio
import time

from aiohttp import web

START = 1_790_000_000.0
N_CHAN = 8192


def counter(total=0, per_s=0.0):
    return {"total": total, "per_s": per_s}


def trouble(where, stage, what, **more):
    """A row of "troubles", as common/http/history.c writes it."""
    return {
        "where": where,
        "stage": stage,
        "what": what,
        "level": "warn",
        "advice": "look",
        "ongoing": False,
        "n_minute": 0,
        "n_hour": 0,
        "total": 0,
        "unit": "",
        "since": START,
        "last": START,
        **more,
    }


def status(program, name, **more):
    return {
        "program": program,
        "engine": name,
        "version": "0.1.0",
        "host": "any",
        "pid": 1,
        "state": "running",
        "healthy": True,
        "time": START + 100,
        "start_time": START,
        "uptime_s": 100.0,
        "troubles": [],
        "device": {"kind": "cuda", "model": "H100", "ok": True},
        "sync_time": START,
        "adc_sample_rate": 1712e6,
        "sensors": {},
        "other": {},
        "receivers": [],
        "inputs": [],
        "streams": [],
        "spectrum": None,
        **more,
    }


def f_status(name, antennas):
    """An F-engine that receives 13.4 Gb/s of each input and sends 27.4 Gb/s of each antenna."""
    inputs = [
        {
            "antenna": a,
            "pol": str(p),
            "heaps": counter(40_000_000, 418_000.0),
            "bytes": counter(10**12, 1.7e9),
            "missing_heaps": counter(),
            "too_old_heaps": counter(),
            "rejected_packets": {"jump": counter(), "clock": counter()},
            "power_dbfs": -21.3,
        }
        for a in antennas
        for p in (0, 1)
    ]
    streams = [
        {
            "antenna": a,
            "stream": "wide",
            "heaps": counter(10_000_000, 1600.0),
            "bytes": counter(10**12, 3.4e9),
            "skipped_heaps": counter(),
            "dropped_heaps": counter(),
            "failed_packets": counter(),
        }
        for a in antennas
    ]
    return status(
        "fgpu",
        name,
        inputs=inputs,
        streams=streams,
        receivers=[{"thread": "recv0", "kernel_drops": 0.0, "rejected_packets": {"jump": counter()}}],
    )


def x_status(name, antennas, state="receiving", with_sensors=False):
    """An X-engine that receives all antennas."""
    fengs = [
        {
            "feng": str(i),
            "antenna": a,
            "heaps": counter(10_000_000, 400.0 if state == "receiving" else 0.0),
            "missing_heaps": counter(),
            "late_heaps": counter(),
            "refused_heaps": counter(),
            "newest_timestamp": 1.0,
            "state": state,
            "labels": [f"{a}v", f"{a}h"],
            "since": None,
        }
        for i, a in enumerate(antennas)
    ]
    sensors = {
        f"{a}.rx.{what}": {"value": 0, "units": "", "status": "nominal", "time": START}
        for a in antennas
        if with_sensors
        for what in ("heaps", "missing-heaps", "late-heaps", "refused-heaps", "state", "missing-unixtime", "timestamp")
    }
    return status(
        "xbgpu",
        name,
        fengs=fengs,
        sensors=sensors,
        inputs=[
            {
                "fengs": f"0-{len(antennas) - 1}",
                "heaps": counter(10**9, 25_600.0),
                "bytes": counter(10**12, 3.4e9),
                "missing_heaps": counter(),
            }
        ],
        streams=[
            {
                "stream": "wide-vis",
                "heaps": counter(1000, 2.0),
                "bytes": counter(10**9, 2.1e6),
                "dropped_accs": counter(),
                "wrong_accs": counter(),
                "failed_packets": counter(),
            }
        ],
        outputs=[{"name": "wide-vis", "integration_s": 0.5, "gate": None, "destinations": [], "sending_from": 0}],
        receivers=[{"thread": "recv0", "kernel_drops": 0.0, "rejected_packets": {"jump": counter()}}],
        other={"late_chunks": counter()},
    )


def recorder_status(name):
    return status(
        "visrec",
        name,
        other={
            "heaps": counter(1000, 128.0),
            "bytes": counter(10**9, 1.3e8),
            "missing_heaps": counter(),
            "unwritten_dumps": counter(),
            "dumps": counter(1000, 2.0),
        },
    )


def config_of(n_antennas, n_x, per_f=1, port=8000):
    """Returns control.yaml of an array.  F-engine i and X-engine i are on the host cbf(i + 1)."""
    names = [f"m{i:03}" for i in range(n_antennas)]
    n_f, n_each = n_antennas // per_f, N_CHAN // n_x
    engines = [
        {
            "name": f"f{i}",
            "program": "fgpu",
            "host": f"cbf{i + 1}",
            "katcp": f"127.0.0.1:{port + 3000 + i}",
            "http": f"127.0.0.1:{port + i}",
            "antennas": names[per_f * i : per_f * (i + 1)],
        }
        for i in range(n_f)
    ]
    engines += [
        {
            "name": f"x{i}",
            "program": "xbgpu",
            "host": f"cbf{i + 1}",
            "katcp": f"127.0.0.1:{port + 3000 + n_f + i}",
            "http": f"127.0.0.1:{port + n_f + i}",
            "stream": "wide",
            "first_channel": n_each * i,
            "channels": n_each,
        }
        for i in range(n_x)
    ]
    return {
        "array": "example",
        "http": {"listen": "127.0.0.1:0"},
        "antennas": [{"name": a, "feng_id": i} for i, a in enumerate(names)],
        "engines": engines,
        "streams": [
            {
                "name": "wide",
                "kind": "voltages",
                "channels": N_CHAN,
                "substreams": n_x,
                "centre_frequency": 428e6,
                "bandwidth": 856e6,
                "sky_centre_frequency": 1284e6,
                "sideband": "upper",
            },
            {"name": "wide-vis", "kind": "visibilities", "source": "wide", "integration_s": 0.5},
        ],
        "recorders": [
            {
                "name": "r0",
                "program": "visrec",
                "host": "store1",
                "http": f"127.0.0.1:{port + n_f + n_x}",
                "stream": "wide-vis",
                "directory": "/data",
            }
        ],
    }


def answers_of(config):
    """{engine or recorder: its healthy /status.json}."""
    names = [a["name"] for a in config["antennas"]]
    made = {
        e["name"]: f_status(e["name"], e["antennas"]) if e["program"] == "fgpu" else x_status(e["name"], names)
        for e in config["engines"]
    }
    return made | {r["name"]: recorder_status(r["name"]) for r in config["recorders"]}


class Controller:
    """The members of the controller that control_http.start() needs."""

    def __init__(self, engines=(), report=None):
        self.engines, self._report = list(engines), report or {"pointing": {}, "calibration": {}}

    def report(self):
        return self._report


class Servers:
    """A server for each status page.  'answers' may change while the servers run.  A server whose name is missing in
    'answers' does not answer."""

    def __init__(self, config, answers):
        self.rows, self.answers, self.runners = [*config["engines"], *config["recorders"]], answers, {}
        self.queries = []  # (engine, query) of all requests

    async def start(self, *names):
        for row in self.rows:
            if names and row["name"] not in names:
                continue
            app = web.Application()
            app.add_routes([web.get("/status.json", self._handler(row["name"]))])
            runner = self.runners[row["name"]] = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            host, port = row["http"].split(":")
            await web.TCPSite(runner, host, int(port)).start()

    def _handler(self, name):
        async def answer(request):
            self.queries.append((name, dict(request.query)))
            entry = self.answers[name]
            if callable(entry):
                entry = await entry(request)
            if isinstance(entry, web.Response):
                return entry
            if isinstance(entry, bytes):
                return web.Response(body=entry, content_type="application/json")
            return web.json_response({**entry, "time": time.time()})

        return answer

    async def stop(self, *names):
        await asyncio.gather(*(self.runners.pop(n).cleanup() for n in names or list(self.runners)))
