"""scripts/array: the controller's file, and the hosts that may use KATCP."""
import pytest
import yaml

import harness
from test_array import EXAMPLE, SATELLITES, generate, run_array, small, write


def services_of(made):
    return {name.split("/")[1][:-5]: config for name, config in made.items() if name.startswith("services/")}


def destinations_of(services, name):
    """Returns the destinations of a stream in the engines' files, in the order of the substreams."""
    found = []
    for _, config in sorted(services.items()):
        for item in config.get("gnss", []) + config.get("outputs", []) + config.get("beams", []) + config.get("detected", []):
            for key in ("destinations", "destination"):
                if item["name"] == name and key in item:
                    found += harness.endpoints(item[key])
    return list(dict.fromkeys(found))


def check_engines(control, services, program_of):
    """Every engine and recorder is listed with the addresses at which it serves."""
    listed = {engine["name"]: engine for engine in control["engines"] + control["recorders"]}
    assert set(listed) | {"control"} == set(services)
    for name, entry in listed.items():
        config = services[name]
        assert entry["program"] == program_of[name] and entry["http"] == config["http"]["listen"]
        if entry["program"] == "fgpu":
            assert entry["antennas"] == [antenna["name"] for antenna in config["antennas"]]
        if entry["program"] == "xbgpu":
            recv = config["recv"]
            assert (entry["first_channel"], entry["channels"]) == (recv["channel_offset"], recv["channels_per_substream"])
        if entry["program"] in ("fgpu", "xbgpu"):
            assert entry["katcp"] == config["katcp"]["listen"]


def test_control_yaml(work):
    """The file agrees with the engines' files, and with array.yaml."""
    array = yaml.safe_load(EXAMPLE.read_text())
    made, _ = generate(EXAMPLE, work / "made")
    services, inventory = services_of(made), made["inventory.yaml"]["all"]["children"]
    control = services["control"]
    hosts = inventory["cbf"]["hosts"]
    program_of = {service["name"]: service["program"] for host in hosts.values() for service in host["cbf_services"]}
    check_engines(control, services, program_of)

    assert control["array"] == "example"
    assert control["time"] == {"sync_time": 1700000000, "adc_sample_rate": 1712e6}
    assert control["katcp"] == {"listen": "10.8.0.1:7147", "allow": "10.8.0.0/16"}
    assert control["http"] == {"listen": "10.8.0.1:8080"} and control["telescope"] == array["telescope"]
    assert control["antennas"] == [{"name": antenna["name"], "feng_id": i, "position": antenna["position"]}
                                   for i, antenna in enumerate(array["antennas"])]
    streams = {stream["name"]: stream for stream in control["streams"]}
    names = [item["name"] for key in ("f_outputs", "x_outputs", "beams", "detected", "gnss") for item in array[key]]
    assert list(streams) == names
    for name, stream in streams.items():
        assert harness.endpoints(stream["destinations"]) == destinations_of(services, name), name
    wide = {"channels": 8192, "substreams": 4, "samples_between_spectra": 16384, "spectra_per_heap": 256, "kind": "voltages", "filter_samples": 16 * 16384,
            "centre_frequency": 428e6, "bandwidth": 856e6, "sky_centre_frequency": 1284e6, "sideband": "upper"}
    narrow = {"centre_frequency": 300e6, "bandwidth": 53.5e6, "samples_between_spectra": 8192 * 16,
              "sky_centre_frequency": 1156e6}
    assert streams["wide"].items() >= wide.items() and streams["narrow"].items() >= narrow.items()
    n_batches = services["x0"]["outputs"][0].get("integration_batches") or round(0.5 * 1712e6 / 16384 / 256)
    assert streams["wide-vis"]["source"] == "wide"
    assert streams["wide-vis"]["integration_s"] == pytest.approx(n_batches * 256 * 16384 / 1712e6, rel=1e-12)
    assert (streams["wide-beam-0y"]["kind"], streams["wide-beam-0y"]["pol"]) == ("beam", 1)
    assert streams["wide-search"].items() >= {"kind": "detected", "beams": 16, "incoherent": False, "products": "I"}.items()
    assert streams["wide-incoherent"]["incoherent"] and streams["gnss-l1"]["kind"] == "gnss"

    (target,) = [row for row in made["prometheus/targets.yaml"] if row["labels"]["program"] == "cbf-control"]
    assert target["targets"] == ["10.8.0.1:8080"] and target["labels"]["host"] == "cbf1"
    assert [name for name, host in hosts.items() if host.get("cbf_controller")] == ["cbf1"]
    assert inventory["cbf_control"]["hosts"] == {"cbf-control": {"ansible_host": "10.8.0.1", "cbf_host": "cbf1"}}


