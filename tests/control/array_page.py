"""The array page beside a running array: makes control.yaml for an array of the demonstration, and runs the page's
server in a thread."""

import asyncio
import threading
import time

import control_http
import demo_array
import harness
import status_pages

SKY_HZ = 1284e6  # centre of the band on the sky


def config_of(array):
    """control.yaml of a demo_array.Array.  The engines of one machine get the names of two hosts and a storage host."""
    listen = {name: array.configs[name].get("http", {}).get("listen") for name in array.configs}
    hosts = {"fgpu0": "cbf1", "fgpu1": "cbf2", "xbgpu0": "cbf1", "xbgpu1": "cbf2"}
    engines = [
        {"name": name, "program": name.rstrip("01"), "host": hosts[name], "katcp": "127.0.0.1:1", "http": listen[name]}
        for name in demo_array.ENGINES
    ]
    for engine in engines:
        number = int(engine["name"][-1])
        engine |= (
            {"antennas": [f"m{2 * number:03}", f"m{2 * number + 1:03}"]}
            if engine["program"] == "fgpu"
            else {"stream": "wide", "first_channel": demo_array.HALF * number, "channels": demo_array.HALF}
        )
    config = {
        "array": "demo",
        "http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"},
        "antennas": [{"name": f"m{i:03}", "feng_id": i} for i in range(4)],
        "engines": engines,
        "streams": [
            {
                "name": "wide",
                "kind": "voltages",
                "channels": demo_array.CHANNELS,
                "substreams": 2,
                "centre_frequency": demo_array.RATE_HZ / 4,
                "bandwidth": demo_array.RATE_HZ / 2,
                "sky_centre_frequency": SKY_HZ,
                "sideband": "upper",
            },
            {"name": "vis", "kind": "visibilities", "source": "wide", "integration_s": 0.5},
        ],
    }
    if demo_array.RECORDER in array.configs:
        config["recorders"] = [
            {
                "name": "visrec",
                "program": "visrec",
                "host": "store1",
                "http": listen[demo_array.RECORDER],
                "stream": "vis",
                "directory": "/data",
            }
        ]
    return config


class ArrayPage:
    """The page's server, on an asyncio loop in a thread, until stop().  wait() returns after the first state: before,
    a browser complains about status 503."""

    def __init__(self, config, controller=None):
        self.config = config
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.http = self.run(control_http.start(config, controller or status_pages.Controller()))
        self.url = f"http://127.0.0.1:{self.http.port}/"

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(harness.TIMEOUT_S)

    def wait(self):
        deadline = time.monotonic() + harness.TIMEOUT_S
        while not self.http.watch.state:
            assert time.monotonic() < deadline, "the page has no state"
            time.sleep(0.05)
        return self

    def stop(self):
        self.run(self.http.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class FixedPage(ArrayPage):
    """The page of hand-made answers, without engines.  'state' is served as /array.json, and may change."""

    def __init__(self, config, state):
        super().__init__(
            {**config, "engines": [], "recorders": [], "http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}}
        )
        self.run(self.http.watch.stop())
        self.http.watch.state = state
