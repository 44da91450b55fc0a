#!/usr/bin/env python3
"""many_hosts: an array across many hosts, from array.yaml to running programs, and the time until a fault is named.

    tests/netns/many_hosts.py [--hosts N] [--fgpu N] [--xbgpu N] [--rate HZ] [--pictures DIRECTORY] [--output DIRECTORY]

Each host is a network namespace with its own interface, its own /etc and its own /var/lib.  A bridge with multicast
snooping joins the hosts.  scripts/array makes all files from one array.yaml.  Ansible runs the playbook, which starts
every program: F-engines and X-engines on N hosts, a recorder on another host, and the controller on one more host.
Digitisers (dsim), Prometheus, cbf-doctor and Chromium are on the bridge.

The test waits until the array page is green, no alert fires, and cbf-doctor finds nothing.  Each antenna's name must be
in the array page, the engines' status pages, the controller's sensors, the alerts' rules and the recording.

Then come three faults, one after another: the feed of an antenna is cut, an F-engine is killed, and the link of a host
goes down.  The array page, an alert and cbf-doctor must each name the right antenna, engine and host within WITHIN_S.

At last a host is lost: its programs are killed, and its link goes down.  scripts/array moves its engines to the spare, and
Ansible starts them there.  The first dump without a flag must end SPARE_S after the command at the latest.  Meanwhile the
other antennas and the other channels lose nothing.

Exit status: 0 all checks passed, 1 a check failed, 77 namespaces are not permitted here, or Ansible is missing.
"""
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

import h5py
import numpy as np
import yaml

import deployed
import hosts
from hosts import BUILD, ROOT, Process, Prometheus, Wrong, page, request, say, sh, wait

sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "scripts")]
import browser  # noqa: E402
import harness  # noqa: E402
import visfile  # noqa: E402

NAME = "many"
WITHIN_S = 10  # time within which each fault must be named
STEADY_S = 180  # time within which the array must be without a fault, after a start or after a fault was mended
GIVE_UP_S = 60
SPARE_S = 30  # time from the command that moves engines to the spare, to the end of the first dump without a flag
SPARE = "spare"
N_CHANNELS, SPECTRA_PER_HEAP = 128, 64
DSIM_KATCP = "127.0.0.1:7147"
PICTURE = {"width": 1280, "height": 1020}
COLOURS, MAX_BYTES = 64, 200_000


# ---- The array -------------------------------------------------------------------------------------------------------


def array_yaml(n_hosts, n_fgpu, n_xbgpu, rate_hz):
    """The contents of array.yaml.  The last three hosts have the recorder and the controller, and nothing."""
    n_ants = n_hosts * n_fgpu
    names = [f"h{i + 1}" for i in range(n_hosts)] + ["store", "control", SPARE]
    engines = [{"kind": kind, "gpu": "cpu"} for kind in n_fgpu * ["fgpu"] + n_xbgpu * ["xbgpu"]]
    return {
        "name": NAME,
        "time": {"sync_time": int(time.time()), "adc_sample_rate": rate_hz},
        "digitiser": {"sample_bits": 10, "packet_samples": 2048},
        "antennas": [{"name": f"m{i:03}", "pol0": f"239.102.{i}.0", "pol1": f"239.102.{i}.1",
                      "position": [30 * i, 0, 0]} for i in range(n_ants)],
        "telescope": {"latitude": -30.7128, "longitude": 21.4436, "altitude": 1038},
        "f_outputs": [{"name": "wide", "channels": N_CHANNELS, "substreams": n_hosts * n_xbgpu,
                       "spectra_per_heap": SPECTRA_PER_HEAP, "gain": 0.05, "dither": "none", "buffers": 32}],
        "x_outputs": [{"name": "vis", "stream": "wide", "integration_batches": 8, "send_enabled": True, "buffers": 8}],
        "multicast": {"range": "239.103.0.0/24"},
        "control": {"allow": "10.77.0.0/24"},
        "recorders": [{"output": "vis", "host": "store"}],
        "controller": {"host": "control"},
        "hosts": [{"name": name, "address": f"10.77.0.{i + 1}", "memory": 2, "cores": 4 * len(engines),
                   "interfaces": [{"name": "eth0", "rate": 1}],
                   **({"spare": True} if name == SPARE else {"engines": engines if i < n_hosts else []})}
                  for i, name in enumerate(names)],
        # As in three_hosts.yaml, for a busy machine.
        "fgpu": {"device": {"threads": 1},
                 "recv": {"threads": 1, "chunk_samples": 16384, "max_delay_diff": 8192, "window": 4, "chunks": 32,
                          "buffer": 4194304},
                 "send": {"packet_payload": 4096, "rate_factor": 4}},
        "xbgpu": {"device": {"threads": 1},
                  "recv": {"batches_per_chunk": 1, "window": 16, "chunks": 48, "buffer": 4194304},
                  "send": {"packet_payload": 4096}}}


