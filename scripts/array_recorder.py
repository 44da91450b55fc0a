"""The recorders of an array: the disk for each output or beam, and the YAML of each visrec and beamrec."""
from dataclasses import dataclass

import array_engines
import array_plan
from array_file import Section, nearest

STATE = "/var/lib/cbf"  # a recorder's unit may write to STATE/NAME without further settings


@dataclass
class Recorder:
    """One visrec or beamrec.  Its members have the names of the members of array_plan.Engine."""

    name: str
    host: Section
    given: Section
    index: int  # number of the recorder on its host; the engines have the first numbers
    home: Section  # the recorder's host in array.yaml; if the recorder has moved, 'host' is a spare
    interface: str
    output: Section  # item of x_outputs that a visrec records, or item of f_outputs whose beams a beamrec records
    kind: str = "visrec"
    service: str = None

    @property
    def directory(self):
        return (self.given["directory"] or f"{STATE}/{self.name}").rstrip("/")

    def carries(self):
        return f"the {'output' if self.kind == 'visrec' else 'beams of'} {self.output['name']}"

    @property
    def writes_elsewhere(self):
        return not f"{self.directory}/".startswith(f"{STATE}/{self.name}/")


def find(items, name, mark, what, faults):
    """Returns the item with this name.  If there is none, reports a fault and returns None."""
    names = [item["name"] for item in items]
    if name in names:
        return items[names.index(name)]
    meant = nearest(name, names)
    faults.add(mark, f"there is no {what} '{name}'" + (f"; did you mean '{meant}'?" if meant else ""))
    return None


def make_recorders(plan, faults):
    """Names the recorders r0, r1, ... in the order of the file, and beam recorders b0, b1, ..."""
    array = plan.array
    if array["recorders"]:
        check_places(array, faults)
    recorders = make_some(plan, array["recorders"], "visrec", "output", "x_outputs", [], faults)
    for given in array["beam_recorders"]:
        if not any(beam["stream"] == given["stream"] for beam in array["beams"] + array["detected"]):
            faults.add(given.mark_at("stream"), f"there is no beam of the stream '{given['stream']}'")
    return recorders + make_some(plan, array["beam_recorders"], "beamrec", "stream", "f_outputs", recorders, faults)


def output_stream(array, output):
    """Returns the item of f_outputs from which an output is made, or the output itself if it is an item of
    f_outputs."""
    if "stream" not in output.given:
        return output
    return next(stream for stream in array["f_outputs"] if stream["name"] == output["stream"])


def make_some(plan, all_given, kind, key, outputs, others, faults):
    """Makes the recorders of one kind.  Their ports follow the ports of 'others'."""
    array, recorders = plan.array, []
    for given in all_given:
        host = find(array["hosts"], given["host"], given.mark_at("host"), "host", faults)
        output = find(array[outputs], given[key], given.mark_at(key), f"output of {outputs}", faults)
        if host is None or output is None:
            continue
        if host["spare"]:
            faults.add(given.mark_at("host"), f"{host['name']} is a spare and must have no recorders")
        if given["interface"] and not find(host["interfaces"], given["interface"], given.mark_at("interface"),
                                           f"interface of {host['name']}", faults):
            continue
        if given["directory"] and not given["directory"].startswith("/"):
            faults.add(given.mark_at("directory"), f"{'beam_' * (kind == 'beamrec')}recorders.directory must begin with /, not \"{given['directory']}\"")
        stream = output_stream(array, output)
        if stream["sideband"] == "lower":
            faults.warn(given.mark, f"the band of {stream['name']} is inverted, but recorders write frequencies that "
                                    f"rise with the channel's index")
        index = len(host["engines"]) + sum(other.home is host for other in others + recorders)
        interface = array_plan.place_interface(plan, host, given["interface"])["name"]
        name = f"{'b' if kind == 'beamrec' else 'r'}{len(recorders)}"
        recorders.append(Recorder(name, plan.place(host), given, index, host, interface, output, kind))
        array_plan.check_ports(array, host, faults, index + 1)
    return recorders


def check_places(array, faults):
    """Checks the positions of the telescope and its antennas, which a recording needs."""
    if "telescope" not in array.given:
        faults.add(array.mark_at("recorders"), "telescope is missing; recorders write the array's position to files")
    for antenna in array["antennas"]:
        if "position" not in antenna.given:
            faults.add(antenna.mark, f"position of {antenna['name']} is missing; recorders write it to files")
    check_positions(array, faults)


def check_positions(array, faults):
    for antenna in array["antennas"]:
        if "position" in antenna.given and len(antenna["position"]) != 3:
            faults.add(antenna.mark_at("position"), f"position of {antenna['name']} must be [east, north, up]")


def describe(plan, recorder):
    """Returns a line that describes a recorder, because the table of engines has no recorders."""
    if recorder.kind == "visrec":
        stream = plan.stream(recorder.output)
        gbps = stream["substreams"] * array_plan.x_output_gbps(plan.array, recorder.output, stream)
    else:
        stream = recorder.output
        gbps = stream["substreams"] * array_plan.beams_gbps(plan.array, stream)
    what = recorder.carries().removeprefix("the output ")
    return (f"{recorder.host['name']}  {recorder.name}  records {what} in {recorder.directory}: "
            f"{gbps:.3g} Gb/s in")


