"""Qualifies beams: measures the real xbgpu against the rows of the acceptance catalogue, prints them and writes them as
a document.  Run it with `make qualify-b`; the device is CBF_TEST_DEVICE (cpu, cuda), as in the engine tests."""
import argparse
import datetime
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import beam_control
import beam_inputs
import beam_phases
from qualify_f import commit, device, qualify
from report import table, unexpected

TEXT = """# Qualification of beams

```sh
make qualify-b                             # measures, prints, writes this page; under two minutes on two cores
CBF_TEST_DEVICE=cuda make qualify-b        # the same on a GPU
make qualify-b QUALIFY_B_FLAGS=--quick     # seconds, prints only; a test of make check does the same
```

Measured on {date} with commit {commit}, device {device}, in {seconds} s. The first column gives the number of the
requirement for the array (CBF-REQ-...), if the row measures a requirement. A *goal* is a limit of this project. A row
passes if it meets the requirement and the goal. Rows without a number correspond to tests of the reference
implementation.

## Delays, phases and levels

Voltages and beams have 8 bits, with uniform dither. There are 4 antennas, and the sample rate is 1712 MHz.

{bands}
## Inputs and control

{others}
## How it is measured

The real `xbgpu` replays heaps of known voltages, or heaps from the real `fgpu`. The exit status is 0 if every row
passes.

**Delays and phases.** All antennas receive the same signal with an amplitude of 110 steps. Each antenna's signal has
its own delay and phase, and is rounded to 8 bits. The beams remove these delays and phases, and add the delay of the
row. The phase of each channel is compared with the phase of the sum in double precision. The noise of a phase comes
from dither and rounding. In each component this noise is 0.41 steps (at an amplitude of 110 steps), divided by the
square root of the number of spectra. The difference in LSB compares two beams, which are both dithered and rounded.
Before the comparison the phase of one beam is rotated to the phase of the other beam.

**Rates.** One antenna receives a model with a load time between two batches. `xbgpu` evaluates a model only every 10
ms, which causes the error. The common phase of all channels shows this error.

**Levels.** The input is noise of 32 steps rms. The largest values of the noise saturate at a gain of 2, and the power
shows this saturation. Weights and gains of -40 to +40 dB are applied to noise of 16 steps rms in each component. Above
this range beams saturate. Below this range the noise of the dither (1/6 step) is no longer negligible.

**The F-engine's delays.** `fgpu` delays one polarisation of a signal, and the beam of this polarisation removes the
delay. The other polarisation is not delayed. The two beams differ because of three roundings to 8 bits, two of them in
the F-engine. The beam cannot remove a delay of more than half a sample, because the F-engine shifts the data by whole
samples for such a delay.

**Control.** `dsim`, two `fgpu` and two `xbgpu` run live. The test sends `?delays` every 6 s and `?beam-delays` every
3.4 s.
"""


@dataclass
class Plan:
    """How much is measured."""
    channels: int
    quick: bool

    @property
    def n_spectra(self):
        return 256 if self.quick else 1024

    @property
    def n_batches(self):
        return 136 if self.quick else 656


def measure(quick):
    """Rows by number of channels, and the others."""
    bands = {f"{n} channels": qualify(f"{n} channels", Plan(n, quick), [beam_phases.measure])[0]
             for n in ((128,) if quick else (1024, 4096))}
    parts = [beam_phases.rates, beam_inputs.sums, beam_inputs.mapping, beam_inputs.chain, beam_control.starts,
             beam_control.times] + ([] if quick else [beam_control.live])
    return bands, {"figure": qualify("beams", Plan(4096, quick), parts)[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer spectra, nothing live: shows that it works")
    parser.add_argument("--output", type=Path, help="the document to write (none)")
    arguments = parser.parse_args()
    began = time.monotonic()
    bands, others = measure(arguments.quick)
    seconds = round(time.monotonic() - began)
    rows = sum([*bands.values(), *others.values()], [])
    tables, n_failed = {"bands": table(bands), "others": table(others)}, len(unexpected(rows))
    print("\n" + "\n".join(tables.values()))
    print(f"{sum(row.ok is True for row in rows)} figures pass, {n_failed} fail; {seconds} s on {device()}")
    if arguments.output:
        arguments.output.write_text(TEXT.format(**tables, date=datetime.date.today().isoformat(), commit=commit(),
                                                device=device(), seconds=seconds))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
