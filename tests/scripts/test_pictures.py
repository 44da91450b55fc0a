"""docs/images/NAME.svg equals the drawing of docs/pictures/NAME.py, is well-formed, and has no text over another text
or over an edge."""
import importlib
import importlib.util
import re
import subprocess
import xml.etree.ElementTree

import pytest

import harness

PICTURES = harness.ROOT / "docs" / "pictures"
NAMES = sorted(path.stem for path in PICTURES.glob("*.py") if "def draw()" in path.read_text())
SVG = "{http://www.w3.org/2000/svg}"
SLACK = 1  # pixels that estimates may overlap by
MAX_BYTES = 60_000


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(PICTURES))


def read(name):
    return (harness.ROOT / "docs" / "images" / f"{name.replace('_', '-')}.svg").read_text()


def draw(name):
    """The drawing of a program, whose name may also be that of another test's module."""
    spec = importlib.util.spec_from_file_location(f"picture_{name}", PICTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.draw()


def boxes_of(text):
    """(text, (left, top, right, bottom)) of each text, by the estimate of drawing.py."""
    drawing = importlib.import_module("drawing")
    for element in xml.etree.ElementTree.fromstring(text).iter(SVG + "text"):
        style = element.get("class").split()[0]
        where = float(element.get("x")), float(element.get("y"))
        yield element.text, drawing.text_box(*where, element.text, style, element.get("text-anchor", "start"))


def faults_of(text):
    """Faults of the texts of a picture."""
    root = xml.etree.ElementTree.fromstring(text)
    _, _, width, height = map(float, root.get("viewBox").split())
    boxes = list(boxes_of(text))
    faults = [f"'{t}' leaves the picture" for t, (left, top, right, bottom) in boxes
              if left < 0 or top < 0 or right > width or bottom > height]
    for i, (one, a) in enumerate(boxes):
        faults += [f"'{one}' lies over '{other}'" for other, b in boxes[:i]
                   if min(a[2], b[2]) - max(a[0], b[0]) > SLACK and min(a[3], b[3]) - max(a[1], b[1]) > SLACK]
    return faults


@pytest.mark.parametrize("name", NAMES)
def test_picture(name):
    text = read(name)
    assert draw(name).svg() == text, "make pictures draws it again"
    assert len(text.encode()) < MAX_BYTES
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == SVG + "svg" and len(root.find(SVG + "title").text) > 20
    assert "prefers-color-scheme:dark" in root.find(SVG + "style").text
    assert "http" not in re.sub(r'xmlns="[^"]*"|<text.*', "", text), "nothing is fetched"
    assert faults_of(text) == []


def test_each_picture_is_in_a_document():
    documents = "".join(path.read_text() for path in [*(harness.ROOT / "docs").glob("*.md"), harness.ROOT / "README.md"])
    assert [name for name in NAMES if f"images/{name.replace('_', '-')}.svg)" not in documents] == []


def test_faults_are_found():
    drawing = importlib.import_module("drawing")
    picture = drawing.Picture("none", "a title", 100, 100)
    picture.text(90, 50, "too long")
    picture.text(10, 20, "one")
    picture.text(12, 24, "two")
    assert faults_of(picture.svg()) == ["'too long' leaves the picture", "'two' lies over 'one'"]
    with pytest.raises(ValueError, match="does not fit"):
        picture.box(0, 0, 30, 20, ["much too long"])


def test_names_that_are_gone_are_found():
    facts = importlib.import_module("facts")
    assert facts.metric("fgpu_input_heaps_total") == "fgpu_input_heaps_total"
    with pytest.raises(ValueError, match="does not have"):
        facts.metric("fgpu_input_heap")
    with pytest.raises(ValueError, match="does not define"):
        facts.constant("common/engine/lane.h", "LANE_N")


def test_make_draws_all():
    listed = subprocess.run(["make", "-n", "pictures"], cwd=harness.ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"docs/pictures/(\w+)\.py", listed) == NAMES
