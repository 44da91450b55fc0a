"""Functions for the modes of scripts/bench/realtime and for pacing: the host's limits and CPUs, the programs with
their metrics and threads, and the search for the highest clean rate."""
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request

import yaml

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
STEP = 1.4
# Metrics of the engines that must not grow in a clean run.
F_LOSSES = re.compile(r"fgpu_(input_(missing_heaps|incomplete_heaps|rejected_packets|too_old_heaps|bad_timestamp_heaps|"
                      r"malformed_packets|jumps|kernel_drops)|unmatched_chunks|late_chunks|"
                      r"output_(failed_packets|skipped_heaps|dropped_heaps))")
X_LOSSES = re.compile(r"xbgpu_(input_(missing_heaps|incomplete_heaps|rejected_packets|malformed_packets|jumps|"
                      r"kernel_drops)|late_chunks|output_x_(failed_packets|dropped|skipped|incomplete|absent)|"
                      r"(beam|detected)_(dropped|skipped)_heaps)")
LIMITS = {"net.core.rmem_max": 1 << 30, "net.core.wmem_max": 1 << 30, "net.core.netdev_max_backlog": 100000,
          "net.core.optmem_max": 1 << 20}


# ---- The host --------------------------------------------------------------------------------------------------------

def place_in_core(cpu):
    """Returns the number of the CPU within its core: 0 for the core's first hardware thread, 1 for the next."""
    try:
        siblings = open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read()
    except OSError:
        return 0
    return sum(int(other) < cpu for other in re.findall(r"\d+", siblings))


class Pins:
    """Assigns the CPUs.  Each thread that is always busy gets a CPU, on a separate core if there are enough cores.  The
    engine gets all other CPUs except the first, which serves the system.  With too few CPUs no thread is pinned."""

    def __init__(self, threads, apart, wanted, spare=3):
        """'threads': {name: number of threads}.  Threads with names in 'apart' do not belong to the engine.  At least
        'spare' CPUs are assigned to no thread.  The first CPU is always one of these spare CPUs."""
        cpus = sorted(os.sched_getaffinity(0), key=lambda cpu: (place_in_core(cpu), cpu))
        self.all = set(cpus)
        names = [f"{name}{i}" for name, n in threads.items() for i in range(n)]
        self.used = wanted and len(cpus) >= len(names) + spare
        self.cpus = dict(zip(names, cpus[1:])) if self.used else {}
        self.engine = self.but(*apart)

    def but(self, *prefixes):
        """Returns the CPUs for a program: all except the CPUs of threads with these names.  None means all CPUs."""
        kept = {cpu for prefix in prefixes for cpu in self.of(prefix)}
        return self.all - kept - {min(self.all)} if self.used else None

    def step_aside(self):
        """Moves this process to CPUs that are assigned to no thread.  Programs that it starts later without a list of
        CPUs run on these CPUs, too."""
        if self.used:
            os.sched_setaffinity(0, self.all - set(self.cpus.values()))

    def of(self, prefix):
        return [cpu for name, cpu in self.cpus.items() if name.rstrip("0123456789") == prefix]

    def describe(self):
        where = f"threads on CPUs {self.cpus}" if self.used else "nothing pinned"
        return f"{len(self.all)} CPUs, {where}; load average {os.getloadavg()[0]:.1f}"


def thread_times(pid):
    """Returns {thread id: (name, seconds in user mode, seconds in the kernel, seconds of waiting for a CPU)}."""
    tick = os.sysconf("SC_CLK_TCK")
    times = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            stat = open(f"/proc/{pid}/task/{tid}/stat").read()
            on_cpu, waited, _ = open(f"/proc/{pid}/task/{tid}/schedstat").read().split()
        except (OSError, ValueError):
            continue
        name = stat[stat.index("(") + 1:stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2:].split()
        user, kernel = int(fields[11]) / tick, int(fields[12]) / tick
        total = int(on_cpu) / 1e9  # schedstat is more precise than ticks; ticks give the ratio of user to kernel time
        share = user / (user + kernel) if user + kernel else 0.0
        times[tid] = (name, total * share, total * (1 - share), int(waited) / 1e9)
    return times


def steal_time():
    fields = open("/proc/stat").readline().split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


