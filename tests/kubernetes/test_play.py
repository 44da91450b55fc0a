"""An array of two antennas, run by 'podman kube play' from the manifests of scripts/array.

podman has no scheduler and no probes here.  So these tests show that the image, the configurations, the directories,
the capabilities and the limits suffice, and that a program starts again.  tests/scripts/test_array_kubernetes.py tests
the rest of the manifests.
"""
import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request

import aiokatcp
import numpy as np
import pytest
import yaml

import harness
import xmodel
from harness import groups, until

IMAGE = os.environ["CBF_IMAGE"]
RATE = 262144  # samples/s: also beside other work
CHANNELS = 256
SUBSTREAMS = 2
DUMP_BATCHES = 8  # 0.5 s
NAMES = ("r0", "x0", "x1", "f0", "f1", "control")  # in the order in which they start
SIGNALS = "sky = wgn(0.03, 100); sky + wgn(0.03, 1); sky + wgn(0.03, 2); sky + wgn(0.03, 3); wgn(0.05, 4);"
COHERENCE = 0.5  # of polarisation 0: half of the power of each input is the sky
CAPABILITIES = {"r0": 0, "x0": 1 << 14 | 1 << 23, "f0": 1 << 14 | 1 << 23}  # CAP_IPC_LOCK, CAP_SYS_NICE


