"""Tests the controller's HTTP server: which clients it serves, which pages it has, and that slow clients or many
clients do not stop it."""

import asyncio
import gzip
import json
import re
import socket

import pytest

import control_http
import harness
import status_pages
from test_watch import Array


def ask(port, path="/", host="localhost", method="GET", headers=""):
    """(status, headers with lower-case names, body) of one request."""
    with socket.create_connection((harness.LOOPBACK, port), timeout=harness.TIMEOUT_S) as s:
        host_line = f"Host: {host}\r\n" if host is not None else ""
        s.sendall(
            f"{method} {path} HTTP/1.{int(host is not None)}\r\n{host_line}{headers}Connection: close\r\n\r\n".encode()
        )
        text = b"".join(iter(lambda: s.recv(65536), b""))
    head, _, body = text.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}, body


def served(test, http=None, state=None):
    """Runs test(port) in a thread while the server of an array without engines runs."""
    config = {
        **status_pages.config_of(4, 2),
        "engines": [],
        "recorders": [],
        "http": {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}", **(http or {})},
    }

    async def run():
        server = await control_http.start(config, status_pages.Controller())
        await server.watch.stop()
        server.watch.state = state
        try:
            await asyncio.to_thread(test, server.port)
        finally:
            await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "host, is_accepted",
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("localhost.", True),
        ("127.0.0.1:8080", True),
        ("10.8.0.1", True),
        ("[::1]:80", True),
        ("[::1]", True),
        (socket.gethostname(), True),
        ("array.example", True),
        ("array.example:80", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("localhost:80:80", False),
        ("127.0.0.1.evil.example", False),
        ("[localhost]", False),
        ("", False),
        ("local host", False),
        ("localhost:8080@evil", False),
    ],
)
def test_names(host, is_accepted):
    names = control_http.own_names() | {"array.example"}
    assert control_http.is_name_accepted(names, host) == is_accepted


def test_refusals():
    def test(port):
        for path in ("/", "/array.json", "/metrics", "/healthz", "/nothing"):
            status, headers, body = ask(port, path, "evil.example")
            assert status == 421 and b"http.names" in body, path
        assert ask(port, "/healthz", "cbf.example")[0] == ask(port, "/healthz", host=None)[0] == 200
        assert (
            ask(port, "/healthz", method="POST")[0] == 405
            and ask(port, "/healthz", method="POST")[1]["allow"] == "GET,HEAD"
        )
        for path in (
            "/page/index.html",
            "/../control_http.py",
            "/%2e%2e/control_http.py",
            "/control_http.py",
            "/index.html/",
            "//",
        ):
            assert ask(port, path)[0] == 404, path

    served(test, {"names": "cbf.example, other.example"})


@pytest.mark.parametrize(
    "remote, is_served",
    [("10.8.3.4", True), ("192.168.1.7", True), ("192.168.1.8", False), ("127.0.0.1", True), ("11.8.0.1", False)],
)
def test_allow(remote, is_served):
    """The client's address decides, except for this host's own programs."""
    from aiohttp import web
    from aiohttp.test_utils import make_mocked_request

    guard = control_http.make_guard({"localhost"}, control_http.networks_of("10.8.0.0/16, 192.168.1.7"))

    async def handler(request):
        return web.Response(text="ok")

    request = make_mocked_request("GET", "/", headers={"Host": "localhost"}).clone(remote=remote)
    assert asyncio.run(guard(request, handler)).status == (200 if is_served else 403)
    with pytest.raises(ValueError):
        control_http.networks_of("10.8.0.0/33")


def test_answers():
    state = Array(4, 2).look()

    def test(port):
        for path, kind, begins in (
            ("/", "text/html; charset=utf-8", b"<!doctype html>"),
            ("/index.html", "text/html; charset=utf-8", b"<!doctype html>"),
            ("/array.css", "text/css; charset=utf-8", b"/* The array page."),
            ("/status.css", "text/css; charset=utf-8", b":root {"),
            ("/array.js", "text/javascript; charset=utf-8", b"\"use strict\""),
            ("/plot.js", "text/javascript; charset=utf-8", b"\"use strict\""),
        ):
            status, headers, body = ask(port, path)
            assert (status, headers["content-type"]) == (200, kind) and body.startswith(begins), path
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert (
                policy["default-src"] == "'none'"
                and policy["script-src"] == policy["connect-src"] == "'self'"
                and policy["frame-ancestors"] == "'none'"
            )
            assert headers["x-content-type-options"] == "nosniff"
        status, headers, body = ask(port, "/array.json")
        assert (status, headers["content-type"].split(";")[0]) == (200, "application/json") and json.loads(
            body
        ) == state
        status, headers, body = ask(port, "/array.json", headers="Accept-Encoding: gzip\r\n")
        assert headers["content-encoding"] == "gzip" and json.loads(gzip.decompress(body)) == state
        assert ask(port, "/healthz")[::2] == (200, b"ok\n")
        status, headers, body = ask(port, "/fringe.json?baseline=m000")
        assert status == 400 and json.loads(body)["error"].startswith("baseline: two names of antennas are needed")
        status, headers, body = ask(port, "/metrics")
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        samples = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
        assert (
            samples["cbf_control_array_state"] == "0"
            and samples['cbf_control_antennas{state="ok"}'] == "4"
            and samples['cbf_control_engines{state="absent"}'] == "0"
        )
        helped = re.findall(r"^# TYPE (\S+) (gauge|counter)$", body.decode(), re.M)
        assert {name.split("{")[0] for name in samples} == {name for name, _ in helped}
        assert all(name.endswith("_total") == (kind == "counter") for name, kind in helped)

    served(test, state=state)


def test_before_the_first_state():
    def test(port):
        assert ask(port, "/array.json")[0] == 503 and ask(port, "/healthz")[0] == 200
        assert b"cbf_control_array_state 3\n" in ask(port, "/metrics")[2]

    served(test)


def test_crowd():
    """200 idle connections of one host: only 64 stay open, and a new request is served."""

    def test(port):
        crowd = [socket.create_connection((harness.LOOPBACK, port), timeout=harness.TIMEOUT_S) for _ in range(200)]
        assert ask(port, "/healthz")[0] == 200
        n_closed = 0
        for s in crowd[: 200 - control_http.MAX_CONNECTIONS]:
            try:
                n_closed += s.recv(1) == b""
            except ConnectionResetError:
                n_closed += 1
        assert n_closed == 200 - control_http.MAX_CONNECTIONS
        crowd[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert crowd[-1].recv(100).startswith(b"HTTP/1.1 200")
        for s in crowd:
            s.close()

    served(test)


def test_slow_header(monkeypatch):
    """A client that never ends its header is cut off."""
    monkeypatch.setattr(control_http, "HEADER_S", 0.3)

    def test(port):
        with socket.create_connection((harness.LOOPBACK, port), timeout=harness.TIMEOUT_S) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
            try:
                assert s.recv(1) == b""
            except ConnectionResetError:
                pass

    served(test)


def test_long_header():
    def test(port):
        assert ask(port, headers="X: " + 5000 * "x" + "\r\n")[0] == 400
        assert ask(port, headers="".join(f"X{i}: x\r\n" for i in range(100)))[0] == 400

    served(test)


def test_taken_address():
    with socket.create_server((harness.LOOPBACK, harness.free_tcp_port())) as taken:
        config = {**status_pages.config_of(4, 2), "http": {"listen": f"{harness.LOOPBACK}:{taken.getsockname()[1]}"}}

        async def start():
            with pytest.raises(OSError, match="in use"):
                await control_http.start(config, status_pages.Controller())

        asyncio.run(start())
