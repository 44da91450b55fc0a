"""Builds the files that the GPU tests need, and packs them.  .gpu/pack.tar.gz is a small tree like the repository's.  It
has the built programs, their shared libraries and the Python packages that a machine with a GPU does not have."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_machine

ROOT = gpu_machine.HERE
PACK = ROOT / "build/gpu-pack"
PACKED = ROOT / ".gpu/pack.tar.gz"
LIMIT_MIB = 50

SOURCES = ["scripts/gpu", "scripts/gpu_*.py", "scripts/bench/realtime*", "scripts/bench/pacing", "scripts/bench/*.py",
           "scripts/kernel_limits.py", "scripts/repair_uvh5.py", "config/demo/*", "docs/loss.md",
           "systemd/engine@.service.in",
           "tests/*.*", "tests/models/*.py", "tests/system/*.py", "tests/gpu/*", "tests/unit/**/*.[ch]", "tests/fakes/emulator/*",
           "scripts/bench/*.txt", "tests/qualify/*.py", "kernels/**/*", "common/device/tensor_map.h"]
PROGRAMS = ["fgpu", "xbgpu", "dsim", "fsim", "visrec", "bench/bench_fgpu", "bench/bench_xbgpu", "bench/bench_ddc",
            "bench/bench_beam", "bench/bench_gnss", "bench/bench_search", "bench/bench_direct", "bench/count_heaps",
            "bench/arrivals", "bench/bench_pace", "*.so"]

# Libraries that are not packed, because every GPU machine has them: the C and C++ runtime, CUDA and its driver.
NOT_PACKED = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|libcuda|"
                        r"libcudart|libcufft|libcufftw|libnvrtc|libnvrtc-builtins|libnvJitLink|libnvidia-.*)\.so")
# Libraries to pack if this machine has them: Vulkan's loader, which programs open at run time, and libraries that
# NVIDIA's Vulkan driver needs.
VULKAN = ["libvulkan.so.1", "libX11.so.6", "libXext.so.6", "libxcb.so.1", "libXau.so.6", "libXdmcp.so.6", "libbsd.so.0",
          "libmd.so.0", "libGLdispatch.so.0"]
# Python packages to pack, with their dependencies except numpy.  Their versions are in tests/requirements.txt.
WHEELS = ["spead2", "PyYAML", "aiokatcp", "async-timeout", "decorator", "katcp-codec", "typing-extensions"]
PYTHON = "3.12"
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]


def build():
    subprocess.run(["make", f"-j{os.cpu_count()}", "--no-print-directory", "gpu-programs"], cwd=ROOT, check=True)


def suites(root):
    """Returns the unit tests that use CBF_TEST_DEVICE, directly or through a header."""
    sources = {path.name: path.read_text() for path in sorted((root / "tests/unit").rglob("*.[ch]"))}
    marks = ["CBF_TEST_DEVICE"] + [f'{name}"' for name, text in sources.items()
                                   if name.endswith(".h") and "CBF_TEST_DEVICE" in text]
    return [name.removesuffix(".c") for name, text in sources.items()
            if name.startswith("check_") and any(mark in text for mark in marks)]


def copy(path):
    target = PACK / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)
    return target


def libraries(program):
    """Copies the shared libraries that a program needs."""
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if not arrow or NOT_PACKED.match(name):
            continue
        if path.startswith("not found"):
            raise SystemExit(f"pack: {program} needs {name}, which is not on this machine")
        if not (PACK / "lib" / name).exists():
            shutil.copy2(Path(path.split(" (")[0]).resolve(), PACK / "lib" / name)


def vulkan_libraries():
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in VULKAN:
        path = re.search(rf"\s{re.escape(name)} .*x86-64.* => (\S+)", known)
        if path:
            shutil.copy2(Path(path.group(1)).resolve(), PACK / "lib" / name)
        else:
            print(f"pack: left out {name}, which is not on this machine")
    # This description of NVIDIA's Vulkan driver names the driver's library for machines without a display.
    driver = {"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0", "api_version": "1.1.0"}}
    (PACK / gpu_machine.VULKAN_DRIVER).write_text(json.dumps(driver))


def download_wheels():
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "tests/requirements.txt").read_text(), re.M))
    wanted = [f"{name}=={pinned[name]}" if name in pinned else name for name in WHEELS]
    kept = ROOT / ".whl"  # folder of packages, which stays for the next run of 'pack'
    marker = kept / "-".join(["has", PYTHON, *wanted])
    if not marker.exists():
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        shutil.rmtree(kept, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON, *platforms,
                        "-d", kept, *wanted], check=True)
        marker.touch()
    shutil.copytree(kept, PACK / "wheels", ignore=shutil.ignore_patterns("has-*"))


def pack():
    build()
    shutil.rmtree(PACK, ignore_errors=True)
    (PACK / "lib").mkdir(parents=True)
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                copy(path)
    programs = [path for pattern in PROGRAMS for path in sorted((ROOT / "build").glob(pattern)) if path.is_file()]
    programs += [ROOT / "build/tests" / name for name in [*suites(ROOT), "check_design_ddc"]]
    for program in programs:
        libraries(program)
        subprocess.run(["strip", "--strip-debug", copy(program)], check=True)
    vulkan_libraries()
    download_wheels()
    (PACK / "commit").write_text(gpu_machine.commit() + "\n")
    shutil.rmtree(PACKED.parent, ignore_errors=True)
    PACKED.parent.mkdir()
    subprocess.run(["tar", "-czf", PACKED, "-C", PACK, "."], check=True)
    mib = PACKED.stat().st_size / 2**20
    print(f"packed: {PACKED}, {mib:.1f} MiB, {len(programs)} programs, commit {gpu_machine.commit()}")
    if not (PACK / "build/cbf-cuda.so").exists():
        print("pack: the cuda device is not packed, because this machine has no CUDA toolkit")
    if mib > LIMIT_MIB:
        raise SystemExit(f"pack: more than {LIMIT_MIB} MiB")
    return 0
