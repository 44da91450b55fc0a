"""KATCP of both daemons: against aiokatcp as a client, and byte by byte.

aiokatcp's grammar (katcp-codec), not this project, decides the meaning of a line.
"""
import asyncio
import random
import re
import socket
import subprocess
import time

import aiokatcp
import katcp_codec
import pytest
import yaml
from harness import BUILD, LOOPBACK, TIMEOUT_S, free_tcp_port
from scenario import chunk_for, fgpu_config, xbgpu_config

CONFIG, RESTART = 78, 75

COMMON = {"steady-state-timestamp": "integer", "device-status": "discrete", "time.esterror": "float",
          "time.maxerror": "float", "time.state": "discrete", "time.synchronised": "boolean"}


def make_config(program, **katcp):
    katcp = {"listen": f"{LOOPBACK}:{free_tcp_port()}"} | katcp
    if program == "xbgpu":
        return xbgpu_config(recv={"interface": "lo"}, send={"interface": "lo"}, katcp=katcp)
    config = fgpu_config(recv={"interface": "lo"}, send={"interface": "lo"}, katcp=katcp)
    chunk_for(config)
    return config


def address_of(config, key="listen"):
    host, port = config["katcp"][key].split(":")
    return host, int(port)


class Line:
    """A connection that is spoken byte by byte."""

    def __init__(self, address, greeted=True):
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.reader = self.socket.makefile("rb")
        if greeted:
            for _ in range(3):
                assert self.line().startswith("#version-connect ")

    def say(self, *lines):
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def line(self):
        return self.reader.readline().decode().removesuffix("\n")

    def answer(self, request):
        """The lines from a request to its reply."""
        self.say(request)
        lines = [self.line()]
        while lines[-1][:1] == "#":
            lines.append(self.line())
        return lines

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reader.close()
        self.socket.close()


@pytest.fixture(params=["fgpu", "xbgpu"])
def served(request, daemon):
    """A daemon that waits for data, and speaks KATCP."""
    config = make_config(request.param, read_only_listen=f"{LOOPBACK}:{free_tcp_port()}")
    process = daemon(request.param, config).wait_ready()
    process.program = request.param
    yield process
    if process.process.poll() is None:
        process.terminate().wait_end()


TIME = r"\d{10}\.\d{6}"
ADDRESS = r"127\.0\.0\.1:\d+"
VERSIONS = [r"katcp-protocol 5\.1-MIBT", r"katcp-library cbf-katcp-1\.0 \S+",
            r"katcp-device katgpucbf-(fgpu|xbgpu)-1\.0 \S+"]

