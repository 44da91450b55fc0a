"""The controller of an array: the text of control.yaml, and the hosts that may use the engines' KATCP."""
import ipaddress
from dataclasses import dataclass

import yaml

import array_engines
import array_plan
import array_recorder
from array_file import Section

PROGRAM, NAME = "cbf-control", "control"  # the unit is cbf-control@control.service
ALIAS = "cbf-control"  # the controller's host in the inventory, for ansible-playbook --limit


@dataclass
class Controller:
    """The controller.  It has the members name, kind and host like array_plan.Engine."""

    given: Section  # section 'controller' of array.yaml
    host: Section

    name, kind = NAME, PROGRAM

    @staticmethod
    def carries():
        return "the controller"


def make_controller(plan, faults):
    """Returns the Controller of a plan.  Returns None if the array has no controller, or after a fault was
    reported."""
    array = plan.array
    if "controller" not in array.given:
        return None
    given = array["controller"]
    host = array_recorder.find(array["hosts"], given["host"], given.mark_at("host"), "host", faults)
    if host is None:
        return None
    if host["spare"]:
        faults.add(given.mark_at("host"), f"the controller is on {host['name']}, but {host['name']} is a spare")
    if any(host["name"] == ALIAS for host in array["hosts"]):
        faults.add(array.mark_at("hosts"),
                   f"a host is called {ALIAS}, but the inventory needs this name for the controller")
    array_recorder.check_positions(array, faults)
    check_ports(plan, given, host, faults)
    return Controller(given, plan.place(host))


def check_ports(plan, given, host, faults):
    """Checks that the controller's ports differ from each other and from the ports of the host's programs."""
    array, n = plan.array, len(plan.programs_of(host))
    if given["katcp"] == given["http"]:
        faults.add(given.mark_at("http"), f"the controller's ports for katcp and http are both {given['http']}")
    for port in ("katcp", "http"):
        for kind in ("katcp", "http"):
            first = array["ports"][kind]
            if first <= given[port] < first + n:
                faults.add(given.mark_at(port), f"port {given[port]} of the controller is a port of the {n} programs "
                                                f"of {host['name']}, whose {kind} ports begin at {first}")


# ---- Who may use KATCP -----------------------------------------------------------------------------------------------


def networks_of(text):
    """Returns the networks in a text such as '10.8.0.0/16, 192.168.1.7'.  Leaves out parts that are not networks.  The
    engines report such parts as faults, so this function does not."""
    networks = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks.append(ipaddress.IPv4Network(part, strict=False))
        except ValueError:
            pass
    return networks


def allowed(array, engine_host):
    """Returns katcp.allow of an engine: control.allow, and the addresses on which the controller may run.

    The controller may run on its host and on each spare.  All these addresses are in every engine's file, so the files
    do not change when the controller moves.  If control.allow is not set, clients on the engine's own host may also
    connect, just as they may in an array without a controller.
    """
    networks = array["control"]["allow"]
    if "controller" not in array.given or networks.strip() == "any":
        return networks
    homes = [] if networks else [engine_host["address"]]
    homes += [host["address"] for host in array["hosts"] if host["name"] == array["controller"]["host"] or host["spare"]]
    covered = networks_of(networks)
    missing = [home for home in homes if not any(ipaddress.IPv4Address(home) in network for network in covered)]
    return ", ".join(filter(None, [networks, *dict.fromkeys(missing)]))


# ---- control.yaml ----------------------------------------------------------------------------------------------------


def http_address(controller):
    return f"{controller.host['address']}:{controller.given['http']}"


def centre_hz(array, stream):
    """Returns the centre frequency of a stream of voltages, in Hz.  The frequency is counted within the digitiser's
    band."""
    return float(stream["centre_frequency"] if stream["kind"] == "narrowband" else array["time"]["adc_sample_rate"] / 4)


def endpoints(plan, addresses):
    return array_engines.endpoint_list(addresses, plan.array["multicast"]["port"])


