"""scripts/check-words on small trees, and on this tree."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = """/* The sizes of a chunk.  They are what the configuration says. */
static const char *says = "/* What is this? */"; // the text of a joke; often one
"""


def check(tree, text):
    (tree / "fgpu").mkdir()
    (tree / "fgpu/a.c").write_text(GOOD + text)
    (tree / "fgpu/a.py").write_text("# What a plot shows.\n")
    subprocess.run(["git", "init", "-q", tree], check=True)
    run = subprocess.run([ROOT / "scripts/check-words", tree], capture_output=True, text=True)
    return run.returncode, run.stdout.splitlines()


def test_nouns(tmp_path):
    assert check(tmp_path, "") == (0, ["1 files, 0 sentences to rewrite"])


@pytest.mark.parametrize("text, line, word", [
    ("/* What a chunk has. */", 3, "What"),
    ("/* A chunk:\n * its bytes.  Of these some are\n * there. */", 4, "Of"),
    ("int a; /* bytes of a chunk.\n * Whoever reads it waits. */", 4, "Whoever"),
    ("// What a line says", 3, "What")])
def test_other_starts(tmp_path, text, line, word):
    code, printed = check(tmp_path, text)
    assert (code, printed[0]) == (1, f"fgpu/a.c:{line}: a sentence begins with '{word}': begin it with a noun")
    assert printed[1] == "1 files, 1 sentences to rewrite"


def test_this_tree():
    run = subprocess.run([ROOT / "scripts/check-words"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
