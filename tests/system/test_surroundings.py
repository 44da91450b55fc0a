"""Wrong surroundings.  One sentence reports any cause that keeps a program from starting.  The sentence names the
configuration key and its place in the file.  The exit code says whether a restart may help.  The program leaves no
trace: no readiness, no packet, no file, and no changed file.

Each row of CASES changes a good configuration, or the program's surroundings, and says the expected result.
"""
import contextlib
import functools
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
import yaml
from harness import BUILD, LOOPBACK, SANITIZED, endpoints, free_tcp_port, groups
from scenario import chunk_for, digitiser_heaps, feng_heaps, fgpu_config, noise, random_voltages, xbgpu_config

CONFIG = 78  # a restart does not help
AGAIN = 1  # it may
PROGRAMS = ("fgpu", "xbgpu", "dsim", "visrec")
FOREIGN = "203.0.113.9"  # of nobody (RFC 5737)
MIB = 1 << 20


# ---- Good configurations -------------------------------------------------------------------------------------------------


def good_fgpu(work):
    config = fgpu_config(feng_ids=(0, 1), pol_groups=2, recv={"interface": "lo"}, send={"interface": "lo"})
    chunk_for(config)
    return config


def good_xbgpu(work):
    return xbgpu_config(recv={"interface": "lo"}, send={"interface": "lo"})


def good_dsim(work):
    return {
        "time": {"sync_time": 1700000000, "adc_sample_rate": 1000000},
        "digitiser": {"packet_samples": 1024, "period": 4096},
        "signals": {"specification": "cw(0.5, 1000);"},
        "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": groups(), "pol1": groups(2)}],
        "send": {"interface": "lo"},
    }


def good_visrec(work):
    return {
        "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000},
        "recv": {"sources": groups(2), "interface": "lo"},
        "stream": {"channels": 8, "channels_per_substream": 4, "spectra_per_heap": 256, "samples_between_spectra": 65536,
                   "integration_batches": 2},
        "telescope": {"name": "test array", "latitude": -30.7, "longitude": 21.4, "altitude": 1038},
        "antennas": [{"name": f"m{i}", "position": [30.0 * i, 0, 0]} for i in range(3)],
        "output": {"file": str(work / "out.uvh5")},
    }


GOOD = {"fgpu": good_fgpu, "xbgpu": good_xbgpu, "dsim": good_dsim, "visrec": good_visrec}


def destinations(program, config):
    """The destinations of the program."""
    if program == "fgpu":
        return [e for output in config["outputs"] for e in endpoints(output["destinations"])]
    if program == "xbgpu":
        return [e for output in config["outputs"] for e in endpoints(output["destination"])]
    return [e for a in config["antennas"] for p in ("pol0", "pol1") for e in endpoints(a[p])] if program == "dsim" else []


# ---- Running -------------------------------------------------------------------------------------------------------------


class Case:
    """A configuration and surroundings that a row may change, and the run."""

    def __init__(self, program, work, stack):
        self.program, self.work, self.stack = program, work, stack
        self.config = GOOD[program](work)
        self.config["http"] = {"listen": f"{LOOPBACK}:{free_tcp_port()}"}
        self.path = work / "config.yaml"
        self.text = None  # of the file, where it is no dump of 'config'
        self.write = True  # the file
        self.wrap = []  # the command in front of the program's
        self.env = {}
        self.preexec = None
        self.replay = False  # it ends by itself

    def set(self, key, value):
        """set("antennas[0].pol0", ...); None takes the key away."""
        *path, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key)]
        section = self.config
        for part in path:
            section = section[part] if isinstance(part, int) else section.setdefault(part, {})
        section.pop(last, None)
        if value is not None:
            section[last] = value

    def place(self, key):
        """":line:column" of a key's value in the file, by PyYAML's reckoning."""
        node = yaml.compose(self.path.read_text())
        for part in re.findall(r"[^.\[\]]+", key):
            if isinstance(node, yaml.SequenceNode):
                node = node.value[int(part)]
            else:
                node = {k.value: v for k, v in node.value}[part]
        return f":{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def hear(self):
        """Sockets that receive all packets to the good configuration's destinations."""
        ears = []
        for group, port in destinations(self.program, self.config):
            ear = self.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.bind((group, port))
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                           socket.inet_aton(group) + socket.inet_aton(LOOPBACK))
            ears.append(ear)
        return ears

    def write_file(self):
        if self.write:
            self.path.write_bytes(self.text if self.text is not None else
                                  yaml.safe_dump(self.config, sort_keys=False, width=1000).encode())

    def start(self, *options):
        environment = {k: v for k, v in os.environ.items() if k not in ("JOURNAL_STREAM", "WATCHDOG_USEC")}
        environment |= {"NOTIFY_SOCKET": str(self.work / "notify")} | self.env
        return subprocess.Popen([*self.wrap, str(BUILD / self.program), *options, str(self.path)], cwd=self.work,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace", env=environment, preexec_fn=self.preexec)

    def run(self):
        """Starts the program, ends it if it gets ready.  Returns (was ready, exit code, stdout, stderr)."""
        with self.notify_socket() as notify, self.start() as process:
            err = ""
            try:
                while True:
                    heard = select.select([notify, process.stderr], [], [], harness.TIMEOUT_S)[0]
                    assert heard, f"{self.program} neither starts nor ends: {err}"
                    some = os.read(process.stderr.fileno(), 65536).decode() if process.stderr in heard else ""
                    err += some
                    # With the last file taken there is none for the socket to the init system.
                    was_ready = notify in heard or "the init system was not notified" in err
                    if was_ready or not some:
                        break
                if was_ready and not self.replay:
                    harness.wait_asleep(process)
                    process.send_signal(signal.SIGTERM)
                out, rest = process.communicate(timeout=harness.TIMEOUT_S)
                was_ready = was_ready or bool(select.select([notify], [], [], 0)[0])
            finally:
                process.kill()
        return was_ready, process.returncode, out, err + rest

    def run_well(self):
        """A start that reports ready, and a clean end.  Returns its output."""
        was_ready, code, _, err = self.run()
        assert was_ready and code == 0, err
        return err

    def notify_socket(self):
        path = self.work / "notify"
        path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(path))
        path.chmod(0o777)
        return notify


