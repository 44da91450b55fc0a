"""Statements of the F-engine's qualification that need no measurement.  Qualifications of beams and satellites, with
little data."""
from fractions import Fraction
from types import SimpleNamespace

import pytest

import gnss_followed
import harness
import qualify_b
from harness import ROOT
from phases import evaluation_row
from qualify_f import NARROW
from report import unexpected

RECEIVERS = {"U": 1088 * 10**6, "L": 1712 * 10**6, "S": 1750 * 10**6}


@pytest.mark.parametrize("channels, decimation, kept", NARROW)
def test_bands_in_which_there_are_too_few_evaluations(channels, decimation, kept):
    """A spectrum of a narrow band lasts 2 channels x decimation samples; the page has the row as the program makes it."""
    row = evaluation_row(SimpleNamespace(step=2 * channels * decimation), known=True)
    rates = {name: Fraction(rate, 2 * channels * decimation) for name, rate in RECEIVERS.items()}
    failing = {name: rate for name, rate in rates.items() if rate < 2500}
    assert row.ok == (not failing)
    expected = f"{round(rates['L'])} Hz"
    if failing:
        expected += "; fails in " + ", ".join(f"{name} ({round(rate)} Hz)" for name, rate in failing.items())
    assert row.figure == expected
    page = (ROOT / "docs" / "qualification.md").read_text()
    _, line = [line for line in page.splitlines() if row.what in line]  # of the whole band, and of narrow ones
    assert f"{row.figure}{'' if row.ok else ' **FAIL**'} |" in line


def test_beams():
    """Every figure is within its limit."""
    bands, others = qualify_b.measure(quick=True)
    assert not unexpected(sum([*bands.values(), *others.values()], []))


@pytest.mark.skipif(harness.SANITIZED, reason="6 s of processor time become minutes")
def test_satellites(tmp_path):
    """A satellite is followed as the sky's model has it, and another sky is noticed."""
    seconds = 4
    sky, records, _ = gnss_followed.observe("L1", seconds, 1, tmp_path)
    rows, _ = gnss_followed.judge("L1", seconds, sky, records)
    assert len(rows) == 6 and not unexpected(rows), rows
    chip_s = 1 / sky[0].code.chip_rate
    sky[0].delay_s += 0.03 * chip_s
    rows, _ = gnss_followed.judge("L1", seconds, sky, records)
    assert [row.what for row in unexpected(rows)] == ["code phase, worst satellite, chips rms"]
    sky[0].delay_s -= 0.03 * chip_s
    sky[0].rate_hz_s += 0.5
    rows, _ = gnss_followed.judge("L1", seconds, sky, records)
    assert any("cycle slip" in row.what for row in unexpected(rows))
