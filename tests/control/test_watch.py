"""Tests the array's state, merged from hand-made status pages of many engines, and its memory of the last hour."""

import asyncio
import pickle
import time

import numpy as np
import pytest

import control_banner
import control_fringe
import control_memory
import status_pages
from control_merge import merge
from control_watch import Watch, pages_of
from status_pages import counter, trouble

NOW = 1_790_000_100.0


class Array:
    """A Watch whose answers a test changes."""

    def __init__(self, n_antennas=64, n_x=64, per_f=1, controller=None):
        self.config = status_pages.config_of(n_antennas, n_x, per_f)
        self.answers = status_pages.answers_of(self.config)
        self.watch = Watch(self.config, controller or status_pages.Controller())
        self.now = NOW

    def look(self, after_s=2.0):
        """Lets each engine answer, or not.  Returns the array's state."""
        self.now += after_s
        for page in self.watch.pages:
            for i in self.answers.get(page.name, {}).get("inputs", []):
                i["heaps"]["total"] += round(i["heaps"]["per_s"] * after_s)
            if page.name in self.answers:
                page.take(pickle.loads(pickle.dumps(self.answers[page.name])), self.now)
            else:
                page.status, page.why = None, "does not answer"
        self.watch.build(self.now)
        return self.watch.state

    def feng(self, x, antenna):
        return self.answers[f"x{x}"]["fengs"][antenna]

    def silence_feed(self, antenna):
        """Cuts the feed of an antenna with an F-engine of its own."""
        s = self.answers[f"f{antenna}"]
        for part in (*s["inputs"], *s["streams"]):
            part["heaps"]["per_s"] = part["bytes"]["per_s"] = 0.0
        self.mute(antenna)

    def mute(self, antenna):
        for x in range(sum(e["program"] == "xbgpu" for e in self.config["engines"])):
            self.feng(x, antenna).update(state="silent", heaps=counter(100, 0.0))


def by_name(rows):
    return {row["name"]: row for row in rows}


def not_ok(rows):
    return {row["name"]: row["state"] for row in rows if row["state"] != "ok"}


# ---- Which lamp shows a fault ----------------------------------------------------------------------------------------


def test_healthy():
    state = Array().look()
    assert (state["state"], state["level"], state["banner"]) == (
        "ok",
        "ok",
        "all 64 antennas are received, nothing is lost",
    )
    assert (
        len(state["antennas"]) == 64
        and len(state["engines"]) == 129
        and not not_ok(state["antennas"])
        and not not_ok(state["engines"])
    )
    assert state["antennas"][5]["pol"] == [{"rms_dbfs": -21.3, "lost_per_s": 0.0, "lost_total": 0}] * 2
    assert state["antennas"][5]["heard_by"] == state["antennas"][5]["of"] == 64
    rates = {(row["from"], row["to"]): row["gbps"] for row in state["flow"]}
    expected = {
        ("digitisers", "fgpu"): 128 * 1.7 * 8,
        ("fgpu", "switch"): 64 * 3.4 * 8,
        ("switch", "xbgpu"): 64 * 3.4 * 8,
        ("xbgpu", "recorders"): 64 * 2.1e-3 * 8,
        ("recorders", "disk"): 0.13 * 8,
    }
    assert rates.keys() == expected.keys() and all(abs(rates[k] - expected[k]) < 1e-6 * expected[k] for k in expected)
    assert [(s["name"], s["state"], s["missing"]) for s in state["streams"]] == [
        ("wide", "ok", []),
        ("wide-vis", "ok", []),
    ]
    assert state["losses"] == state["troubles"] == []


