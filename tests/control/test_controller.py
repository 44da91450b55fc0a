"""Tests the controller with fake engines: which engines get a request, which engines a failed reply names, and which
settings stay stored."""
import asyncio
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import aiokatcp
import pytest

import control_config
import controlled
import harness
import random_requests
from control import FailReply, InvalidReply
from control_settings import Settings
from controlled import LOOPBACK, layout, notes, wait_state
from harness import SEED, until

MODELS = ["1e-9,0:0.5,0", "2e-9,0:0.25,0", "3e-9,0:0,0", "4e-9,0:0,0"]


def test_who_gets_what(processes):
    """Each request reaches exactly the engines of its stream and inputs, with their part of the values."""
    config = layout(2, 2)
    processes.fakes(config)
    client = processes.client(processes.controller(config))
    f0, f1, x0, x1 = (processes.engine(config, name) for name in ("f0", "f1", "x0", "x1"))
    for request in (
            "gain wide m001h 2+1j", "gain wide 0 4", "gain-all wide 3", "gain-all wide default",
            f"delays wide 1800000000.123456789 {' '.join(MODELS)}",
            f"delays wide 1800000001 m001h={MODELS[0]} 0={MODELS[1]}", "resume wide m001", "resume wide",
            "beam-weights wide-beam 1 0.5", "beam-weights search.1 1 0.5 0 1", "beam-quant-gains wide-beam 0.1",
            "beam-delays search.0 1800000000.5 1e-9,1e-12:0,0 0:1", "beam-calibration wide m000v 1j",
            "capture-stop wide-vis", "capture-start wide-vis 4096"):
        assert client.request(*request.split()) == []
    assert notes(f0) == [
        "gain wide m000v 4", "gain-all wide 3", "gain-all wide default",
        f"delays wide 1800000000.123456789 {' '.join(MODELS[:2])}", f"delays wide 1800000001 m000v={MODELS[1]}",
        "resume wide m000"]
    assert notes(f1) == [
        "gain wide m001h 2+1j", "gain-all wide 3", "gain-all wide default",
        f"delays wide 1800000000.123456789 {' '.join(MODELS[2:])}", f"delays wide 1800000001 m001h={MODELS[0]}",
        "resume wide m001", "resume wide m001"]
    assert notes(x0) == notes(x1) == [
        "beam-weights wide-beam 1 0.5", "beam-weights search.1 1 0.5 0 1", "beam-quant-gains wide-beam 0.1",
        "beam-delays search.0 1800000000.5 1e-9,1e-12:0,0 0:1", "beam-calibration m000v 1j",
        "capture-stop wide-vis", "capture-start wide-vis 4096"]
    assert client.request("gain", "wide", "m001h") == ["2+1j"]
    assert [row[0] for row in client.informs("capture-list")] == ["wide", "wide-vis", "wide-beam", "search"]
    assert client.request("capture-status") == ["capturing"]
    rows = client.informs("engine-list")
    assert [row[:3] for row in rows] == [[e["name"], e["program"], e["host"]] for e in config["engines"]]
    assert all(row[5] == "present" for row in rows)


def test_one_load_time(processes):
    """Delays of a beam without a load time get the same load time in all X-engines, in the near future."""
    config = layout(2, 3)
    processes.fakes(config)
    client = processes.client(processes.controller(config))
    client.request("beam-delays", "wide-beam", "1e-9:0", "0:1")
    sent = {tuple(notes(processes.engine(config, f"x{i}"))) for i in range(3)}
    ((note,),) = sent
    assert note.startswith("beam-delays wide-beam ") and note.endswith(" 1e-9:0 0:1")
    assert abs(float(note.split()[2]) - time.time()) < 30


