#!/usr/bin/env python3
"""docs/images/wire.svg: the SPEAD headers of all heaps of data, a packet to scale, and the order of the payloads."""
from drawing import Picture
from facts import Sizes, bytes_of, heap_items, spead_ids

WORD = 8  # bytes
STANDARD = ("HEAP_CNT", "HEAP_LENGTH", "PAYLOAD_OFFSET", "PAYLOAD_LENGTH")
# Name, colour, where the heap gets its items, and the items that it has only with other settings than the defaults.
HEAPS = [("samples of dsim", "tool", ("tools/dsim/send.c", "items[SIM_SENDER_N_ITEMS]"), ()),
         ("channelised voltages", "f", ("fgpu/send.c", ".payload_bytes = heap_bytes"), ()),
         ("satellites' sums", "f", ("fgpu/gnss/gnss_stream.c", ".items"), ()),
         ("visibilities", "x", ("xbgpu/send.c", ".payload_bytes = xbgpu_dump_bytes"), ()),
         ("beam voltages", "x", ("xbgpu/beam/beams.c", ".payload_bytes"), ("BEAM_MASK",)),
         ("detected beams", "x", ("xbgpu/beam/detected.c", ".items"), ("BEAM_OFFSETS", "BEAM_SCALES"))]


def headers(p, top):
    """Returns the bytes of a header of channelised voltages."""
    left, width, high, ids, found = 146, 84, 34, spead_ids(), {}
    p.text(14, top, "The header of each packet, to scale: one box is 8 bytes", "h")
    p.notes(top + 17, "A box with a full edge has a value of 48 bits.",
            "A box with a dashed edge says where in the payload the item begins.")
    y, all_rows = top + 30, (high + 5) * len(HEAPS) - 5
    p.box(left, y, width, all_rows, [("SPEAD 64-48", "xs"), ("0x53, version,", "xs"), ("number of", "xs"), ("items", "xs")], "net")
    for i, name in enumerate(STANDARD, 1):
        words = name.lower().replace("payload_", "payload_ ").split()
        p.box(left + i * width, y, width, all_rows, [*((word, "xs") for word in words), (f"0x{ids[name]:02x}", "e")], "net")
    for row, (name, colour, place, left_out) in enumerate(HEAPS):
        at = y + row * (high + 5)
        items = [item for item in heap_items(*place) if item[0] not in left_out]
        if name == "detected beams":
            items.append(("BEAM_POWERS", False))  # with any format the last one
        found[name] = WORD * (1 + len(STANDARD) + len(items))
        p.text(left - 8, at + 15, name, "s", "end")
        p.text(left - 8, at + 29, f"{found[name]} bytes", "d", "end")
        for i, (item, is_value) in enumerate(items, 1 + len(STANDARD)):
            lines = [(item.lower(), "xs"), (f"0x{ids[item]:04x}", "e")]
            p.box(left + i * width, at, width, high, lines, colour if is_value else f"{colour}line", "" if is_value else "dash")
    return found["channelised voltages"]


