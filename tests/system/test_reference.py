"""docs/reference, which is also in the manual pages, equals the programs' own descriptions."""
import re
import subprocess

import pytest

import harness
import reference


@pytest.mark.parametrize("program", reference.PROGRAMS)
def test_reference(program, work):
    text = reference.reference(program, work)
    assert text == (reference.DIRECTORY / f"{program}.txt").read_text(), "make examples writes docs/reference anew"


def test_no_metric_is_left_out():
    """Names that only some configurations have are in the configurations of reference.py: every name in the sources, or
    its beginning."""
    known = "\n".join((reference.DIRECTORY / f"{program}.txt").read_text() for program in reference.PROGRAMS)
    sources = [path.read_text() for folder in ("common", "fgpu", "xbgpu", "tools")
               for path in (harness.ROOT / folder).rglob("*.c")]
    names = set(re.findall(rf'"((?:{"|".join(reference.PROGRAMS)})_[a-z_]+)"', "\n".join(sources)))
    assert len(names) > 40
    assert not [name for name in sorted(names) if f"\n{name}" not in known]


@pytest.mark.parametrize("program", reference.PROGRAMS)
def test_example(program):
    """config/PROGRAM.yaml has every key of the table, and is good."""
    example = harness.ROOT / "config" / f"{program}.yaml"
    shown = subprocess.run([harness.BUILD / program, "--print-example"], capture_output=True, text=True, check=True)
    assert shown.stdout == example.read_text(), "make examples writes config/ anew"
    subprocess.run([harness.BUILD / program, "--check-config", example], check=True)
