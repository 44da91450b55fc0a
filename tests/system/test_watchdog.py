"""The init system's watchdog is fed if and only if every thread passes its loop, with or without data.  The log names a
thread that does not."""
import contextlib
import itertools
import os
import queue
import select
import socket
import threading
import time

import harness
import numpy as np
from stopping import stopped, threads

import chain

WATCHDOG_S = 3
THREADS = {
    "fgpu0": ["recv0", "worker", "send0", "upload", "download", "compute0"],
    "xbgpu0": ["recv0", "recv1", "worker", "send0", "upload", "compute", "download"],
}


class Listener:
    """Messages of a process to the init system, taken as they come: messages that find its queue full are lost."""

    def __init__(self, process):
        self.messages = queue.SimpleQueue()
        self.socket = process.notify
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                self.messages.put(self.socket.recv(4096).decode().splitlines())

    def next(self, timeout=harness.TIMEOUT_S):
        """The next message's lines, or none within 'timeout'."""
        try:
            return self.messages.get(timeout=timeout)
        except queue.Empty:
            return []

    def drain(self):
        while not self.messages.empty():
            self.messages.get()

    def drop_feeds(self):
        """Drops the WATCHDOG=1 of all messages that the process has sent so far."""
        harness.until(lambda: not select.select([self.socket], [], [], 0)[0], "all messages taken")
        for _ in range(self.messages.qsize()):
            if (lines := self.messages.get()) != ["WATCHDOG=1"]:
                self.messages.put(lines)


def check_fed(listener):
    """It is fed often enough, and nothing is wrong.  A busy host may delay single messages."""
    listener.drain()
    fed_s = []
    while len(fed_s) < 9:
        lines = listener.next()
        assert lines, f"not fed for {harness.TIMEOUT_S} s"
        assert not any(line.startswith("STATUS=FAILED") for line in lines), lines
        fed_s += [time.monotonic()] * ("WATCHDOG=1" in lines)
    assert max(np.median(np.diff(fed_s)), np.mean(np.diff(fed_s))) < WATCHDOG_S / 2


def wait_for(listener, wanted):
    """Waits for a line that begins so.  Returns it, and how often the watchdog was fed before."""
    n_fed, end = 0, time.monotonic() + harness.TIMEOUT_S
    while time.monotonic() < end and (lines := listener.next()):
        for line in lines:
            if line.startswith(wanted):
                return line, n_fed
            n_fed += line == "WATCHDOG=1"
    raise AssertionError(f"no {wanted} within {harness.TIMEOUT_S} s")


def named_threads(pid, names):
    """The threads of a process that is ready: each gives itself its name as it begins."""
    end = time.monotonic() + harness.TIMEOUT_S
    while not set(names) <= (running := threads(pid)).keys():
        assert time.monotonic() < end, running
        time.sleep(0.01)
    return running


def check_named(culprits):
    """Threads (process, listener, name, tid), one of each process, are stopped.  They are named within 3/4 of
    WatchdogSec.  The watchdog is not fed until they continue."""
    with contextlib.ExitStack() as stack:
        for process, listener, _, tid in culprits:
            listener.drain()
            # A thread that was stopped with a lock would stop others, which could be named instead.
            stack.enter_context(stopped(tid, process.process.pid))
            listener.drop_feeds()  # of the time until the thread stopped
        for _, listener, name, tid in culprits:
            said, n_fed = wait_for(listener, "STATUS=FAILED")
            assert said == f"STATUS=FAILED: thread {name} ({tid}) hangs", said
            assert n_fed <= 6
        for _, listener, _, _ in culprits:
            lines = listener.next(WATCHDOG_S / 4)
            assert not lines, lines
    for process, listener, name, tid in culprits:
        said, n_fed = wait_for(listener, "STATUS=")
        assert said == "STATUS=running" and n_fed == 0
        assert f"thread {name} ({tid}) hangs" in process.log.read_text()
        wait_for(listener, "WATCHDOG=1")


def test_every_thread_is_watched(daemon, work, monkeypatch):
    """Each thread of each daemon is stopped in turn: without data, and, for threads that handle packets, also with
    data."""
    monkeypatch.setattr(harness, "WATCHDOG_S", WATCHDOG_S)
    layout = chain.Layout(work, {"xbgpu0": {"recv": {"threads": 2}}})
    listeners, processes, running = {}, {}, {}
    for name in THREADS:
        # With priority: a busy host that keeps a thread waiting for 1.5 s would make it seem to hang.
        processes[name] = daemon(name[:-1], layout.config(name), name, first=True).wait_ready()
        listeners[name] = Listener(processes[name])
        running[name] = named_threads(processes[name].process.pid, THREADS[name])
    monkeypatch.setattr(harness, "WATCHDOG_S", 0)

    def stop_in_turn(of_each):
        for wanted in itertools.zip_longest(*of_each):
            check_named([(processes[name], listeners[name], thread, running[name][thread])
                         for name, thread in zip(THREADS, wanted) if thread])
        for listener in listeners.values():
            check_fed(listener)

    stop_in_turn(THREADS.values())
    daemon("dsim", layout.config("dsim"), "dsim").wait_ready()
    processes["fgpu0"].wait_metric(lambda m: m.get("fgpu_output_heaps_total") > 0, "heaps")
    for listener in listeners.values():
        check_fed(listener)
    stop_in_turn([["recv0", "worker"]] * 2)
    for process in processes.values():
        process.terminate().wait_end()


def full_pipe():
    """Both ends of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


def fill_queue(process):
    """Fills the socket, so that the process's further messages to the init system find no room."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
        sender.setblocking(False)
        while True:
            sender.sendto(b"STATUS=filler", process.notify.getsockname())


def test_nobody_reads(daemon, work, monkeypatch):
    """An init system and a log without readers: data flow, and SIGTERM ends the process."""
    monkeypatch.setattr(harness, "WATCHDOG_S", WATCHDOG_S)
    layout = chain.Layout(work)
    pipe = full_pipe()
    programs = [daemon(name.rstrip("0"), layout.config(name), name, stderr=pipe[1]) for name in ("xbgpu0", "fgpu0", "dsim")]
    for process in programs:
        process.wait_ready()
        fill_queue(process)
    xbgpu, fgpu, _ = programs
    n_heaps = fgpu.metrics().get("fgpu_output_heaps_total")
    fgpu.wait_metric(lambda m: m.get("fgpu_output_heaps_total") > n_heaps + 30, "heaps")
    xbgpu.wait_metric(lambda m: m.get("xbgpu_output_x_heaps_total") > 3, "dumps")
    for process in programs:
        process.terminate()
    for process in programs:
        process.wait_end()
    for end in pipe:
        os.close(end)
