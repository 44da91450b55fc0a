"""Writes the YAML of every engine of a plan, and lets the engines check it.

Each line of YAML has the place in array.yaml from which it was made.  So a fault that an engine finds is reported
with its place in array.yaml.
"""
import hashlib
import json
import re
import subprocess
from pathlib import Path

import array_control
import array_file
import array_plan
from array_schema import ARRAY_ONLY

# Keys that X-engines and recorders share.
DETECTED_SHAPE = ("beams", "products", "spectra", "channels", "windows", "format")
MARKER = "# Made by scripts/array"  # first line of files that may be overwritten or removed


class Lines:
    """Lines of YAML.  A line may have a mark: the place in array.yaml from which the line was made."""

    def __init__(self):
        self.lines = []

    def add(self, text, mark=None):
        self.lines.append((text, mark))

    def section(self, name, keys, mark=None):
        """Adds a section with the keys 'keys', [(name, text, mark)].  Adds nothing if there are no keys."""
        if not keys:
            return
        self.add("")
        self.add(f"{name}:", mark)
        for key, text, at in keys:
            self.add(f"  {key}: {text}", at)

    def items(self, name, items, mark=None):
        """Adds a list of mappings.  Each item of 'items' has the keys of one mapping, [(name, text, mark)].  If 'items'
        is empty, adds nothing."""
        if not items:
            return
        self.add("")
        self.add(f"{name}:", mark)
        for keys in items:
            for i, (key, text, at) in enumerate(keys):
                self.add(f"  {'- ' if i == 0 else '  '}{key}: {text}", at)

    @property
    def text(self):
        return "".join(text + "\n" for text, _ in self.lines)

    def mark(self, line):
        """Returns the place in array.yaml from which line number 'line' was made.  The first line has number 1.  If the
        line has no mark, returns the mark of the last line before it that has one."""
        for _, mark in reversed(self.lines[:line]):
            if mark is not None:
                return mark
        return array_file.Mark(1, 1)


def http_address(array, engine):
    """Returns the address at which other programs reach the HTTP server."""
    return f"{engine.service or engine.host['address']}:{array['ports']['http'] + engine.index}"


def http_keys(array, engine):
    """Returns the keys of 'http'.  In a cluster the host's address is not known, but the program's name is known."""
    address = "0.0.0.0" if engine.service else engine.host["address"]
    return [("listen", f"{address}:{array['ports']['http'] + engine.index}", array["ports"].mark)] \
        + ([("names", json.dumps(engine.service), None)] if engine.service else [])


def katcp_address(array, engine):
    """Returns the address at which other programs reach an engine's KATCP server.  Other hosts may connect only if
    array.yaml names them, or if the array has a controller."""
    address = (engine.service or engine.host["address"]) if array_control.allowed(array, engine.host) else "127.0.0.1"
    return f"{address}:{array['ports']['katcp'] + engine.index}"


def katcp_keys(array, engine):
    networks, mark = array_control.allowed(array, engine.host), array["control"].mark_at("allow")
    listen = katcp_address(array, engine)
    if engine.service:
        listen = listen.replace(engine.service, "0.0.0.0")
    return [("listen", listen, array["ports"].mark)] \
        + ([("allow", json.dumps(networks), mark)] if networks else [])


def endpoint_list(addresses, port):
    """An endpoint list of consecutive addresses."""
    plus = f"+{len(addresses) - 1}" if len(addresses) > 1 else ""
    return f"{addresses[0]}{plus}:{port}"


def destinations(addresses, port):
    """An endpoint list as text in YAML."""
    return json.dumps(endpoint_list(addresses, port))


def device_keys(array, engine):
    gpu = engine.gpu
    mark = engine.given.mark_at("gpu")
    if engine.service and not engine.on_cpu:  # the cluster chooses the GPU, and the engine sees no other GPU
        return [("kind", "cuda", mark)] + array[engine.kind]["device"].texts()
    chosen = {"auto": [], "cpu": [("kind", "cpu", mark)]}.get(
        gpu, [("kind", "cuda", mark), ("gpu", json.dumps(gpu), mark)])
    return chosen + array[engine.kind]["device"].texts()


def flow_keys(array, engine, name, more):
    """Returns the keys of 'recv' or 'send': the interface, the engine's own keys, and keys that all engines of this
    kind have."""
    keys = [("interface", json.dumps(engine.interface["name"]), engine.given.mark_at("interface"))]
    affinity = [(text, mark) for _, text, mark in engine.given.texts(f"{name}_affinity")]
    if name in engine.cpus:
        affinity = [(json.dumps(engine.cpus[name]), engine.interface.mark_at("cpus"))]
    return keys + more + [("affinity", text, mark) for text, mark in affinity] + array[engine.kind][name].texts()