@pytest.mark.parametrize("request_, sentence", [
    ("gain other m000v 1", "there is no stream 'other'"),
    ("gain wide-vis m000v 1", "there is no stream 'wide-vis' of voltages"),
    ("gain wide m002v 1", "there is no input 'm002v'"),
    ("gain wide m000v 1 2", "one gain or 64 gains"),
    ("gain-all wide nan", "finite complex number"),
    ("gain-all wide 2e9", "magnitude of at most"),
    (f"delays wide 1800000000 {' '.join(MODELS[:3])}", "4 models"),
    ("delays wide 1800000000 m000v=0,0:0,0 m000v=0,0:0,0", "two models for input m000v"),
    (f"delays wide 1800000000 {' '.join(MODELS[:3])} x,0:0,0", "finite number"),
    (f"delays wide 1800000000 {' '.join(MODELS[:3])} 2,0:0,0", "at most 1 s"),
    (f"delays wide 5 {' '.join(MODELS)}", "before the sync time"),
    ("resume wide m009", "there is no antenna 'm009'"),
    ("beam-weights wide-beam 1", "2 weights"),
    ("beam-weights search 1 1", "there is no beam 'search'"),
    ("beam-weights search.2 1 1", "there is no beam 'search.2'"),
    ("beam-delays wide-beam 1e-9,0:0,0 0:0", "needs a load time"),
    ("beam-quant-gains wide-beam x", "finite number"),
    ("capture-start wide", "there is no stream 'wide' of visibilities"),
    ("capture-start wide-vis -1", "0 or more"),
    ("calibration-report wide 1 2 m000", "from 0 to 1")])
def test_refused_before_sending(refusing, request_, sentence):
    """A request with a mistake fails with a sentence about the mistake, and no engine gets any part of the request."""
    client, engines = refusing
    with pytest.raises(FailReply, match=sentence):
        client.request(*request_.split())
    assert [notes(engine) for engine in engines] == [[], [], [], []]


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    processes = controlled.Processes(tmp_path_factory.mktemp("refusing"))
    config = layout(2, 2)
    processes.fakes(config)
    yield (processes.client(processes.controller(config)),
           [processes.engine(config, engine["name"]) for engine in config["engines"]])
    processes.end()


def test_hung_engine(processes):
    """One request waits its whole time-out for a hung engine, and its reply names the engine.  Later requests skip the
    engine.  When the engine continues, it gets the settings."""
    timeout_s = 8
    config = layout(3, 1, timeouts={"delays": timeout_s})
    processes.fakes(config, ["f0", "x0"])
    hung = processes.fakes(config, ["f1"])
    client, f1 = processes.client(processes.controller(config)), processes.engine(config, "f1")
    models = MODELS + ["0,0:0,0"] * 2

    def fail(i):
        """Returns the duration of a request, and its failure."""
        start_s = time.monotonic()
        with pytest.raises(FailReply) as failed:
            client.request("delays", "wide", f"{1800000000 + i}", *models)
        return time.monotonic() - start_s, str(failed.value)

    # The engine hangs with the request, and not with an earlier ?watchdog.
    f1.request("hold", "delays")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(fail, 0)
        f1.request("held")
        hung.send_signal(signal.SIGSTOP)
        took_s, texts = zip(first.result(), fail(1), fail(2))
    named = "f1 on cbf1 did not answer ?delays within 8 s", *["f1 on cbf1 does not answer"] * 2
    assert texts == tuple(f"{name}; f2 on cbf2 is absent" for name in named)
    print("a request took", took_s, "s")
    assert took_s[0] >= timeout_s and max(took_s[1:]) < timeout_s
    assert len(notes(processes.engine(config, "f0"))) == 3
    assert client.value("missing-engines") == "f1,f2" and client.value("missing-antennas") == "m001,m002"
    assert client.reading("wide.status")[1:] == ("warn", "degraded")
    assert client.reading("f1.state")[1:] == ("error", "hung")
    hung.send_signal(signal.SIGCONT)
    f1.request("release")
    wait_state(client, "f1", "present")
    assert notes(f1)[-1].startswith("delays wide 1800000002 m001v=3e-9,0:0,0 m001h=4e-9")


