"""scripts/check-layers on small trees with one wrong arrow each, and on this tree."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = """# Hacking

## Folders

| layer | folder | subjects |
|---|---|---|
| 1 | `low`, `low/part` | |
| 2 | `middle` | |
| 2 | `beside` | |
| 3 | `tests/*` | |

## Style

| 9 | `low` | another table |
"""
TREE = {"HACKING.md": TABLE,
        "low/a.h": "", "low/part/b.h": "", "middle/c.h": '#include "low/a.h"\n#include <stdio.h>\n#include "made/by_the_build.h"\n',
        "beside/d.c": '#include "low/part/b.h"\n', "beside/tool.py": "import json\n", "tests/x/e.c": '#include "middle/c.h"\n',
        "middle/run": "#!/usr/bin/env python3\nimport sys\n"}


def check(tree, files):
    for name, text in {**TREE, **files}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "-q", tree], check=True)
    run = subprocess.run([ROOT / "scripts/check-layers", tree], capture_output=True, text=True)
    return run.returncode, run.stdout.splitlines()


def test_arrows_down(tmp_path):
    assert check(tmp_path, {}) == (0, ["3 arrows between folders, 0 wrong"])


@pytest.mark.parametrize("files, said", [
    ({"low/a.h": "\n#include \"middle/c.h\"\n"}, ["low/a.h:2: uses middle/c.h, but middle is on layer 2 and low on 1"]),
    ({"low/a.h": '#include "part/b.h"\n'}, ["low/a.h:1: uses low/part/b.h, but low/part is on layer 1 and low on 1"]),
    ({"middle/c.h": '#include "beside/f.h"\n', "beside/d.c": '#include "middle/c.h"\n', "beside/f.h": ""},
     ["beside/d.c:1: uses middle/c.h, but middle is on layer 2 and beside on 2",
      "middle/c.h:1: uses beside/f.h, but beside is on layer 2 and middle on 2"]),
    ({"middle/run": "#!/usr/bin/env python3\ndef f():\n    import tool\n"},
     ["middle/run:3: uses beside/tool.py, but beside is on layer 2 and middle on 2"]),
    ({"attic/g.c": '#include "low/a.h"\n'}, ["HACKING.md: attic is on no layer"]),
], ids=["upward", "same layer", "circle", "import", "no layer"])
def test_wrong_arrow(tmp_path, files, said):
    status, lines = check(tmp_path, files)
    assert status == 1 and lines[:-1] == said


def test_this_tree():
    run = subprocess.run([ROOT / "scripts/check-layers"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
