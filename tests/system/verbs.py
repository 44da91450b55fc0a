"""A wire between two Ethernet ports that are devices of the software libibverbs of tests/fakes/verbs.

    with verbs.fake_wire() as (a, b):
        subprocess.Popen([program, ...], env=os.environ | a.env)     # uses a.interface, a.address

The wire is a veth pair in a separate network namespace.  The calling thread is in this namespace until the end.
Processes and threads that it starts meanwhile are in it, too.  Loopback works there.  A packet that enters one end
leaves the other end.  Packets enter from a queue pair or a socket.  They go to queue pairs with a matching flow and to
sockets that joined their group.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import harness

LIBRARIES = harness.BUILD / "tests/fake_verbs"
MTU = 9000
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17


@dataclass
class End:
    """One end: an interface with an IPv4 address, the environment of programs that use it, and their traces."""
    interface: str
    address: str
    directory: Path  # of the counters, and the trace
    env: dict = field(default_factory=dict)

    @property
    def device(self):
        return f"fake_{self.interface}"

    @property
    def trace(self):
        """The set-up calls so far, a line each; complaints about the program begin with "complaint: "."""
        path = self.directory / f"{self.interface}.trace"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def complaints(self):
        return [line for line in self.trace if line.startswith("complaint")]

    @property
    def joined(self):
        """The multicast groups that a socket in this namespace has joined at this end."""
        joined, here = set(), False
        for line in Path("/proc/thread-self/net/igmp").read_text().splitlines()[1:]:
            if not line.startswith("\t"):
                here = line.split()[1] == self.interface
            elif here:
                joined.add(socket.inet_ntoa(struct.pack("=I", int(line.split()[0], 16))))
        return joined

    def counter(self, name="out_of_buffer"):
        path = self.directory / self.device / "ports/1/hw_counters" / name
        return int(path.read_text()) if path.exists() else 0


def _call(function, *args):
    if function(*args):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _no_offload(interface):
    """Frames as they would be on a wire: no larger than they may be, with all their checksums."""
    data = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(data)) + bytes(16)
    with socket.socket() as s:
        fcntl.ioctl(s, SIOCETHTOOL, request)


def load():
    """From now on spead2 in this process has these libraries; to it each end of a wire is a device."""
    if harness.SANITIZED:
        pytest.skip("a sanitizer's library goes with programs of its own, and Python is not one")
    for name in ("libibverbs.so.1", "librdmacm.so.1"):
        ctypes.CDLL(str(LIBRARIES / name), mode=ctypes.RTLD_GLOBAL)


@contextlib.contextmanager
def namespace():
    """A network namespace of this thread, or the test is skipped."""
    with open("/proc/thread-self/ns/net", "rb") as before:
        try:
            _call(LIBC.unshare, CLONE_NEWNET)
        except OSError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.strerror}")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _call(LIBC.setns, before.fileno(), CLONE_NEWNET)


def _is_up(interface):
    """Whether the kernel passes packets to it: after `ip link set up` of the other end it does so a moment later."""
    done = subprocess.run(["ip", "-json", "link", "show", "dev", interface], check=True, capture_output=True)
    return json.loads(done.stdout)[0]["operstate"] == "UP"


@contextlib.contextmanager
def fake_wire(mtu=MTU, limits="", fail="", may_complain=False):
    """The two ends.  README.md explains 'limits' and 'fail', which hold for both ends; change an end's env for one.
    Forbidden calls of programs fail the test at the end."""
    if not (LIBRARIES / "libibverbs.so.1").exists():
        pytest.skip("the headers of libibverbs were not there at build time (Debian: libibverbs-dev librdmacm-dev)")
    with namespace(), tempfile.TemporaryDirectory() as directory:
        ends = [End(f"veth{i}", f"10.60.0.{i + 1}", Path(directory)) for i in range(2)]
        subprocess.run(["ip", "link", "add", "veth0", "mtu", str(mtu), "type", "veth", "peer", "name", "veth1", "mtu",
                        str(mtu)], check=True)
        for end in ends:
            _no_offload(end.interface)
            # Both ends are in one host, which must not mind its own addresses on the wire.
            for key, value in (("accept_local", 1), ("rp_filter", 0)):
                Path(f"/proc/sys/net/ipv4/conf/{end.interface}/{key}").write_text(str(value))
            subprocess.run(["ip", "address", "add", f"{end.address}/24", "dev", end.interface], check=True)
            subprocess.run(["ip", "link", "set", end.interface, "up"], check=True)
            end.env = {
                "LD_LIBRARY_PATH": str(LIBRARIES),
                "CBF_FAKE_VERBS": end.interface,
                "CBF_FAKE_VERBS_DIR": directory,
                "CBF_FAKE_VERBS_TRACE": str(end.directory / f"{end.interface}.trace"),
                "CBF_FAKE_VERBS_LIMITS": f"poison=1,delay_us=200,{limits}",
                "CBF_FAKE_VERBS_FAIL": fail,
            }
        harness.until(lambda: all(_is_up(end.interface) for end in ends), "both ends are up")
        yield ends
        assert may_complain or not any(end.complaints for end in ends), [end.complaints for end in ends]
