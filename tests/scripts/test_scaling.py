"""scripts/bench/scaling: its results against a computation by hand. docs/scaling.md has its present tables."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import harness

BENCH = harness.ROOT / "scripts" / "bench"


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    loader = importlib.machinery.SourceFileLoader("scaling", str(BENCH / "scaling"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scaling", loader))
    monkeypatch.setitem(sys.modules, "scaling", module)
    loader.exec_module(module)
    return module


def test_bytes(scaling):
    array = scaling.Array(64, 1712e6)
    assert 8e-9 * array.digitiser_bytes() == pytest.approx(34.24)
    assert 8e-9 * array.voltage_bytes() == pytest.approx(27.392)
    # MeerKAT's X-engine boards, one for each of 64 antennas, are said to take 27.2 Gb/s each.
    assert 8e-9 * array.antennas * array.voltage_bytes() / 64 == pytest.approx(27.2, rel=0.01)
    assert scaling.Array(64, 1712e6, output_bits=4).voltage_bytes() == array.voltage_bytes() / 2
    # Of 2 antennas 3 baselines, 4 products, 8 bytes each.
    assert scaling.Array(2, 1e6).dump_bytes(10) == 10 * 3 * 4 * 8


def test_limits(scaling):
    array, host = scaling.Array(80, 1712e6), scaling.Host(100, 16, "sockets", 4, 150e9)
    limits = scaling.f_limits(array, host)
    assert limits["network in"] == pytest.approx(95 / (34.24 * 5258 / 5120))
    assert limits["network out"] == pytest.approx(95 / (27.392 * 8330 / 8192))
    packets_in, packets_out = 34.24e9 / 8 / 5120, 27.392e9 / 8 / 8192
    assert limits["cores"] == pytest.approx(15 * 0.7 / (packets_in * 940e-9 + packets_out * 1540e-9))
    assert limits["memory"] == pytest.approx(150e9 / (4 * 4.28e9 + 5 * 3.424e9))
    assert limits["PCIe"] == pytest.approx(25 / 4.28)
    assert limits["GPU"] == pytest.approx(130.2 / 1.712)
    limits = scaling.x_limits(array, host)
    assert limits["network in"] == pytest.approx(95 / (80 * 27.392 * 8330 / 8192) * 32768)
    assert limits["GPU"] == pytest.approx(420 / (80 * 0.856) * 32768)
    assert limits["GPU memory"] == pytest.approx(0.9 * 139e9 / (4 * 3240 * 32))


@pytest.mark.parametrize("what, better", [("nic_gbit", 800), ("cores", 512), ("transport", "ibverbs"), ("pcie", 5),
                                          ("memory_bytes", 1e12)])
def test_a_better_host_carries_no_less(scaling, what, better):
    for antennas in (4, 80, 1024):
        array = scaling.Array(antennas, 1712e6)
        plain = scaling.Host(100, 16, "sockets", 3, 50e9)
        more = scaling.Host(**{**vars(plain), what: better})
        assert scaling.first(scaling.f_limits(array, more))[1] >= scaling.first(scaling.f_limits(array, plain))[1]
        assert scaling.first(scaling.x_limits(array, more))[1] >= scaling.first(scaling.x_limits(array, plain))[1]


def test_plans_have_room_for_the_array(scaling):
    for _, array in scaling.ARRAYS:
        for host in scaling.HOSTS:
            plan = scaling.plan(array, host)
            assert plan["f_hosts"] * plan["f_per_host"] >= array.antennas > (plan["f_hosts"] - 1) * plan["f_per_host"]
            assert plan["x_hosts"] * plan["x_per_host"] == array.channels
            assert plan["x_per_host"] <= scaling.first(scaling.x_limits(array, host))[1] < 2 * plan["x_per_host"] or \
                plan["x_per_host"] == array.channels
            assert 0 < plan["x_gbit"] < host.nic_gbit


def test_the_page_is_what_is_computed(scaling):
    page = scaling.PAGE.read_text()
    assert page == scaling.written(page), "scripts/bench/scaling --write renews docs/scaling.md"
    assert all(f"<!-- {name}: begin -->\n|" in page for name in scaling.TABLES)


def test_the_picture_names_every_pass(scaling):
    texts = [e.text for e in xml.etree.ElementTree.parse(scaling.PICTURE).iter() if e.tag.endswith("}text")]
    named = sorted({text.split("  ")[1] for text in texts if "  " in text})
    drawn = {f"{way}: {p.what}" for way, table in (("in", scaling.host_traffic.RECEIVED), ("out", scaling.host_traffic.SENT))
             for passes in table.values() for p in passes}
    assert named == sorted(drawn), "scripts/bench/scaling --write renews the picture"


def test_the_command(scaling):
    done = subprocess.run([sys.executable, BENCH / "scaling", "--antennas", "256", "--nic", "200"], capture_output=True,
                          text=True, timeout=harness.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "F-engine hosts: 52 with 5 antennas each (limited by network in)" in done.stdout
    done = subprocess.run([sys.executable, BENCH / "scaling", "--nic", "10"], capture_output=True, text=True,
                          timeout=harness.TIMEOUT_S)
    assert done.returncode == 1 and "None" in done.stdout  # an antenna is more than its card