def control(lines, array, engine, schema):
    lines.section("http", http_keys(array, engine) + array[engine.kind]["http"].texts())
    if "katcp" in schema["properties"]:
        lines.section("katcp", katcp_keys(array, engine) + array[engine.kind]["katcp"].texts())


def begin(plan, engine):
    lines = Lines()
    lines.add(f"{MARKER} for {engine.kind}@{engine.name} on {engine.host['name']}: change array.yaml, not this file.")
    what = "F-engine of" if engine.kind == "fgpu" else "X-engine of"
    lines.add(f"# {what} {engine.carries()}.")
    lines.section("time", plan.array["time"].texts(), plan.array["time"].mark)
    lines.section("device", device_keys(plan.array, engine))
    return lines


def seed_keys(array, stream):
    """Returns the key with the default seed of a stream's dither.  If array.yaml sets a seed or the stream has no
    dither, returns no key.

    The seed depends on the names of the array and of the stream.  So each instance of an engine sends the same bytes.
    All engines may have the same seed, because the dither also depends on the antenna (fgpu) and the channel (xbgpu).
    """
    if stream["dither"] == "none" or "dither_seed" in stream.given:
        return []
    digest = hashlib.sha256(f"{array['name']}/{stream['name']}".encode()).digest()
    return [("dither_seed", int.from_bytes(digest[:6], "big"), stream.mark)]


def fgpu_lines(plan, engine, schema):
    array, lines = plan.array, begin(plan, engine)
    port = array["multicast"]["port"]
    lines.section("recv", flow_keys(array, engine, "recv", array["digitiser"].texts()))
    lines.items("antennas", [
        antenna.texts("name") + [("feng_id", feng_id, antenna.mark)] + antenna.texts("pol0", "pol1", "from")
        for feng_id, antenna in engine.antennas], array.mark_at("antennas"))
    lines.items("outputs", [
        [key for key in output.texts() if key[0] not in ARRAY_ONLY] + seed_keys(array, output)
        + [("destinations", destinations(plan.f_groups[output["name"]], port), output.mark)]
        for output in array["f_outputs"]], array.mark_at("f_outputs"))
    lines.items("gnss", [
        gnss.texts() + [("destination", f"{plan.gnss_addresses[gnss['name']]}:{port}", gnss.mark)]
        for gnss in array["gnss"]], array.mark_at("gnss"))
    lines.items("satellites", [satellites.texts() for satellites in array["satellites"]], array.mark_at("satellites"))
    lines.section("send", flow_keys(array, engine, "send", [("array_size", len(array["antennas"]), None)]))
    control(lines, array, engine, schema)
    return lines


def antenna_names(array):
    """Returns the key with the antennas' names, or no key if a name cannot be part of a sensor's name.  Without the
    key, X-engines number the antennas."""
    names = [antenna["name"] for antenna in array["antennas"]]
    usable = all(re.fullmatch(r"[A-Za-z0-9._-]*[A-Za-z._-][A-Za-z0-9._-]*", name) for name in names)
    return [("antenna_names", ", ".join(names), array.mark_at("antennas"))] if usable else []


def window_keys(array, stream):
    """Returns the keys that make an X-engine's receive window as long as the F-engines' output buffers.  Leaves out a
    key that the file sets or whose default is right."""
    recv, default = array["xbgpu"]["recv"], array["xbgpu"]["recv"].schema["properties"]
    keys = zip(("window", "chunks"), array_plan.x_window(array, stream))
    return [(key, n, stream.mark) for key, n in keys if key not in recv.given and n != default[key]["default"]]


def sky_keys(array, stream):
    """Returns the key with the stream's centre on the sky.  X-engines show frequencies that rise with the channel's
    index.  In a lower side band, frequencies fall with the channel's index.  So the function then returns no key."""
    if stream["sideband"] == "lower" or "centre_frequency" in array["xbgpu"]["recv"].given:
        return []
    return [("centre_frequency", text, mark) for _, text, mark in stream.texts("sky_centre_frequency")]


def filter_keys(plan, stream):
    """Returns the length of the F-engines' filter.  X-engines need it only for the times of detected beams."""
    n_samples = array_plan.f_window_samples(stream)
    return [("filter_samples", n_samples, stream.mark)] if plan.made_of("detected", stream) else []


