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
import narrow
import phases
import tones
from plan import Plan
from report import line, table, unexpected

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


NARROW = [(1024, 8, 0), (4096, 8, 0), (32768, 8, 0), (32768, 16, 0), (4096, 8, 64 / 107)]  # channels, decimation, kept


def has_narrow_bands():
    """Whether this fgpu makes them."""
    help_text = subprocess.run([fengine.harness.BUILD / "fgpu", "--print-example"], capture_output=True, text=True,
                               check=True).stdout
    return "narrowband" in help_text


def qualify(title, plan, parts):
    """Rows and plots of one output."""
    rows, plots = [], {}
    work = Path(tempfile.mkdtemp(prefix="cbf-qualify-"))
    for part in parts:
        began = time.monotonic()
        found = part(plan, work)
        if isinstance(found, tuple):
            found, plots = found
        rows += found
        print(f"{title}: {part.__module__}, {time.monotonic() - began:.1f} s", flush=True)
        for row in found:
            print(line(row), flush=True)
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
    by_channels, by_band, plots = {}, {}, {}
    for channels in map(int, arguments.channels.split(",")):
        title = f"{channels} channels"
        by_channels[title], plots[channels] = qualify(title, Plan(channels, arguments.quick),
                                                      (tones.measure, phases.static, phases.rates, levels.measure))
    for channels, decimation, kept in (NARROW if has_narrow_bands() else []):
        title = f"{channels} channels, 1/{decimation} of the band" + (", 64 of 107 MHz kept" if kept else "")
        if not arguments.quick or channels == min(n for n, _, _ in NARROW):
            by_band[title], _ = qualify(title, narrow.Band(channels, decimation, kept, arguments.quick),
                                        (narrow.tones, narrow.static))
    filters = {"figure": ddc.rows()}
    seconds = time.monotonic() - began
    tables = [table(columns) if columns else "" for columns in (by_channels, by_band, filters)]
    print("\n" + "\n".join(tables))
    rows = sum([*by_channels.values(), *by_band.values(), *filters.values()], [])
    n_failed, n_unexpected = sum(row.ok is False for row in rows), len(unexpected(rows))
    print(f"{sum(row.ok is True for row in rows)} figures pass, {n_failed} fail, {n_unexpected} of these without an "
          f"explanation in docs/qualification.md; {seconds:.0f} s on {device()}")
    if arguments.plots:
        import plots as pictures
        pictures.draw(plots, arguments.plots)
    if arguments.output:
        import document
        document.write(arguments.output, tables, {"date": datetime.date.today().isoformat(), "commit": commit(),
                                                  "device": device(), "seconds": round(seconds)},
                       bool(arguments.plots))
    return 1 if n_unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
