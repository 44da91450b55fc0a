"""Hardening of all built and installed files: the programs by the compiler and the linker, the units by systemd."""
import re
import shutil
import subprocess

import pytest
from harness import BUILD, ROOT, SANITIZED

PROGRAMS = ["fgpu", "xbgpu", "dsim", "fsim", "visrec", "beamrec", "cbf-doctor", "clock-state"]
CUDA_DEVICE = "cbf-cuda.so"
MAX_EXPOSURE = 1.5
# ibverbs needs CAP_NET_RAW in the host's namespace of users; docs/operation.md has what that costs.
DROP_INS = {"realtime": MAX_EXPOSURE, "ibverbs": 1.8}
UNITS = ["cbf-control@", "fgpu@", "xbgpu@", "visrec@", "gpucbf-clock", "gpucbf-gpu"]


def readelf(name, *options):
    return subprocess.run(["readelf", "-W", *options, str(BUILD / name)], capture_output=True, text=True,
                          check=True).stdout


@pytest.mark.skipif(SANITIZED, reason="sanitizers take the place of all this")
@pytest.mark.parametrize("name", PROGRAMS + [CUDA_DEVICE])
def test_binary(name):
    if name == CUDA_DEVICE and not (BUILD / name).exists():
        pytest.skip("built without CUDA")
    header, segments, dynamic = readelf(name, "-h"), readelf(name, "-l"), readelf(name, "-d")
    symbols = readelf(name, "--dyn-syms")
    assert re.search(r"Type: +DYN", header)
    assert "GNU_RELRO" in segments and re.search(r"FLAGS_1.*\bNOW\b", dynamic), "not all relocations are read-only"
    assert re.search(r"GNU_STACK +(\S+ +){5}RW +", segments), "the stack is executable"
    assert "__stack_chk_fail" in symbols, "no stack protector"
    assert re.search(r"__\w+_chk@GLIBC", symbols), "no FORTIFY_SOURCE"
    if name != CUDA_DEVICE:
        assert re.search(r"FLAGS_1.*\bPIE\b", dynamic)
        if "X86-64" in header:
            # Not the note of the whole file: the C library's start files may have none.
            main = subprocess.run(["objdump", "-d", "--disassemble=main", str(BUILD / name)], capture_output=True,
                                  text=True, check=True).stdout
            assert re.search(r"<main>:\n.*endbr64", main), "no control-flow protection"


def unit_text(unit):
    path = ROOT / "systemd" / f"{unit}.service"
    engine = {"fgpu@": "fgpu", "xbgpu@": "xbgpu", "visrec@": "visrec", "beamrec@": "beamrec"}.get(unit)
    if engine:
        path = ROOT / "systemd" / "engine@.service.in"
    elif not path.exists():
        path = path.with_suffix(".service.in")
    return path.read_text().replace("@prefix@", "/usr").replace("@engine@", engine or "").replace("@what@", "what")


def exposure(path):
    said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)],
                          capture_output=True, text=True, check=False).stdout
    return float(re.search(r"exposure level for \S+: ([0-9.]+)", said)[1]), said


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (Debian: systemd)")
@pytest.mark.parametrize("unit", UNITS)
def test_exposure(unit, work):
    path = work / f"{unit}{'x' if '@' in unit else ''}.service"
    path.write_text(unit_text(unit))
    value, said = exposure(path)
    print(f"{unit}: {value}")
    assert value <= MAX_EXPOSURE, said


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (Debian: systemd)")
@pytest.mark.parametrize("name", DROP_INS)
def test_exposure_of_drop_ins(name, work):
    """A drop-in is read behind its unit."""
    path = work / "fgpu@x.service"
    path.write_text(unit_text("fgpu@") + (ROOT / "systemd" / f"{name}.conf").read_text())
    value, said = exposure(path)
    print(f"{name}: {value}")
    assert value <= DROP_INS[name], said