def podman(*arguments, check=True):
    done = subprocess.run(["podman", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)
    assert not check or done.returncode == 0, f"podman {arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def log_of(name):
    done = subprocess.run(["podman", "logs", f"{name}-pod-0-{name}"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


class Array:
    """The files of an array, and its pods."""

    def __init__(self, work):
        self.work = work
        self.inputs = [[f"{host}:{port}" for host, port in harness.endpoints(groups(2))] for _ in range(2)]
        first = harness.free_tcp_port()
        self.array = {
            "name": "small",
            "time": {"sync_time": 1_700_000_000, "adc_sample_rate": RATE},
            "antennas": [{"name": f"m{a:03}", "pol0": pols[0], "pol1": pols[1], "position": [30 * a, 0, 0]}
                         for a, pols in enumerate(self.inputs)],
            "f_outputs": [{"name": "wide", "channels": CHANNELS, "spectra_per_heap": 32, "taps": 4, "gain": 0.5,
                           "dither": "none", "substreams": SUBSTREAMS}],
            "x_outputs": [{"name": "vis", "stream": "wide", "integration_batches": DUMP_BATCHES, "send_enabled": True}],
            "telescope": {"latitude": -30, "longitude": 21, "altitude": 0},
            "recorders": [{"output": "vis", "host": "here", "directory": str(work / "recordings")}],
            "multicast": {"range": "239.98.0.0/24"},
            "ports": {"http": first, "katcp": first + 100},
            "control": {"allow": "127.0.0.0/8"},
            "controller": {"host": "here", "http": first + 200, "katcp": first + 201},
            "hosts": [{"name": "here", "address": "127.0.0.1", "memory": 8, "cores": 64,
                       "interfaces": [{"name": "lo", "rate": 10}],
                       "engines": [{"kind": kind, "gpu": "cpu"} for kind in ("fgpu", "fgpu", "xbgpu", "xbgpu")]}],
            # Enough chunks for engines that have to wait for a CPU.
            "fgpu": {"device": {"threads": 1}, "send": {"ttl": 0, "rate_factor": 4},
                     "recv": {"chunk_samples": 1 << 15, "max_delay_diff": 0, "buffer": 1 << 22, "window": 4,
                              "chunks": 32}},
            "xbgpu": {"device": {"threads": 1}, "send": {"ttl": 0},
                      "recv": {"batches_per_chunk": 1, "buffer": 1 << 22, "window": 32, "chunks": 67}},
        }
        path = work / "array.yaml"
        path.write_text(yaml.safe_dump(self.array))
        tag = IMAGE.rpartition(":")[2]
        subprocess.run([sys.executable, harness.ROOT / "scripts/array", path, "--programs", harness.BUILD, "--output",
                        work / "made", "--kubernetes", tag], check=True, stdout=subprocess.DEVNULL)
        self.listen = {name: self.config(name)["http"]["listen"].replace("0.0.0.0", "127.0.0.1") for name in NAMES}
        (self.destinations,) = [output["destinations"] for output in self.load("streams.yaml")["x_outputs"]]

    def load(self, name):
        return yaml.safe_load((self.work / "made" / name).read_text())

    def config(self, name):
        return self.load(f"services/{name}.yaml")

    def manifest(self, name):
        return self.work / f"made/kubernetes/{name}.yaml"

    def start(self):
        for name in NAMES:
            podman("kube", "play", self.manifest(name))
        dsim = self.work / "dsim.yaml"
        dsim.write_text(yaml.safe_dump({
            "time": self.array["time"],
            "digitiser": {"packet_samples": 4096, "dither_seed": 1},
            "signals": {"specification": SIGNALS},
            "antennas": [{"name": f"m{a:03}", "digitiser_id": 2 * a, "pol0": pols[0], "pol1": pols[1]}
                         for a, pols in enumerate(self.inputs)],
            "send": {"interface": "lo", "ttl": 0}}))
        podman("run", "-d", "--name", "cbf-dsim", "--network", "host", "--read-only", "--cap-drop", "all", "-v",
               f"{dsim}:/etc/cbf/dsim.yaml:ro", IMAGE, "/usr/bin/dsim", "/etc/cbf/dsim.yaml")

    def stop(self):
        podman("rm", "-f", "-t", "1", "cbf-dsim", check=False)
        for name in NAMES:
            podman("kube", "down", self.manifest(name), check=False)

    def show(self, name, field):
        return podman("inspect", "-f", "{{." + field + "}}", f"{name}-pod-0-{name}")

    def get(self, name, path):
        with urllib.request.urlopen(f"http://{self.listen[name]}{path}", timeout=10) as answer:
            return answer.read().decode()


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    array = Array(tmp_path_factory.mktemp("kubernetes"))
    try:
        array.start()
        yield array
    finally:
        array.stop()


def is_complete(heap):
    return heap.kind == "data" and not (heap.items["xeng_raw"] == xmodel.MAGIC).all(-1).any()


def wait_complete(receiver, after_s, substreams=range(SUBSTREAMS)):
    """Waits for a complete dump of each substream that came after 'after_s'.  Returns {first channel: dump}."""
    wanted = [substream * CHANNELS // SUBSTREAMS for substream in substreams]

    def found(heaps):
        return {h.items["frequency"]: h for h in heaps if h.kind == "data" and h.arrival_s > after_s and is_complete(h)}
    receiver.wait(lambda heaps: set(wanted) <= set(found(heaps)), f"complete dumps of channels {wanted}")
    return found(receiver.data())


def test_chain(array):
    """dsim -> fgpu -> xbgpu -> heaps and files.  The coherence of the antennas is that of their signals."""
    with harness.Receiver(array.destinations, may_lose=True) as receiver:
        wait_complete(receiver, 0)
        dumps = wait_complete(receiver, time.monotonic())
    visibilities = np.concatenate([dumps[first].items["xeng_raw"] for first in sorted(dumps)]).astype(float)
    visibilities = visibilities[..., 0] + 1j * visibilities[..., 1]  # [channel][4 products of each baseline 00, 01, 11]
    assert visibilities.shape == (CHANNELS, 12)
    autos = visibilities[:, 0].real * visibilities[:, 8].real
    assert (autos > 0).all()
    coherence = (visibilities[:, 4] / np.sqrt(autos)).mean()
    assert coherence == pytest.approx(COHERENCE, abs=0.03)
    until(lambda: "visrec_dumps_total 0" not in array.get("r0", "/metrics"), "a recorded dump")
    assert list((array.work / "recordings").glob("small-vis-*.uvh5"))


@pytest.mark.parametrize("name", CAPABILITIES)
def test_privileges(name, array):
    """Each process has only the capabilities of its manifest, and may write to its directories only."""
    assert array.get(name, "/healthz") == "ok\n"
    with open(f"/proc/{array.show(name, 'State.Pid')}/status", encoding="ascii") as file:
        status = dict(line.rstrip().split(":\t", 1) for line in file)
    for kind in ("CapEff", "CapBnd", "CapPrm"):
        assert int(status[kind], 16) == CAPABILITIES[name], kind
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    for place in ("/etc/cbf/x", "/x"):
        done = subprocess.run(["podman", "exec", f"{name}-pod-0-{name}", "touch", place], capture_output=True,
                              text=True, check=False)
        assert done.returncode and "Read-only file system" in done.stderr
    logged = log_of(name)
    assert logged and "not locked" not in logged and "not kept" not in logged, logged


def test_controller(array):
    """The controller finds the engines by the names of their Services, and changes settings of all of them."""
    host, port = array.config("control")["katcp"]["listen"].split(":")

    async def run():
        async with asyncio.timeout(60):
            client = await aiokatcp.Client.connect(host, int(port))
            async with client:
                while True:
                    _, informs = await client.request("engine-list")
                    rows = [[word.decode() for word in inform.arguments] for inform in informs]
                    if {row[0] for row in rows if "present" in row} == {"f0", "f1", "x0", "x1"}:
                        break
                    await asyncio.sleep(0.2)
                await client.request("gain-all", "wide", "0.25")
                reply, _ = await client.request("gain", "wide", "m001h")
                await client.request("gain-all", "wide", "default")
                return reply[0].decode()
    assert complex(asyncio.run(run())) == pytest.approx(0.25)


def test_kill(array):
    """A killed engine starts again, and its output is complete again."""
    with harness.Receiver(array.destinations, may_lose=True) as receiver:
        wait_complete(receiver, 0)
        pid, killed_s = array.show("x0", "State.Pid"), time.monotonic()
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: array.show("x0", "State.Pid") not in ("0", pid), "a new process")
        dump = wait_complete(receiver, time.monotonic(), [0])[0]
    print(f"\nfrom kill -9 to a complete dump: {dump.arrival_s - killed_s:.2f} s")


def copy_of(array, name):
    """Writes the manifest of a second instance of an engine, as after a network split, with its own ports and state."""
    text = array.manifest(name).read_text()
    documents = [document for document in yaml.safe_load_all(text) if document["kind"] != "Service"]
    for document in documents:
        document["metadata"]["name"] += "-copy"
    config, pod = documents[0]["data"], documents[1]["spec"]["template"]["spec"]
    for port in {array.config(name)[section]["listen"].rpartition(":")[2] for section in ("http", "katcp")}:
        config[f"{name}.yaml"] = config[f"{name}.yaml"].replace(f":{port}", f":{harness.free_tcp_port()}")
    pod["volumes"][0]["configMap"]["name"] += "-copy"
    pod["volumes"][1]["hostPath"]["path"] += "-copy"
    path = array.work / f"{name}-copy.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def counted(text, metric, **labels):
    """The sum of a counter over all its samples with these labels."""
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith(metric) and all(label in line for label in wanted))


@pytest.mark.parametrize("name,receiver,program", [("f0", "x1", "xbgpu_input"), ("x0", "r0", "visrec")])
def test_two_instances(name, receiver, program, array):
    """A second instance sends the same bytes.  Its receiver counts duplicates, and complete dumps come."""
    def count(what, **labels):
        return counted(array.get(receiver, "/metrics"), f"{program}_{what}_total", **labels)
    copy = copy_of(array, name)
    with harness.Receiver(array.destinations, may_lose=True) as heaps:
        wait_complete(heaps, time.monotonic())
        duplicates, contested = count("rejected_packets", reason="duplicate"), count("contested_heaps")
        podman("kube", "play", copy)
        try:
            until(lambda: count("rejected_packets", reason="duplicate") > duplicates + 50, "duplicates")
            since_s = time.monotonic()
            for _ in range(3):
                wait_complete(heaps, time.monotonic())
        finally:
            podman("kube", "down", copy)
    dumps = [heap for heap in heaps.data() if heap.arrival_s > since_s]
    n_complete = sum(is_complete(heap) for heap in dumps)
    contested = count("contested_heaps") - contested
    print(f"\ntwo instances of {name}: {n_complete} of {len(dumps)} dumps complete, {contested:g} heaps contested")
    # A busy host may lose data of either instance, so the number of complete dumps is only printed.
    assert contested == 0


def test_wrong_configuration(array):
    """A faulty file ends the engine with 78.  The engine is started again, so an alert must report this code."""
    documents = list(yaml.safe_load_all(array.manifest("f1").read_text()))
    documents[0]["data"]["f1.yaml"] = documents[0]["data"]["f1.yaml"].replace('interface: "lo"', 'interface: "nosuch0"')
    wrong = array.work / "wrong.yaml"
    wrong.write_text(yaml.safe_dump_all(documents))
    podman("kube", "down", array.manifest("f1"))
    podman("kube", "play", wrong, check=False)
    try:
        until(lambda: int(array.show("f1", "RestartCount")) >= 2, "two restarts")
        until(lambda: array.show("f1", "State.ExitCode") == "78", "exit code 78")
        assert "nosuch0" in log_of("f1")
    finally:
        podman("kube", "down", wrong)
        podman("kube", "play", array.manifest("f1"))


def test_stop(array):
    """A stop lets the engine drain: its stop heap comes, and its exit code is 0."""
    with harness.Receiver(array.destinations, may_lose=True) as receiver:
        wait_complete(receiver, time.monotonic())
        podman("stop", "-t", "90", "x1-pod-0-x1")
        receiver.wait(lambda heaps: any(h.kind == "stop" for h in heaps), "a stop heap")
        assert array.show("x1", "State.ExitCode") == "0"
