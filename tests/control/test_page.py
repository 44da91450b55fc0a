"""Tests the array page in a real browser: beside the demonstration's array while faults are made, and with hand-made
states of 64 antennas.

CBF_NIGHT_LIMIT_S bounds the time from a fault to its name, as in tests/system/test_night.py.  The default is long,
because a busy machine stalls an engine, the page's server or the browser for seconds.
"""

import os
import re
import signal
import time

import numpy as np
import pytest

import browser
import control
import demo_array
import harness
import status_pages
from array_page import SKY_HZ, ArrayPage, FixedPage, config_of
from test_watch import Array

pytestmark = pytest.mark.skipif(harness.SANITIZED, reason="a browser beside an array in real time wants a fast array")

LIMIT_S = float(os.environ.get("CBF_NIGHT_LIMIT_S", harness.TIMEOUT_S))
SHOWN = """boxes => {
    const text = id => document.getElementById(id).innerText;
    const lamps = ([box, level]) => [...document.querySelectorAll(`#${box} [data-level='${level}'] > b`)];
    const banner = [document.getElementById("banner").dataset.state, text("state"), text("reason")];
    return {banner, flow: text("flow"), lamps: boxes.map(box => lamps(box).map(lamp => lamp.innerText))};
}"""
FRINGE = """() => {
    const is_whole = curve => curve.mean.filter(value => value !== null).length > 1000;
    const phase = fringe.plots && fringe.plots.phase;
    return phase && phase.curves && phase.curves.length && phase.curves.every(is_whole) && [phase.curves, phase.axis];
}"""


@pytest.fixture
def serve():
    """serve(page): stops the page's server at the end of the test."""
    pages = []
    yield lambda page: pages.append(page) or page
    for page in pages:
        page.stop()


def wait_state(page, level, headline, reason, lamps, flow=""):
    """Waits until one update of the page shows all arguments.  Returns the time (monotonic).

    'reason' is a part of the banner's sentence.  'lamps' are {(box, level): names}.  'flow' stands once in the picture
    of the flow.
    """

    def is_shown():
        shown.update(page.evaluate(SHOWN, list(lamps)))
        return (
            shown["banner"][:2] == [level, headline]
            and reason in shown["banner"][2]
            and shown["lamps"] == list(lamps.values())
            and (not flow or shown["flow"].count(flow) == 1)
        )

    shown = {}
    harness.until(is_shown, lambda: f"{headline}: {reason}: {lamps}, but {shown}", 150)  # as long as the page's waits
    return time.monotonic()


def lamps(page, box, state):
    """Names of the lamps in this state."""
    return page.locator(f"#{box} [data-level='{state}'] > b").all_inner_texts()


# ---- A running array -------------------------------------------------------------------------------------------------


def wait_rates(array):
    """Waits until the data flow has the array's rates.  A busy machine delays a heap by more than one second's average."""
    # 8 inputs of 10 bits, 4 antennas of 2 x 2 x 8 bits a pair of samples, each in packets of some header bytes
    wanted = {"digitisers": 8 * 10e6, "fgpu": 4 * 0.5e6 * 4 * 8, "switch": 4 * 0.5e6 * 4 * 8}

    def off():
        rates = {row["from"]: row["gbps"] * 1e9 for row in array.http.watch.state["flow"]}
        return {name: rates[name] for name, rate in wanted.items() if abs(rates[name] / rate - 1) >= 0.2}

    deadline = time.monotonic() + harness.TIMEOUT_S
    while last := off():
        assert time.monotonic() < deadline, f"bits a second {last}, not {wanted}"
        time.sleep(0.2)


def check_healthy(page, array):
    wanted = {
        ("antenna-lamps", "ok"): ["m000", "m001", "m002", "m003"],
        ("engine-groups", "ok"): ["fgpu0", "fgpu1", "xbgpu0", "xbgpu1", "visrec"],
    }
    wait_state(page, "ok", "All is well", "all 4 antennas are received, nothing is lost", wanted)
    wait_rates(array)
    href = page.locator("#engine-groups a", has_text="fgpu1").get_attribute("href")
    assert href == f"http://{next(e['http'] for e in array.config['engines'] if e['name'] == 'fgpu1')}/"