# Requests, and what must come back: regular expressions of whole lines, or of one that stands for any number of them.
TRANSCRIPT = [
    ("?watchdog", [r"!watchdog ok"]),
    ("?watchdog[2147483647]", [r"!watchdog\[2147483647\] ok"]),
    ("?watchdog x", [r"!watchdog fail too\\_many\S*"]),
    ("?help[3] watchdog", [r"#help\[3\] watchdog \S+", r"!help\[3\] ok 1"]),
    ("?help nothing", [r"!help fail unknown\\_request\\_nothing"]),
    ("?help a b", [r"!help fail too\\_many\S*"]),
    ("?version-list", [rf"#version-list {version}" for version in VERSIONS] + [r"!version-list ok 3"]),
    ("?version-list x", [r"!version-list fail \S+"]),
    ("?client-list", [rf"#client-list {ADDRESS}", r"!client-list ok 1"]),
    ("?client-list x", [r"!client-list fail \S+"]),
    ("?log-level", [r"!log-level ok warn"]),
    ("?log-level error", [r"!log-level ok error"]),
    ("?log-level", [r"!log-level ok error"]),
    ("?log-level loud", [r"!log-level fail unknown\\_level\\_loud\S*"]),
    ("?log-level warn x", [r"!log-level fail \S+"]),
    ("?log-level warn", [r"!log-level ok warn"]),
    ("?request-timeout-hint help", [r"#request-timeout-hint help 0", r"!request-timeout-hint ok 1"]),
    ("?request-timeout-hint nothing", [r"!request-timeout-hint fail unknown\\_request\\_nothing"]),
    ("?sensor-list time.state",
     [r"#sensor-list time\.state \S+ \\@ discrete ok ins del oop wait error", "!sensor-list ok 1"]),
    ("?sensor-list /^device-status$/",
     [r"#sensor-list device-status \S+ \\@ discrete ok degraded fail", "!sensor-list ok 1"]),
    ("?sensor-list nothing", [r"!sensor-list fail Unknown\\_sensor\\_'nothing'"]),
    ("?sensor-list a b", [r"!sensor-list fail \S+"]),
    ("?sensor-value[9] time.maxerror",
     [rf"#sensor-value\[9\] {TIME} 1 time\.maxerror (nominal|warn|error) \S+", r"!sensor-value\[9\] ok 1"]),
    ("?sensor-value /^time.s/", [rf"#sensor-value {TIME} 1 time\.state \S+ \S+",
                                 rf"#sensor-value {TIME} 1 time\.synchronised \S+ [01]", r"!sensor-value ok 2"]),
    ("?sensor-value nothing", [r"!sensor-value fail Unknown\\_sensor\\_'nothing'"]),
    ("?sensor-value /[/", [r"!sensor-value fail \S+"]),
    ("?sensor-sampling time.state", [r"!sensor-sampling ok time\.state none"]),
    ("?sensor-sampling[4] time.state,time.maxerror period 1000",
     [rf"#sensor-status {TIME} 1 time\.maxerror \S+ \S+", rf"#sensor-status {TIME} 1 time\.state \S+ \S+",
      r"!sensor-sampling\[4\] ok time\.state,time\.maxerror period 1000"]),
    ("?sensor-sampling time.maxerror", [r"!sensor-sampling ok time\.maxerror period 1000"]),
    ("?sensor-sampling time.maxerror,nothing none", [r"!sensor-sampling fail Unknown\\_sensor\\_'nothing'"]),
    ("?sensor-sampling time.maxerror", [r"!sensor-sampling ok time\.maxerror period 1000"]),
    ("?sensor-sampling-clear", [r"!sensor-sampling-clear ok"]),
    ("?sensor-sampling time.maxerror", [r"!sensor-sampling ok time\.maxerror none"]),
    ("?sensor-sampling time.maxerror often", [r"!sensor-sampling fail unknown\\_strategy\\_often"]),
    ("?sensor-sampling", [r"!sensor-sampling fail too\\_few\S*"]),
    ("?halt now", [r"!halt fail too\\_many\S*"]),
    ("?restart now", [r"!restart fail too\\_many\S*"]),
    ("?unheard-of[7] of", [r"!unheard-of\[7\] invalid unknown\\_request\\_unheard-of"]),
    ("hello", [rf"#log error {TIME} katcp \S+"]),
    ("!watchdog ok", [rf"#log error {TIME} katcp \S+"]),
    ("?watchdog \\x", [rf"#log error {TIME} katcp \S+"]),
]


def test_transcript(served):
    with Line(address_of(served.config), greeted=False) as line:
        for version in VERSIONS:
            assert re.fullmatch(f"#version-connect {version}", line.line())
        for request, expected in TRANSCRIPT:
            line.say(request)
            for pattern in expected:
                got = line.line()
                assert re.fullmatch(pattern, got), f"{request}: {got} is not {pattern}"
        names = [text.split()[1] for text in line.answer("?help")[:-1]]
        assert names == sorted(names)
        asked = {request.split()[0].split("[")[0][1:] for request, _ in TRANSCRIPT if request[0] == "?"}
        assert asked - {"unheard-of"} <= set(names)
        for name in names:
            assert line.answer(f"?help {name}")[-1] == "!help ok 1"
            assert line.answer(f"?request-timeout-hint {name}")[-1] == "!request-timeout-hint ok 1"
        sensors = [text.split()[1] for text in line.answer("?sensor-list")[:-1]]
        assert sensors == sorted(sensors)
        assert set(COMMON) <= set(sensors)
        assert len(line.answer("?sensor-value")) == len(sensors) + 1


def test_two_clients(served):
    """Others hear of a client; sampling is each one's own, the log level everybody's."""
    with Line(address_of(served.config)) as one, Line(address_of(served.config)) as two:
        assert re.fullmatch(f"#client-connected {ADDRESS}", one.line())
        assert len(one.answer("?client-list")) == 3
        assert one.answer("?sensor-sampling time.state auto")[-1] == "!sensor-sampling ok time.state auto"
        assert two.answer("?sensor-sampling time.state") == ["!sensor-sampling ok time.state none"]
        assert two.answer("?log-level info") == ["!log-level ok info"]
        assert one.answer("?log-level") == ["!log-level ok info"]
        with Line(address_of(served.config, "read_only_listen")) as reader:
            assert reader.answer("?log-level off") == [r"!log-level fail this\_server\_port\_is\_read-only"]
            assert reader.answer("?halt") == [r"!halt fail this\_server\_port\_is\_read-only"]
            assert reader.answer("?sensor-value time.state")[-1] == "!sensor-value ok 1"


