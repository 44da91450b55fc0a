#!/usr/bin/env python3
"""docs/images/ownership.svg: the owner of a receive chunk, a device input and an output buffer in each state."""
from drawing import Picture
from facts import constant, defaults, in_source

LEFT, STEP, WIDE, HIGH = 118, 126, 112, 58
ROWS = {"receive": 104, "worker": 226, "device": 348, "send": 460}


def place(column, row):
    return LEFT + STEP * column, ROWS[row]


def state(p, column, row, name, lines, colour):
    x, y = place(column, row)
    p.box(x, y, WIDE, HIGH, [(name, "h"), *((line, "xs") for line in lines)], colour)


def draw():
    in_source("common/recv/assemble.c", "buffer_ref_set", "inbox_push")
    chunk = in_source("common/engine/engine.h", "ENGINE_CHUNK")
    input_free = in_source("common/engine/engine.h", "ENGINE_INPUT_FREE")
    downloaded = in_source("common/engine/engine.h", "ENGINE_DOWNLOADED")
    sent = in_source("common/engine/engine.h", "ENGINE_SENT")
    put = in_source("common/base/buffer_ref.h", "buffer_ref_put")
    take = in_source("common/engine/outbuf.h", "outbuf_take")
    give = in_source("common/engine/outbuf.h", "outbuf_give")
    take_input = in_source("common/engine/lane.h", "lane_take_input")
    push = in_source("common/send/sender.h", "sender_push")
    n_inputs = constant("common/engine/lane.h", "LANE_N_INPUTS")
    n_chunks = defaults("fgpu")["recv.chunks"]

    p = Picture("ownership", "The owner of a receive chunk, a device input and an output buffer in each state", 1010, 604)
    p.text(14, 24, "Each buffer has one owner or a count of readers, and returns to its free list", "h1")
    p.notes(43, "A row is a thread or the device. An arrow hands the buffer on.",
            "The name at an arrow is a function, or an item in the worker's inbox.")
    for row, lines in zip(ROWS, (("receive", "thread"), ("worker",), ("device", "streams"), ("send", "thread"))):
        p.rect(8, ROWS[row] - 16, 994, HIGH + 32, "zoom")
        for i, line in enumerate(lines):
            p.text(16, ROWS[row] + 32 - 8 * (len(lines) - 1) + 16 * i, line, "h")

    # The receive chunk.
    state(p, 0, "receive", "free", ["in the free inbox", "of its member"], "f")
    state(p, 1, "receive", "being filled", ["the assembler", "alone writes"], "f")
    state(p, 2, "worker", "full", ["the matcher waits", "for the others"], "f")
    state(p, 3, "device", "upload", ["the chunk is read,", "the input written"], "f")
    # The device input.
    state(p, 3, "worker", "free", ["one of " + str(n_inputs), "device inputs"], "net")
    state(p, 4, "device", "compute", ["kernels read input,", "write output"], "net")
    # The output buffer.
    state(p, 4, "worker", "free", ["in the pool", "of its stream"], "x")
    state(p, 5, "device", "download", ["copied to", "pinned memory"], "x")
    state(p, 6, "worker", "finished", ["checked, looked at", "for the page"], "x")
    state(p, 6, "send", "being sent", ["a job: heaps", "and packets"], "x")

    def side(column, row, which, shift=0):
        x, y = place(column, row)
        return {"right": (x + WIDE, y + HIGH / 2 + shift), "left": (x, y + HIGH / 2 + shift), "top": (x + WIDE / 2 + shift, y),
                "bottom": (x + WIDE / 2 + shift, y + HIGH)}[which]

    p.arrow([side(0, "receive", "right"), side(1, "receive", "left")], "f")
    (x, y), full = side(1, "receive", "right"), side(2, "worker", "top")
    p.arrow([(x, y), (full[0], y), full], "f")
    p.text(full[0] + 8, ROWS["receive"] + 78, chunk, "e")
    x, y = side(2, "worker", "bottom")
    p.arrow([(x, y), (x, side(3, "device", "left", -12)[1]), side(3, "device", "left", -12)], "f")
    x, y = side(3, "device", "left", 12)
    home = side(0, "receive", "bottom")
    p.arrow([(x, y), (home[0], y), home], "f")
    p.text(home[0] + 10, y + 14, f"{put}(), once the copy is done", "e")

    # The device input.
    down = side(3, "worker", "bottom", -26)
    p.arrow([down, side(3, "device", "top", -26)], "net")
    p.text(down[0] - 6, ROWS["worker"] + 78, take_input, "e", "end")
    p.arrow([side(3, "device", "right"), side(4, "device", "left")], "net")
    up, back, y = side(4, "device", "top", -40), side(3, "worker", "bottom", 40), ROWS["worker"] + HIGH + 38
    p.arrow([up, (up[0], y), (back[0], y), back], "net")
    p.text(up[0] - 4, y + 14, input_free, "e", "end")

    # The output buffer.
    down = side(4, "worker", "bottom", 30)
    p.arrow([down, side(4, "device", "top", 30)], "x")
    p.text(down[0] + 6, ROWS["worker"] + 78, take, "e")
    p.arrow([side(4, "device", "right"), side(5, "device", "left")], "x")
    x, y = side(5, "device", "right")
    p.arrow([(x, y), (x + 44, y), (x + 44, ROWS["worker"] + HIGH)], "x")
    p.text(x + 38, ROWS["worker"] + 78, downloaded, "e", "end")
    down = side(6, "worker", "bottom", 36)
    p.arrow([down, side(6, "send", "top", 36)], "x")
    p.text(down[0] - 6, ROWS["device"] + 92, push, "e", "end")
    (x, y), free, turn = side(6, "send", "right"), side(4, "worker", "top"), ROWS["receive"] + 46
    p.arrow([(x, y), (x + 12, y), (x + 12, turn), (free[0], turn), free], "x")
    p.text(free[0] + 10, turn + 14, f"{sent}: {give}, after the last packet", "e")

    for x, colour, name in ((150, "f", f"receive chunk: recv.chunks ({n_chunks}) for each member"),
                            (494, "net", f"device input: {n_inputs} for each lane"), (694, "x", "output buffer: batches or a dump")):
        p.rect(x, 62, 14, 14, colour)
        p.text(x + 20, 73, name, "s")
    p.notes(ROWS["send"] + 98, "fgpu returns a chunk when its upload is done.",
            "xbgpu returns a chunk when its input has been processed, since the host's audit reads the chunk.",
            "If no chunk is free, a network source refuses the packets and counts them (no_chunk).",
            "If no output buffer is free, the batch or dump is dropped and counted.",
            "An output buffer with several shares returns after the last share.",
            "The worker never waits for the device, except at shutdown.")
    return p


if __name__ == "__main__":
    draw().write()