def test_busy_engine(processes):
    """A request that waits behind a long request is answered within its own time-out.  The engine gets the request
    later, in the right order."""
    config = layout(1, 0, timeouts={"delays": 5, "gains": 60})
    processes.fakes(config)
    processes.controller(config)
    f0 = processes.engine(config, "f0")
    f0.request("hold", "gain")

    async def both():
        async with await aiokatcp.Client.connect(LOOPBACK, int(config["katcp"]["listen"].split(":")[1])) as client:
            gain = asyncio.create_task(client.request("gain", "wide", "m000v", "2"))
            await asyncio.to_thread(f0.request, "held")
            with pytest.raises(FailReply, match=r"^f0 on cbf0 is busy, and gets \?delays later$"):
                await client.request("delays", "wide", "1800000000", *MODELS[:2])
            assert not gain.done()
            await asyncio.to_thread(f0.request, "release")
            await gain

    asyncio.run(asyncio.wait_for(both(), harness.TIMEOUT_S))
    expected = ["gain wide m000v 2", f"delays wide 1800000000 {' '.join(MODELS[:2])}"]
    until(lambda: notes(f0) == expected, "the late delays")


def test_silent_engine(processes):
    """The controller finds that an engine hangs, also without any request."""
    config = layout(1, 1)
    processes.fakes(config, ["x0"])
    hung = processes.fakes(config, ["f0"])
    client = processes.client(processes.controller(config))
    wait_state(client, "f0", "present")
    hung.send_signal(signal.SIGSTOP)
    wait_state(client, "f0", "hung")
    assert client.reading("wide.m000v.eq")[1] == "unreachable"
    assert client.value("missing-antennas") == "m000" and client.value("wide.status") == "fail"
    assert client.value("x0.state") == "present"


def test_settings_come_back(processes):
    """A restarted engine gets all its settings: the newest gains, and all delay models that data may need."""
    config = layout(2, 1)
    fakes = processes.fakes(config, ["f0", "x0"])
    client = processes.client(processes.controller(config))
    f1 = processes.fakes(config, ["f1"])
    wait_state(client, "f1", "present")
    soon = int(time.time()) + 1000
    for request in ("gain wide m001v 7", "gain-all wide 3", "gain wide m001h 5", "gain wide m000v 6",
                    f"delays wide 1700000100 {' '.join(MODELS)}", f"delays wide 1700000200 {' '.join(MODELS)}",
                    f"delays wide {soon + 9} {' '.join(MODELS)}", f"delays wide {soon} {' '.join(MODELS)}",
                    f"delays wide {soon + 5} m001v=9e-9,0:0,0",
                    "capture-stop wide-vis", "beam-weights wide-beam 1 0", "beam-weights wide-beam 0 1"):
        client.request(*request.split())
    expected = {
        "f1": ["gain-all wide 3", "gain wide m001h 5", f"delays wide 1700000200 m001v={MODELS[2]} m001h={MODELS[3]}",
               f"delays wide {soon} m001v={MODELS[2]} m001h={MODELS[3]}", f"delays wide {soon + 5} m001v=9e-9,0:0,0"],
        "x0": ["beam-weights wide-beam 0 1", "capture-stop wide-vis"]}
    for name, old in (("f1", f1), ("x0", fakes)):
        old.kill()
        wait_state(client, name, "absent")
        processes.fakes(config, [name])
        wait_state(client, name, "present")
        assert notes(processes.engine(config, name)) == expected[name]


def test_refused_by_engines(processes):
    """A setting does not hold if its engine refuses it.  A setting holds if only one of several engines refuses it."""
    config = layout(2, 1)
    processes.fakes(config, ["f1", "x0"])
    fakes = processes.fakes(config, ["f0"])
    client = processes.client(processes.controller(config))
    f0 = processes.engine(config, "f0")
    client.request("gain", "wide", "m000v", "2")
    client.request("delays", "wide", "1800000000", *MODELS)
    f0.request("refuse", "gain")
    f0.request("refuse", "delays")
    with pytest.raises(FailReply, match=r"^f0 on cbf0 refused \?gain: wide is not known$"):
        client.request("gain", "wide", "m000v", "3")
    with pytest.raises(FailReply, match=r"^f0 on cbf0 refused \?delays: wide is not known$"):
        client.request("delays", "wide", "1800000001", *MODELS)
    fakes.kill()
    wait_state(client, "f0", "absent")
    processes.fakes(config, ["f0"])
    wait_state(client, "f0", "present")
    assert notes(processes.engine(config, "f0")) == [
        "gain wide m000v 2", f"delays wide 1800000000 m000v={MODELS[0]} m000h={MODELS[1]}"]
    assert notes(processes.engine(config, "f1"))[-1] == f"delays wide 1800000001 {' '.join(MODELS[2:])}"