def errors_in(case, text):
    """The error lines: the lines of the log, and the lines about the file."""
    about_file = re.compile(re.escape(str(case.path)) + r"(:\d+:\d+)?: (?!warning: |OK$)")
    return [line for line in text.splitlines() if re.search(r"\] error: ", line) or about_file.match(line)]


def files_in(work):
    """All files below, with their contents."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(work.rglob("*"))
            if path.name != "notify"}


@pytest.fixture
def case(work):
    with contextlib.ExitStack() as stack:
        yield lambda program: Case(program, work, stack)


# ---- Surroundings --------------------------------------------------------------------------------------------------------


@functools.lru_cache
def unshare(what):
    """The command that runs another in a separate name space, or None if that is not permitted."""
    for command in (["unshare", what], ["unshare", "-r", what]):
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return None


@functools.lru_cache
def works_apart(what, script):
    command = unshare(what)
    if not command:
        return f"unshare {what} is not permitted"
    done = subprocess.run([*command, "sh", "-ec", script], capture_output=True, text=True)
    return f"in unshare {what}: {done.stderr.strip()}" if done.returncode else ""


def apart(what, script):
    """A change of the surroundings: a script that runs first, in a separate name space."""

    def change(case):
        why_not = works_apart(what, script.format(work=case.work))
        if why_not:
            pytest.skip(why_not)
        case.wrap = [*unshare(what), "sh", "-ec", script.format(work=case.work) + '\nexec "$0" "$@"', *case.wrap]

    return change


def network(*lines):
    return apart("-n", "\n".join(("ip link set lo up", *lines)))


def mounts(*lines):
    return apart("-m", "\n".join(lines))


def interface(name, *lines):
    """An interface of a separate network; a bridge stands for a NIC."""
    return network(f"ip link add {name} type bridge", *(f"ip {line}" for line in lines))


UNNUMBERED = interface("card0", "link set card0 up")
DOWN = interface("card0", "addr add 10.98.1.1/24 dev card0")
DEAF = interface("card0", "addr add 10.98.1.1/24 dev card0", "link set card0 multicast off up")


def limit(**limits):
    """limit(nofile=20)"""

    def change(case):
        case.wrap = [*case.wrap, "prlimit", *(f"--{name}={value}:{value}" for name, value in limits.items())]

    return change


def nobody(case):
    """A user without rights and without other processes.  If that is impossible, the test is skipped."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if SANITIZED:
        pytest.skip("a sanitizer's reports could not be written")
    user = 100000 + os.getpid()
    for path in (case.work, *case.work.rglob("*")):
        os.chown(path, user, user)
    case.wrap = [*case.wrap, "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    probe = subprocess.run([*case.wrap, "test", "-x", str(BUILD / case.program)], capture_output=True)
    if probe.returncode:
        pytest.skip("another user cannot run the programs from here")


def without_net_admin(case):
    if os.geteuid() != 0:
        return
    case.wrap = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    if subprocess.run([*case.wrap, "true"], capture_output=True).returncode:
        pytest.skip("CAP_NET_ADMIN cannot be given up")


def key(name, value):
    return lambda case: case.set(name, value)


def file(name, content=b""):
    """A file in the case's directory, or with None a directory."""

    def change(case):
        path = case.work / name
        path.parent.mkdir(exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)

    return change


def in_work(name, relative):
    """A key that names a file in the case's directory."""
    return lambda case: case.set(name, str(case.work / relative))


def text(content):
    def change(case):
        case.text = content

    return change


def taken_udp(name, suffix="", address=LOOPBACK):
    """Another program has the port that a key is set to."""

    def change(case):
        other = case.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        other.bind((address, 0))
        port = other.getsockname()[1]
        group = address if address != "0.0.0.0" else groups().split(":")[0]
        case.set(name, f"{group}{suffix}:{port}")

    return change


def taken_http(case):
    other = case.stack.enter_context(socket.socket())
    other.bind((LOOPBACK, 0))
    other.listen()
    case.set("http.listen", f"{LOOPBACK}:{other.getsockname()[1]}")


def fake_cuda(settings, **device):
    """kind: cuda on a CUDA runtime that needs no GPU, and how that is made up (tests/fakes/cuda/fake_cuda.h)."""

    def change(case):
        plugin = BUILD / "tests" / "cbf-cuda-fake.so"
        if not plugin.exists():
            pytest.skip("built without the CUDA toolkit")
        case.env |= {"CBF_CUDA_DEVICE": str(plugin), "CBF_FAKE_CUDA": settings}
        for name, value in ({"kind": "cuda"} | device).items():
            case.set(f"device.{name}", value)

    return change


def environment(**values):
    return lambda case: case.env.update(values)


def no_file(case):
    case.write = False


def meminfo(total_mib, available_mib):
    content = f"MemTotal: {total_mib * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n"

    def change(case):
        (case.work / "meminfo").write_text(content)
        mounts("mount --bind {work}/meminfo /proc/meminfo")(case)

    return change


def pcap_header(link_type):
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, link_type)


