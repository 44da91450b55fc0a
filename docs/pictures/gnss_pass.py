#!/usr/bin/env python3
"""docs/images/gnss-pass.svg: one pass of satellites' signals through fgpu, and the pieces that gnss_correlate has of a chunk."""
import sys

from drawing import Picture
from facts import ROOT, Sizes, constant, in_source

sys.path.insert(0, str(ROOT / "scripts"))
import array_plan  # noqa: E402

LEFT, RIGHT = 150, 986
# Where a code begins, as a share of its period: any phases would do.
SATELLITES = [("L1CA-5", 0.3), ("L1CA-7", 0.75), ("L1CA-13", 0.05)]


def flow(p, rate_hz, baseband_hz, n_taps):
    y, wide, high, step = 66, 142, 76, 166
    stages = [("device input", "tool", ["samples of both", "polarisations", f"{rate_hz / 1e6:g} MS/s"]),
              (in_source("kernels/ddc/ddc.h", "ddc"), "f",
               ["mixer and filter", "complex float [pol]", f"{baseband_hz / 1e6:g} MS/s"]),
              (in_source("kernels/gnss/gnss_quantise.h", "gnss_quantise"), "f",
               ["int8 [pol][sample][re, im]", "scale: a power of two", "missing packets: zeros"]),
              (in_source("kernels/gnss/gnss_correlate.h", "gnss_correlate"), "f",
               ["one launch for a chunk:", f"all satellites, {n_taps} taps,", "all antennas, both pols"]),
              ("sums", "net", ["int64", "[piece][tap][ant]", "[pol][re, im]"]),
              (in_source("fgpu/gnss/gnss.h", "gnss_align.c").removesuffix(".c"), "f", ["loops of code,", "Doppler and phase"])]
    for i, (name, colour, lines) in enumerate(stages):
        p.box(14 + i * step, y, wide, high, [(name, "h"), *((line, "xs") for line in lines)], colour)
        if i:
            p.arrow([(14 + i * step - step + wide, y + high / 2), (14 + i * step, y + high / 2)], "f")
    x = [14 + i * step + wide / 2 for i in range(len(stages))]
    p.box(x[2] - wide / 2, 180, wide, 48, [("gnss_search", "h"), ("a device stream of its own", "xs")], "f")
    p.arrow([(x[2], y + high), (x[2], 180)], "f")
    p.text(x[2] + 8, 165, "a block of samples", "d")
    p.arrow([(x[2] + wide / 2, 204), (x[5] - 40, 204), (x[5] - 40, y + high)], "f")
    p.text(x[2] + wide / 2 + 10, 198, "acquisition: code phase and Doppler", "d")
    p.arrow([(x[5] + 30, y + high), (x[5] + 30, 180)], "net")
    p.box(x[5] - 26, 180, 97, 48, [("SPEAD heap", "h"), ("records", "xs")], "net")
    p.arrow([(x[5], y), (x[5], 52), (x[3], 52), (x[3], y)], "f")
    p.text((x[3] + x[5]) / 2, 47, "exact phases of the pieces of the next chunk", "d", "middle")


def pieces(begin, period, chunk, n_chunks):
    """[(chunk, begin, end, whether its integration ends there)], in samples."""
    found, at = [], begin
    while at < n_chunks * chunk:
        end = at + period
        while at < min(end, n_chunks * chunk):
            cut = min(end, (at // chunk + 1) * chunk)
            if at >= 0:
                found.append((at // chunk, at, cut, cut == end))
            at = cut
        at = end
    return found


def draw():
    s = Sizes()
    per_sample = s.f["gnss.decimation"] * (2 if s.f["gnss.pass_bandwidth"] > 0 else 1)
    in_source("fgpu/config/layout.h", "fgpu_band_subsampling")
    rate_hz, chunk = s.rate_hz / per_sample, s.chunk // per_sample
    period = round(array_plan.GNSS_PERIODS_S["L1CA"] * rate_hz)
    n_taps, n_chunks = constant("fgpu/gnss/gnss_track.h", "FGPU_GNSS_N_TAPS"), 3
    p = Picture("gnss-pass", "One pass of satellites' signals: samples, replicas, sums and loops, and the pieces of a chunk",
                1000, 536)
    p.text(14, 24, "One pass of gnss_correlate", "h1")

    def at(sample):
        return LEFT + (RIGHT - LEFT) * sample / (n_chunks * chunk)

    top = 290
    p.area([(512, 142), (654, 142), (at(2 * chunk), top), (at(chunk), top)], "zoom")  # from the box of gnss_correlate
    flow(p, s.rate_hz, rate_hz, n_taps)
    p.text(14, top - 26, "The pieces of each chunk", "h")
    p.text(14, top - 10, "Phases are examples.", "d")
    p.text(LEFT - 10, top + 16, "samples", "s", "end")
    for k in range(n_chunks):
        p.box(at(k * chunk), top, at(chunk) - LEFT, 26,
              [(f"chunk {('k − 1', 'k', 'k + 1')[k]}: {chunk} complex samples, {s.time(s.chunk)}", "s")], "f")
    for row, (name, phase) in enumerate(SATELLITES):
        y = top + 38 + 34 * row
        p.text(LEFT - 10, y + 17, name, "s", "end")
        for _, begin, end, _ in pieces(round((phase - 1) * period), period, chunk, n_chunks):
            whole = end - begin == period
            label = "1 ms" if whole else "piece"
            width = at(end) - at(begin)
            if width > 36:
                p.box(at(begin), y, width, 24, [(label, "xs")], "net" if whole else "x", "" if whole else "dash")
            else:
                p.rect(at(begin), y, width, 24, "net" if whole else "x", "" if whole else "dash")
    y = top + 38 + 34 * len(SATELLITES) + 6
    p.text(LEFT - 10, y + 16, "heaps", "s", "end")
    for k in range(n_chunks):
        n = sum(ends for _, phase in SATELLITES
                for of, *_, ends in pieces(round((phase - 1) * period), period, chunk, n_chunks) if of == k)
        middle = (at(k * chunk) + at((k + 1) * chunk)) / 2
        p.box(middle - 100, y, 200, 26, [(f"{n} records: integrations that ended", "xs")], "net")
        p.line([(at(k * chunk), top - 6), (at(k * chunk), y + 32)], "tool", "dash")
    p.line([(RIGHT, top - 6), (RIGHT, y + 32)], "tool", "dash")
    p.notes(y + 52, f"An integration is one code period, {period} samples of L1CA, and begins with the code.",
            "The end of a chunk cuts an integration into two pieces (dashed).",
            "The second piece has the exact phases of its first sample.",
            "A replica is code × carrier, from 64-bit phases. The taps are early, prompt and late. The loops close once a chunk.",
            "A correction is relative to the replica of its own integration,",
            "so the delay of the sums does not change the loops' stability.")
    return p


if __name__ == "__main__":
    draw().write()