def test_cut_feed():
    """After a cut of the feed, the antenna's lamp shows the fault, and the lamps of its engines stay green.  A pause
    between two heaps is no fault."""
    array = Array()
    array.look()
    array.silence_feed(13)
    for i in array.answers["f13"]["inputs"]:
        i["heaps"]["total"] += 100  # which came since the last answer
    for x in range(64):
        array.feng(x, 13)["state"] = "receiving"
    assert not not_ok(array.look()["antennas"]), "one answer without data"
    array.mute(13)
    state = array.look()
    assert not_ok(state["antennas"]) == {"m013": "bad"} and not not_ok(state["engines"])
    assert (state["state"], state["level"]) == ("degraded", "bad")
    assert state["banner"] == "m013: no data from the digitiser on both polarisations (f13 on cbf14)"
    assert by_name(state["streams"])["wide"]["missing"] == ["m013"]
    array.answers["f13"]["inputs"][0]["heaps"]["per_s"] = 418_000.0
    assert "on polarisation 1 (f13 on cbf14)" in array.look()["banner"]


def test_fresh_silence_of_the_engines_history():
    """If the engine itself says that packets have stopped, one answer is enough."""
    array = Array()
    array.look()
    array.silence_feed(2)
    array.answers["f2"]["troubles"] = [
        trouble("m002 pol 0", "digitiser to F-engine", "no packets", ongoing=True, unit="s")
    ]
    assert array.look()["banner"].startswith("m002: no data from the digitiser on both polarisations")


def test_dead_engine():
    array = Array(64, 64, per_f=4)
    array.look()
    del array.answers["f3"]
    for antenna in range(12, 16):
        array.mute(antenna)
    state = array.look()
    assert not_ok(state["engines"]) == {"f3": "absent"}
    assert not_ok(state["antennas"]) == dict.fromkeys(("m012", "m013", "m014", "m015"), "absent")
    assert state["headline"] == "Engines missing"
    assert state["banner"] == "f3 on cbf4 does not answer: m012, m013, m014 and m015 are missing"
    assert (
        state["troubles"][0]["what"] == "does not answer"
        and state["troubles"][0]["engines"] == ["f3"]
        and state["troubles"][0]["ongoing"]
    )


def test_dead_host():
    array = Array()
    array.look()
    del array.answers["f5"], array.answers["x5"]
    for x in set(range(64)) - {5}:
        array.feng(x, 5).update(state="silent")
    state = array.look()
    assert (
        state["headline"] == "Host missing" and state["banner"] == "cbf6 does not answer (f5 and x5): m005 is missing"
    )
    assert (
        by_name(state["streams"])["wide-vis"]["missing"] == ["x5"]
        and by_name(state["streams"])["wide-vis"]["state"] == "warn"
    )


def test_whose_fault_lost_heaps_are():
    array = Array()
    array.look()
    for x in range(64):  # antenna 7 is lost by all
        array.feng(x, 7).update(state="losing", missing_heaps=counter(80, 4.0), heaps=counter(1000, 396.0))
    for antenna in (1, 2, 3):  # and by one X-engine these too
        array.feng(9, antenna).update(state="losing", missing_heaps=counter(80, 200.0), heaps=counter(1000, 200.0))
    state = array.look()
    assert not_ok(state["antennas"]) == {"m007": "warn"} and not_ok(state["engines"]) == {"x9": "warn"}
    assert by_name(state["antennas"])["m007"]["why"] == "loses 1 % of the heaps on the way to x0, x1, x2 and 61 more"
    assert by_name(state["engines"])["x9"]["why"] == "loses heaps of m001, m002 and m003"
    loss = next(row for row in state["losses"] if row["antenna"] == "m007")
    assert (loss["stage"], loss["per_s"], loss["total"], loss["fraction"]) == ("network", 256.0, 64 * 80, 0.01)
    network = next(row for row in state["flow"] if row["to"] == "xbgpu")
    assert network["lost_per_s"] == 256 + 3 * 200


def test_deaf_engine():
    """The fault is at an X-engine if it receives nothing while F-engines send."""
    array = Array(4, 2)
    array.look()
    for antenna in range(4):
        array.feng(1, antenna).update(state="silent")
    state = array.look()
    assert not not_ok(state["antennas"]) and not_ok(state["engines"]) == {"x1": "bad"}
    assert state["banner"] == "x1 on cbf2: receives no heaps from any antenna"