@pytest.mark.parametrize("how, code", [("?halt", 0), ("?restart", RESTART), ("SIGTERM", 0)])
def test_end(served, how, code):
    """Any client may end the program cleanly.  All clients are told.  Calls in progress do not delay the end."""
    with Line(address_of(served.config)) as one, Line(address_of(served.config)) as two:
        one.line()
        if how == "SIGTERM":
            served.terminate()
        else:
            assert two.answer(how) == [f"!{how[1:]} ok"]
        assert one.line().startswith("#disconnect ")
        assert two.line().startswith("#disconnect ")
        assert one.line() == two.line() == ""
        served.wait_end(code)
        assert "STOPPING=1" in served.notify.recv(4096, socket.MSG_DONTWAIT).decode().splitlines()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address_of(served.config))


# ---- aiokatcp ----------------------------------------------------------------------------------------------------------


async def connect(config):
    client = aiokatcp.Client(*address_of(config), auto_reconnect=False)
    await asyncio.wait_for(client.wait_connected(), TIMEOUT_S)
    return client


def test_aiokatcp(served):
    async def run():
        client = await connect(served.config)
        watcher = aiokatcp.SensorWatcher(client)
        client.add_sensor_watcher(watcher)
        await asyncio.wait_for(watcher.synced.wait(), TIMEOUT_S)
        reply, informs = await client.request("sensor-list")
        assert int(reply[0]) == len(informs) == len(watcher.sensors)
        for name, kind in COMMON.items():
            sensor = watcher.sensors[name]
            assert sensor.type_name == kind
            reading = await client.sensor_reading(name)
            assert aiokatcp.core.encode(reading.value) == aiokatcp.core.encode(sensor.value)
            assert reading.status == sensor.status and reading.timestamp == sensor.timestamp
            assert abs(reading.timestamp - time.time()) < 300
        synchronised = watcher.sensors["time.synchronised"]
        parts = [watcher.sensors[name] for name in ("time.esterror", "time.maxerror", "time.state")]
        assert synchronised.value == all(s.status != aiokatcp.Sensor.Status.ERROR for s in parts)
        for limits, sensor in zip([(1e-3, 5e-3), (1e-2, 0.1)], parts):
            expected = ("NOMINAL" if sensor.value < limits[0] else "WARN" if sensor.value < limits[1] else "ERROR")
            assert sensor.status.name == expected
        with pytest.raises(aiokatcp.FailReply, match="Unknown sensor"):
            await client.request("sensor-value", "nothing")
        with pytest.raises(aiokatcp.InvalidReply, match="unknown request"):
            await client.request("nothing")
        await client.request("halt")
        await asyncio.wait_for(client.wait_disconnected(), TIMEOUT_S)
        assert all(s.status == aiokatcp.Sensor.Status.UNREACHABLE for s in watcher.sensors.values())
        client.close()
        await client.wait_closed()

    asyncio.run(run())
    served.wait_end()


# ---- The grammar -------------------------------------------------------------------------------------------------------


def random_line(rng):
    """A line that is nearly a message; without ends of lines."""
    alphabet = rng.choice([b"ab?![]#\\_n0e@t rz1 \t-", bytes(set(range(256)) - {10, 13}), b"?a 1[]\\"])
    line = bytes(rng.choices(alphabet, k=rng.randrange(12)))
    if rng.random() < 0.8:
        head = rng.choice([b"?x", b"?x-9", b"!x", b"#x", b"?x[1]", b"?x[2147483647]", b"?x[2147483648]", b"?x[",
                           b"?x[01]"])
        line = head + rng.choice([b"", b" ", b"\t"]) + line
    return line


