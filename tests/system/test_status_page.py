"""The status page in a real browser, beside the demonstration's array with its known signals: its text, the values that its
plots show under the pointer, and its notice when its data are old."""
import json
import math
import re
import signal
import time

import numpy as np
import pytest

import browser
import demo_array
import harness

pytestmark = pytest.mark.skipif(harness.SANITIZED, reason="a browser beside an array in real time wants a fast array")

CARDS = "main > *:not([hidden])"
HEAPS_PER_S = 1e6 / 4096  # of a digitiser's input
MARGIN_LEFT, MARGIN_RIGHT = 46, 10  # of a plot, beside its axis
N_TRIES = 5  # a trouble that appears moves the plots


@pytest.fixture
def array(daemon, work):
    """The whole array, running."""
    return demo_array.Array(daemon, work).start(*demo_array.ENGINES, "dsim")


def number(text):
    """The text of a cell, without its unit and its thin spaces."""
    return float(re.match(r"−?[\d.]+", text.replace("\u2009", ""))[0].replace("−", "-"))


def cell(page, table, row, key):
    """(text, smaller text) of a cell."""
    where = page.locator(f"#{table} tr[data-row='{row}'] td[data-key='{key}']")
    return where.locator("span").text_content(), where.locator("small").text_content()


def wait_state(page, state, headline):
    page.wait_for_function("""wanted => document.getElementById("banner").dataset.state === wanted[0] &&
        document.getElementById("state").textContent === wanted[1]""", arg=[state, headline])


def plot(page, title):
    return page.get_by_role("application", name=re.compile(f"^{title}"))


def point_at(page, title, x):
    """Moves the mouse to 'x' of a plot's width.  Returns the lines that the page shows there."""
    canvas = plot(page, title)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + MARGIN_LEFT + (box["width"] - MARGIN_LEFT - MARGIN_RIGHT) * x, box["y"] + box["height"] / 2)
    return page.locator("#tip").inner_text().splitlines() or [""]


def sweep(page, title, first_channel, wanted, n_chan=None):
    """Points at channels of a plot of 'n_chan', else of an engine's all.  Returns {name: {channel: value}} of the shown
    values, and {channel: MHz}."""
    if n_chan is None:
        n_chan = demo_array.HALF if page.locator("#antenna-grid button").count() else demo_array.CHANNELS
    curves, frequencies = {}, {}
    for channel in wanted:
        for _ in range(N_TRIES):
            head, *lines = point_at(page, title, (channel - first_channel + 0.5) / n_chan)
            said, mhz = (re.fullmatch(r"channel (\d+) · (−?[\d.]+) MHz", head) or re.match("()()", "")).groups()
            if said and abs(int(said) - channel) <= 1:
                break
        else:
            raise AssertionError(f"{title}: at channel {channel} it says {head}")
        frequencies[int(said)] = float(mhz)
        # Each curve is its name and its value, on two lines or one.
        for name, value in re.findall(r"^(.*?pol [01](?: × [01])?)\s+(−?[\d.]+|none)", "\n".join(lines), re.M):
            if value != "none":
                curves.setdefault(name, {})[int(said)] = float(value.replace("−", "-"))
    return curves, frequencies


def expected_phase(channels, delay):
    """Phase in degrees if the second antenna's sky is later by 'delay' samples.  In pyuvdata's convention the phase is
    2 pi uvw . s f / c with uvw from the first antenna to the second.  A wave reaches the second antenna earlier by uvw
    . s / c."""
    f = np.asarray(list(channels)) * demo_array.RATE_HZ / 2 / demo_array.CHANNELS
    earlier_s = -delay / demo_array.RATE_HZ
    return 360 * f * earlier_s


def draw_over(page, title, first_channel, n_chan, begin, end):
    """Draws the mouse over channels of a plot."""
    canvas = plot(page, title)
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
        for curve in array["fgpu1"].status("?antenna=m003")["spectrum"]["curves"]:
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
            # A chunk is a 15th.  On a busy host, some seconds have fewer or more packets.
            harness.until(lambda: abs(number(cell(page, "inputs", row, "heaps")[0]) / HEAPS_PER_S - 1) < 0.5, "the rate")

        # Closer, and back.
        draw_over(page, "Power", 0, demo_array.CHANNELS, 280, 319)
        page.wait_for_url("**/#antenna=m003&channels=*")
        first, last = map(int, re.search(r"channels=(\d+),(\d+)", page.url).groups())
        assert abs(first - 280) <= 1 and abs(last - 319) <= 1
        browser.wait_shown(page, 1)
        # Under the pointer, which has not moved, is another channel now.
        under = first + math.floor((319 + 0.5) / demo_array.CHANNELS * (last - first + 1))
        said = int(re.match(r"channel (\d+) ", page.locator("#tip").inner_text())[1])
        assert abs(said - under) <= 1, f"the tip says {said}, the pointer is at {under}"
        powers = sweep(page, "Power", first, range(first + 2, last - 2), last - first + 1)[0]["pol 1"]
        assert max(powers, key=powers.get) == demo_array.TONE_CHANNEL and len(powers) > 30
        page.locator("#whole").click()
        page.wait_for_url("**/#antenna=m003")
        check_keyboard(page)
        check_configuration(page, array, "fgpu1")
        assert page.locator("#satellites-card").is_hidden()

        # KATCP's sensors are there for who opens them.
        page.locator("#sensors-card summary").click()
        sensors = array["fgpu1"].status()["sensors"]
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
        assert "Phase" + "of m000 – m001, sign as in the UVH5 file" in page.locator("#plots").text_content()
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
        check_configuration(page, array, "xbgpu1")


