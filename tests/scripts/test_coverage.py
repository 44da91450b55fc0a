"""The limits and sums of scripts/coverage."""
import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


coverage = load("coverage")


def counts(name, lines, branches):
    return {"filename": name, "line_covered": lines[0], "line_total": lines[1], "branch_covered": branches[0],
            "branch_total": branches[1]}


FILES = [counts("common/net/a.c", (9, 10), (3, 4)), counts("common/net/b.c", (1, 10), (0, 0)),
         counts("tools/dsim/c.c", (0, 5), (0, 2))]


def test_sums():
    folders = coverage.sums_by_folder(FILES)
    assert {name: list(n.values()) for name, n in folders.items()} == {
        "common/net": [10, 20, 3, 4], "engines": [10, 20, 3, 4], "tools/dsim": [0, 5, 0, 2], "all": [10, 25, 3, 6]}


@pytest.mark.parametrize("limits, low", [
    ({"*": (50, 75), "tools/*": (0, 0)}, []),
    ({"*": (50, 75), "tools/*": (0, 0), "common/net": (50.1, 0)}, ["common/net"]),
    ({"*": (50, 75), "tools/*": (0, 0), "engines": (0, 76)}, ["engines"]),
    ({"*": (50, 75)}, ["tools/dsim"])])
def test_limits(limits, low, capsys):
    assert coverage.print_table(coverage.sums_by_folder(FILES), limits) == len(low)
    marked = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("BELOW ITS LIMIT")]
    assert marked == low


def test_uncovered_lines():
    lines = [{"line_number": number, "count": count, "branches": [{"count": n} for n in branches]}
             for number, count, branches in [(3, 0, []), (4, 0, [0, 0]), (5, 2, [1, 0]), (6, 1, [1, 1]), (9, 0, []), (9, 1, [])]]
    assert coverage.uncovered({"lines": [*lines, {"line_number": 7, "count": 0, "branches": [], "gcovr/noncode": True}]}) == ([3, 4], [5])
    assert coverage.ranges([3, 4, 5, 9]) == "3-5, 9"


def test_rows_of_limits(tmp_path):
    (tmp_path / "limits").write_text("# comment\nlimit | a | 1 | 2\nleave out lines | x|y | because\n")
    assert coverage.read_limits(tmp_path / "limits") == ({"a": (1, 2)}, {"lines": ["x|y"]})
    (tmp_path / "limits").write_text("leave out lines | x | \n")
    with pytest.raises((AssertionError, ValueError)):
        coverage.read_limits(tmp_path / "limits")


def test_paths_of_this_tree():
    limits, left_out = coverage.read_limits()
    assert limits["engines"] == (92, 80)
    assert all((ROOT / name).is_file() for name in left_out["file"])
    assert all((ROOT / folder).is_dir() for folder in limits if folder != "engines" and "*" not in folder)
