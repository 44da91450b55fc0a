#!/usr/bin/env python3
"""Plots a UVH5 file of visrec: fringes of all baselines, autocorrelations, a waterfall of one baseline, and lost
data.

The fringes show the correlation coefficient |V12| / sqrt(V11 V22), so 1 is full correlation.  With --model, the
waterfall shows the baseline twice: as recorded, and as it would be if the F-engine had not applied the delay model.
"""

import argparse
import datetime
import pathlib
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.colors import LinearSegmentedColormap, LogNorm  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

import visfile  # noqa: E402

# Okabe and Ito's palette without black and yellow.  Colour-blind readers can tell these colours apart.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
DASHES = ["-", "--", ":", "-."]  # line styles; if one style has used all colours, the next style follows
# Cyclic colours for a phase in degrees.  A phase of 0 has the lightest colour, and +-180 has the darkest colour.  So
# lightness alone shows how well the signals are aligned.  Blue and red show the sign of the phase.
PHASE_MAP = LinearSegmentedColormap.from_list(
    "phase", ["#1B1B4B", "#1F5FA8", "#55B7C8", "#FFF19A", "#EE8A34", "#A32348", "#1B1B4B"])
LOST_MAP = plt.get_cmap("YlOrBr").with_extremes(bad="white")
NOTHING_PERCENT = 1e-4  # smaller values are not losses but rounding errors of nsamples (floats)
LEAST_LOST_PERCENT = 0.1  # lower end of the colour scale; smaller losses have the scale's lightest colour
MAX_PANELS = 15
MAX_COLUMNS = 300  # number of columns of a waterfall: small, so that each column is wider than a pixel
MAX_NAMES = 40  # maximum number of antenna names on the axis of the picture of lost data
DPI = 110

plt.rcParams.update({
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "hatch.linewidth": 0.4,
})


# ---- Plotted values --------------------------------------------------------------------------------------------------

def coefficient(data, rows, a1, a2):
    """Returns |V12| / sqrt(V11 V22), masked where a power is 0.  'rows' are visibilities by baseline and channel."""
    power = (rows[..., data.index(a1, a1), :] * rows[..., data.index(a2, a2), :]).real
    return np.ma.abs(rows[..., data.index(a1, a2), :]) / np.ma.sqrt(np.ma.masked_less_equal(power, 0))


def phase_deg(vis):
    return np.ma.MaskedArray(np.degrees(np.angle(vis.filled(0))), np.ma.getmaskarray(vis) | (vis.filled(0) == 0))


def time_rows(data, values):
    """Returns the values of the dumps on a regular grid of time.  Missing dumps become gaps."""
    step = np.rint((data.unix_s - data.unix_s[0]) / data.integration_s).astype(int)
    rows = np.ma.masked_all((step[-1] + 1, *values.shape[1:]), dtype=values.dtype)
    rows[step] = values
    return rows


def read_models(path):
    """Returns an antenna's delay models from a file for fgpu: {pol: [(start, delay, rate, phase, phase rate,
    acceleration of the delay, acceleration of the phase)]}."""
    models = {0: [], 1: []}
    for line in pathlib.Path(path).read_text().splitlines():
        fields = line.partition("#")[0].split()
        if fields:
            start, pol, *numbers = fields
            models[int(pol)].append([float(start), *map(float, numbers), 0.0, 0.0][:7])
    return models


def model_rad(models, unix_s, offsets_hz):
    """Returns the phase that an F-engine adds, by time and channel (fgpu/delay.h).  'offsets_hz' are the channels'
    frequencies minus the frequency of the band's centre."""
    phase = np.zeros((len(unix_s), len(offsets_hz)))
    for start, delay, rate, angle, angle_rate, acceleration, angle_acceleration in models:
        t = (unix_s - start)[:, np.newaxis]
        model = (-2 * np.pi * offsets_hz * (delay + rate * t + acceleration * t**2 / 2)
                 + angle + angle_rate * t + angle_acceleration * t**2 / 2)
        phase = np.where(t >= 0, model, phase)  # a later model replaces an earlier model
    return phase