def test_all_gone():
    array = Array(4, 2)
    for name in list(array.answers):
        del array.answers[name]
    state = array.look()
    assert (
        state["state"] == "fail"
        and len(not_ok(state["engines"])) == 7
        and set(not_ok(state["antennas"]).values()) == {"absent"}
    )


@pytest.mark.parametrize(
    "change, wanted",
    [
        ({"healthy": False}, ("bad", "its results are wrong")),
        ({"device": {"kind": "cuda", "model": "H100", "ok": False}}, ("bad", "its device H100 has failed")),
        ({"state": "draining"}, ("warn", "is stopping")),
        (
            {"troubles": [trouble("host clock", "host clock", "clock not synchronised", ongoing=True, unit="s")]},
            ("warn", "clock not synchronised"),
        ),
        (
            {"troubles": [trouble("recv0", "socket of the X-engine", "packets dropped", n_minute=12)]},
            ("warn", "recv0: 12 packets dropped in the last minute"),
        ),
        (
            {"troubles": [trouble("m000 to m003", "F-engine to X-engine", "heaps contested", n_minute=2, level="bad")]},
            ("bad", "m000 to m003: 2 heaps contested"),
        ),
        ({"troubles": [trouble("recv0", "socket of the X-engine", "packets dropped", n_hour=12)]}, ("ok", "")),
        ({"troubles": [trouble("m002", "F-engine to X-engine", "no heaps", ongoing=True, unit="s")]}, ("ok", "")),
    ],
)
def test_engine_lamp(change, wanted):
    array = Array(4, 2)
    array.answers["x1"].update(change)
    row = by_name(array.look()["engines"])["x1"]
    assert row["state"] == wanted[0] and row["why"].startswith(wanted[1])


def test_antenna_lamp():
    array = Array(4, 2)
    array.answers["f1"]["inputs"][1].update(missing_heaps=counter(100, 4_180.0), heaps=counter(10**6, 413_820.0))
    array.answers["f2"]["troubles"] = [trouble("m002 wide", "F-engine", "delay above 0.1 s", ongoing=True, unit="s")]
    state = array.look()
    rows = by_name(state["antennas"])
    assert not_ok(state["antennas"]) == {"m001": "warn", "m002": "warn"} and not not_ok(state["engines"])
    assert rows["m001"]["why"] == "loses 1 % of the packets from the digitiser on polarisation 1"
    assert rows["m002"]["why"] == "delay above 0.1 s"


def test_katcp_of_an_engine():
    """An engine whose page answers, but whose KATCP server does not, is amber."""

    class Engine:
        name, program, host, state, why = "f1", "fgpu", "cbf2", "hung", "did not answer ?delays within 1 s"

    state = Array(4, 2, controller=status_pages.Controller([Engine])).look()
    assert not_ok(state["engines"]) == {"f1": "warn"}
    assert state["banner"] == "f1 on cbf2: did not answer ?delays within 1 s"


# ---- The last hour ---------------------------------------------------------------------------------------------------


def test_losses_of_the_last_hour():
    array = Array(4, 2)
    array.answers["f0"]["inputs"][0]["missing_heaps"] = counter(5000, 0.0)  # from before the controller's start
    assert array.look()["losses"] == []
    array.answers["f0"]["inputs"][0]["missing_heaps"] = counter(5007, 0.0)
    state = array.look()
    at = array.now
    assert [(r["antenna"], r["stage"], r["total"], r["last"]) for r in state["losses"]] == [("m000", "feed", 5007, at)]
    assert (state["level"], state["headline"]) == ("warn", "Lost data") and state["banner"].startswith(
        "m000 lost packets from the digitiser, the last 0 s ago"
    )
    array.answers["f0"]["inputs"][0]["missing_heaps"] = counter(0, 0.0)  # it starts again
    state = array.look(after_s=100)
    assert state["losses"][0]["last"] == at and state["level"] == "ok"
    assert array.look(after_s=3599 - 100 - 0.5)["losses"]
    assert not array.look(after_s=2)["losses"]


