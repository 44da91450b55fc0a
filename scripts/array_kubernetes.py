"""Manifests of Kubernetes for a plan: a Deployment, a ConfigMap and a Service for each program (docs/kubernetes.md).

The cluster chooses the node of an engine.  So engines listen on all addresses, other programs find them by the names of
their Services, and the device plugin chooses the GPU.
"""
import hashlib
import math
import re
import subprocess
import tempfile
from pathlib import Path

import yaml

import array_kubernetes_alerts
from array_engines import MARKER

LABEL = "cbf"  # prefix of the labels
ARRAY, HOST, ENGINE = f"{LABEL}/engines", f"{LABEL}/host", f"{LABEL}/engine"
IMAGES = {"cbf-control": "localhost/gpucbf-control"}
IMAGE = "localhost/gpucbf"
STATE, CACHE = "/var/lib/cbf", "/var/cache/cbf"
DRAIN_S = 90  # TimeoutStopSec= of the units
START_S = 300  # TimeoutStartSec= of the units
WATCHDOG_S = 10  # WatchdogSec= of the units
LOST_S = 5  # time in s that a program stays on a node which the cluster has lost
RECORDER_CPUS, RECORDER_BYTES = 2, 2 << 30
CONTROL_CPUS, CONTROL_BYTES = 1, 1 << 30
RDMA = "rdma/cbf"  # resource of the RDMA device plugin: the devices of a NIC in /dev/infiniband
MIB = 1 << 20


def namespace(plan):
    return f"cbf-{re.sub('[^a-z0-9]+', '-', plan.array['name'].lower()).strip('-')}"[:63].rstrip("-")


def name_services(plan, faults):
    """Gives each program its name in the cluster.  Reports names that Kubernetes does not accept as labels."""
    array = plan.array
    for item in [array] + array["hosts"]:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", item["name"]):
            faults.add(item.mark_at("name"), f"{item['name']} cannot be a label of Kubernetes: use at most 63 letters, digits, "
                                             f"'.', '_' and '-', with a letter or digit at both ends")
    for program in plan.engines + plan.recorders:
        program.service = f"{program.name}.{namespace(plan)}.svc"


# ---- Places ----------------------------------------------------------------------------------------------------------


def match(key, operator, *values):
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def affinity(plan, program, pinned):
    """An engine runs on a node of the array, if possible on its host of the plan.  No program of another host of the plan
    and no second copy runs on that node.  So a spare node takes the engines of one lost host, and has the ports for them.
    'pinned': the program runs only on its host."""
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
    """Returns the memory in bytes that a unit's MemoryMax= would allow."""
    with tempfile.TemporaryDirectory(prefix="cbf-array-") as work:
        path = Path(work) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([Path(programs) / "cbf-doctor", "--memory-max", path], capture_output=True, text=True, check=True)
    return int(re.search(r"^MemoryMax=(\d+)$", done.stdout, re.M)[1])


def mebibytes(n_bytes):
    return f"{math.ceil(n_bytes / MIB)}Mi"


def uses_verbs(plan, program):
    return program.kind in ("fgpu", "xbgpu") and any(
        plan.array[program.kind][flow]["transport"] == "ibverbs" for flow in ("recv", "send"))


def resources(plan, program, text, programs):
    """CPU time is requested but not limited, because a limit would stop threads that handle packets."""
    if program.kind not in ("fgpu", "xbgpu"):
        cpus, n_bytes = (CONTROL_CPUS, CONTROL_BYTES) if program.kind == "cbf-control" else (RECORDER_CPUS, RECORDER_BYTES)
        return {"requests": {"cpu": str(cpus), "memory": mebibytes(n_bytes)}}
    limits = {"memory": mebibytes(memory_limit(program.name, text, programs))}
    if not program.on_cpu:
        limits["nvidia.com/gpu"] = "1"
    if uses_verbs(plan, program):
        limits[RDMA] = "1"
    return {"requests": {"cpu": str(program.threads), "memory": mebibytes(program.memory_bytes)}, "limits": limits}


def security(plan, program):
    """As the systemd units: SYS_NICE lets the system call filter pass mbind(), IPC_LOCK replaces LimitMEMLOCK=, and NET_RAW
    makes raw packet queues.  The process is root, because a process of another user would not get these capabilities."""
    engine = program.kind in ("fgpu", "xbgpu")
    capabilities = (["SYS_NICE", "IPC_LOCK"] if engine else []) + (["NET_RAW"] if uses_verbs(plan, program) else [])
    return {"runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"]} | ({"add": capabilities} if capabilities else {})}


def probes(port):
    """/healthz fails while a recorder loses data, and after a wrong result.  A restart would only lose more data.  So only
    an HTTP server that does not answer ends a running program."""
    def get(path, **times):
        return {"httpGet": {"path": path, "port": port}} | times
    return {"startupProbe": get("/healthz", periodSeconds=1, timeoutSeconds=1, failureThreshold=START_S),
            "readinessProbe": get("/healthz", periodSeconds=5, timeoutSeconds=2, failureThreshold=2),
            "livenessProbe": get("/metrics", periodSeconds=5, timeoutSeconds=5, failureThreshold=3)}


