#!/usr/bin/env python3
"""three_hosts: one correlator across three hosts and a spare, from one array.yaml, and the effects of losing a host.

    tests/netns/three_hosts.py [--output DIRECTORY]

Each host is a network namespace with its own interface; a bridge joins them, with real multicast.  scripts/array
makes all configurations.  The test reads the programs of each host from its inventory, and the watched targets from its
Prometheus targets.  Digitisers (dsim) and the recorder (visrec) sit on the bridge.

How the test knows right values: the delays recovered from the fringes equal dsim's delays.  Noise repeats after PERIOD
dumps and nothing is dithered.  So each dump has the same bits as the dump PERIOD before.  Every value of every dump must
have these bits or be flagged.

First h2 is lost (its processes killed, its link down): only its antennas may be missing.  scripts/array --move moves its
engine to the spare h4: the antennas must be back within SPARE_S.  h2 comes back, and two instances of its engine send:
nothing may be flagged or wrong, and X-engines count duplicates.  One instance gets other gains: its antennas must be
flagged.  This instance ends.  Then h3 is lost: only its half of the band may be missing.  Hosts must send the rates that
scripts/array predicts.  If Prometheus is installed, it must report the lost host, the move, and the two instances.

Exit status: 0 all checks passed, 1 a check failed, 77 namespaces are not permitted here.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import yaml

import hosts
from hosts import BRIDGE_ADDRESS, BUILD, ROOT, STEP_S, Process, Prometheus, Wrong, metrics, request, samples, say, wait

sys.path.insert(0, str(ROOT / "scripts"))
import visfile  # noqa: E402

SYNC_TIME = "1760000000"  # in three_hosts.yaml
PERIOD = 4  # dumps
DELAYS = (0, 5, -3, 17)  # samples, of the antennas
MAX_RATE_ERROR = 0.1  # over some seconds of data, beginning and ending within a dump
SPARE_S = 30  # from the command that moves engines to a spare, to the end of the first dump that is whole again


class Array:
    """The correlator that scripts/array has made of three_hosts.yaml, and its surroundings."""

    def __init__(self, out):
        self.out, self.processes, self.hosts = out, {}, {}
        # In memory while it grows: a busy disk stalls the recorder for longer than it has buffers.
        memory = Path("/dev/shm")
        self.recording = (memory if os.access(memory, os.W_OK) else out) / f"three-hosts-{os.getpid()}.uvh5"
        text = (Path(__file__).parent / "three_hosts.yaml").read_text()
        now = str(int(time.time()))
        (out / "array.yaml").write_text(text.replace(SYNC_TIME, now))
        self.config = yaml.safe_load((out / "array.yaml").read_text())
        shutil.rmtree(out / "made", ignore_errors=True)  # and an earlier run's move
        rows = [line.split() for line in self.plan().splitlines()]
        self.out_gbps = {row[0]: float(row[7]) for row in rows if row[1:3] == ["=", "all"] and float(row[7])}

    def plan(self, *options):
        """Runs scripts/array, and reads what runs where.  Returns the table."""
        table = hosts.run_array(self.out, *options)
        self.inventory = hosts.read_made(self.out, "inventory.yaml")["all"]["children"]["cbf"]["hosts"]
        self.targets = hosts.read_made(self.out, "prometheus/targets.yaml")
        self.streams = hosts.read_made(self.out, "streams.yaml")
        return table

    def write(self, name, config):
        path = self.out / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def make_network(self):
        hosts.make_bridge("mcast_snooping", "0")
        for name, host in self.inventory.items():
            self.hosts[name] = hosts.Host(name, host["ansible_host"])

    def start_engines(self, host, programs=("xbgpu", "fgpu")):
        for program in programs:
            for service in self.inventory[host]["cbf_services"]:
                if service["program"] == program:
                    name = service["name"]
                    path = self.out / "made/services" / f"{name}.yaml"
                    self.processes[name] = Process(self.out, name, [BUILD / program, path], self.hosts[host])

    def start(self):
        self.processes["visrec"] = Process(self.out, "visrec", [BUILD / "visrec", self.write("visrec", self.visrec())])
        for program in ("xbgpu", "fgpu"):
            for host in self.hosts:
                self.start_engines(host, [program])
        self.processes["dsim"] = Process(self.out, "dsim", [BUILD / "dsim", self.write("dsim", self.dsim())])

    def dump_samples(self):
        stream = self.streams["f_outputs"][0]
        return (self.streams["x_outputs"][0]["integration_batches"] * stream["spectra_per_heap"]
                * stream["samples_between_spectra"])

    def dsim(self):
        signals = "sky0 = wgn(0.05, 100); sky1 = wgn(0.05, 200);" + "".join(
            f" delay(sky{pol}, {delay}) + wgn(0.03, {2 * a + pol + 1});"
            for a, delay in enumerate(DELAYS) for pol in range(2))
        return {"time": {**self.config["time"]},
                "digitiser": {**self.config["digitiser"], "period": PERIOD * self.dump_samples(), "dither_seed": 1},
                "signals": {"specification": signals},
                "antennas": [{"digitiser_id": 2 * i, **antenna} for i, antenna in enumerate(self.config["antennas"])],
                "send": {"interface": "br0"}}

    def visrec(self):
        stream, vis = self.streams["f_outputs"][0], self.streams["x_outputs"][0]
        return {"time": self.config["time"],
                "recv": {"sources": vis["destinations"], "interface": "br0", "buffer": 4194304, "window": 3},
                "stream": {"channels": stream["channels"],
                           "channels_per_substream": stream["channels"] // stream["substreams"],
                           "spectra_per_heap": stream["spectra_per_heap"],
                           "samples_between_spectra": stream["samples_between_spectra"],
                           "integration_batches": vis["integration_batches"]},
                "telescope": {"name": "three", "latitude": -30.7, "longitude": 21.4, "altitude": 1053},
                "antennas": [{"name": antenna["name"], "position": [30 * i, 0, 0]}
                             for i, antenna in enumerate(self.config["antennas"])],
                "output": {"file": str(self.recording), "overwrite": True},
                "http": {"listen": f"{BRIDGE_ADDRESS}:8100"}}

    def sent_bytes(self, host):
        """Bytes that left the host's interface, without Ethernet's overhead."""
        show = subprocess.run([*self.hosts[host].enter, "ip", "-json", "-stats", "link", "show", "eth0"], check=True,
                              capture_output=True)
        return json.loads(show.stdout)[0]["stats64"]["tx"]["bytes"]

    def check_rates(self, n_dumps):
        """Hosts send the rates of the table for each second of data, in one of three measurements.  A busy machine may
        delay the data, and the dumps by other times than the packets."""
        dump_s = self.dump_samples() / float(self.config["time"]["adc_sample_rate"])
        for _ in range(3):
            began, before = self.n_dumps(), {host: self.sent_bytes(host) for host in self.hosts}
            self.wait_dumps(n_dumps)
            ended = self.n_dumps()
            found = {host: 8e-9 * (self.sent_bytes(host) - before[host]) / ((ended - began) * dump_s)
                     for host in self.out_gbps}
            for host, gbps in self.out_gbps.items():
                say(f"{host} sends {found[host]:.4f} Gb/s, by the table {gbps:g}")
            if all(abs(found[host] / gbps - 1) <= MAX_RATE_ERROR for host, gbps in self.out_gbps.items()):
                return
        raise Wrong("hosts do not send the rates of the table")

    def n_dumps(self):
        return int(metrics(f"{BRIDGE_ADDRESS}:8100")["visrec_dumps_total"])

    def wait_dumps(self, n):
        """Waits for n more dumps.  Returns the number of all dumps."""
        goal = self.n_dumps() + n
        wait(lambda: self.n_dumps() >= goal, f"{n} dumps more", STEP_S)
        return goal

    def wait_whole_dumps(self, n):
        """Waits for n consecutive dumps without flags.  Returns the number of all dumps."""
        first = None

        def are_whole():
            nonlocal first
            now = metrics(f"{BRIDGE_ADDRESS}:8100")
            if first is None or now["visrec_flagged_values_total"] != first["visrec_flagged_values_total"]:
                first = now
            return now["visrec_dumps_total"] >= first["visrec_dumps_total"] + n

        wait(are_whole, f"{n} dumps without flags", STEP_S)
        return self.n_dumps()

    def lose(self, host):
        """All its processes are killed, and its link goes down.  Copies of their configurations stay on it."""
        disk = self.out / host
        disk.mkdir(exist_ok=True)
        for service in self.inventory[host]["cbf_services"]:
            self.processes.pop(service["name"]).end(signal.SIGKILL)
            shutil.copy(self.out / f"made/services/{service['name']}.yaml", disk)
        self.hosts[host].link("down")

    def come_back(self, host):
        """The host starts the engines that it had, although they run on a spare.  Returns the names of the processes."""
        self.hosts[host].link("up")
        names = []
        for path in (self.out / host).glob("*.yaml"):
            program = {"f": "fgpu", "x": "xbgpu"}[path.stem[0]]
            names.append(f"{path.stem}-{host}")
            self.processes[names[-1]] = Process(self.out, names[-1], [BUILD / program, path], self.hosts[host])
        return names

    def counted(self, name, label=""):
        """The sum of a counter, or of its samples with a label, over all X-engines."""
        return sum(value for target in self.targets if target["labels"]["program"] == "xbgpu"
                   for sample, value in samples(target["targets"][0], name) if label in sample)

    def end(self):
        errors = []
        for name in reversed(list(self.processes)):
            code = self.processes[name].end()
            if code:
                errors.append(f"{name} ended with code {code}")
        for host in self.hosts.values():
            host.end()
        if self.recording.exists():
            shutil.move(self.recording, self.out / "vis.uvh5")
        if errors:
            raise Wrong("; ".join(errors))


def check_targets(array):
    """Prometheus' targets answer and match their labels."""
    for target in array.targets:
        program = target["labels"]["program"]
        found = metrics(target["targets"][0])
        if not any(name.startswith(program + "_") for name in found):
            raise Wrong(f"{target} answers with other metrics than {program}'s")


