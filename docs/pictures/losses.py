#!/usr/bin/env python3
"""docs/images/losses.svg: where a packet, a heap or a dump can be lost, and the metric that counts it there."""
from drawing import Picture
from facts import in_source, metric

HIGH, GAP, TOP = 46, 12, 104
# Each stage: its name, and the metrics of fgpu, xbgpu and visrec.  A metric may have a reason.
STAGES = [
    ("network", "to this host", ["fgpu_input_missing_heaps_total", "the only counter"],
     ["xbgpu_input_missing_heaps_total", "the only counter"],
     ["visrec_missing_heaps_total", "the only counter"]),
    ("socket or NIC", "full: drops packets", ["fgpu_input_kernel_drops"], ["xbgpu_input_kernel_drops"], ["visrec_kernel_drops"]),
    ("receive thread", "refuses a packet",
     ["fgpu_input_rejected_packets_total", "fgpu_input_too_old_heaps_total", "fgpu_input_bad_timestamp_heaps_total"],
     ["xbgpu_input_rejected_packets_total"], ["visrec_rejected_packets_total"]),
    ("chunk", "none free", ["fgpu_input_rejected_packets_total", "reason no_chunk"],
     ["xbgpu_input_rejected_packets_total", "reason no_chunk"],
     ["visrec_rejected_packets_total", "reason no_chunk"]),
    ("heap", "incomplete, contested", ["fgpu_input_contested_heaps_total"],
     ["xbgpu_input_incomplete_heaps_total", "xbgpu_input_contested_heaps_total"],
     ["visrec_incomplete_heaps_total", "visrec_contested_heaps_total"]),
    ("matcher", "discards a chunk", ["fgpu_unmatched_chunks_total", "fgpu_late_chunks_total"], ["xbgpu_late_chunks_total"], []),
    ("missing input", "costs output", ["fgpu_output_skipped_heaps_total"],
     ["xbgpu_output_x_incomplete_accs_total", "xbgpu_output_x_skipped_accs_total", "xbgpu_output_x_absent_accs_total"],
     ["visrec_flagged_values_total"]),
    ("output buffer", "none free", ["fgpu_output_dropped_heaps_total"], ["xbgpu_output_x_dropped_accs_total"], []),
    ("check", "flags wrong sums", [], ["xbgpu_output_x_wrong_accs_total"], []),
    ("send thread, disk", "cannot send or write", ["fgpu_output_failed_packets_total"], ["xbgpu_output_x_failed_packets_total"],
     ["visrec_unwritten_dumps_total"]),
]
PROGRAMS = [("fgpu", "f", 156, "fgpu_output_heaps_total"),
            ("xbgpu", "x", 442, "xbgpu_output_x_heaps_total"),
            ("visrec", "rec", 728, "visrec_dumps_total")]


def draw():
    in_source("common/recv/reject.h", "no_chunk")
    bottom = TOP + len(STAGES) * (HIGH + GAP)
    p = Picture("losses", "Where packets, heaps and dumps can be lost on their way through fgpu, xbgpu and visrec, with the metrics",
                1000, bottom + 84)
    p.text(14, 24, "Where data can be lost, and the metric that counts each loss", "h1")
    p.text(14, 43, "Data flow down a column, then into the next column. A red arrow is a loss.", "d")
    for name, colour, x, _ in PROGRAMS:
        p.box(x, 58, 260, 34, [(name, "h")], colour)
        p.line([(x + 14, 92), (x + 14, bottom - 8)], colour)
    p.arrow([(416, bottom + 24), (429, bottom + 24), (429, 75), (442, 75)], "net")
    p.arrow([(702, bottom + 24), (715, bottom + 24), (715, 75), (728, 75)], "net")
    p.arrow([(100, 75), (156, 75)], "net")
    p.box(14, 58, 86, 34, [("digitisers", "s")], "tool")
    for row, (name, detail, *columns) in enumerate(STAGES):
        y = TOP + row * (HIGH + GAP)
        p.text(14, y + 20, name, "h")
        p.text(14, y + 35, detail, "d")
        for metrics, (_, _, x, _) in zip(columns, PROGRAMS):
            if metrics:
                p.arrow([(x + 14, y + HIGH / 2), (x + 30, y + HIGH / 2)], "lost")
                for i, text in enumerate(metrics):
                    at = y + HIGH / 2 + 4 + 14 * (i - (len(metrics) - 1) / 2)
                    if " " in text:
                        p.text(x + 35, at, text, "d")
                    else:
                        p.text(x + 35, at, metric(text), "e", ink="lostink")
    first, last = TOP, TOP + 5 * (HIGH + GAP) - GAP
    for name, colour, x, out in PROGRAMS:
        p.line([(x + 252, first + 4), (x + 258, first + 4), (x + 258, last), (x + 252, last)], "lost")
        p.box(x, bottom, 260, 48, [("sent" if name != "visrec" else "written", "s"), (metric(out), "e")], colour)
    p.notes(bottom + 66, "A heap that is lost in the rows of a bracket counts as missing, too (the metric of the first row).",
            "A refused duplicate with the same bytes is no loss.")
    return p


if __name__ == "__main__":
    draw().write()