def test_troubles_over_a_restart():
    array = Array(4, 2)
    seen = trouble(
        "m001 pol 0",
        "digitiser to F-engine",
        "packets missing",
        n_hour=40,
        n_minute=40,
        total=40,
        since=NOW,
        last=NOW + 1,
    )
    array.answers["f1"]["troubles"] = [seen]
    assert array.look()["troubles"][0] | {"engines": 0} == {
        "where": "m001 pol 0",
        "stage": "digitiser to F-engine",
        "what": "packets missing",
        "level": "warn",
        "since": NOW,
        "last": NOW + 1,
        "ongoing": False,
        "n_hour": 40,
        "advice": "look",
        "engines": 0,
        "hosts": ["cbf2"],
    }
    array.answers["f1"].update(troubles=[], start_time=NOW + 2)
    assert [t["n_hour"] for t in array.look()["troubles"]] == [40], "the trouble of the process before"
    array.answers["f1"]["troubles"] = [{**seen, "n_hour": 2, "since": NOW + 10, "last": NOW + 11}]
    (t,) = array.look()["troubles"]
    assert (t["n_hour"], t["since"], t["last"]) == (42, NOW, NOW + 11)
    array.answers["f1"]["troubles"] = []
    assert array.look(after_s=3590)["troubles"] and not array.look(after_s=20)["troubles"]


def test_troubles_of_many_engines_are_one_row():
    array = Array()
    for x in range(64):
        array.answers[f"x{x}"]["troubles"] = [
            trouble("m033", "F-engine to X-engine", "no heaps", ongoing=x != 7, unit="s", since=NOW - x, last=NOW)
        ]
    (t,) = array.look()["troubles"]
    assert len(t["engines"]) == len(t["hosts"]) == 64 and t["since"] == NOW - 63 and t["ongoing"]
    for x in range(64):
        del array.answers[f"x{x}"]
    rows = array.look()["troubles"]
    assert [t["ongoing"] for t in rows if t["where"] == "m033"] == [False], "an engine that is gone says nothing now"


def test_absence_stays_known():
    array = Array(4, 2)
    array.look()
    gone = array.answers.pop("x1")
    array.look()
    began = array.now
    array.look()
    array.answers["x1"] = gone
    (t,) = array.look()["troubles"]
    assert (t["where"], t["since"], t["last"], t["ongoing"]) == ("x1", began, began + 2, False)


def test_history():
    history = control_memory.History()
    begin = 1_790_000_000
    for t in range(0, 4000):
        rows = history.take(begin + t, "bad" if t == 3990 else "ok", 5.0 if t == 3991 else 0.0, 100.0 + (t % 20))
    assert len(rows) in (180, 181) and all(b["t"] - a["t"] == 20 for a, b in zip(rows, rows[1:]))
    assert rows[-1] == {"t": begin + 3980, "state": "bad", "lost_per_s": 5.0, "in_gbps": pytest.approx(109.5)}
    assert rows[-2]["state"] == "ok" and rows[-2]["lost_per_s"] == 0


def test_banner_counts_the_rest():
    engines = [
        {"name": f"x{i}", "program": "xbgpu", "host": f"h{i}", "state": "warn", "why": why}
        for i, why in enumerate(("is starting", "is busy", "is idle", "is late", "is full"))
    ]
    told = control_banner.make(engines, [])
    assert told["banner"] == "x0 on h0: is starting; x1 on h1: is busy; x2 on h2: is idle; and 2 more below"
    told = control_banner.make([{**e, "why": "is starting"} for e in engines], [])
    assert told["banner"] == "x0 on h0, x1 on h1, x2 on h2 and 2 more: is starting"


def test_merge_of_an_unknown_antenna():
    """An antenna without an F-engine is missing, and nothing fails."""
    config = status_pages.config_of(4, 2)
    del config["engines"][3]
    pages = pages_of(config)
    answers = status_pages.answers_of(config)
    for page in pages:
        page.take(answers[page.name], NOW)
    assert not_ok(merge(config, pages)["antennas"]) == {"m003": "absent"}


# ---- Reading ---------------------------------------------------------------------------------------------------------


async def until(condition, what, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.05)


