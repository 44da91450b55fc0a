"""Trouble from outside whose effects must stay bounded: a receiver that does not read, clients that do not speak, a full
disk, a killed recorder."""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import browser
import chain
import harness
import test_visrec
from chain import Chain, Layout
from test_visrec import recorder  # noqa: F401
from test_visrec import Sender, Stream, flatten, from_capture, heaps_of_dump, live, packets_of

WINDOW_DUMPS = 2  # visrec's default
ROUNDS = int(os.environ.get("CBF_KILL_ROUNDS", "1"))
sys.path.append(str(harness.ROOT / "scripts"))
import repair_uvh5  # noqa: E402


def memory_kib(pid):
    """Size of a process's memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def check_memory(before_kib, pid, what):
    # A sanitizer keeps what was freed for a while.
    after_kib = memory_kib(pid)
    assert harness.SANITIZED or after_kib < before_kib + 4096, f"{what}: {before_kib} KiB have become {after_kib} KiB"


# ---- Receivers and clients -------------------------------------------------------------------------------------------


def test_recorder_that_does_not_read(running, references):
    """The X-engines notice nothing.  The recorder counts its losses, and its data are right."""
    running_chain, dumps = running({"visrec": {"recv": {"buffer": 32768}}})
    recorder_process, engine = running_chain["visrec"], running_chain["xbgpu0"]
    # A dump takes longer than the buffer lasts; wait until memory has found its size.
    dumps.wait_dumps(6, 0)
    recorder_process.wait_metric(lambda m: m.get("visrec_dumps_total") >= 2, "dumps in the file")
    before_kib = memory_kib(engine.process.pid)
    recorder_process.process.send_signal(signal.SIGSTOP)
    dumps.wait_dumps(8, chain.now_samples())
    check_memory(before_kib, engine.process.pid, "xbgpu0")
    running_chain.check_alive("xbgpu0", "xbgpu1")
    recorder_process.process.send_signal(signal.SIGCONT)
    n_before = recorder_process.metrics().get("visrec_dumps_total")
    metrics = recorder_process.wait_metric(lambda m: m.get("visrec_dumps_total") >= n_before + 4, "dumps after it")
    assert metrics.get("visrec_kernel_drops") > 0
    running_chain.terminate(*reversed(chain.NAMES))
    dumps.refresh()
    windows, present = chain.check_file(running_chain.recording(), references)
    sent = [{d.timestamp // chain.WINDOW: d for d in received} for received in dumps.dumps]
    n_absent = 0
    for window in range(windows[0], windows[-1] + 1):
        at = np.flatnonzero(windows == window)
        for substream in range(chain.N_SUBSTREAMS):
            was_sent = sent[substream][window].present if window in sent[substream] else [False] * len(chain.BASELINES)
            recorded = present[at[0], :, substream].tolist() if len(at) else [False] * len(chain.BASELINES)
            assert recorded in (was_sent, [False] * len(chain.BASELINES)), f"window {window}, substream {substream}"
            n_absent += any(was_sent) and not any(recorded)
    assert n_absent > 0, "nothing was lost: the pause was too short"
    said = recorder_process.log.read_text().splitlines()[-1]
    n_missing = int(said.split(", ")[1].split()[0])
    assert re.search(r" heaps missing, \d+\.\d\d % flagged$", said) and n_missing >= n_absent, said


def connect(listen, source, request=b"", receive_buffer=0):
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.bind((source, 0))
    connection.connect(listen)
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.send(request)
    return connection


def scrape(listen, source):
    """The reply to a request for /metrics, sooner than idle connections are cut off."""
    with socket.socket() as connection:
        connection.settimeout(5)
        connection.bind((source, 0))
        connection.connect(listen)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        reply = b""
        while part := connection.recv(65536):
            reply += part
    assert reply.startswith(b"HTTP/1.1 200")
    return reply


def test_clients_that_do_not_speak(daemon, work):
    """Some clients never ask and some never read: others are served.  A host that takes all connections keeps no other
    host out.  The end waits for no client."""
    layout = Layout(work)
    engines = Chain(daemon, layout)
    engines.start("xbgpu0")
    host, port = layout.listen["xbgpu0"].split(":")
    listen = host, int(port)
    before_kib = memory_kib(engines["xbgpu0"].process.pid)
    with contextlib.ExitStack() as open_connections:
        for n in range(12):
            open_connections.enter_context(connect(listen, "127.0.0.1"))
            request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
            open_connections.enter_context(connect(listen, "127.0.0.1", request, receive_buffer=1))
        for source in ("127.0.0.1", "127.0.0.2"):
            assert b"xbgpu_input_heaps_total" in scrape(listen, source)
        for n in range(110):  # more than there are in all, and may wait to be accepted
            open_connections.enter_context(connect(listen, "127.0.0.1"))
        for n in range(5):
            assert b"xbgpu_input_heaps_total" in scrape(listen, "127.0.0.2")
        check_memory(before_kib + 8192, engines["xbgpu0"].process.pid, "xbgpu0 with clients")
        at = time.monotonic()
        engines.terminate("xbgpu0")
        assert time.monotonic() - at < 5


# ---- Disks -----------------------------------------------------------------------------------------------------------


# Stands between a process and its disk.  Kills it at its write number CBF_KILL_AT; lists the lengths and offsets of all
# in the file CBF_WRITES, their bytes in CBF_BYTES, and what is made durable or renamed in CBF_SYNCS; knows nothing of
# reserving room, as some network file systems, if CBF_NO_FALLOCATE is set.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void tell(const char *what)
{
    FILE *syncs = getenv("CBF_SYNCS") ? fopen(getenv("CBF_SYNCS"), "a") : NULL;

    if (syncs) {
        fprintf(syncs, "%s\n", what);
        fclose(syncs);
    }
}

int fsync(int fd)
{
    struct stat stat;

    tell(fstat(fd, &stat) == 0 && S_ISDIR(stat.st_mode) ? "directory" : "file");
    return 0;
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");

    tell("rename");
    return real(from, to);
}

static ssize_t count(const char *name, int fd, const void *bytes, size_t n_bytes, long offset)
{
    static long n_writes;
    ssize_t (*write_to)(int, const void *, size_t, long) = dlsym(RTLD_NEXT, name);
    const char *kill_at = getenv("CBF_KILL_AT");
    FILE *writes = getenv("CBF_WRITES") ? fopen(getenv("CBF_WRITES"), "a") : NULL;
    FILE *all_bytes = getenv("CBF_BYTES") ? fopen(getenv("CBF_BYTES"), "a") : NULL;

    if (writes) {
        fprintf(writes, "%zu %ld\n", n_bytes, offset);
        fclose(writes);
    }
    if (all_bytes) {
        fwrite(bytes, 1, n_bytes, all_bytes);
        fclose(all_bytes);
    }
    if (kill_at && n_writes++ == atol(kill_at))
        raise(SIGKILL);
    return write_to(fd, bytes, n_bytes, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, long offset)
{
    return count("pwrite", fd, bytes, n_bytes, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n_bytes, long offset)
{
    return count("pwrite64", fd, bytes, n_bytes, offset);
}

int fallocate(int fd, int mode, long offset, long n_bytes)
{
    int (*real)(int, int, long, long) = dlsym(RTLD_NEXT, "fallocate");

    if (!getenv("CBF_NO_FALLOCATE"))
        return real(fd, mode, offset, n_bytes);
    errno = EOPNOTSUPP;
    return -1;
}
"""


