"""Alerts for an array in Kubernetes.  Prometheus gets the metrics that begin with kube_ from kube-state-metrics."""
import yaml

import array_monitor
from array_monitor import Rule

EXIT_CONFIG = 78  # the programs' exit code for a faulty configuration
WHO = "{{ $labels.container }}"
POD = "{{ $labels.pod }}"
BY_CONTAINER = "max by (namespace, pod, container)"


def container(metric, namespace):
    return f'{BY_CONTAINER} ({metric}{{namespace="{namespace}"}})'


def kubernetes_rules(namespace):
    """A Deployment always starts a program again, also after exit code 78.  So an alert must name the faulty file."""
    here = f'{{namespace="{namespace}"}}'
    ready = container("kube_pod_container_status_ready", namespace)
    ended = container("kube_pod_container_status_last_terminated_exitcode", namespace)
    pending = f'kube_pod_status_phase{{namespace="{namespace}", phase="Pending"}}'
    lost = 'max by (node) (kube_node_status_condition{condition="Ready", status="true"}) == 0'
    return [
        Rule("ConfigurationRefused", f"{ended} == {EXIT_CONFIG} and {ready} == 0", "0s", "critical",
             f"{WHO} refuses its configuration (exit code {EXIT_CONFIG})",
             "its file, or an interface, address or CPU that this node does not have; a restart does not help",
             f"logs --previous {POD}"),
        Rule("RestartsOften", f"increase(kube_pod_container_status_restarts_total{here}[5m]) > 2", "0s", "critical",
             f"{WHO} has started {{{{ $value | humanize }}}} times in 5 minutes",
             "a fault that the program meets at each start: its log names the fault; Kubernetes waits up to 5 minutes "
             "between two starts", f"logs --previous {POD}"),
        Rule("NoNode", f"max by (namespace, pod) ({pending}) == 1", "30s", "critical", f"no node runs {POD}",
             "too few nodes have the label, or they lack GPUs, memory, CPUs or the image", f"describe pod {POD}"),
        Rule("NodeLost", f"{lost} and on (node) max by (node) (kube_pod_info{here})", "0s", "critical",
             "node {{ $labels.node }} does not answer, and has programs of this array",
             "the node, its power or its network; engines move to a spare node 5 s after the cluster has noticed",
             "get pods -o wide"),
    ]


def rules(plan, namespace):
    """Returns Prometheus' rules file."""
    alerts = []
    for rule in kubernetes_rules(namespace):
        made = array_monitor.alert(plan, "Kubernetes", rule)
        made["annotations"]["command"] = f"kubectl -n {namespace} {rule.command}"
        alerts.append(made)
    group = {"name": f"cbf {plan.array['name']} kubernetes", "interval": f"{array_monitor.SCRAPE_S}s", "rules": alerts}
    return array_monitor.dump({"groups": [group]}, f"what is wrong with the pods of {plan.array['name']}.")


def command(text, namespace):
    """Translates a command for a host.  Returns the corresponding command for a pod.  'text': the command for a host
    ("ssh HOST COMMAND")."""
    engine, kubectl = "{{ $labels.engine }}", f"kubectl -n {namespace}"
    words = text.split()[2:]
    if words[0] == "journalctl":
        return f"{kubectl} logs deploy/{engine} --tail 50"
    if words[:2] == ["systemctl", "status"]:
        return f"{kubectl} describe pod -l cbf/engine={engine}"
    if words[:2] == ["systemctl", "restart"]:
        return f"{kubectl} rollout restart deploy/{engine}"
    if words[0] == "cbf-doctor":
        return f"{kubectl} exec deploy/{engine} -- {' '.join(words)}"
    return f"{kubectl} get pod -l cbf/engine={engine} -o wide   # on that node: {' '.join(words)}"


def with_commands(text, namespace):
    """Replaces the commands for hosts in the alert rules 'text' by commands for pods.  Returns the new text."""
    marker, _, rest = text.partition("\n")
    loaded = yaml.safe_load(rest)
    for group in loaded["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["annotations"]["command"] = command(rule["annotations"]["command"], namespace)
    return f"{marker}\n" + yaml.safe_dump(loaded, sort_keys=False, width=120)


def convert(plan, files, namespace):
    """Returns Prometheus's files for a cluster, {name: text}.  'files' has the files for hosts, {name: text}."""
    return {
        "prometheus/kubernetes.yaml": rules(plan, namespace),
        "prometheus/rules.yaml": with_commands(files["prometheus/rules.yaml"], namespace),
        "prometheus/prometheus.yaml": files["prometheus/prometheus.yaml"].replace("- rules.yaml",
                                                                                  "- rules.yaml\n- kubernetes.yaml"),
    }