def live(config, answers, test, monkeypatch, timeout_s=60):
    """Runs test(watch, servers) while servers serve 'answers'."""
    monkeypatch.setattr("control_watch.INTERVAL_S", 0.2)
    monkeypatch.setattr("control_watch.BUILD_S", 0.1)
    monkeypatch.setattr("control_watch.TIMEOUT_S", timeout_s)

    async def run():
        servers, watch = status_pages.Servers(config, answers), Watch(config, status_pages.Controller())
        await servers.start()
        await watch.start()
        try:
            await test(watch, servers)
        finally:
            await watch.stop()
            await servers.stop()

    asyncio.run(run())


def live_config(n_antennas=4, n_x=2):
    """control.yaml with free ports."""
    import harness

    config = status_pages.config_of(n_antennas, n_x)
    for row in (*config["engines"], *config["recorders"]):
        row["http"] = f"127.0.0.1:{harness.free_tcp_port()}"
    return config


def test_bad_answers(monkeypatch):
    """Engines that hang, break off, redirect or send rubbish are absent.  They come back when they answer again."""
    from aiohttp import web

    config = live_config()
    answers = status_pages.answers_of(config)
    good = dict(answers)

    async def hang(request):
        await asyncio.sleep(30)
        return web.Response()

    def answer_of(**arguments):
        async def answer(request):
            return web.Response(**arguments)  # a response object can be sent only once

        return answer

    bad = {
        "f0": (hang, "does not answer within 1 s"),
        "f1": (b"{\"state\":", "gives an answer that is no status page"),
        "f2": (b"[1, 2]", "gives an answer that is no status page"),
        "x0": (answer_of(status=500), "refuses the controller's request with status 500"),
        "x1": (
            answer_of(status=302, headers={"Location": "http://127.0.0.1:1/"}),
            "gives an answer that is no status page",
        ),
    }

    async def test(watch, servers):
        await until(lambda: watch.state and watch.state["level"] == "ok", lambda: watch.state)
        assert {tuple(q.items()) for _, q in servers.queries} == {(("spectrum", "none"), ("sensors", "none"))}
        answers.update({name: answer for name, (answer, _) in bad.items()})
        await servers.stop("f3")
        why = {name: text for name, (_, text) in bad.items()} | {"f3": "does not answer"}
        await until(
            lambda: {e["name"]: e["why"] for e in watch.state["engines"] if e["state"] != "ok"} == why,
            lambda: watch.state["engines"],
        )
        answers.update(good)
        await servers.start("f3")
        await until(lambda: not not_ok(watch.state["engines"]), lambda: watch.state["engines"])

    live(config, answers, test, monkeypatch, timeout_s=1)


def test_recorder_of_beams():
    """beamrec has no status page, so its /healthz decides its state."""
    import aiohttp
    from aiohttp import web

    import harness

    port, status = harness.free_tcp_port(), [200]

    async def healthz(request):
        return web.Response(status=status[0])

    async def run():
        app = web.Application()
        app.router.add_get("/healthz", healthz)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        config = status_pages.config_of(4, 2)
        config["recorders"] = [{"name": "b0", "program": "beamrec", "host": "store1", "http": f"127.0.0.1:{port}", "stream": "wide"}]
        page = pages_of(config)[-1]
        watch = Watch(config, status_pages.Controller())
        watch.session = aiohttp.ClientSession()
        for code, state in ((200, "ok"), (503, "bad")):
            status[0] = code
            page.take(await watch.read(page, {}), NOW)
            assert by_name(merge(config, [page])["engines"])["b0"]["state"] == state
        status[0] = 404
        with pytest.raises(aiohttp.ClientResponseError):
            await watch.read(page, {})
        await watch.session.close()
        await runner.cleanup()

    asyncio.run(run())