@pytest.fixture
def shim(tmp_path):
    if harness.SANITIZED:
        pytest.skip("a sanitizer wants to be the first library")
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    (tmp_path / "shim.c").write_text(SHIM)
    library = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "shim.c", "-ldl"], check=True)
    return library


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


def read_recording(path, stream, dumps, first, sync_s):
    """Compares a file with the sent dumps.  Returns the indices of the dumps in the file, and the number of their
    missing heaps."""
    with h5py.File(path, "r") as file:
        n_times = int(file["Header/Ntimes"][()])
        shape = (n_times, stream.n_baselines, stream.n_chan, 4)
        raw = file["Data/visdata"][()].reshape(shape)
        times_s = (file["Header/time_array"][::stream.n_baselines] - 2440587.5) * 86400
        flags = file["Data/flags"][()].reshape(shape)
    indices = np.rint((times_s - sync_s) * stream.sample_rate / stream.dump_samples - 0.5).astype(int) - first
    assert (np.diff(indices) > 0).all()
    for n, index in enumerate(indices):
        values = raw[n]["r"] + 1j * raw[n]["i"]
        assert np.array_equal(values[~flags[n]], stream.expected(dumps[index])[~flags[n]]), f"dump {index}"
    absent = flags.reshape(n_times, stream.n_baselines, stream.n_sub, stream.chan_per_sub, 4).all((1, 3, 4))
    return list(indices), np.count_nonzero(absent)