def xbgpu_lines(plan, engine, schema):
    array, stream, lines = plan.array, engine.stream, begin(plan, engine)
    port, width = array["multicast"]["port"], engine.stream["channels"] // engine.stream["substreams"]
    source = plan.f_groups[stream["name"]][engine.substream]
    at = stream.mark_at
    lines.section("recv", flow_keys(array, engine, "recv", [
        ("sources", f"{source}:{port}", stream.mark),
        ("antennas", len(array["antennas"]), array.mark_at("antennas")),
        *antenna_names(array),
        ("channels", stream["channels"], at("channels")),
        ("channels_per_substream", width, at("substreams")),
        ("channel_offset", engine.substream * width, at("substreams")),
        ("spectra_per_heap", stream["spectra_per_heap"], at("spectra_per_heap")),
        ("samples_between_spectra", array_plan.samples_between_spectra(stream), at("decimation")),
        ("sample_bits", stream["sample_bits"], at("sample_bits")),
        *sky_keys(array, stream),
        *filter_keys(plan, stream),
        *window_keys(array, stream)]))
    lines.items("outputs", [
        [key for key in output.texts() if key[0] != "stream"]
        + [("destination", f"{plan.x_groups[output['name']][engine.substream]}:{port}", output.mark)]
        for output in plan.made_of("x_outputs", stream)], array.mark_at("x_outputs"))
    for section in ("beams", "detected"):
        lines.items(section, [
            [key for key in beam.texts() if key[0] != "stream"] + (seed_keys(array, beam) if section == "beams" else [])
            + [("destination", f"{plan.beam_groups[beam['name']][engine.substream]}:{port}", beam.mark)]
            for beam in plan.made_of(section, stream)], array.mark_at(section))
    lines.section("send", flow_keys(array, engine, "send", []))
    control(lines, array, engine, schema)
    return lines


def engine_lines(plan, engine, schemas):
    make = {"fgpu": fgpu_lines, "xbgpu": xbgpu_lines}[engine.kind]
    return make(plan, engine, schemas[engine.kind])


def check(path, engine, lines, programs, faults):
    """Lets the engine check its file.  A fault is reported at the place in array.yaml that caused it."""
    done = subprocess.run([Path(programs) / engine.kind, "--check-config", path], capture_output=True, text=True,
                          check=False)
    for text in done.stderr.splitlines():
        found = re.match(rf"{re.escape(str(path))}(?::(\d+):\d+)?: (warning: )?(.*)", text)
        if not found:
            faults.add(array_file.Mark(1, 1), f"{engine.kind}: {text}")
            continue
        mark = lines.mark(int(found[1])) if found[1] else array_file.Mark(1, 1)
        (faults.warn if found[2] else faults.add)(mark, f"{engine.kind}: {found[3]}")
    if done.returncode and not faults.faults:
        faults.add(array_file.Mark(1, 1), f"{engine.kind} refuses {engine.name}.yaml, with code {done.returncode}")


def streams_yaml(plan):
    """Returns a text with the sources and destinations of all streams, for recorders and for people."""
    array, port = plan.array, plan.array["multicast"]["port"]
    lines = Lines()
    lines.add(f"{MARKER}: the streams of {array['name']}, with an address for each substream.")
    lines.items("f_outputs", [
        [("name", output["name"], None), ("channels", output["channels"], None),
         ("substreams", output["substreams"], None), ("spectra_per_heap", output["spectra_per_heap"], None),
         ("samples_between_spectra", array_plan.samples_between_spectra(output), None),
         ("destinations", destinations(plan.f_groups[output["name"]], port), None)]
        for output in array["f_outputs"]])
    lines.items("gnss", [
        [("name", gnss["name"], None), ("destination", f"{plan.gnss_addresses[gnss['name']]}:{port}", None)]
        for gnss in array["gnss"]])
    lines.items("x_outputs", [
        [("name", output["name"], None), ("stream", output["stream"], None),
         ("integration_batches", array_plan.integration_batches(array, output, plan.stream(output)), None),
         ("destinations", destinations(plan.x_groups[output["name"]], port), None)]
        for output in array["x_outputs"]])
    for section, keys in (("beams", ("pol",)), ("detected", ("kind",) + DETECTED_SHAPE)):
        lines.items(section, [
            [(key, beam[key], None) for key in ("name", "stream") + keys]
            + [("destinations", destinations(plan.beam_groups[beam["name"]], port), None)] for beam in array[section]])
    return lines.text
