"""scripts/check-static on small trees: the tools, the order of the files, and the list of allowed findings."""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTY = """#include <stdlib.h>
int main(void)
{
    int *number = malloc(sizeof(int));
    *number = 3;
    return *number / (*number - 3);
}
"""


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


static = load("check-static")


@pytest.mark.parametrize("tool, line, finding", [
    ("gcc", "fgpu/a.c:3:7: warning: dereference of NULL 'a' [CWE-476] [-Wanalyzer-null-dereference]",
     ("gcc", "analyzer-null-dereference", "fgpu/a.c", 3, "dereference of NULL 'a'")),
    ("gcc", "fgpu/a.c:3:7: error: unknown type name 'b'", ("gcc", "error", "fgpu/a.c", 3, "unknown type name 'b'")),
    ("clang-tidy", "/tree/./fgpu/a.h:40:12: warning: text [of] it [bugprone-branch-clone,cert-x]",
     ("clang-tidy", "bugprone-branch-clone", "fgpu/a.h", 40, "text [of] it")),
    ("cppcheck", "fgpu/a.c:14: Array 'a[2]' is short. [arrayIndex]", ("cppcheck", "arrayIndex", "fgpu/a.c", 14, "Array 'a[2]' is short.")),
    ("clang-tidy", "/tree/fgpu/a.c:40:12: note: assuming [x]", None),
    ("clang-tidy", "12 warnings generated.", None)])
def test_reports(tool, line, finding):
    assert list(static.findings_of(tool, line, "/tree")) == ([finding] if finding else [])


def test_allowed_findings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.c").write_text("int a;\nint b = f(a);\n")
    finding = static.Finding("gcc", "analyzer-x", "a.c", 2, "text")
    Path("list").write_text("# comment\n\ngcc | analyzer-* | a.c | f(a | because\n")
    row, = static.read_allowed("list")
    assert static.allows(row, finding)
    for other in [row._replace(tool="cppcheck"), row._replace(check="analyzer-y"), row._replace(path="b.c"), row._replace(source="g(")]:
        assert not static.allows(other, finding)
    Path("list").write_text("gcc | analyzer-* | a.c | f(a |\n")
    with pytest.raises(AssertionError):
        static.read_allowed("list")


def test_newest_files_first(tmp_path, monkeypatch):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=n@localhost", *arguments], check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    Path("fgpu").mkdir()
    git("init", "-q")
    for names in (["a.c", "b.c", "c.c", "d.c", "e.c"], ["b.c", "README"], ["c.h", "c.c"]):
        for name in names:
            Path("fgpu", name).write_text(str(names))
        git("add", ".")
        git("commit", "-qm", "files")
    Path("fgpu/new.c").write_text("")
    files = static.product_files()
    assert static.newest_first(files) == ["fgpu/new.c", "fgpu/c.c", "fgpu/b.c"]
    assert sorted(files) == [f"fgpu/{name}.c" for name in ("a", "b", "c", "d", "e", "new")]


def test_each_tool_finds(tmp_path, monkeypatch):
    missing = [tool for tool in ("cppcheck", "clang-tidy") if not shutil.which(tool)]
    if missing and not os.environ.get("CBF_CI"):
        pytest.skip(f"{missing[0]} is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / ".clang-tidy", ".")
    Path("a.c").write_text(FAULTY)
    Path("compile_commands.json").write_text(json.dumps([{"directory": str(tmp_path), "file": "a.c", "command": "gcc -c a.c"}]))
    checker = static.Checker([], [], None)
    checker.check("a.c")
    assert checker.n_files == 1 and checker.n_bad == len(checker.findings)
    assert {(f.tool, f.line) for f in checker.findings} >= {("gcc", 5), ("cppcheck", 6), ("clang-tidy", 6)}


def test_rows_of_this_tree():
    for row in static.read_allowed(ROOT / static.ALLOWED):
        assert row.tool in ("cppcheck", "clang-tidy", "gcc")
        texts = [path.read_text() for path in ROOT.glob(row.path) if path.is_file()]
        assert "*" in row.path or any(row.source in text for text in texts), row


def test_prints_what_is_not_allowed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.c").write_text("one\ntwo\n")
    monkeypatch.setattr(static, "commands_of", lambda flags, path, max_nodes: {"gcc": ["printf", "a.c:%d: warning: w [-Wx]\\n", "1", "2", "2"]})
    checker = static.Checker([], [static.Allowed("gcc", "x", "a.c", "one", "because")], None)
    checker.check("a.c")
    assert capsys.readouterr().out == "a.c:2: w [gcc x]\n" and (len(checker.findings), checker.n_bad) == (2, 1)


def test_file_that_clang_tidy_does_not_know(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(static, "commands_of", lambda flags, path, max_nodes: {"clang-tidy": ["echo", "Skipping a.c. Compile command not found."]})
    checker = static.Checker([], [], None)
    checker.check("a.c")
    assert checker.n_bad == 1