# ---- What was recorded -----------------------------------------------------------------------------------------------


def check_recording(array, events):
    """Compares every value of every dump with its reference, and flags with the losses.

    'events': {name: number of the first dump that must show the event}
    """
    path = array.out / "vis.uvh5"
    dump_s = array.dump_samples() / float(array.config["time"]["adc_sample_rate"])
    for pol in ("xx", "yy", "xy", "yx"):
        data = visfile.load(path, pol)
        windows = (data.unix_s - float(array.config["time"]["sync_time"])) / dump_s
        windows = np.rint(windows - 0.5).astype(int)
        if (np.diff(windows) != 1).any():
            raise Wrong(f"dumps are missing: {windows.tolist()}")
        during = slice(events["end"])  # behind it are dumps that the stop cuts off
        windows, flags, values = windows[during], np.ma.getmaskarray(data.vis)[during], data.vis.data[during]
        check_flags(data, flags, events)
        check_spare(data.unix_s[during] + dump_s / 2, flags, events)
        check_values(windows, flags, values, events, pol)
    say(f"{len(windows)} dumps, none missing in time; every value is exact or flagged, and flagged only by the losses")


def check_flags(data, flags, events):
    """Exactly the data that a loss explains are flagged; flags [dump][baseline][channel]."""
    n_dumps, _, n_chan = flags.shape
    lost_antennas = np.array([a1 >= 2 or a2 >= 2 for a1, a2 in data.baselines])
    upper = np.arange(n_chan) >= n_chan // 2
    may = np.zeros(flags.shape, bool)
    may[:events["steady"]] = True  # the start
    may[events["h2 lost"]:events["spare whole"]] |= lost_antennas[:, None]
    may[events["gains set"]:events["one again"]] |= lost_antennas[:, None]
    may[events["h3 lost"]:] |= upper
    if (flags & ~may).any():
        dump, baseline, chan = np.argwhere(flags & ~may)[0]
        raise Wrong(f"dump {dump} of {n_dumps}, baseline {data.baselines[baseline]}, channel {chan} is flagged, and no "
                    f"loss explains it ({np.sum(flags & ~may)} of {flags.size}; {events})")
    must = np.zeros(flags.shape, bool)
    must[events["h2 gone"]:events["spare starts"]] |= lost_antennas[:, None]
    must[events["gains differ"]:events["twin ends"]] |= lost_antennas[:, None]
    must[events["h3 gone"]:] |= upper
    if (must & ~flags).any():
        raise Wrong(f"what was lost is not flagged: {np.argwhere(must & ~flags)[0].tolist()}; {events}")


