"""The status page in a real browser, beside the demonstration's array, of which the signals are known: what it says, what
its plots show under the pointer, and that it says so when what it has is old."""
import json
import math
import os
import re
import signal
import time
import urllib.request

import numpy as np
import pytest

import browser
import demo_array
import harness

pytestmark = pytest.mark.skipif(harness.SANITIZED, reason="a browser beside an array in real time wants a fast array")

CARDS = "main > *:not([hidden])"
HEAPS_PER_S = 1e6 / 4096  # of a digitiser's input
MARGIN_LEFT, MARGIN_RIGHT = 46, 10  # of a plot, beside its axis


@pytest.fixture
def array(daemon, work):
    """The whole array, running."""
    return demo_array.Array(daemon, work).start(*demo_array.ENGINES, "dsim")


def number(text):
    """What a cell says, without its unit and its thin spaces."""
    return float(re.match(r"−?[\d.]+", text.replace("\u2009", ""))[0].replace("−", "-"))


def cell(page, table, row, key):
    """(text, smaller text) of a cell."""
    where = page.locator(f"#{table} tr[data-row='{row}'] td[data-key='{key}']")
    return where.locator("span").text_content(), where.locator("small").text_content()


def wait_state(page, state, headline):
    page.wait_for_selector(f"#banner[data-state='{state}']")
    assert page.locator("#state").text_content() == headline


def sweep(page, title, first_channel, wanted, n_chan=None):
    """Points at channels of a plot of 'n_chan', else of an engine's all: {name: {channel: value}} of what it says, and {channel: MHz}."""
    canvas = page.get_by_role("img", name=title)
    canvas.scroll_into_view_if_needed()
    box, tip = canvas.bounding_box(), page.locator("#tip")
    if n_chan is None:
        n_chan = demo_array.HALF if page.locator("#antenna-grid button").count() else demo_array.CHANNELS
    curves, frequencies = {}, {}
    for channel in wanted:
        x = MARGIN_LEFT + (box["width"] - MARGIN_LEFT - MARGIN_RIGHT) * (channel - first_channel + 0.5) / n_chan
        page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
        head, *lines = tip.inner_text().splitlines()
        said, mhz = re.fullmatch(r"channel (\d+) · (−?[\d.]+) MHz", head).groups()
        assert abs(int(said) - channel) <= 1, f"{title}: at channel {channel} it says {head}"
        frequencies[int(said)] = float(mhz)
        # Each curve is its name and its value, on two lines or one.
        for name, value in re.findall(r"^(.*?pol [01](?: × [01])?)\s+(−?[\d.]+|none)", "\n".join(lines), re.M):
            if value != "none":
                curves.setdefault(name, {})[int(said)] = float(value.replace("−", "-"))
    return curves, frequencies


def status(array, name, query=""):
    with urllib.request.urlopen(array.url(name, "status.json" + query), timeout=harness.TIMEOUT_S) as reply:
        return json.load(reply)


def expected_phase(channels, delay):
    """Degrees of e(first) conj(e(second)), where the second antenna's sky is later by 'delay' samples."""
    return 180 * np.asarray(list(channels)) * delay / demo_array.CHANNELS


def draw_over(page, title, first_channel, n_chan, begin, end):
    """Draws the mouse over channels of a plot."""
    canvas = page.get_by_role("img", name=title)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x_of = lambda c: box["x"] + MARGIN_LEFT + (box["width"] - MARGIN_LEFT - MARGIN_RIGHT) * (c - first_channel + 0.5) / n_chan
    page.mouse.move(x_of(begin), box["y"] + 40)
    page.mouse.down()
    page.mouse.move(x_of(end), box["y"] + 40, steps=3)
    page.mouse.up()


def check_phase(page, delay, first_channel):
    curves, _ = sweep(page, "Phase", first_channel, first_channel + np.arange(5, demo_array.HALF, 13))
    assert set(curves) == {"pol 0 × 0", "pol 1 × 1"}
    for name, phases in curves.items():
        channels = [c for c in phases if abs(c - demo_array.TONE_CHANNEL) > 2]
        off = np.array([phases[c] for c in channels]) - expected_phase(channels, delay)
        off = (off + 180) % 360 - 180
        # 256 spectra of coherence 0.73: 2.4 degrees of noise each.
        assert np.abs(np.median(off)) < 2 and np.abs(off).max() < 15, f"{name}: off by {off.round(1)}"


