"""Boxes, arrows and texts as SVG, readable on light and dark pages, for the programs of docs/pictures.

A program writes the same bytes on each run.  Texts stay texts, so a search finds them.  A text that does not fit its
box is an error, by an estimate with the widths of DejaVu Sans, which is wider than most fonts.
"""
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

IMAGES = Path(__file__).resolve().parents[1] / "images"

# (light, dark): fill and edge of a box.
COLOURS = {
    "page": (("#ffffff", "none"), ("#0d1117", "none")),
    "f": (("#ddf4ff", "#0969da"), ("#0c2d4a", "#58a6ff")),  # fgpu
    "x": (("#fff1d6", "#b35900"), ("#3d2600", "#f0a13a")),  # xbgpu
    "rec": (("#f3e8ff", "#8250df"), ("#2d1a4a", "#bc8cff")),  # recorders
    "net": (("#dafbe1", "#1a7f37"), ("#0f2e1a", "#3fb950")),  # the network, memory of the device
    "lost": (("#ffebe9", "#cf222e"), ("#3d1214", "#ff7b72")),
    "tool": (("#eff2f5", "#59636e"), ("#21262d", "#9198a1")),  # all else
    "zoom": (("#eff2f5", "none"), ("#1c2128", "none")),
}
TEXTS = {"h1": 16, "h": 13, "t": 12, "s": 11, "xs": 10, "d": 11, "c": 11, "e": 10}  # sizes; d is dim, c and e are monospaced
INK, DIM = ("#1f2328", "#e6edf3"), ("#59636e", "#9198a1")
MONO = 0.603
WIDTHS = {0.28: "'ijlIJ", 0.35: " ,./:;\\|f-", 0.4: "()[]t!r²", 0.53: '"*_`sz?c–', 0.6: "LFkvxyPTYao",
          0.64: "ebdghnpquES$0123456789{}KµΣ", 0.73: "AVBRXZCU", 0.8: "HNDG&OQw", 0.86: "#+<=>^~M×→±≥−", 1.0: "%mW@…"}
ADVANCE = {c: width for width, cs in WIDTHS.items() for c in cs}


def text_width(text, style):
    """An estimate, in pixels."""
    size = TEXTS[style]
    if style in ("c", "e"):
        return MONO * size * len(text)
    return size * sum(ADVANCE.get(c, 0.9) for c in text) * (1.1 if style in ("h", "h1") else 1)


def text_box(x, y, text, style, anchor):
    """left, top, right, bottom of a text whose baseline begins at (x, y)."""
    width, size = text_width(text, style), TEXTS[style]
    left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
    return left, y - 0.78 * size, left + width, y + 0.22 * size


def style_sheet():
    def rules(shade):
        yield f".ink{{fill:{INK[shade]}}}.dim{{fill:{DIM[shade]}}}.lostink{{fill:{COLOURS['lost'][shade][1]}}}"
        for name, colours in COLOURS.items():
            fill, edge = colours[shade]
            yield f".{name}{{fill:{fill};stroke:{edge}}}" + (
                "" if edge == "none" else f".{name}line{{fill:none;stroke:{edge}}}.{name}tip{{fill:{edge};stroke:none}}")

    sizes = "".join(f".{style}{{font-size:{size}px}}" for style, size in TEXTS.items())
    return (f"text{{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;stroke:none}}{sizes}.h,.h1{{font-weight:bold}}"
            f".c,.e{{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace}}rect,path{{stroke-width:1.2}}"
            ".dash{stroke-dasharray:4 3}\n"
            + "\n".join(rules(0)) + "\n@media (prefers-color-scheme:dark){\n" + "\n".join(rules(1)) + "\n}")


def number(value):
    return f"{value:.1f}".removesuffix(".0")


class Picture:
    def __init__(self, name, title, width, height):
        self.path = IMAGES / f"{name}.svg"
        self.width, self.height = width, height
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                      f'role="img">', f"<title>{escape(title)}</title>", f"<style>{style_sheet()}</style>",
                      f'<rect class="page" width="{width}" height="{height}"/>']

    def rect(self, x, y, width, height, colour, more=""):
        self.parts.append(f'<rect class={quoteattr(f"{colour} {more}".strip())} x="{number(x)}" y="{number(y)}" '
                          f'width="{number(width)}" height="{number(height)}" rx="{3 if min(width, height) > 12 else 0}"/>')

    def text(self, x, y, text, style="t", anchor="start", ink=None):
        ink = ink or ("dim" if style == "d" else "ink")
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text class="{style} {ink}" x="{number(x)}" y="{number(y)}"{where}>{escape(text)}</text>')

    def notes(self, y, *sentences, style="d"):
        """A paragraph as wide as the picture, whose first baseline is at y."""
        line = ""
        for word in " ".join(sentences).split():
            if line and text_width(f"{line} {word}", style) > self.width - 28:
                self.text(14, y, line, style)
                line, y = "", y + TEXTS[style] + 5
            line = f"{line} {word}".strip()
        self.text(14, y, line, style)

    def box(self, x, y, width, height, lines, colour="tool", more=""):
        """Lines are texts, or (text, style); they stand in the middle."""
        lines = [(line, "t") if isinstance(line, str) else line for line in lines]
        self.rect(x, y, width, height, colour, more)
        step = [TEXTS[style] + 4 for _, style in lines]
        at = y + (height - sum(step)) / 2
        for (text, style), high in zip(lines, step):
            if text_width(text, style) > width - 4 or sum(step) > height:
                raise ValueError(f"{self.path.name}: '{text}' does not fit its box")
            self.text(x + width / 2, at + high - 4, text, style, "middle")
            at += high

    def line(self, points, colour="tool", more=""):
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path class={quoteattr(f"{colour}line {more}".strip())} d="{path}"/>')

    def area(self, points, colour):
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + "Z"
        self.parts.append(f'<path class="{colour}" d="{path}"/>')

    def arrow(self, points, colour="tool", more=""):
        (ax, ay), (bx, by) = points[-2:]
        length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5
        ux, uy = (bx - ax) / length, (by - ay) / length
        foot = bx - 8 * ux, by - 8 * uy
        self.line([*points[:-1], foot], colour, more)
        corners = [(bx, by), (foot[0] - 4 * uy, foot[1] + 4 * ux), (foot[0] + 4 * uy, foot[1] - 4 * ux)]
        self.area(corners, f"{colour}tip")

    def svg(self):
        return "\n".join([*self.parts, "</svg>", ""])

    def write(self):
        self.path.write_text(self.svg())
