"""Rows of the qualification and their presentation: a table with a column for each number of channels."""
import math
from dataclasses import dataclass


@dataclass
class Row:
    """The result for one number of channels. 'ok' is None if there is no criterion."""
    requirement: str
    what: str
    criterion: str
    figure: str
    ok: bool | None = None
    known: bool = False  # a miss that the document explains

    def __post_init__(self):
        self.ok = None if self.ok is None else bool(self.ok)  # numpy's own are neither True nor False


def db(power_ratio):
    return 10 * math.log10(max(power_ratio, 1e-40))


def verdict(oks):
    oks = [ok for ok in oks if ok is not None]
    return "" if not oks else "pass" if all(oks) else "**FAIL**"


def line(row):
    """A row as text, for a terminal."""
    mark = {None: "    ", True: "pass", False: "FAIL"}[row.ok]
    return f"  {mark} {row.requirement:17} {row.what}: {row.figure} ({row.criterion})"


def unexpected(rows):
    return [row for row in rows if row.ok is False and not row.known]


def table(by_column):
    """Markdown of {column: [Row]}.  Figures stand side by side if requirement, what and criterion of their rows are
    equal."""
    keys = list(dict.fromkeys((r.requirement, r.what, r.criterion) for rows in by_column.values() for r in rows))
    columns = list(by_column)
    lines = ["| requirement | what | criterion | " + " | ".join(columns) + " | |",
             "|---" * (len(columns) + 4) + "|"]
    for key in keys:
        found = [next((r for r in by_column[c] if (r.requirement, r.what, r.criterion) == key), None) for c in columns]
        figures = [("" if r is None else r.figure + (" **FAIL**" if r.ok is False and len(columns) > 1 else ""))
                   for r in found]
        lines.append(f"| {' | '.join(key)} | {' | '.join(figures)} | {verdict([r.ok for r in found if r])} |")
    return "\n".join(lines) + "\n"