def test_killed_controller(processes):
    """After a kill and a restart, the controller has its settings and reports, and sends them to engines whose settings
    differ."""
    config = layout(2, 1)
    processes.fakes(config)
    controller = processes.controller(config)
    client = processes.client(controller)
    client.request("gain", "wide", "m000v", "2")
    client.request("delays", "wide", "1800000000", *MODELS)
    client.request("capture-stop", "wide-vis")
    client.request("pointing-report", "wide", "J0437-4715", str(time.time() - 1), "86400")
    client.request("calibration-report", "wide", "1750000000", "0.99", "m000")
    controller.process.send_signal(signal.SIGKILL)
    controller.process.wait()
    f0 = processes.engine(config, "f0")
    f0.request("gain", "wide", "m000v", "9")  # somebody has changed the gain
    n_before = len(notes(f0))
    start_s = time.monotonic()
    client = processes.client(processes.controller(config))
    print(f"the controller was back within {time.monotonic() - start_s:.2f} s")
    assert f0.request("gain", "wide", "m000v") == ["2"]
    assert notes(f0)[n_before:] == ["gain wide m000v 2", f"delays wide 1800000000 m000v={MODELS[0]} m000h={MODELS[1]}"]
    assert dict(row[::2] for row in client.informs("capture-list"))["wide-vis"] == "down"
    assert client.value("wide.pointing-target") == "J0437-4715"
    assert client.reading("wide.pointing-until")[1] == "error"
    assert client.value("wide.calibration-coherence", float) == 0.99
    assert client.reading("earth-orientation-age")[1:] == ("nominal", "86400.0")


def test_damaged_settings(processes):
    """A damaged file of settings is put aside, and the log says so."""
    config = layout(1, 0)
    (processes.work / "state").mkdir()
    (processes.work / "state" / "settings.sqlite").write_bytes(b"no database" * 1000)
    controller = processes.controller(config)
    assert "settings.damaged" in controller.log.read_text()
    assert processes.client(controller).reading("state-status")[1:] == ("error", "ignored")


def test_full_disk(work):
    """A setting that cannot be written holds until the process ends, and the status says so."""
    settings = Settings(work)
    settings.put({("gain", "wide", "m000v"): ["1"]})
    settings._database.close()
    settings.put({("gain", "wide", "m000v"): ["2"]})
    assert settings.status == "failed" and settings.get(("gain", "wide", "m000v")) == ["2"]
    assert Settings(work).get(("gain", "wide", "m000v")) == ["1"]


def test_model_in_effect_is_not_sent_again(processes):
    """The controller does not send a model that its F-engine uses, because that would remove later models for an
    instant."""
    config = layout(1, 0)
    processes.fakes(config)
    controller = processes.controller(config)
    client, f0 = processes.client(controller), processes.engine(config, "f0")
    client.request("delays", "wide", "1700000100", "1e-9,2e-12:7,0.5", "0,0:0,0")
    client.request("delays", "wide", "1900000000", *MODELS[:2])
    # As fgpu writes it: from the sync time on, with a wrapped phase.
    f0.request("set", "wide.input0.delay", "(100000000, 1e-09, 2e-12, 0.7168146928204138, 0.5)")
    controller.process.kill()
    controller.process.wait()
    n_before = len(notes(f0))
    processes.controller(config)
    assert notes(f0)[n_before:] == ["delays wide 1700000100 m000h=0,0:0,0",
                                    f"delays wide 1900000000 m000v={MODELS[0]} m000h={MODELS[1]}"]


