"""The demonstration's array (config/demo), live on the loopback interface: four antennas with known signals.

The array uses free ports instead of the demonstration's, so both may run side by side.  sync_time is the time of the
start, as in scripts/demo.  With small socket buffers and real time, a stall of more than 50 ms loses data.  So the
array's programs have priority over other tests.  As root, programs have larger buffers and windows.  The X-engines'
window is then 0.65 s, shorter than the wrong delay of scripts/demo.  After the delay is mended, an F-engine sends the
times of some heaps again.  With this window these heaps do not look like a second sender's.
"""
import os
import time

import yaml

import harness

DEMO = harness.ROOT / "config" / "demo"
SYNC_TIME = "1760000000"  # in config/demo
PORT = ":7148"
ENGINES = ("xbgpu0", "xbgpu1", "fgpu0", "fgpu1")
RECORDER = "visrec"
CHANNELS = 1024
RATE_HZ = 1e6  # of samples
HALF = 512  # channels of an X-engine
TONE_CHANNEL = 300
DELAYS = (0, 5, -3)  # samples, of the antennas whose sky does not drift
PATIENT = {"fgpu": {"buffer": 4 << 20, "chunks": 24}, "xbgpu": {"buffer": 4 << 20, "window": 5, "chunks": 20}}  # recv


class Array:
    """Its processes by name.  'dsim' are overrides of the digitisers' configuration.  The recorder writes to 'recording'; None:
    there is no recorder."""

    def __init__(self, daemon, work, dsim=None, katcp=False, recording=None):
        self.configs = {}
        now = str(int(time.time()))
        delays = work / "m003.delays"
        delays.write_text((DEMO / "m003.delays").read_text().replace(SYNC_TIME, now))
        for name in (*ENGINES, "dsim", *([RECORDER] if recording else [])):
            text = (DEMO / f"{name}.yaml").read_text()
            text = text.replace(SYNC_TIME, now).replace(PORT, f":{harness.PORT}")
            config = yaml.safe_load(text.replace("config/demo/m003.delays", str(delays)))
            if name == RECORDER:
                config["output"] = {"file": str(recording)}
            if name in ENGINES and os.geteuid() == 0:
                config = harness.merge(config, {"recv": PATIENT[name.rstrip("01")]})
            if name.startswith("fgpu") and os.geteuid() == 0:
                config["outputs"][0]["buffers"] = 32
                config["send"]["rate_factor"] = 4  # which makes up for a late thread
            if name == "dsim":
                config = harness.merge(config, dsim or {})
            else:
                config = harness.merge(config, {"http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}})
            if katcp and "katcp" in config:
                config["katcp"] = {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}
            else:
                config.pop("katcp", None)
            self.configs[name] = config
        self.daemon, self.work = daemon, work
        self.processes, self.clocks = {}, {}

    def start(self, *names):
        for name in names:
            if not harness.SANITIZED:
                self.clocks.setdefault(name, harness.Clock(self.work / f"{name}.clock"))
            again = f"{name}.again" if name in self.processes else name
            self.processes[name] = self.daemon(name.rstrip("01"), self.configs[name], again, clock=self.clocks.get(name),
                                                first=True)
        for name in names:
            self.processes[name].wait_ready()
        return self

    def __getitem__(self, name):
        return self.processes[name]

    def url(self, name, path=""):
        return f"http://{self.configs[name]['http']['listen']}/{path}"