def voltages(plan, stream):
    array = plan.array
    centre, rate = centre_hz(array, stream), float(array["time"]["adc_sample_rate"])
    sky = stream["sky_centre_frequency"]
    return {"name": stream["name"], "kind": "voltages", "channels": stream["channels"],
            "substreams": stream["substreams"],
            "samples_between_spectra": array_plan.samples_between_spectra(stream),
            "filter_samples": array_plan.f_window_samples(stream), "spectra_per_heap": stream["spectra_per_heap"], "centre_frequency": centre,
            "bandwidth": rate / 2 / array_plan.decimation(stream),
            "sky_centre_frequency": centre if sky is None else float(sky), "sideband": stream["sideband"],
            "destinations": endpoints(plan, plan.f_groups[stream["name"]])}


def visibilities(plan, output):
    array, stream = plan.array, plan.stream(output)
    n_samples = array_plan.integration_batches(array, output, stream) * array_plan.batch_samples(stream)
    return {"name": output["name"], "kind": "visibilities", "source": output["stream"],
            "integration_s": float(n_samples / array["time"]["adc_sample_rate"]),
            "destinations": endpoints(plan, plan.x_groups[output["name"]])}


def beam(plan, output):
    return {"name": output["name"], "kind": "beam", "source": output["stream"], "pol": output["pol"],
            "destinations": endpoints(plan, plan.beam_groups[output["name"]])}


def detected(plan, output):
    return {"name": output["name"], "kind": "detected", "source": output["stream"], "beams": output["beams"],
            "incoherent": output["kind"] == "incoherent", "products": output["products"],
            "destinations": endpoints(plan, plan.beam_groups[output["name"]])}


def gnss(plan, stream):
    return {"name": stream["name"], "kind": "gnss",
            "destinations": endpoints(plan, [plan.gnss_addresses[stream["name"]]])}


def streams(plan):
    kinds = {"f_outputs": voltages, "x_outputs": visibilities, "beams": beam, "detected": detected, "gnss": gnss}
    return [describe(plan, item) for section, describe in kinds.items() for item in plan.array[section]]


def engine(plan, process):
    """Describes an fgpu or xbgpu."""
    entry = {"name": process.name, "program": process.kind, "host": process.host["name"],
             "katcp": array_engines.katcp_address(plan.array, process),
             "http": array_engines.http_address(plan.array, process)}
    if process.kind == "fgpu":
        return entry | {"antennas": [antenna["name"] for _, antenna in process.antennas]}
    width = process.stream["channels"] // process.stream["substreams"]
    return entry | {"stream": process.stream["name"], "first_channel": process.substream * width, "channels": width}


def recorder(plan, process):
    return {"name": process.name, "program": process.kind, "host": process.host["name"],
            "http": array_engines.http_address(plan.array, process), "stream": process.output["name"],
            "directory": process.directory}


def antennas(array):
    return [{"name": antenna["name"], "feng_id": feng_id}
            | ({"position": [float(metres) for metres in antenna["position"]]} if "position" in antenna.given else {})
            for feng_id, antenna in enumerate(array["antennas"])]


def control_yaml(plan):
    """Returns the text of control.yaml."""
    array, controller = plan.array, plan.controller
    networks, port = array["control"]["allow"], controller.given["katcp"]
    katcp = {"listen": f"{controller.host['address'] if networks else '127.0.0.1'}:{port}"}
    data = {"array": array["name"],
            "time": {key: array["time"][key] for key in ("sync_time", "adc_sample_rate")},
            "katcp": katcp | ({"allow": networks} if networks else {}),
            "http": {"listen": http_address(controller)}}
    if "telescope" in array.given:
        data["telescope"] = {key: array["telescope"][key] for key in ("latitude", "longitude", "altitude")}
    data |= {"antennas": antennas(array), "streams": streams(plan),
             "engines": [engine(plan, process) for process in plan.engines],
             "recorders": [recorder(plan, process) for process in plan.recorders]}
    return (f"{array_engines.MARKER} for {PROGRAM}@{NAME} on {controller.host['name']}: change array.yaml, not this "
            f"file.\n") + yaml.safe_dump(data, sort_keys=False, width=120, default_flow_style=None)