# ---- The table -----------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    name: str
    program: str
    changes: tuple
    code: int
    key: str  # that the sentence begins with, after its place in the file; "": none
    pieces: tuple  # of the sentence
    pure: bool = False  # the file alone shows it: --check-config says the same


def row(name, programs, changes, code, key_, *pieces, **options):
    changes = changes if isinstance(changes, tuple) else (changes,)
    return [Row(name, program, changes, code, key_, pieces, **options) for program in programs.split()]


SOURCE = {"fgpu": "antennas[0].pol0", "xbgpu": "recv.sources", "visrec": "recv.sources"}
SINK = {"fgpu": "outputs[0].destinations", "xbgpu": "outputs[0].destination", "dsim": "antennas[0].pol0"}


def source_rows(name, change, code, *pieces, **options):
    """change(key) for every program that receives."""
    return [r for p, k in SOURCE.items() for r in row(name, p, change(k), code, k, *pieces, **options)]


def sink_rows(name, change, code, *pieces, **options):
    return [r for p, k in SINK.items() for r in row(name, p, change(k), code, k, *pieces, **options)]


def both(*args):
    return lambda side: tuple(key(f"{side}.interface", a) if isinstance(a, str) else a for a in args)


def interface_rows(name, change, code, *pieces):
    return (row(f"recv-{name}", "fgpu xbgpu visrec", change("recv"), code, "recv.interface", *pieces) +
            row(f"send-{name}", "fgpu xbgpu dsim", change("send"), code, "send.interface", *pieces))


