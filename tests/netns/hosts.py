"""Hosts that are network namespaces on a bridge with real multicast, and the programs on them.

The test itself runs in a namespace, which contains the bridge.  Everything ends with the test, by PR_SET_PDEATHSIG.
Linux sends this signal when the thread that started the process ends.
"""
import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("CBF_BUILD", "build")
NO_NAMESPACES = 77
BRIDGE_ADDRESS = "10.77.0.254"
MTU = 9000
START_S, STEP_S = 60, 60  # how long a start, and each step, may take
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
STARTED = time.monotonic()


class Wrong(Exception):
    """Something is not as it must be, in one sentence."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def sh(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def wait(condition, what, timeout_s, step_s=0.1):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"{what}: not within {timeout_s:g} s")
        time.sleep(step_s)


def say(text):
    print(f"{time.monotonic() - STARTED:5.1f} s  {text}", flush=True)


# ---- Hosts and processes ---------------------------------------------------------------------------------------------


def make_bridge(*options):
    """Makes the bridge that joins the hosts, with these options."""
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "br0", "type", "bridge", *options)
    sh("ip", "link", "set", "br0", "mtu", str(MTU), "up")
    sh("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", "br0")


class Host:
    """A network namespace, which lives as long as a process that does nothing.

    'disk': a directory on a tmpfs.  The host then also has a mount namespace, with its own /etc and /var/lib.  The
    directory contains the changes, as disk/etc and disk/var/lib.
    """

    def __init__(self, name, address, disk=None):
        self.name, self.disk = name, disk
        mounts = "".join(f'mkdir -p "{disk}/{folder}" "{disk}/.work/{folder}"\nmount -t overlay overlay -o '
                         f'"lowerdir=/{folder},upperdir={disk}/{folder},workdir={disk}/.work/{folder}" /{folder}\n'
                         for folder in ("etc", "var/lib")) if disk else ""
        self.holder = subprocess.Popen(
            ["unshare", "--net", *(["--mount"] if disk else []), "sh", "-ec",
             f"{mounts}echo ready\nexec sleep infinity"], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if self.holder.stdout.readline() != "ready\n":
            raise Wrong(f"there is no namespace for {name}")
        spaces = f"/proc/{self.holder.pid}/ns"
        self.enter = ["nsenter", f"--net={spaces}/net", *([f"--mount={spaces}/mnt"] if disk else [])]
        sh("ip", "link", "add", name, "mtu", str(MTU), "type", "veth", "peer", "name", "eth0", "mtu", str(MTU),
           "netns", str(self.holder.pid))
        sh("ip", "link", "set", name, "master", "br0", "up")
        sh(*self.enter, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        sh(*self.enter, "ip", "link", "set", "lo", "up")
        self.link("up")

    def link(self, state):
        sh(*self.enter, "ip", "link", "set", "eth0", state)

    def end(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class Process:
    """A program, in a host's namespace or on the bridge.  It reports when it is ready."""

    def __init__(self, out, name, command, host=None, environment=None, start_s=START_S):
        path = str(out / f".{name}.ready")
        Path(path).unlink(missing_ok=True)
        self.name, self.log = name, out / f"{name}.log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(self.log, "ab") as log:
            ready.bind(path)
            ready.settimeout(0.2)
            self.process = subprocess.Popen([*(host.enter if host else []), *command], stdout=log, stderr=log,
                                            env={**os.environ, "NOTIFY_SOCKET": path, **(environment or {})},
                                            preexec_fn=die_with_parent)
            wait(lambda: self._is_ready(ready), f"{name} is ready (see {self.log})", start_s, 0)
        Path(path).unlink()

    def _is_ready(self, ready):
        if self.process.poll() is not None:
            raise Wrong(f"{self.name} ended at its start:\n{self.log.read_text()}")
        try:
            return b"READY=1" in ready.recv(4096)
        except TimeoutError:
            return False

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Wrong(f"{self.name} did not end") from None


def run_array(out, *options):
    """Runs scripts/array on array.yaml in 'out', which writes to 'out/made'.  Returns the printed table."""
    done = subprocess.run([sys.executable, ROOT / "scripts/array", out / "array.yaml", "--output", out / "made",
                           "--programs", BUILD, *options], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, flush=True)
    if done.returncode:
        raise Wrong(f"scripts/array ended with code {done.returncode}")
    return done.stdout


def read_made(out, name):
    """A YAML file that scripts/array made."""
    return yaml.safe_load((out / "made" / name).read_text())


# ---- What the programs say -------------------------------------------------------------------------------------------


