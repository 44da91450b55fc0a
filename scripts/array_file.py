"""The keys of array.yaml, and a reader that returns values with their places, and all faults.

A JSON Schema describes the keys.  Keys that go into the engines' files unchanged (sizes of outputs, buffers, ...) come
from the engines' own schemas (fgpu --print-schema).  So keys, ranges and defaults are the same as in the engines'
files.
"""
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml

# {section: keys that it has in the engines' files, but not in array.yaml}. scripts/array sets these keys, or each
# engine needs its own value.
DEALT = {
    "device": ("kind", "gpu"),
    "http": ("listen",),
    "katcp": ("listen", "read_only_listen", "allow"),
    "send": ("interface", "pcap_file", "affinity", "array_size"),
    "fgpu.recv": ("interface", "pcap_file", "affinity", "sample_bits", "packet_samples"),
    "xbgpu.recv": ("sources", "interface", "pcap_file", "affinity", "antennas", "antenna_names", "channels", "channels_per_substream",
                   "channel_offset", "spectra_per_heap", "samples_between_spectra", "sample_bits", "sample_encoding",
                   "shifts", "filter_samples"),
    "antennas": ("feng_id", "delays", "gains"),
    "f_outputs": ("destinations",),
    "x_outputs": ("destination", "gate", "shifts"),
    "beams": ("destination",),
    "detected": ("destination",),
    "gnss": ("destination",),
}
KINDS = ("fgpu", "xbgpu")
PROGRAMS = KINDS + ("visrec", "beamrec")
ENGINE_SECTIONS = ("device", "recv", "send", "http", "katcp")


@dataclass
class Mark:
    """A place in a file: a line and a column, both counted from 1."""

    line: int
    column: int


def mark_of(node):
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


class Faults:
    """Faults, printed in the order of the file."""

    def __init__(self, path):
        self.path = path
        self.faults = []
        self.warnings = []

    def add(self, mark, sentence):
        if (mark, sentence) not in self.faults:
            self.faults.append((mark, sentence))

    def warn(self, mark, sentence):
        if (mark, sentence) not in self.warnings:
            self.warnings.append((mark, sentence))

    def lines(self):
        every = [(mark, sentence) for mark, sentence in self.faults]
        every += [(mark, "warning: " + sentence) for mark, sentence in self.warnings]
        every.sort(key=lambda fault: (fault[0].line, fault[0].column))
        return [f"{self.path}:{mark.line}:{mark.column}: {sentence}" for mark, sentence in every]


@dataclass
class Value:
    """A scalar, or a list of scalars: the value, its text in YAML, and its place."""

    value: object
    text: str
    mark: Mark


@dataclass
class Section:
    """A mapping: the given values, and defaults for all other keys."""

    mark: Mark
    schema: dict
    given: dict = field(default_factory=dict)  # name -> Value, Section or [Section]

    def __getitem__(self, name):
        if name in self.given:
            item = self.given[name]
            return item.value if isinstance(item, Value) else item
        rule = self.schema["properties"][name]
        if "properties" in rule:
            return Section(self.mark, rule)
        if rule.get("type") == "array" and "properties" in rule["items"]:
            return []
        return rule.get("default")

    def mark_at(self, name):
        item = self.given.get(name)
        return item.mark if isinstance(item, (Value, Section)) else item[0].mark if item else self.mark

    def texts(self, *names):
        """Returns [(name, text, mark)] of the given scalars: all scalars, or only the scalars with these names."""
        return [(name, item.text, item.mark) for name, item in self.given.items()
                if isinstance(item, Value) and (not names or name in names)]


# ---- The schema ------------------------------------------------------------------------------------------------------


def engine_schemas(programs):
    """The schemas of the engines and the recorder, as they print them."""
    schemas = {}
    for kind in PROGRAMS:
        text = subprocess.run([Path(programs) / kind, "--print-schema"], check=True, capture_output=True, text=True)
        schemas[kind] = json.loads(text.stdout)
    return schemas


def without(rule, names, **more):
    """Returns the rule of an object with the keys 'names' removed and the keys 'more' added."""
    properties = {name: key for name, key in rule["properties"].items() if name not in names}
    required = [name for name in rule["required"] if name not in names]
    return {**rule, "properties": {**more, **properties}, "required": required}