CASES = [
    # Interfaces
    *interface_rows("no-interface", both("nosuch0"), CONFIG, 'there is no network interface "nosuch0"', "lo (127.0.0.1)"),
    *interface_rows("no-address", both(FOREIGN), CONFIG, f"no network interface has the address {FOREIGN}"),
    *interface_rows("unnumbered", both("card0", UNNUMBERED), CONFIG, '"card0" has no IPv4 address'),
    *interface_rows("down", both("card0", DOWN), AGAIN, '"card0" is down', "ip link set card0 up"),
    *interface_rows("down-by-address", both("10.98.1.1", DOWN), AGAIN, '"10.98.1.1" is down', "ip link set card0 up"),
    *interface_rows("deaf", both("card0", DEAF), CONFIG, '"card0" cannot multicast', "ip link set card0 multicast on"),
    # Ports and addresses
    *source_rows("port-taken", taken_udp, AGAIN, LOOPBACK, "Address already in use", "another program receives there"),
    *source_rows("group-port-taken", lambda k: taken_udp(k, address="0.0.0.0"), AGAIN, "239.",
                 "another program receives there"),
    *source_rows("address-of-another", lambda k: key(k, f"{FOREIGN}:7148"), CONFIG, FOREIGN,
                 "neither a multicast group nor an address of this host"),
    *source_rows("port-of-root", lambda k: (key(k, f"{LOOPBACK}:99"), nobody), CONFIG, "ports below 1024"),
    *source_rows("join-refused", lambda k: network("echo 0 > /proc/sys/net/ipv4/igmp_max_memberships"), AGAIN,
                 "cannot join the multicast group", "sysctl net.ipv4.igmp_max_memberships"),
    *source_rows("no-route-to-group", lambda k: (key("recv.interface", None), network()), AGAIN,
                 "cannot join the multicast group", "name the recv.interface"),
    *row("second-group-taken", "fgpu", taken_udp("antennas[1].pol1"), AGAIN, "antennas[1].pol1", "already in use"),
    *row("http-taken", "fgpu xbgpu dsim visrec", taken_http, AGAIN, "http.listen", "Address already in use",
         "another program listens there"),
    *row("http-of-another", "fgpu xbgpu dsim visrec", key("http.listen", f"{FOREIGN}:8000"), CONFIG, "http.listen",
         "this host has no such address"),
    *row("http-port-0", "fgpu xbgpu dsim visrec", key("http.listen", f"{LOOPBACK}:0"), CONFIG, "http.listen",
         "the port must be a number from 1 to 65535", pure=True),
    # Ways out
    *sink_rows("no-route", lambda k: (key(k, "10.9.9.9:7148"), network()), AGAIN, "10.9.9.9:7148: cannot send there",
               "there is no route to it"),
    *sink_rows("no-route-for-group", lambda k: (key("send.interface", None), network()), AGAIN, "cannot send there",
               "name the send.interface"),
    *sink_rows("broadcast", lambda k: (key(k, "255.255.255.255:7148"), network("ip route add default dev lo")), CONFIG,
               "255.255.255.255:7148", "it is a broadcast address"),
    # Files that are read
    *row("no-capture", "fgpu xbgpu visrec", in_work("recv.pcap_file", "none.pcap"), CONFIG, "recv.pcap_file", "none.pcap",
         "No such file"),
    *row("capture-is-directory", "fgpu xbgpu visrec", (file("dir", None), in_work("recv.pcap_file", "dir")), CONFIG,
         "recv.pcap_file", "Is a directory"),
    *row("capture-is-device", "fgpu xbgpu visrec", key("recv.pcap_file", "/dev/zero"), CONFIG, "recv.pcap_file",
         "neither a file nor a FIFO"),
    *row("gains-are-a-fifo", "fgpu", (lambda case: os.mkfifo(case.work / "gains"), in_work("antennas[0].gains", "gains")),
         CONFIG, "antennas[0].gains", "not a regular file"),
    *row("delays-are-a-fifo", "fgpu", (lambda case: os.mkfifo(case.work / "delays"),
         in_work("antennas[0].delays", "delays")), CONFIG, "antennas[0].delays", "not a regular file"),
    *row("capture-forbidden", "fgpu xbgpu visrec", (file("a.pcap", pcap_header(1)), in_work("recv.pcap_file", "a.pcap"),
         nobody, lambda case: (case.work / "a.pcap").chmod(0)), CONFIG, "recv.pcap_file", "Permission denied"),
    *row("empty-capture", "fgpu xbgpu visrec", (file("a.pcap"), in_work("recv.pcap_file", "a.pcap")), CONFIG,
         "recv.pcap_file", "cannot be read as a capture"),
    *row("no-capture-at-all", "fgpu xbgpu visrec", (file("a.pcap", b"dear diary, " * 10),
         in_work("recv.pcap_file", "a.pcap")), CONFIG, "recv.pcap_file", "cannot be read as a capture"),
    *row("other-link-type", "fgpu xbgpu visrec", (file("a.pcap", pcap_header(105)), in_work("recv.pcap_file", "a.pcap")),
         CONFIG, "recv.pcap_file", "802.11", "link type 105"),
    *row("no-recording", "dsim", (lambda case: case.config.pop("signals"), key("digitiser.period", None),
         key("recordings", [{"kind": "int8", "file": "none.dada"}])), CONFIG, "recordings[0]", "none.dada",
         "No such file"),
    # Files that are written
    *row("no-directory", "fgpu xbgpu dsim", (in_work("send.pcap_file", "none/a.pcap"), key("digitiser.duration", 1)),
         CONFIG, "send.pcap_file", "No such file"),
    *row("file-for-directory", "fgpu xbgpu dsim", (file("file"), in_work("send.pcap_file", "file/a.pcap")), CONFIG,
         "send.pcap_file", "Not a directory"),
    *row("directory-for-file", "fgpu xbgpu dsim", (file("dir", None), in_work("send.pcap_file", "dir")), CONFIG,
         "send.pcap_file", "Is a directory"),
    *row("fifo-without-reader", "fgpu xbgpu dsim", (lambda case: os.mkfifo(case.work / "out.fifo"),
         in_work("send.pcap_file", "out.fifo")), AGAIN, "send.pcap_file", "nobody reads this FIFO"),
    *row("read-only", "fgpu xbgpu dsim", (file("ro", None), mounts("mount -t tmpfs -o ro tmpfs {work}/ro"),
         in_work("send.pcap_file", "ro/a.pcap")), CONFIG, "send.pcap_file", "Read-only file system"),
    *row("file-for-directory", "visrec", (file("file"), in_work("output.file", "file/a.uvh5")), CONFIG, "output.file",
         "Not a directory"),
    *row("directory-for-file", "visrec", (file("dir", None), in_work("output.file", "dir")), CONFIG, "output.file",
         "exists already"),
    *row("directory-to-overwrite", "visrec", (file("dir", None), in_work("output.file", "dir"),
         key("output.overwrite", True)), CONFIG, "output.file", "Is a directory"),
    *row("device-to-overwrite", "visrec", (lambda case: (case.work / "null").symlink_to("/dev/null"),
         in_work("output.file", "null"), key("output.overwrite", True)), CONFIG, "output.file", "not a regular file"),
    *row("long-name-with-a-time", "visrec", key("output.file", "%c" * 1000), CONFIG, "output.file", "is longer than 4095"),
    *row("file-exists", "visrec", (file("out.uvh5", b"precious"),), CONFIG, "output.file", "exists already",
         "output.overwrite"),
    *row("read-only", "visrec", (file("ro", None), mounts("mount -t tmpfs -o ro tmpfs {work}/ro"),
         in_work("output.file", "ro/a.uvh5")), CONFIG, "output.file", "Read-only file system"),
    # The configuration itself
    *row("no-configuration", "fgpu xbgpu dsim visrec", no_file, CONFIG, "", "cannot be read: No such file", pure=True),
    *row("directory", "fgpu visrec", (no_file, file("config.yaml", None)), CONFIG, "", "Is a directory", pure=True),
    *row("forbidden", "fgpu visrec", (no_file, file("config.yaml"), nobody, lambda case: case.path.chmod(0)), CONFIG, "",
         "Permission denied", pure=True),
    *row("not-text", "fgpu visrec", text(b"time: \xff\xfe"), CONFIG, "", "not plain UTF-8 text", pure=True),
    *row("empty", "fgpu xbgpu dsim visrec", text(b"# nothing yet\n"), CONFIG, "", "the file is empty", "--print-example",
         pure=True),
    *row("huge", "fgpu visrec", text(b"#" * (5 * MIB)), CONFIG, "", "larger than 4 MiB", pure=True),
    # Memory
    *row("more-than-there-is", "fgpu", (key("recv.chunk_samples", 1 << 30), key("recv.chunks", 4096)), CONFIG,
         "recv.chunk_samples", "MiB of memory", "recv.chunks", "antennas"),
    *row("more-than-there-is", "xbgpu", (key("recv.antennas", 4096), key("recv.batches_per_chunk", 16384)), CONFIG,
         "recv.batches_per_chunk", "MiB of memory", "recv.antennas"),
    *row("more-than-there-is", "dsim", (key("digitiser.period", 1 << 31),
         lambda case: case.config.update(antennas=[{"name": f"m{i}", "digitiser_id": 2 * i, "pol0": groups(),
                                                    "pol1": groups()} for i in range(256)])), CONFIG, "digitiser.period",
         "needs 131", "MiB of memory", "shorter"),
    *row("more-than-there-is", "visrec", (key("stream.channels", 65536), key("recv.window", 64),
         key("antennas", [{"name": f"m{i}", "position": [i, 0, 0]} for i in range(512)])), CONFIG, "recv.window",
         "MiB of memory"),
    *row("more-than-is-free", "fgpu", (meminfo(1 << 24, 3),), AGAIN, "recv.chunk_samples",
         "the total is 16777216 MiB, of which 3 MiB are available"),
    *row("more-than-is-free", "xbgpu", (meminfo(1 << 24, 1), key("recv.antennas", 64)), AGAIN, "recv.batches_per_chunk",
         "1 MiB are available"),
    *row("more-than-is-free", "dsim", (meminfo(1 << 24, 1), key("digitiser.period", 1 << 20)), AGAIN, "digitiser.period",
         "1 MiB are available"),
    *row("more-than-is-free", "visrec", (meminfo(1 << 24, 0), key("recv.window", 4)), AGAIN, "recv.window",
         "0 MiB are available"),
    *row("more-than-64-bits", "fgpu", tuple(key(f"outputs[0].{name}", value) for name, value in (
         ("channels", 65536), ("spectra_per_heap", 65520), ("batches_per_buffer", 65536), ("buffers", 65536))) +
         (key("recv.chunk_samples", 1 << 23),), CONFIG, "recv.chunk_samples", "more memory than 64 bits can count",
         pure=True),
    *row("more-than-64-bits", "xbgpu", (key("recv.antennas", 4096), key("recv.chunks", 4096), key("recv.channels", 16384),
         key("recv.channels_per_substream", 8192), key("recv.channel_offset", 0), key("recv.spectra_per_heap", 65520),
         key("recv.batches_per_chunk", 65536), key("recv.samples_between_spectra", 1)), CONFIG, "recv.batches_per_chunk",
         "more memory than 64 bits can count", pure=True),
    *row("longer-than-timestamps", "xbgpu", (key("recv.spectra_per_heap", 65520), key("recv.batches_per_chunk", 65536),
         key("recv.samples_between_spectra", 1 << 30), key("outputs[0].integration_batches", 1)), CONFIG,
         "recv.batches_per_chunk", "48-bit timestamps", pure=True),
    *row("dump-longer-than-timestamps", "xbgpu", (key("recv.samples_between_spectra", 2147483648),
         key("outputs[0].integration_batches", 65536)), CONFIG, "outputs[0].integration_batches", "48-bit timestamps",
         pure=True),
    *row("heap-of-4-gib", "visrec", (key("stream.channels", 65536), key("stream.channels_per_substream", 65536),
         key("antennas", [{"name": f"m{i}", "position": [i, 0, 0]} for i in range(64)])), CONFIG,
         "stream.channels_per_substream", "must be below 2 GiB", pure=True),
    # The GPU
    *row("no-such-form-of-gpu", "fgpu xbgpu", key("device.gpu", "the big one"), CONFIG, "device.gpu",
         'must be auto, an index, a UUID (GPU-...) or a PCI address (0000:3b:00.0), not "the big one"', pure=True),
    *row("no-cuda-device", "fgpu", (key("device.kind", "cuda"), environment(CBF_CUDA_DEVICE="/nonexistent.so")), CONFIG,
         "device.kind", "there is no cuda device here: cbf-cuda.so was not built or not installed"),
    *row("no-cuda-device-for-gpu", "fgpu", (key("device.kind", "auto"), key("device.gpu", "3b:00.0"),
         environment(CBF_CUDA_DEVICE="/nonexistent.so")), CONFIG, "device.gpu", "there is no cuda device here"),
    *row("no-driver", "fgpu", fake_cuda("driver=0"), CONFIG, "device.kind",
         "there is no NVIDIA driver here; install it, or set device.kind to cpu"),
    *row("old-driver", "fgpu", fake_cuda("driver=11040"), CONFIG, "device.kind",
         "too old: it supports CUDA 11.4, but CUDA 1"),
    *row("no-gpu", "fgpu", fake_cuda("gpus=0"), CONFIG, "device.kind", "the NVIDIA driver offers no GPU"),
    *row("no-such-gpu", "fgpu", fake_cuda("gpus=2", gpu="2"), CONFIG, "device.gpu", 'there is no GPU "2" here', "Fake 1"),
    *row("no-such-gpu-for-auto", "fgpu", fake_cuda("gpus=2", gpu="2", kind="auto"), CONFIG, "device.gpu", "no GPU"),
    *row("old-gpu", "fgpu", fake_cuda("major=7"), CONFIG, "device.kind", "compute capability 8.0"),
    *row("busy-gpu", "fgpu", fake_cuda("init=46"), AGAIN, "device.kind", "cudaInitDevice failed"),
    *row("busy-gpu-for-auto", "fgpu", fake_cuda("init=46", kind="auto"), AGAIN, "device.kind", "cudaInitDevice failed"),
    *row("gpu-memory", "fgpu", (fake_cuda("memory_mib=1"),
         key("recv.chunk_samples", 1 << 20)), CONFIG, "recv.chunk_samples", "of GPU memory", "the total is 1 MiB"),
    *row("gpu-buffer", "fgpu", (fake_cuda("gpus=1"), key("outputs[0].spectra_per_heap", 65520),
         key("outputs[0].batches_per_buffer", 5), key("recv.chunk_samples", 1 << 26)), CONFIG,
         "outputs[0].batches_per_buffer", "has 327600 spectra in a buffer, but the GPU kernels support at most 262140"),
    *row("gpu-fails-at-once", "fgpu", fake_cuda("refuse=1"), AGAIN, "", "cuda: copy: cudaMemcpyAsync on stream "),
    # CPUs, files, threads
    *row("no-such-cpu", "fgpu xbgpu", key("recv.affinity", [-1, 1023]), CONFIG, "recv.affinity", "CPU 1023"),
    *row("no-such-cpu-by-far", "fgpu xbgpu", key("send.affinity", [4095]), CONFIG, "send.affinity", "CPU 4095"),
    *row("few-files", "fgpu", (key("antennas[0].pol0", f"239.104.0.1+63:{harness.PORT}"), limit(nofile=40)), AGAIN,
         "antennas[0].pol0", "Too many open files", "LimitNOFILE="),
    # Values that mean nothing
    *row("gain-of-zero", "fgpu", key("outputs[0].gain", 0), CONFIG, "outputs[0].gain", "must not be 0", pure=True),
    *row("one-port-for-two", "fgpu xbgpu dsim", (key("http.listen", "0.0.0.0:7147"), key("katcp.listen", LOOPBACK)), CONFIG,
         "katcp.listen", "http.listen and katcp.listen both have port 7147: choose different ports", pure=True),
    *row("receives-its-output", "fgpu", (key("antennas[1].pol1", f"239.104.0.5:{harness.PORT}"),
         key("outputs[0].destinations", f"239.104.0.4+1:{harness.PORT}")), CONFIG, "outputs[0].destinations",
         f"239.104.0.5:{harness.PORT} is also the address of antennas[1].pol1: the program would receive its own output",
         pure=True),
    *row("receives-its-output", "xbgpu", (key("recv.sources", f"239.104.0.5:{harness.PORT}"),
         key("outputs[0].destination", f"239.104.0.5:{harness.PORT}")), CONFIG, "outputs[0].destination",
         f"239.104.0.5:{harness.PORT} is also the address of recv.sources", pure=True),
    *row("source-twice", "xbgpu visrec", key("recv.sources", "239.104.0.1:7148, 239.104.0.0+1:7148"), CONFIG,
         "recv.sources", "239.104.0.1:7148 is given twice", pure=True),
    *row("overwrites-its-input", "visrec", (file("a.pcap", pcap_header(1)), in_work("recv.pcap_file", "a.pcap"),
         in_work("output.file", "a.pcap"), key("output.overwrite", True)), CONFIG, "output.file",
         "would overwrite the capture", pure=True),
]


