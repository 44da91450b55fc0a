"""The pod of a program in Kubernetes: the nodes on which it may run, its container, and settings as in a systemd
unit."""
import math
import re
import subprocess
import tempfile
from pathlib import Path

import yaml

LABEL = "cbf"  # prefix of the labels
ARRAY, HOST, ENGINE = f"{LABEL}/engines", f"{LABEL}/host", f"{LABEL}/engine"
IMAGES = {"cbf-control": "localhost/gpucbf-control"}
IMAGE = "localhost/gpucbf"
COMMANDS = {"cbf-control": ["/var/lib/cbf-control/venv/bin/python", "-B", "/usr/share/cbf/control/cbf-control"]}
STATE, CACHE = "/var/lib/cbf", "/var/cache/cbf"
DRAIN_S = 90  # TimeoutStopSec= of the units
START_S = 300  # TimeoutStartSec= of the units
WATCHDOG_S = 10  # WatchdogSec= of the units
LOST_S = 5  # time in s from the loss of a node to the removal of the node's programs
# Resources that the cluster reserves for programs without a row in the plan's table of loads: {program: (CPUs, bytes of
# memory)}.
REQUESTS = {"visrec": (2, 2 << 30), "beamrec": (2, 2 << 30), "cbf-control": (1, 1 << 30)}
RDMA = "rdma/cbf"  # resource of the RDMA device plugin: the devices of a NIC in /dev/infiniband
MIB = 1 << 20


# ---- Places ----------------------------------------------------------------------------------------------------------


def match(key, operator, *values):
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def affinity(plan, program, pinned):
    """Returns rules for the scheduler.

    An engine runs on a node of the array.  The scheduler prefers the host that the plan gives to the engine.  A node
    runs only programs of one host of the plan, and no program twice.  So a spare node can take all engines of one lost
    host, and the engines' ports are free on the spare node.  'pinned': the program runs only on the plan's host.
    """
    host = program.host["name"]
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
        match(ARRAY, "In", plan.array["name"]), *([match(HOST, "In", host)] if pinned else [])]}]}}
    if not pinned:
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 100, "preference": {"matchExpressions": [match(HOST, "In", host)]}}]

    def pods(*expressions):
        return {"labelSelector": {"matchExpressions": list(expressions)}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "nodeAffinity": node,
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "podAffinityTerm": pods(match(HOST, "In", host))}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            pods(match(HOST, "Exists"), match(HOST, "NotIn", host)), pods(match(ENGINE, "In", program.name))]}}


def tolerations(pinned):
    """A pinned program waits for its node, because no other node has its disk."""
    return [{"key": f"node.kubernetes.io/{fault}", "operator": "Exists", "effect": "NoExecute"}
            | ({} if pinned else {"tolerationSeconds": LOST_S}) for fault in ("unreachable", "not-ready")]


# ---- The container ---------------------------------------------------------------------------------------------------


def memory_limit(name, text, programs):
    """Returns the memory in bytes that MemoryMax= of a systemd unit would allow."""
    with tempfile.TemporaryDirectory(prefix="cbf-array-") as work:
        path = Path(work) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([Path(programs) / "cbf-doctor", "--memory-max", path], capture_output=True, text=True,
                              check=True)
    return int(re.search(r"^MemoryMax=(\d+)$", done.stdout, re.M)[1])


def mebibytes(n_bytes):
    return f"{math.ceil(n_bytes / MIB)}Mi"


def uses_verbs(plan, program):
    return program.kind in ("fgpu", "xbgpu") and any(
        plan.array[program.kind][flow]["transport"] == "ibverbs" for flow in ("recv", "send"))


def resources(plan, program, text, programs):
    """CPU time is requested but not limited, because a limit would stop threads that handle packets."""
    if program.kind in REQUESTS:
        cpus, n_bytes = REQUESTS[program.kind]
        return {"requests": {"cpu": str(cpus), "memory": mebibytes(n_bytes)}}
    limits = {"memory": mebibytes(memory_limit(program.name, text, programs))}
    if not program.on_cpu:
        limits["nvidia.com/gpu"] = "1"
    if uses_verbs(plan, program):
        limits[RDMA] = "1"
    return {"requests": {"cpu": str(program.threads), "memory": mebibytes(program.memory_bytes)}, "limits": limits}