def test_grammar(served, rng):
    """A line that katcp-codec refuses gets the reply that it is no message.  Any other line is answered, with name and
    id."""
    rng = random.Random(int(rng.integers(1 << 62)))
    lines = [random_line(rng) for _ in range(20000)]
    n_refused = 0
    with Line(address_of(served.config)) as line:
        assert line.answer("?watchdog") == ["!watchdog ok"]
        for begin in range(0, len(lines), 500):
            part = lines[begin:begin + 500]
            line.socket.sendall(b"".join(text + rng.choice([b"\n", b"\r", b"\r\n"]) for text in part))
            for text in part:
                parsed = katcp_codec.Parser(1 << 20).append(text + b"\n")
                if not parsed:
                    assert not text.strip(b" \t")
                    continue
                message = parsed[0]
                got = line.line()
                if isinstance(message, ValueError) or message.mtype != katcp_codec.MessageType.REQUEST:
                    assert got.startswith("#log error "), f"{text}: {got}, but katcp-codec says {message}"
                    n_refused += 1
                else:
                    mid = f"[{message.mid}]" if message.mid is not None else ""
                    assert got.startswith(f"!{message.name.decode()}{mid} invalid "), f"{text}: {got}"
        assert line.answer("?watchdog") == ["!watchdog ok"]
    assert 1000 < n_refused < 19000


def test_large_lines(served):
    """Gains have lines of up to 16 MiB, in pieces of any size, other requests 64 KiB; a longer one costs itself only."""
    with Line(address_of(served.config)) as line:
        assert line.answer("?watchdog") == ["!watchdog ok"]
        for request, most in [("help", 64 << 10)] + [("gain", 16 << 20)] * (served.program == "fgpu"):
            line.say(f"?{request} " + "x" * (most - 2 - len(request)))
            assert line.line().startswith(f"!{request} fail ")
            line.say(f"?{request} " + "x" * (most - 1 - len(request)))
            assert line.line().startswith("#log error ")
            assert line.answer("?watchdog[5]") == ["!watchdog[5] ok"]