def test_f_engine(array):
    with browser.page() as page:
        page.goto(array.url("fgpu1", "#antenna=m003"))
        wait_state(page, "ok", "Receiving")
        assert page.locator("#choose-antenna").input_value() == "m003"
        browser.wait_shown(page, 2)

        # The tone is in its channel, and nowhere else.
        for curve in status(array, "fgpu1", "?antenna=m003")["spectrum"]["curves"]:
            powers = np.array(curve["mean"])
            assert len(powers) == demo_array.CHANNELS and powers.argmax() == demo_array.TONE_CHANNEL
            assert powers.max() > np.median(powers) + 8 and np.sort(powers)[-4] < np.median(powers) + 5
        tone = range(demo_array.TONE_CHANNEL - 4, demo_array.TONE_CHANNEL + 5)
        curves, frequencies = sweep(page, "Power", 0, [*tone, *range(10, 900, 60)])
        assert set(curves) == {"pol 0", "pol 1"}
        for powers in curves.values():
            assert max(powers, key=powers.get) == demo_array.TONE_CHANNEL
            assert powers[demo_array.TONE_CHANNEL] > np.median(list(powers.values())) + 8
        assert abs(frequencies[demo_array.TONE_CHANNEL] - 0.146484375) < 1e-4

        # Noise of 0.05 and 0.03 of full scale (511 of 511.5), and the tone; dBFS is relative to a sine that fills it.
        power = 10 * math.log10(2 * (0.05**2 + 0.03**2 + 0.01**2 / 2))
        for row in ("m002 pol 0", "m003 pol 1"):
            assert abs(number(cell(page, "inputs", row, "power_dbfs")[0]) - power) < 0.4
            assert abs(number(cell(page, "inputs", row, "heaps")[0]) / HEAPS_PER_S - 1) < 0.5  # a chunk is a 15th

        # Closer, and back.
        draw_over(page, "Power", 0, demo_array.CHANNELS, 280, 319)
        page.wait_for_url("**/#antenna=m003&channels=*")
        first, last = map(int, re.search(r"channels=(\d+),(\d+)", page.url).groups())
        assert abs(first - 280) <= 1 and abs(last - 319) <= 1
        browser.wait_shown(page, 1)
        powers = sweep(page, "Power", first, range(first + 2, last - 2), last - first + 1)[0]["pol 1"]
        assert max(powers, key=powers.get) == demo_array.TONE_CHANNEL and len(powers) > 30
        page.locator("#whole").click()
        page.wait_for_url("**/#antenna=m003")

        # KATCP's sensors are there for who opens them.
        page.locator("#sensors-card summary").click()
        sensors = status(array, "fgpu1")["sensors"]
        assert {"steady-state-timestamp", "time.synchronised"} <= sensors.keys()
        for name in sensors:
            assert cell(page, "sensors", name, "status")[0] in ("nominal", "unknown", "warn", "error", "failure")

        # The delay that is tracked: 17 samples at the start, and 0.2 more each second.
        now = page.locator("#spectrum-time").text_content()[:8]
        text, samples = cell(page, "delays", "m003 wide pol 0", "now_delay_s")
        hours, minutes, seconds = map(int, now.split(":"))
        since = int(array.configs["fgpu1"]["time"]["sync_time"])
        elapsed = (hours * 3600 + minutes * 60 + seconds - since) % 86400
        assert abs(number(samples) - -(17 + 0.2 * elapsed)) < 1.0
        assert abs(number(text) - 1000 * number(samples)) < 1  # ns at 1 MS/s
        assert page.locator("#delays tbody tr").count() == 2  # m002 has none
        assert not page.complaints, page.complaints


def test_x_engine(array):
    with browser.page() as page:
        page.goto(array.url("xbgpu0"))
        wait_state(page, "ok", "Receiving")
        page.wait_for_selector("#plots canvas")
        browser.wait_shown(page, 2)
        powers_of, _ = sweep(page, "Autocorrelations", 0, range(demo_array.TONE_CHANNEL - 3, demo_array.TONE_CHANNEL + 4))
        assert set(powers_of) == {f"m00{a} pol {p}" for a in (0, 1) for p in (0, 1)}
        for powers in powers_of.values():
            assert max(powers, key=powers.get) == demo_array.TONE_CHANNEL
        check_phase(page, demo_array.DELAYS[1], 0)
        coherence = sweep(page, "Coherence", 0, range(5, 500, 17))[0]["pol 0 × 0"]
        assert abs(np.median(list(coherence.values())) - 0.05**2 / (0.05**2 + 0.03**2)) < 0.02

        # Another baseline, chosen by hand; the address names it.
        page.locator("#choose-second").select_option("2")
        page.wait_for_url("**/#baseline=0,2")
        page.wait_for_selector("#plots button:has-text('m002 pol 1')")
        check_phase(page, demo_array.DELAYS[2], 0)
        # And by a click on an antenna.
        page.locator("#antenna-grid button").nth(1).click()
        page.wait_for_url("**/#baseline=0,1")
        page.wait_for_selector("#plots button:has-text('m001 pol 1')")
        assert not page.complaints, page.complaints

        # The other half of the band has its own channels.
        page.goto(array.url("xbgpu1", "#baseline=0,2"))
        page.wait_for_selector("#plots button:has-text('m002 pol 1')")
        check_phase(page, demo_array.DELAYS[2], demo_array.HALF)


