"""scripts/check-links on small trees, and on this tree."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = """# A page

Text with [a page](docs/b.md#two-words--a-dash), `fgpu/a.c`, [this heading](#a-page) and [another host](https://example.org/x).
`tests/unit/check_X.c` stands for many files; `[one](two.md)` is code.

```
[no](link.md) `fgpu/none.c`
```
"""
OTHER = """# Two words – a dash

![a picture](images/p.svg) <img src="images/p.svg" alt=""> [back](../README.md) [folder](images)

## Same
## Same
[the second](#same-1)
"""


def check(tree, text="", index=None):
    for name, content in {"README.md": PAGE + text, "docs/b.md": OTHER, "docs/images/p.svg": "<svg/>", "fgpu/a.c": "",
                          "tests/a.py": "", **({"docs/README.md": index} if index else {})}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    subprocess.run(["git", "init", "-q", tree], check=True)
    run = subprocess.run([ROOT / "scripts/check-links", tree], capture_output=True, text=True)
    return run.returncode, run.stdout.splitlines()


def test_good_links(tmp_path):
    assert check(tmp_path) == (0, ["2 pages, 0 links to mend"])
    assert check(tmp_path, index="[b](b.md)") == (0, ["3 pages, 0 links to mend"])


@pytest.mark.parametrize("text, sentence", [
    ("[b](docs/c.md)", "there is no docs/c.md"),
    ("[b](../outside.md)", "there is no ../outside.md"),
    ("[b](docs/b.md#two-words)", "docs/b.md has no heading #two-words"),
    ("[b](#nothing)", "README.md has no heading #nothing"),
    ("![b](docs/images/q.svg)", "there is no docs/images/q.svg"),
    ('<img width="9" src="q.png">', "there is no q.png"),
    ("`fgpu/b.c` and\n`fgpu/a.c`", "there is no fgpu/b.c"),
    ("`tests/none/`", "there is no tests/none/")])
def test_bad_links(tmp_path, text, sentence):
    assert check(tmp_path, text) == (1, [f"README.md:9: {sentence}", "2 pages, 1 links to mend"])


def test_index_is_whole(tmp_path):
    assert check(tmp_path, index="# Documents") == (1, ["docs/README.md:1: it has no link to docs/b.md", "3 pages, 1 links to mend"])


def test_this_tree():
    run = subprocess.run([ROOT / "scripts/check-links"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