class Array:
    """The array, its hosts and its surroundings."""

    def __init__(self, args):
        self.out, out = args.output, args.output
        self.n_x = args.hosts * args.xbgpu
        self.config = array_yaml(args.hosts, args.fgpu, args.xbgpu, args.rate)
        (out / "array.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        shutil.rmtree(out / "made", ignore_errors=True)
        self.plan()
        inventory = hosts.read_made(out, "inventory.yaml")["all"]["children"]["cbf"]["hosts"]
        self.addresses = {name: host["ansible_host"] for name, host in inventory.items()}
        self.hosts, self.units, self.dsim, self.prometheus = {}, None, None, None

    def plan(self, *options):
        """Runs scripts/array, and reads what runs where.  Returns the printed text."""
        text, out = hosts.run_array(self.out, *options), self.out
        self.targets = hosts.read_made(out, "prometheus/targets.yaml")
        self.control = hosts.read_made(out, "services/control.yaml")
        self.antennas = [antenna["name"] for antenna in self.control["antennas"]]
        self.engines = {engine["name"]: engine for engine in self.control["engines"]}
        return text

    def start(self):
        hosts.make_bridge("mcast_snooping", "1", "mcast_querier", "1", "mcast_query_response_interval", "100")
        disks = self.out / "disks"
        disks.mkdir(exist_ok=True)
        sh("mount", "-t", "tmpfs", "none", disks)
        for name, address in self.addresses.items():
            self.hosts[name] = hosts.Host(name, address, disks / name)
        self.units = deployed.Units(self.out, self.hosts)
        deployed.play(self.out, self.hosts, self.addresses)
        clock = harness.Clock(self.out / "dsim.clock")
        path = self.out / "dsim.yaml"
        path.write_text(yaml.safe_dump(self.dsim_yaml(), sort_keys=False))
        self.dsim = Process(self.out, "dsim", [BUILD / "dsim", path], environment=clock.environment())
        self.prometheus = Prometheus(self.out)

    def dsim_yaml(self):
        """All antennas have the same sky, each with its own noise."""
        signals = "sky0 = wgn(0.05, 100); sky1 = wgn(0.05, 200);" + "".join(
            f" sky{pol} + wgn(0.03, {1000 + 2 * a + pol});" for a in range(len(self.antennas)) for pol in range(2))
        antennas = [{"name": a["name"], "digitiser_id": 2 * i, "pol0": a["pol0"], "pol1": a["pol1"]}
                    for i, a in enumerate(self.config["antennas"])]
        digitiser = {**self.config["digitiser"], "period": 65536, "dither_seed": 1}
        return {"time": self.config["time"], "digitiser": digitiser,
                "signals": {"specification": signals}, "antennas": antennas, "send": {"interface": "br0"},
                "katcp": {"listen": DSIM_KATCP}}

    def engine_of(self, antenna):
        return next(e for e in self.engines.values() if antenna in e.get("antennas", []))

    def unit(self, engine):
        return f"{engine['host']} {engine['program']}@{engine['name']}.service"

    def files(self):
        """The configurations of the engines, as the playbook wrote them to the hosts."""
        return [self.out / f"disks/{row['host']}/etc/cbf/{row['name']}.yaml" for row in self.engines.values()]

    def state(self):
        """/array.json of the controller; None if the controller has not read all pages yet."""
        try:
            return json.loads(page(self.control["http"]["listen"], "array.json"))
        except (urllib.error.URLError, TimeoutError):
            return None

    def alerts(self):
        """[the labels of an alert that fires]; None if there is no Prometheus."""
        if not self.prometheus.process:
            return None
        try:
            return [a["labels"] for a in self.prometheus.ask("alerts")["alerts"] if a["state"] == "firing"]
        except (urllib.error.URLError, TimeoutError):
            return [{"alertname": "none: Prometheus does not answer"}]

    def all_received(self):
        state = self.state()
        return bool(state) and all(
            row["state"] in ("ok", "warn") for row in state["engines"] + state["antennas"]) and all(
            row["heard_by"] == row["of"] == self.n_x for row in state["antennas"])

    def critical(self):
        return any(alert.get("severity") == "critical" for alert in self.alerts() or ())

    def wait_dumps(self, n):
        """Waits until the recorder has written n more dumps."""
        address = self.control["recorders"][0]["http"]
        goal = hosts.metrics(address)["visrec_dumps_total"] + n
        wait(lambda: hosts.metrics(address)["visrec_dumps_total"] >= goal, f"{n} dumps more", STEADY_S)

    def load(self):
        """A sentence about the load of the machine."""
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free, total = (int(rows[key].split()[0]) / (1 << 20) for key in ("MemAvailable", "MemTotal"))
        return (f"{len(self.units.processes) + 1} programs on {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}; "
                f"{total - free:.1f} of {total:.1f} GiB of memory in use")

    def end(self):
        """Ends all programs, F-engines first.  Keeps the hosts' configurations and the recording."""
        errors = []
        if self.prometheus:
            self.prometheus.end()
        programs = [("dsim", self.dsim.end)] if self.dsim else []
        for program in ("cbf-control", "fgpu", "xbgpu", "visrec"):
            programs += [(unit, lambda unit=unit: self.units.stop(unit))
                         for unit in (self.units.processes if self.units else ()) if f" {program}@" in unit]
        for name, end in programs:
            code = end()
            if code:
                errors.append(f"{name} ended with code {code}")
        for name, host in self.hosts.items():
            if (host.disk / "etc/cbf").is_dir():
                shutil.copytree(host.disk / "etc/cbf", self.out / "etc" / name, dirs_exist_ok=True)
            host.end()
        for path in (self.out / "disks/store/var/lib/cbf/r0").glob("*.uvh5"):
            shutil.copy(path, self.out)
        if errors:
            raise Wrong("; ".join(errors))


class Doctor:
    """cbf-doctor loss with all files, run again and again."""

    def __init__(self, array):
        self.command = [BUILD / "cbf-doctor", "loss", "--seconds", "1", "--quiet", *array.files()]
        self.path, self.process, self.code = array.out / "doctor.txt", None, None

    def poll(self):
        """Returns the report of a run that has just ended, in one line.  Returns "" if no run has ended."""
        if not self.process:
            with self.path.open("w") as text:
                self.process = subprocess.Popen(self.command, stdout=text, stderr=text,
                                                preexec_fn=hosts.die_with_parent)
        self.code = self.process.poll()
        if self.code is None:
            return ""
        self.process = None
        return " ".join(self.path.read_text().split())

    def report(self):
        """The report of a new run."""
        reports = []
        wait(lambda: reports.append(self.poll()) or reports[-1], "a report of cbf-doctor", GIVE_UP_S)
        return reports[-1]

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


# ---- The array page in a browser -------------------------------------------------------------------------------------


class Page:
    """The array page in Chromium; without Chromium or playwright, 'why_not' says why there is no page."""

    def __init__(self, array, pictures, stack):
        self.pictures, self.shown = pictures, None
        self.why_not = ("Chromium is not installed" if not browser.CHROMIUM else
                        "playwright is not installed" if not importlib.util.find_spec("playwright") else "")
        if self.why_not:
            say(f"the array page is not looked at: {self.why_not}")
            return
        self.shown = browser.new_page(stack.enter_context(browser.client()), **PICTURE)
        self.shown.goto(f"http://{array.control['http']['listen']}/")
        browser.wait_shown(self.shown)

    def banner(self):
        return self.shown.evaluate("document.getElementById('reason').textContent")

    def take(self, name):
        """Writes a picture after two more answers have been shown."""
        if self.pictures and self.shown:
            browser.wait_shown(self.shown, 2)
            self.pictures.mkdir(parents=True, exist_ok=True)
            path = self.pictures / f"array-{name}.png"
            browser.take(self.shown, path, COLOURS, MAX_BYTES)
            say(f"{path} has {path.stat().st_size} bytes")


# ---- Names -----------------------------------------------------------------------------------------------------------


def check_names(array):
    """Each antenna has its name in all places at which people look for it."""
    def must(where, text, names):
        missing = [name for name in names if name not in text]
        if missing:
            raise Wrong(f"{where} does not name {', '.join(missing)}")

    names = array.antennas
    must("/array.json", [row["name"] for row in array.state()["antennas"]], names)
    for engine in array.engines.values():
        status = json.loads(page(engine["http"], "status.json"))
        rows = status["inputs" if engine["program"] == "fgpu" else "fengs"]
        must(f"the status page of {engine['name']}", [row["antenna"] for row in rows], engine.get("antennas", names))
    sensors = [line.split()[1] for line in request(array.control["katcp"]["listen"], "sensor-list")[:-1]]
    for pol in "vh":
        must("the list of the controller's sensors", sensors, [f"wide.{name}{pol}.eq" for name in names])
    rules = hosts.read_made(array.out, "prometheus/rules.yaml")["groups"][0]["rules"]
    must("prometheus/rules.yaml", [rule["labels"]["antenna"] for rule in rules if "record" in rule], names)
    must("prometheus/targets.yaml", [target["labels"]["carries"] for target in array.targets], names)
    if array.prometheus.process:
        found = array.prometheus.ask("query?query=cbf_antenna_engine")["result"]
        must("Prometheus", [row["metric"]["antenna"] for row in found], names)
    say(f"{len(names)} antennas have their names on the array page, in {len(array.engines)} engines, in {len(sensors)} "
        "sensors of the controller, and in Prometheus")


def check_recording(array):
    """The recorder's files name the antennas, in their order.  Returns the path of the last file."""
    paths = sorted(array.out.glob("*.uvh5"))
    if not paths:
        raise Wrong("there is no recording")
    for path in paths:
        with h5py.File(path) as file:
            names = [name.decode() for name in file["Header/antenna_names"][:]]
            n_dumps = int(file["Header/Ntimes"][()])
        if names != array.antennas or not n_dumps:
            raise Wrong(f"{path} has {n_dumps} dumps and the antennas {names}")
        say(f"{path.name} has {n_dumps} dumps of {len(names)} antennas with the right names")
    return paths[-1]


# ---- Faults ----------------------------------------------------------------------------------------------------------


class Fault:
    """A fault.  page(banner), alert(labels of all firing alerts) and doctor(report) return true if the fault is named
    there: the antennas, and for a lost engine or host also the engine or the host."""

    name = ""

    def __init__(self, array, host):
        """The fault is on the host with this number."""
        self.array = array
        self.host = list(array.addresses)[host]
        self.engines = [engine for engine in array.engines.values() if engine["host"] == self.host]
        self.lost = [next(engine for engine in self.engines if engine["program"] == "fgpu")]  # F-engines
        self.find()

    def find(self):
        self.antennas = [antenna for engine in self.lost for antenna in engine["antennas"]]

    def has(self, text, *words):
        return all(re.search(rf"\b{word}\b", text) for word in [*self.antennas, *words])


class FeedCut(Fault):
    name = "feed-cut"

    def begin(self):
        request(DSIM_KATCP, f"loss {self.antennas[0]} 1")

    def mend(self):
        request(DSIM_KATCP, f"loss {self.antennas[0]} 0")

    def __str__(self):
        return f"the feed of {self.antennas[0]} is cut"

    def page(self, banner):
        return self.has(banner, "digitiser")

    def alert(self, alerts):
        return any(a["alertname"] == "FeedSilent" and self.antennas == [a["antenna"]] for a in alerts)

    def doctor(self, report):
        return self.has(report, f"{self.lost[0]['name']}.yaml")


class EngineKilled(Fault):
    name = "engine-killed"

    def begin(self):
        self.array.units.stop(self.array.unit(self.lost[0]), signal.SIGKILL)

    def mend(self):
        self.array.units.start(self.array.unit(self.lost[0]))

    def __str__(self):
        return f"{self.lost[0]['name']} of {self.antennas[0]} is killed"

    def page(self, banner):
        return self.has(banner, self.lost[0]["name"], self.host)

    def alert(self, alerts):
        down = {(a["engine"], a["carries"]) for a in alerts if a["alertname"] == "EngineDown"}
        return (self.lost[0]["name"], self.antennas[0]) in down

    def doctor(self, report):
        return self.has(report, f"{self.lost[0]['name']}.yaml")


class LinkDown(Fault):
    name = "link-down"

    def find(self):
        self.lost = [engine for engine in self.engines if engine["program"] == "fgpu"]
        super().find()

    def begin(self):
        self.array.hosts[self.host].link("down")

    def mend(self):
        self.array.hosts[self.host].link("up")

    def __str__(self):
        return f"the link of {self.host} is down"

    def page(self, banner):
        return self.has(banner, self.host)

    def alert(self, alerts):
        down = {a["engine"]: a["carries"] for a in alerts if a["alertname"] == "EngineDown" and a["host"] == self.host}
        return set(down) == {engine["name"] for engine in self.engines} and all(
            down[engine["name"]] in self.antennas for engine in self.lost)

    def doctor(self, report):
        return self.has(report, *(f"{engine['name']}.yaml" for engine in self.engines))


def measure(array, shown, doctor, fault):
    """Begins a fault.  Returns {place: seconds until the fault is named there}.  The seconds are None if Chromium or
    Prometheus is missing."""
    def watchers():
        yield "page", not shown.why_not and (lambda: fault.page(shown.banner()))
        yield "alert", array.prometheus.process and (lambda: fault.alert(array.alerts()))
        yield "doctor", lambda: fault.doctor(doctor.poll())

    took = dict.fromkeys(place for place, _ in watchers())
    waiting = {place: look for place, look in watchers() if look}
    report = doctor.report()  # the next run begins after the fault
    named = ["doctor"] if fault.doctor(report) else [p for p, look in waiting.items() if p != "doctor" and look()]
    if named:
        raise Wrong(f"{', '.join(named)}: {fault}, before the fault begins")
    began = time.monotonic()
    fault.begin()
    say(f"{fault}")
    while waiting:
        for place, look in list(waiting.items()):
            if look():
                took[place] = time.monotonic() - began
                say(f"{place}: named after {took[place]:.1f} s")
                del waiting[place]
        if time.monotonic() > began + GIVE_UP_S:
            raise Wrong(f"{fault}: not named within {GIVE_UP_S} s by {', '.join(waiting)}")
        time.sleep(0.05)
    shown.take(f"{len(array.antennas)}x{array.n_x}-{fault.name}")
    (array.out / "doctor.txt").rename(array.out / f"doctor-{fault.name}.txt")
    return took


def print_table(rows):
    """The seconds, as a table of Markdown."""
    print(f"\n| fault | array page | alert | `cbf-doctor` |\n|{'---|' * 4}")
    for fault, took in rows:
        print(f"| {fault} | " + " | ".join("–" if s is None else f"{s:.1f} s" for s in took.values()) + " |")
    print(flush=True)


# ---- The spare -------------------------------------------------------------------------------------------------------


class Move:
    """A host is lost, and its engines move to the spare."""

    def __init__(self, array, host):
        home = list(array.addresses)[host]
        engines = [engine for engine in array.engines.values() if engine["host"] == home]
        self.antennas = {name for engine in engines for name in engine.get("antennas", [])}
        self.channels = np.zeros(N_CHANNELS, bool)
        for engine in engines:
            if engine["program"] == "xbgpu":
                self.channels[engine["first_channel"]:engine["first_channel"] + engine["channels"]] = True
        array.wait_dumps(2)
        self.lost_s = time.time()
        for engine in engines:
            array.units.stop(array.unit(engine), signal.SIGKILL)
        array.hosts[home].link("down")
        say(f"{home} is lost")
        array.wait_dumps(4)
        self.command_s = time.time()
        limit = re.search(r"--limit (\S+)", array.plan("--move", home, SPARE))[1]
        deployed.play(array.out, array.hosts, array.addresses, "--limit", limit)
        say(f"the engines of {home} run on {SPARE} {time.time() - self.command_s:.1f} s after the command")
        wait(array.all_received, "X-engines receive all antennas again", STEADY_S, 0.5)
        array.wait_dumps(8)

    def check(self, path, names):
        """Checks the flags of the recording, from the loss on."""
        data = visfile.load(path, "xx")
        dump_s = float(np.median(np.diff(data.unix_s)))
        flags = np.ma.getmaskarray(data.vis)
        begins_s, ends_s = data.unix_s - dump_s / 2, data.unix_s + dump_s / 2
        lost = np.array([bool({names[a1], names[a2]} & self.antennas) for a1, a2 in data.baselines])
        after = ends_s > self.lost_s
        if (flags[after] & ~lost[:, None] & ~self.channels).any():
            raise Wrong("other antennas or other channels lost data while the engines moved")
        gone = (begins_s > self.lost_s + dump_s) & (ends_s < self.command_s)
        if not gone.any() or not flags[gone][:, lost].all():
            raise Wrong("the data of the lost host are not flagged before the move")
        whole_s = [end_s for end_s, flagged in zip(ends_s, flags.any(axis=(1, 2))) if end_s > self.command_s and not flagged]
        if not whole_s:
            raise Wrong("no dump is whole after the move")
        say(f"the first whole dump ended {whole_s[0] - self.command_s:.1f} s after the command")
        if whole_s[0] - self.command_s > SPARE_S:
            raise Wrong(f"the first whole dump ended more than {SPARE_S} s after the command")


# ---- The story -------------------------------------------------------------------------------------------------------


def wait_steady(array, shown, doctor):
    """Waits until all three say that nothing is wrong."""
    def told():
        state = array.state()
        if not state or state["level"] != "ok" or not array.all_received():
            return f"the array page says: {state and state['banner']}"
        if array.alerts():
            return f"alerts fire: {array.alerts()}"
        report = doctor.report()
        return "" if doctor.code == 0 else f"cbf-doctor says: {report}"

    deadline = time.monotonic() + STEADY_S
    while (last := told()):
        if time.monotonic() > deadline:
            raise Wrong(f"the array is not without a fault within {STEADY_S} s; {last}")
        time.sleep(0.5)
    say("nothing is wrong: the array page is green, no alert fires, cbf-doctor finds nothing")


def make_faults(array, shown, doctor, n_hosts):
    """Makes one fault after another, on different hosts.  Returns [(fault, seconds by place)]."""
    rows = []
    for kind, host in ((FeedCut, n_hosts // 4), (EngineKilled, n_hosts // 2), (LinkDown, 3 * n_hosts // 4)):
        fault = kind(array, host)
        rows.append((fault, measure(array, shown, doctor, fault)))
        fault.mend()
        wait(lambda: array.all_received() and not array.critical(), f"the array is whole after the fault: {fault}",
             STEADY_S, 0.5)
        say("mended: X-engines receive all antennas, and no critical alert fires")
    return rows


def run(args):
    for path in args.output.glob("*.uvh5"):
        path.unlink()
    array = Array(args)
    doctor = Doctor(array)
    try:
        with contextlib.ExitStack() as stack:
            array.start()
            wait(array.all_received, "X-engines receive all antennas", STEADY_S, 0.5)
            say("X-engines receive all antennas")
            shown = Page(array, args.pictures, stack)
            check_names(array)
            wait_steady(array, shown, doctor)
            shown.take(f"{len(array.antennas)}x{array.n_x}-healthy")
            rows = make_faults(array, shown, doctor, args.hosts)
            print_table(rows)
            say(array.load())
            move = Move(array, 3 * args.hosts // 4)
    finally:
        doctor.end()
        array.end()
    move.check(check_recording(array), array.antennas)
    slow = [f"{fault}: named by {place} after {s:.1f} s" for fault, took in rows for place, s in took.items()
            if s is not None and s > WITHIN_S]
    if slow:
        raise Wrong("; ".join(slow))


def add_arguments(parser):
    parser.add_argument("--hosts", type=int, default=8, help="hosts with engines; at least 4")
    parser.add_argument("--fgpu", type=int, default=2, help="F-engines on each host, of one antenna each")
    parser.add_argument("--xbgpu", type=int, default=1, help="X-engines on each host; the sum must be a power of two")
    parser.add_argument("--rate", type=int, default=131072, help="samples a second of each digitiser")
    parser.add_argument("--pictures", type=hosts.directory, help="directory for pictures of the array page")


if __name__ == "__main__":
    if not shutil.which("ansible-playbook"):
        print("many_hosts: ansible-playbook is not installed (Debian: ansible-core)")
        sys.exit(hosts.NO_NAMESPACES)
    sys.exit(hosts.main(run, __doc__, __file__, add_arguments))
