"""A controller under test with its control.yaml, and fake engines in processes of their own."""
import json
import os
import subprocess
import sys
from pathlib import Path

import control
import harness
from harness import LOOPBACK

PROGRAM = harness.ROOT / "control" / "cbf-control"
PATIENT = Path(__file__).with_name("patient.py")
FAKES = Path(__file__).with_name("fake_engines.py")
CHANNELS = 64
SYNC_TIME_S = 1_700_000_000
RATE_HZ = 1e6
TIMEOUT_S = 15  # that the controller waits for an engine's answer; a busy machine stalls a process for seconds


def layout(n_fengs, n_xengs, per_feng=1, **more):
    """control.yaml of an array, as a dictionary: F-engines f0, f1, ... with 'per_feng' antennas each, and X-engines."""
    antennas = [{"name": f"m{i:03}", "feng_id": i} for i in range(n_fengs * per_feng)]
    engines = [{"name": f"f{i}", "program": "fgpu", "host": f"cbf{i}", "katcp": f"{LOOPBACK}:{harness.free_tcp_port()}",
                "antennas": [a["name"] for a in antennas[i * per_feng:(i + 1) * per_feng]]} for i in range(n_fengs)]
    engines += [{"name": f"x{i}", "program": "xbgpu", "host": f"cbf{i}", "stream": "wide",
                 "katcp": f"{LOOPBACK}:{harness.free_tcp_port()}", "first_channel": i * CHANNELS // n_xengs,
                 "channels": CHANNELS // n_xengs} for i in range(n_xengs)]
    config = {
        "array": "test", "time": {"sync_time": SYNC_TIME_S, "adc_sample_rate": RATE_HZ},
        "katcp": {"listen": f"{LOOPBACK}:{harness.free_tcp_port()}"},
        "timeouts": {"delays": TIMEOUT_S, "gains": TIMEOUT_S},
        "antennas": antennas,
        "streams": [
            {"name": "wide", "kind": "voltages", "channels": CHANNELS, "substreams": max(n_xengs, 1)},
            {"name": "wide-vis", "kind": "visibilities", "source": "wide", "integration_s": 0.5},
            {"name": "wide-beam", "kind": "beam", "source": "wide", "pol": 0},
            {"name": "search", "kind": "detected", "source": "wide", "beams": 2}],
        "engines": engines}
    return config | more


class Controller(harness.Daemon):
    """cbf-control with a control.yaml.  Its settings are in the directory 'state' of the directory 'work'."""

    def __init__(self, config, work, name="control"):
        (work / "state").mkdir(exist_ok=True)
        super().__init__(str(PROGRAM), config, work, name, wrapper=[sys.executable, str(PATIENT)],
                         variables={"STATE_DIRECTORY": str(work / "state")})


class Fakes:
    """A process with fake engines.  'names' are engines of the layout; None: all engines of the layout."""

    def __init__(self, config, names=None, delay_s=0.0):
        streams = [s["name"] for s in config["streams"] if s["kind"] in ("visibilities", "beam")]
        streams += ["search.0", "search.1"]
        engines = {e["name"]: [e["program"], int(e["katcp"].split(":")[1]), e.get("antennas") or streams]
                   for e in config["engines"] if names is None or e["name"] in names}
        self.process = subprocess.Popen([sys.executable, str(FAKES), json.dumps(engines), str(delay_s)],
                                        stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert self.process.stdout.readline() == "ready\n", "the fake engines did not start"

    def send_signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Address:
    """An address to which control.Client connects."""

    def __init__(self, listen):
        self.config = {"katcp": {"listen": listen}}


def notes(engine):
    """Returns the requests that a fake engine has noted, without their times."""
    return [text for _, text in engine.informs("requests")]


def wait_state(client, engine, state):
    client.wait(f"{engine}.state", lambda _, value: value == state, state)


class Processes:
    """Starts controllers, fake engines and clients of one test."""

    def __init__(self, work):
        self.work, self.started = work, []

    def _keep(self, what, end):
        self.started.append(end)
        return what

    def fakes(self, config, names=None, delay_s=0.0):
        fakes = Fakes(config, names, delay_s)
        return self._keep(fakes, fakes.kill)

    def controller(self, config):
        controller = Controller(config, self.work, f"control{len(self.started)}")
        self._keep(controller, controller.kill)
        return controller.wait_ready()

    def client(self, process):
        client = control.Client(process)
        return self._keep(client, client.close)

    def engine(self, config, name):
        """A client of an engine."""
        (engine,) = [e for e in config["engines"] if e["name"] == name]
        return self.client(Address(engine["katcp"]))

    def end(self):
        while self.started:
            self.started.pop()()