def check_spare(ends_s, flags, events):
    """The first whole dump comes soon after the command; ends_s: the UNIX time of each dump's end."""
    whole = [t for t in range(events["spare starts"], len(flags)) if not flags[t].any()]
    took_s = ends_s[whole[0]] - events["command_s"]
    if took_s > SPARE_S:
        raise Wrong(f"the first whole dump ended {took_s:.1f} s after the command; {events}")
    if "took_s" not in events:
        say(f"on the spare, the first whole dump ended {took_s:.1f} s after the command")
    events["took_s"] = took_s


def check_values(windows, flags, values, events, pol):
    """Unflagged data have the bits of the dumps before the losses."""
    references = {}
    for t in range(events["steady"], events["h2 lost"]):
        references.setdefault(windows[t] % PERIOD, values[t])
    if len(references) != PERIOD or any(np.array_equal(references[0], references[p]) for p in range(1, PERIOD)):
        raise Wrong(f"{pol}: there are not {PERIOD} different dumps to compare with")
    for t in range(len(windows)):
        wrong = ~flags[t] & (values[t] != references[windows[t] % PERIOD])
        if wrong.any():
            raise Wrong(f"dump {t}, {pol}: {wrong.sum()} values that are not flagged are wrong; {events}")


def check_fringes(array):
    done = subprocess.run([sys.executable, ROOT / "scripts/fringe_table.py", array.out / "vis.uvh5",
                           "--delays=" + ",".join(map(str, DELAYS))], check=False)
    if done.returncode:
        raise Wrong("the fringes do not show the delays that were injected")


