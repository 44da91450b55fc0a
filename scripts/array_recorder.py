"""The recorders of an array: which output goes to which disk, and the YAML of each visrec."""
from dataclasses import dataclass

import array_engines
import array_plan
from array_file import Section, nearest

STATE = "/var/lib/cbf"  # a recorder's unit may write below its own directory here, without more


@dataclass
class Recorder:
    """One visrec; the names of its members are those of array_plan.Engine."""

    name: str
    host: Section
    given: Section
    index: int  # on its host, behind the engines
    output: Section  # of x_outputs
    kind: str = "visrec"

    @property
    def directory(self):
        return (self.given["directory"] or f"{STATE}/{self.name}").rstrip("/")

    def carries(self):
        return f"the output {self.output['name']}"

    @property
    def writes_elsewhere(self):
        return not f"{self.directory}/".startswith(f"{STATE}/{self.name}/")

    @property
    def interface(self):
        return self.given["interface"] or self.host["interfaces"][0]["name"]


def find(items, name, mark, what, faults):
    """The item of this name, or None after a fault was told."""
    names = [item["name"] for item in items]
    if name in names:
        return items[names.index(name)]
    meant = nearest(name, names)
    faults.add(mark, f"there is no {what} '{name}'" + (f"; did you mean '{meant}'?" if meant else ""))
    return None


def make_recorders(array, faults):
    """Names them r0, r1, ... in the order of the file."""
    recorders = []
    if array["recorders"]:
        check_places(array, faults)
    for given in array["recorders"]:
        host = find(array["hosts"], given["host"], given.mark_at("host"), "host", faults)
        output = find(array["x_outputs"], given["output"], given.mark_at("output"), "output of x_outputs", faults)
        if host is None or output is None:
            continue
        if given["interface"]:
            find(host["interfaces"], given["interface"], given.mark_at("interface"), f"interface of {host['name']}", faults)
        if given["directory"] and not given["directory"].startswith("/"):
            faults.add(given.mark_at("directory"), f"recorders.directory must begin with /, not \"{given['directory']}\"")
        index = len(host["engines"]) + sum(other.host is host for other in recorders)
        recorders.append(Recorder(f"r{len(recorders)}", host, given, index, output))
        array_plan.check_ports(array, host, faults, index + 1)
    return recorders


def check_places(array, faults):
    """A recording says where the telescope and its antennas are."""
    if "telescope" not in array.given:
        faults.add(array.mark_at("recorders"), "telescope is missing; a recorder writes where the array is")
    for antenna in array["antennas"]:
        if "position" not in antenna.given:
            faults.add(antenna.mark, f"position of {antenna['name']} is missing; a recorder writes it")
        elif len(antenna["position"]) != 3:
            faults.add(antenna.mark_at("position"), f"position of {antenna['name']} must be [east, north, up]")


def describe(plan, recorder):
    """A line behind the table, which has no recorders."""
    stream = plan.stream(recorder.output)
    gbps = stream["substreams"] * array_plan.x_output_gbps(plan.array, recorder.output, stream)
    return (f"{recorder.host['name']}  {recorder.name}  records {recorder.output['name']} in {recorder.directory}: "
            f"{gbps:.3g} Gb/s in")


def stream_keys(array, output, stream):
    at = stream.mark_at
    keys = [("channels", stream["channels"], at("channels")),
            ("channels_per_substream", stream["channels"] // stream["substreams"], at("substreams")),
            ("spectra_per_heap", stream["spectra_per_heap"], at("spectra_per_heap")),
            ("samples_between_spectra", array_plan.samples_between_spectra(stream), at("decimation")),
            ("integration_batches", array_plan.integration_batches(array, output, stream), output.mark)]
    if output["missing"] == "weights":
        keys.append(("weights", "true", output.mark_at("missing")))
    return keys


def lines(plan, recorder):
    array, given, output = plan.array, recorder.given, recorder.output
    stream, out = plan.stream(output), array_engines.Lines()
    port = array["multicast"]["port"]
    out.add(f"{array_engines.MARKER} for visrec@{recorder.name} on {recorder.host['name']}: change the array's file, "
            f"not this.")
    out.add(f"# Recorder of {output['name']}.")
    out.section("time", array["time"].texts(), array["time"].mark)
    out.section("recv", [
        ("sources", array_engines.destinations(plan.x_groups[output["name"]], port), output.mark),
        ("interface", f'"{recorder.interface}"', given.mark_at("interface"))])
    # A narrow band's centre is where the F-engine has it, unless a mixer has moved the sky.
    sky = given.texts("centre_frequency") or [("centre_frequency", text, mark) for _, text, mark in
                                              stream.texts("centre_frequency")]
    out.section("stream", stream_keys(array, output, stream) + sky)
    telescope = array["telescope"]
    name = telescope.texts("name") or [("name", array["name"], array.mark_at("name"))]
    out.section("telescope", name + telescope.texts("latitude", "longitude", "altitude", "ut1_utc"), telescope.mark)
    out.items("antennas", [antenna.texts("name") + antenna.texts("position") for antenna in array["antennas"]],
              array.mark_at("antennas"))
    out.section("output", [
        ("file", f'"{recorder.directory}/{array["name"]}-{output["name"]}-%Y%m%dT%H%M%SZ.uvh5"',
         given.mark_at("directory"))] + given.texts("max_file_size", "max_file_time"))
    out.section("http", [("listen", array_engines.http_address(array, recorder), array["ports"].mark)])
    return out