def show(page, *changes):
    """Shows the last answer with changes, one after the other: JavaScript of which 's' is the answer. No others come."""
    page.evaluate("""changes => {
      clearTimeout(timer);
      if (polling) polling.abort();
      polling = null, asked_ms = 0, poll = () => {};
      window.real = window.real || last;
      for (const change of changes) { const s = structuredClone(real); Function("s", change)(s); last = s; show(s); }
    }""", list(changes))


# Of each visible element with text: its contrast to the background, as the WCAG have it.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (top, below) => [0, 1, 2].map(i => top[3] * top[i] + (1 - top[3]) * below[i]);
  const linear = v => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const background = e => e ? over(rgba(getComputedStyle(e).backgroundColor), background(e.parentElement)) : [255, 255, 255];
  const opacity = e => e ? getComputedStyle(e).opacity * opacity(e.parentElement) : 1;
  const found = {}, add = (name, text, back) => {
    const [a, b] = [luminance(text), luminance(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (!(found[name] < ratio)) found[name] = ratio;
  };
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (e.closest("#said, option, noscript") || !box.width || !box.height) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const text = rgba(getComputedStyle(e).color), back = background(e);
    text[3] *= opacity(e);
    add(`${e.closest("[id]")?.id} ${e.tagName} ${e.textContent.trim().slice(0, 30)}`, over(text, back), back);
  }
  for (const e of document.querySelectorAll("canvas")) {
    const text = rgba(colour("--dim")), back = background(e);
    text[3] *= opacity(e);
    add(`canvas of ${e.closest("[id]")?.id}`, over(text, back), back);
  }
  return found;
}"""


def check_contrast(page, what):
    ratios = page.evaluate(CONTRASTS)
    assert len(ratios) > 60
    low = {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < 4.5}
    assert not low, f"{what}: {low}"


def check_contrasts(page, array):
    """All text can be read: in light and dark, with trouble, with hidden curves, with old data and without an answer."""
    states = ("silent", "losing", "dead", "receiving")
    levels = "; ".join(f"s.fengs[{a}].state = '{state}'" for a, state in enumerate(states))
    for name, change in (("fgpu1", "s.device.ok = false"), ("xbgpu0", levels)):
        page.goto(array.url(name))
        page.wait_for_selector("#plots canvas")
        page.locator("#sensors-card summary").click()
        page.locator(".legend button[aria-pressed=true]").first.click()
        for n, made in enumerate((change, "s.time += 30", "s.state = 'draining'")):
            show(page, made)
            page.evaluate(f"document.body.classList.toggle('stale', {str(n == 2).lower()})")
            for colours in ("light", "dark"):
                page.emulate_media(color_scheme=colours)
                ratios = page.evaluate(CONTRASTS)
                low = {text: round(ratio, 2) for text, ratio in ratios.items() if ratio < 4.5}
                assert len(ratios) > 60 and not low, f"{name} {colours} {made}: {low}"


def check_configuration(page, array, name):
    """The card shows the values of the file."""
    config, output = array.configs[name], array.configs[name]["outputs"][0]
    row = lambda key: cell(page, "outputs", output["name"], key)[0]
    setting = lambda key: cell(page, "config", key, "value")[0]
    assert number(setting("Sample rate")) == demo_array.RATE_HZ / 1e6
    destinations = re.findall(r"[\d.]+:\d+", row("destinations"))
    assert output.get("destinations", output.get("destination")).startswith(destinations[0].split(":")[0])
    assert {text.split(":")[1] for text in destinations} == {str(harness.PORT)}
    if name.startswith("fgpu"):
        assert len(destinations) == 2 and setting("Largest delay accepted") == "1.00 s"
        assert (row("kind"), row("dither")) == ("wideband", "uniform")
        assert (number(row("channels")), number(row("bandwidth")), number(row("centre"))) == (1024, 0.5, 0.25)
        assert number(row("spectra_per_heap")) == output["spectra_per_heap"]
        assert number(row("sample_bits")) == output.get("sample_bits", 8)
        for antenna in (a["name"] for a in config["antennas"]):
            for pol in (0, 1):
                assert number(cell(page, "gains", f"{antenna} wide", f"gain{pol}")[0]) == output.get("gain", 1)
        return
    assert setting("Channels of this engine") == "512 to 1023 of 1024"
    assert (setting("Bandwidth of this engine"), setting("Centre of this engine")) == ("0.25 MHz", "0.375 MHz")
    heap_s = config["recv"]["spectra_per_heap"] * 2 * demo_array.CHANNELS / demo_array.RATE_HZ
    seconds = output["integration_batches"] * heap_s if "integration_batches" in output else output["integration_time"]
    assert abs(number(row("integration_s")) / (1000 * seconds) - 1) < heap_s / seconds / 2 + 1e-3


def check_keyboard(page):
    """A plot without a mouse: pointer, zoom, text for a screen reader."""
    canvas = plot(page, "Power")
    page.mouse.move(0, 0)
    browser.wait_shown(page, 1)
    label = canvas.get_attribute("aria-label")
    peaks = re.findall(r"pol [01]: peak −?[\d.]+ dBFS at ([\d.]+) MHz, mean −[\d.]+ dBFS", label)
    assert peaks == ["0.1465", "0.1465"] and "antenna m003, 0.0000 to 0.4995 MHz" in label
    for _ in range(50):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    assert canvas.evaluate("e => e === document.activeElement && getComputedStyle(e).outlineStyle") == "solid"
    channels = []
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowRight", "ArrowLeft", "Shift+ArrowLeft"):
        page.keyboard.press(key)
        channels.append(int(re.match(r"channel (\d+) · ", page.locator("#said").text_content())[1]))
    assert channels == [512, 513, 523, 522, 512]
    assert re.search(r"pol 0, −[\d.]+ dBFS, pol 1, −[\d.]+ dBFS$", page.locator("#said").text_content())
    assert page.locator("#said").get_attribute("aria-live") == "polite" and page.locator("#tip").is_visible()
    page.keyboard.press("+")
    page.wait_for_url("**/#antenna=m003&channels=256,767")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#antenna=m003&channels=384,639")
    browser.wait_shown(page, 1)
    assert page.locator("#tip").inner_text().startswith("channel 512 ·")
    page.keyboard.press("-")
    page.wait_for_url("**/#antenna=m003&channels=256,767")
    browser.wait_shown(page, 1)
    page.keyboard.press("-")
    page.wait_for_url("**/#antenna=m003")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden() and page.evaluate("document.activeElement === document.body")


def check_old_data(page, array):
    """Figures with old data are grey and show their age.  Names and numbers are formatted for people."""
    page.goto(array.url("xbgpu0"))
    page.wait_for_selector("#plots canvas")
    good = ("s.fengs.forEach(f => f.state = 'receiving'); s.fengs[3].state = 'silent'; "
            "s.levels = s.levels.map(() => [-20, -20]); ")
    show(page, good + "s.time = s.levels_time + 4")
    tiles = page.locator("#antenna-grid button")
    assert [tiles.nth(a).get_attribute("data-level") for a in range(4)] == ["ok", "ok", "ok", "bad"]
    assert tiles.nth(1).get_attribute("aria-label") == "m001: receiving, pol 0 −20.0 dBFS, pol 1 −20.0 dBFS"
    assert tiles.nth(1).get_attribute("title").startswith("F-engine 1, inputs m001v, m001h: ")
    assert [tiles.nth(2).locator("span").nth(1 + p).get_attribute("title") for p in (0, 1)] == ["input m002v", "input m002h"]
    show(page, good + "s.time = s.levels_time + 10.4; "
                      "s.inputs[0].newest_timestamp = (s.time - 12.5 - s.sync_time) * s.adc_sample_rate")
    assert [tiles.nth(a).get_attribute("data-level") for a in range(4)] == ["", "", "", "bad"]
    assert tiles.nth(1).inner_text().endswith("10 s old")
    assert tiles.nth(1).get_attribute("aria-label").endswith(", 10 s old")
    assert page.locator(".tile[data-key=latency] small").text_content() == "12 s old"

    # The names of things, and short numbers.
    sensors = {"a": (0.12345678901, "s", "0.123457 s"), "b": (1234567890123, "", "1.23457 × 10^12"),
               "c": ("(17, -1.23456789e-09)", "", "(17, −1.23457e-9)"), "d": (1234567.891, "", "1.23457 × 10^6"),
               "e.unixtime": (1760000000.25, "", "2025-10-09 08:53:20 UTC")}
    made = {name: {"value": value, "units": units, "status": "nominal", "time": 0} for name, (value, units, _) in sensors.items()}
    show(page, "s.inputs[0].rejected_packets = {too_old: {total: 7, per_s: 0}}; "
               f"s.sensors = {json.dumps(made)}; document.getElementById('sensors-card').open = true")
    assert "m000 to m003: packets refused: too old7" in page.locator("#troubles").text_content()
    for name, (_, _, text) in sensors.items():
        assert cell(page, "sensors", name, "value")[0].strip() == text

    # An F-engine's levels.
    page.goto(array.url("fgpu1"))
    page.wait_for_selector("#plots canvas")
    show(page, "s.time = s.levels.find(l => l.antenna === 'm002').time + 10.4")
    assert cell(page, "streams", "m002 wide", "level0")[1] == "10 s old"


def trouble(where, what, level="warn", ongoing=False, n_minute=5, **others):
    """JavaScript of a row of the hour's troubles, which began ten seconds ago."""
    row = {"where": where, "stage": "a stage", "what": what, "level": level, "advice": "do this", "ongoing": ongoing,
           "n_minute": n_minute, "n_hour": 5, "total": 5, "unit": "s" if ongoing else "", **others}
    return f"s.troubles.push({{...{json.dumps(row)}, since: s.time - 10, last: s.time - 3}}); "