def directories(plan, program):
    """[(name, path on the node, path in the container)] of the directories that the program may write to."""
    own = f"{STATE}/{plan.array['name']}/{program.name}"
    if program.kind in ("visrec", "beamrec"):
        return [("recordings", program.directory, program.directory)]
    state = [("state", own, f"{STATE}/{program.name}")]
    return state + ([("cache", CACHE, CACHE)] if program.kind != "cbf-control" and not program.on_cpu else [])


def ports(text):
    """{name: TCP port} of the servers in a configuration."""
    config = yaml.safe_load(text)
    return {key: int(config[key]["listen"].rpartition(":")[2]) for key in ("http", "katcp") if key in config}


def container(plan, program, text, tag, programs):
    """The container has no list of ports: 'podman kube play' refuses such a list on the host's network, and the
    anti-affinity already keeps equal ports apart."""
    places = directories(plan, program)
    variables = {"state": "STATE_DIRECTORY", "cache": "CACHE_DIRECTORY"}
    environment = {variables[name]: inside for name, _, inside in places if name in variables}
    environment["WATCHDOG_USEC"] = str(WATCHDOG_S * 1000000)
    mounts = [{"name": name, "mountPath": inside} for name, _, inside in places]
    return {
        "name": program.name,
        "image": f"{IMAGES.get(program.kind, IMAGE)}:{tag}",
        "imagePullPolicy": "IfNotPresent",
        "command": [f"/usr/bin/{program.kind}", f"/etc/cbf/{program.name}.yaml"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": resources(plan, program, text, programs),
        "securityContext": security(plan, program),
        **probes(ports(text)["http"]),
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/cbf", "readOnly": True}] + mounts,
    }


# ---- Manifests -------------------------------------------------------------------------------------------------------


def manifests(plan, program, text, tag, programs):
    """Returns the ConfigMap, the Service and the Deployment of a program with the configuration 'text'."""
    labels = {ARRAY: plan.array["name"], HOST: program.host["name"], ENGINE: program.name}
    about = {"name": program.name, "namespace": namespace(plan), "labels": labels}
    pinned = program.kind not in ("fgpu", "xbgpu")
    pod = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": namespace(plan),
        "terminationGracePeriodSeconds": DRAIN_S,
        "affinity": affinity(plan, program, pinned),
        "tolerations": tolerations(pinned),
        "containers": [container(plan, program, text, tag, programs)],
        "volumes": [{"name": "configuration", "configMap": {"name": program.name}}]
        + [{"name": name, "hostPath": {"path": outside, "type": "DirectoryOrCreate"}}
           for name, outside, _ in directories(plan, program)],
    }
    # A new configuration changes the annotation, and so starts the program again.
    changes = {f"{LABEL}/configuration": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {f"{program.name}.yaml": text}},
        {"apiVersion": "v1", "kind": "Service", "metadata": about,
         "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {ENGINE: program.name},
                  "ports": [{"name": name, "port": port} for name, port in ports(text).items()]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about,
         "spec": {"replicas": 1, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 3,
                  "selector": {"matchLabels": {ENGINE: program.name}},
                  "template": {"metadata": {"labels": labels, "annotations": changes}, "spec": pod}}},
    ]


def common(plan):
    """Returns the array's namespace, and the priority of its pods."""
    name = namespace(plan)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
            ARRAY: plan.array["name"], "pod-security.kubernetes.io/enforce": "privileged"}}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
         "value": 1000000, "globalDefault": False, "description": f"Programs of the array {plan.array['name']}."},
    ]


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and nothing as an anchor."""

    def ignore_aliases(self, data):
        return True


Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(
    "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


def dump(documents, what):
    return f"{MARKER}: {what}\n" + yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=1000, explicit_start=True)


def node_labels(plan):
    """Returns a script that labels the nodes.  Spare nodes get the first label only."""
    lines = ["#!/bin/sh -e", f"{MARKER}: labels the nodes of {plan.array['name']}.  For a spare node, run:",
             f"#   kubectl label node NODE {ARRAY}={plan.array['name']}"]
    lines += [f"kubectl label --overwrite node {host['name']} {ARRAY}={plan.array['name']} {HOST}={host['name']}"
              for host in plan.array["hosts"]]
    return "\n".join(lines) + "\n"


def convert(plan, files, tag, programs, output):
    """Replaces the files of Ansible by manifests in 'files', {name: text}.  Returns the next command."""
    for name in ("inventory.yaml", "playbook.yaml"):
        del files[name]
    every = plan.engines + plan.recorders + ([plan.controller] if getattr(plan, "controller", None) else [])
    for program in every:
        documents = manifests(plan, program, files[f"services/{program.name}.yaml"], tag, programs)
        files[f"kubernetes/{program.name}.yaml"] = dump(documents, f"{program.kind} {program.name} of {plan.array['name']}.")
    files["kubernetes/0-namespace.yaml"] = dump(common(plan), f"the namespace of {plan.array['name']}.")
    files["kubernetes/label-nodes.sh"] = node_labels(plan)
    files["prometheus/rules.yaml"] = array_kubernetes_alerts.with_commands(files["prometheus/rules.yaml"], namespace(plan))
    files["prometheus/kubernetes.yaml"] = array_kubernetes_alerts.rules(plan, namespace(plan))
    files["prometheus/prometheus.yaml"] = array_kubernetes_alerts.with_rules(files["prometheus/prometheus.yaml"])
    return f"sh {output}/kubernetes/label-nodes.sh && kubectl apply -f {output}/kubernetes"
