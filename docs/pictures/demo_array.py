#!/usr/bin/env python3
"""docs/images/demo-array.svg: the programs of `make demo`, with their addresses, ports and pages, from config/demo."""
import re

from drawing import Picture
from facts import source


def config(name):
    return source(f"config/demo/{name}.yaml")


def find(name, pattern):
    match = re.search(pattern, config(name), re.M)
    if not match:
        raise ValueError(f"config/demo/{name}.yaml does not match {pattern}")
    return match[1]


def antennas(name):
    """[(name, pol0, pol1)]"""
    return re.findall(r'^  - \{name: (\w+),.*?pol0: "([\d.]+):7148", pol1: "([\d.]+):7148"', config(name), re.M)


def endpoints(text):
    """a.b.c.d+n:port as n + 1 texts."""
    base, extra, port = re.match(r"([\d.]+?)(?:\+(\d+))?:(\d+)$", text).groups()
    front, _, last = base.rpartition(".")
    return [f"{front}.{int(last) + i}:{port}" for i in range(int(extra or 0) + 1)]


def page(name):
    return find(name, r"^  listen: ([\d.]+:\d+)$")


def katcp(name):
    return find(name, r"^katcp: \{listen: ([\d.]+:\d+)\}")


def engine(p, x, y, name, what, colour):
    p.box(x, y, 196, 86, [(name, "h"), (what, "s"), (f"page http://{page(name)}/", "xs"), (f"KATCP {katcp(name)}", "xs")], colour)


def draw():
    p = Picture("demo-array", "The programs of make demo: dsim, two F-engines, two X-engines and a recorder, with their addresses",
                1000, 372)
    p.text(14, 24, "make demo: one simulated array on the loopback interface", "h1")
    p.notes(43, "All arrows are SPEAD over UDP multicast on lo with a TTL of 0. Files: config/demo.",
            "make demo KEEP=1 keeps the programs running.")
    of_dsim, groups = antennas("dsim"), endpoints(find("fgpu0", r"destinations: (\S+)"))
    dumps = endpoints(find("visrec", r"sources: (\S+)"))
    f_at, x_at = [86, 226], [86, 226]

    p.box(14, 122, 130, 148, [("dsim", "h"), (f"{len(of_dsim)} digitisers,", "s"), ("2 polarisations each", "s"), ("KATCP", "xs"),
                             (katcp("dsim"), "xs")], "tool")
    for i, name in enumerate(("fgpu0", "fgpu1")):
        mine = antennas(name)
        if not all(antenna in of_dsim for antenna in mine) or endpoints(find(name, r"destinations: (\S+)")) != groups:
            raise ValueError(f"config/demo/{name}.yaml and dsim.yaml differ")
        engine(p, 270, f_at[i], name, "F-engine of " + " and ".join(antenna[0] for antenna in mine), "f")
        y = f_at[i] + 43
        p.arrow([(144, 196 + (-40, 40)[i]), (170, 196 + (-40, 40)[i]), (170, y), (270, y)], "net")
        for row, (antenna, pol0, pol1) in enumerate(mine):
            p.text(176, y + (-22 if row == 0 else 14), antenna, "xs")
            p.text(262, y + (-10 if row == 0 else 26), f"{pol0}, .{pol1.rpartition('.')[2]}", "xs", "end")
    p.text(176, 202, "all on port 7148", "d")
    for i, name in enumerate(("xbgpu0", "xbgpu1")):
        first, n = int(find(name, r"channel_offset: (\d+)")), int(find(name, r"channels_per_substream: (\d+)"))
        if find(name, r"sources: (\S+)") != groups[i] or find(name, r"destination: (\S+)") != dumps[i]:
            raise ValueError(f"config/demo/{name}.yaml has other addresses than its neighbours")
        engine(p, 620, x_at[i], name, f"X-engine, channels {first} to {first + n - 1}", "x")
        for f in range(2):
            p.arrow([(466, f_at[f] + 43 + (-14, 14)[i]), (484, f_at[f] + 43 + (-14, 14)[i]), (600, x_at[i] + 43 + (-14, 14)[f]),
                     (620, x_at[i] + 43 + (-14, 14)[f])], "net")
        p.text(541, (100, 324)[i], groups[i], "xs", "middle")
        p.text(541, (86, 338)[i], f"half {i + 1} of the band", "d", "middle")
        p.arrow([(816, x_at[i] + 43), (836, x_at[i] + 43), (836, 196 + (-24, 24)[i]), (858, 196 + (-24, 24)[i])], "net")
        p.text(826, (100, 324)[i], dumps[i], "xs")
    p.box(858, 140, 128, 116, [("visrec", "h"), ("recorder", "s"), (f"{find('visrec', r'max_dumps: (.+)')} dumps", "s"),
                              ("page", "xs"), (f"http://{page('visrec')}/", "xs")], "rec")
    p.arrow([(962, 256), (962, 334)], "rec")
    p.text(986, 350, find("visrec", r"file: (\S+)"), "s", "end")
    p.text(986, 364, "→ table and pictures", "d", "end")
    return p


if __name__ == "__main__":
    draw().write()