def page(address, path):
    """What an address serves."""
    with urllib.request.urlopen(f"http://{address}/{path}", timeout=5) as reply:
        return reply.read().decode()


def samples(address, name=r"\w+"):
    """[(name and labels, value)] of the metrics at an address."""
    found = (re.match(rf"({name}(?:\{{.*\}})?) (\S+)$", line) for line in page(address, "metrics").splitlines())
    return [(sample[1], float(sample[2])) for sample in found if sample]


def metrics(address):
    """Sums of the metrics at an address, by name."""
    sums = {}
    for sample, value in samples(address):
        name = sample.partition("{")[0]
        sums[name] = sums.get(name, 0.0) + value
    return sums


def request(address, line):
    """Sends a KATCP request.  Returns the lines of the answer.  Raises Wrong if the reply is not ok."""
    host, _, port = address.partition(":")
    found = []
    with socket.create_connection((host, int(port)), timeout=START_S) as client, client.makefile("rw") as lines:
        lines.write(f"?{line}\n")
        lines.flush()
        for text in lines:
            found.append(text.rstrip("\n"))
            if text.startswith("!"):
                break
    if not found or found[-1].split()[:2] != [f"!{line.split()[0]}", "ok"]:
        raise Wrong(f"?{line} to {address}: {found[-1] if found else 'no answer'}")
    return found


class Prometheus:
    """A real Prometheus with the configuration that scripts/array made; None if Prometheus is not installed."""

    def __init__(self, out):
        self.process = None
        if not shutil.which("prometheus"):
            say("no Prometheus here: its alerts are not tried")
            return
        shutil.rmtree(out / "tsdb", ignore_errors=True)  # an earlier array's past
        made = out / "made/prometheus"
        with open(out / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={made / 'prometheus.yaml'}", f"--storage.tsdb.path={out / 'tsdb'}",
                 "--web.listen-address=127.0.0.1:9090"], stdout=log, stderr=log, preexec_fn=die_with_parent)

    @staticmethod
    def ask(what):
        return json.loads(page("127.0.0.1:9090", f"api/v1/{what}"))["data"]

    def alerts(self):
        """{(alert, host)} that fire."""
        return {(alert["labels"]["alertname"], alert["labels"].get("host"))
                for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    def expect_none(self, n_targets):
        """All targets and the array are well."""
        if self.process:
            wait(lambda: [target["health"] for target in self.ask("targets")["activeTargets"]] == n_targets * ["up"],
                 "all targets of Prometheus are up", STEP_S)
            if self.alerts():
                raise Wrong(f"nothing is wrong, and these alerts fire: {self.alerts()}")

    def expect_targets(self, hosts):
        """Prometheus has followed a move."""
        if self.process:
            wait(lambda: {(t["labels"]["host"], t["health"]) for t in self.ask("targets")["activeTargets"]}
                 == {(host, "up") for host in hosts}, f"Prometheus' targets are on {hosts}", STEP_S, 0.5)

    def expect(self, *alerts):
        if self.process:
            wait(lambda: self.alerts() >= set(alerts), f"alerts {alerts}; there are {self.alerts()}", STEP_S, 0.5)
            say("firing: " + ", ".join(f"{name} ({host})" for name, host in sorted(alerts)))

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()


# ---- The test's own namespace ----------------------------------------------------------------------------------------


def directory(text):
    """The path of a directory in the command line.  A program that leaves this directory can use it."""
    return Path(text).resolve()


def main(run, doc, script, arguments=None):
    """Runs a test in a namespace with the name and options of its command line.  Returns the exit status.

    'run(args)' is the test.  'arguments(parser)' adds its options.  'script' is the test's file.
    """
    name = Path(script).stem
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=directory, default=directory(f"{name.replace('_', '-')}-output"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in a namespace of its own
    if arguments:
        arguments(parser)
    args = parser.parse_args()
    if not args.inside:
        unshare = ["unshare", "--net", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        probe = subprocess.run([*unshare, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, text=True,
                               check=False)
        if probe.returncode:
            print(f"{name}: namespaces with a bridge are not permitted here: {probe.stderr.strip()}")
            return NO_NAMESPACES
        os.execvp("unshare", [*unshare, sys.executable, os.path.abspath(script), "--inside", *sys.argv[1:]])
    args.output.mkdir(parents=True, exist_ok=True)
    try:
        run(args)
    except Wrong as error:
        for one in filter(None, (error.__context__, error)):  # a program that does not end must not hide the cause
            print(f"{name}: {one}", flush=True)
        return 1
    say("All as expected.")
    return 0
