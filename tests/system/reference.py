"""Interfaces for operators: the requests, sensors and metrics of the programs, as the programs describe them.

Each program is started as below and asked for ?help, ?sensor-list and /metrics.  Names of the example are replaced by
placeholders: {stream}, input{i}, and labels without their values.  `make reference` writes the result to docs/reference.
test_reference.py compares it, and scripts/manpages.py reads it for the manual pages.  Lines in the first column are a
section (one word in capitals) or an item of it.  Indented lines explain the item in full sentences.
"""
import re
import sys
import tempfile
import textwrap
from pathlib import Path

import control
import harness
from harness import LOOPBACK, merge

DIRECTORY = harness.ROOT / "docs" / "reference"
COLUMNS = 100
INTRODUCTIONS = {
    "REQUESTS": "What a client may ask over KATCP, where katcp.listen is set.",
    "SENSORS": "What a client may read and sample over KATCP: name, type, the words of a discrete one, and unit. "
               "What has the type timestamp is UNIX time in seconds.",
    "METRICS": "What /metrics serves to Prometheus where http.listen is set: name, labels and type. Beside each "
               "counter NAME_total there is a gauge NAME_created, the UNIX time in seconds since which it counts.",
}
MORE = {
    "{stream}": "{stream} is an output's name.",
    "{satellites}": "{satellites} is the name of a stream of satellites' sums.",
    "ant{i}": "ant{i} is the antenna with this place among those of the program, from 0.",
    "{satellite}": "{satellite} is a signal and a number, such as L1CA-7.",
    "{beam}": "{beam} is a beam's name.",
    "{antenna}.": "{antenna} is the name of an antenna (recv.antenna_names).",
    "input{i}": "{i} is the number of an input: 2 * the place of its antenna among those of the program + "
                "polarisation.",
    " | thread": "Where there are two sets of labels, what belongs to a known source is counted by the first, all else "
                "by thread.",
}
TOLD_LABELS = ("reason", "error")  # of which every value is told: they are the same everywhere
CREATED = "UNIX time at which the counter of this name began to count."


# ---- The example: a wide and a narrow stream, idle -------------------------------------------------------------------


def fgpu():
    outputs = [merge(harness.FGPU_OUTPUT, {"destinations": harness.groups(2)}),
               merge(harness.FGPU_OUTPUT, {"kind": "narrowband", "name": "narrow", "taps": 4, "decimation": 4,
                                           "ddc_taps": 40, "centre_frequency": 300e6,
                                           "destinations": harness.groups()})]
    antennas = [{"name": f"m{a:03d}", "feng_id": a, "pol0": harness.groups(), "pol1": harness.groups()} for a in (0, 1)]
    return merge(harness.FGPU, {"time": {"timebase": "clock"}, "recv": {"interface": LOOPBACK}, "send": {"interface": LOOPBACK, "ttl": 0},
                                "antennas": antennas, "outputs": outputs, "gnss": [
                                    {"name": "l1", "destination": harness.groups(), "centre_frequency": 719420000,
                                     "decimation": 32, "pass_bandwidth": 20e6, "sky_frequency": 1575.42e6}],
                                "satellites": [{"signal": "L1CA", "prns": [7]}]})


def xbgpu():
    outputs = [merge(harness.XBGPU_OUTPUT, {"destination": harness.groups()}),
               merge(harness.XBGPU_OUTPUT, {"name": "gated", "gate": "diode", "destination": harness.groups()})]
    gates = [{"name": "diode", "kind": "switch", "period": 1 << 20, "on_until": 1 << 19}]
    return merge(harness.XBGPU, {"time": {"timebase": "clock"}, "recv": {"interface": LOOPBACK, "sources": harness.groups(),
                                          "centre_frequency": 1284e6},
                                 "send": {"interface": LOOPBACK, "ttl": 0}, "gates": gates, "outputs": outputs,
                                 "beams": [{"name": "beam", "pol": 0, "destination": harness.groups()}],
                                 "detected": [{"name": "powers", "destination": harness.groups()}]})


def dsim(digitiser, **signals):
    return {"time": {"sync_time": 1700000000, "adc_sample_rate": 1e6},
            "digitiser": digitiser, **signals,
            "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": harness.groups(), "pol1": harness.groups()}],
            "send": {"interface": LOOPBACK, "ttl": 0}}


def dsim_recording(work):
    (work / "recording").write_bytes(bytes(1 << 16))
    return dsim({"loop": True}, recordings=[{"kind": "int8", "file": str(work / "recording")}] * 2)


def fsim():
    return {"time": {"sync_time": 1700000000, "adc_sample_rate": 1e6},
            "stream": {"antennas": 2, "channels": 64, "channels_per_substream": 4, "spectra_per_heap": 16,
                       "destinations": harness.groups(), "samples_between_spectra": 128},
            "signal": {"kind": "noise"}, "send": {"interface": LOOPBACK, "ttl": 0}}


def visrec(work):
    return {"time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000},
            "recv": {"sources": harness.groups(), "interface": LOOPBACK},
            "stream": {"channels": 64, "channels_per_substream": 64, "samples_between_spectra": 128,
                       "integration_time": 0.5},
            "telescope": {"name": "array", "latitude": -30.7, "longitude": 21.4, "altitude": 1038},
            "antennas": [{"name": "m000", "position": [0.0, 0.0, 0.0]}, {"name": "m001", "position": [30.0, 0.0, 0.0]}],
            "output": {"file": str(work / "out.uvh5")}}