def test_fringe(monkeypatch, rng):
    """The phases of two X-engines are joined over their channels."""
    config = live_config()
    n, phases = status_pages.N_CHAN, rng.uniform(-np.pi, np.pi, (2, status_pages.N_CHAN))
    coherence = rng.uniform(0.1, 1, (2, n))
    asked = []

    def engine(x):
        async def answer(request):
            if request.query.get("spectrum") == "none":
                return web_json(status_pages.x_status(f"x{x}", ["m000"] * 4))
            asked.append((x, dict(request.query)))
            low, high = map(int, request.query["channels"].split(","))
            curves = [
                {
                    "kind": "cross",
                    "pols": [p, p],
                    "phase_deg": np.degrees(phases[p, low : high + 1]).tolist(),
                    "coherence": coherence[p, low : high + 1].tolist(),
                }
                for p in (1, 0)
            ]
            if low == 0:
                curves[1]["phase_deg"][3] = curves[1]["coherence"][3] = None
            axis = {"points": high - low + 1, "channels": high - low + 1, "channels_per_point": 1, "first_channel": low}
            return web_json(
                {
                    **status_pages.x_status(f"x{x}", []),
                    "spectrum": {"stream": "wide-vis", "time": NOW, "axis": axis, "curves": curves},
                }
            )

        return answer

    def web_json(value):
        from aiohttp import web

        return web.json_response(value)

    answers = status_pages.answers_of(config) | {"x0": engine(0), "x1": engine(1)}

    async def test(watch, servers):
        fringes = control_fringe.Fringes(watch)
        found = await fringes.get({"stream": "wide-vis", "baseline": "m003,m001"})
        assert sorted((x, q["baseline"], q["channels"]) for x, q in asked) == [
            (0, "1,3", "0,4095"),
            (1, "1,3", "4096,8191"),
        ]
        assert found["baseline"] == ["m001", "m003"] and found["missing"] == []
        phasors = coherence * np.exp(1j * phases)
        means = np.where(np.arange(n) == 3, 0, phasors[0]).reshape(-1, 8).sum(axis=1) / np.where(
            np.arange(n // 8) == 0, 7, 8
        )
        np.testing.assert_allclose(found["curves"][0]["coherence"], np.abs(means), atol=6e-5)
        np.testing.assert_allclose(
            np.exp(1j * np.radians(found["curves"][0]["phase_deg"])), means / np.abs(means), atol=1e-3
        )
        np.testing.assert_allclose(
            found["curves"][1]["coherence"], np.abs(phasors[1].reshape(-1, 8).mean(axis=1)), atol=6e-5
        )
        step = 856e6 / n
        np.testing.assert_allclose(found["hz"], 856e6 + step * (8 * np.arange(n // 8) + 3.5))

        # single channels, across the border of both engines; and in the other side band the frequency falls
        config["streams"][0]["sideband"] = "lower"
        found = await fringes.get({"baseline": "m001,m003", "channels": "4000,4100"})
        np.testing.assert_allclose(found["curves"][1]["phase_deg"], np.degrees(phases[1, 4000:4101]), atol=0.051)
        np.testing.assert_allclose(found["hz"], 1284e6 + 428e6 - step * np.arange(4000, 4101))
        n_asked = len(asked)
        await asyncio.gather(*(fringes.get({"baseline": "m001,m003", "channels": "4000,4100"}) for _ in range(20)))
        assert len(asked) <= n_asked + 2, "an answer is kept for a second"

        await servers.stop("x1")
        found = await fringes.get({"baseline": "m001,m003", "channels": "4090,4100"})
        assert found["missing"] == ["x1 on cbf2"] and found["curves"][1]["phase_deg"][6:] == [None] * 5
        for query, words in (
            ({"stream": "wide"}, "not a stream of visibilities; there are wide-vis"),
            ({"baseline": "m000"}, "two names of antennas"),
            ({"baseline": "m000,m9"}, "two names of antennas"),
            ({"channels": "5"}, "two numbers"),
            ({"channels": "7,9000"}, "not within 0,8191"),
        ):
            with pytest.raises(control_fringe.Refused, match=words):
                await fringes.get(query)
        for other in ("m000,m001", "m000,m002", "m000,m003"):
            await fringes.get({"baseline": other})
        with pytest.raises(control_fringe.Refused, match="at most 4"):
            await fringes.get({"baseline": "m001,m002"})

    live(config, answers, test, monkeypatch)
