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


def test_each_folder_of_the_engines_has_a_limit():
    limits = coverage.read_limits()[0]
    folders = {str(path.parent.relative_to(ROOT)) for name in coverage.ENGINES for path in (ROOT / name).rglob("*.c")}
    assert folders <= limits.keys()


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


def test_new_limits(tmp_path):
    """One percent below the figures, but at least three lines and at most 40; the whole has at least 92 % and 80 %."""
    path = tmp_path / "limits"
    path.write_text("# head\nlimit | engines | 92 | 80\nlimit | common/net | 1 | 1\nlimit | * | 80 | 60\nlimit | tools/* | 0 | 0\n"
                    "leave out file | x.c | because\n")
    files = [counts("common/net/a.c", (970, 1000), (499, 500)), counts("common/recv/a.c", (8000, 8000), (0, 0)),
             counts("fgpu/a.c", (9, 10), (0, 0)), counts("tools/dsim/c.c", (0, 500), (0, 2))]
    coverage.write_limits(coverage.sums_by_folder(files), path)
    assert path.read_text().splitlines() == [
        "# head", "limit | engines | 98.6 | 98.8", "limit | common/net | 96.0 | 98.8", "limit | common/recv | 99.5 | 0.0",
        "limit | fgpu | 60.0 | 0.0", "limit | * | 80 | 60",
        "limit | tools/* | 0 | 0", "leave out file | x.c | because"]
    coverage.write_limits(coverage.sums_by_folder([counts("common/net/a.c", (50, 100), (50, 100))]), path)
    assert "limit | engines | 92.0 | 80.0" in path.read_text()


SOURCE = """int f(int a)
{
    char *b = malloc(a);

    if (!b)
        return -ENOMEM;
    g(b);
    if (close(a))
        h();
    return 0;
}
"""


def test_groups(tmp_path):
    """A line is in the group of the first rule that matches its function, the condition above the line and the line itself."""
    groups = tmp_path / "groups"
    groups.write_text("# comment\ngroup | memory | no memory\ngroup | calls | system calls\n"
                      "match | memory | common/* | ENOMEM|malloc\nmatch | calls | common/a.c | f: .*close\n")
    reasons, rules = coverage.read_groups(groups)
    assert reasons == {"memory": "no memory", "calls": "system calls"}
    (tmp_path / "common").mkdir()
    (tmp_path / "common/a.c").write_text(SOURCE)
    lines = [{"line_number": number, "count": count, "branches": [{"count": n} for n in branches]}
             for number, count, branches in [(3, 1, []), (5, 1, [0, 1]), (6, 0, []), (7, 1, []), (8, 1, [0, 1]), (9, 0, []), (10, 0, [])]]
    file = {"file": "common/a.c", "lines": lines, "functions": [{"name": "f", "lineno": 1}]}
    sums, rest = coverage.sort_into_groups([file, {"file": "tools/b.c", "lines": lines}], rules, tmp_path)
    assert dict(sums) == {"memory": [1, 0], "calls": [1, 1], None: [1, 1]}
    assert rest == ["common/a.c:10: line f: int f(int a) return 0;", "common/a.c:5: branch f: int f(int a) if (!b)"]


def test_document(tmp_path):
    path = tmp_path / "coverage.md"
    path.write_text("A\n<!-- folders: scripts/coverage writes this table -->\nold\n<!-- end of folders -->\nB\n"
                    "<!-- groups: scripts/coverage writes this table -->\n<!-- end of groups -->\nC\n")
    coverage.write_document(coverage.sums_by_folder(FILES), {"*": (50, 75), "engines": (92, 80)}, {"memory": "no memory"},
                            {"memory": [2, 3]}, path)
    text = path.read_text()
    assert "| `common/net` | 20 | 50.0 % | 50.0 % | 4 | 75.0 % | 75.0 % |\n| **all** |" in text and "tools" not in text
    assert "| memory | 2 | 3 | no memory |" in text and "\nold\n" not in text
    assert text.startswith("A\n") and text.endswith("\nC\n")


def test_paths_of_this_tree():
    limits, left_out = coverage.read_limits()
    assert limits["engines"][0] >= 92 and limits["engines"][1] >= 80
    coverage.read_groups()
    assert all((ROOT / name).is_file() for name in left_out["file"])
    assert all((ROOT / folder).is_dir() for folder in limits if folder != "engines" and "*" not in folder)