@pytest.mark.parametrize("first", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcd\x20",  # TLS, whose session's name is the page's to choose
    b"POST / HTTP/1.1\r\nHost: x\r\n\r", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", b"\0\1", b"hello"])
def test_strangers(served, first):
    """A connection that does not begin with a request is closed, and nothing behind it is carried out."""
    address = address_of(served.config)
    with Line(address) as stranger:
        stranger.socket.sendall(first + b"\n?log-level off\n?halt\n")
        try:
            assert stranger.line() in ("", r"#disconnect the\_client's\_first\_line\_is\_not\_a\_KATCP\_request")
        except ConnectionResetError:
            pass
    with Line(address) as line:
        assert line.answer("?log-level") == ["!log-level ok warn"]


# ---- Configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("katcp, sentence", [
    ({"allow": "10.0.0.1/8"}, 'allow: "10.0.0.1/8" is not a network'),
    ({"allow": "10.0.0.0/33"}, 'allow: "10.0.0.0/33" is neither'),
    ({"allow": "localhost"}, 'allow: "localhost" is neither'),
    ({"listen": "127.0.0.1:7147", "read_only_listen": "127.0.0.1:7147"}, "katcp.listen and katcp.read_only_listen both have port 7147"),
    ({"listen": "127.0.0.1:7147, 127.0.0.2:7147"}, "listen"),
    ({"max_clients": 0}, "max_clients"),
    ({"listen": "0.0.0.0:7147"}, "listen accepts other hosts, so allow must name the networks"),
    ({"listen": "192.0.2.1:7147", "allow": " ,"}, "listen accepts other hosts, so allow must name"),
    ({"allow": "anyone"}, 'allow: "anyone" is neither a network'),
])
def test_bad_configuration(work, katcp, sentence):
    for program in ("fgpu", "xbgpu"):
        path = work / f"{program}.yaml"
        path.write_text(yaml.safe_dump(make_config(program, **katcp), sort_keys=False))
        done = subprocess.run([BUILD / program, "--check-config", path], capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        assert done.returncode == CONFIG
        assert sentence in done.stdout + done.stderr


@pytest.mark.parametrize("katcp", [
    {"listen": "0.0.0.0:7147", "allow": "any"},
    {"listen": "192.0.2.1:7147", "allow": "192.0.2.0/24"},
    {"listen": "127.1.2.3:7147", "read_only_listen": "0.0.0.0:7150"},
])
def test_good_configuration(work, katcp):
    path = work / "fgpu.yaml"
    path.write_text(yaml.safe_dump(make_config("fgpu", **katcp), sort_keys=False))
    subprocess.run([BUILD / "fgpu", "--check-config", path], check=True, timeout=TIMEOUT_S)


def test_port_left_out(work):
    path = work / "fgpu.yaml"
    path.write_text(yaml.safe_dump(make_config("fgpu", listen=LOOPBACK), sort_keys=False))
    done = subprocess.run([BUILD / "fgpu", "--check-config", path], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    printed = subprocess.run([BUILD / "fgpu", "--print-config", path], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert yaml.safe_load(printed.stdout)["katcp"]["listen"] == [f"{LOOPBACK}:7147"]


@pytest.mark.parametrize("key", ["listen", "read_only_listen"])
def test_port_in_use(daemon, key):
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        config = make_config("fgpu", **{key: f"{LOOPBACK}:{other.getsockname()[1]}"})
        process = daemon("fgpu", config).wait_end(1)
    assert f"katcp.{key}: cannot serve KATCP on" in process.tail()


def test_networks(daemon):
    config = make_config("fgpu", allow="192.0.2.0/24")
    with daemon("fgpu", config) as process, Line(address_of(config), greeted=False) as line:
        assert line.line().startswith("#disconnect ")
        assert line.line() == ""


# ---- Many clients while data flow --------------------------------------------------------------------------------------


class Subscriber:
    """Samples all sensors, and counts the informs of each."""

    def __init__(self):
        self.n_readings = 0
        self.n_sensors = 0

    async def run(self, address, strategy):
        reader, self.writer = await asyncio.open_connection(*address, limit=1 << 24)
        self.writer.write(b"?sensor-list\n")
        names = []
        while not (line := await reader.readline()).startswith(b"!sensor-list ok"):
            if line.startswith(b"#sensor-list"):
                names.append(line.split()[1])
        self.n_sensors = len(names)
        self.writer.write(b"?sensor-sampling " + b",".join(names) + b" " + strategy + b"\n")
        while line := await reader.readline():
            assert not line.startswith(b"!sensor-sampling fail"), line
            self.n_readings += line.startswith(b"#sensor-status")

    async def finish(self, task):
        self.writer.close()
        await task


N_DUMPS = 30


def test_many_clients(running):
    """50 clients that sample every sensor of both daemons, and one that asks without end, cost no data."""
    import chain

    names = ["fgpu0", "fgpu1", "xbgpu0", "xbgpu1"]
    overrides = {name: {"katcp": {"listen": f"{LOOPBACK}:{free_tcp_port()}"}} for name in names}
    correlator, dumps = running(overrides)

    async def ask(address):
        reader, writer = await asyncio.open_connection(*address)
        while True:
            writer.write(b"?sensor-value\n?sensor-list\n?help\n?sensor-value /time/\n?watchdog\n")
            while (line := await reader.readline()) != b"!watchdog ok\n":
                assert line

    def is_complete(begin):
        """Whether all dumps of a stretch have come whole; of a machine busy with other things one may not."""
        dumps.wait(lambda: min(sum(d.timestamp > begin for d in s) for s in dumps.dumps) >= N_DUMPS, f"{N_DUMPS} dumps")
        stretches = [[d for d in s if d.timestamp > begin] for s in dumps.dumps]
        steps = {b.timestamp - a.timestamp for s in stretches for a, b in zip(s, s[1:])}
        return steps == {chain.WINDOW} and all(d.complete for s in stretches for d in s)

    async def run():
        subscribers, tasks = [], []
        for name in names:
            address = address_of(correlator[name].config)
            for i in range(50):
                subscribers.append(Subscriber())
                strategy = [b"auto", b"event", b"period 0.1", b"event-rate 0.05 0.5"][i % 4]
                tasks.append(asyncio.create_task(subscribers[-1].run(address, strategy)))
        asking = asyncio.create_task(ask(address_of(correlator["xbgpu0"].config)))
        for stretch in range(8):
            if complete := await asyncio.to_thread(is_complete, dumps.newest()):
                break
            print("a stretch was not whole")
        assert not asking.done()
        asking.cancel()
        for subscriber, task in zip(subscribers, tasks):
            await subscriber.finish(task)
            assert subscriber.n_readings >= subscriber.n_sensors >= len(COMMON)
        assert complete, "data were lost in each of 8 stretches"
        return sum(s.n_readings for s in subscribers)

    dumps.wait_dumps(1, 0)
    n_readings = asyncio.run(run())
    print(f"{n_readings} readings were told")
    assert n_readings > 10000