def test_random_requests(processes):
    """Sends hundreds of random requests to 24 engines, of which two are stopped and one hangs.  Each request is
    answered, and each reply names exactly the engines that failed."""
    config = layout(16, 8)
    names = {engine["name"] for engine in config["engines"]}
    stopped, hung = {"f3", "x5"}, {"f7"}
    processes.fakes(config, names - stopped - hung)
    hung_fakes = processes.fakes(config, hung)
    processes.controller(config)
    hung_fakes.send_signal(signal.SIGSTOP)
    n = 400
    print("seed", SEED)
    answers = asyncio.run(asyncio.wait_for(random_requests.run(config, SEED, n, stopped | hung), harness.TIMEOUT_S))
    wrong = [answer for answer in answers if not answer.is_right]
    assert len(answers) == n and not wrong, wrong[:3]
    last = asyncio.run(random_requests.replied_s(config, stopped | hung))
    over = random_requests.overheads_s(answers, last, controlled.TIMEOUT_S)
    print(f"after the slowest good engine or the time-out: median {over[n // 2]:.4f} s, longest {over[-1]:.4f} s")


def own_address():
    """Returns an address of this host that is not loopback; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return None


def test_who_may_connect(processes):
    """Hosts that katcp.allow does not name are refused."""
    address = own_address()
    if address is None:
        pytest.skip("this host has only loopback")
    config = layout(1, 0)
    port = config["katcp"]["listen"].split(":")[1]
    for allow, greeting in (("198.51.100.0/24", b"#disconnect this"),
                            (f"198.51.100.0/24, {address}", b"#version-connect ")):
        controller = processes.controller(config | {"katcp": {"listen": f"0.0.0.0:{port}", "allow": allow}})
        with socket.create_connection((address, int(port)), harness.TIMEOUT_S) as stranger:
            assert stranger.makefile("rb").readline().startswith(greeting)
        processes.client(controlled.Address(f"{LOOPBACK}:{port}")).request("watchdog")
        controller.terminate().wait_end()


def test_browser(processes):
    """A page in a web browser of this host cannot send requests, because a connection must begin with a request."""
    config = layout(1, 0)
    controller = processes.controller(config)
    port = int(config["katcp"]["listen"].split(":")[1])
    with socket.create_connection((LOOPBACK, port), harness.TIMEOUT_S) as browser:
        browser.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n?restart\r\n")
        received = b""
        try:
            while got := browser.recv(4096):
                received += got
        except ConnectionResetError:
            pass
    assert b"!restart" not in received
    client = processes.client(controller)
    with pytest.raises(InvalidReply):
        client.request("no-such-request")
    client.request("restart")
    controller.wait_end(75)


def test_config_mistakes(work):
    """A mistake in control.yaml ends the program with one sentence and with the exit code after which systemd does not
    restart it."""
    for key, value, sentence in (
            ("katcp", {"listen": "0.0.0.0:7147"}, "katcp.allow: missing"),
            ("katcp", {"listen": "127.0.0.1:x"}, "katcp.listen: must be"),
            ("engines", [{"name": "f0", "program": "fgpu", "host": "a", "katcp": "127.0.0.1:1", "antennas": ["x"]}],
             "engines[0].antennas: there is no antenna x"),
            ("streams", [{"name": "vis", "kind": "visibilities", "source": "wide"}], "source of vis"),
            ("antennas", [{"name": "m000"}], "antennas[0].feng_id: missing"),
            ("time", {"sync_time": "now"}, "time.sync_time: must be a number")):
        with pytest.raises(control_config.ConfigError, match=re.escape(sentence)):
            control_config.parse(layout(1, 0) | {key: value})
    controller = controlled.Controller(layout(1, 0) | {"time": 5}, work)
    controller.wait_end(78)
    assert controller.log.read_text() == f"{work}/control.yaml: time: must be a section, not 5\n"
