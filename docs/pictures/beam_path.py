#!/usr/bin/env python3
"""docs/images/beam-path.svg: from an xbgpu's input to heaps of voltage beams, detected beams and the incoherent beam."""
from drawing import Picture
from facts import Sizes, bytes_of, constant, in_source, metric

COLUMNS = [(14, 142), (222, 176), (440, 168), (650, 150), (842, 144)]
STEERING, VOLTAGES, DETECTED, INCOHERENT = 70, 196, 300, 392


def draw():
    s = Sizes()
    for request in ("beam-weights", "beam-delays", "beam-quant-gains", "beam-calibration"):
        in_source("xbgpu/control.c", request)
    kernels = {name: in_source(f"kernels/beamform/{name}.h", name)
               for name in ("beam_coefficients", "beamform", "beam_detect", "beam_finish", "beam_incoherent")}
    n_models = constant("xbgpu/beam/steering.h", "XBGPU_BEAM_MODELS")
    windows, spectra, n_beams = (s.x[f"detected.{key}"] for key in ("windows", "spectra", "beams"))
    heap_batches = windows * spectra / s.spectra
    beam_bytes, power_bytes = s.slice * s.spectra * 2, n_beams * windows * (s.slice // s.x["detected.channels"]) * 4

    p = Picture("beam-path", "The path of beams through xbgpu: coefficients, kernels, buffers, audit and heaps", 1000, 520)
    p.text(14, 24, "The path of beams through xbgpu", "h1")
    p.text(14, 43, f"Sizes: config/xbgpu.yaml, {s.antennas} antennas, {s.slice} channels, {s.spectra} spectra in a batch.", "d")

    def box(column, y, high, name, lines, colour):
        x, wide = COLUMNS[column]
        p.box(x, y, wide, high, [(name, "h"), *((line, "xs") for line in lines)], colour)

    def across(column, y, colour="x"):
        x, wide = COLUMNS[column]
        p.arrow([(x + wide, y), (COLUMNS[column + 1][0], y)], colour)

    # Steering.
    box(0, STEERING, 88, "requests", ["?beam-weights", "?beam-delays", "?beam-quant-gains", "?beam-calibration"], "tool")
    box(1, STEERING, 88, "steering", ["changes hold from the", "next input on;", f"up to {n_models} delay models",
                                      "of each beam"], "x")
    box(2, STEERING, 88, kernels["beam_coefficients"],
        ["int16 [channel][beam][ant]", "[re, im], with a scale for", "each beam and channel"], "x")
    for column in (0, 1):
        across(column, STEERING + 44, "tool")
    p.text(COLUMNS[3][0], STEERING + 28, "The kernel runs after a change of the steering,", "d")
    p.text(COLUMNS[3][0], STEERING + 44, "at the load time of a model, and for beams", "d")
    p.text(COLUMNS[3][0], STEERING + 60, "with rates in each interval of the grid.", "d")

    # The input, which all kernels read.
    box(0, 238, 112, "device input", [f"{s.x_batches} batches, {bytes_of(s.x_chunk_bytes)}", "[batch][ant][channel]",
                                      "[spectrum][pol][re, im]", "absent heaps: zeros", "also for visibilities"], "x")
    x_in = COLUMNS[0][0] + COLUMNS[0][1]
    p.line([(x_in, 294), (190, 294)], "x")
    for start, y in ((294, VOLTAGES + 40), (294, INCOHERENT + 34), (DETECTED + 34, DETECTED + 34)):
        p.arrow([(190, start), (190, y), (COLUMNS[1][0], y)] if start != y else [(190, y), (COLUMNS[1][0], y)], "x")
    # Coefficients to both kernels that use them.
    x_c, x_k = COLUMNS[2][0] + 30, COLUMNS[1][0] + COLUMNS[1][1]
    p.arrow([(x_c, STEERING + 88), (x_c, 176), (COLUMNS[1][0] + 88, 176), (COLUMNS[1][0] + 88, VOLTAGES)], "tool")
    p.arrow([(x_k + 20, 176), (x_k + 20, DETECTED + 18), (x_k, DETECTED + 18)], "tool")
    p.text(x_c + 8, 174, "coefficients", "d")

    box(1, VOLTAGES, 80, kernels["beamform"],
        ["weighted sum over antennas", "of one polarisation, exact;", "dither, clip to ±127, round"], "x")
    box(2, VOLTAGES, 80, "output buffer",
        ["int8 [batch][beam]", "[channel][spectrum][re, im]", f"a heap: {bytes_of(beam_bytes)}"], "net")
    box(3, VOLTAGES, 80, "audit", ["the host makes 64 spectra", "of a beam again and", "compares every bit"], "x")
    box(4, VOLTAGES, 80, "send thread", ["a group for each batch:", "a heap for each beam"], "x")
    box(1, DETECTED, 68, kernels["beam_detect"], ["each beam of 2 polarisations:", "weighted sum, power"], "x")
    box(1, INCOHERENT, 68, kernels["beam_incoherent"],
        ["power of each antenna,", "then a weighted sum:", "no delays, no calibration"], "x")
    box(2, DETECTED, 68, "open heap: powers", ["int64 [window][beam]", "[product][channel]"], "net")
    box(3, DETECTED, 68, kernels["beam_finish"], ["float32, or uint8 with", "offsets and scales"], "x")
    box(4, DETECTED, 68, "audit, send thread", ["a heap of all beams", f"of a stream: {bytes_of(power_bytes)}"], "x")
    for column in (1, 2, 3):
        across(column, VOLTAGES + 40)
        across(column, DETECTED + 40)
    x, wide = COLUMNS[2]
    p.arrow([(COLUMNS[1][0] + COLUMNS[1][1], INCOHERENT + 34), (x + wide / 2, INCOHERENT + 34), (x + wide / 2, DETECTED + 68)], "x")
    length = s.time(windows * spectra * s.spectrum)
    p.text(x + wide / 2 + 10, INCOHERENT + 22,
           f"A heap has {windows} windows of {spectra} spectra: {length}, {heap_batches:g} batches.", "d")
    p.text(x + wide / 2 + 10, INCOHERENT + 38, "Windows may begin and end within batches and span inputs.", "d")

    p.text(14, 484, "No free output buffer drops heaps:", "s")
    p.text(230, 484, metric("xbgpu_beam_dropped_heaps_total"), "e", ink="lostink")
    p.text(440, 484, metric("xbgpu_detected_dropped_heaps_total"), "e", ink="lostink")
    p.text(14, 504, "No antenna came, so no heap is sent:", "s")
    p.text(230, 504, metric("xbgpu_beam_skipped_heaps_total"), "e", ink="lostink")
    p.text(440, 504, metric("xbgpu_detected_skipped_heaps_total"), "e", ink="lostink")
    return p


if __name__ == "__main__":
    draw().write()
