#!/usr/bin/env python3
"""docs/images/timeline.svg: heap, spectrum, batch, chunk and dump on one time axis, with the sizes of the example files."""
from drawing import Picture, text_width
from facts import Sizes, bytes_of

LEFT, RIGHT = 236, 968


class Band:
    """A stretch of the time axis that begins at timestamp 0."""

    def __init__(self, picture, samples, top):
        self.picture, self.samples, self.top = picture, samples, top

    def at(self, samples):
        return LEFT + (RIGHT - LEFT) * samples / self.samples

    def row(self, y, name, detail, colour, step, high=26, label=None, more=""):
        """Boxes of 'step' samples; label: a function of their number."""
        p = self.picture
        p.text(LEFT - 12, y + 11, name, "h", "end")
        p.text(LEFT - 12, y + 25, detail, "d", "end")
        n = -(-self.samples // step)
        for i in range(n):
            width = self.at(min((i + 1) * step, self.samples)) - self.at(i * step)
            if label and text_width(label(i), "s") < width - 4:
                p.box(self.at(i * step), y, width, high, [(label(i), "s")], colour, more)
            else:
                p.rect(self.at(i * step), y, width, high, colour, more)

    def axis(self, y, ticks, text):
        p = self.picture
        p.line([(LEFT, y), (RIGHT, y)])
        for samples in ticks:
            p.line([(self.at(samples), y - 4), (self.at(samples), y + 4)])
            p.text(self.at(samples), y + 17, text(samples), "d", "middle")


def zoom(picture, band, bottom, into, top, text):
    """The whole of a band is the beginning of the next one."""
    end = into.at(band.samples)
    picture.area([(LEFT, bottom), (RIGHT, bottom), (end, top), (LEFT, top)], "zoom")
    picture.text(LEFT + 8, bottom + 14, text, "d")


def draw():
    s = Sizes()
    p = Picture("timeline", "Heaps, spectra, batches, chunks and dumps on one time axis, F-engine above X-engine", 1000, 612)
    p.text(14, 24, "From a digitiser's heap to a dump: three scales of one time axis, from timestamp 0 on", "h1")
    p.text(14, 43, f"Sizes: config/fgpu.yaml and config/xbgpu.yaml, {s.rate_hz / 1e6:g} MS/s, {s.channels} channels, "
                   f"{s.substreams} substreams, {s.antennas} antennas.", "d")
    fine, middle, coarse = (Band(p, n, y) for n, y in ((20 * s.spectrum, 62), (s.x_chunk, 264), (2 * s.dump + s.dump // 8, 474)))
    zoom(p, fine, 232, middle, 266, f"{s.time(fine.samples)} of the axis below")
    zoom(p, middle, 456, coarse, 492, f"{s.time(middle.samples)} of the axis below")

    y = fine.top
    fine.row(y, "digitiser heap", f"{s.packet} samples, {s.packet_bytes} bytes", "tool", s.packet)
    fine.row(y + 36, "spectrum", f"every {s.spectrum} samples, {s.time(s.spectrum)}", "f", s.spectrum, label=str)
    for i in range(3):
        p.box(fine.at(i * s.spectrum), y + 72 + 21 * i, fine.at(s.window) - LEFT, 19,
              [(f"window of spectrum {i}: {s.taps} taps × {s.spectrum} samples, {s.time(s.window)}", "s")], "f")
    p.text(LEFT - 12, y + 83, "filter window", "h", "end")
    p.text(LEFT - 12, y + 97, "the samples that a spectrum needs", "d", "end")
    fine.axis(y + 146, [0, 5 * s.spectrum, 10 * s.spectrum, 15 * s.spectrum], s.time)

    y = middle.top
    middle.row(y + 6, "chunk of fgpu", f"{s.chunk // s.packet} heaps, {bytes_of(s.chunk_bytes)}, {s.time(s.chunk)}", "f", s.chunk,
               label=lambda i: f"chunk {i} of one polarisation")
    middle.row(y + 44, "batch", f"{s.spectra} spectra, {s.time(s.batch)}", "f", s.batch, label=lambda i: f"batch {i}")
    p.text(LEFT - 12, y + 93, "on the network", "h", "end")
    p.text(LEFT - 12, y + 107, f"of one antenna, {bytes_of(s.heap_bytes)} each", "d", "end")
    for i in range(s.x_batches):
        p.arrow([(middle.at((i + 0.5) * s.batch), y + 74), (middle.at((i + 0.5) * s.batch), y + 116)], "net")
        p.text(middle.at((i + 0.5) * s.batch) + 5, y + 99, f"{s.substreams} heaps", "d")
    middle.row(y + 120, "chunk of xbgpu", f"{s.x_batches} batches, {bytes_of(s.x_chunk_bytes)}, {s.time(s.x_chunk)}", "x",
               s.x_chunk,
               label=lambda i: f"{s.x_batches} batches × {s.antennas} antennas × 1 heap: one substream, {s.slice} channels")
    middle.axis(y + 166, [i * s.chunk for i in range(1, 5)], s.time)

    y = coarse.top
    coarse.row(y + 22, "chunks of xbgpu", f"{s.dump // s.x_chunk} in a dump" if s.dump % s.x_chunk == 0 else "may cross dumps", "x",
               s.x_chunk)
    coarse.row(y + 60, "dump", f"{s.dump_batches} batches, {s.time(s.dump)}", "x", s.dump,
               label=lambda i: f"dump {i}: {s.baselines} baselines, {bytes_of(s.dump_bytes)}" if i < 2 else str(i))
    coarse.axis(y + 108, [0, s.dump, 2 * s.dump], lambda n: s.time(n) if n else "0")
    return p


if __name__ == "__main__":
    draw().write()