def check_recorder_page(one):
    """A full disk is the first fault of /status.json, with its cure, and the banner's."""
    listen = one.config["http"]["listen"]
    worst_trouble = lambda: json.loads(harness.page(listen, "status.json"))["troubles"][0]
    harness.until(lambda: worst_trouble()["where"] == "recorder", one.log_text)
    worst = worst_trouble()
    assert (worst["stage"], worst["level"]) == ("recorder", "bad")
    assert "disk full" in worst["what"] and "make room" in worst["advice"] and worst["n_minute"] >= 1
    if harness.SANITIZED:
        return
    with browser.page() as page:
        page.goto(f"http://{listen}/")
        page.wait_for_selector("#banner[data-state='bad']")
        page.wait_for_selector("#reason:has-text('disk full')")
        assert page.locator("#state").text_content() == "Not recording"
        assert page.locator(".tile[data-key='unwritten'] b").text_content() != "0"
        assert not page.complaints, page.complaints


@pytest.mark.parametrize("can_reserve", [True, False])
def test_full_disk(can_reserve, small_disk, recorder, request, rng, monkeypatch):  # noqa: F811
    """Dumps without room are counted.  Recorded data stay readable.  The recording continues when there is room."""
    if not can_reserve:
        monkeypatch.setenv("LD_PRELOAD", str(request.getfixturevalue("shim")))
        monkeypatch.setenv("CBF_NO_FALLOCATE", "1")
    stream = Stream(n_ants=4, n_chan=1024, n_sub=2)
    sender = Sender(stream)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(9 << 20))
    one, first, sync_s = live(recorder, stream, sender)
    one.path = small_disk / "out.uvh5"
    one.config["output"]["file"] = str(one.path)
    one.start_recording()
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    kinds = [stream.random_vis(rng) for _ in range(3)]
    dumps, n_packets = [], 0

    def send_until(condition, what):
        nonlocal n_packets
        deadline = time.monotonic() + harness.TIMEOUT_S
        while not condition(one.metrics()):
            assert time.monotonic() < deadline, f"{what}:\n{one.log_text()}"
            dumps.append(kinds[len(dumps) % len(kinds)])
            n_packets += sender.send((first + len(dumps) - 1) * stream.dump_samples, dumps[-1])
            one.wait_for_packets(n_packets)
            one.wait_until_taken(len(dumps) - WINDOW_DUMPS)

    assert one.health() == 200
    send_until(lambda m: m["visrec_unwritten_dumps_total"] >= 1, "a full disk")
    before_kib = memory_kib(one.process.pid)
    n_recorded = len(read_recording(one.path, stream, dumps, first, sync_s)[0])
    assert n_recorded >= 2
    send_until(lambda m: m["visrec_unwritten_dumps_total"] >= 10, "a disk that stays full")
    check_memory(before_kib, one.process.pid, "visrec")
    harness.until(lambda: one.health() == 503, one.log_text)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # without dumps, the recorder is healthy again after seconds
        checked = pool.submit(check_recorder_page, one)
        send_until(lambda m: checked.done(), "a page that has been checked")
        checked.result()
    assert len(read_recording(one.path, stream, dumps, first, sync_s)[0]) == n_recorded
    assert one.read().Ntimes == n_recorded
    ballast.unlink()
    send_until(lambda m: m["visrec_dumps_total"] >= n_recorded + 4, "room again")
    one.process.send_signal(signal.SIGTERM)
    output, log = one.finish(1)
    complaints = [line for line in log.splitlines() if "No space left" in line]
    assert len(complaints) == 1 and str(one.path) in complaints[0] and "HDF5" not in log, log
    indices, n_absent = read_recording(one.path, stream, dumps, first, sync_s)
    n_lost, = re.findall(r"the disk has room again, and the recording continues; (\d+) dumps were lost", log)
    assert np.diff(indices).max() > int(n_lost) >= 10
    n_dumps, n_missing, n_expected = (int(word) for word in output.split() if word.isdigit())
    assert n_dumps == len(indices)
    assert n_expected == stream.n_sub * (indices[-1] - indices[0] + 1)
    assert n_missing == n_expected - stream.n_sub * n_dumps + n_absent
    assert one.read().Ntimes == n_dumps