def shape_keys(stream):
    at = stream.mark_at
    return [("channels", stream["channels"], at("channels")),
            ("channels_per_substream", stream["channels"] // stream["substreams"], at("substreams")),
            ("spectra_per_heap", stream["spectra_per_heap"], at("spectra_per_heap")),
            ("samples_between_spectra", array_plan.samples_between_spectra(stream), at("decimation"))]


def sky_keys(given, stream):
    """Returns the key for the centre of the band.  There are three candidates: the recorder's key, the stream's centre
    on the sky, and the centre of a narrow band in the digitised band.  The first candidate in array.yaml is used."""
    keys = given.texts("centre_frequency") or stream.texts("sky_centre_frequency") or stream.texts("centre_frequency")
    return [("centre_frequency", text, mark) for _, text, mark in keys]


def stream_keys(array, output, stream):
    keys = shape_keys(stream) + [
        ("integration_batches", array_plan.integration_batches(array, output, stream), output.mark)]
    if output["missing"] == "weights":
        keys.append(("weights", "true", output.mark_at("missing")))
    return keys


def beam_keys(plan, recorder, beam, name, dada):
    """Keys of a voltage beam or of a stream of detected beams.  The names of the files contain 'name'.  'dada' is the
    name of the key for PSRDADA files.  If given[dada] is true, the recorder also writes PSRDADA files."""
    array, given = plan.array, recorder.given
    file, mark = f"{recorder.directory}/{array['name']}-{name}-%Y%m%dT%H%M%SZ", given.mark_at("directory")
    keys = [("name", beam["name"], beam.mark),
            ("sources", array_engines.destinations(plan.beam_groups[beam["name"]], array["multicast"]["port"]), beam.mark),
            ("filterbank", f'"{file}.fil"', mark)]
    if given[dada]:
        keys.append((dada, f'"{file}.dada"', mark))
    return keys + given.texts("bits")


def beam_lines(plan, recorder):
    array, given, stream, out = plan.array, recorder.given, recorder.output, array_engines.Lines()
    out.add(f"{array_engines.MARKER} for beamrec@{recorder.name} on {recorder.host['name']}: change array.yaml, "
            f"not this file.")
    out.add(f"# Recorder of the beams of {stream['name']}.")
    out.section("time", array["time"].texts(), array["time"].mark)
    out.section("recv", [("interface", f'"{recorder.interface}"', given.mark_at("interface"))])
    out.section("stream", shape_keys(stream) + sky_keys(given, stream))
    name = array["telescope"].texts("name") or [("name", array["name"], array.mark_at("name"))]
    out.section("output", [("telescope", text, mark) for _, text, mark in name] + given.texts("source", "max_gap"))
    out.items("beams", [beam_keys(plan, recorder, beam, beam["name"], "voltages") + given.texts("sum_spectra", "sum_channels")
                        for beam in plan.made_of("beams", stream)], array.mark_at("beams"))
    out.items("detected", [beam_keys(plan, recorder, beam, f"{beam['name']}.{{beam}}", "dada")
                           + beam.texts(*array_engines.DETECTED_SHAPE)
                           for beam in plan.made_of("detected", stream)], array.mark_at("detected"))
    out.section("http", array_engines.http_keys(array, recorder))
    return out


def lines(plan, recorder):
    if recorder.kind == "beamrec":
        return beam_lines(plan, recorder)
    array, given, output = plan.array, recorder.given, recorder.output
    stream, out = plan.stream(output), array_engines.Lines()
    port = array["multicast"]["port"]
    out.add(f"{array_engines.MARKER} for visrec@{recorder.name} on {recorder.host['name']}: change array.yaml, "
            f"not this file.")
    out.add(f"# Recorder of {output['name']}.")
    out.section("time", array["time"].texts(), array["time"].mark)
    out.section("recv", [
        ("sources", array_engines.destinations(plan.x_groups[output["name"]], port), output.mark),
        ("interface", f'"{recorder.interface}"', given.mark_at("interface"))])
    out.section("stream", stream_keys(array, output, stream) + sky_keys(given, stream))
    telescope = array["telescope"]
    name = telescope.texts("name") or [("name", array["name"], array.mark_at("name"))]
    out.section("telescope", name + telescope.texts("latitude", "longitude", "altitude", "ut1_utc"), telescope.mark)
    out.items("antennas", [antenna.texts("name") + antenna.texts("position") for antenna in array["antennas"]],
              array.mark_at("antennas"))
    out.section("output", [
        ("file", f'"{recorder.directory}/{array["name"]}-{output["name"]}-%Y%m%dT%H%M%SZ.uvh5"',
         given.mark_at("directory"))] + given.texts("max_file_size", "max_file_time"))
    out.section("http", array_engines.http_keys(array, recorder))
    return out
