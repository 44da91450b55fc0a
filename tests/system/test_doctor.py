"""cbf-doctor finds planted faults: in trees of /proc and /sys, in files, and in streams of real programs.
It finds no fault in a healthy chain.

Every finding has an id, a status and a fix; tests look for those, and for the numbers that a reader needs.
"""
import contextlib
import ctypes
import http.server
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tarfile
import threading
import time

import chain
import harness
import pytest
import spead2
import spead2.send
import yaml
from harness import BUILD, LOOPBACK, endpoints, free_tcp_port, groups, merge

SECONDS = "2"
CLONE_NEWNET = 0x40000000


class Report:
    """cbf-doctor's report on some files."""

    def __init__(self, *arguments, root="", environment=None):
        command = [str(BUILD / "cbf-doctor"), *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=harness.TIMEOUT_S + 60,
                              env={**os.environ, "CBF_DOCTOR_ROOT": str(root), **(environment or {})})
        assert not done.stderr, done.stderr
        self.code = done.returncode
        self.all = json.loads(done.stdout)
        self.findings = self.all["findings"]
        worst = {"ok": 0, "warn": 1, "fail": 2}
        assert self.code == max([worst.get(f["status"], 0) for f in self.findings], default=0)
        for finding in self.bad():
            assert finding["found"] and finding["fix"], finding
            assert finding["id"] == "config.file" or (finding["expected"] and finding["why"]), finding

    def bad(self):
        return [f for f in self.findings if f["status"] in ("warn", "fail")]

    def ids(self):
        return {f["id"] for f in self.bad()}

    def get(self, id, subject=""):
        """The only finding with this id about this subject."""
        found = [f for f in self.findings if f["id"] == id and subject in f["subject"]]
        assert len(found) == 1, f"{id} of '{subject}': {found or self.findings}"
        return found[0]

    def check_words(self, words, *findings):
        """All these words are in these findings, or in all that are bad."""
        text = " ".join(v for f in findings or self.bad() for v in f.values())
        assert all(word in text for word in words), (words, text)

    def check(self, id, status, words):
        """The one finding with this id is as it must be, and no other is bad."""
        assert self.ids() == ({id} if status in ("fail", "warn") else set()), self.bad()
        assert self.get(id)["status"] == status
        self.check_words(words, self.get(id))


def report_until(is_right, *arguments, n_reports=5):
    """The first of some reports that is right, or the last one.  A host that stalls while cbf-doctor listens causes findings
    of its own, which the next report lacks."""
    for _ in range(n_reports):
        report = Report(*arguments)
        if is_right(report):
            break
        print("another report, because of", report.bad())
    return report


def report_with(ids, *arguments):
    """The same, with just these findings."""
    report = report_until(lambda report: report.ids() == ids, *arguments)
    assert report.ids() == ids, report.bad()
    return report


def plant(root, files):
    """Writes a tree of the kernel's files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return root


class Files:
    """The configurations of a chain, with overrides by name, as files."""

    def __init__(self, work, overrides=None, sync_time=None):
        self.work = work
        self.layout = chain.Layout(work, overrides)
        self.time = {"time": {"sync_time": sync_time or int(time.time()) - 1000}}

    def config(self, name):
        return merge(merge(self.layout.config(name), self.time), self.layout.overrides.get(name, {}))

    def write(self, *names):
        paths = []
        for name in names:
            paths.append(self.work / f"{name}.doctor.yaml")
            paths[-1].write_text(yaml.safe_dump(self.config(name), sort_keys=False))
        return paths


@pytest.fixture
def files(work):
    return lambda overrides=None, **keys: Files(work, overrides, **keys)


@pytest.fixture
def own_network():
    """Moves this thread, and the programs that it starts, to a separate network: lo, and the two ends of a cable, d0
    and d1."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if libc.unshare(CLONE_NEWNET):
        os.close(before)
        pytest.skip("a network namespace needs root")
    try:
        for command in ("ip link set lo up", "ip link add d0 type veth peer name d1", "ip addr add 10.99.1.1/24 dev d0",
                        "ip addr add 10.99.2.1/24 dev d1", "ip link set d0 up", "ip link set d1 up"):
            subprocess.run(command.split(), check=True)
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)


# ---- The host --------------------------------------------------------------------------------------------------------

TUNED = {
    "proc/sys/net/core/rmem_max": 268435456, "proc/sys/net/core/wmem_max": 16777216,
    "proc/sys/net/core/netdev_max_backlog": 100000, "proc/sys/net/ipv4/igmp_max_memberships": 20,
    "proc/sys/kernel/numa_balancing": 0, "proc/sys/vm/nr_hugepages": 0,
    "proc/swaps": "Filename Type Size Used Priority",
    "proc/stat": "cpu 100 0 100 800 0 0 0 0 0 0",
    "proc/meminfo": "MemTotal: 263000000 kB\nMemFree: 250000000 kB\nMemAvailable: 255000000 kB",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06",
    "sys/devices/system/cpu/online": "0-15", "sys/devices/system/cpu/isolated": "8-15",
    "sys/devices/system/cpu/smt/active": 0,
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/latency": 0,
    "sys/devices/system/cpu/cpu0/cpuidle/state0/name": "POLL",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/latency": 133,
    "sys/devices/system/cpu/cpu0/cpuidle/state1/name": "C6",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": 1,
    "proc/sys/net/ipv4/conf/all/rp_filter": 0, "proc/sys/net/ipv4/conf/eth9/rp_filter": 0,
    "sys/class/net/eth9/flags": "0x1003", "sys/class/net/eth9/carrier": 1, "sys/class/net/eth9/mtu": 9000,
    "sys/class/net/eth9/speed": 100000, "sys/class/net/eth9/device/numa_node": 0,
    "sys/class/net/eth9/device/current_link_speed": "16.0 GT/s PCIe",
    "sys/class/net/eth9/device/max_link_speed": "16.0 GT/s PCIe",
    "sys/class/net/eth9/device/current_link_width": 16, "sys/class/net/eth9/device/max_link_width": 16,
    "sys/devices/system/node/node0/cpulist": "0-15",
}

# Of two antennas at 1712 MHz: fast enough for everything to matter.
FAST = {
    "fgpu0": {
        "time": {"adc_sample_rate": 1712000000},
        "device": {"kind": "auto", "kernel_cache": "/nonexistent"},
        "recv": {"interface": "eth9", "buffer": 33554432, "threads": 2, "affinity": [8, 9], "chunk_samples": 1 << 19},
        "send": {"interface": "eth9", "buffer": 8388608, "packet_payload": 8192},
    },
}

GPU = {"sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de", "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200"}

# What is wrong with the tree (None: gone), what must be found, with which status, and what it must say.
PLANTED = [
    ("small-buffers", {"proc/sys/net/core/rmem_max": 212992}, "host.rmem_max", "warn", ["212992", "33554432"]),
    ("small-send-buffers", {"proc/sys/net/core/wmem_max": 212992}, "host.wmem_max", "warn", ["212992", "8388608"]),
    ("backlog", {"proc/sys/net/core/netdev_max_backlog": 1000}, "host.netdev_backlog", "warn", ["1000"]),
    ("memberships", {"proc/sys/net/ipv4/igmp_max_memberships": 0}, "host.igmp_memberships", "fail", ["0 groups"]),
    ("conntrack", {"proc/sys/net/netfilter/nf_conntrack_count": 5}, "host.conntrack", "warn",
     [f"--dports {harness.PORT} -j CT --notrack", "until the next boot", "netfilter-persistent save"]),
    ("thp", {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}, "host.thp", "warn", ["never"]),
    ("swap", {"proc/swaps": "Filename Type\n/dev/sda2 partition"}, "host.swap", "warn", ["1 swap"]),
    ("huge-pages", {"proc/sys/vm/nr_hugepages": 512}, "host.huge_pages", "warn", ["512"]),
    ("numa", {"proc/sys/kernel/numa_balancing": 1, "sys/devices/system/node/node1/cpulist": "16-31"},
     "host.numa_balancing", "warn", ["several NUMA nodes"]),
    ("governor", {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}, "cpu.governor", "warn",
     ["powersave", "cpupower"]),
    ("idle", {"sys/devices/system/cpu/cpu0/cpuidle/state1/disable": 0}, "cpu.idle", "warn", ["C6", "133 us"]),
    ("stolen", {"proc/stat": "cpu 100 0 100 700 0 0 0 100 0 0"}, "cpu.stolen", "warn", ["10 %"]),
    ("cpu-missing", {"sys/devices/system/cpu/online": "0-8"}, "cpu.affinity", "fail", ["CPU 9"]),
    ("cpu-shared", {"sys/devices/system/cpu/cpu9/topology/thread_siblings_list": "8-9"}, "cpu.affinity", "warn",
     ["one core"]),
    ("not-isolated", {"sys/devices/system/cpu/isolated": "9"}, "cpu.isolated", "warn", ["1 of 2"]),
    ("irqbalance", {"proc/17/comm": "irqbalance"}, "cpu.irqbalance", "warn", ["disable"]),
    ("nic-missing", {"sys/class/net/eth9/flags": None, "sys/class/net/ens5/flags": "0x1003"}, "nic.there", "fail",
     ["ens5"]),
    ("nic-down", {"sys/class/net/eth9/flags": "0x1002"}, "nic.up", "fail", ["ip link set eth9 up"]),
    ("no-carrier", {"sys/class/net/eth9/carrier": 0}, "nic.up", "fail", ["link"]),
    ("mtu", {"sys/class/net/eth9/mtu": 1500}, "nic.mtu", "fail", ["1500", "8292", "ip link set eth9 mtu 9000"]),
    ("mtu-by-one", {"sys/class/net/eth9/mtu": 8291}, "nic.mtu", "fail", ["8291", "8292"]),
    ("speed", {"sys/class/net/eth9/speed": 25000}, "nic.speed", "fail", ["25 Gb/s", "34.24 Gb/s"]),
    ("rp-filter", {"proc/sys/net/ipv4/conf/eth9/rp_filter": 1}, "nic.rp_filter", "warn", ["rp_filter=0"]),
    ("nic-lanes", {"sys/class/net/eth9/device/current_link_width": 8}, "nic.pcie", "warn", ["x8", "x16"]),
    ("nic-node", {"sys/devices/system/node/node0/cpulist": "0-7"}, "nic.numa", "warn", ["2 of 2", "0-7"]),
    ("no-driver", {"proc/driver/nvidia/version": None}, "gpu.driver", "warn", ["no NVIDIA driver", "too slow"]),
    ("gpu-lanes", {**GPU,
                   "sys/bus/pci/devices/0000:3b:00.0/current_link_speed": "32.0 GT/s PCIe",
                   "sys/bus/pci/devices/0000:3b:00.0/max_link_speed": "32.0 GT/s PCIe",
                   "sys/bus/pci/devices/0000:3b:00.0/current_link_width": 8,
                   "sys/bus/pci/devices/0000:3b:00.0/max_link_width": 16}, "gpu.pcie", "warn", ["x8", "x16"]),
    ("gpu-node", {**GPU,
                  "sys/bus/pci/devices/0000:3b:00.0/numa_node": 1, "sys/devices/system/node/node1/cpulist": "9,16-31",
                  }, "gpu.numa", "warn", ["1 of 2", "9,16-31"]),
    ("ptp", {"proc/20/comm": "ptp4l", "sys/class/ptp/ptp0/clock_name": "mlx5"}, "time.ptp", "warn", ["phc2sys"]),
]