def packets(p, top, s, header):
    left, right, n = 146, 986, -(-s.heap_bytes // s.payload)
    p.text(14, top, "A packet and a heap of channelised voltages, to scale", "h")
    edge = left + (right - left) * header / (header + s.payload)
    p.text(left - 8, top + 30, "one packet", "s", "end")
    p.rect(left, top + 13, edge - left, 26, "net")
    p.box(edge, top + 13, right - edge, 26, [(f"{header} bytes of header, {s.payload} bytes of payload", "s")], "f")
    p.text(left - 8, top + 75, "one heap", "s", "end")
    width = (right - left) / n
    p.area([(left, top + 39), (right, top + 39), (left + width, top + 58), (left, top + 58)], "zoom")
    for i in range(n):
        p.rect(left + i * width, top + 58, width, 26, "f")
    p.text(left, top + 99, f"{n} packets, {bytes_of(s.heap_bytes)} of payload. Each packet repeats the header with its own "
                           "payload_offset. Packets of a batch's heaps are interleaved.", "d")


class Column:
    """The order of a payload, from the outermost axis to the bytes."""

    def __init__(self, p, x, top, width, colour, name, order, detail):
        self.p, self.x, self.y, self.width, self.colour = p, x, top + 44, width, colour
        self.last = None
        p.text(x, top, name, "h")
        p.text(x, top + 16, order, "e")
        p.text(x, top + 32, detail, "d")

    def strip(self, axis, labels, opened=0):
        """One axis: a box for each label, of which box 'opened' has the next axis in it."""
        p, step = self.p, self.width / len(labels)
        if self.last:
            left, right = self.last
            p.area([(left, self.y - 34), (right, self.y - 34), (self.x + self.width, self.y), (self.x, self.y)], "zoom")
            p.text(self.x + self.width / 2, self.y - 9, axis, "d", "middle")
            y = self.y
        else:
            p.text(self.x, self.y + 10, axis, "d")
            y = self.y + 16
        for i, label in enumerate(labels):
            p.box(self.x + i * step, y, step, 24, [(label, "xs")], self.colour)
        self.last = self.x + opened * step, self.x + (opened + 1) * step
        self.y = y + 24 + 34


def orders(p, top, s):
    last = str(s.slice - 1)
    channels, spectra = ["0", "1", "2", "…", last], ["0", "1", "2", "…", str(s.spectra - 1)]
    p.text(14, top, "The order of a payload: each axis lies within a box of the axis above", "h")
    y, width = top + 28, 232
    xs = [14 + i * (width + 14) for i in range(4)]

    c = Column(p, xs[0], y, width, "f", "channelised voltages", "[channel][spectrum][pol][re, im]",
               f"int8, {bytes_of(s.heap_bytes)}")
    c.strip(f"{s.slice} channels of {s.spectra * 4} bytes", channels)
    c.strip(f"{s.spectra} spectra of 4 bytes", spectra)
    c.strip("2 polarisations, 4 × int8", ["pol 0 re", "pol 0 im", "pol 1 re", "pol 1 im"])

    c = Column(p, xs[1], y, width, "x", "visibilities", "[channel][product][re, im]", f"int32, {bytes_of(s.dump_bytes)}")
    c.strip(f"{s.slice} channels of {s.baselines * 32} bytes", channels)
    pairs = [f"{a1}, {a2}" for a2 in range(s.antennas) for a1 in range(a2 + 1)]
    c.strip(f"{s.baselines} baselines: antennas a1, a2", [*pairs[:4], "…", pairs[-1]], 1)
    c.strip("4 products: pol of a1, pol of a2", ["0, 0", "1, 0", "0, 1", "1, 1"])
    c.strip("2 × int32", ["re", "im"])

    beam_bytes = s.slice * s.spectra * 2
    c = Column(p, xs[2], y, width, "x", "beam voltages", "[channel][spectrum][re, im]", f"int8, {bytes_of(beam_bytes)}")
    c.strip(f"{s.slice} channels of {s.spectra * 2} bytes", channels)
    c.strip(f"{s.spectra} spectra of 2 bytes", spectra)
    c.strip("2 × int8", ["re", "im"])

    n_beams, windows, product = (s.x[f"detected.{key}"] for key in ("beams", "windows", "products"))
    groups = s.slice // s.x["detected.channels"]
    c = Column(p, xs[3], y, width, "x", "detected beams", "[beam][window][product][channel]",
               f"{s.x['detected.format']}, {bytes_of(n_beams * windows * groups * 4)} + {4 * windows} bytes of fractions")
    c.strip(f"{n_beams} beams of {bytes_of(windows * groups * 4)}", [str(i) for i in range(n_beams)])
    c.strip(f"{windows} windows", ["0", "1", "2", "…", str(windows - 1)])
    c.strip(f"products: here {product}", [product])
    c.strip(f"{groups} sums of channels, 4 bytes each", ["0", "1", "2", "…", str(groups - 1)])


def draw():
    s = Sizes()
    p = Picture("wire", "Headers and payloads of all heaps on the wire: the items that they have, and the order of values", 1000, 790)
    p.text(14, 24, "Heaps on the wire", "h1")
    header = headers(p, 50)
    packets(p, 336, s, header)
    orders(p, 466, s)
    p.notes(778, "Sizes: config/fgpu.yaml and config/xbgpu.yaml.",
            "SPEAD headers are big-endian; integers and floats of these payloads are little-endian.")
    return p


if __name__ == "__main__":
    draw().write()
