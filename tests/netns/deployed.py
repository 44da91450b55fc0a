"""Ansible on hosts that are network namespaces: the playbook of scripts/array starts the programs of each host.

Flow:      ansible-playbook -> stand-in for ssh, which enters the host that has the address -> the playbook's tasks ->
           stand-in for systemctl -> Units, in the test's process -> the unit's program, in its host's namespaces
Hosts:     a host must have a disk (hosts.Host).  A program reads the configuration that the playbook wrote to the
           host's /etc.
Sysctl:    a namespace has its own limit of multicast memberships.  The stand-in for sysctl sets only this limit,
           because other limits belong to the whole machine.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

from hosts import BUILD, ROOT, Process, Wrong, die_with_parent, say

sys.path.insert(0, str(ROOT / "tests/system"))
import harness  # noqa: E402

UNIT_S = 60  # time within which a unit must be ready: TimeoutStartSec= of cbf-control@.service
SSH = """#!/bin/sh
# ssh OPTIONS ADDRESS COMMAND
for word; do address=$command command=$word; done
read name pid < "$CBF_TEST/hosts/$address" || exit 255
export CBF_HOST=$name
exec nsenter --net=/proc/$pid/ns/net --mount=/proc/$pid/ns/mnt sh -c "$command"
"""
SYSTEMCTL = """#!/usr/bin/python3 -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(os.environ["CBF_TEST"] + "/units")
    asked.sendall(" ".join([os.environ["CBF_HOST"], *sys.argv[1:]]).encode() + b"\\n")
    code, _, text = asked.makefile().read().partition("\\n")
print(text, end="", file=sys.stderr if int(code) else sys.stdout)
sys.exit(int(code))
"""
SYSCTL = """#!/bin/sh
# sysctl -q -p FILE
grep '^net.ipv4.igmp_max_memberships' "$3" | PATH=${PATH#*:}:/sbin sysctl -q -p -
"""


class Units:
    """The units of all hosts, and their processes.  A thread answers the stand-ins for systemctl, one after another.

    A unit of systemd starts its program again after a failure.  These units do not, so a fault lasts until the test
    mends it.
    """

    def __init__(self, out, hosts):
        self.out, self.hosts = out, hosts
        self.processes, self.enabled = {}, set()  # by unit, as in "h1 fgpu@f0.service"
        (out / "units").unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(out / "units"))
        self.socket.listen(64)
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self):
        while True:
            asked, _ = self.socket.accept()
            with asked, asked.makefile("rw") as lines:
                try:
                    host, *words = lines.readline().split()
                    code, text = self._do(host, [word for word in words if not word.startswith("--")])
                except Exception as error:  # the thread must not end, because its programs would end with it
                    code, text = 1, f"{error}\n"
                lines.write(f"{code}\n{text}")

    def _do(self, host, words):
        verb, unit = words[0], f"{host} {words[-1]}"
        if verb == "show":
            return 0, f"Id={words[-1]}\nLoadState=loaded\nActiveState={'active' if self.runs(unit) else 'inactive'}\n"
        if verb in ("is-active", "is-enabled"):
            yes = self.runs(unit) if verb == "is-active" else unit in self.enabled
            return (0, f"{verb[3:]}\n") if yes else (1, "")
        if verb == "enable":
            self.enabled.add(unit)
        elif verb == "disable":
            self.enabled.discard(unit)
        if verb in ("stop", "restart"):
            self.stop(unit)
        if verb in ("start", "restart"):
            self.start(unit)
        return 0, ""

    def runs(self, unit):
        return unit in self.processes and self.processes[unit].process.poll() is None

    def start(self, unit):
        """Starts the program of a unit, unless it runs."""
        if self.runs(unit):
            return
        host, service = unit.split()
        program, name = service.removesuffix(".service").split("@")
        clock = harness.Clock(self.out / f"{name}.clock")
        python = [sys.executable, "-B"] if program == "cbf-control" else []
        folder = "share/cbf/control" if python else "bin"
        state = f"/var/lib/cbf/{name}"
        self.processes[unit] = Process(
            self.out, name, ["sh", "-c", 'mkdir -p "$STATE_DIRECTORY" && exec "$@"', "sh", *python,
                             self.out / "prefix" / folder / program, f"/etc/cbf/{name}.yaml"],
            self.hosts[host], clock.environment() | {"STATE_DIRECTORY": state}, UNIT_S)

    def stop(self, unit, number=signal.SIGTERM):
        """Ends the program of a unit.  Returns its exit code."""
        return self.processes.pop(unit).end(number) if unit in self.processes else 0


def install(out):
    """Makes the directory with the programs, and the stand-ins."""
    shutil.rmtree(out / "prefix", ignore_errors=True)
    for folder in ("prefix/bin", "prefix/share/cbf", "bin", "home"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for program in ("fgpu", "xbgpu", "visrec", "beamrec"):
        (out / "prefix/bin" / program).symlink_to(BUILD / program)
    (out / "prefix/share/cbf/control").symlink_to(ROOT / "control")
    for name, text in (("ssh", SSH), ("systemctl", SYSTEMCTL), ("sysctl", SYSCTL)):
        (out / "bin" / name).write_text(text)
        (out / "bin" / name).chmod(0o755)


def play(out, hosts, addresses, *options, forks=2):
    """Runs the playbook in out/made.  'addresses': {name of a host: its address}"""
    install(out)
    shutil.rmtree(out / "hosts", ignore_errors=True)
    (out / "hosts").mkdir()
    for name, address in addresses.items():
        (out / "hosts" / address).write_text(f"{name} {hosts[name].holder.pid}\n")
    environment = os.environ | {
        "PATH": f"{out / 'bin'}:{os.environ['PATH']}", "CBF_TEST": str(out), "HOME": str(out / "home"),
        "ANSIBLE_FORKS": str(forks), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_ARGS": "-C",
        "ANSIBLE_SSH_TRANSFER_METHOD": "piped"}
    made = out / "made"
    command = ["ansible-playbook", "-i", made / "inventory.yaml", made / "playbook.yaml", "--skip-tags", "install",
               "-e", "ansible_become=false", "-e", f"cbf_prefix={out / 'prefix'}", *options]
    log = out / "ansible.log"
    with log.open("w") as text:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=text, stderr=subprocess.STDOUT, env=environment,
                              preexec_fn=die_with_parent, check=False)
    if done.returncode:
        raise Wrong(f"the playbook ended with code {done.returncode} (see {log}):\n{log.read_text()[-3000:]}")
    say(f"the playbook has run {' '.join(options) or f'on {len(addresses)} hosts'}")