def _text(description, **more):
    return {"description": description, "type": "string", "minLength": 1, "maxLength": 64, **more}


def _number(description, kind="integer", **more):
    return {"description": description, "type": kind, **more}


def _object(description, required=(), **properties):
    return {"description": description, "type": "object", "additionalProperties": False, "required": list(required),
            "properties": properties}


def _list(description, item, n_max):
    return {"description": description, "type": "array", "minItems": 1, "maxItems": n_max, "items": item}


def _engine_sections(schema, kind):
    sections = {name: without(schema["properties"][name], DEALT.get(name, ()) + DEALT.get(f"{kind}.{name}", ()))
                for name in ENGINE_SECTIONS if name in schema["properties"]}
    return _object(f"Keys of every {kind} that differ from its defaults.", **sections)


NAME = {"pattern": "[A-Za-z0-9][A-Za-z0-9_.-]*"}


def _outputs(fgpu, xbgpu):
    """Schemas of an item of f_outputs, of x_outputs, of beams and of detected."""
    substreams = _number("Number of X-engines among which the channels are divided: a power of two.",
                         minimum=1, maximum=65536)
    f_output = without(fgpu["outputs"]["items"], DEALT["f_outputs"], substreams=substreams)
    f_output["properties"]["name"] = _text("Name of the stream.", **NAME)
    f_output["required"].append("substreams")
    x_output = without(xbgpu["outputs"]["items"], DEALT["x_outputs"],
                       stream=_text("The output of f_outputs that is correlated."))
    x_output["required"].append("stream")
    beams = [without(xbgpu[section]["items"], DEALT[section],
                     stream=_text("The output of f_outputs from which the beam is made."))
             for section in ("beams", "detected")]
    for beam in beams:
        beam["properties"]["name"] = _text("Name of the stream.", **NAME)
        beam["required"].append("stream")
    return f_output, x_output, *beams


def _host(fgpu):
    """The schema of an item of hosts."""
    affinity = fgpu["recv"]["properties"]["affinity"]
    engine = _object(
        "A process.", ["kind"],
        kind={"description": "F-engine or X-engine.", "enum": list(KINDS)},
        gpu=_text("Index, UUID or PCI address of the GPU; auto: the first suitable GPU; cpu: no GPU.", default="auto"),
        interface=_text("The interface that receives and sends data; default: the host's first interface."),
        recv_affinity=affinity,
        send_affinity=fgpu["send"]["properties"]["affinity"])
    interface = _object("", ["name", "rate"], name=_text("Name of the interface on the host."),
                        rate=_number("Rate in each direction. Unit: Gb/s.", "number", minimum=0.001, maximum=10000),
                        cpus=_text("CPUs for the engines' receive and send threads, one for each thread. Choose CPUs "
                                   "of the interface's NUMA node (/sys/class/net/NAME/device/local_cpulist). Default: "
                                   "threads are not pinned."))
    host = _object(
        "", ["name", "address", "memory", "cores", "interfaces"],
        name=_text("Name of the host, for people, Ansible and metrics.", **NAME),
        address=_text("IPv4 address for control: Ansible, Prometheus and KATCP clients connect to it."),
        memory=_number("Memory. Unit: GiB.", "number", minimum=0.001, maximum=1000000),
        cores=_number("CPU cores.", minimum=1, maximum=4096),
        interfaces=_list("Interfaces for data.", interface, 64),
        engines=_list("Engines of the host. Antennas and substreams are assigned to engines in the order of the file.",
                      engine, 64))
    host["properties"]["engines"]["minItems"] = 0  # a host that only records
    return host


def _recorder(visrec):
    """The schema of an entry in the list 'recorders'."""
    return _object(
        "A visrec.", ["output", "host"],
        output=_text("The output of x_outputs that is recorded."),
        host=_text("The host that records."),
        interface=_text("The interface that receives the visibilities; default: the host's first interface."),
        directory={"description": "Folder of the files; default: /var/lib/cbf/NAME.", "type": "string", "minLength": 1,
                   "maxLength": 2000},
        centre_frequency=visrec["stream"]["properties"]["centre_frequency"],
        **{key: visrec["output"]["properties"][key] for key in ("max_file_size", "max_file_time")})


