"""Pictures of a qualification, as small SVG files."""
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cbf", "font.size": 9, "path.simplify": True})
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from plan import Plan  # noqa: E402


def draw(plots, directory):
    """plots: {channels: {"shape": (offsets, dB), "spurs": dB [channel]}}"""
    channels = min(plots)
    draw_shape(channels, *plots[channels]["shape"], directory)
    draw_spurs({n: plots[n]["spurs"] for n in sorted(plots)}, directory)


def draw_shape(channels, offsets, level, directory):
    plan = Plan(channels, True)
    figure, axes = plt.subplots(figsize=(6, 3))
    finer = np.linspace(-2.5, 2.5, 301)
    axes.plot(finer, [20 * np.log10(abs(plan.response(o)) + 1e-7) for o in finer], lw=1, label="design (float64)")
    axes.plot(offsets[::3], level[::3], ".", ms=2.5, label="measured")
    axes.axhline(-53, color="grey", lw=0.7, ls="--")
    axes.set(xlim=(-2.5, 2.5), ylim=(-125, 5), xlabel="offset of the tone [channels]", ylabel="response [dB]",
             title=f"Channel shape, {channels} channels")
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(directory / "qualification-shape.svg", metadata={"Date": None})
    plt.close(figure)


def draw_spurs(spectra, directory):
    """spectra: {channels: dB [channel]}"""
    figure, axes = plt.subplots(figsize=(6, 3.3))
    for n, spectrum in spectra.items():
        largest = spectrum.reshape(256, -1).max(axis=1)  # so that a spur is seen and the file is small
        axes.plot(np.arange(256) / 256, largest, lw=0.8, label=f"{n} channels")
    axes.axhline(-80, color="grey", lw=0.7, ls="--", label="goal")
    axes.set(xlim=(0, 1), ylim=(-135, 5), xlabel="frequency [band]", ylabel="power, largest of 1/256 band [dB]",
             title="A tone of full scale and all other channels: the worst found")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, frameon=False, columnspacing=1)
    figure.tight_layout()
    figure.savefig(directory / "qualification-spurs.svg", metadata={"Date": None})
    plt.close(figure)
