"""The comparisons of scripts/bench/soak.py: every dump at a receiver and in the recorder's files with the right values, and
the memory, descriptors and threads of each process over its life."""
import statistics
import threading
import time
from pathlib import Path

import h5py
import numpy as np

import harness
import repair_uvh5
import xmodel
from soak_array import HALF, N_ANTS, N_BASELINES, PERIOD, RATE, WINDOW

N_SHOWN = 10  # mismatches that are printed
SAMPLE_S = 10
MIN_SAMPLES = 9  # a shorter life is not shown
MEMORY_SAMPLES = 60  # 10 minutes: faults of the first minutes make a process use its last buffers for the first time
GROWTH = 0.01


class Tally:
    """Counts of compared baselines: each baseline of a dump is exact, flagged as a whole, or wrong."""

    def __init__(self, where):
        self.where = where
        self.n_dumps = self.exact = self.flagged = self.wrong = 0

    def add(self, what, flagged, right):
        """Adds a dump, from bool arrays [baseline][value].  Returns true if all baselines are exact."""
        self.n_dumps += 1
        are_right, are_flagged = right.all(-1), flagged.all(-1)
        wrong = ~(are_right | are_flagged)
        for baseline in np.flatnonzero(wrong):
            if self.wrong < N_SHOWN:
                print(f"WRONG: {self.where}, {what}, baseline {baseline}: {np.sum(flagged[baseline])} values flagged, "
                      f"{np.sum(right[baseline])} right of {right.shape[-1]}", flush=True)
            self.wrong += 1
        self.exact += int(are_right.sum())
        self.flagged += int((are_flagged & ~are_right).sum())
        return bool(are_right.all())

    def row(self):
        return f"| {self.where} | {self.n_dumps} | {self.exact} | {self.flagged} | {self.wrong} |"


class Received:
    """Receives the dumps of both X-engines with spead2, and compares each dump.  'complete' has the numbers of the
    complete dumps of each X-engine, and 'newest' the number of the newest dump."""

    def __init__(self, array, right):
        self.array, self.right, self.tally = array, right, Tally("receiver")
        self.where = [endpoint for name in ("xbgpu0", "xbgpu1")
                      for endpoint in harness.endpoints(array.configs[name]["outputs"][0]["destination"])]
        self.receiver = harness.Receiver(",".join(f"{host}:{port}" for host, port in self.where), may_lose=True)
        self.complete, self.newest = [set(), set()], [-1, -1]

    def refresh(self):
        with self.receiver.changed:
            heaps = [heap for heap in self.receiver.heaps if heap.kind == "data"]
            self.receiver.heaps.clear()
        for heap in heaps:
            half, window = self.where.index(heap.endpoint), heap.items["timestamp"] / WINDOW
            found, expected = heap.items["xeng_raw"], self.right[int(window) % PERIOD, half * HALF:(half + 1) * HALF]
            flagged = by_baseline(xmodel.is_missing(found))
            right = by_baseline((found == expected).all(-1) & (window % 1 == 0))
            if self.tally.add(f"dump {window} of xbgpu{half}", flagged, right):
                self.complete[half].add(int(window))
            self.newest[half] = max(self.newest[half], int(window))

    def wait_complete(self, n, after):
        """Waits for 'n' complete dumps of each X-engine that begin after timestamp 'after'."""
        first = after // WINDOW + 1

        def enough():
            self.refresh()
            return all(sum(window >= first for window in done) >= n for done in self.complete)

        harness.until(enough, lambda: f"complete dumps after {first}: newest {self.newest}, complete "
                                      f"{[sorted(done)[-3:] for done in self.complete]}")
        self.complete = [{window for window in done if window >= first} for done in self.complete]

    def absent(self, first):
        """Returns the numbers (X-engine, dump) of dumps that are flagged or absent, from dump 'first' to the newest dump
        before the last."""
        self.refresh()
        return [(half, window) for half in range(2) for window in range(first, min(self.newest))
                if window not in self.complete[half]]


def by_baseline(values):
    """[channel][4 * baseline + product] -> [baseline][channel and product]"""
    return values.reshape(-1, N_BASELINES, 4).swapaxes(0, 1).reshape(N_BASELINES, -1)