# An answer of which nothing is wrong.
WELL = ("s.troubles = []; s.sensors = {}; s.state = 'running'; s.uptime_s = 100; (s.fengs || []).forEach(f => { "
        "f.state = 'receiving'; f.late_heaps = {total: 0, per_s: 0}; f.refused_heaps = {total: 0, per_s: 0}; f.heaps = {total: 9000, per_s: 90}; f.missing_heaps = {total: 0, per_s: 0}; }); "
        "s.inputs.forEach(i => { i.heaps = {total: 9000, per_s: 90}; i.missing_heaps = {total: 0, per_s: 0}; "
        "i.contested_heaps = {total: 0, per_s: 0}; }); s.streams.forEach(t => { t.heaps = {total: 9, per_s: 1}; "
        "t.dropped_heaps = t.dropped_accs = {total: 0, per_s: 0}; }); ")


def check_banner(page, change, state, headline, reason):
    show(page, WELL + change)
    said = [page.locator(f"#{part}").text_content() for part in ("state", "reason")]
    assert [page.locator("#banner").get_attribute("data-state"), *said] == [state, headline, reason], change


def check_order(page, array):
    """The banner shows the worst present or recent fault.  Of equal faults it shows the present one.  It counts the
    others."""
    wrong = trouble("vis", "dumps wrong", "bad", n_minute=3)
    contested = "s.inputs[0].contested_heaps.per_s = 2; "
    silent = "s.fengs[3].state = 'silent'; s.fengs[3].since = s.time - 40; "
    losing = "s.fengs[1].state = 'losing'; s.fengs[1].heaps.per_s = 99; s.fengs[1].missing_heaps.per_s = 1; "
    no_heaps, lost = trouble("m003", "no heaps", ongoing=True), trouble("m002", "heaps missing")
    clock = trouble("host clock", "clock not synchronised", ongoing=True)
    silent_words, lost_words = "m003 silent for 40 s", "m002: 5 heaps missing, the last 3 s ago"
    contested_words = "two senders send different bytes for the same heaps: m000 to m003"
    for change, *said in [
            ("", "ok", "Receiving", "nothing is lost"),
            (silent + no_heaps, "warn", "Antennas missing", silent_words),
            (silent + no_heaps + lost, "warn", "Antennas missing", silent_words + "; and 1 more trouble below"),
            (silent + no_heaps + lost + clock, "warn", "Antennas missing", silent_words + "; and 2 more troubles below"),
            (silent + losing, "warn", "Antennas missing", silent_words + "; and 1 more trouble below"),
            (losing + lost, "warn", "Losing data", "m001 loses 1.0 %; and 1 more trouble below"),
            (losing + "s.fengs[1].heaps.per_s = 0; s.fengs[1].refused_heaps.per_s = 5; ", "warn", "Losing data", "m001 is refused"),
            (losing + "s.fengs[1].heaps.per_s = 0; s.fengs[1].refused_heaps.per_s = 5; s.fengs[1].missing_heaps.per_s = 11; ", "warn",
             "Losing data", "m001 loses 100 %"),
            (losing + "s.fengs[1].heaps.per_s = 0; s.fengs[1].late_heaps.per_s = 5; ", "warn", "Losing data", "m001 is late"),
            (wrong + silent + no_heaps, "bad", "Lost data", "vis: 3 dumps wrong, the last 3 s ago; and 1 more trouble below"),
            (wrong + losing, "bad", "Lost data", "vis: 3 dumps wrong, the last 3 s ago; and 1 more trouble below"),
            (contested + silent + no_heaps + losing, "bad", "Contested", contested_words + "; and 2 more troubles below"),
            (wrong + contested, "bad", "Contested", contested_words + "; and 1 more trouble below"),
            (lost, "warn", "Lost data", lost_words),
            (lost + clock, "warn", "Lost data", lost_words + "; and 1 more trouble below"),
            (trouble("m001", "no heaps", ongoing=True) + no_heaps + clock, "warn", "No heaps",
             "m001 for 10 s, m003 for 10 s; and 1 more trouble below"),
            (trouble("m002", "heaps missing", n_minute=0), "ok", "Receiving",
             "nothing lost in the last minute; in the last hour m002: 5 heaps missing, 3 s ago")]:
        check_banner(page, change, *said)
    nothing = "s.inputs.forEach(i => { i.heaps = {total: 0, per_s: 0}; i.newest_timestamp = -1; }); "
    sensor = "s.sensors = {'vis.rx.synchronised': {value: false, units: '', status: 'error', time: 0}}; "
    check_banner(page, nothing + sensor, "idle", "No data", "nothing has arrived on any input")
    check_banner(page, nothing + clock, "warn", "Clock not synchronised", "host clock for 10 s")
    check_banner(page, sensor, "warn", "Degraded", "vis.rx.synchronised error")
    check_banner(page, sensor + lost, "warn", "Lost data", lost_words)

    # An F-engine: a wrong delay is said before what comes of it.
    page.goto(array.url("fgpu0"))
    page.wait_for_selector("#plots canvas")
    check_banner(page, trouble("m000 wide", "no output", ongoing=True) + trouble("m000 wide", "heaps skipped")
                 + trouble("m000 wide", "silent after a wrong delay", ongoing=True),
                 "warn", "Silent after a wrong delay", "m000 wide for 10 s")
    check_banner(page, trouble("m000 wide", "delay above 0.1 s", ongoing=True) + trouble("m000 wide", "heaps skipped")
                 + trouble("m000 wide", "silent after a wrong delay"), "warn", "Delay above 0.1 s", "m000 wide for 10 s")
    check_banner(page, trouble("m001 pol 0", "packets missing") + trouble("m000 wide", "delay above 0.1 s", ongoing=True), "warn",
                 "Delay above 0.1 s", "m000 wide for 10 s; and 1 more trouble below")
    check_banner(page, trouble("m000 wide", "delay above 0.1 s", ongoing=True) + trouble("m001 pol 1", "packets contested", "bad"),
                 "bad", "Lost data", "m001 pol 1: 5 packets contested, the last 3 s ago; and 1 more trouble below")
    one = "s.inputs.find(i => i.antenna === 'm001' && i.pol === '0').heaps.per_s = 0; "
    rows = trouble("m001 pol 0", "no packets", ongoing=True) + trouble("m001 pol 0", "packets missing")
    check_banner(page, one + rows, "warn", "Inputs missing", "m001 pol 0")
    assert page.locator("[data-key='lost'] b").text_content() == "100 %"
    assert page.locator("#program").text_content() == "fgpu0" and page.title().startswith("Inputs missing · fgpu0 on ")
    check_banner(page, one + rows + trouble("m001 pol 1", "packets contested", "bad"), "bad", "Lost data",
                 "m001 pol 1: 5 packets contested, the last 3 s ago; and 2 more troubles below")


