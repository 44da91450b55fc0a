"""The table of scenarios in docs/reliability.md: each row has a name of its own, a promise, and tests that exist."""
import re

import pytest

import harness

PAGE = harness.ROOT / "docs" / "reliability.md"
N_LEAST = 30


def rows(text):
    """Returns the rows of the first table of the section: [scenario, what happens, promise, test]."""
    table = text.split("\n## Scenarios\n")[1].split("\n| scenario |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def why_not(test):
    """Returns why FILE::TEST does not exist, or None."""
    path, _, name = test.partition("::")
    if not (harness.ROOT / path).is_file():
        return f"there is no file {path}"
    pattern = rf"^TEST\({name}\b" if path.endswith(".c") else rf"^def {name}\("
    return None if name and re.search(pattern, (harness.ROOT / path).read_text(), re.M) else f"{path} has no test {name}"


def faults(text):
    """Returns sentences about the table's faults."""
    found, names = [], []
    for row in rows(text):
        names.append(row[0])
        tests = re.findall(r"`([^`]+)`", row[-1])
        found += [f"{row[0]}: a row has four cells"] * (len(row) != 4 or not all(row))
        found += [f"{row[0]}: no test"] * (not tests)
        found += [f"{row[0]}: {why}" for why in map(why_not, tests) if why]
    found += [f"{name}: twice" for name in set(names) if names.count(name) > 1]
    return found + [f"{len(names)} scenarios"] * (len(names) < N_LEAST)


def test_table():
    assert not faults(PAGE.read_text())


@pytest.mark.parametrize("change, sentence", [
    (("test_kill.py::test_restarts", "test_kill.py::test_restart"), "tests/system/test_kill.py has no test test_restart"),
    (("check_service.c::late_signal", "check_service.c::late_signals"), "has no test late_signals"),
    (("test_wrap.py", "test_wraps.py"), "there is no file tests/system/test_wraps.py"),
    (("| leap second |", "| wrap at 2^48 |"), "wrap at 2^48: twice"),
    (("`tests/unit/common/daemon/check_service.c::late_signal`", "none"), "signal after the drain: no test"),
])
def test_faults_are_found(change, sentence):
    assert any(sentence in fault for fault in faults(PAGE.read_text().replace(*change)))