@pytest.mark.parametrize("row", CASES, ids=lambda r: f"{r.program}-{r.name}")
def test_start_that_fails(case, row):
    one = case(row.program)
    ears = one.hear()
    for change in row.changes:
        change(one)
    if row.program != "dsim":
        one.config.pop("digitiser", None)  # a key that only dsim has
    elif "pcap_file" in one.config["send"]:
        one.set("digitiser.duration", 1)
    one.write_file()
    before = files_in(one.work)
    was_ready, code, out, err = one.run()
    errors = errors_in(one, err)
    assert len(errors) == 1, err
    for piece in row.pieces:
        assert piece in errors[0]
    assert code == row.code, err
    assert not was_ready and not out
    if row.key:
        expected = str(one.path) + one.place(row.key) + ": "
        assert expected in errors[0]
        if not row.pure:
            assert f"{expected}{row.key}: " in errors[0]
    assert files_in(one.work) == before
    assert not select.select(ears, [], [], 0)[0], "a packet was sent"
    check_config(one, row, errors[0])


def check_config(one, row, error):
    """--check-config reports the same faults if the file alone shows them, and looks at nothing else."""
    done = one.start("--check-config")
    out, err = done.communicate(timeout=harness.TIMEOUT_S)
    if row.pure:
        assert (done.returncode, out) == (CONFIG, "")
        assert errors_in(one, err) == [error]
    else:
        assert (done.returncode, out) == (0, f"{one.path}: OK\n"), err