def beamrec(work):
    return {"time": {"sync_time": 1700000000, "adc_sample_rate": 1712000000}, "recv": {"interface": LOOPBACK},
            "stream": {"channels": 64, "channels_per_substream": 64, "samples_between_spectra": 128},
            "beams": [{"name": "beam", "sources": harness.groups(), "filterbank": str(work / "out.fil")}]}


# Configurations that together have all that a program can say, in a directory.
PROGRAMS = {
    "fgpu": lambda work: [fgpu()],
    "xbgpu": lambda work: [xbgpu()],
    "dsim": lambda work: [dsim({"sample_bits": 8}, signals={"specification": "cw(0.5, 480);"}), dsim_recording(work)],
    "fsim": lambda work: [fsim()],
    "visrec": lambda work: [visrec(work)],
    "beamrec": lambda work: [beamrec(work)],
}
HAVE_KATCP = ("fgpu", "xbgpu", "dsim")


# ---- What a program says ---------------------------------------------------------------------------------------------


def requests(client):
    """{usage: text}"""
    items = {}
    for name, _ in client.informs("help"):
        ((_, said),) = client.informs("help", name)
        sentence, _, rest = said.partition("\n")
        usage, _, rest = rest.partition("\n") if rest else (f"?{name}", "", "")
        assert usage.split()[0] == f"?{name}", f"?{name}: the second line of its help is no usage: {said}"
        items[usage] = f"{sentence} {rest}".strip()
    return items


def sensors(client, streams, gnss, beams, detected):
    """{name (type, unit): text}"""
    items = {}
    for name, description, unit, kind, *words in client.informs("sensor-list"):
        stream, _, rest = name.partition(".")
        name = f"{{stream}}.{rest}" if stream in streams else f"{{beam}}.{rest}" if stream in beams else name
        if stream in detected:
            name = "{beam}." + re.sub(r"^\d+\.", "", rest)
        if stream in gnss:
            name = re.sub(r"^ant\d+\.[^.]+", "{satellites}.ant{i}.{satellite}", rest)
        name = re.sub(r"\binput\d+\b", "input{i}", name)
        name = re.sub(r"^a\d+\.", "{antenna}.", name)
        what = ", ".join(filter(None, [f"{kind}: {' | '.join(words)}" if words else kind, unit]))
        key = f"{name} ({what})"
        assert items.setdefault(key, description) == description, f"{key} has two descriptions"
    return items


def metrics(text):
    """{name{labels} (type): text}"""
    helps, kinds, labels, told = {}, {}, {}, {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, name, rest = line.split(" ", 3)
            {"HELP": helps, "TYPE": kinds}[what][name] = rest
            continue
        name, *pairs = re.findall(r'^\w+|\w+="[^"]*"', line)
        pairs = [pair.split("=") for pair in pairs]
        labels.setdefault(name, {})[", ".join(key for key, _ in pairs)] = None
        for key, value in pairs:
            if key in TOLD_LABELS:
                told.setdefault(name, {})[value.strip('"')] = None
    items = {}
    for name, said in helps.items():
        if said == CREATED:
            assert name.endswith("_created") and name.replace("_created", "_total") in helps
            continue
        keys = " | ".join(sorted(labels[name], key=lambda keys: ("thread" in keys, keys)))
        item = f"{name}{{{keys}}}" if keys else name
        items[f"{item} ({kinds[name]})"] = said + (f" One of: {', '.join(told[name])}." if name in told else "")
    return items


def wrapped(text):
    text = text.strip() + ("" if text.endswith(".") else ".")
    return textwrap.wrap(text, COLUMNS, initial_indent="    ", subsequent_indent="    ", break_long_words=False,
                         break_on_hyphens=False)


def section(title, items):
    more = [text for part, text in MORE.items() if any(part in item for item in items)]
    lines = [title, "", *wrapped(" ".join([INTRODUCTIONS[title], *more]))]
    for item in sorted(items):
        assert items[item], f"{item} is not described"
        lines += ["", item, *wrapped(items[item])]
    return "\n".join(lines) + "\n"


def ask(program, config, work):
    """{section: its items} of a program that runs with 'config' in 'work' for that."""
    found = {}
    for name in ("katcp", "http") if program in HAVE_KATCP else ("http",):
        config = merge(config, {name: {"listen": f"{LOOPBACK}:{harness.free_tcp_port()}"}})
    if "device" in config:
        config = merge(config, {"device": {"kind": "cpu"}})
    daemon = harness.Daemon(program, config, work, program)
    try:
        daemon.wait_ready()
        if "katcp" in config:
            with control.Client(daemon) as client:
                found["REQUESTS"] = requests(client)
                found["SENSORS"] = sensors(client, *([item["name"] for item in config.get(key, [])]
                                                     for key in ("outputs", "gnss", "beams", "detected")))
        found["METRICS"] = metrics(harness.page(config["http"]["listen"], "metrics"))
    finally:
        daemon.kill()
    (work / f"{program}.notify").unlink()
    return found


def reference(program, work):
    """The text about a program."""
    sections = {}
    for config in PROGRAMS[program](work):
        for title, items in ask(program, config, work).items():
            sections.setdefault(title, {}).update(items)
    return "\n".join(section(title, items) for title, items in sections.items())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        for name in sys.argv[1:] or PROGRAMS:
            (DIRECTORY / f"{name}.txt").write_text(reference(name, Path(directory)))
