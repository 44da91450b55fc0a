"""Qualifies the F-engine: measures the real fgpu against the rows of the acceptance catalogue, prints them and writes
them as a document.  Run it with `make qualify-f`; the device is CBF_TEST_DEVICE (cpu, cuda), as in the engine tests."""
import argparse
import datetime
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ddc
import fengine
import levels
import phases
import tones
from plan import Plan
from report import table

ROOT = Path(__file__).resolve().parents[2]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def device():
    if fengine.harness.DEVICE != "cuda":
        return f"{fengine.harness.DEVICE} ({processor()})"
    name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                          check=False).stdout.strip()
    return f"cuda ({name or 'unknown GPU'}; host: {processor()})"


def commit():
    return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True,
                          check=False).stdout.strip() or "unknown"


def qualify(channels, quick):
    """Rows and plots of one number of channels."""
    plan = Plan(channels, quick)
    rows, plots = [], {}
    work = Path(tempfile.mkdtemp(prefix=f"cbf-qualify-{channels}-"))
    for part in (tones.measure, phases.static, phases.rates, levels.measure):
        began = time.monotonic()
        found = part(plan, work)
        if isinstance(found, tuple):
            found, plots = found
        rows += found
        print(f"{channels} channels: {part.__module__}, {time.monotonic() - began:.1f} s", flush=True)
        for row in found:
            verdict = {None: "    ", True: "pass", False: "FAIL"}[row.ok]
            print(f"  {verdict} {row.requirement:10} {row.what}: {row.figure} ({row.criterion})", flush=True)
    shutil.rmtree(work)
    return rows, plots


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", default="1024,4096,32768", help="comma separated")
    parser.add_argument("--quick", action="store_true", help="fewer tones and spectra: shows that all of this works")
    parser.add_argument("--output", type=Path, help="the document to write (none)")
    parser.add_argument("--plots", type=Path, help="a directory for pictures (none)")
    arguments = parser.parse_args()
    began = time.monotonic()
    by_channels, plots = {}, {}
    for channels in map(int, arguments.channels.split(",")):
        by_channels[f"{channels} channels"], plots[channels] = qualify(channels, arguments.quick)
    ddc_rows = ddc.rows()
    seconds = time.monotonic() - began
    tables = [table(by_channels), table({"figure": ddc_rows})]
    print("\n" + "\n".join(tables))
    rows = sum(by_channels.values(), ddc_rows)
    failed = [r for r in rows if r.ok is False]
    print(f"{sum(r.ok is True for r in rows)} rows pass, {len(failed)} fail; {seconds:.0f} s on {device()}")
    if arguments.plots:
        import plots as pictures
        pictures.draw(plots, arguments.plots)
    if arguments.output:
        import document
        document.write(arguments.output, tables, {"date": datetime.date.today().isoformat(), "commit": commit(),
                                                  "device": device(), "seconds": round(seconds)},
                       bool(arguments.plots))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