def test_full_disk_when_the_next_file_is_due(small_disk, recorder, rng):  # noqa: F811
    """Files of two dumps: dumps without room are counted, and the recording continues in the next file."""
    stream = Stream(n_ants=4, n_chan=1024, n_sub=2)
    sender = Sender(stream)
    one, first, sync_s = live(recorder, stream, sender, {"output": {
        "file": str(small_disk / "out.uvh5"), "max_file_time": 2.01 * stream.dump_samples / stream.sample_rate}})
    one.start_recording()
    vis, dumps, n_packets = stream.random_vis(rng), [], 0

    def send_until(condition):
        nonlocal n_packets
        deadline = time.monotonic() + harness.TIMEOUT_S
        while not condition(one.metrics()):
            assert time.monotonic() < deadline, one.log_text()
            n_packets += sender.send((first + len(dumps)) * stream.dump_samples, vis)
            dumps.append(vis)
            one.wait_for_packets(n_packets)
            one.wait_until_taken(len(dumps) - WINDOW_DUMPS)

    send_until(lambda m: m["visrec_dumps_total"] >= 2)
    ballast = small_disk / "ballast"
    with pytest.raises(OSError):
        ballast.write_bytes(bytes(16 << 20))
    send_until(lambda m: m["visrec_unwritten_dumps_total"] >= 3)
    ballast.unlink()
    n_before = one.metrics()["visrec_dumps_total"]
    send_until(lambda m: m["visrec_dumps_total"] >= n_before + 3)
    n_lost = one.metrics()["visrec_unwritten_dumps_total"]
    one.process.send_signal(signal.SIGTERM)
    output, log = one.finish(1)
    assert log.count("No space left") == 1 and f"; {n_lost:.0f} dumps were lost" in log, log
    files = [small_disk / name for n in range(1, 20) for name in [f"out-{n}.uvh5" if n > 1 else "out.uvh5"]]
    files = [path for path in files if path.exists()]
    found = [read_recording(path, stream, dumps, first, sync_s)[0] for path in files]
    assert max(map(len, found)) == 2 and len(files) >= 3
    indices = sum(found, [])
    assert indices == sorted(set(indices)) and len(indices) == int(output.split()[0])
    assert sum(np.diff(indices) - 1) == n_lost


def test_disk_that_is_full_from_the_start(small_disk, recorder):  # noqa: F811
    (small_disk / "ballast").write_bytes(bytes((16 << 20) - 65536))
    one = recorder(Stream(), {"output": {"file": str(small_disk / "out.uvh5")}})
    _, log = one.run(1)
    (complaint,) = (line for line in log.splitlines() if "No space left" in line)
    assert "out.uvh5" in complaint
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


# ---- Kills -----------------------------------------------------------------------------------------------------------

def count_dumps(path, stream, expected, gone):
    """Dumps with every row in the file.  Raises OSError if the file has rows of other dumps."""
    with h5py.File(path, "r") as file:
        header, data = file["Header"], file["Data"]
        n_times = int(header["Ntimes"][()])
        lengths = {len(dataset) for group in (header, data) for dataset in group.values()
                   if isinstance(dataset, h5py.Dataset) and dataset.maxshape and dataset.maxshape[0] is None}
        if lengths != {n_times * stream.n_baselines} or header["Nblts"][()] != n_times * stream.n_baselines:
            raise OSError(f"arrays of {lengths} rows, {n_times} dumps")
        flags = data["flags"][()].reshape(n_times, stream.n_baselines, stream.n_chan, 4)
        raw = data["visdata"][()].reshape(flags.shape)
        nsamples = data["nsamples"][()].reshape(flags.shape)
        times = header["time_array"][()]
    assert (np.diff(times[::stream.n_baselines]) > 0).all()
    assert np.array_equal(flags.astype(bool), gone[:n_times])
    assert np.array_equal(nsamples, ~gone[:n_times])
    assert np.array_equal(raw["r"], expected[:n_times].real) and np.array_equal(raw["i"], expected[:n_times].imag)
    return n_times


