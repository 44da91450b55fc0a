#!/usr/bin/env python3
"""Plots of a UVH5 file of visrec: fringes of all baselines, autocorrelations, and a waterfall of one baseline."""

import argparse
import datetime
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.colors import LogNorm  # noqa: E402

import visfile  # noqa: E402

# Okabe and Ito's palette, which colour-blind readers can tell apart; black and yellow are left out.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
AMPLITUDE_COLOUR, PHASE_COLOUR = PALETTE[0], PALETTE[1]
DASHES = ["-", "--", ":", "-."]  # for when the palette comes round again
MAX_PANELS = 15
DPI = 130

plt.rcParams.update({
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
})


def start_text(data):
    start = datetime.datetime.fromtimestamp(data.unix_s[0] - data.integration_s / 2, datetime.timezone.utc)
    return start.strftime("%Y-%m-%d %H:%M:%S UTC")


def subtitle(data):
    flagged = 100 * np.ma.getmaskarray(data.vis).mean()
    n_dumps = len(data.unix_s)
    return (f"{n_dumps} dump{'s' if n_dumps > 1 else ''} of {data.integration_s:.3g} s from {start_text(data)}, "
            f"{flagged:.2g} % flagged")


def phase_deg(vis):
    return np.ma.MaskedArray(np.degrees(np.angle(vis.filled(0))), np.ma.getmaskarray(vis))


def set_phase_axis(axis):
    axis.set_ylim(-200, 200)
    axis.set_yticks([-180, -90, 0, 90, 180])


def plot_all(data, output):
    """Amplitude and phase of each cross-correlation, averaged over time."""
    cross = [pair for pair in data.baselines if pair[0] != pair[1]]
    if not cross:
        return None
    shown = cross[:MAX_PANELS]
    n_columns = min(3, len(shown))
    n_rows = -(-len(shown) // n_columns)
    freqs_mhz = data.freqs_hz / 1e6
    figure = plt.figure(figsize=(4.6 * n_columns, 3.5 * n_rows + 0.9), layout="constrained")
    cells = figure.subfigures(n_rows, n_columns, squeeze=False)
    note = "" if len(shown) == len(cross) else f" (first {len(shown)} of {len(cross)} baselines)"
    figure.suptitle(f"{data.telescope}: fringes, {data.pol}{note}\n{subtitle(data)}", fontsize=13)
    for n, (a1, a2) in enumerate(shown):
        mean = data.vis[:, data.index(a1, a2)].mean(axis=0)
        amplitude, phase = cells[n // n_columns, n % n_columns].subplots(2, 1, sharex=True)
        amplitude.set_title(data.label(a1, a2), fontweight="bold")
        amplitude.semilogy(freqs_mhz, np.ma.masked_equal(np.abs(mean), 0), color=AMPLITUDE_COLOUR, linewidth=1)
        phase.plot(freqs_mhz, phase_deg(mean), ".", color=PHASE_COLOUR, markersize=2)
        set_phase_axis(phase)
        phase.margins(x=0.01)
        if n % n_columns == 0:
            amplitude.set_ylabel("Amplitude (counts)")
            phase.set_ylabel("Phase (deg)")
        if n + n_columns >= len(shown):
            phase.set_xlabel("Frequency (MHz)")
    return save(figure, output / f"fringes_{data.pol}.png")


def plot_autos(data, output):
    """Power spectra of the antennas."""
    figure, axis = plt.subplots(figsize=(10, 5), layout="constrained")
    figure.suptitle(f"{data.telescope}: autocorrelations, {data.pol}\n{subtitle(data)}", fontsize=13)
    n_ants = len(data.names)
    for ant in range(n_ants):
        mean = np.ma.abs(data.vis[:, data.index(ant, ant)].mean(axis=0))
        axis.semilogy(data.freqs_hz / 1e6, np.ma.masked_equal(mean, 0), linewidth=1, label=data.names[ant],
                      color=PALETTE[ant % len(PALETTE)], linestyle=DASHES[ant // len(PALETTE) % len(DASHES)])
    axis.set_xlabel("Frequency (MHz)")
    axis.set_ylabel("Power (counts)")
    axis.margins(x=0.01)
    if n_ants <= 24:
        axis.legend(ncols=-(-n_ants // 8), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return save(figure, output / f"autos_{data.pol}.png")


def time_rows(data, baseline):
    """Dumps on a regular grid of time, so that those that never came show as gaps."""
    step = np.rint((data.unix_s - data.unix_s[0]) / data.integration_s).astype(int)
    rows = np.ma.masked_all((step[-1] + 1, data.vis.shape[2]), dtype=complex)
    rows[step] = data.vis[:, baseline]
    return rows


def plot_waterfall(data, a1, a2, output):
    """Amplitude and phase of one baseline against frequency and time."""
    rows = time_rows(data, data.index(a1, a2))
    amplitude = np.ma.masked_less_equal(np.ma.abs(rows), 0)
    phase = phase_deg(rows)
    width_mhz = (data.freqs_hz[1] - data.freqs_hz[0]) / 1e6 if len(data.freqs_hz) > 1 else 1
    extent = (data.freqs_hz[0] / 1e6 - width_mhz / 2, data.freqs_hz[-1] / 1e6 + width_mhz / 2,
              len(rows) * data.integration_s, 0)
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.2), sharey=True, layout="constrained")
    figure.suptitle(f"{data.telescope}: {data.label(a1, a2)}, {data.pol}\n{subtitle(data)}; grey: no data", fontsize=13)
    # The tone or two that stand out must not take all the colours.
    low, high = np.percentile(amplitude.compressed(), [2, 99.5]) if amplitude.count() else (1, 10)
    panels = [
        (amplitude, "Amplitude (counts)", {"cmap": "viridis", "norm": LogNorm(low, max(high, 1.1 * low))}, None),
        (phase, "Phase (deg)", {"cmap": "twilight", "vmin": -180, "vmax": 180}, [-180, -90, 0, 90, 180]),
    ]
    for axis, (values, label, kwargs, ticks) in zip(axes, panels):
        axis.grid(False)
        axis.set_facecolor("#bbbbbb")
        image = axis.imshow(values, extent=extent, aspect="auto", interpolation="nearest", **kwargs)
        figure.colorbar(image, ax=axis, label=label, ticks=ticks, pad=0.02)
        axis.set_xlabel("Frequency (MHz)")
    axes[0].set_ylabel("Time since start (s)")
    return save(figure, output / f"waterfall_{a1}-{a2}_{data.pol}.png")


def save(figure, path):
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return path


def parse_baseline(text):
    try:
        a1, a2 = sorted(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: two antenna numbers are wanted, as in 0,1") from None
    return a1, a2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path, help="UVH5 file")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), help="directory of the PNGs")
    parser.add_argument("--pol", default="xx", choices=visfile.POL_NAMES.values(), help="polarisation product (xx)")
    parser.add_argument("--baseline", type=parse_baseline, help="antennas of the waterfall (0,1)")
    args = parser.parse_args()
    try:
        data = visfile.load(args.file, args.pol)
    except visfile.Unreadable as error:
        sys.exit(str(error))
    baseline = args.baseline or (0, min(1, len(data.names) - 1))
    if baseline not in data.baselines:
        sys.exit(f"{args.file}: has no baseline {baseline[0]},{baseline[1]}: antennas are 0 to {len(data.names) - 1}")
    args.output.mkdir(parents=True, exist_ok=True)
    for path in [plot_all(data, args.output), plot_autos(data, args.output),
                 plot_waterfall(data, *baseline, args.output)]:
        if path:
            print(path)


if __name__ == "__main__":
    main()