def check_never_sent(page, array):
    """A stream that has sent nothing for 30 s, or three of its heaps or dumps, of data that came; not of one that is stopped."""
    well = ["ok", "Receiving", "nothing is lost"]
    dumps = ("s.streams[0].heaps = {total: 0, per_s: 0}; const newest = s.inputs[0].newest_timestamp = 1e9; "
             "s.adc_sample_rate = 1e6; s.outputs[0].sending_from = 0; s.outputs[0].integration_s = 2; ")
    page.goto(array.url("xbgpu0"))
    page.wait_for_selector("#plots canvas")
    for change, silent in [
            ("", True), ("s.uptime_s = 29; ", False), ("s.fengs.forEach(f => f.heaps.total = 29 * 90); ", False),
            ("s.outputs[0].integration_s = 20; ", True), ("s.outputs[0].integration_s = 40; ", False),
            ("s.outputs[0].sending_from = null; ", False), ("s.outputs[0].sending_from = newest - 29e6; ", False),
            ("s.outputs[0].sending_from = newest - 31e6; ", True), ("s.streams[0].heaps.total = 1; ", False)]:
        check_banner(page, dumps + change, *(["warn", "Output silent", "no heaps of vis have been sent"] if silent else well))
    page.goto(array.url("fgpu1"))
    page.wait_for_selector("#plots canvas")
    heaps = "s.streams[1].heaps = {total: 0, per_s: 0}; "
    for change, silent in [
            ("", True), ("s.uptime_s = 29; ", False), ("s.inputs[3].heaps.total = 29 * 90; ", False),
            ("s.inputs[0].heaps.total = 29 * 90; ", True), ("s.outputs[0].bandwidth_hz = 1000; ", True),
            ("s.outputs[0].bandwidth_hz = 3 * 1024 * s.outputs[0].spectra_per_heap / 101; ", False)]:
        check_banner(page, heaps + change, *(["warn", "Output silent", "no heaps of m003 wide have been sent"] if silent else well))
    check_banner(page, heaps + trouble("m003 wide", "silent after a wrong delay", ongoing=True), "warn",
                 "Silent after a wrong delay", "m003 wide for 10 s")