def _beam_recorder(beamrec):
    """The schema of an item of beam_recorders."""
    keys = {key: beamrec["beams"]["items"]["properties"][key] for key in ("bits", "sum_spectra", "sum_channels")}
    return _object(
        "A beamrec.", ["stream", "host"],
        stream=_text("The output of f_outputs whose beams are recorded (all beams)."),
        host=_text("The host that records."),
        interface=_text("The interface that receives the beams; default: the host's first interface."),
        directory={"description": "Folder of the files; default: /var/lib/cbf/NAME.", "type": "string", "minLength": 1,
                   "maxLength": 2000},
        voltages={"description": "Record the voltages of voltage beams, too.", "type": "boolean", "default": False},
        dada={"description": "Record PSRDADA files of detected beams, too.", "type": "boolean", "default": False},
        centre_frequency=beamrec["stream"]["properties"]["centre_frequency"], **keys,
        **{key: beamrec["output"]["properties"][key] for key in ("source", "max_gap")})


def make_schema(engines):
    """The schema of array.yaml, made from the engines' schemas."""
    fgpu, xbgpu, visrec, beamrec = (engines[program]["properties"] for program in PROGRAMS)
    f_output, x_output, beam, detected = _outputs(fgpu, xbgpu)
    gnss = without(fgpu["gnss"]["items"], DEALT["gnss"])
    gnss["properties"]["name"] = _text("Name of the stream.", **NAME)
    telescope = without(visrec["telescope"], ("name",), name=_text("Name of the telescope; default: the array's name."))
    antenna = without(fgpu["antennas"]["items"], DEALT["antennas"])
    metres = _number("", "number", minimum=-1e7, maximum=1e7)
    antenna["properties"]["position"] = {"description": visrec["antennas"]["items"]["properties"]["position"]["description"],
                                         "anyOf": [metres, {"type": "array", "items": metres}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "array",
        **_object(
            "One correlator: its antennas, its streams and its hosts.",
            ["name", "time", "antennas", "f_outputs", "x_outputs", "multicast", "hosts"],
            name=_text("Name of the array, for people and metrics.", **NAME),
            time=without(fgpu["time"], ("timebase",)),
            digitiser=_object("Packets of digitisers.", **{key: fgpu["recv"]["properties"][key]
                                                          for key in ("sample_bits", "packet_samples")}),
            antennas=_list("All antennas, in the order of their feng_id.", antenna, 4096),
            telescope=telescope,
            f_outputs=_list("Streams of channelised voltages.", f_output, 64),
            x_outputs=_list("Streams of visibilities.", x_output, 64),
            beams=_list("Tied-array beams, which X-engines make of all antennas.", beam, 1024),
            gnss=_list("Streams of satellites' sums, which F-engines make of each antenna.", gnss, fgpu["gnss"]["maxItems"]),
            satellites=_list("Satellites that the streams of gnss follow.", fgpu["satellites"]["items"],
                             fgpu["satellites"]["maxItems"]),
            detected=_list("Streams of detected or incoherent beams, which X-engines make of all antennas.", detected, 64),
            recorders=_list("Recorders of visibilities.", _recorder(visrec), 64),
            beam_recorders=_list("Recorders of beams.", _beam_recorder(beamrec), 64),
            multicast=_object(
                "Addresses of all streams that engines send.", ["range"],
                range=_text("Range of the addresses: a.b.c.d/bits."),
                port=_number("UDP port.", minimum=1, maximum=65535, default=7148)),
            ports=_object(
                "First TCP ports. The engines of a host count up from these ports.",
                http=_number("First port of /metrics.", minimum=1, maximum=65000, default=8000),
                katcp=_number("First port of KATCP.", minimum=1, maximum=65000, default=7150)),
            control=_object(
                "Hosts that may control the engines over KATCP.",
                allow={"description": "Networks and addresses, comma separated, like 10.8.0.0/16, 192.168.1.7; any: "
                                      "all hosts; empty: only the engine's own host.",
                       "type": "string", "minLength": 0, "maxLength": 4096, "default": ""}),
            hosts=_list("The machines.", _host(fgpu), 1024),
            fgpu=_engine_sections(engines["fgpu"], "fgpu"),
            xbgpu=_engine_sections(engines["xbgpu"], "xbgpu")),
    }


# ---- Reading ---------------------------------------------------------------------------------------------------------


def distance(a, b):
    """Returns the smallest number of edits that turn one name into the other.  An edit inserts, deletes or replaces a
    character, or swaps two neighbouring characters."""
    rows = [list(range(len(b) + 1))]
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def nearest(name, names):
    """Returns the name in 'names' that was probably meant, or None.  One in three characters of 'name' may be
    wrong."""
    limit = 2 if len(name) < 3 else len(name) // 3 + 1
    best = min(names, key=lambda other: distance(name, other), default=None)
    return best if best is not None and distance(name, best) < limit else None


def unit_of(rule):
    found = re.search(r"Unit: (.*)\.$", rule.get("description", ""))
    return " " + found[1] if found else ""


def expected(rule):
    """Returns a description of the values that a rule allows."""
    if "enum" in rule:
        return "one of " + ", ".join(map(str, rule["enum"])) + unit_of(rule)
    if "anyOf" in rule:
        lists = [kind for kind in rule["anyOf"] if kind["type"] == "array"]
        inner = expected(lists[0]["items"])
        return f"a list, each item {inner}"
    if rule["type"] in ("integer", "number"):
        kind = "an integer" if rule["type"] == "integer" else "a number"
        limits = f" from {rule['minimum']:.12g} to {rule['maximum']:.12g}" if "minimum" in rule else ""
        return kind + limits + unit_of(rule)
    if rule["type"] == "boolean":
        return "true or false"
    if "pattern" in rule:
        return "made of letters, digits, dots, dashes and underscores"
    if "minLength" in rule and "maxLength" in rule:
        return f"a text of {rule['minLength']} to {rule['maxLength']} characters"
    return "a text"


class Wrong(Exception):
    """Raised if a value breaks its rule."""


def parse(rule, text):
    """Returns the value that a scalar's text has under a rule.  Raises Wrong if the rule does not allow the text."""
    if "enum" in rule:
        for choice in rule["enum"]:
            if text == str(choice) or isinstance(choice, int) and re.fullmatch(r"\d+", text) and int(text) == choice:
                return choice
        raise Wrong
    kind = rule["type"]
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise Wrong
        return text.lower() == "true"
    if kind in ("integer", "number"):
        if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
            raise Wrong
        value = int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
        if kind == "integer" and value != int(value) or not rule["minimum"] <= value <= rule["maximum"]:
            raise Wrong
        return int(value) if kind == "integer" else value
    if not rule.get("minLength", 0) <= len(text) <= rule.get("maxLength", 4096):
        raise Wrong
    if "pattern" in rule and not re.fullmatch(rule["pattern"], text) or re.search(r"[\x00-\x1f\x7f]", text):
        raise Wrong
    return text


def described(node):
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return f"'{node.value}'" if node.value else "nothing"


def written(node):
    """Returns a scalar as YAML, with the text that it has in the file.  A scalar that had quotes or several lines
    gets quotes."""
    return node.value if node.style is None else json.dumps(node.value)


def hint(rule, text):
    """Returns a hint about a common mistake in writing a number.  hint_of() in common/config/values.c gives the same
    hints."""
    if rule.get("type") not in ("integer", "number"):
        return ""
    if unit_of(rule) == " s" and re.match(r"\d{4}-", text):
        return '; write seconds since 1970, as "date +%s -d 2026-01-31T12:00Z" prints'
    rest = re.fullmatch(r"[-+.\d]+ *(.*)", text, re.DOTALL)
    if not rest:
        return ""
    if rest[1].startswith((",", "_")):
        return "; write the number without separators, as 1.5 or 1e6"
    return "; write the number without a unit, as 1e6" if re.match(r"(?![eExX])[A-Za-z]", rest[1]) else ""


# Sections that identify a file as the configuration of a program.  An array's file has hosts and multicast instead.
SIGNS = {"visrec": {"telescope", "stream"}, "beamrec": {"beams", "stream"}, "fgpu": {"outputs", "antennas"},
         "xbgpu": {"outputs", "recv"}, "dsim": {"digitiser", "antennas"}, "fsim": {"signal", "stream"}}


def owner(node):
    """Returns the program whose configuration this file seems to be; None if the file may be an array.yaml."""
    if not isinstance(node, yaml.MappingNode):
        return None
    names = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    if names & {"hosts", "multicast", "f_outputs", "x_outputs"}:
        return None
    return next((program for program, signs in SIGNS.items() if signs <= names), None)


class Reader:
    def __init__(self, faults):
        self.faults = faults

    def load(self, rule, node, where=""):
        """Returns the Section, [Section] or Value of a node.  Reports a fault and returns None if the node breaks its
        rule."""
        if "properties" in rule:
            return self.load_section(rule, node, where)
        if rule.get("type") == "array":
            return self.load_sections(rule, node, where)
        return self.load_value(rule, node, where)

    def load_section(self, rule, node, where):
        if isinstance(node, yaml.ScalarNode) and node.value == "" and not rule["required"]:
            return Section(mark_of(node), rule)
        if not isinstance(node, yaml.MappingNode):
            self.faults.add(mark_of(node), f"{where or 'the file'} must have keys, but {described(node)} is given")
            return None
        section, names = Section(mark_of(node), rule), set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            full = f"{where}.{name}" if where else name
            if name in names:
                self.faults.add(mark_of(key), f"{full} is given twice")
            elif name in rule["properties"]:
                item = self.load(rule["properties"][name], value, full)
                if item is not None:
                    section.given[name] = item
            else:
                self.unknown(mark_of(key), name, where, list(rule["properties"]))
            names.add(name)
        for name in rule["required"]:
            if name not in names:
                full = f"{where}.{name}" if where else name
                help_text = rule["properties"][name]["description"]
                self.faults.add(mark_of(node), f"{full} is missing and has no default ({help_text.removesuffix('.')})")
        return section

    def unknown(self, mark, name, where, names):
        what = f"unknown key '{name}' in {where}" if where else f"unknown section '{name}'"
        meant = nearest(name, names)
        every = f"its keys are {', '.join(names)}" if where else f"the sections are {', '.join(names)}"
        self.faults.add(mark, f"{what}; " + (f"did you mean '{meant}'?" if meant else every))

    def load_sections(self, rule, node, where):
        if not isinstance(node, yaml.SequenceNode):
            self.faults.add(mark_of(node),
                            f"{where} must be a list (each item beginning with \"- \"), but {described(node)} is given")
            return None
        if not rule["minItems"] <= len(node.value) <= rule["maxItems"]:
            self.faults.add(mark_of(node),
                            f"{where} must have {rule['minItems']} to {rule['maxItems']} items, not {len(node.value)}")
        items = [self.load(rule["items"], item, f"{where}[{i}]") for i, item in enumerate(node.value)]
        return [item for item in items if item is not None]

    def load_value(self, rule, node, where):
        one = rule
        nodes = [node]
        if "anyOf" in rule:  # a scalar, or a list of them
            one = next(kind for kind in rule["anyOf"] if kind["type"] == "array")["items"]
            nodes = node.value if isinstance(node, yaml.SequenceNode) else nodes
        values = []
        for item in nodes:
            if not isinstance(item, yaml.ScalarNode):
                self.faults.add(mark_of(item), f"{where} must be {expected(rule)}, but {described(item)} is given")
                return None
            try:
                values.append(parse(one, item.value))
            except Wrong:
                self.faults.add(mark_of(item), f"{where} must be {expected(rule)}, but {described(item)} is given"
                                               f"{hint(one, item.value)}")
                return None
        if "anyOf" in rule:
            return Value(values, "[" + ", ".join(json.dumps(item.value) if isinstance(value, str) else item.value
                                                 for item, value in zip(nodes, values)) + "]", mark_of(node))
        return Value(values[0], written(node), mark_of(node))


def load(path, schema, faults):
    """Reads array.yaml into a Section.  Returns None if the file cannot be used at all."""
    try:
        node = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        faults.add(Mark(1, 1), f"cannot be read: {error.strerror}")
        return None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        at = getattr(error, "problem_mark", None)
        mark = Mark(at.line + 1, at.column + 1) if at else Mark(1, 1)
        faults.add(mark, f"is not YAML: {getattr(error, 'problem', None) or error}")
        return None
    if node is None:
        faults.add(Mark(1, 1), "is empty")
        return None
    if owner(node):
        faults.add(Mark(1, 1), f"this looks like a configuration of {owner(node)}, not of scripts/array")
        return None
    return Reader(faults).load(schema, node)