# ---- What must not be lost, and what must not be said twice --------------------------------------------------------------


def output_file(case, program, exists):
    """A file that the program is to write, in place of one of an earlier run or not."""
    old = case.work / "old"
    old.unlink(missing_ok=True)
    if exists:
        old.write_bytes(b"precious")
    case.set("output.file" if program == "visrec" else "send.pcap_file", str(old))
    if program == "visrec":
        case.set("output.overwrite", True)
    if program == "dsim":
        case.set("digitiser.duration", 1e9)


def attempt(one):
    """Runs a start that may fail.  Returns True if the program was ready.  A failure must be the expected one."""
    before = files_in(one.work)
    was_ready, code, out, err = one.run()
    what = f"{shlex.join(map(str, one.wrap))}: code {code}\n{err}"
    if was_ready:
        assert code == 0 and not errors_in(one, err), what
        return True
    assert files_in(one.work) == before, what
    if code == 127:  # the dynamic loader had not room enough for the libraries
        assert any(said in err.lower() for said in ("cannot allocate", "failed to map", "cannot map")), what
        return False
    assert code == AGAIN, what
    # The constructor of GnuTLS, which libmicrohttpd loads, prints its own error.  Debian 12 has an empty line after it.
    err_of_program = re.sub(r"^Error in GnuTLS initialization: .*\n\n?", "", err, flags=re.M)
    lines = [line for line in err_of_program.splitlines() if not re.search(r"\] (info|warning): ", line)]
    assert len(lines) == 1, what
    assert errors_in(one, err) == lines or "libgomp" in lines[0], what
    return False


def some_heaps(rng, program, config):
    """Enough for an output."""
    if program == "xbgpu":
        return feng_heaps(config, 0, random_voltages(rng, config, 8))
    samples = noise(rng, len(config["antennas"]), 4 * config["recv"]["chunk_samples"], 10)
    return digitiser_heaps(config, samples, 0)


def tighten(case, program, limits, *changes, prepare=lambda one: None):
    """Starts under one limit after the other until one start is ready.  Returns how many were not."""
    for n, at_most in enumerate(limits):
        one = case(program)
        output_file(one, program, exists=n % 2)
        prepare(one)
        one.write_file()
        for change in (limit(**at_most), *changes):
            change(one)
        if attempt(one):
            return n
    raise AssertionError(f"not ready with {at_most}")


