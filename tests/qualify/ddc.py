"""The down-converter's filters, as fgpu designs them (check_design_ddc --design prints the taps) and stores them, in
float32: their frequency response, from the taps alone."""
import subprocess

import numpy as np

from fengine import harness
from report import Row

WEIGHT_PASS = 0.005
PROGRAM = harness.BUILD / "tests" / "check_design_ddc"
CASES = [("discard", d, d, 16 * d, 0.0) for d in (4, 8, 16)] + [
    ("no discard, 64 of 107 MHz", d, 2 * d, 32 * d, 64 / 107) for d in (4, 8)]


def response(taps, frequency):
    """In dB, at frequencies in cycles per sample."""
    values = np.exp(-2j * np.pi * np.outer(frequency, np.arange(len(taps)))) @ taps
    return 20 * np.log10(np.maximum(np.abs(values), 1e-12))


def rows():
    out = []
    for mode, decimation, subsampling, n_taps, kept in CASES:
        command = [PROGRAM, "--design", str(subsampling), str(n_taps), str(WEIGHT_PASS), repr(kept)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        taps = np.array(text.split(), np.float32).astype(float) / np.sqrt(subsampling)
        half = kept / 2 if kept else 0.25
        passed = response(taps, np.linspace(0, half, 2001) / subsampling)
        # What lands in the pass band once every subsampling-th sample is kept: n +- half for whole n.
        folds = np.arange(1, subsampling / 2 + 0.5)
        aliases = np.concatenate([np.linspace(n - half, min(n + half, subsampling / 2), 501) for n in folds])
        stopped = response(taps, aliases / subsampling)
        ripple, rejection = np.ptp(passed), np.max(passed) - np.max(stopped)
        out.append(Row("VLBI" if kept else "",
                       f"{mode}, decimation {decimation}, {n_taps} taps: ripple and alias rejection in dB",
                       "< 0.1, > 80", f"{ripple:.5f}, {rejection:.1f}", ripple < 0.1 and rejection > 80))
    return out