class Killed:
    """A recorder of some dumps, whose writes are listed."""

    def __init__(self, recorder, tmp_path, shim, stream, dumps):
        self.stream, self.path = stream, tmp_path / "killed.uvh5"
        self.expected = np.array([stream.expected(dump) for dump in dumps])
        gone = np.array([(dump == test_visrec.MAGIC).all(-1) for dump in dumps])  # whole channels
        self.gone = gone.swapaxes(1, 2).reshape(self.expected.shape)
        self.expected[self.gone] = 0
        heaps = flatten(heaps_of_dump(stream, n, dump) for n, dump in enumerate(dumps))
        packets = flatten(packets_of(stream, heaps, payload=65000))
        self.one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"overwrite": True}})
        self.environment = os.environ | {"LD_PRELOAD": str(shim)}
        assert self.run(CBF_WRITES=str(tmp_path / "writes"), CBF_BYTES=str(tmp_path / "bytes")).returncode == 0
        assert self.count(self.one.path) == len(dumps)
        # (length, offset) of each write
        self.writes = [tuple(map(int, line.split())) for line in (tmp_path / "writes").read_text().splitlines()]
        self.bytes = (tmp_path / "bytes").read_bytes()
        # The signature gives way to a journal's address and comes back: after each dump, and when the file is closed.
        self.marks = [n for n, write in enumerate(self.writes) if write == (8, 0)][::2][:len(dumps)]
        assert len(self.marks) == len(dumps)

    def run(self, **variables):
        self.one.config_path.write_text(test_visrec.yaml.safe_dump(self.one.config))
        return subprocess.run([test_visrec.VISREC, self.one.config_path], env=self.environment | variables,
                              capture_output=True, text=True, timeout=harness.TIMEOUT_S)

    def count(self, path):
        return count_dumps(path, self.stream, self.expected, self.gone)

    def check(self, path, at):
        """Checks the file that a kill at write number 'at' left.  Returns whether it had to be repaired."""
        try:
            with h5py.File(path):
                is_open = True
        except OSError:
            is_open = False
            repair_uvh5.repair(path)
        n_found, n_sure = self.count(path), sum(mark < at for mark in self.marks)
        assert n_found == n_sure, f"killed at write {at} of {len(self.writes)}: {n_found} dumps, not {n_sure}"
        return not is_open

    def left(self, n_dumps):
        """Yields the number of each write after the first dumps, and the file that a kill before the write leaves, or a
        kill after some pages of the write."""
        file, at = bytearray(), 0
        for n, (n_bytes, offset) in enumerate(self.writes):
            new, pages = self.bytes[at:at + n_bytes], range(-offset % 4096, n_bytes, 4096)
            for n_written in {0, *pages[:2], *pages[-1:]} if n > self.marks[n_dumps - 1] else ():
                torn = file[:]
                put(torn, new[:n_written], offset)
                yield n, torn
            put(file, new, offset)
            at += n_bytes


def put(file, new, offset):
    file.extend(bytes(max(0, offset + len(new) - len(file))))
    file[offset:offset + len(new)] = new


def many_chunks(rng):
    """Rows of which a chunk does not hold a dump's, flags that differ: chunks of different sizes."""
    stream = Stream(n_ants=3, n_chan=8192, n_sub=2)
    dumps = [stream.random_vis(rng) for _ in range(3)]
    for n, dump in enumerate(dumps):
        dump[rng.random(stream.n_chan) < 0.3 * n] = test_visrec.MAGIC
    return stream, dumps


def many_dumps(rng):
    """HDF5's indexes get a second level with chunk 65.  After that, nodes are split."""
    stream = Stream(n_ants=1, n_chan=2, n_sub=1, sample_rate=1e5)
    return stream, [stream.random_vis(rng) for _ in range(66)]


def test_killed_at_a_write(recorder, tmp_path, shim, rng):  # noqa: F811
    """A kill may strike before any write of HDF5.  All dumps up to the one before are present, at once or after a
    repair."""
    killed = Killed(recorder, tmp_path, shim, *many_chunks(rng))
    mark = killed.marks[1]
    kills = {mark: False, mark + 1: True, mark + 3: True}  # {number of the write: whether the file needs a repair}
    for at in [*kills, *map(int, rng.integers(killed.marks[0] + 1, len(killed.writes), 3 * ROUNDS))]:
        assert killed.run(CBF_KILL_AT=str(at)).returncode == -signal.SIGKILL
        is_repaired = killed.check(killed.one.path, at)
        assert is_repaired == kills.get(at, is_repaired)
    assert killed.one.read().Ntimes == killed.count(killed.one.path)


