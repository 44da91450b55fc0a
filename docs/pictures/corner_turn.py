#!/usr/bin/env python3
"""docs/images/corner-turn.svg: the streams of the array of config/array/array.yaml, with the addresses that scripts/array deals."""
import sys

import yaml
from drawing import Picture
from facts import ROOT, source

sys.path.insert(0, str(ROOT / "scripts"))
import array_plan  # noqa: E402


class Section(dict):
    """The part of array_file.Section that the plan uses."""

    def mark_at(self, key):
        return None

    def __missing__(self, key):
        return None


def sections(value):
    if isinstance(value, dict):
        return Section({key: sections(item) for key, item in value.items()})
    return [sections(item) for item in value] if isinstance(value, list) else value


def plan():
    array = sections(yaml.safe_load(source("config/array/array.yaml")))
    for host in array["hosts"]:
        host.setdefault("engines", [])
    made = array_plan.Plan(array)
    array_plan.make_engines(made)
    array_plan.deal(made, [])
    network = array_plan.multicast_range(array, [])
    array_plan.deal_addresses(made, network, [])
    return made


def middle(top, bottom, i, n):
    return top + (bottom - top) * (i + 0.5) / n


def draw():
    made = plan()
    array = made.array
    f_engines = [e for e in made.engines if e.kind == "fgpu"]
    x_engines = [e for e in made.engines if e.kind == "xbgpu"]
    n_groups, = {len(array_plan.parse_feed(a[pol])) for a in array["antennas"] for pol in ("pol0", "pol1")}
    n_antennas, top, bottom = len(array["antennas"]), 104, 524
    p = Picture("corner-turn", "The corner turn of an array: every F-engine sends to the multicast group of every channel slice",
                1000, 592)
    p.text(14, 24, "An array and its corner turn: data arrive by antenna and leave by channel", "h1")
    p.text(14, 43, f"config/array/array.yaml: {n_antennas} antennas, {len(f_engines)} fgpu, {len(x_engines)} xbgpu, "
                   f"{sum(not host['spare'] for host in array['hosts'])} hosts. Addresses and names are those that scripts/array deals.", "d")
    for x, name, detail in ((70, "digitisers", f"2 × {n_groups} groups each"), (243, "F-engines", "some antennas, all channels"),
                            (455, "multicast groups", "one for each channel slice"), (667, "X-engines", "all antennas, one slice"),
                            (893, "recorders", "all slices")):
        p.text(x, 74, name, "h", "middle")
        p.text(x, 90, detail, "d", "middle")

    for i, antenna in enumerate(array["antennas"]):
        y = middle(top, bottom, i, n_antennas)
        p.box(30, y - 16, 80, 32, [(antenna["name"], "s")], "tool")
    for e, engine in enumerate(f_engines):
        y = middle(top, bottom, e, len(f_engines))
        names = " and ".join(antenna["name"] for _, antenna in engine.antennas)
        p.box(178, y - 30, 130, 60, [(f"fgpu@{engine.name}", "h"), (names, "s"), (f"on {engine.host['name']}", "xs")], "f")
        for i, _ in engine.antennas:
            at = middle(top, bottom, i, n_antennas)
            p.arrow([(110, at), (140, at), (158, y + (at - y) / 4), (178, y + (at - y) / 4)], "tool")
    for k, engine in enumerate(x_engines):
        y = middle(top, bottom, k, len(x_engines))
        stream = engine.stream
        width = stream["channels"] // stream["substreams"]
        first = engine.substream * width
        address = made.f_groups[stream["name"]][engine.substream]
        p.box(390, y - 25, 130, 50,
              [(address, "s"), (f"{stream['name']}, channels", "xs"), (f"{first} to {first + width - 1}", "xs")], "net")
        for e in range(len(f_engines)):
            at = middle(top, bottom, e, len(f_engines)) + 6 * (k - (len(x_engines) - 1) / 2)
            to = y + 7 * (e - (len(f_engines) - 1) / 2)
            p.line([(308, at), (390, to)], "net")
        p.arrow([(520, y), (602, y)], "net")
        p.text(561, y - 7, f"{n_antennas} antennas", "d", "middle")
        p.box(602, y - 25, 130, 50, [(f"xbgpu@{engine.name}", "h"), (f"on {engine.host['name']}", "xs")], "x")

    recorders = [(f"visrec@r{i}", r["output"], made.x_groups[r["output"]], ["visibilities", f"of {r['output']}"])
                 for i, r in enumerate(array["recorders"])]
    for i, r in enumerate(array["beam_recorders"]):
        streams = [b["name"] for b in array["beams"] + array["detected"] if b["stream"] == r["stream"]]
        recorders.append((f"beamrec@b{i}", r["stream"], None, [f"{len(streams)} streams of beams", f"of {r['stream']}"]))
    for i, (name, of, groups, lines) in enumerate(recorders):
        y = middle(top, bottom, i, len(recorders))
        addresses = [] if groups is None else [(groups[0] if len(groups) == 1 else f"{len(groups)} addresses", "xs")]
        p.box(828, y - 38, 130, 76, [(name, "h"), *((line, "s") for line in lines), *addresses], "rec")
        sources = [k for k, engine in enumerate(x_engines)
                   if of in (engine.stream["name"], *(o["name"] for o in made.made_of("x_outputs", engine.stream)))]
        for rank, k in enumerate(sources):
            at = middle(top, bottom, k, len(x_engines)) + 9 * (i - 1)
            to = y + 10 * (rank - (len(sources) - 1) / 2)
            p.arrow([(732, at), (750, at), (812, to), (828, to)], "rec")
    p.notes(552, "Each fgpu sends one heap of each batch of each antenna to each group.",
            "Each xbgpu joins one group and gets the same channels of all antennas.",
            "Each xbgpu sends its slice of the visibilities and of each beam to an address of its own.",
            "A recorder joins all of these addresses.")
    return p


if __name__ == "__main__":
    draw().write()