def two_hosts(**changes):
    array = small(**changes)
    array["hosts"].append({"name": "other", "address": "127.0.0.2", "memory": 8, "cores": 64,
                           "interfaces": [{"name": "lo", "rate": 10}]})
    return array


@pytest.mark.parametrize("allow, controller, engines", [
    (None, None, None),
    (None, "other", "127.0.0.1, 127.0.0.2"),  # f0 is on 127.0.0.1
    (None, "here", "127.0.0.1"),
    ("10.8.0.0/16", None, "10.8.0.0/16"),
    ("10.8.0.0/16", "other", "10.8.0.0/16, 127.0.0.2"),
    ("10.8.0.0/16, 127.0.0.2", "other", "10.8.0.0/16, 127.0.0.2"),
    ("10.1.2.3,127.0.0.0/8", "here", "10.1.2.3,127.0.0.0/8"),
    ("any", "other", "any")])
def test_controller_is_let_in(work, allow, controller, engines):
    """The engines accept the controller's host; the controller accepts the hosts of control.allow."""
    changes = ({"control": {"allow": allow}} if allow else {}) | ({"controller": {"host": controller}} if controller else {})
    made, _ = generate(write(work, two_hosts(**changes)), work / "made")
    assert made["services/f0.yaml"]["katcp"].get("allow") == engines
    assert made["services/f0.yaml"]["katcp"]["listen"].startswith("127.0.0.1:")
    assert ("services/control.yaml" in made) == bool(controller)
    if controller:
        katcp = made["services/control.yaml"]["katcp"]
        assert katcp.get("allow") == allow
        assert katcp["listen"] == f"127.0.0.{2 if allow and controller == 'other' else 1}:7147"
        assert made["services/control.yaml"]["http"]["listen"] == f"127.0.0.{2 if controller == 'other' else 1}:8080"


def test_frequencies_of_the_sky(work):
    """X-engines and recorders get the centre on the sky; a recorder's key has precedence."""
    array = yaml.safe_load(EXAMPLE.read_text())
    array["recorders"].append({"output": "wide-vis", "host": "store1", "directory": "/data", "centre_frequency": 5e9,
                               "max_file_time": 3600})
    made, _ = generate(write(work, array), work / "made")
    services = services_of(made)
    assert float(services["x0"]["recv"]["centre_frequency"]) == float(services["r0"]["stream"]["centre_frequency"]) == 1284e6
    assert float(services["x4"]["recv"]["centre_frequency"]) == float(services["r1"]["stream"]["centre_frequency"]) == 1156e6
    assert float(services["r2"]["stream"]["centre_frequency"]) == 5e9
    assert "sky_centre_frequency" not in services["f0"]["outputs"][0]

    array["f_outputs"][0]["sideband"] = "lower"
    path = write(work, array, "lower.yaml")
    made, _ = generate(path, work / "lower")
    assert {stream["name"]: stream.get("sideband") for stream in services_of(made)["control"]["streams"]}["wide"] == "lower"
    assert "centre_frequency" not in services_of(made)["x0"]["recv"]  # the page would draw a wrong axis
    assert "sideband" not in services_of(made)["f0"]["outputs"][0]
    done = run_array(path)
    assert done.returncode == 0 and "warning: the band of wide is inverted, but recorders" in done.stderr

    without = small(controller={"host": "here"}, **SATELLITES)
    made, _ = generate(write(work, without, "without.yaml"), work / "without")
    control = services_of(made)["control"]
    assert "telescope" not in control and all("position" not in antenna for antenna in control["antennas"])
    assert control["streams"][0]["sky_centre_frequency"] == control["streams"][0]["centre_frequency"] == 2e6


@pytest.mark.parametrize("controller, said", [
    ({"host": "cbf9"}, "there is no host 'cbf9'; did you mean 'cbf1'?"),
    ({"host": "cbf4", "http": 8002}, "port 8002 of the controller is a port of the 3 programs of cbf4, whose http ports"),
    ({"host": "cbf4", "katcp": 7152}, "port 7152 of the controller is a port of the 3 programs of cbf4, whose katcp ports"),
    ({"host": "cbf4", "katcp": 8080}, "the controller's ports for katcp and http are both 8080"),
    ({"host": "spare1"}, "the controller is on spare1, but spare1 is a spare"),
    ({"katcp": 7147}, "controller.host is missing and has no default")])
def test_refused(work, controller, said):
    array = yaml.safe_load(EXAMPLE.read_text())
    array["controller"] = controller
    done = run_array(write(work, array))
    assert done.returncode == 78 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