@pytest.mark.parametrize("program", PROGRAMS)
def test_few_threads(case, program, work, rng):
    """However few threads are allowed, the start fails with a sentence and leaves no file, or an older one unchanged.
    Otherwise it succeeds, and has the threads that kernels need when the first data come."""
    def prepare(one):
        if program in ("fgpu", "xbgpu"):
            one.set("device.threads", 5)
            one.set("recv.pcap_file", str(work / "in.pcap"))
            one.replay = True
            harness.write_heaps(work / "in.pcap", some_heaps(rng, program, one.config))

    n_failed = tighten(case, program, [{"nproc": n} for n in range(1, 40)], nobody, prepare=prepare)
    assert n_failed > 1, "the limit has no effect"


@pytest.mark.parametrize("program", PROGRAMS)
def test_few_files(case, program):
    n_failed = tighten(case, program, [{"nofile": n} for n in range(4, 60)])
    assert n_failed > 2, "the limit has no effect"


@pytest.mark.skipif(SANITIZED, reason="sanitizers take address space for themselves")
@pytest.mark.parametrize("program", PROGRAMS)
def test_little_address_space(case, program):
    """From too little for the libraries to enough, in steps that fall everywhere in between."""
    sizes = [int(12 * MIB * 1.2**n) for n in range(1, 48)]  # below 64 GiB
    n_failed = tighten(case, program, [{"as": size} for size in sizes])
    assert n_failed > 2, "the limit has no effect"


# ---- What is no reason not to start --------------------------------------------------------------------------------------


def warnings_in(text):
    """All parts that do not depend on this kernel's clock."""
    return [line for line in text.splitlines() if " warning: " in line and "clock is not synchronised" not in line]


BUFFERS = [("fgpu", ("recv", "send")), ("xbgpu", ("recv", "send")), ("dsim", ("send",)), ("visrec", ("recv",))]


@pytest.mark.parametrize("program, sides", BUFFERS, ids=[program for program, _ in BUFFERS])
def test_buffers_that_are_not_granted(case, program, sides):
    """One warning for receiving and one for sending, however many sockets there are, with the cure.  A host whose
    kernel grants the buffer gets no warning."""
    one = case(program)
    asked = 1 << 29
    n_sockets = 2 if program in ("fgpu", "visrec") else 1  # of one receive thread, which share its buffer
    expected = []
    for side in sides:
        one.set(f"{side}.buffer", asked)
        per_socket = asked // n_sockets if side == "recv" else asked
        sysctl = "net.core.rmem_max" if side == "recv" else "net.core.wmem_max"
        limit = int(Path("/proc/sys", *sysctl.split(".")).read_text())
        if limit < per_socket:
            what = "socket" if side == "recv" else "stream"
            expected.append((f" warning: {side}.buffer: the kernel grants each {what} only {limit} of {per_socket} bytes",
                             f'"sysctl {sysctl}={per_socket}"'))
    one.write_file()
    without_net_admin(one)
    warnings = warnings_in(one.run_well())
    assert len(warnings) == len(expected), warnings
    for warning, texts in zip(warnings, expected):
        assert all(text in warning for text in texts), warning


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("program", ["fgpu", "xbgpu"])
def test_polling_that_is_not_allowed(case, program, allowed):
    """If the kernel asks for a right to poll the NIC and the program lacks it, the sockets are polled.  One warning has
    the cure."""
    one = case(program)
    one.set("recv.busy_poll", 50)
    one.write_file()
    if not allowed:
        without_net_admin(one)
    warnings = [line for line in warnings_in(one.run_well()) if "busy_poll" in line]
    assert len(warnings) <= (0 if allowed and os.geteuid() == 0 else 1), warnings
    assert all(re.search(r'recv\.busy_poll: .*"sysctl net\.core\.busy_read=50"', warning) for warning in warnings)


@pytest.mark.parametrize("program", ["fgpu", "xbgpu", "visrec", "beamrec", "dsim", "fsim"])
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_start(program, signal_number, work):
    """While the file is still being read, here from a pipe that says nothing, a signal is a clean stop.  A check that is
    interrupted ends by the signal."""
    path = work / "slow.yaml"
    os.mkfifo(path)
    for options, code in ([], 0), (["--check-config"], -signal_number):
        with subprocess.Popen([BUILD / program, *options, path], stderr=subprocess.PIPE, text=True) as process:
            try:
                writer = os.open(path, os.O_WRONLY)  # returns when the program has opened it
                process.send_signal(signal_number)
                if "thread" in BUILD.name:
                    os.close(writer)  # ThreadSanitizer keeps a signal until the read ends
                assert process.wait(harness.TIMEOUT_S) == code
                if "thread" not in BUILD.name:
                    os.close(writer)
                assert process.stderr.read() == ""
            finally:
                process.kill()


def test_no_init_system(case):
    """NOTIFY_SOCKET leads nowhere: a warning, and the same packets."""
    one = case("fgpu")
    one.env["NOTIFY_SOCKET"] = str(one.work / "nowhere")
    one.write_file()
    err = one.run_well()
    assert len(warnings_in(err)) == 1 and "the init system was not notified: No such file" in err


@pytest.mark.parametrize("program", ["fgpu", "xbgpu", "visrec"])
def test_a_fifo_that_nobody_writes(case, program):
    """It is waited for as packets are: with everything running, until a signal."""
    one = case(program)
    os.mkfifo(one.work / "in.fifo")
    one.set("recv.pcap_file", str(one.work / "in.fifo"))
    one.write_file()
    one.run_well()


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_terminal(case, program):
    """With stdin, stdout and stderr closed nothing else gets their numbers: a message would be written into it."""
    one = case(program)
    one.write_file()
    one.preexec = close_standard
    with one.notify_socket() as notify, one.start() as process:
        try:
            assert select.select([notify], [], [], harness.TIMEOUT_S)[0]
            for fd in range(3):
                assert os.readlink(f"/proc/{process.pid}/fd/{fd}") == "/dev/null"
            process.send_signal(signal.SIGTERM)
            assert process.wait(harness.TIMEOUT_S) == 0
        finally:
            process.kill()


