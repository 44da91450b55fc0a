"""scripts/array --kubernetes: manifests that kubernetes-validate accepts, and their agreement with the plan."""
import functools
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

import harness
import test_array
from test_monitoring import promtool  # noqa: F401

sys.path.insert(0, str(harness.ROOT / "control"))
import control_config  # noqa: E402

VERSIONS = ("1.28", "1.34", "1.37")  # of Kubernetes
ENGINES = ("fgpu", "xbgpu")
TAG = "1.2.3"
# The files of schemas are large, and each call of validate() reads them.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def convert(path, output, tag=TAG):
    """Returns {name of the program: {kind: manifest}} and the texts of all files."""
    done = subprocess.run([sys.executable, test_array.SCRIPT, path, "--programs", harness.BUILD, "--output", output,
                           "--kubernetes", *([tag] if tag else [])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts = {str(file.relative_to(output)): file.read_text() for file in output.rglob("*") if file.is_file()}
    made = {}
    for name, text in texts.items():
        if name.startswith("kubernetes/") and name.endswith(".yaml"):
            made[name.split("/")[1][:-5]] = {document["kind"]: document for document in yaml.safe_load_all(text)}
    return made, texts


def two_hosts(**changes):
    """An array on three hosts.  The first host has GPUs, and the third host records."""
    array = test_array.small(telescope={"latitude": -30, "longitude": 21, "altitude": 0}, **changes)
    for antenna in array["antennas"]:
        antenna["position"] = [0, 0, 0]
    host = array["hosts"][0]
    array["control"] = {"allow": "10.8.0.0/16"}
    array["recorders"] = [{"output": "vis", "host": "store", "directory": "/data"}, {"output": "vis", "host": "store"}]
    on_gpus = [{"kind": "fgpu", "gpu": 0}, {"kind": "xbgpu", "gpu": 1}]
    array["hosts"] = [host | {"name": "h0", "address": "10.8.0.1", "engines": on_gpus},
                      host | {"name": "h1", "address": "10.8.0.2", "engines": [{"kind": "xbgpu", "gpu": "cpu"}]},
                      {key: value for key, value in host.items() if key != "engines"}
                      | {"name": "store", "address": "10.8.0.9"}]
    return array


def pod_of(program):
    return program["Deployment"]["spec"]["template"]["spec"]


def container_of(program):
    (container,) = pod_of(program)["containers"]
    return container


ARRAYS = {
    "example": lambda: yaml.safe_load(test_array.EXAMPLE.read_text()),
    "two hosts": two_hosts,
    "ibverbs": lambda: two_hosts(xbgpu={"device": {"threads": 1}, "recv": {"transport": "ibverbs"}}),
    "satellites": lambda: two_hosts(**test_array.SATELLITES),
}


def programs_of(array):
    """{name: (kind, host, entry of array.yaml)} of all programs, in the order of the file."""
    found, counts = {}, {kind: 0 for kind in ENGINES}
    for host in array["hosts"]:
        for given in host.get("engines", []):
            kind = given["kind"]
            found[f"{kind[0]}{counts[kind]}"] = kind, host["name"], given
            counts[kind] += 1
    for section, kind, letter in (("recorders", "visrec", "r"), ("beam_recorders", "beamrec", "b")):
        for i, given in enumerate(array.get(section, [])):
            found[f"{letter}{i}"] = kind, given["host"], given
    if "controller" in array:
        found["control"] = "cbf-control", array["controller"]["host"], array["controller"]
    return found


@pytest.mark.parametrize("name", ARRAYS)
def test_manifests(name, work):
    """Every manifest is valid.  Each program of the plan has one Deployment, with the text of its own file."""
    array = ARRAYS[name]()
    made, texts = convert(test_array.write(work, array), work / "made")
    programs = programs_of(array)
    namespace = f"cbf-{array['name']}"
    assert set(made) == set(programs) | {"0-namespace"}
    for manifests in made.values():
        for manifest in manifests.values():
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
    assert made["0-namespace"]["Namespace"]["metadata"]["name"] == namespace
    services = {file.split("/")[1][:-5] for file in texts if file.startswith("services/")}
    assert services == set(programs)
    assert "inventory.yaml" not in texts and "playbook.yaml" not in texts
    for program, (kind, host, given) in programs.items():
        manifests = made[program]
        for manifest in manifests.values():
            assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == (program, namespace)
        assert manifests["ConfigMap"]["data"] == {f"{program}.yaml": texts[f"services/{program}.yaml"]}
        check_deployment(manifests["Deployment"], program, host, array)
        if kind == "cbf-control":
            check_controller(manifests, texts, array)
            continue
        check_container(manifests, program, kind, given, array)
        check_service(manifests, texts[f"services/{program}.yaml"])


def check_deployment(deployment, program, host, array):
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    labels = {"cbf/engines": array["name"], "cbf/host": host, "cbf/engine": program}
    assert spec["replicas"] == 1 and spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["metadata"]["labels"] == labels
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert pod["hostNetwork"] and pod["terminationGracePeriodSeconds"] >= 65 and "restartPolicy" not in pod
    assert pod["priorityClassName"] == f"cbf-{array['name']}"
    moves = program[0] in "fx"
    for fault in ("unreachable", "not-ready"):
        (toleration,) = [t for t in pod["tolerations"] if t["key"] == f"node.kubernetes.io/{fault}"]
        assert toleration["effect"] == "NoExecute" and toleration.get("tolerationSeconds") == (5 if moves else None)


def check_container(program, name, kind, given, array):
    """What a program cannot do without: its file, time to start and drain, devices, capabilities, directories."""
    container, pod = container_of(program), pod_of(program)
    assert container["image"] == f"localhost/gpucbf:{TAG}"
    assert container["command"] == [f"/usr/bin/{kind}", f"/etc/cbf/{name}.yaml"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    assert volumes[mounts["/etc/cbf"]]["configMap"] == {"name": name}
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    on_gpu = kind in ENGINES and given.get("gpu") != "cpu"
    if kind in ENGINES:
        assert environment["STATE_DIRECTORY"] in mounts
        state = volumes[mounts[environment["STATE_DIRECTORY"]]]["hostPath"]
        assert state == {"path": f"/var/lib/cbf/{array['name']}/{name}", "type": "DirectoryOrCreate"}
        assert (environment.get("CACHE_DIRECTORY") in mounts) == on_gpu
    else:
        directory = given.get("directory", f"/var/lib/cbf/{name}")
        assert volumes[mounts[directory]]["hostPath"]["path"] == directory
    security = container["securityContext"]
    verbs = kind in ENGINES and "ibverbs" in str(array.get(kind, {}))
    capabilities = {"SYS_NICE", "IPC_LOCK"} if kind in ENGINES else set()
    assert security["capabilities"]["drop"] == ["ALL"] and security["readOnlyRootFilesystem"]
    assert set(security["capabilities"].get("add", [])) == capabilities | ({"NET_RAW"} if verbs else set())
    assert security["runAsUser"] == 0 and not security["allowPrivilegeEscalation"] and "privileged" not in security
    limits = container["resources"].get("limits", {})
    assert limits.get("nvidia.com/gpu") == ("1" if on_gpu else None)
    assert limits.get("rdma/cbf") == ("1" if verbs else None)
    assert "cpu" not in limits and not any(key.startswith("hugepages") for key in limits)


def check_controller(manifests, texts, array):
    """The controller stays on its host, whose address clients know, and keeps the settings there.  It finds the engines by
    the names of their Services."""
    config, host = yaml.safe_load(texts["services/control.yaml"]), array["controller"]["host"]
    container, pod = container_of(manifests), pod_of(manifests)
    (address,) = [h["address"] for h in array["hosts"] if h["name"] == host]
    ports = {key: int(config[key]["listen"].removeprefix(f"{address}:")) for key in ("http", "katcp")}
    assert {port["name"]: port["port"] for port in manifests["Service"]["spec"]["ports"]} == ports
    assert container["image"] == f"localhost/gpucbf-control:{TAG}"
    assert container["command"][-2:] == ["/usr/share/cbf/control/cbf-control", "/etc/cbf/control.yaml"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "host": address, "port": ports["http"]}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (state,) = [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume]
    assert state == f"/var/lib/cbf/{array['name']}/control"
    assert {"name": "STATE_DIRECTORY", "value": "/var/lib/cbf/control"} in container["env"]
    assert fits(manifests["Deployment"], {"cbf/engines": array["name"], "cbf/host": host}, [])
    assert not fits(manifests["Deployment"], {"cbf/engines": array["name"]}, [])
    assert control_config.parse(config).engines[0].katcp == (f"f0.cbf-{array['name']}.svc", 7150)
    for entry in config["engines"] + config["recorders"]:
        own = yaml.safe_load(texts[f"services/{entry['name']}.yaml"])
        for section in {"http", "katcp"} & set(entry):
            port = own[section]["listen"].rpartition(":")[2]
            assert entry[section] == f"{entry['name']}.cbf-{array['name']}.svc:{port}"


def check_service(manifests, text):
    """Other programs find the program by its name, whose requests it accepts, on every node and also while it fails."""
    config, service = yaml.safe_load(text), manifests["Service"]["spec"]
    name, namespace = (manifests["Service"]["metadata"][key] for key in ("name", "namespace"))
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items() and service["selector"] == {"cbf/engine": name}
    ports = {port["name"]: port["port"] for port in service["ports"]}
    for section, port in ports.items():
        assert config[section]["listen"] in (f"0.0.0.0:{port}", f"127.0.0.1:{port}")
    assert set(ports) == {"http", "katcp"} & set(config)
    assert config["http"]["names"] == f"{name}.{namespace}.svc"
    assert config.get("device", {}).get("gpu") is None
    probes = {kind: container_of(manifests)[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    # /healthz fails while a recorder loses data, and after a wrong result.  /metrics answers as long as the process.
    assert paths == {"startup": "/healthz", "readiness": "/healthz", "liveness": "/metrics"}
    assert all(probe["httpGet"]["port"] == ports["http"] for probe in probes.values())
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 300


def test_load(work):
    """Requests are the plan's load.  The limit of memory is the limit that cbf-doctor computes for a unit."""
    made, texts = convert(test_array.EXAMPLE, work / "made")
    _, table = test_array.generate(test_array.EXAMPLE, work / "ansible")
    rows = {line.split()[1]: line.split() for line in table.splitlines() if line.startswith("cbf")}
    del rows["="]
    assert set(rows) == {name for name in made if name[0] in "fx"}
    for name, row in rows.items():
        resources = container_of(made[name])["resources"]
        assert resources["requests"]["cpu"] == row[-1]
        mebibytes = int(resources["requests"]["memory"].removesuffix("Mi"))
        assert mebibytes == pytest.approx(1024 * float(row[-2]), rel=0.005, abs=1)
        kind = {"f": "fgpu", "x": "xbgpu"}[name[0]]
        done = subprocess.run([harness.BUILD / "cbf-doctor", "--memory-max", work / f"made/services/{name}.yaml"],
                              capture_output=True, text=True, check=True)
        wanted = int(done.stdout.split("MemoryMax=")[1])
        limit = int(resources["limits"]["memory"].removesuffix("Mi")) << 20
        assert wanted <= limit < wanted + (1 << 20) and limit > mebibytes << 20, kind


# ---- Nodes -----------------------------------------------------------------------------------------------------------


def selects(selector, labels):
    """Evaluates matchExpressions as Kubernetes defines them."""
    operators = {"In": lambda key, values: labels.get(key) in values,
                 "NotIn": lambda key, values: labels.get(key) not in values,
                 "Exists": lambda key, values: key in labels}
    return all(operators[e["operator"]](e["key"], e.get("values", [])) for e in selector["matchExpressions"])


def fits(deployment, node, others):
    """True if the required rules allow the pod on a node with these labels, where pods with the labels 'others' run."""
    affinity = deployment["spec"]["template"]["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    apart = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert all(term["topologyKey"] == "kubernetes.io/hostname" for term in apart)
    return any(selects(term, node) for term in terms) and not any(
        selects(term["labelSelector"], labels) for term in apart for labels in others)


def labels_of(script):
    """{node: its labels}, from label-nodes.sh."""
    rows = [line.split()[4:] for line in script.splitlines() if line.startswith("kubectl")]
    return {node: dict(label.split("=") for label in labels) for node, *labels in rows}


def test_nodes(work):
    """Each program fits on its host of the plan.  A spare node takes the engines of one host, but no recorder."""
    array = two_hosts()
    made, texts = convert(test_array.write(work, array), work / "made")
    nodes = labels_of(texts["kubernetes/label-nodes.sh"]) | {"spare": {"cbf/engines": "small"}, "other": {}}
    deployments = {name: program["Deployment"] for name, program in made.items() if name[0] in "fxrb"}
    labels = {name: deployment["spec"]["template"]["metadata"]["labels"] for name, deployment in deployments.items()}
    hosts = {name: host for name, (_, host, _) in programs_of(array).items()}
    assert set(nodes) == set(hosts.values()) | {"spare", "other"}
    for name, deployment in deployments.items():
        together = [labels[other] for other in hosts if hosts[other] == hosts[name] and other != name]
        strangers = [labels[other] for other in hosts if hosts[other] != hosts[name]]
        assert fits(deployment, nodes[hosts[name]], together + [{"app": "not of the array"}])
        assert not fits(deployment, nodes["other"], [])
        assert not fits(deployment, nodes[hosts[name]], [labels[name]])  # a second copy
        assert fits(deployment, nodes["spare"], together) == (name[0] in "fx")
        assert not any(fits(deployment, nodes[hosts[name]], [stranger]) for stranger in strangers)
        if name[0] in "fx":
            node = deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
            (wish,) = node["preferredDuringSchedulingIgnoredDuringExecution"]
            assert [selects(wish["preference"], nodes[n]) for n in nodes] == [n == hosts[name] for n in nodes]


def test_changes(work):
    """A changed file changes the pod of its program, and no other pod.  The manifests of a removed program go away."""
    array = two_hosts()
    before, _ = convert(test_array.write(work, array), work / "made")
    again, _ = convert(test_array.write(work, array), work / "made")
    assert again == before
    array["fgpu"]["send"] = {"ttl": 7}
    array["recorders"].pop()
    after, _ = convert(test_array.write(work, array), work / "made")
    assert set(before) - set(after) == {"r1"}
    changed = {name for name in after if after[name].get("Deployment") != before[name].get("Deployment")}
    assert changed == {"f0"}
    upgraded, _ = convert(test_array.write(work, array), work / "made", tag=None)
    assert {container_of(upgraded[name])["image"] for name in upgraded if name[0] != "0"} == {"localhost/gpucbf:latest"}


def test_names_that_are_no_labels(work):
    array = two_hosts()
    array["hosts"][1]["name"] = "h1_"
    done = test_array.run_array(test_array.write(work, array), "--kubernetes")
    assert done.returncode == 78 and "h1_ cannot be a label of Kubernetes" in done.stderr
    assert test_array.run_array(test_array.write(work, array)).returncode == 0


# ---- Alerts ----------------------------------------------------------------------------------------------------------


def test_commands(work):
    """No alert of an array in Kubernetes asks for a login on a host of the plan."""
    _, texts = convert(test_array.EXAMPLE, work / "made")
    targets = yaml.safe_load(texts["prometheus/targets.yaml"])
    for target in targets:
        name = target["labels"]["engine"]
        assert target["targets"][0].split(":")[0] == ("10.8.0.1" if name == "control" else f"{name}.cbf-example.svc")
    for file in ("rules", "kubernetes"):
        (group,) = yaml.safe_load(texts[f"prometheus/{file}.yaml"])["groups"]
        for rule in group["rules"]:
            if "alert" in rule:
                assert rule["annotations"]["command"].startswith("kubectl -n cbf-example "), rule
                assert set(rule["annotations"]) == {"summary", "stage", "since", "where", "command"}


# Values of kube-state-metrics, one a second: x0 ends with 78 from second 30 on and is started again and again; x1 ended
# so earlier, but runs now; f0 ends with 1.
POD = 'namespace="cbf-small",pod="{0}-7d9",container="{0}",uid="u",job="kube"'
SERIES = [
    ("kube_pod_container_status_last_terminated_exitcode{" + POD.format("x0") + "}", "_x30 78x30"),
    ("kube_pod_container_status_ready{" + POD.format("x0") + "}", "1x29 0x30"),
    ("kube_pod_container_status_last_terminated_exitcode{" + POD.format("x1") + "}", "78x60"),
    ("kube_pod_container_status_ready{" + POD.format("x1") + "}", "1x60"),
    ("kube_pod_container_status_last_terminated_exitcode{" + POD.format("f0") + "}", "1x60"),
    ("kube_pod_container_status_ready{" + POD.format("f0") + "}", "0x60"),
    ('kube_pod_status_phase{namespace="cbf-small",pod="f0-7d9",phase="Pending"}', "0x10 1x50"),
    ('kube_pod_status_phase{namespace="other",pod="web",phase="Pending"}', "1x60"),
    ('kube_node_status_condition{node="n0",condition="Ready",status="true"}', "1x19 0x40"),
    ('kube_node_status_condition{node="n1",condition="Ready",status="true"}', "0x60"),
    ('kube_pod_info{namespace="cbf-small",pod="f0-7d9",node="n0"}', "1x60"),
    ('kube_pod_info{namespace="other",pod="web",node="n1"}', "1x60"),
]


def test_alerts(work, promtool):  # noqa: F811
    """Exit code 78, a pod without a node and a lost node raise alerts, of this array alone."""
    convert(test_array.write(work, two_hosts()), work / "made")
    promtool("check", "rules", work / "made/prometheus/kubernetes.yaml")
    promtool("check", "config", work / "made/prometheus/prometheus.yaml")
    firing = {
        20: {"NodeLost": [{"node": "n0"}]},
        31: {"NodeLost": [{"node": "n0"}], "ConfigurationRefused": [{"container": "x0", "pod": "x0-7d9"}]},
        50: {"NodeLost": [{"node": "n0"}], "ConfigurationRefused": [{"container": "x0", "pod": "x0-7d9"}],
             "NoNode": [{"pod": "f0-7d9"}]},
        15: {},
    }
    tests = []
    for at_s, alerts in firing.items():
        rows = [{"labels": "ALERTS{" + ", ".join(f'{key}="{value}"' for key, value in (
            {"alertname": name, "alertstate": "firing", "severity": "critical"} | labels
            | ({"namespace": "cbf-small"} if "pod" in labels else {})).items()) + "}", "value": 1}
            for name, every in alerts.items() for labels in every]
        tests.append({"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{at_s}s", "exp_samples": rows})
    path = work / "made/prometheus/test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["kubernetes.yaml"], "evaluation_interval": "1s", "tests": [
        {"interval": "1s", "input_series": [{"series": name, "values": values} for name, values in SERIES],
         "promql_expr_test": tests}]}))
    promtool("test", "rules", path)
