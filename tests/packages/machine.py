"""A small Debian that a real systemd has booted, with our packages installed: systemd-nspawn on a directory.

The machine shares the test's network, which has only a loopback interface.  So the test's receivers get its engines'
packets.
"""
import os
import subprocess
import time
from pathlib import Path

import yaml


class Machine:
    def __init__(self, root):
        self.root = Path(root)
        self.log = self.root.parent / "console.log"
        self.process = None
        self.leader = None

    def boot(self):
        """Returns when systemd has nothing left to start.  Raises RuntimeError if there can be no such machine."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "-D", str(self.root), "-b", "--register=no", "--keep-unit", "--machine=cbf", "-q",
                 "--system-call-filter=adjtimex clock_adjtime"],  # asking for the clock's state
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for child in children:
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    self.leader = int(child)
                    state = self.run("systemctl is-system-running", check=False).stdout.strip()
                    if state in ("running", "degraded"):
                        return self
            time.sleep(0.05)
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
        self.halt()
        raise RuntimeError(f"systemd does not boot in a container here: {tail}")

    def halt(self):
        if self.process and self.process.poll() is None:
            if self.leader:
                self.run("systemctl poweroff --force", check=False)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.leader = None

    def run(self, command, check=True, timeout=100):
        """Runs a shell command in there."""
        done = subprocess.run(["nsenter", "-t", str(self.leader), "-a", "--", "sh", "-c", command], text=True,
                              capture_output=True, timeout=timeout,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    # ---- Files and units ---------------------------------------------------------------------------------------------

    def path(self, inside):
        return self.root / inside.lstrip("/")

    def configure(self, name, config):
        """/etc/cbf/NAME.yaml."""
        self.path(f"/etc/cbf/{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False, width=1000))

    def drop_in(self, unit, text):
        """Sets overrides of a unit, or removes them if there is no text."""
        directory = self.path(f"/run/systemd/system/{unit}.d")
        inside = f"/run/systemd/system/{unit}.d"
        self.run(f"mkdir -p {inside}; cat > {inside}/test.conf <<'END'\n{text}\nEND\nsystemctl daemon-reload")
        return directory

    def show(self, unit, *properties):
        """The values of a unit's properties."""
        lines = self.run(f"systemctl show {unit} -p {','.join(properties)}").stdout.splitlines()
        values = dict(line.split("=", 1) for line in lines)
        found = [values[name] for name in properties]
        return found[0] if len(found) == 1 else found

    def wait_show(self, unit, condition, *properties, timeout=30):
        deadline = time.monotonic() + timeout
        while True:
            values = self.show(unit, *properties)
            if condition(values):
                return values
            assert time.monotonic() < deadline, f"{unit}: {properties} are {values}\n{self.journal(unit)}"
            time.sleep(0.02)

    def journal(self, unit, since=0):
        """The messages about a unit, systemd's own included, from a UNIX time on."""
        return self.run(f"journalctl -q --no-pager -o cat -u {unit} --since=@{since:.6f}").stdout

    def wait_journal(self, unit, since, text, timeout=30):
        deadline = time.monotonic() + timeout
        while text not in self.journal(unit, since):
            assert time.monotonic() < deadline, f"{unit}: no \"{text}\"\n{self.journal(unit, since)}"
            time.sleep(0.05)

    def pid(self, unit):
        """The PID of a unit's main process outside the container."""
        inside = self.show(unit, "MainPID")
        assert inside != "0", f"{unit} does not run\n{self.journal(unit)}"
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
            except OSError:
                continue
            ids = next((line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")), [])
            if len(ids) == 2 and ids[1] == inside and self.is_ours(ids[0]):
                return int(ids[0])
        raise AssertionError(f"no process {inside} of {unit}")

    def is_ours(self, pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self.leader}/ns/pid")
        except OSError:
            return False