@pytest.mark.parametrize("record", [many_chunks, many_dumps])
def test_killed_within_any_write(recorder, tmp_path, shim, rng, record):  # noqa: F811
    """A kill may end any write of HDF5 between two pages.  Each file that opens, or is repaired, has all dumps."""
    killed = Killed(recorder, tmp_path, shim, *record(rng))
    n_repaired = n_files = 0
    for at, file in killed.left(max(2, len(killed.marks) - 3)):
        killed.path.write_bytes(file)
        n_repaired += killed.check(killed.path, at)
        n_files += 1
    assert 0 < n_repaired < n_files


@pytest.mark.parametrize("overwrite", [False, True])
def test_names_are_on_the_disk(recorder, tmp_path, shim, rng, overwrite):  # noqa: F811
    """A new file's name is made durable when it is made; an older file gives way only to a dump that is on the disk."""
    stream = Stream(n_ants=1)
    packets = flatten(packets_of(stream, flatten(heaps_of_dump(stream, n, stream.random_vis(rng)) for n in range(2))))
    one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"overwrite": overwrite}})
    if overwrite:
        one.path.write_text("precious")
    one.config_path.write_text(test_visrec.yaml.safe_dump(one.config))
    environment = os.environ | {"LD_PRELOAD": str(shim), "CBF_SYNCS": str(tmp_path / "syncs")}
    subprocess.run([test_visrec.VISREC, one.config_path], env=environment, check=True, capture_output=True,
                   timeout=harness.TIMEOUT_S)
    syncs = (tmp_path / "syncs").read_text().split()
    assert syncs == ["directory"] + (["file", "rename", "directory"] if overwrite else [])
    assert one.n_dumps() == 2


@pytest.mark.parametrize("name", ["visdata", "flags", "nsamples"])
def test_damaged_data_cannot_be_read(recorder, tmp_path, rng, name):  # noqa: F811
    """One bit of a chunk is turned on the disk: HDF5 reports this instead of returning other data.  Undamaged data can
    be read."""
    stream = Stream(n_ants=2)
    packets = flatten(packets_of(stream, flatten(heaps_of_dump(stream, n, stream.random_vis(rng)) for n in range(3))))
    one = recorder(stream, from_capture(tmp_path, packets))
    one.run()
    with h5py.File(one.path, "r") as file:
        chunk = file["Data"][name].id.get_chunk_info(1)
    with open(one.path, "r+b") as file:
        file.seek(chunk.byte_offset + int(rng.integers(0, chunk.size)))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1 << int(rng.integers(0, 8))]))
    with h5py.File(one.path, "r") as file:
        first = chunk.chunk_offset[0]
        file["Data"][name][:first]
        with pytest.raises(OSError):
            file["Data"][name][first:]


def test_repair_leaves_what_is_whole(recorder, tmp_path, rng):  # noqa: F811
    stream = Stream(n_ants=2)
    dumps = [stream.random_vis(rng) for _ in range(3)]
    packets = flatten(packets_of(stream, flatten(heaps_of_dump(stream, n, v) for n, v in enumerate(dumps))))
    one = recorder(stream, from_capture(tmp_path, packets))
    one.run()
    before = one.read()
    other = tmp_path / "other"
    other.write_text("no recording")
    repair = subprocess.run([sys.executable, repair_uvh5.__file__, one.path, other], capture_output=True, text=True)
    assert repair.returncode == 1 and repair.stdout == f"{one.path}: 3 dumps\n" and str(other) in repair.stderr
    assert other.read_text() == "no recording"
    assert one.read() == before


def test_time_in_the_name(recorder, tmp_path, rng):  # noqa: F811
    """A recorder that is started again, as an init system does, does not stumble over the file that it left."""
    stream = Stream(n_ants=1)
    packets = flatten(packets_of(stream, heaps_of_dump(stream, 0, stream.random_vis(rng))))
    name = "%Y%m%dT%H%M%SZ.uvh5"
    one = recorder(stream, from_capture(tmp_path, packets) | {"output": {"file": str(tmp_path / name)}})
    earliest = int(time.time())
    _, log = one.run()
    (path,) = tmp_path.glob("*.uvh5")
    assert path.name in [time.strftime(name, time.gmtime(s)) for s in range(earliest, int(time.time()) + 1)]
    assert str(path) in log