def untracked(data, a1, a2, models):
    """Returns a baseline's visibilities without the effect of the delay models 'models', {antenna's name:
    read_models()}."""
    offsets_hz = data.freqs_hz - data.freqs_hz[len(data.freqs_hz) // 2]
    vis = data.vis[:, data.index(a1, a2)]
    for ant, feed, sign in ((a1, data.pol[0], 1), (a2, data.pol[1], -1)):  # conj(e_a1) e_a2
        if data.names[ant] in models:
            model = models[data.names[ant]]["xy".index(feed)]
            vis = vis * np.exp(1j * sign * model_rad(model, data.unix_s, offsets_hz))
    return vis


def lost_percent(sets):
    """Returns the percentage of data that each antenna's autocorrelations lack, by time and antenna.

    The lost part is 1 - nsamples, or 1 if data are flagged.  A gated output has fewer data by design.
    """
    data = sets[0]
    autos = [data.index(ant, ant) for ant in range(len(data.names))]
    came = np.mean([np.where(np.ma.getmaskarray(each.vis), 0, each.nsamples)[:, autos].mean(axis=2, dtype=float)
                    for each in sets], axis=0)
    return 100 * np.clip(1 - time_rows(data, came).filled(0), 0, 1)


# ---- Parts of a picture ----------------------------------------------------------------------------------------------

def start_text(data):
    start = datetime.datetime.fromtimestamp(data.unix_s[0] - data.integration_s / 2, datetime.timezone.utc)
    return start.strftime("%Y-%m-%d %H:%M:%S UTC")


def subtitle(data):
    flagged = 100 * np.ma.getmaskarray(data.vis).mean()
    n_dumps = len(data.unix_s)
    return (f"{n_dumps} dump{'s' if n_dumps > 1 else ''} of {data.integration_s:.3g} s from {start_text(data)}, "
            f"{flagged:.3g} % flagged")


def set_frequency_axis(axis, data):
    """Makes the frequency axis show the whole band, with few ticks, so that the labels have room."""
    width_mhz = (data.freqs_hz[1] - data.freqs_hz[0]) / 1e6 if len(data.freqs_hz) > 1 else 1
    axis.set_xlim(data.freqs_hz[0] / 1e6 - width_mhz / 2, data.freqs_hz[-1] / 1e6 + width_mhz / 2)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))


def add_marks(axis, marks, names):
    """Hatches the marked parts of the band.  explain() writes the explanations below the picture."""
    for ant, low, high, _ in marks:
        if ant in names:
            axis.axvspan(low, high, facecolor="none", edgecolor="#777777", hatch="///", linewidth=0, zorder=0.5)


def explain(figure, marks, names):
    """Writes the explanations of these antennas' marks below the picture."""
    text = "\n".join(f"Hatched, {low:g} to {high:g} MHz: {text}" for ant, low, high, text in marks if ant in names)
    if text:
        figure.supxlabel(text, fontsize=10, color="#444444")


def save(figure, path):
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return path


# ---- Pictures --------------------------------------------------------------------------------------------------------