def check_fringe(page):
    """Checks the phase of m000 - m001 over the sky frequency.  The signal of m001 is 5 samples later.  The sign is that
    of UVH5: the wave reaches the second antenna earlier by -5 samples."""
    page.wait_for_selector("#fringe-card[data-shown]")
    # The first answer may lack the channels of an X-engine.
    curves, axis = page.wait_for_function(FRINGE).json_value()
    assert [c["name"] for c in curves] == ["pol 0 × 0", "pol 1 × 1"]
    assert axis["channels"] == demo_array.CHANNELS and abs(axis["first_hz"] - (SKY_HZ - demo_array.RATE_HZ / 4)) < 1
    channels = np.arange(demo_array.CHANNELS)
    wanted = 360 * channels / 2 / demo_array.CHANNELS * -demo_array.DELAYS[1]
    for curve in curves:
        known = np.array([v is not None for v in curve["mean"]])
        off = (np.array([v or 0 for v in curve["mean"]]) - wanted + 180) % 360 - 180
        assert abs(np.median(off[known])) < 2 and np.percentile(abs(off[known]), 95) < 15


def test_faults(daemon, work, serve, monkeypatch):
    """A feed is cut, and an F-engine is killed.  The banner names the antenna and the engine in time, and the page
    shows both faults for an hour."""
    # A busy machine stalls engines for seconds.  A killed engine refuses connections at once.
    monkeypatch.setattr("control_watch.TIMEOUT_S", 30)
    array = demo_array.Array(daemon, work, katcp=True, recording=work / "recording.uvh5").start(
        *demo_array.ENGINES, "visrec", "dsim"
    )
    made = serve(ArrayPage(config_of(array))).wait()
    dsim = control.Client(array["dsim"])
    seconds = {}
    with browser.page() as page:
        page.goto(made.url)
        check_healthy(page, made)
        check_fringe(page)

        cut = time.monotonic()
        dsim.request("loss", "m001", 1)
        reason = "m001: no data from the digitiser on both polarisations (fgpu0 on cbf1)"
        named = wait_state(page, "bad", "No data", reason, {("antenna-lamps", "bad"): ["m001"]})
        seconds["cut feed"] = named - cut
        page.wait_for_selector("#antenna-reasons li:has-text('m001')")
        page.wait_for_selector("#troubles-table td:has-text('m001 pol 0') ~ td:has-text('look at the digitiser')")
        dsim.request("loss", "m001", 0)
        page.wait_for_function("() => document.querySelectorAll(\"#antenna-lamps [data-level=bad]\").length === 0")

        killed = time.monotonic()
        array["fgpu1"].process.send_signal(signal.SIGKILL)
        wanted = {("antenna-lamps", "absent"): ["m002", "m003"], ("engine-groups", "absent"): ["fgpu1"]}
        reason = "fgpu1 on cbf2 does not answer: m002 and m003 are missing"
        named = wait_state(page, "bad", "Engines missing", reason, wanted, flow="1 of 2 answer")
        seconds["killed F-engine"] = named - killed
        page.wait_for_selector("#troubles-table td:has-text('fgpu1')")
        array.start("fgpu1")
        page.wait_for_function("() => document.querySelectorAll(\"#antenna-lamps [data-level=absent]\").length === 0")
        page.wait_for_selector("#troubles-table td:has-text('m001 pol 0')")  # the last hour
        assert set(page.evaluate("last.history.map(row => row.state)")) >= {"bad"}
        assert not page.complaints, page.complaints

        made.run(made.http.stop())
        page.wait_for_selector("#banner[data-state='gone']")
        page.wait_for_selector("body.stale")
    dsim.close()
    print(seconds)
    assert max(seconds.values()) < LIMIT_S, seconds


# ---- Hand-made states ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    with browser.client() as made:
        yield made


@pytest.fixture(scope="module")
def troubled():
    """Returns the state of 64 antennas and 128 engines: a cut feed, a dead F-engine, an input with losses, an X-engine
    with a wrong clock."""
    array = Array()
    array.answers["f20"]["inputs"][0]["missing_heaps"] = status_pages.counter(10, 0.0)
    array.look()
    array.silence_feed(13)
    del array.answers["f33"]
    array.mute(33)
    array.answers["f20"]["inputs"][0]["missing_heaps"] = status_pages.counter(500, 420.0)
    array.answers["x40"]["troubles"] = [
        status_pages.trouble("host clock", "host clock", "clock not synchronised", ongoing=True, unit="s")
    ]
    array.look()
    return array.config, array.look()