def close_standard():
    for fd in range(3):
        os.close(fd)


def test_many_groups(daemon, case, rng):
    """The kernel lets a socket join 20 groups; one receive thread must get all of 64."""
    config = fgpu_config(pol_groups=32, recv={"interface": "lo", "threads": 1, "buffer": 64 * 65536},
                         http={"listen": f"{LOOPBACK}:{free_tcp_port()}"})
    chunk_for(config, 16)  # one chunk has all heaps: the four sockets are read one after the other
    process = daemon("fgpu", config).wait_ready()
    n_heaps = 32
    samples = noise(rng, 1, n_heaps * config["recv"]["packet_samples"], 10)
    sent = digitiser_heaps(config, samples, 0)
    assert len({s.endpoint for s in sent}) == 64
    harness.send_live(sent)
    for pol in range(2):
        process.wait_metric(lambda metrics, pol=pol: metrics.get("fgpu_input_packets_total") == 64, "64 packets")
    process.terminate().wait_end(0)
    assert " this F-engine has 1 antenna, 1 output for each antenna, and 1 receive thread\n" in process.log.read_text()
    assert f"m000 pol0: {n_heaps} heaps received" in process.log.read_text()
    assert f"m000 pol1: {n_heaps} heaps received" in process.log.read_text()


def test_several_sources_are_odd(case):
    """This is usually a mistake, so a warning reports it.  But F-engines may send a substream to different places."""
    one = case("xbgpu")
    one.set("recv.sources", groups(3))
    one.write_file()
    done = one.start("--check-config")
    out, err = done.communicate(timeout=harness.TIMEOUT_S)
    assert (done.returncode, out) == (0, f"{one.path}: OK\n")
    assert err.startswith(f"{one.path}{one.place('recv.sources')}: warning: sources has 3 endpoints")
    assert len(err.splitlines()) == 1


def test_overwritten_only_by_a_dump(case):
    """A recording that must overwrite another and gets no data leaves the other unchanged."""
    one = case("visrec")
    output_file(one, "visrec", exists=True)
    one.write_file()
    before = files_in(one.work)
    one.run_well()
    assert files_in(one.work) == before


@pytest.mark.parametrize("reader, file, owner", [
    ("fgpu", "xbgpu.yaml", "xbgpu"), ("xbgpu", "fgpu.yaml", "fgpu"), ("fgpu", "demo/dsim.yaml", "dsim"),
    ("xbgpu", "demo/visrec.yaml", "visrec"), ("visrec", "fsim.yaml", "fsim"), ("dsim", "fgpu.yaml", "fgpu"),
    ("fsim", "demo/visrec.yaml", "visrec"), ("fgpu", "array/array.yaml", "scripts/array")])
def test_file_of_another_program(reader, file, owner):
    """One sentence in place of an error for each key."""
    path = harness.ROOT / "config" / file
    done = subprocess.run([harness.BUILD / reader, "--check-config", path], capture_output=True, text=True)
    assert done.returncode == 78
    assert done.stderr == f"{path}:1:1: this looks like a configuration of {owner}, not of {reader}\n"


@pytest.mark.parametrize("reader, section", [("fgpu", "antennas"), ("xbgpu", "recv"), ("visrec", "recv"),
                                             ("dsim", "antennas"), ("fgpu", "recv"), ("xbgpu", "gates")])
def test_misspelt_section(reader, section, work):
    """The file still belongs to its program, and the program knows the intended key."""
    text = (harness.ROOT / f"config/{reader}.yaml").read_text()
    wrong, n = re.subn(rf"^{section}:", f"{section[:3]}{section[4:]}:", text, flags=re.M)
    path = work / "mistake.yaml"
    path.write_text(wrong)
    done = subprocess.run([harness.BUILD / reader, "--check-config", path], capture_output=True, text=True)
    assert n == 1 and done.returncode == 78
    assert f"did you mean '{section}'?" in done.stderr and "looks like" not in done.stderr, done.stderr


@pytest.mark.parametrize("key, value, hint", [
    ("sync_time", "2025-10-09T00:00", "write seconds since 1970"),
    ("adc_sample_rate", "1 MHz", "write the number without a unit"),
    ("adc_sample_rate", "1,712,000,000", "write the number without separators"),
    ("listen", "localhost:8000", "of the form a.b.c.d[:port]; write the address as a number: 127.0.0.1:8000\n"),
    ("listen", "gpu7:8000", "write the address as a number, not as a name\n"),
    ("packet_payload", 3001, "use a packet_payload that is a multiple or divisor of 128\n"),
    ("sync_time", None, "time.sync_time is missing and has no default (UNIX time of ADC sample 0")])
def test_hints(key, value, hint, work):
    """Common mistakes in numbers and addresses."""
    text = (harness.ROOT / "config/demo/fgpu0.yaml").read_text()
    path = work / "mistake.yaml"
    line = f"  {key}: '{value}'" if value else ""
    path.write_text(re.sub(rf"  {key}: \S+", line, text, count=1))
    done = subprocess.run([harness.BUILD / "fgpu", "--check-config", path], capture_output=True, text=True)
    n_lines = 1 + (key == "packet_payload")  # which is no multiple of 8, either
    assert done.returncode == 78 and done.stderr.count("\n") == n_lines and hint in done.stderr, done.stderr
