"""Measures fgpu's time from exec to READY.

In a cold start, fgpu compiles its kernels.  In a warm start, an earlier start has compiled the kernels.
"""
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import time
from pathlib import Path

import gpu_machine

N_STARTS = 5
START_TIMEOUT_S = 40
CHANNELS = 32768

CONFIG = {
    "time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000},
    "device": {"kind": gpu_machine.DEVICE},
    "recv": {"interface": "lo", "sample_bits": 10, "packet_samples": 4096},
    "antennas": [{"name": "m000", "feng_id": 0, "pol0": "239.105.0.0+7:7148", "pol1": "239.105.0.8+7:7148"}],
    "outputs": [{"kind": "wideband", "name": "wide", "channels": CHANNELS, "taps": 16, "dither": "uniform",
                 "dither_seed": 1, "destinations": "239.105.1.0+63:7148"}],
    "send": {"interface": "lo", "ttl": 0, "array_size": 64},
}


def start(place, log, directory):
    """Starts fgpu and ends it.  Returns the seconds from exec to READY, or None if READY did not come (the log says why)."""
    config, notify = directory / "fgpu.yaml", directory / "notify"
    config.write_text(json.dumps(CONFIG))
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(notify))
        env = place.programs(NOTIFY_SOCKET=str(notify), CACHE_DIRECTORY=str(directory / "cache"),
                             CUDA_CACHE_PATH=str(directory / "driver-cache"))
        began = time.monotonic()
        process = subprocess.Popen([place.build / "fgpu", config], env=env, stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL)
        pidfd = os.pidfd_open(process.pid)
        took = None
        try:
            while took is None and process.poll() is None:
                readable, _, _ = select.select([ready, pidfd], [], [], began + START_TIMEOUT_S - time.monotonic())
                if not readable:
                    break
                if ready in readable and b"READY=1" in ready.recv(4096).splitlines():
                    took = time.monotonic() - began
            process.terminate()
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
            os.close(pidfd)
    return took


def forget_compiled(directory):
    for name in ("cache", "driver-cache"):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir()


def forget_files():
    """Empties Linux's cache of files, if the process may do so.  Returns true if the cache was emptied."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def measure(place, log, deadline):
    """Returns lines with the results, and sentences about failures."""
    directory = place.work / "startup"
    directory.mkdir()
    lines, failed = [], []
    kinds = [("warm: kernels compiled before", False, False), ("cold: kernels compiled", True, False),
             ("cold, and no file in the page cache", True, True)]
    forget_compiled(directory)
    if start(place, log, directory) is None:  # the first start reads the files and compiles the kernels
        return lines, ["fgpu did not become ready"]
    for name, compiles, reads in kinds:
        times = []
        for _ in range(N_STARTS):
            if time.monotonic() > deadline - START_TIMEOUT_S / 2:
                failed.append(f"{name}: out of time after {len(times)} starts")
                break
            if compiles:
                forget_compiled(directory)
            if reads and not (place.packed and gpu_machine.DEVICE == "cuda" and forget_files()):
                break
            took = start(place, log, directory)
            if took is None:
                failed.append(f"{name}: not ready")
                break
            times.append(took)
        if times:
            lines.append(f"{name}: min {min(times):.2f}, median {statistics.median(times):.2f}, "
                         f"max {max(times):.2f} s of {len(times)}")
    return lines, failed
