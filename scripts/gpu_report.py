"""Writes the results of runs (files summary.json) into docs/gpu-tests.md, between the page's begin and end marks."""
import json
from pathlib import Path

import gpu_machine
import gpu_parts

PAGE = gpu_machine.HERE / "docs" / "gpu-tests.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def text(summary):
    machine = summary["machine"]
    rows = "\n".join(f"| {r['part']} | {r['name']} | {r['passed']} | {r['failed']} | {r['skipped']} | {r['seconds']:.0f} |"
                     for r in summary["rows"])
    measured = [line for row in summary["rows"] for line in row["lines"] if row["part"] not in ("bench", "xbench")]
    return "\n".join([
        f"Commit {summary['commit']}, {summary['date']}, on {machine['gpu']} ({machine['memory']}), driver "
        f"{machine['driver']}, CUDA {machine['cuda']}, {machine['host']}.", "",
        "| part | what | passed | failed | skipped | s |", "|---|---|---:|---:|---:|---:|", rows, "",
        *(["```text", *measured, "```", ""] if measured else []),
        "The log's last line:", "", "```text", gpu_parts.table(summary).splitlines()[-1], "```"])


def report(directories):
    """Writes the rows of several runs into the page, one run after the other.  All runs must have the same commit and
    machine."""
    summaries = [json.loads((Path(directory) / "summary.json").read_text()) for directory in directories]
    summary = summaries[0]
    for other in summaries[1:]:
        if any(other[key] != summary[key] for key in ("commit", "device", "machine")):
            raise SystemExit("gpu report: the runs are of different commits or machines")
        summary["rows"] += other["rows"]
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text(summary)}\n{END}{after}")
    print(text(summary))
    return 0
