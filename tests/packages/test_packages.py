"""The contents of the packages: units that are present, checked, hardened, and disabled; files to edit; manual
pages."""
import re

import pytest

ENGINES = ["fgpu", "xbgpu"]
MAX_EXPOSURE = 1.5
# Drop-ins, with what their files say that they cost.
DROP_INS = {"realtime": 1.5, "ibverbs": 1.8}


def test_nothing_starts_by_itself(machine):
    for engine in ENGINES:
        assert machine.run(f"systemctl is-enabled {engine}@.service", check=False).stdout.strip() == "disabled"
    assert machine.run("systemctl is-enabled gpucbf.target", check=False).stdout.strip() == "disabled"
    assert machine.run("systemctl list-units --all --plain --no-legend 'fgpu@*' 'xbgpu@*'").stdout == ""
    assert machine.run("pgrep -c 'fgpu|xbgpu|dsim|fsim|visrec|beamrec'", check=False).stdout.strip() == "0"


def test_units_are_sound(machine):
    cuda = "gpucbf-gpu.service" if machine.path("/usr/lib/cbf/cbf-cuda.so").exists() else ""
    said = machine.run(f"systemd-analyze verify fgpu@x.service xbgpu@x.service visrec@x.service beamrec@x.service gpucbf.target gpucbf-clock.service {cuda} "
                       "2>&1 | grep -E 'gpu|cbf' | grep -v nvidia || true").stdout
    assert said == ""


def exposure(machine, unit):
    return float(re.search(r"exposure level for \S+: ([0-9.]+)",
                           machine.run(f"systemd-analyze security --offline=true --no-pager {unit}").stdout)[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_exposure(engine, machine):
    found = {"as packaged": (exposure(machine, f"{engine}@x.service"), MAX_EXPOSURE)}
    for name, limit in DROP_INS.items():
        directory = f"/etc/systemd/system/{engine}@.service.d"
        machine.run(f"mkdir -p {directory}; cp /usr/share/cbf/systemd/{name}.conf {directory}; systemctl daemon-reload")
        found[name] = exposure(machine, f"{engine}@x.service"), limit
        machine.run(f"rm -r {directory}; systemctl daemon-reload")
    print(f"\n{engine}@.service: exposure", ", ".join(f"{value} {name}" for name, (value, _) in found.items()))
    assert all(value <= limit for value, limit in found.values()), found


@pytest.mark.parametrize("unit", ["gpucbf-clock.service", "visrec@x.service", "beamrec@x.service", "cbf-control@x.service"])
def test_exposure_of_the_others(unit, machine):
    assert exposure(machine, unit) <= MAX_EXPOSURE


def test_files(machine):
    conffiles = machine.run("dpkg-query -W -f='${Conffiles}\n' gpucbf").stdout
    assert {line.split()[0] for line in conffiles.splitlines() if line} == {
        "/etc/sysctl.d/60-gpucbf.conf", "/etc/security/limits.d/60-gpucbf.conf"}
    assert machine.run("stat -c '%a %U' /etc/cbf").stdout.split() == ["755", "root"]
    assert machine.run("dpkg -V gpucbf gpucbf-sim").stdout == ""
    # Each line of the file is a setting that this kernel knows, or belongs to the network namespace of init.
    for line in machine.path("/etc/sysctl.d/60-gpucbf.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"net\.(core|ipv4)\.[a-z_]+ = \d+", line), line


def test_group(machine):
    """That of limits.d."""
    assert machine.run("getent group cbf").stdout.startswith("cbf:")
    assert machine.run("id -u cbf").returncode == 0


def test_documents(machine):
    """Every link and picture of the documents leads to a file.  Every document that a manual page names exists."""
    root = machine.path("/usr/share/doc/gpucbf")
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    assert len(pages) > 10
    for page in pages:
        links = re.findall(r'\]\(([^)#]+)[^)]*\)|<img src="([^"]+)"', page.read_text())
        missing = [a or b for a, b in links if not (a or b).startswith("http") and not (page.parent / (a or b)).exists()]
        assert not missing, f"{page.name}: {missing}"
    named = machine.run("bash -c 'zcat /usr/share/man/man[15]/{fgpu,xbgpu,dsim,visrec}*.gz'").stdout
    named += "".join(path.read_text() for path in machine.path("/usr/share/cbf/config").glob("*.yaml"))
    paths = set(re.findall(r"[\w./-]*docs/[a-z-]+\.md", named))
    assert "/usr/share/doc/gpucbf/docs/operation.md" in paths
    assert not [path for path in paths if not path.startswith("/") or not machine.path(path).exists()], paths
    assert machine.path("/usr/share/doc/gpucbf/examples/visrec.yaml").exists()


@pytest.mark.parametrize("page", ["fgpu", "xbgpu", "visrec", "beamrec", "dsim", "fsim"])
def test_manual_pages(page, machine):
    program = machine.run(f"MANWIDTH=80 man 1 {page} | col -b").stdout
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "SIGNALS", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES",
                    "SEE ALSO"):
        assert f"\n{section}\n" in program, section
    assert machine.run(f"{page} --version").stdout.startswith(f"{page} ")
    configuration = machine.run(f"MANWIDTH=80 man 5 {page}.yaml | col -b").stdout
    schema = machine.run(f"{page} --print-schema").stdout
    keys = set(re.findall(r'^ {10}"(\w+)": ', schema, re.M))
    assert len(keys) > 10
    missing = [key for key in keys if not re.search(rf"^ +{key}\b", configuration, re.M)]
    assert not missing
    assert not machine.run(f"man --warnings 1 {page} 2>&1 >/dev/null; man --warnings 5 {page}.yaml 2>&1 >/dev/null").stdout


def test_programs_of_the_packages(machine):
    """Programs that are no services find each other in the packages' places."""
    machine.run("rm -rf /tmp/array; /usr/share/cbf/scripts/array /usr/share/cbf/config/array/array.yaml "
                "--output /tmp/array && fgpu --check-config /tmp/array/services/f0.yaml "
                "&& xbgpu --check-config /tmp/array/services/x0.yaml && visrec --check-config /tmp/array/services/r0.yaml && beamrec --check-config /tmp/array/services/b0.yaml && test -s /tmp/array/playbook.yaml")
    assert machine.run("cbf-doctor --version").stdout.startswith("cbf-doctor ")
    assert "NAME" in machine.run("man cbf-doctor | col -b").stdout
