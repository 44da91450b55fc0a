"""Manifests of Kubernetes for a plan: a Deployment, a ConfigMap and a Service for each program (docs/kubernetes.md).

The cluster chooses the node of an engine.  So engines listen on all addresses, other programs find them by the names of
their Services, and the device plugin chooses the GPU.
"""
import hashlib
import re

import yaml

import array_kubernetes_alerts
import array_kubernetes_pod
from array_engines import MARKER
from array_kubernetes_pod import ARRAY, ENGINE, HOST, LABEL


def namespace(plan):
    return f"cbf-{re.sub('[^a-z0-9]+', '-', plan.array['name'].lower()).strip('-')}"[:63].rstrip("-")


def name_services(plan, faults):
    """Gives each program its name in the cluster.  Reports names that Kubernetes does not accept as labels."""
    array = plan.array
    for item in [array] + array["hosts"]:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", item["name"]):
            faults.add(item.mark_at("name"), f"{item['name']} cannot be a label of Kubernetes: use at most 63 letters, "
                                             f"digits, '.', '_' and '-', with a letter or digit at both ends")
    for program in plan.engines + plan.recorders:
        program.service = f"{program.name}.{namespace(plan)}.svc"


# ---- Manifests -------------------------------------------------------------------------------------------------------


def manifests(plan, program, text, tag, programs):
    """Returns the ConfigMap, the Service and the Deployment of a program with the configuration 'text'."""
    labels = {ARRAY: plan.array["name"], HOST: program.host["name"], ENGINE: program.name}
    about = {"name": program.name, "namespace": namespace(plan), "labels": labels}
    pod = array_kubernetes_pod.pod(plan, program, text, tag, programs, priority=namespace(plan))
    # A new configuration changes this annotation.  Kubernetes then starts the program again.
    changes = {f"{LABEL}/configuration": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {f"{program.name}.yaml": text}},
        {"apiVersion": "v1", "kind": "Service", "metadata": about,
         "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {ENGINE: program.name},
                  "ports": [{"name": name, "port": port} for name, port in array_kubernetes_pod.ports(text).items()]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about,
         "spec": {"replicas": 1, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 3,
                  "selector": {"matchLabels": {ENGINE: program.name}},
                  "template": {"metadata": {"labels": labels, "annotations": changes}, "spec": pod}}},
    ]


def common(plan):
    """Returns the array's namespace, and the PriorityClass of its pods."""
    name = namespace(plan)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
            ARRAY: plan.array["name"], "pod-security.kubernetes.io/enforce": "privileged"}}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
         "value": 1000000, "globalDefault": False, "description": f"Programs of the array {plan.array['name']}."},
    ]


class Dumper(yaml.SafeDumper):
    """A YAML dumper that writes texts of several lines as blocks, and writes no anchors."""

    def ignore_aliases(self, data):
        return True


Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(
    "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


def dump(documents, what):
    text = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=1000, explicit_start=True)
    return f"{MARKER}: {what}\n{text}"


def node_labels(plan):
    """Returns a script that labels the nodes of the plan.  A spare node gets only the first label, by hand."""
    lines = ["#!/bin/sh -e", f"{MARKER}: labels the nodes of {plan.array['name']}.  For a spare node, run:",
             f"#   kubectl label node NODE {ARRAY}={plan.array['name']}"]
    lines += [f"kubectl label --overwrite node {host['name']} {ARRAY}={plan.array['name']} {HOST}={host['name']}"
              for host in plan.array["hosts"]]
    return "\n".join(lines) + "\n"


def convert(plan, files, tag, programs, output):
    """Replaces Ansible's files in 'files', {name: text}, by manifests of Kubernetes.  Returns the command that labels
    the nodes and applies the manifests."""
    for name in ("inventory.yaml", "playbook.yaml"):
        del files[name]
    array = plan.array["name"]
    for program in plan.engines + plan.recorders + ([plan.controller] if plan.controller else []):
        documents = manifests(plan, program, files[f"services/{program.name}.yaml"], tag, programs)
        files[f"kubernetes/{program.name}.yaml"] = dump(documents, f"{program.kind} {program.name} of {array}.")
    files["kubernetes/0-namespace.yaml"] = dump(common(plan), f"the namespace of {array}.")
    files["kubernetes/label-nodes.sh"] = node_labels(plan)
    files |= array_kubernetes_alerts.convert(plan, files, namespace(plan))
    return f"sh {output}/kubernetes/label-nodes.sh && kubectl apply -f {output}/kubernetes"