def planted_tree(work, changes):
    tree = {path: text for path, text in {**TUNED, **changes}.items() if text is not None}
    return plant(work / "root", tree)


def test_tuned_host(work, files):
    paths = files(FAST).write("fgpu0")
    report = Report("host", *paths, root=planted_tree(work, {}))
    assert report.ids() == set(), report.bad()
    assert len(report.findings) > 20


@pytest.mark.parametrize("changes, id, status, words", [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
def test_planted_in_the_host(work, files, changes, id, status, words):
    paths = files(FAST).write("fgpu0")
    report = Report("host", *paths, root=planted_tree(work, changes))
    assert report.ids() == {id}, report.bad()
    for finding in report.bad():
        assert finding["status"] == status
        report.check_words(words, finding)


# What ibverbs needs, beside a card's driver: the device of the interface, rdma_ucm, and the permission of a daemon.
VERBS = {
    **{f"sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/{index}": interface
       for device, index, interface in (("mlx5_0", 0, "eth8"), ("mlx5_1", 0, "eth8"), ("mlx5_1", 3, "eth9"))},
    "dev/infiniband/rdma_cm": "", "etc/systemd/system/fgpu@.service.d/ibverbs.conf": "",
}
WITH_VERBS = merge(FAST, {"fgpu0": {"recv": {"transport": "ibverbs"}}})
FOUND_WITH_VERBS = {"nic-there": ({}, "verbs.device", "ok", ["mlx5_1"]),
                    "unit": ({}, "verbs.permission", "ok", ["has ibverbs.conf"]),
                    "no-device": ({"sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/3": "eth7"}, "verbs.device",
                                  "fail", ["eth9", "rdma link", "udp"]),
                    "no-module": ({"dev/infiniband/rdma_cm": None}, "verbs.module", "fail", ["modprobe rdma_ucm"]),
                    "no-unit": ({"etc/systemd/system/fgpu@.service.d/ibverbs.conf": None}, "verbs.permission", "skipped",
                                ["lacks ibverbs.conf", "install -D"]),
                    "capable": ({"proc/41/comm": "fgpu", "proc/41/status": "Name: fgpu\nCapEff: 0000000000002000"},
                                "verbs.permission", "ok", ["41", "has CAP_NET_RAW"]),
                    "not-capable": ({"proc/41/comm": "fgpu", "proc/41/status": "Name: fgpu\nCapEff: 000001ffffffdfff"},
                                    "verbs.permission", "fail", ["41", "lacks CAP_NET_RAW"])}


@pytest.mark.parametrize("changes, id, status, words", FOUND_WITH_VERBS.values(), ids=FOUND_WITH_VERBS)
def test_ibverbs(work, files, changes, id, status, words):
    paths = files(WITH_VERBS).write("fgpu0")
    # Its ring of frames is no socket buffer.
    root = planted_tree(work, {**VERBS, "proc/sys/net/core/rmem_max": 212992, **changes})
    Report("host", *paths, root=root).check(id, status, words)


def test_sending_by_ibverbs(work, files):
    """The same is needed; and a socket buffer is not."""
    tree = {**VERBS, "proc/sys/net/core/wmem_max": 4096}
    assert "host.wmem_max" in Report("host", *files(FAST).write("fgpu0"), root=planted_tree(work, tree)).ids()
    paths = files(merge(FAST, {"fgpu0": {"send": {"transport": "ibverbs"}}})).write("fgpu0")
    assert Report("host", *paths, root=planted_tree(work, tree)).ids() == set()
    tree["sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/3"] = "eth7"
    report = Report("host", *paths, root=planted_tree(work, tree))
    assert report.ids() == {"verbs.device"} and "send.interface" in report.get("verbs.device")["found"]


def test_sending_with_ibverbs(work, files):
    """The same is needed, of the interface that is sent on."""
    paths = files(merge(FAST, {"fgpu0": {"send": {"transport": "ibverbs"}}})).write("fgpu0")
    assert Report("host", *paths, root=planted_tree(work, VERBS)).get("verbs.device", "eth9")["status"] == "ok"
    report = Report("host", *paths, root=planted_tree(work / "without", {}))
    assert report.ids() == {"verbs.module", "verbs.device"}
    assert "send.interface" in report.get("verbs.device")["found"]


def test_ibverbs_and_locked_memory(files):
    """Less memory may be locked than the rings of two threads take, and nothing lifts the limit."""
    paths = files(merge(WITH_VERBS, {"fgpu0": {"recv": {"buffer": 1 << 22}}})).write("fgpu0")
    needed = 2 * ((1 << 22) // 9280) * 9280  # of whole frames of the largest MTU, as there is no eth9 here
    for limit, status in ((needed - 1, "warn"), (needed, "ok")):
        done = subprocess.run(["prlimit", f"--memlock={limit}", "setpriv", "--bounding-set=-ipc_lock",
                               BUILD / "cbf-doctor", "host", "--json", *paths], capture_output=True, text=True)
        found = [f for f in json.loads(done.stdout)["findings"] if f["id"] == "verbs.memory"]
        assert [f["status"] for f in found] == [status], (found, done.stderr)


# What writing to the GPU's memory needs, of a GPU whose window is its third region, as those of recent kinds have it.
DIRECT = {
    **GPU, "usr/lib/x86_64-linux-gnu/libvulkan.so.1": "", "etc/vulkan/icd.d/nvidia_icd.json": "{}",
    "dev/nvidia-modeset": "", "proc/sys/kernel/osrelease": "5.12.0-1-amd64",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06",
    "sys/bus/pci/devices/0000:3b:00.0/resource": "\n".join(
        ["0x0000000080000000 0x0000000080ffffff 0x0000000000040200", "0x0 0x0 0x0",
         "0x0000380000000000 0x00003800ffffffff 0x000000000014220c", "0x0 0x0 0x0",
         "0x0000380100000000 0x0000380101ffffff 0x000000000014220c", "0x0 0x0 0x0",
         "0x0000000000000000 0x000000ffffffffff 0x0000000000000000"]),
}
SMALL_WINDOW = {"sys/bus/pci/devices/0000:3b:00.0/resource": DIRECT["sys/bus/pci/devices/0000:3b:00.0/resource"].replace(
    "0x00003800ffffffff", "0x0000380000ffffff")}
CLOSED = {"proc/driver/nvidia/version": TUNED["proc/driver/nvidia/version"]}
VERBS_TOO = {**VERBS, "etc/vulkan/icd.d/nvidia_icd.json": None}  # which the card does not want
FOUND_WITH_DIRECT = {
    "direct": ("direct", {}, "direct.bar", "ok", ["0000:3b:00.0", "4096 MiB"]),
    "no-loader": ("direct", {"usr/lib/x86_64-linux-gnu/libvulkan.so.1": None}, "direct.vulkan", "fail",
                  ["libvulkan.so.1 is not there", "libvulkan1"]),
    "no-icd": ("direct", {"etc/vulkan/icd.d/nvidia_icd.json": None}, "direct.vulkan", "fail",
               ["no file", "nvidia-vulkan-icd"]),
    "no-modeset": ("direct", {"dev/nvidia-modeset": None}, "direct.modeset", "warn", ["nvidia-modprobe -m"]),
    "small-bar": ("direct", SMALL_WINDOW, "direct.bar", "fail", ["32 MiB", "Resizable BAR"]),
    "two-gpus": ("direct", {path.replace("3b", "3c"): text for path, text in GPU.items()}, "direct.bar", "skipped",
                 ["not known"]),
    "closed-driver": ("direct", CLOSED, "direct.modeset", "ok", []),  # which may be
    "gpudirect": ("gpudirect", VERBS_TOO, "direct.dmabuf", "ok", ["5.12", "the open"]),
    "closed": ("gpudirect", {**VERBS_TOO, **CLOSED}, "direct.dmabuf", "fail", ["not the open"]),
    "old-kernel": ("gpudirect", {**VERBS_TOO, "proc/sys/kernel/osrelease": "5.11.22"}, "direct.dmabuf", "fail",
                   ["5.11.22"]),
    "new-kernel": ("gpudirect", {**VERBS_TOO, "proc/sys/kernel/osrelease": "6.1.0"}, "direct.dmabuf", "ok", ["6.1.0"]),
    "small-bar-of-frames": ("gpudirect", {**VERBS_TOO, **SMALL_WINDOW}, "direct.bar", "fail", ["NIC's frames and buffers"]),
}


@pytest.mark.parametrize("key, changes, id, status, words", FOUND_WITH_DIRECT.values(), ids=FOUND_WITH_DIRECT)
def test_memory_of_the_gpu(work, files, key, changes, id, status, words):
    recv = {key: True} | ({"transport": "ibverbs"} if key == "gpudirect" else {})
    paths = files(merge(FAST, {"fgpu0": {"recv": recv}})).write("fgpu0")
    report = Report("host", *paths, root=planted_tree(work, {**DIRECT, **changes}))
    report.check(id, status, words)
    other = {"direct": "direct.dmabuf", "gpudirect": "direct.vulkan"}[key]
    assert other not in {f["id"] for f in report.findings}


@pytest.mark.parametrize("gpu", ["0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0", "3b:00.0", "3b:0", "0:3b:00"])
def test_forms_of_an_address(work, files, gpu):
    """One of two GPUs, by its address as /sys, lspci and nvidia-smi have it."""
    paths = files(merge(FAST, {"fgpu0": {"recv": {"direct": True, "affinity": [8, 9]}, "device": {"gpu": gpu}}})).write("fgpu0")
    other = {path.replace("3b", "3c"): text for path, text in GPU.items()}
    node = {"sys/bus/pci/devices/0000:3b:00.0/numa_node": 1, "sys/devices/system/node/node1/cpulist": "9,16-31"}
    report = Report("host", *paths, root=planted_tree(work, {**DIRECT, **other, **node}))
    window, far = report.get("direct.bar"), report.get("gpu.numa")
    assert window["status"] == "ok" and "on GPU 0000:3b:00.0, 4096 MiB" in window["found"], window
    assert far["status"] == "warn" and "GPU 0000:3b:00.0" in far["found"], far


def test_slow_hosts_need_no_tuning(work, files):
    """At the rate of a demonstration, settings that lose packets at 30 Gb/s are no finding."""
    changes = {"proc/swaps": "Filename\n/dev/sda2", "proc/sys/net/core/netdev_max_backlog": 1000,
               "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}
    slow = merge(FAST, {"fgpu0": {"time": {"adc_sample_rate": 1000000}}})
    report = Report("host", *files(slow).write("fgpu0"), root=planted_tree(work, changes))
    assert report.ids() == set(), report.bad()


def test_nothing_to_see(work):
    """An empty tree, and no file: nothing fails, and the report lists the parts that it could not see."""
    (work / "root").mkdir()
    report = Report("all", root=work / "root")
    assert report.ids() == set(), report.bad()
    assert {"host.rmem_max", "cpu.governor", "nic.there", "config.f-x", "streams.source", "loss.verdict"} <= \
        {f["id"] for f in report.findings if f["status"] == "skipped"}


def test_mtu_of_a_real_interface(own_network, files):
    overrides = {"fgpu0": {"send": {"interface": "d0", "packet_payload": 8192}}}
    paths = files(overrides).write("fgpu0")
    subprocess.run("ip link set d0 mtu 1500".split(), check=True)
    assert "8292" in Report("host", *paths).get("nic.mtu", "d0")["expected"]
    assert Report("host", *paths).get("nic.mtu", "d0")["status"] == "fail"
    subprocess.run("ip link set d0 mtu 9000".split(), check=True)
    assert Report("host", *paths).get("nic.mtu", "d0")["status"] == "ok"


def test_too_many_antennas_for_the_memory(work, files):
    """It says how many fit; that many do, and one more does not."""
    root = planted_tree(work, {"proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 15000000 kB"})

    def report(n_ants):
        recv = {"antennas": n_ants, "channels": 4096, "channels_per_substream": 1024, "channel_offset": 0,
                "samples_between_spectra": 8192, "spectra_per_heap": 256, "batches_per_chunk": 8, "interface": "eth9"}
        paths = files({"xbgpu0": {"recv": recv, "send": {"interface": "eth9"}}}).write("xbgpu0")
        return Report("host", *paths, root=root).get("host.memory")

    found = report(1024)
    assert found["status"] == "fail"
    fit = int(re.search(r"(\d+) of its 1024 antennas", found["fix"])[1])
    assert 1 < fit < 1024
    assert report(fit)["status"] != "fail"
    assert report(fit + 1)["status"] == "fail"
    assert report(fit // 2)["status"] == "ok"


# ---- Ports -----------------------------------------------------------------------------------------------------------


def test_port_conflict(files, daemon):
    files = files()
    paths = files.write("fgpu0")
    assert Report("host", *paths).get("host.ports")["status"] == "ok"
    host, port = files.config("fgpu0")["http"]["listen"].split(":")
    with socket.create_server((host, int(port))):
        found = Report("host", *paths).get("host.ports", "fgpu0")
    assert found["status"] == "fail" and port in found["fix"] and "http.listen" in found["found"]
    daemon("fgpu", files.config("fgpu0")).wait_ready()
    assert Report("host", *paths).get("host.ports")["status"] == "ok"


def test_daemon_without_monitoring(files, daemon):
    """It is known by its command line: the memory and the ports that it has are not missing."""
    files = files({"fgpu0": {"http": {"listen": []}}})
    with daemon("fgpu", files.config("fgpu0"), "unseen"):
        report = Report("host", files.work / "unseen.yaml")
        assert "1 daemon runs" in report.get("host.memory")["found"]
        assert report.get("host.socket_buffers", "unseen")["status"] == "ok"
        assert "no http.listen" in Report("loss", files.work / "unseen.yaml").get("loss.verdict")["found"]
    assert "1 daemon that will be started" in Report("host", files.work / "unseen.yaml").get("host.memory")["found"]


def test_port_conflict_of_two_files(files):
    listen = {"http": {"listen": f"127.0.0.1:{free_tcp_port()}"}}
    paths = files({"fgpu0": listen, "xbgpu1": listen}).write("fgpu0", "xbgpu1")
    found = Report("host", *paths).get("host.ports")
    assert found["status"] == "fail" and "fgpu0" in found["found"] and "xbgpu1" in found["subject"]
    assert found["fix"] == f"give http.listen in {paths[1]} another port"


def test_unicast_port_conflict(files):
    port = free_tcp_port()
    paths = files({"xbgpu0": {"recv": {"sources": f"{LOOPBACK}:{port}"}}}).write("xbgpu0")
    assert Report("host", *paths).get("host.ports")["status"] == "ok"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, port))
        assert str(port) in Report("host", *paths).get("host.ports")["found"]


# ---- Compiled kernels ------------------------------------------------------------------------------------------------


def fnv1a_128(data):
    """Fowler, Noll and Vo's hash, which names and guards the entries."""
    value = 0x6C62272E07BB014262B821756295C58D
    for byte in data:
        value = (value ^ byte) * ((1 << 88) + 0x13B) % (1 << 128)
    return value >> 64, value % (1 << 64)


def cache_entry(key, data):
    """As the device writes one: a header with key, length and checksum, then the data."""
    return struct.pack("<8s5Q", b"cbfcubin", *key, len(data), *fnv1a_128(data)) + data


def test_stale_kernel_cache(work, files):
    cache = work / "cache"
    cache.mkdir()
    paths = files({"fgpu0": {"device": {"kind": "auto", "kernel_cache": str(cache)}}}).write("fgpu0")

    def found():
        return Report("host", *paths, root=planted_tree(work, {})).get("gpu.cache")

    def write(number, data=b"cubin" * 100):
        path = cache / f"{number:016x}{number + 1:016x}.bin"
        path.write_bytes(cache_entry((number, number + 1), data))
        return path

    assert found()["status"] == "ok"
    write(1), write(2)
    assert found()["status"] == "ok" and "2 compiled kernels" in found()["found"]
    old = write(3)
    os.utime(old, (1e9, 1e9))
    assert found()["status"] == "warn" and "1 of 3" in found()["found"] and "older" in found()["found"]
    old.unlink()
    cache.chmod(0o777)
    assert found()["status"] == "warn" and "users other than the owner may write to this directory" in found()["found"]
    cache.chmod(0o755)
    damaged = write(4)
    content = bytearray(damaged.read_bytes())
    content[-7] ^= 4
    damaged.write_bytes(content)
    assert found()["status"] == "warn" and "1 of 3" in found()["found"] and damaged.name in found()["found"]
    damaged.write_bytes(cache_entry((4, 5), b"cubin")[:-2])
    assert found()["status"] == "warn" and "damaged" in found()["found"]
    damaged.unlink()
    write(5).rename(cache / f"{6:016x}{7:016x}.bin")  # of another key
    assert found()["status"] == "warn" and str(cache) in found()["fix"]


# ---- GPUs ------------------------------------------------------------------------------------------------------------

FAKE = BUILD / "tests" / "cbf-cuda-fake.so"
NO_DRIVER = not os.path.exists("/proc/driver/nvidia/version")


@pytest.mark.skipif(not FAKE.exists(), reason="no CUDA toolkit, and so no cuda device")
@pytest.mark.parametrize("settings, device, ids, words", [
    ("memory_mib=1024", {"kind": "auto"}, set(), []),
    ("memory_mib=1", {"kind": "auto"}, {"gpu.memory"}, ["recv.chunk_samples"]),
    ("gpus=0", {"kind": "auto"}, set(), []),
    ("gpus=0", {"kind": "cuda"}, {"gpu.device", "gpu.driver"}, ["device.kind"]),
    ("major=7", {"kind": "cuda"}, {"gpu.device", "gpu.driver"}, ["8.0"]),
    ("gpus=1", {"kind": "auto", "gpu": "3"}, {"gpu.device"}, ["device.gpu"]),
])
def test_gpu(files, settings, device, ids, words):
    paths = files({"fgpu0": {"device": device, "send": {"buffer": 0}}}).write("fgpu0")
    report = Report("host", *paths, environment={"CBF_CUDA_DEVICE": str(FAKE), "CBF_FAKE_CUDA": settings})
    found = {id for id in report.ids() if id.startswith("gpu.")}
    assert found == (ids if NO_DRIVER else ids - {"gpu.driver"}), report.bad()
    report.check_words(words)


# ---- F-engines against X-engines -------------------------------------------------------------------------------------

BOTH = ("fgpu0", "fgpu1", "xbgpu0", "xbgpu1")

MISMATCHES = [
    ("channels", {"xbgpu0": {"recv": {"channels": 512, "samples_between_spectra": 512}}}, ["config.f-x"],
     ["recv.channels", "256"]),
    ("substream", {"xbgpu0": {"recv": {"channels_per_substream": 64}}}, ["config.f-x"],
     ["channels_per_substream: 128"]),
    ("offset", {"xbgpu1": {"recv": {"channel_offset": 0}}}, ["config.f-x"], ["recv.channel_offset: 128"]),
    ("spectra", {"xbgpu0": {"recv": {"spectra_per_heap": 64}}}, ["config.f-x"], ["recv.spectra_per_heap: 32"]),
    ("bits", {"xbgpu0": {"recv": {"sample_bits": 4}}}, ["config.f-x"], ["recv.sample_bits: 8"]),
    ("step", {"xbgpu0": {"recv": {"samples_between_spectra": 1024}}}, ["config.f-x"], ["samples_between_spectra: 512"]),
    ("antennas", {"xbgpu0": {"recv": {"antennas": 1}}, "xbgpu1": {"recv": {"antennas": 1}}}, ["config.antennas"],
     ["m001 has the feng_id 1", "feng_id from 0 to 0"]),
    ("array-size", {"fgpu0": {"send": {"array_size": 5}}}, ["config.antennas"], ["array_size is 5"]),
    ("same-id", {"fgpu1": {"antennas": [{"name": "m001", "feng_id": 0, "pol0": groups(), "pol1": groups()}]}},
     ["config.antennas"], ["feng_id 0 belongs to m000 and to m001"]),
    ("sync-time", {"xbgpu1": {"time": {"sync_time": 1700000000.5}}}, ["config.time"], ["sync_time differs by"]),
    ("rate", {"fgpu1": {"time": {"adc_sample_rate": 524288.5}}}, ["config.time"], ["524288.5 Hz"]),
    ("groups", {"xbgpu0": {"recv": {"sources": "239.104.255.255:7149"}}}, ["config.f-x"], ["239.104.255.255:7149"]),
    ("ttl", {"fgpu0": {"send": {"interface": "eth9", "ttl": 0}}, "xbgpu0": {"recv": {"interface": "eth8"}},
             "xbgpu1": {"recv": {"interface": "eth8"}}}, ["config.ttl", "config.interfaces"], ["ttl is 0", "fgpu1"]),
    ("interface", {"fgpu0": {"send": {"interface": "eth9", "ttl": 4}}}, ["config.interfaces"], ["eth9", "lo"]),
]


def test_files_that_fit(files):
    report = Report("config", *files().write(*BOTH))
    assert report.code == 0 and not report.bad()
    fits = [f["found"] for f in report.findings if f["id"] == "config.f-x"]
    assert fits == [f"the outputs in 2 files of fgpu match this X-engine: channels {first} to {first + 127} of 256"
                    for first in (0, 128)]


@pytest.mark.parametrize("overrides, ids, words", [row[1:] for row in MISMATCHES], ids=[row[0] for row in MISMATCHES])
def test_f_x_mismatch(files, overrides, ids, words):
    report = Report("config", *files(overrides).write(*BOTH))
    assert report.ids() == set(ids), report.bad()
    report.check_words(words)


def test_output_that_is_not_sent(files):
    """A finding, unless a request can enable it."""
    output = {"name": "vis", "destination": groups(), "integration_time": 0.5, "send_enabled": False}
    (path,) = files({"xbgpu1": {"outputs": [output]}}).write("xbgpu1")
    config = yaml.safe_load(path.read_text())
    config.pop("katcp", None)
    path.write_text(yaml.safe_dump(config))
    found = Report("config", path).get("config.send_enabled")
    assert found["status"] == "warn" and "its send_enabled is false" in found["found"]


def test_file_with_errors(files):
    """The daemon's own sentences, with their places, and nothing else of that file."""
    paths = files({"xbgpu0": {"recv": {"chanels": 3, "antennas": 0}}}).write("xbgpu0", "fgpu0")
    report = Report("config", *paths)
    bad = report.bad()
    assert {f["id"] for f in bad} == {"config.file"} and len(bad) == 2
    assert any("chanels" in f["found"] for f in bad)
    for f in bad:
        line = re.search(r"xbgpu0\.doctor\.yaml:(\d+):\d+:", f["found"])[1]
        assert f["fix"] == f"correct line {line} of {paths[0]}"
    assert report.get("config.file", "fgpu0")["status"] == "ok"


def test_file_that_is_not_there(work):
    found = Report("config", work / "nope.yaml").get("config.file")
    assert found["status"] == "fail" and found["fix"].startswith("give the path of a file that exists")


def test_one_finding_for_one_number(files):
    """An array of four in the F-engines' files, and one antenna beyond recv.antennas: one finding and one fix."""
    array_size = {"send": {"array_size": 4}}
    files = files({"fgpu0": array_size, "fgpu1": array_size, "xbgpu0": {"recv": {"antennas": 1}}})
    _, fgpu1, xbgpu0 = files.write("fgpu0", "fgpu1", "xbgpu0")
    report = Report("config", fgpu1, xbgpu0)
    assert [(f["id"], f["fix"]) for f in report.bad()] == [
        ("config.antennas", f"set recv.antennas in {xbgpu0} to 4, the value of send.array_size")]


@pytest.mark.parametrize("sizes, antennas, expected", [
    ((2, 4), 3, {"send.array_size in {fgpu0} to 4", "recv.antennas in {xbgpu0} to 4"}),
    ((2, 4), 2, {"send.array_size in {fgpu0} to 4", "recv.antennas in {xbgpu0} to 4"}),
    ((2, 4), 1, {"recv.antennas in {xbgpu0} to 4, the value of send.array_size", "send.array_size in {fgpu0} to 4"}),
    ((2, 2), 3, {"send.array_size in {fgpu0} to 3", "send.array_size in {fgpu1} to 3"}),
    ((2, 2), 1, {"recv.antennas in {xbgpu0} to 2, the value of send.array_size", "recv.antennas in {xbgpu0} to 2"})])
def test_one_size_for_the_array(files, sizes, antennas, expected):
    """Whatever the files contain, all fixes name one number: the largest."""
    sizes = {f"fgpu{i}": {"send": {"array_size": size}} for i, size in enumerate(sizes)}
    names = ("fgpu0", "fgpu1", "xbgpu0")
    paths = dict(zip(names, files(sizes | {"xbgpu0": {"recv": {"antennas": antennas}}}).write(*names)))
    fixes = {f["fix"] for f in Report("config", *paths.values()).bad()}
    assert fixes == {"set " + text.format(**paths) for text in expected}


@pytest.mark.parametrize("key, value, said", [
    ("spectra_per_heap", 64, "outputs[].spectra_per_heap is 32 in fgpu0.doctor.yaml and 64 in fgpu1.doctor.yaml"),
    ("sample_bits", 4, "outputs[].sample_bits is 8 in fgpu0.doctor.yaml and 4 in fgpu1.doctor.yaml"),
    ("channels", 512, "outputs[].channels is 256 in fgpu0.doctor.yaml and 512 in fgpu1.doctor.yaml")])
def test_f_engines_that_differ(files, key, value, said):
    """The report names it once, and names no X-engine's key, which cannot be right for both."""
    files = files()
    files.layout.overrides = {"fgpu1": {"outputs": [files.config("fgpu1")["outputs"][0] | {key: value}]}}
    paths = files.write(*BOTH)
    assert [(f["found"], f["fix"]) for f in Report("config", *paths).bad()] == [
        (said, f"make outputs[].{key} equal in {paths[0]} and {paths[1]}")]


def test_output_into_another_input(files):
    """In one file --check-config refuses it.  Between two programs only both files together show it."""
    files = files()
    pol0 = files.config("fgpu1")["antennas"][0]["pol0"]
    files.layout.overrides = {"fgpu0": {"outputs": [files.config("fgpu0")["outputs"][0] | {"destinations": [pol0]}]}}
    fgpu0, fgpu1 = files.write("fgpu0", "fgpu1")
    found = Report("config", fgpu0, fgpu1).get("config.destinations")
    assert found["status"] == "fail" and f"output wide of fgpu0.doctor.yaml goes to {pol0}" in found["found"], found
    assert "antennas[0].pol0 of fgpu1.doctor.yaml" in found["found"] and str(fgpu0) in found["fix"]
    files.layout.overrides = {"fgpu1": files.layout.overrides["fgpu0"]}
    found = Report("config", *files.write("fgpu1")).get("config.file")
    assert found["status"] == "fail" and "the program would receive its own output" in found["found"]


@pytest.mark.parametrize("section, keys", [("beams", {"pol": 0}), ("detected", {"beams": 2})])
def test_beam_into_an_input(section, keys, files):
    """A beam to the group of another program's input, and a beam that no request can enable."""
    files = files()
    pol0 = files.config("fgpu1")["antennas"][0]["pol0"]
    beams = [{"name": "bx", "destination": pol0} | keys,
             {"name": "by", "destination": harness.groups(), "send_enabled": False} | keys]
    files.layout.overrides = {"xbgpu0": {section: beams}}
    report = Report("config", *files.write("fgpu1", "xbgpu0"))
    found = report.get("config.destinations")
    assert found["status"] == "fail" and f"output bx of xbgpu0.doctor.yaml goes to {pol0}" in found["found"], found
    found = report.get("config.send_enabled")
    assert "output by is not sent: its send_enabled is false" in found["found"], found


def with_satellites(files, *destinations):
    """Both F-engines with a stream of satellites' sums to each of these."""
    gnss = [{"name": f"l{i}", "destination": destination, "centre_frequency": 2e6, "decimation": 2, "sky_frequency": 1575.42e6}
            for i, destination in enumerate(destinations)]
    satellites = [{"signal": "L1CA", "prns": list(range(1, 33))} for _ in gnss[:1]]
    every = {"time": {"adc_sample_rate": 8000000}, "gnss": gnss, "satellites": satellites}
    files.layout.overrides = {name: every for name in ("fgpu0", "fgpu1")}
    return Report("config", *files.write("fgpu0", "fgpu1"))


def test_satellites_to_others(files):
    """Sums may go to one group from all F-engines; not to a program's input, nor to the group of another stream."""
    files = files()
    pol0, output = files.config("fgpu1")["antennas"][0]["pol0"], files.config("fgpu1")["outputs"][0]["destinations"]
    first, group = "{}:{}".format(*harness.endpoints(output)[0]), harness.groups()
    assert with_satellites(files, group).ids() == set()
    (found,) = with_satellites(files, group, pol0).bad()
    assert found["id"] == "config.file" and "the program would receive its own output" in found["found"], found
    for destinations, words in [((first,), f"outputs wide and l0 both send to {first}"),
                                ((group, group), f"outputs l0 and l1 both send to {group}")]:
        report = with_satellites(files, *destinations)
        assert report.ids() == {"config.destinations"} and [f["found"] for f in report.bad()] == [words] * 2, report.bad()
    # Another program's input.
    with_satellites(files, pol0)
    files.layout.overrides["fgpu1"] = {"time": {"adc_sample_rate": 8000000}}
    report = Report("config", *files.write("fgpu0", "fgpu1"))
    assert f"output l0 of fgpu0.doctor.yaml goes to {pol0}" in report.get("config.destinations")["found"]


def test_rate_of_satellites(files):
    """Records of 184 bytes: of each satellite as many as code periods, 7/8 long, fit a chunk, and two."""
    def sends_bits_per_s(*destinations):
        said = with_satellites(files, *destinations).get("config.file", "fgpu0")["found"]
        number, unit = re.search(r"sends ([\d.]+) (\w)b/s", said).groups()
        return float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit]

    files = files()
    config = files.config("fgpu0")
    chunk = config["recv"]["chunk_samples"]
    n_records = 32 * (2 + (chunk // 2 + 3) // (4000 - 500))
    added = sends_bits_per_s(harness.groups()) - sends_bits_per_s()
    assert added == pytest.approx(len(config["antennas"]) * 8 * 184 * n_records / (chunk / 8e6), rel=0.02)


# ---- Streams ---------------------------------------------------------------------------------------------------------


def start_dsim(daemon, files, change=None, name="dsim"):
    config = merge(files.config("dsim"), {"http": {"listen": f"{LOOPBACK}:{free_tcp_port()}"}})
    return daemon("dsim", merge(config, change or {}), name).wait_ready()


def test_late_clock_of_one_digitiser(daemon, files):
    """A digitiser that was synchronised three seconds later than the other files say."""
    files = files()
    antennas = files.config("dsim")["antennas"]
    sync_time = files.time["time"]["sync_time"]
    one = "sky = wgn(0.03, 1); sky; sky;"
    start_dsim(daemon, files, {"antennas": antennas[:1], "signals": {"specification": one}}, "dsim0")
    late = {"antennas": antennas[1:], "signals": {"specification": one}, "time": {"sync_time": sync_time + 3}}
    start_dsim(daemon, files, late, "dsim1")
    report = report_with({"streams.clock"}, "streams", *files.write("fgpu0", "fgpu1"), "--seconds", SECONDS)
    found = report.get("streams.clock", "fgpu1")
    assert "sync_time" in found["fix"] and re.search(r"3\.\d+ s late \(whole seconds", found["found"])
    # Where others are right, it is the digitiser.
    both = files.config("fgpu0")
    both["antennas"] += files.config("fgpu1")["antennas"]
    path = files.work / "both.yaml"
    path.write_text(yaml.safe_dump(both))
    report = report_with({"streams.clock"}, "streams", path, "--seconds", SECONDS)
    assert [f["subject"] for f in report.bad()] == ["both.yaml m001 pol0", "both.yaml m001 pol1"]
    assert "synchronise this digitiser" in report.bad()[0]["fix"]


def test_early_clock(daemon, files):
    """Timestamps of the future: this host's clock, or sync_time, is wrong."""
    files = files()
    start_dsim(daemon, files)
    wrong = {"time": {"sync_time": files.time["time"]["sync_time"] + 0.75}}
    files.layout.overrides = {"fgpu0": wrong}
    found = Report("streams", *files.write("fgpu0"), "--seconds", SECONDS).get("streams.clock")
    assert found["status"] == "fail" and re.search(r"0\.[67]\d+ s early", found["found"])


def test_lost_feed(daemon, files):
    files = files()
    antennas = files.config("dsim")["antennas"]
    antennas[1]["pol1"] = groups()
    start_dsim(daemon, files, {"antennas": antennas})
    report = report_with({"streams.silent"}, "streams", *files.write("fgpu0", "fgpu1"), "--seconds", SECONDS)
    found = report.get("streams.silent")
    address, _ = endpoints(files.config("fgpu1")["antennas"][0]["pol1"])[0]
    assert found["subject"].endswith("m001 pol1") and f"dst host {address}" in found["fix"]
    well = [f for f in report.findings if f["id"] == "streams.source"]
    assert [f["status"] for f in well] == ["ok"] * 3
    expected = chain.RATE / chain.PACKET
    assert all(f"of {expected:g} heaps/s, packets of {chain.PACKET * 10 // 8} bytes" in f["found"] for f in well)


def test_miswired_polarisations(daemon, files):
    files = files()
    start_dsim(daemon, files)
    antenna = files.config("fgpu0")["antennas"][0]
    files.layout.overrides = {"fgpu0": {"antennas": [antenna | {"pol0": antenna["pol1"], "pol1": antenna["pol0"]}]}}
    report = report_with({"streams.polarisation"}, "streams", *files.write("fgpu0", "fgpu1"), "--seconds", SECONDS)
    found = report.get("streams.polarisation")
    assert found["subject"].endswith("m000") and "swapped: pol0 receives digitiser id 1, pol1 0" in found["found"]


def test_polarisation_of_another_antenna(daemon, files):
    files = files()
    start_dsim(daemon, files)
    first, second = (files.config(name)["antennas"][0] for name in ("fgpu0", "fgpu1"))
    files.layout.overrides = {"fgpu0": {"antennas": [first | {"pol1": second["pol1"]}]}}
    report = report_with({"streams.polarisation"}, "streams", *files.write("fgpu0"), "--seconds", SECONDS)
    assert report.code == 1
    files.layout.overrides = {"fgpu0": {"antennas": [first | {"pol1": second["pol0"]}]}}
    found = Report("streams", *files.write("fgpu0"), "--seconds", SECONDS).get("streams.polarisation")
    assert found["status"] == "fail" and "pol1 receives packets of polarisation 0: digitiser id 2" in found["found"]


def test_host_that_is_down(own_network, files):
    """Engines of a host that does not answer are asked at the same time.  A request takes 2 s."""
    names = ("fgpu0", "fgpu1", "xbgpu0", "xbgpu1")
    paths = files({name: {"http": {"listen": f"10.99.1.77:{8000 + i}"}} for i, name in enumerate(names)}).write(*names)
    began = time.monotonic()
    report = Report("loss", *paths, "--seconds", "1")
    assert [f["status"] for f in report.findings if f["id"] == "loss.verdict"] == ["skipped"] * len(names)
    assert time.monotonic() - began < 2 * len(names)


def test_wrong_interface(own_network, daemon, files):
    """The digitisers' packets are on lo, but the file has them on d0."""
    files = files()
    start_dsim(daemon, files)
    files.layout.overrides = {"fgpu0": {"recv": {"interface": "d0"}}}
    report = report_with({"streams.interface"}, "streams", *files.write("fgpu0"), "--seconds", SECONDS)
    found = report.get("streams.interface")
    assert "arrives on lo, but the file names d0" in found["found"] and "to lo" in found["fix"]


def test_interface_that_is_not_there(files):
    paths = files({"fgpu0": {"recv": {"interface": "eno77"}}}).write("fgpu0")
    found = Report("streams", *paths, "--seconds", "0.1").get("streams.interface")
    assert "eno77" in found["found"] and "lo" in found["expected"]
    assert Report("host", *paths).get("nic.there", "eno77")["status"] == "fail"


def test_two_senders(daemon, files):
    files = files()
    start_dsim(daemon, files, name="dsim0")
    start_dsim(daemon, files, name="dsim1")
    report = report_with({"streams.sender"}, "streams", *files.write("fgpu0"), "--seconds", SECONDS)
    assert "two senders of the same heaps" in report.get("streams.sender", "pol0")["found"]


def test_wrong_shapes(daemon, files):
    """The samples' width and rate differ from the file's."""
    files = files()
    start_dsim(daemon, files)
    files.layout.overrides = {"fgpu0": {"recv": {"sample_bits": 8}},
                              "fgpu1": {"time": {"adc_sample_rate": 2 * chain.RATE}}}
    rate = 0
    for _ in range(5):  # if the host stalls while cbf-doctor listens, cbf-doctor does not judge the rate, or dsim catches up
        report = Report("streams", *files.write("fgpu0", "fgpu1"), "--seconds", SECONDS)
        found = report.get("streams.heap_size", "pol0")
        assert "heaps of 5120 bytes" in found["found"] and "4096 bytes" in found["expected"]
        if "streams.rate" in report.ids():
            found = report.get("streams.rate", "m001 pol1")
            rate = float(re.search(r"([\d.e+]+) samples a second", found["found"])[1])
        if abs(rate / chain.RATE - 1) < 0.05:
            break
    assert abs(rate / chain.RATE - 1) < 0.05


def test_strangers(files):
    """Heaps of an antenna that is not in the array, and packets that are not SPEAD."""
    files = files()
    config = files.config("xbgpu0")
    endpoint = endpoints(config["recv"]["sources"])[0]
    recv = config["recv"]
    n_bytes = recv["channels_per_substream"] * recv["spectra_per_heap"] * 4
    stop = threading.Event()

    def send():
        stream = spead2.send.UdpStream(spead2.ThreadPool(), [endpoint], spead2.send.StreamConfig(max_packet_size=4096),
                                       ttl=0, interface_address=LOOPBACK)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
            cnt = 1
            while not stop.wait(0.05):
                cnt += 1
                heap = harness.feng_heap(cnt * recv["spectra_per_heap"] * recv["samples_between_spectra"], 77, 0,
                                         harness.np.zeros(n_bytes, harness.np.int8))
                stream.send_heap(heap, cnt)
                other.sendto(b"hello, world, this is no heap", endpoint)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        report = report_with({"streams.unknown", "streams.silent"}, "streams", *files.write("xbgpu0"), "--seconds", "1")
    finally:
        stop.set()
        sender.join()
    unknown = [f["found"] for f in report.findings if f["id"] == "streams.unknown"]
    assert any("feng_id 77, from 127.0.0.1" in text for text in unknown)
    assert any("not SPEAD" in text for text in unknown)


def test_losses_before_the_host(files):
    """Every tenth heap of one F-engine, a single one of the other, and a part of a heap counts as a loss, too."""
    rate, lose = 4 * chain.RATE, threading.Event()
    files = files({"xbgpu0": {"time": {"adc_sample_rate": rate}}})
    config = files.config("xbgpu0")
    recv, sync_time = config["recv"], config["time"]["sync_time"]
    endpoint = endpoints(recv["sources"])[0]
    step = recv["spectra_per_heap"] * recv["samples_between_spectra"]
    voltages = harness.np.zeros(recv["channels_per_substream"] * recv["spectra_per_heap"] * 4, harness.np.int8)
    stop = threading.Event()

    def send():
        heap = int((time.time() - sync_time) * rate / step)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
            while not stop.wait(max(0, sync_time + (heap + 1) * step / rate - time.time())):
                for feng in range(2):
                    packets = harness.packets(harness.feng_heap(heap * step, feng, 0, voltages), 2 * heap + feng)
                    if feng == 0 and heap % 10 == 3:
                        continue
                    if feng == 1 and lose.is_set():
                        lose.clear()
                        packets = packets[1:]
                    for packet in packets:
                        out.sendto(packet, endpoint)
                heap += 1

    def figures(report, feng):
        """(missing, expected) heaps"""
        found = [f["found"] for f in report.bad() if f["id"] == "streams.loss" and f["subject"].endswith(f"feng {feng}")]
        return tuple(map(int, re.match(r"(\d+) of (\d+) heaps", found[0]).groups())) if found else (0, 0)

    def is_right(report):
        timer.join()
        lose.clear()
        right = figures(report, 0)[1] > 4 * rate / step and figures(report, 1)[0] == 1
        return right or start_timer()  # it came before cbf-doctor listened, or the host stalled

    def start_timer():
        nonlocal timer
        timer = threading.Timer(3, lose.set)
        timer.start()

    sender, timer = threading.Thread(target=send), None
    sender.start()
    start_timer()
    try:
        report = report_until(is_right, "streams", *files.write("xbgpu0"), "--seconds", "5", n_reports=12)
    finally:
        stop.set()
        sender.join()
    assert report.ids() == {"streams.loss"}, report.bad()
    many, one = report.get("streams.loss", "feng 0"), report.get("streams.loss", "feng 1")
    assert (many["status"], one["status"]) == ("fail", "warn")
    n_missing, n_expected = figures(report, 0)
    assert abs(n_missing - n_expected / 10) <= 1 and n_expected > 4 * rate / step
    assert one["found"].startswith("1 of ")


# ---- A running chain -------------------------------------------------------------------------------------------------

# Facts of the machine that tests run on, which may well be so.
MACHINE = {"time.clock", "time.esterror", "time.maxerror", "time.ptp", "cpu.stolen", "host.rmem_max", "host.wmem_max",
           "host.socket_buffers", "engine.clock"}


def circles(report, topics=("config", "streams", "loss")):
    """Fixes that refer the reader to other parts of the report refer to the same files."""
    return [f for f in report.bad() for topic in topics if re.search(rf"cbf-doctor {topic}\b[^#]*\.doctor\.yaml", f["fix"])]


@pytest.fixture
def healthy(daemon, files):
    """start(overrides) -> (the processes of a running chain, whose first dumps have come, and its files)."""

    def start(overrides=None):
        chain_files, processes = files(overrides), {}
        for name in chain.NAMES:
            processes[name] = daemon(name.rstrip("0123456789"), chain_files.config(name), name)
            processes[name].wait_ready()
        for name in ("xbgpu0", "xbgpu1"):
            processes[name].wait_metric(lambda m: m.get("xbgpu_output_x_heaps_total") >= 3, "three dumps")
        return processes, chain_files

    return start


def test_healthy_chain(healthy):
    expected = 2 * chain.RATE / chain.PACKET * float(SECONDS)

    def grew(report):
        grew = {row["counter"]: row["grew"] for row in report.all["losses"] if row["file"].startswith("fgpu0")}
        return grew["fgpu_input_packets_total"] / expected

    processes, files = healthy()
    report = report_until(lambda report: report.ids() <= MACHINE and abs(grew(report) - 1) < 0.2, "all", *files.write(*BOTH),
                          "--seconds", SECONDS, n_reports=30)  # losses of the start are told for a minute
    assert report.ids() <= MACHINE, report.bad()
    ok = {(f["id"], f["subject"]) for f in report.findings if f["status"] == "ok"}
    for ant in range(chain.N_ANTS):
        for pol in range(2):
            assert ("streams.source", f"fgpu{ant}.doctor.yaml m{ant:03} pol{pol}") in ok
        for index in range(chain.N_SUBSTREAMS):
            assert ("streams.source", f"xbgpu{index}.doctor.yaml m{ant:03}") in ok
    for name in BOTH:
        assert ("loss.verdict", f"{name}.doctor.yaml") in ok
        assert "nothing was lost" in report.get("loss.verdict", name)["found"]
    assert abs(grew(report) - 1) < 0.2
    for process in processes.values():
        assert process.process.poll() is None


def test_loss_in_the_socket(healthy):
    """A daemon is stopped for a while: its socket overflows, and the locator reports this."""
    processes, files = healthy({"fgpu0": {"recv": {"buffer": 131072}}})
    victim, paths = processes["fgpu0"].process, files.write(*BOTH)

    def pause():
        victim.send_signal(signal.SIGSTOP)
        time.sleep(3)  # the duration is what is tested
        victim.send_signal(signal.SIGCONT)

    for _ in range(5):  # the pause may come before cbf-doctor's first look, and a busy host has losses of its own
        timer = threading.Timer(1, pause)
        timer.start()
        report = Report("loss", *paths, "--seconds", "6")
        timer.join()
        if "in the socket" in report.get("loss.verdict", "fgpu0")["found"] and report.get("loss.verdict", "fgpu1")["status"] == "ok":
            break
    found = report.get("loss.verdict", "fgpu0")
    assert found["status"] == "fail" and "in the socket (fgpu_input_kernel_drops)" in found["found"]
    assert "recv.buffer" in found["fix"]
    assert report.get("loss.verdict", "fgpu1")["status"] == "ok"
    drops = [row for row in report.all["losses"] if row["counter"] == "fgpu_input_kernel_drops"
             and row["file"].startswith("fgpu0")]
    assert drops[0]["stage"] == "socket" and drops[0]["loss"] and drops[0]["grew"] > 100
    assert report.get("loss.verdict", "xbgpu0")["status"] == "fail"  # which lacks its heaps, or had them too late


def test_lost_engine(healthy):
    """A dead F-engine: silent for the X-engines and missing in their counters.  The report names its antennas."""
    processes, files = healthy()
    processes["fgpu1"].process.kill()
    processes["fgpu1"].process.wait()
    paths = files.write(*BOTH)
    ids = {"streams.silent", "loss.verdict", "engine.troubles"}
    report = report_until(lambda report: report.ids() - MACHINE == ids, "all", *paths, "--seconds", SECONDS)
    assert report.ids() - MACHINE == ids, report.bad()
    found = report.get("streams.silent", "xbgpu0")
    assert found["subject"].endswith(" m001")
    assert "antenna m001" in found["why"] and "does not run here" in found["why"]
    found = report.get("loss.verdict", "xbgpu1")
    assert "nothing came from 1 of 2 F-engines: m001 (silent since " in found["found"] and " ago)" in found["found"]
    assert found["fix"] == f"systemctl status 'fgpu@*'   # on the host of the fgpu of {paths[1]}"
    assert circles(report) == []
    assert not any("switch" in f["why"] + f["fix"] for f in report.bad() if f["id"] == "loss.verdict")
    assert report.get("loss.verdict", "fgpu1")["status"] == "warn"
    silent = [f for f in report.findings if f["id"] == "engine.troubles" and f["status"] == "fail"]
    assert [f["subject"] for f in silent] == ["xbgpu0.doctor.yaml m001"], report.bad()
    assert re.match(r"F-engine to X-engine: no heaps since \d+ s ago; also at 1 other X-engine", silent[0]["found"]), silent
    assert re.match(f"fgpu {re.escape(str(paths[1]))}   # starts the fgpu of m001, which does not run here", silent[0]["fix"])
    processes["xbgpu1"].process.kill()
    processes["xbgpu1"].process.wait()
    report = Report("loss", *paths, "--seconds", "0.2")
    for name in ("fgpu1", "xbgpu1"):
        found = report.get("loss.verdict", name)
        assert found["status"] == "fail" and "does not run here" in found["found"] and "systemctl status" in found["fix"]


class Page(http.server.BaseHTTPRequestHandler):
    """/metrics and /status.json of an engine that is not there."""

    def do_GET(self):
        status, metrics = self.server.pages
        text = json.dumps(status) if self.path == "/status.json" else metrics
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def pages(files):
    """pages({"fgpu0": (status, metrics), ...}) -> a report of these engines' files."""
    with contextlib.ExitStack() as stack:
        def report(engines, overrides, topic="loss"):
            paths = files(overrides)
            for name, pages in engines.items():
                address = paths.config(name)["http"]["listen"].split(":")
                server = stack.enter_context(http.server.ThreadingHTTPServer((address[0], int(address[1])), Page))
                server.pages = pages
                stack.callback(server.shutdown)
                threading.Thread(target=server.serve_forever).start()
            return Report(topic, *paths.write(*engines), "--seconds", "0.1")
        yield report


def trouble(where, stage, what, **keys):
    now = time.time()
    return {"where": where, "stage": stage, "what": what, "level": "warn", "ongoing": False, "unit": "", "n_minute": 0, "n_hour": 0,
            "total": 0, "since": now - 12.2, "last": now - 3.2, "advice": "look there"} | keys


def test_troubles_of_running_engines(pages):
    """A feed cut, one polarisation cut, 1 % of loss, a dead F-engine, a clock and a delay: antenna, stage, since when."""
    now, flowing = time.time(), {"total": 1000}

    def delays(*values):
        return {f"wide.input{i}.delay": {"value": f"(123456, {value}, 0.0, 0.0, 0.0)", "status": "nominal", "time": now - 240}
                for i, value in enumerate(values)}

    inputs = [{"antenna": f"m00{i // 2}", "pol": str(i % 2), "heaps": flowing} for i in range(2)]
    fgpu0 = {"start_time": now - 3600, "host": "gpu7", "inputs": inputs,
             "sensors": delays(1e-6, 1e-6), "other": {"clock_synchronised": 0},
             "troubles": [trouble("host clock", "host clock", "clock not synchronised", ongoing=True, since=now - 31.2),
                          trouble("m000 pol 1", "digitiser to F-engine", "no packets", ongoing=True, since=now - 12.2,
                                   advice="look; cbf-doctor streams shows what arrives"),
                          trouble("m000 wide", "F-engine", "heaps skipped", n_minute=55, n_hour=70),
                          trouble("m000 pol 0", "digitiser to F-engine", "packets missing", last=now - 90)]}  # is over
    fgpu1 = {"start_time": now - 3600, "inputs": [{"antenna": "m001", "pol": "0", "heaps": flowing},
                                                  {"antenna": "m001", "pol": "1", "heaps": {"total": 0}}],
             "sensors": delays(2e-6, 0.1), "troubles": []}
    fengs = [{"antenna": "a0", "heaps": flowing, "state": "losing", "since": now - 3},
             {"antenna": "a1", "heaps": {"total": 0}, "state": "dead", "since": None}]
    xbgpu0 = {"start_time": now - 180, "fengs": fengs,
              "troubles": [trouble("a0", "F-engine to X-engine", "heaps missing", n_minute=17, n_hour=17),
                           trouble("a1", "F-engine to X-engine", "heaps missing", n_minute=99),  # as it is dead
                           trouble("", "X-engine", "products wrong", level="bad", n_minute=1)]}
    xbgpu1 = xbgpu0 | {"troubles": xbgpu0["troubles"][:2]}
    report = pages({"fgpu0": (fgpu0, ""), "fgpu1": (fgpu1, ""), "xbgpu0": (xbgpu0, ""), "xbgpu1": (xbgpu1, "")}, {})
    late_s = time.time() - now  # the doctor's clock goes on while the doctor starts

    def as_of_now(text):
        """With the ages of 'now', of which there are three."""
        return re.sub(r"\b\d+(?= s ago)", lambda age: next((f"{told}" for told in (3, 12, 31)
                                                           if told <= int(age[0]) <= told + late_s + 1), age[0]), text)

    told = [(f["status"], f["subject"].replace(".doctor.yaml", ""), as_of_now(f["found"])) for f in report.findings
            if f["id"] == "engine.troubles"]
    assert told == [
        ("fail", "fgpu1 m001 pol 1", "digitiser to F-engine: nothing from m001 pol 1 since the engine's start 60 min ago"),
        ("fail", "fgpu0 m000 pol 1", "digitiser to F-engine: no packets since 12 s ago"),
        ("fail", "xbgpu0 m001", "F-engine to X-engine: nothing from m001 since the engine's start 3 min ago; "
         "also at 1 other X-engine"),
        ("fail", "xbgpu0", "X-engine: products wrong, 1 in the last minute, first 12 s ago, last 3 s ago"),
        ("warn", "fgpu0 m000 wide", "F-engine: heaps skipped, 55 in the last minute, first 12 s ago, last 3 s ago"),
        ("warn", "xbgpu0 m000", "F-engine to X-engine: heaps missing, 17 in the last minute, first 12 s ago, last 3 s ago; "
         "also at 1 other X-engine"),
    ], told
    assert re.search(r"look; cbf-doctor streams \S+/fgpu0.doctor.yaml shows", report.get("engine.troubles", "m000 pol 1")["fix"])
    assert "unsynchronised clock, since 31 s ago" in as_of_now(report.get("engine.clock", "gpu7")["found"])
    wrong = report.get("engine.delay")
    assert wrong["subject"].endswith("m001 pol 1") and "is 0.1 s since 4 min ago" in wrong["found"]


def test_beam_of_few_antennas(pages):
    """It is named; one of which half of the weights are 0 is not."""
    now, flowing = time.time(), {"total": 1000}
    streams = [{"stream": name, "zero_weights_ratio": ratio} for name, ratio in (("bx", 0.5), ("by", 0.75), ("bz", 1))]
    fengs = [{"antenna": f"a{i}", "heaps": flowing, "state": "receiving", "since": now - 99} for i in range(2)]
    report = pages({"xbgpu0": ({"start_time": now - 180, "fengs": fengs, "troubles": [], "streams": streams}, "")}, {})
    found = [f for f in report.findings if f["id"] == "engine.beam"]
    assert [(f["status"], f["subject"].split()[-1], f["found"]) for f in found] == [
        ("warn", "by", "75 % of the weights of this beam are 0"), ("warn", "bz", "100 % of the weights of this beam are 0")]
    assert [("all its samples are 0" in f["why"]) for f in found] == [False, True]


def test_many_beams_of_few_antennas(pages):
    """The first eight are named, and the others are counted."""
    streams = [{"stream": f"powers.{i}", "zero_weights_ratio": 0.6} for i in range(12)]
    fengs = [{"antenna": "a0", "heaps": {"total": 1000}, "state": "receiving", "since": time.time() - 99}]
    report = pages({"xbgpu0": ({"start_time": time.time() - 180, "fengs": fengs, "troubles": [], "streams": streams}, "")}, {})
    found = [f for f in report.findings if f["id"] == "engine.beam"]
    assert [f["subject"].split()[-1] for f in found[:-1]] == [f"powers.{i}" for i in range(8)]
    assert found[-1]["found"] == "more than half of the weights of 4 more beams are 0"


AT_SWITCH = "look at this antenna's F-engine and its host, then at the switch"
ADVICE = {  # of a page, and what remains of it with the topics loss and all; {file} is the engine's
    f"{AT_SWITCH}; cbf-doctor loss finds the stage": (AT_SWITCH, AT_SWITCH),
    "look at it; cbf-doctor streams shows what arrives": ("look at it; cbf-doctor streams {file} shows what arrives",
                                                          "look at it"),
    "cbf-doctor loss tells more; look": ("look", "look"),
    "cbf-doctor loss tells more": ("look at the status page and the log of the engine of {file}",) * 2,
}


@pytest.mark.parametrize("topic", ["loss", "all"])
def test_no_fix_leads_in_a_circle(pages, topic):
    """In a broken chain, a step that this run has done is not a fix, and a fix remains."""
    now = time.time()
    dead, silent = {"heaps": {"total": 0}, "state": "dead"}, {"heaps": {"total": 9}, "state": "silent", "since": now - 9}
    fgpu0 = {"start_time": now - 3600, "inputs": [{"antenna": "m000", "pol": "0", **silent},
                                                  {"antenna": "m000", "pol": "1", **dead}],
             "troubles": [trouble(f"m00{i}", "F-engine", f"trouble {i}", n_minute=1, advice=advice)
                          for i, advice in enumerate(ADVICE)]}
    xbgpu0 = {"start_time": now - 3600, "troubles": [],
              "fengs": [{"antenna": "m000", **silent}, {"antenna": "m001", **dead}]}
    metrics = ('xbgpu_feng_heaps_total{feng="0",antenna="m000"} 5\n'
               'xbgpu_feng_heaps_total{feng="1",antenna="m001"} 0\n')
    fast = {"time": {"adc_sample_rate": 100 * chain.RATE}}
    report = pages({"fgpu0": (fgpu0, 'fgpu_input_heaps_total 0\n'), "xbgpu0": (xbgpu0, metrics)},
                   {"fgpu0": fast, "xbgpu0": fast | {"recv": {"batches_per_chunk": 1}}}, topic)
    assert circles(report, ("config", "streams", "loss") if topic == "all" else ("loss",)) == [], report.bad()
    assert {"loss.verdict", "engine.troubles"} <= report.ids(), report.bad()
    for i, expected in enumerate(ADVICE.values()):
        (found,) = [f for f in report.bad() if f"trouble {i}," in f["found"]]
        pattern = re.escape(expected[topic == "all"]).replace(re.escape("{file}"), r"\S+/fgpu0\.doctor\.yaml")
        assert re.fullmatch(pattern, found["fix"]), found


def test_dead_and_losing_engines(pages):
    """The verdict has each F-engine's name, since when it is silent, and the share that is lost of another."""
    metrics = "".join(f'xbgpu_feng_{what}_heaps_total{{feng="{i}",antenna="n{i}"}} {{{i}{what}}}\n'
                      for i in range(3) for what in ("received", "missing")).replace("_received", "")

    class Counting(str):
        """Pages of which the second has more."""

        def encode(self):
            grown = grow.pop(0) if grow else grow_by
            values = {f"{i}received": 5000 * (i != 2) + grown[i][0] for i in range(3)}
            values |= {f"{i}missing": 7 + grown[i][1] for i in range(3)}
            text = self
            for key, value in values.items():
                text = text.replace(f"{{{key}}}", str(value))
            return str.encode(text)

    # n1 has fallen silent, n2 was never heard, and 1 % of n0 is missing.
    grow_by, grow = [(990, 10), (0, 500), (0, 500)], [[(0, 0)] * 3]
    since = time.time() - 12.3
    status = {"fengs": [{"antenna": f"n{i}", "heaps": {"total": 9}, "state": s, "since": since}
                        for i, s in enumerate(("losing", "silent", "dead"))]}
    recv = {"antennas": 3, "antenna_names": "n0, n1, n2", "batches_per_chunk": 1}
    fast = {"time": {"adc_sample_rate": 100 * chain.RATE}}  # of which a tenth of a second is more than some chunks
    report = pages({"xbgpu0": (status, Counting(metrics))}, {"xbgpu0": {"recv": recv} | fast})
    found = report.get("loss.verdict")
    says = re.match(r"in \d+\.\d s nothing came from 2 of 3 F-engines: n1 \(silent since (\d+) s ago\), n2 \(dead: nothing "
                    r"since the engine's start\); heaps were lost from n0 \(1 %\)$", found["found"])
    assert says and 12 <= int(says[1]) <= time.time() - since + 0.5, found  # rounded
    assert "switch" not in found["why"] + found["fix"] and "xbgpu0.doctor.yaml " in found["fix"]


def test_sockets_smaller_than_the_file_says(daemon, files):
    """As after a start without the right to more, or of an older file."""
    files = files({"fgpu0": {"recv": {"buffer": 262144}}})
    daemon("fgpu", files.config("fgpu0")).wait_ready()
    found = Report("host", *files.write("fgpu0")).get("host.socket_buffers")
    assert found["status"] == "ok" and "2 sockets" in found["found"]
    files.layout.overrides["fgpu0"]["recv"]["buffer"] = 300000
    found = Report("host", *files.write("fgpu0")).get("host.socket_buffers")
    assert found["status"] == "fail" and "131072 bytes" in found["found"] and "150000 bytes" in found["expected"]


# ---- The command -----------------------------------------------------------------------------------------------------


def run(*arguments, **keys):
    return subprocess.run([str(BUILD / "cbf-doctor"), *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **keys)


def test_text(work, files):
    paths = files(FAST).write("fgpu0")
    done = run("host", *paths, "--root", planted_tree(work, {"sys/class/net/eth9/mtu": 1500}))
    assert done.returncode == 2 and not done.stderr
    lines = done.stdout.splitlines()
    assert re.match(r"FAIL +nic\.mtu +eth9 +MTU 1500", lines[0])
    labels = [line.split()[0] for line in lines[1:lines.index(next(line for line in lines if line.startswith("ok")))]
              if line[5] != " "]
    assert labels == ["expected", "why", "fix"]
    assert any(line.strip().startswith("fix") and "ip link set eth9 mtu 9000" in line for line in lines)
    assert re.match(r"1 failed, 0 warnings, \d+ ok, \d+ skipped", lines[-1])
    assert "\033" not in done.stdout
    quiet = run("host", *paths, "--root", work / "root", "--quiet").stdout.splitlines()
    ok = next(i for i, line in enumerate(lines) if line.startswith("ok"))
    assert quiet == lines[:ok] + lines[-2:], quiet


def test_default_files(work, files):
    """Without files, cbf-doctor takes the files of /etc/cbf below the root."""
    root = planted_tree(work, {})
    (path,) = files(FAST).write("fgpu0")
    (root / "etc/cbf").mkdir(parents=True)
    path.rename(root / "etc/cbf/gpu0.yaml")
    report = Report("host", root=root)
    assert report.get("config.file", "gpu0.yaml")["status"] == "ok"


@pytest.mark.parametrize("arguments, words", [
    (["hsot"], "neither a topic nor a file"), (["--seconds", "0"], "--seconds"), (["--seconds", "5x"], "--seconds"),
    (["--colour"], "--help"), (["bundle"], "archive"), (["bundle", "fgpu.yaml"], "archive"),
])
def test_wrong_command_line(arguments, words):
    done = run(*arguments)
    assert done.returncode == 78 and words in done.stderr and not done.stdout


def test_help_and_version():
    assert "cbf-doctor [host|config|streams|loss|all]" in run("--help").stdout
    assert re.fullmatch(r"cbf-doctor .+\n", run("--version").stdout)


def test_bundle(work, daemon, files):
    files = files()
    daemon("fgpu", files.config("fgpu0")).wait_ready()
    paths = files.write("fgpu0")
    done = run("bundle", work / "out.tar.gz", *paths, "--seconds", "0.2",
               env={**os.environ, "CBF_SECRET_OF_MINE": "xyzzy-plugh"})
    assert done.returncode == 2 and "out.tar.gz" in done.stdout  # as no digitiser sends
    with tarfile.open(work / "out.tar.gz") as archive:
        texts = {member.name.partition("/")[2]: archive.extractfile(member).read().decode(errors="replace")
                 for member in archive if member.isfile()}
    assert json.loads(texts["report.json"])["status"] == "fail"
    assert "streams.silent" in texts["report.txt"]
    assert yaml.safe_load(texts["0-fgpu0.doctor.yaml"]) == files.config("fgpu0")
    assert "fgpu_input_packets_total" in texts["0-fgpu0.doctor.yaml.metrics"]
    assert "Udp:" in texts["proc-net-snmp"]
    assert not any("xyzzy-plugh" in text for text in texts.values())