# ---- The story -------------------------------------------------------------------------------------------------------


def use_spare(array, prometheus, events):
    """The engines of h2 move to h4."""
    events["spare starts"], events["command_s"] = array.n_dumps(), time.time()
    array.plan("--move", "h2", "h4")
    array.start_engines("h4")
    say("the engines of h2 run on h4")
    events["spare whole"] = array.wait_dumps(16)
    prometheus.expect_targets(["h1", "h3", "h4"])


def run_twins(array, prometheus, events):
    """h2 comes back and starts its engine, which also runs on h4.  At last the engine on h2 gets other gains."""
    duplicates, contested = ("xbgpu_input_rejected_packets_total", 'reason="duplicate"'), "xbgpu_input_contested_heaps_total"
    before = array.counted(*duplicates)
    twins = array.come_back("h2")
    wait(lambda: array.counted(*duplicates) > before + 100, "X-engines count duplicates", STEP_S)
    array.wait_dumps(2 * PERIOD)
    if array.counted(contested):
        raise Wrong("two instances with the same configuration have sent different bytes")
    say(f"h2 is back, too: {array.counted(*duplicates) - before:.0f} packets came twice, with the same bytes")
    events["gains set"] = array.n_dumps() - 1
    config = yaml.safe_load((array.out / "h2/f1.yaml").read_text())
    request(config["katcp"]["listen"], "gain-all wide 0.04")
    prometheus.expect(("VoltagesContested", "h1"), ("VoltagesContested", "h3"))
    events["gains differ"] = array.wait_dumps(8)
    array.wait_dumps(PERIOD)
    say(f"h2 has other gains: {array.counted(contested):.0f} heaps came with different bytes")
    events["twin ends"] = array.n_dumps()
    for name in twins:
        array.processes.pop(name).end(signal.SIGKILL)
    events["one again"] = array.wait_whole_dumps(4)


def run(out):
    array, prometheus = Array(out), None
    events = {}
    try:
        array.make_network()
        array.start()
        check_targets(array)
        say("all run; waiting for dumps")
        events["steady"] = array.wait_dumps(6)
        prometheus = Prometheus(out)  # which has not seen what the start counted
        array.check_rates(3 * PERIOD)
        prometheus.expect_none(len(array.targets))
        events["h2 lost"] = array.n_dumps()
        array.lose("h2")
        say("h2 is lost")
        # The recorder has some dumps open, and the X-engines some chunks.
        events["h2 gone"] = array.n_dumps() + 8
        events["h2 lost"] -= 1
        prometheus.expect(("EngineDown", "h2"), ("AntennaSilent", "h2"), ("DumpsIncomplete", "h1"),
                          ("DumpsIncomplete", "h3"))
        use_spare(array, prometheus, events)
        run_twins(array, prometheus, events)
        events["h3 lost"] = array.wait_dumps(PERIOD) - 1
        array.lose("h3")
        say("h3 is lost")
        events["h3 gone"] = array.n_dumps() + 8
        events["end"] = array.wait_dumps(14)
    finally:
        if prometheus:
            prometheus.end()
        array.end()
    check_recording(array, events)
    check_fringes(array)


if __name__ == "__main__":
    sys.exit(hosts.main(lambda args: run(args.output), __doc__, __file__))