class Files:
    """Compares the recorder's closed files, and removes them."""

    def __init__(self, work, array, right):
        self.work, self.array, self.tally = work, array, Tally("recorder's files")
        order = [xmodel.baseline(a1, a2) for a1 in range(N_ANTS) for a2 in range(a1, N_ANTS)]
        right = right.reshape(PERIOD, -1, N_BASELINES, 4, 2)[:, :, order][:, :, :, [0, 3, 2, 1]]
        self.right = right.transpose(0, 2, 1, 3, 4)  # [dump][baseline of the file][channel][pol][re, im]

    def check(self, are_all_closed=False):
        """A killed recorder's file is repaired first.  The newest file is open unless 'are_all_closed'."""
        paths = sorted(self.work.glob("*.uvh5"), key=lambda path: path.stat().st_mtime)
        for path in paths if are_all_closed else paths[:-1]:
            if are_all_closed or time.time() - path.stat().st_mtime > 5:
                repair_uvh5.repair(str(path))
                self.compare(path)
                path.unlink()

    def compare(self, path):
        with h5py.File(path) as file:
            times_s = (file["Header/time_array"][::N_BASELINES] - 2440587.5) * 86400 - self.array.sync_time
            windows = np.rint(times_s * RATE / WINDOW - 0.5).astype(int)
            shape = (len(windows), *self.right.shape[1:4])
            for i, window in enumerate(windows):
                rows = slice(i * N_BASELINES, (i + 1) * N_BASELINES)
                found = file["Data/visdata"][rows].reshape(shape[1:])
                flags = file["Data/flags"][rows].reshape(shape[1:]).astype(bool)
                expected = self.right[window % PERIOD]
                right = (found["r"] == expected[..., 0]) & (found["i"] == -expected[..., 1])
                for half in range(2):
                    part = np.s_[:, half * HALF:(half + 1) * HALF]
                    self.tally.add(f"{path.name}, dump {window}, half {half}", flags[part].reshape(N_BASELINES, -1),
                                   (right & ~flags)[part].reshape(N_BASELINES, -1))


# ---- Processes -------------------------------------------------------------------------------------------------------


class Life:
    """Samples of one process: (resident KiB, descriptors, threads).  A process that had the warm-up is judged.  Other
    processes touch the rest of their buffers only when they are late for the first time."""

    def __init__(self, name, is_judged):
        self.name, self.is_judged, self.samples = name, is_judged, []

    def thirds(self):
        """Returns figures of the second and of the last third of the samples; None if the life was short.

        The memory is a mean.  A recorder's memory has a few levels that differ by 2 %, because HDF5 frees the tables of
        each file, so a median may jump from one level to another.  Descriptors and threads are medians.
        """
        n = len(self.samples) // 3
        if len(self.samples) < MIN_SAMPLES:
            return None
        thirds = [list(zip(*part)) for part in (self.samples[n:2 * n], self.samples[-n:])]
        return [[statistics.fmean(memory), statistics.median(fds), statistics.median(threads)] for memory, fds, threads in thirds]

    def grows(self):
        first, last = self.thirds()
        judged = slice(0 if len(self.samples) >= MEMORY_SAMPLES else 1, None)
        return self.is_judged and any(after > before * (1 + GROWTH) for before, after in zip(first[judged], last[judged]))

    def verdict(self):
        if not self.is_judged:
            return "not judged"
        return "GROWS" if self.grows() else "flat" if len(self.samples) >= MEMORY_SAMPLES else "flat, memory not judged"


class Sampler(threading.Thread):
    """Samples each process every SAMPLE_S, until stop().  The processes that run at the start have had the warm-up."""

    def __init__(self, array):
        super().__init__(daemon=True)
        self.array, self.lives, self.ended = array, {}, threading.Event()

    def start(self):
        self.lives = {process.process.pid: Life(name, True) for name, process in self.array.processes.items()}
        super().start()

    def run(self):
        while not self.ended.wait(SAMPLE_S):
            for name, process in list(self.array.processes.items()):
                self.look(name, process.process.pid)

    def look(self, name, pid):
        life = self.lives.setdefault(pid, Life(name, False))
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            sample = (int(status["VmRSS"].split()[0]), len(list(Path(f"/proc/{pid}/fd").iterdir())), int(status["Threads"]))
        except (OSError, KeyError):
            return  # the process has ended
        life.samples.append(sample)

    def stop(self):
        self.ended.set()
        self.join()

    def rows(self):
        """Returns a line of the table for each life that was long enough, and whether a process grew."""
        rows, grown = [], False
        for life in sorted(self.lives.values(), key=lambda life: (life.name, not life.is_judged)):
            if life.thirds():
                first, last = life.thirds()
                rows.append(f"| {life.name} | {len(life.samples) * SAMPLE_S} | {first[0]:.0f} | {last[0]:.0f} | "
                            f"{100 * (last[0] / first[0] - 1):+.2f} % | {first[1]:.0f}, {last[1]:.0f} | "
                            f"{first[2]:.0f}, {last[2]:.0f} | {life.verdict()} |")
                grown |= life.grows()
        return rows, grown