def check_numbers(page, process, table, row_of, metric, keys):
    """All rows of a table against a scrape: keys are (key of the cell, metric's name, labels, the text it is in)."""
    metrics = process.metrics()
    for labels in row_of:
        row = row_of[labels]
        for key, name, more, part in keys:
            value = metrics.get(metric + name, **dict(labels), **more)
            assert number(cell(page, table, row, key)[part]) == value, f"{row} {key}: {cell(page, table, row, key)}"


def test_numbers_equal_metrics(daemon, work):
    """Once nothing flows any more, each total on the page is the one of /metrics."""
    array = demo_array.Array(daemon, work, {"digitiser": {"duration": 5.0}}).start(*demo_array.ENGINES, "dsim")
    with browser.page() as page:
        page.goto(array.url("fgpu0"))
        wait_state(page, "ok", "Receiving")
        wait_state(page, "idle", "No data")
        fgpu = array["fgpu0"]
        # The last chunks are handed on after a second's silence.
        fgpu.wait_counted(lambda m: sum(m.get(f"fgpu_input_{name}_total") for name in (
            "heaps", "ignored_packets", "rejected_packets", "too_old_heaps")) == m.get("fgpu_input_packets_total"),
            "all chunks handed on")
        browser.wait_shown(page, 2)
        inputs = {(("antenna", a), ("pol", p)): f"{a} pol {p}" for a in ("m000", "m001") for p in (0, 1)}
        check_numbers(page, fgpu, "inputs", inputs, "fgpu_input_",
                      [("heaps", "heaps_total", {}, 1), ("bytes", "bytes_total", {}, 1),
                       ("missing_heaps", "missing_heaps_total", {}, 1),
                       ("clipped_samples", "clipped_samples_total", {}, 1)])
        streams = {(("antenna", a), ("stream", "wide")): f"{a} wide" for a in ("m000", "m001")}
        check_numbers(page, fgpu, "streams", streams, "fgpu_output_",
                      [("heaps", "heaps_total", {}, 1), ("bytes", "bytes_total", {}, 1),
                       ("clipped0", "clipped_samples_total", {"pol": 0}, 1),
                       ("clipped1", "clipped_samples_total", {"pol": 1}, 1),
                       ("skipped_heaps", "skipped_heaps_total", {}, 0), ("dropped_heaps", "dropped_heaps_total", {}, 0)])
        metrics = fgpu.metrics()
        for labels, row in inputs.items():
            shown = number(cell(page, "inputs", row, "power_dbfs")[0])
            assert abs(shown - metrics.get("fgpu_input_power_dbfs", **dict(labels))) <= 0.051
        assert metrics.get("fgpu_output_heaps_total", antenna="m000") > 30
        tile = page.locator(".tile[data-key='lost'] small").text_content()
        assert number(tile) == metrics.get("fgpu_input_missing_heaps_total")
        clock = page.locator(".tile[data-key='clock'] b").text_content()
        assert clock == ("synchronised" if metrics.get("fgpu_clock_synchronised") else "not synchronised")

        page.goto(array.url("xbgpu1"))
        wait_state(page, "idle", "No data")
        check_numbers(page, array["xbgpu1"], "inputs", {(("fengs", "0-3"),): "F-engines 0-3"}, "xbgpu_input_",
                      [("heaps", "heaps_total", {}, 1), ("bytes", "bytes_total", {}, 1),
                       ("missing_heaps", "missing_heaps_total", {}, 1), ("incomplete_heaps", "incomplete_heaps_total", {}, 0)])
        check_numbers(page, array["xbgpu1"], "streams", {(("stream", "vis"),): "vis"}, "xbgpu_output_x_",
                      [("heaps", "heaps_total", {}, 1), ("bytes", "bytes_total", {}, 1),
                       ("incomplete_accs", "incomplete_accs_total", {}, 0), ("dropped_accs", "dropped_accs_total", {}, 0)])
        audits = array["xbgpu1"].metrics().get("xbgpu_audits_total")
        assert number(cell(page, "streams", "vis", "audits")[0]) == audits > 5

        # And a page whose program is gone says so, and is grey, also where nobody looks at it.
        page.evaluate("Object.defineProperty(document, 'hidden', {value: true}); "
                      "document.dispatchEvent(new Event('visibilitychange'))")
        array["xbgpu1"].process.send_signal(signal.SIGKILL)
        wait_state(page, "gone", "No answer")
        page.wait_for_selector("body.stale")