# ---- The programs ----------------------------------------------------------------------------------------------------

class Program:
    """A process of one of this project's programs.  Starts it, waits until it is ready, and ends it."""

    def __init__(self, name, command, directory, cpus=None):
        self.name = name
        self.log = open(os.path.join(directory, f"{name}.log"), "w+")
        self.ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(directory, f"{name}.ready")
        self.ready.bind(path)
        self.ready.settimeout(0.1)
        began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, "NOTIFY_SOCKET": path},
            preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
        try:
            self.wait_ready(began + START_TIMEOUT_S)
        except RuntimeError:
            self.process.kill()
            self.process.wait()
            raise
        self.start_s = time.monotonic() - began

    def wait_ready(self, deadline):
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.tail()}")
            if "READY\n" in self.text(6):  # bench/count_heaps prints READY
                return
            try:
                if b"READY=1" in self.ready.recv(4096):
                    return
            except socket.timeout:
                pass
        raise RuntimeError(f"{self.name} was not ready within {START_TIMEOUT_S} s: {self.tail()}")

    def text(self, n=None):
        with open(self.log.name) as log:
            return log.read(n)

    def tail(self):
        return self.text()[-800:].strip()

    def stop(self):
        """Ends the program.  Returns its output."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.ready.close()
        self.log.close()
        return self.text()


def metrics(port):
    values = {}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        for line in page.read().decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
    return values


def free_port():
    """Returns a free TCP port below the range from which the kernel takes ports of outgoing connections."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(10000, 32000)))
            except OSError:
                continue
            return probe.getsockname()[1]


def power_of_two(at_least):
    return 1 << max(0, int(at_least) - 1).bit_length()


def write_config(directory, name, config):
    path = os.path.join(directory, f"{name}.yaml")
    with open(path, "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    return path


def keep_logs(directory, prefix, said):
    if not directory:
        return
    os.makedirs(directory, exist_ok=True)
    for name, text in said.items():
        with open(os.path.join(directory, f"{prefix}-{name}.log"), "w") as file:
            file.write(text)


def grown(before, after, losses):
    """Returns [(name, growth)] of all counters whose names match 'losses' and which have grown."""
    return [(name, value - before.get(name, 0)) for name, value in after.items()
            if losses.match(name) and value > before.get(name, 0)]


# ---- Threads and results ---------------------------------------------------------------------------------------------

def thread_table(before, after, order):
    """Returns the rows of all threads that used more than 0.5 % of a CPU.  'order' is the order of the programs.
    Times are shares of a CPU.  'before' and 'after' have a 'time', and 'threads': {program: thread_times()}."""
    seconds, rows = after.time - before.time, []
    for program, threads in after.threads.items():
        for tid, (name, user, kernel, waited) in threads.items():
            _, user0, kernel0, waited0 = before.threads[program].get(tid, (name, 0.0, 0.0, 0.0))
            row = {"program": program, "thread": name, "user": (user - user0) / seconds,
                   "kernel": (kernel - kernel0) / seconds, "waited": (waited - waited0) / seconds}
            if row["user"] + row["kernel"] > 0.005:
                rows.append(row)
    return sorted(rows, key=lambda row: (order.index(row["program"]), row["thread"]))


def cores_used(result):
    """Returns {program: CPU time of all its threads, as a number of CPUs}.  'all' is the sum over all programs."""
    cores = {}
    for row in result.get("threads", []):
        cores[row["program"]] = cores.get(row["program"], 0.0) + row["user"] + row["kernel"]
    return cores | {"all": sum(cores.values())}


def busiest(result):
    rows = result.get("threads", [])
    return max(rows, key=lambda row: row["user"] + row["kernel"] + row["waited"], default=None)


def print_thread_table(result):
    print(f"{'program':8} {'thread':16} {'user %':>7} {'kernel %':>9} {'CPU %':>7} {'waiting for a CPU %':>20}")
    for row in result["threads"]:
        print(f"{row['program']:8} {row['thread']:16} {100 * row['user']:7.1f} {100 * row['kernel']:9.1f} "
              f"{100 * (row['user'] + row['kernel']):7.1f} {100 * row['waited']:20.1f}")
    print("cores used: " + ", ".join(f"{name} {cores:.2f}" for name, cores in cores_used(result).items()), flush=True)


# ---- The search ------------------------------------------------------------------------------------------------------

def find_highest(args, run, results):
    """Returns the highest rate that is clean in short runs, or 0.  run(rate, seconds) prints and returns a result."""
    def is_clean(rate):
        result = run(rate, args.step_seconds)
        if not result["clean"] and rate <= args.goal:  # try again: the host may have been busy
            result = run(rate, args.step_seconds)
        results.append(result)
        return result["clean"]

    def in_time():
        return time.monotonic() < args.deadline - confirmation_seconds(args)

    clean, lost, rate = 0.0, None, float(args.start)
    while in_time() and clean < args.to and (lost is None or not clean) and rate > args.start / 10:
        if is_clean(rate):
            clean = rate
            rate = min(args.to, rate * STEP)
        else:
            lost = rate
            rate /= STEP
    while in_time() and clean and lost and lost - clean > args.resolution * clean:
        rate = (clean + lost) / 2
        if is_clean(rate):
            clean = rate
        else:
            lost = rate
    return clean


def run_or_search(args, run, print_threads, results, unit):
    """Makes one run at args.rate, or searches for the highest clean rate.  Returns true if a rate was clean."""
    if args.rate:
        results.append(run(args.rate, args.seconds))
        print_threads(results[-1])
        return results[-1]["clean"]
    if args.budget <= confirmation_seconds(args):
        sys.exit(f"--budget must be more than {confirmation_seconds(args):g} s, the longest time that the "
                 "confirmations can take (--confirm, --confirm-tries); use --rate for a single run")
    highest = search(args, run, print_threads, results)
    print(f"\nclean to {highest:.4g} {unit}\n" if highest else f"\nno clean rate was found: {unit}\n", flush=True)
    return highest > 0


def keep_results(args, pins, results):
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"pins": pins.cpus, "options": vars(args), "runs": results}, file, indent=1, default=str)


