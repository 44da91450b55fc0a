"""The machine of the GPU tests: where its programs are, a description of its GPU, and environments for programs."""
import contextlib
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import kernel_limits

HERE = Path(__file__).resolve().parents[1]
CUDA = Path("/usr/local/cuda")
DEVICE = os.environ.get("CBF_TEST_DEVICE", "cuda")

# Files that describe NVIDIA's Vulkan driver.  Vulkan's loader does not search these places; the last place is in the
# pack.
VULKAN_DRIVERS = ["/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json",
                  "/etc/vulkan/icd.d/nvidia_icd.json"]
VULKAN_DRIVER = "lib/nvidia_egl_icd.json"

# Limits of socket buffers for a bare machine.  If a test reads late, the buffers must hold the test's packets.
SOCKET_LIMITS = {"net.core.rmem_max": 1 << 28, "net.core.wmem_max": 1 << 28, "net.core.netdev_max_backlog": 100000}


def why_no_gpu():
    """Returns '' if CUDA finds a GPU; otherwise a sentence with the reason."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver here"
    error, count = driver.cuInit(0), ctypes.c_int(0)
    if error or driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"the NVIDIA driver does not start (error {error})"
    return "" if count.value else "there is no GPU here"


def output_of(*command):
    """Returns the output of a program; '' if the program does not exist or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def tool(name):
    """Returns the path of a program of the CUDA toolkit."""
    return shutil.which(name) or str(CUDA / "bin" / name)


def built_tree():
    """Returns the directory with the built programs.  If nothing was built in this tree and .gpu contains an unpacked
    pack, the function returns .gpu.  Otherwise the function returns this tree."""
    return HERE if (HERE / "build").exists() or not (HERE / ".gpu/build").exists() else HERE / ".gpu"


def commit(root=HERE):
    path = root / "commit"
    return path.read_text().strip() if path.exists() else output_of("git", "-C", str(root), "describe", "--always",
                                                                    "--dirty")


def describe():
    """Returns the GPU, the driver, the CUDA version and the host, for the summary."""
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    cuda = [line.split("release ")[1].split(",")[0] for line in output_of(tool("nvcc"), "--version").splitlines()
            if "release " in line]
    name, driver, memory = [part.strip() for part in gpu.splitlines()[0].split(",")] if gpu else ["none", "none", "0"]
    return {"gpu": name, "driver": driver, "memory": memory, "cuda": cuda[0] if cuda else "none",
            "host": f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"}


class Place:
    """A directory for all temporary files, and the environments in which programs and pytest run."""

    def __init__(self, root):
        self.root = root
        self.build = root / "build"
        self.packed = (root / "wheels").exists()
        self.work = Path(tempfile.mkdtemp(prefix="g-"))
        self.out = Path(os.environ.get("OUT") or self.build / "gpu-results").resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.cache = self.work / "cache"
        self.cache.mkdir()
        libraries = [str(root / "lib")] * self.packed + [str(CUDA / "lib64"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.library_path = ":".join(filter(None, libraries))
        # All parts use one seed.  So a part finds, in the cache, kernels that an earlier part compiled.
        self.seed = os.environ.get("TEST_SEED") or str(int(time.time()))
        self.common = os.environ | {"CBF_TEST_DEVICE": DEVICE, "CACHE_DIRECTORY": str(self.cache),
                                    "TEST_SEED": self.seed, "CHECK_SEED": self.seed,
                                    "TMPDIR": str(self.work), "PYTHONUNBUFFERED": "1"}
        drivers = [path for path in [*VULKAN_DRIVERS, str(root / VULKAN_DRIVER)] if os.path.exists(path)]
        if drivers and DEVICE == "cuda":
            self.common.setdefault("VK_DRIVER_FILES", ":".join(drivers))
        if (self.build / "cbf-cuda.so").exists():
            self.common["CBF_CUDA_DEVICE"] = str(self.build / "cbf-cuda.so")
        venv = root / ".venv" / "bin" / "python"
        self.python = str(venv) if venv.exists() else sys.executable
        if self.packed:
            self.unpack_wheels()

    def programs(self, **more):
        """Returns the environment for our programs."""
        return self.common | {"LD_LIBRARY_PATH": self.library_path} | more

    def pytest(self, **more):
        """Returns the environment for pytest, which uses the libraries and plugins of the machine.  For the daemons,
        the harness adds our libraries."""
        ours = {"CBF_BUILD": str(self.build), "CBF_LIBRARY_PATH": self.library_path,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return self.common | ours | more

    def unpack_wheels(self):
        site = self.work / "site"
        for wheel in sorted((self.root / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site)
        self.common["PYTHONPATH"] = ":".join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))

    def remove(self):
        shutil.rmtree(self.work, ignore_errors=True)


@contextlib.contextmanager
def place_of(root):
    """Provides a Place for the duration of a 'with' block.  Raises the socket limits if the process may do so (as
    root)."""
    place = Place(root)
    try:
        with kernel_limits.raised(SOCKET_LIMITS if place.packed and DEVICE == "cuda" else {}):
            yield place
    finally:
        place.remove()
