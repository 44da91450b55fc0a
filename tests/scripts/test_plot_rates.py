"""docs/images/gpu-rates.svg shows the figures of docs/performance.md."""
import importlib
import json
import xml.etree.ElementTree

import pytest

import harness


@pytest.fixture
def plot_rates(monkeypatch):
    monkeypatch.syspath_prepend(str(harness.ROOT / "scripts" / "bench"))
    return importlib.import_module("plot_rates")


def test_picture_is_of_the_page(plot_rates):
    found = plot_rates.read(plot_rates.PAGE.read_text())
    assert list(found["fgpu"]) == list(found["cuFFT"]) == ["1024", "4096", "8192", "32768", "65536"]
    for rates in (found["fgpu"], found["cuFFT"]):
        assert all(low <= middle <= high for low, middle, high in rates.values())
    assert set(found["xbgpu"]) == {"4 bits", "8 bits", "16 bits"}
    picture = xml.etree.ElementTree.parse(plot_rates.PICTURE)
    described = next(e.text for e in picture.iter() if e.tag.endswith("}description"))
    assert json.loads(described) == found, "scripts/bench/plot_rates.py renews the picture"
    texts = [e.text for e in picture.iter() if e.tag.endswith("}text")]
    assert texts.count("not measured") == len(set(found["fgpu"]) - {str(n) for n in plot_rates.REFERENCE}) == 1


def test_page_has_the_reference(plot_rates):
    r = plot_rates.REFERENCE
    rates = " | ".join(str(r[channels]) for channels in (1024, 4096, 8192, 32768))
    assert f"| Gsamples/s of the reference's kernels | {rates} |" in plot_rates.PAGE.read_text()