def plot_all(sets, marks, output):
    """Plots the correlation coefficient and the phase of each cross-correlation, averaged over time."""
    data = sets[0]
    cross = [pair for pair in data.baselines if pair[0] != pair[1]]
    if not cross:
        return None
    shown = cross[:MAX_PANELS]
    n_columns = min(3, len(shown))
    n_rows = -(-len(shown) // n_columns)
    figure, axes = plt.subplots(2 * n_rows, n_columns, squeeze=False, sharex=True, sharey="row", layout="constrained",
                                figsize=(3.6 * n_columns, 3.3 * n_rows + 1.1))
    note = "" if len(shown) == len(cross) else f" (first {len(shown)} of {len(cross)} baselines)"
    figure.suptitle(f"{data.telescope}: fringes, mean over time{note}\n{subtitle(data)}", fontsize=12)
    means = [each.vis.mean(axis=0) for each in sets]
    highest = 0
    for n, (a1, a2) in enumerate(shown):
        amplitude, phase = axes[2 * (n // n_columns):2 * (n // n_columns) + 2, n % n_columns]
        amplitude.set_title(data.label(a1, a2), fontweight="bold")
        for i, (each, mean) in enumerate(zip(sets, means)):
            level = coefficient(each, mean, a1, a2)
            highest = max(highest, level.max() if level.count() else 0)
            amplitude.plot(each.freqs_hz / 1e6, level, color=PALETTE[i], linewidth=1, label=each.pol)
            # The second polarisation has smaller dots, so that the dots of the first polarisation stay visible.
            phase.plot(each.freqs_hz / 1e6, phase_deg(mean[each.index(a1, a2)]), ".", color=PALETTE[i],
                       markersize=5 / (1 + 2 * i), markeredgewidth=0)
        for axis in (amplitude, phase):
            add_marks(axis, marks, {data.names[a1], data.names[a2]})
            set_frequency_axis(axis, data)
    for row, axis in enumerate(axes[:, 0]):
        axis.set_ylabel("Phase (deg)" if row % 2 else "Correlation")
        axis.set_ylim((-200, 200) if row % 2 else (0, 1.1 * highest or 1))
        if row % 2:
            axis.set_yticks([-180, -90, 0, 90, 180])
    for axis in axes.flat[2 * n_columns * n_rows - n_columns:]:
        axis.set_xlabel("Frequency (MHz)")
    for n in range(len(shown), n_rows * n_columns):
        axes[-2, n % n_columns].axis("off")
        axes[-1, n % n_columns].axis("off")
    axes[0, 0].legend(loc="lower left", ncols=len(sets), frameon=False)
    explain(figure, marks, data.names)
    return save(figure, output / "fringes.png")


def plot_autos(sets, marks, output):
    """Plots the power spectra of the antennas."""
    data = sets[0]
    figure, axes = plt.subplots(1, len(sets), figsize=(10.8, 4.4), squeeze=False, sharey=True, layout="constrained")
    figure.suptitle(f"{data.telescope}: autocorrelations, mean over time\n{subtitle(data)}", fontsize=12)
    n_ants = len(data.names)
    for each, axis in zip(sets, axes[0]):
        for ant in range(n_ants):
            mean = np.ma.masked_less_equal(np.ma.abs(each.vis[:, each.index(ant, ant)].mean(axis=0)), 0)
            axis.plot(each.freqs_hz / 1e6, 10 * np.ma.log10(mean), linewidth=1, label=each.names[ant],
                      color=PALETTE[ant % len(PALETTE)], linestyle=DASHES[ant // len(PALETTE) % len(DASHES)])
        axis.set_title(each.pol, fontweight="bold")
        axis.set_xlabel("Frequency (MHz)")
        add_marks(axis, marks, data.names)
        set_frequency_axis(axis, data)
    axes[0, 0].set_ylabel("Power (dB of 1 count)")
    if n_ants <= 24:
        axes[0, -1].legend(ncols=-(-n_ants // 12), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    explain(figure, marks, data.names)
    return save(figure, output / "autos.png")


def n_joined_channels(data):
    return -(-len(data.freqs_hz) // MAX_COLUMNS)


def join_channels(data, values):
    """Joins neighbouring channels into columns.  A column has the largest value of its channels, so tones stay
    visible."""
    step = n_joined_channels(data)
    return np.ma.stack([values[:, start:start + step].max(axis=1) for start in range(0, values.shape[1], step)], axis=1)


def waterfall_panels(data, a1, a2, models):
    """Returns the panels of one polarisation product: [(title, kind, values by time and channel)]."""
    model_names = " and ".join(data.names[ant] for ant in (a1, a2) if data.names[ant] in models)
    rows = time_rows(data, data.vis)
    panels = [("correlation, as recorded", "level", join_channels(data, coefficient(data, rows, a1, a2))),
              ("phase, tracked (as recorded)" if model_names else "phase, as recorded", "phase",
               phase_deg(rows[:, data.index(a1, a2)]))]
    if model_names:
        off = time_rows(data, untracked(data, a1, a2, models))
        panels.append((f"phase, not tracked (computed:\ndelay model of {model_names} added again)", "phase", phase_deg(off)))
    return panels


def plot_waterfall(sets, a1, a2, models, marks, output):
    """Plots the correlation coefficient and the phase of one baseline against frequency and time."""
    data = sets[0]
    names = {data.names[a1], data.names[a2]}
    found = [waterfall_panels(each, a1, a2, models) for each in sets]
    duration_s = found[0][0][2].shape[0] * data.integration_s
    figure, axes = plt.subplots(len(sets), len(found[0]), figsize=(10.8, 2.6 * len(sets) + 1.9), squeeze=False,
                                sharex=True, sharey=True, layout="constrained")
    figure.suptitle(f"{data.telescope}: {data.label(a1, a2)}\n{subtitle(data)}; grey: no data", fontsize=12)
    highest = max((panels[0][2].max() for panels in found if panels[0][2].count()), default=1)
    style = {"level": {"cmap": "viridis", "vmin": 0, "vmax": highest},
             "phase": {"cmap": PHASE_MAP, "vmin": -180, "vmax": 180}}
    images = {}
    for row, (each, panels) in enumerate(zip(sets, found)):
        for column, (title, kind, values) in enumerate(panels):
            axis = axes[row, column]
            axis.grid(False)
            axis.set_facecolor("#bbbbbb")
            set_frequency_axis(axis, data)
            images[kind] = axis.imshow(values, extent=(*axis.get_xlim(), duration_s, 0), aspect="auto",
                                       interpolation="nearest", **style[kind])
            axis.set_title(f"{each.pol}: {title}" if row == 0 else f"{each.pol}: the same", fontsize=10)
            add_marks(axis, marks, names)
    figure.supylabel("Time since start (s)", fontsize=11)
    for axis in axes[-1]:
        axis.set_xlabel("Frequency (MHz)")
    joined = f", the largest of {n_joined_channels(data)} channels" if n_joined_channels(data) > 1 else ""
    figure.colorbar(images["level"], ax=axes[:, :1], label="correlation" + joined, location="bottom", pad=0.03,
                    aspect=30)
    bar = figure.colorbar(images["phase"], ax=axes[:, 1:], label="phase (deg)", location="bottom", pad=0.03, aspect=50,
                          ticks=[-180, -90, 0, 90, 180])
    bar.ax.set_xticklabels(["−180\nopposed", "−90", "0\naligned", "90", "180\nopposed"])
    explain(figure, marks, names)
    plain = re.sub(r"[^\w.-]", "_", f"waterfall_{data.names[a1]}-{data.names[a2]}.png")
    return save(figure, output / plain)


def plot_lost(sets, output):
    """Plots lost data against time, by antenna."""
    data = sets[0]
    lost = lost_percent(sets)
    n_times, n_ants = lost.shape
    n_absent = n_times - len(data.unix_s)
    figure, axis = plt.subplots(figsize=(10.8, min(12, 2.2 + 0.35 * n_ants)), layout="constrained")
    figure.suptitle(f"{data.telescope}: lost data of each antenna and dump, {' and '.join(each.pol for each in sets)}\n"
                    f"{n_times} dumps of {data.integration_s:.3g} s from {start_text(data)}"
                    + (f", {n_absent} of them absent" if n_absent else ""), fontsize=12)
    axis.grid(False)
    image = axis.imshow(np.ma.masked_less(lost, NOTHING_PERCENT).T, aspect="auto",
                        extent=(0, n_times * data.integration_s, n_ants - 0.5, -0.5),
                        interpolation="nearest", cmap=LOST_MAP, norm=LogNorm(LEAST_LOST_PERCENT, 100))
    bar = figure.colorbar(image, ax=axis, label="lost (white: nothing)", pad=0.02, ticks=[0.1, 1, 10, 100])
    bar.ax.set_yticklabels(["0.1 %", "1 %", "10 %", "100 %"])
    bar.ax.minorticks_off()
    every = -(-n_ants // MAX_NAMES)
    axis.set_yticks(range(0, n_ants, every), data.names[::every])
    axis.set_xlabel("Time since start (s)")
    total = axis.secondary_yaxis("right")
    total.set_yticks(range(0, n_ants, every), [f"{mean:.3g} %" for mean in lost.mean(axis=0)[::every]])
    total.set_ylabel("lost, mean of all dumps")
    if lost.max() < NOTHING_PERCENT:
        axis.text(0.5, 0.5, f"nothing lost: {n_ants} antenna{'s' if n_ants > 1 else ''}, {n_times} dumps", fontsize=14,
                  ha="center", va="center", transform=axis.transAxes)
    return save(figure, output / "lost.png")


# ---- The command -----------------------------------------------------------------------------------------------------

def find_baseline(data, text):
    """Returns the indices of two antennas, in the file's order.  'text' names the antennas, like "m000,m001"; if
    'text' is None, these are the first two antennas."""
    if text is None:
        return 0, min(1, len(data.names) - 1)
    names = text.split(",")
    if len(names) != 2 or not set(names) <= set(data.names):
        sys.exit(f"{data.path}: has no baseline {text!r}: give two of its antennas, as in "
                 f"{data.names[0]},{data.names[-1]}; it has {', '.join(data.names)}")
    return tuple(sorted(data.names.index(name) for name in names))


def parse_marks(groups):
    try:
        return [(ant, float(low), float(high), text) for ant, low, high, text in groups]
    except ValueError as error:
        sys.exit(f"--mark: {error}")


def parse_models(groups):
    try:
        return {name: read_models(path) for name, path in groups}
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"--model: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="UVH5 file")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), help="directory of the PNGs")
    parser.add_argument("--pol", nargs="+", default=["xx", "yy"], choices=visfile.POL_NAMES.values(),
                        help="polarisation products (default: xx yy)")
    parser.add_argument("--baseline", help="antennas of the waterfall, as in m000,m003 (default: the first two)")
    parser.add_argument("--model", nargs=2, action="append", default=[], metavar=("ANTENNA", "FILE"),
                        help="delay models of an antenna in fgpu: the waterfall also shows phases without these models")
    parser.add_argument("--mark", nargs=4, action="append", default=[], metavar=("ANTENNA", "MHZ", "MHZ", "TEXT"),
                        help="hatches a part of the band in an antenna's plots, and explains it with TEXT")
    args = parser.parse_args()
    try:
        sets = [visfile.load(args.file, pol) for pol in args.pol]
    except visfile.Unreadable as error:
        sys.exit(str(error))
    marks, models = parse_marks(args.mark), parse_models(args.model)
    baseline = find_baseline(sets[0], args.baseline)
    args.output.mkdir(parents=True, exist_ok=True)
    for path in [plot_all(sets, marks, args.output), plot_autos(sets, marks, args.output),
                 plot_waterfall(sets, *baseline, models, marks, args.output), plot_lost(sets, args.output)]:
        if path:
            print(path)


if __name__ == "__main__":
    main()
