"""The playbook that scripts/array writes, run by Ansible on this machine.

The playbook sees a copy of /etc in a mount namespace.  A stand-in for systemctl notes what is started and stopped.
"""
import os
import shutil
import subprocess
import time

import pytest
import yaml

import harness
from test_array import EXAMPLE, run_array, write

SYSTEMCTL = """#!/bin/sh
# A unit is active or enabled if a file says so.
for word; do
    case $word in
    *.service|*.target) unit=$word ;;
    --*) ;;
    *) verb=${verb:-$word} ;;
    esac
done
case $verb in
show) [ -e "$UNITS/$unit.active" ] && active=active || active=inactive
      printf 'Id=%s\\nLoadState=loaded\\nActiveState=%s\\n' "$unit" "$active" ;;
is-active) [ -e "$UNITS/$unit.active" ] ;;
is-enabled) [ -e "$UNITS/$unit.enabled" ] && echo enabled ;;
enable) touch "$UNITS/$unit.enabled" ;;
disable) rm "$UNITS/$unit.enabled" ;;
start|restart) touch "$UNITS/$unit.active" ;;
stop) rm "$UNITS/$unit.active" ;;
esac || exit
case $verb in start|restart|stop) echo "$verb $unit" >> "$UNITS/log" ;; esac
"""
# $1: a folder for the changes to /etc, which the namespace loses at its end.  $1.etc keeps the changes.
INSIDE = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work"
if [ -e "$1.etc" ]; then cp -a "$1.etc/." "$1/upper"; fi
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc
code=0
"${@:2}" || code=$?
umount /etc
rm -rf "$1.etc"
cp -a "$1/upper" "$1.etc"
exit $code
"""


class Machine:
    """This machine, with an /etc of its own."""

    def __init__(self, work):
        if not shutil.which("ansible-playbook"):
            pytest.skip("ansible-playbook is not installed (Debian: ansible-core)")
        self.work, self.units, self.bin = work, work / "units", work / "bin"
        for folder in (self.units, self.bin, work / "changes", work / "prefix/bin"):
            folder.mkdir(parents=True)
        for name, text in (("systemctl", SYSTEMCTL), ("sysctl", "#!/bin/sh\n")):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        for program in ("fgpu", "xbgpu", "visrec", "beamrec"):
            (work / "prefix/bin" / program).symlink_to(harness.BUILD / program)
        done = self.run("true")
        if done.returncode:
            pytest.skip(f"a mount namespace with another /etc is not permitted here: {done.stderr.strip()}")

    def run(self, *command):
        environment = os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}", "UNITS": str(self.units), "HOME": str(self.work),
                                    "ANSIBLE_FORKS": "1", "ANSIBLE_NOCOLOR": "1"}
        return subprocess.run(["unshare", "--mount", "bash", "-c", INSIDE, "bash", self.work / "changes", *command],
                              env=environment, cwd=self.work, capture_output=True, text=True, check=False)

    def play(self, limit):
        """Runs the playbook for some hosts.  Returns the starts and stops of units, in their order."""
        began_s = time.monotonic()
        done = self.run("ansible-playbook", "-c", "local", "-e", "ansible_become=false", "-e", f"cbf_prefix={self.work / 'prefix'}",
                        "-i", "made/inventory.yaml", "made/playbook.yaml", "--skip-tags", "install", "--limit", limit)
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"the playbook took {time.monotonic() - began_s:.1f} s for {limit}")
        log = self.units / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def had(self, name, program, text):
        """A service of an earlier plan runs."""
        path = self.work / f"changes.etc/cbf/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for state in ("active", "enabled"):
            (self.units / f"{program}@{name}.service.{state}").touch()

    def etc(self, name):
        path = self.work / "changes.etc" / name
        return path.read_text() if path.is_file() else None


def test_move(work):
    """The printed command starts the engines of a dead host on the spare, and the controller.  Engines that the plan does not
    place on the spare stop there.  Recorders get their directories.  All in one run, because Ansible takes its time."""
    machine = Machine(work)
    array = yaml.safe_load(EXAMPLE.read_text())
    del array["recorders"][1]
    for recorder in array["recorders"] + array["beam_recorders"]:
        recorder["directory"] = f"{work}/{recorder['directory'].rpartition('/')[2]}"
    done = run_array(write(work, array), "--output", work / "made", "--move", "cbf2", "spare1")
    assert done.returncode == 0, done.stderr
    limit = done.stdout.split("--limit ")[1].strip()
    assert limit == "spare1,cbf-control"
    machine.had("f9", "fgpu", "# Made by scripts/array for fgpu@f9 on spare1: change array.yaml, not this file.\n")
    machine.had("control", "cbf-control", "# Made by scripts/array for cbf-control@control on spare1: change array.yaml.\n")
    machine.had("f8", "fgpu", "# Written by hand.\n")

    log = machine.play(f"{limit},store1")
    assert set(log[:2]) == {"stop fgpu@f9.service", "stop cbf-control@control.service"}
    assert set(log[2:4]) == {f"start {unit}.service" for unit in ("visrec@r0", "beamrec@b0")}
    assert log[4:] == [f"start {unit}.service" for unit in ("xbgpu@x1", "fgpu@f1", "cbf-control@control")]
    for name in ("f1", "x1", "r0", "b0", "control"):
        assert machine.etc(f"cbf/{name}.yaml") == (work / f"made/services/{name}.yaml").read_text()
    assert machine.etc("cbf/f2.yaml") is None and machine.etc("cbf/f9.yaml") is None
    assert machine.etc("cbf/f8.yaml") == "# Written by hand.\n"
    drop_in = machine.etc("systemd/system/visrec@r0.service.d/array.conf").splitlines()
    assert {"DynamicUser=no", "User=cbf", f"ReadWritePaths={work}/vis"} <= set(drop_in)
    assert machine.etc("tmpfiles.d/gpucbf-array.conf").splitlines()[1:] == [
        f"e {work}/vis - - - m:30d", f"e {work}/beams - - - m:7d"]
    assert (work / "vis").is_dir() and (work / "beams").is_dir()
