#!/usr/bin/env python3
"""Draws the picture of docs/performance.md from the page's tables: the rates of both engines' kernels on a GPU.

  scripts/bench/plot_rates.py      writes docs/images/gpu-rates.svg; the picture's description has the numbers
"""

import json
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "performance.md", DOCS / "images" / "gpu-rates.svg"
# Rates of the reference implementation's kernels on an H200 in 10^9 samples/s, copied from PAGE.
REFERENCE = {1024: 67, 4096: 72.5, 8192: 72.5, 32768: 73}
COLOURS = {"fgpu": "#0072B2", "cuFFT": "#56B4E9", "reference": "#D55E00", "4 bits": "#56B4E9", "8 bits": "#0072B2",
           "16 bits": "#009E73"}


def read(page):
    """Returns the figures in the page's text: {"fgpu": {channels: [min, median, max]}, "cuFFT": the same,
    "between": memory limit in 10^9 samples/s, "xbgpu": {format: {antennas: TOPS}}, "int8": TOPS of cuBLASLt}."""
    block = page.split("\nF-engine\n", 1)[1].split("```", 1)[0]
    found = {"fgpu": {}, "cuFFT": {}, "xbgpu": {}}
    for line in block.splitlines():
        numbers = [float(n) for n in re.findall(r"(?<= )[\d.]+(?= )", line.partition(":")[2] or line)][:3]
        if match := re.match(r"(\d+) channels: kernels alone", line):
            channels = int(match[1])
            found["fgpu"][channels] = numbers
        elif "FFT alone" in line and "kernels" not in line:
            found["cuFFT"][channels] = numbers
    found["between"] = float(re.search(r"(\d+)  at [\d.]+ bytes of device memory a sample: two kernels", page)[1])
    table = re.search(r"\| antennas \| (4 bits) \| (8 bits) \| (16 bits) \|.*?\n\n", page, re.S)
    for row in re.findall(r"^\| (\d+) \| (\d+) \(\d+\) \| (\d+) \(\d+\) \| (\d+) \(\d+\) \|", table[0], re.M):
        for name, value in zip(table.groups(), row[1:]):
            found["xbgpu"].setdefault(name, {})[int(row[0])] = float(value)
    found["int8"] = float(re.search(r"\(int8\s+product\s+(\d+)\s+TOPS", page)[1])
    # JSON turns all keys into texts, as in the picture's description.
    return json.loads(json.dumps(found))


def plot_f(axis, found):
    places = {channels: place for place, channels in enumerate(found["fgpu"])}
    reference = {str(channels): [rate] * 3 for channels, rate in REFERENCE.items()}
    for offset, name, label, rates in ((-0.27, "fgpu", "fgpu: all of the F-engine", found["fgpu"]),
                                       (0, "reference", "katgpucbf: the same", reference),
                                       (0.27, "cuFFT", "cuFFT: only the transform", found["cuFFT"])):
        low, middle, high = zip(*rates.values())
        spread = [[m - n for m, n in zip(middle, low)], [n - m for m, n in zip(middle, high)]]
        axis.bar([places[channels] + offset for channels in rates], middle, 0.26, yerr=spread, capsize=2,
                 color=COLOURS[name], label=label)
    axis.axhline(found["between"], color="#777777", ls="--", lw=1)
    axis.text(len(places) - 0.5, found["between"] + 3, "device memory,\ntwo kernels", ha="right", fontsize=8,
              color="#555555")
    for channels, place in places.items():
        if channels not in reference:
            axis.text(place, 3, "not measured", rotation=90, ha="center", va="bottom", fontsize=7,
                      color=COLOURS["reference"])
    axis.set_xticks(list(places.values()), list(places))
    axis.set(title="F-engine, 16 taps, 10 to 8 bits, dither", xlabel="channels",
             ylabel="10⁹ samples/s of two polarisations")
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, columnspacing=1)


def plot_x(axis, found):
    for name, rates in found["xbgpu"].items():
        axis.plot([int(n) for n in rates], list(rates.values()), "o-", ms=4, color=COLOURS[name], label=name)
    axis.axhline(found["int8"], color="#777777", ls="--", lw=1)
    axis.text(16, found["int8"] - 60, "cuBLASLt: a product of int8 matrices", fontsize=8, color="#555555")
    axis.set_xscale("log", base=2)
    antennas = [int(n) for n in found["xbgpu"]["8 bits"]]
    # the label 80 is one line lower, because the label 64 is near
    axis.set_xticks(antennas, [f"\n{n}" if n == 80 else n for n in antennas])
    axis.set(title="X-engine, correlation", xlabel="antennas", ylabel="10¹² operations/s", ylim=(0, None))
    axis.annotate("80 antennas: 1024 spectra in a\nlaunch, so sums weigh more;\nelsewhere 8192 (16 bits) or 32768",
                  fontsize=7.5, xy=(80, 1.03 * found["xbgpu"]["4 bits"]["80"]), xytext=(16, 1140), color="#555555",
                  arrowprops={"arrowstyle": "-", "color": "#777777", "lw": 0.8, "relpos": (0.71, 0)})
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)


def main():
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "rates", "svg.fonttype": "none", "font.size": 9, "grid.color": "#dddddd",
                                "axes.axisbelow": True, "axes.grid": True, "axes.spines.top": False,
                                "axes.spines.right": False})
    import matplotlib.pyplot as plt

    found = read(PAGE.read_text())
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3))
    left.grid(axis="x", visible=False)
    plot_f(left, found)
    plot_x(right, found)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None, "Description": json.dumps(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