def test_lamps(troubled, serve, chromium):
    """Each lamp has a state in words and a symbol, and says why it is not green."""
    served = serve(FixedPage(*troubled))
    page = browser.new_page(chromium)
    page.goto(served.url)
    browser.wait_shown(page)
    assert len(lamps(page, "antenna-lamps", "ok")) == 61 and len(lamps(page, "engine-groups", "ok")) == 127
    assert page.locator("#antennas-count span:visible").all_inner_texts() == [
        "✓ 61 green",
        "▲ 1 amber",
        "✕ 1 red",
        "○ 1 missing",
    ]
    names = {b.get_attribute("aria-label") for b in page.locator("#antenna-lamps button").all()}
    assert (
        "m013, red: no data from the digitiser on both polarisations" in names
        and "m033, missing: f33 on cbf34 does not answer" in names
    )
    assert "m020, amber: loses 0.1 % of the packets from the digitiser on polarisation 0" in names
    assert "m000, green: input power −21 −21 dBFS, received by 64 of 64 X-engines" in names
    engine = page.get_by_role("link", name="x40, amber: clock not synchronised")
    assert (
        engine.get_attribute("href")
        == f"http://{next(e['http'] for e in troubled[0]['engines'] if e['name'] == 'x40')}/"
    )
    assert page.locator("#antenna-reasons li").all_inner_texts() == [
        "✕\nm013\nno data from the digitiser on both polarisations (f13 on cbf14)",
        "▲\nm020\nloses 0.1 % of the packets from the digitiser on polarisation 0 (f20 on cbf21)",
        "○\nm033\nf33 on cbf34 does not answer",
    ]
    # all 64 antennas and 128 engines are on one screen of a desk
    assert page.evaluate("document.getElementById('engines').getBoundingClientRect().bottom") < 1500
    assert page.locator("#losses td").first.inner_text() == "m020" and "420 /s" in page.locator("#losses").inner_text()
    assert not [m for m in page.complaints if "fringe" not in m], page.complaints


def test_keyboard_and_screen_reader(troubled, serve, chromium):
    served = serve(FixedPage(*troubled))
    page = browser.new_page(chromium)
    page.goto(served.url)
    browser.wait_shown(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the antennas"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("m000, green")
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#baseline=m000,m005")
    assert page.locator("#antenna-lamps [aria-pressed=true]").count() == 2
    browser.wait_shown(page)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(
        "m005"
    ), "the focus stays over an update"
    # every section has a heading, every picture and control has a name
    assert page.evaluate(
        "[...document.querySelectorAll('main > section')]"
        ".every(s => document.getElementById(s.getAttribute('aria-labelledby')))"
    )
    assert (
        page.get_by_role("img", name=re.compile("^State of the last hour. Green for .* amber for .* red for")).count()
        == 1
    )
    assert page.evaluate("""[...document.querySelectorAll('a, button, select, canvas')].filter(e => e.offsetParent)
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).length""") == 0
    assert page.get_by_role("status").inner_text().startswith("Engines missing")
    assert page.locator("html").get_attribute("lang") == "en"


def contrast(a, b):
    def light(colour):
        c = np.array([int(v) for v in re.findall(r"\d+", colour)[:3]]) / 255
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_phone(troubled, serve, chromium, colours):
    """Nothing is wider than the window of a phone.  Texts on lamps have enough contrast in the light and the dark
    mode."""
    served = serve(FixedPage(*troubled))
    page = browser.new_page(chromium, width=360, height=740, colours=colours, scale=2)
    page.goto(served.url)
    browser.wait_shown(page)
    edges = page.evaluate(
        """[...document.querySelectorAll("main > *:not([hidden]), td, .lamps > *, .node, .arrow, #reason")]
        .filter(one => !one.closest(".scroll")).map(one => one.getBoundingClientRect()).filter(box => box.width)
        .map(box => [box.left + scrollX, box.right + scrollX])"""
    )
    assert len(edges) > 210 and min(left for left, _ in edges) >= 0 and max(right for _, right in edges) <= 360
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate(
        "[...document.querySelectorAll('#antenna-lamps b')].every(b => b.scrollWidth <= b.clientWidth)"
    ), "names are whole"
    for state in ("ok", "warn", "bad", "absent"):
        lamp = page.locator(f".lamps [data-level={state}]").first
        ground = lamp.evaluate("e => getComputedStyle(e).backgroundColor")
        for part in ("b", "i", "span"):
            ink = lamp.locator(part).evaluate("e => getComputedStyle(e).color")
            assert contrast(ink, ground) >= 4.5, f"{state} {part}: {ink} on {ground}"


def test_served_alone(troubled, serve, chromium):
    """The page requests nothing from any other host."""
    served = serve(FixedPage(*troubled))
    page = browser.new_page(chromium)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.url)
    browser.wait_shown(page, 2)
    assert len(asked) >= 7 and all(url.startswith(served.url) for url in asked), asked
    assert float(page.locator("body").get_attribute("data-draw-ms")) < 1000