def check_recorder(page, array):
    """visrec's banner, of an answer that is made from an X-engine's."""
    page.goto(array.url("xbgpu0"))
    page.wait_for_selector("#plots canvas")
    recorder = ("s.program = 'visrec'; s.inputs = []; s.streams = []; delete s.fengs; delete s.outputs; delete s.n_antennas; "
                "s.healthy = true; s.other = {heaps: {total: 0, per_s: 0}}; ")
    heaps = "s.other.heaps.total = 12; "
    stopped = trouble("X-engine to recorder", "no heaps", ongoing=True)
    lost, full = trouble("X-engine to recorder", "heaps missing"), trouble("recorder", "dumps not written, disk full", "bad")
    lost_words = "X-engine to recorder: 5 heaps missing, the last 3 s ago"
    full_words = "recorder: 5 dumps not written, disk full, the last 3 s ago"
    writes = lambda n, n_lost: f"s.other.dumps = {{total: 9, per_s: {n}}}; s.other.unwritten_dumps = {{total: 5, per_s: {n_lost}}}; "
    for change, *said in [
            ("", "idle", "No data", "no visibilities have arrived"),
            (heaps, "ok", "Recording", "nothing is lost"),
            (heaps + stopped, "bad", "No data", "no visibilities have arrived for 10 s"),
            (heaps + stopped + lost, "bad", "No data", "no visibilities have arrived for 10 s; and 1 more trouble below"),
            (heaps + lost, "warn", "Lost data", lost_words),
            (heaps + full + lost, "bad", "Lost data", full_words + "; and 1 more trouble below"),
            (heaps + full + "s.healthy = false; " + writes(0, 2), "bad", "Not recording", full_words),
            (heaps + full + "s.healthy = false; " + writes(1, 1), "bad", "Not recording", full_words),
            (heaps + full + "s.healthy = false; " + writes(2, 0), "bad", "Lost data", full_words),
            ("s.healthy = false; ", "bad", "Not recording", "no dump is written; see the log")]:
        check_banner(page, recorder + change, *said)