def security(plan, program):
    """Returns the security context of a container.  With SYS_NICE, the filter of system calls permits mbind().
    IPC_LOCK replaces LimitMEMLOCK= of units.  NET_RAW permits raw packet queues.  The process is root, because a
    process of another user would not get these capabilities."""
    engine = program.kind in ("fgpu", "xbgpu")
    capabilities = (["SYS_NICE", "IPC_LOCK"] if engine else []) + (["NET_RAW"] if uses_verbs(plan, program) else [])
    return {"runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"]} | ({"add": capabilities} if capabilities else {})}


def probes(listen):
    """Returns the probes.  'listen': address and port of the HTTP server.

    /healthz fails while a recorder loses data, and after a wrong result.  In these cases a restart would only lose more
    data.  So the liveness probe does not use /healthz.  Kubernetes ends a running program only if the program's HTTP
    server does not answer.
    """
    address, _, port = listen.rpartition(":")
    where = {"port": int(port)} | ({} if address == "0.0.0.0" else {"host": address})  # default: the node's address

    def get(path, **times):
        return {"httpGet": {"path": path} | where} | times
    return {"startupProbe": get("/healthz", periodSeconds=1, timeoutSeconds=1, failureThreshold=START_S),
            "readinessProbe": get("/healthz", periodSeconds=5, timeoutSeconds=2, failureThreshold=2),
            "livenessProbe": get("/metrics", periodSeconds=5, timeoutSeconds=5, failureThreshold=3)}


def directories(plan, program):
    """Returns [(name, path on the node, path in the container)] of the directories to which the program may write.

    These are directories of the node and not an emptyDir, because programs accept stored settings and kernels only from
    directories to which nobody else can write.
    """
    own = f"{STATE}/{plan.array['name']}/{program.name}"
    if program.kind in ("visrec", "beamrec"):
        return [("recordings", program.directory, program.directory)]
    state = [("state", own, f"{STATE}/{program.name}")]
    return state + ([("cache", CACHE, CACHE)] if program.kind != "cbf-control" and not program.on_cpu else [])


def ports(text):
    """Returns {name: TCP port} of the servers in a configuration."""
    config = yaml.safe_load(text)
    return {key: int(config[key]["listen"].rpartition(":")[2]) for key in ("http", "katcp") if key in config}


def container(plan, program, text, tag, programs):
    """Returns the container.  It has no list of ports, because 'podman kube play' refuses such a list on the host's
    network.  The anti-affinity already prevents equal ports on a node."""
    places = directories(plan, program)
    variables = {"state": "STATE_DIRECTORY", "cache": "CACHE_DIRECTORY"}
    environment = {variables[name]: inside for name, _, inside in places if name in variables}
    environment["WATCHDOG_USEC"] = str(WATCHDOG_S * 1000000)
    mounts = [{"name": name, "mountPath": inside} for name, _, inside in places]
    return {
        "name": program.name,
        "image": f"{IMAGES.get(program.kind, IMAGE)}:{tag}",
        "imagePullPolicy": "IfNotPresent",
        "command": [*COMMANDS.get(program.kind, [f"/usr/bin/{program.kind}"]), f"/etc/cbf/{program.name}.yaml"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": resources(plan, program, text, programs),
        "securityContext": security(plan, program),
        **probes(yaml.safe_load(text)["http"]["listen"]),
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/cbf", "readOnly": True}] + mounts,
    }


def pod(plan, program, text, tag, programs, priority):
    """Returns the specification of a pod.  'text': the program's configuration.  'priority': a PriorityClass."""
    pinned = program.kind not in ("fgpu", "xbgpu")
    return {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": DRAIN_S,
        "affinity": affinity(plan, program, pinned),
        "tolerations": tolerations(pinned),
        "containers": [container(plan, program, text, tag, programs)],
        "volumes": [{"name": "configuration", "configMap": {"name": program.name}}]
        + [{"name": name, "hostPath": {"path": outside, "type": "DirectoryOrCreate"}}
           for name, outside, _ in directories(plan, program)],
    }