def test_phone(array):
    """Nothing is wider than the window of a phone."""
    with browser.page(width=360, height=740, colours="dark", scale=2) as page:
        for name in ("fgpu1", "xbgpu0"):
            page.goto(array.url(name))
            page.wait_for_selector("#plots canvas")
            browser.wait_shown(page, 2)
            boxes = [card.bounding_box() for card in page.locator(CARDS).all()]
            boxes += [td.bounding_box() for td in page.locator("td").all() if td.is_visible()]
            for box in boxes:
                assert box["x"] >= 0 and box["x"] + box["width"] <= 360, f"{name}: {box}"
            assert not page.complaints, page.complaints


@pytest.mark.skipif("CBF_SCREENSHOTS" not in os.environ, reason="CBF_SCREENSHOTS=docs/images renews the pictures")
@pytest.mark.parametrize("picture", ["status-f-light", "status-x-light", "status-x-dark", "status-f-phone"])
def test_screenshots(array, picture):
    """The pictures of docs/monitoring.md, each under 200 kB."""
    from PIL import Image

    _, engine, kind = picture.split("-")
    size = {"width": 390, "height": 844, "scale": 2} if kind == "phone" else {"width": 1200, "height": 1000}
    with browser.page(colours="light" if kind == "light" else "dark", **size) as page:
        page.goto(array.url("xbgpu0", "#baseline=0,1") if engine == "x" else array.url("fgpu1", "#antenna=m003"))
        wait_state(page, "ok", "Receiving")
        browser.wait_shown(page, 6)
        path = harness.ROOT / os.environ["CBF_SCREENSHOTS"] / f"{picture}.png"
        page.screenshot(path=path, full_page=kind != "phone")
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(96, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    assert path.stat().st_size < 200_000


def test_served_alone(array):
    """The page asks no other host for anything."""
    for name in ("", "status.css", "status.js", "plot.js"):
        with urllib.request.urlopen(array.url("fgpu0", name)) as reply:
            text = reply.read().decode()
        links = re.findall(r"(?:https?:)?//[\w.-]+", re.sub(r"http://www\.w3\.org/2000/svg", "", text))
        assert not [link for link in links if "." in link], links


def test_antennas_that_fall_silent(daemon, work):
    """An F-engine is killed: X-engines name its antennas on the page, in /status.json, over KATCP and in the log."""
    array = demo_array.Array(daemon, work).start(*demo_array.ENGINES, "dsim")
    with browser.page() as page:
        page.goto(array.url("xbgpu0"))
        wait_state(page, "ok", "Receiving")
        assert {f["antenna"]: f["state"] for f in status(array, "xbgpu0")["fengs"]} == {
            f"m00{a}": "receiving" for a in range(4)}
        browser.wait_shown(page, 6)  # as many seconds, in which the history has learnt how often heaps come
        array["fgpu1"].process.send_signal(signal.SIGKILL)
        killed = time.time()
        page.wait_for_selector("#reason:has-text('m003')", timeout=1000 * (60 if harness.SANITIZED else 20))
        assert page.locator("#state").text_content() in ("Losing data", "Antennas missing")
        page.wait_for_selector("#reason:has-text('m002 silent for')")
        wait_state(page, "warn", "Antennas missing")
        answer = status(array, "xbgpu0")
        states = {f["antenna"]: f["state"] for f in answer["fengs"]}
        assert states == {"m000": "receiving", "m001": "receiving", "m002": "silent", "m003": "silent"}
        since = answer["fengs"][2]["since"]
        assert -3 < since - killed < answer["time"] - killed, "silent since then"
        assert answer["sensors"]["m002.rx.state"]["value"] == "silent" and answer["sensors"]["m002.rx.state"]["status"] == "error"
        assert answer["sensors"]["m001.rx.state"]["status"] == "nominal"
        for _ in range(30):
            quiet = {t["where"]: t for t in status(array, "xbgpu0")["troubles"] if t["quiet"]}
            if len(quiet) == 2:
                break
            browser.wait_shown(page, 1)
        assert set(quiet) == {"m002", "m003"}
        assert quiet["m003"]["stage"] == "F-engine to X-engine" and -3 < quiet["m003"]["since"] - killed
        levels = [page.locator("#antenna-grid button").nth(a).get_attribute("data-level") for a in range(4)]
        assert levels == ["ok", "ok", "bad", "bad"]
        browser.wait_shown(page, 2)
        assert re.search("F-engines silent: .*m00[23]", array["xbgpu0"].log.read_text())

        # It comes back: the page still says for a minute what was lost, and when.
        array.daemon("fgpu", array.configs["fgpu1"], "again").wait_ready()
        page.wait_for_selector("#state:has-text('Lost data')")
        assert re.match(r"m00[23]: [\d\u2009]+ heaps missing, the last \d+ s ago", page.locator("#reason").text_content())
        assert page.locator("#banner").get_attribute("data-state") == "warn"
        assert not page.complaints, page.complaints
