"""Qualifies the satellites of fgpu and dsim on simulated skies, prints rows and tables, and writes them as a document.
Run it with `make qualify-gnss`; the device is CBF_TEST_DEVICE (cpu, cuda), as in the engine tests."""
import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gnss_followed
import gnss_sdr
import gnss_weak
from fengine import harness
from qualify_f import commit, device
from report import Row, line, table, unexpected

TEXT = """# Qualification of satellites

```sh
make qualify-gnss                                # measures, prints, writes this page; needs 16 GB in /tmp
make qualify-gnss QUALIFY_GNSS_FLAGS=--quick     # six minutes, prints only: shows that it works
```

Measured on {date} with commit {commit}, device {device}, {cores} cores, in {seconds} s. The exit status is 0 if no row
fails. A row that was not measured is marked, and does not count as passed.

{rows}
## How it is measured

**A sky for a minute.** numpy writes complex 16-bit samples to a SigMF file. The sky contains 12 satellites, with {cn0}
dB-Hz in each part of a signal. Dopplers are within ±4 kHz, Doppler rates within ±1 Hz/s. The signals carry data and
secondary codes. The sky of L1 contains 6 satellites of L1CA and 6 satellites of E1B and E1C, at 8 MS/s. The codes of E1
are random sequences. The sky of L5 contains 12 satellites of L5I and L5Q, at 21 MS/s. Both polarisations receive the
same satellites, with independent noise. `dsim` converts the file to a capture of 8-bit samples, and `fgpu` replays the
capture. The records of `fgpu` are compared with the model's phases from 1 s after lock to the end. The model's phases
are functions of time in float64.

* *Code phase* is the replica's code phase, field `code_phase`.
* *Carrier phase of 20 ms* is the replica's phase plus the angle of the prompt sums, which are first summed over 20 ms.
  Users of the records, such as `gnsscal`, use this phase. The signs of the model's data and secondary code are removed
  from the prompt sums first. At 45 dB-Hz, thermal noise is 1.6° in 20 ms and 7° in a record of 1 ms. Errors are
  absolute. If a flag of the record says that the phase may be off by half a turn, an offset of half a turn does not
  count as an error.
* A *cycle slip* means that the error of one of these phases differs from the median error by more than a quarter of a
  turn.
* C/N0 is less than {cn0} dB-Hz, because other satellites count as noise. The limited bands (6.8 MHz for E1 and 17.9 MHz
  for L5) and the replica of E1, BOC(1,1), reduce C/N0 further.

`ddc_taps` is 65. A real receiver filters the chips before it samples them, but the file's chips are not filtered. With
65 taps the stream contains the samples of the file. With 64 or 66 taps the stream contains values between the samples
of the file. In these two cases aliases of the chips shift the code of L5 by +0.025 or −0.025 chip.

{followed}
{times}

**30 dB-Hz.** This sky contains {n_weak} satellites of L1CA, at 4 MS/s. `fgpu` also searches for {n_absent} satellites
that are not in the sky, with `acquire_periods: 20` and `acquire_blocks: 50` within ±500 Hz. `fgpu` searches for one
satellite after another. The order in which tracking starts therefore shows which search found a satellite. The table
lists the errors of the first record.

{weak}
**gnss-sdr.** `dsim` sends its own satellites of {sdr_cn0} dB-Hz, with data, for 0.4 s. numpy converts the
capture to complex samples. gnss-sdr {version} generates its own codes. gnss-sdr searches for PRNs 1 to 32 of L1CA and 1
to 12 of L5I. The search uses 8 code periods and steps of 250 Hz. gnss-sdr reports a code one sample late, and the table
subtracts this sample. A correlation of the same file in numpy finds the code at the sample where `dsim` put the code.

{sdr}
**Four antennas.** `scripts/demo_gnss` gives the antennas delays of ±30 µs and compares the results of `gnsscal` with
these delays:

```
{array}
```
"""


def antennas(work):
    """(row, output of demo_gnss)"""
    done = subprocess.run([sys.executable, harness.ROOT / "scripts" / "demo_gnss"], cwd=work, capture_output=True,
                          text=True, check=False, env=os.environ | {"BUILD": str(harness.BUILD)})
    what = "differential delays of ±30 us found by gnsscal to 0.1 sample, phases to 2 degrees"
    return [Row("4 antennas", what, "all", "all" if done.returncode == 0 else "not all", done.returncode == 0)], \
        (done.stdout + done.stderr).strip()


def by_gnss_sdr(work):
    """(rows, tables)"""
    rows, tables = [], []
    for system in gnss_sdr.SYSTEMS:
        if gnss_sdr.version() is None:
            rows.append(Row(f"{system} by gnss-sdr", "satellites of dsim that gnss-sdr acquires", "all",
                            "not run: gnss-sdr is not installed"))
            continue
        found, lines = gnss_sdr.measure(system, work)
        rows += found
        tables.append(lines)
    return rows, "\n".join(tables)


def timed(title, part, *arguments):
    """The result of a part in its own directory, printed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cbf-qualify-") as work:
        found = part(*arguments, Path(work))
    print(f"{title}, {time.monotonic() - began:.0f} s", flush=True)
    for row in found[0]:
        print(line(row), flush=True)
    print(f"\n{found[1]}", flush=True)
    return found


def measure(quick):
    """Rows, and the parts of the document."""
    seconds, n_satellites = (8, 4) if quick else (60, 12)
    rows, tables, times = [], [], ["| run | numpy makes the file | dsim | fgpu |", "|---|---|---|---|"]
    for band in gnss_followed.BANDS:
        found, lines, took = timed(f"{n_satellites} satellites of {band} for {seconds} s", gnss_followed.measure, band,
                                   seconds, n_satellites)
        rows += found
        tables.append(lines)
        times.append(f"| {band}, {gnss_followed.BANDS[band].rate_hz / 1e6:.0f} MS/s, {seconds} s | "
                     + " | ".join(f"{took[step]:.0f} s" for step in ("numpy", "dsim", "fgpu")) + " |")
    parts = {"followed": "\n".join(tables), "times": "\n".join(times)}
    for key, title, part in (("weak", "satellites of 30 dB-Hz", gnss_weak.measure), ("sdr", "gnss-sdr", by_gnss_sdr),
                             ("array", "four antennas", antennas)):
        found, parts[key] = timed(title, part)
        rows += found
    return rows, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="8 s and 4 satellites in place of 60 s and 12")
    parser.add_argument("--output", type=Path, help="the document to write (none)")
    arguments = parser.parse_args()
    began = time.monotonic()
    rows, parts = measure(arguments.quick)
    seconds, n_failed = round(time.monotonic() - began), len(unexpected(rows))
    n_left_out = sum("not run" in row.figure for row in rows)
    print(table({"figure": rows}))
    print(f"{sum(row.ok is True for row in rows)} figures pass, {n_failed} fail, {n_left_out} not run; {seconds} s on "
          f"{device()}")
    if arguments.output:
        arguments.output.write_text(TEXT.format(
            rows=table({"figure": rows}), date=datetime.date.today().isoformat(), commit=commit(), device=device(),
            cores=os.cpu_count(), seconds=seconds, cn0=gnss_followed.CN0, n_weak=gnss_weak.N_SATELLITES,
            n_absent=gnss_weak.N_ABSENT, sdr_cn0=gnss_sdr.CN0, version=gnss_sdr.version() or "(not installed)",
            **parts))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