def confirmation_seconds(args):
    """Returns the longest time in s that all confirmations can take, including the time before and after each run."""
    return args.confirm_tries * (args.confirm + 20)


def search(args, run, print_threads, results):
    """Returns the highest rate that is clean for args.confirm seconds; 0 if no tried rate is clean.  The last tried
    rate is at most the goal."""
    args.deadline = time.monotonic() + args.budget
    rate = find_highest(args, run, results)
    for i in range(args.confirm_tries if rate else 0):
        if i > 0:
            rate *= 1 - 2 * args.resolution
        if i > 0 and i == args.confirm_tries - 1:
            rate = min(rate, args.goal)
        result = run(rate, args.confirm)
        result["confirmation"] = True
        print_threads(result)
        results.append(result)
        if result["clean"]:
            return rate
    return 0.0


def add_search_options(parser, start, to, goal, unit):
    parser.add_argument("--build", default=os.environ.get("BUILD", "build"))
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--device-threads", type=int, default=1, help="threads of the cpu device")
    parser.add_argument("--rate", type=float, help=f"{unit}: makes one run at this rate, without a search")
    parser.add_argument("--seconds", type=float, default=60, help="duration of this run")
    parser.add_argument("--from", dest="start", type=float, default=start, help=unit)
    parser.add_argument("--to", type=float, default=to, help=unit)
    parser.add_argument("--goal", type=float, default=goal,
                        help=f"{unit}: rates up to this goal get a second try; the last confirmation is at most the goal")
    parser.add_argument("--resolution", type=float, default=0.04)
    parser.add_argument("--step-seconds", type=float, default=3)
    parser.add_argument("--confirm", type=float, default=60, help="seconds")
    parser.add_argument("--confirm-tries", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds")
    parser.add_argument("--recv-buffer", type=int, default=256 << 20, help="bytes of a receive thread's socket buffer")
    parser.add_argument("--budget", type=float, default=1e9, help="longest time of a search, in seconds")
    parser.add_argument("--direct", action="store_true", help="recv.direct: packets are copied straight to the GPU")
    parser.add_argument("--no-pin", dest="pin", action="store_false")
    parser.add_argument("--logs", help="directory for the programs' logs")
    parser.add_argument("--json", help="file for all results")
