"""The keys of array.yaml: a JSON Schema.

Some keys go into the engines' files unchanged (sizes of outputs, buffers, ...).  The schemas of these keys come from
the engines (fgpu --print-schema).  So these keys have the same names, ranges and defaults in array.yaml and in the
engines' files.
"""
import json
import subprocess
from pathlib import Path

# Keys of the engines' files that the same sections of array.yaml lack.  scripts/array sets such a key, or each engine
# has a different value.
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
    "f_outputs": ("destinations",),  # an fgpu's file does not have the keys of ARRAY_ONLY
    "x_outputs": ("destination", "gate", "shifts"),
    "beams": ("destination",),
    "detected": ("destination",),
    "gnss": ("destination",),
}
ARRAY_ONLY = ("substreams", "sky_centre_frequency", "sideband")  # keys of f_outputs that fgpu does not have
KINDS = ("fgpu", "xbgpu")
PROGRAMS = KINDS + ("visrec", "beamrec")
ENGINE_SECTIONS = ("device", "recv", "send", "http", "katcp")


def engine_schemas(programs):
    """Returns the schemas that the engines and the recorders print."""
    schemas = {}
    for kind in PROGRAMS:
        text = subprocess.run([Path(programs) / kind, "--print-schema"], check=True, capture_output=True, text=True)
        schemas[kind] = json.loads(text.stdout)
    return schemas


def without(rule, names, **more):
    """Returns a new rule of an object: 'rule' without the keys 'names', and with the keys 'more'."""
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


RECORDINGS = "Folder of the files; default: /var/lib/cbf/NAME."
RETENTION = "Age at which systemd-tmpfiles removes a file of the folder; 0: no file is removed. Unit: days."


def _folder(description):
    return {"description": description, "type": "string", "minLength": 1, "maxLength": 2000}


def _engine_sections(schema, kind):
    sections = {name: without(schema["properties"][name], DEALT.get(name, ()) + DEALT.get(f"{kind}.{name}", ()))
                for name in ENGINE_SECTIONS if name in schema["properties"]}
    return _object(f"Keys of every {kind} that differ from its defaults.", **sections)


NAME = {"pattern": "[A-Za-z0-9][A-Za-z0-9_.-]*"}


def _outputs(fgpu, xbgpu):
    """Schemas of an item of f_outputs, of x_outputs, of beams and of detected."""
    substreams = _number("Number of X-engines among which the channels are divided: a power of two.",
                         minimum=1, maximum=65536)
    sky = _number("Sky frequency at the centre of channel number channels / 2; default: the frequency of this channel "
                  "in the digitised band. Unit: Hz.", "number", minimum=0, maximum=1e12)
    sideband = {"description": "upper: the sky frequency rises with the digitised frequency; lower: the sky frequency falls.",
                "enum": ["upper", "lower"], "default": "upper"}
    f_output = without(fgpu["outputs"]["items"], DEALT["f_outputs"], substreams=substreams, sky_centre_frequency=sky,
                       sideband=sideband)
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
    """The schema of one host in the list 'hosts'."""
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
    disk = _object("", ["directory", "rate", "size"],
                   directory=_folder("Mount point of the disk. A recorder writes to this disk if the recorder's "
                                     "directory is in this mount point."),
                   rate=_number("Rate at which the disk writes. Unit: GB/s.", "number", minimum=1e-6, maximum=1e6),
                   size=_number("Space for recordings. Unit: TB.", "number", minimum=1e-6, maximum=1e6))
    gpu_name = {"type": "string", "minLength": 1, "maxLength": 64}
    host = _object(
        "", ["name", "address", "memory", "cores", "interfaces"],
        name=_text("Name of the host, for people, Ansible and metrics.", **NAME),
        address=_text("IPv4 address for control: Ansible, Prometheus and KATCP clients connect to it."),
        memory=_number("Memory. Unit: GiB.", "number", minimum=0.001, maximum=1000000),
        cores=_number("CPU cores.", minimum=1, maximum=4096),
        interfaces=_list("Interfaces for data.", interface, 64),
        disks=_list("Disks for recordings.", disk, 64),
        spare={"description": "The host runs nothing until scripts/array --move moves the engines of another host to it.",
               "type": "boolean", "default": False},
        gpus={"description": "GPUs of a spare: index, UUID or PCI address. They replace the GPUs of the host whose "
                             "engines move to the spare, in their order.", "anyOf": [gpu_name, {"type": "array", "items": gpu_name}]},
        engines=_list("Engines of the host. Antennas and substreams are assigned to engines in the order of the file.",
                      engine, 64))
    host["properties"]["engines"]["minItems"] = 0  # a host may have only recorders
    return host


def _recorder(visrec):
    """The schema of an entry in the list 'recorders'."""
    return _object(
        "A visrec.", ["output", "host"],
        output=_text("The output of x_outputs that is recorded."),
        host=_text("The host that records."),
        interface=_text("The interface that receives the visibilities; default: the host's first interface."),
        directory=_folder(RECORDINGS), retention=_number(RETENTION, minimum=0, maximum=36500, default=0),
        centre_frequency=visrec["stream"]["properties"]["centre_frequency"],
        **{key: visrec["output"]["properties"][key] for key in ("max_file_size", "max_file_time")})


def _beam_recorder(beamrec):
    """The schema of an item of beam_recorders."""
    keys = {key: beamrec["beams"]["items"]["properties"][key] for key in ("bits", "sum_spectra", "sum_channels")}
    return _object(
        "A beamrec.", ["stream", "host"],
        stream=_text("The output of f_outputs; all its beams are recorded."),
        host=_text("The host that records."),
        interface=_text("The interface that receives the beams; default: the host's first interface."),
        directory=_folder(RECORDINGS), retention=_number(RETENTION, minimum=0, maximum=36500, default=0),
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
            controller=_object(
                "The controller: one KATCP address and one page for the whole array.", ["host"],
                host=_text("The host that runs the controller."),
                katcp=_number("TCP port of KATCP.", minimum=1, maximum=65535, default=7147),
                http=_number("TCP port of the page and of /metrics.", minimum=1, maximum=65535, default=8080)),
            hosts=_list("The machines.", _host(fgpu), 1024),
            fgpu=_engine_sections(engines["fgpu"], "fgpu"),
            xbgpu=_engine_sections(engines["xbgpu"], "xbgpu")),
    }
