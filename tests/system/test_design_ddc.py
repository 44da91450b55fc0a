"""The down-converter's filter against scipy's, for every decimation from 4 to 64 in both modes.

Both look for the best filter on the same grid of frequencies, so the taps agree.  If they differ, one of the two has
stopped before it was there.  That must be scipy's, with a larger error on that grid.
"""
import os
import subprocess

import numpy as np
import pytest
import scipy.signal

import harness

PROGRAM = os.path.join(os.environ.get("CBF_BUILD", "build"), "tests", "check_design_ddc")
WEIGHT_PASS = 0.005


def bands_of(subsampling, pass_fraction):
    """In units of the rate after subsampling."""
    if pass_fraction:
        return [(0, pass_fraction / 2), (1 - pass_fraction / 2, subsampling / 2)]
    stop = np.arange(0.75, subsampling / 2)
    return [(0, 0.25)] + [(low, min(low + 0.5, subsampling / 2)) for low in stop]


def largest_error(taps, bands, subsampling):
    """On the grid that remez.h defines."""
    step = 0.5 / (16 * ((len(taps) + 1) // 2))
    position = np.arange(len(taps)) - (len(taps) - 1) / 2
    largest = 0
    for i, (low, high) in enumerate(np.array(bands) / subsampling):
        frequency = np.append(np.arange(low, high - step, step), high)
        response = np.cos(2 * np.pi * np.outer(frequency, position)) @ taps / np.sqrt(subsampling)
        error = WEIGHT_PASS * abs(response - 1) if i == 0 else abs(response)
        largest = max(largest, error.max())
    return largest


def compare(subsampling, n_taps, pass_fraction):
    bands = bands_of(subsampling, pass_fraction)
    output = subprocess.run([PROGRAM, "--design", str(subsampling), str(n_taps), str(WEIGHT_PASS), repr(pass_fraction)],
                            check=True, capture_output=True, text=True).stdout
    ours = np.array(output.split(), float)
    theirs = np.sqrt(subsampling) * scipy.signal.remez(
        n_taps, np.ravel(bands), [1] + [0] * (len(bands) - 1), weight=[WEIGHT_PASS] + [1] * (len(bands) - 1),
        fs=subsampling, maxiter=1000)
    assert len(ours) == n_taps
    if abs(ours - theirs).max() > 1e-9:
        assert largest_error(theirs, bands, subsampling) > 1.1 * largest_error(ours, bands, subsampling)
        return False
    return True


@pytest.mark.skipif(harness.SANITIZED, reason="the unit tests run the design with sanitizers")
@pytest.mark.parametrize("discard", [True, False])
def test_like_scipy(discard):
    same = {}
    for decimation in range(4, 65):
        subsampling = decimation if discard else 2 * decimation
        same[decimation] = compare(subsampling, 16 * subsampling, 0.0 if discard else 64 / 107)
    print("not the best of scipy's:", [d for d in same if not same[d]])
    assert sum(same.values()) >= 30
    assert all(same[d] for d in range(4, 33))


@pytest.mark.parametrize("n_taps", [4, 37, 64, 99, 100])
def test_other_lengths(n_taps):
    assert compare(7, n_taps, 0.0)
    assert compare(6, n_taps, 0.7)