def check_waterfall(page, array):
    """Rows of made-up answers: phases in cyclic colours, grey without data.  Another choice begins an empty plot."""
    n, gap = 26, range(10, 17)
    begin = 1_800_000_000
    phases = np.linspace(-180, 180, demo_array.HALF).tolist()
    spectrum = "; s.spectrum.curves.forEach(c => { if (c.phase_deg) c.phase_deg = %s; })" % json.dumps(phases)
    answers = [f"s.time = {begin + k + 1}; s.spectrum.time = {begin + (9 if k in gap else k)}{spectrum}" for k in range(n)]
    page.goto(array.url("xbgpu0"))
    page.wait_for_selector("#choose-waterfall")
    show(page, "", *answers)

    def pixels(width, height):
        data = page.evaluate("size => Array.from(plot_set.waterfall.picture.getContext('2d')"
                             ".getImageData(0, 0, ...size).data)", [width, height])
        return np.array(data).reshape(height, width, 4)[:, :, :3]

    empty = page.evaluate("colour('--empty')")
    empty = [int(empty[i:i + 2], 16) for i in (1, 3, 5)]
    column, top = pixels(1, 300)[:, 0], pixels(demo_array.HALF, 1)[0]
    newest = begin + n - 1
    for row in range(300):
        pair = [t for t in (newest // 2 * 2 - 2 * row, newest // 2 * 2 - 2 * row + 1) if t <= newest]
        has_data = all(begin <= t <= newest and t - begin not in gap for t in pair)
        assert has_data != (column[row] == empty).all(), f"row {row}, of seconds {[t - begin for t in pair]}"
    # Phase 0 is light, and the ends are alike.
    light = top @ [0.2126, 0.7152, 0.0722]
    assert light[demo_array.HALF // 2] > 180 and light.argmin() not in range(100, 400)
    assert np.abs(top[0] - top[-1]).max() <= 4
    assert np.abs(np.diff(top, axis=0)).max() < 12, "no edge in the colours"
    canvas = plot(page, "Waterfall")
    assert re.match(r"Waterfall: phase pol 0 × 0, m000 – m001, 0.0000 to 0.2495 MHz, .* from [\d:]+ to [\d:]+ UTC, "
                    "19 seconds with data", canvas.get_attribute("aria-label"))
    # What is under the pointer; amplitudes of the same rows.
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x = MARGIN_LEFT + (box["width"] - MARGIN_LEFT - MARGIN_RIGHT) * 0.75
    page.mouse.move(box["x"] + x, box["y"] + 22 + 1.5)
    assert abs(number(page.locator("#tip div span").text_content()) - 90) < 1.5
    canvas.focus()
    for key in ("ArrowRight", "ArrowDown", "Shift+ArrowDown"):
        page.keyboard.press(key)
    at = time.strftime("%H:%M:%S", time.gmtime(newest // 2 * 2 + 1 - 2 * (1 + 1 + 10)))
    assert f"phase pol 0 × 0, {at} UTC" in page.locator("#said").text_content()
    page.keyboard.press("Escape")
    page.locator("#choose-waterfall").select_option("amplitude pol 0 × 0")
    amplitudes = pixels(demo_array.HALF, 7)
    assert (amplitudes[0] != top).any() and (amplitudes[6] == empty).all()
    # Late data are grey rows at the top, and another band begins an empty waterfall, as the page says.
    show(page, f"s.time = {newest + 30}; s.spectrum.time = {newest}" + spectrum)
    assert page.evaluate("plot_set.waterfall.row_at(0)") is None
    assert page.evaluate("plot_set.waterfall.rows.size") == n - len(gap)
    show(page, f"s.time = {newest + 1}; s.spectrum.time = {newest}; s.spectrum.axis.first_channel = 7" + spectrum)
    assert page.evaluate("plot_set.waterfall.rows.size") == 1
    assert "begins an empty waterfall" in page.locator("#plots").text_content()
    # One row a second comes by itself, and a power of the F-engine too.
    page.goto(array.url("fgpu1"))
    page.wait_for_selector("#choose-waterfall")
    browser.wait_shown(page, 2)
    assert 2 <= page.evaluate("plot_set.waterfall.rows.size") <= 12
    assert page.locator("#choose-waterfall").input_value() == "power pol 0"


def test_banner(array):
    """The banner for made-up answers."""
    with browser.page() as page:
        page.goto(array.url("xbgpu0"))
        page.wait_for_selector("#plots canvas")
        check_order(page, array)
        check_never_sent(page, array)
        check_recorder(page, array)
        assert not page.complaints, page.complaints


def test_made_answers(array):
    """The page for answers that are made from one of the array's answers."""
    with browser.page() as page:
        check_old_data(page, array)
        check_waterfall(page, array)
        check_contrasts(page, array)
        assert not page.complaints, page.complaints


def check_numbers(page, process, table, row_of, metric, keys):
    """All rows of a table against a scrape: keys are (key of the cell, metric's name, labels, the text it is in)."""
    metrics = process.metrics()
    for labels in row_of:
        row = row_of[labels]
        for key, name, more, part in keys:
            value = metrics.get(metric + name, **dict(labels), **more)
            assert number(cell(page, table, row, key)[part]) == value, f"{row} {key}: {cell(page, table, row, key)}"


def test_numbers_equal_metrics(daemon, work):
    """After the data have stopped, each total on the page equals the total of /metrics."""
    array = demo_array.Array(daemon, work, {"digitiser": {"duration": 5.0}}).start(*demo_array.ENGINES, "dsim")
    with browser.page() as page:
        page.goto(array.url("fgpu0"))
        wait_state(page, "bad", "No data")  # after there were data, whatever was lost of them
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
        wait_state(page, "bad", "No data")
        xbgpu = array["xbgpu1"]
        heaps = lambda: (xbgpu.metrics().get("xbgpu_input_heaps_total"), xbgpu.metrics().get("xbgpu_output_x_heaps_total"))
        harness.until(lambda: (before := heaps(), browser.wait_shown(page, 2)) and heaps() == before, "all heaps counted")
        check_numbers(page, array["xbgpu1"], "inputs", {(("fengs", "0-3"),): "m000 to m003"}, "xbgpu_input_",
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
            # All at one time: the page exchanges rows of its tables.
            edges = page.evaluate("""cards => [...document.querySelectorAll(cards), ...document.querySelectorAll("td")]
                .map(one => one.getBoundingClientRect()).filter(box => box.width)
                .map(box => [box.left + scrollX, box.right + scrollX])""", CARDS)
            assert len(edges) > 10 and min(left for left, _ in edges) >= 0, name
            assert max(right for _, right in edges) <= 360, name
            assert not page.complaints, page.complaints


def test_served_alone(array):
    """The page requests nothing from any other host."""
    for name in ("", "status.css", "status.js", "plot.js", "waterfall.js", "satellites.js"):
        text = harness.page(array["fgpu0"].config["http"]["listen"], name)
        links = re.findall(r"(?:https?:)?//[\w.-]+", re.sub(r"http://www\.w3\.org/2000/svg", "", text))
        assert not [link for link in links if "." in link], links


def wait_antennas(array, states):
    """Waits until the first X-engine says this of its antennas, some of which may lose heaps for a moment: its answer."""
    def look():
        said = array["xbgpu0"].status()
        return [f["state"] for f in said["fengs"]] == states and said

    return harness.until(look, lambda: array["xbgpu0"].status()["fengs"])


def test_antennas_that_fall_silent(daemon, work):
    """An F-engine is killed: X-engines name its antennas on the page, in /status.json, over KATCP and in the log."""
    array = demo_array.Array(daemon, work).start(*demo_array.ENGINES, "dsim")
    with browser.page() as page:
        page.goto(array.url("xbgpu0"))
        wait_state(page, "ok", "Receiving")
        wait_antennas(array, ["receiving"] * 4)
        browser.wait_shown(page, 6)  # as many seconds, in which the history has learnt how often heaps come
        array["fgpu1"].process.send_signal(signal.SIGKILL)
        killed = time.time()
        page.wait_for_selector("#reason:has-text('m003')", timeout=60000)
        page.wait_for_selector("#reason:has-text('m002 silent for')")
        wait_state(page, "warn", "Antennas missing")
        answer = wait_antennas(array, ["receiving", "receiving", "silent", "silent"])
        since = answer["fengs"][2]["since"]
        assert -3 < since - killed < answer["time"] - killed, "silent since then"
        assert answer["sensors"]["m002.rx.state"]["value"] == "silent" and answer["sensors"]["m002.rx.state"]["status"] == "error"
        assert answer["sensors"]["m001.rx.state"]["status"] == "nominal"
        for _ in range(60):
            silent = {t["where"]: t for t in array["xbgpu0"].status()["troubles"] if t["ongoing"]}
            if set(silent) == {"m002", "m003"}:
                break
            browser.wait_shown(page, 1)
        assert set(silent) == {"m002", "m003"}
        assert silent["m003"]["stage"] == "F-engine to X-engine" and -3 < silent["m003"]["since"] - killed
        page.wait_for_function("""levels => levels.every((level, a) =>
            document.querySelectorAll("#antenna-grid button")[a].dataset.level === level)""", arg=["ok", "ok", "bad", "bad"])
        browser.wait_shown(page, 2)
        assert re.search("no heaps arrive from the F-engines of .*m00[23]", array["xbgpu0"].log.read_text())

        # It comes back: the page still says for a minute what was lost, and when.
        array.start("fgpu1")
        page.wait_for_function(r"""() => document.getElementById("state").textContent === "Lost data" &&
            /^m00\d: [\d\u2009]+ heaps missing, the last \d+ s ago/.test(document.getElementById("reason").textContent)""")
        lost = {t["where"] for t in array["xbgpu0"].status()["troubles"] if t["what"] == "heaps missing" and t["n_minute"] > 0}
        assert {"m002", "m003"} <= lost
        assert page.locator("#banner").get_attribute("data-state") == "warn"
        assert not page.complaints, page.complaints


def test_beams(daemon, work):
    """The table has voltage and detected beams, and the waterfall is the chosen beam's: the tone is in its channel."""
    array = demo_array.Array(daemon, work)
    array.configs["xbgpu0"]["beams"] = [
        {"name": name, "pol": pol, "destination": f"{harness.groups()}", "send_enabled": True} for pol, name in enumerate(("bx", "by"))]
    array.configs["xbgpu0"]["detected"] = [{"name": "powers", "beams": 2, "products": "IQUV", "destination": harness.groups()}]
    array.start(*demo_array.ENGINES, "dsim")
    with browser.page() as page:
        page.goto(array.url("xbgpu0", "#stream=by"))
        page.wait_for_selector("#plots canvas")
        browser.wait_shown(page, 3)
        assert page.locator("#choose-stream").input_value() == "by"
        assert plot(page, "Power").count() == 1 and plot(page, "Phase").count() == 0
        assert page.locator("#choose-waterfall").input_value() == "power pol 1"
        curves, _ = sweep(page, "Power", 0, [*range(demo_array.TONE_CHANNEL - 4, demo_array.TONE_CHANNEL + 5), *range(10, 280, 60)])
        assert max(curves["pol 1"], key=curves["pol 1"].get) == demo_array.TONE_CHANNEL
        assert page.locator("#streams tr[data-row='by']").count() == 0
        for name in ("bx", "by"):
            assert cell(page, "beams", name, "antennas")[0] == "4 of 4"
            assert cell(page, "beams", name, "zero_weights_ratio")[0] == "0 %"
            assert 0 < number(cell(page, "beams", name, "rms")[0]) <= 127
        page.wait_for_function("""() => ["0", "1"].every(i =>
            Number(document.querySelector(`#beams tr[data-row='powers.${i}'] td[data-key='rms'] span`).textContent) > 0)""")
        assert page.locator("#streams tr[data-row^='powers']").count() == 0
        page.wait_for_function(
            """() => document.querySelector("#beams tr[data-row='powers'] td[data-key='antennas']").textContent.includes("100 %")""")
        assert cell(page, "beams", "powers", "heaps")[0] != ""
        for name in ("powers.0", "powers.1"):
            assert number(cell(page, "beams", name, "rms")[0]) <= 127 and cell(page, "beams", name, "rms")[1].startswith("Q ")
            assert cell(page, "beams", name, "zero_weights_ratio")[0] == "0 %" and cell(page, "beams", name, "heaps")[0] == ""
        assert not page.complaints, page.complaints
